"""`$map`, `$filter` and `$reduce`."""

from collections.abc import Callable
from typing import Any

import bson
import pytest
from bson import Int64

from mongottl.errors import CommandError, ErrorCode

Check = Callable[[object, dict[str, Any], object], None]
Failure = Callable[[object, dict[str, Any]], CommandError]

NAN = float("nan")
DOC = {
    "l": [3, 1, 2],
    "e": [],
    "n": None,
    "s": "x",
    "holes": [1, None, 2],
    "team": [{"name": "pat", "age": 30}, {"name": "dallas", "age": 5}, {"name": "charlie", "age": 42}],
    "d": [{"k": 2, "x": "p"}, {"k": 1, "x": "q"}],
}


@pytest.mark.parametrize(
    ("operator", "operand", "expected"),
    [
        ("$map", {"input": "$l", "in": {"$multiply": ["$$this", 2]}}, [6, 2, 4]),
        ("$map", {"input": "$l", "as": "e", "in": "$$e.x"}, [None, None, None]),
        ("$map", {"input": "$n", "in": 1}, None),
        (
            "$map",
            {
                "input": "$l",
                "as": "a",
                "in": {"$map": {"input": [10, 20], "as": "b", "in": {"$add": ["$$a", "$$b"]}}},
            },
            [[13, 23], [11, 21], [12, 22]],
        ),
        ("$map", {"input": "$l", "as": "grade", "in": {"$add": ["$$grade", 2]}}, [5, 3, 4]),
        ("$map", {"input": "$l", "as": "d", "in": {"$trunc": {"$multiply": ["$$d", 1.5]}}}, [4.0, 1.0, 3.0]),
        ("$map", {"input": "$missing", "in": 1}, None),
        ("$map", {"input": "$e", "in": {"$abs": "$s"}}, []),
        ("$map", {"input": "$l", "in": "$missing"}, [None, None, None]),
        ("$map", {"input": "$l", "in": "$s"}, ["x", "x", "x"]),
        ("$map", {"input": "$holes", "in": {"$ifNull": ["$$this", 0]}}, [1, 0, 2]),
        ("$map", {"input": "$team", "as": "m", "in": {"$getField": {"field": "age", "input": "$$m"}}}, [30, 5, 42]),
        ("$filter", {"input": "$l", "cond": {"$gt": ["$$this", 1]}}, [3, 2]),
        ("$filter", {"input": "$l", "as": "e", "cond": {"$gt": ["$$e", 1]}, "limit": 1}, [3]),
        (
            "$filter",
            {"input": [1, "a", 2, None, 3.1, Int64(4), "5"], "as": "num", "cond": {"$isNumber": "$$num"}},
            [1, 2, 3.1, Int64(4)],
        ),
        ("$filter", {"input": "$team", "as": "m", "cond": {"$lt": ["$$m.age", 10]}}, [{"name": "dallas", "age": 5}]),
        ("$filter", {"input": "$l", "cond": True, "limit": 2}, [3, 1]),
        ("$filter", {"input": "$l", "cond": True, "limit": 99}, [3, 1, 2]),
        ("$filter", {"input": "$l", "cond": True, "limit": None}, [3, 1, 2]),
        ("$filter", {"input": "$l", "cond": "$missing"}, []),
        ("$filter", {"input": "$l", "cond": ""}, [3, 1, 2]),
        ("$filter", {"input": "$n", "cond": True}, None),
        ("$filter", {"input": "$missing", "cond": True}, None),
        ("$filter", {"input": "$e", "cond": {"$abs": "$s"}}, []),
        ("$reduce", {"input": "$l", "initialValue": 0, "in": {"$add": ["$$value", "$$this"]}}, 6),
        ("$reduce", {"input": [], "initialValue": "x", "in": 1}, "x"),
        ("$reduce", {"input": "$n", "initialValue": 0, "in": 1}, None),
        ("$reduce", {"input": ["a", "b", "c"], "initialValue": "", "in": {"$concat": ["$$value", "$$this"]}}, "abc"),
        (
            "$reduce",
            {
                "input": "$l",
                "initialValue": {"sum": 5, "product": 2},
                "in": {
                    "sum": {"$add": ["$$value.sum", "$$this"]},
                    "product": {"$multiply": ["$$value.product", "$$this"]},
                },
            },
            {"sum": 11, "product": 12},
        ),
        (
            "$reduce",
            {"input": [[3, 4], [5, 6]], "initialValue": [1, 2], "in": {"$concatArrays": ["$$value", "$$this"]}},
            [1, 2, 3, 4, 5, 6],
        ),
        ("$reduce", {"input": "$missing", "initialValue": 0, "in": 1}, None),
        ("$reduce", {"input": "$e", "initialValue": "$missing", "in": 1}, ...),
        ("$reduce", {"input": "$l", "initialValue": 0, "in": "$missing"}, ...),
        ("$reduce", {"input": "$l", "initialValue": "$missing", "in": {"$ifNull": ["$$value", "$$this"]}}, 3),
        ("$reduce", {"input": "$l", "initialValue": None, "in": "$$this"}, 2),
    ],
)
def test_operators_of_iteration(check: Check, operator: str, operand: object, expected: object) -> None:
    check({operator: operand}, DOC, expected)


def test_a_map_over_a_large_array_is_exact(check: Check) -> None:
    numbers = list(range(1000))
    check({"$map": {"input": "$v", "in": {"$add": ["$$this", 1]}}}, {"v": numbers}, [n + 1 for n in numbers])
    check({"$sum": "$v"}, {"v": [Int64(n) for n in numbers]}, Int64(sum(numbers)))
    assert len(bson.encode({"v": numbers})) > 4096


@pytest.mark.parametrize(
    ("operator", "operand", "code"),
    [
        ("$map", {"input": 1, "in": 1}, 16883),
        ("$map", {"input": []}, 16882),
        ("$map", 1, 16878),
        ("$map", {"input": [], "in": 1, "x": 1}, 16879),
        ("$map", {"in": 1}, 16880),
        ("$map", {"input": "$l", "as": "X", "in": 1}, ErrorCode.FailedToParse),
        ("$filter", {"input": 1, "cond": 1}, 28651),
        ("$filter", {"input": "$l", "cond": 1, "limit": 0}, 327392),
        ("$filter", 1, 28646),
        ("$filter", {"input": "$l", "cond": 1, "x": 1}, 28647),
        ("$filter", {"cond": 1}, 28648),
        ("$filter", {"input": "$l"}, 28650),
        ("$filter", {"input": "$l", "cond": 1, "limit": -1}, 327392),
        ("$filter", {"input": "$l", "cond": 1, "limit": "x"}, 327391),
        ("$filter", {"input": "$l", "cond": 1, "limit": 1.5}, 327391),
        ("$reduce", {"input": 1, "initialValue": 0, "in": 1}, 40080),
        ("$reduce", 1, 40075),
        ("$reduce", {"input": "$l", "initialValue": 0, "in": 1, "x": 1}, 40076),
        ("$reduce", {"initialValue": 0, "in": 1}, 40077),
        ("$reduce", {"input": "$l", "in": 1}, 40078),
        ("$reduce", {"input": "$l", "initialValue": 0}, 40079),
    ],
)
def test_refusals_of_operators_of_iteration(failure: Failure, operator: str, operand: object, code: int) -> None:
    assert failure({operator: operand}, DOC).code == code
