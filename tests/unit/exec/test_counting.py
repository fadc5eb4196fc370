"""Counts by each of the three ways, and what closes the fast ones."""

import pytest

from tests.planning import NATURAL, Bench


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.index([("a", 1), ("b", 1)])
    bench.insert([{"_id": i, "a": i % 5, "b": i % 3} for i in range(1000)])
    return bench


def test_without_filter(bench: Bench) -> None:
    assert bench.count({}) == 1000
    assert bench.count({}, skip=990) == 10
    assert bench.count({}, skip=2000) == 0
    assert bench.count({}, skip=10, limit=5) == 5
    assert bench.count({}, hint=NATURAL) == 1000


def test_by_entries(bench: Bench) -> None:
    index = bench.collection.index_named("a_1_b_1")
    assert index is not None
    assert bench.count({"a": 2}) == 200
    assert bench.count({"a": {"$in": [1, 2]}, "b": {"$gt": 0}}) == 267
    assert bench.count({"a": 2}, skip=150) == 50
    assert bench.count({"a": 2}, skip=150, limit=10) == 10
    assert index.accesses == 4


def test_by_documents(bench: Bench) -> None:
    assert bench.count({"b": 2}) == 333
    assert bench.count({"a": 2, "c": None}) == 200
    assert bench.count({"a": 2, "c": None}, skip=150, limit=10) == 10


def test_multikey_entries_are_not_documents(bench: Bench) -> None:
    bench.insert([{"_id": "x", "a": [2, 3, 4], "b": 7}])
    assert bench.count({"a": {"$gte": 2}}) == 601
    assert bench.count({"a": {"$ne": 2}}) == 800


def test_expired_entries_do_not_count(bench: Bench) -> None:
    bench.index([("_ts", 1)], expireAfterSeconds=100)
    bench.insert([{"_id": f"t{i}", "a": 2, "ttl": 10} for i in range(30)])
    bench.insert([{"_id": "forever", "a": 2, "ttl": -1}])
    assert (bench.count({}), bench.count({"a": 2})) == (1031, 231)
    bench.clock.advance(10)
    assert (bench.count({}), bench.count({"a": 2})) == (1001, 201)
    bench.clock.advance(90)
    assert (bench.count({}), bench.count({"a": 2}), bench.count({"_id": 5})) == (1, 1, 0)
