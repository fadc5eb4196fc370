from collections.abc import Callable
from typing import Any

import bson
import pytest
from bson import Int64

from mongottl.errors import CommandError, ErrorCode

Check = Callable[[object, dict[str, Any], object], None]
Failure = Callable[[object, dict[str, Any]], CommandError]

DOC = {"l": [3, 1, 2], "o": {"a": 1, "b": {"c": 2}}, "d": [{"k": 2, "x": "p"}, {"k": 1, "x": "q"}], "n": None}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"$arrayElemAt": ["$l", 0]}, 3),
        ({"$arrayElemAt": ["$l", -1]}, 2),
        ({"$arrayElemAt": ["$l", 3]}, ...),
        ({"$arrayElemAt": ["$n", 0]}, None),
        ({"$first": "$l"}, 3),
        ({"$last": "$l"}, 2),
        ({"$first": [[]]}, ...),
        ({"$concatArrays": ["$l", [4], []]}, [3, 1, 2, 4]),
        ({"$concatArrays": ["$l", "$n"]}, None),
        ({"$in": [1.0, "$l"]}, True),
        ({"$in": ["x", "$l"]}, False),
        ({"$indexOfArray": ["$l", 2]}, 2),
        ({"$indexOfArray": ["$l", 3, 1]}, -1),
        ({"$indexOfArray": ["$l", 1, 0, 1]}, -1),
        ({"$isArray": "$l"}, True),
        ({"$isArray": "$n"}, False),
        ({"$range": [0, 5, 2]}, [0, 2, 4]),
        ({"$range": [3, 0, -1]}, [3, 2, 1]),
        ({"$range": [0, 3]}, [0, 1, 2]),
        ({"$reverseArray": "$l"}, [2, 1, 3]),
        ({"$size": "$l"}, 3),
        ({"$slice": ["$l", 2]}, [3, 1]),
        ({"$slice": ["$l", -2]}, [1, 2]),
        ({"$slice": ["$l", 1, 5]}, [1, 2]),
        ({"$slice": ["$l", -9, 1]}, [3]),
        ({"$sortArray": {"input": "$l", "sortBy": 1}}, [1, 2, 3]),
        ({"$sortArray": {"input": [1, "a", None, 2.5], "sortBy": -1}}, ["a", 2.5, 1, None]),
        ({"$sortArray": {"input": "$d.k", "sortBy": 1}}, [1, 2]),
        ({"$zip": {"inputs": ["$l", ["a", "b"]]}}, [[3, "a"], [1, "b"]]),
        (
            {"$zip": {"inputs": ["$l", ["a"]], "useLongestLength": True, "defaults": [0, "-"]}},
            [[3, "a"], [1, "-"], [2, "-"]],
        ),
        ({"$firstN": {"n": 2, "input": "$l"}}, [3, 1]),
        ({"$lastN": {"n": 2, "input": "$l"}}, [1, 2]),
        ({"$maxN": {"n": 2, "input": "$l"}}, [3, 2]),
        ({"$minN": {"n": 2, "input": [3, None, 1]}}, [1, 3]),
    ],
)
def test_arrays(check: Check, expression: object, expected: object) -> None:
    check(expression, DOC, expected)


def test_sort_array_by_fields_keeps_documents_whole(check: Check) -> None:
    expression = {"$sortArray": {"input": "$d", "sortBy": {"k": 1}}}
    check(expression, DOC, [{"k": 1, "x": "q"}, {"k": 2, "x": "p"}])


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"$map": {"input": "$l", "in": {"$multiply": ["$$this", 2]}}}, [6, 2, 4]),
        ({"$map": {"input": "$l", "as": "e", "in": "$$e.x"}}, [None, None, None]),
        ({"$map": {"input": "$n", "in": 1}}, None),
        (
            {
                "$map": {
                    "input": "$l",
                    "as": "a",
                    "in": {"$map": {"input": [10, 20], "as": "b", "in": {"$add": ["$$a", "$$b"]}}},
                }
            },
            [[13, 23], [11, 21], [12, 22]],
        ),
        ({"$filter": {"input": "$l", "cond": {"$gt": ["$$this", 1]}}}, [3, 2]),
        ({"$filter": {"input": "$l", "as": "e", "cond": {"$gt": ["$$e", 1]}, "limit": 1}}, [3]),
        ({"$reduce": {"input": "$l", "initialValue": 0, "in": {"$add": ["$$value", "$$this"]}}}, 6),
        ({"$reduce": {"input": [], "initialValue": "x", "in": 1}}, "x"),
        ({"$reduce": {"input": "$n", "initialValue": 0, "in": 1}}, None),
    ],
)
def test_iteration(check: Check, expression: object, expected: object) -> None:
    check(expression, DOC, expected)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"$setUnion": [[2, 1], [1.0, 3]]}, [1, 2, 3]),
        ({"$setIntersection": [[2, 1, 1], [1, 2, 4]]}, [1, 2]),
        ({"$setDifference": [[3, 1, 3, 2], [2]]}, [3, 1]),
        ({"$setEquals": [[1, 2], [2, 1, 1]]}, True),
        ({"$setIsSubset": [[1], [1, 2]]}, True),
        ({"$setIsSubset": [[3], [1, 2]]}, False),
        ({"$allElementsTrue": [[1, True, "x"]]}, True),
        ({"$allElementsTrue": [[1, 0]]}, False),
        ({"$anyElementTrue": [[0, None]]}, False),
        ({"$setUnion": ["$n", [1]]}, None),
    ],
)
def test_sets(check: Check, expression: object, expected: object) -> None:
    check(expression, DOC, expected)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"$mergeObjects": ["$o", {"a": 5, "z": 6}, None]}, {"a": 5, "b": {"c": 2}, "z": 6}),
        ({"$mergeObjects": "$d"}, {"k": 1, "x": "q"}),
        ({"$objectToArray": "$o"}, [{"k": "a", "v": 1}, {"k": "b", "v": {"c": 2}}]),
        ({"$arrayToObject": [[["x", 1], ["y", 2], ["x", 3]]]}, {"x": 3, "y": 2}),
        ({"$arrayToObject": [[{"k": "x", "v": None}]]}, {"x": None}),
        ({"$getField": {"field": "a", "input": "$o"}}, 1),
        ({"$getField": {"field": {"$literal": "$x"}, "input": {"$literal": {"$x": 7}}}}, 7),
        ({"$getField": "n"}, None),
        ({"$getField": {"field": "a.b", "input": {"$literal": {"a.b": 8}}}}, 8),
        ({"$getField": {"field": "zz", "input": "$o"}}, ...),
        ({"$setField": {"field": "a", "input": "$o", "value": 9}}, {"a": 9, "b": {"c": 2}}),
        ({"$setField": {"field": "q.r", "input": {}, "value": 1}}, {"q.r": 1}),
        ({"$unsetField": {"field": "b", "input": "$o"}}, {"a": 1}),
        ({"$setField": {"field": "a", "input": "$n", "value": 1}}, None),
        ({"$bsonSize": {}}, 5),
        ({"$binarySize": "é"}, 2),
        ({"$toHashedIndexKey": {"$literal": 42.123}}, Int64(-944302157085130861)),
        ({"$toHashedIndexKey": "$nothing"}, Int64(2338878944348059895)),
    ],
)
def test_objects(check: Check, expression: object, expected: object) -> None:
    check(expression, DOC, expected)


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ({"$arrayElemAt": ["x", 0]}, 28689),
        ({"$arrayElemAt": ["$l", "x"]}, 28690),
        ({"$arrayElemAt": ["$l", 0.5]}, 28691),
        ({"$concatArrays": ["$l", 1]}, 28664),
        ({"$in": [1, "x"]}, 40081),
        ({"$indexOfArray": ["x", 1]}, 40090),
        ({"$indexOfArray": ["$l", 1, -1]}, 9711601),
        ({"$range": ["x", 1]}, 34443),
        ({"$range": [0, 1, 0]}, 34449),
        ({"$concatArrays": [{"$range": [0, 7_000_000]}, {"$range": [0, 7_000_000]}]}, 292),
        ({"$range": [0, 2**31 - 1]}, ErrorCode.QueryExceededMemoryLimitNoDiskUseAllowed),
        ({"$reverseArray": 1}, 34435),
        ({"$size": "$n"}, 17124),
        ({"$slice": [1, 1]}, 28724),
        ({"$slice": ["$l", 0, 0]}, 28729),
        ({"$sortArray": {"input": 1, "sortBy": 1}}, 2942504),
        ({"$sortArray": {"input": [], "sortBy": {"a": 2}}}, 2942505),
        ({"$sortArray": {"input": [], "sortBy": 3}}, 2942506),
        ({"$zip": {"inputs": [1]}}, 34468),
        ({"$zip": {"inputs": [[1]], "defaults": [1]}}, 34466),
        ({"$map": {"input": 1, "in": 1}}, 16883),
        ({"$map": {"input": []}}, 16882),
        ({"$filter": {"input": 1, "cond": 1}}, 28651),
        ({"$filter": {"input": "$l", "cond": 1, "limit": 0}}, 327392),
        ({"$reduce": {"input": 1, "initialValue": 0, "in": 1}}, 40080),
        ({"$setUnion": [1]}, 17043),
        ({"$setEquals": [[1]]}, 17045),
        ({"$allElementsTrue": [1]}, 17040),
        ({"$mergeObjects": [1]}, 40400),
        ({"$objectToArray": 1}, 40390),
        ({"$arrayToObject": 1}, 40386),
        ({"$arrayToObject": [[["a"]]]}, 40397),
        ({"$arrayToObject": [[[1, 2]]]}, 40395),
        ({"$arrayToObject": [[{"k": "a"}]]}, 40392),
        ({"$arrayToObject": [[["a", 1], {"k": "b", "v": 1}]]}, 40396),
        ({"$getField": 5}, 3041704),
        ({"$setField": {"field": "$x", "input": {}, "value": 1}}, 4161108),
        ({"$setField": {"field": "x", "input": 1, "value": 1}}, 4161105),
        ({"$firstN": {"n": 0, "input": []}}, 5787908),
    ],
)
def test_errors(failure: Failure, expression: object, code: int) -> None:
    assert failure(expression, DOC).code == code


def test_a_map_over_a_large_array_is_exact(check: Check) -> None:
    numbers = list(range(1000))
    check({"$map": {"input": "$v", "in": {"$add": ["$$this", 1]}}}, {"v": numbers}, [n + 1 for n in numbers])
    check({"$sum": "$v"}, {"v": [Int64(n) for n in numbers]}, Int64(sum(numbers)))
    assert len(bson.encode({"v": numbers})) > 4096
