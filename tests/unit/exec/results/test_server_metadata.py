import hashlib

import bson
import pytest

from tests.running import Document, Running


@pytest.fixture
def server() -> Running:
    running = Running()
    running.run({"insert": "c", "documents": [{"_id": 1, "a": 1}]})
    running.run({"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]})
    return running


def results(server: Running, stage: Document, collection: object = "c", database: str = "test") -> list[Document]:
    reply = server.run({"aggregate": collection, "pipeline": [stage], "cursor": {}}, database)
    documents: list[Document] = reply["cursor"]["firstBatch"]
    return documents


def refusal(server: Running, stage: Document, collection: object = "c") -> int:
    return server.refusal({"aggregate": collection, "pipeline": [stage], "cursor": {}}).code


def test_index_stats(server: Running) -> None:
    server.run({"find": "c", "filter": {"a": 1}})
    by_name = {entry["name"]: entry for entry in results(server, {"$indexStats": {}})}
    assert by_name["a_1"]["key"] == {"a": 1}
    assert by_name["a_1"]["accesses"]["ops"] == 1
    assert isinstance(by_name["_id_"]["accesses"]["ops"], bson.Int64)
    assert by_name["_id_"]["spec"]["name"] == "_id_"
    assert results(server, {"$indexStats": {}}, "none") == []


def test_sessions(server: Running) -> None:
    digest = hashlib.sha256(b"").digest()
    server.service.sessions.touch(b"k" * 16 + digest, 1000, 0.0)
    found = results(server, {"$listSessions": {}}, "system.sessions", "config")
    assert [entry["_id"] for entry in found] == [{"id": bson.Binary(b"k" * 16, 4), "uid": digest}]
    assert results(server, {"$listLocalSessions": {}}, 1) == found


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        ({"allUsers": 1}, 14),
        ({"users": "x"}, 14),
        ({"users": ["x"]}, 14),
        ({"users": [{"db": "x"}]}, 40414),
        ({"users": [{"user": "x", "db": "y", "more": 1}]}, 40415),
        ({"other": 1}, 40415),
        (1, 14),
    ],
)
def test_list_sessions_checks_its_options(server: Running, argument: object, code: int) -> None:
    command = {"aggregate": "system.sessions", "pipeline": [{"$listSessions": argument}], "cursor": {}}
    assert server.code(command, "config") == code
    assert server.code({**command, "aggregate": "c"}) == 73  # whatever the options are


@pytest.mark.parametrize(
    ("scale", "factor"),
    [
        (1, 1),
        (1024, 1024),
        (2.9, 2),
        (bson.Decimal128("1.5"), 2),
        (bson.Decimal128("2.5"), 2),
        (bson.Int64(2**40), 2**31 - 1),
        (float("inf"), 2**31 - 1),
    ],
)
def test_scale_of_coll_stats(server: Running, scale: object, factor: int) -> None:
    [whole] = results(server, {"$collStats": {"storageStats": {}, "count": {}}})
    [scaled] = results(server, {"$collStats": {"storageStats": {"scale": scale}}})
    assert (whole["ns"], whole["count"], whole["storageStats"]["scaleFactor"]) == ("test.c", 1, 1)
    assert scaled["storageStats"]["scaleFactor"] == factor
    assert scaled["storageStats"]["size"] == whole["storageStats"]["size"] // factor
    assert scaled["storageStats"]["count"] == scaled["storageStats"]["nindexes"] - 1 == 1


def test_plan_cache(server: Running) -> None:
    assert results(server, {"$planCacheStats": {"allHosts": False}}) == []


@pytest.mark.parametrize(
    ("stage", "collection", "code"),
    [
        ({"$indexStats": {"a": 1}}, "c", 28803),
        ({"$indexStats": 1}, "c", 28803),
        ({"$planCacheStats": {"a": 1}}, "c", 9),
        ({"$planCacheStats": {"allHosts": True}}, "c", 4503200),
        ({"$planCacheStats": {}}, "none", 50933),
        ({"$listSessions": {}}, "c", 73),
        ({"$listLocalSessions": {}}, "c", 73),
        ({"$listLocalSessions": 1}, 1, 14),
        ({"$listLocalSessions": {"a": 1}}, 1, 40415),
        ({"$listLocalSessions": {"allUsers": 1}}, 1, 14),
        ({"$listLocalSessions": {"users": {}}}, 1, 14),
        ({"$listLocalSessions": {"users": [1]}}, 1, 14),
        ({"$listLocalSessions": {"users": [{"user": "x"}]}}, 1, 40414),
        ({"$listLocalSessions": {"users": [{"user": 1, "db": "x"}]}}, 1, 14),
        ({"$listLocalSessions": {"users": [{"user": "x", "db": "y", "z": 1}]}}, 1, 40415),
        ({"$planCacheStats": 1}, "c", 9),
        ({"$planCacheStats": {"allHosts": 1}}, "c", 13111),
        ({"$listSampledQueries": {}}, 1, 73),
        ({"$listSampledQueries": {}}, "c", 73),
        ({"$querySettings": 1}, 1, 7746800),
        ({"$querySettings": {"a": 1}}, 1, 40415),
        ({"$querySettings": {"showDebugQueryShape": 1}}, 1, 14),
        ({"$querySettings": {}}, "c", 73),
        ({"$currentOp": 1}, 1, 14),
        ({"$currentOp": {"a": True}}, 1, 40415),
        ({"$currentOp": {"allUsers": 1}}, 1, 14),
        ({"$currentOp": {}}, 1, 73),
        ({"$collStats": 1}, "c", 5447000),
        ({"$collStats": {"other": {}}}, "c", 40415),
        ({"$collStats": {"count": {"x": 1}}}, "c", 31170),
        ({"$collStats": {"count": 1}}, "c", 14),
        ({"$collStats": {"storageStats": {"scale": "1"}}}, "c", 14),
        ({"$collStats": {"storageStats": {"scale": float("nan")}}}, "c", 2),
        ({"$collStats": {"count": {}}}, "none", 26),
    ],
)
def test_refusals(server: Running, stage: Document, collection: object, code: int) -> None:
    assert refusal(server, stage, collection) == code
