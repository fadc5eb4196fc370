import datetime
from collections.abc import Callable
from typing import Any

import pytest
from bson import SON, Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

Matching = Callable[[dict[str, Any], list[Any]], list[Any]]
Refusal = Callable[[dict[str, Any]], tuple[int, str]]

NAN = float("nan")
INF = float("inf")
DAY = datetime.datetime(2024, 5, 1)
OID = ObjectId("65f0000000000000000000aa")
EVERYTHING: list[Any] = [
    ...,
    None,
    -1,
    Int64(2**60),
    0.5,
    Decimal128("7"),
    NAN,
    "m",
    {"x": 1},
    [],
    Binary(b"\x01"),
    OID,
    False,
    DAY,
    Timestamp(1, 1),
    Regex("m"),
    Code("f"),
    MinKey(),
    MaxKey(),
]


@pytest.mark.parametrize(
    ("condition", "values", "found"),
    [
        # numbers equal by value, whatever their type
        ({"$eq": 1}, [1, Int64(1), 1.0, Decimal128("1.00"), True, "1"], [1, Int64(1), 1.0, Decimal128("1.00")]),
        ({"$eq": 0}, [-0.0, Decimal128("-0"), False, None], [-0.0, Decimal128("-0")]),
        ({"$eq": 2**53 + 1}, [float(2**53), Int64(2**53 + 1)], [Int64(2**53 + 1)]),
        ({"$eq": Decimal128("0.1")}, [0.1, Decimal128("0.1")], [Decimal128("0.1")]),
        ({"$gt": 2}, [1, 2, 3, 2.5, Int64(9), "9", True, ...], [3, 2.5, Int64(9)]),
        ({"$gte": 2.5}, [2, 3, 2.5, Int64(2**62), Decimal128("2.5")], [3, 2.5, Int64(2**62), Decimal128("2.5")]),
        ({"$lt": Int64(2**62)}, [1.5, Int64(2**62 - 1), 1e300, -INF], [1.5, Int64(2**62 - 1), -INF]),
        ({"$lte": Decimal128("1.5")}, [1, 1.5, 2, Decimal128("NaN")], [1, 1.5]),
        # NaN equals itself, and is neither more nor less than any number
        ({"$eq": NAN}, [1, Decimal128("NaN"), ...], [Decimal128("NaN")]),
        ({"$gte": NAN}, [1, Decimal128("NaN"), INF], [Decimal128("NaN")]),
        ({"$lte": NAN}, [1, Decimal128("NaN"), -INF], [Decimal128("NaN")]),
        ({"$lt": NAN}, [1, NAN, -INF], []),
        ({"$gt": NAN}, [1, NAN, INF], []),
        ({"$lt": 5}, [NAN, 4], [4]),
        ({"$lt": Decimal128("5")}, [NAN, 4, Decimal128("NaN")], [4]),
        # null and missing
        ({"$eq": None}, [..., None, 0, [], [None], {}], [..., None, [None]]),
        ({"$ne": None}, [..., None, 0, [], [None], {}], [0, [], {}]),
        ({"$gte": None}, [..., None, 0], [..., None]),
        ({"$lte": None}, [..., None, 0], [..., None]),
        ({"$gt": None}, [..., None, 0], []),
        # strings and bytes
        ({"$gt": "b"}, ["a", "b", "ba", "é", "B", 3], ["ba", "é"]),
        ({"$lt": "b"}, ["", "a", "b", "B", None], ["", "a", "B"]),
        ({"$lte": "é"}, ["e", "é", "ê", "z"], ["e", "é", "z"]),
        ({"$lt": Binary(b"\x02\x00")}, [Binary(b"\xff"), Binary(b"\x01\xff"), Binary(b"\x02\x00")],
         [Binary(b"\xff"), Binary(b"\x01\xff")]),
        ({"$gt": OID}, [ObjectId("65f0000000000000000000ab"), ObjectId("65f0000000000000000000a9"), "z"],
         [ObjectId("65f0000000000000000000ab")]),
        # dates are no timestamps, bools no numbers
        ({"$lt": DAY}, [datetime.datetime(2023, 1, 1), Timestamp(1, 1), 5], [datetime.datetime(2023, 1, 1)]),
        ({"$gte": Timestamp(5, 1)}, [Timestamp(5, 1), Timestamp(5, 0), DAY], [Timestamp(5, 1)]),
        ({"$gt": False}, [True, False, 1], [True]),
        # documents: order of fields, then types, names and values
        ({"$eq": {"x": 1, "y": 2}}, [SON([("x", 1.0), ("y", 2)]), SON([("y", 2), ("x", 1)]), {"x": 1}],
         [SON([("x", 1.0), ("y", 2)])]),
        ({"$gt": {"x": 1}}, [{"x": 2}, {"x": 1, "y": 0}, {"w": 9}, {"x": "s"}, {}],
         [{"x": 2}, {"x": 1, "y": 0}, {"x": "s"}]),
        # arrays: as a whole, and by their elements
        ({"$eq": [1, 2]}, [[1, 2], [[1, 2], 3], [2, 1], 1], [[1, 2], [[1, 2], 3]]),
        ({"$eq": 1}, [[1, 2], [[1]], [], 1], [[1, 2], 1]),
        ({"$ne": 1}, [[1, 2], [[1]], [], 1, 2, ...], [[[1]], [], 2, ...]),
        ({"$gt": [1, 5]}, [[1, 6], [2], [1, 5], [1], 9], [[1, 6], [2]]),
        ({"$gt": 4}, [[1, 5], [1, 2], [[5]]], [[1, 5]]),
        ({"$eq": []}, [[], [[]], [None], None], [[], [[]]]),
        # a regex under $eq is itself
        ({"$eq": Regex("m")}, ["m", Regex("m"), Regex("m", "i")], [Regex("m")]),
    ],
)  # fmt: skip
def test_comparison(matching: Matching, condition: Any, values: list[Any], found: list[Any]) -> None:
    assert matching({"a": condition}, values) == found


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ({"$gt": MinKey()}, [value for value in EVERYTHING if value != MinKey()]),
        ({"$gte": MinKey()}, EVERYTHING),
        ({"$lt": MinKey()}, []),
        ({"$lte": MinKey()}, [MinKey()]),
        ({"$lt": MaxKey()}, [value for value in EVERYTHING if value != MaxKey()]),
        ({"$lte": MaxKey()}, EVERYTHING),
        ({"$gt": MaxKey()}, []),
        ({"$eq": MinKey()}, [MinKey()]),
    ],
)
def test_minkey_and_maxkey_compare_with_every_type(matching: Matching, condition: Any, found: list[Any]) -> None:
    assert [str(value) for value in matching({"a": condition}, EVERYTHING)] == [str(value) for value in found]


@pytest.mark.parametrize("operand", [value for value in EVERYTHING if value is not ... and value != Regex("m")])
def test_a_range_stays_within_its_type(matching: Matching, operand: Any) -> None:
    """Whatever is found on both sides of a value is of its kind."""
    if isinstance(operand, (MinKey, MaxKey)):
        return
    number = isinstance(operand, (int, float, Decimal128)) and not isinstance(operand, bool)
    for value in matching({"$or": [{"a": {"$lt": operand}}, {"a": {"$gt": operand}}]}, EVERYTHING):
        if number:
            assert isinstance(value, (int, float, Decimal128)) and not isinstance(value, bool)
        else:
            assert type(value) is type(operand)


@pytest.mark.parametrize(
    ("condition", "values", "found"),
    [
        ({"$in": [1, "a", None]}, [1.0, "a", ..., None, 2, [2, "a"], Decimal128("1")],
         [1.0, "a", ..., None, [2, "a"], Decimal128("1")]),
        ({"$in": [Regex("^ab"), 5]}, ["abc", "xab", 5, ["z", "ab"], Regex("^ab")],
         ["abc", 5, ["z", "ab"], Regex("^ab")]),
        ({"$in": []}, EVERYTHING, []),
        ({"$in": [[1, 2]]}, [[1, 2], [[1, 2]], 1], [[1, 2], [[1, 2]]]),
        ({"$in": [NAN]}, [Decimal128("NaN"), 1], [Decimal128("NaN")]),
        ({"$in": [True]}, [True, 1, "true"], [True]),
        ({"$in": [Decimal128("2.5"), Int64(3)]}, [2.5, 3, 3.0, 2], [2.5, 3, 3.0]),
        ({"$in": [OID, DAY, {"x": 1}]}, [OID, DAY, {"x": 1.0}, {"x": 1, "y": 1}], [OID, DAY, {"x": 1.0}]),
        ({"$in": [MinKey(), MaxKey()]}, [MinKey(), MaxKey(), 1, ...], [MinKey(), MaxKey()]),
        ({"$nin": [1, None]}, [1, None, ..., 2, [1], [2], []], [2, [2], []]),
        ({"$nin": []}, [1, None, ...], [1, None, ...]),
        ({"$nin": [Regex("^a")]}, ["ab", "b", 1, ["ab"], ...], ["b", 1, ...]),
    ],
)  # fmt: skip
def test_in_and_nin(matching: Matching, condition: Any, values: list[Any], found: list[Any]) -> None:
    assert matching({"a": condition}, values) == found


@pytest.mark.parametrize(
    ("filter", "code", "words"),
    [
        ({"a": {"$ne": Regex("x")}}, 2, "Can't have regex as arg to $ne."),
        ({"a": {"$gt": Regex("x")}}, 2, "Can't have RegEx as arg to predicate over field 'a'."),
        ({"a": {"$in": 5}}, 2, "$in needs an array"),
        ({"a": {"$nin": {"x": 1}}}, 2, "$nin needs an array"),
        ({"a": {"$in": [{"$gt": 1}]}}, 2, "cannot nest $ under $in"),
        ({"a": {"$gte": 1, "$foo": 2}}, 2, "unknown operator: $foo"),
        ({"a": {"$gte": 1, "b": 2}}, 2, "unknown operator: b"),
    ],
)
def test_refused(refusal: Refusal, filter: dict[str, Any], code: int, words: str) -> None:
    assert refusal(filter) == (code, words)


def test_a_document_that_starts_with_a_plain_name_or_is_a_dbref_is_a_value(matching: Matching) -> None:
    reference = SON([("$ref", "c"), ("$id", 1)])
    assert matching({"a": {"b": 1}}, [{"b": 1}, {"b": 2}, 1]) == [{"b": 1}]
    assert matching({"a": reference}, [{"x": 1}, reference]) == [reference]
