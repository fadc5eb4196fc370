"""Operators on documents: `$arrayToObject $getField $mergeObjects $objectToArray $setField $unsetField`."""

from typing import Final

from mypy_extensions import i64

from mongottl.document.build import DocumentBuilder, encode
from mongottl.document.copied import COPIED
from mongottl.document.freeing import LONG_BYTES, LongList
from mongottl.document.interrupt import give_way, give_way_after
from mongottl.document.render import render_result, render_value
from mongottl.document.types import MISSING, Missing, Value
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import ElementCursor, fields, get_value
from mongottl.errors import CommandError
from mongottl.query.expr.accumulators import MergeObjectsState
from mongottl.query.expr.base import (
    Constant,
    EvaluationContext,
    Expression,
    NamedExpression,
    Scope,
    expression,
    expression_parser,
    is_nullish,
    unary_expression,
)
from mongottl.query.expr.parser import parse_operand, type_of
from mongottl.versions import OLDEST


@expression("$mergeObjects", 0, -1, since=OLDEST)
def merge_objects(values: list[Value]) -> Value:
    """`[a, b, …]`, or one argument that is an array of documents."""
    state = MergeObjectsState(40400)
    only = values[0] if len(values) == 1 else None
    for value in only if isinstance(only, list) else values:
        give_way()
        state.add(value)
    return state.result()


@unary_expression("$objectToArray", since=OLDEST)
def object_to_array(value: Value) -> Value:
    """`[{k, v}, …]`."""
    if is_nullish(value):
        return None
    if not isinstance(value, bytes):
        raise CommandError(40390, f"$objectToArray requires a document input, found: {type_of(value)}")
    pairs: list[Value] = [] if len(value) < LONG_BYTES else LongList()
    cursor = ElementCursor(value, 0)
    while cursor.next():
        builder = DocumentBuilder()
        builder.append("k", cursor.name())
        builder.append_raw(b"v", cursor.type_code, value, cursor.value, cursor.end)
        pairs.append(builder.finish())
    give_way_after(len(value))
    return pairs


@unary_expression("$arrayToObject", since=OLDEST)
def array_to_object(value: Value) -> Value:
    """`[[key, value], …]` or `[{k, v}, …]`; of equal keys the last one is used. Codes 40386 to 40398."""
    if is_nullish(value):
        return None
    if not isinstance(value, list):
        raise CommandError(40386, f"$arrayToObject requires an array input, found: {type_of(value)}")
    found: dict[str, Value] = {}
    if value and not isinstance(value[0], (list, bytes)):
        raise CommandError(40398, f"Unrecognised input type format for $arrayToObject: {type_of(value[0])}")
    pairs = bool(value) and isinstance(value[0], list)
    for item in value:
        give_way()
        key, member = _pair(item) if pairs else _key_value(item)
        found[key] = member
    document = encode(found)
    give_way_after(len(document))
    return document


def _pair(item: Value) -> tuple[str, Value]:
    if not isinstance(item, list):
        raise CommandError(
            40396,
            f"$arrayToObject requires a consistent input format. Elements must all be arrays or all be objects. "
            f"Array was detected, now found: {type_of(item)}",
        )
    if len(item) != 2:
        raise CommandError(40397, f"$arrayToObject requires an array of size 2 arrays,found array of size: {len(item)}")
    key = item[0]
    if not isinstance(key, str):
        raise CommandError(
            40395,
            f"$arrayToObject requires an array of key-value pairs, where the key must be of type string. "
            f"Found key type: {type_of(key)}",
        )
    if "\0" in key:
        raise CommandError(4940400, "Key field cannot contain an embedded null byte")
    return key, item[1]


def _key_value(item: Value) -> tuple[str, Value]:
    if not isinstance(item, bytes):
        raise CommandError(
            40391,
            f"$arrayToObject requires a consistent input format. Elements must all be arrays or all be objects. "
            f"Object was detected, now found: {type_of(item)}",
        )
    members = fields(item)
    if len(members) != 2:
        raise CommandError(
            40392,
            f"$arrayToObject requires an object keys of 'k' and 'v'. Found incorrect number of keys:{len(members)}",
        )
    key = get_value(item, "k")
    member = get_value(item, "v")
    if isinstance(key, Missing) or isinstance(member, Missing):
        raise CommandError(
            40393,
            f"$arrayToObject requires an object with keys 'k' and 'v'. Missing either or both keys from: "
            f"{render_result(item)}",
        )
    if not isinstance(key, str):
        raise CommandError(
            40394,
            f"$arrayToObject requires an object with keys 'k' and 'v', where the value of 'k' must be of type "
            f"string. Found type: {type_of(key)}",
        )
    if "\0" in key:
        raise CommandError(4940401, "Key field cannot contain an embedded null byte")
    return key, member


class GetFieldExpression(NamedExpression):
    def __init__(self, field: Expression, input: Expression) -> None:
        super().__init__("$getField", {"field": field, "input": input})
        self.field: Final = field
        self.input: Final = input

    def evaluate(self, ev: EvaluationContext) -> Value:
        name = self.field.evaluate(ev)
        if not isinstance(name, str):
            raise CommandError(
                3041704, f"$getField requires 'field' to evaluate to type String, but got {type_of(name)}"
            )
        value = self.input.evaluate(ev)
        if isinstance(value, bytes):
            return get_value(value, name)
        return None if is_nullish(value) and not isinstance(value, Missing) else MISSING


@expression_parser("$getField", since=(5, 0))
def parse_get_field(name: str, argument: Value, scope: Scope) -> Expression:
    """`{field, input}`, or the field alone, of the current document. Codes 3041701 to 3041704."""
    field: Value = argument
    source: Expression | None = None
    if isinstance(argument, bytes) and not (fields(argument) and fields(argument)[0][0].startswith("$")):
        raw: dict[str, Value] = {}
        for key, value in fields(argument):
            if key not in ("field", "input"):
                raise CommandError(3041701, f"$getField found an unknown argument: {key}")
            raw[key] = value
        if "field" not in raw:
            raise CommandError(3041702, "$getField requires 'field' to be specified")
        if "input" not in raw:
            raise CommandError(3041703, "$getField requires 'input' to be specified")
        field = raw["field"]
        source = parse_operand(raw["input"], scope)
    node = parse_operand(field, scope)
    if isinstance(node, Constant) and not isinstance(node.value, str):
        raise CommandError(
            3041704, f"$getField requires 'field' to evaluate to type String, but got {type_of(node.value)}"
        )
    if source is None:
        source = parse_operand("$$CURRENT", scope)
    return GetFieldExpression(node, source)


class SetFieldExpression(NamedExpression):
    """`$setField` and `$unsetField`. If the value is MISSING, the field is removed."""

    def __init__(self, name: str, parameters: dict[str, Expression], field: str) -> None:
        super().__init__(name, parameters)
        self.input: Final = parameters["input"]
        self.value: Final = parameters.get("value")
        self.field_bytes: Final = encode_text(field)

    def evaluate(self, ev: EvaluationContext) -> Value:
        held = ev.held
        copied: i64 = COPIED.bytes
        source = self.input.evaluate(ev)
        if COPIED.bytes != copied:
            ev.hold(source, COPIED.bytes - copied)
        value = MISSING if self.value is None else self.value.evaluate(ev)
        ev.held = held
        if is_nullish(source):
            return None
        if not isinstance(source, bytes):
            raise CommandError(4161105, f"{self.name} requires 'input' to evaluate to type Object")
        return with_field(source, self.field_bytes, value)


def with_field(doc: bytes, name: bytes, value: Value) -> bytes:
    """The document with a root field set, in its position or at the end; MISSING removes the field."""
    builder = DocumentBuilder()
    cursor = ElementCursor(doc, 0)
    seen = False
    while cursor.next():
        if not cursor.name_is(name):
            builder.append_raw_element(cursor.raw_element())
        elif not seen:
            seen = True
            builder.append_named(name, value)
    if not seen:
        builder.append_named(name, value)
    return builder.finish()


def _parse_set_field(name: str, argument: Value, scope: Scope, keys: list[tuple[str, int]]) -> Expression:
    if not isinstance(argument, bytes):
        raise CommandError(4161100, f"{name} only supports an object as its argument")
    raw: dict[str, Value] = {}
    known = [key for key, _ in keys]
    for key, value in fields(argument):
        if key not in known:
            raise CommandError(4161101, f"{name} found an unknown argument: {key}")
        raw[key] = value
    for key, code in keys:
        if key not in raw:
            raise CommandError(code, f"{name} requires '{key}' to be specified")
    field = raw["field"]
    if isinstance(field, str) and field.startswith("$"):
        raise CommandError(
            4161108, f"{name} requires 'field' to evaluate to a constant, but got a field path or variable: {field}"
        )
    node = parse_operand(field, scope)
    if isinstance(field, list) or (isinstance(field, bytes) and len(field) > 5 and not _is_literal(field)):
        raise CommandError(4161106, f"{name} requires 'field' to evaluate to a constant, but got {render_value(field)}")
    if not isinstance(node, Constant):
        raise CommandError(4161106, f"{name} requires 'field' to evaluate to a constant, but got {render_value(field)}")
    if not isinstance(node.value, str):
        raise CommandError(
            4161107, f"{name} requires 'field' to evaluate to type String, but got {type_of(node.value)}"
        )
    if "\0" in node.value:
        raise CommandError(9534700, f"{name} requires 'field' without a null character")
    parameters: dict[str, Expression] = {"field": node, "input": parse_operand(raw["input"], scope)}
    if "value" in raw:
        parameters["value"] = parse_operand(raw["value"], scope)
    return SetFieldExpression(name, parameters, node.value)


def _is_literal(field: bytes) -> bool:
    """Whether a value that is not empty is a constant as it stands, without evaluating operators on constants."""
    return fields(field)[0][0] in ("$literal", "$const")


@expression_parser("$setField", since=(5, 0))
def parse_set_field(name: str, argument: Value, scope: Scope) -> Expression:
    """`{field, input, value}`: the field is a constant name, dots and dollars included. Codes 4161100 to 4161109."""
    return _parse_set_field(name, argument, scope, [("field", 4161102), ("value", 4161103), ("input", 4161109)])


@expression_parser("$unsetField", since=(5, 0))
def parse_unset_field(name: str, argument: Value, scope: Scope) -> Expression:
    """`{field, input}`."""
    return _parse_set_field(name, argument, scope, [("field", 4161102), ("input", 4161109)])
