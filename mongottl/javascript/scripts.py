"""The scripts of one operation, as the query engine uses them.

Each operation has a context of its own: scripts of different operations share nothing, and what a script leaves in
global variables is there for the next call of the same operation.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.javascript.messages import decode, encode_parts
from mongottl.processes.conversation import START_LIMIT_MS, AwaitTurn, Conversation, Pause
from mongottl.processes.pool import Program

if TYPE_CHECKING:
    from mongottl.processes.pool import WorkerProcess, WorkerProcesses

# The process ends a call by itself a little later, in case the server is no longer there to do it.
OWN_LIMIT_AFTER_S: Final = 1.0
# Memory of the scripts of one operation.
MEMORY_BYTES: Final = 64 * 1024 * 1024
# What their processes run.
PROGRAM: Final = Program(
    "mongottl.javascript.worker",
    arguments=(str(Path(__file__).parent / "environment.js"),),
    imported=("mongottl", "_quickjs", "bson", "librt", "mypy_extensions"),
    memory_bytes=MEMORY_BYTES,
    most=32,
)

# Of a message, how many bytes are encoded or decoded before other operations may run: about a millisecond.
_SLICE_BYTES: Final = 16 << 10


def _no_functions() -> bytes:
    return EMPTY_DOCUMENT


class Scripts(Conversation):
    """Runs the scripts of one operation.

    stored_functions: reads the global variables that scripts of the database have, as a document. log: takes each line
    that a script prints. call_limit_ms: how long one call may take. scope: global variables, as a document.
    """

    def __init__(
        self,
        processes: "WorkerProcesses",
        pause: Pause,
        await_turn: AwaitTurn,
        monotonic_s: Callable[[], float],
        log: Callable[[str], None],
        now_ms: int,
        version: str,
        call_limit_ms: int,
        owner: str = "",
    ) -> None:
        super().__init__(processes, pause, await_turn, monotonic_s, owner)
        self.stored_functions: Callable[[], bytes] = _no_functions
        self.call_limit_ms = call_limit_ms
        self.scope = EMPTY_DOCUMENT
        self._log = log
        self._now_ms = now_ms
        self._version = version
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
        self.stored_functions = _no_functions
        super().release()

    def _request(self, kind: str, *arguments: Value) -> Value:
        """The value of a reply. JSInterpreterFailure (139), or the numeric `code` of the error that a script throws."""
        process = self._process
        if process is None:
            process = self._begin()
        message = self._exchange(process, b"C", self._encoded([kind, *arguments]), self.call_limit_ms)
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

    def _begin(self) -> "WorkerProcess":
        process = self._acquire()
        limits = f"{MEMORY_BYTES} {self.call_limit_ms / 1000 + OWN_LIMIT_AFTER_S}"
        limit_ms = max(self.call_limit_ms, START_LIMIT_MS)
        self._exchange(process, b"N", [limits.encode("ascii")], limit_ms)
        start = self._encoded(["begin", float(self._now_ms), self._version])
        self._exchange(process, b"C", start, limit_ms)
        for variables in (self.stored_functions(), self.scope):
            if variables != EMPTY_DOCUMENT:
                self._request("scope", variables)
        return process

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

    def _failed(self, reason: str) -> CommandError:
        return CommandError(ErrorCode.JSInterpreterFailure, f"JavaScript execution failed: {reason}")

    def _too_long(self, limit_ms: int, when: str = "") -> CommandError:
        return CommandError(
            ErrorCode.JSInterpreterFailure, f"JavaScript execution exceeded the time limit of {limit_ms} ms{when}"
        )


def _script_error(message: str, stack: str, code: Value) -> CommandError:
    if stack:
        message += f" :\n{stack}"
    number = code if isinstance(code, int) else 0
    return CommandError(number or ErrorCode.JSInterpreterFailure, message)
