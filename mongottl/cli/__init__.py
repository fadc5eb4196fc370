"""The command line: `mongottl [COMMAND] [options]`.

    subcommands   the table of commands; add one there
    options       the server's options and their help, from the table of settings
    serve, …      one module for each command, imported when the command is used

Without a command the server is started.
"""

import os
import signal
import sys
from importlib import import_module

from mongottl.cli.streams import open_closed_streams
from mongottl.cli.subcommands import FAILURE, SUBCOMMANDS, UsageError


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
            raise UsageError(f"there is no command {unknown!r}; the commands are {', '.join(SUBCOMMANDS)}")
        status: int = import_module(SUBCOMMANDS[name].module).main(arguments)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Who was to read the output has ended, as `head` does. What is left of it would fail again at the end.
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return FAILURE
    except UsageError as error:
        command = "mongottl" if name == "serve" else f"mongottl {name}"
        print(f"{command}: {error}\nTry '{command} --help'.", file=sys.stderr)
        return UsageError.STATUS
