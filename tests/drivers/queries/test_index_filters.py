"""Index filters, the plan cache and query settings."""

from typing import Any

import pytest
from bson import Int64
from pymongo.database import Database

from tests.drivers.refusals import refusal
from tests.on_nodes import own_statistics

Documents = dict[str, Any]


@pytest.fixture
def indexed(database: Database[Documents]) -> Database[Documents]:
    database.c.insert_many([{"_id": i, "a": i, "b": i % 5, "c": i % 3} for i in range(10)])
    database.c.create_index([("a", 1), ("b", 1)])
    database.c.create_index([("a", 1), ("c", 1)])
    database.c.create_index("b")
    return database


def planner_of(database: Database[Documents], **find: Any) -> Documents:
    command = {"explain": {"find": "c", **find}, "verbosity": "queryPlanner"}
    planner: Documents = database.command(command)["queryPlanner"]
    return planner


def index_of(stage: Documents) -> str | None:
    while "inputStage" in stage and "indexName" not in stage:
        stage = stage["inputStage"]
    name: str | None = stage.get("indexName")
    return name


@pytest.mark.parametrize(
    ("indexes", "hint", "expected"),
    [
        ([{"a": 1, "b": 1}], None, "a_1_b_1"),
        ([{"a": 1, "c": 1}], None, "a_1_c_1"),
        (["a_1_c_1"], None, "a_1_c_1"),
        ([{"a": 1, "c": 1}], {"a": 1, "b": 1}, "a_1_c_1"),
        ([{"none": 1}], None, None),
        (["none"], "a_1_b_1", None),
        ([{"none": 1}, "a_1_b_1"], {"$natural": 1}, "a_1_b_1"),
    ],
    ids=str,
)
def test_a_filter_confines_plans(
    indexed: Database[Documents], indexes: list[Any], hint: Any, expected: str | None
) -> None:
    indexed.command({"planCacheSetFilter": "c", "query": {"a": 1}, "indexes": indexes})
    options = {} if hint is None else {"hint": hint}
    planner = planner_of(indexed, filter={"a": 7}, **options)
    assert planner["indexFilterSet"] is True
    assert index_of(planner["winningPlan"]) == expected
    assert [found["_id"] for found in indexed.c.find({"a": 7}, **options)] == [7]
    assert indexed.c.count_documents({"a": 7}) == 1
    assert planner_of(indexed, filter={"a": 1, "b": 1})["indexFilterSet"] is False
    assert planner_of(indexed, filter={"a": 1}, sort={"a": 1})["indexFilterSet"] is False


def test_filters_by_shape(indexed: Database[Documents]) -> None:
    def set_filter(**shape: Any) -> None:
        indexed.command({"planCacheSetFilter": "c", **shape})

    set_filter(query={"a": 1}, indexes=[{"a": 1}])
    set_filter(query={"a": 999}, indexes=["b_1"])
    set_filter(query={"a": 1}, sort={"a": 1}, indexes=[{"a": 1}])
    set_filter(query={"a": 1}, sort={"a": -1}, projection={"b": 1}, indexes=[{"a": 1}])
    assert indexed.command({"planCacheListFilters": "c"})["filters"] == [
        {"query": {"a": 999}, "sort": {}, "projection": {}, "indexes": ["b_1"]},
        {"query": {"a": 1}, "sort": {"a": 1}, "projection": {}, "indexes": [{"a": 1}]},
        {"query": {"a": 1}, "sort": {"a": -1}, "projection": {"b": 1}, "indexes": [{"a": 1}]},
    ]
    indexed.c.drop_index("b_1")
    indexed.command({"planCacheClearFilters": "c", "query": {"a": 5}, "sort": {"a": 1}})
    indexed.command({"planCacheClearFilters": "c", "query": {"none": 5}})
    assert len(indexed.command({"planCacheListFilters": "c"})["filters"]) == 2
    indexed.command({"planCacheClearFilters": "c"})
    assert indexed.command({"planCacheListFilters": "c"})["filters"] == []


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"planCacheSetFilter": "none", "query": {}, "indexes": ["a"]}, 2),
        ({"planCacheSetFilter": 1, "query": {}, "indexes": ["a"]}, 73),
        ({"planCacheSetFilter": "", "query": {}, "indexes": ["a"]}, 73),
        ({"planCacheSetFilter": "c", "indexes": ["a"]}, 2),
        ({"planCacheSetFilter": "c", "query": None, "indexes": ["a"]}, 2),
        ({"planCacheSetFilter": "c", "query": {"a": {"$what": 1}}, "indexes": ["a"]}, 2),
        ({"planCacheSetFilter": "c", "query": {}}, 2),
        ({"planCacheSetFilter": "c", "query": {}, "indexes": []}, 2),
        ({"planCacheSetFilter": "c", "query": {}, "indexes": [1]}, 2),
        ({"planCacheSetFilter": "c", "query": {}, "indexes": [{}]}, 2),
        ({"planCacheSetFilter": "c", "query": {}, "sort": None, "indexes": ["a"]}, 2),
        ({"planCacheSetFilter": "c", "query": {}, "projection": "a", "indexes": ["a"]}, 2),
        ({"planCacheSetFilter": "c", "query": {}, "collation": {}, "indexes": ["a"]}, 2),
        ({"planCacheSetFilter": "c", "query": {}, "collation": {"strength": 1}, "indexes": ["a"]}, 40414),
        ({"planCacheClear": "c", "sort": {"a": 1}}, 2),
        ({"planCacheClear": "c", "query": 1}, 2),
        ({"planCacheClearFilters": True}, 73),
        ({"planCacheListFilters": None}, 73),
    ],
    ids=str,
)
def test_refusals(indexed: Database[Documents], command: Documents, code: int) -> None:
    assert refusal(indexed, command) == code


@pytest.mark.parametrize("name", ["planCacheClear", "planCacheClearFilters", "planCacheListFilters"])
def test_without_collection(database: Database[Documents], name: str) -> None:
    assert database.command({name: "none", "query": 1, "foo": "bar"})["ok"] == 1.0


def cached(database: Database[Documents]) -> list[Documents]:
    return list(database.c.aggregate([{"$planCacheStats": {}}]))


@own_statistics
def test_winners_are_remembered(indexed: Database[Documents]) -> None:
    list(indexed.c.find({"c": 1}))  # no index comes into question
    assert cached(indexed) == []
    for expected in (False, True, True):
        list(indexed.c.find({"a": 5, "b": 0}, sort=[("a", 1)]))
        [entry] = cached(indexed)
        assert entry["isActive"] is expected
    assert entry["createdFromQuery"]["sort"] == {"a": 1}
    assert index_of(entry["cachedPlan"]) == "a_1_b_1"
    assert isinstance(entry["works"], Int64)
    assert isinstance(entry["estimatedSizeBytes"], Int64)
    explained = planner_of(indexed, filter={"a": 5, "b": 0}, sort={"a": 1})
    assert entry["planCacheShapeHash"] == explained["planCacheShapeHash"]
    assert entry["planCacheKey"] == explained["planCacheKey"]


@own_statistics
def test_plans_are_forgotten(indexed: Database[Documents]) -> None:
    def warm() -> None:
        list(indexed.c.find({"a": 5, "b": 0}))
        list(indexed.c.find({"a": {"$gt": 5}, "b": 0}))
        assert len(cached(indexed)) == 2

    warm()
    indexed.command({"planCacheClear": "c", "query": {"a": 9, "b": 9}})
    assert len(cached(indexed)) == 1
    warm()
    indexed.command({"planCacheClear": "c"})
    assert cached(indexed) == []
    warm()
    indexed.c.create_index("c")
    assert cached(indexed) == []


@own_statistics
def test_a_remembered_plan_gives_way_when_it_has_become_dear(database: Database[Documents]) -> None:
    database.c.create_index("a")
    database.c.create_index("b")
    database.c.insert_many([{"a": i % 2, "b": i} for i in range(300)])
    for _ in range(3):
        list(database.c.find({"a": 1, "b": 7}))
    [entry] = cached(database)
    assert (index_of(entry["cachedPlan"]), entry["isActive"]) == ("b_1", True)
    database.c.insert_many([{"a": 7, "b": 1000} for i in range(300)])
    assert len(list(database.c.find({"a": 1, "b": 1000}))) == 0
    assert len(list(database.c.find({"a": 3, "b": 1000}))) == 0
    [entry] = cached(database)
    assert index_of(entry["cachedPlan"]) == "a_1"


HINTS = {"indexHints": [{"ns": {"db": "d", "coll": "c"}, "allowedIndexes": ["a_1_c_1", {"b": 1}]}]}


def shape(database: Database[Documents], **find: Any) -> Documents:
    return {"find": "c", **find, "$db": database.name}


def set_settings(database: Database[Documents], query: Any, settings: Documents) -> Documents:
    reply: Documents = database.client.admin.command({"setQuerySettings": query, "settings": settings})
    return reply


def laid_down(database: Database[Documents]) -> list[Documents]:
    return list(database.client.admin.aggregate([{"$querySettings": {}}]))


def test_query_settings(indexed: Database[Documents]) -> None:
    query = shape(indexed, filter={"a": 1})
    hints = [{"ns": {"db": indexed.name, "coll": "c"}, "allowedIndexes": ["a_1_c_1"]}]
    reply = set_settings(indexed, query, {"indexHints": hints, "comment": {"why": "test"}})
    assert reply["settings"] == {"indexHints": hints, "comment": {"why": "test"}}
    assert reply["representativeQuery"] == query
    explained = indexed.command({"explain": {"find": "c", "filter": {"a": 4}}, "verbosity": "queryPlanner"})
    assert explained["queryShapeHash"] == reply["queryShapeHash"]
    assert index_of(explained["queryPlanner"]["winningPlan"]) == "a_1_c_1"
    assert planner_of(indexed, filter={"a": 4}, hint="a_1_b_1", limit=1)["indexFilterSet"] is False

    updated = set_settings(indexed, reply["queryShapeHash"], {"queryFramework": "classic"})
    assert updated["settings"] == {"indexHints": hints, "queryFramework": "classic", "comment": {"why": "test"}}
    assert laid_down(indexed) == [
        {k: v for k, v in updated.items() if k in ("queryShapeHash", "representativeQuery", "settings")}
    ]
    [debug] = indexed.client.admin.aggregate([{"$querySettings": {"showDebugQueryShape": True}}])
    assert debug["debugQueryShape"] == {
        "cmdNs": {"db": indexed.name, "coll": "c"},
        "command": "find",
        "filter": {"a": {"$eq": "?number"}},
    }

    admin = indexed.client.admin
    admin.command({"removeQuerySettings": shape(indexed, filter={"a": 1}, sort={"a": 1})})
    assert len(laid_down(indexed)) == 1
    for _ in range(2):
        admin.command({"removeQuerySettings": shape(indexed, filter={"a": 999})})
        assert laid_down(indexed) == []


@pytest.mark.parametrize(
    ("query", "rejected"),
    [
        ({"find": "c", "filter": {"a": 1}}, {"find": "c", "filter": {"a": 2}}),
        ({"distinct": "c", "key": "a", "query": {"a": 1}}, {"distinct": "c", "key": "a", "query": {"a": 2}}),
        (
            {"aggregate": "c", "pipeline": [{"$match": {"a": 1}}]},
            {"aggregate": "c", "pipeline": [{"$match": {"a": 2}}], "cursor": {}},
        ),
    ],
    ids=str,
)
def test_rejected_queries(indexed: Database[Documents], query: Documents, rejected: Documents) -> None:
    query = {**query, "$db": indexed.name}
    set_settings(indexed, query, {"reject": True})
    assert refusal(indexed, rejected) == 411
    assert indexed.c.find_one({"b": 1}) is not None
    set_settings(indexed, query, {"reject": False, "queryFramework": "sbe"})
    assert indexed.command(rejected)["ok"] == 1.0
    indexed.client.admin.command({"removeQuerySettings": query})


@pytest.mark.parametrize(
    ("query", "settings", "code"),
    [
        ({"find": "c", "$db": "d"}, {}, 8727502),
        ({"find": "c", "$db": "d"}, {"reject": False}, 7746604),
        ({"find": "c", "$db": "d"}, {"indexHints": []}, 7746604),
        ({"find": "c", "$db": "d"}, {"reject": 1}, 14),
        ({"find": "c", "$db": "d"}, {"queryFramework": "fast"}, 2),
        ({"find": "c", "$db": "d"}, {"what": 1}, 40415),
        ({"find": "c", "$db": "d"}, {"indexHints": {"ns": {"coll": "c"}, "allowedIndexes": ["a"]}}, 8727500),
        ({"find": "c", "$db": "d"}, {"indexHints": {"ns": {"db": "d"}, "allowedIndexes": ["a"]}}, 8727501),
        ({"find": "c", "$db": "d"}, {"indexHints": {"ns": {"db": "d", "coll": "c"}}}, 40414),
        ({"find": "c"}, HINTS, 40414),
        ({"find": "c", "$db": "admin"}, HINTS, 8584900),
        ({"find": "c", "filter": {"_id": 1}, "$db": "d"}, HINTS, 7746606),
        ({"insert": "c", "documents": [], "$db": "d"}, HINTS, 7746402),
        ({"find": "c", "$db": "d"}, {"reject": None}, 14),
        ({"find": "c", "$db": "d"}, {"indexHints": {"ns": {"db": "d", "coll": "c"}, "allowedIndexes": [1]}}, 9),
        ({"find": "c", "filter": {"a": {"$what": 1}}, "$db": "d"}, HINTS, 2),
        ({"distinct": "c", "key": "a", "query": {"$what": 1}, "$db": "d"}, HINTS, 2),
        ({"aggregate": "c", "pipeline": [{"$what": 1}], "$db": "d"}, HINTS, 40324),
        ("12", HINTS, 16),
        ("123", HINTS, 2),
        ("x" * 64, HINTS, 2),
        (1, HINTS, 14),
    ],
    ids=str,
)
def test_settings_refused(database: Database[Documents], query: Any, settings: Documents, code: int) -> None:
    command = {"setQuerySettings": query, "settings": settings}
    assert refusal(database.client.admin, command) == code
