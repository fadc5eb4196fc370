"""Records of a data folder that are kept in memory, as a scan has read them, so that the next one need not.

The records of a store are kept in blocks. A block has all records of a range of ids, so that a scan knows from it what
is there and what is not. Between two blocks there may be ids of which nothing is known; these are read from the
database, and then make a block or become part of the one before or after them:

    ids       1 … 512          513 … 1024          1025 … 1536     1537 … 1803
    blocks    low 0, high 512  low 512, high 1024  none            low 1536, high 1803

No record is above the largest id that was ever given, so a last block stays right when records are inserted, which
get larger ids. They are added to it if it reaches up to them.

Writes change the blocks as they change the rows, after these, and a rollback forgets each block that the unit of work
has changed. While a unit of work has written to a store, what is read from it is not added. So every block is what a
reading of its rows would give. Nothing here reads the database, and a checksum is looked at before a record is added.

All caches of an engine share one `CacheBudget`. When it is used up, a new block takes the place of one that was not
used while twice as many blocks as there are were read, else it is not kept. So of a collection that is larger than the
budget, and read again and again, a part stays; were the block given up that was used longest ago, none would.
docs/performance.md has what was measured.
"""

from bisect import bisect_left, bisect_right
from typing import Final, cast

from mypy_extensions import i64

from mongottl.document.untracked import untrack
from mongottl.storage.stores import MAX_RECORD_ID, FetchedEntry, KeyEntry, NewRecord, Record

# Records of a block, at most. Ranges without records can make it cover any number of ids.
_MOST_RECORDS: Final = 512
# Bytes of a block, unless one record has more: a block is given up at once.
_MOST_BYTES: Final = 256 * 1024
# What a record takes beside its document: the tuple, the number object of its id, the header of the bytes object and
# the place in the list; measured with documents of 150 and 300 bytes.
_RECORD_BYTES: Final = 184
_BLOCK_BYTES: Final = 400
# A block that would take more than this part of the budget is not kept.
_LARGEST_PART: Final = 8


class CachedBlock:
    """All records with low < id <= high.

    size_bytes: what it takes of the budget. document_bytes: the length of its documents. used_at: the budget's count of
    readings when it was read last. slot: its place in the budget's list; -1 if it was given up. changed: whether the
    open unit of work has changed it.
    """

    def __init__(self, cache: "RecordCache", low: i64, high: i64, records: list[object], document_bytes: i64) -> None:
        self.cache = cache
        self.low: i64 = low
        self.high: i64 = high
        self.records = records
        self.document_bytes: i64 = document_bytes
        self.used_at: i64 = 0
        self.slot: i64 = -1
        self.changed = False

    def size_bytes(self) -> i64:
        return _BLOCK_BYTES + self.document_bytes + _RECORD_BYTES * len(self.records)

    def place_after(self, record_id: i64) -> i64:
        """The place of the first record with a larger id."""
        records = self.records
        count: i64 = len(records)
        if record_id <= self.low or count == 0:
            return 0
        first = _id_of(records[0])
        if _id_of(records[count - 1]) - first == count - 1:
            return min(max(record_id - first + 1, 0), count)
        return bisect_left(cast("list[tuple[int, ...]]", records), (int(record_id + 1),))

    def place_of(self, record_id: i64) -> i64:
        """The place of the record with this id; -1 if there is none."""
        place = self.place_after(record_id) - 1
        if place >= 0 and _id_of(self.records[place]) == record_id:
            return place
        return -1


class CacheBudget:
    """The memory that the caches of all stores of an engine may take together.

    max_bytes: 0 keeps nothing. found, read: records that scans took from caches, and that were read for them.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes: i64 = max_bytes
        self.used_bytes: i64 = 0
        self.found: i64 = 0
        self.read: i64 = 0
        self.evicted: i64 = 0
        # How many blocks were read so far.
        self.readings: i64 = 0
        self._blocks: list[CachedBlock] = []
        # The place of the block that is looked at next.
        self._hand: i64 = 0

    def resize(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.shrink()

    def has_room(self, size_bytes: i64) -> bool:
        """Whether `size_bytes` more may be kept; gives up blocks for them that were not used for long."""
        if size_bytes > self.max_bytes // _LARGEST_PART:
            return False
        while self.used_bytes + size_bytes > self.max_bytes:
            block = self._at_hand()
            if self.readings - block.used_at <= 2 * len(self._blocks):
                self._hand += 1
                return False
            self._evict(block)
        return True

    def shrink(self) -> None:
        """Gives up blocks until no more than `max_bytes` are used."""
        while self.used_bytes > self.max_bytes and self._blocks:
            self._evict(self._at_hand())

    def add(self, block: CachedBlock) -> None:
        block.slot = len(self._blocks)
        block.used_at = self.readings
        self._blocks.append(block)
        self.used_bytes += block.size_bytes()

    def remove(self, block: CachedBlock) -> None:
        """Takes a block out; the last one gets its place."""
        self.used_bytes -= block.size_bytes()
        last = self._blocks.pop()
        if last is not block:
            self._blocks[block.slot] = last
            last.slot = block.slot
        block.slot = -1

    def statistics(self) -> dict[str, int]:
        return {
            "cache_bytes": int(self.used_bytes),
            "cache_found_records": int(self.found),
            "cache_read_records": int(self.read),
            "cache_evicted_blocks": int(self.evicted),
        }

    def _at_hand(self) -> CachedBlock:
        if self._hand >= len(self._blocks):
            self._hand = 0
        return self._blocks[self._hand]

    def _evict(self, block: CachedBlock) -> None:
        self.evicted += 1
        block.cache.forget(block)


class RecordCache:
    """The records of one store that are kept. count: how many there are."""

    def __init__(self, budget: CacheBudget) -> None:
        self._budget = budget
        self.count: int = 0
        # The blocks in the order of their ids, and where each begins.
        self._blocks: list[CachedBlock] = []
        self._lows: list[int] = []
        # The block of the last record that was looked up.
        self._near: CachedBlock | None = None
        # Those that the open unit of work has changed.
        self._changed: list[CachedBlock] = []

    def scan(self, position: i64, limit: i64, forward: bool, max_bytes: i64) -> tuple[list[Record], int, bool]:
        """The first records after an id, or with `forward=False` before it, from the blocks that follow each other.

        The second value: up to which id all are among them, or from which id on. The third: whether a limit was
        reached, `max_bytes` with the last record.
        """
        found: list[object] = []
        # The bytes of `found`.
        length: i64 = 0
        at: i64 = self._number_of(position + 1 if forward else position - 1)
        while at >= 0 and len(found) < limit:
            block = self._blocks[at]
            self._budget.readings += 1
            block.used_at = self._budget.readings
            if forward:
                start = block.place_after(position)
                end = min(i64(len(block.records)), start + limit - len(found))
                part = block.records[start:end]
                position = block.high
                at += 1
                if at == len(self._blocks) or self._blocks[at].low != position:
                    at = -1
            else:
                end = block.place_after(position - 1)
                start = max(i64(0), end - limit + len(found))
                part = block.records[start:end]
                part.reverse()
                position = block.low + 1
                at -= 1
                if at >= 0 and self._blocks[at].high != block.low:
                    at = -1
            length += block.document_bytes
            if not found:
                found = part
            else:
                found.extend(part)
        reached = len(found) >= limit
        if length >= max_bytes:
            count = _count_within(found, max_bytes)
            if count >= 0:
                del found[count:]
                reached = True
        self._budget.found += len(found)
        return cast("list[Record]", found), int(position), reached

    def covers(self, record_id: int) -> bool:
        """Whether it is known if there is a record of that id."""
        return self._block_of(record_id) is not None

    def end_of_gap(self, position: i64, forward: bool) -> int:
        """Of ids that are not kept from `position` on: the last before the next block, or with `forward=False` the
        first after it. Of the last gap MAX_RECORD_ID or 1."""
        at = bisect_left(self._lows, position if forward else position - 1)
        if forward:
            return self._lows[at] if at < len(self._lows) else MAX_RECORD_ID
        return int(self._blocks[at - 1].high) + 1 if at else 1

    def add(self, low: i64, high: i64, given: list[Record]) -> int:
        """Keeps records, which are all with low < id <= high, in ascending or descending order, if there is room; the
        length of their documents. No block has any of these ids."""
        records = cast("list[object]", given)
        length: i64 = 0
        for record in records:
            length += _length_of(record)
        budget = self._budget
        budget.readings += 1
        budget.read += len(records)
        size = _BLOCK_BYTES + length + _RECORD_BYTES * len(records)
        if not budget.has_room(size):
            return int(length)
        kept = records[:]
        if len(kept) > 1 and _id_of(kept[0]) > _id_of(kept[1]):
            kept.reverse()
        at: i64 = bisect_right(self._lows, low)
        self.count += len(kept)
        if at > 0:
            before = self._blocks[at - 1]
            if before.high == low and self._may_join(before, len(kept), length):
                before.records.extend(kept)
                before.high = high
                self._grow(before, length, len(kept))
                return int(length)
        if at < len(self._blocks):
            next_block = self._blocks[at]
            if next_block.low == high and self._may_join(next_block, len(kept), length):
                next_block.records[0:0] = kept
                next_block.low = low
                self._lows[at] = int(low)
                self._grow(next_block, length, len(kept))
                return int(length)
        self._insert(at, CachedBlock(self, low, high, kept, length))
        return int(length)

    def append(self, first: i64, records: list[NewRecord]) -> None:
        """Adds records that were inserted, with ids from `first` on, if all ids up to there are in the last block."""
        if not self._blocks:
            return
        last = self._blocks[len(self._blocks) - 1]
        if last.high != first - 1:
            return
        record_id: int = first
        made: list[object] = []
        length: i64 = 0
        for new in cast("list[tuple[object, ...]]", records):
            document = cast(bytes, new[0])
            length += len(document)
            record: tuple[object, object, object, object] = (record_id, document, new[1], new[2])
            made.append(record)
            record_id += 1
        count: i64 = len(made)
        high = first + count - 1
        if not self._budget.has_room(_BLOCK_BYTES + length + _RECORD_BYTES * count):
            return
        if last.slot < 0:
            return  # it was given up to make room
        self.count += len(made)
        if self._may_join(last, count, length):
            last.records.extend(made)
            last.high = high
            self._note_changed(last)
            self._grow(last, length, count)
        else:
            block = CachedBlock(self, first - 1, high, made, length)
            self._note_changed(block)
            self._insert(len(self._blocks), block)

    def find(self, record_id: i64) -> Record | None:
        """The record of an id; None if it is not kept, or if there is none."""
        block = self._block_of(record_id)
        if block is None:
            return None
        place = block.place_of(record_id)
        if place < 0:
            return None
        block.used_at = self._budget.readings
        return cast("Record | None", block.records[place])

    def find_all(self, record_ids: list[int], max_bytes: i64) -> tuple[list[Record], int] | None:
        """As `RecordStore.find_records`; None if some of the ids are not kept."""
        found: list[object] = []
        left = max_bytes
        taken: int = 0
        for record_id in record_ids:
            block = self._block_of(record_id)
            if block is None:
                return None
            taken += 1
            place = block.place_of(record_id)
            if place >= 0:
                record = block.records[place]
                block.used_at = self._budget.readings
                found.append(record)
                left -= _length_of(record)
                if left <= 0:
                    break
        return cast("list[Record]", found), taken

    def fetch(self, entries: list[KeyEntry], max_bytes: i64) -> tuple[list[FetchedEntry], bool] | None:
        """Index entries with their records, up to the one whose document reaches `max_bytes`; whether one does. None if
        some of the records are not kept, or missing."""
        found: list[object] = []
        left = max_bytes
        for entry in cast("list[tuple[object, ...]]", entries):
            record_id: i64 = cast(int, entry[1])
            block = self._block_of(record_id)
            place = -1 if block is None else block.place_of(record_id)
            if block is None or place < 0:
                return None
            record = cast("tuple[object, ...]", block.records[place])
            block.used_at = self._budget.readings
            fetched: tuple[object, object, object, object, object] = (
                entry[0],
                record[0],
                record[1],
                record[2],
                record[3],
            )
            found.append(fetched)
            left -= len(cast(bytes, record[1]))
            if left <= 0:
                return cast("list[FetchedEntry]", found), True
        return cast("list[FetchedEntry]", found), False

    def has(self, records: list[Record]) -> bool:
        """Whether all these records are kept like this, and so are stored like this."""
        for record in cast("list[object]", records):
            record_id = _id_of(record)
            block = self._block_of(record_id)
            if block is None:
                return False
            place = block.place_of(record_id)
            if place < 0:
                return False
            kept = block.records[place]
            if kept is not record and kept != record:
                return False
        return True

    def update(self, records: list[Record]) -> None:
        """Notes that records were replaced by these, which have the same ids."""
        for record in cast("list[object]", records):
            record_id = _id_of(record)
            block = self._block_of(record_id)
            if block is None:
                continue
            place = block.place_of(record_id)
            if place < 0:
                self._note_changed(block)
                self.forget(block)  # never so, unless the row appeared by damage
                continue
            growth = _length_of(record) - _length_of(block.records[place])
            block.records[place] = record
            self._note_changed(block)
            self._grow(block, growth, 0)

    def remove(self, records: list[Record]) -> None:
        """Notes that records were deleted."""
        for record in cast("list[object]", records):
            record_id = _id_of(record)
            block = self._block_of(record_id)
            if block is None:
                continue
            place = block.place_of(record_id)
            if place < 0:
                continue
            length = _length_of(block.records[place])
            del block.records[place]
            self.count -= 1
            self._note_changed(block)
            self._grow(block, -length, -1)
            if not block.records:
                self._join_empty(block)

    def settle(self) -> None:
        """Notes that the unit of work was committed."""
        for block in self._changed:
            block.changed = False
        self._changed = []

    def undo(self) -> None:
        """Forgets what the unit of work has changed, which is rolled back."""
        changed = self._changed
        self._changed = []
        for block in changed:
            block.changed = False
            self.forget(block)

    def forget_after(self, record_id: i64, count: i64) -> None:
        """Forgets the blocks of the first `count` records with larger ids."""
        while count > 0:
            at = bisect_right(self._lows, int(record_id)) - 1
            if at < 0 or self._blocks[at].high <= record_id:
                at += 1
            if at == len(self._blocks):
                return
            block = self._blocks[at]
            count -= len(block.records)
            self.forget(block)

    def clear_some(self, count: i64) -> bool:
        """Forgets about `count` records, the last ones; whether there are more."""
        while count > 0 and self._blocks:
            block = self._blocks[len(self._blocks) - 1]
            count -= len(block.records) + 1
            self.forget(block)
        return len(self._blocks) > 0

    def clear(self) -> None:
        """Forgets all records."""
        for block in self._blocks:
            self._budget.remove(block)
        self._blocks = []
        self._lows = []
        self._near = None
        self._changed = []
        self.count = 0

    def forget(self, block: CachedBlock) -> None:
        """Gives up a block, unless it was given up before."""
        if block.slot < 0:
            return
        self._budget.remove(block)
        self._take_out(block)
        self.count -= len(block.records)

    def _block_of(self, record_id: i64) -> CachedBlock | None:
        """The block to whose range an id belongs."""
        near = self._near
        if near is not None and near.low < record_id <= near.high:
            return near
        at = bisect_left(self._lows, record_id) - 1
        if at < 0:
            return None
        block = self._blocks[at]
        if block.high < record_id:
            return None
        self._near = block
        return block

    def _number_of(self, record_id: i64) -> i64:
        """The place of the block to whose range an id belongs; -1 if there is none."""
        at: i64 = bisect_left(self._lows, int(record_id)) - 1
        return at if at >= 0 and self._blocks[at].high >= record_id else -1

    def _may_join(self, block: CachedBlock, count: i64, document_bytes: i64) -> bool:
        """Whether `count` more records may become part of a block."""
        return (
            len(block.records) + count <= _MOST_RECORDS
            and block.size_bytes() + document_bytes + _RECORD_BYTES * count <= _MOST_BYTES
        )

    def _insert(self, at: i64, block: CachedBlock) -> None:
        untrack(block.records)
        self._blocks.insert(at, block)
        self._lows.insert(at, int(block.low))
        self._budget.add(block)

    def _take_out(self, block: CachedBlock) -> None:
        at = bisect_left(self._lows, int(block.low))
        del self._blocks[at]
        del self._lows[at]
        if self._near is block:
            self._near = None

    def _grow(self, block: CachedBlock, document_bytes: i64, records: i64) -> None:
        """Counts what a block has more, or less, after its list was changed."""
        block.document_bytes += document_bytes
        self._budget.used_bytes += document_bytes + _RECORD_BYTES * records
        self._budget.shrink()

    def _note_changed(self, block: CachedBlock) -> None:
        if not block.changed:
            block.changed = True
            self._changed.append(block)

    def _join_empty(self, block: CachedBlock) -> None:
        """Makes the range of a block that has become empty a part of the next one, or of the one before."""
        at = bisect_left(self._lows, int(block.low))
        next_block = self._blocks[at + 1] if at + 1 < len(self._blocks) else None
        before = self._blocks[at - 1] if at > 0 else None
        if next_block is not None and next_block.low == block.high:
            self._note_changed(next_block)
            self.forget(block)
            next_block.low = block.low
            self._lows[at] = int(block.low)
        elif before is not None and before.high == block.low:
            self._note_changed(before)
            self.forget(block)
            before.high = block.high


def _id_of(record: object) -> i64:
    return cast(int, cast("tuple[object, ...]", record)[0])


def _length_of(record: object) -> i64:
    return len(cast(bytes, cast("tuple[object, ...]", record)[1]))


def _count_within(records: list[object], max_bytes: i64) -> i64:
    """How many of the records are returned, if there is one whose document reaches `max_bytes`; else -1."""
    count: i64 = 0
    left = max_bytes
    for record in records:
        count += 1
        left -= _length_of(record)
        if left <= 0:
            return count
    return -1
