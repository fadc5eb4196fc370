"""Values without duplicates, which take up and give back room for a million of them in small steps."""

from typing import Final, final

from mypy_extensions import i64

from mongottl.document.collation import Collation
from mongottl.document.freeing import LONG, LongList, LongSet
from mongottl.document.interrupt import give_way
from mongottl.document.keystring import encode_value
from mongottl.document.memory_size import size_of
from mongottl.document.sorting import sorted_by_keys
from mongottl.document.types import Value

# The most keys that are in one set of Python's. It makes room for them in 5 to 15 ms; for a million it would take 30 to
# 80. In one set all keys are found sooner than in several.
_MOST_AT_ONCE: Final = 262_144
# Among how many sets more keys are divided. What all of them begin with should stay in the processor's caches.
_PARTS: Final[i64] = 64


@final
class ValueSet:
    """Values of which those that compare equal count once: the first stays.

    The values and their KeyStrings are in lists, in the order in which they came; sets of Python's say which keys there
    are. What is too long for one set is divided by the hash of the key. As `LongSet`s and `LongList`s they are freed in
    slices, and the garbage collector does not examine them.

    Numbers are not their own keys, though that would be shorter: whoever knows Python's hash of numbers, which is the
    same everywhere, can send such as take milliseconds to be found each. That of bytes is another in each process.
    """

    __slots__ = ("_collation", "_keys", "_one", "_parts", "_values")

    def __init__(self, collation: Collation | None) -> None:
        self._collation: Final = collation
        self._values: list[Value] = []
        self._keys: list[bytes] = []
        self._one: set[bytes] = set()
        self._parts: list[set[bytes]] | None = None

    def __len__(self) -> int:
        """The number of values."""
        return len(self._values)

    def _part(self, key: bytes) -> set[bytes]:
        """The set that has a key, if there is one."""
        parts = self._parts
        if parts is None:
            return self._one
        place: i64 = i64(hash(key)) & (_PARTS - 1)
        return parts[place]

    def _put(self, key: bytes, value: Value) -> bool:
        part = self._part(key)
        before = len(part)
        part.add(key)
        if len(part) == before:
            return False
        self._keys.append(key)
        self._values.append(value)
        count = len(self._values)
        if count == LONG:
            self._lengthen()
        elif count == _MOST_AT_ONCE:
            self._divide()
        return True

    def _lengthen(self) -> None:
        """Makes the lists and the set such as are freed in slices."""
        self._values = LongList(self._values)
        self._keys = LongList(self._keys)
        self._one = LongSet(self._one)

    def _divide(self) -> None:
        self._parts = [LongSet() for _ in range(_PARTS)]
        for key in self._keys:
            give_way()
            self._part(key).add(key)
        self._one = set()

    def add(self, value: Value) -> bool:
        """Adds a value; False if there is an equal one."""
        return self._put(encode_value(value, False, self._collation), value)

    def add_all(self, values: list[Value]) -> None:
        collation = self._collation
        for value in values:
            self._put(encode_value(value, False, collation), value)

    def has(self, value: Value) -> bool:
        """Whether there is a value that compares equal."""
        key = encode_value(value, False, self._collation)
        return key in self._part(key)

    def has_all(self, others: "ValueSet") -> bool:
        """Whether there is an equal value for each of the others, which have the same collation."""
        for key in others._keys:
            give_way()
            if key not in self._part(key):
                return False
        return True

    def shared_with(self, others: "ValueSet") -> "ValueSet":
        """The values for which the others, which have the same collation, have an equal one."""
        shared = ValueSet(self._collation)
        keys = self._keys
        values = self._values
        for i in range(len(keys)):
            give_way()
            key = keys[i]
            if key in others._part(key):
                shared._put(key, values[i])
        return shared

    def size(self) -> int:
        """The approximate memory of the values and their keys in bytes."""
        total = size_of(self._values)
        for key in self._keys:
            give_way()
            total += 40 + len(key)
        return total

    def in_order(self) -> list[Value]:
        """The values in MongoDB's order."""
        values = self._values
        if len(values) < LONG:  # nearly all sets: half as long as the way below
            by_keys = dict(zip(self._keys, values, strict=True))
            return [by_keys[key] for key in sorted(by_keys)]
        return sorted_by_keys(values, LongList(self._keys))
