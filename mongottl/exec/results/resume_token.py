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

from mongottl.document.build import encode
from mongottl.document.interrupt import give_way
from mongottl.document.keystring import encode_value
from mongottl.document.types import MISSING, BinData, Date, ObjectId, Timestamp, Value
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import fields, get_value
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
        self._collection = b"\x14" if uuid is None else _value(uuid)
        self._kind = b"\x46" + _named("operationType", kind)
        self._member = member

    def of(self, index: int, invalidates: bool, value: Value) -> bytes:
        """The identity of one event. index: of the operation. value: its member's, ignored if there is none."""
        parts = [self._head, _integer(index), b"\x6f" if invalidates else b"\x6e", self._collection, self._kind]
        if self._member:
            parts.append(_named(self._member, value))
        parts.append(b"\0")
        return b"".join(parts)


def token_of(identity: bytes, fragment: int | None = None) -> str:
    """The token of an event, or of a fragment of it."""
    if fragment is not None:
        identity += _integer(fragment)
    return (identity + b"\x04").hex().upper()


def token_document(data: str) -> bytes:
    """`{_data: data}`, as events and cursors have it."""
    return encode({"_data": data})


def identity_of(data: str) -> bytes:
    """The identity of the event that a token of this server belongs to; of a whole event, not a fragment."""
    return bytes.fromhex(data)[:-1]


def parse_token(token: bytes) -> ResumePoint:
    """The point at which a stream with this token resumes.

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
        raw = bytes.fromhex(data) if data.isalnum() else None
    except ValueError:
        raw = None
    if raw is None:
        raise CommandError(ErrorCode.FailedToParse, "resume token string was not a valid hex string")
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
    """Where each value of a KeyString ends, up to its end byte or the end of the bytes."""
    ends: list[int] = []
    pos = 0
    while pos < len(raw) and raw[pos] != _END:
        give_way()
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


def _named(name: str, value: Value) -> bytes:
    """A member of an object: the first byte of its type, its name, its value."""
    encoded = _value(value)
    kind = encoded[0]
    if _NUMBER <= kind <= 0x33:
        kind = _NUMBER
    elif kind == _TRUE:
        kind = _FALSE
    return bytes([kind]) + encode_text(name) + b"\0" + encoded


def _value(value: Value) -> bytes:
    """A value of a token. The types that document keys and descriptions usually have are as in MongoDB; any other one
    is our KeyString as binary data."""
    if isinstance(value, bool):
        return b"\x6f" if value else b"\x6e"
    if isinstance(value, int) and 0 <= value < 1 << (_LARGEST_BYTES * _BITS_OF_ONE_BYTE):
        return _integer(int(value))
    if isinstance(value, str):
        return b"\x3c" + encode_text(value).replace(b"\0", b"\0\xff") + b"\0"
    if isinstance(value, ObjectId):
        return b"\x64" + bytes(value.binary)
    if isinstance(value, Date):
        return b"\x78" + (value.ms + _SIGN).to_bytes(8, "big")
    if isinstance(value, BinData) and len(value.data) < _LONG_BINARY:
        return bytes([_BINARY, len(value.data), value.subtype]) + value.data
    if isinstance(value, bytes):
        return b"\x46" + b"".join([_named(name, member) for name, member in fields(value)]) + b"\0"
    if isinstance(value, list):
        return b"\x50" + b"".join([_value(member) for member in value]) + b"\0"
    if value is None:
        return b"\x14"
    if isinstance(value, float) and value.is_integer() and 0 <= value < 1 << 53:
        return _integer(int(value))
    data = encode_value(value)
    return bytes([_BINARY, _LONG_BINARY]) + len(data).to_bytes(4, "big") + b"\0" + data
