"""What an operation asks a process of a pool, while others run."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from mongottl.errors import CommandError

if TYPE_CHECKING:
    from mongottl.processes.pool import Turn, WorkerProcess, WorkerProcesses

# How long it may take until an operation has a process, in milliseconds.
START_LIMIT_MS: Final = 30_000
# How long an answer may take while others wait for its process.
CROWDED_LIMIT_MS: Final = 5_000

# A reply that comes within this time costs no change to another operation.
_AT_ONCE_S: Final = 0.002
# While one takes longer, how often is looked whether the operation must end.
_LOOK_EVERY_S: Final = 0.05

# The same where the operation cannot be left, and others are answered only while it looks (`stack.Stacks.let_ask`).
_BLOCKED_S: Final = 0.005

# Lets other operations run for some seconds (the first argument), or until a file can be read, or be written to; no
# file if it is negative. False, at once, if that is not possible.
Pause: TypeAlias = Callable[[float, int, bool], bool]
# The same until a turn has come.
AwaitTurn: TypeAlias = "Callable[[float, Turn], bool]"


def _nothing() -> None:
    pass


def _no_limit() -> float:
    return -1.0


class Conversation:
    """One operation and the process that it has, if it has one.

    slow_after_s: after this time for a request the process gets a lower priority than the server, unless it has had one
    from the beginning; 0.0 for never.
    check: raises the error that ends the operation (`maxTimeMS`, killOp, shutdown). time_left_s: seconds until it does
    so by itself, -1.0 for never. pause, await_turn, monotonic_s: let other operations run, and the elapsed time. owner:
    whose share of the processes it takes.
    """

    slow_after_s: float = 0.0

    def __init__(
        self,
        processes: "WorkerProcesses",
        pause: Pause,
        await_turn: AwaitTurn,
        monotonic_s: Callable[[], float],
        owner: str = "",
    ) -> None:
        self.check: Callable[[], None] = _nothing
        self.time_left_s: Callable[[], float] = _no_limit
        self._processes: Final = processes
        self._pause: Final = pause
        self._await_turn: Final = await_turn
        self._monotonic_s: Final = monotonic_s
        self._owner: Final = owner
        self._process: WorkerProcess | None = None
        # Whether the latest reply came at once, so that it pays to wait for the next one.
        self._is_prompt = True

    def release(self) -> None:
        """Gives the process back, which others may use, and lets the operation go. May be called more than once."""
        self.check = _nothing
        self.time_left_s = _no_limit
        process = self._process
        self._process = None
        if process is not None:
            self._processes.release(process)

    def __del__(self) -> None:
        if self._process is not None:
            self.release()

    def _failed(self, reason: str) -> CommandError:
        """The error of an operation whose process cannot be used."""
        raise NotImplementedError

    def _none(self, reason: str) -> Exception:
        """The error of one that gets no process."""
        return self._failed(reason)

    def _too_long(self, limit_ms: int, when: str = "") -> CommandError:
        """The error of one that has taken longer than it may."""
        raise NotImplementedError

    def _acquire(self) -> "WorkerProcess":
        """A process for this operation, which waits for its turn; fails after START_LIMIT_MS."""
        turn = self._processes.line_up(self._owner)
        end_s = self._monotonic_s() + START_LIMIT_MS / 1000
        try:
            while not turn.has_come:
                left_s = end_s - self._monotonic_s()
                own_s = self.time_left_s()
                if left_s <= 0:
                    raise self._too_long(START_LIMIT_MS)
                if not self._await_turn(left_s if own_s < 0 else min(left_s, own_s), turn):
                    raise self._none("no process is free")
                self.check()
            try:
                process = self._processes.take(turn)
            except OSError as error:
                raise self._none(f"no process can be started: {error}") from error
        finally:
            self._processes.leave(turn)
        self._process = process
        self._is_prompt = True
        return process

    def _exchange(self, process: "WorkerProcess", kind: bytes, parts: list[bytes], limit_ms: int) -> bytes:
        """Sends a request and waits for its reply. Kills the process if the operation must end.

        limit_ms: how long it may take; none if it is 0.
        """
        try:
            process.begin_request(kind, parts)
            self._wait(process, limit_ms)
            answer, message = process.reply()
        except CommandError:
            self._kill(process)
            raise
        except (OSError, EOFError, ValueError) as error:
            raise self._broken(process, str(error) or "the process has ended") from None
        except BaseException:  # the operation is given up in the middle of a request
            self._kill(process)
            raise
        if answer == b"X":
            raise self._broken(process, message.decode("utf-8", "replace"))
        return message

    def _wait(self, process: "WorkerProcess", limit_ms: int) -> None:
        """Waits until the reply is there, while other operations run if that is possible."""
        start_s = self._monotonic_s()
        if process.proceed(_AT_ONCE_S if self._is_prompt else 0):
            self._is_prompt = self._monotonic_s() - start_s <= _AT_ONCE_S
            return
        while not process.proceed(0 if self._pause(_LOOK_EVERY_S, process.file, process.is_sending) else _BLOCKED_S):
            self.check()
            waited_s = self._monotonic_s() - start_s
            if waited_s >= self.slow_after_s > 0.0:
                process.slow_down()
            if waited_s >= limit_ms / 1000 > 0:
                raise self._too_long(limit_ms)
            if waited_s >= CROWDED_LIMIT_MS / 1000 and self._processes.is_wanted(process):
                raise self._too_long(CROWDED_LIMIT_MS, " while others wait for their turn")
        self._is_prompt = self._monotonic_s() - start_s <= _AT_ONCE_S

    def _broken(self, process: "WorkerProcess", reason: str) -> CommandError:
        """The error for a process that cannot be used any more."""
        self._kill(process)
        return self._failed(reason)

    def _kill(self, process: "WorkerProcess") -> None:
        self._process = None
        self._processes.kill(process)
