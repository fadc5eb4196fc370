"""Documents from index keys, where the keys tell enough: what a covered query gives instead of the stored documents.

KeyStrings do not tell 1 from 1.0, nor null from no field, nor "a" from a symbol (`keystring`). An index records the
types of the values that its keys were made of (`value_kind`) as type bits. As long as each of its components has at
most one number type, and null or missing but not both, the keys determine the values:

    type_bits |= value_kind(type code of the value) << component * KIND_BITS     for each value that is indexed
    if tells_value(type_bits, 0) and tells_value(type_bits, 1):
        reader = KeyReader([[b"a", b"b"], [b"c"], None], [False, True, False], type_bits)
        reader.document(key)                                                 # {a: {b: …}, c: …}

None leaves a component out. Keys do not tell decimals, whose trailing zeros they lack, the sign of -0.0, or a NaN with
other bits than the usual ones: components with such values are never told.
"""

from typing import Final

from librt.strings import read_f64_be, read_f64_le
from mypy_extensions import i64

from mongottl.document.build import DocumentBuilder
from mongottl.document.key_split import component_end

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
_USUAL_NAN: Final = b"\0\0\0\0\0\0\xf8\x7f"
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


def double_kind(buf: bytes, pos: i64) -> i64:
    """The kind of the double at `pos`: that of all other values for -0.0 and NaNs whose bits the key does not tell."""
    number: float = read_f64_le(buf, pos)
    if number == 0.0:
        return _OTHER_KIND if buf[pos + 7] == 0x80 else _DOUBLE_KIND
    if number != number and buf[pos : pos + 8] != _USUAL_NAN:
        return _OTHER_KIND
    return _DOUBLE_KIND


def _kind_of(type_bits: int, component: int) -> int:
    if type_bits < 0 or component >= MAX_WIDTH:
        return _OTHER_KIND
    return (type_bits >> (component * KIND_BITS)) & _KIND_MASK


def tells_value(type_bits: int, component: int) -> bool:
    """Whether an index with these type bits tells the values of one component. type_bits: -1 if they are not known."""
    kind = _kind_of(type_bits, component)
    numbers = kind & _NUMBERS
    return not (kind & _OTHER_KIND or numbers & (numbers - 1) or (kind & _NULL_KIND and kind & _MISSING_KIND))


def may_be_missing(type_bits: int, component: int) -> bool:
    """Whether a document without the component's path has keys in the index."""
    return type_bits < 0 or component >= MAX_WIDTH or _kind_of(type_bits, component) & _MISSING_KIND != 0


class _Field:
    """A field of the documents that keys become. component: which one gives its value; -1 if it is a document."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.component = -1
        self.fields: list[_Field] = []


class KeyReader:
    """paths: of the fields that the components become, by the bytes of their parts, None for a component that is left
    out. type_bits: those of the index."""

    def __init__(self, paths: list[list[bytes] | None], descending: list[bool], type_bits: int) -> None:
        self._descending = descending
        self._type_bits: list[int] = [_kind_of(type_bits, i) for i in range(len(paths))]
        self._told: list[bool] = [path is not None for path in paths]
        # Components behind the last one that is told are not read.
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
            below: _Field | None = None
            for other in field.fields:
                if other.name == name:
                    below = other
            if below is None:
                below = _Field(name)
                field.fields.append(below)
            field = below
        field.component = component

    def document(self, key: bytes) -> bytes:
        """The fields of a key, in the order of the index."""
        builder = DocumentBuilder()
        plain = key
        inverted = b""
        pos: i64 = 0
        place = 0
        fields = self._root.fields
        for i in range(self._width):
            if not self._told[i]:
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
                builder.append_named(fields[place].name, value)
                place += 1
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
                below = DocumentBuilder()
                if self._append_fields(below, field):
                    builder.append_named(field.name, below.finish())
                    found = True
        return found

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
