"""A fresh server for each difference: PyMongo's client, and the clock."""

from collections.abc import Iterator
from typing import Any

import pymongo
import pytest
from pymongo.database import Database

import mongottl


@pytest.fixture
def server() -> Iterator[mongottl.RunningServer]:
    with mongottl.start_server() as running:
        yield running


@pytest.fixture
def database(server: mongottl.RunningServer) -> Iterator[Database[dict[str, Any]]]:
    with pymongo.MongoClient[dict[str, Any]](server.uri) as client:
        yield client["differences"]


@pytest.fixture
def cosmos() -> Iterator[Database[dict[str, Any]]]:
    """A database of a server that speaks the cosmos dialect."""
    with mongottl.start_server(dialect="cosmos") as running, pymongo.MongoClient[dict[str, Any]](running.uri) as client:
        yield client["differences"]
