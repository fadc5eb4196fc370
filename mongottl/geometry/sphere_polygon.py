"""Polygons on the sphere: containment and intersection of points, lines and polygons.

s2rst 0.5 is correct about points, distances, crossings of edges and validity (compared with Google's own S2 over some
hundred thousand random figures), but one in a few hundred of its answers is wrong about whether two loops or polygons
contain or intersect each other, and about the part of a line within a polygon. So only the former are used here:

    a line is within a polygon     if of each edge, cut where it crosses a side, the midpoint of each part is within
    a line meets a polygon         if one of those parts has its midpoint inside
    a polygon is within another    if its sides are, and no part outside the other lies inside of it
    two polygons meet              if their sides cross, or a point just inside a side of one is inside of the other

S2's polygons contain half of their border. MongoDB compares the cell of about a centimetre that contains the point, and
so counts a point on a border as inside; here points nearer than TOUCHING_RAD are on the border. Lines and polygons that
share only a piece of border with a polygon do not meet it (SERVER-13599, and the page on `$geoIntersects`).

A polygon is small or large (`small_polygon`, `large_polygon`), by the number of its corners: S2's own polygons answer
faster, but no call may take long (`blocks`).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

import s2rst

from mongottl.document.freeing import LongSet
from mongottl.document.interrupt import give_way
from mongottl.geometry.blocks import SIZES, Chain
from mongottl.geometry.geojson import Position, Ring

# Radians: less than a centimetre on the ground.
TOUCHING_RAD: Final = 1e-9
TOUCHING: Final = s2rst.ChordAngle.from_radians(TOUCHING_RAD)
# Distance of the points of `point_beside` from their side, as a fraction of the side's length.
_BESIDE: Final = 1e-3
# Radians: farther from the middle of a side no such point is.
BESIDE_RAD: Final = 1.1 * math.pi * _BESIDE

# Of a point on the sphere of radius 1.
Coordinates = tuple[float, float, float]


def s2_point(position: Position) -> s2rst.S2Point:
    give_way()
    return s2rst.LatLng.from_degrees(position[1], position[0]).to_point()


class SpherePolygon(ABC):
    """A polygon on the sphere, possibly with holes.

    rings: the outer one, its interior to the left, then the holes, with their own area to the left. Each ends with its
    first corner.
    """

    def __init__(self, rings: list[Chain]) -> None:
        self.rings = rings
        self._outside: list[s2rst.S2Point] | None = None
        self._directed_sides: set[tuple[Coordinates, Coordinates]] | None = None

    @abstractmethod
    def has_inside(self, point: s2rst.S2Point) -> bool:
        """Whether a point is inside, or in the half of the border that S2 counts so."""
        raise NotImplementedError

    @abstractmethod
    def has_within(self, point: s2rst.S2Point) -> bool:
        """Whether a point is inside or on the border."""
        raise NotImplementedError

    @abstractmethod
    def ring_area(self, ring: int) -> Callable[[s2rst.S2Point], bool]:
        """Whether a point is in the area of a ring."""
        raise NotImplementedError

    def surroundings(self) -> s2rst.Cap | None:
        """A cap of all points that are nearer to the polygon than `point_beside` is to the middle of a side; None where
        all may be."""
        return None

    @abstractmethod
    def crossed(self, a: s2rst.S2Point, b: s2rst.S2Point) -> list[tuple[int, int]]:
        """The sides that an edge crosses, without those that end there: ring and number."""
        raise NotImplementedError

    def contains_edge(self, a: s2rst.S2Point, b: s2rst.S2Point) -> bool:
        """Whether the shortest way between two points stays within."""
        if not self.has_within(a) or not self.has_within(b):
            return False
        return all(self.has_within(middle) for middle in self._midpoints(a, b))

    def meets_edge(self, a: s2rst.S2Point, b: s2rst.S2Point) -> bool:
        """Whether the shortest way between two points enters the interior, or is a side with that to its left."""
        sides = self._sides_by_direction()
        start, end = coordinates_of(a), coordinates_of(b)
        if (start, end) in sides:
            return True
        if (end, start) in sides:
            return False
        return any(self.has_inside(middle) for middle in self._midpoints(a, b))

    def _sides_by_direction(self) -> set[tuple[Coordinates, Coordinates]]:
        """The sides as pairs of corners, with the polygon's interior to the left."""
        sides = self._directed_sides
        if sides is None:
            sides = self._directed_sides = LongSet()
            for number in range(len(self.rings)):
                ring = self.rings[number]
                start = coordinates_of(ring[0])
                for i in range(1, len(ring)):
                    end = coordinates_of(ring[i])
                    sides.add((start, end) if number == 0 else (end, start))
                    start = end
        return sides

    def _midpoints(self, a: s2rst.S2Point, b: s2rst.S2Point) -> list[s2rst.S2Point]:
        """The midpoints of the parts into which the sides cut an edge."""
        cuts = [(0.0, a), (a.distance(b).radians, b)]
        for number, side in self.crossed(a, b):
            give_way(2)
            ring = self.rings[number]
            cut = s2rst.intersection(a, b, ring[side], ring[side + 1])
            cuts.append((a.distance(cut).radians, cut))
        cuts.sort(key=_fraction_of)
        return [
            s2rst.interpolate(0.5, cuts[i][1], cuts[i + 1][1])
            for i in range(len(cuts) - 1)
            if cuts[i + 1][0] - cuts[i][0] > TOUCHING_RAD
        ]

    def contains_polygon(self, other: "SpherePolygon") -> bool:
        for ring in other.rings:
            for i in range(len(ring) - 1):
                if not self.contains_edge(ring[i], ring[i + 1]):
                    return False
        # No side of the other leaves this polygon, so each area outside this one is wholly inside or outside of the
        # other.
        return not any(other.has_inside(point) for point in self._points_outside())

    def meets_polygon(self, other: "SpherePolygon") -> bool:
        for ring in other.rings:
            for i in range(len(ring) - 1):
                if self.crossed(ring[i], ring[i + 1]):
                    return True
        # No sides cross, so a point next to the midpoint of a side decides for the whole side.
        return self._has_some_inside(other) or other._has_some_inside(self)

    def _has_some_inside(self, other: "SpherePolygon") -> bool:
        """Whether a point just inside one of the other polygon's sides is inside of this one."""
        for number in range(len(other.rings)):
            ring = other.rings[number]
            area = other.ring_area(number)
            # For a few sides it would not be worth its while.
            surroundings = self.surroundings() if len(ring) > SIZES.large else None
            for i in range(len(ring) - 1):
                if surroundings is not None:
                    give_way()
                    if not surroundings.contains_point(s2rst.interpolate(0.5, ring[i], ring[i + 1])):
                        continue
                if self.has_inside(point_beside(ring[i], ring[i + 1], -1.0 if number else 1.0, area)):
                    return True
        return False

    def _points_outside(self) -> list[s2rst.S2Point]:
        """A point in each area outside the polygon: beyond the outer ring, and in each hole."""
        points = self._outside
        if points is None:
            points = self._outside = []
            for number in range(len(self.rings)):
                ring = self.rings[number]
                points.append(point_beside(ring[0], ring[1], 1.0 if number else -1.0, self.ring_area(number)))
        return points


def _fraction_of(cut: tuple[float, s2rst.S2Point]) -> float:
    return cut[0]


def point_beside(
    a: s2rst.S2Point, b: s2rst.S2Point, side: float, area: Callable[[s2rst.S2Point], bool]
) -> s2rst.S2Point:
    """A point near the middle of an edge, to its left (side 1) or right (-1), with no other edge between.

    area: whether a point is in the area to the left of the edge's ring.
    """
    give_way(4)
    middle = s2rst.interpolate(0.5, a, b)
    left = s2rst.robust_cross_prod(a, b)
    offset = a.distance(b).radians * _BESIDE * side
    while True:
        point = s2rst.S2Point(
            middle.x + left.x * offset, middle.y + left.y * offset, middle.z + left.z * offset
        ).normalize()
        if area(point) == (side > 0) or abs(offset) < TOUCHING_RAD:
            return point
        offset /= 8


def coordinates_of(point: s2rst.S2Point) -> Coordinates:
    give_way()
    return point.x, point.y, point.z


def ring_text(ring: Ring) -> str:
    """The corners as they stand in messages."""
    corners: list[str] = []
    for x, y in ring:
        give_way(4)
        corners.append(f"[{x!r}, {y!r}]")
    return f"[{', '.join(corners)}]"


# What is wrong with a polygon.
NOT_VALID: Final = "Loop is not valid:"
SHARED_CORNERS: Final = "Polygon isn't normalized: a hole shares more than one vertex with the exterior ring"
NESTED: Final = "Polygon interior loops cannot be nested:"


def not_contained(rings: list[Ring], number: int) -> str:
    return (
        "Secondary loops not contained by first exterior loop - secondary loops must be holes:"
        f" {ring_text(rings[number])} first loop: {ring_text(rings[0])}"
    )
