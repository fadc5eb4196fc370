"""Reading a date from a text without a format, as the library does that MongoDB uses (timelib).

The text is a row of tokens: at each place the form that matches most characters is taken, the first of several. Each
sets parts of the date; spaces, dots, commas and null bytes between tokens are skipped.

    2024-06-15T12:30:45Z           a date, a time that may begin with "T", and a zone
    WED jan 31 12:05:28 +0330 1996 a day of the week, a month with day and time, a zone, and a year
    20609-01-01                    the year 2060, then the date 9-01-01, which sets it again: 2009

So four digits are a time if they can be one and there is no time yet, else a year. Relative forms ("+1 day", "next
month") are not supported. Source: PHP's manual, "Supported Date and Time Formats", which describes the library's forms.
"""

import re
from functools import cache
from typing import Final

from mongottl.query.expr.date.calendar import civil_from_days, days_from_civil, days_in_month, weekday

_HOUR: Final = r"(?P<hour>2[0-4]|[01]?[0-9])"
_HOUR_LZ: Final = r"(?P<hour>2[0-4]|[01][0-9])"
_HOUR_12: Final = r"(?P<hour>1[0-2]|0?[1-9])"
_MINUTE: Final = r"(?P<minute>[0-5]?[0-9])"
_MINUTE_LZ: Final = r"(?P<minute>[0-5][0-9])"
_SECOND: Final = r"(?P<second>60|[0-5]?[0-9])"
_SECOND_LZ: Final = r"(?P<second>60|[0-5][0-9])"
_FRACTION: Final = r"\.(?P<fraction>[0-9]+)"
_HALF: Final = r"[ \t]*(?P<half>[AaPp])\.?[Mm]\.?(?:[\0\t ]|$)"
_OFFSET: Final = r"(?P<zone>(?:GMT)?[+-](?:2[0-4]|[01]?[0-9])(?::?[0-5][0-9](?::?[0-5][0-9])?|:?[0-9])?)"
_ZONE_NAME: Final = r"(?P<zone>[A-Z][a-z]+(?:[_/-][A-Za-z]+)+|\(?[A-Za-z]{1,6}\)?)"
_MONTH: Final = r"(?P<month>1[0-2]|0?[0-9])"
_MONTH_LZ: Final = r"(?P<month>1[0-2]|0[0-9])"
_DAY: Final = r"(?P<day>3[01]|[0-2]?[0-9])"
_DAY_LZ: Final = r"(?P<day>3[01]|[0-2][0-9])"
_YEAR: Final = r"(?P<year>[0-9]{1,4})"
_YEAR_2: Final = r"(?P<year>[0-9]{2})"
_YEAR_4: Final = r"(?P<year>[0-9]{4})"
_MONTHS: Final = (
    "january|february|march|april|may|june|july|august|september|october|november|december"
    "|jan|feb|mar|apr|jun|jul|aug|sept|sep|oct|nov|dec"
)
_NAME: Final = rf"(?P<name>(?i:{_MONTHS})|VIII|VII|III|XII|IV|VI|IX|XI|II|I|V|X)"
_SHORT_NAME: Final = r"(?P<name>(?i:jan|feb|mar|apr|may|jun|jul|aug|sept|sep|oct|nov|dec))"
_ROMAN: Final = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII")
_WEEK: Final = r"(?P<week>5[0-3]|[1-4][0-9]|0[1-9])"
_NO_YEAR: Final = rf"{_NAME}[ .\t-]*{_DAY}(?:[,.stndrh\t ]+|\0|$)"
_TIME_12: Final = rf"{_HOUR_12}(?:[:.]{_MINUTE_LZ}(?:[:.]{_SECOND_LZ})?)?{_HALF}"
_TIME_24: Final = rf"[Tt]?{_HOUR}[:.]{_MINUTE}(?:[:.]{_SECOND}(?:{_FRACTION})?)?"
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

# In the order in which they are preferred if they match equally much.
_FORMS: Final = (
    r"@(?P<since>-?[0-9]+)(?:\.(?P<fraction>[0-9]{0,6}))?",
    rf"{_TIME_12}",
    rf"{_HOUR_12}:{_MINUTE_LZ}:{_SECOND_LZ}[:.](?P<fraction>[0-9]+){_HALF}",
    rf"{_TIME_24}",
    rf"[Tt]{_HOUR}",
    r"[Tt]?(?P<four>(?:2[0-4]|[01][0-9])[0-5][0-9])",
    rf"[Tt]?{_HOUR_LZ}{_MINUTE_LZ}{_SECOND_LZ}",
    rf"{_MONTH}/{_DAY}(?:/{_YEAR})?",
    rf"(?P<year>[+-]?[0-9]{{4}})-{_MONTH_LZ}-{_DAY_LZ}",
    rf"{_YEAR_4}/{_MONTH_LZ}/{_DAY_LZ}/?",
    rf"{_YEAR_2}-{_MONTH_LZ}-{_DAY_LZ}",
    rf"(?P<year>[+-][0-9]{{5,19}})-{_MONTH_LZ}-{_DAY_LZ}",
    rf"{_YEAR_4}-{_MONTH}(?P<first>)",
    rf"{_YEAR}-{_MONTH}-{_DAY}",
    rf"{_DAY}(?:[ \t]*(?:st|nd|rd|th))?[ \t.-]*{_NAME}[ \t.-]*{_YEAR}",
    rf"{_DAY}[.\t-]{_MONTH}[.-]{_YEAR_4}",
    rf"{_DAY}[.\t]{_MONTH}\.{_YEAR_2}",
    rf"{_NAME}[ .\t-]*{_YEAR_4}(?P<first>)",
    rf"{_YEAR_4}[ .\t-]*{_NAME}(?P<first>)",
    rf"{_NAME}[ .\t-]*{_DAY}[,.stndrh\t ]+{_YEAR}",
    rf"{_NO_YEAR}",
    rf"{_DAY}[ .\t-]*{_NAME}",
    rf"{_YEAR_4}{_MONTH_LZ}{_DAY_LZ}",
    rf"{_YEAR_4}{_MONTH_LZ}{_DAY_LZ}T{_HOUR}:{_MINUTE_LZ}:{_SECOND_LZ}",
    rf"{_YEAR_4}{_MONTH_LZ}{_DAY_LZ}[Tt]{_HOUR}{_MINUTE_LZ}{_SECOND_LZ}",
    rf"{_YEAR_4}-{_MONTH_LZ}-{_DAY_LZ}T{_HOUR_LZ}:{_MINUTE_LZ}:{_SECOND_LZ}{_FRACTION}{_OFFSET}?",
    rf"{_YEAR_4}-{_MONTH}-{_DAY}T{_HOUR}:{_MINUTE}:{_SECOND}",
    rf"{_YEAR_4}:{_MONTH_LZ}:{_DAY_LZ} {_HOUR_LZ}:{_MINUTE_LZ}:{_SECOND_LZ}",
    rf"{_YEAR_4}[.-]?(?P<ordinal>36[0-6]|3[0-5][0-9]|[12][0-9][0-9]|0[1-9][0-9]|00[1-9])",
    rf"{_YEAR_4}-?W{_WEEK}(?:-?(?P<weekday>[0-7]))?",
    rf"{_SHORT_NAME}-{_DAY_LZ}-{_YEAR}",
    rf"{_YEAR}-{_SHORT_NAME}-{_DAY_LZ}",
    rf"{_DAY}/{_SHORT_NAME}/{_YEAR_4}:{_HOUR_LZ}:{_MINUTE_LZ}:{_SECOND_LZ}[ \t]+{_OFFSET}",
    rf"{_YEAR_4}(?P<alone>)",
    rf"(?P<dayname>(?i:{'|'.join(_DAYS)}|mon|tues|tue|wed|thurs|thur|thu|fri|sat|sun))",
    rf"(?P<name>(?i:{_MONTHS}))",
    rf"{_OFFSET}",
    rf"{_ZONE_NAME}",
    rf"{_NO_YEAR}{_TIME_12}",
    rf"{_NO_YEAR}{_TIME_24}",
    r"[ .,\t\n\0\u00a0\u202f]+",
)
# Bounds the time that one text takes; no date is that long.
MAX_CHARACTERS: Final = 1000
_SPACES: Final = " \t\n\v\f\r"


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    """The forms, compiled at their first use: that takes longer than the import of all modules of this package."""
    return tuple([re.compile(form) for form in _FORMS])


class DateParts:
    """What the tokens of a text set. None where nothing did.

    zone: the text of a zone, None without one. shift: days to add, for days of a week or year.
    since_ms: the instant of a text "@<seconds>".
    """

    def __init__(self) -> None:
        self.year: int | None = None
        self.month: int | None = None
        self.day: int | None = None
        self.hour: int | None = None
        self.minute = 0
        self.second = 0
        self.millisecond = 0
        self.zone: str | None = None
        self.shift = 0
        self.week_day = -1
        self.has_date = False
        self.times = 0
        self.since_ms: int | None = None


class ScanError(Exception):
    """The text is no date; the message gives the reason."""


def scan_date(text: str) -> DateParts:
    """The parts of a text. ScanError for a form that is not known, for doubled parts and for an impossible date."""
    trimmed = text.strip(_SPACES)
    if trimmed == "":
        raise ScanError("Empty string")
    if len(trimmed) > MAX_CHARACTERS:
        raise ScanError(f"The text has more than {MAX_CHARACTERS} characters")
    parts = DateParts()
    patterns = _patterns()
    at = 0
    while at < len(trimmed):
        best: re.Match[str] | None = None
        for pattern in patterns:
            found = pattern.match(trimmed, at)
            if found is not None and (best is None or found.end() > best.end()):
                best = found
        if best is None or best.end() == at:
            raise ScanError(f"Unexpected character '{trimmed[at]}'")
        _take(parts, best.groupdict())
        at = best.end()
    _check(parts)
    return parts


def _take(parts: DateParts, token: dict[str, str | None]) -> None:
    four = token.get("four")
    if four is not None:
        _take_four_digits(parts, four)
    elif "alone" in token:
        parts.year = int(token["year"] or "0")
    elif token.get("since") is not None:
        _begin_date(parts)
        fraction = token.get("fraction") or ""
        since_ms = int(token["since"] or "0") * 1000
        parts.since_ms = since_ms + (-1 if since_ms < 0 else 1) * int((fraction + "000")[:3])
    else:
        if token.get("dayname") is not None:
            _take_day_name(parts, token["dayname"] or "")
        if token.get("month") is not None or token.get("name") is not None or token.get("year") is not None:
            _take_date(parts, token)
        if token.get("hour") is not None:
            _take_time(parts, token)
    zone = token.get("zone")
    if zone is not None:
        if parts.zone is not None:
            raise ScanError("Double timezone specification")
        parts.zone = zone


def _take_four_digits(parts: DateParts, digits: str) -> None:
    if parts.times == 0:
        parts.hour = int(digits[:2])
        parts.minute = int(digits[2:])
    elif parts.times == 1:
        parts.year = int(digits)
    else:
        raise ScanError("Double time specification")
    parts.times += 1


def _take_day_name(parts: DateParts, name: str) -> None:
    """A day of the week moves the date forward to it, and resets a time before it."""
    for number in range(7):
        if _DAYS[number].startswith(name.lower()[:3]):
            parts.week_day = number
    if parts.times:
        parts.hour = parts.minute = parts.second = parts.millisecond = 0
        parts.times = 0


def _begin_date(parts: DateParts) -> None:
    if parts.has_date:
        raise ScanError("Double date specification")
    parts.has_date = True


def _take_date(parts: DateParts, token: dict[str, str | None]) -> None:
    _begin_date(parts)
    year = token.get("year")
    if year is not None:
        number = int(year)
        if len(year) < 4 and number < 100:
            number += 2000 if number < 70 else 1900
        parts.year = number
    name = token.get("name")
    month = token.get("month")
    day = token.get("day")
    if name is not None:
        parts.month = _month_number(name)
    elif month is not None:
        parts.month = int(month)
    if day is not None:
        parts.day = int(day)
    elif "first" in token:
        parts.day = 1
    ordinal = token.get("ordinal")
    week = token.get("week")
    if ordinal is not None or week is not None:
        parts.month = parts.day = 1
    if ordinal is not None:
        parts.shift = int(ordinal) - 1
    if week is not None and parts.year is not None:
        fourth = days_from_civil(parts.year, 1, 4)
        first = fourth - weekday(fourth)
        in_week = token.get("weekday")
        wanted = first + (int(week) - 1) * 7 + (0 if in_week is None else int(in_week) - 1)
        parts.shift = wanted - days_from_civil(parts.year, 1, 1)


def _month_number(name: str) -> int:
    if name in _ROMAN:
        return _ROMAN.index(name) + 1
    return ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec").index(
        name.lower()[:3]
    ) + 1


def _take_time(parts: DateParts, token: dict[str, str | None]) -> None:
    if parts.times:
        raise ScanError("Double time specification")
    parts.times = 1
    hour = int(token["hour"] or "0")
    half = token.get("half")
    if half is not None:
        hour = hour % 12 + (12 if half in "Pp" else 0)
    parts.hour = hour
    parts.minute = int(token.get("minute") or "0")
    parts.second = int(token.get("second") or "0")
    parts.millisecond = int(((token.get("fraction") or "") + "000")[:3])


def _check(parts: DateParts) -> None:
    if parts.hour is not None and (parts.hour > 23 or parts.second > 59):
        raise ScanError("The parsed time was invalid")
    year, month, day = parts.year, parts.month, parts.day
    if year is not None and month is not None and day is not None:
        if not 1 <= month <= 12 or not 1 <= day <= days_in_month(year, month):
            raise ScanError("The parsed date was invalid")
        if parts.shift or parts.week_day >= 0:
            days = days_from_civil(year, month, day) + parts.shift
            if parts.week_day >= 0:
                days += (parts.week_day - weekday(days)) % 7
            parts.year, parts.month, parts.day = civil_from_days(days)
