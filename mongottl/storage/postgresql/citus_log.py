"""The oplog where tables are distributed: what `log` does, by statements that Citus can carry out.

fence     a statement of its own, before the rows: the version of the catalog is at the coordinator
rows      have the place of the store that they count changes of, else that of the unit
parts     at the coordinator; a commit copies them to the oplog, and they are removed later
horizon   a unit counts as running until its COMMIT has an answer: of one with several places, machines commit their
          parts after it has no transaction id at the coordinator any more. One whose COMMIT gets none, or a warning,
          runs until no machine has a part left that may be committed
counts    read from all places, and added to the totals at the coordinator by another statement: nothing below the
          horizon changes meanwhile
"""

from typing import Final

from mongottl.storage.postgresql.statements import (
    BYTEA,
    BYTEA_ARRAY,
    INT4,
    INT4_ARRAY,
    INT8,
    INT8_ARRAY,
    OF_DATABASE_ID,
    TEXT,
    Answer,
    Call,
    Parameter,
    Statement,
    int4,
    int4_array,
    int8,
    int8_array,
    text,
)

_COLUMNS: Final = "(place, pos, xid, token, store, dn, dbytes, lsid, txn, stmt, form)"
# A unit has a transaction id before it takes a position.
_FENCE: Final = Statement(
    "distributed_fence", "SELECT pg_current_xact_id() IS NULL, 1 / (epoch <= $1)::int FROM meta", (INT8,)
)
_APPEND: Final = Statement(
    "distributed_append",
    f"INSERT INTO oplog {_COLUMNS} VALUES ($9, nextval('oplog_pos'), pg_current_xact_id(), $1, $2, $3, $4, $5, $6, $7,"
    " $8) RETURNING pos",
    (INT8, INT4, INT4, INT8, BYTEA, INT8, INT4, BYTEA, INT4),
)
_FIRST: Final = (
    "(SELECT pg_current_xact_id() AS xid, take_positions($3) / (epoch <= $1)::int AS first FROM meta OFFSET 0) AS m"
)
_LISTS: Final = (INT4_ARRAY, INT4_ARRAY, INT8_ARRAY, BYTEA_ARRAY, INT8_ARRAY, INT4_ARRAY, BYTEA_ARRAY)
_ROWS: Final = (
    "CROSS JOIN unnest($11, $4, $5, $6, $7, $8, $9, $10)"
    " WITH ORDINALITY AS u (place, store, dn, dbytes, lsid, txn, stmt, form, number)"
)
# Positions of several rows.
_TAKE: Final = Statement(
    "distributed_take_positions",
    "SELECT pg_current_xact_id()::text, take_positions($2) / (epoch <= $1)::int FROM meta",
    (INT8, INT4),
)
# Rows of one place.
_APPEND_MANY: Final = Statement(
    "distributed_append_many",
    f"INSERT INTO oplog {_COLUMNS} SELECT p.place, u.pos, $2::text::xid8, $3, u.store, u.dn, u.dbytes, u.lsid, u.txn,"
    " u.stmt, u.form FROM places p CROSS JOIN unnest($4, $5, $6, $7, $8, $9, $10, $11)"
    " AS u (pos, store, dn, dbytes, lsid, txn, stmt, form) WHERE p.place = $1 RETURNING pos",
    (INT4, TEXT, INT8, INT8_ARRAY, *_LISTS),
)
_APPEND_KEPT: Final = Statement(
    "distributed_append_kept",
    f"INSERT INTO oplog {_COLUMNS} SELECT rows.* FROM {_FIRST} CROSS JOIN LATERAL ("
    "SELECT $14::int, m.first + $12 + parts.number, m.xid, $2, 0, 0, 0::int8, NULL::bytea, NULL::int8, NULL::int,"
    " parts.form || ($13::bytea[])[parts.number + 1] FROM parts WHERE parts.xid = m.xid"
    " UNION ALL SELECT u.place, m.first + u.number - 1 + CASE WHEN u.number > $12 THEN cardinality($13) ELSE 0 END,"
    " m.xid, $2, u.store, u.dn, u.dbytes, u.lsid, u.txn, u.stmt, u.form"
    f" FROM {_ROWS.removeprefix('CROSS JOIN ')}) AS rows RETURNING pos",
    (INT8, INT8, INT4, *_LISTS, INT4_ARRAY, INT4, BYTEA_ARRAY, INT4),
)
# Numbers of transactions of sessions: when they have begun, in microseconds, and their processes.
RUNNING: Final = Statement(
    "distributed_running_units",
    "SELECT ((extract(epoch FROM xact_start) * 1000000)::int8 % 1099511627776) * 4194304 + pid"
    f" FROM pg_stat_get_activity(NULL) WHERE {OF_DATABASE_ID} AND xact_start IS NOT NULL"
    " AND (backend_xid IS NOT NULL OR query = 'COMMIT')"
    " AND starts_with(application_name, $1)",
    (TEXT,),
)
TOTALS: Final = Statement("totals", "SELECT store, n, bytes FROM totals")
CHANGED: Final = Statement(
    "distributed_changes",
    "SELECT store, sum(dn)::int8, sum(dbytes)::int8 FROM oplog WHERE pos > $1 AND pos <= $2 AND store <> 0"
    " GROUP BY store",
    (INT8, INT8),
)
# How many forms rows of the log have, and their bytes.
FORMS: Final = Statement(
    "distributed_forms",
    "SELECT count(*) FILTER (WHERE form <> ''), coalesce(sum(octet_length(form)), 0)::int8 FROM oplog"
    " WHERE pos > $1 AND pos <= $2",
    (INT8, INT8),
)
# Transactions of workers for a session of the coordinator that has ended: they may commit. A worker that does not
# answer may have some.
ORPHANS: Final = Statement(
    "distributed_orphans",
    "SELECT count(*) FROM run_command_on_workers($c$SELECT string_agg(session, ',') FROM ("
    "SELECT substr(application_name, 21) AS session FROM pg_stat_activity"
    " WHERE application_name LIKE 'citus_internal gpid=%' AND xact_start IS NOT NULL UNION ALL"
    " SELECT split_part(gid, '_', 3) FROM pg_prepared_xacts WHERE database = current_database()"
    r" AND gid LIKE 'citus\_0\_%') AS s$c$) AS w,"
    " regexp_split_to_table(CASE WHEN w.success THEN w.result ELSE '-1' END, ',') AS gpid WHERE gpid <> ''"
    " AND gpid::int8 / 10000000000 IN (0, citus_coordinator_nodeid())"
    " AND gpid::int8 % 10000000000 NOT IN (SELECT pid FROM pg_stat_activity)",
)
# Completes those that are prepared, as the coordinator has ended them. Citus does so by itself once a minute.
COMPLETE: Final = Statement("complete_prepared", "SELECT recover_prepared_transactions()")
_COUNT_UP: Final = Statement(
    "distributed_count_up",
    "WITH m AS (UPDATE meta SET counted = $2, log_n = log_n + $6, log_bytes = log_bytes + $7 WHERE counted = $1"
    " RETURNING 1) INSERT INTO totals (place, store, n, bytes) SELECT 0, u.store, u.n, u.bytes"
    " FROM m CROSS JOIN unnest($3, $4, $5) AS u (store, n, bytes)"
    " ON CONFLICT (store, place) DO UPDATE SET n = totals.n + excluded.n, bytes = totals.bytes + excluded.bytes",
    (INT8, INT8, INT4_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8, INT8),
)
_CLEAR_PARTS: Final = Statement("clear_parts", "DELETE FROM parts WHERE xid < pg_snapshot_xmin(pg_current_snapshot())")
SIZE: Final = Statement("distributed_log_size", "SELECT log_n, log_bytes FROM meta")
FIRST_POSITION: Final = Statement("first_position", "SELECT coalesce(min(pos), 0) FROM oplog WHERE form <> ''")
# The oldest rows, and one after these.
OLDEST: Final = Statement(
    "distributed_oldest", "SELECT pos, token FROM oplog WHERE pos <= $1 ORDER BY pos LIMIT $2", (INT8, INT8)
)
FOLLOWING: Final = Statement(
    "distributed_following", "SELECT token FROM oplog WHERE pos > $1 ORDER BY pos LIMIT 1", (INT8,)
)
_DROP: Final = Statement("distributed_drop", "DELETE FROM oplog WHERE pos <= $1", (INT8,))
_NOTE_DROP: Final = Statement(
    "distributed_note_drop",
    "UPDATE meta SET floor = greatest(floor, $1), log_n = log_n - $2, log_bytes = log_bytes - $3",
    (INT8, INT8, INT8),
)
_BEGIN: Final = Statement("begin_log", "BEGIN")
_COMMIT: Final = Statement("commit_log", "COMMIT")
END: Final = int8((1 << 63) - 1)


def append_one(epoch: int, row: tuple[Parameter, ...], place: int) -> list[Call]:
    """row: the parameters of `log`'s statement for one row, from the token on."""
    return [(_FENCE, (int8(epoch),)), (_APPEND, (*row, int4(place)))]


def take_positions(epoch: int, count: int) -> Call:
    """Takes positions for several rows; returns the number of the transaction and the first one."""
    return _TAKE, (int8(epoch), int4(count))


def by_place(places: list[int]) -> list[tuple[int, list[int]]]:
    """Each place with the numbers of its rows; that of the last row comes last."""
    found: dict[int, list[int]] = {}
    for number, place in enumerate(places):
        found.setdefault(place, []).append(number)
    found[places[-1]] = found.pop(places[-1])
    return list(found.items())


def append_some(place: int, xid: str, token: int, positions: list[int], rows: tuple[Parameter, ...]) -> Call:
    """rows: the parameters of `log`'s statement for several rows, from the stores on."""
    return _APPEND_MANY, (int4(place), text(xid), int8(token), int8_array(positions), *rows)


def append_kept(rows: tuple[Parameter, ...], places: list[int], earlier: int, ends: Parameter, place: int) -> Call:
    """The same with the forms that a transaction has kept. earlier: how many rows come before these."""
    return _APPEND_KEPT, (*rows, int4_array(places), int4(earlier), ends, int4(place))


def count_up(before: int, horizon: int, changes: Answer, forms: Answer) -> list[Call]:
    """Adds to the totals what rows have changed that are above a position and not above another one."""
    rows = changes.rows()
    [(count, size)] = forms.rows()
    lists = (int4_array([row[0] for row in rows]), *[int8_array([row[at] for row in rows]) for at in (1, 2)])
    values = (int8(before), int8(horizon), *lists, int8(count), int8(size))
    return [(_BEGIN, ()), (_COUNT_UP, values), (_CLEAR_PARTS, ()), (_COMMIT, ())]


def drop(last: int, count: int, size: int) -> list[Call]:
    """Drops the rows up to a position. count, size: the number of their forms, and the bytes of these."""
    return [
        (_BEGIN, ()),
        (_DROP, (int8(last),)),
        (_NOTE_DROP, (int8(last), int8(count), int8(size))),
        (_COMMIT, ()),
    ]


def whole_units(rows: list[tuple[int, int]], following: int) -> list[tuple[int, int]]:
    """Those of the oldest rows, by position and token, whose units have no further rows. following: the next token."""
    while rows and rows[-1][1] == following:
        rows.pop()
    return rows
