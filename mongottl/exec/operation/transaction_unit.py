"""How a statement of a transaction reads and writes: its recovery unit, its units of work and its catalog.

    begin(service, …) ──► Transaction ──► enter(op, transaction)     for each statement
                               └────────► abort(service, transaction), or `write.commit`

Reads give what was committed when the transaction began, with its own writes; TTL is judged by each statement's own
time. Writes belong to the transaction of the engine. A collection that it creates is in no database until the commit.
"""

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.index import IndexDescriptor
from mongottl.catalog.namespace import spelled_otherwise
from mongottl.catalog.options import NO_OPTIONS, CollectionOptions
from mongottl.catalog.view import View
from mongottl.clock import VirtualClock
from mongottl.document.freeing import put_aside_heavy
from mongottl.document.interrupt import Undivided
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.session_statement import statement_of
from mongottl.exec.service.service import MS_PER_S, ServiceContext
from mongottl.exec.sessions.session_ids import shown_id
from mongottl.exec.sessions.snapshot_catalog import SnapshotCatalog
from mongottl.exec.sessions.transactions import ABORTED, Transaction
from mongottl.exec.unit.recovery_unit import RecoveryUnit
from mongottl.exec.unit.write_unit import WriteUnit
from mongottl.exec.unit.written import WrittenCounts
from mongottl.oplog.change import LoggedChange
from mongottl.oplog.entry import OplogEntry, TransactionPart, open_form
from mongottl.storage.errors import EngineUnavailable, SnapshotConflict, WriteConflict
from mongottl.storage.stores import RecordStore, SortedDataInterface
from mongottl.ttl.policy import NO_TTL

# How much of the changes of a transaction is in memory whose writes the engine has.
MOST_CHANGES_BYTES: Final = 4 << 20
# A transaction with fewer changes frees them at once.
_FEW_CHANGES: Final = 4


def begin(service: ServiceContext, session_key: bytes, number: int) -> Transaction:
    """A new transaction of a session that has none in progress, with a snapshot of the present."""
    now_s = service.clock.monotonic_s()
    data = service.isolation.begin_transaction()
    transaction = Transaction(session_key, number, data, service.catalog.version, now_s)
    transaction.started_ms = service.clock.now_ms()
    transaction.read_at = service.cluster_clock.operation_time
    transaction.deadline_s = now_s + service.transaction_lifetime_s
    lifetimes_ms = [service.bounds.max_transaction_ms] if service.bounds.max_transaction_ms else []
    if isinstance(service.clock, VirtualClock):
        # Tests let the time pass by moving the clock.
        lifetimes_ms.append(int(service.transaction_lifetime_s * MS_PER_S))
    if lifetimes_ms:
        transaction.deadline_ms = transaction.started_ms + min(lifetimes_ms)
    service.transactions.add(transaction)
    return transaction


def enter(op: OperationContext, transaction: Transaction) -> None:
    """Makes an operation a statement of a transaction. SnapshotTooOld (239)."""
    if transaction.data.too_old:
        raise CommandError(
            ErrorCode.SnapshotTooOld,
            "the snapshot of the transaction is older than the history of changes, which is bounded in memory",
        )
    transaction.active_since_s = op.service.clock.monotonic_s()
    op.session = statement_of(transaction)
    op.recovery_unit = TransactionRecoveryUnit(op.service, transaction, op.profile.written)
    op.catalog = TransactionCatalog(op.service, transaction)


def abort(service: ServiceContext, transaction: Transaction) -> None:
    """Aborts a transaction in progress: nothing that it has written remains.

    Nothing waits here, whatever the storage engine: it is called where no operation runs, too, and between the look
    whether a session is busy and the note that it is.
    """
    service.transactions.end(transaction, ABORTED)
    created = list(transaction.pending.values())
    release(service, transaction)
    if created:
        service.hooks.run_aside(partial(_drop_created, service, created))


def _drop_created(service: ServiceContext, created: list[Collection]) -> None:
    """Drops the collections that a transaction has created in vain. What that fails for is dropped at the next start,
    since no catalog entry names it."""
    for collection in created:
        with suppress(EngineUnavailable, WriteConflict), Undivided():
            service.catalog.drop_pending(collection)


def abort_open(service: ServiceContext, session_key: bytes) -> None:
    """Aborts the transaction of a session that ends; at the end of its statement if one is running."""
    latest = service.transactions.latest(session_key)
    if latest is not None and latest.in_progress:
        if latest.busy:
            latest.expired = True
        else:
            abort(service, latest)


def release(service: ServiceContext, transaction: Transaction) -> None:
    """Frees what an ended transaction holds: cursors, claims, snapshot. What waits for it goes on."""
    service.cursors.close_where_transaction(transaction)
    transaction.data.release()
    # The reaper has passed over what the transaction had written.
    transaction.data.after_end(partial(_arm, service, list(transaction.collections.values())))
    transaction.collections.clear()
    transaction.ready_indexes.clear()
    transaction.pending.clear()
    transaction.missing.clear()
    _let_go(transaction)


def _let_go(transaction: Transaction) -> None:
    """Frees the changes of an ended transaction in slices: they may have a million documents."""
    changes = transaction.changes
    if len(changes) < _FEW_CHANGES:
        changes.clear()
    else:
        transaction.changes = deque()
        put_aside_heavy(list(changes), max(changes[0].count, changes[-1].count))


def _arm(service: ServiceContext, collections: list[Collection]) -> None:
    for collection in collections:
        if not collection.dropped and (collection.default_ttl_s != NO_TTL or collection.date_ttl_indexes):
            service.expiry.wheel.arm(collection.number, service.now_s())
            service.hooks.wake_reaper()


def abort_expired(service: ServiceContext) -> float:
    """Aborts the transactions that have outlived `transactionLifetimeLimitSeconds` and run no statement; monotonic time
    at which the next one will have, or 0.0 if none is in progress."""
    now_s = service.clock.monotonic_s()
    now_ms = service.clock.now_ms()
    following_s = 0.0
    for transaction in service.transactions.open():
        if transaction.is_over(now_s, now_ms):
            transaction.timed_out = True
            if transaction.busy:
                transaction.expired = True
            else:
                abort(service, transaction)
        elif following_s == 0.0 or transaction.deadline_s < following_s:
            following_s = transaction.deadline_s
    return following_s


class TransactionRecoveryUnit(RecoveryUnit):
    """The reads and writes of one statement of a transaction."""

    def __init__(self, service: ServiceContext, transaction: Transaction, written: WrittenCounts | None) -> None:
        super().__init__(service)
        self._transaction = transaction
        self.written = written

    def records(self, collection: Collection) -> RecordStore:
        return self._transaction.data.records_view(collection.store)

    def index(self, entry: CollectionIndex) -> SortedDataInterface:
        return self._transaction.data.entries_view(entry.sorted_data)

    def write(self, collection: Collection) -> WriteUnit:
        """OperationNotSupportedInTransaction (263) for a capped or time series collection."""
        if collection.options.capped:
            raise CommandError(
                ErrorCode.OperationNotSupportedInTransaction,
                f"Collection '{collection.namespace}' is a capped collection. Writes in transactions are not allowed on"
                " capped collections.",
            )
        if collection.time_series is not None:
            raise CommandError(
                ErrorCode.OperationNotSupportedInTransaction,
                f"Cannot write to a time-series collection in a multi-document transaction: {collection.namespace}",
            )
        if not self._transaction.data.keeps_writes and any(not index.ready for index in collection.writable_indexes):
            # The transaction does not see what the build adds to it.
            raise SnapshotConflict("an index of the collection is being built")
        if collection.held_by:
            raise collection_held(collection)
        unit = TransactionWriteUnit(self._service, collection, self._transaction)
        unit.written = self.written
        return unit


def collection_held(collection: Collection) -> SnapshotConflict:
    """A transaction waits for nobody who copies a collection."""
    return SnapshotConflict(f"{collection.namespace} is being copied")


class TransactionWriteUnit(WriteUnit):
    """A unit of work of a statement: it commits into its transaction."""

    def __init__(self, service: ServiceContext, collection: Collection, transaction: Transaction) -> None:
        data = transaction.data
        super().__init__(service, collection, data.own_records(collection.store), data.statement())
        self._data = data
        self._transaction = transaction
        if collection.number not in transaction.ready_indexes:
            ready = [index.ident for index in collection.writable_indexes if index.ready]
            transaction.ready_indexes[collection.number] = frozenset(ready)

    def _held(self) -> Exception:
        return collection_held(self.collection)

    def index(self, entry: CollectionIndex) -> SortedDataInterface:
        return self._data.own_entries(entry.sorted_data, entry.ready)

    def record_multikey_change(self, index: CollectionIndex) -> None:
        """Recorded at once, whether or not the transaction commits: an index may be taken for multikey in vain."""
        with self._data.unit_beside(self.service.engine) as work:
            self.service.catalog.record_multikey_change(self.collection, index, work)
            work.commit()

    def commit(self) -> None:
        self._work.commit()
        self.count()
        changes = self.logged_changes()
        self._transaction.changes.extend(changes)
        if not self._data.keeps_writes:
            self._leave_to_engine(changes)

    def _leave_to_engine(self, changes: list[LoggedChange]) -> None:
        """Bounds what is in memory of a transaction of which the engine has the writes."""
        transaction = self._transaction
        for change in self.changes:
            self.service.commit_log.arm(change)
        transaction.changes_bytes += sum([change.size_bytes() for change in changes])
        if transaction.changes_bytes <= MOST_CHANGES_BYTES:
            return
        lsid = shown_id(transaction.session_key)
        forms: list[bytes] = []
        stacks = self.service.stacks
        # The last one is left: the commit puts in it what the session has done.
        while len(transaction.changes) > 1:
            kept = transaction.changes.popleft()
            part = TransactionPart(lsid, transaction.number, transaction.kept_operations, 0)
            forms.append(open_form(OplogEntry(kept, 0, 0, 0, part)))
            transaction.kept_operations += kept.count
            if stacks.present is not None:
                stacks.let_ask()
        transaction.kept_forms += len(forms)
        transaction.changes_bytes = sum([change.size_bytes() for change in transaction.changes])
        if forms:
            self._data.keep_forms(forms)


class TransactionCatalog(SnapshotCatalog):
    """The catalog as a transaction sees it: with the collections that it has created."""

    def __init__(self, service: ServiceContext, transaction: Transaction) -> None:
        super().__init__(service.catalog, transaction.catalog_version)
        self._transaction = transaction
        self._dialect = service.dialect

    def find(self, database: str, name: str) -> Collection | View | None:
        transaction = self._transaction
        pending = transaction.pending.get(f"{database}.{name}")
        if pending is not None:
            return pending
        found = super().find(database, name)
        if isinstance(found, Collection):
            self._use(found)
        elif found is None and self._dialect.limits_transactions and not name.startswith("system."):
            self._check(f"{database}.{name}", False)
            transaction.missing.add(f"{database}.{name}")
        return found

    def _use(self, collection: Collection) -> None:
        """Notes a collection that a statement names. An error if the dialect refuses it."""
        self._check(collection.namespace, collection.shard_key is not None)
        self._transaction.uses(collection)

    def _check(self, namespace: str, is_sharded: bool) -> None:
        if self._dialect.limits_transactions:
            transaction = self._transaction
            used = [*transaction.missing, *[other.namespace for other in transaction.collections.values()]]
            self._dialect.check_in_transaction(namespace, is_sharded, used)

    def database_spelled_otherwise(self, database: str) -> str | None:
        shared = super().database_spelled_otherwise(database)
        created = [collection.database for collection in self._transaction.pending.values()]
        return spelled_otherwise(database, created) if shared is None else shared

    def create_collection(
        self, database: str, name: str, options: CollectionOptions = NO_OPTIONS, uuid: bytes | None = None
    ) -> Collection:
        collection = self.shared.create_pending(database, name, options, uuid)
        self._transaction.pending[collection.namespace] = collection
        self._use(collection)
        return collection

    def start_indexes(self, collection: Collection, descriptors: Sequence[IndexDescriptor]) -> list[CollectionIndex]:
        """OperationNotSupportedInTransaction (263) for a collection that the transaction has not created, or that has
        documents ("Create Collections and Indexes in a Transaction")."""
        kind = "" if collection.pending else "existing"
        if collection.pending and self._transaction.data.records_view(collection.store).count():
            kind = "non-empty"
        if kind:
            raise CommandError(
                ErrorCode.OperationNotSupportedInTransaction,
                f"Cannot create new indexes on {kind} collection {collection.namespace} in a multi-document"
                " transaction.",
            )
        return self.shared.start_indexes(collection, descriptors)

    def finish_indexes(
        self,
        collection: Collection,
        built: list[CollectionIndex],
        replaced: CollectionIndex | None = None,
        dropped: Sequence[CollectionIndex] = (),
    ) -> None:
        for index in built:
            index.ready = True
        collection.set_indexes(collection.indexes)
