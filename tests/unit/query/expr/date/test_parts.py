"""Parts of dates, and dates of parts."""

from collections.abc import Callable
from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId, Timestamp
from bson.datetime_ms import DatetimeMS

from mongottl.errors import CommandError
from tests.unit.query.expr.date.moments import DAY, at

Check = Callable[[object, dict[str, Any], object], None]
Failure = Callable[[object, dict[str, Any]], CommandError]

PARTS = (
    "$year $month $dayOfMonth $hour $minute $second $millisecond $dayOfYear $dayOfWeek $isoDayOfWeek $week $isoWeek "
    "$isoWeekYear"
).split()


@pytest.mark.parametrize(
    ("operator", "utc", "tokyo"),
    [
        ("$year", 2024, 2024),
        ("$month", 2, 3),
        ("$dayOfMonth", 29, 1),
        ("$hour", 22, 7),
        ("$minute", 5, 5),
        ("$second", 6, 6),
        ("$millisecond", 7, 7),
        ("$dayOfYear", 60, 61),
        ("$dayOfWeek", 5, 6),
        ("$isoDayOfWeek", 4, 5),
        ("$week", 8, 8),
        ("$isoWeek", 9, 9),
        ("$isoWeekYear", Int64(2024), Int64(2024)),
    ],
)
def test_each_part_in_utc_and_in_tokyo(check: Check, operator: str, utc: object, tokyo: object) -> None:
    check({operator: "$d"}, {"d": DAY}, utc)
    check({operator: ["$d"]}, {"d": DAY}, utc)
    check({operator: {"date": "$d", "timezone": "Asia/Tokyo"}}, {"d": DAY}, tokyo)
    check({operator: {"date": "$d", "timezone": "+09:00"}}, {"d": DAY}, tokyo)
    check({operator: "$nothing"}, {}, None)
    check({operator: {"date": "$d", "timezone": None}}, {"d": DAY}, None)


@pytest.mark.parametrize(
    ("day", "parts"),
    [
        # The pages' example: 1 January 2014, a Wednesday, 8:15:39.736.
        (at(2014, 1, 1, 8, 15, 39, 736), [2014, 1, 1, 8, 15, 39, 736, 1, 4, 3, 0, 1, 2014]),
        (at(2016, 12, 31, 23, 59, 59, 999), [2016, 12, 31, 23, 59, 59, 999, 366, 7, 6, 52, 52, 2016]),
        (at(2017, 1, 1), [2017, 1, 1, 0, 0, 0, 0, 1, 1, 7, 1, 52, 2016]),
        (at(1970, 1, 1), [1970, 1, 1, 0, 0, 0, 0, 1, 5, 4, 0, 1, 1970]),
        (DatetimeMS(-1), [1969, 12, 31, 23, 59, 59, 999, 365, 4, 3, 52, 1, 1970]),
        (at(2000, 2, 29, 12), [2000, 2, 29, 12, 0, 0, 0, 60, 3, 2, 9, 9, 2000]),
        (at(1900, 3, 1), [1900, 3, 1, 0, 0, 0, 0, 60, 5, 4, 8, 9, 1900]),  # no leap year
        (at(9999, 12, 31, 23, 59, 59, 999), [9999, 12, 31, 23, 59, 59, 999, 365, 6, 5, 52, 52, 9999]),
        (Timestamp(1_700_000_000, 9), [2023, 11, 14, 22, 13, 20, 0, 318, 3, 2, 46, 46, 2023]),
        (ObjectId("5ab9c3da31c2ab715d421285"), [2018, 3, 27, 4, 8, 58, 0, 86, 3, 2, 12, 13, 2018]),
    ],
)
def test_all_parts_of_a_day(check: Check, day: object, parts: list[int]) -> None:
    for operator, part in zip(PARTS, parts, strict=True):
        check({operator: "$d"}, {"d": day}, Int64(part) if operator == "$isoWeekYear" else part)


@pytest.mark.parametrize(
    ("day", "iso_year", "iso_week", "week"),
    [
        (at(2015, 12, 31), 2015, 53, 52),
        (at(2016, 1, 1), 2015, 53, 0),
        (at(2016, 1, 3), 2015, 53, 1),
        (at(2016, 1, 4), 2016, 1, 1),
        (at(2018, 12, 31), 2019, 1, 52),
        (DatetimeMS(-62_167_219_200_000), -1, 52, 0),  # 1 January of the year 0, a Saturday
    ],
)
def test_weeks_around_new_year(check: Check, day: DatetimeMS, iso_year: int, iso_week: int, week: int) -> None:
    check({"$isoWeekYear": "$d"}, {"d": day}, Int64(iso_year))
    check({"$isoWeek": "$d"}, {"d": day}, iso_week)
    check({"$week": "$d"}, {"d": day}, week)


def test_timestamps_and_object_ids_are_dates_too(check: Check) -> None:
    check({"$year": Timestamp(1_700_000_000, 5)}, {}, 2023)
    check({"$year": ObjectId("5ab9c3da31c2ab715d421285")}, {}, 2018)


@pytest.mark.parametrize(
    ("zone", "hour", "minute", "day"),
    [
        ("America/New_York", 20, 30, 30),  # summer time
        ("Asia/Kolkata", 6, 0, 1),
        ("+0530", 6, 0, 1),
        ("-10", 14, 30, 30),
        ("GMT", 0, 30, 1),
        ("Europe/London", 1, 30, 1),
        ("$z", 2, 30, 1),
    ],
)
def test_parts_in_a_zone(check: Check, zone: str, hour: int, minute: int, day: int) -> None:
    document = {"d": at(2024, 7, 1, 0, 30), "z": "Europe/Berlin"}
    for operator, part in (("$hour", hour), ("$minute", minute), ("$dayOfMonth", day), ("$second", 0)):
        check({operator: {"date": "$d", "timezone": zone}}, document, part)


@pytest.mark.parametrize("operator", PARTS)
def test_parts_of_null_are_null_and_of_other_types_refused(check: Check, failure: Failure, operator: str) -> None:
    for nothing in (None, "$n", "$missing", {"date": None}, {"date": "$missing", "timezone": "Mars/Olympus"}):
        check({operator: nothing}, {"n": None}, None)
    for wrong in ("2024-01-01", 5, True, Int64(0), Decimal128("0")):
        assert failure({operator: "$v"}, {"v": wrong}).code == 16006
    assert failure({operator: []}, {}).code == 40536


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"year": 2024}, at(2024, 1, 1)),
        ({"year": 2024, "month": 14, "day": 0}, at(2025, 1, 31)),  # parts carry over
        ({"year": 2024, "month": 3, "hour": -1}, at(2024, 2, 29, 23)),
        ({"isoWeekYear": 2018, "isoWeek": 24, "isoDayOfWeek": 5}, at(2018, 6, 15)),
        ({"year": 2017, "month": 7, "hour": 2, "timezone": "Europe/Berlin"}, at(2017, 7, 1)),
        ({"year": None}, None),
        ({"year": 2017, "month": 2, "day": 8, "hour": 12}, at(2017, 2, 8, 12)),
        ({"isoWeekYear": 2017, "isoWeek": 6, "isoDayOfWeek": 3, "hour": 12}, at(2017, 2, 8, 12)),
        (
            {
                "year": 2016,
                "month": 12,
                "day": 31,
                "hour": 23,
                "minute": 46,
                "second": 12,
                "timezone": "America/New_York",
            },
            at(2017, 1, 1, 4, 46, 12),
        ),
        ({"year": 2022, "month": 0}, at(2021, 12, 1)),
        ({"year": 2024, "day": 366}, at(2024, 12, 31)),
        ({"year": 2024, "minute": 1441, "second": -1, "millisecond": 1500}, at(2024, 1, 2, 0, 1, 0, 500)),
        ({"year": 2024.0, "month": Int64(2), "day": Decimal128("29")}, at(2024, 2, 29)),
        ({"year": 2024, "month": "$missing"}, None),
        ({"year": 2024, "timezone": None}, None),
        ({"isoWeekYear": 2020, "isoWeek": 53}, at(2020, 12, 28)),
        ({"isoWeekYear": 2020, "isoWeek": 54}, at(2021, 1, 4)),
        ({"year": 1}, DatetimeMS(-62_135_596_800_000)),
    ],
)
def test_date_from_parts(check: Check, parameters: dict[str, object], expected: object) -> None:
    check({"$dateFromParts": parameters}, {}, expected)


def test_date_to_parts_of_the_week(check: Check) -> None:
    time = {"hour": 22, "minute": 5, "second": 6, "millisecond": 7}
    check({"$dateToParts": {"date": "$d"}}, {"d": DAY}, {"year": 2024, "month": 2, "day": 29, **time})
    iso = {"isoWeekYear": 2024, "isoWeek": 9, "isoDayOfWeek": 4}
    check({"$dateToParts": {"date": "$d", "iso8601": True}}, {"d": DAY}, {**iso, **time})


def parts(year: int, month: int, day: int, *time: int) -> dict[str, int]:
    names = ["year", "month", "day", "hour", "minute", "second", "millisecond"]
    return dict(zip(names, [year, month, day, *time], strict=True))


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"date": at(2017, 1, 1, 1, 29, 9, 123)}, parts(2017, 1, 1, 1, 29, 9, 123)),
        (
            {"date": at(2017, 1, 1, 1, 29, 9, 123), "timezone": "America/New_York"},
            parts(2016, 12, 31, 20, 29, 9, 123),
        ),
        ({"date": at(2017, 1, 1), "timezone": "+05:45"}, parts(2017, 1, 1, 5, 45, 0, 0)),
        ({"date": at(2017, 1, 1), "iso8601": False}, parts(2017, 1, 1, 0, 0, 0, 0)),
        ({"date": DatetimeMS(-1)}, parts(1969, 12, 31, 23, 59, 59, 999)),
        ({"date": Timestamp(60, 1)}, parts(1970, 1, 1, 0, 1, 0, 0)),
        ({"date": None}, None),
        ({"date": "$missing"}, None),
        ({"date": at(2017, 1, 1), "timezone": None}, None),
        ({"date": at(2017, 1, 1), "iso8601": "$missing"}, None),
    ],
)
def test_date_to_parts(check: Check, parameters: dict[str, object], expected: object) -> None:
    check({"$dateToParts": parameters}, {}, expected)


@pytest.mark.parametrize(
    ("operator", "operand", "code"),
    [
        ("$dateToParts", 1, 40524),
        ("$dateToParts", {"date": "$d", "x": 1}, 40520),
        ("$dateToParts", {}, 40522),
        ("$dateToParts", {"date": "$d", "iso8601": 1}, 40521),
        ("$dateToParts", {"date": "$d", "timezone": "Nowhere"}, 40485),
        ("$dateToParts", {"date": 5}, 16006),
        ("$dateFromParts", {"month": 1}, 40516),
        ("$dateFromParts", {"year": 10000}, 40523),
        ("$dateFromParts", {"year": 2000, "isoWeek": 1}, 40489),
        ("$dateFromParts", {"year": "2000"}, 40515),
        ("$dateFromParts", 1, 40519),
        ("$dateFromParts", {"year": 2024, "x": 1}, 40518),
        ("$dateFromParts", {"year": 2024, "isoWeekYear": 2024}, 40489),
        ("$dateFromParts", {"isoWeekYear": 2024, "month": 1}, 40525),
        ("$dateFromParts", {"year": 2024, "month": 1.5}, 40515),
        ("$dateFromParts", {"year": 0}, 40523),
        ("$dateFromParts", {"year": 2024, "timezone": "x"}, 40485),
        ("$year", "x", 16006),
        ("$year", [1, 2], 40536),
        ("$year", {"date": "$d", "zone": "x"}, 40535),
        ("$year", {"timezone": "UTC"}, 40539),
        ("$year", {"date": "$d", "timezone": "Mars/Olympus"}, 40485),
        ("$year", {"date": "$d", "timezone": 5}, 40517),
    ],
)
def test_refusals_of_parts(failure: Failure, operator: str, operand: object, code: int) -> None:
    assert failure({operator: operand}, {"d": DAY}).code == code
