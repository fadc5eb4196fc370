"""Shapes on the sphere, implemented with s2rst, a binding of S2, the library that MongoDB itself uses.

Lines and sides are the shortest way between two points (geodesics), not lines of equal latitude. A polygon's interior
is the smaller part of the sphere, whatever the direction of its ring, except with MongoDB's strict winding. Distances
are angles in radians; MongoDB's metres are those on a sphere of EARTH_RADIUS_M.
"""

import math
from typing import Final

import s2rst

from mongottl.document.interrupt import give_way
from mongottl.geometry.geojson import Geometry, GeometryError, Position, is_within_bounds
from mongottl.geometry.plane import Bounds
from mongottl.geometry.sphere_polygon import TOUCHING, TOUCHING_RAD, SpherePolygon, polygon_of, s2_point

EARTH_RADIUS_M: Final = 6378100.0


def distance_rad(a: s2rst.S2Point, b: s2rst.S2Point) -> float:
    give_way()
    return a.distance(b).radians


class SphereShape:
    """Points, lines and polygons on the sphere. Made by `shape_of`."""

    def __init__(self, points: list[s2rst.S2Point], lines: list[s2rst.Polyline], polygons: list[SpherePolygon]) -> None:
        self.points = points
        self.lines = lines
        self.polygons = polygons
        self._index: s2rst.ShapeIndex | None = None
        self._query: s2rst.ClosestEdgeQuery | None = None

    def index(self) -> s2rst.ShapeIndex:
        """An index of all parts, built on first use."""
        index = self._index
        if index is None:
            index = s2rst.ShapeIndex()
            if self.points:
                index.add(s2rst.PointVector(self.points))
            for line in self.lines:
                index.add(line)
                give_way(line.num_vertices())
            for polygon in self.polygons:
                index.add(polygon.polygon)
                give_way(polygon.outer.num_vertices())
            index.build()
            give_way(len(self.points))
            self._index = index
        return index

    def query(self) -> s2rst.ClosestEdgeQuery:
        """Queries of distances to the shape; the distance is 0 within a polygon."""
        query = self._query
        if query is None:
            query = self._query = s2rst.ClosestEdgeQuery(self.index())
        return query

    def distance_rad(self, point: s2rst.S2Point) -> float:
        """The distance of the point from the nearest part."""
        if not self.lines and not self.polygons:
            return min(distance_rad(point, own) for own in self.points)
        return self.query().get_distance(point).radians

    def contains(self, other: "SphereShape") -> bool:
        """Whether every part of the other lies within one of the polygons of this one."""
        polygons = self.polygons
        return (
            bool(polygons)
            and all(any(own.has_within(point) for own in polygons) for point in other.points)
            and all(any(_contains_line(own, line) for own in polygons) for line in other.lines)
            and all(any(own.contains_polygon(polygon) for own in polygons) for polygon in other.polygons)
        )

    def intersects(self, other: "SphereShape") -> bool:
        """Whether the two have a point in common. Points on a polygon's border count only if the other shape is
        points."""
        if any(self._meets(point) for point in other.points):
            return True
        if not other.lines and not other.polygons:
            return False
        if not self.query().is_distance_less(other.index(), TOUCHING):
            return False
        return (
            any(other._meets(point) for point in self.points)
            or any(own.intersects(line) for own in self.lines for line in other.lines)
            or any(_meets_line(own, line) for own in self.polygons for line in other.lines)
            or any(_meets_line(polygon, own) for own in self.lines for polygon in other.polygons)
            or any(own.meets_polygon(polygon) for own in self.polygons for polygon in other.polygons)
        )

    def _meets(self, point: s2rst.S2Point) -> bool:
        give_way()
        if any(polygon.has_within(point) for polygon in self.polygons):
            return True
        if any(distance_rad(point, own) < TOUCHING_RAD for own in self.points):
            return True
        return bool(self.lines) and self.query().is_distance_less(point, TOUCHING)


def _contains_line(polygon: SpherePolygon, line: s2rst.Polyline) -> bool:
    vertices = line.vertices()
    return all(polygon.contains_edge(vertices[i], vertices[i + 1]) for i in range(len(vertices) - 1))


def _meets_line(polygon: SpherePolygon, line: s2rst.Polyline) -> bool:
    vertices = line.vertices()
    return any(polygon.meets_edge(vertices[i], vertices[i + 1]) for i in range(len(vertices) - 1))


class SphereCap:
    """All points within `radius_rad` of a centre: `$centerSphere`, and the area that `$near` searches."""

    def __init__(self, center: Position, radius_rad: float) -> None:
        self.center = s2_point(center)
        self.radius_rad = min(radius_rad, math.pi)
        self._opposite = -self.center

    def contains(self, other: SphereShape) -> bool:
        """Whether the other lies within: no part of it is too near to the point opposite to the centre."""
        if self.radius_rad >= math.pi:
            return True
        if not other.lines and not other.polygons:
            return all(distance_rad(self.center, point) <= self.radius_rad for point in other.points)
        return other.distance_rad(self._opposite) >= math.pi - self.radius_rad

    def region(self) -> s2rst.Cap:
        """The cap as S2's own type, slightly larger, so that points rounded to the border are in it."""
        return s2rst.Cap.from_center_angle(self.center, s2rst.Angle.from_radians(self.radius_rad + TOUCHING_RAD))

    def bounds(self) -> Bounds:
        """A rectangle of longitudes and latitudes, in degrees, that contains the cap."""
        rectangle = self.region().rect_bound()
        if rectangle.is_full():
            return -math.inf, -math.inf, math.inf, math.inf
        south, north = math.degrees(rectangle.lat.lo), math.degrees(rectangle.lat.hi)
        if rectangle.lng.is_full() or rectangle.lng.is_inverted():
            return -180.0, south, 180.0, north
        return math.degrees(rectangle.lng.lo), south, math.degrees(rectangle.lng.hi), north


def shape_of(geometry: Geometry) -> SphereShape:
    """The shape of a geometry. GeometryError for a legacy pair out of bounds and for rings that do not form a
    polygon."""
    position = geometry.point
    if position is not None:
        if not is_within_bounds(position):
            raise GeometryError(f"longitude/latitude is out of bounds, lng: {position[0]} lat: {position[1]}")
        return SphereShape([s2_point(position)], [], [])
    return SphereShape(
        [s2_point(position) for position in geometry.points],
        [s2rst.Polyline([s2_point(position) for position in line]) for line in geometry.lines],
        [polygon_of(rings, geometry.strict_winding) for rings in geometry.polygons],
    )
