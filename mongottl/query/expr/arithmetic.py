"""`$add $subtract $multiply $divide $mod $abs $ceil $floor $round $trunc`.

The result is null if an operand is null, undefined or missing. Integers stay integers while they fit: int32 becomes
int64, int64 becomes double. Sums of doubles use compensated summation, so they hardly depend on the order. If an
operand is a Decimal128, so is the result.
"""

import decimal
import math
from typing import Final

from mongottl.document.build import encode
from mongottl.document.interrupt import give_way
from mongottl.document.numbers import DECIMAL_DIGITS, TWO_63, clamp_to_long, decimal_of, to_double, whole
from mongottl.document.render import render_result
from mongottl.document.types import INT64_MIN, Date, Decimal128, Int64, Value
from mongottl.errors import CommandError, ErrorCode, is_interruption
from mongottl.query.expr.base import (
    IN_ORDER,
    EvaluationContext,
    Expression,
    Scope,
    evaluate_all,
    expression,
    expression_parser,
    is_nullish,
    unary_expression,
)
from mongottl.query.expr.numbers import (
    DECIMAL,
    DECIMAL_CONTEXT,
    FLOAT,
    INT,
    LONG,
    double_to_decimal_34,
    fits_long,
    from_decimal,
    long_or_double,
    narrow,
    to_decimal,
    width,
)
from mongottl.query.expr.parser import parse_arguments, type_of
from mongottl.versions import OLDEST

_EXACT_IN_DOUBLE: Final = 1 << 53


class Sum:
    """A running sum of numbers: exact for integers and decimals, compensated for doubles.

    widest: INT, LONG, FLOAT or DECIMAL, the widest type added so far.
    """

    def __init__(self) -> None:
        self.widest: int = INT
        self.integers: int = 0
        self.high: float = 0.0
        self.low: float = 0.0
        self.decimals: decimal.Decimal = decimal.Decimal(0)

    def add(self, value: Value) -> bool:
        """Adds a number; returns False for other types."""
        if isinstance(value, float):
            self.add_double(value)
            if self.widest < FLOAT:
                self.widest = FLOAT
            return True
        if isinstance(value, bool):
            return False
        if isinstance(value, int):
            self.integers += value
            if self.widest == INT and isinstance(value, Int64):
                self.widest = LONG
            return True
        if isinstance(value, Decimal128):
            self.decimals = DECIMAL_CONTEXT.add(self.decimals, decimal_of(value))
            self.widest = DECIMAL
            return True
        return False

    def add_double(self, value: float) -> None:
        high = self.high
        total = high + value
        if total - total == 0.0:
            back = total - high
            self.low += (high - (total - back)) + (value - back)
        self.high = total

    def double(self) -> float:
        """The sum of integers and doubles, rounded once."""
        if self.integers == 0:
            return self.high + self.low if self.high - self.high == 0.0 else self.high
        if -_EXACT_IN_DOUBLE <= self.integers <= _EXACT_IN_DOUBLE:
            return _two_sum(self.high, self.low, float(self.integers))
        top = float(self.integers)
        if self.high == 0.0 and self.low == 0.0:
            return top
        return _two_sum(self.high, self.low + float(self.integers - int(top)), top)

    def exact_decimal(self) -> decimal.Decimal:
        """The sum of everything; doubles are converted with all their digits."""
        total = DECIMAL_CONTEXT.add(self.decimals, decimal.Decimal(self.integers))
        if self.high != 0.0 or self.low != 0.0:
            total = DECIMAL_CONTEXT.add(total, double_to_decimal_34(self.high))
            if self.low != 0.0:
                total = DECIMAL_CONTEXT.add(total, double_to_decimal_34(self.low))
        return total

    def short_decimal(self) -> decimal.Decimal:
        """The sum of everything, where doubles are converted with 15 digits, as `$add` does."""
        total = self.decimals
        if self.integers != 0:
            total = DECIMAL_CONTEXT.add(total, decimal.Decimal(self.integers))
        if self.high != 0.0 or self.low != 0.0:
            total = DECIMAL_CONTEXT.add(total, to_decimal(self.high + self.low))
        return total

    def result(self) -> Value:
        """The sum in the narrowest type that can represent it and is not narrower than the widest operand."""
        if self.widest == INT:
            return narrow(self.integers)
        if self.widest == LONG:
            return long_or_double(self.integers)
        if self.widest == FLOAT:
            return self.double()
        return from_decimal(self.exact_decimal())


def _two_sum(high: float, low: float, value: float) -> float:
    total = high + value
    if total - total != 0.0:
        return total
    back = total - high
    return total + (low + ((high - (total - back)) + (value - back)))


class AddExpression(Expression):
    def __init__(self, arguments: list[Expression]) -> None:
        self.arguments: Final = arguments

    def evaluate(self, ev: EvaluationContext) -> Value:
        arguments = self.arguments
        if len(arguments) == 2:
            a = arguments[0].evaluate(ev)
            if not isinstance(a, (int, float)) and add_values([a]) is None:
                return None
            b = arguments[1].evaluate(ev)
            if isinstance(a, float) and isinstance(b, float):
                return a + b
            if type(a) is int and type(b) is int:
                return narrow(a + b)
            return add_values([a, b])
        held = ev.held
        values: list[Value] = []
        try:
            evaluate_all(arguments, ev, values)
        except CommandError as error:
            ev.held = held
            if values and not is_interruption(error) and add_values(values) is None:
                return None
            raise
        ev.held = held
        return add_values(values)

    def operands(self) -> list[Expression]:
        return self.arguments

    def describe(self) -> Value:
        return encode({"$add": [argument.describe() for argument in self.arguments]})


def add_values(values: list[Value]) -> Value:
    """The sum of numbers, or a date plus numbers. Stops at the first null; later operands are not checked."""
    total = Sum()
    has_date = False
    for value in values:
        give_way()
        if total.add(value):
            continue
        if isinstance(value, Date):
            if has_date:
                raise CommandError(16612, "only one date allowed in an $add expression")
            has_date = True
            total.integers += value.ms
            continue
        if is_nullish(value):
            return None
        raise CommandError(ErrorCode.TypeMismatch, f"$add only supports numeric or date types, not {type_of(value)}")
    if not has_date:
        return from_decimal(total.short_decimal()) if total.widest == DECIMAL else total.result()
    return _moved_date(total)


def _moved_date(total: Sum) -> Value:
    if total.widest == DECIMAL:
        exact = total.short_decimal()
        if not exact.is_finite():
            raise CommandError(ErrorCode.Overflow, "date overflow in $add")
        moved = int(exact.to_integral_value(decimal.ROUND_HALF_EVEN))
    elif total.widest == FLOAT:
        offset = total.high + total.low
        if not math.isfinite(offset):
            raise CommandError(ErrorCode.Overflow, "date overflow in $add")
        moved = total.integers + round_half_away(offset)
    else:
        moved = total.integers
    if not fits_long(moved):
        raise CommandError(ErrorCode.Overflow, "date overflow in $add")
    return Date(moved)


def round_half_away(number: float) -> int:
    """The nearest integer; halves are rounded away from zero."""
    base = math.trunc(number)
    if abs(number - base) >= 0.5:
        return base + (1 if number > 0 else -1)
    return base


@expression_parser("$add", since=OLDEST)
def parse_add(name: str, argument: Value, scope: Scope) -> Expression:
    """`[a, b, …]`: numbers, and at most one date, to which the numbers are added as milliseconds."""
    return AddExpression(parse_arguments(name, argument, scope, 0, -1))


@expression("$subtract", 2, since=OLDEST)
def subtract(values: list[Value]) -> Value:
    """`[a, b]`: numbers; date - date in milliseconds (int64); date - number in milliseconds is a date."""
    a = values[0]
    b = values[1]
    x = width(a)
    y = width(b)
    if x and y:
        widest = max(x, y)
        if widest == DECIMAL:
            return from_decimal(DECIMAL_CONTEXT.subtract(to_decimal(a), to_decimal(b)))
        if widest == FLOAT:
            return to_double(a) - to_double(b)
        difference = clamp_to_long(a) - clamp_to_long(b)
        return narrow(difference) if widest == INT else long_or_double(difference)
    if is_nullish(a) or is_nullish(b):
        return None
    if isinstance(a, Date):
        if isinstance(b, Date):
            milliseconds = a.ms - b.ms
            if not fits_long(milliseconds):
                raise CommandError(ErrorCode.Overflow, "date overflow in $subtract")
            return Int64(milliseconds)
        if y:
            return _date_minus(a, b)
    raise CommandError(ErrorCode.TypeMismatch, f"can't $subtract {type_of(b)} from {type_of(a)}")


def _date_minus(date: Date, number: Value) -> Value:
    if isinstance(number, float):
        if not math.isfinite(number):
            raise CommandError(ErrorCode.Overflow, "date overflow in $subtract")
        moved = date.ms - round_half_away(number)
    elif isinstance(number, Decimal128):
        exact = decimal_of(number)
        if not exact.is_finite():
            raise CommandError(ErrorCode.Overflow, "date overflow in $subtract")
        moved = date.ms - int(exact.to_integral_value(decimal.ROUND_HALF_EVEN))
    else:
        moved = date.ms - clamp_to_long(number)
    if not fits_long(moved):
        raise CommandError(ErrorCode.Overflow, "date overflow in $subtract")
    return Date(moved)


@expression("$multiply", 0, -1, grouping=IN_ORDER, since=OLDEST)
def multiply(values: list[Value]) -> Value:
    """`[a, b, …]`: the product; 1 without operands."""
    product = 1
    double = 1.0
    exact = decimal.Decimal(1)
    widest = INT
    for value in values:
        give_way()
        kind = width(value)
        if kind == 0:
            if is_nullish(value):
                return None
            raise CommandError(ErrorCode.TypeMismatch, f"$multiply only supports numeric types, not {type_of(value)}")
        if kind == DECIMAL and widest < DECIMAL:
            exact = to_decimal(double) if widest == FLOAT else decimal.Decimal(product)
        if kind > widest:
            widest = kind
        if widest == DECIMAL:
            exact = DECIMAL_CONTEXT.multiply(exact, to_decimal(value))
            continue
        double *= to_double(value)
        if kind == FLOAT:
            continue
        product *= clamp_to_long(value)
        if not fits_long(product):
            widest = FLOAT
    if widest == INT:
        return narrow(product)
    if widest == LONG:
        return Int64(product)
    return double if widest == FLOAT else from_decimal(exact)


@expression("$divide", 2, since=OLDEST)
def divide(values: list[Value]) -> Value:
    """`[a, b]`: the quotient as a double, or a decimal. BadValue for a divisor of zero."""
    a = values[0]
    b = values[1]
    x = width(a)
    y = width(b)
    if x and y:
        if x == DECIMAL or y == DECIMAL:
            divisor = to_decimal(b)
            if divisor == 0:
                raise CommandError(ErrorCode.BadValue, "can't $divide by zero")
            return from_decimal(DECIMAL_CONTEXT.divide(to_decimal(a), divisor))
        quotient_of = to_double(b)
        if quotient_of == 0.0:
            raise CommandError(ErrorCode.BadValue, "can't $divide by zero")
        return to_double(a) / quotient_of
    if is_nullish(a) or is_nullish(b):
        return None
    raise CommandError(
        ErrorCode.TypeMismatch, f"$divide only supports numeric types, not {type_of(a)} and {type_of(b)}"
    )


@expression("$mod", 2, since=OLDEST)
def mod(values: list[Value]) -> Value:
    """`[a, b]`: the remainder with the sign of a. 16610 (decimals: 5733415) for a divisor of zero."""
    a = values[0]
    b = values[1]
    x = width(a)
    y = width(b)
    if not x or not y:
        if is_nullish(a) or is_nullish(b):
            return None
        raise CommandError(16611, f"$mod only supports numeric types, not {type_of(a)} and {type_of(b)}")
    if x == DECIMAL or y == DECIMAL:
        divisor = to_decimal(b)
        if divisor == 0:
            raise CommandError(5733415, "can't $mod by zero")
        return from_decimal(decimal_remainder(to_decimal(a), divisor))
    if to_double(b) == 0.0:
        raise CommandError(16610, "can't $mod by zero")
    if x == FLOAT or y == FLOAT:
        return _double_remainder(to_double(a), to_double(b))
    left = clamp_to_long(a)
    right = clamp_to_long(b)
    remainder = abs(left) % abs(right)
    if left < 0:
        remainder = -remainder
    if x == LONG or y == LONG:
        return Int64(remainder)  # not in one expression with the int: mypyc would make it a plain int
    return remainder


def _double_remainder(a: float, b: float) -> float:
    if math.isinf(a) or a != a or b != b:
        return math.nan
    return math.fmod(a, b)


def decimal_remainder(a: decimal.Decimal, b: decimal.Decimal) -> decimal.Decimal:
    """a - b * trunc(a / b), exactly, also where the quotient has more than 34 digits."""
    if not a.is_finite() or not b.is_finite():
        return DECIMAL_CONTEXT.remainder(a, b)
    exponent = min(int(a.as_tuple().exponent), int(b.as_tuple().exponent))
    left = int(a.copy_abs().scaleb(-exponent, _WIDE)) if a else 0
    right = int(b.copy_abs().scaleb(-exponent, _WIDE))
    remainder = decimal.Decimal(left % right).scaleb(exponent, _WIDE)
    return remainder.copy_sign(a)


_WIDE: Final = decimal.Context(prec=13000, Emin=-20000, Emax=20000, traps=[])


def not_numeric(name: str, value: Value) -> CommandError:
    """28765: the error of an operator that takes numbers alone."""
    return CommandError(28765, f"{name} only supports numeric types, not {type_of(value)}")


@unary_expression("$abs", since=OLDEST)
def absolute(value: Value) -> Value:
    """28680 for the smallest int64, which has no positive counterpart."""
    if is_nullish(value):
        return None
    kind = width(value)
    if kind == FLOAT:
        return abs(to_double(value))
    if kind == INT:
        return narrow(abs(clamp_to_long(value)))
    if kind == LONG:
        if value == INT64_MIN:
            raise CommandError(28680, "can't take $abs of long long min")
        return Int64(abs(clamp_to_long(value)))
    if kind == DECIMAL:
        return from_decimal(to_decimal(value).copy_abs())
    raise not_numeric("$abs", value)


def _round_toward(name: str, value: Value, rounding: str) -> Value:
    if is_nullish(value):
        return None
    kind = width(value)
    if kind == INT or kind == LONG:
        return value
    if kind == FLOAT:
        number = to_double(value)
        if not math.isfinite(number):
            return number
        whole_part = math.ceil(number) if rounding == decimal.ROUND_CEILING else math.floor(number)
        return math.copysign(float(whole_part), number) if whole_part == 0 else float(whole_part)
    if kind == DECIMAL:
        exact = to_decimal(value)
        # As MongoDB's quantize to 1: NaN for infinities and for numbers whose integer part exceeds 34 digits.
        if not exact.is_finite() or (exact and exact.adjusted() >= DECIMAL_DIGITS):
            return from_decimal(decimal.Decimal("NaN"))
        return from_decimal(exact.quantize(decimal.Decimal(1), rounding, DECIMAL_CONTEXT))
    raise not_numeric(name, value)


@unary_expression("$ceil", since=OLDEST)
def ceil(value: Value) -> Value:
    return _round_toward("$ceil", value, decimal.ROUND_CEILING)


@unary_expression("$floor", since=OLDEST)
def floor(value: Value) -> Value:
    return _round_toward("$floor", value, decimal.ROUND_FLOOR)


def _round_to(name: str, values: list[Value], rounding: str) -> Value:
    """A number rounded to a decimal place from -20 to 100, of the same type, except that an int32 may become an
    int64."""
    number = values[0]
    decimal_place: Value = 0 if len(values) < 2 else values[1]
    if is_nullish(number) or is_nullish(decimal_place):
        return None
    kind = width(number)
    if kind == 0:
        raise CommandError(51081, f"{name} only supports numeric types, not {type_of(number)}")
    if width(decimal_place) == 0:
        raise CommandError(16004, f"can't convert from BSON type {type_of(decimal_place)} to long")
    if isinstance(decimal_place, float) and not -TWO_63 <= decimal_place < TWO_63:
        raise CommandError(31109, f"Can't coerce out of range value {render_result(decimal_place)} to long")
    digits = whole(decimal_place)
    if digits is None:
        raise CommandError(51082, f"precision argument to  {name} must be a integral value")
    if digits < -20 or digits > 100:
        raise CommandError(51083, f"cannot apply {name} with precision value {digits} value must be in [-20, 100]")
    if kind == DECIMAL:
        return from_decimal(_quantize(to_decimal(number), digits, rounding))
    if kind == FLOAT:
        double = to_double(number)
        if not math.isfinite(double) or (digits > 0 and double == math.floor(double)):
            return double
        return float(_quantize(double_to_decimal_34(double), digits, rounding))
    if digits >= 0:
        return number
    rounded = int(_quantize(decimal.Decimal(clamp_to_long(number)), digits, rounding))
    if not fits_long(rounded):
        raise CommandError(
            51080,
            f"invalid conversion from Decimal128 result in {name} resulting from arguments: "
            f"[{render_result(number)}, {digits}]",
        )
    return Int64(rounded) if kind == LONG else narrow(rounded)


def _quantize(number: decimal.Decimal, digits: int, rounding: str) -> decimal.Decimal:
    """The number rounded to a multiple of 10**-digits, with at most 34 digits."""
    if not number.is_finite():
        return number
    exponent = max(-digits, -6176)
    if number:
        exponent = max(exponent, number.adjusted() - 33)
    return number.quantize(decimal.Decimal((0, (1,), exponent)), rounding, DECIMAL_CONTEXT)


@expression("$round", 1, 2, since=(4, 2))
def round_(values: list[Value]) -> Value:
    """`[number, place]`: halves are rounded to even."""
    return _round_to("$round", values, decimal.ROUND_HALF_EVEN)


@expression("$trunc", 1, 2, since=OLDEST)
def trunc(values: list[Value]) -> Value:
    return _round_to("$trunc", values, decimal.ROUND_DOWN)
