"""The dialect `cosmos` throttles on demand: what a test provokes by fail points that production does at random."""

import re
from collections.abc import Callable, Iterator
from typing import Any, cast

import pymongo
import pytest
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import BulkWriteError, OperationFailure

import mongottl
from mongottl.dialect.cosmos.throttling import TIMEOUT_TEXTS
from mongottl.errors import CommandError
from tests.on_nodes import own_fail_points

pytestmark = own_fail_points

Client = pymongo.MongoClient[dict[str, Any]]
Shop = Database[dict[str, Any]]
GUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
SINGLE = (
    r"Error=16500, RetryAfterMs=34, Details='Response status code does not indicate success: TooManyRequests \(429\);"
    rf" Substatus: 3200; ActivityId: {GUID}; Reason: \(\{{\n  \"Errors\": \[\n    \"Request rate is large\. More "
    r"Request Units may be needed, so no changes were made\. Please retry this request later\. Learn more:"
    r" http://aka\.ms/cosmosdb-error-429\"\n  \]\n\}\);"
)


@pytest.fixture(scope="module")
def cosmos() -> Iterator[mongottl.RunningServer]:
    with mongottl.start_server(dialect="cosmos", cosmos_throughput="off") as running:
        yield running


@pytest.fixture
def account(account: Client) -> Iterator[Client]:
    """The client of all these tests, without fail points after the test."""
    yield account
    for name in ("cosmosThrottle", "cosmosTimeout", "cosmosUnavailable"):
        fail(account, "off", point=name)


def fail(client: Client, mode: Any, point: str = "cosmosThrottle", **data: Any) -> dict[str, Any]:
    reply: dict[str, Any] = client.admin.command("configureFailPoint", point, mode=mode, data=data)
    return reply


def refused(database: Shop, command: str, *args: Any, **fields: Any) -> dict[str, Any]:
    with pytest.raises(OperationFailure) as caught:
        database.command(command, *args, **fields)
    assert caught.value.details is not None
    return dict(caught.value.details)


def test_a_read_is_a_command_error(account: Client, shop: Shop) -> None:
    fail(account, {"times": 1}, retryAfterMs=34)
    error = refused(shop, "find", "orders")
    assert re.fullmatch(SINGLE, error.pop("errmsg"))
    assert error == {"ok": 0.0, "code": 16500, "codeName": "RequestRateTooLarge"}
    assert shop.command("find", "orders")["ok"] == 1


def test_a_single_insert_is_a_write_error(account: Client, shop: Shop) -> None:
    fail(account, {"times": 1}, commands=["insert"], retryAfterMs=34)
    reply = shop.command("insert", "orders", documents=[{"_id": 1}])
    assert re.fullmatch(SINGLE, reply["writeErrors"][0].pop("errmsg"))
    assert reply == {"ok": 1, "n": 0, "writeErrors": [{"index": 0, "code": 16500}]}
    assert shop.orders.count_documents({}) == 0


@pytest.mark.parametrize(
    ("form", "statements", "text"),
    [
        (None, 3, r"Error=16500, RetryAfterMs=4, Details='Batch write error\."),
        ("batch", 1, r"Error=16500, RetryAfterMs=4, Details='Batch write error\."),
        ("noHint", 1, r"Error=16500, Details='Insert error\.'"),
        ("noHint", 3, r"Error=16500, Details='Insert error\.'"),
        ("single", 3, SINGLE.replace("34", "4", 1)),
    ],
)
def test_forms_of_the_text(account: Client, shop: Shop, form: str | None, statements: int, text: str) -> None:
    fail(account, {"times": 1}, retryAfterMs=4, **({} if form is None else {"form": form}))
    reply = shop.command("insert", "orders", documents=[{"_id": i} for i in range(statements)])
    assert re.fullmatch(text, reply["writeErrors"][0]["errmsg"])


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("item", [0, 2, 3])
def test_the_item_of_an_insert(account: Client, shop: Shop, item: int, ordered: bool) -> None:
    fail(account, {"times": 1}, commands=["insert"], item=item)
    reply = shop.command("insert", "orders", documents=[{"_id": i} for i in range(4)], ordered=ordered)
    assert [(error["index"], error["code"]) for error in reply["writeErrors"]] == [(item, 16500)]
    done = [i for i in range(4) if (i < item if ordered else i != item)]
    assert reply["n"] == len(done)
    assert [order["_id"] for order in shop.orders.find()] == done


@pytest.mark.parametrize("ordered", [True, False])
def test_the_item_of_an_update(account: Client, shop: Shop, ordered: bool) -> None:
    shop.orders.insert_many([{"_id": i, "n": 0} for i in range(3)])
    fail(account, {"times": 1}, commands=["update"], item=1)
    updates = [{"q": {"_id": i}, "u": {"$inc": {"n": 1}}, "upsert": True} for i in (0, 1, 2, 7)]
    reply = shop.command("update", "orders", updates=updates, ordered=ordered)
    assert [(error["index"], error["code"]) for error in reply["writeErrors"]] == [(1, 16500)]
    assert (reply["n"], reply["nModified"]) == ((1, 1) if ordered else (3, 2))
    assert reply.get("upserted", []) == ([] if ordered else [{"index": 3, "_id": 7}])
    changed = [order["_id"] for order in shop.orders.find({"n": 1})]
    assert changed == ([0] if ordered else [0, 2, 7])


@pytest.mark.parametrize("ordered", [True, False])
def test_the_item_of_a_delete(account: Client, shop: Shop, ordered: bool) -> None:
    shop.orders.insert_many([{"_id": i} for i in range(3)])
    fail(account, {"times": 1}, commands=["delete"], item=1)
    reply = shop.command("delete", "orders", deletes=[{"q": {"_id": i}, "limit": 1} for i in range(3)], ordered=ordered)
    assert [(error["index"], error["code"]) for error in reply["writeErrors"]] == [(1, 16500)]
    assert reply["n"] == (1 if ordered else 2)
    assert [order["_id"] for order in shop.orders.find()] == ([1, 2] if ordered else [1])


@pytest.mark.parametrize("command", ["update", "delete"])
def test_single_updates_and_deletes(account: Client, shop: Shop, command: str) -> None:
    shop.orders.insert_one({"_id": 1})
    fail(account, {"times": 1}, commands=[command], retryAfterMs=34)
    if command == "update":
        reply = shop.command("update", "orders", updates=[{"q": {"_id": 1}, "u": {"$set": {"a": 1}}}])
        assert reply.pop("nModified") == 0
    else:
        reply = shop.command("delete", "orders", deletes=[{"q": {"_id": 1}, "limit": 1}])
    assert re.fullmatch(SINGLE, reply["writeErrors"][0].pop("errmsg"))
    assert reply == {"ok": 1, "n": 0, "writeErrors": [{"index": 0, "code": 16500}]}
    assert list(shop.orders.find()) == [{"_id": 1}]


def test_a_shorter_batch_is_not_counted(account: Client, shop: Shop) -> None:
    fail(account, {"times": 1}, commands=["insert"], item=2)
    shop.orders.insert_many([{"_id": 0}, {"_id": 1}])
    with pytest.raises(BulkWriteError) as caught:
        shop.orders.insert_many([{"_id": i} for i in range(2, 9)])
    assert caught.value.details["nInserted"] == 2
    shop.orders.insert_many([{"_id": i} for i in range(4, 9)])
    assert shop.orders.count_documents({}) == 9


def test_a_retry_of_what_is_left_completes_an_ordered_batch(account: Client, shop: Shop) -> None:
    fail(account, {"times": 3}, commands=["insert"], item=1)
    left = [{"_id": i} for i in range(6)]
    waits = []
    while left:
        try:
            shop.orders.insert_many(left)
            left = []
        except BulkWriteError as error:
            (failed,) = error.details["writeErrors"]
            hint = re.search(r"RetryAfterMs=(\d+),", failed["errmsg"])
            assert hint is not None
            waits.append(int(hint[1]))
            left = left[failed["index"] :]
    assert waits == [34, 34, 34]
    assert [order["_id"] for order in shop.orders.find()] == list(range(6))


@pytest.mark.parametrize(
    ("command", "fields"),
    [
        ("aggregate", {"pipeline": [], "cursor": {}}),
        ("count", {}),
        ("distinct", {"key": "a"}),
        ("findAndModify", {"update": {"$set": {"a": 1}}, "upsert": True}),
    ],
)
def test_other_commands_on_documents(account: Client, shop: Shop, command: str, fields: dict[str, Any]) -> None:
    fail(account, {"times": 1})
    assert refused(shop, command, "orders", **fields)["code"] == 16500
    assert shop.orders.count_documents({}) == 0


def test_a_get_more(account: Client, shop: Shop) -> None:
    shop.orders.insert_many([{"_id": i} for i in range(4)])
    cursor = shop.orders.find(batch_size=2)
    assert next(cursor) == {"_id": 0}
    fail(account, {"times": 1}, commands=["getMore"])
    next(cursor)
    with pytest.raises(OperationFailure) as caught:
        next(cursor)
    assert caught.value.code == 16500


def test_a_change_stream_gets_an_empty_page(account: Client, shop: Shop) -> None:
    shop.create_collection("orders")
    pipeline: list[dict[str, Any]] = [
        {"$match": {"operationType": {"$in": ["insert", "update", "replace"]}}},
        {"$project": {"_id": 1, "fullDocument": 1, "ns": 1, "documentKey": 1}},
    ]
    with shop.orders.watch(pipeline, full_document="updateLookup", max_await_time_ms=1) as stream:
        shop.orders.insert_one({"_id": 1})
        fail(account, {"times": 1}, commands=["getMore"])
        assert stream.try_next() is None
        event = stream.try_next()
        assert event is not None
        assert event["documentKey"] == {"_id": 1}


def test_only_what_it_is_for_and_as_often_as_it_is_said(cosmos: mongottl.RunningServer, account: Client) -> None:
    shop = account.shop
    fail(account, {"skip": 1, "times": 1}, namespace="shop.orders", commands=["count"])
    assert shop.command("count", "others")["n"] == 0
    assert shop.command("count", "orders")["n"] == 0
    assert refused(shop, "count", "orders")["code"] == 16500
    assert shop.command("count", "orders")["n"] == 0
    count = fail(account, "alwaysOn", appName="billing")["count"]
    assert shop.command("count", "orders")["n"] == 0
    with Client(cosmos.uri, appname="billing") as billing:
        for _ in range(3):
            assert refused(billing.shop, "count", "orders")["code"] == 16500
    assert fail(account, "off")["count"] == count + 3


def test_commands_that_touch_no_documents_only_by_name(account: Client, shop: Shop) -> None:
    fail(account, "alwaysOn")
    shop.create_collection("orders")
    assert account.admin.command("ping")["ok"] == 1
    fail(account, "alwaysOn", commands=["create", "createIndexes"])
    assert refused(shop, "create", "others")["code"] == 16500
    assert refused(shop, "createIndexes", "orders", indexes=[{"key": {"a": 1}, "name": "a"}])["code"] == 16500


@pytest.mark.parametrize("form", [None, *TIMEOUT_TEXTS])
def test_timeouts(account: Client, shop: Shop, form: str | None) -> None:
    fail(account, {"times": 3}, "cosmosTimeout", item=1 if form is None else 0, **({"form": form} if form else {}))
    expected = {"code": 50, "errmsg": TIMEOUT_TEXTS[form or "plain"]}
    if form is None:
        documents: list[dict[str, Any]] = [{"_id": 0}, {"_id": 1}, {"_id": 2}]
        reply = shop.command("insert", "orders", documents=documents)
        assert reply == {"n": 1, "ok": 1, "writeErrors": [{"index": 1, **expected}]}
        reply = shop.command("insert", "orders", documents=[*documents[2:], {"_id": 3}, {"_id": 4}], ordered=False)
        assert reply == {"n": 2, "ok": 1, "writeErrors": [{"index": 1, **expected}]}
        fail(account, "off", "cosmosTimeout")
        assert [found["_id"] for found in shop.orders.find()] == [0, 2, 4]
    else:
        failed: dict[str, Any] = {"n": 0, "ok": 1, "writeErrors": [{"index": 0, **expected}]}
        assert shop.command("insert", "orders", documents=[{"_id": 1}]) == failed
        assert refused(shop, "find", "orders") == {"ok": 0.0, "codeName": "ExceededTimeLimit", **expected}
        assert shop.command("delete", "orders", deletes=[{"q": {}, "limit": 0}]) == failed


def test_the_service_is_unavailable_for_a_moment(account: Client, shop: Shop) -> None:
    fail(account, {"times": 1}, "cosmosUnavailable", commands=["create"])
    error = refused(shop, "create", "orders")
    assert (error["code"], error["codeName"]) == (1, "InternalError")
    assert re.match(
        rf"Error=1, Details='Response status code does not indicate success: ServiceUnavailable \(503\); .*{GUID}",
        error["errmsg"],
    )
    assert shop.command("create", "orders")["ok"] == 1
    fail(account, {"times": 1}, "cosmosUnavailable")
    reply = shop.command("insert", "orders", documents=[{"_id": 1}])
    assert reply["writeErrors"][0]["code"] == 1


@pytest.mark.parametrize(
    ("point", "data", "code", "named"),
    [
        ("cosmosThrottle", {"colour": 1}, 40415, "colour"),
        ("cosmosThrottle", {"form": "plain"}, 2, "form.*plain.*single, batch, noHint"),
        ("cosmosThrottle", {"form": 5}, 14, "form"),
        ("cosmosThrottle", {"item": -1}, 2, "item.*-1"),
        ("cosmosThrottle", {"item": 1.5}, 2, "item.*1.5"),
        ("cosmosThrottle", {"item": True}, 14, "item"),
        ("cosmosThrottle", {"retryAfterMs": -1}, 2, "retryAfterMs.*-1"),
        ("cosmosThrottle", {"retryAfterMs": "5"}, 14, "retryAfterMs"),
        ("cosmosThrottle", {"commands": "insert"}, 14, "commands"),
        ("cosmosThrottle", {"commands": ["insert", 5]}, 14, "commands"),
        ("cosmosThrottle", {"commands": []}, 2, "commands"),
        ("cosmosThrottle", {"commands": ["insert", "insrt"]}, 2, "insrt"),
        # Known to MongoDB, but not to this server, and one that would lock the test out.
        ("cosmosThrottle", {"commands": ["moveChunk"]}, 2, "moveChunk"),
        ("cosmosThrottle", {"commands": ["configureFailPoint"]}, 2, "configureFailPoint"),
        ("cosmosThrottle", {"namespace": 5}, 14, "namespace"),
        ("cosmosThrottle", {"namespace": "orders"}, 2, "namespace.*orders"),
        ("cosmosThrottle", {"appName": 5}, 14, "appName"),
        ("cosmosTimeout", {"form": "single"}, 2, "form.*single.*plain, rateLimited, notRateLimited"),
        ("cosmosTimeout", {"retryAfterMs": 5}, 40415, "retryAfterMs"),
        ("cosmosUnavailable", {"form": "plain"}, 40415, "form"),
    ],
)
def test_wrong_data_is_refused_by_name(
    account: Client, point: str, data: dict[str, Any], code: int, named: str
) -> None:
    fail(account, {"times": 1, "skip": 1}, point)
    with pytest.raises(OperationFailure, match=named) as caught:
        fail(account, "alwaysOn", point, **data)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "mode", ["sometimes", {"times": -1}, {"skip": -1}, {"times": True}, {"times": 1.5}, {"often": 1}]
)
def test_wrong_modes_are_refused(account: Client, mode: Any) -> None:
    with pytest.raises(OperationFailure) as caught:
        fail(account, mode)
    assert caught.value.code == 2


def test_wrong_data_from_python(cosmos: mongottl.RunningServer) -> None:
    with pytest.raises(CommandError, match="insrt"), cosmos.throttle("insrt"):
        pass


Orders = Collection[dict[str, Any]]
PIPELINE: list[dict[str, Any]] = [
    {"$match": {"operationType": {"$in": ["insert", "update", "replace"]}}},
    {"$project": {"_id": 1, "fullDocument": 1, "ns": 1, "documentKey": 1}},
]
# What applications do, as PyMongo does it. Each sends one command on documents.
OPERATIONS: dict[str, Callable[[Orders], object]] = {
    "find_one": lambda orders: orders.find_one({"_id": 1}),
    "find": lambda orders: list(orders.find({})),
    "aggregate": lambda orders: list(orders.aggregate([{"$match": {}}])),
    "count": lambda orders: orders.count_documents({}),
    "distinct": lambda orders: orders.distinct("_id"),
    "insert_one": lambda orders: orders.insert_one({"_id": 7}),
    "insert_many": lambda orders: orders.insert_many([{"_id": 7}, {"_id": 8}]),
    "update_one": lambda orders: orders.update_one({"_id": 1}, {"$set": {"a": 1}}),
    "update_many": lambda orders: orders.update_many({}, {"$set": {"a": 1}}),
    "delete_many": lambda orders: orders.delete_many({}),
    "bulk_write": lambda orders: orders.bulk_write([pymongo.DeleteOne({"_id": n}) for n in (0, 1)]),
    "find_one_and_update": lambda orders: orders.find_one_and_update({"_id": 1}, {"$set": {"a": 1}}),
    "watch": lambda orders: orders.watch(PIPELINE, full_document="updateLookup"),
}
OF_STATEMENTS = {"insert_one", "insert_many", "update_one", "update_many", "delete_many", "bulk_write"}


def failure(shop: Shop, name: str, code_name: str) -> dict[str, Any]:
    """The error with which an operation fails: of a statement if it writes."""
    shop.orders.insert_many([{"_id": 0}, {"_id": 1}])
    with pytest.raises(OperationFailure) as caught:
        OPERATIONS[name](shop.orders)
    failed: Any = caught.value.details
    if name in OF_STATEMENTS:
        assert isinstance(caught.value, (BulkWriteError, pymongo.errors.WriteError))
        if isinstance(caught.value, BulkWriteError):
            (failed,) = failed["writeErrors"]
    else:
        assert failed["codeName"] == code_name
    assert list(shop.orders.find()) == [{"_id": 0}, {"_id": 1}]
    return cast(dict[str, Any], failed)


@pytest.mark.parametrize("form", list(TIMEOUT_TEXTS))
@pytest.mark.parametrize("name", OPERATIONS)
def test_timeouts_as_an_application_meets_them(account: Client, shop: Shop, name: str, form: str) -> None:
    fail(account, {"skip": 1, "times": 1}, "cosmosTimeout", form=form)
    failed = failure(shop, name, "ExceededTimeLimit")
    assert (failed["code"], failed["errmsg"]) == (50, TIMEOUT_TEXTS[form])


@pytest.mark.parametrize("name", OPERATIONS)
def test_unavailability_as_an_application_meets_it(account: Client, shop: Shop, name: str) -> None:
    fail(account, {"skip": 1, "times": 1}, "cosmosUnavailable")
    failed = failure(shop, name, "InternalError")
    assert failed["code"] == 1
    assert failed["errmsg"].startswith("Error=1, Details='Response status code does not indicate success: Service")


@pytest.mark.parametrize(("point", "code"), [("cosmosTimeout", 50), ("cosmosUnavailable", 1)])
def test_cursors_and_change_streams_that_fail(account: Client, shop: Shop, point: str, code: int) -> None:
    """A change stream can be resumed with its token."""
    shop.orders.insert_many([{"_id": n} for n in range(4)])
    cursor = shop.orders.find(batch_size=2)
    assert [next(cursor)["_id"] for _ in range(2)] == [0, 1]
    fail(account, {"times": 1}, point, commands=["getMore"])
    with pytest.raises(OperationFailure) as caught:
        next(cursor)
    assert caught.value.code == code
    with shop.orders.watch(PIPELINE, full_document="updateLookup", max_await_time_ms=1) as stream:
        assert stream.try_next() is None
        token = stream.resume_token
        shop.orders.insert_one({"_id": 7})
        fail(account, {"times": 1}, point, commands=["getMore"])
        with pytest.raises(OperationFailure) as caught:
            stream.try_next()
        assert caught.value.code == code
    with shop.orders.watch(PIPELINE, full_document="updateLookup", resume_after=token) as stream:
        assert stream.next()["documentKey"] == {"_id": 7}


def test_from_python(cosmos: mongottl.RunningServer, shop: Shop) -> None:
    with cosmos.throttle("insert", times=2, retry_after_ms=7):
        for i in range(4):
            reply = shop.command("insert", "orders", documents=[{"_id": i}])
            assert reply["n"] == (0 if i < 2 else 1)
            if i < 2:
                assert "RetryAfterMs=7," in reply["writeErrors"][0]["errmsg"]
    with cosmos.throttle(form="noHint", namespace="shop.orders", skip=1, item=0):
        assert shop.command("count", "orders")["n"] == 2
        assert refused(shop, "count", "orders")["errmsg"] == "Error=16500, Details='Query error.'"
    assert shop.command("count", "orders")["n"] == 2


def retries_by_code(error: OperationFailure) -> bool:
    return error.code == 16500


def retries_by_name(error: OperationFailure) -> bool:
    return error.details is not None and error.details.get("codeName") == "RequestRateTooLarge"


def retries_by_text(error: OperationFailure) -> bool:
    return re.search(r"RetryAfterMs=(\d+),", str(error)) is not None


@pytest.mark.parametrize("is_throttled", [retries_by_code, retries_by_name, retries_by_text])
def test_helpers_that_retry(cosmos: mongottl.RunningServer, shop: Shop, is_throttled: Any) -> None:
    """Programs for Cosmos DB know a throttled request by its code, by the name of the code, or by the text."""
    shop.orders.insert_one({"_id": 1})
    refusals = 0
    with cosmos.throttle("find", times=3):
        while True:
            try:
                assert shop.orders.find_one() == {"_id": 1}
                break
            except OperationFailure as error:
                assert is_throttled(error)
                refusals += 1
    assert refusals == 3


def test_the_block_ends_it(cosmos: mongottl.RunningServer, shop: Shop) -> None:
    with pytest.raises(ZeroDivisionError), cosmos.throttle():
        raise ZeroDivisionError
    assert shop.command("count", "orders")["n"] == 0


def test_only_in_the_dialect_cosmos(server: mongottl.RunningServer, client: Client) -> None:
    with pytest.raises(OperationFailure) as caught:
        fail(client, "alwaysOn")
    assert caught.value.code == 115
    with pytest.raises(CommandError), server.throttle():
        pass


def test_only_with_test_commands() -> None:
    with mongottl.start_server(dialect="cosmos", enable_test_commands=False) as running, Client(running.uri) as client:
        assert refused(client.admin, "configureFailPoint", "cosmosThrottle", mode="off")["code"] == 59
