"""The databases of the dialect `cosmos` that were created by `CreateDatabase`.

They exist without collections, and may have throughput that their collections share. They are stored with the data.
"""

from typing import Final

from mongottl.catalog.catalog import Catalog
from mongottl.catalog.throughput import Throughput, throughput_from
from mongottl.document.build import EMPTY_DOCUMENT, encode
from mongottl.document.interrupt import Undivided
from mongottl.document.types import Value
from mongottl.document.walk import fields

# Where the catalog has them.
_ENTRY: Final = "provisionedDatabases"


class ProvisionedDatabases:
    """The databases by name, with the throughput that their collections share, if there is any."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._databases: dict[str, Throughput | None] = {}
        self.reload()

    def reload(self) -> None:
        """Reads what is stored: at the start, and after a saved state was restored."""
        self._databases = {}
        for name, stored in fields(self._catalog.server_entry(_ENTRY) or EMPTY_DOCUMENT):
            self._databases[name] = throughput_from(stored)

    def names(self) -> list[str]:
        return list(self._databases)

    def exists(self, name: str) -> bool:
        """Whether there is a database of this name: it was created, or has a collection."""
        return name in self._databases or self._catalog.has_collections(name)

    def shared(self, name: str) -> Throughput | None:
        """The throughput that the collections of a database share; None if each has its own."""
        return self._databases.get(name)

    def put(self, name: str, throughput: Throughput | None) -> None:
        """Creates a database, or changes the throughput of one."""
        with Undivided():
            self._save({**self._databases, name: throughput})

    def drop(self, name: str) -> None:
        """Drops a database, if there is one of this name."""
        with Undivided():
            if name in self._databases:
                self._save({known: throughput for known, throughput in self._databases.items() if known != name})

    def _save(self, databases: dict[str, Throughput | None]) -> None:
        entry: dict[str, Value] = {
            name: EMPTY_DOCUMENT if throughput is None else throughput.document()
            for name, throughput in databases.items()
        }
        self._catalog.save_server_entry(_ENTRY, encode(entry))
        self._databases = databases
