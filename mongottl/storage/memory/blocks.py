"""Ordered entries (key, record id) in blocks: what sorted data and the expiry indexes are made of.

    lows   (a, 1)        (f, 7)      (f, 90)     ...      where each block begins, for the first search
    keys   [a, b, b, e]  [f, f, f]   [f, k, m]   ...      a list a block
    rids   [1, 4, 5, 2]  [7, 8, 89]  [90, 3, 9]  ...      an array of 8-byte numbers a block

An entry is found by two binary searches, and inserted by moving the rest of its block, which is short. If the last
block is full, a new one is added after it, so that ascending keys fill blocks completely; any other full block is
split. Neighbouring entries of a batch are inserted or removed together, so that a batch of ascending keys costs little
more than copying it. Record ids are stored in arrays because Python number objects would take four times the memory.

The low of a block is at or below its first entry, and above the last entry of the block before it; removing the first
entry does not change the low. No block is empty.

`fork` makes a second object with the same entries in the time of copying the lists of blocks. Both share the blocks
from then on, and each copies a block before it first changes it.
"""

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from mongottl.document.untracked import untrack

# The largest number of entries in a block.
BLOCK: Final = 256
# The largest number of entries in each part of a block that is split.
_SPLIT: Final = 192
# A block with fewer entries is merged with its neighbour if both together have no more than _SPLIT.
_SMALL: Final = 32
# How far after an entry the next one of a batch is looked for first.
_NEAR: Final = 24
# Entries up to which comparing one by one costs no more than comparing slices.
_LOOP: Final = 4


class SortedBlocks:
    """length: the number of entries."""

    def __init__(self) -> None:
        self.length: int = 0
        self._keys: list[list[bytes]] = []
        self._rids: list[array[int]] = []
        self._low_keys: list[bytes] = []
        self._low_rids: list[int] = []
        # For each block whether it belongs to this object alone (1) or may be shared (0); None if all are its own.
        self._owned: bytearray | None = None

    def fork(self) -> "SortedBlocks":
        """Another object with the same entries."""
        fork = SortedBlocks()
        fork.length = self.length
        fork._keys = self._keys[:]
        fork._rids = self._rids[:]
        fork._low_keys = self._low_keys[:]
        fork._low_rids = self._low_rids[:]
        fork._owned = bytearray(len(self._keys))
        self._owned = bytearray(len(self._keys))
        return fork

    def insert(self, keys: list[bytes], rids: list[int]) -> list[int]:
        """Adds entries, given as parallel lists; the places in these lists of entries that existed already."""
        present: list[int] = []
        count = len(keys)
        if count == 0:
            return present
        if not self._keys:
            self._add_block(0, [keys[0]], array("q", [rids[0]]))
            self.length += 1
            if count == 1:
                return present
            start = 1
        else:
            start = 0
        number = 0
        place = 0
        # Whether the entry before was inserted at `place` of block `number`: the next one often belongs near it.
        near = False
        while start < count:
            key = keys[start]
            rid = rids[start]
            last = len(self._keys) - 1
            held = self._keys[last]
            held_rids = self._rids[last]
            if held[-1] < key or (held_rids[-1] < rid and held[-1] == key):
                number = last
                place = len(held)
            else:
                if near and self._is_ahead(keys, rids, start, number, place):
                    held = self._keys[number]
                    held_rids = self._rids[number]
                    place = _place_behind(held, held_rids, key, rid, place)
                else:
                    number = self._block_of(key, rid)
                    held = self._keys[number]
                    held_rids = self._rids[number]
                    place = _place(held, held_rids, key, rid)
                near = True
                if place < len(held) and held_rids[place] == rid and held[place] == key:
                    present.append(start)
                    start += 1
                    continue
            if self._owned is not None:
                self._own(number)
                held = self._keys[number]
                held_rids = self._rids[number]
            end = start + 1
            if end < count:
                end = self._run_end(keys, rids, end, number, place)
            if end == start + 1:
                if place > 0 and held[place - 1] == key:
                    key = held[place - 1]  # one object for all equal keys
                held.insert(place, key)
                held_rids.insert(place, rid)
            elif place == len(held):
                held.extend(keys[start:end])
                held_rids.extend(array("q", rids[start:end]))
            else:
                held[place:place] = keys[start:end]
                held_rids[place:place] = array("q", rids[start:end])
            if place == 0 and number == 0:
                self._low_keys[0] = held[0]
                self._low_rids[0] = rid
            self.length += end - start
            place += end - start
            if len(held) > BLOCK:
                self._split(number)
                near = False
            start = end
        return present

    def remove(self, keys: list[bytes], rids: list[int]) -> list[int]:
        """Removes entries, given as parallel lists; the places in these lists of entries that did not exist."""
        absent: list[int] = []
        count = len(keys)
        start = 0
        number = 0
        place = 0
        # Whether the entry before was found, at `place` of block `number`: the next one is often near it.
        near = False
        while start < count:
            key = keys[start]
            rid = rids[start]
            if not self._keys:
                absent.append(start)
                start += 1
                continue
            if near and self._is_ahead(keys, rids, start, number, place):
                held = self._keys[number]
                held_rids = self._rids[number]
                place = _place_behind(held, held_rids, key, rid, place)
            else:
                number = self._block_of(key, rid)
                held = self._keys[number]
                held_rids = self._rids[number]
                place = _place(held, held_rids, key, rid)
            if place >= len(held) or held_rids[place] != rid or held[place] != key:
                absent.append(start)
                start += 1
                near = False
                continue
            if self._owned is not None:
                self._own(number)
                held = self._keys[number]
                held_rids = self._rids[number]
            end = start + _equal_run(held, held_rids, place, keys, rids, start)
            stop = place + end - start
            if end == start + 1:
                del held[place]
                del held_rids[place]
            else:
                del held[place:stop]
                del held_rids[place:stop]
            self.length -= end - start
            near = len(held) >= _SMALL
            if not near:
                self._merge(number)
            start = end
        return absent

    def slice(
        self, low: bytes, high: bytes, after: tuple[bytes, int] | None, limit: int, forward: bool
    ) -> tuple[list[bytes], list[int]]:
        """Keys and record ids of up to `limit` entries with low <= key < high, after `after`, as parallel lists."""
        if not self._keys or limit <= 0:
            return [], []
        if forward:
            return self._slice_up(low, high, after, limit)
        return self._slice_down(low, high, after, limit)

    def _slice_up(
        self, low: bytes, high: bytes, after: tuple[bytes, int] | None, limit: int
    ) -> tuple[list[bytes], list[int]]:
        if after is None:
            number, place = self._seek(low, 0)
        else:
            number, place = self._seek(after[0], after[1] + 1)
        keys: list[bytes] = []
        rids: list[int] = []
        while number < len(self._keys):
            held = self._keys[number]
            end = min(len(held), place + limit - len(keys))
            ended = False
            if end > place:
                if held[end - 1] >= high:
                    end = bisect_left(held, high, place, end)
                    ended = True
                part = held[place:end]
                part_rids: list[int] = self._rids[number][place:end].tolist()
                if not keys:
                    keys = part
                    rids = part_rids
                else:
                    keys.extend(part)
                    rids.extend(part_rids)
            if ended or len(keys) >= limit:
                break
            number += 1
            place = 0
        return keys, rids

    def _slice_down(
        self, low: bytes, high: bytes, after: tuple[bytes, int] | None, limit: int
    ) -> tuple[list[bytes], list[int]]:
        if after is None:
            number, place = self._seek(high, 0)
        else:
            number, place = self._seek(after[0], after[1])
        keys: list[bytes] = []
        rids: list[int] = []
        while True:
            held = self._keys[number]
            start = max(0, place - limit + len(keys))
            ended = False
            if start < place:
                if held[start] < low:
                    start = bisect_left(held, low, start, place)
                    ended = True
                part = held[start:place]
                part.reverse()
                part_rids: list[int] = self._rids[number][start:place].tolist()
                part_rids.reverse()
                if not keys:
                    keys = part
                    rids = part_rids
                else:
                    keys.extend(part)
                    rids.extend(part_rids)
            if ended or number == 0 or len(keys) >= limit:
                break
            number -= 1
            place = len(self._keys[number])
        return keys, rids

    def find(self, key: bytes) -> list[int]:
        """The record ids under a key, ascending."""
        rids: list[int] = []
        if not self._keys:
            return rids
        number, place = self._seek(key, 0)
        while number < len(self._keys):
            held = self._keys[number]
            end = place
            if place < len(held) and held[place] == key:
                end = bisect_right(held, key, place)
                rids.extend(self._rids[number][place:end])
            if end < len(held):
                break
            number += 1
            place = 0
        return rids

    def count(self, low: bytes, high: bytes) -> int:
        """How many entries there are with low <= key < high; takes a step for each block of them."""
        return self.count_behind(low, 0, high)

    def count_behind(self, low: bytes, rid: int, high: bytes) -> int:
        """How many entries there are at or above (low, rid) with key < high; takes a step for each block of them."""
        if not self._keys or low >= high:
            return 0
        number, place = self._seek(low, rid)
        last, end = self._seek(high, 0)
        total = end - place
        while number < last:
            total += len(self._keys[number])
            number += 1
        return total

    def entry_behind(self, key: bytes, rid: int, high: bytes, entries: int) -> tuple[bytes, int] | None:
        """The entry `entries` places after the first one at or above (key, rid), if its key is below `high`."""
        if not self._keys or key >= high:
            return None
        number, place = self._seek(key, rid)
        left = entries
        while number < len(self._keys):
            held = self._keys[number]
            there = len(held) - place
            if left < there:
                found = held[place + left]
                return (found, self._rids[number][place + left]) if found < high else None
            left -= there
            number += 1
            place = 0
        return None

    def distinct(self, low: bytes, high: bytes, limit: int) -> list[bytes]:
        """Up to `limit` different keys with low <= key < high, ascending; takes a search for each of them."""
        found: list[bytes] = []
        if not self._keys:
            return found
        number, place = self._seek(low, 0)
        while len(found) < limit:
            if place >= len(self._keys[number]):
                number += 1
                place = 0
                if number >= len(self._keys):
                    break
            held = self._keys[number]
            key = held[place]
            if key >= high:
                break
            found.append(key)
            if held[-1] != key:
                place = bisect_right(held, key, place)
            else:
                # The last block that begins with the key or below it.
                number = bisect_right(self._low_keys, key) - 1
                place = bisect_right(self._keys[number], key)
        return found

    def drop(self, limit: int) -> bool:
        """Frees about `limit` entries from the end; whether any are left."""
        while limit > 0 and self._keys:
            held = self._keys[-1]
            count = len(held)
            if count > limit and (self._owned is None or self._owned[len(self._keys) - 1]):
                del held[count - limit :]
                del self._rids[-1][count - limit :]
                self.length -= limit
                return True
            self._keys.pop()
            self._rids.pop()
            self._low_keys.pop()
            self._low_rids.pop()
            if self._owned is not None:
                self._owned.pop()
            self.length -= count
            limit -= count
        return bool(self._keys)

    def leave_shared(self) -> None:
        """Keeps only the blocks that belong to this object alone, to be dropped."""
        owned = self._owned
        if owned is None:
            return
        places: list[int] = []
        place = owned.find(1)
        while place >= 0:
            places.append(place)
            place = owned.find(1, place + 1)
        self._keys = [self._keys[place] for place in places]
        self._rids = [self._rids[place] for place in places]
        self._low_keys = [self._low_keys[place] for place in places]
        self._low_rids = [self._low_rids[place] for place in places]
        self._owned = None
        self.length = sum([len(keys) for keys in self._keys])

    def _seek(self, key: bytes, rid: int) -> tuple[int, int]:
        """Block and place of the first entry at or after (key, rid); the place may be one after the block's last."""
        number = self._block_of(key, rid)
        return number, _place(self._keys[number], self._rids[number], key, rid)

    def _block_of(self, key: bytes, rid: int) -> int:
        """The block in which (key, rid) stands, or belongs."""
        lows = self._low_keys
        number = bisect_right(lows, key) - 1
        if number < 0:
            return 0
        if self._low_rids[number] > rid and lows[number] == key:
            first = bisect_left(lows, key, 0, number)
            number = bisect_right(self._low_rids, rid, first, number + 1) - 1
            return max(number, 0)
        return number

    def _is_ahead(self, keys: list[bytes], rids: list[int], start: int, number: int, place: int) -> bool:
        """Whether entry `start` is above the one before, and stands at or after `place` of the block if anywhere."""
        held = self._keys[number]
        if place >= len(held):
            return False
        key = keys[start]
        before = keys[start - 1]
        last = held[-1]
        return (before < key or (rids[start - 1] < rids[start] and before == key)) and (
            key < last or (key == last and rids[start] <= self._rids[number][-1])
        )

    def _run_end(self, keys: list[bytes], rids: list[int], end: int, number: int, place: int) -> int:
        """How far the entries from `end` - 1 on ascend before the entry that is at `place`, or after it."""
        count = len(keys)
        held = self._keys[number]
        if place < len(held):
            next_key = held[place]
            next_rid = self._rids[number][place]
        elif number + 1 < len(self._keys):
            next_key = self._low_keys[number + 1]
            next_rid = self._low_rids[number + 1]
        else:
            key = keys[end - 1]
            while end < count:
                following = keys[end]
                if not (key < following or (rids[end - 1] < rids[end] and key == following)):
                    break
                key = following
                end += 1
            return end
        key = keys[end - 1]
        while end < count:
            following = keys[end]
            if not (key < following or (rids[end - 1] < rids[end] and key == following)):
                break
            if not (following < next_key or (rids[end] < next_rid and following == next_key)):
                break
            key = following
            end += 1
        return end

    def _add_block(self, number: int, keys: list[bytes], rids: "array[int]") -> None:
        untrack(keys)
        self._keys.insert(number, keys)
        self._rids.insert(number, rids)
        self._low_keys.insert(number, keys[0])
        self._low_rids.insert(number, rids[0])
        if self._owned is not None:
            self._owned.insert(number, 1)

    def _own(self, number: int) -> None:
        """Copies a block that may be shared, before it is changed."""
        owned = self._owned
        if owned is None or owned[number]:
            return
        keys = self._keys[number][:]
        untrack(keys)
        self._keys[number] = keys
        self._rids[number] = self._rids[number][:]
        owned[number] = 1

    def _split(self, number: int) -> None:
        """Cuts a block that has become too long."""
        keys = self._keys[number]
        rids = self._rids[number]
        count = len(keys)
        if number == len(self._keys) - 1:
            size = BLOCK
        else:
            parts = -(-count // _SPLIT)
            size = -(-count // parts)
        start = size
        while start < count:
            number += 1
            self._add_block(number, keys[start : start + size], rids[start : start + size])
            start += size
        del keys[size:]
        del rids[size:]

    def _merge(self, number: int) -> None:
        """Removes a block that has become empty, or puts a small one together with its neighbour."""
        keys = self._keys[number]
        if keys:
            if number + 1 == len(self._keys):
                if number == 0:
                    return
                number -= 1
            if len(self._keys[number]) + len(self._keys[number + 1]) > _SPLIT:
                return
            self._own(number)
            self._keys[number].extend(self._keys[number + 1])
            self._rids[number].extend(self._rids[number + 1])
            number += 1
        del self._keys[number]
        del self._rids[number]
        del self._low_keys[number]
        del self._low_rids[number]
        if self._owned is not None:
            del self._owned[number]


def _place(keys: list[bytes], rids: "array[int]", key: bytes, rid: int) -> int:
    """The place in a block of the first entry at or after (key, rid)."""
    if keys[0] == key and keys[-1] == key:
        return bisect_left(rids, rid)
    place = bisect_left(keys, key)
    if place < len(keys) and rids[place] < rid and keys[place] == key:
        return bisect_left(rids, rid, place, bisect_right(keys, key, place))
    return place


def _place_behind(keys: list[bytes], rids: "array[int]", key: bytes, rid: int, place: int) -> int:
    """The place in a block of the first entry at or after (key, rid), which is at or after `place` and probably
    near."""
    near = place + _NEAR
    if keys[place] == key and keys[-1] == key:
        if near >= len(keys) or rids[near] < rid:
            near = len(keys)
        return bisect_left(rids, rid, place, near)
    if near >= len(keys) or keys[near] < key:
        near = len(keys)
    place = bisect_left(keys, key, place, near)
    if place < len(keys) and rids[place] < rid and keys[place] == key:
        return bisect_left(rids, rid, place, bisect_right(keys, key, place))
    return place


def _equal_run(
    held: list[bytes], held_rids: "array[int]", place: int, keys: list[bytes], rids: list[int], start: int
) -> int:
    """How many entries of a block from `place` on are those of the lists from `start` on; the first one is."""
    most = min(len(held) - place, len(keys) - start)
    if most == 1 or held_rids[place + 1] != rids[start + 1]:
        return 1
    if (
        most > _LOOP
        and held[place : place + most] == keys[start : start + most]
        and held_rids[place : place + most] == array("q", rids[start : start + most])
    ):
        return most
    length = 1
    while length < most:
        if held_rids[place + length] != rids[start + length] or held[place + length] != keys[start + length]:
            break
        length += 1
    return length
