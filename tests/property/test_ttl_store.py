"""The TTL model on a store: its server ends and is killed, its PostgreSQL is restarted, and the clock stays moved.

MONGOTTL_STORE_ROUNDS=50 makes fifty runs.
"""

import os
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule
from pymongo import MongoClient

from tests import postgres
from tests.drivers.process.test_process import Process
from tests.postgres import OwnCluster
from tests.property.test_ttl_model import TTLMachine

pytestmark = pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing())

# Far in the future, in seconds since 1970: what is due by the model is never due by the machine's own time.
BEGIN_S = 4_000_000_000
RUNS = int(os.environ.get("MONGOTTL_STORE_ROUNDS", "4"))


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    StoreMachine.cluster = OwnCluster()
    yield
    StoreMachine.cluster.remove()


class StoreMachine(TTLMachine):
    cluster: ClassVar[OwnCluster]

    def __init__(self) -> None:
        self.store = f"{self.cluster.store}&schema=ttl_{uuid.uuid4().hex[:12]}"
        self.begun = False
        super().__init__()

    def start(self) -> None:
        options = ("--port", "0", "--store", self.store, "--enable-test-commands", "--freeze-clock")
        self.process = Process(self.folder / "log", *options)
        self.client: MongoClient[dict[str, Any]] = MongoClient(self.process.uri)
        self.collection = self.client["db"]["documents"]
        now = datetime.fromtimestamp(BEGIN_S + self.model.now_s, UTC)
        if self.begun:
            # A clock that was moved goes on where it was.
            assert self.client.admin.command("advanceClock", 0)["now"] == now.replace(tzinfo=None)
        else:
            self.client.admin.command("setClock", now)
            self.begun = True

    def stop(self) -> None:
        self.client.close()
        self.process.stop()
        self.end()

    def end(self) -> None:
        """Kills the server if it still runs."""
        self.client.close()
        self.process.kill()
        assert "Traceback" not in self.process.log.read_text()

    def move_clock(self, seconds: float) -> None:
        self.client.admin.command("advanceClock", seconds)

    @rule(killed=st.booleans(), restarts_cluster=st.booleans())
    def restart(self, killed: bool, restarts_cluster: bool) -> None:
        if killed:
            self.end()
        else:
            self.stop()
        if restarts_cluster:
            self.restart_cluster(fast=not killed)
        self.start()
        self.held = False
        self.readings = []
        self.model.purge()

    @rule(fast=st.booleans())
    def restart_cluster(self, fast: bool) -> None:
        """The server, and the cursors that are open, stay."""
        self.cluster.stop("fast" if fast else "immediate")
        self.cluster.start()


TestTTLOnStore = StoreMachine.TestCase
TestTTLOnStore.settings = settings(
    max_examples=RUNS, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
