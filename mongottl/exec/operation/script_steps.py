"""The scripts in JavaScript of one operation: others run while an evaluation waits for one.

A script runs in a process of its own, and the evaluation that needs its value waits for it, deep inside a step, which
is left meanwhile (`operation.stack`).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from mongottl.exec.operation.signal import Signal
from mongottl.exec.operation.stack import Stack
from mongottl.exec.operation.state import OperationState
from mongottl.exec.operation.steps import Wait

if TYPE_CHECKING:
    from mongottl.javascript.processes import Turn
    from mongottl.javascript.scripts import AwaitTurn, Pause, Scripts


class ScriptSteps:
    """What an operation, and then those that read the cursor that it has opened, evaluate in JavaScript.

    operation: which of them it is at present. stack: of its steps.
    """

    def __init__(self, open_scripts: "Callable[[Pause, AwaitTurn], Scripts]") -> None:
        self.operation: OperationState | None = None
        self.stack: Stack | None = None
        self.scripts: Scripts = open_scripts(self.pause, self.await_turn)

    def pause(self, seconds: float, file: int, to_write: bool) -> bool:
        """Called in the middle of a step: lets other operations run. False, at once, outside of a step.

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

    def end(self) -> None:
        """Ends the scripts' context, at the end of an operation."""
        self.operation = None
        self.stack = None
        self.scripts.release()

    def _leave(self, step: Wait | None) -> bool:
        stack = self.stack
        return stack is not None and stack.leave(step)
