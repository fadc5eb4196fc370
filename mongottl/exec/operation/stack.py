"""The stack of calls on which the steps of an operation run, so that others run in the middle of a step.

An evaluation of one document can take seconds, as a `$reduce` over an array of a million, or waits for a script in
JavaScript, and parsing a request of 40 MB takes seconds as well: all that deep inside a step. So the steps run in a
greenlet, which can be left there and gone on with later:

    server's thread   ── advance ─┐                          ┌─ other operations ─┐              ┌─ …
    greenlet                      └─ … evaluation: leave ────┘                    └─ evaluation … yield ┘

While a step is left any state may change, as between two steps. So it is left only within an evaluation
(`document.interrupt`). That is safe: stages read a batch of records first and then test them, writes fail with a
WriteConflict, and are repeated, if a record is no longer what it was when its filter was evaluated, and what is parsed
depends on no state that changes; planning is checked (`plan.planner.make_plan`). An open unit of work suspends an
evaluation, so it is never left.
"""

import contextlib
from collections.abc import Callable
from typing import Any, Final

from greenlet import GreenletExit, getcurrent, greenlet

from mongottl.document.interrupt import begin_evaluation, end_evaluation, may_leave
from mongottl.exec.operation.steps import Flush, InThread, Steps, Wait

# How long a step goes on before it is left in the middle of an evaluation.
LEFT_AFTER_S: Final = 0.002


class _Abandoned(BaseException):
    """Ends a step that is left in the middle. No Exception, so that no evaluation catches it."""


# How long short steps follow one another before others may run: switching takes as long as a short step.
TOGETHER_S: Final = 0.0002

# So many greenlets are kept for other operations: a new one costs as much as forty switches.
_MOST_IDLE: Final = 64


class Raised:
    """What a step has raised: StopIteration with the result at the end of all steps."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class StepTimes:
    """left_after_s: how long a step goes on before it is left in the middle of an evaluation.
    together_s: how long short steps follow one another.
    """

    def __init__(self, left_after_s: float = LEFT_AFTER_S, together_s: float = TOGETHER_S) -> None:
        self.left_after_s = left_after_s
        self.together_s = together_s


class Stack:
    """Runs the steps of one operation in a greenlet.

    monotonic_s: the clock's method. idle: greenlets that other operations of the server have used. times: how long
    steps go on.
    was_left: whether a step was left in the middle, so that what it had read may have changed.
    """

    def __init__(self, monotonic_s: Callable[[], float], idle: list[Any], times: StepTimes) -> None:
        self._monotonic_s = monotonic_s
        self._idle = idle
        self._times = times
        self._begun_s = 0.0
        self._until_s = 0.0
        self._leave_at_s = 0.0
        self._checks: list[Callable[[], None]] = []
        # The greenlet in which the steps run, None before the first; whether it is within one.
        self._run: Any = None
        self._entered = False
        # For `advance`, not an argument of `switch`: the greenlet would hold that, however large, while it is idle.
        self._outcome: Wait | Flush | InThread | Raised | None = None
        self.was_left = False

    @property
    def is_entered(self) -> bool:
        """Whether a step has begun and not ended."""
        return self._entered

    def advance(
        self, steps: Steps[Any], error: Exception | None, adapt: Callable[[float], None]
    ) -> Wait | Flush | InThread | Raised | None:
        """The next step of a generator, as by `next` or, with an error, by its `throw`; what it has raised; or what it
        is left for. Short steps that only let others run follow one another.

        adapt: called with the duration of each step in seconds.
        """
        now_s = self._monotonic_s()
        self._begun_s = now_s
        self._until_s = now_s + self._times.together_s
        self._leave_at_s = now_s + self._times.left_after_s
        run = self._run
        if run is None:
            idle = self._idle
            run = self._run = idle.pop() if idle else greenlet(_run_steps)
        # The server's thread may be in another greenlet than at the last step.
        run.parent = getcurrent()
        if self._entered:
            run.switch()
        else:
            self._entered = True
            run.switch((self, steps, error, adapt))
        outcome = self._outcome
        self._outcome = None
        return outcome

    def goes_on(self, adapt: Callable[[float], None]) -> bool:
        """Called by the greenlet after each step that only lets others run: whether the next one follows at once."""
        now_s = self._monotonic_s()
        adapt(now_s - self._begun_s)
        self._begun_s = now_s
        return now_s < self._until_s

    def end_step(self, outcome: Wait | Flush | InThread | Raised | None) -> None:
        """Called by the greenlet before it is left at the end of a step."""
        self._outcome = outcome
        self._entered = False

    def leave(self, step: Wait | None) -> bool:
        """Called in the middle of a step: lets other operations run, or waits. False, at once, outside of `advance`.

        step: what it waits for, None if it only lets others run.
        """
        run = self._run
        if not self._entered or run is not getcurrent():
            return False
        evaluating = end_evaluation()
        self.was_left = True
        self._outcome = step
        run.parent.switch()
        if evaluating:
            begin_evaluation()
        for check in self._checks:
            check()
        return True

    def leave_if_due(self) -> None:
        """Called by checks for interruption, anywhere: leaves an evaluation whose step takes long."""
        if self._monotonic_s() >= self._leave_at_s and may_leave():
            self.leave(None)

    def compute(self, function: Callable[[], Any], check: Callable[[], None] | None = None) -> Any:
        """What the function returns; it is left as evaluations are.

        check: called whenever it was left; raises an error, which ends it, if what it depends on has changed.
        """
        checks = self._checks
        if check is not None:
            self._checks = [*checks, check]
        begun = begin_evaluation()
        try:
            return function()
        finally:
            if begun:
                end_evaluation()
            self._checks = checks

    def end(self) -> None:
        """Ends a step that is left, and gives the greenlet to others."""
        run = self._run
        if run is None:
            return
        self._run = None
        if self._entered:
            self._entered = False
            run.parent = getcurrent()
            with contextlib.suppress(_Abandoned):
                run.throw(_Abandoned)
        elif len(self._idle) < _MOST_IDLE:
            self._idle.append(run)


def _run_steps(begun: tuple[Stack, Steps[Any], Exception | None, Callable[[float], None]]) -> None:
    """Runs one step after the other, of one operation after the other."""
    present = getcurrent()
    while True:
        stack, steps, error, adapt = begun
        outcome: Wait | Flush | InThread | Raised | None
        try:
            outcome = next(steps) if error is None else steps.throw(error)
            while outcome is None and stack.goes_on(adapt):
                outcome = next(steps)
        except (GreenletExit, _Abandoned):
            raise
        except BaseException as raised:
            outcome = Raised(raised)
        stack.end_step(outcome)
        # Nothing of the operation is kept here while the greenlet is idle.
        del outcome, begun, stack, steps, error, adapt
        begun = present.parent.switch()
