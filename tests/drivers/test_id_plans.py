"""Plans by `_id`: which queries have one, under which name explain shows it, and that all of them find the same."""

from typing import Any

import bson
import pytest
from bson import Int64
from pymongo.database import Database

from mongottl.exec.plan.express import is_express
from tests.planning import Bench

Documents = dict[str, Any]


@pytest.fixture
def ten(database: Database[Documents]) -> Database[Documents]:
    database.c.insert_many([{"_id": i, "a": i % 3, "b": {"c": i}} for i in range(10)])
    database.c.insert_one({"_id": "Text"})
    return database


def stages(database: Database[Documents], command: Documents) -> list[str]:
    stage = database.command("explain", command, verbosity="queryPlanner")["queryPlanner"]["winningPlan"]
    names = [stage["stage"]]
    while "inputStage" in stage:
        stage = stage["inputStage"]
        names.append(stage["stage"])
    return names


EXPRESS = ["EXPRESS_IXSCAN"]
STRENGTH_2 = {"locale": "en", "strength": 2}


@pytest.mark.parametrize(
    ("find", "expected"),
    [
        ({}, EXPRESS),
        ({"filter": {"_id": {"$eq": 5}}}, EXPRESS),
        ({"limit": 1}, EXPRESS),
        ({"sort": {"a": 1}}, EXPRESS),
        ({"collation": {"locale": "simple"}}, EXPRESS),
        ({"projection": {"a": 1}}, ["PROJECTION_SIMPLE", *EXPRESS]),
        ({"projection": {"a": 0}}, ["PROJECTION_SIMPLE", *EXPRESS]),
        ({"projection": {"b.c": 1}}, ["PROJECTION_DEFAULT", "IDHACK"]),
        ({"projection": {"s": {"$add": ["$a", 1]}}}, ["PROJECTION_DEFAULT", "IDHACK"]),
        ({"batchSize": 2}, ["IDHACK"]),
        ({"returnKey": True}, ["RETURN_KEY", "IDHACK"]),
        ({"showRecordId": True}, ["FETCH", "IXSCAN"]),
        ({"hint": "_id_"}, ["FETCH", "IXSCAN"]),
        ({"skip": 1}, ["SKIP", "FETCH", "IXSCAN"]),
        ({"collation": STRENGTH_2}, ["FETCH", "IXSCAN"]),
        ({"filter": {"_id": "text"}, "collation": STRENGTH_2}, ["COLLSCAN"]),
        ({"filter": {"_id": {"$in": [5, 6]}}}, ["FETCH", "IXSCAN"]),
        ({"filter": {"_id": None}}, ["FETCH", "IXSCAN"]),
        ({"filter": {"_id": 5, "a": 2}}, ["FETCH", "IXSCAN"]),
    ],
    ids=str,
)
def test_finds(ten: Database[Documents], find: Documents, expected: list[str]) -> None:
    command = {"find": "c", "filter": {"_id": 5}, **find}
    assert stages(ten, command) == expected
    if not {"hint", "skip", "returnKey", "showRecordId"} & find.keys():
        found = ten.command(command)["cursor"]["firstBatch"]
        planned = ten.command({**command, "hint": {"$natural": 1}})["cursor"]["firstBatch"]
        assert found == planned


def test_counts(ten: Database[Documents]) -> None:
    command = {"count": "c", "query": {"_id": 5}}
    assert stages(ten, command) == ["COUNT", "IDHACK"]
    assert ten.command(command)["n"] == 1


def test_statistics_of_an_idhack(ten: Database[Documents]) -> None:
    command = {"find": "c", "filter": {"_id": 5}, "batchSize": 1}
    stats = ten.command("explain", command, verbosity="executionStats")["executionStats"]
    assert (stats["totalKeysExamined"], stats["totalDocsExamined"], stats["nReturned"]) == (1, 1, 1)


@pytest.mark.parametrize(
    "filter",
    [
        {},
        {"_id": 1},
        {"_id": Int64(1)},
        {"_id": None},
        {"_id": {}},
        {"_id": {"a": 1}},
        {"_id": {"$eq": 1}},
        {"_id": {"$eq": None}},
        {"_id": {"$eq": [1]}},
        {"_id": {"$gt": 1}},
        {"_id": {"$in": [1, 2]}},
        {"_id": 1, "a": 1},
        {"a": 1},
    ],
    ids=str,
)
def test_fast_paths_and_plans_agree(filter: Documents) -> None:
    bench = Bench()
    bench.insert([{"_id": 1}])
    assert is_express(bench.collection, bson.encode(filter)) == (bench.plan(filter).winning.stage == "EXPRESS_IXSCAN")
