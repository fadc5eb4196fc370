"""Which keys of a compound index are within the bounds of its trailing components, and where to go on behind one.

    index {age: 1, rating: 1}     {age: {$gte: 25, $lte: 30}, rating: {$in: [0, 9]}}

The ranges that are scanned bound the leading component, 25 to 30. At the key (25, 1) the rating lies between its
ranges: no key before (25, 9) can match. At (25, 10) it is behind all of them: none can before the next age. At
(30, 10) there is no next age, and the scan is over. All this is compared in the bytes of the keys.
"""

from bisect import bisect_right

from mongottl.document.key_split import component_end
from mongottl.document.keystring import successor
from mongottl.exec.plan.bounds import IndexBounds, component_range
from mongottl.query.match.interval import BracketEnd, BracketStart, Interval


class _Ranges:
    """The ranges of one component, ascending by key. low_values, high_values: the whole component at which a range
    begins or ends, itself included; empty where it does not end at a value."""

    def __init__(self, intervals: list[Interval], descending: bool) -> None:
        ordered = intervals[::-1] if descending else intervals
        self.lows: list[bytes] = []
        self.highs: list[bytes] = []
        self.begins_at_value: list[bool] = []
        self.high_values: list[bytes] = []
        for interval in ordered:
            low, high = component_range(interval, descending)
            self.lows.append(low)
            self.highs.append(high)
            first, first_inclusive, last, last_inclusive = (
                (interval.high, interval.high_inclusive, interval.low, interval.low_inclusive)
                if descending
                else (interval.low, interval.low_inclusive, interval.high, interval.high_inclusive)
            )
            self.begins_at_value.append(first_inclusive and not isinstance(first, (BracketStart, BracketEnd)))
            ends_at_value = last_inclusive and not isinstance(last, (BracketStart, BracketEnd))
            point = component_range(Interval(last, True, last, True), descending)[0] if ends_at_value else b""
            self.high_values.append(point)


class KeySkipper:
    """forward: the direction of the scan. In a backward scan bounds are upper ones, exclusive."""

    def __init__(self, bounds: IndexBounds, forward: bool) -> None:
        leading = len(bounds.intervals)
        components = bounds.components
        self._leading = leading
        self._forward = forward
        self._descending: list[bool] = [component.descending for component in components]
        self._scanned = _Ranges(bounds.intervals[leading - 1], components[leading - 1].descending)
        self._trailing: list[_Ranges] = [
            _Ranges(bounds.trailing[i], components[leading + i].descending) for i in range(len(bounds.trailing))
        ]
        self._ends: list[int] = [0] * (leading + len(bounds.trailing))

    def first_low(self, place: int, low: bytes) -> bytes:
        """Where a forward scan of the range of this number, which begins at `low`, may find its first key."""
        at = place % len(self._scanned.lows)
        return low + self._lowest(0, 0) if self._scanned.begins_at_value[at] else low

    def bound_behind(self, key: bytes) -> bytes | None:
        """None for a key within the bounds; else the bound at which the scan may go on.

        Forward, the first bytes that keys may match from; backward, those that keys must be below.
        """
        ends = self._ends
        pos = 0
        for i in range(len(ends)):
            pos = int(component_end(key, pos, self._descending[i]))
            ends[i] = pos
        start = ends[self._leading - 1]
        for i in range(len(self._trailing)):
            ranges = self._trailing[i]
            end = ends[self._leading + i]
            part = key[start:end]
            if self._forward:
                at = bisect_right(ranges.highs, part)
                if at == len(ranges.highs):
                    return self._past(key, i - 1)
                if part < ranges.lows[at]:
                    return key[:start] + self._lowest(i, at)
            else:
                at = bisect_right(ranges.lows, part) - 1
                if at < 0:
                    return self._before(key, i - 1)
                if part >= ranges.highs[at]:
                    return key[:start] + self._highest(i, at)
            start = end
        return None

    def _lowest(self, i: int, at: int) -> bytes:
        """Where the ranges of the trailing components begin, from one of component i on."""
        low = b""
        while i < len(self._trailing):
            ranges = self._trailing[i]
            low += ranges.lows[at]
            if not ranges.begins_at_value[at]:
                break
            i += 1
            at = 0
        return low

    def _highest(self, i: int, at: int) -> bytes:
        """Where the ranges of the trailing components end, from one of component i down."""
        high = b""
        while True:
            ranges = self._trailing[i]
            value = ranges.high_values[at]
            if not value or i + 1 == len(self._trailing):
                return high + ranges.highs[at]
            high += value
            i += 1
            at = len(self._trailing[i].highs) - 1

    def _past(self, key: bytes, i: int) -> bytes:
        """Behind all keys that agree with this one up to the trailing component i; -1 is the last leading one."""
        while i >= 0:
            ranges = self._trailing[i]
            start = self._ends[self._leading + i - 1]
            part = key[start : self._ends[self._leading + i]]
            at = bisect_right(ranges.highs, part)
            following = successor(part)
            if following < ranges.highs[at]:
                return key[:start] + following
            if at + 1 < len(ranges.lows):
                return key[:start] + self._lowest(i, at + 1)
            i -= 1
        return successor(key[: self._ends[self._leading - 1]])

    def _before(self, key: bytes, i: int) -> bytes:
        """Before all keys that agree with this one up to the trailing component i."""
        while i >= 0:
            ranges = self._trailing[i]
            start = self._ends[self._leading + i - 1]
            part = key[start : self._ends[self._leading + i]]
            at = bisect_right(ranges.lows, part) - 1
            if part > ranges.lows[at]:
                return key[: self._ends[self._leading + i]]
            if at > 0:
                return key[:start] + self._highest(i, at - 1)
            i -= 1
        return key[: self._ends[self._leading - 1]]
