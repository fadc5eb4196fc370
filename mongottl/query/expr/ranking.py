"""The n smallest or greatest of values, and percentiles of numbers."""

import math

from mongottl.document.collation import Collation
from mongottl.document.keystring import encode_value
from mongottl.document.sorting import sort_in_parts
from mongottl.document.types import Value


def smallest(
    values: list[Value], count: int, greatest: bool = False, collation: Collation | None = None
) -> list[Value]:
    """The `count` smallest values in ascending order, or the greatest in descending order; stable."""
    keyed: list[tuple[bytes, int]] = []
    for i in range(len(values)):
        keyed.append((encode_value(values[i], greatest, collation), i))
    return [values[i] for _, i in sort_in_parts(keyed)[:count]]


def percentile(ordered: list[float], p: float) -> float:
    """The discrete percentile of sorted numbers: the smallest such that at least the fraction p of all are not
    greater."""
    index = math.ceil(p * len(ordered)) - 1
    return ordered[max(index, 0)]
