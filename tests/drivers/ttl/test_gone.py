"""From its instant on, an expired document is gone for every command, purged or not."""

from typing import Any

import pytest
from pymongo import InsertOne, ReturnDocument, UpdateOne
from pymongo.errors import BulkWriteError, DuplicateKeyError

from tests.drivers.ttl.conftest import Bench
from tests.on_nodes import own_cursors


@pytest.fixture
def expired(bench: Bench) -> Bench:
    """Document 1 is expired, document 2 lives."""
    bench.collection.create_index("u", unique=True)
    bench.collection.create_index("a")
    bench.set_default(10)
    bench.collection.insert_many(
        [{"_id": 1, "u": "one", "a": 5, "body": "old"}, {"_id": 2, "u": "two", "a": 5, "ttl": -1}]
    )
    bench.advance(10)
    assert bench.stored() == (0 if bench.purged else 1)
    return bench


def test_find(expired: Bench) -> None:
    assert expired.ids() == [2]
    assert expired.collection.find_one({"_id": 1}) is None
    assert expired.collection.find_one({"u": "one"}) is None
    assert [d["_id"] for d in expired.collection.find({"a": 5})] == [2]
    assert [d["_id"] for d in expired.collection.find({"a": 5}).hint("a_1")] == [2]
    assert [d["_id"] for d in expired.collection.find({"body": "old"})] == []
    assert [d["_id"] for d in expired.collection.find().sort("a")] == [2]
    assert [d["_id"] for d in expired.collection.find({"_id": {"$in": [1, 2]}})] == [2]
    assert [d["_id"] for d in expired.collection.find({"$or": [{"a": 5}, {"u": "one"}]})] == [2]


def test_count(expired: Bench) -> None:
    assert expired.collection.estimated_document_count() == 1
    assert expired.database.command("count", "documents")["n"] == 1
    assert expired.database.command("count", "documents", query={"a": 5})["n"] == 1
    assert expired.database.command("count", "documents", query={"a": 5}, hint="a_1")["n"] == 1
    assert expired.collection.count_documents({}) == 1
    assert expired.collection.count_documents({"u": "one"}) == 0


def test_sizes(expired: Bench) -> None:
    assert expired.database.command("collStats", "documents")["count"] == 1
    assert expired.database.command("dbStats")["objects"] == 1


def test_distinct(expired: Bench) -> None:
    assert expired.collection.distinct("_id") == [2]
    assert expired.collection.distinct("body") == []
    assert expired.collection.distinct("u", {"a": 5}) == ["two"]


def test_aggregate(expired: Bench) -> None:
    assert list(expired.collection.aggregate([{"$group": {"_id": None, "n": {"$sum": 1}}}])) == [{"_id": None, "n": 1}]
    assert list(expired.collection.aggregate([{"$match": {"a": 5}}, {"$project": {"_id": 1}}])) == [{"_id": 2}]
    assert list(expired.collection.aggregate([{"$sort": {"_id": 1}}, {"$limit": 1}, {"$project": {"_id": 1}}])) == [
        {"_id": 2}
    ]
    assert list(expired.collection.aggregate([{"$count": "n"}])) == [{"n": 1}]


def test_text_search(expired: Bench) -> None:
    expired.collection.create_index([("u", "text")])
    search = {"$text": {"$search": "one two"}}
    score: dict[str, Any] = {"$meta": "textScore"}
    assert [d["_id"] for d in expired.collection.find(search)] == [2]
    assert [d["_id"] for d in expired.collection.find(search, {"s": score}).sort([("s", score)])] == [2]
    assert expired.collection.count_documents(search) == 1
    ranked = {"$rankFusion": {"input": {"pipelines": {"p": [{"$match": search}, {"$sort": {"_id": 1}}]}}}}
    assert [d["_id"] for d in expired.collection.aggregate([ranked])] == [2]


def test_update_matches_nothing(expired: Bench) -> None:
    for result in (
        expired.collection.update_one({"_id": 1}, {"$set": {"x": 1}}),
        expired.collection.update_many({"u": "one"}, {"$set": {"x": 1}}),
        expired.collection.replace_one({"_id": 1}, {"x": 1}),
    ):
        assert (result.matched_count, result.modified_count) == (0, 0)
    assert expired.collection.update_many({}, {"$set": {"x": 1}}).matched_count == 1
    assert expired.ids() == [2]


def test_upsert_inserts_anew(expired: Bench) -> None:
    result = expired.collection.update_one({"_id": 1}, {"$set": {"x": 1}, "$setOnInsert": {"u": "one"}}, upsert=True)
    assert result.upserted_id == 1
    assert result.raw_result is not None
    assert result.raw_result["n"] == 1
    assert not result.raw_result["updatedExisting"]
    assert expired.collection.find_one({"_id": 1}) == {"_id": 1, "x": 1, "u": "one"}
    expired.advance(9)
    assert expired.ids() == [1, 2]
    expired.advance(1)
    assert expired.ids() == [2]


def test_find_and_modify(expired: Bench) -> None:
    reply = expired.database.command({"findAndModify": "documents", "query": {"_id": 1}, "update": {"$set": {"x": 1}}})
    assert reply["value"] is None
    assert reply["lastErrorObject"] == {"n": 0, "updatedExisting": False}
    assert expired.collection.find_one_and_delete({"_id": 1}) is None
    assert expired.collection.find_one_and_replace({"u": "one"}, {"u": "new"}) is None
    upserted = expired.collection.find_one_and_update(
        {"_id": 1}, {"$set": {"u": "one"}}, upsert=True, return_document=ReturnDocument.AFTER
    )
    assert upserted == {"_id": 1, "u": "one"}


def test_find_and_modify_with_sort_takes_a_living_one(expired: Bench) -> None:
    found = expired.collection.find_one_and_update({"a": 5}, {"$set": {"x": 1}}, sort=[("_id", 1)])
    assert found is not None
    assert found["_id"] == 2


def test_delete_finds_nothing(expired: Bench) -> None:
    assert expired.collection.delete_one({"_id": 1}).deleted_count == 0
    assert expired.collection.delete_many({"u": "one"}).deleted_count == 0
    assert expired.collection.delete_many({}).deleted_count == 1


def test_insert_with_the_same_id(expired: Bench) -> None:
    expired.collection.insert_one({"_id": 1, "u": "fresh"})
    assert expired.collection.find_one({"_id": 1}) == {"_id": 1, "u": "fresh"}
    assert expired.stored() == 0
    with pytest.raises(DuplicateKeyError):
        expired.collection.insert_one({"_id": 1, "u": "again"})


def test_insert_many_with_the_same_id(expired: Bench) -> None:
    expired.collection.insert_many([{"_id": 0, "u": "zero"}, {"_id": 1, "u": "one"}, {"_id": 3, "u": "three"}])
    assert expired.ids() == [0, 1, 2, 3]


def test_unique_index_of_an_insert(expired: Bench) -> None:
    expired.collection.insert_one({"_id": 9, "u": "one"})
    assert expired.ids() == [2, 9]
    with pytest.raises(DuplicateKeyError) as clash:
        expired.collection.insert_one({"_id": 10, "u": "two"})
    assert clash.value.details is not None
    assert clash.value.details["keyPattern"] == {"u": 1}
    assert clash.value.details["keyValue"] == {"u": "two"}


def test_unique_index_of_an_update(expired: Bench) -> None:
    assert expired.collection.update_one({"_id": 2}, {"$set": {"u": "one"}}).modified_count == 1
    assert expired.collection.find_one({"u": "one"}) == {"_id": 2, "u": "one", "a": 5, "ttl": -1}


def test_unique_index_of_an_update_many(expired: Bench) -> None:
    assert expired.collection.update_many({"_id": 2}, {"$set": {"u": "one"}}).modified_count == 1


def test_bulk_write_on_corpses(expired: Bench) -> None:
    result = expired.collection.bulk_write(
        [
            InsertOne({"_id": 1, "u": "one"}),
            UpdateOne({"_id": 1}, {"$set": {"x": 1}}),
            InsertOne({"_id": 5, "u": "five"}),
        ]
    )
    assert (result.inserted_count, result.modified_count) == (2, 1)
    with pytest.raises(BulkWriteError) as clash:
        expired.collection.bulk_write([InsertOne({"_id": 6, "u": "six"}), InsertOne({"_id": 1, "u": "x"})])
    assert clash.value.details["nInserted"] == 1
    assert clash.value.details["writeErrors"][0]["code"] == 11000


def test_a_unique_index_can_be_built_over_corpses(bench: Bench) -> None:
    bench.set_default(10)
    bench.collection.insert_many([{"_id": 1, "k": "same"}, {"_id": 2, "k": "same"}])
    bench.advance(10)
    bench.collection.insert_one({"_id": 3, "k": "same"})
    bench.collection.create_index("k", unique=True)
    with pytest.raises(DuplicateKeyError):
        bench.collection.insert_one({"_id": 4, "k": "same"})
    assert bench.ids() == [3]


@pytest.mark.parametrize("order", [None, "by a field", "by an index"])
def test_get_more_of_an_older_cursor(bench: Bench, order: str | None) -> None:
    """The page that is being built when a document expires leaves it out."""
    bench.set_default(10)
    if order == "by an index":
        bench.collection.create_index("n")
    bench.collection.insert_many([{"_id": n, "n": n, **({"ttl": 1000} if n % 2 else {})} for n in range(1000)])
    cursor = bench.collection.find(batch_size=10)
    if order is not None:
        cursor = cursor.sort("n", 1)
    first = [next(cursor)["_id"] for _ in range(10)]
    assert first == list(range(10))
    bench.advance(10)
    rest = [document["_id"] for document in cursor]
    assert rest == list(range(11, 1000, 2))


@pytest.mark.parametrize(
    "pipeline",
    [
        [],
        [{"$match": {}}],
        [{"$project": {"n": 1}}],
        [{"$sort": {"n": 1}}],
        [{"$match": {}}, {"$addFields": {"x": 1}}],
        [{"$set": {"x": ["$n"]}}, {"$unwind": "$x"}],
        [{"$set": {"x": [1, 2]}}, {"$unwind": "$x"}, {"$match": {"x": 1}}],
        [{"$unionWith": "nothing"}],
        [{"$match": {"_id": -1}}, {"$unionWith": "documents"}],
    ],
    ids=repr,
)
def test_get_more_of_an_aggregation(bench: Bench, pipeline: list[dict[str, Any]]) -> None:
    bench.set_default(10)
    bench.collection.insert_many([{"_id": n, "n": n, **({"ttl": 1000} if n % 2 else {})} for n in range(600)])
    cursor = bench.collection.aggregate(pipeline, batchSize=10)
    assert [next(cursor)["_id"] for _ in range(10)] == list(range(10))
    bench.advance(10)
    assert [document["_id"] for document in cursor] == list(range(11, 600, 2))


@own_cursors
@own_cursors
def test_get_more_of_an_aggregation_with_full_pages(bench: Bench) -> None:
    """Also where a page ends because it is full by size."""
    bench.set_default(10)
    bench.collection.insert_many([{"_id": n, "body": "x" * 1_000_000} for n in range(30)])
    command = {"aggregate": "documents", "pipeline": [{"$set": {"n": 1}}], "cursor": {}}
    first = bench.database.command(command)["cursor"]
    assert 10 < len(first["firstBatch"]) < 20
    bench.advance(10)
    second = bench.database.command("getMore", first["id"], collection="documents")["cursor"]
    assert (second["id"], second["nextBatch"]) == (0, [])


@pytest.mark.parametrize(
    "form",
    [
        {"localField": "n", "foreignField": "n"},
        {"pipeline": [{"$match": {"n": 1}}]},
        {"localField": "n", "foreignField": "n", "pipeline": []},
    ],
    ids=repr,
)
def test_get_more_of_a_join_with_one_document(bench: Bench, form: dict[str, Any]) -> None:
    """What a join remembers of the foreign collection is forgotten when some of it expires."""
    bench.set_default(10)
    bench.collection.insert_many([{"_id": 1, "n": 1}, {"_id": 2, "n": 1, "ttl": 20}])
    local = bench.database["local"]
    local.insert_many([{"_id": n, "n": 1} for n in range(600)])
    cursor = local.aggregate([{"$lookup": {"from": "documents", "as": "found", **form}}], batchSize=10)
    assert [len(next(cursor)["found"]) for _ in range(10)] == [2] * 10
    bench.advance(10)
    assert [len(next(cursor)["found"]) for _ in range(300)] == [1] * 300
    bench.advance(10)
    assert sum(len(document["found"]) for document in cursor) <= 10  # the rest of a page that was there already


def test_get_more_of_a_join(bench: Bench) -> None:
    """The foreign collection is read with the time of the getMore too."""
    bench.set_default(10)
    local = bench.database["local"]
    local.insert_many([{"_id": n} for n in range(400)])
    bench.collection.insert_many([{"_id": n} for n in range(400)])
    join = {"$lookup": {"from": "documents", "localField": "_id", "foreignField": "_id", "as": "found"}}
    cursor = local.aggregate([join], batchSize=10)
    assert [len(next(cursor)["found"]) for _ in range(10)] == [1] * 10
    bench.advance(10)
    assert sum(len(document["found"]) for document in cursor) == 0


def test_explain_counts_unexpired_documents(expired: Bench) -> None:
    stats: dict[str, Any] = expired.database.command(
        {"explain": {"find": "documents", "filter": {"a": 5}}, "verbosity": "executionStats"}
    )["executionStats"]
    assert stats["nReturned"] == 1


def test_rename_keeps_what_is_known_of_expiry(bench: Bench) -> None:
    bench.set_default(10)
    bench.collection.insert_many([{"_id": 1}, {"_id": 2, "ttl": 20}])
    bench.advance(5)
    bench.collection.rename("renamed")
    renamed = bench.database["renamed"]
    assert bench.ids(renamed) == [1, 2]
    bench.advance(5)
    assert bench.ids(renamed) == [2]
    bench.advance(10)
    assert bench.ids(renamed) == []
    assert bench.stored() == (0 if bench.purged else 2)
