"""Operators of documents: their fields, merging, and conversion to arrays and back."""

from collections.abc import Callable
from typing import Any

import pytest
from bson import Timestamp

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
        ("$mergeObjects", ["$o", {"a": 5, "z": 6}, None], {"a": 5, "b": {"c": 2}, "z": 6}),
        ("$mergeObjects", "$pairs", {"k": 1, "x": "q"}),
        ("$mergeObjects", [{"a": 1}, None], {"a": 1}),
        ("$mergeObjects", [None, None], {}),
        ("$mergeObjects", [{"a": 1}, {"a": 2, "b": 2}], {"a": 2, "b": 2}),
        ("$mergeObjects", [{"a": 1}, {"a": 2, "b": 2}, {"a": 3, "c": 3}], {"a": 3, "b": 2, "c": 3}),
        ("$mergeObjects", [{"a": 1}, {"a": 2, "b": 2}, {"a": 3, "b": None, "c": 3}], {"a": 3, "b": None, "c": 3}),
        ("$mergeObjects", ["$o", {"b": 0}], {"a": 1, "b": 0}),  # not merged deeper, at the place of the first
        ("$mergeObjects", "$missing", {}),
        ("$mergeObjects", [], {}),
        ("$mergeObjects", ["$o", {"a": "$missing"}], {"a": 1, "b": {"c": 2}}),
        ("$objectToArray", "$o", [{"k": "a", "v": 1}, {"k": "b", "v": {"c": 2}}]),
        ("$objectToArray", "$dimensions", [{"k": "length", "v": 25}, {"k": "width", "v": 10}]),
        ("$objectToArray", {}, []),
        ("$objectToArray", {"a": [1]}, [{"k": "a", "v": [1]}]),
        ("$objectToArray", {"a": None, "b": "$missing"}, [{"k": "a", "v": None}]),
        ("$objectToArray", "$n", None),
        ("$objectToArray", "$missing", None),
        ("$objectToArray", {"$literal": {"a.b": 1, "$c": 2}}, [{"k": "a.b", "v": 1}, {"k": "$c", "v": 2}]),
        ("$arrayToObject", [[["x", 1], ["y", 2], ["x", 3]]], {"x": 3, "y": 2}),
        ("$arrayToObject", [[{"k": "x", "v": None}]], {"x": None}),
        ("$arrayToObject", [[["item", "abc123"], ["qty", 25]]], {"item": "abc123", "qty": 25}),
        ("$arrayToObject", [[{"k": "item", "v": "abc123"}, {"k": "qty", "v": 25}]], {"item": "abc123", "qty": 25}),
        ("$arrayToObject", [[]], {}),
        ("$arrayToObject", "$n", None),
        ("$arrayToObject", "$missing", None),
        ("$arrayToObject", [[{"v": 1, "k": "x"}]], {"x": 1}),
        ("$arrayToObject", [[["a.b", 1], ["", 2]]], {"a.b": 1, "": 2}),
        ("$getField", {"field": "a", "input": "$o"}, 1),
        ("$getField", {"field": {"$literal": "$x"}, "input": {"$literal": {"$x": 7}}}, 7),
        ("$getField", "n", None),
        ("$getField", {"field": "a.b", "input": {"$literal": {"a.b": 8}}}, 8),
        ("$getField", {"field": "zz", "input": "$o"}, ...),
        ("$getField", {"field": "b", "input": "$o"}, {"c": 2}),
        ("$getField", {"field": "o.a", "input": "$$ROOT"}, ...),  # no path but a name
        ("$getField", {"field": "a", "input": "$n"}, None),
        ("$getField", {"field": "a", "input": "$missing"}, ...),
        ("$getField", {"field": "a", "input": "$s"}, ...),
        ("$getField", {"field": "a", "input": "$d"}, ...),
        ("$getField", {"field": {"$concat": ["", "a"]}, "input": "$o"}, 1),
        ("$getField", {"$const": "n"}, None),
        ("$setField", {"field": "a", "input": "$o", "value": 9}, {"a": 9, "b": {"c": 2}}),
        ("$setField", {"field": "q.r", "input": {}, "value": 1}, {"q.r": 1}),
        ("$setField", {"field": "a", "input": "$n", "value": 1}, None),
        ("$setField", {"field": "c", "input": "$o", "value": [1]}, {"a": 1, "b": {"c": 2}, "c": [1]}),
        ("$setField", {"field": "a", "input": "$o", "value": "$$REMOVE"}, {"b": {"c": 2}}),
        ("$setField", {"field": "a", "input": "$o", "value": "$missing"}, {"b": {"c": 2}}),
        ("$setField", {"field": "a", "input": "$o", "value": None}, {"a": None, "b": {"c": 2}}),
        ("$setField", {"field": {"$literal": "$p"}, "input": {}, "value": 1}, {"$p": 1}),
        ("$setField", {"field": "b.c", "input": "$o", "value": 1}, {"a": 1, "b": {"c": 2}, "b.c": 1}),
        ("$setField", {"field": "a", "input": "$missing", "value": 1}, None),
        ("$unsetField", {"field": "b", "input": "$o"}, {"a": 1}),
        ("$unsetField", {"field": "zz", "input": "$o"}, {"a": 1, "b": {"c": 2}}),
        ("$unsetField", {"field": "b.c", "input": "$o"}, {"a": 1, "b": {"c": 2}}),
        ("$unsetField", {"field": "a", "input": {}}, {}),
        ("$unsetField", {"field": "b.c", "input": {"$literal": {"b.c": 1, "d": 2}}}, {"d": 2}),
        ("$unsetField", {"field": {"$literal": "$p"}, "input": {"$literal": {"$p": 1}}}, {}),
        ("$unsetField", {"field": "a", "input": "$n"}, None),
        ("$unsetField", {"field": "a", "input": "$missing"}, None),
    ],
)
def test_operators_of_objects(check: Check, operator: str, operand: object, expected: object) -> None:
    check({operator: operand}, DOC, expected)


@pytest.mark.parametrize(
    ("operator", "operand", "code"),
    [
        ("$mergeObjects", [1], 40400),
        ("$mergeObjects", ["$o", 1], 40400),
        ("$mergeObjects", ["$o", "$s"], 40400),
        ("$mergeObjects", "$d.a", 40400),
        ("$objectToArray", 1, 40390),
        ("$objectToArray", "$d", 40390),
        ("$objectToArray", "$s", 40390),
        ("$objectToArray", [], 16020),
        ("$arrayToObject", 1, 40386),
        ("$arrayToObject", [[["a"]]], 40397),
        ("$arrayToObject", [[[1, 2]]], 40395),
        ("$arrayToObject", [[{"k": "a"}]], 40392),
        ("$arrayToObject", [[["a", 1], {"k": "b", "v": 1}]], 40396),
        ("$arrayToObject", "$o", 40386),
        ("$arrayToObject", [[1]], 40398),
        ("$arrayToObject", [[{"k": "a", "v": 1}, ["b", 2]]], 40391),
        ("$arrayToObject", [[{"k": "a", "x": 1}]], 40393),
        ("$arrayToObject", [[{"k": 1, "v": 1}]], 40394),
        ("$arrayToObject", [[["a\0", 1]]], 4940400),
        ("$getField", 5, 3041704),
        ("$getField", {"input": "$o"}, 3041702),
        ("$getField", {"field": "a"}, 3041703),
        ("$getField", {"field": "a", "input": "$o", "x": 1}, 3041701),
        ("$getField", {"field": 5, "input": "$o"}, 3041704),
        ("$setField", {"field": "$x", "input": {}, "value": 1}, 4161108),
        ("$setField", {"field": "x", "input": 1, "value": 1}, 4161105),
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
    ],
)
def test_refusals_of_operators_of_objects(failure: Failure, operator: str, operand: object, code: int) -> None:
    assert failure({operator: operand}, DOC).code == code
