"""count and distinct: arguments, results, and what is refused."""

import math
from typing import Any

import pytest
from bson import Decimal128, Int64, Timestamp
from pymongo.database import Database

from tests.drivers.refusals import refusal
from tests.on_nodes import own_parameters

Documents = dict[str, Any]


@pytest.fixture
def ten(database: Database[Documents]) -> Database[Documents]:
    database.c.create_index("a", partialFilterExpression={"_id": {"$gte": 4}}, name="partial")
    database.c.create_index("s", sparse=True)
    database.c.insert_many([{"_id": i, "a": i % 3} for i in range(10)])
    return database


@pytest.mark.parametrize(
    ("arguments", "n"),
    [
        ({}, 10),
        ({"query": {}}, 10),
        ({"query": None, "skip": None}, 10),
        ({"query": {"a": 0}}, 4),
        ({"query": {"_id": 3}}, 1),
        ({"query": {"_id": 33}}, 0),
        ({"limit": 3}, 3),
        ({"limit": -3}, 3),
        ({"limit": 0}, 10),
        ({"limit": Decimal128("3.0")}, 3),
        ({"skip": 8}, 2),
        ({"skip": 8, "limit": 1}, 1),
        ({"skip": 80}, 0),
        ({"skip": 1.9}, 9),
        ({"skip": Decimal128("-0.5")}, 10),
        ({"query": {"a": 0}, "skip": 1, "limit": 5}, 3),
        ({"hint": "_id_"}, 10),
        ({"hint": {"$natural": Decimal128("-1")}}, 10),
        ({"hint": {}}, 10),
        ({"hint": "partial"}, 6),
        ({"hint": "s_1"}, 0),
        ({"fields": {"a": 1}}, 10),
        ({"readConcern": {"level": "majority"}}, 10),
    ],
    ids=str,
)
def test_count(ten: Database[Documents], arguments: Documents, n: int) -> None:
    assert ten.command({"count": "c", **arguments})["n"] == n


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"query": 1}, 14),
        ({"limit": "1"}, 2),
        ({"query": {"$expr": {"$lt": ["$a", "$$NOW"]}}}, 51144),
        ({"query": {"$expr": {"$lt": ["$a", "$$CLUSTER_TIME"]}}}, 51144),
        ({"limit": None}, 2),
        ({"limit": 1.5}, 9),
        ({"limit": math.nan}, 9),
        ({"limit": Int64(-(2**63))}, 2),
        ({"skip": -1}, 2),
        ({"skip": Decimal128("-0.6")}, 2),
        ({"skip": "1"}, 14),
        ({"hint": 1}, 9),
        ({"hint": None}, 9),
        ({"hint": "none"}, 2),
        ({"hint": {"$natural": True}}, 2),
        ({"collation": 1}, 14),
        ({"collation": {"locale": "xx"}}, 2),
        ({"readConcern": {"level": "snapshot"}}, 72),
        ({"readConcern": {"atClusterTime": Timestamp(1, 1)}}, 72),
        ({"writeConcern": {}}, 72),
        ({"maxTimeMS": -1}, 2),
        ({"nothing": 1}, 40415),
    ],
    ids=str,
)
def test_count_refuses_invalid_arguments(ten: Database[Documents], arguments: Documents, code: int) -> None:
    assert refusal(ten, {"count": "c", **arguments}) == code


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("a", [None, 1, "x", {"b": 1}, {"b": [2, 3]}]),
        ("a.b", [1, 2, 3]),
        ("list", [1, 2, [3]]),
        ("list.0", [1, 3]),
        ("", ["empty"]),
        ("none", []),
        ("none.0.x", []),
        ("n", [1]),
    ],
)
def test_distinct(database: Database[Documents], key: str, values: list[Any]) -> None:
    database.c.insert_many(
        [
            {"_id": 1, "a": "x", "list": [1, 2, 1], "n": 1},
            {"_id": 2, "a": 1, "list": [[3], 2], "n": 1.0},
            {"_id": 3, "a": None, "list": [], "n": Int64(1)},
            {"_id": 4, "a": [{"b": 1}], "": "empty", "n": Decimal128("1.0")},
            {"_id": 5, "a": {"b": [2, 3]}},
            {"_id": 6},
        ]
    )
    assert database.command({"distinct": "c", "key": key})["values"] == values


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ({"query": {"_id": {"$lt": 2}}}, [0, 1]),
        ({"query": {"_id": 2}}, [2]),
        ({"query": None}, [0, 1, 2]),
        ({"hint": "_id_"}, [0, 1, 2]),
        ({"hint": "s_1"}, []),
        ({"readConcern": {"level": "majority"}}, [0, 1, 2]),
    ],
    ids=str,
)
def test_arguments_of_distinct(ten: Database[Documents], arguments: Documents, values: list[Any]) -> None:
    assert ten.command({"distinct": "c", "key": "a", **arguments})["values"] == values


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, 40414),
        ({"key": None}, 40414),
        ({"key": 1}, 14),
        ({"key": "a\0b"}, 31032),
        ({"key": "a", "query": []}, 14),
        ({"key": "a", "hint": 1}, 9),
        ({"key": "a", "hint": "none"}, 2),
        ({"key": "a", "collation": {"locale": "xx"}}, 2),
        ({"key": "a", "writeConcern": {"w": 1}}, 72),
        ({"key": "a", "maxTimeMS": math.inf}, 9),
        ({"key": "a", "readConcern": {"level": "weak"}}, 2),
        ({"key": "a", "nothing": 1}, 40415),
    ],
    ids=str,
)
def test_distinct_refuses_invalid_arguments(ten: Database[Documents], arguments: Documents, code: int) -> None:
    assert refusal(ten, {"distinct": "c", **arguments}) == code


def test_values_beyond_a_document_s_size(database: Database[Documents]) -> None:
    for i in range(3):
        database.c.insert_one({"_id": i, "x": bytes([i]) * (6 * 1024 * 1024)})
    assert refusal(database, {"distinct": "c", "key": "x"}) == 17217


@pytest.mark.slow
def test_values_beyond_a_reply_s_size_with_their_names(database: Database[Documents]) -> None:
    database.c.insert_many([{"_id": i, "x": f"{i:06}".rjust(1000)} for i in range(16_650)])
    # 16,585 strings of 1,005 bytes, each with type, index and NUL, make 16,772,915 of 16,773,120 bytes.
    assert len(database.c.distinct("x", {"_id": {"$lt": 16_585}})) == 16_585
    assert refusal(database, {"distinct": "c", "key": "x"}) == 17217


def test_no_such_collection(database: Database[Documents]) -> None:
    assert database.command("count", "c")["n"] == 0
    assert database.command("distinct", "c", key="a")["values"] == []
    assert refusal(database, {"count": ""}) == 73
    assert refusal(database, {"distinct": 1, "key": "a"}) == 73


def test_distinct_leaps_over_what_repeats(database: Database[Documents]) -> None:
    database.c.create_index([("a", 1), ("b", 1)])
    database.c.insert_many(
        [{"_id": i, "a": i % 4, "b": i} for i in range(1000)] + [{"_id": -1}, {"_id": -2, "a": None}]
    )

    def scanned(**query: Any) -> tuple[str, int]:
        command = {"explain": {"distinct": "c", "key": "a", **query}, "verbosity": "executionStats"}
        reply = database.command(command)
        plan = reply["queryPlanner"]["winningPlan"]
        return plan.get("inputStage", plan)["stage"], reply["executionStats"]["totalKeysExamined"]

    assert database.c.distinct("a") == [None, 0, 1, 2, 3]
    stage, examined = scanned()
    assert stage == "DISTINCT_SCAN"
    assert examined < 40
    assert database.c.distinct("a", {"a": {"$gt": 1}}) == [2, 3]
    assert scanned(query={"a": {"$gt": 1}})[0] == "DISTINCT_SCAN"
    assert database.c.distinct("a", {"a": {"$gt": 1}, "b": {"$gt": 997}}) == [2, 3]
    assert scanned(query={"a": {"$gt": 1}, "b": {"$gt": 997}})[0] == "DISTINCT_SCAN"
    assert scanned(query={"a": {"$gt": 1}, "b": {"$mod": [2, 1]}})[0] == "IXSCAN"
    assert scanned(hint={"$natural": 1}) == ("COLLSCAN", 0)
    database.c.insert_one({"_id": "array", "a": [7, 8]})
    assert database.c.distinct("a") == [None, 0, 1, 2, 3, 7, 8]
    assert scanned()[0] == "DISTINCT_SCAN"
    # 8 is not within the bounds, but another element of the same array is.
    assert database.c.distinct("a", {"a": {"$in": [1, 7]}}) == [1, 7, 8]
    assert scanned(query={"a": {"$in": [1, 7]}})[0] == "IXSCAN"


@pytest.fixture
def hundred(database: Database[Documents]) -> Database[Documents]:
    database.c.insert_many([{"_id": i, "a": i % 4, "b": i % 3, "c": i} for i in range(1200)])
    database.c.create_index([("a", 1), ("b", -1), ("c", 1)])
    return database


@pytest.mark.parametrize(
    ("query", "key", "expected", "stage", "most"),
    [
        ({"a": 1}, "b", [0, 1, 2], "DISTINCT_SCAN", 20),
        ({"a": {"$in": [1, 3]}}, "b", [0, 1, 2], "DISTINCT_SCAN", 40),
        ({"a": 1, "b": {"$gt": 0}}, "b", [1, 2], "DISTINCT_SCAN", 20),
        ({"a": 1, "b": 2}, "a", [1], "DISTINCT_SCAN", 4),
        ({"a": 1, "c": {"$lt": 100}}, "b", [0, 1, 2], "DISTINCT_SCAN", 20),
        ({"a": {"$gt": 1}, "c": {"$gt": 1190}}, "a", [2, 3], "DISTINCT_SCAN", 20),
        ({"a": {"$gt": 1}, "c": {"$mod": [7, 1]}}, "a", [2, 3], "IXSCAN", 600),
    ],
    ids=str,
)
def test_distinct_behind_components_that_the_filter_binds(
    hundred: Database[Documents], query: Documents, key: str, expected: list[int], stage: str, most: int
) -> None:
    assert hundred.c.distinct(key, query) == expected
    explained = {"explain": {"distinct": "c", "key": key, "query": query}, "verbosity": "executionStats"}
    reply = hundred.command(explained)
    plan = reply["queryPlanner"]["winningPlan"]
    assert plan.get("inputStage", plan)["stage"] == stage
    assert reply["executionStats"]["totalKeysExamined"] <= most


@pytest.mark.parametrize(
    ("pipeline", "expected", "leaps"),
    [
        ([{"$group": {"_id": "$a"}}], [{"_id": i} for i in range(4)], True),
        ([{"$match": {"a": {"$gt": 1}}}, {"$group": {"_id": "$a"}}], [{"_id": 2}, {"_id": 3}], True),
        ([{"$match": {"a": 1}}, {"$group": {"_id": "$b"}}], [{"_id": i} for i in range(3)], True),
        (
            [{"$sort": {"a": 1, "b": -1, "c": 1}}, {"$group": {"_id": "$a", "c": {"$first": "$c"}}}],
            [{"_id": 0, "c": 8}, {"_id": 1, "c": 5}, {"_id": 2, "c": 2}, {"_id": 3, "c": 11}],
            True,
        ),
        ([{"$group": {"_id": "$a", "n": {"$sum": 1}}}], [{"_id": i, "n": 300} for i in range(4)], False),
        (
            [{"$match": {"a": {"$lt": 2}}}, {"$sort": {"c": -1}}, {"$group": {"_id": "$a", "c": {"$first": "$c"}}}],
            [{"_id": 0, "c": 1196}, {"_id": 1, "c": 1197}],
            False,
        ),
        ([{"$limit": 3}, {"$group": {"_id": "$a"}}], [{"_id": i} for i in range(3)], False),
        (
            [{"$sort": {"a": 1, "b": -1, "c": 1}}, {"$group": {"_id": "$a", "c": {"$last": "$c"}}}],
            [{"_id": 0, "c": 1188}, {"_id": 1, "c": 1197}, {"_id": 2, "c": 1194}, {"_id": 3, "c": 1191}],
            True,
        ),
        (
            [{"$sort": {"a": -1, "b": 1, "c": -1}}, {"$group": {"_id": "$a", "c": {"$first": "$c"}}}],
            [{"_id": 0, "c": 1188}, {"_id": 1, "c": 1197}, {"_id": 2, "c": 1194}, {"_id": 3, "c": 1191}],
            True,
        ),
        (
            [{"$sort": {"a": -1, "b": 1, "c": -1}}, {"$group": {"_id": "$a", "c": {"$last": "$c"}}}],
            [{"_id": 0, "c": 8}, {"_id": 1, "c": 5}, {"_id": 2, "c": 2}, {"_id": 3, "c": 11}],
            True,
        ),
        (
            [
                {"$sort": {"a": 1, "b": -1, "c": 1}},
                {"$group": {"_id": "$a", "b": {"$first": "$b"}, "c": {"$last": "$c"}}},
            ],
            [{"_id": i, "b": 2, "c": c} for i, c in enumerate([1188, 1197, 1194, 1191])],
            False,
        ),
    ],
    ids=str,
)
def test_groups_leap_over_what_repeats(
    hundred: Database[Documents], pipeline: list[Documents], expected: list[Documents], leaps: bool
) -> None:
    assert sorted(hundred.c.aggregate(pipeline), key=lambda group: group["_id"]) == expected
    reply = hundred.command({"aggregate": "c", "pipeline": pipeline, "explain": True})
    assert ("DISTINCT_SCAN" in str(reply)) == leaps


def test_groups_keep_documents_without_the_field(hundred: Database[Documents]) -> None:
    hundred.c.insert_one({"_id": "none"})
    assert {group["_id"] for group in hundred.c.aggregate([{"$group": {"_id": "$a"}}])} == {None, 0, 1, 2, 3}


def planned(database: Database[Documents], command: Documents) -> tuple[list[Documents], list[Documents]]:
    """The stages of the plan from the top, and those of the pipeline."""
    reply = database.command("explain", command, verbosity="executionStats")
    rest = reply["stages"][1:] if "stages" in reply else []
    reply = reply["stages"][0]["$cursor"] if rest else reply
    stage = reply["executionStats"]["executionStages"]
    assert reply["queryPlanner"]["winningPlan"]["stage"] == stage["stage"]
    stages = [stage]
    while "inputStage" in stage:
        stage = stage["inputStage"]
        stages.append(stage)
    return stages, rest


@pytest.mark.parametrize(
    ("arguments", "n", "skipped", "keys"),
    [
        ({}, 300, 0, 300),
        ({"skip": 5, "limit": 7}, 7, 5, 12),
        ({"limit": -7}, 7, 0, 7),
        ({"skip": 298, "limit": 7}, 2, 298, 300),
    ],
    ids=str,
)
def test_count_scans_end_at_the_limit(
    hundred: Database[Documents], arguments: Documents, n: int, skipped: int, keys: int
) -> None:
    command = {"count": "c", "query": {"a": 1}, **arguments}
    assert hundred.command(command)["n"] == n
    [count, scan], _ = planned(hundred, command)
    assert (count["stage"], count["nCounted"], count["nSkipped"]) == ("COUNT", n, skipped)
    assert (scan["stage"], scan["keysExamined"]) == ("COUNT_SCAN", keys)


def test_covered_distinct(hundred: Database[Documents]) -> None:
    [projection, scan], _ = planned(hundred, {"distinct": "c", "key": "b", "query": {"a": 1}})
    assert (projection["stage"], projection["transformBy"]) == ("PROJECTION_COVERED", {"_id": 0, "b": 1})
    assert (scan["stage"], scan["isFetching"], scan["keysExamined"] < 20) == ("DISTINCT_SCAN", False, True)
    # The keys of numbers of two types do not tell which of them a document has.
    hundred.c.insert_one({"a": 1, "b": 1.5, "c": 0})
    stages, _ = planned(hundred, {"distinct": "c", "key": "b", "query": {"a": 1}})
    assert [stage["stage"] for stage in stages] == ["FETCH", "DISTINCT_SCAN"]
    assert hundred.c.distinct("b", {"a": 1}) == [0, 1, 1.5, 2]


def test_covered_groups_scan_backward_for_the_last(hundred: Database[Documents]) -> None:
    pipeline: list[Documents] = [
        {"$sort": {"a": 1, "b": -1, "c": 1}},
        {"$group": {"_id": "$a", "last": {"$last": "$c"}}},
    ]
    [projection, scan], rest = planned(hundred, {"aggregate": "c", "pipeline": pipeline, "cursor": {}})
    assert (projection["stage"], projection["transformBy"]) == ("PROJECTION_COVERED", {"_id": 0, "a": 1, "c": 1})
    assert (scan["stage"], scan["direction"]) == ("DISTINCT_SCAN", "backward")
    assert scan["keysExamined"] < 20
    assert scan["indexBounds"] == {"a": ["[MaxKey, MinKey]"], "b": ["[MinKey, MaxKey]"], "c": ["[MaxKey, MinKey]"]}
    assert [stage["$groupByDistinctScan"] for stage in rest] == [{"newRoot": {"_id": "$a", "last": "$c"}}]
    # Not covered: the documents tell more than the keys.
    pipeline[1] = {"$group": {"_id": "$a", "last": {"$last": "$_id"}}}
    [fetch, scan], _ = planned(hundred, {"aggregate": "c", "pipeline": pipeline, "cursor": {}})
    assert (fetch["stage"], scan["stage"], scan["direction"]) == ("FETCH", "DISTINCT_SCAN", "backward")
    assert {group["last"] for group in hundred.c.aggregate(pipeline)} == {1188, 1197, 1194, 1191}


def test_groups_by_dotted_paths(database: Database[Documents]) -> None:
    database.c.insert_many([{"x": {"a": i % 4, "b": i}} for i in range(400)] + [{"x": 5}, {}])
    database.c.create_index([("x.a", 1), ("x.b", 1)])
    pipeline: list[Documents] = [
        {"$sort": {"x.a": 1, "x.b": 1}},
        {"$group": {"_id": "$x.a", "least": {"$first": "$x.b"}, "sum": {"$first": {"$add": ["$x.a", "$x.b"]}}}},
    ]
    command = {"aggregate": "c", "pipeline": pipeline, "cursor": {}}
    [projection, scan], _ = planned(database, command)
    assert (projection["stage"], projection["transformBy"]) == ("PROJECTION_DEFAULT", {"_id": 0, "x.a": 1, "x.b": 1})
    assert (scan["stage"], scan["keysExamined"] < 20) == ("DISTINCT_SCAN", True)
    expected = [{"_id": None, "least": None, "sum": None}, *({"_id": i, "least": i, "sum": 2 * i} for i in range(4))]
    assert list(database.c.aggregate(pipeline)) == expected
    database.c.insert_one({"x": [{"a": 9}]})
    assert planned(database, command)[0][-1]["stage"] != "DISTINCT_SCAN"


def distinct_stage(database: Database[Documents], **distinct: Any) -> tuple[list[str], int, int]:
    """The stages of a distinct from the top, and how many keys and documents it examines."""
    stages, _ = planned(database, {"distinct": "c", **distinct})
    documents = sum(stage.get("docsExamined", 0) for stage in stages)
    return [stage["stage"] for stage in stages], stages[-1].get("keysExamined", 0), documents


COVERED = ["PROJECTION_COVERED", "DISTINCT_SCAN"]
FETCHED = ["FETCH", "DISTINCT_SCAN"]


def test_distinct_values_of_unique_and_sparse_indexes(database: Database[Documents]) -> None:
    database.c.insert_many([{"_id": i, **({"a": i % 3} if i % 2 else {})} for i in range(100)])
    assert distinct_stage(database, key="_id") == (COVERED, 100, 0)
    assert database.c.distinct("_id") == list(range(100))
    database.c.create_index("a", sparse=True)
    assert distinct_stage(database, key="a") == (COVERED, 6, 0)
    assert database.c.distinct("a") == [0, 1, 2]
    # A group of those without the field is not in the index.
    pipeline = [{"$group": {"_id": "$a"}}]
    assert planned(database, {"aggregate": "c", "pipeline": pipeline, "cursor": {}})[0][-1]["stage"] == "COLLSCAN"
    assert {group["_id"] for group in database.c.aggregate(pipeline)} == {None, 0, 1, 2}


def test_distinct_values_by_a_collated_index(database: Database[Documents]) -> None:
    collation = {"locale": "en", "strength": 2}
    database.c.insert_many([{"a": "xX"[i % 2] if i % 3 else "y"} for i in range(100)])
    database.c.create_index("a", collation=collation)
    assert distinct_stage(database, key="a", collation=collation) == (FETCHED, 4, 4)
    assert database.command({"distinct": "c", "key": "a", "collation": collation})["values"] == ["X", "y"]
    assert distinct_stage(database, key="a")[0] == ["COLLSCAN"]
    assert database.c.distinct("a") == ["X", "x", "y"]


@own_parameters
def test_distinct_values_of_what_has_not_expired(database: Database[Documents]) -> None:
    database.c.create_index("_ts", expireAfterSeconds=100)
    database.c.create_index([("a", 1), ("n", 1)])
    database.client.admin.command({"setParameter": 1, "ttlMonitorEnabled": False})
    try:
        short = [{"a": i % 4, "n": i, "ttl": 5} for i in range(100)]
        database.c.insert_many(short + [{"a": i % 3, "n": i} for i in range(100)])
        stages, keys, documents = distinct_stage(database, key="a")
        assert (stages, keys < 20, documents < 20) == (FETCHED, True, True)
        pipeline: list[Documents] = [{"$sort": {"a": 1, "n": 1}}, {"$group": {"_id": "$a", "n": {"$first": "$n"}}}]
        assert database.c.distinct("a") == [0, 1, 2, 3]
        database.client.admin.command({"advanceClock": 6})
        assert distinct_stage(database, key="a")[0] == FETCHED
        assert database.c.distinct("a") == [0, 1, 2]
        database.c.update_many({"n": {"$lt": 50}, "ttl": {"$exists": False}}, {"$set": {"ttl": 1}})
        database.client.admin.command({"advanceClock": 2})
        assert (
            planned(database, {"aggregate": "c", "pipeline": pipeline, "cursor": {}})[0][-1]["stage"] == "DISTINCT_SCAN"
        )
        assert list(database.c.aggregate(pipeline)) == [{"_id": 0, "n": 51}, {"_id": 1, "n": 52}, {"_id": 2, "n": 50}]
    finally:
        database.client.admin.command({"setParameter": 1, "ttlMonitorEnabled": True})


def test_distinct_values_of_arrays(database: Database[Documents]) -> None:
    database.c.insert_many([{"a": i % 3, "t": [i % 4, f"t{i % 2}"], "x": [{"y": i % 5}, {}]} for i in range(300)])
    database.c.insert_many([{"a": 1, "t": []}, {"a": 1}, {"a": 2, "t": [None, [7]], "x": {"y": [8, None]}}])
    database.c.create_index("t")
    database.c.create_index([("a", 1), ("x.y", -1)])
    expected = [None, 0, 1, 2, 3, "t0", "t1", [7]]
    stages, keys, _ = distinct_stage(database, key="t")
    assert (stages, keys < 30) == (FETCHED, True)
    assert database.c.distinct("t") == expected
    stages, keys, _ = distinct_stage(database, key="x.y", query={"a": 2})
    assert stages == FETCHED
    assert database.c.distinct("x.y", {"a": 2}) == [None, 0, 1, 2, 3, 4, 8]
    # Bounds on a path with arrays do not tell which other elements documents have.
    assert distinct_stage(database, key="t", query={"t": "t1"})[0][-1] == "IXSCAN"
    assert database.c.distinct("t", {"t": "t1"}) == [1, 3, "t1"]
    # A document belongs to one group, that of the whole array.
    for key, stage in (("$t", "COLLSCAN"), ("$x.y", "COLLSCAN"), ("$a", "DISTINCT_SCAN")):
        command = {"aggregate": "c", "pipeline": [{"$group": {"_id": key}}], "cursor": {}}
        assert planned(database, command)[0][-1]["stage"] == stage
    assert {group["_id"] for group in database.c.aggregate([{"$group": {"_id": "$a"}}])} == {0, 1, 2}


def test_an_index_that_lost_may_still_give_distinct_values(hundred: Database[Documents]) -> None:
    hundred.c.create_index("a")
    stages, keys, documents = distinct_stage(hundred, key="b", query={"a": 1})
    assert (stages, keys < 20, documents) == (COVERED, True, 0)
    assert hundred.c.distinct("b", {"a": 1}) == [0, 1, 2]


def test_groups_by_an_object_of_one_path(hundred: Database[Documents]) -> None:
    group: Documents = {"$group": {"_id": {"k": "$a"}}}
    command = {"aggregate": "c", "pipeline": [group], "cursor": {}}
    stages, rest = planned(hundred, command)
    assert [stage["stage"] for stage in stages] == COVERED
    assert rest[0]["$groupByDistinctScan"] == {"newRoot": {"_id": {"k": "$a"}}}
    # Without the field the object is empty, which is another group than that of null.
    hundred.c.insert_many([{"a": None}, {"c": 1}, {"c": 2}])
    stages, rest = planned(hundred, command)
    assert [stage["stage"] for stage in stages] == FETCHED
    assert stages[-1]["keysExamined"] < 20
    assert "$group" in rest[0]
    found = [each["_id"] for each in hundred.c.aggregate([group])]
    assert sorted(found, key=repr) == [{"k": i} for i in range(4)] + [{"k": None}, {}]
    two = {"aggregate": "c", "pipeline": [{"$group": {"_id": {"k": "$a", "b": "$b"}}}], "cursor": {}}
    assert planned(hundred, two)[0][-1]["stage"] == "COLLSCAN"


def test_groups_without_a_sort_get_the_documents_of_the_scan(hundred: Database[Documents]) -> None:
    """Of a $first without a $sort, the order of the plan decides: an index that the filter uses, or the collection."""
    for accumulator, direction in (("$first", "forward"), ("$last", "backward")):
        match: Documents = {"$match": {"a": {"$gte": 2}}}
        group: Documents = {"$group": {"_id": "$a", "c": {accumulator: "$c"}}}
        stages, _ = planned(hundred, {"aggregate": "c", "pipeline": [match, group], "cursor": {}})
        assert (stages[-1]["stage"], stages[-1]["direction"]) == ("DISTINCT_SCAN", direction)
        plain = [match, {"$project": {"a": 1, "c": 1}}, group]
        assert planned(hundred, {"aggregate": "c", "pipeline": plain, "cursor": {}})[0][-1]["stage"] == "IXSCAN"
        by_key = {each["_id"]: each["c"] for each in hundred.c.aggregate(plain)}
        assert {each["_id"]: each["c"] for each in hundred.c.aggregate([match, group])} == by_key
        stages, _ = planned(hundred, {"aggregate": "c", "pipeline": [group], "cursor": {}})
        assert stages[-1]["stage"] == "COLLSCAN"


@pytest.mark.parametrize(
    ("group", "direction", "expected"),
    [
        ({"c": {"$top": {"sortBy": {"a": 1, "b": -1, "c": 1}, "output": "$c"}}}, "forward", [8, 5, 2, 11]),
        (
            {"c": {"$bottom": {"sortBy": {"a": 1, "b": -1, "c": 1}, "output": "$c"}}},
            "backward",
            [1188, 1197, 1194, 1191],
        ),
        ({"c": {"$top": {"sortBy": {"b": 1, "c": -1}, "output": "$c"}}}, "backward", [1188, 1197, 1194, 1191]),
        ({"c": {"$bottom": {"sortBy": {"b": 1, "c": -1}, "output": "$c"}}}, "forward", [8, 5, 2, 11]),
        (
            {
                "c": {"$top": {"sortBy": {"b": -1}, "output": {"$add": ["$b", 1]}}},
                "d": {"$top": {"sortBy": {"b": -1}, "output": "$none"}},
            },
            "forward",
            [3, 3, 3, 3],
        ),
    ],
    ids=str,
)
def test_top_and_bottom(hundred: Database[Documents], group: Documents, direction: str, expected: list[int]) -> None:
    pipeline: list[Documents] = [{"$group": {"_id": "$a", **group}}, {"$sort": {"_id": 1}}]
    command = {"aggregate": "c", "pipeline": pipeline, "cursor": {}}
    stages, rest = planned(hundred, command)
    assert (stages[-1]["stage"], stages[-1]["direction"]) == ("DISTINCT_SCAN", direction)
    assert stages[0]["stage"] == ("FETCH" if "d" in group else "PROJECTION_COVERED")
    assert stages[-1]["keysExamined"] < 20
    assert "$groupByDistinctScan" in rest[0]
    found = list(hundred.c.aggregate(pipeline))
    assert [each["c"] for each in found] == expected
    assert found == list(hundred.c.aggregate(pipeline, hint={"$natural": 1}))
    # With a filter, and where the index does not give the order.
    pipeline.insert(0, {"$match": {"a": {"$gte": 2}}})
    assert planned(hundred, command)[0][-1]["stage"] == "DISTINCT_SCAN"
    assert list(hundred.c.aggregate(pipeline)) == found[2:]
    by_c = {"$top": {"sortBy": {"c": 1}, "output": "$c"}}
    for accumulators in ({"c": by_c}, {**group, "e": by_c}, {**group, "e": {"$sum": 1}}):
        command["pipeline"] = [{"$group": {"_id": "$a", **accumulators}}]
        assert planned(hundred, command)[0][-1]["stage"] == "COLLSCAN"
