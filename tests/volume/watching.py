"""A server process and connections to it, what it holds in memory, and how long others wait for it meanwhile."""

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import bson
import pymongo
import pymongo.uri_parser
from pymongo.database import Database

from tests.children import ended_after
from tests.replies import without_times
from tests.waiting import PATIENCE_S

Documents = dict[str, Any]
Client = pymongo.MongoClient[Documents]

# How long the server may compute while a ping waits: seconds of CPU of the thread that serves clients, so that a busy
# machine makes no difference. And how long the ping may take by the clock, if the server waits for something else.
STALL_S: Final = 0.3
# With files a document of 16 MB is one statement of SQLite, and its entry in the oplog another: 0.25 s, and twice that
# where another process takes half of the memory's bandwidth. A sort that spills copies it in two steps of 0.05 s, which
# were seen to take eight times as long beside other tests, and 0.8 s in all on a machine of half the speed.
LARGE_STALL_S: Final = 1.0
LARGE_BYTES: Final = 10_000_000
# Where many others are served at once, a ping may wait for a step of each: 0.33 s of eight that read 16 MB.
CROWDED_STALL_S: Final = 1.0
PING_S: Final = 20.0
MB: Final = 1_000_000
FIGURES: Final = "MONGOTTL_VOLUME_FIGURES" in os.environ

_PINGER: Final = """
import json, os, select, sys, time, pymongo

def cpu_s(pid, tick_s=1 / os.sysconf("SC_CLK_TCK")):
    try:
        with open(f"/proc/{pid}/task/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) * tick_s

uri, pid = sys.argv[1:]
with pymongo.MongoClient(uri) as client:
    pings, worst_s, stall_s = 0, 0.0, 0.0
    while True:
        computed, started = cpu_s(pid), time.monotonic()
        client.admin.command("ping")
        worst_s = max(worst_s, time.monotonic() - started)
        stall_s = max(stall_s, cpu_s(pid) - computed)
        pings += 1
        if select.select([sys.stdin], [], [], 0.02)[0]:
            if not sys.stdin.readline():
                break
            print(json.dumps([pings, worst_s, stall_s]), flush=True)
            pings, worst_s, stall_s = 0, 0.0, 0.0
"""


class Watched:
    """A server, and a process that pings it over a connection of its own all the time."""

    def __init__(self, log: Path, *options: str) -> None:
        self.log: Final = log
        # -P: the package that the tests import is the one that serves, not whatever lies in the current folder.
        command = [sys.executable, "-P", "-m", "mongottl", "--port", "0", *options]
        with contextlib.ExitStack() as started:
            with log.open("wb") as errors:
                server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
            self._server = started.enter_context(ended_after(server))
            assert self._server.stdout is not None
            line = self._server.stdout.readline()
            assert line, f"it did not start: {log.read_text()}"
            self.uri: Final = line.split()[-1]
            pinger = subprocess.Popen(
                [sys.executable, "-P", "-c", _PINGER, self.uri, str(self._server.pid)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._pinger = started.enter_context(ended_after(pinger))
            self.client: Final = started.enter_context(Client(self.uri))
            self._started = started.pop_all()

    def stop(self) -> None:
        with self._started:
            assert self._pinger.stdin is not None
            self._pinger.stdin.close()
            self._pinger.wait(PATIENCE_S)
            self.client.close()
            self._server.send_signal(signal.SIGTERM)
            assert self._server.wait(PATIENCE_S) == 0, self.log.read_text()

    def pings(self) -> tuple[int, float, float]:
        """How many pings were answered since this was asked last.

        And of one of them at most: the seconds that it took, and those that the server computed meanwhile.
        """
        assert self._pinger.stdin is not None
        assert self._pinger.stdout is not None
        self._pinger.stdin.write("\n")
        self._pinger.stdin.flush()
        count, worst_s, stall_s = json.loads(self._pinger.stdout.readline())
        return count, worst_s, stall_s

    def memory_bytes(self, peak: bool = False) -> int:
        """What the server holds now, or the most since `forget_peak`; 0 where the kernel does not tell."""
        field = "VmHWM:" if peak else "VmRSS:"
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self._server.pid}/status").read_text().splitlines():
                if line.startswith(field):
                    return int(line.split()[1]) * 1024
        return 0

    def cpu_s(self) -> float:
        """Seconds that the server has computed so far; 0 where the kernel does not tell."""
        with contextlib.suppress(OSError):
            times = Path(f"/proc/{self._server.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
            return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
        return 0.0

    def forget_peak(self) -> None:
        with contextlib.suppress(OSError):
            Path(f"/proc/{self._server.pid}/clear_refs").write_text("5")

    @contextlib.contextmanager
    def watched(self, more_mb: float, stall_s: float = STALL_S) -> Iterator[None]:
        """Fails if the server holds so much more memory meanwhile, or a ping waits too long.

        more_mb: beyond what it holds now. The allocator gives freed memory back late, so bounds are several times what
        the work needs, and far below what it would take without bounds.
        """
        self.forget_peak()
        before = self.memory_bytes()
        computed_s = self.cpu_s()
        self.pings()
        yield
        count, worst_s, stalled_s = self.pings()
        more = (self.memory_bytes(peak=True) - before) / MB
        if FIGURES:
            name = os.environ.get("PYTEST_CURRENT_TEST", "")
            waited = f"{count} pings: {stalled_s * 1000:.0f} ms of CPU, {worst_s * 1000:.0f} ms"
            computed_s = self.cpu_s() - computed_s
            print(f"{name}: {computed_s:.1f} s, {more:.0f} of {more_mb:.0f} MB, {waited}", file=sys.stderr)
        assert stalled_s <= stall_s, f"the server computed for {stalled_s:.2f} s while a ping waited"
        assert worst_s <= PING_S, f"a ping took {worst_s:.2f} s"
        assert more <= more_mb, f"the server took {more:.0f} MB more, and should take at most {more_mb:.0f}"


class Connection:
    """A plain socket: what is written and read when is up to the test, and documents go as they are."""

    def __init__(self, uri: str) -> None:
        host, port = pymongo.uri_parser.parse_uri(uri)["nodelist"][0]
        self._socket: Final = socket.create_connection((host, port))

    def send(self, command: Documents, documents: bytes = b"") -> None:
        """documents: those of the sequence `documents`, one behind the other."""
        body = bytes(4) + b"\0" + bson.encode(command)
        if documents:
            name = b"documents\0"
            body += b"\1" + struct.pack("<i", 4 + len(name) + len(documents)) + name + documents
        self._socket.sendall(struct.pack("<iiii", 16 + len(body), 1, 0, 2013) + body)

    def receive(self) -> Documents:
        data = bytearray()
        while len(data) < 4 or len(data) < struct.unpack_from("<i", data)[0]:
            part = self._socket.recv(64 * 1024)
            assert part, "the server closed the connection"
            data += part
        reply: Documents = bson.decode(memoryview(data)[21:])
        return reply

    def insert(self, database: str, collection: str, documents: Iterable[bytes]) -> None:
        """Inserts many in messages as large as may be: faster than PyMongo, of which this is no test."""
        waiting: list[bytes] = []
        size = 0
        for document in documents:
            if len(waiting) == 100_000 or size + len(document) > 47 * MB:
                self._insert(database, collection, waiting)
                waiting = []
                size = 0
            waiting.append(document)
            size += len(document)
        self._insert(database, collection, waiting)

    def _insert(self, database: str, collection: str, documents: list[bytes]) -> None:
        self.send({"insert": collection, "ordered": False, "$db": database}, b"".join(documents))
        assert without_times(self.receive()) == {"n": len(documents), "ok": 1.0}

    def close(self) -> None:
        self._socket.close()


class Volume:
    """A server with the collections of `documents` in the database `volume`.

    engine: its name. loaded_bytes: what the server held when all collections were there.
    """

    def __init__(self, server: Watched, engine: str) -> None:
        self.server: Final = server
        self.engine: Final = engine
        self.client: Final = server.client
        self.database: Final[Database[Documents]] = server.client.volume
        self.loaded_bytes = 0

    def stored_mb(self, size_bytes: float) -> float:
        """What documents of so many bytes may take of the server's memory, where it keeps them there."""
        return 2 * size_bytes / MB if self.engine == "memory" else 0.0

    def write_stall_s(self, size_bytes: int) -> float:
        """How long others may wait while documents of so many bytes each are written."""
        return LARGE_STALL_S if self.engine == "sqlite" and size_bytes >= LARGE_BYTES else STALL_S

    def sort_stall_s(self, size_bytes: int) -> float:
        """How long others may wait while documents of so many bytes each are sorted."""
        return LARGE_STALL_S if size_bytes >= LARGE_BYTES else STALL_S

    def left_mb(self) -> float:
        """What the server holds more now than when all collections were there."""
        return (self.server.memory_bytes() - self.loaded_bytes) / MB
