"""MongoDB's order of values, on decoded values and in place."""

import itertools
import math

import pytest
from bson import Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp

from mongottl.document.build import encode, encode_fields
from mongottl.document.compare import (
    bracket_of,
    bracket_of_type,
    compare_documents,
    compare_raw,
    compare_values,
)
from mongottl.document.types import (
    MISSING,
    BinData,
    Date,
    DBPointer,
    JavaScript,
    Regex,
    Symbol,
    Undefined,
    Value,
    type_code_of,
)

# Each inner list holds values that compare equal; the outer list is in ascending order.
ORDERED: list[list[Value]] = [
    [MinKey()],
    [Undefined()],
    [None],
    [math.nan, -math.nan, Decimal128("NaN"), Decimal128("-NaN")],
    [-math.inf, Decimal128("-Infinity")],
    [Decimal128("-1E+6000")],
    [-1.7976931348623157e308],
    [Int64(-(2**63)), float(-(2**63)), Decimal128("-9223372036854775808")],
    [-1.5, Decimal128("-1.50")],
    [-1, -1.0, Int64(-1), Decimal128("-1")],
    [-5e-324],
    [Decimal128("-1E-6176")],
    [0, 0.0, -0.0, Int64(0), Decimal128("0"), Decimal128("-0E+10")],
    [Decimal128("1E-6176")],
    [5e-324],
    [Decimal128("0.1")],
    [0.1],
    [Decimal128("0.1000000000000000055511151231257828")],
    [1, 1.0, Int64(1), Decimal128("1.0"), Decimal128("1.000")],
    [float(2**53), Int64(2**53), Decimal128("9007199254740992")],
    [Int64(2**53 + 1)],
    [Int64(2**63 - 1)],
    [float(2**63), Decimal128("9223372036854775808")],
    [Decimal128("1E+6144")],
    [math.inf, Decimal128("Infinity")],
    ["", Symbol("")],
    ["A"],
    ["a", Symbol("a")],
    ["a\0"],
    ["a\0b"],
    ["a\1"],
    ["ab"],
    ["\uffff"],
    ["\U00010000"],
    [encode({})],
    [encode({"a": None})],
    [encode({"a": 1}), encode({"a": 1.0})],
    [encode({"a": 1, "a!": 0})],
    [encode({"b": 1})],
    [encode({"a": "x"})],
    [encode({"a": encode({})})],
    [[]],
    [[None]],
    [[1], [1.0]],
    [[1, 1]],
    [[2]],
    [["a"]],
    [[[]]],
    [BinData(b"", 5)],
    [BinData(b"b", 0)],
    [BinData(b"a", 5)],
    [BinData(b"aa", 0)],
    [ObjectId("0" * 24)],
    [ObjectId("f" * 24)],
    [False],
    [True],
    [Date(-(2**63))],
    [Date(-1)],
    [Date(0)],
    [Date(2**63 - 1)],
    [Timestamp(1, 2)],
    [Timestamp(2, 1)],
    [Timestamp(2**32 - 1, 2**32 - 1)],
    [Regex("a", "")],
    [Regex("a", "i")],
    [Regex("b", "")],
    [DBPointer("z", b"a" * 12)],
    [DBPointer("ab", b"a" * 12)],
    [DBPointer("ab", b"b" * 12)],
    [DBPointer("é", b"a" * 12)],
    [DBPointer("éa", b"a" * 12)],
    [JavaScript("a")],
    [JavaScript("b")],
    [JavaScript("a", encode({}))],
    [JavaScript("a", encode({"x": 1}))],
    [MaxKey()],
]
FLAT: list[tuple[int, Value]] = [(rank, value) for rank, values in enumerate(ORDERED) for value in values]


def expected(left: int, right: int) -> int:
    return (left > right) - (left < right)


def test_decoded_values_are_in_the_documented_order() -> None:
    for (i, a), (j, b) in itertools.product(FLAT, FLAT):
        assert compare_values(a, b) == expected(i, j), (a, b)
        assert (compare_values(a, b) == 0) == (i == j)


def test_raw_values_are_in_the_same_order() -> None:
    raw = [(rank, type_code_of(value), encode({"f": value})) for rank, value in FLAT]
    for (i, a_type, a), (j, b_type, b) in itertools.product(raw, raw):
        assert compare_raw(a, a_type, 7, b, b_type, 7) == expected(i, j), (a, b)


def test_documents_of_one_field_are_in_the_same_order() -> None:
    raw = [(rank, encode({"f": value})) for rank, value in FLAT]
    for (i, a), (j, b) in itertools.product(raw, raw):
        assert compare_documents(a, 0, b, 0) == expected(i, j), (a, b)


def test_missing_is_with_undefined_before_null() -> None:
    assert compare_values(MISSING, MISSING) == 0
    assert compare_values(MISSING, Undefined()) == 0
    assert compare_values(MISSING, None) == -1
    assert compare_values(MinKey(), MISSING) == -1
    null = encode({"f": None})
    assert compare_raw(null, 0, -1, null, 10, 7) == -1


def test_type_decides_before_name_and_name_before_value() -> None:
    assert compare_values(encode({"z": 1}), encode({"a": "x"})) == -1
    assert compare_values(encode({"a": 9}), encode({"b": 1})) == -1


def test_duplicate_fields_are_compared_in_order() -> None:
    assert compare_values(encode_fields([("a", 1), ("a", 2)]), encode_fields([("a", 1), ("a", 3)])) == -1


def test_names_of_array_elements_do_not_count() -> None:
    a = b"\x0c\0\0\0\x10" + b"0\0" + b"\1\0\0\0\0"
    b = b"\x0c\0\0\0\x10" + b"7\0" + b"\1\0\0\0\0"
    left = encode_fields([("f", [1])]).replace(a, b)
    assert left != encode({"f": [1]})
    assert compare_raw(left, 4, 7, encode({"f": [1]}), 4, 7) == 0


@pytest.mark.parametrize("value", [value for _, value in FLAT])
def test_bracket_of_a_value_is_that_of_its_type(value: Value) -> None:
    assert bracket_of(value) == bracket_of_type(type_code_of(value))
