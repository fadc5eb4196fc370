"""Sums of charges, and budgets by whole seconds."""

from hypothesis import given
from hypothesis import strategies as st

from mongottl.exec.operation.request_units import RequestUnits

NOW_MS = 1_700_000_000_250


def test_a_budget_starts_afresh_with_each_second() -> None:
    units = RequestUnits()
    assert units.wait_ms("shop.orders", 400, NOW_MS) == 0
    units.spend("shop.orders", 39_999, NOW_MS)
    assert units.wait_ms("shop.orders", 400, NOW_MS) == 0
    units.spend("shop.orders", 5000, NOW_MS + 100)
    assert units.wait_ms("shop.orders", 400, NOW_MS + 100) == 650
    assert units.wait_ms("shop.orders", 500, NOW_MS + 100) == 0
    assert units.wait_ms("shop.carts", 400, NOW_MS + 100) == 0
    assert units.wait_ms("shop.orders", 400, NOW_MS + 749) == 1
    assert units.wait_ms("shop.orders", 400, NOW_MS + 750) == 0


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 30_000))), st.integers(0, 3999))
def test_after_the_wait_there_is_something_left(charges: list[tuple[int, int]], later_ms: int) -> None:
    units = RequestUnits()
    now_ms = NOW_MS
    for step_ms, hundredths in charges:
        now_ms += step_ms
        units.spend("shop", hundredths, now_ms)
    now_ms += later_ms
    wait_ms = units.wait_ms("shop", 400, now_ms)
    assert 0 <= wait_ms <= 1000
    assert units.wait_ms("shop", 400, now_ms + wait_ms) == 0


def test_sums_are_exact_and_the_most_expensive_come_first() -> None:
    units = RequestUnits()
    for _ in range(1000):
        units.record("find", "shop.orders", 10)
    units.record("insert", "shop.orders", 55_000)
    report = units.report()
    assert (report.total, report.requests) == (650.0, 1001)
    assert [(row.command, row.requests, row.charge) for row in report.rows] == [
        ("insert", 1, 550.0),
        ("find", 1000, 100.0),
    ]
    units.reset()
    assert units.report() == (0.0, 0, 0, [])


def test_the_sums_of_several_servers() -> None:
    units = RequestUnits()
    units.record("find", "shop.orders", 110)
    other = RequestUnits()
    other.record("find", "shop.orders", 10, throttled=2)
    other.record("insert", "shop.orders", 38, throttled=1)
    for _ in range(3):
        units.add(other.report())
    assert units.report() == (
        2.54,
        7,
        9,
        [("find", "shop.orders", 4, 1.4, 6), ("insert", "shop.orders", 3, 1.14, 3)],
    )


def test_namespaces_are_bounded() -> None:
    units = RequestUnits()
    for number in range(12_000):
        units.record("find", f"shop.c{number}", 100)
        units.spend(f"shop.c{number}", 100, NOW_MS + number * 1000)
    report = units.report()
    assert report.total == 12_000.0
    assert len(report.rows) == 10_001
    assert report.rows[0] == ("find", "", 2000, 2000.0, 0)
