"""Keys of documents with very many values: no part of making them goes on for long, and their number is bounded."""

import math
from typing import Any

import bson
import pytest

from mongottl.catalog.index_spec import parse_index_spec
from mongottl.catalog.keys import MAX_KEYS, KeyGenerator
from mongottl.document.build import encode, encode_fields
from mongottl.errors import CommandError, ErrorCode
from tests.gaps import ELEMENTS, STALL_S, longest_stall_s

PAIRS = [[math.cos(i), math.sin(i)] for i in range(ELEMENTS)]
NUMBERS = list(range(ELEMENTS))
# (pattern, document)
LONG: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "numbers": ({"a": 1}, {"a": NUMBERS}),
    "numbers, and more": ({"b": 1, "a": -1, "c": 1}, {"a": NUMBERS, "b": 1, "c": 2}),
    "elements": ({"a.b": 1, "a.c": 1}, {"a": [{"b": i, "c": -i} for i in NUMBERS]}),
    "a wildcard's fields": ({"$**": 1}, {str(i): i for i in NUMBERS}),
    "a wildcard's array": ({"$**": 1}, {"a": NUMBERS}),
    "words": ({"a": "text"}, {"a": " ".join(f"word{i}" for i in NUMBERS)}),
    "a hash": ({"a": "hashed"}, {"a": {"b": NUMBERS}}),
    "points on the sphere": ({"a": "2dsphere"}, {"a": {"type": "MultiPoint", "coordinates": PAIRS}}),
    "points on the sphere in an array": (
        {"b": 1, "a": "2dsphere"},
        {"a": [{"type": "Point", "coordinates": pair} for pair in PAIRS], "b": 1},
    ),
    "points on the sphere, and numbers": (
        {"a": "2dsphere", "b": 1},
        {"a": {"type": "MultiPoint", "coordinates": PAIRS[:100]}, "b": NUMBERS[: ELEMENTS // 100]},
    ),
    "points on the plane": ({"a": "2d"}, {"a": PAIRS}),
    "points on the plane by name": ({"a": "2d", "b": 1}, {"a": [{"x": x, "y": y} for x, y in PAIRS]}),
}


def generator(pattern: dict[str, Any]) -> KeyGenerator:
    return parse_index_spec(encode({"key": encode_fields(pattern.items()), "name": "long"})).key_generator()


@pytest.mark.parametrize("name", LONG)
def test_no_step_of_making_many_keys_takes_long(name: str) -> None:
    pattern, document = LONG[name]
    stored = bson.encode(document)
    keys = generator(pattern)
    assert longest_stall_s(lambda: keys.keys_of(stored)) < STALL_S


def test_two_arrays_have_a_bounded_number_of_keys_together() -> None:
    keys = generator({"a": "2dsphere", "b": 1})
    points = {"type": "MultiPoint", "coordinates": PAIRS[:1000]}
    document: dict[str, Any] = {"a": points, "b": NUMBERS[: MAX_KEYS // 1000]}
    assert len(keys.keys_of(bson.encode(document))) == MAX_KEYS
    document["b"].append(-1)
    with pytest.raises(CommandError) as caught:
        keys.keys_of(bson.encode(document))
    assert caught.value.code == ErrorCode.CannotBuildIndexKeys
    document["a"] = None  # no place, and so no keys
    assert keys.keys_of(bson.encode(document)) == []
