"""How long a computation goes on without checking whether its operation is to end, in CPU of its thread."""

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from mongottl.build_info import is_compiled
from mongottl.document.freeing import free_some
from mongottl.document.interrupt import begin_evaluation, check_often, clear_check, end_evaluation, set_check
from mongottl.errors import CommandError, ErrorCode
from tests.tracing import untraced

# CPU of this thread between two checks, interpreted: compiled it is a twentieth of that. Collections of garbage are not
# part of it: a process that has run thousands of tests has much more to look at than a server.
MAX_GAP_S: Final = untraced(0.5)
# The same as a server paces it, over so many elements of anything whose number a client decides: fewer where they are
# interpreted, so that the tests do not take minutes. On a quiet machine no gap is longer than a third of this.
STALL_S: Final = untraced(0.06 if is_compiled() else 0.1)
ELEMENTS: Final = 100_000 if is_compiled() else 20_000
# What takes longer is interrupted.
MEASURED_S: Final = 1.0
# A machine under load makes single gaps longer, so the best of so many runs counts.
_RUNS: Final = 4
# How often what takes long for each element of a long array checks at least.
MIN_CHECKS: Final = 2


class Gaps:
    """Measures the CPU between checks.

    ends: the operation is to end, with this code, from this check on; 0: never. ends_s: it is to end after so long.
    """

    def __init__(
        self, ends: int = 0, code: ErrorCode = ErrorCode.MaxTimeMSExpired, ends_s: float = float("inf")
    ) -> None:
        self.longest_s = 0.0
        self.count = 0
        self._ends = ends
        self._code = code
        self._last_s = time.thread_time()
        self._ends_s = self._last_s + ends_s

    def check(self) -> None:
        now_s = time.thread_time()
        self.longest_s = max(self.longest_s, now_s - self._last_s)
        self._last_s = now_s
        self.count += 1
        if (self._ends and self.count >= self._ends) or now_s >= self._ends_s:
            raise CommandError(self._code, "the operation is to end")


@contextmanager
def measured(ends: int = 0, evaluates: bool = True, code: ErrorCode = ErrorCode.MaxTimeMSExpired) -> Iterator[Gaps]:
    """The gaps of what is computed in the block, as an evaluation."""
    collects = gc.isenabled()
    gc.disable()
    gaps = Gaps(ends, code)
    set_check(gaps.check, monotonic_s=time.thread_time)
    check_often()
    if evaluates:
        begin_evaluation()
    try:
        yield gaps
        if evaluates and not ends:
            gaps.check()
    finally:
        end_evaluation()
        clear_check()
        check_often(False)
        if collects:
            gc.enable()


def longest_stall_s(compute: Callable[[], object], measured_s: float = MEASURED_S) -> float:
    """CPU seconds that the function goes on, as one evaluation, without a check, when it looks at the time as often as
    in a server. It may end with a CommandError; it does after this time.

    What it returns is then freed, as a server does it: that counts, too.
    """
    longest = float("inf")
    for _ in range(_RUNS):
        while free_some():
            pass  # of another test
        with _paced(measured_s) as gaps, contextlib.suppress(CommandError):
            result = compute()
            gaps.check()
            del result
            gaps.check()
            while free_some():
                gaps.check()
        longest = min(longest, gaps.longest_s)
        if longest <= STALL_S:
            break
    return longest


@contextmanager
def _paced(measured_s: float) -> Iterator[Gaps]:
    collects = gc.isenabled()
    gc.disable()
    gaps = Gaps(ends_s=measured_s)
    set_check(gaps.check, monotonic_s=time.thread_time)
    begin_evaluation()
    try:
        yield gaps
        with contextlib.suppress(CommandError):
            gaps.check()
    finally:
        end_evaluation()
        clear_check()
        if collects:
            gc.enable()
