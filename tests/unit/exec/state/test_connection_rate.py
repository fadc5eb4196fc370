"""The limiter of new connections: a bucket of tokens, and those who wait for one."""

import pytest

from mongottl.exec.state.connection_rate import ConnectionRate


def limiter(per_second: int, burst_s: float, queue_depth: int) -> ConnectionRate:
    rate = ConnectionRate()
    rate.per_second, rate.burst_s, rate.queue_depth = per_second, burst_s, queue_depth
    return rate


def test_unlimited_by_default() -> None:
    rate = ConnectionRate()
    assert {rate.admit(0.0) for _ in range(1000)} == {0.0}


def test_a_burst_then_a_queue_then_nothing() -> None:
    rate = limiter(4, 0.5, 2)
    assert [rate.admit(10.0) for _ in range(6)] == [0.0, 0.0, 0.25, 0.5, -1.0, -1.0]
    # Half a second later those who waited are served, and a whole one later the bucket is full again.
    assert [rate.admit(10.5) for _ in range(3)] == [0.25, 0.5, -1.0]
    assert [rate.admit(100.0) for _ in range(5)] == [0.0, 0.0, 0.25, 0.5, -1.0]


def test_without_a_queue() -> None:
    rate = limiter(10, 0.1, 0)
    assert [rate.admit(5.0), rate.admit(5.0), rate.admit(5.05), rate.admit(5.125)] == [0.0, -1.0, -1.0, 0.0]


def test_a_change_of_the_parameters_fills_the_bucket() -> None:
    rate = limiter(1, 1.0, 0)
    assert [rate.admit(0.0), rate.admit(0.0)] == [0.0, -1.0]
    rate.refill()
    assert rate.admit(0.0) == pytest.approx(0.0)
