"""Histories of many clients while faults hit the server and its PostgreSQL, one after the other: all is exact.

Each client repeats what was not answered, with the session and number that it had, until it knows the outcome, also
from a server that was killed and started again. So it is known of each write whether it was done, and it must have been
done once. MONGOTTL_STORE_ROUNDS=100 has a hundred faults; by default each kind comes once.
"""

import contextlib
import os
import random
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pymongo
import pytest
from bson import Binary, Int64, encode
from pymongo.errors import PyMongoError

from tests import postgres
from tests.drivers.process.test_process import Process
from tests.drivers.wire_client import WireClient
from tests.histories import CHANGE, READ, WRITE, Moments, Operation, fits_one_order
from tests.oplog_replay import replay
from tests.postgres import OwnCluster
from tests.postgresql.proxies import AFTER_COMMIT, BEFORE_COMMIT, CuttingProxy
from tests.waiting import until

pytestmark = pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing())

Documents = dict[str, Any]
Client = pymongo.MongoClient[Documents]
ACCOUNTS: Final = 6
BALANCE: Final = 100
REGISTERS: Final = 2
COUNTERS: Final = 3
COLLECTIONS: Final = ("accounts", "counters", "ledger", "registers", "sets", "unique")
# What each client does after a fault before the round can end.
STEPS: Final = 3
AWAY: Final = 6
INTERRUPTED_AT_SHUTDOWN: Final = 11600
DUPLICATE_KEY: Final = 11000
RETRYABLE: Final = "RetryableWriteError"
TRANSIENT: Final = "TransientTransactionError"
UNKNOWN: Final = "UnknownTransactionCommitResult"


class World:
    """The server, which is killed and started again, before a PostgreSQL to which it goes through a proxy."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.moments = Moments()
        self.cluster = OwnCluster()
        self.proxy = CuttingProxy(f"{self.cluster.run_folder}/.s.PGSQL.5432", only_commits=True)
        self.round = 0
        self._folder = folder
        self._starts = 0
        self.start()

    @property
    def store(self) -> str:
        return f"postgresql://mongottl@127.0.0.1:{self.proxy.port}/postgres?schema=histories"

    def start(self) -> None:
        self._starts += 1
        self.process = Process(self._folder / f"log{self._starts}", "--port", "0", "--store", self.store)

    @property
    def uri(self) -> str:
        return self.process.uri

    def kill(self) -> None:
        self.process.kill()
        assert "Traceback" not in self.process.log.read_text()

    def close(self) -> None:
        self.process.kill()
        self.proxy.close()
        self.cluster.remove()

    # The faults

    def end_some_sessions(self) -> None:
        self.cluster.end_sessions(self.chance.choice([0.2, 0.5, 1.0]))

    def restart_postgresql(self) -> None:
        self.cluster.stop()
        self.cluster.start()

    def kill_server(self) -> None:
        self.kill()
        self.start()

    def kill_both(self) -> None:
        self.kill()
        self.restart_postgresql()
        self.start()

    def cut_before_commit(self) -> None:
        self._cut(BEFORE_COMMIT)

    def cut_after_commit(self) -> None:
        self._cut(AFTER_COMMIT)

    def cut_and_kill(self) -> None:
        """The server ends while it does not know what PostgreSQL has committed."""
        self._cut(self.chance.choice([BEFORE_COMMIT, AFTER_COMMIT]))
        self.kill_server()

    def cut_and_restart_postgresql(self) -> None:
        self._cut(self.chance.choice([BEFORE_COMMIT, AFTER_COMMIT]))
        self.restart_postgresql()

    def _cut(self, when: str) -> None:
        cuts = self.proxy.cuts
        self.proxy.cut = when
        until(lambda: self.proxy.cuts > cuts, "nothing was committed")


FAULTS: Final[tuple[Callable[[World], None], ...]] = (
    World.end_some_sessions,
    World.cut_after_commit,
    World.kill_server,
    World.cut_before_commit,
    World.restart_postgresql,
    World.cut_and_kill,
    World.end_some_sessions,
    World.cut_and_restart_postgresql,
    World.kill_both,
)
ROUNDS: Final = int(os.environ.get("MONGOTTL_STORE_ROUNDS", len(FAULTS)))
SEED: Final = int(os.environ.get("MONGOTTL_STORE_SEED", "1"))


class Unanswered(Exception):
    """The server, or its database, was away: it is not known whether the command was carried out."""


class Session:
    """A client with a session of its own, whose server may be another one each time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._lsid = {"id": Binary.from_uuid(uuid.uuid4())}
        self._number = 0
        self._connection: WireClient | None = None

    def once(self, command: Documents, database: str = "bank") -> Documents:
        """The reply to a command. Unanswered."""
        try:
            if self._connection is None:
                self._connection = WireClient(self.world.uri)
            reply = self._connection.command({**command, "lsid": self._lsid}, database)
        except OSError as error:
            self.close()
            raise Unanswered from error
        if not reply["ok"] and (
            reply["code"] in (AWAY, INTERRUPTED_AT_SHUTDOWN) or labels_of(reply) & {RETRYABLE, UNKNOWN}
        ):
            raise Unanswered
        return reply

    def ask(self, command: Documents, database: str = "bank") -> Documents:
        """The reply to a command, which is repeated until there is one."""
        replies: list[Documents] = []

        def is_answered() -> bool:
            with contextlib.suppress(Unanswered):
                replies.append(self.once(command, database))
            return bool(replies)

        until(is_answered, f"no answer to {command}")
        return replies[0]

    def write(self, command: Documents) -> Documents:
        """The reply to a retryable write, which is repeated until there is one."""
        reply = self.ask({**command, "txnNumber": self.next_number()})
        assert reply["ok"], reply
        return reply

    def next_number(self) -> Int64:
        self._number += 1
        return Int64(self._number)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def labels_of(reply: Documents) -> set[str]:
    return set(reply.get("errorLabels", ()))


class Worker:
    """A client that does the same again and again. steps: how often it has."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.session = Session(world)
        self.chance = random.Random(f"{type(self).__name__} {number}")
        self.steps = 0
        self.broken: BaseException | None = None

    def work(self, stops: threading.Event) -> None:
        try:
            while not stops.is_set():
                self.step()
                self.steps += 1
        except BaseException as error:
            self.broken = error

    def step(self) -> None:
        raise NotImplementedError

    def new_key(self) -> str:
        return f"{self.world.round} {self.number} {self.world.moments.now()}"


class Registers(Worker):
    """Reads, writes and changes registers. done: what it has done in this round, by register."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self.done: dict[str, list[Operation]] = {}
        self._seen = 0

    def step(self) -> None:
        key = register_of(self.world.round, self.chance.randrange(REGISTERS))
        kind = self.chance.choice([READ, WRITE, CHANGE, CHANGE])
        moments = self.world.moments
        value, expected = moments.now(), self._seen
        begun = moments.now()
        done = True
        if kind == READ:
            reply = self.session.ask({"find": "registers", "filter": {"_id": key}, "singleBatch": True})
            [found] = reply["cursor"]["firstBatch"]
            self._seen = value = found["v"]
        else:
            query = {"_id": key} if kind == WRITE else {"_id": key, "v": expected}
            updates = [{"q": query, "u": {"$set": {"v": value}}}]
            reply = self.session.write({"update": "registers", "updates": updates})
            done = reply["n"] == 1
            assert done or kind == CHANGE
        operation = Operation(kind, begun, moments.now(), value, expected, done)
        self.done.setdefault(key, []).append(operation)


def register_of(round_number: int, number: int) -> str:
    return f"{round_number} {number}"


class Sets(Worker):
    """Inserts keys, some together, and removes every fourth one. held: those that have to be there."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self.held: set[str] = set()
        self.removed: set[str] = set()

    def step(self) -> None:
        keys = [self.new_key() for _ in range(self.chance.choice([1, 1, 3]))]
        reply = self.session.write({"insert": "sets", "documents": [{"_id": key} for key in keys]})
        assert reply["n"] == len(keys), reply
        assert "writeErrors" not in reply, reply
        self.held.update(keys)
        if self.chance.random() < 0.25:
            key = self.chance.choice(keys)
            assert self.session.write({"delete": "sets", "deletes": [{"q": {"_id": key}, "limit": 1}]})["n"] == 1
            self.held.remove(key)
            self.removed.add(key)


class Counters(Worker):
    """Increments counters. done: how often, by counter; told: the values that it was told."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self.done: Counter[int] = Counter()
        self.told: list[tuple[int, int]] = []

    def step(self) -> None:
        key = self.chance.randrange(COUNTERS)
        change = {"$inc": {"n": 1}}
        if self.chance.random() < 0.5:
            reply = self.session.write({"update": "counters", "updates": [{"q": {"_id": key}, "u": change}]})
            assert reply["nModified"] == 1, reply
        else:
            reply = self.session.write(
                {"findAndModify": "counters", "query": {"_id": key}, "update": change, "new": True}
            )
            self.told.append((key, reply["value"]["n"]))
        self.done[key] += 1


class UniqueKeys(Worker):
    """Competes for keys of a unique index. won: the `_id` with which it has got each; lost: keys that others have."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self.won: dict[str, str] = {}
        self.lost: set[str] = set()

    def step(self) -> None:
        key = f"{self.world.round} {self.steps}"
        name = self.new_key()
        reply = self.session.write({"insert": "unique", "documents": [{"_id": name, "key": key}]})
        if reply["n"] == 1:
            self.won[key] = name
        else:
            assert reply["writeErrors"][0]["code"] == DUPLICATE_KEY, reply
            self.lost.add(key)


class Transfers(Worker):
    """Moves money between accounts and records it in transactions. committed: those whose commit has succeeded."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self.committed: set[str] = set()

    def step(self) -> None:
        token = self.new_key()
        source, target = self.chance.sample(range(ACCOUNTS), 2)
        number = {"txnNumber": self.session.next_number(), "autocommit": False}
        statements: list[Documents] = [
            {"update": "accounts", "updates": [transfer_of(source, -1)], "startTransaction": True},
            {"insert": "ledger", "documents": [{"_id": token}]},
            {"update": "accounts", "updates": [transfer_of(target, 1)]},
        ]
        for statement in statements:
            try:
                reply = self.session.once({**statement, **number})
            except Unanswered:
                return
            if not reply["ok"]:
                assert TRANSIENT in labels_of(reply), reply
                return
            assert reply["n"] == 1, reply
        if self.chance.random() < 0.1:
            with contextlib.suppress(Unanswered):
                self.session.once({"abortTransaction": 1, **number}, "admin")
            return
        reply = self.session.ask({"commitTransaction": 1, **number}, "admin")
        if reply["ok"]:
            self.committed.add(token)
        else:
            assert TRANSIENT in labels_of(reply), reply


def transfer_of(account: int, amount: int) -> Documents:
    return {"q": {"_id": account}, "u": {"$inc": {"balance": amount, "v": 1}}}


class Snapshots(Worker):
    """Reads all accounts in one snapshot each time."""

    def step(self) -> None:
        reply = self.session.ask({"find": "accounts", "readConcern": {"level": "snapshot"}})
        if reply["ok"]:
            assert sum(account["balance"] for account in reply["cursor"]["firstBatch"]) == ACCOUNTS * BALANCE
        else:
            assert reply["codeName"] in ("SnapshotTooOld", "SnapshotUnavailable"), reply


class Stream:
    """Reads the events of all collections, from where it was after each fault. told: all events, in order."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.told: list[Documents] = []
        self._resume: Any = None
        self._stops = threading.Event()
        self.broken: BaseException | None = None
        with Client(world.uri) as client, client.bank.watch() as stream:
            self._resume = stream.resume_token
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def _follow(self) -> None:
        try:
            while not self._stops.is_set():
                with contextlib.suppress(PyMongoError):
                    self._read()
        except BaseException as error:
            self.broken = error

    def _read(self) -> None:
        with (
            Client(self._world.uri, serverSelectionTimeoutMS=500) as client,
            client.bank.watch(resume_after=self._resume, max_await_time_ms=20) as stream,
        ):
            while not self._stops.is_set():
                event = stream.try_next()
                if event is not None:
                    self.told.append(event)
                self._resume = stream.resume_token

    def wait_for(self, key: str) -> None:
        """Returns when the insertion of this key was told."""
        place = 0

        def is_told() -> bool:
            nonlocal place
            assert self.broken is None, self.broken
            while place < len(self.told):
                event = self.told[place]
                place += 1
                if event["operationType"] == "insert" and event["documentKey"]["_id"] == key:
                    return True
            return False

        until(is_told, f"the stream has not told of {key}")

    def stop(self) -> None:
        self._stops.set()
        self._thread.join()

    def of(self, collection: str, kind: str) -> list[Documents]:
        """The events of a kind in a collection."""
        return [event for event in self.told if event["ns"]["coll"] == collection and event["operationType"] == kind]


class Histories:
    """The workers of all rounds, and what has to hold."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.registers = [Registers(world, number) for number in range(3)]
        self.sets = [Sets(world, number) for number in range(2)]
        self.counters = [Counters(world, number) for number in range(2)]
        self.unique = [UniqueKeys(world, number) for number in range(2)]
        self.transfers = [Transfers(world, number) for number in range(3)]
        self.workers: list[Worker] = [
            *self.registers,
            *self.sets,
            *self.counters,
            *self.unique,
            *self.transfers,
            Snapshots(world, 0),
        ]
        self._main = Session(world)
        self._marks: set[str] = set()
        with Client(world.uri) as client:
            bank = client.bank
            bank.create_collection("ledger")
            bank.create_collection("sets")
            bank.create_collection("registers")
            bank.unique.create_index("key", unique=True)
            self.stream = Stream(world)
            bank.accounts.insert_many([{"_id": n, "balance": BALANCE, "v": 0} for n in range(ACCOUNTS)])
            bank.counters.insert_many([{"_id": n, "n": 0} for n in range(COUNTERS)])

    def play(self, fault: Callable[[World], None]) -> None:
        """One round: work, a fault, and work after it."""
        world = self.world
        world.round += 1
        keys = [register_of(world.round, number) for number in range(REGISTERS)]
        self._main.write({"insert": "registers", "documents": [{"_id": key, "v": 0} for key in keys]})
        for each in self.registers:
            each.done = {}
        stops = threading.Event()
        threads = [threading.Thread(target=worker.work, args=(stops,)) for worker in self.workers]
        for thread in threads:
            thread.start()
        try:
            self._wait_for_steps(world.chance.randrange(1, 2 * STEPS))
            fault(world)
            self._wait_for_steps(STEPS)
        finally:
            stops.set()
            for thread in threads:
                thread.join()
        mark = f"{world.round} mark"
        self._main.write({"insert": "sets", "documents": [{"_id": mark}]})
        self._marks.add(mark)
        self.stream.wait_for(mark)
        self._check_broken()
        for key in keys:
            self._check_register(key)

    def close(self) -> None:
        self.stream.stop()
        for session in (self._main, *(worker.session for worker in self.workers)):
            session.close()

    def _wait_for_steps(self, count: int) -> None:
        """Returns when each worker has done so many more steps."""
        wanted = [worker.steps + count for worker in self.workers]

        def is_reached() -> bool:
            self._check_broken()
            return all(worker.steps >= steps for worker, steps in zip(self.workers, wanted, strict=True))

        until(is_reached, f"in round {self.world.round} some do not go on")

    def _check_broken(self) -> None:
        for worker in self.workers:
            if worker.broken is not None:
                raise worker.broken
        if self.stream.broken is not None:
            raise self.stream.broken

    def _check_register(self, key: str) -> None:
        operations = [operation for each in self.registers for operation in each.done.get(key, ())]
        assert fits_one_order(operations, 0), sorted(operations, key=lambda operation: operation.begun)
        [found] = self._main.ask({"find": "registers", "filter": {"_id": key}})["cursor"]["firstBatch"]
        written = [operation.value for operation in operations if operation.kind != READ and operation.done]
        updates = [event for event in self.stream.of("registers", "update") if event["documentKey"]["_id"] == key]
        told = [event["updateDescription"]["updatedFields"]["v"] for event in updates]
        assert sorted(told) == sorted(written)
        assert (told or [0])[-1] == found["v"]

    def check(self) -> None:
        """What has to hold after all rounds, of the data, of the stream, and of the oplog."""
        with Client(self.world.uri) as client:
            bank = client.bank
            stored = {name: {each["_id"]: each for each in bank[name].find()} for name in COLLECTIONS}
            self._check_documents(stored)
            self._check_stream(stored)
            for name in COLLECTIONS:
                assert bank.command("validate", name, full=True)["valid"], name
                assert bank[name].count_documents({}) == bank[name].estimated_document_count() == len(stored[name])
            logged = replay(client.local["oplog.rs"].find())
            for name in COLLECTIONS:
                assert logged[f"bank.{name}"] == {encode({"": key}): each for key, each in stored[name].items()}
            assert client.admin.command("serverStatus")["asserts"]["internal"] == 0

    def _check_documents(self, stored: dict[str, dict[Any, Documents]]) -> None:
        assert stored["sets"].keys() == self._marks.union(*(each.held for each in self.sets))
        for key in range(COUNTERS):
            assert stored["counters"][key]["n"] == sum(each.done[key] for each in self.counters)
        told = [value for each in self.counters for value in each.told]
        assert len(told) == len(set(told)), "a value of a counter was told twice"
        won = [item for each in self.unique for item in each.won.items()]
        assert sorted(won) == sorted((each["key"], key) for key, each in stored["unique"].items())
        assert set().union(*(each.lost for each in self.unique)) <= dict(won).keys()
        assert stored["ledger"].keys() == set().union(*(each.committed for each in self.transfers))
        accounts = stored["accounts"].values()
        assert sum(account["balance"] for account in accounts) == ACCOUNTS * BALANCE
        assert sum(account["v"] for account in accounts) == 2 * len(stored["ledger"])

    def _check_stream(self, stored: dict[str, dict[Any, Documents]]) -> None:
        stream = self.stream
        for name in COLLECTIONS:
            inserted = Counter(event["documentKey"]["_id"] for event in stream.of(name, "insert"))
            deleted = Counter(event["documentKey"]["_id"] for event in stream.of(name, "delete"))
            removed = set().union(*(each.removed for each in self.sets)) if name == "sets" else set()
            assert deleted == Counter(removed)
            assert inserted == Counter([*stored[name], *removed])
        for key in range(COUNTERS):
            updates = [event for event in stream.of("counters", "update") if event["documentKey"]["_id"] == key]
            values = [event["updateDescription"]["updatedFields"]["n"] for event in updates]
            assert values == list(range(1, stored["counters"][key]["n"] + 1))
        times = [event["clusterTime"] for event in stream.told]
        assert times == sorted(times)
        check_transactions(
            [event for event in stream.told if "lsid" in event and event["ns"]["coll"] in ("accounts", "ledger")]
        )


def check_transactions(told: list[Documents]) -> None:
    """The three events of each transaction come together."""
    for place in range(0, len(told), 3):
        three = told[place : place + 3]
        assert [event["ns"]["coll"] for event in three] == ["accounts", "ledger", "accounts"]
        assert len({(str(event["lsid"]), event["txnNumber"], event["clusterTime"]) for event in three}) == 1


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, SEED)
    yield made
    made.close()


@pytest.mark.slow
def test_histories_are_exact_whatever_fails(world: World) -> None:
    histories = Histories(world)
    try:
        for number in range(ROUNDS):
            histories.play(FAULTS[number % len(FAULTS)])
        histories.check()
        world.kill_server()
        histories.check()
    finally:
        histories.close()
