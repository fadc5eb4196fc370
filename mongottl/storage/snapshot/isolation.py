"""The isolation of the embedded engines: snapshots and write sets over what an engine has at present.

plain write   watches_writes? ──► RecordedWrites: claims are respected, before-images are left for snapshots
transaction   WriteSet, with a snapshot of its own
"""

from typing import Final

from mongottl.storage.interface import Isolation, OpenSnapshot, OpenTransaction, WatchedWrites
from mongottl.storage.snapshot.claims import Claims
from mongottl.storage.snapshot.history import CommitImages, History, Snapshot
from mongottl.storage.snapshot.recording import RecordingEntries, RecordingRecords
from mongottl.storage.snapshot.views import entries_at, records_at
from mongottl.storage.snapshot.write_set import WriteSet
from mongottl.storage.stores import Record, RecordStore, SortedDataInterface


class PatchedSnapshot(OpenSnapshot):
    """A snapshot whose stores are views over those of the engine."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot: Final = snapshot

    @property
    def too_old(self) -> bool:
        return self._snapshot.too_old

    def records_at(self, store: RecordStore) -> RecordStore:
        return records_at(store, self._snapshot)

    def entries_at(self, data: SortedDataInterface) -> SortedDataInterface:
        return entries_at(data, self._snapshot)

    def close(self) -> None:
        self._snapshot.close()


class RecordedWrites(WatchedWrites):
    """The stores for a plain write: what it writes is in the history after its commit."""

    def __init__(self, history: History, claims: Claims) -> None:
        self._history: Final = history
        self._claims: Final = claims
        self._images: Final = CommitImages()

    def records(self, store: RecordStore) -> RecordStore:
        return RecordingRecords(store, self._images, self._claims)

    def entries(self, data: SortedDataInterface) -> SortedDataInterface:
        return RecordingEntries(data, self._images, self._claims)

    def committed(self) -> None:
        self._history.append(self._images)


class PatchIsolation(Isolation):
    """For an engine whose units of work run one after the other, and whose reads give what is committed."""

    def __init__(self) -> None:
        self.history: Final = History()
        self.claims: Final = Claims()

    def open_snapshot(self) -> OpenSnapshot:
        return PatchedSnapshot(self.history.open())

    def begin_transaction(self) -> OpenTransaction:
        return WriteSet(self.history.open(), self.claims)

    @property
    def watches_writes(self) -> bool:
        return self.history.recording or self.claims.any

    def watch(self) -> WatchedWrites:
        return RecordedWrites(self.history, self.claims)

    def count_claimed(self, ident: str) -> int:
        return self.claims.count_records(ident)

    def unclaimed(self, store: RecordStore, records: list[Record]) -> list[Record]:
        claims = self.claims
        if not claims.any:
            return records
        ident = store.ident
        return [record for record in records if claims.record_owner(ident, record[0]) is None]
