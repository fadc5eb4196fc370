"""aggregate and explain: the commands' arguments and the shapes of their replies. (Stages have tests of their own.)"""

from typing import Any

import pytest
from bson import Decimal128
from pymongo.database import Database

from tests.drivers.refusals import NOT_NUMERIC, NUMBERS, refusal
from tests.on_nodes import own_statistics

Documents = dict[str, Any]


@pytest.fixture
def ten(database: Database[Documents]) -> Database[Documents]:
    database.c.create_index("a", partialFilterExpression={"_id": {"$gte": 4}}, name="partial")
    database.c.create_index("b")
    database.c.insert_many([{"_id": i, "a": i % 3, "b": -i} for i in range(10)])
    return database


def aggregated(database: Database[Documents], pipeline: list[Documents], **arguments: Any) -> list[Any]:
    command: Documents = {"aggregate": "c", "pipeline": pipeline, "cursor": {}, **arguments}
    reply = database.command(command)
    assert reply["cursor"]["ns"] == f"{database.name}.c"
    return [document["_id"] for document in reply["cursor"]["firstBatch"]]


@pytest.mark.parametrize(
    ("pipeline", "arguments", "expected"),
    [
        ([], {}, [*range(10)]),
        ([{"$match": {"a": 1}}], {}, [1, 4, 7]),
        ([{"$match": {"$expr": {"$eq": ["$a", "$$x"]}}}], {"let": {"x": 2}}, [2, 5, 8]),
        ([{"$match": {"$expr": {"$eq": ["$a", "$$y"]}}}], {"let": {"x": 1, "y": {"$add": ["$$x", 1]}}}, [2, 5, 8]),
        ([{"$sort": {"b": 1}}, {"$limit": 2}], {}, [9, 8]),
        ([{"$skip": 8}], {}, [8, 9]),
        ([], {"hint": "partial"}, [6, 9, 4, 7, 5, 8]),
        ([{"$limit": 2}], {"hint": {"$natural": -1}}, [9, 8]),
        ([{"$group": {"_id": "$a"}}, {"$sort": {"_id": 1}}], {"allowDiskUse": False}, [0, 1, 2]),
        ([{"$limit": 1}], {"bypassDocumentValidation": 1, "collation": {"locale": "simple"}, "let": None}, [0]),
        ([{"$limit": 1}], {"writeConcern": {"w": 1}, "readConcern": {"level": "available"}}, [0]),
        ([{"$limit": 1}], {"cursor": {"batchSize": None}}, [0]),
        ([{"$limit": 1}], {"cursor": {"batchSize": Decimal128("5")}}, [0]),
        ([{"$limit": 1}], {"explain": False}, [0]),
        ([{"$set": {"x": 1}}] * 1000 + [{"$limit": 1}], {}, None),
        ([{"$set": {"x": 1}}] * 999 + [{"$limit": 1}], {}, [0]),
    ],
    ids=lambda value: str(value)[:80],
)
def test_results(
    ten: Database[Documents], pipeline: list[Documents], arguments: Documents, expected: list[Any] | None
) -> None:
    if expected is None:
        assert refusal(ten, {"aggregate": "c", "pipeline": pipeline, "cursor": {}}) == 7749501
    else:
        assert aggregated(ten, pipeline, **arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"cursor": {}}, 40414),
        ({"pipeline": []}, 9),
        ({"pipeline": [], "explain": False}, 9),
        ({"pipeline": None, "cursor": {}}, 14),
        ({"pipeline": {}, "cursor": {}}, 14),
        ({"pipeline": [1], "cursor": {}}, 14),
        ({"pipeline": [{}], "cursor": {}}, 40323),
        ({"pipeline": [{"$nothing": 1}], "cursor": {}}, 40324),
        ({"pipeline": [], "cursor": None}, 14),
        ({"pipeline": [], "cursor": 1}, 14),
        ({"pipeline": [], "cursor": {"batchSize": -1}}, 2),
        ({"pipeline": [], "cursor": {"batchSize": Decimal128("-0.9")}}, 2),
        ({"pipeline": [], "cursor": {"batchSize": "1"}}, 14),
        ({"pipeline": [], "cursor": {"size": 1}}, 40415),
        ({"pipeline": [], "cursor": {"size": 1}, "explain": True}, 40415),
        ({"pipeline": [], "cursor": {}, "allowDiskUse": 1}, 14),
        ({"pipeline": [], "cursor": {}, "allowDiskUse": None}, 14),
        ({"pipeline": [], "cursor": {}, "explain": 1}, 14),
        ({"pipeline": [], "cursor": {}, "explain": None}, 14),
        ({"pipeline": [], "explain": True, "writeConcern": {}}, 9),
        ({"pipeline": [], "cursor": {}, "hint": 1}, 9),
        ({"pipeline": [], "cursor": {}, "hint": "none"}, 2),
        ({"pipeline": [], "cursor": {}, "let": {"x": "$a"}}, 4890500),
        ({"pipeline": [], "cursor": {}, "let": {"x": "$$y", "y": 1}}, 17276),
        ({"pipeline": [], "cursor": {}, "let": {"x": {"$divide": [1, 0]}}}, 2),
        ({"pipeline": [], "cursor": {}, "collation": {"locale": "xx"}}, 2),
        ({"pipeline": [], "cursor": {}, "maxTimeMS": float("nan")}, 9),
        ({"pipeline": [], "cursor": {}, "nothing": 1}, 40415),
    ],
    ids=str,
)
def test_aggregate_refuses_invalid_arguments(ten: Database[Documents], arguments: Documents, code: int) -> None:
    assert refusal(ten, {"aggregate": "c", **arguments}) == code


def test_bypass_document_validation_takes_truth_and_numbers(ten: Database[Documents]) -> None:
    command: Documents = {"aggregate": "c", "pipeline": [{"$limit": 1}], "cursor": {}}
    for value in (*NUMBERS, True, None):
        assert refusal(ten, {**command, "bypassDocumentValidation": value}) == 0, value
    for value in NOT_NUMERIC:
        assert refusal(ten, {**command, "bypassDocumentValidation": value}) == 14, value


@pytest.mark.parametrize(("name", "code"), [("", 73), (2, 2), (True, 73), ({}, 73)])
def test_names_of_collections(ten: Database[Documents], name: Any, code: int) -> None:
    assert refusal(ten, {"aggregate": name, "pipeline": [], "cursor": {}}) == code


def test_a_sort_that_may_not_use_the_disk(database: Database[Documents]) -> None:
    large = "x" * (4 * 1024 * 1024)
    for i in range(30):
        database.c.insert_one({"_id": i, "x": large})
    command: Documents = {"aggregate": "c", "pipeline": [{"$sort": {"y": 1}}, {"$project": {"_id": 1}}], "cursor": {}}
    assert refusal(database, {**command, "allowDiskUse": False}) == 292
    assert len(database.command(command)["cursor"]["firstBatch"]) == 30


EXPLAINED: list[Documents] = [
    {"find": "c", "filter": {"b": 1}, "sort": {"a": 1}, "projection": {"a": 1}},
    {"find": "none"},
    {"count": "c", "query": {"b": 1}},
    {"distinct": "c", "key": "a", "query": {"b": 1}},
    {"aggregate": "c", "pipeline": [{"$match": {"b": 1}}], "cursor": {}},
    {"aggregate": "c", "pipeline": [{"$group": {"_id": "$a"}}], "cursor": {}},
    {"update": "c", "updates": [{"q": {"b": 1}, "u": {"$set": {"a": 1}}}]},
    {"delete": "c", "deletes": [{"q": {"b": 1}, "limit": 1}]},
    {"findAndModify": "c", "query": {"b": 1}, "remove": True},
]


@pytest.mark.parametrize("command", EXPLAINED, ids=str)
@pytest.mark.parametrize("verbosity", ["queryPlanner", "executionStats", "allPlansExecution"])
def test_explain_shows_plan_and_statistics_by_verbosity(
    ten: Database[Documents], command: Documents, verbosity: str
) -> None:
    reply = ten.command({"explain": command, "verbosity": verbosity})
    assert reply["explainVersion"] == "1"
    assert reply["command"] == command
    assert reply["serverInfo"]["version"]
    assert reply["serverParameters"]["internalQueryFrameworkControl"]
    inside = reply["stages"][0]["$cursor"] if "stages" in reply else reply
    for name in ("queryHash", "planCacheShapeHash", "planCacheKey"):
        assert len(inside["queryPlanner"][name]) == 8
    assert ("executionStats" in inside) == (verbosity != "queryPlanner")
    writes = next(iter(command)) in ("update", "delete", "findAndModify")
    assert ("queryShapeHash" in reply) != writes
    assert ten.c.count_documents({}) == 10
    assert ten.c.count_documents({"a": 1}) == 3


@pytest.mark.parametrize(
    ("explained", "code"),
    [
        ({"explain": {"find": "c"}, "verbosity": "much"}, 2),
        ({"explain": {"find": "c"}, "verbosity": 1}, 14),
        ({"explain": 1}, 14),
        ({"explain": {"nothing": 1}}, 59),
        ({"explain": {"ping": 1}}, 20),
        ({"explain": {"insert": "c", "documents": [{}]}}, 20),
        ({"explain": {"find": "c", "nothing": 1}}, 40415),
        ({"explain": {"find": "c", "collation": {"locale": "xx"}}}, 2),
        ({"explain": {"find": "c", "hint": "none"}}, 2),
        ({"explain": {"update": "c", "updates": [{"q": {}, "u": {}}, {"q": {}, "u": {}}]}}, 16),
    ],
    ids=str,
)
def test_explain_of_aggregate_refuses_invalid_arguments(
    ten: Database[Documents], explained: Documents, code: int
) -> None:
    assert refusal(ten, explained) == code


def hashes(database: Database[Documents], command: Documents) -> tuple[str, str]:
    """The hash of the query's shape, and of what the planner sees of it."""
    reply = database.command({"explain": command, "verbosity": "queryPlanner"})
    inside = reply["stages"][0]["$cursor"] if "stages" in reply else reply
    return reply["queryShapeHash"], inside["queryPlanner"]["planCacheShapeHash"]


FINDS: list[tuple[Documents, Documents, bool, bool]] = [
    ({"a": 1}, {"a": {"$eq": 3}}, True, True),
    ({"a": 1}, {"b": 1}, False, False),
    ({"a": 1, "b": 2}, {"$and": [{"a": 5}, {"b": 6}]}, True, True),
    ({"a": 1, "b": 2}, {"b": 1, "a": 2}, False, True),
    ({"a": {"$gt": 1}}, {"a": {"$lt": 1}}, False, False),
    ({"a": {"$in": [1, 2]}}, {"a": {"$in": [3, 4, 5]}}, True, True),
    ({"a": {"$in": [1]}}, {"a": {"$in": [1, 2]}}, True, False),
    ({"a": {"$all": [1]}}, {"a": {"$all": [1, 2]}}, False, False),
    ({"a": {"$type": "int"}}, {"a": {"$type": ["int"]}}, True, True),
    ({"a": {"$type": "int"}}, {"a": {"$type": "string"}}, False, True),
    ({"a": {"$exists": True}}, {"a": {"$exists": False}}, False, False),
    ({"$expr": {"$gt": ["$a", 1]}}, {"$expr": {"$gt": ["$a", 2]}}, True, True),
    ({"$expr": {"$gt": ["$a", 1]}}, {"$expr": {"$lt": ["$a", 2]}}, False, True),
    ({"a": {"$elemMatch": {"$gt": 1}}}, {"a": {"$elemMatch": {"$lt": 1}}}, False, False),
    ({"a": {"$elemMatch": {"b": 1}}}, {"a": {"$elemMatch": {"b": 2}}}, True, True),
    ({"a": {"$not": {"$gt": 1}}}, {"a": {"$not": {"$gt": 5}}}, True, True),
    ({"$or": [{"a": 1}, {"b": 1}]}, {"$nor": [{"a": 1}, {"b": 1}]}, False, False),
    ({"$jsonSchema": {"required": ["a"]}}, {"$jsonSchema": {"required": ["b"]}}, False, False),
]


@pytest.mark.parametrize(("one", "other", "query", "plan"), FINDS, ids=str)
def test_shapes_of_filters(ten: Database[Documents], one: Documents, other: Documents, query: bool, plan: bool) -> None:
    first, second = hashes(ten, {"find": "c", "filter": one}), hashes(ten, {"find": "c", "filter": other})
    assert (first[0] == second[0], first[1] == second[1]) == (query, plan)


@pytest.mark.parametrize(
    ("stage", "plan"),
    [
        ({"$group": {"_id": "$b"}}, False),
        ({"$sort": {"a": 1}}, False),
        ({"$limit": 3}, True),
        ({"$set": {"x": 1}}, True),
    ],
    ids=str,
)
def test_shapes_of_pipelines(ten: Database[Documents], stage: Documents, plan: bool) -> None:
    match: Documents = {"$match": {"a": {"$gt": 0}}}
    alone = hashes(ten, {"aggregate": "c", "pipeline": [match], "cursor": {}})
    both = hashes(ten, {"aggregate": "c", "pipeline": [match, stage], "cursor": {}})
    assert (alone[0] == both[0], alone[1] == both[1]) == (False, plan)


@pytest.mark.parametrize(
    ("collection", "stage", "level", "code"),
    [
        ("c", {"$indexStats": {}}, "majority", 0),
        ("c", {"$planCacheStats": {}}, "local", 0),
        ("c", {"$planCacheStats": {}}, "available", 72),
        ("c", {"$planCacheStats": {}}, "snapshot", 72),
        (1, {"$listLocalSessions": {}}, "local", 0),
        (1, {"$listLocalSessions": {}}, "majority", 72),
        (1, {"$listLocalSessions": {}}, "linearizable", 72),
        ("c", {"$out": "o"}, "majority", 0),
        ("c", {"$out": "o"}, "linearizable", 72),
        ("c", {"$merge": {"into": "o"}}, "linearizable", 72),
        ("c", {"$out": "o"}, "snapshot", 72),
        ("c", {"$merge": {"into": "o"}}, "snapshot", 72),
        ("c", {"$match": {}}, "linearizable", 0),
    ],
    ids=str,
)
def test_read_concerns_of_stages(
    database: Database[Documents], collection: str | int, stage: Documents, level: str, code: int
) -> None:
    database.c.insert_one({"a": 1})
    command = {"aggregate": collection, "pipeline": [stage], "cursor": {}, "readConcern": {"level": level}}
    assert refusal(database, command) == code


@own_statistics
def test_a_correlated_pipeline_uses_an_index(database: Database[Documents]) -> None:
    database.c.insert_many([{"_id": i, "k": i} for i in range(10)])
    database.o.insert_many([{"_id": i, "k": i % 5, "v": i} for i in range(50)])
    database.o.create_index("k")
    inner = [{"$match": {"$expr": {"$eq": ["$k", "$$key"]}, "v": {"$gt": 20}}}, {"$project": {"v": 1}}]
    joined = {"$lookup": {"from": "o", "let": {"key": "$k"}, "pipeline": inner, "as": "j"}}
    found = list(database.c.aggregate([joined, {"$set": {"j": {"$size": "$j"}}}]))
    assert [document["j"] for document in found] == [5, 6, 6, 6, 6, 0, 0, 0, 0, 0]
    [stats] = database.o.aggregate([{"$indexStats": {}}, {"$match": {"name": "k_1"}}])
    assert stats["accesses"]["ops"] == 10
