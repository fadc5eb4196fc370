"""Base classes for what wraps an engine, or a store of one: each method passes its call on to the wrapped object.

    class Counted(ForwardingRecords):
        def count(self) -> int:
            counts.append(self.ident)
            return self.inner.count()

A subclass overrides the methods in which it differs. The call for many records or entries and that for one are passed
on each by itself, so both have to be overridden. What answers most calls itself derives from the classes of
`interface`, where the calls for one use those for many.

Sorted data fetch from the record store of the same engine: what wraps both overrides `ForwardingEntries.inner_records`,
by which `scan_fetch` and `fetch_exact` get at the wrapped store.
"""

from collections.abc import Callable, Sequence
from typing import Final

from mypy_extensions import mypyc_attr

from mongottl.document.interrupt import UndividedGuard
from mongottl.storage.interface import Isolation, SavedState, StorageEngine, WriteUnitOfWork
from mongottl.storage.log import StoreLog
from mongottl.storage.nodes import StoreNodes
from mongottl.storage.stores import (
    NO_BYTE_LIMIT,
    DueEntry,
    DueRecords,
    ExpiryIndex,
    FetchedEntry,
    KeyEntry,
    KeyRange,
    NewRecord,
    Record,
    RecordStore,
    SortedDataInterface,
)
from mongottl.storage.waiting import Waiter


@mypyc_attr(allow_interpreted_subclasses=True)
class ForwardingRecords(RecordStore):
    """A record store that is another one. inner: the wrapped store."""

    def __init__(self, inner: RecordStore) -> None:
        self.ident = inner.ident
        self.is_log = inner.is_log
        self.on_pages = inner.on_pages
        self.takes_due = inner.takes_due
        self.is_partitioned = inner.is_partitioned
        self.inner: Final = inner

    def partition_by(self, key_of: Callable[[bytes], bytes | None]) -> None:
        self.inner.partition_by(key_of)

    def of_partition(self, key: bytes) -> RecordStore:
        """All of them, unless a subclass wraps what the inner store has for the partition."""
        return self

    def insert_records(self, records: list[NewRecord]) -> list[int]:
        return self.inner.insert_records(records)

    def insert_record(self, document: bytes, ts: int, ttl: int) -> int:
        return self.inner.insert_record(document, ts, ttl)

    def update_records(self, old: list[Record], new: list[Record]) -> None:
        self.inner.update_records(old, new)

    def update_record(self, old: Record, new: Record) -> None:
        self.inner.update_record(old, new)

    def hold_records(self, records: list[Record]) -> None:
        self.inner.hold_records(records)

    def delete_records(self, records: list[Record]) -> None:
        self.inner.delete_records(records)

    def delete_record(self, record: Record) -> None:
        self.inner.delete_record(record)

    def find_record(self, record_id: int) -> Record | None:
        return self.inner.find_record(record_id)

    def find_records(self, record_ids: list[int], max_bytes: int = NO_BYTE_LIMIT) -> tuple[list[Record], int]:
        return self.inner.find_records(record_ids, max_bytes)

    def scan(
        self, after: int, limit: int, forward: bool = True, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[Record], bool]:
        return self.inner.scan(after, limit, forward, max_bytes)

    def count(self) -> int:
        return self.inner.count()

    def size_bytes(self) -> int:
        return self.inner.size_bytes()

    def due_entries(self, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int) -> list[DueEntry]:
        return self.inner.due_entries(index, after, until_s, limit)

    def due(self, index: ExpiryIndex, until_s: int, limit: int, max_bytes: int = NO_BYTE_LIMIT) -> list[Record]:
        return self.inner.due(index, until_s, limit, max_bytes)

    def take_due(
        self, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int, max_bytes: int = NO_BYTE_LIMIT
    ) -> list[Record]:
        return self.inner.take_due(index, after, until_s, limit, max_bytes)

    def count_due(self, index: ExpiryIndex, until_s: int) -> int:
        return self.inner.count_due(index, until_s)

    def count_without_due(self, until_s: dict[ExpiryIndex, int]) -> int:
        return self.inner.count_without_due(until_s)

    def count_due_after(
        self, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int
    ) -> tuple[int, DueEntry | None]:
        return self.inner.count_due_after(index, after, until_s, limit)

    def due_seconds(self, index: ExpiryIndex, after_s: int, limit: int) -> list[int]:
        return self.inner.due_seconds(index, after_s, limit)


@mypyc_attr(allow_interpreted_subclasses=True)
class ForwardingEntries(SortedDataInterface):
    """A sorted data that is another one. inner: the wrapped one."""

    def __init__(self, inner: SortedDataInterface) -> None:
        self.ident = inner.ident
        self.unique = inner.unique
        self.inner: Final = inner

    def inner_records(self, records: RecordStore) -> RecordStore:
        """The store from which the wrapped sorted data can fetch, for the one that the caller has: the same, if record
        stores are not wrapped."""
        return records

    def of_partition(self, key: bytes) -> SortedDataInterface:
        """All of them, unless a subclass wraps what the inner one has for the partition."""
        return self

    def insert(self, entries: list[KeyEntry]) -> None:
        self.inner.insert(entries)

    def insert_one(self, key: bytes, record_id: int) -> None:
        self.inner.insert_one(key, record_id)

    def remove(self, entries: list[KeyEntry]) -> None:
        self.inner.remove(entries)

    def remove_one(self, key: bytes, record_id: int) -> None:
        self.inner.remove_one(key, record_id)

    def scan(
        self, key_range: KeyRange, after: KeyEntry | None, limit: int, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[KeyEntry], bool]:
        return self.inner.scan(key_range, after, limit, max_bytes)

    def scan_fetch(
        self,
        records: RecordStore,
        key_range: KeyRange,
        after: KeyEntry | None,
        limit: int,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[FetchedEntry], bool]:
        return self.inner.scan_fetch(self.inner_records(records), key_range, after, limit, max_bytes)

    @property
    def ranges_at_once(self) -> int:
        return self.inner.ranges_at_once

    def scan_fetch_ranges(
        self,
        records: RecordStore,
        key_ranges: list[KeyRange],
        after: KeyEntry | None,
        limit: int,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[FetchedEntry], int, bool]:
        return self.inner.scan_fetch_ranges(self.inner_records(records), key_ranges, after, limit, max_bytes)

    def first_with_entries(self, key_ranges: list[KeyRange]) -> int:
        return self.inner.first_with_entries(key_ranges)

    def fetch_exact(self, records: RecordStore, key: bytes) -> Record | None:
        return self.inner.fetch_exact(self.inner_records(records), key)

    def find_exact(self, keys: list[bytes]) -> list[KeyEntry]:
        return self.inner.find_exact(keys)

    def count_range(self, key_range: KeyRange) -> int:
        return self.inner.count_range(key_range)

    def entry_at(self, key_range: KeyRange, after: KeyEntry | None, offset: int) -> KeyEntry | None:
        return self.inner.entry_at(key_range, after, offset)


@mypyc_attr(allow_interpreted_subclasses=True)
class ForwardingEngine(StorageEngine):
    """An engine that is another one, whose stores it gives out as they are. inner: the wrapped engine."""

    def __init__(self, inner: StorageEngine) -> None:
        self.name = inner.name
        self.inner: Final = inner

    @property
    def suspends(self) -> bool:
        return self.inner.suspends

    def wait_by(self, waiter: Waiter, present: Callable[[], object]) -> None:
        self.inner.wait_by(waiter, present)

    @property
    def persistent(self) -> bool:
        return self.inner.persistent

    @property
    def folder(self) -> str | None:
        return self.inner.folder

    def unit_of_work(self) -> WriteUnitOfWork:
        return self.inner.unit_of_work()

    def concurrent_unit_of_work(self) -> WriteUnitOfWork:
        return self.unit_of_work()  # what wraps an engine may wrap its units

    def exclusive_unit_of_work(self, store: RecordStore) -> WriteUnitOfWork:
        return self.unit_of_work()

    @property
    def log(self) -> StoreLog | None:
        return self.inner.log

    @property
    def nodes(self) -> StoreNodes | None:
        return self.inner.nodes

    @property
    def shared_nodes(self) -> StoreNodes | None:
        return self.inner.shared_nodes

    @property
    def may_lose_commits(self) -> bool:
        return self.inner.may_lose_commits

    def ping(self) -> None:
        self.inner.ping()

    @property
    def isolation(self) -> Isolation:
        return self.inner.isolation

    def undivided_guard(self) -> UndividedGuard | None:
        return self.inner.undivided_guard()

    def set_commit_listener(self, listener: Callable[[], None]) -> None:
        self.inner.set_commit_listener(listener)

    def set_pause(self, pause: Callable[[], None]) -> None:
        self.inner.set_pause(pause)

    def idents(self) -> list[str]:
        return self.inner.idents()

    def create_record_store(self, ident: str, is_log: bool = False) -> RecordStore:
        return self.inner.create_record_store(ident, is_log)

    def create_partitioned_store(self, ident: str) -> RecordStore:
        """One that is not partitioned, which a subclass may wrap."""
        return self.create_record_store(ident)

    def record_store(self, ident: str) -> RecordStore:
        return self.inner.record_store(ident)

    def create_sorted_data(self, ident: str, unique: bool, beside: str = "") -> SortedDataInterface:
        return self.inner.create_sorted_data(ident, unique, beside)

    def sorted_data(self, ident: str, unique: bool) -> SortedDataInterface:
        return self.inner.sorted_data(ident, unique)

    def count_due(self, wanted: Sequence[DueRecords]) -> list[int]:
        return self.inner.count_due(wanted)

    def have_due(self, wanted: Sequence[DueRecords]) -> list[bool]:
        return self.inner.have_due(wanted)

    def have_keys(self, wanted: Sequence[tuple[str, bool, KeyRange]]) -> list[bool]:
        return self.inner.have_keys(wanted)

    def drop_ident(self, ident: str) -> None:
        self.inner.drop_ident(ident)

    def drop_some(self, limit: int) -> bool:
        return self.inner.drop_some(limit)

    def set_cache_bytes(self, most_bytes: int) -> None:
        self.inner.set_cache_bytes(most_bytes)

    def forget_cached(self, ident: str, after: int, count: int) -> None:
        self.inner.forget_cached(ident, after, count)

    @property
    def stored_bytes(self) -> int:
        return self.inner.stored_bytes

    @property
    def unused_bytes(self) -> int:
        return self.inner.unused_bytes

    @property
    def must_rewrite(self) -> bool:
        return self.inner.must_rewrite

    def reclaim_some(self, limit: int, keep_bytes: int = 0) -> int:
        return self.inner.reclaim_some(limit, keep_bytes)

    def rewrite(self, proceed: Callable[[], None]) -> int:
        return self.inner.rewrite(proceed)

    def clear(self) -> None:
        self.inner.clear()

    @property
    def saves_states(self) -> bool:
        return self.inner.saves_states

    def save_state(self) -> SavedState:
        return self.inner.save_state()

    def restore_state(self, state: SavedState) -> set[str]:
        return self.inner.restore_state(state)

    def release_state(self, state: SavedState) -> None:
        self.inner.release_state(state)

    def catalog_entries(self) -> list[tuple[str, bytes]]:
        return self.inner.catalog_entries()

    def catalog_entry(self, key: str) -> bytes | None:
        return self.inner.catalog_entry(key)

    def put_catalog_entry(self, key: str, value: bytes) -> None:
        self.inner.put_catalog_entry(key, value)

    def name_entry(self, key: str, name: str) -> None:
        self.inner.name_entry(key, name)

    def delete_catalog_entry(self, key: str) -> None:
        self.inner.delete_catalog_entry(key)

    @property
    def committed_number(self) -> int:
        return self.inner.committed_number

    @property
    def durable_number(self) -> int:
        return self.inner.durable_number

    @property
    def failed(self) -> bool:
        return self.inner.failed

    @property
    def disk_full(self) -> bool:
        return self.inner.disk_full

    def require_room(self) -> None:
        self.inner.require_room()

    def make_room(self) -> bool:
        return self.inner.make_room()

    def flush(self) -> None:
        self.inner.flush()

    @property
    def maintenance_due(self) -> bool:
        return self.inner.maintenance_due

    @property
    def writers_should_wait(self) -> bool:
        return self.inner.writers_should_wait

    def maintain(self) -> None:
        self.inner.maintain()

    @property
    def can_copy(self) -> bool:
        return self.inner.can_copy

    def copy_to(self, path: str, proceed: Callable[[], None]) -> None:
        self.inner.copy_to(path, proceed)

    def statistics(self) -> dict[str, int]:
        return self.inner.statistics()

    def close(self) -> None:
        self.inner.close()
