"""Writes that a driver sends again, because it does not know what became of the first attempt."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pymongo
import pytest
from bson import Binary, Int64
from pymongo.database import Database
from pymongo.errors import AutoReconnect, NetworkTimeout

import mongottl
from tests.drivers.protocol.test_protocol import Raw
from tests.on_nodes import own_fail_points

Documents = dict[str, Any]


@pytest.fixture
def impatient(server: mongottl.RunningServer) -> Any:
    with pymongo.MongoClient[dict[str, Any]](server.uri, socketTimeoutMS=1000) as client:
        yield client


def fail(client: "pymongo.MongoClient[dict[str, Any]]", times: int, **data: Any) -> None:
    client.admin.command(
        "configureFailPoint", "failCommand", mode={"times": times}, data={"failCommands": ["insert"], **data}
    )


@pytest.fixture
def stops_failing(client: "pymongo.MongoClient[dict[str, Any]]") -> Any:
    yield
    client.admin.command("configureFailPoint", "failCommand", mode="off")


@own_fail_points
@pytest.mark.usefixtures("stops_failing")
def test_a_fail_point_blocks_the_retry_as_well(
    client: "pymongo.MongoClient[dict[str, Any]]",
    impatient: "pymongo.MongoClient[dict[str, Any]]",
    database: Database[dict[str, Any]],
) -> None:
    """As the driver specification on timeouts has it: each attempt meets the fail point before its session."""
    collection = impatient[database.name].c
    fail(client, 1, blockConnection=True, blockTimeMS=3_600_000)  # the server gives up a client that has left
    collection.insert_one({"_id": 1})
    fail(client, 2, blockConnection=True, blockTimeMS=3_600_000)
    with pytest.raises(NetworkTimeout):
        collection.insert_one({"_id": 2})
    fail(client, 1, closeConnection=True)
    collection.insert_one({"_id": 3})
    fail(client, 2, closeConnection=True)
    with pytest.raises(AutoReconnect):
        collection.insert_one({"_id": 4})
    assert database.c.count_documents({"_id": {"$in": [1, 3]}}) == 2


@own_fail_points
@pytest.mark.usefixtures("stops_failing")
def test_the_write_concern_error_of_a_fail_point_is_of_one_attempt(
    client: "pymongo.MongoClient[dict[str, Any]]", database: Database[dict[str, Any]]
) -> None:
    """A server remembers what it wrote, not how far that was replicated when it answered."""
    fail(client, 1, writeConcernError={"code": 91, "errmsg": "shutting down"}, errorLabels=["RetryableWriteError"])
    database.c.insert_one({"_id": 1})
    assert database.c.find_one() == {"_id": 1}


class Attempts:
    """A client that sends writes of one session again, each attempt over a new connection.

    With a data directory the server is restarted between two attempts.
    """

    def __init__(self, data_dir: str | None) -> None:
        self._data_dir = data_dir
        self._server = ExitStack()
        self._port = 0
        self._start()
        self._raw = Raw(self._port)
        self.number = 0

    def _start(self) -> None:
        self._port = self._server.enter_context(mongottl.start_server(data_dir=self._data_dir)).port

    def again(self) -> None:
        self._raw.socket.close()
        if self._data_dir is not None:
            self._server.close()
            self._start()
        self._raw = Raw(self._port)

    def command(self, command: Documents, database: str = "test") -> Documents:
        return self._raw.run({**command, "$db": database})

    def run(self, command: Documents, number: int = 0, session: bytes = b"s") -> Documents:
        lsid = {"id": Binary(session * 16, 4)}
        number = number or self.number
        database = "admin" if "bulkWrite" in command else "test"
        return self.command({**command, "lsid": lsid, "txnNumber": Int64(number)}, database)

    def twice(self, command: Documents) -> tuple[Documents, Documents]:
        """The replies to both attempts of a new write."""
        self.number += 1
        first = self.run(command)
        self.again()
        return first, self.run(command)

    def stored(self) -> list[Documents]:
        found: list[Documents] = self.command({"find": "c", "sort": {"_id": 1}, "batchSize": 10_000})["cursor"][
            "firstBatch"
        ]
        return found

    def stop(self) -> None:
        self._raw.socket.close()
        self._server.close()


@pytest.fixture(params=["memory", "data directory"])
def attempts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Attempts]:
    made = Attempts(None if request.param == "memory" else str(tmp_path))
    yield made
    made.stop()


def inc(query: Documents, **options: Any) -> Documents:
    return {"q": query, "u": {"$inc": {"n": 1}}, **options}


def test_statements_are_executed_once(attempts: Attempts) -> None:
    insert = {"insert": "c", "documents": [{"_id": n, "n": 0} for n in range(3)]}
    assert attempts.twice(insert) == ({"n": 3, "ok": 1}, {"n": 3, "retriedStmtIds": [0, 1, 2], "ok": 1})

    updates = [inc({"_id": 0}), inc({"_id": 1}), inc({"_id": 7}, upsert=True), inc({"_id": 8})]
    first, second = attempts.twice({"update": "c", "updates": updates})
    assert first == {"n": 3, "nModified": 2, "upserted": [{"index": 2, "_id": 7}], "ok": 1}
    # What found nothing to change has left no trace, and is executed again.
    assert second == {**first, "retriedStmtIds": [0, 1, 2]}
    assert attempts.stored() == [{"_id": 0, "n": 1}, {"_id": 1, "n": 1}, {"_id": 2, "n": 0}, {"_id": 7, "n": 1}]

    deletes = [{"q": {"n": 1}, "limit": 1}, {"q": {"n": 5}, "limit": 1}]
    assert attempts.twice({"delete": "c", "deletes": deletes}) == (
        {"n": 1, "ok": 1},
        {"n": 1, "retriedStmtIds": [0], "ok": 1},
    )
    assert [document["_id"] for document in attempts.stored()] == [1, 2, 7]


def test_a_retry_executes_what_the_first_attempt_has_not(attempts: Attempts) -> None:
    attempts.command({"insert": "c", "documents": [{"_id": 2}, {"_id": 4}]})
    insert = {"insert": "c", "documents": [{"_id": n} for n in range(6)], "ordered": False}
    first = attempts.run(insert, 1)
    assert (first["n"], [error["index"] for error in first["writeErrors"]]) == (4, [2, 4])
    attempts.command({"delete": "c", "deletes": [{"q": {"_id": {"$in": [1, 2]}}, "limit": 0}]})
    attempts.again()
    second = attempts.run(insert, 1)
    assert (second["n"], second["retriedStmtIds"]) == (5, [0, 1, 3, 5])
    assert [error["index"] for error in second["writeErrors"]] == [4]
    assert [document["_id"] for document in attempts.stored()] == [0, 2, 3, 4, 5]
    attempts.again()
    third = attempts.run({**insert, "ordered": True}, 1)
    assert (third["n"], third["retriedStmtIds"], len(third["writeErrors"])) == (4, [0, 1, 2, 3], 1)


def test_statements_have_ids(attempts: Attempts) -> None:
    attempts.command({"insert": "c", "documents": [{"_id": 0, "n": 0}]})
    # A driver splits what it calls one write into batches.
    assert "retriedStmtIds" not in attempts.run({"update": "c", "updates": [inc({})], "stmtId": 5}, 1)
    assert "retriedStmtIds" not in attempts.run({"update": "c", "updates": [inc({}), inc({})], "stmtIds": [9, 7]}, 1)
    attempts.again()
    reply = attempts.run({"update": "c", "updates": [inc({}), inc({}), inc({})], "stmtId": 5}, 1)
    assert (reply["n"], reply["retriedStmtIds"]) == (3, [5, 7])
    assert attempts.stored() == [{"_id": 0, "n": 4}]
    insert = {"insert": "c", "documents": [{"_id": n} for n in range(1, 5)], "stmtIds": [20, 10, 11, 5]}
    reply = attempts.run(insert, 1)
    assert (reply["n"], reply["retriedStmtIds"]) == (4, [5])
    attempts.again()
    assert attempts.run(insert, 1)["retriedStmtIds"] == [20, 10, 11, 5]
    assert len(attempts.stored()) == 4


def test_a_retried_bulk_write(attempts: Attempts) -> None:
    operations = [
        {"insert": 0, "document": {"_id": 0, "n": 0}},
        {"insert": 1, "document": {"_id": 0}},
        {"update": 0, "filter": {"_id": 0}, "updateMods": {"$inc": {"n": 1}}},
        {"update": 0, "filter": {"_id": 3}, "updateMods": {"$inc": {"n": 1}}, "upsert": True},
        {"delete": 1, "filter": {}},
        {"insert": 0, "document": {"_id": 4}},
    ]
    command = {"bulkWrite": 1, "ops": operations, "nsInfo": [{"ns": "test.c"}, {"ns": "test.d"}]}
    first, second = attempts.twice(command)
    assert first["nErrors"] == 0
    assert second == {**first, "retriedStmtIds": [0, 1, 2, 3, 4, 5]}
    # A retry goes on where a batch has ended.
    attempts.number += 1
    more = [{"insert": 0, "document": {"_id": n}} for n in range(10, 14)]
    attempts.run({**command, "ops": more[:2]})
    attempts.again()
    reply = attempts.run({**command, "ops": more})
    assert (reply["nInserted"], reply["nErrors"], reply["retriedStmtIds"]) == (4, 0, [0, 1])
    assert [document["_id"] for document in attempts.stored()] == [0, 3, 4, 10, 11, 12, 13]


@pytest.mark.parametrize(
    "options",
    [
        {"query": {"_id": 0}, "update": {"$inc": {"n": 1}}},
        {"query": {"_id": 0}, "update": {"$inc": {"n": 1}}, "new": True},
        {"query": {"n": 5}, "update": {"$inc": {"n": 1}}, "new": True, "fields": {"_id": 0}, "stmtId": 3},
        {"query": {"n": 5}, "update": {"n": 9}},
        {"query": {"_id": 1}, "update": {"$inc": {"n": 1}}, "upsert": True},
        {"query": {"_id": 1}, "update": {"$inc": {"n": 1}}, "upsert": True, "new": True},
        {"query": {"_id": 0}, "remove": True},
        {"query": {"n": {"$gt": 1}}, "sort": {"n": -1}, "fields": {"n": 1}, "remove": True},
    ],
)
def test_a_retried_find_and_modify_returns_the_same_image(attempts: Attempts, options: Documents) -> None:
    attempts.command({"insert": "c", "documents": [{"_id": 0, "n": 5, "a": "x"}]})
    first, second = attempts.twice({"findAndModify": "c", **options})
    assert first["lastErrorObject"]["n"] == 1
    assert second == {**first, "retriedStmtId": options.get("stmtId", 0)}
    stored = attempts.stored()
    # The next write has an image of its own.
    first, second = attempts.twice({"findAndModify": "c", "query": {}, "update": {"$set": {"b": 1}}, "upsert": True})
    assert second == {**first, "retriedStmtId": 0}
    assert len(attempts.stored()) == max(len(stored), 1)


def test_find_and_modify_that_found_nothing_is_executed_again(attempts: Attempts) -> None:
    command = {"findAndModify": "c", "query": {"_id": 0}, "update": {"$inc": {"n": 1}}, "new": True}
    assert attempts.run(command, 1) == {"lastErrorObject": {"n": 0, "updatedExisting": False}, "value": None, "ok": 1}
    attempts.command({"insert": "c", "documents": [{"_id": 0, "n": 0}]})
    attempts.again()
    assert attempts.run(command, 1)["value"] == {"_id": 0, "n": 1}


@pytest.mark.parametrize(
    "other",
    [
        {"findAndModify": "c", "query": {}, "remove": True},
        {"findAndModify": "c", "query": {}, "update": {"$inc": {"n": 1}}, "new": True},
        {"delete": "c", "deletes": [{"q": {}, "limit": 1}]},
    ],
)
def test_a_retry_must_be_the_same_write(attempts: Attempts, other: Documents) -> None:
    attempts.command({"insert": "c", "documents": [{"_id": 0, "n": 0}]})
    attempts.run({"findAndModify": "c", "query": {}, "update": {"$inc": {"n": 1}}}, 1)
    attempts.again()
    reply = attempts.run(other, 1)
    assert [error["code"] for error in reply.get("writeErrors", [reply])] == [72]
    assert attempts.stored() == [{"_id": 0, "n": 1}]


def test_an_older_write_is_refused(attempts: Attempts) -> None:
    insert = {"insert": "c", "documents": [{}]}
    attempts.run(insert, 5)
    attempts.again()
    assert attempts.run(insert, 4)["code"] == 225
    assert attempts.run(insert, 4, b"t")["n"] == 1
    # A new one drops what was known of the old ones.
    assert "retriedStmtIds" not in attempts.run(insert, 6)
    attempts.again()
    assert attempts.run(insert, 5)["code"] == 225
    assert attempts.run(insert, 6)["retriedStmtIds"] == [0]
    assert attempts.run(insert, 4, b"t")["retriedStmtIds"] == [0]
    assert len(attempts.stored()) == 3


def test_a_batch_of_many_units_of_work(attempts: Attempts) -> None:
    """Its rows on disk grow with what differs, and the next write uses them again."""
    documents = [{"_id": n, "n": 0} for n in range(1200)]
    first, second = attempts.twice({"insert": "c", "documents": documents})
    assert (first["n"], second["n"], second["retriedStmtIds"]) == (1200, 1200, list(range(1200)))
    updates = [inc({"_id": n}) if n % 3 else {"q": {"_id": n}, "u": {"$set": {"n": 0}}} for n in range(300)]
    first, second = attempts.twice({"update": "c", "updates": updates})
    assert (first["nModified"], second["nModified"], second["n"]) == (200, 200, 300)
    assert [n for n in second["retriedStmtIds"] if n % 3] == [n for n in range(300) if n % 3]
    assert sum(document["n"] for document in attempts.stored()) == 200
    first, second = attempts.twice({"insert": "c", "documents": [{"_id": -1}]})
    assert second == {"n": 1, "retriedStmtIds": [0], "ok": 1}


def test_wrong_statement_ids(attempts: Attempts) -> None:
    run: Callable[[Documents], Documents] = attempts.run
    attempts.number = 1
    insert: Documents = {"insert": "c", "documents": [{}]}
    assert run({**insert, "stmtId": 0, "stmtIds": [0]})["code"] == 72
    assert run({**insert, "stmtIds": [0, 1]})["code"] == 16
    assert run({**insert, "stmtIds": [Int64(0)]})["code"] == 14
    assert run({**insert, "stmtId": 1.0})["code"] == 14
    assert run({"findAndModify": "c", "remove": True, "stmtId": "0"})["code"] == 14
    assert run({**insert, "stmtId": None})["n"] == 1


def test_config_transactions_shows_the_latest_write_of_each_session(attempts: Attempts) -> None:
    find = {"find": "transactions", "sort": {"_id": 1}}
    assert attempts.command(find, "config")["cursor"]["firstBatch"] == []
    attempts.run({"insert": "c", "documents": [{}]}, 3)
    attempts.run({"insert": "c", "documents": [{}]}, 8, b"t")
    attempts.run({"insert": "c", "documents": [{}]}, 4)
    attempts.again()
    found = attempts.command(find, "config")["cursor"]["firstBatch"]
    assert [(entry["_id"]["id"], entry["txnNum"]) for entry in found] == [
        (Binary(b"s" * 16, 4), 4),
        (Binary(b"t" * 16, 4), 8),
    ]
    assert all(isinstance(entry["txnNum"], Int64) for entry in found)
    assert found[1]["lastWriteOpTime"]["ts"] < found[0]["lastWriteOpTime"]["ts"]
    assert set(found[0]) == {"_id", "txnNum", "lastWriteOpTime", "lastWriteDate"}
    attempts.run({"insert": "c", "documents": [{}]}, 5)
    assert attempts.command({"count": "transactions", "query": {"txnNum": 5}}, "config")["n"] == 1
    pipeline = [{"$match": {"txnNum": {"$gt": 4}}}, {"$count": "n"}]
    reply = attempts.command({"aggregate": "transactions", "pipeline": pipeline, "cursor": {}}, "config")
    assert reply["cursor"]["firstBatch"] == [{"n": 2}]


@pytest.mark.parametrize(
    "command",
    [{"listCollections": 1}, {"aggregate": 1, "pipeline": [{"$listClusterCatalog": {}}], "cursor": {}}],
    ids=["listCollections", "$listClusterCatalog"],
)
def test_lists_of_collections_show_config_transactions_before_anybody_has_read_it(command: dict[str, Any]) -> None:
    with mongottl.start_server() as server, pymongo.MongoClient[dict[str, Any]](server.uri) as client:
        assert client.config.command(command)["cursor"]["firstBatch"] == []
        client.shop.c.insert_one({})
        [found] = client.config.command(command)["cursor"]["firstBatch"]
        assert found.get("name", found.get("ns")) in ("transactions", "config.transactions")
        assert client.config.command("dbStats")["collections"] == 1


def test_statement_ids_beyond_an_int_are_refused(server: mongottl.RunningServer) -> None:
    raw = Raw(server.port)
    insert = {
        "insert": "c",
        "$db": "statement_ids",
        "documents": [{"_id": number} for number in range(5)],
        "lsid": {"id": Binary(b"ids beyond ints!", 4)},
    }
    assert raw.run({**insert, "stmtId": 2**31 - 3, "txnNumber": Int64(1)})["code"] == 72
    assert raw.run({**insert, "stmtId": 2**31 - 5, "txnNumber": Int64(2)})["n"] == 5
    raw.socket.close()
