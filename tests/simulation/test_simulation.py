"""Seeded simulations: several clients, step by step, while the clock jumps, storage fails, the server crashes and the
power is cut.

A seed is a test: `MONGOTTL_SIMULATION_SEEDS=700-710` runs those, `MONGOTTL_SIMULATION_SECONDS=600` as many fresh ones
as fit. What is expected is told in `clients.py`, what must hold at any time in `World.check_everything`.
"""

import os
import random
import time
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
from tests.simulation.world import Client, Request, World

TURNS = 2000


def seeds() -> list[int]:
    first, _, last = os.environ.get("MONGOTTL_SIMULATION_SEEDS", "1-6").partition("-")
    return list(range(int(first), int(last or first) + 1))


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


def simulate(seed: int, folder: Path, turns: int) -> Stage:
    """One run. Whether storage fails in it, and whether the server crashes, depends on the seed."""
    elapsed = trio.testing.MockClock()
    return trio.run(_simulate, seed, folder, turns, elapsed, clock=elapsed)


async def _simulate(seed: int, folder: Path, turns: int, elapsed: trio.testing.MockClock) -> Stage:
    async with trio.open_nursery() as nursery:
        return await _simulate_in(nursery, seed, folder, turns, elapsed)


async def _simulate_in(
    nursery: trio.Nursery, seed: int, folder: Path, turns: int, elapsed: trio.testing.MockClock
) -> Stage:
    generator = random.Random(seed)
    faulty = seed % 2 == 0
    world = World(generator, folder if seed % 3 else None, 0.01 if faulty else 0.0, elapsed, nursery)
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
    if seed % 5 < 2:
        world.seat(ddl_client(stage))
        world.seat(ddl_client(stage))
    world.engine.armed = True
    await world.run(turns)
    await world.settle()
    check_counters(stage)
    return stage


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds())
def test_simulation(seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}")
    stage = simulate(seed, tmp_path, TURNS)
    # A simulation in which nothing happens proves nothing.
    world = stage.world
    assert stage.acknowledged > 30 and stage.durable > 5 and stage.read > 10 and stage.slow_builds > 0
    assert (world.failures > 0) == stage.faulty
    if world.folder is not None:
        assert world.crashes > 0 and world.disk.waits > 20


@pytest.mark.slow
def test_campaign(tmp_path: Path) -> None:
    """As many seeds as fit the time; the seed of a failure is printed."""
    seconds = float(os.environ.get("MONGOTTL_SIMULATION_SECONDS", "0"))
    if not seconds:
        pytest.skip("MONGOTTL_SIMULATION_SECONDS is not set")
    deadline = time.monotonic() + seconds
    seed = int(os.environ.get("MONGOTTL_SIMULATION_FIRST", "1000"))
    while time.monotonic() < deadline:
        print(f"seed {seed}", flush=True)
        simulate(seed, tmp_path / str(seed), 3 * TURNS)
        seed += 1
