"""What the log of slow operations asks plans for takes no time that a client decides: filters and bounds are not
described for it."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from mongottl.exec.operation.context import OperationContext
from mongottl.exec.results.plan_summary import examined_by, has_sort_stage, summarise
from mongottl.exec.stages.stage import PlanStage
from tests.planning import Bench

LENGTH = 20_000
# Describing is at least a hundred times as slow as what the log asks for.
RATIO = 10

BRANCHES = {"$or": [{f"x{number}": number} for number in range(LENGTH)]}
VALUES = {"a": {"$in": [*range(LENGTH)]}}


def seconds(function: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(3):
        begun = time.thread_time()
        function()
        best = min(best, time.thread_time() - begun)
    return best


def noted(op: OperationContext, stage: PlanStage) -> None:
    summarise(op, [stage])
    examined_by(op, [stage])
    has_sort_stage(op, [stage])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("filter", "sort", "summary"),
    [
        (BRANCHES, None, "COLLSCAN"),
        (VALUES, None, "IXSCAN { a: 1 }"),
        ({"a": {"$gt": 0}, **BRANCHES}, None, "IXSCAN { a: 1 }"),
        (BRANCHES, [("b", 1)], "COLLSCAN"),
    ],
)
def test_long_filters_are_not_described(
    filter: dict[str, Any], sort: list[tuple[str, int | str]], summary: str
) -> None:
    bench = Bench()
    bench.index([("a", 1)])
    bench.insert([{"_id": number, "a": number} for number in range(10)])
    stage = bench.plan(filter, sort).open()
    bench.drain(stage)
    op = bench.op
    found = summarise(op, [stage])
    assert found.summary == summary
    assert (found.keys, found.documents) == examined_by(op, [stage])
    assert has_sort_stage(op, [stage]) == (sort is not None)
    assert examined_by(op, [stage])[1] == 10 - (filter is not BRANCHES and filter is not VALUES)
    assert seconds(lambda: noted(op, stage)) * RATIO < seconds(lambda: stage.node().planned())
