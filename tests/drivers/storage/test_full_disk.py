"""A small disk that is filled up: deletions go on, the log takes its share only, and writes go on when there is room.

The disk is a file system in memory, which only root may mount; without that the tests are skipped.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.errors import OperationFailure

import mongottl
from tests.waiting import until

DISK_BYTES = 64 << 20
PAGE_BYTES = 4096
OUT_OF_DISK_SPACE = 14031
MESSAGES = ("The disk is full: only what deletes is written until there is room", "There is room on the disk again")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The folder where a small disk is mounted."""
    path = tmp_path / "disk"
    path.mkdir()
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)], capture_output=True, text=True
        )
    except OSError as error:
        pytest.skip(f"needs mount: {error}")
    if mounted.returncode:
        pytest.skip(f"needs to mount a file system: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@contextlib.contextmanager
def serving(disk: Path) -> Iterator[pymongo.MongoClient[dict[str, Any]]]:
    with (
        mongottl.start_server(data_dir=str(disk / "data"), oplog_size_mb=4) as server,
        pymongo.MongoClient[dict[str, Any]](server.uri) as client,
    ):
        yield client


def document(size: int = 4000) -> dict[str, Any]:
    return {"x": os.urandom(size)}


def fill(collection: Any, size: int = 8000, at_once: int = 50) -> None:
    """Inserts until the disk is full, many at once and then one by one."""
    for count in (at_once, 1):
        refused = 0
        while refused < 3:
            try:
                collection.insert_many([document(size) for _ in range(count)])
                refused = 0
            except OperationFailure as error:
                assert error.code == OUT_OF_DISK_SPACE, error
                refused += 1


def occupy(disk: Path) -> Path:
    """Another program's file, which takes all the room that is left."""
    path = disk / "other"
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return path


def is_settled(disk: Path) -> bool:
    """Whether there is a reserve, and the database file has all pages that the log knows.

    While the log is copied, the file grows; who takes all the room before it has its length leaves none for the rest,
    and no reserve is large enough for that. The number of pages is that of SQLite's index of the log
    (https://www.sqlite.org/walformat.html, section 2.1).
    """
    data = disk / "data"
    pages = int.from_bytes((data / "mongottl.sqlite3-shm").read_bytes()[20:24], sys.byteorder)
    return (data / "mongottl.reserve").exists() and (data / "mongottl.sqlite3").stat().st_size == pages * PAGE_BYTES


def can_insert(collection: Any) -> bool:
    try:
        collection.insert_one(document(20_000))
    except OperationFailure as error:
        assert error.code == OUT_OF_DISK_SPACE, error
        return False
    return True


def log_of(client: pymongo.MongoClient[dict[str, Any]]) -> list[str]:
    """The messages of the log about the disk."""
    lines = [json.loads(line)["msg"] for line in client.admin.command("getLog", "global")["log"]]
    return [message for message in lines if message in MESSAGES]


def test_a_disk_that_was_full_gets_its_room_back(disk: Path) -> None:
    with serving(disk) as client:
        fill(client.shop.carts)
        client.shop.carts.delete_many({})
        until(lambda: can_insert(client.shop.carts))
        database = disk / "data" / "mongottl.sqlite3"
        length = database.stat().st_size
        reply = client.shop.command("compact", "carts", force=True, freeSpaceTargetMB=1)
        assert reply["bytesFreed"] > length // 2
        until(lambda: database.stat().st_size < length // 4)
        assert client.shop.carts.count_documents({}) == 1
        assert client.shop.command("validate", "carts", full=True)["valid"]


def test_documents_are_deleted_on_a_full_disk_and_inserts_go_on_then(disk: Path) -> None:
    with serving(disk) as client:
        collection = client.shop.carts
        fill(collection)
        count = collection.count_documents({})
        assert count * 8000 > DISK_BYTES // 4  # the log has not taken most of the disk
        assert collection.delete_many({}).deleted_count == count
        until(lambda: can_insert(collection))
        for _ in range(100):
            collection.insert_many([document() for _ in range(50)])
    with serving(disk) as client:
        assert client.shop.carts.count_documents({}) >= 5000


def test_updates_of_few_documents_do_not_fill_the_disk(disk: Path) -> None:
    """A log that grows with each of them would."""
    with serving(disk) as client:
        collection = client.shop.carts
        collection.insert_many([{"_id": number, "n": 0, **document()} for number in range(1000)])
        for number in range(1, 21):
            collection.update_many({}, {"$set": {"n": number, "x": os.urandom(4000)}})
        assert collection.count_documents({"n": 20}) == 1000
        assert log_of(client) == []


def test_a_disk_that_others_fill_is_left_without_a_restart(disk: Path) -> None:
    with serving(disk) as client:
        collection = client.shop.carts
        collection.insert_many([{"n": number, **document()} for number in range(2000)])
        until(lambda: is_settled(disk))
        other = occupy(disk)
        until(lambda: not can_insert(collection))
        for refused in range(20):
            assert not can_insert(collection), refused
        with pytest.raises(OperationFailure):
            collection.update_one({"n": 1}, {"$set": {"x": os.urandom(100_000)}})
        with pytest.raises(OperationFailure):
            collection.create_index("n")
        with pytest.raises(OperationFailure):
            client.shop.create_collection("more")
        assert collection.find_one({"n": 1}) is not None
        for number in range(500):
            assert collection.delete_one({"n": number}).deleted_count == 1
        assert collection.delete_many({"n": {"$lt": 1500}}).deleted_count == 1000
        found = collection.find_one_and_delete({"n": 1500})
        assert found is not None and found["n"] == 1500
        assert log_of(client).count(MESSAGES[0]) == 1
        other.unlink()
        until(lambda: can_insert(collection))
        until(lambda: log_of(client)[-1] == MESSAGES[1])
        until(lambda: (disk / "data" / "mongottl.reserve").exists())
        collection.create_index("n")
        assert collection.count_documents({"n": {"$gt": 0}}) == 499


def test_expired_documents_are_deleted_and_collections_dropped_on_a_full_disk(disk: Path) -> None:
    with serving(disk) as client:
        collection = client.shop.carts
        collection.create_index("_ts", expireAfterSeconds=100)
        client.shop.other.insert_many([document() for _ in range(500)])
        collection.insert_many([document() for _ in range(1500)])
        until(lambda: is_settled(disk))
        occupy(disk)
        until(lambda: not can_insert(collection))
        deleted = client.admin.command("serverStatus")["metrics"]["ttl"]["deletedDocuments"]
        expected = collection.count_documents({})
        client.admin.command("advanceClock", 200)
        status = client.admin.command("serverStatus")
        assert status["metrics"]["ttl"]["deletedDocuments"] == deleted + expected
        client.shop.drop_collection("other")
        assert client.shop.list_collection_names() == ["carts"]
        assert log_of(client).count(MESSAGES[0]) == 1


@pytest.mark.parametrize("first", ["advanceClock", "drop", "dropIndexes"])
def test_first_command_that_finds_the_disk_full_takes_its_room_from_the_reserve(disk: Path, first: str) -> None:
    """No write before it has told the engine that the disk is full."""
    with serving(disk) as client:
        collection = client.shop.carts
        collection.create_index("_ts", expireAfterSeconds=100)
        collection.insert_many([document() for _ in range(1500)])
        until(lambda: is_settled(disk))
        occupy(disk)
        if first == "advanceClock":
            assert client.admin.command("advanceClock", 200)["ttlDeleted"] == 1500
        elif first == "drop":
            client.shop.drop_collection("carts")
            assert client.shop.list_collection_names() == []
        else:
            collection.drop_index("_ts_1")
            assert list(collection.index_information()) == ["_id_"]


def test_a_folder_on_a_full_disk_can_be_opened_and_cleaned(disk: Path) -> None:
    with serving(disk) as client:
        collection = client.shop.carts
        collection.insert_many([document() for _ in range(1500)])
        until(lambda: is_settled(disk))
        occupy(disk)
        until(lambda: not can_insert(collection))
        count = collection.count_documents({})
    with serving(disk) as client:
        assert client.shop.carts.delete_many({}).deleted_count == count
    (disk / "other").unlink()
    with serving(disk) as client:
        assert can_insert(client.shop.carts)
        assert client.shop.carts.count_documents({}) == 1
