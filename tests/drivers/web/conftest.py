"""A server with a page, and a client of it, for each test."""

from collections.abc import Iterator
from typing import Any

import pymongo
import pytest

import mongottl


@pytest.fixture
def server() -> Iterator[mongottl.RunningServer]:
    """A server with a page of its own for each test, since a page tells of all that was done to its server."""
    with mongottl.start_server(web_port=0) as running:
        yield running


@pytest.fixture
def client(server: mongottl.RunningServer) -> Iterator["pymongo.MongoClient[dict[str, Any]]"]:
    with pymongo.MongoClient[dict[str, Any]](server.uri) as connected:
        yield connected
