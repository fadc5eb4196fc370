"""Sides, lines and points of large shapes, in many small indexes of S2 instead of one.

A document has room for 450,000 corners. S2's own loops, polygons and indexes of that many take up to 0.7 s to be
made, its search for sides that cross is quadratic where sides are long (16,000 teeth of a comb: two seconds), and calls
cannot give way. So the parts of a large shape are put into blocks of SIZES.block, in the order of the Hilbert curve on
which S2's cells are numbered: whatever their order was, those of a block are neighbours. Any call is about one block or
two. What is asked of all parts of a shape is asked of the blocks near by, which a tree of cells knows:

    a cell     the blocks near it, out of those near the cell that it is a quarter of, and the areas around its centre
    a point    is in an area if it and the centre of its cell are, or neither, and an even number of sides lies between,
               else if an odd one does

Cells are divided when they are asked for the first time, until few blocks are near.
"""

import math
from bisect import bisect_right
from typing import Any, Final

import s2rst

from mongottl.document.freeing import HeavyList, LongList
from mongottl.document.interrupt import give_way
from mongottl.document.sorting import sort_in_parts

# Points in order, each joined to the next by the shortest way. A ring ends with its first corner.
Chain = list[s2rst.S2Point]


class Sizes:
    """large: the number of corners from which on a shape is put into blocks. block: the most sides or points in one.

    Below 1,024 no call of S2 takes longer than 15 ms. Tests make both smaller.
    """

    def __init__(self) -> None:
        self.large = 1024
        self.block = 512


SIZES: Final = Sizes()

_ALL: Final = s2rst.CrossingType.ALL
# A cell is divided where more blocks are near, but not below this level: 0.6 m.
_FEW_BLOCKS: Final = 3
_DEEPEST_LEVEL: Final = 24
# Where any block is near, cells are divided until they are smaller than blocks by this factor: then most points are
# in a cell that no block is near.
_FINER: Final = 16
# The tree is entered at cells this number of levels above those.
_LEVELS_FROM_ENTRY: Final = 4
# The most cells of a tree; then none is divided any more.
_MAX_NODES: Final = 20_000
# Radians: what is nearer to a cell counts as near. Ten times what counts as the border.
_NEAR_RAD: Final = 1e-8
_NEAR: Final = s2rst.ChordAngle.from_radians(_NEAR_RAD)
# With more blocks it is worth the bounds of an edge to leave some out.
_MANY_BLOCKS: Final = 8
# In the keys that edges are sorted by: bits of an edge's number and of a cell's.
_NUMBER_BITS: Final = 40
_CELL_BITS: Final = 64
# Of `give_way`: a call that may take some milliseconds: about a block's distance from a cell, where its sides are long.
_LONG_CALL: Final = 512
# Of an index of one block: 0.3 ms.
_BUILD: Final = 64


class Block:
    """Shapes in one index. bound: a rectangle that contains them, with their interiors.

    group: of the sides: the number of the area that they surround. chains: of the shape. numbers, firsts: by shape of
    the index, the chain that it is a stretch of, and where that begins; for lines and sides alone.
    """

    def __init__(
        self,
        shapes: list[Any],
        bound: s2rst.Rect,
        group: int = 0,
        chains: list[Chain] | None = None,
        numbers: list[int] | None = None,
        firsts: list[int] | None = None,
    ) -> None:
        self.shapes = shapes
        self.index = index_of(shapes)
        self.bound = bound
        self.near_bound = _expanded(bound)
        self.cap = bound.cap_bound()
        self.group = group
        self.nearest = s2rst.ClosestEdgeQuery(self.index)
        self._crossings = s2rst.CrossingEdgeQuery(self.index)
        self.chains: list[Chain] = chains or []
        self._numbers: list[int] = numbers or []
        self._firsts: list[int] = firsts or []

    def place(self, shape: int, edge: int) -> tuple[int, int]:
        """The chain of an edge of the index, and its number in that."""
        return self._numbers[shape], self._firsts[shape] + edge

    def crossed(self, a: s2rst.S2Point, b: s2rst.S2Point, kind: s2rst.CrossingType) -> list[tuple[int, int]]:
        """The places of the edges that an edge crosses."""
        give_way(4)
        found: dict[int, list[int]] = self._crossings.crossings(a, b, cross_type=kind)
        return [self.place(shape, edge) for shape, edges in found.items() for edge in edges] if found else []

    def is_odd_between(self, a: s2rst.S2Point, b: s2rst.S2Point) -> bool:
        """Whether an odd number of the edges lies between two points."""
        give_way(4)
        found: dict[int, list[int]] = self._crossings.crossings(a, b, cross_type=_ALL)
        odd = False
        for shape, edges in found.items():
            chain = self.chains[self._numbers[shape]]
            first = self._firsts[shape]
            for edge in edges:
                if s2rst.edge_or_vertex_crossing(a, b, chain[first + edge], chain[first + edge + 1]):
                    odd = not odd
        return odd

    def is_near(self, other: "Block", limit: s2rst.ChordAngle) -> bool:
        """Whether the two, with the interiors of polygons, are nearer to each other than `limit`."""
        if not self.near_bound.intersects(other.near_bound):
            return False
        give_way(_LONG_CALL)
        near: bool = self.nearest.is_distance_less(other.index, limit)
        give_way(_LONG_CALL)
        return near


def index_of(shapes: list[Any]) -> s2rst.ShapeIndex:
    index = s2rst.ShapeIndex()
    for shape in shapes:
        index.add(shape)
    index.build()
    give_way(_BUILD)
    return index


def _expanded(bound: s2rst.Rect) -> s2rst.Rect:
    """Larger by _NEAR_RAD in each direction, on the ground."""
    farthest = max(abs(bound.lat.lo), abs(bound.lat.hi)) + _NEAR_RAD
    # As wide at its widest, which is where the meridians are closest.
    width = math.pi if farthest > math.pi / 2 - 2 * _NEAR_RAD else _NEAR_RAD / math.cos(farthest)
    return bound.expanded(s2rst.LatLng.from_radians(_NEAR_RAD, min(width, math.pi)))


def cell_key(point: s2rst.S2Point) -> int:
    """Where a point is on the curve on which cells are numbered."""
    give_way()
    key: int = s2rst.CellId.from_point(point).id
    return key


def edge_blocks(chains: list[Chain], groups: list[int]) -> list[Block]:
    """All edges of the chains. groups: by chain."""
    offsets: list[int] = []
    keys: list[int] = LongList()
    offset = 0
    for number in range(len(chains)):
        offsets.append(offset)
        chain = chains[number]
        group = groups[number] << _CELL_BITS
        for i in range(len(chain) - 1):
            give_way(4)
            middle = s2rst.interpolate(0.5, chain[i], chain[i + 1])
            keys.append((group | cell_key(middle)) << _NUMBER_BITS | (offset + i))
        offset += len(chain) - 1
    keys = sort_in_parts(keys)
    blocks: list[Block] = HeavyList()
    edges: list[int] = []
    group = -1
    for key in keys:
        give_way()
        own = key >> (_CELL_BITS + _NUMBER_BITS)
        if edges and (own != group or len(edges) >= SIZES.block):
            blocks.append(_edge_block(edges, group, chains, offsets))
            edges = []
        group = own
        edges.append(key & ((1 << _NUMBER_BITS) - 1))
    if edges:
        blocks.append(_edge_block(edges, group, chains, offsets))
    return blocks


def _edge_block(edges: list[int], group: int, chains: list[Chain], offsets: list[int]) -> Block:
    """Some edges, by their numbers among those of all chains, as lines of what follows one another."""
    edges.sort()
    shapes: list[Any] = []
    numbers: list[int] = []
    firsts: list[int] = []
    bound = s2rst.Rect.empty()
    i = 0
    while i < len(edges):
        give_way(4)
        number = bisect_right(offsets, edges[i]) - 1
        first = edges[i] - offsets[number]
        most = len(chains[number]) - 1 - first
        count = 1
        while count < most and i + count < len(edges) and edges[i + count] == edges[i] + count:
            count += 1
        line = s2rst.Polyline(chains[number][first : first + count + 1])
        shapes.append(line)
        numbers.append(number)
        firsts.append(first)
        bound = bound.union(line.rect_bound())
        i += count
    return Block(shapes, bound, group, chains, numbers, firsts)


def point_blocks(points: list[s2rst.S2Point]) -> list[Block]:
    keys: list[int] = LongList()
    for i in range(len(points)):
        keys.append(cell_key(points[i]) << _NUMBER_BITS | i)
    keys = sort_in_parts(keys)
    blocks: list[Block] = HeavyList()
    for start in range(0, len(keys), SIZES.block):
        some = [points[key & ((1 << _NUMBER_BITS) - 1)] for key in keys[start : start + SIZES.block]]
        bound = s2rst.Rect.empty()
        for point in some:
            give_way()
            bound = bound.add_point(s2rst.LatLng.from_point(point))
        blocks.append(Block([s2rst.PointVector(some)], bound))
    return blocks


def polygon_blocks(polygons: list[list[Chain]], bounds: list[s2rst.Rect]) -> list[Block]:
    """Small polygons, with their interiors. Each: its rings, all with their own area to the left; bounds: of each."""
    keys: list[int] = LongList()
    for i in range(len(polygons)):
        keys.append(cell_key(polygons[i][0][0]) << _NUMBER_BITS | i)
    keys = sort_in_parts(keys)
    blocks: list[Block] = HeavyList()
    some: list[Any] = []
    corners = 0
    bound = s2rst.Rect.empty()
    for key in keys:
        number = key & ((1 << _NUMBER_BITS) - 1)
        rings = polygons[number]
        own = sum(map(len, rings))
        give_way(4 + own // 8)
        if some and corners + own > SIZES.block:
            blocks.append(Block(some, bound))
            some = []
            corners = 0
            bound = s2rst.Rect.empty()
        # Not S2's own polygons, which take ten times as long to be made and to be freed. The interior is to the left.
        some.append(s2rst.LaxPolygon([rings[0][:-1], *[hole[:0:-1] for hole in rings[1:]]]))
        corners += own
        bound = bound.union(bounds[number])
    if some:
        blocks.append(Block(some, bound))
    return blocks


class _Node:
    """A cell of the tree. blocks: those near it. inside: the areas that its centre is in, by bit. children: their
    numbers among the cells of the tree, by key.

    It does not know its parent: in a reference cycle, what belongs to a document would stay until garbage is collected.
    Nor does it have its children, which would be freed with it, all at once.
    """

    def __init__(self, cell: s2rst.CellId, blocks: list[Block]) -> None:
        self.level: int = cell.level()
        self.first_key: int = cell.range_min().id
        self.last_key: int = cell.range_max().id
        self.center: s2rst.S2Point = cell.to_point()
        self.blocks = blocks
        self.inside = 0
        self.children: dict[int, int] = {}


class BlockTree:
    """Blocks by cell, in the list that has been made of them. has_areas: whether their edges are the sides of areas.

    inside_origin: the areas, by the numbers of their groups as bits, that S2's origin is in.
    """

    def __init__(self, blocks: list[Block], has_areas: bool = False, inside_origin: int = 0) -> None:
        self.blocks = blocks
        self._has_areas = has_areas
        self._inside_origin = inside_origin
        self._faces: list[_Node | None] = [None] * 6
        self._fine_level = _fine_level(blocks)
        # Cells of this level, by key, to begin with.
        self._entry_level = max(0, self._fine_level - _LEVELS_FROM_ENTRY)
        self._entries: dict[int, _Node] = {}
        # The one that was asked last, since neighbours mostly follow one another.
        self._last: _Node | None = None
        self._nodes: list[_Node] = LongList()

    def areas_of(self, point: s2rst.S2Point) -> int:
        """The areas that a point is in, as bits. Of its border an area has half, as S2's polygons do."""
        node = self._smallest(point)
        return self._toggled(node.inside, node.blocks, node.center, point)

    def is_near(self, point: s2rst.S2Point, limit: s2rst.ChordAngle, group: int = -1) -> bool:
        """Whether an edge or point, of this group or of any, is nearer than `limit`, which is at most _NEAR_RAD."""
        for block in self._smallest(point).blocks:
            if group < 0 or block.group == group:
                give_way()
                if block.index.is_distance_less_to_point(point, limit):
                    return True
        return False

    def is_near_cell(self, cell: s2rst.CellId, limit: s2rst.ChordAngle) -> bool:
        target = s2rst.Cell(cell)
        bound = target.rect_bound()
        for block in self._node(cell, cell.level()).blocks:
            give_way()
            if block.near_bound.intersects(bound):
                give_way(_LONG_CALL)
                if block.nearest.is_distance_less(target, limit):
                    return True
        return False

    def crossed(self, a: s2rst.S2Point, b: s2rst.S2Point, kind: s2rst.CrossingType) -> list[tuple[int, int]]:
        """The edges that an edge crosses: chain, and number in it."""
        found: list[tuple[int, int]] = []
        for block in self._blocks_along(a, b):
            found.extend(block.crossed(a, b, kind))
        return found

    def distance_rad(self, point: s2rst.S2Point) -> float:
        """The distance of the nearest edge or point."""
        bounds: list[tuple[float, int]] = []
        for i in range(len(self.blocks)):
            give_way()
            cap = self.blocks[i].cap
            bounds.append((point.distance(cap.center).radians - cap.angle_radius().radians, i))
        bounds.sort()
        nearest = math.inf
        for bound, i in bounds:
            if bound > nearest:
                break
            give_way(_LONG_CALL)
            nearest = min(nearest, self.blocks[i].nearest.get_distance(point).radians)
        return nearest

    def is_near_block(self, other: Block, limit: s2rst.ChordAngle) -> bool:
        for block in self.blocks:
            give_way()
            if block.is_near(other, limit):
                return True
        return False

    def _smallest(self, point: s2rst.S2Point) -> _Node:
        """The smallest cell around a point."""
        cell = s2rst.CellId.from_point(point)
        last = self._last
        if last is None or not last.first_key <= cell.id <= last.last_key:
            last = self._last = self._node(cell, _DEEPEST_LEVEL)
        else:
            give_way(2)
        return last

    def _node(self, cell: s2rst.CellId, level: int) -> _Node:
        """The smallest one around a cell, at this level or above."""
        give_way(4)
        if level <= self._entry_level:
            return self._descended(self._face(cell.face()), cell, level)
        key = cell.parent_at_level(self._entry_level).id
        entry = self._entries.get(key)
        if entry is None:
            entry = self._descended(self._face(cell.face()), cell, self._entry_level)
            if len(self._entries) < _MAX_NODES:
                self._entries[key] = entry
        return self._descended(entry, cell, level)

    def _face(self, number: int) -> _Node:
        node = self._faces[number]
        if node is None:
            face = s2rst.CellId.from_face(number)
            node = self._faces[number] = _Node(face, _near(self.blocks, face))
            if self._has_areas:
                node.inside = self._toggled(self._inside_origin, self.blocks, s2rst.S2Point.origin(), node.center)
        return node

    def _descended(self, node: _Node, cell: s2rst.CellId, level: int) -> _Node:
        """The smallest one around a cell, at this level or above, within a node."""
        while node.level < level and self._is_divided(node):
            smaller = cell.parent_at_level(node.level + 1)
            number = node.children.get(smaller.id)
            if number is None:
                if len(self._nodes) >= _MAX_NODES:
                    break
                child = _Node(smaller, _near(node.blocks, smaller))
                if self._has_areas:
                    # All of the way between the two centres is in the larger cell.
                    child.inside = self._toggled(node.inside, node.blocks, node.center, child.center)
                number = len(self._nodes)
                node.children[smaller.id] = number
                self._nodes.append(child)
            node = self._nodes[number]
        return node

    def _is_divided(self, node: _Node) -> bool:
        if len(node.blocks) > _FEW_BLOCKS:
            return node.level < _DEEPEST_LEVEL
        return bool(node.blocks) and node.level < self._fine_level

    def _toggled(self, areas: int, blocks: list[Block], a: s2rst.S2Point, b: s2rst.S2Point) -> int:
        """The areas of `b`, from those of `a` and the edges between."""
        if not blocks or a == b:
            return areas
        for block in blocks:
            if block.is_odd_between(a, b):
                areas ^= 1 << block.group
        return areas

    def _blocks_along(self, a: s2rst.S2Point, b: s2rst.S2Point) -> list[Block]:
        """The blocks that an edge may cross."""
        give_way(2)
        cell = s2rst.CellId.from_point(a)
        level = cell.common_ancestor_level(s2rst.CellId.from_point(b))
        blocks = self.blocks if level is None else self._node(cell, level).blocks
        if len(blocks) <= _MANY_BLOCKS:
            return blocks
        bound = s2rst.Polyline([a, b]).rect_bound()
        along: list[Block] = []
        for block in blocks:
            give_way()
            if block.bound.intersects(bound):
                along.append(block)
        return along


def _fine_level(blocks: list[Block]) -> int:
    """The level of cells that are smaller than half of the blocks by the factor _FINER."""
    if not blocks:
        return 0
    radii = sorted(block.cap.angle_radius().radians for block in blocks)
    radius = max(radii[len(radii) // 2], _NEAR_RAD)
    # Cells of level 0 are a quarter of the equator wide.
    return max(0, min(round(math.log2(_FINER * math.pi / 2 / (2 * radius))), _DEEPEST_LEVEL))


def _near(blocks: list[Block], cell: s2rst.CellId) -> list[Block]:
    target = s2rst.Cell(cell)
    bound = target.rect_bound()
    near: list[Block] = []
    for block in blocks:
        give_way()
        if block.near_bound.intersects(bound):
            give_way(_LONG_CALL)
            if block.nearest.is_distance_less(target, _NEAR):
                near.append(block)
    return near
