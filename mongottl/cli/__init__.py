"""The command line: `mongottl [COMMAND] [options]`.

    subcommands   the table of commands; add one there
    options       the server's options and their help, from the table of settings
    serve, …      one module for each command, imported when the command is used

Without a command the server is started.
"""

import errno
import os
import signal
import sys
from importlib import import_module

from mongottl.cli.streams import open_closed_streams
from mongottl.cli.subcommands import FAILURE, SUBCOMMANDS, UsageError, fail
from mongottl.config import did_you_mean


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; the process's exit status."""
    open_closed_streams()
    arguments = sys.argv[1:] if arguments is None else arguments
    name = "serve"
    try:
        if arguments and not arguments[0].startswith("-"):
            name, arguments = arguments[0], arguments[1:]
        if name not in SUBCOMMANDS:
            unknown, name = name, "serve"
            advice = did_you_mean(unknown, SUBCOMMANDS)
            raise UsageError(f"there is no command {unknown!r}{advice}; the commands are {', '.join(SUBCOMMANDS)}")
        status = _run(name, arguments)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except OSError as error:
        # Standard output cannot be written: who was to read it has ended, as `head` does, or the disk is full.
        if error.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        # What is left of it would fail again at the end.
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return FAILURE if error.errno == errno.EPIPE else fail(name, f"standard output: {error.strerror}")
    except UsageError as error:
        command = "mongottl" if name == "serve" else f"mongottl {name}"
        print(f"{command}: {error}\nTry '{command} --help'.", file=sys.stderr)
        return UsageError.STATUS


def _run(name: str, arguments: list[str]) -> int:
    """The exit status of a command, whose help ends the process."""
    try:
        status: int = import_module(SUBCOMMANDS[name].module).main(arguments)
    except SystemExit as ended:
        if ended.code != 0:
            raise
        status = 0
    return status
