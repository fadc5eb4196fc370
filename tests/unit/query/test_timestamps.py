"""The server's own timestamps."""

from mongottl.document.types import Timestamp
from mongottl.query.timestamps import TimestampClock


def test_within_a_second_the_counter_tells_them_apart() -> None:
    clock = TimestampClock()
    assert [clock.next(now_ms) for now_ms in (5000, 5999, 6000)] == [Timestamp(5, 1), Timestamp(5, 2), Timestamp(6, 1)]


def test_timestamps_never_go_back() -> None:
    clock = TimestampClock()
    assert [clock.next(now_ms) for now_ms in (9000, 2000, 9500)] == [Timestamp(9, 1), Timestamp(9, 2), Timestamp(9, 3)]


def test_beyond_2106_the_last_second_counts() -> None:
    clock = TimestampClock()
    assert clock.next(2**32 * 1000) == Timestamp(2**32 - 1, 1)
    assert clock.next(2**40 * 1000) == Timestamp(2**32 - 1, 2)
