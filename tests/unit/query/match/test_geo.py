from collections.abc import Callable
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64

from mongottl.errors import CommandError
from mongottl.geometry import library
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match

Matching = Callable[[dict[str, Any], list[Any]], list[Any]]
Refusal = Callable[[dict[str, Any]], tuple[int, str]]

STRICT = {"type": "name", "properties": {"name": "urn:x-mongodb:crs:strictwinding:EPSG:4326"}}
SQUARE = [[[-10, -10], [10, -10], [10, 10], [-10, 10], [-10, -10]]]
HOLE = [[-2, -2], [2, -2], [2, 2], [-2, 2], [-2, -2]]
INNER_HOLE = [[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]]
BOW_TIE = [[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]]


def geojson(kind: str, coordinates: Any, **others: Any) -> dict[str, Any]:
    return {"type": kind, "coordinates": coordinates, **others}


def point(longitude: Any, latitude: Any, *others: Any) -> dict[str, Any]:
    return geojson("Point", [longitude, latitude, *others])


def within(shape: str, operand: Any) -> dict[str, Any]:
    return {"a": {"$geoWithin": {shape: operand}}}


def intersects(geometry: Any) -> dict[str, Any]:
    return {"a": {"$geoIntersects": {"$geometry": geometry}}}


IN = point(1, 1)
OUT = point(50, 50)


@pytest.mark.parametrize(
    ("filter", "values", "found"),
    [
        # Values that are no geometry, and the forms of those that are.
        (
            within("$geometry", geojson("Polygon", SQUARE)),
            [IN, OUT, [1, 1], [1, 1, 99], {"x": 1, "y": 1}, {"lng": 1, "lat": 50}, point(1, 1, 7)],
            [IN, [1, 1], [1, 1, 99], {"x": 1, "y": 1}, point(1, 1, 7)],
        ),
        (
            within("$geometry", geojson("Polygon", SQUARE)),
            [..., None, 5, "x", [], {}, [1], ["a", 1], geojson("Nothing", [1, 1]), [500, 1], {"type": "Point"}],
            [],
        ),
        (
            within("$geometry", geojson("Polygon", SQUARE)),
            [[[50, 50], [1, 1]], [OUT, IN], [OUT], point(Decimal128("1.5"), Int64(1))],
            [[[50, 50], [1, 1]], [OUT, IN], point(Decimal128("1.5"), Int64(1))],
        ),
        # Borders, holes, several polygons.
        (within("$geometry", geojson("Polygon", SQUARE)), [point(10, 10), point(10, 0), point(10.001, 0)], [
            point(10, 10), point(10, 0),
        ]),
        (within("$geometry", geojson("Polygon", [*SQUARE, HOLE])), [point(0, 0), point(5, 5)], [point(5, 5)]),
        (
            within("$geometry", geojson("MultiPolygon", [SQUARE, [[[40, 40], [60, 40], [60, 60], [40, 40]]]])),
            [IN, point(55, 50), point(30, 30)],
            [IN, point(55, 50)],
        ),
        (
            within("$geometry", geojson("Polygon", SQUARE)),
            [
                geojson("LineString", [[0, 0], [5, 5]]),
                geojson("LineString", [[0, 0], [50, 5]]),
                geojson("Polygon", [HOLE]),
                geojson("Polygon", SQUARE),
                geojson("MultiPoint", [[0, 0], [1, 1]]),
                geojson("MultiPoint", [[0, 0], [50, 1]]),
            ],
            [
                geojson("LineString", [[0, 0], [5, 5]]),
                geojson("Polygon", [HOLE]),
                geojson("Polygon", SQUARE),
                geojson("MultiPoint", [[0, 0], [1, 1]]),
            ],
        ),
        # Sides are shortest ways: between two points of equal latitude they bend towards the pole.
        (
            within("$geometry", geojson("Polygon", [[[0, 0], [90, 0], [90, 50], [0, 50], [0, 0]]])),
            [point(45, 55), point(45, 65)],
            [point(45, 55)],
        ),
        # The smaller part of the sphere, or what is to the left.
        (intersects(geojson("Polygon", [SQUARE[0][::-1]])), [IN, OUT], [IN]),
        (intersects(geojson("Polygon", SQUARE, crs=STRICT)), [IN, OUT], [IN]),
        (intersects(geojson("Polygon", [SQUARE[0][::-1]], crs=STRICT)), [IN, OUT], [OUT]),
        (
            intersects(geojson("Polygon", [[[179, -1], [-179, -1], [-179, 1], [179, 1], [179, -1]]])),
            [point(179.5, 0), point(-179.5, 0), point(180, 0), point(0, 0)],
            [point(179.5, 0), point(-179.5, 0), point(180, 0)],
        ),
        # $geoIntersects with each kind.
        (intersects(IN), [IN, OUT, geojson("LineString", [[1, 0], [1, 2]])], [
            IN, geojson("LineString", [[1, 0], [1, 2]]),
        ]),
        (intersects([1, 1]), [IN, OUT], [IN]),
        (intersects(geojson("LineString", [[0, 0], [0, 0], [2, 2]])), [point(2, 2), point(1, 0)], [point(2, 2)]),
        (
            intersects(geojson("LineString", [[0, 0], [20, 0]])),
            [
                geojson("LineString", [[5, -5], [5, 5]]),
                geojson("LineString", [[5, 1], [5, 5]]),
                geojson("Polygon", SQUARE),
                point(7, 0),
            ],
            [geojson("LineString", [[5, -5], [5, 5]]), geojson("Polygon", SQUARE), point(7, 0)],
        ),
        (
            intersects({"type": "GeometryCollection", "geometries": [IN, geojson("LineString", [[5, 5], [6, 6]])]}),
            [IN, OUT, point(5, 5), {"type": "GeometryCollection", "geometries": [OUT, IN]}],
            [IN, point(5, 5), {"type": "GeometryCollection", "geometries": [OUT, IN]}],
        ),
        ({"a": {"$not": {"$geoIntersects": {"$geometry": geojson("Polygon", SQUARE)}}}}, [IN, OUT, 5], [OUT, 5]),
        # $centerSphere: radians.
        (
            within("$centerSphere", [[0, 0], 0.02]),
            [[1, 0], [2, 0], point(0, 1), geojson("LineString", [[0, 0], [1, 0]])],
            [[1, 0], point(0, 1), geojson("LineString", [[0, 0], [1, 0]])],
        ),
        (within("$centerSphere", [[0, 0], 2]), [geojson("LineString", [[90, 0], [0, 89]]), point(115, 0)], [
            geojson("LineString", [[90, 0], [0, 89]]),
        ]),
        (within("$centerSphere", [[0, 0], float("inf")]), [point(180, 0), geojson("Polygon", SQUARE)], [
            point(180, 0), geojson("Polygon", SQUARE),
        ]),
        # The plane: points alone, in either form.
        (
            within("$box", [[0, 0], [10, 10]]),
            [[0, 10], [5, 5], [10.1, 5], point(5, 5), geojson("LineString", [[1, 1], [2, 2]])],
            [[0, 10], [5, 5], point(5, 5)],
        ),
        (within("$box", [[10, 0], [0, 10]]), [[5, 5], [11, 5]], [[5, 5]]),
        (within("$box", {"a": {"x": 0, "y": 0}, "b": [10, 10]}), [[5, 5], [300, 5]], [[5, 5]]),
        (within("$center", [[0, 0], 1.5]), [[1, 1], [1.5, 0], [1.1, 1.1]], [[1, 1], [1.5, 0]]),
        ({"a": {"$within": {"$center": [[0, 0], 0]}}}, [[0, 0], [0, 1e-9]], [[0, 0]]),
        # Straight beside the centre, the radius is added to a coordinate; the squares of tiny differences are zero.
        (within("$center", [[51.9999, 5], 0.0001]), [[52, 5], [51.9998, 5], [52.00000001, 5]], [[52, 5], [51.9998, 5]]),
        (within("$center", [[1, 1], 1.2e-16]), [[1, 1], [1, 1 + 2.3e-16], [1, 1 + 5e-16]], [[1, 1], [1, 1 + 2.3e-16]]),
        (
            within("$center", [[0, 0], 1e-200]),
            [[1e-190, 0], [1e-210, 0], [1e-190, 1e-190]],
            [[1e-210, 0], [1e-190, 1e-190]],
        ),
        # Polygons with strict winding are asked about, but never found.
        (
            intersects(geojson("Polygon", SQUARE, crs=STRICT)),
            [geojson("Polygon", SQUARE), point(50, 50)],
            [geojson("Polygon", SQUARE)],
        ),
        (intersects(geojson("Polygon", SQUARE)), [geojson("Polygon", SQUARE, crs=STRICT)], []),
        (intersects(IN), [geojson("Polygon", SQUARE, crs=STRICT)], []),
        (within("$centerSphere", [[0, 0], 3]), [geojson("Polygon", SQUARE, crs=STRICT)], []),
        # Holes may share a corner with each other, and one with the outer ring.
        (
            intersects(geojson("Polygon", [*SQUARE, HOLE, [[2, 2], [4, 2], [4, 4], [2, 2]]])),
            [point(5, 5), point(0, 0), point(3.5, 3)],
            [point(5, 5)],
        ),
        (
            intersects(geojson("Polygon", [*SQUARE, [[-10, -10], [0, 0], [0, -1], [-10, -10]]])),
            [point(5, 5), point(-1, -1.5)],
            [point(5, 5)],
        ),
        # The polygon's border: corners, level sides, and slanting sides to the right of the interior.
        (within("$polygon", [[0, 0], [0, 10], [10, 10], [10, 0]]), [[5, 0], [0, 5], [10, 10], [5, 5], [11, 5]], [
            [5, 0], [0, 5], [10, 10], [5, 5],
        ]),
        (within("$polygon", [[0, 0], [10, 10], [10, 0]]), [[5, 5], [5, 1], [0, 0]], [[5, 1], [0, 0]]),
        (within("$polygon", [[0, 0], [0, 10], [10, 0]]), [[5, 5], [1, 1]], [[5, 5], [1, 1]]),
        (within("$polygon", [[0, 0], [10, 10], [10, 0], [0, 10]]), [[1, 5], [9, 5], [5, 1]], [[1, 5], [9, 5]]),
        (within("$polygon", [[1, 1], [1, 1], [1, 1]]), [[1, 1], [2, 2]], [[1, 1]]),
    ],
)  # fmt: skip
def test_geometries(matching: Matching, filter: dict[str, Any], values: list[Any], found: list[Any]) -> None:
    assert matching(filter, values) == found


@pytest.mark.parametrize(
    "operand",
    [
        {"$geoWithin": None},
        {"$geoWithin": {}},
        {"$geoWithin": geojson("Polygon", SQUARE)},
        {"$geoWithin": {"$geometry": geojson("Polygon", BOW_TIE)}},
        {"$geoWithin": {"$geometry": geojson("Polygon", [[[0, 0], [1, 0], [1, 1], [0, 1]]])}},
        {"$geoWithin": {"$geometry": geojson("Polygon", [[[0, 0], [1, 0], [0, 0]]])}},
        {"$geoWithin": {"$geometry": geojson("Polygon", [*SQUARE, [[20, 20], [30, 20], [30, 30], [20, 20]]])}},
        {"$geoWithin": {"$geometry": geojson("Polygon", [*SQUARE, [[5, 5], [15, 5], [15, 6], [5, 5]]])}},
        {"$geoWithin": {"$geometry": geojson("Polygon", [*SQUARE, HOLE, INNER_HOLE])}},
        {
            "$geoWithin": {
                "$geometry": geojson("Polygon", [*SQUARE, INNER_HOLE, [[5, 5], [6, 5], [6, 6], [5, 5]], HOLE])
            }
        },
        {
            "$geoWithin": {
                "$geometry": geojson("Polygon", [*SQUARE, [[-10, -10], [0, -1], [10, 10], [-1, 0], [-10, -10]]])
            }
        },
        {"$geoWithin": {"$geometry": geojson("Polygon", [])}},
        {"$geoWithin": {"$geometry": geojson("Polygon", SQUARE, crs={"type": "name"})}},
        {"$geoWithin": {"$geometry": geojson("Polygon", SQUARE, crs={"type": "name", "properties": {"name": "x"}})}},
        {"$geoWithin": {"$geometry": IN}},
        {"$geoWithin": {"$geometry": geojson("LineString", [[0, 0], [1, 1]])}},
        {"$geoWithin": {"$box": [[0, 0], [1, 1]], "$center": [[0, 0], 1]}},
        {"$geoWithin": {"$box": [[0, 0], [1, 1]]}, "$exists": True},
        {"$exists": True, "$geoWithin": {"$box": [[0, 0], [1, 1]]}},
        {"$geoWithin": {"$sphere": [[0, 0], 1]}},
        {"$geoWithin": {"$polygon": [[0, 0], [1, 1]]}},
        {"$geoWithin": {"$center": [[0, 0]]}},
        {"$geoWithin": {"$center": [[0, 0], -1]}},
        {"$geoWithin": {"$centerSphere": [[0, 0, 0], 1]}},
        {"$geoWithin": {"$centerSphere": [[0, 0], float("nan")]}},
        {"$geoWithin": {"$centerSphere": [[0, 91], 1]}},
        {"$geoIntersects": {}},
        {"$geoIntersects": {"$box": [[0, 0], [1, 1]]}},
        {"$geoIntersects": {"$geometry": {"x": 0, "y": 0, "z": 0}}},
        {"$geoIntersects": {"$geometry": {"type": "Point"}}},
        {"$geoIntersects": {"$geometry": geojson("point", [0, 0])}},
        {"$geoIntersects": {"$geometry": point(float("nan"), 0)}},
        {"$geoIntersects": {"$geometry": point(0, float("inf"))}},
        {"$geoIntersects": {"$geometry": point(181, 0)}},
        {"$geoIntersects": {"$geometry": geojson("LineString", [[0, 0]])}},
        {"$geoIntersects": {"$geometry": geojson("Point", [0, 0], crs=STRICT)}},
        {"$geoIntersects": {"$geometry": {"type": "GeometryCollection", "geometries": []}}},
        {"$geoIntersects": {"$geometry": IN}, "$near": [0, 0]},
        {"$box": [[0, 0], [1, 1]]},
        {"$maxDistance": 5},
        {"$near": []},
        {"$near": [1]},
        {"$near": [1, 2, 3, 4]},
        {"$near": {"$maxDistance": 5}},
        {"$near": {"$geometry": [0, 0]}},
        {"$near": {"$geometry": geojson("LineString", [[0, 0], [1, 1]])}},
        {"$near": {"$geometry": IN}, "$maxDistance": 5},
        {"$near": {"$geometry": IN, "$maxDistance": -1}},
        {"$near": {"$geometry": IN, "$maxDistance": float("inf")}},
        {"$near": {"$geometry": IN, "$minDistance": "1"}},
        {"$nearSphere": [200, 0]},
        {"$not": {"$near": [0, 0]}},
        {"$elemMatch": {"$near": [0, 0]}},
    ],
)
def test_invalid_geospatial_operands_are_refused(refusal: Refusal, operand: dict[str, Any]) -> None:
    # $near is refused as a whole, with another code, where it is not allowed; here it would be.
    with pytest.raises(CommandError) as caught:
        parse_match(bson.encode({"a": operand}), ParseContext(), near=True)
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("operand", "code"),
    [
        ({"$near": [0, 0], "$minDistance": "1"}, 16893),
        ({"$near": [0, 0], "$minDistance": -1}, 16894),
        ({"$near": [0, 0], "$minDistance": float("nan")}, 16894),
        ({"$nearSphere": [0, 0], "$maxDistance": None}, 16895),
        ({"$nearSphere": [0, 0], "$maxDistance": -0.5}, 16896),
    ],
)
def test_distances_beside_a_legacy_point(operand: dict[str, Any], code: int) -> None:
    with pytest.raises(CommandError) as caught:
        parse_match(bson.encode({"a": operand}), ParseContext(), near=True)
    assert caught.value.code == code


def test_the_sphere_is_refused_by_name_without_its_library(
    monkeypatch: pytest.MonkeyPatch, matching: Matching, refusal: Refusal
) -> None:
    monkeypatch.setattr(library, "find_spec", lambda name: None)
    assert refusal(intersects(IN)) == (
        115,
        "Geometry on the sphere needs the Python package 's2rst': pip install '.[geo]' in mongottl's checkout, where"
        " scripts/setup installs it, too",
    )
    assert refusal(within("$centerSphere", [[0, 0], 1]))[0] == 115
    assert matching(within("$box", [[0, 0], [2, 2]]), [[1, 1], [5, 5]]) == [[1, 1]]


def rectangle(west: float, south: float, east: float, north: float) -> dict[str, Any]:
    return geojson("Polygon", [[[west, south], [east, south], [east, north], [west, north], [west, south]]])


@pytest.mark.parametrize(
    ("a", "b", "meet"),
    [
        # Corners that overlap a little: here S2's Rust port is wrong where it is asked directly.
        ((88.0095, -48.9585, 98.0095, -41.2670), (88.7605, -49.1519, 89.7605, -48.1519), True),
        ((-60.5554, -45.1548, -51.5554, -39.9249), (-59.5577, -45.4887, -58.5577, -44.4887), True),
        ((-107.6095, 42.4103, -98.6095, 46.4212), (-108.1072, 42.4553, -107.1072, 43.4553), True),
        ((-154.2276, 35.6474, -145.2276, 42.1569), (-151.7821, 35.5996, -150.7821, 36.5996), True),
        ((0, 0, 10, 10), (10, 0, 20, 10), False),  # no more than a side in common
        ((0, 0, 10, 10), (10, 10, 20, 20), False),  # a corner
        ((0, 0, 10, 10), (0, 0, 10, 10), True),
        ((0, 0, 10, 10), (0, 0, 20, 10), True),  # one side of each, and the interior behind it
        ((0, 0, 10, 10), (11, 0, 20, 10), False),
        ((0, 0, 10, 10), (2, 2, 3, 3), True),
    ],
)
def test_polygons_that_meet(matching: Matching, a: Any, b: Any, meet: bool) -> None:
    assert bool(matching(intersects(rectangle(*a)), [rectangle(*b)])) is meet
    assert bool(matching(intersects(rectangle(*b)), [rectangle(*a)])) is meet


@pytest.mark.parametrize("clockwise", [False, True])
@pytest.mark.parametrize(
    ("line", "meets"),
    [
        # Along a side, with the interior to the left, as S2 walks round a polygon; then to the right.
        ([[-10, -10], [10, -10]], True),
        ([[10, -10], [-10, -10]], False),
        ([[10, -10], [-10, -10], [-20, -10]], False),
        # Along the hole, and through it.
        ([[-4, 4], [4, 4]], True),
        ([[4, 4], [-4, 4]], False),
        ([[-3, 0], [3, 0]], False),
        ([[-5, 0], [3, 0]], True),
    ],
)
def test_lines_along_a_polygon(matching: Matching, line: Any, meets: bool, clockwise: bool) -> None:
    outer = rectangle(-10, -10, 10, 10)["coordinates"][0]
    inner = rectangle(-4, -4, 4, 4)["coordinates"][0]
    rings = [outer[::-1], inner[::-1]] if clockwise else [outer, inner]
    polygon = geojson("Polygon", rings)
    assert bool(matching(intersects(polygon), [geojson("LineString", line)])) is meets
    assert bool(matching(intersects(geojson("LineString", line)), [polygon])) is meets


@pytest.mark.parametrize(
    ("geometry", "inside"),
    [
        (rectangle(-5, -5, 5, 5), False),  # around the hole
        (rectangle(-1, -1, 1, 1), False),  # within the hole
        (rectangle(3, 3, 5, 5), True),
        (geojson("Polygon", [*rectangle(-5, -5, 5, 5)["coordinates"], *rectangle(-3, -3, 3, 3)["coordinates"]]), True),
        (geojson("LineString", [[-5, 5], [5, 5]]), True),
        (geojson("LineString", [[-5, 0], [5, 0]]), False),  # through the hole
        (geojson("LineString", [[-10, -10], [10, -10]]), True),  # along the border
        (geojson("LineString", [[5, 5], [11, 5]]), False),
    ],
)
def test_containment_in_a_polygon_with_a_hole(matching: Matching, geometry: dict[str, Any], inside: bool) -> None:
    assert bool(matching(within("$geometry", geojson("Polygon", [*SQUARE, HOLE])), [geometry])) is inside


def test_near_gives_an_order_only_once_and_at_the_top(refusal: Refusal) -> None:
    near = {"a": {"$near": [0, 0]}}
    parse_match(bson.encode({"$and": [near, {"b": 1}]}), ParseContext(), near=True)
    for filter in ({"$or": [near, {"b": 1}]}, {"$nor": [near]}, {"$and": [near, near]}):
        with pytest.raises(CommandError) as caught:
            parse_match(bson.encode(filter), ParseContext(), near=True)
        assert caught.value.code == 2
    assert refusal(near)[0] == 5626500
