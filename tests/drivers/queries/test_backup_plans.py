"""Sorts that must not use the disk go over to an index that gives the order; explain tells of queries that fail."""

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import OperationFailure

from tests.on_nodes import own_parameters

pytestmark = own_parameters

Documents = dict[str, Any]
LIMIT = "internalQueryMaxBlockingSortMemoryUsageBytes"


@pytest.fixture
def large(database: Database[Documents]) -> Iterator[Collection[Documents]]:
    """1,000 documents of 300 bytes, where a sort may hold 50,000 bytes; indexes on `a` and, for the order, on `_id`."""
    database.t.insert_many([{"_id": n, "a": n % 2, "b": -n, "s": "x" * 300} for n in range(1000)])
    database.t.create_index("a")
    admin = database.client.admin
    was = admin.command({"getParameter": 1, LIMIT: 1})[LIMIT]
    admin.command({"setParameter": 1, LIMIT: 50_000})
    yield database.t
    admin.command({"setParameter": 1, LIMIT: was})


def test_an_index_gives_the_order_instead(large: Collection[Documents]) -> None:
    cursor = large.find({"a": 1}, {"_id": 1}).sort("_id", -1).allow_disk_use(False)
    assert [document["_id"] for document in cursor] == list(range(999, 0, -2))
    cursor = large.find({"a": 1}, {"_id": 1}).sort("_id", 1).skip(10).limit(300).allow_disk_use(False)
    assert [document["_id"] for document in cursor] == list(range(21, 621, 2))
    pipeline = [{"$match": {"a": 1}}, {"$sort": {"_id": 1}}, {"$project": {"_id": 1}}]
    found = list(large.aggregate(pipeline, allowDiskUse=False))
    assert [document["_id"] for document in found] == list(range(1, 1000, 2))


def test_without_such_an_index_the_sort_fails(large: Collection[Documents]) -> None:
    for find in (
        large.find({"a": 1}).sort("b", 1),
        large.find({"a": 1}).sort("_id", 1).hint("a_1"),
        large.find({"a": 1}).sort("_id", 1).hint([("$natural", 1)]),
    ):
        with pytest.raises(OperationFailure) as refused:
            list(find.allow_disk_use(False))
        assert refused.value.code == 292
    assert len(list(large.find({"a": 1}).sort("b", 1).allow_disk_use(True))) == 500


def explained(collection: Collection[Documents], **find: Any) -> Documents:
    command = {"explain": {"find": collection.name, **find}, "verbosity": "allPlansExecution"}
    return collection.database.command(command)


def test_explain_of_a_sort_that_goes_over(large: Collection[Documents]) -> None:
    reply = explained(large, filter={"a": 1}, sort={"_id": 1}, allowDiskUse=False)
    assert reply["executionStats"]["executionSuccess"] is True
    assert reply["executionStats"]["nReturned"] == 500


def test_explain_of_a_query_that_fails(large: Collection[Documents]) -> None:
    stats = explained(large, filter={"a": 1}, sort={"b": 1}, allowDiskUse=False)["executionStats"]
    assert stats["executionSuccess"] is False
    assert stats["errorCode"] == 292
    assert "memory limit" in stats["errorMessage"]
    assert list(stats)[:3] == ["executionSuccess", "errorMessage", "errorCode"]
    stats = explained(large, filter={"$expr": {"$divide": [1, {"$subtract": ["$_id", 700]}]}})["executionStats"]
    assert (stats["executionSuccess"], stats["errorCode"]) == (False, 2)
    assert stats["totalDocsExamined"] > 0
