"""Arithmetic of dates: adding, differences, truncation."""

from collections.abc import Callable
from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId, Timestamp
from bson.datetime_ms import DatetimeMS

from mongottl.errors import CommandError, ErrorCode
from tests.unit.query.expr.date.moments import DAY, at

Check = Callable[[object, dict[str, Any], object], None]
Failure = Callable[[object, dict[str, Any]], CommandError]


@pytest.mark.parametrize(
    ("start", "unit", "amount", "timezone", "expected"),
    [
        (at(2024, 1, 31), "month", 1, None, at(2024, 2, 29)),  # the day that the month has
        (at(2024, 1, 31), "quarter", 1, None, at(2024, 4, 30)),
        (at(2024, 2, 29), "year", 1, None, at(2025, 2, 28)),
        (at(2024, 1, 1), "week", -1, None, at(2023, 12, 25)),
        (at(2024, 1, 1), "hour", 25, None, at(2024, 1, 2, 1)),
        (at(2024, 1, 1), "millisecond", Int64(5), None, at(2024, 1, 1, ms=5)),
        # Across the change to summer time, a day has 23 hours and 24 hours are 24 hours.
        (at(2024, 3, 30, 11), "day", 1, "Europe/Berlin", at(2024, 3, 31, 10)),
        (at(2024, 3, 30, 11), "hour", 24, "Europe/Berlin", at(2024, 3, 31, 11)),
    ],
)
def test_date_add(
    check: Check, start: DatetimeMS, unit: str, amount: int, timezone: str | None, expected: DatetimeMS
) -> None:
    zone = {} if timezone is None else {"timezone": timezone}
    check({"$dateAdd": {"startDate": start, "unit": unit, "amount": amount, **zone}}, {}, expected)
    check({"$dateSubtract": {"startDate": start, "unit": unit, "amount": Int64(-amount), **zone}}, {}, expected)


@pytest.mark.parametrize(
    ("operator", "parameters", "expected"),
    [
        # 31 October 2020, 10:10 in Brussels, the night before the clocks go back.
        ("$dateAdd", {"unit": "month", "amount": 4}, at(2021, 2, 28, 10, 10)),
        ("$dateAdd", {"unit": "second", "amount": -1}, at(2020, 10, 31, 10, 9, 59)),
        ("$dateAdd", {"unit": "day", "amount": 1, "timezone": "Europe/Brussels"}, at(2020, 11, 1, 10, 10)),
        ("$dateAdd", {"unit": "day", "amount": 0}, at(2020, 10, 31, 10, 10)),
        ("$dateAdd", {"unit": "day", "amount": 2.0}, at(2020, 11, 2, 10, 10)),
        ("$dateAdd", {"unit": "day", "amount": Decimal128("2")}, at(2020, 11, 2, 10, 10)),
        ("$dateAdd", {"unit": "day", "amount": None}, None),
        ("$dateAdd", {"unit": "$missing", "amount": 1}, None),
        ("$dateAdd", {"startDate": None, "unit": "day", "amount": 1}, None),
        ("$dateAdd", {"unit": "day", "amount": 1, "timezone": None}, None),
        ("$dateSubtract", {"unit": "month", "amount": 1}, at(2020, 9, 30, 10, 10)),
        ("$dateSubtract", {"unit": "year", "amount": 1}, at(2019, 10, 31, 10, 10)),
        ("$dateSubtract", {"unit": "quarter", "amount": 1}, at(2020, 7, 31, 10, 10)),
        ("$dateSubtract", {"unit": "week", "amount": 2}, at(2020, 10, 17, 10, 10)),
        ("$dateSubtract", {"unit": "hour", "amount": 24}, at(2020, 10, 30, 10, 10)),
        ("$dateSubtract", {"unit": "day", "amount": 7, "timezone": "Europe/Brussels"}, at(2020, 10, 24, 9, 10)),
        ("$dateSubtract", {"unit": "millisecond", "amount": Int64(1)}, at(2020, 10, 31, 10, 9, 59, 999)),
        ("$dateSubtract", {"unit": "minute", "amount": -5}, at(2020, 10, 31, 10, 15)),
        ("$dateSubtract", {"unit": None, "amount": 1}, None),
        ("$dateSubtract", {"startDate": "$missing", "unit": "day", "amount": 1}, None),
        ("$dateSubtract", {"startDate": Timestamp(10, 1), "unit": "second", "amount": 3}, DatetimeMS(7_000)),
    ],
)
def test_date_add_and_subtract_in_october_2020(
    check: Check, operator: str, parameters: dict[str, object], expected: object
) -> None:
    check({operator: {"startDate": at(2020, 10, 31, 10, 10), **parameters}}, {}, expected)


@pytest.mark.parametrize(
    ("start", "end", "parameters", "expected"),
    [
        (at(2023, 12, 31), at(2024, 1, 1), {"unit": "year"}, 1),
        (at(2024, 1, 1), at(2024, 12, 31), {"unit": "year"}, 0),
        (at(2024, 3, 31), at(2024, 4, 1), {"unit": "quarter"}, 1),
        (at(2024, 5, 1), at(2024, 2, 28), {"unit": "month"}, -3),
        (at(2024, 1, 6), at(2024, 1, 7), {"unit": "week"}, 1),  # weeks begin on Sunday
        (at(2024, 1, 6), at(2024, 1, 7), {"unit": "week", "startOfWeek": "monday"}, 0),
        (at(2024, 1, 1, 23), at(2024, 1, 2, 1), {"unit": "day"}, 1),
        (at(2024, 1, 1, 23), at(2024, 1, 2, 1), {"unit": "day", "timezone": "-05:00"}, 0),
        (at(2024, 1, 1, 0, 59), at(2024, 1, 1, 1, 0), {"unit": "hour"}, 1),
        (at(2024, 1, 1), at(2024, 1, 1, ms=999), {"unit": "second"}, 0),
        # Two examples of the page: months and weeks are counted by their bounds, however many days there are.
        (at(2020, 11, 29), at(2020, 12, 3), {"unit": "month"}, 1),
        (at(2021, 1, 24), at(2021, 1, 25), {"unit": "week", "startOfWeek": "Monday"}, 1),
        (at(2020, 10, 31), at(2020, 11, 2), {"unit": "hour", "timezone": "Europe/Brussels"}, 48),
        (at(2024, 3, 30, 23), at(2024, 3, 31, 22), {"unit": "day", "timezone": "Europe/Berlin"}, 1),
        (at(2024, 1, 1), at(2024, 1, 1), {"unit": "year"}, 0),
        (at(2024, 1, 2), at(2024, 1, 1), {"unit": "millisecond"}, -86_400_000),
        (DatetimeMS(0), DatetimeMS(253402300799999), {"unit": "minute"}, 4_223_371_679),
        (None, at(2024, 1, 1), {"unit": "day"}, None),
        (at(2024, 1, 1), "$missing", {"unit": "day"}, None),
        (at(2024, 1, 1), at(2024, 1, 2), {"unit": "$missing"}, None),
        (at(2024, 1, 1), at(2024, 1, 2), {"unit": "day", "startOfWeek": None}, 1),  # not looked at
        (at(2024, 1, 1), at(2024, 1, 2), {"unit": "week", "startOfWeek": None}, None),
    ],
)
def test_date_diff(
    check: Check, start: object, end: object, parameters: dict[str, object], expected: int | None
) -> None:
    wanted = None if expected is None else Int64(expected)
    check({"$dateDiff": {"startDate": start, "endDate": end, **parameters}}, {}, wanted)


@pytest.mark.parametrize(
    ("unit", "more", "expected"),
    [
        ("year", {}, at(2024, 1, 1)),
        ("year", {"binSize": 10}, at(2020, 1, 1)),
        ("quarter", {}, at(2024, 1, 1)),
        ("month", {"binSize": 5}, at(2023, 10, 1)),
        ("week", {}, at(2024, 2, 25)),
        ("week", {"startOfWeek": "mon"}, at(2024, 2, 26)),
        ("day", {"timezone": "Asia/Tokyo"}, at(2024, 2, 29, 15)),
        ("hour", {"binSize": 6}, at(2024, 2, 29, 18)),
        ("minute", {}, at(2024, 2, 29, 22, 5)),
        ("second", {"binSize": 15}, at(2024, 2, 29, 22, 5)),
        ("millisecond", {"binSize": 5}, at(2024, 2, 29, 22, 5, 6, 5)),
    ],
)
def test_date_trunc(check: Check, unit: str, more: dict[str, object], expected: DatetimeMS) -> None:
    check({"$dateTrunc": {"date": "$d", "unit": unit, **more}}, {"d": DAY}, expected)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"unit": "month", "timezone": "America/Los_Angeles"}, at(2021, 3, 1, 8)),
        (
            {"unit": "week", "binSize": 2, "startOfWeek": "Monday", "timezone": "America/Los_Angeles"},
            at(2021, 3, 15, 7),
        ),
        ({"unit": "day", "binSize": 2}, at(2021, 3, 19)),
        ({"unit": "hour", "binSize": 3.0}, at(2021, 3, 20, 9)),
        ({"unit": "second"}, at(2021, 3, 20, 11, 30, 5)),
        ({"unit": "year", "binSize": Int64(100)}, at(2000, 1, 1)),
        ({"unit": "quarter", "binSize": 3}, at(2021, 1, 1)),
        ({"unit": None}, None),
        ({"unit": "day", "binSize": None}, None),
        ({"unit": "day", "timezone": "$missing"}, None),
        ({"unit": "week", "startOfWeek": None}, None),
        ({"date": "$missing", "unit": "day"}, None),
        ({"date": ObjectId("5ab9c3da31c2ab715d421285"), "unit": "day"}, at(2018, 3, 27)),
        ({"date": DatetimeMS(-1), "unit": "day"}, at(1969, 12, 31)),
    ],
)
def test_date_trunc_in_march_2021(check: Check, parameters: dict[str, object], expected: object) -> None:
    check({"$dateTrunc": {"date": at(2021, 3, 20, 11, 30, 5, 444), **parameters}}, {}, expected)


@pytest.mark.parametrize(
    ("operator", "operand", "code"),
    [
        ("$dateAdd", {"startDate": "$d", "unit": "fortnight", "amount": 1}, ErrorCode.FailedToParse),
        ("$dateAdd", {"startDate": "$d", "unit": "day", "amount": 1.5}, 5166405),
        ("$dateAdd", {"startDate": 1, "unit": "day", "amount": 1}, 5166403),
        ("$dateAdd", {"startDate": "$d", "unit": "day"}, 5166402),
        ("$dateAdd", 1, 5166400),
        ("$dateAdd", {"startDate": "$d", "unit": "day", "amount": 1, "x": 1}, 5166401),
        ("$dateAdd", {"startDate": "$d", "unit": 5, "amount": 1}, 5439013),
        ("$dateAdd", {"startDate": "$d", "unit": "day", "amount": "1"}, 5166405),
        ("$dateAdd", {"startDate": "$d", "unit": "year", "amount": Int64(2**40)}, 5976500),
        ("$dateSubtract", 1, 5166400),
        ("$dateSubtract", {"startDate": "$d", "amount": 1}, 5166402),
        ("$dateSubtract", {"startDate": "x", "unit": "day", "amount": 1}, 5166403),
        ("$dateSubtract", {"startDate": "$d", "unit": "day", "amount": 0.5}, 5166405),
        ("$dateSubtract", {"startDate": "$d", "unit": "days", "amount": 1}, ErrorCode.FailedToParse),
        ("$dateDiff", {"startDate": 1, "endDate": "$d", "unit": "day"}, 5166307),
        ("$dateDiff", {"startDate": "$d", "endDate": "$d", "unit": "week", "startOfWeek": "x"}, 5439016),
        ("$dateDiff", 1, 5166301),
        ("$dateDiff", {"startDate": "$d", "endDate": "$d", "unit": "day", "x": 1}, 5166302),
        ("$dateDiff", {"endDate": "$d", "unit": "day"}, 5166303),
        ("$dateDiff", {"startDate": "$d", "unit": "day"}, 5166304),
        ("$dateDiff", {"startDate": "$d", "endDate": "$d"}, 5166305),
        ("$dateDiff", {"startDate": "$d", "endDate": "$d", "unit": 5}, 5439013),
        ("$dateDiff", {"startDate": "$d", "endDate": "$d", "unit": "x"}, ErrorCode.FailedToParse),
        ("$dateDiff", {"startDate": "$d", "endDate": "$d", "unit": "week", "startOfWeek": 5}, 5439015),
        ("$dateTrunc", {"date": "$d", "unit": "day", "binSize": 0}, 5439018),
        ("$dateTrunc", {"date": "$d", "unit": "day", "binSize": "1"}, 5439017),
        ("$dateTrunc", {"date": "$d", "unit": 5}, 5439013),
        ("$dateTrunc", 1, 5439007),
        ("$dateTrunc", {"date": "$d", "unit": "day", "x": 1}, 5439008),
        ("$dateTrunc", {"unit": "day"}, 5439009),
        ("$dateTrunc", {"date": "$d"}, 5439010),
        ("$dateTrunc", {"date": 5, "unit": "day"}, 5166307),
        ("$dateTrunc", {"date": "$d", "unit": "day", "binSize": -1}, 5439018),
        ("$dateTrunc", {"date": "$d", "unit": "week", "startOfWeek": "x"}, 5439016),
        ("$dateTrunc", {"date": at(1999, 1, 1), "unit": "year", "binSize": 2**31 - 1}, 5439006),
        ("$dateTrunc", {"date": at(1999, 1, 1), "unit": "month", "binSize": 2**33}, 5439006),
        (
            "$dateTrunc",
            {"date": at(1999, 1, 1), "unit": "quarter", "binSize": 2**32, "timezone": "Europe/Paris"},
            5439006,
        ),
        ("$dateTrunc", {"date": at(1999, 1, 1), "unit": "week", "binSize": 2**62}, 5439005),
        ("$dateTrunc", {"date": at(1999, 1, 1), "unit": "second", "binSize": 2**62}, 5439002),
    ],
)
def test_refusals_of_arithmetic(failure: Failure, operator: str, operand: object, code: int) -> None:
    assert failure({operator: operand}, {"d": DAY}).code == code
