"""Polygons of few corners, as S2's own polygons."""

from collections.abc import Callable

import s2rst

from mongottl.document.interrupt import give_way
from mongottl.geometry.blocks import Chain
from mongottl.geometry.geojson import GeometryError, Ring
from mongottl.geometry.sphere_polygon import (
    BESIDE_RAD,
    NESTED,
    NOT_VALID,
    SHARED_CORNERS,
    TOUCHING,
    SpherePolygon,
    coordinates_of,
    not_contained,
    point_beside,
    ring_text,
    s2_point,
)


class SmallPolygon(SpherePolygon):
    """rings: as in SpherePolygon. loops: the same as S2's own."""

    def __init__(self, rings: list[Chain], loops: list[s2rst.Loop]) -> None:
        super().__init__(rings)
        self._loops = loops
        self._polygon: s2rst.Polygon | None = None
        self._sides: s2rst.ShapeIndex | None = None
        self._crossings: s2rst.CrossingEdgeQuery | None = None

    def polygon(self) -> s2rst.Polygon:
        """S2's own, made on first use."""
        polygon = self._polygon
        if polygon is None:
            polygon = self._polygon = s2rst.Polygon(self._loops)
            give_way(len(self.rings[0]))
        return polygon

    def bound(self) -> s2rst.Rect:
        """A rectangle that contains it."""
        return self._loops[0].rect_bound()

    def surroundings(self) -> s2rst.Cap:
        return self._loops[0].cap_bound().expanded(s2rst.Angle.from_radians(BESIDE_RAD))

    def _side_index(self) -> s2rst.ShapeIndex:
        """An index of the rings, as lines, in their order."""
        sides = self._sides
        if sides is None:
            sides = s2rst.ShapeIndex()
            for ring in self.rings:
                sides.add(s2rst.Polyline(ring))
                give_way(len(ring))
            sides.build()
            give_way(len(self.rings[0]))
            self._sides = sides
        return sides

    def has_inside(self, point: s2rst.S2Point) -> bool:
        inside: bool = self.polygon().contains_point(point)
        return inside

    def has_within(self, point: s2rst.S2Point) -> bool:
        give_way(2)
        return self.polygon().contains_point(point) or self._side_index().is_distance_less_to_point(point, TOUCHING)

    def ring_area(self, ring: int) -> Callable[[s2rst.S2Point], bool]:
        area: Callable[[s2rst.S2Point], bool] = self._loops[ring].contains_point
        return area

    def crossed(self, a: s2rst.S2Point, b: s2rst.S2Point) -> list[tuple[int, int]]:
        give_way(2)
        crossings = self._crossings
        if crossings is None:
            crossings = self._crossings = s2rst.CrossingEdgeQuery(self._side_index())
        found: dict[int, list[int]] = crossings.crossings(a, b, cross_type=s2rst.CrossingType.INTERIOR)
        if not found:
            return []
        return [(ring, side) for ring, sides in found.items() for side in sides]


def small_polygon_of(rings: list[Ring], strict_winding: bool) -> SmallPolygon:
    """See `sphere.polygon_of`."""
    loops: list[s2rst.Loop] = []
    outlines: list[Chain] = []
    for ring in rings:
        outline = [s2_point(position) for position in ring[:-1]]
        loop = s2rst.Loop(outline)
        give_way(len(ring))
        fault = loop.validate()
        if fault is not None:
            raise GeometryError(f"{NOT_VALID} {ring_text(ring)} {fault}")
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
    whole.build()
    give_way(corners)
    fault = s2rst.find_self_intersection(whole)
    give_way(corners)
    if fault is not None:
        raise GeometryError(f"{NOT_VALID} {fault}")
    for i in range(1, len(outlines)):
        if _corners_in_common(outlines[0], outlines[i]) > 1:
            raise GeometryError(SHARED_CORNERS)
    for outline in outlines:
        outline.append(outline[0])
    polygon = SmallPolygon(outlines[:1], loops[:1])
    if len(loops) == 1:
        return polygon
    for i in range(1, len(outlines)):
        if not all(polygon.has_within(corner) for corner in outlines[i]):
            raise GeometryError(not_contained(rings, i))
    # An area in two holes is not inside of the polygon that all of them form.
    inside = s2rst.Polygon(loops[1:])
    give_way(corners)
    for i in range(1, len(loops)):
        ring_points = outlines[i]
        if len(loops) > 2 and not inside.contains_point(
            point_beside(ring_points[0], ring_points[1], 1.0, loops[i].contains_point)
        ):
            raise GeometryError(f"{NESTED} {ring_text(rings[i])}")
    return SmallPolygon(outlines, loops)


def _corners_in_common(a: Chain, b: Chain) -> int:
    corners = {coordinates_of(corner) for corner in a}
    return sum(coordinates_of(corner) in corners for corner in b)
