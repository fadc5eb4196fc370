"""Polygons on the sphere, and what lies within them.

s2rst 0.5 is right about points, distances, crossings of edges and validity (compared with Google's own S2 over some
hundred thousand random figures), and wrong in one of a few hundred answers about whether two loops or polygons contain
or meet each other, and about the part of a line within a polygon. So that only the former are asked here:

    a line is within a polygon     if each of its edges, cut where it crosses a side, has the middle of each part within
    a line meets a polygon         if one of those parts has its middle inside
    a polygon is within another    if its sides are, and none of what the other leaves out lies inside of it
    two polygons meet              if their sides cross, or what is just behind a side of one is inside of the other

S2's polygons own half of their border. MongoDB compares with the cell of about a centimetre that a point lies in, and
so counts a point on a border as inside; here what is nearer than TOUCHING_RAD is on it. Lines and polygons that have no
more than a piece of border in common with a polygon do not meet it (SERVER-13599, and the page on `$geoIntersects`).
"""

from typing import Final

import s2rst

from mongottl.geometry.geojson import GeometryError, Position, Ring

# Radians: less than a centimetre on the ground.
TOUCHING_RAD: Final = 1e-9
TOUCHING: Final = s2rst.ChordAngle.from_radians(TOUCHING_RAD)
# How far beside a side it is looked for what the polygon leaves out, as a part of the side's length.
_BESIDE: Final = 1e-3


def s2_point(position: Position) -> s2rst.S2Point:
    return s2rst.LatLng.from_degrees(position[1], position[0]).to_point()


class SpherePolygon:
    """outer: the ring, its interior to the left. holes: rings within it, with what is left out to their left."""

    def __init__(self, outer: s2rst.Loop, holes: list[s2rst.Loop]) -> None:
        self.outer = outer
        self.holes = holes
        self.polygon = s2rst.Polygon([outer, *holes]) if holes else s2rst.Polygon([outer])
        self._sides: s2rst.ShapeIndex | None = None
        self._crossings: s2rst.CrossingEdgeQuery | None = None
        self._left_out: list[s2rst.S2Point] | None = None

    def loops(self) -> list[s2rst.Loop]:
        return [self.outer, *self.holes]

    def _side_index(self) -> s2rst.ShapeIndex:
        """The rings, as lines, by their numbers in `loops`."""
        sides = self._sides
        if sides is None:
            sides = s2rst.ShapeIndex()
            for loop in self.loops():
                vertices = loop.vertices()
                sides.add(s2rst.Polyline([*vertices, vertices[0]]))
            sides.build()
            self._sides = sides
        return sides

    def has_within(self, point: s2rst.S2Point) -> bool:
        """Whether a point is inside or on the border."""
        return self.polygon.contains_point(point) or self._side_index().is_distance_less_to_point(point, TOUCHING)

    def contains_edge(self, a: s2rst.S2Point, b: s2rst.S2Point) -> bool:
        """Whether the shortest way between two points stays within."""
        if not self.has_within(a) or not self.has_within(b):
            return False
        return all(self.has_within(middle) for middle in self._middles(a, b))

    def meets_edge(self, a: s2rst.S2Point, b: s2rst.S2Point) -> bool:
        """Whether the shortest way between two points comes inside."""
        return any(self.polygon.contains_point(middle) for middle in self._middles(a, b))

    def _crossed(self, a: s2rst.S2Point, b: s2rst.S2Point) -> dict[int, list[int]]:
        """The sides that an edge crosses, by the number of their ring."""
        crossings = self._crossings
        if crossings is None:
            crossings = self._crossings = s2rst.CrossingEdgeQuery(self._side_index())
        return crossings.crossings(a, b, cross_type=s2rst.CrossingType.INTERIOR)

    def _middles(self, a: s2rst.S2Point, b: s2rst.S2Point) -> list[s2rst.S2Point]:
        """The middle of each part of an edge that the sides cut it into."""
        cuts = [(0.0, a), (a.distance(b).radians, b)]
        for ring, edges in self._crossed(a, b).items():
            loop = self.outer if ring == 0 else self.holes[ring - 1]
            count = loop.num_vertices()
            for edge in edges:
                cut = s2rst.intersection(a, b, loop.vertex(edge), loop.vertex((edge + 1) % count))
                cuts.append((a.distance(cut).radians, cut))
        cuts.sort(key=_place)
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
        # No side of the other enters what is left out here: each part of that is all inside of it, or all outside.
        return not any(other.polygon.contains_point(point) for point in self._points_left_out())

    def meets_polygon(self, other: "SpherePolygon") -> bool:
        for loop in other.loops():
            vertices = loop.vertices()
            for i in range(len(vertices)):
                if self._crossed(vertices[i - 1], vertices[i]):
                    return True
        # No side is crossed, so that what is just behind its middle is inside where any of it is.
        return self._has_some_inside(other) or other._has_some_inside(self)

    def _has_some_inside(self, other: "SpherePolygon") -> bool:
        """Whether the other polygon has a point just behind a side that is inside of this one."""
        for ring, loop in enumerate(other.loops()):
            for edge in range(loop.num_vertices()):
                if self.polygon.contains_point(_point_beside(loop, edge, -1.0 if ring else 1.0)):
                    return True
        return False

    def _points_left_out(self) -> list[s2rst.S2Point]:
        """A point of each part of the sphere that the polygon leaves out: beyond the outer ring, and in each hole."""
        points = self._left_out
        if points is None:
            points = self._left_out = [
                _point_beside(self.outer, 0, -1.0),
                *[_point_beside(hole, 0, 1.0) for hole in self.holes],
            ]
        return points


def _place(cut: tuple[float, s2rst.S2Point]) -> float:
    return cut[0]


def _point_beside(loop: s2rst.Loop, edge: int, side: float) -> s2rst.S2Point:
    """A point near the middle of an edge, to its left (side 1) or right (-1), with no other edge between."""
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
    """GeometryError for rings that cross themselves or each other, share a side, or are no holes.

    Holes must not lie in one another, nor share more than one corner with the outer ring.
    """
    loops: list[s2rst.Loop] = []
    for ring in rings:
        loop = s2rst.Loop([s2_point(position) for position in ring[:-1]])
        fault = loop.validate()
        if fault is not None:
            raise GeometryError(f"Loop is not valid: {_shown(ring)} {fault}")
        if not strict_winding:
            loop.normalize()
        loops.append(loop)
    whole = s2rst.ShapeIndex()
    whole.add(s2rst.Polygon(loops))
    whole.build()
    fault = s2rst.find_self_intersection(whole)
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
                f" {_shown(rings[i])} first loop: {_shown(rings[0])}"
            )
    if len(loops) == 1:
        return polygon
    # What lies in two holes is not inside of the polygon that all of them make.
    inside = s2rst.Polygon(loops[1:])
    for i in range(1, len(loops)):
        if len(loops) > 2 and not inside.contains_point(_point_beside(loops[i], 0, 1.0)):
            raise GeometryError(f"Polygon interior loops cannot be nested: {_shown(rings[i])}")
    return SpherePolygon(loops[0], loops[1:])


def _corners_in_common(a: s2rst.Loop, b: s2rst.Loop) -> int:
    corners = {(corner.x, corner.y, corner.z) for corner in a.vertices()}
    return sum((corner.x, corner.y, corner.z) in corners for corner in b.vertices())


def _shown(ring: Ring) -> str:
    return str([list(position) for position in ring])
