"""Citus: tables that are spread over several machines, reached through their coordinator as one database.

    at the coordinator   all that the servers have to agree on: catalog, stores, nodes, counts, positions
    by place             records, entries, unique_entries, oplog: the rows of one place are on one machine; and places,
                         with one row for each, which an INSERT of many rows selects from

A collection has one place, with its indexes and with the rows of the oplog of the units that change it. So such a unit
is one transaction of one machine, which commits it before the coordinator's part, in which there is nothing to lose. A
unit with several places is committed in two phases. A sharded collection has several places, among which its shard key
decides (`citus_spread`).

A schema is made so if the database is a coordinator's that has workers, and stays what it was made as.
"""

from typing import Final

from mongottl.storage.postgresql.connection import Connection, literal
from mongottl.storage.postgresql.failures import REFUSED, StoreFailure
from mongottl.storage.postgresql.statements import Statement

# Added to the format of a schema whose tables are distributed: older servers do not know it.
DISTRIBUTED: Final = 1000
# In the order in which they are distributed: the others follow the first one.
DISTRIBUTED_TABLES: Final = ("records", "entries", "unique_entries", "oplog", "places")

# How many places a store has, from `place` on (`citus_spread`).
PARTS_COLUMN: Final = "ALTER TABLE {}.stores ADD COLUMN IF NOT EXISTS parts int NOT NULL DEFAULT 1"

_HAS_CITUS: Final = Statement("has_citus", "SELECT count(*) FROM pg_extension WHERE extname = 'citus'")
_LOOK: Final = Statement(
    "look_at_citus",
    "SELECT citus_is_coordinator(), (SELECT count(*) FROM pg_dist_node"
    " WHERE isactive AND shouldhaveshards AND noderole = 'primary' AND groupid <> 0)",
)
_IS_DISTRIBUTED: Final = Statement("is_distributed", f"SELECT format >= {DISTRIBUTED} FROM meta")


def has_workers(connection: Connection) -> bool:
    """Whether tables of the database can be distributed. StoreFailure, REFUSED for a worker."""
    if not connection.run_one(_HAS_CITUS.with_()).value():
        return False
    [(is_coordinator, workers)] = connection.run_one(_LOOK.with_()).rows()
    if not is_coordinator:
        raise StoreFailure(REFUSED, "the database is that of a Citus worker; name the coordinator's")
    return bool(workers)


def workers_of(connection: Connection) -> int:
    """Over how many machines the tables of the schema are distributed; 0 if they are not. StoreFailure."""
    if not connection.run_one(_IS_DISTRIBUTED.with_()).value():
        return 0
    return int(connection.run_one(_LOOK.with_()).rows()[0][1])


def distribution(name: str) -> list[str]:
    """What distributes tables that were made in the same transaction. name: of the schema, as an identifier."""
    made = [
        f"ALTER TABLE {name}.stores ADD COLUMN place int NOT NULL DEFAULT 0",
        PARTS_COLUMN.format(name),
        f"CREATE TABLE {name}.places (place int PRIMARY KEY)",
    ]
    # Not beside the tables of other schemas: their shards are moved for themselves.
    beside = literal("none")
    for table in DISTRIBUTED_TABLES:
        relation = literal(f"{name}.{table}")
        made.append(f"SELECT create_distributed_table({relation}, 'place', colocate_with => {beside})")
        beside = literal(f"{name}.{DISTRIBUTED_TABLES[0]}")
    made.append(f"INSERT INTO {name}.places VALUES (0)")
    return made
