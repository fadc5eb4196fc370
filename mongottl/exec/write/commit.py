"""The commit of a transaction in one unit of work, whole or not at all.

A transaction may have written a million documents. What can be made before is made then, while others run; the unit of
work is carried out in parts, between which those are answered whose requests touch no data (`Stacks.let_ask`); what has
to be freed then is freed in slices (`document.freeing`).
"""

from typing import Final

from mongottl.catalog.change_kinds import DELETE, INSERT, UPDATE
from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.document.freeing import LONG, LongList
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.transaction_unit import collection_held, release
from mongottl.exec.service.commit_log import CommittedTransaction
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.sessions.retryable_writes import RetryableWrite
from mongottl.exec.sessions.session_ids import shown_id
from mongottl.exec.sessions.transactions import COMMITTED, Transaction
from mongottl.exec.write.writes import duplicate_key_error
from mongottl.oplog.change import Change, LoggedChange
from mongottl.storage.errors import DuplicateKey, SnapshotConflict
from mongottl.storage.interface import KeptWrites, WriteUnitOfWork
from mongottl.storage.stores import NewRecord, Record

# From this number on the changes of a transaction are described before its unit of work, while others run.
_MANY_CHANGES: Final = 16
# The records of a part of what is done in the unit.
_PART: Final = 512


def commit_transaction(op: OperationContext, transaction: Transaction) -> None:
    """Commits a transaction in progress. Its records keep the `_ts` of the statements that wrote them. The session
    remembers the commit, with a data directory in the same unit of work.

    If it raises, the transaction is still in progress, and must be aborted: SnapshotConflict if a collection that it
    has created exists meanwhile, or a database whose name differs in case only, or if a collection that it has written
    was dropped, or is being copied by a server; DuplicateKeyError (11000) for an index that became ready meanwhile.
    """
    service = op.service
    catalog = service.catalog
    logged = _logged(op, transaction)
    # An engine may wait here, and others change what is looked at below.
    unit = transaction.data.final_unit(service.engine, bool(transaction.pending))
    with unit as work:
        for collection in transaction.pending.values():
            if collection.dropped:
                raise SnapshotConflict("a collection of the transaction was dropped by others")
            if catalog.find(collection.database, collection.name) is not None:
                raise SnapshotConflict("a collection of the transaction was created by others")
            if catalog.database_spelled_otherwise(collection.database) is not None:
                raise SnapshotConflict("a database that differs from one of the transaction in case only was created")
        commit = _Commit(service, transaction)
        session = service.sessions.find(transaction.session_key)
        note: RetryableWrite | None = None
        if session is not None and (transaction.data.has_written or transaction.pending):
            note = service.sessions.begin_write(session, transaction.number)
        now_ms = service.clock.now_ms()
        for collection in transaction.pending.values():
            catalog.publish(collection, work)
        for collection in transaction.collections.values():
            commit.carry_out(collection, work)
        if commit.changes or transaction.pending:
            service.engine.require_room()
        if note is not None:
            note.note_commit()
        named = CommittedTransaction(
            shown_id(transaction.session_key),
            transaction.number,
            service.stacks.let_ask,
            transaction.kept_forms,
            transaction.kept_operations,
        )
        service.commit_log.commit(work, commit.changes, logged, now_ms, note, named)
    transaction.data.committed()
    for collection in transaction.pending.values():
        catalog.published(collection)
    service.transactions.end(transaction, COMMITTED)
    release(service, transaction)


def _logged(op: OperationContext, transaction: Transaction) -> list[LoggedChange]:
    """The changes of a transaction for the oplog. If it stores them they are described, while others run."""
    changes = transaction.changes
    if len(changes) < _MANY_CHANGES or not op.service.commit_log.describes:
        return LongList(changes) if len(changes) >= LONG else list(changes)
    described: list[LoggedChange] = LongList() if len(changes) >= LONG else []
    for change in changes:
        described.append(change.described())
        op.give_way()
    return described


def _check_open(collection: Collection) -> None:
    if collection.dropped:
        raise SnapshotConflict("a collection of the transaction was dropped")
    if collection.held_by:
        raise collection_held(collection)


class _Commit:
    """The writes of a transaction as they are given to the engine. changes: what they change in each collection."""

    def __init__(self, service: ServiceContext, transaction: Transaction) -> None:
        self._service = service
        self._let_ask = service.stacks.let_ask
        self._transaction = transaction
        self.changes: list[Change] = []

    def carry_out(self, collection: Collection, work: WriteUnitOfWork) -> None:
        """Writes what the transaction has written to a collection and the engine does not have yet. Inside its final
        unit of work."""
        data = self._transaction.data
        if not data.keeps_writes and collection.number in self._transaction.ready_indexes:
            _check_open(collection)
            self.changes.append(Change(UPDATE, collection, [], []))
        kept = data.kept_writes(collection.store, self._let_ask)
        if kept is None:
            return
        _check_open(collection)
        kept.load()
        ready = self._transaction.ready_indexes[collection.number]
        for index in collection.writable_indexes:
            if index.ident in ready:
                kept.remove_entries(index.sorted_data)
            else:
                self._remove_generated(kept, index, kept.deleted)
                self._remove_generated(kept, index, kept.old)
        written = kept.write_records()
        for index in collection.writable_indexes:
            if index.ident in ready:
                kept.insert_entries(index.sorted_data)
        for index in collection.writable_indexes:
            if index.ident not in ready:
                self._insert_generated(kept, collection, index, written, work)
        if kept.deleted:
            self.changes.append(Change(DELETE, collection, self._documents(kept.deleted), []))
        if kept.replacing:
            before = self._documents(kept.old)
            self.changes.append(Change(UPDATE, collection, before, self._rows(kept.replacing)))
        if kept.inserted:
            self.changes.append(Change(INSERT, collection, [], kept.inserted))

    def _documents(self, records: list[Record]) -> list[bytes]:
        documents: list[bytes] = LongList() if len(records) >= LONG else []
        for start in range(0, len(records), _PART):
            documents += [record[1] for record in records[start : start + _PART]]
            self._let_ask()
        return documents

    def _rows(self, records: list[Record]) -> list[NewRecord]:
        """Records without their ids."""
        rows: list[NewRecord] = LongList() if len(records) >= LONG else []
        for start in range(0, len(records), _PART):
            rows += [(record[1], record[2], record[3]) for record in records[start : start + _PART]]
            self._let_ask()
        return rows

    def _remove_generated(self, kept: KeptWrites, index: CollectionIndex, records: list[Record]) -> None:
        """Removes the entries of records from an index that was not ready when the transaction wrote them."""
        data = kept.entries(index.sorted_data)
        for record in records:
            if index.covers_record(record[0]):
                data.remove([(key, record[0]) for key in index.keys_of(record[1])])
                self._let_ask()

    def _insert_generated(
        self,
        kept: KeptWrites,
        collection: Collection,
        index: CollectionIndex,
        records: list[Record],
        work: WriteUnitOfWork,
    ) -> None:
        data = kept.entries(index.sorted_data)
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
            self._let_ask()
