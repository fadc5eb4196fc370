"""Transactions and retryable writes of the dialect `cosmos`.

By Microsoft's articles on the features that the service supports, and by codes and texts that users of it report.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pymongo
import pytest
from bson import Binary, Int64
from pymongo.errors import BulkWriteError, OperationFailure, WriteError

import mongottl
from tests.drivers.cosmos.facts.facts import storage_failure
from tests.drivers.wire_client import WireClient
from tests.on_nodes import own_account
from tests.on_store import needs_one_machine

Documents = dict[str, Any]
Client = pymongo.MongoClient[Documents]
RETRYABLE = "EnableMongoRetryableWrites"
NOT_ACTIVE = storage_failure("Transaction is not active", 1101)
LSID = {"id": Binary(b"0123456789abcdef", 4)}


@pytest.fixture
def account(account: Client) -> Client:
    """The client of all these tests, with a document in each of two collections."""
    account.shop.orders.insert_one({"_id": 0, "n": 0})
    account.shop.items.insert_one({"_id": 0, "n": 0})
    return account


@pytest.fixture
def retrying(cosmos: mongottl.RunningServer, account: Client) -> Iterator[Client]:
    """A client that retries writes, of an account that has the capability."""
    account.admin.command("configureCosmos", {"capabilities": [RETRYABLE]})
    with Client(cosmos.uri, retryWrites=True) as client:
        yield client


def test_a_transaction_on_one_collection(account: Client) -> None:
    orders = account.shop.orders
    with account.start_session() as session:
        with session.start_transaction():
            orders.insert_one({"_id": 1}, session=session)
            orders.update_one({"_id": 0}, {"$inc": {"n": 1}}, session=session)
            assert orders.count_documents({}) == 1
        assert orders.count_documents({}) == 2
        session.start_transaction()
        orders.delete_many({}, session=session)
        session.abort_transaction()
    assert orders.find_one({"_id": 0}) == {"_id": 0, "n": 1}


def test_several_collections_are_refused(account: Client) -> None:
    shop = account.shop
    with account.start_session() as session:
        session.start_transaction()
        shop.orders.update_one({"_id": 0}, {"$inc": {"n": 1}}, session=session)
        with pytest.raises(OperationFailure, match=r"shop\.orders and shop\.items") as caught:
            shop.items.update_one({"_id": 0}, {"$inc": {"n": 1}}, session=session)
        assert caught.value.code == 50841
        with pytest.raises(OperationFailure, match="Transaction is not active"):
            session.commit_transaction()
    assert shop.orders.find_one() == {"_id": 0, "n": 0}


def test_reading_another_collection_is_refused_too(account: Client) -> None:
    with (
        pytest.raises(OperationFailure) as caught,
        account.start_session() as session,
        session.start_transaction(),
    ):
        account.shop.orders.find_one({}, session=session)
        account.shop.items.find_one({}, session=session)
    assert caught.value.code == 50841


LOOKUP = {"from": "missing", "localField": "n", "foreignField": "n", "as": "found"}


@own_account
@pytest.mark.parametrize(
    "statement",
    [
        {"find": "missing"},
        {"aggregate": "missing", "pipeline": [], "cursor": {}},
        {"aggregate": "orders", "pipeline": [{"$lookup": LOOKUP}], "cursor": {}},
        {"distinct": "missing", "key": "n"},
        {"update": "missing", "updates": [{"q": {}, "u": {"$set": {"n": 1}}}]},
        {"delete": "missing", "deletes": [{"q": {}, "limit": 1}]},
        {"findAndModify": "missing", "remove": True},
        {"insert": "missing", "documents": [{"_id": 1}]},
    ],
)
def test_a_collection_that_does_not_exist_is_another_one(account: Client, statement: Documents) -> None:
    shop = account.shop
    with account.start_session() as session:
        for first, second in ((statement, {"find": "orders"}), ({"find": "orders"}, statement)):
            session.start_transaction()
            with pytest.raises(
                OperationFailure, match=r"across several collections: shop\.\w+ and shop\.\w+"
            ) as caught:
                for command in (first, second):
                    shop.command(command, session=session)
            assert caught.value.code == 50841
            session.abort_transaction()
        with session.start_transaction():
            assert shop.command({"find": "missing"}, session=session)["cursor"]["firstBatch"] == []
            shop.command({"insert": "missing", "documents": [{"_id": 1}]}, session=session)
    assert shop.list_collection_names(filter={"name": "missing"}) == ["missing"]
    account.admin.command("configureCosmos", {"allow": ["cross-collection-transaction"]})
    shop.missing.drop()
    with account.start_session() as session, session.start_transaction():
        shop.command({"find": "missing"}, session=session)
        shop.command({"find": "orders"}, session=session)


@own_account
@needs_one_machine
def test_several_collections_can_be_allowed(account: Client) -> None:
    account.admin.command("configureCosmos", {"allow": ["cross-collection-transaction"]})
    with account.start_session() as session, session.start_transaction():
        for collection in (account.shop.orders, account.shop.items):
            collection.update_one({"_id": 0}, {"$inc": {"n": 1}}, session=session)
    assert account.shop.orders.find_one() == account.shop.items.find_one() == {"_id": 0, "n": 1}


def test_a_sharded_collection_is_refused(account: Client) -> None:
    account.shop.command({"customAction": "CreateCollection", "collection": "sharded", "shardKey": "a"})
    with (
        pytest.raises(OperationFailure) as caught,
        account.start_session() as session,
        session.start_transaction(),
    ):
        account.shop.sharded.insert_one({"_id": 1, "a": 1}, session=session)
    assert caught.value.details is not None
    assert (caught.value.code, caught.value.details["errmsg"]) == (
        50841,
        "Multi-document transactions cannot be run in a sharded collection",
    )
    assert account.shop.sharded.count_documents({}) == 0


def test_a_transaction_lasts_five_seconds(account: Client, cosmos: mongottl.RunningServer) -> None:
    orders = account.shop.orders
    with account.start_session() as session:
        session.start_transaction()
        orders.insert_one({"_id": 1}, session=session)
        cosmos.clock.advance(4)
        orders.insert_one({"_id": 2}, session=session)
        cosmos.clock.advance(2)
        writes: list[Callable[[], object]] = [
            lambda: orders.insert_one({"_id": 3}, session=session),
            lambda: orders.update_one({"_id": 1}, {"$set": {"a": 1}}, session=session),
            lambda: orders.delete_many({}, session=session),
        ]
        for write in writes:
            with pytest.raises(WriteError) as written:
                write()
            details = written.value.details
            assert details is not None
            assert details["code"] == 2
            assert NOT_ACTIVE.fullmatch(details["errmsg"])
        with pytest.raises(OperationFailure) as caught:
            orders.find_one(session=session)
        details = caught.value.details
        assert details is not None
        assert (details["code"], details["codeName"]) == (2, "BadValue")
        assert NOT_ACTIVE.fullmatch(details["errmsg"])
        assert "errorLabels" not in details
        with pytest.raises(OperationFailure, match="Transaction is not active"):
            orders.find_one_and_delete({}, session=session)
        with pytest.raises(OperationFailure, match="Transaction is not active"):
            session.commit_transaction()
    assert orders.count_documents({}) == 1


def test_write_conflicts(account: Client) -> None:
    orders = account.shop.orders
    with account.start_session() as one, account.start_session() as other:
        one.start_transaction()
        other.start_transaction()
        orders.update_one({"_id": 0}, {"$set": {"n": 1}}, session=one)
        with pytest.raises(OperationFailure) as caught:
            orders.update_one({"_id": 0}, {"$set": {"n": 2}}, session=other)
        assert caught.value.code == 112
        one.commit_transaction()
    assert orders.find_one() == {"_id": 0, "n": 1}


@pytest.mark.parametrize(("version", "code"), [("3.6", 40415), ("4.0", 0)])
def test_transactions_came_with_4_0(version: str, code: int) -> None:
    with mongottl.start_server(dialect="cosmos", server_version=version) as server:
        client = WireClient(server.uri)
        client.command({"insert": "c", "documents": [{"_id": 1}]})
        statement = {"lsid": LSID, "txnNumber": Int64(1), "autocommit": False}
        insert = {"insert": "c", "documents": [{"_id": 2}], **statement, "startTransaction": True}
        assert client.refusal(insert)[0] == code
        client.command({"commitTransaction": 1, **statement}, "admin")
        assert client.command({"count": "c"})["n"] == (1 if code else 2)
        client.close()


@pytest.mark.parametrize(("version", "code"), [("3.6", 2), ("4.0", 0), ("7.0", 0)])
def test_retryable_writes_came_with_4_0(version: str, code: int) -> None:
    with mongottl.start_server(dialect="cosmos", server_version=version, cosmos_capability=(RETRYABLE,)) as server:
        client = WireClient(server.uri)
        insert = {"insert": "c", "documents": [{"_id": 2}], "lsid": LSID, "txnNumber": Int64(1)}
        assert client.refusal(insert)[0] == code
        assert client.refusal(insert)[0] == code  # a retry
        client.close()


@own_account
def test_retryable_writes_of_several_statements_are_ordered(retrying: Client) -> None:
    things = retrying.shop.things
    assert len(things.insert_many([{"_id": 1}, {"_id": 2}]).inserted_ids) == 2
    things.insert_many([{"_id": 3}], ordered=False)
    with pytest.raises((OperationFailure, BulkWriteError), match="bulk unordered writes") as caught:
        things.insert_many([{"_id": 4}, {"_id": 5}], ordered=False)
    assert caught.value.code in (2, 65)
    assert things.count_documents({}) == 3
    retrying.admin.command("configureCosmos", {"allow": ["unordered-retryable-write"]})
    things.insert_many([{"_id": 4}, {"_id": 5}], ordered=False)
    assert things.count_documents({}) == 5


def test_writes_that_are_not_retryable_need_no_order(account: Client) -> None:
    account.shop.things.insert_many([{"_id": 1}, {"_id": 2}], ordered=False)
    assert account.shop.things.count_documents({}) == 2


@own_account
def test_retryable_writes_name_the_shard_key(retrying: Client) -> None:
    retrying.shop.command({"customAction": "CreateCollection", "collection": "people", "shardKey": "country"})
    people = retrying.shop.people
    people.insert_many([{"_id": 1, "country": "USA", "city": "NYC"}, {"_id": 2, "country": "USA", "city": "LA"}])
    with pytest.raises(OperationFailure) as caught:
        people.delete_many({"city": "NYC"})
    assert caught.value.code == 61
    assert people.delete_many({"country": "USA", "city": "NYC"}).deleted_count == 1


@pytest.mark.parametrize("command", ["startSession", "refreshSessions", "killSessions", "killAllSessions"])
def test_there_are_no_commands_of_sessions(account: Client, command: str) -> None:
    with pytest.raises(OperationFailure) as caught:
        account.admin.command(command, [])
    assert caught.value.code == 115
