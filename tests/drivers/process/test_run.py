"""`mongottl run`: a command with a server of its own, its signals, and that nothing stays behind."""

import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mongottl.cli.processes import Process, process_tree, still_running
from tests.environment import without_settings
from tests.waiting import PATIENCE_S, until

COMMAND = [sys.executable, "-P", "-m", "mongottl", "run"]
ROOT = Path(__file__).parents[3]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="needs POSIX")]

# What commands run: Python, which is there, with PyMongo.
ADVANCE = """
import os, pymongo
with pymongo.MongoClient(os.environ["MONGODB_URI"]) as client:
    things = client.get_default_database("shop").things
    things.create_index("_ts", expireAfterSeconds=60)
    things.insert_one({"_id": 1})
    assert client.admin.command("hello")["localTime"] == client.admin.command("hello")["localTime"]
    print(client.admin.command("advanceClock", 60)["ttlDeleted"], os.environ["MONGODB_URI"])
"""
# Says that it is ready, and then which signals it gets until it is told to end.
LISTEN = """
import os, signal, sys
def note(number, frame):
    print(signal.Signals(number).name, flush=True)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, note)
print("ready", os.environ["MONGODB_URI"], os.getpid(), flush=True)
while sys.stdin.read(1) not in ("x", ""):  # nothing, if the test has ended before
    pass
print("end", flush=True)
sys.exit(3)
"""


def run(*arguments: str, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        input=given,
        env=without_settings(**environment),
    )


def _take_hangups() -> None:
    """As at a terminal, also where the tests run under nohup, which all that they start would inherit."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Running:
    """`mongottl run` with a command that prints `ready URI PID`."""

    def __init__(self, *arguments: str) -> None:
        self.popen = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_take_hangups,
            env=without_settings(),
        )
        self.port = 0
        self.tree: list[Process] = []

    def begin(self) -> None:
        """Waits until the command is ready."""
        assert self.popen.stdout is not None
        ready = self.popen.stdout.readline().split()
        assert ready[0] == "ready"
        self.port = int(re.findall(r":(\d+)/", ready[1])[0])
        # `mongottl run`, the server, the command and what it has started.
        self.tree = process_tree(self.popen.pid)

    def line(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().rstrip("\n")

    def kill(self) -> None:
        """Ends what a test that has failed leaves, which otherwise fails others, too."""
        with self.popen:
            self.popen.kill()

    def end(self) -> None:
        """Waits until nothing of it is left, and the server's port is free."""
        self.popen.communicate(timeout=PATIENCE_S)
        until(lambda: not still_running(self.tree))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", self.port)).close()


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """Starts `mongottl run` with arguments, and waits until its command is ready."""
    started: list[Running] = []

    def begin(*arguments: str) -> Running:
        started.append(Running(*arguments))
        started[-1].begin()
        return started[-1]

    yield begin
    for running in started:
        running.kill()


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--dialect", "cosmos"),
        ("--auth", "--user", "root", "--database", "shop"),
        ("--tls-self-signed",),
        ("--dialect=cosmos", "--database=shöp", "--verbosity=0"),
    ],
)
def test_command_has_a_server(options: tuple[str, ...]) -> None:
    if "--tls-self-signed" in options:
        pytest.importorskip("trustme")
    password = {"MONGOTTL_PASSWORD": "p@ss"} if "--user" in options else {}
    ended = run(*options, "--", sys.executable, "-c", ADVANCE, **password)
    assert (ended.returncode, ended.stderr) == (0, "")
    deleted, uri = ended.stdout.split()
    assert deleted == "1"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(re.findall(r":(\d+)/", uri)[0]))).close()


def test_variables_streams_and_status() -> None:
    command = 'cat; echo "$MONGODB_URI" "$DB" "$DATABASE_URL" >&2; exit 7'
    ended = run("--env", "DB", "--env=DATABASE_URL", "--", "sh", "-c", command, given="from the input\n")
    assert (ended.returncode, ended.stdout) == (7, "from the input\n")
    uris = ended.stderr.split()
    assert len(uris) == 3 and len(set(uris)) == 1 and uris[0].startswith("mongodb://127.0.0.1:")


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_streams_that_are_closed_stay_so(closed: tuple[int, ...]) -> None:
    def close() -> None:
        for number in closed:
            os.close(number)

    command = [*COMMAND, "--", "sh", "-c", 'test -n "$MONGODB_URI" && exit 7']
    assert subprocess.run(command, timeout=PATIENCE_S, check=False, preexec_fn=close).returncode == 7


def test_a_script_that_names_no_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('echo "$1" "$2"\nexit 3\n')
    script.chmod(0o755)
    ended = run("--", str(script), "a b", "--")
    assert (ended.returncode, ended.stdout) == (3, "a b --\n")


def test_settings_come_from_the_environment_too() -> None:
    ended = run("--", "sh", "-c", "echo $MONGODB_URI", MONGOTTL_DIALECT="cosmos", MONGOTTL_PROT="1")
    assert "retryWrites=false" in ended.stdout
    assert "Unknown environment variable" in ended.stderr and "MONGOTTL_PORT" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--", "no-such-command-here"], 127, "no-such-command-here"),
        (["--", "/etc"], 126, "/etc"),
        (["--"], 2, "needs a command after --"),
        (["--", ""], 2, "needs a command after --"),
        (["--quiet"], 2, "needs a command: mongottl run -- npm test"),
        (["false"], 1, ""),
        (["--dialect", "cosmos", "--quiet", "sh", "-c", "exit 7"], 7, ""),
        (["--env=SHOP_URI", "sh", "-c", 'test -n "$SHOP_URI" && exit 8'], 8, ""),
        # A `--` behind the command's first word is the command's.
        (["--quiet", "sh", "-c", 'test "$0 $1 $2" = "test -- --watch" && exit 9', "test", "--", "--watch"], 9, ""),
        # `true` would succeed without a test.
        (["--quiet", "true", "sh", "-c", "exit 7"], 2, "--quiet takes no value; --quiet=true if true is meant"),
        (["--quiet", "true", "--", "sh", "-c", "exit 7"], 2, "--quiet takes no value"),
        (["--quiet", "--", "true"], 0, ""),
        (["--port", "x", "--", "true"], 2, "--port"),
        (["--nonsense", "--", "true"], 2, "unknown option --nonsense"),
        (["--env", "A=B", "--", "true"], 2, "--env"),
        (["--env", "--", "true"], 2, "--env needs a value"),
        (["--database", "a.b", "--", "true"], 2, "--database: Invalid database name: 'a.b'"),
        (["--database", "", "--", "true"], 2, "--database: "),
        (["--tls-cert", "no-such.pem", "--", "echo", "it has run"], 1, "no-such.pem"),
        (["--", "sh", "-c", "kill -9 $$"], 137, ""),
        (["--", "sh", "-c", "kill -TERM $$"], 143, ""),
    ],
)
def test_status(arguments: list[str], status: int, said: str) -> None:
    ended = run(*arguments)
    assert ended.returncode == status
    assert said in ended.stderr
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_passed_on_once(start: Callable[..., Running], number: signal.Signals) -> None:
    running = start("--", sys.executable, "-c", LISTEN)
    for _ in range(2):
        running.popen.send_signal(number)
        assert running.line() == number.name
    output, errors = running.popen.communicate("x", timeout=PATIENCE_S)
    assert (output, errors, running.popen.returncode) == ("end\n", "", 3)
    running.end()


# A shell that waits for what it has started.
FAMILY = ("sh", "-c", 'sleep 1000 & echo ready "$MONGODB_URI" $!; wait')


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_command_that_a_signal_ends(start: Callable[..., Running], number: signal.Signals) -> None:
    running = start("--", *FAMILY)
    assert len(running.tree) == 4
    running.popen.send_signal(number)
    assert running.popen.wait(PATIENCE_S) == 128 + number
    running.end()


@pytest.mark.parametrize("command", [FAMILY, (sys.executable, "-c", LISTEN)])
def test_nothing_stays_behind_when_it_is_killed(start: Callable[..., Running], command: tuple[str, ...]) -> None:
    """LISTEN does not end at SIGTERM, so that it is killed in the end."""
    running = start("--", *command)
    running.popen.kill()
    running.end()


def test_nothing_stays_behind_when_it_is_killed_at_once() -> None:
    """The command does so itself, first of all."""
    for _ in range(5):
        read_end, write_end = os.pipe()
        command = ("sh", "-c", "kill -9 $PPID; exec sleep 1000")
        ended = subprocess.run([*COMMAND, "--", *command], pass_fds=[write_end], timeout=PATIENCE_S, check=False)
        assert ended.returncode == -signal.SIGKILL
        os.close(write_end)
        assert select.select([read_end], [], [], PATIENCE_S)[0]  # all that had the pipe have ended
        os.close(read_end)


def test_server_that_ends_early(start: Callable[..., Running]) -> None:
    running = start("--", sys.executable, "-c", LISTEN)
    [server] = [process for process in running.tree[1:] if is_server(process)]
    os.kill(server.pid, signal.SIGKILL)
    assert running.popen.stderr is not None
    assert running.popen.stderr.readline() == "mongottl run: the server has ended before the command\n"
    output, _ = running.popen.communicate("x", timeout=PATIENCE_S)
    assert (output, running.popen.returncode) == ("end\n", 3)


def is_server(process: Process) -> bool:
    # It has a session of its own.
    return os.getsid(process.pid) == process.pid


def test_terminal_interrupts_the_command_once(tmp_path: Path) -> None:
    """Ctrl-C reaches the command by itself, so it is not passed on, nor does it end the server."""
    # setsid, and the other end as its controlling terminal
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execv(COMMAND[0], [*COMMAND, "--", sys.executable, "-c", LISTEN])
    shown = ""

    def read_until(text: str) -> None:
        nonlocal shown
        while text not in shown:
            assert select.select([terminal], [], [], PATIENCE_S)[0]
            shown += os.read(terminal, 1024).decode()

    read_until("ready")
    os.write(terminal, b"\x03")
    read_until("SIGINT")
    os.write(terminal, b"x\n")
    read_until("end")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    os.close(terminal)
    assert shown.count("SIGINT") == 1
