"""`$lookup` by an indexed field gives what it gives without an index, value for value."""

import datetime
from collections.abc import Iterator
from typing import Any

import pymongo
import pytest
from bson import Decimal128, Int64, ObjectId, Regex
from pymongo.database import Database

import mongottl
from tests.on_nodes import own_parameters

Documents = dict[str, Any]
OID = ObjectId("5914d2805a2fc0de00000001")
VALUES: list[Any] = [
    1,
    1.0,
    Int64(1),
    Decimal128("1"),
    2.5,
    float("nan"),
    "a",
    "",
    True,
    OID,
    datetime.datetime(2026, 1, 1),
    None,
    [1, 2],
    ["a", [1]],
    [],
    {"x": 1},
    Regex("a"),
]

LOOKUP = {"$lookup": {"from": "inner", "localField": "v", "foreignField": "v", "as": "found"}}


def joined(database: Database[Documents]) -> dict[Any, list[Any]]:
    found = database.outer.aggregate([LOOKUP])
    return {document["_id"]: sorted((each["_id"] for each in document["found"]), key=str) for document in found}


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ({"v": 1}, {}),
        ({"v": -1}, {}),
        ({"v": 1, "w": 1}, {}),
        ({"v": 1}, {"sparse": True}),
        ({"v": 1}, {"partialFilterExpression": {"w": 1}}),
        ({"v": 1}, {"collation": {"locale": "en", "strength": 2}}),
        ({"v": 1}, {"hidden": True}),
    ],
)
def test_as_without_an_index(database: Database[Documents], key: Documents, options: Documents) -> None:
    database.inner.insert_many([{"_id": i, "v": value, "w": i % 2} for i, value in enumerate(VALUES)])
    database.inner.insert_many([{"_id": "A", "v": "A"}, {"_id": "none"}])
    database.outer.insert_many([{"_id": i, "v": value} for i, value in enumerate(VALUES)])
    database.outer.insert_one({"_id": "none"})
    expected = joined(database)
    try:
        database.inner.create_index(list(key.items()), **options)
    except pymongo.errors.OperationFailure:
        pytest.skip("no collations here")
    assert joined(database) == expected


def test_through_an_array_on_the_way(database: Database[Documents]) -> None:
    database.inner.insert_many(
        [{"_id": 1, "a": [{"b": 1}, {"b": 2}]}, {"_id": 2, "a": {"b": 2}}, {"_id": 3, "a": [[{"b": 2}]]}]
    )
    database.outer.insert_one({"_id": 1, "v": 2})
    stage = {"$lookup": {**LOOKUP["$lookup"], "foreignField": "a.b"}}
    expected = [[each["_id"] for each in document["found"]] for document in database.outer.aggregate([stage])]
    database.inner.create_index("a.b")
    assert [[each["_id"] for each in document["found"]] for document in database.outer.aggregate([stage])] == expected


def test_many_documents_of_one_value(database: Database[Documents]) -> None:
    database.inner.insert_many([{"_id": i, "v": 7} for i in range(500)])
    database.inner.create_index("v")
    database.outer.insert_many([{"_id": i, "v": 7 if i % 3 else i} for i in range(30)])
    assert [len(found) for found in joined(database).values()] == [500 if i % 3 else 0 for i in range(30)]


@pytest.fixture
def ttl_server() -> Iterator[mongottl.RunningServer]:
    with mongottl.start_server() as running:
        yield running


@own_parameters
def test_expired_documents_are_not_joined(ttl_server: mongottl.RunningServer) -> None:
    with pymongo.MongoClient[Documents](ttl_server.uri) as client:
        database = client.ttl
        client.admin.command({"setParameter": 1, "ttlMonitorEnabled": False})
        database.inner.create_index("_ts", expireAfterSeconds=100)
        database.inner.create_index("v")
        database.inner.insert_many([{"_id": 1, "v": 1}, {"_id": 2, "v": 1, "ttl": 10}, {"_id": 3, "v": 1, "ttl": -1}])
        database.outer.insert_one({"_id": 1, "v": 1})
        assert joined(database) == {1: [1, 2, 3]}
        ttl_server.clock.advance(10)
        assert joined(database) == {1: [1, 3]}
        ttl_server.clock.advance(90)
        assert joined(database) == {1: [3]}
