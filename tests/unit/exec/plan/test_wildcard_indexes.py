"""Wildcard indexes: which filters they serve, explain, and hints."""

from typing import Any

import bson
import pytest

from mongottl.errors import CommandError
from tests.planning import Bench, Pattern, bounds_of_plan, filter_of, index_of, nodes_of, stages_of
from tests.running import Running


def bench_with(pattern: Pattern, **options: Any) -> Bench:
    bench = Bench()
    bench.index(pattern, **options)
    return bench


@pytest.mark.parametrize(
    ("filter", "bounds"),
    [
        ({"a": 5}, {"$_path": ['["a", "a"]'], "a": ["[5, 5]"]}),
        ({"a.b": {"$gt": 5}}, {"$_path": ['["a.b", "a.b"]'], "a.b": ["(5, inf.0]"]}),
        ({"a": {"$in": [1, "x"]}}, {"$_path": ['["a", "a"]'], "a": ["[1, 1]", '["x", "x"]']}),
        ({"a": {"$gt": 1, "$lt": 5}}, {"$_path": ['["a", "a"]'], "a": ["(1, 5)"]}),
        ({"a": {"$exists": True}}, {"$_path": ['["a", "a"]', '["a.", "a/")'], "a": ["[MinKey, MaxKey]"]}),
        ({"a": {"$ne": None}}, {"$_path": ['["a", "a"]', '["a.", "a/")'], "a": ["[MinKey, MaxKey]"]}),
        ({"a": {"$type": "string"}}, {"$_path": ['["a", "a"]'], "a": ['["", {})']}),
        ({"a": {"$type": "object"}}, {"$_path": ['["a", "a"]', '["a.", "a/")'], "a": ["[MinKey, MaxKey]"]}),
        ({"a": {"$type": "array"}}, {"$_path": ['["a", "a"]', '["a.", "a/")'], "a": ["[MinKey, MaxKey]"]}),
        ({"a": []}, {"$_path": ['["a", "a"]', '["a.", "a/")'], "a": ["[MinKey, MaxKey]"]}),
        ({"a": {}}, {"$_path": ['["a", "a"]'], "a": ["[{}, {}]"]}),
        ({"a": {"$elemMatch": {"b": 1}}}, {"$_path": ['["a.b", "a.b"]'], "a.b": ["[1, 1]"]}),
        # Documents without the path have no key, nor have whole documents and arrays.
        ({"a": None}, None),
        ({"a": {"$exists": False}}, None),
        ({"a": {"$ne": 1}}, None),
        ({"a": {"$in": [1, None]}}, None),
        ({"a": {"$gte": None}}, None),
        ({"a": {"b": 1}}, None),
        ({"a": {"$gt": {}}}, None),
        ({"a": [1, 2]}, None),
        ({"_id": {"$gt": 5}}, None),
    ],
)
def test_filters_served(filter: dict[str, Any], bounds: dict[str, list[str]] | None) -> None:
    bench = bench_with([("$**", 1)])
    plan = bench.plan(filter)
    if bounds is None:
        assert index_of(plan) != "$**_1"
        with pytest.raises(CommandError) as caught:
            bench.plan(filter, hint="$**_1")
        assert caught.value.code == 291
    else:
        assert index_of(plan) == "$**_1"
        assert bounds_of_plan(plan) == bounds


@pytest.mark.parametrize("filter", [{"a": []}, {"a": {"$type": "array"}}, {"a": {"$type": ["object", "int"]}}])
def test_whole_arrays_and_documents_are_found(filter: dict[str, Any]) -> None:
    running = Running()
    running.run({"createIndexes": "c", "indexes": [{"key": {"$**": 1}, "name": "wc"}]})
    values: list[Any] = [[], [1], [[]], [[1, 2]], {"b": []}, {}, [{"x": 1}], None, {"c": {"d": 5}}, 1, "x"]
    running.run({"insert": "c", "documents": [{"_id": i, "a": value} for i, value in enumerate(values)]})
    hinted = running.listed({"find": "c", "filter": filter, "hint": "wc"})
    scanned = running.listed({"find": "c", "filter": filter, "hint": {"$natural": 1}})
    assert sorted(document["_id"] for document in hinted) == [document["_id"] for document in scanned]
    assert hinted


def test_explain_names_the_path() -> None:
    bench = bench_with([("k", 1), ("a.$**", -1)])
    bench.insert([{"_id": 1, "k": 1, "a": {"b": 1, "c": [1, 2]}}])
    scan = nodes_of(bench.plan({"k": 1, "a.b": 1}))[-1]
    assert scan.described()["keyPattern"] == bson.encode({"k": 1, "$_path": 1, "a.b": -1})
    assert scan.described()["multiKeyPaths"] == {"k": [], "$_path": [], "a.b": []}
    assert scan.described()["isMultiKey"] is False
    scan = nodes_of(bench.plan({"k": 1, "a.c": 1}))[-1]
    assert scan.described()["multiKeyPaths"] == {"k": [], "$_path": [], "a.c": ["a.c"]}
    assert scan.described()["isMultiKey"] is True


def test_paths_that_the_projection_leaves_out() -> None:
    bench = bench_with([("$**", 1)], wildcardProjection=bson.encode({"a.b": 0, "c": 0}))
    assert index_of(bench.plan({"d": 1})) == "$**_1"
    assert index_of(bench.plan({"a.x": 1})) == "$**_1"
    assert index_of(bench.plan({"a": 1})) == "$**_1"
    assert stages_of(bench.plan({"a": {"$exists": True}})) == ["COLLSCAN"]
    assert stages_of(bench.plan({"a.b": 1})) == ["COLLSCAN"]
    assert stages_of(bench.plan({"a.b.x": 1})) == ["COLLSCAN"]
    assert stages_of(bench.plan({"c": 1})) == ["COLLSCAN"]


def test_order_of_the_path_that_is_bound() -> None:
    bench = bench_with([("$**", 1)])
    bench.insert([{"_id": i, "a": 10 - i, "b": [1]} for i in range(5)])
    assert stages_of(bench.plan({"a": {"$gt": 3}}, sort=[("a", -1)])) == ["FETCH", "IXSCAN"]
    assert bench.find({"a": {"$gt": 6}}, sort=[("a", 1)]) == [3, 2, 1, 0]
    assert stages_of(bench.plan({}, sort=[("a", 1)])) == ["SORT", "COLLSCAN"]
    assert stages_of(bench.plan({"a": {"$exists": True}}, sort=[("a", 1)]))[0] == "SORT"


def test_existence_reaches_into_documents_and_gives_each_record_once() -> None:
    bench = bench_with([("$**", 1)])
    bench.insert([{"_id": 1, "a": {"b": 1, "c": 2}}, {"_id": 2, "a": [1, 2]}, {"_id": 3, "ab": 1}, {"_id": 4, "a": {}}])
    assert sorted(map(str, bench.find({"a": {"$exists": True}}))) == ["1", "2", "4"]
    assert bench.count({"a": {"$exists": True}}) == 3


def test_not_null_uses_the_wildcard_index_while_there_are_no_arrays() -> None:
    bench = bench_with([("$**", 1)])
    bench.insert(
        [{"_id": 1, "a": None}, {"_id": 2, "a": {"b": None}}, {"_id": 3, "a": 1}, {"_id": 4}, {"_id": 5, "c": []}]
    )
    filter = {"a": {"$ne": None}}
    assert index_of(bench.plan(filter)) == "$**_1"
    assert bench.find(filter) == [3, 2]
    bench.insert([{"_id": 6, "a": [None, 1]}])
    assert stages_of(bench.plan(filter)) == ["COLLSCAN"]
    assert bench.find(filter) == [2, 3]


def test_an_index_on_the_path_itself_is_preferred() -> None:
    bench = bench_with([("$**", 1)])
    bench.index([("a", 1)])
    assert index_of(bench.plan({"a": 1})) == "a_1"


@pytest.mark.parametrize(
    ("filter", "bounds"),
    [
        (
            {"k": 1, "a.b": 2},
            {"k": ["[1, 1]"], "$_path": ['["a.b", "a.b"]'], "a.b": ["[2, 2]"], "l": ["[MinKey, MaxKey]"]},
        ),
        (
            {"k": {"$gt": 1}},
            {
                "k": ["(1, inf.0]"],
                "$_path": ["[MinKey, MinKey]", '["", {})'],
                "a.$**": ["[MinKey, MaxKey]"],
                "l": ["[MinKey, MaxKey]"],
            },
        ),
        (
            {"k": 1},
            {
                "k": ["[1, 1]"],
                "$_path": ["[MinKey, MinKey]", '["", {})'],
                "a.$**": ["[MinKey, MaxKey]"],
                "l": ["[MinKey, MaxKey]"],
            },
        ),
        ({"a.b": 1}, None),
        ({"l": 1}, None),
    ],
)
def test_compound(filter: dict[str, Any], bounds: dict[str, list[str]] | None) -> None:
    bench = bench_with([("k", 1), ("a.$**", 1), ("l", 1)])
    bench.insert([{"_id": 1, "k": 1}, {"_id": 2, "k": 1, "a": {"b": 1, "c": 2}}, {"_id": 3, "k": 2, "a": 1}])
    plan = bench.plan(filter)
    if bounds is None:
        assert stages_of(plan) == ["COLLSCAN"]
    else:
        assert bounds_of_plan(plan) == bounds
        assert sorted(map(str, bench.find(filter))) == sorted(map(str, bench.find(filter, hint={"$natural": 1})))


def test_hint_with_or() -> None:
    bench = bench_with([("$**", 1)])
    bench.insert([{"_id": 1, "a": 1}, {"_id": 2, "b": 2}, {"_id": 3, "a": 1, "b": 2}])
    plan = bench.plan({"$or": [{"a": 1}, {"b": 2}]}, hint="$**_1")
    assert stages_of(plan) == ["OR", "FETCH", "IXSCAN"]
    assert sorted(map(str, bench.drain(plan.open()))) == sorted(map(str, bench.drain(plan.open())))
    assert bench.find({"$or": [{"a": 1}, {"b": 2}]}, hint="$**_1") == [1, 3, 2]
    with pytest.raises(CommandError):
        bench.plan({"$or": [{"a": 1}, {"b": None}]}, hint="$**_1")
    with pytest.raises(CommandError):
        bench.plan({}, hint="$**_1")


def test_wildcard_scan_drops_filters_proved_by_its_ranges() -> None:
    bench = bench_with([("$**", 1)])
    assert filter_of(bench.plan({"a": {"$gt": 1}})) is None
    assert filter_of(bench.plan({"a": {"$exists": True}})) == {"a": {"$exists": True}}
