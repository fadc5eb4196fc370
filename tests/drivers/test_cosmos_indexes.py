"""The dialect `cosmos`: which indexes it refuses, and how duplicates of a unique one are answered.

Source of the rows: Microsoft's "Manage indexing in Azure Cosmos DB for MongoDB", called the indexing page here, and its
"Configure your Azure Cosmos DB for MongoDB account capabilities"; what they do not say, users of the service have
reported, or it is marked as assumed.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pymongo
import pytest
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure

import mongottl

Client = pymongo.MongoClient[dict[str, Any]]
Documents = Collection[dict[str, Any]]

FROZEN = (
    "The unique index cannot be modified. To change the unique index, remove the collection and re-create a new one."
)
DUPLICATE = "E11000 duplicate key error collection: shop.orders. Failed _id or unique index constraint."


@pytest.fixture(scope="module")
def cosmos() -> Iterator[mongottl.RunningServer]:
    with mongottl.start_server(dialect="cosmos") as running:
        yield running


@pytest.fixture
def account(cosmos: mongottl.RunningServer) -> Iterator[Client]:
    with Client(cosmos.uri) as client:
        yield client
        client.admin.command("configureCosmos", {"capabilities": [], "allow": [], "backup": "periodic"})
        client.drop_database("shop")


@pytest.fixture
def orders(account: Client) -> Documents:
    return account.shop.orders


def configure(client: Client, **settings: Any) -> None:
    client.admin.command("configureCosmos", settings)


def refusal(action: Callable[[], Any]) -> tuple[int, str, str]:
    """Code, code name and text of a refused command."""
    with pytest.raises(OperationFailure) as caught:
        action()
    details = caught.value.details
    assert details is not None
    return details["code"], details["codeName"], details["errmsg"]


# Unique indexes.


def test_a_unique_index_comes_before_the_documents(orders: Documents) -> None:
    """Indexing page; the code and the text from the reports of at least five authors."""
    orders.create_index("a", unique=True)
    orders.insert_one({"_id": 1, "a": 1, "b": 1})
    wording = "Cannot create unique index when collection contains documents"
    assert refusal(lambda: orders.create_index("b", unique=True)) == (67, "CannotCreateIndex", wording)
    # Reported: also if the data has no duplicates. Assumed: one that is there already is not created again.
    assert orders.create_index("a", unique=True) == "a_1"
    orders.delete_many({})
    assert orders.create_index("b", unique=True) == "b_1"


def test_expired_documents_do_not_count(account: Client, orders: Documents, cosmos: mongottl.RunningServer) -> None:
    """Assumed: what is invisible is not contained."""
    orders.create_index("_ts", expireAfterSeconds=10)
    cosmos.clock.freeze()
    try:
        orders.insert_one({"_id": 1})
        assert refusal(lambda: orders.create_index("b", unique=True))[0] == 67
        cosmos.clock.advance(11)
        assert orders.create_index("b", unique=True) == "b_1"
    finally:
        cosmos.clock.freeze(False)


@pytest.mark.parametrize("settings", [{"capabilities": ["EnableUniqueIndexReIndex"]}, {"allow": ["late-unique-index"]}])
def test_accounts_that_take_a_unique_index_over_documents(
    account: Client, orders: Documents, settings: dict[str, Any]
) -> None:
    """Indexing page: the capability. The other is ours."""
    orders.insert_many([{"_id": 1, "a": 1, "b": 5}, {"_id": 2, "a": 2, "b": 5}])
    configure(account, **settings)
    assert orders.create_index("a", unique=True) == "a_1"
    code, name, text = refusal(lambda: orders.create_index("b", unique=True))
    assert (code, name) == (11000, "DuplicateKey")
    assert DUPLICATE in text


def test_continuous_backup_freezes_unique_indexes(account: Client, orders: Documents) -> None:
    """Indexing page: with continuous backup, CreateCollection alone makes them; code and text from users' reports."""
    shop = account.shop
    orders.create_index("a", unique=True)
    configure(account, backup="continuous")
    shop.create_collection("empty")
    for coll in (shop.empty, shop.missing):
        code, name, text = refusal(lambda coll=coll: coll.create_index("a", unique=True))  # type: ignore[misc]
        assert (code, name) == (13, "Unauthorized")
        assert text.startswith("Error=13, Details='Response status code does not indicate success: Forbidden (403); ")
        assert FROZEN in text
    assert "missing" not in shop.list_collection_names()
    # Reported by one user: they cannot be dropped either.
    assert refusal(lambda: orders.drop_index("a_1"))[0] == 13
    assert refusal(lambda: orders.drop_indexes())[0] == 13
    # Assumed: what exists is not modified by being asked for, and other indexes are free.
    assert orders.create_index("a", unique=True) == "a_1"
    assert orders.create_index("b") == "b_1"
    orders.drop_index("b_1")
    indexes: list[Any] = [{"key": {"_id": 1}, "name": "_id_"}, {"key": {"a": 1}, "name": "a_1", "unique": True}]
    shop.command({"customAction": "CreateCollection", "collection": "made", "indexes": indexes})
    assert shop.made.index_information()["a_1"]["unique"] is True
    indexes[1]["key"] = {"b": 1}
    action = {"customAction": "UpdateCollection", "collection": "made", "indexes": indexes}
    assert refusal(lambda: shop.command(action))[0] == 13


def test_a_unique_index_contains_the_shard_key(account: Client, orders: Documents) -> None:
    """Indexing page: rule and text; the code from two programs."""
    account.shop.command({"customAction": "CreateCollection", "collection": "orders", "shardKey": "university"})
    text = "cannot create unique index over {student_id : 1.0} with shard key pattern { university : 1.0 }"
    assert refusal(lambda: orders.create_index("student_id", unique=True)) == (67, "CannotCreateIndex", text)
    assert orders.create_index([("university", 1), ("student_id", 1)], unique=True) == "university_1_student_id_1"
    orders.insert_many([{"university": name, "student_id": 1} for name in "ab"])
    with pytest.raises(DuplicateKeyError):
        orders.insert_one({"university": "a", "student_id": 1})


def test_a_missing_field_counts_as_null(orders: Documents) -> None:
    """Reported by users."""
    orders.create_index("a", unique=True)
    orders.insert_one({"_id": 1})
    with pytest.raises(DuplicateKeyError):
        orders.insert_one({"_id": 2})


def test_number_of_unique_indexes(orders: Documents) -> None:
    """Microsoft's "Azure Cosmos DB service quotas": ten unique keys; assumed: `_id` is not among them."""
    for n in range(10):
        orders.create_index(f"f{n}", unique=True)
    assert refusal(lambda: orders.create_index("g", unique=True))[0] == 67
    assert orders.create_index("g") == "g_1"


# Duplicates.


def test_duplicates_name_neither_the_index_nor_the_value(orders: Documents) -> None:
    """Reported by several users: no index, no keyPattern, no keyValue."""
    orders.create_index("a", unique=True)
    orders.insert_one({"_id": 1, "a": 1})
    for document in ({"_id": 1}, {"_id": 2, "a": 1}):
        with pytest.raises(BulkWriteError) as caught:
            orders.insert_many([document])
        written = caught.value.details["writeErrors"][0]
        assert (written["index"], written["code"], written["errmsg"]) == (0, 11000, DUPLICATE)
        assert set(written) == {"index", "code", "errmsg", "op"}  # `op` is from the driver
    orders.insert_one({"_id": 3, "a": 3})
    with pytest.raises(DuplicateKeyError) as failed:
        orders.update_one({"_id": 3}, {"$set": {"a": 1}})
    assert failed.value.details == {"index": 0, "code": 11000, "errmsg": DUPLICATE}
    with pytest.raises(DuplicateKeyError) as failed:
        orders.find_one_and_update({"_id": 3}, {"$set": {"a": 1}})
    assert failed.value.details == {"ok": 0.0, "errmsg": DUPLICATE, "code": 11000, "codeName": "DuplicateKey"}


def test_mongodb_takes_unique_indexes_over_documents(client: Client) -> None:
    client.drop_database("shop")
    client.shop.orders.insert_one({"_id": 1, "a": 1})
    assert client.shop.orders.create_index("a", unique=True) == "a_1"
    with pytest.raises(DuplicateKeyError) as caught:
        client.shop.orders.insert_one({"_id": 2, "a": 1})
    assert caught.value.details is not None
    assert caught.value.details["keyPattern"] == {"a": 1}
