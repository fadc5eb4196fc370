"""Accumulators as operators on their arguments: `$sum $avg $min $max $stdDevPop $stdDevSamp $firstN $lastN …`.

With one argument that is an array they apply to its elements; with several arguments to their values.
"""

from typing import Final

from mongottl.document.collation import Collation
from mongottl.document.freeing import LONG, LongList, freed_in_slices
from mongottl.document.interrupt import give_way
from mongottl.document.numbers import whole
from mongottl.document.render import render_result
from mongottl.document.types import Missing, Value
from mongottl.errors import CommandError
from mongottl.query.expr.accumulators import AccumulatorState, AvgState, ExtremeState, StdDevState, SumState
from mongottl.query.expr.base import (
    Expression,
    Scope,
    ValueFunction,
    collated_expression,
    expression,
    expression_parser,
    is_nullish,
)
from mongottl.query.expr.named import Syntax
from mongottl.query.expr.numbers import width
from mongottl.query.expr.parser import type_of
from mongottl.query.expr.ranking import smallest
from mongottl.versions import OLDEST


def _accumulate(state: AccumulatorState, values: list[Value]) -> Value:
    only = values[0] if len(values) == 1 else None
    for value in only if isinstance(only, list) else values:
        give_way()
        state.add(value)
    return state.result()


@expression("$sum", 0, -1, since=OLDEST)
def sum_(values: list[Value]) -> Value:
    return _accumulate(SumState(), values)


@expression("$avg", 0, -1, since=OLDEST)
def avg(values: list[Value]) -> Value:
    return _accumulate(AvgState(), values)


@collated_expression("$min", 0, -1, since=OLDEST)
def min_(values: list[Value], collation: Collation | None) -> Value:
    return _accumulate(ExtremeState(-1, collation), values)


@collated_expression("$max", 0, -1, since=OLDEST)
def max_(values: list[Value], collation: Collation | None) -> Value:
    return _accumulate(ExtremeState(1, collation), values)


@expression("$stdDevPop", 0, -1, since=OLDEST)
def std_dev_pop(values: list[Value]) -> Value:
    return _accumulate(StdDevState(False), values)


@expression("$stdDevSamp", 0, -1, since=OLDEST)
def std_dev_samp(values: list[Value]) -> Value:
    return _accumulate(StdDevState(True), values)


_N_OF: Final = Syntax(5787801, 5787901, [("n", 5787906), ("input", 5787907)])


def check_count(name: str, n: Value) -> int:
    """The `n` of `$firstN`, `$minN` and others: a positive integer. 5787902 to 5787908 otherwise."""
    if width(n) == 0:
        raise CommandError(5787902, f"Value for 'n' must be of integral type, but found {render_result(n)}")
    number = whole(n)
    if number is None:
        raise CommandError(5787903, f"Value for 'n' must be of integral type, but found {render_result(n)}")
    if number <= 0:
        raise CommandError(5787908, f"'n' must be greater than 0, found {number} for {name}")
    return number


class ArrayOfN:
    """`$firstN`, `$lastN`, `$minN`, `$maxN` of an array, as a function of (n, array)."""

    def __init__(self, name: str, collation: Collation | None) -> None:
        self.name: Final = name
        self.collation: Final = collation

    def apply(self, values: list[Value]) -> Value:
        array = values[1]
        count = check_count(self.name, values[0])
        if is_nullish(array):
            return None
        if not isinstance(array, list):
            raise CommandError(5788200, f"Input must be an array, found {type_of(array)}")
        if self.name == "$firstN":
            return freed_in_slices(array[:count])
        if self.name == "$lastN":
            return freed_in_slices(array[-count:])
        known: list[Value] = [] if len(array) < LONG else LongList()
        for value in array:
            if not is_nullish(value) and not isinstance(value, Missing):
                known.append(value)
        return smallest(known, count, self.name == "$maxN", self.collation)


def _function(name: str, collation: Collation | None) -> ValueFunction:
    return ArrayOfN(name, collation).apply


def _parse_n(name: str, argument: Value, scope: Scope) -> Expression:
    return _N_OF.node(name, argument, scope, _function(name, scope.ctx.collation))


for _name in ("$firstN", "$lastN", "$minN", "$maxN"):
    expression_parser(_name, since=(5, 2))(_parse_n)
