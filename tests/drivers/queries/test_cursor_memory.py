"""One budget for the memory of all idle cursors: beyond it their data moves to files, then the oldest are closed."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymongo
import pytest
from bson import encode
from pymongo.cursor import Cursor
from pymongo.errors import CursorNotFound

import mongottl
from tests.on_nodes import own_figures

pytestmark = own_figures

DOCUMENTS = 1_000
# Each cursor's sort holds 1,000 documents of 2 KB.
COLLECTION_BYTES = DOCUMENTS * 2_100
BUDGET_MB = 4


@contextmanager
def limited(megabytes: int) -> "Iterator[pymongo.MongoClient[dict[str, Any]]]":
    """A client of a server whose idle cursors may hold so much."""
    with (
        mongottl.start_server(cursor_memory_mb=megabytes) as server,
        pymongo.MongoClient[dict[str, Any]](server.uri) as client,
    ):
        yield client


def held(client: "pymongo.MongoClient[dict[str, Any]]") -> dict[str, Any]:
    found: dict[str, Any] = client.admin.command("serverStatus")["mongottl"]["cursors"]
    return found


def filled(client: "pymongo.MongoClient[dict[str, Any]]") -> Any:
    collection = client.shop.coll
    order = list(range(DOCUMENTS))
    random.Random(7).shuffle(order)
    collection.insert_many([{"_id": number, "n": place, "pad": "x" * 2_000} for number, place in enumerate(order)])
    client.shop.other.insert_many([{"_id": number, "n": number} for number in range(DOCUMENTS)])
    return collection


QUERIES: dict[str, Any] = {
    "find, sorted": lambda coll: coll.find({}, batch_size=60).sort("n", 1),
    "$sort": lambda coll: coll.aggregate([{"$sort": {"n": 1}}], batchSize=60),
    "$sort in a view": lambda coll: coll.database.view.find({}, batch_size=60),
    "$group": lambda coll: coll.aggregate([{"$group": {"_id": "$n", "docs": {"$push": "$$ROOT"}}}], batchSize=60),
    "$setWindowFields": lambda coll: coll.aggregate(
        [
            {
                "$setWindowFields": {
                    "sortBy": {"n": 1},
                    "output": {"before": {"$sum": "$n", "window": {"documents": ["unbounded", "current"]}}},
                }
            }
        ],
        batchSize=60,
    ),
    "$lookup": lambda coll: coll.database.other.aggregate(
        [{"$lookup": {"from": "coll", "localField": "n", "foreignField": "n", "as": "found"}}], batchSize=60
    ),
    "$rankFusion": lambda coll: coll.aggregate(
        [{"$rankFusion": {"input": {"pipelines": {"one": [{"$sort": {"n": 1}}]}}}}], batchSize=60
    ),
    "$unionWith": lambda coll: coll.database.empty.aggregate(
        [{"$unionWith": {"coll": "coll", "pipeline": [{"$sort": {"n": 1}}]}}], batchSize=60
    ),
}


@pytest.mark.parametrize("name", QUERIES)
def test_idle_cursors_spill_to_files_above_the_memory_limit(name: str) -> None:
    with (
        mongottl.start_server(cursor_memory_mb=BUDGET_MB) as server,
        pymongo.MongoClient[dict[str, Any]](server.uri) as client,
    ):
        coll = filled(client)
        client.shop.create_collection("view", viewOn="coll", pipeline=[{"$sort": {"n": 1}}])
        query = QUERIES[name]
        expected = list(query(coll))
        assert len(expected) == DOCUMENTS
        cursors = [query(coll) for _ in range(6)]
        started = [[next(cursor) for _ in range(3)] for cursor in cursors]
        found = held(client)
        assert found["bytes"] <= BUDGET_MB << 20
        assert found["closed"] == 0
        if name != "$lookup":  # whose table is dropped, and read again
            assert found["fileBytes"] > 2 * COLLECTION_BYTES
        for cursor, first in zip(cursors, started, strict=True):
            assert first + list(cursor) == expected
        assert held(client) == {"bytes": 0, "fileBytes": 0, "closed": 0}


def test_pages_read_ahead_move_to_files() -> None:
    """A sort with large documents has read more of them than a page takes."""
    with limited(4) as client:
        client.shop.coll.insert_many([{"_id": number, "pad": "x" * 60_000} for number in range(100)])
        cursors: list[Any] = [client.shop.coll.find({}, batch_size=2).sort([("pad", 1), ("_id", -1)]) for _ in range(2)]
        cursors += [client.shop.coll.aggregate([{"$sort": {"pad": 1, "_id": -1}}], batchSize=2) for _ in range(2)]
        started = [next(cursor)["_id"] for cursor in cursors]
        assert held(client)["bytes"] <= 4 << 20
        for first, cursor in zip(started, cursors, strict=True):
            assert [first, *[document["_id"] for document in cursor]] == list(range(99, -1, -1))


def test_documents_in_files_expire() -> None:
    with limited(4) as client:
        coll = client.shop.coll
        coll.create_index("_ts", expireAfterSeconds=10)
        lives = [{"_id": number, "pad": "x" * 2_000, "ttl": 5 if number % 2 else 100} for number in range(DOCUMENTS)]
        coll.insert_many(lives)
        cursor = coll.find({}, batch_size=60).sort("pad", 1)
        next(cursor)
        others = [coll.find({}, batch_size=60).sort("pad", 1) for _ in range(3)]
        for other in others:
            next(other)
        assert held(client)["fileBytes"] > 0
        client.admin.command("advanceClock", 20)
        assert all(document["_id"] % 2 == 0 for document in list(cursor)[60:])
        for other in others:
            other.close()


def test_the_oldest_cursors_end_where_there_is_nothing_to_move() -> None:
    """Cursors hold some kilobytes even if all that they read is in the collection. The one that is used stays."""
    with limited(1) as client:
        client.shop.coll.insert_many([{"_id": number} for number in range(100)])

        def opened() -> Cursor[dict[str, Any]]:
            cursor = client.shop.coll.find({}, batch_size=2, no_cursor_timeout=True)
            next(cursor)
            return cursor

        first = opened()
        used = opened()
        others = []
        for count in range(300):
            others.append(opened())
            if count % 20 == 0:
                next(used), next(used)
        found = held(client)
        assert found["closed"] > 0
        assert found["bytes"] <= 1 << 20
        with pytest.raises(CursorNotFound):
            list(first)
        assert len(list(used)) > 50
        assert len(list(others[-1])) == 99
        for cursor in others:
            cursor.close()


def test_long_filters_count() -> None:
    with limited(4) as client:
        client.shop.coll.insert_many([{"_id": number} for number in range(100)])
        wanted = {"_id": {"$in": [*range(100), *("x" * 100 + str(number) for number in range(2_000))]}}
        size = len(encode(wanted))
        cursors = [client.shop.coll.find(wanted, batch_size=2) for _ in range(20)]
        for cursor in cursors:
            next(cursor)
        assert held(client)["bytes"] > size
        assert held(client)["closed"] > 0
        for cursor in cursors:
            cursor.close()


def test_the_cursors_of_the_user_who_holds_most_end_first() -> None:
    with (
        mongottl.start_server(cursor_memory_mb=1, auth=True, user="root", password="secret") as server,
        pymongo.MongoClient[dict[str, Any]](server.uri) as client,
    ):
        for name in ("ann", "bob"):
            client.admin.command("createUser", name, pwd="secret", roles=["readWriteAnyDatabase"])
        client.shop.coll.insert_many([{"_id": number} for number in range(100)])

        def opened(user: "pymongo.MongoClient[dict[str, Any]]") -> Cursor[dict[str, Any]]:
            cursor = user.shop.coll.find({}, batch_size=2)
            next(cursor)
            return cursor

        with (
            pymongo.MongoClient[dict[str, Any]](server.uri.replace("root:", "ann:")) as ann,
            pymongo.MongoClient[dict[str, Any]](server.uri.replace("root:", "bob:")) as bob,
        ):
            modest = opened(ann)
            greedy = [opened(bob) for _ in range(300)]
            assert held(client)["closed"] > 0
            assert len(list(modest)) == 99
            with pytest.raises(CursorNotFound):
                list(greedy[0])
            for cursor in greedy:
                cursor.close()


def test_files_of_their_operations_count() -> None:
    """A sort or a group that has used temporary files while it ran keeps them while its cursor is idle."""
    with limited(1) as client:
        coll = filled(client)
        for name in ("internalQueryMaxBlockingSortMemoryUsageBytes", "internalDocumentSourceGroupMaxMemoryBytes"):
            client.admin.command({"setParameter": 1, name: 100_000})
        cursors = []
        for count in range(12):
            cursors.append(QUERIES["find, sorted" if count % 2 else "$group"](coll))
            next(cursors[-1])
            assert 0 < held(client)["fileBytes"] <= 8 << 20
        assert held(client)["closed"] >= 4
        with pytest.raises(CursorNotFound):
            list(cursors[0])
        assert len(list(cursors[-1])) == DOCUMENTS - 1
        for cursor in cursors:
            cursor.close()
        assert held(client)["fileBytes"] == 0
