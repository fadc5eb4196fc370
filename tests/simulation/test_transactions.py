"""Seeded simulations of transactions: see `bank.py`, and `seeds.py` for how to choose the seeds."""

import random
from collections import Counter
from functools import partial
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
from tests.simulation.seeds import MANY, MANY_SUSPENDING, check_happened, run_seeds, scheduled_by, seeds, turns
from tests.simulation.streams import Follower
from tests.simulation.world import Client, Request, World

LONG = 4500
SHORT = 150
# With a suspending engine.
SHORT_SUSPENDING = 500


def opener() -> Client:
    for command in opening():
        reply = yield Request(command)
        assert reply is not None and reply["ok"], reply
    while True:
        yield Request({"ping": 1})


def simulate(seed: int, folder: Path, turns: int, suspends: bool = False) -> Bank:
    """One run. Whether storage fails in it, and whether the server crashes, depends on the seed."""
    elapsed = trio.testing.MockClock()
    with scheduled_by(seed):
        return trio.run(_simulate, seed, folder, turns, elapsed, suspends, clock=elapsed)


async def _simulate(seed: int, folder: Path, turns: int, elapsed: trio.testing.MockClock, suspends: bool) -> Bank:
    async with trio.open_nursery() as nursery:
        faulty = seed % 2 == 0
        world = World(
            random.Random(seed), folder if seed % 3 else None, 0.003 if faulty else 0.0, elapsed, nursery, suspends
        )
        await trio.testing.wait_all_tasks_blocked()
        bank = Bank(world, faulty)
        world.engine.armed = False
        world.seat(opener())
        for _ in range(100):
            world.step(world.seats[0])
            await trio.testing.wait_all_tasks_blocked()
        world.disk.note_durable()  # what the clients rely on is on disk
        # From few that hinder each other little, and commit most of their transactions, to many.
        crowd = seed % 4
        clients = [transferrer(bank) for _ in range(1 + crowd)] + [plain_writer(bank) for _ in range(1 + seed % 2)]
        follower = Follower(world, faulty)
        clients += [snapshot_reader(bank), index_builder(bank), follower.follow()]
        for client in clients:
            world.seat(client)
        world.engine.armed = True
        await world.run(turns)
        await world.settle()
        check_bank(bank)
        follower.check()
        bank.resumed = follower.resumed
        return bank


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds("1-3"))
def test_transactions(seed: int, tmp_path: Path) -> None:
    bank = simulate(seed, tmp_path, turns(LONG))
    # A simulation in which nothing happens proves nothing.
    assert len(bank.committed) > 2 and len(bank.aborted) > 10 and bank.conflicts > 3 and bank.waits > 3
    assert bank.snapshots > 2 and bank.plain
    if bank.world.folder is not None:
        assert bank.world.crashes > 0


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "suspends"), [(5, False), (5, True), (9, False)])
def test_a_seed_reproduces_a_run(seed: int, suspends: bool, tmp_path: Path) -> None:
    first, second = (simulate(seed, tmp_path / name, 600, suspends) for name in ("first", "second"))
    assert first.world.left == second.world.left and bool(first.world.left) == suspends
    assert (first.committed, first.aborted, first.plain) == (second.committed, second.aborted, second.plain)


def count(seed: int, folder: Path, length: int, suspends: bool = False) -> "Counter[str]":
    bank = simulate(seed, folder, length, suspends)
    return Counter(
        committed=len(bank.committed),
        aborted=len(bank.aborted),
        conflicts=bank.conflicts,
        waits=bank.waits,
        snapshots=bank.snapshots,
        created=bank.created,
        repeated=bank.repeated,
        answered_after_crash=bank.answered_after_crash,
        resumed=bank.resumed,
        crashes=bank.world.crashes,
        power_cuts=bank.world.power_cuts,
        left=sum(bank.world.left.values()),
        midway=bank.world.midway[False],
        midway_in_transactions=bank.world.midway[True],
        apart=bank.world.apart,
    )


@pytest.mark.slow
def test_short_simulations(tmp_path: Path) -> None:
    numbers = seeds(MANY)
    counts = run_seeds(count, numbers, tmp_path, turns(SHORT))
    print(dict(counts))
    check_happened(counts, numbers, count(1, tmp_path, SHORT), "created")


@pytest.mark.slow
def test_short_simulations_with_a_suspending_engine(tmp_path: Path) -> None:
    """Operations are left at calls of the engine, as if it were behind a network."""
    numbers = seeds(MANY_SUSPENDING)
    counts = run_seeds(partial(count, suspends=True), numbers, tmp_path, turns(SHORT_SUSPENDING))
    print(dict(counts))
    if len(numbers) == 1000:
        assert all(counts[what] for what in count(1, tmp_path, SHORT)), counts
