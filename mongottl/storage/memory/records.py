"""Record stores in memory: blocks of records, addressed by record id, and two expiry indexes.

Record ids ascend without gaps as records are inserted, so a record's place follows from its id: place (id - 1) % 256 of
block (id - 1) // 256. A scan hands out a slice of a block. A deleted record leaves a hole; a block that has mostly
holes is packed, and its records are then found by binary search; an empty one goes.

The records are the very tuples that callers get, and are not changed: an update puts another in its place. Tuples of
bytes and numbers are no business of the garbage collector after its first look at them.

The expiry indexes are ordered entries (second, record id), the second as eight bytes that sort like the number.
"""

from bisect import bisect_left, insort
from typing import Final, cast

from mypy_extensions import i64

from mongottl.storage.interface import NewRecord, Record, RecordStore
from mongottl.storage.memory.blocks import SortedBlocks, untrack
from mongottl.storage.memory.units import MemoryUnits, Undo

# Records of a block: 1 << _SHIFT.
_SHIFT: Final = 8
_SIZE: Final = 1 << _SHIFT
_MASK: Final = _SIZE - 1
# A block with fewer records than this, which was full once, is packed.
_SPARSE: Final = 32

# Makes seconds unsigned, so that their bytes sort like the numbers.
_SECOND_OFFSET: Final = 1 << 63
_LAST_SECOND: Final = (1 << 63) - 1
_END: Final = b"\xff" * 9

# What a record takes beside its document: tuple, id, place, entry of the expiry index, bytes object.
_RECORD_BYTES: Final = 190
# A document of this length counts as one in `drop`; longer ones count as more.
_DROP_ROW_BYTES: Final = 512


def _second_key(second: int) -> bytes:
    return (second + _SECOND_OFFSET).to_bytes(8, "big")


def _second_of(key: bytes) -> int:
    return int.from_bytes(key, "big") - _SECOND_OFFSET


class _Block:
    """slots: records and, unless packed, None for the holes. live: how many records there are."""

    def __init__(self) -> None:
        self.slots: list[object] = []
        self.live: i64 = 0
        self.packed = False
        untrack(self.slots)

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
            if (_id_of(record) - 1) & _MASK == place:
                return record
        return None

    def set(self, place: i64, record: object) -> None:
        """Puts a record where one is."""
        if self.packed:
            place = self._packed_place(place)
        self.slots[place] = record

    def remove(self, place: i64) -> None:
        """Removes a record that is there."""
        slots = self.slots
        self.live -= 1
        if self.packed:
            del slots[self._packed_place(place)]
            return
        slots[place] = None
        if self.live < _SPARSE and len(slots) == _SIZE:
            self.slots = [record for record in slots if record is not None]
            self.packed = True
            untrack(self.slots)

    def add(self, place: i64, record: object) -> None:
        """Puts a record where none is."""
        slots = self.slots
        self.live += 1
        if self.packed:
            insort(cast("list[tuple[int, ...]]", slots), cast("tuple[int, ...]", record))
            return
        if len(slots) <= place:
            _lengthen(slots, place + 1)
        slots[place] = record

    def extend(self, place: i64, records: list[object]) -> None:
        """Adds records from a place on behind all that are there."""
        slots = self.slots
        if len(slots) < place:  # ids that a rollback has left out, or that went with the block
            _lengthen(slots, place)
        slots.extend(records)
        self.live += len(records)

    def drop(self, limit: int) -> int:
        """Forgets up to `limit` records; how many places are left."""
        slots = self.slots
        del slots[max(0, len(slots) - limit) :]
        return len(slots)

    def _packed_part(self, start: i64, end: i64) -> list[object]:
        slots = self.slots
        if not slots:
            return []
        first = (_id_of(slots[0]) - 1) & ~_MASK
        rows = cast("list[tuple[int, ...]]", slots)
        return slots[bisect_left(rows, (int(first + start + 1),)) : bisect_left(rows, (int(first + end + 1),))]

    def _packed_place(self, place: i64) -> i64:
        number: i64 = 0
        for record in self.slots:
            if (_id_of(record) - 1) & _MASK == place:
                return number
            number += 1
        raise KeyError(place)


def _lengthen(slots: list[object], length: i64) -> None:
    missing = int(length) - len(slots)
    slots.extend([None] * missing)


def _id_of(record: object) -> i64:
    return cast(int, cast("tuple[object, ...]", record)[0])


class MemoryRecordStore(RecordStore):
    def __init__(self, units: MemoryUnits, ident: str) -> None:
        self.ident = ident
        self._units = units
        self._count: int = 0
        self._size_bytes: int = 0
        self._next_id: int = 1
        self._blocks: dict[int, _Block] = {}
        # The numbers of the blocks, ascending.
        self._numbers: list[int] = []
        # The block that was used last.
        self._near_number: i64 = -1
        self._near = _Block()
        self._default = SortedBlocks()
        self._own = SortedBlocks()
        # The second that was used last, as the number that records share, and as a key.
        self._second: int = 0
        self._second_object: object = 0
        self._second_key: bytes = _second_key(0)

    def insert_records(self, records: list[NewRecord]) -> list[int]:
        self._units.require_unit()
        if not records:
            return []
        first = self._next_id
        count = len(records)
        ids = list(range(first, first + count))
        id_objects = cast("list[object]", ids)
        made: list[object] = []
        size: i64 = 0
        place: i64 = 0
        run: i64 = 0
        run_ts: int = 0
        run_ttl: int = 0
        for row in cast("list[tuple[object, ...]]", records):
            document = cast(bytes, row[0])
            ts = cast(int, row[1])
            ttl = cast(int, row[2])
            if place == 0:
                run_ts = ts
                run_ttl = ttl
                self._use_second(ts)
            elif ts != run_ts or ttl != run_ttl:
                self._note_due(run_ts, run_ttl, ids[run:place])
                run = place
                run_ts = ts
                run_ttl = ttl
                self._use_second(ts)
            size += len(document)
            made.append((id_objects[place], document, self._second_object, row[2]))
            place += 1
        self._note_due(run_ts, run_ttl, ids[run:] if run else ids)
        self._append(first, made)
        self._units.note_ids(first, id_objects)
        self._next_id = first + count
        self._count += count
        self._size_bytes += size
        self._units.log(_UndoInsert(self, first, count))
        return ids

    def insert_record(self, document: bytes, ts: int, ttl: int) -> int:
        self._units.require_unit()
        record_id = self._next_id
        self._use_second(ts)
        id_object: object = record_id
        made: tuple[object, bytes, object, int] = (id_object, document, self._second_object, ttl)
        self._note_due(ts, ttl, [record_id])
        self._append(record_id, [made])
        self._units.note_ids(record_id, [id_object])
        self._next_id = record_id + 1
        self._count += 1
        self._size_bytes += len(document)
        self._units.log(_UndoInsert(self, record_id, 1))
        return record_id

    def update_records(self, old: list[Record], new: list[Record]) -> None:
        self._units.require_unit()
        before: list[object] = []
        after: list[object] = []
        missing = False
        for row in cast("list[tuple[object, ...]]", new):
            record_id: i64 = cast(int, row[0])
            block = self._block(record_id)
            place = (record_id - 1) & _MASK
            held = block.get(place)
            if held is None:
                missing = True
                break
            made = self._shared(held, row)
            block.set(place, made)
            before.append(held)
            after.append(made)
        self._moved(before, after)
        self._units.log(_UndoUpdate(self, before, after))
        if missing:
            raise self._units.conflict(f"a record to update in {self.ident} is gone")

    def update_record(self, old: Record, new: Record) -> None:
        self.update_records([old], [new])

    def delete_records(self, records: list[Record]) -> None:
        self._units.require_unit()
        removed: list[object] = []
        missing = False
        for row in cast("list[tuple[object, ...]]", records):
            record_id: i64 = cast(int, row[0])
            block = self._block(record_id)
            place = (record_id - 1) & _MASK
            held = block.get(place)
            if held is None:
                missing = True
                break
            block.remove(place)
            if block.live == 0:
                self._drop_block(record_id)
            removed.append(held)
        self._gone(removed)
        self._units.log(_UndoDelete(self, removed))
        if missing:
            raise self._units.conflict(f"a record to delete in {self.ident} is gone")

    def delete_record(self, record: Record) -> None:
        self.delete_records([record])

    def find_record(self, record_id: int) -> Record | None:
        self._units.require_open()
        return cast("Record | None", self.get(record_id))

    def find_records(self, record_ids: list[int]) -> list[Record]:
        self._units.require_open()
        found: list[object] = []
        for record_id in record_ids:
            record = self.get(record_id)
            if record is not None:
                found.append(record)
        return cast("list[Record]", found)

    def scan(self, after: int, limit: int, forward: bool = True) -> list[Record]:
        self._units.require_open()
        if forward:
            return cast("list[Record]", self._scan_up(after, limit))
        return cast("list[Record]", self._scan_down(after, limit))

    def count(self) -> int:
        self._units.require_open()
        return self._count

    def size_bytes(self) -> int:
        self._units.require_open()
        return self._size_bytes

    def due_by_default(self, max_ts: int, limit: int) -> list[Record]:
        return self._due(self._default, max_ts, limit)

    def due_by_own(self, now_s: int, limit: int) -> list[Record]:
        return self._due(self._own, now_s, limit)

    def count_due_by_default(self, max_ts: int) -> int:
        self._units.require_open()
        return self._default.count(b"", _key_behind(max_ts))

    def count_due_by_own(self, now_s: int) -> int:
        self._units.require_open()
        return self._own.count(b"", _key_behind(now_s))

    def default_seconds(self, after_ts: int, limit: int) -> list[int]:
        self._units.require_open()
        return [_second_of(key) for key in self._default.distinct(_key_behind(after_ts), _END, limit)]

    def own_seconds(self, after_due: int, limit: int) -> list[int]:
        self._units.require_open()
        return [_second_of(key) for key in self._own.distinct(_key_behind(after_due), _END, limit)]

    def get(self, record_id: i64) -> object:
        """The record of that id, or None."""
        number = (record_id - 1) >> _SHIFT
        if number == self._near_number:
            return self._near.get((record_id - 1) & _MASK)
        block = self._blocks.get(int(number))
        if block is None:
            return None
        self._near = block
        self._near_number = number
        return block.get((record_id - 1) & _MASK)

    def estimated_bytes(self) -> int:
        return self._size_bytes + _RECORD_BYTES * self._count

    def is_small(self, rows: int, size_bytes: int) -> bool:
        """Whether giving back the space of it all takes no noticeable time."""
        return self._count <= rows and self._size_bytes <= size_bytes

    def drop(self, limit: int) -> bool:
        """Forgets about `limit` records, fewer if they are long; whether there is more to do. For dropped stores."""
        if self._count:
            limit = max(1, limit // (1 + self._size_bytes // self._count // _DROP_ROW_BYTES))
        self._near_number = -1
        self._near = _Block()
        while limit > 0 and self._numbers:
            number = self._numbers[-1]
            block = self._blocks[number]
            live = int(block.live)
            left = block.drop(limit)
            if left:
                return True
            limit -= live
            self._numbers.pop()
            del self._blocks[number]
        if limit <= 0:
            return True
        return self._default.drop(limit) or self._own.drop(limit)

    def undo_insert(self, first: int, count: int) -> None:
        removed: list[object] = []
        for record_id in range(first, first + count):
            held = self.get(record_id)
            block = self._block(record_id)
            block.remove((i64(record_id) - 1) & _MASK)
            if block.live == 0:
                self._drop_block(record_id)
            removed.append(held)
        self._gone(removed)

    def undo_update(self, before: list[object], after: list[object]) -> None:
        for record in before:
            record_id = _id_of(record)
            self._block(record_id).set((record_id - 1) & _MASK, record)
        self._moved(after, before)

    def undo_delete(self, records: list[object]) -> None:
        for record in records:
            record_id = _id_of(record)
            row = cast("tuple[object, ...]", record)
            self._make_block(record_id).add((record_id - 1) & _MASK, record)
            ts = cast(int, row[2])
            self._use_second(ts)
            self._note_due(ts, cast(int, row[3]), [record_id])
            self._size_bytes += len(cast(bytes, row[1]))
        self._count += len(records)

    def _scan_up(self, after: int, limit: int) -> list[object]:
        numbers = self._numbers
        number = after >> _SHIFT
        start = after & _MASK
        at = bisect_left(numbers, number)
        found: list[object] = []
        while at < len(numbers):
            if numbers[at] != number:
                start = 0
            part = self._blocks[numbers[at]].part(start, _SIZE, limit - len(found))
            if not found:
                found = part
            else:
                found.extend(part)
            if len(found) >= limit:
                break
            at += 1
            start = 0
        return found

    def _scan_down(self, before: int, limit: int) -> list[object]:
        numbers = self._numbers
        index = before - 1
        if index <= 0 or not numbers:
            return []
        number = index >> _SHIFT
        end = index & _MASK
        at = bisect_left(numbers, number)
        if at >= len(numbers) or numbers[at] != number:
            at -= 1
            end = _SIZE
        found: list[object] = []
        while at >= 0:
            part = self._blocks[numbers[at]].last_part(end, limit - len(found))
            if not found:
                found = part
            else:
                found.extend(part)
            if len(found) >= limit:
                break
            at -= 1
            end = _SIZE
        return found

    def _due(self, index: SortedBlocks, last: int, limit: int) -> list[Record]:
        self._units.require_open()
        _, ids = index.slice(b"", _key_behind(last), None, limit, True)
        return self.find_records(ids)

    def _block(self, record_id: i64) -> _Block:
        """The block of a record id; one without records if there is none."""
        number = (record_id - 1) >> _SHIFT
        if number == self._near_number:
            return self._near
        block = self._blocks.get(int(number))
        if block is None:
            return _Block()
        self._near = block
        self._near_number = number
        return block

    def _make_block(self, record_id: i64) -> _Block:
        number = int((record_id - 1) >> _SHIFT)
        block = self._blocks.get(number)
        if block is None:
            block = _Block()
            self._blocks[number] = block
            numbers = self._numbers
            if not numbers or numbers[-1] < number:
                numbers.append(number)
            else:
                insort(numbers, number)
        return block

    def _drop_block(self, record_id: i64) -> None:
        number = int((record_id - 1) >> _SHIFT)
        del self._blocks[number]
        del self._numbers[bisect_left(self._numbers, number)]
        if number == self._near_number:
            self._near_number = -1
            self._near = _Block()

    def _append(self, first: int, records: list[object]) -> None:
        """Adds records of new ids, which ascend without gaps."""
        count = len(records)
        done = 0
        while done < count:
            record_id = first + done
            place = (record_id - 1) & _MASK
            room = _SIZE - place
            part = records if done == 0 and count <= room else records[done : done + room]
            self._make_block(record_id).extend(place, part)
            done += len(part)

    def _shared(self, held: object, row: tuple[object, ...]) -> object:
        """A record as it will be kept: with the id and, where possible, the second that other records have."""
        self._use_second(cast(int, row[2]))
        kept: tuple[object, object, object, object] = (
            cast("tuple[object, ...]", held)[0],
            row[1],
            self._second_object,
            row[3],
        )
        return kept

    def _use_second(self, second: int) -> None:
        if second != self._second:
            self._second = second
            self._second_object = second
            self._second_key = _second_key(second)

    def _due_key(self, ts: int, ttl: int) -> bytes:
        if ttl == 0:
            if ts == self._second:
                return self._second_key
            return _second_key(ts)
        return _second_key(ts + ttl)

    def _note_due(self, ts: int, ttl: int, ids: list[int]) -> None:
        """Adds records of the same facts to the expiry indexes."""
        if ttl < 0:
            return
        key = self._due_key(ts, ttl)
        (self._default if ttl == 0 else self._own).insert([key] * len(ids), ids)

    def _forget_due(self, ts: int, ttl: int, ids: list[int]) -> None:
        if ttl < 0:
            return
        key = self._due_key(ts, ttl)
        (self._default if ttl == 0 else self._own).remove([key] * len(ids), ids)

    def _gone(self, records: list[object]) -> None:
        """Brings counters and expiry indexes up to date after records were taken out of their blocks."""
        size: i64 = 0
        ids: list[int] = []
        run_ts: int = 0
        run_ttl: int = 0
        for record in records:
            row = cast("tuple[object, ...]", record)
            size += len(cast(bytes, row[1]))
            ts = cast(int, row[2])
            ttl = cast(int, row[3])
            if ts != run_ts or ttl != run_ttl:
                if ids:
                    self._forget_due(run_ts, run_ttl, ids)
                    ids = []
                run_ts = ts
                run_ttl = ttl
            ids.append(cast(int, row[0]))
        if ids:
            self._forget_due(run_ts, run_ttl, ids)
        self._count -= len(records)
        self._size_bytes -= size

    def _moved(self, before: list[object], after: list[object]) -> None:
        """The same after records were replaced."""
        growth: i64 = 0
        gone: list[int] = []
        gone_ts: int = 0
        gone_ttl: int = 0
        fresh: list[int] = []
        fresh_ts: int = 0
        fresh_ttl: int = 0
        for place in range(len(before)):
            old = cast("tuple[object, ...]", before[place])
            new = cast("tuple[object, ...]", after[place])
            growth += len(cast(bytes, new[1])) - len(cast(bytes, old[1]))
            old_ts = cast(int, old[2])
            old_ttl = cast(int, old[3])
            new_ts = cast(int, new[2])
            new_ttl = cast(int, new[3])
            if old_ts == new_ts and old_ttl == new_ttl:
                continue
            if old_ts != gone_ts or old_ttl != gone_ttl:
                if gone:
                    self._forget_due(gone_ts, gone_ttl, gone)
                    gone = []
                gone_ts = old_ts
                gone_ttl = old_ttl
            if new_ts != fresh_ts or new_ttl != fresh_ttl:
                if fresh:
                    # First out, then in: a record may come to the entry that it had, by other facts.
                    if gone:
                        self._forget_due(gone_ts, gone_ttl, gone)
                        gone = []
                    self._note_due(fresh_ts, fresh_ttl, fresh)
                    fresh = []
                fresh_ts = new_ts
                fresh_ttl = new_ttl
            record_id = cast(int, new[0])
            gone.append(record_id)
            fresh.append(record_id)
        if gone:
            self._forget_due(gone_ts, gone_ttl, gone)
        if fresh:
            self._note_due(fresh_ts, fresh_ttl, fresh)
        self._size_bytes += growth


def _key_behind(second: int) -> bytes:
    """Where the keys of later seconds begin."""
    if second >= _LAST_SECOND:
        return _END
    return _second_key(second + 1)


class _UndoInsert(Undo):
    def __init__(self, store: MemoryRecordStore, first: int, count: int) -> None:
        self._store = store
        self._first = first
        self._count = count

    def undo(self) -> None:
        self._store.undo_insert(self._first, self._count)


class _UndoUpdate(Undo):
    def __init__(self, store: MemoryRecordStore, before: list[object], after: list[object]) -> None:
        self._store = store
        self._before = before
        self._after = after

    def undo(self) -> None:
        self._store.undo_update(self._before, self._after)


class _UndoDelete(Undo):
    def __init__(self, store: MemoryRecordStore, records: list[object]) -> None:
        self._store = store
        self._records = records

    def undo(self) -> None:
        self._store.undo_delete(self._records)
