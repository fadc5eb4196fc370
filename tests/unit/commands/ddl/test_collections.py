from typing import Any

import pytest
from bson import Binary, Int64

from tests.running import Running


@pytest.fixture
def running() -> Running:
    return Running()


def names(running: Running, database: str = "test", **options: Any) -> list[str]:
    return [c["name"] for c in running.listed({"listCollections": 1, **options}, database)]


# create


def test_creating_a_collection(running: Running) -> None:
    assert running.run({"create": "c"}) == {}
    assert names(running) == ["c"]
    assert running.index_names() == ["_id_"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"capped": False},
        {"idIndex": {"key": {"_id": 1}, "name": "_id_", "v": 2}},
        {"collation": {"locale": "simple"}},
        {"autoIndexId": True},
        {"storageEngine": {}},
        {"indexOptionDefaults": {}},
        {"capped": 0},
        {"validator": {}},
        {"validator": None},
        {"changeStreamPreAndPostImages": {"enabled": False}},
    ],
)
def test_options_that_ask_for_what_is_so_anyhow(running: Running, options: dict[str, Any]) -> None:
    running.run({"create": "c", **options})
    running.run({"create": "c"})
    assert running.listed({"listCollections": 1})[0]["options"] == {}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"capped": True, "size": 0}, 2),
        ({"size": 4096}, 72),
        ({"max": 1}, 72),
        ({"size": "1"}, 14),
        ({"pipeline": []}, 72),
        ({"expireAfterSeconds": 1}, 72),
        ({"collation": {"locale": "xx"}}, 2),
        ({"collation": {"strength": 1}}, 40414),
        ({"idIndex": {"key": {"a": 1}, "name": "_id_"}}, 2),
        ({"autoIndexId": False}, 72),
        ({"unknown": 1}, 40415),
        ({"capped": "yes"}, 14),
    ],
)
def test_options_that_are_refused(running: Running, options: dict[str, Any], expected: int) -> None:
    assert running.code({"create": "c", **options}) == expected
    assert names(running) == []


@pytest.mark.parametrize(
    ("database", "name", "expected"),
    [("test", "", 73), ("test", "a$b", 73), ("test", ".a", 73), ("test", "system.x", 73), ("a b", "c", 73)],
)
def test_names_that_are_refused(running: Running, database: str, name: str, expected: int) -> None:
    assert running.code({"create": name}, database) == expected


def test_a_database_name_in_another_case_is_refused(running: Running) -> None:
    running.run({"create": "c"}, "Shop")
    assert running.code({"create": "c"}, "shop") == 13297


# drop


def test_dropping_a_collection(running: Running) -> None:
    running.insert({"_id": 1})
    running.index({"a": 1})
    assert running.run({"drop": "c"}) == {"nIndexesWas": 2, "ns": "test.c"}
    assert names(running) == []
    assert running.engine.idents() == []
    assert running.run({"drop": "c"}) == {}


def test_dropping_closes_cursors(running: Running) -> None:
    running.insert({"_id": 1}, {"_id": 2}, {"_id": 3})
    cursor = running.run({"find": "c", "batchSize": 1})["cursor"]
    running.run({"drop": "c"})
    error = running.refusal({"getMore": Int64(cursor["id"]), "collection": "c"})
    assert (error.code, error.message[:18]) == (175, "collection dropped")
    assert running.code({"getMore": Int64(cursor["id"]), "collection": "c"}) == 43
    assert len(running.service.cursors) == 0


def test_a_collection_is_found_by_its_uuid(running: Running) -> None:
    running.run({"create": "cc"})
    running.run({"create": "d"})
    uuid = running.listed({"listCollections": 1})[0]["info"]["uuid"]
    error = running.refusal({"drop": "d", "collectionUUID": Binary(uuid, 4)})
    assert error.code == 361
    assert error.details["actualCollection"] == "cc"
    assert running.refusal({"drop": "d", "collectionUUID": Binary(b"x" * 16, 4)}).details["actualCollection"] is None
    assert running.code({"drop": "cc", "collectionUUID": "x"}) == 14
    assert running.code({"drop": "cc", "collectionUUID": Binary(b"x" * 16, 0)}) == 14
    assert running.code({"drop": "cc", "collectionUUID": Binary(b"x", 4)}) == 207
    assert running.run({"drop": "cc", "collectionUUID": Binary(uuid, 4)})["ns"] == "test.cc"


# renameCollection


def rename(source: str, to: str, **options: Any) -> dict[str, Any]:
    return {"renameCollection": source, "to": to, **options}


def test_renaming_a_collection(running: Running) -> None:
    running.insert({"_id": 1, "a": 1})
    running.index({"a": 1}, unique=True)
    assert running.run(rename("test.c", "test.d"), "admin") == {}
    assert names(running) == ["d"]
    assert running.ids("d") == [1]
    assert running.index_names("d") == ["_id_", "a_1"]
    error = running.run({"insert": "d", "documents": [{"_id": 2, "a": 1}]})["writeErrors"][0]
    assert "collection: test.d" in error["errmsg"]


def test_renaming_into_another_database(running: Running) -> None:
    running.insert({"_id": 1, "ttl": 7})
    running.index({"_ts": 1}, expireAfterSeconds=5)
    running.run(rename("test.c", "shop.c"), "admin")
    assert names(running) == []
    assert running.index_names("c", "shop") == ["_id_", "_ts_1"]
    running.advance(7)
    assert running.reap() == 1


def test_renaming_onto_another_collection(running: Running) -> None:
    running.insert({"_id": 1})
    running.insert({"_id": 2}, into="d")
    assert running.code(rename("test.c", "test.d"), "admin") == 48
    assert running.ids("d") == [2]
    running.run(rename("test.c", "test.d", dropTarget=True), "admin")
    assert names(running) == ["d"]
    assert running.ids("d") == [1]
    assert len(running.engine.idents()) == 2


def test_renaming_over_a_target_that_is_named_by_its_uuid(running: Running) -> None:
    running.insert({"_id": 1}, into="c")
    running.insert({"_id": 2}, into="d")
    running.run(rename("test.c", "test.d", dropTarget=Binary(running.collection("d").uuid.data, 4)), "admin")
    assert running.ids("d") == [1]


def test_renaming_never_drops_a_time_series_collection(running: Running) -> None:
    running.insert({"_id": 1}, into="c")
    running.run({"create": "s", "timeseries": {"timeField": "t"}})
    assert running.code(rename("test.c", "test.s", dropTarget=True), "admin") == 48


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (rename("test.none", "test.d"), 26),
        (rename("test.c", "test.c"), 20),
        (rename("test.c", "test.d$"), 20),
        (rename("test.c", "test.system.x"), 20),
        (rename("test.system.js", "test.d"), 20),
        (rename("test.c", "local.oplog.rs"), 20),
        (rename("test.c", "test." + "x" * 251), 20),
        (rename("test.c", "test.d", dropTarget=None), 14),
        (rename("test.c", "test.d", dropTarget=Binary(bytes(16), 3)), 207),
        (rename("test.c", "test.d", dropTarget=Binary(bytes(16), 4)), 361),
        (rename("test.none", "test.d", dropTarget=Binary(bytes(16), 4)), 361),
        (rename("test.c", "other.d", dropTarget=Binary(bytes(16), 4)), 72),
        (rename("test.c", "test"), 73),
        (rename("test", "test.d"), 73),
        (rename("test.c", "Test.d"), 13297),
        (rename("test.c", "test.d", stayTemp=1), 14),
        ({"renameCollection": "test.c"}, 40414),
        ({"renameCollection": 1, "to": "test.d"}, 14),
    ],
)
def test_renames_that_are_refused(running: Running, command: dict[str, Any], expected: int) -> None:
    running.run({"create": "c"})
    assert running.code(command, "admin") == expected
    assert names(running) == ["c"]


def test_no_rename_while_an_index_is_built(running: Running) -> None:
    running.insert(*({"_id": i} for i in range(300)))
    running.run({"create": "d"})
    steps = running.steps({"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]})
    next(steps)
    assert running.code(rename("test.c", "test.e"), "admin") == 12587
    assert running.code(rename("test.d", "test.c", dropTarget=True), "admin") == 12587
    list(steps)
    running.run(rename("test.c", "test.e"), "admin")


# listCollections


def test_collections_are_described(running: Running) -> None:
    running.run({"create": "b"})
    running.run({"create": "a"})
    reply = running.run({"listCollections": 1})
    assert reply["cursor"]["ns"] == "test.$cmd.listCollections"
    first = reply["cursor"]["firstBatch"][0]
    assert list(first) == ["name", "type", "options", "info", "idIndex"]
    assert (first["name"], first["type"], first["options"]) == ("a", "collection", {})
    assert first["info"]["readOnly"] is False
    assert first["info"]["uuid"].subtype == 4
    assert first["idIndex"] == {"v": 2, "key": {"_id": 1}, "name": "_id_"}


def test_names_alone(running: Running) -> None:
    running.run({"create": "a"})
    assert running.listed({"listCollections": 1, "nameOnly": True}) == [{"name": "a", "type": "collection"}]


def test_a_database_without_collections(running: Running) -> None:
    assert running.run({"listCollections": 1}, "none")["cursor"]["firstBatch"] == []


@pytest.mark.parametrize(
    ("filter", "found"),
    [
        ({"name": "a"}, ["a"]),
        ({"name": {"$ne": "a"}}, ["b"]),
        ({"type": "view"}, []),
        ({"options.capped": {"$exists": False}}, ["a", "b"]),
        ({"info.readOnly": False}, ["a", "b"]),
    ],
)
def test_collections_are_filtered(running: Running, filter: dict[str, Any], found: list[str]) -> None:
    running.run({"create": "b"})
    running.run({"create": "a"})
    assert names(running, filter=filter) == found


@pytest.mark.parametrize("batch_size", [0, 1, 2, 100])
def test_collections_come_in_pages(running: Running, batch_size: int) -> None:
    for name in ("a", "b", "c"):
        running.run({"create": name})
    first = running.run({"listCollections": 1, "cursor": {"batchSize": batch_size}})["cursor"]
    assert len(first["firstBatch"]) == min(batch_size, 3)
    assert bool(first["id"]) == (batch_size < 3)
    running.run({"killCursors": "$cmd.listCollections", "cursors": [Int64(first["id"])]})
    assert names(running, cursor={"batchSize": batch_size}) == ["a", "b", "c"]


def test_all_collections_come_at_once_by_default(running: Running) -> None:
    for number in range(120):
        running.run({"create": f"c{number}"})
    assert len(running.run({"listCollections": 1})["cursor"]["firstBatch"]) == 120


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"cursor": {"batchSize": -1}}, 2),
        ({"cursor": {"batchSize": "1"}}, 14),
        ({"cursor": {"other": 1}}, 40415),
        ({"cursor": 1}, 14),
        ({"filter": 1}, 14),
        ({"filter": {"$foo": 1}}, 2),
        ({"authorizedCollections": 1}, 14),
        ({"unknown": 1}, 40415),
    ],
)
def test_bad_listings(running: Running, options: dict[str, Any], expected: int) -> None:
    assert running.code({"listCollections": 1, **options}) == expected


# collStats


def test_statistics_of_a_collection(running: Running) -> None:
    running.insert(*({"_id": i, "a": [i, i]} for i in range(100)))
    running.index({"a": 1})
    reply = running.run({"collStats": "c"})
    assert reply["ns"] == "test.c"
    assert reply["count"] == 100
    assert reply["size"] == reply["storageSize"] == 100 * reply["avgObjSize"]
    assert reply["numOrphanDocs"] == 0
    assert reply["capped"] is False
    assert reply["nindexes"] == 2
    assert set(reply["indexSizes"]) == set(reply["indexDetails"]) == {"_id_", "a_1"}
    assert reply["totalIndexSize"] == sum(reply["indexSizes"].values()) > 0
    assert reply["totalSize"] == reply["size"] + reply["totalIndexSize"]
    assert reply["indexBuilds"] == []
    assert reply["scaleFactor"] == 1
    scaled = running.run({"collStats": "c", "scale": 1000})
    assert scaled["size"] == reply["size"] // 1000
    assert scaled["avgObjSize"] == reply["avgObjSize"]


def test_statistics_of_a_collection_that_does_not_exist(running: Running) -> None:
    reply = running.run({"collStats": "none"})
    assert (reply["ns"], reply["count"], reply["size"], reply["nindexes"]) == ("test.none", 0, 0, 0)


def test_statistics_count_unexpired_documents_only(running: Running) -> None:
    running.index({"_ts": 1}, expireAfterSeconds=10)
    running.insert({"_id": 1}, {"_id": 2, "ttl": 5}, {"_id": 3, "ttl": -1})
    for seconds, count in ((4, 3), (1, 2), (5, 1), (100, 1)):
        running.advance(seconds)
        assert running.run({"collStats": "c"})["count"] == count
    assert running.reap() == 2
    assert running.run({"collStats": "c"})["count"] == 1


def test_statistics_name_the_indexes_under_construction(running: Running) -> None:
    running.insert(*({"_id": i} for i in range(300)))
    steps = running.steps({"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]})
    next(steps)
    assert running.run({"collStats": "c"})["indexBuilds"] == ["a_1"]
    steps.close()
