"""`mongottl --workers N`: N processes that serve on one port, since one uses one core.

    parent ──fork──► worker 1        makes the tables, loads files, makes the first user; then
       ├─────fork──► worker 2        all are nodes of one store (`storage.nodes`), and listen on the port:
       └─────fork──► worker N        the system gives each a part of the connections

    ready   a pipe from each worker, which says that it serves
    orders  a pipe to each: a byte when all serve, upon which worker 1 announces that; its end stops the worker, also
            if that comes since the parent was killed

With `--store local-postgresql:FOLDER` the parent starts the private PostgreSQL before the workers, starts it again if
it ends, and stops it when they have ended. If the parent is killed it runs on, as after the kill of a single server,
and the next start stops it.

The parent serves nothing, and has no event loop. A worker that ends is started again: at once, but after longer and
longer pauses if it does not run for STEADY_S in between, also if a signal was sent to it alone. One that ends with the
status SHUT_DOWN has run the command `shutdown`, which ends all of them, as a signal to the parent does.
"""

import os
import select
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from mongottl.cli.processes import exit_status
from mongottl.cli.signals import do_nothing, stopping_signals
from mongottl.cli.subcommands import FAILURE
from mongottl.clock import SystemClock
from mongottl.config import ServerConfig
from mongottl.config.setting import LOCAL_STORE
from mongottl.server.listeners import port_of, reserve_port
from mongottl.server.log import Log

if TYPE_CHECKING:
    from mongottl.server.server import Server
    from mongottl.storage.postgresql.local_cluster import LocalCluster

# A worker that has run for this time, in seconds, is started again at once.
STEADY_S: Final = 60.0
# Seconds before a worker is started again that has ended for the first, second, … time without running for STEADY_S.
PAUSES_S: Final = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
# The status of a worker that has run the command `shutdown`. The log has 0 for it.
SHUT_DOWN: Final = 100
# How long workers have to end after SIGTERM, before they get SIGKILL. Each has a last resort that is sooner.
END_S: Final = 5.0
# Seconds between two looks whether the private PostgreSQL runs.
LOOK_EVERY_S: Final = 0.5
# How many connections of it a worker has at most; and others, such as psql, and its own processes.
_CONNECTIONS: Final = 61
_SPARE_CONNECTIONS: Final = 20


class _Worker:
    """A place for a process that serves. number: from 1 on. pid: of the process, 0 if none runs. ready: the pipe from
    it, -1 once that has ended. serves: what it has said. orders: the pipe to it. due_s: when it is started again."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid = 0
        self.ready = -1
        self.serves = False
        self.orders = -1
        self.started_s = 0.0
        self.due_s = 0.0
        # How often it has ended without running for STEADY_S.
        self.failures = 0

    def forget_process(self) -> None:
        self.pid = 0
        self.serves = False
        for descriptor in (self.ready, self.orders):
            if descriptor >= 0:
                os.close(descriptor)
        self.ready = self.orders = -1


_Announce = Callable[["Server"], None]
# `cli.serve.serve`.
_Serve = Callable[[ServerConfig, _Announce, Callable[[], Awaitable[None]], bool], int]
_monotonic_s: Final = SystemClock().monotonic_s


def serve_by_workers(config: ServerConfig, announce: _Announce, logs_waiting: bool, serve: _Serve) -> int:
    """Serves until SIGINT, SIGTERM or SIGHUP; the exit status.

    announce: called in worker 1 when all accept connections. serve: serves in the process of a worker, until a function
    returns.
    """
    log = Log(config.log_format, config.quiet, verbosity=config.verbosity)
    # A signal that comes while PostgreSQL is started is answered when it has been, so that it does not stay alone.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, stopping_signals())
    cluster: LocalCluster | None = None
    try:
        reserved = reserve_port(config.host, config.port)
        config = replace(config, port=port_of(reserved))
        if config.store is not None and config.store.startswith(LOCAL_STORE):
            cluster = _start_cluster(config.store.removeprefix(LOCAL_STORE), config.workers)
            config = replace(config, store=cluster.store)
    except OSError as error:
        log.error("control", "Cannot start", error=error.strerror or str(error))
        return FAILURE
    become = partial(_serve_in_child, announce, logs_waiting, serve)
    try:
        return _Parent(config, become, log, [listener.fileno() for listener in reserved], cluster).run(mask)
    finally:
        if cluster is not None:
            cluster.stop()


def _start_cluster(folder: str, workers: int) -> "LocalCluster":
    """Starts the private PostgreSQL of a folder. DataDirectoryError."""
    from mongottl.storage.postgresql.local_cluster import start_local_cluster  # others do not need what it imports

    return start_local_cluster(folder, settings={"max_connections": str(workers * _CONNECTIONS + _SPARE_CONNECTIONS)})


class _Parent:
    """become: serves in the process of a worker, with its pipes, and ends it. reserved: the sockets that keep the port,
    which the workers do not need. cluster: the private PostgreSQL with the data, if it is one."""

    def __init__(
        self,
        config: ServerConfig,
        become: Callable[[ServerConfig, int, int], NoReturn],
        log: Log,
        reserved: list[int],
        cluster: "LocalCluster | None" = None,
    ) -> None:
        self._stopping: Final = stopping_signals()
        self._config: Final = config
        self._become: Final = become
        self._log: Final = log
        self._reserved: Final = reserved
        self._cluster: Final = cluster
        self._workers: Final = [_Worker(number) for number in range(1, config.workers + 1)]
        # Whether worker 1 serves, and whether all have done so, which is announced once.
        self._first_serves = False
        self._is_announced = False
        # When the workers get SIGKILL; 0 as long as they are not to stop.
        self._kill_s = 0.0
        self._status = 0
        self._wake_end, self._wake = os.pipe()

    def run(self, mask: Iterable[int]) -> int:
        """mask: the signals that are blocked from now on."""
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wake_end, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number in (*self._stopping, signal.SIGCHLD):
            signal.signal(number, do_nothing)  # it wakes the parent
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._start(self._workers[0])
        while not self._kill_s or any(worker.pid for worker in self._workers):
            self._wait()
            self._note_ready()
            self._note_ended()
            if self._kill_s:
                self._kill_late()
            else:
                self._look_after_cluster()
                self._start_due()
        self._log.info("control", "Stopped")
        return self._status

    def _wait(self) -> None:
        """Returns when a signal has come, a worker says that it serves, or something is due."""
        due = [self._kill_s] if self._kill_s else [w.due_s for w in self._workers if not w.pid and w.due_s]
        if self._cluster is not None:
            due.append(_monotonic_s() + LOOK_EVERY_S)
        timeout_s = max(0.0, min(due) - _monotonic_s()) if due else None
        pipes = [worker.ready for worker in self._workers if worker.ready >= 0]
        readable, _, _ = select.select([self._wake_end, *pipes], [], [], timeout_s)
        if self._wake_end in readable:
            for number in os.read(self._wake_end, 512):
                if number in self._stopping and not self._kill_s:
                    self._log.info("control", "Stopping", signal=signal.Signals(number).name)
                    self._stop()

    def _note_ready(self) -> None:
        for worker in self._workers:
            if worker.ready < 0 or not select.select([worker.ready], [], [], 0.0)[0]:
                continue
            worker.serves = bool(os.read(worker.ready, 1))
            os.close(worker.ready)
            worker.ready = -1
            if worker.serves:
                self._log.info("control", "Worker started", worker=worker.number, pid=worker.pid)
                if not self._first_serves:
                    self._first_serves = True
                    for other in self._workers[1:]:
                        other.due_s = _monotonic_s()
        if not self._is_announced and all(worker.serves for worker in self._workers):
            self._is_announced = True
            with suppress(BrokenPipeError):
                os.write(self._workers[0].orders, b"x")

    def _look_after_cluster(self) -> None:
        """Starts PostgreSQL again if it has ended; the workers wait for it."""
        cluster = self._cluster
        if cluster is not None and not cluster.runs:
            self._log.warning("control", "PostgreSQL has ended; it is started again", folder=cluster.folder)
            try:
                cluster.start_again()
            except OSError as error:
                self._log.error("control", "PostgreSQL did not start", error=str(error))

    def _note_ended(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            for worker in self._workers:
                if worker.pid == pid:
                    self._end_of(worker, exit_status(status))

    def _end_of(self, worker: _Worker, status: int) -> None:
        pid = worker.pid
        worker.forget_process()
        is_shut_down = status == SHUT_DOWN
        status = 0 if is_shut_down else status
        if self._kill_s:
            self._log.info("control", "Worker ended", worker=worker.number, pid=pid, status=status)
            # A worker that is still starting has no handler of the signal yet.
            if status not in (0, *(128 + number for number in self._stopping)):
                self._status = FAILURE
            return
        if not self._is_announced or is_shut_down:
            self._log.info("control", "Worker ended", worker=worker.number, pid=pid, status=status)
            self._status = status and FAILURE
            self._stop()
            return
        now_s = _monotonic_s()
        worker.failures = 0 if now_s - worker.started_s >= STEADY_S else worker.failures
        pause_s = PAUSES_S[min(worker.failures, len(PAUSES_S) - 1)]
        worker.failures += 1
        worker.due_s = now_s + pause_s
        self._log.warning(
            "control", "Worker ended", worker=worker.number, pid=pid, status=status, startedAgainAfterSeconds=pause_s
        )

    def _stop(self) -> None:
        self._kill_s = _monotonic_s() + END_S
        self._send(signal.SIGTERM)

    def _kill_late(self) -> None:
        if _monotonic_s() >= self._kill_s:
            self._send(signal.SIGKILL)
            self._kill_s = _monotonic_s() + END_S

    def _send(self, number: int) -> None:
        for worker in self._workers:
            if worker.pid:
                os.kill(worker.pid, number)

    def _start_due(self) -> None:
        now_s = _monotonic_s()
        for worker in self._workers:
            if not worker.pid and worker.due_s and now_s >= worker.due_s:
                self._start(worker)

    def _start(self, worker: _Worker) -> None:
        """Starts a process in a worker's place."""
        is_first = not self._first_serves
        sys.stdout.flush()
        sys.stderr.flush()
        ready, write_ready = os.pipe()
        read_orders, orders = os.pipe()
        # What comes before the child has its own handlers must neither be lost nor wake the parent.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (*self._stopping, signal.SIGCHLD))
        pid = os.fork()
        if pid == 0:
            others = [pipe for each in self._workers for pipe in (each.ready, each.orders) if pipe >= 0]
            for descriptor in (ready, orders, self._wake, self._wake_end, *others, *self._reserved):
                os.close(descriptor)
            if self._cluster is not None:
                self._cluster.release()  # it is the parent's
            signal.set_wakeup_fd(-1)
            for number in (*self._stopping, signal.SIGCHLD):
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self._become(_config_of(self._config, worker.number, is_first), write_ready, read_orders)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(write_ready)
        os.close(read_orders)
        worker.pid, worker.ready, worker.orders = pid, ready, orders
        worker.started_s = _monotonic_s()
        worker.due_s = 0.0


def _config_of(config: ServerConfig, number: int, is_first: bool) -> ServerConfig:
    """The configuration of a worker: the page has a port for each, and the first start alone loads files, makes a user
    and sets the clock of all."""
    web_port = config.web_port + number - 1 if config.web_port else config.web_port
    if is_first:
        return replace(config, web_port=web_port)
    return replace(config, web_port=web_port, load=None, user=None, password=None, password_file=None, now=None)


def _serve_in_child(
    announce: _Announce, logs_waiting: bool, serve: _Serve, config: ServerConfig, ready: int, orders: int
) -> NoReturn:
    servers: list[Server] = []

    def note_ready(server: "Server") -> None:
        servers.append(server)
        with suppress(BrokenPipeError):  # the parent was killed
            os.write(ready, b"x")
        os.close(ready)

    status = FAILURE
    try:
        status = serve(config, note_ready, partial(_obey, orders, servers, announce), logs_waiting)
        if not status and any(server.stop_requested.is_set() for server in servers):
            status = SHUT_DOWN
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


async def _obey(orders: int, servers: list["Server"], announce: _Announce) -> None:
    """Announces the server when the parent says so, and returns when the parent has ended."""
    import trio

    os.set_blocking(orders, False)
    while True:
        await trio.lowlevel.wait_readable(orders)
        if not os.read(orders, 16):
            return
        announce(servers[0])
