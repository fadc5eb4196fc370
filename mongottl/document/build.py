"""Making raw BSON: encoding values, and copying elements of other documents without decoding them.

    builder = DocumentBuilder()
    builder.append("a", 1)                                        # an encoded value
    builder.append_raw_element(cursor.raw_element())              # type, name and value of another document's element
    builder.append_raw("b", type_code, buf, value, end)           # the value's bytes under another name
    document = builder.finish()

Replies are written as plain dicts and lists of values: `encode({"ok": 1.0, "values": [1, 2]})`; large
arrays in them are RawArrays, made by an ArrayBuilder.
"""

import struct
from collections.abc import Iterable
from typing import Final

from librt.strings import BytesWriter, write_f64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64, u8

from mongottl.document.freeing import LongList
from mongottl.document.interrupt import give_way, give_way_after
from mongottl.document.nesting import MAX_LEVELS, too_deep
from mongottl.document.types import (
    ARRAY,
    BINARY,
    BOOL,
    CODE,
    CODE_WITH_SCOPE,
    DATE,
    DB_POINTER,
    DECIMAL128,
    DOCUMENT,
    DOUBLE,
    INT32,
    INT64,
    INT_MAX,
    INT_MIN,
    MAX_DOCUMENT_BYTES,
    MAX_KEY,
    MIN_KEY,
    NULL,
    OBJECT_ID,
    REGEX,
    STRING,
    SYMBOL,
    TIMESTAMP,
    UNDEFINED,
    BinData,
    Date,
    DBPointer,
    Decimal128,
    Int64,
    JavaScript,
    MaxKey,
    MinKey,
    Missing,
    ObjectId,
    RawArray,
    Regex,
    Symbol,
    Timestamp,
    Undefined,
    Value,
)
from mongottl.document.utf8 import encode_text
from mongottl.errors import CommandError, ErrorCode

EMPTY_DOCUMENT: Final = b"\x05\x00\x00\x00\x00"
# Expressions can double a value in each of forty steps by references to it: 2^40 copies, which must not be encoded.
# More than the memory limit of any operator (100 MiB each), and more than mongod's 64 MB of buffer.
MAX_BUILT_BYTES: Final = 128 << 20
_LENGTH_PLACEHOLDER: Final = b"\x00\x00\x00\x00"
# An array of this length is kept in memory once.
_LONG_BYTES: Final = 64 * 1024
_INDEX_NAMES: Final = [str(i).encode("ascii") for i in range(1024)]


def index_name(index: i64) -> bytes:
    """The field name of an array element, "0", "1", …"""
    if index < 1024:
        return _INDEX_NAMES[index]
    return str(int(index)).encode("ascii")


def _set_length(writer: BytesWriter, start: i64) -> None:
    size: i64 = i64(len(writer)) - start
    writer[start] = u8(size & 0xFF)
    writer[start + 1] = u8((size >> 8) & 0xFF)
    writer[start + 2] = u8((size >> 16) & 0xFF)
    writer[start + 3] = u8((size >> 24) & 0xFF)


def check_built(size: i64) -> None:
    """13548 for more than MAX_BUILT_BYTES."""
    if size > MAX_BUILT_BYTES:
        raise CommandError(
            13548, f"BufBuilder attempted to grow() to {size} bytes, past the {MAX_BUILT_BYTES >> 20}MB limit."
        )


def _write_name(writer: BytesWriter, type_code: i64, name: bytes) -> None:
    writer.append(int(type_code))
    writer.write(name)
    writer.append(0)


def _write_string(writer: BytesWriter, text: str) -> None:
    data = encode_text(text)
    give_way_after(len(data))
    write_i32_le(writer, i32(len(data) + 1))
    writer.write(data)
    writer.append(0)
    give_way_after(len(data))


def write_element(writer: BytesWriter, name: bytes, value: Value) -> None:
    """Writes one element. MISSING writes nothing. TypeError if the value has no BSON type."""
    # Whether it is a plain int, as most numbers are: no Int64, which takes longer to find out.
    is_plain_int: bool = type(value) is int
    if isinstance(value, str):
        _write_name(writer, STRING, name)
        _write_string(writer, value)
    elif isinstance(value, bool):
        _write_name(writer, BOOL, name)
        writer.append(1 if value else 0)
    elif isinstance(value, int):
        if INT_MIN <= value <= INT_MAX and (is_plain_int or not isinstance(value, Int64)):
            _write_name(writer, INT32, name)
            write_i32_le(writer, i32(value))
        else:
            _write_name(writer, INT64, name)
            write_i64_le(writer, i64(value))
    elif isinstance(value, float):
        _write_name(writer, DOUBLE, name)
        write_f64_le(writer, value)
    elif isinstance(value, bytes):
        _write_name(writer, DOCUMENT, name)
        writer.write(value)
        give_way_after(len(value))
    elif isinstance(value, dict):
        _write_name(writer, DOCUMENT, name)
        _write_dict(writer, value)
    elif isinstance(value, (list, tuple)):
        _write_name(writer, ARRAY, name)
        _write_array(writer, value, MAX_LEVELS)
    elif value is None:
        _write_name(writer, NULL, name)
    elif isinstance(value, ObjectId):
        _write_name(writer, OBJECT_ID, name)
        writer.write(value.binary)
    elif isinstance(value, Date):
        _write_name(writer, DATE, name)
        write_i64_le(writer, i64(value.ms))
    else:
        _write_rare(writer, name, value)


def _write_rare(writer: BytesWriter, name: bytes, value: Value) -> None:
    if isinstance(value, Missing):
        return
    if isinstance(value, Decimal128):
        _write_name(writer, DECIMAL128, name)
        writer.write(value.bid)
    elif isinstance(value, BinData):
        _write_name(writer, BINARY, name)
        write_i32_le(writer, i32(len(value.data)))
        writer.append(value.subtype)
        writer.write(value.data)
        give_way_after(len(value.data))
    elif isinstance(value, Timestamp):
        _write_name(writer, TIMESTAMP, name)
        writer.write(struct.pack("<II", value.inc, value.time))
    elif isinstance(value, Regex):
        _write_name(writer, REGEX, name)
        writer.write(encode_text(value.pattern))
        writer.append(0)
        writer.write(encode_text(value.options))
        writer.append(0)
    elif isinstance(value, JavaScript):
        scope = value.scope
        if scope is None:
            _write_name(writer, CODE, name)
            _write_string(writer, value.code)
        else:
            _write_name(writer, CODE_WITH_SCOPE, name)
            start: i64 = len(writer)
            writer.write(_LENGTH_PLACEHOLDER)
            _write_string(writer, value.code)
            writer.write(scope)
            _set_length(writer, start)
    elif isinstance(value, Symbol):
        _write_name(writer, SYMBOL, name)
        _write_string(writer, value.text)
    elif isinstance(value, Undefined):
        _write_name(writer, UNDEFINED, name)
    elif isinstance(value, DBPointer):
        _write_name(writer, DB_POINTER, name)
        _write_string(writer, value.namespace)
        writer.write(value.oid)
    elif isinstance(value, RawArray):
        _write_name(writer, ARRAY, name)
        writer.write(value.data)
        give_way_after(len(value.data))
    elif isinstance(value, MinKey):
        _write_name(writer, MIN_KEY, name)
    elif isinstance(value, MaxKey):
        _write_name(writer, MAX_KEY, name)
    else:
        raise TypeError(f"not a BSON value: {type(value).__name__}")


def _write_dict(writer: BytesWriter, document: dict[str, Value]) -> None:
    start: i64 = len(writer)
    writer.write(_LENGTH_PLACEHOLDER)
    for name, value in document.items():
        give_way()
        write_element(writer, encode_text(name), value)
        check_built(len(writer))
    writer.append(0)
    _set_length(writer, start)


def _write_array(writer: BytesWriter, values: list[Value] | tuple[Value, ...], levels: i64) -> None:
    """Writes an array with its length and final NUL.

    levels: allowed nesting depth, this array included; Overflow (15) if it is exceeded.
    """
    if levels <= 0:
        raise too_deep()
    start: i64 = len(writer)
    writer.write(_LENGTH_PLACEHOLDER)
    index: i64 = 0
    for value in values:
        give_way()
        if isinstance(value, list):
            _write_name(writer, ARRAY, index_name(index))
            _write_array(writer, value, levels - 1)
        else:
            write_element(writer, index_name(index), value)
        index += 1
        check_built(len(writer))
    writer.append(0)
    _set_length(writer, start)


class ArraySize:
    """How many bytes an array takes in BSON while elements are added.

    An array has its length (4 bytes), its elements and NUL; an element its type (1), decimal index, NUL and value.
    """

    def __init__(self) -> None:
        self.count: i64 = 0
        self.size: i64 = 5
        self._name_bytes: i64 = 3  # type, index and NUL of the next element
        self._next_digit_at: i64 = 10

    def with_one_more(self, value_bytes: i64) -> i64:
        """The array's size in bytes after appending an element whose value has `value_bytes` bytes."""
        return self.size + self._name_bytes + value_bytes

    def add(self, value_bytes: i64) -> None:
        self.size += self._name_bytes + value_bytes
        self.count += 1
        if self.count == self._next_digit_at:
            self._name_bytes += 1
            self._next_digit_at *= 10

    def copy(self) -> "ArraySize":
        copied = ArraySize()
        copied.count = self.count
        copied.size = self.size
        copied._name_bytes = self._name_bytes
        copied._next_digit_at = self._next_digit_at
        return copied


class DocumentsOfReply:
    """Documents for an array of a reply. Each may have megabytes, and there may be thousands: what does not fit into a
    reply is not collected first."""

    def __init__(self) -> None:
        self.documents: Final[list[Value]] = LongList()
        self._size: Final = ArraySize()

    def append(self, document: bytes) -> None:
        """BSONObjectTooLarge (10334) if no reply can have them all."""
        give_way_after(len(document))
        self._size.add(len(document))
        size = int(self._size.size)
        if size > MAX_DOCUMENT_BYTES:
            raise CommandError(
                ErrorCode.BSONObjectTooLarge,
                f"BSONObj size: {size} ({size:#x}) is invalid. Size must be between 0 and {MAX_DOCUMENT_BYTES}(16MB)",
            )
        self.documents.append(document)


class ArrayBuilder:
    """Encodes an array incrementally, one value per `append`."""

    def __init__(self) -> None:
        self._writer = BytesWriter()
        self._writer.write(_LENGTH_PLACEHOLDER)
        self._count: i64 = 0

    def append(self, value: Value) -> None:
        write_element(self._writer, index_name(self._count), value)
        self._count += 1

    def finish(self) -> RawArray:
        """The array. The builder must not be used afterwards."""
        self._writer.append(0)
        _set_length(self._writer, 0)
        data = self._writer.getvalue()
        if len(data) >= _LONG_BYTES:
            self._writer = BytesWriter()  # who keeps the builder keeps no copy of a batch of 16 MB
        give_way_after(len(data))
        return RawArray(data)


class DocumentBuilder:
    """Appends elements in order; `finish` gives the document's bytes. Names are not checked for duplicates."""

    def __init__(self) -> None:
        self._writer = BytesWriter()
        self._writer.write(_LENGTH_PLACEHOLDER)

    def append(self, name: str, value: Value) -> None:
        """Appends a value under a name; MISSING appends nothing. 13548 for more than MAX_BUILT_BYTES."""
        write_element(self._writer, encode_text(name), value)
        check_built(len(self._writer))

    def append_named(self, name: bytes, value: Value) -> None:
        """`append` under a name given as UTF-8 bytes."""
        write_element(self._writer, name, value)
        check_built(len(self._writer))

    def append_raw(self, name: bytes, type_code: i64, buf: bytes, value: i64, end: i64) -> None:
        """Appends the encoded value buf[value:end] of another document under the given name."""
        _write_name(self._writer, type_code, name)
        self._writer.write(buf[value:end])

    def append_raw_element(self, element: bytes) -> None:
        """Appends one or more encoded elements (type, name, value) of another document."""
        self._writer.write(element)

    def size(self) -> i64:
        """How many bytes have been appended."""
        return len(self._writer)

    def finish(self) -> bytes:
        """The document. The builder must not be used afterwards."""
        check_built(len(self._writer))
        self._writer.append(0)
        _set_length(self._writer, 0)
        document = self._writer.getvalue()
        give_way_after(len(document))
        return document


def encode(document: dict[str, Value]) -> bytes:
    """The raw BSON of a dict of values."""
    writer = BytesWriter()
    _write_dict(writer, document)
    return writer.getvalue()


def encode_fields(fields: Iterable[tuple[str, Value]]) -> bytes:
    """The raw BSON of (name, value) pairs, duplicates kept."""
    writer = BytesWriter()
    writer.write(_LENGTH_PLACEHOLDER)
    for name, value in fields:
        give_way()
        write_element(writer, encode_text(name), value)
        check_built(len(writer))
    writer.append(0)
    _set_length(writer, 0)
    return writer.getvalue()


def encode_array(values: list[Value]) -> bytes:
    """The raw BSON of an array (a document with the names "0", "1", …)."""
    writer = BytesWriter()
    _write_array(writer, values, MAX_LEVELS)
    return writer.getvalue()


def value_size(value: Value) -> int:
    """How many bytes a value has in BSON, without type and name."""
    if isinstance(value, bytes):
        return len(value)
    writer = BytesWriter()
    write_element(writer, b"", value)
    return len(writer) - 2


def encode_value(value: Value) -> tuple[int, bytes]:
    """(type code, value bytes) of one value, as encoded after its name."""
    writer = BytesWriter()
    write_element(writer, b"", value)
    data = writer.getvalue()
    return data[0], data[2:]
