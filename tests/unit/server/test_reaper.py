"""The reaper where deleting fails: it says so, and tries again while that can help."""

import io
from collections.abc import Callable, Iterator
from typing import Any

import bson
import pytest
import trio
import trio.testing

from mongottl.clock import VirtualClock
from mongottl.config import ServerConfig
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.service.service import ServiceContext
from mongottl.server.dispatch import Dispatcher
from mongottl.server.durability import Durability
from mongottl.server.log import Log
from mongottl.server.reaper import RETRY_S, Reaper
from mongottl.storage.contract import ContractEngine
from mongottl.storage.errors import DiskFull, EngineUnavailable, WriteConflict
from mongottl.storage.opening import open_engine
from mongottl.wire.messages import OpMsg
from tests.steps import run_to_end

COUNT = 10


class Failing(ContractEngine):
    """An engine whose `method` fails with `error`, so many `times`. broken: whether it says that it has failed."""

    method = "unit_of_work"
    error: Exception = EngineUnavailable("simulated")
    times = 0
    broken = False

    def require_open(self, method: str) -> None:
        super().require_open(method)
        if self.times and method == self.method:
            self.times -= 1
            raise self.error

    @property
    def failed(self) -> bool:
        return self.broken


class Setup:
    """A collection `c` with documents that are due, a reaper, and what it logs."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.clock.freeze()
        self.engine = Failing(open_engine("memory:"))
        self.service = ServiceContext(ServerConfig(), self.clock, self.engine)
        self.log = io.StringIO()
        log = Log(stream=self.log)
        self.dispatcher = Dispatcher(self.service, log)
        self.reaper = Reaper(self.service, Durability(self.engine, self.clock, log), log)
        index = {"key": {"_ts": 1}, "name": "ttl", "expireAfterSeconds": 10}
        self.run({"createIndexes": "c", "indexes": [index]})
        self.run({"insert": "c", "documents": [{"_id": n} for n in range(COUNT)]})
        self.clock.advance(10)

    def run(self, command: dict[str, Any]) -> None:
        outcome = self.dispatcher.handle(
            OpMsg(1, 0, 0, bson.encode({**command, "$db": "test"}), []), ClientInfo(1, "127.0.0.1:1", "127.0.0.1:2")
        )
        assert bson.decode(outcome if isinstance(outcome, bytes) else run_to_end(outcome))["ok"] == 1

    def left(self) -> int:
        collection = self.service.catalog.lookup("test", "c")
        assert collection is not None
        return collection.store.count()

    def reap(self, seconds: float, then: Callable[[], None] = lambda: None) -> None:
        """Runs the reaper for that long by trio's clock, which nobody waits for. then: called before that is over."""

        async def main() -> None:
            with trio.move_on_after(seconds):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.reaper.run)
                    await trio.sleep(seconds / 2)
                    then()

        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.fixture
def setup() -> Iterator[Setup]:
    made = Setup()
    yield made
    made.engine.times = 0
    made.engine.close()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (WriteConflict("simulated"), "TTL deletion failed; the server will try again"),
        (EngineUnavailable("simulated"), "TTL deletion failed; the server will try again"),
        (ValueError("simulated"), "TTL deletion failed; the server will try again"),
        (DiskFull("simulated"), "The disk is full"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_reaper_tries_again_after_a_failure(setup: Setup, error: Exception, said: str) -> None:
    setup.engine.error = error
    setup.engine.times = 5
    left: list[int] = []
    setup.reap(RETRY_S, lambda: left.append(setup.left()))
    assert left == [COUNT]
    setup.reap(20 * RETRY_S)
    assert (setup.engine.times, setup.left()) == (0, 0)
    assert said in setup.log.getvalue()


def test_reaper_fills_the_wheel_from_the_beginning_after_a_failure(setup: Setup) -> None:
    """Nothing would be deleted by what was armed before the failure."""
    collection = setup.service.catalog.lookup("test", "c")
    assert collection is not None
    setup.service.expiry.wheel.disarm_all(collection.number)
    setup.engine.method = "due_seconds"
    setup.engine.error = ValueError("simulated")
    setup.engine.times = 2
    setup.reaper.refill()
    setup.reap(20 * RETRY_S)
    assert (setup.engine.times, setup.left()) == (0, 0)


def test_reaper_stops_when_the_engine_has_failed(setup: Setup) -> None:
    """Nothing is written any more, so it says so once, and tries nothing else."""
    setup.engine.times = 1000
    setup.engine.broken = True
    setup.reap(100 * RETRY_S)
    assert (setup.engine.times, setup.left()) == (999, COUNT)
    assert setup.log.getvalue().count("TTL deletion has stopped: the storage engine failed") == 1
