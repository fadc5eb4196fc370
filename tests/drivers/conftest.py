"""Servers and clients for tests over real sockets.

After each test no cursor may be open and no InternalError may have been answered.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pymongo
import pytest
from pymongo.database import Database

import mongottl
from mongottl.exec.service.service import ServiceContext
from tests.on_nodes import nodes_of


def internal_errors(node: ServiceContext) -> int:
    return node.metrics.asserts_internal


def server_status(client: "pymongo.MongoClient[dict[str, Any]]") -> dict[str, Any]:
    return client.admin.command("serverStatus")


@pytest.fixture(scope="session")
def server() -> Iterator[mongottl.RunningServer]:
    """A server in memory, whose clock tests may move forwards."""
    with mongottl.start_server() as running:
        yield running


@contextmanager
def kept_clients() -> Iterator[Callable[[str], "pymongo.MongoClient[dict[str, Any]]"]]:
    """What gives the client for a URI, always the same one."""
    clients: dict[str, pymongo.MongoClient[dict[str, Any]]] = {}
    with ExitStack() as stack:

        def client_of(uri: str) -> "pymongo.MongoClient[dict[str, Any]]":
            if uri not in clients:
                clients[uri] = stack.enter_context(pymongo.MongoClient[dict[str, Any]](uri))
            return clients[uri]

        yield client_of


@pytest.fixture(scope="session")
def client_of() -> Iterator[Callable[[str], "pymongo.MongoClient[dict[str, Any]]"]]:
    with kept_clients() as client_of:
        yield client_of


@pytest.fixture
def client(
    server: mongottl.RunningServer, client_of: Callable[[str], "pymongo.MongoClient[dict[str, Any]]"]
) -> "pymongo.MongoClient[dict[str, Any]]":
    return client_of(server.uri)


@pytest.fixture(autouse=True)
def clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that used the shared server and left a cursor open or met an InternalError."""
    if "server" not in request.fixturenames:
        yield
        return
    client = request.getfixturevalue("client")
    nodes = nodes_of(request.getfixturevalue("server"))
    before = [internal_errors(node) for node in nodes]
    yield
    server_status(client)
    for node, was in zip(nodes, before, strict=True):
        assert not len(node.cursors), "a cursor was left open"
        assert internal_errors(node) == was, "an InternalError was answered, see the log"


@pytest.fixture
def database(client: "pymongo.MongoClient[dict[str, Any]]", clean: None) -> Iterator[Database[dict[str, Any]]]:
    """A database of its own for each test."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    yield client[name]
    client.drop_database(name)


@pytest.fixture(scope="module")
def cosmos() -> Iterator[mongottl.RunningServer]:
    """A server of the dialect `cosmos`, for the tests of one module."""
    with mongottl.start_server(dialect="cosmos") as running:
        yield running


@pytest.fixture
def account(cosmos: mongottl.RunningServer) -> Iterator["pymongo.MongoClient[dict[str, Any]]"]:
    """A client of that server, which has neither databases nor other settings after the test."""
    with pymongo.MongoClient[dict[str, Any]](cosmos.uri) as client:
        was = client.admin.command("configureCosmos", {})["was"]
        yield client
        client.admin.command("configureCosmos", was)
        for name in client.list_database_names():
            client.drop_database(name)


@pytest.fixture
def shop(account: "pymongo.MongoClient[dict[str, Any]]") -> Database[dict[str, Any]]:
    return account.shop
