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

A document has room for polygons of some 450,000 corners. The loops over corners and sides give way, and so does what
stands between two calls of S2. A call itself cannot, nor can other threads run meanwhile, since s2rst keeps Python's
lock: making a loop, a polygon or an index takes about 0.8 µs a corner.
"""

from typing import Final

import s2rst

from mongottl.document.interrupt import give_way
from mongottl.geometry.geojson import GeometryError, Position, Ring

# Radians: less than a centimetre on the ground.
TOUCHING_RAD: Final = 1e-9
TOUCHING: Final = s2rst.ChordAngle.from_radians(TOUCHING_RAD)
# Distance of the points of `_point_beside` from their side, as a fraction of the side's length.
_BESIDE: Final = 1e-3

# Of a point on the sphere of radius 1.
_Coordinates = tuple[float, float, float]


def s2_point(position: Position) -> s2rst.S2Point:
    give_way()
    return s2rst.LatLng.from_degrees(position[1], position[0]).to_point()


class SpherePolygon:
    """A polygon on the sphere, possibly with holes.

    outer: the outer ring, its interior to the left. holes: rings within it, the area of the hole to their left.
    """

    def __init__(self, outer: s2rst.Loop, holes: list[s2rst.Loop]) -> None:
        self.outer = outer
        self.holes = holes
        self.polygon = s2rst.Polygon([outer, *holes]) if holes else s2rst.Polygon([outer])
        give_way(outer.num_vertices())
        self._sides: s2rst.ShapeIndex | None = None
        self._crossings: s2rst.CrossingEdgeQuery | None = None
        self._outside: list[s2rst.S2Point] | None = None
        self._directed_sides: set[tuple[_Coordinates, _Coordinates]] | None = None

    def loops(self) -> list[s2rst.Loop]:
        return [self.outer, *self.holes]

    def _side_index(self) -> s2rst.ShapeIndex:
        """An index of the rings, as lines, in the order of `loops`."""
        sides = self._sides
        if sides is None:
            sides = s2rst.ShapeIndex()
            for loop in self.loops():
                vertices = loop.vertices()
                give_way(len(vertices))
                sides.add(s2rst.Polyline([*vertices, vertices[0]]))
                give_way(len(vertices))
            sides.build()
            give_way(self.outer.num_vertices())
            self._sides = sides
        return sides

    def has_within(self, point: s2rst.S2Point) -> bool:
        """Whether a point is inside or on the border."""
        give_way(2)
        return self.polygon.contains_point(point) or self._side_index().is_distance_less_to_point(point, TOUCHING)

    def contains_edge(self, a: s2rst.S2Point, b: s2rst.S2Point) -> bool:
        """Whether the shortest way between two points stays within."""
        if not self.has_within(a) or not self.has_within(b):
            return False
        return all(self.has_within(middle) for middle in self._midpoints(a, b))

    def meets_edge(self, a: s2rst.S2Point, b: s2rst.S2Point) -> bool:
        """Whether the shortest way between two points enters the interior, or is a side with that to its left."""
        sides = self._sides_by_direction()
        start, end = _coordinates(a), _coordinates(b)
        if (start, end) in sides:
            return True
        if (end, start) in sides:
            return False
        return any(self.polygon.contains_point(middle) for middle in self._midpoints(a, b))

    def _sides_by_direction(self) -> set[tuple[_Coordinates, _Coordinates]]:
        """The sides as pairs of corners, with the polygon's interior to the left."""
        sides = self._directed_sides
        if sides is None:
            sides = self._directed_sides = set()
            for ring, loop in enumerate(self.loops()):
                corners = [_coordinates(vertex) for vertex in loop.vertices()]
                for i in range(len(corners)):
                    sides.add((corners[i - 1], corners[i]) if ring == 0 else (corners[i], corners[i - 1]))
        return sides

    def _crossed(self, a: s2rst.S2Point, b: s2rst.S2Point) -> dict[int, list[int]]:
        """The numbers of the sides that an edge crosses, by the number of their ring."""
        give_way(2)
        crossings = self._crossings
        if crossings is None:
            crossings = self._crossings = s2rst.CrossingEdgeQuery(self._side_index())
        return crossings.crossings(a, b, cross_type=s2rst.CrossingType.INTERIOR)

    def _midpoints(self, a: s2rst.S2Point, b: s2rst.S2Point) -> list[s2rst.S2Point]:
        """The midpoints of the parts into which the sides cut an edge."""
        cuts = [(0.0, a), (a.distance(b).radians, b)]
        for ring, edges in self._crossed(a, b).items():
            loop = self.outer if ring == 0 else self.holes[ring - 1]
            count = loop.num_vertices()
            for edge in edges:
                give_way(2)
                cut = s2rst.intersection(a, b, loop.vertex(edge), loop.vertex((edge + 1) % count))
                cuts.append((a.distance(cut).radians, cut))
        cuts.sort(key=_fraction_of)
        return [
            s2rst.interpolate(0.5, cuts[i][1], cuts[i + 1][1])
            for i in range(len(cuts) - 1)
            if cuts[i + 1][0] - cuts[i][0] > TOUCHING_RAD
        ]

    def contains_polygon(self, other: "SpherePolygon") -> bool:
        for loop in other.loops():
            vertices = loop.vertices()
            for i in range(len(vertices)):
                if not self.contains_edge(vertices[i - 1], vertices[i]):
                    return False
        # No side of the other leaves this polygon, so each area outside this one is wholly inside or outside of the
        # other.
        return not any(other.polygon.contains_point(point) for point in self._points_outside())

    def meets_polygon(self, other: "SpherePolygon") -> bool:
        for loop in other.loops():
            vertices = loop.vertices()
            for i in range(len(vertices)):
                if self._crossed(vertices[i - 1], vertices[i]):
                    return True
        # No sides cross, so a point next to the midpoint of a side decides for the whole side.
        return self._has_some_inside(other) or other._has_some_inside(self)

    def _has_some_inside(self, other: "SpherePolygon") -> bool:
        """Whether a point just inside one of the other polygon's sides is inside of this one."""
        for ring, loop in enumerate(other.loops()):
            for edge in range(loop.num_vertices()):
                if self.polygon.contains_point(_point_beside(loop, edge, -1.0 if ring else 1.0)):
                    return True
        return False

    def _points_outside(self) -> list[s2rst.S2Point]:
        """A point in each area outside the polygon: beyond the outer ring, and in each hole."""
        points = self._outside
        if points is None:
            points = self._outside = [
                _point_beside(self.outer, 0, -1.0),
                *[_point_beside(hole, 0, 1.0) for hole in self.holes],
            ]
        return points


def _fraction_of(cut: tuple[float, s2rst.S2Point]) -> float:
    return cut[0]


def _point_beside(loop: s2rst.Loop, edge: int, side: float) -> s2rst.S2Point:
    """A point near the middle of an edge, to its left (side 1) or right (-1), with no other edge between."""
    give_way(4)
    a, b = loop.vertex(edge), loop.vertex((edge + 1) % loop.num_vertices())
    middle = s2rst.interpolate(0.5, a, b)
    left = s2rst.robust_cross_prod(a, b)
    offset = a.distance(b).radians * _BESIDE * side
    while True:
        point = s2rst.S2Point(
            middle.x + left.x * offset, middle.y + left.y * offset, middle.z + left.z * offset
        ).normalize()
        if loop.contains_point(point) == (side > 0) or abs(offset) < TOUCHING_RAD:
            return point
        offset /= 8


def polygon_of(rings: list[Ring], strict_winding: bool) -> SpherePolygon:
    """The polygon with these rings, the outer one first.

    GeometryError for rings that cross themselves or each other, share a side, or are not within the first. Holes must
    not lie in one another, nor share more than one corner with the outer ring.
    """
    loops: list[s2rst.Loop] = []
    outlines: list[list[s2rst.S2Point]] = []
    for ring in rings:
        outline = [s2_point(position) for position in ring[:-1]]
        loop = s2rst.Loop(outline)
        give_way(len(ring))
        fault = loop.validate()
        give_way(len(ring))
        if fault is not None:
            raise GeometryError(f"Loop is not valid: {_ring_text(ring)} {fault}")
        if not strict_winding:
            loop.normalize()
            if loop.vertex(0) != outline[0]:
                outline.reverse()
        loops.append(loop)
        outlines.append(outline)
    corners = sum(map(len, rings))
    # Of plain outlines, which an index takes as they are: a Polygon would be made and copied, 1.8 µs a corner.
    whole = s2rst.ShapeIndex()
    whole.add(s2rst.LaxPolygon(outlines))
    give_way(corners)
    whole.build()
    give_way(corners)
    fault = s2rst.find_self_intersection(whole)
    give_way(corners)
    if fault is not None:
        raise GeometryError(f"Loop is not valid: {fault}")
    for loop in loops[1:]:
        if _corners_in_common(loops[0], loop) > 1:
            raise GeometryError("Polygon isn't normalized: a hole shares more than one vertex with the exterior ring")
    polygon = SpherePolygon(loops[0], [])
    for i in range(1, len(loops)):
        if not all(polygon.has_within(vertex) for vertex in loops[i].vertices()):
            raise GeometryError(
                "Secondary loops not contained by first exterior loop - secondary loops must be holes:"
                f" {_ring_text(rings[i])} first loop: {_ring_text(rings[0])}"
            )
    if len(loops) == 1:
        return polygon
    # An area in two holes is not inside of the polygon that all of them form.
    inside = s2rst.Polygon(loops[1:])
    give_way(corners)
    for i in range(1, len(loops)):
        if len(loops) > 2 and not inside.contains_point(_point_beside(loops[i], 0, 1.0)):
            raise GeometryError(f"Polygon interior loops cannot be nested: {_ring_text(rings[i])}")
    return SpherePolygon(loops[0], loops[1:])


def _coordinates(point: s2rst.S2Point) -> _Coordinates:
    give_way()
    return point.x, point.y, point.z


def _corners_in_common(a: s2rst.Loop, b: s2rst.Loop) -> int:
    corners = {_coordinates(corner) for corner in a.vertices()}
    return sum(_coordinates(corner) in corners for corner in b.vertices())


def _ring_text(ring: Ring) -> str:
    return str([list(position) for position in ring])
