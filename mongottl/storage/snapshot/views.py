"""Views of a record store or sorted data with a patch on top: reads give the base's contents as the patch changes them.

    engine's store ◄── snapshot's patch ◄── write set's patch         each arrow is one view over the one before

A view holds no position and no copy: it may be made anew for each step. It has no writes of its own (`write_set` adds
them), and the timing wheel, which asks for seconds, never reads one.
"""

from bisect import bisect_left, bisect_right
from typing import Final

from mongottl.storage.snapshot.history import Snapshot
from mongottl.storage.snapshot.patches import EntryPatch, RecordPatch
from mongottl.storage.stores import (
    NO_BYTE_LIMIT,
    DueEntry,
    ExpiryIndex,
    FetchedEntry,
    KeyEntry,
    KeyRange,
    NewRecord,
    Record,
    RecordStore,
    SortedDataInterface,
    due_second,
)

_NO_ENTRIES: Final = EntryPatch()


def records_at(store: RecordStore, snapshot: Snapshot) -> RecordStore:
    """An engine's record store as it was at a snapshot."""
    patch = snapshot.records_at(store.ident)
    return store if patch is None else PatchedRecords(store, patch)


def entries_at(data: SortedDataInterface, snapshot: Snapshot) -> SortedDataInterface:
    """An engine's sorted data as it was at a snapshot.

    Always a view, because the records that are fetched through it may be one, which no engine can fetch from.
    """
    patch = snapshot.entries_at(data.ident)
    return PatchedEntries(data, _NO_ENTRIES if patch is None else patch)


def _not_writable() -> RuntimeError:
    return RuntimeError("a view is not written, and the timing wheel does not read it")


class PatchedRecords(RecordStore):
    """The records of a base with those of a patch instead of its own."""

    def __init__(self, base: RecordStore, patch: RecordPatch) -> None:
        self.ident = base.ident
        self.base: Final = base
        self.patch: Final = patch

    def insert_records(self, records: list[NewRecord]) -> list[int]:
        raise _not_writable()

    def update_records(self, old: list[Record], new: list[Record]) -> None:
        raise _not_writable()

    def delete_records(self, records: list[Record]) -> None:
        raise _not_writable()

    def find_record(self, record_id: int) -> Record | None:
        images = self.patch.images
        if record_id in images:
            return images[record_id]
        return self.base.find_record(record_id)

    def find_records(self, record_ids: list[int], max_bytes: int = NO_BYTE_LIMIT) -> tuple[list[Record], int]:
        images = self.patch.images
        if not any(record_id in images for record_id in record_ids):
            return self.base.find_records(record_ids, max_bytes)
        found: list[Record] = []
        size = 0
        looked_up = 0
        for record_id in record_ids:
            looked_up += 1
            record = images[record_id] if record_id in images else self.base.find_record(record_id)
            if record is not None:
                found.append(record)
                size += len(record[1])
                if size >= max_bytes:
                    break
        return found, looked_up

    def scan(
        self, after: int, limit: int, forward: bool = True, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[Record], bool]:
        images = self.patch.images
        order = self.patch.order
        while True:
            rows, more = self.base.scan(after, limit, forward, max_bytes)
            last = rows[-1][0] if more else 0
            if forward:
                start = bisect_right(order, after)
                end = bisect_right(order, last) if more else len(order)
            else:
                start = bisect_left(order, last) if more else 0
                end = bisect_left(order, after)
            if start >= end:
                return rows, more
            merged = [row for row in rows if row[0] not in images]
            for record_id in order[start:end]:
                image = images[record_id]
                if image is not None:
                    merged.append(image)
            merged.sort(reverse=not forward)  # by id, which no two records share
            kept, cut = _first(merged, limit, max_bytes)
            if kept or not more:
                return kept, more or cut
            after = last  # all that the base gave is gone in the patch

    def count(self) -> int:
        return self.base.count() + sum([there - before for there, before, _ in self._differences()])

    def size_bytes(self) -> int:
        return self.base.size_bytes() + sum([size for _, _, size in self._differences()])

    def _differences(self) -> list[tuple[int, int, int]]:
        """For each record of the patch: how many there are here and in the base, and the difference of their bytes."""
        found: list[tuple[int, int, int]] = []
        for record_id, image in self.patch.images.items():
            old = self.base.find_record(record_id)
            size = (0 if image is None else len(image[1])) - (0 if old is None else len(old[1]))
            found.append((0 if image is None else 1, 0 if old is None else 1, size))
        return found

    def due_entries(self, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int) -> list[DueEntry]:
        raise _not_writable()

    def due(self, index: ExpiryIndex, until_s: int, limit: int, max_bytes: int = NO_BYTE_LIMIT) -> list[Record]:
        found = self.base.due(index, until_s, limit + len(self.patch.order))
        due = [record for record in found if record[0] not in self.patch.images]
        for image in self.patch.images.values():
            if image is not None and index.holds(image) and due_second(image) <= until_s:
                due.append(image)
        due.sort(key=lambda record: (due_second(record), record[0]))
        return _first(due, limit, max_bytes)[0]

    def count_due(self, index: ExpiryIndex, until_s: int) -> int:
        count = self.base.count_due(index, until_s)
        for record, change in self._changes():
            if index.holds(record) and due_second(record) <= until_s:
                count += change
        return count

    def _changes(self) -> list[tuple[Record, int]]:
        """The records of the patch with 1, and those of the base that they replace with -1."""
        changes: list[tuple[Record, int]] = []
        for record_id, image in self.patch.images.items():
            old = self.base.find_record(record_id)
            if old is not None:
                changes.append((old, -1))
            if image is not None:
                changes.append((image, 1))
        return changes


def _first(records: list[Record], limit: int, max_bytes: int) -> tuple[list[Record], bool]:
    """The first records within both limits, and whether any were left out."""
    size = 0
    for i in range(len(records)):
        size += len(records[i][1])
        if i + 1 == limit or size >= max_bytes:
            return records[: i + 1], i + 1 < len(records)
    return records, False


class PatchedEntries(SortedDataInterface):
    """The entries of a base as a patch changes them."""

    def __init__(self, base: SortedDataInterface, patch: EntryPatch) -> None:
        self.ident = base.ident
        self.unique = base.unique
        self.base: Final = base
        self.patch: Final = patch

    def insert(self, entries: list[KeyEntry]) -> None:
        raise _not_writable()

    def remove(self, entries: list[KeyEntry]) -> None:
        raise _not_writable()

    def scan(
        self, key_range: KeyRange, after: KeyEntry | None, limit: int, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[KeyEntry], bool]:
        low = key_range.low
        high = key_range.high
        forward = key_range.forward
        images = self.patch.images
        order = self.patch.order
        while True:
            rows, more = self.base.scan(key_range, after, limit, max_bytes)
            if forward:
                start = bisect_left(order, (low, 0)) if after is None else bisect_right(order, after)
                end = bisect_right(order, rows[-1]) if more else bisect_left(order, (high, 0))
            else:
                start = bisect_left(order, rows[-1]) if more else bisect_left(order, (low, 0))
                end = bisect_left(order, (high, 0)) if after is None else bisect_left(order, after)
            if start >= end:
                return rows, more
            merged = [entry for entry in rows if entry not in images]
            merged += [entry for entry in order[start:end] if images[entry]]
            merged.sort(reverse=not forward)
            kept, cut = _first_entries(merged, limit, max_bytes)
            if kept or not more:
                return kept, more or cut
            after = rows[-1]  # all that the base gave is gone in the patch

    def scan_fetch(
        self,
        records: RecordStore,
        key_range: KeyRange,
        after: KeyEntry | None,
        limit: int,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[FetchedEntry], bool]:
        if not isinstance(records, PatchedRecords) and not self._patched(key_range):
            return self.base.scan_fetch(records, key_range, after, limit, max_bytes)
        return super().scan_fetch(records, key_range, after, limit, max_bytes)

    def fetch_exact(self, records: RecordStore, key: bytes) -> Record | None:
        if not isinstance(records, PatchedRecords) and not self.patch.order:
            return self.base.fetch_exact(records, key)
        return super().fetch_exact(records, key)

    def find_exact(self, keys: list[bytes]) -> list[KeyEntry]:
        images = self.patch.images
        order = self.patch.order
        if not order:
            return self.base.find_exact(keys)
        by_key: dict[bytes, list[int]] = {}
        for key, record_id in self.base.find_exact(keys):
            if (key, record_id) not in images:
                by_key.setdefault(key, []).append(record_id)
        found: list[KeyEntry] = []
        for key in keys:
            ids = by_key.get(key, [])
            at = bisect_left(order, (key, 0))
            while at < len(order) and order[at][0] == key:
                if images[order[at]]:
                    ids.append(order[at][1])
                at += 1
            found += [(key, record_id) for record_id in sorted(ids)]
        return found

    def _patched(self, key_range: KeyRange) -> list[KeyEntry]:
        """The entries of the patch in a range."""
        order = self.patch.order
        return order[bisect_left(order, (key_range.low, 0)) : bisect_left(order, (key_range.high, 0))]

    def count_range(self, key_range: KeyRange) -> int:
        count = self.base.count_range(key_range)
        patched = self._patched(key_range)
        if patched:
            before = set(self.base.find_exact(list(dict.fromkeys([entry[0] for entry in patched]))))
            for entry in patched:
                count += self.patch.images[entry] - (entry in before)
        return count

    def entry_at(self, key_range: KeyRange, after: KeyEntry | None, offset: int) -> KeyEntry | None:
        if not self._patched(key_range):
            return self.base.entry_at(key_range, after, offset)
        return super().entry_at(key_range, after, offset)


def _first_entries(entries: list[KeyEntry], limit: int, max_bytes: int) -> tuple[list[KeyEntry], bool]:
    """The first entries within both limits, and whether any were left out."""
    size = 0
    for i in range(len(entries)):
        size += len(entries[i][0])
        if i + 1 == limit or size >= max_bytes:
            return entries[: i + 1], i + 1 < len(entries)
    return entries, False
