import datetime
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from bson import Int64, ObjectId, Timestamp
from bson.datetime_ms import DatetimeMS

from mongottl.errors import CommandError, ErrorCode

Check = Callable[[object, dict[str, Any], object], None]
Failure = Callable[[object, dict[str, Any]], CommandError]


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, ms: int = 0) -> DatetimeMS:
    moment = datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.UTC)
    return DatetimeMS(int(moment.timestamp()) * 1000 + ms)


DAY = at(2024, 2, 29, 22, 5, 6, 7)  # a Thursday


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
def test_parts(check: Check, operator: str, utc: object, tokyo: object) -> None:
    check({operator: "$d"}, {"d": DAY}, utc)
    check({operator: ["$d"]}, {"d": DAY}, utc)
    check({operator: {"date": "$d", "timezone": "Asia/Tokyo"}}, {"d": DAY}, tokyo)
    check({operator: {"date": "$d", "timezone": "+09:00"}}, {"d": DAY}, tokyo)
    check({operator: "$nothing"}, {}, None)
    check({operator: {"date": "$d", "timezone": None}}, {"d": DAY}, None)


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
    ("parameters", "expected"),
    [
        ({}, "2024-02-29T22:05:06.007Z"),
        ({"timezone": "+05:30"}, "2024-03-01T03:35:06.007"),
        ({"format": "%Y/%m/%d %H:%M:%S:%L %j %%"}, "2024/02/29 22:05:06:007 060 %"),
        ({"format": "%G-W%V-%u %w %U"}, "2024-W09-4 5 08"),
        ({"format": "%b %B"}, "Feb February"),
        ({"format": "%H %z %Z", "timezone": "America/New_York"}, "17 -0500 -300"),
        ({"format": None}, None),
    ],
)
def test_date_to_string(check: Check, parameters: dict[str, object], expected: object) -> None:
    check({"$dateToString": {"date": "$d", **parameters}}, {"d": DAY}, expected)


@pytest.mark.parametrize(
    ("text", "parameters", "expected"),
    [
        ("2017-02-08", {}, at(2017, 2, 8)),
        ("2017-02-08T12:10:40.787Z", {}, at(2017, 2, 8, 12, 10, 40, 787)),
        ("2017-02-08T12:10:40.787+0500", {}, at(2017, 2, 8, 7, 10, 40, 787)),
        ("2017-02-08T12:10:40", {"timezone": "America/New_York"}, at(2017, 2, 8, 17, 10, 40)),
        ("Wed, 08 Feb 2017 12:10:40 GMT", {}, at(2017, 2, 8, 12, 10, 40)),
        ("February 8, 2017 1:05 PM", {}, at(2017, 2, 8, 13, 5)),
        ("06-15-2018", {"format": "%m-%d-%Y"}, at(2018, 6, 15)),
        ("2018 W24 5", {"format": "%G W%V %u"}, at(2018, 6, 15)),
        ("2018-06-15 10:00 +02:00", {"format": "%Y-%m-%d %H:%M %z"}, at(2018, 6, 15, 8)),
        ("nonsense", {"onError": "oops"}, "oops"),
        (None, {"onNull": "none"}, "none"),
    ],
)
def test_date_from_string(check: Check, text: object, parameters: dict[str, object], expected: object) -> None:
    check({"$dateFromString": {"dateString": text, **parameters}}, {}, expected)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"year": 2024}, at(2024, 1, 1)),
        ({"year": 2024, "month": 14, "day": 0}, at(2025, 1, 31)),  # parts carry over
        ({"year": 2024, "month": 3, "hour": -1}, at(2024, 2, 29, 23)),
        ({"isoWeekYear": 2018, "isoWeek": 24, "isoDayOfWeek": 5}, at(2018, 6, 15)),
        ({"year": 2017, "month": 7, "hour": 2, "timezone": "Europe/Berlin"}, at(2017, 7, 1)),
        ({"year": None}, None),
    ],
)
def test_date_from_parts(check: Check, parameters: dict[str, object], expected: object) -> None:
    check({"$dateFromParts": parameters}, {}, expected)


def test_date_to_parts(check: Check) -> None:
    time = {"hour": 22, "minute": 5, "second": 6, "millisecond": 7}
    check({"$dateToParts": {"date": "$d"}}, {"d": DAY}, {"year": 2024, "month": 2, "day": 29, **time})
    iso = {"isoWeekYear": 2024, "isoWeek": 9, "isoDayOfWeek": 4}
    check({"$dateToParts": {"date": "$d", "iso8601": True}}, {"d": DAY}, {**iso, **time})


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
    ("start", "end", "unit", "more", "expected"),
    [
        (at(2023, 12, 31), at(2024, 1, 1), "year", {}, 1),
        (at(2024, 1, 1), at(2024, 12, 31), "year", {}, 0),
        (at(2024, 3, 31), at(2024, 4, 1), "quarter", {}, 1),
        (at(2024, 5, 1), at(2024, 2, 28), "month", {}, -3),
        (at(2024, 1, 6), at(2024, 1, 7), "week", {}, 1),  # weeks begin on Sunday
        (at(2024, 1, 6), at(2024, 1, 7), "week", {"startOfWeek": "monday"}, 0),
        (at(2024, 1, 1, 23), at(2024, 1, 2, 1), "day", {}, 1),
        (at(2024, 1, 1, 23), at(2024, 1, 2, 1), "day", {"timezone": "-05:00"}, 0),
        (at(2024, 1, 1, 0, 59), at(2024, 1, 1, 1, 0), "hour", {}, 1),
        (at(2024, 1, 1), at(2024, 1, 1, ms=999), "second", {}, 0),
    ],
)
def test_date_diff(
    check: Check, start: DatetimeMS, end: DatetimeMS, unit: str, more: dict[str, object], expected: int
) -> None:
    check({"$dateDiff": {"startDate": start, "endDate": end, "unit": unit, **more}}, {}, Int64(expected))


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
    ("expression", "code"),
    [
        ({"$year": "x"}, 16006),
        ({"$year": [1, 2]}, 40536),
        ({"$year": {"date": "$d", "zone": "x"}}, 40535),
        ({"$year": {"timezone": "UTC"}}, 40539),
        ({"$year": {"date": "$d", "timezone": "Mars/Olympus"}}, 40485),
        ({"$year": {"date": "$d", "timezone": 5}}, 40517),
        ({"$dateToString": {"date": "$d", "format": "%"}}, 18535),
        ({"$dateToString": {"date": "$d", "format": "%Q"}}, 18536),
        ({"$dateToString": {"format": "%Y"}}, 18628),
        ({"$dateToString": {"date": DatetimeMS(-(10**15))}}, 18537),
        ({"$dateFromString": {"dateString": "x"}}, ErrorCode.ConversionFailure),
        ({"$dateFromString": {"dateString": "2024-02-30"}}, ErrorCode.ConversionFailure),
        ({"$dateFromString": {}}, 40542),
        ({"$dateFromParts": {"month": 1}}, 40516),
        ({"$dateFromParts": {"year": 10000}}, 40523),
        ({"$dateFromParts": {"year": 2000, "isoWeek": 1}}, 40489),
        ({"$dateFromParts": {"year": "2000"}}, 40515),
        ({"$dateAdd": {"startDate": "$d", "unit": "fortnight", "amount": 1}}, ErrorCode.FailedToParse),
        ({"$dateAdd": {"startDate": "$d", "unit": "day", "amount": 1.5}}, 5166405),
        ({"$dateAdd": {"startDate": 1, "unit": "day", "amount": 1}}, 5166403),
        ({"$dateAdd": {"startDate": "$d", "unit": "day"}}, 5166402),
        ({"$dateDiff": {"startDate": 1, "endDate": "$d", "unit": "day"}}, 5166307),
        ({"$dateDiff": {"startDate": "$d", "endDate": "$d", "unit": "week", "startOfWeek": "x"}}, 5439016),
        ({"$dateTrunc": {"date": "$d", "unit": "day", "binSize": 0}}, 5439018),
        ({"$dateTrunc": {"date": "$d", "unit": "day", "binSize": "1"}}, 5439017),
        ({"$dateTrunc": {"date": "$d", "unit": 5}}, 5439013),
    ],
)
def test_errors(failure: Failure, expression: object, code: int) -> None:
    assert failure(expression, {"d": DAY}).code == code


def test_named_time_zones_need_no_files_of_the_system() -> None:
    program = "from mongottl.query.expr.date.calendar import time_zone; print(time_zone('Asia/Tokyo').name)"
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONTZPATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "Asia/Tokyo\n"
