"""Writes that a driver sends again, because it does not know what became of the first attempt."""

import uuid
from typing import Any

import pymongo
import pytest
from bson import Binary, Int64
from pymongo.database import Database

import mongottl
from tests.drivers.test_protocol import Raw


def retryable(database: Database[dict[str, Any]], command: dict[str, Any]) -> dict[str, Any]:
    return {**command, "lsid": {"id": Binary(uuid.uuid4().bytes, 4)}, "txnNumber": Int64(1), "$db": database.name}


def begun(client: "pymongo.MongoClient[dict[str, Any]]", command: str) -> int:
    """How many of these commands the server has begun with."""
    total: int = client.admin.command("serverStatus")["metrics"]["commands"].get(command, {"total": 0})["total"]
    return total


@pytest.mark.parametrize(
    "command",
    [
        {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]},
        {"findAndModify": "c", "query": {"_id": 1}, "update": {"$inc": {"n": 1}}, "new": True},
        {"insert": "c", "documents": [{"_id": n} for n in range(2, 2002)]},
        {"delete": "c", "deletes": [{"q": {"n": 0}, "limit": 1}]},
    ],
    ids=lambda command: str(next(iter(command))),
)
def test_a_retry_while_the_first_attempt_runs(
    server: mongottl.RunningServer,
    client: "pymongo.MongoClient[dict[str, Any]]",
    database: Database[dict[str, Any]],
    command: dict[str, Any],
) -> None:
    """It waits for the end of the first, has the same answer, and changes nothing."""
    name = next(iter(command))
    database.c.insert_many([{"_id": 1, "n": 0}, {"_id": -1, "n": 0}])
    client.admin.command(
        "configureFailPoint",
        "failCommand",
        mode={"times": 1},
        data={"failCommands": [name], "blockConnection": True, "blockTimeMS": 100},
    )
    write = retryable(database, command)
    attempts = begun(client, name)
    first, second = Raw(server.port), Raw(server.port)
    with first.socket, second.socket:
        first.send(first.request(write))
        while begun(client, name) == attempts:
            pass
        second.send(second.request(write))
        assert first.reply() == second.reply()
    expected = {"update": (2, 1), "findAndModify": (2, 1), "insert": (2002, 0), "delete": (1, 0)}[name]
    assert (database.c.count_documents({}), sum(document.get("n", 0) for document in database.c.find())) == expected
