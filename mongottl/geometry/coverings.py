"""Shapes as S2 cells: the keys of a geometry in a 2dsphere index, and the key ranges that a query reads.

A cell is a quadrilateral of one of 31 levels, each divided into four of the next. Its id, a 64-bit number, is in the
middle of the ids of the cells that it contains, so that all cells within a cell are one range of ids:

    stored      a point: its leaf cell; anything else: some cells that cover it, of the levels COARSEST to FINEST
    a query     some cells that cover its region; for each the range of the cells within it, and the ids of its parent
                cells, since a large stored cell may contain a small cell of the query

Ids are kept as signed numbers; no range crosses zero, as no face of the cube (the top level) does.
"""

from typing import Final

import s2rst

from mongottl.document.freeing import LONG, set_for
from mongottl.document.interrupt import give_way
from mongottl.document.sorting import sort_in_parts
from mongottl.geometry.region import CellRange
from mongottl.geometry.sphere import SphereShape
from mongottl.geometry.sphere_polygon import TOUCHING_RAD

# Maximal number of cells that cover a stored line or polygon; MongoDB's limit for polygons.
MAX_STORED_CELLS: Final = 20
# About 300 km and about 0.3 km wide.
COARSEST_LEVEL: Final = 5
FINEST_LEVEL: Final = 15
# Maximal number of cells that cover the region of a query: more are more exact, and each costs a seek.
MAX_QUERY_CELLS: Final = 20
MAX_QUERY_LEVEL: Final = 23

_TOUCHING: Final = s2rst.ChordAngle.from_radians(2 * TOUCHING_RAD)


def signed(cell_id: int) -> int:
    return cell_id - (1 << 64) if cell_id >= 1 << 63 else cell_id


def stored_cells(shape: SphereShape) -> list[int]:
    """The keys of a geometry in a 2dsphere index: signed cell ids, ascending, without duplicates."""
    cells: set[int] = set_for(len(shape.points))
    for point in shape.points:
        give_way()
        cells.add(signed(s2rst.CellId.from_point(point).id))
    if shape.lines or shape.polygons:
        for cell in _covering(shape, MAX_STORED_CELLS, COARSEST_LEVEL, FINEST_LEVEL):
            cells.add(signed(cell.id))
    return sorted(cells) if len(cells) < LONG else sort_in_parts(list(cells))


def query_ranges(shape: SphereShape) -> list[CellRange]:
    """The ranges of keys: every geometry that intersects the shape has a key in one of them."""
    return ranges_of_cells(_covering(shape, MAX_QUERY_CELLS, 0, MAX_QUERY_LEVEL))


def cap_ranges(cap: s2rst.Cap) -> list[CellRange]:
    return ranges_of_cells(cap_cells(cap))


def cap_cells(cap: s2rst.Cap) -> list[s2rst.CellId]:
    """Cells that cover a cap."""
    if cap.is_full():
        return s2rst.CellUnion.whole_sphere().cell_ids()
    return s2rst.RegionCoverer(max_cells=MAX_QUERY_CELLS, max_level=MAX_QUERY_LEVEL).covering(cap).cell_ids()


def ranges_of_cells(cells: list[s2rst.CellId]) -> list[CellRange]:
    """The ranges of the keys of all cells that contain or lie within the given ones, ascending and disjoint."""
    ranges: set[CellRange] = set()
    for cell in cells:
        ranges.add((signed(cell.range_min().id), signed(cell.range_max().id)))
        for level in range(min(cell.level(), FINEST_LEVEL + 1)):
            parent = signed(cell.parent_at_level(level).id)
            ranges.add((parent, parent))
    merged: list[CellRange] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return merged


def _covering(shape: SphereShape, max_cells: int, coarsest: int, finest: int) -> list[s2rst.CellId]:
    """Cells of the levels from `coarsest` to `finest` that cover the shape and its border.

    At most `max_cells`, unless more are needed already at level `coarsest`. (S2's own coverer does not support lines.)
    """
    faces = [s2rst.CellId.from_face(face) for face in range(6)]
    cells = [face for face in faces if shape.touches(face, _TOUCHING)]
    done: list[s2rst.CellId] = []
    while cells:
        # Level by level, the largest cells first.
        level = cells[0].level()
        if level >= finest:
            break
        divided = [child for cell in cells for child in _touched_children(cell, shape)]
        if level >= coarsest and len(divided) + len(done) > max_cells:
            # Divides only cells whose children still fit within the limit.
            rest: list[s2rst.CellId] = []
            room = max_cells - len(cells) - len(done)
            for cell in cells:
                children = _touched_children(cell, shape)
                if len(children) - 1 <= room:
                    room -= len(children) - 1
                    rest.extend(children)
                else:
                    done.append(cell)
            cells = rest
            continue
        cells = divided
    return done + cells


def _touched_children(cell: s2rst.CellId, shape: SphereShape) -> list[s2rst.CellId]:
    return [child for child in cell.children() if shape.touches(child, _TOUCHING)]
