"""Compaction: when unused space of the database file is given back to the system, and how much of it at a time.

    autoCompact      from its freeSpaceTargetMB on: all unused space, again and again, or once
    the setting      from `compact_free_percent` of the file on: until half of that percentage is left, so that the file
                     does not shrink and grow all the time

It is given back in steps of about two milliseconds, which the server takes between other operations. How many pages
that are depends on where they lie: 10 µs for one at the end of the file, 200 µs for one into which another has to move.
"""

from collections.abc import Callable
from typing import Final

from mongottl.clock import Clock
from mongottl.storage.interface import StorageEngine

# What `freeSpaceTargetMB` is by default, in MiB.
DEFAULT_TARGET_MB: Final = 20
# The setting leaves less unused space than this alone.
_LEAST_BYTES: Final = DEFAULT_TARGET_MB << 20
# Pages of one step, at most; the next ones may take twenty times as long. A step shorter than the one time doubles the
# number for the next, one longer than the other halves it.
_MOST_PAGES: Final = 32
_SHORT_STEP_S: Final = 0.001
_LONG_STEP_S: Final = 0.003


class Compaction:
    """The compaction of one server. wake: called when autoCompact was turned on.

    free_percent: the setting `compact_free_percent`; 0 if nothing is given back without a command.
    target_bytes, run_once: of autoCompact; target_bytes is 0 while it is off.
    """

    def __init__(self, engine: StorageEngine, clock: Clock, free_percent: int) -> None:
        self._engine = engine
        self._clock = clock
        self._free_percent = free_percent
        self._pages = _MOST_PAGES // 2
        # Whether space is being given back, and whether some of it is to be left.
        self._under_way = False
        self._keeps_some = False
        self.target_bytes = 0
        self.run_once = False
        self.wake: Callable[[], None] = _nothing

    def turn_on(self, target_bytes: int, run_once: bool) -> None:
        """autoCompact: true."""
        self.target_bytes = target_bytes
        self.run_once = run_once
        self._under_way = False
        self.wake()

    def turn_off(self) -> None:
        """autoCompact: false."""
        self.target_bytes = 0
        self.run_once = False
        self._under_way = False

    def is_due(self) -> bool:
        """Whether `take_step` should be called. Ends an autoCompact that was to run once when it has nothing to do."""
        if self._engine.must_rewrite:
            return False
        if not self._under_way:
            unused_bytes = self._engine.unused_bytes
            if self.target_bytes and unused_bytes >= self.target_bytes:
                self._under_way = True
                self._keeps_some = False
            elif self._is_sparse(unused_bytes):
                self._under_way = True
                self._keeps_some = True
            elif self.run_once:
                self.turn_off()
        return self._under_way

    def _is_sparse(self, unused_bytes: int) -> bool:
        """Whether the setting gives space back."""
        return (
            self._free_percent > 0
            and unused_bytes >= _LEAST_BYTES
            and 100 * unused_bytes > self._free_percent * self._engine.stored_bytes
        )

    def take_step(self) -> bool:
        """Gives some space back; False if there is enough of it, or if none can be given back at present."""
        engine = self._engine
        keep_bytes = 0
        if self._keeps_some:
            used_bytes = engine.stored_bytes - engine.unused_bytes
            keep_bytes = self._free_percent * used_bytes // (200 - self._free_percent)
        if self.reclaim(keep_bytes):
            return True
        self._under_way = False
        if self.run_once and engine.unused_bytes == 0:
            self.turn_off()
        return False

    def reclaim(self, keep_bytes: int = 0) -> int:
        """Gives back what takes about two milliseconds, until `keep_bytes` are left unused; how many bytes that were.
        Outside units of work."""
        started_s = self._clock.monotonic_s()
        given_bytes = self._engine.reclaim_some(self._pages, keep_bytes)
        took_s = self._clock.monotonic_s() - started_s
        if took_s > _LONG_STEP_S:
            self._pages = max(1, self._pages // 2)
        elif took_s < _SHORT_STEP_S:
            self._pages = min(_MOST_PAGES, 2 * self._pages)
        return given_bytes


def _nothing() -> None:
    return None
