"""Follows the log of a store: wakes change streams when there is something to read, and keeps the log short.

    a stream waits ── every 10 ms, at each commit of this server ─► refresh ── new entries ─► who watches them is woken
    nobody waits   ── every 2 s, if something was written ────────► counts are added up, the oldest forms dropped

Entries of other servers are found in the same way as those of this one.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from mongottl.catalog.change_kinds import INSERT
from mongottl.errors import CommandError
from mongottl.exec.service.service import ServiceContext
from mongottl.oplog.change import LoggedChange
from mongottl.oplog.positioned import PositionedOplog
from mongottl.storage.errors import EngineUnavailable, WriteConflict

# Seconds between two looks while a stream waits.
_LOOK_EVERY_S: Final = 0.01
# Seconds between two attempts to keep the log short.
_TIDY_EVERY_S: Final = 2.0


class LogFollower:
    """run_operation: runs a function that may wait for the store."""

    def __init__(self, service: ServiceContext, run_operation: Callable[[Callable[[], bool]], Awaitable[bool]]) -> None:
        assert isinstance(service.oplog, PositionedOplog)
        self._service: Final = service
        self._oplog: Final = service.oplog
        self._run_operation: Final = run_operation
        self._woken = trio.Event()
        # Whether one has begun to wait that may have missed what was found before.
        self._has_new = False
        # What was found is before this number.
        self._seen = self._oplog.end
        self._nodes: Final = service.engine.shared_nodes
        # The position up to which the log was tidied.
        self._tidied = 0
        self._tidy_due_s = 0.0

    def wake(self) -> None:
        """Called when this server has written something, or one begins to wait."""
        self._woken.set()

    def note_waiting(self) -> None:
        self._has_new = True
        self._woken.set()

    async def run(self) -> None:
        cursors = self._service.cursors
        cursors.on_waiting = self.note_waiting
        self._service.hooks.wake_log_follower = self.wake
        while True:
            with trio.move_on_after(_LOOK_EVERY_S if cursors.has_waiting else _TIDY_EVERY_S):
                await self._woken.wait()
            self._woken = trio.Event()
            try:
                if cursors.has_waiting:
                    await self._run_operation(self._look)
                if self._service.monotonic_s() >= self._tidy_due_s:
                    await self._run_operation(self._tidy)
                    self._tidy_due_s = self._service.monotonic_s() + _TIDY_EVERY_S
                elif not cursors.has_waiting:
                    await trio.sleep(_LOOK_EVERY_S)  # at each commit there is nothing to do
            except (EngineUnavailable, WriteConflict):
                await trio.sleep(_TIDY_EVERY_S)  # until the store is back

    def _look(self) -> bool:
        oplog = self._oplog
        oplog.refresh()
        if self._has_new:
            self._has_new = False
            self._seen = oplog.end
            self._service.cursors.notify_all()
            return True
        number = self._seen
        while number < oplog.end and (number := oplog.seek(number)) < oplog.end:
            try:
                change = oplog.entry(number).change
            except CommandError:  # it was dropped meanwhile: each looks for itself
                self._service.cursors.notify_all()
            else:
                self._service.commit_log.notify(change)
                if self._nodes is not None:
                    self._wake_tailing(change)
            number += 1
        self._seen = max(self._seen, number)
        return True

    def _wake_tailing(self, change: LoggedChange) -> None:
        """Wakes the cursors at the end of a capped collection into which another server may have inserted."""
        if change.kind == INSERT:
            collection = self._service.catalog.stored_collection(change.database, change.collection)
            if collection is not None and collection.options.capped:
                self._service.cursors.notify_inserted(collection.number)

    def _tidy(self) -> bool:
        oplog = self._oplog
        log = oplog.log
        if self._nodes is not None:
            if not self._nodes.has_duties:
                return True
            log.measure()
        if log.position > self._tidied:
            oplog.refresh()
            log.count_up()
            self._tidied = log.horizon
            oplog.trim(self._service.clock.now_ms())
        return True
