"""The servers under load: how each is started, reached and stopped.

A `Launcher` is a kind of server, and starts a new one for each group of workloads, so that each group begins with an
empty server and the peak memory is that of the group; a server given by its URI is used as it is. A `Target` is a
running server.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, cast

import pymongo
from pymongo.uri_parser import parse_uri

from bench import peers
from bench.load import Connection, ReplyError
from mongottl.storage.postgresql.local_cluster import LocalCluster, start_local_cluster

Client = pymongo.MongoClient[dict[str, Any]]

DATABASE = "bench"

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0
_DRIVER_TIMEOUT_MS = 180_000  # A server that is silent for so long is taken for dead.
_POLL_S = 0.002
_REPOSITORY = Path(__file__).resolve().parent.parent


class StartError(Exception):
    """A server did not start: the message holds the end of its log."""


class Target(ABC):
    """A running server or library. pid: None if its process is unknown, and then its CPU and memory are, too.

    database: the folder of the private PostgreSQL that keeps its data, None if there is none.
    """

    name: str
    pid: int | None
    database: Path | None = None

    @property
    def database_pid(self) -> int | None:
        """The first process of that PostgreSQL."""
        if self.database is None:
            return None
        return int((self.database / "data/postmaster.pid").read_text().split("\n", 1)[0])

    @abstractmethod
    def client(self) -> Client:
        """A PyMongo client, or an object with its interface."""

    @abstractmethod
    def address(self) -> tuple[str, int]:
        """Where it listens."""

    @abstractmethod
    def stop(self) -> None:
        """Ends the process, when it was started here."""

    def exit_message(self) -> str:
        """The exit code and last log lines of a process that was started here and has ended; else empty."""
        return ""

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class ServerTarget(Target):
    """A server reached over TCP; with `process` one that was started here."""

    def __init__(
        self,
        name: str,
        address: tuple[str, int],
        pid: int | None,
        process: subprocess.Popen[str] | None = None,
        scratch: Path | None = None,
        database: Path | None = None,
        cluster: LocalCluster | None = None,
    ) -> None:
        """cluster: the PostgreSQL of `database`, if the server does not stop it itself."""
        self.name = name
        self.pid = pid
        self._cluster = cluster
        self.database = database
        self._address = address
        self._process = process
        self._scratch = scratch
        self._client: Client | None = None

    def client(self) -> Client:
        if self._client is None:
            host, port = self._address
            self._client = pymongo.MongoClient(host, port, directConnection=True, socketTimeoutMS=_DRIVER_TIMEOUT_MS)
        return self._client

    def address(self) -> tuple[str, int]:
        return self._address

    def exit_message(self) -> str:
        if self._process is None or self._process.poll() is None:
            return ""
        log = (self._scratch / "log").read_text(errors="replace")[-300:] if self._scratch else ""
        return f" (its process ended with exit code {self._process.returncode}: {log})"

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
        if self._process is not None:
            _stop_process(self._process)
        if self._cluster is not None:
            self._cluster.stop()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)


def _stop_process(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


class MongomockTarget(Target):
    """mongomock in this process, which the runner started for it: its CPU and memory include the client's."""

    name = "mongomock"
    pid: int | None

    def __init__(self) -> None:
        sys.path.append(str(peers.installed("mongomock")))
        import mongomock

        self.pid = os.getpid()
        self._client = cast(Client, mongomock.MongoClient())

    def client(self) -> Client:
        return self._client

    def address(self) -> tuple[str, int]:
        raise StartError("mongomock does not listen")

    def stop(self) -> None:
        self._client.close()


class Launcher(ABC):
    """Starts one kind of server.

    listens: it is a server, not a library. spawns: each `start` is a new process. on_postgresql: PostgreSQL keeps its
    data.
    """

    name: str
    listens = True
    spawns = True
    on_postgresql = False

    @abstractmethod
    def start(self, data_dir: Path | None = None) -> Target:
        """Starts it, and returns when it answered a first ping. data_dir: keep the documents there (mongottl only)."""

    def has_ttl(self) -> bool:
        """Whether it has mongottl's TTL and its virtual clock."""
        return False

    def describe(self) -> str:
        return self.name


class MongottlLauncher(Launcher):
    """`python -m mongottl` of the given interpreter, or of the sources around this file when it has none installed."""

    def __init__(
        self,
        python: str,
        *,
        name: str = "mongottl",
        from_source: bool = False,
        durable: bool = False,
        on_postgresql: bool = False,
        arguments: Sequence[str] = (),
        core: int | None = None,
    ) -> None:
        """durable: keep the documents in files always, not only where a workload gives a folder for them.
        on_postgresql: keep them in a private PostgreSQL, in that folder or another one."""
        self.name = name
        self.on_postgresql = on_postgresql
        self._durable = durable
        self._python = python
        self._arguments = list(arguments)
        self._core = core
        self._environment = dict(os.environ)
        # Started outside the repository: there the installed, compiled package would be hidden by its own sources.
        if from_source or not self._is_installed():
            self._environment["PYTHONPATH"] = str(_REPOSITORY)

    def _is_installed(self) -> bool:
        found = subprocess.run(
            [self._python, "-c", "import mongottl"], cwd=tempfile.gettempdir(), capture_output=True, check=False
        )
        return found.returncode == 0

    def start(self, data_dir: Path | None = None) -> ServerTarget:
        scratch = Path(tempfile.mkdtemp(prefix="mongottl-bench-"))
        if data_dir is None and (self._durable or self.on_postgresql):
            data_dir = scratch / "data"
        command = [self._python, "-m", "mongottl", "--port", "0", "--enable-test-commands"]
        if data_dir is not None and self.on_postgresql:
            _let_others_enter(data_dir.parent)
            command += ["--store", f"local-postgresql:{data_dir}"]
        elif data_dir is not None:
            command += ["--data-dir", str(data_dir)]
        with open(scratch / "log", "w") as log:
            process = _spawn(command + self._arguments, scratch, log, self._environment, subprocess.PIPE, self._core)
        assert process.stdout is not None
        first_line = process.stdout.readline()
        if not first_line.strip():
            raise _start_error(process, scratch, command)
        host, port = _host_and_port(first_line.split()[-1])
        database = data_dir if self.on_postgresql else None
        target = ServerTarget(self.name, (host, port), process.pid, process, scratch, database)
        _ping((host, port))
        return target

    def has_ttl(self) -> bool:
        return True

    def describe(self) -> str:
        with self.start() as target, Connection(target.address()) as connection:
            status = connection.command({"serverStatus": 1, "$db": "admin"})
        return f"{self.name} {json.dumps(status.get('mongottl', {}), default=str)}"


class PeerLauncher(Launcher):
    """A packaged peer."""

    def __init__(self, name: str, core: int | None = None) -> None:
        self.name = name
        self.on_postgresql = peers.PEERS[name].on_postgresql
        self._core = core

    def start(self, data_dir: Path | None = None) -> ServerTarget:
        scratch = Path(tempfile.mkdtemp(prefix="mongottl-bench-"))
        address = ("127.0.0.1", _free_port())
        database: Path | None = None
        cluster: LocalCluster | None = None
        if self.on_postgresql:
            _let_others_enter(scratch)
            database = scratch / "postgresql"
            cluster = start_local_cluster(str(database))
        command = peers.server_command(self.name, address[1], scratch)
        with open(scratch / "log", "w") as log:
            process = _spawn(command, scratch, log, dict(os.environ), log, self._core)
        deadline_s = time.perf_counter() + _START_TIMEOUT_S
        while True:
            try:
                _ping(address)
                return ServerTarget(self.name, address, process.pid, process, scratch, database, cluster)
            except (OSError, ReplyError):
                if process.poll() is not None or time.perf_counter() > deadline_s:
                    if cluster is not None:
                        cluster.stop()
                    raise _start_error(process, scratch, command) from None
                time.sleep(_POLL_S)

    def describe(self) -> str:
        return f"{self.name} {peers.PEERS[self.name].version}"


class MongomockLauncher(Launcher):
    """mongomock: a library, so only workloads that use a driver's interface."""

    name = "mongomock"
    listens = False

    def start(self, data_dir: Path | None = None) -> MongomockTarget:
        return MongomockTarget()

    def describe(self) -> str:
        return f"{self.name} {peers.PEERS[self.name].version} (in the client's process)"


class RunningLauncher(Launcher):
    """A server that was not started here; with its process id its CPU and memory can be measured."""

    spawns = False

    def __init__(self, name: str, uri: str, pid: int | None) -> None:
        self.name = name
        self._address = _host_and_port(uri)
        self._pid = pid

    def start(self, data_dir: Path | None = None) -> ServerTarget:
        return ServerTarget(self.name, self._address, self._pid)

    def has_ttl(self) -> bool:
        with Connection(self._address) as connection:
            return "mongottl" in connection.command({"serverStatus": 1, "$db": "admin"})

    def describe(self) -> str:
        host, port = self._address
        return f"{self.name} at {host}:{port}, process {self._pid or 'unknown'}"


def _spawn(
    command: list[str],
    folder: Path,
    log: IO[str],
    environment: dict[str, str],
    stdout: IO[str] | int,
    core: int | None,
) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=log, text=True
    )
    if core is not None:
        os.sched_setaffinity(process.pid, {core})
    return process


def _let_others_enter(folder: Path) -> None:
    """Root's PostgreSQL is run by another user, and temporary folders are private."""
    folder.chmod(0o711)


def _start_error(process: subprocess.Popen[str], scratch: Path, command: Sequence[str]) -> StartError:
    """Ends the process, if it still runs; the scratch folder is kept, since it has the whole log."""
    _stop_process(process)
    log = (scratch / "log").read_text(errors="replace")
    return StartError(f"{shlex.join(command)} did not start (log: {scratch / 'log'}):\n{log[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _host_and_port(uri: str) -> tuple[str, int]:
    host, port = parse_uri(uri)["nodelist"][0]
    return host, port or 27017


def _ping(address: tuple[str, int]) -> None:
    with Connection(address) as connection:
        connection.command({"ping": 1, "$db": "admin"})
