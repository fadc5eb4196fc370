"""`$let`: binds variables within an expression."""

from typing import Final

from mypy_extensions import i64

from mongottl.document.build import encode, encode_array, encode_fields
from mongottl.document.copied import COPIED
from mongottl.document.freeing import LongList
from mongottl.document.interrupt import give_way
from mongottl.document.types import Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError
from mongottl.query.expr.base import OPERANDS_MASK, EvaluationContext, Expression, Scope, expression_parser
from mongottl.query.expr.parser import parse_operand
from mongottl.query.expr.path import check_user_name
from mongottl.versions import OLDEST


class LetExpression(Expression):
    def __init__(self, names: list[str], slots: list[int], values: list[Expression], body: Expression) -> None:
        self.names: Final = names
        self.slots: Final = slots
        self.values: Final = values
        self.body: Final = body

    def evaluate(self, ev: EvaluationContext) -> Value:
        held = ev.held
        copied: i64 = COPIED.bytes
        # The values cannot read each other's variables: the slots are above all slots in scope for them.
        for i in range(len(self.slots)):
            give_way()
            value = self.values[i].evaluate(ev)
            ev.bind(self.slots[i], value)
            if COPIED.bytes != copied or i > OPERANDS_MASK:
                ev.hold(value, COPIED.bytes - copied)
                copied = COPIED.bytes
        held = ev.held - held
        value = self.body.evaluate(ev)
        ev.held -= held
        return value

    def operands(self) -> list[Expression]:
        return [*self.values, self.body]

    def foldable(self) -> bool:
        return False

    def describe(self) -> Value:
        described: list[tuple[str, Value]] = []
        for i in range(len(self.names)):
            described.append((self.names[i], self.values[i].describe()))
        return encode({"$let": {"vars": encode_fields(described), "in": self.body.describe()}})


@expression_parser("$let", since=OLDEST)
def parse_let(name: str, argument: Value, scope: Scope) -> Expression:
    """`{vars: {name: value, …}, in: body}`. 16874 to 16877 for a bad shape, FailedToParse for a bad name."""
    if not isinstance(argument, bytes):
        raise CommandError(16874, "$let only supports an object as its argument")
    variables: Value = None
    body: Value = None
    has_variables = False
    has_body = False
    for key, value in fields(argument):
        if key == "vars":
            variables = value
            has_variables = True
        elif key == "in":
            body = value
            has_body = True
        else:
            raise CommandError(16875, f"Unrecognized parameter to $let: {key}")
    if not has_variables:
        raise CommandError(16876, "Missing 'vars' parameter to $let")
    if not has_body:
        raise CommandError(16877, "Missing 'in' parameter to $let")
    if isinstance(variables, list):
        variables = encode_array(variables)  # its indexes are invalid variable names
    if not isinstance(variables, bytes):
        raise CommandError(10065, "invalid parameter: expected an object (vars)")
    names: list[str] = LongList()
    values: list[Expression] = LongList()
    for variable, value in fields(variables):
        check_user_name(variable)
        names.append(variable)
        # Operators within a value that bind variables must not use the slots of this $let.
        values.append(parse_operand(value, scope.reserve(len(names) - 1)))
    inner = scope.bind(names)
    return LetExpression(names, [inner.slots[key] for key in names], values, parse_operand(body, inner))
