"""Comparison, boolean and conditional operators, literals and variables."""

from collections.abc import Callable
from typing import Any

import bson
import pytest
from bson import Binary, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.datetime_ms import DatetimeMS

from mongottl.errors import CommandError, ErrorCode

Check = Callable[[object, dict[str, Any], object], None]
Failure = Callable[[object, dict[str, Any]], CommandError]

NAN = float("nan")
INF = float("inf")
DOC = {"five": 5, "n": None, "l": [1, 2], "o": {"a": 1, "b": 2}, "qty": 250, "s": ""}

ASCENDING: list[object] = [
    MinKey(),
    None,
    NAN,
    -INF,
    -1,
    Decimal128("-0.5"),
    0,
    0.5,
    Int64(1),
    1.0000001,
    Int64(2**53 + 1),
    2.0**54,
    Decimal128("1E+300"),
    INF,
    "",
    "A",
    "a",
    "ab",
    "é",
    {},
    {"a": 1},
    {"a": 1, "b": 0},
    {"a": 2},
    {"b": 0},
    [],
    [1],
    [1, 0],
    [2],
    Binary(b"", 0),
    Binary(b"a", 0),
    Binary(b"b", 0),
    Binary(b"a", 5),
    Binary(b"aa", 0),
    ObjectId("000000000000000000000001"),
    ObjectId("000000000000000000000002"),
    False,
    True,
    DatetimeMS(-1),
    DatetimeMS(0),
    Timestamp(0, 1),
    Timestamp(1, 0),
    Regex("a"),
    Regex("b"),
    MaxKey(),
]


def test_the_order_of_all_types(check: Check) -> None:
    for i in range(len(ASCENDING) - 1):
        document = {"a": ASCENDING[i], "b": ASCENDING[i + 1]}
        check({"$cmp": ["$a", "$b"]}, document, -1)
        check({"$cmp": ["$b", "$a"]}, document, 1)


@pytest.mark.parametrize(
    ("a", "b", "sign"),
    [
        (1, 1.0, 0),
        (Int64(1), Decimal128("1.00"), 0),
        (0.0, -0.0, 0),
        (NAN, Decimal128("NaN"), 0),
        (0.1, Decimal128("0.1"), 1),  # the double is a little more
        (2**53 + 1, 2.0**53, 1),
        ("$missing", None, -1),
        ("$missing", "$gone", 0),
        ("$missing", MinKey(), 1),
        ("$five", "$qty", -1),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, -1),
        ([1, 2], [1, 2], 0),
        ("a", "A", 1),
        (True, 1, 1),
    ],
)
def test_comparison(check: Check, a: object, b: object, sign: int) -> None:
    for operator, expected in [
        ("$cmp", sign),
        ("$eq", sign == 0),
        ("$ne", sign != 0),
        ("$lt", sign < 0),
        ("$lte", sign <= 0),
        ("$gt", sign > 0),
        ("$gte", sign >= 0),
    ]:
        check({operator: [a, b]}, DOC, expected)


@pytest.mark.parametrize("operator", ["$cmp", "$eq", "$ne", "$lt", "$lte", "$gt", "$gte"])
def test_comparisons_take_two(failure: Failure, operator: str) -> None:
    for operands in ([], [1], [1, 2, 3], 1):
        assert failure({operator: operands}, {}).code == 16020


@pytest.mark.parametrize(
    ("operator", "operands", "expected"),
    [
        # The examples of the pages.
        ("$and", [1, "green"], True),
        ("$and", [], True),
        ("$and", [[None], [False], [0]], True),
        ("$and", [None, True], False),
        ("$and", [0, True], False),
        ("$or", [True, False], True),
        ("$or", [[False], False], True),
        ("$or", [None, 0, "$missing"], False),
        ("$or", [], False),
        ("$not", [True], False),
        ("$not", [[False]], False),
        ("$and", ["$s", "$o", "$l"], True),  # the empty text and all objects and arrays are true
        ("$and", ["$missing"], False),
        ("$and", "$five", True),
        ("$and", [Decimal128("0.0")], False),
        ("$and", [NAN, DatetimeMS(0), ObjectId()], True),
        ("$and", [False, {"$divide": [1, "$missing"]}], False),
        ("$or", [-0.0, Int64(0), Decimal128("-0")], False),
        ("$or", [NAN], True),
        ("$or", ["$n", ""], True),
        ("$or", "$n", False),
        ("$or", [1, {"$abs": "$s"}], True),  # what follows is not looked at
        ("$not", [None], True),
        ("$not", "$missing", True),
        ("$not", [0], True),
        ("$not", [Decimal128("0")], True),
        ("$not", [""], False),
        ("$not", [[]], False),
        ("$not", "$l", False),
        ("$not", [NAN], False),
    ],
)
def test_booleans(check: Check, operator: str, operands: object, expected: object) -> None:
    check({operator: operands}, DOC, expected)


@pytest.mark.parametrize(
    ("operator", "operand", "expected"),
    [
        ("$cond", {"if": {"$gte": ["$qty", 250]}, "then": 30, "else": 20}, 30),
        ("$cond", [{"$gt": ["$qty", 250]}, 30, 20], 20),
        ("$cond", ["$missing", 1, 2], 2),
        ("$cond", ["$n", 1, 2], 2),
        ("$cond", ["$s", 1, 2], 1),
        ("$cond", [Decimal128("0"), 1, 2], 2),
        ("$cond", [True, "$missing", 2], ...),
        ("$cond", [False, {"$abs": "$s"}, "$l"], [1, 2]),  # the other branch is not evaluated
        ("$cond", {"else": 2, "then": "$n", "if": 1}, None),
        ("$ifNull", ["$missing", "Unspecified"], "Unspecified"),
        ("$ifNull", ["$n", "$missing", 3], 3),
        ("$ifNull", ["$n", "$missing"], ...),
        ("$ifNull", ["$missing", None], None),
        ("$ifNull", ["$s", 1], ""),
        ("$ifNull", [0, 1], 0),
        ("$ifNull", [False, 1], False),
        ("$ifNull", [NAN, 1], NAN),
        ("$ifNull", ["$l", 1], [1, 2]),
        ("$ifNull", ["$five", {"$abs": "$s"}], 5),
        (
            "$switch",
            {"branches": [{"case": {"$eq": [0, 5]}, "then": "equals"}, {"case": True, "then": "else"}]},
            "else",
        ),
        ("$switch", {"branches": [{"case": "$five", "then": 1}, {"case": "$five", "then": 2}]}, 1),
        ("$switch", {"branches": [{"case": "$n", "then": 1}], "default": "none"}, "none"),
        ("$switch", {"branches": [{"case": "$missing", "then": 1}], "default": "$n"}, None),
        ("$switch", {"branches": [{"case": 0.0, "then": 1}], "default": "$missing"}, ...),
        ("$switch", {"branches": [{"case": "$s", "then": "$missing"}]}, ...),
        ("$switch", {"default": 1, "branches": [{"then": "$l", "case": "$l"}]}, [1, 2]),
        ("$switch", {"branches": [{"case": 1, "then": 2}, {"case": {"$abs": "$s"}, "then": 3}]}, 2),
    ],
)
def test_conditionals(check: Check, operator: str, operand: object, expected: object) -> None:
    check({operator: operand}, DOC, expected)


@pytest.mark.parametrize("operator", ["$literal", "$const"])
@pytest.mark.parametrize(
    "value",
    [
        {"$add": [2, 3]},
        {"$literal": 1},
        "$five",
        "$$NOW",
        "",
        None,
        1,
        Int64(1),
        Decimal128("1.0"),
        -0.0,
        True,
        [],
        ["$five", {"$abs": -1}],
        {"a.b": 1, "": {"$x": 2}},
        DatetimeMS(0),
        Regex("^a", "i"),
    ],
)
def test_literals(check: Check, operator: str, value: object) -> None:
    check({operator: value}, DOC, bson.decode(bson.encode({"v": value}))["v"])


@pytest.mark.parametrize(
    ("variables", "inside", "expected"),
    [
        ({"total": {"$add": ["$five", 0.5]}, "discounted": 0.5}, {"$multiply": ["$$total", "$$discounted"]}, 2.75),
        ({"low": 1, "high": "$$low2"}, 1, 17276),
        ({"x": "$missing"}, "$$x", ...),
        ({"x": "$missing"}, {"$ifNull": ["$$x", 1]}, 1),
        ({"x": "$n"}, "$$x", None),
        ({"x": "$o"}, "$$x.b", 2),
        ({"x": "$l"}, {"$arrayElemAt": ["$$x", -1]}, 2),
        ({"x1": 1, "y_2": 2, "é": 3}, ["$$x1", "$$y_2", "$$é"], [1, 2, 3]),
        ({"x": 1}, {"$map": {"input": [1, 2], "as": "x", "in": "$$x"}}, [1, 2]),
        ({"1x": 1}, 1, ErrorCode.FailedToParse),
        ({"x.y": 1}, 1, ErrorCode.FailedToParse),
        ({"$x": 1}, 1, ErrorCode.FailedToParse),
        ({"_x": 1}, 1, ErrorCode.FailedToParse),
        ({"NOW": 1}, 1, ErrorCode.FailedToParse),
    ],
)
def test_let(check: Check, failure: Failure, variables: object, inside: object, expected: object) -> None:
    expression = {"$let": {"vars": variables, "in": inside}}
    if isinstance(expected, int) and expected in (9, 17276):
        assert failure(expression, DOC).code == expected
    else:
        check(expression, DOC, expected)


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ({"$not": [1, 2]}, 16020),
        ({"$not": []}, 16020),
        ({"$cond": [1, 2]}, 16020),
        ({"$cond": 1}, 16020),
        ({"$cond": {"if": 1, "then": 2, "else": 3, "x": 4}}, 17083),
        ({"$cond": {"then": 2, "else": 3}}, 17080),
        ({"$cond": {"if": 1, "else": 3}}, 17081),
        ({"$cond": {"if": 1, "then": 2}}, 17082),
        ({"$ifNull": [1]}, 1257300),
        ({"$ifNull": []}, 1257300),
        ({"$ifNull": 1}, 1257300),
        ({"$switch": 1}, 40060),
        ({"$switch": {"branches": 1}}, 40061),
        ({"$switch": {"branches": [1]}}, 40062),
        ({"$switch": {"branches": [{"case": 1, "then": 1, "x": 1}]}}, 40063),
        ({"$switch": {"branches": [{"then": 1}]}}, 40064),
        ({"$switch": {"branches": [{"case": 1}]}}, 40065),
        ({"$switch": {"branches": [{"case": "$missing", "then": 1}]}}, 40066),
        ({"$switch": {"branches": [{"case": 0, "then": 1}]}}, 40069),
        ({"$switch": {"branches": [{"case": 1, "then": 1}], "x": 1}}, 40067),
        ({"$switch": {"branches": []}}, 40068),
        ({"$switch": {"default": 1}}, 40068),
    ],
)
def test_refusals(failure: Failure, expression: object, code: int) -> None:
    assert failure(expression, DOC).code == code
