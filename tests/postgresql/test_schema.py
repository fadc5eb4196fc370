"""The tables: made once however many begin at once, refused with a clear line if they cannot be used."""

import threading
from collections.abc import Callable

import pytest

from mongottl.storage.postgresql.connection import Connection, SessionSettings
from mongottl.storage.postgresql.failures import DUPLICATE, FORBIDDEN, REFUSED, StoreFailure
from mongottl.storage.postgresql.local_cluster import LocalCluster
from mongottl.storage.postgresql.schema import FORMAT, NAMESPACES_INDEX, RETRIES_INDEX, prepare_schema
from mongottl.storage.postgresql.statements import TEXT, Statement, text

Connector = Callable[..., Connection]

TABLES = Statement("tables", "SELECT tablename::text FROM pg_tables WHERE schemaname = $1 ORDER BY tablename", (TEXT,))
INDEXED = Statement(
    "indexed",
    "SELECT count(*) FROM pg_indexes WHERE schemaname = $1 AND indexname IN ('records_ts', 'records_due')",
    (TEXT,),
)


@pytest.fixture
def admin(connect_to: Connector, schema: str) -> Connection:
    return connect_to(settings=SessionSettings(schema))


def do(connection: Connection, *statements: str) -> None:
    """Runs statements, which change something."""
    connection.run([Statement(f"do {sql}", sql).with_() for sql in statements])


def tables(connection: Connection, schema: str) -> list[str]:
    return [name for (name,) in connection.run_one(TABLES.with_(text(schema))).rows()]


def refusal(connection: Connection, schema: str, kind: str) -> str:
    """The line with which a schema is refused; nothing was changed."""
    before = tables(connection, schema)
    with pytest.raises(StoreFailure) as caught:
        prepare_schema(connection, schema)
    assert (caught.value.kind, caught.value.message.count("\n")) == (kind, 0)
    assert connection.is_ready
    assert tables(connection, schema) == before
    return caught.value.message


def test_tables_are_made_once(admin: Connection, schema: str) -> None:
    assert prepare_schema(admin, schema) is True
    made = tables(admin, schema)
    assert {"records", "entries", "unique_entries", "oplog", "catalog", "fences", "meta"} < set(made)
    assert admin.run_one(INDEXED.with_(text(schema))).value() == 2
    assert prepare_schema(admin, schema) is False
    assert tables(admin, schema) == made
    row = admin.run_one(Statement("meta", f"SELECT format, epoch FROM {schema}.meta").with_()).row()
    assert row == (FORMAT, 1)


def test_several_servers_may_begin_at_once(connect_to: Connector, schema: str) -> None:
    connections = [connect_to(settings=SessionSettings(schema)) for _ in range(5)]
    barrier = threading.Barrier(len(connections))
    made: list[bool] = []

    def begin(connection: Connection) -> None:
        barrier.wait()
        made.append(prepare_schema(connection, schema))

    threads = [threading.Thread(target=begin, args=(each,)) for each in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False, False, False, False, True]


def test_an_empty_schema_that_somebody_else_has_made_is_used(admin: Connection, schema: str) -> None:
    do(admin, f"CREATE SCHEMA {schema}")
    assert prepare_schema(admin, schema) is True
    assert "records" in tables(admin, schema)


def test_a_name_that_has_to_be_quoted_is_quoted(connect_to: Connector, schema: str) -> None:
    name = f'{schema} "Größe"; DROP'
    connection = connect_to(settings=SessionSettings(name))
    assert prepare_schema(connection, name) is True
    assert connection.run_one(Statement("count", "SELECT count(*) FROM records").with_()).value() == 0


def test_unique_indexes_are_known_by_their_names(admin: Connection, schema: str) -> None:
    prepare_schema(admin, schema)
    entry = "INSERT INTO oplog VALUES (0, 1, {}, pg_current_xact_id(), 1, 10, 1, 0, 5, '\\x01', '\\x05')"
    do(admin, entry.format(1), "INSERT INTO catalog VALUES ('a', 'x', 'ready', '', 1)")
    do(admin, "INSERT INTO catalog VALUES ('b', 'x', 'dropping', '', 1), ('c', NULL, 'ready', '', 1)")
    for statement, index in [
        (entry.format(2), RETRIES_INDEX),
        ("INSERT INTO catalog VALUES ('d', 'x', 'ready', '', 2)", NAMESPACES_INDEX),
    ]:
        with pytest.raises(StoreFailure) as caught:
            do(admin, statement)
        assert (caught.value.kind, caught.value.constraint) == (DUPLICATE, index)


def test_a_newer_format_is_refused(admin: Connection, schema: str) -> None:
    prepare_schema(admin, schema)
    do(admin, f"UPDATE {schema}.meta SET format = {FORMAT + 1}")
    assert refusal(admin, schema, REFUSED) == (
        f"schema {schema} of database postgres has format {FORMAT + 1}, written by a newer mongottl; "
        f"this one knows formats up to {FORMAT}"
    )


def test_an_older_format_is_refused(admin: Connection, schema: str) -> None:
    prepare_schema(admin, schema)
    do(admin, f"UPDATE {schema}.meta SET format = 1")
    assert "has format 1, written by an older mongottl" in refusal(admin, schema, REFUSED)


@pytest.mark.parametrize(
    ("found", "before"),
    [
        (2, "DROP TABLE {0}.parts"),
        (3, "ALTER TABLE {0}.nodes DROP COLUMN address"),
        (4, "ALTER TABLE {0}.nodes DROP COLUMN since_ms"),
        (5, "ALTER TABLE {0}.stores DROP COLUMN epoch"),
    ],
)
def test_a_schema_of_an_older_format_gets_what_it_does_not_have(
    found: int, before: str, admin: Connection, schema: str
) -> None:
    prepare_schema(admin, schema)
    do(admin, before.format(schema), f"UPDATE {schema}.meta SET format = {found}, epoch = 7")
    assert not prepare_schema(admin, schema)
    row = admin.run_one(Statement("upgraded", f"SELECT format, epoch FROM {schema}.meta").with_()).row()
    assert row == (FORMAT, 7)
    do(admin, f"SELECT xid, number, form FROM {schema}.parts", f"SELECT address, since_ms FROM {schema}.nodes")
    do(admin, f"SELECT node, epoch FROM {schema}.stores")
    assert not prepare_schema(admin, schema)


def test_tables_of_others_are_left_alone(admin: Connection, schema: str) -> None:
    do(admin, f"CREATE SCHEMA {schema}", f"CREATE TABLE {schema}.customers (id int)")
    assert "has tables of others, such as customers; choose another schema" in refusal(admin, schema, REFUSED)
    do(admin, f"CREATE TABLE {schema}.meta (id int)")
    assert "has a table meta that is not mongottl's" in refusal(admin, schema, REFUSED)


def test_a_schema_that_lacks_a_table_is_refused(admin: Connection, schema: str) -> None:
    prepare_schema(admin, schema)
    do(admin, f"DROP TABLE {schema}.entries")
    assert "is damaged: it has no table entries" in refusal(admin, schema, REFUSED)


@pytest.fixture
def guest(admin: Connection, connect_to: Connector, cluster: LocalCluster, schema: str) -> Connection:
    """A connection of a user who may do nothing."""
    do(admin, f"CREATE ROLE {schema}_guest LOGIN")
    return connect_to(cluster.uri.replace("user=mongottl", f"user={schema}_guest"), SessionSettings(schema))


def test_missing_rights_are_named_with_what_grants_them(guest: Connection, admin: Connection, schema: str) -> None:
    user = f"{schema}_guest"
    assert refusal(guest, schema, FORBIDDEN) == (
        f"user {user} may not create the schema {schema} in database postgres: "
        f"GRANT CREATE ON DATABASE postgres TO {user}"
    )
    do(admin, f"CREATE SCHEMA {schema}")
    grant = f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {user}"
    assert refusal(guest, schema, FORBIDDEN).endswith(grant)
    prepare_schema(admin, schema)
    grant = f"GRANT USAGE ON SCHEMA {schema} TO {user}"
    assert refusal(guest, schema, FORBIDDEN).endswith(grant)
    do(admin, grant)
    grant = f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {user}"
    assert refusal(guest, schema, FORBIDDEN).endswith(grant)
    do(admin, grant)
    grant = f"GRANT USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA {schema} TO {user}"
    assert refusal(guest, schema, FORBIDDEN).endswith(grant)
    do(admin, grant)
    assert prepare_schema(guest, schema) is False


def test_a_user_with_the_right_to_create_makes_the_tables(guest: Connection, admin: Connection, schema: str) -> None:
    do(admin, f"GRANT CREATE ON DATABASE postgres TO {schema}_guest")
    assert prepare_schema(guest, schema) is True
    do(admin, f"REVOKE CREATE ON DATABASE postgres FROM {schema}_guest")


def test_older_servers_are_refused(connect_to: Connector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mongottl.storage.postgresql.connection.OLDEST_SERVER", 990_000)
    with pytest.raises(StoreFailure, match=r"is PostgreSQL [0-9]+; mongottl needs 15 or later") as caught:
        connect_to()
    assert caught.value.kind == REFUSED
