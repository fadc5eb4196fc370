"""The engine over one PostgreSQL database: stores and their numbers, catalog entries, units of work, connections.

What the tables of stores and of catalog entries have is in memory as well. Their version is in the database
(`meta.epoch`): each unit of work that is committed by one who knows an older one is refused by PostgreSQL.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from hashlib import sha256
from secrets import token_hex
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from mongottl.document.interrupt import UndividedGuard
from mongottl.document.utf8 import decode_text, encode_text
from mongottl.storage.errors import CatalogChanged, DataDirectoryError, EngineUnavailable, StoreUnreachable
from mongottl.storage.interface import Isolation, StorageEngine, WriteUnitOfWork
from mongottl.storage.nodes import LONE_NODE, CatalogChange, NodeFacts
from mongottl.storage.opening import store_engine
from mongottl.storage.postgresql import citus
from mongottl.storage.postgresql.access import Access
from mongottl.storage.postgresql.address import Address
from mongottl.storage.postgresql.citus_spread import (
    PARTS,
    IdsOfPart,
    PartitionKey,
    SpreadRecordStore,
    SpreadSortedData,
    places_of,
)
from mongottl.storage.postgresql.connection import Connection, SessionSettings, connect, look_elsewhere
from mongottl.storage.postgresql.failures import LOCKED, REFUSED, StoreFailure
from mongottl.storage.postgresql.isolation import PostgresIsolation
from mongottl.storage.postgresql.local_cluster import start_local_cluster
from mongottl.storage.postgresql.log import COUNTS_OF_STORE, Counters, PostgresLog
from mongottl.storage.postgresql.nodes import PostgresNodes
from mongottl.storage.postgresql.pool import MOST_CONNECTIONS, ConnectionPool
from mongottl.storage.postgresql.record_ids import NO_END, RecordIds
from mongottl.storage.postgresql.records import PostgresRecordStore
from mongottl.storage.postgresql.schema import LOG, RECORDS, SORTED, SORTED_UNIQUE, prepare_schema
from mongottl.storage.postgresql.sorted_data import PostgresSortedData
from mongottl.storage.postgresql.statements import (
    BYTEA,
    INT4,
    INT4_ARRAY,
    INT8,
    INT8_ARRAY,
    PATIENT,
    Call,
    Parameter,
    Statement,
    int4,
    int4_array,
    int8,
    int8_array,
    placed,
)
from mongottl.storage.postgresql.turns import Turns
from mongottl.storage.postgresql.units import UNKNOWN_EPOCH, PostgresUnit, PostgresUnits, Row, engine_error
from mongottl.storage.stores import RecordStore, SortedDataInterface
from mongottl.storage.waiting import BlockingWaiter, ReplaceableWaiter, Waiter

_SCHEMA: Final = "mongottl"
# How long a unit of work waits for the row of another, in milliseconds. Where it may be one of a transaction of another
# server, of which nothing is known here, it gives its connection back sooner, and is tried again.
_LOCK_TIMEOUT_MS: Final = 1000
_SHARED_LOCK_TIMEOUT_MS: Final = 50
# How often a unit of work tries to hold the catalog as it was read, which others may have changed again by then.
_MOST_HOLDS: Final = 20
# Seconds within which a database answers that is there.
_PING_S: Final = 1.0
# What has changed since a version of the catalog; of transactions always (`UNKNOWN_EPOCH`).
_STORES: Final = Statement(
    "stores", "SELECT id, ident, kind, dropped, next_id FROM stores WHERE epoch > $1 ORDER BY id", (INT8,)
)
_CATALOG: Final = Statement(
    "catalog",
    f"SELECT key, value, state <> 'gone', epoch < {UNKNOWN_EPOCH} FROM catalog WHERE epoch > $1",
    (INT8,),
)
_NEW_STORE: Final = Statement(
    "new_store", "INSERT INTO stores VALUES ($1, $2, $3, false, 1, $4, $5)", (INT4, BYTEA, INT4, INT4, INT8)
)
_SETTLE: Final = Statement("settle_ids", "UPDATE stores SET next_id = $2 WHERE id = $1", (INT4, INT8))
_LEASE: Final = Statement(
    "lease_ids", "UPDATE stores SET next_id = next_id + $2 WHERE id = $1 RETURNING next_id - $2", (INT4, INT8)
)
_GIVE_BACK: Final = Statement(
    "give_back_ids",
    "UPDATE stores AS s SET next_id = u.following FROM unnest($1, $2, $3) AS u (id, following, leased)"
    " WHERE s.id = u.id AND s.next_id = u.leased",
    (INT4_ARRAY, INT8_ARRAY, INT8_ARRAY),
)
# Where tables are distributed: with the place of their rows.
_PLACED_STORES: Final = Statement(
    "placed_stores", _STORES.sql.replace("next_id", "next_id, place, parts"), _STORES.types
)
_NEW_PLACED_STORE: Final = Statement(
    "new_placed_store",
    "INSERT INTO stores (id, ident, kind, dropped, next_id, node, epoch, place, parts)"
    " VALUES ($1, $2, $3, false, 1, $4, $5, $6, $7)",
    (*_NEW_STORE.types, INT4, INT4),
)
_NEW_PLACE: Final = Statement("new_place", "INSERT INTO places VALUES ($1) ON CONFLICT DO NOTHING", (INT4,))
_DISTRIBUTED_SIZE: Final = Statement(
    "distributed_size",
    f"SELECT sum(citus_total_relation_size(name::regclass))::int8 FROM unnest(ARRAY{[*citus.DISTRIBUTED_TABLES]})"
    " AS name",
)
_DROP_STORE: Final = Statement("drop_store", "UPDATE stores SET dropped = true, epoch = $2 WHERE id = $1", (INT4, INT8))
_FORGET_STORE: Final = Statement(
    "forget_store",
    "WITH t AS (DELETE FROM totals WHERE store = $1) DELETE FROM stores WHERE id = $1 AND dropped",
    (INT4,),
)
_PUT: Final = Statement(
    "put_catalog",
    "INSERT INTO catalog (key, state, value, epoch) VALUES ($1, 'ready', $2, $3)"
    " ON CONFLICT (key) DO UPDATE SET state = excluded.state, value = excluded.value, epoch = excluded.epoch",
    (BYTEA, BYTEA, INT8),
)
# The same where others may have changed the entry meanwhile: it is a division by zero unless it is still as it was.
_PUT_OVER: Final = Statement(
    "put_over_catalog",
    "WITH done AS (INSERT INTO catalog (key, state, value, epoch) VALUES ($1, 'ready', $2, $3)"
    " ON CONFLICT (key) DO UPDATE SET state = excluded.state, value = excluded.value, epoch = excluded.epoch"
    " WHERE CASE WHEN catalog.state = 'gone' THEN $4 IS NULL ELSE catalog.value = $4 END RETURNING 1)"
    " SELECT 1 / count(*) FROM done",
    (BYTEA, BYTEA, INT8, BYTEA),
)
_NAME: Final = Statement("name_catalog", "UPDATE catalog SET ns = $2 WHERE key = $1", (BYTEA, BYTEA))
_DELETE: Final = Statement("delete_catalog", "DELETE FROM catalog WHERE key = $1", (BYTEA,))
# Where others have to hear of it.
_BURY: Final = Statement(
    "bury_catalog",
    "WITH done AS (UPDATE catalog SET state = 'gone', ns = NULL, value = '', epoch = $2"
    " WHERE key = $1 AND state <> 'gone' AND value = $3 RETURNING 1) SELECT 1 / count(*) FROM done",
    (BYTEA, INT8, BYTEA),
)
# Whether a commit is acknowledged only when a standby has it.
_STANDBYS: Final = Statement(
    "standbys",
    "SELECT current_setting('synchronous_standby_names') <> ''"
    " AND current_setting('synchronous_commit') NOT IN ('off', 'local')",
)
_EPOCH: Final = Statement("epoch", "SELECT epoch FROM meta")
# What belongs together is read at one snapshot, since others may change it.
_BEGIN_LOAD: Final = Statement("begin_load", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
_END_LOAD: Final = Statement("end_load", "COMMIT")
# Below each version of the catalog.
_NO_EPOCH: Final = -1
_SIZE: Final = Statement(
    "size",
    "SELECT sum(pg_total_relation_size(oid))::int8 FROM pg_class"
    " WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) AND relkind = 'r'",
)
_FREE: Final = {
    table: placed(
        f"free_{table}",
        f"WITH done AS (DELETE FROM {table} WHERE ctid = ANY (ARRAY("
        f"SELECT ctid FROM {table} WHERE store = $1 LIMIT $2)) RETURNING 1) SELECT count(*) FROM done",
        (INT4, INT8),
    )
    for table in ("records", "entries", "unique_entries")
}
_NO_COUNTS: Final[dict[int, tuple[int, int]]] = {}
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


class _SharedGuard(_Guard):
    """Where others change the catalog: what a block begins to look at is not known to be old. refresh: sees to that."""

    def __init__(self, turns: Turns, refresh: Callable[[], None]) -> None:
        super().__init__(turns)
        self._refresh: Final = refresh

    def begin(self) -> None:
        self._refresh()
        super().begin()


class PostgresEngine(StorageEngine, Access):
    """address: of the server and database. schema: where the tables are. node: what who opens it says of itself.
    at_close: called when it is closed."""

    def __init__(
        self,
        address: Address,
        schema: str = _SCHEMA,
        node: NodeFacts = LONE_NODE,
        at_close: Callable[[], None] | None = None,
    ) -> None:
        self.name = "postgresql"
        self._address: Final = address
        self._schema: Final = schema
        self._closed = False
        self._at_close: Final = at_close
        self._waiter: Final = ReplaceableWaiter(BlockingWaiter())
        self._present_of: Callable[[], object] = _nobody
        place = sha256(encode_text(schema)).hexdigest()[:12]
        token = token_hex(8)
        self._units_of: Final = f"mongottl unit {place}"
        self._transactions_of: Final = f"mongottl txn {place}"
        session = f"{self._units_of} {token}"
        lock_timeout_ms = _SHARED_LOCK_TIMEOUT_MS if node.may_share else _LOCK_TIMEOUT_MS
        self._settings: Final = SessionSettings(schema, session, lock_timeout_ms)
        # Over how many machines tables are distributed; 0 if they are not.
        self._workers = 0
        self._is_distributed = False
        self._pool: Final = ConnectionPool(address, self._settings, self._waiter, MOST_CONNECTIONS, node.timeout_s)
        self._lock_settings: Final = SessionSettings(schema, lock_timeout_ms=0)
        self._records: dict[str, PostgresRecordStore] = {}
        self._sorted: dict[str, PostgresSortedData] = {}
        self._catalog: dict[str, bytes] = {}
        # Numbers and kinds of dropped stores whose rows are still there, and the places of these.
        self._dropped: list[tuple[int, int, list[int | None]]] = []
        self._last_store = 0
        # What the tables took when they were last measured, and whether they are being measured aside.
        self._stored_bytes = 0
        self._is_measuring = False
        self._waits_for_standby = False
        self._turns: Final = Turns(self._waiter, self._present)
        transactions = f"{self._transactions_of} {token}"
        channel = f"mongottl_{place}" if node.may_share else ""
        self._log: Final = PostgresLog(
            self._pool, self._waiter, session, self._units_of, engine_error, transactions, channel
        )
        self.units: Final = PostgresUnits(self._pool, self._log, self._turns)
        sessions = (self._units_of, self._transactions_of)
        self._nodes: Final = PostgresNodes(
            schema, node, self.units, self._waiter, self._connect_for_lock, sessions, token, self.reload
        )
        self._is_shared: Final = node.may_share
        self._isolation: Final = PostgresIsolation(
            self,
            self._records,
            self._sorted,
            self.units,
            address,
            schema,
            transactions,
            self._waiter,
            node.timeout_s,
            node.may_share,
        )
        self._log.more_pools.append(self._isolation.pool)
        if address.has_several_hosts:
            address.on_move = self._leave_others
            self._nodes.look_elsewhere_by = self._look_elsewhere
        try:
            self._open()
        except StoreFailure as failure:
            self._pool.close()
            raise DataDirectoryError(failure.message) from failure

    def _open(self) -> None:
        self._nodes.open(self._prepare)
        try:
            [_, epoch, stores, catalog, _] = self._pool.read(self._load_after(_NO_EPOCH))
            self._log.load(epoch.value(), self._nodes.number)
            self._take(stores.rows(), catalog.rows(), {} if self._is_shared else self._log.counts())
            self._waits_for_standby = bool(self._pool.read([(_STANDBYS, ())])[0].value())
        except BaseException:
            self._nodes.close(_PING_S)
            raise

    def _prepare(self, connection: Connection) -> None:
        """Makes the tables if there are none, and finds out whether they are distributed. StoreFailure."""
        prepare_schema(connection, self._schema)
        self._workers = citus.workers_of(connection)
        if not self._workers:
            return
        if self._is_shared:
            raise StoreFailure(REFUSED, f"several servers cannot share the schema {self._schema}, which Citus spreads")
        self._is_distributed = self._log.is_distributed = self.units.is_distributed = True
        self._settings.is_distributed = True
        self._isolation.distribute()

    def _load_after(self, epoch: int) -> list[Call]:
        """What reads all that has changed since a version of the catalog."""
        stores = _PLACED_STORES if self._is_distributed else _STORES
        since = int8(epoch)
        return [(_BEGIN_LOAD, ()), (_EPOCH, ()), (stores, (since,)), (_CATALOG, (since,)), (_END_LOAD, ())]

    def _connect_for_lock(self) -> Connection:
        return connect(self._address, self._lock_settings, self._waiter, self._in_time())

    def _look_elsewhere(self) -> None:
        look_elsewhere(self._address, self._lock_settings, self._waiter)

    def _leave_others(self) -> None:
        """Ends the connections to the host whose place another one has taken."""
        latest = self._address.latest
        for pool in (self._pool, self._isolation.pool, self._isolation.holders):
            pool.leave(latest)
        self._nodes.leave(latest)

    def _in_time(self) -> float:
        return self._waiter.monotonic_s() + self._pool.timeout_s

    @property
    def may_lose_commits(self) -> bool:
        return self._address.has_several_hosts and not self._waits_for_standby

    @property
    def suspends(self) -> bool:
        return True

    def wait_by(self, waiter: Waiter, present: Callable[[], object]) -> None:
        self._waiter.inner = waiter
        self._present_of = present

    def _present(self) -> object:
        return self._present_of()

    def _take(
        self, stores: list[Row], catalog: list[Row], counts: Mapping[int, tuple[int, int]] = _NO_COUNTS
    ) -> CatalogChange:
        """Takes over rows of stores and of the catalog, all or those that have changed. Stores that are there keep
        their objects."""
        made: list[str] = []
        gone: list[str] = []
        for store, name, kind, dropped, next_id, *places in stores:
            place = places[0] if places else None
            ident = decode_text(name)
            self._last_store = max(self._last_store, store)
            is_records = kind in (RECORDS, LOG)
            known = self._records.get(ident) if is_records else self._sorted.get(ident)
            if dropped:
                if all(store != other for other, _, _ in self._dropped):
                    self._dropped.append((store, kind, [*places_of(*places)] if places else [None]))
                if known is not None and known.store_id == store:
                    self._forget(ident)
                    gone.append(ident)
            elif known is None or known.store_id != store:
                made.append(ident)
                if is_records:
                    ids = RecordIds(next_id, next_id, partial(self._lease, store))
                    found = counts.get(store, (0, 0))
                    if place is not None and places[1] > 1:
                        self._records[ident] = self._spread_records(ident, store, places_of(*places), ids, found)
                        continue
                    counters = Counters(store, *found, place or 0)
                    self._records[ident] = PostgresRecordStore(self.at(place), ident, counters, ids, kind == LOG)
                elif place is not None and places[1] > 1:
                    is_unique = kind == SORTED_UNIQUE
                    self._sorted[ident] = self._spread_entries(ident, store, places_of(*places), is_unique)
                else:
                    self._sorted[ident] = PostgresSortedData(self.at(place), ident, store, kind == SORTED_UNIQUE)
        before: dict[str, bytes | None] = {}
        for name, value, is_there, is_new in catalog:
            key = decode_text(name)
            old = self._catalog.get(key)
            if is_there and (is_new or value != old):
                before[key] = old
                self._catalog[key] = value
            elif not is_there and old is not None:
                before[key] = old
                del self._catalog[key]
        return CatalogChange(before, made, gone)

    def reload(self, everything: bool = False) -> None:
        """Reads what others have changed of the catalog, when no unit is open that was made from the old one.
        everything: where others may have forgotten since what they have deleted. EngineUnavailable."""
        self._turns.hold()
        try:
            epoch, stores, catalog = self._read_changes(everything)
            # Who has no place while it reads is not waited for by those who forget what they have deleted.
            if not everything and not self._nodes.has_place:
                everything = True
                epoch, stores, catalog = self._read_changes(everything)
            if everything or epoch != self._log.epoch or stores or catalog:
                self._log.epoch = epoch
                gone = self._forget_others(stores, catalog) if everything else []
                change = self._take(stores, catalog)
                change.dropped.extend(gone)
                self._nodes.on_change(change)
            self.units.is_stale = False
        except StoreFailure as failure:
            if failure.kind == LOCKED:  # nothing that the caller could carry out again without a wait
                raise StoreUnreachable("the catalog cannot be read: its table is locked") from failure
            raise engine_error(failure) from failure
        finally:
            self._turns.let_go()

    def _read_changes(self, everything: bool) -> tuple[int, list[Row], list[Row]]:
        """The version of the catalog, and the rows of stores and of entries that have changed. StoreFailure."""
        since = _NO_EPOCH if everything else self._log.epoch
        [_, epoch, stores, catalog, _] = self._pool.read(self._load_after(since))
        return epoch.value(), stores.rows(), catalog.rows()

    def _forget_others(self, stores: list[Row], catalog: list[Row]) -> list[str]:
        """Forgets the stores that are not among these rows, and returns them; adds rows for entries that are not."""
        there = {row[0] for row in stores}
        gone = [ident for ident, store in self._records.items() if store.store_id not in there]
        gone += [ident for ident, data in self._sorted.items() if data.store_id not in there]
        for ident in gone:
            self._forget(ident)
        known = {row[0] for row in catalog}
        catalog += [(name, b"", False, True) for name in map(encode_text, self._catalog) if name not in known]
        return gone

    # Reading

    def read(self, statement: Statement, *values: Parameter) -> list[Row]:
        unit = self.units.own()
        if unit is not None and unit.has_written:
            return unit.ask(statement, *values)
        self._require_open()
        try:
            return self._pool.read([(statement, values)])[0].rows()
        except StoreFailure as failure:
            raise engine_error(failure) from failure

    def require(self) -> PostgresUnit:
        return self.units.require()

    def visit(self, place: int) -> None:
        unit = self.units.own()
        if unit is not None:
            unit.visit(place)

    def counts(self, counters: Counters) -> tuple[int, int]:
        self._require_open()
        unit = self.units.own()
        changed = None if unit is None else unit.changed.get(counters)
        count, size = counters.count, counters.size
        if self._is_shared:
            [(count, size)] = self.read(COUNTS_OF_STORE, int4(counters.store))
        if changed is None:
            return count, size
        return count + changed[0], size + changed[1]

    def sees_others(self) -> bool:
        return self._is_shared and self.units.own() is None

    def _require_open(self) -> None:
        if self._closed:
            raise EngineUnavailable("the storage engine is closed")

    # Units of work

    def unit_of_work(self) -> WriteUnitOfWork:
        return self._new_unit(alone=True)

    def concurrent_unit_of_work(self) -> WriteUnitOfWork:
        return self._new_unit(alone=False)

    def exclusive_unit_of_work(self, store: RecordStore) -> WriteUnitOfWork:
        unit = self._new_unit(alone=True)
        known = self._records.get(store.ident) if self._is_shared else None
        if known is not None:  # else another server has dropped it while this one waited
            unit.exclude_others(known.store_id)
        return unit

    def _refresh(self) -> None:
        """Reads the catalog anew if that in memory is known to be old. CatalogChanged for who holds others off: what it
        has looked at would change."""
        if self.units.is_stale:
            self.units.forget_asked()  # or one that was to be alone, and has not begun, would be what holds others off
            if self._turns.is_alone:
                raise CatalogChanged("another server has changed the catalog")
            self._log.await_closing()
            self.reload()

    def _new_unit(self, alone: bool) -> PostgresUnit:
        for _ in range(_MOST_HOLDS):
            if self.units.is_stale:
                self._refresh()
            unit = self.units.new_unit(alone)
            if alone or self.units.hold_catalog(unit):
                return unit
        raise CatalogChanged("other servers keep changing the catalog")

    @property
    def log(self) -> PostgresLog:
        return self._log

    @property
    def nodes(self) -> PostgresNodes:
        return self._nodes

    @property
    def isolation(self) -> Isolation:
        return self._isolation

    def ping(self) -> None:
        try:
            self._pool.ping(_PING_S)
        except StoreFailure as failure:
            raise engine_error(failure) from failure

    @property
    def failed(self) -> bool:
        """Whether another server has opened the database, or it is unknown what was committed."""
        return bool(self.units.refusal) and not self._closed

    def undivided_guard(self) -> UndividedGuard:
        return _SharedGuard(self._turns, self._refresh) if self._is_shared else _Guard(self._turns)

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
        ids = RecordIds(1, NO_END, partial(self._lease, number))
        place = number if self._is_distributed else None
        store = PostgresRecordStore(self.at(place), ident, Counters(number, 0, 0, place or 0), ids, is_log)
        self._records[ident] = store
        unit = self.units.require()
        unit.undo.append(partial(self._forget, ident))
        unit.before_commit.append(lambda: unit.write(_SETTLE, int4(number), int8(ids.settle())))
        return store

    def create_partitioned_store(self, ident: str) -> RecordStore:
        if not self._is_distributed:
            return self.create_record_store(ident)
        number = self._new_store(ident, RECORDS, parts=PARTS)
        ids = RecordIds(1, NO_END, partial(self._lease, number))
        store = self._spread_records(ident, number, places_of(number, PARTS), ids)
        self._records[ident] = store
        unit = self.units.require()
        unit.undo.append(partial(self._forget, ident))
        unit.before_commit.append(lambda: unit.write(_SETTLE, int4(number), int8(ids.settle())))
        return store

    def _spread_records(
        self, ident: str, number: int, places: list[int], ids: RecordIds, counts: tuple[int, int] = (0, 0)
    ) -> SpreadRecordStore:
        """counts: of all its records and their bytes, whichever parts they are in."""
        parts: list[PostgresRecordStore] = []
        for place in places:
            counters = Counters(number, *counts, place)
            parts.append(PostgresRecordStore(self.at(place), ident, counters, IdsOfPart(ids, len(parts)), False))
            counts = (0, 0)
        return SpreadRecordStore(self, ident, parts, ids, PartitionKey(len(parts)))

    def _spread_entries(self, ident: str, number: int, places: list[int], unique: bool) -> SpreadSortedData:
        parts = [PostgresSortedData(self.at(place), ident, number, unique) for place in places]
        return SpreadSortedData(self, ident, parts, PartitionKey(len(parts)).part_of_key)

    def record_store(self, ident: str) -> RecordStore:
        return self._records[ident]

    def create_sorted_data(self, ident: str, unique: bool, beside: str = "") -> SortedDataInterface:
        kind = SORTED_UNIQUE if unique else SORTED
        if beside in self._records and len(self._records[beside].parts) > 1:
            return self._create_spread_data(ident, kind, self._records[beside])
        place = self._records[beside].place if beside in self._records else None
        number = self._new_store(ident, kind, place)
        if place is None and self._is_distributed:
            place = number
        data = PostgresSortedData(self.at(place), ident, number, unique)
        self._sorted[ident] = data
        self.units.require().undo.append(partial(self._forget, ident))
        return data

    def _create_spread_data(self, ident: str, kind: int, records: PostgresRecordStore) -> SortedDataInterface:
        parts = records.parts
        number = self._new_store(ident, kind, parts[0].place, len(parts))
        places = places_of(parts[0].place or 0, len(parts))
        data = self._sorted[ident] = self._spread_entries(ident, number, places, kind == SORTED_UNIQUE)
        self.units.require().undo.append(partial(self._forget, ident))
        return data

    def _forget(self, ident: str) -> None:
        self._records.pop(ident, None)
        self._sorted.pop(ident, None)

    def _new_store(self, ident: str, kind: int, place: int | None = None, parts: int = 1) -> int:
        """place: the first one of its rows; None for one of its own, where tables are distributed. parts: how many
        places it has there."""
        unit = self.units.require()
        if ident in self._records or ident in self._sorted:
            raise ValueError(f"{ident} exists")
        unit.change_catalog()
        self._last_store += 1
        values = (int4(self._last_store), encode_text(ident), int4(kind))
        made = (*values, int4(self._nodes.number), int8(unit.catalog_epoch))
        if self._is_distributed:
            first = self._last_store if place is None else place
            unit.write(_NEW_PLACED_STORE, *made, int4(first), int4(parts))
            if place is None:
                for each in places_of(first, parts):
                    unit.write(_NEW_PLACE, int4(each))
        else:
            unit.write(_NEW_STORE, *made)
        return self._last_store

    def _lease(self, store: int, count: int) -> int:
        """Leases `count` record ids, which nobody else gives; the first of them. CatalogChanged if the store was
        dropped."""
        try:
            patience = [PATIENT] if self._is_shared else []
            leased = self._pool.write([*patience, (_LEASE, (int4(store), int8(count)))])[-1].rows()
        except StoreFailure as failure:
            raise engine_error(failure) from failure
        if not leased:
            raise self.units.store_is_gone()
        return int(leased[0][0])

    def _give_back_ids(self) -> None:
        stores = [store for store in self._records.values() if store.ids.following < store.ids.end]
        if stores and not self.units.refusal:
            numbers = int4_array([store.store_id for store in stores])
            following = int8_array([store.ids.following for store in stores])
            leased = int8_array([store.ids.end for store in stores])
            with suppress(StoreFailure):
                self._pool.write([(_GIVE_BACK, (numbers, following, leased))], self._waiter.monotonic_s() + _PING_S)

    def sorted_data(self, ident: str, unique: bool) -> SortedDataInterface:
        data = self._sorted[ident]
        if data.unique != unique:
            raise ValueError(f"{ident} was created with unique={data.unique}")
        return data

    def drop_ident(self, ident: str) -> None:
        unit = self.units.require()
        unit.change_catalog()
        store = self._records.pop(ident, None)
        if store is not None:
            unit.undo.append(partial(self._records.__setitem__, ident, store))
            dropped = (store.store_id, LOG if store.is_log else RECORDS, [part.place for part in store.parts])
        else:
            data = self._sorted.pop(ident)
            unit.undo.append(partial(self._sorted.__setitem__, ident, data))
            kind = SORTED_UNIQUE if data.unique else SORTED
            dropped = (data.store_id, kind, [part.place for part in data.parts])
        unit.write(_DROP_STORE, int4(dropped[0]), int8(unit.catalog_epoch))
        unit.after_commit.append(partial(self._dropped.append, dropped))

    def drop_some(self, limit: int) -> bool:
        self._require_open()
        if not self._dropped or not self._may_free():
            return False
        dropped = self._dropped[-1]
        store, kind, places = dropped
        number = int4(store)
        place = places[-1]
        if self.at(place).read(_FREE[_TABLE_OF[kind]], number, int8(limit))[0][0] < limit:
            if len(places) == 1:
                self.read(_FORGET_STORE, number)
                if dropped in self._dropped:
                    self._dropped.remove(dropped)
            elif places[-1] == place:
                places.pop()
        return bool(self._dropped)

    def _may_free(self) -> bool:
        """Whether no server can read any more what was dropped."""
        try:
            return not self._is_shared or self._nodes.all_know()
        except StoreFailure as failure:
            raise engine_error(failure) from failure

    # Catalog entries

    def catalog_entries(self) -> list[tuple[str, bytes]]:
        self._require_open()
        return sorted(self._catalog.items(), key=lambda entry: encode_text(entry[0]))

    def catalog_entry(self, key: str) -> bytes | None:
        self._require_open()
        return self._catalog.get(key)

    def put_catalog_entry(self, key: str, value: bytes) -> None:
        unit = self.units.require()
        unit.change_catalog()
        before = self._catalog.get(key)
        self._undo_catalog(unit, key)
        self._catalog[key] = value
        if self._is_shared:
            unit.write(_PUT_OVER, encode_text(key), value, int8(unit.catalog_epoch), before)
        else:
            unit.write(_PUT, encode_text(key), value, int8(unit.catalog_epoch))

    def name_entry(self, key: str, name: str) -> None:
        unit = self.units.require()
        unit.closes = True
        unit.write(_NAME, encode_text(key), encode_text(name))

    def delete_catalog_entry(self, key: str) -> None:
        unit = self.units.require()
        before = self._catalog.get(key)
        if before is not None:
            unit.change_catalog()
            unit.closes = True
            self._undo_catalog(unit, key)
            del self._catalog[key]
            if self._is_shared:
                unit.write(_BURY, encode_text(key), int8(unit.catalog_epoch), before)
            else:
                unit.write(_DELETE, encode_text(key))

    def _undo_catalog(self, unit: PostgresUnit, key: str) -> None:
        before = self._catalog.get(key)
        if before is None:
            unit.undo.append(partial(self._forget_entry, key))
        else:
            unit.undo.append(partial(self._catalog.__setitem__, key, before))

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
        if self._is_distributed:
            self._stored_bytes += int(self.read(_DISTRIBUTED_SIZE)[0][0])

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
            **({"citus_workers": self._workers} if self._is_distributed else {}),
        }

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._give_back_ids()
        self._nodes.close(_PING_S)
        self.units.close()
        self._isolation.close()
        self._pool.close()
        if self._at_close is not None:
            self._at_close()


@store_engine("postgres")
@store_engine("postgresql")
def open_postgresql(address: str, node: NodeFacts) -> PostgresEngine:
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
    return PostgresEngine(Address(uri), schema, node)


@store_engine("local-postgresql")
def open_local_postgresql(address: str, node: NodeFacts) -> PostgresEngine:
    """Starts the private server of a folder, which is made if there is none, and opens its database; the server is
    stopped when the engine is closed, and started again if it ends before. DataDirectoryError."""
    cluster = start_local_cluster(address)
    try:
        alone = node._replace(may_share=False)
        return PostgresEngine(Address(cluster.uri, cluster.start_again), node=alone, at_close=cluster.stop)
    except BaseException:
        cluster.stop()
        raise
