"""Setting, changing and dropping a collection's default: the index on `_ts`."""

import math
from typing import Any

import pytest
from bson import Decimal128, Int64
from pymongo.errors import OperationFailure

from tests.drivers.ttl.conftest import Bench
from tests.replies import without_times


def create(bench: Bench, value: Any, key: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"key": key or {"_ts": 1}, "name": "_ts_1", "expireAfterSeconds": value, **options}
    return bench.database.command({"createIndexes": "documents", "indexes": [spec]})


def listed(bench: Bench) -> list[dict[str, Any]]:
    return [dict(index) for index in bench.collection.list_indexes()]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1, 1),
        (10, 10),
        (-1, -1),
        (2147483647, 2147483647),
        (Int64(1), 1),
        (Int64(-1), -1),
        (Int64(2147483647), 2147483647),
        (1.0, 1),
        (-1.0, -1),
        (10.0, 10),
        (2147483647.0, 2147483647),
    ],
    ids=repr,
)
def test_accepted_defaults(bench: Bench, value: Any, shown: int) -> None:
    reply = create(bench, value)
    assert without_times(reply) == {
        "numIndexesBefore": 1,
        "numIndexesAfter": 2,
        "createdCollectionAutomatically": True,
        "ok": 1.0,
    }
    [_, index] = listed(bench)
    assert index["expireAfterSeconds"] == shown
    assert index["key"] == {"_ts": 1}
    assert index["name"] == "_ts_1"


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (0, 2),
        (0.0, 2),
        (Int64(0), 2),
        (-2, 2),
        (-1.5, 2),
        (0.5, 2),
        (10.5, 2),
        (2147483648.0, 2),
        (Int64(2147483648), 2),
        (Int64(-(2**40)), 2),
        (math.nan, 2),
        (math.inf, 2),
        (-math.inf, 2),
        ("10", 14),
        (True, 14),
        (None, 14),
        ([10], 14),
        ({"s": 10}, 14),
        (Decimal128("10"), 14),
    ],
    ids=repr,
)
def test_refused_defaults_change_nothing(bench: Bench, value: Any, code: int) -> None:
    bench.collection.insert_one({"_id": 1})
    with pytest.raises(OperationFailure) as refusal:
        create(bench, value)
    assert refusal.value.code == code
    assert [index["name"] for index in listed(bench)] == ["_id_"]
    bench.advance(10**9)
    assert bench.ids() == [1]


def test_a_refused_default_creates_no_collection(bench: Bench) -> None:
    with pytest.raises(OperationFailure):
        create(bench, 0)
    assert bench.database.list_collection_names() == []


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ({"_ts": "hashed"}, {}),
        ({"_ts": 1, "a": 1}, {}),
        ({"a": 1, "_ts": 1}, {}),
        ({"_ts": 1}, {"unique": True}),
    ],
    ids=repr,
)
def test_forms_that_cannot_be_a_default(bench: Bench, key: dict[str, Any], options: dict[str, Any]) -> None:
    with pytest.raises(OperationFailure) as refusal:
        create(bench, 10, key, **options)
    assert refusal.value.code == 67


def test_a_descending_index_is_a_default_too(bench: Bench) -> None:
    create(bench, 10, {"_ts": -1})
    bench.collection.insert_one({"_id": 1})
    bench.advance(10)
    assert bench.ids() == []


def test_repeating_the_same_default_is_a_no_op(bench: Bench) -> None:
    create(bench, 10)
    for value in (10, Int64(10), 10.0):
        reply = create(bench, value)
        assert reply["numIndexesBefore"] == reply["numIndexesAfter"] == 2
        assert reply["note"] == "all indexes already exist"


def test_another_value_conflicts(bench: Bench) -> None:
    create(bench, 10)
    with pytest.raises(OperationFailure) as refusal:
        create(bench, 20)
    assert refusal.value.code == 85
    assert refusal.value.details is not None
    assert refusal.value.details["codeName"] == "IndexOptionsConflict"
    assert listed(bench)[1]["expireAfterSeconds"] == 10


def test_a_plain_index_on_ts_sets_no_default(bench: Bench) -> None:
    bench.collection.create_index("_ts")
    bench.collection.insert_one({"_id": 1, "ttl": 1})
    bench.advance(10**9)
    assert bench.ids() == [1]


@pytest.mark.parametrize("by", ["keyPattern", "name"])
def test_coll_mod_changes_the_default(bench: Bench, by: str) -> None:
    create(bench, 100)
    bench.collection.insert_many([{"_id": "default"}, {"_id": "own", "ttl": 50}])
    index = {"keyPattern": {"_ts": 1}} if by == "keyPattern" else {"name": "_ts_1"}
    reply = bench.database.command({"collMod": "documents", "index": {**index, "expireAfterSeconds": 10}})
    assert reply["expireAfterSeconds_old"] == 100
    assert reply["expireAfterSeconds_new"] == 10
    assert listed(bench)[1]["expireAfterSeconds"] == 10
    bench.advance(9)
    assert bench.ids() == ["default", "own"]
    bench.advance(1)
    assert bench.ids() == ["own"]
    bench.advance(40)
    assert bench.ids() == []


@pytest.mark.parametrize(("value", "code"), [(0, 2), (-2, 2), (1.5, 2), ("1", 14), (Int64(2147483648), 2)], ids=repr)
def test_coll_mod_refuses_what_create_refuses(bench: Bench, value: Any, code: int) -> None:
    create(bench, 10)
    with pytest.raises(OperationFailure) as refusal:
        bench.database.command({"collMod": "documents", "index": {"name": "_ts_1", "expireAfterSeconds": value}})
    assert refusal.value.code == code
    assert listed(bench)[1]["expireAfterSeconds"] == 10


def test_lowering_the_default_takes_effect_at_once(bench: Bench) -> None:
    create(bench, 1000)
    bench.collection.insert_one({"_id": 1})
    bench.advance(500)
    assert bench.ids() == [1]
    bench.database.command({"collMod": "documents", "index": {"name": "_ts_1", "expireAfterSeconds": 500}})
    assert bench.ids() == []


def test_minus_one_keeps_the_documents_own_ttl_working(bench: Bench) -> None:
    create(bench, 10)
    bench.collection.insert_many([{"_id": "default"}, {"_id": "own", "ttl": 20}])
    bench.database.command({"collMod": "documents", "index": {"name": "_ts_1", "expireAfterSeconds": -1}})
    bench.advance(19)
    assert bench.ids() == ["default", "own"]
    bench.advance(1)
    assert bench.ids() == ["default"]


@pytest.mark.parametrize("how", ["name", "key", "all"])
def test_dropping_the_index_switches_ttl_off(bench: Bench, how: str) -> None:
    create(bench, 10)
    bench.collection.insert_many([{"_id": "default"}, {"_id": "own", "ttl": 5}])
    index: Any = {"name": "_ts_1", "key": {"_ts": 1}, "all": "*"}[how]
    reply = bench.database.command({"dropIndexes": "documents", "index": index})
    assert reply["nIndexesWas"] == 2
    bench.advance(10**9)
    assert bench.ids() == ["default", "own"]


def test_switching_on_again_counts_from_the_last_write(bench: Bench) -> None:
    """A `ttl` written while TTL is off is dormant; it counts from the document's `_ts`, not from the switch."""
    bench.collection.insert_many([{"_id": "old", "ttl": 10}, {"_id": "plain"}])
    bench.advance(8)
    bench.collection.insert_one({"_id": "new", "ttl": 10})
    bench.advance(3)
    assert bench.ids() == ["new", "old", "plain"]
    bench.set_default(-1)
    assert bench.ids() == ["new", "plain"]
    bench.advance(7)
    assert bench.ids() == ["plain"]


def test_dropping_before_the_purge_brings_documents_back(bench: Bench) -> None:
    bench.set_default(10)
    bench.collection.insert_many([{"_id": 1}, {"_id": 2, "ttl": 5}])
    bench.advance(10)
    assert bench.ids() == []
    bench.drop_default()
    assert bench.ids() == ([] if bench.purged else [1, 2])


def test_raising_before_the_purge_brings_documents_back(bench: Bench) -> None:
    bench.set_default(10)
    bench.collection.insert_many([{"_id": 1}, {"_id": 2, "ttl": 5}])
    bench.advance(10)
    assert bench.ids() == []
    bench.database.command({"collMod": "documents", "index": {"name": "_ts_1", "expireAfterSeconds": 100}})
    assert bench.ids() == ([] if bench.purged else [1])


def test_a_field_ts_of_the_client_is_ordinary_data(bench: Bench) -> None:
    bench.set_default(10)
    bench.collection.insert_many([{"_id": 1, "_ts": 0}, {"_id": 2, "_ts": 2**40}, {"_id": 3, "_ts": "x"}])
    assert [document["_ts"] for document in bench.collection.find().sort("_id")] == [0, 2**40, "x"]
    assert bench.collection.find_one({"_ts": 2**40}) == {"_id": 2, "_ts": 2**40}
    bench.advance(9)
    assert bench.ids() == [1, 2, 3]
    bench.advance(1)
    assert bench.ids() == []


def test_ts_is_never_shown(bench: Bench) -> None:
    bench.set_default(10)
    bench.collection.insert_one({"_id": 1})
    assert bench.collection.find_one() == {"_id": 1}
    assert bench.collection.find_one({}, {"_ts": 1}) == {"_id": 1}
    assert bench.collection.find_one({"_ts": {"$exists": True}}) is None
    assert list(bench.collection.aggregate([{"$project": {"_ts": 1}}])) == [{"_id": 1}]
