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
from collections.abc import Callable
from typing import Final, NamedTuple

# Wall clocks stay within what a 64-bit date and Python's `datetime` can both name: 1970-01-01 to the end of year 9999.
MIN_WALL_MS: Final = 0
MAX_WALL_MS: Final = 253_402_300_799_999
# Of Linux; elsewhere one that may stand still while the machine is suspended.
_BOOT_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", 0))
# In a setting: it stood still where it was first used, which had not happened yet.
_AT_FIRST_USE: Final = -1


class Clock(ABC):
    """A source of wall time and elapsed time."""

    @abstractmethod
    def now_ms(self) -> int:
        """Wall time in whole milliseconds since 1970-01-01T00:00:00Z, rounded down."""

    @abstractmethod
    def monotonic_s(self) -> float:
        """Elapsed time in seconds since an arbitrary instant; never decreases."""

    def elapsed_reader(self) -> Callable[[], float]:
        """What gives the same as `monotonic_s`, to be called very often."""
        return self.monotonic_s

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

    def elapsed_reader(self) -> Callable[[], float]:
        return time.perf_counter


def awake_or_not_s() -> float:
    """Elapsed time in seconds that goes on while the machine is suspended, where the system has such a clock."""
    return time.clock_gettime(_BOOT_CLOCK)


class ClockState(NamedTuple):
    """All that a VirtualClock has besides the other clock.

    offset_ms: how far it is ahead of that while it runs. frozen_at_ms: where it stands still, None while it runs.
    start_ms, starts_frozen: what it was made with; of one that was to stand still from its first use on, start_ms is
    that, and None before.
    """

    offset_ms: int
    frozen_at_ms: int | None
    start_ms: int | None
    starts_frozen: bool


class VirtualClock(Clock):
    """A clock over another one (the machine's by default) whose wall time tests may move, set and stop.

    Unless frozen it runs at an offset to the other clock. Elapsed time is that of the other clock. The caller of a
    method that changes wall time must wake the tasks that sleep until a wall time. Any thread may call any method.

    start_ms: wall time to begin with, None for that of the other clock. frozen: whether it stands still from then on;
    without start_ms it runs with the other clock until its first use (`settle`, or any change), and that is its start:
    what a test reads of the machine's clock before is then never later. ValueError for a time before 1970 or after the
    year 9999.
    """

    def __init__(self, base: Clock | None = None, start_ms: int | None = None, frozen: bool = False) -> None:
        self._base: Final[Clock] = SystemClock() if base is None else base
        # None: a clock that runs goes with the other clock, and one that is to stand still has not been used yet.
        self._start_ms = start_ms
        self._starts_frozen = frozen
        self._offset_ms = 0
        self._frozen_at_ms: int | None = None
        self._lock: Final = threading.Lock()  # For changes only; see `_place`.
        if start_ms is not None:
            self.reset()

    def now_ms(self) -> int:
        return self._wall_ms(self._base.now_ms())

    def monotonic_s(self) -> float:
        return self._base.monotonic_s()

    def elapsed_reader(self) -> Callable[[], float]:
        return self._base.elapsed_reader()

    def wait_s(self, at_ms: int) -> float:
        frozen_at_ms = self._frozen_at_ms
        if frozen_at_ms is None:
            return super().wait_s(at_ms)
        return 0.0 if frozen_at_ms >= at_ms else math.inf

    @property
    def frozen(self) -> bool:
        """Whether wall time stands still."""
        return self._frozen_at_ms is not None

    @property
    def unsettled(self) -> bool:
        """Whether it runs until its first use, and stands still from then on."""
        return self._starts_frozen and self._start_ms is None

    def settle(self) -> None:
        """Stops a clock that is to stand still from its first use on. Does nothing to any other."""
        if self.unsettled:
            with self._lock:
                self._settle(self._base.now_ms())

    @property
    def base_ms(self) -> int:
        """Wall time of the other clock."""
        return self._base.now_ms()

    @property
    def offset_ms(self) -> int | None:
        """How far it is ahead of the other clock, None while it stands still."""
        return None if self.frozen else self._offset_ms

    def advance(self, seconds: float) -> int:
        """Moves wall time by `seconds`, backwards if negative, frozen or not; the new wall time in ms.

        Counted in whole milliseconds, the nearest one. ValueError if the result would lie before 1970 or after the year
        9999, or if `seconds` is not finite; the clock is then left as it was.
        """
        try:
            step = float(seconds) * 1000
        except OverflowError:
            step = math.inf
        if not math.isfinite(step):
            raise ValueError(f"a clock cannot be moved by {seconds} seconds")
        step_ms = round(step)
        with self._lock:
            base_ms = self._settled_base_ms()
            return self._place(self._wall_ms(base_ms) + step_ms, base_ms)

    def set_wall(self, now_ms: int) -> int:
        """Sets wall time, in ms since the epoch; a frozen clock stays frozen. ValueError as for `advance`."""
        with self._lock:
            return self._place(now_ms, self._settled_base_ms())

    def resume(self, now_ms: int, offset_ms: int | None) -> int:
        """Sets wall time as another clock had it at its end: to `now_ms`, where it stood still, or to the other clock's
        with this offset; the new wall time in ms. A frozen clock stays frozen. ValueError as for `advance`."""
        with self._lock:
            base_ms = self._settled_base_ms()
            return self._place(now_ms if offset_ms is None else base_ms + offset_ms, base_ms)

    def reset(self) -> int:
        """Sets wall time, and whether it stands still, as they were at the start; the wall time in ms."""
        with self._lock:
            base_ms = self._settled_base_ms()
            now_ms = base_ms if self._start_ms is None else self._start_ms
            if not MIN_WALL_MS <= now_ms <= MAX_WALL_MS:
                raise _out_of_range()
            # In this order, so that a reader without the lock sees the old time or the new one.
            if self._starts_frozen:
                self._frozen_at_ms = now_ms
            else:
                self._offset_ms = now_ms - base_ms
                self._frozen_at_ms = None
            return now_ms

    def freeze(self, frozen: bool = True) -> int:
        """Stops wall time where it stands, or lets it run on from there; the wall time in ms. Repeating is harmless."""
        with self._lock:
            base_ms = self._settled_base_ms()
            now_ms = self._wall_ms(base_ms)
            if frozen:
                self._frozen_at_ms = now_ms
            else:
                self._offset_ms = now_ms - base_ms
                self._frozen_at_ms = None
            return now_ms

    def setting(self) -> tuple[int, int | None]:
        """How the clock is moved and whether it is frozen, for `restore`."""
        with self._lock:
            return self._offset_ms, _AT_FIRST_USE if self.unsettled else self._frozen_at_ms

    def restore(self, setting: tuple[int, int | None]) -> int:
        """Moves the clock as it was at `setting`, and freezes it where it was frozen then; the wall time in ms. A clock
        that ran then runs at the same offset, so the time that has passed since is not taken back."""
        offset_ms, frozen_at_ms = setting
        with self._lock:
            base_ms = self._settled_base_ms()
            if frozen_at_ms == _AT_FIRST_USE:
                frozen_at_ms = self._start_ms
            # In this order, so that a reader without the lock sees the old time or the new one.
            if frozen_at_ms is not None:
                self._frozen_at_ms = frozen_at_ms
                self._offset_ms = offset_ms
            else:
                self._offset_ms = offset_ms
                self._frozen_at_ms = None
            return self._wall_ms(base_ms)

    def state(self) -> ClockState:
        """What `take_over` makes another clock of."""
        with self._lock:
            return ClockState(self._offset_ms, self._frozen_at_ms, self._start_ms, self._starts_frozen)

    def take_over(self, state: ClockState) -> None:
        """Makes this clock what another one was, of the same other clock or of one that shows the same."""
        with self._lock:
            self._start_ms, self._starts_frozen = state.start_ms, state.starts_frozen
            # In this order, so that a reader without the lock sees the old time or the new one.
            if state.frozen_at_ms is not None:
                self._frozen_at_ms = state.frozen_at_ms
                self._offset_ms = state.offset_ms
            else:
                self._offset_ms = state.offset_ms
                self._frozen_at_ms = None

    def copied(self) -> "VirtualClock":
        copy = VirtualClock(self._base)
        copy.take_over(self.state())
        return copy

    def _settled_base_ms(self) -> int:
        """What the other clock shows, after the first use of this one."""
        base_ms = self._base.now_ms()
        self._settle(base_ms)
        return base_ms

    def _settle(self, base_ms: int) -> None:
        if self.unsettled:
            # In this order, so that a reader without the lock never sees a clock that runs and is settled.
            self._frozen_at_ms = base_ms
            self._start_ms = base_ms

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
            raise _out_of_range()
        if self._frozen_at_ms is None:
            self._offset_ms = now_ms - base_ms
        else:
            self._frozen_at_ms = now_ms
        return now_ms


def _out_of_range() -> ValueError:
    return ValueError("the time would not be between the years 1970 and 9999")


def parse_date(text: str) -> int:
    """Milliseconds since 1970 of a date or a time in ISO 8601: `2026-01-01`, `2026-01-01T12:00:00.5Z`; UTC unless it
    names another zone. ValueError for another form, and for years before 1970."""
    from datetime import UTC, datetime, timedelta

    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"a date or time in ISO 8601 is needed, such as 2026-01-01T12:00:00Z, not {text!r}") from None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    ms = (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    if not MIN_WALL_MS <= ms <= MAX_WALL_MS:
        raise ValueError(f"a time between the years 1970 and 9999 is needed, not {text!r}")
    return ms


def iso_date(ms: int) -> str:
    """`2026-05-04T12:00:00.123` in UTC."""
    from datetime import UTC, datetime  # kept out of the start of the server

    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}"
