"""What steps wait for is done, and errors reach them, though no client has sent the command."""

import io
import threading
from collections.abc import Callable
from pathlib import Path

import trio
import trio.testing

from mongottl.clock import SystemClock
from mongottl.exec.running.signal import Signal
from mongottl.exec.running.stack import Stacks, StepTimes
from mongottl.exec.running.steps import Aside, Wait
from mongottl.server.driving import drive, perform
from mongottl.server.durability import Durability
from mongottl.server.log import Log
from mongottl.storage.errors import EngineUnavailable
from mongottl.storage.interface import StorageEngine
from mongottl.storage.opening import open_engine
from mongottl.storage.sqlite.directory import open_data_directory
from mongottl.storage.sqlite.engine import SqliteEngine
from tests.waiting import PATIENCE_S

CLOCK = SystemClock()


def durability_of(engine: StorageEngine) -> Durability:
    return Durability(engine, CLOCK, Log(stream=io.StringIO()))


def new_stacks() -> Stacks:
    return Stacks(CLOCK.monotonic_s, StepTimes(together_s=0.0))


def driven(work: Callable[[Stacks], str], durability: Durability | None = None) -> str:
    stacks = new_stacks()
    outcome = stacks.begin(lambda: work(stacks))

    async def main() -> str:
        with trio.fail_after(PATIENCE_S):
            return await drive(outcome, CLOCK, durability or durability_of(open_engine("memory:")))

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_signal_ends_a_wait() -> None:
    signal = Signal()

    def work(stacks: Stacks) -> str:
        stacks.wait(Wait(0))
        stacks.in_thread(lambda: trio.from_thread.run_sync(signal.notify))
        stacks.wait(Wait(float("inf"), signal))
        return "woken"

    assert driven(work) == "woken"


def test_another_task_may_notify_the_signal() -> None:
    signal = Signal()

    stacks = new_stacks()
    waiting = stacks.begin(lambda: stacks.wait(Wait(float("inf"), signal)))

    async def main() -> None:
        engine = open_engine("memory:")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drive, waiting, CLOCK, durability_of(engine))
            await trio.testing.wait_all_tasks_blocked()
            signal.notify()

    trio.run(main)


def test_a_flush_that_fails_is_the_error_of_the_operation(tmp_path: Path) -> None:
    async def fail(call: Callable[[], None]) -> None:
        raise EngineUnavailable("the disk is full")

    engine = SqliteEngine(open_data_directory(str(tmp_path)))
    with engine.unit_of_work() as unit:
        engine.put_catalog_entry("key", b"")
        unit.commit()

    def work(stacks: Stacks) -> str:
        try:
            stacks.flush()
        except EngineUnavailable as error:
            return str(error)
        return "flushed"

    assert driven(work, Durability(engine, CLOCK, Log(stream=io.StringIO()), fail)) == "the disk is full"
    assert driven(work, durability_of(engine)) == "flushed"
    engine.close()


def test_other_tasks_run_in_between() -> None:
    done: list[str] = []

    def work() -> str:
        until_s = CLOCK.monotonic_s() + 30
        while not done and CLOCK.monotonic_s() < until_s:
            stacks.give_way()
        return done[0]

    async def other() -> None:
        done.append("other")

    stacks = new_stacks()
    outcome = stacks.begin(work)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            assert await drive(outcome, CLOCK, durability_of(open_engine("memory:"))) == "other"

    trio.run(main)


def test_functions_are_called_aside_one_after_another() -> None:
    """They would take the processor from the thread that answers, and memory, however many clients ask for them."""
    begun = threading.Semaphore(0)
    may_end = threading.Event()

    def function() -> None:
        begun.release()
        may_end.wait(PATIENCE_S)

    async def main() -> None:
        durability = durability_of(open_engine("memory:"))
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                for _ in range(8):
                    nursery.start_soon(perform, Aside(function), durability)
                await trio.to_thread.run_sync(begun.acquire)
                await trio.testing.wait_all_tasks_blocked()
                assert not begun.acquire(blocking=False)
                may_end.set()

    trio.run(main)
    for _ in range(7):
        assert begun.acquire(blocking=False)
