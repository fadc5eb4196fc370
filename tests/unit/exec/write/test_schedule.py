"""Counting when documents expire, by due seconds: against a plain model, on both engines, in any number of steps."""

from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mongottl.clock import VirtualClock
from mongottl.dialect.cosmos.account import AccountSettings
from mongottl.dialect.cosmos.dialect import configure_account
from mongottl.exec.write import schedule
from mongottl.storage.contract import ContractEngine
from mongottl.storage.opening import open_engine
from mongottl.ttl.policy import NO_CUTOFF_S
from tests.running import START_MS, Running
from tests.steps import begin, run_to_end
from tests.suspending import SuspendingEngine

START_S = START_MS // 1000
EDGES = [START_S, START_S + 60, START_S + 3600, START_S + 86_400]


@pytest.fixture(params=["memory", "sqlite"])
def running(request: pytest.FixtureRequest) -> Running:
    return Running(ContractEngine(open_engine(f"{request.param}:")))


def counts(
    running: Running, edges: list[int] = EDGES, most: int = schedule.LATEST_S, per_step: int = 4096
) -> list[int]:
    return schedule.count_by_due(running.service, running.collection(), edges, most, per_step)


def first_due(running: Running, after_s: int = NO_CUTOFF_S) -> int | None:
    return schedule.first_due_s(running.service, running.collection(), after_s)


def test_a_collection_whose_documents_live_for_ever(running: Running) -> None:
    running.insert({"_id": 1, "ttl": 5})
    assert not schedule.expires(running.collection())
    assert counts(running) == [0, 0, 0, 0, 0]
    assert first_due(running) is None


def test_the_default_and_own_times_to_live(running: Running) -> None:
    running.index({"_ts": 1}, expireAfterSeconds=60)
    assert schedule.expires(running.collection())
    running.insert(
        {"_id": 1}, {"_id": 2, "ttl": 61}, {"_id": 3, "ttl": -1}, {"_id": 4, "ttl": 3601}, {"_id": 5, "ttl": 10**6}
    )
    assert counts(running) == [0, 1, 1, 1, 1]
    assert counts(running, most=2) == [0, 1, 1, 0, 0]
    assert first_due(running) == START_S + 60
    running.advance(3600)
    assert counts(running, [START_S + 3600]) == [2, 2]
    running.reap()
    assert counts(running) == [0, 0, 0, 1, 1]
    assert first_due(running) == START_S + 3601


def test_parts_of_the_time_in_which_nothing_expires_are_not_asked_for() -> None:
    engine = SuspendingEngine(open_engine("memory:"), Random(1), 1.0)
    running = Running(engine)
    engine.suspension.stacks = running.service.stacks
    running.index({"_ts": 1}, expireAfterSeconds=60)
    running.insert({"_id": 1}, {"_id": 2, "ttl": 80_000})
    engine.suspension.left.clear()
    edges = [START_S + 30 * number for number in range(100)]
    found = run_to_end(begin(running.service, lambda: counts(running, edges)))
    assert (found[2], found[100], sum(found)) == (1, 1, 2)
    assert engine.suspension.left.total() < 20


@pytest.mark.parametrize("direction", [1, -1])
def test_parts_of_the_time_in_which_no_date_expires_are_not_asked_for(direction: int) -> None:
    engine = SuspendingEngine(open_engine("memory:"), Random(1), 1.0)
    running = Running(engine)
    engine.suspension.stacks = running.service.stacks
    running.index({"at": direction}, expireAfterSeconds=60)
    now = datetime.fromtimestamp(START_S, UTC)
    running.insert({"_id": 1, "at": now}, {"_id": 2, "at": now + timedelta(seconds=80_000)})
    engine.suspension.left.clear()
    edges = [START_S + 30 * number for number in range(100)]
    found = run_to_end(begin(running.service, lambda: counts(running, edges)))
    assert (found[2], found[100], sum(found)) == (1, 1, 2)
    assert engine.suspension.left.total() < 20


def test_only_documents_with_a_time_to_live_expire_without_a_default(running: Running) -> None:
    running.index({"_ts": 1}, expireAfterSeconds=-1)
    running.insert({"_id": 1}, {"_id": 2, "ttl": 1})
    assert counts(running) == [0, 1, 0, 0, 0]


@pytest.mark.parametrize("direction", [1, -1])
def test_dates(running: Running, direction: int) -> None:
    running.index({"at": direction}, expireAfterSeconds=10)
    now = datetime.fromtimestamp(START_S, UTC)
    ages = [-100_000, -4000, -60, -50, 9, 10, 10_000]
    running.insert(*({"_id": n, "at": now - timedelta(seconds=age)} for n, age in enumerate(ages)))
    running.insert({"_id": "none"}, {"_id": "text", "at": "tomorrow"}, {"_id": "number", "at": 5})
    assert counts(running) == [2, 2, 1, 1, 1]
    assert first_due(running) == START_S - 9990
    assert [first_due(running, START_S + s) for s in (-9990, 0, 1, 10**6)] == [START_S, START_S + 1, START_S + 60, None]
    assert counts(running, most=3) == [2, 1, 0, 0, 0]


def test_numbers_are_dates_in_the_dialect_cosmos() -> None:
    running = Running(dialect="cosmos")
    configure_account(running.service, AccountSettings(frozenset(["EnableTtlOnCustomPath"]), throughput="off"))
    running.run({"createIndexes": "c", "indexes": [{"key": {"at": 1}, "name": "at_1", "expireAfterSeconds": 10}]})
    running.insert({"_id": 1, "at": START_MS}, {"_id": 2, "at": float(START_MS)}, {"_id": 3, "at": "x"})
    assert counts(running) == [0, 2, 0, 0, 0]
    assert first_due(running) == START_S + 11


def test_of_a_collection_that_is_dropped_meanwhile_nothing_more_is_counted(running: Running) -> None:
    running.index({"_ts": 1}, expireAfterSeconds=60)
    running.insert(*({"_id": n} for n in range(10)))
    steps = begin(running.service, lambda: counts(running, per_step=1))
    next(steps)
    running.run({"drop": "c"})
    found = run_to_end(steps)
    assert sum(found) == 1


@given(
    default=st.sampled_from([None, -1, 30, 60, 4000]),
    documents=st.lists(
        st.tuples(st.integers(0, 100), st.sampled_from([None, -1, 0, 1, 59, 60, 61, 10**6])), max_size=30
    ),
    per_step=st.integers(1, 7),
    engine=st.sampled_from(["memory", "sqlite"]),
)
def test_counts_are_those_of_a_plain_model(
    default: int | None, documents: list[tuple[int, Any]], per_step: int, engine: str
) -> None:
    clock = VirtualClock()
    clock.freeze()
    clock.set_wall(START_MS)
    running = Running(ContractEngine(open_engine(f"{engine}:")), clock=clock)
    running.run({"create": "c"})
    if default is not None:
        running.index({"_ts": 1}, expireAfterSeconds=default)
    due: list[int] = []
    for number, (wait_s, ttl) in enumerate(sorted(documents, key=lambda pair: pair[0])):
        clock.set_wall(START_MS + wait_s * 1000)
        running.insert({"_id": number} if ttl is None else {"_id": number, "ttl": ttl})
        lives = ttl if ttl not in (None, 0) else default
        if default is not None and lives is not None and lives > 0:
            due.append(START_S + wait_s + lives)
    edges = [START_S + 50, START_S + 60, START_S + 61, START_S + 160]
    bounds = [-1, *edges, 1 << 60]
    expected = [sum(low < second <= high for second in due) for low, high in pairwise(bounds)]
    assert counts(running, edges, per_step=per_step) == expected
    assert first_due(running) == min(due, default=None)
    for after_s in edges:
        assert first_due(running, after_s) == min((second for second in due if second > after_s), default=None)


@given(
    direction=st.sampled_from([1, -1]),
    seconds=st.lists(st.integers(-90, 90), max_size=40),
    edges=st.lists(st.integers(-100, 100), min_size=1, max_size=12, unique=True).map(sorted),
    most=st.integers(1, 50),
    per_step=st.integers(1, 7),
)
def test_counts_of_dates_are_those_of_a_plain_model(
    direction: int, seconds: list[int], edges: list[int], most: int, per_step: int
) -> None:
    running = Running()
    running.index({"at": direction}, expireAfterSeconds=10)
    now = datetime.fromtimestamp(START_S - 10, UTC)
    running.insert({"_id": "none"}, *({"_id": n, "at": now + timedelta(seconds=s)} for n, s in enumerate(seconds)))
    expected = [0] * (len(edges) + 1)
    for due in sorted(seconds)[:most]:
        expected[bisect_left(edges, due)] += 1
    assert counts(running, [START_S + edge for edge in edges], most, per_step) == expected
