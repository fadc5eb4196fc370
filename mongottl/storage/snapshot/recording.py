"""The engine's stores for a plain write while snapshots are open: claims are respected, before-images are left."""

from typing import Final

from mongottl.storage.forwarding import ForwardingEntries, ForwardingRecords
from mongottl.storage.snapshot.claims import Claims
from mongottl.storage.snapshot.history import CommitImages
from mongottl.storage.stores import (
    NO_BYTE_LIMIT,
    DueEntry,
    ExpiryIndex,
    KeyEntry,
    NewRecord,
    Record,
    RecordStore,
    SortedDataInterface,
)


class RecordingRecords(ForwardingRecords):
    """A record store whose writes leave before-images. ClaimedByTransaction for a record that a transaction has.

    claims: None for the commit of a transaction, whose own claims those are.
    """

    def __init__(self, store: RecordStore, images: CommitImages, claims: Claims | None) -> None:
        super().__init__(store)
        self.takes_due = False
        self._images: Final = images
        self._claims: Final = claims

    def insert_records(self, records: list[NewRecord]) -> list[int]:
        ids = self.inner.insert_records(records)
        for record_id in ids:
            self._images.add_record(self.ident, record_id, None)
        return ids

    def insert_record(self, document: bytes, ts: int, ttl: int) -> int:
        record_id = self.inner.insert_record(document, ts, ttl)
        self._images.add_record(self.ident, record_id, None)
        return record_id

    def update_records(self, old: list[Record], new: list[Record]) -> None:
        self._note(old)
        self.inner.update_records(old, new)

    def update_record(self, old: Record, new: Record) -> None:
        self._note([old])
        self.inner.update_record(old, new)

    def delete_records(self, records: list[Record]) -> None:
        self._note(records)
        self.inner.delete_records(records)

    def delete_record(self, record: Record) -> None:
        self._note([record])
        self.inner.delete_record(record)

    def take_due(
        self, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int, max_bytes: int = NO_BYTE_LIMIT
    ) -> list[Record]:
        return RecordStore.take_due(self, index, after, until_s, limit, max_bytes)

    def _note(self, records: list[Record]) -> None:
        """Records are given as they are stored, else the engine refuses the write and the unit is rolled back."""
        for record in records:
            if self._claims is not None:
                self._claims.check_record(self.ident, record[0])
            self._images.add_record(self.ident, record[0], record)


class RecordingEntries(ForwardingEntries):
    """Sorted data whose writes leave before-images. ClaimedByTransaction for a unique key that a transaction has.

    claims: None for the commit of a transaction.
    """

    def __init__(self, data: SortedDataInterface, images: CommitImages, claims: Claims | None) -> None:
        super().__init__(data)
        self._images: Final = images
        self._claims: Final = claims

    def insert(self, entries: list[KeyEntry]) -> None:
        self._check(entries)
        before = self._stored(entries)
        self.inner.insert(entries)
        for entry in entries:
            self._images.add_entry(self.ident, entry, entry in before)

    def insert_one(self, key: bytes, record_id: int) -> None:
        self.insert([(key, record_id)])

    def remove(self, entries: list[KeyEntry]) -> None:
        self._check(entries)
        before = self._stored(entries)
        self.inner.remove(entries)
        for entry in entries:
            self._images.add_entry(self.ident, entry, entry in before)

    def remove_one(self, key: bytes, record_id: int) -> None:
        self.remove([(key, record_id)])

    def _check(self, entries: list[KeyEntry]) -> None:
        claims = self._claims
        if self.unique and claims is not None and claims.any:
            for entry in entries:
                claims.check_key(self.ident, entry[0])

    def _stored(self, entries: list[KeyEntry]) -> set[KeyEntry]:
        return set(self.inner.find_exact(list(dict.fromkeys([entry[0] for entry in entries]))))

    def inner_records(self, records: RecordStore) -> RecordStore:
        return records.inner if isinstance(records, RecordingRecords) else records
