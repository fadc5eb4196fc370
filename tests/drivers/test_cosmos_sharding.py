"""Sharded collections of the dialect `cosmos`: what the shard key asks of writes, and where `_id` is unique."""

from collections.abc import Iterator
from typing import Any

import pymongo
import pytest
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError, OperationFailure

import mongottl

Client = pymongo.MongoClient[dict[str, Any]]


@pytest.fixture(scope="module")
def cosmos() -> Iterator[mongottl.RunningServer]:
    with mongottl.start_server(dialect="cosmos") as running:
        yield running


@pytest.fixture
def account(cosmos: mongottl.RunningServer) -> Iterator[Client]:
    with Client(cosmos.uri) as client:
        yield client
        for name in client.list_database_names():
            client.drop_database(name)


@pytest.fixture
def shop(account: Client) -> Database[dict[str, Any]]:
    return account.shop


@pytest.fixture
def orders(shop: Database[dict[str, Any]]) -> Collection[dict[str, Any]]:
    """Sharded by `customer`."""
    shop.command({"customAction": "CreateCollection", "collection": "orders", "shardKey": "customer"})
    return shop.orders


@pytest.mark.parametrize("database", ["shop", "admin", "other"])
@pytest.mark.parametrize("kind", ["hashed", 1])
def test_shard_collection_on_any_database(account: Client, database: str, kind: Any) -> None:
    reply = account[database].command("shardCollection", "shop.orders", key={"customer": kind})
    assert reply == {"_t": "ShardCollectionResponse", "ok": 1, "collectionsharded": "shop.orders"}
    assert account.shop.list_collection_names() == ["orders"]
    described = account.shop.command({"customAction": "GetCollection", "collection": "orders"})
    assert next(iter(described["shardKeyDefinition"])) == "customer"


@pytest.mark.parametrize(
    ("namespace", "fields", "code"),
    [
        ("shop.orders", {"key": {"a": 1, "b": 1}}, 2),
        ("shop.orders", {"key": {}}, 2),
        ("shop.orders", {"key": {"a": -1}}, 2),
        ("shop.orders", {"key": {"a": "text"}}, 2),
        ("shop.orders", {"key": {"a": "hashed"}, "unique": True}, 2),
        ("shop.orders", {}, 40414),
        ("shop", {"key": {"a": 1}}, 73),
    ],
)
def test_shard_collection_refusals(account: Client, namespace: str, fields: dict[str, Any], code: int) -> None:
    with pytest.raises(OperationFailure) as caught:
        account.admin.command("shardCollection", namespace, **fields)
    assert caught.value.code == code
    assert account.list_database_names() == []


def test_what_exists_cannot_be_sharded(account: Client) -> None:
    account.shop.orders.insert_one({"_id": 1})
    with pytest.raises(OperationFailure, match="already exists") as caught:
        account.admin.command("shardCollection", "shop.orders", key={"customer": "hashed"})
    assert caught.value.code == 117


def test_only_in_the_dialect_cosmos(client: Client) -> None:
    with pytest.raises(OperationFailure) as caught:
        client.admin.command("shardCollection", "shop.orders", key={"customer": "hashed"})
    assert caught.value.code == 115


def test_id_is_unique_within_a_shard_key_value(orders: Collection[dict[str, Any]]) -> None:
    orders.insert_many([{"_id": 1, "customer": name} for name in ("ann", "bob")])
    assert orders.count_documents({"_id": 1}) == 2
    assert orders.find_one({"_id": 1, "customer": "bob"}) == {"_id": 1, "customer": "bob"}
    assert sorted(order["customer"] for order in orders.find({"_id": 1})) == ["ann", "bob"]
    with pytest.raises(DuplicateKeyError):
        orders.insert_one({"_id": 1, "customer": "ann"})
    orders.insert_one({"_id": 2, "customer": "ann"})
    assert orders.count_documents({}) == 3


def test_id_as_the_shard_key_is_unique(shop: Database[dict[str, Any]]) -> None:
    shop.command({"customAction": "CreateCollection", "collection": "users", "shardKey": "_id"})
    shop.users.insert_one({"_id": 1})
    with pytest.raises(DuplicateKeyError):
        shop.users.insert_one({"_id": 1})
    assert sorted(shop.users.index_information()) == ["_id_"]
    shop.users.update_one({"_id": 1}, {"$set": {"a": 1}})
    assert shop.users.find_one({"_id": 1}) == {"_id": 1, "a": 1}


def test_the_shard_key_is_indexed(orders: Collection[dict[str, Any]]) -> None:
    assert sorted(orders.index_information()) == ["_id_", "customer_1"]
    orders.insert_many([{"_id": n, "customer": n % 2} for n in range(4)])
    assert [order["customer"] for order in orders.find().sort("customer", -1)] == [1, 1, 0, 0]
