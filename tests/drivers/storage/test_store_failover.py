"""Histories of many clients while the primary of their PostgreSQL is killed and its standby promoted: all is exact.

MONGOTTL_FAILOVERS=50 has fifty of them; by default one while the server goes on, and one beside which it is killed.
"""

import os
import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import pymongo
import pytest
from bson import Binary, Int64

import mongottl
from tests import postgres
from tests.drivers.process.test_process import Process
from tests.drivers.storage.test_store_histories import SEED, Histories, World
from tests.drivers.wire_client import WireClient
from tests.histories import Moments
from tests.postgresql.proxies import CuttingProxy
from tests.replicated import Replicated
from tests.waiting import until

pytestmark = pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing())


class FailingOver(World):
    """The server before a primary and its standby."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.moments = Moments()
        self.pair = Replicated()
        self.round = 0
        self._folder = folder
        self._starts = 0
        self.start()

    @property
    def store(self) -> str:
        return f"{self.pair.store}&schema=histories"

    def close(self) -> None:
        self.process.kill()
        self.pair.remove()

    def fail_over(self) -> None:
        self.pair.fail_over()

    def fail_over_and_kill_server(self) -> None:
        self.pair.kill_primary()
        self.kill()
        self.pair.promote()
        self.start()
        self.pair.add_standby()


ROUNDS: Final = int(os.environ.get("MONGOTTL_FAILOVERS", "2"))


def fault_of(world: FailingOver, number: int) -> Callable[[World], None]:
    fault = world.fail_over_and_kill_server if number % 2 else world.fail_over
    return lambda _: fault()


@pytest.mark.slow
def test_nothing_is_lost_or_done_twice_when_a_standby_is_promoted(tmp_path: Path) -> None:
    world = FailingOver(tmp_path, SEED)
    try:
        histories = Histories(world)
        try:
            for number in range(ROUNDS):
                histories.play(fault_of(world, number))
        finally:
            histories.close()
        histories.check()
        assert world.pair.promotions == ROUNDS
    finally:
        world.close()


# What the primary has committed and no standby has got: PostgreSQL shows it once its session, which waits, is ended


@pytest.fixture
def pair() -> Iterator[Replicated]:
    made = Replicated()
    yield made
    made.remove()


def end_commit(pair: Replicated, is_told: Callable[[], bool], end: Callable[[Replicated, int], None]) -> None:
    """Ends the session that waits for the standby; returns when whoever looks up what it has committed waits, too."""
    [number] = pair.waiting()
    end(pair, number)
    until(lambda: is_told() or pair.waiting(), "nobody asks what has become of the commit")


@pytest.mark.parametrize("end", [Replicated.end_session, Replicated.cancel])
def test_a_commit_that_was_looked_up_waits_for_the_standby(
    pair: Replicated, end: Callable[[Replicated, int], None]
) -> None:
    with mongottl.start_server(store=pair.store) as server, closing(WireClient(server.uri)) as client:
        assert client.command({"create": "carts"})["ok"]
        pair.cut_off()
        client.send({"insert": "carts", "documents": [{"_id": 1}]})
        until(pair.waiting, "the insert does not wait")
        end_commit(pair, client.has_reply, end)
        pair.kill_primary()
        pair.promote()
        assert client.reply()["n"] == 1
        assert client.command({"find": "carts"})["cursor"]["firstBatch"] == [{"_id": 1}]


def test_a_retried_write_waits_for_the_standby(pair: Replicated, tmp_path: Path) -> None:
    command = {
        "insert": "carts",
        "documents": [{"_id": 1}],
        "lsid": {"id": Binary.from_uuid(uuid.uuid4())},
        "txnNumber": Int64(1),
    }
    options = ("--port", "0", "--store", pair.store, "--topology", "sharded")
    first = Process(tmp_path / "first", *options)
    second = Process(tmp_path / "second", *options)
    try:
        with closing(WireClient(first.uri)) as one, closing(WireClient(second.uri)) as two:
            assert one.command({"create": "carts"})["ok"]
            pair.cut_off()
            one.send(command)
            until(pair.waiting, "the insert does not wait")
            first.kill()
            two.send(command)
            end_commit(pair, two.has_reply, Replicated.end_session)
            pair.kill_primary()
            pair.promote()
            reply = two.reply()
            if not reply["ok"]:  # it had lost its place, which it could not renew
                reply = two.command(command)
            assert reply["n"] == 1
            assert two.command({"find": "carts"})["cursor"]["firstBatch"] == [{"_id": 1}]
    finally:
        first.kill()
        second.kill()


def test_nodes_forget_changes_that_a_promoted_standby_lacks(pair: Replicated, tmp_path: Path) -> None:
    pair.execute("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
    options = ("--port", "0", "--store", pair.store, "--topology", "sharded")
    nodes = [Process(tmp_path / f"node{number}", *options) for number in range(2)]
    try:
        with ExitStack() as stack:
            wires = [stack.enter_context(closing(WireClient(node.uri))) for node in nodes]
            one, two = wires
            for name in ("kept", "dropped"):
                assert one.command({"insert": name, "documents": [{"_id": 1, "n": 1}]})["n"] == 1
            last = "SELECT pg_current_wal_lsn() <= replay_lsn FROM pg_stat_replication"
            until(lambda: pair.execute(last) == [(True,)], "the standby lags")
            pair.cut_off()
            index = {"key": {"n": 1}, "name": "n"}
            assert one.command({"createIndexes": "kept", "indexes": [index]})["ok"]
            assert two.command({"drop": "dropped"})["ok"]
            assert two.command({"create": "lost"})["ok"]
            pair.kill_primary()
            pair.promote()
            # The versions of the changes that were lost are given to others at once.
            assert two.command({"create": "made"})["ok"]
            for wire in wires:
                listed = wire.command({"listCollections": 1, "nameOnly": True})["cursor"]["firstBatch"]
                assert sorted(each["name"] for each in listed) == ["dropped", "kept", "made"]
                assert len(wire.command({"listIndexes": "kept"})["cursor"]["firstBatch"]) == 1
            for number, name in enumerate(("dropped", "kept", "made", "lost"), 2):
                for wire in wires:
                    assert wire.command({"insert": name, "documents": [{"n": number}]})["n"] == 1, name
            for wire in wires:
                for name in ("dropped", "kept", "made", "lost"):
                    assert wire.command({"validate": name, "full": True})["valid"]
                assert len(wire.command({"find": "dropped"})["cursor"]["firstBatch"]) == 3
    finally:
        for node in nodes:
            node.kill()


def test_a_primary_that_says_nothing_any_more_is_left_for_the_standby(pair: Replicated) -> None:
    """As when its machine is gone: nobody is told that the connections have ended."""
    with (
        closing(CuttingProxy(pair.socket_of(0))) as first,
        closing(CuttingProxy(pair.socket_of(1))) as second,
        mongottl.start_server(
            store=f"postgresql://mongottl@127.0.0.1:{first.port},127.0.0.1:{second.port}/postgres?schema=silent"
        ) as server,
        ExitStack() as stack,
    ):
        wires = [stack.enter_context(closing(WireClient(server.uri))) for _ in range(6)]
        for number, wire in enumerate(wires):
            assert wire.command({"insert": "carts", "documents": [{"_id": number}]})["n"] == 1
        silent_s = time.monotonic()
        first.be_silent()
        for number, wire in enumerate(wires):
            wire.send({"insert": "carts", "documents": [{"_id": 10 + number}]})
        pair.kill_primary()
        pair.promote()
        for wire in wires:
            assert wire.reply()["n"] == 1
        assert wires[0].command({"count": "carts"})["n"] == 12
        # Of a connection that is silent the server itself thinks so only after 40.
        assert time.monotonic() - silent_s < 30


def test_a_server_warns_of_a_primary_that_waits_for_no_standby() -> None:
    pair = Replicated()
    try:
        message = "A standby that takes the place of the primary may lack acknowledged writes"
        assert message not in warnings_of(pair.store)
        pair.execute("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
        assert message in warnings_of(pair.store)
        assert message not in warnings_of(f"postgresql://mongottl@/postgres?host={pair.primary.run_folder}")
    finally:
        pair.remove()


def warnings_of(store: str) -> str:
    """What shells show when they connect to a server that has just started."""
    with mongottl.start_server(store=store) as server, pymongo.MongoClient[dict[str, Any]](server.uri) as client:
        return "\n".join(client.admin.command("getLog", "startupWarnings")["log"])
