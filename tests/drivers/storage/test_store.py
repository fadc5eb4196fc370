"""Servers that keep their data in PostgreSQL (`--store`): restarts, and clients that write at the same time."""

import threading
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import bson
import pymongo
import pytest
from pymongo.errors import OperationFailure

import mongottl
from mongottl.storage.errors import DataDirectoryError
from mongottl.storage.postgresql.pool import ConnectionPool
from mongottl.storage.postgresql.statements import Answer, Call
from tests import postgres
from tests.drivers.wire_client import WireClient
from tests.on_store import PREFIX, is_citus, with_schema
from tests.waiting import until

pytestmark = pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing())

Client = pymongo.MongoClient[dict[str, Any]]
CLIENTS = 8


@pytest.fixture
def store(request: pytest.FixtureRequest) -> str:
    """The URI of a schema of the test's own."""
    return with_schema(f"{PREFIX}{request.node.name}"[:60])


def test_data_is_there_after_a_restart_and_expires_to_the_second(store: str) -> None:
    with mongottl.start_server(store=store) as server, Client(server.uri) as client:
        carts = client.shop.carts
        carts.create_index("_ts", expireAfterSeconds=100)
        carts.create_index("n", unique=True)
        carts.insert_many([{"_id": n, "n": n} for n in range(300)])
        carts.insert_one({"_id": "own", "n": -1, "ttl": 50})
        client.admin.command("freezeClock", True)
        with client.watch() as stream:
            assert stream.try_next() is None
            resume_token = stream.resume_token
    with mongottl.start_server(store=store) as server, Client(server.uri) as client:
        carts = client.shop.carts
        assert carts.count_documents({}) == 301
        assert sorted(carts.index_information()) == ["_id_", "_ts_1", "n_1"]
        with pytest.raises(OperationFailure) as refused:
            carts.insert_one({"n": 7})
        assert refused.value.code == 11000
        client.admin.command("advanceClock", 50)
        assert carts.count_documents({}) == 300
        client.admin.command("advanceClock", 50)
        assert carts.count_documents({}) == 0
        with client.watch(resume_after=resume_token) as stream:
            assert stream.next()["operationType"] == "delete"
        assert client.shop.command("validate", "carts", full=True)["valid"]


def test_two_servers_do_not_share_a_schema(store: str) -> None:
    with mongottl.start_server(store=store), pytest.raises(DataDirectoryError, match="in use by another server"):
        mongottl.start_server(store=store)


def test_passwords_are_shown_nowhere(store: str) -> None:
    user, _, rest = store.partition("@")
    secret = f"{user}:secret@{rest}&sslpassword=hidden"
    with mongottl.start_server(store=secret) as server, Client(server.uri) as client:
        shown = str(client.admin.command("getCmdLineOpts")) + str(client.admin.command("serverStatus"))
        assert f"{user}:***@" in shown
        assert "secret" not in shown and "hidden" not in shown
        assert "secret" not in str(client.admin.command("getLog", "global"))


def test_half_closed_client_gets_its_answers(store: str) -> None:
    """Although all that it has asked for waits for the store."""
    with mongottl.start_server(store=store) as server, Client(server.uri) as client:
        client.shop.many.insert_many([{"_id": n} for n in range(1000)])
        for _ in range(5):
            with closing(WireClient(server.uri)) as wire:
                for last in (200, 900):
                    wire.send({"find": "many", "filter": {"_id": {"$gte": last}}, "batchSize": 1000}, "shop")
                wire.end_sending()
                assert [len(wire.reply()["cursor"]["firstBatch"]) for _ in range(2)] == [800, 100]


def test_concurrent_increments_are_all_counted(store: str) -> None:
    with mongottl.start_server(store=store) as server, Client(server.uri) as client:
        counters = client.shop.counters
        counters.insert_many([{"_id": n, "n": 0} for n in range(3)])
        with counters.watch() as stream:
            threads = [threading.Thread(target=_increment, args=(counters, 30)) for _ in range(CLIENTS)]
            for thread in threads:
                thread.start()
            seen = [stream.next() for _ in range(CLIENTS * 30)]
            for thread in threads:
                thread.join()
        assert sum(counter["n"] for counter in counters.find()) == CLIENTS * 30
        # Each document's events are in the order of its changes.
        for number in range(3):
            values = [
                event["updateDescription"]["updatedFields"]["n"]
                for event in seen
                if event["documentKey"]["_id"] == number
            ]
            assert values == list(range(1, len(values) + 1))


def _increment(counters: Any, times: int) -> None:
    for number in range(times):
        counters.update_one({"_id": number % 3}, {"$inc": {"n": 1}})


def test_concurrent_transactions_keep_the_sum(store: str) -> None:
    with mongottl.start_server(store=store) as server, Client(server.uri) as client:
        accounts = client.shop.accounts
        accounts.insert_many([{"_id": n, "n": 100} for n in range(4)])
        threads = [threading.Thread(target=_transfer, args=(client, number)) for number in range(CLIENTS)]
        sums: list[int] = []
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            with client.start_session(snapshot=True) as session:
                sums.append(sum(account["n"] for account in accounts.find({}, session=session)))
        for thread in threads:
            thread.join()
        assert set(sums) <= {400}
        assert sum(account["n"] for account in accounts.find()) == 400


def _transfer(client: Client, number: int) -> None:
    accounts = client.shop.accounts
    for step in range(10):
        source, target = (number + step) % 4, (number + step + 1) % 4

        def transfer(session: Any, source: int = source, target: int = target) -> None:
            accounts.update_one({"_id": source}, {"$inc": {"n": -1}}, session=session)
            accounts.update_one({"_id": target}, {"$inc": {"n": 1}}, session=session)

        with client.start_session() as session:
            session.with_transaction(transfer)


def test_one_unique_key_has_one_winner(store: str) -> None:
    with mongottl.start_server(store=store) as server, Client(server.uri) as client:
        won: list[int] = []
        keys = client.shop.keys
        threads = [threading.Thread(target=_insert_all, args=(keys, number, won)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(won) == list(range(40))
        assert keys.count_documents({}) == 40


def _insert_all(keys: Any, number: int, won: list[int]) -> None:
    for key in range(40):
        try:
            keys.insert_one({"_id": key, "by": number})
        except OperationFailure as error:
            assert error.code == 11000
        else:
            won.append(key)


def test_a_purge_passes_over_what_others_have_locked(store: str) -> None:
    import psycopg

    with mongottl.start_server(store=store) as server, Client(server.uri) as client:
        carts = client.shop.carts
        client.admin.command("freezeClock", False)
        carts.create_index("_ts", expireAfterSeconds=100)
        carts.insert_many([{"_id": n} for n in range(1000)])
        carts.insert_many([{"_id": f"own-{n}", "ttl": 50} for n in range(1000)])
        carts.insert_one({"_id": "stays", "ttl": -1})
        database, _, schema = store.rpartition("schema=")
        with psycopg.connect(database.rstrip("?&")) as other:
            some = f'FROM "{schema}".records WHERE doc = ANY (%s)'
            locked = [bson.encode({"_id": 500}), bson.encode({"_id": "own-500", "ttl": 50})]
            if is_citus():  # rows are locked at one place, which the statement has to name
                [(place,)] = other.execute(f"SELECT DISTINCT place {some}", [locked]).fetchall()
                some += f" AND place = {place}"
            assert len(other.execute(f"SELECT 1 {some} FOR UPDATE", [locked]).fetchall()) == 2
            assert client.admin.command("advanceClock", 100)["ttlDeleted"] == 1998
            assert carts.count_documents({}) == 1
            assert stored_expired(client) == 2
            other.rollback()
        until(lambda: stored_expired(client) == 0)
        assert [cart["_id"] for cart in carts.find()] == ["stays"]
        assert client.shop.command("validate", "carts", full=True)["valid"]


def stored_expired(client: Client) -> int:
    """How many expired documents are not purged yet."""
    return int(client.admin.command("serverStatus")["mongottl"]["expiredNotPurged"])


def test_many_ranges_of_an_index_take_few_round_trips(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[object] = []
    read = ConnectionPool.read

    def counted(pool: ConnectionPool, calls: Sequence[Call], until_s: float = 0.0) -> list[Answer]:
        reads.append(calls)
        return read(pool, calls, until_s)

    monkeypatch.setattr(ConnectionPool, "read", counted)
    with mongottl.start_server(store=store) as server, Client(server.uri) as client:
        places = client.shop.places
        places.create_index("n")
        places.create_index([("at", "2dsphere")])
        places.insert_many([{"n": n, "at": [n % 180, n % 89]} for n in range(2000)])
        reads.clear()
        assert len(list(places.find({"n": {"$in": list(range(0, 2000, 2))}}))) == 1000
        assert len(reads) < 60
        reads.clear()
        near = {"$near": {"$geometry": {"type": "Point", "coordinates": [3, 3]}}}
        assert [place["n"] for place in places.find({"at": near}).limit(1)] == [3]
        assert len(reads) < 60
