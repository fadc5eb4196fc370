"""Intervals to ranges of key bytes, over all types and both directions."""

import pytest

from mongottl.document.compare import BRACKET_NUMBER, BRACKET_STRING, compare_values
from mongottl.document.keystring import encode_value
from mongottl.document.types import (
    BinData,
    Date,
    Decimal128,
    Int64,
    MaxKey,
    MinKey,
    ObjectId,
    Regex,
    Timestamp,
    Undefined,
    Value,
)
from mongottl.exec.plan.bounds import component_range, shared_prefix
from mongottl.exec.plan.implication import implies
from mongottl.exec.plan.predicates import conjuncts_of
from mongottl.query.match.interval import BracketEnd, BracketStart, Interval, everything, point
from tests.planning import match_of

# In MongoDB's order, no two equal.
ORDERED: list[Value] = [
    MinKey(), Undefined(), None,
    float("nan"), float("-inf"), -5, 0, 1, 1.5, Decimal128("1.6"), Int64(2**40), float("inf"),
    "", "a", "a\0", "ab", "b",
    b"\x05\0\0\0\0", b"\x0c\0\0\0\x10a\0\1\0\0\0\0", [], [1],
    BinData(b""), BinData(b"\xff"), ObjectId(b"\0" * 12), ObjectId(b"\xff" * 12),
    False, True, Date(-1), Date(5), Timestamp(1, 2), Regex("a", ""), MaxKey(),
]  # fmt: skip


def inside(value: Value, interval: Interval) -> bool:
    low = compare_values(value, interval.low)
    high = compare_values(value, interval.high)
    return (low > 0 or (low == 0 and interval.low_inclusive)) and (high < 0 or (high == 0 and interval.high_inclusive))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("inclusive", [(True, True), (True, False), (False, True), (False, False)])
def test_ranges_hold_what_the_interval_holds(descending: bool, inclusive: tuple[bool, bool]) -> None:
    keys = [encode_value(value, descending) for value in ORDERED]
    for low in range(len(ORDERED)):
        for high in range(low, len(ORDERED)):
            interval = Interval(ORDERED[low], inclusive[0], ORDERED[high], inclusive[1])
            start, end = component_range(interval, descending)
            for value, key in zip(ORDERED, keys, strict=True):
                # Further components behind the value do not change where a key lies.
                assert (start <= key + encode_value("z") < end) == inside(value, interval)


@pytest.mark.parametrize("descending", [False, True])
def test_ranges_of_brackets(descending: bool) -> None:
    numbers = component_range(
        Interval(BracketStart(BRACKET_NUMBER), True, BracketEnd(BRACKET_NUMBER), True), descending
    )
    above = component_range(Interval("a", False, BracketEnd(BRACKET_STRING), True), descending)
    between = component_range(
        Interval(BracketEnd(BRACKET_NUMBER), True, BracketStart(BRACKET_STRING), True), descending
    )
    for value in ORDERED:
        key = encode_value(value, descending)
        is_number = isinstance(value, (int, float, Decimal128)) and not isinstance(value, bool)
        assert (numbers[0] <= key < numbers[1]) == is_number
        assert (above[0] <= key < above[1]) == (isinstance(value, str) and value > "a")
        assert not between[0] <= key < between[1]


def test_everything_is_every_key() -> None:
    for descending in (False, True):
        low, high = component_range(everything(), descending)
        assert all(low <= encode_value(value, descending) < high for value in ORDERED)
        for value in ORDERED:
            start, end = component_range(point(value), descending)
            assert [other for other in ORDERED if start <= encode_value(other, descending) < end] == [value]


def test_shared_prefix() -> None:
    assert shared_prefix("x.y.a", "x.y.b") == "x.y"
    assert shared_prefix("x", "x.a") == "x"
    assert shared_prefix("xa", "xb") == ""


def test_conjuncts() -> None:
    assert conjuncts_of(match_of({})) == []
    assert len(conjuncts_of(match_of({"a": 1}))) == 1
    assert len(conjuncts_of(match_of({"a": 1, "$and": [{"b": 2}, {"c": {"$gt": 1, "$lt": 3}}]}))) == 4


@pytest.mark.parametrize(
    ("query", "filter", "expected"),
    [
        ({"a": 1}, {}, True),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"a": {"$exists": True}}, True),
        ({"a": None}, {"a": {"$exists": True}}, False),
        ({"a": {"$size": 2}}, {"a": {"$exists": True}}, True),
        ({"a": {"$gt": 5}}, {"a": {"$gte": 5}}, True),
        ({"a": {"$gte": 5}}, {"a": {"$gt": 5}}, False),
        ({"a": {"$gte": 5}}, {"b": {"$gt": 1}}, False),
        ({"a": {"$elemMatch": {"$gt": 7}}}, {"a": {"$gt": 5}}, False),
        ({"a": [7]}, {"a": {"$gt": 5}}, False),
        ({"a": {"$type": "string"}}, {"a": {"$type": "string"}}, True),
        ({"a": {"$ne": 1}}, {"a": {"$ne": 1}}, True),
        ({"a": {"$regex": "^x"}}, {"a": {"$regex": "^x"}}, True),
        # A stored regex of the same text matches too, and is no string.
        ({"a": {"$regex": "^x"}}, {"a": {"$gte": "x"}}, False),
        ({"a": 4}, {"a": {"$mod": [2, 1]}}, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": {"$lt": 5}}, True),
        ({"a": 1}, {"b": 2, "a": {"$lt": 5}}, False),
        ({"a": 1}, {"$or": [{"a": {"$lt": 0}}, {"a": {"$gt": 0}}]}, True),
        ({"$or": [{"a": 1}, {"a": 2}]}, {"a": {"$gt": 0}}, True),
        ({"$or": [{"a": 1}, {"a": -2}]}, {"a": {"$gt": 0}}, False),
        ({"$nor": [{"a": 1}]}, {"a": {"$gt": 0}}, False),
        ({"a": {"$in": [1, 2]}}, {"a": {"$in": [1, 2, 3]}}, True),
        ({"a": {"$in": [1, 4]}}, {"a": {"$in": [1, 2, 3]}}, False),
    ],
)  # fmt: skip
def test_implication(query: dict[str, object], filter: dict[str, object], expected: bool) -> None:
    assert implies(match_of(query), match_of(filter)) == expected
