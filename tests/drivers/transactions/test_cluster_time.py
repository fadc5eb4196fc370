"""`$clusterTime` and `operationTime` of replies, causally consistent sessions, `$$CLUSTER_TIME`, afterClusterTime."""

from pathlib import Path
from typing import Any

import pymongo
import pytest
from bson import Binary, Int64, Timestamp
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

import mongottl
from tests.on_nodes import alone, of_replica_set, own_times

Client = pymongo.MongoClient[dict[str, Any]]


def cluster_time(reply: Any) -> Timestamp:
    document = reply["$clusterTime"]
    assert document["signature"] == {"hash": bytes(20), "keyId": 0}
    found: Timestamp = document["clusterTime"]
    assert reply["operationTime"] <= found
    return found


def test_every_reply_has_the_times(client: Client, database: Database[dict[str, Any]]) -> None:
    first = cluster_time(client.admin.command("ping"))
    assert cluster_time(database.command("insert", "c", documents=[{}])) > first
    for command in ("hello", "buildInfo", "serverStatus"):
        assert cluster_time(client.admin.command(command)) > first
    with pytest.raises(OperationFailure) as caught:
        client.admin.command("unknown")
    assert cluster_time(caught.value.details) > first


@own_times
def test_operation_time_grows_with_every_write_and_with_no_read(database: Database[dict[str, Any]]) -> None:
    def run(*command: Any, **fields: Any) -> Timestamp:
        found: Timestamp = database.command(*command, **fields)["operationTime"]
        return found

    times = [
        run("create", "c"),
        run("insert", "c", documents=[{"_id": 1}]),
        run("update", "c", updates=[{"q": {}, "u": {"$set": {"a": 1}}}]),
        run("findAndModify", "c", query={}, update={"$set": {"a": 2}}),
        run("createIndexes", "c", indexes=[{"key": {"a": 1}, "name": "a"}]),
        run("delete", "c", deletes=[{"q": {}, "limit": 0}]),
        run("drop", "c"),
    ]
    assert sorted(set(times)) == times
    assert run("find", "c") == run("ping") == times[-1]


@of_replica_set
def test_hello_has_the_time_of_the_last_write(database: Database[dict[str, Any]]) -> None:
    written = database.command("insert", "c", documents=[{"_id": 1}])["operationTime"]
    last_write = database.client.admin.command("hello")["lastWrite"]
    assert last_write["opTime"] == last_write["majorityOpTime"] == {"ts": written, "t": 1}


def test_causally_consistent_sessions(client: Client, database: Database[dict[str, Any]]) -> None:
    with client.start_session(causal_consistency=True) as session:
        for number in range(3):
            database.c.insert_one({"_id": number}, session=session)
            assert session.operation_time is not None
            assert database.c.find_one({"_id": number}, session=session) == {"_id": number}
        majority = database.get_collection("c", read_concern=ReadConcern("majority"))
        assert majority.count_documents({}, session=session) == 3
        assert sorted(majority.distinct("_id", session=session)) == [0, 1, 2]


def find_code(database: Database[dict[str, Any]], **concern: Any) -> int:
    try:
        database.command("find", "c", readConcern=concern)
    except OperationFailure as error:
        assert error.code is not None
        return error.code
    return 0


def test_read_concern_after_a_time(database: Database[dict[str, Any]]) -> None:
    now = database.command("insert", "c", documents=[{}])["operationTime"]
    future = Timestamp(now.time + 1000, 1)
    for level in ("local", "majority"):
        assert find_code(database, level=level, afterClusterTime=now) == 0
        assert find_code(database, level=level, afterClusterTime=future) == 72
    assert find_code(database, afterClusterTime=now) == 0
    assert find_code(database, level="available", afterClusterTime=now) == 72
    assert find_code(database, level="linearizable", afterClusterTime=now) == 72
    assert find_code(database, afterClusterTime=Timestamp(0, 0)) == 72
    assert find_code(database, level="local", atClusterTime=now) == 72
    assert find_code(database, level="snapshot", atClusterTime=now, afterClusterTime=now) == 72


def bring_time(session: ClientSession, now: Timestamp) -> Timestamp:
    """Has the session send a cluster time long after now, as if learned elsewhere; that time."""
    time = Timestamp(now.time + 1000, 1)
    signature = {"hash": Binary(bytes(20)), "keyId": Int64(0)}
    session.advance_cluster_time({"clusterTime": time, "signature": signature})
    return time


@own_times
def test_a_time_that_another_client_brings_is_reached() -> None:
    """The session of one client may read what another has learned from elsewhere: mongod writes a no-op then."""
    with mongottl.start_server() as server, Client(server.uri) as client, client.start_session() as session:
        now = client.admin.command("ping")["operationTime"]
        future = bring_time(session, now)
        reply = client.admin.command("ping", session=session)
        assert cluster_time(reply) == future
        assert reply["operationTime"] == now
        reply = client.t.command("find", "c", readConcern={"afterClusterTime": future})
        assert reply["operationTime"] > future


def test_a_time_that_is_far_ahead_is_refused() -> None:
    """Unless clocks can be moved of several servers with one store, of which one then knows it before the others."""
    with (
        mongottl.start_server(enable_test_commands=False) as server,
        Client(server.uri) as client,
        client.start_session() as session,
    ):
        now = client.admin.command("ping")["operationTime"]
        signature = {"hash": Binary(bytes(20)), "keyId": Int64(0)}
        session.advance_cluster_time({"clusterTime": Timestamp(now.time + 32_000_000, 1), "signature": signature})
        with pytest.raises(OperationFailure) as caught:
            client.admin.command("ping", session=session)
        assert caught.value.code == 205


def test_the_clock_may_stand_still_or_be_set_back(tmp_path: Path) -> None:
    with mongottl.start_server(data_dir=str(tmp_path)) as server, Client(server.uri) as client:
        times = [client.admin.command("ping")["operationTime"]]
        for seconds in (0, 86_400, -172_800, 3_600):
            server.clock.advance(seconds)
            for number in range(3):
                reply = client.t.command("insert", "c", documents=[{"a": number}])
                times.append(reply["operationTime"])
    with mongottl.start_server(data_dir=str(tmp_path)) as server, Client(server.uri) as client:
        times.append(client.admin.command("ping")["operationTime"])
        times.append(client.t.command("insert", "c", documents=[{}])["operationTime"])
    assert sorted(set(times)) == times


@alone
def test_the_time_of_an_idle_server_advances() -> None:
    with mongottl.start_server() as server, Client(server.uri) as client:
        first = client.t.command("insert", "c", documents=[{}])["operationTime"]  # the clock stands still from here on
        server.clock.advance(9)
        assert client.admin.command("ping")["operationTime"] == first
        server.clock.advance(2)
        assert client.admin.command("ping")["operationTime"] > first
        assert (
            client.admin.command({"getParameter": 1, "periodicNoopIntervalSecs": 1})["periodicNoopIntervalSecs"] == 10
        )


def shown(database: Database[dict[str, Any]], pipeline: list[Any]) -> list[list[Timestamp]]:
    [found] = database.c.aggregate(pipeline)
    times: list[list[Timestamp]] = found["times"]
    return times


def test_cluster_time_in_expressions(database: Database[dict[str, Any]]) -> None:
    written = database.command("insert", "c", documents=[{"_id": 1}])["operationTime"]
    view = {"$set": {"view": "$$CLUSTER_TIME"}}
    database.command("create", "v", viewOn="c", pipeline=[view])
    inner = [{"$project": {"_id": 0, "t": "$$CLUSTER_TIME"}}]
    pipeline: list[Any] = [
        {"$lookup": {"from": "c", "pipeline": inner, "as": "looked"}},
        {"$lookup": {"from": "v", "let": {"x": 1}, "pipeline": inner, "as": "viewed"}},
        {"$unionWith": {"coll": "c", "pipeline": [*inner, {"$project": {"looked": ["$$ROOT"], "viewed": ["$$ROOT"]}}]}},
        {"$facet": {"all": []}},
        {"$project": {"times": {"$concatArrays": ["$all.looked.t", "$all.viewed.t", [["$$CLUSTER_TIME"]]]}}},
    ]
    times = {at for group in shown(database, pipeline) for at in group}
    assert len(times) == 1
    assert times.pop() >= written
    later = database.command("insert", "c", documents=[{"_id": 2}])["operationTime"]
    viewed = database.v.find_one({"_id": 1})
    assert viewed is not None and viewed["view"] >= later
    assert database.c.count_documents({"$expr": {"$gte": ["$$CLUSTER_TIME", later]}}) == 2


def test_the_cluster_time_in_expressions_is_not_before_what_the_client_has_seen() -> None:
    with mongottl.start_server() as server, Client(server.uri) as client, client.start_session() as session:
        later = bring_time(session, client.admin.command("ping")["operationTime"])
        pipeline: list[Any] = [{"$documents": [{}]}, {"$set": {"at": "$$CLUSTER_TIME"}}]
        assert client.t.aggregate(pipeline, session=session).to_list() == [{"at": later}]


def test_each_operation_of_bulk_write_has_its_own_cluster_time(
    client: Client, database: Database[dict[str, Any]]
) -> None:
    database.c.insert_many([{"_id": number} for number in range(3)])
    operations = [
        {"update": 0, "filter": {"_id": number}, "updateMods": [{"$set": {"t": "$$CLUSTER_TIME"}}]}
        for number in range(3)
    ]
    client.admin.command("bulkWrite", ops=operations, nsInfo=[{"ns": f"{database.name}.c"}])
    times = [document["t"] for document in database.c.find(sort=[("_id", 1)])]
    assert sorted(set(times)) == times
