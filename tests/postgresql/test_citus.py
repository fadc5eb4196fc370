"""Citus: tables that are distributed by the place of each collection. Run where MONGOTTL_TEST_STORE names one.

`tests/conformance` and the tests over sockets run there, too; these are of what only Citus has.
"""

import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pymongo
import pytest

import mongottl
from mongottl.cli.copy import main
from mongottl.storage.interface import StorageEngine
from mongottl.storage.log import LogForm
from mongottl.storage.opening import open_engine
from mongottl.storage.postgresql.failures import GONE, StoreFailure
from mongottl.storage.postgresql.log import PostgresLog
from mongottl.storage.postgresql.pipeline import Pipeline
from mongottl.storage.postgresql.units import PostgresUnits
from tests.on_store import PREFIX, is_citus, store, with_schema
from tests.waiting import PATIENCE_S, until

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
    with engine.unit_of_work() as unit:
        records = engine.create_record_store("records")
        unit.commit()
    # That unit has two places: its own, and that of the oplog of commands.
    before = asked("SELECT count(*) FROM pg_dist_transaction")
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


# Units of which a worker may still commit a part


def append(engine: StorageEngine, form: bytes) -> int:
    with engine.unit_of_work() as unit:
        unit.log(LogForm(form, 0))
        unit.commit()
    return unit.position


def logged(engine: StorageEngine) -> list[bytes]:
    """The forms that a stream sees now."""
    log = engine.log
    assert log is not None
    log.refresh()
    log.refresh()
    return [form for _, form in log.read(0, log.horizon, 100, 1 << 20)]


def prepare_row(schema: str, form: bytes) -> None:
    """Leaves a row of the oplog as a coordinator does that is killed between its COMMIT and that of the worker."""
    import psycopg

    name = f"citus_0_{1 << 24}_{uuid.uuid4().int % 10**6}_0"
    [(position,)] = asked(f"SELECT nextval('{schema}.oplog_pos')")
    [(shard, host, port, group)] = asked(
        "SELECT s.shardid, s.nodename, s.nodeport, n.groupid FROM citus_shards AS s JOIN pg_dist_node AS n"
        " USING (nodename, nodeport) WHERE s.shardid ="
        f" get_shard_id_for_distribution_column('{schema}.oplog', 0)"
    )
    asked(f"INSERT INTO pg_dist_transaction (groupid, gid) VALUES ({group}, '{name}') RETURNING gid")
    with psycopg.connect(store(), host=host, port=port, autocommit=True) as worker:
        worker.execute("SET citus.enable_manual_changes_to_shards = on")
        worker.execute("BEGIN")
        worker.execute(
            f"INSERT INTO {schema}.oplog_{shard} (place, pos, xid, token, store, dn, dbytes, form)"
            f" VALUES (0, {position}, pg_current_xact_id(), 1, 0, 0, 0, '{form.decode()}')".encode()
        )
        worker.execute(f"PREPARE TRANSACTION '{name}'".encode())


def test_rows_that_an_earlier_server_has_left_prepared_are_committed_before_the_next_one_begins(uri: str) -> None:
    engine = open_engine(uri)
    append(engine, b"first")
    engine.close()
    prepare_row(schema_of(uri), b"second")
    engine = open_engine(uri)
    append(engine, b"third")
    assert logged(engine) == [b"first", b"second", b"third"]
    engine.close()


def test_a_stream_does_not_pass_a_unit_that_may_still_be_committed(
    engine: StorageEngine, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, find = PostgresUnits._commit_distributed, PostgresLog.find_commit
    seen: list[list[bytes]] = []

    def lose(self: PostgresUnits, connection: Any, calls: Any) -> int:
        commit(self, connection, calls)
        raise StoreFailure(GONE, "the coordinator was killed", may_be_committed=True)

    def find_late(self: PostgresLog, number: int, after: int) -> int:
        seen.append(logged(engine))
        prepare_row(schema_of(uri), b"third")
        return find(self, number, after)

    append(engine, b"first")
    assert logged(engine) == [b"first"]
    monkeypatch.setattr(PostgresUnits, "_commit_distributed", lose)
    monkeypatch.setattr(PostgresLog, "find_commit", find_late)
    append(engine, b"second")
    assert seen == [[b"first"]]
    assert logged(engine) == [b"first", b"second", b"third"]


# A sharded collection


@pytest.fixture(scope="module")
def cosmos_uri() -> str:
    return with_schema(PREFIX + uuid.uuid4().hex[:12])


@pytest.fixture(scope="module")
def cosmos(cosmos_uri: str) -> Iterator[mongottl.RunningServer]:
    with mongottl.start_server(store=cosmos_uri, dialect="cosmos") as started:
        yield started


@pytest.fixture
def sharded(cosmos: mongottl.RunningServer) -> Iterator["pymongo.collection.Collection[dict[str, Any]]"]:
    """By region, with an index on n; 120 documents in 12 regions. Dropped afterwards."""
    with pymongo.MongoClient[dict[str, Any]](cosmos.uri) as client:
        client.admin.command("shardCollection", "shop.orders", key={"region": "hashed"})
        collection = client["shop"]["orders"]
        collection.create_index("n")
        collection.insert_many([{"_id": number, "region": f"r{number % 12}", "n": number} for number in range(120)])
        yield collection
        collection.drop()


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the statements that are sent, but for those of the server's own tasks."""
    names: list[str] = []
    run = Pipeline.run

    def noting(self: Pipeline, calls: Any, must_end: bool = False) -> Any:
        sent = [statement.name for statement, _ in calls if statement.name.startswith(("placed", "scattered"))]
        names.extend([name for name in sent if not name.startswith("placed_free")])  # of what was dropped before
        return run(self, calls, must_end)

    monkeypatch.setattr(Pipeline, "run", noting)
    return names


def test_all_rows_of_a_document_are_at_one_place_and_the_documents_at_many(
    sharded: "pymongo.collection.Collection[dict[str, Any]]", cosmos_uri: str
) -> None:
    sharded.insert_one({"_id": 1000, "region": "alone", "n": 7})
    name = schema_of(cosmos_uri)
    [(place, rid)] = asked(f"SELECT place, rid FROM {name}.records WHERE position('alone'::bytea IN doc) > 0")
    for table in ("entries", "unique_entries"):
        assert {found for (found,) in asked(f"SELECT place FROM {name}.{table} WHERE rid = {rid}")} == {place}
    assert (place,) in asked(f"SELECT place FROM {name}.oplog WHERE dn = 1 ORDER BY pos DESC LIMIT 1")
    [(places,)] = asked(f"SELECT count(DISTINCT place) FROM {name}.records WHERE position('region'::bytea IN doc) > 0")
    assert places > 6


def test_operations_that_name_the_shard_key_reach_one_place_by_as_many_statements_as_elsewhere(
    sharded: "pymongo.collection.Collection[dict[str, Any]]", named: list[str]
) -> None:
    named.clear()
    assert sharded.find_one({"region": "r5", "_id": 17}) == {"_id": 17, "region": "r5", "n": 17}
    assert named == ["placed_scan_fetch_entries_1"]
    named.clear()
    assert len(list(sharded.find({"region": "r5"}))) == 10
    assert named == ["placed_scan_fetch_entries_1"]
    named.clear()
    sharded.update_one({"region": "r5", "_id": 17}, {"$set": {"q": 1}})
    assert named == ["placed_scan_fetch_entries_1", "placed_update_record"]
    sharded.delete_one({"region": "r5", "_id": 17})
    sharded.insert_one({"region": "r5", "_id": 17, "n": 17})
    assert not [name for name in named if name.startswith("scattered")]


def test_other_operations_reach_all_places(sharded: "pymongo.collection.Collection[dict[str, Any]]") -> None:
    assert [found["n"] for found in sharded.find({"n": {"$gte": 50}}, batch_size=7).sort("n", -1)] == [
        *range(119, 49, -1)
    ]
    assert sharded.find_one({"_id": 77}) == {"_id": 77, "region": "r5", "n": 77}
    assert sorted(found["_id"] for found in sharded.find({"n": {"$in": [3, 50, 110, 500]}})) == [3, 50, 110]
    assert len(list(sharded.find({}, batch_size=11))) == sharded.count_documents({}) == 120
    assert sharded.estimated_document_count() == 120
    assert sharded.update_many({"n": {"$lt": 30}}, {"$inc": {"n": 1000}}).modified_count == 30
    assert sharded.count_documents({"n": {"$gte": 1000}}) == 30
    assert sharded.delete_many({"n": {"$gte": 1000}}).deleted_count == 30
    groups = list(sharded.aggregate([{"$group": {"_id": "$region", "n": {"$sum": 1}}}]))
    assert len(groups) == 12
    assert sum(group["n"] for group in groups) == sharded.count_documents({}) == 90
    sharded.insert_one({"_id": "next", "region": "r1", "n": 1})
    assert sharded.distinct("region", {"n": 1}) == ["r1"]
    sharded.drop_index("n_1")
    assert sharded.estimated_document_count() == 91


def test_a_read_of_all_places_has_one_connection_to_each_worker(uri: str) -> None:
    """The shards of one worker are locked, so that whoever reads them waits, and are set free one after the other."""
    import psycopg

    # By itself Citus opens more connections when a statement lasts; so it would do at once.
    options = "&options=-c%20citus.shard_count%3D8%20-c%20citus.executor_slow_start_interval%3D0"
    [(host, port)] = asked("SELECT node_name, node_port FROM citus_get_active_worker_nodes() LIMIT 1")
    schema = schema_of(uri)
    server = mongottl.start_server(store=uri + options, dialect="cosmos")
    with ExitStack() as stack, server, pymongo.MongoClient[dict[str, Any]](server.uri) as client:
        client.admin.command("shardCollection", "shop.orders", key={"region": "hashed"})
        orders = client["shop"]["orders"]
        orders.create_index("n")
        orders.insert_many([{"_id": number, "region": number, "n": number % 2} for number in range(40)])
        shards = asked(
            f"SELECT shard_name FROM citus_shards WHERE table_name = '{schema}.entries'::regclass"
            f" AND (nodename, nodeport) = ('{host}', {port})"
        )
        assert len(shards) == 4
        may_lock = "-c citus.enable_manual_changes_to_shards=on"
        address = psycopg.conninfo.make_conninfo(store(), host=host, port=port, options=may_lock)
        locks = {}
        for (shard,) in shards:
            locks[shard] = stack.enter_context(psycopg.connect(address))
            locks[shard].execute(f"LOCK TABLE {shard} IN ACCESS EXCLUSIVE MODE".encode())
        looking = stack.enter_context(psycopg.connect(address, autocommit=True))
        waiting = (
            "SELECT pid, relation::regclass::text FROM pg_locks"
            " WHERE NOT granted AND relation::regclass::text = ANY(%s)"
        )
        readers: set[int] = set()
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(lambda: len(list(orders.find({"n": 1}))))
            while locks:
                until(lambda: looking.execute(waiting, (list(locks),)).fetchall(), "nobody waits for a shard")
                waits = looking.execute(waiting, (list(locks),)).fetchall()
                readers.update(pid for pid, _ in waits)
                locks.pop(waits[0][1]).rollback()
            assert found.result(PATIENCE_S) == 20
    assert len(readers) == 1


def test_ids_are_unique_for_each_value_of_the_shard_key(
    sharded: "pymongo.collection.Collection[dict[str, Any]]",
) -> None:
    sharded.insert_one({"_id": 5, "region": "r6"})
    with pytest.raises(pymongo.errors.DuplicateKeyError):
        sharded.insert_one({"_id": 5, "region": "r6"})
    with pytest.raises(pymongo.errors.BulkWriteError) as caught:
        new = [{"_id": number, "region": f"r{number % 5}"} for number in range(2000, 2010)]
        sharded.insert_many([*new[:4], {"_id": 5, "region": "r5"}, *new[4:]])
    assert caught.value.details["nInserted"] == 4
    with pytest.raises(pymongo.errors.OperationFailure, match="unique index"):
        sharded.create_index("other", unique=True)
    with pytest.raises(pymongo.errors.WriteError, match="immutable"):
        sharded.update_one({"_id": 5, "region": "r6"}, {"$set": {"region": "r7"}})


def test_a_stream_sees_the_writes_to_all_places_in_their_order(
    sharded: "pymongo.collection.Collection[dict[str, Any]]",
) -> None:
    stages: list[dict[str, Any]] = [
        {"$match": {"operationType": {"$in": ["insert", "update", "replace"]}}},
        {"$project": {"_id": 1, "fullDocument": 1, "ns": 1, "documentKey": 1}},
    ]
    with sharded.watch(stages, full_document="updateLookup") as stream:
        for number in range(3000, 3030):
            sharded.insert_one({"_id": number, "region": f"r{number % 7}"})
        assert [next(stream)["fullDocument"]["_id"] for _ in range(30)] == list(range(3000, 3030))


def test_expired_documents_of_all_places_are_purged(
    sharded: "pymongo.collection.Collection[dict[str, Any]]", cosmos: mongottl.RunningServer, cosmos_uri: str
) -> None:
    sharded.create_index("_ts", expireAfterSeconds=60)
    sharded.insert_many([{"_id": f"own {number}", "region": f"r{number % 12}", "ttl": 500} for number in range(30)])
    cosmos.clock.advance(100)
    assert sharded.count_documents({}) == sharded.estimated_document_count() == 30
    cosmos.clock.advance(500)
    assert sharded.count_documents({}) == 0
    until(lambda: rows_of_parts(cosmos_uri) == 0)


def test_a_sharded_collection_is_dropped_with_all_its_rows(
    sharded: "pymongo.collection.Collection[dict[str, Any]]", cosmos_uri: str
) -> None:
    assert rows_of_parts(cosmos_uri) > 0
    sharded.drop()
    until(lambda: asked(f"SELECT count(*) FROM {schema_of(cosmos_uri)}.stores WHERE parts > 1") == [(0,)])
    assert rows_of_parts(cosmos_uri) == 0


def rows_of_parts(uri: str) -> int:
    """How many rows stores of several places have, but for their first ones."""
    name = schema_of(uri)
    tables = ("records", "entries", "unique_entries")
    return sum(asked(f"SELECT count(*) FROM {name}.{table} WHERE place >= {1 << 26}")[0][0] for table in tables)


def test_a_schema_of_one_place_for_each_collection_gets_several(uri: str) -> None:
    import psycopg

    open_engine(uri).close()
    with psycopg.connect(store(), autocommit=True) as connection:
        connection.execute(f"ALTER TABLE {schema_of(uri)}.stores DROP COLUMN parts".encode())
        connection.execute(f"UPDATE {schema_of(uri)}.meta SET format = format - 1".encode())
    opened = open_engine(uri)
    with opened.unit_of_work() as unit:
        opened.create_partitioned_store("records")
        unit.commit()
    opened.close()
    assert (32,) in asked(f"SELECT parts FROM {schema_of(uri)}.stores")


def test_a_sharded_collection_is_found_again_and_copied(uri: str) -> None:
    target = with_schema(PREFIX + uuid.uuid4().hex[:12])
    with (
        mongottl.start_server(store=uri, dialect="cosmos") as server,
        pymongo.MongoClient[dict[str, Any]](server.uri) as client,
    ):
        client.admin.command("shardCollection", "shop.orders", key={"region": "hashed"})
        client["shop"]["orders"].create_index("n")
        client["shop"]["orders"].insert_many([{"_id": n, "region": f"r{n % 12}", "n": n} for n in range(120)])
    assert main([uri, target]) == 0
    assert rows_of_parts(target) == rows_of_parts(uri)
    with (
        mongottl.start_server(store=target, dialect="cosmos") as server,
        pymongo.MongoClient[dict[str, Any]](server.uri) as client,
    ):
        orders = client["shop"]["orders"]
        assert orders.estimated_document_count() == 120
        assert orders.find_one({"region": "r5", "_id": 17}) == {"_id": 17, "region": "r5", "n": 17}
        orders.insert_one({"region": "r5", "_id": 500, "n": 500})
        assert [found["_id"] for found in orders.find({"n": {"$gte": 118}}).sort("n", 1)] == [118, 119, 500]
