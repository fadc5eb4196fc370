"""One unit of work of a write: its beginning, its timestamp, and the actions after its commit.

    unit = op.recovery_unit.write(collection)  the clock is read: `_ts` of all that is written in the unit
    with unit:                                 the engine's unit of work begins
        unit.records.insert_records(rows)      records and index entries
        unit.index(entry).insert(entries)
        unit.stored(rows)                      notes the written rows, for the timing wheel
        unit.commit()                          the engine commits; then wheel, counters, tailing cursors, flush

A command may run long and yield between its units. So each unit has its own time: a document's lifetime begins when it
is written, and `_ts` never becomes less than that of an earlier write of another client, unless the clock was set back.
The command's own time (`OperationContext.now_ms`) is used for `$$NOW` and new ObjectIds.

No other operation runs between the beginning of a unit and its commit. What the unit changes must have been read in
the same step (`Selection.current`), or must be read again.
"""

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from mongottl.catalog.collection import Collection, IndexEntry
from mongottl.exec.operation.arming import arm_records
from mongottl.exec.operation.meter import Meter
from mongottl.exec.operation.retryable_writes import RetryableWrite
from mongottl.exec.operation.service import MS_PER_S, ServiceContext
from mongottl.oplog.entry import INSERT, UPDATE, OplogEntry, deletion, is_logged, no_operation
from mongottl.storage.interface import (
    DiskFull,
    NewRecord,
    Record,
    RecordStore,
    SortedDataInterface,
    WriteConflict,
    WriteUnitOfWork,
)
from mongottl.storage.snapshot.history import CommitImages
from mongottl.storage.snapshot.recording import RecordingEntries, RecordingRecords
from mongottl.ttl.policy import NO_TTL, is_expired

if TYPE_CHECKING:
    from mongottl.query.update import UpdateDriver


class WriteUnit:
    """A unit of work on one collection. now_s: the time of its writes, in whole seconds.

    inserted: whether it inserts records, so that tailing cursors of a capped collection are notified. purged: how many
    expired records it deletes. replaced: the former document of a single record that it updates, or None. before: the
    former documents of all that it updates, in the order of `stored`; driver: the update that changes them.
    records: the collection's record store. work: where its writes go. retryable_write: whose statements it executes, or
    None. meter: counts what is committed, or None.
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
        self.inserted = False
        self.purged: int = 0
        self.replaced: bytes | None = None
        self.driver: UpdateDriver | None = None
        self.before: list[bytes] = []
        self.retryable_write = retryable_write
        self.meter: Meter | None = None
        self._removed: list[Record] = []
        self._rows: list[NewRecord] = []
        self._changed = False

    def __enter__(self) -> "WriteUnit":
        self._work.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._work.__exit__(kind, error, trace)

    def index(self, entry: IndexEntry) -> SortedDataInterface:
        """The sorted data of an index that has keys (`IndexEntry.has_keys`)."""
        return entry.sorted_data

    def on_commit(self, action: Callable[[], None]) -> None:
        """Calls `action` right after the commit, before its other consequences."""
        self._work.on_commit(action)

    def on_rollback(self, action: Callable[[], None]) -> None:
        """Calls `action` if the unit is rolled back."""
        self._work.on_rollback(action)

    def is_expired(self, record: Record) -> bool:
        """Whether a record is expired at the time of this unit."""
        return is_expired(record[2], record[3], self.collection.default_ttl_s, self.now_s)

    def stored(self, rows: list[NewRecord]) -> None:
        """Notes the written documents as (document, `_ts`, `ttl`); the commit arms the wheel for them. DiskFull."""
        self.service.engine.require_room()
        self._rows = rows
        self._changed = True

    def record_multikey_change(self, index: IndexEntry) -> None:
        """Records in the catalog the array paths and type bits that the last document adds to `index`.

        Called when `index.became_multikey()`.
        """
        self.service.catalog.record_multikey_change(self.collection, index, self._work)

    def delete(self, records: list[Record]) -> None:
        """Deletes records and their index entries. WriteConflict if one of them was changed or deleted meanwhile, or if
        there was no room on the disk, but is now.

        An index under construction has no entries of records that its build has not read yet: their keys are not
        generated, because that may fail.
        """
        collection = self.collection
        try:
            for index in collection.writable_indexes:
                covered = records if index.ready else [record for record in records if index.covers_record(record[0])]
                self.index(index).remove([(key, record[0]) for record in covered for key in index.keys_of(record[1])])
            self.records.delete_records(records)
        except DiskFull as error:
            raise self._without_room(error) from None
        self._removed = [*self._removed, *records] if self._removed else records
        self._changed = True

    def commit(self) -> None:
        """Commits, then arms the wheel, notifies waiting cursors and counts. WriteConflict: all is rolled back."""
        service = self.service
        cluster_clock = service.cluster_clock
        at = cluster_clock.tick(self._now_ms)
        entry = self.oplog_entry()
        evicted: OplogEntry | None = None
        if self.inserted and self._removed and entry is not None:
            evicted = self._deletion()
        write = self.retryable_write
        if write is not None and self._notes_statements(write) and service.oplog.rows is not None:
            if entry is None:
                entry = no_operation()
            (evicted or entry).statements = write.statements
        if entry is not None:
            service.oplog.put(entry, at, self._now_ms, self._work)
        if evicted is not None:
            service.oplog.put(evicted, cluster_clock.tick(self._now_ms), self._now_ms, self._work)
        if cluster_clock.limit_due:
            cluster_clock.put_limit(self._work)
        try:
            self._work.commit()
        except DiskFull as error:
            raise self._without_room(error) from None
        if self.meter is not None:
            self.count(self.meter)
        if write is not None:
            service.sessions.committed(write, self._now_ms, at)
        if entry is not None:
            service.append_entry(entry)
        if evicted is not None:
            service.append_entry(evicted)
        self.after_commit()

    def _without_room(self, error: DiskFull) -> Exception:
        """What to raise for a unit that found no room: WriteConflict, so that it is repeated, if it only deletes and
        the engine has made room for that."""
        if not self._rows and self.service.engine.make_room():
            self.service.note_full_disk()
            return WriteConflict(str(error))
        return error

    def count(self, meter: Meter) -> None:
        """Counts what the unit has changed. Purges of expired documents cost nothing."""
        after = [row[0] for row in self._rows]
        if self.inserted:
            meter.insert(self.collection, after)
        elif after:
            meter.update(self.collection, self.before, after)
        elif not self.purged:
            meter.delete(self.collection, [record[1] for record in self._removed])

    def oplog_entry(self) -> OplogEntry | None:
        """What the unit has changed, for the oplog; None for nothing that is logged."""
        collection = self.collection
        if not self._changed or not is_logged(collection) or collection.time_series is not None:
            return None
        images = collection.options.records_images
        database, name, uuid = collection.database, collection.name, collection.uuid
        if self._removed and not self._rows:
            return self._deletion()
        after = [row[0] for row in self._rows]
        if self.inserted:
            return OplogEntry(INSERT, database, name, uuid, [], after, images)
        before = self.before
        if len(after) == 1:
            if after[0] == before[0]:
                return None  # only `_ts` has changed
        else:
            changed = [i for i in range(len(after)) if after[i] != before[i]]
            if not changed:
                return None
            before = [before[i] for i in changed]
            after = [after[i] for i in changed]
        entry = OplogEntry(UPDATE, database, name, uuid, before, after, images)
        driver = self.driver
        if driver is not None:
            entry.replaced = driver.kind == "replacement"
            if driver.touched_paths is not None:
                entry.touched = tuple(driver.touched_paths)
        return entry

    def _deletion(self) -> OplogEntry:
        """The deletion of documents by the unit. Those that an insert into a capped collection displaces are logged
        behind it, as MongoDB has done since version 5.0 (SERVER-16049)."""
        return deletion(self.collection, [record[1] for record in self._removed])

    def after_commit(self) -> None:
        """What follows the engine's commit: the wheel, counters, tailing cursors."""
        service = self.service
        collection = self.collection
        if self._changed:
            collection.writes += 1
            arm_records(service, collection, self._rows)
        if self.purged:
            service.metrics.ttl_deleted_documents += self.purged
            collection.purged_documents += self.purged
        if self.inserted and collection.options.capped:
            service.cursors.notify_inserted(collection.number)

    def _notes_statements(self, write: RetryableWrite) -> bool:
        """Notes what this unit does for a retryable write: one insert or more, or the update or delete of a record;
        whether there is anything to note."""
        write.begin_unit()
        if self.purged:
            return False
        failing = self.service.fail_points.transactional_write()
        if failing is not None:
            write.closes_connection = failing.close_connection
            failing.fail()
        rows = self._rows
        if self.inserted:
            write.note_inserts(len(rows), rows[0][0])
        elif self.replaced is not None:
            write.note_update(self.replaced, rows[0][0])
        elif self._removed:
            write.note_delete(self._removed[0][1])
        return len(write.pending) > 0


class RecordingWriteUnit(WriteUnit):
    """A unit of work while snapshots are open: its commit leaves before-images for them.

    ClaimedByTransaction for a record or unique key that an open transaction has written.
    """

    def __init__(
        self,
        service: ServiceContext,
        collection: Collection,
        work: WriteUnitOfWork,
        retryable_write: RetryableWrite | None,
    ) -> None:
        self._images = CommitImages()
        records = RecordingRecords(collection.store, self._images, service.claims)
        super().__init__(service, collection, records, work, retryable_write)

    def index(self, entry: IndexEntry) -> SortedDataInterface:
        if not entry.ready:
            return entry.sorted_data  # no snapshot or transaction reads it
        return RecordingEntries(entry.sorted_data, self._images, self.service.claims)

    def after_commit(self) -> None:
        self.service.history.append(self._images)
        super().after_commit()


def living_now(service: ServiceContext, collection: Collection, records: list[Record]) -> list[Record]:
    """The records that are not expired at the current time, which may be later than the command's own (`op.now_s`)."""
    default_ttl_s = collection.default_ttl_s
    if default_ttl_s == NO_TTL:
        return records
    now_s = service.now_s()
    return [record for record in records if not is_expired(record[2], record[3], default_ttl_s, now_s)]
