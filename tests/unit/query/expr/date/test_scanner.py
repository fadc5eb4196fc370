"""Forms of dates without a format: what timelib, the library of MongoDB, reads from a text."""

import pytest

from mongottl.query.expr.date.calendar import civil_ms, time_zone
from mongottl.query.expr.date.scanner import MAX_CHARACTERS
from mongottl.query.expr.date.text import TextError, parse_date_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-06-15T12:30:45Z", (2024, 6, 15, 12, 30, 45, 0)),
        ("2017-07-04T11:56:02.813Z", (2017, 7, 4, 11, 56, 2, 813)),
        ("2017-07-04T11:00:00.1239567+02:00", (2017, 7, 4, 9, 0, 0, 123)),
        ("2017-07-04t5:30:00.5 GMT+1", (2017, 7, 4, 4, 30, 0, 500)),
        ("2024-06-15\t12:30:45 Z", (2024, 6, 15, 12, 30, 45, 0)),
        ("\x002024-06-15  12:30:45+00\x00", (2024, 6, 15, 12, 30, 45, 0)),
        ("\u00a02024-06-15 12:30:45\u202f", (2024, 6, 15, 12, 30, 45, 0)),
        ("2024-06-15T12:30:45-0530", (2024, 6, 15, 18, 0, 45, 0)),
        ("2024-06-15T12:30:45+1:30", (2024, 6, 15, 11, 0, 45, 0)),
        ("WED jan 31 12:05:28 +03:30 1996", (1996, 1, 31, 8, 35, 28, 0)),
        ("jan 31 12:05:28 +03:30 2024", (2024, 1, 31, 8, 35, 28, 0)),
        ("Fri, 7 Jul 2017 12:00:00 GMT", (2017, 7, 7, 12, 0, 0, 0)),
        ("Sunday 2017-07-04", (2017, 7, 9, 0, 0, 0, 0)),
        ("July 4, 2017", (2017, 7, 4, 0, 0, 0, 0)),
        ("4th July 2017", (2017, 7, 4, 0, 0, 0, 0)),
        ("July 4 2017 5pm", (2017, 7, 4, 17, 0, 0, 0)),
        ("2017-07-04 12:30 a.m.", (2017, 7, 4, 0, 30, 0, 0)),
        ("12/31/2017", (2017, 12, 31, 0, 0, 0, 0)),
        ("1/2/03", (2003, 1, 2, 0, 0, 0, 0)),
        ("31.12.2017", (2017, 12, 31, 0, 0, 0, 0)),
        ("20170704T120000", (2017, 7, 4, 12, 0, 0, 0)),
        ("2017-185", (2017, 7, 4, 0, 0, 0, 0)),
        ("2017-W27-2", (2017, 7, 4, 0, 0, 0, 0)),
        ("2017-07", (2017, 7, 1, 0, 0, 0, 0)),
        ("10/Oct/2000:13:55:36 -0700", (2000, 10, 10, 20, 55, 36, 0)),
        ("2017-07-04T00:00:00 America/New_York", (2017, 7, 4, 4, 0, 0, 0)),
        ("2017-07-04 11:56 (EST)", (2017, 7, 4, 16, 56, 0, 0)),
        ("@1500000000.25", (2017, 7, 14, 2, 40, 0, 250)),
        ("-0001-01-01T00:00:00Z", (-1, 1, 1, 0, 0, 0, 0)),
        ("+12017-07-04", (12017, 7, 4, 0, 0, 0, 0)),
        # Four digits that are no time are a year; what follows is another date.
        ("20609-01-01T00:00:00Z", (2009, 1, 1, 0, 0, 0, 0)),
        ("199990-01-01T00:00:00Z", (1990, 1, 1, 0, 0, 0, 0)),
    ],
)
def test_dates(text: str, expected: tuple[int, int, int, int, int, int, int]) -> None:
    year, month, day, hour, minute, second, millisecond = expected
    assert parse_date_text(text, None) == civil_ms(year, month, day, hour, minute, second, millisecond)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0",
        "2024",
        "12:30",
        "July 4",
        "Friday",
        "not-a-date",
        "\u20002024-06-15",
        "2024 -06-15T12:30:45Z",
        "2024-06-15T12: 30:45Z",
        "2024-06-15T12:30:45,5Z",
        "2017-13-01",
        "2017-02-30",
        "2017-02-28T24:00:00",
        "2017-02-28T23:59:60",
        "20599-01-01T00:00:00Z",
        "10000-01-01T00:00:00Z",
        "2017-01-01 2017-01-02",
        "2017-01-01 10:00 11:00",
        "2017-01-01T10:00Z EST",
        "2017-01-01T10:00 Nowhere/Land",
        "2017-01-01" + " " * MAX_CHARACTERS + "10:00",
    ],
)
def test_no_dates(text: str) -> None:
    with pytest.raises(TextError):
        parse_date_text(text, None)


def test_a_zone_is_given_once() -> None:
    berlin = time_zone("Europe/Berlin")
    assert parse_date_text("2017-07-04 12:00", berlin) == civil_ms(2017, 7, 4, 10, 0, 0, 0)
    for text in ("2017-07-04T12:00Z", "July 4 2017 EST", "@1500000000"):
        with pytest.raises(TextError):
            parse_date_text(text, berlin)
