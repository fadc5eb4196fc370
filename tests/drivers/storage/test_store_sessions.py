"""Sessions whose client goes from one server of a store to another: what reaches the first one late does nothing."""

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

import bson
import psycopg
import pytest

import mongottl
from tests import postgres
from tests.drivers.wire_client import WireClient
from tests.postgres import OwnCluster
from tests.postgresql.proxies import CuttingProxy
from tests.waiting import until

pytestmark = pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing())

HOST_UNREACHABLE = 6
TOO_OLD = 225
NO_SUCH_TRANSACTION = 251
TRANSIENT = ["TransientTransactionError"]

Wires = tuple[WireClient, WireClient]


@pytest.fixture
def cluster() -> Iterator[OwnCluster]:
    made = OwnCluster()
    yield made
    made.remove()


@pytest.fixture
def link(cluster: OwnCluster) -> Iterator[CuttingProxy]:
    """Of the first server to the store."""
    proxy = CuttingProxy(f"{cluster.run_folder}/.s.PGSQL.5432")
    yield proxy
    proxy.close()


@pytest.fixture
def wires(cluster: OwnCluster, link: CuttingProxy) -> Iterator[Wires]:
    """Connections to two servers, over which commands say themselves to which session they belong."""
    linked = f"postgresql://mongottl@127.0.0.1:{link.port}/postgres"
    with (
        mongottl.start_server(store=linked, topology="sharded") as first,
        mongottl.start_server(store=cluster.store, topology="sharded") as second,
        contextlib.closing(WireClient(first.uri)) as one,
        contextlib.closing(WireClient(second.uri)) as two,
    ):
        yield one, two


def session() -> dict[str, Any]:
    return {"lsid": {"id": bson.Binary(uuid.uuid4().bytes, 4)}}


def in_transaction(named: dict[str, Any], number: int, starts: bool = False) -> dict[str, Any]:
    fields = {**named, "txnNumber": bson.Int64(number), "autocommit": False}
    return {**fields, "startTransaction": True} if starts else fields


def test_a_server_that_lives_and_does_not_hear_what_it_is_asked_for_is_asked_again(
    cluster: OwnCluster, link: CuttingProxy, wires: Wires
) -> None:
    one, two = wires
    one.command({"create": "carts"})
    named = session()
    insert = {"insert": "carts", "documents": [{"_id": 0}]}
    assert one.command({**insert, **in_transaction(named, 1, starts=True)})["ok"] == 1
    link.refuses = True
    with psycopg.connect(cluster.store, autocommit=True) as connection:
        # By which the first one hears.
        hears = "SELECT pid FROM pg_stat_activity WHERE application_name = 'mongottl' ORDER BY backend_start LIMIT 1"
        connection.execute(f"SELECT pg_terminate_backend(({hears}))".encode())
    commit = {"commitTransaction": 1, **in_transaction(named, 1)}
    refused = two.command(commit, "admin")
    assert (refused["code"], refused["errorLabels"]) == (HOST_UNREACHABLE, ["RetryableWriteError"])
    assert two.command({"killAllSessions": []}, "admin")["code"] == HOST_UNREACHABLE
    link.refuses = False
    until(lambda: two.command(commit, "admin")["code"] == NO_SUCH_TRANSACTION)
    assert one.command(commit, "admin")["code"] == NO_SUCH_TRANSACTION
    assert two.command({"count": "carts"})["n"] == 0


@pytest.mark.parametrize("ends", ["commitTransaction", "abortTransaction"])
def test_a_transaction_that_was_ended_elsewhere_is_not_begun_by_a_statement_that_comes_late(
    wires: Wires, ends: str
) -> None:
    for late, other in (wires, wires[::-1]):
        named = session()
        insert = {"insert": "carts", "documents": [{"_id": 0}]}
        assert other.command({ends: 1, **in_transaction(named, 5)}, "admin")["code"] == NO_SUCH_TRANSACTION
        for wire in (late, other):
            refused = wire.command({**insert, **in_transaction(named, 5, starts=True)})
            assert (refused["code"], refused["errorLabels"]) == (NO_SUCH_TRANSACTION, TRANSIENT)
        # Nothing is in the way of the next one, and that goes on anywhere.
        assert late.command({**insert, **in_transaction(named, 6, starts=True)})["ok"] == 1
        assert late.command({"abortTransaction": 1, **in_transaction(named, 6)}, "admin")["ok"] == 1


@pytest.mark.parametrize("newer", ["write", "transaction"])
@pytest.mark.parametrize("is_dated", [False, True])
def test_a_retryable_write_that_comes_late_is_refused(wires: Wires, newer: str, is_dated: bool) -> None:
    """Its client has given it up, and has gone on by way of another server. is_dated: whether it says which cluster
    time it knew when it sent it, some seconds ago."""
    late, other = wires
    seconds = late.command({"ping": 1})["$clusterTime"]["clusterTime"].time - 4
    sent = {"$clusterTime": {"clusterTime": bson.Timestamp(seconds, 1)}} if is_dated else {}
    other.command({"insert": "counters", "documents": [{"_id": number, "n": 0} for number in range(3)]})
    increment = {"q": {"_id": 0}, "u": {"$inc": {"n": 1}}}
    writes: list[dict[str, Any]] = [
        {"insert": "carts", "documents": [{"_id": "a"}]},
        {"insert": "carts", "documents": [{"_id": number} for number in range(50)]},
        {"update": "counters", "updates": [increment, {**increment, "q": {"_id": 1}}]},
        {"update": "counters", "updates": [{**increment, "q": {"_id": "none"}}]},
        {"update": "counters", "updates": [{**increment, "q": {"_id": "b"}, "upsert": True}]},
        {"findAndModify": "counters", "query": {"_id": 0}, "update": {"$inc": {"n": 5}}},
        {"delete": "counters", "deletes": [{"q": {"_id": 0}, "limit": 1}]},
        {"delete": "counters", "deletes": [{"q": {"_id": "none"}, "limit": 1}]},
        {"bulkWrite": 1, "ops": [{"insert": 0, "document": {"_id": "c"}}], "nsInfo": [{"ns": "test.carts"}]},
    ]
    for write in writes:
        named = session()
        assert late.command({"insert": "seen", "documents": [{}], **named, "txnNumber": bson.Int64(3)})["ok"] == 1
        insert = {"insert": "seen", "documents": [{}]}
        if newer == "write":
            assert other.command({**insert, **named, "txnNumber": bson.Int64(5)})["ok"] == 1
        else:
            assert other.command({**insert, **in_transaction(named, 5, starts=True)})["ok"] == 1
            assert other.command({"commitTransaction": 1, **in_transaction(named, 5)}, "admin")["ok"] == 1
        database = "admin" if "bulkWrite" in write else "test"
        refused = late.refusal({**write, **named, **sent, "txnNumber": bson.Int64(4)}, database)
        assert refused[0] == TOO_OLD, (write, refused)
        assert late.command({**insert, **named, "txnNumber": bson.Int64(6)})["ok"] == 1
    assert late.command({"count": "carts"})["n"] == 0
    found = late.command({"find": "counters", "sort": {"_id": 1}})["cursor"]["firstBatch"]
    assert found == [{"_id": number, "n": 0} for number in range(3)]
