"""Transactions of several statements: each is one of PostgreSQL, on a connection of its own.

    first statement    a connection, BEGIN REPEATABLE READ; the first query takes the snapshot
    statement          SAVEPOINT, its writes, RELEASE; or ROLLBACK TO if it is undone
    read               over the same connection, so it sees what the transaction has written
    commit             another name for the session, the row of the oplog (`log`), COMMIT: one exchange
    end without that   ROLLBACK, aside: nobody waits for it

Who is first wins. PostgreSQL says 40001 where a row or key was committed after the snapshot, and 55P03 where another
transaction that has not ended has it, after a few milliseconds: both are SnapshotConflict, after which the transaction
can only be ended. Keys are inserted with ON CONFLICT DO NOTHING: a key that was committed after the snapshot would be
a false DuplicateKey otherwise. One that was deleted after it is still there for the transaction.

A unit of work of others that meets what a transaction has written gets ClaimedByTransaction; it gives its connection
back, and is tried again when some transaction has ended, or after CLAIM_LOOK_S.
"""

from collections.abc import Callable, Mapping
from typing import Final

from mongottl.storage.errors import (
    ClaimOwner,
    DiskFull,
    EngineUnavailable,
    SeveralPlaces,
    SnapshotConflict,
    StorageError,
    StoreUnreachable,
)
from mongottl.storage.interface import KeptWrites, OpenTransaction, StorageEngine, WriteUnitOfWork
from mongottl.storage.postgresql.access import Access
from mongottl.storage.postgresql.connection import Connection
from mongottl.storage.postgresql.failures import CONFLICT, FENCE, FULL, LOCKED, StoreFailure
from mongottl.storage.postgresql.log import Changes, Counters, add_change, keep_call
from mongottl.storage.postgresql.pool import ConnectionPool
from mongottl.storage.postgresql.records import PostgresRecordStore
from mongottl.storage.postgresql.snapshots import SnapshotStores
from mongottl.storage.postgresql.sorted_data import STRICT, PostgresSortedData
from mongottl.storage.postgresql.statements import TEXT, Answer, Call, Parameter, Statement, text
from mongottl.storage.postgresql.units import AWAY, UNKNOWN_EPOCH, PostgresUnit, PostgresUnits, Row
from mongottl.storage.stores import KeyEntry, Record, RecordStore, SortedDataInterface
from mongottl.storage.waiting import Waiter

# How long the first statement of a transaction waits for one of the connections, in seconds.
CONNECTION_S: Final = 30.0
# How long a plain write waits at most before it is tried again, in seconds.
CLAIM_LOOK_S: Final = 0.05
# Between two attempts to begin while the database is away, in seconds.
PAUSE_S: Final = 0.05

_BEGIN_RAISE: Final = Statement("begin_raise", "BEGIN")
_COMMIT_RAISE: Final = Statement("commit_raise", "COMMIT")
_ROLLBACK: Final = Statement("rollback_transaction", "ROLLBACK")
_SAVEPOINT: Final = Statement("savepoint", "SAVEPOINT statement")
_RELEASE: Final = Statement("release", "RELEASE SAVEPOINT statement")
_UNDO: Final = Statement("undo", "ROLLBACK TO SAVEPOINT statement")
# Until the end of the transaction. The log counts on the name; a row of the commit may be waited for as others do.
_COMMITTING: Final = Statement(
    "committing",
    "SELECT set_config('application_name', $1, true), set_config('lock_timeout', '1s', true)",
    (TEXT,),
)


class StatementUnit(PostgresUnit):
    """The writes of one statement. Its own operation reads over the connection of the transaction meanwhile."""

    def __init__(self, units: PostgresUnits, transaction: "PostgresTransaction") -> None:
        super().__init__(units, alone=False)
        self._transaction: Final = transaction
        self._is_sent = False
        self._is_kept = False
        self.asks_for_keys = True

    @property
    def has_written(self) -> bool:
        return True

    def visit(self, place: int) -> None:
        self._transaction.visit(place)

    def _send(self, calls: list[Call], refused: int = -1) -> list[Answer]:
        self.pause()
        sent = self.take_kept()
        skipped = len(sent)
        if not self._is_sent:
            self._is_sent = True
            sent.insert(0, (_SAVEPOINT, ()))
            skipped += 1
        try:
            return self._transaction.run([*sent, *calls], True)[skipped:]
        except BaseException:
            self.mark_failed()
            raise

    def commit(self) -> None:
        units = self._units
        if units.require() is not self:
            raise RuntimeError("another unit of work is open")
        if self.has_kept:
            self._send([])
        self._is_kept = True
        self._transaction.keep_statement(self)
        units.end(self)
        for action in self.commit_actions:
            action()

    def give_back_connection(self) -> None:
        """At the end of the statement."""
        if self._is_sent:
            self._is_sent = False
            self._transaction.defer([(_RELEASE, ())] if self._is_kept else [(_UNDO, ()), (_RELEASE, ())])


class CommitUnit(PostgresUnit):
    """The unit that commits a transaction, with its own writes.

    A transaction cannot raise the version of the catalog itself, which others may have raised since its snapshot: that
    would be a conflict. Another connection raises it first, and commits that right after the transaction. If the server
    is killed between these, whoever clears its place away raises it. Which version the changes got is not certain for
    that, so other servers always read them again.
    """

    def __init__(self, units: PostgresUnits, alone: bool, transaction: "PostgresTransaction") -> None:
        super().__init__(units, alone)
        self._transaction: Final = transaction
        self._raiser: Connection | None = None
        self.asks_for_keys = True
        self.log_place = transaction.place or 0
        for counters, (count, size) in transaction.changed.items():
            self.count_change(counters, count, size)

    @property
    def has_written(self) -> bool:
        return True

    def visit(self, place: int) -> None:
        self._transaction.visit(place)

    def end_kept_forms(self, ends: list[bytes]) -> None:
        self.kept_ends = ends
        self.forms_before_kept = len(self.forms)  # of the collections that it makes
        self.kept_form_bytes = self._transaction.kept_form_bytes

    @property
    def connection(self) -> Connection | None:
        return self._transaction.connection

    def _send(self, calls: list[Call], refused: int = -1) -> list[Answer]:
        self.pause()
        kept = super().take_kept()
        try:
            return self._transaction.run([*kept, *calls], True)[len(kept) :]
        except BaseException:
            self.mark_failed()
            raise

    def take_kept(self) -> list[Call]:
        transaction = self._transaction
        kept = super().take_kept()
        if transaction.connection is None:
            return kept  # it has read nothing and written nothing, so these are a plain unit
        return [*transaction.take_deferred(), *kept, (_COMMITTING, (text(self._units.log.session),))]

    def ask_last(self, calls: list[Call]) -> list[Row]:
        # Under its other name, as it has to be when it takes a position.
        return super().ask_last([(_COMMITTING, (text(self._units.log.session),)), *calls])

    def commit(self) -> None:
        units = self._units
        if self.has_kept or self.changed or self.forms or self.before_commit or units.require() is not self:
            units.commit(self)
            return
        units.end(self)  # nothing was written
        for action in self.commit_actions:
            action()

    @property
    def catalog_epoch(self) -> int:
        return UNKNOWN_EPOCH

    def _raise_epoch(self) -> None:
        self.before_commit.append(self._begin_raise)
        self.after_commit.append(self._end_raise)

    def _begin_raise(self) -> None:
        units = self._units
        try:
            raiser = self._raiser = units.pool.acquire()
            raiser.run([(_BEGIN_RAISE, ()), *units.log.raise_epoch()], must_end=True)
        except StoreFailure as failure:
            self.mark_failed()
            raise units.error_of(failure, self) from failure

    def _end_raise(self) -> None:
        raiser = self._raiser
        assert raiser is not None
        try:
            raiser.run([(_COMMIT_RAISE, ())], must_end=True)
        except StoreFailure:
            self._units.raise_again()

    def give_back_connection(self) -> None:
        raiser, self._raiser = self._raiser, None
        if raiser is not None:
            self._units.pool.release(raiser)
        self._transaction.give_back()


class BesideUnit(PostgresUnit):
    """A unit of its own while a statement of the same operation is open, which goes on after it."""

    def __init__(self, units: PostgresUnits) -> None:
        super().__init__(units, alone=True)
        self._outer: PostgresUnit | None = None

    def __enter__(self) -> WriteUnitOfWork:
        outer = self._units.suspend(self.owner)
        try:
            super().__enter__()
        except BaseException:
            self._units.resume(outer)
            raise
        self._outer = outer
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            super().__exit__(*raised)  # type: ignore[arg-type]
        finally:
            self._units.resume(self._outer)


class TransactionRecords(PostgresRecordStore):
    """A record store for a statement that writes."""

    def __init__(self, access: Access, stored: PostgresRecordStore, transaction: "PostgresTransaction") -> None:
        super().__init__(access, stored.ident, stored.counters, stored.ids, stored.is_log)
        self._transaction: Final = transaction

    def update_records(self, old: list[Record], new: list[Record]) -> None:
        self._transaction.note_claims(self.ident, len(old))
        super().update_records(old, new)

    def delete_records(self, records: list[Record]) -> None:
        self._transaction.note_claims(self.ident, len(records))
        super().delete_records(records)

    def update_record(self, old: Record, new: Record) -> None:
        self._transaction.note_claims(self.ident, 1)
        super().update_record(old, new)

    def delete_record(self, record: Record) -> None:
        self._transaction.note_claims(self.ident, 1)
        super().delete_record(record)


class TransactionEntries(PostgresSortedData):
    """Sorted data for a statement that writes: each unique key is asked for."""

    def __init__(self, access: Access, stored: PostgresSortedData) -> None:
        super().__init__(access, stored.ident, stored.store_id, stored.unique, STRICT)

    def _insert_short(self, entries: list[KeyEntry]) -> bool:
        return not self.unique and super()._insert_short(entries)


class PostgresTransaction(OpenTransaction, SnapshotStores):
    """engine: reads and writes go by it where a unit of the transaction is open. pool: of connections for transactions.

    may_hold_locks: whether it has sent writes. changed: by how many records and bytes its statements have changed each
    store. kept_form_bytes: of forms for the oplog. claims: how many records of each store it may have written. at_end:
    called when nothing of it is left in the database. all_open: those of which something is left there.
    """

    def __init__(
        self,
        engine: Access,
        records: Mapping[str, PostgresRecordStore],
        sorted_data: Mapping[str, PostgresSortedData],
        units: PostgresUnits,
        pool: ConnectionPool,
        waiter: Waiter,
        all_open: "set[PostgresTransaction]",
        at_end: "Callable[[PostgresTransaction], None]",
    ) -> None:
        OpenTransaction.__init__(self)
        self.keeps_writes = False
        SnapshotStores.__init__(self, records, sorted_data)
        self._engine: Final = engine
        self._units: Final = units
        self._pool: Final = pool
        self._waiter: Final = waiter
        self._all_open: Final = all_open
        self._at_end: Final = at_end
        self.connection: Connection | None = None
        self.may_hold_locks = False
        self.changed: Final[Changes] = {}
        self.claims: Final[dict[str, int]] = {}
        self.kept_form_bytes = 0
        self._kept_forms = 0
        self._deferred: list[Call] = []
        self._is_rolling_back = False
        self._end_actions: list[Callable[[], None]] = []
        # Why it can only be ended.
        self._error: StorageError | None = None

    # What the core asks

    @property
    def too_old(self) -> bool:
        return False

    @property
    def has_written(self) -> bool:
        return bool(self.changed)

    def statement(self) -> WriteUnitOfWork:
        self._require_open()
        turns = self._units.turns
        turns.begin(False)
        unit = StatementUnit(self._units, self)
        turns.at_end_of_step(unit.forget_turn)
        return unit

    def final_unit(self, engine: StorageEngine, alone: bool) -> WriteUnitOfWork:
        self._require_open()
        turns = self._units.turns
        alone = alone or turns.is_alone
        turns.begin(alone)
        unit = CommitUnit(self._units, alone, self)
        turns.at_end_of_step(unit.forget_turn)
        return unit

    def unit_beside(self, engine: StorageEngine) -> WriteUnitOfWork:
        turns = self._units.turns
        turns.begin(True)
        unit = BesideUnit(self._units)
        turns.at_end_of_step(unit.forget_turn)
        return unit

    def records_view(self, store: RecordStore) -> RecordStore:
        self._require_open()
        return self.records_of(store)

    def entries_view(self, data: SortedDataInterface) -> SortedDataInterface:
        self._require_open()
        return self.entries_of(data)

    def own_records(self, store: RecordStore) -> RecordStore:
        self._require_open()
        stored = self._all_records[store.ident]
        return stored.joined(
            self._engine, [TransactionRecords(self._engine.at(part.place), part, self) for part in stored.parts]
        )

    def own_entries(self, data: SortedDataInterface, complete: bool = True) -> SortedDataInterface:
        self._require_open()
        if not complete:
            raise SnapshotConflict("an index of the collection is being built")
        stored = self._all_sorted[data.ident]
        return stored.joined(
            self._engine, [TransactionEntries(self._engine.at(part.place), part) for part in stored.parts]
        )

    def kept_writes(self, store: RecordStore, between: Callable[[], None]) -> KeptWrites | None:
        return None

    def keep_forms(self, forms: list[bytes]) -> None:
        self.run([keep_call(self._kept_forms, forms)], True)
        self._kept_forms += len(forms)
        self.kept_form_bytes += sum([len(form) for form in forms])

    def release(self) -> None:
        if self.released:
            return
        self.released = True
        connection = self.connection
        self._deferred = []
        if connection is None:
            self._at_end(self)
        else:
            self.connection = None
            self._is_rolling_back = True
            self._waiter.run_aside(lambda: self._roll_back(connection))
        self._run_release_actions()

    def after_end(self, action: Callable[[], None]) -> None:
        if self._is_rolling_back:
            self._end_actions.append(action)
        else:
            action()

    def await_end(self) -> None:
        waiter = self._waiter
        until_s = waiter.monotonic_s() + self._pool.timeout_s
        while self._is_rolling_back and waiter.monotonic_s() < until_s:
            turn = waiter.new_turn()
            self.after_end(turn.notify)
            waiter.wait_turn(turn, until_s)

    def cut_off(self) -> None:
        """Ends it at the end of the server, when nobody can wait for the database."""
        connection = self.connection
        self.connection = None
        if connection is not None:
            self._pool.release(connection)  # which is closed
        self._error = EngineUnavailable("the storage engine is closed")

    def _roll_back(self, connection: Connection) -> None:
        try:
            if not connection.is_ready and not connection.is_lost:
                connection.settle((_ROLLBACK, ()))
        finally:
            self._pool.release(connection)
            self._is_rolling_back = False
            self._at_end(self)
            for action in self._end_actions:
                action()

    # What its units ask

    def visit(self, place: int) -> None:
        if self.place is None:
            self.place = place
        elif self.place != place:
            raise SeveralPlaces(
                "a transaction reaches one collection only, or one value of the shard key of a sharded one, where the"
                " store is spread over several machines, by Citus",
                True,
            )

    def note_claims(self, ident: str, count: int) -> None:
        self.claims[ident] = self.claims.get(ident, 0) + count

    def keep_statement(self, unit: StatementUnit) -> None:
        """Called when a statement is not undone any more."""
        for counters, (count, size) in unit.changed.items():
            add_change(self.changed, counters, count, size)

    def defer(self, calls: list[Call]) -> None:
        """Sends calls before the next ones."""
        if not self.released:
            self._deferred += calls

    def take_deferred(self) -> list[Call]:
        deferred, self._deferred = self._deferred, []
        return deferred

    def give_back(self) -> None:
        """At the end of the unit that commits it."""
        connection = self.connection
        if connection is not None and connection.is_ready:
            self.connection = None
            self._pool.release(connection)

    def read(self, statement: Statement, *values: Parameter) -> list[Row]:
        return self.run([(statement, values)], False)[0].rows()

    def counts(self, counters: Counters) -> tuple[int, int]:
        count, size = super().counts(counters)
        own = self._units.own()
        for changed in (self.changed, {} if own is None else own.changed):
            if counters in changed:
                count += changed[counters][0]
                size += changed[counters][1]
        return count, size

    def run(self, calls: list[Call], writes: bool) -> list[Answer]:
        """The answers to calls within the transaction, which begins with them if they are the first ones."""
        self._require_open()
        if self._error is not None:
            raise self._error
        self.may_hold_locks = self.may_hold_locks or writes
        try:
            if self.connection is None:
                return self._begin(calls)
            deferred = self.take_deferred()
            return self.connection.run([*deferred, *calls], must_end=writes)[len(deferred) :]
        except StoreFailure as failure:
            self._error = error_of(failure)
            raise self._error from failure
        except BaseException:
            self._error = EngineUnavailable("the transaction was interrupted, and can only be ended")
            raise

    def _begin(self, calls: list[Call]) -> list[Answer]:
        """Takes a connection, and does the first calls: again on another one if it is lost, since nothing else has
        been done."""
        for other in [other for other in self._all_open if other._is_rolling_back]:
            other.await_end()  # what has ended before is in nobody's way
        waiter = self._waiter
        pool = self._pool
        until_s = 0.0
        while True:
            connection = pool.acquire(patience_s=CONNECTION_S)
            if self.released:
                pool.release(connection)
                self._require_open()
            if not until_s:
                until_s = waiter.monotonic_s() + pool.timeout_s
            try:
                first = self._units.first_calls_of_transaction()
                answers = connection.run([*first, *calls], must_end=True)[len(first) :]
            except StoreFailure as failure:
                pool.release(connection)
                if failure.kind not in AWAY or waiter.monotonic_s() + PAUSE_S >= until_s:
                    raise
                waiter.sleep(PAUSE_S)
                continue
            except BaseException:
                pool.release(connection)
                raise
            self.connection = connection
            return answers

    def _require_open(self) -> None:
        if self.released:
            raise RuntimeError("a transaction is used after it has ended")


def error_of(failure: StoreFailure) -> StorageError:
    """What a statement of a transaction fails with."""
    if failure.kind in (CONFLICT, LOCKED, FENCE):
        return SnapshotConflict(failure.message)
    if failure.kind == FULL:
        return DiskFull(failure.message)
    if failure.kind in AWAY:
        return StoreUnreachable(f"the transaction is lost: {failure.message}")
    return EngineUnavailable(failure.message)


class SomeTransactions(ClaimOwner):
    """Those that are open now: whose the row is that a plain write has met, nobody knows."""

    def __init__(self) -> None:
        super().__init__()
        self.look_s = CLAIM_LOOK_S

    def end(self) -> None:
        """Called when one of them has ended."""
        self.released = True
        self._run_release_actions()
