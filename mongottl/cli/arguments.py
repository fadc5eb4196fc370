"""The parser of commands that take arguments of their own, rather than the server's options (`options`)."""

import argparse
from typing import NoReturn

from mongottl.cli.subcommands import SUBCOMMANDS, UsageError


class ArgumentParser(argparse.ArgumentParser):
    """argparse's parser for a command of `SUBCOMMANDS`; raises UsageError for wrong arguments."""

    def __init__(self, command: str) -> None:
        row = SUBCOMMANDS[command]
        super().__init__(f"mongottl {command}", description=row.help, epilog=row.see, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def positive_seconds(text: str) -> float:
    """The value of an option that takes a number of seconds, also a fraction."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < 1e6:
        raise argparse.ArgumentTypeError(f"a positive number of seconds is needed, not {text!r}")
    return seconds
