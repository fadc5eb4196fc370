"""The scripts in JavaScript of one operation: others run while an evaluation waits for one.

A script runs in a process of its own, and the evaluation that needs its value waits for it, and its operation
is left meanwhile (`running.stack`).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from mongottl.document.interrupt import in_undivided
from mongottl.exec.running.signal import Signal
from mongottl.exec.running.stack import Stacks
from mongottl.exec.running.state import OperationState
from mongottl.exec.running.steps import Wait

if TYPE_CHECKING:
    from mongottl.javascript.scripts import Scripts
    from mongottl.processes.conversation import AwaitTurn, Pause
    from mongottl.processes.pool import Turn


class OperationScripts:
    """What an operation, and then those that read the cursor that it has opened, evaluate in JavaScript.

    operation: which of them it is at present. stacks: on which it runs.
    """

    def __init__(self, stacks: Stacks, open_scripts: "Callable[[Pause, AwaitTurn], Scripts]") -> None:
        self.operation: OperationState | None = None
        self._stacks = stacks
        self.scripts: Scripts = open_scripts(self.pause, self.await_turn)

    def pause(self, seconds: float, file: int, to_write: bool) -> bool:
        """Lets other operations run. False, at once, where the operation cannot be left.

        seconds, file, to_write: as those of a `Wait`; without any, it does not wait.
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
        self.scripts.release()

    def _leave(self, step: Wait | None) -> bool:
        stack = self._stacks.present
        if stack is None or in_undivided():
            return False
        stack.leave_midway(step)
        return True
