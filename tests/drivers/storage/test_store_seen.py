"""What one of several servers with one store says of itself and of the others, and what it does to their operations."""

import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure

import mongottl
from tests import postgres
from tests.drivers.process.test_process import Process
from tests.drivers.web.requests import ask
from tests.on_store import PREFIX, takes_several_servers, with_schema
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing())

Client = pymongo.MongoClient[dict[str, Any]]
Node = dict[str, Any]


@pytest.fixture
def store() -> str:
    """The URI of a schema of the test's own, for several servers."""
    return with_schema(PREFIX + uuid.uuid4().hex[:12])


@pytest.fixture
def servers(store: str) -> Iterator[list[mongottl.RunningServer]]:
    """Two servers, with pages."""
    options: dict[str, Any] = {"store": store, "topology": "sharded", "web_port": 0}
    with mongottl.start_server(**options) as first, mongottl.start_server(**options) as second:
        yield [first, second]


@pytest.fixture
def clients(servers: list[mongottl.RunningServer]) -> Iterator[tuple[Client, Client]]:
    with Client(servers[0].uri) as client, Client(servers[1].uri) as other:
        yield client, other


def own(client: Client) -> dict[str, Any]:
    section: dict[str, Any] = client.admin.command("serverStatus")["mongottl"]
    return section


def wait_for_nodes(client: Client, condition: Callable[[list[Node]], bool]) -> list[Node]:
    """The places that a server shows, once they meet the condition."""
    seen: list[Node] = []

    def is_met() -> bool:
        seen[:] = own(client)["nodes"]
        return condition(seen)

    until(is_met)
    return seen


@takes_several_servers
def test_server_status_has_all_nodes(
    servers: list[mongottl.RunningServer], clients: tuple[Client, Client], store: str
) -> None:
    ports = [server.port for server in servers]
    expected = [(port, "current") for port in ports]
    for client in clients:
        nodes = wait_for_nodes(client, lambda nodes: [(node["port"], node["state"]) for node in nodes] == expected)
        assert sum(node["duties"] for node in nodes) <= 1
        for node in nodes:
            assert 0 < node["expiresInMillis"] <= 3000 and node["topology"] == "sharded" and node["host"]
    assert [own(client)["node"] for client in clients] == [node["node"] for node in nodes]
    assert nodes[0]["since"] <= nodes[1]["since"]
    # Each change of the catalog has a version, which both know.
    before = nodes[0]["catalogVersion"]
    clients[0].shop.create_collection("carts")
    later = wait_for_nodes(clients[1], lambda nodes: min(node["catalogVersion"] for node in nodes) > before)
    assert later[0]["catalogVersion"] == later[1]["catalogVersion"]
    servers[0].stop()
    wait_for_nodes(clients[1], lambda nodes: [node["port"] for node in nodes] == ports[1:])


@takes_several_servers
def test_a_node_that_does_not_renew_its_place_is_lost(
    servers: list[mongottl.RunningServer], clients: tuple[Client, Client], store: str, tmp_path: Path
) -> None:
    frozen = Process(tmp_path / "log", "--store", store, "--topology", "sharded", "--port", "0")
    try:
        wait_for_nodes(clients[0], lambda nodes: len(nodes) == 3 and nodes[2]["port"] == frozen.port)
        frozen.popen.send_signal(signal.SIGSTOP)
        # As long as it is shown it is lost; another server clears its place away.
        for nodes in iter(lambda: own(clients[0])["nodes"], None):
            if len(nodes) == 2:
                break
            [place] = [node for node in nodes if node["pid"] == frozen.popen.pid]
            assert (place["expiresInMillis"] <= 0) == (place["state"] == "lost")
        until(lambda: 'mongottl_nodes{state="current"} 2.0' in ask(servers[0], "/metrics").body)
        assert 'mongottl_nodes{state="lost"} 0.0' in ask(servers[0], "/metrics").body
        frozen.popen.send_signal(signal.SIGCONT)
        wait_for_nodes(clients[0], lambda nodes: [node["state"] for node in nodes] == ["current"] * 3)
    finally:
        frozen.popen.send_signal(signal.SIGCONT)
        frozen.kill()


@takes_several_servers
def test_metrics_name_the_node(servers: list[mongottl.RunningServer], clients: tuple[Client, Client]) -> None:
    for server, client in zip(servers, clients, strict=True):
        nodes = wait_for_nodes(client, lambda nodes: len(nodes) == 2 and all(node["port"] for node in nodes))
        number = own(client)["node"]
        [place] = [node for node in nodes if node["node"] == number]
        shown = f'mongottl_node_info{{address="{place["host"]}:{server.port}",node="{number}"}} 1.0'
        assert shown in ask(server, "/metrics").body


def test_one_server_without_others_is_shown(store: str) -> None:
    with mongottl.start_server(store=store, web_port=0) as server, Client(server.uri) as client:
        [node] = wait_for_nodes(client, lambda nodes: [node["port"] for node in nodes] == [server.port])
        assert (node["node"], node["state"], node["topology"]) == (own(client)["node"], "current", "replicaSet")
    with mongottl.start_server(web_port=0) as server:
        assert 'mongottl_nodes{state="current"} 1.0' in ask(server, "/metrics").body


# Operations and sessions


# Of a server that has lost its place for a moment.
HOST_UNREACHABLE = 6


class Waiting:
    """A getMore of a change stream that waits. error: how it has ended."""

    def __init__(self, client: Client, session: ClientSession | None = None) -> None:
        self.error: OperationFailure | None = None
        self._client = client
        self._session = session
        pipeline: list[dict[str, Any]] = [{"$changeStream": {}}]
        opened = client.shop.command("aggregate", 1, pipeline=pipeline, cursor={}, session=session)
        self._cursor_id = bson.Int64(opened["cursor"]["id"])
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        while self.error is None:
            try:
                # Which returns sooner if there is an event, or if a busy machine has let the server lose its place.
                self._client.shop.command(
                    "getMore", self._cursor_id, collection="$cmd.aggregate", maxTimeMS=600_000, session=self._session
                )
            except OperationFailure as error:
                if error.code != HOST_UNREACHABLE:
                    self.error = error

    def end(self) -> OperationFailure:
        self._thread.join(PATIENCE_S)
        assert self.error is not None
        return self.error


def opid_of_stream(client: Client) -> str:
    """The operation that waits for a change stream."""
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        pipeline: list[dict[str, Any]] = [{"$currentOp": {}}, {"$match": {"op": "getmore"}}]
        found[:] = client.admin.aggregate(pipeline)
        return len(found) == 1

    until(is_there)
    opid = found[0]["opid"]
    assert isinstance(opid, str)
    return opid


@takes_several_servers
def test_an_operation_is_named_with_its_node(clients: tuple[Client, Client]) -> None:
    one, two = clients
    waiting = Waiting(two)
    opid = opid_of_stream(two)
    node, _, number = opid.partition(":")
    assert int(node) == own(two)["node"]
    # Each server shows its own operations.
    assert one.admin.command("currentOp", op="getmore")["inprog"] == []
    [shown] = two.admin.command("currentOp", op="getmore")["inprog"]
    assert shown["opid"] == opid and shown["host"] == f"127.0.0.1:{two.address[1]}"  # type: ignore[index]
    assert two.admin.command("killOp", op=int(number))["info"] == "attempting to kill op"
    assert waiting.end().code == 11601


@takes_several_servers
def test_an_operation_is_killed_by_another_server(clients: tuple[Client, Client]) -> None:
    one, two = clients
    for killer in (one, two):
        waiting = Waiting(two)
        assert killer.admin.command("killOp", op=opid_of_stream(two))["info"] == "attempting to kill op"
        assert waiting.end().code == 11601
    waiting = Waiting(two)
    node, _, number = opid_of_stream(two).partition(":")
    # The same number on another server is another operation.
    one.admin.command("killOp", op=int(number))
    one.admin.command("killOp", op=f"{own(one)['node']}:{number}")
    for text, code in [("7", 28625), (":7", 28625), ("x:7", 28625), (f"{node}:", 28625), (f"{node}:4294967296", 26823)]:
        with pytest.raises(OperationFailure) as refused:
            one.admin.command("killOp", op=text)
        assert refused.value.code == code
    with pytest.raises(OperationFailure, match="Shard 999999 not found") as refused:
        one.admin.command("killOp", op=f"999999:{number}")
    assert refused.value.code == 70
    assert opid_of_stream(two) == f"{node}:{number}" and waiting.error is None
    one.admin.command("killOp", op=f"{node}:{number}")
    waiting.end()


@takes_several_servers
def test_only_who_may_kills_on_another_server(store: str) -> None:
    options: dict[str, Any] = {"store": store, "topology": "sharded", "auth": True}
    with (
        mongottl.start_server(**options, user="root", password="secret") as first,
        mongottl.start_server(**options) as second,
        Client(first.uri, username="root", password="secret") as one,
    ):
        one.admin.command("createUser", "ann", pwd="ann", roles=["readAnyDatabase"])
        with (
            Client(second.uri, username="ann", password="ann") as two,
            Client(first.uri, username="ann", password="ann") as other,
        ):
            waiting = Waiting(two)
            until(lambda: two.admin.command({"currentOp": 1, "$ownOps": True, "op": "getmore"})["inprog"])
            [shown] = two.admin.command({"currentOp": 1, "$ownOps": True, "op": "getmore"})["inprog"]
            with pytest.raises(OperationFailure, match="not authorized"):
                other.admin.command("killOp", op=shown["opid"])
            assert waiting.error is None
            two.admin.command("killOp", op=shown["opid"])
            waiting.end()


@takes_several_servers
@pytest.mark.parametrize("way", ["killSessions", "killAllSessions", "killAllSessionsByPattern"])
def test_sessions_are_killed_on_all_servers(way: str, clients: tuple[Client, Client]) -> None:
    one, two = clients
    two.shop.carts.insert_many([{"_id": number} for number in range(5)])
    with two.start_session() as session, two.start_session() as transaction:
        lsids = [dict(each.session_id) for each in (session, transaction)]
        cursor = two.shop.carts.find(session=session, batch_size=2)
        next(cursor)
        waiting = Waiting(two, session)
        opid_of_stream(two)
        transaction.start_transaction()
        two.shop.carts.insert_one({"_id": 5}, session=transaction)
        if way == "killSessions":
            one.admin.command(way, lsids)
        elif way == "killAllSessions":
            one.admin.command(way, [])
        else:
            one.admin.command(way, [{"lsid": lsid} for lsid in lsids])
        with one.start_session() as following, following.start_transaction():
            # Which would not wait: what the killed one has written is in nobody's way any more.
            one.shop.carts.insert_one({"_id": 5}, session=following)
            following.abort_transaction()
        assert waiting.end().code in (237, 11601)
        with pytest.raises(OperationFailure) as refused:
            list(cursor)
        assert refused.value.code == 43
        with pytest.raises(OperationFailure) as refused:
            transaction.commit_transaction()
        assert refused.value.code == 251
    assert one.shop.carts.count_documents({}) == 5


@takes_several_servers
def test_cursors_are_those_of_one_server_as_with_mongos(clients: tuple[Client, Client]) -> None:
    one, two = clients
    two.shop.carts.insert_many([{"_id": number} for number in range(5)])
    cursor = two.shop.carts.find(batch_size=2)
    next(cursor)
    assert cursor.cursor_id is not None
    reply = one.shop.command("killCursors", "carts", cursors=[bson.Int64(cursor.cursor_id)])
    assert reply["cursorsNotFound"] == [cursor.cursor_id] and reply["cursorsKilled"] == []
    assert len(list(cursor)) == 4
