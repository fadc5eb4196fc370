"""`$and $or $not`: on values of any type, converted to booleans."""

from typing import Final

from mongottl.document.build import encode
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
from mongottl.query.expr.parser import parse_arguments


class AndExpression(Expression):
    def __init__(self, arguments: list[Expression]) -> None:
        self.arguments: Final = arguments

    def evaluate(self, ev: EvaluationContext) -> Value:
        return all(is_true(argument.evaluate(ev)) for argument in self.arguments)

    def operands(self) -> list[Expression]:
        return self.arguments

    def describe(self) -> Value:
        return encode({"$and": [argument.describe() for argument in self.arguments]})


class OrExpression(Expression):
    def __init__(self, arguments: list[Expression]) -> None:
        self.arguments: Final = arguments

    def evaluate(self, ev: EvaluationContext) -> Value:
        return any(is_true(argument.evaluate(ev)) for argument in self.arguments)

    def operands(self) -> list[Expression]:
        return self.arguments

    def describe(self) -> Value:
        return encode({"$or": [argument.describe() for argument in self.arguments]})


@expression_parser("$and")
def parse_and(name: str, argument: Value, scope: Scope) -> Expression:
    """`[a, b, …]`: true unless an operand is false. The list ends at a constant that decides the result."""
    arguments: list[Expression] = []
    for operand in parse_arguments(name, argument, scope, 0, -1):
        if isinstance(operand, Constant) and is_true(operand.value):
            continue
        arguments.append(operand)
        if isinstance(operand, Constant):
            break
    return AndExpression(arguments) if arguments else Constant(True)


@expression_parser("$or")
def parse_or(name: str, argument: Value, scope: Scope) -> Expression:
    """`[a, b, …]`: true if an operand is true. The list ends at a constant that decides the result."""
    arguments: list[Expression] = []
    for operand in parse_arguments(name, argument, scope, 0, -1):
        if isinstance(operand, Constant) and not is_true(operand.value):
            continue
        arguments.append(operand)
        if isinstance(operand, Constant):
            break
    return OrExpression(arguments) if arguments else Constant(False)


@unary_expression("$not")
def evaluate_not(value: Value) -> Value:
    return not is_true(value)
