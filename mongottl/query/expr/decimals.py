"""Trigonometry, powers and logarithms of decimals, to the 34 digits of Decimal128.

MongoDB computes powers and logarithms in binary floating point of 128 bits, so arguments and results are rounded to 113
binary digits (`_to_binary`) here too: the last decimal digit, and trailing zeros of an exact result, depend on it.

The argument is reduced, then power series are computed with 80 digits (more than twice 34, because of cancellation near
zeros of the function); the caller rounds the result. `-x` and `abs(x)` must not be used here, since they round to the
28 digits of the thread's decimal context.
"""

import decimal
from collections.abc import Callable
from decimal import Decimal
from typing import Final

_CONTEXT: Final = decimal.Context(prec=80, rounding=decimal.ROUND_HALF_EVEN, Emin=-99999, Emax=99999, traps=[])
PI: Final = Decimal("3.1415926535897932384626433832795028841971693993751058209749445923078164062862089986280348253421")
_NAN: Final = Decimal("NaN")
_ONE: Final = Decimal(1)
_TWO: Final = Decimal(2)
_EPSILON: Final = Decimal("1E-80")
_TINY: Final = -18  # exponent below which x³ is beyond the 34 digits of x


def _series(first: Decimal, factor: Decimal, start: int) -> Decimal:
    """first * (1 + f/((s)(s+1)) + f²/((s)…(s+3)) + …), the common series of sine and cosine."""
    total = first
    term = first
    n = start
    while term and term.copy_abs() > _CONTEXT.multiply(_EPSILON, total.copy_abs()):
        term = _CONTEXT.divide(_CONTEXT.multiply(term, factor), Decimal(n * (n + 1)))
        total = _CONTEXT.add(total, term)
        n += 2
    return total


def _reduced(x: Decimal) -> Decimal:
    """The argument reduced to [-π, π], with as many digits of π as its size requires."""
    if x.copy_abs() <= PI:
        return x
    digits = max(x.adjusted(), 0) + 90
    wide = decimal.Context(prec=min(digits + 60, 12600), Emin=-99999, Emax=99999, traps=[])
    turn = wide.multiply(_TWO, _pi(digits + 10))
    turns = wide.divide(x, turn).to_integral_value(decimal.ROUND_HALF_EVEN)
    return _CONTEXT.plus(wide.subtract(x, wide.multiply(turns, turn)))


def _pi(digits: int) -> Decimal:
    """π to a number of digits, by Machin's formula in integers."""
    unit = 10 ** (digits + 10)
    return Decimal(4 * (4 * _arccot(5, unit) - _arccot(239, unit))).scaleb(
        -(digits + 10), decimal.Context(prec=digits + 20, Emin=-99999, Emax=99999)
    )


def _arccot(x: int, unit: int) -> int:
    total = term = unit // x
    n = 3
    sign = -1
    square = x * x
    while term:
        term //= square
        total += sign * (term // n)
        sign = -sign
        n += 2
    return total


def sine(x: Decimal) -> Decimal:
    if not x.is_finite():
        return _NAN
    if not x:
        return x
    r = _reduced(x)
    return _series(r, _CONTEXT.multiply(r, r).copy_negate(), 2)


def cosine(x: Decimal) -> Decimal:
    if not x.is_finite():
        return _NAN
    if not x:
        return _ONE
    r = _reduced(x)
    return _series(_ONE, _CONTEXT.multiply(r, r).copy_negate(), 1)


def tangent(x: Decimal) -> Decimal:
    if not x.is_finite():
        return _NAN
    if not x:
        return x
    return _CONTEXT.divide(sine(x), cosine(x))


def arc_tangent(x: Decimal) -> Decimal:
    if x.is_nan():
        return _NAN
    if x.is_infinite():
        return _CONTEXT.divide(PI, _TWO).copy_sign(x)
    if not x:
        return x
    # atan x = 2 atan (x / (1 + sqrt(1 + x²))): three times reduces the argument below 0.2.
    for _ in range(3):
        x = _CONTEXT.divide(x, _CONTEXT.add(_ONE, _CONTEXT.sqrt(_CONTEXT.add(_ONE, _CONTEXT.multiply(x, x)))))
    square = _CONTEXT.multiply(x, x).copy_negate()
    total = term = x
    n = 3
    while term and term.copy_abs() > _CONTEXT.multiply(_EPSILON, total.copy_abs()):
        term = _CONTEXT.multiply(term, square)
        total = _CONTEXT.add(total, _CONTEXT.divide(term, Decimal(n)))
        n += 2
    return _CONTEXT.multiply(total, Decimal(8))


def arc_tangent_2(y: Decimal, x: Decimal) -> Decimal:
    if y.is_nan() or x.is_nan():
        return _NAN
    if not y:
        return PI.copy_sign(y) if x.is_signed() else Decimal(0).copy_sign(y)
    half = _CONTEXT.divide(PI, _TWO)
    if not x:
        return half.copy_sign(y)
    if y.is_infinite():
        if x.is_infinite():
            quarter = _CONTEXT.divide(PI, Decimal(4))
            return (_CONTEXT.multiply(quarter, Decimal(3)) if x.is_signed() else quarter).copy_sign(y)
        return half.copy_sign(y)
    if x.is_infinite():
        return PI.copy_sign(y) if x.is_signed() else Decimal(0).copy_sign(y)
    angle = arc_tangent(_CONTEXT.divide(y.copy_abs(), x.copy_abs()))
    if x.is_signed():
        angle = _CONTEXT.subtract(PI, angle)
    return angle.copy_sign(y)


def arc_sine(x: Decimal) -> Decimal:
    if x.is_nan() or not x:
        return x
    if x.copy_abs() == 1:
        return _CONTEXT.divide(PI, _TWO).copy_sign(x)
    return arc_tangent(_CONTEXT.divide(x, _CONTEXT.sqrt(_CONTEXT.subtract(_ONE, _CONTEXT.multiply(x, x)))))


def arc_cosine(x: Decimal) -> Decimal:
    if x.is_nan():
        return x
    if x == 1:
        return Decimal(0)
    return _CONTEXT.subtract(_CONTEXT.divide(PI, _TWO), arc_sine(x))


def hyperbolic_sine(x: Decimal) -> Decimal:
    if not x.is_finite() or not x:
        return x
    if x.copy_abs() < 1:
        return _series(x, _CONTEXT.multiply(x, x), 2)
    power = _CONTEXT.exp(x)
    return _CONTEXT.divide(_CONTEXT.subtract(power, _CONTEXT.divide(_ONE, power)), _TWO)


def hyperbolic_cosine(x: Decimal) -> Decimal:
    if not x.is_finite():
        return x.copy_abs()
    if not x:
        return _ONE
    power = _CONTEXT.exp(x)
    return _CONTEXT.divide(_CONTEXT.add(power, _CONTEXT.divide(_ONE, power)), _TWO)


def hyperbolic_tangent(x: Decimal) -> Decimal:
    if x.is_nan() or not x:
        return x
    if x.is_infinite() or x.copy_abs() > 60:
        return _ONE.copy_sign(x)
    return _CONTEXT.divide(hyperbolic_sine(x), hyperbolic_cosine(x))


def inverse_hyperbolic_sine(x: Decimal) -> Decimal:
    if not x.is_finite() or not x or x.adjusted() < _TINY:
        return x
    wide = decimal.Context(prec=100, Emin=-99999, Emax=99999, traps=[])
    size = x.copy_abs()
    return wide.ln(wide.add(size, wide.sqrt(wide.add(wide.multiply(size, size), _ONE)))).copy_sign(x)


def inverse_hyperbolic_cosine(x: Decimal) -> Decimal:
    if not x.is_finite():
        return x
    return _CONTEXT.ln(_CONTEXT.add(x, _CONTEXT.sqrt(_CONTEXT.subtract(_CONTEXT.multiply(x, x), _ONE))))


def inverse_hyperbolic_tangent(x: Decimal) -> Decimal:
    if x.is_nan() or not x:
        return x
    if x.copy_abs() == 1:
        return Decimal("Infinity").copy_sign(x)
    if x.adjusted() < _TINY:
        return x
    wide = decimal.Context(prec=100, Emin=-99999, Emax=99999, traps=[])
    return wide.divide(wide.ln(wide.divide(wide.add(_ONE, x), wide.subtract(_ONE, x))), _TWO)


_BINARY_DIGITS: Final = 113
_DIGITS: Final = 34
_LEAST_EXPONENT: Final = -6176  # of a Decimal128
_EXPONENT_STEP: Final = Decimal(11000)
_MAX_EXPONENT: Final = Decimal(15000)  # of e: beyond the limits of Decimal128
_MAX_INT32: Final = 2**31 - 1
_RESULT: Final = decimal.Context(
    prec=_DIGITS, rounding=decimal.ROUND_HALF_EVEN, Emin=-6143, Emax=6144, clamp=1, traps=[]
)


def _to_binary(x: Decimal, cut: bool = False) -> Decimal:
    """The nearest number with 113 binary digits, halves to even; up to 80 decimal digits of it.

    cut: drops the other digits instead of rounding.
    """
    if not x.is_finite() or not x:
        return x
    numerator, denominator = x.copy_abs().as_integer_ratio()
    shift = _BINARY_DIGITS - (numerator.bit_length() - denominator.bit_length())
    quotient, rest, divisor = _divided(numerator, denominator, shift)
    if quotient.bit_length() > _BINARY_DIGITS:
        shift -= 1
        quotient, rest, divisor = _divided(numerator, denominator, shift)
    if not cut and (2 * rest > divisor or (2 * rest == divisor and quotient & 1)):
        quotient += 1
    if shift >= 0:
        nearest = _CONTEXT.divide(Decimal(quotient), Decimal(1 << shift))
    else:
        nearest = _CONTEXT.create_decimal(quotient << -shift)
    return nearest.copy_sign(x)


def _divided(numerator: int, denominator: int, shift: int) -> tuple[int, int, int]:
    """Quotient, remainder and divisor of numerator * 2**shift / denominator, in integers."""
    if shift >= 0:
        numerator <<= shift
    else:
        denominator <<= -shift
    return numerator // denominator, numerator % denominator, denominator


def _to_all_digits(x: Decimal, binary: bool = True) -> Decimal:
    """The result with 34 digits, trailing zeros included; a zero has the smallest exponent and no sign.

    binary: whether it is rounded to a binary number first.
    """
    rounded = _RESULT.plus(_to_binary(x) if binary else x)
    if not rounded.is_finite():
        return rounded
    if not rounded:
        return Decimal((0, (0,), _LEAST_EXPONENT))
    return rounded.quantize(Decimal((0, (1,), max(rounded.adjusted() - _DIGITS + 1, _LEAST_EXPONENT))), None, _RESULT)


def natural_exponential(x: Decimal) -> Decimal:
    """e**x."""
    if x.is_nan():
        return _NAN
    if not x:
        return _ONE
    if x.is_infinite():
        return Decimal(0) if x.is_signed() else x
    if x.copy_abs() > _MAX_EXPONENT:
        return _to_all_digits(Decimal(0)) if x.is_signed() else Decimal("Infinity")
    # The argument is taken as two binary numbers, and powers near the limits of the binary format in two steps.
    high = _to_binary(x, cut=True)
    low = _to_binary(_CONTEXT.subtract(x, high))
    step = Decimal(0)
    if high.copy_abs() > _EXPONENT_STEP:
        step = _EXPONENT_STEP.copy_sign(high)
        high = _to_binary(_CONTEXT.subtract(high, step))
    power = _to_binary(_CONTEXT.exp(high))
    power = _to_binary(_CONTEXT.add(power, _to_binary(_CONTEXT.multiply(power, low))))
    power = _to_all_digits(power)
    if step:
        power = _to_all_digits(_RESULT.multiply(power, _RESULT.plus(_CONTEXT.exp(step))), False)
    return _ONE if power == 1 else power


def natural_logarithm(x: Decimal) -> Decimal:
    """ln x of a positive number."""
    if not x.is_finite() or x == 1:
        return Decimal(0) if x == 1 else x
    logarithm, shift = _binary_logarithm(x)
    if shift:
        logarithm = _to_binary(_CONTEXT.add(logarithm, _to_binary(_CONTEXT.multiply(Decimal(shift), _LN_10))))
    return _to_all_digits(logarithm)


def common_logarithm(x: Decimal) -> Decimal:
    """log10 x of a positive number; a whole number if the result is one to 34 digits."""
    if not x.is_finite():
        return x
    logarithm, shift = _binary_logarithm(x)
    logarithm = _to_binary(_CONTEXT.multiply(logarithm, _to_binary(_CONTEXT.divide(_ONE, _LN_10))))
    if shift:
        logarithm = _to_binary(_CONTEXT.add(logarithm, Decimal(shift)))
    logarithm = _to_all_digits(logarithm)
    whole = logarithm.to_integral_value(decimal.ROUND_HALF_EVEN)
    return whole if whole == logarithm else logarithm


_LN_10: Final = _CONTEXT.ln(Decimal(10))
_HALF: Final = Decimal("0.5")
_BINARY_RANGE: Final = 4464  # powers of ten that binary numbers of 128 bits reach safely


def _binary_logarithm(x: Decimal) -> tuple[Decimal, int]:
    """ln(x / 10**shift) as a binary number, and the shift, which is 0 but near the limits of Decimal128.

    Near 1 the error of the binary argument is taken off the result.
    """
    shift = 0
    limit = Decimal((0, (1,), _BINARY_RANGE))
    if x > limit:
        shift = _BINARY_RANGE
    elif x < _CONTEXT.divide(_ONE, limit):
        shift = -_BINARY_RANGE
    binary = _to_binary(x.scaleb(-shift, _CONTEXT) if shift else x)
    logarithm = _to_binary(_CONTEXT.ln(binary))
    beyond_one = _to_binary(_CONTEXT.subtract(binary, _ONE))
    if not shift and beyond_one.copy_abs() < _HALF:
        error = _to_binary(_CONTEXT.subtract(beyond_one, _to_binary(_CONTEXT.subtract(x, _ONE))))
        error = _to_binary(_CONTEXT.divide(error, binary))
        logarithm = _to_binary(_CONTEXT.subtract(logarithm, error))
    return logarithm, shift


def power(base: Decimal, exponent: Decimal) -> Decimal:
    """base**exponent; NaN for a negative base with an exponent that is not whole."""
    if exponent == 0 or base == 1:
        return _ONE
    if base.is_nan() or exponent.is_nan():
        return _NAN
    size = base.copy_abs()
    if exponent.is_infinite():
        if size == 1:
            return _to_all_digits(_ONE)
        return Decimal("Infinity") if (size > 1) != exponent.is_signed() else _to_all_digits(Decimal(0))
    whole = exponent == exponent.to_integral_value()
    odd = whole and exponent.copy_abs() < _TEN_TO_34 and int(exponent) % 2 == 1
    negative = base.is_signed() and odd
    if base.is_infinite() or not base:
        if exponent.is_signed() != base.is_infinite():
            return Decimal("-Infinity") if negative else Decimal("Infinity")
        return _to_all_digits(Decimal(0))
    if base.is_signed() and not whole:
        return _NAN
    if base == 2 or base == 10:
        return _to_all_digits(_CONTEXT.power(base, exponent))
    if whole and exponent.copy_abs() <= _MAX_INT32:
        return _whole_power(base, int(exponent))
    high, low = _split_logarithm(size)
    product = _RESULT.multiply(exponent, high)
    rest = _RESULT.fma(exponent, low, _RESULT.fma(exponent, high, product.copy_negate()))
    result = natural_exponential(product)
    if result.is_finite() and result:
        result = _RESULT.fma(result, rest, result)
    return _to_all_digits(result.copy_negate() if negative else result, False)


_TEN_TO_34: Final = Decimal(10) ** 34
_HIGH_UNIT: Final = Decimal("1E-28")
_LOW_UNIT: Final = Decimal("1E-47")


def _split_logarithm(x: Decimal) -> tuple[Decimal, Decimal]:
    """ln x as the sum of two decimals: to 28 places, and the rest to 47; near zero, to 34 digits and the rest."""
    logarithm = _CONTEXT.ln(x)
    if logarithm.copy_abs() < _SMALL_LOGARITHM:
        high = _RESULT.plus(logarithm)
    else:
        high = logarithm.quantize(_HIGH_UNIT, decimal.ROUND_DOWN, _CONTEXT)
    low = _CONTEXT.subtract(logarithm, high)
    if low.adjusted() > -47:
        low = low.quantize(_LOW_UNIT, decimal.ROUND_DOWN, _CONTEXT)
    return high, low


_SMALL_LOGARITHM: Final = Decimal("3.7E-9")


def _whole_power(base: Decimal, exponent: int) -> Decimal:
    """Multiplies in decimals of 34 digits, squaring the base from bit to bit of the exponent."""
    result = _ONE
    factor = base
    left = abs(exponent)
    while left:
        if left & 1:
            result = _RESULT.multiply(result, factor)
        if left > 1:
            factor = _RESULT.multiply(factor, factor)
        left >>= 1
    return _to_all_digits(_RESULT.divide(_ONE, result) if exponent < 0 else result, False)


DECIMAL_FUNCTIONS: Final[dict[str, Callable[[Decimal], Decimal]]] = {
    "$sin": sine,
    "$cos": cosine,
    "$tan": tangent,
    "$asin": arc_sine,
    "$acos": arc_cosine,
    "$atan": arc_tangent,
    "$sinh": hyperbolic_sine,
    "$cosh": hyperbolic_cosine,
    "$tanh": hyperbolic_tangent,
    "$asinh": inverse_hyperbolic_sine,
    "$acosh": inverse_hyperbolic_cosine,
    "$atanh": inverse_hyperbolic_tangent,
}
