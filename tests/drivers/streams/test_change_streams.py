"""Change streams by PyMongo: events, resuming, invalidation, errors, transactions, time to live, waiting."""

import datetime
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import bson
import pymongo
import pytest
from pymongo.change_stream import ChangeStream
from pymongo.database import Database
from pymongo.errors import OperationFailure

import mongottl
from tests.on_nodes import drops_old_writes, own_cursors, own_fail_points
from tests.on_store import needs_one_machine
from tests.waiting import until

Documents = dict[str, Any]


def told(event: Documents) -> Documents:
    """An event without what is another in each run."""
    varying = ("_id", "clusterTime", "wallTime", "collectionUUID", "lsid", "txnNumber")
    return {name: value for name, value in event.items() if name not in varying}


def read(stream: "ChangeStream[Documents]") -> list[Documents]:
    """What the stream has now."""
    events = []
    while stream.alive and (event := stream.try_next()) is not None:
        events.append(event)
    return events


def kinds(stream: "ChangeStream[Documents]") -> list[str]:
    return [event["operationType"] for event in read(stream)]


def failure(action: Callable[[], object]) -> int | None:
    with pytest.raises(OperationFailure) as caught:
        action()
    return caught.value.code


QUICK: Documents = {"max_await_time_ms": 1}


def test_events_of_documents(database: Database[Documents]) -> None:
    coll = database.c
    ns = {"db": database.name, "coll": "c"}
    with coll.watch(**QUICK) as stream:
        coll.insert_one({"_id": 1, "a": 1})
        coll.update_one({"_id": 1}, {"$set": {"a": 2}})
        coll.update_one({"_id": 1}, {"$set": {"a": 2}})  # changes nothing
        coll.replace_one({"_id": 1}, {"b": 1})
        coll.delete_one({"_id": 1})
        events = read(stream)
    key = {"documentKey": {"_id": 1}, "ns": ns}
    changed = {"updatedFields": {"a": 2}, "removedFields": [], "truncatedArrays": []}
    assert [told(event) for event in events] == [
        {"operationType": "insert", "fullDocument": {"_id": 1, "a": 1}, **key},
        {"operationType": "update", "updateDescription": changed, **key},
        {"operationType": "replace", "fullDocument": {"_id": 1, "b": 1}, **key},
        {"operationType": "delete", **key},
    ]
    assert all(isinstance(event["clusterTime"], bson.Timestamp) for event in events)
    assert [event["_id"]["_data"] for event in events] == sorted(event["_id"]["_data"] for event in events)


BOTH = {"updatedFields": {"o.p": 3}, "removedFields": ["o.q"]}
UPDATES: list[tuple[Documents, Any, Documents]] = [
    # document, update, updateDescription
    ({"o": {"p": 1, "q": 2}}, {"$set": {"o.p": 3}, "$unset": {"o.q": 1}}, BOTH),
    ({"o": {"p": 1, "q": 2}}, {"$set": {"o": {"p": 1, "q": 3}}}, {"updatedFields": {"o": {"p": 1, "q": 3}}}),
    ({}, {"$set": {"o.p.q": 1}}, {"updatedFields": {"o": {"p": {"q": 1}}}}),
    ({"l": [1, 2]}, {"$push": {"l": 3}}, {"updatedFields": {"l.2": 3}}),
    ({"l": [1, 2]}, {"$push": {"l": {"$each": [0], "$position": 0}}}, {"updatedFields": {"l": [0, 1, 2]}}),
    ({"l": [1, 2, 3]}, {"$pop": {"l": 1}}, {"updatedFields": {"l": [1, 2]}}),
    ({"l": [1, 2, 3]}, {"$pull": {"l": 2}}, {"updatedFields": {"l": [1, 3]}}),
    ({"l": [{"a": 1}, {"a": 2}]}, {"$set": {"l.1.a": 5}}, {"updatedFields": {"l.1.a": 5}}),
    ({"l": [{"a": 1}, {"a": 2}]}, {"$inc": {"l.$[].a": 1}}, {"updatedFields": {"l.0.a": 2, "l.1.a": 3}}),
    ({"a": 1}, {"$rename": {"a": "b"}}, {"updatedFields": {"b": 1}, "removedFields": ["a"]}),
    ({"l": [1, 2, 3], "o": {"p": 1, "q": 2}}, [{"$set": {"l": [1], "o.q": 3}}],
     {"updatedFields": {"o.q": 3}, "truncatedArrays": [{"field": "l", "newSize": 1}]}),
    ({"a": 1}, [{"$unset": "a"}, {"$set": {"b": [1]}}], {"updatedFields": {"b": [1]}, "removedFields": ["a"]}),
]  # fmt: skip


@pytest.mark.parametrize(("document", "update", "description"), UPDATES, ids=[str(u) for _, u, _ in UPDATES])
def test_update_descriptions(
    database: Database[Documents], document: Documents, update: Any, description: Documents
) -> None:
    database.c.insert_one({"_id": 1, **document})
    with database.c.watch(**QUICK) as stream:
        database.c.update_one({"_id": 1}, update)
        (event,) = read(stream)
    empty: Documents = {"updatedFields": {}, "removedFields": [], "truncatedArrays": []}
    assert event["updateDescription"] == empty | description


def test_disambiguated_paths(database: Database[Documents]) -> None:
    database.c.insert_one({"_id": 1, "o": {"0": 1}})
    with database.c.watch(show_expanded_events=True, **QUICK) as stream:
        database.c.update_one({"_id": 1}, {"$set": {"o.0": 2}})
        (event,) = read(stream)
    assert event["updateDescription"]["disambiguatedPaths"] == {"o.0": ["o", "0"]}


def test_full_documents(database: Database[Documents]) -> None:
    database.c.insert_one({"_id": 1, "n": 0})
    with database.c.watch(full_document="updateLookup", **QUICK) as stream:
        database.c.update_one({"_id": 1}, {"$inc": {"n": 1}})
        database.c.update_one({"_id": 1}, {"$inc": {"n": 1}})
        assert [event["fullDocument"] for event in read(stream)] == [{"_id": 1, "n": 2}] * 2
        database.c.update_one({"_id": 1}, {"$inc": {"n": 1}})
        database.c.delete_one({"_id": 1})
        assert read(stream)[0]["fullDocument"] is None


def test_full_documents_are_looked_up_for_the_page_that_has_them(database: Database[Documents]) -> None:
    """Not when the events were read from the oplog, of which there are more than the page takes."""
    database.c.insert_many([{"_id": i, "n": 0} for i in range(5)])
    with database.c.watch(full_document="updateLookup", batch_size=2, **QUICK) as stream:
        database.c.update_many({}, {"$inc": {"n": 1}})
        told = [next(stream)["fullDocument"] for _ in range(2)]
        database.c.update_one({"_id": 3}, {"$inc": {"n": 1}})
        database.c.delete_one({"_id": 4})
        told += [next(stream)["fullDocument"] for _ in range(3)]
    assert told == [*({"_id": i, "n": 1} for i in range(3)), {"_id": 3, "n": 2}, None]


def test_a_missing_image_fails_the_page_that_needs_it(database: Database[Documents]) -> None:
    database.create_collection("c")
    with database.c.watch(full_document="required", batch_size=3, **QUICK) as stream:
        database.c.insert_many([{"_id": i} for i in range(3)])
        database.c.update_one({"_id": 0}, {"$set": {"n": 1}})
        assert [next(stream)["documentKey"]["_id"] for _ in range(3)] == [0, 1, 2]
        with pytest.raises(OperationFailure, match="post-image was not found") as raised:
            next(stream)
    assert raised.value.code == 47


def test_images(database: Database[Documents]) -> None:
    database.create_collection("c", changeStreamPreAndPostImages={"enabled": True})
    database.plain.insert_one({"_id": 1})
    options: Documents = {"full_document": "whenAvailable", "full_document_before_change": "whenAvailable"}
    with database.watch(**options, **QUICK) as stream:
        database.c.insert_one({"_id": 1, "n": 1})
        database.c.update_one({"_id": 1}, {"$inc": {"n": 1}})
        database.c.update_one({"_id": 1}, {"$inc": {"n": 1}})
        database.c.delete_one({"_id": 1})
        database.plain.update_one({"_id": 1}, {"$set": {"n": 1}})
        events = read(stream)
    assert [event.get("fullDocumentBeforeChange") for event in events] == [
        None, {"_id": 1, "n": 1}, {"_id": 1, "n": 2}, {"_id": 1, "n": 3}, None,
    ]  # fmt: skip
    assert [event.get("fullDocument") for event in events[1:3]] == [{"_id": 1, "n": 2}, {"_id": 1, "n": 3}]
    required: list[Documents] = [{"full_document": "required"}, {"full_document_before_change": "required"}]
    for option in required:
        with database.plain.watch(**option, **QUICK) as stream:
            database.plain.update_one({"_id": 1}, {"$inc": {"n": 1}})
            assert failure(stream.try_next) == 47


def test_images_that_have_expired(
    database: Database[Documents], client: "pymongo.MongoClient[Documents]", server: mongottl.RunningServer
) -> None:
    database.create_collection("c", changeStreamPreAndPostImages={"enabled": True})
    database.c.insert_one({"_id": 1})
    both: Documents = {"full_document": "whenAvailable", "full_document_before_change": "whenAvailable"}
    kept: Documents = {"preAndPostImages": {"expireAfterSeconds": 1000}}
    client.admin.command("setClusterParameter", {"changeStreamOptions": kept})
    try:
        with database.c.watch(**QUICK) as stream:
            token = stream.resume_token
        database.c.update_one({"_id": 1}, {"$set": {"n": 1}})
        server.clock.advance(900)
        database.c.update_one({"_id": 1}, {"$set": {"n": 2}})
        for advance, images in ((0, [True, True]), (200, [False, True]), (900, [False, False])):
            server.clock.advance(advance)
            with database.c.watch(resume_after=token, **both, **QUICK) as stream:
                events = read(stream)
            assert [event["fullDocument"] is not None for event in events] == images
            assert [event["fullDocumentBeforeChange"] is not None for event in events] == images
        for option in both:
            required: Documents = {"resume_after": token, option: "required"}
            assert failure(lambda required=required: database.c.watch(**required)) == 47  # type: ignore[misc]
    finally:
        forever = {"preAndPostImages": {"expireAfterSeconds": "off"}}
        client.admin.command("setClusterParameter", {"changeStreamOptions": forever})


def test_documents_displaced_from_a_capped_collection(database: Database[Documents]) -> None:
    database.create_collection("c", capped=True, size=100_000, max=2)
    with database.c.watch(**QUICK) as stream:
        database.c.insert_many([{"_id": i} for i in range(3)])
        database.c.insert_one({"_id": 3})
        events = read(stream)
    assert [(event["operationType"], event["documentKey"]["_id"]) for event in events] == [
        ("insert", 0), ("insert", 1), ("insert", 2), ("delete", 0), ("insert", 3), ("delete", 1),
    ]  # fmt: skip
    with database.c.watch(resume_after=events[3]["_id"], **QUICK) as stream:
        assert read(stream) == events[4:]


def test_time_series_collections_are_not_watched(database: Database[Documents]) -> None:
    database.create_collection("t", timeseries={"timeField": "t"})
    assert failure(database.t.watch) == 166
    with database.watch(**QUICK) as stream:
        database.t.insert_one({"t": datetime.datetime.now(datetime.UTC)})
        assert read(stream) == []


def test_streams_watch_a_collection_a_database_or_all(
    database: Database[Documents], client: "pymongo.MongoClient[Documents]"
) -> None:
    other = client[database.name + "_2"]
    with database.c.watch(**QUICK) as one, database.watch(**QUICK) as some, client.watch(**QUICK) as all_of_them:
        for collection in (database.c, database.d, other.e):
            collection.insert_one({"_id": collection.name})
        seen = [[event["documentKey"]["_id"] for event in read(stream)] for stream in (one, some, all_of_them)]
    assert seen == [["c"], ["c", "d"], ["c", "d", "e"]]
    client.drop_database(other.name)


def test_invalidation(database: Database[Documents], client: "pymongo.MongoClient[Documents]") -> None:
    database.c.insert_one({})
    with database.c.watch(**QUICK) as stream, database.watch(**QUICK) as of_database:
        database.c.rename("d")
        assert kinds(stream) == ["rename", "invalidate"]
        assert not stream.alive
        token = stream.resume_token
        assert failure(lambda: database.c.watch(resume_after=token)) == 260
        with database.c.watch(start_after=token, **QUICK) as next_one:
            database.c.insert_one({})
            database.c.drop()
            assert kinds(next_one) == ["insert", "drop", "invalidate"]
        client.drop_database(database.name)
        assert kinds(of_database) == ["rename", "insert", "drop", "drop", "dropDatabase", "invalidate"]


def test_expanded_events(database: Database[Documents]) -> None:
    with database.watch(show_expanded_events=True, **QUICK) as stream:
        database.c.insert_one({"_id": 1})
        database.c.create_index("a")
        database.c.drop_index("a_1")
        database.c.rename("d")
        events = read(stream)
    assert [event["operationType"] for event in events] == [
        "create", "insert", "createIndexes", "dropIndexes", "rename",
    ]  # fmt: skip
    assert len({event["collectionUUID"] for event in events}) == 1
    with database.d.watch(show_expanded_events=True, **QUICK) as stream:
        database.d.create_indexes([pymongo.IndexModel("b"), pymongo.IndexModel("c")])
        database.d.drop_indexes()
        lists = [event["operationDescription"]["indexes"] for event in read(stream)]
    assert [[index["name"] for index in indexes] for indexes in lists] == [["b_1", "c_1"], ["b_1"], ["c_1"]]
    assert events[2]["operationDescription"]["indexes"][0]["name"] == "a_1"


@needs_one_machine
def test_indexes_that_a_transaction_creates(
    database: Database[Documents], client: "pymongo.MongoClient[Documents]"
) -> None:
    with database.watch(show_expanded_events=True, **QUICK) as stream:
        with client.start_session() as session, session.start_transaction():
            database.c.create_index("a", session=session)
            database.c.insert_one({"_id": 1}, session=session)
            database.d.insert_one({"_id": 1}, session=session)
        events = read(stream)
    assert [(event["operationType"], event["ns"]["coll"]) for event in events] == [
        ("create", "c"), ("createIndexes", "c"), ("create", "d"), ("insert", "c"), ("insert", "d"),
    ]  # fmt: skip
    assert [index["name"] for index in events[1]["operationDescription"]["indexes"]] == ["a_1"]
    names = [
        next(iter(entry["o"]))
        for entry in client.local["oplog.rs"].find({"ns": f"{database.name}.$cmd", "o.createIndexes": "c"})
    ]
    assert names == ["createIndexes"]


def test_resuming(database: Database[Documents]) -> None:
    coll = database.c
    with coll.watch(**QUICK) as stream:
        at_first = stream.resume_token
        coll.insert_many([{"_id": i} for i in range(10)])
        coll.update_many({}, {"$set": {"n": 1}})
        events = read(stream)
    assert len(events) == 20
    for i in (0, 4, 9, 10, 15, 18, 19):
        for option in ("resume_after", "start_after"):
            with coll.watch(**{option: events[i]["_id"]}, **QUICK) as again:
                assert read(again) == events[i + 1 :]
    with coll.watch(resume_after=at_first, **QUICK) as again:
        assert read(again) == events
    with coll.watch(start_at_operation_time=events[10]["clusterTime"], **QUICK) as again:
        assert read(again) == events[10:]


@pytest.mark.parametrize("option", ["resume_after", "start_after"])
def test_tokens_of_other_streams(database: Database[Documents], option: str) -> None:
    with database.watch(show_expanded_events=True, **QUICK) as stream:
        database.d.insert_one({"_id": 1})
        created, foreign = [event["_id"] for event in read(stream)]
    for coll, token in ((database.e, created), (database.f, foreign)):
        with coll.watch(**{option: token}, **QUICK) as stream:
            assert read(stream) == []
            coll.insert_one({})
            assert failure(stream.try_next) == 280
    with database.d.watch(show_expanded_events=True, **{option: created}, **QUICK) as stream:
        assert kinds(stream) == ["insert"]


def test_forms_of_one_token(database: Database[Documents]) -> None:
    with database.c.watch(**QUICK) as stream:
        database.c.insert_many([{"_id": 1}, {"_id": 2}])
        data = read(stream)[0]["_id"]["_data"]
    forms: list[Documents] = [
        {"_data": data.lower()},
        {"_data": data[:-2]},
        {"_data": data + "FF"},
        {"_data": data, "_typeBits": b"\0", "other": 1},
    ]
    for form in forms:
        with database.c.watch(resume_after=form, **QUICK) as stream:
            assert [event["documentKey"] for event in read(stream)] == [{"_id": 2}]
    assert failure(lambda: database.c.watch(resume_after={"_data": data[:-4]})) == 15


def test_tokens_have_the_form_of_mongodb(database: Database[Documents]) -> None:
    oid = bson.ObjectId("67ab8567a1dfb1ab7e2dbaa7")
    with database.watch(**QUICK) as stream:
        database.c.insert_one({"_id": oid})
        database.c.insert_one({"_id": 1})
        database.c.drop()
        tokens = [event["_id"]["_data"][18:] for event in read(stream)]
    member, key = b"operationType".hex().upper(), b"documentKey".hex().upper()
    begin, inserted = "2B042C0100296E5A1004", f"463C{member}003C696E7365727400"
    assert tokens[0].startswith(begin)
    assert [token[52:] for token in tokens] == [
        f"{inserted}46{key}0046645F69640064{str(oid).upper()}000004",
        f"{inserted}46{key}00461E5F6964002B02000004",
        f"463C{member}003C64726F70000004",
    ]


def test_starting_before_everything() -> None:
    """On a server of its own, since that of the other tests may have dropped the beginning of its oplog."""
    with mongottl.start_server() as server, pymongo.MongoClient[Documents](server.uri) as client:
        client.test.c.insert_one({"_id": 1})
        for at in (bson.Timestamp(0, 0), bson.Timestamp(1, 2**32 - 1)):
            with client.test.c.watch(start_at_operation_time=at, **QUICK) as stream:
                assert kinds(stream) == ["insert"]


def test_starting_in_the_future(database: Database[Documents], server: mongottl.RunningServer) -> None:
    now = database.command("ping")["operationTime"]
    later = bson.Timestamp(now.time + 1000, 1)
    with database.c.watch(start_at_operation_time=later, **QUICK) as stream:
        token = stream.resume_token
        database.c.insert_one({"_id": "before"})
        assert read(stream) == []
        assert stream.resume_token == token
        with database.c.watch(resume_after=token, **QUICK) as again:
            server.clock.advance(1000)
            database.c.insert_one({"_id": "after"})
            for each in (stream, again):
                assert [event["documentKey"]["_id"] for event in read(each)] == ["after"]


@own_cursors
def test_comparisons_ignore_the_collation_of_the_collection(database: Database[Documents]) -> None:
    database.create_collection("c", collation={"locale": "en", "strength": 2})
    pipeline: list[Documents] = [{"$changeStream": {}}, {"$match": {"fullDocument.s": "A"}}]
    given: list[tuple[Documents, int]] = [({}, 0), ({"collation": {"locale": "en", "strength": 2}}, 1)]
    for options, told_of in given:
        reply = database.command({"aggregate": "c", "pipeline": pipeline, "cursor": {}, **options})
        database.c.insert_one({"s": "a"})
        more: Documents = {"getMore": reply["cursor"]["id"], "collection": "c", "maxTimeMS": 1}
        assert len(database.command(more)["cursor"]["nextBatch"]) == told_of
        database.command("killCursors", "c", cursors=[reply["cursor"]["id"]])


@own_fail_points
@own_cursors
def test_labels_of_errors(database: Database[Documents], client: "pymongo.MongoClient[Documents]") -> None:
    with database.c.watch([{"$project": {"_id": 0}}], **QUICK) as stream:
        database.c.insert_one({})
        with pytest.raises(OperationFailure) as caught:
            stream.try_next()
    assert caught.value.has_error_label("NonResumableChangeStreamError")
    reply = database.command("aggregate", "c", pipeline=[{"$changeStream": {}}], cursor={})
    fail: Documents = {"mode": {"times": 1}, "data": {"errorCode": 6, "closeConnection": False}}
    client.admin.command("configureFailPoint", "failGetMoreAfterCursorCheckout", **fail)
    more = bson.SON([("getMore", reply["cursor"]["id"]), ("collection", "c")])
    with pytest.raises(OperationFailure) as failed:
        database.command(more)
    assert failed.value.has_error_label("ResumableChangeStreamError")
    assert failure(lambda: database.command(more)) == 43


def test_views(database: Database[Documents]) -> None:
    with database.watch(show_expanded_events=True, **QUICK) as expanded, database.watch(**QUICK) as plain:
        database.command("create", "v", viewOn="c", pipeline=[{"$match": {"a": 1}}])
        database.command("collMod", "v", viewOn="c", pipeline=[])
        database.v.drop()
        events = [told(event) for event in read(expanded)]
        assert kinds(plain) == []
    ns = {"db": database.name, "coll": "v"}
    described = {"viewOn": "c", "pipeline": [{"$match": {"a": 1}}]}
    assert events == [
        {"operationType": "create", "ns": ns, "nsType": "view", "operationDescription": described},
        {"operationType": "modify", "ns": ns, "operationDescription": {"viewOn": "c", "pipeline": []}},
        {"operationType": "drop", "ns": ns},
    ]


def test_types_of_created_collections(database: Database[Documents]) -> None:
    with database.watch(show_expanded_events=True, **QUICK) as stream:
        database.create_collection("c")
        database.create_collection("t", timeseries={"timeField": "t"})
        assert [event["nsType"] for event in read(stream)] == ["collection", "timeseries"]


def test_changed_indexes(database: Database[Documents]) -> None:
    database.c.create_index("a")
    changes: list[tuple[Documents, Documents]] = [
        ({"name": "a_1", "hidden": True}, {"hidden": False}),
        ({"keyPattern": {"a": 1}, "expireAfterSeconds": 10}, {}),
        ({"name": "a_1", "expireAfterSeconds": 20}, {"expireAfterSeconds": 10}),
        ({"name": "a_1", "prepareUnique": True}, {"prepareUnique": False}),
        ({"name": "a_1", "unique": True}, {}),
    ]
    with database.c.watch(show_expanded_events=True, **QUICK) as stream:
        for change, _ in changes:
            database.command("collMod", "c", index=change)
        events = read(stream)
    for event, (change, before) in zip(events, changes, strict=True):
        assert event["operationType"] == "modify"
        told_change = {"name": "a_1", **{k: v for k, v in change.items() if k not in ("name", "keyPattern")}}
        assert event["operationDescription"] == {"index": told_change}
        options = {"uuid": event["collectionUUID"]}
        assert event["stateBeforeChange"] == {"collectionOptions": options, "indexOptions": before}


def test_changed_options(database: Database[Documents]) -> None:
    database.create_collection("c", validator={"x": 1})
    with database.c.watch(show_expanded_events=True, **QUICK) as stream, database.c.watch(**QUICK) as plain:
        database.command("collMod", "c")
        database.command("collMod", "c", validator={"x": 2}, validationLevel="moderate")
        first, second = read(stream)
        assert kinds(plain) == []
    before = {"collectionOptions": {"uuid": first["collectionUUID"], "validator": {"x": 1}}}
    assert (first["operationDescription"], first["stateBeforeChange"]) == ({}, before)
    assert second["operationDescription"] == {"validator": {"x": 2}, "validationLevel": "moderate"}
    assert second["stateBeforeChange"]["collectionOptions"]["validator"] == {"x": 1}


def test_renaming_over_another_collection(database: Database[Documents]) -> None:
    database.c.insert_one({})
    database.d.insert_one({})
    replaced = next(database.list_collections(filter={"name": "d"}))["info"]["uuid"]
    to = {"db": database.name, "coll": "d"}
    with database.watch(show_expanded_events=True, **QUICK) as stream, database.d.watch(**QUICK) as of_replaced:
        database.c.rename("d", dropTarget=True)
        (event,) = read(stream)
        assert kinds(of_replaced) == ["rename", "invalidate"]
    assert event["operationDescription"] == {"to": to, "dropTarget": replaced}
    assert event["to"] == to


def test_pipelines(database: Database[Documents]) -> None:
    pipeline: list[Documents] = [
        {"$match": {"operationType": "insert", "fullDocument.n": {"$gte": 2}}},
        {"$addFields": {"n": "$fullDocument.n"}},
        {"$project": {"n": 1}},
    ]
    with database.c.watch(pipeline, **QUICK) as stream:
        database.c.insert_many([{"n": i} for i in range(4)])
        database.c.delete_many({})
        before = stream.resume_token
        events = read(stream)
        assert [event["n"] for event in events] == [2, 3]
        after = stream.resume_token
        assert before is not None and after is not None
        assert after["_data"] > events[-1]["_id"]["_data"] > before["_data"]
    for wrong in ([{"$project": {"_id": 0}}], [{"$addFields": {"_id": 1}}], [{"$replaceRoot": {"newRoot": "$ns"}}]):
        with database.c.watch(wrong, **QUICK) as stream:
            database.c.insert_one({})
            assert failure(stream.try_next) == 280


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"fullDocument": "other"}, 2),
        ({"fullDocumentBeforeChange": "default"}, 2),
        ({"fullDocument": 1}, 14),
        ({"unknown": 1}, 40415),
        ({"resumeAfter": 1}, 14),
        ({"resumeAfter": {"_data": "xyz"}}, 9),
        ({"resumeAfter": {"_data": "abc"}}, 9),
        ({"resumeAfter": {"_data": "82 00"}}, 9),
        ({"resumeAfter": {"_data": ""}}, 40649),
        ({"startAfter": {"_data": "00"}}, 50811),
        ({"startAfter": {"_data": "82"}}, 15),
        ({"startAfter": {"_data": "8264AAB7C000000001"}}, 260),
        ({"startAfter": {"_data": "8264AAB7C0000000012B0204"}}, 260),
        ({"startAfter": {"_data": "00", "_typeBits": "x"}}, 40648),
        ({"resumeAfter": {}}, 40647),
        ({"fullDocument": "default", "resumeAfter": []}, 14),
        ({"showExpandedEvents": None}, 14),
        ({"startAtOperationTime": 1}, 14),
        ({"allChangesForCluster": True}, 72),
        ({"showRawUpdateDescription": True}, 115),
    ],
)
def test_arguments(database: Database[Documents], arguments: Documents, code: int) -> None:
    assert failure(lambda: database.c.aggregate([{"$changeStream": arguments}])) == code


@pytest.mark.parametrize(
    "option", ["fullDocument", "fullDocumentBeforeChange", "resumeAfter", "startAfter", "startAtOperationTime"]
)
def test_options_that_may_be_null(database: Database[Documents], option: str) -> None:
    with database.c.watch(**QUICK) as stream:
        token = stream.resume_token
    other = "startAfter" if option == "resumeAfter" else "resumeAfter"
    database.c.aggregate([{"$changeStream": {other: token, option: None}}]).close()


def test_the_only_read_concern_is_majority(database: Database[Documents]) -> None:
    for level in ("local", "available", "linearizable", "snapshot"):
        coll = database.get_collection("c", read_concern=pymongo.read_concern.ReadConcern(level))
        assert failure(coll.watch) == 72
    database.get_collection("c", read_concern=pymongo.read_concern.ReadConcern("majority")).watch().close()


def test_transactions_cannot_open_streams(
    database: Database[Documents], client: "pymongo.MongoClient[Documents]"
) -> None:
    with client.start_session() as session:
        session.start_transaction()
        assert failure(lambda: database.c.aggregate([{"$changeStream": {}}], session=session)) == 263
        session.abort_transaction()


def test_options_that_are_not_in_the_stable_api(database: Database[Documents]) -> None:
    strict: Documents = {"cursor": {}, "apiVersion": "1", "apiStrict": True}
    for value in (True, False):
        pipeline = [{"$changeStream": {"showExpandedEvents": value}}]
        command = {"aggregate": "c", "pipeline": pipeline, **strict}
        assert failure(lambda command=command: database.command(command)) == 323  # type: ignore[misc]


def test_starting_points_exclude_each_other(database: Database[Documents]) -> None:
    with database.c.watch(**QUICK) as stream:
        token = stream.resume_token
    at = bson.Timestamp(1, 1)
    both: Documents = {"resumeAfter": token, "startAfter": token}
    assert failure(lambda: database.c.aggregate([{"$changeStream": both}])) == 50865
    both = {"resumeAfter": token, "startAtOperationTime": at}
    assert failure(lambda: database.c.aggregate([{"$changeStream": both}])) == 40674


@pytest.mark.parametrize(
    ("pipeline", "code"),
    [
        ([{"$changeStream": 1}], 6188500),
        ([{"$changeStream": []}], 6188500),
        ([{"$changeStream": {}}, {"$changeStreamSplitLargeEvent": {}}, {"$match": {}}], 40601),
        ([{"$changeStream": {}}, {"$changeStreamSplitLargeEvent": {"a": 1}}], 7182800),
        ([{"$match": {}}, {"$changeStreamSplitLargeEvent": {}}], 20),
        ([{"$facet": {"x": [{"$changeStreamSplitLargeEvent": {}}]}}], 40600),
        ([{"$match": {}}, {"$changeStream": {}}], 40602),
        ([{"$changeStream": {}}, {"$group": {"_id": 1}}], 20),
        ([{"$changeStream": {}}, {"$sort": {"a": 1}}], 20),
        ([{"$changeStream": {}}, {"$limit": 1}], 20),
        ([{"$changeStream": {}}, {"$lookup": {"from": "d", "pipeline": [], "as": "x"}}], 20),
        ([{"$changeStream": {}}, {"$out": "d"}], 20),
        ([{"$facet": {"x": [{"$changeStream": {}}]}}], 40600),
    ],
)
def test_pipelines_that_are_refused(database: Database[Documents], pipeline: list[Documents], code: int) -> None:
    assert failure(lambda: database.c.aggregate(pipeline)) == code


def test_namespaces_that_are_refused(client: "pymongo.MongoClient[Documents]", database: Database[Documents]) -> None:
    for name in ("admin", "config", "local"):
        assert failure(lambda name=name: client[name].watch()) == 73  # type: ignore[misc]
    assert failure(lambda: database["system.views"].watch()) == 73
    database.command("create", "view", viewOn="c", pipeline=[])
    assert failure(lambda: database.view.watch()) == 166


@needs_one_machine
def test_a_transaction_is_told_at_its_commit(
    database: Database[Documents], client: "pymongo.MongoClient[Documents]"
) -> None:
    database.d.insert_one({"_id": 1})
    with database.watch(**QUICK) as stream, client.start_session() as session:
        lsid = session.session_id["id"]
        session.start_transaction()
        database.c.insert_one({"_id": 1}, session=session)
        database.d.update_one({"_id": 1}, {"$set": {"n": 1}}, session=session)
        database.d.delete_one({"_id": 1}, session=session)
        database.e.insert_one({"_id": 1})
        assert [event["ns"]["coll"] for event in read(stream)] == ["e"]
        session.commit_transaction()
        events = read(stream)
        session.start_transaction()
        database.c.insert_one({"_id": 2}, session=session)
        session.abort_transaction()
        assert read(stream) == []
    assert [event["operationType"] for event in events] == ["insert", "update", "delete"]
    assert len({event["clusterTime"] for event in events}) == 1
    assert {event["lsid"]["id"] for event in events} == {lsid}
    for i in range(3):
        with database.watch(resume_after=events[i]["_id"], **QUICK) as again:
            assert read(again) == events[i + 1 :]


def test_expired_documents_are_deletes(database: Database[Documents], server: mongottl.RunningServer) -> None:
    database.c.create_index("_ts", expireAfterSeconds=10)
    with database.c.watch(**QUICK) as stream:
        database.c.insert_many([{"_id": 1}, {"_id": 2, "ttl": 100}])
        server.clock.advance(11)
        events = read(stream)
    assert [(event["operationType"], event["documentKey"]["_id"]) for event in events] == [
        ("insert", 1), ("insert", 2), ("delete", 1),
    ]  # fmt: skip


def test_a_stream_waits_for_events(database: Database[Documents]) -> None:
    with database.c.watch(max_await_time_ms=20_000) as stream:
        timer = threading.Timer(0.05, lambda: database.c.insert_one({"_id": 1}))
        timer.start()
        assert next(stream)["documentKey"] == {"_id": 1}
        timer.join()


def test_writes_elsewhere_advance_the_token_of_a_stream_that_waits(database: Database[Documents]) -> None:
    other = database.client[database.name + "_2"]
    waits: Documents = {"currentOp": 1, "op": "getmore", "ns": {"$regex": f"^{database.name}\\."}}

    def token_advances(stream: ChangeStream[Documents]) -> bool:
        """By a write that another client makes while the stream waits."""
        ended = threading.Event()

        def write() -> None:
            until(lambda: ended.is_set() or database.client.admin.command(waits)["inprog"])
            other.d.insert_one({})

        assert stream.try_next() is None  # earlier writes have advanced the token by now
        before = stream.resume_token
        writer = threading.Thread(target=write)
        writer.start()
        assert stream.try_next() is None
        ended.set()
        writer.join()
        assert before is not None and stream.resume_token is not None
        return bool(stream.resume_token["_data"] > before["_data"])

    for watch in (database.c.watch, database.watch):
        with watch(max_await_time_ms=100) as stream:
            # The write comes too late if this process stands still while the stream waits.
            until(partial(token_advances, stream))
            database.c.insert_one({})
            assert kinds(stream) == ["insert"]
    database.client.drop_database(other.name)


def test_renames_wake_those_who_watch_the_new_name(database: Database[Documents]) -> None:
    database.c.insert_one({})
    admin = database.client.admin
    other = database.client[database.name + "_2"]
    for source, to, watch in (
        (f"{database.name}.c", f"{database.name}.d", database.d.watch),
        (f"{database.name}.d", f"{other.name}.e", other.watch),
    ):
        with watch(max_await_time_ms=20_000) as stream:
            timer = threading.Timer(0.05, lambda a=source, b=to: admin.command("renameCollection", a, to=b))
            timer.start()
            assert next(stream)["operationType"] == "rename"
            timer.join()
    database.client.drop_database(other.name)


def test_out_invalidates_the_streams_of_its_collection(database: Database[Documents]) -> None:
    database.c.insert_one({"_id": 1})
    for name in ("new", "old"):
        if name == "old":
            database[name].insert_one({})
        with database[name].watch(**QUICK) as stream:
            list(database.c.aggregate([{"$out": name}]))
            assert kinds(stream) == ["rename", "invalidate"]


def test_many_events_in_pages(database: Database[Documents]) -> None:
    with database.c.watch(batch_size=7, **QUICK) as stream:
        database.c.insert_many([{"_id": i, "x": "x" * 1000} for i in range(3000)])
        assert [event["documentKey"]["_id"] for event in read(stream)] == list(range(3000))


MIB = 1 << 20
SPLIT: list[Documents] = [{"$changeStreamSplitLargeEvent": {}}]


def test_events_larger_than_a_document(database: Database[Documents]) -> None:
    database.create_collection("c", changeStreamPreAndPostImages={"enabled": True})
    database.c.insert_one({"_id": 1, "value": "q" * 10 * MIB})
    images: Documents = {"full_document_before_change": "required", **QUICK}
    with (
        database.c.watch(**images) as plain,
        database.c.watch(SPLIT, **images) as split,
        database.c.watch([{"$project": {"both": ["$fullDocumentBeforeChange", "$updateDescription"]}}, *SPLIT],
                         **images) as one_field,
    ):  # fmt: skip
        database.c.update_one({"_id": 1}, {"$set": {"value": "z" * 10 * MIB}})
        database.c.insert_one({"_id": 2})
        assert failure(plain.try_next) == 10334
        assert failure(one_field.try_next) == 10334
        first, second, small = read(split)
    assert [event.pop("splitEvent") for event in (first, second)] == [
        {"fragment": 1, "of": 2}, {"fragment": 2, "of": 2},
    ]  # fmt: skip
    assert "splitEvent" not in small
    assert {"operationType", "ns", "documentKey", "clusterTime", "wallTime"} < set(first)
    assert not (set(first) & set(second)) - {"_id"}
    assert set(first | second) >= {"updateDescription", "fullDocumentBeforeChange"}
    assert first["_id"]["_data"] < second["_id"]["_data"] < small["_id"]["_data"]
    for i, token in enumerate((first["_id"], second["_id"])):
        with database.c.watch(SPLIT, resume_after=token, **images) as again:
            assert [event["_id"] for event in read(again)] == [second["_id"], small["_id"]][i:]
        assert failure(lambda token=token: database.c.watch(resume_after=token)) == 280  # type: ignore[misc]


@drops_old_writes
def test_history_that_is_lost() -> None:
    with mongottl.start_server() as server, pymongo.MongoClient[Documents](server.uri) as client:
        with client.test.c.watch(**QUICK) as stream:
            token = stream.resume_token
            client.test.c.insert_many([{"x": "x" * 1_000_000} for _ in range(80)])
            assert failure(stream.try_next) == 286
        assert failure(lambda: client.test.c.watch(resume_after=token)) == 286


def test_writes_before_a_restart_are_told_to_those_who_resume(tmp_path: Any) -> None:
    folder = str(tmp_path / "data")
    with (
        mongottl.start_server(data_dir=folder) as server,
        pymongo.MongoClient[Documents](server.uri) as client,
        client.test.c.watch(**QUICK) as stream,
    ):
        client.test.c.insert_one({"_id": 1})
        token = read(stream)[0]["_id"]
        client.test.c.delete_one({"_id": 1})
    with mongottl.start_server(data_dir=folder) as server, pymongo.MongoClient[Documents](server.uri) as client:
        with client.test.c.watch(resume_after=token, **QUICK) as stream:
            assert kinds(stream) == ["delete"]
        with client.test.c.watch(**QUICK) as stream:
            client.test.c.insert_one({"_id": 2})
            assert kinds(stream) == ["insert"]
