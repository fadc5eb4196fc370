"""Dates from and to strings: `$dateToString $dateFromString`."""

from typing import Final

from mongottl.document.interrupt import give_way
from mongottl.document.render import render_result
from mongottl.document.types import Date, Value
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
    MONTH_NAMES,
    MS_PER_MINUTE,
    LocalTime,
    TimeZone,
    iso_week,
    weekday,
)
from mongottl.query.expr.date.parts import date_ms, zone_of
from mongottl.query.expr.date.text import (
    TextError,
    check_format,
    check_parse_format,
    conversion_error,
    parse_date_text,
    parse_formatted,
)
from mongottl.query.expr.named import Syntax
from mongottl.query.expr.parser import type_of
from mongottl.versions import OLDEST

_TO_STRING: Final = Syntax(18629, 18534, [("date", 18628)], ["format", "timezone", "onNull"])
_DEFAULT_UTC_FORMAT: Final = "%Y-%m-%dT%H:%M:%S.%LZ"
_DEFAULT_LOCAL_FORMAT: Final = "%Y-%m-%dT%H:%M:%S.%L"
# Parts that are joined at once, after which others may run, and the work that they count as.
_PARTS: Final = 128
_PARTS_WEIGHT: Final = 16
_LETTERS: Final = "dGHjLmMSUuVwYzZ%bB"


def format_date(format: str, utc_ms: int, zone: TimeZone) -> str:
    """An instant formatted by a format string. 18537 for years outside 0 to 9999."""
    offset = zone.offset_ms(utc_ms)
    time = LocalTime(utc_ms + offset)
    joined: list[str] = []
    parts: list[str] = []
    i = 0
    while i < len(format):
        if len(parts) == _PARTS:
            give_way(_PARTS_WEIGHT)
            joined.append("".join(parts))
            parts.clear()
        char = format[i]
        if char != "%":
            parts.append(char)
        else:
            i += 1
            parts.append(_specified(format[i], time, offset))
        i += 1
    joined.append("".join(parts))
    return joined[0] if len(joined) == 1 else "".join(joined)


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
        return str(minutes)
    sign = "-" if minutes < 0 else "+"
    return f"{sign}{abs(minutes) // 60:02d}{abs(minutes) % 60:02d}"


def _evaluated_format(node: Expression | None, name: str, fault: int, ev: EvaluationContext) -> Value:
    """The value of an operator's `format`, None if null or not given. fault: error code for another type."""
    value = None if node is None else node.evaluate(ev)
    if is_nullish(value):
        return None
    if not isinstance(value, str):
        raise CommandError(fault, f"{name} requires that 'format' be a string, found: {type_of(value)}")
    return value


class DateToStringExpression(NamedExpression):
    def __init__(self, parameters: dict[str, Expression]) -> None:
        super().__init__("$dateToString", parameters)
        self.date: Final = parameters["date"]
        self.format: Final = parameters.get("format")
        self.timezone: Final = parameters.get("timezone")
        self.on_null: Final = parameters.get("onNull")

    def evaluate(self, ev: EvaluationContext) -> Value:
        value = self.date.evaluate(ev)
        format = _evaluated_format(self.format, "$dateToString", 18533, ev)
        if isinstance(format, str):
            check_format(format, _LETTERS)
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


@expression_parser("$dateToString", since=OLDEST)
def parse_date_to_string(name: str, argument: Value, scope: Scope) -> Expression:
    """`{date, format, timezone, onNull}`."""
    parameters = _TO_STRING.parse(name, argument, scope)
    format = parameters.get("format")
    if isinstance(format, Constant) and isinstance(format.value, str):
        check_format(format.value, _LETTERS)
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
        format = _evaluated_format(self.format, "$dateFromString", 40684, ev)
        if isinstance(format, str):
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
                f"{render_result(text)}",
            )
        if zone is None or (self.format is not None and format is None):
            return None
        given_zone = None if self.timezone is None else zone
        try:
            if isinstance(format, str):
                return Date(parse_formatted(text, format, given_zone))
            return Date(parse_date_text(text, given_zone))
        except TextError as error:
            if self.on_error is not None:
                return self.on_error.evaluate(ev)
            raise conversion_error(text, str(error)) from None


@expression_parser("$dateFromString", since=OLDEST)
def parse_date_from_string(name: str, argument: Value, scope: Scope) -> Expression:
    """`{dateString, format, timezone, onError, onNull}`. ConversionFailure (241) for a string that is not a date."""
    return DateFromStringExpression(_FROM_STRING.parse(name, argument, scope))
