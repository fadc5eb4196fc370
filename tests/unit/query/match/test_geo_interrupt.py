"""Geometries of many corners can be interrupted while they are parsed, built and compared."""

import math
from collections.abc import Callable
from typing import Any

import bson
import pytest

from mongottl.errors import CommandError, ErrorCode
from mongottl.geometry.coverings import query_ranges
from mongottl.geometry.geojson import geojson
from mongottl.geometry.sphere import shape_of
from mongottl.query.context import ParseContext
from mongottl.query.match import MatchExpression, parse_match
from tests.gaps import MAX_GAP_S, measured

pytestmark = pytest.mark.slow

CORNERS = 40_000


def ring(corners: int, radius: float = 5.0) -> list[list[float]]:
    angles = [2 * math.pi * i / corners for i in range(corners)]
    found = [[10 + radius * math.cos(angle), 10 + radius * math.sin(angle)] for angle in angles]
    return [*found, found[0]]


def polygon(radius: float = 5.0) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": [ring(CORNERS, radius)]}


def parsed(filter: dict[str, Any]) -> MatchExpression:
    return parse_match(bson.encode(filter), ParseContext(1_700_000_000_123))


def of_geometry(radius: float, *others: Any) -> bytes:
    return bson.encode({"p": {"type": "GeometryCollection", "geometries": [polygon(radius), *others]}})


POINTS = {"type": "MultiPoint", "coordinates": ring(CORNERS, 0.1)}
LINE = {"type": "LineString", "coordinates": ring(CORNERS, 1.0)}
WITHIN = {"p": {"$geoWithin": {"$geometry": polygon()}}}
INTERSECTS = {"p": {"$geoIntersects": {"$geometry": polygon()}}}
PLANE = {"p": {"$geoWithin": {"$polygon": ring(CORNERS)[:-1]}}}

# What is done first, without being measured, and then.
LONG: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "$geoWithin": (lambda: WITHIN, parsed),
    "$geoIntersects": (lambda: INTERSECTS, parsed),
    "a point and $polygon": (lambda: parsed(PLANE), lambda tree: tree.matches(bson.encode({"p": [10.0, 10.0]}))),
    "polygons within": (lambda: parsed(WITHIN), lambda tree: tree.matches(of_geometry(1.0))),
    "points and a line within": (lambda: parsed(WITHIN), lambda tree: tree.matches(of_geometry(1.0, POINTS, LINE))),
    "polygons that do not meet": (lambda: parsed(INTERSECTS), lambda tree: tree.matches(of_geometry(1.0))),
    "a covering": (lambda: shape_of(geojson(bson.encode(polygon()))), query_ranges),
}


@pytest.mark.parametrize("name", LONG)
def test_many_corners_are_interrupted(name: str) -> None:
    prepare, compute = LONG[name]
    prepared = prepare()
    with measured() as gaps:
        compute(prepared)
    assert gaps.longest_s <= MAX_GAP_S / 5
    assert gaps.count > 5
    prepared = prepare()
    with pytest.raises(CommandError) as caught, measured(3):
        compute(prepared)
    assert caught.value.code == ErrorCode.MaxTimeMSExpired
