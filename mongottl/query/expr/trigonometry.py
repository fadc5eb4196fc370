"""`$sin $cos $tan $asin $acos $atan $atan2 $sinh … $degreesToRadians $radiansToDegrees`.

Doubles are computed by the C library, decimals by `decimals`.
"""

import decimal
import math
from collections.abc import Callable
from typing import Final

from mongottl.document.numbers import LARGEST_DOUBLE, decimal_of, to_double
from mongottl.document.render import render_result
from mongottl.document.types import Decimal128, Value
from mongottl.errors import CommandError
from mongottl.query.expr.base import UnaryFunction, expression, is_nullish, unary_expression
from mongottl.query.expr.decimals import DECIMAL_FUNCTIONS, PI, arc_tangent_2
from mongottl.query.expr.numbers import DECIMAL, DECIMAL_CONTEXT, from_decimal, to_decimal, width
from mongottl.query.expr.parser import type_of


class TrigonometricFunction:
    """A trigonometric function on doubles and decimals.

    lowest, highest: the closed interval of valid arguments; 50989 outside of it.
    """

    def __init__(self, name: str, function: Callable[[float], float], lowest: float, highest: float) -> None:
        self.name: Final = name
        self.function: Final = function
        self.lowest: Final = lowest
        self.highest: Final = highest

    def _takes(self, value: Value, number: float) -> bool:
        if not isinstance(value, Decimal128):
            return self.lowest <= number <= self.highest
        exact = decimal_of(value)  # as a double, a decimal just above 1 would be 1, and one above 1.8E+308 infinite
        if self.highest == LARGEST_DOUBLE:
            return exact.is_finite()
        return exact >= self.lowest and exact <= self.highest

    def apply(self, value: Value) -> Value:
        if is_nullish(value):
            return None
        kind = width(value)
        if kind == 0:
            raise CommandError(28765, f"{self.name} only supports numeric types, not {type_of(value)}")
        number = to_double(value)
        if number == number and not self._takes(value, number):
            raise CommandError(
                50989,
                f"cannot apply {self.name} to {render_result(value)}, "
                f"value must be in [{self.lowest:g},{self.highest:g}]",
            )
        if kind == DECIMAL:
            return from_decimal(DECIMAL_FUNCTIONS[self.name](to_decimal(value)))
        try:
            return self.function(number)
        except OverflowError:
            return -math.inf if number < 0 and self.name == "$sinh" else math.inf
        except ValueError:
            return math.nan


def _atanh(number: float) -> float:
    if abs(number) == 1.0:
        return math.copysign(math.inf, number)
    return math.atanh(number)


_FUNCTIONS: Final[list[tuple[str, Callable[[float], float], float, float]]] = [
    ("$sin", math.sin, -LARGEST_DOUBLE, LARGEST_DOUBLE),
    ("$cos", math.cos, -LARGEST_DOUBLE, LARGEST_DOUBLE),
    ("$tan", math.tan, -LARGEST_DOUBLE, LARGEST_DOUBLE),
    ("$asin", math.asin, -1.0, 1.0),
    ("$acos", math.acos, -1.0, 1.0),
    ("$atan", math.atan, -math.inf, math.inf),
    ("$sinh", math.sinh, -math.inf, math.inf),
    ("$cosh", math.cosh, -math.inf, math.inf),
    ("$tanh", math.tanh, -math.inf, math.inf),
    ("$asinh", math.asinh, -math.inf, math.inf),
    ("$acosh", math.acosh, 1.0, math.inf),
    ("$atanh", _atanh, -1.0, 1.0),
]


def _bound(function: TrigonometricFunction) -> UnaryFunction:
    return function.apply


for _name, _function, _lowest, _highest in _FUNCTIONS:
    unary_expression(_name, since=(4, 2))(_bound(TrigonometricFunction(_name, _function, _lowest, _highest)))


@expression("$atan2", 2, since=(4, 2))
def atan2(values: list[Value]) -> Value:
    """`[y, x]`."""
    y = values[0]
    x = values[1]
    if is_nullish(y) or is_nullish(x):
        return None
    if width(y) == 0:
        raise CommandError(51044, f"$atan2 only supports numeric types, not {type_of(y)}")
    if width(x) == 0:
        raise CommandError(51045, f"$atan2 only supports numeric types, not {type_of(x)}")
    if width(y) == DECIMAL or width(x) == DECIMAL:
        return from_decimal(arc_tangent_2(to_decimal(y), to_decimal(x)))
    return math.atan2(to_double(y), to_double(x))


def _scaled(name: str, value: Value, to_radians: bool) -> Value:
    if is_nullish(value):
        return None
    if width(value) == 0:
        raise CommandError(28765, f"{name} only supports numeric types, not {type_of(value)}")
    if width(value) == DECIMAL:
        number = to_decimal(value)
        half_turn = decimal.Decimal(180)
        if to_radians:
            return from_decimal(DECIMAL_CONTEXT.multiply(number, DECIMAL_CONTEXT.divide(PI, half_turn)))
        return from_decimal(DECIMAL_CONTEXT.multiply(number, DECIMAL_CONTEXT.divide(half_turn, PI)))
    double = to_double(value)
    return double * (math.pi / 180.0) if to_radians else double * (180.0 / math.pi)


@unary_expression("$degreesToRadians", since=(4, 2))
def degrees_to_radians(value: Value) -> Value:
    return _scaled("$degreesToRadians", value, True)


@unary_expression("$radiansToDegrees", since=(4, 2))
def radians_to_degrees(value: Value) -> Value:
    return _scaled("$radiansToDegrees", value, False)
