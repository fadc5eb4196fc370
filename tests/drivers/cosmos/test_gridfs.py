"""GridFS in the dialect `cosmos`, by PyMongo: its own indexes serve its sorts.

Microsoft's articles on the features of all versions: "Azure Cosmos DB supports GridFS through any GridFS-compatible
Mongo driver."
"""

import io
from typing import Any

import gridfs
import pymongo
import pytest
from gridfs import GridFS, GridFSBucket, GridOut
from pymongo.database import Database

import mongottl

Shop = Database[dict[str, Any]]
OLD = b"first " * 1000
NEW = b"second" * 200_000


def in_parts(out: GridOut) -> bytes:
    return b"".join(list(iter(lambda: out.read(1000), b"")))


@pytest.mark.parametrize("version", ["5.0", "6.0", "7.0"])
def test_the_older_interface(version: str) -> None:
    """In versions that PyMongo connects to."""
    with (
        mongottl.start_server(dialect="cosmos", server_version=version) as running,
        pymongo.MongoClient[dict[str, Any]](running.uri) as client,
    ):
        files = GridFS(client.shop)
        first = files.put(OLD, filename="report", kind="text")
        second = files.put(NEW, filename="report")
        other = files.put(b"", filename="empty")
        assert files.get(first).read() == OLD
        assert files.get(second).read() == NEW
        assert files.get(other).read() == b""
        assert files.get_last_version("report").read() == NEW
        assert files.get_version("report", 0).read() == OLD
        assert files.get_version("report", -2).read() == OLD
        assert files.get_version("report", 1).read() == NEW
        with pytest.raises(gridfs.NoFile):
            files.get_version("report", 2)
        assert files.list() == ["empty", "report"]
        assert files.exists(filename="report") and not files.exists(filename="none")
        assert {found.filename for found in files.find({"filename": "report"})} == {"report"}
        files.delete(first)
        with pytest.raises(gridfs.NoFile):
            files.get(first)


def test_buckets(shop: Shop) -> None:
    bucket = GridFSBucket(shop, bucket_name="photos", chunk_size_bytes=1024)
    first = bucket.upload_from_stream("report", OLD)
    bucket.upload_from_stream_with_id("own", "report", NEW[:300_000])
    into = io.BytesIO()
    bucket.download_to_stream(first, into)
    assert into.getvalue() == OLD
    into = io.BytesIO()
    bucket.download_to_stream_by_name("report", into)
    assert into.getvalue() == NEW[:300_000]
    into = io.BytesIO()
    bucket.download_to_stream_by_name("report", into, revision=0)
    assert into.getvalue() == OLD
    out = bucket.open_download_stream("own")
    assert in_parts(out) == NEW[:300_000]
    out.seek(5000)
    assert out.read(10) == NEW[5000:5010]
    assert bucket.open_download_stream_by_name("report", revision=-2).read() == OLD
    bucket.rename("own", "renamed")
    assert bucket.open_download_stream_by_name("renamed").read() == NEW[:300_000]
    bucket.delete(first)
    assert [found._id for found in bucket.find({})] == ["own"]


def test_the_indexes_are_those_of_the_driver(shop: Shop) -> None:
    GridFS(shop).put(OLD, filename="report")
    assert sorted(shop.fs.files.index_information()) == ["_id_", "filename_1_uploadDate_1"]
    assert sorted(shop.fs.chunks.index_information()) == ["_id_", "files_id_1_n_1"]
