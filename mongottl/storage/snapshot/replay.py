"""The commit of a write set: its patches are written to the engine, whose records get ids of its own.

A transaction may have written a million documents, so all is done in parts.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from mongottl.document.freeing import LONG, LongList
from mongottl.storage.errors import SnapshotConflict
from mongottl.storage.interface import KeptWrites
from mongottl.storage.snapshot.history import CommitImages
from mongottl.storage.snapshot.patches import FIRST_PROVISIONAL_ID, EntryPatch, RecordPatch
from mongottl.storage.snapshot.recording import RecordingEntries, RecordingRecords
from mongottl.storage.stores import NewRecord, Record, RecordStore, SortedDataInterface

T = TypeVar("T")

# The most records or entries of a part, and about how many bytes its documents may have: one or two milliseconds' work.
PART: Final = 512
PART_BYTES: Final = 256 * 1024


class ReplayedWrites(KeptWrites):
    """The writes to one record store and its indexes. images: of the commit, None if no snapshot needs them."""

    def __init__(
        self,
        store: RecordStore,
        patch: RecordPatch,
        entries: dict[str, EntryPatch],
        images: CommitImages | None,
        between: Callable[[], None],
    ) -> None:
        is_long = len(patch.order) >= LONG
        self.deleted = LongList() if is_long else []
        self.old = LongList() if is_long else []
        self.replacing = LongList() if is_long else []
        self.inserted = LongList() if is_long else []
        self._is_long: Final = is_long
        self._records: Final[RecordStore] = store if images is None else RecordingRecords(store, images, None)
        self._patch: Final = patch
        self._entry_patches: Final = entries
        self._images: Final = images
        self._between: Final = between
        # The engine's ids of the inserted records, by their provisional ones.
        self._ids: Final[dict[int, int]] = {}
        self._provisional: Final[list[int]] = LongList() if is_long else []

    def load(self) -> None:
        for part in self._parts(self._patch.order):
            self._load_part(part)

    def _load_part(self, part: list[int]) -> None:
        patch = self._patch
        for record_id in part:
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
        if patch is None:
            return
        for part in self._parts(patch.order):
            gone = [e for e in part if not patch.images[e] and e[1] < FIRST_PROVISIONAL_ID]
            if gone:
                self.entries(data).remove(gone)

    def write_records(self) -> list[Record]:
        records = self._records
        for start, end in self._bounds([len(record[1]) for record in self.deleted]):
            records.delete_records(self.deleted[start:end])
        for start, end in self._bounds([len(record[1]) for record in self.replacing]):
            records.update_records(self.old[start:end], self.replacing[start:end])
        written = LongList(self.replacing) if self._is_long else list(self.replacing)
        for start, end in self._bounds([len(row[0]) for row in self.inserted]):
            rows = self.inserted[start:end]
            ids = records.insert_records(rows)
            self._ids.update(zip(self._provisional[start:end], ids, strict=True))
            written += [_with_id(rid, row) for rid, row in zip(ids, rows, strict=True)]
        return written

    def insert_entries(self, data: SortedDataInterface) -> None:
        patch = self._entry_patches.get(data.ident)
        if patch is None:
            return
        ids = self._ids
        for part in self._parts(patch.order):
            added = [(e[0], ids.get(e[1], e[1])) for e in part if patch.images[e]]
            if added:
                self.entries(data).insert(added)

    def _parts(self, values: list[T]) -> Iterable[list[T]]:
        """The parts of what the transaction has written."""
        return [values] if len(values) <= PART else self._many_parts(values)

    def _many_parts(self, values: list[T]) -> Iterator[list[T]]:
        for start in range(0, len(values), PART):
            if start:
                self._between()
            yield values[start : start + PART]

    def _bounds(self, sizes: list[int]) -> Iterable[tuple[int, int]]:
        """Where the parts of documents of these lengths begin and end."""
        if len(sizes) <= PART and sum(sizes) <= PART_BYTES:
            return [(0, len(sizes))] if sizes else []
        return self._many_bounds(sizes)

    def _many_bounds(self, sizes: list[int]) -> Iterator[tuple[int, int]]:
        start = size = 0
        for place, length in enumerate(sizes):
            size += length
            if size >= PART_BYTES or place + 1 - start == PART or place + 1 == len(sizes):
                if start:
                    self._between()
                yield start, place + 1
                start = place + 1
                size = 0

    def entries(self, data: SortedDataInterface) -> SortedDataInterface:
        return data if self._images is None else RecordingEntries(data, self._images, None)


def _with_id(record_id: int, row: NewRecord) -> Record:
    return record_id, row[0], row[1], row[2]
