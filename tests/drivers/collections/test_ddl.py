"""Databases, collections and indexes through PyMongo, as applications make and inspect them."""

import threading
from typing import Any

import pymongo
import pytest
from bson import Int64
from pymongo import ASCENDING, DESCENDING, IndexModel
from pymongo.database import Database
from pymongo.errors import CollectionInvalid, DuplicateKeyError, OperationFailure

import mongottl
from tests.drivers.conftest import server_status
from tests.on_nodes import own_cursors
from tests.waiting import until

Documents = dict[str, Any]
Client = pymongo.MongoClient[Documents]


def code_of(error: pytest.ExceptionInfo[OperationFailure]) -> int | None:
    return error.value.code


def test_collections_come_and_go(database: Database[Documents]) -> None:
    database.create_collection("a")
    database.b.insert_one({"_id": 1})
    assert sorted(database.list_collection_names()) == ["a", "b"]
    assert database.list_collection_names(filter={"name": {"$regex": "^b"}}) == ["b"]
    with pytest.raises(CollectionInvalid):
        database.create_collection("a")
    database.command("create", "a")  # the server itself does not mind
    database.drop_collection("a")
    database.drop_collection("a")
    assert database.list_collection_names() == ["b"]
    [described] = database.list_collections()
    assert described["type"] == "collection"
    assert described["info"]["readOnly"] is False
    assert described["idIndex"]["name"] == "_id_"
    assert database.b.options() == {}


def test_databases_come_and_go(client: Client, database: Database[Documents]) -> None:
    assert database.name not in client.list_database_names()
    database.c.insert_one({"_id": 1, "text": "x" * 5000})
    [listed] = [entry for entry in client.list_databases() if entry["name"] == database.name]
    assert listed["sizeOnDisk"] > 5000
    assert not listed["empty"]
    assert client.list_database_names() == sorted(client.list_database_names())
    client.drop_database(database.name)
    assert database.name not in client.list_database_names()
    assert database.c.find_one() is None


@own_cursors
def test_more_collections_than_fit_a_page(database: Database[Documents]) -> None:
    for number in range(30):
        database.create_collection(f"c{number:02}")
    cursor = database.list_collections()
    assert [entry["name"] for entry in cursor] == [f"c{number:02}" for number in range(30)]
    reply = database.command("listCollections", cursor={"batchSize": 10}, nameOnly=True)
    names = [entry["name"] for entry in reply["cursor"]["firstBatch"]]
    while reply["cursor"]["id"]:
        more = {"getMore": Int64(reply["cursor"]["id"]), "collection": "$cmd.listCollections", "batchSize": 7}
        reply = database.command(more)
        names += [entry["name"] for entry in reply["cursor"]["nextBatch"]]
    assert names == [f"c{number:02}" for number in range(30)]


def test_indexes_come_and_go(database: Database[Documents]) -> None:
    collection = database.c
    assert collection.create_index("a") == "a_1"
    assert collection.create_index([("b", ASCENDING), ("c", DESCENDING)], unique=True, name="bc") == "bc"
    assert collection.create_indexes([IndexModel("d", sparse=True), IndexModel("e", hidden=True)]) == ["d_1", "e_1"]
    assert collection.index_information() == {
        "_id_": {"v": 2, "key": [("_id", 1)]},
        "a_1": {"v": 2, "key": [("a", 1)]},
        "bc": {"v": 2, "key": [("b", 1), ("c", -1)], "unique": True},
        "d_1": {"v": 2, "key": [("d", 1)], "sparse": True},
        "e_1": {"v": 2, "key": [("e", 1)], "hidden": True},
    }
    assert [index["name"] for index in collection.list_indexes()] == ["_id_", "a_1", "bc", "d_1", "e_1"]
    collection.drop_index("bc")
    collection.drop_index([("a", 1)])
    assert sorted(collection.index_information()) == ["_id_", "d_1", "e_1"]
    collection.drop_indexes()
    assert list(collection.index_information()) == ["_id_"]
    with pytest.raises(OperationFailure) as caught:
        collection.drop_index("a_1")
    assert code_of(caught) == 27
    assert list(database.none.list_indexes()) == []


def test_a_unique_index_over_duplicates(database: Database[Documents]) -> None:
    database.c.insert_many([{"_id": i, "a": i % 400} for i in range(1000)])
    with pytest.raises(DuplicateKeyError) as caught:
        database.c.create_index("a", unique=True)
    assert caught.value.details is not None
    assert caught.value.details["keyPattern"] == {"a": 1}
    assert "E11000" in str(caught.value)
    assert list(database.c.index_information()) == ["_id_"]
    database.c.delete_many({"_id": {"$gte": 400}})
    database.c.create_index("a", unique=True)
    with pytest.raises(DuplicateKeyError):
        database.c.insert_one({"_id": "x", "a": 3})


def test_clashing_indexes(database: Database[Documents]) -> None:
    database.c.create_index("a")
    database.c.create_index("a")
    for options, expected in (({"name": "b"}, 85), ({"unique": True}, 86), ({"expireAfterSeconds": 5}, 85)):
        with pytest.raises(OperationFailure) as caught:
            database.c.create_index("a", **options)
        assert code_of(caught) == expected
    with pytest.raises(OperationFailure) as caught:
        database.c.create_index("b", name="a_1")
    assert code_of(caught) == 86


def test_the_default_ttl_and_how_it_changes(database: Database[Documents]) -> None:
    collection = database.c
    assert collection.create_index("_ts", expireAfterSeconds=3600) == "_ts_1"
    assert collection.index_information()["_ts_1"] == {"v": 2, "key": [("_ts", 1)], "expireAfterSeconds": 3600}
    with pytest.raises(OperationFailure) as caught:
        collection.create_index("_ts", expireAfterSeconds=60)
    assert code_of(caught) == 85
    reply = database.command("collMod", "c", index={"name": "_ts_1", "expireAfterSeconds": 60})
    assert (reply["expireAfterSeconds_old"], reply["expireAfterSeconds_new"]) == (3600, 60)
    assert collection.index_information()["_ts_1"]["expireAfterSeconds"] == 60
    for value, expected in ((0, 2), (-2, 2), (1.5, 2), (2**31, 2), ("60", 14)):
        for command in (
            {"createIndexes": "d", "indexes": [{"key": {"_ts": 1}, "name": "x", "expireAfterSeconds": value}]},
            {"collMod": "c", "index": {"name": "_ts_1", "expireAfterSeconds": value}},
        ):
            with pytest.raises(OperationFailure) as caught:
                database.command(command)
            assert code_of(caught) == expected
    assert database.list_collection_names() == ["c"]


def test_renaming(client: Client, database: Database[Documents]) -> None:
    database.a.insert_one({"_id": 1})
    database.a.create_index("x", unique=True)
    database.a.rename("b")
    assert database.b.find_one() == {"_id": 1}
    assert "x_1" in database.b.index_information()
    database.a.insert_one({"_id": 2})
    with pytest.raises(OperationFailure) as caught:
        database.a.rename("b")
    assert code_of(caught) == 48
    database.a.rename("b", dropTarget=True)
    assert list(database.b.find()) == [{"_id": 2}]
    with pytest.raises(OperationFailure) as caught:
        database.a.rename("z")
    assert code_of(caught) == 26


def test_statistics(database: Database[Documents]) -> None:
    database.c.insert_many([{"_id": i, "a": i} for i in range(100)])
    database.c.create_index("a")
    collection = database.command("collStats", "c")
    assert (collection["count"], collection["nindexes"], collection["capped"]) == (100, 2, False)
    whole = database.command("dbStats")
    assert (whole["db"], whole["collections"], whole["objects"]) == (database.name, 1, 100)
    assert whole["dataSize"] == collection["size"]


@pytest.mark.slow
def test_an_index_is_built_while_others_work(client: Client, database: Database[Documents]) -> None:
    """Several threads write and ping while indexes are built; afterwards index and collection agree."""
    collection = database.c
    collection.insert_many([{"_id": i, "a": i % 97, "tags": [i % 5, i % 7]} for i in range(8_000)])
    failures: list[Exception] = []
    done = threading.Event()

    def work(offset: int) -> None:
        number = 0
        try:
            while not done.is_set():
                number += 1
                target = (number * 7919 + offset) % 8_000
                collection.update_one({"_id": target}, {"$set": {"a": number % 89}})
                collection.delete_one({"_id": target + 1})
                collection.insert_one({"_id": f"{offset}-{number}", "a": number % 97, "tags": [number % 11]})
                client.admin.command("ping")
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(2)]
    for thread in threads:
        thread.start()
    try:
        collection.create_indexes([IndexModel("a"), IndexModel("tags"), IndexModel([("a", -1), ("tags", 1)])])
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert failures == []
    for filter in ({"a": 5}, {"a": {"$gte": 90}}, {"tags": 3}, {"a": 5, "tags": 3}):
        found = {document["_id"] for document in collection.find(filter, {"_id": 1})}
        scanned = {document["_id"] for document in collection.find(filter, {"_id": 1}).hint([("$natural", 1)])}
        assert found == scanned
        assert found


def test_dropping_a_collection_ends_its_cursors(client: Client, database: Database[Documents]) -> None:
    database.c.insert_many([{"_id": i} for i in range(10)])
    cursor = database.c.find(batch_size=2)
    next(cursor)
    database.c.drop()
    with pytest.raises(OperationFailure) as caught:
        list(cursor)
    assert code_of(caught) == 175
    assert server_status(client)["metrics"]["cursor"]["open"]["total"] == 0


def test_cosmos_refuses_what_cosmos_refuses() -> None:
    with mongottl.start_server(dialect="cosmos") as server, Client(server.uri) as client:
        database = client.test
        reply = database.command("createIndexes", "c", indexes=[{"key": {"a": 1}, "name": "a_1"}])
        assert next(iter(reply)) == "_t"
        assert reply["_t"] == "CreateIndexesResponse"
        with pytest.raises(OperationFailure) as caught:
            database.c.create_index("when", expireAfterSeconds=60)
        assert code_of(caught) == 2
        assert caught.value.details is not None
        assert caught.value.details["errmsg"] == "The 'expireAfterSeconds' option is supported on '_ts' field only."
        for command in ({"collMod": "c"}, {"renameCollection": "test.c", "to": "test.d"}):
            with pytest.raises(OperationFailure) as caught:
                client.admin.command(command)
            assert code_of(caught) == 115
        database.c.create_index("_ts", expireAfterSeconds=-1)
        assert database.c.index_information()["_ts_1"]["expireAfterSeconds"] == -1


def test_everything_survives_a_restart(tmp_path: Any) -> None:
    with mongottl.start_server(data_dir=str(tmp_path)) as server, Client(server.uri) as client:
        client.test.c.insert_many([{"_id": i, "a": [i, i + 1]} for i in range(10)])
        client.test.c.create_index("a")
        client.test.c.create_index("_ts", expireAfterSeconds=3600)
        client.test.d.create_index("b", unique=True)
        client.test.d.rename("e")
        client.other.c.insert_one({"_id": 1})
        client.drop_database("other")
        before = client.test.c.index_information()
        described = sorted(client.test.list_collections(), key=lambda entry: str(entry["name"]))
    with mongottl.start_server(data_dir=str(tmp_path)) as server, Client(server.uri) as client:
        assert sorted(client.test.list_collections(), key=lambda entry: str(entry["name"])) == described
        assert "other" not in client.list_database_names()
        assert client.test.c.index_information() == before
        assert client.test.c.count_documents({"a": 3}) == 2
        assert client.test.e.index_information()["b_1"]["unique"]
        client.test.e.insert_one({"b": 1})
        with pytest.raises(DuplicateKeyError):
            client.test.e.insert_one({"b": 1})
        server.clock.advance(3600)
        assert client.test.c.count_documents({}) == 0


def test_a_database_is_empty_when_its_event_says_that_it_was_dropped(
    server: mongottl.RunningServer, client: Client, database: Database[Documents]
) -> None:
    ended = threading.Event()

    def insert() -> None:
        with pymongo.MongoClient[Documents](server.uri) as own:
            while not ended.is_set():
                for name in ("a", "b", "c"):
                    own[database.name][name].insert_one({})

    present: set[str] = set()
    left: list[set[str]] = []
    inserting = [threading.Thread(target=insert) for _ in range(3)]
    with client.watch([{"$match": {"ns.db": database.name}}]) as events:
        for thread in inserting:
            thread.start()
        until(database.list_collection_names)
        for _ in range(10):
            client.drop_database(database.name)
        ended.set()
        for thread in inserting:
            thread.join()
        database.last.insert_one({})
        while "last" not in present:
            event = events.next()
            if event["operationType"] == "insert":
                present.add(event["ns"]["coll"])
            elif event["operationType"] == "drop":
                present.discard(event["ns"]["coll"])
            elif event["operationType"] == "dropDatabase":
                left.append(set(present))
    assert left and not any(left)
