"""`mongottl version`: the version that is installed, and whether it is compiled."""

from mongottl.build_info import describe_version
from mongottl.cli.subcommands import UsageError


def main(arguments: list[str]) -> int:
    if arguments in (["--help"], ["-h"]):
        print("usage: mongottl version\n\nShows the version, and whether it is compiled.")
        return 0
    if arguments:
        raise UsageError(f"takes no arguments, not {arguments[0]!r}")
    print(describe_version())
    return 0
