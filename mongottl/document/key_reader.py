"""Documents from index keys, where the keys tell enough: what a covered query gives instead of the stored documents.

KeyStrings do not tell 1 from 1.0, nor null from no field, nor "a" from a symbol (`keystring`). An index records the
types of the values that its keys were made of (`value_kind`) as type bits. As long as each of its components has at
most one number type, and null or missing but not both, the keys determine the values:

    type_bits |= value_kind(type code of the value) << component * KIND_BITS     for each value that is indexed
    if tells_values(type_bits, width):
        KeyReader([b"a", None], [False, True], type_bits).document(key)          # {a: …}; None leaves a component out
"""

from typing import Final

from librt.strings import read_f64_be
from mypy_extensions import i64

from mongottl.document.build import DocumentBuilder

# The first bytes of components are a matter of these two modules alone.
from mongottl.document.keystring import (
    _CLASS_BELOW_ONE,
    _CLASS_INTEGER,
    _CLASS_LARGE,
    _DATE,
    _END,
    _FALSE,
    _INFINITY,
    _MINUS_INFINITY,
    _NAN,
    _NULL,
    _OBJECT_ID,
    _STRING,
    _TIMESTAMP,
    _TRUE,
    _ZERO,
)
from mongottl.document.types import (
    BOOL,
    DATE,
    DOUBLE,
    INT32,
    INT64,
    MISSING,
    NULL,
    OBJECT_ID,
    STRING,
    TIMESTAMP,
    Date,
    Int64,
    ObjectId,
    Timestamp,
    Value,
)

_INT32_KIND: Final = 1
_INT64_KIND: Final = 2
_DOUBLE_KIND: Final = 4
_NULL_KIND: Final = 8
_MISSING_KIND: Final = 16
_OTHER_KIND: Final = 32
KIND_BITS: Final = 6
_KIND_MASK: Final = 63
_TWO_55: Final = 36028797018963968
_TWO_63: Final = 9223372036854775808
MAX_WIDTH: Final = 10  # components whose type bits fit an int64
_NUMBERS: Final = _INT32_KIND | _INT64_KIND | _DOUBLE_KIND


def value_kind(type_code: i64) -> i64:
    """Which kind of value a key stems from; 0 where the key tells. Type code 0 is a missing field."""
    if type_code == INT32:
        return _INT32_KIND
    if type_code == STRING or type_code == OBJECT_ID or type_code == DATE or type_code == BOOL:
        return 0
    if type_code == DOUBLE:
        return _DOUBLE_KIND
    if type_code == INT64:
        return _INT64_KIND
    if type_code == NULL:
        return _NULL_KIND
    if type_code == 0:
        return _MISSING_KIND
    if type_code == TIMESTAMP:
        return 0
    return _OTHER_KIND


def tells_values(type_bits: int, width: int) -> bool:
    """Whether keys of an index with these type bits determine the values that they were made of."""
    if type_bits < 0 or width > MAX_WIDTH:
        return False
    for _ in range(width):
        kind = type_bits & _KIND_MASK
        numbers = kind & _NUMBERS
        if kind & _OTHER_KIND or numbers & (numbers - 1) or (kind & _NULL_KIND and kind & _MISSING_KIND):
            return False
        type_bits >>= KIND_BITS
    return True


class KeyReader:
    """names: of the fields that the components become, None for one that is left out. type_bits: those of the index."""

    def __init__(self, names: list[bytes | None], descending: list[bool], type_bits: int) -> None:
        self._names = names
        self._descending = descending
        self._type_bits: list[int] = [(type_bits >> (i * KIND_BITS)) & _KIND_MASK for i in range(len(names))]
        self._key = b""
        self._pos: i64 = 0

    def document(self, key: bytes) -> bytes:
        """The fields of a key, in the order of the index."""
        builder = DocumentBuilder()
        plain = key
        inverted = b""
        pos: i64 = 0
        for i in range(len(self._names)):
            if self._descending[i]:
                if not inverted:
                    inverted = _inverted(key)
                self._key = inverted
            else:
                self._key = plain
            self._pos = pos
            value = self._value(self._type_bits[i])
            pos = self._pos
            name = self._names[i]
            if name is not None:
                builder.append_named(name, value)
        return builder.finish()

    def _value(self, kind: i64) -> Value:
        key = self._key
        pos = self._pos
        first: i64 = key[pos]
        pos += 1
        self._pos = pos
        if first == _STRING:
            end = key.index(_END, pos)
            self._pos = end + 1
            text = key[pos:end]
            return (text if b"\x01" not in text else _unescaped(text)).decode("utf-8")
        if first == _OBJECT_ID:
            self._pos = pos + 12
            return ObjectId(key[pos : pos + 12])
        if first == _NULL:
            return MISSING if kind & _MISSING_KIND else None
        if first == _TRUE or first == _FALSE:
            return first == _TRUE
        if first == _DATE:
            self._pos = pos + 8
            return Date(int.from_bytes(key[pos : pos + 8], "big") - _TWO_63)
        if first == _TIMESTAMP:
            self._pos = pos + 8
            return Timestamp(int.from_bytes(key[pos : pos + 4], "big"), int.from_bytes(key[pos + 4 : pos + 8], "big"))
        number = self._number(first)
        if kind & _INT64_KIND:
            return Int64(int(number))
        if kind & _DOUBLE_KIND:
            return float(number)
        return int(number)

    def _number(self, first: i64) -> int | float:
        if first == _ZERO:
            return 0
        if first == _NAN:
            return float("nan")
        if first == _INFINITY:
            return float("inf")
        if first == _MINUS_INFINITY:
            return float("-inf")
        negative = first < _ZERO
        size_class = _ZERO - first if negative else first - _ZERO
        if size_class == _CLASS_BELOW_ONE or size_class == _CLASS_LARGE:
            bits = int.from_bytes(self._payload(8, negative), "big") >> 1
            magnitude: int | float = read_f64_be(bits.to_bytes(8, "big"), 0)
        else:
            size = size_class - _CLASS_INTEGER
            whole = int.from_bytes(self._payload(size, negative), "big")
            magnitude = whole >> 1
            if whole & 1:
                fraction = int.from_bytes(self._payload(7, negative), "big") >> 1
                magnitude = magnitude + fraction / _TWO_55
        return -magnitude if negative else magnitude

    def _payload(self, size: i64, negative: bool) -> bytes:
        start = self._pos
        self._pos = start + size
        payload = self._key[start : start + size]
        return _inverted(payload) if negative else payload


_INVERSION: Final = bytes(range(255, -1, -1))


def _inverted(data: bytes) -> bytes:
    return data.translate(_INVERSION)


def _unescaped(text: bytes) -> bytes:
    """01 01 is 00, 01 02 is 01."""
    parts = bytearray()
    pos = 0
    while pos < len(text):
        byte = text[pos]
        if byte == 1:
            pos += 1
            byte = text[pos] - 1
        parts.append(byte)
        pos += 1
    return bytes(parts)
