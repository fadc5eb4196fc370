"""Sums of charges."""

from mongottl.exec.state.request_units import RequestUnits


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
    report = units.report()
    assert report.total == 12_000.0
    assert len(report.rows) == 10_001
    assert report.rows[0] == ("find", "", 2000, 2000.0, 0)
