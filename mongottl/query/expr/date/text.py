"""Parsing of dates, for `$dateFromString`, `$toDate` and `$convert`.

Without a format: every form of `scanner`; the usual one, `2024-01-31T12:00:00.000Z`, is read at once. With a format:
the conversion specifiers of `$dateToString`.
"""

import re
from functools import cache
from typing import Final

from mongottl.document.interrupt import give_way
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.expr.date.calendar import (
    MONTH_NAMES,
    MS_PER_DAY,
    MS_PER_MINUTE,
    MS_PER_SECOND,
    UTC,
    TimeZone,
    civil_ms,
    days_from_civil,
    days_in_month,
    is_leap,
    time_zone,
    weekday,
)
from mongottl.query.expr.date.scanner import MAX_CHARACTERS, ScanError, scan_date


class TextError(Exception):
    """The text is not a date; the message gives the reason."""


@cache
def _iso_pattern() -> re.Pattern[str]:
    """The usual form, of which the parts are in ranges but for the days of a month."""
    return re.compile(
        r"(?P<year>\d{4})-(?P<month>0[1-9]|1[0-2])-(?P<day>0[1-9]|[12]\d|3[01])"
        r"(?:[Tt ](?P<hour>[01]\d|2[0-3]):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d)(?:\.(?P<fraction>\d+))?)?"
        r"(?:(?P<offset>[+-]\d{2}:?\d{2})|(?P<zone>Z))?)?",
        re.ASCII,
    )


_ABBREVIATIONS: Final[dict[str, int]] = {
    "EST": -300,
    "EDT": -240,
    "CST": -360,
    "CDT": -300,
    "MST": -420,
    "MDT": -360,
    "PST": -480,
    "PDT": -420,
    "CET": 60,
    "CEST": 120,
    "BST": 60,
    "JST": 540,
    "AKST": -540,
    "AKDT": -480,
    "HST": -600,
    "WET": 0,
    "WEST": 60,
    "EET": 120,
    "EEST": 180,
    "MSK": 180,
    "KST": 540,
    "AEST": 600,
    "AEDT": 660,
    "NZST": 720,
    "NZDT": 780,
}


def _month_number(name: str) -> int:
    lowered = name.lower()
    for i in range(12):
        full = MONTH_NAMES[i].lower()
        if lowered in (full, full[:3]) or (lowered == "sept" and i == 8):
            return i + 1
    raise TextError(f"unknown month '{name}'")


def parse_date_text(text: str, zone: TimeZone | None) -> int:
    """The instant of a text, in milliseconds. TextError if it is not a date.

    zone: for a text without time zone; it is an error if both have one.
    """
    usual = _iso_pattern().fullmatch(text) if len(text) <= MAX_CHARACTERS else None
    if usual is not None:
        return _instant(usual.groupdict(), zone)
    try:
        parts = scan_date(text)
    except ScanError as error:
        raise TextError(str(error)) from None
    if parts.since_ms is not None:
        if zone is not None and not zone.is_utc():
            raise _zone_given_twice(text)
        return parts.since_ms
    if parts.year is None or parts.month is None or parts.day is None:
        raise TextError("an incomplete date/time string has been found, with elements missing")
    hour = 0 if parts.hour is None else parts.hour
    local = civil_ms(parts.year, parts.month, parts.day, hour, parts.minute, parts.second, parts.millisecond)
    named = parts.zone
    if named is None:
        return (UTC if zone is None else zone).to_utc(local)
    if zone is not None and not zone.is_utc():
        raise _zone_given_twice(named)
    named = named.strip("()")
    if named[0] in "+-" or named.startswith(("GMT+", "GMT-")):
        return local - _offset_ms(named.removeprefix("GMT"))
    return _named(named).to_utc(local)


def _zone_given_twice(zone: str) -> TextError:
    return TextError(
        f"you cannot pass in a date/time string with time zone information ('{zone}') together with a timezone argument"
    )


def _instant(parts: dict[str, str | None], zone: TimeZone | None) -> int:
    year = _number(parts, "year", 0)
    if parts.get("name") is not None:
        month = _month_number(parts["name"] or "")
    else:
        month = _number(parts, "month", 1)
    day = _number(parts, "day", 1)
    hour = _number(parts, "hour", 0)
    minute = _number(parts, "minute", 0)
    second = _number(parts, "second", 0)
    half = parts.get("half")
    if half is not None:
        if not 1 <= hour <= 12:
            raise TextError("unexpected character")
        hour = hour % 12 + (12 if half in "Pp" else 0)
    if not 1 <= month <= 12 or not 1 <= day <= 31 or hour > 24 or minute > 59 or second > 60:
        raise TextError("unexpected character")
    if day > days_in_month(year, month):
        raise TextError("The parsed date was invalid")
    fraction = parts.get("fraction")
    millisecond = 0 if fraction is None else int((fraction + "00")[:3])
    local = civil_ms(year, month, day, hour, minute, second, millisecond)
    if parts.get("ordinal") is not None:
        ordinal = _number(parts, "ordinal", 1)
        if not 1 <= ordinal <= (366 if is_leap(year) else 365):
            raise TextError("unexpected character")
        local += (ordinal - 1 + _number(parts, "shift", 0)) * MS_PER_DAY
    if parts.get("week") is not None:
        week = _number(parts, "week", 1)
        week_day = _number(parts, "weekday", 1)
        local += (iso_day(year, week, week_day) - days_from_civil(year, 1, 1)) * MS_PER_DAY
    return _zoned(local, parts, zone)


def iso_day(year: int, week: int, day: int) -> int:
    """The day number of an ISO week date."""
    fourth = days_from_civil(year, 1, 4)
    return fourth - weekday(fourth) + (week - 1) * 7 + day - 1


def _number(parts: dict[str, str | None], key: str, default: int) -> int:
    value = parts.get(key)
    return default if value is None else int(value)


def _zoned(local: int, parts: dict[str, str | None], zone: TimeZone | None) -> int:
    offset = parts.get("offset")
    name = parts.get("zone")
    if offset is None and name is None:
        return (UTC if zone is None else zone).to_utc(local)
    if zone is not None and not zone.is_utc():
        raise _zone_given_twice(offset or name or "")
    if offset is not None:
        return local - _offset_ms(offset)
    return _named(name or "").to_utc(local)


def _offset_ms(offset: str) -> int:
    """A signed offset as `H`, `HH`, `HMM`, `HHMM`, `HHMMSS`, or with colons."""
    hours, *rest = offset[1:].split(":")
    if not rest:
        digits = hours
        width = len(digits) if len(digits) <= 2 else 2 if len(digits) != 3 else 1
        hours, rest = digits[:width], [digits[width : width + 2], digits[width + 2 :]]
    seconds = int(hours) * 3600
    for part, unit in zip(rest, (60, 1), strict=False):
        seconds += int(part or "0") * unit
    return (-seconds if offset[0] == "-" else seconds) * MS_PER_SECOND


def _named(name: str) -> TimeZone:
    if name in ("Z", "z"):
        return UTC
    minutes = _ABBREVIATIONS.get(name.upper())
    if minutes is not None:
        return TimeZone(minutes * MS_PER_MINUTE, None, name)
    if len(name) == 1:  # a military zone
        letter = name.upper()
        if letter in "ABCDEFGHI":
            return TimeZone((ord(letter) - ord("A") + 1) * 60 * MS_PER_MINUTE, None, name)
        if letter in "KLM":
            return TimeZone((ord(letter) - ord("A")) * 60 * MS_PER_MINUTE, None, name)
        if "N" <= letter <= "Y":
            return TimeZone(-(ord(letter) - ord("N") + 1) * 60 * MS_PER_MINUTE, None, name)
    try:
        return time_zone(name)
    except CommandError:
        raise TextError("The timezone could not be found in the database") from None


# Conversion specifier to (part, maximal number of digits).
_SPECIFIERS: Final[dict[str, tuple[str, str]]] = {
    "d": ("day", r"\d{1,2}"),
    "G": ("iso_year", r"\d{4}"),
    "H": ("hour", r"\d{1,2}"),
    "L": ("fraction", r"\d{1,3}"),
    "m": ("month", r"\d{1,2}"),
    "M": ("minute", r"\d{1,2}"),
    "S": ("second", r"\d{1,2}"),
    "u": ("weekday", r"\d"),
    "V": ("week", r"\d{1,2}"),
    "Y": ("year", r"\d{4}"),
    "j": ("ordinal", r"\d{1,3}"),
    "b": ("name", r"[A-Za-z]{3}"),
    "B": ("name", r"[A-Za-z]{3,9}"),
    "z": ("offset", r"[+-]\d{2}:?\d{2}"),
    "Z": ("minutes", r"[+-]?\d{1,4}"),
}


_PARSED_LETTERS: Final = "".join(_SPECIFIERS) + "%"


def check_parse_format(format: str) -> None:
    """Checks the format of a `$dateFromString`: errors of `check_format`."""
    check_format(format, _PARSED_LETTERS)


def check_format(format: str, letters: str) -> None:
    """18535 for a `%` at the end, 18536 for one with a letter that is not in `letters`."""
    i = 0
    while i < len(format):
        give_way()
        if format[i] == "%":
            i += 1
            if i >= len(format):
                raise CommandError(18535, "Unmatched '%' at end of format string")
            if format[i] not in letters:
                raise CommandError(18536, f"Invalid format character '%{format[i]}' in format string")
        i += 1


def parse_formatted(text: str, format: str, zone: TimeZone | None) -> int:
    """The instant of a text in a format. TextError if it does not match, or one of both has more than
    `MAX_CHARACTERS`."""
    check_parse_format(format)
    for name, given in (("format", format), ("text", text)):
        if len(given) > MAX_CHARACTERS:
            raise TextError(f"the {name} has more than {MAX_CHARACTERS} characters")
    pattern = ""
    seen: list[str] = []
    i = 0
    while i < len(format):
        give_way()
        char = format[i]
        if char != "%":
            pattern += re.escape(char)
        else:
            i += 1
            char = format[i]
            if char == "%":
                pattern += "%"
            else:
                part, digits = _SPECIFIERS[char]
                if part in seen:
                    raise TextError(f"two values for '%{char}'")
                seen.append(part)
                pattern += f"(?P<{part}>{digits})"
        i += 1
    found = re.fullmatch(pattern, text, re.ASCII)
    if found is None:
        raise TextError(f"the text does not fit the format '{format}'")
    parts: dict[str, str | None] = dict(found.groupdict())
    if "iso_year" in parts:
        parts["year"] = parts["iso_year"]
        parts.setdefault("week", "1")
        parts.setdefault("weekday", "1")
    if "year" not in parts:
        raise TextError("an incomplete date/time string has been found, with elements missing")
    if "ordinal" in parts:
        parts["shift"] = "1"  # mongod parses days of a year from 0, although it formats them from 1
    minutes = parts.get("minutes")
    if minutes is not None:
        sign = "-" if minutes.startswith("-") else "+"
        total = abs(int(minutes))
        parts["offset"] = f"{sign}{total // 60}:{total % 60}"
    return _instant(parts, zone)


def conversion_error(text: str, reason: str) -> CommandError:
    return CommandError(ErrorCode.ConversionFailure, f"Error parsing date string '{text}'; {reason}")
