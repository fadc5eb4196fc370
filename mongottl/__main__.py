"""`python -m mongottl` is the command `mongottl`."""

import sys

from mongottl.cli import main

if __name__ == "__main__":
    sys.exit(main())
