"""The recovery unit of an operation: the one way of commands, stages and writes to what is stored.

    unit = op.recovery_unit
    unit.records(collection).scan(…)       reads of records
    unit.index(entry).scan_fetch(…)        reads of index entries
    with unit.write(collection) as write:  one unit of work on a collection (`write_unit`)

Here the embedded engine answers in place: the stores that the catalog holds are handed out as they are. What is to
stand between an operation and the engine (a snapshot, a transaction's own writes, a meter of request units, a remote
engine) goes behind these three methods, and no stage has to know. So nobody keeps what `records` and `index` answer
longer than one step: a later command that continues a cursor has a unit of its own.

The name is MongoDB's; what it is for, see architecture decision 12. DDL goes through the catalog, which keeps units of
work of its own.
"""

from mongottl.catalog.collection import Collection, IndexEntry
from mongottl.exec.operation.service import ServiceContext
from mongottl.exec.operation.write_unit import WriteUnit
from mongottl.storage.interface import RecordStore, SortedDataInterface


class RecoveryUnit:
    """All reads and writes of one operation, or of one of the server's own tasks (reaper, index build)."""

    def __init__(self, service: ServiceContext) -> None:
        self._service = service

    def records(self, collection: Collection) -> RecordStore:
        """The records of a collection, as this operation sees them."""
        return collection.store

    def index(self, entry: IndexEntry) -> SortedDataInterface:
        """The entries of an index that has some (`IndexEntry.has_keys`), as this operation sees them."""
        data = entry.data
        assert data is not None
        return data

    def write(self, collection: Collection) -> WriteUnit:
        """A unit of work on a collection, dated now. It begins when its block is entered."""
        return WriteUnit(self._service, collection, collection.store)
