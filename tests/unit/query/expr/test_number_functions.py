"""Roots, powers, logarithms, rounding and bits, with the examples of their reference pages."""

from collections.abc import Callable
from typing import Any

import pytest
from bson import Decimal128, Int64
from bson.datetime_ms import DatetimeMS

from mongottl.errors import CommandError, ErrorCode

Check = Callable[[object, dict[str, Any], object], None]
Failure = Callable[[object, dict[str, Any]], CommandError]

INF = float("inf")
NAN = float("nan")
D_INF = Decimal128("Infinity")
D_NAN = Decimal128("NaN")


@pytest.mark.parametrize(
    ("operator", "operand", "expected"),
    [
        ("$abs", Int64(-5), Int64(5)),
        ("$abs", -0.0, 0.0),
        ("$abs", -INF, INF),
        ("$abs", NAN, NAN),
        ("$abs", Decimal128("-Infinity"), D_INF),
        ("$ceil", 7.8, 8.0),
        ("$ceil", -2.8, -2.0),
        ("$ceil", Int64(9), Int64(9)),
        ("$ceil", -INF, -INF),
        ("$ceil", NAN, NAN),
        ("$ceil", 9007199254740993.0, 9007199254740992.0),
        ("$ceil", Decimal128("7.01"), Decimal128("8")),
        ("$ceil", Decimal128("-0.5"), Decimal128("-0")),
        ("$ceil", D_INF, Decimal128("NaN")),
        ("$floor", 7.8, 7.0),
        ("$floor", -2.3, -3.0),
        ("$floor", 0.5, 0.0),
        ("$floor", -0.0, -0.0),
        ("$floor", 3, 3),
        ("$floor", Int64(9), Int64(9)),
        ("$floor", INF, INF),
        ("$floor", NAN, NAN),
        ("$floor", Decimal128("-1.2"), Decimal128("-2")),
        ("$exp", 2, 7.38905609893065),
        ("$exp", -2, 0.1353352832366127),
        ("$exp", Int64(1), 2.718281828459045),
        ("$exp", 1000, INF),
        ("$exp", -1000, 0.0),
        ("$exp", -INF, 0.0),
        ("$exp", NAN, NAN),
        ("$exp", Decimal128("0"), Decimal128("1")),
        ("$exp", Decimal128("1"), Decimal128("2.718281828459045235360287471352662")),
        ("$exp", Decimal128("-Infinity"), Decimal128("0")),
        ("$ln", 10, 2.302585092994046),
        ("$ln", 2.718281828459045, 1.0),
        ("$ln", Int64(2), 0.6931471805599453),
        ("$ln", INF, INF),
        ("$ln", NAN, NAN),
        ("$ln", D_NAN, NAN),  # the oracle's: a double
        ("$ln", Decimal128("10"), Decimal128("2.302585092994045684017991454684364")),
        ("$ln", D_INF, D_INF),
        ("$log10", 1, 0.0),
        ("$log10", 100, 2.0),
        ("$log10", 0.001, -3.0),
        ("$log10", Int64(10), 1.0),
        ("$log10", INF, INF),
        ("$log10", NAN, NAN),
        ("$log10", Decimal128("2"), Decimal128("0.3010299956639811952137388947244930")),
        ("$log10", D_INF, D_INF),
        ("$sqrt", 30, 5.477225575051661),
        ("$sqrt", Int64(4), 2.0),
        ("$sqrt", 0, 0.0),
        ("$sqrt", -0.0, -0.0),
        ("$sqrt", INF, INF),
        ("$sqrt", NAN, NAN),
        ("$sqrt", Decimal128("0.25"), Decimal128("0.5")),
        ("$sqrt", Decimal128("-0"), Decimal128("-0")),
        ("$sqrt", D_NAN, D_NAN),
        ("$sigmoid", 1, 0.7310585786300049),
        ("$sigmoid", Int64(-1), 0.2689414213699951),
        ("$sigmoid", -0.0, 0.5),
        ("$sigmoid", INF, 1.0),
        ("$sigmoid", -INF, 0.0),
        ("$sigmoid", NAN, NAN),
        ("$sigmoid", Decimal128("0"), Decimal128("0.5")),
        ("$sigmoid", Decimal128("1"), Decimal128("0.7310585786300048792511592418218362")),
        ("$trunc", 7.85, 7.0),
        ("$trunc", -2.3, -2.0),
        ("$trunc", -0.5, -0.0),
        ("$trunc", INF, INF),
        ("$trunc", NAN, NAN),
        ("$trunc", Int64(-7), Int64(-7)),
        ("$trunc", Decimal128("-7.9"), Decimal128("-7")),
        ("$round", -0.5, -0.0),
        ("$round", 10.5, 10.0),
        ("$round", 11.5, 12.0),
        ("$round", Decimal128("2.5"), Decimal128("2")),
    ],
)
def test_functions_of_one_number(check: Check, operator: str, operand: object, expected: object) -> None:
    check({operator: operand}, {}, expected)
    check({operator: "$v"}, {"v": operand}, expected)


@pytest.mark.parametrize("operator", "$abs $ceil $floor $exp $ln $log10 $sqrt $sigmoid $round $trunc $bitNot".split())
def test_nothing_gives_null(check: Check, operator: str) -> None:
    for nothing in (None, "$n", "$missing"):
        check({operator: nothing}, {"n": None}, None)


@pytest.mark.parametrize(
    ("operator", "code"),
    [
        ("$abs", 28765),
        ("$ceil", 28765),
        ("$floor", 28765),
        ("$exp", 28765),
        ("$ln", 28765),
        ("$log10", 28765),
        ("$sqrt", 28765),
        ("$sigmoid", ErrorCode.TypeMismatch),
        ("$round", 51081),
        ("$trunc", 51081),
        ("$bitNot", ErrorCode.TypeMismatch),
        ("$bitAnd", ErrorCode.TypeMismatch),
        ("$bitOr", ErrorCode.TypeMismatch),
        ("$bitXor", ErrorCode.TypeMismatch),
    ],
)
def test_functions_of_numbers_refuse_other_types(failure: Failure, operator: str, code: int) -> None:
    refused: list[object] = ["1", "", True, {}, [1], DatetimeMS(0)]
    for wrong in refused:
        assert failure({operator: "$v"}, {"v": wrong}).code == code


@pytest.mark.parametrize(
    ("operator", "operand", "code"),
    [
        ("$ln", -1, 28766),
        ("$ln", -0.0, 28766),
        ("$ln", -INF, 28766),
        ("$ln", Decimal128("0"), 28766),
        ("$log10", 0, 28761),
        ("$log10", Decimal128("-1"), 28761),
        ("$log10", -INF, 28761),
        ("$sqrt", -0.1, 28714),
        ("$sqrt", -INF, 28714),
        ("$sqrt", Decimal128("-1"), 28714),
        ("$abs", [], 16020),
        ("$ceil", [1, 2], 16020),
        ("$floor", [1, 2], 16020),
        ("$exp", [], 16020),
        ("$ln", [1, 2], 16020),
        ("$log10", [], 16020),
        ("$sqrt", [1, 2], 16020),
        ("$bitNot", [1, 2], 16020),
        ("$log", [1], 16020),
        ("$log", 1, 16020),
        ("$pow", [1, 2, 3], 16020),
        ("$round", [], 28667),
        ("$trunc", [1, 2, 3], 28667),
    ],
)
def test_domains_and_counts_of_arguments(failure: Failure, operator: str, operand: object, code: int) -> None:
    assert failure({operator: operand}, {}).code == code


@pytest.mark.parametrize(
    ("operator", "operands", "expected"),
    [
        ("$multiply", [2, 2.5], 5.0),
        ("$multiply", [Int64(2), 3], Int64(6)),
        ("$multiply", [3], 3),
        ("$multiply", [-1, 0.0], -0.0),
        ("$multiply", [INF, 0], NAN),
        ("$multiply", [Int64(2**62), 4.0], 2.0**64),
        ("$multiply", [Decimal128("9E+6144"), 10], D_INF),
        ("$multiply", [2, None], None),
        ("$multiply", ["$missing", 2], None),
        ("$divide", [Int64(9), 3], 3.0),
        ("$divide", [-0.0, 5], -0.0),
        ("$divide", [1, -INF], -0.0),
        ("$divide", [INF, INF], NAN),
        ("$divide", [Decimal128("7"), 2], Decimal128("3.5")),
        ("$divide", [1, None], None),
        ("$divide", ["$missing", 2], None),
        ("$add", [Int64(2**63 - 1), 0.0], 2.0**63),
        ("$add", [-0.0, -0.0], -0.0),
        ("$add", [Decimal128("Infinity"), 1], D_INF),
        ("$subtract", [Int64(5), 7], Int64(-2)),
        ("$subtract", [0.3, 0.1], 0.19999999999999998),
        ("$subtract", [Decimal128("1.5"), Int64(1)], Decimal128("0.5")),
        ("$subtract", [INF, INF], NAN),
        ("$mod", [-7.5, 2], -1.5),
        ("$mod", [7, -3], 1),
        ("$mod", [7, INF], 7.0),
        ("$mod", [None, 3], None),
        ("$log", [100, 10], 2.0),
        ("$log", [Int64(8), Int64(2)], 3.0),
        ("$log", [1, 10], 0.0),
        ("$log", [0.5, 2], -1.0),
        ("$log", [INF, 2], INF),
        ("$log", [2, INF], 0.0),
        ("$log", [NAN, 2], NAN),
        ("$log", [None, 2], None),
        ("$log", [2, None], None),
        ("$log", [Decimal128("100"), 10], Decimal128("2")),
        ("$log", [Decimal128("32"), Decimal128("2")], Decimal128("5")),
        ("$pow", [5, 0], 1),
        ("$pow", [5, 2], 25),
        ("$pow", [5, -2], 0.04),
        ("$pow", [-5, 0.5], NAN),
        ("$pow", [NAN, 0], 1.0),
        ("$pow", [2.0, 3], 8.0),
        ("$pow", [2, Int64(3)], Int64(8)),
        ("$pow", [Decimal128("1.1"), 2], Decimal128("1.210000000000000000000000000000000")),
        ("$pow", [None, 2], None),
        ("$round", [19.25, 1], 19.2),
        ("$round", [28.73, 1], 28.7),
        ("$round", [-45.39, 1], -45.4),
        ("$round", [19.25, -1], 20.0),
        ("$round", [-45.39, -1], -50.0),
        ("$round", [28.73, 0], 29.0),
        ("$round", [1.5, None], None),
        ("$round", [None, 1], None),
        ("$trunc", [19.25, 1], 19.2),
        ("$trunc", [-45.39, 1], -45.3),
        ("$trunc", [19.25, -1], 10.0),
        ("$trunc", [-45.39, -1], -40.0),
        ("$trunc", [1999, -2], 1900),
        ("$trunc", [Int64(-1999), -3], Int64(-1000)),
        ("$trunc", [5, -1], 0),
        ("$trunc", [Decimal128("1.129"), 2], Decimal128("1.12")),
        ("$trunc", [1.29, 1.0], 1.2),
        ("$trunc", [None, 1], None),
        ("$bitAnd", [5, 3], 1),
        ("$bitAnd", [12, 10, 9], 8),
        ("$bitAnd", [7], 7),
        ("$bitAnd", [-1, Int64(2**40 + 1)], Int64(2**40 + 1)),
        ("$bitAnd", [Int64(2), 3], Int64(2)),
        ("$bitAnd", [1, None, 3], None),
        ("$bitAnd", [1, "$missing"], None),
        ("$bitOr", [], 0),
        ("$bitOr", [5, 3], 7),
        ("$bitOr", [1, 2, 4], 7),
        ("$bitOr", [-8, 1], -7),
        ("$bitOr", [1, Int64(2**40)], Int64(2**40 + 1)),
        ("$bitOr", [7], 7),
        ("$bitOr", ["$missing", 1], None),
        ("$bitXor", [], 0),
        ("$bitXor", [5, 3], 6),
        ("$bitXor", [5, 5], 0),
        ("$bitXor", [-1, 1], -2),
        ("$bitXor", [Int64(5), 3], Int64(6)),
        ("$bitXor", [7], 7),
        ("$bitXor", [1, None], None),
        ("$bitXor", ["$missing"], None),
    ],
)
def test_functions_of_several_numbers(check: Check, operator: str, operands: object, expected: object) -> None:
    check({operator: operands}, {}, expected)


@pytest.mark.parametrize(
    ("operand", "expected"),
    [
        (-1, 0),
        (2**31 - 1, -(2**31)),
        (-(2**31), 2**31 - 1),
        (Int64(0), Int64(-1)),
        (Int64(2**63 - 1), Int64(-(2**63))),
        (Int64(-(2**63)), Int64(2**63 - 1)),
        ([7], -8),
    ],
)
def test_bit_not_keeps_the_type(check: Check, operand: object, expected: object) -> None:
    check({"$bitNot": operand}, {}, expected)


@pytest.mark.parametrize(
    "expression",
    [
        {"$bitNot": 1.0},
        {"$bitNot": Decimal128("1")},
        {"$bitAnd": [1, 2.0]},
        {"$bitAnd": [Decimal128("1"), 1]},
        {"$bitOr": [1, 2.0]},
        {"$bitOr": [Int64(1), Decimal128("1")]},
        {"$bitXor": [1.0, 1]},
        {"$bitXor": [1, Decimal128("1")]},
    ],
)
def test_bits_are_those_of_integers(failure: Failure, expression: object) -> None:
    assert failure(expression, {}).code == ErrorCode.TypeMismatch


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ({"$log": [10, 0]}, 28759),
        ({"$log": [10, -2]}, 28759),
        ({"$log": [10, Decimal128("1")]}, 28759),
        ({"$log": [0, 10]}, 28758),
        ({"$log": [True, 10]}, 28756),
        ({"$divide": [1, 0.0]}, ErrorCode.BadValue),
        ({"$divide": [1, Int64(0)]}, ErrorCode.BadValue),
        ({"$divide": [1, True]}, ErrorCode.TypeMismatch),
        ({"$multiply": [2, "x"]}, ErrorCode.TypeMismatch),
        ({"$multiply": [2, [3]]}, ErrorCode.TypeMismatch),
        ({"$mod": [1, 0.0]}, 16610),
        ({"$pow": [0, -1.5]}, 28764),
        ({"$pow": [Decimal128("0"), -1]}, 28764),
        ({"$trunc": ["x", 1]}, 51081),
        ({"$trunc": [1.5, "x"]}, 16004),
        ({"$trunc": [1.5, 0.5]}, 51082),
        ({"$trunc": [1.5, -21]}, 51083),
    ],
)
def test_refusals(failure: Failure, expression: object, code: int) -> None:
    assert failure(expression, {}).code == code
