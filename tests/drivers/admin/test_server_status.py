"""The sections of serverStatus that monitoring agents read, and the paths at which they read them."""

import threading
from typing import Any

import pymongo
import pytest
from bson import Int64, Timestamp
from pymongo.database import Database
from pymongo.errors import OperationFailure

import mongottl
from mongottl.config import ServerConfig
from tests.drivers.refusals import refusal
from tests.on_nodes import of_replica_set, own_figures

pytestmark = own_figures

Documents = dict[str, Any]
Client = pymongo.MongoClient[Documents]

# What Datadog's integration and the exporter for Prometheus read, but for what WiredTiger and tcmalloc count.
PATHS = """
    asserts.msg asserts.regular asserts.rollovers asserts.tripwire asserts.user asserts.warning
    connections.active connections.available connections.current connections.totalCreated
    extra_info.page_faults extra_info.user_time_us extra_info.system_time_us
    globalLock.activeClients.readers globalLock.activeClients.total globalLock.activeClients.writers
    globalLock.currentQueue.readers globalLock.currentQueue.total globalLock.currentQueue.writers globalLock.totalTime
    mem.bits mem.resident mem.virtual
    metrics.commands.find.failed metrics.commands.find.total metrics.commands.insert.total
    metrics.cursor.open.noTimeout metrics.cursor.open.pinned metrics.cursor.open.total metrics.cursor.timedOut
    metrics.document.deleted metrics.document.inserted metrics.document.returned metrics.document.updated
    metrics.getLastError.wtime.num metrics.getLastError.wtime.totalMillis metrics.getLastError.wtimeouts
    metrics.operation.writeConflicts metrics.ttl.deletedDocuments metrics.ttl.passes
    network.bytesIn network.bytesOut network.numRequests
    opLatencies.commands.latency opLatencies.commands.ops opLatencies.reads.latency opLatencies.reads.ops
    opLatencies.writes.latency opLatencies.writes.ops
    opcounters.command opcounters.delete opcounters.getmore opcounters.insert opcounters.query opcounters.update
    opcountersRepl.insert transactions.totalStarted uptime uptimeMillis
""".split()


def status(client: Client, **sections: Any) -> Documents:
    return client.admin.command("serverStatus", **sections)


def at(document: Documents, path: str) -> Any:
    value: Any = document
    for name in path.split("."):
        value = value[name]
    return value


def test_agents_find_numbers_at_their_paths(database: Database[Documents], client: Client) -> None:
    database.c.insert_one({"_id": 1})
    database.c.find_one()
    found = status(client)
    for path in PATHS:
        assert isinstance(at(found, path), (int, float)), path
        assert at(found, path) >= 0, path
    assert found["mem"]["virtual"] >= found["mem"]["resident"] > 0
    assert found["globalLock"]["activeClients"]["total"] >= 1
    assert found["defaultRWConcern"]["defaultWriteConcern"]["w"] == "majority"
    assert found["storageEngine"]["supportsSnapshotReadConcern"] is True


def test_diagnostic_data_has_everything_at_once(client: Client) -> None:
    data = client.admin.command("getDiagnosticData")["data"]
    assert data["serverStatus"]["opcounters"].keys() == status(client)["opcounters"].keys()
    assert data["replSetGetStatus"]["members"][0]["stateStr"] == "PRIMARY"
    assert data["local.oplog.rs.stats"]["maxSize"] > 0
    times = [data["start"], data["serverStatus"]["start"], data["local.oplog.rs.stats"]["end"], data["end"]]
    assert times == sorted(times)
    assert refusal(client.test, {"getDiagnosticData": 1}) == 13


def test_sections_can_be_left_out(client: Client) -> None:
    found = status(client, opLatencies=0, repl=False, globalLock=1)
    assert "opLatencies" not in found
    assert "repl" not in found
    assert "globalLock" in found


@of_replica_set
def test_the_replica_set_is_described_as_by_hello(client: Client) -> None:
    repl = status(client)["repl"]
    hello = client.admin.command("hello")
    for name in ("setName", "setVersion", "isWritablePrimary", "secondary", "hosts", "primary", "me", "electionId"):
        assert repl[name] == hello[name]
    assert isinstance(repl["lastWrite"]["opTime"]["ts"], Timestamp)


def test_latencies_outlive_their_collections(database: Database[Documents], client: Client) -> None:
    before = status(client)["opLatencies"]
    database.c.insert_one({"_id": 1})
    assert list(database.c.find()) == [{"_id": 1}]
    database.c.drop()
    after = status(client)["opLatencies"]
    assert after["writes"]["ops"] - before["writes"]["ops"] == 1
    assert after["reads"]["ops"] - before["reads"]["ops"] == 1
    assert after["writes"]["latency"] > before["writes"]["latency"]


def test_cursors_are_told_apart(database: Database[Documents], client: Client) -> None:
    database.c.insert_many({"_id": n} for n in range(10))
    with (
        database.c.find(batch_size=2, no_cursor_timeout=True) as patient,
        database.c.find(batch_size=2) as other,
    ):
        assert next(patient) == next(other) == {"_id": 0}
        assert status(client)["metrics"]["cursor"]["open"] == {"noTimeout": 1, "pinned": 0, "total": 2}


def test_conflicts_and_those_who_wait_are_counted(database: Database[Documents], client: Client) -> None:
    database.c.insert_one({"_id": 1})
    before = status(client)["metrics"]["operation"]["writeConflicts"]
    with client.start_session() as session:
        session.start_transaction()
        database.c.find_one({"_id": 1}, session=session)
        database.c.update_one({"_id": 1}, {"$set": {"n": 1}})
        with pytest.raises(OperationFailure):
            database.c.update_one({"_id": 1}, {"$set": {"n": 2}}, session=session)
    assert status(client)["metrics"]["operation"]["writeConflicts"] == before + 1
    with client.start_session() as session:
        session.start_transaction()
        database.c.update_one({"_id": 1}, {"$set": {"n": 3}}, session=session)
        waiting = threading.Thread(target=database.c.update_one, args=({"_id": 1}, {"$inc": {"n": 1}}))
        waiting.start()
        queue = {"readers": 0, "total": 0, "writers": 0}
        while queue["writers"] == 0:
            queue = status(client)["globalLock"]["currentQueue"]
        assert queue == {"readers": 0, "total": 1, "writers": 1}
        session.commit_transaction()
        waiting.join()
    assert status(client)["globalLock"]["currentQueue"]["total"] == 0
    assert database.c.find_one() == {"_id": 1, "n": 4}


def test_logins_are_counted_by_mechanism() -> None:
    with mongottl.start_server(auth=True, user="root", password="secret") as server, Client(server.uri) as client:
        security = status(client)["security"]
        first = security["authentication"]["mechanisms"]["SCRAM-SHA-256"]["authenticate"]
        assert first["received"] == first["successful"] > 0
        assert security["SSLServerHasCertificateAuthority"] is False
        wrong = Client("127.0.0.1", server.port, username="root", password="wrong", authMechanism="SCRAM-SHA-1")
        with wrong, pytest.raises(OperationFailure):
            wrong.admin.command("ping")
        mechanisms = status(client)["security"]["authentication"]["mechanisms"]
        assert mechanisms["SCRAM-SHA-1"]["authenticate"]["received"] >= 1
        assert mechanisms["SCRAM-SHA-1"]["authenticate"]["successful"] == 0


def test_new_passwords_are_hashed_as_often_as_the_parameters_say() -> None:
    with mongottl.start_server(auth=True, user="root", password="secret") as server, Client(server.uri) as client:
        admin = client.admin
        names: Documents = {"scramIterationCount": 1, "scramSHA256IterationCount": 1, "authenticationMechanisms": 1}
        parameters = admin.command("getParameter", 1, **names)
        assert parameters["scramIterationCount"] == 10_000
        assert parameters["scramSHA256IterationCount"] == 15_000
        assert parameters["authenticationMechanisms"] == ["MONGODB-X509", "SCRAM-SHA-1", "SCRAM-SHA-256"]
        assert admin.command("setParameter", 1, scramIterationCount=5_000)["was"] == 10_000
        assert admin.command("setParameter", 1, scramSHA256IterationCount=Int64(6_000))["was"] == 15_000
        for value in (4_999, True, "many", 2**31):
            assert refusal(admin, {"setParameter": 1, "scramIterationCount": value}) == 2
        admin.command("createUser", "ann", pwd="apple", roles=["root"])
        stored = admin.system.users.find_one({"user": "ann"})
        assert stored is not None
        counts = {mechanism: stored["credentials"][mechanism]["iterationCount"] for mechanism in stored["credentials"]}
        assert counts == {"SCRAM-SHA-1": 5_000, "SCRAM-SHA-256": 6_000}
        for mechanism in counts:
            login = {"username": "ann", "password": "apple", "authMechanism": mechanism}
            with Client("127.0.0.1", server.port, **login) as ann:
                assert ann.admin.command("ping")["ok"] == 1


def test_the_announced_version_is_the_status_one() -> None:
    with mongottl.start_server(server_version="6.0") as server, Client(server.uri) as client:
        assert status(client)["version"] == ServerConfig(server_version="6.0").full_version()
