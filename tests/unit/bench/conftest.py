"""Makes `bench`, which is not installed, importable: last on the path, so that it hides nothing that is installed."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3]))
