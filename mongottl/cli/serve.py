"""`mongottl serve`: the server as a process.

The first line on standard output, printed once connections are accepted, ends with the URI to paste; the log goes to
standard error. After SIGINT, SIGTERM or SIGHUP running requests are answered, and the exit status is 0.
"""

import faulthandler
import gc
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from mongottl.build_info import describe_version, is_compiled
from mongottl.cli.options import configuration, help_text
from mongottl.cli.signals import outlive_hangup, stopping_signals
from mongottl.cli.subcommands import FAILURE
from mongottl.clock import VirtualClock
from mongottl.config import ServerConfig, did_you_mean, known_variables, unknown_variables

if TYPE_CHECKING:
    import trio

    from mongottl.server.log import Log
    from mongottl.server.server import Server

# After a signal: how long the server's tasks may be kept from running before the process is ended as it is.
LAST_RESORT_S: Final = 1.9
# How long to wait for the last lines of the log to be written.
LOG_WAIT_S: Final = 0.1


def main(arguments: list[str]) -> int:
    """Serves with these options and those in the environment; the process's exit status."""
    if "--help" in arguments or "-h" in arguments:
        print(help_text())
        return 0
    if "--version" in arguments:
        print(describe_version())
        return 0
    return serve(configuration(arguments, os.environ))


def print_first_line(server: "Server") -> None:
    """Prints that the server accepts connections, and the URI to paste."""
    config = server.config
    where = f"data in {config.data_dir or config.store_shown() or 'memory'}"
    if config.workers > 1:
        where += f", {config.workers} workers"
    clock = ""
    if isinstance(server.clock, VirtualClock) and server.clock.unsettled:
        clock = ", clock stands still from the first command on"
    elif isinstance(server.clock, VirtualClock) and server.clock.frozen:
        clock = ", clock stands still"
    elif config.enable_test_commands:
        clock = ", clock can be moved"
    speed = "" if is_compiled() else ", interpreted: about ten times slower than compiled"
    print(f"mongottl accepts connections ({where}{clock}{speed}): {server.uri}", flush=True)
    if server.web_url is not None:
        print(f"mongottl shows what is inside at {server.web_url}", flush=True)
    if config.emulator:
        from mongottl.cli.trust import emulator_lines  # only the emulator needs it

        for line in emulator_lines(server):
            print(line, flush=True)


def serve(
    config: ServerConfig,
    announce: Callable[["Server"], None] = print_first_line,
    until: Callable[[], Awaitable[None]] | None = None,
    logs_waiting: bool = True,
) -> int:
    """Serves until SIGINT, SIGTERM or SIGHUP; the process's exit status.

    announce: called when connections are accepted. until: ends the server by returning. logs_waiting: whether the log
    says "Waiting for connections"; not if `announce` does.
    """
    if config.workers > 1 and until is None:
        from mongottl.cli.workers import serve_by_workers

        return serve_by_workers(config, announce, logs_waiting, serve)
    # Nothing of what is imported now is ever freed: collections of garbage would only lengthen the start.
    gc.disable()
    import trio

    from mongottl.server.limits import raise_file_limit
    from mongottl.server.log import Log
    from mongottl.storage.errors import EngineUnavailable

    log = Log(config.log_format, config.quiet, verbosity=config.verbosity)
    warn_of_unknown_variables(log)
    limited = raise_file_limit(config.max_connections)
    if limited is not None:
        log.startup_warning("control", "Connections are limited", reason=limited)
    status = 0
    try:
        trio.run(_serve, config, log, announce, until, logs_waiting)
    except* (OSError, EngineUnavailable) as group:
        for error in _leaves(group):
            log.error("control", "Cannot start", error=getattr(error, "strerror", None) or str(error))
        status = FAILURE
    except* KeyboardInterrupt:
        pass
    return status


def warn_of_unknown_variables(log: "Log") -> None:
    """Warns of variables in the environment that look like settings and are none."""
    for name in unknown_variables(os.environ):
        advice = did_you_mean(name, known_variables()).removeprefix("; ") or "see mongottl --help"
        log.startup_warning("control", "Unknown environment variable", name=name, advice=advice)


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found


async def _stop_on_command(server: "Server", log: "Log", scope: "trio.CancelScope") -> None:
    """Ends what waits in `scope` when the command shutdown has been run."""
    await server.stop_requested.wait()
    log.info("control", "Stopping", command="shutdown")
    scope.cancel()


async def _stop_on_signal(
    signals: AsyncIterator[int], log: "Log", loading: "trio.CancelScope", stopping: "trio.Event"
) -> None:
    """At the first signal ends the loading of files, and sets `stopping`."""
    async for number in signals:
        log.info("control", "Stopping", signal=signal.Signals(number).name)
        loading.cancel()
        stopping.set()
        return


async def _stop_after(
    until: Callable[[], Awaitable[None]], log: "Log", loading: "trio.CancelScope", stopping: "trio.Event"
) -> None:
    """When `until` returns ends the loading of files, and sets `stopping`."""
    await until()
    log.info("control", "Stopping")
    loading.cancel()
    stopping.set()


@contextmanager
def _stopping_in_time(started: list["Server"]) -> Iterator[None]:
    """Lets signals that stop the server end an operation that keeps its tasks from running, by `Server.begin_stop`, and
    the process if not even that ends it within LAST_RESORT_S. started: the server, once it is.

    trio's own handlers, which wake the tasks, are called, too, for the first of the signals: it would raise another one
    again at the end.
    """
    before: dict[int, Any] = {}
    came = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal came
        for server in started:
            if server.is_stopping:
                continue
            faulthandler.dump_traceback_later(LAST_RESORT_S, exit=True)
            server.begin_stop()
        handler = before[number]
        if not came and callable(handler):
            came = True
            handler(number, frame)

    for one in stopping_signals():
        before[one] = signal.signal(one, handle)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        for number, handler in before.items():
            signal.signal(number, handler)


async def _serve(
    config: ServerConfig,
    log: "Log",
    announce: Callable[["Server"], None],
    until: Callable[[], Awaitable[None]] | None,
    logs_waiting: bool,
) -> None:
    import trio

    from mongottl.cli import garbage
    from mongottl.cli.allocator import keep_freed_memory
    from mongottl.server.server import StartCancelled, open_server

    garbage.configure()
    keep_freed_memory()
    loading = trio.CancelScope()
    stopping = trio.Event()
    started: list[Server] = []
    outlive_hangup()
    with trio.open_signal_receiver(*stopping_signals()) as signals, _stopping_in_time(started):
        async with trio.open_nursery() as outer:
            outer.start_soon(_stop_on_signal, signals, log, loading, stopping)
            if until is not None:
                outer.start_soon(_stop_after, until, log, loading, stopping)
            with suppress(StartCancelled):
                async with open_server(config, log=log, loading=loading) as server:
                    started.append(server)
                    announce(server)
                    if logs_waiting:
                        log.info("network", "Waiting for connections", address=server.config.host, port=server.port)
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(_stop_on_command, server, log, nursery.cancel_scope)
                        nursery.start_soon(garbage.collect_garbage, server)
                        await stopping.wait()
                        faulthandler.cancel_dump_traceback_later()
                        nursery.cancel_scope.cancel()
            outer.cancel_scope.cancel()
    log.info("control", "Stopped")
    log.drain(LOG_WAIT_S)
