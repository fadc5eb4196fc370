"""`$and $or $not`: on values of any type, converted to booleans."""

from typing import Final

from mongottl.document.build import encode
from mongottl.document.freeing import LongList
from mongottl.document.interrupt import give_way
from mongottl.document.numbers import is_true
from mongottl.document.types import Value
from mongottl.query.expr.base import (
    Constant,
    EvaluationContext,
    Expression,
    Scope,
    expression_parser,
    unary_expression,
)
from mongottl.query.expr.parser import parse_operand
from mongottl.versions import OLDEST


class AndExpression(Expression):
    def __init__(self, arguments: list[Expression]) -> None:
        self.arguments: Final = arguments

    def evaluate(self, ev: EvaluationContext) -> Value:
        for argument in self.arguments:
            give_way()
            if not is_true(argument.evaluate(ev)):
                return False
        return True

    def operands(self) -> list[Expression]:
        return self.arguments

    def describe(self) -> Value:
        return encode({"$and": [argument.describe() for argument in self.arguments]})


class OrExpression(Expression):
    def __init__(self, arguments: list[Expression]) -> None:
        self.arguments: Final = arguments

    def evaluate(self, ev: EvaluationContext) -> Value:
        for argument in self.arguments:
            give_way()
            if is_true(argument.evaluate(ev)):
                return True
        return False

    def operands(self) -> list[Expression]:
        return self.arguments

    def describe(self) -> Value:
        return encode({"$or": [argument.describe() for argument in self.arguments]})


@expression_parser("$and", since=OLDEST)
def parse_and(name: str, argument: Value, scope: Scope) -> Expression:
    """`[a, b, …]`: true unless an operand is false. With a constant false operand it is constant."""
    arguments = _undecided(argument, scope, False)
    return Constant(False) if arguments is None else AndExpression(arguments) if arguments else Constant(True)


@expression_parser("$or", since=OLDEST)
def parse_or(name: str, argument: Value, scope: Scope) -> Expression:
    """`[a, b, …]`: true if an operand is true. With a constant true operand it is constant."""
    arguments = _undecided(argument, scope, True)
    return Constant(True) if arguments is None else OrExpression(arguments) if arguments else Constant(False)


def _undecided(argument: Value, scope: Scope, deciding: bool) -> list[Expression] | None:
    """The operands that are not constant; None if one is a constant of the truth value that decides the result.

    The operands after such a constant are parsed, but nothing evaluates them, so operators among them may fail on their
    constants.
    """
    operands: list[Value] = argument if isinstance(argument, list) else [argument]
    ctx = scope.ctx
    arguments: list[Expression] = LongList()
    decided = False
    folding_error = ctx.folding_error
    for operand in operands:
        node = parse_operand(operand, scope)
        if decided:
            continue
        if not isinstance(node, Constant):
            arguments.append(node)
        elif is_true(node.value) == deciding:
            decided = True
            folding_error = ctx.folding_error
    if not decided:
        return arguments
    ctx.folding_error = folding_error
    return None


@unary_expression("$not", since=OLDEST)
def evaluate_not(value: Value) -> Value:
    return not is_true(value)
