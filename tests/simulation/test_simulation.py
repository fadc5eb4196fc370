"""Seeded simulations: several clients, step by step, while the clock jumps, storage fails, the server crashes and the
power is cut.

A seed is a test: `seeds.py` tells how to choose them. What is expected is told in `clients.py`, what must hold at any
time in `World.check_everything`.
"""

import random
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.simulation.clients import (
    COLLECTION,
    COUNTER_COLLECTION,
    COUNTERS,
    Stage,
    check_counters,
    counter,
    ddl_client,
    index_tuner,
    reader,
    ttl_tuner,
    writer,
)
from tests.simulation.seeds import MANY, MANY_SUSPENDING, check_happened, run_seeds, scheduled_by, seeds, turns
from tests.simulation.streams import Follower
from tests.simulation.world import Client, Request, World

LONG = 2000
SHORT = 110
# With a suspending engine.
SHORT_SUSPENDING = 500


def opener() -> Client:
    """Makes the collections and their indexes before the other clients begin."""
    counters = [{"_id": number, "n": 0, "loc": [number, 0]} for number in range(COUNTERS)]
    reply = yield Request({"insert": COUNTER_COLLECTION, "documents": counters})
    assert reply is not None and reply["ok"], reply
    specs = [{"key": {"loc": "2dsphere"}, "name": "loc"}, {"key": {"n": 1}, "name": "n"}]
    reply = yield Request({"createIndexes": COUNTER_COLLECTION, "indexes": specs})
    assert reply is not None and reply["ok"], reply
    spec = {"key": {"u": 1}, "name": "u_1", "unique": True, "sparse": True}
    reply = yield Request({"createIndexes": COLLECTION, "indexes": [spec]})
    assert reply is not None and reply["ok"], reply
    while True:
        yield Request({"ping": 1})


def simulate(seed: int, folder: Path, turns: int, suspends: bool = False) -> Stage:
    """One run. Whether storage fails in it, and whether the server crashes, depends on the seed."""
    elapsed = trio.testing.MockClock()
    with scheduled_by(seed):
        return trio.run(_simulate, seed, folder, turns, elapsed, suspends, clock=elapsed)


async def _simulate(seed: int, folder: Path, turns: int, elapsed: trio.testing.MockClock, suspends: bool) -> Stage:
    async with trio.open_nursery() as nursery:
        return await _simulate_in(nursery, seed, folder, turns, elapsed, suspends)


async def _simulate_in(
    nursery: trio.Nursery, seed: int, folder: Path, turns: int, elapsed: trio.testing.MockClock, suspends: bool
) -> Stage:
    generator = random.Random(seed)
    faulty = seed % 2 == 0
    world = World(generator, folder if seed % 3 else None, 0.01 if faulty else 0.0, elapsed, nursery, suspends)
    await trio.testing.wait_all_tasks_blocked()
    stage = Stage(world, faulty)
    world.engine.armed = False
    world.seat(opener())
    while not world.service.catalog.lookup("sim", COLLECTION) or world.seats[0].busy:
        world.step(world.seats[0])
        await trio.testing.wait_all_tasks_blocked()
    world.disk.note_durable()  # what the clients rely on is on disk
    for number in (1, 2, 3):
        world.seat(writer(stage, number))
    for client in (reader(stage), reader(stage), ttl_tuner(stage), index_tuner(stage), index_tuner(stage)):
        world.seat(client)
    for _ in range(3):
        world.seat(counter(stage))
    follower = Follower(world, faulty)
    world.seat(follower.follow())
    if seed % 5 < 2:
        world.seat(ddl_client(stage))
        world.seat(ddl_client(stage))
    world.engine.armed = True
    await world.run(turns)
    await world.settle()
    check_counters(stage)
    follower.check()
    stage.resumed = follower.resumed
    return stage


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds("1-3"))
def test_simulation(seed: int, tmp_path: Path) -> None:
    stage = simulate(seed, tmp_path, turns(LONG))
    # A simulation in which nothing happens proves nothing.
    world = stage.world
    assert stage.acknowledged > 30 and stage.durable > 5 and stage.read > 10 and stage.slow_builds > 0
    assert (world.failures > 0) == stage.faulty
    if world.folder is not None:
        assert world.crashes > 0 and world.disk.waits > 20
        assert world.reclaimed > 0 or stage.faulty


def count(seed: int, folder: Path, length: int, suspends: bool = False) -> "Counter[str]":
    stage = simulate(seed, folder, length, suspends)
    world = stage.world
    return Counter(
        acknowledged=stage.acknowledged,
        durable=stage.durable,
        read=stage.read,
        retried_after_crash=stage.retried_after_crash,
        slow_builds=stage.slow_builds,
        resumed=stage.resumed,
        crashes=world.crashes,
        power_cuts=world.power_cuts,
        disk_failures=world.disk_failures,
        failures=world.failures,
        left=sum(world.left.values()),
        midway=world.midway[False],
    )


@pytest.mark.slow
def test_short_simulations(tmp_path: Path) -> None:
    numbers = seeds(MANY)
    counts = run_seeds(count, numbers, tmp_path, turns(SHORT))
    print(dict(counts))
    check_happened(counts, numbers, count(1, tmp_path, SHORT), "retried_after_crash")


@pytest.mark.slow
def test_short_simulations_with_a_suspending_engine(tmp_path: Path) -> None:
    """Operations are left at calls of the engine, as if it were behind a network."""
    numbers = seeds(MANY_SUSPENDING)
    counts = run_seeds(partial(count, suspends=True), numbers, tmp_path, turns(SHORT_SUSPENDING))
    print(dict(counts))
    if len(numbers) == 1000:
        assert all(counts[what] for what in count(1, tmp_path, SHORT)), counts
