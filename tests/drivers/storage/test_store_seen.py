"""What one of several servers with one store says of itself and of the others, and what it does to their operations."""

import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest

import mongottl
from tests import postgres
from tests.drivers.process.test_process import Process
from tests.drivers.web.requests import ask
from tests.on_store import PREFIX, with_schema
from tests.waiting import until

pytestmark = pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing())

Client = pymongo.MongoClient[dict[str, Any]]
Node = dict[str, Any]


@pytest.fixture
def store() -> str:
    """The URI of a schema of the test's own, for several servers."""
    return with_schema(PREFIX + uuid.uuid4().hex[:12]) + "&nodes=several"


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


def test_a_node_that_does_not_renew_its_place_is_lost(
    servers: list[mongottl.RunningServer], clients: tuple[Client, Client], store: str, tmp_path: Path
) -> None:
    frozen = Process(tmp_path / "log", "--store", store, "--topology", "sharded", "--port", "0")
    try:
        wait_for_nodes(clients[0], lambda nodes: len(nodes) == 3 and nodes[2]["port"] == frozen.port)
        frozen.popen.send_signal(signal.SIGSTOP)
        lost = wait_for_nodes(clients[0], lambda nodes: len(nodes) == 3 and nodes[2]["state"] == "lost")
        assert lost[2]["pid"] == frozen.popen.pid and lost[2]["expiresInMillis"] <= 0
        samples = ask(servers[0], "/metrics").body
        assert 'mongottl_nodes{state="lost"} 1.0' in samples and 'mongottl_nodes{state="current"} 2.0' in samples
        frozen.popen.send_signal(signal.SIGCONT)
        wait_for_nodes(clients[0], lambda nodes: [node["state"] for node in nodes] == ["current"] * 3)
    finally:
        frozen.popen.send_signal(signal.SIGCONT)
        frozen.kill()


def test_metrics_name_the_node(servers: list[mongottl.RunningServer], clients: tuple[Client, Client]) -> None:
    for server, client in zip(servers, clients, strict=True):
        nodes = wait_for_nodes(client, lambda nodes: len(nodes) == 2 and all(node["port"] for node in nodes))
        number = own(client)["node"]
        [place] = [node for node in nodes if node["node"] == number]
        shown = f'mongottl_node_info{{address="{place["host"]}:{server.port}",node="{number}"}} 1.0'
        assert shown in ask(server, "/metrics").body


def test_one_server_without_others_is_shown(store: str) -> None:
    alone = store.removesuffix("&nodes=several")
    with mongottl.start_server(store=alone, web_port=0) as server, Client(server.uri) as client:
        [node] = wait_for_nodes(client, lambda nodes: [node["port"] for node in nodes] == [server.port])
        assert (node["node"], node["state"], node["topology"]) == (own(client)["node"], "current", "replicaSet")
    with mongottl.start_server(web_port=0) as server:
        assert 'mongottl_nodes{state="current"} 1.0' in ask(server, "/metrics").body
