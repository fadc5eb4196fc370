"""Operators of arrays, element by element and as wholes; see test_arrays_sets_objects for the plain cases."""

from collections.abc import Callable
from typing import Any

import pytest
from bson import Decimal128, Int64, MaxKey, MinKey
from bson.datetime_ms import DatetimeMS

from mongottl.errors import CommandError, ErrorCode

Check = Callable[[object, dict[str, Any], object], None]
Failure = Callable[[object, dict[str, Any]], CommandError]

NAN = float("nan")
INF = float("inf")
DOC = {
    "l": [3, 1, 2],
    "e": [],
    "n": None,
    "s": "x",
    "holes": [1, None, 2],
    "team": [{"name": "pat", "age": 30}, {"name": "dallas", "age": 5}, {"name": "charlie", "age": 42}],
}


@pytest.mark.parametrize(
    ("operator", "operand", "expected"),
    [
        ("$arrayElemAt", ["$l", -3], 3),
        ("$arrayElemAt", ["$l", -4], ...),
        ("$arrayElemAt", ["$l", 1.0], 1),
        ("$arrayElemAt", ["$l", Int64(2)], 2),
        ("$arrayElemAt", ["$l", Decimal128("0")], 3),
        ("$arrayElemAt", ["$holes", 1], None),
        ("$arrayElemAt", ["$e", 0], ...),
        ("$arrayElemAt", ["$missing", 0], None),
        ("$arrayElemAt", ["$l", None], None),
        ("$first", "$team.name", "pat"),
        ("$first", "$n", None),
        ("$first", "$missing", None),
        ("$first", [[None, 1]], None),
        ("$first", "$e", ...),
        ("$last", "$team.age", 42),
        ("$last", "$n", None),
        ("$last", "$missing", None),
        ("$last", [[1, None]], None),
        ("$last", "$e", ...),
        ("$last", [[1, [2, 3]]], [2, 3]),
        ("$concatArrays", [["hello", " "], ["world"]], ["hello", " ", "world"]),
        ("$concatArrays", [["hello", " "], [["world"], "again"]], ["hello", " ", ["world"], "again"]),
        ("$concatArrays", [], []),
        ("$concatArrays", ["$l"], [3, 1, 2]),
        ("$concatArrays", ["$e", "$e"], []),
        ("$concatArrays", ["$l", "$missing"], None),
        ("$concatArrays", [[None], ["$missing"]], [None, None]),
        ("$in", [2, [1, 2, 3]], True),
        ("$in", ["abc", ["xyz", "abc"]], True),
        ("$in", ["xy", ["xyz", "abc"]], False),
        ("$in", [["a"], ["a"]], False),
        ("$in", [["a"], [["a"]]], True),
        ("$in", [None, "$holes"], True),
        ("$in", ["$missing", "$holes"], False),
        ("$in", [Decimal128("3"), "$l"], True),
        ("$in", [NAN, [NAN]], True),
        ("$indexOfArray", [["a", "abc"], "a"], 0),
        ("$indexOfArray", [["a", "abc", "de", ["de"]], ["de"]], 3),
        ("$indexOfArray", [[1, 2], 5], -1),
        ("$indexOfArray", [["a", "abc", "b"], "b", 0, 1], -1),
        ("$indexOfArray", [["a", "abc", "b"], "b", 1, 0], -1),
        ("$indexOfArray", [["a", "abc", "b"], "b", 20], -1),
        ("$indexOfArray", [["abc", "b", "b"], "b", 2], 2),
        ("$indexOfArray", ["$n", 1], None),
        ("$indexOfArray", ["$missing", 1], None),
        ("$indexOfArray", ["$holes", None], 1),
        ("$indexOfArray", [[1, 2], 2.0, Int64(1)], 1),
        ("$isArray", ["$l"], True),
        ("$isArray", [["hello"]], True),
        ("$isArray", ["hello"], False),
        ("$isArray", "$e", True),
        ("$isArray", "$s", False),
        ("$isArray", "$missing", False),
        ("$isArray", [{}], False),
        ("$isArray", "$team.name", True),
        ("$isArray", {"$range": [0, 0]}, True),
        ("$range", [0, 10, 2], [0, 2, 4, 6, 8]),
        ("$range", [10, 0, -2], [10, 8, 6, 4, 2]),
        ("$range", [0, 10, -2], []),
        ("$range", [0, 5], [0, 1, 2, 3, 4]),
        ("$range", [3, 3], []),
        ("$range", [Int64(0), 2.0], [0, 1]),
        ("$range", [2**31 - 3, 2**31 - 1, 5], [2**31 - 3]),
        ("$reverseArray", [[1, 2, 3]], [3, 2, 1]),
        ("$reverseArray", {"$slice": [["foo", "bar", "baz", "qux"], 1, 2]}, ["baz", "bar"]),
        ("$reverseArray", "$n", None),
        ("$reverseArray", "$missing", None),
        ("$reverseArray", [[]], []),
        ("$reverseArray", [[[1, 2, 3], [4, 5, 6]]], [[4, 5, 6], [1, 2, 3]]),
        ("$reverseArray", "$holes", [2, None, 1]),
        ("$size", [[]], 0),
        ("$size", {"$range": [0, 3]}, 3),
        ("$size", {"$literal": [None, None]}, 2),
        ("$size", "$holes", 3),
        ("$size", [[[1, 2]]], 1),
        ("$size", "$team.nothing", 0),
        ("$slice", [[1, 2, 3], 1, 1], [2]),
        ("$slice", [[1, 2, 3], -2], [2, 3]),
        ("$slice", [[1, 2, 3], 15, 2], []),
        ("$slice", [[1, 2, 3], -15, 2], [1, 2]),
        ("$slice", ["$l", 0], []),
        ("$slice", ["$l", 99], [3, 1, 2]),
        ("$slice", ["$l", "$missing"], None),
        ("$slice", ["$n", 1], None),
        ("$slice", ["$l", 1, None], None),
        ("$firstN", {"input": "$l", "n": 99}, [3, 1, 2]),
        ("$firstN", {"input": "$holes", "n": 2}, [1, None]),
        ("$firstN", {"input": "$e", "n": 1}, []),
        ("$firstN", {"input": "$l", "n": 1.0}, [3]),
        ("$firstN", {"input": [[1, 2], 3], "n": 1}, [[1, 2]]),
        ("$lastN", {"input": "$l", "n": 99}, [3, 1, 2]),
        ("$lastN", {"input": "$holes", "n": 2}, [None, 2]),
        ("$lastN", {"input": "$e", "n": 1}, []),
        ("$lastN", {"input": "$n", "n": 1}, None),
        ("$lastN", {"input": "$missing", "n": 1}, None),
        ("$lastN", {"input": "$l", "n": Int64(1)}, [2]),
        ("$lastN", {"input": "$team.name", "n": 1}, ["charlie"]),
        ("$maxN", {"input": "$holes", "n": 5}, [2, 1]),
        ("$maxN", {"input": [1, "a", [0], {"x": 1}], "n": 2}, [[0], {"x": 1}]),
        ("$maxN", {"input": [1, 1.0, Int64(1)], "n": 2}, [1, 1.0]),
        ("$maxN", {"input": "$e", "n": 3}, []),
        ("$maxN", {"input": "$n", "n": 3}, None),
        ("$minN", {"input": "$missing", "n": 3}, None),
        ("$minN", {"input": ["b", "a", "c"], "n": 1}, ["a"]),
        ("$maxN", {"input": [1, MaxKey()], "n": Decimal128("1")}, [MaxKey()]),
        ("$minN", {"input": "$holes", "n": 5}, [1, 2]),
        ("$minN", {"input": [1, "a", NAN, MinKey()], "n": 2}, [MinKey(), NAN]),
        ("$minN", {"input": "$l", "n": 2}, [1, 2]),
        ("$minN", {"input": "$e", "n": 3}, []),
        ("$minN", {"input": [None, "$missing"], "n": 2}, []),
    ],
)
def test_arrays(check: Check, operator: str, operand: object, expected: object) -> None:
    check({operator: operand}, DOC, expected)


ONE = Decimal128("1")


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"input": "$team", "sortBy": {"name": 1}}, ["charlie", "dallas", "pat"]),
        ({"input": "$team", "sortBy": {"age": -1, "name": 1}}, ["charlie", "pat", "dallas"]),
        ({"input": "$team", "sortBy": {"nothing": 1}}, ["pat", "dallas", "charlie"]),  # stable
        *(({"input": "$team", "sortBy": {"name": up}}, ["charlie", "dallas", "pat"]) for up in (1.0, Int64(1), ONE)),
    ],
)
def test_sort_array_by_fields(check: Check, parameters: dict[str, object], expected: object) -> None:
    sorted_team = {"$sortArray": parameters}
    check({"$map": {"input": sorted_team, "in": "$$this.name"}}, DOC, expected)


@pytest.mark.parametrize(
    ("values", "direction", "expected"),
    [
        ([1, 4, 1, 6, 12, 5], 1, [1, 1, 4, 5, 6, 12]),
        ([20, 4, {"a": "Free"}, 6, 21, 5, "Gratis"], 1, [4, 5, 6, 20, 21, "Gratis", {"a": "Free"}]),
        ([True, DatetimeMS(0), [1], None, "a"], -1, [DatetimeMS(0), True, [1], "a", None]),
        ([[2], [1, 9]], 1, [[1, 9], [2]]),
        ([2, 1.0, Int64(1)], 1.0, [1.0, Int64(1), 2]),
        ([], Int64(-1), []),
        (None, 1, None),
        ("$missing", 1, None),
    ],
)
def test_sort_array_of_values(check: Check, values: object, direction: object, expected: object) -> None:
    check({"$sortArray": {"input": values, "sortBy": direction}}, DOC, expected)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"inputs": [["a"], ["b"], ["c"]]}, [["a", "b", "c"]]),
        ({"inputs": [["a"], ["b", "c"]]}, [["a", "b"]]),
        ({"inputs": [[1], [2, 3]], "useLongestLength": True}, [[1, 2], [None, 3]]),
        (
            {"inputs": [[1], [2, 3], [4]], "useLongestLength": True, "defaults": ["a", "b", "c"]},
            [[1, 2, 4], ["a", 3, "c"]],
        ),
        ({"inputs": [[1, 2]]}, [[1], [2]]),
        ({"inputs": ["$l", "$e"]}, []),
        ({"inputs": ["$l", "$n"]}, None),
        ({"inputs": ["$l", "$missing"]}, None),
        ({"inputs": ["$e", "$e"], "useLongestLength": True}, []),
        ({"inputs": [[1]], "useLongestLength": False}, [[1]]),
        ({"inputs": [[1], ["$missing"]]}, [[1, None]]),
    ],
)
def test_zip(check: Check, parameters: dict[str, object], expected: object) -> None:
    check({"$zip": parameters}, DOC, expected)


@pytest.mark.parametrize(
    ("operator", "parameters", "expected"),
    [
        ("$map", {"input": "$l", "as": "grade", "in": {"$add": ["$$grade", 2]}}, [5, 3, 4]),
        ("$map", {"input": "$l", "as": "d", "in": {"$trunc": {"$multiply": ["$$d", 1.5]}}}, [4.0, 1.0, 3.0]),
        ("$map", {"input": "$missing", "in": 1}, None),
        ("$map", {"input": "$e", "in": {"$abs": "$s"}}, []),
        ("$map", {"input": "$l", "in": "$missing"}, [None, None, None]),
        ("$map", {"input": "$l", "in": "$s"}, ["x", "x", "x"]),
        ("$map", {"input": "$holes", "in": {"$ifNull": ["$$this", 0]}}, [1, 0, 2]),
        ("$map", {"input": "$team", "as": "m", "in": {"$getField": {"field": "age", "input": "$$m"}}}, [30, 5, 42]),
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
def test_iteration(check: Check, operator: str, parameters: dict[str, object], expected: object) -> None:
    check({operator: parameters}, DOC, expected)


@pytest.mark.parametrize(
    ("operator", "operand", "code"),
    [
        ("$arrayElemAt", ["$l", 2.5], 28691),
        ("$arrayElemAt", ["$l", Int64(2**31)], 28691),
        ("$arrayElemAt", [{}, 0], 28689),
        ("$arrayElemAt", ["$l"], 16020),
        ("$first", "$s", 28689),
        ("$first", [1], 28689),
        ("$first", [1, 2], 16020),
        ("$last", "$s", 28689),
        ("$last", {}, 28689),
        ("$last", [], 16020),
        ("$concatArrays", ["$l", "$s"], 28664),
        ("$concatArrays", "$s", 28664),
        ("$in", [1, "$n"], 40081),
        ("$in", [1, "$missing"], 40081),
        ("$in", [1], 16020),
        ("$indexOfArray", ["$l", 1, "x"], 9711600),
        ("$indexOfArray", ["$l", 1, 0.5], 9711600),
        ("$indexOfArray", ["$l", 1, 0, -1], 9711601),
        ("$indexOfArray", ["$l"], 28667),
        ("$isArray", [], 16020),
        ("$isArray", [1, 2], 16020),
        ("$range", [0.5, 1], 34444),
        ("$range", [0, "x"], 34445),
        ("$range", [0, Int64(2**31)], 34446),
        ("$range", [0, 1, "x"], 34447),
        ("$range", [0, 1, 0.5], 34448),
        ("$range", ["$n", 1], 34443),
        ("$range", [1], 28667),
        ("$reverseArray", "$s", 34435),
        ("$reverseArray", [{}], 34435),
        ("$reverseArray", [[1], [2]], 16020),
        ("$size", "$missing", 17124),
        ("$size", "$s", 17124),
        ("$size", [1, 2], 16020),
        ("$slice", ["$l", "x"], 28725),
        ("$slice", ["$l", 1.5], 28726),
        ("$slice", ["$l", 1, "x"], 28727),
        ("$slice", ["$l", 1, 1.5], 28728),
        ("$slice", ["$l", 1, -1], 28729),
        ("$firstN", 1, 5787801),
        ("$firstN", {"input": "$l"}, 5787906),
        ("$firstN", {"n": 1}, 5787907),
        ("$firstN", {"n": 1, "input": 1}, 5788200),
        ("$firstN", {"n": 1.5, "input": "$l"}, 5787903),
        ("$firstN", {"n": "x", "input": "$l"}, 5787902),
        ("$firstN", {"n": -1, "input": "$l"}, 5787908),
        ("$firstN", {"n": 1, "input": "$l", "x": 1}, 5787901),
        ("$lastN", {"n": 0, "input": "$l"}, 5787908),
        ("$lastN", {"n": 1, "input": "$s"}, 5788200),
        ("$maxN", {"n": 0, "input": "$l"}, 5787908),
        ("$maxN", {"n": 1, "input": "$s"}, 5788200),
        ("$maxN", {"n": "$n", "input": "$l"}, 5787902),
        ("$minN", {"n": 1, "input": "$s"}, 5788200),
        ("$minN", {"input": "$l"}, 5787906),
        ("$sortArray", 1, 2942500),
        ("$sortArray", {"input": [], "sortBy": 1, "x": 1}, 2942501),
        ("$sortArray", {"sortBy": 1}, 2942502),
        ("$sortArray", {"input": []}, 2942503),
        ("$sortArray", {"input": [], "sortBy": "x"}, 2942507),
        ("$zip", 1, 34460),
        ("$zip", {"inputs": "$l"}, 34461),
        ("$zip", {"inputs": [[1]], "useLongestLength": True, "defaults": 1}, 34462),
        ("$zip", {"inputs": [[1]], "useLongestLength": 1}, 34463),
        ("$zip", {"inputs": [[1]], "x": 1}, 34464),
        ("$zip", {"inputs": []}, 34465),
        ("$zip", {"inputs": [[1]], "useLongestLength": True, "defaults": [1, 2]}, 34467),
        ("$map", 1, 16878),
        ("$map", {"input": [], "in": 1, "x": 1}, 16879),
        ("$map", {"in": 1}, 16880),
        ("$map", {"input": "$l", "as": "X", "in": 1}, ErrorCode.FailedToParse),
        ("$filter", 1, 28646),
        ("$filter", {"input": "$l", "cond": 1, "x": 1}, 28647),
        ("$filter", {"cond": 1}, 28648),
        ("$filter", {"input": "$l"}, 28650),
        ("$filter", {"input": "$l", "cond": 1, "limit": -1}, 327392),
        ("$filter", {"input": "$l", "cond": 1, "limit": "x"}, 327391),
        ("$filter", {"input": "$l", "cond": 1, "limit": 1.5}, 327391),
        ("$reduce", 1, 40075),
        ("$reduce", {"input": "$l", "initialValue": 0, "in": 1, "x": 1}, 40076),
        ("$reduce", {"initialValue": 0, "in": 1}, 40077),
        ("$reduce", {"input": "$l", "in": 1}, 40078),
        ("$reduce", {"input": "$l", "initialValue": 0}, 40079),
    ],
)
def test_refusals(failure: Failure, operator: str, operand: object, code: int) -> None:
    assert failure({operator: operand}, DOC).code == code
