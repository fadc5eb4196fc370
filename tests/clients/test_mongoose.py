"""Mongoose."""

import pytest

import mongottl
from tests.clients.conftest import HERE, Installed, failed_commands, parts_that_work

pytestmark = pytest.mark.slow

PARTS = [
    "connect",
    "schemas",
    "populate",
    "discriminators",
    "writes",
    "transactions",
    "watch",
    "ttl",
    "indexes",
]


@pytest.fixture(scope="module")
def modules(installed: Installed) -> str:
    return str(installed("node") / "node_modules")


def test_an_application(modules: str, own: mongottl.RunningServer) -> None:
    assert parts_that_work(["node", HERE / "node" / "mongoose.js"], own.uri, NODE_PATH=modules) == PARTS
    # Indexes of collections that do not exist yet, and the change stream that is closed while it waits for events.
    assert failed_commands(own) <= {"listIndexes", "getMore"}


def test_an_application_that_logs_in_over_tls(modules: str, secured: mongottl.RunningServer) -> None:
    assert parts_that_work(["node", HERE / "node" / "mongoose.js"], secured.uri, NODE_PATH=modules) == PARTS
