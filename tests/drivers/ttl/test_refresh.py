"""What restarts a document's lifetime: every write that matches it, and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest
from pymongo import MongoClient, UpdateOne
from pymongo.errors import DuplicateKeyError, WriteError

import mongottl
from tests.drivers.ttl.conftest import Bench, Documents

Write = Callable[[Documents], Any]

REFRESHING: dict[str, Write] = {
    "update_one": lambda c: c.update_one({"_id": 1}, {"$set": {"x": 1}}),
    "update_many": lambda c: c.update_many({}, {"$inc": {"n": 1}}),
    "unset": lambda c: c.update_one({"_id": 1}, {"$unset": {"n": 1}}),
    "push": lambda c: c.update_one({"_id": 1}, {"$push": {"list": 1}}),
    "replace": lambda c: c.replace_one({"_id": 1}, {"y": 1}),
    "replace by the same": lambda c: c.replace_one({"_id": 1}, {"n": 1}),
    "upsert that matches": lambda c: c.update_one({"_id": 1}, {"$set": {"x": 1}}, upsert=True),
    "find and update": lambda c: c.find_one_and_update({"_id": 1}, {"$set": {"x": 1}}),
    "find and replace": lambda c: c.find_one_and_replace({"_id": 1}, {"x": 1}),
    "pipeline": lambda c: c.update_one({"_id": 1}, [{"$set": {"x": 1}}]),
    "bulk": lambda c: c.bulk_write([UpdateOne({"_id": 1}, {"$set": {"x": 1}})]),
    "set to the same value": lambda c: c.update_one({"_id": 1}, {"$set": {"n": 1}}),
    "set on insert alone": lambda c: c.update_one({"_id": 1}, {"$setOnInsert": {"x": 1}}, upsert=True),
    "max that changes nothing": lambda c: c.update_many({}, {"$max": {"n": 0}}),
}


@pytest.mark.parametrize("name", REFRESHING)
def test_writes_restart_the_lifetime(bench: Bench, name: str) -> None:
    bench.set_default(10)
    bench.collection.insert_one({"_id": 1, "n": 1})
    bench.advance(9)
    REFRESHING[name](bench.collection)
    bench.advance(9)
    assert bench.ids() == [1]
    bench.advance(1)
    assert bench.ids() == []


NOT_REFRESHING: dict[str, Write] = {
    "find": lambda c: list(c.find()),
    "count": lambda c: c.count_documents({}),
    "aggregate": lambda c: list(c.aggregate([{"$match": {}}])),
    "distinct": lambda c: c.distinct("n"),
    "update that matches nothing": lambda c: c.update_many({"n": 99}, {"$set": {"x": 1}}),
    "delete that matches nothing": lambda c: c.delete_many({"n": 99}),
    "create an index": lambda c: c.create_index("n"),
    "explain of an update": lambda c: c.database.command(
        {"explain": {"update": c.name, "updates": [{"q": {"_id": 1}, "u": {"$set": {"x": 1}}}]}}
    ),
}


@pytest.mark.parametrize("name", NOT_REFRESHING)
def test_reads_and_misses_do_not(bench: Bench, name: str) -> None:
    bench.set_default(10)
    bench.collection.insert_one({"_id": 1, "n": 1})
    bench.advance(9)
    NOT_REFRESHING[name](bench.collection)
    bench.advance(1)
    assert bench.ids() == []


def test_a_failed_write_does_not(bench: Bench) -> None:
    bench.set_default(10)
    bench.collection.create_index("u", unique=True)
    bench.collection.insert_many([{"_id": 1, "u": 1}, {"_id": 2, "u": 2, "ttl": -1}])
    bench.advance(9)
    with pytest.raises(DuplicateKeyError):
        bench.collection.update_one({"_id": 1}, {"$set": {"u": 2}})
    with pytest.raises(WriteError):
        bench.collection.update_one({"_id": 1}, {"$set": {"_id": 3}})
    with pytest.raises(DuplicateKeyError):
        bench.collection.insert_one({"_id": 1})
    bench.advance(1)
    assert bench.ids() == [2]


def test_changing_the_ttl_counts_from_the_change(bench: Bench) -> None:
    bench.set_default(100)
    bench.collection.insert_one({"_id": 1, "ttl": 10})
    bench.advance(9)
    bench.collection.update_one({"_id": 1}, {"$set": {"ttl": 20}})
    bench.advance(19)
    assert bench.ids() == [1]
    bench.advance(1)
    assert bench.ids() == []


def test_removing_the_ttl_falls_back_to_the_default_from_now(bench: Bench) -> None:
    bench.set_default(30)
    bench.collection.insert_one({"_id": 1, "ttl": 10})
    bench.advance(9)
    bench.collection.update_one({"_id": 1}, {"$unset": {"ttl": 1}})
    bench.advance(29)
    assert bench.ids() == [1]
    bench.advance(1)
    assert bench.ids() == []


def test_an_update_can_make_a_ttl_meaningless(bench: Bench) -> None:
    bench.set_default(-1)
    bench.collection.insert_one({"_id": 1, "ttl": 10})
    bench.collection.update_one({"_id": 1}, {"$set": {"ttl": "10"}})
    bench.advance(10**8)
    assert bench.ids() == [1]
    bench.collection.update_one({"_id": 1}, {"$mul": {"n": 1}, "$set": {"ttl": 3}})
    bench.advance(3)
    assert bench.ids() == []


def test_without_the_switch_a_no_op_restarts_nothing() -> None:
    with mongottl.start_server(refresh_on_noop=False) as server, MongoClient[dict[str, Any]](server.uri) as client:
        collection = client["ttl"]["documents"]
        collection.create_index("_ts", expireAfterSeconds=10)
        collection.insert_many([{"_id": 1, "n": 1}, {"_id": 2, "n": 1}])
        server.clock.advance(9)
        collection.update_one({"_id": 1}, {"$set": {"n": 1}})
        collection.update_one({"_id": 2}, {"$set": {"n": 2}})
        server.clock.advance(1)
        assert [document["_id"] for document in collection.find()] == [2]
