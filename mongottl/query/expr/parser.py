"""Parses values into expression trees.

A string that starts with `$` is a path or a variable, an object whose only field starts with `$` is an operator, other
objects and arrays contain expressions, and all other values are constants.
"""

from typing import Final

from mypy_extensions import i64

from mongottl.document.build import DocumentBuilder, encode_fields
from mongottl.document.copied import COPIED
from mongottl.document.freeing import LONG, LongList, freed_in_slices
from mongottl.document.interrupt import give_way
from mongottl.document.path import check_dollar
from mongottl.document.render import render_value
from mongottl.document.types import MAX_DOCUMENT_BYTES, Missing, Value, type_code_of, type_name
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.expr.base import (
    ALL_FIRST,
    ASSOCIATIVE,
    EXPRESSIONS,
    OPERANDS_MASK,
    OPERANDS_WEIGHT,
    CollatedExpression,
    CollatedInOrderExpression,
    Constant,
    EvaluationContext,
    Expression,
    FunctionExpression,
    InOrderExpression,
    Operator,
    Scope,
    UnaryExpression,
    fold,
    raise_folding_error,
)
from mongottl.query.expr.path import parse_path


class ArrayExpression(Expression):
    """`[a, b]`: an array of the values; null for missing ones."""

    def __init__(self, items: list[Expression]) -> None:
        self.items: Final[list[Expression]] = freed_in_slices(items)

    def evaluate(self, ev: EvaluationContext) -> Value:
        held = ev.held
        copied: i64 = COPIED.bytes
        values: list[Value] = [] if len(self.items) < LONG else LongList()
        for item in self.items:
            value = item.evaluate(ev)
            values.append(None if isinstance(value, Missing) else value)
            if COPIED.bytes != copied or isinstance(value, (str, bytes, list)):
                ev.hold(value, COPIED.bytes - copied)
                copied = COPIED.bytes
            if len(values) & OPERANDS_MASK == 0:
                give_way(OPERANDS_WEIGHT)
        ev.release(held)
        return values

    def operands(self) -> list[Expression]:
        return self.items

    def describe(self) -> Value:
        return [item.describe() for item in self.items]


class ObjectExpression(Expression):
    """`{a: x, b: y}`: a document of the values, without fields whose value is missing."""

    def __init__(self, names: list[str], values: list[Expression]) -> None:
        self.names: Final[list[str]] = freed_in_slices(names)
        self.name_bytes: Final[list[bytes]] = freed_in_slices([encode_text(name) for name in names])
        self.values: Final[list[Expression]] = freed_in_slices(values)

    def evaluate(self, ev: EvaluationContext) -> Value:
        builder = DocumentBuilder()
        names = self.name_bytes
        values = self.values
        held = ev.held
        copied: i64 = COPIED.bytes
        for i in range(len(names)):
            if i & OPERANDS_MASK == OPERANDS_MASK:
                give_way(OPERANDS_WEIGHT)
            builder.append_named(names[i], values[i].evaluate(ev))
            if COPIED.bytes != copied:
                ev.held = held
                ev.hold_bytes(builder.size())
                copied = COPIED.bytes
        ev.held = held
        return builder.finish()

    def operands(self) -> list[Expression]:
        return self.values

    def describe(self) -> Value:
        described: list[tuple[str, Value]] = []
        for i in range(len(self.names)):
            described.append((self.names[i], self.values[i].describe()))
        return encode_fields(described)


def parse_expression(value: Value, ctx: ParseContext, scope: Scope | None = None) -> Expression:
    """The expression tree of a value.

    scope: the variables in scope, for nested expressions; by default only those of `ctx`.
    Errors: InvalidPipelineOperator for an unknown operator, CommandNotSupported for an unsupported one, 15983 for an
    object that mixes an operator with fields, and errors of operators about their arguments.
    """
    node = parse_operand(value, Scope(ctx) if scope is None else scope)
    raise_folding_error(ctx)
    return node


def parse_operand(value: Value, scope: Scope) -> Expression:
    """The expression tree of a value within an operator's argument; errors as those of `parse_expression`."""
    give_way()
    if isinstance(value, str):
        if value.startswith("$"):
            return parse_path(value, scope)
        return Constant(check_string(value))
    if isinstance(value, bytes):
        return _parse_object(value, scope)
    if isinstance(value, list):
        items: list[Expression] = [] if len(value) < LONG else LongList()
        for item in value:
            items.append(parse_operand(item, scope))
        if not items:
            return Constant([])
        return fold(ArrayExpression(items), scope.ctx)
    return Constant(value)


def _parse_object(value: bytes, scope: Scope) -> Expression:
    members = fields(value)
    if not members:
        return Constant(value)
    first = members[0][0]
    if first.startswith("$"):
        if len(members) > 1:
            raise CommandError(
                15983,
                "an object representing an expression must have exactly one field: " + render_value(value),
            )
        return parse_operator(first, members[0][1], scope)
    names: list[str] = []
    seen: set[str] = set()
    nodes: list[Expression] = []
    for name, member in members:
        check_dollar(name)
        check_object_name(name)
        if name in seen:
            raise CommandError(16406, f"duplicate field name specified in object literal: {render_value(value)}")
        seen.add(name)
        names.append(name)
        nodes.append(parse_operand(member, scope))
    return fold(ObjectExpression(names, nodes), scope.ctx)


def check_object_name(name: str) -> None:
    """15998 for an empty field name, 16412 for one with a dot."""
    if name == "":
        raise CommandError(15998, "FieldPath field names may not be empty strings.")
    if "." in name:
        raise CommandError(16412, "FieldPath field names may not contain '.'. Consider using $getField or $setField.")


def parse_operator(name: str, argument: Value, scope: Scope) -> Expression:
    """The tree of `{<name>: <argument>}`."""
    operator = EXPRESSIONS.get(name)
    if scope.ctx.features is not None:
        if scope.ctx.lacks(EXPRESSIONS.kind, name):
            raise _unrecognized(name, EXPRESSIONS.advice(scope.ctx.features, name))
        scope.ctx.check_options(name, argument)
        if operator is None and scope.ctx.features.keeps(EXPRESSIONS.kind, name):
            operator = EXPRESSIONS.removed(name)
    if operator is None:
        reason = EXPRESSIONS.unsupported_reason(name)
        if reason is not None:
            raise CommandError(ErrorCode.CommandNotSupported, f"The expression {name} is not supported: {reason}")
        raise _unrecognized(name)
    if operator.parser is not None:
        return fold(operator.parser(name, argument, scope), scope.ctx)
    arguments = parse_arguments(name, argument, scope, operator.minimum, operator.maximum)
    if operator.unary is not None:
        return fold(UnaryExpression(name, operator.unary, arguments[0]), scope.ctx)
    if operator.grouping >= ASSOCIATIVE and scope.ctx.folding_fails and len(arguments) > 1:
        arguments = _grouped(name, operator, arguments, scope.ctx)
    return fold(_applied(name, operator, arguments, scope.ctx), scope.ctx)


def _applied(name: str, operator: Operator, arguments: list[Expression], ctx: ParseContext) -> Expression:
    if operator.collated is not None:
        if operator.grouping == ALL_FIRST:
            return CollatedExpression(name, operator.collated, arguments, ctx.collation)
        return CollatedInOrderExpression(name, operator.collated, arguments, ctx.collation)
    if operator.function is None:
        raise AssertionError(f"{name} is registered without a body")
    if operator.grouping != ALL_FIRST:
        return InOrderExpression(name, operator.function, arguments, operator.foldable)
    return FunctionExpression(name, operator.function, arguments, operator.foldable)


def _grouped(name: str, operator: Operator, arguments: list[Expression], ctx: ParseContext) -> list[Expression]:
    """The operands of an associative operator as mongod's optimiser leaves them, which decides what is evaluated first.

    Operands that apply the same operator are replaced by theirs, and constants that follow each other by one; those of
    a commutative operator are moved to the end. `{$setUnion: [1, "$missing"]}` is null, not an error.
    """
    flat: list[Expression] = []
    for argument in arguments:
        if isinstance(argument, FunctionExpression) and argument.name == name:
            flat.extend(argument.arguments)
        else:
            flat.append(argument)
    found: list[Expression] = []
    constants: list[Expression] = []
    for node in flat:
        if isinstance(node, Constant):
            constants.append(node)
            continue
        if operator.grouping == ASSOCIATIVE:
            found.extend(_combined(name, operator, constants, ctx))
            constants = []
        found.append(node)
    found.extend(_combined(name, operator, constants, ctx))
    return found


def _combined(name: str, operator: Operator, constants: list[Expression], ctx: ParseContext) -> list[Expression]:
    """Constants replaced by the operator's value for them; unchanged if it fails, which `fold` remembers."""
    if len(constants) < 2:
        return constants
    node = fold(_applied(name, operator, constants, ctx), ctx)
    return [node] if isinstance(node, Constant) else constants


def _unrecognized(name: str, advice: str = "") -> CommandError:
    return CommandError(ErrorCode.InvalidPipelineOperator, f"Unrecognized expression '{name}'", advice=advice)


def parse_arguments(name: str, argument: Value, scope: Scope, minimum: int, maximum: int) -> list[Expression]:
    """The operands of an operator: the elements of an array, or the argument itself as the only one.

    minimum, maximum: allowed number of operands, -1 for any. Errors: 16020 for a wrong number if it is fixed, 28667 if
    it is a range.
    """
    arguments: list[Expression] = []
    if isinstance(argument, list):
        if len(argument) >= LONG:
            arguments = LongList()
        for item in argument:
            arguments.append(parse_operand(item, scope))
    else:
        arguments.append(parse_operand(argument, scope))
    count = len(arguments)
    if minimum == maximum and count != minimum:
        raise CommandError(16020, f"Expression {name} takes exactly {minimum} arguments. {count} were passed in.")
    if count < minimum or (maximum >= 0 and count > maximum):
        if maximum < 0:
            raise CommandError(
                28667, f"Expression {name} takes at least {minimum} arguments, but {count} were passed in."
            )
        raise CommandError(
            28667,
            f"Expression {name} takes at least {minimum} arguments, and at most {maximum}, but {count} were passed in.",
        )
    return arguments


MAX_STRING_BYTES: Final = MAX_DOCUMENT_BYTES


def check_string(text: str) -> str:
    """Returns the text; 16493 if it is longer than a document may be."""
    size = len(text)
    if size * 4 >= MAX_STRING_BYTES and (not text.isascii() or size >= MAX_STRING_BYTES):
        size = len(encode_text(text))
        check_string_bytes(size)
    return text


def check_string_bytes(size: int) -> None:
    """16493 for the size of a text that is longer than a document may be, before it is made."""
    if size >= MAX_STRING_BYTES:
        raise CommandError(16493, "Tried to create string longer than 16MB")


def type_of(value: Value) -> str:
    """The name of a value's type in error messages; "missing" for MISSING."""
    return type_name(type_code_of(value))
