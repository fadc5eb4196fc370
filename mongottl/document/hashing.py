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
from mongottl.document.interrupt import give_way
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
# How many parts of the canonical form are joined before they are hashed.
_MANY_PARTS: Final[i64] = 1024


def hashed_value(value: Value) -> Int64:
    """The hash of a decoded value, MISSING excluded."""
    document = encode({"": value})
    type_code, pos = find_field(document, b"")
    return hashed_raw(document, type_code, pos)


def hashed_raw(buf: bytes, type_code: i64, pos: i64) -> Int64:
    """The hash of the raw value of this type at `pos`."""
    form = _CanonicalForm()
    form.add(b"", buf, type_code, pos)
    return form.hash()


class _CanonicalForm:
    """The canonical form of a value, hashed as it is made."""

    def __init__(self) -> None:
        # Not for security: the hash must be MongoDB's.
        self._hash: Final = md5(_SEED, usedforsecurity=False)
        self._parts: list[bytes] = []

    def hash(self) -> Int64:
        self._hash.update(b"".join(self._parts))
        return Int64(int.from_bytes(self._hash.digest()[:8], "little", signed=True))

    def add(self, name: bytes, buf: bytes, type_code: i64, pos: i64) -> None:
        """Adds one value. name: its field name in the document, with NUL."""
        parts = self._parts
        parts.append(int(bracket_of_type(type_code)).to_bytes(4, "little", signed=True))
        parts.append(name)
        if type_code == DOCUMENT or type_code == ARRAY:
            self._add_fields(buf, pos)
            return
        if type_code == CODE_WITH_SCOPE:
            # int32 size in all, then the code as a string, then the scope.
            scope = pos + 8 + int.from_bytes(buf[pos + 4 : pos + 8], "little")
            parts.append(buf[pos + 8 : scope])
            self._add_fields(buf, scope)
            return
        value: Value = None
        if type_code != MIN_KEY and type_code != MAX_KEY:
            value = decode_value(buf, type_code, pos)
        if is_number(value):
            parts.append(_whole_part(value).to_bytes(8, "little", signed=True))
        else:
            parts.append(buf[pos : skip_value(buf, type_code, pos)])

    def _add_fields(self, buf: bytes, start: i64) -> None:
        cursor = ElementCursor(buf, start)
        while cursor.next():
            give_way()
            self.add(cursor.name_bytes() + b"\0", buf, cursor.type_code, cursor.value)
            if len(self._parts) >= _MANY_PARTS:
                self._hash.update(b"".join(self._parts))
                self._parts.clear()
        self._parts.append(_NO_MORE)


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
