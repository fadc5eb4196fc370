"""The fields of explain, and its statistics after an execution."""

from typing import Any

import bson
import pytest

from mongottl.document.build import encode
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.results.explain import count_wrapper, delete_wrapper, projection_wrapper, update_wrapper
from mongottl.exec.results.explain_size import fitted
from tests.planning import Bench
from tests.running import Running


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.index([("a", 1)])
    bench.index([("b", -1), ("c", 1)])
    bench.insert([{"_id": i, "a": i % 5, "b": i % 3, "c": i, "d": i} for i in range(100)])
    return bench


def test_query_planner(bench: Bench) -> None:
    reply = bench.explain(bench.plan({"a": 2, "d": {"$gt": 1}}))
    key = bench.collection.indexes[1].descriptor.key
    assert reply["explainVersion"] == "1"
    assert "executionStats" not in reply
    assert reply["queryPlanner"] == {
        "namespace": "db.c",
        "parsedQuery": {"$and": [{"a": {"$eq": 2}}, {"d": {"$gt": 1}}]},
        "indexFilterSet": False,
        "optimizationTimeMillis": 0,
        "maxIndexedOrSolutionsReached": False,
        "maxIndexedAndSolutionsReached": False,
        "maxScansToExplodeReached": False,
        "prunedSimilarIndexes": False,
        "winningPlan": {
            "isCached": False,
            "stage": "FETCH",
            "filter": {"d": {"$gt": 1}},
            "inputStage": {
                "stage": "IXSCAN",
                "keyPattern": key,
                "indexName": "a_1",
                "isMultiKey": False,
                "multiKeyPaths": {"a": []},
                "isUnique": False,
                "isSparse": False,
                "isPartial": False,
                "indexVersion": 2,
                "direction": "forward",
                "indexBounds": {"a": ["[2, 2]"]},
            },
        },
        "rejectedPlans": [],
    }


def test_backward_scan(bench: Bench) -> None:
    plan = bench.plan({"b": {"$gt": 1}}, [("b", 1)])
    scan = bench.explain(plan)["queryPlanner"]["winningPlan"]["inputStage"]
    assert scan["direction"] == "backward"
    assert scan["indexBounds"] == {"b": ["(1, inf.0]"], "c": ["[MaxKey, MinKey]"]}
    assert bench.find({"b": {"$gt": 1}}, [("b", 1)])[0] == 98


@pytest.mark.parametrize(
    ("operand", "text"),
    [
        ({"$gt": 5.0}, "(5.0, inf.0]"),
        ({"$lt": 5}, "[-inf.0, 5)"),
        ({"$gte": "m"}, '["m", {})'),
        ({"$lt": "m"}, '["", "m")'),
        ({"$regex": "^ab"}, '["ab", "ac")'),
        ({"$gt": False}, "(false, true]"),
        ({"$gte": {}}, "[{}, [])"),
        (None, "[null, null]"),
    ],
)
def test_bounds_texts(bench: Bench, operand: object, text: str) -> None:
    scan = bench.explain(bench.plan({"a": operand}))["queryPlanner"]["winningPlan"]["inputStage"]
    assert scan["indexBounds"]["a"][0] == text


def test_collection_scan(bench: Bench) -> None:
    reply = bench.explain(bench.plan({"d": {"$lt": 10}}), "executionStats")
    assert reply["queryPlanner"]["winningPlan"] == {
        "isCached": False,
        "stage": "COLLSCAN",
        "filter": {"d": {"$lt": 10}},
        "direction": "forward",
    }
    stats = reply["executionStats"]
    assert (stats["executionSuccess"], stats["nReturned"]) == (True, 10)
    assert (stats["totalKeysExamined"], stats["totalDocsExamined"]) == (0, 100)
    assert "allPlansExecution" not in stats
    scan = stats["executionStages"]
    assert (scan["stage"], scan["nReturned"], scan["docsExamined"], scan["isEOF"]) == ("COLLSCAN", 10, 100, 1)
    assert (scan["works"], scan["advanced"], scan["needTime"]) == (101, 10, 90)


def test_counters_of_an_index_scan(bench: Bench) -> None:
    stats = bench.explain(bench.plan({"a": 2, "d": {"$lt": 50}}), "executionStats")["executionStats"]
    assert (stats["nReturned"], stats["totalKeysExamined"], stats["totalDocsExamined"]) == (10, 20, 20)
    fetch = stats["executionStages"]
    assert (fetch["stage"], fetch["nReturned"], fetch["docsExamined"]) == ("FETCH", 10, 20)
    assert (fetch["inputStage"]["nReturned"], fetch["inputStage"]["keysExamined"]) == (20, 20)


def test_sort_skip_limit(bench: Bench) -> None:
    reply = bench.explain(bench.plan({}, [("d", 1)], skip=2, limit=3), "executionStats")
    skip = reply["queryPlanner"]["winningPlan"]
    assert (skip["stage"], skip["skipAmount"]) == ("SKIP", 2)
    sort = skip["inputStage"]
    assert sort["stage"] == "SORT"
    assert sort["sortPattern"] == {"d": 1}
    assert (sort["memLimit"], sort["limitAmount"], sort["type"]) == (104857600, 5, "simple")
    assert reply["executionStats"]["nReturned"] == 3
    assert reply["executionStats"]["executionStages"]["inputStage"]["totalDataSizeSorted"] > 0
    limit = bench.explain(bench.plan({}, limit=3))["queryPlanner"]["winningPlan"]
    assert (limit["stage"], limit["limitAmount"]) == ("LIMIT", 3)


def test_projection_stands_below_a_limit(bench: Bench) -> None:
    wrapper = projection_wrapper(True, False, {"a": 1})
    limit = bench.explain(bench.plan({}, limit=3), "executionStats", wrapper)["queryPlanner"]["winningPlan"]
    assert limit["stage"] == "LIMIT"
    assert (limit["inputStage"]["stage"], limit["inputStage"]["transformBy"]) == ("PROJECTION_SIMPLE", {"a": 1})
    plain = bench.explain(bench.plan({}), "executionStats", projection_wrapper(False, False, {"a": 1}))
    assert plain["executionStats"]["executionStages"]["stage"] == "PROJECTION_DEFAULT"
    assert plain["executionStats"]["nReturned"] == 100


def test_count(bench: Bench) -> None:
    fast = bench.explain(bench.plan({}), "queryPlanner", count_wrapper())["queryPlanner"]["winningPlan"]
    assert (fast["stage"], fast["inputStage"]["stage"]) == ("COUNT", "RECORD_STORE_FAST_COUNT")
    stats = bench.explain(bench.plan({"a": 2}), "executionStats", count_wrapper())["executionStats"]
    assert stats["nReturned"] == 0
    assert stats["executionStages"]["nCounted"] == 20
    assert stats["executionStages"]["inputStage"]["stage"] == "COUNT_SCAN"
    assert stats["totalDocsExamined"] == 0
    slow = bench.explain(bench.plan({"d": 2}), "queryPlanner", count_wrapper())["queryPlanner"]["winningPlan"]
    assert slow["inputStage"]["stage"] == "COLLSCAN"


def test_writes_change_nothing(bench: Bench) -> None:
    stats = bench.explain(bench.plan({"a": 2}, limit=1), "executionStats", update_wrapper(False))["executionStats"]
    stage = stats["executionStages"]
    assert (stage["stage"], stage["nMatched"], stage["nWouldModify"]) == ("UPDATE", 1, 1)
    assert stage["inputStage"]["stage"] == "FETCH"
    stats = bench.explain(bench.plan({"a": 2}), "executionStats", delete_wrapper(True))["executionStats"]
    assert (stats["executionStages"]["stage"], stats["executionStages"]["nWouldDelete"]) == ("DELETE", 20)
    assert bench.count({}) == 100


def test_express(bench: Bench) -> None:
    reply = bench.explain(bench.plan({"_id": 7}), "executionStats")
    assert reply["queryPlanner"]["winningPlan"] == {
        "isCached": False,
        "stage": "EXPRESS_IXSCAN",
        "keyPattern": "{ _id: 1 }",
        "indexName": "_id_",
    }
    assert (reply["executionStats"]["totalKeysExamined"], reply["executionStats"]["nReturned"]) == (1, 1)


def test_or_has_input_stages(bench: Bench) -> None:
    reply = bench.explain(bench.plan({"$or": [{"a": 1}, {"b": 2}]}), "executionStats")
    plan = reply["queryPlanner"]["winningPlan"]
    assert plan["stage"] == "OR"
    assert [stage["inputStage"]["indexName"] for stage in plan["inputStages"]] == ["a_1", "b_-1_c_1"]
    stages = reply["executionStats"]["executionStages"]
    assert (stages["dupsTested"], stages["dupsDropped"], stages["nReturned"]) == (53, 6, 47)


def test_rejected_plans(bench: Bench) -> None:
    rejected = bench.explain(bench.plan({"a": 2, "b": 1}))["queryPlanner"]["rejectedPlans"]
    assert [plan["inputStage"]["indexName"] for plan in rejected] == ["b_-1_c_1"]


def test_eof(bench: Bench) -> None:
    plan = bench.explain(bench.plan({"a": {"$in": []}}), "executionStats")["queryPlanner"]["winningPlan"]
    assert plan == {"isCached": False, "stage": "EOF", "type": "predicateEvalsToFalse"}


def test_unknown_verbosity(bench: Bench) -> None:
    with pytest.raises(CommandError) as refused:
        bench.explain(bench.plan({}), "everything")
    assert refused.value.code == ErrorCode.BadValue


def test_all_plans_execution() -> None:
    bench = Bench()
    bench.index([("a", 1)])
    bench.index([("b", 1)])
    bench.insert([{"_id": i, "a": i % 50, "b": i % 2} for i in range(1000)])
    stats = bench.explain(bench.plan({"a": 3, "b": 1}), "allPlansExecution")["executionStats"]
    winner, loser = stats["allPlansExecution"]
    assert winner["executionStages"]["inputStage"]["indexName"] == "a_1"
    assert (winner["nReturned"], winner["totalKeysExamined"], winner["totalDocsExamined"]) == (20, 20, 20)
    assert loser["executionStages"]["inputStage"]["indexName"] == "b_1"
    assert 128 <= loser["totalKeysExamined"] <= 256
    only = bench.explain(bench.plan({"a": 3}), "allPlansExecution")["executionStats"]
    assert only["allPlansExecution"] == []


@pytest.mark.parametrize("write", [{"update": {"$set": {"x": 1}}}, {"remove": True}])
@pytest.mark.parametrize(("wanted", "returned"), [(1, 1), (7, 0)])
def test_find_and_modify_returns_the_document_that_it_takes(write: dict[str, Any], wanted: int, returned: int) -> None:
    running = Running()
    running.insert({"_id": 1}, {"_id": 2})
    explained = running.run({"explain": {"findAndModify": "c", "query": {"_id": wanted}, **write}})
    assert explained["executionStats"]["nReturned"] == returned
    assert explained["executionStats"]["executionStages"]["nReturned"] == returned
    assert running.ids() == [1, 2]


@pytest.mark.slow
def test_bounds_that_are_too_long_are_left_out() -> None:
    running = Running()
    running.insert({"_id": 1, "a": 100_001})
    running.index({"a": 1})
    find = {"find": "c", "filter": {"a": {"$in": list(range(100_000, 400_000))}}}
    explained = running.run({"explain": find, "verbosity": "executionStats"})
    scan = explained["queryPlanner"]["winningPlan"]["inputStage"]
    assert (scan["stage"], "indexBounds" in scan) == ("IXSCAN", False)
    assert scan["warning"] == "index bounds omitted due to BSON size limit for explain"
    assert explained["executionStats"]["nReturned"] == 1


# Eleven strings of 1 MB each: the filter fits into one document, but not a second time.
LONG_STRINGS = [f"{number}" + "x" * 1_000_000 for number in range(11)]


@pytest.mark.parametrize("verbosity", ["queryPlanner", "executionStats", "allPlansExecution"])
@pytest.mark.parametrize(
    ("command", "omitted"),
    [
        ({"find": "c", "filter": {"a": {"$in": LONG_STRINGS}}}, {"indexBounds"}),
        ({"find": "c", "filter": {"d": {"$in": LONG_STRINGS}}}, {"filter"}),
        (
            {"find": "c", "filter": {"$or": [{"a": {"$in": LONG_STRINGS[:5]}}, {"d": {"$in": LONG_STRINGS[5:]}}]}},
            {"filter"},
        ),
        ({"count": "c", "query": {"a": {"$in": LONG_STRINGS}}}, {"indexBounds"}),
        ({"distinct": "c", "key": "a", "query": {"a": {"$in": LONG_STRINGS}}}, {"indexBounds"}),
        ({"aggregate": "c", "pipeline": [{"$match": {"a": {"$in": LONG_STRINGS}}}]}, {"indexBounds"}),
        (
            {
                "aggregate": "c",
                "pipeline": [{"$group": {"_id": "$d", "n": {"$sum": 1}}}, {"$match": {"n": {"$in": LONG_STRINGS}}}],
            },
            {"$match"},
        ),
    ],
)
def test_explain_omits_parts_that_exceed_the_document_size(
    command: dict[str, Any], omitted: set[str], verbosity: str
) -> None:
    running = Running()
    running.insert({"_id": 1, "a": LONG_STRINGS[0][:100], "d": 1})
    running.index({"a": 1})
    if "aggregate" in command:
        command = {**command, "cursor": {}}
    explained = running.run({"explain": command, "verbosity": verbosity})
    assert len(bson.encode(explained)) < 16 << 20
    warnings = "; ".join(warnings_in(explained))
    for name in omitted:
        wanted = "index bounds omitted" if name == "indexBounds" else f"'{name}' has been omitted"
        assert f"{wanted} due to BSON size limit" in warnings
    assert "serverInfo" in explained


def warnings_in(value: Any) -> list[str]:
    """All warnings in a reply of explain."""
    if isinstance(value, list):
        return [warning for element in value for warning in warnings_in(element)]
    if not isinstance(value, dict):
        return []
    found = [value["warning"]] if isinstance(value.get("warning"), str) else []
    return found + [warning for member in value.values() for warning in warnings_in(member)]


def test_stages_beyond_what_fits_are_left_out() -> None:
    text = "x" * (1 << 20)
    inputs: list[Value] = [{"stage": "FETCH", "filter": text, "inputStage": {"stage": "IXSCAN"}} for _ in range(12)]
    reply = fitted({"queryPlanner": {"winningPlan": {"stage": "OR", "inputStages": inputs}}, "explainVersion": "1"})
    decoded = bson.decode(encode(reply))
    assert decoded["explainVersion"] == "1"
    kept = decoded["queryPlanner"]["winningPlan"]["inputStages"]
    full = {"stage": "FETCH", "filter": text, "inputStage": {"stage": "IXSCAN"}}
    assert kept[:9] == [full] * 9
    warning = "'filter' has been omitted due to BSON size limit"
    assert kept[9:] == [{"stage": "FETCH", "inputStage": {"stage": "IXSCAN"}, "warning": warning}] * 3
    many: list[Value] = [{"stage": "IXSCAN", "indexBounds": text[:1000]} for _ in range(12_000)]
    decoded = bson.decode(encode(fitted({"winningPlan": {"stage": "OR", "inputStages": many}})))
    assert decoded["winningPlan"]["inputStages"][0]["stage"] == "IXSCAN"
    assert decoded["winningPlan"]["inputStages"][-1] == {"warning": "stats tree exceeded BSON size limit for explain"}
