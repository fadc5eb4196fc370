"""A server in a thread of its own, for tests and scripts that are not written with trio.

with start_server() as server:
    MongoClient(server.uri)
    server.clock.advance(3600)
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import trio

from mongottl.clock import VirtualClock
from mongottl.config import ServerConfig
from mongottl.dialect.cosmos.throttling import DEFAULT_RETRY_AFTER_MS
from mongottl.document.build import EMPTY_DOCUMENT, encode
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.cosmos_fail_points import THROTTLE
from mongottl.exec.operation.request_units import UnitsReport
from mongottl.exec.write.expiry import reap_after_clock_change
from mongottl.server.log import Log
from mongottl.server.server import Server, open_server

_START_TIMEOUT_S: Final = 30.0


class ServerClock:
    """The clock of a running server, for use on any thread."""

    def __init__(self, server: Server, clock: VirtualClock, token: trio.lowlevel.TrioToken) -> None:
        self._server = server
        self._clock = clock
        self._token = token

    def now(self) -> datetime:
        """The server's time."""
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)

    def advance(self, seconds: float) -> int:
        """Moves the server's time by seconds (backwards if negative), and waits until all expired documents are
        deleted; how many were deleted."""
        return trio.from_thread.run(self._advance, seconds, trio_token=self._token)

    def freeze(self, frozen: bool = True) -> None:
        """Stops the server's time, or lets it continue."""
        trio.from_thread.run_sync(self._freeze, frozen, trio_token=self._token)

    async def _advance(self, seconds: float) -> int:
        self._clock.advance(seconds)
        return await self._server.reaper.drive(reap_after_clock_change(self._server.service))

    def _freeze(self, frozen: bool) -> None:
        self._clock.freeze(frozen)
        self._server.reaper.wake()


class ServerState:
    """The state of a running server, for use on any thread."""

    def __init__(self, server: Server, token: trio.lowlevel.TrioToken) -> None:
        self._service = server.service
        self._token = token

    def set_fail_point(self, name: str, mode: Value, data: bytes) -> None:
        """What `configureFailPoint` does, for fail points of the dialect `cosmos`."""
        if self._service.dialect.account is None:
            raise CommandError(ErrorCode.CommandNotSupported, f"{name} needs the dialect cosmos")
        configure = self._service.fail_points.configure
        trio.from_thread.run_sync(configure, name, mode, data, trio_token=self._token)

    def request_units(self, reset: bool) -> UnitsReport:
        """What requests have cost. reset: whether to begin again from zero."""
        return trio.from_thread.run_sync(self._request_units, reset, trio_token=self._token)

    def _request_units(self, reset: bool) -> UnitsReport:
        units = self._service.request_units
        report = units.report()
        if reset:
            units.reset()
        return report


class RunningServer:
    """A server that runs in a thread.

    uri: what to connect to, as the user that was made at start. clock: its time. read_only_uri: what to connect to with
    the read-only key of a Cosmos DB account, None without an account.
    """

    def __init__(self, uri: str, port: int, clock: ServerClock, state: ServerState, read_only_uri: str | None) -> None:
        self.uri = uri
        self.port = port
        self.clock = clock
        self._state = state
        self.read_only_uri = read_only_uri

    def request_units(self, reset: bool = False) -> UnitsReport:
        """What the requests since the start, or since the last reset, have cost in request units, as Cosmos DB counts
        them approximately (`mongottl.dialect.cosmos.charges`); nothing unless the dialect is `cosmos`.

        reset: whether to begin again from zero after that.
        """
        return self._state.request_units(reset)

    @contextmanager
    def throttle(
        self,
        *commands: str,
        times: int | None = None,
        skip: int = 0,
        retry_after_ms: int = DEFAULT_RETRY_AFTER_MS,
        item: int = 0,
        form: str | None = None,
        namespace: str | None = None,
        app_name: str | None = None,
    ) -> Iterator[None]:
        """Refuses commands with 16500 within the block, as Cosmos DB does when the throughput is used up.

        commands: their names; without any, all that read or write documents. times: how many of them, None for all;
        skip: how many go well before. retry_after_ms: the hint in the text. item: the statement of a batch that fails.
        form: "single", "batch" or "noHint", for the text. namespace ("database.collection"), app_name: whose commands.
        Raises CommandError unless the dialect is `cosmos`.
        """
        given: dict[str, str | None] = {"form": form, "namespace": namespace, "appName": app_name}
        data: dict[str, Value] = {name: value for name, value in given.items() if value is not None}
        data |= {"retryAfterMs": retry_after_ms, "item": item}
        if commands:
            data["commands"] = list(commands)
        mode: dict[str, Value] = {"skip": skip}
        if times is not None:
            mode["times"] = times
        self._state.set_fail_point(THROTTLE, encode(mode), encode(data))
        try:
            yield
        finally:
            self._state.set_fail_point(THROTTLE, "off", EMPTY_DOCUMENT)

    def __repr__(self) -> str:
        scheme, _, rest = self.uri.partition("://")
        return f"RunningServer('{scheme}://{rest.rpartition('@')[2]}')"  # without the password


class _Thread:
    """The thread of a server, with what it passes to the thread that started it."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._ready = threading.Event()
        self._server: RunningServer | None = None
        self._error: BaseException | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._stop: trio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="mongottl", daemon=True)

    def start(self) -> RunningServer:
        self._thread.start()
        if not self._ready.wait(_START_TIMEOUT_S):
            raise TimeoutError("mongottl did not start")
        if self._server is None:
            assert self._error is not None
            raise self._error
        return self._server

    def stop(self) -> None:
        if self._token is not None and self._stop is not None:
            with suppress(trio.RunFinishedError):  # it has ended by itself; its error is raised below
                self._token.run_sync_soon(self._stop.set)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stop = trio.Event()
        clock = VirtualClock()
        log = Log(self._config.log_format, self._config.quiet)
        async with open_server(self._config, clock=clock, log=log) as server:
            keys = server.account_keys
            self._server = RunningServer(
                server.uri_with_password,
                server.port,
                ServerClock(server, clock, self._token),
                ServerState(server, self._token),
                None if keys is None else server.account_uri(keys.read_only),
            )
            self._ready.set()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_after, self._stop, nursery.cancel_scope)
                nursery.start_soon(_cancel_after, server.stop_requested, nursery.cancel_scope)


async def _cancel_after(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


@contextmanager
def start_server(config: ServerConfig | None = None, **settings: object) -> Iterator[RunningServer]:
    """Starts a server in a thread, yields it, and stops it at the end of the block.

    By default it listens on a free port of 127.0.0.1, keeps its data in memory, and takes test commands.
    settings: fields of `ServerConfig` by name: `start_server(data_dir=path, dialect="cosmos")`.
    Raises OSError if the address is taken, DataDirectoryError if the data directory cannot be used.
    """
    if config is None:
        config = ServerConfig(port=0, enable_test_commands=True, quiet=True)
    config = replace(config, **settings)  # type: ignore[arg-type]  # names and types are the dataclass's own
    thread = _Thread(config)
    server = thread.start()
    try:
        yield server
    finally:
        thread.stop()
