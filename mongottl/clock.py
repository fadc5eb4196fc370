"""The only module that reads time.

There are two kinds of time. Wall time (`now_ms`) dates documents, ObjectIds and expiry; it may jump in both directions.
Elapsed time (`monotonic_s`) measures slices, time limits and latency; it only moves forward, at real speed, whatever
happens to the wall clock.

    wall       ──────►─────┐advance(+30 days)       ┌──────►   continues from where it stopped
                           └·····►────┤freeze(True) │freeze(False)
    elapsed    ──────►───────────►────────────►─────────────►

An operation reads `now_ms` once and passes that value on, so few modules need this one. It depends on no other part of
the package.
"""

import math
import threading
import time
from abc import ABC, abstractmethod
from typing import Final

# Wall clocks stay within what a 64-bit date and Python's `datetime` can both name: 1970-01-01 to the end of year 9999.
MIN_WALL_MS: Final = 0
MAX_WALL_MS: Final = 253_402_300_799_999


class Clock(ABC):
    """A source of wall time and elapsed time."""

    @abstractmethod
    def now_ms(self) -> int:
        """Wall time in whole milliseconds since 1970-01-01T00:00:00Z, rounded down."""

    @abstractmethod
    def monotonic_s(self) -> float:
        """Elapsed time in seconds since an arbitrary instant; never decreases."""

    def wait_s(self, at_ms: int) -> float:
        """Seconds of elapsed time until `now_ms()` reaches `at_ms` if the clock is not moved; 0.0 if it has.

        `math.inf` when the clock stands still before that instant: then only moving it can make the instant come.
        """
        return max(0, at_ms - self.now_ms()) / 1000


class SystemClock(Clock):
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        # Not time.monotonic(), whose steps are 15 ms on some systems.
        return time.perf_counter()


class VirtualClock(Clock):
    """A clock over another one (the machine's by default) whose wall time tests may move, set and stop.

    Unless frozen it runs at an offset to the other clock. Elapsed time is that of the other clock. The caller of a
    method that changes wall time must wake the tasks that sleep until a wall time. Any thread may call any method.
    """

    def __init__(self, base: Clock | None = None) -> None:
        self._base: Final[Clock] = SystemClock() if base is None else base
        self._offset_ms = 0
        self._frozen_at_ms: int | None = None
        self._lock: Final = threading.Lock()  # For changes only; see `_place`.

    def now_ms(self) -> int:
        return self._wall_ms(self._base.now_ms())

    def monotonic_s(self) -> float:
        return self._base.monotonic_s()

    def wait_s(self, at_ms: int) -> float:
        frozen_at_ms = self._frozen_at_ms
        if frozen_at_ms is None:
            return super().wait_s(at_ms)
        return 0.0 if frozen_at_ms >= at_ms else math.inf

    @property
    def frozen(self) -> bool:
        """Whether wall time stands still."""
        return self._frozen_at_ms is not None

    def advance(self, seconds: float) -> int:
        """Moves wall time by `seconds`, backwards if negative, frozen or not; the new wall time in ms.

        Counted in whole milliseconds, the nearest one. ValueError if the result would lie before 1970 or after the year
        9999, or if `seconds` is not finite; the clock is then left as it was.
        """
        step = seconds * 1000
        if not math.isfinite(step):
            raise ValueError(f"a clock cannot be moved by {seconds} seconds")
        step_ms = round(step)
        with self._lock:
            base_ms = self._base.now_ms()
            return self._place(self._wall_ms(base_ms) + step_ms, base_ms)

    def set_wall(self, now_ms: int) -> int:
        """Sets wall time, in ms since the epoch; a frozen clock stays frozen. ValueError as for `advance`."""
        with self._lock:
            return self._place(now_ms, self._base.now_ms())

    def freeze(self, frozen: bool = True) -> int:
        """Stops wall time where it stands, or lets it run on from there; the wall time in ms. Repeating is harmless."""
        with self._lock:
            base_ms = self._base.now_ms()
            now_ms = self._wall_ms(base_ms)
            if frozen:
                self._frozen_at_ms = now_ms
            else:
                self._offset_ms = now_ms - base_ms
                self._frozen_at_ms = None
            return now_ms

    def _wall_ms(self, base_ms: int) -> int:
        """Wall time at the instant when the other clock shows `base_ms`."""
        frozen_at_ms = self._frozen_at_ms
        if frozen_at_ms is not None:
            return frozen_at_ms
        # A running clock that reaches the end of its range stays there.
        return min(max(base_ms + self._offset_ms, MIN_WALL_MS), MAX_WALL_MS)

    def _place(self, now_ms: int, base_ms: int) -> int:
        """Sets wall time by changing one attribute, so that a reader without the lock sees the old time or the new
        one."""
        if not MIN_WALL_MS <= now_ms <= MAX_WALL_MS:
            raise ValueError(f"wall time {now_ms} ms is not between the years 1970 and 9999")
        if self._frozen_at_ms is None:
            self._offset_ms = now_ms - base_ms
        else:
            self._frozen_at_ms = now_ms
        return now_ms


def iso_date(ms: int) -> str:
    """`2026-05-04T12:00:00.123` in UTC."""
    from datetime import UTC, datetime  # kept out of the start of the server

    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}"
