"""Partitioned record stores where tables are distributed: their records are spread over several places.

    partition     the records with one value of the partition key: SHA-256 of the value says in which part they are
    part          a record store, or sorted data, of one place: PARTS of them
    record id     part << 57 | a number that is given once in the store: so whoever has an id knows the place
    place         number of the store + part << 26; the indexes of a store have its places

So all rows of a document are at one place: its record, its entries, the rows of the oplog of units that change it. What
names a partition or a record goes to one part, and is what an unpartitioned store would do there. The rest:

    scan of records          one part after the other: natural order is that of the parts
    scan of entries          one statement over all places, whose rows the coordinator merges
    records by their ids     one statement over the places of these
    writes of several        a part after the other in one unit, which is committed in two phases

Keys are unique in each part: a unique index has to contain the partition key. What has no value of it, or an array, is
in the partition of null.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Final

from mongottl.document.keystring import encode_value
from mongottl.document.types import Undefined
from mongottl.storage.errors import DuplicateKey
from mongottl.storage.postgresql.access import Access
from mongottl.storage.postgresql.record_ids import RecordIds
from mongottl.storage.postgresql.records import DUE_ENTRIES, FIND_MANY, SCAN, PostgresRecordStore
from mongottl.storage.postgresql.sorted_data import ENTRIES, PostgresSortedData, divided
from mongottl.storage.postgresql.statements import (
    BYTEA_ARRAY,
    INT4,
    INT8_ARRAY,
    Statement,
    bytea_array,
    int4_array,
    int8,
    int8_array,
    scattered,
)
from mongottl.storage.stores import (
    NO_BYTE_LIMIT,
    DueEntry,
    ExpiryIndex,
    FetchedEntry,
    KeyEntry,
    KeyRange,
    NewRecord,
    Record,
    RecordStore,
    SortedDataInterface,
)

# Of a new partitioned store. Citus has as many shards of a table unless its administrator says otherwise.
PARTS: Final = 32
_PART_SHIFT: Final = 57
_NUMBERS: Final = (1 << _PART_SHIFT) - 1
_PLACE_SHIFT: Final = 26
_PLACES: Final = (1 << 31) - 1
# What a document without a value of the partition key counts as, and one whose value is undefined.
_NO_KEY: Final = encode_value(None)
_UNDEFINED: Final = encode_value(Undefined())
# A store is read in one statement up to this size, though a part may have all that is wanted.
_SMALL_BYTES: Final = 1 << 22
# A part whose due records are not locked is looked for among this number of entries.
_DUE_LOOKED_AT: Final = 256

_SAVEPOINT: Final = Statement("spread_savepoint", "SAVEPOINT spread")
_RELEASE: Final = Statement("spread_release", "RELEASE SAVEPOINT spread")
_UNDO: Final = Statement("spread_undo", "ROLLBACK TO SAVEPOINT spread")

_SCAN: Final = {forward: scattered(SCAN[forward, False]) for forward in (False, True)}
_FIND_MANY: Final = scattered(FIND_MANY)
_SIZES: Final = scattered(
    Statement(
        "record_sizes",
        "SELECT rid, octet_length(doc) FROM records WHERE store = $1 AND rid = ANY ($2)",
        (INT4, INT8_ARRAY),
    )
)
_DUE_ENTRIES: Final = {index: scattered(DUE_ENTRIES[index]) for index in ExpiryIndex}
_ENTRIES: Final = {
    unique: {forward: scattered(ENTRIES[unique].scan[forward]) for forward in (False, True)} for unique in (False, True)
}
_COUNT: Final = {unique: scattered(ENTRIES[unique].count) for unique in (False, True)}
_FIND: Final = {
    unique: scattered(
        Statement(
            f"spread_find_{table}",
            f"SELECT key || tail, rid FROM {table} WHERE store = $1 AND key = ANY ($2) AND hash = ANY ($3)",
            (INT4, BYTEA_ARRAY, BYTEA_ARRAY),
        )
    )
    for unique, table in ((False, "entries"), (True, "unique_entries"))
}


def places_of(first: int, parts: int) -> list[int]:
    """The places of a store. first: that of its first part."""
    return [(first + (part << _PLACE_SHIFT)) & _PLACES for part in range(parts)]


def part_of(record_id: int) -> int:
    return record_id >> _PART_SHIFT


class PartitionKey:
    """The partition key of one store. parts: how many it has. of: the KeyString of a document's value, None if it has
    none; set when it is known, which is before the first insert."""

    def __init__(self, parts: int) -> None:
        self._parts: Final = parts
        self.of: Callable[[bytes], bytes | None] | None = None

    def part_of_document(self, document: bytes) -> int:
        if self.of is None:
            raise RuntimeError("a record store is written whose partition key is not known")
        return self.part_of_key(self.of(document) or _NO_KEY)

    def part_of_key(self, key: bytes) -> int:
        if key == _UNDEFINED:
            key = _NO_KEY
        return int.from_bytes(sha256(key).digest()[:4], "big") % self._parts


class IdsOfPart(RecordIds):
    """The ids of one part. numbers: those of the store."""

    def __init__(self, numbers: RecordIds, part: int) -> None:
        super().__init__(0, 0, _lease_nothing)
        self._numbers: Final = numbers
        self._begin: Final = part << _PART_SHIFT

    def take(self, count: int) -> list[int]:
        return [self._begin | number for number in self._numbers.take(count)]

    def give_back(self, first: int, count: int) -> None:
        self._numbers.give_back(first & _NUMBERS, count)


def _lease_nothing(count: int) -> int:
    raise RuntimeError("the store leases ids for its parts")


class _Scatter:
    """Reads rows of all places of a store at once."""

    def __init__(self, access: Access, places: list[int]) -> None:
        self._access: Final = access
        self._places: Final = places
        self._parameter: Final = int4_array(places)

    def visit(self) -> None:
        """SeveralPlaces where these have nothing in common."""
        for place in self._places:
            self._access.visit(place)

    def read(self, statement: Statement, *values: Any) -> list[Any]:
        self.visit()
        return self._access.read(statement, *values, self._parameter)

    def read_some(self, parts: Sequence[int], statement: Statement, *values: Any) -> list[Any]:
        places = [self._places[part] for part in parts]
        for place in places:
            self._access.visit(place)
        return self._access.read(statement, *values, int4_array(places))


class SpreadRecordStore(PostgresRecordStore):
    """parts: the stores of its places, in their order. ids: of which those of the parts are made."""

    def __init__(
        self, access: Access, ident: str, parts: list[PostgresRecordStore], ids: RecordIds, key: PartitionKey
    ) -> None:
        first = parts[0]
        super().__init__(access, ident, first.counters, ids, first.is_log)
        self.is_partitioned = True
        self._parts: Final = parts
        self._key: Final = key
        self._scatter: Final = _Scatter(access, [_known(part.place) for part in parts])

    @property
    def parts(self) -> list[PostgresRecordStore]:
        return self._parts

    def joined(self, access: Access, parts: list[PostgresRecordStore]) -> PostgresRecordStore:
        return SpreadRecordStore(access, self.ident, parts, self.ids, self._key)

    def at_place(self, place: int | None) -> PostgresRecordStore | None:
        for part in self._parts:
            if part.place == place:
                return part
        return None

    def partition_by(self, key_of: Callable[[bytes], bytes | None]) -> None:
        self._key.of = key_of

    def part_of_key(self, key: bytes) -> int:
        return self._key.part_of_key(key)

    def of_partition(self, key: bytes) -> RecordStore:
        return self._parts[self._key.part_of_key(key)]

    def insert_records(self, records: list[NewRecord]) -> list[int]:
        ids = [0] * len(records)
        by_part: dict[int, list[int]] = {}
        for position, record in enumerate(records):
            by_part.setdefault(self._key.part_of_document(record[0]), []).append(position)
        for part, positions in sorted(by_part.items()):
            some = self._parts[part].insert_records([records[position] for position in positions])
            for position, record_id in zip(positions, some, strict=True):
                ids[position] = record_id
        return ids

    def insert_record(self, document: bytes, ts: int, ttl: int) -> int:
        return self._parts[self._key.part_of_document(document)].insert_record(document, ts, ttl)

    def update_records(self, old: list[Record], new: list[Record]) -> None:
        by_part: dict[int, tuple[list[Record], list[Record]]] = {}
        for before, after in zip(old, new, strict=True):
            part = self._kept_part(after)
            olds, news = by_part.setdefault(part, ([], []))
            olds.append(before)
            news.append(after)
        for part, (olds, news) in sorted(by_part.items()):
            self._parts[part].update_records(olds, news)

    def update_record(self, old: Record, new: Record) -> None:
        self._parts[self._kept_part(new)].update_record(old, new)

    def _kept_part(self, record: Record) -> int:
        """The part of a record, which stays there."""
        part = part_of(record[0])
        if self._key.part_of_document(record[1]) != part:
            raise RuntimeError("a record is given another partition key")
        return part

    def hold_records(self, records: list[Record]) -> None:
        for part, some in _by_part(records):
            self._parts[part].hold_records(some)

    def delete_records(self, records: list[Record]) -> None:
        for part, some in _by_part(records):
            self._parts[part].delete_records(some)

    def delete_record(self, record: Record) -> None:
        self._parts[part_of(record[0])].delete_record(record)

    def find_record(self, record_id: int) -> Record | None:
        part = part_of(record_id)
        return self._parts[part].find_record(record_id) if 0 <= part < len(self._parts) else None

    def find_records(self, record_ids: list[int], max_bytes: int = NO_BYTE_LIMIT) -> tuple[list[Record], int]:
        parts = sorted({part_of(record_id) for record_id in record_ids})
        if not parts:
            return [], 0
        if len(parts) == 1:
            return self._parts[parts[0]].find_records(record_ids, max_bytes)
        looked_up = len(record_ids)
        if self._committed_bytes() > max_bytes:
            looked_up = self._fitting(record_ids, parts, max_bytes)
            record_ids = record_ids[:looked_up]
        rows = self._scatter.read_some(parts, _FIND_MANY, self._store, int8_array(record_ids))
        by_id = {row[0]: row for row in rows}
        return [by_id[record_id] for record_id in record_ids if record_id in by_id], looked_up

    def _fitting(self, record_ids: list[int], parts: list[int], max_bytes: int) -> int:
        """The number of ids, from the first one on, whose records have `max_bytes`; the last one may exceed them."""
        rows = self._scatter.read_some(parts, _SIZES, self._store, int8_array(record_ids))
        sizes: dict[int, int] = dict(rows)
        for position, record_id in enumerate(record_ids):
            max_bytes -= sizes.get(record_id, 0)
            if max_bytes <= 0:
                return position + 1
        return len(record_ids)

    def _committed_bytes(self) -> int:
        return sum([part.counters.size for part in self._parts])

    def scan(
        self, after: int, limit: int, forward: bool = True, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[Record], bool]:
        last = len(self._parts) - 1
        part = min(part_of(after), last)
        if self._committed_bytes() <= min(max_bytes, _SMALL_BYTES) and part != (last if forward else 0):
            parts = range(part, last + 1) if forward else range(part + 1)
            rows: list[Record] = self._scatter.read_some(parts, _SCAN[forward], self._store, int8(after), int8(limit))
            return rows, len(rows) >= limit
        found: list[Record] = []
        while True:
            records, more = self._parts[part].scan(after, limit - len(found), forward, max_bytes)
            found += records
            if more or part == (last if forward else 0):
                return found, more
            max_bytes -= sum([len(record[1]) for record in records])
            after = (part + 1 if forward else part) << _PART_SHIFT
            part += 1 if forward else -1

    def count(self) -> int:
        self._scatter.visit()
        return sum([part.count() for part in self._parts])

    def size_bytes(self) -> int:
        self._scatter.visit()
        return sum([part.size_bytes() for part in self._parts])

    def due_entries(self, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int) -> list[DueEntry]:
        return self._scatter.read(
            _DUE_ENTRIES[index], self._store, int8(after[0]), int8(after[1]), int8(until_s), int8(limit)
        )

    def take_due(
        self, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int, max_bytes: int = NO_BYTE_LIMIT
    ) -> list[Record]:
        """Of one part, since a unit of one place costs less than one of several: the first one that gives some."""
        due = self.due_entries(index, after, until_s, _DUE_LOOKED_AT)
        for part in dict.fromkeys([part_of(record_id) for _, record_id in due]):
            records = self._parts[part].take_due(index, after, until_s, limit, max_bytes)
            if records:
                return records
        return []


class SpreadSortedData(PostgresSortedData):
    """parts: the sorted data of its places, in their order. records: those that its entries are of."""

    def __init__(
        self, access: Access, ident: str, parts: list[PostgresSortedData], part_of_key: Callable[[bytes], int]
    ) -> None:
        first = parts[0]
        super().__init__(access, ident, first.store_id, first.unique)
        self._parts: Final = parts
        self._part_of_key: Final = part_of_key
        self._scatter: Final = _Scatter(access, [_known(part.place) for part in parts])

    @property
    def parts(self) -> list[PostgresSortedData]:
        return self._parts

    def joined(self, access: Access, parts: list[PostgresSortedData]) -> PostgresSortedData:
        return SpreadSortedData(access, self.ident, parts, self._part_of_key)

    def of_partition(self, key: bytes) -> SortedDataInterface:
        return self._parts[self._part_of_key(key)]

    def insert(self, entries: list[KeyEntry]) -> None:
        positions: dict[int, list[int]] = {}
        for position, (_, record_id) in enumerate(entries):
            positions.setdefault(part_of(record_id), []).append(position)
        if len(positions) <= 1:
            for part in positions:
                self._parts[part].insert(entries)
            return
        unit = self._access.require()
        if self.unique:
            unit.write(_SAVEPOINT)
        for part, some in sorted(positions.items()):
            try:
                self._parts[part].insert([entries[position] for position in some])
            except DuplicateKey as duplicate:
                unit.write(_UNDO)
                unit.write(_RELEASE)
                raise DuplicateKey(duplicate.key, duplicate.existing_record_id, some[duplicate.position]) from duplicate
        if self.unique:
            unit.write(_RELEASE)

    def insert_one(self, key: bytes, record_id: int) -> None:
        self._parts[part_of(record_id)].insert_one(key, record_id)

    def remove(self, entries: list[KeyEntry]) -> None:
        by_part: dict[int, list[KeyEntry]] = {}
        for entry in entries:
            by_part.setdefault(part_of(entry[1]), []).append(entry)
        for part, some in sorted(by_part.items()):
            self._parts[part].remove(some)

    def remove_one(self, key: bytes, record_id: int) -> None:
        self._parts[part_of(record_id)].remove_one(key, record_id)

    def scan(
        self, key_range: KeyRange, after: KeyEntry | None, limit: int, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[KeyEntry], bool]:
        rows: list[KeyEntry] = self._scatter.read(
            _ENTRIES[self.unique][key_range.forward], *self._place(key_range, after), int8(limit), int8(0)
        )
        return self._within(rows, limit, max_bytes)

    def scan_fetch(
        self,
        records: RecordStore,
        key_range: KeyRange,
        after: KeyEntry | None,
        limit: int,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[FetchedEntry], bool]:
        return SortedDataInterface.scan_fetch(self, records, key_range, after, limit, max_bytes)

    def scan_fetch_ranges(
        self,
        records: RecordStore,
        key_ranges: list[KeyRange],
        after: KeyEntry | None,
        limit: int,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[FetchedEntry], int, bool]:
        return SortedDataInterface.scan_fetch_ranges(self, records, key_ranges, after, limit, max_bytes)

    @property
    def ranges_at_once(self) -> int:
        return 1

    def first_with_entries(self, key_ranges: list[KeyRange]) -> int:
        return SortedDataInterface.first_with_entries(self, key_ranges)

    def fetch_exact(self, records: RecordStore, key: bytes) -> Record | None:
        return SortedDataInterface.fetch_exact(self, records, key)

    def find_exact(self, keys: list[bytes]) -> list[KeyEntry]:
        rows = [divided(key) for key in keys]
        found: dict[bytes, list[int]] = {key: [] for key in keys}
        values = (bytea_array([row[0] for row in rows]), bytea_array([row[1] for row in rows]))
        for key, record_id in self._scatter.read(_FIND[self.unique], self._store, *values):
            if key in found:
                found[key].append(record_id)
        return [(key, record_id) for key, ids in found.items() for record_id in sorted(ids)]

    def count_range(self, key_range: KeyRange) -> int:
        low, _, low_tail = divided(key_range.low)
        high, _, high_tail = divided(key_range.high)
        return int(self._scatter.read(_COUNT[self.unique], self._store, low, low_tail, high, high_tail)[0][0])

    def entry_at(self, key_range: KeyRange, after: KeyEntry | None, offset: int) -> KeyEntry | None:
        rows: list[KeyEntry] = self._scatter.read(
            _ENTRIES[self.unique][True], *self._place(key_range, after), int8(1), int8(offset)
        )
        return rows[0] if rows else None


def _known(place: int | None) -> int:
    assert place is not None
    return place


def _by_part(records: list[Record]) -> list[tuple[int, list[Record]]]:
    by_part: dict[int, list[Record]] = {}
    for record in records:
        by_part.setdefault(part_of(record[0]), []).append(record)
    return sorted(by_part.items())
