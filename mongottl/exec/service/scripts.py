"""JavaScript on one server: the processes that run scripts, which are imported and started with the first script."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mongottl.clock import Clock
from mongottl.config import ServerConfig
from mongottl.dialect import Dialect
from mongottl.exec.service.hooks import ServerHooks
from mongottl.exec.state.memory_size import available_memory_bytes

if TYPE_CHECKING:
    from mongottl.javascript.scripts import Scripts
    from mongottl.processes.conversation import AwaitTurn, Pause
    from mongottl.processes.pool import WorkerProcesses

# How long one call of a script may take, in milliseconds, as in mongod (internalQueryJavaScriptFnTimeoutMillis).
_SCRIPT_LIMIT_MS: Final = 60_000


class ServerScripts:
    """The scripts of one server. limit_ms: how long one call of a script may take."""

    def __init__(self, config: ServerConfig, dialect: Dialect, clock: Clock, hooks: ServerHooks) -> None:
        self._config = config
        self._dialect = dialect
        self._clock = clock
        self._hooks = hooks
        self._processes: WorkerProcesses | None = None
        self.limit_ms: int = _SCRIPT_LIMIT_MS

    def opener(self, name: str, now_ms: int, owner: str) -> "Callable[[Pause, AwaitTurn], Scripts]":
        """What opens the scripts of an operation, given its functions that let other operations run.

        name: of the operator or command that needs them. owner: whose share of the processes they take.
        BadValue (2) or CommandNotSupported (115) if the server runs no scripts.
        """
        from mongottl.javascript.library import refusal
        from mongottl.javascript.scripts import PROGRAM, Scripts
        from mongottl.processes.pool import WorkerProcesses

        reason = self.why_none()
        if reason:
            raise refusal(name, reason)
        processes = self._processes
        if processes is None:
            processes = WorkerProcesses(PROGRAM, self._clock.monotonic_s, available_memory_bytes())
            self._processes = processes
        version = self._config.full_version()
        elapsed = self._clock.monotonic_s
        limit_ms = self.limit_ms
        return lambda pause, await_turn: Scripts(
            processes, pause, await_turn, elapsed, self._hooks.log_script_output, now_ms, version, limit_ms, owner
        )

    def why_none(self) -> str:
        """Why the server runs no JavaScript, or "" if it does."""
        from mongottl.javascript.library import missing_reason

        forbidden = self._dialect.why_no_scripts()
        if forbidden:
            return forbidden
        return missing_reason() if self._config.scripting else "JavaScript is turned off (--no-scripting)"

    def counts(self) -> tuple[int, int, int]:
        """As `WorkerProcesses.counts`."""
        return (0, 0, 0) if self._processes is None else self._processes.counts()

    def end_idle(self) -> None:
        """Ends the processes that no operation has used for some seconds."""
        if self._processes is not None:
            self._processes.end_idle()

    def close(self) -> None:
        """Ends the processes that run scripts."""
        if self._processes is not None:
            self._processes.close()
