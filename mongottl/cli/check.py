"""`mongottl check FOLDER`: whether the data directory of a stopped server is in order."""

from typing import Final

from mongottl.cli.arguments import ArgumentParser
from mongottl.cli.subcommands import FAILURE, fail

_NAME: Final = "check"


def main(arguments: list[str]) -> int:
    """Prints a line for each fault. Exit status 0 if there is none, 1 if there is one or the data cannot be opened, 2
    for wrong arguments."""
    parser = ArgumentParser(_NAME)
    parser.add_argument("folder", metavar="FOLDER", help="the data folder (--data-dir) of a stopped server")
    return check(parser.parse_args(arguments).folder)


def check(folder: str) -> int:
    """Checks a data directory; the exit status."""
    from mongottl.offline.check import DataCheck, counted
    from mongottl.storage.errors import DataDirectoryError

    data = DataCheck(folder)
    count = 0
    try:
        for fault in data.faults():
            print(fault, flush=True)
            count += 1
    except DataDirectoryError as error:
        return fail(_NAME, str(error))
    for note in data.notes:
        print(f"note: {note}")
    read = (
        counted(data.collections, "collection"),
        counted(data.records, "document"),
        counted(data.entries, "index entry", "index entries"),
        counted(data.oplog_entries, "oplog entry", "oplog entries"),
    )
    print(f"{folder}: {', '.join(read)}: {counted(count, 'fault') if count else 'no fault'}")
    return FAILURE if count else 0
