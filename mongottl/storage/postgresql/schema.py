"""The tables: made once, by the first server of a database, and refused if this mongottl does not know their format.

    meta            one row: the format; the epoch, which each server raises that opens the database; the positions up
                    to which rows of the oplog are counted in `totals`, and were dropped; how many it has, their bytes
    catalog         what `StorageEngine.catalog_entries` returns, each with the epoch of its last change; the keys of
                    those that were deleted, until all servers know it (`state` 'gone')
    fences          the version of each store in which units write
    stores          the numbers of record stores and sorted data, by ident; which record ids are not leased yet; the
                    server that has made it, and the epoch of its making or drop
    records         documents, with the facts of their expiry, and two indexes over these
    entries         keys of indexes that are not unique; unique_entries: of those that are
    oplog           what units have changed, in the order of `pos`, and which statements of sessions they were (`log`)
    parts           what open transactions will put in the oplog; their commits take it from there, so it is never seen
    totals          numbers and lengths of records, as of the position `counted`
    nodes           the servers; leases: which of them does what only one does; snapshots: those that all may read
    clock           by how much time was moved, for tests

All stores share these tables. `place` is 0 on one PostgreSQL; where tables are distributed, it says to whom a row
belongs, and is in each primary key for that. Names are bytes, since those of collections need not be text that
PostgreSQL takes.

Keys longer than a page's third cannot be in an index: `key` then is the first HEAD_BYTES, `tail` the rest, and `hash`,
the SHA-256 of all, distinguishes them; both are empty in other rows.
"""

import hashlib
from typing import Final

from mongottl.document.utf8 import encode_text
from mongottl.storage.postgresql.citus import DISTRIBUTED, PARTS_COLUMN, distribution, has_workers
from mongottl.storage.postgresql.connection import Connection, identifier, literal
from mongottl.storage.postgresql.failures import FORBIDDEN, REFUSED, StoreFailure
from mongottl.storage.postgresql.statements import INT8, TEXT, Call, Statement, int8, text

# Raised when an older mongottl could not read what a newer one writes. Where tables are distributed, the format is the
# one after that, since stores may have several places there.
FORMAT: Final = 7
HEAD_BYTES: Final = 2000

# Kinds of stores.
RECORDS: Final = 0
LOG: Final = 1
SORTED: Final = 2
SORTED_UNIQUE: Final = 3

# Of tables whose rows are replaced and purged: dead rows are removed early, and without pauses, also where the server's
# own settings are others.
_VACUUMED: Final = "autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0"

_TABLES: Final = {
    "meta": (
        "id int PRIMARY KEY CHECK (id = 1), format int NOT NULL, epoch bigint NOT NULL, counted bigint NOT NULL, "
        "floor bigint NOT NULL, log_n bigint NOT NULL, log_bytes bigint NOT NULL"
    ),
    "nodes": (
        "node int PRIMARY KEY, epoch bigint NOT NULL, until_ms bigint NOT NULL, since_ms bigint NOT NULL, "
        "topology text NOT NULL, address text NOT NULL, pid int NOT NULL, shares bool NOT NULL, session text NOT NULL, "
        "keys text NOT NULL"
    ),
    "leases": "name text PRIMARY KEY, node int NOT NULL, until_ms bigint NOT NULL",
    "snapshots": "time bigint PRIMARY KEY, name text NOT NULL, node int NOT NULL, until_ms bigint NOT NULL",
    "clock": "id int PRIMARY KEY CHECK (id = 1), offset_ms bigint NOT NULL, frozen_ms bigint",
    "catalog": "key bytea PRIMARY KEY, ns bytea, state text NOT NULL, value bytea NOT NULL, epoch bigint NOT NULL",
    "fences": "place int NOT NULL, store int NOT NULL, version bigint NOT NULL, PRIMARY KEY (store, place)",
    "totals": (
        "place int NOT NULL, store int NOT NULL, n bigint NOT NULL, bytes bigint NOT NULL, PRIMARY KEY (store, place)"
    ),
    "stores": (
        "id int PRIMARY KEY, ident bytea NOT NULL, kind int NOT NULL, dropped bool NOT NULL, next_id bigint NOT NULL, "
        "node int NOT NULL DEFAULT 0, epoch bigint NOT NULL DEFAULT 0"
    ),
    "records": (
        "place int NOT NULL, store int NOT NULL, rid bigint NOT NULL, ts bigint NOT NULL, ttl int NOT NULL, "
        "doc bytea NOT NULL, PRIMARY KEY (store, rid, place)"
    ),
    "entries": (
        "place int NOT NULL, store int NOT NULL, rid bigint NOT NULL, key bytea NOT NULL, "
        "hash bytea NOT NULL DEFAULT '', tail bytea NOT NULL DEFAULT '', PRIMARY KEY (store, key, hash, rid, place)"
    ),
    "unique_entries": (
        "place int NOT NULL, store int NOT NULL, rid bigint NOT NULL, key bytea NOT NULL, "
        "hash bytea NOT NULL DEFAULT '', tail bytea NOT NULL DEFAULT '', PRIMARY KEY (store, key, hash, place)"
    ),
    "oplog": (
        "place int NOT NULL, store int NOT NULL, pos bigint NOT NULL, xid xid8 NOT NULL, token bigint NOT NULL, "
        "dbytes bigint NOT NULL, dn int NOT NULL, stmt int, txn bigint, lsid bytea, "
        "form bytea NOT NULL, PRIMARY KEY (pos, place)"
    ),
    "parts": (
        "place int NOT NULL, xid xid8 NOT NULL, number int NOT NULL, form bytea NOT NULL, "
        "PRIMARY KEY (xid, number, place)"
    ),
}
_VACUUMED_TABLES: Final = ("records", "entries", "unique_entries", "oplog", "parts")
# Documents are not compressed: their bytes are compared, cut and sent as they are.
_UNCOMPRESSED: Final = (
    ("records", "doc"),
    ("oplog", "form"),
    ("parts", "form"),
    ("entries", "tail"),
    ("unique_entries", "tail"),
)
# By name, so that a violation of one that is unique can be recognised.
_POSITIONS: Final = "oplog_pos"
_CLOSED: Final = "closed_epoch"
RETRIES_INDEX: Final = "oplog_statements"
NAMESPACES_INDEX: Final = "catalog_namespaces"
_INDEXES: Final = (
    f"CREATE UNIQUE INDEX {NAMESPACES_INDEX} ON {{}}.catalog (ns) WHERE ns IS NOT NULL AND state <> 'dropping'",
    "CREATE UNIQUE INDEX stores_ident ON {}.stores (ident) WHERE NOT dropped",
    "CREATE INDEX records_ts ON {}.records (store, ts, rid) WHERE ttl = 0",
    "CREATE INDEX records_due ON {}.records (store, (ts + ttl), rid) WHERE ttl > 0",
    f"CREATE UNIQUE INDEX {RETRIES_INDEX} ON {{}}.oplog (lsid, txn, stmt, place) WHERE lsid IS NOT NULL",
)

# The tables that an opening makes anew where the format is an older one, by that: nothing was in them. The others are
# kept as they are.
_NODES: Final = ("nodes",)
_UPGRADES: Final[dict[int, tuple[str, ...]]] = {2: ("nodes", "parts"), 3: _NODES, 4: _NODES, 5: _NODES, 6: (), 7: ()}
# Columns that tables of the oldest of these formats do not have.
_NEW_COLUMNS: Final = (
    "ALTER TABLE {}.stores ADD COLUMN IF NOT EXISTS node int NOT NULL DEFAULT 0,"
    " ADD COLUMN IF NOT EXISTS epoch bigint NOT NULL DEFAULT 0"
)

# Takes positions that follow each other, and returns the first of them: others take some at the same time.
_TAKE_POSITIONS: Final = (
    "CREATE FUNCTION {0}.take_positions(wanted int) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$"
    " DECLARE first bigint := nextval('oplog_pos'); last bigint := first; following bigint;"
    " BEGIN WHILE last < first + wanted - 1 LOOP following := nextval('oplog_pos');"
    " IF following <> last + 1 THEN first := following; END IF; last := following; END LOOP; RETURN first; END $$"
)

_BEGIN: Final = Statement("schema_begin", "BEGIN ISOLATION LEVEL READ COMMITTED")
_COMMIT: Final = Statement("schema_commit", "COMMIT")
_ROLLBACK: Final = Statement("schema_rollback", "ROLLBACK")
_PATIENT: Final = Statement("schema_patient", "SELECT set_config('lock_timeout', '0', true)")
_LOCK: Final = Statement("schema_lock", "SELECT pg_advisory_xact_lock($1)", (INT8,))
# Who is connected to what; whether the schema is there, which of our tables it has, and how many other ones; rights.
_LOOK: Final = Statement(
    "schema_look",
    """SELECT current_user::text, current_database()::text, pg_is_in_recovery(),
        has_database_privilege(current_database(), 'CREATE'),
        (SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = $1),
        (SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = $1),
        ARRAY(SELECT relname::text FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
            WHERE nspname = $1 AND relkind IN ('r', 'p', 'v', 'm', 'f') ORDER BY relname),
        ARRAY(SELECT relname::text FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
            WHERE nspname = $1 AND CASE relkind WHEN 'S' THEN NOT (has_sequence_privilege(pg_class.oid, 'USAGE')
                AND has_sequence_privilege(pg_class.oid, 'UPDATE'))
            WHEN 'r' THEN NOT (
                has_table_privilege(pg_class.oid, 'SELECT') AND has_table_privilege(pg_class.oid, 'INSERT')
                AND has_table_privilege(pg_class.oid, 'UPDATE') AND has_table_privilege(pg_class.oid, 'DELETE'))
            ELSE false END ORDER BY relname)""",
    (TEXT,),
)


def prepare_schema(connection: Connection, schema: str, needs_data: bool = False) -> bool:
    """Makes the tables if there are none, and those which an older format does not have; whether all were made. Nothing
    is changed if they cannot be used. needs_data: whether none are made.

    StoreFailure in one line: REFUSED (a newer format, others' tables, a standby), FORBIDDEN (missing rights).
    """
    place = Place(connection, schema)
    if place.has_tables and place.check():
        return False
    if needs_data and not place.has_tables:
        raise place.has_no_data()
    try:
        # One makes them, others wait for that and look again.
        number = int8(lock_number(f"mongottl schema {schema}"))
        connection.run([_BEGIN.with_(), _PATIENT.with_(), _LOCK.with_(number)], must_end=True)
        place = Place(connection, schema)
        if place.has_tables:
            upgrade = [] if place.check() else _upgrade(schema, place.format, place.is_distributed)
            connection.run([*upgrade, _COMMIT.with_()], must_end=True)
            return False
        place.require_rights_to_create()
        connection.run([*_creation(schema, place.has_schema, has_workers(connection)), _COMMIT.with_()], must_end=True)
    except StoreFailure:
        if not connection.is_lost and not connection.is_ready:
            connection.run([_ROLLBACK.with_()], must_end=True)
        raise
    return True


class Place:
    """What is in a database under the name of a schema, and what its user may do there."""

    def __init__(self, connection: Connection, schema: str) -> None:
        self._connection = connection
        self._schema = schema
        [row] = connection.run_one(_LOOK.with_(text(schema))).rows()
        self._user, self._database, self._is_standby, self._may_create_schemas, self._may_use, self._may_create = row[
            :6
        ]
        self._tables: list[str] = row[6]
        self._barred: list[str] = row[7]
        self.format = 0
        self.is_distributed = 0

    @property
    def has_schema(self) -> bool:
        return self._may_use is not None

    @property
    def has_tables(self) -> bool:
        return "meta" in self._tables

    def check(self) -> bool:
        """Raises if our tables are there and cannot be used. Whether they have the present format, not an older one
        that can be raised."""
        self._require_primary()
        name = f"schema {self._schema} of database {self._database}"
        if not self._may_use:
            raise self._forbidden(f"may not use {name}", f"GRANT USAGE ON SCHEMA {self._schema}")
        if "meta" in self._barred:
            raise self._no_rights(name)
        meta = Statement("schema_format", f"SELECT * FROM {identifier(self._schema)}.meta")
        rows = self._connection.run_one(meta.with_()).rows()
        if len(rows) != 1 or len(rows[0]) not in (4, 7) or not isinstance(rows[0][1], int):
            raise StoreFailure(REFUSED, f"{name} has a table meta that is not mongottl's; choose another schema")
        self.is_distributed, found = divmod(rows[0][1], DISTRIBUTED)
        self.format = found
        newest = FORMAT + self.is_distributed
        if found > newest:
            raise StoreFailure(
                REFUSED,
                f"{name} has format {found}, written by a newer mongottl; this one knows formats up to {newest}",
            )
        if found < newest and found not in _UPGRADES:
            raise StoreFailure(
                REFUSED,
                f"{name} has format {found}, written by an older mongottl; this one knows formats from {min(_UPGRADES)}"
                " on: dump the data with that version, and restore it into another schema",
            )
        missing = sorted(_TABLES.keys() - set(self._tables) - set(_UPGRADES.get(found, ())))
        if missing:
            raise StoreFailure(REFUSED, f"{name} is damaged: it has no table {', '.join(missing)}")
        if not _TABLES.keys().isdisjoint(self._barred):
            raise self._no_rights(name)
        if not {_POSITIONS, _CLOSED}.isdisjoint(self._barred):
            raise self._forbidden(
                f"may not use the sequences of {name}", f"GRANT USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA {self._schema}"
            )
        if found < newest:
            self._require_rights()
        return found == newest

    def has_no_data(self) -> StoreFailure:
        """What says that the tables are not there."""
        return StoreFailure(REFUSED, f"schema {self._schema} of database {self._database} has no data")

    def require_rights_to_create(self) -> None:
        """Raises if the tables cannot be made."""
        self._require_primary()
        if self._tables:
            raise StoreFailure(
                REFUSED,
                f"schema {self._schema} of database {self._database} has tables of others, such as {self._tables[0]}; "
                "choose another schema",
            )
        self._require_rights()

    def _require_rights(self) -> None:
        if self.has_schema and not (self._may_create and self._may_use):
            raise self._forbidden(
                f"may not create tables in schema {self._schema} of database {self._database}",
                f"GRANT USAGE, CREATE ON SCHEMA {self._schema}",
            )
        if not self.has_schema and not self._may_create_schemas:
            raise self._forbidden(
                f"may not create the schema {self._schema} in database {self._database}",
                f"GRANT CREATE ON DATABASE {self._database}",
            )

    def _require_primary(self) -> None:
        if self._is_standby:
            raise StoreFailure(
                REFUSED, f"database {self._database} is on a standby, which cannot be written; name the primary"
            )

    def _no_rights(self, name: str) -> StoreFailure:
        return self._forbidden(
            f"may not read and write the tables of {name}",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {self._schema}",
        )

    def _forbidden(self, deed: str, grant: str) -> StoreFailure:
        return StoreFailure(FORBIDDEN, f"user {self._user} {deed}: {grant} TO {self._user}")


def _creation(schema: str, is_there: bool, is_distributed: bool) -> list[Call]:
    """The statements that make all tables."""
    name = identifier(schema)
    made: list[str] = [] if is_there else [f"CREATE SCHEMA {name}"]
    for table in _TABLES:
        made += _table(name, table)
    for index in _INDEXES:
        made.append(index.format(name))
    # Positions of the oplog: seconds in the high 32 bits, as cluster times are.
    made.append(f"CREATE SEQUENCE {name}.{_POSITIONS} AS bigint MINVALUE 1 NO CYCLE")
    made.append(_TAKE_POSITIONS.format(name))
    made.append(f"SELECT setval('{_POSITIONS}', 1)")  # which no unit gets
    made += _closed(name)
    comment = literal("Data of mongottl. Not to be changed by others.")
    made.append(
        f"COMMENT ON SCHEMA {name} IS {comment}" if not is_there else f"COMMENT ON TABLE {name}.meta IS {comment}"
    )
    made.append(f"INSERT INTO {name}.clock VALUES (1, 0, NULL)")
    number = _number(is_distributed)
    made.append(f"INSERT INTO {name}.meta VALUES (1, {number}, 1, 0, 0, 0, 0)")
    if is_distributed:
        made += distribution(name)
    return [Statement(f"schema_{number}", sql).with_() for number, sql in enumerate(made)]


def _number(is_distributed: int) -> int:
    """What `meta.format` says of tables that are made now. is_distributed: 1 if they are distributed, else 0."""
    return FORMAT + is_distributed + DISTRIBUTED * is_distributed


def _table(name: str, table: str) -> list[str]:
    """The statements that make one table. name: of the schema, as an identifier."""
    settings = f" WITH ({_VACUUMED})" if table in _VACUUMED_TABLES else ""
    made = [f"CREATE TABLE {name}.{table} ({_TABLES[table]}){settings}"]
    for of_table, column in _UNCOMPRESSED:
        if of_table == table:
            made.append(f"ALTER TABLE {name}.{table} ALTER COLUMN {column} SET STORAGE EXTERNAL")
    return made


def _closed(name: str) -> list[str]:
    """The statements that make the sequence of the versions of the catalog at which something ends (`log`)."""
    return [
        f"CREATE SEQUENCE IF NOT EXISTS {name}.{_CLOSED} AS bigint MINVALUE 1 NO CYCLE",
        f"SELECT setval('{name}.{_CLOSED}', 1)",
    ]


def _upgrade(schema: str, found: int, is_distributed: int) -> list[Call]:
    """The statements that raise the format of tables. is_distributed: 1 if they are, else 0."""
    name = identifier(schema)
    made: list[str] = []
    for table in _UPGRADES[found]:
        made += [f"DROP TABLE IF EXISTS {name}.{table}", *_table(name, table)]
    made.append(_NEW_COLUMNS.format(name))
    made += _closed(name)
    if is_distributed:
        made.append(PARTS_COLUMN.format(name))
    made.append(f"UPDATE {name}.meta SET format = {_number(is_distributed)}")
    return [Statement(f"upgrade_{number}", sql).with_() for number, sql in enumerate(made)]


def lock_number(name: str) -> int:
    """The number of the advisory lock of this name."""
    return int.from_bytes(hashlib.sha256(encode_text(name)).digest()[:8], "big", signed=True)
