"""Which engine a server keeps its data in, and that clients cannot tell otherwise than by asking."""

from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

import mongottl
from tests.on_store import is_wanted


@pytest.mark.parametrize(
    ("settings", "in_folder", "engine"),
    [({}, False, "memory"), ({}, True, "sqlite"), ({"storage_engine": "sqlite"}, False, "sqlite")],
)
def test_server_status_names_the_engine(settings: dict[str, Any], in_folder: bool, engine: str, tmp_path: Path) -> None:
    is_kept = in_folder
    if in_folder:
        settings = {**settings, "data_dir": str(tmp_path)}
    elif is_wanted():
        engine, is_kept = "postgresql", True
    with mongottl.start_server(**settings) as server, MongoClient[dict[str, Any]](server.uri) as client:
        client.db.c.insert_many([{"_id": n, "ttl": 5} for n in range(300)])
        client.db.c.create_index("_ts", expireAfterSeconds=-1)
        client.db.c.delete_many({"_id": {"$gte": 290}})
        status = client.admin.command("serverStatus")
        shown = status["storageEngine"]
        assert (shown["name"], shown["persistent"]) == (engine, is_kept)
        assert status["mongottl"]["engine"] == engine
        assert status["mongottl"]["storage"]["commits"] >= 3
        server.clock.advance(5)
        assert client.db.c.count_documents({}) == 0


def test_the_memory_engine_refuses_a_folder(tmp_path: Path) -> None:
    with (
        pytest.raises(mongottl.SettingError, match=r"^storage_engine: memory not together with data_dir$"),
        mongottl.start_server(storage_engine="memory", data_dir=str(tmp_path)),
    ):
        pass
