"""The idents of the SQLite engine: record stores and sorted data by their names, and the space of dropped ones.

Table `stores` has a row for each ident, and for each dropped one whose space is not freed yet. Its id names the table
of the ident: r<id> for a record store, k<id> for sorted data. So no name in SQL contains a client's name, and the name
of a dropped ident can be used again at once.
"""

import struct
from collections.abc import Callable
from typing import Final

from mongottl.storage.errors import EngineUnavailable
from mongottl.storage.interface import WriteUnitOfWork
from mongottl.storage.sqlite.connection import SqliteConnection, StoreCounters
from mongottl.storage.sqlite.database import LOG, RECORDS, SORTED, SORTED_UNIQUE
from mongottl.storage.sqlite.record_cache import RecordCache
from mongottl.storage.sqlite.records import SqliteLog, SqliteRecordStore, create_record_table
from mongottl.storage.sqlite.sorted_data import SqliteSortedData, create_sorted_table
from mongottl.storage.stores import RecordStore, SortedDataInterface

# Stores and sorted data up to this size are freed at once rather than by `drop_some`.
_SMALL_ROWS: Final = 1000
_SMALL_BYTES: Final = 1 << 20
# A row up to this length counts as one in `drop_some`; longer ones occupy pages of their own and count as more.
_DROP_ROW_BYTES: Final = 512


class _Dropped:
    """A dropped ident whose rows still exist. row_weight: what one of them counts in the limit of `drop_some`. cache:
    those of its records that are kept in memory, or None."""

    def __init__(self, store_id: int, kind: int, row_weight: int, cache: RecordCache | None = None) -> None:
        self.store_id = store_id
        self.kind = kind
        self.row_weight = row_weight
        self.cache = cache


class Idents:
    """The idents of one database. records, sorted: by name.

    saved: whether the open unit of work has changed the idents, and a rollback will restore them; each unit begins with
    False.
    """

    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection
        self.records: dict[str, SqliteRecordStore] = {}
        self.sorted: dict[str, SqliteSortedData] = {}
        self.saved = False
        self._dropped: list[_Dropped] = []
        self._next_store_id = 1

    @property
    def dropped_count(self) -> int:
        """How many dropped idents are not freed yet."""
        return len(self._dropped)

    def names(self) -> list[str]:
        return [*self.records, *self.sorted]

    def create_record_store(self, ident: str, is_log: bool) -> RecordStore:
        self._save()
        connection = self._connection
        store_id = self._new_store(ident, LOG if is_log else RECORDS)
        create_record_table(connection, store_id, is_log)
        counters = StoreCounters(store_id, 0, 0, 1)
        store = SqliteLog(connection, ident, counters) if is_log else SqliteRecordStore(connection, ident, counters)
        if is_log:
            connection.settle_counters()  # only those of the newest log are read
        self.records[ident] = store
        return store

    def create_sorted_data(self, ident: str, unique: bool, beside: str = "") -> SortedDataInterface:
        self._save()
        store_id = self._new_store(ident, SORTED_UNIQUE if unique else SORTED)
        create_sorted_table(self._connection, store_id, unique)
        data = SqliteSortedData(self._connection, ident, store_id, unique)
        self.sorted[ident] = data
        return data

    def drop(self, ident: str) -> None:
        """Drops an ident inside a unit of work; its rows at once if they are few, else by `drop_some`."""
        self._save()
        store = self.records.pop(ident, None)
        if store is not None:
            if isinstance(store, SqliteLog):
                self._connection.settle_counters()
            counters = store.counters
            count = counters.record_count
            average = counters.size_bytes // count if count else 0
            dropped = _Dropped(counters.store_id, RECORDS, 1 + average // _DROP_ROW_BYTES, counters.cache)
            small = count <= _SMALL_ROWS and counters.size_bytes <= _SMALL_BYTES
        else:
            data = self.sorted.pop(ident)
            dropped = _Dropped(data.store_id, SORTED_UNIQUE if data.unique else SORTED, 1)
            small = not self._connection.read(f"SELECT 1 FROM {data.table} LIMIT 1 OFFSET ?", (_SMALL_ROWS,))
        if small:
            if dropped.cache is not None:
                dropped.cache.clear()
            self._drop_table(dropped)
        else:
            self._connection.write("UPDATE stores SET ident = NULL WHERE id = ?", (dropped.store_id,))
            self._dropped.append(dropped)

    def drop_some(self, limit: int, unit_of_work: Callable[[], WriteUnitOfWork]) -> bool:
        """Deletes about `limit` rows of dropped idents, in a unit of work; whether some are left."""
        if not self._dropped:
            return False
        dropped = self._dropped[-1]
        rows = max(1, limit // dropped.row_weight)
        if dropped.cache is not None and dropped.cache.clear_some(rows):
            return True
        if dropped.kind == RECORDS:
            table, key = f"r{dropped.store_id}", "rid"
        else:
            table, key = f"k{dropped.store_id}", "(key, rid)"
        columns = key.strip("()")
        with unit_of_work() as unit:
            # Finds no row when fewer are left, and then deletes none.
            deleted = self._connection.write(
                f"DELETE FROM {table} WHERE {key} <= "
                f"(SELECT {columns} FROM {table} ORDER BY {columns} LIMIT 1 OFFSET ?)",
                (rows - 1,),
            )
            if deleted == 0:
                self._save()
                self._drop_table(dropped)
                self._dropped.pop()
            unit.commit()
        return bool(self._dropped)

    def load(self, without: frozenset[int] = frozenset()) -> None:
        """Makes the objects of all idents, and the list of those whose space is to be freed.

        without: ids of stores to leave out.
        """
        connection = self._connection
        tables = {row[0] for row in connection.read("SELECT name FROM sqlite_schema WHERE type = 'table'", ())}
        connection.read("SELECT key FROM catalog LIMIT 1", ())
        rows = connection.read("SELECT id, ident, kind, record_count, size_bytes, next_record_id FROM stores", ())
        newest: SqliteLog | None = None
        for store_id, ident, kind, record_count, size_bytes, next_record_id in rows:
            self._next_store_id = max(self._next_store_id, store_id + 1)
            if store_id in without:
                continue
            if (f"r{store_id}" if kind in (RECORDS, LOG) else f"k{store_id}") not in tables:
                raise EngineUnavailable(f"the table of {ident} is missing")
            if ident is None:
                average = size_bytes // record_count if record_count else 0
                dropped_as = RECORDS if kind == LOG else kind
                self._dropped.append(_Dropped(store_id, dropped_as, 1 + average // _DROP_ROW_BYTES))
            elif kind == LOG:
                counters = StoreCounters(store_id, record_count, size_bytes, next_record_id)
                log = SqliteLog(connection, ident, counters)
                self.records[ident] = log
                if newest is None or store_id > newest.counters.store_id:
                    newest = log
            elif kind == RECORDS:
                counters = StoreCounters(store_id, record_count, size_bytes, next_record_id)
                self.records[ident] = SqliteRecordStore(connection, ident, counters)
            else:
                self.sorted[ident] = SqliteSortedData(connection, ident, store_id, kind == SORTED_UNIQUE)
        if newest is not None:
            self._load_counters(newest)
        if newest is not None and connection.persistent:
            connection.committed_place = (newest.counters.store_id, newest.last_record_id())

    def _load_counters(self, log: SqliteLog) -> None:
        """Corrects the counters of all stores by what the log has after the place up to which they were settled."""
        try:
            ahead = log.counters_from(log.counters.next_record_id)
        except (ValueError, struct.error):
            ahead = self._counted()
        stores = {store.counters.store_id: store.counters for store in self.records.values()}
        for store_id, (record_count, size_bytes, next_record_id) in ahead.items():
            # An id in the log is not given again, though its store may have been dropped since.
            self._next_store_id = max(self._next_store_id, store_id + 1)
            counters = stores.get(store_id)
            if counters is not None:
                counters.set(record_count, size_bytes, next_record_id)
                self._connection.note_ahead(counters)

    def _counted(self) -> dict[int, tuple[int, int, int]]:
        """The counters of all stores, counted, since those in the log are damaged; it takes as long as a scan of all
        records."""
        found: dict[int, tuple[int, int, int]] = {}
        for store in self.records.values():
            sql = f"SELECT count(*), coalesce(sum(length(doc)), 0), coalesce(max(rid), 0) FROM {store.table}"
            count, size, last = self._connection.read_row(sql, ())
            counters = store.counters
            found[counters.store_id] = (count, size, max(last + 1, counters.next_record_id))
        return found

    def _save(self) -> None:
        """To be called before each change of idents: at the first one in a unit, registers that a rollback undoes
        it."""
        if not self.saved:
            self.saved = True
            records = dict(self.records)
            sorted_data = dict(self.sorted)
            dropped = list(self._dropped)

            def restore() -> None:
                self.records = records
                self.sorted = sorted_data
                self._dropped = dropped

            self._connection.on_rollback(restore)

    def _new_store(self, ident: str, kind: int) -> int:
        if ident in self.records or ident in self.sorted:
            raise ValueError(f"ident {ident} exists")
        store_id = self._next_store_id
        self._next_store_id += 1
        self._connection.write("INSERT INTO stores VALUES (?, ?, ?, 0, 0, 1)", (store_id, ident, kind))
        return store_id

    def _drop_table(self, dropped: _Dropped) -> None:
        prefix = "r" if dropped.kind == RECORDS else "k"
        self._connection.change_schema(f"DROP TABLE {prefix}{dropped.store_id}")
        self._connection.write("DELETE FROM stores WHERE id = ?", (dropped.store_id,))
