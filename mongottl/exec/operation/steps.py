"""Steps: how long operations yield to others, and wait.

A command runs to its end without suspending unless it is long or has to wait. Then it is a generator of steps: it
yields None where other operations may run, or a `Wait`, `Flush`, `InThread` or `WithoutWriters`; its driver (the
server's connection, or `run_to_end` in tests) resumes it. Between two steps any state may change: collections are
dropped, documents expire, the clock moves.
"""

from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

from mongottl.exec.operation.signal import Signal

T = TypeVar("T")


class Wait:
    """A step that waits: resumed after `seconds` of monotonic time, when `signal` is notified, or at shutdown.

    file: also resumes when this file descriptor can be read, or written to if `to_write`; -1 for none. It must not be
    closed meanwhile.
    may_abandon: whether the command ends there when its client disconnects, even if it changes data.
    """

    def __init__(
        self,
        seconds: float,
        signal: Signal | None = None,
        file: int = -1,
        to_write: bool = False,
        may_abandon: bool = False,
    ) -> None:
        self.seconds = seconds
        self.signal = signal
        self.file = file
        self.to_write = to_write
        self.may_abandon = may_abandon


class Flush:
    """A step that waits until all that was committed so far is on disk, for `j: true`."""


class InThread:
    """A step that computes something long without touching the server's state: its driver may call `run` in another
    thread. The command then takes the result by `result`, which runs the function if no driver has.
    """

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._done = False
        self._result: object = None
        self._error: Exception | None = None

    def run(self) -> None:
        """Calls the function; its exception is raised by `result`."""
        try:
            self._result = self._function()
        except Exception as error:
            self._error = error
        self._done = True

    def result(self) -> object:
        if not self._done:
            self.run()
        if self._error is not None:
            raise self._error
        return self._result


class WithoutWriters(InThread):
    """An `InThread` during which no other command that writes takes a step."""


Steps: TypeAlias = Generator[Wait | Flush | InThread | None, None, T]


def run_to_end(steps: Steps[T]) -> T:
    """Runs a generator of steps to its end without running other operations: for tests and for start-up."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
