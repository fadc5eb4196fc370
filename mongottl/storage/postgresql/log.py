"""The oplog in the table `oplog`: a row or more for each unit of work, its last statement.

    INSERT INTO oplog … nextval('oplog_pos')      the position, taken while the unit has all its locks: so units that
                                                  change the same rows have positions in the order of their commits
    store, dn, dbytes                             by how many records and bytes the unit has changed a record store
    token                                         which unit of which server it was, if its COMMIT gets no answer
    epoch                                         the version of the catalog that the unit knows: division by zero if
                                                  PostgreSQL has a later one, as of the snapshot of the statement, or
                                                  if one is being made by which a collection ends, or its name
    lsid, txn, stmt                               the statements of a retryable write: nobody can execute them again;
                                                  one that may come late is the logarithm of zero after a higher number
                                                  of its session

Positions are cluster times: the sequence is raised to a new second by the first unit that sees it.

The horizon. `L` is the position of the last row; who may still hold a position at or below it is a session of a server
that had a transaction id when `L` had been read. When all these transactions have ended, nothing can appear at or below
`L`:

    1  SELECT max(pos)                            L
    2  pg_stat_get_activity: backend_xid          in a later transaction than 1; of sessions that write units
    3  as 2, later                                L is the horizon once none of those of 2 is there

The sequence's value would not do for `L`: it is durable only with the commit of a unit that has taken one. After a
crash, or on a standby that was promoted, values are given again that nobody has committed.

A unit has a transaction id before it takes its position (`pg_current_xact_id` in the same statement, below nextval).
Sessions of open transactions have ids long before a position: they have another name until they commit.

The end of a collection. Who drops or renames one is still to commit when it has taken its position, and others who do
not know that yet would write to the collection at later ones. So it says first, by a sequence, which version it makes:
a sequence is changed at once for all. Whoever takes a later position sees that, waits until the version is there, and
begins again. If it never comes, whoever has waited sets the sequence back.

Counts. `totals` has the numbers and lengths of records up to the position `counted`; rows above add to that.
"""

from collections.abc import Callable
from typing import Final, final

from mongottl.storage.errors import StorageError, StoreUnreachable
from mongottl.storage.log import ExecutedStatement, LogForm, StoreLog
from mongottl.storage.postgresql import citus_log
from mongottl.storage.postgresql.failures import FORBIDDEN, LOCKED, StoreFailure
from mongottl.storage.postgresql.pool import ConnectionPool
from mongottl.storage.postgresql.schema import lock_number
from mongottl.storage.postgresql.statements import (
    BYTEA,
    BYTEA_ARRAY,
    INT4,
    INT4_ARRAY,
    INT8,
    INT8_ARRAY,
    OF_DATABASE,
    OF_DATABASE_ID,
    PATIENT,
    SYNC,
    TEXT,
    Answer,
    Call,
    Parameter,
    Statement,
    bytea_array,
    int4,
    int4_array,
    int8,
    int8_array,
    placed,
    text,
)
from mongottl.storage.waiting import Waiter

# A unit has a transaction id before it takes a position.
_UNIT: Final = "(SELECT pg_current_xact_id() AS xid, epoch FROM meta OFFSET 0) AS m"
# Looked at after the position was taken.
_IS_KNOWN: Final = "(m.epoch <= $1 AND pg_sequence_last_value('closed_epoch') <= $1)::int"
_APPEND: Final = Statement(
    "append",
    "INSERT INTO oplog (place, pos, xid, token, store, dn, dbytes, lsid, txn, stmt, form)"
    f" SELECT 0, nextval('oplog_pos') / {_IS_KNOWN}, m.xid, $2, $3, $4, $5, $6, $7, $8, $9 FROM {_UNIT}"
    " RETURNING pos",
    (INT8, INT8, INT4, INT4, INT8, BYTEA, INT8, INT4, BYTEA),
)
_APPEND_MANY: Final = Statement(
    "append_many",
    "WITH done AS (INSERT INTO oplog (place, pos, xid, token, store, dn, dbytes, lsid, txn, stmt, form)"
    " SELECT 0, m.first + u.place - 1, m.xid, $2, u.store, u.dn, u.dbytes, u.lsid, u.txn, u.stmt, u.form"
    f" FROM (SELECT m.xid, take_positions($3) / {_IS_KNOWN} AS first FROM {_UNIT} OFFSET 0) AS m"
    " CROSS JOIN unnest($4, $5, $6, $7, $8, $9, $10)"
    " WITH ORDINALITY AS u (store, dn, dbytes, lsid, txn, stmt, form, place) RETURNING pos) SELECT max(pos) FROM done",
    (INT8, INT8, INT4, INT4_ARRAY, INT4_ARRAY, INT8_ARRAY, BYTEA_ARRAY, INT8_ARRAY, INT4_ARRAY, BYTEA_ARRAY),
)


def _unless_late(name: str, append: Statement, lsid: str, number: str) -> Statement:
    """The same for a retryable write that may come late: unless a later one of the session was executed."""
    newer = f"SELECT FROM oplog AS o WHERE o.lsid = {lsid} AND o.txn > {number}"
    return Statement(
        name, append.sql.replace(_IS_KNOWN, f"{_IS_KNOWN} + ln((NOT EXISTS ({newer}))::int)::int8"), append.types
    )


_APPEND_LATE: Final = _unless_late("append_late", _APPEND, "$6", "$7")
# Of several rows the last one says what was executed.
_APPEND_MANY_LATE: Final = _unless_late(
    "append_many_late", _APPEND_MANY, "($7::bytea[])[cardinality($7)]", "($8::int8[])[cardinality($8)]"
)
# Puts the open forms that the transaction has kept in the log as well, after rows without a form and those of the
# collections that it makes, and before the others.
_APPEND_KEPT: Final = Statement(
    "append_kept",
    f"WITH m AS MATERIALIZED (SELECT m.xid, take_positions($3) / {_IS_KNOWN} AS first"
    f" FROM {_UNIT}), kept AS (DELETE FROM parts USING m WHERE parts.xid = m.xid RETURNING parts.number, parts.form),"
    " moved AS (INSERT INTO oplog (place, pos, xid, token, store, dn, dbytes, form)"
    " SELECT 0, m.first + $11 + kept.number, m.xid, $2, 0, 0, 0, kept.form || ($12::bytea[])[kept.number + 1]"
    " FROM m CROSS JOIN kept),"
    " done AS (INSERT INTO oplog (place, pos, xid, token, store, dn, dbytes, lsid, txn, stmt, form)"
    " SELECT 0, m.first + u.place - 1 + CASE WHEN u.place > $11 THEN cardinality($12) ELSE 0 END,"
    " m.xid, $2, u.store, u.dn, u.dbytes, u.lsid, u.txn, u.stmt, u.form"
    " FROM m CROSS JOIN unnest($4, $5, $6, $7, $8, $9, $10)"
    " WITH ORDINALITY AS u (store, dn, dbytes, lsid, txn, stmt, form, place) RETURNING pos) SELECT max(pos) FROM done",
    (
        INT8,
        INT8,
        INT4,
        INT4_ARRAY,
        INT4_ARRAY,
        INT8_ARRAY,
        BYTEA_ARRAY,
        INT8_ARRAY,
        INT4_ARRAY,
        BYTEA_ARRAY,
        INT4,
        BYTEA_ARRAY,
    ),
)
# Forms that a transaction keeps until its commit, numbered from 0.
_KEEP: Final = Statement(
    "keep_forms",
    "INSERT INTO parts (place, xid, number, form) SELECT 0, pg_current_xact_id(), $1 + u.number - 1, u.form"
    " FROM unnest($2) WITH ORDINALITY AS u (form, number)",
    (INT4, BYTEA_ARRAY),
)
# The first statement of a unit that changes the catalog: it holds off others who do, on all servers.
_RAISE_EPOCH: Final = Statement(
    "raise_epoch",
    "WITH m AS (UPDATE meta SET epoch = epoch + 1 WHERE epoch = $1 RETURNING 1) SELECT 1 / count(*) FROM m",
    (INT8,),
)
# Says that this version is being made, by which something ends; whether one is being made; and sets that back, if
# nobody makes it any more.
_CLOSE: Final = Statement("close_epoch", "SELECT setval('closed_epoch', $1)", (INT8,))
_IS_CLOSING: Final = Statement("is_closing", "SELECT pg_sequence_last_value('closed_epoch') > epoch FROM meta")
_OPEN_AGAIN: Final = Statement(
    "open_epoch",
    "SELECT setval('closed_epoch', m.epoch) FROM (SELECT epoch FROM meta FOR UPDATE) AS m"
    " WHERE pg_sequence_last_value('closed_epoch') > m.epoch",
)
# After the version was raised, in the same transaction.
CLOSE_NOTHING: Final = Statement("close_nothing", "SELECT setval('closed_epoch', epoch) FROM meta")
RAISE_AGAIN: Final = Statement("raise_epoch_again", "UPDATE meta SET epoch = epoch + 1 RETURNING epoch")
# Has all servers hear of it when the unit is committed, where there may be several.
NOTIFY: Final = Statement("notify", "SELECT pg_notify($1, $2)", (TEXT, TEXT))
_RAISE_LOCK: Final = Statement("raise_lock", "SELECT pg_advisory_xact_lock($1)", (INT8,))
# A near value is passed by far: others may take positions meanwhile, and the sequence must not go back.
_RAISE: Final = Statement(
    "raise_position",
    "SELECT CASE WHEN last_value < $1 THEN setval('oplog_pos',"
    " CASE WHEN $1 - last_value < 4096 THEN $1 + 4096 ELSE $1 END) ELSE last_value END FROM oplog_pos",
    (INT8,),
)
_LAST_VALUE: Final = Statement("last_position", "SELECT last_value FROM oplog_pos")
_TAKE_POSITION: Final = Statement("take_position", "SELECT nextval('oplog_pos')")
_LAST_ROW: Final = Statement("last_row", "SELECT coalesce(max(pos), 0) FROM oplog")
_RUNNING: Final = Statement(
    "running_units",
    "SELECT backend_xid::text::int8 FROM pg_stat_get_activity(NULL)"
    f" WHERE {OF_DATABASE_ID} AND backend_xid IS NOT NULL AND starts_with(application_name, $1)",
    (TEXT,),
)
_SESSIONS: Final = Statement(
    "own_sessions",
    f"SELECT pid FROM pg_stat_activity WHERE {OF_DATABASE} AND application_name IN ($1, $2)"
    " AND pid <> pg_backend_pid()",
    (TEXT, TEXT),
)
_END: Final = Statement(
    "end_sessions",
    f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OF_DATABASE} AND application_name IN ($1, $2)"
    " AND pid = ANY ($3)",
    (TEXT, TEXT, INT4_ARRAY),
)
_FIND_TOKEN: Final = Statement("find_token", "SELECT pos FROM oplog WHERE pos > $1 AND token = $2", (INT8, INT8))
# Commits wait until the standbys have all of the log before them; this is the least that one has to have written.
_NOTHING: Final = Statement("log_nothing", "SELECT pg_logical_emit_message(true, 'mongottl', '')")
_FACTS: Final = Statement("log_facts", "SELECT floor, counted FROM meta")


def _read(forward: bool) -> Statement:
    order = "ASC" if forward else "DESC"
    return Statement(
        f"read_log_{int(forward)}",
        "SELECT pos, form FROM (SELECT pos, form, coalesce(sum(octet_length(form)) OVER"
        f" (ORDER BY pos {order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS size"
        " FROM (SELECT pos, form FROM oplog WHERE pos >= $1 AND pos <= $2 AND form <> ''"
        f" ORDER BY pos {order} LIMIT $3) AS first) AS found WHERE size < $4 ORDER BY pos {order}",
        (INT8, INT8, INT8, INT8),
    )


_READ: Final = {forward: _read(forward) for forward in (False, True)}
# By how much the rows of a part of the log have changed each store.
_CHANGED: Final = (
    "SELECT store, sum(dn)::int8 AS n, sum(dbytes)::int8 AS bytes FROM oplog"
    " WHERE pos > {0} AND pos <= {1} AND store <> 0 GROUP BY store"
)
_COUNTS: Final = Statement(
    "counts",
    "SELECT store, sum(n)::int8, sum(bytes)::int8 FROM (SELECT store, n, bytes FROM totals UNION ALL"
    f" SELECT store, n, bytes FROM ({_CHANGED.format('(SELECT counted FROM meta)', '9223372036854775807')}) AS c)"
    " AS counts GROUP BY store",
)
# Of one store, as of the snapshot of who asks.
COUNTS_OF_STORE: Final = placed(
    "counts_of_store",
    "SELECT coalesce(sum(n), 0)::int8, coalesce(sum(bytes), 0)::int8 FROM (SELECT store, n, bytes FROM totals"
    f" UNION ALL SELECT store, n, bytes FROM ({_CHANGED.format('(SELECT counted FROM meta)', '9223372036854775807')})"
    " AS c) AS counts WHERE store = $1",
    (INT4,),
    "SELECT coalesce(sum(n), 0)::int8, coalesce(sum(bytes), 0)::int8 FROM (SELECT n, bytes FROM totals"
    " WHERE $1 = totals.store UNION ALL SELECT dn, dbytes FROM oplog"
    " WHERE store = $1 AND pos > (SELECT counted FROM meta)) AS counts",
)
_COUNT_UP: Final = Statement(
    "count_up",
    "WITH m AS MATERIALIZED (SELECT counted FROM meta WHERE counted < $1 FOR UPDATE),"
    f" d AS MATERIALIZED ({_CHANGED.format('(SELECT counted FROM m)', '$1')}),"
    " t AS (INSERT INTO totals (place, store, n, bytes) SELECT 0, store, n, bytes FROM d"
    " ON CONFLICT (store, place) DO UPDATE SET n = totals.n + excluded.n, bytes = totals.bytes + excluded.bytes),"
    " l AS MATERIALIZED (SELECT count(*) FILTER (WHERE form <> '') AS n, coalesce(sum(octet_length(form)), 0) AS bytes"
    " FROM oplog WHERE pos > (SELECT counted FROM m) AND pos <= $1)"
    " UPDATE meta SET counted = $1, log_n = log_n + l.n, log_bytes = log_bytes + l.bytes FROM m, l",
    (INT8,),
)
# The rows of a unit are dropped together: if the last one is of the same unit as the next, all of that unit are kept.
_TRIM: Final = Statement(
    "trim_log",
    "WITH old AS MATERIALIZED (SELECT pos, token FROM oplog WHERE pos <= $1 ORDER BY pos LIMIT $2),"
    " following AS MATERIALIZED (SELECT token FROM oplog WHERE pos > (SELECT max(pos) FROM old) ORDER BY pos LIMIT 1),"
    " gone AS MATERIALIZED (DELETE FROM oplog WHERE pos = ANY (ARRAY("
    "SELECT pos FROM old WHERE token <> coalesce((SELECT token FROM following), -1)))"
    " RETURNING pos, octet_length(form) AS size),"
    " g AS MATERIALIZED (SELECT count(*) AS rows, count(*) FILTER (WHERE size > 0) AS n,"
    " coalesce(sum(size), 0)::int8 AS bytes, max(pos) AS last FROM gone),"
    " m AS (UPDATE meta SET floor = greatest(floor, g.last), log_n = log_n - g.n, log_bytes = log_bytes - g.bytes"
    " FROM g WHERE g.rows > 0)"
    " SELECT rows, n, bytes, coalesce(last, 0) FROM g",
    (INT8, INT8),
)
_SIZE: Final = Statement(
    "log_size",
    "SELECT m.log_n + l.n, (m.log_bytes + l.bytes)::int8,"
    " coalesce((SELECT pos FROM oplog WHERE form <> '' ORDER BY pos LIMIT 1), 0)"
    " FROM meta AS m, LATERAL (SELECT count(*) FILTER (WHERE form <> '') AS n,"
    " coalesce(sum(octet_length(form)), 0) AS bytes FROM oplog WHERE pos > m.counted) AS l",
)
_STATEMENTS: Final = Statement(
    "log_statements",
    "SELECT pos, form FROM oplog WHERE pos >= $1 AND lsid IS NOT NULL ORDER BY pos LIMIT $2",
    (INT8, INT8),
)
_STATEMENTS_OF: Final = Statement(
    "log_statements_of",
    "SELECT pos, form FROM oplog WHERE lsid = $1"
    " AND txn = (SELECT max(o.txn) FROM oplog AS o WHERE o.lsid = $1 AND o.txn >= $2) ORDER BY pos",
    (BYTEA, INT8),
)


def keep_call(first: int, forms: list[bytes]) -> Call:
    """Keeps open forms of a transaction until its commit. first: how many it has kept already."""
    return _KEEP, (int4(first), bytea_array(forms))


# How often it is tried to find out whether a unit was committed, in seconds.
_RESOLVE_EVERY_S: Final = 0.1
_RESOLVE_S: Final = 60.0
# Seconds for which a reader waits for units that are under way, and between two looks.
_REACH_S: Final = 5.0
_REACH_EVERY_S: Final = 0.002


_NO_FORM: Final = LogForm(b"", 0)
_NO_STATEMENT: Final = ExecutedStatement(b"", 0, 0)


@final
class Counters:
    """Of a record store: its number, how many records it has and their bytes, as committed. place: where its rows are,
    if tables are distributed."""

    def __init__(self, store: int, count: int, size: int, place: int = 0) -> None:
        self.store: Final = store
        self.place: Final = place
        self.count = count
        self.size = size


_NO_STORE: Final = Counters(0, 0, 0)

# By how many records and bytes stores are changed.
Changes = dict[Counters, list[int]]


def add_change(changes: Changes, counters: Counters, count: int, size: int) -> None:
    known = changes.get(counters)
    if known is None:
        changes[counters] = [count, size]
    else:
        known[0] += count
        known[1] += size


@final
class PostgresLog(StoreLog):
    """pool: of the sessions that write units. session: their name; units_of: how the names of those of all servers with
    this schema begin. error_of: the contract's error for a failure. transactions: the name of sessions whose
    transactions are not being committed yet. channel: on which changes of the catalog are heard of; empty where nobody
    hears."""

    def __init__(
        self,
        pool: ConnectionPool,
        waiter: Waiter,
        session: str,
        units_of: str,
        error_of: Callable[[StoreFailure], StorageError],
        transactions: str = "",
        channel: str = "",
    ) -> None:
        self.channel: Final = channel
        self._pool: Final = pool
        self._waiter: Final = waiter
        self.session: Final = session
        self._units_of: Final = units_of
        self._transactions: Final = transactions or session
        # Of connections whose sessions have the name `session` or `transactions`, too.
        self.more_pools: list[ConnectionPool] = []
        self._error_of: Final = error_of
        self.is_distributed = False
        self._raise_lock: Final = int8(lock_number("mongottl oplog_pos"))
        self.epoch = 0
        self._node = 0
        self.floor = 0
        self.horizon = 0
        self.position = 0
        self.size_bytes = 0
        self.count = 0
        self.first_position = 0
        # The sequence has reached this value.
        self._raised = 0
        self._counted = 0
        # The position of a row that becomes the horizon when the units that ran then have ended.
        self._next_horizon = 0
        self._running: set[int] = set()
        # Where tables are distributed: units of this server whose commit is under way, or not known to be done by all
        # machines; and those of them that have to end as well before that position is the horizon.
        self.committing: Final[set[object]] = set()
        self._awaited: set[object] = set()
        # How often was asked for that, and which of the questions was answered last.
        self._asked = 0
        self._answered = 0

    def load(self, epoch: int, node: int) -> None:
        """Called when the database was opened. node: the number of this server, which no other one has or gets.
        StoreFailure."""
        self.epoch = epoch
        self._node = node
        facts, last = self._pool.read([(_FACTS, ()), (_LAST_VALUE, ())])
        [(self.floor, self._counted)] = facts.rows()
        self.position = self._raised = last.value()
        self.horizon = self._counted
        if self.is_distributed:
            self._load_distributed()
        else:
            [(self.count, self.size_bytes, self.first_position)] = self._pool.read([(_SIZE, ())])[0].rows()
        self.refresh()

    def measure(self) -> None:
        facts, size = self._read([(_FACTS, ()), (_SIZE, ())])
        [(self.floor, self._counted)] = facts.rows()
        [(self.count, self.size_bytes, self.first_position)] = size.rows()

    def counts(self) -> dict[int, tuple[int, int]]:
        """The number and the bytes of the records of each store. StoreFailure."""
        if self.is_distributed:
            return self._distributed_counts()
        return {store: (count, size) for store, count, size in self._pool.read([(_COUNTS, ())])[0].rows()}

    def _load_distributed(self) -> None:
        """Reads the size of the log, and raises the sequence to the last position: the workers may have committed more
        than the coordinator if that was killed. What they may still commit of an earlier server is waited for."""
        self._await_orphans()
        after = (int8(self._counted), citus_log.END)
        known, forms, first, last = self._pool.read(
            [(citus_log.SIZE, ()), (citus_log.FORMS, after), (citus_log.FIRST_POSITION, ()), (_LAST_ROW, ())]
        )
        [(self.count, self.size_bytes)] = known.rows()
        [(count, size)] = forms.rows()
        self.count += count
        self.size_bytes += size
        self.first_position = first.value()
        if last.value() > self.position:
            self._pool.write([(_RAISE, (int8(last.value()),))])
            self.position = self._raised = last.value()

    def _distributed_counts(self) -> dict[int, tuple[int, int]]:
        counts: dict[int, tuple[int, int]] = {}
        changed = (citus_log.CHANGED, (int8(self._counted), citus_log.END))
        for answer in self._pool.read([(citus_log.TOTALS, ()), changed]):
            for store, count, size in answer.rows():
                known = counts.get(store, (0, 0))
                counts[store] = (known[0] + count, known[1] + size)
        return counts

    # Writing

    def append_calls(
        self,
        number: int,
        epoch: int,
        forms: list[LogForm],
        changed: Changes,
        ends: list[bytes] | None = None,
        before_kept: int = 0,
        place: int = 0,
    ) -> list[Call]:
        """The last statements of a unit, the last of which returns its position; where tables are distributed, those of
        all its rows.

        number: of the unit. epoch: of the catalog that it knows, with its own changes. ends: what is appended to each
        of the forms that its transaction has kept. before_kept: how many forms come before these. place: of rows
        that no store is changed by.
        """
        calls = self._raise_calls(forms)
        changes = [(counters.store, delta[0], delta[1]) for counters, delta in changed.items() if any(delta)]
        count = max(len(forms), len(changes), 1)
        places: list[int] = []
        if self.is_distributed:
            places = [counters.place for counters, delta in changed.items() if any(delta)]
            places += [place] * (count - len(places))
        if ends:
            rows = self._rows(number, epoch, count, len(ends), forms, changes)
            earlier = count - len(forms) + before_kept
            if self.is_distributed:
                calls.append(citus_log.append_kept(rows, places, earlier, bytea_array(ends), place))
            else:
                calls.append((_APPEND_KEPT, (*rows, int4(earlier), bytea_array(ends))))
            return calls
        if count > 1:
            append = _APPEND_MANY_LATE if forms and self._may_be_late(forms[-1].executed) else _APPEND_MANY
            calls.append((append, self._rows(number, epoch, count, 0, forms, changes)))
            return calls
        store, records, size = changes[0] if changes else (0, 0, 0)
        form = forms[0] if forms else _NO_FORM
        executed = form.executed
        row = (
            int8(self._token(number)),
            int4(store),
            int4(records),
            int8(size),
            None if executed is None else executed.lsid,
            None if executed is None else int8(executed.txn_number),
            None if executed is None else int4(executed.statement),
            form.form,
        )
        if self.is_distributed:
            calls += citus_log.append_one(epoch, row, places[0])
        else:
            calls.append((_APPEND_LATE if self._may_be_late(executed) else _APPEND, (int8(epoch), *row)))
        return calls

    def _may_be_late(self, executed: ExecutedStatement | None) -> bool:
        return executed is not None and executed.may_be_late and bool(self.channel)

    def _raise_calls(self, forms: list[LogForm]) -> list[Call]:
        """What raises the sequence to a new second, if the forms have to be logged in one."""
        return self._raise_to(max([form.not_before for form in forms], default=0))

    def _raise_to(self, not_before: int) -> list[Call]:
        if not_before <= self._raised:
            return []
        # Known to have been reached only if this unit commits; another one would raise it to the same.
        return [(_RAISE_LOCK, (self._raise_lock,)), (_RAISE, (int8(not_before),))]

    def position_calls(self, epoch: int, forms: list[LogForm], changed: Changes) -> list[Call]:
        """Where tables are distributed: what takes positions for the rows of a unit, if there are several."""
        count = max(len(forms), sum([any(delta) for delta in changed.values()]))
        return [*self._raise_calls(forms), citus_log.take_positions(epoch, count)] if count > 1 else []

    def placed_calls(
        self, number: int, xid: str, first: int, forms: list[LogForm], changed: Changes, place: int
    ) -> list[Call]:
        """The last statements of a unit with several rows, after `position_calls`, which has returned xid and first."""
        changes = [(counters, delta) for counters, delta in changed.items() if any(delta)]
        count = max(len(forms), len(changes))
        places = [counters.place for counters, _ in changes] + [place] * (count - len(changes))
        changes += [(_NO_STORE, [0, 0])] * (count - len(changes))
        forms = [_NO_FORM] * (count - len(forms)) + forms
        calls: list[Call] = []
        for of_place, numbers in citus_log.by_place(places):
            some = [(changes[at][0].store, changes[at][1][0], changes[at][1][1]) for at in numbers]
            rows = self._rows(number, 0, len(numbers), 0, [forms[at] for at in numbers], some)[3:]
            positions = [first + at for at in numbers]
            calls.append(citus_log.append_some(of_place, xid, self._token(number), positions, rows))
        return calls

    def raise_epoch(self) -> list[Call]:
        """What has to come before a change of the catalog, in the same unit. Its commit calls `note_raise`."""
        calls: list[Call] = [(_RAISE_EPOCH, (int8(self.epoch),))]
        if self.channel:
            calls = [PATIENT, *calls, (NOTIFY, (text(self.channel), b""))]
        return calls

    def close_epoch(self, epoch: int) -> Call:
        """What has to come before the position of a unit that drops or renames collections. epoch: that it makes."""
        return _CLOSE, (int8(epoch),)

    def await_closing(self) -> None:
        """Returns when no version is being made by which something ends. EngineUnavailable."""
        until_s = self._waiter.monotonic_s() + self._pool.timeout_s
        while self._read([(_IS_CLOSING, ())])[0].value():
            try:
                self._pool.write([PATIENT, (_OPEN_AGAIN, ())])
            except StoreFailure as failure:
                # Its commit takes long, as it does while no standby answers.
                if failure.kind != LOCKED or self._waiter.monotonic_s() >= until_s:
                    raise StoreUnreachable(f"a change of the catalog is under way: {failure.message}") from failure

    def note_raise(self) -> None:
        self.epoch += 1

    def _rows(
        self, number: int, epoch: int, count: int, kept: int, forms: list[LogForm], changes: list[tuple[int, int, int]]
    ) -> tuple[Parameter, ...]:
        """The parameters of several rows. The last form is in the last one, whose position is that of the unit. kept:
        for how many more rows positions are taken."""
        changes = changes + [(0, 0, 0)] * (count - len(changes))
        forms = [_NO_FORM] * (count - len(forms)) + forms
        executed = [form.executed or _NO_STATEMENT for form in forms]
        return (
            int8(epoch),
            int8(self._token(number)),
            int4(count + kept),
            int4_array([change[0] for change in changes]),
            int4_array([change[1] for change in changes]),
            int8_array([change[2] for change in changes]),
            bytea_array([one.lsid or None for one in executed]),
            int8_array([one.txn_number for one in executed]),
            int4_array([one.statement for one in executed]),
            bytea_array([form.form for form in forms]),
        )

    def _token(self, number: int) -> int:
        return (self._node << 32) + number

    def note_commit(self, position: int, forms: list[LogForm], kept: int = 0, kept_bytes: int = 0) -> None:
        """Called after each commit of this server. kept: how many forms a transaction has kept, and their bytes."""
        if position > self.position:
            self.position = position
        if position > self._raised:
            self._raised = position
        for form in forms:
            self.size_bytes += len(form.form)
        self.size_bytes += kept_bytes
        self.count += len(forms) + kept
        if forms:
            self.first_position = self.first_position or position

    def find_commit(self, number: int, after: int) -> int:
        """The position of a unit of this server for whose commit there was no answer; 0 if it was not committed.

        after: a position before it. Its session, which may still commit, is ended first: if that was waiting for a
        standby, PostgreSQL shows to all what no standby has. StoreFailure.
        """
        until_s = self._await_orphans()
        rows = self._pool.read([(_FIND_TOKEN, (int8(after), int8(self._token(number))))], until_s)[0].rows()
        if not rows:
            return 0
        self._pool.write([(_NOTHING, ())], until_s)
        return int(rows[0][0])

    def _await_orphans(self) -> float:
        """Ends sessions of this server that nobody uses, and waits until none is left that may commit. StoreFailure.

        Returns until when other calls may be repeated.
        """
        waiter = self._waiter
        until_s = waiter.monotonic_s() + _RESOLVE_S
        names = text(self.session), text(self._transactions)
        while True:
            found = self._pool.read([(_SESSIONS, names)], until_s)[0].rows()
            # Of the present, not of when it was asked: those that others have made meanwhile are not to be ended.
            live = {number for pool in (self._pool, *self.more_pools) for number in pool.backend_ids()}
            orphans = [number for (number,) in found if number not in live]
            if orphans:
                self._pool.read([(_END, (*names, int4_array(orphans)))], until_s)
            elif not self._has_orphans(until_s):
                return until_s
            waiter.sleep(_RESOLVE_EVERY_S)

    def _has_orphans(self, until_s: float) -> bool:
        """Whether a worker may still commit for a session that has ended. What is prepared is completed first.
        StoreFailure."""
        if not self.is_distributed or not self._pool.read([(citus_log.ORPHANS, ())], until_s)[0].value():
            return False
        try:
            self._pool.read([(citus_log.COMPLETE, ())], until_s)
        except StoreFailure as failure:
            if failure.kind != FORBIDDEN:  # it is left to Citus
                raise
        return True

    # Reading

    def refresh(self) -> None:
        running = (citus_log.RUNNING if self.is_distributed else _RUNNING, (text(self._units_of),))
        self._asked += 1
        number = self._asked
        awaits = bool(self._running)
        calls: list[Call] = [running, SYNC] if awaits else []
        answers = self._read([*calls, (_LAST_ROW, ()), SYNC, running])
        last: int = answers[-2].value()
        if last > self.position:
            self.position = last
        if number <= self._answered:
            return  # who has asked later was faster: for its units this answer is too old
        self._answered = number
        if awaits and self._running:
            self._running &= {xid for (xid,) in answers[0].rows()}
        self._awaited &= self.committing
        if self._running or self._awaited:
            return
        self.horizon = max(self.horizon, self._next_horizon)
        if last > self.horizon:
            self._next_horizon = last
            self._running = {xid for (xid,) in answers[-1].rows()}
            self._awaited = self.committing.copy()
            if not self._running and not self._awaited:
                self.horizon = last

    def reach_present(self) -> None:
        self.refresh()
        waiter = self._waiter
        present = self.position
        until_s = waiter.monotonic_s() + _REACH_S
        while self.horizon < present and waiter.monotonic_s() < until_s:
            waiter.sleep(_REACH_EVERY_S)
            self.refresh()

    def take_position(self, not_before: int = 0) -> int:
        position: int = self._read([*self._raise_to(not_before), (_TAKE_POSITION, ())])[-1].value()
        return position

    def read(self, begin: int, end: int, limit: int, max_bytes: int, forward: bool = True) -> list[tuple[int, bytes]]:
        calls: list[Call] = [(_READ[forward], (int8(begin), int8(end), int8(limit), int8(max_bytes)))]
        if not self.channel:
            return self._read(calls)[0].rows()
        # Others may have dropped forms: who reads knows it by then.
        found, facts = self._read([*calls, (_FACTS, ())])
        self.floor = max(self.floor, facts.rows()[0][0])
        return found.rows()

    def read_statements(self, begin: int, limit: int) -> list[tuple[int, bytes]]:
        return self._read([(_STATEMENTS, (int8(begin), int8(limit)))])[0].rows()

    def find_statements(self, lsid: bytes, txn_number: int) -> list[tuple[int, bytes]]:
        return self._read([(_STATEMENTS_OF, (lsid, int8(txn_number)))])[0].rows()

    def await_durability(self) -> None:
        self._write_all([(_NOTHING, ())])

    def _read(self, calls: list[Call]) -> list[Answer]:
        try:
            return self._pool.read(calls)
        except StoreFailure as failure:
            raise self._error_of(failure) from failure

    def _write(self, call: Call) -> Answer:
        return self._write_all([PATIENT, call] if self.channel else [call])[-1]

    def _write_all(self, calls: list[Call]) -> list[Answer]:
        try:
            return self._pool.write(calls)
        except StoreFailure as failure:
            raise self._error_of(failure) from failure

    # Keeping it short

    def count_up(self) -> None:
        """Adds what the rows up to the horizon say of counts to the totals."""
        horizon = self.horizon
        if horizon > self._counted:
            if self.is_distributed:
                part = (int8(self._counted), int8(horizon))
                changes, forms = self._read([(citus_log.CHANGED, part), (citus_log.FORMS, part)])
                self._write_all(citus_log.count_up(self._counted, horizon, changes, forms))
                self._counted = horizon
                return
            self._write((_COUNT_UP, (int8(horizon),)))
            self._counted = max(self._counted, horizon)

    def trim(self, through: int, limit: int) -> int:
        self.count_up()
        values = (int8(min(through, self.horizon, self._counted)), int8(limit))
        if self.is_distributed:
            rows, count, size, last = self._trim_distributed(values)
        else:
            [(rows, count, size, last)] = self._write((_TRIM, values)).rows()
        self.size_bytes -= size
        self.count -= count
        if last > self.floor:
            self.floor = last
            self.first_position = last + 1
        return int(rows)

    def _trim_distributed(self, values: tuple[bytes, bytes]) -> tuple[int, int, int, int]:
        """What the statement for one machine returns: rows, forms and their bytes that were dropped, and the last
        position of these. Nothing else changes rows below the horizon."""
        oldest: list[tuple[int, int]] = self._read([(citus_log.OLDEST, values)])[0].rows()
        if not oldest:
            return 0, 0, 0, 0
        following = self._read([(citus_log.FOLLOWING, (int8(oldest[-1][0]),))])[0].rows()
        rows = citus_log.whole_units(oldest, following[0][0] if following else -1)
        if not rows:
            return 0, 0, 0, 0
        last = rows[-1][0]
        [(count, size)] = self._read([(citus_log.FORMS, (int8(0), int8(last)))])[0].rows()
        self._write_all(citus_log.drop(last, count, size))
        return len(rows), count, size, last
