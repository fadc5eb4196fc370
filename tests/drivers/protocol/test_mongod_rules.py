"""Rules of mongod about names, views, time series collections, indexes and read concerns, which suites check."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pymongo
import pytest
from bson import Decimal128, Int64, Timestamp
from pymongo.database import Database
from pymongo.errors import OperationFailure

from tests.on_nodes import of_replica_set, own_cursors

Documents = dict[str, Any]
Client = pymongo.MongoClient[Documents]


def code_of(database: Database[Documents], command: Documents) -> int | None:
    """The error code of a command, or of its first statement; None if it succeeds."""
    try:
        reply = database.command(command)
    except OperationFailure as error:
        return error.code
    errors = reply.get("writeErrors", [])
    return int(errors[0]["code"]) if errors else None


def pipeline(*stages: Documents, over: Any = "c") -> Documents:
    return {"aggregate": over, "pipeline": list(stages), "cursor": {}}


# Names


@pytest.mark.parametrize("name", ["$a", "a$b", "a$"])
def test_names_with_a_dollar(database: Database[Documents], name: str) -> None:
    database.create_collection("c")
    admin, own = database.client.admin, database.name
    assert code_of(admin, {"renameCollection": f"{own}.c", "to": f"{own}.{name}"}) == 20
    assert code_of(admin, {"renameCollection": f"{own}.{name}", "to": f"{own}.d"}) == 20
    assert code_of(database, {"convertToCapped": name, "size": 4096}) == 26
    assert code_of(database, {"cloneCollectionAsCapped": name, "toCollection": "d", "size": 4096}) == 73
    assert code_of(database, {"create": name}) == 73


def test_a_name_of_an_index_that_is_given_twice(database: Database[Documents]) -> None:
    database.c.create_index("a")
    database.c.create_index("b")
    assert code_of(database, {"dropIndexes": "c", "index": ["a_1", "b_1", "a_1"]}) == 27
    assert set(database.c.index_information()) == {"_id_", "a_1", "b_1"}


# Arguments


@pytest.mark.parametrize("one", [1, 1.0, 1.9, Int64(1), Decimal128("1.4")])
def test_drop_database_truncates_its_number(database: Database[Documents], one: Any) -> None:
    database.create_collection("c")
    database.command({"dropDatabase": one})
    assert database.list_collection_names() == []


@pytest.mark.parametrize("value", [0, 2, -1, 0.9, float("nan")])
def test_drop_database_takes_no_other_number(database: Database[Documents], value: Any) -> None:
    assert code_of(database, {"dropDatabase": value}) == 5255100


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ("", None),
        ("block_compressor=zlib", None),
        ("app_metadata=(a=1,b=[2,3]), checksum=on,", None),
        ("unknown=1", 2),
        ("app_metadata=(a=1", 2),
        ("app_metadata=a)", 2),
        ("block_compressor=zlib\0", 9),
        (1, 14),
        (None, 14),
    ],
)
def test_configurations_of_the_storage_engine(database: Database[Documents], config: Any, code: int | None) -> None:
    options = {"storageEngine": {"wiredTiger": {"configString": config}}}
    assert code_of(database, {"create": "c", **options}) == code


@pytest.mark.parametrize("field", ["startSession", "setClusterParameter"])
def test_unknown_fields_that_are_ignored(database: Database[Documents], field: str) -> None:
    argument: Any = 1 if field == "startSession" else {"defaultMaxTimeMS": {"readOperations": 0}}
    assert code_of(database.client.admin, {field: argument, "unknown": 1}) is None


@pytest.mark.parametrize("field", ["logRotate", "listDatabases", "dropConnections"])
def test_unknown_fields_that_are_refused(database: Database[Documents], field: str) -> None:
    assert code_of(database.client.admin, {field: 1, "hostAndPort": []} | {"unknown": 1}) == 40415


@own_cursors
def test_terms_are_numbers(database: Database[Documents]) -> None:
    database.c.insert_many([{} for _ in range(3)])
    for value, code in ((1, None), (Int64(1), None), (1.5, None), (None, None), ("1", 14), (True, 14)):
        assert code_of(database, {"find": "c", "term": value}) == code
        opened = database.command({"find": "c", "batchSize": 1})["cursor"]["id"]
        assert code_of(database, {"getMore": Int64(opened), "collection": "c", "term": value}) == code


# Views


def test_a_view_cannot_begin_with_documents(database: Database[Documents]) -> None:
    stages = [{"$documents": [{"a": 1}]}]
    database.create_collection("v", viewOn="c", pipeline=[])
    assert code_of(database, {"create": "w", "viewOn": "c", "pipeline": stages}) == 73
    assert code_of(database, {"collMod": "v", "viewOn": "c", "pipeline": stages}) == 73
    within = [{"$lookup": {"as": "d", "pipeline": stages}}]
    assert code_of(database, {"create": "w", "viewOn": "c", "pipeline": within}) is None


def test_pipelines_of_views_have_at_most_16_million_bytes(database: Database[Documents]) -> None:
    def view(name: str, source: str, size: int) -> int | None:
        stage = {"$match": {"x": "a" * (size - 26)}}
        return code_of(database, {"create": name, "viewOn": source, "pipeline": [stage]})

    assert view("v", "c", 16_000_001) == 195
    assert view("v", "c", 16_000_000) is None
    database.drop_collection("v")
    assert view("v", "c", 9_000_000) is None
    assert view("w", "v", 7_000_001) == 195
    assert view("w", "v", 7_000_000) is None


@pytest.mark.parametrize("name", ["v", "s"])
def test_projections_that_a_pipeline_does_not_have(database: Database[Documents], name: str) -> None:
    """Views and time series collections are read by pipelines."""
    database.create_collection("v", viewOn="c", pipeline=[])
    database.create_collection("s", timeseries={"timeField": "t", "metaField": "m"})
    find = {"find": name, "filter": {"a": 1}}
    assert code_of(database, {**find, "projection": {"a": {"$elemMatch": {"b": 1}}}}) == 168
    assert code_of(database, {**find, "projection": {"a.$": 1}}) == 31324
    assert code_of(database, {**find, "projection": {"a": {"$slice": 1}}}) == 28667
    assert code_of(database, {**find, "showRecordId": True}) == 168
    assert code_of(database, {**find, "returnKey": True}) == 168
    assert code_of(database, {**find, "projection": {"b": {"$slice": ["$a", 1]}}}) is None


# Time series


@pytest.fixture
def series(database: Database[Documents]) -> Iterator[Database[Documents]]:
    database.create_collection("s", timeseries={"timeField": "t", "metaField": "m"})
    yield database


def test_measurements_of_one_insert_are_in_the_order_of_their_times(series: Database[Documents]) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    seconds_and_meta = [(5, "a"), (1, "b"), (3, "a"), (3, "a"), (4, "b"), (0, "a")]
    series.s.insert_many(
        [{"_id": i, "t": start + timedelta(seconds=s), "m": m} for i, (s, m) in enumerate(seconds_and_meta)]
    )
    assert [found["_id"] for found in series.s.find()] == [5, 2, 3, 0, 1, 4]


def test_a_measurement_without_time_does_not_change_the_order(series: Database[Documents]) -> None:
    now = datetime(2024, 1, 1, tzinfo=UTC)
    documents = [{"_id": 1, "t": now}, {"_id": 2, "t": now - timedelta(1)}, {"_id": 3}, {"_id": 4, "t": now}]
    reply = series.command({"insert": "s", "documents": documents})
    assert (reply["n"], reply["writeErrors"][0]["index"]) == (2, 2)
    assert [found["_id"] for found in series.s.find()] == [1, 2]


def test_ok_of_distinct_is_an_int_where_a_pipeline_reads(series: Database[Documents]) -> None:
    series.c.insert_one({"a": 1})
    series.create_collection("v", viewOn="c")
    kinds = {name: type(series.command({"distinct": name, "key": "a"})["ok"]) for name in ("c", "v", "s")}
    assert kinds == {"c": float, "v": int, "s": int}


def test_near_is_not_allowed_on_measurements(series: Database[Documents]) -> None:
    series.s.create_index([("m.at", "2dsphere")])
    near = {"m.at": {"$near": {"$geometry": {"type": "Point", "coordinates": [0, 0]}}}}
    assert code_of(series, {"find": "s", "filter": near}) == 5626500
    assert code_of(series, {"count": "s", "query": near}) == 5626500
    assert code_of(series, {"distinct": "s", "key": "a", "query": near}) == 5626500
    stage = {"near": {"type": "Point", "coordinates": [0, 0]}, "key": "m.at", "distanceField": "d"}
    assert code_of(series, pipeline({"$geoNear": stage}, over="s")) is None


@pytest.mark.parametrize(
    ("filter", "code"),
    [
        ({"m": 1}, None),
        ({"m.a": {"$gt": 1}}, None),
        ({"$and": [{"m": 1}, {"m.b": 2}]}, None),
        ({"t": {"$gt": datetime(2024, 1, 1)}}, 72),
        ({"v": 1}, 72),
        ({"m": 1, "v": 1}, 72),
    ],
)
def test_filters_of_ttl_indexes_on_measurements(
    series: Database[Documents], filter: Documents, code: int | None
) -> None:
    index = {"key": {"t": 1}, "name": "ttl", "expireAfterSeconds": 60, "partialFilterExpression": filter}
    assert code_of(series, {"createIndexes": "s", "indexes": [index]}) == code


def test_the_size_of_measurements_is_not_told(series: Database[Documents]) -> None:
    assert code_of(series, {"dataSize": f"{series.name}.s"}) == 166


# Queries that need an index, and stages


def test_indexes_that_a_query_needs_and_that_are_hidden(database: Database[Documents]) -> None:
    database.c.insert_one({"a": "word", "b": [0, 0]})
    text: Documents = {"$text": {"$search": "word"}}
    assert code_of(database, {"find": "c", "filter": text}) == 27
    database.c.create_index([("a", "text")], name="a")
    database.c.create_index([("b", "2d")], name="b")
    for name in ("a", "b"):
        database.command({"collMod": "c", "index": {"name": name, "hidden": True}})
    for query in (text, {"b": {"$near": [0, 0]}}):
        assert code_of(database, {"find": "c", "filter": query}) == 291
        assert code_of(database, {"count": "c", "query": query}) == 291
        assert code_of(database, {"delete": "c", "deletes": [{"q": query, "limit": 1}]}) == 291
    assert code_of(database, pipeline({"$match": text})) == 291


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ({"$near": [0, 0], "$gt": 1}, 34413),
        ({"$nearSphere": [0, 0], "$exists": True}, 34413),
        ({"$near": [0, 0], "$nearSphere": [0, 0]}, 34413),
        ({"$near": [0, 0], "$maxDistance": 1, "$ne": 1}, 34413),
        ({"$gt": 1, "$near": [0, 0]}, 2),
        ({"$near": {"$geometry": {"type": "Point", "coordinates": [0, 0]}}, "$gt": 1}, 2),
        ({"$near": [0, 0], "$minDistance": 0, "$maxDistance": 1}, None),
    ],
)
def test_near_beside_other_operators(database: Database[Documents], condition: Documents, code: int | None) -> None:
    database.c.create_index([("a", "2d")])
    assert code_of(database, {"find": "c", "filter": {"a": condition}}) == code


def test_outputs_of_buckets_named_id(database: Database[Documents]) -> None:
    bucket = {"groupBy": "$a", "boundaries": [0, 5]}
    assert code_of(database, pipeline({"$bucket": {**bucket, "output": {"_id": {"$sum": 1}}}})) == 15948
    assert code_of(database, pipeline({"$bucket": {**bucket, "output": {"_id": 1}}})) == 40234
    assert code_of(database, pipeline({"$bucket": {**bucket, "output": {"a": {"$sum": 1}}}})) is None


@pytest.mark.parametrize("section", ["storageStats", "count", "queryExecStats"])
def test_statistics_of_a_collection_that_is_missing(database: Database[Documents], section: str) -> None:
    assert code_of(database, pipeline({"$collStats": {section: {}}})) == 26
    assert code_of(database, pipeline({"$collStats": {"latencyStats": {}}})) is None
    assert code_of(database, {"collStats": "c"}) is None


@pytest.mark.parametrize(("increment", "second", "code"), [(0, 0, 72), (1, 0, 72), (2**32 - 1, 0, 72), (1, 1, 239)])
def test_cluster_times_of_second_0(database: Database[Documents], increment: int, second: int, code: int) -> None:
    concern = {"level": "snapshot", "atClusterTime": Timestamp(second, increment)}
    assert code_of(database, {"find": "c", "readConcern": concern}) == code


# What is shown of the server


def test_the_profile_has_no_index(database: Database[Documents]) -> None:
    assert code_of(database, {"listIndexes": "system.profile"}) == 26
    database.command("profile", 2)
    try:
        database.c.find_one()
        assert database.command("listIndexes", "system.profile")["cursor"]["firstBatch"] == []
    finally:
        database.command("profile", 0)


@own_cursors
def test_a_get_more_has_the_comment_of_its_cursor(database: Database[Documents]) -> None:
    database.c.insert_many([{} for _ in range(9)])
    database.command("profile", 2)
    try:
        for comment, own, shown in (("a", None, "a"), ("a", "b", "b"), (None, None, None)):
            command: Documents = {"find": "c", "batchSize": 1, "comment": comment}
            if comment is None:
                del command["comment"]
            opened = database.command(command)["cursor"]["id"]
            more: Documents = {"getMore": Int64(opened), "collection": "c", "batchSize": 1}
            database.command(more if own is None else {**more, "comment": own})
            [entry] = database["system.profile"].find({"op": "getmore"}).sort("$natural", -1).limit(1)
            assert entry["command"].get("comment") == shown
    finally:
        database.command("profile", 0)


@of_replica_set
def test_sections_of_server_status_that_agents_look_for(client: Client) -> None:
    database = client.counted
    before = client.admin.command("serverStatus")
    assert before["process"] == "mongod"
    database.create_collection("a", capped=True, size=4096)
    database.create_collection("b", clusteredIndex={"key": {"_id": 1}, "unique": True})
    database.create_collection("s", timeseries={"timeField": "t"})
    database.create_collection("v", viewOn="a")
    after = client.admin.command("serverStatus")
    grown = {name: count - before["catalogStats"][name] for name, count in after["catalogStats"].items()}
    assert {name: grown[name] for name in ("collections", "capped", "clustered", "timeseries", "views")} == {
        "collections": 2,
        "capped": 1,
        "clustered": 1,
        "timeseries": 1,
        "views": 1,
    }
    database.a.insert_one({})
    later = client.admin.command("serverStatus")["locks"]["Collection"]["acquireCount"]
    assert later["w"] == after["locks"]["Collection"]["acquireCount"]["w"] + 1
    client.drop_database("counted")
