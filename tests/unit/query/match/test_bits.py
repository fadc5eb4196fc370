"""The bit tests: the examples of MongoDB's reference, and corners of each."""

from collections.abc import Callable
from typing import Any

import pytest
from bson import Binary, Decimal128, Int64

Matching = Callable[[dict[str, Any], list[Any]], list[Any]]
Refusal = Callable[[dict[str, Any]], tuple[int, str]]

# 00110110, 00010100 twice, 01100110
VALUES: list[Any] = [54, 20, 20.0, Binary(b"\x66")]
OF_NO_BITS: list[Any] = [
    ...,
    None,
    "54",
    True,
    {"x": 54},
    [],
    54.5,
    float("nan"),
    float("inf"),
    1e300,
    Decimal128("0.5"),
]


@pytest.mark.parametrize(
    ("operator", "mask", "found"),
    [
        ("$bitsAllSet", [1, 5], [54, Binary(b"\x66")]),
        ("$bitsAllSet", 50, [54]),
        ("$bitsAllSet", Binary(b"\x30"), [54]),
        ("$bitsAllClear", [1, 5], [20, 20.0]),
        ("$bitsAllClear", 35, [20, 20.0]),
        ("$bitsAllClear", Binary(b"\x20"), [20, 20.0]),
        ("$bitsAnySet", [1, 5], [54, Binary(b"\x66")]),
        ("$bitsAnySet", 35, [54, Binary(b"\x66")]),
        ("$bitsAnySet", Binary(b"\x30"), VALUES),
        ("$bitsAnyClear", [1, 5], [20, 20.0]),
        ("$bitsAnyClear", 35, VALUES),
        ("$bitsAnyClear", Binary(b"\x30"), [20, 20.0, Binary(b"\x66")]),
    ],
)
def test_the_examples(matching: Matching, operator: str, mask: Any, found: list[Any]) -> None:
    assert matching({"a": {operator: mask}}, VALUES) == found


# Each row: a mask, and values by whether they have all of its bits set, all clear, or some of both.
ROWS: list[tuple[Any, list[Any], list[Any], list[Any]]] = [
    (5, [5, 7, 13.0, Decimal128("5"), -1], [0, 2, -8, Decimal128("-8")], [1, 4, 3, -2]),
    ([0], [1, 3, -1, -3.0], [0, 2, -2, -0.0], []),
    ([31], [Int64(2**31), -1, -(2**31)], [2**31 - 1, 0, Int64(2**32)], []),
    ([63], [-1, Int64(-(2**63)), -1.0], [Int64(2**63 - 1), 0, 1.0], []),
    # numbers have their sign without end, binary data nothing behind their end
    ([64, 200], [-1, Int64(-(2**63)), -2.0], [1, Int64(2**63 - 1), Binary(b"\xff" * 8)], []),
    ([7, 8], [384, Binary(b"\x80\x01")], [0, Binary(b"\x7f\x00"), Binary(b"")],
     [128, 256, Binary(b"\x80"), Binary(b"\x00\x01")]),
    (Binary(b"\x01\x80"), [32769, Binary(b"\x01\x80\xff")], [2, Binary(b"\xfe\x7f")],
     [1, Binary(b"\x01"), Binary(b"\x01\x00")]),
    (Int64(2**40), [Int64(2**40), float(2**40), -1], [0, Int64(2**41)], []),
    (3.0, [3, 7.0, -1], [4, -4], [1, 2]),
    (Decimal128("3"), [3, 7.0, -1], [4, -4], [1, 2]),
    ([1, 1], [2, 6], [1], []),
]  # fmt: skip


@pytest.mark.parametrize(("mask", "set_", "clear", "some"), ROWS)
def test_all_and_any(matching: Matching, mask: Any, set_: list[Any], clear: list[Any], some: list[Any]) -> None:
    values = [*OF_NO_BITS, *set_, *clear, *some]
    assert matching({"a": {"$bitsAllSet": mask}}, values) == set_
    assert matching({"a": {"$bitsAllClear": mask}}, values) == clear
    assert matching({"a": {"$bitsAnySet": mask}}, values) == set_ + some
    assert matching({"a": {"$bitsAnyClear": mask}}, values) == clear + some


@pytest.mark.parametrize("mask", [0, 0.0, [], Binary(b""), Binary(b"\x00\x00")])
def test_no_bits_at_all(matching: Matching, mask: Any) -> None:
    """All of none are set and clear, any of none is neither; values without bits match nothing all the same."""
    values = [*OF_NO_BITS, 0, 5, -1.0, Binary(b"\x05")]
    for operator, found in (("$bitsAllSet", values[-4:]), ("$bitsAllClear", values[-4:])):
        assert matching({"a": {operator: mask}}, values) == found
    for operator in ("$bitsAnySet", "$bitsAnyClear"):
        assert matching({"a": {operator: mask}}, values) == []


@pytest.mark.parametrize("operator", ["$bitsAllSet", "$bitsAllClear", "$bitsAnySet", "$bitsAnyClear"])
def test_elements_of_arrays_are_tested_one_by_one(matching: Matching, operator: str) -> None:
    bit = 1 if operator.endswith("Set") else 2
    values: list[Any] = [[bit, "x"], [3 - bit], [[bit]], [{"x": bit}], [None, float(bit)]]
    assert matching({"a": {operator: [0]}}, values) == [values[0], values[4]]
    assert matching({"a": {"$not": {operator: [0]}}}, values) == [values[1], values[2], values[3]]


@pytest.mark.parametrize("operator", ["$bitsAllSet", "$bitsAllClear", "$bitsAnySet", "$bitsAnyClear"])
@pytest.mark.parametrize(
    ("mask", "code"),
    [
        (-1, 9),
        (Int64(-5), 9),
        (-0.5, 9),
        (1.5, 9),
        (float("nan"), 9),
        (float("inf"), 9),
        (2.0**63, 9),
        (Decimal128("1.5"), 9),
        ("1", 2),
        (None, 2),
        (True, 2),
        ({}, 2),
        ([-1], 2),
        ([1.5], 2),
        (["1"], 2),
        ([None], 2),
        ([2**31], 2),
    ],
)
def test_refused(refusal: Refusal, operator: str, mask: Any, code: int) -> None:
    assert refusal({"a": {operator: mask}})[0] == code
