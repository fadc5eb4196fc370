"""Sets as their pages describe them. mongod sorts what a set operator gives, but for `$setDifference`."""

from collections.abc import Callable
from typing import Any

import pytest
from bson import Decimal128, Int64
from bson.datetime_ms import DatetimeMS

from mongottl.errors import CommandError

Check = Callable[[object, dict[str, Any], object], None]
Failure = Callable[[object, dict[str, Any]], CommandError]

NAN = float("nan")
DOC = {"l": [1, 2], "e": [], "n": None, "s": "x"}


@pytest.mark.parametrize(
    ("operator", "operand", "expected"),
    [
        ("$setUnion", [[2, 1], [1.0, 3]], [1, 2, 3]),
        ("$setUnion", ["$n", [1]], None),
        ("$setUnion", [["red", "blue"], ["blue", "green"]], ["blue", "green", "red"]),
        ("$setUnion", ["$l", "$e"], [1, 2]),
        ("$setUnion", [], []),
        ("$setUnion", ["$l", "$missing"], None),
        ("$setUnion", [[[1]], [1]], [1, [1]]),
        ("$setUnion", [[None, "$missing"], [None]], [None]),
        ("$setUnion", [[{"a": 1, "b": 2}], [{"b": 2, "a": 1}]], [{"a": 1, "b": 2}, {"b": 2, "a": 1}]),
        ("$setIntersection", [[2, 1, 1], [1, 2, 4]], [1, 2]),
        ("$setIntersection", [["red", "blue"], ["red", "blue"]], ["blue", "red"]),
        ("$setIntersection", [["red", "blue"], ["blue", "red", "blue"]], ["blue", "red"]),
        ("$setIntersection", [["red", "blue"], ["red", ["blue"]]], ["red"]),
        ("$setIntersection", [["red", "blue"], []], []),
        ("$setIntersection", ["$l", [2, 1], [2]], [2]),
        ("$setIntersection", ["$l"], [1, 2]),
        ("$setIntersection", [], []),
        ("$setIntersection", ["$l", None], None),
        ("$setIntersection", ["$e", "$missing"], []),  # what cannot change the result is not evaluated
        ("$setIntersection", [[1], [Int64(1), 1.0, Decimal128("1")]], [1]),
        ("$setDifference", [[3, 1, 3, 2], [2]], [3, 1]),
        ("$setDifference", [["a", "b", "a"], ["b", "a"]], []),
        ("$setDifference", [["a", "b"], [["a", "b"]]], ["a", "b"]),
        ("$setDifference", [["a", "b"], []], ["a", "b"]),
        ("$setDifference", [["b", "a", "b"], ["c"]], ["b", "a"]),  # in the order of the first, each once
        ("$setDifference", [[1, 2.0, Int64(3)], [1.0, 2]], [Int64(3)]),
        ("$setDifference", [["a"], ["A"]], ["a"]),
        ("$setDifference", ["$missing", "$l"], None),
        ("$setDifference", ["$l", "$n"], None),
        ("$setDifference", [[None, 1], [1]], [None]),
        ("$setEquals", [[1, 2], [2, 1, 1]], True),
        ("$setEquals", [["a", "b", "a"], ["b", "a"]], True),
        ("$setEquals", [["a", "b"], [["a", "b"]]], False),
        ("$setEquals", [[1], [1.0], [Int64(1)]], True),
        ("$setEquals", ["$l", [2, 1], [1]], False),
        ("$setEquals", ["$e", []], True),
        ("$setEquals", ["$e", [None]], False),
        ("$setEquals", [[NAN], [NAN]], True),
        ("$setEquals", [[0.0], [-0.0]], True),
        ("$setEquals", [[{"a": 1}], [{"a": 1.0}]], True),
        ("$setIsSubset", [[1], [1, 2]], True),
        ("$setIsSubset", [[3], [1, 2]], False),
        ("$setIsSubset", [["a", "b", "a"], ["b", "a"]], True),
        ("$setIsSubset", [["a", "b"], [["a", "b"]]], False),
        ("$setIsSubset", ["$e", "$l"], True),
        ("$setIsSubset", ["$e", "$e"], True),
        ("$setIsSubset", ["$l", "$e"], False),
        ("$setIsSubset", [[1.0, Decimal128("2")], "$l"], True),
        ("$setIsSubset", [[[1, 2]], [[1, 2], 3]], True),
        ("$setIsSubset", [[None], ["$missing"]], True),  # what is missing is null in an array
        ("$allElementsTrue", [[1, True, "x"]], True),
        ("$allElementsTrue", [[1, 0]], False),
        ("$allElementsTrue", [[True, 1, "someString"]], True),
        ("$allElementsTrue", [[[False]]], True),
        ("$allElementsTrue", [[]], True),
        ("$allElementsTrue", [[None, False, 0]], False),
        ("$allElementsTrue", [["", {}, [], DatetimeMS(0)]], True),
        ("$allElementsTrue", [[1, -0.0]], False),
        ("$allElementsTrue", [[1, Decimal128("0.00")]], False),
        ("$allElementsTrue", [[NAN]], True),
        ("$allElementsTrue", ["$l"], True),
        ("$allElementsTrue", [["$missing"]], False),
        ("$anyElementTrue", [[0, None]], False),
        ("$anyElementTrue", [[True, False]], True),
        ("$anyElementTrue", [[[False]]], True),
        ("$anyElementTrue", [[None, False, 0]], False),
        ("$anyElementTrue", [[]], False),
        ("$anyElementTrue", [[0, -0.0, Decimal128("0"), Int64(0)]], False),
        ("$anyElementTrue", [[0, NAN]], True),
        ("$anyElementTrue", [["$missing", ""]], True),
        ("$anyElementTrue", ["$l"], True),
        ("$anyElementTrue", ["$e"], False),
    ],
)
def test_operators_of_sets(check: Check, operator: str, operand: object, expected: object) -> None:
    check({operator: operand}, DOC, expected)


@pytest.mark.parametrize(
    ("operator", "operand", "code"),
    [
        ("$setUnion", [1], 17043),
        ("$setUnion", ["$l", 1], 17043),
        ("$setUnion", ["$s"], 17043),
        ("$setIntersection", ["$l", "$s"], 17047),
        ("$setIntersection", [{}, "$l"], 17047),
        ("$setDifference", ["$s", "$l"], 17048),
        ("$setDifference", ["$l", "$s"], 17049),
        ("$setDifference", ["$l"], 16020),
        ("$setEquals", [[1]], 17045),
        ("$setEquals", ["$l", "$s"], 17044),
        ("$setEquals", ["$l", "$n"], 17044),
        ("$setEquals", ["$missing", "$l"], 17044),
        ("$setEquals", [], 17045),
        ("$setIsSubset", ["$s", "$l"], 17046),
        ("$setIsSubset", ["$n", "$l"], 17046),
        ("$setIsSubset", ["$l", "$missing"], 17042),
        ("$setIsSubset", ["$l"], 16020),
        ("$allElementsTrue", [1], 17040),
        ("$allElementsTrue", ["$n"], 17040),
        ("$allElementsTrue", ["$missing"], 17040),
        ("$allElementsTrue", ["$s"], 17040),
        ("$allElementsTrue", ["$l", "$l"], 16020),
        ("$anyElementTrue", ["$n"], 17041),
        ("$anyElementTrue", ["$missing"], 17041),
        ("$anyElementTrue", [{}], 17041),
        ("$anyElementTrue", [], 16020),
    ],
)
def test_refusals_of_operators_of_sets(failure: Failure, operator: str, operand: object, code: int) -> None:
    assert failure({operator: operand}, DOC).code == code
