"""Steps of operations that evaluate scripts: other operations run while a script takes long.

A script runs in a process of its own, and the evaluation that needs its value waits for it, deep inside a step: of a
scan with `$where`, of a `$project` with `$function`. So such steps run in a greenlet, which can be left there and gone
on with later:

    server's thread   ── next(steps) ─┐                            ┌─ other operations ─┐                  ┌─ …
    greenlet                          └─ … $where: pause(0.001) ───┘                    └─ … $where … yield ┘

During a pause any state may change, as between two steps. That is safe for evaluations: stages read a batch of records
first and then test them, and writes fail with a WriteConflict, and are repeated, if a record is no longer what it was
when its filter was evaluated. No unit of work is open while expressions are evaluated.
"""

import contextlib
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mongottl.document.interrupt import begin_evaluation, end_evaluation
from mongottl.exec.operation.signal import Signal
from mongottl.exec.operation.state import OperationState
from mongottl.exec.operation.steps import Flush, InThread, Steps, Wait

if TYPE_CHECKING:
    from mongottl.javascript.processes import Turn
    from mongottl.javascript.scripts import AwaitTurn, Pause, Scripts


class _Abandoned(BaseException):
    """Ends a step that is left in the middle. No Exception, so that no evaluation catches it."""


class ScriptSteps:
    """Runs the steps of one operation in greenlets. scripts: what it evaluates. operation: which it is at present."""

    def __init__(self, open_scripts: "Callable[[Pause, AwaitTurn], Scripts]") -> None:
        library: Any = importlib.import_module("greenlet")
        self._greenlet: Any = library.greenlet
        self._current: Any = library.getcurrent
        # The greenlet of the present step, which is paused or runs; else None.
        self._run: Any = None
        self.operation: OperationState | None = None
        self.scripts: Scripts = open_scripts(self.pause, self.await_turn)

    @property
    def is_entered(self) -> bool:
        """Whether a step is being run by `advance`."""
        return self._run is not None

    def advance(self, steps: Steps[bytes], error: Exception | None) -> Wait | Flush | InThread | None:
        """The next step of a generator, as by `next` or, with an error, by its `throw`; or a Wait, if it is paused.

        Raises what the generator raises, StopIteration included.
        """
        run = self._run
        if run is None:
            run = self._greenlet(_next_step)
            self._run = run
            return self._switch(run, [steps, error])
        return self._switch(run, [])

    def pause(self, seconds: float, file: int, to_write: bool) -> bool:
        """Called in the middle of a step: lets other operations run. False, at once, outside of `advance`.

        seconds, file, to_write: as those of a `Wait`; without any, it is a step that only yields.
        """
        return self._leave(Wait(seconds, file=file, to_write=to_write) if seconds or file >= 0 else None)

    def await_turn(self, seconds: float, turn: "Turn") -> bool:
        """`pause` until the turn has come, or the operation is killed."""
        operation = self.operation
        assert operation is not None
        signal = Signal()
        turn.wake = signal.notify
        operation.waits_for = signal
        try:
            return self._leave(Wait(seconds, signal))
        finally:
            operation.waits_for = None

    def _leave(self, step: Wait | None) -> bool:
        run = self._run
        if run is None or run is not self._current():
            return False
        evaluating = end_evaluation()
        run.parent.switch(step)
        if evaluating:
            begin_evaluation()
        return True

    def end(self) -> None:
        """Ends a paused step, and the scripts' context."""
        run = self._run
        if run is not None:
            self._run = None
            with contextlib.suppress(_Abandoned):
                run.throw(_Abandoned)
        self.operation = None
        self.scripts.release()

    def _switch(self, run: Any, arguments: list[Any]) -> Wait | Flush | InThread | None:
        # The server's thread may be in another greenlet than when the step began.
        run.parent = self._current()
        try:
            step: Wait | Flush | InThread | None = run.switch(*arguments)
            return step
        finally:
            if run.dead:
                self._run = None


def _next_step(steps: Steps[bytes], error: Exception | None) -> Wait | Flush | InThread | None:
    return next(steps) if error is None else steps.throw(error)
