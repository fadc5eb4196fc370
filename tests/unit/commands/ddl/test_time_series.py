"""Time series collections: writes, reads, and refused operations."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import Decimal128, Int64

from tests.running import Document, Running

START = datetime.fromtimestamp(1_700_000_000, tz=UTC).replace(tzinfo=None)
SERIES: Document = {"timeField": "at", "metaField": "m"}


def measured(seconds: float, **fields: Any) -> Document:
    return {"at": START + timedelta(seconds=seconds), **fields}


@pytest.fixture
def running() -> Running:
    made = Running()
    made.run({"create": "c", "timeseries": SERIES})
    made.insert(*(measured(i, m={"s": i % 2}, v=i) for i in range(10)))
    return made


def read(running: Running, command: Document) -> list[Any]:
    return [document.get("v") for document in running.listed(command)]


def options(running: Running) -> Document:
    [listed] = running.listed({"listCollections": 1, "filter": {"name": "c"}})
    shown: Document = listed["options"]
    return shown


def test_list_collections_shows_a_time_series_collection(running: Running) -> None:
    [listed] = running.listed({"listCollections": 1})
    assert listed == {
        "name": "c",
        "type": "timeseries",
        "options": {"timeseries": {**SERIES, "granularity": "seconds", "bucketMaxSpanSeconds": 3600}},
        "info": {"readOnly": False},
    }
    assert running.listed({"listIndexes": "c"}) == [{"v": 2, "key": {"m": 1, "at": 1}, "name": "m_1_at_1"}]
    again = Running(engine=running.engine)
    assert again.listed({"listCollections": 1}) == [listed]
    assert len(again.listed({"find": "c"})) == 10


def test_a_measurement_has_a_time(running: Running) -> None:
    for document in ({}, {"at": 1}, {"at": None}, {"at": [START]}):
        [error] = running.run({"insert": "c", "documents": [document]})["writeErrors"]
        assert error["code"] == 2
    reply = running.run({"insert": "c", "documents": [measured(1), {}, measured(2)], "ordered": False})
    assert (reply["n"], [error["index"] for error in reply["writeErrors"]]) == (2, [1])


def test_ids_need_not_be_unique(running: Running) -> None:
    running.insert(measured(100, _id=1, v="x"), measured(101, _id=1, v="y"))
    running.insert(measured(102, _id=1, v="z"))
    assert sorted(read(running, {"find": "c", "filter": {"_id": 1}})) == ["x", "y", "z"]
    assert running.run({"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}]}) == {"n": 1}
    assert running.run({"count": "c", "query": {"_id": 1}})["n"] == 2
    assert all("_id" in document for document in running.listed({"find": "c"}))


def test_reading(running: Running) -> None:
    assert sorted(read(running, {"find": "c", "filter": {"m.s": 1}})) == [1, 3, 5, 7, 9]
    since = {"at": {"$gte": START + timedelta(seconds=8)}}
    assert sorted(read(running, {"find": "c", "filter": since, "sort": {"at": 1}})) == [8, 9]
    pipeline = [{"$group": {"_id": "$m.s", "sum": {"$sum": "$v"}}}, {"$sort": {"_id": 1}}]
    grouped = running.listed({"aggregate": "c", "pipeline": pipeline, "cursor": {}})
    assert grouped == [{"_id": 0, "sum": 20}, {"_id": 1, "sum": 25}]
    assert running.run({"count": "c"})["n"] == 10
    assert sorted(running.run({"distinct": "c", "key": "m.s"})["values"]) == [0, 1]
    running.run({"create": "view", "viewOn": "c", "pipeline": [{"$match": {"v": {"$gt": 7}}}]})
    assert sorted(read(running, {"find": "view"})) == [8, 9]
    joined = [{"$limit": 1}, {"$lookup": {"from": "c", "pipeline": [], "as": "all"}}]
    assert len(running.listed({"aggregate": "c", "pipeline": joined, "cursor": {}})[0]["all"]) == 10
    assert running.run({"validate": "c"})["nrecords"] == 10
    assert running.run({"collStats": "c"})["count"] == 10
    assert running.code({"dataSize": "test.c"}) == 166
    assert len(running.listed({"aggregate": "c", "pipeline": [{"$indexStats": {}}], "cursor": {}})) == 1


def test_explaining(running: Running) -> None:
    explained = running.run({"explain": {"find": "c", "filter": {"m": {"s": 1}}}, "verbosity": "executionStats"})
    assert explained["executionStats"]["nReturned"] == 5


def update(**statement: Any) -> Document:
    return {"update": "c", "updates": [{"multi": True, **statement}]}


def test_updates_of_the_meta_field(running: Running) -> None:
    reply = running.run(update(q={"m.s": 1}, u={"$set": {"m.t": 5}}))
    assert (reply["n"], reply["nModified"]) == (5, 5)
    assert running.run({"count": "c", "query": {"m.t": 5}})["n"] == 5
    assert running.run(update(q={"$or": [{"m.t": 5}, {"m.s": 0}]}, u={"$unset": {"m": 1}}))["n"] == 10


@pytest.mark.parametrize(
    "statement",
    [
        {"q": {"m.s": 1}, "u": {"$set": {"m": 1}}, "multi": False},
        {"q": {"v": 1}, "u": {"$set": {"m": 1}}},
        {"q": {"$expr": {"$eq": ["$v", 1]}}, "u": {"$set": {"m": 1}}},
        {"q": {}, "u": {"$set": {"v": 1}}},
        {"q": {}, "u": {"$set": {"mm": 1}}},
        {"q": {}, "u": {"$rename": {"m.s": "s"}}},
        {"q": {}, "u": [{"$set": {"m": 1}}]},
        {"q": {}, "u": {"$set": {"m": 1}}, "upsert": True},
    ],
)
def test_other_updates_are_refused(running: Running, statement: Document) -> None:
    [error] = running.run(update(**statement))["writeErrors"]
    assert error["code"] == 72


def test_no_update_without_a_meta_field() -> None:
    running = Running()
    running.run({"create": "c", "timeseries": {"timeField": "at"}})
    assert running.listed({"listIndexes": "c"}) == []
    running.insert(measured(1, v=1))
    [error] = running.run(update(q={}, u={"$set": {"v": 2}}))["writeErrors"]
    assert error["code"] == 72


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"findAndModify": "c", "query": {}, "update": {"$set": {"m": 1}}}, 72),
        ({"renameCollection": "test.c", "to": "test.d"}, 166),
        ({"convertToCapped": "c", "size": 4096}, 166),
        ({"cloneCollectionAsCapped": "c", "toCollection": "d", "size": 4096}, 166),
        ({"planCacheClear": "c"}, 166),
        ({"compact": "c", "force": True}, 166),
        ({"find": "c", "tailable": True}, 168),
        ({"aggregate": "d", "pipeline": [{"$merge": "c"}], "cursor": {}}, 166),
        ({"aggregate": "c", "pipeline": [{"$planCacheStats": {}}], "cursor": {}}, 40602),
        ({"createIndexes": "c", "indexes": [{"key": {"v": 1}, "name": "v", "unique": True}]}, 72),
        ({"createIndexes": "c", "indexes": [{"key": {"v": "hashed"}, "name": "v"}]}, 67),
        ({"createIndexes": "c", "indexes": [{"key": {"_id": 1}, "name": "_id_"}]}, 67),
        ({"create": "c"}, 48),
        ({"create": "c", "timeseries": {"timeField": "at"}}, 48),
        ({"create": "d", "timeseries": {"timeField": "_ts"}, "expireAfterSeconds": 1}, 115),
        ({"collMod": "by_ts", "expireAfterSeconds": 1}, 115),
        ({"collMod": "c", "validator": {"a": 1}}, 72),
        ({"collMod": "c", "validationLevel": "off"}, 72),
        ({"collMod": "c", "timeseries": {"bucketMaxSpanSeconds": 3600}}, 72),
        ({"collMod": "c", "timeseries": {"bucketMaxSpanSeconds": 3599, "bucketRoundingSeconds": 3599}}, 72),
        ({"collMod": "c", "timeseries": {"bucketMaxSpanSeconds": 7200, "bucketRoundingSeconds": 7201}}, 72),
        ({"collMod": "c", "expireAfterSeconds": -1}, 72),
        ({"collMod": "c", "expireAfterSeconds": "Off"}, 72),
    ],
)
def test_invalid_time_series_options_are_refused(running: Running, command: Document, code: int) -> None:
    running.run({"create": "by_ts", "timeseries": {"timeField": "_ts"}})
    database = "admin" if "renameCollection" in command else "test"
    assert running.code(command, database) == code


def test_the_same_options_again(running: Running) -> None:
    running.run({"create": "c", "timeseries": {**SERIES, "granularity": "seconds"}})


def test_indexes(running: Running) -> None:
    running.index({"v": 1})
    assert running.index_names() == ["m_1_at_1", "v_1"]
    running.run({"collMod": "c", "expireAfterSeconds": 100})
    assert running.index_names() == ["m_1_at_1", "v_1"]
    assert running.index({"at": 1})["numIndexesAfter"] == 3
    assert running.code({"dropIndexes": "c", "index": "$expiry"}) == 27
    assert running.run({"dropIndexes": "c", "index": "*"})["nIndexesWas"] == 3
    assert running.index_names() == []
    assert running.collection().options.expire_after_seconds == 100
    assert running.run({"drop": "c"}) == {"nIndexesWas": 0, "ns": "test.c"}
    assert running.engine.idents() == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, {"granularity": "seconds", "bucketMaxSpanSeconds": 3600}),
        ({"granularity": "minutes"}, {"granularity": "minutes", "bucketMaxSpanSeconds": 86_400}),
        (
            {"bucketMaxSpanSeconds": 3600.9, "bucketRoundingSeconds": Decimal128("3600")},
            {"bucketRoundingSeconds": 3600, "bucketMaxSpanSeconds": 3600},
        ),
        (
            {"bucketMaxSpanSeconds": None, "bucketRoundingSeconds": None},
            {"granularity": "seconds", "bucketMaxSpanSeconds": 3600},
        ),
    ],
)
def test_changing_buckets(running: Running, change: Document, expected: Document) -> None:
    running.run({"collMod": "c", "timeseries": change})
    assert options(running) == {"timeseries": {**SERIES, **expected}}


def test_buckets_do_not_become_smaller(running: Running) -> None:
    running.run({"collMod": "c", "timeseries": {"granularity": "hours"}})
    assert running.code({"collMod": "c", "timeseries": {"granularity": "minutes"}}) == 72


def test_measurements_expire_by_their_time() -> None:
    running = Running()
    running.run({"create": "c", "timeseries": SERIES, "expireAfterSeconds": 100})
    running.insert(*(measured(i, v=i) for i in range(0, 100, 10)))
    assert options(running)["expireAfterSeconds"] == Int64(100)
    running.advance(120)
    assert running.reap() == 3
    assert sorted(read(running, {"find": "c"})) == [30, 40, 50, 60, 70, 80, 90]
    running.run({"collMod": "c", "expireAfterSeconds": 50})
    assert running.reap() == 5
    running.run({"collMod": "c", "expireAfterSeconds": "off"})
    running.advance(1000)
    assert running.reap() == 0
    assert "expireAfterSeconds" not in options(running)
    running.run({"collMod": "c", "expireAfterSeconds": 10})
    assert running.reap() == 2
    again = Running(engine=running.engine)
    assert again.collection().options.expire_after_seconds == 10


# $out


def out(series: Document | None = SERIES) -> Document:
    target: Document = {"db": "test", "coll": "c"}
    if series is not None:
        target["timeseries"] = series
    return {"aggregate": "source", "pipeline": [{"$out": target}], "cursor": {}}


def test_writing_results_into_one(running: Running) -> None:
    running.insert(measured(5, v=50), into="source")
    running.run(out())
    assert read(running, {"find": "c"}) == [50]
    assert running.index_names() == ["m_1_at_1"]
    running.run(out(None))
    running.run({"drop": "c"})
    running.run(out({"timeField": "at", "bucketMaxSpanSeconds": Decimal128("1.5"), "bucketRoundingSeconds": 2}))
    assert options(running) == {
        "timeseries": {"timeField": "at", "bucketRoundingSeconds": 2, "bucketMaxSpanSeconds": 2}
    }
    running.insert({"v": 1}, into="source")
    assert running.code(out(None)) == 2
    assert read(running, {"find": "c"}) == [50]


@pytest.mark.parametrize(
    "series", [{"timeField": "at"}, {**SERIES, "granularity": "hours"}, {"timeField": "m", "metaField": "at"}]
)
def test_results_into_one_of_other_options(running: Running, series: Document) -> None:
    assert running.code(out(series)) == 7406103


def test_results_into_another_kind_of_collection(running: Running) -> None:
    running.run({"drop": "c"})
    running.run({"create": "c"})
    assert running.code(out()) == 7268700
