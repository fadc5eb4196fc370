"""Seeded simulations of three nodes on one PostgreSQL: see `node_world.py` for what fails, `seeds.py` for the seeds."""

import os
import random
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests import postgres

if postgres.missing():
    pytest.skip(postgres.missing(), allow_module_level=True)

from mongottl.document.interrupt import set_undivided_guard
from tests.simulation.bank import (
    Bank,
    check_bank,
    index_builder,
    opening,
    plain_writer,
    snapshot_reader,
    transferrer,
)
from tests.simulation.clients import (
    COLLECTION,
    COUNTER_COLLECTION,
    COUNTERS,
    Stage,
    check_counters,
    counter,
    index_tuner,
    reader,
    ttl_tuner,
    writer,
)
from tests.simulation.node import PresentGuard
from tests.simulation.node_clients import (
    RETRIED,
    RETRIED_COUNTERS,
    RetriedCounts,
    SchemaClient,
    capper,
    clock_mover,
    retrier,
)
from tests.simulation.node_world import FAULTS, History, NodeWorld
from tests.simulation.seeds import run_seeds, scheduled_by, seeds, turns
from tests.simulation.store import SimulatedStore, simulated_sessions
from tests.simulation.streams import Follower

SHORT = 400
MANY = "1-3"
# Have failed: a collection of a transaction was dropped that others had dropped; a time of another server's clock was
# refused; a document was found by a key that another server had taken from it; a snapshot had the time of an older one.
FOUND = (47, 54, 90, 104)
# What the store is answered with that refuses a unit of work.
CONFLICT = 112


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    folder = postgres.Folder()
    cluster = postgres.start_cluster(folder.path)
    yield cluster.uri
    cluster.stop("immediate")
    folder.remove()


def simulate(seed: int, uri: str, turns: int) -> tuple["Counter[str]", History]:
    """One run: how often things happened in it, and its history."""
    elapsed = trio.testing.MockClock()
    store = SimulatedStore(uri, f"seed_{seed}_{os.getpid()}")
    try:
        with scheduled_by(seed), simulated_sessions():
            return trio.run(_simulate, seed, store, turns, elapsed, clock=elapsed)
    finally:
        set_undivided_guard(None)
        store.remove()


async def _simulate(
    seed: int, store: SimulatedStore, turns: int, elapsed: trio.testing.MockClock
) -> tuple["Counter[str]", History]:
    generator = random.Random(seed)
    chosen = tuple(fault for fault in FAULTS if generator.random() < 0.6)
    async with trio.open_nursery() as nursery:
        world = NodeWorld(generator, store, elapsed, nursery, chosen)
        set_undivided_guard(PresentGuard(world))
        await world.begin()
        counts = await (_documents, _schemas, _bank)[seed % 3](world, turns)
        world.end()
        counts.update(world.happened)
        return counts, world.history


async def _documents(world: NodeWorld, turns: int) -> "Counter[str]":
    scene: Any = world
    stage = Stage(scene, True, (CONFLICT,))
    retried = RetriedCounts(world)
    await _prepare(world)
    for number in (1, 2):
        world.seat(writer(stage, number))
    # Who changes what all nodes have to know holds the others up, so there are not all of them in each run.
    schemas = [SchemaClient(stage, number) for number in range(world.random.randrange(3))]
    follower = Follower(scene, True)
    clients = [reader(stage), reader(stage), counter(stage), retrier(retried), retrier(retried), follower.follow()]
    clients += [schema.run() for schema in schemas]
    clients += [
        client(stage) for client in (ttl_tuner, index_tuner, clock_mover, capper) if world.random.random() < 0.5
    ]
    for client in clients:
        world.seat(client)
    await world.run(turns)
    await world.settle()
    check_counters(stage)
    await _check_retried(world, retried)
    await _check_stores(world)
    follower.compare(await world.ask(follower.rest(), place=1))
    return Counter(
        acknowledged=stage.acknowledged,
        read=stage.read,
        resumed=follower.resumed,
        events=follower.events,
        retries=retried.retries,
        increments=sum(retried.acknowledged),
        changes=sum(schema.changes for schema in schemas),
        checks=sum(schema.checks for schema in schemas),
    )


async def _prepare(world: NodeWorld) -> None:
    counters = [{"_id": number, "n": 0, "loc": [number, 0]} for number in range(COUNTERS)]
    specs = [{"key": {"loc": "2dsphere"}, "name": "loc"}, {"key": {"n": 1}, "name": "n"}]
    unique = {"key": {"u": 1}, "name": "u_1", "unique": True, "sparse": True}
    for command in (
        {"insert": COUNTER_COLLECTION, "documents": counters},
        {"createIndexes": COUNTER_COLLECTION, "indexes": specs},
        {"createIndexes": COLLECTION, "indexes": [unique]},
        {"insert": RETRIED, "documents": [{"_id": number, "n": 0} for number in range(RETRIED_COUNTERS)]},
    ):
        reply = await world.ask(command)
        assert reply["ok"], reply


async def _check_retried(world: NodeWorld, retried: RetriedCounts) -> None:
    reply = await world.ask({"find": RETRIED, "sort": {"_id": 1}}, place=1)
    found = [document["n"] for document in reply["cursor"]["firstBatch"]]
    least = retried.acknowledged
    # Of each client one may be under way at the end, which is answered to nobody.
    assert all(n in (least[place], least[place] + 1, least[place] + 2) for place, n in enumerate(found)), (found, least)


async def _check_stores(world: NodeWorld) -> None:
    """All nodes know the same collections, and find the same in them, and nothing wrong."""
    known = [sorted(each.namespace for each in node.service.catalog.all_collections()) for node in world.nodes]
    assert known[0] == known[1] == known[2]
    for namespace in known[0]:
        database, _, name = namespace.partition(".")
        # A temporary one of a node that was killed may be dropped meanwhile.
        if database not in ("local", "config") and not name.startswith("tmp."):
            asked = [(node.place, database, {"validate": name, "full": True}) for node in world.nodes]
            replies = await world.ask_all(asked)
            assert all(reply["ok"] and reply["valid"] and not reply["errors"] for reply in replies), replies
            assert len({reply["nrecords"] for reply in replies}) == 1, replies


async def _schemas(world: NodeWorld, turns: int) -> "Counter[str]":
    """Only who changes what all nodes have to know, and asks all for it, while some of them do not go on."""
    world.faults = (*world.faults, "frozen")
    scene: Any = world
    stage = Stage(scene, True, (CONFLICT,))
    schemas = [SchemaClient(stage, number) for number in range(4)]
    for schema in schemas:
        world.seat(schema.run())
    await world.run(turns)
    await world.settle()
    await _check_stores(world)
    return Counter(changes=sum(schema.changes for schema in schemas), checks=sum(schema.checks for schema in schemas))


async def _bank(world: NodeWorld, turns: int) -> "Counter[str]":
    scene: Any = world
    bank = Bank(scene, True, has_nodes=True)
    for command in opening():
        reply = await world.ask(command)
        assert reply["ok"], reply
    follower = Follower(scene, True)
    clients = [transferrer(bank), transferrer(bank), transferrer(bank), plain_writer(bank), snapshot_reader(bank)]
    clients += [index_builder(bank)] if world.random.random() < 0.5 else []
    for client in [*clients, follower.follow()]:
        world.seat(client)
    await world.run(turns)
    await world.settle()
    check_bank(bank)
    await _check_stores(world)
    follower.compare(await world.ask(follower.rest(), place=1))
    return Counter(
        committed=len(bank.committed),
        aborted=len(bank.aborted),
        conflicts=bank.conflicts,
        waits=bank.waits,
        snapshots=bank.snapshots,
        repeated=bank.repeated,
        answered_after_crash=bank.answered_after_crash,
    )


def simulate_in_folder(seed: int, folder: Path, length: int, uri: str) -> "Counter[str]":
    return simulate(seed, uri, length)[0]


@pytest.mark.slow
def test_short_simulations(store: str, tmp_path: Path) -> None:
    numbers = seeds(MANY)
    if numbers == [1, 2, 3]:
        numbers += FOUND
    counts = run_seeds(partial(simulate_in_folder, uri=store), numbers, tmp_path, turns(SHORT))
    print(dict(counts))
    if len(numbers) >= 100:
        assert all(counts[what] for what in (*FAULTS, "acknowledged", "changes", "committed", "retries")), counts


@pytest.mark.slow
def test_a_seed_reproduces_a_run(store: str) -> None:
    """Seeds of documents and of transactions."""
    for seed in (2, 3):
        first, second = simulate(seed, store, 150), simulate(seed, store, 150)
        assert first == second
