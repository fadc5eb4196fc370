"""What lies how far from a point: the question of `$near`, on the plane; `sphere_nearness` asks it on the sphere."""

import math
from abc import ABC, abstractmethod

from mongottl.geometry.geohash import Geohash
from mongottl.geometry.geojson import Geometry, Position
from mongottl.geometry.plane import distance
from mongottl.geometry.region import CellRange


class Nearness(ABC):
    """Distances from a point, and which keys of an index to read for those within a distance.

    farthest: no document is farther away.
    """

    def __init__(self, farthest: float) -> None:
        self.farthest = farthest

    @abstractmethod
    def distance(self, geometry: Geometry) -> float:
        """The distance of the nearest part; infinity for what cannot be measured."""
        raise NotImplementedError

    @abstractmethod
    def ranges(self, reach: float) -> list[CellRange]:
        """Ascending, disjoint: every geometry that is not farther than `reach` has a key among these."""
        raise NotImplementedError


class PlaneNearness(Nearness):
    """By the coordinates of a 2d index, in their unit."""

    def __init__(self, center: Position, geohash: Geohash) -> None:
        super().__init__(2 * math.sqrt(2) * (geohash.high - geohash.low))
        self._center = center
        self._geohash = geohash

    def distance(self, geometry: Geometry) -> float:
        position = geometry.point
        return math.inf if position is None else distance(self._center, position)

    def ranges(self, reach: float) -> list[CellRange]:
        x, y = self._center
        return self._geohash.ranges((x - reach, y - reach, x + reach, y + reach))


def without(ranges: list[CellRange], taken: list[CellRange]) -> list[CellRange]:
    """What of some ranges is not in others; both are ascending and disjoint."""
    left: list[CellRange] = []
    place = 0
    for low, high in ranges:
        while place < len(taken) and taken[place][1] < low:
            place += 1
        start = low
        i = place
        while i < len(taken) and taken[i][0] <= high:
            if taken[i][0] > start:
                left.append((start, taken[i][0] - 1))
            start = taken[i][1] + 1
            i += 1
        if start <= high:
            left.append((start, high))
    return left


def joined(a: list[CellRange], b: list[CellRange]) -> list[CellRange]:
    """All of both, ascending and disjoint."""
    merged: list[CellRange] = []
    for low, high in sorted(a + b):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return merged
