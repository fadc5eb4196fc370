"""Request units in the dialect `cosmos`: what operations cost, how it is told, and budgets that are enforced."""

import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pymongo
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import BulkWriteError, OperationFailure

import mongottl
from mongottl.dialect.cosmos.dialect import CosmosDialect
from tests.drivers.wire_client import WireClient
from tests.on_nodes import nodes_of, own_units, whole_budget
from tests.waiting import PATIENCE_S, until

pytestmark = own_units

Client = pymongo.MongoClient[dict[str, Any]]
Shop = Database[dict[str, Any]]


def document(key: Any, size_bytes: int = 1024, **fields: Any) -> dict[str, Any]:
    """A document of exactly this length in BSON."""
    import bson

    made = {"_id": key, **fields, "filler": ""}
    made["filler"] = "x" * (size_bytes - len(bson.encode(made)))
    assert len(bson.encode(made)) == size_bytes
    return made


def charge(database: Shop) -> float:
    statistics = database.command("getLastRequestStatistics")
    return float(statistics["RequestCharge"])


def test_statistics_of_the_last_request(cosmos: mongottl.RunningServer) -> None:
    with Client(cosmos.uri, maxPoolSize=1) as client:
        before = client.shop.command("getLastRequestStatistics")
        assert uuid.UUID(before.pop("ActivityId")).version == 4
        assert before == {
            "CommandName": "",
            "RequestCharge": 0.0,
            "RequestDurationInMilliSeconds": 0,
            "EstimatedDelayFromRateLimitingInMilliseconds": 0,
            "RetriedDueToRateLimiting": False,
            "ok": 1,
        }
        client.shop.orders.insert_one(document(1))
        client.admin.command("ping")
        after = client.shop.command({"getLastRequestStatistics": "x"})
        assert (after["CommandName"], after["RequestCharge"]) == ("insert", 5.5)
        assert isinstance(after["RequestCharge"], float)
        client.drop_database("shop")


def test_writes(shop: Shop) -> None:
    shop.orders.insert_one(document(1))
    assert charge(shop) == 5.5
    shop.orders.insert_one(document(2, 1025))
    assert charge(shop) == 11.0
    shop.orders.replace_one({"_id": 1}, document(1, n=1))
    assert charge(shop) == 11.0
    shop.orders.update_one({"_id": 1}, {"$set": {"n": 2}})
    assert charge(shop) == 11.0
    shop.orders.find_one_and_update({"_id": 1}, {"$set": {"n": 3}})
    assert charge(shop) == 11.0
    shop.orders.delete_one({"_id": 1})
    assert charge(shop) == 5.5
    shop.orders.delete_one({"_id": 1})
    assert charge(shop) == 1.0
    shop.orders.insert_many([document(i) for i in range(10, 20)])
    assert charge(shop) == 55.0
    shop.orders.update_one({"_id": 99}, {"$set": {"n": 3}}, upsert=True)
    assert charge(shop) == 5.5


def test_index_entries(shop: Shop) -> None:
    shop.orders.create_index("a")
    shop.orders.create_index("tags")
    shop.orders.insert_one(document(1, a=1, n=1, tags=["x", "y"]))
    assert charge(shop) == 5.5 + 3
    shop.orders.update_one({"_id": 1}, {"$set": {"a": 2}})
    assert charge(shop) == 11 + 2
    shop.orders.update_one({"_id": 1}, {"$set": {"n": 2}})
    assert charge(shop) == 11
    shop.orders.delete_one({"_id": 1})
    assert charge(shop) == 5.5 + 3


def test_reads(shop: Shop) -> None:
    shop.orders.insert_many([document(i, a=i % 10) for i in range(1000)])
    shop.large.insert_one(document(1, 100 * 1024))
    assert shop.orders.find_one({"_id": 5}) is not None
    assert charge(shop) == 1.0
    assert shop.orders.find_one({"_id": -1}) is None
    assert charge(shop) == 1.0
    assert shop.large.find_one({"_id": 1}) is not None
    assert charge(shop) == 10.0
    assert len(list(shop.orders.find({}, batch_size=2000))) == 1000
    assert charge(shop) == 2.8 + 35 + 1000
    assert len(list(shop.orders.find({"a": 3}))) == 100
    assert charge(shop) == 2.8 + 35 + 100
    shop.orders.create_index("a")
    assert len(list(shop.orders.find({"a": 3}))) == 100
    assert charge(shop) == 2.8 + 1.5 + 3.5 + 100
    assert shop.orders.count_documents({"filler": "y"}) == 0
    assert charge(shop) == 2.8 + 35
    assert shop.command("count", "orders")["n"] == 1000
    assert charge(shop) == 2.8 + 35
    assert shop.orders.update_many({"filler": "y"}, {"$set": {"b": 1}}).matched_count == 0
    assert charge(shop) == 2.8 + 35


def test_pages_add_up_to_the_whole(cosmos: mongottl.RunningServer, shop: Shop) -> None:
    shop.orders.insert_many([document(i) for i in range(300)])
    cosmos.request_units(reset=True)
    assert len(list(shop.orders.find({}, batch_size=64))) == 300
    report = cosmos.request_units()
    assert {row.command for row in report.rows} == {"find", "getMore"}
    assert report.total == 2.8 + 10.5 + 300


OPERATIONS: list[dict[str, Any]] = [
    {"find": "orders", "filter": {"_id": 7}},
    {"find": "orders", "filter": {"b": 3}, "limit": 2, "singleBatch": True},
    {"find": "orders", "filter": {"a": 3, "b": 1}, "limit": 1, "singleBatch": True},
    {"find": "orders", "filter": {"a": {"$gt": 2}, "b": {"$lt": 4}}, "sort": {"a": 1}, "singleBatch": True},
    {"aggregate": "orders", "pipeline": [{"$group": {"_id": "$a", "n": {"$sum": 1}}}], "cursor": {}},
    {"aggregate": "orders", "pipeline": [{"$match": {"b": 2}}, {"$limit": 3}], "cursor": {}},
    {"count": "orders", "query": {"a": 3}},
    {"distinct": "orders", "key": "b", "query": {"a": 1}},
    {"update": "orders", "updates": [{"q": {"b": 99}, "u": {"$set": {"c": 1}}}]},
    {"update": "orders", "updates": [{"q": {"b": 3}, "u": {"$set": {"b": 3}}}]},
    {"findAndModify": "orders", "query": {"c": 99}, "remove": True},
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_the_same_costs_the_same(shop: Shop, operation: dict[str, Any]) -> None:
    shop.orders.insert_many([{"_id": i, "a": i % 7, "b": i % 5, "text": "x" * (i % 1500)} for i in range(2000)])
    shop.orders.create_index("a")
    shop.orders.create_index("b")
    charges = set()
    for _ in range(6):
        shop.command(operation)
        charges.add(charge(shop))
    assert len(charges) == 1
    assert charges.pop() >= 1


def test_purges_cost_nothing(cosmos: mongottl.RunningServer, shop: Shop) -> None:
    shop.orders.create_index("_ts", expireAfterSeconds=10)
    shop.orders.insert_many([document(i) for i in range(20)])
    cosmos.request_units(reset=True)
    assert cosmos.clock.advance(11) == 20
    assert cosmos.request_units().requests == 0


def test_transactions(account: Client, shop: Shop) -> None:
    shop.orders.insert_one(document(1))
    with account.start_session() as session, session.start_transaction():
        shop.orders.insert_one(document(2), session=session)
        assert charge(shop) == 5.5
        shop.orders.update_one({"_id": 1}, {"$set": {"n": 1}}, session=session)
        assert charge(shop) == 22.0  # of two begun KB
        assert shop.orders.find_one({"_id": 2}, session=session) is not None
        assert charge(shop) == 1.0


def test_sums_by_command_and_namespace(cosmos: mongottl.RunningServer, account: Client, shop: Shop) -> None:
    account.admin.command({"getRequestUnits": 1, "reset": True})
    shop.orders.insert_many([document(i) for i in range(4)])
    shop.orders.insert_one(document(9))
    shop.carts.find_one({"_id": 1})
    report = account.admin.command("getRequestUnits")
    assert report == {
        "total": 28.5,
        "requests": 3,
        "throttled": 0,
        "operations": [
            {"command": "insert", "ns": "shop.orders", "requests": 2, "charge": 27.5, "throttled": 0},
            {"command": "find", "ns": "shop.carts", "requests": 1, "charge": 1.0, "throttled": 0},
        ],
        "ok": 1,
    }
    told = cosmos.request_units()
    assert (told.total, told.requests) == (28.5, 3)
    assert told.rows[0] == ("insert", "shop.orders", 2, 27.5, 0)


def test_off(cosmos: mongottl.RunningServer, account: Client, shop: Shop) -> None:
    cosmos.request_units(reset=True)
    account.admin.command("configureCosmos", {"throughput": "off"})
    shop.orders.insert_one(document(1))
    assert cosmos.request_units().requests == 0


def test_a_throttled_request_is_not_free(cosmos: mongottl.RunningServer, shop: Shop) -> None:
    cosmos.request_units(reset=True)
    with cosmos.throttle(times=2):
        for _ in range(2):
            with pytest.raises(OperationFailure):
                shop.orders.find_one()
    with cosmos.throttle("insert", times=1, item=1), pytest.raises(BulkWriteError):
        shop.orders.insert_many([document(1), document(2)], ordered=False)
    report = cosmos.request_units()
    assert (report.total, report.requests, report.throttled) == (6.64, 3, 3)


def test_the_log_tells_of_charges(account: Client, shop: Shop, capfd: pytest.CaptureFixture[str]) -> None:
    with mongottl.start_server(dialect="cosmos", quiet=False) as running, Client(running.uri) as client:
        client.shop.orders.insert_one(document(1))
        client.shop.orders.find_one({"_id": 1})
    lines = capfd.readouterr().err
    assert re.search(r"Request units .*\"total\": 6\.5, \"requests\": 2, .*insert shop\.orders: 5\.5", lines)


def test_the_log_tells_of_each_charge(capfd: pytest.CaptureFixture[str]) -> None:
    """From verbosity 1 on, of commands that fail, too."""
    with (
        mongottl.start_server(dialect="cosmos", quiet=False, verbosity=1) as running,
        Client(running.uri) as client,
        running.throttle("find", times=1),
    ):
        client.shop.orders.insert_one(document(1))
        with pytest.raises(OperationFailure):
            client.shop.orders.find_one()
    lines = capfd.readouterr().err
    assert re.search(r'Command  \{"command": "insert", "ns": "shop\.orders", .*"requestCharge": 5\.5\}', lines)
    assert re.search(r'"command": "find", .*"errCode": 16500, "requestCharge": 0\.38\}', lines)
    assert re.search(r'"command": "ping", "ns": "admin\.\$cmd"\}', lines) is None


def test_the_log_tells_of_the_charge_of_a_slow_query(account: Client, capfd: pytest.CaptureFixture[str]) -> None:
    with mongottl.start_server(dialect="cosmos", quiet=False) as running, Client(running.uri) as client:
        client.admin.command("configureCosmos", {"allow": ["missing-features"]})
        client.shop.command("profile", 0, slowms=-1)
        client.shop.orders.insert_one(document(1))
    assert re.search(r'Slow query  .*"ns": "shop\.orders".*"requestCharge": 5\.5', capfd.readouterr().err)


@pytest.mark.parametrize("command", ["getLastRequestStatistics", "getRequestUnits"])
def test_only_in_the_dialect_cosmos(client: Client, command: str) -> None:
    with pytest.raises(OperationFailure) as caught:
        client.admin.command(command)
    assert caught.value.code == 115


# Budgets.


def enforce(account: Client, cosmos: mongottl.RunningServer, **settings: Any) -> None:
    cosmos.clock.advance(1.25)
    account.admin.command("configureCosmos", {"throughput": "enforced", **settings})


def hint_ms(error: Any) -> int:
    found = re.search(r"RetryAfterMs=(\d+),", str(error))
    assert found is not None
    return int(found[1])


@whole_budget
def test_a_budget_of_400_units_per_second(cosmos: mongottl.RunningServer, account: Client, shop: Shop) -> None:
    enforce(account, cosmos)
    done = 0
    with pytest.raises(pymongo.errors.WriteError) as caught:
        for i in range(1000):
            shop.orders.insert_one(document(i))
            done += 1
    assert caught.value.code == 16500
    assert done == 73  # 73 × 5.5 = 401.5
    with pytest.raises(OperationFailure) as read:
        shop.orders.find_one()
    assert read.value.details is not None
    assert read.value.details["codeName"] == "RequestRateTooLarge"
    shop.carts.insert_one(document(1))
    wait_ms = hint_ms(read.value)
    assert wait_ms == 1000 - int(cosmos.clock.now().microsecond // 1000)
    cosmos.clock.advance((wait_ms - 1) / 1000)
    with pytest.raises(OperationFailure):
        shop.orders.find_one()
    cosmos.clock.advance(0.001)
    assert shop.orders.find_one({"_id": 1}) is not None


@whole_budget
def test_a_batch_is_charged_statement_by_statement(cosmos: mongottl.RunningServer, account: Client, shop: Shop) -> None:
    enforce(account, cosmos)
    with pytest.raises(BulkWriteError) as caught:
        shop.orders.insert_many([document(i) for i in range(100)])
    details = caught.value.details
    assert details["nInserted"] == 73
    assert [(error["index"], error["code"]) for error in details["writeErrors"]] == [(73, 16500)]
    assert "Details='Batch write error." in details["writeErrors"][0]["errmsg"]
    cosmos.clock.advance(hint_ms(details["writeErrors"][0]["errmsg"]) / 1000)
    shop.orders.insert_many([document(i) for i in range(73, 100)])
    assert shop.orders.count_documents({}) == 100
    cosmos.clock.advance(1)
    with pytest.raises(BulkWriteError) as caught:
        shop.orders.bulk_write([pymongo.UpdateOne({"_id": i}, {"$set": {"n": 1}}) for i in range(60)], ordered=False)
    assert caught.value.details["nModified"] == 19  # 19 × 22 = 418
    assert len(caught.value.details["writeErrors"]) == 41
    cosmos.clock.advance(1)
    with pytest.raises(BulkWriteError) as caught:
        shop.orders.bulk_write([pymongo.DeleteOne({"_id": i}) for i in range(100)])
    assert caught.value.details["nRemoved"] == 54  # 19 × 11 + 35 × 5.5 = 401.5


@whole_budget
def test_provisioned_throughput(cosmos: mongottl.RunningServer, account: Client, shop: Shop) -> None:
    shop.command("customAction", "CreateCollection", collection="orders", offerThroughput=1000)
    account.stock.command("customAction", "CreateDatabase", offerThroughput=500)
    enforce(account, cosmos)
    with pytest.raises(BulkWriteError) as caught:
        shop.orders.insert_many([document(i) for i in range(300)])
    assert caught.value.details["nInserted"] == 182  # 182 × 5.5 = 1001
    with pytest.raises(BulkWriteError) as caught:
        account.stock.a.insert_many([document(i) for i in range(300)])
    assert caught.value.details["nInserted"] == 91  # 91 × 5.5 = 500.5
    with pytest.raises(OperationFailure):
        account.stock.b.insert_one(document(1))
    account.drop_database("stock")


@whole_budget
def test_requests_that_wait_in_the_server(cosmos: mongottl.RunningServer, account: Client, shop: Shop) -> None:
    enforce(account, cosmos, capabilities=["DisableRateLimitingResponses"])
    outcomes: list[Any] = []

    def insert() -> None:
        try:
            outcomes.append(len(shop.orders.insert_many([document(i) for i in range(100)]).inserted_ids))
        except (BulkWriteError, OperationFailure) as error:
            outcomes.append(error)

    def begin() -> threading.Thread:
        thread = threading.Thread(target=insert)
        thread.start()
        while account.shop.command("dbStats")["objects"] < 73:  # 73 × 5.5 = 401.5
            pass
        return thread

    thread = begin()
    assert outcomes == []
    cosmos.clock.advance(1)
    thread.join(PATIENCE_S)
    assert outcomes == [100]
    shop.orders.drop()
    cosmos.clock.advance(1)
    thread = begin()
    cosmos.clock.advance(61)
    thread.join(PATIENCE_S)
    assert isinstance(outcomes[1], BulkWriteError)
    assert outcomes[1].details["nInserted"] == 73
    (failed,) = outcomes[1].details["writeErrors"]
    assert (failed["index"], failed["code"]) == (73, 50)
    assert failed["errmsg"] == "Request timed out. Retries due to rate limiting: True."


def test_statistics_of_a_request_that_has_waited(
    cosmos: mongottl.RunningServer, account: Client, waiting: WireClient
) -> None:
    cosmos.clock.advance(1)
    assert waiting.reply() == {"n": 1, "ok": 1.0}
    told = waiting.command({"getLastRequestStatistics": 1}, "shop")
    assert told["EstimatedDelayFromRateLimitingInMilliseconds"] == 1000
    assert told["RequestDurationInMilliSeconds"] >= 1000
    assert told["RetriedDueToRateLimiting"] is True
    waiting.command({"find": "orders"}, "shop")
    told = waiting.command({"getLastRequestStatistics": 1}, "shop")
    assert (told["EstimatedDelayFromRateLimitingInMilliseconds"], told["RetriedDueToRateLimiting"]) == (0, False)


@pytest.fixture
def waiting(cosmos: mongottl.RunningServer, account: Client, shop: Shop) -> Iterator[WireClient]:
    """A connection whose insert into `orders` waits for the next second of a clock that stands still."""
    with waiting_insert(cosmos, account) as connection:
        yield connection


@contextmanager
def waiting_insert(cosmos: mongottl.RunningServer, account: Client) -> Iterator[WireClient]:
    enforce(account, cosmos, capabilities=["DisableRateLimitingResponses"])
    account.shop.orders.insert_one(document(0, 100 * 1024))  # 550 RU
    connection = WireClient(cosmos.uri)
    connection.send({"insert": "orders", "documents": [document(1)]}, "shop")
    until_waiting(cosmos, account, connection)
    yield connection
    connection.close()


def let_others_run(account: Client) -> None:
    """Returns when the server has seen what has happened on other connections."""
    for _ in range(3):
        account.admin.command("ping")


def until_waiting(cosmos: mongottl.RunningServer, account: Client, connection: WireClient) -> None:
    """Returns when the request of a connection waits for the next second, or was answered. What it does before that
    takes as long as the store does, and the clock that it would be cut off by must not be moved meanwhile."""
    let_others_run(account)  # a request that waited until now has seen that the clock has moved
    dialects = [node.dialect for node in nodes_of(cosmos)]
    budgets = [dialect.budgets for dialect in dialects if isinstance(dialect, CosmosDialect)]
    until(
        lambda: connection.has_reply() or any(budget._waiting for budget in budgets),
        "the request neither waits nor was answered",
    )


def test_a_waiting_request_goes_on_when_throughput_is_only_counted(account: Client, waiting: WireClient) -> None:
    account.admin.command("configureCosmos", {"throughput": "metered"})
    assert waiting.reply() == {"n": 1, "ok": 1.0}


@pytest.mark.parametrize(
    "write",
    [
        {"delete": "orders", "deletes": [{"q": {}, "limit": 0}]},
        {"update": "orders", "updates": [{"q": {}, "u": {"$set": {"a": 1}}, "multi": True}]},
    ],
)
def test_a_write_of_many_documents_is_slowed_down(
    cosmos: mongottl.RunningServer, account: Client, shop: Shop, write: dict[str, Any]
) -> None:
    """As recorded: to what was provisioned, until it is cut off after a minute with a part of the documents written."""
    shop.orders.insert_many([document(n) for n in range(900)])
    enforce(account, cosmos, capabilities=["DisableRateLimitingResponses"])
    connection = WireClient(cosmos.uri)
    connection.send(write, "shop")
    seconds = 0
    until_waiting(cosmos, account, connection)
    while not connection.has_reply():
        cosmos.clock.advance(1)
        seconds += 1
        until_waiting(cosmos, account, connection)
    assert connection.reply()["n"] == 900
    # 64 documents at a time, which cost 352 or 704 of 400 each.
    assert seconds >= 900 // 128
    told = connection.command({"getLastRequestStatistics": 1}, "shop")
    assert told["RetriedDueToRateLimiting"] is True
    account.admin.command("configureCosmos", {"throughput": "metered"})
    shop.orders.drop()
    shop.orders.insert_many([document(n) for n in range(900)])
    enforce(account, cosmos, capabilities=["DisableRateLimitingResponses"])
    connection.send(write, "shop")
    until_waiting(cosmos, account, connection)
    cosmos.clock.advance(60)
    (failed,) = connection.reply()["writeErrors"]
    assert failed["code"] == 50
    account.admin.command("configureCosmos", {"throughput": "metered", "capabilities": []})
    done = 900 - shop.orders.count_documents({"a": {"$exists": False}})
    assert 0 < done < 900
    connection.close()


def test_an_insert_that_has_waited_is_into_the_collection_that_is_there_then(
    cosmos: mongottl.RunningServer, account: Client, shop: Shop
) -> None:
    enforce(account, cosmos, capabilities=["DisableRateLimitingResponses"])
    connection = WireClient(cosmos.uri)
    documents = [document(0, 100 * 1024), document(1), document(2)]  # the first one costs 550 RU
    connection.send({"insert": "orders", "documents": documents}, "shop")
    until_waiting(cosmos, account, connection)
    shop.orders.drop()
    cosmos.clock.advance(2)
    assert connection.reply() == {"n": 3, "ok": 1.0}
    account.admin.command("configureCosmos", {"throughput": "metered", "capabilities": []})
    assert [stored["_id"] for stored in shop.orders.find({}, {"_id": 1})] == [1, 2]
    connection.close()


def test_a_waiting_request_is_refused_when_requests_do_not_wait_any_more(
    cosmos: mongottl.RunningServer, account: Client, waiting: WireClient
) -> None:
    account.admin.command("configureCosmos", {"capabilities": []})
    reply = waiting.reply()
    assert (reply["n"], reply["writeErrors"][0]["code"]) == (0, 16500)
    assert hint_ms(reply) == 1000 - cosmos.clock.now().microsecond // 1000


@whole_budget
@pytest.mark.parametrize("provisioned", ["collection", "database"])
def test_a_waiting_request_goes_on_when_the_throughput_is_raised(
    cosmos: mongottl.RunningServer, account: Client, shop: Shop, provisioned: str
) -> None:
    if provisioned == "collection":
        shop.command("customAction", "CreateCollection", collection="orders", offerThroughput=400)
    else:
        shop.command("customAction", "CreateDatabase", offerThroughput=400)
    with waiting_insert(cosmos, account) as connection:
        if provisioned == "collection":
            shop.command("customAction", "UpdateCollection", collection="orders", offerThroughput=600)
        else:
            shop.command("customAction", "UpdateDatabase", offerThroughput=600)
        assert connection.reply() == {"n": 1, "ok": 1.0}


def test_a_waiting_request_ends_with_its_connection(account: Client, shop: Shop, waiting: WireClient) -> None:
    waiting.close()
    let_others_run(account)
    account.admin.command("configureCosmos", {"throughput": "metered"})
    let_others_run(account)
    assert [found["_id"] for found in shop.orders.find()] == [0]


def test_a_waiting_request_ends_with_its_time(shop: Shop, waiting: WireClient) -> None:
    error = refusal(shop, {"find": "orders", "maxTimeMS": 20})
    assert (error["code"], error["errmsg"]) == (50, "Request timed out. Retries due to rate limiting: True.")


def refusal(shop: Shop, command: dict[str, Any]) -> dict[str, Any]:
    with pytest.raises(OperationFailure) as caught:
        shop.command(command)
    assert caught.value.details is not None
    return dict(caught.value.details)


Operation = Callable[[Collection[dict[str, Any]], int, int], object]


def insert(orders: Collection[dict[str, Any]], i: int, size: int) -> object:
    return orders.insert_one(document(i, size))


def replace(orders: Collection[dict[str, Any]], i: int, size: int) -> object:
    return orders.replace_one({"_id": i % 10}, document(i % 10, size), upsert=True)


def read(orders: Collection[dict[str, Any]], i: int, size: int) -> object:
    return list(orders.find({"filler": "x" * size})) + list(orders.aggregate([{"$group": {"_id": 1}}]))


def modify(orders: Collection[dict[str, Any]], i: int, size: int) -> object:
    return orders.find_one_and_update({"_id": 1}, {"$inc": {"n": size}}, upsert=True)


@settings(max_examples=10, deadline=None)
@given(
    sizes=st.lists(st.integers(min_value=100, max_value=60_000), min_size=1, max_size=4),
    fraction=st.integers(min_value=0, max_value=999),
    operation=st.sampled_from([insert, replace, read, modify]),
)
def test_after_the_hint_the_retry_succeeds(
    cosmos: mongottl.RunningServer, sizes: list[int], fraction: int, operation: Operation
) -> None:
    with Client(cosmos.uri) as client:
        client.admin.command("configureCosmos", {"throughput": "enforced"})
        try:
            cosmos.clock.advance(2 - cosmos.clock.now().microsecond / 1_000_000 + fraction / 1000)
            orders = client.shop.orders
            for i in range(5000):
                try:
                    operation(orders, i, sizes[i % len(sizes)])
                except OperationFailure as error:
                    wait_ms = hint_ms(error)
                    assert 0 < wait_ms <= 1000
                    cosmos.clock.advance(wait_ms / 1000)
                    operation(orders, i, sizes[i % len(sizes)])
                    break
            else:
                raise AssertionError("never throttled")
        finally:
            client.admin.command("configureCosmos", {"throughput": "metered"})
            client.drop_database("shop")
