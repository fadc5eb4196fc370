"""The number that a hashed index keeps in place of a value, and that `$toHashedIndexKey` answers.

It is the first eight bytes, as a little-endian int64, of an MD5 over the seed 0 and the value in a form in which values
that compare equal as numbers or strings are the same bytes:

    number              bracket, whole part as int64      1, 1.0, 1.7 and NumberDecimal("1") are one key
    document or array   bracket, then for each field bracket, name, value; at the end the bracket of "no more"
    anything else       bracket, value as in BSON

where a bracket is mongod's number for the value's place in the order of types, as int32.

Source: MongoDB's pages "Hashed Indexes" and "$toHashedIndexKey".
"""

from hashlib import md5
from typing import Final

from mypy_extensions import i64

from mongottl.document.build import encode
from mongottl.document.compare import bracket_of_type
from mongottl.document.numbers import decimal_of
from mongottl.document.types import (
    ARRAY,
    CODE_WITH_SCOPE,
    DOCUMENT,
    MAX_KEY,
    MIN_KEY,
    Decimal128,
    Int64,
    Value,
    is_number,
)
from mongottl.document.walk import ElementCursor, decode_value, find_field, skip_value

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_SEED: Final = b"\0\0\0\0"
_NO_MORE: Final = b"\0\0\0\0"


def hashed_value(value: Value) -> Int64:
    """The hash of a decoded value, MISSING excluded."""
    document = encode({"": value})
    type_code, pos = find_field(document, b"")
    return hashed_raw(document, type_code, pos)


def hashed_raw(buf: bytes, type_code: i64, pos: i64) -> Int64:
    """The hash of the value at `pos`."""
    parts: list[bytes] = [_SEED]
    _collect(parts, b"", buf, type_code, pos)
    # Not for security: the hash must be MongoDB's.
    digest = md5(b"".join(parts), usedforsecurity=False).digest()
    return Int64(int.from_bytes(digest[:8], "little", signed=True))


def _collect(parts: list[bytes], name: bytes, buf: bytes, type_code: i64, pos: i64) -> None:
    """Adds what is hashed of one value. name: of the field that it has in a document, with its NUL."""
    parts.append(int(bracket_of_type(type_code)).to_bytes(4, "little", signed=True))
    parts.append(name)
    if type_code == DOCUMENT or type_code == ARRAY:
        _collect_fields(parts, buf, pos)
        return
    if type_code == CODE_WITH_SCOPE:
        # int32 size in all, then the code as a string, then the scope.
        scope = pos + 8 + int.from_bytes(buf[pos + 4 : pos + 8], "little")
        parts.append(buf[pos + 8 : scope])
        _collect_fields(parts, buf, scope)
        return
    value: Value = None
    if type_code != MIN_KEY and type_code != MAX_KEY:
        value = decode_value(buf, type_code, pos)
    if is_number(value):
        parts.append(_whole_part(value).to_bytes(8, "little", signed=True))
    else:
        parts.append(buf[pos : skip_value(buf, type_code, pos)])


def _collect_fields(parts: list[bytes], buf: bytes, start: i64) -> None:
    cursor = ElementCursor(buf, start)
    while cursor.next():
        _collect(parts, cursor.name_bytes() + b"\0", buf, cursor.type_code, cursor.value)
    parts.append(_NO_MORE)


def _whole_part(number: Value) -> int:
    """A number cut to an int64: NaN is 0, and what does not fit is the nearest that does; but 2^63 as a double, by an
    old mistake that stored indexes depend on, is the lowest."""
    if isinstance(number, Decimal128):
        decimal = decimal_of(number)
        if decimal.is_nan():
            return 0
        if not decimal.is_finite() or (decimal != 0 and decimal.adjusted() > 18):
            return _INT64_MIN if decimal < 0 else _INT64_MAX
        return max(_INT64_MIN, min(_INT64_MAX, int(decimal)))
    if isinstance(number, float):
        if number != number:
            return 0
        if number == 9223372036854775808.0:
            return _INT64_MIN
        if number in (float("inf"), float("-inf")):
            return _INT64_MIN if number < 0 else _INT64_MAX
        return max(_INT64_MIN, min(_INT64_MAX, int(number)))
    assert isinstance(number, int)
    return int(number)
