"""What createIndexes accepts as a specification, and with which code it refuses the rest."""

from typing import Any

import bson
import pytest
from bson import Decimal128, Int64, Regex

from mongottl.catalog.index import DIFFERENT, EQUIVALENT, IDENTICAL, IndexDescriptor
from mongottl.catalog.index_spec import check_id_index_spec, parse_index_spec
from mongottl.document.build import encode
from mongottl.errors import CommandError
from mongottl.ttl.policy import NO_TTL


def parse(**options: Any) -> IndexDescriptor:
    """The index {a: 1} named "i", unless options say otherwise."""
    return parse_index_spec(bson.encode({"key": {"a": 1}, "name": "i", **options}))


def listed(**options: Any) -> dict[str, Any]:
    shown: dict[str, Any] = bson.decode(parse(**options).spec)
    return shown


def code(**options: Any) -> int:
    with pytest.raises(CommandError) as caught:
        parse(**options)
    return caught.value.code


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, {}),
        ({"v": 1}, {"v": 1}),
        ({"v": 2.0}, {}),
        ({"unique": 1}, {"unique": True}),
        ({"unique": False}, {}),
        ({"sparse": True}, {"sparse": True}),
        ({"hidden": True}, {"hidden": True}),
        ({"hidden": False}, {}),
        ({"background": True}, {"background": True}),
        ({"expireAfterSeconds": 3600}, {"expireAfterSeconds": 3600}),
        ({"expireAfterSeconds": 3600.5}, {"expireAfterSeconds": 3600}),
        ({"expireAfterSeconds": Decimal128("3600.5")}, {"expireAfterSeconds": 3600}),
        ({"expireAfterSeconds": 0}, {"expireAfterSeconds": 0}),
        ({"partialFilterExpression": {"b": {"$gt": 1}}}, {"partialFilterExpression": {"b": {"$gt": 1}}}),
        ({"collation": {"locale": "simple"}}, {}),
        ({"ns": "test.c", "dropDups": True}, {}),
        ({"prepareUnique": True}, {"prepareUnique": True}),
    ],
)
def test_list_indexes_shows_the_options_that_are_kept(options: dict[str, Any], shown: dict[str, Any]) -> None:
    assert listed(**options) == {"v": 2, "key": {"a": 1}, "name": "i", **shown}


def test_the_key_keeps_its_types_and_order() -> None:
    shown = listed(key={"b": 1.0, "a": Int64(-1)})
    assert list(shown["key"].items()) == [("b", 1.0), ("a", -1)]
    assert isinstance(shown["key"]["b"], float)
    assert isinstance(shown["key"]["a"], Int64)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ({}, 67),
        ({"a": 0}, 67),
        ({"a": float("nan")}, 67),
        ({"a": True}, 67),
        ({"a": None}, 67),
        ({"a": {"x": 1}}, 67),
        ({"a": "abc"}, 67),
        ({"a": ""}, 67),
        ({"a": "wildcard"}, 7246202),
        ({"": 1}, 67),
        ({"a..b": 1}, 67),
        ({"a.": 1}, 67),
        ({"$a": 1}, 67),
        ({"a.$b": 1}, 67),
        ({"$id": 1}, 67),
        ({f"f{i}": 1 for i in range(33)}, 13103),
        ({"a": "hashed", "b": "hashed"}, 31303),
        ({"a": "hashed", "b": "text"}, 67),
        ({"$**": 0}, 67),
        ("a", 14),
        (1, 14),
        (["a"], 14),
        ({"_id": -1}, 2),
    ],
)
def test_keys_that_cannot_be_an_index(key: Any, expected: int) -> None:
    assert code(key=key) == expected


@pytest.mark.parametrize(
    "key", [{"a": 1}, {"a": -7.5}, {"a": Decimal128("1")}, {"a.$id": 1}, {"a.$ref.x": 1}, {"_id": 2}]
)
def test_keys_that_can(key: dict[str, Any]) -> None:
    assert listed(key=key)["key"] == key


def test_the_same_path_twice_is_refused() -> None:
    key = encode({"a": 1})[:-1] + encode({"a": -1})[4:]
    key = len(key).to_bytes(4, "little") + key[4:]
    with pytest.raises(CommandError) as caught:
        parse_index_spec(encode({"key": key, "name": "i"}))
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"name": ""}, 67),
        ({"name": 1}, 14),
        ({"name": "*"}, 2),
        ({"name": "_id_"}, 2),
        ({"v": 0}, 67),
        ({"v": 3}, 67),
        ({"v": 1.5}, 2),
        ({"v": "2"}, 14),
        ({"unique": "yes"}, 14),
        ({"sparse": None}, 14),
        ({"hidden": {}}, 14),
        ({"unknown": 1}, 197),
        ({"collation": {}}, 2),
        ({"collation": "de"}, 14),
        ({"wildcardProjection": {"a": 1}}, 2),
        ({"wildcardProjection": 1}, 2),
        ({"weights": {"a": 1}}, 67),
        ({"prepareUnique": "x"}, 14),
        ({"partialFilterExpression": 1}, 14),
        ({"partialFilterExpression": {"a": 1}, "sparse": True}, 67),
        ({"partialFilterExpression": {"$nor": [{"a": 1}]}}, 67),
        ({"partialFilterExpression": {"$expr": {"$lt": ["$a", "$$NOW"]}}}, 224),
        ({"partialFilterExpression": {"$and": [{"$jsonSchema": {}}]}}, 224),
        ({"partialFilterExpression": {"a": {"$not": {"$gt": 1}}}}, 67),
        ({"partialFilterExpression": {"a": {"$ne": 1}}}, 67),
        ({"partialFilterExpression": {"a": {"$exists": False}}}, 67),
        ({"partialFilterExpression": {"a": Regex("^x")}}, 67),
        ({"partialFilterExpression": {"$and": [{"a": {"$gt": 1}}, {"b": {"$regex": "x"}}]}}, 67),
        ({"partialFilterExpression": {"a": {"$gt": 1, "$size": 1}}}, 67),
        ({"partialFilterExpression": {"a": {"$foo": 1}}}, 2),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], expected: int) -> None:
    assert code(**options) == expected


@pytest.mark.parametrize(
    "filter",
    [
        {},
        {"a": 1},
        {"a": {"b": 1}},
        {"a": {"$exists": True}},
        {"a": {"$gt": 1, "$lte": 5}},
        {"a": {"$in": [1, 2]}},
        {"a": {"$type": "string"}},
        {"$or": [{"a": 1}, {"$and": [{"b": {"$eq": 2}}]}]},
    ],
)
def test_filters_of_partial_indexes(filter: dict[str, Any]) -> None:
    assert listed(partialFilterExpression=filter)["partialFilterExpression"] == filter


def test_a_specification_needs_key_and_name() -> None:
    for spec in ({}, {"key": {"a": 1}}, {"name": "i"}):
        with pytest.raises(CommandError) as caught:
            parse_index_spec(bson.encode(spec))
        assert caught.value.code == 9


def test_unknown_options_can_be_ignored() -> None:
    spec = bson.encode({"key": {"a": 1}, "name": "i", "unknown": 1})
    assert bson.decode(parse_index_spec(spec, ignore_unknown=True).spec) == {"v": 2, "key": {"a": 1}, "name": "i"}


@pytest.mark.parametrize("name", ["_id_", "other"])
def test_the_id_index_is_always_the_same(name: str) -> None:
    descriptor = parse(key={"_id": 1.0}, name=name)
    assert descriptor.is_id
    assert bson.decode(descriptor.spec) == {"v": 2, "key": {"_id": 1}, "name": "_id_"}


@pytest.mark.parametrize("option", ["unique", "sparse", "hidden", "expireAfterSeconds", "background"])
def test_the_id_index_takes_no_options(option: str) -> None:
    assert code(key={"_id": 1}, **{option: True if option == "hidden" else 1}) == 197


# The date-field TTL of MongoDB.


@pytest.mark.parametrize(
    "value",
    [
        -1,
        -0.5,
        2147483648,
        Int64(2**40),
        float("inf"),
        float("nan"),
        "1",
        None,
        True,
        {},
        Decimal128("-1"),
        Decimal128("NaN"),
    ],
)
def test_date_ttl_out_of_range(value: Any) -> None:
    assert code(expireAfterSeconds=value) == 67


def test_ttl_indexes_have_one_field() -> None:
    assert code(key={"a": 1, "b": 1}, expireAfterSeconds=5) == 67
    assert code(key={"_id": -1}, expireAfterSeconds=5) == 2


# The default TTL of Cosmos DB: an index on `_ts`.


@pytest.mark.parametrize("value", [1, 10, -1, 2147483647, Int64(10), Int64(-1), 10.0, -1.0, 2147483647.0])
@pytest.mark.parametrize("direction", [1, -1, 1.0])
def test_a_ttl_on_ts_is_the_default_of_the_collection(value: Any, direction: Any) -> None:
    descriptor = parse(key={"_ts": direction}, name="_ts_1", expireAfterSeconds=value)
    assert descriptor.is_ttl_setting
    assert descriptor.default_ttl_s == int(value)
    assert descriptor.expire_after_s is None
    shown = bson.decode(descriptor.spec)["expireAfterSeconds"]
    assert shown == int(value)
    assert type(shown) is int


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 2),
        (0.0, 2),
        (-2, 2),
        (-0.5, 2),
        (20.5, 2),
        (2147483648, 2),
        (Int64(2147483648), 2),
        (float("nan"), 2),
        (float("inf"), 2),
        (float("-inf"), 2),
        (Decimal128("10"), 14),
        ("10", 14),
        (True, 14),
        (None, 14),
        ([10], 14),
        ({}, 14),
    ],
)
def test_values_that_are_no_default(value: Any, expected: int) -> None:
    assert code(key={"_ts": 1}, name="_ts_1", expireAfterSeconds=value) == expected


@pytest.mark.parametrize(
    "options",
    [
        {"key": {"_ts": 1, "a": 1}},
        {"key": {"a": 1, "_ts": 1}},
        {"key": {"_ts": "hashed"}},
        {"key": {"_ts": 1}, "unique": True},
        {"key": {"_ts": 1}, "sparse": True},
        {"key": {"_ts": 1}, "partialFilterExpression": {"a": 1}},
    ],
)
def test_forms_of_ts_indexes_that_cannot_have_a_ttl(options: dict[str, Any]) -> None:
    assert code(**options, expireAfterSeconds=10) == 67


def test_an_index_on_ts_without_ttl_is_an_ordinary_one() -> None:
    descriptor = parse(key={"_ts": 1}, name="_ts_1")
    assert not descriptor.is_ttl_setting
    assert descriptor.default_ttl_s == NO_TTL


# How two indexes compare.


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({}, {}, IDENTICAL),
        ({}, {"key": {"a": 1.0}}, IDENTICAL),
        ({}, {"name": "other"}, IDENTICAL),
        ({}, {"hidden": True}, IDENTICAL),
        ({}, {"background": True}, IDENTICAL),
        ({}, {"key": {"a": -1}}, DIFFERENT),
        ({}, {"key": {"b": 1}}, DIFFERENT),
        ({"key": {"a": 1, "b": 1}}, {"key": {"b": 1, "a": 1}}, DIFFERENT),
        ({}, {"key": {"a": 1, "b": 1}}, DIFFERENT),
        ({}, {"unique": True}, DIFFERENT),
        ({}, {"sparse": True}, DIFFERENT),
        ({}, {"partialFilterExpression": {"b": 1}}, DIFFERENT),
        ({"partialFilterExpression": {"b": 1}}, {"partialFilterExpression": {"b": 1.0}}, IDENTICAL),
        ({"partialFilterExpression": {"b": 1}}, {"partialFilterExpression": {"b": 2}}, DIFFERENT),
        ({}, {"expireAfterSeconds": 5}, EQUIVALENT),
        ({"expireAfterSeconds": 5}, {"expireAfterSeconds": 6}, EQUIVALENT),
        ({"key": {"_ts": 1}, "expireAfterSeconds": 5}, {"key": {"_ts": 1}, "expireAfterSeconds": 6}, EQUIVALENT),
        ({"key": {"_ts": 1}, "expireAfterSeconds": 5}, {"key": {"_ts": 1}, "expireAfterSeconds": 5.0}, IDENTICAL),
        ({"key": {"_ts": 1}, "expireAfterSeconds": 5}, {"key": {"_ts": 1}}, EQUIVALENT),
    ],
)
def test_index_specs_are_identical_equivalent_or_in_conflict(
    first: dict[str, Any], second: dict[str, Any], expected: int
) -> None:
    assert parse(**first).compared_with(parse(**second)) == expected
    assert parse(**second).compared_with(parse(**first)) == expected


# `idIndex` of create.


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, 9),
        ({"name": "_id_"}, 9),
        ({"key": {"_id": 1}}, 9),
        ({"key": 1, "name": "_id_"}, 14),
        ({"key": {"_id": 1}, "name": 1}, 14),
        ({"key": {"_id": 1}, "name": ""}, 67),
        ({"key": {"a": 1}, "name": "_id_"}, 2),
        ({"key": {"_id": -1}, "name": "_id_"}, 2),
        ({"key": {"_id": "hashed"}, "name": "_id_"}, 2),
        ({"key": {"_id": 1, "a": 1}, "name": "_id_"}, 2),
        ({"key": {"_id": 1}, "name": "_id_", "unique": True}, 197),
        ({"key": {"_id": 1}, "name": "_id_", "v": 3}, 67),
    ],
)
def test_id_index_spec_refuses_other_keys_and_options(spec: dict[str, Any], expected: int) -> None:
    with pytest.raises(CommandError) as caught:
        check_id_index_spec(bson.encode(spec), None)
    assert caught.value.code == expected


def test_id_index_spec_accepts_version_2() -> None:
    check_id_index_spec(bson.encode({"key": {"_id": 1}, "name": "_id_", "v": 2}), None)
