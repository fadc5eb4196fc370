"""What commits have changed since the oldest open snapshot, as before-images.

    snapshot = history.open()               from now on `recording` is True
    images = CommitImages()                 filled by the writes of a unit of work (`recording`)
    history.append(images)                  after its commit
    snapshot.records_at(ident)              the patch that takes a record store back to the snapshot
    snapshot.close()                        images that no open snapshot needs are dropped

A snapshot reads the log of a store only when that store is read through it, so a commit costs the same however many
snapshots are open. The images are bounded in memory: when they exceed the bound, the oldest snapshot becomes
`too_old`: reading it raises SnapshotTooOld.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from mongottl.document.freeing import freed_in_slices, put_aside
from mongottl.storage.errors import SnapshotTooOld
from mongottl.storage.snapshot.patches import EntryPatch, RecordPatch
from mongottl.storage.stores import KeyEntry, Record

MAX_HISTORY_BYTES: Final = 256 * 1024 * 1024
# Memory of an image in addition to its document or key.
_OVERHEAD_BYTES: Final = 160
# Images of a commit that are added before others may be answered.
_PART: Final = 512

# (number of the commit, record id, the record before that commit or None if there was none).
RecordImage = tuple[int, int, Record | None]
# (number of the commit, entry, whether it was there before that commit).
EntryImage = tuple[int, KeyEntry, bool]


def _nothing() -> None:
    pass


def _record_commit(image: RecordImage) -> int:
    return image[0]


def _entry_commit(image: EntryImage) -> int:
    return image[0]


class CommitImages:
    """The before-images of one unit of work, by the ident of the store. The first image of a record or entry counts."""

    def __init__(self) -> None:
        self.records: Final[dict[str, dict[int, Record | None]]] = {}
        self.entries: Final[dict[str, dict[KeyEntry, bool]]] = {}

    def let_go(self) -> None:
        """Called when they are not used any more: what is long is freed in slices."""
        for records in self.records.values():
            put_aside(records)
        for entries in self.entries.values():
            put_aside(entries)
        self.records.clear()
        self.entries.clear()

    def add_record(self, ident: str, record_id: int, before: Record | None) -> None:
        """before: the record as it was, or None if there was none."""
        images = self.records.get(ident)
        if images is None:
            images = self.records[ident] = {}
        if record_id not in images:
            images[record_id] = before

    def add_entry(self, ident: str, entry: KeyEntry, before: bool) -> None:
        """before: whether the entry was there."""
        images = self.entries.get(ident)
        if images is None:
            images = self.entries[ident] = {}
        if entry not in images:
            images[entry] = before


class Snapshot:
    """The data as of one commit. too_old: whether reading it raises SnapshotTooOld, because the history exceeded its
    bound. closed: whether it was ended; reading it then raises SnapshotTooOld as well, also in a command under way."""

    def __init__(self, history: "History", number: int) -> None:
        self.history: Final = history
        self.number: Final = number
        self.too_old = False
        self.closed = False
        # For each ident: the patch, and the commit through which its log has been read.
        self._records: dict[str, RecordPatch] = {}
        self._entries: dict[str, EntryPatch] = {}
        self._read_through: dict[str, int] = {}

    def records_at(self, ident: str) -> RecordPatch | None:
        """What the record store of this ident had at the snapshot where it differs now; None for nothing.

        SnapshotTooOld."""
        self._check_readable()
        history = self.history
        log = history.record_logs.get(ident)
        if log is None:
            return self._records.get(ident)
        through = self._read_through.get(ident, self.number)
        if through < log[-1][0]:
            patch = self._records.get(ident)
            if patch is None:
                patch = self._records[ident] = RecordPatch()
            found: dict[int, Record | None] = {}
            for i in range(bisect_right(log, through, key=_record_commit), len(log)):
                image = log[i]
                if image[1] not in patch.images and image[1] not in found:
                    found[image[1]] = image[2]
            patch.add_all(found)
            self._read_through[ident] = log[-1][0]
        return self._records.get(ident)

    def entries_at(self, ident: str) -> EntryPatch | None:
        """What the sorted data of this ident had at the snapshot where it differs now; None for nothing.

        SnapshotTooOld."""
        self._check_readable()
        history = self.history
        log = history.entry_logs.get(ident)
        if log is None:
            return self._entries.get(ident)
        through = self._read_through.get(ident, self.number)
        if through < log[-1][0]:
            patch = self._entries.get(ident)
            if patch is None:
                patch = self._entries[ident] = EntryPatch()
            found: dict[KeyEntry, bool] = {}
            for i in range(bisect_right(log, through, key=_entry_commit), len(log)):
                image = log[i]
                if image[1] not in patch.images and image[1] not in found:
                    found[image[1]] = image[2]
            patch.add_all(found)
            self._read_through[ident] = log[-1][0]
        return self._entries.get(ident)

    def _check_readable(self) -> None:
        if self.too_old:
            raise SnapshotTooOld("the history of changes since the snapshot exceeds its bound")
        if self.closed:
            raise SnapshotTooOld("the snapshot was given up, because it was not used for too long")

    def changed(self, ident: str, record_id: int) -> bool:
        """Whether a commit after the snapshot has written this record. SnapshotTooOld."""
        patch = self.records_at(ident)
        return patch is not None and record_id in patch.images

    def close(self) -> None:
        """Ends the snapshot; may be called again."""
        self.closed = True
        self.history.close(self)
        self.forget()

    def forget(self) -> None:
        """Frees its patches."""
        for patch in self._records.values():
            patch.leave()
        for entries in self._entries.values():
            entries.leave()
        self._records = {}
        self._entries = {}


class History:
    """The before-images of an engine's commits. recording: whether a snapshot is open, so that commits must leave them.

    number: of the last commit that left images. record_logs, entry_logs: the images of each store in the order of
    commits, never an empty list.
    """

    def __init__(self, max_bytes: int = MAX_HISTORY_BYTES) -> None:
        self.recording = False
        self.number: int = 0
        self.record_logs: Final[dict[str, list[RecordImage]]] = {}
        self.entry_logs: Final[dict[str, list[EntryImage]]] = {}
        self.bytes: int = 0
        self._max_bytes = max_bytes
        self._open: list[Snapshot] = []  # the oldest first

    @property
    def open_snapshots(self) -> int:
        return len(self._open)

    def open(self) -> Snapshot:
        """A snapshot of the present."""
        snapshot = Snapshot(self, self.number)
        self._open.append(snapshot)
        self.recording = True
        return snapshot

    def close(self, snapshot: Snapshot) -> None:
        if snapshot not in self._open:
            return
        oldest = self._open[0].number
        self._open.remove(snapshot)
        self.recording = len(self._open) > 0
        if not self.recording:
            for log in self.record_logs.values():
                put_aside(log)
            for entry_log in self.entry_logs.values():
                put_aside(entry_log)
            self.record_logs.clear()
            self.entry_logs.clear()
            self.bytes = 0
        elif self._open[0].number > oldest:
            self._trim(self._open[0].number)

    def append(self, images: CommitImages, between: Callable[[], None] = _nothing) -> None:
        """Adds what a commit has changed. No effect unless `recording`. between: called between two parts of it, where
        no snapshot may be opened or read."""
        if not self.recording:
            return
        self.number += 1
        number = self.number
        size = 0
        for ident, records in images.records.items():
            log = self.record_logs.setdefault(ident, [])
            for record_id, before in records.items():
                log.append((number, record_id, before))
                size += _record_bytes(before)
                if len(log) % _PART == 0:
                    between()
        for ident, entries in images.entries.items():
            entry_log = self.entry_logs.setdefault(ident, [])
            for entry, present in entries.items():
                entry_log.append((number, entry, present))
                size += _OVERHEAD_BYTES + len(entry[0])
                if len(entry_log) % _PART == 0:
                    between()
        self.bytes += size
        while self.bytes > self._max_bytes and self._open:
            oldest = self._open[0]
            oldest.too_old = True
            oldest.close()

    def _trim(self, oldest: int) -> None:
        """Drops the images of commits up to the oldest open snapshot, which no snapshot needs."""
        for ident in list(self.record_logs):
            log = self.record_logs[ident]
            end = bisect_right(log, oldest, key=_record_commit)
            gone = freed_in_slices(log[:end])
            self.bytes -= sum([_record_bytes(image[2]) for image in gone])
            if end == len(log):
                del self.record_logs[ident]
            else:
                del log[:end]
        for ident in list(self.entry_logs):
            entry_log = self.entry_logs[ident]
            end = bisect_right(entry_log, oldest, key=_entry_commit)
            gone_entries = freed_in_slices(entry_log[:end])
            self.bytes -= sum([_OVERHEAD_BYTES + len(image[1][0]) for image in gone_entries])
            if end == len(entry_log):
                del self.entry_logs[ident]
            else:
                del entry_log[:end]


def _record_bytes(record: Record | None) -> int:
    return _OVERHEAD_BYTES if record is None else _OVERHEAD_BYTES + len(record[1])
