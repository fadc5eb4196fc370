"""Resume tokens of change streams: `{_data: <hex>}`, KeyStrings as MongoDB makes them.

    82 ssssssss iiiiiiii   cluster time
    2B 04                  version 2 of the form
    29 | 2C 01 00          0: a high-water mark, before all events of its time; 128: an event
    number                 index of the operation in its transaction or batch
    6E | 6F                whether the event is the invalidation that follows it
    14 | 5A 10 04 <uuid>   the collection; null in a high-water mark, and for an event that has none
    46 … 00                {operationType, documentKey | operationDescription}; not in a high-water mark
    number                 which fragment of a split event; only there
    04

The hexadecimal digits of two tokens compare as their events follow each other. The type bits, in which MongoDB has
the types of numbers of an identifier, are not written, and not needed: identifiers are compared, never decoded.

Source: tokens of MongoDB 7 and 8 in public examples; for what is refused, the DocumentDB functional tests.
"""

from typing import Final, NamedTuple

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from mongottl.document.build import encode
from mongottl.document.interrupt import MANY_BYTES, give_way, give_way_after
from mongottl.document.keystring import encode_value
from mongottl.document.render import hexadecimal
from mongottl.document.types import ARRAY, DOCUMENT, MISSING, STRING, BinData, Date, ObjectId, Timestamp, Value
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import ElementCursor, get_value
from mongottl.errors import CommandError, ErrorCode

_VERSION: Final = b"\x2b\x04"
_HIGH_WATER_MARK: Final = b"\x29"
_EVENT: Final = b"\x2c\x01\x00"
_BITS_OF_ONE_BYTE: Final = 7
_LARGEST_BYTES: Final = 8
_SIGN: Final = 1 << 63
# Type bytes of KeyStrings.
_END: Final = 0x04
_NULL: Final = 0x14
_NUMBER: Final = 0x1E
_ZERO: Final = 0x29
_STRING: Final = 0x3C
_OBJECT: Final = 0x46
_ARRAY: Final = 0x50
_BINARY: Final = 0x5A
_FALSE: Final = 0x6E
_TRUE: Final = 0x6F
_TIMESTAMP: Final = 0x82
_REGEX: Final = 0x8C
# Lengths of values without their type byte: MinKey, undefined, null, NaN, ObjectId, booleans, date, timestamp, MaxKey.
_FIXED_BYTES: Final = {0x0A: 0, 0x0F: 0, _NULL: 0, _NUMBER: 0, 0x64: 12, _FALSE: 0, _TRUE: 0, 0x78: 8, 0x82: 8, 0xF0: 0}
_LONG_BINARY: Final = 0xFF
# Of MANY_BYTES that are escaped, or read as hexadecimal digits: what they take, in microseconds.
_CONVERTED_WEIGHT: Final = 512
# More than a document may have, and the objects around its key.
_MOST_NESTED: Final = 200
# Where the values of a token stand in it, which has at least the first five.
_TIME_AT: Final = 0
_VERSION_AT: Final = 1
_TYPE_AT: Final = 2
_INDEX_AT: Final = 3
_INVALIDATES_AT: Final = 4
_FRAGMENT_AT: Final = 7


class ResumePoint(NamedTuple):
    """What a token says. is_event: not a high-water mark. operation: its index. invalidates: `fromInvalidate`.

    identity: the bytes that the token of the same event has before its end and the number of a fragment.
    fragment: the number of the fragment, or None for a whole event.
    """

    at: Timestamp
    is_event: bool
    operation: int
    invalidates: bool
    identity: bytes
    fragment: int | None


def high_water_mark(seconds: int, increment: int) -> str:
    """The token before all events of a cluster time."""
    parts = [_time(seconds, increment), _VERSION, _HIGH_WATER_MARK, _integer(0), b"\x6e", b"\x14", b"\x04"]
    return b"".join(parts).hex().upper()


class EventIdentity:
    """The common parts of the tokens of one entry's events.

    kind: their `operationType`, also for the invalidation that follows one. uuid: of their collection, or None.
    member: `documentKey`, `operationDescription`, or "" if the tokens have neither.
    """

    def __init__(self, seconds: int, increment: int, kind: str, uuid: Value, member: str) -> None:
        self._head = _time(seconds, increment) + _VERSION + _EVENT
        self._collection = _encoded(uuid)
        self._kind = b"\x46\x3c" + encode_text("operationType") + b"\0" + _encoded(kind)
        self._member = encode_text(member)

    def of(self, index: int, invalidates: bool, value: Value) -> bytes:
        """The identity of one event. index: of the operation. value: its member's, ignored if there is none."""
        writer = BytesWriter()
        writer.write(self._head)
        writer.write(_integer(index))
        writer.append(_TRUE if invalidates else _FALSE)
        writer.write(self._collection)
        writer.write(self._kind)
        if self._member:
            kind_at = _write_name(writer, self._member)
            value_at: i64 = len(writer)
            _write_value(writer, value)
            _set_kind(writer, kind_at, value_at)
        writer.append(0)
        give_way_after(len(writer))
        return writer.getvalue()


def token_of(identity: bytes, fragment: int | None = None) -> str:
    """The token of an event, or of a fragment of it."""
    if fragment is not None:
        identity += _integer(fragment)
    return hexadecimal(identity + b"\x04")


def token_document(data: str) -> bytes:
    """`{_data: data}`, as events and cursors have it."""
    return encode({"_data": data})


def identity_of(data: str) -> bytes:
    """The identity of the event that a token of this server belongs to; of a whole event, not a fragment."""
    return _raw(data)[:-1]


def _raw(data: str) -> bytes:
    """The bytes of hexadecimal digits. ValueError for another text."""
    if len(data) < MANY_BYTES:
        return _raw_part(data)
    parts: list[bytes] = []
    for start in range(0, len(data), MANY_BYTES):
        give_way(_CONVERTED_WEIGHT)
        parts.append(_raw_part(data[start : start + MANY_BYTES]))
    return b"".join(parts)


def _raw_part(data: str) -> bytes:
    if not data.isalnum():  # it may have spaces for `fromhex`
        raise ValueError
    return bytes.fromhex(data)


def parse_token(token: bytes) -> ResumePoint:
    """The point at which a stream with this token resumes. A part of an evaluation: a token may have 16 MB.

    40647 unless `_data` is a string, 40648 unless `_typeBits` is binary data or missing, 40649 for an empty `_data`,
    FailedToParse (9) for one that is not hexadecimal, 50811 for a type byte that KeyStrings do not have, Overflow (15)
    for a token that is cut off or has deeper objects than documents may have, InvalidResumeToken (260) for another
    form.
    """
    data = get_value(token, "_data")
    if not isinstance(data, str):
        raise CommandError(40647, "Bad resume token: _data of missing or of wrong type")
    type_bits = get_value(token, "_typeBits")
    if type_bits is not MISSING and not isinstance(type_bits, BinData):
        raise CommandError(40648, "Bad resume token: _typeBits of wrong type")
    if not data:
        raise CommandError(40649, "invalid empty resume token")
    try:
        raw = _raw(data)
    except ValueError:
        raise CommandError(ErrorCode.FailedToParse, "resume token string was not a valid hex string") from None
    ends = _ends(raw)
    if len(ends) <= _INVALIDATES_AT or raw[0] != _TIMESTAMP or raw[ends[_TIME_AT] : ends[_VERSION_AT]] != _VERSION:
        raise _invalid()
    is_event = raw[ends[_VERSION_AT] : ends[_TYPE_AT]] == _EVENT
    if not is_event and raw[ends[_VERSION_AT] : ends[_TYPE_AT]] != _HIGH_WATER_MARK:
        raise _invalid()
    index = _parsed_integer(raw[ends[_TYPE_AT] : ends[_INDEX_AT]])
    invalidates = raw[ends[_INDEX_AT] : ends[_INVALIDATES_AT]]
    if index < 0 or invalidates not in (b"\x6e", b"\x6f"):
        raise _invalid()
    fragment: int | None = None
    identity = raw[: ends[-1]]
    if len(ends) > _FRAGMENT_AT:
        fragment = _parsed_integer(raw[ends[_FRAGMENT_AT - 1] : ends[_FRAGMENT_AT]])
        identity = raw[: ends[_FRAGMENT_AT - 1]]
        if fragment < 0:
            raise _invalid()
    at = Timestamp(int.from_bytes(raw[1:5], "big"), int.from_bytes(raw[5:9], "big"))
    return ResumePoint(at, is_event, index, invalidates == b"\x6f", identity, fragment)


def _ends(raw: bytes) -> list[int]:
    """Where each value of a KeyString ends, up to its end byte or the end of the bytes. InvalidResumeToken (260) for
    more values than a token has."""
    ends: list[int] = []
    pos = 0
    while pos < len(raw) and raw[pos] != _END:
        if len(ends) > _FRAGMENT_AT:
            raise _invalid()
        pos = _end(raw, pos, 0)
        ends.append(pos)
    return ends


def _end(raw: bytes, pos: int, depth: int) -> int:
    """The end of the value at `pos`. depth: how many objects and arrays it is in."""
    kind = _byte(raw, pos)
    pos += 1
    size = _FIXED_BYTES.get(kind, -1)
    if size < 0 and 0x1F <= kind <= 0x33:  # by the length of a number: of 8 bytes to none, and again to 8
        size = 8 if kind in (0x1F, 0x20, 0x2A, 0x33) else abs(kind - _ZERO) - (kind > _ZERO)
    if size < 0 and kind == _BINARY:
        size = _byte(raw, pos)
        pos += 1
        if size == _LONG_BINARY:
            size = int.from_bytes(raw[pos : pos + 4], "big")
            pos += 4
        size += 1  # the subtype
    if size >= 0:
        if pos + size > len(raw):
            raise _cut_off()
        return pos + size
    if kind == _STRING:
        return _end_of_string(raw, pos)
    if kind == _REGEX:
        return _end_of_name(raw, _end_of_name(raw, pos))
    if kind in (_OBJECT, _ARRAY):
        if depth == _MOST_NESTED:
            raise CommandError(
                ErrorCode.Overflow, f"the resume token has more than {_MOST_NESTED} objects in each other"
            )
        while _byte(raw, pos) != 0:
            give_way()
            pos = _end(raw, pos if kind == _ARRAY else _end_of_name(raw, pos + 1), depth + 1)
        return pos + 1
    raise CommandError(50811, f"Unknown type: {kind}")


def _byte(raw: bytes, pos: int) -> int:
    if pos >= len(raw):
        raise _cut_off()
    return raw[pos]


def _end_of_name(raw: bytes, pos: int) -> int:
    end = raw.find(0, pos)
    if end < 0:
        raise _cut_off()
    return end + 1


def _end_of_string(raw: bytes, pos: int) -> int:
    """The end of a string, in which a NUL is followed by FF."""
    end = _end_of_name(raw, pos)
    while end < len(raw) and raw[end] == 0xFF:
        give_way()
        end = _end_of_name(raw, end)
    return end


def _cut_off() -> CommandError:
    return CommandError(ErrorCode.Overflow, "the resume token ends before its last value")


def _invalid() -> CommandError:
    return CommandError(ErrorCode.InvalidResumeToken, "the resume token is not one of this server's")


def _time(seconds: int, increment: int) -> bytes:
    return b"\x82" + seconds.to_bytes(4, "big") + increment.to_bytes(4, "big")


def _integer(number: int) -> bytes:
    """A number of 0 or more: its bytes, shifted by one bit that says whether there is a fraction."""
    if number == 0:
        return b"\x29"
    size = (number.bit_length() + _BITS_OF_ONE_BYTE + 1) // 8
    return bytes([0x2A + size]) + (number << 1).to_bytes(size, "big")


def _parsed_integer(encoded: bytes) -> int:
    """The inverse of `_integer`; -1 for anything else."""
    if encoded == b"\x29":
        return 0
    if not 0x2B <= encoded[0] <= 0x32:
        return -1
    return int.from_bytes(encoded[1:], "big") >> 1


def _encoded(value: Value) -> bytes:
    writer = BytesWriter()
    _write_value(writer, value)
    return writer.getvalue()


def _write_name(writer: BytesWriter, name: bytes) -> i64:
    """Writes the name of a member of an object, after the place of its type, which is returned. The type is known when
    the value has been written: `_set_kind`."""
    kind_at: i64 = len(writer)
    writer.append(0)
    writer.write(name)
    writer.append(0)
    return kind_at


def _set_kind(writer: BytesWriter, kind_at: i64, value_at: i64) -> None:
    """Sets the type of a member to that of its value, which stands at `value_at`."""
    kind: i64 = i64(writer[value_at])
    if _NUMBER <= kind <= 0x33:
        kind = _NUMBER
    elif kind == _TRUE:
        kind = _FALSE
    writer[kind_at] = u8(kind)


def _write_value(writer: BytesWriter, value: Value) -> None:
    """Writes a value of a token. The types that document keys and descriptions usually have are as in MongoDB; any
    other one is our KeyString as binary data. Nothing is copied twice, however deep it is."""
    if isinstance(value, bool):
        writer.append(_TRUE if value else _FALSE)
    elif isinstance(value, int) and 0 <= value < 1 << (_LARGEST_BYTES * _BITS_OF_ONE_BYTE):
        writer.write(_integer(int(value)))
    elif isinstance(value, str):
        data = encode_text(value)
        _write_text(writer, data, 0, len(data))
    elif isinstance(value, ObjectId):
        writer.append(0x64)
        writer.write(bytes(value.binary))
    elif isinstance(value, Date):
        writer.append(0x78)
        writer.write((value.ms + _SIGN).to_bytes(8, "big"))
    elif isinstance(value, BinData) and len(value.data) < _LONG_BINARY:
        writer.append(_BINARY)
        writer.append(len(value.data))
        writer.append(value.subtype)
        writer.write(value.data)
    elif isinstance(value, bytes):
        _write_members(writer, DOCUMENT, value, 0)
    elif isinstance(value, list):
        writer.append(_ARRAY)
        for member in value:
            give_way()
            _write_value(writer, member)
        writer.append(0)
    elif value is None:
        writer.append(_NULL)
    elif isinstance(value, float) and value.is_integer() and 0 <= value < 1 << 53:
        writer.write(_integer(int(value)))
    else:
        encoded = encode_value(value)
        writer.append(_BINARY)
        writer.append(_LONG_BINARY)
        writer.write(len(encoded).to_bytes(4, "big"))
        writer.append(0)
        writer.write(encoded)
        give_way_after(len(encoded))


def _write_members(writer: BytesWriter, type_code: i64, buf: bytes, start: i64) -> None:
    """Writes the document or array at `start`."""
    writer.append(_ARRAY if type_code == ARRAY else _OBJECT)
    cursor = ElementCursor(buf, start)
    while cursor.next():  # which gives way
        kind_at: i64 = -1 if type_code == ARRAY else _write_name(writer, cursor.name_bytes())
        value_at: i64 = len(writer)
        found: i64 = cursor.type_code
        if found == DOCUMENT or found == ARRAY:
            _write_members(writer, found, buf, cursor.value)
        elif found == STRING:
            _write_text(writer, buf, cursor.value + 4, cursor.end - 1)
        else:
            _write_value(writer, cursor.decoded())
        if kind_at >= 0:
            _set_kind(writer, kind_at, value_at)
    writer.append(0)


def _write_text(writer: BytesWriter, buf: bytes, pos: i64, end: i64) -> None:
    """Writes the UTF-8 text `buf[pos:end]` as a string."""
    writer.append(_STRING)
    while pos < end:
        part_end: i64 = min(end, pos + MANY_BYTES)
        writer.write(buf[pos:part_end].replace(b"\0", b"\0\xff"))
        if part_end < end:
            give_way(_CONVERTED_WEIGHT)
        pos = part_end
    writer.append(0)
