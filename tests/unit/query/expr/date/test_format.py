"""Strings of dates, and dates of strings."""

from collections.abc import Callable
from typing import Any

import pytest
from bson import Timestamp
from bson.datetime_ms import DatetimeMS

from mongottl.errors import CommandError, ErrorCode
from tests.unit.query.expr.date.moments import DAY, at

Check = Callable[[object, dict[str, Any], object], None]
Failure = Callable[[object, dict[str, Any]], CommandError]


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
def test_date_to_string_of_january_2014(check: Check, parameters: dict[str, object], expected: object) -> None:
    check({"$dateToString": {"date": at(2014, 1, 1, 8, 15, 39, 736), **parameters}}, {}, expected)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"dateString": "2017-02-08"}, at(2017, 2, 8)),
        ({"dateString": "2017-02-08T12:10:40.787Z"}, at(2017, 2, 8, 12, 10, 40, 787)),
        ({"dateString": "2017-02-08T12:10:40.787+0500"}, at(2017, 2, 8, 7, 10, 40, 787)),
        ({"dateString": "2017-02-08T12:10:40", "timezone": "America/New_York"}, at(2017, 2, 8, 17, 10, 40)),
        ({"dateString": "Wed, 08 Feb 2017 12:10:40 GMT"}, at(2017, 2, 8, 12, 10, 40)),
        ({"dateString": "February 8, 2017 1:05 PM"}, at(2017, 2, 8, 13, 5)),
        ({"dateString": "06-15-2018", "format": "%m-%d-%Y"}, at(2018, 6, 15)),
        ({"dateString": "2018 W24 5", "format": "%G W%V %u"}, at(2018, 6, 15)),
        ({"dateString": "2018-06-15 10:00 +02:00", "format": "%Y-%m-%d %H:%M %z"}, at(2018, 6, 15, 8)),
        ({"dateString": "nonsense", "onError": "oops"}, "oops"),
        ({"dateString": None, "onNull": "none"}, "none"),
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
        ({"dateString": "2018-06-15 +6001", "format": "%Y-%m-%d %Z"}, at(2018, 6, 10, 19, 59)),
        ({"dateString": "2018-06-15 1" + "0" * 5000, "format": "%Y-%m-%d %Z", "onError": "bad"}, "bad"),
        ({"dateString": "2018" + "x" * 996, "format": "%Y" + "x" * 996}, at(2018, 1, 1)),
        ({"dateString": "2018" + "x" * 997, "format": "%Y" + "x" * 997, "onError": "bad"}, "bad"),
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
def test_date_from_string(check: Check, parameters: dict[str, object], expected: object) -> None:
    check({"$dateFromString": parameters}, {}, expected)


@pytest.mark.parametrize(
    ("operator", "operand", "code"),
    [
        ("$dateFromString", {"dateString": "x"}, ErrorCode.ConversionFailure),
        ("$dateFromString", {"dateString": "2024-02-30"}, ErrorCode.ConversionFailure),
        ("$dateFromString", {}, 40542),
        ("$dateFromString", 1, 40540),
        ("$dateFromString", {"dateString": "2024-01-01", "x": 1}, 40541),
        ("$dateFromString", {"dateString": "2024-01-01", "format": 5}, 40684),
        ("$dateFromString", {"dateString": "2024-01-01", "format": "%q"}, 18536),
        ("$dateFromString", {"dateString": 5}, ErrorCode.ConversionFailure),
        ("$dateFromString", {"dateString": "2024-13-01"}, ErrorCode.ConversionFailure),
        ("$dateFromString", {"dateString": "2024-01-01", "timezone": 5}, 40517),
        ("$dateToString", {"date": "$d", "format": "%"}, 18535),
        ("$dateToString", {"date": "$d", "format": "%Q"}, 18536),
        ("$dateToString", {"format": "%Y"}, 18628),
        ("$dateToString", {"date": DatetimeMS(-(10**15))}, 18537),
        ("$dateToString", 1, 18629),
        ("$dateToString", {"date": "$d", "x": 1}, 18534),
        ("$dateToString", {"date": "$d", "format": 5}, 18533),
        ("$dateToString", {"date": 5}, 16006),
    ],
)
def test_refusals_of_formats(failure: Failure, operator: str, operand: object, code: int) -> None:
    assert failure({operator: operand}, {"d": DAY}).code == code
