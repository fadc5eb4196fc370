"""The cluster clock: never back, whatever the wall clock does, also over restarts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import Timestamp

from mongottl.catalog.catalog import Catalog
from mongottl.errors import CommandError
from mongottl.exec.state.cluster_clock import MAX_DRIFT_S, ClusterClock
from mongottl.storage.contract import ContractEngine
from mongottl.storage.errors import EngineUnavailable
from mongottl.storage.interface import StorageEngine, WriteUnitOfWork
from mongottl.storage.opening import open_engine

START_MS = 1_700_000_000_500
LAST_SECOND = 2**32 - 1


def pair(at: Any) -> tuple[int, int]:
    return at.time, at.inc


@pytest.fixture
def engine() -> Iterator[StorageEngine]:
    made = ContractEngine(open_engine("memory:"))
    yield made
    made.close()


def test_times_grow_whatever_the_wall_clock_does(engine: StorageEngine) -> None:
    clock = ClusterClock(Catalog(engine), START_MS)
    second = START_MS // 1000
    assert pair(clock.last) == (second, 1)
    for now_ms, expected in (
        (START_MS, (second, 2)),
        (START_MS + 400, (second, 3)),
        (START_MS + 1000, (second + 1, 1)),
        (0, (second + 1, 2)),
        (START_MS, (second + 1, 3)),
        (START_MS + 5000, (second + 5, 1)),
        (7_500_000_000_000, (LAST_SECOND, 1)),
        (8_500_000_000_000, (LAST_SECOND, 2)),
        (START_MS, (LAST_SECOND, 3)),
    ):
        assert pair(clock.tick(now_ms)) == expected
        assert pair(clock.last) == pair(clock.operation_time) == expected


def test_a_full_second_is_followed_by_the_next(engine: StorageEngine) -> None:
    clock = ClusterClock(Catalog(engine), START_MS)
    clock.increment = 2**32 - 1
    assert pair(clock.tick(START_MS)) == (START_MS // 1000 + 1, 1)


def received(clock: ClusterClock, document: dict[str, Any], now_ms: int = START_MS) -> None:
    body = bson.encode({"$clusterTime": document})
    clock.receive(body, body.index(b"$clusterTime\0") + len(b"$clusterTime\0"), now_ms)


def test_a_client_advances_the_clock_but_not_the_time_of_the_latest_write(engine: StorageEngine) -> None:
    clock = ClusterClock(Catalog(engine), START_MS)
    written = pair(clock.operation_time)
    later = Timestamp(START_MS // 1000 + 50, 7)
    received(clock, {"clusterTime": later})
    assert pair(clock.last) == pair(later)
    assert pair(clock.operation_time) == written
    received(clock, {"clusterTime": Timestamp(5, 5)})
    assert pair(clock.last) == pair(later)
    assert pair(clock.tick(START_MS)) == (later.time, 8)


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({}, 40414),
        ({"clusterTime": 5}, 14),
        ({"clusterTime": None}, 14),
        ({"clusterTime": Timestamp(START_MS // 1000 + 1, 1), "signature": 5}, 14),
        ({"clusterTime": Timestamp(START_MS // 1000 + MAX_DRIFT_S + 1, 1)}, 205),
    ],
)
def test_invalid_or_too_advanced_cluster_times_are_refused(engine: StorageEngine, document: Any, code: int) -> None:
    clock = ClusterClock(Catalog(engine), START_MS)
    before = clock.last
    with pytest.raises(CommandError) as caught:
        received(clock, document)
    assert caught.value.code == code
    assert clock.last == before


def test_own_cluster_time_is_accepted_after_the_wall_clock_was_set_back(engine: StorageEngine) -> None:
    clock = ClusterClock(Catalog(engine), START_MS)
    received(clock, {"clusterTime": Timestamp(START_MS // 1000, 1)}, now_ms=1000)


def times_in(reply: bytes) -> tuple[tuple[int, int], tuple[int, int]]:
    decoded = bson.decode(reply)
    assert decoded["$clusterTime"]["signature"] == {"hash": bytes(20), "keyId": 0}
    return pair(decoded["$clusterTime"]["clusterTime"]), pair(decoded["operationTime"])


@pytest.mark.parametrize("size", [1, 100_000])
def test_replies_have_both_times_at_their_end(engine: StorageEngine, size: int) -> None:
    clock = ClusterClock(Catalog(engine), START_MS)
    later = Timestamp(START_MS // 1000 + 5, 3)
    received(clock, {"clusterTime": later})
    reply = clock.with_times(bson.encode({"text": "x" * size, "ok": 1.0}))
    assert list(bson.decode(reply)) == ["text", "ok", "$clusterTime", "operationTime"]
    assert times_in(reply) == (pair(later), (START_MS // 1000, 1))
    # What a client sends back is accepted as it is.
    body = bson.encode({"ping": 1, "$clusterTime": bson.decode(reply)["$clusterTime"]})
    clock.receive(body, body.index(b"$clusterTime\0") + len(b"$clusterTime\0"), START_MS)
    assert pair(clock.last) == pair(later)


PING = bson.encode({"ok": 1.0})


@pytest.mark.parametrize("now_ms", [START_MS, 7_500_000_000_000])
def test_a_restart_begins_above_every_time_that_a_reply_had(tmp_path: Path, now_ms: int) -> None:
    highest = (0, 0)
    for wall_ms in (now_ms, 0, now_ms - 5000, now_ms):
        engine = open_engine(f"sqlite:{tmp_path}")
        clock = ClusterClock(Catalog(engine), wall_ms, True)
        assert times_in(clock.with_times(PING))[0] > highest
        for step in range(40):
            clock.tick(wall_ms + 500 * step)
            times = times_in(clock.with_times(PING))
            assert times[0] > highest
            highest = times[0]
        engine.close()


def test_a_write_stores_the_limit_in_its_own_unit_of_work(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:{tmp_path}")
    clock = ClusterClock(Catalog(engine), START_MS, True)
    later_ms = START_MS + 60_000
    commits = engine.committed_number
    with engine.unit_of_work() as work:
        clock.tick(later_ms)
        assert clock.limit_due
        clock.put_limit(work)
        work.commit()
    with engine.unit_of_work() as work:
        clock.tick(later_ms + 100_000)
        clock.put_limit(work)  # and is rolled back
    assert clock.limit_due
    assert engine.committed_number == commits + 1
    clock.with_times(PING)
    assert engine.committed_number == commits + 2
    engine.close()
    engine = open_engine(f"sqlite:{tmp_path}")
    assert ClusterClock(Catalog(engine), 0, True).last.time > later_ms // 1000 + 100
    engine.close()


class FullDisk(ContractEngine):
    """An engine that begins no unit of work while `full`."""

    full = False

    def unit_of_work(self) -> WriteUnitOfWork:
        if self.full:
            raise EngineUnavailable("disk full")
        return super().unit_of_work()


def test_replies_have_no_time_that_could_not_be_reserved() -> None:
    engine = FullDisk(open_engine("memory:"))
    clock = ClusterClock(Catalog(engine), START_MS, True)
    before = times_in(clock.with_times(PING))
    engine.full = True
    clock.tick(START_MS + 60_000)
    assert times_in(clock.with_times(PING)) == before
    engine.full = False
    assert times_in(clock.with_times(PING)) > before


def test_replies_have_no_times_if_none_could_be_reserved_at_the_start() -> None:
    engine = FullDisk(open_engine("memory:"))
    engine.full = True
    clock = ClusterClock(Catalog(engine), START_MS, True)
    assert clock.with_times(PING) == PING
    engine.full = False
    assert times_in(clock.with_times(PING))[0] > (0, 0)
