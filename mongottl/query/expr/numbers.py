"""Numbers of the four BSON types: result types and conversions.

Types widen in the order int32, int64, double, Decimal128. With a decimal as another operand, a double is converted to a
decimal of 15 significant digits, as MongoDB documents it for `$toDecimal`.
"""

import decimal
from typing import Final

from bson.decimal128 import create_decimal128_context

from mongottl.document.numbers import decimal_of
from mongottl.document.types import (
    INT64_MAX,
    INT64_MIN,
    INT_MAX,
    INT_MIN,
    Decimal128,
    Int64,
    Value,
)

DECIMAL_CONTEXT: Final[decimal.Context] = create_decimal128_context()
_CONTEXT_15: Final[decimal.Context] = decimal.Context(
    prec=15, rounding=decimal.ROUND_HALF_EVEN, Emin=-6143, Emax=6144, capitals=1, clamp=0, flags=[], traps=[]
)

INT: Final = 1
LONG: Final = 2
FLOAT: Final = 3
DECIMAL: Final = 4


def width(value: Value) -> int:
    """INT, LONG, FLOAT or DECIMAL; 0 for other types."""
    if isinstance(value, bool):
        return 0
    if isinstance(value, Int64):
        return LONG
    if isinstance(value, int):
        return INT
    if isinstance(value, float):
        return FLOAT
    if isinstance(value, Decimal128):
        return DECIMAL
    return 0


def narrow(number: int) -> Value:
    """An int32 if it fits, else an int64, else a double."""
    if INT_MIN <= number <= INT_MAX:
        return int(number)
    return long_or_double(number)


def long_or_double(number: int) -> Value:
    if INT64_MIN <= number <= INT64_MAX:
        return Int64(number)
    return float(number)


def fits_long(number: int) -> bool:
    return INT64_MIN <= number <= INT64_MAX


def to_decimal(value: Value) -> decimal.Decimal:
    """Any number as a decimal; a double with 15 significant digits."""
    if isinstance(value, Decimal128):
        return decimal_of(value)
    if isinstance(value, float):
        return double_to_decimal_15(value)
    if isinstance(value, int):
        return decimal.Decimal(int(value))
    raise TypeError("not a number")


def double_to_decimal_15(number: float) -> decimal.Decimal:
    """A double as a decimal of 15 significant digits, trailing zeros included."""
    exact = decimal.Decimal(number)
    if not exact.is_finite() or not exact:
        return exact
    rounded = _CONTEXT_15.create_decimal(exact)
    return DECIMAL_CONTEXT.quantize(rounded, decimal.Decimal((0, (1,), rounded.adjusted() - 14)))


def double_to_decimal_34(number: float) -> decimal.Decimal:
    """A double as a decimal with 34 significant digits."""
    return DECIMAL_CONTEXT.create_decimal(decimal.Decimal(number))


def from_decimal(number: decimal.Decimal) -> Value:
    """A Decimal128, rounded to 34 digits if necessary."""
    return Decimal128(DECIMAL_CONTEXT.create_decimal(number))
