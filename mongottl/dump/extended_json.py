"""Extended JSON to raw BSON: the canonical and the relaxed format of version 2, and what version 1 wrote differently.

Most types are read by PyMongo's `bson.json_util`. Types for which its classes lose something (regex options, symbols,
undefined, DBPointers, scopes) are made here.

Source: MongoDB's specification "Extended JSON".
"""

import re
import struct
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, datetime
from math import isinf
from typing import Final, NoReturn

from bson.binary import OLD_BINARY_SUBTYPE, Binary, UuidRepresentation
from bson.codec_options import DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.errors import BSONError
from bson.json_util import JSONOptions, object_hook
from bson.objectid import ObjectId

from mongottl.document.build import encode_fields
from mongottl.document.types import (
    INT64_MAX,
    INT64_MIN,
    INT_MAX,
    INT_MIN,
    MISSING,
    BinData,
    Date,
    DBPointer,
    Int64,
    JavaScript,
    Regex,
    Symbol,
    Undefined,
    Value,
)
from mongottl.document.walk import fields, get_value
from mongottl.errors import CommandError

_OPTIONS: Final = JSONOptions(
    tz_aware=False,
    datetime_conversion=DatetimeConversion.DATETIME_MS,
    uuid_representation=UuidRepresentation.UNSPECIFIED,
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# The length of `2026-01-01T00:00Z`.
_LEAST_DATE: Final = 17
# The length of -9223372036854775808.
_INT64_CHARACTERS: Final = 20
# Characters of a number that an error shows.
_SHOWN: Final = 40
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_DOUBLE: Final = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?", re.ASCII)
# What a value that is JSON but not Extended JSON raises.
CONVERSION_ERRORS: Final = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    struct.error,
    BSONError,
    CommandError,
)


def document_of(pairs: list[tuple[str, Value]]) -> Value:
    """What a JSON object stands for, given its members in order: a document (`bytes`), or a value of another type.

    Members that are objects have been converted before. One of CONVERSION_ERRORS for an object that looks like a type
    of Extended JSON and is none.
    """
    if len(pairs) == 1:
        name, value = pairs[0]
        read = _FREQUENT.get(name)
        if read is not None and isinstance(value, str):
            return read(value)
    special = False
    for name, _ in pairs:
        if "\0" in name:
            raise ValueError("the name of a field may not contain a null character")
        if name[:1] == "$":
            special = True
    return _value_of(pairs) if special else encode_fields(pairs)


def whole_number(text: str) -> int | float:
    """A number of JSON without fraction and exponent: a double where it exceeds 64 bits, as `mongoimport` reads it."""
    if len(text) <= _INT64_CHARACTERS:
        value = int(text)
        if INT64_MIN <= value <= INT64_MAX:
            return value
    return real_number(text)


def real_number(text: str) -> float:
    """A number of JSON. ValueError if it is too large for a double."""
    value = float(text)
    if isinf(value):
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        raise ValueError(f"{shown} is out of the range of doubles")
    return value


def no_constant(name: str) -> NoReturn:
    """For NaN and the infinities, which Python's json reads, although JSON does not have them."""
    raise ValueError(f'{name} is no JSON; Extended JSON has {{"$numberDouble": "{name}"}}')


def _value_of(pairs: list[tuple[str, Value]]) -> Value:
    members = dict(pairs)
    names = frozenset(members)
    convert = _CONVERSIONS.get(names)
    if convert is not None:
        value = convert(members)
        if value is not MISSING:
            return value
    if "$ref" in names:  # a DBRef is a document
        return encode_fields(pairs)
    plain = {name: dict(fields(value)) if isinstance(value, bytes) else value for name, value in pairs}
    converted = object_hook(plain, _OPTIONS)
    return encode_fields(pairs) if converted is plain else _from_pymongo(converted)


def _date(text: str) -> Value:
    """The date of an ISO 8601 text with a time zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or len(text) < _LEAST_DATE:
        raise ValueError(f"{text} is no date and time with a time zone")
    since = moment - _EPOCH
    return Date((since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000)


def _double(text: str) -> Value:
    if text in ("Infinity", "-Infinity", "NaN"):
        return float(text)
    if _DOUBLE.fullmatch(text):
        return real_number(text)
    raise ValueError(f"{text} is no double")


def _int64(text: str) -> Value:
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{text} is no whole number")
    return Int64(text)


def _int32(text: str) -> Value:
    if not _INTEGER.fullmatch(text) or not INT_MIN <= int(text) <= INT_MAX:
        raise ValueError(f"{text} is no whole number of 32 bits")
    return int(text)


def _from_pymongo(value: object) -> Value:
    if isinstance(value, Binary):
        # The old subtype of binary data repeats its length before the data.
        prefix = struct.pack("<i", len(value)) if value.subtype == OLD_BINARY_SUBTYPE else b""
        return BinData(prefix + bytes(value), value.subtype)
    if isinstance(value, bytes):
        return BinData(value, 0)
    if isinstance(value, DatetimeMS):
        return Date(int(value))
    return value


def _text(value: Value) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text is needed, not {value!r}")
    return value


def _regular_expression(members: dict[str, Value]) -> Value:
    parts = members["$regularExpression"]
    if not isinstance(parts, bytes):
        raise TypeError("$regularExpression needs an object")
    given = dict(fields(parts))
    return _regex(_text(given["pattern"]), _text(given["options"]))


def _regex(pattern: str, options: str) -> Value:
    if "\0" in pattern or "\0" in options:
        raise ValueError("a regular expression may not contain a null character")
    return Regex(pattern, "".join(sorted(options)))


def _old_regular_expression(members: dict[str, Value]) -> Value:
    """Of version 1. A query operator of this name, which a stored document may have, is a document."""
    pattern = members["$regex"]
    if not isinstance(pattern, str):
        return MISSING
    return _regex(pattern, _text(members["$options"]))


def _db_pointer(members: dict[str, Value]) -> Value:
    parts = members["$dbPointer"]
    if not isinstance(parts, bytes):
        raise TypeError("$dbPointer needs an object")
    oid = get_value(parts, "$id")
    if not isinstance(oid, ObjectId):
        raise TypeError("$dbPointer needs an ObjectId")
    return DBPointer(_text(get_value(parts, "$ref")), oid.binary)


def _code_with_scope(members: dict[str, Value]) -> Value:
    scope = members["$scope"]
    if not isinstance(scope, bytes):
        raise TypeError("$scope needs an object")
    return JavaScript(_text(members["$code"]), scope)


def _check_base64(members: dict[str, Value]) -> Value:
    """Nothing for binary data: `json_util` makes it, but leaves out what is no base64."""
    given = members["$binary"]
    text = get_value(given, "base64") if isinstance(given, bytes) else given
    if isinstance(text, str):
        try:
            b64decode(text, validate=True)
        except ValueError as error:
            raise ValueError(f"$binary is not in base64: {error}") from None
    return MISSING


def _date_of_number(members: dict[str, Value]) -> Value:
    value = members["$date"]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{value} is no whole number of milliseconds")
    return Date(int(value))


def _decimal(members: dict[str, Value]) -> Value:
    text = _text(members["$numberDecimal"])
    try:
        return Decimal128(text)
    except ArithmeticError:
        raise ValueError(f"{text} is no decimal") from None


# Types that most documents have, of one member whose value is text: `json_util` takes several times as long for them.
_FREQUENT: Final[dict[str, Callable[[str], Value]]] = {
    "$oid": ObjectId,
    "$date": _date,
    "$numberLong": _int64,
    "$numberInt": _int32,
    "$numberDouble": _double,
}
# By the names of all members.
_CONVERSIONS: Final[dict[frozenset[str], Callable[[dict[str, Value]], Value]]] = {
    frozenset({"$binary"}): _check_base64,
    frozenset({"$binary", "$type"}): _check_base64,
    frozenset({"$date"}): _date_of_number,
    frozenset({"$numberDecimal"}): _decimal,
    frozenset({"$symbol"}): lambda members: Symbol(_text(members["$symbol"])),
    frozenset({"$undefined"}): lambda members: Undefined(),
    frozenset({"$dbPointer"}): _db_pointer,
    frozenset({"$code"}): lambda members: JavaScript(_text(members["$code"])),
    frozenset({"$code", "$scope"}): _code_with_scope,
    frozenset({"$regularExpression"}): _regular_expression,
    frozenset({"$regex", "$options"}): _old_regular_expression,
    # Without options it is a query operator.
    frozenset({"$regex"}): lambda members: encode_fields(list(members.items())),
}
