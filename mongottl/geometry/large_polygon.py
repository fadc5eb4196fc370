"""Polygons of many corners: their sides in blocks."""

from collections.abc import Callable
from functools import partial
from typing import Final

import s2rst

from mongottl.document.freeing import freed_in_slices, list_for
from mongottl.document.interrupt import give_way
from mongottl.geometry.blocks import SIZES, BlockTree, Chain, edge_blocks
from mongottl.geometry.geojson import GeometryError, Ring
from mongottl.geometry.ring_faults import CommonCorners, contains_origin, corner_fault, crossing_fault, is_normalized
from mongottl.geometry.sphere_polygon import (
    NESTED,
    NOT_VALID,
    SHARED_CORNERS,
    TOUCHING,
    SpherePolygon,
    not_contained,
    point_beside,
    ring_text,
    s2_point,
)

# The areas that the tree knows: that of the outer ring, that of all small holes, and that of each large one.
_OUTER: Final = 0
_SMALL_HOLES: Final = 1


class LargePolygon(SpherePolygon):
    """rings: as in SpherePolygon. loops: the small ones of them, as S2's own. groups: of each, its area in the tree.

    tree: of all sides.
    """

    def __init__(self, rings: list[Chain], loops: list[s2rst.Loop | None], groups: list[int], tree: BlockTree) -> None:
        super().__init__(rings)
        self.tree = tree
        self._loops = loops
        self._groups = groups

    def has_inside(self, point: s2rst.S2Point) -> bool:
        return self.tree.areas_of(point).bit_count() % 2 == 1

    def has_within(self, point: s2rst.S2Point) -> bool:
        return self.has_inside(point) or self.tree.is_near(point, TOUCHING)

    def outer_has_within(self, point: s2rst.S2Point) -> bool:
        """Whether a point is inside of the outer ring, or on that."""
        return self._is_in_area(_OUTER, point) or self.tree.is_near(point, TOUCHING, _OUTER)

    def holes_have_inside(self, point: s2rst.S2Point) -> bool:
        """Whether a point is in one hole, or in three, but not in two."""
        return (self.tree.areas_of(point) & ~(1 << _OUTER)).bit_count() % 2 == 1

    def _is_in_area(self, group: int, point: s2rst.S2Point) -> bool:
        return self.tree.areas_of(point) >> group & 1 == 1

    def ring_area(self, ring: int) -> Callable[[s2rst.S2Point], bool]:
        loop = self._loops[ring]
        area: Callable[[s2rst.S2Point], bool]
        area = partial(self._is_in_area, self._groups[ring]) if loop is None else loop.contains_point
        return area

    def crossed(self, a: s2rst.S2Point, b: s2rst.S2Point) -> list[tuple[int, int]]:
        return self.tree.crossed(a, b, s2rst.CrossingType.INTERIOR)


def large_polygon_of(rings: list[Ring], strict_winding: bool) -> LargePolygon:
    """See `sphere.polygon_of`."""
    outlines: list[Chain] = list_for(len(rings))
    loops: list[s2rst.Loop | None] = list_for(len(rings))
    groups: list[int] = list_for(len(rings))
    inside_origin = 0
    large_holes = 0
    for number in range(len(rings)):
        ring = rings[number]
        outline = freed_in_slices([s2_point(position) for position in ring])
        if len(ring) > SIZES.large:
            loop = None
            fault = corner_fault(outline)
        else:
            loop = s2rst.Loop(outline[:-1])
            fault = loop.validate()
        if fault is not None:
            raise GeometryError(f"{NOT_VALID} {ring_text(ring)} {fault}")
        if not strict_winding and not (is_normalized(outline) if loop is None else loop.is_normalized()):
            if loop is not None:
                loop.normalize()
            outline.pop()
            outline.reverse()
            outline.append(outline[0])
        if number == 0:
            group = _OUTER
        elif loop is None:
            large_holes += 1
            group = _SMALL_HOLES + large_holes
        else:
            group = _SMALL_HOLES
        if contains_origin(outline) if loop is None else loop.contains_origin():
            inside_origin ^= 1 << group
        outlines.append(outline)
        loops.append(loop)
        groups.append(group)
    tree = BlockTree(edge_blocks(outlines, groups), True, inside_origin)
    fault = crossing_fault(tree.blocks, len(rings))
    common = CommonCorners(outlines)
    fault = fault or common.fault
    if fault is not None:
        raise GeometryError(f"{NOT_VALID} {fault}")
    if any(count > 1 for count in common.with_outer):
        raise GeometryError(SHARED_CORNERS)
    polygon = LargePolygon(outlines, loops, groups, tree)
    for i in range(1, len(outlines)):
        if not all(polygon.outer_has_within(corner) for corner in outlines[i]):
            raise GeometryError(not_contained(rings, i))
    for i in range(1, len(outlines)):
        give_way()
        corners = outlines[i]
        # An area in two holes is not inside of the polygon that all of them form.
        if len(outlines) > 2 and not polygon.holes_have_inside(
            point_beside(corners[0], corners[1], 1.0, polygon.ring_area(i))
        ):
            raise GeometryError(f"{NESTED} {ring_text(rings[i])}")
    return polygon
