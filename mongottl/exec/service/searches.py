"""Searches for regular expressions that take long: the processes that carry them out, of one server."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from mongottl.clock import Clock
from mongottl.document.interrupt import is_evaluating, may_leave
from mongottl.exec.running.signal import Signal
from mongottl.exec.running.stack import Stacks
from mongottl.exec.running.steps import Wait
from mongottl.exec.state.memory_size import available_memory_bytes
from mongottl.regex.compiled import SearchElsewhere

if TYPE_CHECKING:
    from mongottl.processes.pool import Turn, WorkerProcesses
    from mongottl.regex.searching import Search

T = TypeVar("T")

# How often an operation that waits for a process looks whether it must end.
_LOOK_EVERY_S = 0.05


class ServerSearches(SearchElsewhere):
    """The searches of one server, whose processes are started with the first one. stacks: of its operations."""

    def __init__(self, clock: Clock, stacks: Stacks) -> None:
        self._clock = clock
        self._stacks = stacks
        self._processes: WorkerProcesses | None = None

    def search(self, pattern: bytes, options: str, subject: bytes, start: int, most: int) -> Sequence[int] | None:
        return self._asked(lambda search: search.found(pattern, options, subject, start, most))

    def search_many(self, pattern: bytes, options: str, subjects: list[bytes]) -> bytes | None:
        return self._asked(lambda search: search.found_in_each(pattern, options, subjects))

    def _asked(self, ask: "Callable[[Search], T]") -> T | None:
        """For the evaluation of the present operation, while others run. None outside of evaluations, where nothing can
        end it, and where no process can be had."""
        if not is_evaluating():
            return None
        from mongottl.processes.pool import WorkerProcesses
        from mongottl.regex.searching import PROGRAM, NoProcessError, Search

        stack = self._stacks.present
        if stack is None:
            self._stacks.require()
        operation = None if stack is None else stack.operation
        processes = self._processes
        if processes is None:
            processes = WorkerProcesses(PROGRAM, self._clock.monotonic_s, available_memory_bytes())
            self._processes = processes
        owner = "" if operation is None else operation.owner()
        search = Search(processes, self._pause, self._await_turn, self._clock.monotonic_s, owner)
        try:
            return ask(search)
        except NoProcessError:
            return None

    def _pause(self, seconds: float, file: int, to_write: bool) -> bool:
        return self._leave(Wait(seconds, file=file, to_write=to_write))

    def _await_turn(self, seconds: float, turn: "Turn") -> bool:
        signal = Signal()
        turn.wake = signal.notify
        return self._leave(Wait(min(seconds, _LOOK_EVERY_S), signal))

    def _leave(self, step: Wait) -> bool:
        """Lets other operations run. False, at once, where the operation cannot be left."""
        stack = self._stacks.present
        if stack is None or not may_leave():
            return False
        stack.leave_midway(step)
        return True

    def counts(self) -> tuple[int, int, int]:
        """As `WorkerProcesses.counts`."""
        return (0, 0, 0) if self._processes is None else self._processes.counts()

    def end_idle(self) -> None:
        """Ends the processes that no operation has used for some seconds."""
        if self._processes is not None:
            self._processes.end_idle()

    def close(self) -> None:
        """Ends the processes."""
        if self._processes is not None:
            self._processes.close()
