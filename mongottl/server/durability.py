"""Commits to disk: the flush every 100 ms, those that `j: true` waits for, and the upkeep of the engine's log.

    commits    1   2   3   4   5   6              numbered by the engine
    flush              └── 1 to 3 ──┘└─ 4 to 6 ─┘ a flush serves all commits that were made before it began

Who waits for a commit waits for the flush under way, and for one more if that has begun before the commit. So however
many wait, the disk is waited for at most twice.

Maintenance runs in a worker thread beside everything else. When the engine's log has grown long under steady writing,
the last part of it needs that no unit of work begins: commands that write, and the reaper, then wait between two steps,
while all that reads goes on. A unit that begins all the same is not held up and does no harm: the log ends later.
"""

from typing import Final

import trio

from mongottl.clock import Clock
from mongottl.server.log import Log
from mongottl.storage.interface import EngineUnavailable, StorageEngine

FLUSH_INTERVAL_S: Final = 0.1
FLUSH_RETRY_S: Final = 1.0
# Rows of dropped collections whose space is given back between two turns of others.
DROP_BATCH: Final = 1000


class Durability:
    """holds_writers: whether commands that write are to call `wait_until_writers_may_go` before they go on."""

    def __init__(self, engine: StorageEngine, clock: Clock, log: Log) -> None:
        self._engine = engine
        self._clock = clock
        self._log = log
        self.holds_writers = False
        self._written = trio.Event()
        self._flush_lock = trio.Lock()
        self._writers_may_go = trio.Event()

    def note_commit(self) -> None:
        """Has the next flush made within FLUSH_INTERVAL_S: a unit of work was committed."""
        self._written.set()

    async def flush(self) -> None:
        """Waits until all that was committed so far is on disk. EngineUnavailable if that cannot be had."""
        engine = self._engine
        wanted = engine.committed_number
        if engine.durable_number >= wanted:
            return
        async with self._flush_lock:
            # The flush that was waited for may have begun after the commit.
            if engine.durable_number < wanted:
                await trio.to_thread.run_sync(engine.flush)

    async def wait_until_writers_may_go(self) -> None:
        if self.holds_writers:
            await self._writers_may_go.wait()

    def release_writers(self) -> None:
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
                await self._tidy()
            except EngineUnavailable as error:
                if self._engine.failed:
                    self._log.error("storage", "Nothing is written any more; restart the server", error=str(error))
                    return
                # A full disk, for example: commands say so too, and go on to be answered.
                self._log.error("storage", "Cannot write to disk; it will be tried again", error=str(error))
                self._written.set()
                await trio.sleep(FLUSH_RETRY_S)

    async def _tidy(self) -> None:
        until_s = self._clock.monotonic_s() + FLUSH_INTERVAL_S
        while self._engine.drop_some(DROP_BATCH):
            await trio.lowlevel.checkpoint()
            if self._clock.monotonic_s() >= until_s:
                self._written.set()  # the rest in the next round: a large collection takes many
                break
        await self.flush()
        await self.maintain()

    async def maintain(self) -> None:
        """Does what maintenance is due; makes writers wait for the last part if the engine asks for it."""
        engine = self._engine
        if not engine.maintenance_due:
            return
        await trio.to_thread.run_sync(engine.maintain)
        if not engine.writers_should_wait:
            return
        self.holds_writers = True
        try:
            await trio.to_thread.run_sync(engine.maintain)
        finally:
            self.release_writers()
