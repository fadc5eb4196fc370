"""An engine that lets others run at its calls, as one behind a network does while it waits for an answer.

    operation ── call ──┬── left? others run ── the engine's answer ── left? others run ── back to the operation
                        └── within a unit of work, or another undivided block: never left

Whether a call is left, before it is answered and after, a generator with a seed decides; who goes on then, the one who
runs the operations. So what an operation has read may be old when it gets it, and what it has found out before a call
may not hold afterwards. Units of work begin, write and commit without being left: `unit_of_work` is where an engine
may wait before one begins. What an engine knows without asking anybody (handles of stores, numbers of commits, whether
it has failed) is answered at once. So is what an operation reads of a snapshot, or in a transaction: `storage.snapshot`
makes its views of what the embedded engines answer at once, and an engine that waits has snapshots of its own.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from mongottl.document.interrupt import in_undivided
from mongottl.exec.running.stack import Stacks
from mongottl.storage.forwarding import ForwardingEngine, ForwardingEntries, ForwardingRecords
from mongottl.storage.interface import SavedState, StorageEngine, WriteUnitOfWork
from mongottl.storage.stores import (
    NO_BYTE_LIMIT,
    DueEntry,
    ExpiryIndex,
    FetchedEntry,
    KeyEntry,
    KeyRange,
    Record,
    RecordStore,
    SortedDataInterface,
)

T = TypeVar("T")


class Suspension:
    """Where calls are left. rate: how many of them, before they are answered and after.

    An operation that is attempted without a stack begins again on one instead.

    stacks: those of the server that uses the engine; None before it has any. left: how often, by the call's name.
    outside: calls that cannot be left, since no operation runs on a stack: by their name and that of their caller.
    """

    def __init__(self, generator: random.Random, rate: float) -> None:
        self.stacks: Stacks | None = None
        self.rate = rate
        self.left: Counter[str] = Counter()
        self.outside: Counter[tuple[str, str]] = Counter()
        self._random = generator

    def leave(self, method: str, reads: bool = False) -> bool:
        """Leaves the operation that makes a call, or not; whether others have run. reads: whether the call reads a
        store, which views of snapshots do, too."""
        if in_undivided():
            return False
        stack = None if self.stacks is None else self.stacks.present
        if stack is None:
            if self.stacks is not None and self.stacks.attempts and self._random.random() < self.rate:
                self.stacks.require()
            self.outside[method, _caller()] += 1
            return False
        if reads and stack.operation is not None and stack.operation.reads_past():
            return False
        if self._random.random() >= self.rate:
            return False
        self.left[method] += 1
        stack.leave_midway(None)
        return True


def _caller() -> str:
    """Who has called the engine, without the modules that only pass calls on."""
    frame = sys._getframe(2)
    while frame.f_back is not None and (
        frame.f_code.co_filename == __file__ or "/storage/" in frame.f_code.co_filename
    ):
        frame = frame.f_back
    return f"{frame.f_globals['__name__']}.{frame.f_code.co_name}"


class SuspendingEngine(ForwardingEngine):
    """Forwards all calls to `inner`, which may be a `ContractEngine`: it checks each call when it is answered."""

    def __init__(self, inner: StorageEngine, generator: random.Random, rate: float = 0.3) -> None:
        super().__init__(inner)
        self.suspension = Suspension(generator, rate)
        self._records: dict[int, SuspendingRecordStore] = {}
        self._sorted: dict[int, SuspendingSortedData] = {}

    def _call(self, method: str, call: Callable[[], T]) -> T:
        self.suspension.leave(method)
        result = call()
        self.suspension.leave(method)
        return result

    # Calls that may wait

    def unit_of_work(self) -> WriteUnitOfWork:
        self.suspension.leave("unit_of_work")
        return self.inner.unit_of_work()

    def idents(self) -> list[str]:
        return self._call("idents", self.inner.idents)

    def drop_some(self, limit: int) -> bool:
        return self._call("drop_some", lambda: self.inner.drop_some(limit))

    def reclaim_some(self, limit: int, keep_bytes: int = 0) -> int:
        return self._call("reclaim_some", lambda: self.inner.reclaim_some(limit, keep_bytes))

    def save_state(self) -> SavedState:
        return self._call("save_state", self.inner.save_state)

    def restore_state(self, state: SavedState) -> set[str]:
        return self._call("restore_state", lambda: self.inner.restore_state(state))

    def release_state(self, state: SavedState) -> None:
        self._call("release_state", lambda: self.inner.release_state(state))

    def catalog_entries(self) -> list[tuple[str, bytes]]:
        return self._call("catalog_entries", self.inner.catalog_entries)

    def catalog_entry(self, key: str) -> bytes | None:
        return self._call("catalog_entry", lambda: self.inner.catalog_entry(key))

    def statistics(self) -> dict[str, int]:
        return self._call("statistics", self.inner.statistics)

    # Handles, and what the engine knows

    def record_store(self, ident: str) -> RecordStore:
        return self._wrapped_records(self.inner.record_store(ident))

    def sorted_data(self, ident: str, unique: bool) -> SortedDataInterface:
        return self._wrapped_data(self.inner.sorted_data(ident, unique))

    def _wrapped_records(self, inner: RecordStore) -> RecordStore:
        store = self._records.get(id(inner))
        if store is None:
            store = SuspendingRecordStore(self, inner)
            self._records[id(inner)] = store
        return store

    def _wrapped_data(self, inner: SortedDataInterface) -> SortedDataInterface:
        data = self._sorted.get(id(inner))
        if data is None:
            data = SuspendingSortedData(self, inner)
            self._sorted[id(inner)] = data
        return data

    def forget_cached(self, ident: str, after: int, count: int) -> None:
        self._call("forget_cached", lambda: self.inner.forget_cached(ident, after, count))

    def create_record_store(self, ident: str, is_log: bool = False) -> RecordStore:
        return self._wrapped_records(self.inner.create_record_store(ident, is_log))

    def create_sorted_data(self, ident: str, unique: bool, beside: str = "") -> SortedDataInterface:
        return self._wrapped_data(self.inner.create_sorted_data(ident, unique, beside))


class SuspendingRecordStore(ForwardingRecords):
    """The records of a store that is dropped while a call waits are gone when it is answered."""

    def __init__(self, engine: SuspendingEngine, inner: RecordStore) -> None:
        super().__init__(inner)
        self.engine = engine

    @property
    def is_gone(self) -> bool:
        engine = self.engine.inner
        return self.ident not in engine.idents() or engine.record_store(self.ident) is not self.inner

    def read(self, method: str, empty: T, call: Callable[[], T]) -> T:
        """What a call answers. empty: the answer of an empty store."""
        suspension = self.engine.suspension
        if suspension.leave(method, reads=True) and self.is_gone:
            return empty
        result = call()
        suspension.leave(method, reads=True)
        return result

    def find_record(self, record_id: int) -> Record | None:
        return self.read("find_record", None, lambda: self.inner.find_record(record_id))

    def find_records(self, record_ids: list[int], max_bytes: int = NO_BYTE_LIMIT) -> tuple[list[Record], int]:
        empty: tuple[list[Record], int] = ([], len(record_ids))
        return self.read("find_records", empty, lambda: self.inner.find_records(record_ids, max_bytes))

    def scan(
        self, after: int, limit: int, forward: bool = True, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[Record], bool]:
        empty: tuple[list[Record], bool] = ([], False)
        return self.read("scan", empty, lambda: self.inner.scan(after, limit, forward, max_bytes))

    def count(self) -> int:
        return self.read("count", 0, self.inner.count)

    def size_bytes(self) -> int:
        return self.read("size_bytes", 0, self.inner.size_bytes)

    def due_entries(self, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int) -> list[DueEntry]:
        return self.read("due_entries", [], lambda: self.inner.due_entries(index, after, until_s, limit))

    def due(self, index: ExpiryIndex, until_s: int, limit: int, max_bytes: int = NO_BYTE_LIMIT) -> list[Record]:
        return self.read("due", [], lambda: self.inner.due(index, until_s, limit, max_bytes))

    def count_due(self, index: ExpiryIndex, until_s: int) -> int:
        return self.read("count_due", 0, lambda: self.inner.count_due(index, until_s))

    def count_without_due(self, until_s: dict[ExpiryIndex, int]) -> int:
        return self.read("count_without_due", 0, lambda: self.inner.count_without_due(until_s))

    def count_due_after(
        self, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int
    ) -> tuple[int, DueEntry | None]:
        empty: tuple[int, DueEntry | None] = (0, None)
        return self.read("count_due_after", empty, lambda: self.inner.count_due_after(index, after, until_s, limit))

    def due_seconds(self, index: ExpiryIndex, after_s: int, limit: int) -> list[int]:
        return self.read("due_seconds", [], lambda: self.inner.due_seconds(index, after_s, limit))


class SuspendingSortedData(ForwardingEntries):
    """The entries of an index that is dropped while a call waits are gone when it is answered, and so are those whose
    records are."""

    def __init__(self, engine: SuspendingEngine, inner: SortedDataInterface) -> None:
        super().__init__(inner)
        self.engine = engine

    @property
    def _is_gone(self) -> bool:
        engine = self.engine.inner
        return self.ident not in engine.idents() or engine.sorted_data(self.ident, self.unique) is not self.inner

    def _read(self, method: str, empty: T, call: Callable[[], T], records: RecordStore | None = None) -> T:
        """What a call answers. empty: the answer of an empty index. records: the store from which it fetches."""
        suspension = self.engine.suspension
        if suspension.leave(method, reads=True):
            fetches_nothing = isinstance(records, SuspendingRecordStore) and records.is_gone
            if fetches_nothing or self._is_gone:
                return empty
        result = call()
        suspension.leave(method, reads=True)
        return result

    def inner_records(self, records: RecordStore) -> RecordStore:
        return records.inner if isinstance(records, SuspendingRecordStore) else records

    def scan(
        self, key_range: KeyRange, after: KeyEntry | None, limit: int, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[KeyEntry], bool]:
        empty: tuple[list[KeyEntry], bool] = ([], False)
        return self._read("scan of keys", empty, lambda: self.inner.scan(key_range, after, limit, max_bytes))

    def scan_fetch(
        self,
        records: RecordStore,
        key_range: KeyRange,
        after: KeyEntry | None,
        limit: int,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[FetchedEntry], bool]:
        stored = self.inner_records(records)
        empty: tuple[list[FetchedEntry], bool] = ([], False)
        return self._read(
            "scan_fetch", empty, lambda: self.inner.scan_fetch(stored, key_range, after, limit, max_bytes), records
        )

    def scan_fetch_ranges(
        self,
        records: RecordStore,
        key_ranges: list[KeyRange],
        after: KeyEntry | None,
        limit: int,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[FetchedEntry], int, bool]:
        stored = self.inner_records(records)
        empty: tuple[list[FetchedEntry], int, bool] = ([], len(key_ranges), False)
        return self._read(
            "scan_fetch_ranges",
            empty,
            lambda: self.inner.scan_fetch_ranges(stored, key_ranges, after, limit, max_bytes),
            records,
        )

    def first_with_entries(self, key_ranges: list[KeyRange]) -> int:
        return self._read("first_with_entries", -1, lambda: self.inner.first_with_entries(key_ranges))

    def fetch_exact(self, records: RecordStore, key: bytes) -> Record | None:
        stored = self.inner_records(records)
        return self._read("fetch_exact", None, lambda: self.inner.fetch_exact(stored, key), records)

    def find_exact(self, keys: list[bytes]) -> list[KeyEntry]:
        return self._read("find_exact", [], lambda: self.inner.find_exact(keys))

    def count_range(self, key_range: KeyRange) -> int:
        return self._read("count_range", 0, lambda: self.inner.count_range(key_range))

    def entry_at(self, key_range: KeyRange, after: KeyEntry | None, offset: int) -> KeyEntry | None:
        return self._read("entry_at", None, lambda: self.inner.entry_at(key_range, after, offset))
