"""`mongottl copy FROM TO`: the data of a stopped server into another kind of store, such as a folder's into PostgreSQL.

Nothing may write to FROM meanwhile, and its lock sees to that; so the time that the last line shows is how long writes
stop when a server moves.
"""

from typing import Final

from mongottl.cli.arguments import ArgumentParser
from mongottl.cli.signals import ending_by_exception
from mongottl.cli.subcommands import fail
from mongottl.clock import SystemClock
from mongottl.config.server_config import without_passwords
from mongottl.config.setting import STORES
from mongottl.offline.check import counted
from mongottl.storage.data_folder import has_database
from mongottl.storage.errors import DataDirectoryError, EngineUnavailable
from mongottl.storage.interface import StorageEngine
from mongottl.storage.nodes import LONE_NODE, NodeFacts
from mongottl.storage.opening import folder_uri, open_engine

_NAME: Final = "copy"


def main(arguments: list[str]) -> int:
    """Prints a line for each collection. Exit status 0 if all was copied, 1 if not, 2 for wrong arguments."""
    parser = ArgumentParser(_NAME)
    place = "a data folder (--data-dir), or a URI as of --store"
    parser.add_argument("source", metavar="FROM", help=f"{place}, which no server uses")
    parser.add_argument("target", metavar="TO", help=f"{place}, without collections; it is made if it is not there")
    given = parser.parse_args(arguments)
    with ending_by_exception():
        return copy(given.source, given.target)


def copy(source: str, target: str) -> int:
    """Copies the data of a folder or store; the exit status."""
    from mongottl.offline.copy import CopyError, copy_data

    clock = SystemClock()
    begun_s = clock.monotonic_s()
    documents = 0
    collections = 0
    size = 0
    try:
        if not source.startswith(STORES) and not has_database(source):
            return fail(_NAME, f"{source} has no data")
        # Where nothing is, a name was mistaken.
        with _Opened(source, LONE_NODE._replace(needs_data=True)) as from_engine, _Opened(target) as to_engine:
            for copied in copy_data(from_engine, to_engine):
                numbers = (counted(copied.documents, "document"), counted(copied.indexes, "index", "indexes"))
                print(f"{copied.namespace}: {', '.join(numbers)}", flush=True)
                collections += 1
                documents += copied.documents
                size += copied.size
    except (CopyError, DataDirectoryError, EngineUnavailable) as error:
        return fail(_NAME, f"{error}; {without_passwords(target)} is as it was")
    except KeyboardInterrupt:
        return fail(_NAME, f"interrupted; {without_passwords(target)} is as empty as it was")
    took_s = clock.monotonic_s() - begun_s
    total = f"{counted(collections, 'collection')}, {counted(documents, 'document')}, {size / 1e6:,.1f} MB"
    print(f"{without_passwords(target)}: {total} in {took_s:.1f} s, in which nothing could write to the source")
    return 0


class _Opened:
    """The engine of a folder or store, closed at the end of the block."""

    def __init__(self, place: str, facts: NodeFacts = LONE_NODE) -> None:
        self._place = place
        self._facts = facts
        self._engine: StorageEngine | None = None

    def __enter__(self) -> StorageEngine:
        place = self._place
        self._engine = open_engine(place if place.startswith(STORES) else folder_uri(place), self._facts)
        return self._engine

    def __exit__(self, *raised: object) -> None:
        if self._engine is not None:
            self._engine.close()
