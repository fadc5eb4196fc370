"""Values as text, the way mongod writes them into error messages.

`render_value` writes parts of commands and stored documents: `{ a: 1, b: "x", _id: ObjectId('…') }`. `render_result`
writes values that expressions have computed, which mongod writes in another way: `{a: 1, b: "x", _id: 5f…}`.
"""

from typing import Final

from mypy_extensions import i64

from mongottl.document.build import encode_fields
from mongottl.document.interrupt import give_way, give_way_after
from mongottl.document.types import (
    ARRAY,
    DOCUMENT,
    STRING,
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
from mongottl.document.utf8 import character_start, decode_text
from mongottl.document.walk import ElementCursor, fields
from mongottl.errors import shortened

# The most texts that are joined, and then freed, at once.
_JOINED_AT_ONCE: Final = 1_000
# The most bytes of a document, an element or a text that `render_beginning` decodes.
_SHOWN_BYTES: Final[i64] = 4096
# Characters of the value of an expression that are shown.
_SHOWN: Final = 10_000
# Bytes that are written as hexadecimal digits in one step.
_HEX_AT_ONCE: Final = 1 << 16
_HEX_WEIGHT: Final = 300
_UUID_SUBTYPE: Final = 4
_UUID_BYTES: Final = 16
_SENSITIVE_SUBTYPE: Final = 8


def render_value(value: Value) -> str:
    """One value as mongod prints it."""
    give_way()
    if isinstance(value, str):
        give_way_after(len(value))
        return '"' + value + '"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return render_double(value)
    if isinstance(value, int):
        return str(int(value))
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return render_document(value)
    if isinstance(value, list):
        return _render_list(value)
    if isinstance(value, ObjectId):
        return f"ObjectId('{value}')"
    return _render_rare(value)


def _render_list(values: list[Value]) -> str:
    if not values:
        return "[]"
    listed = _Listed()
    for value in values:
        listed.add(render_value(value))
    return "[ " + listed.text() + " ]"


class _Listed:
    """Texts with commas between them. They are joined in parts: to free a million of them at once takes long."""

    def __init__(self) -> None:
        self._joined: list[str] = []
        self._part: list[str] = []

    def add(self, text: str) -> None:
        self._part.append(text)
        if len(self._part) >= _JOINED_AT_ONCE:
            self._join()

    def _join(self) -> None:
        self._joined.append(", ".join(self._part))
        self._part = []

    def text(self) -> str:
        if not self._joined:
            return ", ".join(self._part)
        if self._part:
            self._join()
        return ", ".join(self._joined)


def render_double(number: float) -> str:
    """A double with the `.0` by which it differs from an int: `1.0`, `1.5`, `nan.0`, `inf.0`."""
    if number != number:
        return "nan.0"
    if number in (float("inf"), float("-inf")):
        return "inf.0" if number > 0 else "-inf.0"
    if number.is_integer() and abs(number) < 1e15:
        return f"{int(number)}.0" if number != 0 or str(number)[0] != "-" else "-0.0"
    return repr(number)


def _render_rare(value: Value) -> str:
    if isinstance(value, Date):
        return f"new Date({value.ms})"
    if isinstance(value, Decimal128):
        return str(value)
    if isinstance(value, BinData):
        return _render_binary(value)
    if isinstance(value, Timestamp):
        return f"Timestamp({value.time}, {value.inc})"
    if isinstance(value, Regex):
        return f"/{value.pattern}/{value.options}"
    if isinstance(value, JavaScript):
        return value.code if value.scope is None else f"CodeWScope( {value.code}, {render_document(value.scope)})"
    if isinstance(value, Symbol):
        return '"' + value.text + '"'
    if isinstance(value, DBPointer):
        return f"DBRef('{value.namespace}', {value.oid.hex()})"
    if isinstance(value, Undefined):
        return "undefined"
    if isinstance(value, MinKey):
        return "MinKey"
    if isinstance(value, MaxKey):
        return "MaxKey"
    if isinstance(value, Missing):
        return "missing"
    return str(value)


def _render_binary(value: BinData) -> str:
    """`UUID("…")` for a UUID of its whole length: also in texts of DuplicateKey, where most people meet it."""
    if value.subtype != _UUID_SUBTYPE or len(value.data) != _UUID_BYTES:
        return f"BinData({value.subtype}, {hexadecimal(value.data)})"
    digits = value.data.hex()
    return f'UUID("{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}")'


def hexadecimal(data: bytes) -> str:
    """The bytes as hexadecimal digits, A to F in capitals."""
    if len(data) <= _HEX_AT_ONCE:
        return data.hex().upper()
    parts: list[str] = []
    for start in range(0, len(data), _HEX_AT_ONCE):
        give_way(_HEX_WEIGHT)
        parts.append(data[start : start + _HEX_AT_ONCE].hex().upper())
    return "".join(parts)


def render_document(document: bytes) -> str:
    """`{ a: 1, b: 2 }`, and `{}` for the empty document."""
    pairs = fields(document)
    if not pairs:
        return "{}"
    listed = _Listed()
    for name, value in pairs:
        listed.add(f"{name}: {render_value(value)}")
    return "{ " + listed.text() + " }"


def render_beginning(document: bytes) -> str:
    """`render_document` of what a client has sent, as messages show it: only the beginning of a long one
    (`errors.shortened`), with `...` in place of what is left out. It takes no time that depends on the length."""
    if len(document) <= _SHOWN_BYTES:
        return shortened(render_document(document))
    return shortened(_beginning(document, 0, False))


def _beginning(buf: bytes, start: i64, is_array: bool) -> str:
    """The first elements of the document, or array, at `start`."""
    parts: list[str] = []
    room: i64 = _SHOWN_BYTES
    cursor = ElementCursor(buf, start)
    while cursor.next():
        if room <= 0:
            parts.append("...")
            break
        type_code: i64 = cursor.type_code
        if cursor.end - cursor.element <= _SHOWN_BYTES:
            text = render_value(cursor.decoded())
        elif type_code == DOCUMENT or type_code == ARRAY:
            text = _beginning(buf, cursor.value, type_code == ARRAY)
        elif type_code == STRING:
            text = '"' + _text_beginning(buf, cursor.value + 4, cursor.end - 1)
        else:
            text = "..."
        parts.append(text if is_array else f"{_text_beginning(buf, cursor.name_start, cursor.name_end)}: {text}")
        room -= len(parts[-1])
    return ("[ " if is_array else "{ ") + ", ".join(parts) + (" ]" if is_array else " }")


def _text_beginning(buf: bytes, start: i64, end: i64) -> str:
    if end - start <= _SHOWN_BYTES:
        return decode_text(buf[start:end])
    return decode_text(buf[start : character_start(buf, int(start + _SHOWN_BYTES))]) + "..."


def render_logged(document: bytes) -> str:
    """`render_document` for logs: with `###` in place of sensitive data, binary data of subtype 8."""
    return render_document(_without_sensitive_data(document))


def _without_sensitive_data(document: bytes) -> bytes:
    return encode_fields([(name, _loggable(value)) for name, value in fields(document)])


def _loggable(value: Value) -> Value:
    if isinstance(value, BinData):
        return "###" if value.subtype == _SENSITIVE_SUBTYPE else value
    if isinstance(value, bytes):
        return _without_sensitive_data(value)
    return [_loggable(item) for item in value] if isinstance(value, list) else value


def render_result(value: Value) -> str:
    """The value of an expression as mongod prints it: `/[,;]/i`, `2020-01-31T00:00:00.000Z`, `{a: 1}`, `[1, 2]`.

    Only the beginning of a long text: errors show it, and a list of two million dates would be a message of 54 MB.
    """
    give_way()
    if isinstance(value, (bytes, list)):
        beginning = _Beginning()
        _add_result(value, beginning)
        return beginning.text()
    text = _render_single_result(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


class _Beginning:
    """The first _SHOWN characters of texts that follow each other. ended: whether there were more."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._left: int = _SHOWN
        self.ended = False

    def add(self, text: str) -> None:
        if self.ended:
            return
        if len(text) > self._left:
            text = text[: self._left] + "..."
            self.ended = True
        self._parts.append(text)
        self._left -= len(text)

    def text(self) -> str:
        return "".join(self._parts)


def _add_result(value: Value, to: _Beginning) -> None:
    if isinstance(value, bytes):
        to.add("{")
        cursor = ElementCursor(value, 0)
        separator = ""
        while not to.ended and cursor.next():
            to.add(f"{separator}{cursor.name()}: ")
            if not to.ended:
                _add_result(cursor.decoded(), to)
            separator = ", "
        to.add("}")
    elif isinstance(value, list):
        to.add("[")
        separator = ""
        for item in value:
            to.add(separator)
            if to.ended:
                return
            _add_result(item, to)
            separator = ", "
        to.add("]")
    else:
        give_way()
        to.add(_render_single_result(value))


def _render_single_result(value: Value) -> str:
    """That of a value which is no list and no document."""
    if isinstance(value, float):
        return _render_short_double(value)
    if isinstance(value, ObjectId):
        return str(value)
    if isinstance(value, Date):
        return _render_iso_date(value.ms)
    if isinstance(value, BinData):
        data = value.data
        if len(data) > _SHOWN:  # each byte has two characters
            data = data[:_SHOWN]
        return f'BinData({value.subtype}, "{data.hex().upper()}")'
    if isinstance(value, JavaScript):
        if value.scope is None:
            return f'Code("{value.code}")'
        return f'CodeWScope("{value.code}", {render_document(value.scope)})'
    if isinstance(value, Symbol):
        return f'Symbol("{value.text}")'
    if isinstance(value, DBPointer):
        return f'DBRef("{value.namespace}", {value.oid.hex()})'
    if isinstance(value, Missing):
        return "MISSING"
    return render_value(value)


_MIN_DATE_MS: Final = -62_167_219_200_000  # year 0
_MAX_DATE_MS: Final = 253_402_300_799_999  # year 9999
_MS_PER_DAY: Final = 86_400_000
_DAYS_PER_ERA: Final = 146_097  # 400 years
_DAYS_TO_MARCH_0: Final = 719_468  # from 0000-03-01 to 1970-01-01


def _render_iso_date(ms: int) -> str:
    """`2020-01-31T00:00:00.000Z`, for the years 0 to 9999."""
    if not _MIN_DATE_MS <= ms <= _MAX_DATE_MS:
        return "illegal date"
    days, rest = divmod(ms, _MS_PER_DAY)
    # Years begin in March here, so that the leap day is a year's last one.
    era, day_of_era = divmod(days + _DAYS_TO_MARCH_0, _DAYS_PER_ERA)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year = era * 400 + year_of_era + (1 if month <= 2 else 0)
    seconds, milliseconds = divmod(rest, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}.{milliseconds:03d}Z"


def _render_short_double(number: float) -> str:
    """A double with six digits, as C++ streams print it: `1`, `0.1`, `1e+20`, `-inf`."""
    return f"{number:g}"
