"""A server whose clock stands still until a test moves it, and a collection of the test's own.

Most tests run twice: with the reaper held off, so that expired documents are still stored, and with it at work.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.database import Database

import mongottl
from tests.drivers.conftest import kept_clients
from tests.drivers.wire_client import ask_each_node

Documents = Collection[dict[str, Any]]


@dataclass
class Bench:
    """What a TTL test works with. purged: whether the reaper deletes expired documents at once."""

    client: MongoClient[dict[str, Any]]
    database: Database[dict[str, Any]]
    collection: Documents
    server: "mongottl.RunningServer"
    purged: bool

    def set_default(self, seconds: Any, collection: Documents | None = None) -> None:
        target = self.collection if collection is None else collection
        target.create_index([("_ts", 1)], expireAfterSeconds=seconds)

    def drop_default(self) -> None:
        self.collection.drop_index("_ts_1")

    def advance(self, seconds: float) -> int:
        return self.server.clock.advance(seconds)

    def ids(self, collection: Documents | None = None) -> list[Any]:
        target = self.collection if collection is None else collection
        return [document["_id"] for document in target.find().sort("_id")]

    def hold_reaper(self, held: bool) -> None:
        ask_each_node(self.server, {"setParameter": 1, "ttlMonitorEnabled": not held})

    def stored(self) -> int:
        """How many expired documents the whole server still stores."""
        status = self.client.admin.command("serverStatus")
        return int(status["mongottl"]["expiredNotPurged"])

    def deleted(self) -> int:
        """How many expired documents the server has deleted so far."""
        answers = ask_each_node(self.server, {"serverStatus": 1})
        return sum(int(status["metrics"]["ttl"]["deletedDocuments"]) for status in answers)


@pytest.fixture(scope="module")
def module_server() -> Iterator["mongottl.RunningServer"]:
    with mongottl.start_server() as server:
        yield server


@pytest.fixture(scope="module")
def module_client_of() -> Iterator[Callable[[str], MongoClient[dict[str, Any]]]]:
    with kept_clients() as client_of:
        yield client_of


@pytest.fixture
def module_client(
    module_server: "mongottl.RunningServer", module_client_of: Callable[[str], MongoClient[dict[str, Any]]]
) -> MongoClient[dict[str, Any]]:
    return module_client_of(module_server.uri)


def make_bench(server: "mongottl.RunningServer", client: MongoClient[dict[str, Any]], purged: bool) -> Iterator[Bench]:
    database = client["ttl"]
    made = Bench(client, database, database["documents"], server, purged)
    made.hold_reaper(not purged)
    yield made
    client.drop_database("ttl")
    made.hold_reaper(False)
    made.advance(0)


@pytest.fixture(params=[False, True], ids=["unpurged", "purged"])
def bench(
    request: pytest.FixtureRequest, module_server: "mongottl.RunningServer", module_client: MongoClient[dict[str, Any]]
) -> Iterator[Bench]:
    yield from make_bench(module_server, module_client, request.param)
