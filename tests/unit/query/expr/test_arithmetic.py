from collections.abc import Callable
from typing import Any

import pytest
from bson import Decimal128, Int64
from bson.datetime_ms import DatetimeMS

from mongottl.errors import CommandError, ErrorCode

Check = Callable[[object, dict[str, Any], object], None]
Failure = Callable[[object, dict[str, Any]], CommandError]

INT_MAX = 2**31 - 1
LONG_MAX = Int64(2**63 - 1)
INF = float("inf")
NAN = float("nan")


@pytest.mark.parametrize(
    ("operator", "operands", "expected"),
    [
        ("$add", [], 0),
        ("$add", [1, 2, 3], 6),
        ("$add", [INT_MAX, 1], Int64(2**31)),
        ("$add", [LONG_MAX, 1], 2.0**63),
        ("$add", [Int64(1), 1], Int64(2)),
        ("$add", [1, 1.5], 2.5),
        ("$add", [0.1, 0.2, 0.3], 0.6),  # compensated, not 0.6000000000000001
        ("$add", [Decimal128("1.10"), 1], Decimal128("2.10")),
        ("$add", [Decimal128("1"), 0.5], Decimal128("1.500000000000000")),  # a double has 15 digits
        ("$add", [1, None, "not looked at"], None),
        ("$add", [INF, -INF], NAN),
        ("$subtract", [5, 7], -2),
        ("$subtract", [-INT_MAX, 2], Int64(-(2**31) - 1)),
        ("$subtract", [Int64(-(2**63)), 1], -(2.0**63)),
        ("$subtract", [2.5, 1], 1.5),
        ("$subtract", [None, 1], None),
        ("$multiply", [], 1),
        ("$multiply", [3, 4], 12),
        ("$multiply", [INT_MAX, 2], Int64(2 * INT_MAX)),
        ("$multiply", [LONG_MAX, 2], 2.0**64),
        ("$multiply", [2, Decimal128("1.50")], Decimal128("3.00")),
        ("$divide", [7, 2], 3.5),
        ("$divide", [6, 2], 3.0),
        ("$divide", [Decimal128("1"), 3], Decimal128("0.3333333333333333333333333333333333")),
        ("$mod", [7, 3], 1),
        ("$mod", [-7, 3], -1),
        ("$mod", [Int64(7), 3], Int64(1)),
        ("$mod", [7.5, 2], 1.5),
        ("$mod", [Decimal128("7.5"), 2], Decimal128("1.5")),
        ("$mod", [INF, 2], NAN),
        ("$mod", [Decimal128("1234567890123456789012345678901239"), 10], Decimal128("9")),  # all 34 digits count
        ("$pow", [2, 10], 1024),
        ("$pow", [2, 31], Int64(2**31)),
        ("$pow", [2, 63], 2.0**63),
        ("$pow", [2, -1], 0.5),
        ("$pow", [-1, Int64(2**62 + 1)], Int64(-1)),
        ("$pow", [Int64(2), 3], Int64(8)),
        ("$pow", [4, 0.5], 2.0),
        ("$log", [8, 2], 3.0),
    ],
)
def test_operators_with_several_operands(check: Check, operator: str, operands: list[object], expected: object) -> None:
    check({operator: operands}, {}, expected)
    # The same from fields, where nothing is folded.
    document = {f"f{i}": operand for i, operand in enumerate(operands)}
    check({operator: [f"$f{i}" for i in range(len(operands))]}, document, expected)


@pytest.mark.parametrize(
    ("operator", "operand", "expected"),
    [
        ("$abs", -5, 5),
        ("$abs", -(2**31), Int64(2**31)),
        ("$abs", -1.5, 1.5),
        ("$abs", Decimal128("-1.50"), Decimal128("1.50")),
        ("$abs", None, None),
        ("$ceil", 1.2, 2.0),
        ("$ceil", -0.5, -0.0),
        ("$ceil", 7, 7),
        ("$floor", -1.2, -2.0),
        ("$floor", Decimal128("1.7"), Decimal128("1")),
        ("$exp", 0, 1.0),
        ("$ln", 1, 0.0),
        ("$log10", 1000, 3.0),
        ("$sqrt", 25, 5.0),
        ("$sqrt", Decimal128("2"), Decimal128("1.414213562373095048801688724209698")),
        ("$sigmoid", 0, 0.5),
        ("$round", 2.5, 2.0),  # half to even
        ("$round", 3.5, 4.0),
        ("$trunc", -7.9, -7.0),
    ],
)
def test_operators_with_one_operand(check: Check, operator: str, operand: object, expected: object) -> None:
    check({operator: operand}, {}, expected)
    check({operator: "$f"}, {"f": operand}, expected)


@pytest.mark.parametrize(
    ("operator", "number", "place", "expected"),
    [
        ("$round", 1234.5678, 2, 1234.57),
        ("$round", 19.25, 1, 19.2),
        ("$round", 1265, -1, 1260),
        ("$round", Int64(1275), -1, Int64(1280)),
        ("$round", INT_MAX, -1, Int64(2147483650)),
        ("$round", 5, 3, 5),
        ("$round", Decimal128("1.125"), 2, Decimal128("1.12")),
        ("$trunc", 1234.5678, 2, 1234.56),
        ("$trunc", -1234.5678, -2, -1200.0),
        ("$trunc", 1.5, None, None),
        ("$round", float("-inf"), 2, float("-inf")),
    ],
)
def test_rounding_to_a_place(check: Check, operator: str, number: object, place: object, expected: object) -> None:
    check({operator: [number, place]}, {}, expected)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"$add": ["$d", 1000]}, DatetimeMS(3_000)),
        ({"$add": [1.5, "$d"]}, DatetimeMS(2_002)),
        ({"$add": ["$d", -0.4]}, DatetimeMS(2_000)),
        ({"$subtract": ["$d", 500]}, DatetimeMS(1_500)),
        ({"$subtract": ["$d", DatetimeMS(500)]}, Int64(1_500)),
        # Halves of doubles are rounded away from zero, those of decimals to even.
        ({"$add": ["$d", Decimal128("0.5")]}, DatetimeMS(2_000)),
        ({"$add": ["$d", Decimal128("1.5")]}, DatetimeMS(2_002)),
        ({"$subtract": ["$d", 0.5]}, DatetimeMS(1_999)),
        ({"$subtract": ["$d", Decimal128("0.5")]}, DatetimeMS(2_000)),
        ({"$subtract": ["$d", Decimal128("1.5")]}, DatetimeMS(1_998)),
    ],
)
def test_dates_are_moved_by_milliseconds(check: Check, expression: object, expected: object) -> None:
    check(expression, {"d": DatetimeMS(2_000)}, expected)


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ({"$add": [1, "x"]}, ErrorCode.TypeMismatch),
        ({"$add": ["$d", "$d"]}, 16612),
        ({"$add": ["$d", INF]}, ErrorCode.Overflow),
        ({"$add": ["$d", NAN]}, ErrorCode.Overflow),
        ({"$add": ["$d", Decimal128("Infinity")]}, ErrorCode.Overflow),
        ({"$add": ["$d", LONG_MAX, 1]}, ErrorCode.Overflow),
        ({"$add": ["$d", 1e300]}, ErrorCode.Overflow),
        ({"$subtract": ["$d", INF]}, ErrorCode.Overflow),
        ({"$subtract": ["$d", Decimal128("NaN")]}, ErrorCode.Overflow),
        ({"$subtract": ["$d", -1e300]}, ErrorCode.Overflow),
        ({"$subtract": [DatetimeMS(-2), LONG_MAX]}, ErrorCode.Overflow),
        ({"$subtract": [DatetimeMS(-2), DatetimeMS(2**63 - 1)]}, ErrorCode.Overflow),
        ({"$subtract": ["x", 1]}, ErrorCode.TypeMismatch),
        ({"$subtract": [1, "$d"]}, ErrorCode.TypeMismatch),
        ({"$multiply": [1, True]}, ErrorCode.TypeMismatch),
        ({"$divide": [1, 0]}, ErrorCode.BadValue),
        ({"$divide": [1, Decimal128("0")]}, ErrorCode.BadValue),
        ({"$divide": ["x", 1]}, ErrorCode.TypeMismatch),
        ({"$mod": [1, 0]}, 16610),
        ({"$mod": [1, Decimal128("0")]}, 5733415),
        ({"$mod": ["x", 1]}, 16611),
        ({"$abs": "x"}, 28765),
        ({"$abs": Int64(-(2**63))}, 28680),
        ({"$sqrt": -1}, 28714),
        ({"$ln": 0}, 28766),
        ({"$log10": -1}, 28761),
        ({"$log": ["x", 2]}, 28756),
        ({"$log": [2, "x"]}, 28757),
        ({"$log": [-1, 2]}, 28758),
        ({"$log": [2, 1]}, 28759),
        ({"$pow": ["x", 1]}, 28762),
        ({"$pow": [1, "x"]}, 28763),
        ({"$pow": [0, -1]}, 28764),
        ({"$round": ["x", 1]}, 51081),
        ({"$round": [1, "x"]}, 16004),
        ({"$round": [1.5, 1.5]}, 51082),
        ({"$round": [1.5, 101]}, 51083),
        ({"$round": [LONG_MAX, -1]}, 51080),
        ({"$sigmoid": [1]}, ErrorCode.TypeMismatch),
    ],
)
def test_errors(failure: Failure, expression: object, code: int) -> None:
    assert failure(expression, {"d": DatetimeMS(0)}).code == code


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"$bitAnd": [6, 3]}, 2),
        ({"$bitAnd": []}, -1),
        ({"$bitOr": [6, Int64(1)]}, Int64(7)),
        ({"$bitXor": [6, 3, 1]}, 4),
        ({"$bitNot": 0}, -1),
        ({"$bitNot": Int64(5)}, Int64(-6)),
        ({"$bitOr": [1, None]}, None),
        ({"$sum": [1, "x", 2.5]}, 3.5),
        ({"$sum": "$l"}, 6),
        ({"$sum": ["$l", 4]}, 4),  # an array among several operands is no number
        ({"$avg": "$l"}, 2.0),
        ({"$avg": "$nothing"}, None),
        ({"$max": "$l"}, 3),
        ({"$min": [4, None, 2]}, 2),
        ({"$stdDevPop": [2, 4]}, 1.0),
        ({"$stdDevSamp": [2]}, None),
        ({"$median": {"input": "$l", "method": "approximate"}}, 2.0),
        ({"$percentile": {"input": "$l", "p": [0, 0.9], "method": "approximate"}}, [1.0, 3.0]),
        ({"$sin": 0}, 0.0),
        ({"$cos": Decimal128("0")}, Decimal128("1")),
        ({"$atan2": [0, -1]}, 3.141592653589793),
        ({"$atanh": 1}, INF),
        ({"$acos": Decimal128("0")}, Decimal128("1.570796326794896619231321691639751")),
        ({"$sin": Decimal128("1")}, Decimal128("0.8414709848078965066525023216302990")),
        ({"$tanh": None}, None),
        ({"$degreesToRadians": 180}, 3.141592653589793),
    ],
)
def test_bits_accumulators_and_trigonometry(check: Check, expression: object, expected: object) -> None:
    check(expression, {"l": [1, 2, 3]}, expected)


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ({"$bitAnd": [1, 1.5]}, ErrorCode.TypeMismatch),
        ({"$bitNot": "x"}, ErrorCode.TypeMismatch),
        ({"$sin": "x"}, 28765),
        ({"$sin": INF}, 50989),
        ({"$asin": 2}, 50989),
        ({"$acosh": 0}, 50989),
        ({"$atan2": ["x", 1]}, 51044),
        ({"$percentile": {"input": 1, "p": [2], "method": "approximate"}}, 7750303),
        ({"$percentile": {"input": 1, "p": 1, "method": "approximate"}}, 7750301),
        ({"$median": {"input": 1}}, 40414),
    ],
)
def test_refusals_of_bits_accumulators_and_trigonometry(failure: Failure, expression: object, code: int) -> None:
    assert failure(expression, {}).code == code
