"""A block of records in memory, addressed by their places: the record ids' lower bits.

A deleted record leaves a hole. A block of mostly holes is packed: the holes are removed, and records are found by
binary search. A block does not depend on other blocks. Saved states of a store share its blocks: the store copies a
block of another epoch than its own before it changes it.
"""

from bisect import bisect_left, insort
from typing import Final, cast

from mypy_extensions import i64

from mongottl.document.untracked import untrack

# Records of a block: 1 << SHIFT. Record id n stands at place (n - 1) & MASK of block (n - 1) >> SHIFT.
SHIFT: Final = 8
SIZE: Final = 1 << SHIFT
MASK: Final = SIZE - 1
# A block with fewer records than this, which was full once, is packed.
_SPARSE: Final = 32


class RecordBlock:
    """slots: records and, unless packed, None for the holes. live: how many records there are. epoch: of the store
    when it made the block."""

    def __init__(self, epoch: i64) -> None:
        self.epoch: i64 = epoch
        self.slots: list[object] = []
        self.live: i64 = 0
        self.packed = False
        untrack(self.slots)

    def copied(self, epoch: i64) -> "RecordBlock":
        """A copy for a store of that epoch."""
        copy = RecordBlock(epoch)
        copy.slots = self.slots[:]
        copy.live = self.live
        copy.packed = self.packed
        untrack(copy.slots)
        return copy

    def part(self, start: i64, end: i64, limit: i64) -> list[object]:
        """The first `limit` records from place `start` to before `end`, places as if the block were not packed."""
        slots = self.slots
        if self.packed:
            return self._packed_part(start, end)[:limit]
        if self.live == len(slots):
            return slots[start : min(end, start + limit)]
        return [record for record in slots[start:end] if record is not None][:limit]

    def last_part(self, end: i64, limit: i64) -> list[object]:
        """The last `limit` records before place `end`, descending."""
        if not self.packed and self.live == len(self.slots):
            part = self.part(max(min(end, self.live) - limit, 0), end, limit)
        else:
            part = self.part(0, end, end)
        part.reverse()
        return part[:limit] if len(part) > limit else part

    def get(self, place: i64) -> object:
        """The record at a place, or None."""
        slots = self.slots
        if not self.packed:
            if place < len(slots):
                return slots[place]
            return None
        for record in slots:
            if (id_of(record) - 1) & MASK == place:
                return record
        return None

    def set(self, place: i64, record: object) -> None:
        """Replaces the record at a place."""
        if self.packed:
            place = self._packed_place(place)
        self.slots[place] = record

    def remove(self, place: i64) -> None:
        """Removes the record at a place."""
        slots = self.slots
        self.live -= 1
        if self.packed:
            del slots[self._packed_place(place)]
            return
        slots[place] = None
        if self.live < _SPARSE and len(slots) == SIZE:
            self.slots = [record for record in slots if record is not None]
            self.packed = True
            untrack(self.slots)

    def add(self, place: i64, record: object) -> None:
        """Adds a record at a place that has none."""
        slots = self.slots
        self.live += 1
        if self.packed:
            insort(cast("list[tuple[int, ...]]", slots), cast("tuple[int, ...]", record))
            return
        if len(slots) <= place:
            _lengthen(slots, place + 1)
        slots[place] = record

    def extend(self, place: i64, records: list[object]) -> None:
        """Adds records from a place on, which is after all records of the block."""
        slots = self.slots
        if len(slots) < place:  # ids that a rollback has left out, or that went with the block
            _lengthen(slots, place)
        slots.extend(records)
        self.live += len(records)

    def drop(self, limit: int) -> int:
        """Frees up to `limit` records; how many places are left."""
        slots = self.slots
        del slots[max(0, len(slots) - limit) :]
        return len(slots)

    def _packed_part(self, start: i64, end: i64) -> list[object]:
        slots = self.slots
        if not slots:
            return []
        first = (id_of(slots[0]) - 1) & ~MASK
        rows = cast("list[tuple[int, ...]]", slots)
        return slots[bisect_left(rows, (int(first + start + 1),)) : bisect_left(rows, (int(first + end + 1),))]

    def _packed_place(self, place: i64) -> i64:
        number: i64 = 0
        for record in self.slots:
            if (id_of(record) - 1) & MASK == place:
                return number
            number += 1
        raise KeyError(place)


def _lengthen(slots: list[object], length: i64) -> None:
    missing = int(length) - len(slots)
    slots.extend([None] * missing)


def id_of(record: object) -> i64:
    return cast(int, cast("tuple[object, ...]", record)[0])
