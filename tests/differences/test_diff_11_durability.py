"""An acknowledged write survives a crash of the server at once, and a power failure after 100 ms.

MongoDB answers its default write concern, `w: "majority"`, when the journal is on disk (manual, "Write Concern",
`writeConcernMajorityJournalDefault`), and flushes it every 100 ms for `w: 1`. Here only `j: true` waits for the disk.
"""

import shutil
from pathlib import Path
from typing import Any

import pymongo
from pymongo import WriteConcern

import mongottl


def flushes(client: "pymongo.MongoClient[dict[str, Any]]") -> int:
    count: int = client["admin"].command("serverStatus")["mongottl"]["storage"]["flushes"]
    return count


def test_only_j_waits_for_the_disk(tmp_path: Path) -> None:
    home = tmp_path / "data"
    with mongottl.start_server(data_dir=str(home)) as server, pymongo.MongoClient[dict[str, Any]](server.uri) as client:
        collection = client["test"]["c"]
        for n in range(5):
            before = flushes(client)
            collection.with_options(write_concern=WriteConcern(w=1, j=True)).insert_one({"_id": n})
            assert flushes(client) > before
        shutil.copytree(home, tmp_path / "crashed")
        # Each of these in less than the 100 ms between two flushes, so that not one of them has waited for its own.
        before = flushes(client)
        collection.with_options(write_concern=WriteConcern(w="majority")).insert_many(
            [{"_id": 10 + n} for n in range(3)]
        )
        for n in range(20):
            collection.with_options(write_concern=WriteConcern(w="majority")).insert_one({"_id": 100 + n})
        assert flushes(client) - before < 20
        shutil.copytree(home, tmp_path / "later")
    for name, count in (("crashed", 5), ("later", 28)):
        with (
            mongottl.start_server(data_dir=str(tmp_path / name)) as server,
            pymongo.MongoClient[dict[str, Any]](server.uri) as client,
        ):
            assert client["test"]["c"].count_documents({}) == count
