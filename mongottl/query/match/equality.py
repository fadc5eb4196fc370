"""What an upsert takes over from its filter: the paths that the filter binds to one value each."""

from mongottl.document.disjoint_paths import DisjointPaths
from mongottl.document.path import FieldPath
from mongottl.document.types import MISSING, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.match.comparison import EQ, ComparisonExpression
from mongottl.query.match.tree import AndExpression, MatchExpression


def equality_fields(expression: MatchExpression) -> list[tuple[FieldPath, Value]]:
    """(path, value) of each equality that must hold, in the filter's order.

    Counted are equalities at the top and under `$and`, `$in` and `$or` with a single branch, and each value of `$all`.
    Raises NotSingleValueField (54) if a path is bound twice, or if one bound path lies inside another.
    """
    found: list[tuple[FieldPath, Value]] = []
    _collect(expression, "", found, DisjointPaths())
    return found


def id_equality_of(expression: MatchExpression) -> Value:
    """The value that a filter binds `_id` to, by equalities as in `equality_fields`; MISSING if it binds none.

    Equalities of other paths do not matter, not even conflicting ones. Raises NotExactValueField (111) for one of a
    path inside `_id`, NotSingleValueField (54) if `_id` is bound twice.
    """
    found: list[tuple[FieldPath, Value]] = []
    _collect(expression, "_id", found, DisjointPaths())
    return found[0][1] if found else MISSING


def _collect(
    expression: MatchExpression, root: str, found: list[tuple[FieldPath, Value]], paths: DisjointPaths
) -> None:
    """root: the root field to whose paths the search is limited, "" for all."""
    if isinstance(expression, AndExpression):
        for child in expression.children:
            _collect(child, root, found, paths)
    elif isinstance(expression, ComparisonExpression) and expression.operator == EQ:
        path = expression.path
        if root not in ("", path.parts[0]):
            return
        if root and path.depth > 1:
            raise CommandError(
                ErrorCode.NotExactValueField,
                f"field at '{root}' must be exactly specified, field at sub-path '{path.dotted}' found",
            )
        dotted = path.dotted
        other = paths.add(dotted)
        if other == dotted:
            raise CommandError(
                ErrorCode.NotSingleValueField,
                f"cannot infer query fields to set, path '{dotted}' is matched twice",
            )
        if other:
            raise CommandError(
                ErrorCode.NotSingleValueField,
                f"cannot infer query fields to set, both paths '{other}' and '{dotted}' are matched",
            )
        found.append((path, expression.value))
