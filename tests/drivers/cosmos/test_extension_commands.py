"""customAction of the dialect `cosmos`: databases, collections, throughput, shard keys and indexes."""

import math
from pathlib import Path
from typing import Any

import pymongo
import pytest
from bson import Decimal128, Int64
from pymongo.database import Database
from pymongo.errors import OperationFailure

import mongottl
from tests.on_nodes import own_account

Client = pymongo.MongoClient[dict[str, Any]]
ID = {"key": {"_id": 1}, "name": "_id_1"}


def act(database: Database[dict[str, Any]], action: str, **fields: Any) -> dict[str, Any]:
    reply: dict[str, Any] = database.command({"customAction": action, **fields})
    assert reply.pop("ok") == 1
    return reply


def refusal(database: Database[dict[str, Any]], action: str, **fields: Any) -> tuple[Any, str]:
    """Code and text of an action's refusal."""
    with pytest.raises(OperationFailure) as caught:
        act(database, action, **fields)
    assert caught.value.details is not None
    return caught.value.code, caught.value.details["errmsg"]


def test_a_database_exists_without_collections(account: Client, shop: Database[dict[str, Any]]) -> None:
    assert act(shop, "CreateDatabase") == {}
    assert account.list_database_names() == ["shop"]
    assert act(shop, "GetDatabase") == {"database": "shop"}
    account.drop_database("shop")
    assert account.list_database_names() == []
    assert refusal(shop, "GetDatabase")[0] == 26


def test_a_database_with_a_collection_exists(shop: Database[dict[str, Any]]) -> None:
    shop.orders.insert_one({"_id": 1})
    assert act(shop, "GetDatabase") == {"database": "shop"}
    assert refusal(shop, "CreateDatabase")[0] == 117


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({"offerThroughput": 400}, {"provisionedThroughput": 400}),
        (
            {"autoScaleSettings": {"maxThroughput": 4000}},
            {"provisionedThroughput": 400, "autoScaleSettings": {"maxThroughput": 4000}},
        ),
    ],
)
def test_throughput_of_a_database_is_shared(
    shop: Database[dict[str, Any]], asked: dict[str, Any], shown: dict[str, Any]
) -> None:
    act(shop, "CreateDatabase", **asked)
    assert act(shop, "GetDatabase") == {"database": "shop", **shown}
    # Reported in 2019: refused without shardKey. Microsoft's later samples do it.
    act(shop, "CreateCollection", collection="orders")
    assert act(shop, "GetCollection", collection="orders") == {
        "database": "shop",
        "collection": "orders",
        "maxContentLength": 2_097_152,
    }
    act(shop, "CreateCollection", collection="own", offerThroughput=500)
    assert act(shop, "GetCollection", collection="own")["provisionedThroughput"] == 500
    assert refusal(shop, "UpdateCollection", collection="orders", offerThroughput=500)[0] == 2


def test_throughput_is_changed(shop: Database[dict[str, Any]]) -> None:
    act(shop, "CreateDatabase", offerThroughput=400)
    act(shop, "UpdateDatabase", offerThroughput=1200)
    assert act(shop, "GetDatabase")["provisionedThroughput"] == 1200
    act(shop, "CreateCollection", collection="orders", autoScaleSettings={"maxThroughput": 1000})
    act(shop, "UpdateCollection", collection="orders", autoScaleSettings={"maxThroughput": 6000})
    assert act(shop, "GetCollection", collection="orders") == {
        "database": "shop",
        "collection": "orders",
        "provisionedThroughput": 600,
        "autoScaleSettings": {"maxThroughput": 6000},
        "maxContentLength": 2_097_152,
    }


def test_a_collection_has_400_of_its_own(shop: Database[dict[str, Any]]) -> None:
    act(shop, "CreateCollection", collection="orders")
    shop.implicit.insert_one({"_id": 1})
    for name in ("orders", "implicit"):
        assert act(shop, "GetCollection", collection=name) == {
            "database": "shop",
            "collection": name,
            "provisionedThroughput": 400,
            "maxContentLength": 2_097_152,
        }
    act(shop, "UpdateCollection", collection="implicit", offerThroughput=700)
    assert act(shop, "GetCollection", collection="implicit")["provisionedThroughput"] == 700


@pytest.mark.parametrize("action", ["CreateDatabase", "CreateCollection"])
@pytest.mark.parametrize(
    "asked",
    [
        {"offerThroughput": 300},
        {"offerThroughput": 450},
        {"offerThroughput": 400.5},
        {"offerThroughput": Decimal128("400.5")},
        {"offerThroughput": math.nan},
        {"offerThroughput": math.inf},
        {"autoScaleSettings": {"maxThroughput": 500}},
        {"autoScaleSettings": {"maxThroughput": 1500}},
        {"autoScaleSettings": {"maxThroughput": 1000.5}},
        {"offerThroughput": 400, "autoScaleSettings": {"maxThroughput": 1000}},
    ],
)
def test_throughput_that_there_is_not(shop: Database[dict[str, Any]], action: str, asked: dict[str, Any]) -> None:
    assert refusal(shop, action, collection="orders", **asked)[0] == 2
    assert shop.list_collection_names() == []


@pytest.mark.parametrize("number", [500, 500.0, Int64(500), Decimal128("500"), Decimal128("5E+2")])
def test_throughput_is_a_number_of_any_type(shop: Database[dict[str, Any]], number: Any) -> None:
    act(shop, "CreateDatabase", offerThroughput=number)
    found = act(shop, "GetDatabase")["provisionedThroughput"]
    assert found == 500
    assert type(found) is int


def test_much_throughput_needs_a_shard_key(shop: Database[dict[str, Any]]) -> None:
    assert refusal(shop, "CreateCollection", collection="orders", offerThroughput=10_100)[0] == 2
    assert refusal(shop, "CreateCollection", collection="orders", autoScaleSettings={"maxThroughput": 11_000})[0] == 2
    act(shop, "CreateCollection", collection="orders", offerThroughput=10_100, shardKey="customer")
    act(shop, "UpdateCollection", collection="orders", offerThroughput=20_000)
    act(shop, "CreateCollection", collection="small", offerThroughput=10_000)
    assert refusal(shop, "UpdateCollection", collection="small", offerThroughput=10_100)[0] == 2


def test_manual_and_autoscale_are_not_exchanged(shop: Database[dict[str, Any]]) -> None:
    act(shop, "CreateDatabase", offerThroughput=400)
    assert refusal(shop, "UpdateDatabase", autoScaleSettings={"maxThroughput": 1000})[0] == 2
    act(shop, "CreateCollection", collection="orders", autoScaleSettings={"maxThroughput": 1000})
    assert refusal(shop, "UpdateCollection", collection="orders", offerThroughput=400)[0] == 2


@pytest.mark.parametrize(
    ("action", "fields", "code"),
    [
        ("GetDatabase", {}, 26),
        ("UpdateDatabase", {"offerThroughput": 400}, 26),
        ("GetCollection", {"collection": "orders"}, 26),
        ("UpdateCollection", {"collection": "orders", "offerThroughput": 400}, 26),
        ("CreateCollection", {}, 40414),
        ("GetCollection", {}, 40414),
        ("CreateCollection", {"collection": "a$b"}, 73),
        ("CreateCollection", {"collection": "a b"}, 73),
        ("CreateCollection", {"collection": "orders", "offerThroughput": "400"}, 14),
        ("CreateCollection", {"collection": "orders", "autoScaleSettings": {}}, 40414),
        ("CreateCollection", {"collection": "orders", "colour": "blue"}, 40415),
        ("CreateEverything", {}, 115),
    ],
)
def test_failures(shop: Database[dict[str, Any]], action: str, fields: dict[str, Any], code: int) -> None:
    assert refusal(shop, action, **fields)[0] == code
    assert shop.list_collection_names() == []


def test_changes_must_be_told(shop: Database[dict[str, Any]]) -> None:
    act(shop, "CreateDatabase", offerThroughput=400)
    act(shop, "CreateCollection", collection="orders")
    assert refusal(shop, "UpdateDatabase")[0] == 2
    assert refusal(shop, "UpdateCollection", collection="orders")[0] == 2


@pytest.mark.parametrize("action", ["CreateDatabase", "CreateCollection"])
def test_create_of_an_existing_resource_is_refused(shop: Database[dict[str, Any]], action: str) -> None:
    """Clients test for the code or for the words."""
    act(shop, action, collection="orders")
    code, text = refusal(shop, action, collection="orders")
    assert code == 117
    assert "Resource with specified id, name, or unique index already exists" in text
    assert text.startswith("Error=117, Details='")


@pytest.mark.parametrize("path", ["", "a..b", "$a", "a.$b", "/a"])
def test_paths_that_are_no_shard_key(shop: Database[dict[str, Any]], path: str) -> None:
    assert refusal(shop, "CreateCollection", collection="orders", shardKey=path) == (
        2,
        f"Partition key path /{path} is invalid for MongoDB API",
    )


@pytest.mark.parametrize("path", ["customer", "customer.id", "_id"])
def test_shard_key_definition(shop: Database[dict[str, Any]], path: str) -> None:
    """Programs take its first key for the path."""
    act(shop, "CreateCollection", collection="orders", shardKey=path)
    definition = act(shop, "GetCollection", collection="orders")["shardKeyDefinition"]
    assert next(iter(definition)) == path
    assert [entry["options"] for entry in shop.list_collections()] == [{}]


def test_indexes_are_made_with_the_collection(shop: Database[dict[str, Any]]) -> None:
    wanted = [ID, {"key": {"email": 1}, "name": "email_1", "unique": True}]
    act(shop, "CreateCollection", collection="users", indexes=wanted)
    shown = act(shop, "GetCollection", collection="users", showIndexes=True)["indexes"]
    assert [(index["key"], index["name"], index.get("unique")) for index in shown] == [
        ({"_id": 1}, "_id_", None),
        ({"email": 1}, "email_1", True),
    ]
    shop.users.insert_one({"_id": 1, "email": "a"})
    with pytest.raises(OperationFailure) as caught:
        shop.users.insert_one({"_id": 2, "email": "a"})
    assert caught.value.code == 11000


def test_indexes_must_have_one_on_id(shop: Database[dict[str, Any]]) -> None:
    wanted = [{"key": {"email": 1}, "name": "email_1"}]
    assert refusal(shop, "CreateCollection", collection="users", indexes=wanted)[0] == 2
    assert shop.list_collection_names() == []


def test_a_refused_index_leaves_no_collection(shop: Database[dict[str, Any]]) -> None:
    wanted = [ID, {"key": {"a": 1}, "name": "x"}, {"key": {"a": 2}, "name": "y"}]
    assert refusal(shop, "CreateCollection", collection="users", indexes=wanted)[0] == 85
    assert shop.list_collection_names() == []


def test_the_indexes_of_a_new_collection_keep_their_names(shop: Database[dict[str, Any]]) -> None:
    """So that programs which create their indexes at each start find them (flamingock/flamingock-java#556)."""
    wanted = [ID, {"key": {"executionId": 1, "author": 1}, "name": "own", "unique": True}]
    act(shop, "CreateCollection", collection="users", indexes=wanted)
    again = shop.command("createIndexes", "users", indexes=wanted[1:])
    assert (again["numIndexesBefore"], again["numIndexesAfter"]) == (2, 2)
    assert sorted(shop.users.index_information()) == ["_id_", "own"]


def test_indexes_are_named_by_their_keys(shop: Database[dict[str, Any]]) -> None:
    """As the output of Microsoft's sample shows for `{name: 2}`, named `_id_2`."""
    act(shop, "CreateCollection", collection="users")
    wanted = [ID, {"key": {"name": 2}, "name": "_id_2"}, {"key": {"a": -3, "c": 1}, "name": "z"}]
    act(shop, "UpdateCollection", collection="users", indexes=wanted)
    assert {name: index["key"] for name, index in shop.users.index_information().items()} == {
        "_id_": [("_id", 1)],
        "name_1": [("name", 1)],
        "a_-1_c_1": [("a", -1), ("c", 1)],
    }


def test_indexes_are_replaced(shop: Database[dict[str, Any]]) -> None:
    act(shop, "CreateCollection", collection="users")
    shop.users.create_index("old")
    shop.users.create_index("kept")
    shop.users.insert_one({"_id": 1, "kept": 1, "new": 2})
    wanted = [ID, {"key": {"kept": 1}, "name": "kept_1"}, {"key": {"new": -1}, "name": "new_-1"}]
    act(shop, "UpdateCollection", collection="users", indexes=wanted)
    assert sorted(shop.users.index_information()) == ["_id_", "kept_1", "new_-1"]
    act(shop, "UpdateCollection", collection="users", indexes=[ID])
    assert sorted(shop.users.index_information()) == ["_id_"]


def test_an_index_with_other_options_is_made_anew(shop: Database[dict[str, Any]]) -> None:
    act(shop, "CreateCollection", collection="users", indexes=[ID, {"key": {"a": 1}, "name": "a_1", "unique": True}])
    act(shop, "UpdateCollection", collection="users", indexes=[ID, {"key": {"a": 1}, "name": "a_1"}])
    assert "unique" not in shop.users.index_information()["a_1"]
    shop.users.insert_many([{"a": 1}, {"a": 1}])


def test_the_index_on_the_shard_key_is_kept(shop: Database[dict[str, Any]]) -> None:
    act(shop, "CreateCollection", collection="users", shardKey="tenant")
    act(shop, "UpdateCollection", collection="users", indexes=[ID, {"key": {"name": 1}, "name": "name_1"}])
    assert sorted(shop.users.index_information()) == ["_id_", "name_1", "tenant_1"]


def test_default_ttl_has_no_effect(shop: Database[dict[str, Any]]) -> None:
    act(shop, "CreateCollection", collection="users", defaultTtl=60)
    assert list(shop.users.index_information()) == ["_id_"]


def test_all_of_it_is_stored(tmp_path: Path) -> None:
    with mongottl.start_server(dialect="cosmos", data_dir=str(tmp_path)) as running, Client(running.uri) as client:
        act(client.empty, "CreateDatabase")
        act(client.shop, "CreateDatabase", autoScaleSettings={"maxThroughput": 2000})
        act(client.shop, "CreateCollection", collection="orders", shardKey="a.b", offerThroughput=900)
        client.shop.orders.insert_one({"_id": 1, "a": {"b": 1}})
        act(client.gone, "CreateDatabase")
        client.drop_database("gone")
    with mongottl.start_server(dialect="cosmos", data_dir=str(tmp_path)) as running, Client(running.uri) as client:
        assert client.list_database_names() == ["empty", "shop"]
        assert act(client.shop, "GetDatabase") == {
            "database": "shop",
            "provisionedThroughput": 200,
            "autoScaleSettings": {"maxThroughput": 2000},
        }
        assert act(client.shop, "GetCollection", collection="orders") == {
            "database": "shop",
            "collection": "orders",
            "shardKeyDefinition": {"a.b": "hashed"},
            "provisionedThroughput": 900,
            "maxContentLength": 2_097_152,
        }
        client.shop.orders.insert_one({"_id": 1, "a": {"b": 2}})
        with pytest.raises(OperationFailure) as caught:
            client.shop.orders.insert_one({"_id": 1, "a": {"b": 1}})
        assert caught.value.code == 11000


def test_a_description_does_not_wait_for_transactions(account: Client, shop: Database[dict[str, Any]]) -> None:
    shop.orders.insert_one({"_id": 1})
    with account.start_session() as session, session.start_transaction():
        shop.orders.insert_one({"_id": 2}, session=session)
        assert act(shop, "GetCollection", collection="orders", maxTimeMS=1000)["collection"] == "orders"
        session.abort_transaction()


def test_the_requests_of_the_most_copied_program(account: Client) -> None:
    """Twice in a row, as people run a sample: what exists is not created again, and the upserts update."""
    for attempt in range(2):
        if "adventure" not in account.list_database_names():
            assert attempt == 0
            act(account.adventure, "CreateDatabase", offerThroughput=400)
        products = account.adventure.products
        if "products" not in account.adventure.list_collection_names():
            assert attempt == 0
            act(account.adventure, "CreateCollection", collection="products")
        indexes = [{"key": {"_id": 1}, "name": "_id_1"}, {"key": {"name": 2}, "name": "_id_2"}]
        act(account.adventure, "UpdateCollection", collection="products", indexes=indexes)
        assert sorted(products.index_information()) == ["_id_", "name_1"]
        for name in ("Yamba", "Adda"):
            product = {"category": "boards", "name": f"{name} board", "quantity": 1, "sale": False}
            done = products.update_one({"name": product["name"]}, {"$set": product}, upsert=True)
            assert (done.upserted_id is None) == (attempt == 1)
        found = products.find({"category": "boards"}).sort("name", pymongo.ASCENDING)
        assert [product["name"] for product in found] == ["Adda board", "Yamba board"]


def test_only_in_the_dialect_cosmos(client: Client) -> None:
    with pytest.raises(OperationFailure) as caught:
        client.shop.command({"customAction": "CreateDatabase"})
    assert caught.value.code == 115


def test_keys_of_the_account() -> None:
    with mongottl.start_server(dialect="cosmos", cosmos_account="shopkeeper") as running:
        assert running.read_only_uri is not None
        with Client(running.uri) as writer, Client(running.read_only_uri) as reader:
            act(writer.shop, "CreateDatabase", offerThroughput=400)
            writer.admin.command("shardCollection", "shop.orders", key={"customer": 1})
            assert act(reader.shop, "GetDatabase")["provisionedThroughput"] == 400
            assert act(reader.shop, "GetCollection", collection="orders")["shardKeyDefinition"]
            assert reader.list_database_names() == ["shop"]
            for action in ("UpdateDatabase", "CreateCollection", "UpdateCollection"):
                assert refusal(reader.shop, action, collection="other", offerThroughput=500)[0] == 13
            with pytest.raises(OperationFailure) as caught:
                reader.admin.command("shardCollection", "shop.other", key={"customer": 1})
            assert caught.value.code == 13
            assert writer.shop.list_collection_names() == ["orders"]


def test_indexes_that_are_refused_leave_those_that_there_are(shop: Database[dict[str, Any]]) -> None:
    shop.orders.insert_one({"a": 1})
    shop.orders.create_index("a")
    shop.orders.create_index("_ts", expireAfterSeconds=50)
    before = shop.orders.index_information()
    for index, code in (
        ({"key": {"e": 1}, "name": "e", "unique": True}, 67),
        ({"key": {"e": "text"}, "name": "e"}, 115),
    ):
        assert refusal(shop, "UpdateCollection", collection="orders", indexes=[ID, index])[0] == code
        assert shop.orders.index_information() == before
    timed = {"key": {"_ts": 1}, "name": "_ts_1", "expireAfterSeconds": 60}
    act(shop, "UpdateCollection", collection="orders", indexes=[ID, timed])
    assert shop.orders.index_information()["_ts_1"]["expireAfterSeconds"] == 60


@own_account
def test_indexes_that_cannot_be_replaced_stay(account: Client, shop: Database[dict[str, Any]]) -> None:
    """Among them that which makes documents expire."""
    account.admin.command({"configureCosmos": {"capabilities": ["EnableUniqueIndexReIndex"]}})
    shop.orders.insert_many([{"_id": 1, "at": 1}, {"_id": 2, "at": 1}])
    shop.orders.create_index("_ts", expireAfterSeconds=50)
    shop.orders.create_index("at")
    had = shop.orders.index_information()
    indexes = [ID, {"key": {"at": 1}, "name": "at_1", "unique": True}]
    assert refusal(shop, "UpdateCollection", collection="orders", indexes=indexes, offerThroughput=900)[0] == 11000
    assert shop.orders.index_information() == had
    assert act(shop, "GetCollection", collection="orders")["provisionedThroughput"] == 400
