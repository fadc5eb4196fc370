"""Long writes of one client between the writes of others, over real connections."""

import threading
from typing import Any

import pymongo
import pytest
from pymongo.database import Database

import mongottl
from tests.drivers.conftest import server_status
from tests.on_nodes import own_figures
from tests.waiting import until

Documents = dict[str, Any]

DOCUMENTS = 3000
NEAR: Documents = {"loc": {"$near": {"$geometry": {"type": "Point", "coordinates": [0, 0]}}}}


@pytest.fixture
def points(database: Database[Documents]) -> Database[Documents]:
    database.c.insert_many([{"_id": i, "n": 0, "loc": [i / 1000, 0]} for i in range(DOCUMENTS)])
    database.c.create_index([("loc", "2dsphere")])
    database.c.create_index("n")
    return database


class Incrementing(threading.Thread):
    """Increments single documents, as another client, until it is stopped."""

    def __init__(self, uri: str, database: str) -> None:
        super().__init__()
        self._uri = uri
        self._database = database
        self.stopped = threading.Event()
        self.increments = [0] * DOCUMENTS

    def run(self) -> None:
        with pymongo.MongoClient[Documents](self._uri) as client:
            collection = client[self._database].c
            number = 0
            while not self.stopped.is_set():
                number = (number + 701) % DOCUMENTS
                collection.update_one({"_id": number}, {"$inc": {"n": 1}})
                self.increments[number] += 1


@pytest.mark.slow
@pytest.mark.parametrize("filter", [NEAR, {}, {"n": {"$gte": 0}}], ids=["near", "all", "index"])
def test_no_increment_is_lost(server: mongottl.RunningServer, points: Database[Documents], filter: Documents) -> None:
    other = Incrementing(server.uri, points.name)
    other.start()
    rounds = 0

    def increment_all() -> bool:
        """Three times at least, and once more if the other client was not let in between."""
        nonlocal rounds
        rounds += 1
        before = sum(other.increments)
        result = points.c.update_many(filter, {"$inc": {"n": 1}})
        assert (result.matched_count, result.modified_count) == (DOCUMENTS, DOCUMENTS)
        return rounds >= 3 and sum(other.increments) > before

    try:
        until(increment_all)
    finally:
        other.stopped.set()
        other.join()
    found = {document["_id"]: document["n"] for document in points.c.find()}
    assert found == {number: count + rounds for number, count in enumerate(other.increments)}
    validated = points.command("validate", "c")
    assert validated["valid"]
    assert validated["keysPerIndex"] == {"_id_": DOCUMENTS, "loc_2dsphere": DOCUMENTS, "n_1": DOCUMENTS}


@own_figures
def test_updates_of_many_beside_each_other_are_repeated_once(
    server: mongottl.RunningServer, client: "pymongo.MongoClient[Documents]", database: Database[Documents]
) -> None:
    database.c.insert_many([{"_id": i, "n": 0} for i in range(100)])
    before = server_status(client)["mongottl"]["storage"]["rollbacks"]

    def increment_all() -> None:
        with pymongo.MongoClient[Documents](server.uri) as own:
            for _ in range(5):
                own[database.name].c.update_many({}, {"$inc": {"n": 1}})

    updating = [threading.Thread(target=increment_all) for _ in range(4)]
    for thread in updating:
        thread.start()
    for thread in updating:
        thread.join()
    assert database.c.distinct("n") == [20]
    # Each at most once for each of its batches.
    assert server_status(client)["mongottl"]["storage"]["rollbacks"] - before <= 100


def test_an_index_scan_gives_each_document_once_while_arrays_come(
    server: mongottl.RunningServer, client: "pymongo.MongoClient[Documents]", database: Database[Documents]
) -> None:
    ended = threading.Event()

    def insert() -> None:
        with pymongo.MongoClient[Documents](server.uri) as own:
            for number in range(25):
                collection = own[database.name][f"c{number}"]
                collection.create_index([("t", 1), ("n", 1)])
                collection.insert_one({"t": 1, "n": 0})
                collection.insert_one({"t": [1, 2], "n": 1})
            ended.set()

    inserting = threading.Thread(target=insert)
    inserting.start()
    given: list[int] = []
    while not ended.is_set():
        for name in sorted(database.list_collection_names())[-2:]:
            found = [document["_id"] for document in database[name].find({"t": {"$in": [1, 2]}})]
            given.append(len(found) - len(set(found)))
    inserting.join()
    assert not any(given)
