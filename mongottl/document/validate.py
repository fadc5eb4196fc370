"""Validation of BSON from clients, once on arrival; all other code relies on it.

After `validate_document` every length lies inside what encloses it, every document, name and string ends in NUL,
every type code is known, and nesting is bounded: the readers of `walk`, which recurse and do not check lengths, can
then neither leave the buffer nor exhaust the stack. Not checked: duplicate names, empty names, the names of array
elements, `$`, the inner length of binary subtype 2, and the size of the document; nor, as in mongod, whether names and
strings are UTF-8 (`document.utf8` says how they are decoded).

Source: https://bsonspec.org/spec.html, and MongoDB's "Limits and Thresholds" for the depth.
"""

from typing import Final

from librt.strings import read_i32_le
from mypy_extensions import i64

from mongottl.document.interrupt import give_way
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
    NULL,
    OBJECT_ID,
    REGEX,
    STRING,
    SYMBOL,
    TIMESTAMP,
    UNDEFINED,
)
from mongottl.document.utf8 import is_valid_utf8
from mongottl.document.walk import ElementCursor
from mongottl.errors import CommandError, ErrorCode

# Levels of documents and arrays in a stored document, itself included. MongoDB documents 100, and mongod stores 180.
MAX_DEPTH: Final = 180
# A command's own levels (`updates: [{q: {$and: [{…}]}, u: {$set: …}}]`) come on top of those of the document in it.
MAX_MESSAGE_DEPTH: Final = 201

# How much `SlicedValidation` checks per call, if the elements allow it.
SLICE_BYTES: Final = 64 * 1024
_SLICE_WEIGHT: Final[i64] = 1 << 6
_NO_LIMIT: Final = 1 << 40  # Greater than all offsets; larger ints are not short integers in mypyc, and slow.


def validate_document(buf: bytes, max_depth: int = MAX_DEPTH) -> None:
    """Checks that `buf` is exactly one well-formed document.

    CommandError: InvalidBSON (22) with what is wrong and where; Overflow (15) when it has more than `max_depth` levels
    of documents and arrays, counting itself.
    """
    size: i64 = len(buf)
    end = _check_document(buf, 0, size, i64(max_depth), max_depth)
    if end != size:
        raise _invalid(f"the document's length is {int(end)}, but there are {int(size)} bytes", 0)


def validate_documents(documents: list[bytes], start: int = 0, max_bytes: int = _NO_LIMIT) -> int:
    """Checks documents from position `start` on, as `validate_document` does; the position after the last one checked.

    Ends after the document that reaches `max_bytes`, and before one that is longer than that.
    """
    limit: i64 = max_bytes
    left = limit
    count: i64 = len(documents)
    position: i64 = start
    while position < count and left > 0:
        document = documents[position]
        size: i64 = len(document)
        if size > limit:
            break
        validate_document(document)
        left -= size
        position += 1
    return int(position)


def validate_document_at(buf: bytes, start: i64, limit: i64, max_depth: int = MAX_DEPTH) -> i64:
    """Checks the document at `start`, which must end at `limit` at the latest; returns the offset after it.

    limit: at most len(buf). Errors as those of `validate_document`.
    """
    if start < 0 or limit > i64(len(buf)):
        raise ValueError("outside the buffer")
    return _check_document(buf, start, limit, i64(max_depth), max_depth)


class SlicedValidation:
    """`validate_document` in slices, so that other tasks can run between them.

        check = SlicedValidation(buf, MAX_DEPTH)
        while not check.advance(): …

    Documents longer than SLICE_BYTES may be interrupted between their elements; a single string or binary value is
    checked in one call, whatever its length. Errors as those of `validate_document`, from `advance`.
    """

    def __init__(self, buf: bytes, max_depth: int = MAX_DEPTH, slice_bytes: int = SLICE_BYTES) -> None:
        self._buf = buf
        self._max_depth = max_depth
        self._slice_bytes: i64 = slice_bytes
        self._pos: i64 = 0
        # For each document that is not finished yet, the outermost first: offset of the NUL that ends it.
        self._ends: list[int] = []

    def advance(self) -> bool:
        """Checks the next SLICE_BYTES or more. Returns whether the validation is complete."""
        buf = self._buf
        until: i64 = self._pos + self._slice_bytes
        size: i64 = len(buf)
        if self._pos == 0:
            self._enter(0, size)
        while self._ends:
            last: i64 = i64(self._ends[-1])
            levels: i64 = i64(self._max_depth - len(self._ends) + 1)
            end: i64 = _check_elements(buf, self._pos, last, levels, self._max_depth, until, self._slice_bytes)
            if end > 0:
                self._pos = end
                self._ends.pop()
                continue
            self._pos = -end
            if self._pos >= until:
                return False
            # A long document or array; its type and name have been checked.
            value: i64 = i64(buf.find(b"\0", self._pos + 1))
            self._enter(value + 1, last)
        if self._pos != size:
            raise _invalid(f"the document's length is {int(self._pos)}, but there are {int(size)} bytes", 0)
        return True

    def _enter(self, start: i64, limit: i64) -> None:
        levels: i64 = i64(self._max_depth - len(self._ends))
        last: i64 = _check_frame(self._buf, start, limit, levels, self._max_depth)
        self._ends.append(int(last))
        self._pos = start + 4


def check_depth(doc: bytes, max_depth: int = MAX_DEPTH) -> None:
    """Checks only the nesting of a valid document, for documents inside commands and results of updates.

    CommandError Overflow (15) when it has more than `max_depth` levels of documents and arrays, counting itself.
    """
    if len(doc) < SLICE_BYTES:
        _check_document(doc, 0, len(doc), i64(max_depth), max_depth)
        return
    check = SlicedValidation(doc, max_depth)
    while not check.advance():
        give_way(_SLICE_WEIGHT)


def is_utf8_throughout(document: bytes) -> bool:
    """Whether all names and texts of a valid document, also nested ones, are UTF-8."""
    return document.isascii() or _is_utf8_from(document, 0)


def _is_utf8_from(buf: bytes, start: i64) -> bool:
    cursor = ElementCursor(buf, start)
    while cursor.next():
        if not is_valid_utf8(cursor.name_bytes()):
            return False
        type_code: i64 = cursor.type_code
        at: i64 = cursor.value
        text: bytes = b""
        if type_code == DOCUMENT or type_code == ARRAY:
            if not _is_utf8_from(buf, at):
                return False
        elif type_code == STRING or type_code == CODE or type_code == SYMBOL or type_code == DB_POINTER:
            text = buf[at + 4 : at + 3 + i64(read_i32_le(buf, at))]
        elif type_code == REGEX:
            text = buf[at : cursor.end]
        elif type_code == CODE_WITH_SCOPE:
            scope: i64 = at + 8 + i64(read_i32_le(buf, at + 4))
            text = buf[at + 8 : scope - 1]
            if not _is_utf8_from(buf, scope):
                return False
        if not is_valid_utf8(text):
            return False
    return True


def _check_document(buf: bytes, start: i64, limit: i64, levels: i64, max_depth: int) -> i64:
    """Checks the document or array at `start`; returns the offset after it. levels: allowed depth, itself included."""
    last: i64 = _check_frame(buf, start, limit, levels, max_depth)
    return _check_elements(buf, start + 4, last, levels, max_depth, _NO_LIMIT, _NO_LIMIT)


def _check_frame(buf: bytes, start: i64, limit: i64, levels: i64, max_depth: int) -> i64:
    """Checks the length and the end of the document at `start`; returns the offset of the NUL that ends it."""
    if levels <= 0:
        raise CommandError(ErrorCode.Overflow, f"BSON nesting exceeded depth limit of {max_depth}")
    if limit - start < 5:
        raise _invalid("a document is cut short", start)
    size: i64 = i64(read_i32_le(buf, start))
    if size < 5 or size > limit - start:
        raise _invalid(f"a document has the impossible length {int(size)}", start)
    last: i64 = start + size - 1
    if buf[last] != 0:
        raise _invalid("a document does not end in NUL", start)
    return last


def _check_elements(buf: bytes, pos: i64, last: i64, levels: i64, max_depth: int, until: i64, max_bytes: i64) -> i64:
    """Checks the elements from `pos` to the NUL at `last`; returns the offset after it.

    until: from this offset on, the check stops at the next element and returns its offset times -1. max_bytes: it also
    stops at a document longer than this. _NO_LIMIT for both checks everything in one call.
    """
    while True:
        if pos >= until:
            return -pos
        element: i64 = pos
        # Here pos <= last: names stop at the NUL at `last`, and every value is checked against it.
        type_code: i64 = buf[pos]
        if type_code == 0:
            if pos != last:
                raise _invalid("a document ends before its length says so", pos)
            return last + 1
        name: i64 = pos + 1
        pos = name
        while buf[pos] != 0:
            pos += 1
        pos += 1
        if pos > last:
            raise _invalid("a field name does not end", name)
        if type_code == STRING:
            pos = _check_string(buf, pos, last)
        elif type_code == INT32:
            pos += 4
        elif type_code == DOUBLE or type_code == DATE or type_code == INT64 or type_code == TIMESTAMP:
            pos += 8
        elif type_code == OBJECT_ID:
            pos += 12
        elif type_code == DOCUMENT or type_code == ARRAY:
            if max_bytes != _NO_LIMIT and last - pos >= 5 and i64(read_i32_le(buf, pos)) > max_bytes:
                return -element
            pos = _check_document(buf, pos, last, levels - 1, max_depth)
        elif type_code == BOOL:
            if buf[pos] > 1:
                raise _invalid("a bool is neither 0 nor 1", pos)
            pos += 1
        elif type_code == NULL:
            pass
        else:
            pos = _check_rare(buf, type_code, pos, last, levels, max_depth)
        if pos > last:
            raise _invalid("a value reaches beyond its document", name)


def _check_string(buf: bytes, pos: i64, last: i64) -> i64:
    """Checks the string (int32 length, bytes, NUL), which may reach to `last`; returns the offset after it."""
    if last - pos < 5:
        raise _invalid("a string is cut short", pos)
    size: i64 = i64(read_i32_le(buf, pos))
    pos += 4
    if size < 1 or size > last - pos:
        raise _invalid(f"a string has the impossible length {int(size)}", pos - 4)
    end: i64 = pos + size - 1
    if buf[end] != 0:
        raise _invalid("a string does not end in NUL", pos - 4)
    return end + 1


def _check_cstring(buf: bytes, pos: i64, last: i64) -> i64:
    start: i64 = pos
    while pos < last and buf[pos] != 0:
        pos += 1
    if pos >= last:
        raise _invalid("a regular expression does not end", start)
    return pos + 1


def _check_rare(buf: bytes, type_code: i64, pos: i64, last: i64, levels: i64, max_depth: int) -> i64:
    """Checks a value of a less common type; returns the offset after it, which the caller compares with `last`."""
    if type_code == DECIMAL128:
        return pos + 16
    if type_code == BINARY:
        if last - pos < 5:
            raise _invalid("binary data is cut short", pos)
        size: i64 = i64(read_i32_le(buf, pos))
        if size < 0:
            raise _invalid(f"binary data has the impossible length {int(size)}", pos)
        return pos + 5 + size
    if type_code == REGEX:
        return _check_cstring(buf, _check_cstring(buf, pos, last), last)
    if type_code == CODE or type_code == SYMBOL:
        return _check_string(buf, pos, last)
    if type_code == CODE_WITH_SCOPE:
        if last - pos < 14:
            raise _invalid("code with scope is cut short", pos)
        size = i64(read_i32_le(buf, pos))
        if size < 14 or size > last - pos:
            raise _invalid(f"code with scope has the impossible length {int(size)}", pos)
        end: i64 = pos + size
        if _check_document(buf, _check_string(buf, pos + 4, end), end, levels - 1, max_depth) != end:
            raise _invalid("code with scope has a length that is not that of its parts", pos)
        return end
    if type_code == DB_POINTER:
        return _check_string(buf, pos, last) + 12
    if type_code == UNDEFINED or type_code == MIN_KEY or type_code == MAX_KEY:
        return pos
    raise _invalid(f"unknown type 0x{int(type_code):02x}", pos)


def _invalid(what: str, pos: i64) -> CommandError:
    return CommandError(ErrorCode.InvalidBSON, f"invalid BSON: {what} (at byte {int(pos)})")
