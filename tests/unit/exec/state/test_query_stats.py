"""The store of `$queryStats`: its rate, its memory, and what an entry adds up."""

from typing import Any

import bson
from bson import Decimal128

from mongottl.exec.state.query_stats import QueryStats, RunningQuery

KEY = bson.encode({"a": 1})


def record(store: QueryStats, key: bytes = KEY, micros: tuple[int, ...] = (5,), now_ms: int = 0) -> None:
    query = RunningQuery(store, key, "HASH", False)
    for command in micros:
        query.add(command, 2, (3, 4), now_ms)
    query.end()


def described(store: QueryStats, now_ms: int = 0) -> dict[str, Any]:
    [entry] = store.entries()
    document: dict[str, Any] = bson.decode(entry.describe(entry.key, now_ms))
    return document


def test_the_rate_bounds_what_is_recorded_in_a_second() -> None:
    store = QueryStats(1 << 20)
    store.rate_limit = 3
    assert [store.takes(1.9, False) for _ in range(5)] == [True, True, True, False, False]
    assert store.takes(2.0, False)
    assert store.rate_limited_total == 2
    store.rate_limit = -1
    assert all(store.takes(2.0, False) for _ in range(100))
    assert not store.takes(2.0, True)
    assert (store.rate_limited_total, store.refused_total) == (2, 1)


def test_an_entry_adds_up_the_executions() -> None:
    store = QueryStats(1 << 20)
    record(store, micros=(2000, 1000), now_ms=1000)
    record(store, micros=(7000,), now_ms=5000)
    metrics = described(store, 9000)["metrics"]
    assert described(store, 9000)["asOf"].time == 9
    assert metrics["execCount"] == 2
    assert metrics["totalExecMicros"] == {
        "sum": 10_000,
        "max": 7000,
        "min": 3000,
        "sumOfSquares": Decimal128("58000000"),
    }
    assert metrics["firstResponseExecMicros"]["sum"] == 9000
    assert (metrics["docsReturned"]["sum"], metrics["keysExamined"]["sum"], metrics["docsExamined"]["max"]) == (6, 9, 8)
    assert metrics["lastExecutionMicros"] == 7000
    assert (metrics["latestSeenTimestamp"] - metrics["firstSeenTimestamp"]).total_seconds() == 4


def test_query_stats_evict_the_least_recently_recorded_entries() -> None:
    store = QueryStats(1 << 20)
    keys = [bson.encode({"a": number}) for number in range(10)]
    for key in keys:
        record(store, key)
    record(store, keys[0])
    one = store.bytes // 10
    store.resize("small", 3 * one)
    assert [entry.key for entry in store.entries()] == [keys[8], keys[9], keys[0]]
    assert (store.bytes, store.evicted_total) == (3 * one, 7)
    record(store, bson.encode({"a": "x" * 10_000}))  # larger than all the room there is
    assert (store.entries(), store.bytes) == ([], 0)
    copy = store.copied()
    assert (copy.max_bytes, copy.size_text) == (3 * one, "small")
