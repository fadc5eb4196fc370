"""`$queryStats`: what queries leave in it, by shape."""

import base64
import hashlib
import hmac
from collections.abc import Iterator
from typing import Any

import bson
import pymongo
import pytest
from bson import Binary
from pymongo.database import Database

import mongottl
from tests.drivers.refusals import refusal
from tests.on_nodes import own_statistics

pytestmark = own_statistics

Documents = dict[str, Any]
Client = pymongo.MongoClient[Documents]


@pytest.fixture
def recorded(client: Client, database: Database[Documents]) -> Iterator[Database[Documents]]:
    """A database with ten documents, in which every query is recorded."""
    database.c.insert_many([{"_id": n, "a": n, "b": n % 3} for n in range(10)])
    client.admin.command({"setParameter": 1, "internalQueryStatsRateLimit": -1})
    yield database
    client.admin.command({"setParameter": 1, "internalQueryStatsRateLimit": 0})
    client.admin.command({"setParameter": 1, "internalQueryStatsCacheSize": "0%"})
    client.admin.command({"setParameter": 1, "internalQueryStatsCacheSize": "1%"})


def entries(database: Database[Documents], command: str, **options: Any) -> list[Documents]:
    """The entries of a command, but for those of `$queryStats` itself."""
    found = database.client.admin.aggregate([{"$queryStats": options}])
    shapes = [(entry["key"]["queryShape"], entry) for entry in found]
    of_itself: list[Documents] = [{"$queryStats": {}}]
    return [e for shape, e in shapes if shape["command"] == command and shape.get("pipeline") != of_itself]


def test_nothing_is_recorded_unless_the_rate_allows(client: Client, database: Database[Documents]) -> None:
    database.c.find_one({"a": 1})
    assert entries(database, "find") == []


def test_queries_of_one_shape_share_an_entry(recorded: Database[Documents]) -> None:
    for least in (3, 6):
        assert len(list(recorded.c.find({"a": {"$gte": least}, "b": {"$lt": 9}}).sort("a", -1))) == 10 - least
    (entry,) = entries(recorded, "find")
    assert entry["key"]["queryShape"] == {
        "cmdNs": {"db": recorded.name, "coll": "c"},
        "command": "find",
        "filter": {"$and": [{"a": {"$gte": "?number"}}, {"b": {"$lt": "?number"}}]},
        "sort": {"a": -1},
    }
    assert entry["key"]["collectionType"] == "collection"
    assert entry["key"]["client"]["driver"]["name"].startswith("PyMongo")
    metrics = entry["metrics"]
    assert metrics["execCount"] == 2
    returned = metrics["docsReturned"]
    assert (returned["sum"], returned["max"], returned["min"]) == (11, 7, 4)
    assert str(returned["sumOfSquares"]) == "65"
    assert (metrics["docsExamined"]["sum"], metrics["keysExamined"]["sum"]) == (20, 0)
    assert metrics["hasSortStage"] == {"true": 2, "false": 0}
    assert metrics["totalExecMicros"] == metrics["firstResponseExecMicros"]
    assert metrics["firstSeenTimestamp"] <= metrics["latestSeenTimestamp"]
    explained = recorded.command(
        {"explain": {"find": "c", "filter": {"a": {"$gte": 3}, "b": {"$lt": 9}}, "sort": {"a": -1}}}
    )
    assert entry["queryShapeHash"] == explained["queryShapeHash"]


def test_a_cursor_is_one_execution(recorded: Database[Documents]) -> None:
    assert len(list(recorded.c.find({}, batch_size=4))) == 10
    (entry,) = entries(recorded, "find")
    assert entry["metrics"]["execCount"] == 1
    assert entry["metrics"]["docsReturned"]["sum"] == 10
    assert entry["metrics"]["docsExamined"]["sum"] == 10
    assert entry["key"]["batchSize"] == "?number"


def test_a_cursor_is_recorded_when_it_is_closed(recorded: Database[Documents]) -> None:
    cursor = recorded.c.find({}, batch_size=4)
    next(cursor)
    assert entries(recorded, "find") == []
    cursor.close()
    (entry,) = entries(recorded, "find")
    assert entry["metrics"]["docsReturned"]["sum"] == 4


def test_aggregate_distinct_and_count_are_recorded(recorded: Database[Documents]) -> None:
    list(recorded.c.aggregate([{"$match": {"a": 3}}, {"$group": {"_id": "$b", "n": {"$sum": 1}}}]))
    recorded.c.distinct("a", {"b": 1})
    recorded.command("count", "none", query={"b": "x"})
    recorded.command({"aggregate": 1, "pipeline": [{"$documents": [{"a": 1}]}], "cursor": {}})
    aggregates = {entry["key"]["collectionType"]: entry for entry in entries(recorded, "aggregate")}
    assert aggregates["collection"]["key"]["queryShape"]["pipeline"] == [
        {"$match": {"a": {"$eq": "?number"}}},
        {"$group": {"_id": "$b", "n": {"$sum": "?number"}}},
    ]
    assert aggregates["collection"]["metrics"]["docsReturned"]["sum"] == 1
    assert "virtual" in aggregates
    (distinct,) = entries(recorded, "distinct")
    assert distinct["key"]["queryShape"]["key"] == "a"
    (count,) = entries(recorded, "count")
    assert count["key"]["queryShape"]["query"] == {"b": {"$eq": "?string"}}
    assert count["key"]["collectionType"] == "nonExistent"


def test_names_are_replaced_by_their_hmac(recorded: Database[Documents]) -> None:
    def hashed(name: str) -> str:
        return base64.b64encode(hmac.digest(b"secret", name.encode(), "sha256")).decode()

    list(recorded.c.find({"a.b": {"$gt": 3}}))
    transform = {"algorithm": "hmac-sha-256", "hmacKey": Binary(b"secret", 8)}
    (entry,) = entries(recorded, "find", transformIdentifiers=transform)
    shape = entry["key"]["queryShape"]
    assert shape["cmdNs"] == {"db": hashed(recorded.name), "coll": hashed("c")}
    assert shape["filter"] == {f"{hashed('a')}.{hashed('b')}": {"$gt": "?number"}}


def test_the_shapes_recorded_longest_ago_go_first(client: Client, recorded: Database[Documents]) -> None:
    client.admin.command({"setParameter": 1, "internalQueryStatsCacheSize": "16KB"})
    for name in "defghijklmnop":
        list(recorded.c.find({name: 1}))
    kept = [next(iter(entry["key"]["queryShape"]["filter"])) for entry in entries(recorded, "find")]
    assert 0 < len(kept) < 13
    assert kept == list("defghijklmnop")[-len(kept) :]


@pytest.mark.parametrize(
    ("database_name", "target", "argument", "code"),
    [
        ("test", 1, {}, 73),
        ("admin", "c", {}, 73),
        ("admin", 1, 1, 9),
        ("admin", 1, {"other": 1}, 40415),
        ("admin", 1, {"transformIdentifiers": 1}, 14),
        ("admin", 1, {"transformIdentifiers": {"hmacKey": b"x"}}, 40414),
        ("admin", 1, {"transformIdentifiers": {"algorithm": "hmac-sha-256"}}, 9),
        ("admin", 1, {"transformIdentifiers": {"algorithm": "hmac-sha-256", "hmacKey": "x"}}, 14),
        ("admin", 1, {"transformIdentifiers": {"algorithm": 1, "hmacKey": b"x"}}, 14),
        ("admin", 1, {"transformIdentifiers": {"algorithm": "hmac-sha-256", "hmacKey": b"x", "other": 1}}, 40415),
        ("test", 1, {"transformIdentifiers": {"algorithm": "md5", "hmacKey": b"x"}}, 2),
        ("admin", 1, {"transformIdentifiers": {"algorithm": "md5", "hmacKey": b"x"}}, 2),
    ],
    ids=str,
)
def test_query_stats_refuses_invalid_arguments(
    client: Client, database_name: str, target: Any, argument: Any, code: int
) -> None:
    command = {"aggregate": target, "pipeline": [{"$queryStats": argument}], "cursor": {}}
    assert refusal(client[database_name], command) == code


@pytest.mark.parametrize(
    ("name", "value"),
    [("RateLimit", -2), ("RateLimit", "1"), ("CacheSize", "x"), ("CacheSize", "101%"), ("CacheSize", 5)],
)
def test_settings_are_checked(client: Client, name: str, value: Any) -> None:
    assert refusal(client.admin, {"setParameter": 1, f"internalQueryStats{name}": value}) == 2


def test_the_kinds_of_collections(recorded: Database[Documents]) -> None:
    recorded.create_collection("v", viewOn="c", pipeline=[{"$match": {"hidden": 1}}])
    recorded.create_collection("t", timeseries={"timeField": "at"})
    for name in ("c", "v", "t", "none"):
        list(recorded[name].find({"k": 1}))
    with recorded.c.watch(max_await_time_ms=1):
        pass
    found = {entry["key"]["queryShape"]["cmdNs"]["coll"]: entry["key"] for entry in entries(recorded, "find")}
    kinds = {"c": "collection", "v": "view", "t": "timeseries", "none": "nonExistent"}
    assert {name: key["collectionType"] for name, key in found.items()} == kinds
    assert found["v"]["queryShape"]["filter"] == {"k": {"$eq": "?number"}}  # not the view's pipeline
    [stream] = entries(recorded, "aggregate")
    assert stream["key"]["collectionType"] == "changeStream"


def test_each_command_of_a_change_stream_is_an_execution(recorded: Database[Documents]) -> None:
    with recorded.c.watch(max_await_time_ms=1) as stream:
        assert stream.try_next() is None
        recorded.c.insert_one({"_id": 10})
        assert stream.try_next() is not None
    [entry] = entries(recorded, "aggregate")
    assert entry["metrics"]["execCount"] >= 3
    assert entry["metrics"]["docsReturned"]["sum"] == 1
    assert entry["metrics"]["totalExecMicros"] == entry["metrics"]["firstResponseExecMicros"]


def test_options_are_part_of_the_key(recorded: Database[Documents]) -> None:
    for size in (0, 5, 6):
        list(recorded.c.find({"a": 1}, batch_size=size, comment="why" if size else None))
    keys = [entry["key"] for entry in entries(recorded, "find")]
    assert [key.get("batchSize") for key in keys] == [None, "?number"]
    assert [key.get("comment") for key in keys] == [None, "?string"]
    assert {entry["keyHash"] for entry in entries(recorded, "find")} == {
        base64.b64encode(hashlib.sha256(bson.encode(key)).digest()).decode() for key in keys
    }
    assert len({entry["queryShapeHash"] for entry in entries(recorded, "find")}) == 1


def test_a_sort_that_an_index_serves_is_no_sort_stage(recorded: Database[Documents]) -> None:
    recorded.c.create_index("a")
    list(recorded.c.find({"a": {"$gt": 1}}).sort("a", 1))
    list(recorded.c.aggregate([{"$match": {"a": {"$gt": 1}}}, {"$sort": {"a": 1}}]))
    list(recorded.c.aggregate([{"$group": {"_id": "$b"}}, {"$sort": {"_id": 1}}]))
    sorts = [entry["metrics"]["hasSortStage"] for entry in entries(recorded, "find") + entries(recorded, "aggregate")]
    assert sorts == [{"true": 0, "false": 1}, {"true": 0, "false": 1}, {"true": 1, "false": 0}]


def test_commands_without_query_stats(recorded: Database[Documents]) -> None:
    """What fails, what explains, what writes, and what is too long to be described."""
    assert refusal(recorded, {"find": "c", "filter": {"$no": 1}}) == 2
    recorded.command({"explain": {"find": "c"}})
    recorded.command({"aggregate": "c", "pipeline": [], "explain": True})
    recorded.c.update_many({"a": 1}, {"$set": {"c": 1}})
    assert list(recorded.c.find({"a": "x" * (1 << 20)})) == []
    assert [e for command in ("find", "aggregate", "update") for e in entries(recorded, command)] == []
    assert recorded.client.admin.command("serverStatus")["metrics"]["queryStats"]["numQueryStatsStoreWriteErrors"] == 1


def test_memory_is_bounded(recorded: Database[Documents]) -> None:
    """What is used again stays, what was used longest ago goes, and `serverStatus` counts both."""
    admin = recorded.client.admin
    before = admin.command("serverStatus")["metrics"]["queryStats"]
    admin.command({"setParameter": 1, "internalQueryStatsCacheSize": "32KB"})
    for number in range(40):
        list(recorded.c.find({f"field{number}": 1}))
        list(recorded.c.find({"often": 1}))
    statistics = admin.command("serverStatus")["metrics"]["queryStats"]
    assert 0 < statistics["queryStatsStoreSizeEstimateBytes"] <= 32 << 10
    kept = {next(iter(e["key"]["queryShape"]["filter"])): e["metrics"]["execCount"] for e in entries(recorded, "find")}
    assert (kept["often"], kept["field39"]) == (40, 1)
    assert statistics["numEvicted"] - before["numEvicted"] == 41 - len(kept) > 0


@pytest.mark.parametrize(
    "pipeline",
    [
        [{"$match": {}}, {"$queryStats": {}}],
        [{"$documents": [{"a": 1}]}, {"$queryStats": {}}],
        [{"$documents": [{"a": 1}]}, {"$facet": {"x": [{"$queryStats": {}}]}}],
        [{"$documents": [{"a": 1}]}, {"$lookup": {"from": "c", "pipeline": [{"$queryStats": {}}], "as": "x"}}],
        [{"$documents": [{"a": 1}]}, {"$unionWith": {"coll": "c", "pipeline": [{"$queryStats": {}}]}}],
    ],
    ids=str,
)
def test_query_stats_stage_must_be_first_in_the_outer_pipeline(client: Client, pipeline: list[Documents]) -> None:
    assert refusal(client.admin, {"aggregate": 1, "pipeline": pipeline, "cursor": {}}) in (73, 40600, 40602)


def test_query_stats_is_refused_in_transactions_and_views(client: Client, database: Database[Documents]) -> None:
    with client.start_session() as session:
        session.start_transaction()
        command = {"aggregate": 1, "pipeline": [{"$queryStats": {}}], "cursor": {}}
        assert refusal(client.admin, command, session=session) == 263
        session.abort_transaction()
    assert refusal(database, {"create": "v", "viewOn": "c", "pipeline": [{"$queryStats": {}}]}) == 73
    majority = {"aggregate": 1, "pipeline": [{"$queryStats": {}}], "cursor": {}, "readConcern": {"level": "majority"}}
    assert refusal(client.admin, majority) == 72


def test_later_stages_read_its_documents(recorded: Database[Documents]) -> None:
    list(recorded.c.find({"a": 1}))
    pipeline: list[Documents] = [
        {"$queryStats": {}},
        {"$match": {"key.queryShape.cmdNs.coll": "c"}},
        {"$group": {"_id": "$key.queryShape.command", "n": {"$sum": "$metrics.execCount"}}},
    ]
    assert list(recorded.client.admin.aggregate(pipeline)) == [{"_id": "find", "n": 1}]


def test_query_stats_needs_mongodb_6_0_and_is_refused_by_cosmos(account: Client) -> None:
    command = {"aggregate": 1, "pipeline": [{"$queryStats": {}}], "cursor": {}}
    assert refusal(account.admin, command) in (40324, 115)
    for version, code in (("5.0", 40324), ("6.0", 0)):
        with (
            mongottl.start_server(server_version=version) as server,
            pymongo.MongoClient[Documents](server.uri) as client,
        ):
            assert refusal(client.admin, command) == code
