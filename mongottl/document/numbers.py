"""Conversions from BSON values to Python numbers and booleans, by MongoDB's rules.

Every argument of a command, a stage or an operator that must be a number or a boolean is read through here, so that
NaN, infinities, negative zero and Decimal128 values of any exponent are handled once:

    is_true         any type      mongod's "safe bool": the value as a condition
    truncated       any type      int64 with the fraction cut off; None for NaN, infinities, other types and overflow
    whole           any type      int64 if that is the exact value, else None; `whole_int32` within 32 bits
    clamp_to_long   numbers       mongod's "safe long": saturates at the limits of int64, NaN is 0
    clamp_to_int    numbers       mongod's "safe int": saturates at the limits of int32, NaN is 0
    to_double       numbers       infinity where a decimal is beyond the range of doubles
    decimal_of      Decimal128    exact; never a signalling NaN, which Python refuses to compare

Source: MongoDB's documentation of `$convert` and of the limits of its types; the conversions of numeric arguments as
mongod 8.2 answers them.
"""

import decimal
import math
from decimal import Decimal
from typing import Final

from mongottl.document.interrupt import give_way
from mongottl.document.types import (
    INT64_MAX,
    INT64_MIN,
    INT_MAX,
    INT_MIN,
    Decimal128,
    Missing,
    Undefined,
    Value,
)

TWO_63: Final = 9223372036854775808.0
LARGEST_DOUBLE: Final = 1.7976931348623157e308
DECIMAL_DIGITS: Final = 34  # significant digits of a Decimal128
_NAN: Final = Decimal("NaN")
# Decimals with more digits before the point exceed int64. Checked first, since 1E+6144 as an int has 6,145 digits.
_MAX_INT64_DIGITS: Final = 19


def decimal_of(value: Decimal128) -> Decimal:
    """A Decimal128 as a Decimal. Signalling NaNs become quiet ones: Python refuses to compare the former."""
    number = value.to_decimal()
    return _NAN if number.is_snan() else number


def is_true(value: Value) -> bool:
    """Whether a value counts as true: all but false, zeros of all types, null, undefined, MISSING. NaN is true."""
    if isinstance(value, bool):
        return value
    if value is None or isinstance(value, (Missing, Undefined)):
        return False
    if isinstance(value, (int, float)):
        return value != 0
    if isinstance(value, Decimal128):
        return decimal_of(value) != 0
    return True


def compares_as_python(value: Value) -> bool:
    """Whether a value is one of the numbers of which Python's equality and order are MongoDB's: all but decimals and
    NaN."""
    if isinstance(value, float):
        return value == value
    return isinstance(value, int) and not isinstance(value, bool)


def all_compare_as_python(values: list[Value]) -> bool:
    for value in values:
        give_way()
        if not compares_as_python(value):
            return False
    return True


def is_nan(value: Value) -> bool:
    """Whether a value is the double or the decimal NaN."""
    if isinstance(value, float):
        return value != value
    return isinstance(value, Decimal128) and value.to_decimal().is_nan()


def _exceeds_long(number: Decimal) -> bool:
    """Whether a decimal certainly exceeds int64: NaN, infinite or too many digits. A zero of any exponent does not."""
    return not number.is_finite() or (number != 0 and number.adjusted() > _MAX_INT64_DIGITS)


def truncated(value: Value) -> int | None:
    """A number of any type truncated to an int64; None for NaN, infinities, numbers out of range and other types."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if value != value or value >= TWO_63 or value < -TWO_63:
            return None
        return int(value)
    if isinstance(value, Decimal128):
        number = value.to_decimal()
        if _exceeds_long(number):
            return None
        cut = int(number)
        return cut if INT64_MIN <= cut <= INT64_MAX else None
    return None


def whole(value: Value) -> int | None:
    """A number of any type that has an int64 value exactly, as that integer; None for every other value."""
    number = truncated(value)
    if number is None:
        return None
    if isinstance(value, float):
        return number if float(number) == value else None
    if isinstance(value, Decimal128):
        return number if Decimal(number) == value.to_decimal() else None
    return number


def whole_int32(value: Value) -> int | None:
    """A number of any type that has an int32 value exactly, as that integer; None for every other value."""
    number = whole(value)
    if number is None or number < INT_MIN or number > INT_MAX:
        return None
    return number


def saturated_sum(a: int, b: int) -> int:
    """The sum of two int64 that are not negative, as an int64: saturates at the limit."""
    return min(a + b, INT64_MAX)


def clamp_to_long(value: Value) -> int:
    """A number as an int64: doubles are truncated, decimals rounded half to even, NaN is 0; saturates at the limits.

    TypeError for other types (a bool counts as 0 or 1).
    """
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if value != value:
            return 0
        if value >= TWO_63:
            return INT64_MAX
        if value <= -TWO_63:
            return INT64_MIN
        return int(value)
    if not isinstance(value, Decimal128):
        raise TypeError("not a number")
    number = value.to_decimal()
    if number.is_nan():
        return 0
    if _exceeds_long(number):
        return INT64_MIN if number.is_signed() else INT64_MAX
    return max(INT64_MIN, min(INT64_MAX, int(number.to_integral_value(decimal.ROUND_HALF_EVEN))))


def clamp_to_int(value: Value) -> int:
    """A number as an int32, by the rules of `clamp_to_long`."""
    return max(INT_MIN, min(INT_MAX, clamp_to_long(value)))


def to_double(value: Value) -> float:
    """Any number as a double. TypeError for other types (a bool counts as 0 or 1)."""
    if isinstance(value, float):
        return value
    if isinstance(value, int):
        return float(value)
    if isinstance(value, Decimal128):
        return decimal_to_double(decimal_of(value))
    raise TypeError("not a number")


def decimal_to_double(number: Decimal) -> float:
    """The double nearest to a decimal; an infinity beyond the range of doubles, NaN for NaN."""
    if number.is_nan():
        return math.nan
    try:
        return float(number)
    except OverflowError:
        return -math.inf if number.is_signed() else math.inf
