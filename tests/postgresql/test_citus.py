"""Citus: tables that are distributed by the place of each collection. Run where MONGOTTL_TEST_STORE names one.

`tests/conformance` and the tests over sockets run there, too; these are of what only Citus has.
"""

import os
import uuid
from collections.abc import Iterator
from typing import Any

import pymongo
import pytest

import mongottl
from mongottl.storage.interface import StorageEngine
from mongottl.storage.opening import open_engine
from tests.on_store import PREFIX, is_citus, store, with_schema

pytestmark = pytest.mark.skipif(not is_citus(), reason="MONGOTTL_TEST_STORE names no Citus coordinator")


@pytest.fixture
def uri() -> str:
    return with_schema(PREFIX + uuid.uuid4().hex[:12])


@pytest.fixture
def engine(uri: str) -> Iterator[StorageEngine]:
    opened = open_engine(uri)
    yield opened
    opened.close()


@pytest.fixture
def client(uri: str) -> Iterator["pymongo.MongoClient[dict[str, Any]]"]:
    with mongottl.start_server(store=uri) as server, pymongo.MongoClient[dict[str, Any]](server.uri) as connected:
        yield connected


def asked(statement: str) -> list[tuple[Any, ...]]:
    """What a query of the coordinator returns."""
    import psycopg

    with psycopg.connect(store(), autocommit=True) as connection:
        return connection.execute(statement.encode()).fetchall()


def schema_of(uri: str) -> str:
    return uri.rpartition("schema=")[2]


def test_a_collection_has_one_place_with_its_indexes_and_its_rows_of_the_oplog(engine: StorageEngine, uri: str) -> None:
    with engine.unit_of_work() as unit:
        for number in range(3):
            engine.create_record_store(f"records {number}")
            engine.create_sorted_data(f"entries {number}", True, f"records {number}")
        unit.commit()
    for number in range(3):
        with engine.unit_of_work() as unit:
            record = engine.record_store(f"records {number}").insert_record(b"a document", 1, 0)
            engine.sorted_data(f"entries {number}", True).insert([(b"key", record)])
            unit.commit()
    name = schema_of(uri)
    places = {
        table: [place for (place,) in asked(f"SELECT place FROM {name}.{table} ORDER BY place")]
        for table in ("records", "unique_entries")
    }
    assert places["records"] == places["unique_entries"]
    assert len(set(places["records"])) == 3
    logged = asked(f"SELECT place FROM {name}.oplog WHERE dn = 1 ORDER BY place")
    assert [place for (place,) in logged] == places["records"]


def test_a_unit_is_sent_to_one_machine(engine: StorageEngine) -> None:
    before = asked("SELECT count(*) FROM pg_dist_transaction")
    with engine.unit_of_work() as unit:
        records = engine.create_record_store("records")
        unit.commit()
    with engine.unit_of_work() as unit:
        records.insert_records([(b"a document", 1, 0)] * 10)
        unit.commit()
    assert asked("SELECT count(*) FROM pg_dist_transaction") == before  # where two phases would leave their names


def test_server_status_tells_the_number_of_machines(client: "pymongo.MongoClient[dict[str, Any]]") -> None:
    storage = client.admin.command("serverStatus")["mongottl"]["storage"]
    assert storage["citus_workers"] >= 1


def test_a_transaction_reaches_one_collection(client: "pymongo.MongoClient[dict[str, Any]]") -> None:
    database = client["shop"]
    database["a"].insert_one({"_id": 1, "n": 1})
    database["b"].insert_one({"_id": 1, "n": 1})
    with client.start_session() as session:
        with session.start_transaction():
            assert database["a"].find_one({"_id": 1}, session=session) is not None
            database["a"].update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
            database["a"].insert_one({"_id": 2}, session=session)
        refused = pytest.raises(pymongo.errors.OperationFailure, match="one collection only")
        with refused as caught, session.start_transaction():
            database["a"].update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
            database["b"].update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
        assert caught.value.code == 263
    assert [document["_id"] for document in database["a"].find()] == [1, 2]
    assert database["a"].distinct("n") == [2]


def test_reads_of_a_snapshot_reach_one_collection(client: "pymongo.MongoClient[dict[str, Any]]") -> None:
    database = client["shop"]
    database["a"].insert_many([{"_id": number} for number in range(10)])
    database["b"].insert_one({"_id": 1})
    with client.start_session(snapshot=True) as session:
        assert len(list(database["a"].find({}, batch_size=2, session=session))) == 10
        database["a"].delete_many({})
        assert len(list(database["a"].find({}, session=session))) == 10
        with pytest.raises(pymongo.errors.OperationFailure, match="one collection only"):
            list(database["b"].find({}, session=session))


def test_a_stream_sees_the_writes_to_all_collections_in_their_order(
    client: "pymongo.MongoClient[dict[str, Any]]",
) -> None:
    database = client["shop"]
    for name in "abcd":
        database.create_collection(name)
    with database.watch() as stream:
        for number in range(40):
            database["abcd"[number % 4]].insert_one({"_id": number})
        assert [next(stream)["documentKey"]["_id"] for _ in range(40)] == list(range(40))


def test_data_are_there_at_the_next_start(uri: str) -> None:
    for expected in range(3):
        with mongottl.start_server(store=uri) as server, pymongo.MongoClient[dict[str, Any]](server.uri) as client:
            collection = client["shop"]["orders"]
            assert collection.count_documents({}) == collection.estimated_document_count() == expected
            collection.create_index("n")
            collection.insert_one({"n": expected})
            assert [found["n"] for found in collection.find().sort("n")] == list(range(expected + 1))


def test_a_worker_is_refused() -> None:
    [(host, port)] = asked("SELECT node_name, node_port FROM citus_get_active_worker_nodes() LIMIT 1")
    import psycopg

    info = psycopg.conninfo.conninfo_to_dict(store(), host=host, port=port)
    uri = f"postgresql://{info.get('user', '')}@{host}:{port}/{info.get('dbname', '')}"
    with pytest.raises(OSError, match="name the coordinator's"):
        open_engine(f"{uri}?schema={PREFIX}{os.getpid()}")
