"""Ranges of values, by which filters describe themselves to the planner.

A leaf of a filter gives ranges of the value at its path outside which it can never match. The planner converts them
into ranges of index keys. Comparisons match within a type bracket, so an end is either a value or an end of a bracket:

    {$gt: 5}     (5, BracketEnd(numbers)]          {$lt: "m"}    [BracketStart(strings), "m")
    {$ne: 5}     [MinKey, 5) and (5, MaxKey]       {$exists: true}   [MinKey, MaxKey]

An index has one key per array element, so the contract is: if a document matches, at least one of its keys is within
the ranges. `exact` ranges guarantee the converse too, but only for an index that is not multikey on this path.
"""

from mongottl.document.compare import bracket_of, compare_values
from mongottl.document.freeing import LONG, LongList, list_for
from mongottl.document.interrupt import give_way
from mongottl.document.sorting import sorted_by_comparison
from mongottl.document.types import MaxKey, MinKey, Value


class BracketStart:
    """Just before the first value of a type bracket (`document.compare.BRACKET_…`)."""

    def __init__(self, bracket: int) -> None:
        self.bracket = bracket

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BracketStart) and self.bracket == other.bracket

    def __hash__(self) -> int:
        return hash((0, self.bracket))

    def __repr__(self) -> str:
        return f"BracketStart({self.bracket})"


class BracketEnd:
    """Just after the last value of a type bracket."""

    def __init__(self, bracket: int) -> None:
        self.bracket = bracket

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BracketEnd) and self.bracket == other.bracket

    def __hash__(self) -> int:
        return hash((1, self.bracket))

    def __repr__(self) -> str:
        return f"BracketEnd({self.bracket})"


class Interval:
    """One range of values in MongoDB's order.

    low, high: a value, or a BracketStart or BracketEnd (whose inclusiveness is ignored). MISSING does not occur: a
    missing field has the key null.
    exact: every key in the range, in an index that is not multikey on the path, belongs to a matching value.
    """

    def __init__(self, low: Value, low_inclusive: bool, high: Value, high_inclusive: bool, exact: bool = True) -> None:
        give_way()
        self.low = low
        self.low_inclusive = low_inclusive
        self.high = high
        self.high_inclusive = high_inclusive
        self.exact = exact

    @property
    def is_point(self) -> bool:
        """Whether the range contains exactly one value."""
        give_way()
        return (
            self.low_inclusive
            and self.high_inclusive
            and not isinstance(self.low, (BracketStart, BracketEnd))
            and not isinstance(self.high, (BracketStart, BracketEnd))
            and compare_values(self.low, self.high) == 0
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Interval)
            and compare_lows(self, other) == 0
            and compare_highs(self, other) == 0
            and self.exact == other.exact
        )

    def __hash__(self) -> int:
        return hash((self.low_inclusive, self.high_inclusive, self.exact))

    def __repr__(self) -> str:
        left = "[" if self.low_inclusive else "("
        right = "]" if self.high_inclusive else ")"
        return f"Interval{left}{self.low!r}, {self.high!r}{right}{'' if self.exact else ' inexact'}"


def point(value: Value, exact: bool = True) -> Interval:
    return Interval(value, True, value, True, exact)


def bracket_interval(bracket: int, exact: bool = True) -> Interval:
    """All values of one type bracket."""
    return Interval(BracketStart(bracket), True, BracketEnd(bracket), True, exact)


def everything(exact: bool = True) -> Interval:
    return Interval(MinKey(), True, MaxKey(), True, exact)


def _end_position(end: Value) -> tuple[int, int, Value]:
    """The position of an end in the order of values: (bracket, -1, 0 or 1 for before, within or after it, the
    value)."""
    if isinstance(end, BracketStart):
        return end.bracket, -1, None
    if isinstance(end, BracketEnd):
        return end.bracket, 1, None
    return int(bracket_of(end)), 0, end


def _compare_ends(a: Value, a_after: bool, b: Value, b_after: bool) -> int:
    """The order of two ends, each of which lies just before or just after its value: -1, 0 or 1."""
    give_way()
    a_bracket, a_part, a_value = _end_position(a)
    b_bracket, b_part, b_value = _end_position(b)
    if a_bracket != b_bracket:
        return -1 if a_bracket < b_bracket else 1
    if a_part != b_part:
        return -1 if a_part < b_part else 1
    if a_part != 0:
        return 0
    order = int(compare_values(a_value, b_value))
    if order != 0:
        return order
    return int(a_after) - int(b_after)


def compare_lows(a: Interval, b: Interval) -> int:
    """-1, 0 or 1: which interval starts first."""
    return _compare_ends(a.low, not a.low_inclusive, b.low, not b.low_inclusive)


def compare_highs(a: Interval, b: Interval) -> int:
    """-1, 0 or 1: which interval ends first."""
    return _compare_ends(a.high, a.high_inclusive, b.high, b.high_inclusive)


def is_empty_interval(interval: Interval) -> bool:
    """Whether the range contains no value."""
    return _compare_ends(interval.low, not interval.low_inclusive, interval.high, interval.high_inclusive) >= 0


def union(intervals: list[Interval]) -> list[Interval]:
    """The union as ascending, disjoint ranges. Overlapping ranges are merged; the result is exact if both were."""
    ordered: list[Interval] = list_for(len(intervals))
    for interval in intervals:
        if not is_empty_interval(interval):
            ordered.append(interval)
    merged: list[Interval] = list_for(len(ordered))
    for interval in sorted_by_comparison(ordered, compare_lows):
        if merged:
            last = merged[-1]
            touching = _compare_ends(interval.low, not interval.low_inclusive, last.high, last.high_inclusive) <= 0
            if touching:
                exact = last.exact and interval.exact
                if compare_highs(last, interval) < 0:
                    merged[-1] = Interval(last.low, last.low_inclusive, interval.high, interval.high_inclusive, exact)
                else:
                    merged[-1] = Interval(last.low, last.low_inclusive, last.high, last.high_inclusive, exact)
                continue
        merged.append(interval)
    return merged


def intersection(a: list[Interval], b: list[Interval]) -> list[Interval]:
    """The intersection of two lists, each ascending and disjoint, as `union` returns them."""
    found: list[Interval] = [] if len(a) + len(b) < LONG else LongList()
    i = 0
    j = 0
    while i < len(a) and j < len(b):
        x = a[i]
        y = b[j]
        lower = x if compare_lows(x, y) >= 0 else y
        upper = x if compare_highs(x, y) <= 0 else y
        both = Interval(lower.low, lower.low_inclusive, upper.high, upper.high_inclusive, x.exact and y.exact)
        if not is_empty_interval(both):
            found.append(both)
        if upper is x:
            i += 1
        else:
            j += 1
    return found


def intersection_of_all(lists: list[list[Interval]]) -> list[Interval]:
    """The intersection of all lists, computed pairwise, so that long lists are walked few times."""
    while len(lists) > 1:
        halved: list[list[Interval]] = [] if len(lists) < LONG else LongList()
        for i in range(0, len(lists) - 1, 2):
            halved.append(intersection(lists[i], lists[i + 1]))
        if len(lists) % 2:
            halved.append(lists[-1])
        lists = halved
    return lists[0]


def complement(intervals: list[Interval]) -> list[Interval] | None:
    """All values outside the ranges (ascending, disjoint), or None if they are inexact, so that the complement is
    unknown."""
    gaps: list[Interval] = [] if len(intervals) < LONG else LongList()
    low: Value = MinKey()
    low_inclusive = True
    for interval in intervals:
        if not interval.exact:
            return None
        gap = Interval(low, low_inclusive, interval.low, not interval.low_inclusive)
        if not is_empty_interval(gap):
            gaps.append(gap)
        low = interval.high
        low_inclusive = not interval.high_inclusive
    last = Interval(low, low_inclusive, MaxKey(), True)
    if not is_empty_interval(last):
        gaps.append(last)
    return gaps
