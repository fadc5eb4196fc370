"""Ranges of values from `$expr`: comparisons of a path with a constant, alone or under `$and`.

    {$expr: {$and: [{$eq: ["$a", 5]}, {$lt: ["$b.c", "$$limit"]}]}}     a: [5, 5]; b.c: everything less than the limit

Expressions compare across types and compare arrays as whole values. So the ranges reach from the lowest value or to the
highest, and may be used only if the index has no arrays on the path. A missing field is less than every constant here;
the index stores it as null, which is less too. The expression itself is also tested on the documents.
"""

from typing import Final

from mongottl.document.collation import Collation, with_keys
from mongottl.document.types import Date, Decimal128, MaxKey, MinKey, ObjectId, Timestamp, Value
from mongottl.query.expr import Constant, Expression
from mongottl.query.expr.boolean import AndExpression
from mongottl.query.expr.comparison import EQ, GT, GTE, LT, LTE, ComparisonExpression
from mongottl.query.expr.path import FieldExpression, FieldPathExpression
from mongottl.query.match.interval import Interval, point

_MIRRORED: Final[dict[int, int]] = {EQ: EQ, GT: LT, GTE: LTE, LT: GT, LTE: GTE}


class ComparedPath:
    """One comparison of a path with a constant.

    exists: whether it is false where the path is missing. texts: whether its range depends on `collation`.
    """

    def __init__(self, path: str, interval: Interval, exists: bool, texts: bool, collation: Collation | None) -> None:
        self.path = path
        self.interval = interval
        self.exists = exists
        self.texts = texts
        self.collation = collation


def compared_paths(expression: Expression) -> list[ComparedPath]:
    """The comparisons with constants that must all be true for the expression to be true."""
    if isinstance(expression, AndExpression):
        found: list[ComparedPath] = []
        for argument in expression.arguments:
            found.extend(compared_paths(argument))
        return found
    if not isinstance(expression, ComparisonExpression) or int(expression.operator) not in _MIRRORED:
        return []
    operator = int(expression.operator)
    left = expression.left
    right = expression.right
    if isinstance(left, Constant):
        left, right = right, left
        operator = _MIRRORED[operator]
    path = _path_of(left)
    if not path or not isinstance(right, Constant) or not _is_plain(right.value):
        return []
    collation = expression.collation
    interval = _interval(operator, with_keys(right.value, collation))
    exists = operator in (EQ, GT, GTE)
    return [ComparedPath(path, interval, exists, isinstance(right.value, str), collation)]


def _path_of(expression: Expression) -> str:
    if isinstance(expression, FieldExpression):
        return expression.name
    return expression.path.dotted if isinstance(expression, FieldPathExpression) else ""


def _is_plain(value: Value) -> bool:
    """Whether missing, null and undefined are all less than a value, and it is no document or array."""
    return isinstance(value, (bool, int, float, str, Decimal128, Date, ObjectId, Timestamp))


def _interval(operator: int, value: Value) -> Interval:
    if operator == EQ:
        return point(value, exact=False)
    if operator in (GT, GTE):
        return Interval(value, operator == GTE, MaxKey(), True, exact=False)
    return Interval(MinKey(), True, value, operator == LTE, exact=False)
