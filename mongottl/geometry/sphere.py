"""Shapes on the sphere, implemented with s2rst, a binding of S2, the library that MongoDB itself uses.

Lines and sides are the shortest way between two points (geodesics), not lines of equal latitude. A polygon's interior
is the smaller part of the sphere, whatever the direction of its ring, except with MongoDB's strict winding. Distances
are angles in radians; MongoDB's metres are those on a sphere of EARTH_RADIUS_M.
"""

import math
from collections.abc import Iterator
from typing import Any, Final

import s2rst

from mongottl.document.freeing import HeavyList, freed_in_slices, list_for
from mongottl.document.interrupt import give_way
from mongottl.geometry.blocks import (
    SIZES,
    Block,
    BlockTree,
    Chain,
    edge_blocks,
    index_of,
    point_blocks,
    polygon_blocks,
)
from mongottl.geometry.geojson import Geometry, GeometryError, Position, Ring, is_within_bounds
from mongottl.geometry.large_polygon import LargePolygon, large_polygon_of
from mongottl.geometry.plane import Bounds
from mongottl.geometry.small_polygon import SmallPolygon, small_polygon_of
from mongottl.geometry.sphere_polygon import TOUCHING, TOUCHING_RAD, SpherePolygon, s2_point

EARTH_RADIUS_M: Final = 6378100.0
# S2 compares each edge of a line with each of another, 20 ns a pair.
_COMPARED_EDGES: Final = 1 << 18


def distance_rad(a: s2rst.S2Point, b: s2rst.S2Point) -> float:
    give_way()
    return a.distance(b).radians


class SphereLine:
    """A line, by its points, with what is made of them on first use."""

    def __init__(self, points: Chain) -> None:
        self.points = points
        self._polyline: s2rst.Polyline | None = None
        self._tree: BlockTree | None = None

    def polyline(self) -> s2rst.Polyline:
        if self._polyline is None:
            self._polyline = s2rst.Polyline(self.points)
            give_way(len(self.points))
        return self._polyline

    def tree(self) -> BlockTree:
        """Its edges, in blocks."""
        if self._tree is None:
            self._tree = BlockTree(edge_blocks([self.points], [0]))
        return self._tree

    def intersects(self, other: "SphereLine") -> bool:
        """Whether the two cross, or have a point in common where one of them has a corner."""
        pairs = len(self.points) * len(other.points)
        if pairs <= _COMPARED_EDGES:
            give_way(1 + pairs // 512)
            meets: bool = self.polyline().intersects(other.polyline())
            return meets
        shorter, longer = (self, other) if len(self.points) < len(other.points) else (other, self)
        tree = longer.tree()
        points = shorter.points
        return any(tree.crossed(points[i], points[i + 1], s2rst.CrossingType.ALL) for i in range(len(points) - 1))


class SphereShape:
    """Points, lines and polygons on the sphere, few enough for one index of S2. Made by `shape_of`."""

    def __init__(self, points: list[s2rst.S2Point], lines: list[SphereLine], polygons: list[SpherePolygon]) -> None:
        self.points = points
        self.lines = lines
        self.polygons = polygons
        self._own_index: s2rst.ShapeIndex | None = None
        self._query: s2rst.ClosestEdgeQuery | None = None
        self._block: Block | None = None

    def _parts(self) -> list[Any]:
        parts: list[Any] = [s2rst.PointVector(self.points)] if self.points else []
        for line in self.lines:
            parts.append(line.polyline())
        for polygon in self.polygons:
            assert isinstance(polygon, SmallPolygon)
            parts.append(polygon.polygon())
        return parts

    def _index(self) -> s2rst.ShapeIndex:
        """An index of all parts, built on first use."""
        index = self._own_index
        if index is None:
            index = self._own_index = index_of(self._parts())
        return index

    def _nearest(self) -> s2rst.ClosestEdgeQuery:
        """Queries of distances to the shape; the distance is 0 within a polygon."""
        query = self._query
        if query is None:
            query = self._query = s2rst.ClosestEdgeQuery(self._index())
        return query

    def blocks(self) -> list[Block]:
        """The parts in indexes, but for the interiors of large polygons."""
        block = self._block
        if block is None:
            bound = s2rst.Rect.empty()
            for point in self.points:
                bound = bound.add_point(s2rst.LatLng.from_point(point))
            for line in self.lines:
                bound = bound.union(line.polyline().rect_bound())
            for polygon in self.polygons:
                assert isinstance(polygon, SmallPolygon)
                bound = bound.union(polygon.bound())
            block = self._block = Block(self._parts(), bound)
        return [block]

    def touches(self, cell: s2rst.CellId, limit: s2rst.ChordAngle) -> bool:
        """Whether a cell is nearer to the shape than `limit`."""
        give_way(8)
        near: bool = self._nearest().is_distance_less(s2rst.Cell(cell), limit)
        return near

    def distance_rad(self, point: s2rst.S2Point) -> float:
        """The distance of the point from the nearest part."""
        if not self.lines and not self.polygons:
            return min(distance_rad(point, own) for own in self.points)
        distance: float = self._nearest().get_distance(point).radians
        return distance

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
        if not self._is_near(other):
            return False
        return (
            any(other._meets(point) for point in self.points)
            or any(own.intersects(line) for own in self.lines for line in other.lines)
            or any(_meets_line(own, line) for own in self.polygons for line in other.lines)
            or any(_meets_line(polygon, own) for own in self.lines for polygon in other.polygons)
            or any(own.meets_polygon(polygon) for own in self.polygons for polygon in other.polygons)
        )

    def _is_near(self, other: "SphereShape") -> bool:
        if isinstance(other, LargeShape):
            return other._is_near(self)
        near: bool = self._nearest().is_distance_less(other._index(), TOUCHING)
        return near

    def _meets(self, point: s2rst.S2Point) -> bool:
        give_way()
        if any(polygon.has_within(point) for polygon in self.polygons):
            return True
        if any(distance_rad(point, own) < TOUCHING_RAD for own in self.points):
            return True
        return bool(self.lines) and self._touches_point(point)

    def _touches_point(self, point: s2rst.S2Point) -> bool:
        near: bool = self._nearest().is_distance_less(point, TOUCHING)
        return near


class LargeShape(SphereShape):
    """A shape of many corners, in blocks."""

    def __init__(self, points: list[s2rst.S2Point], lines: list[SphereLine], polygons: list[SpherePolygon]) -> None:
        super().__init__(points, lines, polygons)
        self._tree: BlockTree | None = None
        self._large = [polygon for polygon in polygons if isinstance(polygon, LargePolygon)]

    def _blocks(self) -> BlockTree:
        tree = self._tree
        if tree is None:
            if len(self._large) == 1 and len(self.polygons) == 1 and not self.points and not self.lines:
                tree = self._large[0].tree
            else:
                blocks = point_blocks(self.points)
                blocks.extend(edge_blocks([line.points for line in self.lines], [0] * len(self.lines)))
                rings: list[list[Chain]] = list_for(len(self.polygons))
                bounds: list[s2rst.Rect] = list_for(len(self.polygons))
                for polygon in self.polygons:
                    if isinstance(polygon, SmallPolygon):
                        give_way()
                        rings.append(polygon.rings)
                        bounds.append(polygon.bound())
                blocks.extend(polygon_blocks(rings, bounds))
                for large in self._large:
                    blocks.extend(large.tree.blocks)
                tree = BlockTree(blocks)
            self._tree = tree
        return tree

    def blocks(self) -> list[Block]:
        return self._blocks().blocks

    def touches(self, cell: s2rst.CellId, limit: s2rst.ChordAngle) -> bool:
        if self._blocks().is_near_cell(cell, limit):
            return True
        return bool(self._large) and self._has_inside(cell.to_point())

    def distance_rad(self, point: s2rst.S2Point) -> float:
        if not self.lines and not self.polygons:
            return super().distance_rad(point)
        return 0.0 if self._has_inside(point) else self._blocks().distance_rad(point)

    def _has_inside(self, point: s2rst.S2Point) -> bool:
        """Whether a point is in one of the large polygons, whose interiors no block has."""
        return any(polygon.has_inside(point) for polygon in self._large)

    def _is_near(self, other: SphereShape) -> bool:
        tree = self._blocks()
        if any(tree.is_near_block(block, TOUCHING) for block in other.blocks()):
            return True
        # No lines or sides touch, so each of them is wholly inside or outside of a polygon.
        if self._large and any(self._has_inside(point) for point in _starts(other)):
            return True
        return isinstance(other, LargeShape) and any(other._has_inside(point) for point in _starts(self))

    def _touches_point(self, point: s2rst.S2Point) -> bool:
        return self._blocks().is_near(point, TOUCHING)


def _starts(shape: SphereShape) -> Iterator[s2rst.S2Point]:
    """All points, and one of each line and ring."""
    yield from shape.points
    for line in shape.lines:
        yield line.points[0]
    for polygon in shape.polygons:
        for ring in polygon.rings:
            yield ring[0]


def _contains_line(polygon: SpherePolygon, line: SphereLine) -> bool:
    points = line.points
    return all(polygon.contains_edge(points[i], points[i + 1]) for i in range(len(points) - 1))


def _meets_line(polygon: SpherePolygon, line: SphereLine) -> bool:
    points = line.points
    return any(polygon.meets_edge(points[i], points[i + 1]) for i in range(len(points) - 1))


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
    corners = len(geometry.points)
    for line in geometry.lines:
        corners += len(line)
    for rings in geometry.polygons:
        corners += _corners(rings)
    if corners < SIZES.large:
        return SphereShape(
            [s2_point(position) for position in geometry.points],
            [SphereLine([s2_point(position) for position in line]) for line in geometry.lines],
            [small_polygon_of(rings, geometry.strict_winding) for rings in geometry.polygons],
        )
    polygons: list[SpherePolygon] = HeavyList()
    for rings in geometry.polygons:
        polygons.append(polygon_of(rings, geometry.strict_winding))
    return LargeShape(
        freed_in_slices([s2_point(position) for position in geometry.points]),
        freed_in_slices(
            [SphereLine(freed_in_slices([s2_point(position) for position in line])) for line in geometry.lines]
        ),
        polygons,
    )


def polygon_of(rings: list[Ring], strict_winding: bool) -> SpherePolygon:
    """The polygon with these rings, the outer one first.

    GeometryError for rings that cross themselves or each other, share a side, or are not within the first. Holes must
    not lie in one another, nor share more than one corner with the outer ring.
    """
    if _corners(rings) < SIZES.large:
        return small_polygon_of(rings, strict_winding)
    return large_polygon_of(rings, strict_winding)


def _corners(rings: list[Ring]) -> int:
    give_way()
    corners = 0
    for ring in rings:
        corners += len(ring)
    return corners
