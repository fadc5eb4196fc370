"""Why a document does not match a filter: the `details` of a failed validation.

    validator {a: {$gt: 5}, b: {$exists: true}}, document {_id: 1, a: [1, 2]}

    {operatorName: "$and", clausesNotSatisfied: [
        {index: 0, details: {operatorName: "$gt", specifiedAs: {a: {$gt: 5}}, reason: "comparison failed",
                             consideredValues: [1, 2, [1, 2]]}},
        {index: 1, details: {operatorName: "$exists", specifiedAs: {b: {$exists: true}},
                             reason: "path does not exist"}}]}

Under `$nor` and `$not` the details say why the clause matches. This works on the original filter, so that
`specifiedAs` shows it unchanged. It need not be fast: it runs only when a write has failed.

Source: MongoDB's "Schema Validation" pages and its articles on validation errors, since 5.0.
"""

from typing import Final

from mongottl.document.build import encode_fields
from mongottl.document.collation import Collation
from mongottl.document.freeing import LongList
from mongottl.document.interrupt import give_way
from mongottl.document.path import FieldPath
from mongottl.document.types import MISSING, Regex, Value, type_code_of, type_name
from mongottl.document.walk import fields, get_value
from mongottl.query.context import ParseContext
from mongottl.query.expr import EvaluationContext, parse_expression
from mongottl.query.match.describe_schema_failure import describe_schema_failure
from mongottl.query.match.filter import parse_match
from mongottl.query.match.parser import is_operator_document
from mongottl.query.match.registry import match_operators, root_operators

Details = dict[str, Value]

# The reasons of operators for which MongoDB has none of their own.
_ANY_REASONS: Final = ("expression did not match", "expression did match")
_LISTS: Final = frozenset(("$and", "$or", "$nor"))


class _Clause:
    """One condition. path: "" for a condition on the whole document. specified_as: the condition as a filter."""

    def __init__(self, path: str, operator: str, operand: Value, specified_as: bytes) -> None:
        self.path = path
        self.operator = operator
        self.operand = operand
        self.specified_as = specified_as


def describe_failure(filter: bytes, document: bytes, now_ms: int, collation: Collation | None = None) -> Details:
    """The details of why `document` does not match `filter`."""
    return _describe_all(_clauses_of(filter), document, ParseContext(now_ms, collation=collation), False)


def _clauses_of(filter: bytes) -> list[_Clause]:
    clauses: list[_Clause] = LongList()
    for name, value in fields(filter):
        give_way()
        if name == "$comment":
            continue
        if name.startswith("$"):
            clauses.append(_Clause("", name, value, encode_fields([(name, value)])))
        elif isinstance(value, bytes) and is_operator_document(value):
            _add_operators(name, value, clauses)
        else:
            operator = "$regex" if isinstance(value, Regex) else "$eq"
            clauses.append(_Clause(name, operator, value, encode_fields([(name, value)])))
    return clauses


def _add_operators(path: str, operators: bytes, clauses: list[_Clause]) -> None:
    pairs = fields(operators)
    for name, operand in pairs:
        if name == "$options" or name == "$comment":
            continue
        described: list[tuple[str, Value]] = [(name, operand)]
        if name == "$regex":
            described = [(other, value) for other, value in pairs if other in ("$regex", "$options")]
        clauses.append(_Clause(path, name, operand, encode_fields([(path, encode_fields(described))])))


def _describe_all(clauses: list[_Clause], document: bytes, ctx: ParseContext, inverted: bool) -> Details:
    """The details of the clauses that fail, in the form of `$and`; of a single clause, its own details."""
    if len(clauses) == 1:
        return _describe(clauses[0], document, ctx, inverted)
    found: list[Value] = LongList()
    for index, clause in enumerate(clauses):
        give_way()
        if parse_match(clause.specified_as, ctx).matches(document) == inverted:
            found.append(_indexed(index, _describe(clause, document, ctx, inverted)))
    return {"operatorName": "$and", "clausesSatisfied" if inverted else "clausesNotSatisfied": found}


def _indexed(index: int, details: Details) -> Value:
    return {"index": index, "details": details}


def _describe(clause: _Clause, document: bytes, ctx: ParseContext, inverted: bool) -> Details:
    operator = clause.operator
    if operator in _LISTS:
        return _describe_list(operator, clause.operand, document, ctx, inverted)
    if operator == "$not":
        child = encode_fields([(clause.path, clause.operand)])
        return {"operatorName": "$not", "details": _describe_all(_clauses_of(child), document, ctx, not inverted)}
    if operator == "$jsonSchema" and not inverted:
        assert isinstance(clause.operand, bytes)
        return describe_schema_failure(clause.operand, document)
    details: Details = {"operatorName": operator, "specifiedAs": clause.specified_as}
    root = root_operators.get(operator)
    if operator == "$jsonSchema":
        details["reason"] = "schema matched"
    elif root is not None and root.reasons is not None:
        details["reason"] = root.reasons[1 if inverted else 0]
        if operator == "$expr":
            details["expressionResult"] = _result_of(clause.operand, document, ctx)
    else:
        _add_reason(clause, document, inverted, details)
    return details


def _describe_list(operator: str, operand: Value, document: bytes, ctx: ParseContext, inverted: bool) -> Details:
    """`$and` and `$or` show the clauses that fail, `$nor` those that match."""
    assert isinstance(operand, list)
    wanted = inverted != (operator == "$nor")
    found: list[Value] = LongList()
    for index, part in enumerate(operand):
        give_way()
        assert isinstance(part, bytes)
        if parse_match(part, ctx).matches(document) == wanted:
            found.append(_indexed(index, _describe_all(_clauses_of(part), document, ctx, wanted)))
    return {"operatorName": operator, "clausesSatisfied" if wanted else "clausesNotSatisfied": found}


def _result_of(expression: Value, document: bytes, ctx: ParseContext) -> Value:
    evaluation = EvaluationContext()
    evaluation.root = document
    value = parse_expression(expression, ctx).evaluate(evaluation)
    return None if value is MISSING else value


def _add_reason(clause: _Clause, document: bytes, inverted: bool, details: Details) -> None:
    """Adds the reason of a condition on a path, and the values at the path."""
    operator = clause.operator
    declared = match_operators.get(operator)
    values = reached_values(FieldPath(clause.path), document, declared is None or not declared.whole_arrays)
    if not values and operator != "$exists" and not inverted:
        details["reason"] = "field was missing"
        return
    types: list[str] = []
    for value in values:
        give_way()
        name = type_name(type_code_of(value))
        if name not in types:
            types.append(name)
    expected = () if declared is None else declared.types
    wrong_type = bool(expected) and not inverted and not any(name in expected for name in types)
    if wrong_type:
        details["reason"] = "type did not match"
    else:
        reasons = None if declared is None else declared.reasons
        normal, turned = _ANY_REASONS if reasons is None else reasons
        if operator == "$exists" and values:
            normal, turned = turned, turned
        details["reason"] = turned if inverted else normal
    if operator == "$exists":
        return
    if len(values) == 1:
        details["consideredValue"] = values[0]
    elif values:
        details["consideredValues"] = values
    if operator == "$type" or wrong_type:
        if len(types) == 1:
            details["consideredType"] = types[0]
        else:
            considered_types: list[Value] = [*sorted(types)]
            details["consideredTypes"] = considered_types
    if wrong_type:
        if len(expected) == 1:
            details["expectedType"] = expected[0]
        else:
            wanted: list[Value] = [*expected]
            details["expectedTypes"] = wanted


def reached_values(path: FieldPath, document: bytes, traverse_leaf: bool) -> list[Value]:
    """The values at a path, by the rules of `match.tree`; none if it is missing."""
    found: list[Value] = LongList()
    _reach(path, 0, document, traverse_leaf, found)
    return found


def _reach(path: FieldPath, part: int, document: bytes, traverse_leaf: bool, found: list[Value]) -> None:
    value = get_value(document, path.parts[part])
    if value is MISSING:
        return
    if part + 1 < path.depth:
        if isinstance(value, bytes):
            _reach(path, part + 1, value, traverse_leaf, found)
        elif isinstance(value, list):
            _reach_within(path, part + 1, value, traverse_leaf, found)
        return
    if isinstance(value, list) and traverse_leaf:
        for element in value:
            give_way()
            found.append(element)
    found.append(value)


def _reach_within(path: FieldPath, part: int, array: list[Value], traverse_leaf: bool, found: list[Value]) -> None:
    wanted = int(path.indexes[part])
    for index, element in enumerate(array):
        give_way()
        if isinstance(element, bytes):
            _reach(path, part, element, traverse_leaf, found)
        if index != wanted:
            continue
        if part + 1 == path.depth:
            found.append(element)
        elif isinstance(element, bytes):
            _reach(path, part + 1, element, traverse_leaf, found)
        elif isinstance(element, list):
            _reach_within(path, part + 1, element, traverse_leaf, found)
