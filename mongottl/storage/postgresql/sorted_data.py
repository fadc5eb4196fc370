"""Sorted data in the tables `entries` and `unique_entries`. Long keys are divided: see `schema`.

Rows are ordered by `key`, `tail`, then `rid`. Among those of one `key` the index has them in another order if there are
divided ones; PostgreSQL sorts such rows only.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from mongottl.storage.errors import DuplicateKey
from mongottl.storage.postgresql.access import Access
from mongottl.storage.postgresql.records import PostgresRecordStore
from mongottl.storage.postgresql.schema import HEAD_BYTES
from mongottl.storage.postgresql.statements import (
    BYTEA,
    BYTEA_ARRAY,
    INT4,
    INT8,
    INT8_ARRAY,
    Statement,
    bytea_array,
    int4,
    int8,
    int8_array,
    placed,
)
from mongottl.storage.postgresql.units import PostgresUnit
from mongottl.storage.stores import (
    NO_BYTE_LIMIT,
    FetchedEntry,
    KeyEntry,
    KeyRange,
    Record,
    RecordStore,
    SortedDataInterface,
)

_TABLES: Final = {False: "entries", True: "unique_entries"}
_PLACES: Final = (BYTEA, BYTEA, INT8)
_RANGES: Final = (BYTEA_ARRAY, BYTEA_ARRAY, INT8_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY)
# Ranges that one statement scans.
_RANGES_AT_ONCE: Final = 1000
# Entries that are made parameters of between two pauses: 5 milliseconds or so.
_PART: Final = 4096


def divided(key: bytes) -> tuple[bytes, bytes, bytes]:
    """A key as its row has it: `key`, `hash`, `tail`."""
    if len(key) < HEAD_BYTES:
        return key, b"", b""
    return key[:HEAD_BYTES], sha256(key).digest(), key[HEAD_BYTES:]


# The record of an entry `e`, in the store of a parameter. `OFFSET 0` has PostgreSQL begin with the entries also where
# it knows nothing of the tables yet: it would read all records of a store otherwise, and keep that plan.
_RECORD: Final = "JOIN LATERAL (SELECT * FROM records WHERE store = ${} AND rid = e.rid OFFSET 0) AS r"


class _Statements:
    """Those of one of the two tables."""

    def __init__(self, unique: bool) -> None:
        table = _TABLES[unique]
        columns = "place, store, key, hash, rid, tail"
        rows = "unnest($2, $3, $4, $5) AS u (key, hash, rid, tail)"
        # Only of a unique one it matters which entries were there before.
        conflict = "store, key, hash, place" if unique else "store, key, hash, rid, place"
        self.insert = placed(
            f"insert_{table}",
            f"INSERT INTO {table} ({columns}) SELECT 0, $1, u.key, u.hash, u.rid, u.tail FROM {rows}"
            f" ON CONFLICT ({conflict}) DO NOTHING{' RETURNING key, hash' if unique else ''}",
            (INT4, BYTEA_ARRAY, BYTEA_ARRAY, INT8_ARRAY, BYTEA_ARRAY),
        )
        # Of keys that are not divided. A unique index refuses all where it has one already: to say which takes longer.
        self.insert_short = placed(
            f"insert_short_{table}",
            f"INSERT INTO {table} ({columns}) SELECT 0, $1, unnest($2), '', unnest($3), ''"
            f"{'' if unique else f' ON CONFLICT ({conflict}) DO NOTHING'}",
            (INT4, BYTEA_ARRAY, INT8_ARRAY),
        )
        self.insert_one = placed(
            f"insert_one_{table}",
            f"INSERT INTO {table} ({columns}) VALUES (0, $1, $2, $3, $4, $5) ON CONFLICT ({conflict}) DO NOTHING"
            f"{' RETURNING rid' if unique else ''}",
            (INT4, BYTEA, BYTEA, INT8, BYTEA),
        )
        # Without a look at what is there: a key that another record has fails.
        self.add = placed(
            f"add_{table}",
            f"INSERT INTO {table} ({columns}) SELECT 0, $1, u.key, u.hash, u.rid, u.tail FROM {rows}",
            self.insert.types,
        )
        self.add_one = placed(
            f"add_one_{table}", f"INSERT INTO {table} ({columns}) VALUES (0, $1, $2, $3, $4, $5)", self.insert_one.types
        )
        self.remove = placed(
            f"remove_{table}",
            # `OFFSET 0` has PostgreSQL look up each of them also where it knows nothing of the table yet. They are
            # known by their places in the table, since no entry is ever changed.
            f"DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT e.ctid FROM unnest($2, $3, $4) AS u (key, hash, rid)"
            f" CROSS JOIN LATERAL (SELECT ctid FROM {table} WHERE store = $1 AND key = u.key AND hash = u.hash"
            " AND rid = u.rid OFFSET 0) AS e))",
            (INT4, BYTEA_ARRAY, BYTEA_ARRAY, INT8_ARRAY),
        )
        self.remove_one = placed(
            f"remove_one_{table}",
            f"DELETE FROM {table} WHERE store = $1 AND key = $2 AND hash = $3 AND rid = $4",
            (INT4, BYTEA, BYTEA, INT8),
        )
        self.find = placed(
            f"find_{table}",
            f"SELECT e.key || e.tail, e.rid FROM unnest($2, $3) WITH ORDINALITY AS u (key, hash, place)"
            f" CROSS JOIN LATERAL (SELECT * FROM {table} WHERE store = $1 AND key = u.key AND hash = u.hash OFFSET 0)"
            " AS e ORDER BY u.place, e.rid",
            (INT4, BYTEA_ARRAY, BYTEA_ARRAY),
        )
        self.fetch = placed(
            f"fetch_{table}",
            f"SELECT r.rid, r.doc, r.ts, r.ttl FROM {table} e CROSS {_RECORD.format(2)}"
            " WHERE e.store = $1 AND e.key = $3 AND e.hash = $4 ORDER BY e.rid LIMIT 1",
            (INT4, INT4, BYTEA, BYTEA),
        )
        # The range of the keys, and the position after which it goes on.
        within = "e.store = $1 AND (e.key, e.tail) >= ($2, $3) AND (e.key, e.tail) < ($4, $5)"
        self.count = placed(
            f"count_{table}", f"SELECT count(*) FROM {table} e WHERE {within}", (INT4, BYTEA, BYTEA, BYTEA, BYTEA)
        )
        # Ranges by their places; a range begins after an entry, since of the first one some may be read already.
        ranges = "unnest($2, $3, $4, $5, $6) WITH ORDINALITY AS u (key, tail, rid, end_key, end_tail, place)"
        self.first = placed(
            f"first_{table}",
            f"SELECT u.place FROM {ranges} WHERE EXISTS (SELECT FROM {table} e WHERE e.store = $1"
            " AND (e.key, e.tail, e.rid) > (u.key, u.tail, u.rid) AND (e.key, e.tail) < (u.end_key, u.end_tail)"
            " OFFSET 0) ORDER BY u.place LIMIT 1",
            (INT4, *_RANGES),
        )
        self.scan: dict[bool, Statement] = {}
        self.scan_fetch_ranges: dict[bool, Statement] = {}
        self.scan_fetch: dict[bool, Statement] = {}
        for forward, compared, order in ((True, ">", "ASC"), (False, "<", "DESC")):
            end = "(e.key, e.tail) < ($5, $6)" if forward else "(e.key, e.tail) >= ($5, $6)"
            where = f"e.store = $1 AND (e.key, e.tail, e.rid) {compared} ($2, $3, $4) AND {end}"
            ordered = f"ORDER BY e.key {order}, e.tail {order}, e.rid {order}"
            types = (INT4, *_PLACES, BYTEA, BYTEA, INT8)
            self.scan[forward] = placed(
                f"scan_{table}_{int(forward)}",
                f"SELECT e.key || e.tail, e.rid FROM {table} e WHERE {where} {ordered} LIMIT $7 OFFSET $8",
                (*types, INT8),
            )
            self.scan_fetch[forward] = placed(
                f"scan_fetch_{table}_{int(forward)}",
                "SELECT key, rid, doc, ts, ttl FROM (SELECT e.key || e.tail AS key, e.rid, r.doc, r.ts, r.ttl,"
                f" row_number() OVER ({ordered}) AS place, coalesce(sum(octet_length(r.doc)) OVER ({ordered}"
                " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS size FROM"
                f" (SELECT * FROM {table} e WHERE {where} {ordered} LIMIT $7) AS e"
                f" LEFT {_RECORD.format(8)} ON true) AS found WHERE size < $9 ORDER BY place",
                (*types, INT4, INT8),
            )
            end = (
                "(e.key, e.tail) < (u.end_key, u.end_tail)" if forward else "(e.key, e.tail) >= (u.end_key, u.end_tail)"
            )
            inner = (
                f"SELECT * FROM {table} e WHERE e.store = $1 AND (e.key, e.tail, e.rid) {compared}"
                f" (u.key, u.tail, u.rid) AND {end} {ordered} LIMIT $7"
            )
            each = f"e.place, e.key {order}, e.tail {order}, e.rid {order}"
            self.scan_fetch_ranges[forward] = placed(
                f"scan_fetch_ranges_{table}_{int(forward)}",
                "SELECT key, rid, doc, ts, ttl, place FROM (SELECT e.key || e.tail AS key, e.rid, r.doc, r.ts, r.ttl,"
                f" e.place, row_number() OVER (ORDER BY {each}) AS number, coalesce(sum(octet_length(r.doc))"
                f" OVER (ORDER BY {each} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS size FROM"
                f" (SELECT u.place, e.key, e.tail, e.rid FROM {ranges} CROSS JOIN LATERAL ({inner}) AS e"
                f" ORDER BY u.place, e.key {order}, e.tail {order}, e.rid {order} LIMIT $7) AS e"
                f" LEFT {_RECORD.format(8)} ON true) AS found WHERE size < $9 ORDER BY number",
                (INT4, *_RANGES, INT8, INT4, INT8),
            )


class _StrictStatements(_Statements):
    """A key that the snapshot has is refused, although it was deleted after the snapshot."""

    def __init__(self, unique: bool) -> None:
        super().__init__(unique)
        table = _TABLES[unique]
        if unique:
            # `OFFSET 0` has PostgreSQL look up each of them: where it knows nothing of the table yet, it would compare
            # each with each.
            there = f"SELECT FROM {table} WHERE store = $1 AND key = u.key AND hash = u.hash OFFSET 0"
            missing = f"WHERE NOT EXISTS ({there})"
            self.insert = placed(
                f"strict_insert_{table}",
                self.insert.sql.replace(" ON CONFLICT", f" {missing} ON CONFLICT"),
                self.insert.types,
            )
            self.insert_one = placed(
                f"strict_insert_one_{table}",
                f"INSERT INTO {table} (place, store, key, hash, rid, tail) SELECT 0, $1, u.key, u.hash, $4, $5 FROM"
                f" (VALUES ($2, $3)) AS u (key, hash) {missing} ON CONFLICT (store, key, hash, place) DO NOTHING"
                " RETURNING rid",
                self.insert_one.types,
            )


ENTRIES: Final = {unique: _Statements(unique) for unique in (False, True)}
# For transactions with a snapshot of their own.
STRICT: Final = {unique: _StrictStatements(unique) for unique in (False, True)}


def _ranges(key_ranges: list[KeyRange], after: KeyEntry | None) -> tuple[bytes, ...]:
    """The parameters that say where ranges in one direction begin, the first one after an entry, and where they end."""
    begins = [(each.low if each.forward else each.high, 0) for each in key_ranges]
    if after is not None:
        begins[0] = after
    ends = [divided(each.high if each.forward else each.low) for each in key_ranges]
    parts = [divided(key) for key, _ in begins]
    return (
        bytea_array([part[0] for part in parts]),
        bytea_array([part[2] for part in parts]),
        int8_array([record_id for _, record_id in begins]),
        bytea_array([end[0] for end in ends]),
        bytea_array([end[2] for end in ends]),
    )


class PostgresSortedData(SortedDataInterface):
    """statements: other ones than usual. place: that of its rows, where tables are distributed; it is that of the
    records, unless it is not known of which collection they are."""

    def __init__(
        self,
        access: Access,
        ident: str,
        store_id: int,
        unique: bool,
        statements: "Mapping[bool, _Statements] | None" = None,
    ) -> None:
        self.ident = ident
        self.unique = unique
        self.store_id: Final = store_id
        self._access: Final = access
        self.place: Final = access.place
        self._store: Final = int4(store_id)
        self._statements: Final = (statements or ENTRIES)[unique]

    @property
    def parts(self) -> "list[PostgresSortedData]":
        """The sorted data of its places, in their order: it itself if it has one place."""
        return [self]

    def joined(self, access: Access, parts: "list[PostgresSortedData]") -> "PostgresSortedData":
        """The same sorted data, seen through `access`. parts: seen so."""
        return parts[0]

    def insert(self, entries: list[KeyEntry]) -> None:
        """In the order of their keys, in which all lock them (`PostgresRecordStore`)."""
        unit = self._access.require()
        if len(entries) == 1:
            self.insert_one(*entries[0])
            return
        if len(entries) > _PART and not self.unique:
            for start in range(0, len(entries), _PART):
                self.insert(entries[start : start + _PART])
                unit.pause()
            return
        if not entries or self._insert_short(entries):
            return
        # A statement that inserts a key twice does not know which of both is the first.
        by_key: dict[bytes | KeyEntry, int] = {}
        for position, (key, record_id) in enumerate(entries):
            first = by_key.setdefault(key if self.unique else (key, record_id), position)
            if self.unique and entries[first][1] != record_id:
                self._refuse_from(entries, position, entries[first][1])
        wanted = [entries[position] for position in by_key.values()]
        sent = sorted(wanted)
        rows = [divided(key) for key, _ in sent]
        values = (
            self._store,
            bytea_array([row[0] for row in rows]),
            bytea_array([row[1] for row in rows]),
            int8_array([entry[1] for entry in sent]),
            bytea_array([row[2] for row in rows]),
        )
        if not (self.unique and unit.asks_for_keys):
            unit.write(self._statements.add if self.unique else self._statements.insert, *values)
            return
        inserted = unit.ask(self._statements.insert, *values)
        if len(inserted) == len(wanted):
            return
        held = self._holders(unit, [key for key, _ in wanted])
        for key, record_id in wanted:
            if held[key] != record_id:
                fresh = set(inserted)
                mine = [entry for entry, row in zip(sent, rows, strict=True) if (row[0], row[1]) in fresh]
                if mine:
                    self.remove(mine)
                raise DuplicateKey(key, held[key], by_key[key])

    def _insert_short(self, entries: list[KeyEntry]) -> bool:
        """Adds entries whose keys are not divided, all new and each for one record; False if they are not."""
        keys = [key for key, _ in entries]
        if max(map(len, keys)) >= HEAD_BYTES or len(set(keys if self.unique else entries)) < len(entries):
            return False
        unit = self._access.require()
        unit.pause()
        sent = sorted(entries)
        unit.pause()
        keys = [key for key, _ in sent]
        values = (self._store, bytea_array(keys), int8_array([record_id for _, record_id in sent]))
        if self.unique and unit.asks_for_keys:
            return unit.attempt(self._statements.insert_short, *values)
        unit.write(self._statements.insert_short, *values)
        return True

    def _refuse_from(self, entries: list[KeyEntry], position: int, existing: int) -> None:
        """Raises DuplicateKey for an entry whose key an earlier one of the same call has; or for an earlier one, if its
        key is there already."""
        held = dict(self.find_exact(list(dict.fromkeys([key for key, _ in entries[:position]]))))
        for earlier, (key, record_id) in enumerate(entries[:position]):
            if held.get(key, record_id) != record_id:
                raise DuplicateKey(key, held[key], earlier)
        raise DuplicateKey(entries[position][0], existing, position)

    def insert_one(self, key: bytes, record_id: int) -> None:
        unit = self._access.require()
        head, digest, tail = divided(key)
        values = (self._store, head, digest, int8(record_id), tail)
        if not (self.unique and unit.asks_for_keys):
            unit.write(self._statements.add_one if self.unique else self._statements.insert_one, *values)
        elif not unit.ask(self._statements.insert_one, *values):
            existing = self._holders(unit, [key])[key]
            if existing != record_id:
                raise DuplicateKey(key, existing, 0)

    def _holders(self, unit: PostgresUnit, keys: list[bytes]) -> dict[bytes, int]:
        """The records that have these keys, all of which were there when they were to be inserted. WriteConflict if
        others have removed one since."""
        held = dict(self.find_exact(keys))
        if len(held) < len(keys):
            raise unit.fail("a key that was in the way is gone")
        return held

    def remove(self, entries: list[KeyEntry]) -> None:
        if len(entries) == 1:
            self.remove_one(*entries[0])
        elif entries:
            unit = self._access.require()
            for start in range(0, len(entries), _PART):
                part = entries[start : start + _PART]
                rows = [divided(key) for key, _ in part]
                unit.write(
                    self._statements.remove,
                    self._store,
                    bytea_array([row[0] for row in rows]),
                    bytea_array([row[1] for row in rows]),
                    int8_array([entry[1] for entry in part]),
                )
                unit.pause()

    def remove_one(self, key: bytes, record_id: int) -> None:
        head, digest, _ = divided(key)
        self._access.require().write(self._statements.remove_one, self._store, head, digest, int8(record_id))

    def scan(
        self, key_range: KeyRange, after: KeyEntry | None, limit: int, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[KeyEntry], bool]:
        rows: list[KeyEntry] = self._access.read(
            self._statements.scan[key_range.forward], *self._place(key_range, after), int8(limit), int8(0)
        )
        return self._within(rows, limit, max_bytes)

    def _within(self, rows: list[KeyEntry], limit: int, max_bytes: int) -> tuple[list[KeyEntry], bool]:
        """Those of the entries that `scan` returns."""
        size = 0
        for position, (key, _) in enumerate(rows):
            size += len(key)
            if size >= max_bytes:
                return rows[: position + 1], position + 1 < len(rows) or len(rows) >= limit
        return rows, len(rows) >= limit

    def _place(self, key_range: KeyRange, after: KeyEntry | None) -> tuple[bytes, ...]:
        """The parameters that say of what store entries are scanned, after which position, and where they end."""
        low, high = key_range.low, key_range.high
        begin, end = (low, high) if key_range.forward else (high, low)
        key, record_id = (begin, 0) if after is None else after
        head, _, tail = divided(key)
        end_head, _, end_tail = divided(end)
        return self._store, head, tail, int8(record_id), end_head, end_tail

    def scan_fetch(
        self,
        records: RecordStore,
        key_range: KeyRange,
        after: KeyEntry | None,
        limit: int,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[FetchedEntry], bool]:
        assert isinstance(records, PostgresRecordStore)
        if records.place != self.place:
            part = records.at_place(self.place)
            if part is None:
                return super().scan_fetch(records, key_range, after, limit, max_bytes)
            records = part
        while True:
            rows = self._access.read(
                self._statements.scan_fetch[key_range.forward],
                *self._place(key_range, after),
                int8(limit),
                int4(records.store_id),
                int8(max_bytes),
            )
            found: list[FetchedEntry] = [row for row in rows if row[2] is not None]
            more = len(rows) >= limit or sum([len(entry[2]) for entry in found]) >= max_bytes
            if found or not more:
                return found, more
            after = (rows[-1][0], rows[-1][1])  # none of these has a record

    @property
    def ranges_at_once(self) -> int:
        return _RANGES_AT_ONCE

    def scan_fetch_ranges(
        self,
        records: RecordStore,
        key_ranges: list[KeyRange],
        after: KeyEntry | None,
        limit: int,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[FetchedEntry], int, bool]:
        assert isinstance(records, PostgresRecordStore)
        if records.place != self.place:
            part = records.at_place(self.place)
            if part is None:
                return super().scan_fetch_ranges(records, key_ranges, after, limit, max_bytes)
            records = part
        done = 0
        while True:
            rows = self._access.read(
                self._statements.scan_fetch_ranges[key_ranges[0].forward],
                self._store,
                *_ranges(key_ranges[done:], after),
                int8(limit),
                int4(records.store_id),
                int8(max_bytes),
            )
            found: list[FetchedEntry] = [row[:5] for row in rows if row[2] is not None]
            if len(rows) < limit and sum([len(entry[2]) for entry in found]) < max_bytes:
                return found, len(key_ranges), False
            done += rows[-1][5] - 1
            if found:
                return found, done, True
            after = (rows[-1][0], rows[-1][1])  # none of these has a record

    def first_with_entries(self, key_ranges: list[KeyRange]) -> int:
        for done in range(0, len(key_ranges), _RANGES_AT_ONCE):
            part = [KeyRange(each.low, each.high) for each in key_ranges[done : done + _RANGES_AT_ONCE]]
            rows = self._access.read(self._statements.first, self._store, *_ranges(part, None))
            if rows:
                return done + int(rows[0][0]) - 1
        return -1

    def fetch_exact(self, records: RecordStore, key: bytes) -> Record | None:
        assert isinstance(records, PostgresRecordStore)
        if records.place != self.place:
            part = records.at_place(self.place)
            if part is None:
                return super().fetch_exact(records, key)
            records = part
        head, digest, _ = divided(key)
        rows: list[Record] = self._access.read(
            self._statements.fetch, self._store, int4(records.store_id), head, digest
        )
        return rows[0] if rows else None

    def find_exact(self, keys: list[bytes]) -> list[KeyEntry]:
        rows = [divided(key) for key in keys]
        found: list[KeyEntry] = self._access.read(
            self._statements.find,
            self._store,
            bytea_array([row[0] for row in rows]),
            bytea_array([row[1] for row in rows]),
        )
        return found

    def count_range(self, key_range: KeyRange) -> int:
        low, _, low_tail = divided(key_range.low)
        high, _, high_tail = divided(key_range.high)
        return int(self._access.read(self._statements.count, self._store, low, low_tail, high, high_tail)[0][0])

    def entry_at(self, key_range: KeyRange, after: KeyEntry | None, offset: int) -> KeyEntry | None:
        rows: list[KeyEntry] = self._access.read(
            self._statements.scan[True], *self._place(key_range, after), int8(1), int8(offset)
        )
        return rows[0] if rows else None
