"""`--topology sharded`: drivers take the server for a mongos, and stay with the address that they were given.

So a server behind a mapped port can be reached, where a member of a replica set names an address that only it can use.
What a replica set has is there all the same: sessions, transactions, change streams.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import gridfs
import pymongo
import pytest
from pymongo import monitoring
from pymongo.database import Database
from pymongo.errors import OperationFailure
from pymongo.topology_description import TOPOLOGY_TYPE

import mongottl
from tests.on_nodes import of_replica_set
from tests.on_store import takes_several_servers

Client = pymongo.MongoClient[dict[str, Any]]


@contextmanager
def mapped_port(port: int) -> Iterator[int]:
    """Another port by which a server is reached, as `docker run -p` makes one."""
    listener = socket.create_server(("127.0.0.1", 0))
    sockets = [listener]

    def copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", port))
                sockets.extend([client, server])
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=copy, args=ends, daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        thread.join()


@pytest.fixture(scope="module")
def router() -> Iterator[mongottl.RunningServer]:
    # The address that a member of a replica set would name is one that nobody can reach.
    with mongottl.start_server(topology="sharded", advertise_host="mongottl.invalid:27017") as running:
        yield running


@pytest.fixture(scope="module")
def mapped(router: mongottl.RunningServer) -> Iterator[Client]:
    with mapped_port(router.port) as port, Client("127.0.0.1", port) as client:
        yield client


@takes_several_servers
def test_hello_is_that_of_a_mongos(mapped: Client) -> None:
    hello = mapped.admin.command("hello")
    assert hello["msg"] == "isdbgrid" and hello["isWritablePrimary"] is True
    assert not hello.keys() & {
        "hosts",
        "setName",
        "setVersion",
        "primary",
        "me",
        "secondary",
        "lastWrite",
        "electionId",
    }
    assert mapped.topology_description.topology_type == TOPOLOGY_TYPE.Sharded
    status = mapped.admin.command("serverStatus")
    assert status["process"] == "mongos" and "repl" not in status


def test_a_replica_set_behind_a_mapped_port_cannot_be_reached() -> None:
    """What the topology is for: without it the driver follows the address that the member names."""
    with (
        mongottl.start_server(advertise_host="mongottl.invalid:27017") as member,
        mapped_port(member.port) as port,
        Client("127.0.0.1", port, replicaSet="globaldb", serverSelectionTimeoutMS=500) as client,
        pytest.raises(pymongo.errors.ServerSelectionTimeoutError),
    ):
        client.admin.command("ping")


@takes_several_servers
def test_transactions_are_committed_and_aborted(mapped: Client) -> None:
    things = mapped.shop.things
    things.insert_one({"_id": 0})
    with mapped.start_session() as session:
        with session.start_transaction():
            things.insert_one({"_id": 1}, session=session)
        session.start_transaction()
        things.insert_one({"_id": 2}, session=session)
        session.abort_transaction()
    assert sorted(each["_id"] for each in things.find()) == [0, 1]


class TransactionLog(monitoring.CommandListener):
    """The recovery tokens that commands of a client have sent, and those of the replies, by command."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.received: list[tuple[str, Any]] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        self.sent.append((event.command_name, event.command.get("recoveryToken")))

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        self.received.append((event.command_name, event.reply.get("recoveryToken")))

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pytest.fail(f"{event.command_name}: {event.failure}")


@takes_several_servers
def test_replies_of_a_transaction_have_a_recovery_token(router: mongottl.RunningServer) -> None:
    """Drivers send the latest with the end of the transaction: driver specifications, "Transactions", recoveryToken."""
    log = TransactionLog()
    with Client("127.0.0.1", router.port, event_listeners=[log]) as client, client.start_session() as session:
        recovered = client.shop.recovered
        with session.start_transaction():
            recovered.find_one({}, session=session)
            recovered.insert_one({"_id": 1}, session=session)
        session.commit_transaction()  # a commit can be repeated
        session.start_transaction()
        recovered.insert_one({"_id": 2}, session=session)
        session.abort_transaction()
        names = ["find", "insert", "commitTransaction", "commitTransaction", "insert", "abortTransaction"]
        token = log.received[0][1]
        assert isinstance(token, dict) and token
        assert log.received == [(name, token) for name in names]
        assert log.sent == [(name, token if "Transaction" in name else None) for name in names]
        assert recovered.distinct("_id") == [1]
        assert log.received[-1] == ("distinct", None)


@of_replica_set
def test_a_replica_set_gives_no_recovery_token(database: Database[dict[str, Any]]) -> None:
    with database.client.start_session() as session, session.start_transaction():
        assert "recoveryToken" not in database.command("find", "c", session=session)


@takes_several_servers
def test_change_streams_and_ttl(mapped: Client) -> None:
    sessions = mapped.shop.sessions
    sessions.create_index("_ts", expireAfterSeconds=10)
    with sessions.watch() as stream:
        sessions.insert_one({"_id": 1})
        assert stream.next()["operationType"] == "insert"
        mapped.admin.command("advanceClock", 10)
        assert stream.next()["operationType"] == "delete"
    assert sessions.find_one() is None


@takes_several_servers
def test_gridfs_and_retryable_writes(mapped: Client) -> None:
    bucket = gridfs.GridFSBucket(mapped.files)
    key = bucket.upload_from_stream("name", b"x" * 600_000)
    assert bucket.open_download_stream(key).read() == b"x" * 600_000
    mapped.admin.command(
        {
            "configureFailPoint": "failCommand",
            "mode": {"times": 1},
            "data": {"failCommands": ["insert"], "closeConnection": True},
        }
    )
    mapped.shop.retried.insert_one({"_id": 1})
    assert mapped.shop.retried.count_documents({}) == 1


@takes_several_servers
def test_the_uri_of_an_account_names_no_replica_set() -> None:
    account: Any = {"dialect": "cosmos", "cosmos_account": "shop", "cosmos_key": "c2VjcmV0"}
    with mongottl.start_server(**account, topology="sharded") as running:
        assert "replicaSet" not in running.uri
        with closing(Client(running.uri)) as client:
            client.shop.orders.insert_one({"_id": 1})
            with pytest.raises(OperationFailure):
                client.shop.orders.find().sort("at").to_list()
