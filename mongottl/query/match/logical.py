"""`$and $or $nor $not`."""

from mongottl.document.freeing import LONG, LongList
from mongottl.document.path import FieldPath
from mongottl.document.types import Regex, Value
from mongottl.document.walk import is_empty
from mongottl.query.context import ParseContext
from mongottl.query.match.parser import parse_document, parse_operators
from mongottl.query.match.regex import make_regex
from mongottl.query.match.registry import ANY_TYPE, bad_value, match_operator, root_operator
from mongottl.query.match.tree import (
    AndExpression,
    MatchExpression,
    NorExpression,
    NotExpression,
    OrExpression,
)
from mongottl.versions import OLDEST


def _clauses(operand: Value, name: str, ctx: ParseContext) -> list[MatchExpression]:
    if not isinstance(operand, list):
        raise bad_value(f"{name} must be an array")
    if not operand:
        raise bad_value("$and/$or/$nor must be a nonempty array")
    clauses: list[MatchExpression] = [] if len(operand) < LONG else LongList()
    for entry in operand:
        if not isinstance(entry, bytes):
            raise bad_value("$or/$and/$nor entries need to be full objects")
        clauses.append(parse_document(entry, ctx))
    return clauses


@root_operator("$and", reasons=None, since=OLDEST)
def parse_and(operand: Value, ctx: ParseContext) -> MatchExpression:
    """`{$and: [filter, …]}`. BadValue unless it is a non-empty array of documents."""
    return AndExpression(_clauses(operand, "$and", ctx))


@root_operator("$or", reasons=None, since=OLDEST)
def parse_or(operand: Value, ctx: ParseContext) -> MatchExpression:
    """`{$or: [filter, …]}`. BadValue unless it is a non-empty array of documents."""
    return OrExpression(_clauses(operand, "$or", ctx))


@root_operator("$nor", reasons=None, since=OLDEST)
def parse_nor(operand: Value, ctx: ParseContext) -> MatchExpression:
    """`{$nor: [filter, …]}`. BadValue unless it is a non-empty array of documents."""
    return NorExpression(_clauses(operand, "$nor", ctx))


@match_operator("$not", order=None, reasons=None, types=ANY_TYPE, since=OLDEST)
def parse_not(path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression:
    """`{field: {$not: /regex/ or {operator: …}}}`. BadValue for other operands, and for an empty document."""
    if isinstance(operand, Regex):
        return NotExpression(make_regex(path, operand.pattern, operand.options))
    if not isinstance(operand, bytes):
        raise bad_value("$not needs a regex or a document")
    if is_empty(operand):
        raise bad_value("$not cannot be empty")
    children: list[MatchExpression] = []
    parse_operators(path, operand, children, ctx)
    return NotExpression(AndExpression(children))
