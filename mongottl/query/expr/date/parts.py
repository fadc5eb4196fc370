"""Dates to and from parts: `$year … $isoDayOfWeek $dateToParts $dateFromParts`."""

from collections.abc import Callable
from typing import Final, TypeAlias

from mongottl.document.build import encode
from mongottl.document.numbers import whole
from mongottl.document.render import render_result, render_value
from mongottl.document.types import Date, Int64, ObjectId, Timestamp, Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.expr.base import (
    EvaluationContext,
    Expression,
    NamedExpression,
    Scope,
    expression_parser,
    is_nullish,
)
from mongottl.query.expr.date.calendar import (
    MS_PER_DAY,
    UTC,
    LocalTime,
    TimeZone,
    civil_ms,
    iso_week,
    time_zone,
    weekday,
)
from mongottl.query.expr.date.text import (
    iso_day,
)
from mongottl.query.expr.named import Syntax
from mongottl.query.expr.numbers import fits_long
from mongottl.query.expr.parser import parse_operand, type_of
from mongottl.versions import OLDEST


def date_ms(value: Value) -> int:
    """The instant of a date, timestamp or ObjectId. 16006 for other values."""
    if isinstance(value, Date):
        return value.ms
    if isinstance(value, Timestamp):
        return int(value.time) * 1000
    if isinstance(value, ObjectId):
        return int.from_bytes(value.binary[:4], "big", signed=True) * 1000
    raise CommandError(16006, f"can't convert from BSON type {type_of(value)} to Date")


def zone_of(node: Expression | None, ev: EvaluationContext) -> TimeZone | None:
    """The time zone of a parameter, UTC without it; None if it is null. 40517, 40485 for invalid values."""
    if node is None:
        return UTC
    value = node.evaluate(ev)
    if is_nullish(value):
        return None
    if not isinstance(value, str):
        raise CommandError(40517, f"timezone must evaluate to a string, found {type_of(value)}")
    return time_zone(value)


PartFunction: TypeAlias = Callable[[LocalTime], Value]


class PartExpression(NamedExpression):
    """One part of a date: `{date, timezone}`."""

    def __init__(self, name: str, parameters: dict[str, Expression], function: PartFunction) -> None:
        super().__init__(name, parameters)
        self.function: Final = function
        self.date: Final = parameters["date"]
        self.timezone: Final = parameters.get("timezone")

    def evaluate(self, ev: EvaluationContext) -> Value:
        value = self.date.evaluate(ev)
        if is_nullish(value):
            return None
        zone = zone_of(self.timezone, ev)
        if zone is None:
            return None
        return self.function(zone.local(date_ms(value)))


def _year(time: LocalTime) -> Value:
    return time.year


def _month(time: LocalTime) -> Value:
    return time.month


def _day_of_month(time: LocalTime) -> Value:
    return time.day


def _hour(time: LocalTime) -> Value:
    return time.hour()


def _minute(time: LocalTime) -> Value:
    return time.minute()


def _second(time: LocalTime) -> Value:
    return time.second()


def _millisecond(time: LocalTime) -> Value:
    return time.millisecond()


def _day_of_year(time: LocalTime) -> Value:
    return time.day_of_year()


def _day_of_week(time: LocalTime) -> Value:
    return (weekday(time.days) + 1) % 7 + 1


def _week(time: LocalTime) -> Value:
    return time.week()


def _iso_day_of_week(time: LocalTime) -> Value:
    return weekday(time.days) + 1


def _iso_week(time: LocalTime) -> Value:
    return iso_week(time.days)[1]


def _iso_week_year(time: LocalTime) -> Value:
    return Int64(iso_week(time.days)[0])


_PARTS: Final[dict[str, PartFunction]] = {
    "$year": _year,
    "$month": _month,
    "$dayOfMonth": _day_of_month,
    "$hour": _hour,
    "$minute": _minute,
    "$second": _second,
    "$millisecond": _millisecond,
    "$dayOfYear": _day_of_year,
    "$dayOfWeek": _day_of_week,
    "$week": _week,
    "$isoDayOfWeek": _iso_day_of_week,
    "$isoWeek": _iso_week,
    "$isoWeekYear": _iso_week_year,
}


def _parse_part(name: str, argument: Value, scope: Scope) -> Expression:
    """`<date>`, `[<date>]` or `{date, timezone}`. 40535, 40536, 40539 for another shape."""
    parameters: dict[str, Expression] = {}
    if isinstance(argument, list):
        if len(argument) != 1:
            raise CommandError(
                40536, f"{name} accepts exactly one argument if given an array, but was given {len(argument)}"
            )
        parameters["date"] = parse_operand(argument[0], scope)
    elif isinstance(argument, bytes) and not _is_operator(argument):
        for key, value in fields(argument):
            if key not in ("date", "timezone"):
                raise CommandError(40535, f"unrecognized option to {name}: {key}")
            parameters[key] = parse_operand(value, scope)
        if "date" not in parameters:
            raise CommandError(40539, f"missing 'date' argument to {name}, provided: {render_value(argument)}")
    else:
        parameters["date"] = parse_operand(argument, scope)
    return PartExpression(name, parameters, _PARTS[name])


def _is_operator(document: bytes) -> bool:
    members = fields(document)
    return bool(members) and members[0][0].startswith("$")


for _name in _PARTS:
    expression_parser(_name, since=OLDEST)(_parse_part)
_TO_PARTS: Final = Syntax(40524, 40520, [("date", 40522)], ["timezone", "iso8601"])


class DateToPartsExpression(NamedExpression):
    def __init__(self, parameters: dict[str, Expression]) -> None:
        super().__init__("$dateToParts", parameters)
        self.date: Final = parameters["date"]
        self.timezone: Final = parameters.get("timezone")
        self.iso: Final = parameters.get("iso8601")

    def evaluate(self, ev: EvaluationContext) -> Value:
        value = self.date.evaluate(ev)
        zone = zone_of(self.timezone, ev)
        iso: Value = False if self.iso is None else self.iso.evaluate(ev)
        if zone is None or is_nullish(iso):
            return None
        if not isinstance(iso, bool):
            raise CommandError(40521, f"iso8601 must evaluate to a bool, found {type_of(iso)}")
        if is_nullish(value):
            return None
        time = zone.local(date_ms(value))
        parts: dict[str, Value] = {}
        if iso:
            parts["isoWeekYear"], parts["isoWeek"] = iso_week(time.days)
            parts["isoDayOfWeek"] = weekday(time.days) + 1
        else:
            parts["year"] = time.year
            parts["month"] = time.month
            parts["day"] = time.day
        parts["hour"] = time.hour()
        parts["minute"] = time.minute()
        parts["second"] = time.second()
        parts["millisecond"] = time.millisecond()
        return encode(parts)


@expression_parser("$dateToParts", since=OLDEST)
def parse_date_to_parts(name: str, argument: Value, scope: Scope) -> Expression:
    """`{date, timezone, iso8601}`."""
    return DateToPartsExpression(_TO_PARTS.parse(name, argument, scope))


_CALENDAR_PARTS: Final = ("year", "month", "day")
_ISO_PARTS: Final = ("isoWeekYear", "isoWeek", "isoDayOfWeek")
_TIME_PARTS: Final = ("hour", "minute", "second", "millisecond")
_FROM_PARTS: Final = Syntax(40519, 40518, [], [*_CALENDAR_PARTS, *_ISO_PARTS, *_TIME_PARTS, "timezone"])


class DateFromPartsExpression(NamedExpression):
    def evaluate(self, ev: EvaluationContext) -> Value:
        iso = "isoWeekYear" in self.parameters
        numbers: list[int] = []
        for key in [*(_ISO_PARTS if iso else _CALENDAR_PARTS), *_TIME_PARTS]:
            number = self._part(key, ev)
            if number is None:
                return None
            numbers.append(number)
        zone = zone_of(self.parameter("timezone"), ev)
        if zone is None:
            return None
        rest = civil_ms(1970, 1, 1, numbers[3], numbers[4], numbers[5], numbers[6])
        if iso:
            local = iso_day(numbers[0], numbers[1], numbers[2]) * MS_PER_DAY + rest
        else:
            local = civil_ms(numbers[0], numbers[1], numbers[2], 0, 0, 0, 0) + rest
        if not fits_long(local):
            raise CommandError(ErrorCode.Overflow, "date overflow in $dateFromParts")
        return Date(zone.to_utc(local))

    def _part(self, key: str, ev: EvaluationContext) -> int | None:
        node = self.parameter(key)
        if node is None:
            return 0 if key in _TIME_PARTS else 1
        value = node.evaluate(ev)
        if is_nullish(value):
            return None
        number = whole(value)
        if number is None:
            raise CommandError(
                40515, f"'{key}' must evaluate to an integer, found {type_of(value)} with value {render_result(value)}"
            )
        if key in ("year", "isoWeekYear") and not 1 <= number <= 9999:
            raise CommandError(40523, f"'{key}' must evaluate to an integer in the range 1 to 9999, found {number}")
        if key not in ("second", "millisecond") and not -32768 <= number <= 32767:
            raise CommandError(
                31034, f"'{key}' must evaluate to a value in the range [-32768, 32767]; value {number} is not in range"
            )
        return number


@expression_parser("$dateFromParts", since=OLDEST)
def parse_date_from_parts(name: str, argument: Value, scope: Scope) -> Expression:
    """`{year, month, day, …}` or `{isoWeekYear, isoWeek, isoDayOfWeek, …}`, with hour … millisecond and timezone."""
    parameters = _FROM_PARTS.parse(name, argument, scope)
    if "year" not in parameters and "isoWeekYear" not in parameters:
        raise CommandError(40516, "$dateFromParts requires either 'year' or 'isoWeekYear' to be present")
    if "year" in parameters and any(key in parameters for key in _ISO_PARTS):
        raise CommandError(40489, "$dateFromParts does not allow mixing natural dates with ISO dates")
    if "isoWeekYear" in parameters and any(key in parameters for key in _CALENDAR_PARTS):
        raise CommandError(40525, "$dateFromParts does not allow mixing ISO dates with natural dates")
    return DateFromPartsExpression(name, parameters)
