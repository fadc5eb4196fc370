"""Objects and the odds and ends: sizes, timestamps, hashes."""

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
    "n": None,
    "s": "é€😀",
    "ts": Timestamp(1_622_731_060, 330),
}


@pytest.mark.parametrize(
    ("operator", "operand", "expected"),
    [
        ("$mergeObjects", [{"a": 1}, None], {"a": 1}),
        ("$mergeObjects", [None, None], {}),
        ("$mergeObjects", [{"a": 1}, {"a": 2, "b": 2}], {"a": 2, "b": 2}),
        ("$mergeObjects", [{"a": 1}, {"a": 2, "b": 2}, {"a": 3, "c": 3}], {"a": 3, "b": 2, "c": 3}),
        ("$mergeObjects", [{"a": 1}, {"a": 2, "b": 2}, {"a": 3, "b": None, "c": 3}], {"a": 3, "b": None, "c": 3}),
        ("$mergeObjects", ["$o", {"b": 0}], {"a": 1, "b": 0}),  # not merged deeper, at the place of the first
        ("$mergeObjects", "$missing", {}),
        ("$mergeObjects", [], {}),
        ("$mergeObjects", ["$o", {"a": "$missing"}], {"a": 1, "b": {"c": 2}}),
        ("$objectToArray", "$dimensions", [{"k": "length", "v": 25}, {"k": "width", "v": 10}]),
        ("$objectToArray", {}, []),
        ("$objectToArray", {"a": [1]}, [{"k": "a", "v": [1]}]),
        ("$objectToArray", {"a": None, "b": "$missing"}, [{"k": "a", "v": None}]),
        ("$objectToArray", "$n", None),
        ("$objectToArray", "$missing", None),
        ("$objectToArray", {"$literal": {"a.b": 1, "$c": 2}}, [{"k": "a.b", "v": 1}, {"k": "$c", "v": 2}]),
        ("$arrayToObject", [[["item", "abc123"], ["qty", 25]]], {"item": "abc123", "qty": 25}),
        ("$arrayToObject", [[{"k": "item", "v": "abc123"}, {"k": "qty", "v": 25}]], {"item": "abc123", "qty": 25}),
        ("$arrayToObject", [[]], {}),
        ("$arrayToObject", "$n", None),
        ("$arrayToObject", "$missing", None),
        ("$arrayToObject", [[{"v": 1, "k": "x"}]], {"x": 1}),
        ("$arrayToObject", [[["a.b", 1], ["", 2]]], {"a.b": 1, "": 2}),
        ("$getField", {"field": "b", "input": "$o"}, {"c": 2}),
        ("$getField", {"field": "o.a", "input": "$$ROOT"}, ...),  # no path but a name
        ("$getField", {"field": "a", "input": "$n"}, None),
        ("$getField", {"field": "a", "input": "$missing"}, ...),
        ("$getField", {"field": "a", "input": "$s"}, ...),
        ("$getField", {"field": "a", "input": "$d"}, ...),
        ("$getField", {"field": {"$concat": ["", "a"]}, "input": "$o"}, 1),
        ("$getField", {"$const": "n"}, None),
        ("$setField", {"field": "c", "input": "$o", "value": [1]}, {"a": 1, "b": {"c": 2}, "c": [1]}),
        ("$setField", {"field": "a", "input": "$o", "value": "$$REMOVE"}, {"b": {"c": 2}}),
        ("$setField", {"field": "a", "input": "$o", "value": "$missing"}, {"b": {"c": 2}}),
        ("$setField", {"field": "a", "input": "$o", "value": None}, {"a": None, "b": {"c": 2}}),
        ("$setField", {"field": {"$literal": "$p"}, "input": {}, "value": 1}, {"$p": 1}),
        ("$setField", {"field": "b.c", "input": "$o", "value": 1}, {"a": 1, "b": {"c": 2}, "b.c": 1}),
        ("$setField", {"field": "a", "input": "$missing", "value": 1}, None),
        ("$unsetField", {"field": "zz", "input": "$o"}, {"a": 1, "b": {"c": 2}}),
        ("$unsetField", {"field": "b.c", "input": "$o"}, {"a": 1, "b": {"c": 2}}),
        ("$unsetField", {"field": "a", "input": {}}, {}),
        ("$unsetField", {"field": "b.c", "input": {"$literal": {"b.c": 1, "d": 2}}}, {"d": 2}),
        ("$unsetField", {"field": {"$literal": "$p"}, "input": {"$literal": {"$p": 1}}}, {}),
        ("$unsetField", {"field": "a", "input": "$n"}, None),
        ("$unsetField", {"field": "a", "input": "$missing"}, None),
    ],
)
def test_objects(check: Check, operator: str, operand: object, expected: object) -> None:
    check({operator: operand}, DOC, expected)


@pytest.mark.parametrize(
    ("operator", "operand", "expected"),
    [
        ("$binarySize", "", 0),
        ("$binarySize", "a", 1),
        ("$binarySize", "$s", 9),
        ("$binarySize", "cafétéria", 11),
        ("$binarySize", Binary(b"\x00\x01\x02", 0), 3),
        ("$binarySize", Binary(b"", 4), 0),
        ("$binarySize", "$n", None),
        ("$binarySize", "$missing", None),
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
        ("$mergeObjects", ["$o", 1], 40400),
        ("$mergeObjects", ["$o", "$s"], 40400),
        ("$mergeObjects", "$d.a", 40400),
        ("$objectToArray", "$d", 40390),
        ("$objectToArray", "$s", 40390),
        ("$objectToArray", [], 16020),
        ("$arrayToObject", "$o", 40386),
        ("$arrayToObject", [[1]], 40398),
        ("$arrayToObject", [[{"k": "a", "v": 1}, ["b", 2]]], 40391),
        ("$arrayToObject", [[{"k": "a", "x": 1}]], 40393),
        ("$arrayToObject", [[{"k": 1, "v": 1}]], 40394),
        ("$arrayToObject", [[["a\0", 1]]], 4940400),
        ("$getField", {"input": "$o"}, 3041702),
        ("$getField", {"field": "a"}, 3041703),
        ("$getField", {"field": "a", "input": "$o", "x": 1}, 3041701),
        ("$getField", {"field": 5, "input": "$o"}, 3041704),
        ("$setField", 1, 4161100),
        ("$setField", {"field": "a", "input": {}, "value": 1, "x": 1}, 4161101),
        ("$setField", {"input": {}, "value": 1}, 4161102),
        ("$setField", {"field": "a", "input": {}}, 4161103),
        ("$setField", {"field": "a", "value": 1}, 4161109),
        ("$setField", {"field": 1, "input": {}, "value": 1}, 4161107),
        ("$setField", {"field": {"$concat": ["a", "$s"]}, "input": {}, "value": 1}, 4161106),
        ("$unsetField", "a", 4161100),
        ("$unsetField", {"field": "a", "input": {}, "value": 1}, 4161101),
        ("$unsetField", {"input": {}}, 4161102),
        ("$unsetField", {"field": "a"}, 4161109),
        ("$unsetField", {"field": "a", "input": "$s"}, 4161105),
        ("$unsetField", {"field": "$s", "input": {}}, 4161108),
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
        ("$meta", 1, 17307),
        ("$meta", "nonsense", 17308),
    ],
)
def test_refusals(failure: Failure, operator: str, operand: object, code: int) -> None:
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


def test_what_meta_has_not_is_missing(check: Check) -> None:
    check({"$type": {"$meta": "indexKey"}}, {}, "missing")
