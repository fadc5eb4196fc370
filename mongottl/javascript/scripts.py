"""The scripts of one operation, as the query engine uses them.

Each operation has a context of its own: scripts of different operations share nothing, and what a script leaves in
global variables is there for the next call of the same operation.
"""

import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.javascript.values import from_json, parse_reply, to_json

if TYPE_CHECKING:
    from mongottl.javascript.processes import ScriptProcess, ScriptProcesses

# Memory of the scripts of one operation.
MEMORY_BYTES: Final = 64 * 1024 * 1024
# How long the start of a process and of an operation's context in it may take, in milliseconds.
START_LIMIT_MS: Final = 30_000
# The process ends a call by itself a little later, in case the server is no longer there to do it.
OWN_LIMIT_AFTER_S: Final = 1.0

# A reply that comes within this time costs no change to another operation.
_AT_ONCE_MS: Final = 2
# A call that takes longer is looked at after 1 ms, 2 ms and so on, and finally this often.
_LOOK_EVERY_MS: Final = 10

# Lets other operations run for so many seconds; False, at once, if that is not possible.
Pause: TypeAlias = Callable[[float], bool]


def _nothing() -> None:
    pass


def _no_functions() -> bytes:
    return EMPTY_DOCUMENT


class Scripts:
    """Runs the scripts of one operation.

    check: raises the error that ends the operation (`maxTimeMS`, killOp, shutdown). stored_functions: reads the global
    variables that scripts of the database have besides, a document.
    log: takes each line that a script prints.
    call_limit_ms: how long one call may take. scope: global variables, as a document.
    """

    def __init__(
        self,
        processes: "ScriptProcesses",
        pause: Pause,
        log: Callable[[str], None],
        now_ms: int,
        version: str,
        call_limit_ms: int,
    ) -> None:
        self.check: Callable[[], None] = _nothing
        self.stored_functions: Callable[[], bytes] = _no_functions
        self.call_limit_ms = call_limit_ms
        self.scope = EMPTY_DOCUMENT
        self._processes: Final = processes
        self._pause = pause
        self._log = log
        self._now_ms = now_ms
        self._version = version
        self._process: ScriptProcess | None = None

    def matches(self, code: str, document: bytes) -> bool:
        """Whether the function, expression or function body of a `$where` is true for a document."""
        return self._request("where", to_json(code), to_json(document)) is True

    def matches_some(self, code: str, documents: list[bytes]) -> list[bool]:
        """`matches` for several documents, in order: for fewer of them if it takes long or the script fails."""
        found = self._request(
            "whereSome", to_json(code), f"[{','.join([to_json(document) for document in documents])}]"
        )
        return [item is True for item in found[: len(documents)]] if isinstance(found, list) else []

    def call(self, code: str, arguments: list[Value]) -> Value:
        """The value of a function."""
        return self._value("call", to_json(code), to_json(arguments))

    def accumulate(self, code: str, state: Value, calls: list[list[Value]]) -> Value:
        """The state after `function(state, …arguments)` was called for each list of arguments."""
        return self._value("accumulate", to_json(code), to_json(state), to_json(calls))

    def emitted(self, code: str, documents: list[bytes]) -> list[list[list[Value]]]:
        """For each document the [key, value] pairs that a map function emits."""
        given: list[Value] = list(documents)
        found = self._value("map", to_json(code), to_json(given))
        for pairs in found if isinstance(found, list) else [None]:
            if not isinstance(pairs, list) or any(not isinstance(pair, list) or len(pair) != 2 for pair in pairs):
                raise _malformed("no list of pairs")
        return found  # type: ignore[return-value]

    def release(self) -> None:
        """Ends the context and lets the operation go. May be called more than once; a later call begins a new one."""
        self.check = _nothing
        self.stored_functions = _no_functions
        process = self._process
        self._process = None
        if process is not None:
            self._processes.release(process)

    def __del__(self) -> None:
        if self._process is not None:
            self.release()

    def _value(self, kind: str, *arguments: str) -> Value:
        """The BSON value of a reply. Errors as of `_request`, and BSONObjectTooLarge (10334)."""
        value = self._request(kind, *arguments)
        try:
            return from_json(value)
        except CommandError:
            raise
        except Exception as error:  # a script has made something that is no BSON, or no reply
            raise _malformed(str(error)) from None

    def _request(self, kind: str, *arguments: str) -> object:
        """The value of a reply. JSInterpreterFailure (139), or the numeric `code` of the error that a script throws."""
        process = self._process
        if process is None:
            process = self._begin()
        text = self._exchange(process, b"C", f'["{kind}",{",".join(arguments)}]')
        try:
            reply = parse_reply(text)
        except ValueError as error:
            raise self._broken(process, str(error)) from None
        printed = reply.get("printed")
        for line in printed if isinstance(printed, list) else []:
            self._log(str(line))
        if "error" in reply:
            raise _script_error(reply)
        return reply.get("value")

    def _begin(self) -> "ScriptProcess":
        if not self._acquire(0):
            self._wait(self._acquire, START_LIMIT_MS)
        process = self._process
        assert process is not None
        limits = f"{MEMORY_BYTES} {self.call_limit_ms / 1000 + OWN_LIMIT_AFTER_S}"
        self._exchange(process, b"N", limits, START_LIMIT_MS)
        self._exchange(process, b"C", f'["begin",{self._now_ms},{to_json(self._version)}]', START_LIMIT_MS)
        for variables in (self.stored_functions(), self.scope):
            if variables != EMPTY_DOCUMENT:
                self._request("scope", to_json(variables))
        return process

    def _acquire(self, timeout_ms: int) -> bool:
        """Whether there is a process for this operation, after so much time at most."""
        if timeout_ms:
            select.poll().poll(timeout_ms)
        self._process = self._processes.acquire()
        return self._process is not None

    def _exchange(self, process: "ScriptProcess", kind: bytes, body: str, least_ms: int = 0) -> str:
        """Sends a request and waits for its reply. Kills the process if the operation must end.

        least_ms: the time limit, if longer than that of a call.
        """
        try:
            process.send(kind, body)
            if not process.receive(_AT_ONCE_MS):
                self._wait(process.receive, least_ms)
            answer, text = process.reply()
        except CommandError:
            self._kill(process)
            raise
        except (OSError, EOFError, ValueError) as error:
            raise self._broken(process, str(error) or "the process has ended") from None
        except BaseException:  # the operation is given up in the middle of a call
            self._kill(process)
            raise
        if answer == b"X":
            raise self._broken(process, text)
        return text

    def _wait(self, is_over: Callable[[int], bool], least_ms: int = 0) -> None:
        """Waits until `is_over`, while other operations run if that is possible.

        is_over: gets how many milliseconds it may wait itself. least_ms: the limit, if longer than that of a call.
        """
        waited_ms = 0
        look_ms = 1
        limit_ms = max(self.call_limit_ms, least_ms)
        while not is_over(0 if self._pause(look_ms / 1000) else look_ms):
            self.check()
            waited_ms += look_ms
            look_ms = min(look_ms * 2, _LOOK_EVERY_MS)
            if waited_ms >= limit_ms:
                raise CommandError(
                    ErrorCode.JSInterpreterFailure,
                    f"JavaScript execution exceeded the time limit of {limit_ms} ms",
                )

    def _broken(self, process: "ScriptProcess", reason: str) -> CommandError:
        """The error for a context that cannot be used any more."""
        self._kill(process)
        return CommandError(ErrorCode.JSInterpreterFailure, f"JavaScript execution failed: {reason}")

    def _kill(self, process: "ScriptProcess") -> None:
        self._process = None
        self._processes.kill(process)


def _malformed(reason: str) -> CommandError:
    return CommandError(
        ErrorCode.JSInterpreterFailure, f"JavaScript execution failed: the result cannot be converted to BSON: {reason}"
    )


def _script_error(reply: dict[str, object]) -> CommandError:
    code = reply.get("code")
    stack = str(reply.get("stack") or "")
    message = str(reply["error"])
    if stack:
        message += f" :\n{stack}"
    number = int(code) if isinstance(code, float) else 0
    return CommandError(number or ErrorCode.JSInterpreterFailure, message)
