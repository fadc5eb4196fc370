"""saveState, restoreState, resetState and dropState, and their counterparts in Python, over real sockets."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pymongo
import pytest
from bson import Int64
from pymongo.errors import BulkWriteError, OperationFailure, PyMongoError
from pymongo.operations import IndexModel

import mongottl
from mongottl.errors import CommandError
from tests.drivers.wire_client import WireClient
from tests.on_store import needs_states
from tests.waiting import until

pytestmark = needs_states

Documents = dict[str, Any]
Client = pymongo.MongoClient[Documents]


@pytest.fixture(scope="module")
def saving() -> Iterator[mongottl.RunningServer]:
    """A server in memory for the tests of this module."""
    with mongottl.start_server() as running:
        yield running


@pytest.fixture
def own(saving: mongottl.RunningServer) -> Iterator[Client]:
    """A client of that server, which is reset after the test and has met no InternalError."""
    with Client(saving.uri) as client:
        saving.clock.reset()
        before = client.admin.command("serverStatus")["asserts"]["internal"]
        yield client
        saving.reset()
        assert client.admin.command("serverStatus")["asserts"]["internal"] == before


def refusal(call: Callable[[], object]) -> OperationFailure:
    with pytest.raises(OperationFailure) as caught:
        call()
    return caught.value


def everything(client: Client) -> Documents:
    """Documents, collections with their options and indexes, of all databases with data."""
    seen: Documents = {}
    for name in client.list_database_names():
        if name in ("admin", "config", "local"):
            continue
        for collection in client[name].list_collections():
            namespace = f"{name}.{collection['name']}"
            if collection["type"] == "view":
                seen[namespace] = (collection["options"], None, list(client[name][collection["name"]].find()))
                continue
            target = client[name][collection["name"]]
            documents = list(target.find().hint([("$natural", 1)]))
            for index in target.list_indexes():
                keys = [(path, direction) for path, direction in index["key"].items() if path != "_ts"]
                if keys:
                    assert len(list(target.find().hint(index["name"]))) == len(documents)
            assert target.estimated_document_count() == len(documents)
            described = (collection["options"], collection["info"]["uuid"])
            seen[namespace] = (described, list(target.list_indexes()), documents)
    return seen


def fill(client: Client) -> None:
    client.shop.orders.insert_many([{"_id": n, "customer": n % 3, "tags": [n, n + 1]} for n in range(50)])
    client.shop.orders.create_indexes([IndexModel("customer"), IndexModel("tags", unique=False)])
    client.shop.create_collection("last", capped=True, size=4096, max=5)
    client.shop["last"].insert_many([{"_id": n} for n in range(7)])
    client.shop.create_collection("cheap", viewOn="orders", pipeline=[{"$match": {"customer": 1}}])
    client.crm.people.create_index("_ts", expireAfterSeconds=60)
    client.crm.people.insert_many([{"_id": 1}, {"_id": 2, "ttl": 10}, {"_id": 3, "ttl": -1}])


def spoil(client: Client) -> None:
    """Changes whatever can be changed."""
    client.shop.orders.delete_many({"customer": 0})
    client.shop.orders.update_many({}, {"$set": {"customer": "x", "tags": 1}})
    client.shop.orders.insert_many([{"_id": f"new {n}", "a": [{"b": n}]} for n in range(300)])
    client.shop.orders.drop_index("customer_1")
    client.shop.orders.create_index("a.b")
    client.shop.command("collMod", "orders", validator={"a": 1}, validationLevel="off")
    client.shop["last"].insert_many([{"_id": f"new {n}"} for n in range(7)])
    client.shop.cheap.drop()
    client.shop["last"].rename("first")
    client.drop_database("crm")
    client.crm.people.insert_one({"_id": "another"})
    client.other.things.insert_one({})


def test_everything_is_as_it_was(own: Client, saving: mongottl.RunningServer) -> None:
    fill(own)
    before = everything(own)
    assert own.admin.command("saveState", "fixtures")["now"] is not None
    for _ in range(3):
        spoil(own)
        assert everything(own) != before
        own.admin.command("restoreState", "fixtures")
        assert everything(own) == before
    # What is written next continues as if nothing had been.
    own.shop["last"].insert_one({"_id": 7})
    assert [document["_id"] for document in own.shop["last"].find()] == [3, 4, 5, 6, 7]
    assert own.shop.command("validate", "orders", full=True)["valid"]


def test_several_states_are_kept_by_name(own: Client) -> None:
    for name in ("a", "b"):
        own.shop.things.insert_one({"_id": name})
        own.admin.command("saveState", name)
    own.shop.things.drop()
    own.admin.command("restoreState", "a")
    assert own.shop.things.distinct("_id") == ["a"]
    own.admin.command("restoreState", "b")
    assert own.shop.things.distinct("_id") == ["a", "b"]
    own.shop.things.insert_one({"_id": "c"})
    own.admin.command("saveState", "a")
    own.admin.command("restoreState", "b")
    own.admin.command("restoreState", "a")
    assert own.shop.things.distinct("_id") == ["a", "b", "c"]
    own.admin.command("dropState", "a")
    error = refusal(lambda: own.admin.command("restoreState", "a"))
    assert (error.code, "no state was saved as 'a': there are 'b'" in str(error)) == (4, True)
    own.admin.command("dropState", "b")
    assert refusal(lambda: own.admin.command("dropState", "b")).code == 4


def test_states_are_forgotten(own: Client, saving: mongottl.RunningServer) -> None:
    before = saving.states
    saving.save("a")
    own.admin.command("saveState", "b")
    assert set(saving.states) - set(before) == {"a", "b"}
    saving.drop("b")
    own.admin.command("dropState", "a")
    assert saving.states == before
    with pytest.raises(CommandError, match="no state was saved as 'a'"):
        saving.drop("a")


def test_names_are_checked(own: Client) -> None:
    assert refusal(lambda: own.admin.command("saveState", 1)).code == 14
    assert refusal(lambda: own.admin.command("saveState", "")).code == 2
    assert refusal(lambda: own.shop.command("saveState", "x")).code == 13
    assert refusal(lambda: own.admin.command("restoreState", None)).code == 14


def test_expiry_is_exact_after_a_restore(own: Client, saving: mongottl.RunningServer) -> None:
    fill(own)
    saving.save()
    for _ in range(2):
        assert saving.clock.advance(9) == 0
        assert saving.clock.advance(1) == 1
        assert saving.clock.advance(50) == 1
        own.crm.people.insert_one({"_id": "later", "ttl": 5})
        assert own.crm.people.distinct("_id") == [3, "later"]
        was = saving.clock.now()
        saving.restore()
        assert saving.clock.now() == was - timedelta(seconds=60)
        assert own.crm.people.distinct("_id") == [1, 2, 3]


def test_date_ttl_indexes_purge_after_a_restore(own: Client, saving: mongottl.RunningServer) -> None:
    now = saving.clock.now().replace(microsecond=0)
    own.shop.carts.create_index("at", expireAfterSeconds=5)
    own.shop.carts.insert_many([{"_id": n, "at": now + timedelta(seconds=n)} for n in range(3)])
    saving.save()
    own.shop.carts.drop()
    saving.restore()
    assert [saving.clock.advance(n) for n in (4, 1, 1, 1, 1)] == [0, 1, 1, 1, 0]


def test_the_clock_runs_again_if_it_ran(own: Client, saving: mongottl.RunningServer) -> None:
    saving.clock.freeze(False)
    saving.save()
    saving.clock.advance(1_000_000)
    saving.clock.reset()
    saving.restore()
    first = saving.clock.now()
    assert abs(first.timestamp() - time.time()) < 600
    until(lambda: saving.clock.now() > first)


def test_cluster_time_does_not_go_back(own: Client, saving: mongottl.RunningServer) -> None:
    saving.save()
    saving.clock.advance(3_000)
    own.shop.things.insert_one({})
    before = own.admin.command("ping")
    saving.restore()
    after = own.admin.command("ping")
    assert after["operationTime"] > before["operationTime"]
    assert after["$clusterTime"]["clusterTime"] > before["$clusterTime"]["clusterTime"]
    with own.start_session(causal_consistency=True) as session:
        session.advance_operation_time(before["operationTime"])
        session.advance_cluster_time(before["$clusterTime"])
        assert own.shop.things.count_documents({}, session=session) == 0


def test_reset_is_the_start(own: Client, saving: mongottl.RunningServer) -> None:
    names = own.list_database_names()
    saving.reset()
    began = saving.clock.now()
    saving.clock.freeze(False)
    fill(own)
    own.admin.command("createUser", "ann", pwd="x", roles=[])
    own.admin.command("setParameter", 1, ttlMonitorSleepSecs=7, transactionLifetimeLimitSeconds=9, logLevel=2)
    own.admin.command("setDefaultRWConcern", 1, defaultWriteConcern={"w": 1})
    own.admin.command("setClusterParameter", {"defaultMaxTimeMS": {"readOperations": Int64(5000)}})
    own.shop.command("profile", 2)
    own.admin.command(
        "configureFailPoint", "failCommand", mode="alwaysOn", data={"failCommands": ["find"], "errorCode": 96}
    )
    saving.clock.advance(10**9)
    own.admin.command("resetState", 1)
    assert own.list_database_names() == names
    assert own.shop.things.find_one() is None
    assert own.admin.command("usersInfo", 1)["users"] == []
    parameters = own.admin.command(
        "getParameter", 1, ttlMonitorSleepSecs=1, transactionLifetimeLimitSeconds=1, logLevel=1
    )
    assert [parameters[name] for name in ("ttlMonitorSleepSecs", "transactionLifetimeLimitSeconds", "logLevel")] == [
        1,
        60,
        0,
    ]
    assert "defaultWriteConcern" not in own.admin.command("getDefaultRWConcern") or (
        own.admin.command("getDefaultRWConcern")["defaultWriteConcernSource"] == "implicit"
    )
    cluster = own.admin.command("getClusterParameter", "defaultMaxTimeMS")["clusterParameters"][0]
    assert cluster["readOperations"] == 0
    assert own.shop.command("profile", -1)["was"] == 0
    assert (saving.clock.now(), saving.clock.frozen) == (began, True)


def test_settings_are_restored(own: Client, saving: mongottl.RunningServer) -> None:
    own.shop.things.insert_one({"_id": 1})
    own.admin.command("setParameter", 1, ttlMonitorSleepSecs=7)
    own.admin.command(
        "configureFailPoint", "failCommand", mode={"times": 2}, data={"failCommands": ["find"], "errorCode": 96}
    )
    own.shop.command("planCacheSetFilter", "things", query={"a": 1}, indexes=["a_1"])
    own.shop.command("profile", 1, slowms=33)
    saving.save()
    assert refusal(lambda: own.shop.things.find_one()).code == 96
    own.admin.command("configureFailPoint", "failCommand", mode="off")
    own.shop.command("planCacheClearFilters", "things")
    own.shop.command("profile", 0, slowms=99)
    own.admin.command("setParameter", 1, ttlMonitorSleepSecs=1)
    saving.restore()
    assert own.admin.command("getParameter", 1, ttlMonitorSleepSecs=1)["ttlMonitorSleepSecs"] == 7
    assert len(own.shop.command("planCacheListFilters", "things")["filters"]) == 1
    was = own.shop.command("profile", 0)
    assert (was["was"], was["slowms"]) == (1, 33)
    for _ in range(2):
        assert refusal(lambda: own.shop.things.find_one()).code == 96
    assert own.shop.things.find_one() == {"_id": 1}


@pytest.mark.parametrize("name", ["", None, 5, b"state"])
def test_names_that_are_none(saving: mongottl.RunningServer, name: Any) -> None:
    for use in (saving.save, saving.restore):
        with pytest.raises(ValueError, match="the name of a state is needed"):
            use(name)


def test_blocks_that_leave_nothing(own: Client, saving: mongottl.RunningServer) -> None:
    fill(own)
    before = everything(own)
    with saving.unchanged():
        spoil(own)
        changed = everything(own)
        with saving.unchanged():
            own.drop_database("shop")
        assert everything(own) == changed
        with pytest.raises(ZeroDivisionError), saving.unchanged():
            own.drop_database("shop")
            raise ZeroDivisionError
        assert everything(own) == changed
    assert everything(own) == before
    with pytest.raises(CommandError, match="no state was saved as 'unchanged 1': there"):
        saving.restore("unchanged 1")


def test_cursors_of_before_say_why_they_have_ended(own: Client, saving: mongottl.RunningServer) -> None:
    fill(own)
    saving.save()
    cursors: list[Iterator[Documents]] = [
        own.shop.orders.find().batch_size(5),
        own.shop.orders.aggregate([{"$sort": {"customer": 1}}], batchSize=5),
    ]
    for cursor in cursors:
        next(cursor)
    with own.start_session(snapshot=True) as session:
        snapshot = own.shop.orders.find(session=session).batch_size(5)
        next(snapshot)
        saving.restore()
        assert refusal(lambda: list(snapshot)).code == 239
        for cursor in cursors:
            error = refusal(lambda cursor=cursor: list(cursor))  # type: ignore[misc]
            assert (error.code, "a saved state of the server was restored" in str(error)) == (175, True)
    assert own.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"] == 0


def test_change_streams_of_before_end(own: Client, saving: mongottl.RunningServer) -> None:
    own.shop.things.insert_one({"_id": 0})
    saving.save()
    with own.shop.things.watch() as stream:
        own.shop.things.insert_one({"_id": 1})
        token = next(stream)["_id"]
        operation_time = own.admin.command("ping")["operationTime"]
        behind = stream.resume_token
        saving.restore()
        error = refusal(lambda: next(stream))
        assert (error.code, "a saved state of the server was restored" in str(error)) == (286, True)
        assert error.has_error_label("NonResumableChangeStreamError")
    for options in ({"resume_after": token}, {"start_after": behind}, {"start_at_operation_time": operation_time}):
        assert refusal(lambda options=options: own.shop.watch(**options)).code == 286  # type: ignore[misc]
    with own.shop.things.watch() as stream:
        own.shop.things.insert_one({"_id": 1})
        assert next(stream)["documentKey"] == {"_id": 1}
        token = stream.resume_token
    now = own.admin.command("ping")["operationTime"]
    own.shop.things.insert_one({"_id": 2})
    for options in ({"resume_after": token}, {"start_at_operation_time": now}):
        with own.shop.things.watch(**options) as stream:
            assert [next(stream)["documentKey"]["_id"]][-1] in (1, 2)
    assert [entry["o"] for entry in own.local["oplog.rs"].find({"op": "n"})] == [
        {"msg": "a saved state of the server was restored"}
    ]


def test_transactions_of_before_are_aborted(own: Client, saving: mongottl.RunningServer) -> None:
    own.shop.things.insert_one({"_id": 1, "n": 0})
    saving.save()
    with own.start_session() as session:
        session.start_transaction()
        own.shop.things.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
        saving.restore()
        error = refusal(lambda: own.shop.things.find_one({}, session=session))
        assert (error.code, "a saved state of the server was restored" in str(error)) == (251, True)
        assert error.has_error_label("TransientTransactionError")
        session.abort_transaction()
        # A plain write does not wait for it, and the session's next transaction works.
        own.shop.things.update_one({"_id": 1}, {"$inc": {"n": 10}})
        with session.start_transaction():
            own.shop.things.update_one({"_id": 1}, {"$inc": {"n": 5}}, session=session)
        assert own.shop.things.find_one() == {"_id": 1, "n": 15}
        # The commit of a transaction that was committed before is not in the state.
        saving.restore()
        error = refusal(session.commit_transaction)
        assert (error.code, error.has_error_label("TransientTransactionError")) == (251, True)


def test_retried_writes_of_before_are_carried_out_again(own: Client, saving: mongottl.RunningServer) -> None:
    saving.save()
    with own.start_session() as session:
        insert = {"insert": "things", "documents": [{"_id": 1}], "lsid": session.session_id, "txnNumber": Int64(5)}
        assert own.shop.command(insert)["n"] == 1
        assert own.shop.command(insert)["retriedStmtIds"] == [0]
        saving.restore()
        reply = own.shop.command(insert)
        assert (reply["n"], "retriedStmtIds" in reply) == (1, False)
        assert own.shop.things.count_documents({}) == 1
        assert refusal(lambda: own.shop.command({**insert, "txnNumber": Int64(4)})).code == 225
        assert own.shop.command({**insert, "documents": [{"_id": 2}], "txnNumber": Int64(6)})["n"] == 1


def test_a_wait_for_documents_ends(own: Client, saving: mongottl.RunningServer) -> None:
    own.shop.create_collection("log", capped=True, size=4096)
    own.shop.log.insert_one({"_id": 0})
    saving.save()
    connection = WireClient(saving.uri)
    found = connection.command({"find": "log", "tailable": True, "awaitData": True}, "shop")["cursor"]
    changes = own.shop.log.watch(max_await_time_ms=3_600_000)
    errors: list[PyMongoError] = []
    waiting = threading.Thread(target=lambda: errors.append(refusal(lambda: next(changes))))
    waiting.start()
    connection.send({"getMore": Int64(found["id"]), "collection": "log", "maxTimeMS": 3_600_000}, "shop")
    while own.admin.command("serverStatus")["metrics"]["cursor"]["open"]["pinned"] < 2:
        pass  # each look waits for the server's answer
    saving.restore()
    reply = connection.reply()
    waiting.join()
    connection.close()
    assert (reply["code"], "a saved state of the server was restored" in reply["errmsg"]) == (175, True)
    assert [error.code for error in errors if isinstance(error, OperationFailure)] == [286]
    changes.close()


MANY = 150_000

# True of each document, and slow: what is under way takes seconds, also compiled, wherever it can hold an expression.
SLOW: Documents = {
    "$lte": [
        0,
        {
            "$reduce": {
                "input": {"$range": [0, {"$strLenBytes": "$text"}]},
                "initialValue": 0,
                "in": {"$add": ["$$value", "$$this"]},
            }
        },
    ]
}
UNDER_WAY: dict[str, Documents] = {
    "an index build": {"createIndexes": "many", "indexes": [{"key": {"n": 1, "text": 1}, "name": "built"}]},
    "$out": {"aggregate": "many", "pipeline": [{"$addFields": {"x": SLOW}}, {"$out": "copy"}], "cursor": {}},
    "$merge": {"aggregate": "many", "pipeline": [{"$set": {"n": SLOW}}, {"$merge": "many"}], "cursor": {}},
    "an update": {"update": "many", "updates": [{"q": {"$expr": SLOW}, "u": {"$inc": {"n": 1}}, "multi": True}]},
    "a deletion": {"delete": "many", "deletes": [{"q": {"$expr": SLOW}, "limit": 0}]},
    "a copy": {"convertToCapped": "many", "size": 1 << 30},
    "a scan": {"aggregate": "many", "pipeline": [{"$group": {"_id": SLOW, "t": {"$max": "$text"}}}], "cursor": {}},
}


# The server shares the processor with its client, so a restore may come when the work has just ended: then once more.
ATTEMPTS = 20


@pytest.fixture
def taking_turns() -> Iterator[None]:
    """Client and server are threads of this process, and the one that runs lets the other in after this time. Several
    times 5 ms, Python's default, pass until the server has a request of the client: as much as some work takes."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("taking_turns")
@pytest.mark.parametrize("what", UNDER_WAY)
def test_restoring_a_state_ends_running_commands_without_a_trace(
    own: Client, saving: mongottl.RunningServer, what: str
) -> None:
    command = UNDER_WAY[what]
    own.shop.many.insert_many([{"_id": n, "n": n, "text": "some text " * 10} for n in range(MANY)])
    saving.save()
    before = everything(own)
    name = next(iter(command))
    running: list[Documents] = [{"$currentOp": {}}, {"$match": {f"command.{name}": "many"}}]
    reply: Documents = {}
    for _ in range(ATTEMPTS):
        connection = WireClient(saving.uri)
        connection.send(command, "shop")
        while not connection.has_reply() and not list(own.admin.aggregate(running)):
            pass
        saving.restore()
        reply = connection.reply()
        connection.close()
        assert everything(own) == before
        if not reply["ok"]:
            break
    assert reply.get("code") == 11601, reply
    assert "a saved state of the server was restored" in reply["errmsg"]
    assert own.shop.command("validate", "many", full=True)["valid"]


@pytest.mark.usefixtures("taking_turns")
def test_a_purge_that_is_under_way_stops(own: Client, saving: mongottl.RunningServer) -> None:
    own.shop.many.create_index("_ts", expireAfterSeconds=10)
    own.shop.many.insert_many([{"_id": n} for n in range(MANY)])
    saving.save()
    reply: Documents = {}
    for _ in range(ATTEMPTS):
        before = own.admin.command("serverStatus")["metrics"]["ttl"]["deletedDocuments"]
        connection = WireClient(saving.uri)
        connection.send({"advanceClock": 11}, "admin")
        while own.admin.command("serverStatus")["metrics"]["ttl"]["deletedDocuments"] == before:
            pass
        saving.restore()
        reply = connection.reply()
        connection.close()
        assert own.shop.many.count_documents({}) == MANY
        if not reply["ok"]:
            break
    assert reply.get("code") == 11601, reply
    assert saving.clock.advance(9) == 0
    assert saving.clock.advance(1) == MANY


def test_a_state_that_is_saved_during_a_purge_purges_the_rest(own: Client, saving: mongottl.RunningServer) -> None:
    own.shop.many.create_index("_ts", expireAfterSeconds=10)
    own.shop.many.insert_many([{"_id": n} for n in range(20_000)])
    before = own.admin.command("serverStatus")["metrics"]["ttl"]["deletedDocuments"]
    with Client(saving.uri) as other:
        thread = threading.Thread(target=lambda: other.admin.command("advanceClock", 11))
        thread.start()
        while own.admin.command("serverStatus")["metrics"]["ttl"]["deletedDocuments"] == before:
            pass
        saving.save()
        thread.join()
    assert own.shop.command("dbStats")["objects"] == 0
    saving.restore()
    assert own.shop.many.count_documents({}) == 0
    saving.clock.advance(0)
    assert own.shop.command("collStats", "many")["count"] == 0


def test_connections_go_on(own: Client, saving: mongottl.RunningServer) -> None:
    """The `hello` with which drivers wait for changes of the topology is not ended, and other commands wait."""
    monitor = WireClient(saving.uri)
    version = monitor.command({"hello": 1}, "admin")["topologyVersion"]
    monitor.send({"hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 300}, "admin")
    saving.save()
    for _ in range(20):
        saving.restore()
        own.shop.things.insert_one({"_id": 1})
    assert monitor.reply()["ok"] == 1.0
    monitor.close()


def test_a_restore_during_restores(own: Client, saving: mongottl.RunningServer) -> None:
    """Four clients insert while another restores: after each restore there is what was saved, and what came later."""
    own.shop.things.insert_many([{"_id": n} for n in range(100)])
    own.shop.things.create_index("by")
    saving.save()
    ends = threading.Event()
    wrong: list[BaseException] = []

    def hammer(name: str) -> None:
        try:
            with Client(saving.uri) as client:
                things = client.shop.things
                while not ends.is_set():
                    try:
                        things.insert_many([{"by": name, "n": n} for n in range(7)])
                        things.update_many({"by": name}, {"$inc": {"n": 1}})
                        assert things.count_documents({"_id": {"$lt": 100}}) == 100
                        list(things.find({"by": name}).batch_size(3))
                        things.delete_many({"by": name})
                        with client.start_session() as session, session.start_transaction():
                            things.insert_one({"by": name}, session=session)
                            things.update_one({"_id": 5}, {"$set": {"by": name}}, session=session)
                    except OperationFailure as error:
                        if error.code not in (11601, 175, 251, 112):
                            raise
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=hammer, args=(f"hammer {n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(150):
        saving.restore()
    ends.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert own.shop.command("validate", "things", full=True)["valid"]
    saving.restore()
    assert list(own.shop.things.find()) == [{"_id": n} for n in range(100)]


def test_several_threads_save_and_restore(own: Client, saving: mongottl.RunningServer) -> None:
    own.shop.things.insert_one({"_id": 0})
    saving.save()
    wrong: list[BaseException] = []

    def repeat(action: Callable[[], object]) -> None:
        try:
            for _ in range(60):
                action()
        except BaseException as error:
            wrong.append(error)

    def block() -> None:
        with saving.unchanged():
            own.shop.things.estimated_document_count()

    actions = [saving.save, saving.restore, saving.restore, saving.reset, block]
    threads = [threading.Thread(target=repeat, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [error for error in wrong if not isinstance(error, OperationFailure)] == []
    assert own.shop.things.count_documents({}) <= 1


def test_users_are_restored() -> None:
    with mongottl.start_server(auth=True, user="root", password="secret") as server, Client(server.uri) as root:
        root.admin.command("createUser", "ann", pwd="a", roles=[{"role": "readWrite", "db": "shop"}])
        server.save()
        with Client(f"mongodb://ann:a@127.0.0.1:{server.port}") as ann:
            ann.shop.things.insert_one({"_id": 1})
            root.admin.command("updateUser", "ann", roles=[])
            assert refusal(lambda: ann.shop.things.find_one()).code == 13
            server.restore()
            assert ann.shop.things.find_one() is None
            assert refusal(lambda: ann.admin.command("restoreState", "default")).code == 13
            server.reset()
            assert refusal(lambda: ann.shop.things.find_one()).code == 13
        assert [user["user"] for user in root.admin.command("usersInfo", 1)["users"]] == ["root"]


def test_the_account_of_cosmos_db_is_restored() -> None:
    with mongottl.start_server(dialect="cosmos") as server, Client(server.uri) as client:
        client.shop.command({"customAction": "CreateDatabase", "offerThroughput": 1000})
        server.save()
        client.admin.command("configureCosmos", {"capabilities": ["EnableMongo16MBDocumentSupport"]})
        client.shop.command({"customAction": "UpdateDatabase", "offerThroughput": 2000})
        client.other.command({"customAction": "CreateDatabase"})
        server.restore()
        assert client.admin.command("configureCosmos", {})["was"]["capabilities"] == []
        assert client.shop.command({"customAction": "GetDatabase"})["provisionedThroughput"] == 1000
        assert refusal(lambda: client.other.command({"customAction": "GetDatabase"})).code == 26
        server.reset()
        assert refusal(lambda: client.shop.command({"customAction": "GetDatabase"})).code == 26


def test_the_budgets_of_cosmos_db_are_restored() -> None:
    """A test that uses up the second of a clock that stands still leaves the next test what there was before it."""
    with mongottl.start_server(dialect="cosmos", cosmos_throughput="enforced") as server, Client(server.uri) as client:
        orders = client.shop.orders
        for restore in (server.save, server.restore, server.reset):
            restore()  # 37 × 11 = 407, of 400
            with pytest.raises(BulkWriteError) as caught:
                orders.insert_many([{"_id": n, "filler": "x" * 1024} for n in range(100)])
            assert caught.value.details["nInserted"] == 37
            assert refusal(orders.find_one).code == 16500
        assert server.request_units().requests == 6


def test_a_server_with_files_says_that_it_cannot(tmp_path: Any) -> None:
    with mongottl.start_server(data_dir=str(tmp_path)) as server, Client(server.uri) as client:
        for command, value in (("saveState", "x"), ("restoreState", "x"), ("resetState", 1)):
            error = refusal(lambda command=command, value=value: client.admin.command(command, value))  # type: ignore[misc]
            assert error.code == 20
            assert f"{command} needs a server that keeps its data in memory" in str(error)
        for call in (server.save, server.restore, server.reset):
            with pytest.raises(CommandError, match="keeps its data in memory"):
                call()
