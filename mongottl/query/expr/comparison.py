"""`$eq $ne $gt $gte $lt $lte $cmp`: MongoDB's order of values, across types, without array fan-out."""

from typing import Final

from mypy_extensions import i64

from mongottl.document.build import encode
from mongottl.document.collation import Collation
from mongottl.document.compare import compare_values
from mongottl.document.copied import COPIED
from mongottl.document.types import Value
from mongottl.query.expr.base import EvaluationContext, Expression, Scope, expression_parser
from mongottl.query.expr.parser import parse_arguments
from mongottl.versions import OLDEST

EQ: Final = 0
NE: Final = 1
GT: Final = 2
GTE: Final = 3
LT: Final = 4
LTE: Final = 5
CMP: Final = 6

_OPERATORS: Final[dict[str, int]] = {
    "$eq": EQ,
    "$ne": NE,
    "$gt": GT,
    "$gte": GTE,
    "$lt": LT,
    "$lte": LTE,
    "$cmp": CMP,
}


class ComparisonExpression(Expression):
    def __init__(self, name: str, left: Expression, right: Expression, collation: Collation | None) -> None:
        self.name: Final = name
        self.operator: Final[i64] = _OPERATORS[name]
        self.left: Final = left
        self.right: Final = right
        self.collation: Final = collation

    def evaluate(self, ev: EvaluationContext) -> Value:
        copied: i64 = COPIED.bytes
        left = self.left.evaluate(ev)
        if COPIED.bytes == copied:
            right = self.right.evaluate(ev)
        else:
            held = ev.held
            ev.hold(left, COPIED.bytes - copied)
            right = self.right.evaluate(ev)
            ev.held = held
        order = compare_values(left, right, self.collation)
        operator = self.operator
        if operator == EQ:
            return order == 0
        if operator == GT:
            return order > 0
        if operator == GTE:
            return order >= 0
        if operator == LT:
            return order < 0
        if operator == LTE:
            return order <= 0
        if operator == NE:
            return order != 0
        return int(order)

    def operands(self) -> list[Expression]:
        return [self.left, self.right]

    def describe(self) -> Value:
        return encode({self.name: [self.left.describe(), self.right.describe()]})


def _parse_comparison(name: str, argument: Value, scope: Scope) -> Expression:
    operands = parse_arguments(name, argument, scope, 2, 2)
    return ComparisonExpression(name, operands[0], operands[1], scope.ctx.collation)


for _name in _OPERATORS:
    expression_parser(_name, since=OLDEST)(_parse_comparison)
