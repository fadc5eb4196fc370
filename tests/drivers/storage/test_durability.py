"""`j: true` and a disk that fails: an answer only after the data is on disk, and no more of them once it cannot be."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymongo
import pytest
import trio
from pymongo.errors import OperationFailure, WriteConcernError
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
            with pytest.raises(WriteConcernError, match=r"made durable|earlier flush failed") as raised:
                durable.insert_one({"_id": 2})
            assert raised.value.code == 64
            assert "it is unknown whether the write is durable" in str(raised.value)
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


def test_the_outcome_of_a_write_is_unknown_when_its_flush_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was executed is told, with the error of the flush beside it; a commit, and its repetition, by the label."""
    with mongottl.start_server(data_dir=str(tmp_path)) as server, Client(server.uri) as client:
        collection = client.test.c
        collection.insert_many([{"_id": 0}, {"_id": 1}])
        with client.start_session() as session:
            session.start_transaction(write_concern=WriteConcern(j=True))
            collection.insert_one({"_id": 2}, session=session)
            monkeypatch.setattr(os, "fdatasync", lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error")))
            for _ in range(2):
                with pytest.raises(WriteConcernError, match="it is unknown whether the write is durable") as raised:
                    session.commit_transaction()
                assert raised.value.details is not None
                assert "UnknownTransactionCommitResult" in raised.value.details["errorLabels"]
        assert collection.count_documents({}) == 3


@pytest.mark.parametrize(
    "command",
    [
        {"insert": "c", "documents": [{"_id": 2}]},
        {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a": 1}}}]},
        {"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}]},
        {"findAndModify": "c", "query": {"_id": 1}, "remove": True},
        {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a"}]},
        {"create": "d"},
    ],
    ids=lambda command: next(iter(command)),
)
def test_a_failed_flush_is_a_write_concern_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: dict[str, Any]
) -> None:
    with mongottl.start_server(data_dir=str(tmp_path)) as server, Client(server.uri) as client:
        client.test.c.insert_one({"_id": 1})
        expected = client.test.command(command)
        client.test.drop_collection("d")
        client.test.drop_collection("c")
        # On disk, so that it is the command's flush that fails, not an earlier one in the background.
        client.test.c.with_options(write_concern=WriteConcern(j=True)).insert_one({"_id": 1})
        monkeypatch.setattr(os, "fdatasync", lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        reply = client.test.command({**command, "writeConcern": {"j": True}}, check=False)
        failed = reply.pop("writeConcernError")
        assert failed["code"] == 64
        assert "errorLabels" not in reply
        for changing in ("$clusterTime", "operationTime"):
            reply.pop(changing)
            expected.pop(changing)
        assert reply == expected


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not remove a file that is open")
def test_nothing_is_acknowledged_after_the_data_folder_was_removed(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with mongottl.start_server(data_dir=str(folder)) as server, Client(server.uri) as client:
        durable = client.test.c.with_options(write_concern=WriteConcern(j=True))
        durable.insert_one({"_id": 1})
        shutil.rmtree(folder)
        with pytest.raises(WriteConcernError, match=r"was removed|earlier flush failed"):
            durable.insert_one({"_id": 2})
        with pytest.raises(OperationFailure, match="earlier flush failed"):
            client.test.c.insert_one({"_id": 3})
        assert client.test.c.find_one({"_id": 1}) == {"_id": 1}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_a_data_folder_that_others_can_read_is_told_in_a_warning(tmp_path: Path) -> None:
    def warnings(folder: Path) -> str:
        with mongottl.start_server(data_dir=str(folder)) as server, Client(server.uri) as client:
            return str(client.admin.command("getLog", "startupWarnings")["log"])

    assert "can read the data folder" not in warnings(tmp_path / "own")
    (tmp_path / "shared").mkdir(mode=0o750)
    assert "can read the data folder" in warnings(tmp_path / "shared")


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
