"""Much written at once, in one message or by one statement, and copies of whole collections."""

import hashlib
import random
from collections.abc import Iterator
from typing import Any

import gridfs
import pymongo
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database

from tests.volume.documents import COMPILED, LARGE, SMALL, TINY, text
from tests.volume.test_reading import READ_MB, SORT_MB, read
from tests.volume.watching import MB, Documents, Volume

pytestmark = pytest.mark.slow

MESSAGE_MB = 48
# Of one message of 48 MB: as it came, its documents, and once more for what the allocator keeps.
WRITE_MB = 300
# Nulls of at most one document of 16 MB, twice while they are joined, and the entry of the oplog.
PADDING_MB = 150
# Of the small documents: 50 MB.
COPIED = SMALL.count // 2


def many(count: int, size: int) -> list[Documents]:
    return [{"_id": i, "n": i, "x": text(i, size)} for i in range(count)]


@pytest.mark.parametrize(("count", "size"), [(600, 79_900), (47_000, 970), (3, 15_990_000)])
def test_insert_many_of_48_mb(volume: Volume, scratch: Database[Documents], count: int, size: int) -> None:
    documents = many(count, size)
    with volume.server.watched(WRITE_MB + volume.stored_mb(MESSAGE_MB * MB), volume.write_stall_s(size)):
        scratch.c.insert_many(documents)
    assert list(scratch.c.find()) == documents


def test_bulk_writes_of_48_mb(volume: Volume, scratch: Database[Documents]) -> None:
    documents = many(5000, 3000)
    operations: list[pymongo.InsertOne[Documents] | pymongo.ReplaceOne[Documents] | pymongo.UpdateOne] = []
    operations += [pymongo.InsertOne(document) for document in documents]
    operations += [pymongo.ReplaceOne({"_id": one["_id"]}, {"r": 1, "x": one["x"]}) for one in documents]
    operations += [pymongo.UpdateOne({"_id": one["_id"]}, {"$set": {"x": one["x"]}}) for one in documents]
    with volume.server.watched(WRITE_MB + volume.stored_mb(3 * MESSAGE_MB * MB)):
        result = scratch.c.bulk_write(operations)
    assert (result.inserted_count, result.matched_count, result.modified_count) == (5000, 10_000, 5000)
    assert scratch.c.count_documents({"r": 1}) == 5000


@pytest.mark.engines("memory")
def test_a_client_s_bulk_write_with_all_its_results(volume: Volume, scratch: Database[Documents]) -> None:
    namespace = f"{scratch.name}.c"
    operations: list[pymongo.InsertOne[Documents] | pymongo.UpdateOne] = []
    operations += [pymongo.InsertOne(document, namespace=namespace) for document in many(4000, 2500)]
    # What is upserted is told by its `_id`, which is long: the results are a cursor of several pages.
    operations += [
        pymongo.UpdateOne({"_id": text(i, 4500)}, {"$set": {"u": 1}}, upsert=True, namespace=namespace)
        for i in range(5000)
    ]
    with volume.server.watched(WRITE_MB + volume.stored_mb(3 * MESSAGE_MB * MB)):
        result = volume.client.bulk_write(operations, verbose_results=True)
    assert (result.inserted_count, result.upserted_count) == (4000, 5000)
    assert len(result.update_results) == 5000
    assert result.update_results[9000 - 1].upserted_id == text(4999, 4500)


@pytest.mark.engines("memory")
def test_failures_of_a_batch(volume: Volume, scratch: Database[Documents]) -> None:
    """Each of 20,000 documents is refused with its own key in the message: the reply has room for some."""
    documents = [{"_id": text(i, 2000)} for i in range(20_000)]
    scratch.c.insert_many(documents)
    with volume.server.watched(WRITE_MB), pytest.raises(pymongo.errors.BulkWriteError) as failed:
        scratch.c.insert_many(documents, ordered=False)
    assert len(failed.value.details["writeErrors"]) == 20_000


@pytest.fixture
def copied(volume: Volume, scratch: Database[Documents]) -> Database[Documents]:
    volume.database.small.aggregate([{"$limit": COPIED}, {"$out": {"db": scratch.name, "coll": "c"}}])
    return scratch


@pytest.mark.engines("memory")
def test_nulls_before_large_indexes_of_many_arrays(volume: Volume, scratch: Database[Documents]) -> None:
    arrays = 200
    document: Documents = {"_id": 1, "in": [{"a": [0]} for _ in range(arrays)]} | {f"a{i}": [0] for i in range(arrays)}
    scratch.c.insert_one(document)
    paths = [f"a{i}.1500000" for i in range(arrays)]
    for change in (dict.fromkeys(paths, 1), {"in.$[].a.1500000": 1}):
        with volume.server.watched(PADDING_MB), pytest.raises(pymongo.errors.WriteError) as raised:
            scratch.c.update_one({"_id": 1}, {"$set": change})
        assert raised.value.code == 17419
    assert scratch.c.find_one() == document
    with volume.server.watched(PADDING_MB + volume.stored_mb(13.5 * MB)):
        scratch.c.update_one({"_id": 1}, {"$set": {"a0.1500000": 1}})
    found = scratch.c.find_one({}, {"a0": 1})
    assert found is not None and found["a0"] == [0] + [None] * 1_499_999 + [1]


def test_update_and_delete_all(volume: Volume, copied: Database[Documents]) -> None:
    copied.c.create_index("n")
    with volume.server.watched(WRITE_MB + volume.stored_mb(COPIED * 200)):
        assert copied.c.update_many({}, {"$inc": {"n": 1}}).modified_count == COPIED
    with volume.server.watched(WRITE_MB + volume.stored_mb(COPIED * 200)):
        assert copied.c.update_many({"n": {"$gt": 0}}, [{"$set": {"m": "$n"}}]).modified_count == COPIED
    assert copied.c.count_documents({"m": {"$gt": 0}}) == COPIED
    with volume.server.watched(WRITE_MB):
        assert copied.c.delete_many({}).deleted_count == COPIED
    assert copied.c.count_documents({}) == 0


def test_index_builds(volume: Volume, copied: Database[Documents]) -> None:
    indexes: list[Documents] = [
        {"key": {"k": 1, "n": -1}, "name": "compound"},
        {"key": {"n": 1}, "name": "unique", "unique": True},
        {"key": {"x": "hashed"}, "name": "hashed"},
        {"key": {"$**": 1}, "name": "wildcard", "wildcardProjection": {"x": 0}},
    ]
    for index in indexes:
        with volume.server.watched(READ_MB + volume.stored_mb(COPIED * 400)):
            copied.command("createIndexes", "c", indexes=[index])
        if index["name"] == "compound":
            # It seeks each entry: with all indexes that is a million.
            with volume.server.watched(READ_MB):
                assert copied.command("validate", "c")["valid"]


def test_a_file_of_200_mb(volume: Volume, scratch: Database[Documents]) -> None:
    size = 200 * MB if COMPILED else 40 * MB
    part = random.Random(2).randbytes(MB)
    files = gridfs.GridFSBucket(scratch)
    digest = hashlib.md5(usedforsecurity=False)
    with volume.server.watched(WRITE_MB + volume.stored_mb(size)), files.open_upload_stream("file") as upload:
        for i in range(size // MB):
            changed = i.to_bytes(4, "big") + part[4:]
            digest.update(changed)
            upload.write(changed)
    received = hashlib.md5(usedforsecurity=False)
    with volume.server.watched(READ_MB), files.open_download_stream_by_name("file") as download:
        while data := download.read(MB):
            received.update(data)
    assert received.digest() == digest.digest()
    with volume.server.watched(READ_MB):
        files.delete(upload._id)
    assert scratch["fs.chunks"].count_documents({}) == 0


@pytest.mark.engines("sqlite")
def test_export_and_import(volume: Volume, scratch: Database[Documents]) -> None:
    """What mongodump and mongorestore do: each collection is read whole and inserted elsewhere."""

    def exported(name: str) -> Iterator[RawBSONDocument]:
        for found in volume.database[name].find_raw_batches():
            batch: Any = found  # bytes, whatever the cursor's type says
            start = 0
            while start < len(batch):
                end = start + int.from_bytes(batch[start : start + 4], "little")
                yield RawBSONDocument(batch[start:end])
                start = end

    for shape in (SMALL, LARGE):
        size_bytes = shape.count * (shape.size_bytes + 200)
        stall_s = volume.write_stall_s(shape.size_bytes)
        with volume.server.watched(WRITE_MB + volume.stored_mb(size_bytes), stall_s):
            scratch[shape.name].insert_many(exported(shape.name))
        assert read(scratch[shape.name].find_raw_batches()) == shape.checksum("_id")
        scratch.drop_collection(shape.name)


def test_many_copied_and_deleted(volume: Volume, scratch: Database[Documents]) -> None:
    with volume.server.watched(SORT_MB + volume.stored_mb(TINY.count * 200)):
        volume.database.tiny.aggregate([{"$out": {"db": scratch.name, "coll": "c"}}])
    assert read(scratch.c.find_raw_batches()) == TINY.checksum("_id")
    with volume.server.watched(SORT_MB):
        assert scratch.c.delete_many({"n": {"$lt": TINY.count // 4}}).deleted_count == TINY.count // 4
    with volume.server.watched(SORT_MB):
        scratch.c.drop()
