"""The storage contract: record stores, sorted data and units of work, over bytes.

The layers above store documents and index entries through it, and do not depend on the engine. It does not depend on
BSON, the structure of KeyStrings, collections, time or trio. A document is bytes, a key is bytes compared as unsigned
bytes, an instant is a whole number of seconds that the caller computed.

    StorageEngine ──┬── RecordStore          record id → (document, _ts, ttl), and two expiry indexes over _ts and ttl
                    ├── SortedDataInterface  (key, record id) in order; unique or not
                    ├── catalog entries      name → bytes
                    ├── WriteUnitOfWork      all writes of one operation, or none
                    └── Isolation            snapshots, and transactions of several statements

Every call takes and returns whole batches, so that an engine behind a network can answer it in one round trip, and no
call keeps a statement open: to continue a scan, pass it the last position that it returned, even if others have
written meanwhile.

Calls that return records take two limits: `limit`, the number of records, and `max_bytes`, the total length of their
documents. The record that reaches `max_bytes` is the last one, so at least one record is returned if there is any, and
a batch exceeds `max_bytes` by less than one document. Scans return a pair: the batch, and whether there may be more
records after it. False means that the end was reached; with True there is at least one record. Do not conclude from
the length of a batch whether the end was reached.

What an engine must implement is abstract. The other methods are made of these: calls for one record or entry of those
for many, fetches of scans and lookups, counts of entries that are read. An engine overrides them where it has something
faster, and those that say "by default" where it has what they are about. `forwarding` has base classes for what wraps
an engine.

All calls but `flush` and `maintain` are made on one thread. All writes happen inside a unit of work; reads may happen
outside, and inside one they see its writes. `contract.ContractEngine` asserts all this.

    StorageError
    ├── DuplicateKey         a unique sorted data has the key for another record
    ├── WriteConflict        a record has changed since it was read: roll back and repeat the operation
    ├── SnapshotConflict     what a transaction writes was written by others after its snapshot: abort it
    ├── SnapshotTooOld       a snapshot is read that the engine has given up
    ├── TransactionTooLarge  a transaction has written more than the engine keeps for one
    └── EngineUnavailable    disk full, I/O error, damage found while running, closed
    OSError
    └── DataDirectoryError   at opening: in use, newer format, damaged, not ours; the directory is left as it was

Any call may raise EngineUnavailable; methods name the others that they may raise. After EngineUnavailable inside a unit
of work, the unit can only be rolled back. Engines raise these classes themselves, and callers do not wrap them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Final, final

from mypy_extensions import mypyc_attr

from mongottl.document.interrupt import UndividedGuard
from mongottl.errors import MongottlError
from mongottl.storage.log import LogForm, StoreLog
from mongottl.storage.nodes import StoreNodes
from mongottl.storage.waiting import Waiter

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


class StorageError(MongottlError):
    """The base class of the errors of storage engines."""


class DuplicateKey(StorageError):
    """A unique sorted data has `key` for another record; nothing of the failed call is stored.

    existing_record_id: the record that has the key (its entry may be of the same call).
    position: which entry of the call was refused; the entries before it would have been accepted.
    """

    def __init__(self, key: bytes, existing_record_id: int, position: int) -> None:
        super().__init__(f"key {key.hex()} is held by record {existing_record_id}")
        self.key = key
        self.existing_record_id = existing_record_id
        self.position = position


class WriteConflict(StorageError):
    """A record that the caller has read was changed or deleted since then.

    The operation may be repeated after a rollback, and must then read the records again.
    """


class MustBeAlone(WriteConflict):
    """A unit of work that others are open beside changes what those may not see before it is committed. Repeated at
    once, it is alone."""


class UnitLost(WriteConflict):
    """The store has lost a unit of work with the connection to it: nothing was done, and it may be done once more."""


class StatementExecuted(StorageError):
    """Another server has executed a statement of a retryable write that the unit of work executes, too: nothing of the
    unit was done. `StoreLog.find_statements` says what the other one has done."""


class CatalogChanged(WriteConflict):
    """Another server has changed the catalog before this unit of work was committed: nothing was done. What the unit
    was made from may be gone."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ClaimOwner:
    """Who has written what others want to write: a transaction, until it ends. released: whether it has ended.

    look_s: after how many seconds a write that waits for it is tried again in any case, for an engine that does not
    know whose the write is that it has met; 0.0 if only its end counts.
    """

    def __init__(self) -> None:
        self.released = False
        self.look_s = 0.0
        self._release_actions: list[Callable[[], None]] = []

    def on_release(self, action: Callable[[], None]) -> None:
        """Calls `action` when the transaction ends."""
        self._release_actions.append(action)

    def forget_action(self, action: Callable[[], None]) -> None:
        """Has `action`, which may have been called, not be called any more."""
        if action in self._release_actions:
            self._release_actions.remove(action)

    @property
    def waiting(self) -> int:
        """How many wait for the end."""
        return len(self._release_actions)

    def _run_release_actions(self) -> None:
        actions = self._release_actions
        self._release_actions = []
        for action in actions:
            action()


class ClaimedByTransaction(WriteConflict):
    """A plain write meets a record or unique key that an open transaction has written: wait until that has ended, read
    again and repeat the write. owner: the transaction."""

    def __init__(self, owner: ClaimOwner) -> None:
        super().__init__("written by a transaction that has not ended")
        self.owner = owner


class SnapshotConflict(StorageError):
    """What a transaction wants to write was written by another after its snapshot, or is claimed by another
    transaction. The transaction must be aborted; its client may begin it again."""


class SnapshotTooOld(StorageError):
    """A snapshot is read that the engine has given up, or that was closed."""


class SeveralPlaces(StorageError):
    """A transaction reaches rows at another place than those that it has reached before, or reads of one snapshot do,
    and the engine has no snapshot of both. in_transaction: which of the two."""

    def __init__(self, message: str, in_transaction: bool) -> None:
        super().__init__(message)
        self.in_transaction = in_transaction


class TransactionTooLarge(StorageError):
    """A transaction has written more than the engine keeps for one."""


class EngineUnavailable(StorageError):
    """The engine cannot carry out the call now: disk full, I/O error, damaged file, closed."""


class StoreUnreachable(EngineUnavailable):
    """The database that keeps the data does not answer now; nothing of the call was done. It may be repeated."""


class DamagedRecord(EngineUnavailable):
    """A stored record is not what was written: its checksum is wrong. Other records can be read.

    ident: of its store. reason: what is wrong with it.
    """

    def __init__(self, ident: str, record_id: int, reason: str = "its checksum is wrong") -> None:
        super().__init__(f"record {record_id} of {ident} is damaged: {reason}")
        self.ident = ident
        self.record_id = record_id
        self.reason = reason


class DiskFull(EngineUnavailable):
    """There is no room on the disk. Reads go on, deletions too if they can, and other writes when there is room
    again."""


@mypyc_attr(native_class=False)  # which an OSError cannot be
class DataDirectoryError(OSError):
    """The data directory cannot be used; the message says why and what to do. Nothing in it was changed."""


@mypyc_attr(allow_interpreted_subclasses=True)
class WriteUnitOfWork(ABC):
    """The writes of one operation: all of them after `commit`, none of them otherwise.

        with engine.unit_of_work() as unit:
            record_id = records.insert_record(document, ts, ttl)
            by_id.insert_one(key, record_id)
            unit.commit()

    Leaving the block without `commit`, by an exception or not, rolls back. Units do not nest. After `commit` the block
    must be left before anything else is written.

    alone: whether no other unit is open meanwhile. unsynced: whether the commit may be lost if the machine fails that
    keeps the data, where an engine can commit faster then. position: where it is in the engine's log, after the commit.
    """

    alone: bool = True
    unsynced: bool = False
    position: int = 0

    def log(self, form: LogForm) -> None:
        """Puts a form in the engine's log, with the position of the unit. RuntimeError without one."""
        raise RuntimeError("the storage engine has no log")

    def end_kept_forms(self, ends: list[bytes]) -> None:
        """Of the final unit of a transaction: puts what that has kept (`OpenTransaction.keep_forms`) in the log, before
        the forms of `log`. ends: what is appended to each."""
        raise RuntimeError("the storage engine has no log")

    @abstractmethod
    def commit(self) -> None:
        """Makes the writes visible to a later opening of the engine after a crash of this process (not of the
        machine: that needs `flush`). Raises WriteConflict; then everything is rolled back."""
        raise NotImplementedError

    @abstractmethod
    def on_commit(self, action: Callable[[], None]) -> None:
        """Calls `action` after the commit, in the order given."""
        raise NotImplementedError

    @abstractmethod
    def on_rollback(self, action: Callable[[], None]) -> None:
        """Calls `action` if the unit is rolled back, in reverse order: for changes of memory made before the commit."""
        raise NotImplementedError

    @abstractmethod
    def __enter__(self) -> "WriteUnitOfWork":
        raise NotImplementedError

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError


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


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenSnapshot(ABC):
    """The data as of one moment, until it is closed. too_old: whether the engine has given it up."""

    @property
    @abstractmethod
    def too_old(self) -> bool:
        raise NotImplementedError

    @abstractmethod
    def records_at(self, store: RecordStore) -> RecordStore:
        """A record store of the engine as it was then, for reads. SnapshotTooOld, here or when it is read."""
        raise NotImplementedError

    @abstractmethod
    def entries_at(self, data: SortedDataInterface) -> SortedDataInterface:
        """A sorted data of the engine as it was then, for reads; it fetches from record stores of `records_at`.

        SnapshotTooOld, here or when it is read."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Ends it; may be called again. Does not wait."""
        raise NotImplementedError


class KeptWrites(ABC):
    """What a transaction has written to a record store and its indexes, and the engine gets only when it commits.

    deleted: as the engine has them. old: what is replaced by `replacing`, likewise. inserted: without ids yet.
    All within `OpenTransaction.final_unit`; `load` comes first.
    """

    deleted: list[Record]
    old: list[Record]
    replacing: list[Record]
    inserted: list[NewRecord]

    @abstractmethod
    def load(self) -> None:
        """Reads what is deleted and replaced. SnapshotConflict if it is gone."""
        raise NotImplementedError

    @abstractmethod
    def remove_entries(self, data: SortedDataInterface) -> None:
        """Removes the entries that the transaction has removed."""
        raise NotImplementedError

    @abstractmethod
    def write_records(self) -> list[Record]:
        """Deletes, replaces and inserts the records; those that were written, with their ids."""
        raise NotImplementedError

    @abstractmethod
    def insert_entries(self, data: SortedDataInterface) -> None:
        """Inserts the entries that the transaction has added, after `write_records`."""
        raise NotImplementedError

    @abstractmethod
    def entries(self, data: SortedDataInterface) -> SortedDataInterface:
        """A sorted data of the engine for other entries that this commit inserts or removes."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenTransaction(ClaimOwner):
    """A transaction of several statements: it reads what was committed when it began, and what it has written itself.

        with transaction.statement() as unit:      the writes of one statement: all of them, or none
            transaction.own_records(store).insert_records(rows)
            transaction.own_entries(data).insert(entries)
            unit.commit()
        …
        with transaction.final_unit(engine) as unit:
            …                                      `kept_writes` of each record store, and what else belongs to it
            unit.commit()
        transaction.committed()
        transaction.release()                      also without a commit: then nothing of it remains

    What it has written nobody else sees before, and nobody else can write. Writes raise SnapshotConflict, and
    TransactionTooLarge.

    too_old: whether the engine has given up its snapshot. has_written: whether anything would be committed.
    keeps_writes: whether the engine gets them with the final unit alone, from `kept_writes`.
    """

    keeps_writes: bool = True

    @property
    @abstractmethod
    def too_old(self) -> bool:
        raise NotImplementedError

    @property
    @abstractmethod
    def has_written(self) -> bool:
        raise NotImplementedError

    @abstractmethod
    def statement(self) -> WriteUnitOfWork:
        """A unit of work for the writes of one statement, which is undone alone. An engine may wait here."""
        raise NotImplementedError

    @abstractmethod
    def records_view(self, store: RecordStore) -> RecordStore:
        """A record store of the engine as the transaction sees it, for reads."""
        raise NotImplementedError

    @abstractmethod
    def entries_view(self, data: SortedDataInterface) -> SortedDataInterface:
        """A sorted data of the engine as the transaction sees it, for reads; it fetches from `records_view`."""
        raise NotImplementedError

    @abstractmethod
    def own_records(self, store: RecordStore) -> RecordStore:
        """A record store of the engine for a statement that writes."""
        raise NotImplementedError

    @abstractmethod
    def own_entries(self, data: SortedDataInterface, complete: bool = True) -> SortedDataInterface:
        """A sorted data of the engine for a statement that writes. complete: whether it has the entries of all records;
        unique keys are not checked if not."""
        raise NotImplementedError

    @abstractmethod
    def final_unit(self, engine: "StorageEngine", alone: bool) -> WriteUnitOfWork:
        """The unit of work that commits the transaction, with whatever else is written in it. An engine may wait here.

        engine: that of the stores, which may be one that wraps this one. alone: whether it changes in memory what
        others read.
        """
        raise NotImplementedError

    def unit_beside(self, engine: "StorageEngine") -> WriteUnitOfWork:
        """A unit of work within a statement, which is committed whether or not the transaction is."""
        return engine.unit_of_work()

    @abstractmethod
    def kept_writes(self, store: RecordStore, between: Callable[[], None]) -> KeptWrites | None:
        """Within the final unit: what it has written to a record store and its indexes if the engine does not have it
        yet; None if it has, or if nothing was written there.

        between: called by the methods of what is returned between two parts of their work, of which none takes long.
        """
        raise NotImplementedError

    def keep_forms(self, forms: list[bytes]) -> None:
        """Keeps forms for the engine's log with what the transaction has written, so that they are not in memory until
        the commit. May wait. SnapshotConflict, RuntimeError without a log."""
        raise RuntimeError("the storage engine has no log")

    def committed(self) -> None:
        """Called once after the commit of the final unit."""
        return

    @abstractmethod
    def release(self) -> None:
        """Ends the transaction, of which nothing remains unless it was committed. May be called again; every other use
        is refused from then on. Does not wait."""
        raise NotImplementedError

    def after_end(self, action: Callable[[], None]) -> None:
        """Calls `action`, after `release`, as soon as others can write what it had: by default at once."""
        action()

    def await_end(self) -> None:
        """Waits, after `release`, until others can write what it had; some seconds at most."""
        return


class WatchedWrites(ABC):
    """The stores of the engine for a plain write while `Isolation.watches_writes`.

    Writes raise ClaimedByTransaction for what an open transaction has written.
    """

    @abstractmethod
    def records(self, store: RecordStore) -> RecordStore:
        raise NotImplementedError

    @abstractmethod
    def entries(self, data: SortedDataInterface) -> SortedDataInterface:
        raise NotImplementedError

    @abstractmethod
    def committed(self) -> None:
        """Called after the commit of the unit of work in which they were written."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Isolation(ABC):
    """Snapshots and transactions of one engine.

    Engines whose units of work run one after the other get theirs from `snapshot.isolation`.
    """

    @abstractmethod
    def open_snapshot(self) -> OpenSnapshot:
        """A snapshot of the present. An engine may wait here, or when it is read first."""
        raise NotImplementedError

    @abstractmethod
    def begin_transaction(self) -> OpenTransaction:
        """A transaction with a snapshot of the present, or of its first read. Does not wait."""
        raise NotImplementedError

    @property
    def watches_writes(self) -> bool:
        """Whether plain writes must go through `watch`."""
        return False

    def watch(self) -> WatchedWrites:
        """For the writes of one plain unit of work."""
        raise RuntimeError("plain writes are not watched")

    @abstractmethod
    def count_claimed(self, ident: str) -> int:
        """How many records of a record store open transactions have written, at most."""
        raise NotImplementedError

    @abstractmethod
    def unclaimed(self, store: RecordStore, records: list[Record]) -> list[Record]:
        """Those of some records of the engine that no open transaction has written, in their order. It may wait."""
        raise NotImplementedError


class SavedState:
    """All that an engine has at one time: what `save_state` returns and `restore_state` brings back."""


@mypyc_attr(allow_interpreted_subclasses=True)
class StorageEngine(ABC):
    """All record stores and sorted data, each under an ident, a name that the catalog makes, and the catalog
    entries."""

    name: str

    @property
    def suspends(self) -> bool:
        """Whether calls may wait, while other operations run."""
        return False

    def wait_by(self, waiter: Waiter, present: Callable[[], object]) -> None:
        """Has calls wait by `waiter` from now on; before, they block the thread. By default no call waits.

        present: an object for the operation that runs now, which is the same as long as that runs; None outside of
        operations.
        """
        return

    @property
    def persistent(self) -> bool:
        """Whether the data is still there after the end of this process."""
        return False

    @property
    def folder(self) -> str | None:
        """The folder with the stored database, in which what belongs to it is kept, too; None if there is none."""
        return None

    @abstractmethod
    def unit_of_work(self) -> WriteUnitOfWork:
        """A new unit of work, which begins when its block is entered. An engine that must wait before one can begin
        waits here, never where the block is entered."""
        raise NotImplementedError

    @property
    @abstractmethod
    def isolation(self) -> Isolation:
        """Snapshots and transactions; the same object each time."""
        raise NotImplementedError

    def concurrent_unit_of_work(self) -> WriteUnitOfWork:
        """A unit of work that may be open beside those of other operations, where the engine can have several: of one
        that changes nothing in memory which others read, but by `on_commit`.

        A key of a unique sorted data that another record has may then be found out at the commit alone, which raises
        WriteConflict; DuplicateKey is raised by the unit that the same operation begins next.
        """
        return self.unit_of_work()

    def exclusive_unit_of_work(self, store: RecordStore) -> WriteUnitOfWork:
        """A unit of work of which the same holds where several servers have the data: beside it there is no other one
        that was begun so for this record store, on any of them. What it inserts there follows all that is there."""
        return self.unit_of_work()

    @property
    def log(self) -> StoreLog | None:
        """The log that it keeps itself; by default it has none."""
        return None

    @property
    def nodes(self) -> StoreNodes | None:
        """The servers that have the data open, where there may be several; by default there is none but this one."""
        return None

    @property
    def shared_nodes(self) -> StoreNodes | None:
        """`nodes` where others may have a place beside this server; else None."""
        nodes = self.nodes
        return nodes if nodes is not None and nodes.is_shared else None

    @property
    def may_lose_commits(self) -> bool:
        """Whether acknowledged commits may be lost when another machine takes the place of one that fails; by default
        none does."""
        return False

    def ping(self) -> None:
        """Asks what keeps the data for an answer; by default that needs none. StoreUnreachable after a second."""
        return

    def undivided_guard(self) -> UndividedGuard | None:
        """What keeps undivided blocks what they are, for an engine that suspends."""
        return None

    @abstractmethod
    def set_commit_listener(self, listener: Callable[[], None]) -> None:
        """Has `listener` called after every commit, before the commit actions of the unit of work, and never after a
        rollback. There is one listener: it replaces the one set before. It must not raise."""
        raise NotImplementedError

    @abstractmethod
    def idents(self) -> list[str]:
        """All idents, in no order."""
        raise NotImplementedError

    @abstractmethod
    def create_record_store(self, ident: str, is_log: bool = False) -> RecordStore:
        """A new, empty record store. `ident` must not exist. Inside a unit of work.

        is_log: whether most units of work add a record to it right before they commit, so that the engine may keep
        with such a record what it would otherwise store elsewhere.
        """
        raise NotImplementedError

    def create_partitioned_store(self, ident: str) -> RecordStore:
        """The same, of records with a partition key, by which an engine may keep them apart: those with one value of it
        are read and written together. By default it does not."""
        return self.create_record_store(ident)

    @abstractmethod
    def record_store(self, ident: str) -> RecordStore:
        """The record store of that ident, which must exist; the same object each time."""
        raise NotImplementedError

    @abstractmethod
    def create_sorted_data(self, ident: str, unique: bool, beside: str = "") -> SortedDataInterface:
        """A new, empty sorted data. `ident` must not exist. Inside a unit of work.

        beside: the ident of the record store whose records its entries are of, for an engine that keeps both at one
        place; empty if there is none.
        """
        raise NotImplementedError

    @abstractmethod
    def sorted_data(self, ident: str, unique: bool) -> SortedDataInterface:
        """The sorted data of that ident, which must exist and have been created with the same `unique`."""
        raise NotImplementedError

    @abstractmethod
    def drop_ident(self, ident: str) -> None:
        """Drops the ident, which must exist; its name can be used again at once. Inside a unit of work.

        The space of a large one is freed by `drop_some`.
        """
        raise NotImplementedError

    def drop_some(self, limit: int) -> bool:
        """Frees the space of about `limit` rows of dropped idents; True while there is more to do. By default an engine
        frees all when it drops.

        Outside units of work. Call it repeatedly, with other work in between, until it returns False, also after
        opening the engine.
        """
        return False

    def set_cache_bytes(self, most_bytes: int) -> None:
        """How much memory the engine may take to keep records that it has read from the stored database."""
        return

    def forget_cached(self, ident: str, after: int, count: int) -> None:
        """Has the first `count` records of a record store with ids above `after` read from the stored database when
        they are asked for next, though the engine may keep them in memory."""
        return

    @property
    def stored_bytes(self) -> int:
        """The length of the stored database; 0 if it is kept in memory."""
        return 0

    @property
    def unused_bytes(self) -> int:
        """How much of the stored database holds nothing; 0 if it is kept in memory. New records use it first."""
        return 0

    @property
    def must_rewrite(self) -> bool:
        """Whether `reclaim_some` gives nothing back before `rewrite` was called once."""
        return False

    def reclaim_some(self, limit: int, keep_bytes: int = 0) -> int:
        """Gives up to `limit` pages of unused space back to the system, until `keep_bytes` are left; how many bytes
        that were. 0 if there is nothing more to give back, or if it cannot be now: a copy is being made, the disk is
        full, or the database must be rewritten. The file becomes shorter at the next `maintain`, which is then due.

        Outside units of work. Takes 10 to 200 µs a page.
        """
        return 0

    def rewrite(self, proceed: Callable[[], None]) -> int:
        """Writes the stored database anew without unused space, so that `reclaim_some` works from then on; how many
        bytes became free.

        May be called on any thread, and takes long. Reads go on meanwhile; a unit of work that begins fails with
        EngineUnavailable, so the caller holds writers off. proceed: called often; what it raises ends the work, with
        nothing changed. DiskFull if there is no room for two copies of the content. 0 if it was rewritten already.
        """
        return 0

    def clear(self) -> None:
        """Drops every ident and every catalog entry. Inside a unit of work."""
        for ident in self.idents():
            self.drop_ident(ident)
        for key, _ in self.catalog_entries():
            self.delete_catalog_entry(key)

    @property
    def saves_states(self) -> bool:
        """Whether `save_state`, `restore_state` and `release_state` can be called."""
        return False

    def save_state(self) -> SavedState:
        """The state of all idents and catalog entries, which later writes do not change. Outside units of work.

        Takes a time that does not depend on the number of records. RuntimeError unless `saves_states`.
        """
        raise RuntimeError(f"the storage engine {self.name} saves no states")

    def restore_state(self, state: SavedState) -> set[str]:
        """Brings all idents and catalog entries back to a saved state, which can be restored again; the idents whose
        contents may have changed. Outside units of work. It cannot be undone.

        Record stores and sorted data that exist both before and in the state keep their objects. Record ids that were
        given since the state was saved may be given again. The space of what is not in the state is freed by
        `drop_some`. Takes a time that does not depend on the number of records.
        """
        raise RuntimeError(f"the storage engine {self.name} saves no states")

    def release_state(self, state: SavedState) -> None:
        """Gives up a state, which cannot be restored any more. Space that only it needed is freed by `drop_some`."""
        raise RuntimeError(f"the storage engine {self.name} saves no states")

    @abstractmethod
    def catalog_entries(self) -> list[tuple[str, bytes]]:
        """All catalog entries, ordered by the UTF-8 bytes of their keys."""
        raise NotImplementedError

    @abstractmethod
    def catalog_entry(self, key: str) -> bytes | None:
        """The catalog entry of a key; None if there is none. Takes a time that does not grow with their number."""
        raise NotImplementedError

    @abstractmethod
    def put_catalog_entry(self, key: str, value: bytes) -> None:
        """Adds or replaces an entry. Inside a unit of work."""
        raise NotImplementedError

    def name_entry(self, key: str, name: str) -> None:
        """Gives an entry a name that no other one has until that is deleted or gets another. Inside the unit of work
        that has put the entry. CatalogChanged, at the latest by its commit, if another server has given that name to
        one; by default there is no other server."""
        return

    @abstractmethod
    def delete_catalog_entry(self, key: str) -> None:
        """Deletes an entry, if it exists. Inside a unit of work."""
        raise NotImplementedError

    @property
    @abstractmethod
    def committed_number(self) -> int:
        """The number of the last commit; commits are numbered from 1 when the engine is opened."""
        raise NotImplementedError

    @property
    def durable_number(self) -> int:
        """The last commit that is known to survive a power failure, with all commits before it. By default commits
        need no `flush`: what is committed is as safe as it gets."""
        return self.committed_number

    @property
    def failed(self) -> bool:
        """Whether a flush has failed. From then on the engine refuses commits and flushes, and accepts reads only."""
        return False

    @property
    def disk_full(self) -> bool:
        """Whether a write has found the disk full, and there is no room yet. What deletes can still be written, from a
        reserve; `require_room` refuses the rest."""
        return False

    def require_room(self) -> None:
        """To be called before a commit that stores something new: DiskFull while the disk is full, unless there is
        room again. Inside a unit of work, which can then only be rolled back, or outside."""
        return

    def make_room(self) -> bool:
        """To be called when a unit of work that only deletes, or replaces entries by others of their length, has failed
        with DiskFull: whether there is room for it now, so that it should be repeated."""
        return False

    def flush(self) -> None:
        """Makes all commits before the call durable: `durable_number` is then at least `committed_number` at the time
        of the call. May be called on any thread, and may take long.

        After one failure every further flush and write fails with EngineUnavailable, because the operating system may
        have dropped the data that it could not write, and reports that only once.
        """
        return

    @property
    def maintenance_due(self) -> bool:
        """Whether `maintain` should be called soon."""
        return False

    @property
    def writers_should_wait(self) -> bool:
        """Whether the engine's log has grown long and cannot be ended while units of work keep beginning.

        A server then begins no unit of work until the next `maintain` has returned. A unit that begins nevertheless
        does not wait, but `maintain` then has to be repeated.
        """
        return False

    def maintain(self) -> None:
        """Does the engine's background work, if any is due. May be called on any thread, on the engine's own thread
        only outside units of work, and may take long. Only the size of logs depends on it."""
        return

    @property
    def can_copy(self) -> bool:
        """Whether there is a stored database that `copy_to` can copy."""
        return False

    def copy_to(self, path: str, proceed: Callable[[], None]) -> None:
        """Writes a copy of the stored database, as of one moment after the call, to a new file.

        Units of work go on meanwhile. May be called on any thread, and may take long. proceed: called often; what it
        raises ends the copy, whose file the caller removes then. EngineUnavailable if the copy fails. RuntimeError
        unless `can_copy`.
        """
        raise RuntimeError(f"the storage engine {self.name} has no stored database to copy")

    @abstractmethod
    def statistics(self) -> dict[str, int]:
        """Counters and sizes for `serverStatus`, by names that end in their unit; at least `commits` and
        `database_bytes`."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Makes all commits durable and releases the data directory. May be called again."""
        raise NotImplementedError
