"""Histories of many clients of three servers with one store, while these are killed, stopped, and come and go.

Each client repeats on another server what was not answered. Besides what holds with one (`test_store_histories`): no
server shows a document after its second, or loses one before; and collections and indexes that all change at once are
the same for all. MONGOTTL_FLEET_ROUNDS=100 has a hundred faults; by default the first five kinds come once.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pymongo
import pytest

from tests import postgres
from tests.drivers.process.test_process import Process
from tests.drivers.storage.test_store_histories import SEED, Client, Documents, Histories, Session, Worker, World
from tests.drivers.wire_client import WireClient
from tests.postgresql.proxies import CuttingProxy
from tests.waiting import until

pytestmark = pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing())

SERVERS: Final = 3
# Longer than others take a server that does not answer for living.
FROZEN_S: Final = 4.0
MADE: Final = 4
# What is refused because others have changed the same: no such collection or index, there is one, it was dropped or is
# built meanwhile, or has other options.
OVERTAKEN: Final = frozenset({26, 27, 48, 68, 85, 86, 112, 117, 175, 276, 12587})


class Fleet(World):
    """Several servers, each with a link of its own to PostgreSQL; a client that connects gets any of them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.servers: list[Process] = []
        self._links: list[CuttingProxy] = []
        super().__init__(folder, seed)

    def start(self) -> None:
        while len(self._links) < SERVERS - 1:
            self._links.append(CuttingProxy(f"{self.cluster.run_folder}/.s.PGSQL.5432"))
        while len(self.servers) < SERVERS:
            # The oldest ones end first, so all have different ones.
            link = (self.proxy, *self._links)[self._starts % SERVERS]
            self._starts += 1
            store = f"postgresql://mongottl@127.0.0.1:{link.port}/postgres?schema=fleet"
            # With room for the oplog of half an hour, which is replayed at the end.
            options = ("--port", "0", "--store", store, "--topology", "sharded", "--oplog-size-mb", "4096")
            self.servers.append(Process(self._folder / f"log{self._starts}", *options))

    @property
    def uri(self) -> str:
        return self.chance.choice(self.servers).uri

    def kill(self, count: int = SERVERS) -> None:
        for _ in range(count):
            server = self.servers.pop(0)
            server.kill()
            assert "Traceback" not in server.log.read_text()

    def close(self) -> None:
        for server in self.servers:
            server.popen.send_signal(signal.SIGCONT)
            server.kill()
        for link in (self.proxy, *self._links):
            link.close()
        self.cluster.remove()

    # The faults

    def kill_one(self) -> None:
        self.kill(1)
        self.start()

    def kill_two(self) -> None:
        self.kill(2)
        self.start()

    def end_one(self) -> None:
        server = self.servers.pop(0)
        server.stop()
        server.kill()  # which closes its output
        self.start()

    def freeze_one(self) -> None:
        """One server stands still for longer than it has a place."""
        self._freeze(FROZEN_S)

    def freeze_one_for_a_moment(self) -> None:
        self._freeze(0.7)

    def _freeze(self, seconds: float) -> None:
        server = self.chance.choice(self.servers)
        server.popen.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        server.popen.send_signal(signal.SIGCONT)

    def lose_answers(self) -> None:
        """One server hears nothing of PostgreSQL, which hears it."""
        self._lose(forward=False)

    def lose_requests(self) -> None:
        self._lose(backward=False)

    def lose_link(self) -> None:
        self._lose()

    def lose_link_for_a_moment(self) -> None:
        self._lose(seconds=0.7)

    def lose_link_and_kill(self) -> None:
        """What the server has sent arrives when it is dead and others have its place."""
        link = (self.proxy, *self._links)[(self._starts - SERVERS) % SERVERS]
        link.be_silent()
        time.sleep(0.3)
        self.kill(1)
        time.sleep(FROZEN_S)
        link.speak()
        self.start()

    def lose_all_links(self) -> None:
        """PostgreSQL cannot be reached."""
        for link in (self.proxy, *self._links):
            link.be_silent()
        time.sleep(FROZEN_S)
        for link in (self.proxy, *self._links):
            link.speak()

    def _cut(self, when: str) -> None:
        cuts = self.proxy.cuts
        self.proxy.cut = when
        until_s = time.monotonic() + 1.0
        while self.proxy.cuts == cuts and time.monotonic() < until_s:
            time.sleep(0.002)
        if self.proxy.cuts == cuts:
            # No client is at the server that has this link, perhaps.
            client = WireClient(self.servers[-self._starts % SERVERS].uri)
            with contextlib.suppress(OSError):
                client.command({"insert": "cut", "documents": [{}]}, "other")
            client.close()
        until(lambda: self.proxy.cuts > cuts, "nothing was committed")

    def _lose(self, forward: bool = True, backward: bool = True, seconds: float = FROZEN_S) -> None:
        link = self.chance.choice((self.proxy, *self._links))
        link.be_silent(forward, backward)
        time.sleep(seconds)
        link.speak()


FAULTS: Final[tuple[Callable[[Fleet], None], ...]] = (
    Fleet.kill_one,
    Fleet.lose_answers,
    Fleet.cut_after_commit,
    Fleet.freeze_one,
    Fleet.restart_postgresql,
    Fleet.lose_link_and_kill,
    Fleet.end_one,
    Fleet.lose_link,
    Fleet.freeze_one_for_a_moment,
    Fleet.cut_before_commit,
    Fleet.lose_requests,
    Fleet.kill_two,
    Fleet.lose_link_for_a_moment,
    Fleet.end_some_sessions,
    Fleet.lose_all_links,
)
ROUNDS: Final = int(os.environ.get("MONGOTTL_FLEET_ROUNDS", "5"))


class Expiring(Worker):
    """Inserts documents that expire in some seconds, and looks for them on all servers."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self.reader = Session(world)
        # By `_id`: until when a document has to be there, and from when on it may not be, in seconds.
        self._times: dict[str, tuple[float, float]] = {}

    def step(self) -> None:
        key, ttl = self.new_key(), self.chance.choice([1, 2, 3])
        begun_s = time.time()
        self.session.write({"insert": "expiring", "documents": [{"_id": key, "ttl": ttl}]})
        self._times[key] = (int(begun_s) + ttl, int(time.time()) + ttl + 1)
        self.reader.close()  # so that another server is asked
        asked_s = time.time()
        reply = self.reader.ask({"find": "expiring", "filter": {"_id": {"$in": list(self._times)}}, "batchSize": 1000})
        answered_s = time.time()
        found = {each["_id"] for each in reply["cursor"]["firstBatch"]}
        for key, (until_s, from_s) in list(self._times.items()):
            assert key in found or answered_s >= until_s, f"{key} is lost {until_s - answered_s} s before its time"
            assert key not in found or asked_s < from_s, f"{key} is shown {asked_s - from_s} s after its second"
            if asked_s > from_s + 2:
                del self._times[key]


class Changes(Worker):
    """Makes, changes, renames and drops collections and indexes, of which there are few."""

    def step(self) -> None:
        name = f"made_{self.chance.randrange(MADE)}"
        kind = self.chance.randrange(8)
        command: Documents = {"insert": name, "documents": [{"n": self.steps}, {"n": [self.steps, -1]}]}
        if kind == 0:
            command = {"create": name}
        elif kind == 1:
            index = {"key": {"n": 1}, "name": "n_1"}
            command = {"createIndexes": name, "indexes": [index]}
        elif kind == 2:
            command = {"dropIndexes": name, "index": "n_1"}
        elif kind == 3:
            command = {"collMod": name, "validationLevel": "moderate"}
        elif kind == 4:
            command = {"drop": name}
        elif kind == 5:
            other = f"storm.made_{self.chance.randrange(MADE)}"
            command = {"renameCollection": f"storm.{name}", "to": other, "dropTarget": True}
        elif kind == 6:
            command = {"convertToCapped": name, "size": 1 << 20}
        reply = self.session.ask(command, "admin" if kind == 5 else "storm")
        codes = {error["code"] for error in reply.get("writeErrors", ())} | {reply.get("code", 0)}
        # Renamed to itself: IllegalOperation.
        assert codes <= OVERTAKEN | {0, 20}, (command, reply)


class FleetHistories(Histories):
    def __init__(self, world: Fleet) -> None:
        super().__init__(world)
        with Client(world.uri) as client:
            client.bank.expiring.create_index("_ts", expireAfterSeconds=1000)
        self._expiring = [Expiring(world, 0), Expiring(world, 1)]
        self.workers += [*self._expiring, Changes(world, 0), Changes(world, 1)]

    def close(self) -> None:
        super().close()
        for each in self._expiring:
            each.reader.close()

    def check(self) -> None:
        super().check()
        assert isinstance(self.world, Fleet)
        seen: list[Any] = []
        for server in self.world.servers:
            with pymongo.MongoClient[Documents](server.uri) as client:
                storm = client.storm
                names = sorted(storm.list_collection_names())
                seen.append(
                    [(name, storm[name].index_information(), storm[name].count_documents({})) for name in names]
                )
                for name in names:
                    checked = storm.command("validate", name, full=True)
                    assert checked["valid"], checked
        assert seen == [seen[0]] * SERVERS


@pytest.mark.slow
def test_histories_of_several_servers_are_exact_whatever_fails(tmp_path: Path) -> None:
    world = Fleet(tmp_path, SEED)
    try:
        histories = FleetHistories(world)
        try:
            for number in range(ROUNDS):
                fault = FAULTS[number % len(FAULTS)]
                histories.play(lambda _, fault=fault: fault(world))  # type: ignore[misc]
            histories.check()
        finally:
            histories.close()
    finally:
        world.close()
