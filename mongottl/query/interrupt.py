"""Interruption of long computations on one document: time limit exceeded, operation killed, or server shutting down.

Operations check for interruption between batches of documents. An expression over an array of millions of elements can
take seconds, so its loops check as well, every `CHECK_EVERY` iterations. The code that runs an operation sets the
check, per thread, because several servers may run in one process, each in its own thread.
"""

import threading
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

CHECK_EVERY: Final[i64] = 1024

_checks: Final[dict[int, Callable[[], None]]] = {}


def set_check(check: Callable[[], None]) -> None:
    """Sets the check for computations on this thread: a function that raises the error that ends the operation."""
    _checks[threading.get_ident()] = check


def clear_check() -> None:
    _checks.pop(threading.get_ident(), None)


def check_interrupt() -> None:
    """Raises MaxTimeMSExpired (50), Interrupted (11601) or InterruptedAtShutdown (11600) if the operation must end."""
    check = _checks.get(threading.get_ident())
    if check is not None:
        check()
