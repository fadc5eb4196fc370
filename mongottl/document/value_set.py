"""Values without duplicates, which take up and give back room for a million of them in small steps."""

from typing import Final, final

from mypy_extensions import i64

from mongottl.document.collation import Collation
from mongottl.document.freeing import LONG, LongList
from mongottl.document.interrupt import give_way
from mongottl.document.keystring import encode_value
from mongottl.document.sorting import sorted_by_keys
from mongottl.document.types import Value

# The most values that one dictionary has. It makes room for them in half a millisecond; for a million it would take
# 15 to 30.
_MOST_AT_ONCE: Final = 16384
# Of the hash of a key, the bits that say which of LONG dictionaries has it.
_MASK: Final[i64] = LONG - 1


@final
class ValueSet:
    """Values by their KeyStrings, so that values that compare equal count once: of them the first stays.

    The dictionaries have the places of the values in a list: a dictionary that has values itself is examined by the
    garbage collector, all values of a new one at once. What is too long for one dictionary is divided among LONG of
    them by the hash of the key; being `LongList`s, they and the values are freed in slices.
    """

    __slots__ = ("_collation", "_one", "_parts", "_values")

    def __init__(self, collation: Collation | None) -> None:
        self._collation: Final = collation
        self._values: list[Value] = []
        self._one: dict[bytes, int] = {}
        self._parts: list[dict[bytes, int]] | None = None

    def __len__(self) -> int:
        """The number of values."""
        return len(self._values)

    def _part(self, key: bytes) -> dict[bytes, int]:
        """The dictionary that has a key, if there is one."""
        parts = self._parts
        if parts is None:
            return self._one
        place: i64 = i64(hash(key)) & _MASK
        return parts[place]

    def _divide(self) -> None:
        places = self._one
        self._one = {}
        self._values = LongList(self._values)
        self._parts = LongList([{} for _ in range(LONG)])
        for key, place in places.items():
            give_way()
            self._part(key)[key] = place

    def add(self, value: Value) -> bool:
        """Adds a value; False if there is an equal one."""
        return self._put(encode_value(value, False, self._collation), value)

    def _put(self, key: bytes, value: Value) -> bool:
        part = self._part(key)
        if key in part:
            return False
        values = self._values
        part[key] = len(values)
        values.append(value)
        if len(values) == _MOST_AT_ONCE:
            self._divide()
        return True

    def add_all(self, values: list[Value]) -> None:
        collation = self._collation
        for value in values:
            self._put(encode_value(value, False, collation), value)

    def has(self, value: Value) -> bool:
        """Whether there is a value that compares equal."""
        key = encode_value(value, False, self._collation)
        return key in self._part(key)

    def _dictionaries(self) -> list[dict[bytes, int]]:
        return [self._one] if self._parts is None else self._parts

    def has_all(self, others: "ValueSet") -> bool:
        """Whether there is an equal value for each of the others."""
        for dictionary in others._dictionaries():
            for key in dictionary:
                give_way()
                if key not in self._part(key):
                    return False
        return True

    def shared_with(self, others: "ValueSet") -> "ValueSet":
        """The values for which the others have an equal one. They have the same collation."""
        shared = ValueSet(self._collation)
        for dictionary in self._dictionaries():
            for key, place in dictionary.items():
                give_way()
                if key in others._part(key):
                    shared._put(key, self._values[place])
        return shared

    def in_order(self) -> list[Value]:
        """The values in MongoDB's order."""
        values = self._values
        if len(values) < LONG:  # nearly all sets: half as long as the way below
            places = self._one
            return [values[places[key]] for key in sorted(places)]
        # In the order in which they were added, not in that of their hashes: values that come sorted are common.
        keys: list[bytes] = LongList([b""] * len(values))
        for dictionary in self._dictionaries():
            for key, place in dictionary.items():
                give_way()
                keys[place] = key
        return sorted_by_keys(values, keys)
