"""Sizes, parts of timestamps, hashes and random numbers."""

from collections.abc import Callable
from typing import Any

import pytest
from bson import Binary, Decimal128, Int64, Timestamp
from bson.datetime_ms import DatetimeMS

from mongottl.errors import CommandError

Check = Callable[[object, dict[str, Any], object], None]
Failure = Callable[[object, dict[str, Any]], CommandError]

DOC = {
    "o": {"a": 1, "b": {"c": 2}},
    "dimensions": {"length": 25, "width": 10},
    "d": [{"a": 1}, {"b": 2}, {"a": 3}],
    "pairs": [{"k": 2, "x": "p"}, {"k": 1, "x": "q"}],
    "l": [3, 1, 2],
    "n": None,
    "s": "é€😀",
    "ts": Timestamp(1_622_731_060, 330),
}


@pytest.mark.parametrize(
    ("operator", "operand", "expected"),
    [
        ("$binarySize", "é", 2),
        ("$binarySize", "", 0),
        ("$binarySize", "a", 1),
        ("$binarySize", "$s", 9),
        ("$binarySize", "cafétéria", 11),
        ("$binarySize", Binary(b"\x00\x01\x02", 0), 3),
        ("$binarySize", Binary(b"", 4), 0),
        ("$binarySize", "$n", None),
        ("$binarySize", "$missing", None),
        ("$bsonSize", {}, 5),
        ("$bsonSize", {"a": 1}, 12),
        ("$bsonSize", {"a": Int64(1)}, 16),
        ("$bsonSize", {"a": "é"}, 15),
        ("$bsonSize", {"a": {}}, 13),
        ("$bsonSize", {"a": "$missing"}, 5),
        ("$bsonSize", "$dimensions", 28),
        ("$bsonSize", "$n", None),
        ("$bsonSize", "$missing", None),
        ("$tsSecond", "$ts", Int64(1_622_731_060)),
        ("$tsSecond", ["$ts"], Int64(1_622_731_060)),
        ("$tsSecond", Timestamp(0, 5), Int64(0)),
        ("$tsSecond", Timestamp(2**32 - 1, 1), Int64(2**32 - 1)),
        ("$tsSecond", "$n", None),
        ("$tsSecond", "$missing", None),
        ("$tsIncrement", "$ts", Int64(330)),
        ("$tsIncrement", Timestamp(7, 0), Int64(0)),
        ("$tsIncrement", Timestamp(7, 2**32 - 1), Int64(2**32 - 1)),
        ("$tsIncrement", ["$ts"], Int64(330)),
        ("$tsIncrement", "$n", None),
        ("$tsIncrement", "$missing", None),
        ("$toHashedIndexKey", {"$literal": 42.123}, Int64(-944302157085130861)),
        ("$toHashedIndexKey", "$nothing", Int64(2338878944348059895)),
        # The hash is that of hashed indexes: a number counts by its whole part as an int64, null and missing are alike.
        ("$toHashedIndexKey", "$n", Int64(2338878944348059895)),
        ("$toHashedIndexKey", 42, Int64(-944302157085130861)),
        ("$toHashedIndexKey", Int64(42), Int64(-944302157085130861)),
        ("$toHashedIndexKey", 42.9, Int64(-944302157085130861)),
        ("$toHashedIndexKey", Decimal128("42"), Int64(-944302157085130861)),
    ],
)
def test_sizes_timestamps_and_hashes(check: Check, operator: str, operand: object, expected: object) -> None:
    check({operator: operand}, DOC, expected)


@pytest.mark.parametrize(
    ("operator", "operand", "code"),
    [
        ("$binarySize", 1, 51276),
        ("$binarySize", {}, 51276),
        ("$binarySize", [], 16020),
        ("$bsonSize", "$s", 31393),
        ("$bsonSize", "$d", 31393),
        ("$bsonSize", 1, 31393),
        ("$tsSecond", DatetimeMS(0), 5687301),
        ("$tsSecond", 1, 5687301),
        ("$tsSecond", "$s", 5687301),
        ("$tsSecond", [], 16020),
        ("$tsIncrement", DatetimeMS(0), 5687302),
        ("$tsIncrement", Int64(1), 5687302),
        ("$tsIncrement", "$s", 5687302),
        ("$tsIncrement", ["$ts", "$ts"], 16020),
        ("$toHashedIndexKey", [1, 2], 16020),
        ("$rand", 1, 10065),
        ("$rand", {"x": 1}, 3040501),
        ("$rand", [1], 3040501),
    ],
)
def test_refusals_of_sizes_timestamps_hashes_and_rand(
    failure: Failure, operator: str, operand: object, code: int
) -> None:
    assert failure({operator: operand}, DOC).code == code


def test_rand_is_a_double_below_one_and_never_folded(check: Check) -> None:
    arguments: list[object] = [{}, []]
    for argument in arguments:
        drawn = {"$map": {"input": {"$range": [0, 20]}, "in": {"$rand": argument}}}
        check({"$type": {"$rand": argument}}, {}, "double")
        check({"$allElementsTrue": {"$map": {"input": drawn, "in": {"$gte": ["$$this", 0]}}}}, {}, True)
        check({"$anyElementTrue": {"$map": {"input": drawn, "in": {"$gte": ["$$this", 1]}}}}, {}, False)
        check({"$gt": [{"$size": {"$setUnion": [drawn]}}, 15]}, {}, True)
    check({"$floor": {"$multiply": [{"$rand": {}}, 1]}}, {}, 0.0)
