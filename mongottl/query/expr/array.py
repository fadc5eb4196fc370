"""Operators on arrays: `$arrayElemAt $concatArrays $first $in $indexOfArray $isArray $last $range $reverseArray $size
$slice $sortArray $zip`. Those that bind variables are in `iteration`."""

from typing import Final

from mypy_extensions import i64

from mongottl.document.build import encode
from mongottl.document.collation import Collation
from mongottl.document.compare import compare_values
from mongottl.document.copied import note_elements
from mongottl.document.freeing import LONG, LongList, freed_in_slices, list_for, set_for
from mongottl.document.interrupt import give_way
from mongottl.document.keystring import encode_value
from mongottl.document.numbers import whole_int32
from mongottl.document.path import check_path_depth
from mongottl.document.render import render_result
from mongottl.document.sorting import sorted_by_keys
from mongottl.document.types import MISSING, Missing, Value
from mongottl.document.walk import SEARCHED_BITS, fields, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.expr.base import (
    ASSOCIATIVE,
    EXPRESSIONS,
    CollatedExpression,
    Constant,
    EvaluationContext,
    Expression,
    Operator,
    Scope,
    collated_expression,
    expression,
    expression_parser,
    is_nullish,
    unary_expression,
)
from mongottl.query.expr.named import ABSENT, Syntax, is_given
from mongottl.query.expr.numbers import width
from mongottl.query.expr.parser import parse_arguments, parse_operand, type_of
from mongottl.versions import OLDEST

# From this number of constants on, `$in` looks for a value among their hashes.
_MANY_VALUES: Final = 16
# Elements that are copied in a microsecond, as a power of two; numbers that `$range` makes at once.
COPIED_BITS: Final = 6
_RANGE_PART: Final = 1 << 16
MAX_ARRAY_BYTES: Final = 100 << 20  # mongod's limit of $range, used for all operators that build arrays


@expression("$arrayElemAt", 2, since=OLDEST)
def array_elem_at(values: list[Value]) -> Value:
    """`[array, index]`: counted from the end if negative; MISSING outside the array."""
    array = values[0]
    index = values[1]
    if is_nullish(array) or is_nullish(index):
        return None
    if not isinstance(array, list):
        raise CommandError(28689, f"$arrayElemAt's first argument must be an array, but is {type_of(array)}")
    if width(index) == 0:
        raise CommandError(28690, f"$arrayElemAt's second argument must be a numeric value, but is {type_of(index)}")
    position = whole_int32(index)
    if position is None:
        raise CommandError(
            28691, f"$arrayElemAt's second argument must be representable as a 32-bit integer: {render_result(index)}"
        )
    if position < 0:
        position += len(array)
    return array[position] if 0 <= position < len(array) else MISSING


def _end_element(name: str, value: Value, position: int) -> Value:
    if is_nullish(value):
        return None
    if not isinstance(value, list):
        raise CommandError(28689, f"{name}'s argument must be an array, but is {type_of(value)}")
    return value[position] if value else MISSING


@unary_expression("$first", since=(4, 4))
def first(value: Value) -> Value:
    return _end_element("$first", value, 0)


@unary_expression("$last", since=(4, 4))
def last(value: Value) -> Value:
    return _end_element("$last", value, -1)


@expression("$concatArrays", 0, -1, grouping=ASSOCIATIVE, since=OLDEST)
def concat_arrays(values: list[Value]) -> Value:
    joined: list[Value] = []
    for value in values:
        if is_nullish(value):
            return None
        if not isinstance(value, list):
            raise CommandError(28664, f"$concatArrays only supports arrays, not {type_of(value)}")
        _check_length("$concatArrays", len(joined) + len(value))
        give_way(1 + (len(value) >> COPIED_BITS))
        if len(joined) < LONG <= len(joined) + len(value):
            joined = LongList(joined)
        joined.extend(value)
    note_elements(len(joined))
    return joined


def _check_length(name: str, length: int) -> None:
    """QueryExceededMemoryLimitNoDiskUseAllowed (292) for a result that is too long."""
    if length * 8 > MAX_ARRAY_BYTES:
        raise CommandError(
            ErrorCode.QueryExceededMemoryLimitNoDiskUseAllowed,
            f"{name} would use too much memory ({length * 8} bytes) and cannot spill to disk. "
            f"Memory limit: {MAX_ARRAY_BYTES} bytes",
        )


@expression_parser("$in", since=OLDEST)
def parse_in(name: str, argument: Value, scope: Scope) -> Expression:
    """`[value, array]`."""
    arguments = parse_arguments(name, argument, scope, 2, 2)
    array = arguments[1]
    if isinstance(array, Constant) and isinstance(array.value, list) and len(array.value) > _MANY_VALUES:
        return InConstantExpression(arguments, array.value, scope.ctx.collation)
    return CollatedExpression(name, in_, arguments, scope.ctx.collation)


class InConstantExpression(CollatedExpression):
    """`$in` with a long array of constants, which is not searched for each document: the KeyStrings of its values are
    kept in a set."""

    def __init__(self, arguments: list[Expression], array: list[Value], collation: Collation | None) -> None:
        super().__init__("$in", in_, arguments, collation)
        self._keys: Final[set[bytes]] = set_for(len(array))
        self._has_missing = False
        for value in array:
            self._keys.add(encode_value(value, False, collation))
            if compare_values(value, MISSING) == 0:
                self._has_missing = True

    def evaluate(self, ev: EvaluationContext) -> Value:
        wanted = self.arguments[0].evaluate(ev)
        if isinstance(wanted, Missing):
            return self._has_missing
        return encode_value(wanted, False, self.collation) in self._keys


def in_(values: list[Value], collation: Collation | None) -> Value:
    """`[value, array]`."""
    return _is_in("$in", values, collation)


def _is_in(name: str, values: list[Value], collation: Collation | None) -> bool:
    array = values[1]
    if not isinstance(array, list):
        raise CommandError(40081, f"{name} requires an array as a second argument, found: {type_of(array)}")
    wanted = values[0]
    for item in array:
        give_way()
        if compare_values(item, wanted, collation) == 0:
            return True
    return False


def _nin(values: list[Value], collation: Collation | None) -> Value:
    return not _is_in("$nin", values, collation)


def parse_nin(name: str, argument: Value, scope: Scope) -> Expression:
    """`$nin`, which MongoDB has among the query operators alone: `[value, array]`, the opposite of `$in`."""
    return CollatedExpression(name, _nin, parse_arguments(name, argument, scope, 2, 2), scope.ctx.collation)


EXPRESSIONS.add_removed("$nin", Operator(parser=parse_nin))


@collated_expression("$indexOfArray", 2, 4, since=OLDEST)
def index_of_array(values: list[Value], collation: Collation | None) -> Value:
    """`[array, value, start, end]`: the first index from `start` to before `end`, or -1."""
    array = values[0]
    if is_nullish(array):
        return None
    if not isinstance(array, list):
        raise CommandError(40090, f"$indexOfArray requires an array as a first argument, found: {type_of(array)}")
    start = _search_position(values[2], "starting") if len(values) > 2 else 0
    end = _search_position(values[3], "ending") if len(values) > 3 else len(array)
    wanted = values[1]
    for i in range(start, min(end, len(array))):
        give_way()
        if compare_values(array[i], wanted, collation) == 0:
            return i
    return -1


def _search_position(value: Value, which: str) -> int:
    position = whole_int32(value)
    if position is None:
        raise CommandError(
            9711600,
            f"$indexOfArray requires an integral {which} index, found a value of type: {type_of(value)}, "
            f"with value: {render_result(value)}",
        )
    if position < 0:
        raise CommandError(9711601, f"$indexOfArray requires a nonnegative {which} index, found: {position}")
    return position


@unary_expression("$isArray", since=OLDEST)
def is_array(value: Value) -> Value:
    return isinstance(value, list)


@expression("$range", 2, 3, since=OLDEST)
def range_(values: list[Value]) -> Value:
    """`[start, end, step]`: int32 numbers from start to before end. Codes 34443 to 34449."""
    start = _range_number(values[0], "starting value", 34443, 34444)
    end = _range_number(values[1], "ending value", 34445, 34446)
    step = _range_number(values[2], "step value", 34447, 34448) if len(values) > 2 else 1
    if step == 0:
        raise CommandError(34449, "$range requires a non-zero step value")
    numbers = range(start, end, step)
    _check_length("$range", len(numbers))
    result: list[Value] = list_for(len(numbers))
    for at in range(0, len(numbers), _RANGE_PART):
        result.extend(numbers[at : at + _RANGE_PART])
        give_way(_RANGE_PART >> COPIED_BITS)
    return result


def _range_number(value: Value, which: str, not_number: int, not_int32: int) -> int:
    if width(value) == 0:
        raise CommandError(not_number, f"$range requires a numeric {which}, found value of type: {type_of(value)}")
    number = whole_int32(value)
    if number is None:
        raise CommandError(
            not_int32,
            f"$range requires a {which} that can be represented as a 32-bit integer, "
            f"found value: {render_result(value)}",
        )
    return number


@unary_expression("$reverseArray", since=OLDEST)
def reverse_array(value: Value) -> Value:
    if is_nullish(value):
        return None
    if not isinstance(value, list):
        raise CommandError(34435, f"The argument to $reverseArray must be an array, but was of type: {type_of(value)}")
    give_way(len(value) >> COPIED_BITS)
    return freed_in_slices(value[::-1])


@unary_expression("$size", since=OLDEST)
def size(value: Value) -> Value:
    if not isinstance(value, list):
        raise CommandError(17124, f"The argument to $size must be an array, but was of type: {type_of(value)}")
    return len(value)


@expression("$slice", 2, 3, since=OLDEST)
def slice_(values: list[Value]) -> Value:
    """`[array, n]`, or `[array, position, n]`. Codes 28724 to 28729."""
    array = values[0]
    second = values[1]
    if is_nullish(array) or is_nullish(second):
        return None
    if not isinstance(array, list):
        raise CommandError(28724, f"First argument to $slice must be an array, but is of type: {type_of(array)}")
    give_way(len(array) >> COPIED_BITS)
    count = _slice_number(second, "Second", 28725, 28726)
    if len(values) == 2:
        return freed_in_slices(array[:count] if count >= 0 else array[count:])
    third = values[2]
    if is_nullish(third):
        return None
    position = count if count >= 0 else max(len(array) + count, 0)
    count = _slice_number(third, "Third", 28727, 28728)
    if count <= 0:
        raise CommandError(28729, f"Third argument to $slice must be positive: {render_result(third)}")
    return freed_in_slices(array[position : position + count])


def _slice_number(value: Value, which: str, not_number: int, not_int32: int) -> int:
    if width(value) == 0:
        raise CommandError(not_number, f"{which} argument to $slice must be numeric, but is of type: {type_of(value)}")
    number = whole_int32(value)
    if number is None:
        raise CommandError(
            not_int32, f"{which} argument to $slice can't be represented as a 32-bit integer: {render_result(value)}"
        )
    return number


_SORT_ARRAY: Final = Syntax(2942500, 2942501, [("input", 2942502), ("sortBy", 2942503)])


@expression_parser("$sortArray", since=(5, 2))
def parse_sort_array(name: str, argument: Value, scope: Scope) -> Expression:
    """`{input, sortBy}`: sortBy is a sort document, or 1 or -1 to sort by the elements themselves. Codes 2942500 to
    2942507."""
    raw = _SORT_ARRAY.read(name, argument)
    return SortArrayExpression(parse_operand(raw["input"], scope), raw["sortBy"], scope.ctx.collation)


class SortArrayExpression(Expression):
    """`$sortArray`.

    paths: empty to compare the elements themselves. Paths do not traverse arrays.
    """

    def __init__(self, input: Expression, sort_by: Value, collation: Collation | None) -> None:
        self.input: Final = input
        self.collation: Final = collation
        self.sort_by: Final = sort_by
        self.paths: list[list[str]] = []
        self.descending: list[bool] = []
        if isinstance(sort_by, bytes):
            if len(sort_by) == 5:
                raise CommandError(2942505, "$sortArray sortBy must not be an empty object")
            pairs = fields(sort_by)
            self.paths = list_for(len(pairs))
            self.descending = list_for(len(pairs))
            for path, direction in pairs:
                give_way()
                order = whole_int32(direction) if width(direction) else None
                if order not in (1, -1):
                    raise CommandError(2942505, f"$sortArray needs 1 or -1 for the field {path}")
                check_path_depth(path)
                self.paths.append(path.split("."))
                self.descending.append(order == -1)
        elif width(sort_by):
            if whole_int32(sort_by) not in (1, -1):
                raise CommandError(
                    2942506, f"The $sort element value must be either 1 or -1, found {render_result(sort_by)}"
                )
            self.descending.append(whole_int32(sort_by) == -1)
        else:
            raise CommandError(2942507, f"The $sortArray sortBy must be an object or a number, not {type_of(sort_by)}")

    def evaluate(self, ev: EvaluationContext) -> Value:
        array = self.input.evaluate(ev)
        if is_nullish(array):
            return None
        if not isinstance(array, list):
            raise CommandError(
                2942504, f"The input argument to $sortArray must be an array, but was of type: {type_of(array)}"
            )
        keys: list[bytes] = [] if len(array) < LONG else LongList()
        for value in array:
            keys.append(self._key(value))
        return sorted_by_keys(array, keys)

    def _key(self, value: Value) -> bytes:
        if not self.paths:
            return encode_value(value, self.descending[0], self.collation)
        keys: list[bytes] = list_for(len(self.paths))
        for i in range(len(self.paths)):
            give_way()
            member = value
            for part in self.paths[i]:
                if not isinstance(member, bytes):
                    member = MISSING
                    break
                give_way(i64(len(member)) >> SEARCHED_BITS)
                member = get_value(member, part)
            key = encode_value(None if isinstance(member, Missing) else member, self.descending[i], self.collation)
            keys.append(key)
        return b"".join(keys)

    def operands(self) -> list[Expression]:
        return [self.input]

    def describe(self) -> Value:
        return encode({"$sortArray": {"input": self.input.describe(), "sortBy": self.sort_by}})


_ZIP: Final = Syntax(34460, 34464, [("inputs", 34465)], ["useLongestLength", "defaults"])


@expression_parser("$zip", since=OLDEST)
def parse_zip(name: str, argument: Value, scope: Scope) -> Expression:
    """`{inputs: [array, …], useLongestLength, defaults: [value, …]}`. Codes 34460 to 34468."""
    raw = _ZIP.read(name, argument)
    inputs = raw["inputs"]
    if not isinstance(inputs, list):
        raise CommandError(34461, f"inputs must be an array of expressions, found {type_of(inputs)}")
    if not inputs:
        raise CommandError(34465, "$zip requires at least one input array")
    longest = raw.get("useLongestLength", False)
    if not isinstance(longest, bool):
        raise CommandError(34463, f"useLongestLength must be a bool, found {type_of(longest)}")
    defaults = raw.get("defaults", ABSENT)
    if is_given(defaults):
        if not isinstance(defaults, list):
            raise CommandError(34462, f"defaults must be an array of expressions, found {type_of(defaults)}")
        if not longest:
            raise CommandError(34466, "cannot specify defaults unless useLongestLength is true")
        if len(defaults) != len(inputs):
            raise CommandError(34467, "defaults and inputs must have the same length")
    return _ZIP.node(name, argument, scope, zip_)


def zip_(values: list[Value]) -> Value:
    arrays: list[list[Value]] = []
    inputs = values[0]
    if not isinstance(inputs, list):
        return None
    for item in inputs:
        if is_nullish(item):
            return None
        if not isinstance(item, list):
            raise CommandError(34468, f"$zip found a non-array expression in input: {render_result(item)}")
        arrays.append(item)
    lengths = [len(array) for array in arrays]
    count = max(lengths) if values[1] is True else min(lengths)
    defaults = values[2] if isinstance(values[2], list) else []
    _check_length("$zip", count * (len(arrays) + 1))
    rows: list[Value] = list_for(count)
    for i in range(count):
        row: list[Value] = [] if len(arrays) < LONG else LongList()
        give_way(1 + (len(arrays) >> COPIED_BITS))
        for j in range(len(arrays)):
            if i < len(arrays[j]):
                row.append(arrays[j][i])
            else:
                row.append(defaults[j] if j < len(defaults) else None)
        rows.append(row)
    return rows
