"""The reaper: deletes expired documents when the timing wheel says that something is due.

    nothing is due in the wheel            ──►  sleep until the next due second, or until an earlier one is armed
    (second, collection) is due            ──►  purge that collection in bounded batches; other tasks run in between

The wheel is a cache of the expiry indexes, and is filled from them at start, in steps. Expired documents are invisible
before that is done, since readers ask the policy and not the wheel.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from mongottl.exec.service.service import ServiceContext
from mongottl.exec.write.expiry import reap_for_all, refill_wheel
from mongottl.server.driving import drive
from mongottl.server.durability import Durability
from mongottl.server.log import Log
from mongottl.storage.errors import CatalogChanged, DamagedRecord, DiskFull, EngineUnavailable, WriteConflict

# The machine's wall clock may be set, or go on while the machine is suspended, without notice. So while any document
# waits for its expiry, no sleep is longer than this, and documents that a jump of the clock makes due are deleted as
# soon as others.
MAX_SLEEP_S: Final = 1.0
RETRY_S: Final = 1.0
# The same after another server has changed the catalog.
_AGAIN_S: Final = 0.01


class Reaper:
    """The task that purges. `wake` must be called when an earlier second was armed or the clock was moved."""

    def __init__(self, service: ServiceContext, durability: Durability, log: Log) -> None:
        self._service = service
        self._durability = durability
        self._log = log
        self._wake = trio.Event()
        self._must_refill = False
        # Collection and record id of each damaged record that was logged.
        self._damaged: set[tuple[str, int]] = set()
        service.hooks.wake_reaper = self.wake
        service.hooks.log_damaged_record = self._log_damaged

    def wake(self) -> None:
        self._wake.set()

    def refill(self) -> None:
        """Makes `run` begin by filling the wheel from the expiry indexes."""
        self._must_refill = True

    async def _drive(self, work: Callable[[ServiceContext], object]) -> None:
        outcome = self._service.stacks.begin(partial(work, self._service))
        await drive(outcome, self._service.clock, self._durability)

    async def run(self) -> None:
        while True:
            self._wake = trio.Event()
            try:
                if self._must_refill:
                    await self._drive(refill_wheel)
                    self._must_refill = False
                await self._drive(reap_for_all)
            except DiskFull:
                self._durability.note_full_disk()
                await self._rest()
                continue
            except CatalogChanged:
                await trio.sleep(_AGAIN_S)  # what is due is found anew, in the collections that there are now
                continue
            except (EngineUnavailable, WriteConflict) as error:
                if self._service.engine.failed:
                    self._log.error(
                        "ttl",
                        "TTL deletion has stopped: the storage engine failed",
                        error=str(error),
                    )
                    await trio.sleep_forever()
                self._log.error("ttl", "TTL deletion failed; the server will try again", error=str(error))
                await self._rest()
                continue
            except Exception as error:
                self._log.exception("ttl", "TTL deletion failed; the server will try again", error)
                await self._rest()
                continue
            with trio.move_on_after(self._sleep_s()):
                await self._wake.wait()
            await self._pause()

    def _log_damaged(self, error: DamagedRecord) -> None:
        if (error.ident, error.record_id) not in self._damaged:
            self._damaged.add((error.ident, error.record_id))
            named = self._service.catalog.with_namespace(error)
            self._log.error("ttl", "TTL deletion leaves out a damaged record", ns=named.ident, error=str(named))

    async def _pause(self) -> None:
        """Waits until ttlMonitorSleepSecs have passed since the last deletion, and while fsync holds a lock."""
        passed_s = 1
        while passed_s < self._service.expiry.sleep_s or self._service.fsync_locks:
            await trio.sleep(1.0)
            passed_s += 1

    async def _rest(self) -> None:
        await trio.sleep(RETRY_S)

    def _sleep_s(self) -> float:
        service = self._service
        due_s = service.expiry.wheel.next_due_s()
        is_shared = service.engine.shared_nodes is not None
        wait_s = math.inf
        if service.expiry.left_to:
            wait_s = MAX_SLEEP_S  # its end wakes the reaper
        elif due_s is not None and service.expiry.is_enabled:
            wait_s = service.clock.wait_s(due_s * 1000)
        # A frozen clock can be moved only by a command, which wakes the reaper. Other servers may end, and leave what
        # they have written.
        return wait_s if wait_s == math.inf and not is_shared else min(wait_s, MAX_SLEEP_S)
