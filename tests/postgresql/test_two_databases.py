"""Servers that keep their data in several databases of one PostgreSQL, in schemas of one name, know nothing of each
other."""

from collections.abc import Iterator

import bson
import psycopg
import pytest

from mongottl.storage.log import LogForm
from mongottl.storage.postgresql.address import Address
from mongottl.storage.postgresql.engine import PostgresEngine
from mongottl.storage.postgresql.local_cluster import DATABASE, LocalCluster
from mongottl.storage.postgresql.statements import Statement

TRANSACTION = Statement("transaction", "SELECT pg_current_xact_id()::text")


@pytest.fixture
def other_uri(cluster: LocalCluster, schema: str) -> str:
    """Of a database of the test's own."""
    with psycopg.connect(cluster.uri, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE other_{schema}".encode())
    return cluster.uri.replace(f"dbname={DATABASE}", f"dbname=other_{schema}")


@pytest.fixture
def first(cluster: LocalCluster, schema: str) -> Iterator[PostgresEngine]:
    engine = PostgresEngine(Address(cluster.uri), schema)
    with engine.unit_of_work() as unit:
        engine.create_record_store("records")
        unit.commit()
    yield engine
    engine.close()


def test_the_start_of_one_ends_no_session_of_the_other(first: PostgresEngine, other_uri: str, schema: str) -> None:
    """It ended all of them, again and again until there was none for a moment: clients were told that their store does
    not answer, and the start took up to 24 seconds."""
    with first.unit_of_work() as unit:
        first.record_store("records").insert_record(b"one", 1, 0)
        first.units.require().ask(TRANSACTION)
        PostgresEngine(Address(other_uri), schema).close()
        unit.commit()
    assert first.record_store("records").count() == 1


def test_the_log_of_one_does_not_wait_for_units_of_the_other(
    first: PostgresEngine, other_uri: str, schema: str
) -> None:
    """The oplog could not be read beyond what was there when a unit had begun in the other database."""
    second = PostgresEngine(Address(other_uri), schema)
    try:
        with first.unit_of_work() as begun:
            first.units.require().ask(TRANSACTION)
            with second.unit_of_work() as unit:
                second.create_record_store("records")
                unit.log(LogForm(bson.encode({}), 0))
                unit.commit()
            log = second.units.log
            log.refresh()
            assert log.horizon == log.position == unit.position
            begun.commit()
    finally:
        second.close()
