"""Running the steps of an operation on its stack."""

from collections.abc import Callable
from typing import TypeVar

from mongottl.document.interrupt import clear_check, set_check
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.stack import Raised
from mongottl.exec.operation.steps import Steps, Wait

T = TypeVar("T")


def under_way(op: OperationContext, steps: Steps[T], check: Callable[[], None], counts_waits: bool = False) -> Steps[T]:
    """The steps of an operation, which are left in the middle of evaluations that take long (`stack`).

    check: called every millisecond within evaluations. It raises what ends them, and calls `Stack.leave_if_due`.
    counts_waits: whether waits for anything count as waits for new data; else those for a signal.
    """
    stack = op.stack
    monotonic_s = op.service.monotonic_s
    adapt = op.adapt_step
    error: Exception | None = None
    try:
        while True:
            set_check(check, monotonic_s)
            try:
                step = stack.advance(steps, error, adapt)
            finally:
                clear_check()
            if isinstance(step, Raised):
                raised = step.error
                if isinstance(raised, StopIteration):
                    value: T = raised.value
                    return value
                raise raised
            error = None
            began_s = -1.0
            if isinstance(step, Wait) and (step.signal is not None or counts_waits):
                began_s = monotonic_s()
            try:
                yield step
                if began_s >= 0.0:
                    op.waited_s += monotonic_s() - began_s
            except Exception as thrown:  # the step failed; the command answers with the error
                error = thrown
    finally:
        stack.end()
        steps.close()
