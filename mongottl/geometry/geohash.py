"""Points of the plane as interleaved bits: the keys of a 2d index.

The square from (low, low) to (high, high) is bisected `bits` times in each direction, x before y:

    bits 1:   01 | 11      a key of 2 · bits bits; the first bits of the key are the coarsest bisections, so that
              ---+---      all points within a square are one range of keys
              00 | 10

A query's rectangle is covered with squares; the filter removes points in a square that are outside the rectangle.
"""

from typing import Final

from mongottl.geometry.geojson import Position
from mongottl.geometry.plane import Bounds

# Maximal number of squares that cover a query's rectangle; each is a range of the index.
MAX_SQUARES: Final = 20
MAX_BITS: Final = 32


class Geohash:
    """The keys of one 2d index. bits: 1 to 32. low, high: the bounds of both coordinates."""

    def __init__(self, bits: int, low: float, high: float) -> None:
        self.bits = bits
        self.low = low
        self.high = high
        self._steps = 1 << bits

    def has_within(self, position: Position) -> bool:
        return all(self.low <= coordinate <= self.high for coordinate in position)

    def hash(self, position: Position) -> int:
        """The key, of 2 · bits bits, of a point within the bounds."""
        return _interleaved(self._step(position[0]), self._step(position[1]), self.bits)

    def _step(self, coordinate: float) -> int:
        """Which of the 2^bits intervals contains a coordinate; the upper bound belongs to the last one."""
        share = (min(max(coordinate, self.low), self.high) - self.low) / (self.high - self.low)
        return min(int(share * self._steps), self._steps - 1)

    def ranges(self, bounds: Bounds) -> list[tuple[int, int]]:
        """Ranges of keys, ends included, ascending, that contain the keys of all points in the rectangle; may be
        empty."""
        west, south, east, north = bounds
        if east < self.low or north < self.low or west > self.high or south > self.high:
            return []
        # One interval more in each direction, for rounding.
        box = (
            max(self._step(west) - 1, 0),
            max(self._step(south) - 1, 0),
            min(self._step(east) + 1, self._steps - 1),
            min(self._step(north) + 1, self._steps - 1),
        )
        squares = [(0, 0)]
        level = self.bits  # of a square's width in steps: 2^level
        while level > 0:
            quarters = [quarter for x, y in squares for quarter in _quarters(x, y, level)]
            divided = [quarter for quarter in quarters if _meets(quarter, level - 1, box)]
            if len(divided) > MAX_SQUARES:
                break
            squares = divided
            level -= 1
        starts = sorted(_interleaved(x, y, self.bits) for x, y in squares)
        size = 1 << (2 * level)
        merged: list[tuple[int, int]] = []
        for start in starts:
            if merged and merged[-1][1] + 1 == start:
                merged[-1] = (merged[-1][0], start + size - 1)
            else:
                merged.append((start, start + size - 1))
        return merged


def _quarters(x: int, y: int, level: int) -> list[tuple[int, int]]:
    half = 1 << (level - 1)
    return [(x, y), (x, y + half), (x + half, y), (x + half, y + half)]


def _meets(square: tuple[int, int], level: int, box: tuple[int, int, int, int]) -> bool:
    last = (1 << level) - 1
    x, y = square
    return x <= box[2] and x + last >= box[0] and y <= box[3] and y + last >= box[1]


def _interleaved(x: int, y: int, bits: int) -> int:
    key = 0
    for bit in range(bits - 1, -1, -1):
        key = key << 2 | (x >> bit & 1) << 1 | y >> bit & 1
    return key
