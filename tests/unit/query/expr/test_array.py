"""Operators of arrays: elements, parts, ranges, sorting and zipping."""

from collections.abc import Callable
from typing import Any

import pytest
from bson import Decimal128, Int64
from bson.datetime_ms import DatetimeMS

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
        ("$arrayElemAt", ["$l", 0], 3),
        ("$arrayElemAt", ["$l", -1], 2),
        ("$arrayElemAt", ["$l", 3], ...),
        ("$arrayElemAt", ["$n", 0], None),
        ("$arrayElemAt", ["$l", -3], 3),
        ("$arrayElemAt", ["$l", -4], ...),
        ("$arrayElemAt", ["$l", 1.0], 1),
        ("$arrayElemAt", ["$l", Int64(2)], 2),
        ("$arrayElemAt", ["$l", Decimal128("0")], 3),
        ("$arrayElemAt", ["$holes", 1], None),
        ("$arrayElemAt", ["$e", 0], ...),
        ("$arrayElemAt", ["$missing", 0], None),
        ("$arrayElemAt", ["$l", None], None),
        ("$first", "$l", 3),
        ("$first", [[]], ...),
        ("$first", "$team.name", "pat"),
        ("$first", "$n", None),
        ("$first", "$missing", None),
        ("$first", [[None, 1]], None),
        ("$first", "$e", ...),
        ("$last", "$l", 2),
        ("$last", "$team.age", 42),
        ("$last", "$n", None),
        ("$last", "$missing", None),
        ("$last", [[1, None]], None),
        ("$last", "$e", ...),
        ("$last", [[1, [2, 3]]], [2, 3]),
        ("$concatArrays", ["$l", [4], []], [3, 1, 2, 4]),
        ("$concatArrays", ["$l", "$n"], None),
        ("$concatArrays", [["hello", " "], ["world"]], ["hello", " ", "world"]),
        ("$concatArrays", [["hello", " "], [["world"], "again"]], ["hello", " ", ["world"], "again"]),
        ("$concatArrays", [], []),
        ("$concatArrays", ["$l"], [3, 1, 2]),
        ("$concatArrays", ["$e", "$e"], []),
        ("$concatArrays", ["$l", "$missing"], None),
        ("$concatArrays", [[None], ["$missing"]], [None, None]),
        ("$in", [1.0, "$l"], True),
        ("$in", ["x", "$l"], False),
        ("$in", [2, [1, 2, 3]], True),
        ("$in", ["abc", ["xyz", "abc"]], True),
        ("$in", ["xy", ["xyz", "abc"]], False),
        ("$in", [["a"], ["a"]], False),
        ("$in", [["a"], [["a"]]], True),
        ("$in", [None, "$holes"], True),
        ("$in", ["$missing", "$holes"], False),
        ("$in", [Decimal128("3"), "$l"], True),
        ("$in", [NAN, [NAN]], True),
        ("$indexOfArray", ["$l", 2], 2),
        ("$indexOfArray", ["$l", 3, 1], -1),
        ("$indexOfArray", ["$l", 1, 0, 1], -1),
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
        ("$isArray", "$l", True),
        ("$isArray", "$n", False),
        ("$isArray", ["$l"], True),
        ("$isArray", [["hello"]], True),
        ("$isArray", ["hello"], False),
        ("$isArray", "$e", True),
        ("$isArray", "$s", False),
        ("$isArray", "$missing", False),
        ("$isArray", [{}], False),
        ("$isArray", "$team.name", True),
        ("$isArray", {"$range": [0, 0]}, True),
        ("$range", [0, 5, 2], [0, 2, 4]),
        ("$range", [3, 0, -1], [3, 2, 1]),
        ("$range", [0, 3], [0, 1, 2]),
        ("$range", [0, 10, 2], [0, 2, 4, 6, 8]),
        ("$range", [10, 0, -2], [10, 8, 6, 4, 2]),
        ("$range", [0, 10, -2], []),
        ("$range", [0, 5], [0, 1, 2, 3, 4]),
        ("$range", [3, 3], []),
        ("$range", [Int64(0), 2.0], [0, 1]),
        ("$range", [2**31 - 3, 2**31 - 1, 5], [2**31 - 3]),
        ("$reverseArray", "$l", [2, 1, 3]),
        ("$reverseArray", [[1, 2, 3]], [3, 2, 1]),
        ("$reverseArray", {"$slice": [["foo", "bar", "baz", "qux"], 1, 2]}, ["baz", "bar"]),
        ("$reverseArray", "$n", None),
        ("$reverseArray", "$missing", None),
        ("$reverseArray", [[]], []),
        ("$reverseArray", [[[1, 2, 3], [4, 5, 6]]], [[4, 5, 6], [1, 2, 3]]),
        ("$reverseArray", "$holes", [2, None, 1]),
        ("$size", "$l", 3),
        ("$size", [[]], 0),
        ("$size", {"$range": [0, 3]}, 3),
        ("$size", {"$literal": [None, None]}, 2),
        ("$size", "$holes", 3),
        ("$size", [[[1, 2]]], 1),
        ("$size", "$team.nothing", 0),
        ("$slice", ["$l", 2], [3, 1]),
        ("$slice", ["$l", -2], [1, 2]),
        ("$slice", ["$l", 1, 5], [1, 2]),
        ("$slice", ["$l", -9, 1], [3]),
        ("$slice", [[1, 2, 3], 1, 1], [2]),
        ("$slice", [[1, 2, 3], -2], [2, 3]),
        ("$slice", [[1, 2, 3], 15, 2], []),
        ("$slice", [[1, 2, 3], -15, 2], [1, 2]),
        ("$slice", ["$l", 0], []),
        ("$slice", ["$l", 99], [3, 1, 2]),
        ("$slice", ["$l", "$missing"], None),
        ("$slice", ["$n", 1], None),
        ("$slice", ["$l", 1, None], None),
    ],
)
def test_operators_of_arrays(check: Check, operator: str, operand: object, expected: object) -> None:
    check({operator: operand}, DOC, expected)


def test_sort_array_by_fields_keeps_documents_whole(check: Check) -> None:
    expression = {"$sortArray": {"input": "$d", "sortBy": {"k": 1}}}
    check(expression, DOC, [{"k": 1, "x": "q"}, {"k": 2, "x": "p"}])


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
        ("$l", 1, [1, 2, 3]),
        ([1, "a", None, 2.5], -1, ["a", 2.5, 1, None]),
        ("$d.k", 1, [1, 2]),
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
        ({"inputs": ["$l", ["a", "b"]]}, [[3, "a"], [1, "b"]]),
        ({"inputs": ["$l", ["a"]], "useLongestLength": True, "defaults": [0, "-"]}, [[3, "a"], [1, "-"], [2, "-"]]),
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
    ("operator", "operand", "code"),
    [
        ("$arrayElemAt", ["x", 0], 28689),
        ("$arrayElemAt", ["$l", "x"], 28690),
        ("$arrayElemAt", ["$l", 0.5], 28691),
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
        ("$concatArrays", ["$l", 1], 28664),
        ("$concatArrays", [{"$range": [0, 7_000_000]}, {"$range": [0, 7_000_000]}], 292),
        ("$concatArrays", ["$l", "$s"], 28664),
        ("$concatArrays", "$s", 28664),
        ("$in", [1, "x"], 40081),
        ("$in", [1, "$n"], 40081),
        ("$in", [1, "$missing"], 40081),
        ("$in", [1], 16020),
        ("$indexOfArray", ["x", 1], 40090),
        ("$indexOfArray", ["$l", 1, -1], 9711601),
        ("$indexOfArray", ["$l", 1, "x"], 9711600),
        ("$indexOfArray", ["$l", 1, 0.5], 9711600),
        ("$indexOfArray", ["$l", 1, 0, -1], 9711601),
        ("$indexOfArray", ["$l"], 28667),
        ("$isArray", [], 16020),
        ("$isArray", [1, 2], 16020),
        ("$range", ["x", 1], 34443),
        ("$range", [0, 1, 0], 34449),
        ("$range", [0, 2**31 - 1], ErrorCode.QueryExceededMemoryLimitNoDiskUseAllowed),
        ("$range", [0.5, 1], 34444),
        ("$range", [0, "x"], 34445),
        ("$range", [0, Int64(2**31)], 34446),
        ("$range", [0, 1, "x"], 34447),
        ("$range", [0, 1, 0.5], 34448),
        ("$range", ["$n", 1], 34443),
        ("$range", [1], 28667),
        ("$reverseArray", 1, 34435),
        ("$reverseArray", "$s", 34435),
        ("$reverseArray", [{}], 34435),
        ("$reverseArray", [[1], [2]], 16020),
        ("$size", "$n", 17124),
        ("$size", "$missing", 17124),
        ("$size", "$s", 17124),
        ("$size", [1, 2], 16020),
        ("$slice", [1, 1], 28724),
        ("$slice", ["$l", 0, 0], 28729),
        ("$slice", ["$l", "x"], 28725),
        ("$slice", ["$l", 1.5], 28726),
        ("$slice", ["$l", 1, "x"], 28727),
        ("$slice", ["$l", 1, 1.5], 28728),
        ("$slice", ["$l", 1, -1], 28729),
        ("$sortArray", {"input": 1, "sortBy": 1}, 2942504),
        ("$sortArray", {"input": [], "sortBy": {"a": 2}}, 2942505),
        ("$sortArray", {"input": [], "sortBy": 3}, 2942506),
        ("$sortArray", 1, 2942500),
        ("$sortArray", {"input": [], "sortBy": 1, "x": 1}, 2942501),
        ("$sortArray", {"sortBy": 1}, 2942502),
        ("$sortArray", {"input": []}, 2942503),
        ("$sortArray", {"input": [], "sortBy": "x"}, 2942507),
        ("$zip", {"inputs": [1]}, 34468),
        ("$zip", {"inputs": [[1]], "defaults": [1]}, 34466),
        ("$zip", 1, 34460),
        ("$zip", {"inputs": "$l"}, 34461),
        ("$zip", {"inputs": [[1]], "useLongestLength": True, "defaults": 1}, 34462),
        ("$zip", {"inputs": [[1]], "useLongestLength": 1}, 34463),
        ("$zip", {"inputs": [[1]], "x": 1}, 34464),
        ("$zip", {"inputs": []}, 34465),
        ("$zip", {"inputs": [[1]], "useLongestLength": True, "defaults": [1, 2]}, 34467),
    ],
)
def test_refusals_of_operators_of_arrays(failure: Failure, operator: str, operand: object, code: int) -> None:
    assert failure({operator: operand}, DOC).code == code
