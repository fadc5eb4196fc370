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
from mongottl.exec.operation.stack import Stacks
from mongottl.storage.interface import (
    NO_BYTE_LIMIT,
    DueEntry,
    FetchedEntry,
    IndexEntry,
    NewRecord,
    Record,
    RecordStore,
    SavedState,
    SortedDataInterface,
    StorageEngine,
    WriteUnitOfWork,
)

T = TypeVar("T")


class Suspension:
    """Where calls are left. rate: how many of them, before they are answered and after.

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
            self.outside[method, _caller()] += 1
            return False
        if reads and stack.operation is not None and not stack.operation.may_leave_evaluations():
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


class SuspendingEngine(StorageEngine):
    """Forwards all calls to `inner`, which may be a `ContractEngine`: it checks each call when it is answered."""

    def __init__(self, inner: StorageEngine, generator: random.Random, rate: float = 0.3) -> None:
        self.name = inner.name
        self.inner = inner
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

    def set_commit_listener(self, listener: Callable[[], None]) -> None:
        self.inner.set_commit_listener(listener)

    def set_cache_bytes(self, most_bytes: int) -> None:
        self.inner.set_cache_bytes(most_bytes)

    def forget_cached(self, ident: str) -> None:
        self._call("forget_cached", lambda: self.inner.forget_cached(ident))

    @property
    def stored_bytes(self) -> int:
        return self.inner.stored_bytes

    @property
    def unused_bytes(self) -> int:
        return self.inner.unused_bytes

    @property
    def must_rewrite(self) -> bool:
        return self.inner.must_rewrite

    @property
    def saves_states(self) -> bool:
        return self.inner.saves_states

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

    @property
    def maintenance_due(self) -> bool:
        return self.inner.maintenance_due

    @property
    def writers_should_wait(self) -> bool:
        return self.inner.writers_should_wait

    @property
    def can_copy(self) -> bool:
        return self.inner.can_copy

    # Within units of work

    def create_record_store(self, ident: str, is_log: bool = False) -> RecordStore:
        return self._wrapped_records(self.inner.create_record_store(ident, is_log))

    def create_sorted_data(self, ident: str, unique: bool) -> SortedDataInterface:
        return self._wrapped_data(self.inner.create_sorted_data(ident, unique))

    def drop_ident(self, ident: str) -> None:
        self.inner.drop_ident(ident)

    def clear(self) -> None:
        self.inner.clear()

    def put_catalog_entry(self, key: str, value: bytes) -> None:
        self.inner.put_catalog_entry(key, value)

    def delete_catalog_entry(self, key: str) -> None:
        self.inner.delete_catalog_entry(key)

    # On other threads, and at the end

    def rewrite(self, proceed: Callable[[], None]) -> int:
        return self.inner.rewrite(proceed)

    def flush(self) -> None:
        self.inner.flush()

    def maintain(self) -> None:
        self.inner.maintain()

    def copy_to(self, path: str, proceed: Callable[[], None]) -> None:
        self.inner.copy_to(path, proceed)

    def close(self) -> None:
        self.inner.close()


class SuspendingRecordStore(RecordStore):
    """The records of a store that is dropped while a call waits are gone when it is answered."""

    def __init__(self, engine: SuspendingEngine, inner: RecordStore) -> None:
        self.ident = inner.ident
        self.is_log = inner.is_log
        self.on_pages = inner.on_pages
        self.engine = engine
        self.inner = inner

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

    def insert_records(self, records: list[NewRecord]) -> list[int]:
        return self.inner.insert_records(records)

    def insert_record(self, document: bytes, ts: int, ttl: int) -> int:
        return self.inner.insert_record(document, ts, ttl)

    def update_records(self, old: list[Record], new: list[Record]) -> None:
        self.inner.update_records(old, new)

    def update_record(self, old: Record, new: Record) -> None:
        self.inner.update_record(old, new)

    def delete_records(self, records: list[Record]) -> None:
        self.inner.delete_records(records)

    def delete_record(self, record: Record) -> None:
        self.inner.delete_record(record)

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

    def due_by_default(self, max_ts: int, limit: int, max_bytes: int = NO_BYTE_LIMIT) -> list[Record]:
        return self.read("due_by_default", [], lambda: self.inner.due_by_default(max_ts, limit, max_bytes))

    def due_by_own(self, now_s: int, limit: int, max_bytes: int = NO_BYTE_LIMIT) -> list[Record]:
        return self.read("due_by_own", [], lambda: self.inner.due_by_own(now_s, limit, max_bytes))

    def count_due_by_default(self, max_ts: int) -> int:
        return self.read("count_due_by_default", 0, lambda: self.inner.count_due_by_default(max_ts))

    def count_due_by_own(self, now_s: int) -> int:
        return self.read("count_due_by_own", 0, lambda: self.inner.count_due_by_own(now_s))

    def default_seconds(self, after_ts: int, limit: int) -> list[int]:
        return self.read("default_seconds", [], lambda: self.inner.default_seconds(after_ts, limit))

    def own_seconds(self, after_due: int, limit: int) -> list[int]:
        return self.read("own_seconds", [], lambda: self.inner.own_seconds(after_due, limit))

    def default_entries(self, after: DueEntry, max_ts: int, limit: int) -> list[DueEntry]:
        return self.read("default_entries", [], lambda: self.inner.default_entries(after, max_ts, limit))

    def own_entries(self, after: DueEntry, max_due: int, limit: int) -> list[DueEntry]:
        return self.read("own_entries", [], lambda: self.inner.own_entries(after, max_due, limit))

    def count_default_behind(self, after: DueEntry, max_ts: int, limit: int) -> tuple[int, DueEntry | None]:
        empty: tuple[int, DueEntry | None] = (0, None)
        return self.read("count_default_behind", empty, lambda: self.inner.count_default_behind(after, max_ts, limit))

    def count_own_behind(self, after: DueEntry, max_due: int, limit: int) -> tuple[int, DueEntry | None]:
        empty: tuple[int, DueEntry | None] = (0, None)
        return self.read("count_own_behind", empty, lambda: self.inner.count_own_behind(after, max_due, limit))


class SuspendingSortedData(SortedDataInterface):
    """The entries of an index that is dropped while a call waits are gone when it is answered, and so are those whose
    records are."""

    def __init__(self, engine: SuspendingEngine, inner: SortedDataInterface) -> None:
        self.ident = inner.ident
        self.unique = inner.unique
        self.engine = engine
        self.inner = inner

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

    def insert(self, entries: list[IndexEntry]) -> None:
        self.inner.insert(entries)

    def insert_one(self, key: bytes, record_id: int) -> None:
        self.inner.insert_one(key, record_id)

    def remove(self, entries: list[IndexEntry]) -> None:
        self.inner.remove(entries)

    def remove_one(self, key: bytes, record_id: int) -> None:
        self.inner.remove_one(key, record_id)

    def scan(
        self,
        low: bytes,
        high: bytes,
        after: IndexEntry | None,
        limit: int,
        forward: bool = True,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[IndexEntry], bool]:
        empty: tuple[list[IndexEntry], bool] = ([], False)
        return self._read("scan of keys", empty, lambda: self.inner.scan(low, high, after, limit, forward, max_bytes))

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
        stored = _inner(records)
        empty: tuple[list[FetchedEntry], bool] = ([], False)
        return self._read(
            "scan_fetch",
            empty,
            lambda: self.inner.scan_fetch(stored, low, high, after, limit, forward, max_bytes),
            records,
        )

    def fetch_exact(self, records: RecordStore, key: bytes) -> Record | None:
        stored = _inner(records)
        return self._read("fetch_exact", None, lambda: self.inner.fetch_exact(stored, key), records)

    def find_exact(self, keys: list[bytes]) -> list[IndexEntry]:
        return self._read("find_exact", [], lambda: self.inner.find_exact(keys))

    def count_range(self, low: bytes, high: bytes) -> int:
        return self._read("count_range", 0, lambda: self.inner.count_range(low, high))

    def entry_behind(self, low: bytes, high: bytes, after: IndexEntry | None, entries: int) -> IndexEntry | None:
        return self._read("entry_behind", None, lambda: self.inner.entry_behind(low, high, after, entries))


def _inner(records: RecordStore) -> RecordStore:
    """The engine's own store."""
    return records.inner if isinstance(records, SuspendingRecordStore) else records
