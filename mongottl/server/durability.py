"""Flushes commits to disk, every 100 ms and for `j: true`, and maintains the engine's log.

    commits    1   2   3   4   5   6              numbered by the engine
    flush              └── 1 to 3 ──┘└─ 4 to 6 ─┘ a flush serves all commits that were made before it began

An operation that waits for its commit waits for the present flush, and for one more if the present one began before the
commit: at most two, however many operations wait.

Maintenance runs in a worker thread, beside everything else. When the engine's log has grown long under steady writing,
the last part of maintenance requires that no unit of work begins: the commands that write, and the reaper, then wait
between two steps, while reads continue. A unit that begins nevertheless does not wait; the log is then ended later.

Unused space of the database file is given back in short steps, in a fifth of the time at most (`Compaction`).

A full disk is logged once, and maintenance then repeated every second until there is room again, which is logged too.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from mongottl.clock import Clock
from mongottl.exec.state.compaction import Compaction
from mongottl.exec.state.usage import Latency
from mongottl.server.log import Log
from mongottl.storage.errors import DiskFull, EngineUnavailable, WriteConflict
from mongottl.storage.interface import StorageEngine

FLUSH_INTERVAL_S: Final = 0.1
FLUSH_RETRY_S: Final = 1.0
# A disk that is full again and again, by writes of which each needs more than there is, is logged no more often.
FULL_DISK_LOG_S: Final = 60.0
# Rows of dropped collections whose space is freed before other tasks run.
DROP_BATCH: Final = 1000
# For how long unused space is given back between two flushes.
RECLAIM_S: Final = FLUSH_INTERVAL_S / 5
_MICROS_PER_S: Final = 1_000_000


# Makes a call that waits for the disk, and waits for its end while other tasks run.
RunBlocking = Callable[[Callable[[], None]], Awaitable[None]]


# Makes a call of the engine, as an operation if that may have to wait: what it returns.
RunOperation = Callable[[Callable[[], bool]], Awaitable[bool]]


async def _run_here(call: Callable[[], bool]) -> bool:
    return call()


async def _run_in_thread(call: Callable[[], None]) -> None:
    await trio.to_thread.run_sync(call)


class Durability:
    """Flushes and maintenance of one engine.

    holds_writers: whether commands that write must call `wait_until_writers_may_go` before their next step.
    flush_times: of all flushes so far.
    run_blocking: makes the engine's calls that wait for the disk; by default in a worker thread.
    compaction: says when unused space is given back; without it, none is.
    """

    def __init__(
        self,
        engine: StorageEngine,
        clock: Clock,
        log: Log,
        run_blocking: RunBlocking = _run_in_thread,
        compaction: Compaction | None = None,
    ) -> None:
        self._compaction = compaction
        self._run_blocking = run_blocking
        self._engine = engine
        self._clock = clock
        self._log = log
        self.holds_writers = False
        # How many calls hold them.
        self._holds = 0
        self.flush_times = Latency()
        self._written = trio.Event()
        # How a call of the engine is made that may wait for a store over a network.
        self.run_operation: RunOperation = _run_here
        # Whether the log says that the disk is full, and since when.
        self._full_logged = False
        self._full_logged_s = -FULL_DISK_LOG_S
        self._flush_lock = trio.Lock()
        self._writers_may_go = trio.Event()

    def note_commit(self) -> None:
        """To be called after each commit: the next flush then begins within FLUSH_INTERVAL_S."""
        self._written.set()

    def note_full_disk(self) -> None:
        """To be called when a write has found no room: logs it, and has maintenance make room."""
        now_s = self._clock.monotonic_s()
        if not self._full_logged and now_s - self._full_logged_s >= FULL_DISK_LOG_S:
            self._full_logged = True
            self._full_logged_s = now_s
            self._log.error("storage", "The disk is full: only what deletes is written until there is room")
        self._written.set()

    async def flush(self) -> None:
        """Waits until all commits so far are on disk. EngineUnavailable if the flush fails."""
        engine = self._engine
        wanted = engine.committed_number
        if engine.durable_number >= wanted:
            return
        async with self._flush_lock:
            # The flush for which this one waited may have begun after the commit.
            if engine.durable_number < wanted:
                started_s = self._clock.monotonic_s()
                await self._run_blocking(engine.flush)
                self.flush_times.add(int((self._clock.monotonic_s() - started_s) * _MICROS_PER_S))

    async def wait_until_writers_may_go(self) -> None:
        if self.holds_writers:
            await self._writers_may_go.wait()

    def _hold_writers(self) -> None:
        self._holds += 1
        self.holds_writers = True

    def release_writers(self) -> None:
        self._holds = max(0, self._holds - 1)
        if self._holds:
            return
        self.holds_writers = False
        self._writers_may_go.set()
        self._writers_may_go = trio.Event()

    async def run(self) -> None:
        """Flushes and maintains for as long as the server runs; ends if the engine fails."""
        while True:
            await self._written.wait()
            await trio.sleep(FLUSH_INTERVAL_S)
            self._written = trio.Event()
            try:
                await self._flush_and_maintain()
            except DiskFull:
                self.note_full_disk()
                await trio.sleep(FLUSH_RETRY_S)
            except WriteConflict:  # another server still holds what is to be freed
                self._written.set()
                await trio.sleep(FLUSH_RETRY_S)
            except EngineUnavailable as error:
                if self._engine.failed:
                    self._log.error(
                        "storage", "A flush failed, writes are refused; restart the server", error=str(error)
                    )
                    return
                # Commands that write answer with the error, too.
                self._log.error("storage", "Cannot write to disk; the server will try again", error=str(error))
                self._written.set()
                await trio.sleep(FLUSH_RETRY_S)
            else:
                await self._watch_full_disk()

    async def _watch_full_disk(self) -> None:
        """Has maintenance repeated while the disk is full, and logs its end."""
        try:
            self._engine.require_room()
        except EngineUnavailable:
            self.note_full_disk()
            await trio.sleep(FLUSH_RETRY_S)
            return
        if self._full_logged:
            self._full_logged = False
            self._log.warning("storage", "There is room on the disk again")

    async def run_without_writers(self, call: Callable[[], None]) -> None:
        """Makes a call in a worker thread, during which commands that write wait before their next step."""
        self._hold_writers()
        try:
            await self._run_blocking(call)
        finally:
            self.release_writers()
            self._written.set()  # for maintenance, and what was put off

    async def _flush_and_maintain(self) -> None:
        until_s = self._clock.monotonic_s() + FLUSH_INTERVAL_S
        while not self.holds_writers and await self.run_operation(partial(self._engine.drop_some, DROP_BATCH)):
            await trio.lowlevel.checkpoint()
            if self._clock.monotonic_s() >= until_s:
                self._written.set()  # the rest in the next round; a large collection takes many rounds
                break
        else:
            await self._reclaim()
        await self.flush()
        await self.maintain()

    async def _reclaim(self) -> None:
        """Gives unused space back for as long as one round may; each step is a commit, which begins the next round."""
        compaction = self._compaction
        until_s = self._clock.monotonic_s() + RECLAIM_S
        while (
            compaction is not None
            and not self.holds_writers
            and not self._engine.maintenance_due
            and compaction.is_due()
            and compaction.take_step()
        ):
            await trio.lowlevel.checkpoint()
            if self._clock.monotonic_s() >= until_s:
                break

    async def maintain(self) -> None:
        """Runs the engine's maintenance, if it is due, and makes writers wait for its last part if the engine asks."""
        engine = self._engine
        if not engine.maintenance_due:
            return
        await self._run_blocking(engine.maintain)
        if not engine.writers_should_wait:
            return
        self._hold_writers()
        try:
            await self._run_blocking(engine.maintain)
        finally:
            self.release_writers()
