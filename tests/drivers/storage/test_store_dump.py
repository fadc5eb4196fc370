"""A store in use is dumped by pg_dump, and restored into another database, whose server has what was there at once."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pymongo
import pytest
from bson import encode
from pymongo.errors import DuplicateKeyError

import mongottl
from tests import postgres
from tests.oplog_replay import replay
from tests.postgres import OwnCluster
from tests.waiting import until

pytestmark = pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing())

Client = pymongo.MongoClient[dict[str, Any]]
BEFORE = 200


@pytest.fixture
def cluster() -> Iterator[OwnCluster]:
    made = OwnCluster()
    yield made
    made.remove()


class Writer:
    """A client that inserts pairs of documents in transactions, until it is stopped. written: how many pairs."""

    def __init__(self, uri: str) -> None:
        self.client = Client(uri)
        self.written = 0
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        shop = self.client.shop
        while not self._stops.is_set():
            with self.client.start_session() as session, session.start_transaction():
                shop.orders.insert_one({"_id": self.written}, session=session)
                shop.bills.insert_one({"_id": self.written, "order": self.written}, session=session)
            self.written += 1

    def stop(self) -> None:
        self._stops.set()
        self._thread.join()
        self.client.close()


def test_a_dump_of_a_store_in_use_is_restored(cluster: OwnCluster, tmp_path: Path) -> None:
    dump = str(tmp_path / "dump")
    with mongottl.start_server(store=cluster.store) as server, Client(server.uri) as client:
        shop = client.shop
        shop.carts.create_index("_ts", expireAfterSeconds=1000)
        shop.carts.insert_many([{"_id": n, "ttl": 100 if n % 2 else 500} for n in range(10)])
        shop.bills.create_index("order", unique=True)
        client.admin.command("advanceClock", 50)
        with shop.watch() as stream:
            token = stream.resume_token
        writer = Writer(server.uri)
        until(lambda: writer.written >= BEFORE)
        before = writer.written
        cluster.run("pg_dump", "-d", cluster.store, "--schema=mongottl", "-Fc", "-f", dump)
        after = writer.written + 1
        until(lambda: writer.written > after)
        writer.stop()
        with psycopg.connect(cluster.store, autocommit=True) as connection:
            connection.execute("CREATE DATABASE restored")
        cluster.run("pg_restore", "-d", cluster.store_in("restored"), "--exit-on-error", dump)
        # Beside the first server, which goes on.
        with mongottl.start_server(store=cluster.store_in("restored")) as other, Client(other.uri) as restored:
            check(restored, before, after, token)
        assert shop.orders.count_documents({}) == writer.written


def check(client: Client, before: int, after: int, token: Any) -> None:
    shop = client.shop
    orders = {each["_id"]: each for each in shop.orders.find()}
    assert before <= len(orders) <= after
    # All that was committed at the moment of the dump, and of each transaction all or nothing.
    assert sorted(orders) == list(range(len(orders)))
    assert sorted(each["order"] for each in shop.bills.find()) == list(range(len(orders)))
    for name in ("orders", "bills", "carts"):
        assert shop.command("validate", name, full=True)["valid"], name
        assert shop[name].count_documents({}) == shop[name].estimated_document_count()
    logged = replay(client.local["oplog.rs"].find())
    assert logged["shop.orders"] == {encode({"": key}): each for key, each in orders.items()}
    with shop.watch(resume_after=token) as stream:
        seen = [stream.next()["documentKey"]["_id"] for _ in range(2 * len(orders))]
        assert seen == [number for number in range(len(orders)) for _ in range(2)]
        assert stream.try_next() is None
        # It goes on as any server does: indexes, streams, the clock, which stands where it was moved to, and expiry.
        with pytest.raises(DuplicateKeyError):
            shop.bills.insert_one({"_id": "other", "order": 0})
        shop.orders.insert_one({"_id": "new"})
        assert stream.next()["documentKey"] == {"_id": "new"}
    client.admin.command("advanceClock", 49)
    assert shop.carts.count_documents({}) == 10
    client.admin.command("advanceClock", 1)
    assert shop.carts.count_documents({}) == 5
