"""The database in the folder of a stopped server, opened to be read and checked; nothing in it is changed.

What an opening of the engine would do is left undone: the log of a killed server stays, and is read; so do idents that
were dropped. Only SQLite's index of the log, -shm, may be made anew, which holds nothing of its own.
"""

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from typing import Final
from urllib.parse import quote

from mongottl.storage.checksums import damaged_records
from mongottl.storage.errors import DataDirectoryError, EngineUnavailable
from mongottl.storage.opening import stored_data
from mongottl.storage.sqlite.connection import IS_NO_PACKED_COUNTERS
from mongottl.storage.sqlite.copying import copy_database
from mongottl.storage.sqlite.database import LOG, RECORDS, connect, newest_place, read_frames
from mongottl.storage.sqlite.directory import FIRST_FORMAT_WITH_SUMS, FIRST_FORMAT_WITH_TAILS, DataDirectory
from mongottl.storage.sqlite.durable_log import loss, noted_state
from mongottl.storage.sqlite.engine import SqliteEngine
from mongottl.storage.sqlite.records import SqliteRecordStore
from mongottl.storage.sqlite.stored_log import commits_behind_damage
from mongottl.storage.stored_data import StoredData

# Faults that SQLite's own check looks for.
_MOST_PAGE_FAULTS: Final = 10_000
# What SQLite's check calls a page of the tree that begins at a page; it depends on the version.
_TREE: Final = re.compile(r"(?:On tree page|Tree) (\d+)")
_OBJECTS: Final = (
    "SELECT name, rootpage FROM sqlite_schema WHERE typeof(name) = 'text' AND typeof(rootpage) = 'integer'"
)
_OUR_TABLE: Final = re.compile(r"\b(?:sqlite_autoindex_)?([rk])(\d+)(_default|_own|_1)?\b")
_OUR_INDEX: Final = re.compile(r"sqlite_autoindex_.*|r\d+_.*")
# The type of each column. SQLite keeps it with each value, so that a changed byte can make it another one.
_CATALOG_COLUMNS: Final = {"key": "text", "value": "blob"}
_STORES_COLUMNS: Final = {
    "id": "integer",
    "ident": "text",
    "kind": "integer",
    "record_count": "integer",
    "size_bytes": "integer",
    "next_record_id": "integer",
}
_CAN_BE_NULL: Final = ("ident", "sum")
_RECORD_COLUMNS: Final = {"doc": "blob", "ts": "integer", "ttl": "integer"}
_SUM_COLUMNS: Final = {"sum": "integer"}
_SUM_COLUMNS_WITH_TAILS: Final = {"sum": "integer or blob"}
# Rows whose checksums are looked at together, and records of a store that are named.
_SUMS_AT_ONCE: Final = 256
_NAMED_RECORDS: Final = 20
_ENTRY_COLUMNS: Final = {"key": "blob", "rid": "integer"}
_EXPIRY_INDEXES: Final = {"_default": "its index of `_ts`", "_own": "its index of `_ts` and `ttl`"}


@stored_data("sqlite")
class StoredState(StoredData):
    """The stored state of a data directory. Raises DataDirectoryError if it cannot be opened, or if a server uses it.

    engine: for reading; None if what it needs first, the list of the stores, cannot be read. idents: by ids of stores.
    unreadable: idents of the stores with values of wrong types, for each of which `structure_faults` has a line.
    """

    def __init__(self, path: str) -> None:
        self._directory = DataDirectory(os.path.abspath(path))
        if not os.path.isdir(path):
            raise DataDirectoryError(f"{path} is not a folder")
        self._directory.lock_for_reading()
        database = self._directory.database_path
        self._made_shm = False
        self.idents: dict[int, str] = {}
        self.unreadable: set[str] = set()
        self._kinds: dict[int, int] = {}
        self._format = 0
        # The pages at which tables and indexes begin, by name; and the names of the tables.
        self._objects: dict[str, int] = {}
        self._tables: list[str] = []
        self.engine: SqliteEngine | None = None
        # Without a log nothing beside the file is needed, so that also a folder that cannot be written can be read.
        if self._directory.has_wal():
            options = "mode=ro"
            self._made_shm = not os.path.exists(self._directory.shm_path)
        else:
            options = "mode=ro&immutable=1"
        try:
            self._raw = connect(f"file:{quote(database)}?{options}", uri=True)
        except sqlite3.Error as error:
            self._directory.release()
            raise DataDirectoryError(f"{database} cannot be opened: {error}") from error

    def close(self) -> None:
        self._raw.close()
        if self._made_shm and os.path.exists(self._directory.shm_path):
            os.unlink(self._directory.shm_path)
        self._directory.release()

    def copy_to(self, path: str) -> None:
        """Copies the database, with what is only in its log, to a new file. EngineUnavailable."""
        copy_database(self._raw, path, _proceed)

    def structure_faults(self) -> Iterator[str]:
        """What is wrong with the pages of the database, with its tables and their indexes; opens the engine."""
        yield from self._page_faults()
        yield from self.log_faults()
        without: set[int] = set()
        try:
            self._read_stores()
        except sqlite3.Error as error:
            yield f"the list of the stores cannot be read: {error}"
            return
        untyped = [*self._type_faults("stores", _STORES_COLUMNS), *self._type_faults("catalog", _CATALOG_COLUMNS)]
        if untyped:
            yield from untyped
            return
        for store_id, kind in self._kinds.items():
            prefix = "r" if kind in (RECORDS, LOG) else "k"
            if f"{prefix}{store_id}" not in self._objects:
                without.add(store_id)
                yield f"{self._named(store_id)}: its table is missing"
            elif prefix == "r":
                for suffix, named in _EXPIRY_INDEXES.items():
                    if f"r{store_id}{suffix}" not in self._objects:
                        yield f"{self._named(store_id)}: {named} is missing"
            columns = _ENTRY_COLUMNS
            if prefix == "r":
                columns = _RECORD_COLUMNS
                if self._format >= FIRST_FORMAT_WITH_TAILS:
                    columns = {**_RECORD_COLUMNS, **_SUM_COLUMNS_WITH_TAILS}
                elif self._format >= FIRST_FORMAT_WITH_SUMS:
                    columns = {**_RECORD_COLUMNS, **_SUM_COLUMNS}
            for fault in self._type_faults(f"{prefix}{store_id}", columns, kind == LOG):
                self.unreadable.add(self.idents.get(store_id, ""))
                yield fault
        for name in self._objects:
            match = _OUR_TABLE.fullmatch(name)
            if match is not None and int(match[2]) not in self._kinds:
                yield f"table {name} belongs to no store"
        try:
            self.engine = SqliteEngine(None, read_only=self._raw, without=frozenset(without))
        except (EngineUnavailable, sqlite3.Error) as error:
            yield f"the stores cannot be opened: {error}"

    def log_faults(self) -> Iterator[str]:
        """What of the log was not read. To be called when something has been read from the database."""
        directory = self._directory
        frames = 0
        lost = 0
        missing = ""
        try:
            if directory.has_wal():
                frames = read_frames(directory)
                lost = commits_behind_damage(directory.wal_path, frames)
            noted = noted_state(directory.durable_path)
            if noted is not None:
                with suppress(sqlite3.Error):  # reported among the faults of the stores
                    missing = loss(noted, directory.wal_path, frames, newest_place(self._raw))
        except OSError as error:
            yield f"log: it cannot be read: {error}"
            return
        if lost < 0:
            yield "log: its header is damaged, so all commits in it are lost"
        elif lost:
            yield (
                f"log: frame {frames + 1} or one soon behind it is damaged, or was not on disk at a power failure, so"
                f" that {lost} later commits are lost"
            )
        if missing:
            yield f"log: commits that were acknowledged as durable cannot be read: {missing}"

    def counter_faults(self) -> Iterator[str]:
        """Where the number of records, their bytes or the next record id of a store are not what its table has."""
        for store in self._record_stores():
            ident = store.ident
            sql = f"SELECT count(*), coalesce(sum(length(doc)), 0), coalesce(max(rid), 0) FROM {store.table}"
            try:
                count, size, last = self._raw.execute(sql).fetchone()
            except sqlite3.Error as error:
                yield f"{ident}: its records cannot be counted: {error}"
                continue
            counters = store.counters
            if counters.record_count != count:
                yield f"{ident}: its counter says {counters.record_count} records, but there are {count}"
            if counters.size_bytes != size:
                yield f"{ident}: its counter says {counters.size_bytes} bytes of documents, but there are {size}"
            if counters.next_record_id <= last:
                yield f"{ident}: the next record id, {counters.next_record_id}, is not behind the last one, {last}"

    def _record_stores(self) -> Iterator[SqliteRecordStore]:
        engine = self.engine
        assert engine is not None
        ids = {ident: store_id for store_id, ident in self.idents.items()}
        for ident in engine.idents():
            if self._kinds[ids[ident]] in (RECORDS, LOG):
                store = engine.record_store(ident)
                assert isinstance(store, SqliteRecordStore)
                yield store

    def sum_faults(self) -> Iterator[str]:
        """The records whose checksum is wrong; of each store at most some are named."""
        if self._format < FIRST_FORMAT_WITH_SUMS:
            return
        for store in self._record_stores():
            ident = store.ident
            if ident in self.unreadable:
                continue
            damaged = 0
            try:
                rows = self._raw.execute(f"SELECT rid, doc, ts, ttl, sum FROM {store.table} ORDER BY rid")
                while batch := rows.fetchmany(_SUMS_AT_ONCE):
                    for record_id in damaged_records(batch):
                        damaged += 1
                        if damaged <= _NAMED_RECORDS:
                            yield f"{ident}: record {record_id} is not as it was written: its checksum is wrong"
            except sqlite3.Error as error:
                yield f"{ident}: its checksums cannot be read: {error}"
            if damaged > _NAMED_RECORDS:
                yield f"{ident}: {damaged - _NAMED_RECORDS} more records have a wrong checksum"

    def _type_faults(self, table: str, columns: dict[str, str], is_log: bool = False) -> Iterator[str]:
        """Where values of a table have another type than that of their column: one line for each column."""
        wrong = {
            column: " AND ".join([f"typeof({column}) <> '{each}'" for each in wanted.split(" or ")])
            for column, wanted in columns.items()
        }
        for column in _CAN_BE_NULL:
            if column in wrong:
                wrong[column] += f" AND {column} IS NOT NULL"
        if is_log:
            wrong["counters"] = f"counters IS NOT NULL AND {IS_NO_PACKED_COUNTERS}"
        for column, condition in wrong.items():
            try:
                (count,) = self._raw.execute(f"SELECT count(*) FROM {table} NOT INDEXED WHERE {condition}").fetchone()
            except sqlite3.Error:
                return  # reported when the values are read
            if count:
                yield f"{self._table_named(table)}: {count} values of {column} have another type"

    def _page_faults(self) -> Iterator[str]:
        with suppress(sqlite3.Error):  # reported by `structure_faults`
            self._read_stores()
        try:
            yield from self._integrity_faults("")
        except sqlite3.Error as error:
            yield f"pages: {error}"
            # Some damage ends SQLite's check. One table at a time says where it is, and finds what is after it.
            for name in self._tables:
                try:
                    yield from self._integrity_faults(name)
                except sqlite3.Error as table_error:
                    yield f"pages: table {name} ({self._table_named(name)}): {table_error}"

    def _integrity_faults(self, table: str) -> Iterator[str]:
        """What SQLite's check finds in a table with its indexes, or in all and between them."""
        for (text,) in self._raw.execute(f"PRAGMA integrity_check({table or _MOST_PAGE_FAULTS})"):
            for line in str(text).splitlines():
                if line != "ok" and not line.startswith("***"):
                    yield f"pages: {self._with_names(line)}"

    def _read_stores(self) -> None:
        self._format = self._raw.execute("PRAGMA user_version").fetchone()[0]
        self._objects = dict(self._raw.execute(_OBJECTS).fetchall())
        self._tables = [name for name in self._objects if _OUR_INDEX.fullmatch(name) is None]
        for store_id, ident, kind in self._raw.execute("SELECT id, ident, kind FROM stores").fetchall():
            self._kinds[store_id] = kind
            if ident is not None:
                self.idents[store_id] = ident

    def _with_names(self, line: str) -> str:
        """A line of SQLite's check, with the idents of the tables that it names by their pages or their own names."""
        roots = {page: name for name, page in self._objects.items()}

        def named(match: re.Match[str]) -> str:
            name = roots.get(int(match[1]))
            return match[0] if name is None else f"{match[0]} ({self._table_named(name)})"

        line = _OUR_TABLE.sub(lambda match: self._table_named(match[0]), line)
        return _TREE.sub(named, line)

    def _table_named(self, table: str) -> str:
        """What a table or an index of SQLite is for."""
        match = _OUR_TABLE.fullmatch(table)
        if match is None:
            return table
        owner = self._named(int(match[2]))
        suffix = match[3] or ""
        return f"{owner}: {_EXPIRY_INDEXES[suffix]}" if suffix in _EXPIRY_INDEXES else owner

    def _named(self, store_id: int) -> str:
        """The ident of a store; one that was dropped has none."""
        return self.idents.get(store_id, f"store {store_id}, which was dropped")


def _proceed() -> None:
    pass
