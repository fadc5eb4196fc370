"""What the disk has changed is an error that names the record, and never a wrong answer or an internal error."""

import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymongo
import pytest
from bson import Int64
from pymongo.errors import OperationFailure

import mongottl
from mongottl.offline.check import DataCheck

Client = pymongo.MongoClient[dict[str, Any]]
Collection = pymongo.collection.Collection[dict[str, Any]]
DATABASE = "mongottl.sqlite3"
FORMAT_1 = Path(__file__).parents[2] / "conformance" / "folders" / "format_1.zip"
# The record of the document whose `_id` is 123.
RECORD = 124


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "data"
    with mongottl.start_server(data_dir=str(path)) as server, Client(server.uri) as client:
        client.shop.things.insert_many([{"_id": n, "a": n, "v": f"value-{n:05d}"} for n in range(300)])
        client.shop.things.create_index("a")
    return path


def places(path: Path, text: bytes) -> list[int]:
    """Where a text stands in the database: in the document, and in its entry in the oplog."""
    content = (path / DATABASE).read_bytes()
    found = [content.find(text)]
    while (following := content.find(text, found[-1] + 1)) >= 0:
        found.append(following)
    return found


def flip(path: Path, offset: int, bit: int = 0) -> None:
    with (path / DATABASE).open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


def tables(path: Path) -> list[str]:
    with sqlite3.connect(path / DATABASE) as raw:
        rows = raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'r[0-9]*'").fetchall()
    raw.close()
    return [name for (name,) in rows]


def forget_sums(path: Path) -> None:
    """As in a folder that was written before there were checksums."""
    with sqlite3.connect(path / DATABASE) as raw:
        for table in tables(path):
            raw.execute(f"UPDATE {table} SET sum = NULL")
    raw.close()


def copied(path: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(path, tmp_path / "data"))


READS: list[Callable[[Collection], object]] = [
    lambda things: list(things.find()),
    lambda things: things.find_one({"_id": 123}),
    lambda things: things.find_one({"a": 123}),
    lambda things: list(things.find({"a": {"$gte": 0}})),
    lambda things: list(things.find({"_id": {"$in": [5, 6, 7, 8, 123]}})),
    lambda things: list(things.find().sort("$natural", -1)),
    lambda things: list(things.aggregate([{"$group": {"_id": "$v"}}])),
    lambda things: list(things.aggregate([{"$out": "copies"}])),
    lambda things: things.update_one({"_id": 123}, {"$set": {"z": 1}}),
    lambda things: things.update_many({}, {"$inc": {"a": 1}}),
    lambda things: things.replace_one({"a": 123}, {"z": 1}),
    lambda things: things.find_one_and_update({"a": 123}, {"$set": {"z": 1}}),
    lambda things: things.delete_one({"_id": 123}),
    lambda things: things.delete_many({"a": {"$gt": 100}}),
    lambda things: things.create_index("v"),
]


def test_a_changed_bit_of_a_value_is_an_error(whole: Path, tmp_path: Path) -> None:
    path = copied(whole, tmp_path)
    flip(path, places(path, b"value-00123")[0] + 8)
    assert list(DataCheck(str(path)).faults()) == [
        f"shop.things: record {RECORD} is not as it was written: its checksum is wrong"
    ]
    with mongottl.start_server(data_dir=str(path)) as server, Client(server.uri) as client:
        things = client.shop.things
        for read in READS:
            with pytest.raises(OperationFailure, match=f"record {RECORD} of shop.things is damaged"):
                read(things)
        assert things.find_one({"_id": 124}, {"v": 1}) == {"_id": 124, "v": "value-00124"}
        assert things.update_one({"_id": 299}, {"$set": {"z": 1}}).modified_count == 1
        found = client.shop.command("validate", "things")
        assert (found["valid"], found["corruptRecords"]) == (False, [Int64(RECORD)])
        assert not found["extraIndexEntries"] and not found["missingIndexEntries"]
        assert client.admin.command("serverStatus")["asserts"]["internal"] == 0


def test_a_changed_bit_in_the_oplog_is_an_error(whole: Path, tmp_path: Path) -> None:
    path = copied(whole, tmp_path)
    flip(path, places(path, b"value-00123")[1] + 8)
    (fault,) = DataCheck(str(path)).faults()
    assert "its checksum is wrong" in fault and "shop.things" not in fault
    with mongottl.start_server(data_dir=str(path)) as server, Client(server.uri) as client:
        assert len(list(client.shop.things.find())) == 300
        with pytest.raises(OperationFailure, match="is damaged: its checksum is wrong"):
            list(client.local["oplog.rs"].find())
        assert client.admin.command("serverStatus")["asserts"]["internal"] == 0


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("byte", [-4, -3, -1, 0, 11])
def test_an_update_of_a_damaged_document_without_checksum_is_no_internal_error(
    whole: Path, tmp_path: Path, byte: int, bit: int
) -> None:
    """byte: of the value, the length of the string before it, or its end."""
    path = copied(whole, tmp_path)
    forget_sums(path)
    flip(path, places(path, b"value-00123")[0] + byte, bit)
    with mongottl.start_server(data_dir=str(path)) as server, Client(server.uri) as client:
        for update in ({"$set": {"z": 1}}, {"$unset": {"v": 1}}, {"$push": {"v": 1}}, [{"$set": {"z": "$v"}}]):
            for update_many in (False, True):
                try:
                    if update_many:
                        client.shop.things.update_many({"_id": {"$gte": 0}}, update)
                    else:
                        client.shop.things.update_one({"_id": 123}, update)
                except OperationFailure as error:
                    assert error.code != 1, error
        assert client.admin.command("serverStatus")["asserts"]["internal"] == 0


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The folder of a server that was killed, written before there were checksums."""
    path = tmp_path / "old"
    with zipfile.ZipFile(FORMAT_1) as archive:
        archive.extractall(path)
    return path


def test_documents_of_a_folder_of_format_1_get_checksums_when_they_are_written(old: Path) -> None:
    with mongottl.start_server(data_dir=str(old)) as server, Client(server.uri) as client:
        client.shop.things.update_one({"_id": 50}, {"$set": {"again": "with a checksum"}})
        client.shop.things.insert_one({"_id": 100, "name": "with a checksum, too"})
    flip(old, places(old, b"thing 60")[0])
    assert not [fault for fault in DataCheck(str(old)).faults() if "checksum" in fault]
    for text in (b"with a checksum\x00", b"with a checksum, too"):
        flip(old, places(old, text)[0])
    wrong = [fault for fault in DataCheck(str(old)).faults() if "its checksum is wrong" in fault]
    assert [fault.partition(" is not")[0] for fault in wrong if fault.startswith("shop.things")] == [
        "shop.things: record 51",
        "shop.things: record 101",
    ]


def deleted_documents(client: Client) -> int:
    deleted: int = client.admin.command("serverStatus")["metrics"]["ttl"]["deletedDocuments"]
    return deleted


def test_the_purge_leaves_out_damaged_documents_alone(tmp_path: Path) -> None:
    path = tmp_path / "data"
    indexes = {"lasting": "_ts", "own": "_ts", "dated": "at", "other": "_ts"}
    with mongottl.start_server(data_dir=str(path)) as server, Client(server.uri) as client:
        for name, field in indexes.items():
            client.shop[name].create_index(field, expireAfterSeconds=-1 if name == "own" else 100)
            own = {"ttl": 50} if name == "own" else {}
            now = server.clock.now()
            client.shop[name].insert_many({"_id": n, "at": now, "v": f"{name}-{n:05d}", **own} for n in range(600))
    for name in ("lasting", "own", "dated"):
        for place in places(path, f"{name}-00003".encode()):
            flip(path, place)
    with mongottl.start_server(data_dir=str(path)) as server, Client(server.uri) as client:
        server.clock.advance(200)
        assert deleted_documents(client) == 3 * 599 + 600
        server.clock.advance(200)
        log = [line for line in client.admin.command("getLog", "global")["log"] if "leaves out" in line]
        assert len(log) == 3
        assert any("record 4 of shop.dated is damaged: its checksum is wrong" in line for line in log)
        client.shop.lasting.insert_one({"_id": 700})
        server.clock.advance(200)
        assert deleted_documents(client) == 4 * 600 - 2
