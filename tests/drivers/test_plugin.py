"""What the installed package gives to Python's tests: fixtures, the server in a thread, the server in trio."""

import importlib.metadata
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pymongo
import pytest
import trio

import mongottl
from mongottl.storage.interface import DataDirectoryError

Client = pymongo.MongoClient[dict[str, Any]]

EXAMPLE = """
import pymongo

def test_session_expires(mongottl_uri, mongottl_clock):
    with pymongo.MongoClient(mongottl_uri) as client:
        sessions = client.shop.sessions
        sessions.create_index("_ts", expireAfterSeconds=30 * 24 * 3600)
        sessions.insert_one({"_id": 1})
        mongottl_clock.advance(30 * 24 * 3600)
        assert sessions.find_one() is None

def test_each_test_has_a_server_of_its_own(mongottl_server):
    with pymongo.MongoClient(mongottl_server.uri) as client:
        assert "shop" not in client.list_database_names()

def test_a_throttled_insert(mongottl_cosmos):
    with pymongo.MongoClient(mongottl_cosmos.uri) as client, mongottl_cosmos.throttle("insert", times=1):
        assert client.shop.command("insert", "orders", documents=[{"_id": 1}])["n"] == 0
        assert client.shop.command("insert", "orders", documents=[{"_id": 1}])["n"] == 1
    assert mongottl_cosmos.request_units().total == 5.88
"""


@pytest.mark.slow
def test_fixtures_come_with_the_package(tmp_path: Path) -> None:
    (tmp_path / "test_example.py").write_text(EXAMPLE)
    entry_points = importlib.metadata.entry_points(group="pytest11", name="mongottl")
    plugin = [] if entry_points else ["-p", "mongottl.pytest_plugin"]  # from a checkout that is not installed
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", *plugin, "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "3 passed" in ended.stdout


def test_plugin_is_declared() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert '[project.entry-points.pytest11]\nmongottl = "mongottl.pytest_plugin"' in project


def test_servers_in_threads_know_nothing_of_each_other() -> None:
    threads = servers_threads()
    with mongottl.start_server() as one, mongottl.start_server() as other:
        assert one.port != other.port
        with Client(one.uri) as client, Client(other.uri) as stranger:
            client.test.things.insert_one({"_id": 1})
            assert stranger.test.things.count_documents({}) == 0
            one.clock.advance(3600)
            assert one.clock.now() - other.clock.now() > timedelta(minutes=59)
    assert servers_threads() == threads


def servers_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "mongottl"}


def test_clock_in_python() -> None:
    with mongottl.start_server() as server, Client(server.uri) as client:
        assert abs(server.clock.now() - datetime.now(UTC)) < timedelta(seconds=5)
        client.test.things.create_index("_ts", expireAfterSeconds=100)
        server.clock.freeze()
        client.test.things.insert_many([{"_id": 1}, {"_id": 2, "ttl": 50}])
        assert server.clock.advance(49) == 0
        assert server.clock.advance(1) == 1
        assert server.clock.advance(50) == 1
        before = server.clock.now()
        server.clock.advance(-1000)
        assert server.clock.now() == before - timedelta(seconds=1000)
        server.clock.freeze(False)
        with pytest.raises(ValueError, match="year"):
            server.clock.advance(1e15)


def test_settings_by_name(tmp_path: Path) -> None:
    with mongottl.start_server(data_dir=str(tmp_path), replica_set="mine") as server, Client(server.uri) as client:
        assert client.admin.command("hello")["setName"] == "mine"
        client.test.things.insert_one({"_id": 1})
        with pytest.raises(DataDirectoryError, match="in use"), mongottl.start_server(data_dir=str(tmp_path)):
            pass
    with mongottl.start_server(data_dir=str(tmp_path)) as server, Client(server.uri) as client:
        assert client.test.things.find_one() == {"_id": 1}


def test_mistakes_are_raised_where_the_server_is_started() -> None:
    with (
        mongottl.start_server() as server,
        pytest.raises(OSError, match=f"127.0.0.1:{server.port}"),
        mongottl.start_server(port=server.port),
    ):
        pass
    with pytest.raises(TypeError), mongottl.start_server(prot=1):
        pass


def test_the_block_s_own_error_comes_through() -> None:
    with pytest.raises(KeyError), mongottl.start_server():
        raise KeyError("mine")


def test_server_in_trio() -> None:
    async def main() -> None:
        config = mongottl.ServerConfig(port=0, quiet=True)
        async with mongottl.open_server(config, clock=mongottl.VirtualClock()) as server:
            assert await trio.to_thread.run_sync(use, server.uri) == 1

    def use(uri: str) -> int:
        with Client(uri) as client:
            client.test.things.insert_one({})
            return client.test.things.count_documents({})

    trio.run(main)
