"""The recovery unit of an operation: all its access to stored data, for reads and writes.

    unit = op.recovery_unit
    unit.records(collection).scan(…)       reads of records
    unit.index(entry).scan_fetch(…)        reads of index entries
    with unit.write(collection) as write:  one unit of work on a collection (`write_unit`)

For the embedded engines these methods return the catalog's own stores. What lies between an operation and the engine (a
snapshot, a transaction's own writes, a meter of request units; later a remote engine) is behind these three methods,
and the stages do not know of it. Therefore no caller may keep a result of `records` or `index` longer than one step: a
getMore has another recovery unit than the command that opened the cursor. Nor while it computes what may give way, were
it an argument of the call, since what it belongs to may be dropped meanwhile.

    RecoveryUnit                 the present
    ├── MeteringRecoveryUnit     counts request units, around another one (`metering`)
    └── TransactionRecoveryUnit  a transaction's snapshot and its own writes (`transaction_unit`)

The name is MongoDB's; see architecture decision 12. DDL goes through the catalog, which has its own units of work.
"""

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.document.interrupt import in_undivided
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.sessions.retryable_writes import RetryableWrite
from mongottl.exec.unit.write_unit import CollectionHeld, WatchedWriteUnit, WriteUnit
from mongottl.exec.unit.written import WrittenCounts
from mongottl.storage.errors import CatalogChanged
from mongottl.storage.interface import WriteUnitOfWork
from mongottl.storage.stores import RecordStore, SortedDataInterface


def uuid_text(uuid: bytes) -> str:
    """The 16 bytes of a UUID in the 8-4-4-4-12 hexadecimal form."""
    digits = uuid.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def collection_dropped(collection: Collection) -> CommandError:
    return CommandError(ErrorCode.QueryPlanKilled, f"collection dropped. UUID {uuid_text(collection.uuid.data)}")


class RecoveryUnit:
    """All reads and writes of one operation, or of one of the server's own tasks (reaper, index build).

    retryable_write: the retryable write that the operation executes, or None. written: counts what is written, or None.
    """

    def __init__(self, service: ServiceContext) -> None:
        self._service = service
        self.retryable_write: RetryableWrite | None = None
        # Whether its writes may be lost if the machine fails right after their commit (`j: false`).
        self.unsynced = False
        self.written: WrittenCounts | None = None

    def records(self, collection: Collection) -> RecordStore:
        """The record store of a collection, as this operation sees it. QueryPlanKilled (175) if it was dropped."""
        if collection.dropped:
            raise collection_dropped(collection)
        return collection.store

    def known_records(self, collection: Collection) -> RecordStore:
        """The same, to read once more what the operation has read already: no meter counts it."""
        return self.records(collection)

    def index(self, entry: CollectionIndex) -> SortedDataInterface:
        """The sorted data of an index that has keys (`CollectionIndex.has_keys`), as this operation sees it.

        QueryPlanKilled (175) if it was dropped, perhaps while an evaluation between two reads was left.
        """
        if entry.dropped:
            raise CommandError(ErrorCode.QueryPlanKilled, f"index '{entry.name}' dropped")
        return entry.sorted_data

    def write(self, collection: Collection) -> WriteUnit:
        """A unit of work on a collection, with the current time as its `_ts`. It begins when its block is entered, and
        nothing else may run until then.

        QueryPlanKilled (175) if the collection was dropped, perhaps while an engine waited here. CollectionHeld.
        """
        service = self._service
        work = self._begin_work(collection)
        if self.unsynced:
            work.unsynced = True
        if collection.dropped:
            raise collection_dropped(collection)
        if service.isolation.watches_writes:
            unit: WriteUnit = WatchedWriteUnit(service, collection, work, self.retryable_write)
        else:
            unit = WriteUnit(service, collection, collection.store, work, self.retryable_write)
        unit.written = self.written
        return unit

    def _begin_work(self, collection: Collection) -> WriteUnitOfWork:
        engine = self._service.engine
        if collection.held_by:
            raise CollectionHeld(collection)
        if collection.unpublished:
            self._publish_marks(collection)
        if self._must_be_alone(collection):
            return self._lone_work(collection)
        work = engine.concurrent_unit_of_work()
        if not work.alone and self._must_be_alone(collection):  # since it has waited
            work = self._lone_work(collection)
        return work

    def _publish_marks(self, collection: Collection) -> None:
        """Has all servers of the store know what the next write adds to what is known of its indexes."""
        nodes = self._service.engine.nodes
        assert nodes is not None
        is_held = in_undivided()
        has_committed = nodes.has_committed
        while collection.unpublished:
            try:
                self._service.catalog.publish_marks(collection)
            except CatalogChanged:
                if is_held:
                    raise
        if not has_committed:
            nodes.disregard_commits()
        nodes.settle(is_held)

    def _lone_work(self, collection: Collection) -> WriteUnitOfWork:
        engine = self._service.engine
        if collection.writes_alone:
            return engine.exclusive_unit_of_work(collection.store)
        return engine.unit_of_work()

    def _must_be_alone(self, collection: Collection) -> bool:
        if collection.next_alone:
            collection.next_alone = False
            return True
        return collection.writes_alone or self._service.isolation.watches_writes
