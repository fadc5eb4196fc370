"""Runs long computations in steps, although they are not generators: parsing and planning of long requests.

    server's thread   ── next(steps) ─┐            ┌─ other operations, next(steps) ─┐            ┌─ …
    computing thread                  └─ compute ──┘ give_way                        └─ compute ──┘

Only one of the two threads runs at any time: the server's thread waits until the other's turn is over. So a computation
needs no locks, and reads a consistent state until it calls `give_way` (`document.interrupt`), directly or through the
functions that it uses. During that call other operations run and any state may change, as between two steps. Parsing
depends on no state that changes. Planning depends on the catalogue: see `plan.planner.plan_in_turns`.

A computation must not change shared state, nor use anything that belongs to the server's thread.
"""

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from mongottl.document.interrupt import clear_check, set_check
from mongottl.exec.operation.context import LONG_REQUEST_BYTES, OperationContext
from mongottl.exec.operation.steps import Steps

# How long one turn is. Each costs about 30 microseconds for changing threads.
TURN_S: Final = 0.001

T = TypeVar("T")


class _Abandoned(BaseException):
    """Ends a computation whose result nobody waits for. No Exception, so that no computation catches it."""


class _Computation(Generic[T]):
    """A computation on its thread. monotonic_s: the clock's method."""

    def __init__(self, compute: Callable[[], T], monotonic_s: Callable[[], float]) -> None:
        self._compute = compute
        self._monotonic_s = monotonic_s
        self._turn_end_s = 0.0
        self._may_compute = threading.Lock()
        self._may_compute.acquire()
        self._turn_over = threading.Lock()
        self._turn_over.acquire()
        self._abandoned = False
        self._ended = False
        self.results: list[T] = []
        self.error: BaseException | None = None
        # mypyc makes C identifiers of names with a prefix "_", and "__thread" is a keyword of C.
        self._computing_thread = threading.Thread(target=self._run, name="mongottl-turns", daemon=True)
        self._computing_thread.start()

    def take_turn(self) -> bool:
        """Computes until the turn is over. Whether the computation has ended."""
        self._turn_end_s = self._monotonic_s() + TURN_S
        self._may_compute.release()
        self._turn_over.acquire()
        return self._ended

    def close(self) -> None:
        """Ends the computation if it has not ended, and its thread."""
        if not self._ended:
            self._abandoned = True
            self.take_turn()
        self._computing_thread.join()

    def _run(self) -> None:
        self._may_compute.acquire()
        set_check(self._end_turn, takes_turns=True)
        try:
            if not self._abandoned:
                self.results.append(self._compute())
        except BaseException as error:
            self.error = error
        finally:
            clear_check()
            self._ended = True
            self._turn_over.release()

    def _end_turn(self) -> None:
        """Lets the server's thread run if the turn is over."""
        if self._monotonic_s() >= self._turn_end_s:
            self._turn_over.release()
            self._may_compute.acquire()
            if self._abandoned:
                raise _Abandoned


def is_long(op: OperationContext) -> bool:
    """Whether the operation's request is so long that `in_turns` computes in turns."""
    return op.request_bytes >= LONG_REQUEST_BYTES


def in_turns(
    op: OperationContext, compute: Callable[[], T], check: Callable[[], None] | None = None, long: bool = False
) -> Steps[T]:
    """The result of a computation about the operation's request; if that is long, computed in turns.

    long: whether the computation is long although the request is not.
    check: called before each turn but the first; raises an error, which ends the computation, if what it depends on
    has changed.
    Raises what the computation raises, and the errors of `OperationContext.check_interrupt`.
    """
    if not long and op.request_bytes < LONG_REQUEST_BYTES:
        result = compute()
        if op.must_enter_scripts():
            yield None
        return result
    computation = _Computation(compute, op.service.clock.monotonic_s)
    try:
        while not computation.take_turn():
            op.check_interrupt()
            yield None
            if check is not None:
                check()
    finally:
        computation.close()
    if computation.error is not None:
        raise computation.error
    return computation.results[0]
