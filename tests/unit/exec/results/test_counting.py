"""Counting entries of an index in bounded parts."""

import pytest

from mongottl.errors import CommandError
from mongottl.exec.results.counting import COUNTED_PER_STEP, count_documents
from tests.planning import Bench, match_of

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
    counting = count_documents(bench.op, bench.collection, match_of(filter))
    taken = 0
    while True:
        try:
            next(counting)
        except StopIteration as stop:
            assert (stop.value, taken) == (expected, steps)
            return
        taken += 1


def test_an_index_dropped_meanwhile_ends_the_count() -> None:
    bench = Bench()
    index = bench.index([("a", 1)])
    for start in range(0, 6000, 1000):
        bench.insert([{"_id": i, "a": i} for i in range(start, start + 1000)])
    counting = count_documents(bench.op, bench.collection, match_of({"a": {"$gte": 0}}))
    next(counting)
    bench.service.catalog.remove_indexes(bench.collection, [index])
    with pytest.raises(CommandError) as killed:
        next(counting)
    assert killed.value.code == 175
