"""What an operation that is left asks of those who run it.

An operation is a plain function. Where others may run, or where it has to wait, it is left (`running.stack`), and
says what must be done before it is gone on with: nothing, a `Wait`, a `Flush`, an `InThread` or a `WithoutWriters`.
"""

from collections.abc import Callable
from typing import TypeAlias

from mongottl.exec.running.signal import Signal


class Wait:
    """To wait: until `seconds` of monotonic time are over, `signal` is notified, or the server stops.

    file: also until this file descriptor can be read, or written to if `to_write`; -1 for none. It must not be closed
    meanwhile.
    may_abandon: whether the command ends there when its client disconnects, even if it changes data.
    for_storage: whether it waits for an answer of the storage engine, and looks itself whether that has come.
    """

    def __init__(
        self,
        seconds: float,
        signal: Signal | None = None,
        file: int = -1,
        to_write: bool = False,
        may_abandon: bool = False,
        for_storage: bool = False,
    ) -> None:
        self.seconds = seconds
        self.signal = signal
        self.file = file
        self.to_write = to_write
        self.may_abandon = may_abandon
        self.for_storage = for_storage


class Flush:
    """To wait until all that was committed so far is on disk, for `j: true`."""


class InThread:
    """To call `run`, perhaps in another thread: it computes something long without touching the server's state."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._has_run = False
        self._result: object = None
        self._error: Exception | None = None

    def run(self) -> None:
        """Calls the function; its exception is raised by `result`."""
        try:
            self._result = self._function()
        except Exception as error:
            self._error = error
        self._has_run = True

    def result(self) -> object:
        """What the function has returned. It is called now if nobody has done so."""
        if not self._has_run:
            self.run()
        if self._error is not None:
            raise self._error
        return self._result


class Aside(InThread):
    """An `InThread` that takes much processor time and memory, so that few are called at the same time: others wait."""


class WithoutWriters(InThread):
    """An `InThread` during which no other command that writes goes on."""


Step: TypeAlias = Wait | Flush | InThread | None
