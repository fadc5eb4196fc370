"""PyMongo, in every way in which it connects, over a real socket."""

import os
import threading
import uuid
import zlib
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pymongo
import pytest
import trio
from bson import Binary, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.raw_bson import RawBSONDocument
from bson.son import SON
from pymongo import DeleteMany, DeleteOne, InsertOne, ReplaceOne, UpdateMany, UpdateOne, monitoring
from pymongo.cursor import CursorType
from pymongo.database import Database
from pymongo.errors import (
    BulkWriteError,
    DuplicateKeyError,
    OperationFailure,
    ServerSelectionTimeoutError,
)
from pymongo.write_concern import WriteConcern

import mongottl
from mongottl.config import ServerConfig
from tests.drivers.refusals import refusal
from tests.on_nodes import alone, no_balancer, of_replica_set, own_cursors
from tests.waiting import until

WAYS = {
    "plain": "mongodb://127.0.0.1:{port}/",
    "replica set": "mongodb://127.0.0.1:{port}/?replicaSet=globaldb",
    "direct": "mongodb://127.0.0.1:{port}/?directConnection=true",
    "localhost": "mongodb://localhost:{port}/",
    "localhost, replica set": "mongodb://localhost:{port}/?replicaSet=globaldb",
    "no retries": "mongodb://127.0.0.1:{port}/?retryWrites=false&retryReads=false",
    "stable API": "mongodb://127.0.0.1:{port}/",
}


class Commands(monitoring.CommandListener):
    """The commands that failed."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        pass

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        self.failures.append(event.command_name)


class Heartbeats(monitoring.ServerHeartbeatListener):
    """What a client's monitor sees. awaited: for each heartbeat, whether the server was to wait for a change."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.awaited: list[bool] = []

    def started(self, event: monitoring.ServerHeartbeatStartedEvent) -> None:
        pass

    def succeeded(self, event: monitoring.ServerHeartbeatSucceededEvent) -> None:
        self.awaited.append(event.awaited)

    def failed(self, event: monitoring.ServerHeartbeatFailedEvent) -> None:
        self.failures.append(event.reply)


@pytest.fixture(params=list(WAYS))
def way(request: pytest.FixtureRequest, server: mongottl.RunningServer) -> Iterator[Database[dict[str, Any]]]:
    """A database, reached in one of the ways in which clients connect."""
    options: dict[str, Any] = {"server_api": pymongo.server_api.ServerApi("1")} if request.param == "stable API" else {}
    uri = WAYS[request.param].format(port=server.port)
    with pymongo.MongoClient[dict[str, Any]](uri, **options) as connected:
        name = f"way_{uuid.uuid4().hex[:12]}"
        yield connected[name]
        connected.drop_database(name)


@of_replica_set
def test_crud(way: Database[dict[str, Any]]) -> None:
    things = way.things
    assert things.insert_one({"_id": 1, "a": 1}).inserted_id == 1
    assert things.insert_many([{"_id": n, "a": n} for n in range(2, 6)]).inserted_ids == [2, 3, 4, 5]
    assert things.find_one({"_id": 3}) == {"_id": 3, "a": 3}
    assert [d["_id"] for d in things.find({"a": {"$gt": 2}}).sort("a", -1).skip(1).limit(2)] == [4, 3]
    assert things.find({}, {"a": 1, "_id": 0}).sort("_id", 1).to_list(1) == [{"a": 1}]
    assert things.update_one({"_id": 1}, {"$inc": {"a": 10}}).modified_count == 1
    assert things.update_many({"a": {"$lt": 5}}, {"$set": {"b": True}}).matched_count == 3
    upserted = things.update_one({"_id": 9}, {"$set": {"a": 9}}, upsert=True)
    assert (upserted.matched_count, upserted.upserted_id) == (0, 9)
    assert things.replace_one({"_id": 9}, {"a": 99}).modified_count == 1
    assert things.find_one_and_update({"_id": 9}, {"$set": {"a": 1}}) == {"_id": 9, "a": 99}
    assert things.find_one_and_replace({"_id": 9}, {"a": 2}, return_document=pymongo.ReturnDocument.AFTER) == {
        "_id": 9,
        "a": 2,
    }
    assert things.find_one_and_delete({"_id": 9}) == {"_id": 9, "a": 2}
    assert things.count_documents({}) == 5
    assert things.estimated_document_count() == 5
    assert sorted(things.distinct("a")) == [2, 3, 4, 5, 11]
    assert things.delete_one({"_id": 1}).deleted_count == 1
    assert things.delete_many({}).deleted_count == 4


def test_cursor_over_several_batches(database: Database[dict[str, Any]]) -> None:
    database.many.insert_many({"_id": n} for n in range(1000))
    found = [d["_id"] for d in database.many.find(batch_size=7)]
    assert found == list(range(1000))
    assert [d["_id"] for d in database.many.aggregate([{"$match": {"_id": {"$lt": 500}}}], batchSize=11)] == found[:500]


def test_default_batches(database: Database[dict[str, Any]]) -> None:
    database.many.insert_many({"_id": n} for n in range(250))
    cursor = database.many.find()
    next(cursor)
    assert cursor.cursor_id  # 101 documents in the first batch
    assert len(list(cursor)) == 249
    assert cursor.cursor_id == 0


@own_cursors
def test_closed_cursor_is_closed_on_the_server(
    database: Database[dict[str, Any]], client: "pymongo.MongoClient[dict[str, Any]]"
) -> None:
    database.many.insert_many({"_id": n} for n in range(100))
    cursor = database.many.find(batch_size=2)
    next(cursor)
    status = client.admin.command("serverStatus")["metrics"]["cursor"]
    assert status["open"]["total"] == 1
    cursor.close()
    assert client.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"] == 0


def test_exhaust_cursor(server: mongottl.RunningServer, database: Database[dict[str, Any]]) -> None:
    database.many.insert_many({"_id": n} for n in range(1000))
    with pymongo.MongoClient[dict[str, Any]](server.uri) as other:
        listener = Commands()
        cursor = other.get_database(database.name).many.find(cursor_type=CursorType.EXHAUST, batch_size=10)
        assert [d["_id"] for d in cursor] == list(range(1000))
        # The connection is of use again afterwards.
        assert other.admin.command("ping")["ok"] == 1.0
    with pymongo.MongoClient[dict[str, Any]](server.uri, event_listeners=[listener]) as other:
        left = other.get_database(database.name).many.find(cursor_type=CursorType.EXHAUST, batch_size=10)
        assert [next(left)["_id"] for _ in range(25)] == list(range(25))
        left.close()
    assert listener.failures == []


def test_all_types_come_back_as_they_were(database: Database[dict[str, Any]]) -> None:
    document = {
        "_id": ObjectId(),
        "double": 1.5,
        "minus zero": -0.0,
        "int": 7,
        "long": Int64(7),
        "decimal": Decimal128("1.10"),
        "text": "žluťoučký 🐎",
        "document": {"b": 1, "a": [1, {"x": None}]},
        "binary": Binary(b"\0\1", 128),
        "uuid": Binary.from_uuid(uuid.UUID(int=5)),
        "date": datetime(2026, 1, 2, 3, 4, 5, 678000),
        "regex": Regex("^a", "ix"),
        "timestamp": Timestamp(1, 2),
        "min": MinKey(),
        "max": MaxKey(),
        "null": None,
        "true": True,
    }
    database.types.insert_one(document)
    assert database.types.find_one() == document
    raw = database.types.with_options(codec_options=database.codec_options.with_options(document_class=RawBSONDocument))
    sent = raw.find_one()
    assert isinstance(sent, RawBSONDocument)
    assert list(sent.items())[2] == ("minus zero", -0.0)


def test_bulk_write(database: Database[dict[str, Any]]) -> None:
    result = database.bulk.bulk_write(
        [
            InsertOne({"_id": 1}),
            InsertOne({"_id": 2}),
            UpdateOne({"_id": 1}, {"$set": {"a": 1}}),
            UpdateMany({}, {"$set": {"b": 1}}),
            ReplaceOne({"_id": 3}, {"c": 1}, upsert=True),
            DeleteOne({"_id": 2}),
            DeleteMany({"never": True}),
        ]
    )
    assert result.bulk_api_result | {"upserted": []} == {
        "writeErrors": [],
        "writeConcernErrors": [],
        "nInserted": 2,
        "nUpserted": 1,
        "nMatched": 3,
        "nModified": 3,
        "nRemoved": 1,
        "upserted": [],
    }
    with pytest.raises(BulkWriteError) as caught:
        database.bulk.bulk_write([InsertOne({"_id": 1}), InsertOne({"_id": 4})], ordered=False)
    assert caught.value.details["nInserted"] == 1
    assert [error["code"] for error in caught.value.details["writeErrors"]] == [11000]


def test_large_bulk_is_split_by_the_driver_and_arrives_whole(database: Database[dict[str, Any]]) -> None:
    text = "x" * 1_000_000
    database.big.insert_many({"_id": n, "text": text} for n in range(60))  # more than one message of 48 MB
    assert database.big.count_documents({}) == 60
    assert len(list(database.big.find())) == 60  # several batches of 16 MB


def test_unacknowledged_writes(database: Database[dict[str, Any]]) -> None:
    quiet = database.get_collection("quiet", write_concern=WriteConcern(w=0))
    assert not quiet.insert_one({"_id": 1}).acknowledged
    quiet.insert_one({"_id": 1})  # its error is told to nobody
    quiet.insert_many([{"_id": n} for n in range(2, 50)])
    quiet.update_one({"_id": 1}, {"$set": {"a": 1}})
    until(lambda: database.quiet.count_documents({}) == 49)
    assert database.client.admin.command("ping")["ok"] == 1.0


def test_journaled_write(database: Database[dict[str, Any]]) -> None:
    durable = database.get_collection("durable", write_concern=WriteConcern(w="majority", j=True))
    assert durable.insert_one({"_id": 1}).acknowledged


def test_sessions(database: Database[dict[str, Any]]) -> None:
    with database.client.start_session() as session:
        database.s.insert_many([{"_id": n} for n in range(10)], session=session)
        assert len(list(database.s.find(batch_size=3, session=session))) == 10
        cursor = database.s.find(batch_size=3, session=session)
        next(cursor)
        cursor.close()


def test_a_transaction_that_meets_a_conflict_is_run_again(database: Database[dict[str, Any]]) -> None:
    database.t.insert_one({"_id": 1, "n": 0})
    runs = 0

    def increment(session: Any) -> None:
        nonlocal runs
        runs += 1
        assert database.t.find_one({"_id": 1}, session=session) is not None
        if runs == 1:
            database.t.update_one({"_id": 1}, {"$inc": {"n": 10}})
        database.t.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)

    with database.client.start_session() as session:
        session.with_transaction(increment)
    assert (runs, database.t.find_one()) == (2, {"_id": 1, "n": 11})


def test_indexes(database: Database[dict[str, Any]], server: mongottl.RunningServer) -> None:
    coll = database.indexed
    assert coll.create_index([("a", 1), ("b", -1)]) == "a_1_b_-1"
    assert coll.create_index("u", unique=True, sparse=True) == "u_1"
    assert coll.create_index("_ts", expireAfterSeconds=10) == "_ts_1"
    assert set(coll.index_information()) == {"_id_", "a_1_b_-1", "u_1", "_ts_1"}
    coll.insert_one({"_id": 1, "u": 1, "a": 1, "b": 2})
    with pytest.raises(DuplicateKeyError) as caught:
        coll.insert_one({"_id": 2, "u": 1})
    assert caught.value.details is not None
    assert caught.value.details["keyPattern"] == {"u": 1}
    plan = coll.find({"a": 1}).sort("b", -1).explain()["queryPlanner"]["winningPlan"]
    assert plan["stage"] == "FETCH"
    assert plan["inputStage"]["stage"] == "IXSCAN"
    assert [d["_id"] for d in coll.find({"a": 1}, hint="a_1_b_-1")] == [1]
    server.clock.advance(10)
    assert coll.count_documents({}) == 0
    coll.drop_index("a_1_b_-1")
    coll.drop_indexes()
    assert set(coll.index_information()) == {"_id_"}


def test_aggregate(database: Database[dict[str, Any]]) -> None:
    database.orders.insert_many([{"_id": n, "who": n % 3, "n": n} for n in range(9)])
    grouped = database.orders.aggregate(
        [
            {"$match": {"n": {"$gte": 3}}},
            {"$group": {"_id": "$who", "sum": {"$sum": "$n"}}},
            {"$sort": SON([("_id", 1)])},
            {"$project": {"sum": 1}},
        ]
    )
    assert list(grouped) == [{"_id": 0, "sum": 9}, {"_id": 1, "sum": 11}, {"_id": 2, "sum": 13}]
    assert list(database.orders.aggregate([{"$skip": 2}, {"$limit": 4}, {"$count": "n"}])) == [{"n": 4}]


def test_collections_and_databases(database: Database[dict[str, Any]]) -> None:
    database.create_collection("made")
    database.other.insert_one({})
    assert sorted(database.list_collection_names()) == ["made", "other"]
    assert database.name in database.client.list_database_names()
    assert database.command("collStats", "other")["count"] == 1
    assert database.command("dbStats")["objects"] == 1
    database.other.rename("renamed")
    assert sorted(database.list_collection_names()) == ["made", "renamed"]
    database.made.drop()
    assert database.list_collection_names() == ["renamed"]


def test_admin_commands(client: "pymongo.MongoClient[dict[str, Any]]") -> None:
    assert client.server_info()["version"] == ServerConfig().full_version()
    assert client.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"] == []
    assert client.admin.command("connectionStatus")["uuid"].subtype == 4
    assert client.admin.command("whatsmyuri", unknown=1)["ok"] == 1
    assert client.admin.command("listCommands", unknown=1)["ok"] == 1
    assert client.admin.command("whatsmyuri")["you"].startswith("127.0.0.1:")
    assert client.admin.command("getParameter", "*")["enableTestCommands"] is True
    assert "argv" in client.admin.command("getCmdLineOpts")
    assert "ping" in client.admin.command("listCommands")["commands"]
    assert client.admin.command("hostInfo")["system"]["numCores"] >= 1
    assert client.admin.command("getLog", "global")["totalLinesWritten"] >= 0


@pytest.mark.parametrize(
    ("mechanism", "code"), [("SCRAM-SHA-1", 18), ("SCRAM-SHA-256", 18), ("PLAIN", 334), (None, 18)]
)
def test_unknown_users_are_refused(server: mongottl.RunningServer, mechanism: str | None, code: int) -> None:
    options: dict[str, Any] = {"authMechanism": mechanism} if mechanism else {}
    with (
        pymongo.MongoClient[dict[str, Any]](server.uri, username="u", password="p", **options) as other,
        pytest.raises(OperationFailure) as caught,
    ):
        other.admin.command("ping")
    assert caught.value.code == code


@no_balancer("a client is told of a balancer or of a replica set")
def test_another_replica_set_is_not_found(server: mongottl.RunningServer) -> None:
    with (
        pymongo.MongoClient[dict[str, Any]](server.uri, replicaSet="other", serverSelectionTimeoutMS=300) as other,
        pytest.raises(ServerSelectionTimeoutError, match='replica set name "other"'),
    ):
        until(lambda: not other.topology_description.server_descriptions())  # it has asked the server, and left it out
        other.admin.command("ping")


@pytest.mark.parametrize(
    ("command", "api", "code"),
    [
        ("ping", {"apiVersion": "2"}, 322),
        ("ping", {"apiVersion": 1}, 14),
        ("ping", {"apiStrict": True}, 4886600),
        ("ping", {"apiDeprecationErrors": True}, 4886600),
        ("serverStatus", {"apiVersion": "1", "apiStrict": True}, 323),
    ],
    ids=str,
)
def test_api_version_fields(
    client: "pymongo.MongoClient[dict[str, Any]]", command: str, api: dict[str, Any], code: int
) -> None:
    with pytest.raises(OperationFailure) as caught:
        client.admin.command(command, **api)
    assert caught.value.code == code
    assert client.admin.command("ping", apiVersion="1", apiStrict=True, apiDeprecationErrors=False)["ok"] == 1


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"find": "c", "filter": {}, "sort": {"a": 1}, "limit": 1, "hint": {"_id": 1}}, 0),
        ({"find": "c", "showRecordId": True}, 323),
        ({"find": "c", "returnKey": False}, 323),
        ({"find": "c", "max": {"_id": 1}, "hint": {"_id": 1}}, 323),
        ({"find": "c", "noCursorTimeout": True}, 323),
        ({"find": "c", "tailable": True}, 323),
        ({"create": "d", "collation": {"locale": "simple"}}, 0),
        ({"create": "d", "capped": True, "size": 4096}, 323),
        ({"aggregate": "c", "pipeline": [{"$match": {}}, {"$collStats": 1}], "cursor": {}}, 323),
        ({"aggregate": "c", "pipeline": [{"$collStats": {"count": {}}}], "cursor": {}}, 0),
        ({"aggregate": "c", "pipeline": [{"$collStats": {"count": {}, "storageStats": {}}}], "cursor": {}}, 323),
        ({"aggregate": "c", "pipeline": [{"$indexStats": {}}], "cursor": {}}, 323),
        ({"aggregate": "c", "pipeline": [{"$planCacheStats": {}}], "cursor": {}}, 323),
        ({"aggregate": 1, "pipeline": [{"$listLocalSessions": {}}, {"$limit": 1}], "cursor": {}}, 323),
        (
            {
                "aggregate": "c",
                "pipeline": [{"$unionWith": {"coll": "d", "pipeline": [{"$indexStats": {}}]}}],
                "cursor": {},
            },
            323,
        ),
        ({"aggregate": "c", "pipeline": [{"$facet": {"a": [{"$limit": 1}]}}], "cursor": {}}, 0),
    ],
    ids=str,
)
def test_commands_outside_the_stable_api_are_refused(
    database: Database[dict[str, Any]], command: dict[str, Any], code: int
) -> None:
    database.c.insert_one({"_id": 1})
    assert refusal(database, {**command, "apiVersion": "1", "apiStrict": True}) == code
    assert refusal(database, {**command, "apiVersion": "1"}) != 323


def test_long_messages_are_compressed_in_other_threads(
    server: mongottl.RunningServer, database: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """zlib lets other threads run, and takes half a second for 16 MB."""
    loops: list[bool] = []
    compress, decompressobj = zlib.compress, zlib.decompressobj

    def in_loop() -> bool:
        try:
            trio.lowlevel.current_task()
        except RuntimeError:
            return False
        return True

    def noting_compress(data: bytes, *arguments: Any) -> bytes:
        if threading.current_thread() is not threading.main_thread() and len(data) > 100_000:
            loops.append(in_loop())
        return compress(data, *arguments)

    def noting_decompress(*arguments: Any) -> Any:
        if threading.current_thread() is not threading.main_thread() and long:
            loops.append(in_loop())
        return decompressobj(*arguments)

    long = False
    documents = [{"_id": n, "text": os.urandom(50_000).hex()} for n in range(20)]
    with pymongo.MongoClient[dict[str, Any]](server.uri, compressors="zlib") as client:
        things = client[database.name].things
        things.find_one()
        monkeypatch.setattr(zlib, "compress", noting_compress)
        monkeypatch.setattr(zlib, "decompressobj", noting_decompress)
        long = True
        things.insert_many(documents)
        assert loops[:1] == [False]
        long = False
        assert list(things.find()) == documents
        assert loops[1:] == [False]


@pytest.mark.parametrize("compressor", ["zlib", "snappy", "zstd"])
def test_compression(server: mongottl.RunningServer, database: Database[dict[str, Any]], compressor: str) -> None:
    pytest.importorskip({"zlib": "zlib", "snappy": "snappy", "zstd": "zstandard"}[compressor])
    if compressor == "zstd":
        pytest.importorskip("backports.zstd", reason="PyMongo compresses with it")
    text = "compress me " * 10_000
    with pymongo.MongoClient[dict[str, Any]](server.uri, compressors=compressor) as other:
        coll = other.get_database(database.name).compressed
        before = other.admin.command("serverStatus")["network"]
        coll.insert_many({"_id": n, "text": text} for n in range(10))
        assert [d["text"] == text for d in coll.find(batch_size=3)] == [True] * 10
        after = other.admin.command("serverStatus")["network"]
    assert 0 < after["bytesIn"] - before["bytesIn"] < 200_000  # of 1.2 MB
    assert 0 < after["bytesOut"] - before["bytesOut"] < 200_000


@alone
@pytest.mark.slow
def test_monitors_stream_heartbeats_and_meet_no_errors() -> None:
    """PyMongo's monitor asks once, and the server goes on to answer every `heartbeatFrequencyMS` by itself."""
    heartbeats = Heartbeats()
    commands = Commands()
    with mongottl.start_server() as server, pymongo.MongoClient[dict[str, Any]](server.uri) as observer:
        observer.admin.command("ping")
        until(lambda: connections(observer) == 3)  # its two monitors' and its own
        with pymongo.MongoClient[dict[str, Any]](
            server.uri,
            event_listeners=[heartbeats, commands],
            heartbeatFrequencyMS=500,
            serverMonitoringMode="stream",
        ) as other:
            other.admin.command("ping")
            until(lambda: len(heartbeats.awaited) >= 4)
            assert heartbeats.awaited[:4] == [False, True, True, True]
            until(lambda: connections(observer) == 6)
            assert heartbeats.failures == []
            assert commands.failures == []
        until(lambda: connections(observer) == 3)  # the stream ends with its client


def connections(client: "pymongo.MongoClient[dict[str, Any]]") -> int:
    current: int = client.admin.command("serverStatus")["connections"]["current"]
    return current
