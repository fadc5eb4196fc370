"""Sorted data in SQLite: one WITHOUT ROWID table of (key, rid) each, keyed by both, or by the key alone when unique.

The position of a scan is the pair (key, rid) in both kinds, compared as a row value: `(low, 0)` is before every entry
of `low` and `(high, 0)` is after every entry below `high`, since record ids begin at 1. So the first batch and the
following ones use the same statement.
"""

from typing import Any

from mongottl.storage.checksums import checked_entries
from mongottl.storage.errors import DuplicateKey
from mongottl.storage.sqlite.connection import SqliteConnection
from mongottl.storage.sqlite.records import FEW, LOOKUP_VALUES, LOOKUP_WIDTH, SqliteRecordStore, padded
from mongottl.storage.stores import (
    NO_BYTE_LIMIT,
    FetchedEntry,
    KeyEntry,
    KeyRange,
    Record,
    RecordStore,
    SortedDataInterface,
)


def create_sorted_table(connection: SqliteConnection, store_id: int, unique: bool) -> None:
    primary = "key" if unique else "key, rid"
    connection.change_schema(
        f"CREATE TABLE k{store_id} (key BLOB NOT NULL, rid INTEGER NOT NULL, PRIMARY KEY ({primary})) WITHOUT ROWID"
    )


class SqliteSortedData(SortedDataInterface):
    def __init__(self, connection: SqliteConnection, ident: str, store_id: int, unique: bool) -> None:
        self.ident = ident
        self.unique = unique
        self.store_id = store_id
        self._connection = connection
        table = f"k{store_id}"
        self.table = table
        kind = "INSERT" if unique else "INSERT OR IGNORE"
        ascending = "WHERE (k.key, k.rid) > (?, ?) AND k.key < ? ORDER BY k.key, k.rid LIMIT ?"
        descending = "WHERE (k.key, k.rid) < (?, ?) AND k.key >= ? ORDER BY k.key DESC, k.rid DESC LIMIT ?"
        self._insert = f"{kind} INTO {table} VALUES (?, ?)"
        self._remove = f"DELETE FROM {table} WHERE key = ? AND rid = ?"
        self._find = f"SELECT key, rid FROM {table} WHERE key = ? ORDER BY rid"
        self._find_many = f"SELECT k.key, k.rid FROM {LOOKUP_VALUES} v CROSS JOIN {table} k ON k.key = v.column1"
        self._forward = f"SELECT k.key, k.rid FROM {table} k {ascending}"
        self._backward = f"SELECT k.key, k.rid FROM {table} k {descending}"
        self._entry_at = (
            f"SELECT key, rid FROM {table} WHERE (key, rid) > (?, ?) AND key < ? ORDER BY key, rid LIMIT 1 OFFSET ?"
        )
        self._count = f"SELECT count(*) FROM {table} WHERE key >= ? AND key < ?"
        # The statements that join the records of a store, made for the store that was used last, usually the only one.
        self._joined = ""
        self._fetch_exact = ""
        self._fetch_forward = ""
        self._fetch_backward = ""
        self._fetch_forward_checked = ""
        self._fetch_backward_checked = ""
        self._ascending = ascending
        self._descending = descending

    def insert(self, entries: list[KeyEntry]) -> None:
        if not self.unique:
            if entries:
                self._connection.write_many(self._insert, entries)
            return
        done = 0
        skipped: list[int] = []
        rest = entries
        while rest:
            done += self._connection.insert_until_conflict(self._insert, rest)
            if done == len(entries):
                return
            key, record_id = entries[done]
            existing = int(self._connection.read_row(self._find, (key,))[1])
            if existing != record_id:
                # The rows before it stand in the table, but for those that had been there before this call.
                for position in reversed(skipped):
                    entries = entries[:position] + entries[position + 1 :]
                mine = done - len(skipped)
                if mine:
                    self._connection.write_many(self._remove, entries[:mine])
                raise DuplicateKey(key, existing, done)
            skipped.append(done)
            done += 1
            rest = entries[done:]

    def insert_one(self, key: bytes, record_id: int) -> None:
        if not self.unique:
            self._connection.write(self._insert, (key, record_id))
        elif self._connection.insert_until_conflict(self._insert, [(key, record_id)]) == 0:
            existing = int(self._connection.read_row(self._find, (key,))[1])
            if existing != record_id:
                raise DuplicateKey(key, existing, 0)

    def remove(self, entries: list[KeyEntry]) -> None:
        if entries:
            self._connection.write_many(self._remove, entries)

    def remove_one(self, key: bytes, record_id: int) -> None:
        self._connection.write(self._remove, (key, record_id))

    def scan(
        self, key_range: KeyRange, after: KeyEntry | None, limit: int, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[KeyEntry], bool]:
        rows: list[KeyEntry]
        if key_range.forward:
            key, record_id = (key_range.low, 0) if after is None else after
            sql = self._forward
            end = key_range.high
        else:
            key, record_id = (key_range.high, 0) if after is None else after
            sql = self._backward
            end = key_range.low
        if max_bytes == NO_BYTE_LIMIT or limit == 1:
            rows = self._connection.read(sql, (key, record_id, end, limit))
            return rows, len(rows) >= limit
        rows, left = self._connection.read_within(sql, (key, record_id, end, limit), 0, max_bytes)
        return rows, len(rows) >= limit or left <= 0

    def scan_fetch(
        self,
        records: RecordStore,
        key_range: KeyRange,
        after: KeyEntry | None,
        limit: int,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[FetchedEntry], bool]:
        assert isinstance(records, SqliteRecordStore)
        cache = records.full_cache
        if cache is not None:
            entries, more = self.scan(key_range, after, limit)
            fetched = cache.fetch(entries, max_bytes)
            if fetched is not None:
                found, reached = fetched
                return found, more or reached
        if records.table != self._joined:
            self._join(records)
        with_sums = records.must_check
        if key_range.forward:
            key, record_id = (key_range.low, 0) if after is None else after
            sql = self._fetch_forward_checked if with_sums else self._fetch_forward
            end = key_range.high
        else:
            key, record_id = (key_range.high, 0) if after is None else after
            sql = self._fetch_backward_checked if with_sums else self._fetch_backward
            end = key_range.low
        counters = records.counters
        if counters.fits_repeated(limit, max_bytes):
            rows = _checked(records, self._connection.read(sql, (key, record_id, end, limit)), with_sums)
            self._connection.remember_read(counters, rows, counters.most_bytes(len(rows)), 1)
            return rows, len(rows) >= limit
        read, left = self._connection.read_within(sql, (key, record_id, end, limit), 2, max_bytes)
        rows = _checked(records, read, with_sums)
        self._connection.remember_read(counters, rows, max_bytes - left, 1)
        return rows, len(rows) >= limit or left <= 0

    def fetch_exact(self, records: RecordStore, key: bytes) -> Record | None:
        assert isinstance(records, SqliteRecordStore)
        cache = records.full_cache
        if cache is not None:
            entry = self._connection.read_row(self._find, (key,))
            if entry is None:
                return None
            record = cache.find(entry[1])
            if record is not None:
                return record
        if records.table != self._joined:
            self._join(records)
        row = self._connection.read_row(self._fetch_exact, (key,))
        if row is None:
            return None
        return records.checked(row)

    def find_exact(self, keys: list[bytes]) -> list[KeyEntry]:
        found: list[KeyEntry] = []
        if len(keys) <= FEW:
            for key in keys:
                found.extend(self._connection.read(self._find, (key,)))
            return found
        for start in range(0, len(keys), LOOKUP_WIDTH):
            part: list[object] = list(keys[start : start + LOOKUP_WIDTH])
            found.extend(self._connection.read(self._find_many, padded(part)))
        return found

    def count_range(self, key_range: KeyRange) -> int:
        return int(self._connection.read_row(self._count, (key_range.low, key_range.high))[0])

    def entry_at(self, key_range: KeyRange, after: KeyEntry | None, offset: int) -> KeyEntry | None:
        key, rid = (key_range.low, 0) if after is None else after
        rows = self._connection.read(self._entry_at, (key, rid, key_range.high, offset))
        return rows[0] if rows else None

    def _join(self, records: SqliteRecordStore) -> None:
        # CROSS JOIN fixes the order: SQLite takes the left table as the outer one.
        joined = f"FROM {self.table} k CROSS JOIN {records.table} r ON r.rid = k.rid"
        last = ", r.sum" * records.has_sums
        self._fetch_exact = f"SELECT r.rid, r.doc, r.ts, r.ttl{last} {joined} WHERE k.key = ?"
        self._fetch_forward_checked = f"SELECT k.key, k.rid, r.doc, r.ts, r.ttl{last} {joined} {self._ascending}"
        self._fetch_backward_checked = f"SELECT k.key, k.rid, r.doc, r.ts, r.ttl{last} {joined} {self._descending}"
        self._fetch_forward = f"SELECT k.key, k.rid, r.doc, r.ts, r.ttl {joined} {self._ascending}"
        self._fetch_backward = f"SELECT k.key, k.rid, r.doc, r.ts, r.ttl {joined} {self._descending}"
        self._joined = records.table


def _checked(records: SqliteRecordStore, rows: list[Any], with_sums: bool) -> list[FetchedEntry]:
    """Entries with records of rows. with_sums: whether they were read with checksums. DamagedRecord."""
    if with_sums:
        return checked_entries(records.ident, rows)
    if records.has_sums:
        records.counters.note_unchecked(len(rows))
    return rows
