"""The server as a process: its command line, its signals, its data directory, what it costs while nothing happens."""

import contextlib
import hashlib
import itertools
import json
import os
import platform
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.cursor import CursorType
from pymongo.errors import AutoReconnect, NotPrimaryError, OperationFailure, PyMongoError
from pymongo.monitoring import (
    ServerHeartbeatFailedEvent,
    ServerHeartbeatListener,
    ServerHeartbeatStartedEvent,
    ServerHeartbeatSucceededEvent,
)
from pymongo.write_concern import WriteConcern

import mongottl
from mongottl.cli.subcommands import SUBCOMMANDS
from mongottl.config import NEWEST_PATCHES, SETTINGS
from mongottl.javascript.library import missing_reason
from tests.children import ended_after
from tests.environment import without_settings
from tests.waiting import PATIENCE_S, until, until_connected

Client = pymongo.MongoClient[dict[str, Any]]

# -P: the package that the tests import is the one that serves, not whatever lies in the current folder.
COMMAND = [sys.executable, "-P", "-m", "mongottl"]
# A server that, when it is stopped, waits an hour for requests under way: one that ends soon has waited for nothing.
PATIENT_COMMAND = [
    sys.executable,
    "-P",
    "-c",
    "import sys\n"
    "from mongottl.cli import main\n"
    "from mongottl.server import server\n"
    "server.GRACE_S = 3600.0\n"
    "sys.exit(main(sys.argv[1:]))\n",
]

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and /proc are POSIX")


class Process:
    """A running server. line: its first line of output."""

    def __init__(
        self, log: Path, *options: str, environment: dict[str, str] | None = None, command: Sequence[str] = COMMAND
    ) -> None:
        self.log = log
        with log.open("ab") as errors:
            self.popen = subprocess.Popen(
                [*command, *options],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=without_settings(**(environment or {})),
            )
        assert self.popen.stdout is not None
        self.line = self.popen.stdout.readline().rstrip("\n")
        assert self.line, f"it did not start: {log.read_text()}"
        self.uri = self.line.split()[-1]
        self.port = int(self.uri.partition("?")[0].rstrip("/").rpartition(":")[2])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> float:
        """Sends the signal; the seconds until the process ended, with status 0."""
        started = time.monotonic()
        self.popen.send_signal(number)
        status = self.popen.wait(PATIENCE_S)
        elapsed = time.monotonic() - started
        assert status == 0, self.log.read_text()
        return elapsed

    def kill(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()
        if self.popen.stdout is not None:
            self.popen.stdout.close()

    def resident_bytes(self) -> int:
        statm = Path(f"/proc/{self.popen.pid}/statm").read_text()
        return int(statm.split()[1]) * resource.getpagesize()

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.popen.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts servers on free ports, and kills in the end those that still run."""
    started: list[Process] = []

    def start(*options: str, environment: dict[str, str] | None = None, command: Sequence[str] = COMMAND) -> Process:
        log = tmp_path / f"log{len(started)}"
        started.append(Process(log, "--port", "0", *options, environment=environment, command=command))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        text = process.log.read_text()
        assert "Traceback" not in text, text


def run(*options: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A run that is expected to end by itself."""
    return subprocess.run(
        [*COMMAND, *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env=without_settings(**(environment or {})),
    )


# The command line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), ""),
        (("--enable-test-commands",), "clock can be moved"),
        (("--enable-test-commands", "--freeze-clock"), "clock stands still from the first command on"),
        (("--enable-test-commands", "--freeze-clock", "--now", "2030-01-01"), "clock stands still[,)]"),
    ],
)
def test_first_line_tells_of_the_clock(spawn: Callable[..., Process], options: tuple[str, ...], told: str) -> None:
    line = spawn(*options).line
    assert re.search(told, line) if told else "clock" not in line


@pytest.mark.slow
def test_first_line_ends_with_the_uri(spawn: Callable[..., Process]) -> None:
    process = spawn("--enable-test-commands")
    assert re.fullmatch(r"mongottl accepts connections \(.*\): mongodb://127\.0\.0\.1:\d+/", process.line)
    with Client(process.uri) as client:
        assert client.admin.command("ping")["ok"] == 1.0
        assert client.admin.command("advanceClock", 10)["ttlDeleted"] == 0
    process.stop()
    assert process.popen.stdout is not None
    assert process.popen.stdout.read() == ""


@pytest.mark.slow
def test_test_commands_are_unknown_without_the_option(spawn: Callable[..., Process]) -> None:
    with Client(spawn().uri) as client:
        for command in ("advanceClock", "freezeClock", "configureFailPoint"):
            with pytest.raises(OperationFailure) as caught:
                client.admin.command(command, 1)
            assert caught.value.code == 59
            assert "--enable-test-commands" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("host", ["localhost", "::1", "0.0.0.0"])
def test_hosts(spawn: Callable[..., Process], host: str) -> None:
    if host == "::1":
        try:
            with socket.create_server(("::1", 0), family=socket.AF_INET6):
                pass
        except OSError:
            pytest.skip("no IPv6 here")
    process = spawn("--host", host)
    with Client(process.uri, replicaSet="globaldb") as client:
        assert client.admin.command("ping")["ok"] == 1.0
        [me] = client.admin.command("hello")["hosts"]
    assert me == {"::1": f"[::1]:{process.port}"}.get(host, me)


@pytest.mark.slow
def test_advertised_host(spawn: Callable[..., Process]) -> None:
    process = spawn("--advertise-host", "db.example:27017")
    with Client(process.uri, directConnection=True) as client:
        hello = client.admin.command("hello")
    advertised = "db.example:27017"
    assert (hello["me"], hello["hosts"], hello["primary"]) == (advertised, [advertised], advertised)


@pytest.mark.slow
def test_address_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run("--port", str(port))
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert f"127.0.0.1:{port}" in ended.stderr
    assert "in use" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_host_that_does_not_exist() -> None:
    ended = run("--port", "0", "--host", "nowhere.invalid")
    assert ended.returncode == 1
    assert "nowhere.invalid" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "environment", "said"),
    [
        (["--nonsense"], {}, "--nonsense"),
        (["stop"], {}, "there is no command 'stop'; the commands are serve, "),
        (["ping", "--timeout", "0"], {}, "--timeout"),
        (["version", "now"], {}, "'now'"),
        (["--port"], {}, "--port"),
        (["--port", "http"], {}, "--port"),
        (["--port", "70000"], {}, "65535"),
        (["--dialect", "oracle"], {}, "mongodb, cosmos"),
        (["--advertise-host", "nonsense"], {}, "host:port"),
        (["--max-connections", "0"], {}, "--max-connections: a number from 1 on is needed, not 0"),
        ([], {"MONGOTTL_PORT": "-1"}, "MONGOTTL_PORT: a number from 0 on is needed, not -1"),
        ([], {"MONGOTTL_QUIET": "perhaps"}, "MONGOTTL_QUIET: "),
    ],
)
def test_mistakes_on_the_command_line(options: list[str], environment: dict[str, str], said: str) -> None:
    ended = run(*options, environment=environment)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert said in ended.stderr


@pytest.mark.slow
def test_version_and_help() -> None:
    for asked in ("--version", "version"):
        version = run(asked)
        assert version.returncode == 0
        assert version.stdout.startswith(f"mongottl {mongottl.__version__} ")
        assert "compiled" in version.stdout or "interpreted" in version.stdout
    shown = run("serve", "--help")
    assert shown.returncode == 0
    for setting in SETTINGS:
        assert setting.help in shown.stdout
        assert setting.option in shown.stdout or f"--[no-]{setting.option[2:]}" in shown.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [(), ("--auth",), ("--advertise-host", "db.example:27017"), ("--dialect", "cosmos")]
)
def test_ping(spawn: Callable[..., Process], options: tuple[str, ...]) -> None:
    process = spawn(*options)
    answered = run("ping", f"mongodb://127.0.0.1:{process.port}/")
    assert (answered.returncode, answered.stderr) == (0, "")
    assert re.fullmatch(rf"127\.0\.0\.1:{process.port} answered in \d+ ms\n", answered.stdout)


@pytest.mark.slow
def test_ping_with_a_wrong_password(spawn: Callable[..., Process]) -> None:
    process = spawn("--auth")
    refused = run("ping", f"mongodb://ann:secret@127.0.0.1:{process.port}/")
    assert refused.returncode == 1
    assert refused.stderr.startswith("mongottl ping: Authentication failed. ")
    assert "full error" not in refused.stderr  # PyMongo's copy of the reply


@pytest.mark.slow
def test_ping_without_an_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"mongodb://ann:secret@127.0.0.1:{silent.getsockname()[1]}/"
        ended = run("ping", uri, "--timeout", "0.2")
    # Until the client has had the time to be refused.
    for timeout_s in (0.2, 2.0, 20.0):
        refused = run("ping", uri, f"--timeout={timeout_s}")
        if "refused" in refused.stderr:
            break
    nonsense = run("ping", "http://127.0.0.1/")
    for run_of_ping, said in ((ended, "no answer: "), (refused, "no answer: "), (nonsense, "Invalid URI scheme")):
        assert (run_of_ping.returncode, run_of_ping.stdout) == (1, "")
        assert run_of_ping.stderr.startswith(f"mongottl ping: {said}")
        assert "secret" not in run_of_ping.stderr
        assert run_of_ping.stderr.count("\n") == 1
    assert "refused" in refused.stderr


@pytest.mark.slow
def test_an_interrupted_ping_ends_without_a_trace() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"mongodb://127.0.0.1:{silent.getsockname()[1]}/"
        command = [*COMMAND, "ping", uri, "--timeout", "600"]
        with ended_after(subprocess.Popen(command, stderr=subprocess.PIPE)) as process:
            connection = silent.accept()[0]
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=PATIENCE_S)[1] == b""
            connection.close()
        assert process.returncode == 128 + signal.SIGINT


@pytest.mark.slow
@pytest.mark.parametrize("command", SUBCOMMANDS)
def test_every_command_has_help(command: str) -> None:
    shown = run(command, "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert f"usage: mongottl {command}" in shown.stdout.replace("[serve]", "serve")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["--help", "run --help", "ping --help", "version"])
def test_output_that_nobody_reads_to_the_end_is_no_error(arguments: str) -> None:
    """As with `mongottl --help | head`."""
    command = [*COMMAND, *arguments.split()]
    with ended_after(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        assert process.communicate(timeout=PATIENCE_S)[1] == b""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is always full")
@pytest.mark.parametrize("arguments", ["--help", "run --help", "ping --help", "version"])
def test_output_that_cannot_be_written_is_told_in_a_line(arguments: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w", encoding="utf-8") as full:
        command = [*COMMAND, *arguments.split()]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment)
    assert ended.returncode == 1
    assert re.fullmatch(r"mongottl \w+: standard output: No space left on device\n", ended.stderr)


@pytest.mark.slow
def test_environment(spawn: Callable[..., Process]) -> None:
    process = spawn(
        "--replica-set",
        "fromoption",
        environment={
            "MONGOTTL_REPLICA_SET": "fromenvironment",
            "MONGOTTL_ENABLE_TEST_COMMANDS": "true",
            "MONGOTTL_SERVER_VERSION": "6.0",
        },
    )
    with Client(process.uri) as client:
        assert client.admin.command("hello")["setName"] == "fromoption"
        assert client.admin.command("hello")["maxWireVersion"] == 17
        assert client.server_info()["version"] == f"6.0.{NEWEST_PATCHES['6.0']}"
        assert client.admin.command("freezeClock", True)["ok"] == 1


@pytest.mark.slow
def test_json_log(spawn: Callable[..., Process]) -> None:
    process = spawn("--log-format", "json")
    with socket.create_connection(("127.0.0.1", process.port)) as broken:
        broken.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert broken.recv(10) == b"HTTP/1.0 2"
    process.stop()
    entries = [json.loads(line) for line in process.log.read_text().splitlines()]
    for entry in entries:
        assert list(entry)[:6] == ["t", "s", "c", "id", "ctx", "msg"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", entry["t"]["$date"])
        assert entry["s"] in ("I", "W", "E")
        assert entry["c"] == entry["c"].upper()
        assert type(entry["id"]) is int
    [protocol_error] = [entry for entry in entries if entry["s"] == "W"]
    assert (protocol_error["c"], protocol_error["ctx"]) == ("NETWORK", "conn1")
    assert "HTTP" in protocol_error["attr"]["error"]
    assert entries[-1]["msg"] == "Stopped"


@pytest.mark.slow
def test_unknown_variables_are_warned_of(spawn: Callable[..., Process]) -> None:
    process = spawn("--quiet", environment={"MONGOTTL_DATADIR": "data", "MONGOTTL_PURE": "1"})
    process.stop()
    [line] = process.log.read_text().splitlines()
    assert " W CONTROL " in line and "Unknown environment variable" in line
    assert '"MONGOTTL_DATADIR"' in line and "did you mean MONGOTTL_DATA_DIR?" in line


@pytest.mark.slow
def test_quiet_log_is_empty(spawn: Callable[..., Process]) -> None:
    process = spawn("--quiet")
    with Client(process.uri) as client:
        client.admin.command("ping")
    process.stop()
    assert process.log.read_text() == ""


# Signals


class AwaitedHeartbeats(ServerHeartbeatListener):
    """begun: set when the client asks the server to answer its `hello` when something changes."""

    def __init__(self) -> None:
        self.begun = threading.Event()

    def started(self, event: ServerHeartbeatStartedEvent) -> None:
        if event.awaited:
            self.begun.set()

    def succeeded(self, event: ServerHeartbeatSucceededEvent) -> None:
        """Nothing to note."""

    def failed(self, event: ServerHeartbeatFailedEvent) -> None:
        """Nothing to note."""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_stops_at_once_when_idle(spawn: Callable[..., Process], number: signal.Signals) -> None:
    process = spawn(command=PATIENT_COMMAND)
    idle = [socket.create_connection(("127.0.0.1", process.port)) for _ in range(20)]
    heartbeats = AwaitedHeartbeats()
    with Client(
        process.uri, event_listeners=[heartbeats], serverMonitoringMode="stream", serverSelectionTimeoutMS=1000
    ) as client:
        until_connected(client)
        assert heartbeats.begun.wait(PATIENCE_S)
        process.stop(number)
    for connection in idle:
        assert connection.recv(1) == b""
        connection.close()


HANGUP_DURING_START = """
import os, signal, sys
from mongottl.__main__ import main

class Hangup:
    def find_spec(self, name, path, target=None):
        if name == "mongottl.server.server":
            os.kill(os.getpid(), signal.SIGHUP)

signal.signal(signal.SIGHUP, signal.SIG_DFL)
sys.meta_path.insert(0, Hangup())
sys.argv[1:] = ["--port", "0"]
main()
"""


def test_a_hangup_before_signals_are_received_ends_the_process() -> None:
    """It would be lost, and the server stay without its terminal."""
    ended = subprocess.run([sys.executable, "-P", "-c", HANGUP_DURING_START], timeout=PATIENCE_S, check=False)
    assert ended.returncode == -signal.SIGHUP


def slow_filter(patterns: int) -> dict[str, Any]:
    """A filter whose every evaluation is long, and false."""
    return {"$or": [{"text": {"$regex": f"[xyz]{n}$"}} for n in range(patterns)]}


def patient(process: Process) -> Client:
    """A client that does not ask in between whether the server is there, and gives up soon when it has gone."""
    client = Client(process.uri, retryReads=False, serverMonitoringMode="poll", serverSelectionTimeoutMS=1000)
    until_connected(client)
    return client


def outcome_of_scan(process: Process, documents: int, patterns: int) -> tuple[int | PyMongoError, float]:
    """The number of documents that a slow scan finds during which the server is stopped, or its error.

    And the seconds that the server took to stop.
    """
    outcome: list[int | PyMongoError] = []

    def scan(client: Client) -> None:
        try:
            outcome.append(len(list(client.test.many.find(slow_filter(patterns)))))
        except PyMongoError as error:
            outcome.append(error)

    with patient(process) as client:
        client.test.many.insert_many({"_id": n, "text": f"text {n}"} for n in range(documents))
        thread = threading.Thread(target=scan, args=(client,))
        thread.start()
        until_busy(client, "find")
        elapsed_s = process.stop()
        thread.join()
    [result] = outcome
    return result, elapsed_s


@pytest.mark.slow
def test_finishes_what_is_under_way(spawn: Callable[..., Process]) -> None:
    """A scan of some tenths of a second is answered, then the server ends."""
    found, _ = outcome_of_scan(spawn(command=PATIENT_COMMAND), documents=2000, patterns=150)
    assert found == 0


@pytest.mark.slow
def test_long_scan_is_interrupted(spawn: Callable[..., Process]) -> None:
    """Within two seconds, at the latest where others leave the server the processor: in one of several attempts."""
    shortest_s = 60.0
    for _ in range(5):
        error, elapsed_s = outcome_of_scan(spawn(), documents=60_000, patterns=200)
        assert isinstance(error, NotPrimaryError)  # as PyMongo calls all errors of a server that stops
        assert "'code': 11600" in str(error)
        shortest_s = min(shortest_s, elapsed_s)
        if shortest_s < 2.0:
            break
    assert shortest_s < 2.0


def until_busy(client: Client, command: str) -> None:
    """Returns when the command is under way: other commands are answered while it runs."""

    def begun() -> bool:
        commands = client.admin.command("serverStatus")["metrics"]["commands"]
        return command in commands and commands[command]["total"] > 0

    until(begun)


@pytest.mark.slow
def test_stops_with_an_open_exhaust_cursor(spawn: Callable[..., Process]) -> None:
    process = spawn()
    with patient(process) as client:
        client.test.many.insert_many({"_id": n, "text": "x" * 100_000} for n in range(300))
        cursor = client.test.many.find(cursor_type=CursorType.EXHAUST, batch_size=5)
        assert [next(cursor)["_id"] for _ in range(20)] == list(range(20))
        process.stop()  # although nobody reads what it wants to send
        cursor.close()


# The data directory


def contents(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.mark.slow
def test_data_survives_a_restart(spawn: Callable[..., Process], tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    first = spawn("--data-dir", data)
    with Client(first.uri) as client:
        client.test.things.insert_one({"_id": 1, "ttl": 5})
        client.test.things.create_index("_ts", expireAfterSeconds=1000)
    first.stop()
    with Client(spawn("--data-dir", data).uri) as client:
        assert client.test.things.find_one() == {"_id": 1, "ttl": 5}
        assert client.test.things.index_information()["_ts_1"]["expireAfterSeconds"] == 1000


@pytest.mark.slow
def test_directory_in_use(spawn: Callable[..., Process], tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Client(spawn("--data-dir", str(data)).uri) as client:
        client.test.things.insert_one({"_id": 1})
        ended = run("--port", "0", "--data-dir", str(data))
        assert (ended.returncode, ended.stdout) == (1, "")
        assert "in use by another server" in ended.stderr
        assert "Traceback" not in ended.stderr
        assert client.test.things.find_one() == {"_id": 1}


def newer(database: bytearray) -> None:
    struct.pack_into(">I", database, 60, 999)


def damaged(database: bytearray) -> None:
    database[:100] = b"\xff" * 100


def cut_off(database: bytearray) -> None:
    del database[len(database) // 2 :]


@pytest.mark.slow
@pytest.mark.parametrize(("spoil", "said"), [(newer, "newer"), (damaged, "damaged"), (cut_off, "damaged")])
def test_directory_that_cannot_be_used_is_left_alone(
    spawn: Callable[..., Process], tmp_path: Path, spoil: Callable[[bytearray], None], said: str
) -> None:
    data = tmp_path / "data"
    first = spawn("--data-dir", str(data))
    with Client(first.uri) as client:
        client.test.things.insert_many({"_id": n, "text": "x" * 1000} for n in range(100))
    first.stop()
    database = data / "mongottl.sqlite3"
    spoiled = bytearray(database.read_bytes())
    spoil(spoiled)
    database.write_bytes(spoiled)
    before = contents(data)
    ended = run("--port", "0", "--data-dir", str(data))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert said in ended.stderr
    assert str(data) in ended.stderr
    assert "Traceback" not in ended.stderr
    assert contents(data) == before


@pytest.mark.slow
def test_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    ended = run("--port", "0", "--data-dir", str(tmp_path / "file"))
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert (tmp_path / "file").read_text() == "kept"


def descendants(pid: int) -> set[int]:
    """The processes that a process has started, and those that these have started."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    rows = [(int(child), int(parent)) for child, parent in map(str.split, listed.splitlines())]
    found = {pid}
    while more := {child for child, parent in rows if parent in found} - found:
        found |= more
    return found - {pid}


def cpu_seconds(pid: int) -> float:
    """How long a process has run; -1 if it has ended."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[0] != "Z":
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return -1.0


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_reason()), reason=missing_reason())
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_kill_9_ends_scripts_that_run(spawn: Callable[..., Process]) -> None:
    server = spawn()

    def loop() -> None:
        with contextlib.suppress(PyMongoError):
            client.d.c.find_one({"$where": "while (true);"})

    with Client(server.uri, retryReads=False, serverSelectionTimeoutMS=100) as client:
        until_connected(client)
        client.d.c.insert_one({})
        looping = threading.Thread(target=loop)
        looping.start()
        scripts: set[int] = set()
        while not any(cpu_seconds(pid) > 0.5 for pid in scripts):
            scripts = descendants(server.popen.pid)
        server.kill()
        until(lambda: not any(cpu_seconds(pid) >= 0 for pid in scripts))
        looping.join()


@pytest.mark.slow
def test_kill_9_loses_nothing_that_was_acknowledged(spawn: Callable[..., Process], tmp_path: Path) -> None:
    """A writer is cut off in mid-stream, again and again; all that it was told of is there, whole and indexed."""
    data = str(tmp_path / "data")
    acknowledged: dict[int, int] = {}
    last_sent = 0
    for _ in range(5):
        process = spawn("--data-dir", data)
        with Client(process.uri, serverSelectionTimeoutMS=500, retryWrites=False) as client:
            until_connected(client)
            things = client.test.things
            things.create_index("n", unique=True)
            stored = {d["_id"]: d["n"] for d in things.find()}
            assert acknowledged.items() <= stored.items()
            assert set(stored) - set(acknowledged) <= {last_sent}  # may have been carried out without an answer
            assert len(list(things.find({"n": {"$gte": 0}}, hint="n_1"))) == len(stored)
            acknowledged = stored
            killer = threading.Timer(0.15, process.popen.kill)
            try:
                for number in itertools.count(1):
                    last_sent = max(acknowledged, default=0) + 1
                    things.insert_one({"_id": last_sent, "n": last_sent * 7})
                    acknowledged[last_sent] = last_sent * 7
                    if number == 5:
                        killer.start()
            except AutoReconnect:
                pass
        process.kill()
    assert len(acknowledged) > 20


@pytest.mark.slow
def test_journaled_write_waits_for_the_disk(spawn: Callable[..., Process], tmp_path: Path) -> None:
    process = spawn("--data-dir", str(tmp_path / "data"))
    with Client(process.uri) as client:
        client.test.things.insert_one({"_id": 0})
        durable = client.test.get_collection("things", write_concern=WriteConcern(j=True))
        for n in range(1, 6):
            before = flushes(client)
            durable.insert_one({"_id": n})
            assert flushes(client) > before


@pytest.mark.slow
@pytest.mark.parametrize("stage", [{"$out": "target"}, {"$merge": "target"}])
def test_journaled_aggregation_waits_for_the_disk(
    spawn: Callable[..., Process], tmp_path: Path, stage: dict[str, Any]
) -> None:
    process = spawn("--data-dir", str(tmp_path / "data"))
    with Client(process.uri) as client:
        client.test.things.insert_many([{"n": n} for n in range(10)])
        durable = client.test.get_collection("things", write_concern=WriteConcern(j=True))
        for run in range(5):
            before = flushes(client)
            durable.aggregate([{"$set": {"run": run}}, stage])
            assert flushes(client) > before


def flushes(client: Client) -> int:
    count: int = client.admin.command("serverStatus")["mongottl"]["storage"]["flushes"]
    return count


# What it costs


@pytest.mark.slow
def test_length_fields_reserve_no_memory(spawn: Callable[..., Process]) -> None:
    process = spawn("--quiet")
    with Client(process.uri) as client, contextlib.ExitStack() as connections:
        client.admin.command("ping")
        before = process.resident_bytes()
        for _ in range(200):
            connection = connections.enter_context(socket.create_connection(("127.0.0.1", process.port)))
            connection.sendall(struct.pack("<iiii", 48_000_000, 1, 0, 2013) + b"\0\0\0\0\0")
        # The server takes connections in turns with commands, so not all need be there by the first answer.
        until(
            lambda: client.admin.command("serverStatus")["connections"]["current"] >= 200,
            "the connections are not accepted",
        )
        client.admin.command("ping")
        assert process.resident_bytes() - before < 20_000_000


@pytest.mark.slow
def test_a_thousand_idle_connections_cost_no_cpu(spawn: Callable[..., Process]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard not in (-1, resource.RLIM_INFINITY) and hard < 1300:
        pytest.skip(f"the system allows this process {hard} open files")
    # The server starts with a low limit and raises it; this process, which passes it on, needs as many files itself.
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        process = spawn("--quiet")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1300), hard))
    connections = []
    try:
        with Client(process.uri) as client:
            for _ in range(1000):
                connections.append(socket.create_connection(("127.0.0.1", process.port)))
            until(lambda: client.admin.command("serverStatus")["connections"]["current"] >= 1000)
        # What has gone on before may take some time to end; a server that looks after them all never rests.
        until(lambda: rests(process))
        connections[-1].sendall(b"\0" * 16)
        assert connections[-1].recv(1) == b""
    finally:
        for connection in connections:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    process.stop()


def rests(process: Process) -> bool:
    """Whether a process takes at most one per cent of a processor for two seconds."""
    before = process.cpu_s()
    time.sleep(2.0)
    return process.cpu_s() - before <= 0.02


@pytest.mark.slow
def test_more_connections_than_allowed_are_closed(spawn: Callable[..., Process]) -> None:
    process = spawn("--max-connections", "5")
    connections = [socket.create_connection(("127.0.0.1", process.port)) for _ in range(6)]
    assert connections[5].recv(1) == b""
    for connection in connections:
        connection.close()
    with patient(process) as client:
        assert client.admin.command("serverStatus")["connections"]["rejected"] >= 1


@pytest.mark.parametrize("folder", [False, True])
def test_without_a_store_nothing_of_its_client_is_imported(folder: bool, tmp_path: Path) -> None:
    settings = f"data_dir={str(tmp_path / 'data')!r}" if folder else ""
    code = f"""if True:
        import sys
        import mongottl
        with mongottl.start_server({settings}) as server:
            print([name for name in sys.modules if name.startswith(("psycopg", "mongottl.storage.postgresql"))])
    """
    ended = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
        env=without_settings(),
    )
    assert ended.stdout == "[]\n"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="its allocator is set")
def test_long_replies_are_made_in_memory_that_the_process_has(spawn: Callable[..., Process]) -> None:
    """Each page of what the allocator has given back would be a fault when it is allocated again."""
    process = spawn()

    def faults() -> int:
        return int(Path(f"/proc/{process.popen.pid}/stat").read_text().rpartition(")")[2].split()[7])

    with Client(process.uri) as client:
        client.d.c.insert_many([{"_id": n, "text": "x" * 1_000_000} for n in range(33)])
        for _ in range(3):
            assert len(list(client.d.c.find())) == 33
        before = faults()
        for _ in range(4):
            assert len(list(client.d.c.find())) == 33
        pages = 33_000_000 // os.sysconf("SC_PAGE_SIZE")
        assert faults() - before < 4 * pages  # one copy of each reply would be as many
