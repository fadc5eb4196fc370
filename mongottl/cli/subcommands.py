"""The table of commands: `mongottl serve`, `mongottl ping`, ….

A command is a row of `SUBCOMMANDS` and a module with

    def main(arguments: list[str]) -> int: ...

which gets what stands after the command's name, and gives the exit status. UsageError for wrong arguments. The module
is imported when the command is used, so none of them makes the others start more slowly.
"""

import sys
from typing import ClassVar, Final, NamedTuple


class UsageError(Exception):
    """The arguments are wrong. The text says what would be right."""

    # The exit status.
    STATUS: ClassVar[int] = 2


# The exit status of a command that has failed.
FAILURE: Final = 1


def fail(command: str, reason: str) -> int:
    """Says on standard error why a command has failed; its exit status."""
    print(f"mongottl {command}: {reason}", file=sys.stderr)
    return FAILURE


class Subcommand(NamedTuple):
    """One row. usage: its arguments, as the help shows them. module: where its `main` is. page: the page of docs that
    its own help names."""

    name: str
    usage: str
    help: str
    module: str
    page: str = ""

    @property
    def see(self) -> str:
        """The last line of its help."""
        return f"`mongottl help {self.page.removesuffix('.md')}` shows its page."


_ROWS: Final = (
    Subcommand(
        "serve",
        "[options]",
        "Runs the server until Ctrl-C or SIGTERM; this is what happens without a command.",
        "serve",
    ),
    Subcommand(
        "run",
        "[options] [--env NAME] [--database NAME] [--per-worker N] -- COMMAND [ARGUMENT…]",
        "Runs a command, such as a test suite, with a server of its own, whose URI is in MONGODB_URI.",
        "run",
        "testing.md",
    ),
    Subcommand(
        "emulator",
        "[options]",
        "Runs the server in the place of Cosmos DB's emulator: the same port, account, key and encryption.",
        "emulator",
        "cosmos.md",
    ),
    Subcommand(
        "trust",
        "[LANGUAGE] [--certificate FILE] [--trust-store FILE]",
        "Shows how clients in a language trust the certificate of --tls-self-signed or of the emulator.",
        "trust",
        "operating.md",
    ),
    Subcommand(
        "ping",
        "[URI] [--container] [--timeout SECONDS]",
        "Asks whether a server answers: exit status 0 or 1.",
        "ping",
        "operating.md",
    ),
    Subcommand(
        "report",
        "[URI] [--json] [--reset] [--timeout SECONDS]",
        "Shows what the requests to a server of the dialect cosmos have cost in request units.",
        "report",
        "cosmos.md",
    ),
    Subcommand(
        "backup",
        "URI|FOLDER TARGET",
        "Copies the data of a running or stopped server into a new folder: exit status 0, 1, or 3 if it lacks commits.",
        "backup",
        "operating.md",
    ),
    Subcommand(
        "check",
        "FOLDER",
        "Checks the data of a stopped server, without writing: exit status 0 or 1.",
        "check",
        "operating.md",
    ),
    Subcommand(
        "copy",
        "FROM TO",
        "Copies the data of a stopped server into another store, as a folder's into PostgreSQL: exit status 0 or 1.",
        "copy",
        "operating.md",
    ),
    Subcommand(
        "container",
        "[options] | PROGRAM [ARGUMENT…]",
        "Runs the server in a container, in the place of the images of mongod and of Cosmos DB's emulator.",
        "container",
        "containers.md",
    ),
    Subcommand(
        "shell",
        "[URI|DATABASE] [--eval JAVASCRIPT] [FILE…]",
        "Evaluates JavaScript with db and rs, as mongosh does for the health checks and scripts of containers.",
        "shell",
        "containers.md",
    ),
    Subcommand("help", "[COMMAND|PAGE]", "Shows the help of a command, or a page of the documentation.", "help"),
    Subcommand(
        "completion",
        "bash|zsh|fish",
        "Prints what makes a shell complete commands and options.",
        "completion",
        "operating.md",
    ),
    Subcommand("version", "", "Shows the version, and whether it is compiled.", "version"),
)
SUBCOMMANDS: Final[dict[str, Subcommand]] = {
    row.name: row._replace(module=f"mongottl.cli.{row.module}") for row in _ROWS
}
