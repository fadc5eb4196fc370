"""Finding, skipping and decoding the elements of raw BSON.

Positions are offsets into a buffer. A nested document is identified by the offset of its length field (`start`), so
that it can be read without being copied. A value is identified by its type code and the offset of its first byte.
Buffers are trusted: they passed `document.validate` on arrival. Python still checks bounds, so that a fault here is an
IndexError and never a read outside the buffer.

    for doc = {"a": 1, "b": "xy"}       \x17\0\0\0  \x10 a \0 \1\0\0\0  \x02 b \0 \3\0\0\0 x y \0  \0
    find_field(doc, b"b")  ->  (2, 14)                                          ^14
"""

from typing import Final

from librt.strings import read_f64_le, read_i32_le, read_i64_le
from mypy_extensions import i64

from mongottl.document.copied import COPIED, COUNTED_BYTES
from mongottl.document.freeing import LONG_BYTES, LongDict, LongList
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
    MAX_KEY,
    MIN_KEY,
    MISSING,
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
    ObjectId,
    Regex,
    Symbol,
    Timestamp,
    Undefined,
    Value,
)
from mongottl.document.utf8 import decode_text, encode_text

# As a power of two: of a document's bytes, how many are searched for a field in a microsecond.
SEARCHED_BITS: Final = 12
# After how many bytes a search for a field gives way, where it may have met a field every two bytes; what that weighs.
_SEARCHED: Final[i64] = 1 << 16
_SEARCHED_WEIGHT: Final[i64] = 1 << 6


def cstring_end(buf: bytes, pos: i64) -> i64:
    """Offset of the NUL that ends the C string at `pos`."""
    while buf[pos] != 0:
        pos += 1
    return pos


def skip_value(buf: bytes, type_code: i64, pos: i64) -> i64:
    """Offset just after the value of this type at `pos`. ValueError for an unknown type code."""
    if type_code == STRING:
        return pos + 4 + i64(read_i32_le(buf, pos))
    if type_code == INT32:
        return pos + 4
    if type_code == DOUBLE or type_code == DATE or type_code == INT64 or type_code == TIMESTAMP:
        return pos + 8
    if type_code == DOCUMENT or type_code == ARRAY or type_code == CODE_WITH_SCOPE:
        return pos + i64(read_i32_le(buf, pos))
    if type_code == OBJECT_ID:
        return pos + 12
    if type_code == BOOL:
        return pos + 1
    if type_code == NULL or type_code == UNDEFINED or type_code == MIN_KEY or type_code == MAX_KEY:
        return pos
    if type_code == BINARY:
        return pos + 5 + i64(read_i32_le(buf, pos))
    if type_code == DECIMAL128:
        return pos + 16
    if type_code == REGEX:
        return cstring_end(buf, cstring_end(buf, pos) + 1) + 1
    if type_code == CODE or type_code == SYMBOL:
        return pos + 4 + i64(read_i32_le(buf, pos))
    if type_code == DB_POINTER:
        return pos + 4 + i64(read_i32_le(buf, pos)) + 12
    raise ValueError(f"unknown BSON type {type_code}")


def find_field_at(buf: bytes, start: i64, name: bytes) -> tuple[i64, i64]:
    """(type code, value offset) of the first field `name` of the document at `start`; (0, -1) if it has none."""
    size: i64 = len(name)
    pos: i64 = start + 4
    rest_at: i64 = pos + _SEARCHED
    while True:
        type_code: i64 = buf[pos]
        if type_code == 0:
            return 0, -1
        if pos >= rest_at:
            give_way(_SEARCHED_WEIGHT)
            rest_at = pos + _SEARCHED
        pos += 1
        matched: i64 = 0
        # `name` may contain a NUL, which must not match the NUL that ends the field's name.
        while matched < size and buf[pos + matched] == name[matched] and name[matched] != 0:
            matched += 1
        pos += matched
        if matched == size and buf[pos] == 0:
            return type_code, pos + 1
        while buf[pos] != 0:
            pos += 1
        pos = skip_value(buf, type_code, pos + 1)


def find_field(doc: bytes, name: bytes) -> tuple[i64, i64]:
    """(type code, value offset) of the first root field `name`; (0, -1) if there is none."""
    return find_field_at(doc, 0, name)


class ElementCursor:
    """Steps through the elements of the document (or array) at `start`.

        cursor = ElementCursor(buf, start)
        while cursor.next():
            cursor.type_code, cursor.name, cursor.value, cursor.end

    element: offset of the type byte. name_start, name_end: offsets of the name, without its NUL.
    value: offset of the value. end: offset after it.
    """

    def __init__(self, buf: bytes, start: i64) -> None:
        self.buf: bytes = buf
        self.type_code: i64 = 0
        self.element: i64 = start
        self.name_start: i64 = start
        self.name_end: i64 = start
        self.value: i64 = start
        self.end: i64 = start + 4

    def next(self) -> bool:
        """Moves to the next element; False, and type_code 0, after the last."""
        give_way()
        buf = self.buf
        pos: i64 = self.end
        type_code: i64 = buf[pos]
        self.type_code = type_code
        self.element = pos
        if type_code == 0:
            return False
        pos += 1
        self.name_start = pos
        while buf[pos] != 0:
            pos += 1
        self.name_end = pos
        pos += 1
        self.value = pos
        self.end = skip_value(buf, type_code, pos)
        return True

    def name(self) -> str:
        return decode_text(self.buf[self.name_start : self.name_end])

    def name_bytes(self) -> bytes:
        return self.buf[self.name_start : self.name_end]

    def name_is(self, name: bytes) -> bool:
        """Whether the element has this name; does not copy the name."""
        size: i64 = len(name)
        start: i64 = self.name_start
        if self.name_end - start != size:
            return False
        i: i64 = 0
        buf = self.buf
        while i < size:
            if buf[start + i] != name[i]:
                return False
            i += 1
        return True

    def decoded(self) -> Value:
        return decode_value(self.buf, self.type_code, self.value)

    def decoded_without_elements(self) -> Value:
        """`decoded`, but every array is empty: for a field that takes none, so that only its type matters. An array may
        have millions of elements."""
        if self.type_code == ARRAY:
            return []
        return decode_value(self.buf, self.type_code, self.value)

    def raw_element(self) -> bytes:
        """The element's bytes: type, name and value."""
        return self.buf[self.element : self.end]


def read_string(buf: bytes, pos: i64) -> str:
    """The BSON string (int32 length, UTF-8, NUL) at `pos`."""
    size: i64 = i64(read_i32_le(buf, pos))
    text = buf[pos + 4 : pos + 3 + size]
    if size < COUNTED_BYTES:
        return decode_text(text)
    give_way_after(size)
    found = decode_text(text)
    give_way_after(size)
    return found


def read_cstring(buf: bytes, pos: i64) -> str:
    return decode_text(buf[pos : cstring_end(buf, pos)])


def read_embedded(buf: bytes, pos: i64) -> bytes:
    """The bytes of the document or array at `pos`."""
    size = i64(read_i32_le(buf, pos))
    give_way_after(size)
    return buf[pos : pos + size]


def decode_value(buf: bytes, type_code: i64, pos: i64) -> Value:
    """The value at `pos` as a value of `document.types`; MISSING for type code 0.

    Documents stay raw BSON, also within arrays, which become lists.
    """
    if type_code == STRING:
        return read_string(buf, pos)
    if type_code == INT32:
        return int(read_i32_le(buf, pos))
    if type_code == DOUBLE:
        return read_f64_le(buf, pos)
    if type_code == DOCUMENT:
        return read_embedded(buf, pos)
    if type_code == ARRAY:
        return decode_array(buf, pos)
    if type_code == OBJECT_ID:
        return ObjectId(buf[pos : pos + 12])
    if type_code == BOOL:
        return buf[pos] != 0
    if type_code == DATE:
        return Date(int(read_i64_le(buf, pos)))
    if type_code == NULL:
        return None
    if type_code == INT64:
        return Int64(read_i64_le(buf, pos))
    return _decode_rare(buf, type_code, pos)


def _decode_rare(buf: bytes, type_code: i64, pos: i64) -> Value:
    if type_code == 0:
        return MISSING
    if type_code == DECIMAL128:
        return Decimal128.from_bid(buf[pos : pos + 16])
    if type_code == BINARY:
        size = i64(read_i32_le(buf, pos))
        give_way_after(size)
        return BinData(buf[pos + 5 : pos + 5 + size], buf[pos + 4])
    if type_code == TIMESTAMP:
        both: int = int.from_bytes(buf[pos : pos + 8], "little")
        return Timestamp(both >> 32, both & 0xFFFFFFFF)
    if type_code == REGEX:
        middle: i64 = cstring_end(buf, pos)
        return Regex(read_cstring(buf, pos), read_cstring(buf, middle + 1))
    if type_code == CODE:
        return JavaScript(read_string(buf, pos))
    if type_code == SYMBOL:
        return Symbol(read_string(buf, pos))
    if type_code == CODE_WITH_SCOPE:
        scope: i64 = pos + 8 + i64(read_i32_le(buf, pos + 4))
        return JavaScript(read_string(buf, pos + 4), read_embedded(buf, scope))
    if type_code == UNDEFINED:
        return Undefined()
    if type_code == DB_POINTER:
        oid: i64 = pos + 4 + i64(read_i32_le(buf, pos))
        return DBPointer(read_string(buf, pos), buf[oid : oid + 12])
    if type_code == MIN_KEY:
        return MinKey()
    if type_code == MAX_KEY:
        return MaxKey()
    raise ValueError(f"unknown BSON type {type_code}")


def decode_array(buf: bytes, start: i64) -> list[Value]:
    """The values of the array at `start`, in order; element names are ignored. Overflow (15) if nested too deep."""
    return _decode_array(buf, start, MAX_LEVELS)


def _decode_array(buf: bytes, start: i64, levels: i64) -> list[Value]:
    if levels <= 0:
        raise too_deep()
    values: list[Value] = []
    size: i64 = i64(read_i32_le(buf, start))
    if size >= LONG_BYTES:
        values = LongList()
        COPIED.bytes += size
    pos: i64 = start + 4
    count: i64 = 0
    while True:
        type_code: i64 = buf[pos]
        if type_code == 0:
            return values
        count += 1
        if count % 16 == 0:
            give_way()
        pos = cstring_end(buf, pos + 1) + 1
        if type_code == ARRAY:
            values.append(_decode_array(buf, pos, levels - 1))
        else:
            values.append(decode_value(buf, type_code, pos))
        pos = skip_value(buf, type_code, pos)


def is_deeper(buf: bytes, start: i64, levels: i64) -> bool:
    """Whether the document (or array) at `start` has more than `levels` levels, counting itself.

    A level takes at least seven bytes, so parts too small for that many levels are skipped.
    """
    if i64(read_i32_le(buf, start)) < levels * 7:
        return False
    if levels <= 0:
        return True
    pos: i64 = start + 4
    while True:
        type_code: i64 = buf[pos]
        if type_code == 0:
            return False
        pos = cstring_end(buf, pos + 1) + 1
        if (type_code == DOCUMENT or type_code == ARRAY) and is_deeper(buf, pos, levels - 1):
            return True
        pos = skip_value(buf, type_code, pos)


def fields(doc: bytes) -> list[tuple[str, Value]]:
    """The root fields of a document in order, duplicates included: for parsing small documents such as filters."""
    found: list[tuple[str, Value]] = LongList() if len(doc) >= LONG_BYTES else []
    pos: i64 = 4
    while True:
        type_code: i64 = doc[pos]
        if type_code == 0:
            return found
        give_way()
        name_end: i64 = cstring_end(doc, pos + 1)
        name = decode_text(doc[pos + 1 : name_end])
        pos = name_end + 1
        found.append((name, decode_value(doc, type_code, pos)))
        pos = skip_value(doc, type_code, pos)


def fields_by_name(doc: bytes) -> dict[str, Value]:
    """The root fields of a document by name, the last one of each name, in a dictionary that is freed in slices if a
    client has sent very many."""
    found: dict[str, Value] = dict_for(len(doc))
    for name, value in fields(doc):
        give_way()
        found[name] = value
    return found


def dict_for(document_bytes: i64) -> dict[str, Value]:
    """A new dictionary for the fields of a document of this size."""
    return {} if document_bytes < LONG_BYTES else LongDict({})


def get_value(doc: bytes, name: str) -> Value:
    """The first root field `name`, decoded, or MISSING."""
    type_code, pos = find_field_at(doc, 0, encode_text(name))
    if type_code == 0:
        return MISSING
    return decode_value(doc, type_code, pos)


def first_field_name(doc: bytes) -> str:
    """The name of a document's first field, "" if it is empty."""
    if doc[4] == 0:
        return ""
    return read_cstring(doc, 5)


def is_empty(doc: bytes) -> bool:
    return doc[4] == 0


def count_fields(buf: bytes, start: i64) -> i64:
    """How many elements the document or array at `start` has."""
    count: i64 = 0
    pos: i64 = start + 4
    while True:
        type_code: i64 = buf[pos]
        if type_code == 0:
            return count
        count += 1
        if count % 16 == 0:
            give_way()
        pos = skip_value(buf, type_code, cstring_end(buf, pos + 1) + 1)
