"""`$dateAdd $dateSubtract $dateDiff $dateTrunc`: in calendar units of a time zone.

Years to days are units of local time, so a day may have 23 or 25 hours; hours and smaller units are units of elapsed
time.
"""

from typing import Final

from mongottl.document.numbers import whole
from mongottl.document.render import render_result
from mongottl.document.types import INT64_MIN, Date, Int64, ObjectId, Timestamp, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.expr.base import (
    Constant,
    EvaluationContext,
    Expression,
    NamedExpression,
    Scope,
    expression_parser,
    is_nullish,
)
from mongottl.query.expr.date.calendar import (
    MS_PER_DAY,
    MS_PER_HOUR,
    MS_PER_MINUTE,
    MS_PER_SECOND,
    TimeZone,
    days_from_civil,
    days_in_month,
    weekday,
)
from mongottl.query.expr.date.parts import date_ms, zone_of
from mongottl.query.expr.named import Syntax
from mongottl.query.expr.numbers import fits_long, width
from mongottl.query.expr.parser import type_of

# Units that are multiples of months, days, and milliseconds.
_MONTHS: Final[dict[str, int]] = {"month": 1, "quarter": 3, "year": 12}
_DAYS: Final[dict[str, int]] = {"day": 1, "week": 7}
_MILLISECONDS: Final[dict[str, int]] = {
    "millisecond": 1,
    "second": MS_PER_SECOND,
    "minute": MS_PER_MINUTE,
    "hour": MS_PER_HOUR,
}
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SUNDAY: Final = 6

# The reference of the bins of $dateTrunc: 2000-01-01T00:00, a Saturday.
_REFERENCE_DAYS: Final = 10957
_REFERENCE_MS: Final = _REFERENCE_DAYS * MS_PER_DAY
_REFERENCE_YEAR: Final = 2000


def unit_of(name: str, value: Value, not_string: int = 5439013) -> str:
    """A time unit. FailedToParse (9) for an unknown one. not_string: error code for another type."""
    if not isinstance(value, str):
        raise CommandError(not_string, f"{name} requires 'unit' to be a string, but got {type_of(value)}")
    if value not in _MONTHS and value not in _DAYS and value not in _MILLISECONDS:
        raise CommandError(
            ErrorCode.FailedToParse, f"{name} parameter 'unit' value cannot be recognized as a time unit: {value}"
        )
    return value


def week_start_of(name: str, value: Value) -> int:
    """A `startOfWeek`, 0 for Monday. 5439015 if it is not a string, 5439016 for an unknown day."""
    if not isinstance(value, str):
        raise CommandError(5439015, f"{name} requires 'startOfWeek' to be a string, but got {type_of(value)}")
    day = value.lower()
    for i in range(7):
        if day == _WEEKDAYS[i] or day == _WEEKDAYS[i][:3]:
            return i
    raise CommandError(
        5439016, f"{name} parameter 'startOfWeek' value cannot be recognized as a day of a week: {value}"
    )


def is_date(value: Value) -> bool:
    return isinstance(value, (Date, Timestamp, ObjectId))


def add_units(utc_ms: int, unit: str, amount: int, zone: TimeZone) -> int:
    """The instant `amount` units later; a day beyond the end of the month becomes its last day."""
    if unit in _MILLISECONDS:
        return utc_ms + amount * _MILLISECONDS[unit]
    time = zone.local(utc_ms)
    if unit in _DAYS:
        days = time.days + amount * _DAYS[unit]
    else:
        months = time.year * 12 + time.month - 1 + amount * _MONTHS[unit]
        year, month0 = divmod(months, 12)
        days = days_from_civil(year, month0 + 1, min(time.day, days_in_month(year, month0 + 1)))
    if days == time.days:
        return utc_ms
    return zone.to_utc(days * MS_PER_DAY + time.rest)


_ADD: Final = Syntax(5166400, 5166401, [("startDate", 5166402), ("unit", 5166402), ("amount", 5166402)], ["timezone"])


class DateAddExpression(NamedExpression):
    """`$dateAdd` and `$dateSubtract`.

    sign: -1 for `$dateSubtract`.
    """

    def __init__(self, name: str, parameters: dict[str, Expression], sign: int) -> None:
        super().__init__(name, parameters)
        self.sign: Final = sign
        self.start: Final = parameters["startDate"]
        self.unit: Final = parameters["unit"]
        self.amount: Final = parameters["amount"]
        self.timezone: Final = parameters.get("timezone")

    def evaluate(self, ev: EvaluationContext) -> Value:
        start = self.start.evaluate(ev)
        if is_nullish(start):
            return None
        unit = self.unit.evaluate(ev)
        if is_nullish(unit):
            return None
        amount = self.amount.evaluate(ev)
        if is_nullish(amount):
            return None
        zone = zone_of(self.timezone, ev)
        if zone is None:
            return None
        if not is_date(start):
            raise CommandError(5166403, f"{self.name} requires startDate to be convertible to a date")
        unit_name = unit_of(self.name, unit)
        count = whole(amount)
        if count is None:
            raise CommandError(5166405, f"{self.name} expects integer amount of time units")
        if self.sign < 0 and count == INT64_MIN:
            raise CommandError(6045000, f"invalid {self.name} 'amount' parameter value: {render_result(amount)}")
        # Out of BSON's range of dates for every start, so not computed.
        if abs(count) * _shortest_ms(unit_name) > 1 << 65:
            raise CommandError(5976500, f"invalid {self.name} 'amount' parameter value: {count} {unit_name}")
        moved = add_units(date_ms(start), unit_name, count * self.sign, zone)
        if not fits_long(moved):
            raise CommandError(5166406, f"{self.name} overflowed")
        return Date(moved)


def _shortest_ms(unit: str) -> int:
    if unit in _MILLISECONDS:
        return _MILLISECONDS[unit]
    return MS_PER_DAY * (_DAYS[unit] if unit in _DAYS else 28 * _MONTHS[unit])


@expression_parser("$dateAdd", since=(5, 0))
def parse_date_add(name: str, argument: Value, scope: Scope) -> Expression:
    """`{startDate, unit, amount, timezone}`."""
    return DateAddExpression(name, _ADD.parse(name, argument, scope), 1)


@expression_parser("$dateSubtract", since=(5, 0))
def parse_date_subtract(name: str, argument: Value, scope: Scope) -> Expression:
    return DateAddExpression(name, _ADD.parse(name, argument, scope), -1)


_DIFF: Final = Syntax(
    5166301,
    5166302,
    [("startDate", 5166303), ("endDate", 5166304), ("unit", 5166305)],
    ["timezone", "startOfWeek"],
)


class DateDiffExpression(NamedExpression):
    def __init__(self, parameters: dict[str, Expression]) -> None:
        super().__init__("$dateDiff", parameters)
        self.start: Final = parameters["startDate"]
        self.end: Final = parameters["endDate"]
        self.unit: Final = parameters["unit"]
        self.timezone: Final = parameters.get("timezone")
        self.week_start: Final = parameters.get("startOfWeek")

    def evaluate(self, ev: EvaluationContext) -> Value:
        start = self.start.evaluate(ev)
        end = self.end.evaluate(ev)
        unit = self.unit.evaluate(ev)
        week_start: Value = "sunday" if self.week_start is None else self.week_start.evaluate(ev)
        zone = zone_of(self.timezone, ev)
        if is_nullish(start) or is_nullish(end) or is_nullish(unit) or zone is None:
            return None
        if not is_date(start):
            raise CommandError(5166307, f"$dateDiff requires 'startDate' to be a date, but got {type_of(start)}")
        if not is_date(end):
            raise CommandError(5166307, f"$dateDiff requires 'endDate' to be a date, but got {type_of(end)}")
        unit_name = unit_of("$dateDiff", unit)
        first_day = _SUNDAY
        if unit_name == "week":
            if is_nullish(week_start):
                return None
            first_day = week_start_of("$dateDiff", week_start)
        difference = units_between(date_ms(start), date_ms(end), unit_name, zone, first_day)
        if not fits_long(difference):
            raise CommandError(5166308, "dateDiff overflowed")
        return Int64(difference)


def units_between(start_ms: int, end_ms: int, unit: str, zone: TimeZone, first_day: int) -> int:
    """The number of boundaries of the unit between two instants; negative if end is before start."""
    if unit in _MILLISECONDS:
        size = _MILLISECONDS[unit]
        if unit == "hour":
            start_ms += zone.offset_ms(start_ms) % MS_PER_HOUR
            end_ms += zone.offset_ms(end_ms) % MS_PER_HOUR
        return end_ms // size - start_ms // size
    start = zone.local(start_ms)
    end = zone.local(end_ms)
    if unit == "day":
        return end.days - start.days
    if unit == "week":
        return _week_number(end.days, first_day) - _week_number(start.days, first_day)
    size = _MONTHS[unit]
    return (end.year * 12 + end.month - 1) // size - (start.year * 12 + start.month - 1) // size


def _week_number(days: int, first_day: int) -> int:
    # Day 0 was a Thursday (3).
    return (days + 3 - first_day) // 7


@expression_parser("$dateDiff", since=(5, 0))
def parse_date_diff(name: str, argument: Value, scope: Scope) -> Expression:
    """`{startDate, endDate, unit, timezone, startOfWeek}`: an int64."""
    return DateDiffExpression(_DIFF.parse(name, argument, scope))


_TRUNC: Final = Syntax(5439007, 5439008, [("date", 5439009), ("unit", 5439010)], ["binSize", "timezone", "startOfWeek"])


class DateTruncExpression(NamedExpression):
    def __init__(self, parameters: dict[str, Expression]) -> None:
        super().__init__("$dateTrunc", parameters)
        self.date: Final = parameters["date"]
        self.unit: Final = parameters["unit"]
        self.bin_size: Final = parameters.get("binSize")
        self.timezone: Final = parameters.get("timezone")
        self.week_start: Final = parameters.get("startOfWeek")

    def evaluate(self, ev: EvaluationContext) -> Value:
        date = self.date.evaluate(ev)
        unit = self.unit.evaluate(ev)
        bin_size: Value = 1 if self.bin_size is None else self.bin_size.evaluate(ev)
        week_start: Value = "sunday" if self.week_start is None else self.week_start.evaluate(ev)
        zone = zone_of(self.timezone, ev)
        if is_nullish(date) or is_nullish(unit) or is_nullish(bin_size) or zone is None:
            return None
        unit_name = unit_of("$dateTrunc", unit)
        first_day = _SUNDAY
        if is_nullish(week_start) and (unit_name == "week" or not isinstance(self.date, Constant)):
            return None  # with a constant date and another unit it is ignored, since mongod folds that case
        if unit_name == "week":
            first_day = week_start_of("$dateTrunc", week_start)
        if not is_date(date):
            raise CommandError(5166307, f"$dateTrunc requires 'date' to be a date, but got {type_of(date)}")
        size = whole(bin_size) if width(bin_size) else None
        if size is None:
            raise CommandError(
                5439017, f"$dateTrunc requires 'binSize' to be a 64-bit integer, but got {render_result(bin_size)}"
            )
        if size <= 0:
            raise CommandError(5439018, f"$dateTrunc requires 'binSize' to be greater than 0, but got {size}")
        return Date(truncated(date_ms(date), unit_name, size, zone, first_day))


def truncated(utc_ms: int, unit: str, size: int, zone: TimeZone, first_day: int) -> int:
    """The start of the bin of `size` units that contains an instant.

    5439002 to 5439006 if the length of a bin, or the start of this one, is not within an int64.
    """
    if unit in _MILLISECONDS:
        if not fits_long(size * _MILLISECONDS[unit]):
            raise _bin_overflow(5439002)
        bin_ms = size * _MILLISECONDS[unit]
        reference = zone.to_utc(_REFERENCE_MS)
        return _bin_start(reference + (utc_ms - reference) // bin_ms * bin_ms, 5439002)
    time = zone.local(utc_ms)
    if unit in _DAYS:
        first = _REFERENCE_DAYS
        if unit == "week":
            first += (first_day - weekday(first)) % 7
        span = size * _DAYS[unit]
        if not fits_long(span * MS_PER_DAY):
            raise _bin_overflow(5439005)
        return _bin_start(zone.to_utc((first + (time.days - first) // span * span) * MS_PER_DAY), 5439005)
    span = size * _MONTHS[unit]
    if span > 12 * 100_000_000_000:
        raise _bin_overflow(5439006)
    since = (time.year - _REFERENCE_YEAR) * 12 + time.month - 1
    year, month0 = divmod(since // span * span + _REFERENCE_YEAR * 12, 12)
    return _bin_start(zone.to_utc(days_from_civil(year, month0 + 1, 1) * MS_PER_DAY), 5439006)


def _bin_start(utc_ms: int, code: int) -> int:
    """The instant itself, if a date can hold it; else an error of this code."""
    if not fits_long(utc_ms):
        raise _bin_overflow(code)
    return utc_ms


def _bin_overflow(code: int) -> CommandError:
    return CommandError(code, "$dateTrunc: binSize overflows")


@expression_parser("$dateTrunc", since=(5, 0))
def parse_date_trunc(name: str, argument: Value, scope: Scope) -> Expression:
    """`{date, unit, binSize, timezone, startOfWeek}`."""
    return DateTruncExpression(_TRUNC.parse(name, argument, scope))
