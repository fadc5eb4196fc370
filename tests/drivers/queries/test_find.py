"""find: its arguments, what it refuses, and what it returns."""

from typing import Any

import pytest
from bson import Decimal128, Int64, Timestamp
from pymongo.database import Database

from tests.drivers.refusals import NOT_NUMERIC, NUMBERS, refusal

Documents = dict[str, Any]


@pytest.fixture
def ten(database: Database[Documents]) -> Database[Documents]:
    database.c.insert_many([{"_id": i, "a": i % 3, "b": -i} for i in range(10)])
    return database


def found(database: Database[Documents], **arguments: Any) -> list[Any]:
    reply = database.command({"find": "c", **arguments})
    assert reply["cursor"]["ns"] == f"{database.name}.c"
    assert reply["cursor"]["id"] == 0
    return [document["_id"] for document in reply["cursor"]["firstBatch"]]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, [*range(10)]),
        ({"limit": 3}, [0, 1, 2]),
        ({"limit": 3.9}, [0, 1, 2]),
        ({"limit": Decimal128("3.5")}, [0, 1, 2, 3]),  # half to even
        ({"limit": float("nan"), "skip": 8}, [8, 9]),
        ({"limit": None, "skip": 8}, [8, 9]),
        ({"skip": 8}, [8, 9]),
        ({"skip": Int64(8), "limit": 1}, [8]),
        ({"skip": 11}, []),
        ({"sort": {"b": 1}, "limit": 2}, [9, 8]),
        ({"sort": {"a": -1, "b": 1}, "limit": 4}, [8, 5, 2, 7]),
        ({"sort": {"$natural": -1}, "limit": 2}, [9, 8]),
        ({"sort": {"$natural": Decimal128("-1")}, "limit": 1}, [9]),
        ({"hint": {"$natural": -1}, "limit": 2}, [9, 8]),
        ({"hint": "_id_", "limit": 2}, [0, 1]),
        ({"hint": {"_id": 1}, "filter": {"a": 1}}, [1, 4, 7]),
        ({"filter": {"_id": 3}}, [3]),
        ({"filter": {"_id": 3}, "skip": 1}, []),
        ({"filter": {"_id": {"$eq": 3.0}}}, [3]),
        ({"filter": {"_id": {"$in": [3, 77, 1]}}}, [1, 3]),
        ({"filter": {"$expr": {"$eq": ["$_id", "$$x"]}}, "let": {"x": 4}}, [4]),
        ({"sort": None, "projection": None, "limit": 1}, [0]),
        ({"singleBatch": True, "batchSize": 2}, [0, 1]),
        ({"batchSize": 100, "limit": 2}, [0, 1]),
        ({"collation": {}, "limit": 1}, [0]),
        ({"collation": {"locale": "simple"}, "limit": 1}, [0]),
        ({"readConcern": {"level": "majority"}, "limit": 1}, [0]),
        ({"readConcern": {"level": None}, "limit": 1}, [0]),
        ({"readConcern": {"afterClusterTime": Timestamp(1, 1)}, "limit": 1}, [0]),
        ({"maxTimeMS": 10_000, "comment": {"any": "thing"}, "limit": 1}, [0]),
        ({"allowPartialResults": 1, "noCursorTimeout": 0, "limit": 1}, [0]),
    ],
    ids=str,
)
def test_find_returns_the_matching_documents(
    ten: Database[Documents], arguments: Documents, expected: list[int]
) -> None:
    assert found(ten, **arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"limit": -1}, 2),
        ({"skip": -1}, 2),
        ({"skip": Decimal128("-0.6")}, 2),
        ({"batchSize": -1}, 2),
        ({"batchSize": float("-inf")}, 2),
        ({"limit": "1"}, 14),
        ({"limit": True}, 14),
        ({"filter": 1}, 14),
        ({"filter": None}, 14),
        ({"filter": []}, 14),
        ({"projection": "a"}, 14),
        ({"sort": "a"}, 14),
        ({"sort": {"a": 2}}, 15975),
        ({"sort": {"a": "up"}}, 15974),
        ({"sort": {"$natural": 1, "a": 1}}, 2),
        ({"sort": {"$natural": True}}, 2),
        ({"singleBatch": "yes"}, 14),
        ({"hint": 1}, 9),
        ({"hint": None}, 9),
        ({"hint": "none_1"}, 2),
        ({"hint": {"$natural": True}}, 2),
        ({"let": {"x": "$a"}}, 4890500),
        ({"let": {"x": "$$NOW"}}, 51144),
        ({"let": {"NOW": 1}}, 4738901),
        ({"let": {"Upper": 1}}, 9),
        ({"let": 1}, 14),
        ({"collation": {"strength": 1}}, 40414),
        ({"collation": {"locale": 1}}, 14),
        ({"collation": {"locale": "en", "strength": 6}}, 2),
        ({"collation": {"locale": "en", "caseLevel": 1}}, 14),
        ({"collation": {"locale": "en", "caseFirst": "both"}}, 2),
        ({"collation": {"locale": "en", "size": 1}}, 40415),
        ({"collation": {"locale": "xx"}}, 2),
        ({"collation": {"locale": "en", "strength": 1, "backwards": True}}, 2),
        ({"readConcern": "local"}, 14),
        ({"readConcern": {"level": 1}}, 14),
        ({"readConcern": {"level": "strong"}}, 2),
        ({"readConcern": {"nothing": 1}}, 40415),
        ({"readConcern": {"afterClusterTime": 1}}, 14),
        ({"readConcern": {"afterClusterTime": Timestamp(0, 0)}}, 72),
        ({"readConcern": {"atClusterTime": Timestamp(1, 1)}}, 72),
        ({"readConcern": {"level": "available", "afterClusterTime": Timestamp(1, 1)}}, 72),
        ({"readConcern": {"provenance": "nowhere"}}, 2),
        ({"writeConcern": {"w": 1}}, 72),
        ({"maxTimeMS": -1}, 2),
        ({"maxTimeMS": 1.5}, 9),
        ({"maxTimeMS": float("inf")}, 9),
        ({"maxTimeMS": 2**31}, 2),
        ({"maxTimeMS": "1"}, 14),
        ({"tailable": True}, 2),
        ({"awaitData": True}, 9),
        ({"nothing": 1}, 40415),
        ({"filter": {"$nothing": 1}}, 2),
    ],
    ids=str,
)
def test_find_refuses_invalid_arguments(ten: Database[Documents], arguments: Documents, code: int) -> None:
    assert refusal(ten, {"find": "c", **arguments}) == code


@pytest.mark.parametrize("option", ["singleBatch", "noCursorTimeout", "allowDiskUse", "allowPartialResults"])
def test_options_take_truth_and_numbers(ten: Database[Documents], option: str) -> None:
    for value in (*NUMBERS, True, False, None):
        assert refusal(ten, {"find": "c", option: value}) == 0, value
    for value in NOT_NUMERIC:
        assert refusal(ten, {"find": "c", option: value}) == 14, value


@pytest.mark.parametrize(("name", "code"), [("", 73), (".x", 73), (1, 73), (None, 73)])
def test_names_of_collections(ten: Database[Documents], name: Any, code: int) -> None:
    assert refusal(ten, {"find": name}) == code


def test_no_such_collection(database: Database[Documents]) -> None:
    assert found(database, filter={"a": 1}) == []
    assert found(database, tailable=True) == []


@pytest.mark.parametrize(
    ("projection", "expected"),
    [
        ({"a": 1}, {"_id": 1, "a": 1}),
        ({"a": 0}, {"_id": 1, "list": [{"k": 1}, {"k": 2}]}),
        ({"_id": 0, "a": 1}, {"a": 1}),
        ({"list": {"$slice": 1}, "a": 1}, {"_id": 1, "a": 1, "list": [{"k": 1}]}),
        ({"list.$": 1}, {"_id": 1, "list": [{"k": 2}]}),
        ({"twice": {"$add": ["$a", "$a"]}}, {"_id": 1, "twice": 2}),
    ],
    ids=str,
)
def test_projections(database: Database[Documents], projection: Documents, expected: Documents) -> None:
    database.c.insert_one({"_id": 1, "a": 1, "list": [{"k": 1}, {"k": 2}]})
    assert database.c.find_one({"list.k": 2}, projection) == expected
