"""`$covariancePop` and `$covarianceSamp` of `$setWindowFields`: of the pairs of numbers in a frame; other values are
skipped.

A running co-moment, from which pairs that leave the frame are subtracted. When a frame moves, new pairs are added first
and then old ones removed, which the rounding of MongoDB's results shows (its own tests of a centred frame have
2.5000000000000107 where a frame computed from scratch has 2.5). Infinities and NaN are counted separately, so that they
have no effect after they leave the frame.
"""

import decimal
from typing import Final

from mongottl.document.numbers import decimal_of
from mongottl.document.types import Decimal128, Value
from mongottl.query.expr import EvaluationContext, Expression, parse_expression
from mongottl.query.expr.arithmetic import add_values, divide, multiply, subtract
from mongottl.query.expr.numbers import DECIMAL_CONTEXT, to_decimal, width
from mongottl.query.pipeline.window.frame import Frame, Partition
from mongottl.query.pipeline.window.function import FunctionArguments, WindowFunction, window_function


class _RunningSum:
    """A sum from which terms can be removed."""

    def __init__(self) -> None:
        self.doubles: float = 0.0
        self.decimals: decimal.Decimal = decimal.Decimal(0)
        self.exact: int = 0  # decimals among the terms

    def change(self, value: Value, sign: int) -> None:
        if isinstance(value, Decimal128):
            self.exact += sign
            term = decimal_of(value)
            self.decimals = (
                DECIMAL_CONTEXT.add(self.decimals, term) if sign > 0 else DECIMAL_CONTEXT.subtract(self.decimals, term)
            )
            if self.exact == 0:
                self.decimals = decimal.Decimal(0)
        elif isinstance(value, (int, float)):
            self.doubles += sign * float(value)

    def mean(self, count: int) -> Value:
        if self.exact == 0:
            return self.doubles / count
        total = self.decimals
        if self.doubles != 0.0:
            total = DECIMAL_CONTEXT.add(total, to_decimal(self.doubles))
        return divide([Decimal128(total), float(count)])


class Covariance(WindowFunction):
    """`$covariancePop`, or with `sample` `$covarianceSamp`, of the pairs that `argument` gives.

    A double, or a Decimal128 if a number is one; null without pairs (with fewer than two with `sample`).
    """

    def __init__(self, sample: bool, argument: Expression, frame: Frame) -> None:
        super().__init__()
        self.sample: Final = sample
        self.argument: Final = argument
        self.frame: Final = frame
        self._restart()

    def _restart(self) -> None:
        self._first = 0
        self._end = 0
        self._count = 0
        self._sum_x = _RunningSum()
        self._sum_y = _RunningSum()
        self._moment: Value = 0.0
        self._infinities = 0
        self._minus_infinities = 0
        self._nans = 0

    def begin(self, partition: Partition) -> None:
        self.frame.begin()
        self._restart()

    def value(self, partition: Partition, position: int, ev: EvaluationContext) -> Value:
        first, end = self.frame.bounds(partition, position)
        self.steps = (end - self._end) + (first - self._first) + 1
        while self._end < end:
            self._change(partition, self._end, 1, ev)
            self._end += 1
        while self._first < first:
            self._change(partition, self._first, -1, ev)
            self._first += 1
        return self._result()

    def _change(self, partition: Partition, position: int, sign: int, ev: EvaluationContext) -> None:
        ev.root = partition.document(position)
        pair = self.argument.evaluate(ev)
        if not isinstance(pair, list) or len(pair) != 2 or width(pair[0]) == 0 or width(pair[1]) == 0:
            return
        apart_x = self._set_apart(pair[0], sign)
        apart_y = self._set_apart(pair[1], sign)
        if apart_x or apart_y:
            return
        if sign > 0:
            self._add(pair[0], pair[1])
        else:
            self._remove(pair[0], pair[1])

    def _set_apart(self, value: Value, sign: int) -> bool:
        """Counts a number that is not finite; returns False for others."""
        number = to_decimal(value)
        if number.is_finite():
            return False
        if number.is_nan():
            self._nans += sign
        elif number > 0:
            self._infinities += sign
        else:
            self._minus_infinities += sign
        return True

    def _add(self, x: Value, y: Value) -> None:
        before = self._count
        delta: Value = 0.0 if before == 0 else subtract([x, self._sum_x.mean(before)])
        self._count = before + 1
        self._sum_x.change(x, 1)
        self._sum_y.change(y, 1)
        if before != 0:
            rest = subtract([y, self._sum_y.mean(before + 1)])
            self._moment = add_values([self._moment, multiply([delta, rest])])

    def _remove(self, x: Value, y: Value) -> None:
        rest = subtract([y, self._sum_y.mean(self._count)])
        self._count -= 1
        self._sum_x.change(x, -1)
        self._sum_y.change(y, -1)
        if self._count == 0:
            self._sum_x = _RunningSum()
            self._sum_y = _RunningSum()
            self._moment = 0.0
            return
        delta = subtract([x, self._sum_x.mean(self._count)])
        self._moment = subtract([self._moment, multiply([delta, rest])])

    def _result(self) -> Value:
        divisor = self._count - 1 if self.sample else self._count
        if divisor <= 0:
            return None
        if self._count == 1:
            return 0.0
        if self._nans or (self._infinities and self._minus_infinities):
            return float("nan")
        if self._infinities or self._minus_infinities:
            return float("inf") if self._infinities else float("-inf")
        return divide([self._moment, float(divisor)])


def _parse_covariance(call: FunctionArguments) -> WindowFunction:
    sample = call.name == "$covarianceSamp"
    return Covariance(sample, parse_expression(call.argument, call.ctx), call.frame())


window_function("$covariancePop", since=(5, 0))(_parse_covariance)
window_function("$covarianceSamp", since=(5, 0))(_parse_covariance)
