"""Sets of record ids: their contents and their memory."""

import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mongottl.exec.stages.record_ids import MAX_BYTES_PER_ID, RecordIdSet
from tests.planning import Bench


@given(st.lists(st.integers(1, 5000) | st.integers(1, 2**63 - 1)))
def test_add_returns_whether_the_id_is_new(ids: list[int]) -> None:
    found = RecordIdSet()
    known: set[int] = set()
    for record_id in ids:
        assert found.add(record_id) == (record_id not in known)
        known.add(record_id)


def test_unseen_returns_new_records_once() -> None:
    found = RecordIdSet()
    records = [(record_id, b"", 0, 0) for record_id in (7, 3, 7)]
    assert found.unseen(records) == records[:2]
    assert found.unseen([(1 << 40, b"", 0, 0), *records]) == [(1 << 40, b"", 0, 0)]


def bytes_of(ids: list[int]) -> int:
    tracemalloc.start()
    try:
        found = RecordIdSet()
        for record_id in ids:
            assert found.add(record_id)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shuffled", [False, True])
def test_neighbours_take_less_than_half_a_byte_each(shuffled: bool) -> None:
    ids = list(range(1, 100_001))
    if shuffled:
        random.Random(1).shuffle(ids)
    assert bytes_of(ids) < 50_000


def test_an_id_alone_takes_a_bounded_number_of_bytes() -> None:
    assert bytes_of([1 + 1_000_003 * place for place in range(10_000)]) < 10_000 * MAX_BYTES_PER_ID


@pytest.mark.slow
@pytest.mark.parametrize(
    ("filter", "sort", "stage"),
    [
        ({"a": {"$gte": 0}}, None, "FETCH"),
        ({"$or": [{"a": {"$gte": 0}}, {"b": {"$gte": 0}}]}, None, "OR"),
        ({"b": {"$in": [0, 1, 2]}}, [("c", 1)], "SORT_MERGE"),
    ],
    ids=["multikey", "or", "merge"],
)
def test_reads_keep_what_they_gave_in_little_memory(
    filter: dict[str, Any], sort: list[tuple[str, int | str]] | None, stage: str
) -> None:
    count = 20_000
    bench = Bench()
    bench.index([("a", 1)])
    bench.index([("b", 1), ("c", 1)])
    for start in range(0, count, 1000):
        bench.insert([{"_id": i, "a": [i, i + 1], "b": i % 3, "c": i} for i in range(start, start + 1000)])
    plan = bench.plan(filter, sort)
    assert plan.winning.stage == stage
    reading = plan.open()
    op = bench.op
    assert reading.next_batch(op) is not None
    tracemalloc.start()
    try:
        given = 0
        while (batch := reading.next_batch(op)) is not None:
            given += len(batch)
            del batch
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert given > count * 0.9
    # A Python set takes 60 bytes or more for each id; most of the measured memory is that of the last batches.
    assert kept < count * 20


def test_ids_can_be_taken_out_again() -> None:
    ids = RecordIdSet()
    assert all(ids.add(i) for i in (1, 2, 5000))
    ids.discard([(2, b"", 0, 0), (5000, b"", 0, 0), (9999, b"", 0, 0)])
    assert [ids.add(i) for i in (1, 2, 5000, 9999)] == [False, True, True, True]
