from typing import Any

import pytest
from bson import Decimal128, Int64

from mongottl.storage.opening import open_engine
from tests.running import Running


@pytest.fixture
def running() -> Running:
    return Running()


def names(running: Running, **options: Any) -> list[str]:
    reply = running.run({"listDatabases": 1, "nameOnly": True, **options}, "admin")
    assert set(reply) == {"databases"}
    return [database["name"] for database in reply["databases"]]


def test_the_databases_and_their_sizes(running: Running) -> None:
    running.insert({"_id": 1, "text": "x" * 1000})
    reply = running.run({"listDatabases": 1}, "admin")
    assert [database["name"] for database in reply["databases"]] == ["admin", "config", "local", "test"]
    test = reply["databases"][3]
    assert test["empty"] is False
    assert isinstance(test["sizeOnDisk"], Int64)
    assert 1000 < test["sizeOnDisk"] < 1200
    local = reply["databases"][2]  # has the oplog
    assert reply["totalSize"] == test["sizeOnDisk"] + local["sizeOnDisk"]
    assert reply["totalSizeMb"] == 0


def test_a_database_is_listed_while_it_has_a_collection(running: Running) -> None:
    running.run({"create": "c"}, "shop")
    assert "shop" in names(running)
    running.run({"drop": "c"}, "shop")
    assert "shop" not in names(running)


@pytest.mark.parametrize(
    ("filter", "found"),
    [
        ({"name": "test"}, ["test"]),
        ({"name": {"$regex": "^t"}}, ["test"]),
        ({"name": {"$in": ["test", "admin"]}}, ["admin", "test"]),
        ({"name": {"$gt": "local"}}, ["test"]),
        ({"name": "none"}, []),
        ({"unknown": 1}, []),
    ],
)
def test_databases_are_filtered(running: Running, filter: dict[str, Any], found: list[str]) -> None:
    running.run({"create": "c"})
    assert names(running, filter=filter) == found


def test_sizes_are_filtered_too(running: Running) -> None:
    running.insert({"_id": 1, "text": "x" * 1000})
    reply = running.run({"listDatabases": 1, "filter": {"sizeOnDisk": {"$gt": 500}}}, "admin")
    assert [database["name"] for database in reply["databases"]] == ["local", "test"]


def test_cosmos_shows_no_empty_databases() -> None:
    running = Running(dialect="cosmos")
    assert names(running) == []
    running.run({"create": "c"})
    assert names(running) == ["test"]


def test_dropping_a_database(running: Running) -> None:
    for name in ("a", "b", "c"):
        running.run({"create": name})
    running.run({"create": "a"}, "other")
    assert running.run({"dropDatabase": 1}) == {}
    assert "test" not in names(running)
    assert "other" in names(running)
    assert len(running.engine.idents()) == 2


def test_dropping_a_database_that_does_not_exist(running: Running) -> None:
    assert running.run({"dropDatabase": 1}) == {}


def test_collections_made_while_a_database_is_dropped_are_dropped_with_it(running: Running) -> None:
    """Else streams would see the drop of a database that is there. Those that were renamed away are left alone."""
    running.run({"create": "a"})
    running.run({"create": "b"})
    steps = running.steps({"dropDatabase": 1})
    next(steps)
    running.run({"create": "a"})
    running.run({"renameCollection": "test.b", "to": "other.b"}, "admin")
    list(steps)
    assert running.listed({"listCollections": 1}) == []
    assert [c["name"] for c in running.listed({"listCollections": 1}, "other")] == ["b"]


def test_dropping_a_database_closes_its_cursors(running: Running) -> None:
    running.insert({"_id": 1}, {"_id": 2}, {"_id": 3})
    cursor = running.run({"find": "c", "batchSize": 1})["cursor"]
    running.run({"dropDatabase": 1})
    assert running.code({"getMore": Int64(cursor["id"]), "collection": "c"}) == 175
    assert len(running.service.cursors) == 0


@pytest.mark.parametrize(("database", "expected"), [("admin", 20), ("local", 20), ("a b", 73)])
def test_databases_that_cannot_be_dropped(running: Running, database: str, expected: int) -> None:
    assert running.code({"dropDatabase": 1}, database) == expected


def test_drop_database_takes_1(running: Running) -> None:
    assert running.code({"dropDatabase": 2}) == 5255100
    assert running.code({"dropDatabase": True}) == 14


def test_statistics_of_a_database(running: Running) -> None:
    running.insert(*({"_id": i, "a": i} for i in range(10)))
    running.insert({"_id": 1}, into="d")
    running.index({"a": 1})
    reply = running.run({"dbStats": 1})
    assert list(reply) == [
        "db", "collections", "views", "objects", "avgObjSize", "dataSize", "storageSize", "indexes", "indexSize",
        "totalSize", "scaleFactor", "fsUsedSize", "fsTotalSize",
    ]  # fmt: skip
    assert reply["db"] == "test"
    assert (reply["collections"], reply["views"], reply["objects"], reply["indexes"]) == (2, 0, 11, 3)
    assert isinstance(reply["objects"], Int64)
    assert reply["dataSize"] == 10 * 21 + 14
    assert reply["avgObjSize"] == reply["dataSize"] / 11
    assert reply["indexSize"] > 0
    assert reply["totalSize"] == reply["dataSize"] + reply["indexSize"]


def test_statistics_of_nothing(running: Running) -> None:
    reply = running.run({"dbStats": 1}, "none")
    assert (reply["db"], reply["objects"], reply["avgObjSize"], reply["dataSize"]) == ("none", 0, 0.0, 0.0)


def test_statistics_count_living_documents(running: Running) -> None:
    running.insert({"_id": 1}, {"_id": 2, "ttl": -1})
    running.index({"_ts": 1}, expireAfterSeconds=5)
    running.advance(5)
    reply = running.run({"dbStats": 1})
    assert reply["objects"] == 1
    assert reply["dataSize"] > 14 * 2  # not purged yet
    running.reap()
    assert running.run({"dbStats": 1})["dataSize"] < reply["dataSize"]


@pytest.mark.parametrize("scale", [1024, 1024.9, Int64(1024), Decimal128("1024")])
def test_sizes_are_scaled(running: Running, scale: Any) -> None:
    running.insert({"_id": 1, "text": "x" * 10_000})
    plain = running.run({"dbStats": 1})
    scaled = running.run({"dbStats": 1, "scale": scale, "freeStorage": 1})
    assert scaled["dataSize"] == plain["dataSize"] / 1024
    assert scaled["avgObjSize"] == plain["avgObjSize"]
    assert scaled["scaleFactor"] == 1024
    assert scaled["totalFreeStorageSize"] == 0.0


@pytest.mark.parametrize(("scale", "expected"), [(0, 2), (-1, 2), (0.5, 2), (float("nan"), 2), ("1", 14), (True, 14)])
def test_scales_that_are_refused(running: Running, scale: Any, expected: int) -> None:
    assert running.code({"dbStats": 1, "scale": scale}) == expected
    assert running.code({"collStats": "c", "scale": scale}) == expected


def test_a_data_directory_has_a_file_system(tmp_path: Any) -> None:
    running = Running(open_engine(f"sqlite:{tmp_path}"))
    running.service.config.data_dir = str(tmp_path)
    reply = running.run({"dbStats": 1})
    assert 0 < reply["fsUsedSize"] <= reply["fsTotalSize"]
    running.engine.close()
