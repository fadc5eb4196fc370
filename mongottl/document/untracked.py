"""Lists and sets that Python's garbage collector does not examine.

It would otherwise examine every object of every block of records or keys in each full collection: a tenth of a second
for a million documents.
"""

import ctypes
import sys
from collections.abc import Callable
from typing import Final


def _leave(container: object) -> None:
    """`untrack` for Python implementations whose garbage collector has no untracking: does nothing."""


def _gc_untrack() -> Callable[[object], None]:
    if sys.implementation.name != "cpython":
        return _leave
    function = ctypes.pythonapi.PyObject_GC_UnTrack
    function.argtypes = [ctypes.py_object]
    function.restype = None
    return function


# Makes the garbage collector ignore a list or set. One of bytes, numbers and tuples of these cannot be part of a
# reference cycle, and is still freed by its reference count.
untrack: Final[Callable[[object], None]] = _gc_untrack()
