"""compact and autoCompact on a server with a data folder."""

from pathlib import Path
from typing import Any

import pymongo

import mongottl
from tests.waiting import until

MB = 1 << 20


def fill_and_delete(client: pymongo.MongoClient[dict[str, Any]], megabytes: int) -> None:
    collection = client.shop.carts
    collection.insert_many([{"_id": number, "x": bytes(MB)} for number in range(megabytes)])
    collection.delete_many({})


def storage(client: pymongo.MongoClient[dict[str, Any]]) -> dict[str, int]:
    figures: dict[str, int] = client.admin.command("serverStatus")["mongottl"]["storage"]
    return figures


def test_commands_make_the_file_short(tmp_path: Path) -> None:
    path = tmp_path / "mongottl.sqlite3"
    with (
        mongottl.start_server(data_dir=str(tmp_path), oplog_size_mb=1) as server,
        pymongo.MongoClient[dict[str, Any]](server.uri) as client,
    ):
        fill_and_delete(client, 3)
        reply = client.shop.command("compact", "carts", force=True, freeSpaceTargetMB=1)
        assert reply["bytesFreed"] > 2 * MB
        until(lambda: 0 < path.stat().st_size < 3 * MB)
        assert client.admin.command("autoCompact", True, freeSpaceTargetMB=2)["ok"] == 1
        reclaimed = storage(client)["reclaimed_bytes"]
        fill_and_delete(client, 3)
        until(lambda: storage(client)["reclaimed_bytes"] > reclaimed + 2 * MB)
        until(lambda: path.stat().st_size < 3 * MB)
        assert client.admin.command("autoCompact", False)["ok"] == 1
        assert client.shop.carts.count_documents({}) == 0
