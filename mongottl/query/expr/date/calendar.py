"""The proleptic Gregorian calendar for BSON's range of dates, and time zones.

Instants are milliseconds since 1970-01-01T00:00:00Z, day numbers are days since that day. Local times are instants plus
the zone's offset, so that the same calendar functions serve for both.
"""

import datetime
from typing import Final

from mongottl.errors import CommandError

MS_PER_SECOND: Final = 1000
MS_PER_MINUTE: Final = 60_000
MS_PER_HOUR: Final = 3_600_000
MS_PER_DAY: Final = 86_400_000

# The range of instants of Python's zones; outside of it, the offset at the nearest instant is used.
_FIRST_MS: Final = -62135596800000 + 2 * MS_PER_DAY
_LAST_MS: Final = 253402300799000 - 2 * MS_PER_DAY
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

MONTH_NAMES: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)


def days_from_civil(year: int, month: int, day: int) -> int:
    """The day number of a date; `day` may be outside the month."""
    year -= month <= 2
    era = year // 400
    year_of_era = year - era * 400
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * 146097 + day_of_era - 719468


def civil_from_days(days: int) -> tuple[int, int, int]:
    """(year, month, day) of a day number."""
    days += 719468
    era = days // 146097
    day_of_era = days - era * 146097
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    year = year_of_era + era * 400
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + (3 if shifted < 10 else -9)
    return year + (month <= 2), month, day


def is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def days_in_month(year: int, month: int) -> int:
    if month == 2:
        return 29 if is_leap(year) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def weekday(days: int) -> int:
    """0 for Monday to 6 for Sunday."""
    return (days + 3) % 7


def iso_week(days: int) -> tuple[int, int]:
    """(ISO year, ISO week) of a day: weeks begin on Monday and belong to the year of their Thursday."""
    thursday = days - weekday(days) + 3
    year, _, _ = civil_from_days(thursday)
    return year, (thursday - days_from_civil(year, 1, 1)) // 7 + 1


class LocalTime:
    """The parts of a local time, given in milliseconds."""

    def __init__(self, local_ms: int) -> None:
        days, rest = divmod(local_ms, MS_PER_DAY)
        self.days: Final = days
        self.rest: Final = rest  # milliseconds of the day
        year, month, day = civil_from_days(days)
        self.year: Final = year
        self.month: Final = month
        self.day: Final = day

    def hour(self) -> int:
        return self.rest // MS_PER_HOUR

    def minute(self) -> int:
        return self.rest // MS_PER_MINUTE % 60

    def second(self) -> int:
        return self.rest // MS_PER_SECOND % 60

    def millisecond(self) -> int:
        return self.rest % 1000

    def day_of_year(self) -> int:
        return self.days - days_from_civil(self.year, 1, 1) + 1

    def week(self) -> int:
        """The week of the year, 0 to 53; weeks begin on Sunday, and the first one with the first Sunday."""
        sunday_based = (weekday(self.days) + 1) % 7
        return (self.day_of_year() - 1 + 7 - sunday_based) // 7


class TimeZone:
    """A fixed offset, or a zone of the IANA database."""

    def __init__(self, offset_ms: int, zone: datetime.tzinfo | None, name: str) -> None:
        self._offset_ms: Final = offset_ms
        self._zone: Final = zone
        self.name: Final = name

    def is_utc(self) -> bool:
        return self._zone is None and self._offset_ms == 0

    def offset_ms(self, utc_ms: int) -> int:
        """The offset of local time from UTC at an instant, in milliseconds."""
        zone = self._zone
        if zone is None:
            return self._offset_ms
        clamped = min(max(utc_ms, _FIRST_MS), _LAST_MS)
        offset = (_EPOCH + datetime.timedelta(milliseconds=clamped)).astimezone(zone).utcoffset()
        return 0 if offset is None else int(offset.total_seconds()) * 1000

    def local(self, utc_ms: int) -> LocalTime:
        return LocalTime(utc_ms + self.offset_ms(utc_ms))

    def to_utc(self, local_ms: int) -> int:
        """The instant of a local time. If it occurs twice (clocks set back), the first; in a gap (clocks set forward),
        with the offset before it."""
        if self._zone is None:
            return local_ms - self._offset_ms
        before = local_ms - self.offset_ms(local_ms - MS_PER_DAY)
        if before + self.offset_ms(before) == local_ms:
            return before
        after = local_ms - self.offset_ms(local_ms + MS_PER_DAY)
        if after + self.offset_ms(after) == local_ms:
            return after
        return before


UTC: Final = TimeZone(0, None, "UTC")
_UTC_NAMES: Final = frozenset({"UTC", "GMT", "Etc/UTC", "Etc/GMT", "Zulu", "UCT", "Universal", "Etc/UCT"})
_KNOWN: Final[dict[str, TimeZone]] = {"UTC": UTC, "GMT": UTC}


def time_zone(name: str) -> TimeZone:
    """The zone of an IANA name or an offset `±hh[[:]mm]`. 40485 for other texts."""
    known = _KNOWN.get(name)
    if known is not None:
        return known
    zone = _fixed_zone(name) if name[:1] in ("+", "-") else _named_zone(name)
    if zone is None:
        raise CommandError(40485, f'unrecognized time zone identifier: "{name}"')
    if len(_KNOWN) < 1000:
        _KNOWN[name] = zone
    return zone


def _fixed_zone(name: str) -> TimeZone | None:
    digits = name[1:]
    if len(digits) == 5 and digits[2] == ":":
        digits = digits[:2] + digits[3:]
    if not digits.isascii() or not digits.isdigit() or len(digits) not in (2, 4):
        return None
    minutes = int(digits[:2]) * 60 + (int(digits[2:]) if len(digits) == 4 else 0)
    return TimeZone((-minutes if name[0] == "-" else minutes) * MS_PER_MINUTE, None, name)


def _named_zone(name: str) -> TimeZone | None:
    if name in _UTC_NAMES:
        return UTC
    # Imported here to keep start-up fast, since few servers use time zones.
    import zoneinfo

    try:
        return TimeZone(0, zoneinfo.ZoneInfo(name), name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


def civil_ms(year: int, month: int, day: int, hour: int, minute: int, second: int, millisecond: int) -> int:
    """A local time in milliseconds; parts outside their ranges carry over."""
    month0 = month - 1
    days = days_from_civil(year + month0 // 12, month0 % 12 + 1, 1) + day - 1
    return days * MS_PER_DAY + hour * MS_PER_HOUR + minute * MS_PER_MINUTE + second * MS_PER_SECOND + millisecond


def iso_text(utc_ms: int) -> str:
    """An instant as `2024-01-31T12:00:00.000Z`."""
    time = LocalTime(utc_ms)
    return (
        f"{time.year:04d}-{time.month:02d}-{time.day:02d}T{time.hour():02d}:{time.minute():02d}:{time.second():02d}"
        f".{time.millisecond():03d}Z"
    )
