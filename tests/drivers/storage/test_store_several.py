"""Several servers with one store: each knows what another one has acknowledged of collections, indexes and users."""

import contextlib
import datetime
import itertools
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import bson
import psycopg
import pymongo
import pytest
from bson.timestamp import Timestamp
from pymongo import DeleteOne, UpdateOne
from pymongo.errors import BulkWriteError, OperationFailure, PyMongoError

import mongottl
from mongottl.clock import awake_or_not_s
from mongottl.storage.nodes import LEASE_S, RENEW_S
from tests import postgres
from tests.children import ended_after
from tests.drivers.process.test_process import COMMAND, Process
from tests.drivers.storage.test_store_faults import Writers
from tests.drivers.wire_client import WireClient
from tests.environment import without_settings
from tests.on_store import PREFIX, takes_several_servers, with_schema
from tests.oplog_replay import replay
from tests.postgres import OwnCluster
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing()), takes_several_servers]

Client = pymongo.MongoClient[dict[str, Any]]


@pytest.fixture
def store() -> str:
    """The URI of a schema of the test's own, for several servers."""
    return with_schema(PREFIX + uuid.uuid4().hex[:12])


@pytest.fixture
def clients(store: str) -> Iterator[tuple[Client, Client]]:
    """Clients of two servers."""
    with (
        mongottl.start_server(store=store, topology="sharded") as first,
        mongottl.start_server(store=store, topology="sharded") as second,
        Client(first.uri) as client,
        Client(second.uri) as other,
    ):
        yield client, other


def test_servers_start_at_once_with_an_empty_schema(store: str) -> None:
    login: dict[str, Any] = {"auth": True, "user": "root", "password": "secret"}
    with contextlib.ExitStack() as stack, ThreadPoolExecutor() as threads:
        starts = [threads.submit(mongottl.start_server, store=store, topology="sharded", **login) for _ in range(4)]
        servers = [stack.enter_context(start.result()) for start in starts]
        for number, server in enumerate(servers):
            with Client(server.uri, username="root", password="secret") as client:
                client.shop.carts.insert_one({"_id": number})
                assert client.shop.carts.count_documents({}) == number + 1


def test_collections_are_made_and_dropped_for_all(clients: tuple[Client, Client]) -> None:
    one, two = clients
    one.shop.create_collection("carts")
    assert two.shop.list_collection_names() == ["carts"]
    two.shop.carts.insert_one({"_id": 1})
    assert one.shop.carts.find_one() == {"_id": 1}
    one.shop.carts.insert_one({"_id": 2})
    assert two.shop.carts.count_documents({}) == two.shop.carts.estimated_document_count() == 2
    with pytest.raises(OperationFailure, match="already exists"):
        two.shop.command("create", "carts", capped=True, size=4096)
    one.shop.carts.drop()
    assert two.shop.list_collection_names() == []
    assert two.shop.carts.find_one() is None
    # Made again by the first write.
    two.shop.carts.insert_one({"_id": 3})
    assert list(one.shop.carts.find()) == [{"_id": 3}]
    two.drop_database("shop")
    assert one.list_database_names() == two.list_database_names()
    assert "shop" not in one.list_database_names()


def _read_at(client: Client, taken: dict[str, Any] | None, name: str = "carts") -> dict[str, Any]:
    """The reply to a find, as of the cluster time of another such reply, or of now."""
    concern: dict[str, Any] = {"level": "snapshot"}
    with client.start_session() as session:
        if taken is not None:
            concern["atClusterTime"] = taken["cursor"]["atClusterTime"]
            session.advance_cluster_time(taken["$clusterTime"])
        return client.shop.command("find", name, readConcern=concern, session=session)


def _ids(reply: dict[str, Any]) -> list[int]:
    return [document["_id"] for document in reply["cursor"]["firstBatch"]]


def _refusal(client: Client, taken: dict[str, Any], name: str = "carts") -> int | None:
    with pytest.raises(OperationFailure) as refused:
        _read_at(client, taken, name)
    return refused.value.code


def test_a_snapshot_is_read_through_any_server(clients: tuple[Client, Client]) -> None:
    one, two = clients
    one.shop.carts.insert_one({"_id": 1})
    taken = _read_at(one, None)
    one.shop.carts.insert_one({"_id": 2})
    assert _ids(taken) == [1]
    for client in (two, one, two):
        again = _read_at(client, taken)["cursor"]
        assert again["atClusterTime"] == taken["cursor"]["atClusterTime"]
        assert again["firstBatch"] == taken["cursor"]["firstBatch"]
    # Each is of the present, though this server has written nothing, and has a time of its own.
    times = [taken["cursor"]["atClusterTime"]]
    for number in (3, 4):
        one.shop.carts.insert_one({"_id": number})
        reply = _read_at(two, None)
        assert _ids(reply)[-1] == number
        times.append(reply["cursor"]["atClusterTime"])
    assert times == sorted(set(times))
    # Only the times of snapshots can be named.
    taken["cursor"]["atClusterTime"] = Timestamp(times[0].time - 1, 1)
    assert _refusal(one, taken) == _refusal(two, taken) == 239


@pytest.mark.parametrize("change", ["drop", "rename", "index", "replace"])
def test_a_snapshot_knows_what_has_changed_before_it_was_found(clients: tuple[Client, Client], change: str) -> None:
    one, two = clients
    one.shop.carts.insert_one({"_id": 1})
    one.shop.others.insert_one({"_id": 5})
    taken = _read_at(one, None)
    if change == "rename":
        one.shop.carts.rename("new")
    elif change == "index":
        one.shop.carts.create_index("n")
    else:
        one.shop.carts.drop()
    if change == "replace":
        one.shop.carts.insert_one({"_id": 2})
    if change != "rename":
        one.shop.new.insert_one({"_id": 3})
    assert _refusal(two, taken) == _refusal(two, taken, "new") == 246
    assert _ids(_read_at(two, taken, "others")) == [5]
    # Nor is what changes after that read.
    two.shop.others.create_index("n")
    assert _refusal(two, taken, "others") == 246


def test_a_snapshot_survives_the_server_that_has_taken_it(store: str) -> None:
    with mongottl.start_server(store=store, topology="sharded") as second, Client(second.uri) as two:
        two.shop.carts.insert_one({"_id": 1})
        with mongottl.start_server(store=store, topology="sharded") as first, Client(first.uri) as one:
            taken, lost = _read_at(one, None), _read_at(one, None)
            two.shop.carts.insert_one({"_id": 2})
            assert _ids(_read_at(two, taken)) == [1]
        assert _ids(_read_at(two, taken)) == [1]
        assert _refusal(two, lost) == 239


def test_a_snapshot_session_goes_from_server_to_server(store: str) -> None:
    with (
        mongottl.start_server(store=store, topology="sharded") as first,
        mongottl.start_server(store=store, topology="sharded") as second,
        Client([f"127.0.0.1:{first.port}", f"127.0.0.1:{second.port}"]) as client,
    ):
        client.shop.carts.insert_many([{"_id": number} for number in range(10)])
        with client.start_session(snapshot=True) as session:
            for number in range(10, 30):
                assert client.shop.carts.count_documents({}, session=session) == 10
                client.shop.carts.insert_one({"_id": number})


def test_a_collection_is_renamed_for_all(clients: tuple[Client, Client]) -> None:
    one, two = clients
    one.shop.a.insert_one({"_id": "a"})
    two.shop.b.insert_one({"_id": "b"})
    cursor = two.shop.b.find(batch_size=1)
    one.shop.a.rename("c")
    two.shop.b.rename("a")
    assert one.shop.list_collection_names() == two.shop.list_collection_names() == ["a", "c"]
    assert one.shop.a.find_one() == {"_id": "b"} and two.shop.c.find_one() == {"_id": "a"}
    one.shop.a.rename("c", dropTarget=True)
    assert two.shop.list_collection_names() == ["c"]
    assert two.shop.c.find_one() == {"_id": "b"}
    cursor.close()


def test_indexes_are_kept_by_all(clients: tuple[Client, Client]) -> None:
    one, two = clients
    one.shop.carts.insert_one({"_id": 1, "n": 1})
    two.shop.carts.create_index("n", unique=True)
    with pytest.raises(OperationFailure) as refused:
        one.shop.carts.insert_one({"_id": 2, "n": 1})
    assert refused.value.code == 11000
    one.shop.carts.insert_one({"_id": 3, "n": 3})
    for client in clients:
        assert client.shop.carts.find_one({"n": 3}, hint="n_1") == {"_id": 3, "n": 3}
        assert sorted(client.shop.carts.index_information()) == ["_id_", "n_1"]
    one.shop.carts.drop_index("n_1")
    two.shop.carts.insert_one({"_id": 4, "n": 3})
    with pytest.raises(OperationFailure, match="hint"):
        two.shop.carts.find_one({"n": 3}, hint="n_1")
    assert two.shop.command("validate", "carts", full=True)["valid"]


def test_many_indexes_of_a_command_are_few_changes_of_the_catalog(store: str, clients: tuple[Client, Client]) -> None:
    """All servers learn each of them, and can learn none while the one that builds goes on from one to the next."""
    one, two = clients
    one.shop.carts.insert_one({"_id": 1, "n7": 1})
    before = epoch(store)
    specs = [{"key": {f"n{number}": 1}, "name": f"n{number}"} for number in range(60)]
    assert one.shop.command("createIndexes", "carts", indexes=specs)["numIndexesAfter"] == 61
    assert epoch(store) - before < 10
    assert two.shop.carts.find_one({"n7": 1}, hint="n7") == {"_id": 1, "n7": 1}


def test_an_index_is_built_while_others_write(clients: tuple[Client, Client]) -> None:
    one, two = clients
    one.shop.carts.insert_many([{"_id": n, "n": n % 100} for n in range(6000)])
    ended = threading.Event()
    done: list[int] = []

    def write(first: int) -> None:
        carts = (one if first % 2 else two).shop.carts
        number = first
        while not ended.is_set():
            number += 4
            carts.update_one({"_id": number % 6000}, {"$inc": {"n": 1000}})
            carts.insert_one({"_id": 10_000 + number, "n": [number, number + 1]})
            carts.delete_one({"_id": (number + 3000) % 6000})
            done.append(number)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    until(lambda: len(done) > 20)
    one.shop.carts.create_index("n")
    before = len(done)
    until(lambda: len(done) > before + 20)
    ended.set()
    for writer in writers:
        writer.join()
    for client in clients:
        checked = client.shop.command("validate", "carts", full=True)
        assert checked["valid"], checked["errors"]


def test_a_capped_collection_keeps_its_size_and_the_order_of_inserts(clients: tuple[Client, Client]) -> None:
    one, two = clients
    one.shop.create_collection("log", capped=True, size=100_000, max=40)

    def write(number: int) -> None:
        log = clients[number % 2].shop.log
        for step in range(25):
            log.insert_one({"by": number, "step": step})

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = list(two.shop.log.find())
    assert len(found) == 40 == one.shop.log.count_documents({})
    for number in range(4):
        steps = [entry["step"] for entry in found if entry["by"] == number]
        assert steps == list(range(25))[25 - len(steps) :]
    # By turns, so that each follows what the other server has written.
    for number in range(6):
        clients[number % 2].shop.log.insert_one({"_id": number})
    assert [entry["_id"] for entry in one.shop.log.find().sort("$natural", -1).limit(6)] == [5, 4, 3, 2, 1, 0]


def test_an_index_that_prepares_for_uniqueness_gets_no_duplicates(clients: tuple[Client, Client]) -> None:
    one, two = clients
    one.shop.carts.create_index("n")
    two.shop.command("collMod", "carts", index={"keyPattern": {"n": 1}, "prepareUnique": True})
    won: list[int] = []

    def write(number: int) -> None:
        for key in range(20):
            try:
                clients[number % 2].shop.carts.insert_one({"n": key})
            except OperationFailure as error:
                assert error.code == 11000
            else:
                won.append(key)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(won) == list(range(20)) == sorted(cart["n"] for cart in one.shop.carts.find())


def test_upserts_and_merges_of_the_same_documents_are_all_done(clients: tuple[Client, Client]) -> None:
    clients[0].shop.sources.insert_one({"_id": 0})
    errors: list[Exception] = []

    def write(number: int) -> None:
        shop = clients[number % 2].shop
        try:
            for key in range(15):
                shop.counters.update_one({"_id": key}, {"$inc": {"n": 1}}, upsert=True)
                shop.counters.find_one_and_update({"_id": key}, {"$inc": {"n": 1}}, upsert=True)
                merge = {"into": "merged", "whenMatched": [{"$set": {"n": {"$add": ["$n", 1]}}}]}
                shop.sources.aggregate(
                    [{"$project": {"_id": {"$literal": key}, "n": {"$literal": 1}}}, {"$merge": merge}]
                )
        except Exception as error:
            errors.append(error)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert errors == []
    one, two = clients
    assert [each["n"] for each in two.shop.counters.find().sort("_id")] == [8] * 15
    assert [each["n"] for each in one.shop.merged.find().sort("_id")] == [4] * 15

    def copy(client: Client) -> None:
        client.shop.counters.aggregate([{"$out": "copied"}])

    with ThreadPoolExecutor() as pool:
        list(pool.map(copy, clients * 3))
    assert one.shop.copied.count_documents({}) == 15
    assert set(two.shop.list_collection_names()) == {"sources", "counters", "merged", "copied"}


def test_batches_of_the_same_documents_in_any_order_do_not_lock_each_other_out() -> None:
    """Whoever writes several records or keys in one unit of work locks them in the same order as all others."""
    numbers = range(40)
    rounds = 15
    with contextlib.ExitStack() as stack:
        cluster = OwnCluster()
        stack.callback(cluster.remove)
        clients: list[Client] = []
        for _ in range(2):
            server = stack.enter_context(mongottl.start_server(store=cluster.store, topology="sharded"))
            clients.append(stack.enter_context(Client(server.uri)))
        clients[0].shop.counters.create_index("n")
        clients[0].shop.counters.create_index([("m", -1)])

        def write(worker: int) -> None:
            random = Random(worker)
            shop = clients[worker % 2].shop
            change = {"$inc": {"n": 1, "m": 1}}
            for _ in range(rounds):
                order = random.sample(numbers, len(numbers))
                shop.counters.bulk_write([pymongo.UpdateOne({"_id": number}, change, upsert=True) for number in order])
                shop.counters.update_many({"n": {"$gte": 0}}, {"$inc": {"k": 1}}, hint="n_1")
                shop.counters.update_many({"m": {"$gte": 0}}, {"$inc": {"k": 1}}, hint="m_-1")
                with contextlib.suppress(BulkWriteError):
                    shop.inserted.insert_many([{"_id": number} for number in order], ordered=False)
                shop.inserted.bulk_write([pymongo.DeleteOne({"_id": number}) for number in reversed(order)])

        with ThreadPoolExecutor() as pool:
            list(pool.map(write, range(4)))
        counters = list(clients[0].shop.counters.find())
        assert [(counter["n"], counter["m"]) for counter in counters] == [(4 * rounds, 4 * rounds)] * len(numbers)
        assert deadlocks(cluster.store) == 0


def deadlocks(store: str) -> int:
    """How many PostgreSQL has found. What its other processes have counted is known when they have ended."""
    with psycopg.connect(store, autocommit=True) as connection:
        others = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        connection.execute(f"SELECT pg_terminate_backend(pid, 60_000) {others}")
        connection.execute("SELECT pg_stat_clear_snapshot()")
        row = connection.execute("SELECT sum(deadlocks) FROM pg_stat_database").fetchone()
        assert row is not None
        return int(row[0])


def test_ttl_and_options_are_those_of_all(clients: tuple[Client, Client]) -> None:
    one, two = clients
    for client in clients:
        client.admin.command("freezeClock", True)
    one.shop.carts.create_index("_ts", expireAfterSeconds=1000)
    two.shop.carts.insert_one({"_id": 1})
    two.shop.command("collMod", "carts", index={"keyPattern": {"_ts": 1}, "expireAfterSeconds": 10})
    assert one.shop.carts.index_information()["_ts_1"]["expireAfterSeconds"] == 10
    two.shop.command("collMod", "carts", validator={"n": {"$type": "int"}})
    with pytest.raises(OperationFailure, match="validation"):
        one.shop.carts.insert_one({"_id": 2, "n": "x"})
    # What the other server has written is purged, too, and its clock has moved as well.
    assert one.admin.command("advanceClock", 10)["ttlDeleted"] == 1
    assert two.shop.carts.find_one() is None
    assert one.shop.carts.find_one() is None


def test_an_index_becomes_multikey_for_all(clients: tuple[Client, Client]) -> None:
    one, two = clients
    one.shop.carts.create_index("tags")
    one.shop.carts.insert_one({"_id": 1, "tags": 1})
    assert two.shop.carts.find({"tags": {"$gt": 5, "$lt": 3}}).to_list() == []
    one.shop.carts.insert_one({"_id": 2, "tags": [1, 9]})
    assert [cart["_id"] for cart in two.shop.carts.find({"tags": {"$gt": 5, "$lt": 3}})] == [2]
    assert two.shop.command("validate", "carts", full=True)["valid"]


def test_others_know_that_an_index_is_multikey_before_they_can_find_why(
    clients: tuple[Client, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mongottl.storage.postgresql.units import PostgresUnit, PostgresUnits

    one, two = clients
    one.shop.carts.create_index("tags")
    one.shop.carts.insert_one({"_id": 1, "tags": 1})
    states: list[bool] = []
    commit = PostgresUnits.commit

    def checked(units: PostgresUnits, unit: PostgresUnit) -> None:
        if any(b"array" in form.form for form in unit.forms):
            plan = two.shop.carts.find({"tags": 1}).explain()["queryPlanner"]["winningPlan"]
            states.append(plan["inputStage"]["isMultiKey"])
        commit(units, unit)

    monkeypatch.setattr(PostgresUnits, "commit", checked)
    one.shop.carts.insert_one({"_id": "array", "tags": [1, 2]})
    assert states == [True]


def test_users_and_roles_are_those_of_all(store: str) -> None:
    options: dict[str, Any] = {"store": store, "topology": "sharded", "auth": True}
    with (
        mongottl.start_server(**options, user="root", password="secret") as first,
        mongottl.start_server(**options) as second,
        Client(first.uri, username="root", password="secret") as one,
    ):
        one.shop.command("createUser", "ann", pwd="ann", roles=["readWrite"])
        with Client(second.uri, username="ann", password="ann", authSource="shop") as two:
            two.shop.carts.insert_one({"_id": 1})
            with pytest.raises(OperationFailure, match="not authorized"):
                two.other.carts.insert_one({"_id": 1})
            one.shop.command("grantRolesToUser", "ann", roles=[{"role": "readWrite", "db": "other"}])
            two.other.carts.insert_one({"_id": 1})
            one.shop.command("dropUser", "ann")
            with pytest.raises(OperationFailure):
                two.shop.carts.insert_one({"_id": 2})


@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
def test_keys_of_an_account_of_cosmos_db_are_those_of_all(store: str, at_once: bool) -> None:
    """Also its read-only key, after further servers have started."""
    start = partial(
        mongottl.start_server, store=store, topology="sharded", dialect="cosmos", cosmos_account="a", cosmos_key="a2V5"
    )
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(3) as pool:
        begun = [pool.submit(start) for _ in range(3)] if at_once else []
        started = [future.result() for future in begun] or [start() for _ in range(3)]
        for server in started:
            stack.enter_context(server)
        for server in started:
            assert server.read_only_uri is not None
            with Client(server.uri) as owner, Client(server.read_only_uri) as reader:
                owner.shop.orders.update_one({"_id": 1}, {"$inc": {"n": 1}}, upsert=True)
                assert reader.shop.orders.count_documents({}) == 1


def test_settings_of_the_cluster_are_those_of_all(clients: tuple[Client, Client]) -> None:
    one, two = clients
    one.admin.command("setClusterParameter", {"defaultMaxTimeMS": {"readOperations": 12345}})
    [found] = two.admin.command("getClusterParameter", "defaultMaxTimeMS")["clusterParameters"]
    assert found["readOperations"] == 12345
    two.admin.command({"setUserWriteBlockMode": 1, "global": True})
    with pytest.raises(OperationFailure, match="User writes blocked"):
        one.shop.carts.insert_one({"_id": 1})
    one.admin.command({"setUserWriteBlockMode": 1, "global": False})
    two.shop.carts.insert_one({"_id": 1})


def test_defaults_query_settings_and_index_filters_are_those_of_all(store: str, clients: tuple[Client, Client]) -> None:
    one, two = clients
    one.admin.command("setDefaultRWConcern", defaultReadConcern={"level": "available"})
    two.admin.command("setDefaultRWConcern", defaultWriteConcern={"w": 1, "j": True})
    query = {"find": "carts", "filter": {"n": 1}, "$db": "shop"}
    one.admin.command({"setQuerySettings": query, "settings": {"reject": True, "comment": "no"}})
    one.shop.carts.create_indexes([pymongo.IndexModel("n"), pymongo.IndexModel([("n", 1), ("m", 1)])])
    two.shop.command({"planCacheSetFilter": "carts", "query": {"n": 1, "m": 2}, "indexes": ["n_1"]})
    with mongottl.start_server(store=store, topology="sharded") as third, Client(third.uri) as late:
        for client in (one, two, late):
            found = client.admin.command("getDefaultRWConcern")
            assert (found["defaultReadConcern"], found["defaultWriteConcern"]["j"]) == ({"level": "available"}, True)
            with pytest.raises(OperationFailure) as refused:
                client.shop.carts.find({"n": 5}).to_list()
            assert refused.value.code == 411
            [shown] = client.admin.aggregate([{"$querySettings": {}}]).to_list()
            assert shown["settings"] == {"reject": True, "comment": "no"}
            plan = client.shop.carts.find({"n": 1, "m": 2}).explain()["queryPlanner"]
            assert plan["indexFilterSet"] and plan["winningPlan"]["inputStage"]["indexName"] == "n_1"
        late.admin.command({"removeQuerySettings": query})
        late.shop.command({"planCacheClearFilters": "carts"})
        for client in (one, two):
            assert client.shop.carts.find({"n": 5}).to_list() == []
            assert client.shop.command({"planCacheListFilters": "carts"})["filters"] == []


def test_a_tailing_cursor_waits_for_inserts_of_all(clients: tuple[Client, Client]) -> None:
    one, two = clients
    one.shop.create_collection("log", capped=True, size=100_000)
    one.shop.log.insert_one({"_id": 0})
    # Longer than what is waited for here.
    cursor = one.shop.log.find(cursor_type=pymongo.CursorType.TAILABLE_AWAIT).max_await_time_ms(300_000)
    found: list[int] = []

    def follow() -> None:
        while len(found) < 4:
            found.append(cursor.next()["_id"])

    following = threading.Thread(target=follow)
    following.start()
    for number in range(1, 4):
        until(lambda: len(found) == number)  # noqa: B023
        two.shop.log.insert_one({"_id": number})
    following.join()
    assert found == [0, 1, 2, 3]
    cursor.close()


def test_a_transaction_goes_on_beside_changes_of_other_collections(clients: tuple[Client, Client]) -> None:
    one, two = clients
    one.shop.carts.create_index("n")
    one.shop.carts.insert_one({"_id": 0})
    one.shop.other.insert_one({"_id": 0, "n": 1})
    with two.start_session() as session:
        session.start_transaction()
        two.shop.carts.insert_one({"_id": 1, "n": 1}, session=session)
        one.shop.create_collection("new")
        one.shop.other.create_index("n")
        one.shop.command("collMod", "other", validationLevel="strict")
        one.shop.carts.insert_one({"_id": 2, "n": [1, 2]})  # with which the index becomes multikey
        one.shop.new.drop()
        two.shop.carts.insert_one({"_id": 3, "n": 1}, session=session)
        session.commit_transaction()
        assert one.shop.carts.count_documents({"n": 1}) == 3
        session.start_transaction()
        two.shop.carts.insert_one({"_id": 4}, session=session)
        one.shop.command("collMod", "carts", validationLevel="strict")
        with pytest.raises(OperationFailure) as refused:
            two.shop.carts.insert_one({"_id": 5}, session=session)
        assert refused.value.has_error_label("TransientTransactionError")


@contextlib.contextmanager
def changes_of_other_collections(client: Client) -> Iterator[None]:
    """Meanwhile a client makes and drops collections without a pause."""
    ended = threading.Event()

    def change(name: str) -> None:
        while not ended.is_set():
            client.other[name].create_index("n")
            client.other[name].drop()

    with ThreadPoolExecutor() as pool:
        changes = [pool.submit(change, name) for name in ("a", "b")]
        try:
            yield
        finally:
            ended.set()
        for each in changes:
            each.result()


def commits_of(client: Client) -> int:
    """How many units of work its server has committed; those of other servers are not counted."""
    return int(client.admin.command("serverStatus")["mongottl"]["storage"]["commits"])


def test_batches_are_written_together_beside_changes_of_other_collections(clients: tuple[Client, Client]) -> None:
    """Not document by document because a batch was once overtaken by a change."""
    one, two = clients
    two.shop.create_collection("carts")
    before = commits_of(two)
    with changes_of_other_collections(one):
        for number in range(5):
            two.shop.carts.insert_many([{"_id": 500 * number + n} for n in range(500)])
        assert two.shop.carts.update_many({}, {"$set": {"n": 1}}).modified_count == 2500
        for _ in range(2):
            updates = [UpdateOne({"_id": n}, {"$inc": {"n": 1}}, upsert=True) for n in range(1000)]
            updated = two.shop.carts.bulk_write(updates)
        assert (updated.matched_count, updated.modified_count) == (1000, 1000)
        for n in range(2):
            two.shop.carts.aggregate([{"$match": {"_id": {"$lt": 500}}}, {"$set": {"m": n}}, {"$merge": "merged"}])
        assert two.shop.merged.count_documents({"m": 1}) == 500
        assert two.shop.carts.bulk_write([DeleteOne({"_id": n}) for n in range(500)]).deleted_count == 500
        assert two.shop.carts.delete_many({}).deleted_count == 2000
    assert commits_of(two) - before < 300


def test_an_index_is_built_in_large_batches_beside_changes_of_other_collections(
    clients: tuple[Client, Client],
) -> None:
    """A batch that a change has overtaken is added again as it is, not in smaller and smaller ones."""
    one, two = clients
    two.shop.carts.insert_many([{"_id": n, "n": n} for n in range(5000)])
    before = commits_of(two)
    with changes_of_other_collections(one):
        two.shop.carts.create_index("n")
    assert commits_of(two) - before < 60  # 20 batches of 256 documents
    assert two.shop.carts.count_documents({"n": {"$gte": 0}}, hint="n_1") == 5000
    assert two.shop.command("validate", "carts")["valid"]


def test_both_make_the_same_collections_at_once(clients: tuple[Client, Client]) -> None:
    acknowledged: list[str] = []
    errors: list[Exception] = []

    def insert(client: Client, name: str) -> None:
        try:
            for number in range(20):
                client.shop[f"made_{number}"].insert_one({"_id": name})
                acknowledged.append(f"{name} {number}")
        except Exception as error:
            errors.append(error)

    threads = [
        threading.Thread(target=insert, args=(client, f"{place} {number}"))
        for place, client in enumerate(clients)
        for number in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    one, two = clients
    assert one.shop.list_collection_names() == two.shop.list_collection_names()
    assert len(one.shop.list_collection_names()) == 20
    for number in range(20):
        for client in clients:
            assert client.shop[f"made_{number}"].count_documents({}) == 6
        assert one.shop.command("validate", f"made_{number}", full=True)["valid"]

    # A view and a collection: one of them gets the name.
    def make(client: Client, name: str, **options: Any) -> int:
        try:
            client.shop.create_collection(name, check_exists=False, **options)
        except OperationFailure as error:
            return error.code or 0
        return 0

    with ThreadPoolExecutor() as pool:
        for number in range(15):
            name = f"view_or_collection_{number}"
            view = pool.submit(make, one, name, viewOn="made_1")
            collection = pool.submit(make, two, name)
            assert sorted([view.result(), collection.result()]) == [0, 48]


def epoch(store: str) -> int:
    """The version of the catalog."""
    return _number(store, "epoch", "meta")


def live_nodes(store: str) -> int:
    """How many servers have a place."""
    return _number(store, "count(*)", "nodes")


def _number(store: str, what: str, table: str) -> int:
    place, _, schema = store.rpartition("schema=")
    with psycopg.connect(place.rstrip("?&")) as connection:
        found = connection.execute(f'SELECT {what} FROM "{schema}".{table}').fetchone()
        assert found is not None
        return int(found[0])


@pytest.fixture
def processes(store: str, tmp_path: Path) -> Iterator[tuple[Process, Process]]:
    options = ("--store", store, "--port", "0", "--topology", "sharded")
    first = Process(tmp_path / "first.log", *options)
    try:
        second = Process(tmp_path / "second.log", *options)
        try:
            yield first, second
        finally:
            second.popen.send_signal(signal.SIGCONT)
            second.kill()
    finally:
        first.kill()


def test_changes_are_known_at_once_to_a_server_that_writes(processes: tuple[Process, Process]) -> None:
    """Its writes read the catalog anew while it says to the others what it knows; that must be said then, too, and not
    only at the next renewal of its place."""
    times: list[float] = []
    ended = threading.Event()
    with Client(processes[0].uri) as one, Client(processes[1].uri) as two, ThreadPoolExecutor() as pool:

        def write() -> None:
            while not ended.is_set():
                two.shop.carts.insert_one({})

        writes = pool.submit(write)
        try:
            for number in range(15):
                for _ in range(50):
                    one.admin.command("ping")
                begun = time.monotonic()
                one.other.create_collection(f"c{number}")
                times.append(time.monotonic() - begun)
        finally:
            ended.set()
        writes.result()
    assert sum(taken_s >= 0.9 * RENEW_S for taken_s in times) <= 1, times  # one, since a machine may be busy


def test_a_server_that_was_stopped_says_nothing_old_when_it_goes_on(
    store: str, processes: tuple[Process, Process]
) -> None:
    first, second = processes
    with Client(first.uri) as one, Client(second.uri) as two:
        one.shop.carts.insert_one({"_id": 1})
        one.shop.kept.create_index("n")
        one.shop.kept.insert_one({"_id": 1, "n": 1})
        assert two.shop.carts.find_one() == {"_id": 1}
        found: list[Any] = []
        second.popen.send_signal(signal.SIGSTOP)
        # Asked while it is stopped, it answers when it goes on.
        asking = threading.Thread(target=lambda: found.append(two.shop.carts.find_one()))
        asking.start()
        one.shop.carts.drop()  # is answered when the place of the other one is over
        one.shop.carts.insert_one({"_id": 2})
        one.shop.kept.drop_index("n_1")
        one.shop.kept.create_index("n", unique=True)
        until(lambda: live_nodes(store) == 1)
        second.popen.send_signal(signal.SIGCONT)
        asking.join()
        assert found == [{"_id": 2}]
        with pytest.raises(OperationFailure) as refused:
            two.shop.kept.insert_one({"_id": 2, "n": 1})
        assert refused.value.code == 11000
        until(lambda: live_nodes(store) == 2)
        one.shop.kept.drop()
        assert two.shop.kept.find_one() is None


def test_a_transaction_of_a_server_that_was_stopped_is_not_committed(
    store: str, processes: tuple[Process, Process]
) -> None:
    first, second = processes
    with (
        Client(first.uri) as one,
        Client(second.uri) as two,
        two.start_session() as session,
        two.start_session() as maker,
        two.start_session() as ender,
    ):
        one.shop.carts.create_index("n")
        before = stores(store)
        session.start_transaction()
        two.shop.carts.insert_one({"_id": "of a transaction", "n": 1}, session=session)
        # Which have no session of PostgreSQL that would end.
        for each, name in ((maker, "made"), (ender, "unmade")):
            each.start_transaction()
            two.shop.create_collection(name, session=each)
        second.popen.send_signal(signal.SIGSTOP)
        one.shop.command("collMod", "carts", validator={"n": 2})
        until(lambda: stores(store) == before)
        second.popen.send_signal(signal.SIGCONT)
        for each in (session, maker):
            with pytest.raises(OperationFailure) as refused:
                each.commit_transaction()
            assert refused.value.has_error_label("TransientTransactionError")
        ender.abort_transaction()
        assert two.shop.carts.find_one() is None
        assert two.shop.list_collection_names() == ["carts"]
        assert two.shop.command("validate", "carts", full=True)["valid"]
        assert "Traceback" not in second.log.read_text()


def test_a_server_that_was_killed_holds_up_changes_no_longer_than_its_place(
    store: str, processes: tuple[Process, Process]
) -> None:
    first, second = processes
    with Client(first.uri) as one:
        second.popen.kill()
        one.shop.create_collection("carts")
        assert live_nodes(store) == 1


def test_documents_of_a_server_that_was_killed_are_purged(store: str, processes: tuple[Process, Process]) -> None:
    first, second = processes
    with Client(first.uri) as one:
        one.shop.carts.create_index("_ts", expireAfterSeconds=1000)
        with Client(second.uri) as two:
            two.shop.carts.insert_many([{"_id": number, "ttl": 1} for number in range(20)])
            two.shop.carts.insert_one({"_id": "stays"})
        second.popen.kill()
        until(lambda: stored_records(store) == 1)
        assert list(one.shop.carts.find()) == [{"_id": "stays"}]


def test_writes_are_done_once_while_servers_are_killed_and_stopped(store: str, tmp_path: Path) -> None:
    options = ("--store", store, "--topology", "sharded", "--port")
    servers = [Process(tmp_path / f"log{number}", *options, "0") for number in range(2)]
    try:
        ports = [str(server.port) for server in servers]
        writers = Writers(f"mongodb://127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/")
        for number in (0, 1):
            other = servers[1 - number]
            writers.wait_for_some()
            servers[number].kill()
            writers.wait_for_some()
            servers[number] = Process(tmp_path / f"again{number}", *options, ports[number])
            writers.wait_for_some()
            servers[number].popen.send_signal(signal.SIGSTOP)
            with Client(other.uri) as client:
                client.shop.command("collMod", "keys", validationLevel="strict")
            servers[number].popen.send_signal(signal.SIGCONT)
        writers.wait_for_some()
        writers.stop()
        for server in servers:
            with Client(server.uri) as client:
                writers.check(client)
    finally:
        for server in servers:
            server.popen.send_signal(signal.SIGCONT)
            server.kill()


def test_an_index_of_a_server_that_was_killed_is_built_by_another(
    store: str, processes: tuple[Process, Process]
) -> None:
    first, second = processes
    with Client(first.uri) as one, Client(second.uri) as two:
        one.shop.carts.insert_many([{"_id": number, "n": number} for number in range(4000)])
        building = threading.Thread(target=create_until_killed, args=(two,))
        building.start()
        until(lambda: indexes_being_built(store) > 0)
        second.popen.kill()
        building.join()
        one.shop.carts.create_index("n")
        assert one.shop.carts.count_documents({"n": {"$gte": 2000}}) == 2000
        assert one.shop.command("validate", "carts", full=True)["valid"]


def test_stores_of_a_transaction_are_dropped_when_its_server_was_killed(
    store: str, processes: tuple[Process, Process]
) -> None:
    first, second = processes
    with Client(first.uri) as one, Client(second.uri) as two:
        one.shop.create_collection("carts")
        before = stores(store)
        session = two.start_session()
        session.start_transaction()
        two.shop.made.insert_one({"_id": 1}, session=session)
        assert stores(store) > before
        second.popen.kill()
        until(lambda: stores(store) == before)
        one.shop.made.insert_one({"_id": 2})
        assert one.shop.made.count_documents({}) == 1


def test_temporary_collections_of_a_server_that_was_killed_are_dropped(
    store: str, processes: tuple[Process, Process]
) -> None:
    first, second = processes
    with Client(first.uri) as one, Client(second.uri) as two:
        one.shop.carts.insert_many([{"_id": number} for number in range(3000)])
        one.shop.log.insert_many([{"_id": number} for number in range(3000)])
        before = stores(store)
        pipeline: list[dict[str, Any]] = [
            {"$match": {"$expr": {"$gt": [{"$size": {"$range": [0, 5000]}}, 1]}}},
            {"$out": "copies"},
        ]

        def copy_until_killed() -> None:
            with contextlib.suppress(PyMongoError):
                two.shop.carts.aggregate(pipeline)

        def make_capped_until_killed() -> None:
            with contextlib.suppress(PyMongoError):
                two.shop.command("convertToCapped", "log", size=1 << 20)

        copying = [threading.Thread(target=each) for each in (copy_until_killed, make_capped_until_killed)]
        for each in copying:
            each.start()
        until(lambda: stores(store) > before and entries_with(store, "heldBy") > 0)
        second.popen.kill()
        for each in copying:
            each.join()
        assert one.shop.log.find_one({"_id": 7}) == {"_id": 7}
        one.shop.log.insert_one({"_id": "later"})  # when the other one is taken for dead
        assert entries_with(store, "heldBy") == 0 and one.shop.log.count_documents({}) == 3001
        until(lambda: stores(store) == before)
        until(lambda: sorted(one.shop.list_collection_names()) == ["carts", "log"])
        one.shop.carts.aggregate([{"$limit": 2}, {"$out": "copies"}])
        assert one.shop.copies.count_documents({}) == 2


def test_files_are_loaded_while_another_server_changes_the_catalog(store: str, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    for name in ("carts", "orders"):
        (folder / f"{name}.json").write_text("".join(f'{{"_id": {number}}}\n' for number in range(3000)))
    ended = threading.Event()
    with mongottl.start_server(store=store, topology="sharded") as first, Client(first.uri) as one:

        def change() -> None:
            while not ended.is_set():
                one.other.made.create_index("n")
                one.other.made.drop()

        changing = threading.Thread(target=change)
        changing.start()
        try:
            with (
                mongottl.start_server(store=store, topology="sharded", load=str(tmp_path)) as second,
                Client(second.uri) as two,
            ):
                for client in (one, two):
                    assert [client.shop[name].count_documents({}) for name in ("carts", "orders")] == [3000, 3000]
        finally:
            ended.set()
            changing.join()


def test_files_are_loaded_for_longer_than_a_place_is_given(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is not attended to before it runs."""
    folder = tmp_path / "shop"
    folder.mkdir()
    for number in range(10):
        (folder / f"c{number}.json").write_text('{"_id": 1}\n')
    looks = itertools.count(1)

    def passing_s() -> float:
        return awake_or_not_s() + 0.5 * min(next(looks), 30)

    monkeypatch.setattr("mongottl.storage.postgresql.nodes.awake_or_not_s", passing_s)
    with (
        mongottl.start_server(store=store, topology="sharded", load=str(tmp_path)) as server,
        Client(server.uri) as client,
    ):
        assert next(looks) * 0.5 > 2 * LEASE_S
        assert sorted(client.shop.list_collection_names()) == sorted(f"c{number}" for number in range(10))


def test_nothing_is_loaded_by_a_server_that_is_taken_for_dead_meanwhile(store: str, tmp_path: Path) -> None:
    """Others have dropped what it had loaded by then."""
    folder = tmp_path / "shop"
    folder.mkdir()
    for name in ("carts", "orders"):
        (folder / f"{name}.json").write_text("".join(f'{{"_id": {number}}}\n' for number in range(20_000)))
    command = [*COMMAND, "--store", store, "--port", "0", "--topology", "sharded", "--load", str(tmp_path)]
    with mongottl.start_server(store=store, topology="sharded") as server, Client(server.uri) as client:
        before = stores(store)
        with ended_after(subprocess.Popen(command, env=without_settings())) as loading:
            until(lambda: stores(store) > before)
            loading.send_signal(signal.SIGSTOP)
            until(lambda: live_nodes(store) == 1 and stores(store) == before)
            loading.send_signal(signal.SIGCONT)
            assert loading.wait(PATIENCE_S) == 1
        assert client.shop.list_collection_names() == []


def stores(store: str) -> int:
    place, _, schema = store.rpartition("schema=")
    with psycopg.connect(place.rstrip("?&")) as connection:
        found = connection.execute(f'SELECT count(*) FROM "{schema}".stores WHERE NOT dropped').fetchone()
        assert found is not None
        return int(found[0])


def create_until_killed(client: Client) -> None:
    with contextlib.suppress(PyMongoError):
        client.shop.carts.create_index("n")


def indexes_being_built(store: str) -> int:
    return entries_with(store, "builder")


def entries_with(store: str, field: str) -> int:
    """How many entries of the catalog have a field of this name."""
    place, _, schema = store.rpartition("schema=")
    with psycopg.connect(place.rstrip("?&")) as connection:
        rows = f"SELECT count(*) FROM \"{schema}\".catalog WHERE position('{field}'::bytea in value) > 0"
        found = connection.execute(rows).fetchone()
        assert found is not None
        return int(found[0])


def stored_records(store: str) -> int:
    """How many documents are stored with a time to live, their own or that of their collection."""
    place, _, schema = store.rpartition("schema=")
    with psycopg.connect(place.rstrip("?&")) as connection:
        rows = f'SELECT count(*) FROM "{schema}".records WHERE ttl >= 0 AND octet_length(doc) < 40'
        found = connection.execute(rows).fetchone()
        assert found is not None
        return int(found[0])


@pytest.fixture
def wires(store: str) -> Iterator[tuple[WireClient, WireClient]]:
    """Connections to two servers, over which commands say themselves to which session they belong."""
    with (
        mongottl.start_server(store=store, topology="sharded") as first,
        mongottl.start_server(store=store, topology="sharded") as second,
        contextlib.closing(WireClient(first.uri)) as one,
        contextlib.closing(WireClient(second.uri)) as two,
    ):
        yield one, two


def test_a_retryable_write_is_executed_once_whoever_gets_it(wires: tuple[WireClient, WireClient]) -> None:
    one, two = wires
    one.command({"insert": "counters", "documents": [{"_id": number, "n": 0} for number in range(3)]})
    session = {"id": bson.Binary(uuid.uuid4().bytes, 4)}
    increment = {"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}
    writes: list[dict[str, Any]] = [
        {"insert": "carts", "documents": [{"_id": "a"}, {"_id": "b"}]},
        {"update": "counters", "updates": [increment, {**increment, "q": {"_id": 2}}]},
        {"findAndModify": "counters", "query": {"_id": 0}, "update": {"$inc": {"n": 5}}, "new": True},
        {"update": "carts", "updates": [{"q": {"_id": "c"}, "u": {"$set": {"n": 1}}, "upsert": True}]},
        {"delete": "carts", "deletes": [{"q": {"_id": "a"}, "limit": 1}, {"q": {"_id": "c"}, "limit": 1}]},
        {"findAndModify": "carts", "query": {"_id": "b"}, "remove": True},
    ]
    for number, write in enumerate(writes):
        command = {**write, "lsid": session, "txnNumber": bson.Int64(number)}
        sent, repeated = wires if number % 2 else (two, one)
        first = sent.command(command)
        assert first["ok"] == 1, first
        for client in (repeated, sent, repeated):
            again = client.command(command)
            assert [again.get(name) for name in ("n", "value")] == [first.get(name) for name in ("n", "value")], write
            assert "retriedStmtIds" in again or again.get("retriedStmtId") == 0, (write, again)
    counters = one.command({"find": "counters", "sort": {"_id": 1}})["cursor"]["firstBatch"]
    assert [counter["n"] for counter in counters] == [5, 1, 1]
    assert two.command({"count": "carts"})["n"] == 0


def test_the_rest_of_a_batch_is_executed_by_who_gets_the_retry(wires: tuple[WireClient, WireClient]) -> None:
    one, two = wires
    retried = {"lsid": {"id": bson.Binary(uuid.uuid4().bytes, 4)}, "txnNumber": bson.Int64(1)}
    one.command({"insert": "carts", "documents": [{"_id": 0}, {"_id": 1}], **retried})
    reply = two.command({"insert": "carts", "documents": [{"_id": number} for number in range(4)], **retried})
    assert (reply["n"], reply["retriedStmtIds"]) == (4, [0, 1])
    assert one.command({"count": "carts"})["n"] == 4


def test_the_commit_of_a_transaction_is_known_to_all(wires: tuple[WireClient, WireClient]) -> None:
    one, two = wires
    one.command({"create": "carts"})
    named = {"lsid": {"id": bson.Binary(uuid.uuid4().bytes, 4)}, "txnNumber": bson.Int64(1), "autocommit": False}
    assert one.command({"insert": "carts", "documents": [{"_id": 0}], "startTransaction": True, **named})["ok"] == 1
    assert one.command({"commitTransaction": 1, **named}, "admin")["ok"] == 1
    assert two.command({"commitTransaction": 1, **named}, "admin")["ok"] == 1
    assert two.command({"count": "carts"})["n"] == 1
    # Both have begun a transaction of the same number, which no driver does.
    named["txnNumber"] = bson.Int64(2)
    for number, wire in enumerate(wires, 1):
        insert = {"insert": "carts", "documents": [{"_id": number}], "startTransaction": True}
        assert wire.command({**insert, **named})["ok"] == 1
    assert one.command({"commitTransaction": 1, **named}, "admin")["ok"] == 1
    assert two.refusal({"commitTransaction": 1, **named}, "admin")[0] == 225
    assert two.command({"count": "carts"})["n"] == 2


@pytest.mark.parametrize("ends", ["commitTransaction", "abortTransaction"])
def test_a_transaction_that_another_server_is_asked_to_end_is_aborted(
    wires: tuple[WireClient, WireClient], ends: str
) -> None:
    """The client has lost the connection to its server: it ends the transaction by another, and begins it again there.
    The commit that it has sent before may arrive later."""
    one, two = wires
    one.command({"insert": "carts", "documents": [{"_id": 0, "n": 0}]})
    lsid = {"id": bson.Binary(uuid.uuid4().bytes, 4)}
    first, again = ({"lsid": lsid, "txnNumber": bson.Int64(number), "autocommit": False} for number in (1, 2))
    counted = {"update": "carts", "updates": [{"q": {"_id": 0}, "u": {"$inc": {"n": 1}}}], "startTransaction": True}
    assert one.command({**counted, **first})["ok"] == 1
    refused = two.command({ends: 1, **first}, "admin")
    assert (refused["code"], refused["errorLabels"]) == (251, ["TransientTransactionError"])
    assert two.command({**counted, **again})["ok"] == 1
    assert two.command({"commitTransaction": 1, **again}, "admin")["ok"] == 1
    assert one.refusal({"commitTransaction": 1, **first}, "admin")[0] == 251
    assert one.command({"find": "carts"})["cursor"]["firstBatch"] == [{"_id": 0, "n": 1}]


def test_a_transaction_is_aborted_of_a_server_that_cannot_be_asked(processes: tuple[Process, Process]) -> None:
    first, second = processes
    lsid = {"id": bson.Binary(uuid.uuid4().bytes, 4)}
    named = {"lsid": lsid, "txnNumber": bson.Int64(1), "autocommit": False}
    with (
        contextlib.closing(WireClient(first.uri)) as one,
        contextlib.closing(WireClient(second.uri)) as two,
    ):
        one.command({"create": "carts"})
        insert = {"insert": "carts", "documents": [{"_id": 0}]}
        assert one.command({**insert, "startTransaction": True, **named})["ok"] == 1
        first.popen.send_signal(signal.SIGSTOP)
        # The answer by which the client begins the transaction anew.
        assert two.refusal({"commitTransaction": 1, **named}, "admin")[0] == 251
        first.popen.send_signal(signal.SIGCONT)
        assert not one.command({"commitTransaction": 1, **named}, "admin")["ok"]
        until(lambda: one.refusal({"commitTransaction": 1, **named}, "admin")[0] == 251)
        assert two.command({"count": "carts"})["n"] == 0


class RowsHeld:
    """The rows of a table, which a session of PostgreSQL has locked."""

    def __init__(
        self, holder: "psycopg.Connection[Any]", other: "psycopg.Connection[Any]", table: str, which: str
    ) -> None:
        self._holder = holder
        self._other = other
        self._table = table
        holder.execute(f"SELECT 1 FROM {table} {which} FOR UPDATE".encode())

    def lock_all(self, table: str) -> None:
        """Locks a table of the same schema, as vacuum does while it cuts off its end, and lets the rows go."""
        self._holder.rollback()
        name = f"{self._table.rpartition('.')[0]}.{table}"
        self._holder.execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE".encode())

    def change(self, change: str) -> None:
        self._other.execute(f"UPDATE {self._table} SET {change}".encode())

    def close_next_epoch(self) -> None:
        """Says, as the owner of the rows of `meta` does before it drops a collection, which version it makes."""
        sequence = f"{self._table.rpartition('.')[0]}.closed_epoch"
        self._other.execute(f"SELECT setval('{sequence}', epoch + 1) FROM {self._table}".encode())

    def _number(self, statement: str) -> int:
        [(number,)] = self._other.execute(statement.encode()).fetchall()
        assert isinstance(number, int)
        return number

    def until_met(self) -> None:
        """Waits until somebody has waited for them in vain."""
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        until(lambda: self._number(waiting) > 0)
        until(lambda: self._number(waiting) == 0)

    def until_wanted(self) -> None:
        """Waits until somebody waits for them."""
        until(lambda: self._number("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") > 0)

    def until_met_often(self, times: int = 6) -> None:
        """Waits until they have been waited for in vain several times."""
        met: set[Any] = set()
        waiting = "SELECT pid, query_start FROM pg_stat_activity WHERE wait_event_type = 'Lock'"

        def count() -> int:
            met.update(self._other.execute(waiting.encode()).fetchall())
            return len(met)

        until(lambda: count() >= times)

    def let_go(self) -> None:
        self._holder.rollback()

    def count(self) -> int:
        return self._number(f"SELECT count(*) FROM {self._table}")


@contextlib.contextmanager
def rows_held(store: str, table: str, which: str = "") -> Iterator[RowsHeld]:
    place, _, schema = store.rpartition("schema=")
    place = place.rstrip("?&")
    with psycopg.connect(place) as holder, psycopg.connect(place, autocommit=True) as other:
        yield RowsHeld(holder, other, f'"{schema}".{table}', which)


def test_a_commit_is_no_conflict_while_its_server_cannot_be_cleared_away(
    store: str, processes: tuple[Process, Process]
) -> None:
    """For a conflict the driver begins the transaction anew, which may have been committed."""
    first, second = processes
    named = {"lsid": {"id": bson.Binary(uuid.uuid4().bytes, 4)}, "txnNumber": bson.Int64(1), "autocommit": False}
    with (
        contextlib.closing(WireClient(first.uri)) as one,
        contextlib.closing(WireClient(second.uri)) as two,
    ):
        one.command({"create": "carts"})
        assert one.command({"insert": "carts", "documents": [{}], "startTransaction": True, **named})["ok"] == 1
        first.popen.send_signal(signal.SIGSTOP)
        with rows_held(store, "meta") as held:  # as by a change of the catalog whose commit waits for a standby
            assert two.refusal({"commitTransaction": 1, **named}, "admin")[0] == 6
            held.let_go()
        assert two.refusal({"commitTransaction": 1, **named}, "admin")[0] == 251
        first.popen.send_signal(signal.SIGCONT)


def test_servers_go_on_while_the_table_of_the_catalog_is_locked(store: str, clients: tuple[Client, Client]) -> None:
    with rows_held(store, "meta") as held:
        held.lock_all("catalog")
        held.change("epoch = epoch + 1")  # so that both have to read the catalog
        held.until_met_often()
        held.let_go()
        for client in clients:
            client.shop.carts.insert_one({})
            assert client.shop.carts.find_one() is not None


def test_writes_wait_for_a_change_of_the_catalog_that_takes_long(store: str, clients: tuple[Client, Client]) -> None:
    """As its commit does while no standby answers: for longer than a statement waits for locks."""
    _, two = clients
    two.shop.carts.insert_one({"_id": 1})
    with rows_held(store, "meta") as held, ThreadPoolExecutor() as threads:
        held.close_next_epoch()
        inserting = threads.submit(two.shop.carts.insert_one, {"_id": 2})
        held.until_met_often(2)
        assert two.shop.carts.count_documents({}) == 1, "reads go on"
        held.let_go()
        inserting.result()
    assert two.shop.carts.count_documents({}) == 2


def test_a_server_goes_on_while_others_hold_what_it_is_to_free(store: str, clients: tuple[Client, Client]) -> None:
    one, _ = clients
    one.shop.carts.insert_many([{"_id": number} for number in range(2000)])
    with rows_held(store, "records") as held:
        one.shop.carts.drop()
        held.until_met()  # they are being freed
        held.let_go()
        one.shop.carts.insert_one({"_id": 0})
        until(lambda: held.count() < 1000)


# The next unit of work waits right before it is committed, until the test says `go`.
PAUSE = """
CREATE TABLE said (word text);
CREATE SEQUENCE commits;
CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval('commits') = 1 THEN
        WHILE NOT EXISTS (SELECT FROM said) LOOP PERFORM pg_sleep(0.01); END LOOP;
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER pause AFTER INSERT ON oplog DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION pause();
"""
ASLEEP = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
WAITING = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@pytest.mark.parametrize("change", [{"drop": "carts"}, {"renameCollection": "shop.carts", "to": "shop.sold"}])
@pytest.mark.parametrize("is_carried_out", [True, False])
def test_nothing_is_logged_after_the_end_of_its_collection(
    store: str, clients: tuple[Client, Client], change: dict[str, Any], is_carried_out: bool
) -> None:
    one, two = clients
    one.shop.carts.insert_one({"_id": "old"})
    two.shop.carts.insert_one({"_id": "older"})
    place, _, schema = store.rpartition("schema=")
    with psycopg.connect(place.rstrip("?&"), autocommit=True) as connection, ThreadPoolExecutor() as threads:
        connection.execute(f'SET search_path = "{schema}"'.encode())
        connection.execute(PAUSE.encode())
        changing = threads.submit((one.shop if "drop" in change else one.admin).command, change)
        until(lambda: connection.execute(ASLEEP.encode()).rowcount == 1)
        inserting = threads.submit(two.shop.carts.insert_one, {"_id": "new"})
        until(lambda: inserting.done() or connection.execute(WAITING.encode()).rowcount > 0)
        if is_carried_out:
            connection.execute("INSERT INTO said VALUES ('go')")
            changing.result()
        else:
            connection.execute(ASLEEP.replace("SELECT 1", "SELECT pg_terminate_backend(pid)").encode())
            assert isinstance(changing.exception(), PyMongoError)
        inserting.result()
    logged = replay([entry for entry in two.local["oplog.rs"].find() if entry["ns"].startswith("shop.")])
    stored = {
        f"shop.{name}": {bson.encode({"": document["_id"]}): document for document in two.shop[name].find()}
        for name in two.shop.list_collection_names()
    }
    assert logged == stored


def test_a_change_stream_sees_the_writes_of_all_in_one_order(clients: tuple[Client, Client]) -> None:
    one, two = clients
    one.shop.create_collection("carts")
    with one.shop.carts.watch() as stream, two.shop.carts.watch() as other:
        for number in range(30):
            clients[number % 2].shop.carts.insert_one({"_id": number})
        seen = [stream.next() for _ in range(30)]
        assert [event["documentKey"]["_id"] for event in seen] == list(range(30))
        assert [other.next()["_id"] for _ in range(30)] == [event["_id"] for event in seen]
    with two.shop.carts.watch(resume_after=seen[9]["_id"]) as resumed:
        assert [resumed.next()["documentKey"]["_id"] for _ in range(20)] == list(range(10, 30))
    # A token of a stream that has seen nothing, of a server that has written less than others.
    one.shop.carts.insert_one({"_id": 30})
    with two.shop.carts.watch() as empty:
        token = empty.resume_token
    one.shop.carts.insert_one({"_id": 31})
    with one.shop.carts.watch(resume_after=token) as resumed:
        assert resumed.next()["documentKey"]["_id"] == 31
    for each in clients:
        log = each.local["oplog.rs"]
        assert log.estimated_document_count() == len(list(log.find({}, {"_id": 1})))


def test_a_transaction_of_many_entries_has_one_time_with_the_collection_that_it_makes(
    clients: tuple[Client, Client],
) -> None:
    """It is made before what is inserted into it, and nothing comes between the entries of the transaction."""
    client, other = clients
    client.shop.create_collection("carts")
    size = 7 << 20

    def insert(session: pymongo.client_session.ClientSession) -> None:
        for number in range(3):
            client.shop.carts.insert_one({"_id": number, "text": "x" * size}, session=session)
        client.shop.orders.insert_one({"_id": 3}, session=session)

    with other.watch(show_expanded_events=True, max_await_time_ms=100) as stream, client.start_session() as session:
        session.with_transaction(insert)
        events = [stream.next() for _ in range(5)]
    assert [event["operationType"] for event in events] == ["create", *["insert"] * 4]
    assert len({event["clusterTime"] for event in events[1:]}) == 1
    with other.watch(start_at_operation_time=events[-1]["clusterTime"], max_await_time_ms=100) as stream:
        assert [stream.next()["documentKey"] for _ in range(4)] == [{"_id": number} for number in range(4)]


def test_the_oplog_has_what_was_written_while_others_are_writing(store: str, clients: tuple[Client, Client]) -> None:
    one, two = clients
    one.shop.many.insert_many([{"_id": number} for number in range(100)])
    log = two.local["oplog.rs"]
    middle = bson.encode({"_id": 50}).hex()
    row = f"WHERE doc = '\\x{middle}'"
    with ThreadPoolExecutor(1) as pool, rows_held(store, "records", row) as held:
        update = pool.submit(one.shop.many.update_many, {}, {"$set": {"n": 1}})
        for number in range(5):
            held.until_wanted()
            two.shop.carts.insert_one({"_id": number})
            [latest] = log.find({"ns": "shop.carts", "op": "i"}).sort("$natural", -1).limit(1)
            assert latest["o"] == {"_id": number}
            assert log.count_documents({"ns": "shop.carts", "op": "i"}) == number + 1
        held.let_go()
        assert update.result(PATIENCE_S).modified_count == 100


def test_entries_of_the_profiler_are_stored_though_others_hold_the_collection(
    store: str, clients: tuple[Client, Client]
) -> None:
    """As servers do that profile the same database."""
    one, _ = clients
    one.shop.create_collection("carts")
    one.shop.command("profile", 2)
    with rows_held(store, "stores") as held, ThreadPoolExecutor(1) as pool:
        found = pool.submit(one.shop.carts.find_one, {"n": 1})
        held.until_met()
        held.let_go()
        assert found.result(PATIENCE_S) is None
    one.shop.command("profile", 0)
    assert one.shop["system.profile"].count_documents({"command.filter.n": 1}) == 1


def test_a_causal_session_reads_on_one_server_what_it_has_written_on_another(clients: tuple[Client, Client]) -> None:
    one, two = clients
    one.shop.create_collection("carts")
    for number in range(20):
        writer, reader = clients if number % 2 else (two, one)
        with writer.start_session(causal_consistency=True) as session:
            writer.shop.carts.insert_one({"_id": number}, session=session)
            assert session.cluster_time is not None and session.operation_time is not None
            with reader.start_session(causal_consistency=True) as follower:
                follower.advance_cluster_time(session.cluster_time)
                follower.advance_operation_time(session.operation_time)
                assert reader.shop.carts.find_one({"_id": number}, session=follower) == {"_id": number}


def test_cursors_end_with_a_collection_that_another_server_drops_or_renames(clients: tuple[Client, Client]) -> None:
    one, two = clients
    for name in ("dropped", "renamed", "replaced", "kept"):
        one.shop[name].insert_many([{"_id": number} for number in range(3)])
    cursors = {name: one.shop[name].find(batch_size=1) for name in ("dropped", "renamed", "replaced", "kept")}
    for cursor in cursors.values():
        next(cursor)
    two.shop.dropped.drop()
    two.shop.renamed.rename("other")
    two.shop.other.rename("replaced", dropTarget=True)
    status = one.admin.command("serverStatus")
    assert status["metrics"]["cursor"]["open"]["total"] == 1
    for name in ("dropped", "renamed", "replaced"):
        with pytest.raises(OperationFailure, match=f"collection .*: shop.{name}") as ended:
            next(cursors[name])
        assert ended.value.code == 175
    assert [document["_id"] for document in cursors["kept"]] == [1, 2]


def test_empty_timestamps_are_in_the_order_of_the_writes_of_all(clients: tuple[Client, Client]) -> None:
    one, two = clients
    empty = bson.Timestamp(0, 0)
    for number in range(0, 12, 4):
        one.shop.c.insert_one({"_id": number, "at": empty})
        two.shop.c.insert_many([{"_id": number + 1, "at": empty}, {"_id": number + 2}])
        one.shop.c.update_one({"_id": number + 2}, {"$currentDate": {"at": {"$type": "timestamp"}}})
        two.shop.c.replace_one({"_id": number + 3}, {"at": empty}, upsert=True)
    times = [document["at"] for document in two.shop.c.find().sort("_id")]
    assert times == sorted(set(times)) and len(times) == 12
    now = one.admin.command("hello")["localTime"].replace(tzinfo=datetime.UTC).timestamp()
    assert abs(times[-1].time - now) < PATIENCE_S
    # Before the operation time, as those of mongod.
    reply = one.shop.command("insert", "c", documents=[{"_id": "last", "at": empty}])
    found = two.shop.c.find_one({"_id": "last"})
    assert found is not None and times[-1] < found["at"] < reply["operationTime"]


def test_writes_are_not_locked_on_one_server(clients: tuple[Client, Client]) -> None:
    one, two = clients
    assert one.admin.command("fsync")["numFiles"] == 1
    with pytest.raises(OperationFailure, match="setUserWriteBlockMode") as refused:
        one.admin.command({"fsync": 1, "lock": True})
    assert refused.value.code == 20
    one.admin.command({"setUserWriteBlockMode": 1, "global": True})
    with pytest.raises(OperationFailure) as refused:
        two.shop.command("insert", "carts", documents=[{}])
    one.admin.command({"setUserWriteBlockMode": 1, "global": False})
    two.shop.carts.insert_one({})


def test_config_transactions_shows_the_writes_of_all(clients: tuple[Client, Client]) -> None:
    for client in clients:
        # An insert with a session of the driver's own is retryable.
        client.shop.c.insert_one({})
    one, two = clients
    shown = [list(client.config.transactions.find().sort("_id")) for client in (one, two, one)]
    assert len(shown[0]) == 2
    assert shown[0] == shown[1] == shown[2]
    with one.start_session() as session:
        with session.start_transaction():
            one.shop.c.insert_one({}, session=session)
        found = two.config.transactions.find_one({"_id.id": session.session_id["id"]})
        assert found is not None and (found["txnNum"], found["state"]) == (2, "committed")
    assert two.config.transactions.count_documents({}) == 2


def test_config_transactions_is_written_in_batches(clients: tuple[Client, Client]) -> None:
    """Not session by session: there may be as many as clients that were ever connected in half an hour."""
    one, two = clients
    sessions = [one.start_session() for _ in range(300)]
    for _ in range(2):
        for session in sessions:
            one.shop.c.insert_one({}, session=session)
        before = commits_of(two)
        assert two.config.transactions.count_documents({}) == 300
        assert commits_of(two) - before < 20
    shown = two.config.transactions.find({"txnNum": 2}, {"_id.id": 1})
    assert {each["_id"]["id"] for each in shown} == {session.session_id["id"] for session in sessions}
