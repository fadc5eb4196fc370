"""Sorting of long lists, in parts between which an evaluation can give way."""

import random
from bisect import bisect_left
from typing import Any, Final

from mongottl.document.freeing import LONG, LongList, freed_in_slices
from mongottl.document.interrupt import give_way

# Number of values that are sorted in about a millisecond.
_PART: Final = 8192
# Values of a sample between two that divide the values; with more the parts are more alike.
_SAMPLED: Final = 16
_PLACE_BYTES: Final = 4
# Number of values that are distributed in half a millisecond.
_DISTRIBUTED: Final = 1024


def sort_in_parts(values: list[Any]) -> list[Any]:
    """The values sorted, equal ones in their order.

    A sample of the values divides them into parts that are sorted one by one: merging the sorted halves of a million
    would be one step of 30 ms. Values that equal a divisor are parts of their own, so parts are short although many
    values are equal.
    """
    if len(values) <= _PART:
        return freed_in_slices(sorted(values))
    parts = len(values) // (_PART // 2)
    sample = sorted(random.sample(values, min(parts * _SAMPLED, len(values))))
    give_way(len(sample))
    divisors: list[Any] = []
    for i in range(_SAMPLED, len(sample), _SAMPLED):
        if not divisors or divisors[-1] < sample[i]:
            divisors.append(sample[i])
    between: list[list[Any]] = [[] for _ in range(len(divisors) + 1)]
    equal: list[list[Any]] = [[] for _ in range(len(divisors) + 1)]
    for start in range(0, len(values), _DISTRIBUTED):
        for value in values[start : start + _DISTRIBUTED]:
            place = bisect_left(divisors, value)
            if place < len(divisors) and divisors[place] == value:
                equal[place].append(value)
            else:
                between[place].append(value)
        give_way(_DISTRIBUTED)
    ordered: list[Any] = LongList()
    for place in range(len(between)):
        part = between[place]
        part.sort()
        ordered.extend(part)
        ordered.extend(equal[place])
        give_way(len(part))
        between[place] = []
        equal[place] = []
    return ordered


def sorted_by_keys(values: list[Any], keys: list[bytes]) -> list[Any]:
    """The values in the order of their KeyStrings, equal ones in their order. The list of keys is used up."""
    if len(values) <= 1:
        return values[:]
    # Not pairs of a key and a place: those would be searched for garbage, a million of them for a tenth of a second.
    for i in range(len(keys)):
        give_way()
        keys[i] += i.to_bytes(_PLACE_BYTES, "big")
    ordered: list[Any] = [] if len(keys) < LONG else LongList()
    for key in sort_in_parts(keys):
        give_way()
        ordered.append(values[int.from_bytes(key[-_PLACE_BYTES:], "big")])
    return ordered
