"""Parses filters and operator documents into trees.

    {a: 5, b: {$gt: 1, $lt: 9}, $or: […]}
     │     └ a document that starts with an operator: each operator's parser gets (path, operand, context)
     └ anything else is equality; a regex is a match

Field operators are registered with `@match_operator("$size", …)`, operators at the top level with
`@root_operator("$and", …)`. Errors are mongod's: BadValue (2) unless an operator documents another code.
"""

from typing import Final

from mypy_extensions import i64

from mongottl.document.freeing import list_for
from mongottl.document.interrupt import give_way
from mongottl.document.path import FieldPath
from mongottl.document.types import (
    ARRAY,
    DOCUMENT,
    MISSING,
    REGEX,
    UNDEFINED,
    Regex,
    Value,
)
from mongottl.document.walk import decode_value, fields, skip_value
from mongottl.query.context import ParseContext
from mongottl.query.match.registry import bad_value, match_operators, root_operators
from mongottl.query.match.tree import AndExpression, MatchExpression

_DBREF_FIELDS: Final = ("$ref", "$id", "$db")
# Their parsers get the whole operator document, {$near: [0, 0], $maxDistance: 5}: its other fields are arguments, or
# errors.
_GEOSPATIAL: Final = ("$geoWithin", "$within", "$geoIntersects", "$near", "$nearSphere", "$geoNear")


def parse_document(filter: bytes, ctx: ParseContext) -> MatchExpression:
    """The tree of a filter or nested filter ($and, $elemMatch), not simplified."""
    pairs = fields(filter)
    children: list[MatchExpression] = list_for(len(pairs))
    for name, value in pairs:
        if name.startswith("$") and name not in _DBREF_FIELDS:
            children.append(_parse_root(name, value, ctx))
            continue
        path = FieldPath(name)
        if isinstance(value, bytes) and is_operator_document(value):
            parse_operators(path, value, children, ctx)
        elif isinstance(value, Regex):
            children.append(_parse_field("$regex", path, value, ctx))
        else:
            children.append(_parse_field("$eq", path, value, ctx))
    return AndExpression(children, False)


def _parse_root(name: str, operand: Value, ctx: ParseContext) -> MatchExpression:
    operator = root_operators.get(name)
    if operator is None or ctx.lacks(root_operators.kind, name):
        reason = root_operators.unsupported_reason(name)
        if reason is not None:
            raise bad_value(f"{name} is not supported: {reason}")
        raise bad_value(
            f"unknown top level operator: {name}. If you have a field name that starts with a '$' symbol, "
            "consider using $getField or $setField.",
            root_operators.advice(ctx.features, name),
        )
    return operator.parser(operand, ctx)


def _parse_field(name: str, path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression:
    operator = match_operators.get(name)
    if operator is None or ctx.lacks(match_operators.kind, name):
        reason = match_operators.unsupported_reason(name)
        if reason is not None:
            raise bad_value(f"{name} is not supported: {reason}")
        raise bad_value(f"unknown operator: {name}", match_operators.advice(ctx.features, name))
    return operator.parser(path, operand, ctx)


def is_operator_document(doc: bytes, incomplete_dbref: bool = False) -> bool:
    """Whether a document's first field is an operator, and it is not a DBRef.

    incomplete_dbref: whether any one of $ref, $id and $db makes it a DBRef, or only $ref and $id together.
    """
    if doc[4] == 0 or doc[5] != 0x24:  # "$"
        return False
    names = [name for name, _ in fields(doc)]
    if incomplete_dbref:
        return not any(name in _DBREF_FIELDS for name in names)
    return not ("$ref" in names and "$id" in names)


def parse_operators(path: FieldPath, operators: bytes, into: list[MatchExpression], ctx: ParseContext) -> None:
    """Appends the expressions of a field's operator document: {$gt: 1, $lt: 5}.

    `$regex` and `$options` are one operator in two fields, in either order; a geospatial operator consumes all fields.
    """
    pairs = fields(operators)
    options: Value = MISSING
    options_first = False
    pattern_seen = False
    for name, operand in pairs:
        if name == "$options":
            options = operand
            options_first = not pattern_seen
        elif name == "$regex":
            pattern_seen = True
    for name, operand in pairs:
        give_way()
        if name in _GEOSPATIAL:
            into.append(_parse_field(name, path, operators, ctx))
            return
        if name == "$regex" and options is not MISSING:
            # Registered parsers take one operand, so the pair is passed as a list.
            into.append(_parse_field("$options", path, [operand, options, options_first], ctx))
        elif name == "$options":
            if not pattern_seen:
                raise bad_value("$options needs a $regex")
        else:
            into.append(_parse_field(name, path, operand, ctx))


def parse_value_operators(operators: bytes, ctx: ParseContext) -> MatchExpression:
    """The condition of an operator document on a value, for `matches_value` and `matches_single`.

    For `$pull: {a: {$gte: 3}}` and the value form of `$elemMatch`.
    """
    children: list[MatchExpression] = []
    parse_operators(FieldPath(""), operators, children, ctx)
    return AndExpression(children)


def simple_id_filter(filter: bytes) -> tuple[i64, i64]:
    """(type code, offset) of the value if a filter is exactly {_id: v} or {_id: {$eq: v}}; (0, -1) if it is not.

    For point lookups; does not allocate. Arrays, regexes, undefined and operator documents are not simple.
    """
    type_code: i64 = filter[4]
    if type_code == 0 or len(filter) < 10:
        return 0, -1
    if filter[5] != 0x5F or filter[6] != 0x69 or filter[7] != 0x64 or filter[8] != 0:  # "_id"
        return 0, -1
    pos: i64 = 9
    if filter[skip_value(filter, type_code, pos)] != 0:
        return 0, -1
    if type_code == DOCUMENT and filter[pos + 4] != 0 and filter[pos + 5] == 0x24:
        inner: i64 = pos + 4
        type_code = filter[inner]
        if filter[inner + 2] != 0x65 or filter[inner + 3] != 0x71 or filter[inner + 4] != 0:  # "$eq"
            return 0, -1
        pos = inner + 5
        if filter[skip_value(filter, type_code, pos)] != 0:
            return 0, -1
    if type_code == ARRAY or type_code == REGEX or type_code == UNDEFINED:
        return 0, -1
    return type_code, pos


def id_equality(filter: bytes) -> Value:
    """The value v of a filter that is exactly {_id: v} or {_id: {$eq: v}}, or MISSING."""
    type_code, pos = simple_id_filter(filter)
    return MISSING if type_code == 0 else decode_value(filter, type_code, pos)
