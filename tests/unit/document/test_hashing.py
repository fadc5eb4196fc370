"""The hash of hashed indexes is MongoDB's: published values, and the values that share one."""

from typing import Any

import bson
import pytest

from mongottl.document.hashing import hashed_value
from mongottl.document.types import Value
from mongottl.document.walk import get_value


def value_of(value: Any) -> Value:
    return get_value(bson.encode({"v": value}), "v")


def hashed(value: Any) -> int:
    return int(hashed_value(value_of(value)))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (42, -944302157085130861),
        (42.123, -944302157085130861),
        (1, 5902408780260971510),
        (None, 2338878944348059895),
        ({"a": "abc", "b": bson.Int64(123)}, 4771603801758380216),
    ],
)
def test_known_values(value: Any, expected: int) -> None:
    assert hashed(value) == expected


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, 1.0),
        (1, bson.Int64(1)),
        (1, bson.Decimal128("1")),
        (1, 1.9),
        (-1, -1.9),
        (0, -0.0),
        (0, float("nan")),
        (0, bson.Decimal128("NaN")),
        (2**63 - 1, float("inf")),
        (2**63 - 1, bson.Decimal128("1E+30")),
        (-(2**63), float("-inf")),
        (-(2**63), 2.0**63),
        ({"a": 1}, {"a": 1.5}),
        ([1, 2], [1.0, 2.0]),
    ],
)
def test_equal_hashes(a: Any, b: Any) -> None:
    assert hashed(a) == hashed(b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, 2),
        (1, "1"),
        (1, True),
        (0, None),
        (0, False),
        ("", None),
        ({}, []),
        ({"a": 1}, {"b": 1}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ([1, 2], [2, 1]),
        ({"a": {"b": 1}, "c": 1}, {"a": {"b": 1, "c": 1}}),
        (b"\0", bson.Binary(b"\0", 5)),
        (bson.MinKey(), bson.MaxKey()),
        (bson.Code("f"), bson.Code("f", {})),
        (bson.Code("f", {"a": 1}), bson.Code("f", {"a": 2})),
        (bson.Regex("a"), bson.Regex("a", "i")),
        (bson.Timestamp(1, 2), bson.Timestamp(2, 1)),
    ],
)
def test_different_hashes(a: Any, b: Any) -> None:
    assert hashed(a) != hashed(b)
