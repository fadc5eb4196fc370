"""What an upsert takes over from its filter: the paths that the filter binds to one value each."""

from mongottl.document.path import FieldPath
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.match.comparison import EQ, ComparisonExpression
from mongottl.query.match.tree import AndExpression, MatchExpression


def equality_fields(expression: MatchExpression) -> list[tuple[FieldPath, Value]]:
    """(path, value) of each equality that must hold, in the filter's order.

    Counted are equalities at the top and under `$and`, `$in` and `$or` with a single branch, and each value of `$all`.
    Raises NotSingleValueField (54) if a path is bound twice, or if one bound path lies inside another.
    """
    found: list[tuple[FieldPath, Value]] = []
    _collect(expression, found)
    return found


def _collect(expression: MatchExpression, found: list[tuple[FieldPath, Value]]) -> None:
    if isinstance(expression, AndExpression):
        for child in expression.children:
            _collect(child, found)
    elif isinstance(expression, ComparisonExpression) and expression.operator == EQ:
        _check_conflicts(expression.path, found)
        found.append((expression.path, expression.value))


def _check_conflicts(path: FieldPath, found: list[tuple[FieldPath, Value]]) -> None:
    for other, _ in found:
        if other.dotted == path.dotted:
            raise CommandError(
                ErrorCode.NotSingleValueField,
                f"cannot infer query fields to set, path '{path.dotted}' is matched twice",
            )
        if other.dotted.startswith(path.dotted + ".") or path.dotted.startswith(other.dotted + "."):
            raise CommandError(
                ErrorCode.NotSingleValueField,
                f"cannot infer query fields to set, both paths '{other.dotted}' and '{path.dotted}' are matched",
            )
