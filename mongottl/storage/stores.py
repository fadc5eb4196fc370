"""Record stores and sorted data: where an engine has documents and the entries of indexes.

What all calls have in common, batches, limits and units of work, is in `interface`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Final, final

from mypy_extensions import mypyc_attr

# (record id, document, `_ts` in seconds, meaningful `ttl` in seconds: 0 none, so the default applies; -1 never).
Record = tuple[int, bytes, int, int]
# A record that has no id yet: (document, `_ts`, `ttl`).
NewRecord = tuple[bytes, int, int]
# An entry of an expiry index: (second, record id).
DueEntry = tuple[int, int]
# (key, record id).
KeyEntry = tuple[bytes, int]
# (key, record id, document, `_ts`, `ttl`).
FetchedEntry = tuple[bytes, int, bytes, int, int]

# Above every record id: the position at which a backward scan by record id begins.
MAX_RECORD_ID: Final = (1 << 63) - 1
# `max_bytes` of reads that only their number of records limits.
NO_BYTE_LIMIT: Final = (1 << 62) - 1
# Ranges of sorted data that are scanned at once where each costs a seek only.
RANGES_AT_ONCE: Final = 32
# Before every entry of an expiry index: the position at which reading or counting one begins.
FIRST_DUE: Final = (-(1 << 62), 0)
# After the second of every entry of an expiry index.
_LAST_SECOND: Final = (1 << 62) - 1
# Entries that a call reads at once if it is made of calls that read entries.
_ENTRIES_AT_ONCE: Final = 1024


class ExpiryIndex(Enum):
    """One of the two expiry indexes of a record store. Both are ordered by `_ts` + ttl, then record id.

    BY_DEFAULT: records without a meaningful ttl of their own (ttl = 0), so by `_ts`: the collection's default applies.
    BY_OWN: records with a ttl > 0, by the second in which they expire. Records with ttl = -1 are in neither.
    """

    BY_DEFAULT = 0
    BY_OWN = 1

    def holds(self, record: Record) -> bool:
        """Whether the record is in this index."""
        return record[3] == 0 if self is ExpiryIndex.BY_DEFAULT else record[3] > 0


# A record store by its ident, and the seconds of its expiry indexes up to which records are due, inclusive.
DueRecords = tuple[str, dict[ExpiryIndex, int]]
# Stores that are asked for at once where a call takes a round trip: that is 10 milliseconds of its work.
STORES_AT_ONCE: Final = 500


def due_second(record: Record) -> int:
    """The second under which a record is in its expiry index."""
    return record[2] + record[3]


@final
class KeyRange:
    """The keys from `low` to below `high`, read in ascending order, or in descending order unless `forward`.

    It does not change, so it may be used for any number of scans.
    """

    def __init__(self, low: bytes, high: bytes, forward: bool = True) -> None:
        self.low: Final = low
        self.high: Final = high
        self.forward: Final = forward

    def reversed(self) -> "KeyRange":
        """The same keys in the other direction."""
        return KeyRange(self.low, self.high, not self.forward)

    def is_empty(self) -> bool:
        """Whether no key can be in it."""
        return self.low >= self.high

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KeyRange):
            return NotImplemented
        return self.low == other.low and self.high == other.high and self.forward == other.forward

    def __hash__(self) -> int:
        return hash((self.low, self.high, self.forward))

    def __repr__(self) -> str:
        return f"KeyRange({self.low!r}, {self.high!r}, {self.forward})"


@mypyc_attr(allow_interpreted_subclasses=True)
class RecordStore(ABC):
    """Documents by record id, each with its `_ts` and its meaningful `ttl`, which decide when it expires.

    Record ids start at 1, ascend in the order of insertion, never change, and are never used twice in the same store,
    even after a restart; only the ids of a unit of work that was rolled back may be used again, and those given since a
    saved state that was restored. Both expiry indexes are always maintained, so that switching TTL on or off writes no
    record.

    is_log: whether the engine keeps more in its rows than records (`StorageEngine.create_record_store`).
    on_pages: whether records with ids near to each other are on the same pages of a file, so that many are deleted
    faster in the order of their ids than in that of an expiry index.
    takes_due: whether `take_due` is one step of the engine, so that many records are purged at once by it.
    is_partitioned: whether the engine keeps records apart by their partition key
    (`StorageEngine.create_partitioned_store`), which no update may change then. Their ids ascend within a partition
    only, and so do those that `insert_records` returns.
    """

    ident: str
    is_log: bool = False
    on_pages: bool = False
    takes_due: bool = False
    is_partitioned: bool = False

    def partition_by(self, key_of: Callable[[bytes], bytes | None]) -> None:
        """Called before the first insert, and after each start: where a document has its partition key. key_of: the
        KeyString of its value, None if it has none. By default nobody asks for it."""
        return

    def of_partition(self, key: bytes) -> "RecordStore":
        """For a read that wants records of one partition only: those and maybe others. key: as a KeyString."""
        return self

    @abstractmethod
    def insert_records(self, records: list[NewRecord]) -> list[int]:
        """Stores the records; their new ids, ascending, in the same order."""
        raise NotImplementedError

    def insert_record(self, document: bytes, ts: int, ttl: int) -> int:
        """Stores one record; its new id."""
        return self.insert_records([(document, ts, ttl)])[0]

    @abstractmethod
    def update_records(self, old: list[Record], new: list[Record]) -> None:
        """Replaces each record of `old` by the one of `new` at the same place, which has the same id.

        old: the records as the caller has read them, each once. Raises WriteConflict when one of them is gone or is
        stored with other bytes, another `_ts` or another `ttl`; then the unit of work must be rolled back. So index
        entries that the caller computed from `old` always belong to what was stored.
        """
        raise NotImplementedError

    def update_record(self, old: Record, new: Record) -> None:
        """Replaces one record by another with the same id. Raises WriteConflict if it is not stored as `old`."""
        self.update_records([old], [new])

    def hold_records(self, records: list[Record]) -> None:
        """Keeps others from changing records until the end of the unit of work. Raises WriteConflict when one of them
        is not stored as the caller has read it. By default nothing has to be done, since no other unit is open."""
        return

    @abstractmethod
    def delete_records(self, records: list[Record]) -> None:
        """Deletes records, given as the caller has read them, each once.

        Raises WriteConflict when one of them is gone or is not stored as given, as `update_records` does.
        """
        raise NotImplementedError

    def delete_record(self, record: Record) -> None:
        """Deletes one record. Raises WriteConflict if it is not stored as given."""
        self.delete_records([record])

    def find_record(self, record_id: int) -> Record | None:
        """The record, or None if there is none of that id."""
        found, _ = self.find_records([record_id])
        return found[0] if found else None

    @abstractmethod
    def find_records(self, record_ids: list[int], max_bytes: int = NO_BYTE_LIMIT) -> tuple[list[Record], int]:
        """The records of these ids, in the order given, and how many of the ids were looked up.

        Ids without a record are left out. All ids are looked up unless `max_bytes` is reached before the last one.
        """
        raise NotImplementedError

    @abstractmethod
    def scan(
        self, after: int, limit: int, forward: bool = True, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[Record], bool]:
        """The first records with an id above `after`, ascending; with `forward=False` below `after`, descending.

        after: the last id of the batch before; 0 begins, MAX_RECORD_ID begins a backward scan. The second value says
        whether there may be more records after these.
        """
        raise NotImplementedError

    @abstractmethod
    def count(self) -> int:
        """The exact number of records, in constant time."""
        raise NotImplementedError

    @abstractmethod
    def size_bytes(self) -> int:
        """The exact total length of all documents, in constant time."""
        raise NotImplementedError

    @abstractmethod
    def due_entries(self, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int) -> list[DueEntry]:
        """The first entries of an expiry index after the entry `after`, up to the second `until_s`, inclusive.

        after: the last entry of the batch before; FIRST_DUE begins, (second, 0) begins with that second.
        Fewer than `limit` are given only at the end.
        """
        raise NotImplementedError

    def due(self, index: ExpiryIndex, until_s: int, limit: int, max_bytes: int = NO_BYTE_LIMIT) -> list[Record]:
        """The first records of an expiry index up to the second `until_s`, inclusive, in the order of the index; empty
        only if there are none. Damaged ones among them are left out; DamagedRecord if all that were read are damaged.
        """
        entries = self.due_entries(index, FIRST_DUE, until_s, limit)
        return self.find_records([record_id for _, record_id in entries], max_bytes)[0] if entries else []

    def take_due(
        self, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int, max_bytes: int = NO_BYTE_LIMIT
    ) -> list[Record]:
        """Deletes the first records of an expiry index after the entry `after`, up to the second `until_s`, inclusive,
        and returns them in the order of the index. Those that others have locked are passed over: so there may be more
        if fewer than `limit`, or none, are given.
        """
        entries = self.due_entries(index, after, until_s, limit)
        records = self.find_records([record_id for _, record_id in entries], max_bytes)[0] if entries else []
        self.delete_records(records)
        return records

    def count_due(self, index: ExpiryIndex, until_s: int) -> int:
        """How many records `due` would give without a limit; the time it takes grows with them."""
        count = 0
        after: DueEntry | None = FIRST_DUE
        while after is not None:
            part, after = self.count_due_after(index, after, until_s, _ENTRIES_AT_ONCE)
            count += part
        return count

    def count_without_due(self, until_s: dict[ExpiryIndex, int]) -> int:
        """The number of records but for those that `due` would give, by the seconds of expiry indexes.

        Both are of one moment, also where other servers write: else records that one of them deletes in between would
        count as records that are not due.
        """
        return self.count() - sum([self.count_due(index, second) for index, second in until_s.items()])

    def count_due_after(
        self, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int
    ) -> tuple[int, DueEntry | None]:
        """Counts the entries that `due_entries` would give.

        Used to count in parts, each in bounded time: at most `limit` are counted. The second value is the last one
        counted, where the next part begins, if that many were; else None: there are no more.
        """
        entries = self.due_entries(index, after, until_s, limit)
        return len(entries), entries[-1] if len(entries) == limit else None

    def due_seconds(self, index: ExpiryIndex, after_s: int, limit: int) -> list[int]:
        """Up to `limit` of the distinct seconds of an expiry index above `after_s`, ascending.

        The time it takes grows with the seconds returned, not with the records that share them.
        """
        found: list[int] = []
        while len(found) < limit:
            entries = self.due_entries(index, (after_s + 1, 0), _LAST_SECOND, 1)
            if not entries:
                break
            after_s = entries[0][0]
            found.append(after_s)
        return found


@mypyc_attr(allow_interpreted_subclasses=True)
class SortedDataInterface(ABC):
    """Index entries (key, record id) in the order of key, then record id; record ids are 1 or more.

    unique: at most one entry for each key.
    """

    ident: str
    unique: bool

    def of_partition(self, key: bytes) -> "SortedDataInterface":
        """For a read that wants entries of records of one partition only: those and maybe others. key: as a KeyString
        (`RecordStore.partition_by`)."""
        return self

    @abstractmethod
    def insert(self, entries: list[KeyEntry]) -> None:
        """Adds the entries; an entry that exists already, with the same key and record id, is no error.

        Raises DuplicateKey when unique and another record has a key. Then nothing of this call is stored, and the unit
        of work may continue.
        """
        raise NotImplementedError

    def insert_one(self, key: bytes, record_id: int) -> None:
        """Adds one entry, unless it exists already. Raises DuplicateKey when unique and another record has the key."""
        self.insert([(key, record_id)])

    @abstractmethod
    def remove(self, entries: list[KeyEntry]) -> None:
        """Removes the entries with these keys and record ids; one that does not exist is no error."""
        raise NotImplementedError

    def remove_one(self, key: bytes, record_id: int) -> None:
        """Removes the entry with this key and record id, if it exists."""
        self.remove([(key, record_id)])

    @abstractmethod
    def scan(
        self, key_range: KeyRange, after: KeyEntry | None, limit: int, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[KeyEntry], bool]:
        """Up to `limit` entries of the range, in its direction.

        after: None for the first batch, then the last entry of the batch before, which is within the range; the scan
        continues with the next one. max_bytes: of keys; the last one may exceed it. The second value: whether there may
        be more entries after these.
        """
        raise NotImplementedError

    def scan_fetch(
        self,
        records: RecordStore,
        key_range: KeyRange,
        after: KeyEntry | None,
        limit: int,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[FetchedEntry], bool]:
        """The entries that `scan` returns with the record of each, from `records` of the same engine, in one round
        trip.

        Every entry in the range should have its record in `records`; an entry without one, which only damage can cause,
        is left out, and the scan continues after it. max_bytes: of documents. The second value: whether there may be
        more entries after these.
        """
        while True:
            entries, more = self.scan(key_range, after, limit)
            # An index on an array has several entries of one record.
            ids = list(dict.fromkeys([entry[1] for entry in entries]))
            stored, looked_up = records.find_records(ids, max_bytes)
            by_id = {record[0]: record for record in stored}
            unread = set(ids[looked_up:])
            fetched: list[FetchedEntry] = []
            size = 0
            for key, record_id in entries:
                if record_id in unread or size >= max_bytes:
                    return fetched, True
                record = by_id.get(record_id)
                if record is not None:
                    fetched.append((key, record_id, record[1], record[2], record[3]))
                    size += len(record[1])
            if fetched or not more:
                return fetched, more
            after = entries[-1]

    @property
    def ranges_at_once(self) -> int:
        """How many ranges `scan_fetch_ranges` may be given: each costs a seek, also if it is empty."""
        return RANGES_AT_ONCE

    def scan_fetch_ranges(
        self,
        records: RecordStore,
        key_ranges: list[KeyRange],
        after: KeyEntry | None,
        limit: int,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[FetchedEntry], int, bool]:
        """What `scan_fetch` returns of several ranges in one direction, one after the other, in one round trip.

        after: an entry of the first range, or None. limit, max_bytes: of all ranges together. The second value: how
        many ranges were read to their end; the third: whether the last entry is one of the range after these, in which
        there may be more.
        """
        found: list[FetchedEntry] = []
        done = 0
        for key_range in key_ranges:
            rows, more = self.scan_fetch(records, key_range, after, limit - len(found), max_bytes)
            if found:
                found.extend(rows)
            else:
                found = rows
            if more:
                return found, done, True
            done += 1
            after = None
            for row in rows:
                max_bytes -= len(row[2])
            if len(found) >= limit or max_bytes <= 0:
                break
        return found, done, False

    def first_with_entries(self, key_ranges: list[KeyRange]) -> int:
        """The place of the first of these ranges that has an entry; -1 if none has."""
        for place, key_range in enumerate(key_ranges):
            if self.scan(key_range, None, 1)[0]:
                return place
        return -1

    def fetch_exact(self, records: RecordStore, key: bytes) -> Record | None:
        """The record that a unique sorted data has for `key`, or None; used to find a document by its `_id`."""
        for _, record_id in self.find_exact([key]):
            record = records.find_record(record_id)
            if record is not None:
                return record
        return None

    @abstractmethod
    def find_exact(self, keys: list[bytes]) -> list[KeyEntry]:
        """All entries of these keys, in the order of the keys given (each once), then by record id."""
        raise NotImplementedError

    def count_range(self, key_range: KeyRange) -> int:
        """How many entries the range has; the time it takes grows with them."""
        count = 0
        after: KeyEntry | None = None
        more = True
        while more:
            entries, more = self.scan(key_range, after, _ENTRIES_AT_ONCE)
            count += len(entries)
            if entries:
                after = entries[-1]
        return count

    def entry_at(self, key_range: KeyRange, after: KeyEntry | None, offset: int) -> KeyEntry | None:
        """The entry that follows the first `offset` entries of the range, or those after the entry `after`; None if
        there is none. The range is a forward one.

        Used to count a range in parts, each in bounded time.
        """
        while True:
            entries, more = self.scan(key_range, after, offset + 1)
            if len(entries) > offset:
                return entries[offset]
            if not more:
                return None
            offset -= len(entries)
            after = entries[-1]
