"""The operations under way, for `$currentOp` (`current_op`) and killOp.

Only what runs in steps is ever seen by another: a command that needs no steps is over before anybody can ask.
"""

from typing import Final

from mongottl.exec.operation.state import OperationState

_MAX_OPID: Final = 2**31 - 1


class RunningOperation:
    """One command that runs in steps. body: the command as it came. counter: its group in `opcounters`."""

    def __init__(self, opid: int, op: OperationState, body: bytes, counter: str, started_s: float) -> None:
        self.opid = opid
        self.op = op
        self.body = body
        self.counter = counter
        self.started_s = started_s
        self.started_ms = op.now_ms


class OperationRegistry:
    """The operations under way, by a number that is not used again soon."""

    def __init__(self) -> None:
        self._running: dict[int, RunningOperation] = {}
        self._last_opid = 0

    def begin(self, op: OperationState, body: bytes, counter: str, started_s: float) -> RunningOperation:
        """started_s: elapsed time (`clock.monotonic_s`)."""
        self._last_opid = self._last_opid % _MAX_OPID + 1
        running = RunningOperation(self._last_opid, op, body, counter, started_s)
        self._running[running.opid] = running
        return running

    def end(self, running: RunningOperation) -> None:
        self._running.pop(running.opid, None)

    def all(self) -> list[RunningOperation]:
        return list(self._running.values())

    def kill(self, opid: int) -> None:
        """See `OperationContext.kill`; nothing happens if it is over already."""
        running = self._running.get(opid)
        if running is not None:
            running.op.kill()
