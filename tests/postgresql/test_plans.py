"""How PostgreSQL carries out statements when it knows nothing of the tables yet: it keeps these plans."""

import psycopg
import pytest

from mongottl.storage.postgresql.address import Address
from mongottl.storage.postgresql.connection import SessionSettings
from mongottl.storage.postgresql.engine import PostgresEngine
from mongottl.storage.postgresql.local_cluster import LocalCluster
from mongottl.storage.postgresql.sorted_data import STRICT
from mongottl.storage.postgresql.statements import Statement


@pytest.mark.parametrize("name", ["insert", "insert_one"])
def test_a_transaction_looks_up_the_unique_keys_that_it_inserts(cluster: LocalCluster, schema: str, name: str) -> None:
    """It compared each with each: 100,000 documents in a new database took over a minute, after which the transaction
    was aborted."""
    PostgresEngine(Address(cluster.uri), schema).close()
    insert: Statement = getattr(STRICT[True], name)
    with psycopg.connect(cluster.uri, autocommit=True) as connection:
        connection.execute(SessionSettings(schema).statements().encode())
        named = [connection.execute(f"SELECT {oid}::regtype::text".encode()).fetchone() for oid in insert.types]
        types = ", ".join(row[0] for row in named if row is not None)
        connection.execute(f"PREPARE kept ({types}) AS {insert.sql}".encode())
        nulls = ", ".join("NULL" for _ in named)
        plan = connection.execute(f"EXPLAIN EXECUTE kept ({nulls})".encode()).fetchall()
    lines = "\n".join(line for (line,) in plan)
    assert "Join" not in lines and "Nested Loop" not in lines, lines
    assert "(key = " in lines and "(hash = " in lines, lines
