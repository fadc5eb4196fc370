"""The scripts of one operation, as the query engine uses them.

Each operation has a context of its own: scripts of different operations share nothing, and what a script leaves in
global variables is there for the next call of the same operation.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.javascript.messages import decode, encode_parts
from mongottl.javascript.processes import MEMORY_BYTES

if TYPE_CHECKING:
    from mongottl.javascript.processes import ScriptProcess, ScriptProcesses, Turn

# How long the start of a process and of an operation's context in it may take, in milliseconds.
START_LIMIT_MS: Final = 30_000
# The process ends a call by itself a little later, in case the server is no longer there to do it.
OWN_LIMIT_AFTER_S: Final = 1.0

# A reply that comes within this time costs no change to another operation.
_AT_ONCE_S: Final = 0.002
# While a call takes longer, how often is looked whether the operation must end.
_LOOK_EVERY_S: Final = 0.05
# How long one call may take while others wait for its process.
CROWDED_LIMIT_MS: Final = 5_000
# Of a message, how many bytes are encoded or decoded before other operations may run: about a millisecond.
_SLICE_BYTES: Final = 16 << 10

# Lets other operations run for some seconds (the first argument), or until a file can be read, or be written to; no
# file if it is negative. False, at once, if that is not possible.
Pause: TypeAlias = Callable[[float, int, bool], bool]
# The same until a turn has come.
AwaitTurn: TypeAlias = "Callable[[float, Turn], bool]"


def _nothing() -> None:
    pass


def _no_functions() -> bytes:
    return EMPTY_DOCUMENT


def _no_limit() -> float:
    return -1.0


class Scripts:
    """Runs the scripts of one operation.

    check: raises the error that ends the operation (`maxTimeMS`, killOp, shutdown). time_left_s: seconds until it does
    so by itself, -1.0 for never. stored_functions: reads the global variables that scripts of the database have, as a
    document.
    pause, await_turn, monotonic_s: let other operations run, and the elapsed time. log: takes each line that a script
    prints. call_limit_ms: how long one call may take. scope: global variables, as a document.
    """

    def __init__(
        self,
        processes: "ScriptProcesses",
        pause: Pause,
        await_turn: AwaitTurn,
        monotonic_s: Callable[[], float],
        log: Callable[[str], None],
        now_ms: int,
        version: str,
        call_limit_ms: int,
        owner: str = "",
    ) -> None:
        self._owner: Final = owner
        self.check: Callable[[], None] = _nothing
        self.time_left_s: Callable[[], float] = _no_limit
        self.stored_functions: Callable[[], bytes] = _no_functions
        self.call_limit_ms = call_limit_ms
        self.scope = EMPTY_DOCUMENT
        self._processes: Final = processes
        self._pause: Final = pause
        self._await_turn: Final = await_turn
        self._monotonic_s: Final = monotonic_s
        self._log = log
        self._now_ms = now_ms
        self._version = version
        self._process: ScriptProcess | None = None
        # Whether the latest reply came at once, so that it pays to wait for the next one.
        self._is_prompt = True
        # Bytes encoded or decoded since other operations ran.
        self._slice_bytes = 0

    def matches(self, code: str, document: bytes) -> bool:
        """Whether the function, expression or function body of a `$where` is true for a document."""
        return self._request("where", code, document) is True

    def matches_some(self, code: str, documents: list[bytes]) -> list[bool]:
        """`matches` for several documents, in order: for fewer of them if it takes long or the script fails."""
        found = self._request("whereSome", code, list(documents))
        return [item is True for item in found[: len(documents)]] if isinstance(found, list) else []

    def call(self, code: str, arguments: list[Value]) -> Value:
        """The value of a function."""
        return self._request("call", code, arguments)

    def accumulate(self, code: str, state: Value, calls: list[list[Value]]) -> Value:
        """The state after `function(state, …arguments)` was called for each list of arguments."""
        return self._request("accumulate", code, state, list(calls))

    def emitted(self, code: str, documents: list[bytes]) -> list[list[list[Value]]]:
        """For each document the [key, value] pairs that a map function emits."""
        found = self._request("map", code, list(documents))
        for pairs in found if isinstance(found, list) else [None]:
            if not isinstance(pairs, list) or any(not isinstance(pair, list) or len(pair) != 2 for pair in pairs):
                raise CommandError(ErrorCode.JSInterpreterFailure, "JavaScript execution failed: no list of pairs")
        return found  # type: ignore[return-value]

    def release(self) -> None:
        """Ends the context and lets the operation go. May be called more than once; a later call begins a new one."""
        self.check = _nothing
        self.time_left_s = _no_limit
        self.stored_functions = _no_functions
        process = self._process
        self._process = None
        if process is not None:
            self._processes.release(process)

    def __del__(self) -> None:
        if self._process is not None:
            self.release()

    def _request(self, kind: str, *arguments: Value) -> Value:
        """The value of a reply. JSInterpreterFailure (139), or the numeric `code` of the error that a script throws."""
        process = self._process
        if process is None:
            process = self._begin()
        message = self._exchange(process, b"C", self._encoded([kind, *arguments]))
        try:
            reply = decode(message, 0, self._breathe)
        except (ValueError, IndexError) as error:
            raise self._broken(process, str(error)) from None
        if not isinstance(reply, list) or len(reply) not in (2, 4):
            raise self._broken(process, "no reply")
        printed = reply[0]
        for line in printed if isinstance(printed, list) else []:
            self._log(str(line))
        if len(reply) == 4:
            raise _script_error(str(reply[1]), str(reply[2]), reply[3])
        return reply[1]

    def _begin(self) -> "ScriptProcess":
        process = self._acquire()
        self._process = process
        self._is_prompt = True
        limits = f"{MEMORY_BYTES} {self.call_limit_ms / 1000 + OWN_LIMIT_AFTER_S}"
        self._exchange(process, b"N", [limits.encode("ascii")], START_LIMIT_MS)
        start = self._encoded(["begin", float(self._now_ms), self._version])
        self._exchange(process, b"C", start, START_LIMIT_MS)
        for variables in (self.stored_functions(), self.scope):
            if variables != EMPTY_DOCUMENT:
                self._request("scope", variables)
        return process

    def _acquire(self) -> "ScriptProcess":
        """A process for this operation, which waits for its turn. JSInterpreterFailure (139) after START_LIMIT_MS."""
        turn = self._processes.line_up(self._owner)
        end_s = self._monotonic_s() + START_LIMIT_MS / 1000
        try:
            while not turn.has_come:
                left_s = end_s - self._monotonic_s()
                own_s = self.time_left_s()
                if left_s <= 0:
                    raise _too_long(START_LIMIT_MS)
                if not self._await_turn(left_s if own_s < 0 else min(left_s, own_s), turn):
                    raise CommandError(
                        ErrorCode.JSInterpreterFailure, "JavaScript execution failed: no process is free"
                    )
                self.check()
            return self._processes.take(turn)
        finally:
            self._processes.leave(turn)

    def _encoded(self, request: list[Value]) -> list[bytes]:
        parts: list[bytes] = []
        for part in encode_parts(request):
            parts.append(part)
            self._breathe(len(part))
        return parts

    def _breathe(self, size: int) -> None:
        """Called for each part of a message that is encoded or decoded, with its size: lets other operations run after
        a while."""
        self._slice_bytes += size
        if self._slice_bytes >= _SLICE_BYTES:
            self._slice_bytes = 0
            if self._pause(0.0, -1, False):
                self.check()

    def _exchange(self, process: "ScriptProcess", kind: bytes, parts: list[bytes], least_ms: int = 0) -> bytes:
        """Sends a request and waits for its reply. Kills the process if the operation must end.

        least_ms: the time limit, if longer than that of a call.
        """
        try:
            process.begin_request(kind, parts)
            self._wait(process, max(self.call_limit_ms, least_ms))
            answer, message = process.reply()
        except CommandError:
            self._kill(process)
            raise
        except (OSError, EOFError, ValueError) as error:
            raise self._broken(process, str(error) or "the process has ended") from None
        except BaseException:  # the operation is given up in the middle of a call
            self._kill(process)
            raise
        if answer == b"X":
            raise self._broken(process, message.decode("utf-8", "replace"))
        return message

    def _wait(self, process: "ScriptProcess", limit_ms: int) -> None:
        """Waits until the reply is there, while other operations run if that is possible.

        limit_ms: JSInterpreterFailure (139) after this time.
        """
        start_s = self._monotonic_s()
        if process.proceed(_AT_ONCE_S if self._is_prompt else 0):
            self._is_prompt = self._monotonic_s() - start_s <= _AT_ONCE_S
            return
        while not process.proceed(0 if self._pause(_LOOK_EVERY_S, process.file, process.is_sending) else _LOOK_EVERY_S):
            self.check()
            waited_s = self._monotonic_s() - start_s
            if waited_s >= limit_ms / 1000:
                raise _too_long(limit_ms)
            if waited_s >= CROWDED_LIMIT_MS / 1000 and self._processes.is_wanted(process):
                raise _too_long(CROWDED_LIMIT_MS, " while others wait for their turn")
        self._is_prompt = self._monotonic_s() - start_s <= _AT_ONCE_S

    def _broken(self, process: "ScriptProcess", reason: str) -> CommandError:
        """The error for a context that cannot be used any more."""
        self._kill(process)
        return CommandError(ErrorCode.JSInterpreterFailure, f"JavaScript execution failed: {reason}")

    def _kill(self, process: "ScriptProcess") -> None:
        self._process = None
        self._processes.kill(process)


def _too_long(limit_ms: int, when: str = "") -> CommandError:
    return CommandError(
        ErrorCode.JSInterpreterFailure, f"JavaScript execution exceeded the time limit of {limit_ms} ms{when}"
    )


def _script_error(message: str, stack: str, code: Value) -> CommandError:
    if stack:
        message += f" :\n{stack}"
    number = code if isinstance(code, int) else 0
    return CommandError(number or ErrorCode.JSInterpreterFailure, message)
