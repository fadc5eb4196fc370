"""Writes that a driver sends again, because it does not know what became of the first attempt."""

from typing import Any

import pymongo
import pytest
from pymongo.database import Database
from pymongo.errors import AutoReconnect, NetworkTimeout

import mongottl


@pytest.fixture
def impatient(server: mongottl.RunningServer) -> Any:
    with pymongo.MongoClient[dict[str, Any]](server.uri, socketTimeoutMS=100) as client:
        yield client


def fail(client: "pymongo.MongoClient[dict[str, Any]]", times: int, **data: Any) -> None:
    client.admin.command(
        "configureFailPoint", "failCommand", mode={"times": times}, data={"failCommands": ["insert"], **data}
    )


@pytest.fixture
def stops_failing(client: "pymongo.MongoClient[dict[str, Any]]") -> Any:
    yield
    client.admin.command("configureFailPoint", "failCommand", mode="off")


@pytest.mark.usefixtures("stops_failing")
def test_a_fail_point_blocks_the_retry_as_well(
    client: "pymongo.MongoClient[dict[str, Any]]",
    impatient: "pymongo.MongoClient[dict[str, Any]]",
    database: Database[dict[str, Any]],
) -> None:
    """As the driver specification on timeouts has it: each attempt meets the fail point before its session."""
    collection = impatient[database.name].c
    fail(client, 1, blockConnection=True, blockTimeMS=150)
    collection.insert_one({"_id": 1})
    fail(client, 2, blockConnection=True, blockTimeMS=150)
    with pytest.raises(NetworkTimeout):
        collection.insert_one({"_id": 2})
    fail(client, 1, closeConnection=True)
    collection.insert_one({"_id": 3})
    fail(client, 2, closeConnection=True)
    with pytest.raises(AutoReconnect):
        collection.insert_one({"_id": 4})
    assert database.c.count_documents({"_id": {"$in": [1, 3]}}) == 2


@pytest.mark.usefixtures("stops_failing")
def test_the_write_concern_error_of_a_fail_point_is_of_one_attempt(
    client: "pymongo.MongoClient[dict[str, Any]]", database: Database[dict[str, Any]]
) -> None:
    """A server remembers what it wrote, not how far that was replicated when it answered."""
    fail(client, 1, writeConcernError={"code": 91, "errmsg": "shutting down"}, errorLabels=["RetryableWriteError"])
    database.c.insert_one({"_id": 1})
    assert database.c.find_one() == {"_id": 1}
