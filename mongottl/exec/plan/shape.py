"""Shapes of queries: what is left of a query without its values, and the hashes that explain shows of it.

    queryShapeHash       the query as it was written: order of fields and clauses, types of values
    planCacheShapeHash   what the planner sees of it: order and values gone, `$expr` and `$type` without operands

The hashes tell equal shapes from different ones; they are not mongod's own numbers. Nothing here runs or plans queries.
"""

from collections.abc import Sequence
from typing import Final

from mongottl.document.build import encode
from mongottl.document.numbers import is_true
from mongottl.document.types import Value, is_number, type_code_of, type_name
from mongottl.document.walk import fields, first_field_name
from mongottl.query.pipeline import traits_of

_LOGICAL: Final = ("$and", "$or", "$nor")


def query_shape_hash(parts: Sequence[str]) -> str:
    """64 upper-case hexadecimal digits."""
    from hashlib import sha256  # costs a millisecond at start and is seldom needed

    return sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest().upper()


def plan_shape_hash(parts: Sequence[str]) -> str:
    """Eight upper-case hexadecimal digits."""
    return query_shape_hash(parts)[:8]


def literal_shape(value: Value) -> str:
    """A value's type."""
    if is_number(value):
        return "?number"
    if isinstance(value, list):
        return "?array<" + ",".join(sorted({literal_shape(item) for item in value})) + ">"
    return "?" + type_name(type_code_of(value))


def filter_shape(filter: bytes) -> str:
    """A filter as a client wrote it; `{a: 1, b: 2}` is `{$and: [{a: {$eq: 1}}, {b: {$eq: 2}}]}`."""
    return _conjunction(_clauses(filter, False))


def planned_filter_shape(described: Value) -> str:
    """A filter as the planner sees it. described: `MatchExpression.describe()`."""
    return _conjunction(sorted(_clauses(encode({"": described})[_INNER:-1], True)))


# Offset of the document in `{"": document}`: length, type, empty name.
_INNER: Final = 6


def _conjunction(clauses: list[str]) -> str:
    return clauses[0] if len(clauses) == 1 else f"$and({','.join(clauses)})"


def _clauses(filter: bytes, planned: bool) -> list[str]:
    shapes: list[str] = []
    for name, value in fields(filter):
        if name == "$and" and isinstance(value, list):
            for item in value:
                if isinstance(item, bytes):
                    shapes.append(_conjunction(_ordered(_clauses(item, planned), planned)))
        elif name in _LOGICAL and isinstance(value, list):
            branches = [_conjunction(_ordered(_clauses(b, planned), planned)) for b in value if isinstance(b, bytes)]
            shapes.append(f"{name}({','.join(_ordered(branches, planned))})")
        elif name == "$expr":
            shapes.append(name if planned else f"$expr:{expression_shape(value)}")
        elif name == "$jsonSchema":
            shapes.append(f"$jsonSchema:{encode({'': value}).hex()}")
        elif name == "$comment":
            continue
        elif name.startswith("$"):
            shapes.append(name)
        elif isinstance(value, bytes) and first_field_name(value).startswith("$"):
            shapes.extend(f"{name}.{condition}" for condition in _conditions(value, planned))
        else:
            shapes.append(f"{name}.$eq{'' if planned else ':' + literal_shape(value)}")
    return shapes


def _ordered(shapes: list[str], planned: bool) -> list[str]:
    return sorted(shapes) if planned else shapes


def _conditions(operators: bytes, planned: bool) -> list[str]:
    shapes: list[str] = []
    for name, value in fields(operators):
        if name == "$options":
            continue
        if name == "$not" and isinstance(value, bytes):
            shapes.append(f"$not({','.join(_conditions(value, planned))})")
        elif name == "$elemMatch" and isinstance(value, bytes):
            inner = _conditions if first_field_name(value).startswith("$") else _clauses
            shapes.append(f"$elemMatch({','.join(_ordered(inner(value, planned), planned))})")
        elif name == "$exists":
            shapes.append(f"$exists:{is_true(value)}")
        elif name == "$type" and not planned:
            types = value if isinstance(value, list) else [value]
            shapes.append(f"$type:{types}")
        elif name == "$all" and isinstance(value, list):
            shapes.append(f"$all:{len(value)}")
        else:
            shapes.append(name if planned else f"{name}:{literal_shape(value)}")
    return shapes


def expression_shape(value: Value) -> str:
    """An expression, or the argument of a stage: operators, names and paths are kept, constants are not."""
    if isinstance(value, bytes):
        return "{" + ",".join(f"{name}:{expression_shape(item)}" for name, item in fields(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(expression_shape(item) for item in value) + "]"
    if isinstance(value, str) and value.startswith("$"):
        return value
    return literal_shape(value)


def stage_shape(stage: bytes) -> str:
    """One stage of a pipeline as it was written."""
    name = first_field_name(stage)
    argument = dict(fields(stage))[name]
    if name == "$match" and isinstance(argument, bytes):
        return f"$match:{filter_shape(argument)}"
    if name in ("$sort", "$project", "$unset") and isinstance(argument, bytes):
        return f"{name}:{order_shape(argument)}"
    return f"{name}:{expression_shape(argument)}"


def is_planned_stage(stage: Value) -> bool:
    """Whether a stage, as it describes itself, is one that mongod's plans may take in."""
    return isinstance(stage, bytes) and traits_of(first_field_name(stage)).planned


def order_shape(pattern: bytes) -> str:
    """A sort or projection in its order, with directions and with what is taken or left out."""
    return ",".join(f"{name}:{_flag(value)}" for name, value in fields(pattern))


def projection_shape(projection: bytes) -> str:
    """A projection as the planner sees it: a set of fields."""
    return ",".join(sorted(f"{name}:{_flag(value)}" for name, value in fields(projection)))


def _flag(value: Value) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, (int, float)):
        return "-1" if value < 0 else "1" if value else "0"
    return expression_shape(value)
