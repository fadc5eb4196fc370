"""Several servers with one store have one clock, and one of them deletes what has expired of all."""

import contextlib
import signal
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pymongo
import pytest

import mongottl
from tests import postgres
from tests.drivers.process.test_process import Process
from tests.drivers.storage.test_store_several import stored_records
from tests.drivers.wire_client import WireClient
from tests.on_store import PREFIX, takes_several_servers, with_schema
from tests.waiting import until

pytestmark = [pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing()), takes_several_servers]

Client = pymongo.MongoClient[dict[str, Any]]
YEAR_S = 365 * 86_400


@pytest.fixture
def store() -> str:
    """The URI of a schema of the test's own, for several servers."""
    return with_schema(PREFIX + uuid.uuid4().hex[:12])


@pytest.fixture
def servers(store: str) -> Iterator[list[mongottl.RunningServer]]:
    """Two servers whose clock stands still from the first command on, of whichever."""
    options: dict[str, Any] = {"store": store, "topology": "sharded"}
    with mongottl.start_server(**options) as first, mongottl.start_server(**options) as second:
        yield [first, second]


@pytest.fixture
def clients(servers: list[mongottl.RunningServer]) -> Iterator[tuple[Client, Client]]:
    with Client(servers[0].uri) as client, Client(servers[1].uri) as other:
        yield client, other


def now(client: Client) -> datetime:
    shown: datetime = client.admin.command("serverStatus")["localTime"]
    return shown


def stand_still(servers: list[mongottl.RunningServer]) -> bool:
    return all(server.clock.frozen for server in servers)


def is_later(client: Client, than: datetime) -> bool:
    return now(client) > than


def test_the_clock_is_that_of_all_servers(
    store: str, servers: list[mongottl.RunningServer], clients: tuple[Client, Client]
) -> None:
    one, two = clients
    # It stands still from the first command on, on both.
    began = now(two)
    assert now(one) == began == now(two) and stand_still(servers)
    one.admin.command("advanceClock", 10)
    assert now(two) == now(one) == began + timedelta(seconds=10)
    two.admin.command("setClock", datetime(2040, 1, 1))
    assert now(one) == datetime(2040, 1, 1)
    servers[1].clock.advance(1.5)
    assert now(one) == datetime(2040, 1, 1, 0, 0, 1, 500_000)
    # Who starts later sees it, whatever it is started with.
    with (
        mongottl.start_server(store=store, topology="sharded", frozen=False, now="2030-01-01") as third,
        Client(third.uri) as late,
    ):
        assert now(late) == now(one) == now(late)
        assert stand_still([third])
        late.admin.command("resetClock", 1)
        assert now(one) == now(two) == now(late) == began
        assert one.admin.command("freezeClock", False)["now"] == began
        assert not stand_still([third])
        for client in (late, two, one):
            until(partial(is_later, client, now(client)))
        servers[0].clock.freeze()
        assert now(two) == now(late) == now(one) == now(two)
        assert stand_still([*servers, third])


def test_the_clock_is_moved_by_several_at_once(
    servers: list[mongottl.RunningServer], clients: tuple[Client, Client]
) -> None:
    one, two = clients
    two.shop.made.create_index("n")  # which is imported then
    began = now(one)
    with ThreadPoolExecutor() as threads:
        moves = [threads.submit(clients[number % 2].admin.command, "advanceClock", 1) for number in range(8)]
        moves += [threads.submit(clients[number % 2].admin.command, "freezeClock", True) for number in range(4)]
        made = threads.submit(lambda: [two.shop[f"made{number}"].create_index("n") for number in range(3)])
        assert {move.result()["ok"] for move in moves} == {1.0} and len(made.result()) == 3
    assert now(one) == now(two) == began + timedelta(seconds=8)


def test_a_cluster_time_from_where_the_clock_is_being_moved_is_taken(
    servers: list[mongottl.RunningServer], clients: tuple[Client, Client]
) -> None:
    replies: list[Any] = []
    ended = threading.Event()

    def follow() -> None:
        """Says to one what the other has said, as drivers do."""
        with (
            contextlib.closing(WireClient(servers[0].uri)) as one,
            contextlib.closing(WireClient(servers[1].uri)) as two,
        ):
            heard = one.command({"ping": 1})
            while not ended.is_set() and heard["ok"]:
                for wire in (two, one):
                    heard = wire.command({"ping": 1, "$clusterTime": heard["$clusterTime"]})
                    replies.append(heard)

    follower = threading.Thread(target=follow)
    follower.start()
    for number in range(4):
        clients[number % 2].admin.command("advanceClock", 3 * YEAR_S)
    ended.set()
    follower.join()
    assert [reply for reply in replies if not reply["ok"]] == []


def test_no_server_shows_a_document_after_its_second_nor_loses_one_before(
    store: str, servers: list[mongottl.RunningServer], clients: tuple[Client, Client]
) -> None:
    one = clients[0]
    one.shop.carts.create_index("_ts", expireAfterSeconds=3)
    one.shop.dates.create_index("at", expireAfterSeconds=0)
    start = now(one)
    due: dict[int, int] = {}
    for second in range(12):
        for number in range(4):
            key = 4 * second + number
            document = {"_id": key, "ttl": number} if number else {"_id": key}
            clients[key % 2].shop.carts.insert_one(document)
            due[key] = second + (number or 3)
        clients[second % 2].shop.dates.insert_one({"_id": second, "at": start + timedelta(seconds=second + 2)})
        # Refreshed by the other one, right before it would be gone.
        if second % 3 == 2:
            refreshed = 4 * (second - 1) + 2
            assert clients[second % 2].shop.carts.update_one({"_id": refreshed}, {"$set": {"n": 1}}).modified_count == 1
            due[refreshed] = second + 2
        deleted = clients[second % 2].admin.command("advanceClock", 1)["ttlDeleted"]
        gone = [key for key, at in due.items() if at <= second + 1]
        assert deleted == len(gone) + (second >= 1)
        for key in gone:
            del due[key]
        for client in clients:
            assert sorted(cart["_id"] for cart in client.shop.carts.find()) == sorted(due)
            assert client.shop.carts.count_documents({}) == len(due)
            assert client.shop.dates.distinct("_id") == [key for key in range(second + 1) if key + 2 > second + 1]
    assert stored_records(store) <= len(due) + 1


def test_another_server_deletes_what_has_expired_when_one_is_stopped_or_killed(store: str, tmp_path: Path) -> None:
    options = ("--store", store, "--topology", "sharded", "--port", "0")
    processes = [Process(tmp_path / f"log{number}", *options) for number in range(3)]
    try:
        with Client(processes[0].uri) as client:
            client.shop.carts.create_index("_ts", expireAfterSeconds=100_000)
        for how in (signal.SIGSTOP, signal.SIGKILL):
            reaper = with_duties(processes)
            with Client(reaper.uri) as client:
                client.shop.carts.insert_many([{"ttl": 1} for _ in range(50)])
            reaper.popen.send_signal(how)
            until(lambda: stored_records(store) == 0)
            reaper.popen.send_signal(signal.SIGCONT)
    finally:
        for process in processes:
            process.popen.send_signal(signal.SIGCONT)
            process.kill()


def with_duties(processes: list[Process]) -> Process:
    """The one that does what one of them does for all."""
    found: list[Process] = []
    living = next(process for process in processes if process.popen.poll() is None)
    with Client(living.uri) as client:

        def is_found() -> bool:
            nodes = client.admin.command("serverStatus")["mongottl"]["nodes"]
            ports = [node["port"] for node in nodes if node["duties"] and node["state"] != "lost"]
            found[:] = [process for process in processes if process.port in ports]
            return len(found) == 1

        until(is_found)
    return found[0]


def test_documents_are_purged_by_two_servers_at_once(clients: tuple[Client, Client]) -> None:
    """Who finds that another one has deleted some of its batch looks for the rest."""
    one, two = clients
    one.shop.create_collection("dated")
    one.shop.dated.create_index("at", expireAfterSeconds=60)
    for _ in range(25):
        one.shop.dated.insert_many([{"at": datetime(1971, 1, 1)} for _ in range(200)])  # due at once, for the first
        two.admin.command("advanceClock", 0)  # and looked for by the second
        assert two.shop.dated.count_documents({}) == 0
