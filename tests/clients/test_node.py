"""The Node driver."""

import pytest

import mongottl
from tests.clients.conftest import HERE, PARTS, REFUSED_COMMANDS, Installed, failed_commands, parts_that_work

pytestmark = pytest.mark.slow

NODE_PARTS = [*PARTS, "monitoring"]


@pytest.fixture(scope="module")
def modules(installed: Installed) -> str:
    return str(installed("node") / "node_modules")


@pytest.mark.parametrize("way", ["", "?replicaSet=globaldb", "?directConnection=true", "localhost"])
def test_an_application(modules: str, own: mongottl.RunningServer, way: str) -> None:
    uri = own.uri.replace("127.0.0.1", "localhost") if way == "localhost" else own.uri + way
    assert parts_that_work(["node", HERE / "node" / "client.js"], uri, NODE_PATH=modules) == NODE_PARTS
    assert failed_commands(own) <= REFUSED_COMMANDS


def test_an_application_that_logs_in(modules: str, guarded: mongottl.RunningServer) -> None:
    """With a password, over plain sockets and over TLS."""
    ended = parts_that_work(["node", HERE / "node" / "client.js"], guarded.uri, NODE_PATH=modules)
    assert ended == [*NODE_PARTS, "wrongPassword"]


@pytest.mark.parametrize("version", ["5.0", "7.0"])
def test_gridfs_in_the_dialect_cosmos(modules: str, version: str) -> None:
    """Its own indexes serve its sorts, in versions that the driver connects to."""
    with mongottl.start_server(dialect="cosmos", server_version=version) as server:
        done = parts_that_work(["node", HERE / "node" / "gridfs.js"], server.uri, NODE_PATH=modules)
    assert done == ["upload", "downloadById", "downloadByName", "renameAndDelete"]


def test_an_account_without_hello(modules: str) -> None:
    with mongottl.start_server(dialect="cosmos", cosmos_account="shop", cosmos_refuse=("hello",)) as server:
        done = parts_that_work(["node", HERE / "node" / "gridfs.js"], server.uri, NODE_PATH=modules)
    assert done[0] == "upload"
