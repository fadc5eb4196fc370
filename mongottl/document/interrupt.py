"""Interruption of long computations, to let other operations run or because the operation must end.

Operations check for interruption between batches of documents: time limit exceeded, operation killed, server shutting
down. An expression over an array of millions of elements can take seconds, so its loops check as well. The code that
runs an operation sets the check, per thread, because several servers may run in one process, each in its own thread.

Parsing and planning of a long request also take seconds. They run on a thread of their own, which takes turns with the
server's thread (`exec.operation.turns`): only one of the two runs at any time, and the check of that thread ends its
turn. So the functions that such a computation calls for each field, value, node or range call `give_way`. It does
nothing on other threads, so these functions can be used anywhere.

On the server's thread `give_way` also checks for interruption, but only within an evaluation: between
`begin_evaluation` and `end_evaluation` nothing is computed but values of documents (scans, filters, pipelines, updates
of one document), so an error there leaves nothing behind. An open unit of work suspends it.

What a unit of work takes is known only roughly: `$map` counts one for each element, whatever it evaluates for it, which
may be a search through a string of 16 MB. So evaluations check after a few units first, and go on by the time that
these have taken: up to CHECKED_WORK units where that is short, fewer where it is long.
"""

import threading
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

# The work that is done, in the units of `give_way`, before it looks whether the turn is over.
_GIVE_WAY_EVERY: Final[i64] = 32

# The most work that is done within an evaluation, in the units of `give_way`, between two checks for interruption.
CHECKED_WORK: Final[i64] = 2048
# The work before the first check of a step; how much more there may be from one check to the next.
_FIRST_WORK: Final[i64] = 32
_GROWTH: Final[i64] = 4
# The time between two checks should not be longer; where it is shorter than the second, there may be more work.
_CHECK_EVERY_S: Final = 0.005
_SHORT_S: Final = 0.001

_checks: Final[dict[int, Callable[[], None]]] = {}
# The threads that take turns, and those that evaluate.
_turn_takers: Final[set[int]] = set()
_evaluating: Final[set[int]] = set()


class _Count:
    """Counts the weights of `give_way`, while there is a thread that takes turns or evaluates.

    threads: how many there are, since most calls of `give_way` are for none. calls: since it has looked at the limits.
    work: since the last check of an evaluation. every, checked_work: the limits of these two. monotonic_s: of the
    thread whose step has begun last. checked_s: when it has checked last, at first when the step has begun.
    """

    def __init__(self) -> None:
        self.threads: i64 = 0
        self.calls: i64 = 0
        self.work: i64 = 0
        self.every: i64 = _GIVE_WAY_EVERY
        self.checked_work: i64 = _FIRST_WORK
        self.monotonic_s: Callable[[], float] | None = None
        self.checked_s = 0.0

    def begin_step(self, monotonic_s: Callable[[], float]) -> None:
        self.monotonic_s = monotonic_s
        self.checked_s = monotonic_s()
        self.every = _GIVE_WAY_EVERY
        self.checked_work = _FIRST_WORK

    def adapt(self) -> None:
        """After a check of an evaluation: sets the work before the next one by the time since the one before."""
        if self.monotonic_s is None:
            return
        now_s = self.monotonic_s()
        taken_s = now_s - self.checked_s
        self.checked_s = now_s
        if taken_s > _CHECK_EVERY_S:
            self.checked_work = max(1, i64(int(int(self.checked_work) * _CHECK_EVERY_S / taken_s)))
        elif taken_s < _SHORT_S:
            self.checked_work = min(CHECKED_WORK, self.checked_work * _GROWTH)
        self.every = min(_GIVE_WAY_EVERY, self.checked_work)


_count: Final = _Count()


def _count_threads() -> None:
    """Called after every change of the sets. Once more if another thread has changed them meanwhile."""
    threads: i64 = -1
    while threads != len(_turn_takers) + len(_evaluating):
        threads = len(_turn_takers) + len(_evaluating)
        _count.threads = threads


def set_check(
    check: Callable[[], None], takes_turns: bool = False, monotonic_s: Callable[[], float] | None = None
) -> None:
    """Sets the check for computations on this thread: a function that raises the error that ends the operation.

    takes_turns: whether it also ends the thread's turn, so that `give_way` has to call it. monotonic_s: of the clock by
    which evaluations of the step that begins now learn how often to check; None for a thread that takes turns.
    """
    ident = threading.get_ident()
    _checks[ident] = check
    if monotonic_s is not None:
        _count.begin_step(monotonic_s)
    if takes_turns:
        _turn_takers.add(ident)
        _count_threads()


def clear_check() -> None:
    ident = threading.get_ident()
    _checks.pop(ident, None)
    _evaluating.discard(ident)
    _turn_takers.discard(ident)
    _count_threads()


def check_interrupt() -> None:
    """Raises MaxTimeMSExpired (50), Interrupted (11601) or InterruptedAtShutdown (11600) if the operation must end."""
    check = _checks.get(threading.get_ident())
    if check is not None:
        check()


def give_way(weight: i64 = 1) -> None:
    """Called for each part of a computation that may be long: ends the turn of a thread that takes turns, if it is
    over, and raises the errors of `check_interrupt` within an evaluation.

    weight: of this part; 1 for one that takes about a microsecond.
    """
    if _count.threads == 0:
        return
    _count.calls += weight
    if _count.calls >= _count.every:
        _count.work += _count.calls
        _count.calls = 0
        if _turn_takers and threading.get_ident() in _turn_takers:
            check_interrupt()
        elif _count.work >= _count.checked_work:
            _count.work = 0
            if threading.get_ident() in _evaluating:
                check_interrupt()
                _count.adapt()


def begin_evaluation() -> bool:
    """Begins an evaluation on this thread; False if there is one already, which then goes on."""
    ident = threading.get_ident()
    if ident in _evaluating or ident not in _checks:
        return False
    _evaluating.add(ident)
    _count_threads()
    return True


def end_evaluation() -> bool:
    """Ends, or suspends, the evaluation on this thread; whether there was one."""
    if not _evaluating:
        return False
    ident = threading.get_ident()
    if ident not in _evaluating:
        return False
    _evaluating.discard(ident)
    _count_threads()
    return True
