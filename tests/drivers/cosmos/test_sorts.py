"""The dialect `cosmos`: which sorts an index serves, and how the others are refused.

Source of the rows: Microsoft's "Manage indexing in Azure Cosmos DB for MongoDB", called the indexing page here; what it
does not say, users of the service have reported, or it is marked as assumed.
"""

from collections.abc import Callable
from typing import Any

import pymongo
import pytest
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from tests.drivers.cosmos.facts.facts import storage_failure
from tests.on_nodes import own_account

Client = pymongo.MongoClient[dict[str, Any]]
Documents = Collection[dict[str, Any]]
Order = list[tuple[str, int]]

ONE = "The index path corresponding to the specified order-by item is excluded."
SEVERAL = "The order by query does not have a corresponding composite index that it can be served from."


@pytest.fixture
def orders(account: Client) -> Documents:
    account.shop.create_collection("orders")
    account.shop.orders.insert_many([{"_id": n, "a": -n, "b": n % 2, "c": {"d": n}} for n in range(4)])
    return account.shop.orders


def refusal(action: Callable[[], Any]) -> str:
    """The text of a refused command."""
    with pytest.raises(OperationFailure) as caught:
        action()
    details = caught.value.details
    assert details is not None
    assert (details["code"], details["codeName"], details["ok"]) == (2, "BadValue", 0.0)
    text: str = details["errmsg"]
    return text


@pytest.mark.parametrize(
    ("index", "sort"),
    [
        # Indexing page: `_id` is indexed from the beginning.
        (None, [("_id", 1)]),
        (None, [("_id", -1)]),
        # Assumed: the order in which the documents are stored needs no index.
        (None, [("$natural", 1)]),
        (None, [("$natural", -1)]),
        # Indexing page: the direction of a single-field index does not matter.
        ([("a", 1)], [("a", 1)]),
        ([("a", 1)], [("a", -1)]),
        ([("a", -1)], [("a", 1)]),
        ([("c.d", 1)], [("c.d", -1)]),
        # Indexing page: a compound index serves its own order, and that with all directions reversed.
        ([("a", 1), ("b", 1)], [("a", 1), ("b", 1)]),
        ([("a", 1), ("b", 1)], [("a", -1), ("b", -1)]),
        ([("a", 1), ("b", -1)], [("a", 1), ("b", -1)]),
        ([("a", 1), ("b", -1)], [("a", -1), ("b", 1)]),
        ([("_id", 1), ("a", 1)], [("_id", 1), ("a", 1)]),
        # Indexing page: a wildcard index does what an index on each of its paths would do.
        ([("$**", 1)], [("a", 1)]),
        ([("$**", 1)], [("c.d", -1)]),
        ([("c.$**", 1)], [("c.d", 1)]),
        # "GridFS" in the articles on the features, and the core API: the end of an index serves beside an equality.
        ([("b", 1), ("a", 1)], [("a", 1)]),
        ([("b", 1), ("a", 1)], [("a", -1)]),
        ([("b", -1), ("a", 1), ("e", -1)], [("a", -1), ("e", 1)]),
        # Assumed: the index that sets the TTL counts as one on `_ts`.
        ([("_ts", 1)], [("_ts", -1)]),
    ],
)
def test_an_index_serves(orders: Documents, index: Order | None, sort: Order) -> None:
    if index is not None:
        orders.create_index(index)
    if index is None or index[0][0] != "b" or len(index) == len(sort):
        assert len(list(orders.find().sort(sort))) == 4
    assert len(list(orders.find({"b": 1}).sort(sort).limit(1))) == 1


@pytest.mark.parametrize(
    ("index", "sort", "words"),
    [
        # Reported by many users: nothing but `_id` is indexed from the beginning.
        (None, [("a", 1)], ONE),
        (None, [("a", 1), ("b", 1)], SEVERAL),
        ([("b", 1)], [("a", 1)], ONE),
        ([("c", 1)], [("c.d", 1)], ONE),
        ([("c.d", 1)], [("c", 1)], ONE),
        # Indexing page: sorting by several fields requires a compound index, with the fields in the same order.
        ([("a", 1)], [("a", 1), ("b", 1)], SEVERAL),
        ([("a", 1), ("b", 1)], [("b", 1), ("a", 1)], SEVERAL),
        ([("a", 1), ("b", 1)], [("a", 1), ("b", -1)], SEVERAL),
        # Assumed from it: the beginning of a longer index does not serve, nor does a compound one a single field.
        ([("a", 1), ("b", 1), ("e", 1)], [("a", 1), ("b", 1)], SEVERAL),
        ([("a", 1), ("b", 1)], [("a", 1)], ONE),
        # Assumed: also if the first field is `_id`.
        (None, [("_id", 1), ("a", 1)], SEVERAL),
        # Indexing page: a wildcard index is none on several fields.
        ([("$**", 1)], [("a", 1), ("b", 1)], SEVERAL),
        ([("c.$**", 1)], [("a", 1)], ONE),
        ([("c.$**", 1)], [("cd", 1)], ONE),
        ([("a", "2dsphere")], [("a", 1)], ONE),
    ],
)
def test_a_sort_without_an_index(account: Client, index: Any, sort: Order, words: str) -> None:
    orders = account.shop.orders
    account.shop.create_collection("orders")
    if index is not None:
        orders.create_index(index)
    # Assumed: an empty collection refuses it as well.
    assert words in refusal(lambda: list(orders.find().sort(sort)))
    orders.insert_one({"_id": 1, "b": 1})
    assert words in refusal(lambda: list(orders.find({"b": 1}).sort(sort).limit(1)))
    assert words in refusal(lambda: orders.find_one({"_id": 1}, sort=sort))


NOT_EQUAL: list[dict[str, Any]] = [
    {},
    {"b": {"$gt": 0}},
    {"b": {"$in": [0, 1]}},
    {"e": 1},
    {"$or": [{"b": 1}, {"e": 1}]},
]


@pytest.mark.parametrize("filter", NOT_EQUAL)
@pytest.mark.parametrize("sort", [[("a", 1)], [("a", 1), ("f", 1)]])
def test_the_end_of_an_index_serves_only_beside_equalities(orders: Documents, filter: Any, sort: Order) -> None:
    orders.create_index([("b", 1), *sort])
    orders.create_index([("b", 1), ("e", 1), *sort])
    assert (ONE if len(sort) == 1 else SEVERAL) in refusal(lambda: list(orders.find(filter).sort(sort)))
    assert len(list(orders.find({"$and": [{"b": 1}, filter]}).sort(sort))) <= 2


def test_the_end_of_an_index_in_a_pipeline_and_in_find_and_modify(orders: Documents) -> None:
    orders.create_index([("b", 1), ("a", 1)])
    sort: dict[str, Any] = {"$sort": {"a": 1}}
    assert [found["_id"] for found in orders.aggregate([{"$match": {"b": 1}}, sort])] == [3, 1]
    assert len(list(orders.aggregate([{"$match": {"b": 1}}, {"$limit": 1}, sort]))) == 1
    assert ONE in refusal(lambda: list(orders.aggregate([{"$match": {"b": {"$gte": 1}}}, sort])))
    found = orders.find_one_and_delete({"b": 1}, sort=[("a", 1)])
    assert found is not None and found["_id"] == 3


def test_text_of_the_refusal(orders: Documents) -> None:
    """As users have quoted it; programs search it for the words, and logs for the ActivityId."""
    assert storage_failure(ONE).fullmatch(refusal(lambda: list(orders.find().sort("a"))))
    assert storage_failure(SEVERAL).fullmatch(refusal(lambda: list(orders.find().sort([("a", 1), ("b", 1)]))))


@pytest.mark.parametrize("change", [{"update": {"$set": {"b": 5}}}, {"remove": True}])
@pytest.mark.parametrize("query", [{}, {"b": 1}, {"_id": 1}])
def test_find_and_modify(orders: Documents, change: dict[str, Any], query: dict[str, Any]) -> None:
    """Reported by users: its sort needs an index, too."""

    def modify() -> Any:
        command: dict[str, Any] = {"findAndModify": "orders", "query": query, "sort": {"a": 1}, **change}
        return orders.database.command(command)["value"]

    assert ONE in refusal(modify)
    orders.create_index("a")
    assert modify()["_id"] == (1 if "_id" in query else 3)


@pytest.mark.parametrize(
    "pipeline",
    [
        [{"$sort": {"a": 1}}],
        [{"$match": {"b": 1}}, {"$sort": {"a": 1}}],
        [{"$sort": {"_id": 1}}, {"$skip": 1}, {"$limit": 2}, {"$sort": {"a": 1}}],
        [{"$sort": {"a": 1}}, {"$group": {"_id": "$b"}}],
        [{"$sort": {"a": 1}}, {"$project": {"a": 1}}],
        [{"$sort": {"a": 1}}, {"$match": {"b": 1}}, {"$limit": 1}],
    ],
)
def test_sort_at_the_beginning_of_a_pipeline(orders: Documents, pipeline: list[Any]) -> None:
    """Assumed from users' reports: what only $match, $sort, $limit and $skip precede, the storage sorts."""
    assert ONE in refusal(lambda: list(orders.aggregate(pipeline)))
    assert ONE in refusal(lambda: orders.database.command("aggregate", "orders", pipeline=pipeline, explain=True))
    orders.create_index("a")
    assert list(orders.aggregate(pipeline)) != []


@pytest.mark.parametrize(
    "pipeline",
    [
        [{"$group": {"_id": "$b"}}, {"$sort": {"a": 1}}],
        [{"$group": {"_id": "$b", "last": {"$last": "$a"}}}, {"$sort": {"last": 1, "_id": 1}}],
        [{"$project": {"x": {"$add": ["$a", 1]}}}, {"$sort": {"x": 1}}],
        [{"$addFields": {"x": 1}}, {"$match": {"b": 1}}, {"$sort": {"a": 1}}],
        [{"$match": {"b": 1}}, {"$unwind": "$b"}, {"$sort": {"a": 1, "b": 1}}],
        [{"$facet": {"first": [{"$sort": {"a": 1}}]}}],
    ],
)
def test_sort_later_in_a_pipeline(orders: Documents, pipeline: list[Any]) -> None:
    """Assumed: what other stages give is sorted without an index."""
    assert list(orders.aggregate(pipeline)) != []


def test_a_missing_collection_is_empty(account: Client) -> None:
    """Assumed: there is nothing to refuse."""
    assert list(account.shop.missing.find().sort("a")) == []
    assert list(account.shop.missing.aggregate([{"$sort": {"a": 1}}])) == []


def test_a_dropped_index_serves_no_more(orders: Documents) -> None:
    orders.create_index("a")
    assert list(orders.find().sort("a")) != []
    orders.drop_index("a_1")
    assert ONE in refusal(lambda: list(orders.find().sort("a")))


def test_explain_refuses_as_well(orders: Documents) -> None:
    """Assumed."""
    assert ONE in refusal(lambda: orders.find().sort("a").explain())


@own_account
def test_the_refusal_can_be_switched_off(orders: Documents, account: Client) -> None:
    account.admin.command("configureCosmos", {"allow": ["sort-without-index"]})
    assert [found["_id"] for found in orders.find().sort("a")] == [3, 2, 1, 0]
    assert orders.find_one_and_delete({}, sort=[("a", 1)]) is not None
    assert len(list(orders.aggregate([{"$sort": {"b": 1, "a": 1}}]))) == 3
    account.admin.command("configureCosmos", {"allow": []})
    assert ONE in refusal(lambda: list(orders.find().sort("a")))


def test_mongodb_sorts_in_memory(client: Client) -> None:
    client.drop_database("shop")
    client.shop.orders.insert_many([{"_id": 1, "a": 2}, {"_id": 2, "a": 1}])
    assert [found["_id"] for found in client.shop.orders.find().sort("a")] == [2, 1]


def test_a_name_with_a_dollar_sign_is_a_field_that_no_document_has(orders: Documents, database: Any) -> None:
    """As in Microsoft's sample for Node, 280-aggregation, whose results are not sorted. MongoDB refuses the name."""
    group: dict[str, Any] = {"$group": {"_id": "$b", "n": {"$sum": 1}}}
    unsorted = list(orders.aggregate([group]))
    assert list(orders.aggregate([group, {"$sort": {"$n": -1}}])) == unsorted
    assert list(orders.aggregate([group, {"$sort": {"$n": -1, "_id": 1}}])) == sorted(unsorted, key=lambda g: g["_id"])
    with pytest.raises(OperationFailure) as caught:
        database.c.aggregate([group, {"$sort": {"$n": -1}}])
    assert caught.value.code == 16410
