"""Operators on arrays taken as sets: equal values count once, and order does not matter."""

from mongottl.document.collation import Collation
from mongottl.document.freeing import list_for
from mongottl.document.interrupt import give_way
from mongottl.document.numbers import all_compare_as_python, is_true
from mongottl.document.sorting import sorted_distinct
from mongottl.document.types import Value
from mongottl.document.value_set import ValueSet
from mongottl.errors import CommandError
from mongottl.query.expr.array import MAX_ARRAY_BYTES
from mongottl.query.expr.base import (
    COMMUTATIVE,
    CollatedExpression,
    Constant,
    Expression,
    Scope,
    collated_expression,
    expression,
    expression_parser,
    is_nullish,
)
from mongottl.query.expr.parser import parse_arguments, type_of
from mongottl.versions import OLDEST


def _distinct(array: list[Value], collation: Collation | None) -> ValueSet:
    found = ValueSet(collation)
    found.add_all(array)
    return found


@collated_expression("$setUnion", 0, -1, grouping=COMMUTATIVE, since=OLDEST)
def set_union(values: list[Value], collation: Collation | None) -> Value:
    arrays: list[list[Value]] = []
    for array in values:
        if is_nullish(array):
            return None
        if not isinstance(array, list):
            raise CommandError(
                17043, f"All operands of $setUnion must be arrays. One argument is of type: {type_of(array)}"
            )
        arrays.append(array)
    total = sum([len(array) for array in arrays])
    # Sorting a million takes half as long as hashing; but one array may be named often.
    if total * 8 <= MAX_ARRAY_BYTES and all(all_compare_as_python(array) for array in arrays):
        numbers = list_for(total)
        for array in arrays:
            numbers.extend(array)
        return sorted_distinct(numbers)
    found = ValueSet(collation)
    for array in arrays:
        found.add_all(array)
    return found.in_order()


@collated_expression("$setIntersection", 0, -1, grouping=COMMUTATIVE, since=OLDEST)
def set_intersection(values: list[Value], collation: Collation | None) -> Value:
    common: ValueSet | None = None
    for array in values:
        if is_nullish(array):
            return None
        if not isinstance(array, list):
            raise CommandError(
                17047, f"All operands of $setIntersection must be arrays. One argument is of type: {type_of(array)}"
            )
        these = _distinct(array, collation)
        if common is None:
            common = these
        else:
            # Equal values of different types are taken from the shorter one, as by mongod.
            if len(common) > len(these):
                common, these = these, common
            common = common.shared_with(these)
        if len(common) == 0:
            break  # what follows is not evaluated
    return [] if common is None else common.in_order()


@collated_expression("$setDifference", 2, since=OLDEST)
def set_difference(values: list[Value], collation: Collation | None) -> Value:
    """`[a, b]`: the elements of a that are not in b, in the order of a."""
    if is_nullish(values[0]) or is_nullish(values[1]):
        return None
    left = _operand(values[0], "$setDifference", "First", 17048)
    right = _operand(values[1], "$setDifference", "Second", 17049)
    without = _distinct(right, collation)
    seen = ValueSet(collation)
    found = list_for(len(left))
    for value in left:
        if not without.has(value) and seen.add(value):
            found.append(value)
    return found


@collated_expression("$setIsSubset", 2, since=OLDEST)
def set_is_subset(values: list[Value], collation: Collation | None) -> Value:
    left = _operand(values[0], "$setIsSubset", "First", 17046)
    right = _operand(values[1], "$setIsSubset", "Second", 17042)
    return _distinct(right, collation).has_all(_distinct(left, collation))


def _operand(value: Value, name: str, which: str, code: int) -> list[Value]:
    """One of the two arrays of an operator; the error `code` for a value that is no array."""
    if not isinstance(value, list):
        raise CommandError(
            code, f"both operands of {name} must be arrays. {which} argument is of type: {type_of(value)}"
        )
    return value


@expression_parser("$setEquals", since=OLDEST)
def parse_set_equals(name: str, argument: Value, scope: Scope) -> Expression:
    """`[a, b, …]`. 17045 for fewer than two, 5887502 for a constant that is not an array."""
    arguments = parse_arguments(name, argument, scope, 0, -1)
    if len(arguments) < 2:
        raise CommandError(17045, f"$setEquals needs at least two arguments had: {len(arguments)}")
    for node in arguments:
        if isinstance(node, Constant) and not isinstance(node.value, list):
            raise CommandError(
                5887502, f"All operands of $setEquals must be arrays. One argument is of type: {type_of(node.value)}"
            )
    return CollatedExpression(name, set_equals, arguments, scope.ctx.collation)


def set_equals(values: list[Value], collation: Collation | None) -> Value:
    arrays: list[list[Value]] = []
    for array in values:
        if not isinstance(array, list):
            raise CommandError(
                17044, f"All operands of $setEquals must be arrays. One argument is of type: {type_of(array)}"
            )
        arrays.append(array)
    if all(all_compare_as_python(array) for array in arrays):
        numbers = sorted_distinct(arrays[0])
        return all(_have_same(numbers, sorted_distinct(array)) for array in arrays[1:])
    first = _distinct(arrays[0], collation)
    for array in arrays[1:]:
        other = _distinct(array, collation)
        if len(other) != len(first) or not first.has_all(other):
            return False
    return True


def _have_same(first: list[Value], second: list[Value]) -> bool:
    """Whether two lists of numbers have equal ones at each place."""
    if len(first) != len(second):
        return False
    for i in range(len(first)):
        give_way()
        if first[i] != second[i]:
            return False
    return True


def _elements(name: str, code: int, values: list[Value]) -> list[Value]:
    array = values[0]
    if not isinstance(array, list):
        raise CommandError(code, f"{name}'s argument must be an array, but is {type_of(array)}")
    return array


@expression("$allElementsTrue", 1, since=OLDEST)
def all_elements_true(values: list[Value]) -> Value:
    for value in _elements("$allElementsTrue", 17040, values):
        give_way()
        if not is_true(value):
            return False
    return True


@expression("$anyElementTrue", 1, since=OLDEST)
def any_element_true(values: list[Value]) -> Value:
    for value in _elements("$anyElementTrue", 17041, values):
        give_way()
        if is_true(value):
            return True
    return False
