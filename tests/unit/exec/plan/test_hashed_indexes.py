"""Hashed indexes: which filters they serve, and values with the same hash."""

from typing import Any

import bson
import pytest

from mongottl.errors import CommandError
from tests.planning import Bench, Pattern, bounds_of_plan, filter_of, index_of, nodes_of, stages_of


def bench_with(pattern: Pattern, **options: Any) -> Bench:
    bench = Bench()
    bench.index(pattern, **options)
    return bench


@pytest.mark.parametrize(
    ("pattern", "filter", "served"),
    [
        ([("a", "hashed")], {"a": 1}, True),
        ([("a", "hashed")], {"a": None}, True),
        ([("a", "hashed")], {"a": {"x": 1}}, True),
        ([("a", "hashed")], {"a": {"$in": [1, 2, "x"]}}, True),
        ([("a", "hashed")], {"a": {"$exists": False}}, True),
        ([("a", "hashed")], {"a": 1, "b": {"$gt": 3}}, True),
        ([("a.b", "hashed")], {"a.b": 1}, True),
        ([("a", "hashed")], {"a": {"$gt": 1}}, False),
        ([("a", "hashed")], {"a": {"$exists": True}}, False),
        ([("a", "hashed")], {"a": {"$ne": 1}}, False),
        ([("a", "hashed")], {"a": {"$in": [1, bson.Regex("^x")]}}, False),
        ([("a", "hashed")], {"a": bson.Regex("^x")}, False),
        ([("a", "hashed")], {"b": 1}, False),
        ([("a", "hashed"), ("b", 1)], {"a": 1, "b": {"$gt": 1}}, True),
        ([("b", 1), ("a", "hashed")], {"b": {"$gt": 1}}, True),
        ([("b", 1), ("a", "hashed")], {"a": 1}, False),
    ],
)
def test_filters_served(pattern: Pattern, filter: dict[str, Any], served: bool) -> None:
    plan = bench_with(pattern).plan(filter)
    assert (index_of(plan) is not None) == served


def test_explain_names_the_kind_and_the_hash() -> None:
    plan = bench_with([("a", "hashed"), ("b", -1)]).plan({"a": 1, "b": 2})
    scan = nodes_of(plan)[-1]
    assert scan.described()["keyPattern"] == bson.encode({"a": "hashed", "b": -1})
    assert bounds_of_plan(plan) == {"a": ["[5902408780260971510, 5902408780260971510]"], "b": ["[2, 2]"]}
    assert filter_of(plan) == {"a": {"$eq": 1}}


def test_values_that_share_a_hash_are_told_apart() -> None:
    bench = bench_with([("a", "hashed")])
    bench.insert([{"_id": 1, "a": 1}, {"_id": 2, "a": 1.5}, {"_id": 3, "a": bson.Int64(1)}, {"_id": 4}])
    assert bench.find({"a": 1}) == [1, 3]
    assert bench.find({"a": 1.5}) == [2]
    assert bench.find({"a": None}) == [4]
    assert bench.count({"a": 1}) == 2


def test_order_comes_from_ordinary_components_only() -> None:
    bench = bench_with([("b", 1), ("a", "hashed")])
    assert stages_of(bench.plan({}, sort=[("b", 1)])) == ["FETCH", "IXSCAN"]
    assert stages_of(bench.plan({"b": 1}, sort=[("a", 1)])) == ["SORT", "FETCH", "IXSCAN"]
    hashed_first = bench_with([("a", "hashed"), ("b", 1)])
    assert stages_of(hashed_first.plan({"a": 1}, sort=[("b", -1)])) == ["FETCH", "IXSCAN"]
    assert stages_of(hashed_first.plan({}, sort=[("a", 1)])) == ["SORT", "COLLSCAN"]


def test_sparse_leaves_out_what_has_none_of_the_paths() -> None:
    bench = bench_with([("a", "hashed")], sparse=True)
    bench.insert([{"_id": 1}, {"_id": 2, "a": None}])
    assert stages_of(bench.plan({"a": None})) == ["COLLSCAN"]
    assert bench.find({}, hint="a_hashed") == [2]


@pytest.mark.parametrize(
    ("pattern", "document"),
    [
        ([("a", "hashed")], {"a": []}),
        ([("a", "hashed")], {"a": [1]}),
        ([("a.b", "hashed")], {"a": [{"b": 1}]}),
        ([("a.b", "hashed")], {"a": {"b": [1]}}),
        ([("a", "hashed"), ("b", 1)], {"b": [1]}),
    ],
)
def test_arrays_are_refused(pattern: Pattern, document: dict[str, Any]) -> None:
    bench = bench_with(pattern)
    with pytest.raises(CommandError) as caught:
        bench.insert_one(document)
    assert caught.value.code == 16766


def test_unique_is_refused() -> None:
    with pytest.raises(CommandError) as caught:
        bench_with([("a", "hashed")], unique=True)
    assert caught.value.code == 16764
