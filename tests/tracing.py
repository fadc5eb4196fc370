"""What tests that measure time make of coverage and debuggers that are told of each line, and multiply its time."""

import math
import sys


def untraced(limit_s: float) -> float:
    """The limit, in seconds; none where lines are traced. Python's own monitoring, since 3.12, is cheap enough."""
    return limit_s if sys.gettrace() is None else math.inf
