"""Which keys of a compound index are within the bounds of its trailing components, and where to seek after others.

    index {age: 1, rating: 1}     {age: {$gte: 25, $lte: 30}, rating: {$in: [0, 9]}}

The scanned ranges bound the leading component: 25 to 30. At the key (25, 1) the rating lies between its ranges: the
next key that can match is (25, 9). At (25, 10) it is after all of them: the next key that can match has the next age.
At (30, 10) there is no next age, and the scan ends. Keys are compared as bytes.
"""

from bisect import bisect_right

from mongottl.document.key_split import component_end
from mongottl.document.keystring import successor
from mongottl.exec.plan.bounds import IndexBounds, component_range
from mongottl.query.match.interval import BracketEnd, BracketStart, Interval


class _Ranges:
    """The ranges of one component, ascending by key.

    high_values: the encoded value at which each range ends, if it is included; empty where a range does not end at an
    included value.
    """

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
    """Computes where a scan continues after a key outside the bounds. forward: the direction of the scan."""

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

    def first_low(self, range_index: int, low: bytes) -> bytes:
        """The lowest key that can match in the range with this index, whose own bound is `low`; for forward scans."""
        at = range_index % len(self._scanned.lows)
        return low + self._lowest(0, 0) if self._scanned.begins_at_value[at] else low

    def bound_behind(self, key: bytes) -> bytes | None:
        """None for a key within the bounds, else the bound from which the scan continues.

        Forward: the lowest bytes from which keys may match. Backward: an exclusive upper bound.
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
        """The lowest bytes for the trailing components from i on, with component i in its range number `at`."""
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
        """The highest bytes for the trailing components from i on, with component i in its range number `at`."""
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
        """The lowest key that can match after all keys equal to this one up to the trailing component i.

        i = -1 means the last leading component.
        """
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
        """The exclusive upper bound before all keys equal to this one up to the trailing component i."""
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
