"""MongoDB's order of values: by type bracket first, then within the bracket.

The order of brackets is the documented one ("Comparison/Sort Order"): MinKey, (undefined and missing), null,
numbers, strings and symbols, objects, arrays, binary data, ObjectId, bool, date, timestamp, regex, DBPointer, code,
code with scope, MaxKey. Numbers of all four types compare by their mathematical value; NaN equals itself and comes
before every other number. Objects compare field by field: bracket of the value, then name, then value.

Strings and symbols, also nested ones, compare by their bytes, or under a collation; no other type uses the collation.
"""

from typing import Final

from librt.strings import read_f64_le, read_i32_le, read_i64_le
from mypy_extensions import i64

from mongottl.document.collation import Collation
from mongottl.document.interrupt import give_way
from mongottl.document.nesting import MAX_LEVELS, too_deep
from mongottl.document.numbers import decimal_of, is_nan
from mongottl.document.types import (
    ARRAY,
    BOOL,
    DATE,
    DOCUMENT,
    DOUBLE,
    INT32,
    INT64,
    OBJECT_ID,
    STRING,
    BinData,
    Date,
    DBPointer,
    Decimal128,
    JavaScript,
    ObjectId,
    Regex,
    Symbol,
    Timestamp,
    Value,
    type_code_of,
)
from mongottl.document.utf8 import compare_texts, encode_text
from mongottl.document.walk import ElementCursor, decode_value

# Bracket of each type code. Missing sorts with undefined, just before null.
_BRACKETS: Final[list[int]] = [0] * 256
BRACKET_MIN_KEY: Final = -1
BRACKET_UNDEFINED: Final = 0
BRACKET_NULL: Final = 5
BRACKET_NUMBER: Final = 10
BRACKET_STRING: Final = 15
BRACKET_OBJECT: Final = 20
BRACKET_ARRAY: Final = 25
BRACKET_BINARY: Final = 30
BRACKET_OBJECT_ID: Final = 35
BRACKET_BOOL: Final = 40
BRACKET_DATE: Final = 45
BRACKET_TIMESTAMP: Final = 47
BRACKET_REGEX: Final = 50
BRACKET_DB_POINTER: Final = 55
BRACKET_CODE: Final = 60
BRACKET_CODE_WITH_SCOPE: Final = 65
BRACKET_MAX_KEY: Final = 127

for _code, _bracket in (
    (0, BRACKET_UNDEFINED),
    (1, BRACKET_NUMBER),
    (2, BRACKET_STRING),
    (3, BRACKET_OBJECT),
    (4, BRACKET_ARRAY),
    (5, BRACKET_BINARY),
    (6, BRACKET_UNDEFINED),
    (7, BRACKET_OBJECT_ID),
    (8, BRACKET_BOOL),
    (9, BRACKET_DATE),
    (10, BRACKET_NULL),
    (11, BRACKET_REGEX),
    (12, BRACKET_DB_POINTER),
    (13, BRACKET_CODE),
    (14, BRACKET_STRING),
    (15, BRACKET_CODE_WITH_SCOPE),
    (16, BRACKET_NUMBER),
    (17, BRACKET_TIMESTAMP),
    (18, BRACKET_NUMBER),
    (19, BRACKET_NUMBER),
    (127, BRACKET_MAX_KEY),
    (255, BRACKET_MIN_KEY),
):
    _BRACKETS[_code] = _bracket


def bracket_of_type(type_code: i64) -> i64:
    """The bracket of a BSON type in MongoDB's order of types; types of one bracket are compared by value."""
    return i64(_BRACKETS[type_code])


def bracket_of(value: Value) -> i64:
    return i64(_BRACKETS[type_code_of(value)])


def _sign(less: bool, greater: bool) -> i64:
    if less:
        return -1
    return 1 if greater else 0


def compare_numbers(a: Value, b: Value) -> i64:
    """-1, 0 or 1 for two numbers of any of the four types, by exact value; NaN first."""
    if isinstance(a, int) and isinstance(b, int):
        return _sign(a < b, a > b)
    if isinstance(a, Decimal128) or isinstance(b, Decimal128):
        return _compare_decimals(a, b)
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        if a < b:
            return -1
        if a > b:
            return 1
        if a == b:
            return 0
        return _sign(a != a and b == b, a == a and b != b)
    raise TypeError("not numbers")


def _compare_decimals(a: Value, b: Value) -> i64:
    nan_a = is_nan(a)
    nan_b = is_nan(b)
    if nan_a or nan_b:
        return _sign(nan_a and not nan_b, nan_b and not nan_a)
    # Python's Decimal compares with int and float exactly.
    x = decimal_of(a) if isinstance(a, Decimal128) else a
    y = decimal_of(b) if isinstance(b, Decimal128) else b
    return _sign(x < y, x > y)  # type: ignore[operator]  # numbers by contract


def compare_values(a: Value, b: Value, collation: Collation | None = None) -> i64:
    """-1, 0 or 1: the order of two decoded values (MISSING included)."""
    if a is b and not isinstance(a, float):
        return 0
    left = bracket_of(a)
    right = bracket_of(b)
    if left != right:
        return -1 if left < right else 1
    if left == BRACKET_NUMBER:
        return compare_numbers(a, b)
    if left == BRACKET_STRING:
        x = a.text if isinstance(a, Symbol) else str(a)
        y = b.text if isinstance(b, Symbol) else str(b)
        if collation is not None:
            x = collation.text_key(x)
            y = collation.text_key(y)
        return compare_texts(x, y)
    if isinstance(a, bytes) and isinstance(b, bytes):
        return compare_documents(a, 0, b, 0, collation)
    if isinstance(a, list) and isinstance(b, list):
        return _compare_lists(a, b, MAX_LEVELS, collation)
    if isinstance(a, bool) and isinstance(b, bool):
        return _sign(b and not a, a and not b)
    if isinstance(a, ObjectId) and isinstance(b, ObjectId):
        return _compare_bytes(a.binary, b.binary)
    if isinstance(a, Date) and isinstance(b, Date):
        return _sign(a.ms < b.ms, a.ms > b.ms)
    return _compare_rare(a, b)


def _compare_lists(a: list[Value], b: list[Value], levels: i64, collation: Collation | None) -> i64:
    """-1, 0 or 1: the order of two decoded arrays.

    levels: allowed nesting depth, these lists included; Overflow (15) if it is exceeded.
    """
    if levels <= 0:
        raise too_deep()
    shorter = min(len(a), len(b))
    for i in range(shorter):
        give_way()
        x = a[i]
        y = b[i]
        order = (
            _compare_lists(x, y, levels - 1, collation)
            if isinstance(x, list) and isinstance(y, list)
            else compare_values(x, y, collation)
        )
        if order != 0:
            return order
    return _sign(len(a) < len(b), len(a) > len(b))


def _compare_bytes(a: bytes, b: bytes) -> i64:
    return _sign(a < b, a > b)


def _compare_rare(a: Value, b: Value) -> i64:
    if isinstance(a, BinData) and isinstance(b, BinData):
        if len(a.data) != len(b.data):
            return _sign(len(a.data) < len(b.data), True)
        if a.subtype != b.subtype:
            return _sign(a.subtype < b.subtype, True)
        return _compare_bytes(a.data, b.data)
    if isinstance(a, Timestamp) and isinstance(b, Timestamp):
        if a.time != b.time:
            return _sign(a.time < b.time, True)
        return _sign(a.inc < b.inc, a.inc > b.inc)
    if isinstance(a, Regex) and isinstance(b, Regex):
        order = compare_texts(a.pattern, b.pattern)
        return order if order != 0 else compare_texts(a.options, b.options)
    if isinstance(a, JavaScript) and isinstance(b, JavaScript):
        order = compare_texts(a.code, b.code)
        if order != 0 or a.scope is None or b.scope is None:
            return order
        return compare_documents(a.scope, 0, b.scope, 0)
    if isinstance(a, DBPointer) and isinstance(b, DBPointer):
        left_name = encode_text(a.namespace)
        right_name = encode_text(b.namespace)
        if len(left_name) != len(right_name):
            return _sign(len(left_name) < len(right_name), True)
        order = _compare_bytes(left_name, right_name)
        return order if order != 0 else _compare_bytes(a.oid, b.oid)
    return 0  # types with a single value: null, undefined, missing, minKey, maxKey


def compare_documents(a: bytes, a_start: i64, b: bytes, b_start: i64, collation: Collation | None = None) -> i64:
    """-1, 0 or 1: the order of two raw documents: element by element, by bracket, then name, then value."""
    return _compare_documents(a, a_start, b, b_start, MAX_LEVELS, collation)


def _compare_documents(a: bytes, a_start: i64, b: bytes, b_start: i64, levels: i64, collation: Collation | None) -> i64:
    if levels <= 0:
        raise too_deep()
    left = ElementCursor(a, a_start)
    right = ElementCursor(b, b_start)
    while True:
        more_left = left.next()
        more_right = right.next()
        if not more_left or not more_right:
            return _sign(more_right, more_left)
        x: i64 = bracket_of_type(left.type_code)
        y: i64 = bracket_of_type(right.type_code)
        if x != y:
            return -1 if x < y else 1
        order = _compare_bytes(left.name_bytes(), right.name_bytes())
        if order != 0:
            return order
        order = _compare_nested(a, left, b, right, levels - 1, collation)
        if order != 0:
            return order


def _compare_nested(
    a: bytes, left: ElementCursor, b: bytes, right: ElementCursor, levels: i64, collation: Collation | None
) -> i64:
    if left.type_code == right.type_code:
        if left.type_code == DOCUMENT:
            return _compare_documents(a, left.value, b, right.value, levels, collation)
        if left.type_code == ARRAY:
            return _compare_arrays(a, left.value, b, right.value, levels, collation)
    return compare_raw(a, left.type_code, left.value, b, right.type_code, right.value, collation)


def compare_raw(
    a: bytes, a_type: i64, a_pos: i64, b: bytes, b_type: i64, b_pos: i64, collation: Collation | None = None
) -> i64:
    """-1, 0 or 1: the order of two raw values. Type code 0 stands for a missing value."""
    if a_type == b_type:
        if a_type == INT32:
            m: i64 = i64(read_i32_le(a, a_pos))
            n: i64 = i64(read_i32_le(b, b_pos))
            return -1 if m < n else (1 if m > n else 0)
        if a_type == INT64 or a_type == DATE:
            m = read_i64_le(a, a_pos)
            n = read_i64_le(b, b_pos)
            return -1 if m < n else (1 if m > n else 0)
        if a_type == DOUBLE:
            x = read_f64_le(a, a_pos)
            y = read_f64_le(b, b_pos)
            if x < y:
                return -1
            if x > y:
                return 1
            if x == y:
                return 0
            return _sign(x != x and y == y, x == x and y != y)
        if a_type == STRING:
            left_text = a[a_pos + 4 : a_pos + 3 + i64(read_i32_le(a, a_pos))]
            right_text = b[b_pos + 4 : b_pos + 3 + i64(read_i32_le(b, b_pos))]
            if collation is not None:
                left_text = collation.key(left_text)
                right_text = collation.key(right_text)
            return _compare_bytes(left_text, right_text)
        if a_type == DOCUMENT:
            return _compare_documents(a, a_pos, b, b_pos, MAX_LEVELS, collation)
        if a_type == ARRAY:
            return _compare_arrays(a, a_pos, b, b_pos, MAX_LEVELS, collation)
        if a_type == OBJECT_ID:
            return _compare_bytes(a[a_pos : a_pos + 12], b[b_pos : b_pos + 12])
        if a_type == BOOL:
            return _sign(a[a_pos] < b[b_pos], a[a_pos] > b[b_pos])
    left: i64 = bracket_of_type(a_type)
    right: i64 = bracket_of_type(b_type)
    if left != right:
        return -1 if left < right else 1
    return compare_values(decode_value(a, a_type, a_pos), decode_value(b, b_type, b_pos), collation)


def _compare_arrays(a: bytes, a_start: i64, b: bytes, b_start: i64, levels: i64, collation: Collation | None) -> i64:
    if levels <= 0:
        raise too_deep()
    left = ElementCursor(a, a_start)
    right = ElementCursor(b, b_start)
    while True:
        more_left = left.next()
        more_right = right.next()
        if not more_left or not more_right:
            return _sign(more_right, more_left)
        order = _compare_nested(a, left, b, right, levels - 1, collation)
        if order != 0:
            return order
