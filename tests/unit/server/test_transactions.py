"""Transactions step by step, without sockets: what other commands of the session, the reaper, disconnected clients and
failing storage do to a transaction while one of its statements is under way."""

import io
import random
import sys
from collections.abc import Iterator
from typing import Any

import bson
import pytest
from bson import Binary, Int64

from mongottl.clock import VirtualClock
from mongottl.config import ServerConfig
from mongottl.exec.operation.transaction_unit import abort_open
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.running.stack import Steps
from mongottl.exec.running.steps import Flush, Wait
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.sessions.session_ids import session_key
from mongottl.exec.write.expiry import PURGE_BYTES, reap_due
from mongottl.server.dispatch import Dispatcher
from mongottl.server.log import Log
from mongottl.storage.opening import open_engine
from mongottl.storage.snapshot.write_set import WriteSet
from mongottl.wire.messages import OpMsg
from tests.replies import without_times
from tests.simulation.faults import FaultyEngine
from tests.steps import run_to_end

Document = dict[str, Any]
LSID = {"id": Binary(bytes(16), 4)}
KEY = session_key(bson.encode(LSID), None)


class Setup:
    """A dispatcher with everything below it, a clock that stands still, and a client with one session."""

    def __init__(self, kind: str, failure_rate: float = 0.0) -> None:
        self.clock = VirtualClock()
        self.clock.freeze()
        self.engine = FaultyEngine(open_engine(f"{kind}:"), random.Random(1), failure_rate)
        self.service = ServiceContext(ServerConfig(enable_test_commands=True), self.clock, self.engine)
        self.dispatcher = Dispatcher(self.service, Log(quiet=True, stream=io.StringIO()))
        self.client = ClientInfo(1, "127.0.0.1:1", "127.0.0.1:2")

    def start(self, command: Document, **more: Any) -> bytes | Steps[bytes]:
        body = bson.encode({**command, **more, "$db": more.get("$db", command.get("$db", "test"))})
        return self.dispatcher.handle(OpMsg(1, 0, 0, body, []), self.client)

    def steps(self, command: Document, **more: Any) -> Steps[bytes]:
        outcome = self.start(command, **more)
        assert not isinstance(outcome, bytes)
        return outcome

    def run(self, command: Document, **more: Any) -> Document:
        outcome = self.start(command, **more)
        return without_times(bson.decode(outcome if isinstance(outcome, bytes) else run_to_end(outcome)))

    def insert(self, *documents: Document, **more: Any) -> None:
        assert self.run({"insert": "c", "documents": list(documents)}, **more)["n"] == len(documents)

    def ids(self) -> list[Any]:
        found = self.run({"find": "c", "batchSize": 100_000})["cursor"]["firstBatch"]
        return sorted(document["_id"] for document in found)

    def stored(self) -> int:
        """How many records there are, expired ones included."""
        collection = self.service.catalog.lookup("test", "c")
        assert collection is not None
        return collection.store.count()

    @property
    def ended(self) -> bool:
        """Whether nothing of a transaction is left: none is open, nothing is claimed, no snapshot is kept."""
        service = self.service
        return not (len(service.transactions) or service.isolation.watches_writes)


@pytest.fixture(params=["memory", "sqlite"])
def setup(request: pytest.FixtureRequest) -> Iterator[Setup]:
    made = Setup(request.param)
    yield made
    made.engine.close()


def statement(number: int, **more: Any) -> Document:
    return {"lsid": LSID, "txnNumber": Int64(number), "autocommit": False, **more}


def start(number: int) -> Document:
    return statement(number, startTransaction=True)


LONG_UPDATE = {"update": "c", "updates": [{"q": {}, "u": {"$inc": {"n": 1}}, "multi": True}]}


def test_a_retryable_write_waits_for_the_statement_that_runs(setup: Setup) -> None:
    """It ends the session's older transaction, but not while one of its statements is under way."""
    setup.insert(*[{"_id": i, "n": 0} for i in range(2000)])
    running = setup.steps(LONG_UPDATE, **start(1))
    next(running)
    retryable = {"insert": "c", "documents": [{"_id": "r"}], "lsid": LSID, "txnNumber": Int64(2)}
    waiting = setup.steps(retryable)
    next(waiting)
    assert len(setup.service.transactions) == 1
    assert bson.decode(run_to_end(running))["n"] == 2000
    assert bson.decode(run_to_end(waiting))["n"] == 1
    assert setup.ended
    assert setup.run({"count": "c", "query": {"n": 1}})["n"] == 0
    assert setup.run({"commitTransaction": 1}, **statement(1), **{"$db": "admin"})["code"] == 225


def test_the_wait_for_an_earlier_statement_ends_in_time(setup: Setup) -> None:
    setup.insert(*[{"_id": i, "n": 0} for i in range(2000)])
    running = setup.steps(LONG_UPDATE, **start(1))
    next(running)
    reply = setup.run({"find": "c"}, **statement(1), maxTimeMS=5)
    assert reply["code"] == 50
    assert bson.decode(run_to_end(running))["n"] == 2000


def test_a_client_that_disconnects_during_a_statement_aborts_its_transaction(setup: Setup) -> None:
    setup.insert(*[{"_id": i, "n": 0} for i in range(2000)])
    running = setup.steps(LONG_UPDATE, **start(1))
    next(running)
    next(running)
    running.close()
    assert setup.ended
    assert setup.run({"count": "c", "query": {"n": 1}})["n"] == 0


def test_a_session_that_ends_during_a_statement_aborts_its_transaction(setup: Setup) -> None:
    setup.insert(*[{"_id": i, "n": 0} for i in range(2000)])
    running = setup.steps(LONG_UPDATE, **start(1))
    next(running)
    abort_open(setup.service, KEY)
    assert len(setup.service.transactions) == 1
    run_to_end(running)
    assert setup.ended
    assert setup.run({"commitTransaction": 1}, **statement(1), **{"$db": "admin"})["code"] == 251


def test_an_ended_transaction_keeps_no_memory(setup: Setup) -> None:
    setup.insert({"_id": 1})
    for number, name in enumerate(("commitTransaction", "abortTransaction")):
        setup.run({"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]}, **start(number))
        setup.run({"insert": "made", "documents": [{}]}, **statement(number))
        transaction = setup.service.transactions.latest(KEY)
        assert transaction is not None
        assert setup.run({name: 1}, **statement(number), **{"$db": "admin"})["ok"] == 1
        write_set = transaction.data
        assert isinstance(write_set, WriteSet)
        assert not (transaction.collections or transaction.pending or transaction.ready_indexes or transaction.changes)
        assert not (write_set.records or write_set.entries or write_set.stores or write_set.sorted_data)
        assert setup.ended


@pytest.mark.parametrize("use", ["statement", "records_view", "entries_view", "own_records", "own_entries"])
def test_a_write_set_refuses_to_be_used_after_its_transaction(setup: Setup, use: str) -> None:
    setup.insert({"_id": 1})
    setup.run({"find": "c"}, **start(1))
    transaction = setup.service.transactions.latest(KEY)
    collection = setup.service.catalog.lookup("test", "c")
    assert transaction is not None and collection is not None
    write_set = transaction.data
    writing = write_set.own_records(collection.store)
    setup.run({"abortTransaction": 1}, **statement(1), **{"$db": "admin"})
    stores = {"records": (collection.store,), "entries": (collection.indexes[0].sorted_data,), "statement": ()}
    with pytest.raises(RuntimeError, match="after its transaction has ended"):
        getattr(write_set, use)(*next(given for name, given in stores.items() if name in use))
    with pytest.raises(RuntimeError, match="after its transaction has ended"):
        writing.insert_record(b"", 0, 0)


def test_an_abort_does_not_depend_on_storage() -> None:
    """The stores of a collection that it has created are dropped later if storage fails."""
    setup = Setup("memory", 1.0)
    setup.run({"insert": "made", "documents": [{"_id": 1}]}, **start(1))
    assert setup.service.isolation.watches_writes and len(setup.service.transactions) == 1
    setup.engine.armed = True
    assert setup.run({"abortTransaction": 1}, **statement(1), **{"$db": "admin"})["ok"]
    assert setup.engine.failures and setup.ended


@pytest.mark.parametrize("by_default", [False, True])
def test_a_journaled_commit_waits_for_the_disk(setup: Setup, by_default: bool) -> None:
    """By its own write concern or the default one; a statement before it does not."""
    concern: Document = {"w": 1, "j": True}
    given: Document = {} if by_default else {"writeConcern": concern}
    if by_default:
        reply = setup.run({"setDefaultRWConcern": 1, "defaultWriteConcern": concern, "$db": "admin"})
        assert reply["ok"], reply
    setup.run({"insert": "c", "documents": [{"_id": 1}]}, **start(1))
    for _ in range(2):  # also when it is sent again
        steps = setup.steps({"commitTransaction": 1}, **statement(1), **given, **{"$db": "admin"})
        assert [type(step) for step in steps] == [Flush]
    assert setup.ids() == [1]


def test_the_reply_to_a_commit_tells_its_cluster_time(setup: Setup) -> None:
    setup.run({"insert": "c", "documents": [{"_id": 1}]}, **start(1))
    times = []
    for _ in range(2):
        outcome = setup.start({"commitTransaction": 1}, **statement(1), **{"$db": "admin"})
        assert isinstance(outcome, bytes)
        times.append(bson.decode(outcome)["operationTime"])
    assert times[0] == times[1]


# --- time to live ---


def test_an_abort_arms_the_reaper_for_date_indexes(setup: Setup) -> None:
    """The reaper passes over what a transaction has written: here a document that expires by its date."""
    setup.run({"createIndexes": "c", "indexes": [{"key": {"at": 1}, "name": "at_1", "expireAfterSeconds": 10}]})
    setup.insert({"_id": 1, "at": bson.datetime_ms.DatetimeMS(setup.clock.now_ms())})
    setup.run({"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"n": 1}}}]}, **start(1))
    setup.clock.advance(20)
    assert reap_due(setup.service) == 0
    setup.run({"abortTransaction": 1}, **statement(1), **{"$db": "admin"})
    assert reap_due(setup.service) == 1
    assert setup.stored() == 0


@pytest.mark.parametrize("how", ["default", "own", "date", "descending"])
def test_the_reaper_finds_what_is_due_behind_claimed_documents(setup: Setup, how: str) -> None:
    """However large those are: claimed ones that fill a batch must not hide the others."""
    size = 3 * PURGE_BYTES // 50
    descending = -1 if how == "descending" else 1
    key: Document = {"_ts": 1} if how in ("default", "own") else {"at": descending}
    expires = {"name": "ttl", "expireAfterSeconds": -1 if how == "own" else 10}
    assert setup.run({"createIndexes": "c", "indexes": [{"key": key, **expires}]})["ok"]

    def document(i: int) -> Document:
        # All claimed documents are due before the others.
        made: Document = {"_id": i, "s": "x" * size}
        if how == "own":
            made["ttl"] = 5
        elif how != "default":
            made["at"] = bson.datetime_ms.DatetimeMS(setup.clock.now_ms() + i)
        return made

    setup.insert(*[document(i) for i in range(50)])
    setup.clock.advance(1)
    setup.insert(*[document(i) for i in range(50, 60)])
    touch = {"q": {"_id": {"$lt": 50}}, "u": {"$set": {"n": 1}}, "multi": True}
    setup.run({"update": "c", "updates": [touch]}, **start(1))
    setup.clock.advance(20)
    assert reap_due(setup.service) == 10
    assert setup.stored() == 50
    setup.run({"abortTransaction": 1}, **statement(1), **{"$db": "admin"})
    assert reap_due(setup.service) == 50
    assert setup.stored() == 0


@pytest.mark.parametrize(
    "write",
    [
        {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]},
        {"update": "c", "updates": [{"q": {"n": {"$gt": 0}}, "u": {"$inc": {"n": 1}}}]},
        LONG_UPDATE,
        {"update": "c", "updates": [{"q": {"_id": 2}, "u": {"$inc": {"n": 1}}, "upsert": True}]},
        {"delete": "c", "deletes": [{"q": {"n": {"$gt": 0}}, "limit": 1}]},
        {"delete": "c", "deletes": [{"q": {}, "limit": 0}]},
        {"findAndModify": "c", "query": {"n": {"$gt": 0}}, "update": {"$inc": {"n": 1}}},
        {"findAndModify": "c", "query": {"n": {"$gt": 0}}, "remove": True},
        {"insert": "c", "documents": [{"_id": 2}]},
        {"aggregate": "d", "pipeline": [{"$set": {"n": 5}}, {"$merge": "c"}], "cursor": {}},
    ],
)
def test_a_write_that_waits_for_a_transaction_leaves_no_exception_behind(setup: Setup, write: Document) -> None:
    """The conflict that the write has met is not the exception that is handled by what runs meanwhile or afterwards."""
    setup.insert({"_id": 1, "n": 1})
    assert setup.run({"insert": "d", "documents": [{"_id": 1}]})["n"] == 1
    assert setup.run({"insert": "c", "documents": [{"_id": 2, "n": 0}]}, **start(1))["n"] == 1
    assert setup.run({"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]}, **statement(1))["n"] == 1
    for _ in range(2):
        waiting = setup.steps(write)
        while not isinstance(next(waiting), Wait):
            pass
        assert sys.exc_info() == (None, None, None)
        waiting.close()  # the client has disconnected
        assert sys.exc_info() == (None, None, None)
    assert setup.run({"ping": 1})["ok"] == 1


def reply_after_wait(setup: Setup, write: Document, meanwhile: Document) -> Document:
    """The reply to a write to the collection `c` that has waited for a transaction. meanwhile: another command."""
    setup.insert({"_id": 1, "n": 1})
    assert setup.run({"insert": "d", "documents": [{"_id": 2}]})["n"] == 1
    assert setup.run({"insert": "c", "documents": [{"_id": 2, "n": 0}]}, **start(1))["n"] == 1
    assert setup.run({"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]}, **statement(1))["n"] == 1
    waiting = setup.steps(write)
    while not isinstance(next(waiting), Wait):
        pass
    assert setup.run({"abortTransaction": 1}, **statement(1), **{"$db": "admin"})["ok"]
    assert setup.run(meanwhile)["ok"]
    while setup.engine.drop_some(1000):
        pass
    return without_times(bson.decode(run_to_end(waiting)))


@pytest.mark.parametrize(
    "meanwhile", [{"drop": "c"}, {"renameCollection": "test.c", "to": "test.renamed", "$db": "admin"}]
)
@pytest.mark.parametrize(
    "write",
    [
        {"insert": "c", "documents": [{"_id": 2}]},
        {"insert": "c", "documents": [{"_id": 2}, {"_id": 3}]},
        {"update": "c", "updates": [{"q": {"_id": 2}, "u": {"$set": {"n": 5}}, "upsert": True}]},
        {"bulkWrite": 1, "ops": [{"insert": 0, "document": {"_id": 2}}], "nsInfo": [{"ns": "test.c"}], "$db": "admin"},
        {"aggregate": "d", "pipeline": [{"$merge": "c"}], "cursor": {}},
    ],
)
def test_insert_after_a_wait_goes_to_the_current_collection_of_that_name(
    setup: Setup, write: Document, meanwhile: Document
) -> None:
    reply = reply_after_wait(setup, write, meanwhile)
    assert reply["ok"] == 1 and "writeErrors" not in reply
    assert setup.ids() == [document["_id"] for document in write.get("documents", [{"_id": 2}])]


@pytest.mark.parametrize(
    "write",
    [
        {"update": "c", "updates": [{"q": {}, "u": {"$inc": {"n": 1}}}]},
        {"update": "c", "updates": [{"q": {}, "u": {"$inc": {"n": 1}}, "multi": True}]},
        {"delete": "c", "deletes": [{"q": {}, "limit": 1}]},
        {"delete": "c", "deletes": [{"q": {}, "limit": 0}]},
        {"findAndModify": "c", "query": {"n": {"$gt": 0}}, "update": {"$inc": {"n": 1}}},
    ],
)
def test_a_write_whose_collection_was_dropped_while_it_waited_says_so(setup: Setup, write: Document) -> None:
    reply = reply_after_wait(setup, write, {"drop": "c"})
    error = reply["writeErrors"][0] if "writeErrors" in reply else reply
    assert error["code"] == 175
    assert setup.ids() == []


@pytest.mark.parametrize(
    ("hindrance", "command"),
    [
        (
            {
                "configureFailPoint": "failCommand",
                "mode": "alwaysOn",
                "data": {"failCommands": ["insert"], "blockConnection": True, "blockTimeMS": 500},
            },
            {"insert": "c", "documents": [{"_id": 2}]},
        ),
        ({"fsync": 1, "lock": True}, {"insert": "c", "documents": [{"_id": 2}]}),
        ({"insert": "c", "documents": [{"_id": 3}], "$db": "test", **start(1)}, {"drop": "c"}),
    ],
)
def test_killing_a_session_ends_a_command_that_waits_to_begin(
    setup: Setup, hindrance: Document, command: Document
) -> None:
    setup.insert({"_id": 1})
    assert setup.run(hindrance, **{"$db": "admin", **hindrance})["ok"]
    other = {"id": Binary(bytes([1] * 16), 4)}
    waiting = setup.steps(command, lsid=other)
    assert isinstance(next(waiting), Wait)
    assert setup.run({"killSessions": [other]})["ok"]
    reply = bson.decode(run_to_end(waiting))
    assert (reply["ok"], reply["code"]) == (0, 11601)
    assert setup.stored() == 1


BUILD: Document = {"createIndexes": "c", "indexes": [{"key": {"k": 1}, "name": "k_1"}]}


def begin_build(setup: Setup, building: Steps[bytes]) -> None:
    """Goes on with the build until it has read some documents, but not all, however busy the machine is."""
    next(building)
    collection = setup.service.catalog.lookup("test", "c")
    assert collection is not None
    while collection.indexes[-1].built_through == 0:
        next(building)


def test_an_index_that_is_built_during_a_transaction_has_what_it_writes(setup: Setup) -> None:
    """The transaction notes no entries of an index that was not ready at its first write: its commit makes them."""
    setup.insert(*[{"_id": i, "k": i} for i in range(5000)])
    building = setup.steps(BUILD)
    begin_build(setup, building)
    deletes = [{"q": {"_id": 1}, "limit": 1}, {"q": {"_id": 4998}, "limit": 1}]
    updates = [{"q": {"_id": i}, "u": {"$set": {"k": [-i, "x"]}}} for i in (2, 4999)]
    assert setup.run({"delete": "c", "deletes": deletes}, **start(1))["n"] == 2
    assert setup.run({"update": "c", "updates": updates}, **statement(1))["n"] == 2
    assert setup.run({"insert": "c", "documents": [{"_id": "new", "k": -7}]}, **statement(1))["n"] == 1
    assert setup.run({"commitTransaction": 1}, **statement(1), **{"$db": "admin"})["ok"] == 1
    assert bson.decode(run_to_end(building))["ok"] == 1
    found = setup.run({"find": "c", "filter": {"k": {"$lt": 0}}, "hint": "k_1"})["cursor"]["firstBatch"]
    assert [document["_id"] for document in found] == [4999, "new", 2]
    assert setup.run({"count": "c", "query": {"k": {"$gte": 0}}, "hint": "k_1"})["n"] == 4996
    assert setup.run({"validate": "c"})["valid"]
    assert setup.ended


def test_a_unique_index_that_is_built_during_a_transaction_refuses_its_commit(setup: Setup) -> None:
    setup.insert(*[{"_id": i, "k": i} for i in range(5000)])
    [index] = BUILD["indexes"]
    building = setup.steps({**BUILD, "indexes": [{**index, "unique": True}]})
    begin_build(setup, building)
    assert setup.run({"insert": "c", "documents": [{"_id": "new", "k": 0}]}, **start(1))["n"] == 1
    reply = setup.run({"commitTransaction": 1}, **statement(1), **{"$db": "admin"})
    assert reply["code"] == 11000
    assert bson.decode(run_to_end(building))["ok"] == 1
    assert setup.run({"count": "c", "query": {"_id": "new"}})["n"] == 0
    assert setup.run({"validate": "c"})["valid"]
    assert setup.ended
