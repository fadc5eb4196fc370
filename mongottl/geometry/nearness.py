"""Distances from a point on the plane, for `$near`; `sphere_nearness` has those on the sphere."""

import math
from abc import ABC, abstractmethod

from mongottl.geometry.geohash import Geohash
from mongottl.geometry.geojson import Geometry, Position
from mongottl.geometry.plane import distance
from mongottl.geometry.region import CellRange


class Nearness(ABC):
    """Distances from a point, and the index keys of the geometries within a distance.

    farthest: the largest possible distance. unit: the unit in which distances are returned and limited.
    """

    def __init__(self, farthest: float, unit: float = 1.0) -> None:
        self.farthest = farthest
        self.unit = unit

    @abstractmethod
    def distance(self, geometry: Geometry) -> float:
        """The distance of the nearest part of the geometry; infinity if it cannot be measured."""
        raise NotImplementedError

    @abstractmethod
    def ranges(self, reach: float) -> list[CellRange]:
        """Ranges of keys, ascending and disjoint: every geometry within the distance `reach` has a key in one of
        them."""
        raise NotImplementedError


class PlaneNearness(Nearness):
    """Distances on the plane, in the unit of the coordinates, and keys of a 2d index."""

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


def without(ranges: list[CellRange], excluded: list[CellRange]) -> list[CellRange]:
    """The parts of `ranges` that are not in `excluded`; both are ascending and disjoint."""
    left: list[CellRange] = []
    next_taken = 0
    for low, high in ranges:
        while next_taken < len(excluded) and excluded[next_taken][1] < low:
            next_taken += 1
        start = low
        i = next_taken
        while i < len(excluded) and excluded[i][0] <= high:
            if excluded[i][0] > start:
                left.append((start, excluded[i][0] - 1))
            start = excluded[i][1] + 1
            i += 1
        if start <= high:
            left.append((start, high))
    return left


def joined(a: list[CellRange], b: list[CellRange]) -> list[CellRange]:
    """The union of both, ascending and disjoint."""
    merged: list[CellRange] = []
    for low, high in sorted(a + b):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return merged
