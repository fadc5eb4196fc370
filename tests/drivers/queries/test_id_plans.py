"""Plans by `_id`: which queries have one, under which name explain shows it, and that all of them find the same."""

from typing import Any

import bson
import pytest
from bson import Int64
from pymongo.database import Database

from mongottl.exec.plan.express import express_key
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
        ({"projection": {"a": 1}}, EXPRESS),
        ({"projection": {"a": 0}}, EXPRESS),
        ({"projection": {"_id": 1}}, EXPRESS),
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


SET = {"$set": {"a": 7}}
WRITTEN = [5]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["EXPRESS_UPDATE", *EXPRESS]),
        ({"q": {"_id": {"$eq": 5}}}, ["EXPRESS_UPDATE", *EXPRESS]),
        ({"u": {"a": 7}}, ["EXPRESS_UPDATE", *EXPRESS]),
        ({"u": [{"$set": {"a": 7}}]}, ["EXPRESS_UPDATE", *EXPRESS]),
        ({"collation": {"locale": "simple"}}, ["EXPRESS_UPDATE", *EXPRESS]),
        ({"multi": True}, ["UPDATE", "IDHACK"]),
        ({"upsert": True}, ["UPDATE", "IDHACK"]),
        ({"sort": {"a": 1}}, ["UPDATE", "IDHACK"]),
        ({"hint": "_id_"}, ["UPDATE", "FETCH", "IXSCAN"]),
        ({"collation": STRENGTH_2}, ["UPDATE", "FETCH", "IXSCAN"]),
        ({"q": {"_id": 5, "a": 2}}, ["UPDATE", "FETCH", "IXSCAN"]),
    ],
    ids=str,
)
def test_updates(ten: Database[Documents], options: Documents, expected: list[str]) -> None:
    command = {"update": "c", "updates": [{"q": {"_id": 5}, "u": SET, **options}]}
    assert stages(ten, command) == expected
    ten.command(command)
    assert [document["_id"] for document in ten.c.find({"a": 7})] == WRITTEN


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["EXPRESS_DELETE", *EXPRESS]),
        ({"limit": 0}, ["DELETE", "IDHACK"]),
        ({"hint": "_id_"}, ["DELETE", "FETCH", "IXSCAN"]),
        ({"collation": STRENGTH_2}, ["DELETE", "FETCH", "IXSCAN"]),
        ({"q": {"_id": 5, "a": 2}}, ["DELETE", "FETCH", "IXSCAN"]),
    ],
    ids=str,
)
def test_deletes(ten: Database[Documents], options: Documents, expected: list[str]) -> None:
    command = {"delete": "c", "deletes": [{"q": {"_id": 5}, "limit": 1, **options}]}
    assert stages(ten, command) == expected
    ten.command(command)
    assert ten.c.count_documents({"_id": 5}) == 0
    assert ten.c.count_documents({}) == 10


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"update": SET}, ["EXPRESS_UPDATE", *EXPRESS]),
        ({"remove": True}, ["EXPRESS_DELETE", *EXPRESS]),
        ({"update": SET, "upsert": True}, ["UPDATE", "IDHACK"]),
        ({"update": SET, "sort": {"a": 1}}, ["UPDATE", "IDHACK"]),
        ({"update": SET, "fields": {"a": 1}}, ["PROJECTION_SIMPLE", "UPDATE", "IDHACK"]),
        ({"update": SET, "hint": "_id_"}, ["UPDATE", "FETCH", "IXSCAN"]),
    ],
    ids=str,
)
def test_find_and_modify(ten: Database[Documents], options: Documents, expected: list[str]) -> None:
    assert stages(ten, {"findAndModify": "c", "query": {"_id": 5}, **options}) == expected


def test_statistics_of_an_express_update(ten: Database[Documents]) -> None:
    command = {"update": "c", "updates": [{"q": {"_id": 5}, "u": SET}]}
    stats = ten.command("explain", command, verbosity="executionStats")["executionStats"]
    assert (stats["totalKeysExamined"], stats["totalDocsExamined"], stats["nReturned"]) == (1, 1, 0)
    stage = stats["executionStages"]
    assert (stage["stage"], stage["nMatched"], stage["nWouldModify"]) == ("EXPRESS_UPDATE", 1, 1)
    assert stage["inputStage"]["stage"] == "EXPRESS_IXSCAN"
    assert ten.c.find_one({"_id": 5})["a"] == 2  # type: ignore[index]


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
    key = express_key(bench.collection, bson.encode(filter))
    assert (key is not None) == (bench.plan(filter).winning.stage == "EXPRESS_IXSCAN")
