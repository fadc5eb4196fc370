"""Which keys a document has in an index, by MongoDB's rules for arrays, missing fields and sparse indexes."""

from typing import Any

import bson
import pytest

from mongottl.catalog.array_paths import SOMEWHERE
from mongottl.catalog.index import IndexDescriptor
from mongottl.catalog.keys import KeyGenerator
from mongottl.document.build import encode, encode_fields
from mongottl.document.keystring import encode_key
from mongottl.document.types import Undefined, Value
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode

UNDEFINED = Undefined()


def generator(pattern: dict[str, Any], sparse: bool = False) -> KeyGenerator:
    key = encode_fields(pattern.items())
    return IndexDescriptor(encode({"v": 2, "key": key, "name": "i", "sparse": sparse})).key_generator()


def value_of(value: Any) -> Value:
    """A value in the form that keys are made of: documents raw."""
    if isinstance(value, Undefined):
        return value
    return get_value(bson.encode({"v": value}), "v")


def expected_keys(pattern: dict[str, Any], rows: list[Any]) -> set[bytes]:
    descending = [direction < 0 for direction in pattern.values()]
    made = set()
    for row in rows:
        values = row if isinstance(row, tuple) else (row,)
        made.add(encode_key([value_of(value) for value in values], descending))
    return made


# (pattern, document, keys: a value each, or a tuple of values for a compound key)
CASES: list[tuple[dict[str, Any], dict[str, Any], list[Any]]] = [
    # No arrays.
    ({"a": 1}, {"a": 5}, [5]),
    ({"a": 1}, {}, [None]),
    ({"a": 1}, {"a": None}, [None]),
    ({"a": 1}, {"a": {"b": 1}}, [{"b": 1}]),
    ({"a.b": 1}, {"a": {"b": 1}}, [1]),
    ({"a.b": 1}, {"a": {"c": 1}}, [None]),
    ({"a.b": 1}, {"a": 7}, [None]),
    ({"a.b.c": 1}, {"a": {"b": 7}}, [None]),
    ({"a": 1, "b": -1}, {"a": 1, "b": 2}, [(1, 2)]),
    ({"a": 1, "b": 1}, {"b": 2}, [(None, 2)]),
    ({"a": 1, "a.b": 1}, {"a": {"b": 3}}, [({"b": 3}, 3)]),
    # Arrays at the end of a path.
    ({"a": 1}, {"a": [1, 2, 3]}, [1, 2, 3]),
    ({"a": -1}, {"a": [1, 2]}, [1, 2]),
    ({"a": 1}, {"a": [1, 1, 1.0, 2]}, [1, 2]),
    ({"a": 1}, {"a": [5]}, [5]),
    ({"a": 1}, {"a": []}, [UNDEFINED]),
    ({"a": -1}, {"a": []}, [UNDEFINED]),
    ({"a": 1}, {"a": [None, 1]}, [None, 1]),
    ({"a.b": 1}, {"a": {"b": [1, 2]}}, [1, 2]),
    ({"a.b": 1}, {"a": {"b": []}}, [UNDEFINED]),
    ({"a": 1, "b": 1}, {"a": [1, 2], "b": 9}, [(1, 9), (2, 9)]),
    ({"a": 1, "b": 1}, {"a": [], "b": 9}, [(UNDEFINED, 9)]),
    ({"a": 1, "b": 1}, {"a": 9, "b": [3, 4]}, [(9, 3), (9, 4)]),
    # An array within an array is a value.
    ({"a": 1}, {"a": [[1, 2], 3]}, [[1, 2], 3]),
    ({"a": 1}, {"a": [[]]}, [[]]),
    ({"a.b": 1}, {"a": [[{"b": 1}]]}, [None]),
    # Arrays on the way.
    ({"a.b": 1}, {"a": [{"b": 1}, {"b": 2}]}, [1, 2]),
    ({"a.b": 1}, {"a": [{"b": 1}, {"c": 2}]}, [1, None]),
    ({"a.b": 1}, {"a": [{"b": 1}, 7]}, [1, None]),
    ({"a.b": 1}, {"a": [7, 8]}, [None]),
    ({"a.b": 1}, {"a": []}, [None]),
    ({"a.b": 1}, {"a": [{"b": [1, 2]}, {"b": [2, 3]}]}, [1, 2, 3]),
    ({"a.b": 1}, {"a": [{"b": []}, {"b": 1}]}, [UNDEFINED, 1]),
    ({"a.b.c": 1}, {"a": [{"b": [{"c": 1}, {"c": 2}]}, {"b": {"c": 3}}]}, [1, 2, 3]),
    ({"a.b.c": 1}, {"a": [{"b": []}]}, [None]),
    # Components that share an array take the same element.
    ({"a.b": 1, "a.c": 1}, {"a": [{"b": 1, "c": 2}, {"b": 3, "c": 4}]}, [(1, 2), (3, 4)]),
    ({"a.b": 1, "a.c": 1}, {"a": [{"b": 1}, {"c": 4}]}, [(1, None), (None, 4)]),
    ({"a.b": 1, "a.c": 1}, {"a": []}, [(None, None)]),
    ({"a.b": 1, "a.c": 1}, {"a": [{"b": [1, 2], "c": 3}]}, [(1, 3), (2, 3)]),
    ({"a.b": 1, "a.c": 1}, {"a": [{"b": [1, 2], "c": 3}, {"b": 4, "c": [5, 6]}]}, [(1, 3), (2, 3), (4, 5), (4, 6)]),
    ({"a": 1, "a.b": 1}, {"a": [{"b": 1}, {"b": 2}]}, [({"b": 1}, 1), ({"b": 2}, 2)]),
    ({"a": 1, "a.b": 1}, {"a": [{"b": 1}, 7]}, [({"b": 1}, 1), (7, None)]),
    ({"a": 1, "a.b": 1}, {"a": []}, [(UNDEFINED, None)]),
    # Not two arrays at once: the inner one is reached from an element of the outer one.
    ({"a": 1, "a.b": 1}, {"a": [{"b": [1, 2]}]}, [({"b": [1, 2]}, 1), ({"b": [1, 2]}, 2)]),
    ({"a.b": 1, "c": 1, "a.d": 1}, {"a": [{"b": 1, "d": 2}], "c": 3}, [(1, 3, 2)]),
    # Numbers in paths: an element's place, where the array has one there.
    ({"a.0": 1}, {"a": [5, 6]}, [5]),
    ({"a.1": 1}, {"a": [5, 6]}, [6]),
    ({"a.2": 1}, {"a": [5, 6]}, [None]),
    ({"a.0": 1}, {"a": []}, [None]),
    ({"a.0": 1}, {"a": {"0": 4}}, [4]),
    ({"a.0": 1}, {"a": [{"b": 1}, {"c": 2}]}, [{"b": 1}]),
    ({"a.5": 1}, {"a": [{"5": 1}, {"5": 2}, {}]}, [1, 2, None]),
    ({"a.0": 1}, {"a": [[1, 2], 3]}, [[1, 2]]),
    ({"a.0": 1}, {"a": [[]]}, [UNDEFINED]),
    ({"a.0.0": 1}, {"a": [[1, 2], 3]}, [1]),
    ({"a.0.b": 1}, {"a": [{"b": 1}, {"b": 2}]}, [1]),
    ({"a.0.b": 1}, {"a": [{"b": [1, 2]}]}, [1, 2]),
    ({"a.0.b": 1}, {"a": [[{"b": 1}, {"b": 2}]]}, [1, 2]),
    ({"a.0.b": 1}, {"a": [7]}, [None]),
    ({"a.00": 1}, {"a": [5]}, [None]),
    ({"a.0": 1, "a.b": 1}, {"a": [{"b": 1}, {"b": 2}]}, [({"b": 1}, 1), ({"b": 1}, 2)]),
    ({"a.0.b": 1, "a.c": 1}, {"a": [{"b": [1, 2], "c": 3}]}, [(1, 3), (2, 3)]),
    ({"a.0": 1, "a.1": 1}, {"a": [5, 6, 7]}, [(5, 6)]),
]


@pytest.mark.parametrize(("pattern", "document", "keys"), CASES)
def test_keys_of_a_document(pattern: dict[str, Any], document: dict[str, Any], keys: list[Any]) -> None:
    made = generator(pattern).keys_of(bson.encode(document))
    assert set(made) == expected_keys(pattern, keys)
    assert len(made) == len(set(made))


@pytest.mark.parametrize(("pattern", "document", "keys"), CASES)
def test_every_key_tells_its_values(pattern: dict[str, Any], document: dict[str, Any], keys: list[Any]) -> None:
    keys_of = generator(pattern)
    descending = [direction < 0 for direction in pattern.values()]
    raw = bson.encode(document)
    for key in keys_of.keys_of(raw):
        assert encode_key(keys_of.values_of_key(raw, key), descending) == key


@pytest.mark.parametrize(
    ("pattern", "document", "paths"),
    [
        ({"a": 1, "b": 1}, {"a": 1, "b": {"c": [1]}}, set()),
        ({"a": 1}, {"a": []}, {"a"}),
        ({"a": 1, "b": 1}, {"a": [1], "b": 1}, {"a"}),
        ({"a.b": 1}, {"a": [1, 2]}, {"a"}),
        ({"a.b": 1}, {"a": {"b": [1]}}, {"a.b"}),
        ({"a.b": 1}, {"a": [{"b": 1}, {"b": [1]}]}, {"a", "a.b"}),
        ({"a.b": 1, "a.c": 1, "d": 1}, {"a": [{"b": 1, "c": [2]}], "d": 1}, {"a", "a.c"}),
        ({"a.0": 1}, {"a": [1]}, {SOMEWHERE}),
    ],
)
def test_keys_record_the_paths_of_arrays(pattern: dict[str, Any], document: dict[str, Any], paths: set[str]) -> None:
    keys = generator(pattern)
    keys.keys_of(bson.encode({"a": [1], "b": 1, "d": 1}))
    keys.keys_of(bson.encode(document))
    assert keys.array_paths == paths
    assert keys.saw_array == bool(paths)


def test_undefined_is_a_value_of_its_own() -> None:
    document = encode({"a": UNDEFINED})
    assert set(generator({"a": 1}).keys_of(document)) == expected_keys({"a": 1}, [UNDEFINED])


SPARSE: list[tuple[dict[str, Any], dict[str, Any], list[Any]]] = [
    ({"a": 1}, {}, []),
    ({"a": 1}, {"a": None}, [None]),
    ({"a": 1}, {"a": []}, [UNDEFINED]),
    ({"a.b": 1}, {"a": 7}, []),
    ({"a.b": 1}, {"a": []}, []),
    ({"a.b": 1}, {"a": [7]}, []),
    ({"a.b": 1}, {"a": [{"b": 1}, 7]}, [1]),
    ({"a.b": 1}, {"a": [{"b": None}, {}]}, [None]),
    ({"a": 1, "b": 1}, {}, []),
    ({"a": 1, "b": 1}, {"b": 1}, [(None, 1)]),
    ({"a.b": 1, "a.c": 1}, {"a": [{"b": 1}, {}]}, [(1, None)]),
    ({"a.0": 1}, {"a": []}, []),
]


@pytest.mark.parametrize(("pattern", "document", "keys"), SPARSE)
def test_sparse_indexes_skip_documents_without_any_of_the_fields(
    pattern: dict[str, Any], document: dict[str, Any], keys: list[Any]
) -> None:
    assert set(generator(pattern, True).keys_of(bson.encode(document))) == expected_keys(pattern, keys)


@pytest.mark.parametrize(
    ("pattern", "document"),
    [
        ({"a": 1, "b": 1}, {"a": [1], "b": [2]}),
        ({"a": 1, "b": 1}, {"a": [], "b": []}),
        ({"a.b": 1, "c": 1}, {"a": [{"b": 1}], "c": [2]}),
        ({"a.b": 1, "a.c": 1}, {"a": [{"b": [1], "c": [2]}]}),
        ({"a.0.b": 1, "c": 1}, {"a": [{"b": 1}], "c": [2]}),
    ],
)
def test_two_arrays_in_one_key_are_refused(pattern: dict[str, Any], document: dict[str, Any]) -> None:
    with pytest.raises(CommandError, match="cannot index parallel arrays") as caught:
        generator(pattern).keys_of(bson.encode(document))
    assert caught.value.code == 171


def test_the_message_names_both_arrays() -> None:
    with pytest.raises(CommandError, match=r"cannot index parallel arrays \[c\] \[a\]"):
        generator({"x.a": 1, "c": 1}).keys_of(bson.encode({"x": {"a": [1]}, "c": [2]}))


def test_a_number_that_is_both_a_place_and_a_field_is_refused() -> None:
    with pytest.raises(CommandError) as caught:
        generator({"a.0": 1}).keys_of(bson.encode({"a": [{"0": 1}]}))
    assert caught.value.code == 16746


@pytest.mark.parametrize(
    ("pattern", "document", "saw_array"),
    [
        ({"a": 1}, {"a": 1}, False),
        ({"a": 1}, {"a": {"b": [1]}}, False),
        ({"a": 1}, {"a": [1]}, True),
        ({"a": 1}, {"a": []}, True),
        ({"a.b": 1}, {"a": [{"b": 1}]}, True),
        ({"a.b": 1}, {"a": []}, True),
        ({"b": 1}, {"a": [1]}, False),
        ({"a": 1, "b": 1}, {"a": 1, "b": [1]}, True),
    ],
)
def test_an_array_on_the_way_makes_an_index_multikey(
    pattern: dict[str, Any], document: dict[str, Any], saw_array: bool
) -> None:
    keys_of = generator(pattern)
    keys_of.keys_of(bson.encode(document))
    assert keys_of.saw_array is saw_array
    keys_of.keys_of(bson.encode({"z": 1}))
    assert keys_of.saw_array is False


@pytest.mark.parametrize(
    ("pattern", "document"),
    [
        ({"a": 1}, {"a": [*range(300_000)]}),
        ({"a.b": 1}, {"a": [{"b": number} for number in range(150_000)]}),
    ],
)
def test_no_more_keys_are_made_than_a_document_may_have(pattern: dict[str, Any], document: dict[str, Any]) -> None:
    keys = generator(pattern)
    with pytest.raises(CommandError) as caught:
        keys.keys_of(bson.encode(document))
    assert caught.value.code == ErrorCode.CannotBuildIndexKeys
