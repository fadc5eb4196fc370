from collections.abc import Callable
from typing import Any

import pytest
from bson import SON, Decimal128, Int64

Matching = Callable[[dict[str, Any], list[Any]], list[Any]]
Refusal = Callable[[dict[str, Any]], tuple[int, str]]
NAN = float("nan")


@pytest.mark.parametrize(
    ("schema", "values", "found"),
    [
        ({"bsonType": "int"}, [1, Int64(1), 1.0, [1], ...], [1, ...]),
        ({"bsonType": ["string", "null"]}, ["x", None, 1], ["x", None]),
        ({"bsonType": "number"}, [1, 1.5, Decimal128("1"), "1"], [1, 1.5, Decimal128("1")]),
        ({"type": "boolean"}, [True, 1], [True]),
        ({"type": ["object", "array"]}, [{}, [], "x"], [{}, []]),
        ({"enum": [1, {"x": 1, "y": 2}]}, [1.0, SON([("y", 2), ("x", 1)]), {"x": 1}, [1]],
         [1.0, SON([("y", 2), ("x", 1)])]),
        ({"minimum": 3}, [2, 3, 4.5, "a", [1], None, NAN], [3, 4.5, "a", [1], None]),
        ({"minimum": 3, "exclusiveMinimum": True}, [3, 4], [4]),
        ({"minimum": 3, "exclusiveMinimum": False}, [3, 4], [3, 4]),
        ({"maximum": 3}, [2, 3, 4], [2, 3]),
        ({"maximum": 3, "exclusiveMaximum": True}, [2, 3, 4], [2]),
        ({"multipleOf": 3}, [9, 10, 0, -3, 9.0, Decimal128("12"), "x", float("inf")],
         [9, 0, -3, 9.0, Decimal128("12"), "x"]),
        ({"multipleOf": 0.1}, [0.3, 0.35, 1], [0.3, 1]),
        ({"minLength": 2}, ["é", "éé", "abc", 1], ["éé", "abc", 1]),
        ({"maxLength": 1}, ["é", "éé", ""], ["é", ""]),
        ({"pattern": "^a"}, ["ab", "b", 1], ["ab", 1]),
        ({"minItems": 1, "maxItems": 2}, [[], [1], [1, 2, 3], "x", {}], [[1], "x", {}]),
        ({"uniqueItems": True}, [[1, 2], [1, 1.0], [{"x": 1, "y": 1}, SON([("y", 1), ("x", 1)])], 5], [[1, 2], 5]),
        ({"uniqueItems": False}, [[1, 1]], [[1, 1]]),
        ({"items": {"bsonType": "int"}}, [[1, 2], [1, "x"], [], "x"], [[1, 2], [], "x"]),
        ({"items": [{"bsonType": "int"}, {"bsonType": "string"}]}, [[1, "x", 5], ["x"], [1], [1, 2]],
         [[1, "x", 5], [1]]),
        ({"items": [{}], "additionalItems": False}, [[1], [1, 2]], [[1]]),
        ({"items": [{}], "additionalItems": {"bsonType": "int"}}, [["x", 2], ["x", "y"]], [["x", 2]]),
        ({"required": ["x", "y"]}, [{"x": 1, "y": None}, {"x": 1}, 5], [{"x": 1, "y": None}, 5]),
        ({"properties": {"x": {"minimum": 2}}}, [{"x": 2}, {"x": 1}, {}, 5, [{"x": 1}]], [{"x": 2}, {}, 5, [{"x": 1}]]),
        ({"properties": {"x": {}}, "additionalProperties": False}, [{"x": 1}, {"y": 1}, {}], [{"x": 1}, {}]),
        ({"additionalProperties": {"type": "string"}}, [{"x": "a"}, {"x": 1}], [{"x": "a"}]),
        ({"patternProperties": {"^n": {"bsonType": "int"}}, "additionalProperties": False},
         [{"n1": 1}, {"n1": "x"}, {"m": 1}], [{"n1": 1}]),
        ({"minProperties": 1, "maxProperties": 1}, [{}, {"x": 1}, {"x": 1, "y": 1}, []], [{"x": 1}, []]),
        ({"dependencies": {"x": ["y"]}}, [{"x": 1, "y": 1}, {"x": 1}, {"z": 1}], [{"x": 1, "y": 1}, {"z": 1}]),
        ({"dependencies": {"x": {"required": ["z"]}}}, [{"x": 1, "z": 1}, {"x": 1}], [{"x": 1, "z": 1}]),
        ({"allOf": [{"minimum": 1}, {"maximum": 3}]}, [0, 2, 4], [2]),
        ({"anyOf": [{"maximum": 1}, {"minimum": 3}]}, [0, 2, 4], [0, 4]),
        ({"oneOf": [{"minimum": 1}, {"minimum": 3}]}, [0, 2, 4], [2]),
        ({"not": {"bsonType": "int"}}, [1, "x"], ["x"]),
        ({"title": "t", "description": "d"}, [1], [1]),
        ({}, [1, ...], [1, ...]),
    ],
)  # fmt: skip
def test_keywords(matching: Matching, schema: dict[str, Any], values: list[Any], found: list[Any]) -> None:
    assert matching({"$jsonSchema": {"properties": {"a": schema}}}, values) == found


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        (5, 14),
        ({"foo": 1}, 9),
        ({"$ref": "x"}, 9),
        ({"default": 1}, 9),
        ({"encrypt": {}}, 9),
        ({"type": "integer"}, 9),
        ({"type": "int"}, 2),
        ({"bsonType": "boolean"}, 2),
        ({"type": "string", "bsonType": "string"}, 9),
        ({"type": ["string", "string"]}, 9),
        ({"type": []}, 9),
        ({"type": 2}, 14),
        ({"enum": []}, 9),
        ({"enum": [1, 1.0]}, 9),
        ({"enum": 1}, 14),
        ({"minimum": "1"}, 14),
        ({"exclusiveMinimum": True}, 9),
        ({"minimum": 1, "exclusiveMinimum": 1}, 14),
        ({"multipleOf": 0}, 9),
        ({"multipleOf": "1"}, 14),
        ({"minLength": -1}, 9),
        ({"maxItems": 1.5}, 9),
        ({"minProperties": "1"}, 9),
        ({"pattern": "("}, 51091),
        ({"patternProperties": {"(": {}}}, 2),
        ({"bsonType": "integer"}, 9),
        ({"bsonType": ["int", "integer"]}, 9),
        ({"pattern": 1}, 14),
        ({"allOf": []}, 2),
        ({"anyOf": {}}, 14),
        ({"oneOf": [1]}, 14),
        ({"not": []}, 14),
        ({"items": 1}, 14),
        ({"items": [1]}, 14),
        ({"additionalItems": 1}, 14),
        ({"uniqueItems": 1}, 14),
        ({"required": []}, 9),
        ({"required": ["a", "a"]}, 9),
        ({"required": [1]}, 14),
        ({"properties": {"x": 1}}, 14),
        ({"properties": []}, 14),
        ({"additionalProperties": "x"}, 14),
        ({"dependencies": {"x": 1}}, 14),
        ({"dependencies": {"x": []}}, 9),
        ({"title": 1}, 14),
    ],
)
def test_refused(refusal: Refusal, schema: Any, code: int) -> None:
    assert refusal({"$jsonSchema": schema})[0] == code


def test_the_root_is_a_document(matching: Matching) -> None:
    assert matching({"$jsonSchema": {"bsonType": "object"}}, [1]) == [1]
    assert matching({"$jsonSchema": {"bsonType": "string"}}, [1]) == []
    assert matching({"$nor": [{"$jsonSchema": {"required": ["a"]}}]}, [1, ...]) == [...]


def test_many_names_are_tested_like_few(matching: Matching) -> None:
    """Beyond a few names the document is walked once instead of searched for each."""
    names = [f"f{i}" for i in range(30)]
    whole: dict[str, Any] = dict.fromkeys(names, 1)
    lacking = {name: 1 for name in names if name != "f17"}
    wrong = {**whole, "f29": "x"}
    required = {"$jsonSchema": {"properties": {"a": {"required": names}}}}
    typed = {"$jsonSchema": {"properties": {"a": {"properties": {name: {"bsonType": "int"} for name in names}}}}}
    assert matching(required, [whole, lacking]) == [whole]
    assert matching(typed, [whole, lacking, wrong]) == [whole, lacking]
