"""Shapes on the sphere, over s2rst, a binding of S2: the library behind MongoDB's own spherical geometry.

Lines and sides are the shortest way between two points (geodesics), not lines of equal latitude. A polygon's interior
is the smaller part of the sphere, whatever the direction of its ring, save with MongoDB's strict winding. Distances are
angles in radians; MongoDB's metres are those on a sphere of EARTH_RADIUS_M.

S2's polygons own half of their border. MongoDB compares with the cell of about a centimetre that a point lies in, and
so counts what is on a border as inside; here what is nearer than TOUCHING is on it.
"""

import math
from typing import Final

import s2rst

from mongottl.geometry.geojson import Geometry, GeometryError, Position, Ring, is_within_bounds
from mongottl.geometry.plane import Bounds
from mongottl.geometry.region import EVERYWHERE

EARTH_RADIUS_M: Final = 6378100.0
# Radians: less than a centimetre on the ground.
TOUCHING_RAD: Final = 1e-9
# A shortest way that leaves a polygon by less than this (in radians) does so by rounding alone.
_ROUNDING_RAD: Final = math.radians(1e-10)

_TOUCHING: Final = s2rst.ChordAngle.from_radians(TOUCHING_RAD)


def s2_point(position: Position) -> s2rst.S2Point:
    return s2rst.LatLng.from_degrees(position[1], position[0]).to_point()


def distance_rad(a: s2rst.S2Point, b: s2rst.S2Point) -> float:
    return a.distance(b).radians


class SphereShape:
    """Points, lines and polygons on the sphere. Made by `shape_of`.

    Indexes over the parts, which the costlier questions need, are made when they are first asked.
    """

    def __init__(self, points: list[s2rst.S2Point], lines: list[s2rst.Polyline], polygons: list[s2rst.Polygon]) -> None:
        self.points = points
        self.lines = lines
        self.polygons = polygons
        self._query: s2rst.ClosestEdgeQuery | None = None
        self._borders: list[s2rst.ShapeIndex] | None = None

    def query(self) -> s2rst.ClosestEdgeQuery:
        """Distances to all of the shape; 0 within a polygon."""
        query = self._query
        if query is None:
            index = s2rst.ShapeIndex()
            if self.points:
                index.add(s2rst.PointVector(self.points))
            for line in self.lines:
                index.add(line)
            for polygon in self.polygons:
                index.add(polygon)
            index.build()
            query = self._query = s2rst.ClosestEdgeQuery(index)
        return query

    def distance_rad(self, point: s2rst.S2Point) -> float:
        """How far the point is from the nearest part."""
        if not self.lines and not self.polygons:
            return min(distance_rad(point, own) for own in self.points)
        return self.query().get_distance(point).radians

    def contains(self, other: "SphereShape") -> bool:
        """Whether every part of the other lies within one of the polygons of this one."""
        polygons = self.polygons
        return (
            bool(polygons)
            and all(self._has_within(point) for point in other.points)
            and all(self._contains_line(line) for line in other.lines)
            and all(any(own.contains_polygon(polygon) for own in polygons) for polygon in other.polygons)
        )

    def intersects(self, other: "SphereShape") -> bool:
        """Whether the two have a point in common."""
        return (
            any(self._meets_point(point) for point in other.points)
            or any(other._meets_point(point) for point in self.points)
            or any(self._meets_line(line) for line in other.lines)
            or any(other._meets_line(line) for line in self.lines if other.polygons)
            or any(own.intersects_polygon(polygon) for own in self.polygons for polygon in other.polygons)
        )

    def _has_within(self, point: s2rst.S2Point) -> bool:
        """Whether the point is inside of a polygon or on its border."""
        polygons = self.polygons
        if any(polygon.contains_point(point) for polygon in polygons):
            return True
        borders = self._borders
        if borders is None:
            borders = self._borders = [_index_of(polygon) for polygon in polygons]
        return any(border.is_distance_less_to_point(point, _TOUCHING) for border in borders)

    def _contains_line(self, line: s2rst.Polyline) -> bool:
        # A line whose points are all the same, at a pole for example, leaves nothing to subtract.
        return all(self._has_within(vertex) for vertex in line.vertices()) and any(
            all(part.length().radians <= _ROUNDING_RAD for part in polygon.subtract_from_polyline(line))
            for polygon in self.polygons
        )

    def _meets_point(self, point: s2rst.S2Point) -> bool:
        if self.polygons and self._has_within(point):
            return True
        if self.points and any(distance_rad(point, own) < TOUCHING_RAD for own in self.points):
            return True
        return bool(self.lines) and self.query().is_distance_less(point, _TOUCHING)

    def _meets_line(self, line: s2rst.Polyline) -> bool:
        return any(own.intersects(line) for own in self.lines) or any(
            _meets_polygon(polygon, line) for polygon in self.polygons
        )


def _index_of(polygon: s2rst.Polygon) -> s2rst.ShapeIndex:
    index = s2rst.ShapeIndex()
    index.add(polygon)
    index.build()
    return index


def _meets_polygon(polygon: s2rst.Polygon, line: s2rst.Polyline) -> bool:
    return any(polygon.contains_point(vertex) for vertex in line.vertices()) or bool(
        polygon.intersect_with_polyline(line)
    )


class SphereCap:
    """What is not farther than `radius_rad` from a point: `$centerSphere`, and what `$near` searches."""

    def __init__(self, center: Position, radius_rad: float) -> None:
        self.center = s2_point(center)
        self.radius_rad = min(radius_rad, math.pi)
        self._opposite = -self.center

    def contains(self, other: SphereShape) -> bool:
        """Whether all of the other is within: no part of it is near to the point opposite of the centre."""
        if self.radius_rad >= math.pi:
            return True
        if not other.lines and not other.polygons:
            return all(distance_rad(self.center, point) <= self.radius_rad for point in other.points)
        return other.distance_rad(self._opposite) >= math.pi - self.radius_rad

    def region(self) -> s2rst.Cap:
        """S2's own shape, a hair larger, so that what rounds to the border is in it."""
        return s2rst.Cap.from_center_angle(self.center, s2rst.Angle.from_radians(self.radius_rad + TOUCHING_RAD))

    def bounds(self) -> Bounds:
        """The rectangle of longitudes and latitudes, in degrees, around it."""
        rectangle = self.region().rect_bound()
        if rectangle.is_full():
            return EVERYWHERE
        south, north = math.degrees(rectangle.lat.lo), math.degrees(rectangle.lat.hi)
        if rectangle.lng.is_full() or rectangle.lng.is_inverted():
            return -180.0, south, 180.0, north
        return math.degrees(rectangle.lng.lo), south, math.degrees(rectangle.lng.hi), north


def shape_of(geometry: Geometry) -> SphereShape:
    """The shape of a geometry. GeometryError for a legacy pair out of bounds and for rings that are no polygon."""
    position = geometry.point
    if position is not None:
        if not is_within_bounds(position):
            raise GeometryError(f"longitude/latitude is out of bounds, lng: {position[0]} lat: {position[1]}")
        return SphereShape([s2_point(position)], [], [])
    return SphereShape(
        [s2_point(position) for position in geometry.points],
        [s2rst.Polyline([s2_point(position) for position in line]) for line in geometry.lines],
        [_polygon(rings, geometry.strict_winding) for rings in geometry.polygons],
    )


def _loop(ring: Ring) -> s2rst.Loop:
    loop = s2rst.Loop([s2_point(position) for position in ring[:-1]])
    fault = loop.validate()
    if fault is not None:
        raise GeometryError(f"Loop is not valid: {list(map(list, ring))} {fault}")
    return loop


def _polygon(rings: list[Ring], strict_winding: bool) -> s2rst.Polygon:
    loops: list[s2rst.Loop] = []
    for ring in rings:
        loop = _loop(ring)
        if not strict_winding:
            loop.normalize()
        if loops and not loops[0].contains_loop(loop):
            raise GeometryError(
                "Secondary loops not contained by first exterior loop - secondary loops must be holes:"
                f" {list(map(list, ring))} first loop: {list(map(list, rings[0]))}"
            )
        loops.append(loop)
    polygon = s2rst.Polygon(loops)
    fault = s2rst.find_self_intersection(_index_of(polygon))
    if fault is not None:
        raise GeometryError(f"Polygon isn't valid: {fault}")
    return polygon
