"""The clocks: wall time can be moved, set and stopped; elapsed time cannot."""

import math
import sys
import threading
import time
from collections.abc import Callable

import pytest

from mongottl.clock import MAX_WALL_MS, Clock, SystemClock, VirtualClock, parse_date

YEAR_S = 365 * 86_400


class HandClock(Clock):
    """Both times stand until the test moves them."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self.wall_ms = wall_ms
        self.elapsed_s = 5.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic_s(self) -> float:
        return self.elapsed_s


def test_system_clock_shows_wall_time_in_ms() -> None:
    before_ms = time.time_ns() // 1_000_000
    shown_ms = SystemClock().now_ms()
    assert before_ms <= shown_ms <= time.time_ns() // 1_000_000


def test_system_clock_elapsed_time_moves_forward() -> None:
    clock = SystemClock()
    first_s = clock.monotonic_s()
    while clock.monotonic_s() == first_s:
        pass
    assert 0 < clock.monotonic_s() - first_s < 60


def test_virtual_clock_starts_at_the_machines_time() -> None:
    before_ms = SystemClock().now_ms()
    shown_ms = VirtualClock().now_ms()
    assert before_ms <= shown_ms <= SystemClock().now_ms()


def test_advance_keeps_the_clock_running_at_an_offset() -> None:
    base = HandClock()
    clock = VirtualClock(base)
    assert clock.advance(30 * 86_400) == 1_700_000_000_000 + 30 * 86_400_000
    base.wall_ms += 250
    assert clock.now_ms() == 1_700_000_000_250 + 30 * 86_400_000
    clock.advance(0.5)
    assert clock.now_ms() == 1_700_000_000_750 + 30 * 86_400_000


@pytest.mark.parametrize("frozen", [False, True])
def test_wall_time_may_go_backwards(frozen: bool) -> None:
    clock = VirtualClock(HandClock())
    clock.freeze(frozen)
    assert clock.advance(-3600) == 1_700_000_000_000 - 3_600_000
    assert clock.now_ms() == 1_700_000_000_000 - 3_600_000


@pytest.mark.parametrize(("seconds", "step_ms"), [(0.0004, 0), (0.0006, 1), (0.001, 1), (-0.001, -1), (1e-12, 0)])
def test_advance_counts_whole_milliseconds(seconds: float, step_ms: int) -> None:
    assert VirtualClock(HandClock(1000)).advance(seconds) == 1000 + step_ms


def test_many_small_steps_do_not_drift() -> None:
    clock = VirtualClock(HandClock())
    for _ in range(1000):
        clock.advance(0.1)
    assert clock.now_ms() == 1_700_000_100_000


def test_frozen_clock_stands_still_and_runs_on_from_there() -> None:
    base = HandClock()
    clock = VirtualClock(base)
    assert clock.freeze() == 1_700_000_000_000
    base.wall_ms += 10_000
    assert clock.now_ms() == 1_700_000_000_000
    assert clock.advance(7) == 1_700_000_007_000
    base.wall_ms += 10_000
    assert clock.freeze(False) == 1_700_000_007_000
    base.wall_ms += 1
    assert clock.now_ms() == 1_700_000_007_001


def test_frozen_says_so() -> None:
    clock = VirtualClock(HandClock())
    seen = [clock.frozen]
    for frozen in (True, False):
        clock.freeze(frozen)
        seen.append(clock.frozen)
    assert seen == [False, True, False]


def test_freezing_and_thawing_twice_changes_nothing() -> None:
    base = HandClock()
    clock = VirtualClock(base)
    clock.freeze(False)
    base.wall_ms += 5
    clock.freeze()
    base.wall_ms += 5
    assert clock.freeze() == 1_700_000_000_005
    clock.freeze(False)
    assert clock.freeze(False) == 1_700_000_000_005


@pytest.mark.parametrize("frozen", [False, True])
def test_set_wall(frozen: bool) -> None:
    base = HandClock()
    clock = VirtualClock(base)
    clock.freeze(frozen)
    assert clock.set_wall(0) == 0
    assert clock.now_ms() == 0
    base.wall_ms += 40
    assert clock.now_ms() == (0 if frozen else 40)
    assert clock.frozen is frozen


def test_elapsed_time_is_the_other_clocks_whatever_happens() -> None:
    base = HandClock()
    clock = VirtualClock(base)
    clock.advance(50 * YEAR_S)
    clock.freeze()
    assert clock.monotonic_s() == 5.0
    base.elapsed_s = 6.5
    clock.set_wall(0)
    assert clock.monotonic_s() == 6.5


def test_years_forward_and_back() -> None:
    clock = VirtualClock(HandClock())
    clock.advance(5000 * YEAR_S)
    assert clock.now_ms() == 1_700_000_000_000 + 5000 * YEAR_S * 1000
    clock.advance(-5000 * YEAR_S)
    assert clock.now_ms() == 1_700_000_000_000


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, 1e300, 1.7e308, 8000 * YEAR_S, -60 * YEAR_S])
def test_clock_refuses_to_leave_the_years_1970_to_9999(seconds: float, frozen: bool) -> None:
    clock = VirtualClock(HandClock())
    clock.freeze(frozen)
    with pytest.raises(ValueError):
        clock.advance(seconds)
    assert clock.now_ms() == 1_700_000_000_000


def test_both_ends_of_wall_time() -> None:
    base = HandClock()
    clock = VirtualClock(base)
    clock.set_wall(MAX_WALL_MS)
    base.wall_ms += 1000
    assert clock.now_ms() == MAX_WALL_MS
    clock.set_wall(0)
    base.wall_ms -= 2000
    assert clock.now_ms() == 0
    for beyond_ms in (-1, MAX_WALL_MS + 1):
        with pytest.raises(ValueError, match="1970 and 9999"):
            clock.set_wall(beyond_ms)


def test_wait_until_an_instant() -> None:
    base = HandClock(10_000)
    clock = VirtualClock(base)
    for running in (base, clock):
        assert running.wait_s(12_500) == 2.5
        assert running.wait_s(10_000) == 0.0
        assert running.wait_s(1) == 0.0
    clock.freeze()
    assert clock.wait_s(10_001) == math.inf
    assert clock.wait_s(10_000) == 0.0
    clock.advance(1)
    assert clock.wait_s(10_001) == 0.0


def test_moves_from_several_threads_all_count() -> None:
    clock = VirtualClock(HandClock())

    def move() -> None:
        for _ in range(500):
            clock.advance(1)

    threads = [threading.Thread(target=move) for _ in range(4)]
    switch_interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # So that threads really meet within a move.
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch_interval_s)
    assert clock.now_ms() == 1_700_000_000_000 + 2_000_000


def test_a_clock_can_start_elsewhere_and_be_reset() -> None:
    base = HandClock()
    for frozen in (False, True):
        clock = VirtualClock(base, 5_000, frozen)
        base.wall_ms += 250
        assert clock.now_ms() == (5_000 if frozen else 5_250)
        clock.advance(10)
        clock.freeze(not frozen)
        assert clock.reset() == 5_000
        assert (clock.now_ms(), clock.frozen) == (5_000, frozen)
    clock = VirtualClock(base, None, True)
    clock.settle()
    base.wall_ms += 250
    assert clock.now_ms() == base.wall_ms - 250
    clock.freeze(False)
    assert clock.reset() == base.wall_ms - 250  # else a test that resets it would depend on how fast it is
    clock = VirtualClock(base)
    base.wall_ms += 250
    clock.advance(10)
    assert clock.reset() == base.wall_ms
    for beyond in (10**400, -(10**400)):
        with pytest.raises(ValueError, match="cannot be moved"):
            clock.advance(beyond)
    with pytest.raises(ValueError, match="1970"):
        VirtualClock(base, -1)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_clock_goes_on_where_another_has_ended(frozen: bool) -> None:
    base = HandClock()
    ended = VirtualClock(base, None, frozen)
    left_ms = ended.advance(1000)
    base.wall_ms += 7_000
    for is_frozen in (False, True):
        clock = VirtualClock(base, None, is_frozen)
        assert clock.resume(left_ms, ended.offset_ms) == (left_ms if frozen else left_ms + 7_000)
        assert clock.frozen == is_frozen


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01", 0),
        ("2026-01-01", 1_767_225_600_000),
        ("2026-01-01T12:00:00Z", 1_767_268_800_000),
        ("2026-01-01T12:00:00.5", 1_767_268_800_500),
        ("2026-01-01T12:00:00.0005+02:00", 1_767_261_600_000),
    ],
)
def test_dates_of_texts(text: str, ms: int) -> None:
    assert parse_date(text) == ms


@pytest.mark.parametrize("text", ["", "now", "12:00", "2026-13-01", "1969-12-31", "0001-01-01T00:00+23:00"])
def test_texts_that_are_no_dates(text: str) -> None:
    with pytest.raises(ValueError, match="is needed"):
        parse_date(text)


def unused() -> tuple[HandClock, VirtualClock]:
    """A clock that is to stand still, a second after its start."""
    base = HandClock(1_000_000)
    clock = VirtualClock(base, frozen=True)
    base.wall_ms += 1000
    return base, clock


def test_clock_that_is_to_stand_still_runs_until_its_first_use() -> None:
    base, clock = unused()
    assert (clock.now_ms(), clock.frozen, clock.unsettled) == (1_001_000, False, True)
    assert clock.wait_s(1_002_000) == 1.0
    clock.settle()
    base.wall_ms += 1000
    assert (clock.now_ms(), clock.frozen, clock.unsettled) == (1_001_000, True, False)
    clock.advance(5)
    assert clock.reset() == 1_001_000


USES: list[tuple[Callable[[VirtualClock], object], int]] = [
    (lambda clock: clock.advance(2), 1_003_000),
    (lambda clock: clock.set_wall(5), 5),
    (lambda clock: clock.resume(7, None), 7),
    (lambda clock: clock.resume(7, 50), 1_001_050),
    (lambda clock: clock.reset(), 1_001_000),
    (lambda clock: clock.freeze(), 1_001_000),
    (lambda clock: clock.restore(clock.setting()), 1_001_000),
]


@pytest.mark.parametrize(("use", "now_ms"), USES)
def test_every_change_is_a_first_use(use: Callable[[VirtualClock], object], now_ms: int) -> None:
    base, clock = unused()
    use(clock)
    base.wall_ms += 1000
    assert (clock.now_ms(), clock.frozen) == (now_ms, True)


def test_clock_that_is_to_stand_still_may_run_on_from_its_first_use() -> None:
    base, clock = unused()
    clock.freeze(False)
    base.wall_ms += 1000
    assert (clock.now_ms(), clock.frozen, clock.unsettled) == (1_002_000, False, False)


def test_setting_from_before_the_first_use_stands_for_it() -> None:
    base, clock = unused()
    setting = clock.setting()
    base.wall_ms += 1000
    clock.settle()
    base.wall_ms += 1000
    clock.advance(3)
    assert clock.restore(setting) == 1_002_000
    assert clock.frozen


def test_named_start_is_no_matter_of_use() -> None:
    base = HandClock(1_000_000)
    clock = VirtualClock(base, 5, frozen=True)
    base.wall_ms += 1000
    assert (clock.now_ms(), clock.frozen, clock.unsettled) == (5, True, False)
