"""allowDiskUse, the memory limits that setParameter sets, and results that are too large."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pymongo
import pytest
from pymongo.database import Database
from pymongo.errors import OperationFailure

from tests.on_nodes import own_parameters

pytestmark = own_parameters

Documents = dict[str, Any]

SORT = "internalQueryMaxBlockingSortMemoryUsageBytes"
GROUP = "internalDocumentSourceGroupMaxMemoryBytes"


@contextlib.contextmanager
def limited(client: "pymongo.MongoClient[Documents]", **limits: int) -> Iterator[None]:
    before = {name: client.admin.command({"getParameter": 1, name: 1})[name] for name in limits}
    for name, limit in limits.items():
        assert client.admin.command({"setParameter": 1, name: limit})["was"] == before[name]
    try:
        yield
    finally:
        for name, limit in before.items():
            client.admin.command({"setParameter": 1, name: limit})


@pytest.fixture
def filled(database: Database[Documents]) -> Database[Documents]:
    database.c.insert_many([{"_id": i, "k": i * 7919 % 2003, "s": "x" * 50} for i in range(2000)])
    return database


GROUPED: list[Documents] = [{"$group": {"_id": "$k", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}]


def test_sorts_and_groups_go_on_in_files(filled: Database[Documents]) -> None:
    in_memory = list(filled.c.find().sort("k", 1))
    grouped = list(filled.c.aggregate(GROUPED))
    with limited(filled.client, **{SORT: 20_000, GROUP: 20_000}):
        assert list(filled.c.find().sort("k", 1)) == in_memory
        assert list(filled.c.find().sort("k", 1).limit(700)) == in_memory[:700]
        assert list(filled.c.aggregate([{"$sort": {"k": 1}}])) == in_memory
        assert list(filled.c.aggregate(GROUPED)) == grouped
        explained = filled.command("explain", {"find": "c", "sort": {"k": 1}}, verbosity="executionStats")[
            "executionStats"
        ]["executionStages"]
        assert explained["stage"] == "SORT"
        assert explained["usedDisk"] is True
        assert explained["spills"] > 0
        assert explained["spilledRecords"] > 0
        assert explained["spilledBytes"] > 0


@pytest.mark.parametrize(
    "command",
    [
        {"find": "c", "sort": {"k": 1}},
        {"aggregate": "c", "pipeline": [{"$sort": {"k": 1}}], "cursor": {}},
        {"aggregate": "c", "pipeline": [{"$project": {"k": 1}}, {"$sort": {"k": 1}}], "cursor": {}},
        {"aggregate": "c", "pipeline": GROUPED, "cursor": {}},
        {"aggregate": "c", "pipeline": [{"$bucketAuto": {"groupBy": "$k", "buckets": 3}}], "cursor": {}},
        {"explain": {"find": "c", "sort": {"k": 1}, "allowDiskUse": False}, "verbosity": "executionStats"},
    ],
)
def test_without_disk_use_they_fail(filled: Database[Documents], command: Documents) -> None:
    refusing = command if "explain" in command else {**command, "allowDiskUse": False}
    filled.command(refusing)
    tight = {SORT: 20_000, GROUP: 20_000, "internalDocumentSourceBucketAutoMaxMemoryBytes": 20_000}
    with limited(filled.client, **tight):
        if "explain" in command:
            stats = filled.command(refusing)["executionStats"]
            assert (stats["executionSuccess"], stats["errorCode"]) == (False, 292)
        else:
            with pytest.raises(OperationFailure) as refused:
                filled.command(refusing)
            assert refused.value.code == 292
            filled.command(command)
            with limited(filled.client, allowDiskUseByDefault=False), pytest.raises(OperationFailure) as refused:
                filled.command(command)
            assert refused.value.code == 292


def test_scores_of_a_text_search_go_on_in_files(database: Database[Documents]) -> None:
    database.c.create_index([("t", "text")])
    database.c.insert_many([{"_id": i, "t": "apple " * (i % 3) + "pear " * (i % 4)} for i in range(5000)])
    search: Documents = {"find": "c", "filter": {"$text": {"$search": "apple pear"}}}
    scored: Documents = {**search, "projection": {"score": {"$meta": "textScore"}, "_id": 1}, "batchSize": 5000}
    refusing = {**scored, "allowDiskUse": False}
    in_memory = database.command(scored)["cursor"]["firstBatch"]
    assert len(in_memory) == 4583
    assert in_memory[4]["score"] > in_memory[0]["score"]
    assert database.command(refusing)["cursor"]["firstBatch"] == in_memory
    with limited(database.client, **{SORT: 20_000}):
        assert database.command(scored)["cursor"]["firstBatch"] == in_memory
        with pytest.raises(OperationFailure) as refused:
            database.command(refusing)
        assert refused.value.code == 292
        # Without scores nothing is kept but the ids that were met.
        database.command({**search, "allowDiskUse": False})


def test_a_cursor_on_files_is_killed(filled: Database[Documents]) -> None:
    with limited(filled.client, **{SORT: 20_000}):
        cursor = filled.c.find(batch_size=10).sort("k", 1)
        first = [next(cursor)["k"] for _ in range(15)]
        assert first == sorted(first)
        cursor.close()


def test_push_has_a_limit_of_its_own(filled: Database[Documents]) -> None:
    with limited(filled.client, internalQueryMaxPushBytes=50_000), pytest.raises(OperationFailure) as refused:
        filled.command("aggregate", "c", pipeline=[{"$group": {"_id": 1, "all": {"$push": "$s"}}}], cursor={})
    assert refused.value.code == 146
    assert refused.value.details is not None
    assert refused.value.details["codeName"] == "ExceededMemoryLimit"


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        (SORT, "a", 14),
        (SORT, -1, 2),
        (SORT, 1.5, 2),
        (GROUP, 0, 2),
        ("internalQueryMaxNothing", 1, 72),
    ],
)
def test_bad_limits(client: "pymongo.MongoClient[Documents]", name: str, value: Any, code: int) -> None:
    before = client.admin.command("getParameter", "*")
    with pytest.raises(OperationFailure) as refused:
        client.admin.command({"setParameter": 1, name: value})
    assert refused.value.code == code
    assert client.admin.command("getParameter", "*") == before


def test_limits_are_shown_by_explain(filled: Database[Documents]) -> None:
    with limited(filled.client, **{SORT: 12_345}):
        reply = filled.command("explain", {"find": "c", "sort": {"k": 1}}, verbosity="queryPlanner")
    assert reply["serverParameters"][SORT] == 12_345
    assert reply["queryPlanner"]["winningPlan"]["memLimit"] == 12_345


def test_results_beyond_16_mib(database: Database[Documents]) -> None:
    database.c.insert_many([{"_id": i, "s": "x" * 1_000_000} for i in range(20)])
    everything = {"$group": {"_id": 1, "all": {"$push": "$s"}}}
    with pytest.raises(OperationFailure) as refused:
        database.command("aggregate", "c", pipeline=[everything], cursor={})
    assert refused.value.code == 10334
    assert refused.value.details is not None
    assert refused.value.details["codeName"] == "BSONObjectTooLarge"
    # In between, a document may be larger.
    assert list(database.c.aggregate([everything, {"$project": {"n": {"$size": "$all"}}}])) == [{"_id": 1, "n": 20}]


@pytest.mark.parametrize("body", [["$$value"], {"a": "$$value"}])
def test_results_that_are_too_deep(database: Database[Documents], body: Any) -> None:
    database.c.insert_one({"_id": 1})

    def nested(levels: int) -> Documents:
        return {"$reduce": {"input": {"$range": [0, levels]}, "initialValue": 1, "in": body}}

    assert len(list(database.c.aggregate([{"$project": {"n": nested(150)}}]))) == 1
    for stages in ([{"$project": {"n": nested(220)}}], [{"$project": {"n": nested(1000)}}, {"$sort": {"n": 1}}]):
        with pytest.raises(OperationFailure) as refused:
            database.command("aggregate", "c", pipeline=stages, cursor={})
        assert refused.value.code == 15
    with pytest.raises(OperationFailure) as refused:
        database.c.find_one({}, {"n": nested(220)})
    assert refused.value.code == 15


def test_explain_tells_what_the_stages_did(filled: Database[Documents]) -> None:
    window = {"$setWindowFields": {"sortBy": {"k": 1}, "output": {"n": {"$documentNumber": {}}}}}
    auto = {"$bucketAuto": {"groupBy": "$k", "buckets": 4}}
    group = {"$group": {"_id": "$k", "n": {"$sum": 1}}}
    tight = {
        SORT: 20_000,
        GROUP: 20_000,
        "internalDocumentSourceBucketAutoMaxMemoryBytes": 20_000,
        "internalDocumentSourceSetWindowFieldsMaxMemoryBytes": 20_000,
    }
    for stage, returned in ((group, 2000), ({"$sort": {"s": 1, "x": 1}}, 2000), (auto, 4), (window, 2000)):
        pipeline = [{"$unset": "y"}, stage, {"$match": {"z": None}}]
        explained = {"aggregate": "c", "pipeline": pipeline, "cursor": {}}
        for limits, used in (({}, False), (tight, True)):
            with limited(filled.client, **limits):
                reply = filled.command("explain", explained, verbosity="executionStats")
            shown = next(each for each in reply["stages"] if next(iter(stage)) in each)
            assert shown["usedDisk"] is used
            assert (shown["spills"] > 0) is used
            assert (shown["spilledRecords"] > 0) is used
            assert (shown["spilledBytes"] > 0) is used
            assert shown["nReturned"] == returned
            assert shown["executionTimeMillisEstimate"] >= 0
            assert reply["stages"][0]["$cursor"]["executionStats"]["nReturned"] == 2000
        explained["pipeline"] = [*pipeline, {"$out": "nowhere"}]
        planned = filled.command("explain", explained, verbosity="queryPlanner")
        assert all("nReturned" not in each for each in planned["stages"])
    assert "nowhere" not in filled.list_collection_names()
