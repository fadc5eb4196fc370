"""Inserts of many documents of which some have keys that are taken, on a server whose data is in PostgreSQL."""

import hashlib
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pymongo
import pytest
from bson import Int64
from pymongo.errors import BulkWriteError

import mongottl
from tests import postgres
from tests.on_store import PREFIX, takes_several_servers, with_schema
from tests.waiting import until

pytestmark = pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing())

Client = pymongo.MongoClient[dict[str, Any]]
Collection = pymongo.collection.Collection[dict[str, Any]]


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[mongottl.RunningServer]:
    name = PREFIX + hashlib.sha256(request.node.name.encode()).hexdigest()[:12]
    with mongottl.start_server(store=with_schema(name)) as running:
        yield running


@pytest.fixture
def client(server: mongottl.RunningServer) -> Iterator[Client]:
    with Client(server.uri) as connected:
        yield connected


@pytest.fixture
def items(client: Client) -> Collection:
    items = client.shop.items
    items.create_index("name", unique=True)
    items.insert_many([{"_id": n, "name": f"item {n}"} for n in range(0, 40, 2)])
    return items


def refused(items: Collection, documents: list[dict[str, Any]], ordered: bool) -> dict[str, Any]:
    with pytest.raises(BulkWriteError) as caught:
        items.insert_many(documents, ordered=ordered)
    return dict(caught.value.details or {})


def test_unordered_documents_are_inserted_around_those_whose_keys_are_taken(items: Collection) -> None:
    documents: list[dict[str, Any]] = [{"_id": n, "name": f"item {n}"} for n in range(30)]
    documents += [{"_id": 100, "name": "item 4"}, {"_id": 101, "name": "new"}, {"_id": 101, "name": "newer"}]
    documents += [{"_id": 102, "name": "new"}, {"_id": 103, "name": "last"}]
    details = refused(items, documents, ordered=False)
    errors = details["writeErrors"]
    assert [error["index"] for error in errors] == [*range(0, 30, 2), 30, 32, 33]
    assert {error["code"] for error in errors} == {11000}
    assert errors[1]["keyValue"] == {"_id": 2}
    assert errors[-3]["keyValue"] == {"name": "item 4"}
    assert errors[-2]["keyValue"] == {"_id": 101}
    assert errors[-1]["keyValue"] == {"name": "new"}
    assert details["nInserted"] == 15 + 2
    assert items.count_documents({}) == 20 + 17


def test_ordered_documents_end_at_the_first_key_that_is_taken(items: Collection) -> None:
    documents = [{"_id": n, "name": f"new {n}"} for n in (1, 3, 5, 7, 8, 9, 10)]
    details = refused(items, documents, ordered=True)
    assert [error["index"] for error in details["writeErrors"]] == [4]
    assert details["nInserted"] == 4
    assert sorted(items.distinct("_id", {"name": {"$regex": "new"}})) == [1, 3, 5, 7]


def test_keys_of_expired_documents_are_free(client: Client) -> None:
    items = client.shop.passing
    items.create_index("_ts", expireAfterSeconds=10)
    client.admin.command({"setParameter": 1, "ttlMonitorEnabled": False})
    items.insert_many([{"_id": n} for n in range(5)])
    items.insert_one({"_id": 5, "ttl": -1})
    client.admin.command({"advanceClock": 60})
    details = refused(items, [{"_id": n, "n": 2} for n in range(8)], ordered=False)
    assert [error["index"] for error in details["writeErrors"]] == [5]
    assert items.count_documents({"n": 2}) == 7


def test_documents_that_are_all_refused_take_few_units(items: Collection) -> None:
    items.insert_many([{"_id": n, "name": f"many {n}"} for n in range(1000, 1500)])
    before = items.database.client.admin.command("serverStatus")["mongottl"]["storage"]
    details = refused(items, [{"_id": n, "name": f"other {n}"} for n in range(1000, 1501)], ordered=False)
    after = items.database.client.admin.command("serverStatus")["mongottl"]["storage"]
    assert len(details["writeErrors"]) == 500
    assert details["nInserted"] == 1
    assert after["rollbacks"] - before["rollbacks"] < 5, (before, after)


def test_a_retried_insert_does_each_document_once(items: Collection) -> None:
    client = items.database.client
    with client.start_session() as session:
        command = {
            "insert": "items",
            "documents": [{"_id": n, "name": f"once {n}"} for n in range(12)],
            "ordered": False,
            "txnNumber": Int64(100),
        }
        first = items.database.command(command, session=session)
        again = items.database.command(command, session=session)
    assert first["n"] == 6
    assert again["n"] == 6
    assert len(again["writeErrors"]) == len(first["writeErrors"]) == 6
    assert items.count_documents({"name": {"$regex": "once"}}) == 6


# Where another server removes a key between the attempt to insert it and the question who has it

# After an attempt that has inserted nothing PostgreSQL waits until the test says `go`.
PAUSE = """
CREATE TABLE said (word text);
CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NOT EXISTS (SELECT FROM fresh) THEN
        WHILE NOT EXISTS (SELECT FROM said) LOOP PERFORM pg_sleep(0.01); END LOOP;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER pause AFTER INSERT ON unique_entries REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT
    EXECUTE FUNCTION pause();
"""


@takes_several_servers
@pytest.mark.parametrize("name", ["a", ["a", "b"]], ids=["one key", "two keys"])
def test_a_key_that_another_server_removes_meanwhile_is_free(name: Any) -> None:
    store = with_schema(PREFIX + uuid.uuid4().hex[:12])
    place, _, schema = store.rpartition("schema=")
    with (
        mongottl.start_server(store=store, topology="sharded") as first,
        mongottl.start_server(store=store, topology="sharded") as second,
        Client(first.uri) as client,
        Client(second.uri) as other,
        psycopg.connect(place.rstrip("?&"), autocommit=True) as connection,
        ThreadPoolExecutor() as threads,
    ):
        client.shop.items.create_index("name", unique=True)
        other.shop.items.insert_one({"_id": "old", "name": name})
        connection.execute(f'SET search_path = "{schema}"'.encode())
        connection.execute(PAUSE.encode())
        inserting = threads.submit(client.shop.items.insert_one, {"_id": "new", "name": name})
        sleeping = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        until(lambda: connection.execute(sleeping.encode()).fetchall() == [(1,)], "no key was met")
        assert other.shop.items.delete_one({"_id": "old"}).deleted_count == 1
        connection.execute("INSERT INTO said VALUES ('go')")
        inserting.result()
        assert list(other.shop.items.find()) == [{"_id": "new", "name": name}]
