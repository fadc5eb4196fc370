"""Record stores in memory: blocks of records, addressed by record id, and two expiry indexes.

Record ids ascend without gaps as records are inserted, so a record's place follows from its id: place (id - 1) % 256 of
block (id - 1) // 256 (see `record_block`). A scan returns slices of blocks.

Records are stored as the tuples that callers get, and a tuple never changes: an update stores another one. The garbage
collector stops tracking tuples of bytes and numbers when it first examines them.

The expiry indexes are ordered entries of second and record id (see `due`).

What a saved state has of a store (`RecordContents`) does not change: the store's first write afterwards copies the
dict and the lists of blocks and begins a new epoch, and each write copies the blocks of earlier epochs that it changes.
"""

from bisect import bisect_left, insort
from typing import Final, cast

from mypy_extensions import i64

from mongottl.storage.memory.blocks import SortedBlocks
from mongottl.storage.memory.contents import SMALL_BYTES, SMALL_ROWS, Contents, Lifetime
from mongottl.storage.memory.due import END, DueEntries, key_behind, second_key, second_of
from mongottl.storage.memory.record_block import MASK, SHIFT, SIZE, RecordBlock, id_of
from mongottl.storage.memory.units import MemoryUnits, Undo
from mongottl.storage.stores import NO_BYTE_LIMIT, DueEntry, ExpiryIndex, NewRecord, Record, RecordStore

# What a record takes beside its document: tuple, id, place, entry of the expiry index, bytes object.
_RECORD_BYTES: Final = 190
# A document up to this length counts as one in `drop`; longer ones count as more.
_DROP_ROW_BYTES: Final = 512
# What has no records; nothing is added to it.
_NO_RECORDS: Final = RecordBlock(-1)


class RecordContents(Contents):
    """The records of a store, with their expiry indexes. They do not change while a saved state has them.

    epoch: blocks of this epoch belong to these contents alone; -1 if none do for certain.
    """

    def __init__(
        self,
        blocks: dict[int, RecordBlock],
        numbers: list[int],
        default: SortedBlocks,
        own: SortedBlocks,
        epoch: i64,
    ) -> None:
        super().__init__()
        self.blocks = blocks
        self.numbers = numbers
        self.default = default
        self.own = own
        self.epoch: i64 = epoch
        self.next_id: int = 1
        self.count: int = 0
        self.total_bytes: int = 0
        self.longest: i64 = 0

    def rows(self) -> int:
        return max(self.count, self.default.length, self.own.length)

    def size_bytes(self) -> int:
        return self.total_bytes

    def drop(self, limit: int) -> bool:
        if self.count:
            limit = max(1, limit // (1 + self.total_bytes // self.count // _DROP_ROW_BYTES))
        while limit > 0 and self.numbers:
            number = self.numbers[-1]
            block = self.blocks[number]
            live = int(block.live)
            if block.epoch == self.epoch and block.drop(limit):
                return True
            limit -= live
            self.numbers.pop()
            del self.blocks[number]
        if limit <= 0:
            return True
        return self.default.drop(limit) or self.own.drop(limit)

    def leave_shared(self) -> None:
        epoch = self.epoch
        self.blocks = {number: block for number, block in self.blocks.items() if block.epoch == epoch}
        self.numbers = sorted(self.blocks)
        self.count = int(sum([block.live for block in self.blocks.values()]))
        self.total_bytes = min(self.total_bytes, self.count * self.longest)  # at most: the documents are not looked at
        self.default.leave_shared()
        self.own.leave_shared()


class MemoryRecordStore(RecordStore):
    def __init__(self, units: MemoryUnits, ident: str) -> None:
        self.ident = ident
        self._units = units
        self._count: int = 0
        self._size_bytes: int = 0
        # No document was ever longer.
        self._longest: i64 = 0
        self._next_id: int = 1
        self._blocks: dict[int, RecordBlock] = {}
        # The numbers of the blocks, ascending.
        self._numbers: list[int] = []
        # The block that was used last.
        self._near_number: i64 = -1
        self._near = _NO_RECORDS
        self._default = SortedBlocks()
        self._own = SortedBlocks()
        # Only blocks of this epoch may be changed.
        self._epoch: i64 = units.next_epoch()
        # What a saved state has and the records still are: the first change forks them.
        self._saved: RecordContents | None = None
        # Of what they were forked from, while nothing was forked from them.
        self._origin: Lifetime | None = None
        # The second of the last new record, and the number object that records of that second share.
        self._second: int = 0
        self._second_object: object = 0

    def save(self) -> RecordContents:
        """The records as they are now, with one more holder."""
        saved = self._saved
        if saved is None:
            saved = self._contents()
            self._saved = saved
        saved.holders += 1
        return saved

    def restore(self, contents: RecordContents) -> bool:
        """Makes the records, and the id of the next one, those of a saved state; whether they may have changed."""
        if contents is self._saved:
            return False
        self._units.release(self._contents())
        self._take(contents)
        contents.holders += 1
        self._saved = contents
        return True

    def _contents(self) -> RecordContents:
        saved = self._saved
        if saved is None:
            saved = RecordContents(self._blocks, self._numbers, self._default, self._own, self._epoch)
            saved.next_id = self._next_id
            saved.count = self._count
            saved.total_bytes = self._size_bytes
            saved.longest = self._longest
            saved.origin = self._origin
            saved.holders = 1
        return saved

    def _take(self, contents: RecordContents) -> None:
        self._blocks = contents.blocks
        self._numbers = contents.numbers
        self._default = contents.default
        self._own = contents.own
        self._next_id = contents.next_id
        self._count = contents.count
        self._size_bytes = contents.total_bytes
        self._longest = contents.longest
        self._near_number = -1
        self._near = _NO_RECORDS

    def _fork(self, saved: RecordContents) -> None:
        """Before the first change after the records were saved or restored."""
        self._saved = None
        self._origin = saved.become_origin()
        self._epoch = self._units.next_epoch()
        self._blocks = saved.blocks.copy()
        self._numbers = saved.numbers[:]
        self._default = saved.default.fork()
        self._own = saved.own.fork()
        saved.epoch = -1
        self._units.release(saved)

    def insert_records(self, records: list[NewRecord]) -> list[int]:
        self._units.require_unit()
        if not records:
            return []
        if self._saved is not None:
            self._fork(self._saved)
        first = self._next_id
        count = len(records)
        ids = list(range(first, first + count))
        id_objects = cast("list[object]", ids)
        made: list[object] = []
        due = DueEntries()
        size: i64 = 0
        longest = self._longest
        place: i64 = 0
        for row in cast("list[tuple[object, ...]]", records):
            document = cast(bytes, row[0])
            ts = cast(int, row[1])
            length: i64 = len(document)
            size += length
            if length > longest:
                longest = length
            made.append((id_objects[place], document, self._shared_second(ts, row[1]), row[2]))
            due.add(ids[place], ts, cast(int, row[2]))
            place += 1
        self._longest = longest
        self._put_due(due)
        self._append(first, made)
        self._units.note_ids(first, id_objects)
        self._next_id = first + count
        self._count += count
        self._size_bytes += size
        self._units.log(_UndoInsert(self, first, count))
        return ids

    def insert_record(self, document: bytes, ts: int, ttl: int) -> int:
        self._units.require_unit()
        if self._saved is not None:
            self._fork(self._saved)
        record_id = self._next_id
        self._longest = max(self._longest, len(document))
        id_object: object = record_id
        made: tuple[object, bytes, object, int] = (id_object, document, self._shared_second(ts, ts), ttl)
        due = DueEntries()
        due.add(record_id, ts, ttl)
        self._put_due(due)
        self._append(record_id, [made])
        self._units.note_ids(record_id, [id_object])
        self._next_id = record_id + 1
        self._count += 1
        self._size_bytes += len(document)
        self._units.log(_UndoInsert(self, record_id, 1))
        return record_id

    def update_records(self, old: list[Record], new: list[Record]) -> None:
        self._units.require_unit()
        if self._saved is not None:
            self._fork(self._saved)
        before: list[object] = []
        after: list[object] = []
        given = cast("list[object]", old)
        conflict = False
        for row in cast("list[tuple[object, ...]]", new):
            record_id: i64 = cast(int, row[0])
            block = self._block(record_id)
            place = (record_id - 1) & MASK
            held = block.get(place)
            expected = given[len(after)]
            if held is not expected and not _same_record(held, expected):
                conflict = True
                break
            made = self._shared(held, row)
            if block.epoch != self._epoch:
                block = self._copied_block(record_id, block)
            block.set(place, made)
            before.append(held)
            after.append(made)
        self._moved(before, after)
        self._units.log(_UndoUpdate(self, before, after))
        if conflict:
            raise self._units.conflict(f"a record to update in {self.ident} was changed or deleted")

    def update_record(self, old: Record, new: Record) -> None:
        """Without the lists of `update_records`, which take most of the time of a single update."""
        self._units.require_unit()
        if self._saved is not None:
            self._fork(self._saved)
        given: object = old
        row = cast("tuple[object, ...]", cast(object, new))
        record_id: i64 = cast(int, row[0])
        block = self._block(record_id)
        place = (record_id - 1) & MASK
        held = block.get(place)
        if held is not given and not _same_record(held, given):
            raise self._units.conflict(f"record {int(record_id)} of {self.ident} was changed or deleted")
        made = self._shared(held, row)
        if block.epoch != self._epoch:
            block = self._copied_block(record_id, block)
        block.set(place, made)
        self._replaced(held, made)
        self._units.log(_UndoUpdateOne(self, held, made))

    def delete_records(self, records: list[Record]) -> None:
        self._units.require_unit()
        if self._saved is not None:
            self._fork(self._saved)
        removed: list[object] = []
        conflict = False
        for row in cast("list[tuple[object, ...]]", records):
            record_id: i64 = cast(int, row[0])
            block = self._block(record_id)
            place = (record_id - 1) & MASK
            held = block.get(place)
            if held is not row and not _same_record(held, row):
                conflict = True
                break
            if block.epoch != self._epoch:
                block = self._copied_block(record_id, block)
            block.remove(place)
            if block.live == 0:
                self._drop_block(record_id)
            removed.append(held)
        self._gone(removed)
        self._units.log(_UndoDelete(self, removed))
        if conflict:
            raise self._units.conflict(f"a record to delete in {self.ident} was changed or deleted")

    def find_record(self, record_id: int) -> Record | None:
        self._units.require_open()
        return cast("Record | None", self.get(record_id))

    def find_records(self, record_ids: list[int], max_bytes: int = NO_BYTE_LIMIT) -> tuple[list[Record], int]:
        self._units.require_open()
        found: list[object] = []
        left: i64 = max_bytes
        taken: int = 0
        for record_id in record_ids:
            taken += 1
            record = self.get(record_id)
            if record is not None:
                found.append(record)
                left -= document_length(record)
                if left <= 0:
                    break
        return cast("list[Record]", found), taken

    def scan(
        self, after: int, limit: int, forward: bool = True, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[Record], bool]:
        self._units.require_open()
        found = self._scan_up(after, limit) if forward else self._scan_down(after, limit)
        more = len(found) >= limit
        if not self.fits(len(found), max_bytes):
            count = _count_within(found, max_bytes)
            if count < len(found):
                del found[count:]
                more = True
        return cast("list[Record]", found), more

    def count(self) -> int:
        self._units.require_open()
        return self._count

    def size_bytes(self) -> int:
        self._units.require_open()
        return self._size_bytes

    def due_entries(self, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int) -> list[DueEntry]:
        self._units.require_open()
        low = key_behind(after[0] - 1)
        keys, ids = self._due_blocks(index).slice(low, key_behind(until_s), (low, after[1]), limit, True)
        return [(second_of(keys[place]), ids[place]) for place in range(len(ids))]

    def due(self, index: ExpiryIndex, until_s: int, limit: int, max_bytes: int = NO_BYTE_LIMIT) -> list[Record]:
        self._units.require_open()
        _, ids = self._due_blocks(index).slice(b"", key_behind(until_s), None, limit, True)
        return self.find_records(ids, max_bytes)[0]

    def count_due(self, index: ExpiryIndex, until_s: int) -> int:
        self._units.require_open()
        return self._due_blocks(index).count(b"", key_behind(until_s))

    def count_due_after(
        self, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int
    ) -> tuple[int, DueEntry | None]:
        self._units.require_open()
        blocks = self._due_blocks(index)
        low = key_behind(after[0] - 1)
        high = key_behind(until_s)
        position = blocks.entry_behind(low, after[1] + 1, high, limit - 1)
        if position is None:
            return blocks.count_behind(low, after[1] + 1, high), None
        return limit, (second_of(position[0]), position[1])

    def due_seconds(self, index: ExpiryIndex, after_s: int, limit: int) -> list[int]:
        self._units.require_open()
        return [second_of(key) for key in self._due_blocks(index).distinct(key_behind(after_s), END, limit)]

    def _due_blocks(self, index: ExpiryIndex) -> SortedBlocks:
        return self._own if index is ExpiryIndex.BY_OWN else self._default

    def get(self, record_id: i64) -> object:
        """The record of that id, or None."""
        number = (record_id - 1) >> SHIFT
        if number == self._near_number:
            return self._near.get((record_id - 1) & MASK)
        block = self._blocks.get(int(number))
        if block is None:
            return None
        self._near = block
        self._near_number = number
        return block.get((record_id - 1) & MASK)

    def fits(self, count: i64, max_bytes: int) -> bool:
        """True if no `count` different records of the store can reach `max_bytes` together; False if they might."""
        return self._size_bytes < max_bytes or count * self._longest < max_bytes

    def fits_repeated(self, count: i64, max_bytes: int) -> bool:
        """`fits` for records that may be named more than once, as the entries of a multikey index name them."""
        return count * self._longest < max_bytes

    def estimated_bytes(self) -> int:
        return self._size_bytes + _RECORD_BYTES * self._count

    def is_small(self) -> bool:
        """Whether freeing it is fast."""
        return self._count <= SMALL_ROWS and self._size_bytes <= SMALL_BYTES

    def clear(self) -> None:
        """Releases the records. For dropped stores."""
        self.restore(RecordContents({}, [], SortedBlocks(), SortedBlocks(), -1))

    def undo_insert(self, first: int, count: int) -> None:
        removed: list[object] = []
        for record_id in range(first, first + count):
            held = self.get(record_id)
            block = self._block(record_id)
            block.remove((i64(record_id) - 1) & MASK)
            if block.live == 0:
                self._drop_block(record_id)
            removed.append(held)
        self._gone(removed)

    def undo_update(self, before: list[object], after: list[object]) -> None:
        for record in before:
            record_id = id_of(record)
            self._block(record_id).set((record_id - 1) & MASK, record)
        self._moved(after, before)

    def undo_update_one(self, before: object, after: object) -> None:
        record_id = id_of(before)
        self._block(record_id).set((record_id - 1) & MASK, before)
        self._replaced(after, before)

    def undo_delete(self, records: list[object]) -> None:
        due = DueEntries()
        for record in records:
            record_id = id_of(record)
            row = cast("tuple[object, ...]", record)
            self._make_block(record_id).add((record_id - 1) & MASK, record)
            due.add(record_id, cast(int, row[2]), cast(int, row[3]))
            self._size_bytes += len(cast(bytes, row[1]))
        self._put_due(due)
        self._count += len(records)

    def _scan_up(self, after: int, limit: int) -> list[object]:
        numbers = self._numbers
        number = after >> SHIFT
        start = after & MASK
        at = bisect_left(numbers, number)
        found: list[object] = []
        while at < len(numbers):
            if numbers[at] != number:
                start = 0
            part = self._blocks[numbers[at]].part(start, SIZE, limit - len(found))
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
        number = index >> SHIFT
        end = index & MASK
        at = bisect_left(numbers, number)
        if at >= len(numbers) or numbers[at] != number:
            at -= 1
            end = SIZE
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
            end = SIZE
        return found

    def _block(self, record_id: i64) -> RecordBlock:
        """The block of a record id; one without records if there is none."""
        number = (record_id - 1) >> SHIFT
        if number == self._near_number:
            return self._near
        block = self._blocks.get(int(number))
        if block is None:
            return _NO_RECORDS
        self._near = block
        self._near_number = number
        return block

    def _copied_block(self, record_id: i64, shared: RecordBlock) -> RecordBlock:
        """A copy of the block of a record id, which a saved state may have too, in its place."""
        number = (record_id - 1) >> SHIFT
        block = shared.copied(self._epoch)
        self._blocks[int(number)] = block
        if number == self._near_number:
            self._near = block
        return block

    def _make_block(self, record_id: i64) -> RecordBlock:
        """The block of a record id, to change it; a new one if there is none."""
        number = int((record_id - 1) >> SHIFT)
        block = self._blocks.get(number)
        if block is not None:
            if block.epoch != self._epoch:
                block = self._copied_block(record_id, block)
        else:
            block = RecordBlock(self._epoch)
            self._blocks[number] = block
            numbers = self._numbers
            if not numbers or numbers[-1] < number:
                numbers.append(number)
            else:
                insort(numbers, number)
        return block

    def _drop_block(self, record_id: i64) -> None:
        number = int((record_id - 1) >> SHIFT)
        del self._blocks[number]
        del self._numbers[bisect_left(self._numbers, number)]
        if number == self._near_number:
            self._near_number = -1
            self._near = _NO_RECORDS

    def _append(self, first: int, records: list[object]) -> None:
        """Adds records of new ids, which ascend without gaps."""
        count = len(records)
        done = 0
        while done < count:
            record_id = first + done
            place = (record_id - 1) & MASK
            room = SIZE - place
            part = records if done == 0 and count <= room else records[done : done + room]
            self._make_block(record_id).extend(place, part)
            done += len(part)

    def _shared(self, held: object, row: tuple[object, ...]) -> object:
        """A record as it will be kept: with the id and, where possible, the second that other records have."""
        kept: tuple[object, object, object, object] = (
            cast("tuple[object, ...]", held)[0],
            row[1],
            self._shared_second(cast(int, row[2]), row[2]),
            row[3],
        )
        return kept

    def _shared_second(self, second: int, number: object) -> object:
        """The number object of a second: that of the record before, if it is the same, since most records share it."""
        if second != self._second:
            self._second = second
            self._second_object = number
        return self._second_object

    def _put_due(self, due: DueEntries) -> None:
        due.sort()
        self._default.insert(due.default_keys, due.default_ids)
        self._own.insert(due.own_keys, due.own_ids)

    def _take_due(self, due: DueEntries) -> None:
        due.sort()
        self._default.remove(due.default_keys, due.default_ids)
        self._own.remove(due.own_keys, due.own_ids)

    def _gone(self, records: list[object]) -> None:
        """Updates counters and expiry indexes after records were removed from their blocks."""
        due = DueEntries()
        size: i64 = 0
        for record in records:
            row = cast("tuple[object, ...]", record)
            size += len(cast(bytes, row[1]))
            due.add(cast(int, row[0]), cast(int, row[2]), cast(int, row[3]))
        self._take_due(due)
        self._count -= len(records)
        self._size_bytes -= size

    def _moved(self, before: list[object], after: list[object]) -> None:
        """Updates counters and expiry indexes after records were replaced."""
        gone = DueEntries()
        fresh = DueEntries()
        growth: i64 = 0
        place: i64 = 0
        for record in before:
            old = cast("tuple[object, ...]", record)
            new = cast("tuple[object, ...]", after[place])
            place += 1
            length: i64 = len(cast(bytes, new[1]))
            if length > self._longest:
                self._longest = length
            growth += length - len(cast(bytes, old[1]))
            old_ts = cast(int, old[2])
            old_ttl = cast(int, old[3])
            new_ts = cast(int, new[2])
            new_ttl = cast(int, new[3])
            if old_ts != new_ts or old_ttl != new_ttl:
                record_id = cast(int, new[0])
                gone.add(record_id, old_ts, old_ttl)
                fresh.add(record_id, new_ts, new_ttl)
        # Remove before inserting: a record with another `_ts` and `ttl` may have the same entry again.
        self._take_due(gone)
        self._put_due(fresh)
        self._size_bytes += growth

    def _replaced(self, before: object, after: object) -> None:
        """Updates counters and expiry indexes after one record was replaced, as `_moved`."""
        old = cast("tuple[object, ...]", before)
        new = cast("tuple[object, ...]", after)
        length: i64 = len(cast(bytes, new[1]))
        if length > self._longest:
            self._longest = length
        self._size_bytes += length - len(cast(bytes, old[1]))
        old_ts = cast(int, old[2])
        old_ttl = cast(int, old[3])
        new_ts = cast(int, new[2])
        new_ttl = cast(int, new[3])
        if old_ts == new_ts and old_ttl == new_ttl:
            return
        rids = [cast(int, new[0])]
        # Removed first: a record with another `_ts` and `ttl` may have the same entry again.
        if old_ttl >= 0:
            (self._default if old_ttl == 0 else self._own).remove([second_key(old_ts + old_ttl)], rids)
        if new_ttl >= 0:
            (self._default if new_ttl == 0 else self._own).insert([second_key(new_ts + new_ttl)], rids)


def document_length(record: object) -> i64:
    return len(cast(bytes, cast("tuple[object, ...]", record)[1]))


def _count_within(records: list[object], max_bytes: i64) -> i64:
    """How many of the records are returned: up to the one whose document reaches `max_bytes`."""
    count: i64 = 0
    left = max_bytes
    for record in records:
        count += 1
        left -= document_length(record)
        if left <= 0:
            break
    return count


def _same_record(held: object, given: object) -> bool:
    """Whether the stored record, None if it is gone, is the one that the caller has read."""
    if held is None:
        return False
    stored = cast("tuple[object, ...]", held)
    row = cast("tuple[object, ...]", given)
    return (
        (stored[1] is row[1] or cast(bytes, stored[1]) == cast(bytes, row[1]))
        and cast(int, stored[2]) == cast(int, row[2])
        and cast(int, stored[3]) == cast(int, row[3])
    )


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


class _UndoUpdateOne(Undo):
    def __init__(self, store: MemoryRecordStore, before: object, after: object) -> None:
        self._store = store
        self._before = before
        self._after = after

    def undo(self) -> None:
        self._store.undo_update_one(self._before, self._after)


class _UndoDelete(Undo):
    def __init__(self, store: MemoryRecordStore, records: list[object]) -> None:
        self._store = store
        self._records = records

    def undo(self) -> None:
        self._store.undo_delete(self._records)
