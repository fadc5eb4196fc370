"""Equalities of a filter, which an upsert copies into the new document."""

from mongottl.document.disjoint_paths import DisjointPaths
from mongottl.document.freeing import freed_in_slices
from mongottl.document.interrupt import give_way
from mongottl.document.path import FieldPath
from mongottl.document.types import MISSING, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.match.comparison import EQ, ComparisonExpression
from mongottl.query.match.tree import AndExpression, MatchExpression


def equality_fields(expression: MatchExpression) -> list[tuple[FieldPath, Value]]:
    """(path, value) of each equality that must hold, in the filter's order.

    Included are equalities at the top level and under `$and`, `$in` and `$or` with a single branch, and values of
    `$all`. Raises NotSingleValueField (54) if a path occurs twice, or if one path is a prefix of another.
    """
    found: list[tuple[FieldPath, Value]] = []
    _collect(expression, "", found, DisjointPaths())
    return freed_in_slices(found)


def id_equality_of(expression: MatchExpression) -> Value:
    """The value that `_id` must equal, by the rules of `equality_fields`; MISSING if there is none.

    Equalities of other paths are ignored, even conflicting ones. Raises NotExactValueField (111) for an equality of a
    path inside `_id`, NotSingleValueField (54) for two equalities of `_id`.
    """
    found: list[tuple[FieldPath, Value]] = []
    _collect(expression, "_id", found, DisjointPaths())
    return found[0][1] if found else MISSING


def _collect(
    expression: MatchExpression, root: str, found: list[tuple[FieldPath, Value]], paths: DisjointPaths
) -> None:
    """Collects the equalities that an expression requires.

    root: collect only paths of this root field; "" for all.
    """
    give_way()
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
