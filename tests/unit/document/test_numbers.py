import math

import bson
import pytest
from bson import Decimal128, Int64

from mongottl.document.build import encode
from mongottl.document.numbers import (
    clamp_to_int,
    clamp_to_long,
    decimal_of,
    is_nan,
    is_true,
    to_double,
    truncated,
    whole,
    whole_int32,
)
from mongottl.document.types import INT64_MAX, INT64_MIN, INT_MAX, INT_MIN, MISSING, Symbol, Undefined, Value
from mongottl.errors import ErrorCode
from tests.running import Running

SIGNALLING = Decimal128.from_bid(bytes(15) + b"\x7e")
NEGATIVE_SIGNALLING = Decimal128.from_bid(bytes(15) + b"\xfe")

# value: truncated, whole, clamp_to_long, is_true
NUMBERS: list[tuple[Value, int | None, int | None, int, bool]] = [
    (0, 0, 0, 0, False),
    (-0.0, 0, 0, 0, False),
    (Decimal128("-0"), 0, 0, 0, False),
    (Decimal128("0E+6111"), 0, 0, 0, False),
    (Decimal128("0E-6176"), 0, 0, 0, False),
    (7, 7, 7, 7, True),
    (Int64(-7), -7, -7, -7, True),
    (2.5, 2, None, 2, True),
    (-2.5, -2, None, -2, True),
    (Decimal128("2.5"), 2, None, 2, True),
    (Decimal128("3.5"), 3, None, 4, True),
    (Decimal128("1E-6176"), 0, None, 0, True),
    (Decimal128("1.5E+1"), 15, 15, 15, True),
    (Decimal128("9223372036854775807"), INT64_MAX, INT64_MAX, INT64_MAX, True),
    (Decimal128("9223372036854775808"), None, None, INT64_MAX, True),
    (Decimal128("1E+400"), None, None, INT64_MAX, True),
    (Decimal128("-9E+6144"), None, None, INT64_MIN, True),
    (9223372036854775808.0, None, None, INT64_MAX, True),
    (-9223372036854775808.0, INT64_MIN, INT64_MIN, INT64_MIN, True),
    (math.inf, None, None, INT64_MAX, True),
    (-math.inf, None, None, INT64_MIN, True),
    (Decimal128("Infinity"), None, None, INT64_MAX, True),
    (Decimal128("-Infinity"), None, None, INT64_MIN, True),
    (math.nan, None, None, 0, True),
    (Decimal128("NaN"), None, None, 0, True),
    (SIGNALLING, None, None, 0, True),
    (NEGATIVE_SIGNALLING, None, None, 0, True),
]


@pytest.mark.parametrize("value, cut, exact, clamped, true", NUMBERS, ids=lambda value: repr(value)[:30])
def test_numbers_of_all_types(value: Value, cut: int | None, exact: int | None, clamped: int, true: bool) -> None:
    assert truncated(value) == cut
    assert whole(value) == exact
    assert clamp_to_long(value) == clamped
    assert clamp_to_int(value) == max(INT_MIN, min(INT_MAX, clamped))
    assert is_true(value) is true
    assert whole_int32(value) == (exact if exact is not None and INT_MIN <= exact <= INT_MAX else None)
    to_double(value)


@pytest.mark.parametrize("value", [None, MISSING, Undefined(), False], ids=repr)
def test_null_missing_and_undefined_are_false(value: Value) -> None:
    assert not is_true(value)


@pytest.mark.parametrize("value", ["", [], bson.encode({}), Symbol(""), True], ids=repr)
def test_strings_arrays_and_objects_are_true(value: Value) -> None:
    assert is_true(value)
    assert whole(value) is None


def test_booleans_are_no_whole_numbers() -> None:
    assert truncated(True) is None


@pytest.mark.parametrize("value", [SIGNALLING, NEGATIVE_SIGNALLING], ids=repr)
def test_signalling_nans_are_quiet(value: Decimal128) -> None:
    assert is_nan(value)
    assert decimal_of(value).is_qnan()
    assert math.isnan(to_double(value))


def test_decimals_beyond_doubles_are_infinite() -> None:
    assert to_double(Decimal128("-1E+400")) == -math.inf


# Every place where a command or an operator reads a number or a boolean takes a signalling NaN as any other NaN.
@pytest.mark.parametrize(
    "command",
    [
        {"find": "c", "returnKey": SIGNALLING},
        {"find": "c", "limit": Decimal128("1E+400")},
        {"find": "c", "limit": SIGNALLING, "skip": SIGNALLING, "batchSize": SIGNALLING},
        {"find": "c", "filter": {"a": {"$exists": SIGNALLING}}},
        {"find": "c", "filter": {"a": SIGNALLING}, "sort": {"a": 1}},
        {"find": "c", "projection": {"a": SIGNALLING}},
        {"find": "c", "allowDiskUse": True, "filter": {"$expr": {"$gt": ["$a", SIGNALLING]}}},
        {"aggregate": "c", "pipeline": [{"$project": {"x": {"$pow": [SIGNALLING, 2]}}}], "cursor": {}},
        {"aggregate": "c", "pipeline": [{"$project": {"x": {"$pow": [2, SIGNALLING]}}}], "cursor": {}},
        {"aggregate": "c", "pipeline": [{"$group": {"_id": None, "x": {"$sum": SIGNALLING}}}], "cursor": {}},
        {"aggregate": "c", "pipeline": [{"$bucketAuto": {"groupBy": "$a", "buckets": 2}}], "cursor": {}},
    ],
    ids=str,
)  # fmt: skip
def test_signalling_nans_as_arguments(command: dict[str, Value]) -> None:
    server = Running()
    server.insert({"_id": 1, "a": SIGNALLING}, {"_id": 2, "a": 1}, {"_id": 3, "a": Decimal128("NaN")}, {"_id": 4})
    server.run(command)


def test_signalling_nan_as_an_index_direction() -> None:
    error = Running().refusal({"createIndexes": "c", "indexes": [{"key": {"a": SIGNALLING}, "name": "a"}]})
    assert error.code == ErrorCode.CannotCreateIndex


def test_nan_as_the_profilers_rate() -> None:
    assert Running().code({"profile": 0, "sampleRate": SIGNALLING}) == ErrorCode.BadValue
    assert Running().code({"profile": 0, "sampleRate": Decimal128("NaN")}) == ErrorCode.BadValue


def test_an_index_with_a_signalling_nan_is_valid() -> None:
    server = Running()
    server.index({"a": 1})
    server.insert({"_id": 1, "a": SIGNALLING}, {"_id": 2, "a": Decimal128("NaN")}, {"_id": 3, "a": math.nan})
    assert server.ids(filter={"a": math.nan}) == [1, 2, 3]
    assert server.run({"validate": "c", "full": True})["valid"] is True
    assert encode({"a": SIGNALLING}) in bson.encode({"a": SIGNALLING})
