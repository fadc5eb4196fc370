"""How work over one document learns that it is to end: its time is over, it was killed, or the server stops.

Operations look between batches of documents. An expression over an array of millions would not be heard from for
seconds, so its loops ask as well, every `CHECK_EVERY` turns. Whoever runs an operation sets what is asked; by thread,
because several servers may run in one process, each in a thread of its own.
"""

import threading
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

CHECK_EVERY: Final[i64] = 1024

_checks: Final[dict[int, Callable[[], None]]] = {}


def set_check(check: Callable[[], None]) -> None:
    """From now on work on this thread asks `check`, which raises what is to end it."""
    _checks[threading.get_ident()] = check


def clear_check() -> None:
    _checks.pop(threading.get_ident(), None)


def check_interrupt() -> None:
    """Raises MaxTimeMSExpired (50), Interrupted (11601) or InterruptedAtShutdown (11600) if the operation is to end."""
    check = _checks.get(threading.get_ident())
    if check is not None:
        check()
