"""PostgreSQL's own isolation: its transactions, its snapshots, and what its locks mean for others."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from mongottl.storage.errors import ClaimOwner, SnapshotTooOld
from mongottl.storage.interface import Isolation, OpenSnapshot, OpenTransaction
from mongottl.storage.postgresql.access import Access
from mongottl.storage.postgresql.address import Address
from mongottl.storage.postgresql.connection import Connection, SessionSettings
from mongottl.storage.postgresql.failures import StoreFailure
from mongottl.storage.postgresql.pool import MOST_TRANSACTIONS, ConnectionPool
from mongottl.storage.postgresql.records import PostgresRecordStore
from mongottl.storage.postgresql.snapshots import (
    UNKNOWN_SNAPSHOT,
    PlacedSnapshot,
    PostgresSnapshot,
    SessionSnapshot,
    shared_name,
)
from mongottl.storage.postgresql.sorted_data import PostgresSortedData
from mongottl.storage.postgresql.statements import INT4, INT8_ARRAY, int4, int8_array, placed
from mongottl.storage.postgresql.transactions import CLAIM_LOOK_S, PAUSE_S, PostgresTransaction, SomeTransactions
from mongottl.storage.postgresql.units import AWAY, PostgresUnits, engine_error
from mongottl.storage.stores import Record, RecordStore
from mongottl.storage.waiting import Waiter

# Snapshots of reads outside transactions; the oldest is given up for another one.
MOST_SNAPSHOTS: Final = 8
# How many are opened at the same time.
_MOST_OPENING: Final = 4
# Between two looks of any of those that wait for transactions of other servers, in seconds: each has a connection
# for about 0.05 s.
_LOOK_OF_EACH_S: Final = 0.02
# How long a statement of a transaction waits for a row or key of another one, in milliseconds. MongoDB's own limit.
_LOCK_TIMEOUT_MS: Final = 5
_UNLOCKED: Final = placed(
    "unlocked",
    "SELECT rid FROM records WHERE store = $1 AND rid = ANY ($2) FOR UPDATE SKIP LOCKED",
    (INT4, INT8_ARRAY),
)


class PostgresIsolation(Isolation):
    """engine: with records and sorted_data, its stores by ident. schema: where the tables are. session: the name of the
    sessions of open transactions, which those of units do not begin with. timeout_s: see `ConnectionPool`. is_shared:
    whether other servers may have the database open, too."""

    def __init__(
        self,
        engine: Access,
        records: Mapping[str, PostgresRecordStore],
        sorted_data: Mapping[str, PostgresSortedData],
        units: PostgresUnits,
        address: Address,
        schema: str,
        session: str,
        waiter: Waiter,
        timeout_s: float,
        is_shared: bool,
    ) -> None:
        self._engine: Final = engine
        self._records: Final = records
        self._sorted: Final = sorted_data
        self._units: Final = units
        self._waiter: Final = waiter
        settings = SessionSettings(schema, session, _LOCK_TIMEOUT_MS, "repeatable read")
        self.pool: Final = ConnectionPool(address, settings, waiter, MOST_TRANSACTIONS, timeout_s)
        holders = SessionSettings(schema, f"{session} snapshot", isolation="repeatable read")
        most = MOST_SNAPSHOTS + _MOST_OPENING
        # How the names of the sessions of all servers begin.
        self._sessions: Final = session[: session.rindex(" ") + 1]
        self.holders: Final = ConnectionPool(address, holders, waiter, most, timeout_s)
        # The oldest first.
        self._snapshots: list[SessionSnapshot] = []
        self._is_distributed = False
        self._settings: Final = (settings, holders)
        self._transactions: Final[set[PostgresTransaction]] = set()
        self._some = SomeTransactions()
        self._others = SomeTransactions()
        units.claimant = self.claimant
        if is_shared:
            units.stranger = self._stranger
            units.on_passage = self._wake_held_off

    def distribute(self) -> None:
        """Called before the first use where tables are distributed."""
        self._is_distributed = True
        for settings in self._settings:
            settings.is_distributed = True

    def open_snapshot(self) -> OpenSnapshot:
        return self._kept("")

    def find_snapshot(self, at: tuple[int, int]) -> OpenSnapshot | None:
        known = self._units.log.epoch
        try:
            name = shared_name(self._units.pool, self._sessions, at)
            if not name:
                return None
            snapshot = self._kept(name)
            try:
                snapshot.compare_names(self._units.pool, known)
            except BaseException:
                snapshot.close()
                raise
            return snapshot
        except SnapshotTooOld:
            return None  # given up in between
        except StoreFailure as failure:
            raise engine_error(failure) from failure

    def _kept(self, name: str) -> SessionSnapshot:
        """A snapshot of the present, or the one of which PostgreSQL has this name. SnapshotTooOld."""
        waiter = self._waiter
        until_s = waiter.monotonic_s() + self.pool.timeout_s
        while True:
            try:
                snapshot = self._export(self.holders.acquire(until_s), name)
            except StoreFailure as failure:
                if name and failure.sqlstate in UNKNOWN_SNAPSHOT:
                    raise SnapshotTooOld("the server that has kept the snapshot has given it up") from failure
                if failure.kind not in AWAY or waiter.monotonic_s() + PAUSE_S >= until_s:
                    raise engine_error(failure) from failure
                waiter.sleep(PAUSE_S)
                continue
            self._snapshots = [*[other for other in self._snapshots if not other.is_closed], snapshot]
            while len(self._snapshots) > MOST_SNAPSHOTS:
                self._snapshots.pop(0).expire()
            return snapshot

    def _export(self, holder: Connection, name: str) -> SessionSnapshot:
        """The snapshot that a connection takes now, or finds by its name, and keeps. StoreFailure."""
        release = partial(self.holders.release, holder)
        try:
            if self._is_distributed:
                return PlacedSnapshot(self._records, self._sorted, holder, self._waiter, release, engine_error)
            pool = self._units.pool
            return PostgresSnapshot(self._records, self._sorted, holder, pool, release, engine_error, name)
        except BaseException:
            release()
            raise

    def begin_transaction(self) -> OpenTransaction:
        transaction = PostgresTransaction(
            self._engine,
            self._records,
            self._sorted,
            self._units,
            self.pool,
            self._waiter,
            self._transactions,
            self._ended,
        )
        self._transactions.add(transaction)
        return transaction

    def _ended(self, transaction: PostgresTransaction) -> None:
        self._transactions.discard(transaction)
        if transaction.may_hold_locks:
            some, self._some = self._some, SomeTransactions()
            some.end()

    def claimant(self) -> ClaimOwner | None:
        """Who may have what a plain write has met; None if there is nobody."""
        return self._some if any(transaction.may_hold_locks for transaction in self._transactions) else None

    def _stranger(self) -> ClaimOwner:
        """Who of other servers may have what a plain write has met: their transactions, of whose ends nothing is
        heard. The more wait for them the less often each of them looks, so that they leave connections for others."""
        others = self._others
        others.look_s = max(CLAIM_LOOK_S, others.waiting * _LOOK_OF_EACH_S)
        return others

    def _wake_held_off(self) -> None:
        others, self._others = self._others, SomeTransactions()
        others.end()

    def count_claimed(self, ident: str) -> int:
        return sum(transaction.claims.get(ident, 0) for transaction in self._transactions)

    def unclaimed(self, store: RecordStore, records: list[Record]) -> list[Record]:
        if not records or not self.count_claimed(store.ident):
            return records
        ids = int8_array([record[0] for record in records])
        stored = self._records[store.ident]
        free: set[int] = set()
        for part in stored.parts:
            found = self._engine.at(part.place).read(_UNLOCKED, int4(stored.store_id), ids)
            free.update([rid for (rid,) in found])
        return [record for record in records if record[0] in free]

    def close(self) -> None:
        """Ends what is still open."""
        self.pool.close()
        self.holders.close()
        for snapshot in self._snapshots:
            snapshot.close()
        for transaction in list(self._transactions):
            transaction.cut_off()
