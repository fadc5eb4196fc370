"""filemd5 and getnonce: commands of earlier versions, which Cosmos DB lists."""

import hashlib
import re
from typing import Any

import gridfs
import pymongo
import pytest
from bson import ObjectId
from pymongo.database import Database
from pymongo.errors import OperationFailure

EMPTY = {"numChunks": 0, "md5": hashlib.md5(b"").hexdigest(), "ok": 1.0}


def digest_of(database: Database[dict[str, Any]], file: Any, **fields: Any) -> dict[str, Any]:
    reply = database.command("filemd5", file, **fields)
    return {name: reply[name] for name in ("numChunks", "md5", "ok")}


@pytest.mark.parametrize("root", ["fs", "photos"])
def test_the_digest_of_a_file(database: Database[dict[str, Any]], root: str) -> None:
    files = gridfs.GridFS(database, root)
    data = bytes(range(256)) * 10
    options = {} if root == "fs" else {"root": root}
    other = files.put(b"other")
    file = files.put(data, chunk_size=1000)
    assert digest_of(database, file, **options) == {"numChunks": 3, "md5": hashlib.md5(data).hexdigest(), "ok": 1.0}
    assert digest_of(database, other, **options)["numChunks"] == 1
    assert digest_of(database, ObjectId(), **options) == EMPTY


def test_without_chunks(database: Database[dict[str, Any]]) -> None:
    assert digest_of(database, 5) == EMPTY
    assert database.list_collection_names() == []


@pytest.mark.parametrize(
    ("chunks", "code"),
    [
        ([{"n": 0, "data": b"x"}, {"n": 2, "data": b"y"}], 10040),
        ([{"n": 1, "data": b"x"}], 10040),
        ([{"n": 0, "data": "x"}], 2),
        ([{"n": 0}], 2),
    ],
)
def test_broken_files(database: Database[dict[str, Any]], chunks: list[dict[str, Any]], code: int) -> None:
    database["fs.chunks"].insert_many([{"files_id": 5, **chunk} for chunk in chunks])
    with pytest.raises(OperationFailure) as caught:
        database.command("filemd5", 5)
    assert caught.value.code == code


def test_in_the_dialect_cosmos(shop: Database[dict[str, Any]]) -> None:
    file = gridfs.GridFS(shop).put(b"data")
    assert digest_of(shop, file)["md5"] == hashlib.md5(b"data").hexdigest()


def test_nonces(client: "pymongo.MongoClient[dict[str, Any]]") -> None:
    nonces = [client.admin.command("getnonce")["nonce"] for _ in range(3)]
    assert len(set(nonces)) == 3
    assert all(re.fullmatch("[0-9a-f]{16}", nonce) for nonce in nonces)
