"""How much memory decoded values take, roughly."""

from mypy_extensions import i64

from mongottl.document.interrupt import MANY_BYTES, give_way
from mongottl.document.nesting import MAX_LEVELS, too_deep
from mongottl.document.types import BinData, DBPointer, JavaScript, Regex, Symbol, Value


def size_of(value: Value) -> int:
    """The approximate memory of a value in bytes."""
    if isinstance(value, str):
        # One character beyond U+FFFF makes all of a text take four bytes each.
        return 56 + (len(value) if len(value) < MANY_BYTES or value.isascii() else value.__sizeof__())
    if isinstance(value, bytes):
        return 40 + len(value)
    if isinstance(value, list):
        return _size_of_list(value, MAX_LEVELS)
    if value is None or isinstance(value, int):
        return 32
    return _size_of_rare(value)


def _size_of_list(values: list[Value], levels: i64) -> int:
    if levels <= 0:
        raise too_deep()
    total = 56
    give_way(1 + (len(values) >> 4))
    for item in values:
        total += 8 + (_size_of_list(item, levels - 1) if isinstance(item, list) else size_of(item))
    return total


def _size_of_rare(value: Value) -> int:
    if isinstance(value, BinData):
        return 96 + len(value.data)
    if isinstance(value, Symbol):
        return 96 + len(value.text)
    if isinstance(value, JavaScript):
        return 96 + len(value.code) + (0 if value.scope is None else len(value.scope))
    if isinstance(value, Regex):
        return 96 + len(value.pattern)
    if isinstance(value, DBPointer):
        return 96 + len(value.namespace)
    return 32
