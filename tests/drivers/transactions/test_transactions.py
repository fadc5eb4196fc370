"""Multi-document transactions and snapshot reads, by PyMongo: isolation, conflicts, waits, errors and their labels."""

import datetime
import itertools
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from bson import Int64
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import CursorNotFound, OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern

import mongottl
from mongottl.javascript.library import missing_reason
from mongottl.wire.connection import ClientWireConnection
from mongottl.wire.encode import encode_request
from mongottl.wire.messages import NeedData, OpMsg
from tests.on_nodes import (
    own_cursors,
    own_figures,
    own_operations,
    own_parameters,
    own_snapshots,
    own_transactions,
    wanted,
)
from tests.on_store import needs_one_machine
from tests.waiting import PATIENCE_S, until

Documents = dict[str, Any]
TRANSIENT = "TransientTransactionError"


@pytest.fixture
def session(client: "pymongo.MongoClient[Documents]") -> Iterator[ClientSession]:
    with client.start_session() as started:
        yield started


@pytest.fixture
def other(client: "pymongo.MongoClient[Documents]") -> Iterator[ClientSession]:
    with client.start_session() as started:
        yield started


class Bare:
    """Sends commands as they are given: a driver puts a session of its own into each."""

    def __init__(self, server: mongottl.RunningServer, name: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S)
        self._wire = ClientWireConnection()
        self._name = name
        self._session: Documents | None = None

    def command(self, command: Documents) -> Documents:
        if "lsid" in command:
            self._session = command["lsid"]
        self._socket.sendall(
            encode_request(1, bson.encode(command if "$db" in command else {**command, "$db": self._name}), [], 0)
        )
        while isinstance(message := self._wire.next_message(), NeedData):
            self._wire.receive_data(self._socket.recv(65536))
        assert isinstance(message, OpMsg)
        reply: Documents = bson.decode(message.body)
        if not reply["ok"]:
            raise OperationFailure(reply["errmsg"], reply["code"], reply)
        return reply

    def admin(self, command: Documents) -> Documents:
        return self.command({**command, "$db": "admin"})

    def close(self) -> None:
        """Closes the connection; what its last session has left open would make others wait."""
        if self._session is not None:
            self.admin({"killSessions": [self._session]})
        self._socket.close()


@pytest.fixture
def bare(server: mongottl.RunningServer, database: Database[Documents]) -> Iterator[Bare]:
    connected = Bare(server, database.name)
    yield connected
    connected.close()


@pytest.fixture
def lsid() -> Documents:
    """The id of a session that no driver has used: its numbers are free."""
    return {"id": bson.Binary.from_uuid(uuid.uuid4())}


def failure(action: Callable[[], object]) -> tuple[int | None, bool]:
    """The code of the error that `action` raises, and whether it is labelled as transient."""
    with pytest.raises(OperationFailure) as caught:
        action()
    return caught.value.code, caught.value.has_error_label(TRANSIENT)


def in_background(action: Callable[[], object]) -> "tuple[ThreadPoolExecutor, Future[object]]":
    pool = ThreadPoolExecutor(1)
    return pool, pool.submit(action)


def until_waiting(database: Database[Documents], command: str) -> None:
    """Returns when an operation of this kind is under way: it waits, since nothing else takes long here."""
    waiting = {f"command.{command}": {"$exists": True}, "command.$db": database.name}
    every: list[Documents] = [{"$currentOp": {"allUsers": True}}, {"$match": waiting}]
    until(lambda: list(database.client.admin.aggregate(every)), f"no {command} waits")


# --- isolation ---


@needs_one_machine
def test_a_transaction_is_seen_when_it_has_committed(database: Database[Documents], session: ClientSession) -> None:
    things, others = database.things, database.client[database.name + "_2"].others
    things.create_index("n")
    with session.start_transaction():
        things.insert_many([{"_id": i, "n": i % 3} for i in range(10)], session=session)
        others.insert_one({"_id": 1}, session=session)
        things.update_many({"n": 2}, {"$set": {"n": 7}}, session=session)
        things.delete_one({"_id": 0}, session=session)
        assert things.count_documents({}, session=session) == 9
        assert {d["_id"] for d in things.find({"n": 7}, session=session)} == {2, 5, 8}
        assert things.count_documents({}) == others.count_documents({}) == 0
    assert things.count_documents({}) == 9
    assert {d["_id"] for d in things.find({"n": 7})} == {2, 5, 8}
    assert others.count_documents({}) == 1
    assert database.command("validate", "things")["valid"]
    database.client.drop_database(database.name + "_2")


@needs_one_machine
def test_an_aborted_transaction_leaves_nothing(database: Database[Documents], session: ClientSession) -> None:
    database.c.insert_many([{"_id": 1, "n": 1}, {"_id": 2, "n": 2}])
    session.start_transaction()
    database.c.update_many({}, {"$inc": {"n": 10}}, session=session)
    database.c.delete_one({"_id": 2}, session=session)
    database.made.insert_one({}, session=session)
    session.abort_transaction()
    assert list(database.c.find()) == [{"_id": 1, "n": 1}, {"_id": 2, "n": 2}]
    assert database.list_collection_names() == ["c"]
    assert database.command("validate", "c")["valid"]


SORT = {"$sort": {"_id": 1}}
GROUP: Documents = {"$group": {"_id": "$n", "m": {"$sum": "$m"}}}
JOIN = {"localField": "n", "foreignField": "n", "pipeline": [{"$count": "n"}], "as": "x"}
PLANS: list[tuple[str, Callable[[Any, ClientSession], object]]] = [
    ("collection scan", lambda c, s: [d["_id"] for d in c.find({"m": {"$gte": 0}}, session=s)]),
    ("by _id", lambda c, s: [c.find_one({"_id": i}, session=s) for i in range(12)]),
    ("index", lambda c, s: sorted(d["_id"] for d in c.find({"n": {"$gte": 1}}, session=s))),
    ("index order", lambda c, s: [d["n"] for d in c.find({}, session=s).sort("n", -1).hint("n_1")]),
    ("covered", lambda c, s: [d["n"] for d in c.find({"n": {"$gt": 0}}, {"_id": 0, "n": 1}, session=s).sort("n", 1)]),
    ("count", lambda c, s: (c.count_documents({}, session=s), c.count_documents({"n": 1}, session=s))),
    ("distinct", lambda c, s: c.distinct("n", session=s)),
    ("group", lambda c, s: list(c.aggregate([GROUP, SORT], session=s))),
    ("or", lambda c, s: sorted(d["_id"] for d in c.find({"$or": [{"n": 1}, {"_id": 7}]}, session=s))),
    ("lookup", lambda c, s: list(c.aggregate([{"$lookup": JOIN | {"from": c.name}}, SORT], session=s))),
    ("text", lambda c, s: sorted(d["_id"] for d in c.find({"$text": {"$search": "word"}}, session=s))),
    ("near", lambda c, s: [d["_id"] for d in c.find({"at": {"$near": [0, 0]}}, session=s)]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "read"), PLANS, ids=[name for name, _ in PLANS])
def test_every_plan_reads_the_snapshot_and_own_writes(
    database: Database[Documents],
    session: ClientSession,
    name: str,
    read: Callable[[Any, ClientSession | None], object],
) -> None:
    def document(i: int) -> Documents:
        return {"_id": i, "n": i % 4, "m": i, "w": "word" if i % 2 else "none", "at": [i, i]}

    twin = database.twin
    for collection in (database.c, twin):
        collection.insert_many([document(i) for i in range(10)])
        collection.create_index("n")
        collection.create_index([("w", "text")])
        collection.create_index([("at", "2d")])

    def write(collection: Any, s: ClientSession | None) -> None:
        collection.update_many({"n": 3}, {"$set": {"n": 5, "w": "word"}}, session=s)
        collection.delete_one({"_id": 4}, session=s)
        collection.insert_one(document(11), session=s)

    with session.start_transaction():
        database.c.find_one({"_id": 0}, session=session)
        # What others write meanwhile is not seen: to other documents than the transaction writes.
        database.c.insert_one(document(20))
        database.c.delete_one({"_id": 8})
        database.c.update_one({"_id": 1}, {"$set": {"n": 9, "w": "none", "at": [100, 100]}})
        assert read(database.c, session) == read(twin, None)
        write(database.c, session)
        write(twin, None)
        assert read(database.c, session) == read(twin, None)


def test_cursors_of_a_transaction(database: Database[Documents], session: ClientSession) -> None:
    database.c.insert_many([{"_id": i} for i in range(100)])
    with session.start_transaction():
        cursor = database.c.find({}, batch_size=10, session=session)
        first = next(cursor)["_id"]
        database.c.delete_many({"_id": {"$gte": 50}})
        database.c.insert_one({"_id": 1000}, session=session)
        assert [first, *(d["_id"] for d in cursor)][:100] == list(range(100))
        cursor = database.c.find({}, batch_size=10, session=session)
        next(cursor)
    with pytest.raises(CursorNotFound):
        list(cursor)


@own_cursors
def test_getmore_belongs_to_its_transaction(database: Database[Documents], bare: Bare, session: ClientSession) -> None:
    database.c.insert_many([{"_id": i} for i in range(10)])
    plain = database.c.find({}, batch_size=2, session=session)
    next(plain)
    more: Documents = {"getMore": Int64(plain.cursor_id or 0), "collection": "c"}
    session.start_transaction()
    assert failure(lambda: database.command(more, session=session)) == (50739, False)
    session.abort_transaction()
    with session.start_transaction():
        reply = database.command("find", "c", batchSize=2, session=session)
        more = {"getMore": reply["cursor"]["id"], "collection": "c", "lsid": session.session_id}
        assert failure(lambda: bare.command(more)) == (50740, False)
    list(plain)


@own_cursors
def test_getmore_of_a_bulk_write_s_results(database: Database[Documents], session: ClientSession) -> None:
    """bulkWrite runs on admin, as no other statement of a transaction may, and so does getMore of its results."""
    inserts = [{"insert": 0, "document": {"_id": i}} for i in range(10)]
    bulk: Documents = {"bulkWrite": 1, "ops": inserts, "nsInfo": [{"ns": f"{database.name}.c"}]}
    admin = database.client.admin
    with session.start_transaction():
        cursor = admin.command({**bulk, "cursor": {"batchSize": 4}}, session=session)["cursor"]
        more = admin.command({"getMore": cursor["id"], "collection": "$cmd.bulkWrite"}, session=session)["cursor"]
        assert [result["idx"] for result in [*cursor["firstBatch"], *more["nextBatch"]]] == list(range(10))
    assert database.c.count_documents({}) == 10
    session.start_transaction()
    assert failure(lambda: admin.c.find_one({}, session=session))[0] == 263


# --- conflicts and waits ---


def test_the_first_writer_wins(database: Database[Documents], session: ClientSession, other: ClientSession) -> None:
    database.c.insert_one({"_id": 1, "n": 0})
    session.start_transaction()
    other.start_transaction()
    database.c.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
    assert failure(lambda: database.c.update_one({"_id": 1}, {"$inc": {"n": 10}}, session=other)) == (112, True)
    session.commit_transaction()
    assert failure(other.commit_transaction) == (251, True)
    assert database.c.find_one() == {"_id": 1, "n": 1}


def test_a_write_after_the_snapshot_conflicts(database: Database[Documents], session: ClientSession) -> None:
    database.c.create_index("k", unique=True)
    database.c.insert_many([{"_id": i, "k": i} for i in range(4)])
    for conflicting in (
        lambda: database.c.update_one({"_id": 1}, {"$set": {"x": 1}}, session=session),
        lambda: database.c.delete_one({"_id": 1}, session=session),
        lambda: database.c.find_one_and_update({"_id": 1}, {"$set": {"x": 1}}, session=session),
        lambda: database.c.insert_one({"k": 77}, session=session),
        lambda: database.c.update_one({"_id": 0}, {"$set": {"k": 77}}, session=session),
    ):
        session.start_transaction()
        assert database.c.count_documents({"_id": 1}, session=session) == 1
        database.c.update_one({"_id": 1}, {"$inc": {"n": 1}})
        database.c.insert_one({"_id": 77, "k": 77})
        assert failure(conflicting) == (112, True)
        session.abort_transaction()
        database.c.delete_one({"_id": 77})
    assert database.command("validate", "c")["valid"]


def test_write_skew_is_allowed(database: Database[Documents], session: ClientSession, other: ClientSession) -> None:
    database.c.insert_many([{"_id": 1, "on": True}, {"_id": 2, "on": True}])
    session.start_transaction()
    other.start_transaction()
    assert database.c.count_documents({"on": True}, session=session) == 2
    assert database.c.count_documents({"on": True}, session=other) == 2
    database.c.update_one({"_id": 1}, {"$set": {"on": False}}, session=session)
    database.c.update_one({"_id": 2}, {"$set": {"on": False}}, session=other)
    session.commit_transaction()
    other.commit_transaction()
    assert database.c.count_documents({"on": True}) == 0


MERGE = {"whenNotMatched": "discard"}
BY_K = {"k": 3}
PLAIN_WRITES: list[tuple[str, Callable[[Any], object]]] = [
    ("update", lambda c: c.update_one({"_id": 1}, {"$inc": {"n": 100}})),
    ("update", lambda c: c.update_many({}, {"$inc": {"n": 100}})),
    ("update", lambda c: c.update_one({"k": 5}, {"$inc": {"n": 100}}, upsert=True)),
    ("update", lambda c: c.replace_one({"_id": 1}, {"k": 1, "n": 100})),
    ("delete", lambda c: c.delete_one({"_id": 1})),
    ("delete", lambda c: c.delete_many({"n": {"$lt": 1000}})),
    ("findAndModify", lambda c: c.find_one_and_update({"_id": 1}, {"$inc": {"n": 100}})),
    ("findAndModify", lambda c: c.find_one_and_delete({"_id": 1})),
    ("insert", lambda c: c.insert_one({"_id": 9, "k": 5})),
    ("insert", lambda c: c.insert_many([{"_id": 8, "k": 8}, {"_id": 9, "k": 5}])),
    ("insert", lambda c: c.insert_one({"_id": 9, "k": 2})),
    ("aggregate", lambda c: list(c.database.source.aggregate([{"$merge": MERGE | {"into": c.name}}]))),
    ("update", lambda c: c.bulk_write([pymongo.UpdateOne({"_id": 2}, {"$set": {"n": 5}}), pymongo.DeleteOne(BY_K)])),
]  # fmt: skip


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize(("command", "write"), PLAIN_WRITES, ids=[f"{i}-{c}" for i, (c, _) in enumerate(PLAIN_WRITES)])
def test_a_plain_write_waits_for_the_transaction(
    database: Database[Documents],
    session: ClientSession,
    command: str,
    write: Callable[[Any], object],
    commits: bool,
) -> None:
    """And then does what it would have done behind the transaction, or without it.

    Whether a write of many documents meets one that is inserted while it waits is left open, as in MongoDB.
    """
    many = write.__code__.co_names[:1] in (("update_many",), ("delete_many",))
    database.source.insert_many([{"_id": i, "n": 100} for i in (1, 2, 3)])
    for collection in (database.c, database.twin):
        collection.insert_many([{"_id": i, "n": i, "k": i} for i in (1, 2, 3)])
        collection.create_index("k", unique=True)

    def in_transaction(collection: Any, s: ClientSession | None) -> None:
        collection.update_many({}, {"$inc": {"n": 1}}, session=s)
        if not many:
            collection.insert_one({"_id": 4, "k": 5, "n": 0}, session=s)
        collection.delete_one({"_id": 2}, session=s)

    def outcome(collection: Any) -> tuple[object, object]:
        result: object = None
        try:
            write(collection)
        except PyMongoError as error:
            result = getattr(error, "code", None)
        # An upsert gives its own _id.
        return result, sorted(repr((d.get("k"), d.get("n"))) for d in collection.find())

    session.start_transaction()
    in_transaction(database.c, session)
    pool, waiting = in_background(lambda: outcome(database.c))
    try:
        until_waiting(database, command)
        database.c.insert_one({"_id": 100, "k": 100, "n": 0})  # others do not wait
        database.c.delete_one({"_id": 100})
        assert not waiting.done()
        if commits:
            in_transaction(database.twin, None)
            session.commit_transaction()
        else:
            session.abort_transaction()
        found: Any = waiting.result(PATIENCE_S)
    finally:
        pool.shutdown()
    expected: Any = outcome(database.twin)
    assert found == expected
    for name in ("c", "twin"):
        assert database.command("validate", name)["valid"]


def test_a_waiting_write_obeys_its_time_limit(database: Database[Documents], session: ClientSession) -> None:
    database.c.insert_one({"_id": 1})
    with session.start_transaction():
        database.c.update_one({"_id": 1}, {"$set": {"n": 1}}, session=session)
        limited: Documents = {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"n": 2}}}], "maxTimeMS": 50}
        assert failure(lambda: database.command(limited)) == (50, False)
    assert database.c.find_one() == {"_id": 1, "n": 1}


@own_transactions
def test_ddl_waits_for_the_transactions_of_its_collection(
    database: Database[Documents], session: ClientSession
) -> None:
    database.c.insert_one({"_id": 1})
    database.source.insert_one({"_id": 1})
    for name, change in (
        ("createIndexes", lambda: database.c.create_index("n")),
        ("collMod", lambda: database.command("collMod", "c", validator={})),
        ("dropIndexes", lambda: database.c.drop_index("n_1")),
        ("$out", lambda: database.source.aggregate([{"$out": "c"}])),
        ("mapReduce", lambda: database.command(MAP_REDUCE)),
        ("renameCollection", lambda: database.c.rename("d")),
        ("drop", lambda: database.d.drop()),
    ):
        if name == "mapReduce" and missing_reason():
            continue
        known = database["d" if name == "drop" else "c"]
        session.start_transaction()
        known.insert_one({}, session=session)
        pool, waiting = in_background(change)
        try:
            for _ in range(20):
                database.client.admin.command("ping")
            assert not waiting.done(), name
            session.commit_transaction()
            waiting.result(PATIENCE_S)
        finally:
            pool.shutdown()
    assert database.list_collection_names() == ["source"]


MAP_REDUCE = {
    "mapReduce": "source",
    "map": "function() { emit(this._id, 1); }",
    "reduce": "function(key, values) { return 1; }",
    "out": {"replace": "c"},
}


@own_transactions
def test_ddl_that_waits_obeys_its_time_limit(database: Database[Documents], session: ClientSession) -> None:
    database.c.insert_one({"_id": 1})
    with session.start_transaction():
        database.c.update_one({"_id": 1}, {"$set": {"n": 1}}, session=session)
        assert failure(lambda: database.command("drop", "c", maxTimeMS=50)) == (50, False)
        out: Documents = {"aggregate": "source", "pipeline": [{"$out": "c"}], "cursor": {}, "maxTimeMS": 50}
        assert failure(lambda: database.command(out)) == (50, False)
    assert database.c.find_one() == {"_id": 1, "n": 1}
    assert database.list_collection_names() == ["c"]


# --- the state of a transaction ---


def statement(lsid: Documents, number: int, **more: Any) -> Documents:
    return {"lsid": lsid, "txnNumber": Int64(number), "autocommit": False, **more}


def test_numbers_of_transactions(bare: Bare, lsid: Documents) -> None:
    find: Documents = {"find": "c"}
    admin, run = bare.admin, bare.command
    start = {"startTransaction": True}
    run(find | statement(lsid, 5, **start))
    assert failure(lambda: run(find | statement(lsid, 5, **start)))[0] == 117
    assert failure(lambda: run(find | statement(lsid, 4)))[0] == 225
    assert failure(lambda: run(find | statement(lsid, 6))) == (251, True)
    run(find | statement(lsid, 5))
    commit: Documents = {"commitTransaction": 1}
    admin(commit | statement(lsid, 5))
    admin(commit | statement(lsid, 5))  # again
    assert failure(lambda: run(find | statement(lsid, 5)))[0] == 256
    assert failure(lambda: admin({"abortTransaction": 1} | statement(lsid, 5)))[0] == 256
    run(find | statement(lsid, 7, **start))
    run(find | statement(lsid, 8, **start))  # ends the one before
    assert failure(lambda: admin(commit | statement(lsid, 7)))[0] == 225
    admin({"abortTransaction": 1} | statement(lsid, 8))
    assert failure(lambda: admin({"abortTransaction": 1} | statement(lsid, 8)))[0] == 251
    assert failure(lambda: admin(commit | statement(lsid, 8))) == (251, True)
    retryable = {"insert": "c", "documents": [{}], "lsid": lsid, "txnNumber": Int64(7)}
    assert failure(lambda: run(retryable))[0] == 225


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"find": "c", "autocommit": False}, 72),
        ({"find": "c", "autocommit": True, "txnNumber": Int64(1)}, 72),
        ({"find": "c", "startTransaction": True, "txnNumber": Int64(1)}, 72),
        ({"find": "c", "autocommit": False, "startTransaction": False, "txnNumber": Int64(1)}, 72),
        ({"find": "c", "autocommit": False, "startTransaction": True, "txnNumber": Int64(-1)}, 72),
        ({"find": "c", "autocommit": False, "txnNumber": Int64(1)}, 251),
        ({"find": "c", "txnNumber": Int64(1)}, 50768),
        ({"find": "c", "autocommit": False, "startTransaction": True, "txnNumber": 1}, 14),
    ],
)
def test_arguments(bare: Bare, lsid: Documents, command: Documents, code: int) -> None:
    assert failure(lambda: bare.command({**command, "lsid": lsid}))[0] == code


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"count": "c"}, 263),
        ({"drop": "c"}, 263),
        ({"dropDatabase": 1}, 263),
        ({"listCollections": 1}, 263),
        ({"collStats": "c"}, 263),
        ({"ping": 1}, 263),
        ({"getParameter": 1, "logLevel": 1}, 263),  # of `admin`, but that is checked later
        ({"buildInfo": 1}, 263),
        ({"connectionStatus": 1}, 263),
        ({"killCursors": "c", "cursors": [Int64(1)]}, 263),
        ({"insert": "c", "documents": [{}], "writeConcern": {"w": 1}}, 72),
        ({"find": "c", "readConcern": {"level": "linearizable"}}, 72),
        ({"aggregate": "c", "pipeline": [{"$out": "d"}], "cursor": {}}, 263),
        ({"aggregate": "c", "pipeline": [{"$merge": "d"}], "cursor": {}}, 263),
        ({"aggregate": "c", "pipeline": [{"$collStats": {}}], "cursor": {}}, 263),
        ({"aggregate": "c", "pipeline": [{"$unionWith": "d"}], "cursor": {}}, 263),
        ({"aggregate": "c", "pipeline": [{"$facet": {"a": [{"$unionWith": "d"}]}}], "cursor": {}}, 263),
        ({"aggregate": "c", "pipeline": [{"$indexStats": {}}], "cursor": {}}, 263),
        ({"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]}, 263),
    ],
)
def test_transactions_refuse_commands(
    database: Database[Documents], bare: Bare, lsid: Documents, command: Documents, code: int
) -> None:
    database.c.insert_one({})
    database.create_collection("capped", capped=True, size=4096)
    database.create_collection("series", timeseries={"timeField": "t"})
    given = command | statement(lsid, 1, startTransaction=True)
    assert failure(lambda: bare.command(given))[0] == code


@pytest.mark.parametrize("name", ["buildInfo", "connectionStatus", "killCursors"])
def test_commands_that_only_may_not_be_the_first(bare: Bare, lsid: Documents, name: str) -> None:
    bare.command({"find": "c"} | statement(lsid, 1, startTransaction=True))
    command: Documents = {"killCursors": "c", "cursors": [Int64(1)]} if name == "killCursors" else {name: 1}
    assert bare.command(command | statement(lsid, 1))["ok"] == 1
    bare.command({"insert": "c", "documents": [{}]} | statement(lsid, 1))
    bare.admin({"commitTransaction": 1} | statement(lsid, 1))


def test_writes_to_capped_and_time_series_collections(
    database: Database[Documents], bare: Bare, lsid: Documents
) -> None:
    """As in MongoDB, an error of the statement, which aborts the transaction."""
    database.create_collection("capped", capped=True, size=4096)
    database.create_collection("series", timeseries={"timeField": "t"})
    for number, (name, document) in enumerate([("capped", {}), ("series", {"t": datetime.datetime(2026, 1, 1)})]):
        insert: Documents = {"insert": name, "documents": [document]}
        reply = bare.command(insert | statement(lsid, number, startTransaction=True))
        assert (reply["n"], reply["writeErrors"][0]["code"]) == (0, 263)
        assert failure(lambda n=number: bare.command({"find": "c"} | statement(lsid, n))) == (251, True)  # type: ignore[misc]


def test_only_the_first_statement_has_a_read_concern(bare: Bare, lsid: Documents) -> None:
    snapshot: Documents = {"readConcern": {"level": "snapshot"}}
    insert: Documents = {"insert": "c", "documents": [{}]}
    bare.command(insert | snapshot | statement(lsid, 1, startTransaction=True))
    assert failure(lambda: bare.command({"find": "c"} | snapshot | statement(lsid, 1)))[0] == 72


def test_commit_outside_a_transaction(bare: Bare, lsid: Documents) -> None:
    assert failure(lambda: bare.admin({"commitTransaction": 1}))[0] == 125
    assert failure(lambda: bare.admin({"abortTransaction": 1, "lsid": lsid}))[0] == 125
    assert failure(lambda: bare.command({"commitTransaction": 1} | statement(lsid, 1)))[0] == 13


def test_a_failed_statement_aborts_the_transaction(database: Database[Documents], session: ClientSession) -> None:
    database.c.create_index("k", unique=True)
    for failing in (
        lambda: database.c.insert_one({"k": 1}, session=session),
        lambda: database.c.insert_many([{"k": 2}, {"k": 1}], session=session),
        lambda: database.c.update_one({"k": 1}, {"$bad": 1}, session=session),
        lambda: database.c.find_one({"$bad": 1}, session=session),
        lambda: list(database.c.aggregate([{"$project": {"x": {"$divide": [1, 0]}}}], session=session)),
        lambda: database.c.bulk_write([pymongo.InsertOne({"k": 1})], session=session),
    ):
        session.start_transaction()
        database.c.insert_one({"k": 1}, session=session)
        with pytest.raises(PyMongoError):
            failing()
        assert failure(session.commit_transaction) == (251, True)
        assert database.c.count_documents({}) == 0


def test_ended_and_killed_sessions_abort_their_transactions(
    database: Database[Documents], client: "pymongo.MongoClient[Documents]"
) -> None:
    database.c.insert_one({"_id": 1})
    for command in ("endSessions", "killSessions"):
        with client.start_session() as session:
            session.start_transaction()
            database.c.update_one({"_id": 1}, {"$set": {"n": 1}}, session=session)
            client.admin.command(command, [session.session_id])
            database.c.update_one({"_id": 1}, {"$set": {"n": 2}})  # does not wait
            assert failure(session.commit_transaction)[0] == 251
    assert database.c.find_one() == {"_id": 1, "n": 2}


@own_parameters
def test_a_transaction_that_lives_too_long_is_aborted(
    server: mongottl.RunningServer, database: Database[Documents], session: ClientSession
) -> None:
    database.c.insert_one({"_id": 1, "n": 0})
    database.client.admin.command("setParameter", 1, transactionLifetimeLimitSeconds=1)
    try:
        session.start_transaction()
        database.c.update_one({"_id": 1}, {"$set": {"n": 1}}, session=session)
        database.c.update_one({"_id": 1}, {"$set": {"n": 2}})  # waits for about a second
        assert failure(session.commit_transaction) == (251, True)
    finally:
        database.client.admin.command("setParameter", 1, transactionLifetimeLimitSeconds=60)
    assert database.c.find_one() == {"_id": 1, "n": 2}


# --- collections and indexes ---


@needs_one_machine
def test_collections_and_indexes_made_in_a_transaction(database: Database[Documents], session: ClientSession) -> None:
    with session.start_transaction():
        database.create_collection("made", session=session, check_exists=False)
        database.made.create_index("k", unique=True, session=session)
        database.made.insert_many([{"k": i} for i in range(5)], session=session)
        assert database.made.find_one({"k": 3}, session=session) is not None
        assert database.list_collection_names() == []
        database.implicit.insert_one({"_id": 1}, session=session)
    assert sorted(database.list_collection_names()) == ["implicit", "made"]
    assert set(database.made.index_information()) == {"_id_", "k_1"}
    assert database.command("validate", "made")["valid"]
    assert failure(lambda: database.made.insert_one({"k": 3}))[0] == 11000


def test_no_index_is_made_on_a_new_collection_with_documents(
    database: Database[Documents], session: ClientSession
) -> None:
    session.start_transaction()
    database.made.insert_one({"_id": 1}, session=session)
    assert failure(lambda: database.made.create_index("k", session=session)) == (263, False)
    assert database.list_collection_names() == []


def test_creating_what_exists_in_a_transaction(database: Database[Documents], session: ClientSession) -> None:
    """Outside of a transaction it is no error if the options are the same."""
    database.create_collection("made")
    database.command("create", "made")
    session.start_transaction()
    assert failure(lambda: database.command("create", "made", session=session)) == (48, False)


def test_two_transactions_that_make_one_collection(
    database: Database[Documents], session: ClientSession, other: ClientSession
) -> None:
    session.start_transaction()
    other.start_transaction()
    database.made.insert_one({"_id": 1}, session=session)
    database.made.insert_one({"_id": 2}, session=other)
    session.commit_transaction()
    assert failure(other.commit_transaction) == (112, True)
    assert list(database.made.find()) == [{"_id": 1}]


@own_transactions
def test_databases_that_differ_in_case_in_a_transaction(
    client: "pymongo.MongoClient[Documents]", session: ClientSession, other: ClientSession
) -> None:
    name = f"case_{uuid.uuid4().hex[:8]}"
    lower, upper = client[name], client[name.upper()]
    try:
        session.start_transaction()
        lower.made.insert_one({}, session=session)
        assert failure(lambda: upper.made.insert_one({}, session=session)) == (13297, False)
        session.abort_transaction()
        session.start_transaction()
        lower.made.insert_one({}, session=session)
        upper.made.insert_one({})
        assert failure(session.commit_transaction) == (112, True)
        assert name not in client.list_database_names()
    finally:
        client.drop_database(upper)
        client.drop_database(lower)


def test_arrays_written_in_a_transaction_make_an_index_multikey(
    database: Database[Documents], session: ClientSession
) -> None:
    database.c.create_index("a")
    database.c.insert_one({"_id": 0, "a": 1})
    with session.start_transaction():
        database.c.insert_one({"_id": 1, "a": [1, 2]}, session=session)
        assert [d["_id"] for d in database.c.find({"a": 2}, session=session)] == [1]
    assert [d["_id"] for d in database.c.find({"a": {"$gte": 1}}).hint("a_1")] == [0, 1]
    assert database.command("validate", "c")["valid"]


# --- time to live ---


def test_a_statement_judges_expiry_by_its_own_time(
    database: Database[Documents], server: mongottl.RunningServer
) -> None:
    database.c.create_index("_ts", expireAfterSeconds=10)
    database.c.insert_many([{"_id": 1}, {"_id": 2}])
    with database.client.start_session() as session:
        session.start_transaction()
        assert database.c.count_documents({}, session=session) == 2
        database.c.update_one({"_id": 1}, {"$set": {"n": 1}}, session=session)
        server.clock.advance(8)
        database.c.insert_one({"_id": 3}, session=session)
        server.clock.advance(4)
        # The reaper leaves alone what the transaction has written; what it has not is gone for it, too.
        assert [d["_id"] for d in database.c.find({}, session=session)] == [3]
        session.commit_transaction()
    assert [d["_id"] for d in database.c.find()] == [3]
    server.clock.advance(7)
    assert database.c.count_documents({}) == 0
    server.clock.advance(0)
    assert database.command("collStats", "c")["count"] == 0


def test_an_aborted_write_changes_no_lifetime(database: Database[Documents], server: mongottl.RunningServer) -> None:
    database.c.create_index("_ts", expireAfterSeconds=10)
    database.c.insert_one({"_id": 1})
    server.clock.advance(6)
    with database.client.start_session() as session:
        session.start_transaction()
        database.c.update_one({"_id": 1}, {"$set": {"n": 1}}, session=session)
        server.clock.advance(5)
        session.abort_transaction()
    assert database.c.count_documents({}) == 0
    server.clock.advance(0)
    assert database.command("collStats", "c")["size"] == 0


# --- snapshot reads ---


@own_snapshots
def test_a_snapshot_session_reads_one_point_in_time(
    database: Database[Documents], client: "pymongo.MongoClient[Documents]"
) -> None:
    database.c.create_index("n")
    database.c.insert_many([{"_id": i, "n": i} for i in range(300)])
    with client.start_session(snapshot=True) as session:
        assert database.c.count_documents({"n": {"$lt": 5}}, session=session) == 5
        cursor = database.c.find({}, batch_size=10, session=session)
        next(cursor)
        database.c.delete_many({"n": {"$lt": 100}})
        database.c.update_many({}, {"$inc": {"n": 1}})
        database.c.insert_one({"_id": 1000, "n": 1})
        assert database.c.count_documents({"n": {"$lt": 5}}, session=session) == 5
        assert len(list(cursor)) == 299
        assert database.c.distinct("n", session=session) == list(range(300))
        assert [d["_id"] for d in database.c.find({"n": {"$lt": 3}}, session=session).sort("n", -1)] == [2, 1, 0]
    assert database.c.count_documents({}) == 201


@own_snapshots
def test_snapshot_reads_of_times(database: Database[Documents]) -> None:
    database.c.insert_one({"_id": 1})
    concern: Documents = {"level": "snapshot"}
    at = database.command("find", "c", readConcern=concern)["cursor"]["atClusterTime"]
    database.c.insert_one({"_id": 2})
    concern["atClusterTime"] = at
    assert database.command("find", "c", readConcern=concern)["cursor"]["firstBatch"] == [{"_id": 1}]
    assert database.command("distinct", "c", key="_id", readConcern=concern)["values"] == [1]
    concern["atClusterTime"] = bson.Timestamp(1, 1)
    assert failure(lambda: database.command("find", "c", readConcern=concern))[0] == 239
    concern["atClusterTime"] = bson.Timestamp(2**32 - 1, 1)
    assert failure(lambda: database.command("find", "c", readConcern=concern))[0] == 72
    wrong = {"find": "c", "readConcern": {"level": "local", "atClusterTime": at}}
    assert failure(lambda: database.command(wrong))[0] == 72
    assert database.get_collection("c", read_concern=ReadConcern("snapshot")).count_documents({}) == 2


# --- what administrators see ---


def transactions_of(database: Database[Documents]) -> dict[str, int]:
    found: dict[str, int] = database.client.admin.command("serverStatus")["transactions"]
    return found


@own_figures
def test_server_status_counts_transactions_and_retries(database: Database[Documents], bare: Bare) -> None:
    def change(since: dict[str, int]) -> dict[str, int]:
        now = transactions_of(database)
        return {name: now[name] - since[name] for name in now if now[name] != since[name]}

    lsids: list[Documents] = [{"id": bson.Binary.from_uuid(uuid.uuid4())} for _ in range(3)]
    before = transactions_of(database)
    insert: Documents = {"insert": "c", "documents": [{}]}
    for lsid in lsids:
        bare.command(insert | statement(lsid, 1, startTransaction=True))
    assert change(before) == {"currentInactive": 3, "currentOpen": 3, "totalStarted": 3}
    bare.admin({"commitTransaction": 1} | statement(lsids[0], 1))
    for lsid in lsids[1:]:
        bare.admin({"abortTransaction": 1} | statement(lsid, 1))
    counted = {"totalStarted": 3, "totalCommitted": 1, "totalAborted": 2, "transactionsCollectionWriteCount": 1}
    assert change(before) == counted
    retryable: Documents = {"insert": "c", "documents": [{}, {}], "lsid": lsids[0], "txnNumber": Int64(2)}
    for _ in range(3):
        bare.command(retryable)
    counted |= {"retriedCommandsCount": 2, "retriedStatementsCount": 4, "transactionsCollectionWriteCount": 2}
    assert change(before) == counted


@own_operations
def test_current_op_shows_transactions(database: Database[Documents], bare: Bare, lsid: Documents) -> None:
    """Between its statements, by the session; the fields are those of MongoDB's manual."""
    concern = {"level": "snapshot"}
    bare.command({"find": "c", "readConcern": concern} | statement(lsid, 7, startTransaction=True))
    found = list(database.client.admin.aggregate([{"$currentOp": {"idleSessions": True, "allUsers": True}}]))
    shown = [entry for entry in found if entry.get("lsid", {}).get("id") == uuid.UUID(bytes=bytes(lsid["id"]))]
    shown = shown or [entry for entry in found if bytes(entry.get("lsid", {}).get("id", b"")) == bytes(lsid["id"])]
    assert [(entry["type"], entry["active"], entry["desc"]) for entry in shown] == [
        ("idleSession", False, "inactive transaction")
    ]
    transaction = shown[0]["transaction"]
    assert transaction["parameters"] == {"txnNumber": 7, "autocommit": False, "readConcern": concern}
    assert isinstance(transaction["readTimestamp"], bson.Timestamp)
    start, expiry = (
        datetime.datetime.fromisoformat(transaction[name]) for name in ("startWallClockTime", "expiryTime")
    )
    assert (expiry - start).total_seconds() == 60
    active, inactive = transaction["timeActiveMicros"], transaction["timeInactiveMicros"]
    assert active > 0 and inactive > 0 and abs(active + inactive - transaction["timeOpenMicros"]) <= 1
    by_command = database.client.admin.command({"currentOp": 1, "transaction.parameters.txnNumber": 7})["inprog"]
    assert [entry["type"] for entry in by_command] == ["idleSession"]
    bare.admin({"abortTransaction": 1} | statement(lsid, 7))
    # Sessions without an open transaction are not shown, though they have a transaction number.
    bare.command({"insert": "c", "documents": [{}], "lsid": lsid, "txnNumber": Int64(8)})
    found = list(database.client.admin.aggregate([{"$currentOp": {"idleSessions": True, "allUsers": True}}]))
    assert [entry for entry in found if entry["type"] == "idleSession"] == []


# --- durability ---


def test_committed_transactions_survive_a_restart(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    with (
        mongottl.start_server(data_dir=folder) as server,
        pymongo.MongoClient[Documents](server.uri) as client,
        client.start_session() as session,
    ):
        with session.start_transaction():
            client.test.c.insert_many([{"_id": i} for i in range(10)], session=session)
            client.test.d.insert_one({"_id": 1}, session=session)
        session.start_transaction()
        client.test.c.delete_many({}, session=session)
        client.test.e.insert_one({}, session=session)
    with mongottl.start_server(data_dir=folder) as server, pymongo.MongoClient[Documents](server.uri) as client:
        assert client.test.c.count_documents({}) == 10
        assert sorted(client.test.list_collection_names()) == ["c", "d"]
        assert client.test.command("validate", "c")["valid"]


def test_a_commit_is_answered_again_after_a_restart(tmp_path: Path, lsid: Documents) -> None:
    """Also by another run of the server with the same data; what has not written anything is not remembered."""
    folder = str(tmp_path / "data")
    insert: Documents = {"insert": "c", "documents": [{"_id": 1}]}
    commit: Documents = {"commitTransaction": 1}
    with mongottl.start_server(data_dir=folder) as server:
        bare = Bare(server, "test")
        for number in (3, 4):
            bare.command({**insert, "documents": [{"_id": number}]} | statement(lsid, number, startTransaction=True))
            bare.admin(commit | statement(lsid, number))
        bare.close()
    with mongottl.start_server(data_dir=folder) as server:
        bare = Bare(server, "test")
        for _ in range(2):
            bare.admin(commit | statement(lsid, 4))
        assert failure(lambda: bare.admin(commit | statement(lsid, 3)))[0] == 225
        assert failure(lambda: bare.admin(commit | statement(lsid, 5))) == (251, True)
        assert failure(lambda: bare.admin({"abortTransaction": 1} | statement(lsid, 4)))[0] == 256
        assert failure(lambda: bare.command({"find": "c"} | statement(lsid, 4)))[0] == 256
        assert failure(lambda: bare.command(insert | statement(lsid, 4, startTransaction=True)))[0] == 117
        assert failure(lambda: bare.command(insert | {"lsid": lsid, "txnNumber": Int64(4)}))[0] == 217
        assert failure(lambda: bare.command(insert | {"lsid": lsid, "txnNumber": Int64(3)}))[0] == 225
        found = bare.command({"find": "transactions", "$db": "config"})["cursor"]["firstBatch"]
        assert [(document["txnNum"], document["state"]) for document in found] == [(4, "committed")]
        bare.command(insert | {"lsid": lsid, "txnNumber": Int64(6)})
        bare.command({"find": "c"} | statement(lsid, 7, startTransaction=True))
        bare.admin(commit | statement(lsid, 7))
        found = bare.command({"find": "transactions", "$db": "config"})["cursor"]["firstBatch"]
        assert [(document["txnNum"], document.get("state")) for document in found] == [(6, None)]
        bare.close()
    with mongottl.start_server(data_dir=folder) as server:
        bare = Bare(server, "test")
        assert failure(lambda: bare.admin(commit | statement(lsid, 7))) == (251, True)
        assert bare.command(insert | {"lsid": lsid, "txnNumber": Int64(6)})["retriedStmtIds"] == [0]
        bare.close()


def test_moving_the_clock_ends_transactions(server: mongottl.RunningServer, database: Database[Documents]) -> None:
    """`transactionLifetimeLimitSeconds` is 60 by default; what the transaction has claimed is free at once."""
    coll = database.c
    coll.insert_one({"_id": 1, "n": 0})
    with database.client.start_session() as session:
        session.start_transaction()
        coll.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
        server.clock.advance(50)
        assert coll.find_one({"_id": 1}, session=session) == {"_id": 1, "n": 1}
        server.clock.advance(20)
        coll.update_one({"_id": 1}, {"$inc": {"n": 10}})
        with pytest.raises(OperationFailure) as caught:
            coll.find_one({"_id": 1}, session=session)
        assert caught.value.code == 251
        assert caught.value.has_error_label(TRANSIENT)
        with pytest.raises(OperationFailure) as caught:
            session.commit_transaction()
        assert caught.value.code == 251
    assert coll.find_one() == {"_id": 1, "n": 10}


DDL: dict[str, Documents] = {
    "createIndexes": {"createIndexes": "c", "indexes": [{"key": {"n": 1}, "name": "n_1"}]},
    "dropIndexes": {"dropIndexes": "c", "index": "m_1"},
    "collMod": {"collMod": "c", "validationLevel": "moderate"},
    "drop": {"drop": "c"},
    "dropDatabase": {"dropDatabase": 1},
    "renameCollection": {"renameCollection": "", "to": ""},
}


@needs_one_machine
@pytest.mark.parametrize("name", DDL)
def test_a_change_goes_before_transactions_that_begin_later(
    server: mongottl.RunningServer, database: Database[Documents], name: str
) -> None:
    """As in mongod's lock queue: it waits for those that use the collection, and they may go on meanwhile; others wait
    for it, at their beginning, or else for 5 ms."""
    database.c.insert_one({"_id": 1})
    database.c.create_index("m")
    database.other.insert_one({"_id": 1})
    command = DDL[name]
    if name == "renameCollection":
        command = {name: f"{database.name}.c", "to": f"{database.name}.new", "$db": "admin"}
    lsids: list[Documents] = [{"id": bson.Binary(uuid.uuid4().bytes, 4)} for _ in range(3)]
    older, strange, later = (Bare(server, database.name) for _ in range(3))
    changing = Bare(server, database.name)
    outside = database.client[f"{database.name}_2"].c
    outside.insert_one({"_id": 1})
    numbers = itertools.count(1)

    def begin_later() -> Documents:
        """Again where an index is still being built, into whose collection no transaction writes on a store."""
        insert: Documents = {"insert": "c", "documents": [{"_id": 3}]}
        while True:
            try:
                return later.command(insert | statement(lsids[2], next(numbers), startTransaction=True))
            except OperationFailure as error:
                if "is being built" not in str(error):
                    raise

    with ThreadPoolExecutor() as pool:
        older.command({"insert": "c", "documents": [{"_id": 2}]} | statement(lsids[0], 1, startTransaction=True))
        strange.command({"find": "c", "$db": outside.database.name} | statement(lsids[1], 1, startTransaction=True))
        change = pool.submit(changing.command, command)
        until(lambda: waiting(database, name))
        begun = pool.submit(begin_later)
        until(lambda: waiting(database, "insert"))
        older.command({"insert": "c", "documents": [{"_id": 4}]} | statement(lsids[0], 1))
        older.command({"find": "other"} | statement(lsids[0], 1))
        assert failure(lambda: strange.command({"find": "c"} | statement(lsids[1], 1))) == (24, True)
        assert not change.done()
        assert not begun.done()
        older.admin({"commitTransaction": 1} | statement(lsids[0], 1))
        assert change.result(PATIENCE_S)["ok"] == 1
        assert begun.result(PATIENCE_S)["n"] == 1
        later.admin({"commitTransaction": 1} | statement(lsids[2], next(numbers) - 1))
        assert failure(lambda: strange.admin({"commitTransaction": 1} | statement(lsids[1], 1))) == (251, True)
    expected = {3} if name in ("drop", "dropDatabase", "renameCollection") else {1, 2, 3, 4}
    assert {document["_id"] for document in database.c.find()} == expected
    for bare in (older, strange, later, changing):
        bare.close()
    database.client.drop_database(outside.database.name)


@needs_one_machine
@pytest.mark.parametrize("name", ["$lookup", "$facet", "bulkWrite", "a view", "a view that joins", "a join of a view"])
def test_a_change_goes_before_statements_that_name_its_collection_within(
    server: mongottl.RunningServer, database: Database[Documents], name: str
) -> None:
    """The collection of a stage that joins it, of an operation of a bulkWrite, or of a view."""
    database.c.insert_one({"_id": 1})
    database.other.insert_one({"_id": 1})
    if "view" in name:
        joins = [{"$lookup": {"from": "c", "pipeline": [], "as": "x"}}] if name == "a view that joins" else []
        database.create_collection("below", viewOn="other" if joins else "c", pipeline=joins)
        database.create_collection("above", viewOn="below", pipeline=[])
        begins: Documents = {"find": "above"}
        if name == "a join of a view":
            stage: Documents = {"$lookup": {"from": "above", "pipeline": [], "as": "x"}}
            begins = {"aggregate": "other", "pipeline": [stage], "cursor": {}}
    elif name == "bulkWrite":
        operations = [{"insert": 0, "document": {"_id": 2}}]
        names = [{"ns": f"{database.name}.c"}]
        begins = {"bulkWrite": 1, "ops": operations, "nsInfo": names, "$db": "admin"}
    else:
        stage = {"$lookup": {"from": "c", "pipeline": [], "as": "x"}}
        if name == "$facet":
            stage = {name: {"joined": [stage]}}
        begins = {"aggregate": "other", "pipeline": [stage], "cursor": {}}
    lsids: list[Documents] = [{"id": bson.Binary(uuid.uuid4().bytes, 4)} for _ in range(2)]
    older, later, changing = (Bare(server, database.name) for _ in range(3))
    with ThreadPoolExecutor() as pool:
        older.command({"insert": "c", "documents": [{"_id": 9}]} | statement(lsids[0], 1, startTransaction=True))
        change = pool.submit(changing.command, DDL["collMod"])
        until(lambda: waiting(database, "collMod"))
        begun = pool.submit(later.command, begins | statement(lsids[1], 1, startTransaction=True))
        until(lambda: waiting(database, next(iter(begins))))
        assert not begun.done()
        older.admin({"commitTransaction": 1} | statement(lsids[0], 1))
        assert change.result(PATIENCE_S)["ok"] == 1
        assert begun.result(PATIENCE_S)["ok"] == 1
        later.admin({"commitTransaction": 1} | statement(lsids[1], 1))
    for bare in (older, later, changing):
        bare.close()


def waiting(database: Database[Documents], name: str) -> bool:
    """Whether such a command is registered as running: it waits to begin."""
    running = database.client.admin.aggregate([{"$currentOp": {"allUsers": True}}])
    return any(name in one.get("command", {}) for one in running)


def test_changes_do_not_starve_beside_short_transactions(
    server: mongottl.RunningServer, database: Database[Documents]
) -> None:
    """12 clients run one short transaction after the other on a collection that is changed meanwhile."""
    database.c.insert_many([{"_id": number, "n": 0} for number in range(12)])
    ends = threading.Event()

    def run(number: int) -> None:
        with pymongo.MongoClient[Documents](server.uri) as client, client.start_session() as session:
            coll = client[database.name].c
            while not ends.is_set():

                def step(session: ClientSession) -> None:
                    coll.update_one({"_id": number}, {"$inc": {"n": 1}}, session=session)
                    coll.find_one({"_id": number}, session=session)

                session.with_transaction(step)

    with ThreadPoolExecutor() as pool:
        clients = [pool.submit(run, number) for number in range(12)]
        try:
            least = 3 if wanted() == 1 else 0  # each of several nodes counts its own
            until(lambda: database.client.admin.command("serverStatus")["transactions"]["currentOpen"] > least)
            for _ in range(3):
                database.command("createIndexes", "c", indexes=[{"key": {"n": 1}, "name": "n_1"}], maxTimeMS=60_000)
                database.command("collMod", "c", validationLevel="moderate", maxTimeMS=60_000)
                database.command("dropIndexes", "c", index="n_1", maxTimeMS=60_000)
        finally:
            ends.set()
        for one in clients:
            one.result(PATIENCE_S)
