"""Interruption of long computations, to let other operations run or because the operation must end.

Operations check for interruption between batches of documents: time limit exceeded, operation killed, server shutting
down. An expression over an array of millions of elements can take seconds, so its loops check as well, every
`CHECK_EVERY` iterations. The code that runs an operation sets the check, per thread, because several servers may run in
one process, each in its own thread.

Parsing and planning of a long request also take seconds. They run on a thread of their own, which takes turns with the
server's thread (`exec.operation.turns`): only one of the two runs at any time, and the check of that thread ends its
turn. So the functions that such a computation calls for each field, value, node or range call `give_way`. It does
nothing on other threads, so these functions can be used anywhere.
"""

import threading
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

CHECK_EVERY: Final[i64] = 1024
# The work that is done, in the units of `give_way`, before it looks whether the turn is over.
_GIVE_WAY_EVERY: Final[i64] = 32

_checks: Final[dict[int, Callable[[], None]]] = {}
# The threads that take turns.
_turn_takers: Final[set[int]] = set()


class _Count:
    """Counts the weights of `give_way`, while there is a thread that takes turns."""

    def __init__(self) -> None:
        self.calls: i64 = 0


_count: Final = _Count()


def set_check(check: Callable[[], None], takes_turns: bool = False) -> None:
    """Sets the check for computations on this thread: a function that raises the error that ends the operation.

    takes_turns: whether it also ends the thread's turn, so that `give_way` has to call it.
    """
    ident = threading.get_ident()
    _checks[ident] = check
    if takes_turns:
        _turn_takers.add(ident)


def clear_check() -> None:
    ident = threading.get_ident()
    _checks.pop(ident, None)
    _turn_takers.discard(ident)


def check_interrupt() -> None:
    """Raises MaxTimeMSExpired (50), Interrupted (11601) or InterruptedAtShutdown (11600) if the operation must end."""
    check = _checks.get(threading.get_ident())
    if check is not None:
        check()


def give_way(weight: i64 = 1) -> None:
    """Called for each part of a computation that may be long: ends the turn of a thread that takes turns, if it is
    over.

    weight: of this part; 1 for one that takes about a microsecond.
    """
    if not _turn_takers:
        return
    _count.calls += weight
    if _count.calls >= _GIVE_WAY_EVERY:
        _count.calls = 0
        if threading.get_ident() in _turn_takers:
            check_interrupt()
