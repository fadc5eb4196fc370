"""Decoding index keys into documents, for covered queries.

KeyStrings do not distinguish 1 from 1.0, null from a missing field, or "a" from a symbol (`keystring`). Each index
therefore records type bits: per key component, which of these types the indexed values had. While a component has at
most one numeric type, and not both null and missing, the keys alone determine its values:

    type_bits |= type_bits_of(type code of the value) << component * BITS_PER_COMPONENT     for each indexed value
    if determines_value(type_bits, 0) and determines_value(type_bits, 1):
        reader = KeyReader([[b"a", b"b"], [b"c"], None], [False, True, False], type_bits)
        reader.document(key)                                                 # {a: {b: …}, c: …}

None leaves a component out. Keys never determine decimals, whose trailing zeros they lack, -0.0, whose sign they lack,
or a NaN with unusual bits. mongod gives these back too, because it stores type bits with each entry of an index, a
decimal's exponent among them. Here an entry is a key and a record id, in both engines and on disk; type bits of each
entry would add to the memory of every index and to each insert, for the sake of covered queries over decimals.
"""

from typing import Final

from librt.strings import read_f64_be, read_f64_le
from mypy_extensions import i64

from mongottl.document.build import DocumentBuilder
from mongottl.document.key_split import component_end

# The first bytes of components are internal to the modules about keys.
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
from mongottl.document.utf8 import decode_text

# Begins the two bytes that stand for a NUL or a 1 in strings.
_ESCAPE: Final = 1
_INT32_BIT: Final = 1
_INT64_BIT: Final = 2
_DOUBLE_BIT: Final = 4
_NULL_BIT: Final = 8
_MISSING_BIT: Final = 16
_OTHER_BIT: Final = 32
BITS_PER_COMPONENT: Final = 6
_COMPONENT_MASK: Final = 63
_TWO_55: Final = 36028797018963968
_TWO_63: Final = 9223372036854775808
MAX_WIDTH: Final = 10  # components whose type bits fit an int64
_USUAL_NAN: Final = b"\0\0\0\0\0\0\xf8\x7f"
_NUMBERS: Final = _INT32_BIT | _INT64_BIT | _DOUBLE_BIT


def type_bits_of(type_code: i64) -> i64:
    """The bit of a type within a component; 0 if the key alone determines the type. Type code 0: missing field."""
    if type_code == INT32:
        return _INT32_BIT
    if type_code == STRING or type_code == OBJECT_ID or type_code == DATE or type_code == BOOL:
        return 0
    if type_code == DOUBLE:
        return _DOUBLE_BIT
    if type_code == INT64:
        return _INT64_BIT
    if type_code == NULL:
        return _NULL_BIT
    if type_code == 0:
        return _MISSING_BIT
    if type_code == TIMESTAMP:
        return 0
    return _OTHER_BIT


def double_type_bits(buf: bytes, pos: i64) -> i64:
    """The bit of the double at `pos`; _OTHER_BIT for -0.0 and for NaNs with bits that the key does not determine."""
    number: float = read_f64_le(buf, pos)
    if number == 0.0:
        return _OTHER_BIT if buf[pos + 7] == 0x80 else _DOUBLE_BIT
    if number != number and buf[pos : pos + 8] != _USUAL_NAN:
        return _OTHER_BIT
    return _DOUBLE_BIT


def _component_bits(type_bits: int, component: int) -> int:
    if type_bits < 0 or component >= MAX_WIDTH:
        return _OTHER_BIT
    return (type_bits >> (component * BITS_PER_COMPONENT)) & _COMPONENT_MASK


def determines_value(type_bits: int, component: int) -> bool:
    """Whether the keys of an index determine the values of a component. type_bits: of the index; -1 if not known."""
    bits = _component_bits(type_bits, component)
    numbers = bits & _NUMBERS
    return not (bits & _OTHER_BIT or numbers & (numbers - 1) or (bits & _NULL_BIT and bits & _MISSING_BIT))


def may_be_missing(type_bits: int, component: int) -> bool:
    """Whether a document without the component's path has keys in the index."""
    return type_bits < 0 or component >= MAX_WIDTH or _component_bits(type_bits, component) & _MISSING_BIT != 0


class _Field:
    """A field of the decoded documents. component: the one with its value; -1 for a document with `fields`."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.component = -1
        self.fields: list[_Field] = []


class KeyReader:
    """Decodes the keys of one index.

    paths: for each component the parts of its field's path, None to leave it out. type_bits: those of the index.
    """

    def __init__(self, paths: list[list[bytes] | None], descending: list[bool], type_bits: int) -> None:
        self._descending = descending
        self._type_bits: list[int] = [_component_bits(type_bits, i) for i in range(len(paths))]
        self._included: list[bool] = [path is not None for path in paths]
        # Components after the last included one are not read.
        self._width = 0
        self._root = _Field(b"")
        self._nested = False
        self._values: list[Value] = [MISSING] * len(paths)
        for i, path in enumerate(paths):
            if path is not None:
                self._width = i + 1
                self._nested = self._nested or len(path) > 1
                self._add(path, i)
        self._key = b""
        self._pos: i64 = 0

    def _add(self, path: list[bytes], component: int) -> None:
        field = self._root
        for name in path:
            child: _Field | None = None
            for other in field.fields:
                if other.name == name:
                    child = other
            if child is None:
                child = _Field(name)
                field.fields.append(child)
            field = child
        field.component = component

    def document(self, key: bytes) -> bytes:
        """A document with the fields of a key, in the order of the index."""
        builder = DocumentBuilder()
        plain = key
        inverted = b""
        pos: i64 = 0
        position = 0
        fields = self._root.fields
        for i in range(self._width):
            if not self._included[i]:
                pos = component_end(plain, pos, self._descending[i])
                continue
            if self._descending[i]:
                if not inverted:
                    inverted = _inverted(key)
                self._key = inverted
            else:
                self._key = plain
            self._pos = pos
            value = self._value(self._type_bits[i])
            pos = self._pos
            if self._nested:
                self._values[i] = value
            else:
                builder.append_named(fields[position].name, value)
                position += 1
        if self._nested:
            self._append_fields(builder, self._root)
        return builder.finish()

    def _append_fields(self, builder: DocumentBuilder, parent: _Field) -> bool:
        """Appends the fields that have a value; False if none has."""
        found = False
        for field in parent.fields:
            if field.component >= 0 and self._values[field.component] is not MISSING:
                builder.append_named(field.name, self._values[field.component])
                found = True
            elif field.fields:
                child = DocumentBuilder()
                if self._append_fields(child, field):
                    builder.append_named(field.name, child.finish())
                    found = True
        return found

    def _value(self, bits: i64) -> Value:
        key = self._key
        pos = self._pos
        first: i64 = key[pos]
        pos += 1
        self._pos = pos
        if first == _STRING:
            end = key.index(_END, pos)
            self._pos = end + 1
            text = key[pos:end]
            return decode_text(text if _ESCAPE not in text else _unescaped(text))
        if first == _OBJECT_ID:
            self._pos = pos + 12
            return ObjectId(key[pos : pos + 12])
        if first == _NULL:
            return MISSING if bits & _MISSING_BIT else None
        if first == _TRUE or first == _FALSE:
            return first == _TRUE
        if first == _DATE:
            self._pos = pos + 8
            return Date(int.from_bytes(key[pos : pos + 8], "big") - _TWO_63)
        if first == _TIMESTAMP:
            self._pos = pos + 8
            return Timestamp(int.from_bytes(key[pos : pos + 4], "big"), int.from_bytes(key[pos + 4 : pos + 8], "big"))
        number = self._number(first)
        if bits & _INT64_BIT:
            return Int64(int(number))
        if bits & _DOUBLE_BIT:
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
            double_bits = int.from_bytes(self._payload(8, negative), "big") >> 1
            magnitude: int | float = read_f64_be(double_bits.to_bytes(8, "big"), 0)
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
    """Undoes the escaping of text: 01 01 is 00, 01 02 is 01."""
    parts = bytearray()
    pos = 0
    while pos < len(text):
        byte = text[pos]
        if byte == _ESCAPE:
            pos += 1
            byte = text[pos] - 1
        parts.append(byte)
        pos += 1
    return bytes(parts)
