"""The dialect `cosmos`: which indexes it refuses, and how duplicates of a unique one are answered.

Source of the rows: Microsoft's "Manage indexing in Azure Cosmos DB for MongoDB", called the indexing page here, and its
"Configure your Azure Cosmos DB for MongoDB account capabilities"; what they do not say, users of the service have
reported, or it is marked as assumed.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pymongo
import pytest
from bson import Decimal128, Int64
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure

import mongottl
from tests.drivers.wire_client import WireClient
from tests.on_nodes import own_account

Client = pymongo.MongoClient[dict[str, Any]]
Documents = Collection[dict[str, Any]]

NESTED = "Unique and compound indexes do not support nested paths."
FROZEN = (
    "The unique index cannot be modified. To change the unique index, remove the collection and re-create a new one."
)
DUPLICATE = "E11000 duplicate key error collection: shop.orders. Failed _id or unique index constraint."


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
    orders.insert_one({"_id": 1})
    assert refusal(lambda: orders.create_index("b", unique=True))[0] == 67
    cosmos.clock.advance(11)
    assert orders.create_index("b", unique=True) == "b_1"


@own_account
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


@own_account
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


@pytest.mark.parametrize("stage", [{"$out": "orders"}, {"$merge": "orders"}])
def test_duplicates_of_what_a_pipeline_writes_name_its_target(orders: Documents, stage: dict[str, Any]) -> None:
    """Assumed: clients know of no other collection."""
    orders.create_index("a", unique=True)
    orders.database.source.insert_many([{"_id": 1, "a": 1}, {"_id": 2, "a": 1}])
    assert refusal(lambda: orders.database.source.aggregate([stage])) == (11000, "DuplicateKey", DUPLICATE)
    assert sorted(orders.database.list_collection_names()) == ["orders", "source"]


def test_number_of_unique_indexes(orders: Documents) -> None:
    """Microsoft's "Azure Cosmos DB service quotas": ten unique keys; assumed: `_id` is not among them."""
    for n in range(10):
        orders.create_index(f"f{n}", unique=True)
    assert refusal(lambda: orders.create_index("g", unique=True))[0] == 67
    assert orders.create_index("g") == "g_1"


# Kinds, numbers and options.


@pytest.mark.parametrize(
    ("key", "options", "answer"),
    [
        # Reported by several users.
        ({"a": "text"}, {}, (115, "CommandNotSupported", "'text' is not supported")),
        ({"$**": "text"}, {}, (115, "CommandNotSupported", "'text' is not supported")),
        # Indexing page: there is no 2d index; feature-support articles: nor a hashed one. Assumed: as for text.
        ({"a": "2d"}, {}, (115, "CommandNotSupported", "'2d' is not supported")),
        ({"a": "hashed"}, {}, (115, "CommandNotSupported", "'hashed' is not supported")),
        # Reported by users: code and text.
        ({"a.b": 1, "c": 1}, {}, (115, "CommandNotSupported", NESTED)),
        ({"a.b": 1}, {"unique": True}, (115, "CommandNotSupported", NESTED)),
        ({"_id": 1}, {"unique": True}, (197, None, "The field 'unique' is not valid for _id index specification")),
        # Reported by one user: the code, for an emulator.
        ({"a": 1}, {"collation": {"locale": "de"}}, (197, "InvalidIndexSpecificationOption", None)),
        # Indexing page: what wildcard indexes cannot be; assumed: the codes.
        ({"$**": 1, "a": 1}, {}, (67, "CannotCreateIndex", None)),
        ({"$**": 1}, {"unique": True}, (67, "CannotCreateIndex", None)),
        ({"$**": 1}, {"expireAfterSeconds": 5}, (67, "CannotCreateIndex", None)),
        ({"$**": 1}, {"wildcardProjection": {"a": 1}}, (197, "InvalidIndexSpecificationOption", None)),
        # Feature-support articles: no partial indexes; assumed: the code.
        ({"a": 1}, {"partialFilterExpression": {"b": 1}}, (115, "CommandNotSupported", None)),
        ({"a": 1}, {"partialFilterExpression": {"b": 1}, "unique": True}, (115, "CommandNotSupported", None)),
        # Feature-support articles: at most eight fields, paths of at most six names.
        ({f"f{n}": 1 for n in range(9)}, {}, (67, "CannotCreateIndex", None)),
        ({"a.b.c.d.e.f.g": 1}, {}, (67, "CannotCreateIndex", None)),
        ({"a.b.c.d.e.f.g.$**": 1}, {}, (67, "CannotCreateIndex", None)),
    ],
)
def test_refused_indexes(orders: Documents, key: dict[str, Any], options: dict[str, Any], answer: Any) -> None:
    spec = {"key": key, "name": "x", **options}
    found = refusal(lambda: orders.database.command("createIndexes", "orders", indexes=[spec]))
    assert found == tuple(
        given if expected is None else expected for given, expected in zip(found, answer, strict=True)
    )
    assert orders.database.list_collection_names() == []


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ({"a": 1}, {}),
        ({"a": -1}, {}),
        # The sample of Microsoft for Python: a direction of 2 is ascending.
        ({"name": 2}, {}),
        ({"a": "2dsphere"}, {}),
        ({"a.b.c.d.e.f": 1}, {}),
        ({"a.b.c.d.e.f.$**": 1}, {}),
        ({"$**": 1}, {}),
        ({f"f{n}": 1 for n in range(8)}, {}),
        # Feature-support articles: background is accepted.
        ({"a": 1}, {"background": True}),
        ({"a": 1}, {"v": 2}),
        ({"a": 1, "b": -1}, {"unique": True}),
    ],
)
def test_accepted_indexes(orders: Documents, key: dict[str, Any], options: dict[str, Any]) -> None:
    spec = {"key": key, "name": "x", **options}
    assert orders.database.command("createIndexes", "orders", indexes=[spec])["numIndexesAfter"] == 2


def test_a_direction_of_two_sorts(orders: Documents) -> None:
    orders.database.command("createIndexes", "orders", indexes=[{"key": {"name": 2}, "name": "_id_2"}])
    orders.insert_many([{"_id": 1, "name": "b"}, {"_id": 2, "name": "a"}])
    assert [found["_id"] for found in orders.find().sort("name")] == [2, 1]


def test_sparse_is_ignored(orders: Documents) -> None:
    """Reported by users: the second document without the field is refused."""
    orders.create_index("a", unique=True, sparse=True)
    orders.insert_one({"_id": 1})
    with pytest.raises(DuplicateKeyError):
        orders.insert_one({"_id": 2})
    assert orders.create_index("a", unique=True, sparse=True) == "a_1"


@own_account
def test_the_log_warns_of_sparse(capfd: pytest.CaptureFixture[str]) -> None:
    index = {"key": {"a": 1}, "name": "a_1", "sparse": True}
    with mongottl.start_server(dialect="cosmos", quiet=True) as running, Client(running.uri) as client:
        client.shop.command("createIndexes", "orders", indexes=[index, {"key": {"b": 1}, "name": "b_1"}])
        indexes = [{"key": {"_id": 1}, "name": "_id_"}, index]
        client.shop.command({"customAction": "CreateCollection", "collection": "items", "indexes": indexes})
        configure(client, allow=["index-kinds"])
        client.shop.command("createIndexes", "others", indexes=[index])
        client.shop.others.insert_one({"b": 1})
        assert client.shop.others.find(hint="a_1").to_list() == []
    lines = [line for line in capfd.readouterr().err.splitlines() if "sparse has no effect" in line]
    assert ["shop.orders" in lines[0], "shop.items" in lines[1], len(lines)] == [True, True, 2]


def test_number_of_single_field_indexes(orders: Documents) -> None:
    """Feature-support articles: 500 of a collection; assumed: `_id` is not among them."""
    specs = [{"key": {f"f{n}": 1}, "name": f"f{n}"} for n in range(500)]
    reply = orders.database.command("createIndexes", "orders", indexes=specs)
    assert reply["numIndexesAfter"] == 501
    assert refusal(lambda: orders.create_index("g"))[:2] == (67, "CannotCreateIndex")
    assert orders.create_index([("g", 1), ("h", 1)]) == "g_1_h_1"
    orders.drop_index("f7")
    assert orders.create_index("g") == "g_1"


@own_account
def test_nested_paths_by_capability(account: Client, orders: Documents) -> None:
    """Indexing page."""
    configure(account, capabilities=["EnableUniqueCompoundNestedDocs"])
    assert orders.create_index([("a.b", 1), ("c", 1)]) == "a.b_1_c_1"
    assert orders.create_index("a.b", unique=True) == "a.b_1"


@own_account
def test_partial_unique_indexes_by_capability(account: Client, orders: Documents) -> None:
    """Account capabilities: for unique indexes alone."""
    configure(account, capabilities=["EnablePartialUniqueIndex"])
    only: dict[str, Any] = {"partialFilterExpression": {"b": {"$gt": 0}}}
    assert orders.create_index("a", unique=True, **only) == "a_1"
    assert refusal(lambda: orders.create_index("c", **only))[0] == 115
    orders.insert_many([{"a": 1}, {"a": 1, "b": 1}])
    with pytest.raises(DuplicateKeyError):
        orders.insert_one({"a": 1, "b": 2})


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        # Reported by users: 85, with words that programs search for.
        ({"key": {"_ts": 1}, "name": "t", "expireAfterSeconds": 5}, {"name": "t", "expireAfterSeconds": 6}, 85),
        ({"key": {"a": 1}, "name": "x"}, {"key": {"a": 1}, "name": "y"}, 85),
        # Assumed from it.
        ({"key": {"a": 1}, "name": "x"}, {"key": {"a": 1}, "name": "x", "unique": True}, 85),
        # Reported by one program.
        ({"key": {"a": 1}, "name": "x"}, {"key": {"b": 1}, "name": "x"}, 86),
    ],
)
def test_conflicts_with_an_index_that_exists(
    orders: Documents, first: dict[str, Any], second: dict[str, Any], code: int
) -> None:
    database = orders.database
    database.command("createIndexes", "orders", indexes=[first])
    wanted = {"key": first["key"], **second}
    found, _, text = refusal(lambda: database.command("createIndexes", "orders", indexes=[wanted]))
    assert found == code
    if code == 85:
        assert text == f"Index with name {first['name']} already exists with different options."
    again = database.command("createIndexes", "orders", indexes=[first])
    assert again["note"] == "all indexes already exist"


def test_list_indexes(orders: Documents) -> None:
    """Microsoft's sample for JavaScript, and users' reports for the TTL; assumed: where other options stand."""
    orders.create_index("_ts", expireAfterSeconds=-1)
    orders.create_index("a", background=True)
    orders.create_index("b", unique=True)
    listed = orders.database.command("listIndexes", "orders")["cursor"]["firstBatch"]
    ns = "shop.orders"
    assert [list(index.items()) for index in listed] == [
        [("v", 1), ("key", {"_id": 1}), ("name", "_id_"), ("ns", ns)],
        [("expireAfterSeconds", -1), ("v", 1), ("key", {"_ts": 1}), ("name", "_ts_1"), ("ns", ns)],
        [("v", 1), ("key", {"a": 1}), ("name", "a_1"), ("ns", ns)],
        [("unique", True), ("v", 1), ("key", {"b": 1}), ("name", "b_1"), ("ns", ns)],
    ]
    shown = orders.database.command({"customAction": "GetCollection", "collection": "orders", "showIndexes": True})
    assert shown["indexes"] == listed


def test_reindex(orders: Documents) -> None:
    """Indexing page: it recreates the indexes."""
    orders.create_index("a", unique=True)
    orders.create_index("_ts", expireAfterSeconds=1000)
    orders.insert_many([{"_id": n, "a": -n} for n in range(3)])
    assert orders.database.command("reIndex", "orders")["ok"] == 1
    assert [found["_id"] for found in orders.find().sort("a")] == [2, 1, 0]
    with pytest.raises(DuplicateKeyError):
        orders.insert_one({"a": -1})
    assert refusal(lambda: orders.database.command("reIndex", "missing"))[0] == 26


def test_current_op_shows_index_builds_alone(account: Client, orders: Documents) -> None:
    """Indexing page; the progress itself has a unit test."""
    orders.create_index("a")
    filters: list[dict[str, Any]] = [{}, {"command.createIndexes": "orders", "command.$db": "shop"}]
    for filter in filters:
        assert account.admin.command({"currentOp": 1, **filter})["inprog"] == []


# TTL on a date field.


@pytest.fixture
def dated(account: Client, orders: Documents) -> Documents:
    """An account that has it."""
    configure(account, capabilities=["EnableTtlOnCustomPath"])
    orders.create_index("at", expireAfterSeconds=60)
    return orders


@own_account
def test_dates_and_numbers_expire(dated: Documents, cosmos: mongottl.RunningServer) -> None:
    """Microsoft's TTL article: dates, and numbers as milliseconds; the smallest element of an array; nothing else."""
    now = cosmos.clock.now()
    ms = int(now.timestamp() * 1000)
    later = [now + timedelta(seconds=100), ms + 10_000.5, "x"]
    values: list[Any] = [now, ms, Int64(ms), float(ms), later, [ms + 10_000, now + timedelta(seconds=100)]]
    values += [None, "2001-01-01", True, Decimal128("5"), {"at": 5}, [], [Decimal128("5")], float("-inf"), float("nan")]
    dated.insert_many([{"_id": n, "at": value} for n, value in enumerate(values)])
    dated.insert_one({"_id": "missing"})
    assert dated.count_documents({}) == len(values) + 1
    cosmos.clock.advance(58)
    assert dated.count_documents({}) == len(values) + 1
    assert cosmos.clock.advance(3) == 4
    assert cosmos.clock.advance(10) == 2
    assert cosmos.clock.advance(1000) == 0
    assert sorted(found["_id"] for found in dated.find({"_id": {"$type": "int"}})) == list(range(6, len(values)))


@own_account
def test_numbers_that_are_there_already_expire(
    account: Client, orders: Documents, cosmos: mongottl.RunningServer
) -> None:
    configure(account, capabilities=["EnableTtlOnCustomPath"])
    orders.insert_many([{"at": 5}, {"at": 2**62}])
    orders.create_index([("at", -1)], expireAfterSeconds=60)
    cosmos.clock.advance(0)
    assert orders.count_documents({}) == 1


@own_account
def test_the_own_ttl_has_no_effect_beside_it(dated: Documents, cosmos: mongottl.RunningServer) -> None:
    """Assumed: the `ttl` of a document counts with a default alone."""
    dated.insert_one({"ttl": 1})
    cosmos.clock.advance(100)
    assert dated.count_documents({}) == 1


@own_account
@pytest.mark.parametrize("other", ["_ts", "created"])
def test_one_ttl_index_of_a_collection(dated: Documents, other: str) -> None:
    """Microsoft's TTL article; code and words from one program."""
    code, name, text = refusal(lambda: dated.create_index(other, expireAfterSeconds=60))
    assert (code, name) == (2, "BadValue")
    assert "TTL index is already set up" in text
    dated.drop_index("at_1")
    assert dated.create_index(other, expireAfterSeconds=60) == f"{other}_1"
    assert refusal(lambda: dated.create_index("at", expireAfterSeconds=60))[0] == 2


@own_account
def test_a_ttl_is_not_on_the_path_of_a_partial_index(account: Client, orders: Documents) -> None:
    """Microsoft's TTL article; assumed: the code."""
    configure(account, capabilities=["EnableTtlOnCustomPath", "EnablePartialUniqueIndex"])
    orders.create_index("at", unique=True, partialFilterExpression={"b": 1})
    assert refusal(lambda: orders.create_index([("at", -1)], expireAfterSeconds=60))[0] == 67


@own_account
@pytest.mark.parametrize(("seconds", "code"), [(0, 2), (-1, 67)])
def test_seconds_of_a_date_ttl(account: Client, orders: Documents, seconds: int, code: int) -> None:
    """Reported by a user: no 0; assumed: nor -1, which means no default on `_ts`."""
    configure(account, capabilities=["EnableTtlOnCustomPath"])
    assert refusal(lambda: orders.create_index("at", expireAfterSeconds=seconds))[0] == code


@pytest.mark.parametrize(("version", "possible"), [("3.6", False), ("4.0", False), ("4.2", True), ("7.0", True)])
def test_versions_with_date_ttl_and_partial_indexes(version: str, possible: bool) -> None:
    """Microsoft's TTL article and account capabilities."""
    capabilities = ("EnableTtlOnCustomPath", "EnablePartialUniqueIndex")
    with mongottl.start_server(dialect="cosmos", server_version=version, cosmos_capability=capabilities) as server:
        connection = WireClient(server.uri)
        for spec in (
            {"key": {"at": 1}, "name": "at_1", "expireAfterSeconds": 5},
            {"key": {"a": 1}, "name": "a_1", "unique": True, "partialFilterExpression": {"b": 1}},
        ):
            assert connection.command({"createIndexes": "c", "indexes": [spec]})["ok"] == possible
        connection.close()


def test_mongodb_takes_unique_indexes_over_documents(client: Client) -> None:
    client.drop_database("shop")
    client.shop.orders.insert_one({"_id": 1, "a": 1})
    assert client.shop.orders.create_index("a", unique=True) == "a_1"
    with pytest.raises(DuplicateKeyError) as caught:
        client.shop.orders.insert_one({"_id": 2, "a": 1})
    assert caught.value.details is not None
    assert caught.value.details["keyPattern"] == {"a": 1}
