"""What a set of record ids holds, and the memory that it takes."""

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mongottl.exec.stages.record_ids import MAX_BYTES_PER_ID, RecordIdSet


@given(st.lists(st.integers(1, 5000) | st.integers(1, 2**63 - 1)))
def test_it_tells_which_ids_are_new(ids: list[int]) -> None:
    found = RecordIdSet()
    known: set[int] = set()
    for record_id in ids:
        assert found.add(record_id) == (record_id not in known)
        known.add(record_id)


def test_it_keeps_new_records_alone() -> None:
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
