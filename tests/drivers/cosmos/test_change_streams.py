"""Change streams of the dialect `cosmos`: the one pipeline, and what is told of which changes.

By Microsoft's articles on change streams and extension commands, and by what users of the service report.
"""

import json
from pathlib import Path
from typing import Any

import pymongo
import pytest
from bson import Binary, Timestamp
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

import mongottl
from tests.on_nodes import own_account

Documents = dict[str, Any]
Client = pymongo.MongoClient[Documents]

RULE = "Change stream must be followed by a match and then a project stage"
TYPES = {"operationType": {"$in": ["insert", "update", "replace"]}}
MATCH: Documents = {"$match": TYPES}
PROJECT: Documents = {"$project": {"_id": 1, "fullDocument": 1, "ns": 1, "documentKey": 1}}
STREAM: Documents = {"$changeStream": {"fullDocument": "updateLookup"}}


@pytest.fixture
def orders(account: Client) -> Collection[Documents]:
    account.shop.command("create", "orders")
    return account.shop.orders


def watch(collection: Collection[Documents], match: Documents = MATCH, **options: Any) -> Any:
    return collection.watch([match, PROJECT], full_document="updateLookup", max_await_time_ms=1, **options)


def told(stream: Any) -> list[Documents]:
    """The events until there is none."""
    events = []
    while (event := stream.try_next()) is not None:
        events.append(event)
    return events


def refusal(client: Client, pipeline: list[Documents], named: Any = "orders") -> tuple[Any, Any]:
    with pytest.raises(OperationFailure) as caught:
        client.shop.command("aggregate", named, pipeline=pipeline, cursor={})
    assert caught.value.details is not None
    return caught.value.details["code"], caught.value.details["errmsg"]


def test_an_event(orders: Collection[Documents]) -> None:
    with watch(orders) as stream:
        orders.insert_one({"_id": 1, "n": 1})
        (event,) = told(stream)
    assert list(event) == ["_id", "fullDocument", "ns", "documentKey"]
    assert event["fullDocument"] == {"_id": 1, "n": 1}
    assert event["ns"] == {"db": "shop", "coll": "orders"}
    assert event["documentKey"] == {"_id": 1}
    token = event["_id"]
    assert list(token) == ["_data", "_kind"]
    assert token["_kind"] == 1
    state = json.loads(Binary(token["_data"]))
    assert (state["V"], list(state)) == (2, ["V", "Rid", "Continuation"])
    (partition,) = state["Continuation"]
    assert partition["FeedRange"] == {"type": "Effective Partition Key Range", "value": {"min": "", "max": "FF"}}
    assert partition["State"]["type"] == "continuation"


def test_updates_and_replacements_are_told_and_deletions_are_not(orders: Collection[Documents]) -> None:
    orders.insert_many([{"_id": 1}, {"_id": 2}, {"_id": 3}])
    with watch(orders) as stream:
        orders.update_one({"_id": 1}, {"$set": {"n": 1}})
        orders.replace_one({"_id": 2}, {"n": 2})
        orders.delete_one({"_id": 3})
        orders.update_one({"_id": 4}, {"$set": {"n": 4}}, upsert=True)
        events = told(stream)
        assert [event["fullDocument"] for event in events] == [
            {"_id": 1, "n": 1},
            {"_id": 2, "n": 2},
            {"_id": 4, "n": 4},
        ]
        orders.delete_many({})
        assert told(stream) == []
        orders.insert_one({"_id": 5})
        assert [event["documentKey"] for event in told(stream)] == [{"_id": 5}]


def test_only_the_latest_version_is_told(orders: Collection[Documents]) -> None:
    with watch(orders) as stream:
        orders.insert_one({"_id": 1, "n": 1})
        orders.insert_one({"_id": 2})
        orders.update_one({"_id": 1}, {"$set": {"n": 2}})
        orders.insert_one({"_id": 3})
        orders.delete_one({"_id": 3})
        assert [event["fullDocument"] for event in told(stream)] == [{"_id": 2}, {"_id": 1, "n": 2}]


def test_expired_documents_are_not_told(orders: Collection[Documents], cosmos: mongottl.RunningServer) -> None:
    orders.create_index("_ts", expireAfterSeconds=10)
    with watch(orders) as stream:
        orders.insert_one({"_id": 1})
        orders.insert_one({"_id": 2, "ttl": 100})
        cosmos.clock.advance(10)
        assert [event["documentKey"]["_id"] for event in told(stream)] == [2]
        cosmos.clock.advance(100)
        assert told(stream) == []


@pytest.mark.parametrize(
    "pipeline",
    [
        [STREAM],
        [STREAM, MATCH],
        [STREAM, PROJECT],
        [STREAM, PROJECT, MATCH],
        [STREAM, MATCH, PROJECT, {"$addFields": {"a": 1}}],
        [STREAM, MATCH, {"$addFields": {"a": 1}}, PROJECT],
        [{"$changeStream": {}}, MATCH, PROJECT],
        [{"$changeStream": {"fullDocument": "default"}}, MATCH, PROJECT],
        [STREAM, MATCH, {"$project": {"operationType": 1}}],
        [STREAM, MATCH, {"$project": {"updateDescription.updatedFields": 1}}],
    ],
)
def test_other_pipelines_are_refused(account: Client, orders: Collection[Documents], pipeline: list[Documents]) -> None:
    assert refusal(account, pipeline) == (2, RULE)


@own_account
def test_a_bare_watch_can_be_allowed(account: Client, orders: Collection[Documents]) -> None:
    with pytest.raises(OperationFailure, match=RULE):
        orders.watch()
    account.admin.command("configureCosmos", {"allow": ["bare-watch"]})
    with orders.watch(max_await_time_ms=1) as stream:
        orders.insert_one({"_id": 1})
        orders.delete_one({"_id": 1})
        orders.insert_one({"_id": 2})
        (event,) = told(stream)
    assert event["fullDocument"] == {"_id": 2}
    assert "operationType" not in event


@pytest.mark.parametrize(
    "match",
    [
        {"operationType": "insert"},
        {"operationType": {"$in": ["delete"]}},
        {"$or": [{"operationType": "insert"}, {"operationType": "update"}]},
        {"$and": [{"operationType": "insert"}]},
    ],
)
def test_operation_types_do_not_select(orders: Collection[Documents], match: Documents) -> None:
    orders.insert_one({"_id": 1})
    with watch(orders, {"$match": match}) as stream:
        orders.update_one({"_id": 1}, {"$set": {"n": 1}})
        assert len(told(stream)) == 1


@pytest.mark.parametrize("match", [{"$and": [{"fullDocument.a": 1}, TYPES]}, {"fullDocument.a": 1, **TYPES}])
def test_documents_of_one_shard_key(orders: Collection[Documents], match: Documents) -> None:
    with watch(orders, {"$match": match}) as stream:
        orders.insert_many([{"_id": 1, "a": 1}, {"_id": 2, "a": 2}])
        assert [event["documentKey"]["_id"] for event in told(stream)] == [1]


def test_only_collections_can_be_watched(account: Client, orders: Collection[Documents]) -> None:
    for watched in (account, account.shop):
        with pytest.raises(OperationFailure) as caught:
            watched.watch([MATCH, PROJECT], full_document="updateLookup")
        assert (caught.value.code, caught.value.details["errmsg"]) == (  # type: ignore[index]
            14,
            "Expected type string but found int.",
        )


def test_a_missing_collection(account: Client) -> None:
    assert refusal(account, [STREAM, MATCH, PROJECT], "nothing")[0] == 26


def test_a_dropped_collection(orders: Collection[Documents]) -> None:
    with watch(orders) as stream:
        orders.insert_one({"_id": 1})
        assert len(told(stream)) == 1
        orders.drop()
        with pytest.raises(OperationFailure) as caught:
            stream.next()
    assert caught.value.code == 26


def test_events_that_were_read_at_once_have_one_token(orders: Collection[Documents]) -> None:
    with watch(orders) as stream:
        orders.insert_many([{"_id": number} for number in range(3)])
        events = told(stream)
        token = events[0]["_id"]
        assert [event["_id"] for event in events] == [token] * 3
        orders.insert_one({"_id": 3})
        (later,) = told(stream)
        assert later["_id"] != token
    with watch(orders, resume_after=token) as stream:
        assert [event["documentKey"]["_id"] for event in told(stream)] == [3]
    with watch(orders, start_after=later["_id"]) as stream:
        assert told(stream) == []
        orders.insert_one({"_id": 4})
        assert len(told(stream)) == 1


@pytest.mark.parametrize("size", [1, 2, 300])
def test_a_reader_that_begins_again_after_each_page_misses_nothing(orders: Collection[Documents], size: int) -> None:
    with watch(orders) as stream:
        orders.insert_one({"_id": "first"})
        token = told(stream)[-1]["_id"]
    orders.insert_many([{"_id": number} for number in range(601)])
    orders.delete_many({"_id": {"$in": [3, 4]}})
    seen: list[int] = []
    while True:
        cursor = orders.aggregate(
            [{"$changeStream": {"fullDocument": "updateLookup", "resumeAfter": token}}, MATCH, PROJECT], batchSize=size
        )
        page = [cursor.next() for _ in range(len(cursor._data))]  # what the first reply has
        cursor.close()
        if not page:
            break
        seen += [event["documentKey"]["_id"] for event in page]
        token = page[-1]["_id"]
        if size < 300 and len(seen) > 20:
            break
    expected = [number for number in range(601) if number not in (3, 4)]
    assert seen == expected[: len(seen)]
    assert len(seen) > 20


@pytest.mark.parametrize(
    "token",
    [
        {"_data": "82"},
        {"_data": b"{}", "_kind": 1},
        {"_data": b"nonsense", "_kind": 1},
        {"_data": b"[" * 100_000, "_kind": 1},
    ],
)
def test_foreign_tokens(orders: Collection[Documents], token: Documents) -> None:
    with pytest.raises(OperationFailure) as caught:
        watch(orders, resume_after=token)
    assert caught.value.code == 260


def test_tokens_of_other_collections(account: Client, orders: Collection[Documents]) -> None:
    """Nor of an earlier one with the same name."""
    for collection in (orders, account.shop.carts):
        collection.insert_one({"_id": 1})
    with watch(orders) as stream:
        token = stream.resume_token
    with pytest.raises(OperationFailure) as caught:
        watch(account.shop.carts, resume_after=token)
    assert caught.value.code == 260
    orders.drop()
    orders.insert_one({"_id": 1})
    with pytest.raises(OperationFailure) as caught:
        watch(orders, resume_after=token)
    assert caught.value.code == 260


def test_tokens_of_partitions(orders: Collection[Documents]) -> None:
    orders.insert_one({"_id": 1})
    reply = orders.database.command({"customAction": "GetChangeStreamTokens", "collection": "orders"})
    (token,) = reply["resumeAfterTokens"]
    orders.insert_one({"_id": 2})
    with watch(orders, resume_after=token) as stream:
        assert [event["documentKey"]["_id"] for event in told(stream)] == [2]
    past = {"customAction": "GetChangeStreamTokens", "collection": "orders", "startAtOperationTime": Timestamp(1, 0)}
    (token,) = orders.database.command(past)["resumeAfterTokens"]
    with watch(orders, resume_after=token) as stream:
        assert [event["documentKey"]["_id"] for event in told(stream)] == [1, 2]
    with pytest.raises(OperationFailure) as caught:
        orders.database.command({**past, "collection": "nothing"})
    assert caught.value.code == 26
    with pytest.raises(OperationFailure) as caught:
        orders.database.command({**past, "startAtOperationTime": 5})
    assert caught.value.code == 14


def test_replies_have_no_operation_time(account: Client, orders: Collection[Documents]) -> None:
    reply = account.shop.command("aggregate", "orders", pipeline=[STREAM, MATCH, PROJECT], cursor={})
    assert set(reply) == {"cursor", "ok"}
    account.shop.command("killCursors", "orders", cursors=[reply["cursor"]["id"]])


def test_documents_of_a_sharded_collection(account: Client) -> None:
    account.shop.command({"customAction": "CreateCollection", "collection": "sharded", "shardKey": "a"})
    sharded = account.shop.sharded
    with watch(sharded) as stream:
        sharded.insert_many([{"_id": 1, "a": 1}, {"_id": 1, "a": 2}])
        assert [event["fullDocument"] for event in told(stream)] == [{"_id": 1, "a": 1}, {"_id": 1, "a": 2}]
        sharded.update_one({"_id": 1, "a": 2}, {"$set": {"b": 1}})
        sharded.replace_one({"_id": 1, "a": 1}, {"a": 1, "c": 1})
        sharded.update_one({"_id": 1, "a": 2}, {"$set": {"b": 2}})
        assert [event["fullDocument"] for event in told(stream)] == [
            {"_id": 1, "a": 1, "c": 1},
            {"_id": 1, "a": 2, "b": 2},
        ]
        sharded.update_one({"_id": 1, "a": 1}, {"$set": {"c": 2}})
        sharded.delete_one({"_id": 1, "a": 1})
        assert told(stream) == []


def test_a_sharded_collection_is_resumed_after_a_restart(tmp_path: Path) -> None:
    """Where `_id` is only unique with the shard key, an update's document is found by both."""
    with (
        mongottl.start_server(data_dir=tmp_path, dialect="cosmos") as server,
        pymongo.MongoClient[Documents](server.uri, retryWrites=False) as client,
    ):
        client.shop.command({"customAction": "CreateCollection", "collection": "sharded", "shardKey": "a"})
        sharded = client.shop.sharded
        sharded.insert_many([{"_id": 1, "a": 1}, {"_id": 1, "a": 2}])
        with watch(sharded) as stream:
            sharded.update_one({"_id": 1, "a": 1}, {"$set": {"n": 1}})
            assert len(told(stream)) == 1
            token = stream.resume_token
        sharded.update_one({"_id": 1, "a": 2}, {"$set": {"b": 1}})
        sharded.replace_one({"_id": 1, "a": 1}, {"a": 1, "c": 1})
    with (
        mongottl.start_server(data_dir=tmp_path, dialect="cosmos") as server,
        pymongo.MongoClient[Documents](server.uri, retryWrites=False) as client,
        watch(client.shop.sharded, resume_after=token) as stream,
    ):
        found = [event["fullDocument"] for event in told(stream)]
        assert found == [{"_id": 1, "a": 2, "b": 1}, {"_id": 1, "a": 1, "c": 1}]
