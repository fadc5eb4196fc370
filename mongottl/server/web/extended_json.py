"""Documents as text for people: relaxed Extended JSON, laid out over lines, and shortened where they are long.

What `dump.extended_json` reads again gives the same values, except that the width of numbers is not written, unless the
text was shortened. Then it has an ellipsis in place of each part that is missing, and after a text or binary data that
was cut the length of the whole. Only the shown part of a raw document is read, so a long one costs no more time.

Source: MongoDB's specification "Extended JSON".
"""

import json
import re
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import isfinite
from typing import Final

from mongottl.document.types import (
    ARRAY,
    BINARY,
    BOOL,
    CODE,
    CODE_WITH_SCOPE,
    DECIMAL128,
    DOCUMENT,
    INT32,
    INT64,
    MAX_KEY,
    NULL,
    OBJECT_ID,
    STRING,
    SYMBOL,
    UNDEFINED,
    Date,
    DBPointer,
    Regex,
    Timestamp,
)
from mongottl.document.utf8 import decode_text, encode_text
from mongottl.document.walk import ElementCursor, decode_value

# Characters of one text, or bytes of one piece of binary data, that are shown.
MAX_VALUE_CHARACTERS: Final = 1000
# A document or array that takes no more characters stands on one line.
_LINE_CHARACTERS: Final = 88
_INDENT: Final = 2
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Dates of later years are written as numbers.
_MAX_DATE_MS: Final = 253_402_300_799_999
_UUID_SUBTYPE: Final = 4
_UUID_BYTES: Final = 16
# Where the groups of its digits begin, and the last one ends.
_UUID_GROUPS: Final = (0, 8, 12, 16, 20, 32)
# Characters that would change the order in which a browser shows others.
_REORDERING: Final = re.compile("[\u202a-\u202e\u2066-\u2069]")


def shown(document: bytes, max_characters: int) -> tuple[str, bool]:
    """A raw document as text of hardly more than `max_characters`, and whether something is missing in it."""
    writer = _Writer(max_characters)
    text = writer.container(document, 0, 0, is_array=False)
    return text, writer.shortened


class _Writer:
    """Writes one document. left: how many characters it may still have."""

    def __init__(self, max_characters: int) -> None:
        self.left = max_characters
        self.shortened = False

    def container(self, buf: bytes, start: int, indent: int, is_array: bool) -> str:
        """The document or array at `start`, whose first line is indented by `indent` characters."""
        items: list[str] = []
        cursor = ElementCursor(buf, start)
        while cursor.next():
            if self.left <= 0:
                self.shortened = True
                items.append("…")
                break
            name = "" if is_array else self._name(cursor) + ": "
            self.left -= indent + _INDENT + len(name) + 2
            items.append(name + self._value(buf, int(cursor.type_code), int(cursor.value), indent + _INDENT))
        before, after = "[]" if is_array else "{}"
        length = indent + 2 * len(items) + sum(map(len, items))
        if length <= _LINE_CHARACTERS and not any("\n" in item for item in items):
            return before + ", ".join(items) + after
        lines = ",\n".join(" " * (indent + _INDENT) + item for item in items)
        return f"{before}\n{lines}\n{' ' * indent}{after}"

    def _name(self, cursor: ElementCursor) -> str:
        first, end = int(cursor.name_start), int(cursor.name_end)
        return self._text(cursor.buf[first : min(end, first + _MAX_READ)], end - first)

    def _value(self, buf: bytes, type_code: int, pos: int, indent: int) -> str:
        if type_code == DOCUMENT or type_code == ARRAY:
            return self.container(buf, pos, indent, type_code == ARRAY)
        text = self._scope(buf, pos, indent) if type_code == CODE_WITH_SCOPE else self._leaf(buf, type_code, pos)
        self.left -= len(text)
        return text

    def _scope(self, buf: bytes, pos: int, indent: int) -> str:
        """Code with its scope: the length of both, the code, the scope."""
        code = self._string(buf, pos + 4)
        scope = self.container(buf, pos + 8 + _int32(buf, pos + 4), indent, is_array=False)
        return f'{{"$code": {code}, "$scope": {scope}}}'

    def _leaf(self, buf: bytes, type_code: int, pos: int) -> str:
        if type_code == STRING:
            return self._string(buf, pos)
        if type_code == CODE:
            return f'{{"$code": {self._string(buf, pos)}}}'
        if type_code == SYMBOL:
            return f'{{"$symbol": {self._string(buf, pos)}}}'
        if type_code == BINARY:
            return self._binary(buf, pos)
        value = decode_value(buf, type_code, pos)
        if type_code in (BOOL, NULL):
            return json.dumps(value)
        if type_code in (INT32, INT64):
            return str(value)
        if isinstance(value, float):
            return repr(value) if isfinite(value) else f'{{"$numberDouble": "{_NOT_FINITE[str(value)]}"}}'
        if type_code == OBJECT_ID:
            return f'{{"$oid": "{value}"}}'
        if isinstance(value, Date):
            return f'{{"$date": {_date(value.ms)}}}'
        if type_code == DECIMAL128:
            return f'{{"$numberDecimal": "{value}"}}'
        if isinstance(value, Timestamp):
            return f'{{"$timestamp": {{"t": {value.time}, "i": {value.inc}}}}}'
        if isinstance(value, Regex):
            pattern, options = self._text(encode_text(value.pattern)), self._text(encode_text(value.options))
            return f'{{"$regularExpression": {{"pattern": {pattern}, "options": {options}}}}}'
        if isinstance(value, DBPointer):
            namespace = self._text(encode_text(value.namespace))
            return f'{{"$dbPointer": {{"$ref": {namespace}, "$id": {{"$oid": "{value.oid.hex()}"}}}}}}'
        if type_code == UNDEFINED:
            return '{"$undefined": true}'
        return '{"$maxKey": 1}' if type_code == MAX_KEY else '{"$minKey": 1}'

    def _string(self, buf: bytes, pos: int) -> str:
        """The text at `pos`: its length with the null character that ends it, and its bytes."""
        size = _int32(buf, pos) - 1
        return self._text(buf[pos + 4 : pos + 4 + min(size, _MAX_READ)], size)

    def _text(self, data: bytes, whole_bytes: int = 0) -> str:
        """A text. data: its first bytes, more than are shown if it is longer. whole_bytes: its length then."""
        text = decode_text(data)
        if len(text) <= MAX_VALUE_CHARACTERS:
            return _quoted(text)
        self.shortened = True
        return f"{_quoted(text[:MAX_VALUE_CHARACTERS] + '…')} /* {max(whole_bytes, len(data)):,} bytes */"

    def _binary(self, buf: bytes, pos: int) -> str:
        """Binary data: its length, its subtype, its bytes."""
        size = _int32(buf, pos)
        subtype = buf[pos + 4]
        data = buf[pos + 5 : pos + 5 + min(size, MAX_VALUE_CHARACTERS)]
        if subtype == _UUID_SUBTYPE and size == _UUID_BYTES:
            digits = data.hex()
            groups = [digits[first:end] for first, end in pairwise(_UUID_GROUPS)]
            return f'{{"$uuid": "{"-".join(groups)}"}}'
        text = f'"{b64encode(data).decode()}"'
        if len(data) < size:
            self.shortened = True
            text = f'"{b64encode(data).decode()}…" /* {size:,} bytes */'
        return f'{{"$binary": {{"base64": {text}, "subType": "{subtype:02x}"}}}}'


# Of a text that is long, bytes enough for MAX_VALUE_CHARACTERS.
_MAX_READ: Final = 4 * MAX_VALUE_CHARACTERS + 4
_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _int32(buf: bytes, pos: int) -> int:
    return int.from_bytes(buf[pos : pos + 4], "little", signed=True)


def _quoted(text: str) -> str:
    return _REORDERING.sub(_escape, json.dumps(text, ensure_ascii=False))


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _date(ms: int) -> str:
    if not 0 <= ms <= _MAX_DATE_MS:
        return f'{{"$numberLong": "{ms}"}}'
    moment = (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds" if ms % 1000 else "seconds")
    return '"' + moment.replace("+00:00", "Z") + '"'
