"""Stages over whole collections: what joins, groups, multiplies and writes them."""

import pytest
from pymongo.database import Database

from tests.volume.documents import KEYS, LARGE, MEDIUM, SMALL, TINY, Shape
from tests.volume.test_reading import READ_MB, SORT_MB, by_shape, read
from tests.volume.watching import MB, Documents, Volume

pytestmark = pytest.mark.slow


def total(volume: Volume, collection: str, pipeline: list[Documents]) -> int:
    """How many documents a pipeline gives, all of them read."""
    return sum(1 for _ in volume.database[collection].aggregate(pipeline))


def test_lookup_one_to_one(volume: Volume) -> None:
    lookup = {"$lookup": {"from": "small", "localField": "_id", "foreignField": "_id", "as": "joined"}}
    with volume.server.watched(SORT_MB):
        assert total(volume, "small", [lookup]) == SMALL.count


def test_lookup_without_an_index(volume: Volume) -> None:
    lookup = {"$lookup": {"from": "medium", "localField": "_id", "foreignField": "n", "as": "joined"}}
    pipeline: list[Documents] = [{"$limit": MEDIUM.count}, lookup, {"$match": {"joined._id": {"$exists": True}}}]
    with volume.server.watched(SORT_MB):
        assert total(volume, "tiny", pipeline) == MEDIUM.count


@pytest.mark.engines("memory")
def test_lookup_that_joins_much(volume: Volume) -> None:
    """Each of a hundred documents is joined to a megabyte; unwound, to a thousand documents.

    The foreign collection is too large for a table and is read a hundred times.
    """
    lookup = {"$lookup": {"from": "small", "localField": "_id", "foreignField": "k", "as": "joined"}}
    pipeline: list[Documents] = [{"$limit": KEYS}, lookup]
    with volume.server.watched(SORT_MB):
        assert total(volume, "tiny", pipeline) == KEYS
    with volume.server.watched(SORT_MB):
        assert total(volume, "tiny", [*pipeline, {"$unwind": "$joined"}]) == SMALL.count
    with volume.server.watched(SORT_MB):
        inner = {"$lookup": {"from": "large", "pipeline": [{"$project": {"x": 0}}], "as": "joined"}}
        assert total(volume, "small", [{"$limit": 5}, inner]) == 5


@pytest.mark.engines("sqlite")
def test_group(volume: Volume) -> None:
    with volume.server.watched(2 * SORT_MB):
        assert total(volume, "tiny", [{"$group": {"_id": "$n"}}]) == TINY.count
    with volume.server.watched(SORT_MB):
        assert total(volume, "small", [{"$group": {"_id": "$k", "n": {"$sum": "$n"}}}]) == KEYS


@pytest.mark.engines("sqlite")
def test_group_with_large_results(volume: Volume) -> None:
    """Groups of a hundred megabytes altogether."""
    with volume.server.watched(2 * SORT_MB):
        found = volume.database.small.aggregate([{"$group": {"_id": "$k", "all": {"$push": "$x"}}}])
        assert sum(len(group["all"]) for group in found) == SMALL.count
    with volume.server.watched(2 * SORT_MB):
        assert total(volume, "small", [{"$group": {"_id": "$_id", "x": {"$first": "$x"}}}]) == SMALL.count


def test_unwind(volume: Volume) -> None:
    """A hundred arrays of a thousand elements are made and taken apart again."""
    pipeline: list[Documents] = [
        {"$group": {"_id": "$k", "all": {"$push": {"i": "$_id", "x": "$x"}}}},
        {"$unwind": "$all"},
        {"$replaceRoot": {"newRoot": "$all"}},
    ]
    with volume.server.watched(2 * SORT_MB):
        assert total(volume, "small", pipeline) == SMALL.count


@pytest.mark.engines("sqlite")
def test_unwind_with_a_large_document_for_each_element(volume: Volume) -> None:
    pipeline: list[Documents] = [
        {"$limit": 20},
        {"$addFields": {"i": {"$range": [0, 100]}, "x": {"$concat": ["$x", "$x", "$x"]}}},
        {"$unwind": "$i"},
    ]
    with volume.server.watched(SORT_MB):
        assert total(volume, "medium", pipeline) == 2000
    with volume.server.watched(SORT_MB):
        pipeline = [{"$addFields": {"i": {"$range": [0, 100]}}}, {"$unwind": "$i"}, {"$limit": 20}]
        assert total(volume, "large", pipeline) == 20


@pytest.mark.engines("sqlite")
def test_union_and_facet(volume: Volume) -> None:
    with volume.server.watched(READ_MB):
        assert total(volume, "small", [{"$unionWith": "medium"}]) == SMALL.count + MEDIUM.count
    facets = {
        "keys": [{"$group": {"_id": "$k"}}],
        "few": [{"$sort": {"n": -1}}, {"$limit": 1000}],
        "count": [{"$count": "n"}],
    }
    with volume.server.watched(SORT_MB):
        (found,) = volume.database.small.aggregate([{"$facet": facets}])
    assert (len(found["keys"]), len(found["few"]), found["count"]) == (KEYS, 1000, [{"n": SMALL.count}])


@pytest.mark.engines("sqlite")
def test_windows_and_buckets(volume: Volume) -> None:
    window = {
        "partitionBy": "$k",
        "sortBy": {"n": 1},
        "output": {"sum": {"$sum": 1, "window": {"documents": ["unbounded", "current"]}}},
    }
    with volume.server.watched(2 * SORT_MB):
        assert total(volume, "small", [{"$setWindowFields": window}]) == SMALL.count
    with volume.server.watched(2 * SORT_MB):
        assert total(volume, "small", [{"$bucketAuto": {"groupBy": "$n", "buckets": 1000}}]) == 1000


@pytest.mark.engines("sqlite")
def test_graph_lookup(volume: Volume) -> None:
    graph = {
        "from": "medium",
        "startWith": "$_id",
        "connectFromField": "n",
        "connectToField": "_id",
        "as": "reached",
        "maxDepth": 20,
    }
    with volume.server.watched(SORT_MB):
        assert total(volume, "tiny", [{"$limit": 50}, {"$graphLookup": graph}]) == 50


@by_shape(SMALL, LARGE)
def test_out(volume: Volume, scratch: Database[Documents], shape: Shape) -> None:
    written_mb = volume.stored_mb(shape.count * (shape.size_bytes + 200))
    with volume.server.watched(SORT_MB + written_mb):
        volume.database[shape.name].aggregate([{"$out": {"db": scratch.name, "coll": "copy"}}])
    assert read(scratch["copy"].find_raw_batches()) == shape.checksum("_id")


def test_merge(volume: Volume, scratch: Database[Documents]) -> None:
    written_mb = volume.stored_mb(2 * MEDIUM.count * MEDIUM.size_bytes)
    merge = {"$merge": {"into": {"db": scratch.name, "coll": "copy"}}}
    with volume.server.watched(SORT_MB + written_mb):
        volume.database.medium.aggregate([merge])
    assert read(scratch["copy"].find_raw_batches()) == MEDIUM.checksum("_id")
    # Now each meets what it is merged into.
    with volume.server.watched(SORT_MB + written_mb):
        volume.database.medium.aggregate([{"$project": {"more": "$n"}}, merge])
    assert scratch["copy"].count_documents({"more": {"$exists": True}}) == MEDIUM.count
    assert scratch.command("collStats", "copy")["size"] / MB > 1
