"""Sorting of long lists, in parts between which a thread that takes turns can give way."""

from typing import Any, Final

from mongottl.document.interrupt import give_way

# Sorting so many values takes about a millisecond.
_PART: Final = 8192


def sort_in_parts(values: list[Any]) -> list[Any]:
    """The values sorted, equal ones in their order. Merging the last two halves of a million takes 30 ms."""
    if len(values) <= _PART:
        return sorted(values)
    runs: list[list[Any]] = []
    for start in range(0, len(values), _PART):
        runs.append(sorted(values[start : start + _PART]))
        give_way(_PART)
    while len(runs) > 1:
        merged: list[list[Any]] = []
        for i in range(0, len(runs) - 1, 2):
            both = runs[i] + runs[i + 1]
            both.sort()  # takes linear time for two sorted runs
            merged.append(both)
            give_way(len(both))
        if len(runs) % 2:
            merged.append(runs[-1])
        runs = merged
    return runs[0]
