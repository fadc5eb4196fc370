"""Histories of many clients while the primary of their PostgreSQL is killed and its standby promoted: all is exact.

MONGOTTL_FAILOVERS=50 has fifty of them; by default one while the server goes on, and one beside which it is killed.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

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
