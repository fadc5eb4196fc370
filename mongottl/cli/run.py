"""`mongottl run -- COMMAND…`: a command with a server of its own, for test suites in any language.

    mongottl run ──fork──► server        in a session of its own, so that the terminal's signals do not reach it
         │  ▲                 │  ▲
         │  └── its URI ──────┘  └── a pipe that ends when `mongottl run` ends, however that comes about
         └─────fork──► COMMAND        with MONGODB_URI, and with our standard input, output and error

The command begins when the server's process knows its id. `mongottl run` waits for the command and passes signals on to
it. The server stops when the pipe ends. If the command still runs then, since `mongottl run` was killed, the server's
process ends it first, and all that it has started. So nothing stays behind, on Linux and on macOS, unless both
processes are killed at once.

With --per-worker there are several servers, each as above: test runners run files or packages in several processes at
once, which would undo each other's writes by resetState. Each has a state, a clock and a process of its own. The
variables MONGODB_URI_1 to MONGODB_URI_N name them, of which a worker takes the one with its number. MONGODB_URI itself
is no connection string then, so that a worker that has not chosen fails at once, rather than share a server unnoticed.
"""

import errno
import os
import signal
import sys
import traceback
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from mongottl.cli.options import REMARKS, configuration, option_lines
from mongottl.cli.processes import Process, exit_status, from_terminal, process_tree, send_signal, still_running
from mongottl.cli.subcommands import FAILURE, SUBCOMMANDS, UsageError
from mongottl.config import SETTINGS, SWITCH_TEXTS, ServerConfig, config_from
from mongottl.server.uri import uri_for_database

if TYPE_CHECKING:
    from mongottl.server.server import Server

_VARIABLE: Final = "MONGODB_URI"
_PER_WORKER: Final = "--per-worker"
_AUTO: Final = "auto"
_MAX_SERVERS: Final = 256
# What several servers cannot share.
_ONE_EACH: Final = ("data_dir", "port", "web_port", "certificate_port")
# What is passed on to the command.
_PASSED_ON: Final = tuple(
    number for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if (number := getattr(signal, name, None)) is not None
)
# What shells answer for a command that cannot be run, or is not there.
_CANNOT_RUN: Final = 126
_NOT_FOUND: Final = 127
# What the command has for its end after SIGTERM, before it gets SIGKILL, if `mongottl run` was killed.
_END_S: Final = 2.0
_LOOK_EVERY_S: Final = 0.02


def main(arguments: list[str]) -> int:
    """The exit status of the command: 128 + n if signal n has ended it, 126 or 127 if it cannot be run; 1 if the server
    does not start."""
    own, dashes, command = split(arguments)
    if "--help" in own or "-h" in own:
        print(help_text())
        return 0
    if os.name != "posix":
        raise UsageError("needs a POSIX system; start `mongottl` beside the tests")
    if not command or not command[0]:
        raise UsageError("needs a command after --" if dashes else "needs a command: mongottl run -- npm test")
    others: dict[str, list[str]] = {"--env": [], "--database": [], _PER_WORKER: []}
    config = configuration(own, os.environ, others, for_tests=True)
    for name in others["--env"]:
        if not name.isidentifier() or not name.isascii():
            raise UsageError(f"--env: the name of an environment variable is needed, not {name!r}")
    database = others["--database"][-1] if others["--database"] else None
    if database is not None:
        try:
            uri_for_database("", database)
        except ValueError as error:
            raise UsageError(f"--database: {error}") from None
    if config.workers > 1:
        raise UsageError(f"--workers: not here; {_PER_WORKER} starts several servers")
    workers = _number_of_workers(others[_PER_WORKER][-1], config) if others[_PER_WORKER] else None
    return run(config, command, [_VARIABLE, *others["--env"]], database, workers)


def _number_of_workers(text: str, config: ServerConfig) -> int:
    """The value of --per-worker. UsageError for another, and for settings that several servers cannot have."""
    workers = os.cpu_count() or 1 if text == _AUTO else int(text) if text.isdecimal() and text.isascii() else 0
    if not 1 <= workers <= _MAX_SERVERS:
        raise UsageError(
            f"{_PER_WORKER}: the number of workers is needed, up to {_MAX_SERVERS}, or {_AUTO} for one for"
            f" each processor, not {text!r}"
        )
    for setting in SETTINGS:
        if setting.field in _ONE_EACH and getattr(config, setting.field):
            raise UsageError(f"{setting.option}: not together with {_PER_WORKER}, which starts several servers")
    return workers


def split(arguments: list[str]) -> tuple[list[str], bool, list[str]]:
    """The arguments before the `--` that ends the options, whether there is one, and the command.

    Without it the command begins at the first word that is no option and no option's value; a `--` after that is the
    command's own, as in `npm test -- --watch`. UsageError if that word may have been meant as the value of a switch,
    since `true` would succeed without a test.
    """
    switches = {setting.option for setting in SETTINGS if setting.value == "switch"}
    place = 0
    while place < len(arguments) and arguments[place].startswith("-"):
        option = arguments[place]
        place += 1
        if option == "--":
            return arguments[: place - 1], True, arguments[place:]
        negated = option.startswith("--no-")
        if option in switches or negated:
            if not negated and place < len(arguments) and arguments[place].lower() in SWITCH_TEXTS:
                value = arguments[place]
                raise UsageError(f"{option} takes no value; {option}={value} if {value} is meant")
        elif "=" not in option and option not in ("--help", "-h") and arguments[place : place + 1] != ["--"]:
            place += 1
    return arguments[:place], False, arguments[place:]


def help_text() -> str:
    """The text of --help."""
    return "\n".join(
        [
            "usage: mongottl run [options] [--] COMMAND [ARGUMENT…]",
            "",
            "Starts a server on a free port, in memory, with test commands on and a clock that stands still, runs the",
            "command with the URI in MONGODB_URI, stops the server, and gives the command's exit status:",
            "",
            "    mongottl run --dialect cosmos -- npm test",
            "",
            "options:",
            "  --env NAME",
            "        Another environment variable that gets the URI; may be given repeatedly.",
            "  --database NAME",
            "        Database that the URI names, which drivers then use by default.",
            f"  {_PER_WORKER} N",
            "        A server for each of N workers of a test runner, in MONGODB_URI_1 to MONGODB_URI_N; MONGODB_URI_0",
            "        is that of N, for runners that count from 0. `auto`: as many as there are processors.",
            *option_lines(config_from({}, for_tests=True)),
            "",
            *REMARKS,
            "",
            SUBCOMMANDS["run"].see,
        ]
    )


def run(
    config: ServerConfig,
    command: list[str],
    variables: list[str],
    database: str | None = None,
    workers: int | None = None,
) -> int:
    """Runs the command while a server runs; the command's exit status. variables: those that get the server's URI.
    database: what the URI names. workers: how many servers there are, one for each; None for one for all."""
    sys.stdout.flush()
    sys.stderr.flush()
    # The first alone: what keeps it from starting keeps the others, too, and need not be said by each.
    servers = [_started(config, database, [])]
    try:
        uris = [servers[0].uri()]
        if workers is not None and uris[0]:
            for _ in range(workers - 1):
                servers.append(_started(config, database, servers))
            uris += [server.uri() for server in servers[1:]]
        if not all(uris):
            return FAILURE  # the server has said why
        return _run_command(command, {**os.environ, **_uris_by_variable(variables, uris, workers)}, servers)
    except KeyboardInterrupt:
        signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)  # stopping takes a second at most
        return 128 + signal.SIGINT
    finally:
        for server in servers:
            os.close(server.write_end)
        for server in servers:
            server.wait()


def _uris_by_variable(variables: list[str], uris: list[str], workers: int | None) -> dict[str, str]:
    """The variables of the command. Without workers each is the URI.

    Else MONGODB_URI_1 is the URI of the first server, and so on. Some runners count their workers from 0: they get the
    last server for 0, so that as many workers as there are servers have one each, either way.
    """
    if workers is None:
        return dict.fromkeys(variables, uris[0])
    found: dict[str, str] = {}
    for name in variables:
        # No driver takes it, and most show it in their error.
        found[name] = f"mongodb://each-worker:has-its-own-{name}_1-to-{workers}/"
        found |= {f"{name}_{number}": uris[number - 1] for number in range(workers + 1)}
    return found


class _Child:
    """A process that this one has started. status: its wait status, None as long as it runs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.status: int | None = None

    def has_just_ended(self) -> bool:
        """Whether it has ended since the last call."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = status if pid else None
            return pid != 0
        return False

    def wait(self) -> None:
        if self.status is None:
            self.status = os.waitpid(self.pid, 0)[1]


class _ServerChild(_Child):
    """A process that serves. read_uri: reads its URI. write_end: of the pipe to which the command's id is written."""

    def __init__(self, pid: int, read_uri: int, write_end: int) -> None:
        super().__init__(pid)
        self._read_uri = read_uri
        self.write_end = write_end

    def uri(self) -> str:
        """Waits until it serves; its URI, "" if it has ended instead."""
        with open(self._read_uri, encoding="utf-8") as pipe:
            return pipe.readline().rstrip("\n")


def _started(config: ServerConfig, database: str | None, before: list[_ServerChild]) -> _ServerChild:
    """Starts a server. before: those that were started before, whose pipes it must not hold open."""
    read_uri, write_uri = os.pipe()
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        for descriptor in (read_uri, write_end, *(server.write_end for server in before)):
            os.close(descriptor)
        _serve_in_child(config, write_uri, read_end, database)
    os.close(write_uri)
    os.close(read_end)
    return _ServerChild(pid, read_uri, write_end)


def _run_command(command: list[str], environment: dict[str, str], servers: list[_ServerChild]) -> int:
    """Runs the command, and sends its id to the servers' processes; passes on the signals that come."""
    signal.signal(signal.SIGCHLD, _do_nothing)  # some systems drop it where it would be ignored
    awaited = (*_PASSED_ON, signal.SIGCHLD)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    try:
        pid = _spawn(command, environment, before, servers)
    except OSError as error:
        print(f"mongottl run: {command[0]}: {error.strerror}", file=sys.stderr)
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_RUN
    running = _Child(pid)
    # The signal that was passed on last, and what the command had started by then.
    passed_on = 0
    started: list[Process] = []
    while True:
        number, code = _next_signal(awaited)
        if number == signal.SIGCHLD:
            if running.has_just_ended():
                break
            for server in servers:
                if server.has_just_ended():
                    print("mongottl run: the server has ended before the command", file=sys.stderr)
        elif not from_terminal(code):
            passed_on = number
            started = process_tree(pid)
            os.kill(pid, number)
    _send_pid(servers, 0)
    assert running.status is not None
    if os.WIFSIGNALED(running.status) and os.WTERMSIG(running.status) == passed_on:
        # The command could not pass it on.
        send_signal(started, passed_on)
    return exit_status(running.status)


def _spawn(
    command: list[str], environment: dict[str, str], mask: set[int | signal.Signals], servers: list[_ServerChild]
) -> int:
    """Starts a command once the servers' processes know its id, so that it never stays behind; its process id.
    OSError if it cannot be run. mask: the signals that it blocks."""
    read_go, write_go = os.pipe()
    read_failure, write_failure = os.pipe()  # closed when the command runs
    pid = os.fork()
    if pid == 0:
        try:
            os.close(write_go)
            # Nothing comes if `mongottl run` was killed before.
            if os.read(read_go, 1):
                _become(command, environment, mask)
        except OSError as error:
            os.write(write_failure, str(error.errno).encode())
        finally:
            os._exit(FAILURE)
    os.close(read_go)
    os.close(write_failure)
    _send_pid(servers, pid)
    with suppress(BrokenPipeError):  # a signal has ended it
        os.write(write_go, b"x")
    os.close(write_go)
    with open(read_failure, "rb") as pipe:
        failure = pipe.read()
    if failure:
        os.waitpid(pid, 0)
        raise OSError(int(failure), os.strerror(int(failure)))
    return pid


def _become(command: list[str], environment: dict[str, str], mask: set[int | signal.Signals]) -> None:
    """Runs a command in place of this process, as shells do. OSError."""
    # Python ignores SIGPIPE and SIGXFSZ, which other programs do not expect, and takes SIGINT.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, *_PASSED_ON):
        if number not in _PASSED_ON or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    from shutil import which

    # A script that does not name its interpreter.
    os.execve("/bin/sh", ["sh", which(command[0]) or command[0], *command[1:]], environment)


def _do_nothing(number: int, frame: object) -> None:
    """The handler of a signal that is waited for."""


def _next_signal(awaited: tuple[int, ...]) -> tuple[int, int | None]:
    """Waits for the next signal; its number, and its `si_code` where the system gives it."""
    if sys.platform == "darwin":
        return signal.sigwait(awaited), None
    info = signal.sigwaitinfo(awaited)
    return info.si_signo, info.si_code


def _send_pid(servers: list[_ServerChild], pid: int) -> None:
    """Sends the id of the command to the servers' processes; 0 when none runs any more."""
    for server in servers:
        with suppress(BrokenPipeError):  # the server has ended, which is reported to the user
            os.write(server.write_end, f"{pid}\n".encode())


def _serve_in_child(config: ServerConfig, write_uri: int, read_end: int, database: str | None) -> NoReturn:
    """Serves in the process that was forked, until `mongottl run` ends."""
    from mongottl.cli.serve import serve

    status = FAILURE
    try:
        os.setsid()
        with open(os.devnull, "r+b") as nothing:
            os.dup2(nothing.fileno(), 0)
            os.dup2(nothing.fileno(), 1)

        def announce(server: "Server") -> None:
            uri = server.uri_with_password
            if database is not None:
                uri = uri_for_database(uri, database)
            with suppress(BrokenPipeError), open(write_uri, "w", encoding="utf-8") as pipe:
                pipe.write(f"{uri}\n")
            if server.web_url is not None:
                print(f"mongottl shows what is inside at {server.web_url}", file=sys.stderr, flush=True)

        status = serve(config, announce, partial(_until_run_ends, read_end))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


async def _until_run_ends(read_end: int) -> None:
    """Returns when `mongottl run` has ended; ends the command if it still runs."""
    import trio

    os.set_blocking(read_end, False)
    received = b""
    while True:
        await trio.lowlevel.wait_readable(read_end)
        chunk = os.read(read_end, 1024)
        if not chunk:
            break
        received += chunk
    command = int(received.split()[-1]) if received else 0
    if not command:
        return
    tree = process_tree(command)
    send_signal(tree, signal.SIGTERM)
    with trio.move_on_after(_END_S):
        while still_running(tree):
            await trio.sleep(_LOOK_EVERY_S)
    send_signal(tree, signal.SIGKILL)
