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
    lsid = bson.encode({"id": 1})
    server.service.sessions.touch(b"key", lsid, 1000)
    found = results(server, {"$listSessions": {}}, "system.sessions", "config")
    assert [entry["_id"] for entry in found] == [{"id": 1}]
    assert results(server, {"$listLocalSessions": {}}, 1) == found


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
    ],
)
def test_refusals(server: Running, stage: Document, collection: object, code: int) -> None:
    assert refusal(server, stage, collection) == code
