"""explain of a find in the dialect `cosmos`.

As Microsoft's "Troubleshoot query issues when using Azure Cosmos DB for MongoDB" shows it for 3.6, and as an account of
2023 is recorded to have answered.
"""

import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import bson
import pymongo
import pytest
from bson import Int64
from pymongo.collection import Collection

import mongottl
from tests.drivers.wire_client import WireClient
from tests.on_nodes import own_account, own_units

Documents = dict[str, Any]
Client = pymongo.MongoClient[Documents]
NO_PATHS: Documents = {"individualIndexes": [], "compoundIndexes": []}


@pytest.fixture
def orders(account: Client) -> Iterator[Collection[Documents]]:
    account.shop.command({"shardCollection": "shop.sharded", "key": {"k": "hashed"}})
    account.shop.sharded.insert_many([{"_id": n, "k": n % 2} for n in range(4)])
    orders = account.shop.orders
    orders.insert_many([{"_id": n, "a": n % 4, "b": {"c": n}, "filler": "x" * 100} for n in range(40)])
    orders.create_index("a")
    orders.create_index([("d", 1), ("e", 1)])
    orders.create_index("b.$**")
    yield orders


def stage_of(collection: Collection[Documents], filter: Documents, **options: Any) -> Documents:
    """The only stage of an explained find."""
    reply = collection.database.command({"explain": {"find": collection.name, "filter": filter, **options}})
    (stage,) = reply["stages"]
    assert isinstance(stage, dict)
    return stage


@own_units
def test_a_query(orders: Collection[Documents]) -> None:
    reply = orders.find({"a": 3, "z": {"$exists": False}}).explain()
    assert list(reply) == [
        "command",
        "stages",
        "estimatedDelayFromRateLimitingInMilliseconds",
        "retriedDueToRateLimiting",
        "totalRequestCharge",
        "continuation",
        "ActivityId",
        "ok",
    ]
    find = "{ 'find' : 'orders', 'filter' : { 'a' : 3, 'z' : { '$exists' : false } } }"
    assert reply["command"].startswith(f"db.runCommand({{explain: {find[:-2]}")
    assert (reply["continuation"], uuid.UUID(reply["ActivityId"]).version) == ({"hasMore": False}, 4)
    (stage,) = reply["stages"]
    size = sum(len(bson.encode(order)) for order in orders.find({"a": 3}))
    assert (stage["stage"], stage["in"], stage["out"]) == ("$query", 10, 10)
    assert stage["dependency"] == {"getNextPageCount": 1, "count": 1, "time": 0.0, "bytes": size}
    details = stage["details"]
    assert (details["database"], details["collection"]) == ("shop", "orders")
    assert details["query"] == {"a": 3, "z": {"$exists": False}}
    assert details["indexUsage"] == {
        "pathsIndexed": {"individualIndexes": ["a"], "compoundIndexes": []},
        "pathsNotIndexed": {"individualIndexes": ["z"], "compoundIndexes": []},
    }
    (shard,) = details["shardInformation"]
    assert (shard["outputDocumentCount"], shard["retrievedDocumentCount"]) == (10, 10)
    metrics = details["queryMetrics"]
    assert (metrics["retrievedDocumentSizeBytes"], metrics["outputDocumentSizeBytes"]) == (size, size)
    assert metrics["indexHitRatio"] == 1.0
    list(orders.find({"a": 3, "z": {"$exists": False}}))
    assert reply["totalRequestCharge"] == orders.database.command("getLastRequestStatistics")["RequestCharge"]


@pytest.mark.parametrize(
    ("filter", "indexed", "not_indexed", "loaded"),
    [
        ({}, [], [], 40),
        ({"z": 1}, [], ["z"], 40),
        ({"$or": [{"a": 1}, {"z": {"$not": {"$gt": 2}}}, {"a": 2}]}, ["a"], ["z"], 40),
        ({"_id": {"$in": [1, 2]}}, ["_id"], [], 2),
        ({"_id": 1, "a": 1}, ["_id", "a"], [], 1),
        ({"b.c": 5}, ["b.c"], [], 1),
        # Microsoft's page: for filters a compound index is as good as an index on each of its fields.
        ({"e": 1, "d": 1}, ["e", "d"], [], 0),
    ],
)
def test_paths_with_an_index(
    orders: Collection[Documents], filter: Documents, indexed: list[str], not_indexed: list[str], loaded: int
) -> None:
    details = stage_of(orders, filter)["details"]
    assert details["indexUsage"]["pathsIndexed"] == {**NO_PATHS, "individualIndexes": indexed}
    assert details["indexUsage"]["pathsNotIndexed"] == {**NO_PATHS, "individualIndexes": not_indexed}
    assert details["queryMetrics"]["retrievedDocumentCount"] == loaded


@pytest.mark.parametrize(
    ("name", "filter", "item"),
    [
        ("orders", {"_id": 5}, {"id": 5}),
        ("orders", {"_id": 500}, {"id": 500}),
        ("orders", {"_id": {"$gt": 5}}, None),
        ("orders", {"_id": 5, "a": 1}, None),
        ("sharded", {"_id": 1, "k": 1}, {"id": 1, "shardKey": 1}),
        ("sharded", {"k": {"$eq": 1}, "_id": 1}, {"id": 1, "shardKey": 1}),
        ("sharded", {"_id": 1}, None),
    ],
)
def test_point_lookups(orders: Collection[Documents], name: str, filter: Documents, item: Documents | None) -> None:
    stage = stage_of(orders.database[name], filter)
    if item is None:
        assert stage["stage"] == "$query"
    else:
        assert stage["stage"] == "$pointLookup"
        assert stage["details"] == {"database": "shop", "collection": name, "items": [item]}
        charge = orders.database.command({"explain": {"find": name, "filter": filter}})["totalRequestCharge"]
        assert charge == 1.0


def test_a_limit_and_a_missing_collection(orders: Collection[Documents]) -> None:
    assert stage_of(orders, {}, limit=3, skip=1)["out"] == 3
    assert stage_of(orders.database.missing, {"a": 1})["out"] == 0


@own_account
def test_other_commands_and_what_is_allowed(account: Client, orders: Collection[Documents]) -> None:
    """No source shows what explain tells of other commands: they are as in MongoDB."""
    explained = orders.database.command({"explain": {"count": "orders", "query": {"a": 1}}})
    assert explained["queryPlanner"]["namespace"] == "shop.orders"
    account.admin.command("configureCosmos", {"allow": ["missing-features"]})
    assert "queryPlanner" in orders.find({"a": 1}).explain()


def test_3_6() -> None:
    with (
        mongottl.start_server(dialect="cosmos", server_version="3.6") as server,
        closing(WireClient(server.uri)) as client,
    ):
        client.command({"insert": "c", "documents": [{"_id": n, "a": n} for n in range(3)]})
        reply = client.command({"explain": {"find": "c", "filter": {"a": 1, "_id": {"$gt": 0}}}})
        assert list(reply) == ["stages", "estimatedDelayFromRateLimitingInMilliseconds", "continuation", "ok"]
        (stage,) = reply["stages"]
        assert list(stage) == ["stage", "timeInclusiveMS", "timeExclusiveMS", "in", "out", "details"]
        details = stage["details"]
        assert details["query"] == {"$and": [{"a": {"$eq": 1}}, {"_id": {"$gt": 0}}]}
        assert (details["pathsIndexed"], details["pathsNotIndexed"]) == (["_id"], ["a"])
        assert details["shardInformation"][0]["shardKeyRangeId"] == "0"
        assert client.command({"explain": {"find": "c", "filter": {"_id": Int64(1)}}})["stages"][0]["out"] == 1
