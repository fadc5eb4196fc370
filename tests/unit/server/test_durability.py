"""Flushes that many wait for, a disk that fails, and writers that wait for the end of a long log."""

import io
import os
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from mongottl.clock import SystemClock
from mongottl.exec.state.compaction import Compaction
from mongottl.server.durability import Durability
from mongottl.server.log import Log
from mongottl.storage.errors import EngineUnavailable
from mongottl.storage.sqlite.directory import open_data_directory
from mongottl.storage.sqlite.engine import SqliteEngine
from tests.waiting import PATIENCE_S


class Disk:
    """Stands for the system's waits for the disk: counts them, holds them up, or lets them fail.

    note: the file for which nobody waits, of what the flushes have made durable.
    """

    def __init__(self, note: Path) -> None:
        self._note = note
        self.waits = 0
        self.fails = False
        self._free = 0
        self._may_go = threading.Event()
        self._may_go.set()

    def sync(self, descriptor: int) -> None:
        if self._note.exists() and os.path.samestat(os.fstat(descriptor), self._note.stat()):
            return
        self.waits += 1
        assert self.waits <= self._free or self._may_go.wait(PATIENCE_S)
        if self.fails:
            raise OSError(5, "Input/output error")

    def hold(self, after: int = 0) -> None:
        """Holds up the waits behind so many, counted from the beginning."""
        self._free = after
        self._may_go.clear()

    def let_go(self) -> None:
        self._may_go.set()


class Setup:
    def __init__(self, directory: Path) -> None:
        self.disk = Disk(directory / "mongottl.durable")
        self.lines = io.StringIO()
        self.directory = directory
        self.engine = SqliteEngine(
            open_data_directory(str(directory)), checkpoint_bytes=100_000, long_log_bytes=400_000
        )
        self.durability = Durability(self.engine, SystemClock(), Log("text", False, self.lines))
        self.engine.set_commit_listener(self.durability.note_commit)

    def commit(self, size: int = 1) -> None:
        with self.engine.unit_of_work() as unit:
            self.engine.put_catalog_entry("key", bytes(size))
            unit.commit()

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(PATIENCE_S):
            while not condition():
                await trio.sleep(0.001)


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setup]:
    made = Setup(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", made.disk.sync)
        yield made
        made.disk.let_go()
    made.engine.close()


def run(main: Callable[[], Awaitable[None]]) -> None:
    trio.run(main)


def test_one_wait_for_the_disk_serves_all_commits_before_it(setup: Setup) -> None:
    async def main() -> None:
        done: list[int] = []

        async def write(number: int) -> None:
            setup.commit()
            await setup.durability.flush()
            done.append(number)

        setup.disk.hold()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, 0)
            await setup.until(lambda: setup.disk.waits == 1)
            for number in range(1, 50):
                nursery.start_soon(write, number)
            await setup.until(lambda: setup.engine.committed_number == 50)
            assert done == []
            setup.disk.let_go()
        assert sorted(done) == list(range(50))
        assert setup.disk.waits == 2
        await setup.durability.flush()
        assert setup.disk.waits == 2

    run(main)


def test_a_commit_waits_for_a_flush_that_began_after_it(setup: Setup) -> None:
    async def main() -> None:
        setup.commit()
        setup.disk.hold()
        finished = trio.Event()

        async def flush() -> None:
            await setup.durability.flush()
            finished.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(setup.durability.flush)  # as in the background
            await setup.until(lambda: setup.disk.waits == 1)
            setup.commit()
            nursery.start_soon(flush)
            await trio.testing.wait_all_tasks_blocked()
            assert not finished.is_set()
            assert setup.engine.durable_number < setup.engine.committed_number
            setup.disk.let_go()
        assert finished.is_set()
        assert setup.engine.durable_number == setup.engine.committed_number == 2

    run(main)


def test_after_a_failed_wait_for_the_disk_nothing_is_acknowledged(setup: Setup) -> None:
    async def main() -> None:
        setup.commit()
        setup.disk.fails = True
        with pytest.raises(EngineUnavailable, match="cannot be made durable"):
            await setup.durability.flush()
        setup.disk.fails = False  # the disk is well again, but what it has dropped stays lost
        with pytest.raises(EngineUnavailable, match="an earlier flush failed"):
            await setup.durability.flush()
        with pytest.raises(EngineUnavailable, match="an earlier flush failed"):
            setup.commit()
        with trio.fail_after(PATIENCE_S):
            await setup.durability.run()  # ends
        assert "A flush failed, writes are refused" in setup.lines.getvalue()

    run(main)


def test_writers_wait_for_all_calls_that_hold_them(setup: Setup) -> None:
    async def main() -> None:
        durability = setup.durability
        ends = [threading.Event(), threading.Event()]
        went: list[bool] = []

        async def write() -> None:
            await durability.wait_until_writers_may_go()
            went.append(all(end.is_set() for end in ends))

        async with trio.open_nursery() as nursery:
            for end in ends:
                nursery.start_soon(durability.run_without_writers, partial(_wait_for, end))
            await trio.testing.wait_all_tasks_blocked()
            assert durability.holds_writers
            nursery.start_soon(write)
            for end in ends:
                assert went == []
                end.set()
                await setup.until(lambda: durability._holds < 2)
                await trio.testing.wait_all_tasks_blocked()
        assert went == [True]
        assert not durability.holds_writers

    run(main)


def _wait_for(end: threading.Event) -> None:
    assert end.wait(PATIENCE_S)


def test_unused_space_is_given_back_between_flushes(setup: Setup) -> None:
    """Here by autoCompact; writers that are held get the file for themselves."""

    async def main() -> None:
        engine = setup.engine
        compaction = Compaction(engine, SystemClock(), 0)
        durability = Durability(engine, SystemClock(), Log("text", False, setup.lines), compaction=compaction)
        compaction.wake = durability.note_commit
        engine.set_commit_listener(durability.note_commit)
        setup.commit(3 << 20)
        setup.commit(1)
        unused = engine.unused_bytes
        assert unused > 2 << 20
        async with trio.open_nursery() as nursery:
            nursery.start_soon(durability.run)
            end = threading.Event()
            nursery.start_soon(durability.run_without_writers, partial(_wait_for, end))
            await trio.testing.wait_all_tasks_blocked()
            compaction.turn_on(1 << 20, False)
            flushes = engine.statistics()["flushes"]
            setup.commit(1)
            await setup.until(lambda: engine.statistics()["flushes"] > flushes)
            assert engine.unused_bytes == unused
            end.set()
            path = setup.directory / "mongottl.sqlite3"
            await setup.until(lambda: engine.unused_bytes == 0 and path.stat().st_size == engine.stored_bytes)
            nursery.cancel_scope.cancel()

    run(main)


def test_writers_wait_while_a_long_log_ends_and_nobody_else(setup: Setup) -> None:
    async def main() -> None:
        # A reader keeps the log from being copied to its end, as steady writing would.
        reader = sqlite3.connect(setup.directory / "mongottl.sqlite3", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM stores").fetchone()
        while not setup.engine.writers_should_wait:
            setup.commit(20_000)
        await setup.durability.wait_until_writers_may_go()
        waits = setup.disk.waits
        # The log and the database are waited for before writers are held, which shall then be brief.
        setup.disk.hold(after=waits + 2)
        written: list[int] = []

        async def write() -> None:
            await setup.durability.wait_until_writers_may_go()
            setup.commit()
            written.append(setup.disk.waits)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(setup.durability.maintain)
            await setup.until(lambda: setup.disk.waits > waits + 2)
            assert setup.durability.holds_writers
            nursery.start_soon(write)
            await trio.testing.wait_all_tasks_blocked()
            assert written == []
            setup.disk.let_go()
        assert len(written) == 1
        reader.close()
        await setup.durability.maintain()
        assert not setup.engine.writers_should_wait

    run(main)
