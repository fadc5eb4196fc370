"""Numbers as operands of query operators: why one is refused, and how elements are quoted."""

from mongottl.document.numbers import truncated, whole
from mongottl.document.types import Value, is_number


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
