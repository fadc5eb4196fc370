"""Documents that an open cursor has read ahead: whether they are expired is checked again when they are returned."""

from collections.abc import Callable
from typing import Any

import pytest
from pymongo import CursorType

from tests.drivers.ttl.conftest import Bench
from tests.on_nodes import own_cursors

COUNT = 300
PAGE = 10

Open = Callable[[Bench], Any]


def _document(n: int) -> dict[str, Any]:
    return {
        "_id": n,
        "n": n,
        "half": n % 2,
        "part": n % 4,
        "reversed": COUNT - n,
        "words": "river",
        "loc": [n / 10, 0.0],
        "list": [1, 2],
    }


def _near(bench: Bench) -> Any:
    return bench.collection.find({"loc": {"$near": [0, 0]}}, batch_size=PAGE)


# Each gives documents with the `_id`s of the collection, in their order, but for those of `TWICE`.
FINDS: dict[str, Open] = {
    "scan": lambda bench: bench.collection.find(batch_size=PAGE),
    "scan with a filter": lambda bench: bench.collection.find({"n": {"$gte": 0}}, batch_size=PAGE).hint("_id_"),
    "projection": lambda bench: bench.collection.find({}, {"words": 1}, batch_size=PAGE),
    "skip and limit": lambda bench: bench.collection.find(batch_size=PAGE).skip(0).limit(COUNT),
    "index": lambda bench: bench.collection.find({"reversed": {"$gte": 0}}, batch_size=PAGE).sort("reversed", -1),
    "sort": lambda bench: bench.collection.find(batch_size=PAGE).sort("n", 1),
    "sort and limit": lambda bench: bench.collection.find(batch_size=PAGE).sort("n", 1).limit(COUNT),
    "merged scans": lambda bench: (
        bench.collection.find({"half": {"$in": [0, 1]}}, batch_size=PAGE).sort("_id").hint("half_1__id_1")
    ),
    "or": lambda bench: bench.collection.find(
        {"$or": [{"half": {"$gte": 0}, "reversed": {"$gt": 0}}, {"reversed": {"$lt": 5}}]}, batch_size=PAGE
    ).sort("_id"),
    "text": lambda bench: bench.collection.find({"$text": {"$search": "river"}}, batch_size=PAGE),
    "text by score": lambda bench: bench.collection.find(
        {"$text": {"$search": "river"}}, {"score": {"$meta": "textScore"}}, batch_size=PAGE
    ).sort([("score", {"$meta": "textScore"}), ("_id", 1)]),
    "near": _near,
}

ORPHANS = {"path": "$none", "preserveNullAndEmptyArrays": True}
GRAPH = {"from": "nothing", "startWith": 1, "connectFromField": "n", "connectToField": "n", "as": "none"}
SORTED: list[dict[str, Any]] = [{"$limit": COUNT}, {"$sort": {"n": 1}}]
NONE = {"$match": {"_id": -1}}

PIPELINES: list[list[dict[str, Any]]] = [
    [],
    [{"$match": {"n": {"$gte": 0}}}],
    [{"$match": {}}, {"$project": {"n": 1}}],
    [{"$sort": {"n": 1}}],
    [{"$sort": {"n": 1}}, {"$limit": COUNT}],
    [{"$skip": 0}, {"$limit": COUNT}],
    [{"$addFields": {"x": 1}}],
    [{"$addFields": {"x": "$n"}}, {"$sort": {"x": 1}}, {"$project": {"n": 1}}],
    SORTED,
    [{"$redact": "$$KEEP"}],
    [{"$redact": {"$cond": [True, "$$DESCEND", "$$PRUNE"]}}],
    [{"$set": {"list": ["$n"]}}, {"$unwind": "$list"}],
    [{"$unwind": "$list"}, {"$match": {"list": 2}}],
    [{"$unwind": "$list"}, {"$sort": {"n": 1}}, {"$match": {"list": 2}}],
    [{"$unionWith": "nothing"}],
    [NONE, {"$unionWith": "documents"}],
    [NONE, {"$unionWith": {"coll": "documents", "pipeline": [{"$set": {"x": 1}}]}}],
    [NONE, {"$unionWith": {"coll": "documents", "pipeline": SORTED}}],
    [NONE, {"$group": {"_id": 0}}, {"$unionWith": "documents"}],
    [NONE, {"$unionWith": "viewed"}],
    [{"$lookup": {"from": "nothing", "localField": "n", "foreignField": "n", "as": "none"}}],
    [{"$lookup": {"from": "nothing", "pipeline": [], "as": "none"}}, {"$unwind": ORPHANS}],
    [{"$graphLookup": GRAPH}],
    [{"$setWindowFields": {"sortBy": {"n": 1}, "output": {"place": {"$documentNumber": {}}}}}],
    [{"$fill": {"sortBy": {"n": 1}, "output": {"y": {"value": 0}}}}],
    [{"$densify": {"field": "n", "range": {"step": 1000, "bounds": "full"}}}],
    [{"$replaceWith": {"_id": "$_id", "whole": "$$ROOT"}}],
    [{"$geoNear": {"near": [0, 0], "distanceField": "distance", "key": "loc"}}],
]


def _aggregate(pipeline: list[dict[str, Any]]) -> Open:
    return lambda bench: bench.collection.aggregate(pipeline, batchSize=PAGE)


WAYS: dict[str, Open] = {
    **FINDS,
    "view": lambda bench: bench.database["viewed"].find(batch_size=PAGE),
    "view with a sort": lambda bench: bench.database["viewed"].find(batch_size=PAGE).sort("n"),
    "aggregation over a view": lambda bench: bench.database["viewed"].aggregate([{"$set": {"y": 1}}], batchSize=PAGE),
    **{repr(pipeline): _aggregate(pipeline) for pipeline in PIPELINES},
}


@pytest.fixture
def filled(bench: Bench) -> Bench:
    bench.collection.create_index("reversed")
    bench.collection.create_index([("half", 1), ("_id", 1)])
    bench.collection.create_index([("words", "text")])
    bench.collection.create_index([("loc", "2d")])
    bench.set_default(10)
    bench.collection.insert_many([_document(n) for n in range(COUNT)])
    bench.database.create_collection("viewed", viewOn="documents", pipeline=[{"$match": {"n": {"$gte": 0}}}])
    return bench


def _begin(bench: Bench, way: str) -> Any:
    cursor = WAYS[way](bench)
    assert [next(cursor)["_id"] for _ in range(PAGE)] == list(range(PAGE))
    return cursor


@pytest.mark.parametrize("way", WAYS)
def test_open_cursors_judge_expiry_by_the_stored_document(filled: Bench, way: str) -> None:
    cursor = _begin(filled, way)
    filled.advance(5)
    filled.collection.update_many({"part": 0}, {"$inc": {"writes": 1}})
    filled.collection.update_many({"part": 1}, {"$set": {"ttl": 1}})
    filled.collection.update_many({"part": 2}, {"$set": {"ttl": 20}})
    filled.advance(6)
    # Documents that were refreshed or given a longer `ttl` are not expired, the others are.
    assert [next(cursor)["_id"] for _ in range(PAGE)] == [n for n in range(PAGE, 3 * PAGE) if n % 4 in (0, 2)]
    filled.database.command({"collMod": "documents", "index": {"name": "_ts_1", "expireAfterSeconds": 6}})
    assert [document["_id"] for document in cursor] == list(range(3 * PAGE, COUNT, 4))


@pytest.mark.parametrize("way", [*FINDS, "[]"])
def test_ttl_switched_on_meanwhile(filled: Bench, way: str) -> None:
    filled.drop_default()
    cursor = _begin(filled, way)
    filled.advance(5)
    filled.collection.update_many({"half": 0}, {"$inc": {"writes": 1}})
    filled.set_default(3)
    assert [document["_id"] for document in cursor] == list(range(PAGE, COUNT, 2))


@pytest.mark.parametrize("way", ["scan", "index", "sort", "merged scans", "or", "text by score"])
def test_buffered_documents_are_checked_again(filled: Bench, way: str) -> None:
    """Others write the documents between the pages, so the `_ts` with which they were read is no longer theirs."""
    cursors = [WAYS[way](filled) for _ in range(PAGE, COUNT - PAGE, PAGE)]
    given = [[next(cursor)["_id"] for _ in range(PAGE * (n + 1))] for n, cursor in enumerate(cursors)]
    filled.advance(5)
    filled.collection.update_many({}, {"$inc": {"writes": 1}})
    for ids, cursor in zip(given, cursors, strict=True):
        ids += [next(cursor)["_id"] for _ in range(PAGE)]
    filled.advance(6)
    for ids, cursor in zip(given, cursors, strict=True):
        ids += [document["_id"] for document in cursor]
        assert ids == list(range(COUNT))


def test_covered_query_when_ttl_is_switched_on(filled: Bench) -> None:
    """Keys do not tell when their documents were written."""
    filled.drop_default()
    cursor = filled.collection.find({"reversed": {"$gt": 0}}, {"_id": 0, "reversed": 1}, batch_size=PAGE)
    for _ in range(PAGE):
        next(cursor)
    filled.advance(5)
    filled.collection.update_many({"half": 0}, {"$inc": {"writes": 1}})
    filled.set_default(6)
    filled.advance(1)
    assert [document["reversed"] for document in cursor] == list(range(12, COUNT + 1, 2))


def test_tailable_cursor_with_a_filter(bench: Bench) -> None:
    capped = bench.database.create_collection("capped", capped=True, size=1_000_000)
    bench.set_default(10, capped)
    capped.insert_many([{"_id": n, "half": n % 2, "writes": 0} for n in range(COUNT)])
    cursor = capped.find({"_id": {"$gte": 0}}, cursor_type=CursorType.TAILABLE, batch_size=PAGE)
    assert [next(cursor)["_id"] for _ in range(PAGE)] == list(range(PAGE))
    bench.advance(5)
    capped.update_many({"half": 0}, {"$inc": {"writes": 1}})
    bench.advance(6)
    assert [document["_id"] for document in cursor] == list(range(PAGE, COUNT, 2))
    assert cursor.alive
    capped.insert_one({"_id": COUNT})
    assert [document["_id"] for document in cursor] == [COUNT]


@pytest.mark.parametrize("sorted_", [False, True])
def test_a_deleted_document_is_not_given_where_it_could_have_expired(filled: Bench, sorted_: bool) -> None:
    """A deleted document cannot be told from one that expired and was purged, which must not be returned."""
    cursor = filled.collection.find(batch_size=PAGE)
    if sorted_:
        cursor = cursor.sort("n")
    for _ in range(PAGE):
        next(cursor)
    filled.collection.delete_many({"half": 1})
    filled.advance(1)
    assert [document["_id"] for document in cursor] == list(range(PAGE, COUNT, 2))


def test_elements_of_an_unwound_document_are_not_given_when_it_is_dead(bench: Bench) -> None:
    bench.set_default(10)
    bench.collection.insert_many([{"_id": 1, "list": list(range(50))}, {"_id": 2, "list": list(range(50)), "ttl": 100}])
    cursor = bench.collection.aggregate([{"$unwind": "$list"}], batchSize=20)
    assert [next(cursor)["_id"] for _ in range(20)] == [1] * 20
    bench.advance(10)
    assert [document["list"] for document in cursor if document["_id"] == 2] == list(range(50))
    cursor = bench.collection.aggregate([{"$unwind": "$list"}], batchSize=20)
    for _ in range(20):
        next(cursor)
    bench.advance(100)
    assert list(cursor) == []


@own_cursors
def test_documents_that_outgrow_a_page_are_not_given_when_they_are_expired(bench: Bench) -> None:
    """Fields that a pipeline adds can fill a page before the documents that were read for it are given."""
    bench.set_default(10)
    bench.collection.insert_many([{"_id": n, "body": "x" * 100_000} for n in range(60)])
    growing = {"$set": {f"copy{i}": "$body" for i in range(9)}}
    command = {"aggregate": "documents", "pipeline": [growing], "cursor": {}}
    first = bench.database.command(command)["cursor"]
    given = len(first["firstBatch"])
    assert 10 < given < 20
    bench.advance(5)
    bench.collection.update_many({"_id": {"$gte": 40}}, {"$inc": {"writes": 1}})
    bench.advance(5)
    second = bench.database.command("getMore", first["id"], collection="documents")["cursor"]
    found = [document["_id"] for document in second["nextBatch"]]
    while second["id"]:
        second = bench.database.command("getMore", second["id"], collection="documents")["cursor"]
        found.extend(document["_id"] for document in second["nextBatch"])
    assert found == list(range(40, 60))


def test_group_results_remain_after_their_documents_expire(filled: Bench) -> None:
    cursor = filled.collection.aggregate([{"$group": {"_id": "$n"}}, {"$sort": {"_id": 1}}], batchSize=PAGE)
    for _ in range(PAGE):
        next(cursor)
    filled.advance(10)
    assert [document["_id"] for document in cursor] == list(range(PAGE, COUNT))


@pytest.mark.parametrize("indexed", [False, True], ids=["hashed", "indexed"])
def test_a_join_sees_a_shortened_ttl(bench: Bench, indexed: bool) -> None:
    """Documents of the other collection that a join has cached are read again when some of them may have expired."""
    bench.set_default(10)
    if indexed:
        bench.collection.create_index("n")
    bench.collection.insert_many([{"_id": 1, "n": 1}, {"_id": 2, "n": 1}])
    local = bench.database["local"]
    local.insert_many([{"_id": n, "n": 1} for n in range(300)])
    join = {"$lookup": {"from": "documents", "localField": "n", "foreignField": "n", "as": "found"}}
    cursor = local.aggregate([join], batchSize=PAGE)
    assert [len(next(cursor)["found"]) for _ in range(PAGE)] == [2] * PAGE
    bench.collection.update_one({"_id": 1}, {"$set": {"ttl": 1}})
    bench.advance(1)
    assert [len(document["found"]) for document in cursor] == [1] * (300 - PAGE)


def test_tailable_cursor_over_expired_documents_alone(bench: Bench) -> None:
    """As over an empty collection, the cursor has no position, whether or not the documents are purged."""
    capped = bench.database.create_collection("capped", capped=True, size=1_000_000)
    bench.set_default(10, capped)
    capped.insert_many([{"_id": n} for n in range(600)])
    bench.advance(10)
    reply = bench.database.command({"find": "capped", "tailable": True})["cursor"]
    assert (reply["id"], reply["firstBatch"]) == (0, [])
    capped.insert_one({"_id": 600})
    reply = bench.database.command({"find": "capped", "tailable": True, "filter": {"x": 1}})["cursor"]
    assert reply["id"] != 0
    assert reply["firstBatch"] == []
