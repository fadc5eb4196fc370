"""Histories of many clients while the primary of their PostgreSQL is killed and its standby promoted: all is exact.

MONGOTTL_FAILOVERS=50 has fifty of them; by default one while the server goes on, and one beside which it is killed.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pymongo
import pytest

import mongottl
from tests import postgres
from tests.drivers.storage.test_store_histories import SEED, Histories, World
from tests.histories import Moments
from tests.replicated import Replicated

pytestmark = pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing())


class FailingOver(World):
    """The server before a primary and its standby."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.moments = Moments()
        self.pair = Replicated()
        self.round = 0
        self._folder = folder
        self._starts = 0
        self.start()

    @property
    def store(self) -> str:
        return f"{self.pair.store}&schema=histories"

    def close(self) -> None:
        self.process.kill()
        self.pair.remove()

    def fail_over(self) -> None:
        self.pair.fail_over()

    def fail_over_and_kill_server(self) -> None:
        self.pair.kill_primary()
        self.kill()
        self.pair.promote()
        self.start()
        self.pair.add_standby()


ROUNDS: Final = int(os.environ.get("MONGOTTL_FAILOVERS", "2"))


def fault_of(world: FailingOver, number: int) -> Callable[[World], None]:
    fault = world.fail_over_and_kill_server if number % 2 else world.fail_over
    return lambda _: fault()


@pytest.mark.slow
def test_nothing_is_lost_or_done_twice_when_a_standby_is_promoted(tmp_path: Path) -> None:
    world = FailingOver(tmp_path, SEED)
    try:
        histories = Histories(world)
        try:
            for number in range(ROUNDS):
                histories.play(fault_of(world, number))
        finally:
            histories.close()
        histories.check()
        assert world.pair.promotions == ROUNDS
    finally:
        world.close()


def test_a_server_warns_of_a_primary_that_waits_for_no_standby() -> None:
    pair = Replicated()
    try:
        message = "A standby that takes the place of the primary may lack acknowledged writes"
        assert message not in warnings_of(pair.store)
        pair.execute("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
        assert message in warnings_of(pair.store)
        assert message not in warnings_of(f"postgresql://mongottl@/postgres?host={pair.primary.run_folder}")
    finally:
        pair.remove()


def warnings_of(store: str) -> str:
    """What shells show when they connect to a server that has just started."""
    with mongottl.start_server(store=store) as server, pymongo.MongoClient[dict[str, Any]](server.uri) as client:
        return "\n".join(client.admin.command("getLog", "startupWarnings")["log"])
