"""Ranges of an index's keys, which are KeyStrings.

Making one may let others run (`document.interrupt`), as all work on keys may: it is made before the store is looked up
that it is read in.
"""

from typing import Final

from mongottl.document.keystring import HIGHEST_KEY, LOWEST_KEY, successor, value_range
from mongottl.document.types import Value
from mongottl.storage.stores import KeyRange

ALL_KEYS: Final = KeyRange(LOWEST_KEY, HIGHEST_KEY)


def keys_with_prefix(prefix: bytes) -> KeyRange:
    """The keys that begin with these whole components."""
    return KeyRange(prefix, successor(prefix))


def ascending_values(first: Value, last: Value, descending: bool) -> KeyRange:
    """The keys whose first component is from one value to another, both inclusive, in ascending order of these values.

    descending: whether the component descends; the keys are then read backward.
    """
    low, high = value_range(first, last, descending)
    return KeyRange(low, high, not descending)
