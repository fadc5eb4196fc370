"""How long a computation goes on without checking whether its operation is to end, in CPU of its thread."""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mongottl.document.interrupt import begin_evaluation, check_often, clear_check, end_evaluation, set_check
from mongottl.errors import CommandError, ErrorCode
from tests.tracing import untraced

# CPU of this thread between two checks, interpreted: compiled it is a twentieth of that. Collections of garbage are not
# part of it: a process that has run thousands of tests has much more to look at than a server.
MAX_GAP_S: Final = untraced(0.5)
# How often what takes long for each element of a long array checks at least.
MIN_CHECKS: Final = 2


class Gaps:
    """Measures the CPU between checks. ends: the operation is to end, with this code, from this check on; 0: never."""

    def __init__(self, ends: int = 0, code: ErrorCode = ErrorCode.MaxTimeMSExpired) -> None:
        self.longest_s = 0.0
        self.count = 0
        self._ends = ends
        self._code = code
        self._last_s = time.thread_time()

    def check(self) -> None:
        now_s = time.thread_time()
        self.longest_s = max(self.longest_s, now_s - self._last_s)
        self._last_s = now_s
        self.count += 1
        if self._ends and self.count >= self._ends:
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
