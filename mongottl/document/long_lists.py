"""Lists as long as a client likes, made of others in parts between which an evaluation can give way.

To copy a list of a million elements, or to free such a copy, is one step of 10 to 50 ms: each element is looked up in
memory, to count the reference.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from mongottl.document.freeing import LONG, LongList, LongSet, freed_in_slices, list_for
from mongottl.document.interrupt import give_way

T = TypeVar("T")

# Elements that are copied in about ten microseconds.
_PART: Final = 512
_PART_WEIGHT: Final = 10


def part_of(values: list[T], start: int, end: int) -> list[T]:
    """The elements from `start` to before `end`, neither of which counts from the end."""
    end = min(end, len(values))
    if end - start <= _PART:
        return values[start:end]
    part: list[T] = LongList()
    for first in range(start, end, _PART):
        give_way(_PART_WEIGHT)
        part += values[first : min(first + _PART, end)]
    return part


def with_more(values: list[T], more: Sequence[T]) -> list[T]:
    """The list with more elements at its end; another list, which is freed in slices, if it becomes long."""
    if len(more) <= _PART:
        values += more
        return freed_in_slices(values)
    if len(values) + len(more) >= LONG:
        values = freed_in_slices(values) if len(values) >= LONG else LongList(values)
    for start in range(0, len(more), _PART):
        give_way(_PART_WEIGHT)
        values += more[start : start + _PART]
    return values


def each_once(values: Iterable[T]) -> list[T]:
    """The different values, in their order."""
    seen: set[T] = LongSet()
    once: list[T] = LongList()
    for value in values:
        give_way()
        if value not in seen:
            seen.add(value)
            once.append(value)
    return once


def set_of(values: Iterable[T]) -> set[T]:
    """A set of the values."""
    found: set[T] = LongSet()
    for value in values:
        give_way()
        found.add(value)
    return found


def each_with_each(prefixes: list[bytes], parts: list[bytes]) -> list[bytes]:
    """Each prefix followed by each part, in their order; for the empty prefix alone the list of the parts itself."""
    if len(prefixes) == 1 and not prefixes[0]:
        return parts
    joined: list[bytes] = list_for(len(prefixes) * len(parts))
    for prefix in prefixes:
        for part in parts:
            give_way()
            joined.append(prefix + part)
    return joined
