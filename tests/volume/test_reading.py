"""Collections read to their end, in every way that a client may read them."""

import threading
import zlib
from collections.abc import Iterable
from typing import Any

import pymongo
import pytest
from pymongo.collection import Collection

from tests.volume.documents import KEYS, LARGE, MEDIUM, SHAPES, SMALL, TINY, Shape, checksum
from tests.volume.watching import CROWDED_STALL_S, Client, Connection, Documents, Volume

pytestmark = pytest.mark.slow

# Of a read: a page and its reply, twice for what the allocator keeps, and compressed once more.
READ_MB = 150
# Of a sort: the documents that it holds before it goes on in a file, and the read.
SORT_MB = 400


def by_shape(*shapes: Shape) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("shape", shapes, ids=lambda shape: shape.name)


def collection(volume: Volume, shape: Shape) -> Collection[Documents]:
    return volume.database[shape.name]


def read(batches: Iterable[Any]) -> int:
    """The checksum of all documents. Each batch is the bytes of what stood in one reply."""
    value = 0
    for batch in batches:
        assert len(batch) <= 16 * 1024 * 1024
        value = zlib.crc32(batch, value)
    return value


@by_shape(*SHAPES)
def test_find(volume: Volume, shape: Shape) -> None:
    with volume.server.watched(READ_MB):
        assert read(collection(volume, shape).find_raw_batches()) == shape.checksum("_id")


@pytest.mark.engines("memory")
@by_shape(TINY, MEDIUM)
def test_find_as_applications_do(volume: Volume, shape: Shape) -> None:
    count = 0
    with volume.server.watched(READ_MB):
        for document in collection(volume, shape).find():
            assert document["_id"] == count
            assert document["n"] == shape.n(count)
            count += 1
    assert count == shape.count


@by_shape(SMALL, LARGE)
def test_find_backwards(volume: Volume, shape: Shape) -> None:
    with volume.server.watched(READ_MB):
        backwards = collection(volume, shape).find_raw_batches(sort=[("_id", -1)])
        assert read(backwards) == shape.checksum("-_id")


@by_shape(TINY, LARGE)
def test_find_sorted(volume: Volume, shape: Shape) -> None:
    with volume.server.watched(SORT_MB, volume.sort_stall_s(shape.size_bytes)):
        assert read(collection(volume, shape).find_raw_batches(sort=[("n", 1)])) == shape.checksum("n")


@pytest.mark.parametrize(
    "shape",
    # An index of all tiny documents is as long in a folder, and takes longest to build there.
    [pytest.param(TINY, marks=pytest.mark.engines("memory"), id=TINY.name), pytest.param(MEDIUM, id=MEDIUM.name)],
)
def test_find_by_an_index(volume: Volume, shape: Shape) -> None:
    there = collection(volume, shape)
    with volume.server.watched(READ_MB + volume.stored_mb(200 * shape.count)):
        there.create_index("n")
    try:
        with volume.server.watched(READ_MB):
            assert read(there.find_raw_batches(sort=[("n", -1)])) == shape.checksum("-n")
        with volume.server.watched(READ_MB):
            keys = there.find({"n": {"$gte": 0}}, {"_id": 0, "n": 1}, sort=[("n", 1)])
            assert sum(1 for _ in keys) == shape.count
    finally:
        there.drop_index("n_1")


@by_shape(SMALL, LARGE)
def test_aggregate(volume: Volume, shape: Shape) -> None:
    there = collection(volume, shape)
    with volume.server.watched(READ_MB):
        assert read(there.aggregate_raw_batches([])) == shape.checksum("_id")
    with volume.server.watched(READ_MB):
        pipeline: list[Documents] = [{"$match": {"n": {"$gte": 0}}}, {"$addFields": {"n": "$n"}}]
        assert read(there.aggregate_raw_batches(pipeline)) == shape.checksum("_id")
    with volume.server.watched(SORT_MB, volume.sort_stall_s(shape.size_bytes)):
        assert read(there.aggregate_raw_batches([{"$sort": {"n": 1}}])) == shape.checksum("n")


@pytest.mark.engines("memory")
@by_shape(*SHAPES)
def test_batch_sizes(volume: Volume, shape: Shape) -> None:
    """No more than 50 batches of each size, and two full replies: what is different about them shows soon."""
    there = collection(volume, shape)
    for size in (2, 1000, 1_000_000):
        limit = min(shape.count, 50 * size, 35_000_000 // (shape.size_bytes + 9))
        expected = checksum(shape.document(i) for i in range(limit))
        with volume.server.watched(READ_MB):
            assert read(there.find_raw_batches(batch_size=size, limit=limit)) == expected
        with volume.server.watched(READ_MB):
            assert read(there.aggregate_raw_batches([{"$limit": limit}], batchSize=size)) == expected


@pytest.mark.engines("memory")
@pytest.mark.parametrize(
    ("compressor", "module", "shape"),
    [("zlib", "zlib", SMALL), ("snappy", "snappy", LARGE), ("zstd", "zstandard", SMALL), ("zlib", "zlib", LARGE)],
    ids=lambda parameter: parameter.name if isinstance(parameter, Shape) else parameter,
)
def test_compressed(volume: Volume, compressor: str, module: str, shape: Shape) -> None:
    pytest.importorskip(module)
    limit = min(shape.count, 40_000_000 // shape.size_bytes)
    expected = checksum(shape.document(i) for i in range(limit))
    with Client(volume.server.uri, compressors=compressor) as client, volume.server.watched(READ_MB):
        assert read(client.volume[shape.name].find_raw_batches(limit=limit)) == expected


def in_threads(work: list[Any]) -> None:
    """Runs functions at once; the first failure of one is raised here."""
    failures: list[BaseException] = []

    def run(one: Any) -> None:
        try:
            one()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_several_at_once(volume: Volume) -> None:
    def read_all(shape: Shape, sort: list[tuple[str, int]], order: str) -> None:
        found = collection(volume, shape).find_raw_batches(sort=sort)
        assert read(found) == shape.checksum(order)

    orders = [("_id", [("_id", 1)]), ("-_id", [("_id", -1)])]
    work = [
        lambda shape=shape, sort=sort, order=order: read_all(shape, sort, order)
        for shape in (SMALL, MEDIUM, LARGE)
        for order, sort in orders
    ]
    with volume.server.watched(len(work) * READ_MB, CROWDED_STALL_S):
        in_threads(work)


def test_idle_cursors_hold_little(volume: Volume) -> None:
    """What waits in an open cursor is less than a page, however large the documents are."""
    cursors = []
    with volume.server.watched(4 * READ_MB):
        for shape in (LARGE, MEDIUM, SMALL) * 4:
            cursor = collection(volume, shape).find(batch_size=2)
            assert [next(cursor)["_id"], next(cursor)["_id"]] == [0, 1]
            cursors.append(cursor)
    for cursor in cursors:
        cursor.close()


def test_slow_readers(volume: Volume) -> None:
    """Replies that nobody reads wait without holding up others, each with its own memory."""
    shapes = [LARGE, SMALL] * 4
    with volume.server.watched((len(shapes) + 1) * 100, CROWDED_STALL_S):
        readers = [Connection(volume.server.uri) for _ in shapes]
        for reader, shape in zip(readers, shapes, strict=True):
            reader.send({"find": shape.name, "batchSize": 1_000_000, "singleBatch": True, "$db": "volume"})
        assert read(collection(volume, SMALL).find_raw_batches()) == SMALL.checksum("_id")
        for reader, shape in zip(readers, shapes, strict=True):
            batch = reader.receive()["cursor"]["firstBatch"]
            assert [document["_id"] for document in batch] == list(range(len(batch)))
            assert 14_900_000 <= len(batch) * shape.size_bytes <= 16 * 1024 * 1024
            reader.close()


def test_distinct(volume: Volume) -> None:
    with volume.server.watched(READ_MB):
        assert sorted(collection(volume, SMALL).distinct("k")) == list(range(KEYS))
    with volume.server.watched(SORT_MB):
        assert collection(volume, TINY).distinct("n") == list(range(TINY.count))
    with volume.server.watched(SORT_MB), pytest.raises(pymongo.errors.OperationFailure) as refused:
        collection(volume, SMALL).distinct("x")
    assert refused.value.code == 17217


def test_counting(volume: Volume) -> None:
    for shape in SHAPES:
        with volume.server.watched(READ_MB):
            there = collection(volume, shape)
            assert there.count_documents({}) == shape.count
            assert there.count_documents({"n": {"$lt": shape.count // 2}}) == shape.count // 2
