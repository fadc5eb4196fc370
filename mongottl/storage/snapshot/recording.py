"""The engine's stores for a plain write while snapshots are open: claims are respected, before-images are left."""

from typing import Final

from mongottl.storage.interface import (
    NO_BYTE_LIMIT,
    DueEntry,
    FetchedEntry,
    IndexEntry,
    NewRecord,
    Record,
    RecordStore,
    SortedDataInterface,
)
from mongottl.storage.snapshot.claims import Claims
from mongottl.storage.snapshot.history import CommitImages


class RecordingRecords(RecordStore):
    """A record store whose writes leave before-images. ClaimedByTransaction for a record that a transaction has.

    claims: None for the commit of a transaction, whose own claims those are.
    """

    def __init__(self, store: RecordStore, images: CommitImages, claims: Claims | None) -> None:
        self.ident = store.ident
        self._store: Final = store
        self._images: Final = images
        self._claims: Final = claims

    @property
    def store(self) -> RecordStore:
        """The engine's record store."""
        return self._store

    def insert_records(self, records: list[NewRecord]) -> list[int]:
        ids = self._store.insert_records(records)
        for record_id in ids:
            self._images.add_record(self.ident, record_id, None)
        return ids

    def insert_record(self, document: bytes, ts: int, ttl: int) -> int:
        record_id = self._store.insert_record(document, ts, ttl)
        self._images.add_record(self.ident, record_id, None)
        return record_id

    def update_records(self, old: list[Record], new: list[Record]) -> None:
        self._note(old)
        self._store.update_records(old, new)

    def update_record(self, old: Record, new: Record) -> None:
        self._note([old])
        self._store.update_record(old, new)

    def delete_records(self, records: list[Record]) -> None:
        self._note(records)
        self._store.delete_records(records)

    def delete_record(self, record: Record) -> None:
        self._note([record])
        self._store.delete_record(record)

    def _note(self, records: list[Record]) -> None:
        """Records are given as they are stored, else the engine refuses the write and the unit is rolled back."""
        for record in records:
            if self._claims is not None:
                self._claims.check_record(self.ident, record[0])
            self._images.add_record(self.ident, record[0], record)

    def find_record(self, record_id: int) -> Record | None:
        return self._store.find_record(record_id)

    def find_records(self, record_ids: list[int], max_bytes: int = NO_BYTE_LIMIT) -> tuple[list[Record], int]:
        return self._store.find_records(record_ids, max_bytes)

    def scan(
        self, after: int, limit: int, forward: bool = True, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[Record], bool]:
        return self._store.scan(after, limit, forward, max_bytes)

    def count(self) -> int:
        return self._store.count()

    def size_bytes(self) -> int:
        return self._store.size_bytes()

    def due_by_default(self, max_ts: int, limit: int, max_bytes: int = NO_BYTE_LIMIT) -> list[Record]:
        return self._store.due_by_default(max_ts, limit, max_bytes)

    def due_by_own(self, now_s: int, limit: int, max_bytes: int = NO_BYTE_LIMIT) -> list[Record]:
        return self._store.due_by_own(now_s, limit, max_bytes)

    def count_due_by_default(self, max_ts: int) -> int:
        return self._store.count_due_by_default(max_ts)

    def count_due_by_own(self, now_s: int) -> int:
        return self._store.count_due_by_own(now_s)

    def default_seconds(self, after_ts: int, limit: int) -> list[int]:
        return self._store.default_seconds(after_ts, limit)

    def own_seconds(self, after_due: int, limit: int) -> list[int]:
        return self._store.own_seconds(after_due, limit)

    def count_default_behind(self, after: DueEntry, max_ts: int, limit: int) -> tuple[int, DueEntry | None]:
        return self._store.count_default_behind(after, max_ts, limit)

    def count_own_behind(self, after: DueEntry, max_due: int, limit: int) -> tuple[int, DueEntry | None]:
        return self._store.count_own_behind(after, max_due, limit)


class RecordingEntries(SortedDataInterface):
    """Sorted data whose writes leave before-images. ClaimedByTransaction for a unique key that a transaction has.

    claims: None for the commit of a transaction.
    """

    def __init__(self, data: SortedDataInterface, images: CommitImages, claims: Claims | None) -> None:
        self.ident = data.ident
        self.unique = data.unique
        self._data: Final = data
        self._images: Final = images
        self._claims: Final = claims

    def insert(self, entries: list[IndexEntry]) -> None:
        self._check(entries)
        before = self._stored(entries)
        self._data.insert(entries)
        for entry in entries:
            self._images.add_entry(self.ident, entry, entry in before)

    def insert_one(self, key: bytes, record_id: int) -> None:
        self.insert([(key, record_id)])

    def remove(self, entries: list[IndexEntry]) -> None:
        self._check(entries)
        before = self._stored(entries)
        self._data.remove(entries)
        for entry in entries:
            self._images.add_entry(self.ident, entry, entry in before)

    def remove_one(self, key: bytes, record_id: int) -> None:
        self.remove([(key, record_id)])

    def _check(self, entries: list[IndexEntry]) -> None:
        claims = self._claims
        if self.unique and claims is not None and claims.any:
            for entry in entries:
                claims.check_key(self.ident, entry[0])

    def _stored(self, entries: list[IndexEntry]) -> set[IndexEntry]:
        return set(self._data.find_exact(list(dict.fromkeys([entry[0] for entry in entries]))))

    def scan(
        self,
        low: bytes,
        high: bytes,
        after: IndexEntry | None,
        limit: int,
        forward: bool = True,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[IndexEntry], bool]:
        return self._data.scan(low, high, after, limit, forward, max_bytes)

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
        return self._data.scan_fetch(_engine_store(records), low, high, after, limit, forward, max_bytes)

    def fetch_exact(self, records: RecordStore, key: bytes) -> Record | None:
        return self._data.fetch_exact(_engine_store(records), key)

    def find_exact(self, keys: list[bytes]) -> list[IndexEntry]:
        return self._data.find_exact(keys)

    def count_range(self, low: bytes, high: bytes) -> int:
        return self._data.count_range(low, high)

    def entry_behind(self, low: bytes, high: bytes, after: IndexEntry | None, entries: int) -> IndexEntry | None:
        return self._data.entry_behind(low, high, after, entries)


def _engine_store(records: RecordStore) -> RecordStore:
    """The engine's record store, which the engine's sorted data can fetch from."""
    return records.store if isinstance(records, RecordingRecords) else records
