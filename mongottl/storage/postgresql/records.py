"""Record stores in the table `records`: one row for each record, under the number of its store."""

from functools import partial
from hashlib import sha256
from operator import itemgetter
from typing import Final

from mongottl.storage.postgresql.access import Access
from mongottl.storage.postgresql.log import COUNTS_OF_STORE, Counters
from mongottl.storage.postgresql.record_ids import RecordIds
from mongottl.storage.postgresql.statements import (
    BYTEA,
    BYTEA_ARRAY,
    INT4,
    INT4_ARRAY,
    INT8,
    INT8_ARRAY,
    LONG_BYTES,
    Statement,
    bytea_array,
    int4,
    int4_array,
    int8,
    int8_array,
    placed,
)
from mongottl.storage.postgresql.units import PostgresUnit
from mongottl.storage.stores import MAX_RECORD_ID, NO_BYTE_LIMIT, DueEntry, ExpiryIndex, NewRecord, Record, RecordStore

# Documents up to this length are compared as they are, longer ones by their SHA-256.
_COMPARED_BYTES: Final = 8192

_INSERT: Final = placed(
    "insert_record",
    "INSERT INTO records (place, store, rid, ts, ttl, doc) VALUES (0, $1, $2, $3, $4, $5)",
    (INT4, INT8, INT8, INT4, BYTEA),
)
_INSERT_MANY: Final = placed(
    "insert_records",
    "INSERT INTO records (place, store, rid, ts, ttl, doc) SELECT 0, $1, u.rid, u.ts, u.ttl, u.doc"
    " FROM unnest($2, $3, $4, $5) AS u (rid, ts, ttl, doc)",
    (INT4, INT8_ARRAY, INT8_ARRAY, INT4_ARRAY, BYTEA_ARRAY),
)
# Of one second and one `ttl`, as most are. Each list that is a table costs half a microsecond for each record.
_INSERT_ALIKE: Final = placed(
    "insert_records_alike",
    "INSERT INTO records (place, store, rid, ts, ttl, doc) SELECT 0, $1, generate_series($2, $3), $4, $5, unnest($6)",
    (INT4, INT8, INT8, INT8, INT4, BYTEA_ARRAY),
)
_IS_STORED: Final = (
    "r.store = $1 AND r.rid = ANY ($2) AND r.rid = o.rid AND r.ts = o.ts AND r.ttl = o.ttl"
    f" AND CASE WHEN octet_length(r.doc) > {_COMPARED_BYTES} THEN sha256(r.doc) ELSE r.doc END = o.doc"
)
_IS_THIS: Final = (
    "store = $1 AND rid = $2 AND ts = $3 AND ttl = $4"
    f" AND CASE WHEN octet_length(doc) > {_COMPARED_BYTES} THEN sha256(doc) ELSE doc END = $5"
)
_UPDATE: Final = placed(
    "update_record",
    f"UPDATE records SET ts = $6, ttl = $7, doc = $8 WHERE {_IS_THIS} RETURNING 1",
    (INT4, INT8, INT8, INT4, BYTEA, INT8, INT4, BYTEA),
)
_DELETE: Final = placed(
    "delete_record", f"DELETE FROM records WHERE {_IS_THIS} RETURNING 1", (INT4, INT8, INT8, INT4, BYTEA)
)
_UPDATE_MANY: Final = placed(
    "update_records",
    "WITH done AS (UPDATE records r SET ts = o.new_ts, ttl = o.new_ttl, doc = o.new_doc"
    " FROM unnest($2, $3, $4, $5, $6, $7, $8) AS o (rid, ts, ttl, doc, new_ts, new_ttl, new_doc)"
    f" WHERE {_IS_STORED} RETURNING 1) SELECT count(*) FROM done",
    (INT4, INT8_ARRAY, INT8_ARRAY, INT4_ARRAY, BYTEA_ARRAY, INT8_ARRAY, INT4_ARRAY, BYTEA_ARRAY),
)
_DELETE_MANY: Final = placed(
    "delete_records",
    "WITH done AS (DELETE FROM records r USING unnest($2, $3, $4, $5) AS o (rid, ts, ttl, doc)"
    f" WHERE {_IS_STORED} RETURNING 1) SELECT count(*) FROM done",
    (INT4, INT8_ARRAY, INT8_ARRAY, INT4_ARRAY, BYTEA_ARRAY),
)
_HOLD: Final = placed(
    "hold_records",
    "WITH held AS (SELECT 1 FROM records r, unnest($2, $3, $4, $5) AS o (rid, ts, ttl, doc)"
    f" WHERE {_IS_STORED} FOR SHARE OF r) SELECT count(*) FROM held",
    _DELETE_MANY.types,
)
_FIND: Final = placed(
    "find_record", "SELECT rid, doc, ts, ttl FROM records WHERE store = $1 AND rid = $2", (INT4, INT8)
)
FIND_MANY: Final = placed(
    "find_records", "SELECT rid, doc, ts, ttl FROM records WHERE store = $1 AND rid = ANY ($2)", (INT4, INT8_ARRAY)
)
# Those before which less than `$3` bytes are. The lengths of long documents are known without reading them.
_FIND_WITHIN: Final = placed(
    "find_records_within",
    "SELECT rid, doc, ts, ttl FROM (SELECT r.rid, r.doc, r.ts, r.ttl, u.place, coalesce(sum(octet_length(r.doc))"
    " OVER (ORDER BY u.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS size"
    " FROM unnest($2) WITH ORDINALITY AS u (rid, place)"
    " CROSS JOIN LATERAL (SELECT * FROM records WHERE store = $1 AND rid = u.rid OFFSET 0) AS r) AS found"
    " WHERE size < $3 ORDER BY place",
    (INT4, INT8_ARRAY, INT8),
)


def _scan(name: str, forward: bool, bounded: bool) -> Statement:
    compared, order = (">", "ASC") if forward else ("<", "DESC")
    rows = f"FROM records WHERE store = $1 AND rid {compared} $2 ORDER BY rid {order} LIMIT $3"
    if not bounded:
        return placed(name, f"SELECT rid, doc, ts, ttl {rows}", (INT4, INT8, INT8))
    return placed(
        name,
        "SELECT rid, doc, ts, ttl FROM (SELECT rid, doc, ts, ttl, coalesce(sum(octet_length(doc))"
        f" OVER (ORDER BY rid {order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS size"
        f" FROM (SELECT rid, doc, ts, ttl {rows}) AS first) AS found WHERE size < $4 ORDER BY rid {order}",
        (INT4, INT8, INT8, INT8),
    )


SCAN: Final = {
    (forward, bounded): _scan(f"scan_{int(forward)}_{int(bounded)}", forward, bounded)
    for forward in (False, True)
    for bounded in (False, True)
}
_DUE_SECOND: Final = {ExpiryIndex.BY_DEFAULT: "ts", ExpiryIndex.BY_OWN: "(ts + ttl)"}
_HELD: Final = {ExpiryIndex.BY_DEFAULT: "ttl = 0", ExpiryIndex.BY_OWN: "ttl > 0"}


def _due(name: str, index: ExpiryIndex, columns: str) -> Statement:
    second = _DUE_SECOND[index]
    return placed(
        f"{name}_{index.value}",
        f"SELECT {columns} FROM records WHERE store = $1 AND {_HELD[index]} AND ({second}, rid) > ($2, $3)"
        f" AND {second} <= $4 ORDER BY {second}, rid LIMIT $5",
        (INT4, INT8, INT8, INT8, INT8),
    )


# Nothing is due up to this second.
NEVER_S: Final = -(1 << 63)
_COUNT_OF_DUE: Final = [
    f"(SELECT count(*) FROM records WHERE store = $1 AND {_HELD[index]} AND {_DUE_SECOND[index]} <= ${number})"
    for number, index in enumerate(ExpiryIndex, 2)
]
_COUNT_WITHOUT_DUE: Final = Statement(
    "count_without_due",
    f"SELECT (SELECT n FROM ({COUNTS_OF_STORE.sql}) AS counts (n, bytes)) - {' - '.join(_COUNT_OF_DUE)}",
    (INT4, INT8, INT8),
)

DUE_ENTRIES: Final = {index: _due("due_entries", index, f"{_DUE_SECOND[index]}, rid") for index in ExpiryIndex}


def _take(index: ExpiryIndex) -> Statement:
    second = _DUE_SECOND[index]
    return placed(
        f"take_due_{index.value}",
        # By their places in the table, which is much faster than by their ids. Of more than `$6` bytes some are locked,
        # and not deleted.
        "WITH due AS MATERIALIZED (SELECT ctid, octet_length(doc) AS size FROM records"
        f" WHERE store = $1 AND {_HELD[index]} AND ({second}, rid) > ($2, $3) AND {second} <= $4"
        f" ORDER BY store, {second}, rid LIMIT $5 FOR UPDATE SKIP LOCKED), sized AS (SELECT ctid, coalesce(sum(size)"
        " OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS size FROM due)"
        " DELETE FROM records WHERE ctid = ANY (ARRAY(SELECT ctid FROM sized WHERE size < $6))"
        " RETURNING rid, doc, ts, ttl",
        (INT4, INT8, INT8, INT8, INT8, INT8),
    )


_TAKE: Final = {index: _take(index) for index in ExpiryIndex}


def _id_of(record: Record) -> int:
    return record[0]


class PostgresRecordStore(RecordStore):
    """counters: the committed ones. ids: of new records. place: that of its rows, where tables are distributed."""

    def __init__(self, access: Access, ident: str, counters: Counters, ids: RecordIds, is_log: bool) -> None:
        self.ident = ident
        self.is_log = is_log
        self.takes_due = True
        self.counters: Final = counters
        self.ids: Final = ids
        self.store_id: Final = counters.store
        self._access: Final = access
        self._store: Final = int4(counters.store)
        self.place: Final = access.place

    @property
    def parts(self) -> "list[PostgresRecordStore]":
        """The stores of its places, in their order: it itself if it has one place."""
        return [self]

    def joined(self, access: Access, parts: "list[PostgresRecordStore]") -> "PostgresRecordStore":
        """The same store, seen through `access`. parts: seen so."""
        return parts[0]

    def at_place(self, place: int | None) -> "PostgresRecordStore | None":
        """The part of this place, None if there is none."""
        return self if place == self.place else None

    def insert_records(self, records: list[NewRecord]) -> list[int]:
        if len(records) == 1:
            return [self.insert_record(*records[0])]
        if not records:
            return []
        unit = self._access.require()
        if unit.exclusive_store == self.store_id:
            ids = unit.take_ids(len(records))
        else:
            ids = self.ids.take(len(records))
            unit.undo.append(partial(self.ids.give_back, ids[0], len(ids)))
        unit.count_change(self.counters, len(records), sum([len(record[0]) for record in records]))
        if _have_long([record[0] for record in records]):
            for record_id, (document, ts, ttl) in zip(ids, records, strict=True):
                unit.write(_INSERT, self._store, int8(record_id), int8(ts), int4(ttl), document)
            return ids
        seconds = [record[1] for record in records]
        ttls = [record[2] for record in records]
        documents = bytea_array([record[0] for record in records])
        if seconds.count(seconds[0]) == ttls.count(ttls[0]) == len(ids):
            same = (int8(seconds[0]), int4(ttls[0]))
            unit.write(_INSERT_ALIKE, self._store, int8(ids[0]), int8(ids[-1]), *same, documents)
        else:
            facts = (int8_array(seconds), int4_array(ttls))
            unit.write(_INSERT_MANY, self._store, int8_array(ids), *facts, documents)
        return ids

    def insert_record(self, document: bytes, ts: int, ttl: int) -> int:
        unit = self._access.require()
        if unit.exclusive_store == self.store_id:
            [record_id] = unit.take_ids(1)
        else:
            [record_id] = self.ids.take(1)
            unit.undo.append(partial(self.ids.give_back, record_id, 1))
        unit.count_change(self.counters, 1, len(document))
        unit.write(_INSERT, self._store, int8(record_id), int8(ts), int4(ttl), document)
        return record_id

    def update_records(self, old: list[Record], new: list[Record]) -> None:
        if len(old) == 1:
            self.update_record(old[0], new[0])
            return
        if not old:
            return
        unit = self._access.require()
        stored = sorted(new, key=_id_of)
        if _have_long([record[1] for record in new]):
            for before, after in zip(sorted(old, key=_id_of), stored, strict=True):
                self.update_record(before, after)
            return
        rows = unit.ask(
            _UPDATE_MANY,
            *self._expected(unit, old),
            int8_array([record[2] for record in stored]),
            int4_array([record[3] for record in stored]),
            bytea_array([record[1] for record in stored]),
        )
        if rows[0][0] != len(old):
            raise unit.fail("a record has changed or is gone")
        size = sum([len(record[1]) for record in new]) - sum([len(record[1]) for record in old])
        unit.count_change(self.counters, 0, size)

    def hold_records(self, records: list[Record]) -> None:
        unit = self._access.require()
        if unit.ask(_HOLD, *self._expected(unit, records))[0][0] != len(records):
            raise unit.fail("a record has changed or is gone")

    def delete_records(self, records: list[Record]) -> None:
        if len(records) == 1:
            self.delete_record(records[0])
            return
        if not records:
            return
        unit = self._access.require()
        if unit.ask(_DELETE_MANY, *self._expected(unit, records))[0][0] != len(records):
            raise unit.fail("a record has changed or is gone")
        unit.count_change(self.counters, -len(records), -sum([len(record[1]) for record in records]))

    def update_record(self, old: Record, new: Record) -> None:
        unit = self._access.require()
        if not unit.ask(_UPDATE, *self._expected_one(unit, old), int8(new[2]), int4(new[3]), new[1]):
            raise unit.fail("a record has changed or is gone")
        unit.count_change(self.counters, 0, len(new[1]) - len(old[1]))

    def delete_record(self, record: Record) -> None:
        unit = self._access.require()
        if not unit.ask(_DELETE, *self._expected_one(unit, record)):
            raise unit.fail("a record has changed or is gone")
        unit.count_change(self.counters, -1, -len(record[1]))

    def _expected_one(self, unit: PostgresUnit, record: Record) -> tuple[bytes, ...]:
        return self._store, int8(record[0]), int8(record[2]), int4(record[3]), _compared(unit, record[1])

    def _expected(self, unit: PostgresUnit, records: list[Record]) -> tuple[bytes, ...]:
        """The first parameters of a statement that changes records only as they are given.

        In the order of their ids, in which all lock them: else two that each had locked what the other one needs would
        wait until PostgreSQL finds that out, and one of them would have to begin anew.
        """
        records = sorted(records, key=_id_of)
        documents: list[bytes | None] = [_compared(unit, record[1]) for record in records]
        return (
            self._store,
            int8_array([record[0] for record in records]),
            int8_array([record[2] for record in records]),
            int4_array([record[3] for record in records]),
            bytea_array(documents),
        )

    def find_record(self, record_id: int) -> Record | None:
        rows = self._access.read(_FIND, self._store, int8(record_id))
        return rows[0] if rows else None

    def find_records(self, record_ids: list[int], max_bytes: int = NO_BYTE_LIMIT) -> tuple[list[Record], int]:
        if not record_ids:
            return [], 0
        if max_bytes == NO_BYTE_LIMIT or len(record_ids) == 1:
            rows = self._access.read(FIND_MANY, self._store, int8_array(record_ids))
            by_id = {row[0]: row for row in rows}
            found: list[Record] = [by_id[record_id] for record_id in record_ids if record_id in by_id]
            return found, len(record_ids)
        found = self._access.read(_FIND_WITHIN, self._store, int8_array(record_ids), int8(max_bytes))
        if sum([len(record[1]) for record in found]) < max_bytes:
            return found, len(record_ids)
        return found, _place_of_last(record_ids, found)

    def scan(
        self, after: int, limit: int, forward: bool = True, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[Record], bool]:
        bounded = max_bytes != NO_BYTE_LIMIT and limit > 1
        values = [self._store, int8(min(after, MAX_RECORD_ID)), int8(limit)]
        if bounded:
            values.append(int8(max_bytes))
        rows: list[Record] = self._access.read(SCAN[forward, bounded], *values)
        if len(rows) >= limit:
            return rows, True
        return rows, bounded and sum([len(row[1]) for row in rows]) >= max_bytes

    def count(self) -> int:
        return self._access.counts(self.counters)[0]

    def size_bytes(self) -> int:
        return self._access.counts(self.counters)[1]

    def count_without_due(self, until_s: dict[ExpiryIndex, int]) -> int:
        if not self._access.sees_others():
            return super().count_without_due(until_s)
        seconds = [int8(until_s.get(index, NEVER_S)) for index in ExpiryIndex]
        [(count,)] = self._access.read(_COUNT_WITHOUT_DUE, self._store, *seconds)
        return int(count)

    def due_entries(self, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int) -> list[DueEntry]:
        rows: list[DueEntry] = self._access.read(
            DUE_ENTRIES[index], self._store, int8(after[0]), int8(after[1]), int8(until_s), int8(limit)
        )
        return rows

    def take_due(
        self, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int, max_bytes: int = NO_BYTE_LIMIT
    ) -> list[Record]:
        unit = self._access.require()
        place = (self._store, int8(after[0]), int8(after[1]), int8(until_s))
        records: list[Record] = unit.ask(_TAKE[index], *place, int8(limit), int8(max_bytes))
        if records:
            # They come in the order of their places in the table.
            records.sort(key=_BY_SECOND if index is ExpiryIndex.BY_DEFAULT else _by_due_second)
            unit.count_change(self.counters, -len(records), -sum([len(record[1]) for record in records]))
        return records


# The order of the expiry indexes.
_BY_SECOND: Final = itemgetter(2, 0)


def _by_due_second(record: Record) -> DueEntry:
    return record[2] + record[3], record[0]


def _have_long(documents: list[bytes]) -> bool:
    """Whether documents are sent one by one: others wait for as long as what is sent together is copied."""
    return max(map(len, documents)) >= LONG_BYTES


def _compared(unit: PostgresUnit, document: bytes) -> bytes:
    """By what a document is compared with the stored one."""
    if len(document) <= _COMPARED_BYTES:
        return document
    if len(document) < LONG_BYTES:
        return sha256(document).digest()
    unit.pause()
    digest = sha256()
    with memoryview(document) as view:
        for start in range(0, len(view), LONG_BYTES):
            digest.update(view[start : start + LONG_BYTES])
            unit.pause()
    return digest.digest()


def _place_of_last(record_ids: list[int], found: list[Record]) -> int:
    """How many of the ids were looked up, where the last record found is that of the last of them."""
    wanted = iter(found)
    record = next(wanted)
    for place, record_id in enumerate(record_ids):
        if record_id == record[0]:
            following = next(wanted, None)
            if following is None:
                return place + 1
            record = following
    return len(record_ids)
