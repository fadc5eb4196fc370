"""Error texts about numeric operands of query operators."""

from mongottl.document.numbers import truncated, whole
from mongottl.document.types import Value, is_number


def whole_number_fault(value: Value) -> str:
    """Why a value is not a whole number that is 0 or more, in mongod's words; "" if it is one."""
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


def element_text(name: str, value: Value) -> str:
    """A field with its value as error messages show it: `name: value`."""
    if isinstance(value, str):
        return f'{name}: "{value}"'
    if isinstance(value, bool):
        return f"{name}: {'true' if value else 'false'}"
    if value is None:
        return f"{name}: null"
    if isinstance(value, bytes):
        return f"{name}: {{…}}"
    return f"{name}: {value}"
