"""What operators of one family answer for arguments of every BSON type: one table per family."""

import datetime
from typing import Any

import bson
import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.expr import EvaluationContext, parse_expression

GREATEST = Decimal128("9.999999999999999999999999999999999E+6144")
SMALLEST = Decimal128("1E-6176")

# A value of every type but the strings.
VALUES: dict[str, Any] = {
    "double": 1.5,
    "object": {"a": 1},
    "array": [1],
    "binData": Binary(b"x"),
    "objectId": ObjectId(),
    "bool": True,
    "date": datetime.datetime(2024, 1, 1),
    "null": None,
    "regex": Regex("x"),
    "javascript": Code("x"),
    "int": 1,
    "timestamp": Timestamp(1, 1),
    "long": Int64(1),
    "decimal": Decimal128("1"),
    "minKey": MinKey(),
    "maxKey": MaxKey(),
    "missing": ...,
}
NULLISH = {"null", "missing"}
NUMBERS = {"double", "int", "long", "decimal"}
DATE = datetime.datetime(2024, 3, 4)


def code_of(expression: dict[str, Any], value: Any) -> int | None:
    """The code that an expression over the document {v: value, d: DATE} fails with; None where it has a value."""
    document = {"d": DATE} if value is ... else {"v": value, "d": DATE}
    context = EvaluationContext()
    context.root = bson.encode(document)
    argument: Any = bson.decode(bson.encode({"e": expression}), bson.CodecOptions(document_class=bson.SON))["e"]
    try:
        parse_expression(bson.encode(argument), ParseContext()).evaluate(context)
    except CommandError as error:
        return int(error.code)
    return None


UNITS: dict[str, dict[str, Any]] = {
    "$dateAdd": {"startDate": "$d", "unit": "$v", "amount": 1},
    "$dateSubtract": {"startDate": "$d", "unit": "$v", "amount": 1},
    "$dateDiff": {"startDate": "$d", "endDate": "$d", "unit": "$v"},
    "$dateTrunc": {"date": "$d", "unit": "$v"},
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("operator", UNITS)
def test_unit(operator: str, kind: str) -> None:
    expected = None if kind in NULLISH else 5439013
    assert code_of({operator: UNITS[operator]}, VALUES[kind]) == expected


@pytest.mark.parametrize("operator", UNITS)
@pytest.mark.parametrize(("unit", "code"), [("day", None), ("quarter", None), ("days", 9), ("Day", 9), ("", 9)])
def test_names_of_units(operator: str, unit: str, code: int | None) -> None:
    assert code_of({operator: UNITS[operator]}, unit) == code


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("operator", ["$round", "$trunc"])
def test_place(operator: str, kind: str) -> None:
    expected = None if kind in NULLISH | {"int", "long", "decimal"} else 51082 if kind == "double" else 16004
    assert code_of({operator: [1.25, "$v"]}, VALUES[kind]) == expected


@pytest.mark.parametrize("operator", ["$round", "$trunc"])
@pytest.mark.parametrize(
    ("place", "code"),
    [
        (float("nan"), 31109),
        (float("inf"), 31109),
        (float("-inf"), 31109),
        (1e300, 31109),
        (Decimal128("NaN"), 51082),
        (Decimal128("0.5"), 51082),
        (2.0, None),
        (100, None),
        (101, 51083),
        (-21.0, 51083),
    ],
)
def test_places_out_of_range(operator: str, place: Any, code: int | None) -> None:
    assert code_of({operator: [1.25, "$v"]}, place) == code


UNARY = {
    **dict.fromkeys(["$abs", "$ceil", "$exp", "$floor", "$ln", "$log10", "$sqrt", "$sin", "$atan"], 28765),
    **dict.fromkeys(["$round", "$trunc"], 51081),
    "$sigmoid": 14,
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("operator", UNARY)
def test_numbers(operator: str, kind: str) -> None:
    expected = None if kind in NULLISH | NUMBERS else UNARY[operator]
    assert code_of({operator: "$v"}, VALUES[kind]) == expected


def value_of(expression: dict[str, Any]) -> Any:
    return str(parse_expression(bson.encode(expression), ParseContext()).evaluate(EvaluationContext()))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # Results of powers and logarithms have all 34 digits, as far as 113 binary digits hold.
        ({"$pow": [Decimal128("2"), Decimal128("3")]}, "8.000000000000000000000000000000000"),
        ({"$pow": [2, Decimal128("-1")]}, "0.5000000000000000000000000000000000"),
        ({"$pow": [Decimal128("-2"), 3]}, "-8.000000000000000000000000000000000"),
        ({"$pow": [Decimal128("7"), 0]}, "1"),
        ({"$pow": [Decimal128("-0"), 3]}, "0E-6176"),
        ({"$pow": [Decimal128("-Infinity"), -1]}, "0E-6176"),
        ({"$pow": [Decimal128("10"), -7000]}, "0E-6176"),
        ({"$pow": [Decimal128("10"), 7000]}, "Infinity"),
        ({"$pow": [Decimal128("-2"), 0.5]}, "NaN"),
        ({"$exp": Decimal128("1")}, "2.718281828459045235360287471352662"),
        ({"$exp": Decimal128("-Infinity")}, "0"),
        ({"$exp": Decimal128("0")}, "1"),
        ({"$ln": Decimal128("2.718281828459045")}, "0.9999999999999999134157889710887611"),
        ({"$ln": Decimal128("1")}, "0"),
        ({"$log10": Decimal128("9.999999999999999999999999999999999E+6144")}, "6145"),
        ({"$log10": Decimal128("2")}, "0.3010299956639811952137388947244930"),
        ({"$log": [Decimal128("NaN"), 10]}, "nan"),
        ({"$log": [Decimal128("100"), 10]}, "2"),
        ({"$sigmoid": Decimal128("NaN")}, "NaN"),
        ({"$sigmoid": Decimal128("1")}, "0.7310585786300048792511592418218362"),
        ({"$sigmoid": Decimal128("0.4999999999999999999999999999999999")}, "0.6224593312018545646389005657455083"),
        ({"$pow": [GREATEST, 1]}, "9.999999999999999999999999999999999E+6144"),
        ({"$pow": [GREATEST, 2]}, "Infinity"),
        ({"$pow": [Decimal128("-9.999999999999999999999999999999999E+6144"), 3]}, "-Infinity"),
        ({"$pow": [GREATEST, -1]}, "1.0000000000000000000000000000000E-6145"),
        ({"$pow": [SMALLEST, 1]}, "1E-6176"),
        ({"$pow": [SMALLEST, -1]}, "Infinity"),
        ({"$pow": [SMALLEST, 2]}, "0E-6176"),
        ({"$pow": [-2, Decimal128("Infinity")]}, "Infinity"),
        ({"$pow": [Decimal128("-0.5"), Decimal128("Infinity")]}, "0E-6176"),
        ({"$pow": [-1, Decimal128("-Infinity")]}, "1.000000000000000000000000000000000"),
        ({"$pow": [Decimal128("-Infinity"), Decimal128("0.5")]}, "Infinity"),
        ({"$pow": [Decimal128("1.1"), 2]}, "1.210000000000000000000000000000000"),
        ({"$pow": [Decimal128("7"), Decimal128("0.5")]}, "2.645751311064590590501615753639260"),
        ({"$exp": Decimal128("1E+6144")}, "Infinity"),
        ({"$exp": Decimal128("-1E+6144")}, "0E-6176"),
        ({"$ln": GREATEST}, "14149.38539644841072829055748903542"),
        ({"$log10": SMALLEST}, "-6176"),
        # No place for the ones within 34 digits.
        ({"$ceil": Decimal128("9E+6144")}, "NaN"),
        ({"$floor": Decimal128("-Infinity")}, "NaN"),
        ({"$floor": Decimal128("1E+33")}, "1000000000000000000000000000000000"),
        ({"$floor": Decimal128("1E+34")}, "NaN"),
        ({"$ceil": Decimal128("1E-6176")}, "1"),
    ],
)
def test_decimals(expression: dict[str, Any], expected: str) -> None:
    assert value_of(expression) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["hello", "llo", 0, 3], 2),  # it starts before the end and goes beyond it
        (["hello", "llo", 0, 2], -1),
        (["hello", "", 5], -1),
        (["hello", "", 2, 2], -1),
        (["hello", "", 2, 3], 2),
        (["", ""], 0),
        (["", "a"], -1),
    ],
)
def test_index_of_code_points(arguments: list[Any], expected: int) -> None:
    assert value_of({"$indexOfCP": arguments}) == str(expected)


@pytest.mark.parametrize("to", [{"type": "string", "extra": 1}, {"type": "string", "Subtype": 5}])
def test_unknown_fields_of_a_target_type_are_let_pass(to: dict[str, Any]) -> None:
    assert value_of({"$convert": {"input": 42, "to": to}}) == "42"
