"""Resume tokens of change streams: `{_data: <hex>}`, KeyStrings as MongoDB makes them.

    82 ssssssss iiiiiiii   cluster time
    2B 04                  version 2 of the form
    29 | 2C 01 00          0: a high-water mark, before all events of its time; 128: an event
    number                 index of the operation in its transaction or batch
    6E | 6F                whether the event is the invalidation that follows it
    14 | 5A 10 04 <uuid>   the collection, null in a high-water mark
    46 … 00                the event's document key, not in a high-water mark
    04

A token is resumed from by its time, kind, index and invalidation; the rest makes it unlike any other.
"""

from typing import Final, NamedTuple

from mongottl.document.keystring import encode_value
from mongottl.document.types import BinData, Date, ObjectId, Timestamp, Value
from mongottl.document.walk import fields, get_value
from mongottl.errors import CommandError, ErrorCode

_VERSION: Final = b"\x2b\x04"
_HIGH_WATER_MARK: Final = b"\x29"
_EVENT: Final = b"\x2c\x01\x00"
_TIME_BYTES: Final = 9
_BITS_OF_ONE_BYTE: Final = 7
_LARGEST_BYTES: Final = 8
_SIGN: Final = 1 << 63


class ResumePoint(NamedTuple):
    """What a token says. is_event: not a high-water mark. operation: its index. invalidates: `fromInvalidate`."""

    at: Timestamp
    is_event: bool
    operation: int
    invalidates: bool


def high_water_mark(seconds: int, increment: int) -> str:
    """The token before all events of a cluster time."""
    parts = [_time(seconds, increment), _VERSION, _HIGH_WATER_MARK, _integer(0), b"\x6e", b"\x14", b"\x04"]
    return b"".join(parts).hex().upper()


def event_token(seconds: int, increment: int, index: int, invalidates: bool, uuid: Value, key: bytes) -> str:
    """The token of an event. key: its document key, or what identifies it otherwise."""
    parts = [_time(seconds, increment), _VERSION, _EVENT, _integer(index), b"\x6f" if invalidates else b"\x6e"]
    parts += [b"\x14" if uuid is None else _value(uuid), _value(key), b"\x04"]
    return b"".join(parts).hex().upper()


def parse_token(token: bytes) -> ResumePoint:
    """The point of `{_data}`. 40649, 40647 or InvalidResumeToken (260) for another form."""
    data = get_value(token, "_data")
    if not isinstance(data, str):
        raise CommandError(40647, "Bad resume token: _data of missing or of wrong type")
    try:
        raw = bytes.fromhex(data)
    except ValueError:
        raise CommandError(ErrorCode.FailedToParse, "resume token string was not a valid hex string") from None
    if len(raw) < _TIME_BYTES + 4 or raw[0] != 0x82 or raw[_TIME_BYTES : _TIME_BYTES + 2] != _VERSION:
        raise _invalid()
    at = Timestamp(int.from_bytes(raw[1:5], "big"), int.from_bytes(raw[5:9], "big"))
    rest = raw[_TIME_BYTES + 2 :]
    is_event = rest.startswith(_EVENT)
    if not is_event and not rest.startswith(_HIGH_WATER_MARK):
        raise _invalid()
    rest = rest[3:] if is_event else rest[1:]
    if not rest or (rest[0] != 0x29 and not 0x2B <= rest[0] <= 0x32):
        raise _invalid()
    end = 1 if rest[0] == 0x29 else 1 + rest[0] - 0x2A
    if rest[end : end + 1] not in (b"\x6e", b"\x6f"):
        raise _invalid()
    return ResumePoint(at, is_event, int.from_bytes(rest[1:end], "big") >> 1, rest[end] == 0x6F)


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


def _value(value: Value) -> bytes:
    """A value of a token. The types that document keys usually have are as in MongoDB; any other one is our KeyString
    as binary data."""
    if isinstance(value, bool):
        return b"\x6f" if value else b"\x6e"
    if isinstance(value, int) and 0 <= value < 1 << (_LARGEST_BYTES * _BITS_OF_ONE_BYTE):
        return _integer(int(value))
    if isinstance(value, str):
        return b"\x3c" + value.encode("utf-8", "surrogatepass").replace(b"\0", b"\0\xff") + b"\0"
    if isinstance(value, ObjectId):
        return b"\x64" + bytes(value.binary)
    if isinstance(value, Date):
        return b"\x78" + (value.ms + _SIGN).to_bytes(8, "big")
    if isinstance(value, BinData) and len(value.data) < 0xFF:
        return bytes([0x5A, len(value.data), value.subtype]) + value.data
    if isinstance(value, bytes):
        parts = [b"\x46"]
        for name, member in fields(value):
            encoded = _value(member)
            parts.append(encoded[:1] + name.encode("utf-8", "surrogatepass") + b"\0" + encoded)
        return b"".join(parts) + b"\0"
    if value is None:
        return b"\x14"
    data = encode_value(value)
    return b"\x5a\xff" + len(data).to_bytes(4, "big") + b"\0" + data
