"""What the installed package gives to Python's tests: fixtures, the server in a thread, the server in trio."""

import asyncio
import importlib.metadata
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pymongo
import pytest
import trio
from pymongo.errors import AutoReconnect, OperationFailure

import mongottl
from mongottl.clock import SystemClock
from mongottl.errors import CommandError
from mongottl.storage.errors import DataDirectoryError
from tests.on_nodes import alone
from tests.on_store import needs_states

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
    project = (Path(__file__).parents[3] / "pyproject.toml").read_text()
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
        assert abs(server.clock.now() - datetime.now(UTC)) < timedelta(minutes=5)
        client.test.things.create_index("_ts", expireAfterSeconds=100)
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


def test_time_stands_still_unless_it_is_let_run() -> None:
    with mongottl.start_server() as server:
        assert server.clock.frozen
        start = server.clock.now()
        server.clock.advance(-1.5)
        server.clock.reset()
        assert server.clock.frozen
        assert server.clock.now() == start
        assert abs(server.clock.now() - datetime.now(UTC)) < timedelta(minutes=5)
    with mongottl.start_server(frozen=False) as server:
        assert not server.clock.frozen
        server.clock.freeze()
        server.clock.reset()
        assert not server.clock.frozen


def test_asking_whether_time_stands_still_is_no_use_of_the_clock() -> None:
    """It still runs until its first use, so that nothing that a test reads of the machine's clock before is later."""
    with mongottl.start_server() as server:
        clock = server.clock._thread.movable_clock()
        assert server.clock.frozen
        assert clock.unsettled
        server.clock.now()
        assert server.clock.frozen
        assert not clock.unsettled


@pytest.mark.parametrize(
    "now",
    ["2030-05-04T12:00:00Z", datetime(2030, 5, 4, 12), datetime(2030, 5, 4, 14, tzinfo=timezone(timedelta(hours=2)))],
)
def test_the_time_at_the_start(now: datetime | str) -> None:
    noon = datetime(2030, 5, 4, 12, tzinfo=UTC)
    with mongottl.start_server(now=now) as server, Client(server.uri) as client:
        assert server.clock.now() == noon
        assert client.admin.command("hello")["localTime"] == noon.replace(tzinfo=None)
        client.test.things.create_index("_ts", expireAfterSeconds=100)
        client.test.things.insert_many([{"_id": 1}, {"_id": 2, "ttl": 50}])
        assert server.clock.set("2030-05-04T12:00:49Z") == 0
        assert server.clock.set(noon + timedelta(seconds=50)) == 1
        assert server.clock.set(date(2030, 6, 1)) == 1
        assert server.clock.set("2030-06-01") == 0
        server.clock.advance(timedelta(days=-31, milliseconds=1))
        assert server.clock.now() == datetime(2030, 5, 1, 0, 0, 0, 1000, UTC)
        server.clock.set("9999-12-31T23:59:59.999Z")
        assert server.clock.now() == datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC)
        server.clock.reset()
        assert server.clock.now() == noon
        with pytest.raises(ValueError, match="ISO 8601"):
            server.clock.set("tomorrow")
        with pytest.raises(TypeError, match="ISO 8601, is needed, not 5"):
            server.clock.set(5)  # type: ignore[arg-type]
        for nonsense in ("1", None, True):
            with pytest.raises(TypeError, match=f"a number of seconds, or a timedelta, is needed, not {nonsense!r}"):
                server.clock.advance(nonsense)  # type: ignore[arg-type]
        for far in (10**400, -(10**400), float("inf"), float("nan")):
            with pytest.raises(ValueError, match=r"cannot be moved by -?(inf|nan) seconds"):
                server.clock.advance(far)
        with pytest.raises(ValueError, match=r"^the time would not be between the years 1970 and 9999$"):
            server.clock.advance(1e300)
        assert server.clock.now() == noon
        with pytest.raises(TypeError, match="True or False is needed, not 'no'"):
            server.clock.freeze("no")  # type: ignore[arg-type]
        assert server.clock.frozen


@needs_states
def test_time_runs_until_the_first_command() -> None:
    """What a test reads of the machine's clock before its first command is not later than the server's time."""
    machine = SystemClock()
    with mongottl.start_server() as server, Client(server.uri) as client:
        client.admin.command("ping")  # a health check, which says nothing about when the tests begin
        pinged_ms = machine.now_ms()
        while (before_ms := machine.now_ms()) == pinged_ms:
            pass  # a clock that stood still at the ping is behind now
        first = client.admin.command("serverStatus")["localTime"].replace(tzinfo=UTC)
        assert before_ms <= round(first.timestamp() * 1000) <= machine.now_ms()
        assert server.clock.now() == first
        server.reset()
        assert server.clock.now() == first


def test_a_clock_s_commands() -> None:
    with mongottl.start_server(now="2030-01-01") as server, Client(server.uri) as client:
        client.test.things.create_index("_ts", expireAfterSeconds=86_400)
        client.test.things.insert_one({})
        reply = client.admin.command("setClock", datetime(2030, 1, 2))
        assert (reply["now"], reply["ttlDeleted"]) == (datetime(2030, 1, 2), 1)
        client.admin.command("freezeClock", False)
        assert client.admin.command("resetClock")["now"] == datetime(2030, 1, 1)
        assert server.clock.frozen
        for wrong, code in (("2030", 14), (datetime(1969, 1, 1), 2)):
            with pytest.raises(OperationFailure) as caught:
                client.admin.command("setClock", wrong)
            assert caught.value.code == code


@pytest.mark.parametrize("frozen", [False, True])
def test_a_clock_that_was_moved_stays_so_over_a_restart(tmp_path: Path, frozen: bool) -> None:
    server = mongottl.start_server(data_dir=str(tmp_path), frozen=frozen)
    with server, Client(server.uri) as client:
        client.test.things.create_index("_ts", expireAfterSeconds=100)
        server.clock.advance(1000)
        client.test.things.insert_one({})
        left = server.clock.now()
        port = server.port
    with server.start(), Client(server.uri) as client:
        assert server.port == port
        assert (
            timedelta(0) <= server.clock.now() - left < (timedelta(milliseconds=1) if frozen else timedelta(seconds=30))
        )
        assert client.test.things.count_documents({}) == 1
        assert not any("ahead" in line for line in client.admin.command("getLog", "startupWarnings")["log"])
        server.clock.reset()
    server.start()
    assert server.clock.now() - left < timedelta(seconds=-900)
    server.clock.advance(1000)
    server.stop()
    config = mongottl.ServerConfig(port=0, quiet=True, data_dir=str(tmp_path))
    with mongottl.start_server(config) as server, Client(server.uri) as client:
        with pytest.raises(RuntimeError, match="cannot be moved"):
            server.clock.advance(1)
        (line,) = [line for line in client.admin.command("getLog", "startupWarnings")["log"] if "ahead" in line]
        assert "Documents are stored ahead of the clock" in line


@alone
def test_a_server_without_a_block() -> None:
    server = mongottl.start_server()
    assert server.start() is server  # it runs already
    with Client(server.uri) as client:
        client.test.things.insert_one({"_id": 1})
        uri = server.uri
        server.stop()
        server.stop()
        for use in (lambda: server.clock.advance(1), server.clock.now, server.clock.freeze, server.request_units):
            with pytest.raises(RuntimeError, match="the server has stopped"):
                use()
        server.start()
        assert server.uri == uri
        assert client.test.things.count_documents({}) == 0
    server.stop()


@alone
def test_a_server_is_started_and_stopped_by_many_threads() -> None:
    before = servers_threads()
    server = mongottl.start_server()

    def change(n: int) -> None:
        for step in range(5):
            (server.start if (n + step) % 2 else server.stop)()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(change, range(6)))
    server.stop()
    assert servers_threads() == before


def test_an_interrupted_start_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C while a server starts."""
    before = servers_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Event, "wait", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            mongottl.start_server(data_dir=tmp_path)
    while servers_threads() != before:
        pass
    with mongottl.start_server(data_dir=tmp_path):
        pass


def _interrupt(event: threading.Event, timeout_s: float | None = None) -> bool:
    raise KeyboardInterrupt


@pytest.mark.parametrize("run", [trio.run, lambda function: asyncio.run(function())])
def test_a_server_in_an_event_loop(run: Callable[[Callable[[], Awaitable[None]]], None]) -> None:
    """Its methods wait, as other functions that are not asynchronous do."""

    async def main() -> None:
        with mongottl.start_server() as server, Client(server.uri) as client, server.unchanged():
            client.test.things.create_index("_ts", expireAfterSeconds=5)
            client.test.things.insert_one({})
            assert server.clock.advance(5) == 1
            server.stop()
            server.start()

    with pytest.raises(CommandError, match="no state"):  # `unchanged` cannot undo a restart
        run(main)


@needs_states
def test_an_error_of_a_block_precedes_one_of_its_end() -> None:
    with mongottl.start_server(dialect="cosmos") as server:
        for block in (server.unchanged, server.throttle):
            server.start()
            with pytest.raises(KeyError), block():
                server.stop()
                raise KeyError("mine")
            server.start()
            with pytest.raises(RuntimeError, match="the server has stopped"), block():
                server.stop()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_that_is_forked_has_no_server(tmp_path: Path) -> None:
    """Nor does it hold its port, its connections and its data directory."""
    with mongottl.start_server(data_dir=tmp_path) as server, Client(server.uri) as client:
        client.test.things.insert_one({"_id": 1})
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(write_end)
            status = 1
            with suppress(BaseException):
                with pytest.raises(RuntimeError, match=f"process {os.getppid()}"):
                    server.clock.advance(1)
                assert not server.running
                server.stop()
                status = 0
                os.read(read_end, 1)
            os._exit(status)
        os.close(read_end)
        server.stop()
        server.start()
        assert client.test.things.find_one() == {"_id": 1}
        os.close(write_end)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@alone
def test_a_server_that_was_shut_down_can_be_started_again() -> None:
    with mongottl.start_server() as server, Client(server.uri) as client:
        with suppress(AutoReconnect):  # before the reply or after it
            client.admin.command("shutdown", force=True)
        while server.running:
            pass
        server.start()
        client.test.things.insert_one({"_id": 1})


@pytest.mark.parametrize("settings", [{}, {"auth": True, "user": "ann", "password": "secret"}, {"dialect": "cosmos"}])
def test_uri_of_a_database(settings: dict[str, Any]) -> None:
    with mongottl.start_server(**settings) as server, Client(server.uri_for("shop")) as client:
        database = client.get_default_database()
        assert database.name == "shop"
        database.orders.insert_one({"_id": 1})
        assert "shop" in client.list_database_names()
        for wrong in ("", "a.b", "a/b", "x" * 64, "\ud800", None, b"shop", 5):
            with pytest.raises(ValueError):
                server.uri_for(wrong)  # type: ignore[arg-type]


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
    with pytest.raises(TypeError, match="there is no setting prot; did you mean port"), mongottl.start_server(prot=1):
        pass
    with pytest.raises(mongottl.SettingError, match=r"^frozen: not together with freeze_clock"):
        mongottl.start_server(frozen=True, freeze_clock=False)
    with pytest.raises(mongottl.SettingError, match=r"^frozen: True or False is needed, not 1"):
        mongottl.start_server(frozen=1)  # type: ignore[arg-type]
    with pytest.raises(OSError, match=r"cannot listen on no-such-host\.invalid:0"):
        mongottl.start_server(host="no-such-host.invalid")
    threads = servers_threads()
    for unusable in (
        {"data_dir": "/dev/null/x"},
        {"load": "/dev/null/x"},
        {"tls_cert": "/dev/null/x"},
        {"tls_self_signed": True, "tls_ca": "/dev/null/x"},
        {"user": "ann", "password_file": "/dev/null/x"},
        {"dialect": "cosmos", "cosmos_account": "shop", "cosmos_key_file": "/dev/null/x"},
    ):
        with pytest.raises(OSError, match=r"^[a-z ]+ /dev/null/x"):
            mongottl.start_server(**unusable)
    for settings in ({"dialect": "Cosmos"}, {"port": 99999}, {"host": "localhost:1"}, {"cursor_timeout_s": -1}):
        [(field, _)] = settings.items()
        with pytest.raises(mongottl.SettingError, match=f"^{field}: "), mongottl.start_server(**settings):
            pass
    config = mongottl.ServerConfig(port=0)
    config.max_connections = 0
    with pytest.raises(ValueError, match=r"^max_connections: "), mongottl.start_server(config):
        pass
    assert servers_threads() == threads


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
