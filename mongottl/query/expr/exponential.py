"""`$exp $ln $log $log10 $pow $sqrt $sigmoid`.

The result is null if an operand is null, undefined or missing, and a Decimal128 if an operand is one (`decimals`).
Otherwise it is a double; a power of integers is an integer while it fits.
"""

import decimal
import math

from mongottl.document.numbers import clamp_to_long, decimal_of, is_nan, to_double
from mongottl.document.render import render_result
from mongottl.document.types import Decimal128, Int64, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.expr.arithmetic import not_numeric
from mongottl.query.expr.base import (
    Expression,
    Scope,
    UnaryExpression,
    expression,
    expression_parser,
    is_nullish,
    unary_expression,
)
from mongottl.query.expr.decimals import common_logarithm, natural_exponential, natural_logarithm, power
from mongottl.query.expr.numbers import (
    DECIMAL,
    DECIMAL_CONTEXT,
    FLOAT,
    LONG,
    fits_long,
    from_decimal,
    narrow,
    to_decimal,
    width,
)
from mongottl.query.expr.parser import parse_operand, type_of
from mongottl.versions import OLDEST


@unary_expression("$exp", since=OLDEST)
def exp(value: Value) -> Value:
    if is_nullish(value):
        return None
    kind = width(value)
    if kind == 0:
        raise not_numeric("$exp", value)
    if kind == DECIMAL:
        return from_decimal(natural_exponential(to_decimal(value)))
    try:
        return math.exp(to_double(value))
    except OverflowError:
        return math.inf


@unary_expression("$ln", since=OLDEST)
def ln(value: Value) -> Value:
    if is_nullish(value):
        return None
    kind = width(value)
    if kind == 0:
        raise not_numeric("$ln", value)
    if not _positive_or_nan(value):
        raise CommandError(28766, f"$ln's argument must be a positive number, but is {render_result(value)}")
    if kind == DECIMAL and not is_nan(value):  # a NaN becomes a double, as in mongod
        return from_decimal(natural_logarithm(to_decimal(value)))
    return math.log(to_double(value))


def _positive_or_nan(value: Value) -> bool:
    if isinstance(value, Decimal128):
        number = decimal_of(value)
        return number.is_nan() or number > 0
    double = to_double(value)
    return double > 0 or double != double


@unary_expression("$log10", since=OLDEST)
def log10(value: Value) -> Value:
    if is_nullish(value):
        return None
    kind = width(value)
    if kind == 0:
        raise not_numeric("$log10", value)
    if not _positive_or_nan(value):
        raise CommandError(28761, f"$log10's argument must be a positive number, but is {render_result(value)}")
    if kind == DECIMAL and not is_nan(value):
        return from_decimal(common_logarithm(to_decimal(value)))
    return math.log10(to_double(value))


@expression("$log", 2, since=OLDEST)
def log(values: list[Value]) -> Value:
    """`[number, base]`."""
    number = values[0]
    base = values[1]
    if is_nullish(number) or is_nullish(base):
        return None
    if width(number) == 0:
        raise CommandError(28756, f"$log's argument must be numeric, not {type_of(number)}")
    if width(base) == 0:
        raise CommandError(28757, f"$log's base must be numeric, not {type_of(base)}")
    if not _positive_or_nan(number):
        raise CommandError(28758, f"$log's argument must be a positive number, but is {render_result(number)}")
    if not _positive_or_nan(base) or to_double(base) == 1.0:
        raise CommandError(28759, f"$log's base must be a positive number not equal to 1, but is {render_result(base)}")
    if is_nan(number) or is_nan(base):
        return math.nan  # a double also for decimals
    if width(number) == DECIMAL or width(base) == DECIMAL:
        return from_decimal(
            DECIMAL_CONTEXT.divide(natural_logarithm(to_decimal(number)), natural_logarithm(to_decimal(base)))
        )
    return math.log(to_double(number)) / math.log(to_double(base))


@unary_expression("$sqrt", since=OLDEST)
def sqrt(value: Value) -> Value:
    if is_nullish(value):
        return None
    kind = width(value)
    if kind == 0:
        raise not_numeric("$sqrt", value)
    if kind == DECIMAL:
        number = to_decimal(value)
        if not number.is_nan() and number < 0:
            raise CommandError(28714, "$sqrt's argument must be greater than or equal to 0")
        return from_decimal(DECIMAL_CONTEXT.sqrt(number))
    double = to_double(value)
    if double < 0:
        raise CommandError(28714, "$sqrt's argument must be greater than or equal to 0")
    return math.sqrt(double)


@expression("$pow", 2, since=OLDEST)
def pow_(values: list[Value]) -> Value:
    """`[base, exponent]`: integers stay integers while they fit. 28764 for zero to a negative power."""
    base = values[0]
    exponent = values[1]
    if is_nullish(base) or is_nullish(exponent):
        return None
    x = width(base)
    y = width(exponent)
    if x == 0:
        raise CommandError(28762, f"$pow's base must be numeric, not {type_of(base)}")
    if y == 0:
        raise CommandError(28763, f"$pow's exponent must be numeric, not {type_of(exponent)}")
    if not is_nan(base) and not is_nan(exponent) and to_decimal(base) == 0 and to_decimal(exponent) < 0:
        raise CommandError(28764, "$pow cannot take a base of 0 and a negative exponent")
    if x == DECIMAL or y == DECIMAL:
        return from_decimal(power(to_decimal(base), to_decimal(exponent)))
    if x == FLOAT or y == FLOAT:
        return _double_power(to_double(base), to_double(exponent))
    return _integer_power(clamp_to_long(base), clamp_to_long(exponent), x == LONG or y == LONG)


def _integer_power(base: int, exponent: int, long: bool) -> Value:
    if base == 0 or base == 1:
        result = 1 if exponent == 0 else base
    elif base == -1:
        result = 1 if exponent % 2 == 0 else -1
    elif exponent < 0 or exponent > 63:
        return _double_power(float(base), float(exponent))
    else:
        result = int(base**exponent)
        if not fits_long(result):
            return _double_power(float(base), float(exponent))
    return Int64(result) if long else narrow(result)


def _double_power(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and math.fmod(exponent, 2.0) != 0.0 else math.inf
    except ValueError:
        return math.nan


@expression_parser("$sigmoid", since=(8, 1))
def parse_sigmoid(name: str, argument: Value, scope: Scope) -> Expression:
    """One expression; an array is not a list of arguments here, but a value, which is refused."""
    return UnaryExpression(name, sigmoid, parse_operand(argument, scope))


def sigmoid(value: Value) -> Value:
    """1 / (1 + e**-x)."""
    if is_nullish(value):
        return None
    kind = width(value)
    if kind == 0:
        raise CommandError(ErrorCode.TypeMismatch, f"$sigmoid only supports numeric types, not {type_of(value)}")
    if kind == DECIMAL:
        exact = to_decimal(value)
        if exact.is_nan():
            return from_decimal(exact)
        small = natural_exponential(exact.copy_negate())
        return from_decimal(DECIMAL_CONTEXT.divide(decimal.Decimal(1), DECIMAL_CONTEXT.add(decimal.Decimal(1), small)))
    number = to_double(value)
    if number >= 0:
        return 1.0 / (1.0 + math.exp(-number))
    if number < -745.2:
        return 0.0
    tail = math.exp(number)
    return tail / (1.0 + tail)
