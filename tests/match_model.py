"""A slow, obvious model of filters over decoded documents.

It follows MongoDB's documented rules: it lists all values that a path reaches, and asks each of them.
"""

import datetime
from collections.abc import Iterator
from typing import Any

from bson import Decimal128, MaxKey, MinKey, ObjectId, Timestamp

ABSENT: Any = object()


def reached(document: dict[str, Any], parts: list[str]) -> Iterator[Any]:
    return _descend(document.get(parts[0], ABSENT), parts[1:])


def _descend(value: Any, rest: list[str]) -> Iterator[Any]:
    if not rest:
        if isinstance(value, list):
            yield from value
        yield value
    elif isinstance(value, dict):
        yield from reached(value, rest)
    elif isinstance(value, list):
        yield from _elements(value, rest)
    else:
        yield ABSENT


def _elements(array: list[Any], rest: list[str]) -> Iterator[Any]:
    if rest == [""]:
        yield from array
        yield array
        return
    for index, element in enumerate(array):
        if isinstance(element, dict):
            yield from reached(element, rest)
        if rest[0] == str(index):
            if len(rest) == 1:
                yield element
            elif isinstance(element, dict):
                yield from reached(element, rest[1:])
            elif isinstance(element, list):
                yield from _elements(element, rest[1:])


def kind(value: Any) -> int:
    """MongoDB's order of types."""
    if isinstance(value, MinKey):
        return 0
    if value is None or value is ABSENT:
        return 1
    if isinstance(value, bool):
        return 7
    if isinstance(value, (int, float, Decimal128)):
        return 2
    kinds: list[tuple[type, int]] = [
        (str, 3),
        (dict, 4),
        (list, 5),
        (ObjectId, 6),
        (datetime.datetime, 8),
        (Timestamp, 9),
        (MaxKey, 10),
    ]
    return next(number for type_, number in kinds if isinstance(value, type_))


def order(a: Any, b: Any) -> int:
    if kind(a) != kind(b):
        return -1 if kind(a) < kind(b) else 1
    if isinstance(a, dict):
        for (name, x), (other, y) in zip(a.items(), b.items(), strict=False):
            if kind(x) != kind(y):
                return -1 if kind(x) < kind(y) else 1
            if name != other:
                return -1 if name.encode() < other.encode() else 1
            if order(x, y):
                return order(x, y)
        return (len(a) > len(b)) - (len(a) < len(b))
    if isinstance(a, list):
        for x, y in zip(a, b, strict=False):
            if order(x, y):
                return order(x, y)
        return (len(a) > len(b)) - (len(a) < len(b))
    if kind(a) in (0, 1, 10):
        return 0
    x, y = (v.to_decimal() if isinstance(v, Decimal128) else v for v in (a, b))
    if x != x or y != y:
        return int(y != y) - int(x != x) if (x != x) != (y != y) else 0
    left, right = [sortable(v) for v in (x, y)]
    return int(left > right) - int(left < right)


def sortable(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def is_nan(value: Any) -> bool:
    if isinstance(value, Decimal128):
        return bool(value.to_decimal().is_nan())
    return isinstance(value, float) and value != value


def compares(name: str, value: Any, operand: Any) -> bool:
    if kind(value) != kind(operand) and not isinstance(operand, (MinKey, MaxKey)):
        return False
    if kind(value) == kind(operand) == 2 and is_nan(value) != is_nan(operand):
        return False
    sign = order(value, operand)
    return {
        "$eq": sign == 0, "$lt": sign < 0, "$lte": sign <= 0, "$gt": sign > 0, "$gte": sign >= 0
    }[name]  # fmt: skip


TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str, "object": dict, "array": list, "bool": bool, "objectId": ObjectId, "double": float
}  # fmt: skip


def holds(document: dict[str, Any], path: str, name: str, operand: Any) -> bool:
    """Whether one operator holds for a path."""
    values = list(reached(document, path.split(".")))
    if name == "$ne":
        return not holds(document, path, "$eq", operand)
    if name == "$nin":
        return not holds(document, path, "$in", operand)
    if name == "$not":
        return not all(holds(document, path, *item) for item in operand.items())
    if name == "$in":
        return any(compares("$eq", value, wanted) for value in values for wanted in operand)
    if name == "$all":
        return bool(operand) and all(holds(document, path, "$eq", wanted) for wanted in operand)
    if name == "$exists":
        return any(value is not ABSENT for value in values) == bool(operand)
    if name == "$type":
        return any(isinstance(value, TYPES[operand]) for value in values)
    if name == "$size":
        return any(isinstance(value, list) and len(value) == operand for value in _whole(document, path))
    if name == "$elemMatch":
        return any(isinstance(value, list) and _any_element(value, operand) for value in _whole(document, path))
    return any(compares(name, value, operand) for value in values)


def _whole(document: dict[str, Any], path: str) -> list[Any]:
    """The values at a path with the last arrays left whole: what a further, absent component would start from."""
    marked = {"root": document}
    parts = ["root", *path.split(".")]

    def walk(value: Any, rest: list[str]) -> Iterator[Any]:
        if not rest:
            yield value
        elif isinstance(value, dict):
            yield from walk(value.get(rest[0], ABSENT), rest[1:])
        elif isinstance(value, list):
            for index, element in enumerate(value):
                if isinstance(element, dict):
                    yield from walk(element.get(rest[0], ABSENT), rest[1:])
                if rest[0] == str(index) and (len(rest) == 1 or isinstance(element, (dict, list))):
                    yield from walk(element, rest[1:])

    return list(walk(marked, parts))


def _any_element(array: list[Any], condition: dict[str, Any]) -> bool:
    if next(iter(condition), "").startswith("$"):
        # A condition on values: arrays inside are not entered.
        return any(all(_single(element, *item) for item in condition.items()) for element in array)
    return any(isinstance(element, (dict, list)) and passes(_as_document(element), condition) for element in array)


def _as_document(element: Any) -> dict[str, Any]:
    return {str(i): v for i, v in enumerate(element)} if isinstance(element, list) else element


def _single(value: Any, name: str, operand: Any) -> bool:
    if name == "$ne":
        return not compares("$eq", value, operand)
    if name == "$in":
        return any(compares("$eq", value, wanted) for wanted in operand)
    return compares(name, value, operand)


def passes(document: dict[str, Any], filter: dict[str, Any]) -> bool:
    for name, operand in filter.items():
        if name == "$and":
            if not all(passes(document, clause) for clause in operand):
                return False
        elif name == "$or":
            if not any(passes(document, clause) for clause in operand):
                return False
        elif name == "$nor":
            if any(passes(document, clause) for clause in operand):
                return False
        elif isinstance(operand, dict) and next(iter(operand), "").startswith("$"):
            if not all(holds(document, name, *item) for item in operand.items()):
                return False
        elif not holds(document, name, "$eq", operand):
            return False
    return True
