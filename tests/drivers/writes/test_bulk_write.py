"""bulkWrite: by PyMongo's client.bulk_write, and as a bare command."""

from typing import Any

import pymongo
import pytest
from bson import Int64
from pymongo import DeleteMany, DeleteOne, InsertOne, MongoClient, ReplaceOne, UpdateMany, UpdateOne
from pymongo.database import Database
from pymongo.errors import ClientBulkWriteException, OperationFailure

import mongottl
from tests.drivers.refusals import refusal
from tests.on_nodes import one_node, own_cursors

Documents = dict[str, Any]


def run(database: Database[Documents], operations: list[Documents], **arguments: Any) -> Documents:
    spaces = [{"ns": f"{database.name}.c"}, {"ns": f"{database.name}.d"}]
    command = {"bulkWrite": 1, "ops": operations, "nsInfo": spaces, **arguments}
    return database.client.admin.command(command)


def test_the_driver_writes_to_several_collections(database: Database[Documents]) -> None:
    client: MongoClient[Documents] = database.client
    c, d = f"{database.name}.c", f"{database.name}_other.d"
    result = client.bulk_write(
        [
            InsertOne({"_id": 1, "n": 1}, namespace=c),
            InsertOne({"_id": 2, "n": 2}, namespace=c),
            InsertOne({"_id": 1, "n": 1}, namespace=d),
            UpdateMany({}, {"$inc": {"n": 10}}, namespace=c),
            UpdateOne({"_id": 9}, {"$set": {"n": 9}}, upsert=True, namespace=d),
            ReplaceOne({"_id": 1}, {"n": 5}, namespace=d),
            DeleteOne({"_id": 2}, namespace=c),
            DeleteMany({"n": 9}, namespace=d),
        ],
        verbose_results=True,
    )
    assert (result.inserted_count, result.matched_count, result.modified_count) == (3, 3, 3)
    assert (result.upserted_count, result.deleted_count) == (1, 2)
    assert result.update_results[4].upserted_id == 9
    assert result.delete_results[7].deleted_count == 1
    assert list(database.c.find()) == [{"_id": 1, "n": 11}]
    assert list(client[f"{database.name}_other"].d.find()) == [{"_id": 1, "n": 5}]


def errors_of(error: ClientBulkWriteException) -> list[Any]:
    return error.write_errors or []


def test_the_driver_learns_of_what_failed(database: Database[Documents]) -> None:
    c = f"{database.name}.c"
    writes = [InsertOne({"_id": i}, namespace=c) for i in (1, 2, 1, 3)]
    with pytest.raises(ClientBulkWriteException) as caught:
        database.client.bulk_write(writes)
    assert [(error["code"], error["idx"]) for error in errors_of(caught.value)] == [(11000, 2)]
    assert [document["_id"] for document in database.c.find()] == [1, 2]
    with pytest.raises(ClientBulkWriteException) as caught:
        database.client.bulk_write([InsertOne({"_id": i}, namespace=c) for i in (1, 3, 2, 4)], ordered=False)
    assert [error["idx"] for error in errors_of(caught.value)] == [0, 2]
    assert database.c.count_documents({}) == 4


def test_the_reply(database: Database[Documents]) -> None:
    reply = run(
        database,
        [
            {"insert": 0, "document": {"_id": 1, "x": 1}},
            {"update": 0, "filter": {"_id": 1}, "updateMods": {"$set": {"x": 1}}},
            {"update": 1, "filter": {"_id": 7}, "updateMods": {"$set": {"x": 1}}, "upsert": True},
            {"delete": 0, "filter": {}, "multi": True},
        ],
    )
    assert reply["cursor"] == {
        "firstBatch": [
            {"ok": 1.0, "idx": 0, "n": 1},
            {"ok": 1.0, "idx": 1, "n": 1, "nModified": 0},
            {"ok": 1.0, "idx": 2, "n": 1, "nModified": 0, "upserted": {"_id": 7}},
            {"ok": 1.0, "idx": 3, "n": 1},
        ],
        "id": 0,
        "ns": "admin.$cmd.bulkWrite",
    }
    counters = {name: reply[name] for name in reply if name.startswith("n")}
    assert counters == {
        "nErrors": 0, "nInserted": 1, "nMatched": 1, "nModified": 0, "nUpserted": 1, "nDeleted": 1,
    }  # fmt: skip


@own_cursors
def test_a_cursor_goes_on_over_the_results(database: Database[Documents]) -> None:
    operations = [{"insert": i % 2, "document": {"_id": i}} for i in range(1200)]
    reply = run(database, operations, cursor={"batchSize": 1000})
    assert len(reply["cursor"]["firstBatch"]) == 1000
    more = database.client.admin.command({"getMore": Int64(reply["cursor"]["id"]), "collection": "$cmd.bulkWrite"})
    assert [entry["idx"] for entry in more["cursor"]["nextBatch"]] == list(range(1000, 1200))
    assert more["cursor"]["id"] == 0
    assert database.c.count_documents({}) == database.d.count_documents({}) == 600


@pytest.mark.parametrize(("ordered", "seen"), [(True, [1]), (False, [1, 3])])
def test_errors_only(database: Database[Documents], ordered: bool, seen: list[int]) -> None:
    database.c.insert_one({"_id": 1})
    operations = [
        {"insert": 0, "document": {"_id": 0}},
        {"insert": 0, "document": {"_id": 1}},
        {"insert": 0, "document": {"_id": 2}},
        {"update": 0, "filter": {"_id": 0}, "updateMods": {"$nothing": {"a": 1}}},
    ]
    reply = run(database, operations, ordered=ordered, errorsOnly=True)
    assert [entry["idx"] for entry in reply["cursor"]["firstBatch"]] == seen
    assert reply["cursor"]["firstBatch"][0]["code"] == 11000
    assert reply["cursor"]["firstBatch"][0]["keyValue"] == {"_id": 1}
    assert reply["nErrors"] == len(seen)


def test_options_of_an_update(database: Database[Documents]) -> None:
    database.c.insert_one({"_id": 1, "items": [1, 2, 3], "n": 1})
    reply = run(
        database,
        [
            {
                "update": 0,
                "filter": {"$expr": {"$eq": ["$n", "$$one"]}},
                "updateMods": {"$set": {"items.$[i]": 0}},
                "arrayFilters": [{"i": {"$gt": 1}}],
                "hint": "_id_",
            },
            {"update": 0, "filter": {}, "updateMods": [{"$set": {"n": "$$c"}}], "constants": {"c": 5}},
        ],
        let={"one": 1},
    )
    assert reply["nModified"] == 2
    assert database.c.find_one() == {"_id": 1, "items": [1, 0, 0], "n": 5}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"ops": []}, 16),
        ({"nsInfo": []}, 2),
        ({"ops": [{"insert": 7, "document": {}}]}, 2),
        ({"ops": [{"insert": -1, "document": {}}]}, 2),
        ({"ops": [{"insert": 0}]}, 40414),
        ({"ops": [{"insert": 0, "document": {}, "more": 1}]}, 40415),
        ({"ops": [{"document": {}, "insert": 0}]}, 40415),
        ({"ops": [{"update": 0, "filter": {}, "updateMods": 1}]}, 9),
        ({"nsInfo": [{"ns": "nodot"}]}, 73),
        ({"nsInfo": [{"ns": "a b.c"}]}, 73),
        ({"nsInfo": [{"ns": "a.$c"}]}, 73),
        ({"nsInfo": [{}]}, 40414),
        ({"nsInfo": [{"ns": "a.b", "x": 1}]}, 40415),
        ({"cursor": {"batchSize": -1}}, 2),
        ({"errorsOnly": 1}, 14),
        ({"stmtIds": [1, 2]}, 16),
        ({"nothing": 1}, 40415),
    ],
    ids=str,
)
def test_bulk_write_refuses_invalid_arguments(database: Database[Documents], change: Documents, code: int) -> None:
    command = {"bulkWrite": 1, "ops": [{"insert": 0, "document": {}}], "nsInfo": [{"ns": f"{database.name}.c"}]}
    assert refusal(database.client.admin, {**command, **change}) == code
    assert database.c.count_documents({}) == 0


def test_bulk_write_runs_against_admin_alone(database: Database[Documents]) -> None:
    command = {"bulkWrite": 1, "ops": [{"insert": 0, "document": {}}], "nsInfo": [{"ns": f"{database.name}.c"}]}
    assert refusal(database, command) == 13


def test_a_retried_bulk_write_is_not_carried_out_twice(
    server: mongottl.RunningServer, database: Database[Documents]
) -> None:
    # A client of its own: it keeps sessions for reuse, and counts their transactions itself.
    with pymongo.MongoClient[Documents](server.uri) as client, client.start_session() as session:
        command = {
            "bulkWrite": 1,
            "ops": [{"update": 0, "filter": {"_id": 1}, "updateMods": {"$inc": {"n": 1}}}],
            "nsInfo": [{"ns": f"{database.name}.c"}],
            "txnNumber": Int64(1005),
        }
        database.c.insert_one({"_id": 1, "n": 0})
        for _ in range(2):
            assert client.admin.command(command, session=session)["nModified"] == 1
        with pytest.raises(OperationFailure) as caught:
            many = [{"delete": 0, "filter": {}, "multi": True}]
            client.admin.command({**command, "ops": many, "txnNumber": Int64(1006)}, session=session)
        assert caught.value.code == 72
    assert database.c.find_one() == {"_id": 1, "n": 1}


@one_node("what is written without an answer may come after what another node is asked then")
def test_unacknowledged(database: Database[Documents]) -> None:
    client = database.client
    concern = pymongo.WriteConcern(w=0)
    result = client.bulk_write(
        [InsertOne({"_id": 1}, namespace=f"{database.name}.c")], ordered=False, write_concern=concern
    )
    assert not result.acknowledged
    assert database.c.find_one() == {"_id": 1}


@pytest.mark.parametrize(("bypass", "inserted"), [(True, 1), (False, 0)])
def test_validators(database: Database[Documents], bypass: bool, inserted: int) -> None:
    database.create_collection("c", validator={"n": {"$gt": 0}})
    reply = run(database, [{"insert": 0, "document": {"_id": 1, "n": 0}}], bypassDocumentValidation=bypass)
    assert reply["nInserted"] == inserted
    assert [entry.get("code") for entry in reply["cursor"]["firstBatch"]] == [None if bypass else 121]
