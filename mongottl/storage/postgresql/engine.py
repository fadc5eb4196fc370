"""The engine over one PostgreSQL database: stores and their numbers, catalog entries, units of work, connections.

What the tables of stores and of catalog entries have is in memory as well: this process is the only one that changes
them, and holds a lock in the database as long as it runs.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from mongottl.document.interrupt import UndividedGuard
from mongottl.document.utf8 import decode_text, encode_text
from mongottl.storage.interface import (
    DataDirectoryError,
    EngineUnavailable,
    Isolation,
    RecordStore,
    SortedDataInterface,
    StorageEngine,
    WriteUnitOfWork,
)
from mongottl.storage.opening import storage_engine
from mongottl.storage.postgresql.access import Access
from mongottl.storage.postgresql.address import Address
from mongottl.storage.postgresql.connection import Connection, SessionSettings, connect
from mongottl.storage.postgresql.failures import BUSY, REFUSED, StoreFailure
from mongottl.storage.postgresql.local_cluster import start_local_cluster
from mongottl.storage.postgresql.pool import TIMEOUT_S, ConnectionPool
from mongottl.storage.postgresql.records import PostgresRecordStore
from mongottl.storage.postgresql.schema import LOG, RECORDS, SORTED, SORTED_UNIQUE, lock_number, prepare_schema
from mongottl.storage.postgresql.sorted_data import PostgresSortedData
from mongottl.storage.postgresql.statements import BYTEA, INT4, INT8, Parameter, Statement, int4, int8
from mongottl.storage.postgresql.turns import Turns
from mongottl.storage.postgresql.units import AWAY, Counters, PostgresUnits, Row, engine_error
from mongottl.storage.snapshot.isolation import PatchIsolation
from mongottl.storage.waiting import BlockingWaiter, ReplaceableWaiter, Waiter

_SCHEMA: Final = "mongottl"
# Seconds between two attempts to get the lock of the server.
_LOCK_EVERY_S: Final = 0.1
# Seconds within which a database answers that is there.
_PING_S: Final = 1.0
# Seconds between two attempts to connect.
_CONNECT_EVERY_S: Final = 0.1
_STORES: Final = Statement("stores", "SELECT id, ident, kind, dropped, next_id, n, bytes FROM stores")
_CATALOG: Final = Statement("catalog", "SELECT key, value FROM catalog")
_NEW_STORE: Final = Statement(
    "new_store", "INSERT INTO stores VALUES ($1, $2, $3, false, 1, 0, 0)", (INT4, BYTEA, INT4)
)
_DROP_STORE: Final = Statement("drop_store", "UPDATE stores SET dropped = true WHERE id = $1", (INT4,))
_FORGET_STORE: Final = Statement("forget_store", "DELETE FROM stores WHERE id = $1 AND dropped", (INT4,))
_PUT: Final = Statement(
    "put_catalog",
    "INSERT INTO catalog (key, state, value, epoch) VALUES ($1, 'ready', $2, 1)"
    " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
    (BYTEA, BYTEA),
)
_DELETE: Final = Statement("delete_catalog", "DELETE FROM catalog WHERE key = $1", (BYTEA,))
_OPENED: Final = Statement("opened", "UPDATE meta SET epoch = epoch + 1 RETURNING epoch")
_EPOCH: Final = Statement("epoch", "SELECT epoch FROM meta")
_LOCK: Final = Statement("lock", "SELECT pg_try_advisory_lock($1)", (INT8,))
_SIZE: Final = Statement(
    "size",
    "SELECT sum(pg_total_relation_size(oid))::int8 FROM pg_class"
    " WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'",
)
_FREE: Final = {
    table: Statement(
        f"free_{table}",
        f"WITH done AS (DELETE FROM {table} WHERE ctid = ANY (ARRAY("
        f"SELECT ctid FROM {table} WHERE store = $1 LIMIT $2)) RETURNING 1) SELECT count(*) FROM done",
        (INT4, INT8),
    )
    for table in ("records", "entries", "unique_entries")
}
_TABLE_OF: Final = {RECORDS: "records", LOG: "records", SORTED: "entries", SORTED_UNIQUE: "unique_entries"}


def _nobody() -> object:
    """Who runs where there are no operations."""
    return None


class _Guard(UndividedGuard):
    def __init__(self, turns: Turns) -> None:
        self._turns: Final = turns

    def begin(self) -> None:
        self._turns.hold()

    def end(self) -> None:
        self._turns.let_go()


class PostgresEngine(StorageEngine, Access):
    """address: of the server and database. schema: where the tables are. at_close: called when it is closed."""

    def __init__(self, address: Address, schema: str = _SCHEMA, at_close: Callable[[], None] | None = None) -> None:
        self.name = "postgresql"
        self._isolation = PatchIsolation()
        self._address: Final = address
        self._settings: Final = SessionSettings(schema, lock_timeout_ms=0)
        self._closed = False
        self._at_close: Final = at_close
        self._waiter: Final = ReplaceableWaiter(BlockingWaiter())
        self._present_of: Callable[[], object] = _nobody
        self._reading: Final = ConnectionPool(address, self._settings, self._waiter)
        self._records: dict[str, PostgresRecordStore] = {}
        self._sorted: dict[str, PostgresSortedData] = {}
        self._catalog: dict[str, bytes] = {}
        # Numbers and kinds of dropped stores whose rows are still there.
        self._dropped: list[tuple[int, int]] = []
        self._last_store = 0
        # What the tables took when they were last measured, and whether they are being measured aside.
        self._stored_bytes = 0
        self._is_measuring = False
        self._turns: Final = Turns(self._waiter, self._present)
        self.units = PostgresUnits(self._connect_writer, self._turns)
        try:
            connection = self._connect_writer()
            try:
                prepare_schema(connection, schema)
                self.units.epoch = connection.run_one((_OPENED, ())).value()
                self._load(connection)
            except BaseException:
                connection.close()
                raise
        except StoreFailure as failure:
            raise DataDirectoryError(failure.message) from failure
        self.units.use(connection)

    @property
    def suspends(self) -> bool:
        return True

    def wait_by(self, waiter: Waiter, present: Callable[[], object]) -> None:
        self._waiter.inner = waiter
        self._present_of = present

    def _present(self) -> object:
        return self._present_of()

    def _connect_writer(self) -> Connection:
        """The connection that writes, and holds the lock of the one server that may. StoreFailure.

        Nobody else may have written since the last one was lost, and nothing that it has committed may be missing.
        """
        connection = self._connected()
        try:
            self._lock(connection)
            if self.units.epoch:
                self._check_unchanged(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connected(self) -> Connection:
        """A new connection. It is tried again for TIMEOUT_S, but at the start. StoreFailure."""
        waiter = self._waiter
        until_s = waiter.monotonic_s() + TIMEOUT_S
        while True:
            try:
                return connect(self._address, self._settings, waiter, until_s)
            except StoreFailure as failure:
                is_over = waiter.monotonic_s() + _CONNECT_EVERY_S >= until_s
                if failure.kind not in AWAY or is_over or not self.units.epoch:
                    raise
            waiter.sleep(_CONNECT_EVERY_S)

    def _lock(self, connection: Connection) -> None:
        """Waits for a lock that the server's own last connection has: it ends when PostgreSQL notices its end."""
        until_s = self._waiter.monotonic_s() + (TIMEOUT_S if self.units.epoch else 0.0)
        number = int8(lock_number(f"mongottl {self._settings.schema}"))
        while not connection.run_one((_LOCK, (number,))).value():
            if self._waiter.monotonic_s() >= until_s:
                raise StoreFailure(BUSY, f"the schema {self._settings.schema} is in use by another server")
            self._waiter.sleep(_LOCK_EVERY_S)

    def _check_unchanged(self, connection: Connection) -> None:
        if connection.run_one((_EPOCH, ())).value() != self.units.epoch:
            self.units.refusal = "another server has used the data meanwhile; start this one again"
            raise StoreFailure(REFUSED, self.units.refusal)

    def _load(self, connection: Connection) -> None:
        stores, catalog = [answer.rows() for answer in connection.run([(_STORES, ()), (_CATALOG, ())])]
        for store, name, kind, dropped, next_id, count, size in stores:
            ident = decode_text(name)
            self._last_store = max(self._last_store, store)
            if dropped:
                self._dropped.append((store, kind))
            elif kind in (RECORDS, LOG):
                counters = Counters(store, next_id, count, size)
                self._records[ident] = PostgresRecordStore(self, ident, counters, kind == LOG)
            else:
                self._sorted[ident] = PostgresSortedData(self, ident, store, kind == SORTED_UNIQUE)
        self._catalog = {decode_text(key): value for key, value in catalog}

    # Reading

    def read(self, statement: Statement, *values: Parameter) -> list[Row]:
        if self.units.is_mine:
            return self.units.ask(statement, *values)
        self._require_open()
        try:
            return self._reading.read([(statement, values)])[0].rows()
        except StoreFailure as failure:
            raise engine_error(failure) from failure

    def counters(self, committed: Counters) -> Counters:
        self._require_open()
        return self.units.counters(committed)

    def _require_open(self) -> None:
        if self._closed:
            raise EngineUnavailable("the storage engine is closed")

    # Units of work

    def unit_of_work(self) -> WriteUnitOfWork:
        return self.units.new_unit()

    @property
    def isolation(self) -> Isolation:
        return self._isolation

    def ping(self) -> None:
        try:
            self._reading.ping(_PING_S)
        except StoreFailure as failure:
            raise engine_error(failure) from failure

    @property
    def failed(self) -> bool:
        """Whether another server has used the data, or it is unknown what was committed."""
        return bool(self.units.refusal) and not self._closed

    def hold_still(self) -> None:
        self._turns.hold_still()

    def undivided_guard(self) -> UndividedGuard:
        return _Guard(self._turns)

    def set_commit_listener(self, listener: Callable[[], None]) -> None:
        self.units.commit_listener = listener

    @property
    def committed_number(self) -> int:
        return self.units.commit_count

    # Stores

    def idents(self) -> list[str]:
        self._require_open()
        return [*self._records, *self._sorted]

    def create_record_store(self, ident: str, is_log: bool = False) -> RecordStore:
        number = self._new_store(ident, LOG if is_log else RECORDS)
        store = PostgresRecordStore(self, ident, Counters(number, 1, 0, 0), is_log)
        self._records[ident] = store
        self.units.undo_by(partial(self._forget, ident))
        return store

    def record_store(self, ident: str) -> RecordStore:
        return self._records[ident]

    def create_sorted_data(self, ident: str, unique: bool) -> SortedDataInterface:
        number = self._new_store(ident, SORTED_UNIQUE if unique else SORTED)
        data = PostgresSortedData(self, ident, number, unique)
        self._sorted[ident] = data
        self.units.undo_by(partial(self._forget, ident))
        return data

    def _forget(self, ident: str) -> None:
        self._records.pop(ident, None)
        self._sorted.pop(ident, None)

    def _new_store(self, ident: str, kind: int) -> int:
        self.units.require_unit()
        if ident in self._records or ident in self._sorted:
            raise ValueError(f"{ident} exists")
        self._last_store += 1
        self.units.write(_NEW_STORE, int4(self._last_store), encode_text(ident), int4(kind))
        return self._last_store

    def sorted_data(self, ident: str, unique: bool) -> SortedDataInterface:
        data = self._sorted[ident]
        if data.unique != unique:
            raise ValueError(f"{ident} was created with unique={data.unique}")
        return data

    def drop_ident(self, ident: str) -> None:
        units = self.units
        units.require_unit()
        store = self._records.pop(ident, None)
        if store is not None:
            units.undo_by(partial(self._records.__setitem__, ident, store))
            dropped = (store.store_id, LOG if store.is_log else RECORDS)
        else:
            data = self._sorted.pop(ident)
            units.undo_by(partial(self._sorted.__setitem__, ident, data))
            dropped = (data.store_id, SORTED_UNIQUE if data.unique else SORTED)
        units.write(_DROP_STORE, int4(dropped[0]))
        units.after_commit(partial(self._dropped.append, dropped))

    def drop_some(self, limit: int) -> bool:
        self._require_open()
        if not self._dropped:
            return False
        store, kind = self._dropped[-1]
        number = int4(store)
        if self.read(_FREE[_TABLE_OF[kind]], number, int8(limit))[0][0] < limit:
            self.read(_FORGET_STORE, number)
            if (store, kind) in self._dropped:
                self._dropped.remove((store, kind))
        return bool(self._dropped)

    # Catalog entries

    def catalog_entries(self) -> list[tuple[str, bytes]]:
        self._require_open()
        return sorted(self._catalog.items(), key=lambda entry: encode_text(entry[0]))

    def catalog_entry(self, key: str) -> bytes | None:
        self._require_open()
        return self._catalog.get(key)

    def put_catalog_entry(self, key: str, value: bytes) -> None:
        self.units.require_unit()
        self._undo_catalog(key)
        self._catalog[key] = value
        self.units.write(_PUT, encode_text(key), value)

    def delete_catalog_entry(self, key: str) -> None:
        self.units.require_unit()
        if key in self._catalog:
            self._undo_catalog(key)
            del self._catalog[key]
            self.units.write(_DELETE, encode_text(key))

    def _undo_catalog(self, key: str) -> None:
        before = self._catalog.get(key)
        if before is None:
            self.units.undo_by(partial(self._forget_entry, key))
        else:
            self.units.undo_by(partial(self._catalog.__setitem__, key, before))

    def _forget_entry(self, key: str) -> None:
        self._catalog.pop(key, None)

    # The engine as a whole

    @property
    def persistent(self) -> bool:
        return True

    @property
    def stored_bytes(self) -> int:
        """Outside of operations, as for the page, what was found when it was asked for last: the thread does not wait
        for PostgreSQL there."""
        if self._present() is not None:
            self._measure()
        elif not self._is_measuring:
            self._is_measuring = True
            self._waiter.run_aside(self._measure_aside)
        return self._stored_bytes

    def _measure(self) -> None:
        self._stored_bytes = int(self.read(_SIZE)[0][0])

    def _measure_aside(self) -> None:
        try:
            with suppress(EngineUnavailable):
                self._measure()
        finally:
            self._is_measuring = False

    def statistics(self) -> dict[str, int]:
        return {
            "commits": self.units.commit_count,
            "rollbacks": self.units.rollback_count,
            "database_bytes": self.stored_bytes,
        }

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.units.close()
        self._reading.close()
        if self._at_close is not None:
            self._at_close()


@storage_engine("postgres")
@storage_engine("postgresql")
def open_postgresql(address: str) -> PostgresEngine:
    """Opens the database of a libpq URI without its scheme. `schema` among its parameters names another schema than
    `mongottl`. DataDirectoryError."""
    before, mark, query = address.partition("?")
    schema = _SCHEMA
    kept = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "schema":
            schema = value
        else:
            kept.append((name, value))
    uri = f"postgresql:{before}{mark if kept else ''}{urlencode(kept, quote_via=quote)}"
    return PostgresEngine(Address(uri), schema)


@storage_engine("local-postgresql")
def open_local_postgresql(address: str) -> PostgresEngine:
    """Starts the private server of a folder, which is made if there is none, and opens its database; the server is
    stopped when the engine is closed, and started again if it ends before. DataDirectoryError."""
    cluster = start_local_cluster(address)
    try:
        return PostgresEngine(Address(cluster.uri, cluster.start_again), at_close=cluster.stop)
    except BaseException:
        cluster.stop()
        raise
