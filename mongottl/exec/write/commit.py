"""The commit of a transaction: its write set is given to the engine in one unit of work, whole or not at all."""

from mongottl.catalog.change_kinds import DELETE, INSERT, UPDATE
from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.exec.operation.transaction_unit import release
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.sessions.retryable_writes import RetryableWrite
from mongottl.exec.sessions.session_ids import shown_id
from mongottl.exec.sessions.transactions import COMMITTED, Transaction
from mongottl.exec.write.writes import duplicate_key_error
from mongottl.oplog.change import Change
from mongottl.storage.interface import (
    DuplicateKey,
    KeyEntry,
    NewRecord,
    Record,
    RecordStore,
    SortedDataInterface,
    WriteUnitOfWork,
)
from mongottl.storage.snapshot.claims import SnapshotConflict
from mongottl.storage.snapshot.history import CommitImages
from mongottl.storage.snapshot.recording import RecordingEntries, RecordingRecords
from mongottl.storage.snapshot.write_set import FIRST_PROVISIONAL_ID


def commit_transaction(service: ServiceContext, transaction: Transaction) -> None:
    """Commits a transaction in progress. Its records keep the `_ts` of the statements that wrote them. The session
    remembers the commit, with a data directory in the same unit of work.

    If it raises, the transaction is still in progress, and must be aborted: SnapshotConflict if a collection that it
    has created exists meanwhile, or a database whose name differs in case only, or if a collection that it has written
    was dropped; DuplicateKeyError (11000) for an index that became ready meanwhile.
    """
    catalog = service.catalog
    for collection in transaction.pending.values():
        if catalog.find(collection.database, collection.name) is not None:
            raise SnapshotConflict("a collection of the transaction was created by others")
        if catalog.database_spelled_otherwise(collection.database) is not None:
            raise SnapshotConflict("a database that differs from one of the transaction in case only was created")
    commit = _Commit(service, transaction)
    session = service.sessions.find(transaction.session_key)
    note: RetryableWrite | None = None
    if session is not None and (transaction.write_set.bytes > 0 or transaction.pending):
        note = service.sessions.begin_write(session, transaction.number)
    now_ms = service.clock.now_ms()
    with service.engine.unit_of_work() as work:
        for collection in transaction.pending.values():
            catalog.publish(collection, work)
        for collection in transaction.collections.values():
            commit.carry_out(collection, work)
        if commit.changes or transaction.pending:
            service.engine.require_room()
        if note is not None:
            note.note_commit()
        named = (shown_id(transaction.session_key), transaction.number)
        service.commit_log.commit(work, commit.changes, transaction.changes, now_ms, note, named)
    service.history.append(commit.images)
    for collection in transaction.pending.values():
        catalog.published(collection)
    service.transactions.end(transaction, COMMITTED)
    release(service, transaction)


class _Commit:
    """The writes of a transaction as they are given to the engine. changes: what they change in each collection."""

    def __init__(self, service: ServiceContext, transaction: Transaction) -> None:
        self._service = service
        self._transaction = transaction
        self._write_set = transaction.write_set
        # Only other snapshots need before-images, but then the history must number this commit.
        self._recording = service.history.open_snapshots > 1
        self.images = CommitImages()
        self.changes: list[Change] = []

    def _records(self, store: RecordStore) -> RecordStore:
        return RecordingRecords(store, self.images, None) if self._recording else store

    def _entries(self, data: SortedDataInterface) -> SortedDataInterface:
        return RecordingEntries(data, self.images, None) if self._recording else data

    def carry_out(self, collection: Collection, work: WriteUnitOfWork) -> None:
        """Writes what the transaction has written to a collection. Inside a unit of work."""
        patch = self._write_set.records.get(collection.store.ident)
        if patch is None or not patch.order:
            return
        if collection.dropped:
            raise SnapshotConflict("a collection of the transaction was dropped")
        records = self._records(collection.store)
        deleted: list[Record] = []
        old: list[Record] = []
        new: list[Record] = []
        inserted: list[Record] = []
        for record_id in patch.order:
            image = patch.images[record_id]
            if record_id >= FIRST_PROVISIONAL_ID:
                if image is not None:
                    inserted.append(image)
                continue
            before = records.find_record(record_id)
            if before is None:
                raise SnapshotConflict("a record of the transaction was deleted")
            if image is None:
                deleted.append(before)
            else:
                old.append(before)
                new.append(image)
        ready = self._transaction.ready_indexes[collection.number]
        added: list[tuple[CollectionIndex, list[KeyEntry]]] = []
        for index in collection.writable_indexes:
            if index.ident in ready:
                added.append((index, self._remove_noted(index)))
            else:
                self._remove_generated(index, deleted + old)
        records.delete_records(deleted)
        records.update_records(old, new)
        rows: list[NewRecord] = [(record[1], record[2], record[3]) for record in inserted]
        ids = dict(zip([record[0] for record in inserted], records.insert_records(rows), strict=True))
        for index, entries in added:
            self._entries(index.sorted_data).insert([(key, ids.get(rid, rid)) for key, rid in entries])
        written = new + [(ids[record[0]], record[1], record[2], record[3]) for record in inserted]
        for index in collection.writable_indexes:
            if index.ident not in ready:
                self._insert_generated(collection, index, written, work)
        if deleted:
            self.changes.append(Change(DELETE, collection, [record[1] for record in deleted], []))
        if new:
            updated = [(record[1], record[2], record[3]) for record in new]
            self.changes.append(Change(UPDATE, collection, [record[1] for record in old], updated))
        if rows:
            self.changes.append(Change(INSERT, collection, [], rows))

    def _remove_noted(self, index: CollectionIndex) -> list[KeyEntry]:
        """Removes the entries that the transaction has removed; those that it has added."""
        patch = self._write_set.entries.get(index.ident)
        if patch is None:
            return []
        gone = [e for e in patch.order if not patch.images[e] and e[1] < FIRST_PROVISIONAL_ID]
        if gone:
            self._entries(index.sorted_data).remove(gone)
        return [entry for entry in patch.order if patch.images[entry]]

    def _remove_generated(self, index: CollectionIndex, records: list[Record]) -> None:
        """Removes the entries of records from an index that was not ready when the transaction wrote them."""
        covered = [record for record in records if index.covers_record(record[0])]
        entries = [(key, record[0]) for record in covered for key in index.keys_of(record[1])]
        self._entries(index.sorted_data).remove(entries)

    def _insert_generated(
        self, collection: Collection, index: CollectionIndex, records: list[Record], work: WriteUnitOfWork
    ) -> None:
        data = self._entries(index.sorted_data)
        for record in records:
            if not index.covers_record(record[0]):
                continue
            keys = index.keys_of(record[1])
            if index.became_multikey():
                self._service.catalog.record_multikey_change(collection, index, work)
            try:
                data.insert([(key, record[0]) for key in keys])
            except DuplicateKey as duplicate:
                raise duplicate_key_error(self._service, collection, index, record[1], duplicate.key) from None
