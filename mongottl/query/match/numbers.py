"""Numbers as operands: whole numbers out of any numeric type, and bare truth."""

from decimal import Decimal

from mongottl.document.types import INT64_MAX, INT64_MIN, Decimal128, Undefined, Value, is_number


def truncated(value: Value) -> int | None:
    """A number of any type cut to an int64, or None for NaN, infinities, what does not fit and what is no number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if value != value or value >= 9223372036854775808.0 or value < -9223372036854775808.0:
            return None
        return int(value)
    if isinstance(value, Decimal128):
        number = value.to_decimal()
        if not number.is_finite():
            return None
        # Checked before the conversion: 1E+6144 has six thousand digits.
        if number.adjusted() > 19:
            return None
        whole = int(number)
        return whole if INT64_MIN <= whole <= INT64_MAX else None
    return None


def whole(value: Value) -> int | None:
    """A number of any type that has an int64 value exactly, else None."""
    number = truncated(value)
    if number is None:
        return None
    if isinstance(value, float):
        return number if float(number) == value else None
    if isinstance(value, Decimal128):
        return number if Decimal(number) == value.to_decimal() else None
    return number


def whole_number_fault(value: Value) -> str:
    """Why a value is no whole number that is 0 or more, in mongod's words; "" if it is one."""
    if not is_number(value):
        return "Expected a number in"
    number = whole(value)
    if number is None:
        if isinstance(value, float) and value != value:
            return "Expected an integer, but found NaN in"
        if truncated(value) is None:
            return "Cannot represent as a 64-bit integer"
        return "Expected an integer"
    return "" if number >= 0 else "Expected a non-negative number in"


def is_true(value: Value) -> bool:
    """What mongod takes for true: everything but false, zero, null and undefined (and no value at all)."""
    if isinstance(value, bool):
        return value
    if value is None or isinstance(value, Undefined):
        return False
    if isinstance(value, (int, float)):
        return value != 0
    if isinstance(value, Decimal128):
        return value.to_decimal() != 0
    return True


def shown(name: str, value: Value) -> str:
    """An element as error messages quote it."""
    if isinstance(value, str):
        return f'{name}: "{value}"'
    if isinstance(value, bool):
        return f"{name}: {'true' if value else 'false'}"
    if value is None:
        return f"{name}: null"
    if isinstance(value, bytes):
        return f"{name}: {{…}}"
    return f"{name}: {value}"


def clamped_integer(value: int | float | Decimal128) -> int:
    """A number as an int64: doubles are truncated, decimals rounded half to even, NaN is 0, the rest is clamped."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Decimal128):
        decimal = value.to_decimal()
        if decimal.is_nan():
            return 0
        return round(decimal) if abs(decimal) < 2**63 else _clamped(decimal > 0)
    if value != value:
        return 0
    return int(value) if abs(value) < 2**63 else _clamped(value > 0)


def _clamped(positive: bool) -> int:
    return 2**63 - 1 if positive else -(2**63)
