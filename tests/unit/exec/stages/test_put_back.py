"""An idle cursor keeps a position, not the documents that were read ahead for its last batch."""

import gc
import random
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from mongottl.document.freeing import free_some
from mongottl.exec.results.reading import KEPT_BYTES
from tests.planning import Bench, Pattern, ids
from tests.running import Document, Running, hurried_clock

SIZE = 300_000
COUNT = 70

FINDS: list[Document] = [
    {},
    {"sort": {"$natural": -1}},
    {"filter": {"n": {"$gte": 0}}},
    {"filter": {"a": {"$gte": 0}}, "hint": "a_1"},
    {"sort": {"a": -1}},
    {"filter": {"m": {"$gte": 0}}, "hint": "m_1"},
    {"filter": {"a": {"$in": list(range(0, COUNT, 3))}}},
    {"filter": {"$or": [{"a": {"$lt": 40}}, {"b": {"$gte": 20}}]}},
    {"filter": {"a": {"$gte": 0}}, "hint": "a_1", "skip": 3, "limit": 50},
    {"hint": "a_1", "projection": {"n": 1}},
    {"hint": "a_1", "showRecordId": True},
]
PIPELINES: list[list[Document]] = [
    [],
    [{"$match": {"a": {"$gte": 0}}}, {"$project": {"a": 1}}],
    [{"$match": {"n": {"$gte": 0}}}, {"$skip": 3}, {"$limit": 50}],
    [{"$set": {"x": 1}}],
    [{"$match": {"_id": -1}}, {"$unionWith": "test"}],
]
COMMANDS: list[Document] = [
    *({"find": "test", **find} for find in FINDS),
    *({"aggregate": "test", "pipeline": pipeline, "cursor": {}} for pipeline in PIPELINES),
]


def fill(running: Running, size: int, **options: Any) -> None:
    running.run({"create": "test", **options})
    pad = bytes(size)
    for n in range(COUNT):
        document = {"_id": n, "n": n, "a": n // 2, "b": n, "m": [n, n // 2], "pad": pad}
        running.run({"insert": "test", "documents": [document]})
    keys = [{"a": 1}, {"b": 1}, {"m": 1}]
    indexes = [{"key": key, "name": f"{next(iter(key))}_1"} for key in keys]
    running.run({"createIndexes": "test", "indexes": indexes})


def opened(running: Running, command: Document, batch_size: int) -> Document:
    if "find" in command:
        cursor: Document = running.run({**command, "batchSize": batch_size})["cursor"]
    else:
        cursor = running.run({**command, "cursor": {"batchSize": batch_size}})["cursor"]
    return cursor


def read_on(running: Running, cursor_id: int, batch_size: int) -> Document:
    cursor: Document = running.run({"getMore": cursor_id, "collection": "test", "batchSize": batch_size})["cursor"]
    return cursor


SCANS: list[tuple[Document, Pattern | None]] = [
    ({"a": {"$gte": 3}}, None),
    ({"a": {"$in": [1, 5, 9]}}, None),
    ({"a": {"$gte": 3}}, [("a", -1), ("b", -1)]),
    ({"a": {"$nin": [2, 6]}, "b": {"$in": [1, 2, 7, 9]}}, None),
    ({"a": {"$nin": [2, 6]}, "b": {"$in": [1, 2, 7, 9]}}, [("a", -1), ("b", -1)]),
    ({"a": {"$gt": 1}, "b": {"$gt": 6}}, None),
    ({"a": {"$gt": 1}, "m": {"$gt": 6}}, None),
]


@pytest.mark.parametrize(("filter", "sort"), SCANS, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_scans_continue_with_what_was_put_back(filter: Document, sort: Pattern | None, seed: int) -> None:
    bench = Bench()
    last = "m" if "m" in filter else "b"
    bench.index([("a", 1), (last, 1)])
    bench.insert([{"_id": a * 10 + b, "a": a, "b": b, "m": [b, b + 1]} for a in range(10) for b in range(10)])
    expected = bench.find(filter, sort)
    random_ = random.Random(seed)
    op = bench.op
    stage = bench.plan(filter, sort, hint={"a": 1, last: 1}, wanted=random_.randint(1, 40)).open()
    given: list[bytes] = []
    while (batch := stage.next_batch(op)) is not None:
        kept = random_.randint(0, len(batch))
        if kept < len(batch):
            assert stage.put_back(op, batch[kept:])
        given.extend(record[1] for record in batch[:kept])
    assert ids(given) == expected


def held_bytes(running: Running, command: Document, cursors: int, last_page: int = 3) -> int:
    """What so many open cursors hold after three pages, the last one of so many documents (0: of 16 MB)."""
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(cursors):
        cursor_id = opened(running, command, 2)["id"]
        for batch_size in (3, last_page):
            cursor_id = read_on(running, cursor_id, batch_size)["id"]
        assert cursor_id
    while free_some():
        pass  # what was let go is freed by whoever runs next
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - before
    running.service.cursors.close_all()
    return held


@pytest.fixture(autouse=True)
def left_by_other_tests_is_not_examined() -> Iterator[None]:
    """In a long run each collection of garbage would examine all of it, for a second."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def large() -> Running:
    running = Running()
    fill(running, SIZE)
    return running


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=repr)
def test_idle_cursors_hold_little(large: Running, command: Document) -> None:
    tracemalloc.start()
    try:
        held_bytes(large, command, 1)
        # A small rest of a batch may be kept, and some stages keep the last document.
        assert held_bytes(large, command, 5) < 5 * (KEPT_BYTES + SIZE + 50_000)
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("command", [{"find": "test"}, {"aggregate": "test", "pipeline": [{"$set": {"x": 1}}]}])
def test_idle_cursors_hold_little_after_a_page_that_is_full_by_size(large: Running, command: Document) -> None:
    tracemalloc.start()
    try:
        held_bytes(large, command, 1)
        assert held_bytes(large, command, 2, last_page=0) < 2 * (KEPT_BYTES + SIZE + 50_000)
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("command", [{"find": "test"}, {"aggregate": "test", "pipeline": [{"$set": {"x": 1}}]}])
def test_idle_cursors_let_go_what_they_have_returned_of_the_last_batch(command: Document) -> None:
    running = Running(clock=hurried_clock(0.0))  # no batch seems slow: scans read 2, 4, 8, 16, 32 documents
    size = 295_000  # as many fill a page as take all but one of the last batch
    fill(running, size)
    tracemalloc.start()
    try:
        held_bytes(running, command, 1)
        assert held_bytes(running, command, 2, last_page=0) < 2 * (KEPT_BYTES + size + 50_000)
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_merged_scans_share_what_one_scan_may_read(large: Running) -> None:
    command = {"find": "test", "filter": {"a": {"$in": list(range(30))}}, "sort": {"b": 1}}
    large.run({"createIndexes": "test", "indexes": [{"key": {"a": 1, "b": 1}, "name": "a_1_b_1"}]})
    explained = large.run({"explain": command})
    assert "SORT_MERGE" in str(explained["queryPlanner"]["winningPlan"])
    tracemalloc.start()
    try:
        assert held_bytes(large, command, 1) < 18 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("command", COMMANDS, ids=repr)
def test_each_document_is_given_once(command: Document, clustered: bool) -> None:
    running = Running()
    options = {"clusteredIndex": {"key": {"_id": 1}, "unique": True}} if clustered else {}
    fill(running, SIZE, **options)
    expected = [document["_id"] for document in opened(running, command, 1000)["firstBatch"]]
    sizes = random.Random(repr(command))
    cursor = opened(running, command, sizes.randint(1, 5))
    given = [document["_id"] for document in cursor["firstBatch"]]
    while cursor["id"]:
        cursor = read_on(running, cursor["id"], sizes.randint(1, 9))
        given += [document["_id"] for document in cursor["nextBatch"]]
    assert len(given) in (COUNT // 3 + 1, 50, COUNT)
    assert given[: len(expected)] == expected
    assert len(set(given)) == len(given)
