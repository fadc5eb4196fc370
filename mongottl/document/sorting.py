"""Sorting of long lists, in parts between which an evaluation can give way."""

import random
from bisect import bisect_left
from collections.abc import Callable
from functools import cmp_to_key
from typing import Any, Final

from mongottl.document.freeing import LONG, LongList, freed_in_slices, list_for
from mongottl.document.interrupt import give_way

# Number of values that are sorted in about a millisecond.
_PART: Final = 8192
# Values of a sample between two that divide the values; with more the parts are more alike.
_SAMPLED: Final = 16
_PLACE_BYTES: Final = 4
# Number of values that are distributed in half a millisecond.
_DISTRIBUTED: Final = 1024
# Number of values that are sorted at once by a function that compares two.
_COMPARED: Final = 512
# The weight of copying such a number of values.
_COPIED_WEIGHT: Final = 10


def sort_in_parts(values: list[Any]) -> list[Any]:
    """The values sorted, equal ones in their order, in a list of its own.

    A sample of the values divides them into parts that are sorted one by one: merging the sorted halves of a million
    would be one step of 30 ms. Values that equal a divisor are parts of their own, so parts are short although many
    values are equal.
    """
    if len(values) <= _PART:
        return freed_in_slices(sorted(values))
    ordered: list[Any] = LongList()
    if _is_sorted(values):
        _append(values, 0, len(values), ordered)
        return ordered
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
    for place in range(len(between)):
        part = between[place]
        part.sort()
        ordered.extend(part)
        ordered.extend(equal[place])
        give_way(len(part))
        between[place] = []
        equal[place] = []
    return ordered


def _is_sorted(values: list[Any]) -> bool:
    """Whether the values, one at least, are in order, as they often are: a range is, and what was read by an index."""
    latest = values[0]
    for start in range(0, len(values), _DISTRIBUTED):
        for value in values[start : start + _DISTRIBUTED]:
            if value < latest:
                return False
            latest = value
        give_way(_DISTRIBUTED)
    return True


def sorted_distinct(values: list[Any]) -> list[Any]:
    """The values sorted, of equal ones the first. Numbers are not put into a set or a dictionary: Python's hash of them
    is the same everywhere, so that a client can send such as take milliseconds to be found each."""
    distinct = list_for(len(values))
    for value in sort_in_parts(values):
        give_way()
        if not distinct or distinct[-1] != value:
            distinct.append(value)
    return distinct


def sorted_by_keys(values: list[Any], keys: list[bytes]) -> list[Any]:
    """The values in the order of their KeyStrings, equal ones in their order. The list of keys is used up."""
    if len(values) <= 1:
        return values[:]
    ordered = list_for(len(keys))
    if len(keys) >= LONG and _is_sorted(keys):
        _append(values, 0, len(values), ordered)
        return ordered
    # Not pairs of a key and a place: those would be searched for garbage, a million of them for a tenth of a second.
    for i in range(len(keys)):
        give_way()
        keys[i] += i.to_bytes(_PLACE_BYTES, "big")
    for key in sort_in_parts(keys):
        give_way()
        ordered.append(values[int.from_bytes(key[-_PLACE_BYTES:], "big")])
    return ordered


def sorted_by_comparison(values: list[Any], compare: Callable[[Any, Any], int]) -> list[Any]:
    """The values in the order of `compare`, equal ones in their order: as `sorted` with `cmp_to_key`, which would make
    an object for each of a million values, and free them, in one step.

    compare: negative, 0 or positive for two values.
    """
    if len(values) <= 1:
        return values
    if len(values) <= _COMPARED:
        return sorted(values, key=cmp_to_key(compare))
    ordered = list_for(len(values))
    for start in range(0, len(values), _COMPARED):
        give_way(_COMPARED)
        ordered.extend(sorted(values[start : start + _COMPARED], key=cmp_to_key(compare)))
    width = _COMPARED
    while width < len(ordered):
        merged = list_for(len(ordered))
        for start in range(0, len(ordered), 2 * width):
            middle = min(start + width, len(ordered))
            _merge(ordered, start, middle, min(middle + width, len(ordered)), merged, compare)
        ordered = merged
        width *= 2
    return ordered


def _append(values: list[Any], start: int, end: int, to: list[Any]) -> None:
    """Appends the values from one place to before another."""
    for first in range(start, end, _COMPARED):
        give_way(_COPIED_WEIGHT)
        to.extend(values[first : min(first + _COMPARED, end)])


def _merge(
    values: list[Any], start: int, middle: int, end: int, merged: list[Any], compare: Callable[[Any, Any], int]
) -> None:
    """Appends two neighbouring parts of the values, each in order, to `merged`, in order."""
    if middle == end or compare(values[middle - 1], values[middle]) <= 0:
        _append(values, start, end, merged)
        return
    left = start
    right = middle
    while left < middle or right < end:
        give_way()
        if right == end or (left < middle and compare(values[left], values[right]) <= 0):
            merged.append(values[left])
            left += 1
        else:
            merged.append(values[right])
            right += 1
