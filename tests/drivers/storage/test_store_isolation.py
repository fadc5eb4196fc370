"""Transactions and snapshots of a server whose data is in PostgreSQL (`--store`): PostgreSQL keeps them apart."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pymongo
import pytest
from pymongo.client_session import ClientSession
from pymongo.errors import ExecutionTimeout, OperationFailure, PyMongoError

import mongottl
from tests import postgres
from tests.on_store import PREFIX, is_citus, needs_one_machine, store, with_schema
from tests.postgres import OwnCluster
from tests.postgresql.proxies import AFTER_COMMIT, BEFORE_COMMIT, CuttingProxy
from tests.waiting import until

pytestmark = pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing())

Client = pymongo.MongoClient[dict[str, Any]]
Collection = pymongo.collection.Collection[dict[str, Any]]


@pytest.fixture
def schema(request: pytest.FixtureRequest) -> str:
    return PREFIX + hashlib.sha256(request.node.name.encode()).hexdigest()[:12]


@pytest.fixture
def server(schema: str) -> Iterator[mongottl.RunningServer]:
    with mongottl.start_server(store=with_schema(schema)) as running:
        yield running


@pytest.fixture
def client(server: mongottl.RunningServer) -> Iterator[Client]:
    with Client(server.uri) as connected:
        yield connected


@pytest.fixture
def items(client: Client) -> Collection:
    items = client.shop.items
    items.create_index("name", unique=True)
    items.insert_many([{"_id": n, "name": f"item {n}", "n": 0} for n in range(5)])
    return items


def transaction(client: Client) -> ClientSession:
    session = client.start_session()
    session.start_transaction()
    return session


def is_transient_conflict(error: OperationFailure) -> bool:
    return error.code == 112 and error.has_error_label("TransientTransactionError")


def end_sessions(name: str) -> int:
    """Has PostgreSQL end the sessions whose names begin like this; how many."""
    import psycopg

    with psycopg.connect(store(), autocommit=True) as connection:
        ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE starts_with(application_name, %s)"
        found = connection.execute(ended, [name]).fetchone()
        assert found is not None
        until(lambda: not (connection.execute(ended, [name]).fetchone() or (0,))[0])
        return int(found[0])


def sessions_of_transactions() -> int:
    """How many sessions PostgreSQL has in a transaction that is not being committed."""
    import psycopg

    with psycopg.connect(store(), autocommit=True) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE starts_with(application_name, 'mongottl txn')"
            " AND state LIKE 'idle in transaction%'"
        ).fetchone()
        assert found is not None
        return int(found[0])


# Two transactions


def test_the_first_of_two_writers_of_a_document_wins(client: Client, items: Collection) -> None:
    with transaction(client) as first, transaction(client) as second:
        items.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=first)
        with pytest.raises(OperationFailure) as refused:  # it does not wait for the other
            items.update_one({"_id": 1}, {"$inc": {"n": 10}}, session=second)
        assert is_transient_conflict(refused.value)
        items.update_one({"_id": 2}, {"$inc": {"n": 1}}, session=first)
        first.commit_transaction()
    assert [found["n"] for found in items.find().sort("_id", 1)] == [0, 1, 1, 0, 0]


def test_a_commit_after_the_snapshot_is_not_overwritten(client: Client, items: Collection) -> None:
    writes: list[Callable[[ClientSession], object]] = [
        lambda session: items.update_one({"_id": 1}, {"$set": {"n": 7}}, session=session),
        lambda session: items.delete_one({"_id": 1}, session=session),
    ]
    for write in writes:
        with transaction(client) as session:
            assert items.find_one({"_id": 0}, session=session)
            items.update_one({"_id": 1}, {"$inc": {"n": 1}})
            with pytest.raises(OperationFailure) as refused:
                write(session)
            assert is_transient_conflict(refused.value)
    assert items.find_one({"_id": 1}) == {"_id": 1, "name": "item 1", "n": 2}


def test_a_unique_key_of_another_transaction_is_a_conflict(client: Client, items: Collection) -> None:
    with transaction(client) as first, transaction(client) as second:
        items.insert_one({"_id": 10, "name": "new"}, session=first)
        with pytest.raises(OperationFailure) as refused:
            items.insert_one({"_id": 11, "name": "new"}, session=second)
        assert is_transient_conflict(refused.value)
        first.commit_transaction()
    with transaction(client) as third, pytest.raises(OperationFailure) as refused:
        items.insert_one({"_id": 12, "name": "new"}, session=third)
    assert refused.value.code == 11000


def test_a_unique_key_that_was_committed_after_the_snapshot_is_a_conflict(client: Client, items: Collection) -> None:
    """It would be a duplicate key that the transaction does not see."""
    with transaction(client) as session:
        assert items.count_documents({}, session=session) == 5
        items.insert_one({"_id": 10, "name": "new"})
        assert items.find_one({"name": "new"}, session=session) is None
        with pytest.raises(OperationFailure) as refused:
            items.insert_one({"_id": 11, "name": "new"}, session=session)
        assert is_transient_conflict(refused.value)


def test_a_unique_key_that_was_deleted_after_the_snapshot_is_a_duplicate(client: Client, items: Collection) -> None:
    with transaction(client) as session:
        assert items.count_documents({}, session=session) == 5
        items.delete_one({"_id": 3})
        with pytest.raises(OperationFailure) as refused:
            items.insert_one({"_id": 3, "name": "again"}, session=session)
        assert refused.value.code == 11000


def test_a_key_that_the_transaction_has_removed_is_free_for_it(client: Client, items: Collection) -> None:
    with transaction(client) as session:
        items.delete_one({"_id": 3}, session=session)
        items.insert_one({"_id": 3, "name": "item 3", "n": 3}, session=session)
        items.update_one({"_id": 4}, {"$set": {"name": "other"}}, session=session)
        items.insert_one({"_id": 5, "name": "item 4"}, session=session)
        session.commit_transaction()
    assert [found["_id"] for found in items.find().sort("_id", 1)] == [0, 1, 2, 3, 4, 5]
    assert client.shop.command("validate", "items", full=True)["valid"]


# Plain writes


@pytest.mark.parametrize("commits", [True, False])
def test_a_plain_write_waits_for_a_transaction(client: Client, items: Collection, commits: bool) -> None:
    writes: list[Callable[[], object]] = [
        lambda: items.update_one({"_id": 1}, {"$inc": {"n": 1}}),
        lambda: items.find_one_and_update({"_id": 1}, {"$inc": {"n": 1}}),
        lambda: items.insert_one({"_id": 20, "name": "new"}),
        lambda: items.delete_one({"_id": 2}),
    ]
    outcomes: dict[int, Any] = {}

    def run(number: int) -> None:
        try:
            outcomes[number] = writes[number]()
        except OperationFailure as error:
            outcomes[number] = error.code

    with transaction(client) as session:
        items.update_one({"_id": 1}, {"$inc": {"n": 10}}, session=session)
        items.update_one({"_id": 2}, {"$inc": {"n": 10}}, session=session)
        items.insert_one({"_id": 21, "name": "new"}, session=session)
        threads = [threading.Thread(target=run, args=(number,)) for number in range(len(writes))]
        for thread in threads:
            thread.start()
        until(lambda: client.admin.command("serverStatus")["globalLock"]["currentQueue"]["writers"])
        assert not outcomes
        # Others are not held up: connections are not kept while a write waits.
        for _ in range(20):
            items.update_one({"_id": 4}, {"$inc": {"n": 1}})
        (session.commit_transaction if commits else session.abort_transaction)()
        for thread in threads:
            thread.join()
    assert len(outcomes) == len(writes)
    assert items.find_one({"_id": 1}) == {"_id": 1, "name": "item 1", "n": 12 if commits else 2}
    assert items.find_one({"_id": 2}) is None
    if commits:
        assert outcomes[2] == 11000
    assert items.count_documents({"name": "new"}) == 1
    assert client.shop.command("validate", "items", full=True)["valid"]


def test_a_plain_write_gives_up_at_its_time_limit(client: Client, items: Collection) -> None:
    with transaction(client) as session:
        items.update_one({"_id": 1}, {"$inc": {"n": 10}}, session=session)
        with pytest.raises(ExecutionTimeout):
            client.shop.command("update", "items", updates=[{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}], maxTimeMS=300)
        session.commit_transaction()
    assert items.find_one({"_id": 1}) == {"_id": 1, "name": "item 1", "n": 10}


def test_a_purge_passes_over_what_a_transaction_has_written(client: Client) -> None:
    carts = client.shop.carts
    carts.create_index("_ts", expireAfterSeconds=30)
    carts.insert_many([{"_id": n} for n in range(50)])
    client.admin.command("freezeClock", True)
    with transaction(client) as session:
        for number in range(20):
            carts.update_one({"_id": number}, {"$set": {"n": 1}}, session=session)
        client.admin.command("advanceClock", 40)  # less than a transaction lives
        # What it has written has a new time, but nobody sees that yet.
        assert carts.count_documents({}) == 0
        assert _purged(client) == 30
        session.abort_transaction()
    assert client.admin.command("advanceClock", 0)["ok"]
    until(lambda: _purged(client) == 50)


def _purged(client: Client) -> int:
    return int(client.admin.command("serverStatus")["metrics"]["ttl"]["deletedDocuments"])


# Size


def test_a_transaction_reads_all_that_it_has_written(client: Client, items: Collection) -> None:
    with transaction(client) as session:
        items.insert_many([{"_id": n, "name": f"item {n}", "n": n} for n in range(5, 1500)], session=session)
        items.update_many({"_id": {"$lt": 1200}}, {"$inc": {"n": 1}}, session=session)
        items.delete_many({"_id": {"$gte": 1400}}, session=session)
        assert items.count_documents({}, session=session) == 1400
        assert items.find_one({"name": "item 1199"}, session=session) == {
            "_id": 1199,
            "name": "item 1199",
            "n": 1200,
        }
        assert len(list(items.find({"name": {"$gt": "item 13", "$lt": "item 14"}}, session=session))) == 110
        assert items.count_documents({}) == 5
        session.commit_transaction()
    assert items.count_documents({}) == 1400 == items.estimated_document_count()
    assert client.shop.command("validate", "items", full=True)["valid"]


def test_a_statement_that_failed_ends_the_transaction(client: Client, items: Collection) -> None:
    with transaction(client) as session:
        items.insert_one({"_id": 10, "name": "new"}, session=session)
        with pytest.raises(OperationFailure) as refused:
            items.insert_many([{"_id": 11, "name": "a"}, {"_id": 12, "name": "item 1"}], session=session)
        assert refused.value.code in (11000, 65)
    assert items.count_documents({}) == 5 == items.estimated_document_count()
    assert client.shop.command("validate", "items", full=True)["valid"]


def test_an_expired_holder_of_a_key_makes_room(client: Client, items: Collection) -> None:
    """A unit of a statement is undone, and the statement goes on."""
    carts = client.shop.carts
    carts.create_index("_ts", expireAfterSeconds=100)
    carts.create_index("name", unique=True)
    client.admin.command("setParameter", 1, ttlMonitorEnabled=False)
    client.admin.command("freezeClock", True)
    carts.insert_many([{"_id": n, "name": f"cart {n}"} for n in range(3)])
    client.admin.command("advanceClock", 200)
    with transaction(client) as session:
        carts.insert_one({"_id": 7, "name": "seven"}, session=session)
        carts.insert_one({"_id": 8, "name": "cart 1"}, session=session)
        carts.insert_one({"_id": 2, "name": "two"}, session=session)
        assert sorted(found["_id"] for found in carts.find(session=session)) == [2, 7, 8]
        session.commit_transaction()
    assert sorted(found["name"] for found in carts.find()) == ["cart 1", "seven", "two"]
    assert client.shop.command("validate", "carts", full=True)["valid"]


def test_an_array_in_a_transaction_makes_an_index_multikey(client: Client, items: Collection) -> None:
    items.create_index("tags")
    with transaction(client) as session:
        items.insert_one({"_id": 10, "name": "new", "tags": ["a", "b", "c"]}, session=session)
        assert [found["_id"] for found in items.find({"tags": "b"}, session=session).hint("tags_1")] == [10]
        session.commit_transaction()
    assert [found["_id"] for found in items.find({"tags": "c"}).hint("tags_1")] == [10]
    assert client.shop.command("validate", "items", full=True)["valid"]


# DDL


@needs_one_machine
@pytest.mark.parametrize("commits", [True, False])
def test_collections_are_made_within_a_transaction(client: Client, items: Collection, commits: bool) -> None:
    with transaction(client) as session:
        client.shop.made.insert_one({"_id": 1}, session=session)
        client.shop.create_collection("empty", session=session)
        client.shop.empty.create_index("a", session=session)
        client.shop.empty.insert_one({"a": 1}, session=session)
        assert client.shop.made.count_documents({}) == 0
        (session.commit_transaction if commits else session.abort_transaction)()
    assert sorted(client.shop.list_collection_names()) == (["empty", "items", "made"] if commits else ["items"])
    assert client.shop.made.count_documents({}) == commits
    if commits:
        assert sorted(client.shop.empty.index_information()) == ["_id_", "a_1"]


def test_ddl_waits_for_a_transaction(client: Client, items: Collection) -> None:
    done: list[bool] = []

    def drop() -> None:
        items.drop()
        done.append(True)

    with transaction(client) as session:
        items.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
        thread = threading.Thread(target=drop)
        thread.start()
        until(lambda: client.admin.command("currentOp", {"command.drop": "items"})["inprog"])
        assert not done
        session.commit_transaction()
        thread.join()
    assert done and "items" not in client.shop.list_collection_names()


# Faults


def test_a_lost_connection_ends_its_transaction(client: Client, items: Collection) -> None:
    with transaction(client) as session:
        items.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
        assert end_sessions("mongottl txn") >= 1
        with pytest.raises(PyMongoError) as failed:
            items.update_one({"_id": 2}, {"$inc": {"n": 1}}, session=session)
        assert failed.value.has_error_label("TransientTransactionError")
    with client.start_session() as session:
        session.with_transaction(lambda s: items.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=s))
    assert items.find_one({"_id": 1}) == {"_id": 1, "name": "item 1", "n": 1}


@pytest.mark.parametrize("when", [BEFORE_COMMIT, AFTER_COMMIT])
def test_a_commit_without_an_answer_is_looked_up(when: str) -> None:
    cluster = OwnCluster()
    proxy = CuttingProxy(f"{cluster.run_folder}/.s.PGSQL.5432", only_commits=True)
    try:
        with (
            mongottl.start_server(store=f"postgresql://mongottl@127.0.0.1:{proxy.port}/postgres") as server,
            Client(server.uri) as client,
        ):
            items = client.shop.items
            items.insert_many([{"_id": 1, "n": 0}, {"_id": 2, "n": 0}])
            with client.start_session() as session:
                session.start_transaction()
                items.update_many({}, {"$inc": {"n": 1}}, session=session)
                proxy.cut = when
                if when == BEFORE_COMMIT:
                    with pytest.raises(PyMongoError) as failed:
                        session.commit_transaction()
                    assert failed.value.has_error_label("TransientTransactionError")
                else:
                    session.commit_transaction()
            assert proxy.cuts == 1
            assert [found["n"] for found in items.find()] == [when == AFTER_COMMIT] * 2
            with client.start_session() as session:
                session.with_transaction(lambda s: items.update_many({}, {"$inc": {"n": 1}}, session=s))
            assert [found["n"] for found in items.find()] == [1 + (when == AFTER_COMMIT)] * 2
    finally:
        proxy.close()
        cluster.remove()


def test_a_connection_lost_before_the_first_statement_is_replaced(client: Client, items: Collection) -> None:
    with client.start_session() as session:
        session.with_transaction(lambda s: items.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=s))
        end_sessions("mongottl txn")
        session.start_transaction()
        items.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
        session.commit_transaction()
    assert items.find_one({"_id": 1}) == {"_id": 1, "name": "item 1", "n": 2}


def test_more_transactions_than_connections(client: Client, items: Collection) -> None:
    """The first statement waits for a connection, and no other operation does."""
    outcomes: list[str] = []
    opened = threading.Barrier(41)

    def run(number: int) -> None:
        with client.start_session() as session:
            opened.wait()
            session.with_transaction(lambda s: _count_up(items, number, s))
            outcomes.append("done")

    items.insert_many([{"_id": 100 + n, "name": f"counter {n}", "n": 0} for n in range(40)])
    threads = [threading.Thread(target=run, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    opened.wait()
    while len(outcomes) < 40 and any(thread.is_alive() for thread in threads):
        assert client.admin.command("ping")["ok"]
        assert items.find_one({"_id": 0})
    for thread in threads:
        thread.join()
    assert len(outcomes) == 40
    assert sum(found["n"] for found in items.find({"_id": {"$gte": 100}})) == 40


def _count_up(items: Collection, number: int, session: ClientSession) -> None:
    items.update_one({"_id": 100 + number}, {"$inc": {"n": 1}}, session=session)
    items.find_one({"_id": 100 + number}, session=session)


def test_a_client_that_waits_for_a_connection_is_told_when_it_gives_up(client: Client, items: Collection) -> None:
    sessions = [transaction(client) for _ in range(32)]
    for session in sessions:
        items.find_one({"_id": 1}, session=session)
    with transaction(client) as late, pytest.raises(ExecutionTimeout):
        items.find_one({"_id": 1}, session=late, max_time_ms=200)
    sessions[0].abort_transaction()
    with transaction(client) as late:
        assert items.find_one({"_id": 1}, session=late)
        late.commit_transaction()
    for session in sessions[1:]:
        session.abort_transaction()
    for session in sessions:
        session.end_session()
    assert sessions_of_transactions() == 0


def test_ended_transactions_leave_nothing_in_the_database(client: Client, items: Collection) -> None:
    with transaction(client) as session:
        items.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
        assert sessions_of_transactions() == 1
        session.abort_transaction()
    with transaction(client) as session:
        items.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
        session.commit_transaction()
    with transaction(client) as session:
        items.find_one(session=session)
        session.commit_transaction()
    until(lambda: not sessions_of_transactions())
    assert items.find_one({"_id": 1}) == {"_id": 1, "name": "item 1", "n": 1}


def test_transfers_keep_the_sum(client: Client, items: Collection) -> None:
    """Readers of one snapshot see the same sum, in transactions and outside."""
    accounts = client.shop.accounts
    accounts.insert_many([{"_id": n, "n": 100} for n in range(6)])
    stop = threading.Event()
    wrong: list[Any] = []
    checked: list[bool] = []

    def transfer(seed: int) -> None:
        turn = seed
        with client.start_session() as session:
            while not stop.is_set():
                turn = (turn * 7 + 3) % 30
                giver, taker = turn % 6, (turn // 5 + 1 + turn) % 6
                session.with_transaction(lambda s, a=giver, b=taker: _transfer(accounts, a, b, s))  # type: ignore[misc]

    def check(in_transaction: bool) -> None:
        while not stop.is_set():
            if in_transaction:
                with transaction(client) as session:
                    total = sum(found["n"] for found in accounts.find(session=session, batch_size=2))
                    again = sum(accounts.find_one({"_id": n}, session=session)["n"] for n in range(6))  # type: ignore[index]
                    session.commit_transaction()
            else:
                with client.start_session(snapshot=True) as session:
                    total = sum(found["n"] for found in accounts.find(session=session, batch_size=2))
                    sums = accounts.aggregate([{"$group": {"_id": None, "n": {"$sum": "$n"}}}], session=session)
                    again = next(iter(sums))["n"]
            if (total, again) != (600, 600):
                wrong.append((in_transaction, total, again))
            checked.append(in_transaction)

    threads = [threading.Thread(target=transfer, args=(seed,)) for seed in range(3)]
    threads += [threading.Thread(target=check, args=(kind,)) for kind in (True, False)]
    for thread in threads:
        thread.start()
    until(lambda: wrong or min(checked.count(True), checked.count(False)) >= 40)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert sum(found["n"] for found in accounts.find()) == 600
    assert client.shop.command("validate", "accounts", full=True)["valid"]


def _transfer(accounts: Collection, giver: int, taker: int, session: ClientSession) -> None:
    accounts.update_one({"_id": giver}, {"$inc": {"n": -1}}, session=session)
    accounts.update_one({"_id": taker}, {"$inc": {"n": 1}}, session=session)


def test_a_change_stream_has_the_changes_of_a_transaction_together(client: Client, items: Collection) -> None:
    with items.watch() as stream:
        with transaction(client) as session:
            items.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
            items.update_one({"_id": 4}, {"$inc": {"n": 1}})
            items.insert_one({"_id": 10, "name": "new"}, session=session)
            session.commit_transaction()
        seen = [stream.next() for _ in range(3)]
    assert [event["documentKey"]["_id"] for event in seen] == [4, 1, 10]
    assert seen[1]["clusterTime"] == seen[2]["clusterTime"] > seen[0]["clusterTime"]
    assert seen[1]["txnNumber"] == seen[2]["txnNumber"]


def _kept_bytes(schema: str) -> int:
    """How much PostgreSQL has of what open transactions will put in the oplog, with what ended ones have left."""
    import psycopg

    with psycopg.connect(store()) as connection:
        [size] = connection.execute("SELECT pg_total_relation_size(%s)", [f"{schema}.parts"]).fetchone() or (0,)
        return int(size)


@pytest.mark.parametrize("commits", [True, False])
def test_the_changes_of_a_long_transaction_are_not_kept_in_memory(
    schema: str, client: Client, items: Collection, commits: bool
) -> None:
    client.shop.create_collection("other")
    other = items if is_citus() else client.shop.other  # a transaction reaches one collection over Citus
    before = _kept_bytes(schema)
    with client.shop.watch(full_document="updateLookup") as stream, client.start_session() as session:
        session.start_transaction()
        for n in range(12):
            items.insert_one({"_id": f"new {n}", "name": f"new {n}", "text": "x" * 1_000_000}, session=session)
        items.update_one({"_id": 1}, {"$set": {"n": 5}}, session=session)
        other.insert_one({"_id": 9, "name": "nine"}, session=session)
        items.delete_one({"_id": 2}, session=session)
        items.insert_many([{"_id": n, "name": str(n), "text": "y" * 900_000} for n in range(100, 106)], session=session)
        assert _kept_bytes(schema) - before > 12_000_000
        if not commits:
            session.abort_transaction()
            items.update_one({"_id": 3}, {"$set": {"n": 1}})
            assert stream.next()["documentKey"] == {"_id": 3}
            assert items.count_documents({}) == 5
            return
        session.commit_transaction()
        session.commit_transaction()  # answered again
        events = [stream.next() for _ in range(21)]
    assert [event["operationType"] for event in events[:12]] == ["insert"] * 12
    assert [event["documentKey"]["_id"] for event in events[12:]] == [1, 9, 2, *range(100, 106)]
    assert {event["txnNumber"] for event in events} == {events[0]["txnNumber"]}
    assert len({(event["clusterTime"], event["wallTime"]) for event in events}) == 1
    assert events[5]["fullDocument"]["text"] == "x" * 1_000_000
    assert events[12]["updateDescription"]["updatedFields"] == {"n": 5}
    assert items.count_documents({}) == 5 + 12 + 6 - 1 + is_citus()
    for place in (0, 4, 12, 20):  # a token from the midst of it
        with client.shop.watch(resume_after=events[place]["_id"]) as again:
            for event in events[place + 1 :]:
                assert again.next()["_id"] == event["_id"]


def test_an_open_transaction_holds_no_change_stream_up(client: Client, items: Collection) -> None:
    with items.watch(max_await_time_ms=5000) as stream, transaction(client) as session:
        items.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
        items.update_one({"_id": 4}, {"$inc": {"n": 1}})
        assert stream.next()["documentKey"] == {"_id": 4}
        session.commit_transaction()
        assert stream.next()["documentKey"] == {"_id": 1}


# Snapshots outside transactions


def test_a_snapshot_does_not_see_later_writes(client: Client, items: Collection) -> None:
    with client.start_session(snapshot=True) as session:
        assert items.count_documents({}, session=session) == 5
        items.delete_many({"_id": {"$lt": 3}})
        items.insert_one({"_id": 50, "name": "later"})
        items.update_one({"_id": 4}, {"$set": {"name": "changed"}})
        assert items.count_documents({}, session=session) == 5
        assert items.find_one({"name": "item 4"}, session=session) == {"_id": 4, "name": "item 4", "n": 0}
        assert items.distinct("_id", session=session) == [0, 1, 2, 3, 4]
    assert items.count_documents({}) == 3


def test_the_oldest_snapshot_is_given_up(client: Client, items: Collection) -> None:
    with client.start_session(snapshot=True) as oldest:
        assert items.count_documents({}, session=oldest) == 5
        for number in range(8):
            items.insert_one({"_id": 100 + number, "name": f"later {number}"})
            with client.start_session(snapshot=True) as session:
                assert items.count_documents({}, session=session) == 6 + number
        with pytest.raises(OperationFailure) as refused:
            items.count_documents({}, session=oldest)
        assert refused.value.code == 239


def test_more_snapshots_at_once_than_are_kept(client: Client, items: Collection) -> None:
    outcomes: list[object] = []
    barrier = threading.Barrier(20)

    def read(number: int) -> None:
        items.insert_one({"_id": 100 + number, "name": f"later {number}"})
        with client.start_session(snapshot=True) as session:
            barrier.wait()
            try:
                outcomes.append(items.find_one({"_id": 100 + number}, session=session))
            except OperationFailure as error:
                outcomes.append(error.code)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # One that is given up before it was read once is too old.
    assert len(outcomes) == 20 and all(outcome == 239 or isinstance(outcome, dict) for outcome in outcomes)
    assert sum(isinstance(outcome, dict) for outcome in outcomes) >= 8


def test_a_snapshot_whose_session_is_lost_is_too_old(client: Client, items: Collection) -> None:
    with client.start_session(snapshot=True) as session:
        assert items.count_documents({}, session=session) == 5
        assert end_sessions("mongottl txn") >= 1
        with pytest.raises(OperationFailure) as refused:
            items.find_one({"n": 0}, session=session)
        assert refused.value.code == 239
    with client.start_session(snapshot=True) as session:
        assert items.count_documents({}, session=session) == 5
