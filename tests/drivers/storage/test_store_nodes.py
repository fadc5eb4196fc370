"""Servers that have the same store open, or want to: who may, and what becomes of the others."""

import uuid
from pathlib import Path
from typing import Any

import psycopg
import pymongo
import pytest

import mongottl
from mongottl.storage.errors import DataDirectoryError
from tests import postgres
from tests.drivers.process.test_process import Process
from tests.on_store import PREFIX, takes_several_servers, with_schema
from tests.waiting import until

pytestmark = pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing())

Client = pymongo.MongoClient[dict[str, Any]]


@pytest.fixture
def store() -> str:
    """The URI of a schema of the test's own."""
    return with_schema(PREFIX + uuid.uuid4().hex[:12])


def nodes_of(store: str) -> list[tuple[Any, ...]]:
    """Number, topology and address of each place, and until when it is held."""
    place, _, schema = store.rpartition("schema=")
    with psycopg.connect(place.rstrip("?&")) as connection:
        rows = f'SELECT node, topology, address, until_ms FROM "{schema}".nodes ORDER BY node'
        return connection.execute(rows).fetchall()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("replicaSet", "replicaSet"),
        ("replicaSet", "sharded"),
        pytest.param("sharded", "replicaSet", marks=takes_several_servers),
    ],
)
def test_a_second_server_is_refused_in_one_line(first: str, second: str, store: str) -> None:
    with mongottl.start_server(store=store, topology=first) as server:
        port = server.uri.rstrip("/").rpartition(":")[2]
        until(lambda: nodes_of(store)[0][2])
        with pytest.raises(DataDirectoryError) as refused:
            mongottl.start_server(store=store, topology=second)
        line = str(refused.value)
        assert "is in use by another server" in line and "\n" not in line
        assert f":{port}, process " in line and f"--topology {first}" in line
        # Who was refused has changed nothing.
        with Client(server.uri) as client:
            assert client.shop.keys.insert_one({"_id": 1}).acknowledged


def test_a_place_is_renewed_and_given_back(store: str) -> None:
    with mongottl.start_server(store=store):
        [(number, topology, _, first_until)] = nodes_of(store)
        assert topology == "replicaSet"
        until(lambda: nodes_of(store)[0][3] > first_until)
    assert nodes_of(store) == []
    with mongottl.start_server(store=store):
        assert nodes_of(store)[0][0] > number


def test_a_server_that_was_killed_is_replaced_at_once(store: str, tmp_path: Path) -> None:
    options = ("--store", store, "--port", "0")
    first = Process(tmp_path / "first.log", *options)
    try:
        with Client(first.uri) as client:
            client.shop.keys.insert_one({"_id": 1})
        [place] = nodes_of(store)
        first.popen.kill()
        second = Process(tmp_path / "second.log", *options)
        try:
            with Client(second.uri) as client:
                assert client.shop.keys.find_one() == {"_id": 1}
                client.shop.keys.insert_one({"_id": 2})
            assert [found[0] for found in nodes_of(store)] != [place[0]]
        finally:
            second.kill()
    finally:
        first.kill()


def test_a_server_whose_place_was_taken_writes_nothing(store: str) -> None:
    with mongottl.start_server(store=store) as server, Client(server.uri) as client:
        client.shop.keys.insert_one({"_id": 1})
        place, _, schema = store.rpartition("schema=")
        with psycopg.connect(place.rstrip("?&"), autocommit=True) as connection:
            connection.execute(f'DELETE FROM "{schema}".nodes')

        def is_refused() -> bool:
            try:
                client.shop.keys.update_one({"_id": 1}, {"$inc": {"n": 1}})
            except pymongo.errors.PyMongoError as error:
                return "another server has used the data" in str(error)
            return False

        until(is_refused)
