"""Parts of dates, arithmetic of dates and their text; see test_dates for the plain cases."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId, Timestamp
from bson.datetime_ms import DatetimeMS

from mongottl.errors import CommandError, ErrorCode

Check = Callable[[object, dict[str, Any], object], None]
Failure = Callable[[object, dict[str, Any]], CommandError]


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, ms: int = 0) -> DatetimeMS:
    moment = datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.UTC)
    return DatetimeMS(int(moment.timestamp()) * 1000 + ms)


PARTS = (
    "$year $month $dayOfMonth $hour $minute $second $millisecond $dayOfYear $dayOfWeek $isoDayOfWeek $week $isoWeek "
    "$isoWeekYear"
).split()


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
def test_parts(check: Check, day: object, parts: list[int]) -> None:
    for operator, part in zip(PARTS, parts, strict=True):
        check({operator: "$d"}, {"d": day}, Int64(part) if operator == "$isoWeekYear" else part)


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
def test_what_is_no_date(check: Check, failure: Failure, operator: str) -> None:
    for nothing in (None, "$n", "$missing", {"date": None}, {"date": "$missing", "timezone": "Mars/Olympus"}):
        check({operator: nothing}, {"n": None}, None)
    for wrong in ("2024-01-01", 5, True, Int64(0), Decimal128("0")):
        assert failure({operator: "$v"}, {"v": wrong}).code == 16006
    assert failure({operator: []}, {}).code == 40536


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
def test_adding(check: Check, operator: str, parameters: dict[str, object], expected: object) -> None:
    check({operator: {"startDate": at(2020, 10, 31, 10, 10), **parameters}}, {}, expected)


@pytest.mark.parametrize(
    ("start", "end", "parameters", "expected"),
    [
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
def test_difference(
    check: Check, start: object, end: object, parameters: dict[str, object], expected: int | None
) -> None:
    wanted = None if expected is None else Int64(expected)
    check({"$dateDiff": {"startDate": start, "endDate": end, **parameters}}, {}, wanted)


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
def test_truncation(check: Check, parameters: dict[str, object], expected: object) -> None:
    check({"$dateTrunc": {"date": at(2021, 3, 20, 11, 30, 5, 444), **parameters}}, {}, expected)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        # The page: 1 January 2014, 8:15:39.736.
        ({"format": "%Y-%m-%d"}, "2014-01-01"),
        ({"format": "%H:%M:%S:%L%z", "timezone": "America/New_York"}, "03:15:39:736-0500"),
        ({"format": "%H:%M:%S:%L%z", "timezone": "+04:30"}, "12:45:39:736+0430"),
        ({"format": "%Y-%m-%d", "date": None}, None),
        ({"date": "$missing", "onNull": "none"}, "none"),
        ({"date": None, "onNull": "$missing"}, ...),
        ({"format": "", "timezone": "UTC"}, ""),
        ({"format": "%Z %%%H", "timezone": "Asia/Kolkata"}, "330 %13"),
        ({"timezone": "$missing"}, None),
        ({"format": "%Y", "date": DatetimeMS(-62_167_219_200_000)}, "0000"),
        ({"format": "%d %B %Y", "date": Timestamp(0, 1)}, "01 January 1970"),
    ],
)
def test_text_of_a_date(check: Check, parameters: dict[str, object], expected: object) -> None:
    check({"$dateToString": {"date": at(2014, 1, 1, 8, 15, 39, 736), **parameters}}, {}, expected)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"dateString": "2017-02-08T12:10:40.787", "timezone": "America/New_York"}, at(2017, 2, 8, 17, 10, 40, 787)),
        ({"dateString": "2017-02-08", "timezone": "-1000"}, at(2017, 2, 8, 10)),
        ({"dateString": "2017-07-08", "timezone": "Europe/London"}, at(2017, 7, 7, 23)),
        ({"dateString": "20170208"}, at(2017, 2, 8)),
        ({"dateString": "15/06/2018", "format": "%d/%m/%Y"}, at(2018, 6, 15)),
        ({"dateString": "2018.165", "format": "%Y.%j"}, at(2018, 6, 15)),  # counted from 0: so does the oracle
        ({"dateString": "15 Jun 2018", "format": "%d %b %Y"}, at(2018, 6, 15)),
        ({"dateString": "15 june 2018", "format": "%d %B %Y"}, at(2018, 6, 15)),
        ({"dateString": "2018-06-15 10:11:12.5", "format": "%Y-%m-%d %H:%M:%S.%L"}, at(2018, 6, 15, 10, 11, 12, 500)),
        ({"dateString": "15 Sept 2018", "format": "%d %B %Y"}, at(2018, 9, 15)),
        ({"dateString": "2018-W24-5", "format": "%G-W%V-%u"}, at(2018, 6, 15)),
        ({"dateString": "2018", "format": "%G"}, at(2018, 1, 1)),
        ({"dateString": "2018-06-15 -90", "format": "%Y-%m-%d %Z"}, at(2018, 6, 15, 1, 30)),
        ({"dateString": "2018-06-15 +0530", "format": "%Y-%m-%d %z"}, at(2018, 6, 14, 18, 30)),
        ({"dateString": "100% 2018", "format": "100%% %Y"}, at(2018, 1, 1)),
        # The letters of military zones, without J.
        ({"dateString": "2018-06-15T12:00:00A"}, at(2018, 6, 15, 11)),
        ({"dateString": "2018-06-15T12:00:00I"}, at(2018, 6, 15, 3)),
        ({"dateString": "2018-06-15T12:00:00k"}, at(2018, 6, 15, 2)),
        ({"dateString": "2018-06-15T12:00:00M"}, at(2018, 6, 15, 0)),
        ({"dateString": "2018-06-15T12:00:00N"}, at(2018, 6, 15, 13)),
        ({"dateString": "2018-06-15T12:00:00Y"}, at(2018, 6, 16, 0)),
        ({"dateString": "2018-06-15T12:00:00Z"}, at(2018, 6, 15, 12)),
        ({"dateString": "2018-06-15T12:00:00J", "onError": "bad"}, "bad"),
        ({"dateString": "15 Juno 2018", "format": "%d %b %Y", "onError": "bad"}, "bad"),
        ({"dateString": "2018.400", "format": "%Y.%j", "onError": "bad"}, "bad"),
        ({"dateString": "2018-02-30", "onError": "bad"}, "bad"),
        ({"dateString": "06-15", "format": "%m-%d", "onError": "bad"}, "bad"),
        ({"dateString": "2018 2018", "format": "%Y %Y", "onError": "bad"}, "bad"),
        ({"dateString": "$missing"}, None),
        ({"dateString": "2017-02-08", "format": None}, None),
        ({"dateString": "2017-02-08", "timezone": "$missing"}, None),
        ({"dateString": 5, "onError": "oops"}, "oops"),
        ({"dateString": "x", "onError": "$missing"}, ...),
    ],
)
def test_date_of_a_text(check: Check, parameters: dict[str, object], expected: object) -> None:
    check({"$dateFromString": parameters}, {}, expected)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
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
def test_date_of_parts(check: Check, parameters: dict[str, object], expected: object) -> None:
    check({"$dateFromParts": parameters}, {}, expected)


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
def test_parts_of_a_date(check: Check, parameters: dict[str, object], expected: object) -> None:
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
        ("$dateFromParts", 1, 40519),
        ("$dateFromParts", {"year": 2024, "x": 1}, 40518),
        ("$dateFromParts", {"year": 2024, "isoWeekYear": 2024}, 40489),
        ("$dateFromParts", {"isoWeekYear": 2024, "month": 1}, 40525),
        ("$dateFromParts", {"year": 2024, "month": 1.5}, 40515),
        ("$dateFromParts", {"year": 0}, 40523),
        ("$dateFromParts", {"year": 2024, "timezone": "x"}, 40485),
        ("$dateFromString", 1, 40540),
        ("$dateFromString", {"dateString": "2024-01-01", "x": 1}, 40541),
        ("$dateFromString", {"dateString": "2024-01-01", "format": 5}, 40684),
        ("$dateFromString", {"dateString": "2024-01-01", "format": "%q"}, 18536),
        ("$dateFromString", {"dateString": 5}, ErrorCode.ConversionFailure),
        ("$dateFromString", {"dateString": "2024-13-01"}, ErrorCode.ConversionFailure),
        ("$dateFromString", {"dateString": "2024-01-01", "timezone": 5}, 40517),
        ("$dateToString", 1, 18629),
        ("$dateToString", {"date": "$d", "x": 1}, 18534),
        ("$dateToString", {"date": "$d", "format": 5}, 18533),
        ("$dateToString", {"date": 5}, 16006),
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
        ("$dateDiff", 1, 5166301),
        ("$dateDiff", {"startDate": "$d", "endDate": "$d", "unit": "day", "x": 1}, 5166302),
        ("$dateDiff", {"endDate": "$d", "unit": "day"}, 5166303),
        ("$dateDiff", {"startDate": "$d", "unit": "day"}, 5166304),
        ("$dateDiff", {"startDate": "$d", "endDate": "$d"}, 5166305),
        ("$dateDiff", {"startDate": "$d", "endDate": "$d", "unit": 5}, 5439013),
        ("$dateDiff", {"startDate": "$d", "endDate": "$d", "unit": "x"}, ErrorCode.FailedToParse),
        ("$dateDiff", {"startDate": "$d", "endDate": "$d", "unit": "week", "startOfWeek": 5}, 5439015),
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
def test_refusals(failure: Failure, operator: str, operand: object, code: int) -> None:
    assert failure({operator: operand}, {"d": at(2024, 2, 29)}).code == code
