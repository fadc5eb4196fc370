"""Interruption of long computations, to let other operations run or because the operation must end.

Operations check for interruption between batches of documents: time limit exceeded, operation killed, server shutting
down. An expression over an array of millions of elements can take seconds, so its loops check as well. The code that
runs an operation sets the check, per thread, because several servers may run in one process, each in its own thread.

So the functions that an evaluation calls for each field, value, node or range call `give_way`. It does nothing outside
of an evaluation: between `begin_evaluation` and `end_evaluation` nothing is computed but values of documents (scans,
filters, pipelines, updates of one document), or what a long request means (parsing, planning). An error there leaves
nothing behind, and other operations can run there (`exec.running.stack`). An open unit of work suspends it.

What a unit of work takes is known only roughly: `$map` counts one for each element, whatever it evaluates for it, which
may be a search through a string of 16 MB. So evaluations look at the time after a few units of work, sooner where the
last ones have taken long, and check whenever CHECK_EVERY_S are over. There they also free what they have let go
(`freeing`).
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Final, TypeVar

from mypy_extensions import i64, mypyc_attr

from mongottl.document.copied import COPIED, COUNTED_BYTES
from mongottl.document.freeing import free_some

T = TypeVar("T")

# The time between two checks for interruption within an evaluation.
CHECK_EVERY_S: Final = 0.001
# The most work that is done, in the units of `give_way`, before an evaluation looks at the time; how much work there is
# before it looks for the first time; and how much more there may be from one look to the next.
LOOKED_WORK: Final[i64] = 512
_FIRST_WORK: Final[i64] = 32
_GROWTH: Final[i64] = 4
# As a power of two: how many bytes are copied in a microsecond, mostly; encoded or decoded in less than four.
_COPIED_BITS: Final[i64] = 11
MANY_BYTES: Final[i64] = 1 << 16
# It looks sooner if it has worked for this time.
_LONG_S: Final = 0.0005

# Of the present thread. Not `threading.get_ident`, which would be looked up at each call.
_ident: Final[Callable[[], int]] = threading.get_ident


@mypyc_attr(allow_interpreted_subclasses=True)
class UndividedGuard(ABC):
    """Keeps undivided blocks what they are where the storage engine lets others run while it waits: they may read
    then, but nobody else begins such a block, or a unit of work."""

    @abstractmethod
    def begin(self) -> None:
        """Called before a block begins; waits until all others have ended."""
        raise NotImplementedError

    @abstractmethod
    def end(self) -> None:
        """Called when a block has ended that `begin` was called for."""
        raise NotImplementedError


class _Thread:
    """What is known of a thread. ident: its number.

    check: how its computations are interrupted; None outside of operations. evaluates: whether it does.
    run_aside: calls a function in another thread, while others run here; None where nobody can.
    undivided: how many undivided blocks are open: units of work, and others in which nothing else may run.
    guard: of these blocks, if there is one.
    """

    def __init__(self, ident: int) -> None:
        self.ident: Final[int] = ident
        self.check: Callable[[], None] | None = None
        self.run_aside: Callable[[Callable[[], object]], object] | None = None
        self.evaluates: bool = False
        self.undivided: int = 0
        self.guard: UndividedGuard | None = None


_threads: Final[dict[int, _Thread]] = {}
# The threads that evaluate.
_evaluating: Final[set[_Thread]] = set()


class _Latest:
    """thread: the one that has asked for itself last, which mostly is the one that asks next."""

    def __init__(self) -> None:
        self.thread = _Thread(0)


_latest: Final = _Latest()


def _present() -> _Thread:
    """The present thread."""
    ident = _ident()
    thread = _latest.thread
    if thread.ident != ident:
        found = _threads.get(ident)
        thread = _Thread(ident) if found is None else found
        _threads[ident] = thread
        _latest.thread = thread
    return thread


class _Count:
    """Counts the weights of `give_way`, while there is a thread that evaluates.

    threads: how many there are, since most calls of `give_way` are for none. work: since it has looked at the time.
    looked_work: before it looks next; at most most_work. every_s: between two checks. monotonic_s: of the thread whose
    step has begun last. looked_s: when it has looked last, at first when the step has begun. check_s: when the next
    check is due.
    """

    def __init__(self) -> None:
        self.threads: i64 = 0
        self.work: i64 = 0
        self.looked_work: i64 = _FIRST_WORK
        self.most_work: i64 = LOOKED_WORK
        self.every_s = CHECK_EVERY_S
        self.monotonic_s: Callable[[], float] | None = None
        self.looked_s = 0.0
        self.check_s = 0.0

    def begin_step(self, monotonic_s: Callable[[], float], now_s: float) -> None:
        self.monotonic_s = monotonic_s
        self.looked_s = now_s
        self.check_s = self.looked_s + self.every_s
        self.looked_work = min(self.looked_work, min(_FIRST_WORK, self.most_work))

    def look(self) -> bool:
        """Looks at the time: sets the work before the next look; whether a check is due."""
        if self.monotonic_s is None:
            return True
        now_s = self.monotonic_s()
        taken_s = now_s - self.looked_s
        self.looked_s = now_s
        if taken_s > _LONG_S:
            self.looked_work = max(1, i64(int(int(self.looked_work) * _LONG_S / taken_s)))
        else:
            self.looked_work = min(self.most_work, self.looked_work * _GROWTH)
        if now_s < self.check_s:
            return False
        self.check_s = now_s + self.every_s
        return True


_count: Final = _Count()


def _count_threads() -> None:
    """Called after every change of the set. Once more if another thread has changed it meanwhile."""
    threads: i64 = -1
    while threads != len(_evaluating):
        threads = len(_evaluating)
        _count.threads = threads


def set_check(check: Callable[[], None], monotonic_s: Callable[[], float] | None = None, now_s: float = -1.0) -> None:
    """Sets the check for computations on this thread: a function that raises the error that ends the operation, and
    may let others run.

    monotonic_s: of the clock by which evaluations of the step that begins now know when to check; None for one that
    goes on as before. now_s: the time by it, if it is known.
    """
    _present().check = check
    if monotonic_s is not None:
        _count.begin_step(monotonic_s, monotonic_s() if now_s < 0.0 else now_s)


def check_often(often: bool = True) -> None:
    """For tests of what others may do in the middle of evaluations: whether these check after each unit of work."""
    _count.most_work = 1 if often else LOOKED_WORK
    _count.every_s = 0.0 if often else CHECK_EVERY_S
    _count.looked_work = min(_FIRST_WORK, _count.most_work)


def clear_check() -> Callable[[], None] | None:
    """The check that was set for computations on this thread, of which there is none from now on."""
    thread = _present()
    check = thread.check
    thread.check = None
    if thread.evaluates:
        _stop(thread)
    return check


def _stop(thread: _Thread) -> None:
    """Ends the evaluation on a thread."""
    thread.evaluates = False
    _evaluating.discard(thread)
    _count_threads()


def check_interrupt() -> None:
    """Raises MaxTimeMSExpired (50), Interrupted (11601) or InterruptedAtShutdown (11600) if the operation must end."""
    check = _present().check
    if check is not None:
        check()


def give_way(weight: i64 = 1) -> None:
    """Called for each part of a computation that may be long: `check_interrupt` every CHECK_EVERY_S, within an
    evaluation.

    weight: of this part; 1 for one that takes about a microsecond.
    """
    if _count.threads == 0:
        return
    _count.work += weight
    if _count.work >= _count.looked_work:
        _count.work = 0
        if _present().evaluates and _count.look():
            check_interrupt()
            while free_some():
                check_interrupt()


def give_way_after(copied_bytes: i64) -> None:
    """`give_way` after a text or a document has been copied, or its text encoded or decoded, which are not divided."""
    if copied_bytes >= COUNTED_BYTES:
        COPIED.bytes += copied_bytes
        if copied_bytes >= MANY_BYTES:
            give_way(copied_bytes >> _COPIED_BITS)


def begin_evaluation() -> bool:
    """Begins an evaluation on this thread; False if there is one already, which then goes on."""
    thread = _present()
    if thread.evaluates or thread.check is None:
        return False
    thread.evaluates = True
    _evaluating.add(thread)
    _count_threads()
    return True


def end_evaluation() -> bool:
    """Ends, or suspends, the evaluation on this thread; whether there was one."""
    if not _evaluating:
        return False
    thread = _present()
    if not thread.evaluates:
        return False
    _stop(thread)
    return True


def begin_undivided() -> bool:
    """Suspends the evaluation on this thread at the beginning of an undivided block; whether there was one.

    Units of work are such blocks, and those of `Undivided`, which may be nested. An evaluation that begins within one
    may be ended, since that ends the block, but no other operation runs there.
    """
    return _begin_undivided(_present())


def _begin_undivided(thread: _Thread) -> bool:
    thread.undivided += 1
    if not thread.evaluates:
        return False
    _stop(thread)
    return True


def end_undivided(suspended: bool) -> None:
    """suspended: what `begin_undivided` has returned."""
    thread = _present()
    assert thread.undivided > 0
    thread.undivided -= 1
    if suspended:
        begin_evaluation()


def set_aside_undivided() -> int:
    """Called before others run though an undivided block is open: how many are, which `take_up_undivided` opens again.

    Only where a storage engine waits for its answer: what it is waited for within such a block must bear that others
    run.
    """
    thread = _present()
    blocks = thread.undivided
    thread.undivided = 0
    return blocks


def take_up_undivided(blocks: int) -> None:
    if blocks:
        _present().undivided = blocks


def in_undivided() -> bool:
    """Whether a block in which nothing else may run is open on this thread, such as a unit of work."""
    return _present().undivided > 0


def may_leave() -> bool:
    """Whether other operations may run here: in an evaluation, but not in an undivided block."""
    thread = _present()
    return thread.evaluates and thread.undivided == 0


def is_evaluating() -> bool:
    """Whether `check_interrupt` may be called here, which raises what ends the operation."""
    return _present().evaluates


def set_run_aside(run_aside: Callable[[Callable[[], object]], object] | None) -> None:
    """Sets what calls the functions of `run_aside` for the evaluations of this thread."""
    _present().run_aside = run_aside


def run_aside(function: Callable[[], T]) -> T:
    """What a function returns that takes long, lets other threads run, and touches nothing that others change.

    Within an evaluation other operations run meanwhile; the errors of `check_interrupt` end that. Elsewhere it is
    called here.
    """
    thread = _present()
    if thread.run_aside is None or not thread.evaluates or thread.undivided:
        return function()
    result: T = thread.run_aside(function)  # type: ignore[assignment]
    return result


def set_undivided_guard(guard: UndividedGuard | None) -> None:
    """Sets the guard of the blocks on this thread."""
    _present().guard = guard


class Undivided:
    """A block in which nothing else runs: what it finds holds until it has changed it. It should be short."""

    def __init__(self) -> None:
        self._suspended = False
        self._guard: UndividedGuard | None = None

    def __enter__(self) -> None:
        thread = _present()
        guard = thread.guard
        if guard is not None:
            guard.begin()
            self._guard = guard
        self._suspended = _begin_undivided(thread)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end_undivided(self._suspended)
        guard = self._guard
        if guard is not None:
            self._guard = None
            guard.end()


class UndividedEvaluation(Undivided):
    """A block in which nothing else runs, but that the errors of `check_interrupt` end: an evaluation that uses what
    all operations share, such as a validator, and takes seconds for a document of 16 MB."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = False

    def __enter__(self) -> None:
        self._suspended = begin_undivided()  # no guard: it asks no storage engine, so that nobody else runs
        self._begun = begin_evaluation()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._begun:
            end_evaluation()
        end_undivided(self._suspended)
