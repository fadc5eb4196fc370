"""A `$reduce` that appends to `$$value` in place has the results and errors of plain evaluation."""

from typing import Any

import bson
from hypothesis import given
from hypothesis import strategies as st

from mongottl.document.build import encode
from mongottl.document.walk import get_value
from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.expr import EvaluationContext, parse_expression

SCALARS: Any = st.one_of(
    st.none(), st.integers(0, 3), st.sampled_from([1.0, "", "a", "é", "\udcc3", "\udca9", bson.Int64(1)])
)
DOCUMENTS: Any = st.dictionaries(st.sampled_from(["a", "b", "c"]), SCALARS, max_size=3)
VALUES: Any = st.one_of(SCALARS, st.lists(SCALARS, max_size=3), DOCUMENTS)
TEXTS: Any = st.sampled_from(["", "a", "é", "\udcc3", "\udca9", "a\udcc3", "\udca9b"])
OF_A_KIND: Any = st.one_of(TEXTS, st.lists(SCALARS, max_size=3), DOCUMENTS)

# Operands after `$$value`, some of which refer to it, end the evaluation with null, or fail.
OPERANDS: Any = st.sampled_from(
    [
        "$$this",
        "$$value",
        ["$$this"],
        [["$$value"]],
        {"x": "$$this"},
        {"$toString": "$$this"},
        {"$ifNull": ["$$this", []]},
        {"$divide": [1, "$$this"]},
        "$missing",
        {"$cond": [{"$in": ["$$this", {"$cond": [{"$isArray": "$$value"}, "$$value", []]}]}, [], ["$$this"]]},
        {"$reduce": {"input": "$docs", "initialValue": "$$value", "in": {"$concatArrays": ["$$value", ["$$this"]]}}},
        {"$reduce": {"input": "$docs", "initialValue": [], "in": {"$concatArrays": ["$$value", [1]]}}},
    ]
)
OPERATORS: Any = st.sampled_from(["$concatArrays", "$concat", "$mergeObjects", "$setUnion"])


def appended(operator: str, operands: list[Any]) -> dict[str, Any]:
    return {operator: ["$$value", *operands]}


APPENDED: Any = st.builds(appended, OPERATORS, st.lists(OPERANDS, max_size=3))
BODIES: Any = st.one_of(
    APPENDED,
    st.builds(lambda body: {"$cond": [{"$gt": ["$$this", 1]}, body, "$$value"]}, APPENDED),
    st.builds(lambda body: {"$cond": [{"$gt": ["$$this", 1]}, "$$this", body]}, APPENDED),
    st.builds(lambda a, b: {"$cond": [{"$gt": ["$$this", 1]}, a, b]}, APPENDED, APPENDED),
    st.builds(lambda body: {"$let": {"vars": {"v": "$$value"}, "in": body}}, APPENDED),
    st.builds(
        lambda body: {"$switch": {"branches": [{"case": {"$eq": ["$$this", 1]}, "then": body}], "default": "$docs"}},
        APPENDED,
    ),
)


def evaluated(expression: object, document: dict[str, Any]) -> object:
    """The BSON of the value, or the error."""
    operators: dict[str, Any] = {"v": expression}
    try:
        tree = parse_expression(get_value(encode(operators), "v"), ParseContext(1_700_000_000_123))
        return encode({"v": tree.evaluate(EvaluationContext(encode(document)))})
    except CommandError as error:
        return error.code, error.message


@given(st.lists(VALUES, max_size=6) | st.lists(TEXTS, max_size=6), st.one_of(VALUES, OF_A_KIND), BODIES)
def test_appending_is_plain_evaluation(input: list[Any], initial: Any, body: Any) -> None:
    document = {"input": input, "initial": initial, "docs": [{"d": 1}, {"d": 2}]}
    for start in ("$initial", {"$literal": initial}):
        # Nothing is appended in place in an operand of $ifNull.
        plain = {"$reduce": {"input": "$input", "initialValue": start, "in": {"$ifNull": [body, None]}}}
        reduce = {"$reduce": {"input": "$input", "initialValue": start, "in": body}}
        assert evaluated([reduce, start, "$initial"], document) == evaluated([plain, start, "$initial"], document)
