"""The n smallest or greatest of values, and percentiles of numbers."""

import math

from mongottl.document.collation import Collation
from mongottl.document.freeing import LONG, LongList
from mongottl.document.keystring import encode_value
from mongottl.document.sorting import sorted_by_keys
from mongottl.document.types import Value


def smallest(
    values: list[Value], count: int, greatest: bool = False, collation: Collation | None = None
) -> list[Value]:
    """The `count` smallest values in ascending order, or the greatest in descending order; stable."""
    keys: list[bytes] = [] if len(values) < LONG else LongList()
    for value in values:
        keys.append(encode_value(value, greatest, collation))
    return sorted_by_keys(values, keys)[:count]


def percentile(ordered: list[float], p: float) -> float:
    """The discrete percentile of sorted numbers: the smallest such that at least the fraction p of all are not
    greater."""
    index = math.ceil(p * len(ordered)) - 1
    return ordered[max(index, 0)]
