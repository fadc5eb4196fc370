"""The table of stores, which is in memory as well: record stores and sorted data by their idents, and their numbers."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from mongottl.document.utf8 import decode_text, encode_text
from mongottl.storage.postgresql.access import Access
from mongottl.storage.postgresql.citus_spread import (
    PARTS,
    IdsOfPart,
    PartitionKey,
    SpreadRecordStore,
    SpreadSortedData,
    places_of,
)
from mongottl.storage.postgresql.failures import StoreFailure
from mongottl.storage.postgresql.log import Counters
from mongottl.storage.postgresql.pool import ConnectionPool
from mongottl.storage.postgresql.record_ids import NO_END, RecordIds
from mongottl.storage.postgresql.records import PostgresRecordStore
from mongottl.storage.postgresql.schema import LOG, RECORDS, SORTED, SORTED_UNIQUE
from mongottl.storage.postgresql.sorted_data import PostgresSortedData
from mongottl.storage.postgresql.statements import (
    BYTEA,
    INT4,
    INT4_ARRAY,
    INT8,
    INT8_ARRAY,
    PATIENT,
    Call,
    Statement,
    int4,
    int4_array,
    int8,
    int8_array,
    placed,
)
from mongottl.storage.postgresql.units import ROWS_AT_ONCE, PostgresUnits, Row, engine_error
from mongottl.storage.stores import RecordStore, SortedDataInterface

# What has changed since a version of the catalog; of transactions always (`UNKNOWN_EPOCH`).
_STORES: Final = Statement(
    "stores", "SELECT id, ident, kind, dropped, next_id FROM stores WHERE epoch > $1 ORDER BY id", (INT8,)
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
_DROP_STORE: Final = Statement("drop_store", "UPDATE stores SET dropped = true, epoch = $2 WHERE id = $1", (INT4, INT8))
_FORGET_STORE: Final = Statement(
    "forget_store",
    "WITH t AS (DELETE FROM totals WHERE store = $1) DELETE FROM stores WHERE id = $1 AND dropped",
    (INT4,),
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
# Where others change the table, the drop may have been lost with a primary, and its number be another store's.
_FREE_SHARED: Final = {
    table: Statement(
        f"free_shared_{table}",
        f"WITH done AS (DELETE FROM {table} WHERE ctid = ANY (ARRAY("
        f"SELECT ctid FROM {table} WHERE store = $1 AND EXISTS (SELECT FROM stores WHERE id = $1 AND dropped)"
        " LIMIT $2)) RETURNING 1) SELECT count(*) FROM done",
        (INT4, INT8),
    )
    for table in ("records", "entries", "unique_entries")
}
_NO_COUNTS: Final[dict[int, tuple[int, int]]] = {}
_TABLE_OF: Final = {RECORDS: "records", LOG: "records", SORTED: "entries", SORTED_UNIQUE: "unique_entries"}


class StoreTable:
    """access: how stores reach the database. is_shared: whether other servers change the table, too.

    is_distributed: whether tables are; set before anything is read. node: the number of this server. records,
    sorted_data: by ident.
    """

    def __init__(self, access: Access, units: PostgresUnits, is_shared: bool) -> None:
        self._access: Final = access
        self._units: Final = units
        self._pool: Final[ConnectionPool] = units.pool
        self._is_shared: Final = is_shared
        self.is_distributed = False
        self.node = 0
        self.records: Final[dict[str, PostgresRecordStore]] = {}
        self.sorted_data: Final[dict[str, PostgresSortedData]] = {}
        # Numbers and kinds of dropped stores whose rows are still there, and the places of these.
        self._dropped: list[tuple[int, int, list[int | None]]] = []
        self._last_store = 0

    def changed_since(self, epoch: int) -> Call:
        """What reads the rows for `take`."""
        return _PLACED_STORES if self.is_distributed else _STORES, (int8(epoch),)

    def take(self, rows: list[Row], counts: Mapping[int, tuple[int, int]] = _NO_COUNTS) -> tuple[list[str], list[str]]:
        """Takes over rows, all or those that have changed: the idents of new stores, and of dropped ones. Stores that
        are there keep their objects. counts: of records and their bytes, by store."""
        made: list[str] = []
        gone: list[str] = []
        known_drops = {number for number, _, _ in self._dropped}
        for place, (number, name, kind, dropped, next_id, *placed_at) in enumerate(rows, 1):
            if not place % ROWS_AT_ONCE:
                self._units.pause()
            ident = decode_text(name)
            self._last_store = max(self._last_store, number)
            is_records = kind in (RECORDS, LOG)
            known = self.records.get(ident) if is_records else self.sorted_data.get(ident)
            is_known = known is not None and known.store_id == number
            # Without places where tables are not distributed.
            places = places_of(*placed_at) if placed_at else []
            if dropped:
                if number not in known_drops:
                    known_drops.add(number)
                    self._dropped.append((number, kind, [*places] or [None]))
                if is_known:
                    self._forget(ident)
                    gone.append(ident)
            elif not is_known:
                made.append(ident)
                if is_records:
                    ids = RecordIds(next_id, next_id, partial(self._lease, number))
                    found = counts.get(number, (0, 0))
                    self.records[ident] = self._record_store(ident, number, places, ids, found, kind == LOG)
                else:
                    self.sorted_data[ident] = self._sorted_data(ident, number, places, kind == SORTED_UNIQUE)
        return made, gone

    def forget_others(self, rows: list[Row]) -> list[str]:
        """Forgets the stores that are not among these rows, which are all, and returns them; with the ids that are
        leased, and with drops, which a standby that was promoted may lack."""
        there = {(row[0], decode_text(row[1])) for row in rows}
        self._units.pause()
        gone = [ident for ident, store in self.records.items() if (store.store_id, ident) not in there]
        self._units.pause()
        gone += [ident for ident, data in self.sorted_data.items() if (data.store_id, ident) not in there]
        self._units.pause()
        for ident in gone:
            self._forget(ident)
        for store in self.records.values():
            store.ids.forget()
        dropped = {row[0] for row in rows if row[3]}
        self._dropped[:] = [each for each in self._dropped if each[0] in dropped]
        return gone

    def create_record_store(self, ident: str, is_log: bool = False) -> RecordStore:
        return self._create_record_store(ident, 1, is_log)

    def create_partitioned_store(self, ident: str) -> RecordStore:
        return self._create_record_store(ident, PARTS if self.is_distributed else 1, False)

    def _create_record_store(self, ident: str, parts: int, is_log: bool) -> RecordStore:
        number = self._new_store(ident, LOG if is_log else RECORDS, parts=parts)
        ids = RecordIds(1, NO_END, partial(self._lease, number))
        places = places_of(number, parts) if self.is_distributed else []
        store = self.records[ident] = self._record_store(ident, number, places, ids, (0, 0), is_log)
        unit = self._units.require()
        unit.undo.append(partial(self._forget, ident))
        unit.before_commit.append(lambda: unit.write(_SETTLE, int4(number), int8(ids.settle())))
        return store

    def _record_store(
        self, ident: str, number: int, places: list[int], ids: RecordIds, counts: tuple[int, int], is_log: bool
    ) -> PostgresRecordStore:
        """counts: of all its records and their bytes, whichever parts they are in."""
        if len(places) < 2:
            place = places[0] if places else None
            counters = Counters(number, *counts, place or 0)
            return PostgresRecordStore(self._access.at(place), ident, counters, ids, is_log)
        parts: list[PostgresRecordStore] = []
        for place in places:
            counters = Counters(number, *counts, place)
            part_ids = IdsOfPart(ids, len(parts))
            parts.append(PostgresRecordStore(self._access.at(place), ident, counters, part_ids, False))
            counts = (0, 0)
        return SpreadRecordStore(self._access, ident, parts, ids, PartitionKey(len(parts)))

    def create_sorted_data(self, ident: str, unique: bool, beside: str = "") -> SortedDataInterface:
        """beside: the record store whose places it has, where tables are distributed."""
        records = self.records.get(beside)
        place = None if records is None else records.parts[0].place
        parts = 1 if records is None else len(records.parts)
        number = self._new_store(ident, SORTED_UNIQUE if unique else SORTED, place, parts)
        places = places_of(number if place is None else place, parts) if self.is_distributed else []
        data = self.sorted_data[ident] = self._sorted_data(ident, number, places, unique)
        self._units.require().undo.append(partial(self._forget, ident))
        return data

    def _sorted_data(self, ident: str, number: int, places: list[int], unique: bool) -> PostgresSortedData:
        if len(places) < 2:
            place = places[0] if places else None
            return PostgresSortedData(self._access.at(place), ident, number, unique)
        parts = [PostgresSortedData(self._access.at(place), ident, number, unique) for place in places]
        return SpreadSortedData(self._access, ident, parts, PartitionKey(len(parts)).part_of_key)

    def _forget(self, ident: str) -> None:
        self.records.pop(ident, None)
        self.sorted_data.pop(ident, None)

    def _new_store(self, ident: str, kind: int, place: int | None = None, parts: int = 1) -> int:
        """place: the first one of its rows; None for one of its own, where tables are distributed. parts: how many
        places it has there."""
        unit = self._units.require()
        if ident in self.records or ident in self.sorted_data:
            raise ValueError(f"{ident} exists")
        unit.change_catalog()
        self._last_store += 1
        values = (int4(self._last_store), encode_text(ident), int4(kind))
        made = (*values, int4(self.node), int8(unit.catalog_epoch))
        if self.is_distributed:
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
            raise self._units.store_is_gone()
        return int(leased[0][0])

    def give_back_ids(self, until_s: float) -> None:
        """Gives back the record ids that nobody has got, if that is done until a time."""
        stores = [store for store in self.records.values() if store.ids.following < store.ids.end]
        if stores and not self._units.refusal:
            numbers = int4_array([store.store_id for store in stores])
            following = int8_array([store.ids.following for store in stores])
            leased = int8_array([store.ids.end for store in stores])
            with suppress(StoreFailure):
                self._pool.write([(_GIVE_BACK, (numbers, following, leased))], until_s)

    def drop(self, ident: str) -> None:
        unit = self._units.require()
        unit.change_catalog()
        store = self.records.pop(ident, None)
        if store is not None:
            unit.undo.append(partial(self.records.__setitem__, ident, store))
            dropped = (store.store_id, LOG if store.is_log else RECORDS, [part.place for part in store.parts])
        else:
            data = self.sorted_data.pop(ident)
            unit.undo.append(partial(self.sorted_data.__setitem__, ident, data))
            kind = SORTED_UNIQUE if data.unique else SORTED
            dropped = (data.store_id, kind, [part.place for part in data.parts])
        unit.write(_DROP_STORE, int4(dropped[0]), int8(unit.catalog_epoch))
        unit.after_commit.append(partial(self._dropped.append, dropped))

    def drop_some(self, limit: int, may_free: Callable[[], bool]) -> bool:
        """`StorageEngine.drop_some`. may_free: whether no server can read any more what was dropped."""
        # Asking takes time, in which all may be read anew, without what a standby lacks.
        if not self._dropped or not may_free() or not self._dropped:
            return False
        dropped = self._dropped[-1]
        store, kind, places = dropped
        number = int4(store)
        place = places[-1]
        # Rows that are distributed are deleted on the machine of their place, which does not have this table.
        free = _FREE_SHARED if self._is_shared and place is None else _FREE
        if self._access.at(place).read(free[_TABLE_OF[kind]], number, int8(limit))[0][0] < limit:
            if len(places) == 1:
                self._access.read(_FORGET_STORE, number)
                if dropped in self._dropped:
                    self._dropped.remove(dropped)
            elif places[-1] == place:
                places.pop()
        return bool(self._dropped)
