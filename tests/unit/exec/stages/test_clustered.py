"""Clustered collections. Source: MongoDB's "Clustered Collections" page."""

from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest

from mongottl.storage.contract import ContractEngine
from mongottl.storage.opening import open_engine
from tests.running import START_MS, Document, Running

CLUSTERED: Document = {"key": {"_id": 1}, "unique": True}


@pytest.fixture(params=["sqlite", "memory"])
def server(request: pytest.FixtureRequest) -> Running:
    running = Running(ContractEngine(open_engine(f"{request.param}:")))
    assert running.run({"create": "c", "clusteredIndex": CLUSTERED}) == {}
    return running


def found(server: Running, **options: Any) -> list[Any]:
    return [document["_id"] for document in server.listed({"find": "c", **options})]


def stage_of(server: Running, **options: Any) -> Document:
    plan: Document = server.run({"explain": {"find": "c", **options}})["queryPlanner"]["winningPlan"]
    return plan


def test_the_natural_order_is_that_of_the_id(server: Running) -> None:
    server.insert({"_id": 5}, {"_id": 1}, {"_id": 3})
    assert found(server) == [1, 3, 5]
    assert found(server, sort={"$natural": -1}) == [5, 3, 1]
    assert found(server, filter={"x": None}) == [1, 3, 5]
    assert found(server, batchSize=1) == [1, 3, 5]
    server.insert({"_id": "a"}, {"_id": 4})
    assert found(server, hint={"$natural": 1}) == [1, 3, 4, 5, "a"]


def test_many_documents(server: Running) -> None:
    server.insert(*({"_id": number * 7 % 1000, "x": number % 2} for number in range(1000)))
    assert found(server) == list(range(1000))
    assert len(found(server, filter={"x": 1})) == 500
    assert server.run({"count": "c", "query": {"x": 1}}) == {"n": 500}
    assert server.run({"delete": "c", "deletes": [{"q": {"x": 1}, "limit": 0}]}) == {"n": 500}
    assert server.run({"update": "c", "updates": [{"q": {}, "u": {"$inc": {"x": 2}}, "multi": True}]})["n"] == 500


def test_ids_are_unique(server: Running) -> None:
    server.insert({"_id": 1})
    reply = server.run({"insert": "c", "documents": [{"_id": 1}]})
    assert reply["writeErrors"][0]["code"] == 11000


@pytest.mark.parametrize(("number", "code"), [("nan", 50819), ("inf", 50826), ("-inf", 50826)])
def test_duplicates_that_mongod_cannot_name(server: Running, number: str, code: int) -> None:
    server.insert({"_id": float(number)})
    for again in (float(number), bson.Decimal128(number)):
        reply = server.run({"insert": "c", "documents": [{"_id": again}]})
        assert [error["code"] for error in reply["writeErrors"]] == [code]


def test_an_id_may_not_be_too_long(server: Running) -> None:
    long = "x" * (8 << 20)
    reply = server.run({"insert": "c", "documents": [{"_id": 1}, {"_id": long}]})
    assert [(error["index"], error["code"]) for error in reply["writeErrors"]] == [(1, 5894900)]
    server.insert({"_id": 2, "x": long})
    assert server.ids() == [1, 2]


def test_plans(server: Running) -> None:
    server.insert(*({"_id": number} for number in range(10)))
    assert stage_of(server)["stage"] == "COLLSCAN"
    assert stage_of(server, filter={"_id": 3})["stage"] == "EXPRESS_CLUSTERED_IXSCAN"
    scan = stage_of(server, filter={"_id": {"$gte": 2, "$lt": 5}})
    assert (scan["stage"], scan["minRecord"], scan["maxRecord"]) == ("CLUSTERED_IXSCAN", 2, 5)
    assert found(server, filter={"_id": {"$gte": 2, "$lt": 5}}) == [2, 3, 4]
    assert found(server, hint={"_id": 1}, sort={"_id": -1}, limit=2) == [9, 8]


def test_listing(server: Running) -> None:
    [entry] = server.listed({"listCollections": 1})
    shown = {"v": 2, "key": {"_id": 1}, "name": "_id_", "unique": True}
    assert entry["options"] == {"clusteredIndex": shown}
    assert "idIndex" not in entry
    assert server.listed({"listIndexes": "c"}) == [{**shown, "clustered": True}]
    assert server.run({"collStats": "c"})["clustered"] is True


def test_a_name_of_its_own(server: Running) -> None:
    server.run({"create": "d", "clusteredIndex": {**CLUSTERED, "name": "mine"}})
    server.insert({"_id": 2}, {"_id": 1}, into="d")
    assert server.index_names("d") == ["mine"]
    assert [document["_id"] for document in server.listed({"find": "d", "hint": "mine"})] == [1, 2]


def test_the_index_cannot_be_dropped(server: Running) -> None:
    server.index({"x": 1})
    assert server.code({"dropIndexes": "c", "index": "_id_"}) == 5979800
    assert server.code({"dropIndexes": "c", "index": {"_id": 1}}) == 5979800
    server.run({"dropIndexes": "c", "index": "*"})
    assert server.index_names() == ["_id_"]


def test_secondary_indexes(server: Running) -> None:
    server.index({"x": 1})
    server.insert({"_id": 2, "x": 1}, {"_id": 1, "x": 2})
    assert found(server, sort={"x": 1}) == [2, 1]


def test_expiry_by_the_id(server: Running) -> None:
    now = datetime.fromtimestamp(START_MS / 1000, UTC)
    server.run({"create": "d", "clusteredIndex": CLUSTERED, "expireAfterSeconds": 60})
    [entry] = server.listed({"listCollections": 1, "filter": {"name": "d"}})
    assert entry["options"]["expireAfterSeconds"] == 60
    assert server.listed({"listIndexes": "d"})[0]["expireAfterSeconds"] == 60
    server.insert({"_id": now}, {"_id": now + timedelta(seconds=30)}, {"_id": "never"}, into="d")
    server.advance(61)  # it falls due in the middle of a second
    assert server.reap() == 1
    server.advance(30)
    assert server.reap() == 1
    assert [document["_id"] for document in server.listed({"find": "d"})] == ["never"]


def test_changing_the_expiry(server: Running) -> None:
    now = datetime.fromtimestamp(START_MS / 1000, UTC)
    server.insert({"_id": now}, {"_id": now + timedelta(seconds=100)})
    assert server.run({"collMod": "c", "expireAfterSeconds": 60}) == {}
    assert server.listed({"listIndexes": "c"})[0]["expireAfterSeconds"] == 60
    server.advance(61)
    assert server.reap() == 1
    assert server.run({"collMod": "c", "expireAfterSeconds": "off"}) == {}
    assert "expireAfterSeconds" not in server.listed({"listIndexes": "c"})[0]
    server.advance(1000)
    assert server.reap() == 0


def test_the_index_is_none_for_coll_mod(server: Running) -> None:
    assert server.code({"collMod": "c", "index": {"keyPattern": {"_id": 1}, "expireAfterSeconds": 10}}) == 27
    assert server.code({"collMod": "c", "index": {"name": "_id_", "expireAfterSeconds": 10}}) == 27
    assert server.code({"collMod": "c", "index": {"keyPattern": {"_id": 1}, "hidden": True}}) == 6011800


def test_a_capped_copy_is_in_the_order_of_insertion_from_then_on(server: Running) -> None:
    server.insert({"_id": 2}, {"_id": 1})
    server.run({"convertToCapped": "c", "size": 1000})
    [entry] = server.listed({"listCollections": 1})
    assert entry["options"] == {"capped": True, "size": 1000}
    server.insert({"_id": 0})
    assert found(server)[-1] == 0


def test_clustered_collection_survives_a_restart(tmp_path: Any) -> None:
    first = Running(open_engine(f"sqlite:{tmp_path}"))
    first.run({"create": "c", "clusteredIndex": CLUSTERED})
    first.insert({"_id": 2}, {"_id": 1})
    first.engine.close()
    second = Running(open_engine(f"sqlite:{tmp_path}"))
    second.insert({"_id": 0})
    assert found(second) == [0, 1, 2]
    second.engine.close()
