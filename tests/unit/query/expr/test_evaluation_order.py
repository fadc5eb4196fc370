"""Which operands are evaluated, and so may fail: those that mongod's parser, optimiser and evaluation reach."""

from collections.abc import Callable
from typing import Any

import pytest

from mongottl.errors import CommandError

Check = Callable[[object, dict[str, Any], object], None]
Failure = Callable[[object, dict[str, Any]], CommandError]

FAILS = {"$divide": [1, 0]}  # when it is parsed
FAILS_LATER = {"$divide": [1, "$zero"]}  # when it is evaluated
DOC = {"zero": 0, "n": None, "l": [1], "s": "x", "yes": True}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"$or": [True, FAILS]}, True),
        ({"$or": ["$yes", 1, FAILS]}, True),
        ({"$or": [FAILS_LATER, True]}, True),
        ({"$or": ["$yes", FAILS_LATER]}, True),
        ({"$and": [None, FAILS]}, False),
        ({"$and": [FAILS_LATER, 0]}, False),
        ({"$switch": {"branches": [{"case": False, "then": FAILS}, {"case": True, "then": 1}]}}, 1),
        ({"$switch": {"branches": [{"case": 0, "then": FAILS}, {"case": "$yes", "then": 2}]}}, 2),
        ({"$switch": {"branches": [{"case": True, "then": 3}, {"case": FAILS, "then": FAILS}]}}, 3),
        ({"$switch": {"branches": [{"case": "$yes", "then": 4}], "default": FAILS_LATER}}, 4),
        # Constants of commutative operators are taken last, so null wins.
        ({"$setUnion": [1, "$missing"]}, None),
        ({"$setIntersection": ["x", "$n"]}, None),
        ({"$bitOr": ["x", "$n"]}, None),
        ({"$setUnion": [{"$setUnion": ["$l", 5]}, "$missing"]}, None),
        ({"$setIntersection": [[], 1]}, []),
        # Operands after a null are not evaluated.
        ({"$concat": ["$n", FAILS_LATER]}, None),
        ({"$concat": ["$missing", 42]}, None),
        ({"$concatArrays": ["$l", "$n", FAILS_LATER]}, None),
        ({"$setUnion": ["$n", FAILS_LATER]}, None),
        ({"$bitAnd": ["$n", FAILS_LATER]}, None),
        ({"$add": ["$n", FAILS_LATER]}, None),
        ({"$add": ["$zero", "$n", FAILS_LATER]}, None),
        ({"$multiply": ["$n", FAILS_LATER]}, None),
    ],
)
def test_operands_that_are_not_evaluated_do_not_fail(check: Check, expression: object, expected: object) -> None:
    check(expression, DOC, expected)


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ({"$or": [FAILS, True]}, 2),
        ({"$or": ["$yes", FAILS]}, 2),
        ({"$and": [True, FAILS]}, 2),
        ({"$or": [True, {"$divide": [1]}]}, 16020),
        ({"$switch": {"branches": [{"case": "$yes", "then": 1}, {"case": False, "then": 1}], "default": FAILS}}, 2),
        ({"$switch": {"branches": [{"case": "$yes", "then": FAILS}]}}, 2),
        ({"$ifNull": ["$yes", FAILS, 1]}, 2),
        # Constants that follow each other are combined when the operator is parsed.
        ({"$concat": ["$missing", 42, "x"]}, 16702),
        ({"$concatArrays": ["$n", [1], 5]}, 28664),
        ({"$setUnion": [1, "$missing", [2]]}, 17043),
        ({"$concat": ["$l", FAILS_LATER]}, 16702),
        ({"$add": ["$s", FAILS_LATER]}, 14),
        ({"$multiply": ["$s", FAILS_LATER]}, 14),
        ({"$add": ["$zero", FAILS_LATER, "$s"]}, 2),
        ({"$setField": {"field": {"$concat": ["a", "b"]}, "input": {}, "value": 1}}, 4161106),
        ({"$unsetField": {"field": {"$toLower": "A"}, "input": {}}}, 4161106),
    ],
)
def test_operands_that_are_evaluated_fail(failure: Failure, expression: object, code: int) -> None:
    assert failure(expression, DOC).code == code


def test_names_of_set_field_are_constants_as_they_stand(check: Check) -> None:
    for name in ("a.b", {"$literal": "a.b"}, {"$const": "a.b"}):
        check({"$setField": {"field": name, "input": {}, "value": 1}}, {}, {"a.b": 1})
        check({"$unsetField": {"field": name, "input": {"$literal": {"a.b": 1}}}}, {}, {})
