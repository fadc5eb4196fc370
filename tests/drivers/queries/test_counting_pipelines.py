"""Pipelines that only count: what they give, and that they look at no documents where entries can be counted."""

from typing import Any

import pytest
from pymongo.database import Database

from tests.on_nodes import own_parameters

Documents = dict[str, Any]

GROUP: Documents = {"$group": {"_id": None, "n": {"$sum": 1}}}
COUNT: Documents = {"$count": "n"}


@pytest.fixture
def thousand(database: Database[Documents]) -> Database[Documents]:
    database.c.insert_many([{"_id": i, "a": i % 10, "t": [i, i + 1], "b": i} for i in range(1000)])
    database.c.create_index("a")
    database.c.create_index("t")
    return database


@pytest.mark.parametrize(
    ("front", "expected", "stages"),
    [
        ([], 1000, ["RECORD_STORE_FAST_COUNT"]),
        ([{"$match": {}}], 1000, ["RECORD_STORE_FAST_COUNT"]),
        ([{"$match": {"a": 3}}], 100, ["COUNT_SCAN"]),
        ([{"$match": {"a": {"$gt": 7}}}], 200, ["COUNT_SCAN"]),
        ([{"$match": {"a": {"$in": [1, 2]}}}], 200, ["IXSCAN"]),
        ([{"$match": {"a": 3, "b": {"$lt": 500}}}], 50, ["FETCH", "IXSCAN"]),
        ([{"$match": {"t": {"$gte": 999}}}], 2, ["COUNT_SCAN"]),
        ([{"$match": {"b": 5}}], 1, ["COLLSCAN"]),
        ([{"$match": {"a": 3}}, {"$skip": 90}], 10, ["SKIP", "IXSCAN"]),
        ([{"$match": {"a": 3}}, {"$limit": 7}], 7, ["LIMIT", "IXSCAN"]),
        ([{"$match": {"a": 3}}, {"$skip": 10}, {"$limit": 95}], 90, ["LIMIT", "SKIP", "IXSCAN"]),
        ([{"$match": {"a": 3}}, {"$limit": 7}, {"$skip": 2}], 5, ["LIMIT", "IXSCAN"]),
        ([{"$match": {"a": 3}}, {"$limit": 7}, {"$skip": 9}], None, ["LIMIT", "IXSCAN"]),
        ([{"$limit": 7}], 7, ["LIMIT", "COLLSCAN"]),
        ([{"$match": {"a": 99}}], None, ["COUNT_SCAN"]),
        ([{"$match": {"a": None}}], None, ["COUNT_SCAN"]),
        ([{"$match": {"a": {"$mod": [5, 3]}}}], 200, ["IXSCAN"]),
        ([{"$match": {"t": {"$mod": [5, 3]}}}], 400, ["FETCH", "IXSCAN"]),
        ([{"$match": {"a": {"$mod": [5, 3]}}}, {"$limit": 7}], 7, ["LIMIT", "IXSCAN"]),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("count", [COUNT, GROUP], ids=["count", "group"])
def test_counts(
    thousand: Database[Documents], front: list[Documents], expected: int | None, stages: list[str], count: Documents
) -> None:
    results = list(thousand.c.aggregate([*front, count]))
    assert [result["n"] for result in results] == ([] if expected is None else [expected])
    reply = thousand.command({"aggregate": "c", "pipeline": [*front, count], "explain": True})
    stage = reply["stages"][0]["$cursor"]["queryPlanner"]["winningPlan"]
    names = [stage["stage"]]
    while "inputStage" in stage:
        stage = stage["inputStage"]
        names.append(stage["stage"])
    assert names == stages


def test_groups_by_a_field_are_no_count(thousand: Database[Documents]) -> None:
    groups = list(thousand.c.aggregate([{"$group": {"_id": "$a", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}]))
    assert groups == [{"_id": i, "n": 100} for i in range(10)]
    [one] = thousand.c.aggregate([{"$group": {"_id": None, "n": {"$sum": "$a"}}}])
    assert one["n"] == 4500
    [one] = thousand.c.aggregate(
        [{"$match": {"a": 1}}, {"$group": {"_id": {"k": {"$literal": 1}}, "n": {"$count": {}}}}]
    )
    assert one == {"_id": {"k": 1}, "n": 100}


@own_parameters
def test_expired_documents_do_not_count(database: Database[Documents]) -> None:
    database.c.create_index("_ts", expireAfterSeconds=10)
    database.c.create_index("a")
    database.client.admin.command({"setParameter": 1, "ttlMonitorEnabled": False})
    try:
        database.c.insert_many([{"a": 1}, {"a": 1, "ttl": -1}])
        database.client.admin.command({"advanceClock": 11})
        for front in ([], [{"$match": {"a": 1}}]):
            assert [result["n"] for result in database.c.aggregate([*front, COUNT])] == [1]
    finally:
        database.client.admin.command({"setParameter": 1, "ttlMonitorEnabled": True})
