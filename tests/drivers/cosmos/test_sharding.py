"""Sharded collections of the dialect `cosmos`: what the shard key asks of writes, and where `_id` is unique."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure, WriteError

import mongottl
from tests.on_nodes import own_account
from tests.on_store import stays_in_its_place

Client = pymongo.MongoClient[dict[str, Any]]


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


def test_existing_collections_cannot_be_sharded(account: Client) -> None:
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


def write_error(caught: pytest.ExceptionInfo[Any]) -> tuple[Any, Any]:
    """Code and text of the one write error, in the reply's `writeErrors`."""
    details = caught.value.details
    (error,) = details.get("writeErrors", [details])
    return error["code"], error["errmsg"]


def command_error(caught: pytest.ExceptionInfo[OperationFailure]) -> tuple[Any, Any]:
    """Code and text of a command that has failed as a whole, as users have recorded it."""
    details = caught.value.details
    assert details is not None
    assert details["ok"] == 0
    return details["code"], details["errmsg"]


MISSING = (61, "document does not contain shard key at 'customer'")
UNTARGETED = (61, "query in command must target a single shard key")


@pytest.mark.parametrize("document", [{}, {"Customer": 1}, {"customer": ["ann"]}])
def test_a_document_without_shard_key(orders: Collection[dict[str, Any]], document: dict[str, Any]) -> None:
    with pytest.raises(WriteError) as caught:
        orders.insert_one(document)
    assert write_error(caught) == MISSING
    with pytest.raises(BulkWriteError) as many:
        orders.insert_many([{"_id": 1, "customer": "ann"}, {"_id": 2} | document, {"_id": 3, "customer": "ann"}])
    assert write_error(many) == MISSING
    assert many.value.details is not None
    assert many.value.details["nInserted"] == 1
    with pytest.raises(BulkWriteError) as unordered:
        orders.insert_many([{"_id": 2} | document, {"_id": 3, "customer": "ann"}], ordered=False)
    assert write_error(unordered) == MISSING
    assert orders.count_documents({}) == 2


def test_null_is_a_shard_key_value(orders: Collection[dict[str, Any]]) -> None:
    orders.insert_one({"_id": 1, "customer": None})
    orders.update_one({"_id": 1, "customer": None}, {"$set": {"a": 1}})
    assert orders.find_one({"_id": 1}) == {"_id": 1, "customer": None, "a": 1}


def test_a_nested_shard_key(shop: Database[dict[str, Any]]) -> None:
    shop.command("shardCollection", "shop.orders", key={"customer.id": "hashed"})
    shop.orders.insert_one({"_id": 1, "customer": {"id": 5}})
    documents: list[dict[str, Any]] = [{"customer": 5}, {"customer": {}}, {"customer": [{"id": 5}]}]
    for document in documents:
        with pytest.raises(WriteError) as caught:
            shop.orders.insert_one(document)
        assert write_error(caught) == (61, "document does not contain shard key at 'customer.id'")
    assert shop.orders.update_one({"_id": 1, "customer.id": 5}, {"$set": {"customer.name": "ann"}}).modified_count == 1
    with pytest.raises(WriteError) as caught:
        shop.orders.update_one({"_id": 1, "customer.id": 5}, {"$set": {"customer": {"name": "ann"}}})
    assert write_error(caught)[0] == 66


@pytest.mark.parametrize(
    ("key", "document", "named", "unnamed"),
    [
        (
            "customer",
            {"_id": 1, "customer": "ann"},
            [
                {"customer": {"$in": ["ann"]}},
                {"$or": [{"customer": "ann"}]},
                {"$and": [{"_id": 1}, {"customer": {"$eq": "ann"}}]},
            ],
            [
                {"customer": {"$in": ["ann", "bob"]}},
                {"customer": {"$gte": "ann", "$lte": "ann"}},
                {"$or": [{"customer": "ann"}, {"_id": 1}]},
                {"customer.name": "ann"},
            ],
        ),
        (
            "customer.id",
            {"_id": 1, "customer": {"id": 5, "name": "ann"}},
            [{"customer": {"id": 5, "name": "ann"}}, {"customer": {"$in": [{"id": 5, "name": "ann"}]}}],
            [{"customer": {"name": "ann"}}, {"customer": 5}, {"customer.name": "ann"}],
        ),
        ("_id.region", {"_id": {"region": "eu", "n": 1}}, [{"_id": {"region": "eu", "n": 1}}], [{"_id": {"n": 1}}]),
    ],
)
def test_single_updates_need_the_shard_key_in_the_filter(
    shop: Database[dict[str, Any]],
    key: str,
    document: dict[str, Any],
    named: list[dict[str, Any]],
    unnamed: list[dict[str, Any]],
) -> None:
    shop.command("shardCollection", "shop.orders", key={key: "hashed"})
    shop.orders.insert_one(document)
    for filter in named:
        assert shop.orders.update_one(filter, {"$inc": {"n": 1}}).matched_count == 1
        assert shop.orders.find_one_and_update(filter, {"$inc": {"n": 1}})
        assert shop.orders.delete_one({**filter, "n": 0}).deleted_count == 0
    for filter in unnamed:
        with pytest.raises(OperationFailure) as caught:
            shop.orders.update_one(filter, {"$inc": {"n": 1}})
        assert command_error(caught) == UNTARGETED


@own_account
@pytest.mark.parametrize(
    "change",
    [
        {"$set": {"_id.region": "us"}},
        {"$unset": {"_id.region": 1}},
        {"$set": {"_id": {"region": "us", "n": 1}}},
        {"_id": {"region": "us", "n": 1}},
    ],
)
@pytest.mark.parametrize("allowed", [[], ["shard-key-change"]])
def test_a_shard_key_within_the_id_does_not_change(
    shop: Database[dict[str, Any]], account: Client, change: dict[str, Any], allowed: list[str]
) -> None:
    """Nor where other shard keys may: MongoDB, too, has no updates of an `_id`."""
    account.admin.command("configureCosmos", {"allow": allowed})
    shop.command("shardCollection", "shop.orders", key={"_id.region": "hashed"})
    document = {"_id": {"region": "eu", "n": 1}}
    shop.orders.insert_one(document)
    replaces = "_id" in change
    for filter in (document, {"_id.region": "eu"}):
        with pytest.raises(WriteError) as caught:
            shop.orders.replace_one(filter, change) if replaces else shop.orders.update_one(filter, change)
        assert write_error(caught)[0] == 66
        with pytest.raises(OperationFailure) as found:
            (shop.orders.find_one_and_replace if replaces else shop.orders.find_one_and_update)(filter, change)
        assert found.value.code == 66
    assert list(shop.orders.find()) == [document]
    assert shop.orders.update_one(document, {"$set": {"_id.region": "eu", "a": 1}}).modified_count == 1
    with pytest.raises(WriteError) as caught:
        shop.orders.insert_one({"_id": 5})
    assert write_error(caught) == (61, "document does not contain shard key at '_id.region'")


@own_account
def test_documents_without_shard_key_that_are_allowed(orders: Collection[dict[str, Any]], account: Client) -> None:
    """They are as if the value were null, and can be found, changed and deleted."""
    account.admin.command("configureCosmos", {"allow": ["missing-shard-key"]})
    orders.insert_many([{"_id": 1}, {"_id": 2}, {"_id": 1, "customer": "ann"}, {"_id": 3, "customer": ["ann", "bob"]}])
    for document in ({"_id": 1}, {"_id": 1, "customer": None}):
        with pytest.raises(DuplicateKeyError):
            orders.insert_one(document)
    account.admin.command("configureCosmos", {"allow": []})
    orders.update_one({"_id": 1, "customer": None}, {"$set": {"a": 1}})
    orders.update_many({"_id": 3}, {"$set": {"a": 1}})
    assert [orders.count_documents({"a": 1}), orders.count_documents({"customer": None})] == [2, 2]
    with pytest.raises(WriteError) as caught:
        orders.update_one({"_id": 1, "customer": None}, {"$set": {"customer": "bob"}})
    assert write_error(caught)[0] == 66
    assert orders.delete_many({"_id": {"$in": [1, 2, 3]}, "customer": {"$ne": "ann"}}).deleted_count == 2


@own_account
@stays_in_its_place
def test_shard_keys_that_are_allowed_to_change(orders: Collection[dict[str, Any]], account: Client) -> None:
    orders.insert_many([{"_id": 1, "customer": name} for name in ("ann", "bob")])
    account.admin.command("configureCosmos", {"allow": ["shard-key-change"]})
    orders.update_one({"_id": 1, "customer": "ann"}, {"$set": {"customer": "cat"}})
    with pytest.raises(DuplicateKeyError):
        orders.update_one({"_id": 1, "customer": "cat"}, {"$set": {"customer": "bob"}})
    assert [order["customer"] for order in orders.find({"_id": 1}).sort("customer")] == ["bob", "cat"]


@pytest.mark.parametrize(
    "update",
    [
        {"$set": {"customer": "bob"}},
        {"$unset": {"customer": 1}},
        {"$rename": {"customer": "client"}},
        {"$set": {"_id": 2}},
    ],
)
@pytest.mark.parametrize("many", [False, True])
def test_an_update_does_not_change_the_shard_key(orders: Collection[dict[str, Any]], update: Any, many: bool) -> None:
    orders.insert_one({"_id": 1, "customer": "ann"})
    filter = {"_id": 1, "customer": "ann"}
    with pytest.raises(WriteError) as caught:
        (orders.update_many if many else orders.update_one)(filter, update)
    assert write_error(caught)[0] == 66
    with pytest.raises(OperationFailure) as found:
        orders.find_one_and_update(filter, update)
    assert found.value.code == 66
    assert list(orders.find()) == [filter]


def test_an_update_to_the_same_value(orders: Collection[dict[str, Any]]) -> None:
    orders.insert_one({"_id": 1, "customer": 5})
    orders.update_one({"customer": 5}, {"$set": {"customer": 5.0, "a": 1}})
    assert orders.find_one() == {"_id": 1, "customer": 5, "a": 1}


def test_replacements(orders: Collection[dict[str, Any]]) -> None:
    orders.insert_one({"_id": 1, "customer": "ann"})
    filter = {"_id": 1, "customer": "ann"}
    with pytest.raises(WriteError) as caught:
        orders.replace_one(filter, {"a": 1})
    assert write_error(caught) == MISSING
    with pytest.raises(WriteError) as caught:
        orders.replace_one(filter, {"customer": "bob"})
    assert write_error(caught)[0] == 66
    assert orders.replace_one(filter, {"customer": "ann", "a": 1}).modified_count == 1


def test_upserts(orders: Collection[dict[str, Any]]) -> None:
    orders.update_one({"_id": 1, "customer": "ann"}, {"$set": {"a": 1}}, upsert=True)
    orders.update_one({"_id": 1, "customer": "bob"}, {"$set": {"a": 2}}, upsert=True)
    orders.update_one({"_id": 1, "customer": "ann"}, {"$inc": {"a": 10}}, upsert=True)
    orders.replace_one({"customer": "cat"}, {"_id": 1, "customer": "cat"}, upsert=True)
    assert sorted((order["customer"], order.get("a")) for order in orders.find({"_id": 1})) == [
        ("ann", 11),
        ("bob", 2),
        ("cat", None),
    ]
    with pytest.raises(WriteError) as caught:
        orders.update_many({"_id": 2}, {"$set": {"a": 1}}, upsert=True)
    assert write_error(caught) == MISSING


@pytest.mark.parametrize("filter", [{"_id": 1}, {}, {"customer": {"$gt": "a"}}, {"customer": {"$in": ["ann", "bob"]}}])
def test_single_writes_name_the_shard_key(orders: Collection[dict[str, Any]], filter: dict[str, Any]) -> None:
    orders.insert_one({"_id": 1, "customer": "ann"})
    writes: list[Callable[[], object]] = [
        lambda: orders.update_one(filter, {"$set": {"a": 1}}),
        lambda: orders.replace_one(filter, {"customer": "ann"}),
        lambda: orders.delete_one(filter),
        lambda: orders.find_one_and_update(filter, {"$set": {"a": 1}}),
        lambda: orders.find_one_and_delete(filter),
    ]
    for write in writes:
        with pytest.raises(OperationFailure) as caught:
            write()
        assert command_error(caught) == UNTARGETED
    assert orders.find_one() == {"_id": 1, "customer": "ann"}


@pytest.mark.parametrize(
    "filter",
    [
        {"_id": 1, "customer": "ann"},
        {"customer": {"$eq": "ann"}},
        {"$and": [{"_id": 1}, {"customer": "ann"}]},
        {"customer": {"$in": ["ann"]}},
    ],
)
def test_filters_that_name_the_shard_key(orders: Collection[dict[str, Any]], filter: dict[str, Any]) -> None:
    orders.insert_many([{"_id": 1, "customer": name} for name in ("bob", "ann")])
    assert orders.update_one(filter, {"$set": {"a": 1}}).modified_count == 1
    assert orders.find_one_and_update(filter, {"$set": {"a": 2}}) == {"_id": 1, "customer": "ann", "a": 1}
    assert orders.delete_one(filter).deleted_count == 1
    assert list(orders.find()) == [{"_id": 1, "customer": "bob"}]


@own_account
def test_writes_of_many_need_no_shard_key(orders: Collection[dict[str, Any]], account: Client) -> None:
    """Documented as refused where the account has retryable writes, and reported for some accounts."""
    orders.insert_many([{"_id": n, "customer": name} for n in range(2) for name in ("ann", "bob")])
    assert orders.update_many({"_id": 1}, {"$set": {"a": 1}}).modified_count == 2
    assert orders.delete_many({"a": 1}).deleted_count == 2
    was = account.admin.command("configureCosmos", {"capabilities": ["EnableMongoRetryableWrites"]})["was"]
    try:
        writes: list[Callable[[], object]] = [
            lambda: orders.update_many({"_id": 0}, {"$set": {"a": 1}}),
            lambda: orders.delete_many({"_id": 0}),
        ]
        for write in writes:
            with pytest.raises(OperationFailure) as caught:
                write()
            assert command_error(caught) == UNTARGETED
        assert orders.delete_many({"customer": "ann"}).deleted_count == 1
    finally:
        account.admin.command("configureCosmos", was)


@own_account
def test_untargeted_writes_can_be_allowed(orders: Collection[dict[str, Any]], account: Client) -> None:
    orders.insert_one({"_id": 1, "customer": "ann"})
    was = account.admin.command("configureCosmos", {"allow": ["untargeted-write"]})["was"]
    try:
        assert orders.update_one({"_id": 1}, {"$set": {"a": 1}}).modified_count == 1
        assert orders.delete_one({"_id": 1}).deleted_count == 1
    finally:
        account.admin.command("configureCosmos", was)


def test_unique_indexes_are_unique_within_a_shard_key_value(orders: Collection[dict[str, Any]]) -> None:
    with pytest.raises(OperationFailure, match=r"cannot create unique index over .* with shard key pattern") as caught:
        orders.create_index("number", unique=True)
    assert caught.value.code == 67
    orders.create_index([("customer", 1), ("number", 1)], unique=True)
    orders.insert_many([{"customer": name, "number": 1} for name in ("ann", "bob")])
    with pytest.raises(DuplicateKeyError):
        orders.insert_one({"customer": "ann", "number": 1})


def test_documents_of_one_id_live_and_expire_for_themselves(
    orders: Collection[dict[str, Any]], cosmos: mongottl.RunningServer
) -> None:
    orders.create_index("_ts", expireAfterSeconds=-1)
    orders.insert_many([{"_id": 1, "customer": "ann", "ttl": 10}, {"_id": 1, "customer": "bob", "ttl": 20}])
    cosmos.clock.advance(11)
    assert [order["customer"] for order in orders.find({"_id": 1})] == ["bob"]
    orders.insert_one({"_id": 1, "customer": "ann"})
    assert orders.count_documents({"_id": 1}) == 2


def test_out_keeps_the_shard_key(orders: Collection[dict[str, Any]], shop: Database[dict[str, Any]]) -> None:
    orders.drop_index("customer_1")
    shop.source.insert_many([{"_id": 1, "customer": "ann"}, {"_id": 2, "customer": "bob"}])
    shop.source.aggregate([{"$out": "orders"}])
    assert orders.count_documents({}) == 2
    with pytest.raises(WriteError) as caught:
        orders.insert_one({"_id": 5})
    assert write_error(caught) == MISSING
    shop.source.insert_one({"_id": 3})
    with pytest.raises(OperationFailure) as failed:
        shop.source.aggregate([{"$out": "orders"}])
    assert failed.value.code == 61
    assert orders.count_documents({}) == 2


@pytest.mark.parametrize("matched", ["replace", "merge"])
def test_merge_goes_by_the_shard_key_too(
    orders: Collection[dict[str, Any]], shop: Database[dict[str, Any]], matched: str
) -> None:
    orders.insert_many([{"_id": 1, "customer": name} for name in ("ann", "bob")])
    shop.source.insert_many([{"_id": 1, "customer": "bob", "a": 1}, {"_id": 2, "customer": "ann", "a": 2}])
    shop.source.aggregate([{"$merge": {"into": "orders", "whenMatched": matched}}])
    assert sorted((order["_id"], order["customer"], order.get("a")) for order in orders.find()) == [
        (1, "ann", None),
        (1, "bob", 1),
        (2, "ann", 2),
    ]
    with pytest.raises(OperationFailure) as caught:
        shop.source.aggregate([{"$merge": {"into": "orders", "on": "_id"}}])
    assert caught.value.code == 51183
    shop.source.aggregate([{"$merge": {"into": "orders", "on": ["customer", "_id"], "whenMatched": matched}}])
    shop.source.insert_one({"_id": 3})
    with pytest.raises(OperationFailure) as caught:
        shop.source.aggregate([{"$merge": "orders"}])
    assert caught.value.code == 61
    assert orders.count_documents({}) == 3


@own_account
def test_the_partition_index_is_shown_nowhere(orders: Collection[dict[str, Any]], account: Client) -> None:
    orders.insert_one({"_id": 1, "customer": "ann"})
    was = account.admin.command("configureCosmos", {"allow": ["missing-features"]})["was"]
    try:
        sizes = orders.database.command("collStats", "orders")["indexSizes"]
        assert sorted(sizes) == ["_id_", "customer_1"]
        counted = orders.database.command("validate", "orders", full=True)
        assert (counted["valid"], sorted(counted["keysPerIndex"])) == (True, ["_id_", "customer_1"])
    finally:
        account.admin.command("configureCosmos", was)
    for hint in ("$partition_id", [("customer", 1), ("_id", 1)]):
        with pytest.raises(OperationFailure):
            list(orders.find({"_id": 1}).hint(hint))
    with pytest.raises(OperationFailure) as caught:
        orders.drop_index("$partition_id")
    assert caught.value.code == 27


@pytest.mark.parametrize("stored", [False, True])
def test_random_writes_against_a_model(tmp_path: Path, stored: bool) -> None:
    """The model is a dict by customer and `_id`."""
    folder = str(tmp_path) if stored else None
    chance = random.Random(5)
    model: dict[tuple[int, int], int] = {}
    with mongottl.start_server(dialect="cosmos", data_dir=folder) as running, Client(running.uri) as client:
        client.shop.command("shardCollection", "shop.orders", key={"customer": "hashed"})
        orders = client.shop.orders
        for value in range(400):
            key = chance.randrange(4), chance.randrange(5)
            one = {"customer": key[0], "_id": key[1]}
            known = key in model
            match chance.randrange(6):
                case 0:
                    if known:
                        with pytest.raises(DuplicateKeyError):
                            orders.insert_one(one | {"a": value})
                    else:
                        orders.insert_one(one | {"a": value})
                        model[key] = value
                case 1:
                    assert orders.update_one(one, {"$set": {"a": value}}).matched_count == known
                    if known:
                        model[key] = value
                case 2:
                    done = orders.replace_one(one, one | {"a": value}, upsert=True)
                    assert done.matched_count == known
                    model[key] = value
                case 3:
                    assert orders.delete_one(one).deleted_count == known
                    model.pop(key, None)
                case 4:
                    keys = [other for other in model if other[1] == key[1]]
                    assert orders.update_many({"_id": key[1]}, {"$set": {"a": value}}).matched_count == len(keys)
                    model.update(dict.fromkeys(keys, value))
                case _:
                    before = orders.find_one_and_update(one, {"$set": {"a": value}}, sort=[("_id", 1)])
                    assert (None if before is None else before["a"]) == model.get(key)
                    if known:
                        model[key] = value
            assert orders.count_documents({"_id": key[1]}) == sum(other[1] == key[1] for other in model)
        assert contents(orders) == model
    if stored:
        with mongottl.start_server(dialect="cosmos", data_dir=folder) as running, Client(running.uri) as client:
            assert contents(client.shop.orders) == model
            for customer, number in model:
                with pytest.raises(DuplicateKeyError):
                    client.shop.orders.insert_one({"_id": number, "customer": customer})


def contents(orders: Collection[dict[str, Any]]) -> dict[tuple[int, int], int]:
    return {(order["customer"], order["_id"]): order["a"] for order in orders.find()}
