"""$exists, $type, $mod, the bit tests and the array operators."""

from collections.abc import Callable
from typing import Any

import pytest
from bson import Binary, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

Matching = Callable[[dict[str, Any], list[Any]], list[Any]]
Refusal = Callable[[dict[str, Any]], tuple[int, str]]

INF = float("inf")
NAN = float("nan")
OID = ObjectId("65f0000000000000000000aa")


@pytest.mark.parametrize(
    ("condition", "values", "found"),
    [
        ({"$exists": True}, [..., None, 0, []], [None, 0, []]),
        ({"$exists": False}, [..., None, 0, []], [...]),
        ({"$exists": 0.0}, [..., 1], [...]),
        ({"$exists": Decimal128("0E+3")}, [..., 1], [...]),
        ({"$exists": None}, [..., 1], [...]),
        ({"$exists": "no"}, [..., 1], [1]),
        ({"$type": "number"}, [1, 1.5, Int64(1), Decimal128("1"), "1", True], [1, 1.5, Int64(1), Decimal128("1")]),
        ({"$type": 2}, ["x", 2, ["x"], [["x"]], ...], ["x", ["x"]]),
        ({"$type": "array"}, [[], [1], 1, {}], [[], [1]]),
        ({"$type": ["bool", 7.0, Int64(10)]}, [True, OID, None, ..., 1], [True, OID, None]),
        ({"$type": -1}, [MinKey(), MaxKey()], [MinKey()]),
        ({"$type": 127}, [MinKey(), MaxKey()], [MaxKey()]),
        ({"$type": "timestamp"}, [Timestamp(1, 1), 1], [Timestamp(1, 1)]),
        ({"$mod": [4, 1]}, [5, 5.9, Int64(-3), -3, Decimal128("9.5"), "5", [2, 9], True],
         [5, 5.9, Decimal128("9.5"), [2, 9]]),
        ({"$mod": [-4, -3]}, [-3, -7, 5], [-3, -7]),
        ({"$mod": [3.9, 2.9]}, [5, 4], [5]),
        ({"$mod": [3, 0]}, [NAN, INF, 1e300, -0.0, Decimal128("Infinity"), Decimal128("1E+6000"), None], [-0.0]),
        ({"$mod": [5, 7]}, [7, 12], []),
        ({"$size": 2}, [[1, 2], [[1], 2], [1], 2, "ab", {"0": 1, "1": 2}], [[1, 2], [[1], 2]]),
        ({"$size": 0.0}, [[], [[]], None], [[]]),
        ({"$elemMatch": {"$gt": 1, "$lt": 5}}, [[0, 9], [0, 3], 3, [[3]]], [[0, 3]]),
        ({"$elemMatch": {"x": 1, "y": 2}}, [[{"x": 1}, {"y": 2}], [{"x": 1, "y": 2}], {"x": 1, "y": 2}],
         [[{"x": 1, "y": 2}]]),
        ({"$elemMatch": {"0": 5}}, [[[5]], [5]], [[[5]]]),
        ({"$elemMatch": {"$elemMatch": {"$gt": 2}}}, [[[1, 3]], [3], [[1]]], [[[1, 3]]]),
        ({"$elemMatch": {"$or": [{"x": 1}, {"x": 2}]}}, [[{"x": 2}], [{"x": 3}], [1]], [[{"x": 2}]]),
        ({"$elemMatch": {"$not": {"$gt": 2}}}, [[3], [3, 1], []], [[3, 1]]),
        ({"$elemMatch": {"$ne": None}}, [[None], [None, 1], []], [[None, 1]]),
        ({"$elemMatch": {}}, [[{}], [1], [[]], []], [[{}], [[]]]),
        ({"$all": [1, 2]}, [[1, 2, 3], [1], 1], [[1, 2, 3]]),
        ({"$all": [1]}, [1, [1], [[1]]], [1, [1]]),
        ({"$all": [[1, 2]]}, [[1, 2], [[1, 2]], [1, 2, 3]], [[1, 2], [[1, 2]]]),
        ({"$all": [Regex("^x"), None]}, [["xa", None], ["xa"], "xa"], [["xa", None]]),
        ({"$all": []}, [[], 1, ...], []),
        ({"$all": [{"$elemMatch": {"x": 1}}, {"$elemMatch": {"y": 2}}]}, [[{"x": 1}, {"y": 2}], [{"x": 1}]],
         [[{"x": 1}, {"y": 2}]]),
        ({"$bitsAllSet": 6}, [6, 7, 2, 6.0, 6.5, Decimal128("14"), -1, "6", Binary(b"\x06"), [1, 6]],
         [6, 7, 6.0, Decimal128("14"), -1, Binary(b"\x06"), [1, 6]]),
        ({"$bitsAnySet": [0, 2]}, [2, 4, 1, Binary(b"\x02"), NAN], [4, 1]),
        ({"$bitsAllClear": 5}, [2, 3, 0, -8, 1e30], [2, 0, -8]),
        ({"$bitsAnyClear": Binary(b"\x03")}, [3, 2, Binary(b"\xff\x00"), Binary(b"")], [2, Binary(b"")]),
        ({"$bitsAllSet": [200]}, [-1, 1, Binary(b"\xff" * 26), Binary(b"\xff")], [-1, Binary(b"\xff" * 26)]),
        ({"$bitsAnyClear": [2**31 - 1]}, [-1, 1, Binary(b"\xff")], [1, Binary(b"\xff")]),
        ({"$bitsAllSet": 0}, [0, 5, "x", Binary(b"")], [0, 5, Binary(b"")]),
        ({"$bitsAnySet": []}, [0, 5], []),
        ({"$bitsAllSet": [63]}, [Int64(-(2**63)), Int64(2**62)], [Int64(-(2**63))]),
    ],
)  # fmt: skip
def test_operators(matching: Matching, condition: Any, values: list[Any], found: list[Any]) -> None:
    assert matching({"a": condition}, values) == found


@pytest.mark.parametrize(
    ("condition", "code", "words"),
    [
        ({"$type": True}, 14, "type must be represented as a number or a string"),
        ({"$type": "Number"}, 2, "Unknown type name alias: Number"),
        ({"$type": 0}, 2, "Invalid numerical type code: 0. Instead use {$exists:false}."),
        ({"$type": 255}, 2, "Invalid numerical type code: 255"),
        ({"$type": 1.5}, 2, "Invalid numerical type code: 1.5"),
        ({"$type": []}, 9, "a must match at least one type"),
        ({"$mod": 5}, 2, "malformed mod, needs to be an array"),
        ({"$mod": [5]}, 2, "malformed mod, not enough elements"),
        ({"$mod": [5, 1, 2]}, 2, "malformed mod, too many elements"),
        ({"$mod": [0.5, 1]}, 2, "divisor cannot be 0"),
        ({"$mod": ["5", 1]}, 2, "malformed mod, divisor not a number"),
        ({"$mod": [5, None]}, 2, "malformed mod, remainder not a number"),
        ({"$mod": [NAN, 1]}, 2,
         "malformed mod, divisor value is invalid :: caused by :: Unable to coerce to a 64-bit integer"),
        ({"$size": -1}, 2, "Failed to parse $size. Expected a non-negative number in: $size: -1"),
        ({"$size": 1.5}, 2, "Failed to parse $size. Expected an integer: $size: 1.5"),
        ({"$size": "1"}, 2, 'Failed to parse $size. Expected a number in: $size: "1"'),
        ({"$elemMatch": [1]}, 2, "$elemMatch needs an Object"),
        ({"$elemMatch": {"$where": "x"}}, 2, "$elemMatch cannot contain $where expression"),
        ({"$elemMatch": {"$or": [{"$expr": True}]}}, 2, "$expr can only be applied to the top-level document"),
        ({"$all": 1}, 2, "$all needs an array"),
        ({"$all": [{"$gt": 1}]}, 2, "no $ expressions in $all"),
        ({"$all": [{"$elemMatch": {"x": 1}}, 1]}, 2, "$all/$elemMatch has to be consistent"),
        ({"$bitsAllSet": -1}, 9, "Expected a non-negative number in: $bitsAllSet: -1"),
        ({"$bitsAllSet": 1.5}, 9, "Expected an integer: $bitsAllSet: 1.5"),
        ({"$bitsAnySet": "1"}, 2, '$bitsAnySet takes an Array, a number, or a BinData but received: $bitsAnySet: "1"'),
        ({"$bitsAnySet": [-1]}, 2, "Failed to parse bit position. Expected a non-negative number in: 0: -1"),
    ],
)  # fmt: skip
def test_refused(refusal: Refusal, condition: Any, code: int, words: str) -> None:
    assert refusal({"a": condition}) == (code, words)
