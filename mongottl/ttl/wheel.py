"""A hierarchical timing wheel over whole seconds: which collections have documents due, and when.

Source: Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", 1987. A plain wheel is a ring of slots, one for
each
second: arming puts an entry into the slot of its second, and the hand, which points at the present second, empties each
slot that it reaches. Both cost O(1), in a heap O(log n). But a wheel for 68 years would need two thousand million
slots. So there are several levels: a slot of one level is as wide as the whole ring of the level below. An entry is put
into the coarsest level at which its slot differs from the hand's, and moves to a finer level when the hand enters its
slot (a cascade).

Here every level has 32 slots, so a level is one digit of the second written in base 32. An entry belongs to the level
of the highest digit in which its second differs from now, in the slot of that digit. So its second and now determine
its place; all operations keep this invariant.

    now = 2:10:05  (base 32: 2·1024 + 10·32 + 5 = 2373)

    level 2   0  1 [2] 3  4  …  31      one slot: 1024 s      3:00:07 is in slot 3
    level 1   0  …  9 [10] 11 …  31     one slot: 32 s        2:11:04 is in slot 11
    level 0   0  …  4 [5] 6  …  31      one slot: 1 s         2:10:06 and 2:10:31 are in the near block
                        │
                        └ the hand; all slots before it are empty

    advance to 2:11:02    level 1's slot 11 is entered and cascades: 2:11:04 moves to the near block.
                          The rest of block 2:10 is in the past, so 2:10:06 and 2:10:31 are due.
    advance to 2:11:04    2:11:04 is due.
    advance to 9:00:00    level 2's slots 3 to 9 are emptied: 3:00:07 is due. The 6,812 seconds are not visited singly.
    back to 8:31:31       all entries below level 2 (in 9:…) move to level 2's slot 9; the others are not moved.

Entries. An entry is a pair of a key (a collection) and a second, and exists once even if it is armed repeatedly. The 32
seconds of a level-0 ring are the bits of one word, bit i for second i, and cascades move words: a slot is a dict from
(word number, key), packed into one integer, to the word. So a collection with documents due in every second costs one
dict item for each 32 seconds. There is one level-0 ring, the near block, because only one word number can be that of
now; it also has the entries that were armed for a second in the past.

Time may go backwards: seconds that were returned are not returned again, all others keep their due second.

This module reads no clock, and does not depend on what a key means or whether a document is really expired.
"""

from typing import Final

from mypy_extensions import i64

# Bits of a base-32 digit. 32 seconds fill a word that is a small machine integer, and 8 digits reach beyond year 9999.
_DIGIT_BITS: Final = 5
_DIGIT_MASK: Final = 31
_SLOTS: Final = 32
# Levels above the near block: 7 digits hold the 33 bits of a word number.
_UPPER_LEVELS: Final = 7
# The last second that the wheel can represent, in year 10680.
MAX_DUE_S: Final = 2**38 - 1
# Packed word keys are (word number << _KEY_BITS | key): 33 + 28 bits, within what mypyc keeps unboxed.
_KEY_BITS: Final = 28
_KEY_MASK: Final = 2**28 - 1
MAX_KEY: Final = 2**28 - 1
# The minimum of an empty slot.
_NOTHING: Final = 2**60


class WheelEntries:
    """The entries of a wheel at one time, as `TimingWheel.saved` returns them."""

    def __init__(
        self, now_word: i64, slots: list[dict[int, int]], earliest: list[int], next_s: i64, entries: i64
    ) -> None:
        self.now_word: i64 = now_word
        self.slots = slots
        self.earliest = earliest
        self.next_s: i64 = next_s
        self.entries: i64 = entries


class TimingWheel:
    """A set of (key, second) pairs that returns them in the order of their seconds, when they are due.

    now_s: the present second. Keys are whole numbers from 0 to MAX_KEY. Seconds before 1970 count as 0, those after
    MAX_DUE_S (year 10680, which no clock reaches) as MAX_DUE_S.
    """

    def __init__(self, now_s: i64) -> None:
        self._now_word: i64 = _within_range(now_s) >> _DIGIT_BITS
        # Slot 0 is the near block, slot 1 + (level - 1) · 32 + digit one of an upper level. Index order is time order.
        self._slots: list[dict[int, int]] = [{} for _ in range(1 + _UPPER_LEVELS * _SLOTS)]
        self._earliest: list[int] = [_NOTHING for _ in range(1 + _UPPER_LEVELS * _SLOTS)]
        self._next_s: i64 = _NOTHING
        # The pair that was armed last: a batch of inserts arms the same pair repeatedly.
        self._last_key: i64 = -1
        self._last_s: i64 = -1
        self._entries: i64 = 0
        self._armed: i64 = 0
        self._returned: i64 = 0
        self._disarmed: i64 = 0
        self._cascaded: i64 = 0

    def arm(self, key: i64, due_s: i64) -> bool:
        """Adds (key, due_s), unless it is in the wheel; O(1).

        True if it is now the earliest of all, so that a task which sleeps until `next_due_s` must be woken. A second in
        the past is accepted, and is due at the next `advance_to` that is not before it. ValueError if the key is out of
        range.
        """
        if due_s == self._last_s and key == self._last_key:
            return False
        if key < 0 or key > MAX_KEY:
            raise ValueError(f"wheel keys are 0 to {MAX_KEY}, not {key}")
        due_s = _within_range(due_s)
        word: i64 = due_s >> _DIGIT_BITS
        bit: i64 = _shifted(1, due_s & _DIGIT_MASK)
        slot: i64 = self._slot_of(word)
        words = self._slots[slot]
        packed: i64 = word << _KEY_BITS | key
        bits: i64 = words.get(packed, 0)
        self._last_key = key
        self._last_s = due_s
        if bits & bit != 0:
            return False
        words[packed] = bits | bit
        self._entries += 1
        self._armed += 1
        if due_s < self._earliest[slot]:
            self._earliest[slot] = due_s
        if due_s < self._next_s:
            self._next_s = due_s
            return True
        return False

    def next_due_s(self) -> int | None:
        """The earliest second in the wheel, exactly; None if the wheel is empty. It may be in the past. O(1)."""
        if self._entries == 0:
            return None
        return int(self._next_s)

    def advance_to(self, now_s: i64) -> list[tuple[int, int]]:
        """Moves the hand to `now_s`, forwards or backwards, and removes all entries whose second is not after it.

        The removed entries, [(second, key), …], in ascending order. The cost does not depend on the distance: a word is
        moved at most once in each level, and in the near block once for each second in which it has a due entry.
        """
        now_s = _within_range(now_s)
        word: i64 = now_s >> _DIGIT_BITS
        if word != self._now_word:
            self._turn_to(word)
        due: list[tuple[int, int]] = []
        if now_s >= self._next_s:
            # By the invariant, everything not after now is in the near block.
            self._take_due(now_s, due)
            self._find_next()
        return due

    def disarm_all(self, key: i64) -> int:
        """Removes all entries of a key; how many they were.

        Reads every word of the wheel, a few ms for 100,000. Callers need not call it: an entry of a key that has no
        documents any more only takes memory until it is due. So a command that drops many collections may omit it.
        """
        found: i64 = 0
        for slot, words in enumerate(self._slots):
            doomed: list[int] = [packed for packed in words if packed & _KEY_MASK == key]
            if not doomed:
                continue
            for packed in doomed:
                found += _bit_count(words.pop(packed))
            self._earliest[slot] = _earliest_of(words)
            if not words:
                self._slots[slot] = {}  # A dict that is emptied keeps its memory.
        self._entries -= found
        self._disarmed += found
        self._last_key = -1
        self._find_next()
        return int(found)

    def saved(self) -> WheelEntries:
        """A copy of the entries, for `restore`. Copies every word, a millisecond for 100,000."""
        slots = [words.copy() if words else {} for words in self._slots]
        return WheelEntries(self._now_word, slots, self._earliest[:], self._next_s, self._entries)

    def restore(self, saved: WheelEntries) -> None:
        """Makes the entries and the hand those of a copy; `advance_to` then turns to the present."""
        self._now_word = saved.now_word
        self._slots = [words.copy() if words else {} for words in saved.slots]
        self._earliest = saved.earliest[:]
        self._next_s = saved.next_s
        self._entries = saved.entries
        self._last_key = -1

    def __len__(self) -> int:
        """How many (key, second) pairs are in the wheel."""
        return int(self._entries)

    def statistics(self) -> dict[str, int | list[int]]:
        """Figures for `serverStatus`.

        entries, words: how many are in the wheel now; levels: its words by level, the near block first. armed, due,
        disarmed: entries that were added, became due and were removed since the start; cascaded: words moved between
        slots.
        """
        levels: list[int] = [len(self._slots[0])]
        for level in range(_UPPER_LEVELS):
            first = 1 + level * _SLOTS
            levels.append(sum([len(words) for words in self._slots[first : first + _SLOTS]]))
        return {
            "entries": int(self._entries),
            "words": sum(levels),
            "levels": levels,
            "armed": int(self._armed),
            "due": int(self._returned),
            "disarmed": int(self._disarmed),
            "cascaded": int(self._cascaded),
        }

    def _slot_of(self, word: i64) -> i64:
        """The slot to which a word number belongs, by the invariant for the present `now`."""
        if word <= self._now_word:
            return 0
        differing: i64 = word ^ self._now_word
        first: i64 = 1
        while differing > _DIGIT_MASK:
            differing >>= _DIGIT_BITS
            word >>= _DIGIT_BITS
            first += _SLOTS
        return first + (word & _DIGIT_MASK)

    def _turn_to(self, word: i64) -> None:
        """Moves the hand and restores the invariant.

        Let h be the highest digit in which the old and the new now differ. Words at higher levels differ from both in
        the same digit, and are not moved. Words at lower levels agree with the old now in digit h, so all of them are
        moved. At level h those are moved whose digit is not above that of the new now; going backwards there are none,
        since all words of that level are above the old now. Words of the near block are moved if they are no longer in
        the past.
        """
        differing: i64 = word ^ self._now_word
        last: i64 = 0  # The last slot to be emptied.
        digit_of: i64 = word
        while differing > _DIGIT_MASK:
            differing >>= _DIGIT_BITS
            digit_of >>= _DIGIT_BITS
            last += _SLOTS
        last += 1 + (digit_of & _DIGIT_MASK)
        backwards = word < self._now_word
        self._now_word = word
        slot: i64 = 0 if backwards else 1
        while slot <= last:
            words = self._slots[slot]
            if words:
                # Nothing moves within level h, so no word comes back to a slot that is still to be emptied, save near
                # ones; and slot 0 is emptied first.
                self._slots[slot] = {}
                self._earliest[slot] = _NOTHING
                for packed, bits in words.items():
                    self._put(packed, bits)
            slot += 1

    def _put(self, packed: i64, bits: i64) -> None:
        slot = self._slot_of(packed >> _KEY_BITS)
        self._slots[slot][packed] = bits
        self._cascaded += 1
        earliest_s = _first_second(packed, bits)
        if earliest_s < self._earliest[slot]:
            self._earliest[slot] = earliest_s

    def _take_due(self, now_s: i64, due: list[tuple[int, int]]) -> None:
        """Moves the entries of the near block that are not after now to `due`."""
        near = self._slots[0]
        kept: dict[int, int] = {}
        # In the word of now: the bits up to that of now.
        now_bit: i64 = _shifted(1, now_s & _DIGIT_MASK)
        reached: i64 = now_bit | (now_bit - 1)
        for packed, bits in near.items():
            waiting: i64 = i64(bits)
            key: i64 = i64(packed) & _KEY_MASK
            word: i64 = i64(packed) >> _KEY_BITS
            ripe: i64 = waiting
            if word == self._now_word:
                ripe = waiting & reached
                waiting ^= ripe
                if waiting != 0:
                    kept[packed] = waiting
            second: i64 = word << _DIGIT_BITS
            count: i64 = 0
            while ripe != 0:
                if ripe & 1 != 0:
                    due.append((second, key))
                    count += 1
                ripe >>= 1
                second += 1
            self._entries -= count
            self._returned += count
        self._slots[0] = kept
        self._earliest[0] = _earliest_of(kept)
        self._last_key = -1
        due.sort()

    def _find_next(self) -> None:
        """Finds the earliest second: all words of a slot are before those of later slots, so it is in the first slot
        that is not empty."""
        for earliest_s in self._earliest:
            if earliest_s != _NOTHING:
                self._next_s = earliest_s
                return
        self._next_s = _NOTHING


def _shifted(number: i64, places: i64) -> i64:
    # A function, because mypyc writes a constant on the left of `<<` as a 32-bit C int, even one that went through a
    # variable of its own: bit 31 of `1 << 31` would come out negative. As an argument it becomes 64 bits wide.
    return number << places


def _within_range(second: i64) -> i64:
    if second < 0:
        return 0
    if second > MAX_DUE_S:
        return MAX_DUE_S
    return second


def _first_second(packed: i64, bits: i64) -> i64:
    """The earliest second of a word, which is never empty."""
    second: i64 = packed >> _KEY_BITS << _DIGIT_BITS
    while bits & 1 == 0:
        bits >>= 1
        second += 1
    return second


def _earliest_of(words: dict[int, int]) -> i64:
    earliest: i64 = _NOTHING
    for packed, bits in words.items():
        second = _first_second(packed, bits)
        if second < earliest:
            earliest = second
    return earliest


def _bit_count(bits: i64) -> i64:
    count: i64 = 0
    while bits != 0:
        bits &= bits - 1
        count += 1
    return count
