"""The limits of the dialect `cosmos` on documents, names and time, and its answers to probes."""

import io
import re
from collections.abc import Iterator
from typing import Any

import bson
import pymongo
import pytest
from bson.int64 import Int64
from pymongo.errors import CursorNotFound, OperationFailure, WriteError

import mongottl
from mongottl.clock import SystemClock, VirtualClock
from mongottl.config import ServerConfig
from mongottl.exec.operation.client import ClientInfo
from mongottl.exec.operation.service import ServiceContext
from mongottl.exec.operation.steps import run_to_end
from mongottl.server.dispatch import Dispatcher
from mongottl.server.log import Log
from mongottl.storage.interface import open_storage_engine
from mongottl.wire.messages import OpMsg

Client = pymongo.MongoClient[dict[str, Any]]
MB = 1024 * 1024


@pytest.fixture(scope="module")
def cosmos() -> Iterator[mongottl.RunningServer]:
    with mongottl.start_server(dialect="cosmos") as running:
        yield running


@pytest.fixture
def account(cosmos: mongottl.RunningServer) -> Iterator[Client]:
    with Client(cosmos.uri) as client:
        was = client.admin.command("configureCosmos", {})["was"]
        yield client
        client.admin.command("configureCosmos", was)
        client.drop_database("shop")


def refused(caught: pytest.ExceptionInfo[Any]) -> tuple[Any, str]:
    details = caught.value.details
    assert details is not None
    return details["code"], details["errmsg"]


def answer(dispatcher: Dispatcher, command: dict[str, Any]) -> dict[str, Any]:
    message = OpMsg(1, 0, 0, bson.encode(command), [])
    outcome = dispatcher.handle(message, ClientInfo(1, "127.0.0.1:1", ""))
    return bson.decode(outcome if isinstance(outcome, bytes) else run_to_end(outcome))


class HandMoved(SystemClock):
    """Elapsed time that the test moves."""

    def __init__(self) -> None:
        self.elapsed_s = 1000.0

    def monotonic_s(self) -> float:
        return self.elapsed_s


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


def test_an_account_with_documents_of_16_mb(account: Client) -> None:
    account.admin.command("configureCosmos", {"capabilities": ["EnableMongo16MBDocumentSupport"]})
    account.shop.orders.insert_one({"_id": 1, "text": "x" * (3 * MB)})
    account.shop.orders.insert_one({"_id": 2, "text": "x" * (15 * MB)})
    with Client(*account.address, retryWrites=False) as another:  # type: ignore[misc]
        assert [len(order["text"]) for order in another.shop.orders.find()] == [3 * MB, 15 * MB]


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


@pytest.mark.parametrize("name", ["a/b", "a\\b", "a#b", "a?b"])
def test_names_that_cosmos_does_not_take(account: Client, name: str) -> None:
    for make in (lambda: account.shop.create_collection(name), lambda: account.shop[name].insert_one({"_id": 1})):
        with pytest.raises(OperationFailure) as caught:
            make()
        assert refused(caught) == (73, "Collection name contains invalid character.")


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


def test_no_operation_takes_longer_than_a_minute() -> None:
    elapsed = HandMoved()
    service = ServiceContext(ServerConfig(dialect="cosmos"), VirtualClock(elapsed), open_storage_engine("memory", None))
    dispatcher = Dispatcher(service, Log(stream=io.StringIO()))
    documents = [bson.encode({"_id": number}) for number in range(1000)]
    for start in (0, 500):
        batch = {"insert": "orders", "documents": [*map(bson.decode, documents[start : start + 500])], "$db": "shop"}
        assert answer(dispatcher, batch)["n"] == 500
    sort = {"aggregate": "orders", "pipeline": [{"$group": {"_id": "$_id"}}], "cursor": {}, "$db": "shop"}
    for waited_s, code in ((59.0, None), (61.0, 50)):
        outcome = dispatcher.handle(OpMsg(1, 0, 0, bson.encode(sort), []), ClientInfo(1, "127.0.0.1:1", ""))
        assert not isinstance(outcome, bytes)
        next(outcome)
        elapsed.elapsed_s += waited_s
        assert bson.decode(run_to_end(outcome)).get("code") == code


def test_a_lost_cursor(account: Client) -> None:
    with pytest.raises(CursorNotFound) as caught:
        account.shop.command({"getMore": Int64(77), "collection": "orders"})
    assert refused(caught) == (43, "Unable to find cursor with id: 77")


@pytest.mark.parametrize("version", ["3.6", "4.0"])
def test_what_samples_of_microsoft_print_of_old_versions(version: str) -> None:
    """Without a driver: PyMongo refuses servers of these versions."""
    config = ServerConfig(dialect="cosmos", server_version=version)
    service = ServiceContext(config, SystemClock(), open_storage_engine("memory", None))
    dispatcher = Dispatcher(service, Log(stream=io.StringIO()))
    assert answer(dispatcher, {"buildInfo": 1, "$db": "admin"}) == {
        "version": f"{version}.0",
        "versionArray": [*map(int, version.split(".")), 0, 0],
        "bits": 64,
        "maxBsonObjectSize": 16 * MB,
        "ok": 1.0,
    }
    assert answer(dispatcher, {"serverStatus": 1, "$db": "admin"}) == {"ok": 1.0}
