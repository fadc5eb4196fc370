"""An engine that implements what the storage contract makes abstract, and `drop_some`.

What it has of the other methods are those that the contract's classes make of the abstract ones, so the conformance
suite tests these on it. It keeps its data in an engine that it wraps, which frees space in steps.
"""

from collections.abc import Callable

from mongottl.storage.interface import Isolation, StorageEngine, WriteUnitOfWork
from mongottl.storage.stores import (
    NO_BYTE_LIMIT,
    DueEntry,
    ExpiryIndex,
    KeyEntry,
    KeyRange,
    NewRecord,
    Record,
    RecordStore,
    SortedDataInterface,
)


class LeastEngine(StorageEngine):
    def __init__(self, kept: StorageEngine) -> None:
        self.name = kept.name
        self._kept = kept
        self._records: dict[int, LeastRecords] = {}
        self._sorted: dict[int, LeastEntries] = {}

    def unit_of_work(self) -> WriteUnitOfWork:
        return self._kept.unit_of_work()

    @property
    def isolation(self) -> Isolation:
        return self._kept.isolation

    def set_commit_listener(self, listener: Callable[[], None]) -> None:
        self._kept.set_commit_listener(listener)

    def idents(self) -> list[str]:
        return self._kept.idents()

    def create_record_store(self, ident: str, is_log: bool = False) -> RecordStore:
        self._kept.create_record_store(ident, is_log)
        return self.record_store(ident)

    def record_store(self, ident: str) -> RecordStore:
        kept = self._kept.record_store(ident)
        return self._records.setdefault(id(kept), LeastRecords(kept))

    def create_sorted_data(self, ident: str, unique: bool, beside: str = "") -> SortedDataInterface:
        self._kept.create_sorted_data(ident, unique, beside)
        return self.sorted_data(ident, unique)

    def sorted_data(self, ident: str, unique: bool) -> SortedDataInterface:
        kept = self._kept.sorted_data(ident, unique)
        return self._sorted.setdefault(id(kept), LeastEntries(kept))

    def drop_ident(self, ident: str) -> None:
        self._kept.drop_ident(ident)

    def drop_some(self, limit: int) -> bool:
        return self._kept.drop_some(limit)

    def catalog_entries(self) -> list[tuple[str, bytes]]:
        return self._kept.catalog_entries()

    def catalog_entry(self, key: str) -> bytes | None:
        return self._kept.catalog_entry(key)

    def put_catalog_entry(self, key: str, value: bytes) -> None:
        self._kept.put_catalog_entry(key, value)

    def delete_catalog_entry(self, key: str) -> None:
        self._kept.delete_catalog_entry(key)

    @property
    def committed_number(self) -> int:
        return self._kept.committed_number

    def statistics(self) -> dict[str, int]:
        return self._kept.statistics()

    def close(self) -> None:
        self._kept.close()


class LeastRecords(RecordStore):
    def __init__(self, kept: RecordStore) -> None:
        self.ident = kept.ident
        self._kept = kept

    def insert_records(self, records: list[NewRecord]) -> list[int]:
        return self._kept.insert_records(records)

    def update_records(self, old: list[Record], new: list[Record]) -> None:
        self._kept.update_records(old, new)

    def delete_records(self, records: list[Record]) -> None:
        self._kept.delete_records(records)

    def find_records(self, record_ids: list[int], max_bytes: int = NO_BYTE_LIMIT) -> tuple[list[Record], int]:
        return self._kept.find_records(record_ids, max_bytes)

    def scan(
        self, after: int, limit: int, forward: bool = True, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[Record], bool]:
        return self._kept.scan(after, limit, forward, max_bytes)

    def count(self) -> int:
        return self._kept.count()

    def size_bytes(self) -> int:
        return self._kept.size_bytes()

    def due_entries(self, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int) -> list[DueEntry]:
        return self._kept.due_entries(index, after, until_s, limit)


class LeastEntries(SortedDataInterface):
    def __init__(self, kept: SortedDataInterface) -> None:
        self.ident = kept.ident
        self.unique = kept.unique
        self._kept = kept

    def insert(self, entries: list[KeyEntry]) -> None:
        self._kept.insert(entries)

    def remove(self, entries: list[KeyEntry]) -> None:
        self._kept.remove(entries)

    def scan(
        self, key_range: KeyRange, after: KeyEntry | None, limit: int, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[KeyEntry], bool]:
        return self._kept.scan(key_range, after, limit, max_bytes)

    def find_exact(self, keys: list[bytes]) -> list[KeyEntry]:
        return self._kept.find_exact(keys)
