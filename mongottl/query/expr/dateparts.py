"""Dates to parts and back: `$year … $isoDayOfWeek $dateToParts $dateFromParts $dateToString $dateFromString`."""

from collections.abc import Callable
from typing import Final, TypeAlias

from mongottl.document.build import encode
from mongottl.document.types import Date, Int64, ObjectId, Timestamp, Value
from mongottl.document.walk import fields
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
from mongottl.query.expr.calendar import (
    MONTH_NAMES,
    MS_PER_DAY,
    MS_PER_MINUTE,
    UTC,
    LocalTime,
    TimeZone,
    civil_ms,
    iso_week,
    time_zone,
    weekday,
)
from mongottl.query.expr.datetext import (
    TextError,
    check_parse_format,
    conversion_error,
    iso_day,
    parse_date_text,
    parse_formatted,
)
from mongottl.query.expr.named import Syntax
from mongottl.query.expr.numbers import fits_long, whole
from mongottl.query.expr.parser import parse_operand, show, type_of


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
    """The time zone that a parameter gives, UTC if it is not there; None if it is null. 40517, 40485 for others."""
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
            raise CommandError(40539, f"missing 'date' argument to {name}, provided: {show(argument)}")
    else:
        parameters["date"] = parse_operand(argument, scope)
    return PartExpression(name, parameters, _PARTS[name])


def _is_operator(document: bytes) -> bool:
    members = fields(document)
    return bool(members) and members[0][0].startswith("$")


for _name in _PARTS:
    expression_parser(_name)(_parse_part)


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


@expression_parser("$dateToParts")
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
                40515, f"'{key}' must evaluate to an integer, found {type_of(value)} with value {show(value)}"
            )
        if key in ("year", "isoWeekYear") and not 1 <= number <= 9999:
            raise CommandError(40523, f"'{key}' must evaluate to an integer in the range 1 to 9999, found {number}")
        if key not in ("second", "millisecond") and not -32768 <= number <= 32767:
            raise CommandError(
                31034, f"'{key}' must evaluate to a value in the range [-32768, 32767]; value {number} is not in range"
            )
        return number


@expression_parser("$dateFromParts")
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


_TO_STRING: Final = Syntax(18629, 18534, [("date", 18628)], ["format", "timezone", "onNull"])
_DEFAULT_UTC_FORMAT: Final = "%Y-%m-%dT%H:%M:%S.%LZ"
_DEFAULT_LOCAL_FORMAT: Final = "%Y-%m-%dT%H:%M:%S.%L"
_LETTERS: Final = "dGHjLmMSUuVwYzZ%bB"


def check_format(format: str) -> None:
    """18535 for a `%` at the end, 18536 for an unknown letter behind one."""
    i = 0
    while i < len(format):
        if format[i] == "%":
            i += 1
            if i >= len(format):
                raise CommandError(18535, "Unmatched '%' at end of format string")
            if format[i] not in _LETTERS:
                raise CommandError(18536, f"Invalid format character '%{format[i]}' in format string")
        i += 1


def format_date(format: str, utc_ms: int, zone: TimeZone) -> str:
    """An instant written by a format string. 18537 for years outside 0 to 9999."""
    offset = zone.offset_ms(utc_ms)
    time = LocalTime(utc_ms + offset)
    written: list[str] = []
    i = 0
    while i < len(format):
        char = format[i]
        if char != "%":
            written.append(char)
        else:
            i += 1
            written.append(_specified(format[i], time, offset))
        i += 1
    return "".join(written)


def _specified(letter: str, time: LocalTime, offset: int) -> str:
    if letter == "Y" or letter == "G":
        year = time.year if letter == "Y" else iso_week(time.days)[0]
        if not 0 <= year <= 9999:
            raise CommandError(
                18537,
                f"Could not convert date to string: date component was outside the supported range of 0-9999: {year}",
            )
        return f"{year:04d}"
    if letter == "m":
        return f"{time.month:02d}"
    if letter == "d":
        return f"{time.day:02d}"
    if letter == "H":
        return f"{time.hour():02d}"
    if letter == "M":
        return f"{time.minute():02d}"
    if letter == "S":
        return f"{time.second():02d}"
    if letter == "L":
        return f"{time.millisecond():03d}"
    if letter == "j":
        return f"{time.day_of_year():03d}"
    if letter == "w":
        return str((weekday(time.days) + 1) % 7 + 1)
    if letter == "u":
        return str(weekday(time.days) + 1)
    if letter == "U":
        return f"{time.week():02d}"
    if letter == "V":
        return f"{iso_week(time.days)[1]:02d}"
    if letter == "b":
        return MONTH_NAMES[time.month - 1][:3]
    if letter == "B":
        return MONTH_NAMES[time.month - 1]
    if letter == "%":
        return "%"
    minutes = offset // MS_PER_MINUTE
    if letter == "Z":
        return f"{minutes:+d}"
    sign = "-" if minutes < 0 else "+"
    return f"{sign}{abs(minutes) // 60:02d}{abs(minutes) % 60:02d}"


class DateToStringExpression(NamedExpression):
    def __init__(self, parameters: dict[str, Expression]) -> None:
        super().__init__("$dateToString", parameters)
        self.date: Final = parameters["date"]
        self.format: Final = parameters.get("format")
        self.timezone: Final = parameters.get("timezone")
        self.on_null: Final = parameters.get("onNull")

    def evaluate(self, ev: EvaluationContext) -> Value:
        value = self.date.evaluate(ev)
        format: Value = None
        if self.format is not None:
            format = self.format.evaluate(ev)
            if not is_nullish(format):
                if not isinstance(format, str):
                    raise CommandError(
                        18533, f"$dateToString requires that 'format' be a string, found: {type_of(format)}"
                    )
                check_format(format)
        zone = zone_of(self.timezone, ev)
        if is_nullish(value):
            return None if self.on_null is None else self.on_null.evaluate(ev)
        if zone is None:
            return None
        instant = date_ms(value)
        if isinstance(format, str):
            return format_date(format, instant, zone)
        if self.format is not None:
            return None
        return format_date(_DEFAULT_UTC_FORMAT if zone.is_utc() else _DEFAULT_LOCAL_FORMAT, instant, zone)


@expression_parser("$dateToString")
def parse_date_to_string(name: str, argument: Value, scope: Scope) -> Expression:
    """`{date, format, timezone, onNull}`."""
    parameters = _TO_STRING.parse(name, argument, scope)
    format = parameters.get("format")
    if isinstance(format, Constant) and isinstance(format.value, str):
        check_format(format.value)
    return DateToStringExpression(parameters)


_FROM_STRING: Final = Syntax(40540, 40541, [("dateString", 40542)], ["format", "timezone", "onError", "onNull"])


class DateFromStringExpression(NamedExpression):
    def __init__(self, parameters: dict[str, Expression]) -> None:
        super().__init__("$dateFromString", parameters)
        self.text: Final = parameters["dateString"]
        self.format: Final = parameters.get("format")
        self.timezone: Final = parameters.get("timezone")
        self.on_error: Final = parameters.get("onError")
        self.on_null: Final = parameters.get("onNull")

    def evaluate(self, ev: EvaluationContext) -> Value:
        text = self.text.evaluate(ev)
        format: Value = None
        if self.format is not None:
            format = self.format.evaluate(ev)
            if not is_nullish(format):
                if not isinstance(format, str):
                    raise CommandError(
                        40684, f"$dateFromString requires that 'format' be a string, found: {type_of(format)}"
                    )
                check_parse_format(format)
        zone = zone_of(self.timezone, ev)
        if is_nullish(text):
            return None if self.on_null is None else self.on_null.evaluate(ev)
        if not isinstance(text, str):
            if self.on_error is not None:
                return self.on_error.evaluate(ev)
            raise CommandError(
                ErrorCode.ConversionFailure,
                f"$dateFromString requires that 'dateString' be a string, found: {type_of(text)} with value "
                f"{show(text)}",
            )
        if zone is None or (self.format is not None and is_nullish(format)):
            return None
        given = None if self.timezone is None else zone
        try:
            if isinstance(format, str):
                return Date(parse_formatted(text, format, given))
            return Date(parse_date_text(text, given))
        except TextError as error:
            if self.on_error is not None:
                return self.on_error.evaluate(ev)
            raise conversion_error(text, str(error)) from None


@expression_parser("$dateFromString")
def parse_date_from_string(name: str, argument: Value, scope: Scope) -> Expression:
    """`{dateString, format, timezone, onError, onNull}`. ConversionFailure (241) for a text that is no date."""
    return DateFromStringExpression(_FROM_STRING.parse(name, argument, scope))
