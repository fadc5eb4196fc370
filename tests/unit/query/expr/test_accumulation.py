"""`$sum`, `$avg`, `$min`, `$max`, `$firstN` and the like, deviations and percentiles as expressions."""

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
    "mixed": [1, "x", None, 2.5, True],
    "quizzes": [10, 6, 7],
    "labs": [5, 8],
    "s": "x",
    "holes": [1, None, 2],
    "team": [{"name": "pat", "age": 30}, {"name": "dallas", "age": 5}, {"name": "charlie", "age": 42}],
}


@pytest.mark.parametrize(
    ("operator", "operand", "expected"),
    [
        ("$sum", "$quizzes", 23),
        ("$sum", ["$n", "$missing", "x"], 0),
        ("$sum", "$e", 0),
        ("$sum", [2**31 - 1, 1], Int64(2**31)),
        ("$sum", [Int64(2**63 - 1), 1], 9223372036854775808.0),
        ("$sum", [Int64(1), 1], Int64(2)),
        ("$sum", [0.1, 0.2, 0.3], 0.6),
        ("$sum", [1, Decimal128("0.10")], Decimal128("1.10")),
        ("$sum", [INF, -INF], NAN),
        ("$sum", "$mixed", 3.5),
        ("$avg", "$quizzes", 23 / 3),
        ("$avg", "$labs", 6.5),
        ("$avg", [1, Decimal128("2")], Decimal128("1.5")),
        ("$avg", "$e", None),
        ("$avg", ["x", None], None),
        ("$avg", "$mixed", 1.75),
        ("$avg", [5], 5.0),
        ("$avg", [["$quizzes"]], None),
        ("$avg", [2**31 - 1, 2**31 - 1], 2147483647.0),
        ("$avg", [INF, 1], INF),
        ("$avg", [NAN, 1], NAN),
        ("$max", [1, "x", None], "x"),
        ("$max", [[3, 1], 5], [3, 1]),  # an array among several operands is a value
        ("$max", "$quizzes", 10),
        ("$max", "$e", None),
        ("$max", [None, "$missing"], None),
        ("$max", [1, 1.0], 1),
        ("$max", [NAN, 1], 1),
        ("$max", [DatetimeMS(5), True], DatetimeMS(5)),
        ("$max", [1, MaxKey()], MaxKey()),
        ("$max", 5, 5),
        ("$min", [1, "x", None], 1),
        ("$min", [[3, 1], 5], 5),
        ("$min", "$quizzes", 6),
        ("$min", "$e", None),
        ("$min", ["$missing", None], None),
        ("$min", [NAN, 1], NAN),
        ("$min", [1.0, 1], 1.0),
        ("$min", ["b", "a"], "a"),
        ("$min", [True, False], False),
        ("$min", [Decimal128("-Infinity"), -INF], Decimal128("-Infinity")),
        ("$stdDevPop", [[10, 6, 7]], 1.699673171197595),
        ("$stdDevPop", "$quizzes", 1.699673171197595),
        ("$stdDevPop", "$labs", 1.5),
        ("$stdDevPop", [5], 0.0),
        ("$stdDevPop", "$e", None),
        ("$stdDevPop", ["x", None], None),
        ("$stdDevPop", ["x", 1, 3], 1.0),
        ("$stdDevPop", [Decimal128("1"), Int64(3)], 1.0),
        ("$stdDevPop", [1, INF], NAN),
        ("$stdDevPop", "$missing", None),
        ("$stdDevSamp", "$quizzes", 2.081665999466133),
        ("$stdDevSamp", [1, 3], 1.4142135623730951),
        ("$stdDevSamp", [5], None),
        ("$stdDevSamp", "$e", None),
        ("$stdDevSamp", ["x", 5], None),
        ("$stdDevSamp", [2, "x", 2], 0.0),
        ("$stdDevSamp", [Decimal128("1"), 2.0, Int64(3)], 1.0),
        ("$stdDevSamp", [1, -INF], NAN),
        ("$stdDevSamp", [NAN, 1], NAN),
        ("$stdDevSamp", "$missing", None),
    ],
)
def test_sums_and_extremes(check: Check, operator: str, operand: object, expected: object) -> None:
    check({operator: operand}, DOC, expected)


@pytest.mark.parametrize(
    ("values", "median"),
    [
        ([1, 2, 3], 2.0),
        ([4, 1, 2, 3], 2.0),  # the lower of two
        ([Int64(5)], 5.0),
        ([Decimal128("1.5"), 7], 1.5),
        (7, 7.0),
        ("$mixed", 1.0),
        ("$e", None),
        ("$n", None),
        ("$missing", None),
        ("x", None),
        ([-INF, 0, INF], 0.0),
        ([None, "x"], None),
        ([[1, 2]], None),
    ],
)
def test_median(check: Check, values: object, median: object) -> None:
    check({"$median": {"input": values, "method": "approximate"}}, DOC, median)
    check({"$percentile": {"input": values, "p": [0.5], "method": "approximate"}}, DOC, [median])


@pytest.mark.parametrize(
    ("values", "shares", "expected"),
    [
        ([1, 2, 3, 4, 5], [0, 0.2, 0.21, 1], [1.0, 1.0, 2.0, 5.0]),
        ([5, 3, 1], [0.9, 0.1], [5.0, 1.0]),  # in the order of p
        ([1, 2], [1, 1], [2.0, 2.0]),
        ([INF, 1], [0, 1.0], [1.0, INF]),
        ([True, "x"], [0.5, 0.9], [None, None]),
        ("$l", [Decimal128("0.5")], [2.0]),
    ],
)
def test_percentile(check: Check, values: object, shares: list[object], expected: list[object]) -> None:
    check({"$percentile": {"input": values, "p": shares, "method": "approximate"}}, DOC, expected)


@pytest.mark.parametrize(
    ("operator", "operand", "code"),
    [
        ("$median", 1, 7436100),
        ("$median", {"method": "approximate"}, 40414),
        ("$median", {"input": 1, "method": 1}, ErrorCode.TypeMismatch),
        ("$median", {"input": 1, "method": "discrete"}, ErrorCode.BadValue),
        ("$median", {"input": 1, "method": "approximate", "p": [0.5]}, 40415),
        ("$percentile", 1, 7429703),
        ("$percentile", {"input": 1, "method": "approximate"}, 40414),
        ("$percentile", {"input": 1, "p": [0.5]}, 40414),
        ("$percentile", {"input": 1, "p": [], "method": "approximate"}, 7750301),
        ("$percentile", {"input": 1, "p": ["x"], "method": "approximate"}, 7750301),
        ("$percentile", {"input": 1, "p": [-0.1], "method": "approximate"}, 7750303),
        ("$percentile", {"input": 1, "p": ["$l"], "method": "approximate"}, 7750301),
        ("$percentile", {"input": 1, "p": [0.5], "method": "continuous"}, ErrorCode.BadValue),
        ("$percentile", {"input": 1, "p": [0.5], "method": "approximate", "x": 1}, 40415),
    ],
)
def test_refusals(failure: Failure, operator: str, operand: object, code: int) -> None:
    assert failure({operator: operand}, DOC).code == code


@pytest.mark.parametrize(
    ("operator", "operand", "expected"),
    [
        ("$firstN", {"n": 2, "input": "$l"}, [3, 1]),
        ("$firstN", {"input": "$l", "n": 99}, [3, 1, 2]),
        ("$firstN", {"input": "$holes", "n": 2}, [1, None]),
        ("$firstN", {"input": "$e", "n": 1}, []),
        ("$firstN", {"input": "$l", "n": 1.0}, [3]),
        ("$firstN", {"input": [[1, 2], 3], "n": 1}, [[1, 2]]),
        ("$lastN", {"n": 2, "input": "$l"}, [1, 2]),
        ("$lastN", {"input": "$l", "n": 99}, [3, 1, 2]),
        ("$lastN", {"input": "$holes", "n": 2}, [None, 2]),
        ("$lastN", {"input": "$e", "n": 1}, []),
        ("$lastN", {"input": "$n", "n": 1}, None),
        ("$lastN", {"input": "$missing", "n": 1}, None),
        ("$lastN", {"input": "$l", "n": Int64(1)}, [2]),
        ("$lastN", {"input": "$team.name", "n": 1}, ["charlie"]),
        ("$maxN", {"n": 2, "input": "$l"}, [3, 2]),
        ("$maxN", {"input": "$holes", "n": 5}, [2, 1]),
        ("$maxN", {"input": [1, "a", [0], {"x": 1}], "n": 2}, [[0], {"x": 1}]),
        ("$maxN", {"input": [1, 1.0, Int64(1)], "n": 2}, [1, 1.0]),
        ("$maxN", {"input": "$e", "n": 3}, []),
        ("$maxN", {"input": "$n", "n": 3}, None),
        ("$minN", {"n": 2, "input": [3, None, 1]}, [1, 3]),
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
def test_first_last_largest_and_smallest_n(check: Check, operator: str, operand: object, expected: object) -> None:
    check({operator: operand}, DOC, expected)


@pytest.mark.parametrize(
    ("operator", "operand", "code"),
    [
        ("$firstN", {"n": 0, "input": []}, 5787908),
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
    ],
)
def test_refusals_of_first_last_largest_and_smallest_n(
    failure: Failure, operator: str, operand: object, code: int
) -> None:
    assert failure({operator: operand}, DOC).code == code
