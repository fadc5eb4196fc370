"""The reaper: what it deletes and when, what it counts, and what clocks and restarts do to it."""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio
from pymongo import MongoClient

import mongottl
from mongottl.catalog.index_spec import parse_index_spec
from mongottl.clock import VirtualClock
from mongottl.config import ServerConfig
from mongottl.document.build import encode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.write.expiry import reap_due
from mongottl.exec.write.writes import insert_batch, prepare_document
from mongottl.storage.opening import open_engine
from tests.drivers.ttl.conftest import Bench
from tests.on_nodes import nodes_of, own_figures
from tests.steps import begin
from tests.waiting import until

pytestmark = own_figures

YEAR_S = 365 * 24 * 3600


def wheel(client: MongoClient[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = client.admin.command("serverStatus")["mongottl"]["wheel"]
    return found


def test_advance_answers_after_everything_due_is_purged(bench: Bench) -> None:
    bench.set_default(10)
    bench.collection.insert_many([{"_id": n} for n in range(3000)])
    before = bench.deleted()
    reply = bench.client.admin.command({"advanceClock": 10})
    assert reply["ttlDeleted"] == (3000 if bench.purged else 0)
    assert bench.deleted() - before == reply["ttlDeleted"]
    assert bench.stored() == (0 if bench.purged else 3000)


def test_a_released_reaper_catches_up(bench: Bench) -> None:
    bench.hold_reaper(True)
    bench.set_default(10)
    bench.collection.insert_many([{"_id": n} for n in range(1000)])
    bench.advance(10)
    assert bench.stored() == 1000
    bench.hold_reaper(False)
    bench.advance(0)
    assert bench.stored() == 0


def test_the_wheel_holds_one_entry_for_each_second(bench: Bench) -> None:
    bench.set_default(1000)
    before = wheel(bench.client)["entries"]
    bench.collection.insert_many([{"_id": n} for n in range(1000)])
    assert wheel(bench.client)["entries"] == before + 1
    bench.collection.insert_many([{"_id": 1000 + n, "ttl": 5000 + n % 10} for n in range(1000)])
    assert wheel(bench.client)["entries"] == before + 11


def test_passes_are_counted(bench: Bench) -> None:
    bench.set_default(10)
    passes = bench.client.admin.command("serverStatus")["metrics"]["ttl"]["passes"]
    bench.collection.insert_one({})
    bench.advance(10)
    now = bench.client.admin.command("serverStatus")["metrics"]["ttl"]["passes"]
    assert now == passes + (1 if bench.purged else 0)


def test_a_jump_of_decades(bench: Bench) -> None:
    bench.set_default(10)
    bench.collection.insert_many([{"_id": n, "ttl": 1 + n * 1000} for n in range(500)] + [{"_id": "stays", "ttl": -1}])
    bench.advance(70 * YEAR_S)
    assert bench.ids() == ["stays"]
    assert bench.stored() == (0 if bench.purged else 500)
    bench.advance(-70 * YEAR_S)


def test_a_clock_set_back_does_no_harm(bench: Bench) -> None:
    bench.set_default(100)
    bench.collection.insert_one({"_id": 1})
    bench.advance(-50)
    assert bench.ids() == [1]
    bench.collection.insert_one({"_id": 2})
    bench.advance(149)
    assert bench.ids() == [1]
    bench.advance(1)
    assert bench.ids() == []


def test_a_clock_set_back_revives_what_was_not_purged(bench: Bench) -> None:
    bench.set_default(10)
    bench.collection.insert_one({"_id": 1})
    bench.advance(10)
    assert bench.ids() == []
    bench.advance(-1)
    assert bench.ids() == ([] if bench.purged else [1])
    bench.advance(1)
    assert bench.ids() == []


def test_dropping_a_collection_takes_its_entries_along(bench: Bench) -> None:
    before = wheel(bench.client)["entries"]
    bench.set_default(10)
    bench.collection.insert_many([{"ttl": n} for n in range(1, 50)])
    bench.collection.drop()
    bench.hold_reaper(False)
    bench.advance(100)
    assert wheel(bench.client)["entries"] == before
    bench.collection.insert_one({"_id": 1, "ttl": 1})
    bench.advance(100)
    assert bench.ids() == [1]


def test_the_reaper_wakes_up_by_itself() -> None:
    """With a clock that runs: nobody advances it, the document goes within a second of its instant."""
    with mongottl.start_server(frozen=False) as server, MongoClient[dict[str, Any]](server.uri) as client:
        collection = client["ttl"]["documents"]
        collection.create_index("_ts", expireAfterSeconds=1)
        collection.insert_one({"_id": 1})
        start = server.clock.now()
        until(lambda: sum(node.metrics.ttl_deleted_documents for node in nodes_of(server)) == 1)
        assert (server.clock.now() - start).total_seconds() < 30
        assert collection.find_one() is None


def test_a_machine_clock_that_is_set_forward() -> None:
    """Nobody tells the reaper, and yet what falls due by it goes within a second or so."""
    clock = VirtualClock()

    def use(uri: str) -> None:
        with MongoClient[dict[str, Any]](uri) as client:
            collection = client["ttl"]["documents"]
            collection.create_index("at", expireAfterSeconds=0)
            collection.insert_one({"at": datetime.fromtimestamp(clock.now_ms() / 1000 + 5000, UTC)})
            for _ in range(20):
                client.admin.command("ping")  # by now the reaper has looked and gone to sleep again
            clock.advance(5001)  # behind the server's back
            until(lambda: collection.count_documents({}) == 0)

    async def serve() -> None:
        async with mongottl.open_server(ServerConfig(port=0, quiet=True), clock=clock) as server:
            await trio.to_thread.run_sync(use, server.uri)

    trio.run(serve)


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
def test_restart(tmp_path: Path, crash: bool) -> None:
    """`_ts` survives; what fell due while the server was down is invisible at once and purged at start."""
    home = tmp_path / "data"
    with mongottl.start_server(data_dir=str(home)) as server, MongoClient[dict[str, Any]](server.uri) as client:
        collection = client["ttl"]["documents"]
        collection.create_index("_ts", expireAfterSeconds=1000)
        collection.insert_many([{"_id": "default"}, {"_id": "own", "ttl": 3000}, {"_id": "never", "ttl": -1}])
        collection.create_index("u", unique=True, sparse=True)
        collection.update_one({"_id": "never"}, {"$set": {"u": 1}})
        if crash:  # what a killed process leaves behind: the files as they are now
            shutil.copytree(home, tmp_path / "crashed")
    home = tmp_path / "crashed" if crash else home
    with mongottl.start_server(data_dir=str(home)) as server, MongoClient[dict[str, Any]](server.uri) as client:
        collection = client["ttl"]["documents"]
        assert sorted(d["_id"] for d in collection.find()) == ["default", "never", "own"]
        server.clock.advance(900)
        assert sorted(d["_id"] for d in collection.find()) == ["default", "never", "own"]
        assert server.clock.advance(100) == 1
        assert sorted(d["_id"] for d in collection.find()) == ["never", "own"]
        client.admin.command({"setParameter": 1, "ttlMonitorEnabled": False})
        server.clock.advance(2000)
        assert [d["_id"] for d in collection.find()] == ["never"]
        status = client.admin.command("serverStatus")
        assert status["mongottl"]["expiredNotPurged"] == 1
        assert [dict(i)["name"] for i in collection.list_indexes()] == ["_id_", "_ts_1", "u_1"]


def test_documents_that_expired_while_the_server_was_down_are_purged_at_start(tmp_path: Path) -> None:
    server = mongottl.start_server(data_dir=str(tmp_path), now="2026-01-01T00:00:00Z")
    with server, MongoClient[dict[str, Any]](server.uri) as client:
        client["ttl"]["documents"].create_index("_ts", expireAfterSeconds=10)
        client["ttl"]["documents"].insert_many([{"_id": n} for n in range(1000)])
    server = mongottl.start_server(data_dir=str(tmp_path), now="2026-01-01T03:00:00Z")
    with server, MongoClient[dict[str, Any]](server.uri) as client:
        assert client["ttl"]["documents"].find_one() is None
        server.clock.advance(0)
        status = client.admin.command("serverStatus")
        assert status["metrics"]["ttl"]["deletedDocuments"] == 1000
        assert status["mongottl"]["expiredNotPurged"] == 0


def test_a_clock_set_back_during_a_purge_forgets_nothing() -> None:
    """What the wheel gave out as due and is so no longer must be armed again."""
    service = ServiceContext(ServerConfig(), VirtualClock(), open_engine("sqlite:"))
    clock = service.clock
    assert isinstance(clock, VirtualClock)
    clock.freeze()
    collection = service.catalog.create_collection("db", "documents")
    spec = parse_index_spec(encode({"key": {"_ts": 1}, "name": "_ts_1", "expireAfterSeconds": 10}))
    service.catalog.finish_indexes(collection, service.catalog.start_indexes(collection, [spec]))
    op = OperationContext(service, ClientInfo(1, "", ""), "db")
    documents = [prepare_document(op, collection, encode({"n": n})) for n in range(1000)]
    insert_batch(op, collection, documents)
    clock.advance(10)
    steps = begin(service, lambda: reap_due(service))
    next(steps)  # the first batch is gone
    clock.advance(-5)
    for _ in steps:
        pass
    left = collection.store.count()
    assert 0 < left < 1000
    clock.advance(5)
    assert reap_due(service) == left
