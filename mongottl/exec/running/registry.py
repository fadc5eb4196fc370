"""The running operations, for `$currentOp` (`current_op`) and killOp.

A command is registered when it is left for the first time: one that is never left ends before another can read the
registry.
"""

from typing import Final

from mongottl.exec.running.state import OperationState

_MAX_OPID: Final = 2**31 - 1


class RunningOperation:
    """One command that was left. body: the raw command. counter: its group in `opcounters`.

    reads_data: whether it reads or writes what is stored, unlike the `hello` that waits for changes of the topology.
    """

    def __init__(
        self, opid: int, op: OperationState, body: bytes, counter: str, started_s: float, reads_data: bool
    ) -> None:
        self.opid = opid
        self.op = op
        self.reads_data = reads_data
        self.body = body
        self.counter = counter
        self.started_s = started_s
        self.started_ms = op.now_ms


class OperationRegistry:
    """The running operations by `opid`, an int32 that is reused only after all others."""

    def __init__(self) -> None:
        self._running: dict[int, RunningOperation] = {}
        self._last_opid = 0

    def begin(
        self, op: OperationState, body: bytes, counter: str, started_s: float, reads_data: bool = True
    ) -> RunningOperation:
        """Registers an operation. started_s: monotonic time (`clock.monotonic_s`)."""
        self._last_opid = self._last_opid % _MAX_OPID + 1
        running = RunningOperation(self._last_opid, op, body, counter, started_s, reads_data)
        self._running[running.opid] = running
        return running

    def end(self, running: RunningOperation) -> None:
        self._running.pop(running.opid, None)

    def all(self) -> list[RunningOperation]:
        return list(self._running.values())

    def find(self, opid: int) -> RunningOperation | None:
        return self._running.get(opid)

    def kill(self, opid: int) -> None:
        """Kills an operation (`OperationState.kill`); no effect if it has ended."""
        running = self._running.get(opid)
        if running is not None:
            running.op.kill()

    def kill_of_session(self, session_key: bytes) -> None:
        """Kills the operations of a session."""
        for running in self._running.values():
            if running.op.session_key == session_key:
                running.op.kill()
