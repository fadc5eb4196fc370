"""The limits of the dialect `cosmos` on documents, names and time."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from bson.int64 import Int64
from pymongo.errors import CursorNotFound, OperationFailure, WriteError

import mongottl
from mongottl.clock import VirtualClock
from mongottl.config import ServerConfig
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.running.steps import Wait
from mongottl.exec.service.service import ServiceContext
from mongottl.server.dispatch import Dispatcher
from mongottl.server.log import Log
from mongottl.storage.opening import open_engine
from mongottl.wire.messages import OpMsg
from tests.on_nodes import own_account
from tests.steps import run_to_end

Client = pymongo.MongoClient[dict[str, Any]]
MB = 1024 * 1024


def refused(caught: pytest.ExceptionInfo[Any]) -> tuple[Any, str]:
    details = caught.value.details
    assert details is not None
    return details["code"], details["errmsg"]


def answer(dispatcher: Dispatcher, command: dict[str, Any]) -> dict[str, Any]:
    message = OpMsg(1, 0, 0, bson.encode(command), [])
    outcome = dispatcher.handle(message, ClientInfo(1, "127.0.0.1:1", ""))
    return bson.decode(outcome if isinstance(outcome, bytes) else run_to_end(outcome))


def test_a_document_of_more_than_2_mb_is_too_large(account: Client) -> None:
    orders = account.shop.orders
    orders.insert_one({"_id": 1, "text": "x" * (2 * MB - 100)})
    with pytest.raises(WriteError) as caught:
        orders.insert_one({"_id": 2, "text": "x" * (2 * MB)})
    code, text = refused(caught)
    assert code == 16
    assert re.fullmatch(
        r"Error=16, Details='Response status code does not indicate success: RequestEntityTooLarge \(413\); "
        r"Substatus: 0; ActivityId: [-0-9a-f]{36}; Reason: \(.*\);",
        text,
    )
    with pytest.raises(WriteError) as caught:
        orders.update_one({"_id": 1}, {"$set": {"more": "x" * 200}})
    assert refused(caught)[0] == 16
    with pytest.raises(OperationFailure) as other:
        orders.find_one_and_replace({"_id": 1}, {"text": "x" * (3 * MB)})
    assert (refused(other)[0], refused(other)[1][:9]) == (16, "Error=16,")
    assert orders.count_documents({}) == 1


def test_an_ordered_batch_stops_at_the_document_that_is_too_large(account: Client) -> None:
    batch: list[dict[str, Any]] = [{"_id": 1}, {"_id": 2, "text": "x" * (2 * MB)}, {"_id": 3}]
    with pytest.raises(pymongo.errors.BulkWriteError) as caught:
        account.shop.orders.insert_many(batch)
    assert caught.value.details["nInserted"] == 1
    assert [(e["index"], e["code"]) for e in caught.value.details["writeErrors"]] == [(1, 16)]


@own_account
def test_an_account_with_documents_of_16_mb(account: Client) -> None:
    account.admin.command("configureCosmos", {"capabilities": ["EnableMongo16MBDocumentSupport"]})
    account.shop.orders.insert_one({"_id": 1, "text": "x" * (3 * MB)})
    account.shop.orders.insert_one({"_id": 2, "text": "x" * (15 * MB)})
    with Client(*account.address, retryWrites=False) as another:  # type: ignore[misc]
        assert [len(order["text"]) for order in another.shop.orders.find()] == [3 * MB, 15 * MB]


@own_account
def test_collections_of_before_keep_their_limit(account: Client) -> None:
    """Feature-support articles: the limit of 16 MB "applies only to collections that are created after"."""
    shop = account.shop
    shop.old.insert_one({"_id": 1})
    shop.create_collection("empty")
    shop.source.insert_one({"_id": 1, "half": "x" * MB})
    account.admin.command("configureCosmos", {"capabilities": ["EnableMongo16MBDocumentSupport"]})
    big = {"_id": 1, "text": "x" * (3 * MB)}
    writes: list[Callable[[Any], object]] = [
        lambda orders: orders.insert_one(big | {"_id": 2}),
        lambda orders: orders.replace_one({"_id": 1}, big),
        lambda orders: orders.update_many({}, {"$set": {"more": big["text"]}}),
        lambda orders: orders.update_one({"_id": 3}, {"$set": {"text": big["text"]}}, upsert=True),
        lambda orders: orders.find_one_and_replace({"_id": 1}, big, {"_id": 1}),
        lambda orders: orders.database.source.aggregate(
            [{"$project": {"text": {"$concat": ["$half"] * 3}}}, {"$merge": orders.name}]
        ),
    ]
    for name in ("old", "empty"):
        shop[name].replace_one({"_id": 1}, {}, upsert=True)
        for write in writes:
            with pytest.raises(OperationFailure) as caught:
                write(shop[name])
            assert refused(caught)[0] == 16
    shop.new.insert_one({"_id": 1})
    for write in writes:
        write(shop.new)
    described = [shop.command({"customAction": "GetCollection", "collection": name}) for name in ("old", "new")]
    assert [collection["maxContentLength"] for collection in described] == [2 * MB, 16 * MB]
    # It is not an option of the collection.
    assert shop.new.options() == {}
    shop.command({"customAction": "UpdateCollection", "collection": "new", "offerThroughput": 500})
    shop.new.replace_one({"_id": 1}, big)
    # Assumed: what `$out` replaces is created anew.
    shop.source.aggregate([{"$project": {"text": {"$concat": ["$half"] * 3}}}, {"$out": "old"}])
    shop.old.insert_one(big | {"_id": 2})


def test_collections_with_large_documents_are_so_after_a_restart(tmp_path: Path) -> None:
    large = ("EnableMongo16MBDocumentSupport",)
    for capabilities, name in (((), "old"), (large, "new")):
        with (
            mongottl.start_server(dialect="cosmos", data_dir=str(tmp_path), cosmos_capability=capabilities) as running,
            Client(running.uri) as client,
        ):
            client.shop[name].insert_one({"_id": 1})
    with (
        mongottl.start_server(dialect="cosmos", data_dir=str(tmp_path), cosmos_capability=large) as running,
        Client(running.uri) as client,
    ):
        client.shop.new.insert_one({"_id": 2, "text": "x" * (3 * MB)})
        with pytest.raises(WriteError) as caught:
            client.shop.old.insert_one({"_id": 2, "text": "x" * (3 * MB)})
        assert refused(caught)[0] == 16


def test_replies_fit_into_the_messages_that_hello_allows(account: Client) -> None:
    """PyMongo refuses larger ones."""
    assert account.admin.command("hello")["maxMessageSizeBytes"] == 4_194_304
    orders = account.shop.orders
    orders.insert_many([{"_id": number, "text": "x" * 1_500_000} for number in range(2)])
    orders.insert_many([{"_id": number, "text": "x" * 1_500_000} for number in range(2, 4)])
    assert len(list(orders.find())) == 4
    assert len(list(orders.find(limit=3))) == 3
    assert len(list(orders.aggregate([{"$match": {}}], batchSize=1000))) == 4
    with pytest.raises(OperationFailure) as caught:
        orders.aggregate([{"$group": {"_id": None, "all": {"$push": "$text"}}}])
    assert refused(caught)[0] == 10334


def test_an_id_may_have_1023_bytes(account: Client) -> None:
    account.shop.orders.insert_one({"_id": "x" * 1023})
    with pytest.raises(WriteError) as caught:
        account.shop.orders.insert_one({"_id": "x" * 1024})
    assert refused(caught)[0] == 2
    orders = account.shop.orders
    longer = "é" * 512
    for upsert in (
        lambda: orders.update_one({"_id": longer}, {"$set": {"at": 1}}, upsert=True),
        lambda: orders.replace_one({"_id": longer}, {"at": 1}, upsert=True),
        lambda: orders.update_many({"at": 2}, {"$setOnInsert": {"_id": longer}}, upsert=True),
        lambda: orders.find_one_and_update({"_id": longer}, {"$set": {"at": 1}}, upsert=True),
    ):
        with pytest.raises(OperationFailure) as upserted:
            upsert()
        assert refused(upserted)[0] == 2
    assert orders.count_documents({}) == 1


def test_a_value_of_the_shard_key_may_have_2048_bytes(account: Client) -> None:
    account.shop.command({"customAction": "CreateCollection", "collection": "orders", "shardKey": "customer.name"})
    orders = account.shop.orders
    orders.insert_one({"_id": 1, "customer": {"name": "x" * 2048}})
    name = "x" * 2047 + "é"
    longer: dict[str, Any] = {"_id": 2, "customer": {"name": name}}
    with pytest.raises(WriteError) as caught:
        orders.insert_one(longer)
    assert refused(caught)[0] == 2
    with pytest.raises(WriteError) as caught:
        orders.replace_one({"customer.name": name}, longer, upsert=True)
    assert refused(caught)[0] == 2
    assert orders.count_documents({}) == 1


@pytest.mark.parametrize("name", ["a/b", "a\\b", "a#b", "a?b"])
def test_names_that_cosmos_does_not_take(account: Client, name: str) -> None:
    account.shop.orders.insert_one({"_id": 1})
    for make in (
        lambda: account.shop.create_collection(name),
        lambda: account.shop[name].insert_one({"_id": 1}),
        lambda: account.shop.orders.aggregate([{"$out": name}]),
        lambda: account.shop.orders.aggregate([{"$merge": name}]),
    ):
        with pytest.raises(OperationFailure) as caught:
            make()
        assert refused(caught) == (73, "Collection name contains invalid character.")


@pytest.mark.parametrize("name", ["n" * 255, "ä" * 255])
def test_names_have_255_characters(account: Client, name: str) -> None:
    """Each of them: MongoDB's limits are 63 bytes for a database, and 255 for it and the collection together."""
    database = account[name]
    database.command({"customAction": "CreateDatabase"})
    database.command({"customAction": "CreateCollection", "collection": name})
    orders = database[name]
    orders.insert_one({"_id": 1, "ttl": 5})
    orders.create_index("n")
    orders.create_index("_ts", expireAfterSeconds=-1)
    orders.update_one({"_id": 1}, {"$set": {"n": 1}})
    assert orders.find_one_and_update({"_id": 1}, {"$inc": {"n": 1}}) == {"_id": 1, "ttl": 5, "n": 1}
    assert list(orders.aggregate([{"$lookup": {"from": name, "localField": "n", "foreignField": "n", "as": "x"}}]))
    assert orders.distinct("n") == [2]
    assert name in account.list_database_names()
    assert database.list_collection_names() == [name]
    assert database.command("collStats", name)["ns"] == f"{name}.{name}"
    account.admin.command("shardCollection", f"{name}.s{name[1:]}", key={"n": "hashed"})
    account.drop_database(name)
    assert name not in account.list_database_names()


def test_longer_names_are_refused(account: Client) -> None:
    name = "n" * 256
    for make in (
        lambda: account[name].orders.insert_one({}),
        lambda: account[name].command({"customAction": "CreateDatabase"}),
        lambda: account.shop[name].insert_one({}),
        lambda: account.shop[name].find_one_and_update({}, {"$set": {"n": 1}}, upsert=True),
        lambda: account.shop.create_collection(name),
        lambda: account.shop.command({"customAction": "CreateCollection", "collection": name}),
        lambda: account.admin.command("shardCollection", f"shop.{name}", key={"n": "hashed"}),
    ):
        with pytest.raises(OperationFailure) as caught:
            make()
        assert caught.value.code == 73
    assert account.list_database_names() == []


def test_names_survive_a_restart(tmp_path: Path) -> None:
    name = "ä" * 255
    for _ in range(2):
        with mongottl.start_server(dialect="cosmos", data_dir=tmp_path) as server, Client(server.uri) as client:
            client[name][name].update_one({"_id": 1}, {"$inc": {"n": 1}}, upsert=True)
            found = client[name][name].find_one()
    assert found == {"_id": 1, "n": 2}


@own_account
def test_time_that_is_up(account: Client) -> None:
    account.shop.orders.insert_one({"_id": 1})
    account.admin.command("configureFailPoint", "maxTimeAlwaysTimeOut", mode="alwaysOn")
    try:
        with pytest.raises(OperationFailure) as caught:
            account.shop.orders.find_one({}, max_time_ms=1000)
        assert caught.value.details is not None
        assert caught.value.details["codeName"] == "ExceededTimeLimit"
        assert refused(caught) == (50, "Request timed out.")
    finally:
        account.admin.command("configureFailPoint", "maxTimeAlwaysTimeOut", mode="off")


def test_no_operation_takes_longer_than_a_minute_of_the_clock() -> None:
    """Also on a clock that stands still, which tests move."""
    clock = VirtualClock(frozen=True)
    service = ServiceContext(ServerConfig(dialect="cosmos"), clock, open_engine("memory:"))
    dispatcher = Dispatcher(service, Log(stream=io.StringIO()))
    documents = [bson.encode({"_id": number}) for number in range(1000)]
    for start in (0, 500):
        batch = {"insert": "orders", "documents": [*map(bson.decode, documents[start : start + 500])], "$db": "shop"}
        assert answer(dispatcher, batch)["n"] == 500
    sort = {"aggregate": "orders", "pipeline": [{"$group": {"_id": "$_id"}}], "cursor": {}, "$db": "shop"}
    for waited_s, code in ((-100.0, None), (0.0, None), (59.999, None), (60.0, 50)):
        outcome = dispatcher.handle(OpMsg(1, 0, 0, bson.encode(sort), []), ClientInfo(1, "127.0.0.1:1", ""))
        assert not isinstance(outcome, bytes)
        next(outcome)
        clock.advance(waited_s)
        assert bson.decode(run_to_end(outcome)).get("code") == code


def test_a_write_that_takes_longer_than_a_minute_tells_what_it_has_done() -> None:
    """Recorded as a write error, unlike in MongoDB, where the whole command fails."""
    clock = VirtualClock(frozen=True)
    service = ServiceContext(ServerConfig(dialect="cosmos"), clock, open_engine("memory:"))
    dispatcher = Dispatcher(service, Log(stream=io.StringIO()))
    ids = range(900)
    writes: list[dict[str, Any]] = [
        {"insert": "orders", "documents": [{"_id": n, "filler": "x" * 2048} for n in ids]},
        {"update": "orders", "updates": [{"q": {"_id": n}, "u": {"$set": {"a": 1}}} for n in ids]},
        {"delete": "orders", "deletes": [{"q": {"_id": n}, "limit": 1} for n in ids]},
    ]
    for write in writes:
        before = service.oplog.end
        outcome = dispatcher.handle(
            OpMsg(1, 0, 0, bson.encode({**write, "$db": "shop"}), []), ClientInfo(1, "127.0.0.1:1", "")
        )
        assert not isinstance(outcome, bytes)
        while service.oplog.end <= before + 1:  # which the making of the collection may be
            next(outcome)
        clock.advance(60)
        reply = bson.decode(run_to_end(outcome))
        (failed,) = reply["writeErrors"]
        assert (failed["code"], failed["errmsg"]) == (50, "Request timed out.")
        assert 0 < failed["index"] == reply["n"] < 900


def test_a_cursor_is_read_for_longer_than_a_minute_in_all(account: Client, cosmos: mongottl.RunningServer) -> None:
    """The limit is that of one request."""
    account.shop.orders.insert_many([{"_id": number} for number in range(10)])
    cursor = account.shop.orders.find(batch_size=2)
    for _ in cursor:
        cosmos.clock.advance(31)


def test_a_stream_waits_while_the_clock_is_moved() -> None:
    clock = VirtualClock(frozen=True)
    service = ServiceContext(ServerConfig(dialect="cosmos"), clock, open_engine("memory:"))
    dispatcher = Dispatcher(service, Log(stream=io.StringIO()))
    answer(dispatcher, {"insert": "orders", "documents": [{"_id": 1}], "$db": "shop"})
    pipeline = [
        {"$changeStream": {"fullDocument": "updateLookup"}},
        {"$match": {"operationType": {"$in": ["insert", "update", "replace"]}}},
        {"$project": {"_id": 1, "fullDocument": 1, "ns": 1, "documentKey": 1}},
    ]
    opened = answer(dispatcher, {"aggregate": "orders", "pipeline": pipeline, "cursor": {}, "$db": "shop"})
    get_more = {"getMore": Int64(opened["cursor"]["id"]), "collection": "orders", "maxTimeMS": 600_000, "$db": "shop"}
    outcome = dispatcher.handle(OpMsg(1, 0, 0, bson.encode(get_more), []), ClientInfo(1, "127.0.0.1:1", ""))
    assert not isinstance(outcome, bytes)
    assert isinstance(next(step for step in outcome if isinstance(step, Wait)), Wait)
    clock.advance(61)
    answer(dispatcher, {"insert": "orders", "documents": [{"_id": 2}], "$db": "shop"})
    page = bson.decode(run_to_end(outcome))
    assert [event["documentKey"] for event in page["cursor"]["nextBatch"]] == [{"_id": 2}]


def test_a_lost_cursor(account: Client) -> None:
    with pytest.raises(CursorNotFound) as caught:
        account.shop.command({"getMore": Int64(77), "collection": "orders"})
    assert refused(caught) == (43, "Unable to find cursor with id: 77")
