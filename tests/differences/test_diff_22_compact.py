"""`compact` works on the file of all collections.

MongoDB has files for each collection. Source: MongoDB manual, "compact" and "autoCompact", which leaves out the oplog.
"""

from pathlib import Path
from typing import Any

import pymongo
from pymongo.database import Database

import mongottl

MB = 1 << 20


def test_the_space_of_other_collections_is_given_back(tmp_path: Path) -> None:
    with (
        mongottl.start_server(data_dir=str(tmp_path)) as server,
        pymongo.MongoClient[dict[str, Any]](server.uri) as client,
    ):
        database = client.differences
        database.create_collection("empty")
        database.other.insert_many([{"x": bytes(MB)} for _ in range(2)])
        database.other.delete_many({})
        assert database.command("compact", "empty", force=True, freeSpaceTargetMB=1)["bytesFreed"] > MB


def test_nothing_is_given_back_in_memory(database: Database[dict[str, Any]]) -> None:
    database.c.insert_many([{"x": bytes(MB)} for _ in range(2)])
    database.c.delete_many({})
    assert database.command("compact", "c", force=True, freeSpaceTargetMB=1)["bytesFreed"] == 0
