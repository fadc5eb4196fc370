"""SORT_MERGE: scans split by the points of $in, and the branches of $or."""

from typing import Any

import pytest

from mongottl.exec.plan.merged_path import MAX_SCANS
from mongottl.exec.stages.stage import BATCH, PlanNode
from tests.planning import NATURAL, Bench, Pattern


def bench_of(*patterns: Pattern, documents: int = 600) -> Bench:
    bench = Bench()
    for pattern in patterns:
        bench.index(pattern)
    bench.insert([{"_id": i, "a": i % 5, "b": i * 7 % 100, "c": i % 3, "d": i} for i in range(documents)])
    return bench


def bounds_in(node: PlanNode) -> list[Any]:
    return [child.inputs[0].described()["indexBounds"] for child in node.inputs]


@pytest.mark.parametrize(
    ("pattern", "filter", "sort", "bounds"),
    [
        (
            [("a", 1), ("b", 1)],
            {"a": {"$in": [1, 3]}},
            [("b", 1)],
            [{"a": ["[1, 1]"], "b": ["[MinKey, MaxKey]"]}, {"a": ["[3, 3]"], "b": ["[MinKey, MaxKey]"]}],
        ),
        (
            [("a", -1), ("b", 1)],
            {"a": {"$in": [1, 3]}, "b": {"$gt": 50}},
            [("b", -1)],
            [{"a": ["[3, 3]"], "b": ["[inf.0, 50)"]}, {"a": ["[1, 1]"], "b": ["[inf.0, 50)"]}],
        ),
        (
            [("a", 1), ("c", 1), ("b", 1)],
            {"a": {"$in": [1, 3]}, "c": {"$in": [0, 2]}},
            [("b", 1)],
            [
                {"a": ["[1, 1]"], "c": ["[0, 0]"], "b": ["[MinKey, MaxKey]"]},
                {"a": ["[1, 1]"], "c": ["[2, 2]"], "b": ["[MinKey, MaxKey]"]},
                {"a": ["[3, 3]"], "c": ["[0, 0]"], "b": ["[MinKey, MaxKey]"]},
                {"a": ["[3, 3]"], "c": ["[2, 2]"], "b": ["[MinKey, MaxKey]"]},
            ],
        ),
        (
            [("a", 1), ("b", 1)],
            {"a": {"$in": [1, 3]}, "$or": [{"b": {"$lt": 5}}, {"b": {"$gt": 90}}]},
            [("b", 1)],
            [
                {"a": ["[1, 1]"], "b": ["[-inf.0, 5)", "(90, inf.0]"]},
                {"a": ["[3, 3]"], "b": ["[-inf.0, 5)", "(90, inf.0]"]},
            ],
        ),
    ],
    ids=str,
)  # fmt: skip
def test_in_is_cut_into_scans(pattern: Pattern, filter: dict[str, Any], sort: Pattern, bounds: list[Any]) -> None:
    bench = bench_of(pattern)
    plan = bench.plan(filter, sort)
    node = plan.winning
    assert node.stage == "SORT_MERGE"
    assert bounds_in(node) == bounds
    found = bench.drain(plan.open())
    assert sorted(found) == sorted(bench.drain(bench.plan(filter, sort, hint=NATURAL).open()))
    assert len(found) > 20


def test_a_page_looks_at_little() -> None:
    bench = bench_of([("a", 1), ("b", 1)], documents=5000)
    plan = bench.plan({"a": {"$in": [1, 3]}}, [("b", 1)], limit=10)
    stage = plan.open()
    found = bench.drain(stage)
    assert len(found) == 10
    assert stage.examined_below() <= 2 * BATCH


def test_or_is_merged_where_each_branch_has_the_order() -> None:
    bench = bench_of([("a", 1), ("b", 1)], [("c", 1), ("b", -1)])
    filter: dict[str, Any] = {"$or": [{"a": 1}, {"c": 2}]}
    plan = bench.plan(filter, [("b", 1)])
    assert plan.winning.stage == "SORT_MERGE"
    found = bench.drain(plan.open())
    assert len(found) == len(set(found)) == sum(1 for i in range(600) if i % 5 == 1 or i % 3 == 2)
    assert bench.plan(filter, [("d", 1)]).winning.stage == "SORT"
    assert bench.plan(filter).winning.stage == "OR"


def test_scans_that_are_not_merged() -> None:
    bench = bench_of([("a", 1), ("b", 1)])
    many = {"a": {"$in": list(range(MAX_SCANS + 1))}}
    assert bench.plan(many, [("b", 1)]).winning.stage == "SORT"
    assert bench.plan({"a": {"$in": [1, 2]}}, [("d", 1)]).winning.stage == "SORT"
    assert bench.plan({"a": {"$in": [1, 2]}}).winning.stage == "FETCH"
    bench.insert([{"_id": "array", "a": [1, 2], "b": 0}])
    assert bench.plan({"a": {"$in": [1, 2]}}, [("b", 1)]).winning.stage == "SORT"


def test_merge_omits_documents_that_expire_while_they_wait() -> None:
    bench = Bench()
    bench.index([("a", 1), ("b", 1)])
    bench.index([("_ts", 1)], expireAfterSeconds=1000)
    bench.insert([{"_id": i, "a": i % 2, "b": i, "ttl": 10 if i >= 300 else -1} for i in range(400)])
    stage = bench.plan({"a": {"$in": [0, 1]}}, [("b", 1)]).open()
    first: list[bytes] = []
    while not first:
        batch = stage.next_batch(bench.op)
        assert batch is not None
        first.extend(record[1] for record in batch)
    bench.clock.advance(11)
    assert len(first) + len(bench.drain(stage)) == 300
