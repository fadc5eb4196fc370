"""`$type $isNumber $convert`, and `$toBool $toDate $toInt …`, which are `$convert` to a fixed type."""

import base64
import binascii
import decimal
import math
import re
import struct
from functools import cache
from typing import Final

from mypy_extensions import i64

from mongottl.document.copied import COPIED
from mongottl.document.interrupt import give_way, give_way_after
from mongottl.document.numbers import decimal_of, is_true, to_double, whole, whole_int32
from mongottl.document.render import render_result
from mongottl.document.types import (
    ARRAY,
    BINARY,
    BOOL,
    DATE,
    DECIMAL128,
    DOCUMENT,
    DOUBLE,
    INT32,
    INT64,
    INT_MAX,
    INT_MIN,
    MAX_KEY,
    MIN_KEY,
    NULL,
    OBJECT_ID,
    STRING,
    TIMESTAMP,
    UNDEFINED,
    BinData,
    Date,
    Decimal128,
    Int64,
    Missing,
    ObjectId,
    Timestamp,
    Value,
    type_name,
)
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import SEARCHED_BITS, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.expr.base import (
    EvaluationContext,
    Expression,
    NamedExpression,
    Scope,
    UnaryExpression,
    UnaryFunction,
    expression_parser,
    is_nullish,
    unary_expression,
)
from mongottl.query.expr.date.calendar import iso_text
from mongottl.query.expr.date.text import TextError, parse_date_text
from mongottl.query.expr.named import Syntax
from mongottl.query.expr.number_text import SHORT, are_digits, first_other_than_zero, shortened
from mongottl.query.expr.numbers import DECIMAL_CONTEXT, fits_long, from_decimal, to_decimal, width
from mongottl.query.expr.parser import MAX_STRING_BYTES, check_string, parse_operand, type_of
from mongottl.versions import OLDEST, Version

_CODES: Final[dict[str, int]] = {
    type_name(code): code
    for code in (
        DOUBLE, STRING, DOCUMENT, ARRAY, BINARY, UNDEFINED, OBJECT_ID, BOOL, DATE, NULL, 11, 12, 13, 14, 15, INT32,
        TIMESTAMP, INT64, DECIMAL128, MIN_KEY, MAX_KEY,
    )
}  # fmt: skip

_SPECIAL: Final[dict[str, float]] = {
    "nan": math.nan,
    "-nan": math.nan,
    "inf": math.inf,
    "infinity": math.inf,
    "-inf": -math.inf,
    "-infinity": -math.inf,
    "+inf": math.inf,
    "+infinity": math.inf,
}
_LONGEST_SPECIAL: Final = max(map(len, _SPECIAL))

# Characters that a pattern is matched with in one step, and the work that they count as.
_MATCHED_AT_ONCE: Final = 1 << 16
_MATCHED_WEIGHT: Final = 600
_LAST_SUBTYPE: Final = 9  # of those that MongoDB names: vectors
_YEAR_0_MS: Final = -62_167_219_200_000
_YEAR_10000_MS: Final = 253_402_300_800_000
_TRUNCATING: Final = decimal.Context(
    prec=DECIMAL_CONTEXT.prec,
    rounding=decimal.ROUND_DOWN,
    Emin=DECIMAL_CONTEXT.Emin,
    Emax=DECIMAL_CONTEXT.Emax,
    clamp=DECIMAL_CONTEXT.clamp,
    traps=[decimal.Overflow, decimal.Underflow],
)


@cache
def _number_pattern() -> re.Pattern[str]:
    # A point stands between two rows of digits: of a long row there is one way to divide it.
    return re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\Z", re.ASCII)


@cache
def _hexadecimal_pattern() -> re.Pattern[str]:
    return re.compile(r"[+-]?0[xX]([0-9a-fA-F]+(\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)([pP][+-]?\d+)?\Z", re.ASCII)


class ConversionError(Exception):
    """A value that cannot be converted; `onError` replaces the result."""


@unary_expression("$type", since=OLDEST)
def type_(value: Value) -> Value:
    return type_of(value)


@unary_expression("$isNumber", since=(4, 4))
def is_number(value: Value) -> Value:
    return width(value) != 0


def _unsupported(value: Value, target: int) -> ConversionError:
    return ConversionError(f"Unsupported conversion from {type_of(value)} to {type_name(target)}")


def double_text(number: float) -> str:
    """A double as `$toString` writes it: the shortest digits that round-trip, "1e+16", "NaN"."""
    if number != number:
        return "NaN"
    if math.isinf(number):
        return "-Infinity" if number < 0 else "Infinity"
    text = repr(number)
    return text[:-2] if text.endswith(".0") else text


def convert(value: Value, target: int, subtype: int, format: str, big_endian: bool) -> Value:
    """Converts a value that is not null to another type. ConversionError if that is not possible."""
    if target == STRING:
        return _to_string(value, format)
    if target == BOOL:
        return _to_bool(value)
    if target == INT32 or target == INT64:
        return _to_integer(value, target, big_endian)
    if target == DOUBLE:
        return _to_double(value, big_endian)
    if target == DECIMAL128:
        return _to_decimal(value)
    if target == DATE:
        return _to_date(value)
    if target == OBJECT_ID:
        return _to_object_id(value)
    if target == BINARY:
        return _to_binary(value, subtype, format, big_endian)
    raise _unsupported(value, target)


def _to_string(value: Value, format: str) -> Value:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, Decimal128):
        return decimal_text(decimal_of(value))
    if isinstance(value, Date):
        if not _YEAR_0_MS <= value.ms < _YEAR_10000_MS:
            raise CommandError(
                18537, "Could not convert date to string: date component was outside the supported range of 0-9999"
            )
        return iso_text(value.ms)
    if isinstance(value, ObjectId):
        return str(value)
    if isinstance(value, BinData):
        return _binary_text(value, format)
    raise _unsupported(value, STRING)


def decimal_text(number: decimal.Decimal) -> str:
    if number.is_nan():
        return "NaN"
    return str(number)


def _binary_text(value: BinData, format: str) -> str:
    data = value.data
    if format == "auto":
        format = "uuid" if value.subtype == 4 and len(data) == 16 else "base64"
    # Lengths without regard to the padding of base64; what is not text fails before it is known to be too long.
    length = {"hex": len(data) * 2, "base64": -(-len(data) // 3) * 4, "base64url": -(-len(data) // 3) * 4}
    if length.get(format, 0) >= MAX_STRING_BYTES:
        raise ConversionError("The text of the binary data would be longer than 16MB")
    if format == "base64":
        return base64.b64encode(data).decode("ascii")
    if format == "base64url":
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
    if format == "hex":
        return data.hex().upper()
    if format == "uuid":
        if value.subtype != 4 or len(data) != 16:
            raise ConversionError("Only UUIDs can be converted with the format 'uuid'")
        text = data.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ConversionError("BinData does not represent a valid UTF-8 string") from None
    return check_string(text)


def _to_bool(value: Value) -> Value:
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float, Decimal128)):
        return is_true(value)
    if isinstance(value, (str, Date, ObjectId, BinData)):
        return True
    if isinstance(value, (bytes, list)) or not is_nullish(value):
        return True
    raise _unsupported(value, BOOL)


def _to_integer(value: Value, target: int, big_endian: bool) -> Value:
    if isinstance(value, bool):
        number = 1 if value else 0
    elif isinstance(value, int):
        number = int(value)
    elif isinstance(value, (float, Decimal128)):
        number = _truncated(value)
    elif isinstance(value, str):
        number = _integer_in(value)
    elif isinstance(value, Date) and target == INT64:
        number = value.ms
    elif isinstance(value, BinData):
        number = _integer_of_binary(value, target, big_endian)
    else:
        raise _unsupported(value, target)
    if target == INT32:
        if not INT_MIN <= number <= INT_MAX:
            raise ConversionError(f"Conversion would overflow target type: {render_result(value)}")
        return number
    if not fits_long(number):
        raise ConversionError(f"Conversion would overflow target type: {render_result(value)}")
    return Int64(number)


def _truncated(value: Value) -> int:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ConversionError("Attempt to convert NaN or infinity value to integer type")
        return math.trunc(value)
    number = to_decimal(value)
    if not number.is_finite():
        raise ConversionError("Attempt to convert NaN or infinity value to integer type")
    if number and number.adjusted() > 20:
        raise ConversionError(f"Conversion would overflow target type: {render_result(value)}")
    return int(number)


def _integer_in(text: str) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits or not are_digits(digits):
        raise ConversionError(f"Failed to parse number '{text}' in $convert: Did not consume whole string.")
    significant = digits[first_other_than_zero(digits) :]
    if len(significant) > 19:
        raise ConversionError(f"Failed to parse number '{text}' in $convert: Overflow")
    # Without leading zeros: Python refuses to parse more than 4,300 digits.
    number = int(significant or "0")
    return -number if text[0] == "-" else number


def _integer_of_binary(value: BinData, target: int, big_endian: bool) -> int:
    size = len(value.data)
    if size not in (1, 2, 4, 8) or (target == INT32 and size > 4):
        raise ConversionError(
            f"Failed to convert '{render_result(value)}' to {type_name(target)} because of its length {size}"
        )
    return int.from_bytes(value.data, "big" if big_endian else "little", signed=True)


def _to_double(value: Value, big_endian: bool) -> Value:
    if isinstance(value, bool):
        return 1.0 if value else 0.0
    if isinstance(value, Decimal128):
        number = to_double(value)
        if math.isinf(number) and decimal_of(value).is_finite():
            raise ConversionError(f"Conversion would overflow target type: {render_result(value)}")
        return number
    if width(value):
        return to_double(value)
    if isinstance(value, Date):
        return float(value.ms)
    if isinstance(value, str):
        return _double_in(value)
    if isinstance(value, BinData):
        if len(value.data) not in (4, 8):
            raise ConversionError(f"Failed to convert '{render_result(value)}' to double because of its length")
        code = "f" if len(value.data) == 4 else "d"
        result: float = struct.unpack((">" if big_endian else "<") + code, value.data)[0]
        return result
    raise _unsupported(value, DOUBLE)


def _special_in(text: str) -> float | None:
    return _SPECIAL.get(text.lower()) if len(text) <= _LONGEST_SPECIAL else None


def _double_in(text: str) -> float:
    special = _special_in(text)
    if special is not None:
        return special
    short = shortened(text)
    if _number_pattern().match(short) is None:
        if text.startswith("0x"):
            raise ConversionError(f"Illegal hexadecimal input in $convert: {text}")
        if len(text) <= SHORT and _hexadecimal_pattern().match(text) is not None:
            try:
                return float.fromhex(text)
            except OverflowError:
                raise ConversionError(f"Failed to parse number '{text}' in $convert: Out of range") from None
        raise ConversionError(f"Failed to parse number '{text}' in $convert: Did not consume whole string.")
    number = float(short)
    if math.isinf(number) or (number == 0.0 and any(digit in "123456789" for digit in re.split("[eE]", short)[0])):
        raise ConversionError(f"Failed to parse number '{text}' in $convert: Out of range")
    return number


def _to_decimal(value: Value) -> Value:
    if isinstance(value, bool):
        return from_decimal(decimal.Decimal(1 if value else 0))
    if isinstance(value, Decimal128):
        return value
    if width(value):
        return from_decimal(to_decimal(value))
    if isinstance(value, Date):
        return from_decimal(decimal.Decimal(value.ms))
    if isinstance(value, str):
        return _decimal_in(value)
    raise _unsupported(value, DECIMAL128)


def _decimal_in(text: str) -> Value:
    special = _special_in(text)
    if special is not None:
        return from_decimal(decimal.Decimal("-NaN" if text[0] == "-" and special != special else special))
    short = shortened(text)
    if _number_pattern().match(short) is None:
        raise ConversionError(f"Failed to parse number '{text}' in $convert: Failed to parse string to decimal")
    # mongod cuts digits off here, and refuses what loses digits because its exponent is too small.
    try:
        return from_decimal(_TRUNCATING.create_decimal(short))
    except decimal.Overflow:
        fault = "overflow"
    except decimal.Underflow:
        fault = "underflow"
    raise ConversionError(
        f"Failed to parse number '{text}' in $convert: Conversion from string to decimal would {fault}"
    )


def _to_date(value: Value) -> Value:
    if isinstance(value, Date):
        return value
    if isinstance(value, Int64):
        return Date(int(value))
    if isinstance(value, (float, Decimal128)):
        number = _truncated(value)
        if not fits_long(number):
            raise ConversionError(f"Conversion would overflow target type: {render_result(value)}")
        return Date(number)
    if isinstance(value, str):
        try:
            return Date(parse_date_text(value, None))
        except TextError as error:
            raise ConversionError(f"Error parsing date string '{value}'; {error}") from None
    if isinstance(value, ObjectId):
        return Date(int.from_bytes(value.binary[:4], "big", signed=True) * 1000)
    if isinstance(value, Timestamp):
        return Date(value.time * 1000)
    raise _unsupported(value, DATE)


def _to_object_id(value: Value) -> Value:
    if isinstance(value, ObjectId):
        return value
    if isinstance(value, str):
        if len(value) != 24:
            raise ConversionError(
                f"Failed to parse objectId '{value}' in $convert: Invalid string length for parsing to OID, expected "
                f"24 but found {len(value)}"
            )
        if re.fullmatch("[0-9a-fA-F]{24}", value) is None:
            raise ConversionError(
                f"Failed to parse objectId '{value}' in $convert: Invalid character found in hex string"
            )
        return ObjectId(value)
    raise _unsupported(value, OBJECT_ID)


def _to_binary(value: Value, subtype: int, format: str, big_endian: bool) -> Value:
    order = ">" if big_endian else "<"
    if isinstance(value, BinData):
        if value.subtype != subtype:
            raise ConversionError("Conversions between different binary subtypes are not supported")
        return value
    if isinstance(value, str):
        data = _bytes_in(value, subtype, format)
        give_way_after(len(data))
        return BinData(data, subtype)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _unsupported(value, BINARY)
    if isinstance(value, float):
        return BinData(struct.pack(order + "d", value), subtype)
    return BinData(struct.pack(order + ("q" if isinstance(value, Int64) else "i"), value), subtype)


def _consists_of(pattern: str, text: str) -> bool:
    """Whether the pattern of a row of characters matches the whole text."""
    for start in range(0, len(text), _MATCHED_AT_ONCE):
        give_way(_MATCHED_WEIGHT)
        if re.fullmatch(pattern, text[start : start + _MATCHED_AT_ONCE]) is None:
            return False
    return True


def _bytes_in(text: str, subtype: int, format: str) -> bytes:
    if (format == "uuid") != (subtype == 4):
        raise ConversionError("Can only convert to UUID with the format 'uuid', and to nothing else with it")
    try:
        if format == "base64":
            return base64.b64decode(text, validate=True)
        if format == "base64url":
            if not _consists_of("[A-Za-z0-9_-]*", text.rstrip("=")):
                raise ConversionError(f"Input is not a valid base64url string: {text}")
            return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        if format == "hex":
            if not _consists_of("[0-9a-fA-F]*", text):
                raise ConversionError(f"Input is not a valid hex string: {text}")
            return bytes.fromhex(text)
        if format == "uuid":
            if re.fullmatch("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text) is None:
                raise ConversionError(f"Input is not a valid UUID string: {text}")
            return bytes.fromhex(text.replace("-", ""))
    except (binascii.Error, ValueError):
        raise ConversionError(f"Input is not a valid {format} string: {text}") from None
    if format == "utf8":
        return encode_text(text)
    raise ConversionError(f"the format '{format}' cannot be used to convert a string to binData")


_FORMATS: Final = frozenset({"auto", "base64", "base64url", "hex", "utf8", "uuid"})


class ConvertExpression(NamedExpression):
    """`$convert`. on_error, on_null: None if not given."""

    def __init__(self, parameters: dict[str, Expression]) -> None:
        super().__init__("$convert", parameters)
        self.input: Final = parameters["input"]
        self.to: Final = parameters["to"]
        self.on_error: Final = parameters.get("onError")
        self.on_null: Final = parameters.get("onNull")
        self.format: Final = parameters.get("format")
        self.byte_order: Final = parameters.get("byteOrder")

    def evaluate(self, ev: EvaluationContext) -> Value:
        held = ev.held
        copied: i64 = COPIED.bytes
        value = self.input.evaluate(ev)
        if COPIED.bytes != copied:
            ev.hold(value, COPIED.bytes - copied)
        to = self.to.evaluate(ev)
        target = _target_of(to)
        if is_nullish(value):
            ev.held = held
            return None if self.on_null is None else self.on_null.evaluate(ev)
        if target < 0:
            ev.held = held
            return None
        subtype = _subtype_of(to)
        format = self._format(ev)
        big_endian = self._big_endian(ev)
        ev.held = held
        if format is None:
            needs_format = (isinstance(value, str) and target == BINARY) or (
                isinstance(value, BinData) and target == STRING
            )
            if needs_format:
                raise CommandError(4341115, "Format must be specified when converting from 'string' to 'binData'")
            format = "auto"
        try:
            return convert(value, target, subtype, format, big_endian)
        except ConversionError as error:
            if self.on_error is not None:
                return self.on_error.evaluate(ev)
            raise CommandError(ErrorCode.ConversionFailure, f"{error} in $convert with no onError value") from None

    def _format(self, ev: EvaluationContext) -> str | None:
        format = _text_option(self.format, "format", 4341114, ev)
        if format is not None and format not in _FORMATS:
            raise CommandError(4341125, f"Invalid 'format' argument for $convert: {format}")
        return format

    def _big_endian(self, ev: EvaluationContext) -> bool:
        order = _text_option(self.byte_order, "byteOrder", 9130001, ev)
        if order is not None and order not in ("little", "big"):
            raise CommandError(9130002, f"Invalid 'byteOrder' argument for $convert: {order}")
        return order == "big"


def _text_option(option: Expression | None, name: str, code: int, ev: EvaluationContext) -> str | None:
    """The value of an option of `$convert`; None if it is absent or null, the error `code` if it is no string."""
    value = None if option is None else option.evaluate(ev)
    if is_nullish(value):
        return None
    if not isinstance(value, str):
        raise CommandError(code, f"$convert requires that '{name}' be a string, found: {type_of(value)}")
    return value


def _target_of(to: Value) -> int:
    """The type code of `to`, or of its field `type`; -1 for null. Unknown fields are ignored."""
    if isinstance(to, bytes):
        give_way(1 + (i64(len(to)) >> SEARCHED_BITS))
        to = get_value(to, "type")
        if isinstance(to, Missing):
            raise CommandError(ErrorCode.FailedToParse, "Missing 'type' parameter to $convert's 'to'")
    elif is_nullish(to):
        return -1
    if isinstance(to, str):
        code = _CODES.get(to, 0)
        if code == 0 and to != "missing":
            raise CommandError(ErrorCode.BadValue, f"Unknown type name: {to}")
        return code
    if width(to) == 0:
        raise CommandError(
            ErrorCode.FailedToParse, f"$convert's 'to' argument must be a string or number, but is {type_of(to)}"
        )
    number = whole_int32(to)
    if number is None:
        raise CommandError(
            ErrorCode.FailedToParse, f"In $convert, numeric 'to' argument is not an integer: {render_result(to)}"
        )
    if number == -1:
        return MIN_KEY
    if number != 0 and (number == MIN_KEY or number not in _CODES.values()):
        raise CommandError(
            ErrorCode.FailedToParse, f"In $convert, numeric value for 'to' does not correspond to a BSON type: {number}"
        )
    return number


def _subtype_of(to: Value) -> int:
    """The binary subtype of `to`, 0 by default."""
    if isinstance(to, bytes):
        give_way(1 + (i64(len(to)) >> SEARCHED_BITS))
        value = get_value(to, "subtype")
        if not isinstance(value, Missing):
            return _subtype(value)
    return 0


def _subtype(value: Value) -> int:
    if width(value) == 0:
        raise CommandError(4341108, f"$convert requires that 'subtype' be a number, found: {type_of(value)}")
    number = whole(value)
    if number is None:
        raise CommandError(
            4341106, f"In $convert, numeric 'subtype' argument is not an integer: {render_result(value)}"
        )
    if not (0 <= number <= _LAST_SUBTYPE or 128 <= number <= 255):
        raise CommandError(
            4341107, f"In $convert, numeric value for 'subtype' does not correspond to a binary subtype: {number}"
        )
    return number


_CONVERT: Final = Syntax(9, 9, [("input", 9), ("to", 9)], ["onError", "onNull", "format", "byteOrder"])


@expression_parser("$convert", since=(4, 0))
def parse_convert(name: str, argument: Value, scope: Scope) -> Expression:
    """`{input, to, onError, onNull, format, byteOrder}`. FailedToParse for a bad shape; ConversionFailure (241) on
    evaluation."""
    return ConvertExpression(_CONVERT.parse(name, argument, scope))


class ConversionFunction:
    """`$toInt` and others: `$convert` to a fixed type; null stays null."""

    def __init__(self, name: str, target: int, subtype: int, format: str) -> None:
        self.name: Final = name
        self.target: Final = target
        self.subtype: Final = subtype
        self.format: Final = format

    def apply(self, value: Value) -> Value:
        if is_nullish(value):
            return None
        try:
            return convert(value, self.target, self.subtype, self.format, False)
        except ConversionError as error:
            raise CommandError(ErrorCode.ConversionFailure, f"{error} in $convert with no onError value") from None


_SHORTHANDS: Final[dict[str, UnaryFunction]] = {}


def _parse_shorthand(name: str, argument: Value, scope: Scope) -> Expression:
    """One expression, or an array of exactly one. 50723 for another number."""
    if isinstance(argument, list):
        if len(argument) != 1:
            raise CommandError(50723, f"{name} requires a single argument, got {len(argument)}")
        argument = argument[0]
    return UnaryExpression(name, _SHORTHANDS[name], parse_operand(argument, scope))


def _shorthand(name: str, target: int, subtype: int = 0, format: str = "auto", *, since: Version) -> None:
    """Registers an operator for `$convert` to one type."""
    _SHORTHANDS[name] = ConversionFunction("", target, subtype, format).apply
    expression_parser(name, since=since)(_parse_shorthand)


_shorthand("$toBool", BOOL, since=(4, 0))
_shorthand("$toDate", DATE, since=(4, 0))
_shorthand("$toDecimal", DECIMAL128, since=(4, 0))
_shorthand("$toDouble", DOUBLE, since=(4, 0))
_shorthand("$toInt", INT32, since=(4, 0))
_shorthand("$toLong", INT64, since=(4, 0))
_shorthand("$toObjectId", OBJECT_ID, since=(4, 0))
_shorthand("$toString", STRING, since=(4, 0))
_shorthand("$toUUID", BINARY, 4, "uuid", since=(8, 0))
