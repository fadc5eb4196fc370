"""Hashed, wildcard and prepared indexes through PyMongo: made, listed, used, hinted, explained, kept over a restart."""

from pathlib import Path
from typing import Any

import pymongo
import pytest
from bson import Int64
from pymongo import HASHED, IndexModel
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError, OperationFailure

import mongottl

Documents = dict[str, Any]


def scan_of(plan: Documents) -> Documents:
    """The IXSCAN of an explained plan."""
    stage = plan["queryPlanner"]["winningPlan"]
    while "inputStage" in stage:
        stage = stage["inputStage"]
    assert stage["stage"] == "IXSCAN"
    found: Documents = stage
    return found


def test_hashed(database: Database[Documents]) -> None:
    things = database.things
    assert things.create_index([("user", HASHED), ("at", -1)]) == "user_hashed_at_-1"
    things.insert_many([{"_id": number, "user": f"u{number % 5}", "at": number} for number in range(20)])
    found = things.find({"user": "u3"}).sort("at", -1)
    plan = things.find({"user": "u3"}).sort("at", -1).explain()
    assert [document["_id"] for document in found] == [18, 13, 8, 3]
    assert plan["queryPlanner"]["winningPlan"]["stage"] == "FETCH"
    assert scan_of(plan)["keyPattern"] == {"user": "hashed", "at": -1}
    [answer] = things.aggregate([{"$match": {"_id": 3}}, {"$project": {"hash": {"$toHashedIndexKey": "$user"}}}])
    assert isinstance(answer["hash"], Int64)
    assert scan_of(plan)["indexBounds"]["user"] == [f"[{answer['hash']}, {answer['hash']}]"]
    with pytest.raises(OperationFailure) as caught:
        things.insert_one({"user": ["a"]})
    assert caught.value.code == 16766


def test_hashed_over_arrays_that_are_there(database: Database[Documents]) -> None:
    database.things.insert_one({"a": [1]})
    with pytest.raises(OperationFailure) as caught:
        database.things.create_index([("a", HASHED)])
    assert caught.value.code == 16766
    assert list(database.things.index_information()) == ["_id_"]


def test_wildcard(database: Database[Documents]) -> None:
    things = database.things
    things.create_index("$**", wildcardProjection={"note": 0})
    things.insert_many(
        [
            {"_id": 1, "size": {"height": 5, "width": 7}, "tags": ["a", "b"], "note": "x"},
            {"_id": 2, "size": {"height": 6}, "tags": [{"name": "c"}], "note": "y"},
            {"_id": 3},
        ]
    )
    filters: list[tuple[Documents, list[int]]] = [
        ({"size.height": {"$gte": 5}}, [1, 2]),
        ({"size.width": {"$exists": True}}, [1]),
        ({"size": {"$exists": True}}, [1, 2]),
        ({"tags": "b"}, [1]),
        ({"tags.name": "c"}, [2]),
    ]
    for filter, expected in filters:
        assert sorted(found["_id"] for found in things.find(filter, hint="$**_1")) == expected
        assert scan_of(things.find(filter).explain())["indexName"] == "$**_1"
    for refused in ({"note": "x"}, {"size.width": None}, {}):
        with pytest.raises(OperationFailure) as caught:
            list(things.find(refused, hint=[("$**", 1)]))
        assert caught.value.code == 291
    with pytest.raises(OperationFailure) as caught:
        things.create_index("$**", unique=True, name="unique")
    assert caught.value.code == 67


def test_a_wildcard_index_is_not_used_for_a_path_with_a_dot_at_its_end(database: Database[Documents]) -> None:
    """Such a path reaches arrays, whose keys are at the path without the dot."""
    things = database.things
    things.insert_many([{"_id": 1, "tags": ["a", "b"]}, {"_id": 2, "tags": {"": "a"}}, {"_id": 3, "tags": "a"}])
    for filter in ({"tags.": "a"}, {"tags.": {"$exists": True}}, {"tags.": {"$in": ["a"]}}):
        expected = [found["_id"] for found in things.find(filter)]
        assert expected == [1, 2]
        things.create_index("$**")
        assert [found["_id"] for found in things.find(filter)] == expected
        things.drop_index("$**_1")


def test_kinds_survive_a_restart(tmp_path: Path) -> None:
    with mongottl.start_server(data_dir=str(tmp_path)) as server, pymongo.MongoClient[Documents](server.uri) as client:
        things = client.db.things
        things.create_indexes(
            [
                IndexModel([("a", HASHED)]),
                IndexModel([("b", 1), ("c.$**", 1)]),
                IndexModel("u", prepareUnique=True),
                IndexModel([("t", 1), ("n", 1)]),
            ]
        )
        things.insert_one({"_id": 1, "a": 1, "b": 1, "c": {"d": [1, 2]}, "u": 1, "t": [1], "n": 1})
        client.db.command("collMod", "things", index={"name": "u_1", "unique": True})
    with mongottl.start_server(data_dir=str(tmp_path)) as server, pymongo.MongoClient[Documents](server.uri) as client:
        things = client.db.things
        assert things.find_one({"a": 1}, hint="a_hashed") is not None
        assert things.find_one({"b": 1, "c.d": 2}, hint="b_1_c.$**_1") is not None
        scan = scan_of(things.find({"t": 1, "n": 1}).explain())
        assert scan["multiKeyPaths"] == {"t": ["t"], "n": []}
        assert things.index_information()["u_1"]["unique"] is True
        with pytest.raises(DuplicateKeyError):
            things.insert_one({"u": 1})
