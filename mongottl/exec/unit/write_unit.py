"""One unit of work of a write: its beginning, its timestamp, and the actions after its commit.

    unit = op.recovery_unit.write(collection)  the clock is read: `_ts` of all that is written in the unit
    with unit:                                 the engine's unit of work begins
        unit.records.insert_records(rows)      records and index entries
        unit.index(entry).insert(entries)
        unit.record_inserted(rows)             what has changed, once for all that need it (`oplog.change`)
        unit.commit()                          `CommitLog.commit`

    record_inserted │ record_updated │ delete ──► Change ──► oplog, meter, profiler, retryable write, wheel

A command may run long and yield between its units. So each unit has its own time: a document's lifetime begins when it
is written, and `_ts` never becomes less than that of an earlier write of another client, unless the clock was set back.
The command's own time (`OperationContext.now_ms`) is used for `$$NOW` and new ObjectIds.

No other operation runs between the beginning of a unit and its commit. What the unit changes must have been read in
the same step (`Selection.current`), or must be read again.
"""

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final

from mongottl.catalog.change_kinds import DELETE, INSERT, UPDATE
from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.document.interrupt import check_interrupt
from mongottl.exec.service.service import MS_PER_S, ServiceContext
from mongottl.exec.sessions.retryable_writes import RetryableWrite
from mongottl.exec.state.meter import Meter
from mongottl.exec.unit.written import WrittenCounts
from mongottl.oplog.change import Change, LoggedChange, logged
from mongottl.storage.errors import CatalogChanged, DiskFull, MustBeAlone, WriteConflict
from mongottl.storage.interface import WriteUnitOfWork
from mongottl.storage.stores import NewRecord, Record, RecordStore, SortedDataInterface
from mongottl.ttl.policy import NO_TTL, is_expired

if TYPE_CHECKING:
    from mongottl.query.update import UpdateDriver


# The keys that a unit passes between two looks at the time.
_PART: Final = 1024


class CollectionHeld(CatalogChanged):
    """A server copies the collection (`Collection.held_by`): wait until that has ended, read again and repeat the
    write, perhaps to another collection of its name."""

    def __init__(self, collection: Collection) -> None:
        super().__init__(f"{collection.namespace} is being copied")
        self.collection = collection


class WriteUnit:
    """A unit of work on one collection. now_s: the time of its writes, in whole seconds.

    changes: what it has done, at most one change of each kind. The first one is what its statement does; what an insert
    displaces from a capped collection comes after it.
    records: the collection's record store. work: where its writes go. retryable_write: whose statements it executes, or
    None. meter, written: count what is committed, or None.
    """

    def __init__(
        self,
        service: ServiceContext,
        collection: Collection,
        records: RecordStore,
        work: WriteUnitOfWork,
        retryable_write: RetryableWrite | None = None,
    ) -> None:
        self.service = service
        self.collection = collection
        self.records = records
        self._now_ms: int = service.clock.now_ms()
        self.now_s: int = self._now_ms // MS_PER_S
        self._work: WriteUnitOfWork = work
        self.changes: list[Change] = []
        self.retryable_write = retryable_write
        self.meter: Meter | None = None
        self.written: WrittenCounts | None = None
        self._keys: int = 0

    def __enter__(self) -> "WriteUnit":
        """CollectionHeld, or for a transaction SnapshotConflict."""
        if self.collection.held_by:  # since it was made, perhaps
            raise self._held()
        self._work.__enter__()
        return self

    def _held(self) -> Exception:
        return CollectionHeld(self.collection)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._work.__exit__(kind, error, trace)

    def index(self, entry: CollectionIndex) -> SortedDataInterface:
        """The sorted data of an index that has keys (`CollectionIndex.has_keys`)."""
        return entry.sorted_data

    def passed_keys(self, count: int) -> None:
        """Called after keys were made, or added to an index or removed from it: `Stacks.let_ask`, since a unit of work
        is not left. One document may have a hundred thousand keys in each of sixty indexes."""
        self._keys += count
        if self._keys >= _PART:
            self._keys = 0
            stacks = self.service.stacks
            if stacks.present is None:
                check_interrupt()  # one that is attempted needs a stack, if it takes long
            else:
                stacks.let_ask()

    def on_commit(self, action: Callable[[], None]) -> None:
        """Calls `action` right after the commit, before its other consequences."""
        self._work.on_commit(action)

    def on_rollback(self, action: Callable[[], None]) -> None:
        """Calls `action` if the unit is rolled back."""
        self._work.on_rollback(action)

    def is_expired(self, record: Record) -> bool:
        """Whether a record is expired at the time of this unit."""
        return is_expired(record[2], record[3], self.collection.default_ttl_s, self.now_s)

    def record_inserted(self, rows: list[NewRecord]) -> None:
        """Records that these rows were inserted, after all that they displace was deleted. DiskFull.

        What is displaced is logged after the insert, as MongoDB has done since version 5.0 (SERVER-16049).
        """
        self.service.engine.require_room()
        self.changes.insert(0, Change(INSERT, self.collection, [], rows))

    def record_updated(self, before: list[bytes], rows: list[NewRecord], driver: "UpdateDriver | None") -> None:
        """Records that these rows, at least one, have taken the place of the documents `before`, in their order.
        driver: the update that has changed them, or None. DiskFull."""
        self.service.engine.require_room()
        replaced = False
        touched: tuple[str, ...] | None = None
        if driver is not None:
            replaced = driver.kind == "replacement"
            paths = driver.touched_paths
            touched = None if paths is None else tuple(paths)
        self.changes.append(Change(UPDATE, self.collection, before, rows, replaced, touched))

    def _record_deleted(self, records: list[Record], expired: bool) -> None:
        """Records that these records were deleted: as one change, in however many parts."""
        before = [record[1] for record in records]
        count = len(records) if expired else 0
        if self.changes:
            earlier = self.changes.pop()
            assert earlier.kind == DELETE
            before = earlier.before + before
            count += earlier.expired
        self.changes.append(Change(DELETE, self.collection, before, [], expired=count))

    def record_multikey_change(self, index: CollectionIndex) -> None:
        """Records in the catalog the array paths and type bits that the last document adds to `index`.

        Called when `index.became_multikey()`. MustBeAlone if other units may be open, which would read or replace it
        before it is committed: the next unit on the collection is alone. Where other servers may have the data, it is
        stored before the next unit begins.
        """
        if self.service.engine.shared_nodes is not None and index.is_stored and not self.collection.pending:
            self.service.catalog.note_marks(self.collection, index)
            raise MustBeAlone("an index becomes multikey: other servers have to know it first")
        if not self._work.alone:
            self.collection.next_alone = True
            raise MustBeAlone("an index becomes multikey")
        self.service.catalog.record_multikey_change(self.collection, index, self._work)

    def delete(self, records: list[Record], expired: bool = False) -> None:
        """Deletes records and their index entries. WriteConflict if one of them was changed or deleted meanwhile, or if
        there was no room on the disk, but is now. expired: whether they count as purged.

        An index under construction has no entries of records that its build has not read yet: their keys are not
        generated, because that may fail.
        """
        try:
            if self.collection.is_built_for_all:
                # First, which waits for a build that holds the records: then the entries that it has added are there.
                self.records.delete_records(records)
                self._remove_entries(records)
            else:
                self._remove_entries(records)
                self.records.delete_records(records)
        except DiskFull as error:
            raise self._without_room(error) from None
        self._record_deleted(records, expired)

    def delete_entries_of(self, expired: list[Record]) -> None:
        """Deletes the index entries of expired records that `RecordStore.take_due` has deleted in this unit."""
        self._remove_entries(expired)
        self._record_deleted(expired, True)

    def _remove_entries(self, records: list[Record]) -> None:
        for index in self.collection.writable_indexes:
            covered = records if index.ready else [record for record in records if index.covers_record(record[0])]
            gone = [(key, record[0]) for record in covered for key in index.keys_of(record[1])]
            self.index(index).remove(gone)
            self.passed_keys(len(gone))

    def commit(self) -> None:
        """Commits, and counts what was changed. WriteConflict: all is rolled back."""
        service = self.service
        write = self.retryable_write
        if write is not None:
            self._note_statement(write)
        try:
            service.commit_log.commit(self._work, self.changes, self.logged_changes(), self._now_ms, write)
        except DiskFull as error:
            raise self._without_room(error) from None
        if self.changes and not self.changes[0].expired:
            service.stacks.end_attempt()  # an expired document may be deleted by one that is given up
        self.count()

    def _without_room(self, error: DiskFull) -> Exception:
        """What to raise for a unit that found no room: WriteConflict, so that it is repeated, if it only deletes and
        the engine has made room for that."""
        if not any(change.rows for change in self.changes) and self.service.engine.make_room():
            self.service.hooks.note_full_disk()
            return WriteConflict(str(error))
        return error

    def logged_changes(self) -> list[LoggedChange]:
        """What the unit has changed, for the oplog."""
        found: list[LoggedChange] = []
        for change in self.changes:
            for_log = logged(change)
            if for_log is not None:
                found.append(for_log)
        return found

    def count(self) -> None:
        """Counts what the unit's statement has changed. Purges of expired documents cost nothing."""
        if self.written is not None:
            self.written.add(self.changes)
        meter = self.meter
        if meter is None or not self.changes:
            return
        change = self.changes[0]
        if change.kind == INSERT:
            meter.insert(self.collection, [row[0] for row in change.rows])
        elif change.kind == UPDATE:
            meter.update(self.collection, change.before, [row[0] for row in change.rows])
        elif not change.expired:
            meter.delete(self.collection, change.before)

    def _note_statement(self, write: RetryableWrite) -> None:
        """Notes what this unit does for a retryable write: one insert or more, or the update or delete of a record."""
        write.begin_unit()
        if not self.changes or self.changes[0].expired:
            return
        failing = self.service.fail_points.transactional_write()
        if failing is not None:
            write.closes_connection = failing.close_connection
            failing.fail()
        write.note(self.changes[0])


class WatchedWriteUnit(WriteUnit):
    """A unit of work while snapshots or transactions are open that have to know of it.

    ClaimedByTransaction for a record or unique key that an open transaction has written.
    """

    def __init__(
        self,
        service: ServiceContext,
        collection: Collection,
        work: WriteUnitOfWork,
        retryable_write: RetryableWrite | None,
    ) -> None:
        self._watched = service.isolation.watch()
        super().__init__(service, collection, self._watched.records(collection.store), work, retryable_write)

    def index(self, entry: CollectionIndex) -> SortedDataInterface:
        if not entry.ready:
            return entry.sorted_data  # no snapshot or transaction reads it
        return self._watched.entries(entry.sorted_data)

    def commit(self) -> None:
        super().commit()
        self._watched.committed()


def living_now(service: ServiceContext, collection: Collection, records: list[Record]) -> list[Record]:
    """The records that are not expired at the current time, which may be later than the command's own (`op.now_s`)."""
    default_ttl_s = collection.default_ttl_s
    if default_ttl_s == NO_TTL:
        return records
    now_s = service.now_s()
    return [record for record in records if not is_expired(record[2], record[3], default_ttl_s, now_s)]
