"""`j: true` and a disk that fails: an answer only after the data is on disk, and no more of them once it cannot be."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymongo
import pytest
import trio
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.write_concern import WriteConcern

import mongottl
from mongottl.config import ServerConfig
from mongottl.server.server import open_server

Client = pymongo.MongoClient[dict[str, Any]]


def test_nothing_is_acknowledged_after_a_failed_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mongottl.start_server(data_dir=str(tmp_path)) as server, Client(server.uri) as client:
        plain = client.test.c
        durable = plain.with_options(write_concern=WriteConcern(j=True))
        durable.insert_one({"_id": 1})
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error")))
            with pytest.raises(PyMongoError, match=r"made durable|earlier flush failed"):
                durable.insert_one({"_id": 2})
        # The disk is well again, but what the system has dropped is not written by a later flush.
        for write in (
            lambda: durable.insert_one({"_id": 3}),
            lambda: plain.insert_one({"_id": 4}),
            lambda: plain.update_one({"_id": 1}, {"$set": {"a": 1}}),
            lambda: plain.delete_many({}),
            lambda: plain.create_index("a"),
            lambda: client.test.create_collection("other"),
            lambda: list(plain.aggregate([{"$out": "other"}])),
        ):
            with pytest.raises(OperationFailure, match="earlier flush failed"):
                write()
        assert plain.find_one({"_id": 1}) == {"_id": 1}
        assert client.admin.command("ping")["ok"] == 1
        assert client.admin.command("serverStatus")["asserts"]["internal"] == 0
    with mongottl.start_server(data_dir=str(tmp_path)) as server, Client(server.uri) as client:
        assert client.test.c.find_one({"_id": 1}) == {"_id": 1}
        client.test.c.insert_one({"_id": 5})


def test_while_writers_are_held_others_are_answered() -> None:
    """What the server does while a long log ends; see `server/durability`."""

    async def main() -> None:
        config = ServerConfig(port=0, quiet=True)
        async with open_server(config) as server:
            client = Client(server.uri)
            collection = client.test.c
            await trio.to_thread.run_sync(collection.insert_one, {"_id": 0})
            server.durability.holds_writers = True
            written: list[str] = []

            async def write(name: str, function: Callable[[], Any]) -> None:
                await trio.to_thread.run_sync(function)
                written.append(name)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(write, "insert", lambda: collection.insert_one({"_id": 1}))
                nursery.start_soon(write, "update", lambda: collection.update_many({}, {"$inc": {"n": 1}}))
                nursery.start_soon(write, "out", lambda: list(collection.aggregate([{"$out": "other"}])))
                for _ in range(3):
                    await trio.to_thread.run_sync(client.admin.command, "ping")
                    found = await trio.to_thread.run_sync(lambda: list(collection.find()))
                    assert found == [{"_id": 0}]
                assert written == []
                server.durability.release_writers()
            assert sorted(written) == ["insert", "out", "update"]
            await trio.to_thread.run_sync(client.close)

    trio.run(main)
