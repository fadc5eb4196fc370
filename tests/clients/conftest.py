"""Servers for the clients of other languages, and the clients as their own tools install and build them.

Each client is a program that does what applications do: it connects, reads and writes, lets documents expire, uses a
transaction, a change stream and GridFS, and meets errors. It prints the name of each part that has worked.
"""

import functools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest

import mongottl
from tests.environment import without_settings
from tests.waiting import until

HERE = Path(__file__).resolve().parent
SCRIPT = HERE.parents[1] / "scripts" / "clients"
# What scripts/clients needs for each client.
TOOLS = {
    "node": ("node", "npm"),
    "runners": ("node", "npm"),
    "go": ("go",),
    "java": ("javac", "mvn"),
    "rust": ("cargo",),
    "tools": ("go",),
    "old/node": ("node", "npm"),
    "old/java": ("java", "javac", "mvn"),
    "old/mgo": ("go",),
    "old/c": ("cc", "pkg-config"),
    "old/python": ("python3",),
    "containers/node": ("node", "npm"),
    "containers/go": ("go",),
    "containers/java": ("javac", "mvn"),
    "containers/python": ("python3",),
}
CANNOT_DOWNLOAD = 75
# Only stops a client that hangs. Maven, Go and Rust compile before they run, and take all processors for it.
LIMIT_S = 600.0

PARTS = ["connect", "crud", "ttl", "transactions", "changeStreams", "gridFS", "errorShapes"]
# The commands that fail in these parts, as in MongoDB: invalid writes, GridFS's question about the indexes of
# collections that do not exist yet, and the abort of a transaction that its write conflict has ended.
REFUSED_COMMANDS = {"insert", "update", "listIndexes", "abortTransaction"}

Installed = Callable[[str], Path]


@functools.cache
def _install(client: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, client], capture_output=True, text=True, check=False)


def install_or_reason(client: str) -> Path | str:
    """The folder in which a client is installed; or why it is not: its tools are missing, or cannot download it."""
    for tool in TOOLS[client]:
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    ended = _install(client)
    if ended.returncode == CANNOT_DOWNLOAD:
        return f"scripts/clients {client} cannot download it: {ended.stderr.strip()[-200:]}"
    assert ended.returncode == 0, ended.stderr
    return Path(ended.stdout.strip())


@pytest.fixture(scope="session")
def installed() -> Installed:
    """Gives the folder in which a client is installed. Skips if its tools are missing, or cannot download it."""

    def install(client: str) -> Path:
        found = install_or_reason(client)
        if isinstance(found, str):
            pytest.skip(found)
        return found

    return install


@pytest.fixture
def own() -> Iterator[mongottl.RunningServer]:
    """A server that nobody else uses."""
    with mongottl.start_server() as running:
        yield running


@pytest.fixture(params=["plain", "tls"])
def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[mongottl.RunningServer]:
    """A server that checks users, over plain sockets and over TLS."""
    tls: dict[str, Any] = {"tls_self_signed": True, "data_dir": str(tmp_path)} if request.param == "tls" else {}
    with mongottl.start_server(auth=True, user="root", password="s€cret", **tls) as running:
        yield running


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[mongottl.RunningServer]:
    """A server with a user, TLS and a data folder."""
    with mongottl.start_server(
        auth=True, user="root", password="s€cret", tls_self_signed=True, data_dir=str(tmp_path / "data")
    ) as running:
        yield running


def failed_commands(server: mongottl.RunningServer) -> set[str]:
    """The commands that were answered with an error. Names that no server knows, which shells probe, count as one."""
    with pymongo.MongoClient[dict[str, Any]](server.uri) as client:

        def open_cursors() -> int:
            found: int = client.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"]
            return found

        # The server may not have seen yet that a client has ended whose change stream waits.
        until(lambda: open_cursors() == 0, "a cursor was left open")
        status = client.admin.command("serverStatus")
        assert status["asserts"]["internal"] == 0
    commands = status["metrics"]["commands"]
    del commands["<UNKNOWN>"]
    return {name for name, counts in commands.items() if counts["failed"]}


def parts_that_work(command: list[str | Path], uri: str, **environment: str) -> list[str]:
    """What a client prints that is given the server's URI. It has to end well, and to say nothing else."""
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, "MONGODB_URI": uri, **environment},
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout + ended.stderr
    return ended.stdout.split()


def run(folder: Path, *command: str | Path, **environment: str) -> str:
    """What a command writes to standard output. It has to succeed."""
    ended = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env=without_settings(**environment),
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
