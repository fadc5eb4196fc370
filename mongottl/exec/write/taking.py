"""Deleting expired documents where the engine finds and deletes them in one step (`RecordStore.take_due`).

    expiry index   ■■■■■■■■■■■■■■■■■□■■■■□□□□□□□□□□□     ■ taken in one unit of work
                                    │    └ where the next one begins
                                    └ locked by others: found when the search begins anew

So documents are not sent to the server to be found, and back to be compared. A batch is larger than where this takes
two steps, since it costs two answers of the engine, whatever its length.
"""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.document.interrupt import Undivided
from mongottl.exec.service.leaving import is_left_to_another
from mongottl.exec.service.service import MS_PER_S, ServiceContext
from mongottl.exec.unit.recovery_unit import RecoveryUnit
from mongottl.exec.write.keys_ahead import KeysAhead
from mongottl.storage.stores import FIRST_DUE, DueEntry, ExpiryIndex, RecordStore, due_second
from mongottl.ttl.policy import NO_CUTOFF_S, default_cutoff_s, own_cutoff_s

# Documents in one unit of work, and their bytes; the last document may exceed these. The server is busy with them for
# some milliseconds, and others wait to write for a multiple of that.
TAKEN_BATCH: Final = 2000
_TAKEN_BYTES: Final = 2 << 20
# What `Taking.take` returns where documents have to be found first.
NOT_TAKEN: Final = -1


class Taking:
    """Takes the expired documents of one collection, batch by batch.

    has_locked: whether documents were left that are due and that others have locked.
    """

    def __init__(self, service: ServiceContext, unit: RecoveryUnit, ahead: KeysAhead) -> None:
        self._service: Final = service
        self._unit: Final = unit
        self._ahead: Final = ahead
        self._after: dict[ExpiryIndex, DueEntry] = {}
        self.has_locked = False

    def take(self, collection: Collection) -> int:
        """Deletes a batch of documents that are expired by the policy; how many. 0 if all are deleted that are not
        locked. NOT_TAKEN if they have to be found first: before-images are wanted, or keys are made ahead for long ones
        among them, or the engine has no step for it. WriteConflict.
        """
        if not self._unit.records(collection).takes_due:
            return NOT_TAKEN
        service = self._service
        with Undivided():  # nobody drops the collection meanwhile, or changes its default
            if collection.dropped or is_left_to_another(service):
                return 0
            stored = self._unit.records(collection)
            now_s = service.clock.now_ms() // MS_PER_S
            default = collection.default_ttl_s
            self.has_locked = False
            for index, until_s in (
                (ExpiryIndex.BY_DEFAULT, default_cutoff_s(default, now_s)),
                (ExpiryIndex.BY_OWN, own_cutoff_s(default, now_s)),
            ):
                if until_s == NO_CUTOFF_S:
                    continue
                taken = self._take_from(collection, stored, index, until_s)
                if taken:
                    return taken
        return 0

    def _take_from(self, collection: Collection, stored: RecordStore, index: ExpiryIndex, until_s: int) -> int:
        while True:
            after = self._after.get(index, FIRST_DUE)
            if stored.due_entries(index, after, until_s, 1):
                taken = self._take_after(collection, index, after, until_s)
                if taken:
                    return taken
                self.has_locked = self.has_locked or after == FIRST_DUE
            if after == FIRST_DUE:
                return 0
            del self._after[index]

    def _take_after(self, collection: Collection, index: ExpiryIndex, after: DueEntry, until_s: int) -> int:
        with self._unit.write(collection) as unit:
            if not unit.records.takes_due:
                return NOT_TAKEN
            records = unit.records.take_due(index, after, until_s, TAKEN_BATCH, _TAKEN_BYTES)
            if not records:
                return 0
            indexes = collection.writable_indexes
            for record in records:
                if len(record[1]) >= collection.ahead_bytes and self._ahead.lacks(indexes, record[1]):
                    return NOT_TAKEN  # the unit is rolled back
            unit.delete_entries_of(records)
            unit.commit()
        self._after[index] = due_second(records[-1]), records[-1][0]
        return len(records)
