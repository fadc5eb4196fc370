"""Data folders of each format, made by the server that introduced it, and what guards the number of the format.

A format's folder is `folders/format_N.zip`, of a server that was killed; `folders/format_N.json` describes its form
(`tests.folder_form`), since the first that had a description.
"""

import zipfile
from pathlib import Path
from typing import Any

import pymongo
import pytest

import mongottl
from mongottl.offline.check import DataCheck
from mongottl.storage.sqlite.directory import FORMAT_VERSION, OLDEST_FORMAT
from tests.folder_form import as_text, describe

Client = pymongo.MongoClient[dict[str, Any]]
DATABASE = "mongottl.sqlite3"
FOLDERS = Path(__file__).parent / "folders"
FORMATS = range(OLDEST_FORMAT, FORMAT_VERSION + 1)
# Of the number of the format in the header of SQLite's file, where servers look first.
NUMBER_AT = slice(60, 64)


def unpacked(path: Path, number: int) -> Path:
    with zipfile.ZipFile(FOLDERS / f"format_{number}.zip") as archive:
        archive.extractall(path)
    return path


def format_of(path: Path) -> int:
    return int.from_bytes((path / DATABASE).read_bytes()[NUMBER_AT], "big")


@pytest.mark.parametrize("number", FORMATS)
def test_a_folder_of_each_format_is_read(tmp_path: Path, number: int) -> None:
    old = unpacked(tmp_path / "old", number)
    assert format_of(old) == number
    before = {file.name: file.read_bytes() for file in old.iterdir()}
    assert list(DataCheck(str(old)).faults()) == []
    assert {file.name: file.read_bytes() for file in old.iterdir()} == before
    with mongottl.start_server(data_dir=str(old)) as server, Client(server.uri) as client:
        assert format_of(old) == FORMAT_VERSION
        shop = client.shop
        things = list(shop.things.find().sort("price"))
        assert [thing["_id"] for thing in things] == list(range(100))
        assert [thing.get("seen") for thing in things[8:12]] == [True, True, None, None]
        assert shop.things.find_one({"name": "thing 5"}) == things[5]
        assert [document["n"] for document in shop["last"].find()] == list(range(10, 20))
        assert [document["_id"] for document in shop.expiring.find()] == [1, 2]
        large = shop.large.find_one()
        assert large is not None and len(large["text"]) == 100_000
        assert shop.late.find_one() == {"_id": "only in the log"}
        shop.things.update_many({"_id": {"$lt": 20}}, {"$set": {"again": 1}})
        shop.things.insert_one({"_id": 100, "name": "new", "price": 0})
        shop.new.insert_one({"_id": 1})
        assert shop.command("validate", "things")["valid"]
    assert list(DataCheck(str(old)).faults()) == []


def test_the_format_of_tomorrow_is_refused_and_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with mongottl.start_server(data_dir=str(folder)):
        pass
    database = bytearray((folder / DATABASE).read_bytes())
    database[NUMBER_AT] = (FORMAT_VERSION + 1).to_bytes(4, "big")
    (folder / DATABASE).write_bytes(database)
    with pytest.raises(OSError, match=f"has format {FORMAT_VERSION + 1}, written by a newer mongottl; this one reads"):
        mongottl.start_server(data_dir=str(folder))
    assert (folder / DATABASE).read_bytes() == database


def test_the_form_of_a_new_folder_is_that_of_its_format(tmp_path: Path) -> None:
    """What differs here may keep an older server, or this one, from reading a folder: then `FORMAT_VERSION` is raised,
    and the new format gets its folder and its description (`python -m tests.folder_form`)."""
    recorded = (FOLDERS / f"format_{FORMAT_VERSION}.json").read_text(encoding="utf-8")
    assert as_text(describe(tmp_path / "data")) == recorded
