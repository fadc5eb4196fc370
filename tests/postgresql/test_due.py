"""Looking for expired documents: the number of statements does not grow with that of the collections with TTL."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from mongottl.catalog.index import IndexDescriptor
from mongottl.clock import VirtualClock
from mongottl.config import ServerConfig
from mongottl.document.build import encode
from mongottl.document.types import Date
from mongottl.exec.operation.refreshing import follow_others
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.write.expiry import count_expired, reap_due
from mongottl.storage.nodes import NodeFacts
from mongottl.storage.postgresql.address import Address
from mongottl.storage.postgresql.connection import SessionSettings
from mongottl.storage.postgresql.due import count_due, find_due, find_keys
from mongottl.storage.postgresql.engine import PostgresEngine
from mongottl.storage.postgresql.local_cluster import LocalCluster
from mongottl.storage.postgresql.pipeline import Pipeline
from mongottl.storage.postgresql.statements import Statement

ONE_OF_SEVERAL = NodeFacts("sharded", may_share=True)
NOW_MS = 1_700_000_000_000


@pytest.fixture
def service(cluster: LocalCluster, schema: str) -> Iterator[ServiceContext]:
    engine = PostgresEngine(Address(cluster.uri), schema, ONE_OF_SEVERAL)
    made = ServiceContext(ServerConfig(), VirtualClock(start_ms=NOW_MS, frozen=True), engine)
    follow_others(made)
    yield made
    engine.close()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the statements that are sent."""
    names: list[str] = []
    run = Pipeline.run

    def noting(self: Pipeline, calls: Any, must_end: bool = False) -> Any:
        names.extend([statement.name for statement, _ in calls])
        return run(self, calls, must_end)

    monkeypatch.setattr(Pipeline, "run", noting)
    return names


def make(service: ServiceContext, first: int, count: int, **index: Any) -> None:
    """Makes collections with a TTL index."""
    catalog = service.catalog
    spec = IndexDescriptor(encode({"v": 2, **index}))
    for number in range(first, first + count):
        collection = catalog.create_collection("shop", f"c{number}")
        catalog.finish_indexes(collection, catalog.start_indexes(collection, [spec]))


TTL = {"key": encode({"_ts": 1}), "name": "_ts_1", "expireAfterSeconds": 60}
DATE_TTL = {"key": encode({"at": 1}), "name": "at_1", "expireAfterSeconds": 60}


def insert(service: ServiceContext, number: int, ts_s: int) -> None:
    collection = service.catalog.lookup("shop", f"c{number}")
    assert collection is not None
    document = encode({"_id": 1, "at": Date(ts_s * 1000)})
    with service.engine.unit_of_work() as unit:
        rid = collection.store.insert_record(document, ts_s, 0)
        for index in collection.writable_indexes:
            index.sorted_data.insert([(key, rid) for key in index.keys_of(document)])
        unit.commit()


def count(service: ServiceContext, number: int) -> int:
    collection = service.catalog.lookup("shop", f"c{number}")
    assert collection is not None
    return collection.store.count()


@pytest.mark.parametrize("index", [TTL, DATE_TTL])
def test_one_look_at_all_collections_is_one_statement(
    service: ServiceContext, sent: list[str], index: dict[str, Any]
) -> None:
    make(service, 0, 3, **index)
    numbers: list[int] = []
    for first in (3, 20):
        sent.clear()
        assert reap_due(service, everywhere=True) == 0
        assert count_expired(service, service.catalog.all_collections(), lambda: None) == 0
        numbers.append(len(sent))
        make(service, first, 17, **index)
    assert numbers[0] == numbers[1] == (2 if index is TTL else 1)


@pytest.mark.parametrize("index", [TTL, DATE_TTL])
def test_documents_of_other_servers_are_found_by_such_a_look(service: ServiceContext, index: dict[str, Any]) -> None:
    make(service, 0, 5, **index)
    now_s = NOW_MS // 1000
    for number, age_s in ((0, 59), (1, 60), (3, 10_000)):
        insert(service, number, now_s - age_s)
    expired = count_expired(service, service.catalog.all_collections(), lambda: None)
    assert expired == (2 if index is TTL else 0)  # those with dates stay visible until they are purged
    assert reap_due(service) == 0  # they are in no wheel
    assert reap_due(service, everywhere=True) == 2
    assert [count(service, number) for number in range(5)] == [1, 0, 0, 0, 0]
    assert count_expired(service, service.catalog.all_collections(), lambda: None) == 0


def test_more_collections_than_one_statement_asks_for(service: ServiceContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mongottl.exec.write.expiry.STORES_AT_ONCE", 2)
    make(service, 0, 5, **TTL)
    for number in (1, 4):
        insert(service, number, NOW_MS // 1000 - 60)
    assert count_expired(service, service.catalog.all_collections(), lambda: None) == 2
    assert reap_due(service, everywhere=True) == 2


@pytest.mark.parametrize(
    "statement", [count_due([])[0], find_due([])[0], find_keys(False, [])[0], find_keys(True, [])[0]], ids=repr
)
def test_stores_are_looked_up_where_nothing_is_known_of_the_tables_yet(
    cluster: LocalCluster, schema: str, statement: Statement
) -> None:
    PostgresEngine(Address(cluster.uri), schema).close()
    with psycopg.connect(cluster.uri, autocommit=True) as connection:
        connection.execute(SessionSettings(schema).statements().encode())
        named = [connection.execute(f"SELECT {oid}::regtype::text".encode()).fetchone() for oid in statement.types]
        types = ", ".join(row[0] for row in named if row is not None)
        connection.execute(f"PREPARE kept ({types}) AS {statement.sql}".encode())
        nulls = ", ".join("NULL" for _ in named)
        plan = connection.execute(f"EXPLAIN EXECUTE kept ({nulls})".encode()).fetchall()
    lines = "\n".join(line for (line,) in plan)
    assert "Seq Scan" not in lines and "Join" not in lines, lines
    assert "(store = u.store)" in lines, lines
