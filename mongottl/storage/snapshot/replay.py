"""The commit of a write set: its patches are written to the engine, whose records get ids of its own."""

from typing import Final

from mongottl.storage.interface import (
    KeptWrites,
    KeyEntry,
    NewRecord,
    Record,
    RecordStore,
    SnapshotConflict,
    SortedDataInterface,
)
from mongottl.storage.snapshot.history import CommitImages
from mongottl.storage.snapshot.patches import FIRST_PROVISIONAL_ID, EntryPatch, RecordPatch
from mongottl.storage.snapshot.recording import RecordingEntries, RecordingRecords


class ReplayedWrites(KeptWrites):
    """The writes to one record store and its indexes. images: of the commit, None if no snapshot needs them."""

    def __init__(
        self, store: RecordStore, patch: RecordPatch, entries: dict[str, EntryPatch], images: CommitImages | None
    ) -> None:
        self.deleted = []
        self.old = []
        self.replacing = []
        self.inserted = []
        self._records: Final[RecordStore] = store if images is None else RecordingRecords(store, images, None)
        self._patch: Final = patch
        self._entry_patches: Final = entries
        self._images: Final = images
        # The engine's ids of the inserted records, by their provisional ones.
        self._ids: dict[int, int] = {}
        self._provisional: Final[list[int]] = []

    def load(self) -> None:
        patch = self._patch
        for record_id in patch.order:
            image = patch.images[record_id]
            if record_id >= FIRST_PROVISIONAL_ID:
                if image is not None:
                    self._provisional.append(record_id)
                    self.inserted.append((image[1], image[2], image[3]))
                continue
            before = self._records.find_record(record_id)
            if before is None:
                raise SnapshotConflict("a record of the transaction was deleted")
            if image is None:
                self.deleted.append(before)
            else:
                self.old.append(before)
                self.replacing.append(image)

    def remove_entries(self, data: SortedDataInterface) -> None:
        patch = self._entry_patches.get(data.ident)
        if patch is not None:
            gone = [e for e in patch.order if not patch.images[e] and e[1] < FIRST_PROVISIONAL_ID]
            if gone:
                self.entries(data).remove(gone)

    def write_records(self) -> list[Record]:
        records = self._records
        records.delete_records(self.deleted)
        records.update_records(self.old, self.replacing)
        ids = records.insert_records(self.inserted)
        self._ids = dict(zip(self._provisional, ids, strict=True))
        return self.replacing + [_with_id(rid, row) for rid, row in zip(ids, self.inserted, strict=True)]

    def insert_entries(self, data: SortedDataInterface) -> None:
        patch = self._entry_patches.get(data.ident)
        added: list[KeyEntry] = []
        if patch is not None:
            added = [(e[0], self._ids.get(e[1], e[1])) for e in patch.order if patch.images[e]]
        self.entries(data).insert(added)

    def entries(self, data: SortedDataInterface) -> SortedDataInterface:
        return data if self._images is None else RecordingEntries(data, self._images, None)


def _with_id(record_id: int, row: NewRecord) -> Record:
    return record_id, row[0], row[1], row[2]
