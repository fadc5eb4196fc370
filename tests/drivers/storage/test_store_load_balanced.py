"""Several servers behind one address: `loadBalanced=true`, through a proxy that gives them connections in turn."""

import itertools
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from pymongo.errors import AutoReconnect, ConfigurationError

import mongottl
from tests import postgres
from tests.balancer import HAPROXY, by_haproxy
from tests.drivers.process.test_process import Process
from tests.drivers.wire_client import WireClient
from tests.on_nodes import of_replica_set
from tests.on_store import PREFIX, takes_several_servers, with_schema
from tests.waiting import until, until_connected

pytestmark = pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing())

Client = pymongo.MongoClient[dict[str, Any]]
# Opens a proxy to these ports; its port.
Balancer = Callable[[list[int]], Any]


@contextmanager
def taking_turns(ports: list[int]) -> Iterator[int]:
    """A proxy that connects its clients to one port after the other, and passes over those that are closed."""
    listener = socket.create_server(("127.0.0.1", 0))
    sockets = [listener]
    turns = itertools.cycle(ports)

    def copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                sockets.append(client)
                for port in itertools.islice(turns, len(ports)):
                    with suppress(ConnectionRefusedError):
                        server = socket.create_connection(("127.0.0.1", port))
                        break
                else:
                    client.close()
                    continue
                sockets.append(server)
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


BALANCERS = [
    taking_turns,
    pytest.param(by_haproxy, marks=pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed")),
]


@pytest.fixture
def store() -> str:
    """The URI of a schema of the test's own, for several servers."""
    return with_schema(PREFIX + uuid.uuid4().hex[:12])


@pytest.fixture
def servers(store: str) -> Iterator[list[mongottl.RunningServer]]:
    options: dict[str, Any] = {"store": store, "topology": "sharded"}
    with mongottl.start_server(**options) as first, mongottl.start_server(**options) as second:
        yield [first, second]


@pytest.fixture(params=BALANCERS)
def client(request: pytest.FixtureRequest, servers: list[mongottl.RunningServer]) -> Iterator[Client]:
    """A client of both servers."""
    with (
        request.param([server.port for server in servers]) as port,
        Client(f"mongodb://127.0.0.1:{port}/?loadBalanced=true") as client,
    ):
        yield client


def node_of(client: Client) -> str:
    """Which server answers."""
    node: int = client.admin.command("serverStatus")["mongottl"]["node"]
    return str(node)


@takes_several_servers
def test_hello_has_an_id_of_the_process(servers: list[mongottl.RunningServer]) -> None:
    found = []
    for server in servers:
        with closing(WireClient(server.uri)) as one, closing(WireClient(server.uri)) as other:
            [first, second] = [each.command({"hello": 1, "loadBalanced": True}) for each in (one, other)]
            assert isinstance(first["serviceId"], bson.ObjectId) and first["serviceId"] == second["serviceId"]
            assert "serviceId" not in one.command({"hello": 1}) | one.command({"hello": 1, "loadBalanced": False})
            found.append(first["serviceId"])
    assert found[0] != found[1]


@of_replica_set
def test_a_replica_set_is_refused_by_the_driver() -> None:
    with (
        mongottl.start_server(topology="replicaSet") as server,
        Client("127.0.0.1", server.port, loadBalanced=True) as client,
        pytest.raises(ConfigurationError, match="load balancing mode"),
    ):
        client.admin.command("ping")


@takes_several_servers
def test_connections_are_spread_and_all_see_the_same(client: Client) -> None:
    client.shop.create_collection("carts")
    # As many at once as there are connections.
    nodes: set[str] = set()
    together = threading.Barrier(4)

    def use(number: int) -> None:
        with client.shop.carts.watch():  # which keeps a connection
            together.wait()
            client.shop.carts.insert_one({"_id": number})
            nodes.add(node_of(client))
            together.wait()
            assert client.shop.carts.count_documents({}) == 4

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(nodes) == 2
    assert client.shop.carts.count_documents({}) == 4


@takes_several_servers
def test_cursors_and_transactions_stay_with_their_connections(client: Client) -> None:
    carts = client.shop.carts
    carts.insert_many([{"_id": number} for number in range(100)])
    cursors = [carts.find(batch_size=10).sort("_id") for _ in range(6)]
    read: list[list[int]] = [[] for _ in cursors]
    for _ in range(100):
        for cursor, into in zip(cursors, read, strict=True):
            into.append(cursor.next()["_id"])
    assert read == [list(range(100))] * 6
    for cursor in cursors:
        cursor.close()
    sessions = [client.start_session() for _ in range(4)]
    homes = []
    for number, session in enumerate(sessions):
        session.start_transaction()
        carts.insert_one({"_id": f"of {number}"}, session=session)
    assert carts.count_documents({}) == 100
    for number, session in enumerate(sessions):
        assert carts.find_one({"_id": f"of {number}"}, session=session) is not None
        found = list(carts.find({}, batch_size=30, session=session))
        assert len(found) == 101
        homes.append(session._transaction.conn_mgr is not None)  # pinned
        session.commit_transaction()
        session.end_session()
    assert homes == [True] * 4
    assert carts.count_documents({}) == 104
    with client.start_session() as session:
        with pytest.raises(ZeroDivisionError), session.start_transaction():
            carts.insert_one({"_id": "aborted"}, session=session)
            raise ZeroDivisionError
        session.with_transaction(lambda session: carts.update_one({"_id": 1}, {"$set": {"n": 1}}, session=session))
    assert carts.find_one({"_id": "aborted"}) is None and carts.find_one({"n": 1}) is not None


@takes_several_servers
def test_change_streams_go_on_and_resume(client: Client) -> None:
    client.shop.create_collection("carts")
    with client.shop.carts.watch() as stream:
        for number in range(10):
            client.shop.carts.insert_one({"_id": number})
        seen = [stream.next() for _ in range(10)]
        assert [event["documentKey"]["_id"] for event in seen] == list(range(10))
    for _ in range(4):
        with client.shop.carts.watch(resume_after=seen[4]["_id"]) as resumed:
            assert resumed.next()["documentKey"]["_id"] == 5


@takes_several_servers
@pytest.mark.parametrize("balancer", BALANCERS)
def test_writes_go_on_when_a_server_is_killed(balancer: Balancer, store: str, tmp_path: Path) -> None:
    options = ("--store", store, "--topology", "sharded", "--port", "0")
    processes = [Process(tmp_path / f"log{number}", *options) for number in range(2)]
    try:
        with (
            balancer([process.port for process in processes]) as port,
            Client(f"mongodb://127.0.0.1:{port}/?loadBalanced=true") as client,
        ):
            until_connected(client)
            counters = client.shop.counters
            counters.insert_many([{"_id": number, "n": 0} for number in range(4)])
            acknowledged = [0] * 4
            ended = threading.Event()

            def count(place: int) -> None:
                while not ended.is_set():
                    # A server's last connections may fail twice before the proxy knows that it has gone.
                    with suppress(AutoReconnect):
                        counters.update_one({"_id": place}, {"$inc": {"n": 1}})
                        acknowledged[place] += 1

            threads = [threading.Thread(target=count, args=(place,)) for place in range(4)]
            for thread in threads:
                thread.start()
            until(lambda: min(acknowledged) > 20)
            processes[0].popen.kill()
            before = [*acknowledged]
            until(lambda: all(now > then + 20 for now, then in zip(acknowledged, before, strict=True)))
            ended.set()
            for thread in threads:
                thread.join()
            for counter in counters.find():
                # A write that was reported as failed may have been done.
                assert acknowledged[counter["_id"]] <= counter["n"] <= acknowledged[counter["_id"]] + 2
    finally:
        for process in processes:
            process.kill()
