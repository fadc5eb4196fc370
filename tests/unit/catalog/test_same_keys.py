"""Whether an update can leave an index alone: only where all that makes its keys is the same to the byte."""

from typing import Any

import bson
import pytest
from bson import Int64

from mongottl.catalog.collection import CollectionIndex
from mongottl.catalog.index import IndexDescriptor


def index_on(key: dict[str, Any], **options: Any) -> CollectionIndex:
    spec = bson.encode({"v": 2, "key": key, "name": "i", **options})
    return CollectionIndex(IndexDescriptor(spec), "ident", None, True)


@pytest.mark.parametrize(
    ("key", "before", "after", "same"),
    [
        ({"a": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"a": 1}, {"a": Int64(1)}, False),
        ({"a": 1}, {}, {"b": 1}, True),
        ({"a": 1}, {}, {"a": None}, False),
        ({"a": 1}, {"a": 1}, {}, False),
        ({"a.b": 1}, {"a": {"b": 1, "c": 1}}, {"x": 1, "a": {"b": 1, "c": 1}}, True),
        ({"a.b": 1}, {"a": {"b": 1, "c": 1}}, {"a": {"b": 1, "c": 2}}, False),
        ({"a": 1, "b": -1}, {"a": [1, 2], "b": 3, "c": 1}, {"a": [1, 2], "b": 3}, True),
        ({"a": 1, "b": -1}, {"a": [1, 2], "b": 3}, {"a": [1, 2], "b": 4}, False),
        ({"a": "hashed"}, {"a": 1, "b": 1}, {"a": 1, "b": 2}, True),
        ({"a": "hashed"}, {"a": 1}, {"a": 2}, False),
        ({"$**": 1}, {"a": 1}, {"a": 1}, False),
    ],
)
def test_same_keys(key: dict[str, Any], before: dict[str, Any], after: dict[str, Any], same: bool) -> None:
    index = index_on(key)
    assert index.has_same_keys(bson.encode(before), bson.encode(after)) is same
    if same:
        assert index.keys_of(bson.encode(before)) == index.keys_of(bson.encode(after))


def test_a_partial_index_depends_on_more_than_its_fields() -> None:
    index = index_on({"a": 1}, partialFilterExpression={"b": {"$gt": 5}})
    assert not index.has_same_keys(bson.encode({"a": 1, "b": 1}), bson.encode({"a": 1, "b": 9}))
