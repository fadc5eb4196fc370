"""`mongottl --workers N`: processes that share a port and a store, started, watched and stopped together."""

import contextlib
import os
import re
import shutil
import signal
import socket
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest

import mongottl
from mongottl.config import SettingError
from tests import postgres
from tests.drivers.process.test_process import COMMAND, Process, run
from tests.on_store import PREFIX, takes_several_servers, with_schema
from tests.waiting import PATIENCE_S, until

pytestmark = [
    pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing()),
    pytest.mark.skipif(os.name != "posix", reason="signals are POSIX"),
]

Client = pymongo.MongoClient[dict[str, Any]]
Starter = Callable[..., Process]


@pytest.fixture
def store() -> str:
    """The URI of a schema of the test's own, for several servers."""
    return with_schema(PREFIX + uuid.uuid4().hex[:12])


@pytest.fixture
def start(store: str, tmp_path: Path) -> Iterator[Starter]:
    """Starts a server with that store."""
    started: list[Process] = []

    def start(*options: str, command: str = "serve", **environment: str) -> Process:
        log = tmp_path / f"log{len(started)}"
        whole = [*COMMAND, command]
        options = ("--port", "0", "--store", store, *options)
        started.append(Process(log, *options, environment=environment, command=whole))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        assert "Traceback" not in process.log.read_text()
        end_of(process)


def end_of(process: Process) -> None:
    """Returns when no worker of it runs."""
    until(lambda: not any(map(is_running, pids_of(process))))


def pids_of(process: Process) -> list[int]:
    """The processes of the workers that were started until now, the latest one last."""
    return [int(pid) for pid in re.findall(r'Worker started  {"worker": \d+, "pid": (\d+)}', process.log.read_text())]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def connections_to_all(process: Process, workers: int) -> dict[int, Client]:
    """A client of one connection for each worker, by the worker's process."""
    found: dict[int, Client] = {}

    def all_are_found() -> bool:
        client = Client("127.0.0.1", process.port, maxPoolSize=1, loadBalanced=True)
        pid = client.admin.command("serverStatus")["pid"]
        if pid in found:
            client.close()
        else:
            found[pid] = client
        return len(found) == workers

    until(all_are_found, "the system gives all connections to some workers")
    return found


@takes_several_servers
def test_workers_share_port_and_data(start: Starter, tmp_path: Path) -> None:
    (tmp_path / "files/shop").mkdir(parents=True)
    (tmp_path / "files/shop/carts.json").write_text('{"_id": 1}')
    process = start("--workers", "3", "--load", str(tmp_path / "files"), "--user", "ann", MONGOTTL_PASSWORD="x")
    assert ", 3 workers" in process.line
    assert len(pids_of(process)) == 3
    clients = connections_to_all(process, 3)
    assert sorted(clients) == sorted(pids_of(process)) and process.popen.pid not in clients
    for number, client in enumerate(clients.values(), 2):
        assert client.admin.command("hello")["msg"] == "isdbgrid"
        client.shop.carts.insert_one({"_id": number})
    for client in clients.values():
        assert [cart["_id"] for cart in client.shop.carts.find().sort("_id")] == [1, 2, 3, 4]
        client.close()
    process.stop()
    text = process.log.read_text()
    assert len(re.findall('Worker ended  {"worker": [123], "pid": [0-9]+, "status": 0}', text)) == 3
    assert text.count("Loaded") == 1


@takes_several_servers
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_parent_ends_all(start: Starter, number: signal.Signals) -> None:
    process = start("--workers", "2")
    process.stop(number)
    assert not any(map(is_running, pids_of(process)))


@takes_several_servers
def test_a_client_that_does_not_know_of_workers_is_refused(start: Starter) -> None:
    """Its next connection would come to another worker, with a cursor or transaction that this one has not got."""
    process = start("--workers", "2")
    assert process.uri.endswith("/?loadBalanced=true")
    with (
        Client("127.0.0.1", process.port, serverSelectionTimeoutMS=500) as plain,
        pytest.raises(pymongo.errors.ServerSelectionTimeoutError, match="needs loadBalanced=true"),
    ):
        plain.admin.command("ping")
    with Client(process.uri, maxPoolSize=8) as client:
        client.shop.carts.insert_many([{"_id": number} for number in range(40)])
        cursors = [client.shop.carts.find(batch_size=2) for _ in range(8)]
        for cursor in cursors:
            next(cursor)
        for cursor in cursors:
            assert len(cursor.to_list()) == 39
        assert client.admin.command("hello")["msg"] == "isdbgrid"
        with client.start_session() as session, session.start_transaction():
            client.shop.carts.delete_one({"_id": 0}, session=session)
            assert client.shop.carts.find_one({"_id": 0}, session=session) is None
        assert client.shop.carts.count_documents({}) == 39
    process.stop()


@takes_several_servers
def test_commands_that_ask_a_server_take_the_uri(start: Starter) -> None:
    process = start("--workers", "2")
    for arguments in (("ping", process.uri), ("shell", process.uri, "--eval", "db.runCommand({ping: 1}).ok")):
        done = run(*arguments)
        assert done.returncode == 0, done.stderr


@takes_several_servers
def test_a_container_has_workers(start: Starter) -> None:
    process = start("--workers", "2", command="container")
    assert process.popen.stdout is not None
    assert process.popen.stdout.readline() == "Waiting for connections\n"
    for client in connections_to_all(process, 2).values():
        client.close()
    process.stop()


@takes_several_servers
def test_a_worker_that_dies_is_started_again(start: Starter) -> None:
    process = start("--workers", "2")
    first, second = pids_of(process)
    os.kill(second, signal.SIGKILL)
    until(lambda: len(pids_of(process)) == 3)
    again = pids_of(process)[-1]
    clients = connections_to_all(process, 2)
    assert sorted(clients) == sorted([first, again])
    for client in clients.values():
        client.close()
    os.kill(again, signal.SIGKILL)
    until(lambda: '"startedAgainAfterSeconds": 1.0' in process.log.read_text())
    # The signal comes while a worker waits for its start.
    process.stop()
    assert not any(map(is_running, pids_of(process)))


@takes_several_servers
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_one_worker_ends_that_alone(start: Starter, number: signal.Signals) -> None:
    process = start("--workers", "2")
    [first, second] = pids_of(process)
    os.kill(first, number)
    until(lambda: len(pids_of(process)) == 3, "it was not started again")
    assert is_running(second) and not is_running(first)
    process.stop()


@takes_several_servers
def test_the_command_shutdown_ends_all(start: Starter) -> None:
    process = start("--workers", "2")
    with Client(process.uri) as client, contextlib.suppress(pymongo.errors.AutoReconnect):
        client.admin.command("shutdown")
    assert process.popen.wait(PATIENCE_S) == 0
    assert not any(map(is_running, pids_of(process)))


@takes_several_servers
def test_workers_end_with_a_parent_that_was_killed(start: Starter) -> None:
    process = start("--workers", "2")
    process.popen.kill()
    end_of(process)


def test_workers_have_a_private_postgresql(start: Starter) -> None:
    folder = f"/tmp/mttl-workers-{uuid.uuid4().hex[:8]}"  # the path of a socket is short
    options = ("--store", f"local-postgresql:{folder}", "--workers", "2", "--enable-test-commands", "--freeze-clock")
    try:
        process = start(*options, "--now", "2030-01-01")
        with Client(process.uri) as client:
            client.shop.carts.insert_one({"_id": 1})
            assert postmaster(folder)
            # It is started again when it has ended, and the workers go on.
            os.kill(postmaster(folder), signal.SIGQUIT)
            until(lambda: "it is started again" in process.log.read_text())
            client.shop.carts.insert_one({"_id": 2})
        shown: set[int] = set()
        for other in connections_to_all(process, 2).values():
            with other:
                shown.add(other.admin.command("serverStatus")["localTime"].year)
        assert shown == {2030}
        process.stop(signal.SIGINT)
        assert not is_running(postmaster(folder))
        # One whose parent was killed leaves it, and the next start takes the folder over.
        killed = start(*options)
        killed.popen.kill()
        end_of(killed)
        again = start(*options)
        with Client(again.uri) as client:
            assert client.shop.carts.count_documents({}) == 2
        again.stop()
        assert not is_running(postmaster(folder))
    finally:
        for each in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if os.readlink(each / "cwd") == f"{folder}/data":
                    os.kill(int(each.name), signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def postmaster(folder: str) -> int:
    """The process of a private PostgreSQL; 0 if it was stopped."""
    try:
        return int(Path(folder, "data", "postmaster.pid").read_text().split()[0])
    except FileNotFoundError:
        return 0


@takes_several_servers
def test_the_reason_why_no_worker_starts_is_logged_once(start: Starter, store: str) -> None:
    process = start("--workers", "2")
    taken = run("--port", str(process.port), "--store", store, "--workers", "2")
    assert taken.returncode == 1 and taken.stderr.count("\n") == 1
    assert f"cannot listen on 127.0.0.1:{process.port}: Address already in use" in taken.stderr
    away = run("--port", "0", "--store", "postgresql://nobody@127.0.0.1:1/x", "--workers", "2", "--store-timeout", "1")
    assert away.returncode == 1 and away.stderr.count("Cannot start") == 1, away.stderr


def two_free_ports() -> int:
    """A port that nobody listens at, nor at the next one."""
    while True:
        with socket.socket() as first, socket.socket() as second, contextlib.suppress(OSError, OverflowError):
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            second.bind(("127.0.0.1", port + 1))
            return port


@takes_several_servers
def test_each_worker_has_a_page(start: Starter) -> None:
    pytest.importorskip("h11")
    pytest.importorskip("prometheus_client")
    import urllib.request

    free = two_free_ports()
    process = start("--workers", "2", "--web-port", str(free))
    for port in (free, free + 1):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
            assert answer.status == 200
    process.stop()


def test_workers_are_for_a_server_of_its_own() -> None:
    with pytest.raises(SettingError, match=r"^workers: only for a process of its own: mongottl --workers N"):
        mongottl.start_server(workers=2, store="postgresql://x", topology="sharded")
    refused = run("run", "--workers", "2", "--store", "postgresql://x", "--", "true")
    assert refused.returncode == 2 and "--workers: not here; --per-worker starts several servers" in refused.stderr
