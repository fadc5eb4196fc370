"""What is wrong with the rings of a large polygon: the rules of S2's own check, in steps that give way.

The texts are S2's, too; of several faults it may name another one.
"""

import math
from typing import Final

import s2rst

from mongottl.document.interrupt import give_way
from mongottl.geometry.blocks import Block, Chain, index_of
from mongottl.geometry.sphere_polygon import Coordinates, coordinates_of

# The number of turning angles that are added up in one call.
_ADDED: Final = 4096
# The error of a ring's curvature, for each of its corners, as S2 has it.
_CURVATURE_ERROR: Final = 11.25 * 2.0**-52
# Entries that are freed at once.
_FREED: Final = 4096


def corner_fault(ring: Chain) -> str | None:
    """What S2's loops refuse: two corners in succession that are the same or opposite."""
    for i in range(len(ring) - 1):
        give_way()
        following = (i + 1) % (len(ring) - 1)
        if ring[i] == ring[i + 1]:
            return f"vertices {i} and {following} are identical"
        if ring[i] == -ring[i + 1]:
            return f"vertices {i} and {following} are antipodal"
    return None


def is_normalized(ring: Chain) -> bool:
    """Whether the area to the left is at most half of the sphere: then its curvature, 2 pi less the area, is not
    negative."""
    sums: list[float] = []
    some: list[float] = []
    count = len(ring) - 1
    for i in range(count):
        give_way(2)
        some.append(s2rst.turn_angle(ring[i - 1 if i else count - 1], ring[i], ring[i + 1]).radians)
        if len(some) == _ADDED:
            sums.append(math.fsum(some))
            some = []
    return math.fsum([*sums, *some]) >= -_CURVATURE_ERROR * count


def contains_origin(ring: Chain) -> bool:
    """Whether S2's origin is to the left of the ring.

    By the rule for the second corner, which says on which side of the ring a corner itself is, and the number of sides
    between.
    """
    corner = ring[1]
    inside = not s2rst.ordered_ccw(corner.reference_dir(), ring[2], ring[0], corner)
    crosser = s2rst.EdgeCrosser(s2rst.S2Point.origin(), corner)
    for i in range(len(ring) - 1):
        give_way()
        if crosser.edge_or_vertex_crossing(ring[i], ring[i + 1]):
            inside = not inside
    return inside


def crossing_fault(blocks: list[Block], rings: int) -> str | None:
    """Two sides that cross, not at a corner. rings: their number."""
    for i in range(len(blocks)):
        alone = True
        for j in range(i + 1, len(blocks)):
            give_way()
            if blocks[i].bound.intersects(blocks[j].bound):
                alone = False
                fault = _crossing_in([blocks[i], blocks[j]], rings)
                if fault is not None:
                    return fault
        fault = _crossing_in([blocks[i]], rings) if alone else None
        if fault is not None:
            return fault
    return None


def _crossing_in(blocks: list[Block], rings: int) -> str | None:
    index = blocks[0].index if len(blocks) == 1 else index_of([*blocks[0].shapes, *blocks[1].shapes])
    give_way(_ADDED)
    pairs: list[tuple[int, int, int, int]] = s2rst.visit_crossing_edge_pairs(index, interior_only=True)
    give_way(_ADDED)
    if not pairs:
        return None
    shape_a, edge_a, shape_b, edge_b = pairs[0]
    ring_a, side_a = _place(blocks, shape_a, edge_a)
    ring_b, side_b = _place(blocks, shape_b, edge_b)
    if (ring_b, side_b) < (ring_a, side_a):
        ring_a, side_a, ring_b, side_b = ring_b, side_b, ring_a, side_a
    if ring_a != ring_b:
        return f"PolygonLoopsCross: Loop {ring_a} edge {side_a} crosses loop {ring_b} edge {side_b}"
    prefix = f"Loop {ring_a}: " if rings > 1 else ""
    return f"LoopSelfIntersection: {prefix}Edge {side_a} crosses edge {side_b}"


def _place(blocks: list[Block], shape: int, edge: int) -> tuple[int, int]:
    first = len(blocks[0].shapes)
    return blocks[0].place(shape, edge) if shape < first else blocks[1].place(shape - first, edge)


class CommonCorners:
    """The corners that several rings have, or one ring has twice. fault: what S2 refuses of them.

    with_outer: by ring, how many it has in common with the first one.
    """

    def __init__(self, rings: list[Chain]) -> None:
        self.fault: str | None = None
        self.with_outer: list[int] = [0] * len(rings)
        seen: dict[Coordinates, list[tuple[int, int]]] = {}
        try:
            for number in range(len(rings)):
                for i in range(len(rings[number]) - 1):
                    if not self._add(rings, number, i, seen):
                        return
        finally:
            while seen:
                for _ in range(min(len(seen), _FREED)):
                    seen.popitem()
                give_way(_FREED)

    def _add(self, rings: list[Chain], number: int, i: int, seen: dict[Coordinates, list[tuple[int, int]]]) -> bool:
        corner = coordinates_of(rings[number][i])
        others = seen.get(corner)
        if others is None:
            seen[corner] = [(number, i)]
            return True
        for other, j in others:
            give_way()
            if other == 0:
                self.with_outer[number] += 1
            self.fault = _corner_fault(rings, other, j, number, i)
            if self.fault is not None:
                return False
        others.append((number, i))
        return True


def _corner_fault(rings: list[Chain], a: int, i: int, b: int, j: int) -> str | None:
    """Of a corner that is in two rings, or twice in one. Each is named by the side that ends there."""
    sides_a, sides_b = len(rings[a]) - 1, len(rings[b]) - 1
    before_a, before_b = (i - 1) % sides_a, (j - 1) % sides_b
    if a == b:
        prefix = f"Loop {a}: " if len(rings) > 1 else ""
        return f"DuplicateVertices: {prefix}Edge {before_a} has duplicate vertex with edge {before_b}"
    corner = rings[a][i]
    a0, a2 = rings[a][before_a], rings[a][i + 1]
    b0, b2 = rings[b][before_b], rings[b][j + 1]
    if a0 == b0 or a0 == b2:
        return f"PolygonLoopsShareEdge: Loop {a} edge {before_a} has duplicate near loop {b} edge {before_b}"
    # The area is to the left of both, and one may contain the whole outside of the other.
    overlap = s2rst.WedgeRel.PROPERLY_OVERLAPS
    if (
        s2rst.wedge_relation(a0, corner, a2, b0, b2) == overlap
        and s2rst.wedge_relation(a0, corner, a2, b2, b0) == overlap
    ):
        return f"PolygonLoopsCross: Loop {a} edge {before_a} crosses loop {b} edge {before_b}"
    return None
