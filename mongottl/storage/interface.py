"""The storage contract: record stores, sorted data and units of work, over bytes.

What it is for: the layers above keep documents and index entries here without knowing which engine holds them. What it
must not know: BSON, KeyString's inside, collections, time, trio. A document is bytes, a key is bytes compared as
unsigned bytes, an instant is a whole number of seconds that the caller computed.

    StorageEngine ──┬── RecordStore          record id → (document, _ts, ttl), and two expiry indexes over _ts and ttl
                    ├── SortedDataInterface  (key, record id) in order; unique or not
                    ├── catalog entries      name → bytes
                    └── WriteUnitOfWork      all writes of one operation, or none

Every call takes and gives whole batches, so that an engine behind a network can answer it in one round trip, and none
keeps a statement open: a scan is continued by giving it the last position it returned, whatever was written meanwhile.

What returns records takes two limits: `limit`, how many, and `max_bytes`, how long their documents may be together. The
record that reaches `max_bytes` is the last one, so at least one record is returned if there is any, and a batch exceeds
`max_bytes` by less than one document. Scans return a pair: the batch, and whether there may be more behind it. False
says that the end was reached; True comes with at least one record. The length of a batch says nothing about the end.

All calls but `flush` and `maintain` belong to one thread. All writes happen inside a unit of work, reads also outside;
a read inside the unit sees the unit's own writes. `contract.ContractEngine` asserts what this page promises.

    StorageError
    ├── DuplicateKey         a unique sorted data holds the key for another record
    ├── WriteConflict        what was read is no longer so: roll back and do the operation again
    ├── EngineUnavailable    disk full, I/O error, damage found while running, closed
    └── DataDirectoryError   at opening: in use, newer format, damaged, not ours; the directory is left as it was

Any call may raise EngineUnavailable; methods name the others they may raise. After EngineUnavailable inside a unit of
work the unit can only be left. Engines raise these classes themselves; nothing above wraps them again.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Final

from mypy_extensions import mypyc_attr

from mongottl.errors import MongottlError

# (record id, document, `_ts` in seconds, meaningful `ttl` in seconds: 0 none, so the default applies; -1 never).
Record = tuple[int, bytes, int, int]
# A record that has no id yet: (document, `_ts`, `ttl`).
NewRecord = tuple[bytes, int, int]
# (key, record id).
IndexEntry = tuple[bytes, int]
# (key, record id, document, `_ts`, `ttl`).
FetchedEntry = tuple[bytes, int, bytes, int, int]

# Where a backward scan by record id starts: above every record id.
MAX_RECORD_ID: Final = (1 << 63) - 1
# `max_bytes` of reads that only their number of records limits.
NO_BYTE_LIMIT: Final = (1 << 62) - 1


class StorageError(MongottlError):
    """The root of what an engine raises on purpose."""


class DuplicateKey(StorageError):
    """A unique sorted data holds `key` for another record; nothing of the failed call remains.

    existing_record_id: the record that holds the key (it may stem from the same call).
    position: which entry of the call was refused; the entries before it would have been accepted.
    """

    def __init__(self, key: bytes, existing_record_id: int, position: int) -> None:
        super().__init__(f"key {key.hex()} is held by record {existing_record_id}")
        self.key = key
        self.existing_record_id = existing_record_id
        self.position = position


class WriteConflict(StorageError):
    """A record that the caller has read was changed or deleted since; the operation may be tried again.

    Whoever retries reads the records again.
    """


class EngineUnavailable(StorageError):
    """The engine cannot carry out the call now: disk full, I/O error, damaged file, closed."""


class DataDirectoryError(StorageError):
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
    """

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
        """Calls `action` if the unit is rolled back, last given first: how caches above undo what they anticipated."""
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
    """Documents by record id, with the two facts that decide their expiry.

    Record ids start at 1, ascend in the order of insertion, never change, and are never given twice while the store
    lives, restarts included (but for those of a unit of work that was rolled back, which nobody has seen). Both expiry
    indexes are always kept: switching TTL on or off writes nothing here.
    """

    ident: str

    @abstractmethod
    def insert_records(self, records: list[NewRecord]) -> list[int]:
        """Stores the records; their new ids, ascending, in the same order."""
        raise NotImplementedError

    @abstractmethod
    def insert_record(self, document: bytes, ts: int, ttl: int) -> int:
        """`insert_records` for a single one."""
        raise NotImplementedError

    @abstractmethod
    def update_records(self, old: list[Record], new: list[Record]) -> None:
        """Replaces each record of `old` by the one of `new` at the same place, which has the same id.

        old: the records as the caller has read them, each once. Raises WriteConflict when one of them is gone or is
        stored with other bytes, another `_ts` or another `ttl`; then the unit of work must be rolled back. So index
        entries that the caller computed from `old` always belong to what was stored.
        """
        raise NotImplementedError

    @abstractmethod
    def update_record(self, old: Record, new: Record) -> None:
        """`update_records` for a single one. Raises WriteConflict."""
        raise NotImplementedError

    @abstractmethod
    def delete_records(self, records: list[Record]) -> None:
        """Deletes records, given as the caller has read them, each once.

        Raises WriteConflict when one of them is gone or is not stored as given, as `update_records` does.
        """
        raise NotImplementedError

    @abstractmethod
    def delete_record(self, record: Record) -> None:
        """`delete_records` for a single one. Raises WriteConflict."""
        raise NotImplementedError

    @abstractmethod
    def find_record(self, record_id: int) -> Record | None:
        """The record, or None if there is none of that id."""
        raise NotImplementedError

    @abstractmethod
    def find_records(self, record_ids: list[int], max_bytes: int = NO_BYTE_LIMIT) -> tuple[list[Record], int]:
        """The records of the first of these ids, in the order given, and to how many of the ids they are the answer.

        Ids without a record are left out. The second number is `len(record_ids)` unless `max_bytes` was reached before
        the last id.
        """
        raise NotImplementedError

    @abstractmethod
    def scan(
        self, after: int, limit: int, forward: bool = True, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[Record], bool]:
        """The first records with an id above `after`, ascending; with `forward=False` below `after`, descending.

        after: the last id of the batch before; 0 begins, MAX_RECORD_ID begins a backward scan. The second value says
        whether there may be more records behind these.
        """
        raise NotImplementedError

    @abstractmethod
    def count(self) -> int:
        """How many records there are, exactly, at once."""
        raise NotImplementedError

    @abstractmethod
    def size_bytes(self) -> int:
        """The summed length of all documents, exactly, at once."""
        raise NotImplementedError

    @abstractmethod
    def due_by_default(self, max_ts: int, limit: int, max_bytes: int = NO_BYTE_LIMIT) -> list[Record]:
        """The first records with ttl = 0 and `_ts` <= max_ts, by `_ts`, then id; empty only if there are none."""
        raise NotImplementedError

    @abstractmethod
    def due_by_own(self, now_s: int, limit: int, max_bytes: int = NO_BYTE_LIMIT) -> list[Record]:
        """The first records with ttl > 0 and `_ts` + ttl <= now_s, by that sum, then id; empty only if there are
        none."""
        raise NotImplementedError

    @abstractmethod
    def count_due_by_default(self, max_ts: int) -> int:
        """How many records `due_by_default` would give without a limit; the time it takes grows with them."""
        raise NotImplementedError

    @abstractmethod
    def count_due_by_own(self, now_s: int) -> int:
        """How many records `due_by_own` would give without a limit; the time it takes grows with them."""
        raise NotImplementedError

    @abstractmethod
    def default_seconds(self, after_ts: int, limit: int) -> list[int]:
        """Up to `limit` of the distinct `_ts` above `after_ts` of records with ttl = 0, ascending.

        The time it takes grows with the seconds returned, not with the records that share them.
        """
        raise NotImplementedError

    @abstractmethod
    def own_seconds(self, after_due: int, limit: int) -> list[int]:
        """Up to `limit` of the distinct `_ts` + ttl above `after_due` of records with ttl > 0, ascending."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class SortedDataInterface(ABC):
    """Index entries (key, record id) in the order of key, then record id; record ids are 1 or more.

    unique: at most one entry for each key. Ranges are half open: low <= key < high.
    """

    ident: str
    unique: bool

    @abstractmethod
    def insert(self, entries: list[IndexEntry]) -> None:
        """Adds the entries; one that is there already, key and record id alike, is no error.

        Raises DuplicateKey when unique and a key is held by another record. Then nothing of this call remains, and the
        unit of work may go on.
        """
        raise NotImplementedError

    @abstractmethod
    def insert_one(self, key: bytes, record_id: int) -> None:
        """`insert` for a single entry. Raises DuplicateKey."""
        raise NotImplementedError

    @abstractmethod
    def remove(self, entries: list[IndexEntry]) -> None:
        """Removes the entries, key and record id alike; one that is not there is no error."""
        raise NotImplementedError

    @abstractmethod
    def remove_one(self, key: bytes, record_id: int) -> None:
        """`remove` for a single entry."""
        raise NotImplementedError

    @abstractmethod
    def scan(
        self, low: bytes, high: bytes, after: IndexEntry | None, limit: int, forward: bool = True
    ) -> list[IndexEntry]:
        """Up to `limit` entries with low <= key < high, ascending, or descending with `forward=False`.

        after: the last entry of the batch before, itself within the range, to go on behind it (below it when
        backward); None begins. Fewer than `limit` entries mean that the end was reached.
        """
        raise NotImplementedError

    @abstractmethod
    def scan_fetch(
        self,
        records: RecordStore,
        low: bytes,
        high: bytes,
        after: IndexEntry | None,
        limit: int,
        forward: bool = True,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[FetchedEntry], bool]:
        """The entries that `scan` gives with the record of each, from `records` of the same engine, in one round trip.

        Every entry in the range must have its record in `records`; one without, as only damage can leave it, is left
        out, and the scan goes on behind it. The second value says whether there may be more entries behind these.
        """
        raise NotImplementedError

    @abstractmethod
    def fetch_exact(self, records: RecordStore, key: bytes) -> Record | None:
        """The record that a unique sorted data holds under `key`, or None: the way to find a document by its `_id`."""
        raise NotImplementedError

    @abstractmethod
    def find_exact(self, keys: list[bytes]) -> list[IndexEntry]:
        """All entries of these keys, in the order of the keys given (each once), then by record id."""
        raise NotImplementedError

    @abstractmethod
    def count_range(self, low: bytes, high: bytes) -> int:
        """How many entries there are with low <= key < high; the time it takes grows with them."""
        raise NotImplementedError

    @abstractmethod
    def entry_behind(self, low: bytes, high: bytes, after: IndexEntry | None, entries: int) -> IndexEntry | None:
        """The entry behind the first so many with low <= key < high, or behind `after`; None if there are no more.

        So a range can be counted in parts that take bounded time each.
        """
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class StorageEngine(ABC):
    """Everything that is stored, under idents: names that the catalog makes up, one for each store or sorted data."""

    name: str

    @abstractmethod
    def unit_of_work(self) -> WriteUnitOfWork:
        """A new unit of work, which begins when its block is entered."""
        raise NotImplementedError

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
    def create_record_store(self, ident: str) -> RecordStore:
        """A new, empty record store. `ident` must not exist. Inside a unit of work."""
        raise NotImplementedError

    @abstractmethod
    def record_store(self, ident: str) -> RecordStore:
        """The record store of that ident, which must exist; the same object each time."""
        raise NotImplementedError

    @abstractmethod
    def create_sorted_data(self, ident: str, unique: bool) -> SortedDataInterface:
        """A new, empty sorted data. `ident` must not exist. Inside a unit of work."""
        raise NotImplementedError

    @abstractmethod
    def sorted_data(self, ident: str, unique: bool) -> SortedDataInterface:
        """The sorted data of that ident, which must exist and have been created with the same `unique`."""
        raise NotImplementedError

    @abstractmethod
    def drop_ident(self, ident: str) -> None:
        """Forgets the ident, which must exist, at once; its name is free again. Inside a unit of work.

        The space of a large one is given back by `drop_some`.
        """
        raise NotImplementedError

    @abstractmethod
    def drop_some(self, limit: int) -> bool:
        """Gives back the space of about `limit` rows of dropped idents; True while there is more to do.

        Outside units of work; call it again between other work until it answers False, also after opening.
        """
        raise NotImplementedError

    @abstractmethod
    def clear(self) -> None:
        """Drops every ident and every catalog entry. Inside a unit of work."""
        raise NotImplementedError

    @abstractmethod
    def catalog_entries(self) -> list[tuple[str, bytes]]:
        """All catalog entries, ordered by the UTF-8 bytes of their keys."""
        raise NotImplementedError

    @abstractmethod
    def put_catalog_entry(self, key: str, value: bytes) -> None:
        """Adds or replaces an entry. Inside a unit of work."""
        raise NotImplementedError

    @abstractmethod
    def delete_catalog_entry(self, key: str) -> None:
        """Deletes an entry, if it is there. Inside a unit of work."""
        raise NotImplementedError

    @property
    @abstractmethod
    def committed_number(self) -> int:
        """The number of the last commit: they are counted from 1 since the engine was opened."""
        raise NotImplementedError

    @property
    @abstractmethod
    def durable_number(self) -> int:
        """The commit up to which all are durable against power loss, as far as `flush` knows."""
        raise NotImplementedError

    @property
    def failed(self) -> bool:
        """Whether a flush has failed. From then on the engine accepts no commit and no flush, and reads alone go on."""
        return False

    @abstractmethod
    def flush(self) -> None:
        """Makes what was committed before the call durable, so that `durable_number` is at least what
        `committed_number` was then; from any thread, and it may wait long.

        Once it has failed it fails for good, and so does every write: the system may have dropped what it could not
        write, and reports that once. EngineUnavailable.
        """
        raise NotImplementedError

    @property
    @abstractmethod
    def maintenance_due(self) -> bool:
        """Whether `maintain` should be called soon."""
        raise NotImplementedError

    @property
    def writers_should_wait(self) -> bool:
        """Whether the engine's log grows for as long as units of work keep coming, and should not grow longer.

        A server then begins none until the next `maintain` has returned. It does not hold up those that begin all the
        same, but has to be repeated then.
        """
        return False

    @abstractmethod
    def maintain(self) -> None:
        """Does the engine's background work, if any is due; from any thread but outside units of work when it is the
        engine's own, and it may wait long. Nothing depends on it but the space that logs take."""
        raise NotImplementedError

    @abstractmethod
    def statistics(self) -> dict[str, int]:
        """Counters and sizes for `serverStatus`; names end in their unit."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Makes everything committed durable and gives the data directory free. May be called again."""
        raise NotImplementedError


# An engine's opener: data directory, or None to keep everything in memory -> the open engine.
EngineOpener = Callable[[str | None], StorageEngine]

_ENGINES: Final[dict[str, EngineOpener]] = {}


def storage_engine(name: str) -> Callable[[EngineOpener], EngineOpener]:
    """Registers an engine's opener under the name by which the settings choose it."""

    def register(opener: EngineOpener) -> EngineOpener:
        if name in _ENGINES:
            raise ValueError(f"storage engine {name} is registered already")
        _ENGINES[name] = opener
        return opener

    return register


def storage_engine_names() -> list[str]:
    """The names of all registered engines, sorted."""
    return sorted(_ENGINES)


def open_storage_engine(name: str, data_directory: str | None) -> StorageEngine:
    """Opens the engine of that name over a data directory, or in memory when that is None.

    Raises ValueError for an unknown name, DataDirectoryError when the directory cannot be used.
    """
    opener = _ENGINES.get(name)
    if opener is None:
        raise ValueError(f"unknown storage engine {name!r}; there are: {', '.join(storage_engine_names())}")
    return opener(data_directory)
