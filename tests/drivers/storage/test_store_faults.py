"""PostgreSQL ends connections, restarts, and is away, while clients write: what was acknowledged is there, once."""

import contextlib
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import bson
import psycopg
import pymongo
import pytest
from pymongo.errors import PyMongoError

import mongottl
from tests import postgres
from tests.postgres import OwnCluster
from tests.postgresql.proxies import AFTER_COMMIT, BEFORE_COMMIT, CuttingProxy
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing())

Client = pymongo.MongoClient[dict[str, Any]]
WRITERS = 6
HOST_UNREACHABLE = 6
INDEX = {"key": {"n": 1}, "name": "n_1"}


def is_ready(web_url: str) -> tuple[int, bytes]:
    """What `/readyz` answers."""
    try:
        with urllib.request.urlopen(f"{web_url}readyz") as response:
            return response.status, response.read().strip()
    except urllib.error.HTTPError as error:
        return error.code, error.read().strip()


@pytest.fixture
def cluster() -> Iterator[OwnCluster]:
    made = OwnCluster()
    yield made
    made.remove()


class Writers:
    """Clients that insert, increment and transfer until they are stopped, and note what was acknowledged.

    inserted: keys. incremented: how often. unknown: writes whose outcome the client does not know.
    """

    def __init__(self, uri: str) -> None:
        self.client = Client(uri, retryWrites=True)
        self.stopped = threading.Event()
        self.inserted: list[str] = []
        self.incremented = 0
        self.unknown_inserts: set[str] = set()
        self.unknown_increments = 0
        self.acknowledged = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(WRITERS)]
        self.client.shop.counters.insert_one({"_id": 1, "n": 0})
        self.client.shop.accounts.insert_many([{"_id": number, "n": 100} for number in range(4)])
        for thread in self._threads:
            thread.start()

    def _write(self, number: int) -> None:
        step = 0
        while not self.stopped.is_set():
            step += 1
            if number % 3 == 0:
                self._insert(f"{number} {step}")
            elif number % 3 == 1:
                self._increment()
            else:
                self._transfer(step)

    def _insert(self, key: str) -> None:
        try:
            self.client.shop.keys.insert_one({"_id": key})
        except PyMongoError:
            with self._lock:
                self.unknown_inserts.add(key)
        else:
            with self._lock:
                self.inserted.append(key)
            self.acknowledged.release()

    def _increment(self) -> None:
        try:
            done = self.client.shop.counters.update_one({"_id": 1}, {"$inc": {"n": 1}})
        except PyMongoError:
            with self._lock:
                self.unknown_increments += 1
        else:
            assert done.modified_count == 1
            with self._lock:
                self.incremented += 1
            self.acknowledged.release()

    def _transfer(self, step: int) -> None:
        accounts = self.client.shop.accounts

        def transfer(session: Any) -> None:
            accounts.update_one({"_id": step % 4}, {"$inc": {"n": -1}}, session=session)
            accounts.update_one({"_id": (step + 1) % 4}, {"$inc": {"n": 1}}, session=session)

        with contextlib.suppress(PyMongoError), self.client.start_session() as session:
            session.with_transaction(transfer)

    def wait_for_some(self, count: int = 20) -> None:
        """Returns when so many more writes were acknowledged from now on."""
        while self.acknowledged.acquire(blocking=False):
            pass
        for _ in range(count):
            assert self.acknowledged.acquire(timeout=PATIENCE_S), "writes do not go on"

    def stop(self) -> None:
        self.stopped.set()
        for thread in self._threads:
            thread.join()
        self.client.close()

    def check(self, client: Client) -> None:
        """What was acknowledged is there, and nothing else but what may be."""
        shop = client.shop
        stored = {document["_id"] for document in shop.keys.find()}
        assert set(self.inserted) <= stored <= set(self.inserted) | self.unknown_inserts
        assert len(self.inserted) == len(set(self.inserted))
        counter = shop.counters.find_one({"_id": 1})
        assert counter is not None
        assert self.incremented <= counter["n"] <= self.incremented + self.unknown_increments
        assert sum(account["n"] for account in shop.accounts.find()) == 400
        for name in ("keys", "counters", "accounts"):
            assert shop.command("validate", name, full=True)["valid"], name
            assert shop[name].count_documents({}) == shop[name].estimated_document_count()


def check_all_is_known(writers: Writers, server: mongottl.RunningServer) -> None:
    """Stops the writers: nothing was so long away that a client would have to know."""
    writers.wait_for_some()
    writers.stop()
    with Client(server.uri) as client:
        writers.check(client)
    assert not writers.unknown_inserts
    assert not writers.unknown_increments


def test_writes_go_on_while_connections_are_ended(cluster: OwnCluster) -> None:
    with mongottl.start_server(store=cluster.store) as server:
        writers = Writers(server.uri)
        for _ in range(6):
            writers.wait_for_some()
            assert cluster.end_sessions() > 0
        check_all_is_known(writers, server)
    with mongottl.start_server(store=cluster.store) as server, Client(server.uri) as client:
        writers.check(client)


def test_writes_go_on_while_statements_are_cancelled(cluster: OwnCluster) -> None:
    """As PostgreSQL does by itself when one takes too long."""
    with mongottl.start_server(store=cluster.store) as server:
        writers = Writers(server.uri)
        for _ in range(20):
            writers.wait_for_some()
            while not cluster.cancel_statements():
                continue
        check_all_is_known(writers, server)


def test_writes_go_on_after_restarts_of_the_database(cluster: OwnCluster) -> None:
    with (
        mongottl.start_server(store=cluster.store) as server,
        Client(server.uri) as client,
        client.shop.keys.watch() as stream,
    ):
        writers = Writers(server.uri)
        for _ in range(3):
            writers.wait_for_some()
            cluster.stop()
            cluster.start()
        writers.wait_for_some()
        writers.stop()
        writers.check(client)
        stored = [document["_id"] for document in client.shop.keys.find()]
        seen = [stream.next()["documentKey"]["_id"] for _ in stored]
        assert sorted(seen) == sorted(stored)
        assert stream.try_next() is None
    with mongottl.start_server(store=cluster.store) as server, Client(server.uri) as client:
        writers.check(client)


def test_a_database_that_is_away_is_an_error_that_drivers_repeat(cluster: OwnCluster) -> None:
    with (
        mongottl.start_server(store=cluster.store, store_timeout=1, web_port=0) as server,
        Client(server.uri, retryReads=False) as client,
    ):
        assert server.web_url is not None
        shop = client.get_database("shop")
        shop.keys.insert_one({"_id": 1})
        cluster.stop()
        with pytest.raises(PyMongoError) as refused:
            shop.keys.find_one({"_id": 1})
        assert getattr(refused.value, "code", None) == 6
        assert is_ready(server.web_url) == (503, b"the store does not answer")
        # Whoever does not need the data is answered meanwhile.
        assert client.admin.command("ping")["ok"] == 1
        cluster.start()
        until(lambda: shop.keys.find_one({"_id": 1}))
        shop.keys.insert_one({"_id": 2})
        assert shop.keys.count_documents({}) == 2
        assert is_ready(server.web_url) == (200, b"ok")


@pytest.mark.parametrize(
    "command", [{"create": "made"}, {"createIndexes": "keys", "indexes": [INDEX]}, {"drop": "keys"}]
)
@pytest.mark.parametrize("when", [BEFORE_COMMIT, AFTER_COMMIT])
def test_a_change_of_the_catalog_is_cut_off(cluster: OwnCluster, command: dict[str, Any], when: str) -> None:
    """Before its commit: nothing is done, and the client is told so. After it: it is found out that all was done."""
    proxy = CuttingProxy(f"{cluster.run_folder}/.s.PGSQL.5432", only_commits=True)
    with (
        closing(proxy),
        mongottl.start_server(store=f"postgresql://mongottl@127.0.0.1:{proxy.port}/postgres") as server,
        Client(server.uri) as client,
    ):
        shop = client.shop
        shop.keys.insert_one({"_id": 1})
        proxy.cut = when
        reply = shop.command(command, check=False)
        assert proxy.cuts == 1
        assert reply.get("code") == (HOST_UNREACHABLE if when == BEFORE_COMMIT else None)
        assert shop.command(command)["ok"] == 1
        assert shop.keys.count_documents({}) == ("drop" not in command)


def test_an_index_whose_build_the_database_has_ended_is_built_by_another_server(cluster: OwnCluster) -> None:
    options: dict[str, Any] = {"store": cluster.store, "store_timeout": 1, "topology": "sharded"}
    with (
        mongottl.start_server(**options) as first,
        mongottl.start_server(**options) as second,
        Client(first.uri) as one,
        Client(second.uri) as two,
    ):
        one.shop.keys.insert_many([{"_id": number, "n": number} for number in range(100)])
        command = {"createIndexes": "keys", "indexes": [INDEX]}
        with closing(psycopg.connect(cluster.store)) as holder, ThreadPoolExecutor() as threads:
            holder.execute("SELECT 1 FROM mongottl.records FOR UPDATE")
            building = threads.submit(one.shop.command, command)
            until(lambda: "n_1" in two.shop.keys.index_information())
            cluster.stop()
            with pytest.raises(PyMongoError) as refused:
                building.result()
            assert getattr(refused.value, "code", None) == HOST_UNREACHABLE
        cluster.start()
        until(lambda: two.shop.command(command, maxTimeMS=30_000, check=False)["ok"], "it waits for the first build")
        for client in (one, two):
            assert client.shop.keys.count_documents({"n": {"$gte": 20}}) == 80
            assert client.shop.command("validate", "keys", full=True)["valid"]


def test_a_server_that_has_lost_the_database_to_another_one_writes_nothing(cluster: OwnCluster) -> None:
    with mongottl.start_server(store=cluster.store) as first, Client(first.uri) as client:
        client.shop.keys.insert_one({"_id": 1})
        with psycopg.connect(cluster.store, autocommit=True) as connection:
            # As if another server had been there while the first was cut off.
            connection.execute("UPDATE mongottl.meta SET epoch = epoch + 1")
        cluster.end_sessions()
        with pytest.raises(PyMongoError, match="another server has used the data"):
            client.shop.keys.insert_one({"_id": 2})
        with psycopg.connect(cluster.store) as connection:
            two = bson.encode({"_id": 2})[4:-1]
            assert connection.execute("SELECT FROM mongottl.records WHERE position(%s in doc) > 0", [two]).rowcount == 0
