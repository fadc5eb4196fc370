"""Cursors and writes with other commands between their steps."""

import tracemalloc
from typing import Any

import bson
import pytest
from bson import Int64

from mongottl.clock import Clock, VirtualClock
from mongottl.errors import CommandError
from mongottl.exec.results.cursors import ReplyCursor, cursor_of
from tests.running import Document, Running


@pytest.fixture
def running() -> Running:
    running = Running()
    running.insert(*({"_id": i, "a": i} for i in range(2000)))
    return running


def opened(running: Running, **options: Any) -> Int64:
    return Int64(running.run({"find": "c", "batchSize": 2, **options})["cursor"]["id"])


def finished(steps: Any) -> Document:
    """Runs steps that have begun to their end; the result."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            reply: Document = stop.value
            return reply


def test_idle_cursors_are_closed(running: Running) -> None:
    cursors = running.service.cursors
    old, forever = opened(running), opened(running, noCursorTimeout=True)
    between_s = running.clock.monotonic_s()
    fresh = opened(running)
    cursors.close_idle(between_s)
    assert (len(cursors), cursors.timed_out_total) == (2, 1)
    assert running.code({"getMore": old, "collection": "c"}) == 43
    before_use_s = running.clock.monotonic_s()
    running.run({"getMore": fresh, "collection": "c", "batchSize": 1})  # its use restarts its timeout
    cursors.close_idle(before_use_s)
    assert cursors.find(int(fresh)) is not None
    cursors.close_idle(running.clock.monotonic_s())
    assert [cursors.find(int(one)) is None for one in (fresh, forever)] == [True, False]


def test_cursors_of_dropped_collections_are_forgotten_in_time(running: Running) -> None:
    cursors = running.service.cursors
    cursor = opened(running)
    running.run({"drop": "c"})
    assert len(cursors) == 0
    assert cursors.find(int(cursor)) is not None
    cursors.close_idle(running.clock.monotonic_s())
    assert running.code({"getMore": cursor, "collection": "c"}) == 43


def test_a_cursor_in_use(running: Running) -> None:
    cursor = opened(running, filter={"a": {"$lt": 0}}, batchSize=0)
    steps = running.steps({"getMore": cursor, "collection": "c"})
    next(steps)
    assert running.code({"getMore": cursor, "collection": "c"}) == 12051
    running.service.cursors.close_idle(running.clock.monotonic_s() + 1)
    assert running.run({"killCursors": "c", "cursors": [cursor]})["cursorsKilled"] == [cursor]
    with pytest.raises(CommandError) as killed:
        finished(steps)
    assert killed.value.code == 237
    assert running.code({"getMore": cursor, "collection": "c"}) == 43


def test_a_collection_dropped_under_a_cursor_in_use(running: Running) -> None:
    cursor = opened(running, filter={"a": {"$lt": 0}}, batchSize=0)
    steps = running.steps({"getMore": cursor, "collection": "c"})
    next(steps)
    running.run({"drop": "c"})
    with pytest.raises(CommandError) as killed:
        finished(steps)
    assert killed.value.code == 175


def test_an_upsert_updates_what_another_has_just_inserted(running: Running) -> None:
    running.index({"u": 1}, unique=True, sparse=True)
    update = {"q": {"u": 7}, "u": {"$set": {"by": "upsert"}}, "upsert": True, "hint": {"$natural": 1}}
    steps_taken = 0
    while True:  # with the other command at each position, ahead of the scan or after it
        steps = running.steps({"update": "c", "updates": [update]})
        try:
            for _ in range(steps_taken + 1):
                next(steps)
        except StopIteration:
            break
        steps_taken += 1
        running.insert({"_id": -1, "u": 7})
        reply = finished(steps)
        assert (reply["n"], reply.get("writeErrors"), reply.get("upserted")) == (1, None, None)
        assert running.listed({"find": "c", "filter": {"u": 7}}) == [{"_id": -1, "u": 7, "by": "upsert"}]
        running.run({"delete": "c", "deletes": [{"q": {"_id": -1}, "limit": 1}]})
    assert steps_taken > 2


def test_an_upsert_whose_key_belongs_to_another_document(running: Running) -> None:
    running.index({"u": 1}, unique=True, sparse=True)
    running.insert({"_id": -1, "u": 7})
    update = {"q": {"_id": -2}, "u": {"$set": {"u": 7}}, "upsert": True}
    reply = running.run({"update": "c", "updates": [update]})
    assert [error["code"] for error in reply["writeErrors"]] == [11000]


class ByHand(Clock):
    """Monotonic time that only the test moves."""

    elapsed_s = 1000.0

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self.elapsed_s * 1000)

    def monotonic_s(self) -> float:
        return self.elapsed_s


def after(time: ByHand, seconds: float, steps: Any) -> Document:
    """The reply to a command whose second step is so many seconds after the first."""
    next(steps)
    time.elapsed_s += seconds
    return finished(steps)


@pytest.mark.parametrize(
    "first",
    [
        {"find": "c", "filter": {"a": {"$gte": 0}}, "batchSize": 0},
        {"aggregate": "c", "pipeline": [{"$match": {"a": {"$gte": 0}}}], "cursor": {"batchSize": 0}},
    ],
    ids=["find", "aggregate"],
)
def test_the_time_limit_is_of_a_cursor_with_all_its_batches(first: Document) -> None:
    time = ByHand()
    running = Running(clock=VirtualClock(time))
    running.insert(*({"_id": i, "a": i} for i in range(3000)))
    cursor = Int64(finished(running.steps(first, max_time_ms=10_000))["cursor"]["id"])
    more: Document = {"getMore": cursor, "collection": "c", "batchSize": 900}
    time.elapsed_s += 60  # between two batches no time passes
    assert after(time, 6, running.steps(more))["cursor"]["id"] == cursor
    time.elapsed_s += 60
    with pytest.raises(CommandError) as caught:
        after(time, 5, running.steps(more))
    assert caught.value.code == 50
    assert running.code(more) == 43


def test_without_a_time_limit_there_is_none_later() -> None:
    time = ByHand()
    running = Running(clock=VirtualClock(time))
    running.insert(*({"_id": i, "a": i} for i in range(3000)))
    cursor = Int64(running.run({"find": "c", "filter": {"a": {"$gte": 0}}, "batchSize": 0})["cursor"]["id"])
    more = {"getMore": cursor, "collection": "c", "batchSize": 900}
    assert after(time, 1_000_000, running.steps(more))["cursor"]["id"] == cursor


def test_very_many_cursors_are_killed_in_steps(running: Running) -> None:
    """So that other operations run in between."""
    cursors = [opened(running) for _ in range(600)]
    steps = running.steps({"killCursors": "c", "cursors": [*cursors, Int64(7)]})
    left = []
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            reply = stop.value
            break
        left.append(len(running.service.cursors))
    assert left == [344, 88]
    assert (reply["cursorsKilled"], reply["cursorsNotFound"]) == (cursors, [7])


def test_very_many_idle_cursors_are_closed_in_parts(running: Running) -> None:
    for _ in range(300):
        opened(running)
    after_s = running.clock.monotonic_s() + 1
    assert running.service.cursors.close_idle(after_s)
    assert len(running.service.cursors) == 44
    assert not running.service.cursors.close_idle(after_s)
    assert len(running.service.cursors) == 0


def test_a_reply_gives_its_cursor_and_number_of_documents() -> None:
    documents = [{"_id": n, "firstBatch": [1, 2]} for n in range(40)]
    opened = {"cursor": {"firstBatch": documents, "id": Int64(7 << 40), "ns": "d.c"}, "ok": 1.0}
    assert cursor_of(bson.encode(opened)) == ReplyCursor(7 << 40, 40)
    last = {"cursor": {"nextBatch": [], "id": Int64(0), "ns": "d.c"}, "ok": 1.0}
    assert cursor_of(bson.encode(last)) == ReplyCursor(0, 0)
    assert cursor_of(bson.encode({"cursor": {"id": Int64(3)}})) == ReplyCursor(3, None)
    assert cursor_of(bson.encode({"cursor": {}})) == ReplyCursor(0, None)
    assert cursor_of(bson.encode({"n": 1, "ok": 1.0, "firstBatch": []})) is None
    assert cursor_of(bson.encode({"cursor": "no document", "ok": 1.0})) is None


def test_the_documents_of_a_reply_are_counted_without_being_decoded() -> None:
    reply = bson.encode({"cursor": {"id": Int64(0), "nextBatch": [{"a": "x" * 100}] * 10_000}})
    tracemalloc.start()
    try:
        assert cursor_of(reply) == ReplyCursor(0, 10_000)
        assert tracemalloc.get_traced_memory()[1] < len(reply) // 10
    finally:
        tracemalloc.stop()
