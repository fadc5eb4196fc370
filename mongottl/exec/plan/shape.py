"""Query shapes: queries without their values, and the hashes of shapes that explain shows.

    queryShapeHash       the query as written: order of fields and clauses, types of values
    planCacheShapeHash   the query as the planner uses it: no order, no values, `$expr` and `$type` without operands

Equal shapes have equal hashes; the hashes are not those of mongod. Nothing here runs or plans queries.
"""

from collections.abc import Sequence
from typing import Final

from mongottl.document.build import encode
from mongottl.document.interrupt import give_way
from mongottl.document.numbers import is_true
from mongottl.document.types import Value, is_number, type_code_of, type_name
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import fields, first_field_name
from mongottl.query.pipeline import traits_of

_LOGICAL: Final = ("$and", "$or", "$nor")


def query_shape_hash(parts: Sequence[str]) -> str:
    """The hash of a shape's parts as 64 upper-case hexadecimal digits."""
    from hashlib import sha256  # costs a millisecond at start and is seldom needed

    return sha256(encode_text("\n".join(parts))).hexdigest().upper()


def plan_shape_hash(parts: Sequence[str]) -> str:
    """The hash of a plan shape's parts as eight upper-case hexadecimal digits."""
    return query_shape_hash(parts)[:8]


def literal_shape(value: Value) -> str:
    """The shape of a value: its type."""
    give_way()
    if is_number(value):
        return "?number"
    if isinstance(value, list):
        return "?array<" + ",".join(sorted({literal_shape(item) for item in value})) + ">"
    return "?" + type_name(type_code_of(value))


def filter_shape(filter: bytes) -> str:
    """The shape of a filter as written; `{a: 1, b: 2}` counts as `{$and: [{a: {$eq: 1}}, {b: {$eq: 2}}]}`."""
    return _conjunction(_clauses(filter, False))


def planned_filter_shape(described: Value) -> str:
    """The shape of a filter as the planner uses it. described: `MatchExpression.describe()`."""
    return _conjunction(sorted(_clauses(encode({"": described})[_INNER:-1], True)))


# Offset of the document in `{"": document}`: length, type, empty name.
_INNER: Final = 6


def _conjunction(clauses: list[str]) -> str:
    return clauses[0] if len(clauses) == 1 else f"$and({','.join(clauses)})"


def _clauses(filter: bytes, planned: bool) -> list[str]:
    shapes: list[str] = []
    for name, value in fields(filter):
        give_way()
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
        give_way()
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
    """The shape of an expression or of a stage's argument: operators, names and paths, without constants."""
    give_way()
    if isinstance(value, bytes):
        return "{" + ",".join(f"{name}:{expression_shape(item)}" for name, item in fields(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(expression_shape(item) for item in value) + "]"
    if isinstance(value, str) and value.startswith("$"):
        return value
    return literal_shape(value)


def stage_shape(stage: bytes) -> str:
    """The shape of one pipeline stage as written."""
    name = first_field_name(stage)
    argument = dict(fields(stage))[name]
    if name == "$match" and isinstance(argument, bytes):
        return f"$match:{filter_shape(argument)}"
    if name in ("$sort", "$project", "$unset") and isinstance(argument, bytes):
        return f"{name}:{order_shape(argument)}"
    return f"{name}:{expression_shape(argument)}"


def is_planned_stage(stage: Value) -> bool:
    """Whether mongod's query planner may include a stage in its plan. stage: as `StageSpec.describe` gives it."""
    return isinstance(stage, bytes) and traits_of(first_field_name(stage)).planned


def order_shape(pattern: bytes) -> str:
    """The shape of a sort or projection: its fields in order, with directions or with inclusion and exclusion."""
    return ",".join(f"{name}:{_flag(value)}" for name, value in fields(pattern))


def projection_shape(projection: bytes) -> str:
    """The shape of a projection as the planner uses it: a set of fields, without order."""
    return ",".join(sorted(f"{name}:{_flag(value)}" for name, value in fields(projection)))


def _flag(value: Value) -> str:
    give_way()
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, (int, float)):
        return "-1" if value < 0 else "1" if value else "0"
    return expression_shape(value)
