"""Which keys a document has in a wildcard index."""

from typing import Any

import bson
import pytest

from mongottl.catalog.index_spec import parse_index_spec
from mongottl.catalog.keys import KeyGenerator
from mongottl.document.build import encode, encode_fields
from mongottl.document.keystring import encode_key
from mongottl.document.types import MaxKey, MinKey, Undefined, Value
from mongottl.document.walk import get_value
from mongottl.errors import CommandError

UNDEFINED = Undefined()
LEAST = MinKey()


def generator(pattern: dict[str, Any], projection: dict[str, Any] | None = None) -> KeyGenerator:
    options = {} if projection is None else {"wildcardProjection": encode_fields(_raw(projection).items())}
    return parse_index_spec(encode({"key": encode_fields(pattern.items()), "name": "w", **options})).key_generator()


def _raw(document: dict[str, Any]) -> dict[str, Value]:
    return {name: bson.encode(value) if isinstance(value, dict) else value for name, value in document.items()}


def value_of(value: Any) -> Value:
    if isinstance(value, (Undefined, MinKey, MaxKey)):
        return value
    return get_value(bson.encode({"v": value}), "v")


ALL = {"$**": 1}
# (pattern, projection, document, keys: the components of each)
CASES: list[tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any], list[tuple[Any, ...]]]] = [
    (ALL, None, {"a": 1, "b": "x"}, [("a", 1), ("b", "x")]),
    (ALL, None, {"_id": 1, "a": None}, [("a", None)]),
    (ALL, None, {"_id": {"a": 1}}, []),
    (ALL, None, {"a": {"b": {"c": 1}}}, [("a.b.c", 1)]),
    (ALL, None, {"a": {}}, [("a", {})]),
    (ALL, None, {"a": {"b": {}}}, [("a.b", {})]),
    (ALL, None, {"a": []}, [("a", UNDEFINED)]),
    (ALL, None, {"a": [1, 2, 1]}, [("a", 1), ("a", 2)]),
    (ALL, None, {"a": [{"b": 1}, {"b": 2, "c": 3}, {}]}, [("a.b", 1), ("a.b", 2), ("a.c", 3), ("a", {})]),
    (ALL, None, {"a": [[1, 2], [{"b": 1}], []]}, [("a", [1, 2]), ("a", [{"b": 1}]), ("a", [])]),
    (ALL, None, {"a": [{"b": [1]}]}, [("a.b", 1)]),
    (ALL, None, {"a": {"b.c": 1, "d": 2}}, [("a.d", 2)]),
    ({"$**": -1}, None, {"a": 1, "b": 2}, [("a", 1), ("b", 2)]),
    ({"a.$**": 1}, None, {"a": {"b": 1}, "c": 2}, [("a.b", 1)]),
    ({"a.$**": 1}, None, {"a": 5}, [("a", 5)]),
    ({"a.b.$**": 1}, None, {"a": [{"b": 1, "c": 2}, {"b": {"d": 3}}]}, [("a.b", 1), ("a.b.d", 3)]),
    (ALL, {"a": 1}, {"_id": 1, "a": {"b": 1}, "c": 2}, [("a.b", 1)]),
    (ALL, {"_id": 1, "a": 1}, {"_id": 1, "a": 2, "c": 2}, [("_id", 1), ("a", 2)]),
    (ALL, {"_id": 1}, {"_id": 1, "a": 2}, [("_id", 1)]),
    (ALL, {"_id": 0}, {"_id": 1, "a": 2}, [("a", 2)]),
    (ALL, {"a": 0}, {"_id": 1, "a": 2, "b": 3}, [("b", 3)]),
    (ALL, {"_id": 1, "a": 0}, {"_id": 1, "a": 2, "b": 3}, [("_id", 1), ("b", 3)]),
    (ALL, {"a.b": 1}, {"a": {"b": 1, "c": 2}, "b": 3}, [("a.b", 1)]),
    (ALL, {"a": {"b": 1}}, {"a": [{"b": 1}, {"b": 2, "c": 2}, 7]}, [("a.b", 1), ("a.b", 2)]),
    (ALL, {"a.b": 0}, {"a": [{"b": 1, "c": 2}, 7]}, [("a.c", 2), ("a", 7)]),
    ({"k": 1, "a.$**": 1}, None, {"k": 9, "a": {"b": 1, "c": 2}}, [(9, "a.b", 1), (9, "a.c", 2)]),
    ({"k": 1, "a.$**": 1}, None, {"k": 9}, [(9, LEAST, LEAST)]),
    ({"a.$**": 1, "k": -1}, None, {"a": 1}, [("a", 1, None)]),
    ({"k": -1, "a.$**": -1, "l": 1}, None, {"k": 9, "a": 1, "l": 8}, [(9, "a", 1, 8)]),
]


@pytest.mark.parametrize(("pattern", "projection", "document", "keys"), CASES)
def test_keys_of_a_document(
    pattern: dict[str, Any], projection: dict[str, Any] | None, document: dict[str, Any], keys: list[tuple[Any, ...]]
) -> None:
    descending: list[bool] = []
    for path, direction in pattern.items():
        descending.extend([False, direction < 0] if path.endswith("$**") else [direction < 0])
    made = generator(pattern, projection).keys_of(bson.encode(document))
    assert set(made) == {encode_key([value_of(value) for value in key], descending) for key in keys}
    assert len(made) == len(set(made))


def test_wildcard_keys_record_the_paths_of_arrays() -> None:
    keys = generator(ALL)
    keys.keys_of(bson.encode({"z": [1]}))
    keys.keys_of(bson.encode({"a": [{"b": [1]}, [2]], "c": {"d": []}, "e": 1}))
    assert keys.array_paths == {"a", "a.b", "c.d"}


@pytest.mark.parametrize("document", [{"k": [1]}, {"k": []}])
def test_regular_components_are_not_multikey(document: dict[str, Any]) -> None:
    with pytest.raises(CommandError) as caught:
        generator({"k": 1, "a.$**": 1}).keys_of(bson.encode(document))
    assert caught.value.code == 7246301


REFUSED: list[tuple[dict[str, Any], dict[str, Any], int]] = [
    ({"$**": 0}, {}, 67),
    ({"$**": "hashed"}, {}, 67),
    ({"$**": 1, "a": "hashed"}, {}, 67),
    ({"$**.a": 1}, {}, 67),
    ({"a.$**.b": 1}, {}, 67),
    ({"$**": 1}, {"unique": True}, 67),
    ({"$**": 1}, {"sparse": True}, 67),
    ({"$**": 1}, {"expireAfterSeconds": 1}, 67),
    ({"a.$**": 1, "b.$**": 1}, {}, 7246201),
    ({"$**": "wildcard"}, {}, 67),
    ({"$**": 1, "a": 1}, {}, 67),
    ({"$**": 1, "a": 1}, {"wildcardProjection": {"a": 1}}, 67),
    ({"$**": 1, "a": 1}, {"wildcardProjection": {"a.b": 1}}, 67),
    ({"$**": 1, "a.b": 1}, {"wildcardProjection": {"b": 0}}, 7246209),
    ({"a.$**": 1, "a.b": 1}, {}, 67),
    ({"a.b.$**": 1, "a": 1}, {}, 67),
    ({"$**": 1}, {"wildcardProjection": {}}, 9),
    ({"a.$**": 1}, {"wildcardProjection": {"a": 1}}, 9),
    ({"$**": 1}, {"wildcardProjection": {"a": 1, "b": 0}}, 31254),
    ({"$**": 1}, {"wildcardProjection": {"a": 0, "b": 1}}, 31253),
    ({"$**": 1}, {"wildcardProjection": {"a": 1, "a.b": 1}}, 31249),
    ({"$**": 1}, {"wildcardProjection": {"a": "$b"}}, 51271),
    ({"$**": 1}, {"wildcardProjection": {"a": {"$add": [1, 2]}}}, 51271),
    ({"$**": 1}, {"wildcardProjection": 1}, 14),
    ({"a": 1}, {"wildcardProjection": {"a": 1}}, 2),
]


@pytest.mark.parametrize(("pattern", "options", "expected"), REFUSED)
def test_specifications_refused(pattern: dict[str, Any], options: dict[str, Any], expected: int) -> None:
    spec = encode({"key": encode_fields(pattern.items()), "name": "w", **_raw(options)})
    with pytest.raises(CommandError) as caught:
        parse_index_spec(spec)
    assert caught.value.code == expected


def test_projections_tell_indexes_apart_however_they_are_written() -> None:
    def index(projection: dict[str, Any] | None) -> Any:
        options = {} if projection is None else {"wildcardProjection": projection}
        return parse_index_spec(bson.encode({"key": {"$**": 1}, "name": "w", **options}))

    assert index({"a.b": 1, "c": 1}).compared_with(index({"c": True, "a": {"b": 1.0}})) == 2
    assert index({"a": 1}).compared_with(index({"b": 1})) == 0
    assert index({"a": 1}).compared_with(index(None)) == 0
