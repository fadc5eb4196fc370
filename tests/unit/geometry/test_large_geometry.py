"""Geometries of many corners: what is refused of them, and that no part of the work on them goes on for long."""

import functools
import math
import re
from collections.abc import Callable
from typing import Any

import bson
import pytest

from mongottl.document.freeing import free_some
from mongottl.errors import CommandError, ErrorCode
from mongottl.geometry.blocks import SIZES
from mongottl.geometry.coverings import query_ranges, stored_cells
from mongottl.geometry.geojson import GeometryError, geojson
from mongottl.geometry.large_polygon import LargePolygon, large_polygon_of
from mongottl.geometry.small_polygon import small_polygon_of
from mongottl.geometry.sphere import LargeShape, SphereCap, SphereShape, polygon_of, shape_of
from mongottl.geometry.sphere_polygon import s2_point
from tests.gaps import ELEMENTS, STALL_S, longest_stall_s, measured

Ring = list[tuple[float, float]]

CORNERS = ELEMENTS // 2


def closed(*corners: tuple[float, float]) -> Ring:
    return [*corners, corners[0]]


def square(x: float, y: float, width: float) -> Ring:
    return closed((x, y), (x + width, y), (x + width, y + width), (x, y + width))


OUTER = square(0.0, 0.0, 10.0)
INVALID: dict[str, list[Ring]] = {
    "crosses itself": [closed((0, 0), (10, 0), (0, 10), (10, 10))],
    "has a corner twice": [closed((0, 0), (10, 0), (5, 5), (10, 10), (0, 10), (5, 5))],
    "has the same corner in succession": [closed((10, 10), (29.0, 0.0), (math.nextafter(29.0, 30), 0.0), (30, 5))],
    "ends where it began, written otherwise": [closed((29.0, 0.0), (35, 1), (35, 5), (math.nextafter(29.0, 30), 0.0))],
    "has a hole that crosses itself": [OUTER, closed((1, 1), (2, 1), (1, 2), (2, 2))],
    "has a hole with a corner twice": [OUTER, closed((1, 1), (2, 1), (1.5, 1.5), (2, 2), (1, 2), (1.5, 1.5))],
    "has a hole across a side": [OUTER, closed((2, 2), (2, 12), (4, 12), (4, 2))],
    "has a hole along a side": [OUTER, closed((0, 0), (10, 0), (5, 5))],
    "has a hole that crosses at a corner": [OUTER, closed((10, 0), (5, 5), (15, 5))],
    "has a hole with two corners of the outer ring": [OUTER, closed((0, 0), (10, 10), (5, 5.5))],
    "has a hole elsewhere": [OUTER, square(20.0, 20.0, 1.0)],
    "has a hole in a hole": [OUTER, square(1.0, 1.0, 5.0), square(2.0, 2.0, 1.0)],
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_polygons_are_refused_in_the_words_of_small_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rings = INVALID[name]
    with pytest.raises(GeometryError) as expected:
        small_polygon_of(rings, False)
    for corners in (1, 4):
        for block in (1, 3, 100):
            monkeypatch.setattr(SIZES, "large", corners)
            monkeypatch.setattr(SIZES, "block", block)
            with pytest.raises(GeometryError) as caught:
                large_polygon_of(rings, False)
            assert _without_numbers(str(caught.value)) == _without_numbers(str(expected.value))


def _without_numbers(message: str) -> str:
    """Each crossing is found from either of its sides, each corner from either of its rings."""
    return re.sub(r"(loop|edge|Edge|Loop|vertices) \d+( and \d+)?", r"\1", message)


def test_a_hole_may_touch_the_outer_ring_and_others_in_a_corner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SIZES, "large", 4)
    holes = [closed((0, 0), (2, 1), (1, 2)), closed((2, 1), (4, 1), (4, 3)), square(6.0, 6.0, 1.0)]
    polygon = polygon_of([OUTER, *holes], False)
    assert isinstance(polygon, LargePolygon)
    assert len(polygon.rings) == 4


def ring(corners: int, radius: float) -> list[list[float]]:
    angles = [2 * math.pi * i / corners for i in range(corners)]
    found = [[10 + radius * math.cos(angle), 10 + radius * math.sin(angle)] for angle in angles]
    return [*found, found[0]]


def comb(corners: int) -> list[list[float]]:
    """Long sides next to each other, of which S2 would compare each with each."""
    teeth = [[9.5 + i / corners, 15.0 if i % 2 else 5.0] for i in range(corners)]
    return [*teeth, [10.6, 4.0], [9.4, 4.0], teeth[0]]


def triangles(corners: int) -> list[list[list[float]]]:
    rows = math.isqrt(corners // 3)
    step = 8 / rows
    places = [(6 + step * x, 6 + step * y) for x in range(rows) for y in range(rows)]
    return [[[x, y], [x + step / 2, y], [x, y + step / 2], [x, y]] for x, y in places]


FRAME = [[4, 4], [16, 4], [16, 16], [4, 16], [4, 4]]
GEOMETRIES: dict[str, dict[str, Any]] = {
    "a polygon": {"type": "Polygon", "coordinates": [ring(CORNERS, 5.0)]},
    "long sides": {"type": "Polygon", "coordinates": [comb(CORNERS)]},
    "holes": {"type": "Polygon", "coordinates": [FRAME, *triangles(CORNERS)]},
    "polygons": {"type": "MultiPolygon", "coordinates": [[hole] for hole in triangles(CORNERS)]},
    "a line": {"type": "LineString", "coordinates": ring(CORNERS, 4.0)},
    "a zigzag": {"type": "LineString", "coordinates": comb(CORNERS)[:CORNERS]},
    "points": {"type": "MultiPoint", "coordinates": ring(CORNERS, 1.0)},
}


@functools.lru_cache
def made(name: str) -> SphereShape:
    return shape_of(geojson(bson.encode(GEOMETRIES[name])))


def nearest(shape: SphereShape) -> float:
    return shape.distance_rad(s2_point((0.0, 0.0)))


WORK: dict[str, Callable[[SphereShape], object]] = {
    "its keys": stored_cells,
    "the ranges of a query": query_ranges,
    "its distance": nearest,
    "a cap around it": SphereCap((10.0, 10.0), 1.0).contains,
    "a line that may meet it": lambda shape: shape.intersects(made("a line")),
    "polygons that may meet it": lambda shape: made("polygons").intersects(shape),
    "a polygon that may contain it": lambda shape: made("a polygon").contains(shape),
    "what it may contain": lambda shape: shape.contains(made("a line")),
}


@pytest.mark.parametrize("name", GEOMETRIES)
def test_no_step_of_making_a_large_shape_takes_long(name: str) -> None:
    document = bson.encode(GEOMETRIES[name])
    assert isinstance(made(name), LargeShape)
    assert longest_stall_s(lambda: shape_of(geojson(document))) < STALL_S


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_no_step_of_a_question_about_a_large_shape_takes_long(name: str, work: str) -> None:
    shape = made(name)
    assert longest_stall_s(lambda: WORK[work](shape)) < STALL_S


@pytest.mark.parametrize("name", GEOMETRIES)
def test_the_blocks_of_a_large_shape_are_freed_in_slices(name: str) -> None:
    shape = shape_of(geojson(bson.encode(GEOMETRIES[name])))
    blocks = shape.blocks()
    count = len(blocks)
    assert count > 10
    del shape
    while free_some():
        pass  # of its corners
    del blocks
    slices = 0
    while free_some():
        slices += 1
    assert slices >= count // 8


@pytest.mark.parametrize("name", GEOMETRIES)
def test_work_on_a_large_geometry_is_interrupted(name: str) -> None:
    with pytest.raises(CommandError) as caught, measured(3):
        shape_of(geojson(bson.encode(GEOMETRIES[name])))
    assert caught.value.code == ErrorCode.MaxTimeMSExpired
