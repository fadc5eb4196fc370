"""Seeded simulations of transactions: see `bank.py`.

Options as those of `test_simulation.py`: `MONGOTTL_SIMULATION_SEEDS=700-710`, `MONGOTTL_SIMULATION_SECONDS=600`.
"""

import os
import random
import time
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.simulation.bank import (
    Bank,
    check_bank,
    index_builder,
    opening,
    plain_writer,
    snapshot_reader,
    transferrer,
)
from tests.simulation.test_simulation import seeds
from tests.simulation.world import Client, Request, World

TURNS = 2500


def opener() -> Client:
    for command in opening():
        reply = yield Request(command)
        assert reply is not None and reply["ok"], reply
    while True:
        yield Request({"ping": 1})


def simulate(seed: int, folder: Path, turns: int) -> Bank:
    """One run. Whether storage fails in it, and whether the server crashes, depends on the seed."""
    elapsed = trio.testing.MockClock()
    return trio.run(_simulate, seed, folder, turns, elapsed, clock=elapsed)


async def _simulate(seed: int, folder: Path, turns: int, elapsed: trio.testing.MockClock) -> Bank:
    async with trio.open_nursery() as nursery:
        faulty = seed % 2 == 0
        world = World(random.Random(seed), folder if seed % 3 else None, 0.003 if faulty else 0.0, elapsed, nursery)
        await trio.testing.wait_all_tasks_blocked()
        bank = Bank(world, faulty)
        world.engine.armed = False
        world.seat(opener())
        for _ in range(100):
            world.step(world.seats[0])
            await trio.testing.wait_all_tasks_blocked()
        world.disk.note_durable()  # what the clients rely on is on disk
        clients = [transferrer(bank) for _ in range(4)] + [plain_writer(bank) for _ in range(2)]
        for client in (*clients, snapshot_reader(bank), snapshot_reader(bank), index_builder(bank)):
            world.seat(client)
        world.engine.armed = True
        await world.run(turns)
        await world.settle()
        check_bank(bank)
        return bank


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds())
def test_transactions(seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}")
    bank = simulate(seed, tmp_path, TURNS)
    # A simulation in which nothing happens proves nothing.
    assert len(bank.committed) > 2 and len(bank.aborted) > 10 and bank.conflicts > 3 and bank.waits > 3
    assert bank.snapshots > 2 and bank.plain
    if bank.world.folder is not None:
        assert bank.world.crashes > 0


@pytest.mark.slow
def test_a_seed_reproduces_a_run(tmp_path: Path) -> None:
    first, second = (simulate(5, tmp_path / name, 600) for name in ("first", "second"))
    assert (first.committed, first.aborted, first.plain) == (second.committed, second.aborted, second.plain)


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
