"""A server in a thread of its own, for tests and scripts that are not written with trio.

with start_server() as server:
    MongoClient(server.uri)
    server.clock.advance(3600)
"""

import itertools
import math
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from numbers import Real
from typing import Final, TypeVar, TypeVarTuple
from weakref import WeakSet

import trio

from mongottl.clock import VirtualClock, parse_date
from mongottl.config import ServerConfig, SettingError, check_names, config_for_tests
from mongottl.document.build import EMPTY_DOCUMENT, encode
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.refreshing import known_to_all
from mongottl.exec.operation.restoring import drop_state, restore_state, save_state
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.service.stored_clock import change_clock
from mongottl.exec.state.failpoints import DIALECT_FAIL_POINTS
from mongottl.exec.state.request_units import UnitsReport
from mongottl.exec.write.expiry import move_clock
from mongottl.server.driving import drive
from mongottl.server.server import Server, StartCancelled, open_server
from mongottl.server.uri import uri_for_database

_START_TIMEOUT_S: Final = 30.0
# The name of the saved state that `RunningServer.save` and `restore` mean without one.
DEFAULT_STATE: Final = "default"
_THROTTLE: Final = "cosmosThrottle"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_STOPPED: Final = "the server has stopped"
_Result = TypeVar("_Result")
_Arguments = TypeVarTuple("_Arguments")


class ServerClock:
    """The clock of a running server, for use on any thread. RuntimeError when the server has stopped."""

    def __init__(self, thread: "ServerThread") -> None:
        self._thread = thread

    def now(self) -> datetime:
        """The server's time, which stands still from now on if the server's clock is to."""
        clock = self._thread.server.clock
        if isinstance(clock, VirtualClock) and clock.unsettled:
            self._thread.run(self._change, VirtualClock.settle)
        return _EPOCH + timedelta(milliseconds=self._thread.server.clock.now_ms())

    @property
    def frozen(self) -> bool:
        """Whether the server's time stands still but for `advance`, `set` and `reset`; from its first use on, if it has
        not been used yet. Asking does not use it."""
        clock = self._thread.movable_clock()
        return clock.unsettled or clock.frozen

    def advance(self, seconds: float | timedelta) -> int:
        """Moves the server's time by seconds (backwards if negative), and waits until all expired documents are
        deleted; how many were deleted. ValueError if the time would leave the years 1970 to 9999."""
        given: object = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        if isinstance(given, bool) or not isinstance(given, Real):
            raise TypeError(f"a number of seconds, or a timedelta, is needed, not {seconds!r}")
        try:
            step_s = float(given)
        except OverflowError:  # a number beyond all floats
            step_s = math.inf
        return self._thread.run(self._moved, lambda clock: clock.advance(step_s))

    def set(self, now: date | str) -> int:
        """Sets the server's time, and waits until all documents that have expired by then are deleted; how many.

        now: without a time zone, UTC; a text in ISO 8601. ValueError for other texts and years.
        """
        text = now.isoformat() if isinstance(now, date) else now
        if not isinstance(text, str):
            raise TypeError(f"a datetime, or a text in ISO 8601, is needed, not {now!r}")
        now_ms = parse_date(text)
        return self._thread.run(self._moved, lambda clock: clock.set_wall(now_ms))

    def reset(self) -> int:
        """Sets the server's time, and whether it stands still, as they were at the start; as `advance`."""
        return self._thread.run(self._moved, VirtualClock.reset)

    def freeze(self, frozen: bool = True) -> None:
        """Stops the server's time, or lets it run on."""
        given: object = frozen
        if not isinstance(given, bool):
            raise TypeError(f"True or False is needed, not {given!r}")
        self._thread.movable_clock()
        self._thread.run(self._change, lambda clock: clock.freeze(frozen))

    async def _moved(self, change: Callable[[VirtualClock], object]) -> int:
        self._thread.movable_clock()
        return await self._carry_out(move_clock, change)

    async def _change(self, change: Callable[[VirtualClock], object]) -> None:
        await self._carry_out(change_clock, change)
        self._thread.server.service.note_clock_change()

    async def _carry_out(
        self,
        step: Callable[[ServiceContext, Callable[[VirtualClock], object]], _Result],
        change: Callable[[VirtualClock], object],
    ) -> _Result:
        server = self._thread.server
        outcome = server.service.stacks.begin(
            partial(known_to_all, server.service, partial(step, server.service, change))
        )
        return await drive(outcome, server.clock, server.durability)


class RunningServer:
    """A server that runs in a thread; a context manager that stops it at the end of the block.

    uri: what to connect to, as the user that was made at start. port: where it listens. clock: its time. read_only_uri:
    what to connect to with the read-only key of a Cosmos DB account, None without an account. web_url: what a browser
    opens to look inside, None without `web_port`. runs: how often it was started.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._thread = ServerThread()
        self.clock = ServerClock(self._thread)
        self.uri = ""
        self.port = 0
        self.read_only_uri: str | None = None
        self.web_url: str | None = None
        self.runs = 0
        # Blocks of `unchanged` that were entered.
        self._blocks = itertools.count(1)

    @property
    def running(self) -> bool:
        """Whether it was started and has not stopped."""
        return self._thread.runs

    def start(self) -> "RunningServer":
        """Starts the server if it does not run, at the port that it had before; then itself.

        After `stop` a server in memory is empty, and one with `data_dir` has its data. Raises OSError if the address is
        taken, or a file or folder cannot be used.
        """
        server = self._thread.start(replace(self._config, port=self.port or self._config.port))
        if server is not None:
            self.uri = server.uri_with_password
            self.port = server.port
            self.read_only_uri = server.read_only_uri
            self.web_url = server.web_url
            self.runs += 1
        return self

    def stop(self) -> None:
        """Stops the server, as SIGTERM does. Nothing happens if it has stopped."""
        self._thread.stop()

    def __enter__(self) -> "RunningServer":
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def uri_for(self, database: str) -> str:
        """`uri` with the database that drivers then use by default (PyMongo's `get_default_database()`). ValueError for
        what is no database's name."""
        return uri_for_database(self.uri, database)

    def save(self, name: str = DEFAULT_STATE) -> None:
        """Saves all that the server has stored, its clock and its settings, in place of what had the name before.

        It takes well under a millisecond for each collection, whatever that has, and needs memory for what is changed
        later. Raises CommandError with an engine that keeps its data in files.
        """
        self._thread.run(self._save, _checked_state(name))

    def restore(self, name: str = DEFAULT_STATE) -> None:
        """Restores what `save` has saved under the name; it can be restored again and again.

        Running operations end with an error, and so do cursors, change streams and transactions at their next use
        (`mongottl.exec.operation.restoring`). Raises CommandError if nothing was saved under the name.
        """
        self._thread.run(self._restore, _checked_state(name))

    def drop(self, name: str = DEFAULT_STATE) -> None:
        """Forgets what `save` has saved under the name. CommandError if nothing was saved under it."""
        self._thread.run(self._drop, _checked_state(name))

    @property
    def states(self) -> list[str]:
        """The names under which states are saved."""
        return self._thread.server.service.saved_states.names()

    def reset(self) -> None:
        """Restores the state in which the server has started; states that were saved are kept."""
        self._thread.run(self._restore, None)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Undoes at the end of the block all that was changed in it. Blocks may be nested."""
        name = f"unchanged {next(self._blocks)}"
        self.save(name)
        with _undone(lambda: self._thread.run(self._restore, name, True)):
            yield

    async def _save(self, name: str) -> None:
        save_state(self._thread.server.service, name)

    async def _restore(self, name: str | None, drop: bool = False) -> None:
        """Restores a saved state, without a name the first one. drop: whether to forget it then."""
        server = self._thread.server
        outcome = server.service.stacks.begin(partial(restore_state, server.service, name))
        await drive(outcome, server.clock, server.durability)
        if name is not None and drop:
            drop_state(server.service, name)

    async def _drop(self, name: str) -> None:
        drop_state(self._thread.server.service, name)

    def request_units(self, reset: bool = False) -> UnitsReport:
        """What the requests since the start, or since the last reset, have cost in request units, as Cosmos DB counts
        them approximately; nothing unless the dialect is `cosmos`.

        reset: whether to begin again from zero after that.
        """
        return self._thread.run(self._request_units, reset)

    async def _request_units(self, reset: bool) -> UnitsReport:
        units = self._thread.server.service.request_units
        report = units.report()
        if reset:
            units.reset()
        return report

    async def _set_fail_point(self, name: str, mode: Value, data: bytes) -> None:
        service = self._thread.server.service
        needed = DIALECT_FAIL_POINTS[name]
        if service.dialect.name != needed:
            raise CommandError(ErrorCode.CommandNotSupported, f"{name} needs the dialect {needed}")
        service.fail_points.configure(name, mode, data)

    @contextmanager
    def throttle(
        self,
        *commands: str,
        times: int | None = None,
        skip: int = 0,
        retry_after_ms: int | None = None,
        item: int = 0,
        form: str | None = None,
        namespace: str | None = None,
        app_name: str | None = None,
    ) -> Iterator[None]:
        """Refuses commands with 16500 within the block, as Cosmos DB does when the throughput is used up.

        commands: their names; without any, all that read or write documents. times: how many of them, None for all;
        skip: how many go well before. retry_after_ms: the hint in the text, by default 34. item: the statement of a
        batch that fails. form: "single", "batch" or "noHint", for the text. namespace ("database.collection"),
        app_name: whose commands.
        Raises CommandError unless the dialect is `cosmos`.
        """
        given: dict[str, str | None] = {"form": form, "namespace": namespace, "appName": app_name}
        data: dict[str, Value] = {name: value for name, value in given.items() if value is not None}
        data["item"] = item
        if retry_after_ms is not None:
            data["retryAfterMs"] = retry_after_ms
        if commands:
            data["commands"] = list(commands)
        mode: dict[str, Value] = {"skip": skip}
        if times is not None:
            mode["times"] = times
        self._thread.run(self._set_fail_point, _THROTTLE, encode(mode), encode(data))
        with _undone(lambda: self._thread.run(self._set_fail_point, _THROTTLE, "off", EMPTY_DOCUMENT)):
            yield

    def __repr__(self) -> str:
        scheme, separator, rest = self.uri.partition("://")
        authority, slash, options = rest.partition("/")
        host = authority.rpartition("@")[2]  # without the password
        return f"RunningServer('{scheme}{separator}{host}{slash}{options}')"


def _checked_state(name: str) -> str:
    """The name of a saved state. ValueError for what is none."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"the name of a state is needed, not {name!r}")
    return name


@contextmanager
def _undone(undo: Callable[[], object]) -> Iterator[None]:
    """Calls `undo` at the end of the block. An error of the block precedes one of `undo`, which fails if the block has
    stopped the server."""
    try:
        yield
    except BaseException:
        with suppress(RuntimeError, CommandError):
            undo()
        raise
    undo()


class ServerThread:
    """The thread in which a server runs, again and again. Its methods may be called on any thread and in any event
    loop, which they block.

    A process that was forked from the server's has a copy of this object, but no server: there it does not run, and
    RuntimeError is raised for what would ask or change it.
    """

    def __init__(self) -> None:
        # Held while the server is started or stopped.
        self._changing = threading.Lock()
        self._ready = threading.Event()
        self._running: tuple[Server, trio.lowlevel.TrioToken] | None = None
        self._error: BaseException | None = None
        self._stopping = _Stopping()
        self._thread: threading.Thread | None = None
        # The process that has the thread, 0 before the first start.
        self._process_id = 0

    @property
    def runs(self) -> bool:
        """Whether the server was started, and has neither ended since nor been asked to stop."""
        thread, running = self._thread, self._running
        if thread is None or not thread.is_alive() or self._stopping.requested:
            return False
        return running is None or not running[0].stop_requested.is_set()  # by the command `shutdown`

    @property
    def server(self) -> Server:
        """The server. RuntimeError when it does not run."""
        return self._require_running()[0]

    def movable_clock(self) -> VirtualClock:
        """The server's clock. RuntimeError when the server does not run, or its clock cannot be moved."""
        clock = self.server.clock
        if not isinstance(clock, VirtualClock) or not self.server.config.enable_test_commands:
            raise RuntimeError("the server's clock cannot be moved: enable_test_commands is False")
        return clock

    def start(self, config: ServerConfig) -> Server | None:
        """Starts the server and waits until it can be connected to; None if it runs already."""
        with self._changing:
            if self.runs:
                return None
            self._join()  # raises the error that has ended it
            self._ready.clear()
            self._process_id = os.getpid()
            self._stopping = stopping = _Stopping()
            self._thread = threading.Thread(target=self._run, args=(config, stopping), name="mongottl", daemon=True)
            try:
                self._thread.start()
                # What is loaded may be large.
                if not self._ready.wait(_START_TIMEOUT_S if config.load is None else None):
                    raise TimeoutError("mongottl did not start")
            except BaseException:  # such as KeyboardInterrupt
                stopping.request()
                raise
            if self._running is None:
                self._join()  # raises what has ended it
            _running_threads.add(self)
            return self.server

    def stop(self) -> None:
        """Stops the server, and raises the error that has ended it, if any."""
        with self._changing:
            self._join()

    def leave_to_parent(self) -> None:
        """To be called in a process that was just forked from the server's: closes its copies of the server's sockets,
        so that clients see it when the server closes its own."""
        self._changing = threading.Lock()  # a thread of the other process may hold it
        if self._running is not None:
            self._running[0].close_sockets()

    def run(self, function: "Callable[[*_Arguments], Awaitable[_Result]]", *arguments: *_Arguments) -> _Result:
        """Calls a function in the server's thread, and waits for its result. RuntimeError when the server has
        stopped."""
        _, token = self._require_running()
        future: Future[_Result] = Future()

        async def carry_out() -> None:
            try:
                future.set_result(await function(*arguments))
            except trio.Cancelled:
                future.set_exception(RuntimeError(_STOPPED))
                raise
            except BaseException as error:
                future.set_exception(error)

        def begin() -> None:
            try:
                trio.lowlevel.spawn_system_task(carry_out)
            except RuntimeError:  # trio takes no more tasks
                future.set_exception(RuntimeError(_STOPPED))

        # Not by `trio.from_thread.run`, which refuses to wait in a thread that runs trio, as asynchronous tests do.
        try:
            token.run_sync_soon(begin)
        except trio.RunFinishedError:
            raise RuntimeError(_STOPPED) from None
        return future.result()

    def _require_running(self) -> "tuple[Server, trio.lowlevel.TrioToken]":
        if self._process_id not in (0, os.getpid()):
            raise RuntimeError(f"the server runs in process {self._process_id}, from which this one was forked")
        running = self._running
        if running is None:
            raise RuntimeError(_STOPPED)
        return running

    def _join(self) -> None:
        thread = self._thread
        if thread is None:
            return
        if self._process_id == os.getpid():
            if self._running is not None:
                self._running[0].begin_stop()
            self._stopping.request()
            with suppress(RuntimeError):  # KeyboardInterrupt has come before its first step
                thread.join()
        self._thread = None
        _running_threads.discard(self)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self, config: ServerConfig, stopping: "_Stopping") -> None:
        try:
            trio.run(self._serve, config, stopping)
        except BaseException as error:
            self._error = error
        finally:
            self._running = None
            self._ready.set()

    async def _serve(self, config: ServerConfig, stopping: "_Stopping") -> None:
        token = trio.lowlevel.current_trio_token()
        loading = trio.CancelScope()
        stop = trio.Event()
        stopping.then(token, loading.cancel)
        stopping.then(token, stop.set)
        with suppress(StartCancelled):
            async with open_server(config, loading=loading) as server:
                self._running = server, token
                self._ready.set()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_cancel_after, stop, nursery.cancel_scope)
                    nursery.start_soon(_cancel_after, server.stop_requested, nursery.cancel_scope)


class _Stopping:
    """The request that a server stops, which may come from any thread, also before the server's event loop runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._functions: list[tuple[trio.lowlevel.TrioToken, Callable[[], object]]] = []
        self.requested = False

    def request(self) -> None:
        with self._lock:
            self.requested = True
            functions, self._functions = self._functions, []
        for token, function in functions:
            with suppress(trio.RunFinishedError):  # it has ended by itself
                token.run_sync_soon(function)

    def then(self, token: trio.lowlevel.TrioToken, function: Callable[[], object]) -> None:
        """Calls a function in an event loop when the request comes, or now if it was there before."""
        with self._lock:
            self._functions.append((token, function))
        if self.requested:
            self.request()


# The servers of this process that run, for processes that are forked from it.
_running_threads: Final[WeakSet[ServerThread]] = WeakSet()


def _leave_to_parent() -> None:
    for thread in list(_running_threads):
        thread.leave_to_parent()
    _running_threads.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


async def _cancel_after(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def start_server(
    config: ServerConfig | None = None,
    *,
    frozen: bool | None = None,
    now: date | str | None = None,
    **settings: object,
) -> RunningServer:
    """Starts a server in a thread. It is stopped by its `stop()`, or at the end of a `with` block.

    By default it listens on a free port of 127.0.0.1, keeps its data in memory, takes test commands, and its time
    stands still from its first use on, so that no test depends on how fast it runs: `clock.advance` moves it, and
    `frozen=False` or `clock.freeze(False)` let it run.
    now: the time at the start, by default the machine's; without a time zone, UTC; a text in ISO 8601.
    settings: fields of `ServerConfig` by name: `start_server(data_dir=path, dialect="cosmos")`.
    Raises SettingError (ValueError) for a bad setting, TypeError for one that does not exist, and OSError for a file, a
    folder or an address that cannot be used, which the text names.
    """
    if frozen is not None:
        if "freeze_clock" in settings:
            raise SettingError("frozen", "not together with {}", "freeze_clock")
        settings["freeze_clock"] = frozen
    if now is not None:
        settings["now"] = now
    if config is not None and not isinstance(config, ServerConfig):
        raise TypeError(f"config: a ServerConfig is needed, not {config!r}")
    check_names(settings)
    if settings.get("workers", 1 if config is None else config.workers) != 1:
        raise SettingError("workers", "only for a process of its own: mongottl --workers N")
    try:
        # `ServerConfig.validate` checks the types.
        config = config_for_tests(settings) if config is None else replace(config, **settings)  # type: ignore[arg-type]
    except SettingError as error:
        if frozen is not None and error.field == "freeze_clock":
            raise error.as_given("frozen") from None
        raise
    return RunningServer(config).start()
