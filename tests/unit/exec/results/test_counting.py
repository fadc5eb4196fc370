"""Counting entries of an index in bounded parts."""

import math
from typing import Any

import bson
import pytest
from bson import MaxKey, MinKey

from mongottl.document.build import encode
from mongottl.errors import CommandError
from mongottl.exec.results.counting import COUNTED_PER_STEP, count_documents, entry_count
from mongottl.exec.results.explain import count_wrapper
from tests.planning import NATURAL, Bench, Pattern, match_of
from tests.steps import begin, counted, run_to_end

MANY = 2 * COUNTED_PER_STEP + 5


@pytest.fixture(scope="module")
def bench() -> Bench:
    bench = Bench()
    bench.index([("a", 1)])
    for start in range(0, MANY, 1000):
        bench.insert([{"_id": i, "a": 1 if i % 2 else i} for i in range(start, min(start + 1000, MANY))])
    return bench


@pytest.mark.parametrize(
    ("filter", "expected", "steps"),
    [
        ({"a": {"$gte": 0}}, MANY, 2),
        ({"a": 1}, MANY // 2, 1),
        ({"a": {"$in": [1, 2, 4]}}, MANY // 2 + 2, 1),
        ({"a": {"$gt": COUNTED_PER_STEP}}, MANY // 4 + 1, 0),
        ({"_id": {"$lt": COUNTED_PER_STEP}}, COUNTED_PER_STEP, 0),
        ({"_id": {"$lte": COUNTED_PER_STEP}}, COUNTED_PER_STEP + 1, 1),
        ({"a": -1}, 0, 0),
    ],
    ids=str,
)
def test_counts_take_bounded_steps(bench: Bench, filter: dict[str, object], expected: int, steps: int) -> None:
    bench.service.stacks.times.together_s = 0.0
    counting = bench.service.stacks.begin(lambda: count_documents(bench.op, bench.collection, match_of(filter)))
    assert counted(counting) == (expected, steps)


def test_an_index_dropped_meanwhile_ends_the_count() -> None:
    bench = Bench()
    index = bench.index([("a", 1)])
    for start in range(0, 6000, 1000):
        bench.insert([{"_id": i, "a": i} for i in range(start, start + 1000)])
    counting = begin(bench.service, lambda: count_documents(bench.op, bench.collection, match_of({"a": {"$gte": 0}})))
    next(counting)
    bench.service.catalog.remove_indexes(bench.collection, [index])
    with pytest.raises(CommandError) as killed:
        next(counting)
    assert killed.value.code == 175


def planned(bench: Bench, filter: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The stage below COUNT."""
    plan = bench.plan(filter, **options)
    plan.count_only()
    reply = bench.explain(plan, "queryPlanner", count_wrapper())
    return bson.decode(encode(reply["queryPlanner"]["winningPlan"]["inputStage"]))


def test_documents_count_once_in_a_multikey_index() -> None:
    bench = Bench()
    bench.index([("a", 1), ("b", 1)])
    bench.insert([{"_id": i, "a": [i, i + 1, i + 2], "b": 1} for i in range(1000)])
    assert planned(bench, {"a": {"$gte": 500}}) == {
        "stage": "COUNT_SCAN",
        "keyPattern": {"a": 1, "b": 1},
        "indexName": "a_1_b_1",
        "isMultiKey": True,
        "multiKeyPaths": {"a": ["a"], "b": []},
        "isUnique": False,
        "isSparse": False,
        "isPartial": False,
        "indexVersion": 2,
        "indexBounds": {
            "startKey": {"a": 500, "b": MinKey()},
            "startKeyInclusive": True,
            "endKey": {"a": math.inf, "b": MaxKey()},
            "endKeyInclusive": True,
        },
    }
    assert bench.count({"a": {"$gte": 500}}) == 502
    assert bench.count({"a": {"$in": [7, 8, 20]}}) == 7
    assert bench.count({"a": {"$gte": 500}}, skip=2, limit=400) == 400


@pytest.mark.parametrize(
    ("pattern", "filter", "expected"),
    [
        ([("a", 1)], {"a": {"$gt": 1, "$lt": 9}}, ({"a": 1}, False, {"a": 9}, False)),
        ([("a", -1)], {"a": {"$gt": 1, "$lte": 9}}, ({"a": 9}, True, {"a": 1}, False)),
        ([("a", 1), ("b", -1)], {"a": 1}, ({"a": 1, "b": MaxKey()}, True, {"a": 1, "b": MinKey()}, True)),
        ([("a", 1), ("b", 1)], {"a": 1, "b": 2}, ({"a": 1, "b": 2}, True, {"a": 1, "b": 2}, True)),
        ([("a", 1), ("b", 1)], {"a": {"$gt": "x"}},
         ({"a": "x", "b": MaxKey()}, False, {"a": {}, "b": MinKey()}, False)),
    ],
    ids=str,
)  # fmt: skip
def test_bounds_of_a_count_scan(pattern: Pattern, filter: dict[str, Any], expected: tuple[Any, ...]) -> None:
    bench = Bench()
    bench.index(pattern)
    scan = planned(bench, filter)
    assert scan["stage"] == "COUNT_SCAN"
    assert tuple(scan["indexBounds"].values()) == expected
    assert "direction" not in scan


def test_a_count_over_several_ranges_is_an_ixscan_alone() -> None:
    bench = Bench()
    bench.index([("a", 1)])
    bench.insert([{"_id": i, "a": i % 10} for i in range(100)])
    stats = bench.explain(bench.plan({"a": {"$in": [1, 3]}}), "executionStats", count_wrapper())["executionStats"]
    assert stats["executionStages"]["inputStage"]["stage"] == "IXSCAN"
    assert (stats["totalKeysExamined"], stats["totalDocsExamined"]) == (20, 0)
    assert stats["executionStages"]["nCounted"] == 20
    assert planned(bench, {}, hint={"a": 1})["indexBounds"]["startKey"] == {"a": MinKey()}


def test_null_counts_by_its_key_unless_arrays_have_it_too() -> None:
    bench = Bench()
    bench.index([("a", 1)])
    bench.index([("x.y", 1)])
    bench.insert([{}, {"a": None, "x": 1}, {"a": 0, "x": {}}, {"a": bson.Int64(1), "x": {"y": 1}}])
    cases: list[tuple[dict[str, Any], int]] = [
        ({"a": None}, 2),
        ({"a": {"$in": [None, 1]}}, 3),
        ({"x.y": None}, 3),
        ({"x.y": {"$in": [None, 2]}}, 3),
    ]
    for filter, expected in cases:
        plan = bench.plan(filter)
        plan.count_only()
        stats = bench.explain(plan, "executionStats", count_wrapper())["executionStats"]
        assert (stats["executionStages"]["nCounted"], stats["totalDocsExamined"]) == (expected, 0)
        assert bench.count(filter) == bench.count(filter, hint=NATURAL) == expected
    assert planned(bench, {"a": None})["stage"] == "COUNT_SCAN"
    for filter in ({"a": {"$exists": False}}, {"a": {"$in": [None, [1]]}}, {"a": {"$in": [None, bson.Regex("x")]}}):
        assert planned(bench, filter, hint={"a": 1})["stage"] == "FETCH"
    # The key of [5] at x.y is null, but it does not match.
    bench.insert([{"a": [None, 1], "x": [5]}, {"a": [], "x": []}])
    assert planned(bench, {"a": None})["stage"] == "FETCH"
    assert bench.count({"a": None}) == 3
    assert bench.count({"x.y": None}) == bench.count({"x.y": None}, hint=NATURAL) == 3


def test_filters_on_indexed_fields_are_tested_on_keys() -> None:
    bench = Bench()
    bench.index([("a", 1), ("b", 1)])
    bench.insert([{"a": i % 10, "b": i} for i in range(100)])
    cases: list[tuple[dict[str, Any], int]] = [({"a": 3, "b": {"$mod": [20, 3]}}, 5), ({"a": {"$mod": [5, 3]}}, 20)]
    for filter, expected in cases:
        plan = bench.plan(filter, hint={"a": 1, "b": 1})
        plan.count_only()
        stats = bench.explain(plan, "executionStats", count_wrapper())["executionStats"]
        scan = stats["executionStages"]["inputStage"]
        assert (scan["stage"], "filter" in scan, stats["totalDocsExamined"]) == ("IXSCAN", True, 0)
        assert bench.count(filter) == bench.count(filter, hint=NATURAL) == expected
        assert bench.count(filter, skip=2, limit=2) == 2
    assert planned(bench, {"a": 3, "c": {"$exists": False}})["stage"] == "FETCH"


def test_skip_and_limit_are_the_count_stage_s() -> None:
    bench = Bench()
    bench.index([("a", 1)])
    bench.insert([{"_id": i, "a": i % 10} for i in range(100)])
    stats = bench.explain(bench.plan({"a": 1}), "executionStats", count_wrapper(3, 5))["executionStats"]
    count = stats["executionStages"]
    assert (count["stage"], count["nCounted"], count["nSkipped"]) == ("COUNT", 5, 3)
    assert count["inputStage"]["stage"] == "COUNT_SCAN"


def test_arrays_that_come_during_a_count() -> None:
    bench = Bench()
    bench.index([("a", 1)])
    for start in range(0, 12_000, 1000):
        bench.insert([{"_id": i, "a": i} for i in range(start, start + 1000)])
    match = match_of({"a": {"$gte": 0, "$lt": 20_000}})
    counting = begin(bench.service, lambda: count_documents(bench.op, bench.collection, match))
    next(counting)
    bench.insert([{"_id": 20_000, "a": [11_000, 11_001, 11_002]}, {"_id": 20_001, "a": [-1, 30_000]}])
    assert run_to_end(counting) == 12_002


@pytest.mark.parametrize("arrays", [False, True])
def test_counts_skip_keys_outside_trailing_bounds(arrays: bool) -> None:
    bench = Bench()
    bench.index([("a", 1), ("b", 1)])
    bench.insert([{"a": [a, -1] if arrays else a, "b": b} for a in range(20) for b in range(50)])
    filter = {"a": {"$gte": 5, "$lte": 14}, "b": {"$in": [7, 40]}}
    if arrays:
        filter["a"] = {"$gte": 5}  # one predicate bounds a multikey path
    count = entry_count(bench.plan(filter, hint={"a": 1, "b": 1}))
    assert count is not None
    before = bench.count(filter, hint=NATURAL)
    while (found := count.step(bench.op)) is None:
        pass
    assert found == before == (30 if arrays else 20)
    reader = count._reader
    assert reader is not None
    assert reader.examined < 4 * found


@pytest.mark.parametrize("step", [1, 10])
def test_counts_end_at_their_limit(step: int) -> None:
    bench = Bench()
    bench.index([("a", 1)])
    bench.insert([{"a": i // step} for i in range(2000)])
    filter = {"a": {"$in": list(range(2000 // step))}}
    assert bench.count(filter, limit=3) == 3
    assert bench.count(filter, skip=1990, limit=100) == 10
    count = entry_count(bench.plan(filter, hint={"a": 1}, limit=3))
    assert count is not None and count.step(bench.op) == 3


def test_an_or_counts_the_entries_of_its_scans_each_record_once() -> None:
    bench = Bench()
    bench.index([("a", 1)])
    bench.index([("b", 1), ("c", 1)])
    bench.insert([{"_id": i, "a": i % 10, "b": i % 7, "c": i, "d": i % 2} for i in range(1000)])
    filter: dict[str, Any] = {"$or": [{"a": {"$in": [3, None]}}, {"b": {"$gte": 5}, "c": {"$lt": 500}}]}
    expected = sum(i % 10 == 3 or (i % 7 >= 5 and i < 500) for i in range(1000))
    plan = bench.plan(filter)
    plan.count_only()
    count = entry_count(plan)
    assert count is not None
    while (found := count.step(bench.op)) is None:
        pass
    assert found == bench.count(filter) == bench.count(filter, hint=NATURAL) == expected
    assert bench.count(filter, skip=10, limit=20) == 20
    stats = bench.explain(plan, "executionStats", count_wrapper())["executionStats"]
    either = stats["executionStages"]["inputStage"]
    assert (either["stage"], [scan["stage"] for scan in either["inputStages"]]) == ("OR", ["IXSCAN", "IXSCAN"])
    assert (stats["executionStages"]["nCounted"], stats["totalDocsExamined"]) == (expected, 0)
    # A branch that the keys do not decide needs documents, and so do arrays that come later.
    assert entry_count(bench.plan({"$or": [{"a": 3}, {"b": 5, "d": 1}]})) is None
    counting = begin(bench.service, lambda: count_documents(bench.op, bench.collection, match_of(filter)))
    next(counting)
    bench.insert([{"_id": 1000, "a": [3, 4], "b": 6, "c": 1}])
    assert run_to_end(counting) == expected + 1
