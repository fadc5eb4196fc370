"""Query shapes: queries without their values, and the hashes of shapes that explain shows.

    queryShapeHash       the query as written: order of fields and clauses, types of values
    planCacheShapeHash   the query as the planner uses it: no order, no values, `$expr` and `$type` without operands

Equal shapes have equal hashes; the hashes are not those of mongod. Nothing here runs or plans queries.
"""

from typing import Any, Final

from mongottl.document.build import encode
from mongottl.document.freeing import LONG, LONG_BYTES, LongList, list_for, set_for
from mongottl.document.interrupt import give_way
from mongottl.document.numbers import is_true
from mongottl.document.sorting import sort_in_parts
from mongottl.document.types import Value, is_number, type_code_of, type_name
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import fields, first_field_name, get_value
from mongottl.query.pipeline import traits_of

_DOLLAR: Final = ord("$")
_LOGICAL: Final = ("$and", "$or", "$nor")
# The longest shape of a part of a query, in characters. The hash of a longer one stands for it: otherwise each level
# around it would copy it.
_LONGEST: Final = 4096
# Characters, or bytes, that are hashed in one step, and its weight.
_HASHED_AT_ONCE: Final = 1 << 16
_HASHED_WEIGHT: Final = 128


def query_shape_hash(parts: list[str]) -> str:
    """The hash of a shape's parts as 64 upper-case hexadecimal digits."""
    return _hash_of(parts, "\n")


def plan_shape_hash(parts: list[str]) -> str:
    """The hash of a plan shape's parts as eight upper-case hexadecimal digits."""
    return query_shape_hash(parts)[:8]


def joined_shapes(shapes: list[str], separator: str = ",") -> str:
    """The shapes with separators between them; a hash of that if it is long."""
    if len(shapes) >= LONG:
        return "#" + _hash_of(shapes, separator)
    return _bounded(separator.join(shapes))


def _hash_of(texts: list[str], separator: str) -> str:
    """The hash of the texts with separators between them."""
    from hashlib import sha256  # costs a millisecond at start and is seldom needed

    hashed = sha256()
    for start in range(0, len(texts), LONG):
        if start > 0:
            hashed.update(encode_text(separator))
        _add_text(separator.join(texts[start : start + LONG]), hashed)
    return hashed.hexdigest().upper()


def _add_text(text: str, hashed: Any) -> None:
    for start in range(0, len(text), _HASHED_AT_ONCE):
        give_way(_HASHED_WEIGHT)
        hashed.update(encode_text(text[start : start + _HASHED_AT_ONCE]))


def _bounded(text: str) -> str:
    """The text itself, or its hash if it is long."""
    return text if len(text) <= _LONGEST else "#" + _hash_of([text], "")


def literal_shape(value: Value) -> str:
    """The shape of a value: its type."""
    give_way()
    if is_number(value):
        return "?number"
    if isinstance(value, list):
        distinct: set[str] = set_for(len(value))
        for item in value:
            distinct.add(literal_shape(item))
        found = list_for(len(distinct))
        found.extend(distinct)
        return "?array<" + joined_shapes(sort_in_parts(found)) + ">"
    return "?" + type_name(type_code_of(value))


def filter_shape(filter: bytes) -> str:
    """The shape of a filter as written; `{a: 1, b: 2}` counts as `{$and: [{a: {$eq: 1}}, {b: {$eq: 2}}]}`."""
    return _conjunction(_clauses(filter, False))


def planned_filter_shape(described: Value) -> str:
    """The shape of a filter as the planner uses it. described: `MatchExpression.describe()`."""
    return _conjunction(_ordered(_clauses(encode({"": described})[_INNER:-1], True), True))


# Offset of the document in `{"": document}`: length, type, empty name.
_INNER: Final = 6


def _conjunction(clauses: list[str]) -> str:
    return clauses[0] if len(clauses) == 1 else f"$and({joined_shapes(clauses)})"


def _list_of_parts(document: bytes) -> list[str]:
    """A new list for the shapes of a document's fields."""
    return LongList() if len(document) >= LONG_BYTES else []


def _clauses(filter: bytes, planned: bool) -> list[str]:
    shapes = _list_of_parts(filter)
    for name, value in fields(filter):
        give_way()
        if name in _LOGICAL and isinstance(value, list):
            branches: list[str] = list_for(len(value))
            for branch in value:
                give_way()
                if isinstance(branch, bytes):
                    branches.append(_conjunction(_ordered(_clauses(branch, planned), planned)))
            if name == "$and":
                shapes.extend(branches)
            else:
                shapes.append(f"{name}({joined_shapes(_ordered(branches, planned))})")
        elif name == "$expr":
            shapes.append(name if planned else f"$expr:{expression_shape(value)}")
        elif name == "$jsonSchema":
            shapes.append(f"$jsonSchema:{_bytes_shape(value)}")
        elif name == "$comment":
            continue
        elif name.startswith("$"):
            shapes.append(_bounded(name))
        elif isinstance(value, bytes) and _has_operators(value):
            path = _bounded(name)
            conditions = _conditions(value, planned)
            if len(conditions) >= LONG:  # a long path is not copied for each of them
                shapes.append(f"{path}.({joined_shapes(_ordered(conditions, planned))})")
            else:
                shapes.extend([f"{path}.{condition}" for condition in conditions])
        else:
            shapes.append(f"{_bounded(name)}.$eq{'' if planned else ':' + literal_shape(value)}")
    return shapes


def _has_operators(document: bytes) -> bool:
    """Whether the name of the first field begins with `$`."""
    return len(document) > 5 and document[4] != 0 and document[5] == _DOLLAR


def _bytes_shape(value: Value) -> str:
    """A value as a whole, in hexadecimal digits."""
    from hashlib import sha256

    encoded = encode({"": value})
    if len(encoded) <= _LONGEST:
        return encoded.hex()
    hashed = sha256()
    for start in range(0, len(encoded), _HASHED_AT_ONCE):
        give_way(_HASHED_WEIGHT)
        hashed.update(encoded[start : start + _HASHED_AT_ONCE])
    return "#" + hashed.hexdigest()


def _ordered(shapes: list[str], planned: bool) -> list[str]:
    return sort_in_parts(shapes) if planned else shapes


def _conditions(operators: bytes, planned: bool) -> list[str]:
    shapes = _list_of_parts(operators)
    for name, value in fields(operators):
        give_way()
        if name == "$options":
            continue
        if name == "$not" and isinstance(value, bytes):
            shapes.append(f"$not({joined_shapes(_conditions(value, planned))})")
        elif name == "$elemMatch" and isinstance(value, bytes):
            inner = _conditions if _has_operators(value) else _clauses
            shapes.append(f"$elemMatch({joined_shapes(_ordered(inner(value, planned), planned))})")
        elif name == "$exists":
            shapes.append(f"$exists:{is_true(value)}")
        elif name == "$type" and not planned:
            types = value if isinstance(value, list) else [value]
            named: list[str] = list_for(len(types))
            for each in types:
                named.append(_type_shape(each))
            shapes.append(f"$type:[{joined_shapes(named, ', ')}]")
        elif name == "$all" and isinstance(value, list):
            shapes.append(f"$all:{len(value)}")
        else:
            shapes.append(_bounded(name) if planned else f"{_bounded(name)}:{literal_shape(value)}")
    return shapes


def _type_shape(value: Value) -> str:
    """The shape of a type's name or number: itself."""
    give_way()
    if isinstance(value, str):
        return repr(_bounded(value))
    return repr(value) if is_number(value) else literal_shape(value)


def expression_shape(value: Value) -> str:
    """The shape of an expression or of a stage's argument: operators, names and paths, without constants."""
    give_way()
    if isinstance(value, bytes):
        members = _list_of_parts(value)
        for name, item in fields(value):
            members.append(f"{_bounded(name)}:{expression_shape(item)}")
        return "{" + joined_shapes(members) + "}"
    if isinstance(value, list):
        items: list[str] = list_for(len(value))
        for item in value:
            items.append(expression_shape(item))
        return "[" + joined_shapes(items) + "]"
    if isinstance(value, str) and value.startswith("$"):
        return _bounded(value)
    return literal_shape(value)


def stage_shape(stage: bytes) -> str:
    """The shape of one pipeline stage as written."""
    name = first_field_name(stage)
    argument = get_value(stage, name)
    if name == "$match" and isinstance(argument, bytes):
        return f"$match:{filter_shape(argument)}"
    if name in ("$sort", "$project", "$unset") and isinstance(argument, bytes):
        return f"{name}:{order_shape(argument)}"
    return f"{_bounded(name)}:{expression_shape(argument)}"


def is_planned_stage(stage: Value) -> bool:
    """Whether mongod's query planner may include a stage in its plan. stage: as `StageSpec.describe` gives it."""
    return isinstance(stage, bytes) and traits_of(first_field_name(stage)).planned


def order_shape(pattern: bytes) -> str:
    """The shape of a sort or projection: its fields in order, with directions or with inclusion and exclusion."""
    return joined_shapes(_flags(pattern))


def projection_shape(projection: bytes) -> str:
    """The shape of a projection as the planner uses it: a set of fields, without order."""
    return joined_shapes(sort_in_parts(_flags(projection)))


def _flags(pattern: bytes) -> list[str]:
    shapes = _list_of_parts(pattern)
    for name, value in fields(pattern):
        shapes.append(f"{_bounded(name)}:{_flag(value)}")
    return shapes


def _flag(value: Value) -> str:
    give_way()
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, (int, float)):
        return "-1" if value < 0 else "1" if value else "0"
    return expression_shape(value)
