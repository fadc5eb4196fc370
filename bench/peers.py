"""Other servers of the same protocol, installed by package name into a cache folder and run from there.

Each is built by the ordinary client of its own registry (go, mvn, pip) the first time it is asked for; later runs start
at once. `scripts/peers NAME --port N` runs one by hand.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from mongottl.storage.postgresql.local_cluster import DATABASE, USER

FERRETDB_VERSION = "v1.24.0"
MONGO_JAVA_SERVER_VERSION = "1.47.0"
MONGOMOCK_VERSION = "4.3.0"

_GO_MOD = f"""module peer

go 1.22

require github.com/FerretDB/FerretDB {FERRETDB_VERSION}
"""

_GO_IMPORT = """//go:build tools

package peer

import _ "github.com/FerretDB/FerretDB/cmd/ferretdb"
"""

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>peer</groupId>
  <artifactId>peer</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>de.bwaldvogel</groupId>
      <artifactId>mongo-java-server</artifactId>
      <version>{MONGO_JAVA_SERVER_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""

_JAVA_MAIN = """import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;

public class Peer {
    public static void main(String[] args) {
        MongoServer server = new MongoServer(new MemoryBackend());
        server.bind("127.0.0.1", Integer.parseInt(args[0]));
    }
}
"""


class PeerError(Exception):
    """A peer cannot be installed: the message says what failed."""


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "mongottl-peers"


def _run(command: Sequence[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    print("+", " ".join(command), file=sys.stderr)
    if shutil.which(command[0]) is None:
        raise PeerError(f"{command[0]} is not installed")
    finished = subprocess.run(
        command, cwd=folder, env={**os.environ, **(environment or {})}, stdout=sys.stderr, check=False
    )
    if finished.returncode:
        raise PeerError(f"{command[0]} ended with exit code {finished.returncode}")


def _install_ferretdb(folder: Path) -> None:
    (folder / "go.mod").write_text(_GO_MOD)
    (folder / "peer.go").write_text(_GO_IMPORT)
    # The module's package does not contain the file that its build generates for `--version`, and the program does not
    # start without that file; so it is written into a vendored copy.
    _run(["go", "mod", "tidy"], folder)
    _run(["go", "mod", "vendor"], folder)
    version = folder / "vendor/github.com/FerretDB/FerretDB/build/version/version.txt"
    version.write_text(FERRETDB_VERSION + "\n")
    _run(["go", "build", "-o", "ferretdb", "github.com/FerretDB/FerretDB/cmd/ferretdb"], folder)
    shutil.rmtree(folder / "vendor")


def _ferretdb_command(folder: Path, port: int, scratch: Path) -> list[str]:
    data = scratch / "data"
    data.mkdir()
    # In files, as by default: its in-memory mode has only one connection, so that concurrent updates wait for each
    # other.
    return _ferretdb(folder, port, scratch, ["--handler=sqlite", f"--sqlite-url=file:{data}/"])


def _ferretdb_postgresql_command(folder: Path, port: int, scratch: Path) -> list[str]:
    """On the private PostgreSQL in `scratch`/postgresql, reached by its socket as mongottl reaches its own."""
    url = f"postgres://{USER}@/{DATABASE}?host={quote(str(scratch / 'postgresql/run'))}"
    return _ferretdb(folder, port, scratch, ["--handler=postgresql", f"--postgresql-url={url}"])


def _ferretdb(folder: Path, port: int, scratch: Path, storage: list[str]) -> list[str]:
    return [
        str(folder / "ferretdb"),
        *storage,
        f"--listen-addr=127.0.0.1:{port}",
        f"--state-dir={scratch}",
        "--telemetry=disable",
        "--debug-addr=-",
        "--log-level=ERROR",
    ]


def _install_mongo_java_server(folder: Path) -> None:
    (folder / "pom.xml").write_text(_POM)
    (folder / "Peer.java").write_text(_JAVA_MAIN)
    _run(["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"], folder)
    _run(["javac", "-cp", "lib/*", "Peer.java"], folder)


def _mongo_java_server_command(folder: Path, port: int, scratch: Path) -> list[str]:
    return ["java", "-cp", f"{folder}{os.pathsep}{folder / 'lib'}/*", "Peer", str(port)]


def _install_mongomock(folder: Path) -> None:
    _run([sys.executable, "-m", "pip", "install", "-q", "--target", ".", f"mongomock=={MONGOMOCK_VERSION}"], folder)


@dataclass(frozen=True)
class Peer:
    """install: fills an empty folder. command: what to run on a port with a scratch folder; None for a library.
    on_postgresql: whether it needs a private PostgreSQL in the scratch folder's `postgresql`. program: the name of the
    folder of what it runs, if another peer runs the same.
    """

    name: str
    version: str
    help: str
    install: Callable[[Path], None]
    command: Callable[[Path, int, Path], list[str]] | None
    on_postgresql: bool = False
    program: str = ""


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            "ferretdb",
            FERRETDB_VERSION,
            "FerretDB with its SQLite backend, in files as is its default (a Go module; needs go)",
            _install_ferretdb,
            _ferretdb_command,
        ),
        Peer(
            "ferretdb-postgresql",
            FERRETDB_VERSION,
            "FerretDB with its PostgreSQL backend, on a private PostgreSQL as that of --store",
            _install_ferretdb,
            _ferretdb_postgresql_command,
            on_postgresql=True,
            program="ferretdb",
        ),
        Peer(
            "mongo-java-server",
            MONGO_JAVA_SERVER_VERSION,
            "mongo-java-server with its memory backend (a Maven artifact; needs mvn and a JDK)",
            _install_mongo_java_server,
            _mongo_java_server_command,
        ),
        Peer(
            "mongomock",
            MONGOMOCK_VERSION,
            "mongomock, a library that runs in the client's process (from PyPI; needs pip)",
            _install_mongomock,
            None,
        ),
    )
}


def installed(name: str) -> Path:
    """The folder of a peer, which is installed first when it is not there in this version yet. PeerError, KeyError."""
    peer = PEERS[name]
    folder = cache_folder() / f"{peer.program or name}-{peer.version}"
    if not folder.exists():
        cache_folder().mkdir(parents=True, exist_ok=True)
        # Made beside its place and renamed when whole, so that an interrupted installation is not taken for one.
        unfinished = Path(tempfile.mkdtemp(dir=cache_folder(), prefix=f".{name}-"))
        try:
            peer.install(unfinished)
            unfinished.rename(folder)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    return folder


def server_command(name: str, port: int, scratch: Path) -> list[str]:
    """The command that runs a peer; PeerError for a library."""
    command = PEERS[name].command
    if command is None:
        raise PeerError(f"{name} is a library and has no server")
    return command(installed(name), port, scratch)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 when the peer cannot be installed; else this process becomes the peer."""
    parser = argparse.ArgumentParser(prog="scripts/peers", description=__doc__)
    parser.add_argument("name", choices=sorted(PEERS), help="; ".join(f"{p.name}: {p.help}" for p in PEERS.values()))
    parser.add_argument("--port", type=int, default=27018, help="TCP port on 127.0.0.1 (default: %(default)s)")
    parser.add_argument("--install-only", action="store_true", help="install it, print its folder and stop")
    options = parser.parse_args(arguments)
    try:
        folder = installed(options.name)
        if options.install_only:
            print(folder)
            return 0
        scratch = Path(tempfile.mkdtemp(prefix=f"{options.name}-"))
        command = server_command(options.name, options.port, scratch)
    except PeerError as error:
        print(f"scripts/peers: {error}", file=sys.stderr)
        return 1
    print(f"{options.name} (process {os.getpid()}): mongodb://127.0.0.1:{options.port}/", flush=True)
    os.chdir(scratch)
    return os.execvp(command[0], command)
