"""The profiler: what operations leave in `system.profile`, and which of them are logged as slow."""

import json
from collections.abc import Iterator
from typing import Any

import pymongo
import pytest
from bson import Int64
from pymongo.database import Database
from pymongo.errors import OperationFailure

from tests.on_nodes import own_profile

pytestmark = own_profile

Documents = dict[str, Any]
Client = pymongo.MongoClient[Documents]


@pytest.fixture
def profiled(client: Client, database: Database[Documents]) -> Iterator[Database[Documents]]:
    """A database in which everything is profiled."""
    database.command("profile", 2)
    yield database
    database.command({"profile": 0, "slowms": 100, "sampleRate": 1.0, "filter": "unset"})


def entries(database: Database[Documents], **query: Any) -> list[Documents]:
    """What was profiled, without the reads of the profile itself."""
    return list(database.system.profile.find({"ns": {"$ne": f"{database.name}.system.profile"}, **query}))


def test_every_operation_of_a_database_leaves_a_document(profiled: Database[Documents]) -> None:
    collection = profiled.c
    collection.insert_many([{"_id": n, "n": n} for n in range(5)])
    assert len(list(collection.find({"n": {"$gt": 0}}, batch_size=3))) == 4
    collection.update_one({"_id": 1}, {"$set": {"n": 7}})
    collection.update_one({"_id": 9}, {"$set": {"n": 7}}, upsert=True)
    collection.delete_many({"n": 7})
    collection.find_one_and_update({"_id": 0}, {"$inc": {"n": 1}})
    collection.aggregate([{"$count": "n"}]).close()
    profiled.client.admin.command("ping")
    found = entries(profiled)
    assert [entry["op"] for entry in found] == [
        "insert",
        "query",
        "getmore",
        "update",
        "update",
        "remove",
        "command",
        "command",
    ]
    by_kind = {entry["op"]: entry for entry in found}
    assert by_kind["insert"]["ninserted"] == 5
    assert "documents" not in by_kind["insert"]["command"]
    assert (by_kind["query"]["nreturned"], "cursorid" in by_kind["query"]) == (3, True)
    assert (by_kind["getmore"]["nreturned"], by_kind["getmore"]["cursorExhausted"]) == (1, True)
    first, second = [entry for entry in found if entry["op"] == "update"]
    assert (first["command"]["q"], first["command"]["u"]) == ({"_id": 1}, {"$set": {"n": 7}})
    assert (first["nMatched"], first["nModified"]) == (1, 1)
    assert (second["nMatched"], second["nModified"], second["nUpserted"]) == (0, 0, 1)
    assert by_kind["remove"]["ndeleted"] == 2
    assert found[-2]["command"]["findAndModify"] == "c"
    assert (found[-2]["nMatched"], found[-2]["nModified"]) == (1, 1)
    assert found[-1]["command"]["pipeline"] == [{"$count": "n"}]
    for entry in found:
        assert entry["ns"] in (f"{profiled.name}.c", f"{profiled.name}.$cmd")
        assert (entry["protocol"], entry["client"], entry["user"], entry["allUsers"]) == ("op_msg", "127.0.0.1", "", [])
        assert isinstance(entry["millis"], int)
        assert entry["responseLength"] > 0
    assert profiled.command("collStats", "system.profile")["capped"] is True


def written(entry: Documents) -> Documents:
    names = ("ninserted", "nMatched", "nModified", "nUpserted", "ndeleted")
    return {name: entry[name] for name in names if name in entry}


def test_profiled_writes_count_the_documents_that_they_changed(profiled: Database[Documents]) -> None:
    collection = profiled.c
    collection.insert_one({"_id": 1, "n": 1})
    collection.update_one({"_id": 1}, {"$set": {"n": 1}})
    collection.find_one_and_update({"_id": 1}, {"$set": {"n": 1}})
    collection.find_one_and_update({"_id": 2}, {"$set": {"n": 1}}, upsert=True)
    collection.update_many({}, {"$inc": {"n": 1}})
    collection.find_one_and_delete({"_id": 2})
    collection.find_one_and_delete({"_id": 2})
    with profiled.client.start_session() as session, session.start_transaction():
        collection.insert_many([{"_id": 3}, {"_id": 4}], session=session)
        collection.delete_many({"_id": {"$gte": 3}}, session=session)
    assert [written(entry) for entry in entries(profiled, ns=f"{profiled.name}.c")] == [
        {"ninserted": 1},
        {"nMatched": 1, "nModified": 0},
        {"nMatched": 1, "nModified": 0},
        {"nMatched": 0, "nModified": 0, "nUpserted": 1},
        {"nMatched": 2, "nModified": 2},
        {"ndeleted": 1},
        {"ndeleted": 0},
        {"ninserted": 2},
        {"ndeleted": 2},
    ]


def test_a_write_that_fails_midway_shows_what_it_has_changed(profiled: Database[Documents]) -> None:
    profiled.c.insert_many([{"_id": 1, "n": 1}, {"_id": 2, "n": 1}])
    profiled.c.create_index("n", unique=True, partialFilterExpression={"n": {"$gte": 2}})
    with pytest.raises(pymongo.errors.WriteError):
        profiled.c.update_many({}, {"$inc": {"n": 1}})
    with pytest.raises(OperationFailure):
        profiled.command("update", "c", updates=[{"q": {}, "u": [{"$bad": 1}], "multi": True}])
    assert [written(entry) for entry in entries(profiled, op="update")] == [{"nMatched": 1, "nModified": 1}, {}]


def test_documents_that_a_capped_collection_displaces_are_not_deleted_by_the_insert(
    profiled: Database[Documents],
) -> None:
    profiled.create_collection("ring", capped=True, size=4096, max=2)
    profiled.ring.insert_many([{"_id": n} for n in range(5)])
    assert written(entries(profiled, op="insert")[0]) == {"ninserted": 5}


def examined(entry: Documents) -> tuple[Any, ...]:
    return tuple(entry.get(name) for name in ("planSummary", "keysExamined", "docsExamined", "nreturned"))


@pytest.fixture
def unprofiled(database: Database[Documents]) -> Iterator[Database[Documents]]:
    """A database in which everything is profiled once a test switches it on."""
    yield database
    database.command({"profile": 0})


def test_plans_and_what_they_examined(unprofiled: Database[Documents]) -> None:
    collection = unprofiled.c
    collection.insert_many({"_id": n, "a": n, "b": n % 2} for n in range(10))
    collection.create_index("a")
    unprofiled.command("profile", 2)
    list(collection.find({"b": 1}))
    list(collection.find({"a": {"$gte": 8}}))
    list(collection.find({"a": {"$gte": 8}}, {"_id": 0, "a": 1}))
    list(collection.find({"$or": [{"a": 1}, {"_id": 5}]}))
    collection.find_one({"_id": 3})
    list(collection.find({"_id": 30}, limit=1))
    list(unprofiled.absent.find({"a": 1}))
    found = [examined(entry) for entry in entries(unprofiled, op="query")]
    assert found == [
        ("COLLSCAN", 0, 10, 5),
        ("IXSCAN { a: 1 }", 2, 2, 2),
        ("IXSCAN { a: 1 }", 2, 0, 2),
        ("IXSCAN { a: 1 }, IXSCAN { _id: 1 }", 2, 2, 2),
        ("EXPRESS_IXSCAN { _id: 1 }", 1, 1, 1),
        ("EXPRESS_IXSCAN { _id: 1 }", 0, 0, 0),
        ("EOF", 0, 0, 0),
    ]


def test_batches_show_what_each_has_examined(unprofiled: Database[Documents]) -> None:
    unprofiled.c.insert_many({"_id": n, "a": n} for n in range(10))
    unprofiled.command("profile", 2)
    assert len(list(unprofiled.c.find({"a": {"$gte": 0}}, batch_size=6))) == 10
    found = entries(unprofiled)
    assert [entry["op"] for entry in found] == ["query", "getmore"]
    assert [entry["planSummary"] for entry in found] == ["COLLSCAN", "COLLSCAN"]
    assert sum(entry["docsExamined"] for entry in found) == 10
    assert [entry["nreturned"] for entry in found] == [6, 4]


def test_plans_of_other_commands(unprofiled: Database[Documents]) -> None:
    collection = unprofiled.c
    collection.insert_many({"_id": n, "a": n, "b": n % 2} for n in range(10))
    collection.create_index("a")
    unprofiled.command("profile", 2)
    collection.update_many({"a": {"$lt": 3}}, {"$set": {"c": 1}})
    collection.update_one({"_id": 1}, {"$set": {"c": 2}})
    collection.delete_one({"b": 1, "_id": {"$gt": 8}})
    collection.find_one_and_update({"a": 8}, {"$set": {"c": 1}})
    list(collection.aggregate([{"$match": {"a": {"$gt": 7}}}, {"$group": {"_id": "$b"}}]))
    collection.count_documents({"b": 0})
    collection.distinct("b", {"a": 4})
    found = [examined(entry) for entry in entries(unprofiled)]
    assert found == [
        ("IXSCAN { a: 1 }", 3, 3, None),
        ("EXPRESS_IXSCAN { _id: 1 }", 1, 1, None),
        ("IXSCAN { _id: 1 }", 1, 1, None),
        ("IXSCAN { a: 1 }", 1, 1, None),
        ("IXSCAN { a: 1 }", 1, 1, 1),
        ("COLLSCAN", 0, 9, 1),
        ("IXSCAN { a: 1 }", 1, 1, None),
    ]


def test_a_bulk_of_updates_leaves_a_document_for_each(profiled: Database[Documents]) -> None:
    profiled.c.bulk_write([pymongo.UpdateOne({"_id": n}, {"$set": {"n": n}}) for n in range(3)])
    assert [entry["command"]["q"] for entry in entries(profiled, op="update")] == [{"_id": n} for n in range(3)]


def test_each_statement_of_a_batch_has_its_own_plan_and_counts(unprofiled: Database[Documents]) -> None:
    collection = unprofiled.c
    collection.insert_many({"_id": n, "a": n} for n in range(10))
    collection.create_index("a")
    unprofiled.command("profile", 2)
    collection.bulk_write(
        [
            pymongo.UpdateMany({"a": {"$lt": 3}}, {"$set": {"c": 1}}),
            pymongo.UpdateOne({"_id": 1}, {"$set": {"c": 1}}),
            pymongo.UpdateOne({"_id": 20}, {"$set": {"c": 1}}, upsert=True),
            pymongo.DeleteOne({"_id": 2}),
            pymongo.DeleteMany({"c": 1}),
        ]
    )
    found = entries(unprofiled)
    assert [written(entry) for entry in found] == [
        {"nMatched": 3, "nModified": 3},
        {"nMatched": 1, "nModified": 0},
        {"nMatched": 0, "nModified": 0, "nUpserted": 1},
        {"ndeleted": 1},
        {"ndeleted": 3},
    ]
    assert [examined(entry)[:3] for entry in found] == [
        ("IXSCAN { a: 1 }", 3, 3),
        ("EXPRESS_IXSCAN { _id: 1 }", 1, 1),
        ("EXPRESS_IXSCAN { _id: 1 }", 0, 0),
        ("EXPRESS_IXSCAN { _id: 1 }", 1, 1),
        ("COLLSCAN", 0, 10),
    ]


def test_a_batch_that_is_retried_has_written_nothing_more(profiled: Database[Documents]) -> None:
    session = profiled.client.start_session()
    request = {
        "update": "c",
        "updates": [{"q": {"_id": n}, "u": {"$set": {"n": 1}}, "upsert": True} for n in range(2)],
        "txnNumber": Int64(1_000_000),
    }
    for _ in range(2):
        assert profiled.command(request, session=session)["n"] == 2
    assert [written(entry).get("nUpserted", 0) for entry in entries(profiled, op="update")] == [1, 1, 0, 0]


def test_a_bulk_write_leaves_its_operations_in_the_databases_of_their_collections(
    client: Client, profiled: Database[Documents]
) -> None:
    """bulkWrite runs on `admin`, which is not profiled, and neither is the other database."""
    own, other = f"{profiled.name}.c", f"{profiled.name}_other.c"
    operations: list[Documents] = [
        {"insert": 0, "document": {"_id": 1}},
        {"insert": 0, "document": {"_id": 2}},
        {"insert": 1, "document": {"_id": 1}},
        {"update": 0, "filter": {}, "updateMods": {"$set": {"n": 1}}, "multi": True},
        {"update": 0, "filter": {"_id": 3}, "updateMods": {"$set": {"n": 1}}, "upsert": True},
        {"delete": 0, "filter": {"_id": 1}},
        {"insert": 0, "document": {"_id": 2}},
        {"delete": 0, "filter": {"_id": 2}},
    ]
    client.admin.command({"bulkWrite": 1, "ops": operations, "nsInfo": [{"ns": own}, {"ns": other}]})
    found = entries(profiled, op="bulkWrite")
    assert [entry["command"] for entry in found] == [
        {"insert": 0, "documents": [{"_id": 1}, {"_id": 2}]},
        *operations[3:6],
        {"insert": 0, "documents": [{"_id": 2}]},
    ]
    assert [written(entry) for entry in found] == [
        {"ninserted": 2},
        {"nMatched": 2, "nModified": 2},
        {"nMatched": 0, "nModified": 0, "nUpserted": 1},
        {"ndeleted": 1},
        {"ninserted": 0},
    ]
    assert [examined(entry)[:3] for entry in found] == [
        (None, None, None),
        ("COLLSCAN", 0, 2),
        ("EXPRESS_IXSCAN { _id: 1 }", 0, 0),
        ("EXPRESS_IXSCAN { _id: 1 }", 1, 1),
        (None, None, None),
    ]
    assert {entry["ns"] for entry in found} == {own}
    assert all(isinstance(entry["millis"], int) for entry in found)
    assert "system.profile" not in client[f"{profiled.name}_other"].list_collection_names()
    client.drop_database(f"{profiled.name}_other")


def test_a_bulk_write_is_profiled_with_the_filter_of_the_collections_database(
    client: Client, profiled: Database[Documents]
) -> None:
    profiled.command({"profile": 1, "filter": {"command.delete": {"$exists": True}}})
    operations = [{"insert": 0, "document": {"_id": 1}}, {"delete": 0, "filter": {}}]
    request = {"bulkWrite": 1, "ops": operations, "nsInfo": [{"ns": f"{profiled.name}.c"}], "errorsOnly": True}
    client.admin.command(request)
    [entry] = entries(profiled, op="bulkWrite")
    assert (entry["command"], entry["ndeleted"]) == (operations[1], 1)  # whatever the reply has


def test_statements_show_the_comment_of_their_command(profiled: Database[Documents]) -> None:
    profiled.c.update_one({"_id": 1}, {"$set": {"n": 1}}, comment="why")
    profiled.c.delete_one({"_id": 1}, comment={"a": 1})
    profiled.c.delete_one({"_id": 1})
    profiled.c.find_one({"_id": 1}, comment=5)
    commands = [entry["command"] for entry in entries(profiled)]
    assert [command.get("comment") for command in commands] == ["why", {"a": 1}, None, 5]


def test_statements_show_hints_by_name_as_documents(profiled: Database[Documents]) -> None:
    profiled.c.create_index("a")
    profiled.c.update_one({"a": 1}, {"$set": {"n": 1}}, hint="a_1")
    profiled.c.delete_one({"a": 1}, hint={"a": 1})
    list(profiled.c.find({"a": 1}, hint="a_1"))
    hints = [entry["command"]["hint"] for entry in entries(profiled) if "hint" in entry["command"]]
    assert hints == [{"$hint": "a_1"}, {"a": 1}, "a_1"]


def test_command_that_turns_profiling_on_is_not_profiled(database: Database[Documents]) -> None:
    for level in (1, 2):
        database.command({"profile": level, "slowms": 0})
        database.command({"profile": -1})
        database.command({"profile": 0, "slowms": 100})
        [first] = database.system.profile.find(limit=1)
        assert first["command"]["profile"] == -1
        database.system.profile.drop()


def test_operations_that_fail(profiled: Database[Documents]) -> None:
    with pytest.raises(OperationFailure):
        profiled.c.find_one({"$bad": 1})
    [entry] = entries(profiled, op="query")
    assert (entry["ok"], entry["errCode"], entry["errName"]) == (0, 2, "BadValue")
    assert "$bad" in entry["errMsg"]


def test_a_filter_decides_alone(profiled: Database[Documents]) -> None:
    profiled.command({"profile": 0})
    profiled.system.profile.drop()
    profiled.command({"profile": 1, "filter": {"op": "query", "command.filter.a": 1}, "slowms": 0})
    for value in range(3):
        profiled.c.find_one({"a": value})
    assert [entry["command"]["filter"] for entry in entries(profiled)] == [{"a": 1}]


def test_level_1_takes_slow_operations_by_rate(profiled: Database[Documents], client: Client) -> None:
    profiled.command({"profile": 1, "slowms": 0, "sampleRate": 0.5})
    for _ in range(10):
        profiled.c.find_one({"a": 1})
    assert len(entries(profiled, op="query")) == 5
    profiled.command({"profile": 1, "slowms": 100_000})
    profiled.c.find_one({"a": 2})
    assert entries(profiled, **{"command.filter.a": 2}) == []


def test_slow_operations_are_logged(database: Database[Documents], client: Client) -> None:
    database.command({"profile": 0, "filter": {"command.comment": "slow one"}})
    database.command({"profile": -1})
    database.c.find_one({"a": 1}, comment="slow one")
    database.command({"profile": 0, "filter": "unset"})
    assert "system.profile" not in database.list_collection_names()
    lines = [json.loads(line) for line in client.admin.command("getLog", "global")["log"] if '"Slow query"' in line]
    if not lines:
        assert client.admin.command({"getParameter": 1, "quiet": 1})["quiet"]  # the server of these tests logs nothing
        return
    assert lines[-1]["attr"]["ns"] == f"{database.name}.c"
    assert "slow one" in lines[-1]["attr"]["command"]


def test_the_profile_is_not_dropped_while_it_is_written(profiled: Database[Documents]) -> None:
    with pytest.raises(OperationFailure) as caught:
        profiled.system.profile.drop()
    assert caught.value.code == 20
    profiled.command("profile", 0)
    profiled.system.profile.drop()
    assert profiled.list_collection_names() == []


@pytest.mark.slow
def test_a_change_stream_that_waits_is_not_slow(client: Client, database: Database[Documents]) -> None:
    with database.watch(max_await_time_ms=500) as stream:
        assert stream.try_next() is None
        database.command("profile", 1, slowms=400)
        try:
            assert stream.try_next() is None
            database.c.insert_one({})
            assert entries(database, op="getmore") == []
            database.command("profile", 2)
            assert stream.try_next() is not None
            assert stream.try_next() is None
            assert [entry["millis"] < 400 for entry in entries(database, op="getmore")] == [True, True]
        finally:
            database.command("profile", 0, slowms=100)
    lines = [json.loads(line) for line in client.admin.command("getLog", "global")["log"] if '"Slow query"' in line]
    of_stream = [line["attr"] for line in lines if line["attr"]["ns"].startswith(f"{database.name}.")]
    assert [attributes for attributes in of_stream if "getMore" in str(attributes["command"])] == []
