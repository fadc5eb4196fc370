"""Bounds of trailing components: how many keys are examined, and that no result is missing.

The numbers of keys are MongoDB's own (its tests of index bounds), within two keys where both directions are scanned.
"""

import itertools
from typing import Any

import pytest

from tests.planning import Bench, Pattern, bounds_of_plan

AGES: Pattern = [("age", 1), ("rating", 1)]


@pytest.fixture
def ages() -> Bench:
    bench = Bench()
    bench.index(AGES)
    bench.insert([{"age": age, "rating": rating} for age in range(10, 50) for rating in range(10)])
    return bench


def between(low: float, high: float) -> dict[str, float]:
    return {"$gte": low, "$lte": high}


def examined(bench: Bench, filter: dict[str, Any], sort: Pattern | None, hint: Pattern) -> tuple[int, int, int]:
    """Keys, documents, and documents returned."""
    statistics = bench.explain(bench.plan(filter, sort, hint=dict(hint)), "executionStats")["executionStats"]
    return statistics["totalKeysExamined"], statistics["totalDocsExamined"], statistics["nReturned"]


@pytest.mark.parametrize(
    ("filter", "keys", "documents"),
    [
        ({"age": 30}, 10, 10),
        ({"age": between(29, 30)}, 20, 20),
        ({"age": between(25, 30), "rating": {"$in": [0, 9]}}, 19, 12),
        ({"age": between(25, 30), "rating": {"$in": [0, 8]}}, 24, 12),
        ({"age": between(25, 30), "rating": {"$in": [1, 8]}}, 29, 12),
        ({"age": between(29, 30), "rating": 5}, 5, 2),
        ({"age": between(29, 30), "rating": between(4, 5)}, 7, 4),
    ],
)
def test_a_scan_leaps_over_what_trailing_bounds_exclude(
    ages: Bench, filter: dict[str, Any], keys: int, documents: int
) -> None:
    assert examined(ages, filter, None, AGES) == (keys, documents, documents)


def test_explain_shows_trailing_bounds(ages: Bench) -> None:
    plan = ages.plan({"age": between(25, 30), "rating": {"$in": [0, 9]}})
    assert bounds_of_plan(plan) == {"age": ["[25, 30]"], "rating": ["[0, 0]", "[9, 9]"]}


@pytest.mark.parametrize("directions", list(itertools.product((1, -1), repeat=3)))
@pytest.mark.parametrize("way", [1, -1])
def test_leaps_in_three_components(directions: tuple[int, int, int], way: int) -> None:
    pattern: Pattern = list(zip("abc", directions, strict=True))
    bench = Bench()
    bench.index(pattern)
    numbers = range(10)
    bench.insert([{"a": a, "b": b, "c": c} for a in range(1, 10) for b in numbers for c in numbers])
    sort: Pattern = [(path, direction * way) for path, direction in zip("abc", directions, strict=True)]
    for keys, filter in (
        (4, {"a": 5, "b": between(5, 6), "c": 5}),
        (8, {"a": 5, "b": between(5, 7), "c": 5}),
        (5, {"a": between(5, 6), "b": 5, "c": 5}),
        (3, {"a": between(5.5, 6), "b": 5, "c": 5}),
        (8, {"a": between(5, 7), "b": 5, "c": 5}),
        (7, {"a": between(5, 6), "b": 5, "c": between(5, 6)}),
        (11, {"a": between(5, 6), "b": between(5, 6), "c": 5}),
        (15, {"a": between(5, 6), "b": between(5, 6), "c": between(5, 6)}),
    ):
        looked_at, _, found = examined(bench, filter, sort, pattern)
        assert abs(looked_at - keys) <= 2
        assert found == len(bench.find(filter, hint={"$natural": 1}))


def test_an_array_that_comes_while_a_scan_is_under_way_ends_the_leaps(ages: Bench) -> None:
    stage = ages.plan({"age": {"$gte": 10}, "rating": 5}, wanted=1).open()
    first = stage.next_batch(ages.op)
    assert first
    ages.insert_one({"age": 60, "rating": [1, 5, 9]})
    rest = ages.drain(stage)
    assert len(first) + len(rest) == 41


def test_a_geospatial_index_uses_what_follows_the_place() -> None:
    bench = Bench()
    bench.index([("loc", "2dsphere"), ("n", 1)])
    places = [{"type": "Point", "coordinates": [x / 10, y / 10]} for x in range(40) for y in range(40)]
    bench.insert([{"loc": place, "n": n} for n, place in enumerate(places)])
    box = {"type": "Polygon", "coordinates": [[[0, 0], [0, 4], [4, 4], [4, 0], [0, 0]]]}
    plan = bench.plan({"loc": {"$geoWithin": {"$geometry": box}}, "n": 777})
    statistics = bench.explain(plan, "executionStats")["executionStats"]
    assert (statistics["nReturned"], statistics["totalDocsExamined"]) == (1, 1)


def test_arrays_within_trailing_bounds_do_not_disturb_a_sort() -> None:
    """A document sorts by the smallest of all its elements, not of those within the bounds."""
    bench = Bench()
    bench.index([("a", 1), ("t", 1)])
    bench.insert([{"_id": 1, "a": 1, "t": [1, 9]}, {"_id": 2, "a": 1, "t": [5]}, {"_id": 3, "a": 2, "t": [7, 8]}])
    sort: Pattern = [("a", 1), ("t", 1)]
    assert bench.find({"a": {"$gt": 0}, "t": {"$gt": 4}}, sort) == [1, 2, 3]
