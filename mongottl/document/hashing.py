"""The hash of a value: the key of hashed indexes, and the result of `$toHashedIndexKey`.

It is the first eight bytes, as a little-endian int64, of an MD5 over the seed 0 and the value in a canonical form, in
which numbers or strings that compare equal have the same bytes:

    number              bracket, whole part as int64      1, 1.0, 1.7 and NumberDecimal("1") are one key
    document or array   bracket, then for each field bracket, name, value; then the bracket of the end of the object
    anything else       bracket, value as in BSON

where the bracket is mongod's number of the type in the order of types, as int32.

Source: MongoDB's pages "Hashed Indexes" and "$toHashedIndexKey".
"""

from hashlib import md5
from typing import Final

from mypy_extensions import i64

from mongottl.document.build import encode
from mongottl.document.compare import bracket_of_type
from mongottl.document.numbers import TWO_63, decimal_of
from mongottl.document.types import (
    ARRAY,
    CODE_WITH_SCOPE,
    DOCUMENT,
    INT64_MAX,
    INT64_MIN,
    MAX_KEY,
    MIN_KEY,
    Decimal128,
    Int64,
    Value,
    is_number,
)
from mongottl.document.walk import ElementCursor, decode_value, find_field, skip_value

_SEED: Final = b"\0\0\0\0"
_NO_MORE: Final = b"\0\0\0\0"


def hashed_value(value: Value) -> Int64:
    """The hash of a decoded value, MISSING excluded."""
    document = encode({"": value})
    type_code, pos = find_field(document, b"")
    return hashed_raw(document, type_code, pos)


def hashed_raw(buf: bytes, type_code: i64, pos: i64) -> Int64:
    """The hash of the raw value of this type at `pos`."""
    parts: list[bytes] = [_SEED]
    _collect(parts, b"", buf, type_code, pos)
    # Not for security: the hash must be MongoDB's.
    digest = md5(b"".join(parts), usedforsecurity=False).digest()
    return Int64(int.from_bytes(digest[:8], "little", signed=True))


def _collect(parts: list[bytes], name: bytes, buf: bytes, type_code: i64, pos: i64) -> None:
    """Appends the canonical form of one value. name: its field name in the document, with NUL."""
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
    """A number truncated to an int64: NaN is 0, numbers out of range saturate; but the double 2^63 becomes INT64_MIN,
    an old fault of MongoDB's on which stored indexes depend."""
    if isinstance(number, Decimal128):
        decimal = decimal_of(number)
        if decimal.is_nan():
            return 0
        if not decimal.is_finite() or (decimal != 0 and decimal.adjusted() > 18):
            return INT64_MIN if decimal < 0 else INT64_MAX
        return max(INT64_MIN, min(INT64_MAX, int(decimal)))
    if isinstance(number, float):
        if number != number:
            return 0
        if number == TWO_63:
            return INT64_MIN
        if number in (float("inf"), float("-inf")):
            return INT64_MIN if number < 0 else INT64_MAX
        return max(INT64_MIN, min(INT64_MAX, int(number)))
    assert isinstance(number, int)
    return int(number)
