"""The timing wheel: order, exactness, jumps both ways, disarming, figures."""

import tracemalloc

import pytest

from mongottl.ttl.wheel import MAX_DUE_S, MAX_KEY, TimingWheel

NOW = 1_700_000_000


def at(kiloseconds: int, blocks: int, seconds: int) -> int:
    """A second written in base 32, as in the module's drawing."""
    return kiloseconds * 1024 + blocks * 32 + seconds


def levels(wheel: TimingWheel) -> object:
    return wheel.statistics()["levels"]


def test_empty_wheel() -> None:
    wheel = TimingWheel(NOW)
    assert len(wheel) == 0
    assert wheel.next_due_s() is None
    assert wheel.advance_to(NOW + 10**9) == []
    assert wheel.advance_to(0) == []


def test_due_from_its_second_on_and_once() -> None:
    wheel = TimingWheel(NOW)
    assert wheel.arm(7, NOW + 5)
    assert wheel.next_due_s() == NOW + 5
    assert wheel.advance_to(NOW + 4) == []
    assert wheel.advance_to(NOW + 5) == [(NOW + 5, 7)]
    assert wheel.advance_to(NOW + 6) == []
    assert wheel.next_due_s() is None


def test_an_entry_exists_once_however_often_it_is_armed() -> None:
    wheel = TimingWheel(NOW)
    for distance in (3, 40, 2000, 10**6):
        assert wheel.arm(1, NOW + distance) == (distance == 3)
        wheel.arm(2, NOW + distance)
        for _ in range(3):
            assert not wheel.arm(1, NOW + distance)
    assert len(wheel) == 8
    assert len(wheel.advance_to(NOW + 10**7)) == 8


def test_a_pair_returned_may_be_armed_again() -> None:
    wheel = TimingWheel(NOW)
    wheel.arm(1, NOW)
    assert wheel.advance_to(NOW) == [(NOW, 1)]
    assert wheel.arm(1, NOW)
    assert wheel.advance_to(NOW) == [(NOW, 1)]


def test_arm_tells_when_the_sleeper_must_look_again() -> None:
    wheel = TimingWheel(NOW)
    assert wheel.arm(1, NOW + 1000)
    assert not wheel.arm(1, NOW + 1001)
    assert not wheel.arm(2, NOW + 1000)
    assert wheel.arm(2, NOW + 999)
    assert wheel.arm(2, NOW - 5)


def test_order_is_by_second_then_key() -> None:
    wheel = TimingWheel(NOW)
    wanted = [(NOW + second, key) for second in (0, 1, 33, 40, 70_000, 2**31) for key in (0, 3, 9)]
    for second, key in reversed(wanted):
        wheel.arm(key, second)
    assert wheel.advance_to(NOW + 2**32) == wanted


def test_the_worked_example_of_the_module() -> None:
    wheel = TimingWheel(at(2, 10, 5))
    for second in (at(3, 0, 7), at(2, 11, 4), at(2, 10, 6), at(2, 10, 31)):
        wheel.arm(1, second)
    assert levels(wheel) == [1, 1, 1, 0, 0, 0, 0, 0]
    assert wheel.advance_to(at(2, 11, 2)) == [(at(2, 10, 6), 1), (at(2, 10, 31), 1)]
    assert levels(wheel) == [1, 0, 1, 0, 0, 0, 0, 0]
    assert wheel.advance_to(at(2, 11, 4)) == [(at(2, 11, 4), 1)]
    assert wheel.advance_to(at(9, 0, 0)) == [(at(3, 0, 7), 1)]
    wheel.arm(1, at(9, 0, 1))
    wheel.arm(1, at(9, 5, 1))
    wheel.arm(1, at(10, 0, 0))
    assert levels(wheel) == [1, 1, 1, 0, 0, 0, 0, 0]
    assert wheel.advance_to(at(8, 31, 31)) == []
    assert levels(wheel) == [0, 0, 3, 0, 0, 0, 0, 0]
    assert wheel.advance_to(at(10, 0, 0)) == [(at(9, 0, 1), 1), (at(9, 5, 1), 1), (at(10, 0, 0), 1)]


def test_every_distance_is_exact() -> None:
    for power in range(34):
        for due in (NOW + 2**power - 1, NOW + 2**power, NOW + 2**power + 1):
            wheel = TimingWheel(NOW)
            wheel.arm(1, due)
            if due > NOW:
                assert wheel.advance_to(due - 1) == [], due
            assert wheel.next_due_s() == due
            assert wheel.advance_to(due) == [(due, 1)]


def test_armed_behind_the_hand_is_due_at_once() -> None:
    wheel = TimingWheel(NOW)
    wheel.arm(1, NOW - 1)
    wheel.arm(1, NOW - 10**6)
    assert wheel.next_due_s() == NOW - 10**6
    assert wheel.advance_to(NOW) == [(NOW - 10**6, 1), (NOW - 1, 1)]


def test_backwards_nothing_is_lost_and_nothing_comes_early() -> None:
    wheel = TimingWheel(NOW)
    wheel.arm(1, NOW + 10)
    wheel.arm(2, NOW + 100_000)
    assert wheel.advance_to(NOW + 10) == [(NOW + 10, 1)]
    assert wheel.advance_to(NOW - 10**8) == []
    wheel.arm(3, NOW - 500)
    assert wheel.next_due_s() == NOW - 500
    assert wheel.advance_to(NOW - 501) == []
    assert wheel.advance_to(NOW + 99_999) == [(NOW - 500, 3)]
    assert wheel.advance_to(NOW + 100_000) == [(NOW + 100_000, 2)]


def test_overdue_entries_wait_again_when_time_goes_back_before_them() -> None:
    wheel = TimingWheel(NOW)
    wheel.arm(1, NOW - 50)
    assert wheel.advance_to(NOW - 51) == []
    assert wheel.next_due_s() == NOW - 50
    assert wheel.advance_to(NOW - 50) == [(NOW - 50, 1)]


def test_jump_by_decades_does_not_step_through_them() -> None:
    wheel = TimingWheel(NOW)
    for key in range(1000):
        wheel.arm(key, NOW + 2_000_000_000 + key)
    assert wheel.advance_to(NOW + 1_999_999_999) == []
    assert len(wheel.advance_to(NOW + 4_000_000_000)) == 1000
    cascaded = wheel.statistics()["cascaded"]
    assert isinstance(cascaded, int)
    assert 0 < cascaded <= 1000 * 8


def test_seconds_beyond_the_range_count_as_its_ends() -> None:
    wheel = TimingWheel(NOW)
    wheel.arm(1, -5)
    wheel.arm(1, 2**62)
    assert wheel.next_due_s() == 0
    assert wheel.advance_to(NOW) == [(0, 1)]
    assert wheel.next_due_s() == MAX_DUE_S
    assert wheel.advance_to(253_402_300_799) == []
    assert wheel.advance_to(2**62) == [(MAX_DUE_S, 1)]
    assert wheel.advance_to(-(2**62)) == []


def test_keys_at_both_ends() -> None:
    wheel = TimingWheel(NOW)
    for key in (0, MAX_KEY):
        wheel.arm(key, MAX_DUE_S)
    assert wheel.advance_to(MAX_DUE_S) == [(MAX_DUE_S, 0), (MAX_DUE_S, MAX_KEY)]
    for key in (-1, MAX_KEY + 1):
        with pytest.raises(ValueError, match="wheel keys"):
            wheel.arm(key, NOW)


def test_disarm_all_takes_out_one_key_everywhere() -> None:
    wheel = TimingWheel(NOW)
    seconds = [NOW - 9, NOW, NOW + 1, NOW + 30, NOW + 2000, NOW + 10**6, NOW + 2**31]
    for second in seconds:
        wheel.arm(1, second)
        wheel.arm(2, second + 1)
    assert wheel.disarm_all(1) == 7
    assert wheel.disarm_all(1) == 0
    assert wheel.disarm_all(3) == 0
    assert wheel.next_due_s() == NOW - 8
    assert len(wheel) == 7
    assert wheel.advance_to(NOW + 2**32) == [(second + 1, 2) for second in seconds]


def test_disarmed_pair_may_be_armed_again_at_once() -> None:
    wheel = TimingWheel(NOW)
    wheel.arm(1, NOW + 5)
    wheel.disarm_all(1)
    assert wheel.next_due_s() is None
    assert wheel.arm(1, NOW + 5)
    assert wheel.advance_to(NOW + 5) == [(NOW + 5, 1)]


def test_statistics() -> None:
    wheel = TimingWheel(at(2, 10, 5))
    for second in (at(2, 10, 6), at(2, 10, 7), at(2, 11, 0), at(5, 0, 0), at(5, 0, 1)):
        wheel.arm(1, second)
    wheel.arm(2, at(5, 0, 0))
    wheel.arm(2, at(5, 0, 0))
    assert wheel.statistics() == {
        "entries": 6,
        "words": 4,
        "levels": [1, 1, 2, 0, 0, 0, 0, 0],
        "armed": 6,
        "due": 0,
        "disarmed": 0,
        "cascaded": 0,
    }
    wheel.advance_to(at(5, 0, 0))
    wheel.disarm_all(1)
    assert wheel.statistics() == {
        "entries": 0,
        "words": 0,
        "levels": [0, 0, 0, 0, 0, 0, 0, 0],
        "armed": 6,
        "due": 5,
        "disarmed": 1,
        "cascaded": 3,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "step_s", "limit_mb"),
    [(1, 1, 1), (1000, 1, 1), (1, 37, 13), (100_000, 37, 13)],
    ids=["each second", "a thousand keys", "no two in one word", "no two of one key"],
)
def test_memory_of_a_hundred_thousand_entries(keys: int, step_s: int, limit_mb: int) -> None:
    tracemalloc.start()
    try:
        wheel = TimingWheel(NOW)
        for i in range(100_000):
            wheel.arm(i % keys, NOW + 1 + (i // keys if keys < 100_000 else i % 5000) * step_s)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(wheel) == 100_000
    assert used < limit_mb * 1_000_000
