"""`$eq $ne $gt $gte $lt $lte $in $nin`.

Values of another type bracket than the operand's do not match: {$gt: 5} matches numbers only. Exceptions: MinKey and
MaxKey are compared with everything; null equals a missing field (but not undefined, as of MongoDB 8.0); NaN equals NaN,
and is neither less nor greater than any number.
"""

from bisect import bisect_left
from functools import cmp_to_key
from typing import Any, Final

from librt.strings import read_f64_le, read_i32_le, read_i64_le
from mypy_extensions import i64

from mongottl.document.build import encode_value
from mongottl.document.collation import Collation, may_hold_text, with_keys
from mongottl.document.compare import (
    BRACKET_MAX_KEY,
    BRACKET_MIN_KEY,
    BRACKET_NULL,
    BRACKET_NUMBER,
    BRACKET_STRING,
    bracket_of,
    bracket_of_type,
    compare_raw,
    compare_values,
)
from mongottl.document.freeing import LONG, LongList, LongSet, freed_in_slices, list_for, put_aside
from mongottl.document.interrupt import give_way
from mongottl.document.keystring import encode_value as key_of
from mongottl.document.long_lists import with_more
from mongottl.document.numbers import all_compare_as_python, compares_as_python, is_nan
from mongottl.document.path import FieldPath
from mongottl.document.sorting import sort_in_parts, sorted_distinct
from mongottl.document.types import (
    DECIMAL128,
    DOUBLE,
    INT32,
    INT64,
    NULL,
    OBJECT_ID,
    STRING,
    Date,
    MaxKey,
    MinKey,
    ObjectId,
    Regex,
    Undefined,
    Value,
)
from mongottl.document.utf8 import decode_text, encode_text
from mongottl.document.value_set import ValueSet
from mongottl.document.walk import decode_value
from mongottl.query.context import ParseContext
from mongottl.query.match.interval import (
    BracketEnd,
    BracketStart,
    Interval,
    everything,
    point,
    union,
)
from mongottl.query.match.parser import is_operator_document
from mongottl.query.match.regex import RegexExpression, make_regex
from mongottl.query.match.registry import ANY_TYPE, bad_value, match_operator
from mongottl.query.match.tree import AlwaysFalse, MatchExpression, NotExpression, PathExpression
from mongottl.versions import OLDEST

EQ: Final = 0
LT: Final = 1
LTE: Final = 2
GT: Final = 3
GTE: Final = 4

# The most numbers of an `$in` list that are in a set. A client can choose them, since Python's hash of them is the same
# everywhere, such that a number that is looked for is compared with all the others: in more it would take milliseconds.
_MOST_HASHED: Final = 8192

_NAMES: Final = ("$eq", "$lt", "$lte", "$gt", "$gte")

# How a comparison reads the values that it compares with its operand.
_BY_BYTES: Final = 0
_BY_INTEGER: Final = 1
_BY_DOUBLE: Final = 2
_BY_STRING: Final = 3
_BY_SORT_KEY: Final = 4

# Doubles hold every integer up to here, so that an int and a double may be compared as doubles.
_EXACT_DOUBLE: Final = 2**53

# No order: another bracket, or NaN.
_UNORDERED: Final = 2


class ComparisonExpression(PathExpression):
    """`{path: {$eq|$lt|$lte|$gt|$gte: value}}`.

    operator: EQ, LT, LTE, GT or GTE. value: the operand, decoded.
    """

    def __init__(self, path: FieldPath, operator: int, value: Value, collation: Collation | None = None) -> None:
        super().__init__(path)
        self.collation = collation
        self.operator = operator
        self.value = value
        type_code, raw = encode_value(value)
        self._op: i64 = operator
        self._type: i64 = type_code
        self._raw: bytes = raw
        self._bracket: i64 = bracket_of_type(self._type)
        self._mode: i64 = _BY_BYTES
        self._integer: i64 = 0
        self._double: float = 0.0
        self._text: bytes = b""
        self._nan = is_nan(value)
        if isinstance(value, int) and not isinstance(value, bool):
            if -_EXACT_DOUBLE <= value <= _EXACT_DOUBLE:
                self._mode = _BY_INTEGER
                self._integer = i64(value)
                self._double = float(value)
        elif isinstance(value, float):
            if not self._nan:
                self._mode = _BY_DOUBLE
                self._double = value
        elif isinstance(value, str):
            self._mode = _BY_STRING
            self._text = encode_text(value)
            if collation is not None:
                self._mode = _BY_SORT_KEY
                self._text = collation.key(self._text)

    def matches_single(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        order: i64 = _UNORDERED
        mode: i64 = self._mode
        if mode == _BY_INTEGER:
            if type_code == INT32:
                number: i64 = i64(read_i32_le(buf, pos))
                order = -1 if number < self._integer else (1 if number > self._integer else 0)
            elif type_code == INT64:
                number = read_i64_le(buf, pos)
                order = -1 if number < self._integer else (1 if number > self._integer else 0)
            elif type_code == DOUBLE:
                order = _order_doubles(read_f64_le(buf, pos), self._double)
            else:
                order = self._order(buf, type_code, pos)
        elif mode == _BY_DOUBLE:
            if type_code == DOUBLE:
                order = _order_doubles(read_f64_le(buf, pos), self._double)
            elif type_code == INT32:
                order = _order_doubles(float(read_i32_le(buf, pos)), self._double)
            else:
                order = self._order(buf, type_code, pos)
        elif mode == _BY_STRING:
            if type_code != STRING:
                order = self._order(buf, type_code, pos)
            elif self._op == EQ:
                return self._equals_text(buf, pos)
            else:
                order = self._order_text(buf, pos)
        elif mode == _BY_SORT_KEY and type_code == STRING:
            order = self._order_key(buf, pos)
        else:
            order = self._order(buf, type_code, pos)
        op: i64 = self._op
        if op == EQ:
            return order == 0
        if op == LT:
            return order == -1
        if op == GT:
            return order == 1
        if op == LTE:
            return order <= 0
        return order == 0 or order == 1

    def _equals_text(self, buf: bytes, pos: i64) -> bool:
        text = self._text
        size: i64 = len(text)
        if i64(read_i32_le(buf, pos)) != size + 1:
            return False
        pos += 4
        i: i64 = 0
        while i < size:
            if buf[pos + i] != text[i]:
                return False
            i += 1
        return True

    def _order_text(self, buf: bytes, pos: i64) -> i64:
        text = self._text
        wanted: i64 = len(text)
        size: i64 = i64(read_i32_le(buf, pos)) - 1
        pos += 4
        shorter: i64 = size if size < wanted else wanted
        i: i64 = 0
        while i < shorter:
            if buf[pos + i] != text[i]:
                return -1 if buf[pos + i] < text[i] else 1
            i += 1
        return -1 if size < wanted else (1 if size > wanted else 0)

    def _order_key(self, buf: bytes, pos: i64) -> i64:
        """The order of the string at `pos` and the operand under the collation: -1, 0 or 1."""
        collation = self.collation
        assert collation is not None
        key = collation.key(buf[pos + 4 : pos + 3 + i64(read_i32_le(buf, pos))])
        if key == self._text:
            return 0
        return -1 if key < self._text else 1

    def _order(self, buf: bytes, type_code: i64, pos: i64) -> i64:
        """-1, 0 or 1: the order of the value and the operand; 2 if they are not comparable."""
        bracket = bracket_of_type(type_code)
        if bracket != self._bracket:
            if self._bracket == BRACKET_NULL:
                return 0 if type_code == 0 else _UNORDERED
            if self._bracket == BRACKET_MIN_KEY:
                return 1
            if self._bracket == BRACKET_MAX_KEY:
                return -1
            return _UNORDERED
        if bracket == BRACKET_NUMBER:
            nan = (type_code == DOUBLE or type_code == DECIMAL128) and is_nan(decode_value(buf, type_code, pos))
            if nan or self._nan:
                return 0 if nan and self._nan else _UNORDERED
        return compare_raw(buf, type_code, pos, self._raw, self._type, 0, self.collation)

    def equality_key(self) -> bytes:
        # Not for NaN, nor for null, which also matches missing fields; nor under a collation, since the keys are made
        # without it.
        if self.collation is not None:
            return b""
        plain = isinstance(self.value, (str, int, ObjectId, Date)) or (isinstance(self.value, float) and not self._nan)
        return key_of(self.value) if self.operator == EQ and plain else b""

    def describe_operand(self) -> dict[str, Value]:
        return {_NAMES[self.operator]: self.value}

    def intervals(self) -> list[Interval] | None:
        return comparison_intervals(self.operator, with_keys(self.value, self.collation))

    def add_text_orders(self, orders: list[Collation | None]) -> None:
        give_way()
        if may_hold_text(self.value):
            orders.append(self.collation)


def _order_doubles(a: float, b: float) -> i64:
    if a < b:
        return -1
    if a > b:
        return 1
    return 0 if a == b else _UNORDERED


def comparison_intervals(operator: int, value: Value) -> list[Interval] | None:
    """The ranges of one comparison. Under a collation the value must be its sort key (`with_keys`).

    For an array the keys do not decide: the whole range, inexact.
    """
    if isinstance(value, list):
        return [everything(exact=False)]
    if value is None:
        # The key null also stands for missing fields, and for undefined in old data.
        return [point(None, exact=False)]
    if isinstance(value, (MinKey, MaxKey)) and operator != EQ:
        if isinstance(value, MinKey):
            if operator == LT:
                return []
            if operator == LTE:
                return [point(value)]
            return [Interval(value, operator == GTE, MaxKey(), True)]
        if operator == GT:
            return []
        if operator == GTE:
            return [point(value)]
        return [Interval(MinKey(), True, value, operator == LTE)]
    if operator == EQ or is_nan(value):
        if operator == LT or operator == GT:
            return []
        return [point(value)]
    bracket = int(bracket_of(value))
    low: Value = BracketStart(bracket)
    if bracket == BRACKET_NUMBER:
        low = float("-inf")  # NaN sorts before it and is never less
    if operator == LT or operator == LTE:
        return union([Interval(low, True, value, operator == LTE)])
    return union([Interval(value, operator == GTE, BracketEnd(bracket), True)])


class InExpression(PathExpression):
    """`{path: {$in: […]}}`: equality to any of the values, or a match of any of the regexes.

    values: the equalities, in MongoDB's order, without duplicates. regexes: the others.
    """

    def __init__(
        self,
        path: FieldPath,
        values: list[Value],
        regexes: list[RegexExpression],
        collation: Collation | None = None,
    ) -> None:
        super().__init__(path)
        self.collation = collation
        self.values = freed_in_slices(_distinct(values, collation))
        self.regexes = freed_in_slices(regexes)
        is_long = len(self.values) >= LONG
        self._numbers: set[object] = LongSet() if is_long else set()
        self._ordered_numbers: list[Any] = []  # all of them instead, if they are many
        self._texts: set[bytes] = LongSet() if is_long else set()
        self._oids: set[bytes] = LongSet() if is_long else set()
        self._has_null = False
        self._others: list[ComparisonExpression] = list_for(len(self.values))
        self._is_plain = False  # whether all values are of one of the common types
        if all_compare_as_python(self.values):
            self._is_plain = True
            self._take_numbers(self.values)
            return
        numbers: list[Value] = list_for(len(self.values))
        for value in self.values:
            give_way()
            if value is None:
                self._has_null = True
            elif isinstance(value, str):
                text = encode_text(value)
                self._texts.add(text if collation is None else collation.key(text))
            elif isinstance(value, ObjectId):
                self._oids.add(value.binary)
            elif compares_as_python(value):
                numbers.append(value)
            else:
                self._others.append(ComparisonExpression(path, EQ, value, collation))
        self._take_numbers(numbers)
        self._is_plain = not self._has_null and not self._others

    def _take_numbers(self, numbers: list[Value]) -> None:
        """numbers: in order."""
        if len(numbers) > _MOST_HASHED:
            self._ordered_numbers = numbers
            return
        for number in numbers:
            give_way()
            self._numbers.add(number)

    def _has_number(self, number: Any) -> bool:
        ordered = self._ordered_numbers
        if not ordered:
            return number in self._numbers
        place = bisect_left(ordered, number)
        return place < len(ordered) and bool(ordered[place] == number)

    def matches_single(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        if type_code == STRING:
            if self._texts:
                text = buf[pos + 4 : pos + 3 + i64(read_i32_le(buf, pos))]
                collation = self.collation
                if (text if collation is None else collation.key(text)) in self._texts:
                    return True
        elif type_code == INT32:
            if self._has_number(int(read_i32_le(buf, pos))):
                return True
        elif type_code == INT64:
            if self._has_number(int(read_i64_le(buf, pos))):
                return True
        elif type_code == DOUBLE:
            if self._has_number(read_f64_le(buf, pos)):
                return True
        elif type_code == OBJECT_ID:
            if self._oids and buf[pos : pos + 12] in self._oids:
                return True
        elif type_code == 0 or type_code == NULL:
            if self._has_null:
                return True
        else:
            # Less common types, some of which can equal a value of a common one: decimals, symbols.
            return self._matches_rare(buf, type_code, pos)
        for other in self._others:
            give_way()
            if other.matches_single(buf, type_code, pos):
                return True
        return self._matches_regex(buf, type_code, pos)

    def _matches_regex(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        for regex in self.regexes:
            give_way()
            if regex.matches_single(buf, type_code, pos):
                return True
        return False

    def _matches_rare(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        value = decode_value(buf, type_code, pos)
        bracket = bracket_of_type(type_code)
        if bracket == BRACKET_NUMBER or bracket == BRACKET_STRING:
            for candidate in self.values:
                give_way()
                if bracket_of(candidate) == bracket and compare_values(candidate, value, self.collation) == 0:
                    return True
        for other in self._others:
            give_way()
            if other.matches_single(buf, type_code, pos):
                return True
        return self._matches_regex(buf, type_code, pos)

    def simplify(self) -> MatchExpression:
        if not self.values and not self.regexes:
            return AlwaysFalse()
        if len(self.values) == 1 and not self.regexes:
            return ComparisonExpression(self.path, EQ, self.values[0], self.collation)
        if len(self.regexes) == 1 and not self.values:
            return self.regexes[0]
        return self

    def describe_operand(self) -> dict[str, Value]:
        described: list[Value] = with_more([], self.values)
        for regex in self.regexes:
            give_way()
            described.append(Regex(regex.pattern, regex.options))
        return {"$in": freed_in_slices(described)}

    def intervals(self) -> list[Interval] | None:
        if self._is_plain and not self.regexes:
            # Already ascending and disjoint.
            points: list[Interval] = [] if len(self.values) < LONG else LongList()
            for value in self.values:
                give_way()
                points.append(point(with_keys(value, self.collation)))
            return points
        found: list[Interval] = list_for(len(self.values) + len(self.regexes))
        for value in self.values:
            give_way()
            one = comparison_intervals(EQ, with_keys(value, self.collation))
            if one is None:
                return None
            found.extend(one)
        for regex in self.regexes:
            give_way()
            ranges = regex.intervals()
            if ranges is None:
                return None
            found.extend(ranges)
        return union(found)

    def add_text_orders(self, orders: list[Collation | None]) -> None:
        if self.regexes:
            orders.append(None)
        for value in self.values:
            give_way()
            if may_hold_text(value):
                orders.append(self.collation)
                break


def _distinct(values: list[Value], collation: Collation | None) -> list[Value]:
    """The values in MongoDB's order without duplicates. Texts and ids are hashed, since lists of ids may be long.

    Dictionaries keep the insertion order, so values that are already sorted are sorted again quickly.
    """
    if collation is not None:
        collated = ValueSet(collation)
        collated.add_all(values)
        return collated.in_order()
    if all_compare_as_python(values):
        return sorted_distinct(values)
    numbers: list[Value] = list_for(len(values))
    texts: dict[bytes, None] = {}
    oids: dict[bytes, None] = {}
    rest: list[Value] = list_for(len(values))
    for value in values:
        give_way()
        if isinstance(value, str):
            texts[encode_text(value)] = None
        elif isinstance(value, ObjectId):
            oids[value.binary] = None
        elif compares_as_python(value):
            numbers.append(value)
        else:
            rest.append(value)
    ordered: list[Value] = sorted_distinct(numbers)
    for text in sort_in_parts(list(texts)):
        give_way()
        ordered.append(decode_text(text))
    for oid in sort_in_parts(list(oids)):
        give_way()
        ordered.append(ObjectId(oid))
    for table in (texts, oids):
        put_aside(table)
    if not rest:
        return ordered
    distinct: list[Value] = list_for(len(ordered) + len(rest))
    ordered = with_more(ordered, rest)
    ordered.sort(key=cmp_to_key(_compare))
    for value in ordered:
        give_way()
        if not distinct or compare_values(distinct[-1], value) != 0:
            distinct.append(value)
    return distinct


def _compare(a: Value, b: Value) -> int:
    give_way()
    return int(compare_values(a, b))


def equality(path: FieldPath, value: Value, ctx: ParseContext) -> MatchExpression:
    """`{path: value}`. BadValue for undefined."""
    if isinstance(value, Undefined):
        raise bad_value("cannot compare to undefined")
    return ComparisonExpression(path, EQ, value, ctx.collation)


def _ordering(path: FieldPath, operator: int, value: Value, ctx: ParseContext) -> MatchExpression:
    if isinstance(value, Regex):
        raise bad_value(f"Can't have RegEx as arg to predicate over field '{path.dotted}'.")
    if isinstance(value, Undefined):
        raise bad_value("cannot compare to undefined")
    return ComparisonExpression(path, operator, value, ctx.collation)


_COMPARED: Final = ("comparison failed", "comparison succeeded")


@match_operator("$eq", order=30, reasons=_COMPARED, types=ANY_TYPE, since=OLDEST)
def parse_eq(path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression:
    """`{field: {$eq: value}}`; a regex is compared as a value here, not matched."""
    return equality(path, operand, ctx)


@match_operator("$ne", order=None, reasons=("comparison succeeded", "comparison failed"), types=ANY_TYPE, since=OLDEST)
def parse_ne(path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression:
    """`{field: {$ne: value}}`: no value at the path equals it. BadValue for a regex."""
    if isinstance(operand, Regex):
        raise bad_value("Can't have regex as arg to $ne.")
    return NotExpression(equality(path, operand, ctx))


@match_operator("$gt", order=60, reasons=_COMPARED, types=ANY_TYPE, since=OLDEST)
def parse_gt(path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression:
    return _ordering(path, GT, operand, ctx)


@match_operator("$gte", order=70, reasons=_COMPARED, types=ANY_TYPE, since=OLDEST)
def parse_gte(path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression:
    return _ordering(path, GTE, operand, ctx)


@match_operator("$lt", order=50, reasons=_COMPARED, types=ANY_TYPE, since=OLDEST)
def parse_lt(path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression:
    return _ordering(path, LT, operand, ctx)


@match_operator("$lte", order=40, reasons=_COMPARED, types=ANY_TYPE, since=OLDEST)
def parse_lte(path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression:
    return _ordering(path, LTE, operand, ctx)


def _in(path: FieldPath, operand: Value, name: str, ctx: ParseContext) -> InExpression:
    if not isinstance(operand, list):
        raise bad_value(f"{name} needs an array")
    values: list[Value] = [] if len(operand) < LONG else LongList()
    regexes: list[RegexExpression] = []
    for element in operand:
        give_way()
        if isinstance(element, bytes) and is_operator_document(element):
            raise bad_value(f"cannot nest $ under {name}")
        if isinstance(element, Regex):
            regexes.append(make_regex(path, element.pattern, element.options))
        elif isinstance(element, Undefined):
            raise bad_value("InMatchExpression equality cannot be undefined")
        else:
            values.append(element)
    return InExpression(path, values, regexes, ctx.collation)


@match_operator(
    "$in",
    order=110,
    reasons=("no matching value found in array", "matching value found in array"),
    types=ANY_TYPE,
    since=OLDEST,
)
def parse_in(path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression:
    """`{field: {$in: [value or regex, …]}}`. BadValue if it is not an array, or contains operators or undefined."""
    return _in(path, operand, "$in", ctx)


@match_operator(
    "$nin",
    order=None,
    reasons=("matching value found in array", "no matching value found in array"),
    types=ANY_TYPE,
    since=OLDEST,
)
def parse_nin(path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression:
    """`{field: {$nin: […]}}`: no value at the path equals or matches any of them."""
    return NotExpression(_in(path, operand, "$nin", ctx))
