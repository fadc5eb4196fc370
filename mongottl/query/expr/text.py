"""Operators on strings: `$concat $indexOfBytes $indexOfCP $ltrim $replaceAll $replaceOne $rtrim $split $strcasecmp
$strLenBytes $strLenCP $substr $substrBytes $substrCP $toLower $toUpper $trim`. Those with patterns are in `pattern`."""

from typing import Final

from mongottl.document.freeing import LONG, LongList
from mongottl.document.interrupt import give_way, give_way_after
from mongottl.document.numbers import TWO_63, clamp_to_long, decimal_of, whole_int32
from mongottl.document.render import render_result
from mongottl.document.types import (
    INT64_MIN,
    Date,
    Decimal128,
    JavaScript,
    Symbol,
    Timestamp,
    Value,
)
from mongottl.document.utf8 import compare_texts, decode_text, encode_text, is_valid_text, rejoined
from mongottl.errors import CommandError
from mongottl.query.expr.base import (
    ASSOCIATIVE,
    Expression,
    Scope,
    expression,
    expression_parser,
    is_nullish,
    unary_expression,
)
from mongottl.query.expr.date.calendar import MONTH_NAMES, LocalTime, iso_text
from mongottl.query.expr.named import Syntax, is_given
from mongottl.query.expr.numbers import fits_long, width
from mongottl.query.expr.parser import MAX_STRING_BYTES, check_string, check_string_bytes, type_of
from mongottl.versions import OLDEST

# Characters that `$strcasecmp` compares at once.
_COMPARED: Final = 1 << 16
# Bytes of UTF-8.
_LONGEST_CHARACTER: Final = 4


def coerce_to_string(value: Value) -> str:
    """A value converted to a string for string operators: null is empty. 16007 for types other than numbers and
    dates."""
    if isinstance(value, str):
        return value
    if is_nullish(value):
        return ""
    if isinstance(value, bool):
        raise CommandError(16007, "can't convert from BSON type bool to String")
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Decimal128):
        return str(value)
    if isinstance(value, Date):
        return iso_text(value.ms)
    if isinstance(value, Symbol):
        return value.text
    if isinstance(value, Timestamp):
        time = LocalTime(value.time * 1000)
        return (
            f"{MONTH_NAMES[time.month - 1][:3]} {time.day:2d} {time.hour():02d}:{time.minute():02d}:{time.second():02d}"
            f":{value.inc}"
        )
    if isinstance(value, JavaScript) and value.scope is None:
        return value.code
    raise CommandError(16007, f"can't convert from BSON type {type_of(value)} to String")


@expression("$concat", 0, -1, grouping=ASSOCIATIVE, since=OLDEST)
def concat(values: list[Value]) -> Value:
    parts: list[str] = []
    size = 0
    for value in values:
        give_way()
        if isinstance(value, str):
            size += len(value)
            if size < MAX_STRING_BYTES:
                parts.append(value)
        elif is_nullish(value):
            return None
        else:
            raise CommandError(16702, f"$concat only supports strings, not {type_of(value)}")
    check_string_bytes(size)  # one of the same text many times would be longer than the memory
    return check_string(rejoined("".join(parts)))


def _ascii_lower(text: str) -> str:
    if text.isascii():
        return text.lower()
    return decode_text(encode_text(text).lower())  # that of bytes are ASCII letters


def _ascii_upper(text: str) -> str:
    if text.isascii():
        return text.upper()
    return decode_text(encode_text(text).upper())


@unary_expression("$toLower", since=OLDEST)
def to_lower(value: Value) -> Value:
    """Converts only ASCII letters."""
    return _ascii_lower(coerce_to_string(value))


@unary_expression("$toUpper", since=OLDEST)
def to_upper(value: Value) -> Value:
    """Converts only ASCII letters."""
    return _ascii_upper(coerce_to_string(value))


@expression("$strcasecmp", 2, since=OLDEST)
def strcasecmp(values: list[Value]) -> Value:
    left = coerce_to_string(values[0])
    right = coerce_to_string(values[1])
    # In parts: what is before the first different character has the same length in both.
    start = 0
    most = max(len(left), len(right))
    while start < most:
        give_way(_COMPARED // 64)
        end = start + _COMPARED
        if _ascii_upper(left[start:end]) != _ascii_upper(right[start:end]):
            # A byte that belongs to no character is one here, and another text may have the rest of a character there.
            end += _LONGEST_CHARACTER
            return int(compare_texts(_ascii_upper(left[start:end]), _ascii_upper(right[start:end])))
        start = end
    return 0


@unary_expression("$strLenBytes", since=OLDEST)
def str_len_bytes(value: Value) -> Value:
    if not isinstance(value, str):
        raise CommandError(34473, f"$strLenBytes requires a string argument, found: {type_of(value)}")
    return len(encode_text(value))


# The bytes of characters but for their first ones.
_CONTINUATIONS: Final = bytes(range(0x80, 0xC0))


@unary_expression("$strLenCP", since=OLDEST)
def str_len_cp(value: Value) -> Value:
    if not isinstance(value, str):
        raise CommandError(34471, f"$strLenCP requires a string argument, found: {type_of(value)}")
    if not is_valid_text(value):
        return len(encode_text(value).translate(None, _CONTINUATIONS))
    return len(value)


def _index_bounds(name: str, values: list[Value], size: int) -> tuple[int, int]:
    """(start, end) of a search; end at most `size`."""
    start = _search_index(name, values[2], "starting") if len(values) > 2 else 0
    end = _search_index(name, values[3], "ending") if len(values) > 3 else size
    return start, min(end, size)


def _search_index(name: str, value: Value, which: str) -> int:
    index = whole_int32(value)
    if index is None:
        raise CommandError(
            40096,
            f"{name} requires an integral {which} index, found a value of type: {type_of(value)}, "
            f"with value: {render_result(value)}",
        )
    if index < 0:
        raise CommandError(40097, f"{name} requires a nonnegative {which} index, found: {index}")
    return index


@expression("$indexOfBytes", 2, 4, since=OLDEST)
def index_of_bytes(values: list[Value]) -> Value:
    """`[string, substring, start, end]` in UTF-8 bytes, or -1."""
    if is_nullish(values[0]):
        return None
    text = _searched(values[0], "$indexOfBytes", "first", 40091)
    wanted = _searched(values[1], "$indexOfBytes", "second", 40092)
    data = encode_text(text)
    start, end = _index_bounds("$indexOfBytes", values, len(data))
    return data.find(encode_text(wanted), start, end) if start <= end else -1


@expression("$indexOfCP", 2, 4, since=OLDEST)
def index_of_cp(values: list[Value]) -> Value:
    """`[string, substring, start, end]` in code points, or -1; a match starts before `end`, but may end after it."""
    if is_nullish(values[0]):
        return None
    text = _searched(values[0], "$indexOfCP", "first", 40093)
    wanted = _searched(values[1], "$indexOfCP", "second", 40094)
    start, end = _index_bounds("$indexOfCP", values, len(text))
    if text == "" and wanted == "":
        return 0 if start == 0 else -1
    return text.find(wanted, start, end - 1 + len(wanted)) if start < end else -1


def _searched(value: Value, name: str, which: str, code: int) -> str:
    """The text or the substring of a search; the error `code` for a value that is no string."""
    if not isinstance(value, str):
        raise CommandError(code, f"{name} requires a string as the {which} argument, found: {type_of(value)}")
    return value


def _substr_number(value: Value, code: int, which: str) -> int:
    if width(value) == 0:
        raise CommandError(code, f"$substrBytes: {which} must be a numeric type (is BSON type {type_of(value)})")
    if isinstance(value, float) and not (-TWO_63 <= value < TWO_63):
        raise CommandError(31109, f"Can't coerce out of range value {render_result(value)} to long")
    if isinstance(value, Decimal128):
        number = decimal_of(value)
        if not number.is_finite() or (number != 0 and number.adjusted() > 19):
            return INT64_MIN
        rounded = int(number.to_integral_value())
        return rounded if fits_long(rounded) else INT64_MIN
    return clamp_to_long(value)


def _is_continuation(data: bytes, index: int) -> bool:
    return index < len(data) and data[index] & 0xC0 == 0x80


def _substr_bytes(values: list[Value]) -> Value:
    """`[string, start, count]` in UTF-8 bytes; a negative count means up to the end."""
    data = encode_text(coerce_to_string(values[0]))
    start = _substr_number(values[1], 16034, "starting index")
    count = _substr_number(values[2], 16035, "length")
    if start < 0:
        raise CommandError(50752, f"$substrBytes: starting index must be non-negative (got: {start})")
    if _is_continuation(data, start):
        raise CommandError(28656, "$substrBytes:  Invalid range, starting index is a UTF-8 continuation byte.")
    if start >= len(data):
        return ""
    end = len(data) if count < 0 else min(start + count, len(data))
    if _is_continuation(data, end):
        raise CommandError(28657, "$substrBytes:  Invalid range, ending index is in the middle of a UTF-8 character.")
    return check_string(decode_text(data[start:end]))


for _name in ("$substrBytes", "$substr"):
    expression(_name, 3, since=OLDEST)(_substr_bytes)


@expression("$substrCP", 3, since=OLDEST)
def substr_cp(values: list[Value]) -> Value:
    """`[string, start, count]` in code points."""
    text = coerce_to_string(values[0])
    start = _code_points(values[1], "starting index", 34450, 34451)
    count = _code_points(values[2], "length", 34452, 34453)
    if count < 0:
        raise CommandError(34454, "$substrCP: length must be a nonnegative integer.")
    if start < 0:
        raise CommandError(34455, "$substrCP: the starting index must be nonnegative integer.")
    if not is_valid_text(text):
        data = encode_text(text)
        first = _after_code_points(data, 0, start, 34456)
        return decode_text(data[first : _after_code_points(data, first, count, 34458)])
    return check_string(text[start : start + count])


def _after_code_points(data: bytes, position: int, count: int, code: int) -> int:
    """The position after `count` code points of a text that is no UTF-8: the first byte of each has its length.

    The error `code` if there is a continuation byte where a code point should begin, and the next one for a byte with
    which none can begin.
    """
    while count > 0 and position < len(data):
        size = _code_point_size(data[position])
        if size == 0:
            raise CommandError(code + (data[position] >= 0xF8), "$substrCP: the string is not valid UTF-8")
        position += size
        count -= 1
        if count % 1024 == 0:
            give_way()
    return position


def _code_point_size(byte: int) -> int:
    """The bytes of a code point that begins with this byte; 0 if none can."""
    if byte < 0x80:
        return 1
    if byte & 0xC0 == 0x80 or byte >= 0xF8:
        return 0
    return 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2


def _code_points(value: Value, which: str, not_number: int, not_int32: int) -> int:
    if width(value) == 0:
        raise CommandError(not_number, f"$substrCP: {which} must be a numeric type (is BSON type {type_of(value)})")
    number = whole_int32(value)
    if number is None:
        raise CommandError(
            not_int32, f"$substrCP: {which} cannot be represented as a 32-bit integral value: {render_result(value)}"
        )
    return number


@expression("$split", 2, since=OLDEST)
def split(values: list[Value]) -> Value:
    """`[string, delimiter]`."""
    text = values[0]
    delimiter = values[1]
    if is_nullish(text) or is_nullish(delimiter):
        return None
    if not isinstance(text, str):
        raise CommandError(
            40085,
            f"$split requires an expression that evaluates to a string as a first argument, found: {type_of(text)}",
        )
    if not isinstance(delimiter, str):
        raise CommandError(
            10503900,
            "$split requires an expression that evaluates to a string as a second argument, found: "
            f"{type_of(delimiter)}",
        )
    if delimiter == "":
        raise CommandError(40087, "$split requires a non-empty separator")
    give_way_after(len(text))
    if is_valid_text(delimiter):
        return _split_in_windows(text, delimiter)
    # Bytes that may be in the middle of a character: as Latin 1 each byte is one.
    found = _split_in_windows(encode_text(text).decode("latin-1"), encode_text(delimiter).decode("latin-1"))
    parts: list[Value] = [] if len(found) < LONG else LongList()
    for part in found:
        assert isinstance(part, str)
        give_way()
        parts.append(decode_text(part.encode("latin-1")))
    return parts


# Characters of a text that are split or gathered at once, and about how many microseconds that takes.
_WINDOW: Final = 1 << 16
_WINDOW_WEIGHT: Final = 512


def _split_in_windows(text: str, delimiter: str) -> list[Value]:
    parts: list[Value] = [] if len(text) < LONG else LongList()
    start = 0
    while len(text) - start > _WINDOW:
        found, start = _ended_parts(text, delimiter, start)
        if not found:
            break
        parts.extend(found)
        give_way(_WINDOW_WEIGHT)
    parts.extend(text[start:].split(delimiter))
    return parts


def _ended_parts(text: str, delimiter: str, start: int) -> tuple[list[str], int]:
    """The parts of a text from `start` on that end with a delimiter within a window, or else the first one, and where
    the next part begins. No parts if no delimiter follows."""
    found = text[start : start + _WINDOW].split(delimiter)
    rest = found.pop()  # goes on in the next window
    if found:
        return found, start + _WINDOW - len(rest)
    end = text.find(delimiter, start + max(0, _WINDOW - len(delimiter)))
    return ([], start) if end < 0 else ([text[start:end]], end + len(delimiter))


_WHITESPACE: Final = "\0 \t\n\v\f\r\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
_TRIM: Final = Syntax(50696, 50694, [("input", 50695)], ["chars"])


# Characters that are compared at once when a text is trimmed, and about how many microseconds that takes.
_TRIMMED_WORK: Final = 1 << 18
_TRIMMED_WEIGHT: Final = 64


def _trimmed(name: str, values: list[Value], left: bool, right: bool) -> Value:
    text = values[0]
    if is_nullish(text):
        return None
    if not isinstance(text, str):
        raise CommandError(
            50699, f"{name} requires its input to be a string, got {render_result(text)} (of type {type_of(text)})"
        )
    chars: Value = _WHITESPACE
    if is_given(values[1]):
        chars = values[1]
        if is_nullish(chars):
            return None
    if not isinstance(chars, str):
        raise CommandError(
            50700, f"{name} requires 'chars' to be a string, got {render_result(chars)} (of type {type_of(chars)})"
        )
    if chars == "":
        return text
    if not is_valid_text(chars):
        return decode_text(_trimmed_bytes(encode_text(text), _characters(name, encode_text(chars)), left, right))
    distinct = _distinct_characters(chars)
    if left:
        text = text[_trimmed_on_the_left(text, distinct) :]
    return text[: _trimmed_on_the_right(text, distinct)] if right else text


def _distinct_characters(text: str) -> str:
    found: dict[str, None] = {}
    for start in range(0, len(text), _WINDOW):
        found.update(dict.fromkeys(text[start : start + _WINDOW]))
        give_way(_WINDOW_WEIGHT)
    return "".join(found)


def _trimmed_on_the_left(text: str, chars: str) -> int:
    """Where the text begins without these characters, a part at a time: each is looked for among all of `chars`."""
    part = max(1, _TRIMMED_WORK // len(chars))
    for start in range(0, len(text), part):
        left = len(text[start : start + part].lstrip(chars))
        if left:
            return min(start + part, len(text)) - left
        give_way(_TRIMMED_WEIGHT)
    return len(text)


def _trimmed_on_the_right(text: str, chars: str) -> int:
    part = max(1, _TRIMMED_WORK // len(chars))
    for end in range(len(text), 0, -part):
        start = max(0, end - part)
        left = len(text[start:end].rstrip(chars))
        if left:
            return start + left
        give_way(_TRIMMED_WEIGHT)
    return 0


def _characters(name: str, chars: bytes) -> list[bytes]:
    """The code points of `chars` that are no UTF-8, by their first bytes; one with which none can begin stands alone.

    5156305 for a continuation byte where a code point should begin, 5156304 if the last one is cut.
    """
    found: dict[bytes, None] = {}
    position = 0
    while position < len(chars):
        give_way()
        if chars[position] & 0xC0 == 0x80:
            raise CommandError(5156305, f"'chars' of {name} is not valid UTF-8: a code point begins inside another")
        size = max(_code_point_size(chars[position]), 1)
        found[chars[position : position + size]] = None
        position += size
    if position > len(chars):
        raise CommandError(5156304, f"'chars' of {name} is not valid UTF-8: its last code point is cut")
    return list(found)


def _trimmed_bytes(data: bytes, characters: list[bytes], left: bool, right: bool) -> bytes:
    start = 0
    end = len(data)
    wanted = tuple(characters)
    while left and data.startswith(wanted, start, end):
        give_way(1 + (len(wanted) >> 3))
        start += max([len(one) for one in wanted if data.startswith(one, start, end)])
    while right and data.endswith(wanted, start, end):
        give_way(1 + (len(wanted) >> 3))
        end -= max([len(one) for one in wanted if data.endswith(one, start, end)])
    return data[start:end]


def _trim(values: list[Value]) -> Value:
    return _trimmed("$trim", values, True, True)


def _ltrim(values: list[Value]) -> Value:
    return _trimmed("$ltrim", values, True, False)


def _rtrim(values: list[Value]) -> Value:
    return _trimmed("$rtrim", values, False, True)


@expression_parser("$trim", since=(4, 0))
def parse_trim(name: str, argument: Value, scope: Scope) -> Expression:
    """`{input, chars}`: removes the characters at both ends; whitespace by default. Codes 50694 to 50700."""
    return _TRIM.node(name, argument, scope, _trim)


@expression_parser("$ltrim", since=(4, 0))
def parse_ltrim(name: str, argument: Value, scope: Scope) -> Expression:
    return _TRIM.node(name, argument, scope, _ltrim)


@expression_parser("$rtrim", since=(4, 0))
def parse_rtrim(name: str, argument: Value, scope: Scope) -> Expression:
    return _TRIM.node(name, argument, scope, _rtrim)


_REPLACE: Final = Syntax(51751, 51750, [("input", 51749), ("find", 51748), ("replacement", 51747)])


def _replaced(name: str, values: list[Value], count: int) -> Value:
    text = values[0]
    find = values[1]
    replacement = values[2]
    if not isinstance(text, str) and not is_nullish(text):
        raise CommandError(10503904, f"{name} requires that 'input' be a string, found: {render_result(text)}")
    if not isinstance(find, str) and not is_nullish(find):
        raise CommandError(10503901, f"{name} requires that 'find' be a string, found: {render_result(find)}")
    if not isinstance(replacement, str) and not is_nullish(replacement):
        raise CommandError(
            10503902, f"{name} requires that 'replacement' be a string, found: {render_result(replacement)}"
        )
    if not isinstance(text, str) or not isinstance(find, str) or not isinstance(replacement, str):
        return None
    # mongod replaces bytes, and finds the empty string also between the bytes of a character.
    if not is_valid_text(find + replacement) or (find == "" and not text.isascii()):
        data = encode_text(text)
        sought = encode_text(find)
        put = encode_text(replacement)
        _check_replaced(len(data), data.count(sought), count, len(put) - len(sought))
        return check_string(decode_text(data.replace(sought, put, count)))
    if len(text) + len(replacement) > _WINDOW:
        _check_replaced(len(text), text.count(find), count, len(replacement) - len(find))
        if count < 0 and find:
            return check_string(_replaced_in_windows(text, find, replacement))
    return check_string(text.replace(find, replacement, count))


def _check_replaced(size: int, found: int, most: int, more: int) -> None:
    """16493 if a text would be too long after each of the places found, `most` of them unless that is negative, has
    been made longer by `more`."""
    if more > 0:
        check_string_bytes(size + (found if most < 0 else min(found, most)) * more)


def _replaced_in_windows(text: str, find: str, replacement: str) -> str:
    parts: list[str] = []
    start = 0
    while len(text) - start > _WINDOW:
        give_way(_WINDOW_WEIGHT)
        found, start = _ended_parts(text, find, start)
        if not found:
            break
        parts.append(replacement.join(found))
        parts.append(replacement)
    parts.append(text[start:].replace(find, replacement))
    return "".join(parts)


def _replace_one(values: list[Value]) -> Value:
    return _replaced("$replaceOne", values, 1)


def _replace_all(values: list[Value]) -> Value:
    return _replaced("$replaceAll", values, -1)


@expression_parser("$replaceOne", since=(4, 4))
def parse_replace_one(name: str, argument: Value, scope: Scope) -> Expression:
    """`{input, find, replacement}`. Codes 51747 to 51751 for the shape."""
    return _REPLACE.node(name, argument, scope, _replace_one)


@expression_parser("$replaceAll", since=(4, 4))
def parse_replace_all(name: str, argument: Value, scope: Scope) -> Expression:
    return _REPLACE.node(name, argument, scope, _replace_all)
