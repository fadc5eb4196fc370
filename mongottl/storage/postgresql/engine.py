"""The engine over one PostgreSQL database: the tables of stores and of catalog entries, units of work, connections.

What the tables of stores and of catalog entries have is in memory as well. Their version is in the database
(`meta.epoch`): each unit of work that is committed by one who knows an older one is refused by PostgreSQL.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from secrets import token_hex
from typing import Final, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

from mongottl.document.interrupt import UndividedGuard
from mongottl.document.utf8 import encode_text
from mongottl.storage.errors import CatalogChanged, DataDirectoryError, EngineUnavailable, StoreUnreachable
from mongottl.storage.interface import Isolation, StorageEngine, WriteUnitOfWork
from mongottl.storage.nodes import LONE_NODE, CatalogChange, NodeFacts
from mongottl.storage.opening import store_engine
from mongottl.storage.postgresql import citus
from mongottl.storage.postgresql.access import Access
from mongottl.storage.postgresql.address import Address
from mongottl.storage.postgresql.catalog_table import CatalogTable
from mongottl.storage.postgresql.connection import Connection, SessionSettings, connect, look_elsewhere
from mongottl.storage.postgresql.due import count_due, find_due, find_keys
from mongottl.storage.postgresql.failures import LOCKED, REFUSED, StoreFailure
from mongottl.storage.postgresql.isolation import PostgresIsolation
from mongottl.storage.postgresql.local_cluster import start_local_cluster
from mongottl.storage.postgresql.log import COUNTS_OF_STORE, Counters, PostgresLog
from mongottl.storage.postgresql.nodes import PostgresNodes
from mongottl.storage.postgresql.pool import MOST_CONNECTIONS, ConnectionPool
from mongottl.storage.postgresql.schema import prepare_schema
from mongottl.storage.postgresql.statements import (
    Call,
    Parameter,
    Statement,
    int4,
)
from mongottl.storage.postgresql.store_table import StoreTable
from mongottl.storage.postgresql.turns import Turns
from mongottl.storage.postgresql.units import PostgresUnit, PostgresUnits, Row, engine_error
from mongottl.storage.stores import DueRecords, ExpiryIndex, KeyRange, RecordStore, SortedDataInterface
from mongottl.storage.waiting import BlockingWaiter, ReplaceableWaiter, Waiter

T = TypeVar("T")

_SCHEMA: Final = "mongottl"
# PostgreSQL cuts longer names off, so that the next server would look for another schema than the first has made.
_MOST_SCHEMA_BYTES: Final = 63
# How long a unit of work waits for the row of another, in milliseconds. Where it may be one of a transaction of another
# server, of which nothing is known here, it gives its connection back sooner, and is tried again.
_LOCK_TIMEOUT_MS: Final = 1000
_SHARED_LOCK_TIMEOUT_MS: Final = 50
# How often a unit of work tries to hold the catalog as it was read, which others may have changed again by then.
_MOST_HOLDS: Final = 20
# Seconds within which a database answers that is there.
_PING_S: Final = 1.0
_DISTRIBUTED_SIZE: Final = Statement(
    "distributed_size",
    f"SELECT sum(citus_total_relation_size(name::regclass))::int8 FROM unnest(ARRAY{[*citus.DISTRIBUTED_TABLES]})"
    " AS name",
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
        self._stores: Final = StoreTable(self, self.units, node.may_share)
        self._catalog: Final = CatalogTable(self.units, node.may_share)
        sessions = (self._units_of, self._transactions_of)
        self._nodes: Final = PostgresNodes(
            schema, node, self.units, self._waiter, self._connect_for_lock, sessions, token, self.reload
        )
        self._is_shared: Final = node.may_share
        self._needs_data: Final = node.needs_data
        # How often another host has taken the place of the latest one, and how often when all was read last.
        self._moves = 0
        self._moves_read = 0
        self._isolation: Final = PostgresIsolation(
            self,
            self._stores.records,
            self._stores.sorted_data,
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
            self._stores.node = self._nodes.number
            self._stores.take(stores.rows(), {} if self._is_shared else self._log.counts())
            self._catalog.take(catalog.rows())
            self._waits_for_standby = bool(self._pool.read([(_STANDBYS, ())])[0].value())
        except BaseException:
            self._nodes.close(_PING_S)
            raise

    def _prepare(self, connection: Connection) -> None:
        """Makes the tables if there are none, and finds out whether they are distributed. StoreFailure."""
        prepare_schema(connection, self._schema, self._needs_data)
        self._workers = citus.workers_of(connection)
        if not self._workers:
            return
        if self._is_shared:
            raise StoreFailure(REFUSED, f"several servers cannot share the schema {self._schema}, which Citus spreads")
        self._is_distributed = self._log.is_distributed = self.units.is_distributed = True
        self._stores.is_distributed = True
        self._settings.is_distributed = True
        self._isolation.distribute()

    def _load_after(self, epoch: int) -> list[Call]:
        """What reads all that has changed since a version of the catalog."""
        changed = [self._stores.changed_since(epoch), self._catalog.changed_since(epoch)]
        return [(_BEGIN_LOAD, ()), (_EPOCH, ()), *changed, (_END_LOAD, ())]

    def _connect_for_lock(self) -> Connection:
        return connect(self._address, self._lock_settings, self._waiter, self._in_time())

    def _look_elsewhere(self) -> None:
        look_elsewhere(self._address, self._lock_settings, self._waiter)

    def _leave_others(self) -> None:
        """Ends the connections to the host whose place another one has taken."""
        if self._is_shared:
            # A standby may lack changes that this server knows, and others may make new ones under their versions.
            self._moves += 1
            self.units.is_stale = True
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

    def reload(self, everything: bool = False) -> None:
        """Reads what others have changed of the catalog, when no unit is open that was made from the old one.
        everything: where others may have forgotten since what they have deleted. EngineUnavailable."""
        self._turns.hold()
        try:
            moves = self._moves
            everything |= moves != self._moves_read
            epoch, stores, catalog = self._read_changes(everything)
            # Who has no place while it reads is not waited for by those who forget what they have deleted.
            if not everything and not self._nodes.has_place:
                everything = True
                epoch, stores, catalog = self._read_changes(everything)
            if everything or epoch != self._log.epoch or stores or catalog:
                self._log.epoch = epoch
                forgotten: list[str] = []
                if everything:
                    forgotten = self._stores.forget_others(stores)
                    catalog += self._catalog.gone_from(catalog)
                made, gone = self._stores.take(stores)
                self._nodes.on_change(CatalogChange(self._catalog.take(catalog), made, gone + forgotten))
            self._moves_read = moves
            self.units.is_stale = moves != self._moves
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
        known = self._stores.records.get(store.ident) if self._is_shared else None
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

    def set_pause(self, pause: Callable[[], None]) -> None:
        self.units.pause = pause

    def set_commit_listener(self, listener: Callable[[], None]) -> None:
        self.units.commit_listener = listener

    @property
    def committed_number(self) -> int:
        return self.units.commit_count

    # Stores

    def idents(self) -> list[str]:
        self._require_open()
        return [*self._stores.records, *self._stores.sorted_data]

    def create_record_store(self, ident: str, is_log: bool = False) -> RecordStore:
        return self._stores.create_record_store(ident, is_log)

    def create_partitioned_store(self, ident: str) -> RecordStore:
        return self._stores.create_partitioned_store(ident)

    def record_store(self, ident: str) -> RecordStore:
        return self._stores.records[ident]

    def create_sorted_data(self, ident: str, unique: bool, beside: str = "") -> SortedDataInterface:
        return self._stores.create_sorted_data(ident, unique, beside)

    def sorted_data(self, ident: str, unique: bool) -> SortedDataInterface:
        data = self._stores.sorted_data[ident]
        if data.unique != unique:
            raise ValueError(f"{ident} was created with unique={data.unique}")
        return data

    def count_due(self, wanted: Sequence[DueRecords]) -> list[int]:
        counts = [0] * len(wanted)
        if self._is_distributed:  # a statement is sent to one machine only if it names one place
            for place, (ident, seconds) in enumerate(wanted):
                store = self._stores.records.get(ident)  # which may be dropped while this waits for others
                if store is not None:
                    counts[place] = sum([store.count_due(index, until_s) for index, until_s in seconds.items()])
            return counts
        places, stores = self._known(wanted)
        for place, count in self._read_if(stores, count_due):
            counts[places[place]] = count
        return counts

    def have_due(self, wanted: Sequence[DueRecords]) -> list[bool]:
        if self._is_distributed:
            return [count > 0 for count in self.count_due(wanted)]
        found = [False] * len(wanted)
        places, stores = self._known(wanted)
        for (place,) in self._read_if(stores, find_due):
            found[places[place]] = True
        return found

    def _read_if(self, wanted: list[T], call: Callable[[list[T]], Call]) -> list[Row]:
        """The rows of a call of what is wanted; none if nothing is."""
        if not wanted:
            return []
        statement, values = call(wanted)
        return self.read(statement, *values)

    def _known(self, wanted: Sequence[DueRecords]) -> tuple[list[int], list[tuple[int, dict[ExpiryIndex, int]]]]:
        """The stores that are there, by number, and their places in the list."""
        records = self._stores.records
        places = [place for place, (ident, _) in enumerate(wanted) if ident in records]
        return places, [(records[wanted[place][0]].store_id, wanted[place][1]) for place in places]

    def have_keys(self, wanted: Sequence[tuple[str, bool, KeyRange]]) -> list[bool]:
        if self._is_distributed:
            return super().have_keys(wanted)
        found = [False] * len(wanted)
        known = self._stores.sorted_data
        for unique in (False, True):
            places = [
                place for place, each in enumerate(wanted) if each[0] in known and known[each[0]].unique == unique
            ]
            ranges = [(known[wanted[place][0]].store_id, wanted[place][2]) for place in places]
            for (place,) in self._read_if(ranges, partial(find_keys, unique)):
                found[places[place]] = True
        return found

    def drop_ident(self, ident: str) -> None:
        self._stores.drop(ident)

    def drop_some(self, limit: int) -> bool:
        self._require_open()
        return self._stores.drop_some(limit, self._may_free)

    def _may_free(self) -> bool:
        """Whether no server can read any more what was dropped."""
        try:
            return not self._is_shared or self._nodes.all_know()
        except StoreFailure as failure:
            raise engine_error(failure) from failure

    # Catalog entries

    def catalog_entries(self) -> list[tuple[str, bytes]]:
        self._require_open()
        return self._catalog.all()

    def catalog_entry(self, key: str) -> bytes | None:
        self._require_open()
        return self._catalog.get(key)

    def put_catalog_entry(self, key: str, value: bytes) -> None:
        self._catalog.put(key, value)

    def name_entry(self, key: str, name: str) -> None:
        self._catalog.name(key, name)

    def delete_catalog_entry(self, key: str) -> None:
        self._catalog.delete(key)

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
        self._stores.give_back_ids(self._waiter.monotonic_s() + _PING_S)
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
    length = len(encode_text(schema))
    if not 1 <= length <= _MOST_SCHEMA_BYTES:
        raise DataDirectoryError(f"the name of a schema has 1 to {_MOST_SCHEMA_BYTES} bytes, not {length}")
    uri = f"postgresql:{before}{mark if kept else ''}{urlencode(kept, quote_via=quote)}"
    try:
        location = Address(uri)
    except ValueError as error:
        raise DataDirectoryError(str(error)) from error
    return PostgresEngine(location, schema, node)


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
