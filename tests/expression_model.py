"""A slow, obvious model of expressions over decoded documents: as many of them as pipelines of the model need."""

from typing import Any

from tests.match_model import ABSENT, kind, order

Document = dict[str, Any]


def field(value: Any, parts: list[str]) -> Any:
    """What `$a.b` gives: of an array, the values that its documents have there."""
    if not parts:
        return value
    if isinstance(value, dict):
        return field(value.get(parts[0], ABSENT), parts[1:])
    if isinstance(value, list):
        found = [field(item, parts) for item in value if isinstance(item, dict)]
        return [item for item in found if item is not ABSENT]
    return ABSENT


def evaluate(expression: Any, document: Document, variables: Document | None = None) -> Any:
    """Paths, `$$ROOT`, variables, literals, objects, arrays, and a few operators."""
    if isinstance(expression, str) and expression.startswith("$$"):
        name, *rest = expression[2:].split(".")
        return field({"ROOT": document, "REMOVE": ABSENT, **(variables or {})}[name], rest)
    if isinstance(expression, str) and expression.startswith("$"):
        return field(document, expression[1:].split("."))
    if isinstance(expression, list):
        items = [evaluate(item, document, variables) for item in expression]
        return [None if item is ABSENT else item for item in items]
    if not isinstance(expression, dict):
        return expression
    name = next(iter(expression), "")
    if not name.startswith("$"):
        members = {key: evaluate(value, document, variables) for key, value in expression.items()}
        return {key: value for key, value in members.items() if value is not ABSENT}
    operand = expression[name]
    if name == "$literal":
        return operand
    values = [evaluate(item, document, variables) for item in operand]
    if name == "$ifNull":
        return next((value for value in values[:-1] if value is not ABSENT and value is not None), values[-1])
    if name == "$cond":
        return values[1] if truth(values[0]) else values[2]
    sign = compare(values[0], values[1])
    return {"$eq": sign == 0, "$gt": sign > 0, "$lte": sign <= 0}[name]


def truth(value: Any) -> bool:
    """What a condition takes as true: all but false, null, missing and zero."""
    return not (value is ABSENT or value is None or (kind(value) in (2, 7) and value == 0))


def compare(a: Any, b: Any) -> int:
    """The order of values in expressions, in which what is missing comes before null."""
    if a is ABSENT or b is ABSENT:
        return int(a is not ABSENT) - int(b is not ABSENT) if not (is_min(a) or is_min(b)) else order(a, b)
    return order(a, b)


def is_min(value: Any) -> bool:
    return value is not ABSENT and kind(value) == 0
