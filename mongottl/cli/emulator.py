"""`mongottl emulator`: the server in the place of Cosmos DB's emulator, the same as `mongottl serve --emulator`."""

import os

from mongottl.cli.options import configuration, option_lines
from mongottl.cli.serve import serve
from mongottl.cli.subcommands import SUBCOMMANDS
from mongottl.config import config_from

_HELP = (
    "usage: mongottl emulator [options]",
    "",
    SUBCOMMANDS["emulator"].help,
    "",
    "A connection string of the emulator connects to it, once the client trusts its certificate:",
    "",
    "    mongodb://localhost:KEY@localhost:10255/admin?ssl=true&retrywrites=false",
    "",
    "KEY is the emulator's well-known key, with its /, + and = percent-encoded, as today's drivers want it.",
    "",
    "options, with their defaults here:",
)


def main(arguments: list[str]) -> int:
    """Serves with these options and those in the environment; the process's exit status."""
    if "--help" in arguments or "-h" in arguments:
        lines = option_lines(config_from({"emulator": "true"}))
        print("\n".join([*_HELP, *lines, "", SUBCOMMANDS["emulator"].see]))
        return 0
    return serve(configuration(["--emulator", *arguments], os.environ))
