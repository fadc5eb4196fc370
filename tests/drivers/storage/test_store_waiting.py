"""Two servers with one store: what waits for what the other one does, instead of failing."""

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import psycopg
import pymongo
import pytest
from pymongo.errors import BulkWriteError, OperationFailure

import mongottl
from tests import postgres
from tests.drivers.wire_client import WireClient
from tests.on_store import PREFIX, takes_several_servers, with_schema
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing()), takes_several_servers]

Client = pymongo.MongoClient[dict[str, Any]]
Collection = pymongo.collection.Collection[dict[str, Any]]

# More than a server has connections to the store.
MANY = 17


@pytest.fixture(scope="module")
def store() -> str:
    return with_schema(PREFIX + uuid.uuid4().hex[:12])


@pytest.fixture(scope="module")
def clients(store: str) -> Iterator[tuple[Client, Client]]:
    with (
        mongottl.start_server(store=store, topology="sharded") as first,
        mongottl.start_server(store=store, topology="sharded") as second,
        Client(first.uri) as client,
        Client(second.uri) as other,
    ):
        yield client, other


class Waiting(threading.Thread):
    """A call that waits. ended: whether it has ended, by returning or by `error`."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__()
        self._call = call
        self.result: object = None
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._call()
        except Exception as error:
            self.error = error

    def end(self) -> object:
        self.join(PATIENCE_S)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.result


def merge(carts: Collection, key: int) -> None:
    carts.aggregate([{"$match": {"_id": key}}, {"$project": {"by": {"$literal": 1}}}, {"$merge": {"into": carts.name}}])


# Writes of a document that the transaction has changed, by its `_id`.
WRITES: dict[str, Callable[[Collection, int], object]] = {
    "update one": lambda carts, key: carts.update_one({"_id": key}, {"$set": {"by": 1}}),
    "update many": lambda carts, key: carts.update_many({"_id": {"$in": [key, -key]}}, {"$set": {"by": 1}}),
    "replace": lambda carts, key: carts.replace_one({"_id": key}, {"n": 1, "by": 1}),
    "find and modify": lambda carts, key: carts.find_one_and_update({"_id": key}, {"$set": {"by": 1}}),
    "merge": merge,
    "bulk": lambda carts, key: carts.bulk_write([pymongo.UpdateOne({"_id": key}, {"$set": {"by": 1}})]),
    # They do not match when they get through.
    "delete one": lambda carts, key: carts.delete_one({"_id": key, "n": 0}),
    "delete many": lambda carts, key: carts.delete_many({"_id": key, "n": 0}),
}


def test_plain_writes_wait_for_a_transaction_of_another_server(clients: tuple[Client, Client]) -> None:
    one, two = clients
    carts = one.shop.carts
    keys = range(1, len(WRITES) + 1)
    carts.insert_many([{"_id": key, "n": 0} for key in keys])
    with two.start_session() as session:
        session.start_transaction()
        two.shop.carts.update_many({}, {"$set": {"n": 1}}, session=session)
        two.shop.carts.insert_many([{"_id": 100}, {"_id": 101}, {"_id": 102}], session=session)
        waiting = [Waiting(partial(write, carts, key)) for key, write in zip(keys, WRITES.values(), strict=True)]
        upserts = Waiting(lambda: carts.update_one({"_id": 100}, {"$set": {"by": 1}}, upsert=True))
        inserts = Waiting(lambda: carts.insert_many([{"_id": 99}, {"_id": 101}]))
        many = [Waiting(lambda: carts.update_one({"_id": 102}, {"$inc": {"by": 1}}, upsert=True)) for _ in range(MANY)]
        until(lambda: one.admin.command("serverStatus")["globalLock"]["currentQueue"]["writers"] > MANY // 2)
        for number in range(5):  # meanwhile others get through, on both
            for client in clients:
                client.by.carts.update_one({"_id": number}, {"$inc": {"n": 1}}, upsert=True)
        assert all(each.is_alive() for each in [*waiting, upserts, inserts, *many])
        session.commit_transaction()
    for each in [*waiting, upserts, *many]:
        each.end()
    with pytest.raises(BulkWriteError) as refused:
        inserts.end()
    assert [each["code"] for each in refused.value.details["writeErrors"]] == [11000]
    found = {cart.pop("_id"): cart for cart in two.shop.carts.find()}
    changed = {
        key: {"n": 1} if name.startswith("delete") else {"n": 1, "by": 1}
        for key, name in zip(keys, WRITES, strict=True)
    }
    assert found == {**changed, 99: {}, 100: {"by": 1}, 101: {}, 102: {"by": MANY}}
    assert sorted(cart["n"] for cart in two.by.carts.find()) == [2] * 5


def test_a_wait_for_a_transaction_of_another_server_ends(clients: tuple[Client, Client]) -> None:
    one, two = clients
    carts = one.shop.waits
    carts.insert_one({"_id": 0})
    address = one.address
    assert address is not None
    with two.start_session() as session:
        session.start_transaction()
        two.shop.waits.update_one({"_id": 0}, {"$set": {"n": 1}}, session=session)
        with pytest.raises(OperationFailure) as refused:
            one.shop.command("update", "waits", updates=[{"q": {"_id": 0}, "u": {"$set": {"n": 2}}}], maxTimeMS=100)
        assert refused.value.code == 50
        killed = Waiting(lambda: carts.delete_one({"_id": 0}))
        until(lambda: shown(one, "remove"))
        one.admin.command("killOp", op=shown(one, "remove")[0]["opid"])
        with pytest.raises(OperationFailure) as refused:
            killed.end()
        assert refused.value.code == 11601
        leaving = WireClient(f"mongodb://{address[0]}:{address[1]}/")
        leaving.send({"update": "waits", "updates": [{"q": {"_id": 0}, "u": {"$set": {"n": 2}}}]}, "shop")
        until(lambda: shown(one, "update"))
        leaving.close()
        until(lambda: not shown(one, "update"))
        session.abort_transaction()
    assert carts.find_one() == {"_id": 0}


# Of documents with this field, a unit of work takes so long after it has compared the version of the catalog.
SLOW_COMMIT = """
CREATE FUNCTION "{0}".wait() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN IF position('slow'::bytea in NEW.doc) > 0 THEN PERFORM pg_sleep(0.2); END IF; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON "{0}".records DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION "{0}".wait();
"""
# As much as one unit of work of an insert takes.
LONG = "x" * (2 << 20)


def test_no_write_is_lost_when_a_collection_is_copied(clients: tuple[Client, Client]) -> None:
    """All are in the copies: those before it, and those that have waited for its end."""
    one, two = clients
    one.shop.log.insert_many([{"_id": number, "n": 0} for number in range(300)])
    ended = threading.Event()
    inserted: list[int] = []
    changed: list[int] = []

    def write(number: int) -> None:
        log = clients[number % 2].shop.log
        step = 1000 + number
        while not ended.is_set():
            log.insert_one({"_id": step, "n": 0})
            inserted.append(step)
            try:
                log.update_one({"_id": step % 300}, {"$inc": {"n": 1}})
                changed.append(step)
            except OperationFailure as error:
                assert error.code == 175, error  # it was looked for when the collection was replaced
            step += 4

    writers = [Waiting(partial(write, number)) for number in range(4)]
    try:
        for copying, other in (clients, (two, one)):
            enough = len(changed) + 5
            until(partial(has, changed, enough))
            copying.shop.command("convertToCapped", "log", size=1 << 20)
            assert other.shop.log.options()["capped"]
        acknowledged, updates = set(inserted), len(changed)
        two.shop.command({"cloneCollectionAsCapped": "log", "toCollection": "copied", "size": 1 << 20})
        copied = list(one.shop.copied.find())
        assert acknowledged <= {entry["_id"] for entry in copied} and sum(entry["n"] for entry in copied) >= updates
    finally:
        ended.set()
        for writer in writers:
            writer.end()
    assert sorted(entry["_id"] for entry in one.shop.log.find({"_id": {"$gte": 1000}})) == sorted(inserted)
    assert sum(entry["n"] for entry in two.shop.log.find()) == len(changed)
    assert one.shop.command("validate", "log", full=True)["valid"]


def has(found: list[int], enough: int) -> bool:
    return len(found) >= enough


def test_a_copy_waits_for_units_of_work_and_these_for_it(store: str, clients: tuple[Client, Client]) -> None:
    one, two = clients
    place, _, schema = store.rpartition("schema=")
    one.shop.few.insert_one({"_id": 1})
    with two.start_session() as session:
        session.start_transaction()
        two.shop.few.insert_one({"_id": "lost"}, session=session)
        one.shop.command("convertToCapped", "few", size=1 << 24)
        with pytest.raises(OperationFailure) as refused:
            session.commit_transaction()
        assert refused.value.has_error_label("TransientTransactionError")
    with psycopg.connect(place.rstrip("?&"), autocommit=True) as connection:
        connection.execute(SLOW_COMMIT.format(schema))
        # Two units: the copy begins while the first one is being committed, and the second one while it copies.
        inserts = Waiting(lambda: two.shop.few.insert_many([{"_id": 2, "slow": LONG}, {"_id": 3, "slow": LONG}]))
        waits = "SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        until(lambda: connection.execute(waits).rowcount > 0)
        one.shop.command("convertToCapped", "few", size=1 << 24)
    inserts.end()
    for client in clients:
        assert client.shop.few.options()["capped"]
        assert [entry["_id"] for entry in client.shop.few.find({}, {"_id": 1})] == [1, 2, 3]


# What both do at once with one collection or user, and which answers there may be: 0 for success.
RACES: dict[str, tuple[dict[str, Any], dict[str, Any], set[tuple[int, int]]]] = {
    "create": ({"create": "raced"}, {"create": "raced", "capped": True, "size": 4096}, {(0, 48), (48, 0)}),
    "index": (
        {"createIndexes": "there", "indexes": [{"name": "raced", "key": {"c": 1}}]},
        {"createIndexes": "there", "indexes": [{"name": "raced", "key": {"b": 1}}]},
        {(0, 86), (86, 0)},
    ),
    "user": (
        {"createUser": "raced", "pwd": "one", "roles": []},
        {"createUser": "raced", "pwd": "two", "roles": []},
        {(0, 51003), (51003, 0)},
    ),
    "create and drop": ({"create": "raced"}, {"drop": "raced"}, {(0, 0), (0, 26)}),
    "drop all and insert": ({"dropDatabase": 1}, {"insert": "raced", "documents": [{}]}, {(0, 0)}),
    "drop index": ({"dropIndexes": "there", "index": "a_1"}, {"drop": "there"}, {(0, 0), (26, 0)}),
    "insert and index": (
        {"insert": "raced", "documents": [{"_id": 1, "a": [1, 2]}]},
        {"createIndexes": "raced", "indexes": [{"name": "a_1", "key": {"a": 1}}]},
        {(0, 0)},
    ),
}
ROUNDS = 2


def test_both_change_the_same_at_once(clients: tuple[Client, Client]) -> None:
    one, two = clients
    answers: list[tuple[str, tuple[int, int]]] = []
    with ThreadPoolExecutor(2) as threads:
        for number in range(ROUNDS):
            for name, (first, second, _) in RACES.items():
                one.races.there.create_index("a")
                both = [first, second] if number % 2 else [second, first]
                barrier = threading.Barrier(2)
                calls = [
                    threads.submit(answer, client, command, barrier)
                    for client, command in zip(clients, both, strict=True)
                ]
                codes = [call.result() for call in calls]
                answers.append((name, (codes[0], codes[1]) if number % 2 else (codes[1], codes[0])))
                assert described(one) == described(two)
                one.drop_database("races")
                two.races.command("dropAllUsersFromDatabase")
            # One of two new names is given.
            one.races.there.insert_one({})
            barrier = threading.Barrier(2)
            renames = [{"renameCollection": "races.there", "to": f"races.{name}"} for name in ("a", "b")]
            calls = [
                threads.submit(answer, client, rename, barrier) for client, rename in zip(clients, renames, strict=True)
            ]
            assert sorted(call.result() for call in calls) == [0, 26]
            assert described(one) == described(two) and len(one.races.list_collection_names()) == 1
            one.drop_database("races")
    assert [(name, codes) for name, codes in answers if codes not in RACES[name][2]] == []


def answer(client: Client, command: dict[str, Any], barrier: threading.Barrier) -> int:
    """The code with which a command fails, or 0."""
    database = client.admin if "renameCollection" in command else client.races
    barrier.wait(PATIENCE_S)
    try:
        database.command(command)
        return 0
    except OperationFailure as error:
        return error.code or -1


def described(client: Client) -> list[object]:
    """What a server knows of the database."""
    collections = sorted(client.races.list_collections(), key=lambda each: str(each["name"]))
    indexes = [sorted(client.races[each["name"]].index_information().items()) for each in collections]
    return [collections, indexes, client.races.command("usersInfo")["users"]]


def shown(client: Client, kind: str) -> list[dict[str, Any]]:
    """The operations of a kind on a server, as currentOp shows them."""
    return list(client.admin.command("currentOp", op=kind)["inprog"])
