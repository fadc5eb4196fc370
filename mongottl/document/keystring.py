"""Values as bytes whose byte order (memcmp) is MongoDB's order of values, `compare.compare_values`.

Index keys, sort keys, group keys and distinct values are KeyStrings: two values compare equal exactly when their bytes
are equal, whatever their types were (1, 1.0, Int64(1) and Decimal128("1.0")). So the bytes do not determine the
types: covered queries decode keys with the help of the index's type bits (`key_reader`).

A key is a sequence of components. The component of a value is one byte that orders its type, then its payload;
no component is a prefix of another one, so components are simply concatenated. In a descending component
every byte is inverted. Bytes 00 and FF never begin a component, in either direction.

    null, undefined, minKey, maxKey, true, false      the first byte only
    number            the first byte encodes sign and size class, see below
    string, symbol    UTF-8, where 00 becomes 01 01 and 01 becomes 01 02; then 00
    object            for each element: first byte of the type's bracket, name, 00, component of the value; then 00
    array             the components of its elements; then 00
    binary            length (4 bytes), subtype, data
    objectId          its 12 bytes
    date              8 bytes, sign bit inverted        timestamp   seconds, then increment: 4 bytes each
    regex             pattern and options as strings    code        as a string; with scope: then the scope as an object
    dbPointer         length of the namespace (4 bytes), the namespace as a string, 12 bytes

All integers are big-endian. A positive number has one of these payloads, its size class being in the first byte; a
negative one has another first byte, and the inverted payload of its magnitude:

    less than 1, or from 2**63 to the largest double
        8 bytes: (bits of the next double towards zero) << 1 | inexact
    1 to 2**63 - 1, in k = 1 to 8 bytes
        k bytes: integer part << 1 | has a fraction
        then, if it has one, 7 bytes: floor(fraction * 2**55) << 1 | inexact
    greater than the largest double
        nothing
    then, if inexact, or greater than the largest double: the decimal itself
        2 bytes: decimal exponent + 8192; 15 bytes: the coefficient, scaled to 34 digits

Every double from 1 to 2**63 has at most 52 binary digits after the point, and every Decimal128 of that size whose
binary expansion ends has fewer. So only decimals that equal no double are ever inexact, and they compare with each
other by their own digits.

Without a collation, strings and symbols are written as they are. With one, their sort keys are written
instead. Field names, regular expressions, code and namespaces are never collated.
"""

import math
from decimal import Decimal
from typing import Final

from librt.strings import BytesWriter, read_f64_le, read_i32_le, read_i64_le, write_f64_be
from mypy_extensions import i64, u8

from mongottl.document.build import encode
from mongottl.document.collation import Collation
from mongottl.document.compare import (
    BRACKET_ARRAY,
    BRACKET_BINARY,
    BRACKET_BOOL,
    BRACKET_CODE,
    BRACKET_CODE_WITH_SCOPE,
    BRACKET_DATE,
    BRACKET_DB_POINTER,
    BRACKET_MAX_KEY,
    BRACKET_MIN_KEY,
    BRACKET_NULL,
    BRACKET_NUMBER,
    BRACKET_OBJECT,
    BRACKET_OBJECT_ID,
    BRACKET_REGEX,
    BRACKET_STRING,
    BRACKET_TIMESTAMP,
    BRACKET_UNDEFINED,
    bracket_of_type,
)
from mongottl.document.interrupt import MANY_BYTES, give_way, give_way_after
from mongottl.document.nesting import MAX_LEVELS, too_deep
from mongottl.document.numbers import DECIMAL_DIGITS, LARGEST_DOUBLE, TWO_63
from mongottl.document.types import (
    ARRAY,
    BOOL,
    DATE,
    DECIMAL128,
    DOCUMENT,
    DOUBLE,
    INT32,
    INT64,
    NULL,
    OBJECT_ID,
    STRING,
    SYMBOL,
    TIMESTAMP,
    BinData,
    Date,
    DBPointer,
    Decimal128,
    JavaScript,
    MaxKey,
    MinKey,
    Missing,
    ObjectId,
    Regex,
    Symbol,
    Timestamp,
    Undefined,
    Value,
)
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import decode_value, skip_value

# First bytes of components. 00 ends objects, arrays and strings, so it must be less than all of these.
_END: Final = 0x00
_MIN_KEY: Final = 0x08
_UNDEFINED: Final = 0x10
_NULL: Final = 0x18
_NAN: Final = 0x20
_MINUS_INFINITY: Final = 0x21
_ZERO: Final = 0x2D  # a positive number of class c begins with _ZERO + c, a negative one with _ZERO - c
_INFINITY: Final = 0x39
_STRING: Final = 0x40
_OBJECT: Final = 0x48
_ARRAY: Final = 0x50
_BINARY: Final = 0x58
_OBJECT_ID: Final = 0x60
_FALSE: Final = 0x68
_TRUE: Final = 0x69
_DATE: Final = 0x70
_TIMESTAMP: Final = 0x78
_REGEX: Final = 0x80
_DB_POINTER: Final = 0x88
_CODE: Final = 0x90
_CODE_WITH_SCOPE: Final = 0x98
_MAX_KEY: Final = 0xF0

# Size classes of numbers.
_CLASS_BELOW_ONE: Final = 1
_CLASS_INTEGER: Final = 1  # plus the number of bytes, 1 to 8
_CLASS_LARGE: Final = 10
_CLASS_BEYOND_DOUBLE: Final = 11

# Longer texts are escaped in large parts, which takes 16 MB milliseconds; shorter ones byte by byte.
_LONG_TEXT: Final = 64
_TWO_55: Final = 36028797018963968.0
_INT64_LIMIT: Final = 2**63
_COEFFICIENT_BITS: Final = 2**113 - 1
_COEFFICIENT_LIMIT: Final = 10**34
_EXPONENT_BIAS: Final = 6176  # of a Decimal128
_TAIL_EXPONENT_BIAS: Final = 8192  # of the tail of an inexact decimal, so that it is never negative

# Bracket to its first and last first byte.
_BRACKET_BYTES: Final[dict[int, tuple[int, int]]] = {
    BRACKET_MIN_KEY: (_MIN_KEY, _MIN_KEY),
    BRACKET_UNDEFINED: (_UNDEFINED, _UNDEFINED),
    BRACKET_NULL: (_NULL, _NULL),
    BRACKET_NUMBER: (_NAN, _INFINITY),
    BRACKET_STRING: (_STRING, _STRING),
    BRACKET_OBJECT: (_OBJECT, _OBJECT),
    BRACKET_ARRAY: (_ARRAY, _ARRAY),
    BRACKET_BINARY: (_BINARY, _BINARY),
    BRACKET_OBJECT_ID: (_OBJECT_ID, _OBJECT_ID),
    BRACKET_BOOL: (_FALSE, _TRUE),
    BRACKET_DATE: (_DATE, _DATE),
    BRACKET_TIMESTAMP: (_TIMESTAMP, _TIMESTAMP),
    BRACKET_REGEX: (_REGEX, _REGEX),
    BRACKET_DB_POINTER: (_DB_POINTER, _DB_POINTER),
    BRACKET_CODE: (_CODE, _CODE),
    BRACKET_CODE_WITH_SCOPE: (_CODE_WITH_SCOPE, _CODE_WITH_SCOPE),
    BRACKET_MAX_KEY: (_MAX_KEY, _MAX_KEY),
}
# Type code to the first byte of its bracket, which precedes a field's name.
_FIELD_BYTES: Final[bytes] = bytes([_BRACKET_BYTES[int(bracket_of_type(code))][0] for code in range(256)])

# Every key is greater than LOWEST_KEY, and less than HIGHEST_KEY.
LOWEST_KEY: Final = b""
HIGHEST_KEY: Final = b"\xff"


def _invert(writer: BytesWriter, start: i64) -> None:
    end: i64 = i64(len(writer))
    while start < end:
        part_end: i64 = min(end, start + MANY_BYTES)
        give_way_after(part_end - start)
        while start < part_end:
            writer[start] = writer[start] ^ 0xFF
            start += 1


def _write_big_endian(writer: BytesWriter, number: i64, size: i64) -> None:
    shift: i64 = size * 8 - 8
    while shift >= 0:
        writer.append(u8((number >> shift) & 0xFF))
        shift -= 8


def _write_integer_part(writer: BytesWriter, magnitude: i64, negative: bool, fraction: i64) -> None:
    """First byte and integer part of 1 <= magnitude < 2**63; not inverted yet. fraction: 0 or 1."""
    size: i64 = 1
    rest: i64 = magnitude >> 7
    while rest != 0:
        size += 1
        rest >>= 8
    if negative:
        writer.append(u8(_ZERO - _CLASS_INTEGER - size))
    else:
        writer.append(u8(_ZERO + _CLASS_INTEGER + size))
    shift: i64 = size * 8 - 8
    while shift > 0:
        writer.append(u8((magnitude >> (shift - 1)) & 0xFF))
        shift -= 8
    writer.append(u8(((magnitude << 1) & 0xFE) | fraction))


def _write_integer(writer: BytesWriter, number: i64) -> None:
    if number > 0:
        _write_integer_part(writer, number, False, 0)
    elif number == 0:
        writer.append(_ZERO)
    elif number == -9223372036854775808:  # its magnitude exceeds int64
        _write_double(writer, -TWO_63)
    else:
        start: i64 = i64(len(writer)) + 1
        _write_integer_part(writer, -number, True, 0)
        _invert(writer, start)


def _write_double_bits(writer: BytesWriter, magnitude: float, inexact: i64) -> None:
    """8 bytes: a double's bits, whose sign bit is 0, shifted to make room for `inexact` (0 or 1)."""
    pos: i64 = i64(len(writer))
    write_f64_be(writer, magnitude)
    last: i64 = pos + 7
    while pos < last:
        writer[pos] = u8((i64(writer[pos]) << 1 | i64(writer[pos + 1]) >> 7) & 0xFF)
        pos += 1
    writer[last] = u8((i64(writer[last]) << 1 & 0xFF) | inexact)


def _write_double(writer: BytesWriter, number: float) -> None:
    if number == 0.0:
        writer.append(_ZERO)
        return
    negative: bool = number < 0.0
    magnitude: float = -number if negative else number
    start: i64 = i64(len(writer)) + 1
    if 1.0 <= magnitude < TWO_63:
        whole: i64 = i64(int(magnitude))
        fraction: float = magnitude - float(int(whole))
        if fraction == 0.0:
            _write_integer_part(writer, whole, negative, 0)
        else:
            _write_integer_part(writer, whole, negative, 1)
            _write_big_endian(writer, i64(int(fraction * _TWO_55)) << 1, 7)
    elif magnitude < 1.0:
        writer.append(u8(_ZERO - _CLASS_BELOW_ONE if negative else _ZERO + _CLASS_BELOW_ONE))
        _write_double_bits(writer, magnitude, 0)
    elif magnitude <= LARGEST_DOUBLE:
        writer.append(u8(_ZERO - _CLASS_LARGE if negative else _ZERO + _CLASS_LARGE))
        _write_double_bits(writer, magnitude, 0)
    elif number != number:
        writer.append(_NAN)
        return
    else:
        writer.append(_MINUS_INFINITY if negative else _INFINITY)
        return
    if negative:
        _invert(writer, start)


def _write_decimal(writer: BytesWriter, bid: bytes) -> None:
    """A Decimal128 from its 16 bytes (little-endian, binary integer coefficient)."""
    bits = int.from_bytes(bid, "little")
    negative: bool = bits >> 127 != 0
    if bits >> 123 & 0xF == 0xF:
        if bits >> 122 & 1 == 1:
            writer.append(_NAN)
        else:
            writer.append(_MINUS_INFINITY if negative else _INFINITY)
        return
    coefficient = bits & _COEFFICIENT_BITS
    # The other layout of the coefficient, and one of more than 34 digits, are not canonical: they count as 0.
    if coefficient == 0 or coefficient >= _COEFFICIENT_LIMIT or bits >> 125 & 3 == 3:
        writer.append(_ZERO)
        return
    exponent = (bits >> 113 & 0x3FFF) - _EXPONENT_BIAS
    start: i64 = i64(len(writer)) + 1
    inexact: i64
    scale = 10**-exponent if -DECIMAL_DIGITS < exponent < 0 else 1
    whole = coefficient
    rest = 0
    if exponent < 0:
        whole, rest = divmod(coefficient, scale)
    elif exponent < 19:
        whole = coefficient * 10**exponent
    if -DECIMAL_DIGITS < exponent < 19 and 0 < whole < _INT64_LIMIT:
        _write_integer_part(writer, i64(whole), negative, 0 if rest == 0 else 1)
        fraction, rest_of_fraction = divmod(rest << 55, scale)
        inexact = 0 if rest_of_fraction == 0 else 1
        if rest != 0:
            _write_big_endian(writer, i64(fraction << 1) | inexact, 7)
    else:
        inexact = _write_decimal_as_double(writer, Decimal(f"{coefficient}E{exponent}"), negative)
    if inexact == 1:
        # The first of the 34 digits is not 0, so different exponents decide the order.
        digits = len(str(coefficient))
        writer.write((exponent + digits + _TAIL_EXPONENT_BIAS).to_bytes(2, "big"))
        writer.write((coefficient * 10 ** (DECIMAL_DIGITS - digits)).to_bytes(15, "big"))
    if negative:
        _invert(writer, start)


def _write_decimal_as_double(writer: BytesWriter, magnitude: Decimal, negative: bool) -> i64:
    """A decimal below 1 or from 2**63 on, without its tail; returns whether it is inexact and must have one."""
    # Python's Decimal compares with float exactly, in any decimal context.
    if magnitude > LARGEST_DOUBLE:
        writer.append(u8(_ZERO - _CLASS_BEYOND_DOUBLE if negative else _ZERO + _CLASS_BEYOND_DOUBLE))
        return 1
    size_class: i64 = _CLASS_BELOW_ONE if magnitude < 1 else _CLASS_LARGE
    writer.append(u8(_ZERO - size_class if negative else _ZERO + size_class))
    double = float(magnitude)
    if double > magnitude:
        double = math.nextafter(double, 0.0)
    inexact: i64 = 0 if double == magnitude else 1
    _write_double_bits(writer, double, inexact)
    return inexact


def _write_text(writer: BytesWriter, buf: bytes, pos: i64, end: i64) -> None:
    """Writes the UTF-8 text buf[pos:end], escaped and terminated."""
    if end - pos > _LONG_TEXT:
        while pos < end:
            part_end: i64 = min(end, pos + MANY_BYTES)
            text = buf[pos:part_end]
            if b"\x01" in text or b"\x00" in text:
                text = text.replace(b"\x01", b"\x01\x02").replace(b"\x00", b"\x01\x01")
            writer.write(text)
            give_way_after(part_end - pos)
            pos = part_end
    while pos < end:
        byte: i64 = buf[pos]
        if byte <= 1:
            writer.append(1)
            byte += 1
        writer.append(u8(byte))
        pos += 1
    writer.append(_END)


def _write_string(writer: BytesWriter, text: str, collation: Collation | None = None) -> None:
    data = encode_text(text)
    give_way_after(len(data))
    if collation is not None:
        data = collation.key(data)
    _write_text(writer, data, 0, len(data))


def _write_elements(writer: BytesWriter, buf: bytes, start: i64, levels: i64, collation: Collation | None) -> None:
    """Writes the elements of the object at `start`, terminated. levels: allowed depth; Overflow (15) beyond it."""
    if levels <= 0:
        raise too_deep()
    pos: i64 = start + 4
    while True:
        type_code: i64 = buf[pos]
        if type_code == 0:
            writer.append(_END)
            return
        give_way()
        writer.append(_FIELD_BYTES[type_code])
        pos += 1
        while True:
            byte: u8 = buf[pos]
            writer.append(byte)
            pos += 1
            if byte == 0:
                break
        _write_nested(writer, buf, type_code, pos, levels - 1, collation)
        pos = skip_value(buf, type_code, pos)


def _write_nested(
    writer: BytesWriter, buf: bytes, type_code: i64, pos: i64, levels: i64, collation: Collation | None
) -> None:
    if type_code == DOCUMENT:
        writer.append(_OBJECT)
        _write_elements(writer, buf, pos, levels, collation)
    elif type_code == ARRAY:
        writer.append(_ARRAY)
        _write_raw_array(writer, buf, pos, levels, collation)
    else:
        write_raw(writer, buf, type_code, pos, collation)


def _write_raw_array(writer: BytesWriter, buf: bytes, start: i64, levels: i64, collation: Collation | None) -> None:
    if levels <= 0:
        raise too_deep()
    pos: i64 = start + 4
    while True:
        type_code: i64 = buf[pos]
        if type_code == 0:
            writer.append(_END)
            return
        give_way()
        pos += 1
        while buf[pos] != 0:
            pos += 1
        pos += 1
        _write_nested(writer, buf, type_code, pos, levels - 1, collation)
        pos = skip_value(buf, type_code, pos)


def write_value(writer: BytesWriter, value: Value, collation: Collation | None = None) -> None:
    """Writes one ascending component. MISSING is encoded as undefined; TypeError if the value has no BSON type."""
    if isinstance(value, str):
        writer.append(_STRING)
        _write_string(writer, value, collation)
    elif isinstance(value, bool):
        writer.append(_TRUE if value else _FALSE)
    elif isinstance(value, int):
        _write_integer(writer, i64(value))
    elif isinstance(value, float):
        _write_double(writer, value)
    elif value is None:
        writer.append(_NULL)
    elif isinstance(value, bytes):
        writer.append(_OBJECT)
        _write_elements(writer, value, 0, MAX_LEVELS, collation)
    elif isinstance(value, (list, tuple)):
        _write_list(writer, value, MAX_LEVELS, collation)
    elif isinstance(value, ObjectId):
        writer.append(_OBJECT_ID)
        writer.write(value.binary)
    elif isinstance(value, Date):
        writer.append(_DATE)
        _write_date(writer, i64(value.ms))
    else:
        _write_rare(writer, value, collation)


def _write_list(
    writer: BytesWriter, values: list[Value] | tuple[Value, ...], levels: i64, collation: Collation | None
) -> None:
    if levels <= 0:
        raise too_deep()
    writer.append(_ARRAY)
    for item in values:
        give_way()
        if isinstance(item, list):
            _write_list(writer, item, levels - 1, collation)
        else:
            write_value(writer, item, collation)
    writer.append(_END)


def _write_date(writer: BytesWriter, ms: i64) -> None:
    start: i64 = i64(len(writer))
    _write_big_endian(writer, ms, 8)
    writer[start] = writer[start] ^ 0x80


def _write_rare(writer: BytesWriter, value: Value, collation: Collation | None) -> None:
    if isinstance(value, Decimal128):
        _write_decimal(writer, value.bid)
    elif isinstance(value, (Undefined, Missing)):
        writer.append(_UNDEFINED)
    elif isinstance(value, Symbol):
        writer.append(_STRING)
        _write_string(writer, value.text, collation)
    elif isinstance(value, BinData):
        writer.append(_BINARY)
        _write_big_endian(writer, i64(len(value.data)), 4)
        writer.append(value.subtype)
        writer.write(value.data)
    elif isinstance(value, Timestamp):
        writer.append(_TIMESTAMP)
        _write_big_endian(writer, i64(value.time), 4)
        _write_big_endian(writer, i64(value.inc), 4)
    elif isinstance(value, Regex):
        writer.append(_REGEX)
        _write_string(writer, value.pattern)
        _write_string(writer, value.options)
    elif isinstance(value, JavaScript):
        scope = value.scope
        writer.append(_CODE if scope is None else _CODE_WITH_SCOPE)
        _write_string(writer, value.code)
        if scope is not None:
            _write_elements(writer, scope, 0, MAX_LEVELS, None)
    elif isinstance(value, DBPointer):
        writer.append(_DB_POINTER)
        namespace = encode_text(value.namespace)
        _write_big_endian(writer, i64(len(namespace)), 4)
        _write_text(writer, namespace, 0, len(namespace))
        writer.write(value.oid)
    elif isinstance(value, MinKey):
        writer.append(_MIN_KEY)
    elif isinstance(value, MaxKey):
        writer.append(_MAX_KEY)
    elif isinstance(value, dict):
        writer.append(_OBJECT)
        _write_elements(writer, encode(value), 0, MAX_LEVELS, collation)
    else:
        raise TypeError(f"not a BSON value: {type(value).__name__}")


def write_raw(writer: BytesWriter, buf: bytes, type_code: i64, pos: i64, collation: Collation | None = None) -> None:
    """Writes one ascending component from raw BSON. Type code 0 (missing) is encoded as undefined."""
    if type_code == STRING or type_code == SYMBOL:
        writer.append(_STRING)
        text_end: i64 = pos + 3 + i64(read_i32_le(buf, pos))
        if collation is None:
            _write_text(writer, buf, pos + 4, text_end)
        else:
            key = collation.key(buf[pos + 4 : text_end])
            _write_text(writer, key, 0, len(key))
    elif type_code == INT32:
        _write_integer(writer, i64(read_i32_le(buf, pos)))
    elif type_code == OBJECT_ID:
        writer.append(_OBJECT_ID)
        end: i64 = pos + 12
        while pos < end:
            writer.append(buf[pos])
            pos += 1
    elif type_code == DOUBLE:
        _write_double(writer, read_f64_le(buf, pos))
    elif type_code == INT64:
        _write_integer(writer, read_i64_le(buf, pos))
    elif type_code == DATE:
        writer.append(_DATE)
        _write_date(writer, read_i64_le(buf, pos))
    elif type_code == BOOL:
        writer.append(_FALSE if buf[pos] == 0 else _TRUE)
    elif type_code == NULL:
        writer.append(_NULL)
    elif type_code == DOCUMENT or type_code == ARRAY:
        _write_nested(writer, buf, type_code, pos, MAX_LEVELS, collation)
    elif type_code == TIMESTAMP:
        writer.append(_TIMESTAMP)
        _write_big_endian(writer, read_i64_le(buf, pos), 8)
    elif type_code == DECIMAL128:
        _write_decimal(writer, buf[pos : pos + 16])
    else:
        _write_rare(writer, decode_value(buf, type_code, pos), collation)


class KeyStringBuilder:
    """Builds one key of several components; `finish` gives its bytes.

    builder = KeyStringBuilder()
    builder.append_raw(doc, type_code, pos, False)
    builder.append(None, True)
    key = builder.finish()
    """

    def __init__(self, collation: Collation | None = None) -> None:
        self._writer = BytesWriter()
        self._collation = collation

    def append(self, value: Value, descending: bool = False) -> None:
        """Appends the component of a decoded value. Index and sort keys use null (None) for a missing field."""
        writer = self._writer
        start: i64 = i64(len(writer))
        write_value(writer, value, self._collation)
        if descending:
            _invert(writer, start)

    def append_raw(self, buf: bytes, type_code: i64, pos: i64, descending: bool = False) -> None:
        """Appends the component of the raw value of this type at `pos`; its bytes equal those of the decoded value."""
        writer = self._writer
        start: i64 = i64(len(writer))
        write_raw(writer, buf, type_code, pos, self._collation)
        if descending:
            _invert(writer, start)

    def append_component(self, component: bytes) -> None:
        """Appends components that are already encoded, in their final direction."""
        self._writer.write(component)

    def finish(self) -> bytes:
        """The key. More may be appended afterwards, for a longer key."""
        return self._writer.getvalue()


def encode_value(value: Value, descending: bool = False, collation: Collation | None = None) -> bytes:
    """The key of one value. Ascending, it is the canonical form by which group keys and distinct values are hashed."""
    give_way()
    writer = BytesWriter()
    write_value(writer, value, collation)
    if descending:
        _invert(writer, 0)
    return writer.getvalue()


def encode_raw(
    buf: bytes, type_code: i64, pos: i64, descending: bool = False, collation: Collation | None = None
) -> bytes:
    """The key of the raw value of this type at `pos`, equal to `encode_value` of the decoded value."""
    writer = BytesWriter()
    write_raw(writer, buf, type_code, pos, collation)
    if descending:
        _invert(writer, 0)
    return writer.getvalue()


def encode_key(values: list[Value], descending: list[bool]) -> bytes:
    """The key of one component per value, each with its own direction."""
    writer = BytesWriter()
    for i in range(len(values)):
        start: i64 = i64(len(writer))
        write_value(writer, values[i])
        if descending[i]:
            _invert(writer, start)
    return writer.getvalue()


def bracket_range(bracket: i64, descending: bool = False) -> tuple[bytes, bytes]:
    """(low, high): low <= key < high holds for the keys whose first component is of this bracket, and no others.

    bracket: one of `compare.BRACKET_...`. So `{$gt: 5}` is [successor(encode_value(5)), high) of BRACKET_NUMBER. NaN is
    the first of the numbers, and lies below `encode_value(-inf)`; `{$lt: 5}` does not match it.
    """
    first, last = _BRACKET_BYTES[int(bracket)]
    if descending:
        first, last = last ^ 0xFF, first ^ 0xFF
    return bytes([first]), bytes([last + 1])


def value_range(first: Value, last: Value, descending: bool = False) -> tuple[bytes, bytes]:
    """(low, high): low <= key < high holds for the keys whose first component is from one value to another, both
    inclusive. first, last: in ascending order, also for keys that descend."""
    low, high = encode_value(first, descending), encode_value(last, descending)
    return (high, successor(low)) if descending else (low, successor(high))


def successor(prefix: bytes) -> bytes:
    """The smallest bytes greater than every key that begins with these whole components.

    [prefix, successor(prefix)) covers exactly the keys that begin with them, since no component is a prefix of another;
    in descending components too. The successor of no components (b"") is HIGHEST_KEY.
    """
    give_way()
    end: i64 = i64(len(prefix))
    while end > 0 and prefix[end - 1] == 0xFF:
        end -= 1
    if end == 0:
        return HIGHEST_KEY
    return prefix[: end - 1] + bytes([prefix[end - 1] + 1])
