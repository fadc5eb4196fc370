"""One server: listener, tasks, start and stop.

    open_server(config)                     start, give the Server, stop at the end of the block
      ├── accept loop                        one task a connection
      ├── poller                             server/poller: readable sockets of idle connections
      ├── incoming messages                  server/incoming: closes connections whose clients send too slowly
      ├── reaper                             server/reaper
      ├── flusher                            server/durability: log to disk every 100 ms while there are commits
      ├── attendance                         server/attendance: this server's place among those of its store
      └── janitor                            server/janitor: idle cursors and sessions

Stopping: the listener is closed; connections are closed for reading, so each ends when it has answered what it is
working on; what still runs after a grace period is cancelled. The data is then on disk and the engine closed.
"""

import ipaddress
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import trio

from mongottl.clock import Clock, SystemClock, VirtualClock
from mongottl.commands.dialect_hooks import FirstUsers, hooks_of
from mongottl.config import ServerConfig
from mongottl.document.interrupt import set_run_aside, set_undivided_guard
from mongottl.exec.operation.refreshing import carry_out
from mongottl.exec.operation.restoring import save_initial
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.service.stored_clock import ahead_s, begin_clock
from mongottl.exec.sessions.cursor_registry import OpenCursor
from mongottl.exec.state.open_files import is_reserved
from mongottl.extras import to_install
from mongottl.query.icu import icu_version, is_available
from mongottl.regex.compiled import set_search_elsewhere
from mongottl.server.connection.task import Connection
from mongottl.server.connection.tls import TlsConnection
from mongottl.server.dispatch import Dispatcher
from mongottl.server.driving import drive
from mongottl.server.durability import Durability
from mongottl.server.first_user import create_first_user, first_password
from mongottl.server.janitor import run_janitor, run_process_janitor
from mongottl.server.listeners import host_port, open_listeners, port_of, reachable
from mongottl.server.log import Log
from mongottl.server.profiling.entries import shortened_text
from mongottl.server.reaper import Reaper
from mongottl.server.shell import Shell
from mongottl.server.transport.certificates import ServerTls, server_tls
from mongottl.server.transport.tls import TlsTransport
from mongottl.storage.data_folder import others_can_read
from mongottl.storage.errors import EngineUnavailable, WriteConflict
from mongottl.storage.interface import StorageEngine
from mongottl.storage.nodes import NodeFacts
from mongottl.storage.opening import open_engine

if TYPE_CHECKING:
    from mongottl.server.web.certificate import CertificateSite
    from mongottl.server.web.serve import Page

GRACE_S: Final = 1.0
ACCEPT_RETRY_S: Final = 0.1
# How often the log says at most that cursors are closed to make room.
LOG_ENDED_EVERY_S: Final = 60.0
# Connections accepted in a row before other tasks run.
ACCEPT_BURST: Final = 64
# How many of the most expensive operations the log names at the end.
_SHOWN_ROWS: Final = 20
RECURSION_LIMIT: Final = 10_000


class StartCancelled(Exception):
    """The start was cancelled while files were loaded."""


class Server:
    """A running server. uri: what a client connects to. clock: a VirtualClock if test commands are enabled."""

    def __init__(
        self, config: ServerConfig, clock: Clock, engine: StorageEngine, log: Log, tls: ServerTls | None = None
    ) -> None:
        # A pipeline may have a thousand stages, and each pulls from the one before it.
        sys.setrecursionlimit(max(sys.getrecursionlimit(), RECURSION_LIMIT))
        self.config = config
        self.clock = clock
        self.engine = engine
        self.log = log
        self._tls = tls
        # The users that the dialect has made, None without.
        self.dialect_users: FirstUsers | None = None
        self.service = carry_out(engine, partial(ServiceContext, config, clock, engine))
        nodes = engine.shared_nodes
        if nodes is not None:
            from mongottl.server.node_dispatch import NodeDispatcher

            self.dispatcher: Dispatcher = NodeDispatcher(self.service, log, nodes)
        else:
            self.dispatcher = Dispatcher(self.service, log)
        self.durability = Durability(engine, clock, log, compaction=self.service.compaction)
        self.reaper = Reaper(self.service, self.durability, log)
        self.shell = Shell(self.service, self.dispatcher, self.durability, log)
        self.stopping = self.shell.stopping
        # Set by the command `shutdown`; whoever has opened the server then stops it.
        self.stop_requested = trio.Event()
        self.service.hooks.request_stop = self.stop_requested.set
        self._next_ended_log_s = 0.0
        if tls is not None:
            self.service.hooks.rotate_certificates = tls.reload
        self.port = 0
        self._listeners: list[socket.socket] = []
        self._page: Page | None = None
        self._certificate_site: CertificateSite | None = None
        self._connections: set[Connection] = set()
        # How many accepted connections are open, including those whose task has not begun yet.
        self._accepted = 0
        self._last_connection_id = 0
        self.service.stacks.answer_apart = self._answer_apart
        engine.set_commit_listener(self.durability.note_commit)
        self.service.hooks.note_full_disk = self.durability.note_full_disk
        self.service.compaction.wake = self.durability.note_commit
        self.service.hooks.log_lines = log.lines
        self.service.log_settings = log.settings
        self.service.hooks.log_invalid_document = self._log_invalid_document
        self.service.hooks.log_ignored_sparse = self._log_ignored_sparse
        self.service.hooks.log_login = self._log_login
        self.service.hooks.log_ended_cursor = self._log_ended_cursor
        self.service.hooks.log_script_output = self._log_script_output

    @property
    def uri(self) -> str:
        """What to connect to, with the name of the user that was made at start, but not its password; for one that the
        dialect has made the whole connection string."""
        if self.dialect_users is not None:
            return self._uri_of(self.dialect_users, self.dialect_users.password)
        return self._uri("" if self.config.user is None else f"{quote(self.config.user, safe='')}@")

    @property
    def uri_with_password(self) -> str:
        """What to connect to, with name and password of the user that was made at start."""
        password = first_password(self.config)
        if self.dialect_users is not None or self.config.user is None or password is None:
            return self.uri
        return self._uri(f"{quote(self.config.user, safe='')}:{quote(password, safe='')}@")

    @property
    def web_url(self) -> str | None:
        """What a browser on this machine opens to look inside; None without `--web-port`."""
        return None if self._page is None else self._page.url

    @property
    def ca_file(self) -> str | None:
        """The certificate that clients have to trust; None without TLS, and where it is not known."""
        return None if self._tls is None else self._tls.ca_file

    @property
    def certificate_url(self) -> str | None:
        """Where clients fetch that certificate; None without `--certificate-port`."""
        return None if self._certificate_site is None else self._certificate_site.url

    @property
    def read_only_uri(self) -> str | None:
        """What to connect to as the user of the dialect that may only read; None if there is none."""
        users = self.dialect_users
        return None if users is None else self._uri_of(users, users.reader_password)

    def _uri_of(self, users: FirstUsers, password: str) -> str:
        replica_set = None if self.config.is_sharded else self.config.replica_set
        login = f"{quote(users.name, safe='')}:{quote(password, safe='')}@"
        return self._uri(login, users.uri_options(replica_set, self._tls is not None))

    def _uri(self, login: str, wanted: list[str] | None = None) -> str:
        """login: `name:password@`, `name@` or nothing. wanted: options, by default those that the dialect needs."""
        options = [self.service.dialect.uri_options] if self.service.dialect.uri_options else []
        if wanted is not None:
            options = wanted
        if self._tls is not None:
            if wanted is None:
                options.append("tls=true")
            if self._tls.ca_file is not None:
                options.append("tlsCAFile=" + quote(os.path.abspath(self._tls.ca_file), safe="/"))
        if self.config.workers > 1:
            options.append("loadBalanced=true")
        return f"mongodb://{login}{reachable(self.config.host)}:{self.port}/{'?' if options else ''}{'&'.join(options)}"

    def listen(self) -> None:
        """Binds the addresses. OSError if one is taken or does not exist: `close_listening` then closes the others."""
        self._listeners = open_listeners(self.config.host, self.config.port, is_shared=self.config.workers > 1)
        self.port = port_of(self._listeners)
        if self.config.web_port is not None:
            self._page = _page(self.config, self.shell, self.port, self._tls)
        if self.config.certificate_port is not None:
            assert self._tls is not None
            self._certificate_site = _certificate_site(self.config, self._tls, self.log)
        self._warn_without_access_control()

    def _warn_without_access_control(self) -> None:
        """Warns if clients of other machines can connect and users are not checked."""
        if self.service.authorizes:
            return
        shown = [] if self._page is None else self._page.listeners
        for listener in [*self._listeners, *shown]:
            address = listener.getsockname()
            if not ipaddress.ip_address(address[0].partition("%")[0]).is_loopback:
                self.log.startup_warning(
                    "access",
                    "Access control is off: everybody who can reach this address may read and change everything",
                    address=host_port(address),
                    advice="start with --auth, or listen on 127.0.0.1",
                )

    def _run_for_store(self, nursery: trio.Nursery) -> None:
        """Starts the tasks of a server whose engine waits for a store."""
        from mongottl.server.attendance import Attendance  # other servers do not need what these import
        from mongottl.server.log_follower import LogFollower
        from mongottl.server.store_waits import StackWaiter

        waiter = StackWaiter(self.clock, self.service.stacks, self.shell.poller, self.durability)
        self.engine.wait_by(waiter, waiter.present)
        set_undivided_guard(self.engine.undivided_guard())
        self.service.hooks.run_aside = waiter.run_aside
        self.durability.run_operation = self._run_operation
        nursery.start_soon(waiter.run)
        nodes = self.engine.nodes
        if nodes is not None:
            nodes.announce(f"{socket.gethostname()}:{self.port}")
            attendance = Attendance(nodes, self.service, self._run_operation)
            nursery.start_soon(attendance.run)
            nursery.start_soon(attendance.run_watch)
            if self.engine.shared_nodes is not None:
                nursery.start_soon(attendance.run_duties)
        if self.engine.log is not None:
            nursery.start_soon(LogFollower(self.service, self._run_operation).run)

    def run(self, nursery: trio.Nursery) -> None:
        """Starts the server's tasks in `nursery`."""
        self.reaper.refill()
        set_run_aside(self.service.stacks.run_aside)
        set_search_elsewhere(self.service.processes.searches)
        if self.engine.suspends:
            self._run_for_store(nursery)
        nursery.start_soon(self.shell.poller.run)
        nursery.start_soon(self.shell.poller.resume_due)
        nursery.start_soon(self.shell.incoming.run)
        nursery.start_soon(self.reaper.run)
        self.durability.note_commit()  # what an earlier run has left to drop and to give back
        nursery.start_soon(self.durability.run)
        nursery.start_soon(run_janitor, self.service, self.log)
        nursery.start_soon(run_process_janitor, self.service)
        for listener in self._listeners:
            nursery.start_soon(self._accept, listener, nursery)
        if self._page is not None:
            nursery.start_soon(self._page.run)
        if self._certificate_site is not None:
            nursery.start_soon(self._certificate_site.run)

    def _answer_apart(self) -> None:
        """`Stacks.answer_apart`. Everybody waits where commands may have to, and while profiles are written of them."""
        service = self.service
        if (
            self.dispatcher.gateway is None
            and not service.restoring
            and not service.profiler.attentive
            and not service.fail_points.fails_commands()
        ):
            self.shell.poller.answer_apart()

    async def _run_operation(self, function: Callable[[], bool]) -> bool:
        return await drive(self.service.stacks.begin(function), self.clock, self.durability, writes=False)

    @property
    def is_stopping(self) -> bool:
        """Whether `begin_stop` was called."""
        return self.service.stop_due_s > 0.0

    def begin_stop(self) -> None:
        """Sets the time by which running requests are to be answered. May be called more than once, from any thread and
        from a signal's handler: also while an operation keeps the server's tasks from running."""
        if not self.is_stopping:
            self.service.stop_due_s = self.clock.monotonic_s() + GRACE_S

    async def stop(self) -> None:
        """Stops accepting, waits until running requests are answered, and cancels the rest after the grace period."""
        self.begin_stop()
        self.stopping.set()
        self._close_listeners()
        for connection in list(self._connections):
            connection.stop_reading()
        self.shell.incoming.end()
        with trio.move_on_after(max(0.0, self.service.stop_due_s - self.clock.monotonic_s())):
            while self._connections:
                await trio.sleep(0.005)
        self.service.stopping = True
        with trio.move_on_after(GRACE_S / 4):
            while self._connections:
                await trio.sleep(0.005)

    def close(self) -> None:
        """Puts everything on disk and closes the engine."""
        self.service.cursors.close_all()
        report = self.service.request_units.report()
        if report.requests:
            most_expensive = [f"{row.command} {row.namespace}: {row.charge}" for row in report.rows[:_SHOWN_ROWS]]
            self.log.info(
                "control",
                "Request units",
                total=report.total,
                requests=report.requests,
                throttled=report.throttled,
                mostExpensive=most_expensive,
            )
        self.close_listening()
        self.service.processes.close()
        # The oplog has it, too; this spares the next start reading it there.
        with suppress(EngineUnavailable, WriteConflict):
            self.service.save_sessions()
        set_run_aside(None)
        set_search_elsewhere(None)
        if self.engine.suspends:
            set_undivided_guard(None)
        self.engine.close()

    def close_listening(self) -> None:
        """Closes what waits for clients; of a server that has not started, all that it has opened but its engine."""
        for listener in self._listeners:
            listener.close()
        if self._page is not None:
            self._page.close()
        if self._certificate_site is not None:
            self._certificate_site.close()
        self.shell.poller.close()

    def close_sockets(self) -> None:
        """In a process that was forked from the server's: closes its copies of all sockets."""
        shown = [site.listeners for site in (self._page, self._certificate_site) if site is not None]
        for listener in [*self._listeners, *chain.from_iterable(shown)]:
            listener.close()
        for connection in self._connections:
            connection.close_socket()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            trio.lowlevel.notify_closing(listener)
            listener.close()

    def _log_invalid_document(self, client: ClientInfo, namespace: str, document: bytes, info: bytes) -> None:
        ctx = f"conn{client.connection_id}"
        self.log.warning(
            "storage",
            "Document would fail validation",
            ctx,
            namespace=namespace,
            document=shortened_text(document),
            errInfo=shortened_text(info),
        )

    def _log_ignored_sparse(self, client: ClientInfo, namespace: str, index: str) -> None:
        ctx = f"conn{client.connection_id}"
        self.log.warning("index", "The option sparse has no effect in Cosmos DB", ctx, namespace=namespace, index=index)

    def _log_login(self, client: ClientInfo, mechanism: str, user: str, failure: str) -> None:
        attributes = {"mechanism": mechanism, "user": user, "remote": client.remote}
        ctx = f"conn{client.connection_id}"
        if failure:
            self.log.warning("access", "Authentication failed", ctx, **attributes, reason=failure)
        else:
            self.log.info("access", "Successfully authenticated", ctx, **attributes)

    def _log_ended_cursor(self, cursor: OpenCursor) -> None:
        """Logs that a cursor was closed to make room, at most once in LOG_ENDED_EVERY_S, with how many there were."""
        now_s = self.clock.monotonic_s()
        if now_s < self._next_ended_log_s:
            return
        self._next_ended_log_s = now_s + LOG_ENDED_EVERY_S
        self.log.warning(
            "query",
            "Idle cursors are closed, since all together hold too much",
            namespace=cursor.namespace,
            closed=self.service.cursors.ended_total,
            advice="--cursor-memory-mb",
        )

    def _log_script_output(self, line: str) -> None:
        self.log.info("query", "Output of a script", line=line)

    async def _accept(self, listener: socket.socket, nursery: trio.Nursery) -> None:
        failing = False
        burst = 0
        while not self.stopping.is_set():
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                burst = 0
                try:
                    await trio.lowlevel.wait_readable(listener)
                except (OSError, trio.ClosedResourceError):
                    return
                continue
            except ConnectionError:
                continue  # the client has disconnected before the connection was accepted
            except OSError as error:
                if self.stopping.is_set():
                    return
                # Out of file descriptors, for example: let connections end before the next attempt.
                if not failing:
                    self.log.warning("network", "Cannot accept connections", error=str(error))
                failing = True
                await trio.sleep(ACCEPT_RETRY_S)
                continue
            failing = False
            rate = self.service.connection_rate
            wait_s = rate.admit(self.clock.monotonic_s()) if rate.enabled else 0.0
            if wait_s < 0.0:
                self.service.metrics.connections_rejected += 1
                self.log.warning("network", "Connection refused: too many new connections", remote=host_port(address))
                sock.close()
            elif is_reserved(sock.fileno()):
                self.service.metrics.connections_rejected += 1
                self.log.warning("network", "Connection refused: too many open files", remote=host_port(address))
                sock.close()
            elif self._accepted >= self.config.max_connections:
                self.service.metrics.connections_rejected += 1
                self.log.warning("network", "Connection refused: too many open connections", remote=host_port(address))
                sock.close()
            else:
                self._accepted += 1
                nursery.start_soon(self._serve, sock, address, wait_s)
            burst += 1
            if burst >= ACCEPT_BURST:
                burst = 0
                await trio.lowlevel.checkpoint()

    async def _serve(self, sock: socket.socket, address: tuple[str, int], wait_s: float) -> None:
        """Serves a connection, after `wait_s` if the server limits the rate of new ones."""
        if wait_s > 0.0:
            try:
                with trio.move_on_after(wait_s):
                    await self.stopping.wait()
            except trio.Cancelled:
                sock.close()
                raise
        self._last_connection_id += 1
        name = f"conn{self._last_connection_id}"
        metrics = self.service.metrics
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            local = sock.getsockname()
        except OSError:
            sock.close()
            self._accepted -= 1
            return
        client = ClientInfo(self._last_connection_id, host_port(local), host_port(address))
        if self._tls is None:
            connection = Connection(self.shell, sock, sock, client)
        else:
            connection = TlsConnection(self.shell, sock, TlsTransport(sock, self._tls.context), client)
        self._connections.add(connection)
        self.service.clients[client.connection_id] = client
        metrics.connections_current += 1
        metrics.connections_created += 1
        self.log.info("network", "Connection accepted", name, remote=client.remote)
        try:
            if not self.stopping.is_set():
                await connection.run()
        finally:
            trio.lowlevel.notify_closing(sock)
            sock.close()
            self._connections.discard(connection)
            self._accepted -= 1
            del self.service.clients[client.connection_id]
            metrics.connections_current -= 1
            self.log.info("network", "Connection ended", name, remote=client.remote)


def _need(option: str, *libraries: str) -> None:
    """OSError if a library of the extra `web` is not installed."""
    for library in libraries:
        if find_spec(library) is None:
            raise OSError(f"{option} needs {library}: {to_install('web')}")


def _certificate_site(config: ServerConfig, tls: ServerTls, log: Log) -> "CertificateSite":
    """What answers on `--certificate-port`. OSError as for `_page`."""
    _need("--certificate-port", "h11")
    from mongottl.server.web.certificate import CertificateSite

    return CertificateSite(config, tls, log)


def _page(config: ServerConfig, shell: Shell, port: int, tls: ServerTls | None) -> "Page":
    """The page of `--web-port`. OSError if its address is taken or what it needs is not installed."""
    _need("--web-port", "h11", "prometheus_client")
    from mongottl.server.web.serve import Page

    return Page(config, shell, port, None if tls is None else tls.context)


def _clock_of(config: ServerConfig, engine: StorageEngine) -> Clock:
    """The machine's clock, or one that can be moved where test commands are enabled: as the last run has left it in the
    data directory, unless the configuration names its time. Of several servers with the same store it is that of the
    others, and moved by theirs also where test commands are not enabled here."""
    if not config.enable_test_commands and engine.shared_nodes is None:
        return SystemClock()
    clock = VirtualClock(None, config.start_ms(), config.freeze_clock)
    begin_clock(engine, clock, goes_on=config.enable_test_commands and config.now is None)
    return clock


def _warn_of_readers(folder: str | None, log: Log) -> None:
    """Warns if other users of the machine can read the data folder: the hashes of passwords are in it, too."""
    if folder is not None and others_can_read(folder):
        log.startup_warning(
            "storage",
            "Other users of this machine can read the data folder",
            folder=folder,
            advice=f"chmod -R go-rwx {folder}",
        )


@asynccontextmanager
async def open_server(
    config: ServerConfig | None = None,
    *,
    clock: Clock | None = None,
    log: Log | None = None,
    loading: trio.CancelScope | None = None,
) -> AsyncIterator[Server]:
    """Starts a server, yields it, and stops it at the end of the block.

    clock: by default the machine's, or a VirtualClock where test commands are enabled, as the last run has left it in
    the data directory.
    loading: cancels the loading of files; StartCancelled is then raised.
    Raises SettingError (ValueError) for a bad setting, OSError for a file, a folder or an address that cannot be used
    (DataDirectoryError, DumpError, CertificateError, FirstUserError), EngineUnavailable if the disk has a fault.
    """
    config = ServerConfig() if config is None else config
    config.validate()  # its fields may have been assigned since it was made
    log = Log(config.log_format, config.quiet, verbosity=config.verbosity) if log is None else log
    keys = icu_version() if config.is_sharded and config.store_shown() and is_available() else ""
    node = NodeFacts(config.topology, config.is_sharded, config.store_timeout, keys)
    engine = open_engine(config.store_uri(), node)
    server: Server | None = None
    try:
        ahead = 0
        if clock is None:
            ahead = 0 if config.enable_test_commands else ahead_s(engine, SystemClock())
            clock = _clock_of(config, engine)
        ahead = ahead or ahead_s(engine, clock)
        if ahead:
            log.startup_warning("storage", "Documents are stored ahead of the clock, and expire later", seconds=ahead)
        _warn_of_readers(engine.folder, log)
        if engine.may_lose_commits:
            log.startup_warning(
                "storage",
                "A standby that takes the place of the primary may lack acknowledged writes",
                advice="have PostgreSQL wait for one: synchronous_standby_names = '*'",
            )
        lost = engine.statistics().get("lost_commits", 0)
        if lost:
            log.startup_warning(
                "storage",
                "Commits are lost: the log is damaged before them, or was not all on disk at a power failure",
                commits="all in the log" if lost < 0 else lost,
            )
        server = Server(config, clock, engine, log, server_tls(config))
        if config.load is not None:
            from mongottl.server.loading import load_folder  # only few servers need what it imports

            with trio.CancelScope() if loading is None else loading as scope:
                await load_folder(server.service, config.load, log)
            if scope.cancelled_caught:
                raise StartCancelled
        service = server.service
        carry_out(engine, partial(create_first_user, service, log))
        server.dialect_users = carry_out(engine, partial(hooks_of(service).first_users, service))
        server.listen()
        save_initial(server.service)
    except BaseException:
        if server is not None:
            server.close_listening()
        engine.close()
        raise
    try:
        async with trio.open_nursery() as nursery:
            server.run(nursery)
            try:
                yield server
            finally:
                with trio.CancelScope(shield=True):
                    await server.stop()
                nursery.cancel_scope.cancel()
    finally:
        server.close()
