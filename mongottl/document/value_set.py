"""Values without duplicates, which take up and give back room for a million of them in small steps."""

from typing import Final, final

from mypy_extensions import i64

from mongottl.document.collation import Collation
from mongottl.document.freeing import LONG, LongList, LongSet
from mongottl.document.interrupt import give_way
from mongottl.document.keystring import encode_value
from mongottl.document.sorting import sort_in_parts, sorted_by_keys
from mongottl.document.types import Value

# The most keys that are in one set of Python's. It makes room for them in 5 to 15 ms; for a million it would take 30 to
# 80. In one set all keys are found sooner than in several.
_MOST_AT_ONCE: Final = 262_144
# Among how many sets more keys are divided. What all of them begin with should stay in the processor's caches.
_PARTS: Final[i64] = 64
_PARTS_BITS: Final[i64] = 6
# 2⁶⁴ divided by the golden ratio, as a signed number: the highest bits of the product with it differ for hashes that
# differ anywhere. Those of whole numbers are the numbers themselves, which often have the lowest bits in common.
_SPREAD: Final[i64] = -0x61C8864680B583EB


def _is_own_key(value: Value) -> bool:
    if isinstance(value, float):
        return value == value
    return isinstance(value, int) and not isinstance(value, bool)


@final
class ValueSet:
    """Values of which those that compare equal count once: the first stays.

    Numbers are their own keys as long as there is nothing else, since Python's equality and order of int and float are
    MongoDB's (but for NaN). From then on the keys are KeyStrings: decimals equal numbers, and symbols texts.

    The values and their keys are in lists, in the order in which they came; sets of Python's say which keys there are.
    What is too long for one set is divided by the hash of the key. As `LongSet`s and `LongList`s they are freed in
    slices, and the garbage collector does not examine them.
    """

    __slots__ = ("_collation", "_is_encoded", "_keys", "_one", "_parts", "_values")

    def __init__(self, collation: Collation | None) -> None:
        self._collation: Final = collation
        self._values: list[Value] = []
        self._is_encoded = False
        self._keys: list[Value] = self._values  # the same list while the values are their own keys
        self._one: set[Value] = set()
        self._parts: list[set[Value]] | None = None

    def __len__(self) -> int:
        """The number of values."""
        return len(self._values)

    def _key(self, value: Value) -> Value:
        """The key of a value; a KeyString for all from now on if this value needs one."""
        if not self._is_encoded:
            if _is_own_key(value):
                give_way()
                return value
            self._encode()
        return encode_value(value, False, self._collation)

    def _encode(self) -> None:
        """Replaces the keys by KeyStrings."""
        values = self._values
        collation = self._collation
        self._is_encoded = True
        self._values = []
        self._keys = []
        self._one = set()
        self._parts = None
        for value in values:
            self._put(encode_value(value, False, collation), value)

    def _agree(self, others: "ValueSet") -> None:
        """Gives both sets, which have the same collation, keys of the same kind."""
        if self._is_encoded != others._is_encoded:
            (others if self._is_encoded else self)._encode()

    def _part(self, key: Value) -> set[Value]:
        """The set that has a key, if there is one."""
        parts = self._parts
        if parts is None:
            return self._one
        spread: i64 = i64(hash(key)) * _SPREAD
        return parts[(spread >> (64 - _PARTS_BITS)) & (_PARTS - 1)]

    def _put(self, key: Value, value: Value) -> bool:
        part = self._part(key)
        before = len(part)
        part.add(key)
        if len(part) == before:
            return False
        self._values.append(value)
        if self._is_encoded:
            self._keys.append(key)
        count = len(self._values)
        if count == LONG:
            self._lengthen()
        elif count == _MOST_AT_ONCE:
            self._divide()
        return True

    def _lengthen(self) -> None:
        """Makes the lists and the set such as are freed in slices."""
        self._values = LongList(self._values)
        self._keys = LongList(self._keys) if self._is_encoded else self._values
        self._one = LongSet(self._one)

    def _divide(self) -> None:
        parts: list[set[Value]] = [LongSet() for _ in range(_PARTS)]
        self._parts = parts
        for key in self._keys:
            give_way()
            self._part(key).add(key)
        self._one = set()

    def add(self, value: Value) -> bool:
        """Adds a value; False if there is an equal one."""
        return self._put(self._key(value), value)

    def add_all(self, values: list[Value]) -> None:
        for value in values:
            self._put(self._key(value), value)

    def has(self, value: Value) -> bool:
        """Whether there is a value that compares equal."""
        key = self._key(value)
        return key in self._part(key)

    def has_all(self, others: "ValueSet") -> bool:
        """Whether there is an equal value for each of the others, which have the same collation."""
        self._agree(others)
        for key in others._keys:
            give_way()
            if key not in self._part(key):
                return False
        return True

    def shared_with(self, others: "ValueSet") -> "ValueSet":
        """The values for which the others, which have the same collation, have an equal one."""
        self._agree(others)
        shared = ValueSet(self._collation)
        shared._is_encoded = self._is_encoded
        if shared._is_encoded:
            shared._keys = []
        keys = self._keys
        values = self._values
        for i in range(len(keys)):
            give_way()
            key = keys[i]
            if key in others._part(key):
                shared._put(key, values[i])
        return shared

    def in_order(self) -> list[Value]:
        """The values in MongoDB's order."""
        values = self._values
        if not self._is_encoded:
            return sort_in_parts(values)
        if len(values) < LONG:  # nearly all sets: half as long as the way below
            by_keys = dict(zip(self._keys, values, strict=True))
            return [by_keys[key] for key in sorted(by_keys)]  # type: ignore[type-var]
        return sorted_by_keys(values, LongList(self._keys))
