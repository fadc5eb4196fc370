"""What other operations do while one waits for a script in the middle of a step."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure

import mongottl
from mongottl.javascript.library import missing_reason
from mongottl.javascript.scripts import PROGRAM
from mongottl.processes import conversation, pool
from mongottl.server import janitor
from tests.on_nodes import own_operations
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing_reason()), reason=missing_reason())]

Documents = dict[str, Any]

# True for documents with this value, at its first call after so long that the test acts meanwhile.
SLOW = "function() { if (this.slow) sleep(500); return this.v == 1; }"
SLOW_UPDATE: list[Documents] = [
    {
        "$set": {
            "made": {
                "$function": {
                    "body": "function(slow, v) { if (slow) sleep(500); return 'of ' + v; }",
                    "args": ["$slow", "$v"],
                    "lang": "js",
                }
            }
        }
    }
]


def meanwhile(database: Database[Documents], run: Callable[[], Any], act: Callable[[], Any]) -> Any:
    """The result of `run`, or its error's code; `act` is called while a script of it runs."""
    found: list[Any] = []

    def running() -> None:
        try:
            found.append(run())
        except OperationFailure as failure:
            found.append(failure.code)

    thread = threading.Thread(target=running)
    thread.start()
    while not any(
        operation.get("ns") == f"{database.name}.c"
        for operation in database.client.admin.command("currentOp")["inprog"]
    ):
        assert thread.is_alive(), found
    act()
    thread.join(PATIENCE_S)
    return found[0]


@pytest.fixture
def slow(database: Database[Documents]) -> Database[Documents]:
    database.c.insert_many([{"_id": 1, "v": 1, "slow": True}, {"_id": 2, "v": 1}, {"_id": 3, "v": 2}])
    return database


WRITES: dict[str, Callable[[Database[Documents]], int]] = {
    "update many": lambda database: database.c.update_many({"$where": SLOW}, {"$set": {"z": 1}}).modified_count,
    "update many by a script": lambda database: database.c.update_many({"v": 1}, SLOW_UPDATE).modified_count,
    "delete many": lambda database: database.c.delete_many({"$where": SLOW}).deleted_count,
}


@pytest.mark.parametrize("name", WRITES)
def test_a_document_that_changes_meanwhile(slow: Database[Documents], name: str) -> None:
    """It is tested again, and no longer matches."""
    change = {"$set": {"v": 5}, "$unset": {"slow": 1}}
    count = meanwhile(slow, lambda: WRITES[name](slow), lambda: slow.c.update_one({"_id": 1}, change))
    assert count == 1
    assert slow.c.find_one(1) == {"_id": 1, "v": 5}
    written = slow.c.find_one(2)
    assert written is None if "delete" in name else written is not None and ("z" in written or "made" in written)


@pytest.mark.parametrize("name", WRITES)
def test_a_document_that_is_deleted_meanwhile(slow: Database[Documents], name: str) -> None:
    assert meanwhile(slow, lambda: WRITES[name](slow), lambda: slow.c.delete_one({"_id": 1})) == 1
    assert slow.c.find_one(1) is None


@pytest.mark.parametrize("name", WRITES)
def test_a_collection_that_is_dropped_meanwhile(slow: Database[Documents], name: str) -> None:
    assert meanwhile(slow, lambda: WRITES[name](slow), slow.c.drop) == 175
    assert slow.list_collection_names() == []


def test_single_writes(slow: Database[Documents]) -> None:
    change = {"$set": {"v": 5}, "$unset": {"slow": 1}}

    def update() -> None:
        slow.c.update_one({"_id": 1}, change)

    assert meanwhile(slow, lambda: slow.c.delete_one({"$where": SLOW}).deleted_count, update) == 1
    assert [document["_id"] for document in slow.c.find()] == [1, 3]
    slow.c.insert_one({"_id": 0, "v": 1, "slow": True})
    found = meanwhile(
        slow, lambda: slow.c.find_one_and_update({"v": 1}, SLOW_UPDATE), lambda: slow.c.delete_one({"_id": 0})
    )
    assert found is None
    assert slow.c.count_documents({"made": {"$exists": True}}) == 0


def test_an_upsert_into_a_dropped_collection(slow: Database[Documents]) -> None:
    def upsert() -> int:
        return slow.c.update_one({"_id": 9, "slow": True}, SLOW_UPDATE, upsert=True).matched_count

    assert meanwhile(slow, upsert, slow.c.drop) == 175
    assert slow.list_collection_names() == []


def test_reads(slow: Database[Documents]) -> None:
    """A read returns what it has read before the script."""
    change = {"$set": {"v": 5}}

    def update() -> None:
        slow.c.update_many({}, change)

    assert meanwhile(slow, lambda: len(list(slow.c.find({"$where": SLOW}))), update) == 2
    slow.c.update_many({}, {"$set": {"v": 1}})
    assert meanwhile(slow, lambda: len(list(slow.c.find({"$where": SLOW}))), slow.c.drop) in (3, 175)


def test_a_document_that_expires_meanwhile() -> None:
    with mongottl.start_server() as server, MongoClient[Documents](server.uri) as client:
        database = client.d
        database.c.create_index("_ts", expireAfterSeconds=10)
        database.c.insert_many([{"_id": 1, "v": 1, "slow": True}, {"_id": 2, "v": 1}])
        count = meanwhile(database, lambda: WRITES["update many"](database), lambda: server.clock.advance(11))
        assert count == 0
        assert list(database.c.find()) == []
        database.c.insert_many([{"_id": 1, "v": 1, "slow": True}, {"_id": 2, "v": 1}])
        count = meanwhile(
            database, lambda: WRITES["update many by a script"](database), lambda: server.clock.advance(11)
        )
        assert count == 0
        assert list(database.c.find()) == []


def test_a_client_that_leaves(slow: Database[Documents], server: mongottl.RunningServer) -> None:
    """Its operation ends, and with it the script."""
    with (
        pytest.raises(Exception, match="timed out"),
        MongoClient[Documents](server.uri, socketTimeoutMS=300) as leaving,
    ):
        list(leaving[slow.name].c.find({"$where": "while (true);"}))
    while any(
        "$where" in str(operation.get("command")) for operation in slow.client.admin.command("currentOp")["inprog"]
    ):
        pass


@pytest.mark.parametrize("ending", ["maxTimeMS", "killOp"])
def test_an_operation_that_waits_for_a_process(
    slow: Database[Documents], monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setattr(PROGRAM, "most", 1)
    admin = slow.client.admin
    codes: dict[str, int | None] = {}

    def loop(name: str, limit_ms: int) -> None:
        try:
            list(slow.c.find({"$where": "while (true);"}, comment=name, max_time_ms=limit_ms))
        except OperationFailure as failure:
            codes[name] = failure.code

    def number(name: str) -> Any:
        while True:
            for operation in admin.command("currentOp")["inprog"]:
                if operation.get("command", {}).get("comment") == name:
                    return operation["opid"]

    running = threading.Thread(target=loop, args=("running", 60_000))
    running.start()
    first = number("running")
    waiting = threading.Thread(target=loop, args=("waiting", 300 if ending == "maxTimeMS" else 60_000))
    waiting.start()
    if ending == "killOp":
        admin.command("killOp", op=number("waiting"))
    waiting.join(PATIENCE_S)
    assert codes == {"waiting": 50 if ending == "maxTimeMS" else 11601}
    admin.command("killOp", op=first)
    running.join(PATIENCE_S)
    assert codes["running"] == 11601


def test_many_at_once(slow: Database[Documents]) -> None:
    """More than there are processes."""
    found: list[int] = []
    threads = [
        threading.Thread(
            target=lambda: found.append(len(list(slow.c.find({"$where": "sleep(20); return this.v == 1"}))))
        )
        for _ in range(40)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert found == [2] * 40


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few processes, and calls that soon have to make room."""
    monkeypatch.setattr(PROGRAM, "most", 4)
    monkeypatch.setattr(conversation, "CROWDED_LIMIT_MS", 200)


class Attack:
    """Endless scripts, more than there are processes. codes: of those that have ended, as some may have already when
    the last one begins. It ends with its client."""

    def __init__(self, client: MongoClient[Documents]) -> None:
        self.codes: list[int | None] = []
        self._client = client
        self._threads = [threading.Thread(target=self._loop) for _ in range(8)]
        for thread in self._threads:
            thread.start()
        until(lambda: self._running() + len(self.codes) >= len(self._threads), "not all scripts have begun")

    def _running(self) -> int:
        found = self._client.admin.aggregate([{"$currentOp": {}}, {"$match": {"ns": "shop.c"}}, {"$count": "n"}])
        return int(next(iter(found), {"n": 0})["n"])

    def _loop(self) -> None:
        try:
            list(self._client.shop.c.find({"$where": "while (true);"}))
        except OperationFailure as failure:
            self.codes.append(failure.code)

    def end(self) -> None:
        for operation in self._client.admin.aggregate([{"$currentOp": {}}, {"$match": {"ns": "shop.c"}}]):
            self._client.admin.command("killOp", op=operation["opid"])
        for thread in self._threads:
            thread.join(PATIENCE_S)
        assert set(self.codes) <= {11601, 139}


def test_endless_scripts_do_not_lock_others_of_the_machine_out(crowded: None) -> None:
    """They are ended while others wait, and the others are answered in their turn."""
    with mongottl.start_server() as server, MongoClient[Documents](server.uri) as client:
        client.shop.c.insert_many([{"v": 1}, {"v": 2}])
        attack = Attack(client)
        assert len(list(client.shop.c.find({"$where": "this.v == 1"}))) == 1
        assert 139 in attack.codes
        attack.end()


@own_operations
def test_another_user_need_not_wait_for_endless_scripts(crowded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "CROWDED_LIMIT_MS", 60_000)
    with (
        mongottl.start_server(auth=True, user="root", password="secret") as server,
        MongoClient[Documents](server.uri) as root,
    ):
        root.shop.c.insert_many([{"v": 1}, {"v": 2}])
        root.shop.command("createUser", "bob", pwd="secret", roles=["read"])
        attack = Attack(root)
        host, port = min(root.nodes)
        with MongoClient[Documents](host, port, username="bob", password="secret", authSource="shop") as bob:
            assert len(list(bob.shop.c.find({"$where": "this.v == 1"}))) == 1
        assert attack.codes == []
        attack.end()


def test_idle_processes_end_after_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "IDLE_S", 0.05)
    monkeypatch.setattr(janitor, "PROCESSES_INTERVAL_S", 0.02)
    with mongottl.start_server() as server, MongoClient[Documents](server.uri) as client:
        client.shop.c.insert_one({"v": 1})
        assert len(list(client.shop.c.find({"$where": "this.v == 1"}))) == 1
        while (counts := client.admin.command("serverStatus")["mongottl"]["scripts"])["idle"]:
            assert counts["used"] == counts["waiting"] == 0
