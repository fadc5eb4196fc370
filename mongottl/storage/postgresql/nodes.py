"""The places of servers in the table `nodes`, and the advisory lock by which a server wants no other beside it.

    lock    held by a session that does nothing else, so that PostgreSQL gives it up as soon as the server has died:
            alone, or shared with other servers
    row     the server's number, the version of the catalog that it knows, and until when others take it for living: by
            PostgreSQL's clock, since those of machines differ

Who opens the store needs the lock. It waits for a server that was killed: until PostgreSQL has noticed that, or until
the server shows that it lives by renewing its row; at most PATIENCE_S.

The number is one of `meta.epoch`, which each opening raises. So nobody ever gets it again, and units that have it in
their tokens are never taken for those of others.

Where the lock is shared, the session with it listens for changes of the catalog, and for messages. A server that knows
a change says so in its row only when no unit of it is open that was made from an older catalog: who waits for all rows
waits for these units, too. Those of a server that is taken for dead are ended with their sessions.
"""

import os
import re
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, final

from mongottl.clock import awake_or_not_s
from mongottl.document.utf8 import decode_text, encode_text
from mongottl.storage.errors import CatalogChanged, StorageError, StoreUnreachable
from mongottl.storage.nodes import LEASE_S, MAX_MESSAGE_BYTES, RENEW_S, Node, NodeFacts, StoreNodes
from mongottl.storage.postgresql.connection import Connection
from mongottl.storage.postgresql.failures import BUSY, LOCKED, NO_TABLES, REFUSED, UNEXPECTED, StoreFailure
from mongottl.storage.postgresql.log import CLOSE_NOTHING, NOTIFY, PostgresLog
from mongottl.storage.postgresql.pool import ConnectionPool
from mongottl.storage.postgresql.schema import lock_number
from mongottl.storage.postgresql.statements import (
    BOOL,
    BYTEA_ARRAY,
    INT4,
    INT8,
    OF_DATABASE,
    PATIENT,
    TEXT,
    Answer,
    Call,
    Statement,
    boolean,
    bytea_array,
    int4,
    int8,
    text,
)
from mongottl.storage.postgresql.units import UNKNOWN_EPOCH, PostgresUnit, PostgresUnits, engine_error
from mongottl.storage.waiting import Turn, Waiter

# How long an opening waits for the place of another server, in seconds: longer than a lease.
PATIENCE_S: Final = LEASE_S + 1.0
# Seconds between two looks at it.
LOOK_EVERY_S: Final = 0.1
_LEASE_MS: Final = round(LEASE_S * 1000)
# By how much sooner a server takes its own place for lost than others do, in seconds.
_MARGIN_S: Final = 0.25
# Of how many renewals it is remembered how many nodes there were: of two seconds at least.
_COUNTED: Final = 4
# Seconds between two looks whether other servers know a change.
_FIRST_PAUSE_S: Final = 0.002
_LONGEST_PAUSE_S: Final = 0.005
# After how many seconds without an answer to a renewal another host is looked for.
_SILENT_S: Final = 0.5
# How long who holds off others of its server waits for those with lower numbers, in seconds.
_YIELD_S: Final = 0.05

_NOW_MS: Final = "(extract(epoch FROM clock_timestamp()) * 1000)::int8"
_LOCKS: Final = {
    shared: Statement(f"lock_{shared}", f"SELECT pg_try_advisory_lock{'_shared' if shared else ''}($1)", (INT8,))
    for shared in (False, True)
}
_ALL: Final = Statement(
    "nodes",
    "SELECT nodes.node, topology, address, pid, shares, nodes.epoch, nodes.epoch = meta.epoch, since_ms,"
    f" nodes.until_ms, nodes.until_ms - {_NOW_MS}, coalesce(duties.until_ms > {_NOW_MS}, false), keys"
    " FROM nodes CROSS JOIN meta LEFT JOIN leases duties ON duties.name = 'duties' AND duties.node = nodes.node"
    " ORDER BY nodes.node",
)
# Where it is not shared, nobody else can be there. Those who share it may live again: `_clear_dead`.
_CLEAR: Final = Statement("clear_nodes", "DELETE FROM nodes WHERE NOT $1 OR NOT shares", (BOOL,))
_COUNT: Final = Statement("count_nodes", f"SELECT count(*) FROM nodes WHERE until_ms > {_NOW_MS}")
_VALUES: Final = f"{_NOW_MS} + {_LEASE_MS}, {_NOW_MS}, $1, $2, $3, $4, $5, $6"
_COLUMNS: Final = "(node, epoch, until_ms, since_ms, topology, address, pid, shares, session, keys)"
_ENTER: Final = Statement(
    "enter_node",
    "WITH m AS (UPDATE meta SET epoch = epoch + 1 RETURNING epoch)"
    f" INSERT INTO nodes {_COLUMNS} SELECT epoch, epoch, {_VALUES} FROM m RETURNING node",
    (TEXT, TEXT, INT4, BOOL, TEXT, TEXT),
)
# Once more, after others have cleared it away: nothing that it knows is sure.
_REENTER: Final = Statement(
    "reenter_node",
    f"INSERT INTO nodes {_COLUMNS} VALUES ($7, 0, {_VALUES}) ON CONFLICT (node) DO NOTHING",
    (TEXT, TEXT, INT4, BOOL, TEXT, TEXT, INT4),
)
_RENEW: Final = Statement(
    "renew_node",
    f"UPDATE nodes SET until_ms = {_NOW_MS} + {_LEASE_MS}, address = $2, epoch = $3 WHERE node = $1"
    " RETURNING (SELECT epoch FROM meta)",
    (INT4, TEXT, INT8),
)
# Where it is not shared, nobody counts on a renewal after a failure of the machine.
_UNSYNCED: Final = Statement("unsynced_node", "SELECT set_config('synchronous_commit', 'off', true)")
# Takes over what one server does for all, or goes on with it.
_TAKE_DUTIES: Final = Statement(
    "take_duties",
    f"INSERT INTO leases (name, node, until_ms) VALUES ('duties', $1, {_NOW_MS} + {_LEASE_MS})"
    " ON CONFLICT (name) DO UPDATE SET node = excluded.node, until_ms = excluded.until_ms"
    f" WHERE leases.node = excluded.node OR leases.until_ms <= {_NOW_MS} RETURNING node",
    (INT4,),
)
_LEAVE_DUTIES: Final = Statement("leave_duties", "DELETE FROM leases WHERE node = $1", (INT4,))
_HAS_PLACE: Final = Statement("has_place", "SELECT count(*) FROM nodes WHERE node = $1", (INT4,))
_LEAVE: Final = Statement("leave_node", "DELETE FROM nodes WHERE node = $1", (INT4,))
# Who does not know a version of the catalog: whether it is taken for living, and until when it has its place.
_LATE: Final = Statement(
    "late_nodes",
    f"SELECT node, until_ms > {_NOW_MS}, until_ms FROM nodes WHERE node <> $1 AND epoch < $2 ORDER BY node",
    (INT4, INT8),
)
# If it has not been renewed since it was found to be over. Raises the version of the catalog, as a transaction may have
# done in vain that the server has committed at last.
_CLEAR_ONE: Final = Statement(
    "clear_node",
    "WITH d AS (DELETE FROM nodes WHERE node = $1 AND until_ms = $2 RETURNING 1)"
    " UPDATE meta SET epoch = epoch + 1 WHERE EXISTS (SELECT FROM d)",
    (INT4, INT8),
)
# Deleted entries that all servers know to be deleted.
_FORGET_GONE: Final = Statement(
    "forget_gone", "DELETE FROM catalog WHERE state = 'gone' AND epoch <= (SELECT min(epoch) FROM nodes)"
)
_RAISE_FOR_UNDATED: Final = Statement(
    "raise_for_undated",
    "UPDATE meta SET epoch = epoch + 1 WHERE EXISTS (SELECT FROM catalog WHERE epoch = $1)"
    " OR EXISTS (SELECT FROM stores WHERE epoch = $1) RETURNING epoch",
    (INT8,),
)
# Gives what transactions have changed a version of the catalog, once that is much to be read again and again.
_DATE_CHANGES: Final = Statement(
    "date_changes",
    "WITH m AS (UPDATE meta SET epoch = epoch + 1 WHERE (SELECT count(*) FROM catalog WHERE epoch = $1) +"
    " (SELECT count(*) FROM stores WHERE epoch = $1) >= $2 RETURNING epoch),"
    " s AS (UPDATE stores SET epoch = m.epoch FROM m WHERE stores.epoch = $1)"
    " UPDATE catalog SET epoch = m.epoch FROM m WHERE catalog.epoch = $1",
    (INT8, INT8),
)
_MOST_UNDATED: Final = 64
# How the word begins that a message was obeyed; then comes who has sent it.
_DONE: Final = "="
# The sender's number, that of the message, and its content, or that word.
_MESSAGE: Final = re.compile(r"([0-9]{1,10}) ([0-9]{1,10}) (\S+)", re.ASCII)
# Above each version of the catalog.
_EACH_EPOCH: Final = (1 << 63) - 1
_LEFT_OF: Final = Statement(
    "left_of",
    "SELECT ident FROM stores WHERE ident = ANY ($1) AND NOT dropped AND node NOT IN (SELECT node FROM nodes)",
    (BYTEA_ARRAY,),
)
_SESSIONS: Final = f"{OF_DATABASE} AND (starts_with(application_name, $1) OR starts_with(application_name, $2))"
_END_OTHERS: Final = Statement(
    "end_others",
    f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {_SESSIONS}"
    " AND split_part(application_name, ' ', 4) <> ALL (ARRAY(SELECT session FROM nodes))",
    (TEXT, TEXT),
)
_END_THESE: Final = Statement(
    "end_these",
    f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {_SESSIONS}"
    " AND split_part(application_name, ' ', 4) = (SELECT session FROM nodes WHERE node = $3 AND until_ms = $4)",
    (TEXT, TEXT, INT4, INT8),
)


def _error_of(failure: StoreFailure) -> StorageError:
    """Not a conflict where something was locked for too long: that would say that nothing was done, and a driver begins
    a transaction anew for it, though it may have been committed."""
    return StoreUnreachable(failure.message) if failure.kind == LOCKED else engine_error(failure)


@final
class _Sent:
    """A message. done_by: the numbers of those that have done what it asks for."""

    def __init__(self, new_turn: Callable[[], Turn]) -> None:
        self._new_turn: Final = new_turn
        self._turn: Turn | None = None
        self.done_by: Final[set[int]] = set()

    def turn(self) -> Turn:
        """Is notified when another one has."""
        self._turn = self._new_turn()
        return self._turn

    def note(self, node: int) -> None:
        self.done_by.add(node)
        if self._turn is not None:
            self._turn.notify()


@final
class PostgresNodes(StoreNodes):
    """facts: of this server. units: the engine's. connect: makes the session for the lock. StoreFailure. sessions: how
    the names of sessions of all servers begin, in which units and transactions write. session: what follows there for
    this server. reload: reads the catalog anew. EngineUnavailable."""

    def __init__(
        self,
        schema: str,
        facts: NodeFacts,
        units: PostgresUnits,
        waiter: Waiter,
        connect: Callable[[], Connection],
        sessions: tuple[str, str],
        session: str,
        reload: Callable[[bool], None],
    ) -> None:
        super().__init__()
        self.is_shared = facts.may_share
        self.shares = 0 if facts.may_share else 1
        self._schema: Final = schema
        self._facts: Final = facts
        self._units: Final = units
        self._pool: Final[ConnectionPool] = units.pool
        self._log: Final[PostgresLog] = units.log
        self._waiter: Final = waiter
        self._connect: Final = connect
        self._listen: Final = Statement("listen", f"LISTEN {self._log.channel}")
        self._sessions: Final = (text(sessions[0]), text(sessions[1]))
        self._session: Final = session
        self._reload: Final = reload
        self._lock_number: Final = int8(lock_number(f"mongottl {schema}"))
        self._address = ""
        # The session with the lock, which listens.
        self._connection: Connection | None = None
        self._is_closed = False
        # Whether somebody attends to the place, who performs the duties: not while only `keep_place` is called.
        self._may_have_duties = False
        # Where the store has several hosts: looks whether another one takes writes.
        self.look_elsewhere_by: Callable[[], None] | None = None
        # When the renewal was begun that is under way, 0 if none is.
        self._asked_s = 0.0
        # Until when the place is valid, by this clock: others take it for lost also while the machine is suspended.
        self.lease_clock_s: Callable[[], float] = awake_or_not_s
        self._until_s = 0.0
        # How long a renewal may take, in seconds: longer after each that has failed, since connecting may be slow.
        self._patience_s = RENEW_S
        # Of each operation between `begin` and `end`: the latest version of the catalog that it has made and others may
        # not know, 0 if there is none; and those that have committed something.
        self._made: dict[object, int] = {}
        self._committed: set[object] = set()
        # How often the place was taken again, and at which of these times each operation has begun.
        self._entries = 0
        self._begun: dict[object, int] = {}
        # Messages that are waited for, by number.
        self._sent: dict[int, _Sent] = {}
        self._last_sent = 0
        # How many nodes there were at the latest renewals; of the first one, PostgreSQL's time; and from when on, by
        # the clock of the place, this one has a part of what all have together. None: it is not known yet.
        self._counts: deque[int] = deque(maxlen=_COUNTED)
        self._entered_ms = 0
        self._divides_s: float | None = None
        if self.is_shared:
            units.on_commit = self._note_commit

    # Opening

    def open(self, prepare: Callable[[Connection], object]) -> None:
        """Takes the lock, and then a place. prepare: makes the tables. StoreFailure, BUSY in one line if another server
        is in the way."""
        connection = self._connect()
        try:
            self._await_lock(connection)
            prepare(connection)
            self._enter(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def _await_lock(self, connection: Connection) -> None:
        """Takes the lock by a session that keeps it."""
        waiter = self._waiter
        until_s = waiter.monotonic_s() + PATIENCE_S
        leases: dict[int, int] | None = None
        is_locked = False
        while True:
            is_locked = is_locked or self._try_lock(connection)
            rows = _rows(connection)
            if is_locked and self.is_shared:
                self._require_same_keys(rows)
            if is_locked:
                # Of a server that shares the lock, the session may have been lost alone.
                rows = [] if self.is_shared else [row for row in rows if _node(row).is_live and row[4]]
                if not rows:
                    return
            found = {row[0]: row[8] for row in rows}
            is_renewed = leases is not None and any(leases.get(number) != until for number, until in found.items())
            if is_renewed or waiter.monotonic_s() >= until_s:
                raise self._refusal([_node(row) for row in rows])
            leases = found
            waiter.sleep(LOOK_EVERY_S)

    def _require_same_keys(self, rows: "list[_Row]") -> None:
        """StoreFailure, REFUSED, if keys that this server makes cannot be compared with those of others that live."""
        keys = self._facts.keys
        for row in rows:
            if _node(row).is_live and row[11] != keys:
                raise StoreFailure(
                    REFUSED,
                    f"the schema {self._schema} is in use by a server with another version of ICU, {row[11] or 'none'}"
                    f" instead of {keys or 'none'}: {_shown(_node(row))}",
                )

    def _try_lock(self, connection: Connection) -> bool:
        """Whether a session has the lock from now on, and listens where it is shared. StoreFailure."""
        if not connection.run_one((_LOCKS[self.is_shared], (self._lock_number,))).value():
            return False
        if self.is_shared:
            connection.run_one((self._listen, ()))
        return True

    def _refusal(self, others: list[Node]) -> StoreFailure:
        shown = "; ".join([_shown(node) for node in others])
        return StoreFailure(
            BUSY, f"the schema {self._schema} is in use by another server{f': {shown}' if shown else ''}"
        )

    def _enter(self, connection: Connection) -> None:
        """Takes a place. Units of servers that have none are refused from then
        on; those that are under way end before it returns."""
        sent_s = self.lease_clock_s()
        enter = (_ENTER, self._values())
        calls = [(_CLEAR, (boolean(self.is_shared),)), (_COUNT, ()), enter, (CLOSE_NOTHING, ())]
        [_, others, entered, _] = connection.run(calls, must_end=True)
        self.number = int(entered.value())
        self.found_others = others.value() > 0
        while connection.run_one((_END_OTHERS, self._sessions)).changed:
            self._waiter.sleep(LOOK_EVERY_S)
        self._until_s = sent_s + LEASE_S - _MARGIN_S

    def _values(self) -> tuple[bytes, ...]:
        facts = self._facts
        return (
            text(facts.topology),
            text(self._address),
            int4(os.getpid()),
            boolean(facts.may_share),
            text(self._session),
            text(facts.keys),
        )

    def _look_after_lock(self) -> None:
        """Has a new session get the lock if that of the old one was lost. Units go on meanwhile: each is refused once
        another server has opened the database that wants no other beside it. Does not wait."""
        connection = self._connection
        if connection is not None and not connection.is_alive:
            self._connection = None
            connection.close()
            self._waiter.run_aside(self._lock_again)

    def _lock_again(self) -> None:
        while not self._is_closed:
            with suppress(StoreFailure):
                connection = self._connect()
                try:
                    if not self.is_shared and not connection.run_one((_HAS_PLACE, (int4(self.number),))).value():
                        self._units.refuse_for_good()
                        connection.close()
                        return
                    if self._try_lock(connection):
                        self._connection = connection
                        return
                    connection.close()
                except BaseException:
                    connection.close()
                    raise
            self._waiter.sleep(LOOK_EVERY_S)

    # Later

    def announce(self, address: str) -> None:
        self._address = address

    def attend(self) -> None:
        self._may_have_duties = self.is_shared
        self._attend(RENEW_S)

    def keep_place(self) -> None:
        if self.lease_clock_s() >= self._until_s - LEASE_S + _MARGIN_S + RENEW_S:
            self._attend(0.0)

    def _attend(self, longest_s: float) -> None:
        """longest_s: how long it waits for what others change."""
        self._look_after_lock()
        waiter = self._waiter
        self._asked_s = waiter.monotonic_s()
        try:
            self._renew()
            self._patience_s = RENEW_S
        except (StoreFailure, StorageError):
            self._patience_s = min(2 * self._patience_s, max(RENEW_S, self._pool.timeout_s))
        finally:
            self._asked_s = 0.0
        connection = self._connection
        if not self.is_shared:
            waiter.sleep(longest_s)
        else:
            heard = None if connection is None else connection.hear(waiter.monotonic_s() + longest_s)
            if heard is None:
                waiter.sleep(min(LOOK_EVERY_S, longest_s))
            else:
                self._deliver(heard)

    @property
    def is_unheard(self) -> bool:
        asked_s = self._asked_s
        if self.look_elsewhere_by is None or not asked_s:
            return False
        return self._waiter.monotonic_s() - asked_s >= _SILENT_S

    def look_elsewhere(self) -> None:
        if self.look_elsewhere_by is not None:
            self.look_elsewhere_by()

    def leave(self, latest: bytes) -> None:
        """Ends the session with the lock if it was not made by the latest attempt."""
        if self._connection is not None and self._connection.attempt != latest:
            self._connection.cut()

    def _deliver(self, heard: list[str]) -> None:
        """Has done what others have sent. Notifications without a text are of changes of the catalog; any client of the
        database may send some, too."""
        for each in heard:
            message = _MESSAGE.fullmatch(each)
            if message is None or int(message[1]) == self.number:
                continue
            sender, number, content = int(message[1]), int(message[2]), message[3]
            if content.startswith(_DONE):
                sent = self._sent.get(number) if content == f"{_DONE}{self.number}" else None
                if sent is not None:
                    sent.note(sender)
            else:
                self._waiter.run_aside(partial(self._obey, sender, number, content))

    def _obey(self, sender: int, number: int, content: str) -> None:
        with suppress(Exception):  # then it is asked for again: what was not done is not said to be
            self.on_message(b64decode(content))
            self._pool.write([self._notification(number, f"{_DONE}{sender}")])

    def _notification(self, number: int, content: str) -> Call:
        """Sends a message with a number, or says that one was obeyed."""
        return NOTIFY, (text(self._log.channel), text(f"{self.number} {number} {content}"))

    def send(self, message: bytes) -> bool:
        if not self.is_shared:
            return True
        assert len(message) <= MAX_MESSAGE_BYTES
        waiter = self._waiter
        until_s = waiter.monotonic_s() + PATIENCE_S
        self._last_sent += 1
        number = self._last_sent
        sent = self._sent[number] = _Sent(waiter.new_turn)
        call = self._notification(number, decode_text(b64encode(message)))
        try:
            while True:
                others = self._others(self._pool.write([call, (_ALL, ())])[-1])
                if not all(is_live or each in sent.done_by for each, is_live in others.items()):
                    # It may live again at any moment, and go on with what it was doing.
                    self._clear_dead(_EACH_EPOCH)
                    others = self._others(self._pool.read([(_ALL, ())])[0])
                now_s = waiter.monotonic_s()
                again_s = min(now_s + RENEW_S, until_s)  # then it is sent once more, to those that were cut off
                while not others.keys() <= sent.done_by and now_s < again_s:
                    waiter.wait_turn(sent.turn(), again_s)
                    now_s = waiter.monotonic_s()
                if others.keys() <= sent.done_by:
                    return True
                if now_s >= until_s:
                    return False
        except StoreFailure as failure:
            raise _error_of(failure) from failure
        finally:
            del self._sent[number]

    def _others(self, places: Answer) -> dict[int, bool]:
        """The other servers that have one of all places: whether they are taken for living."""
        rows: list[_Row] = places.rows()
        return {row[0]: _node(row).is_live for row in rows if row[4] and row[0] != self.number}

    def _renew(self) -> None:
        """StoreFailure."""
        sent_s = self.lease_clock_s()
        said = self._log.epoch  # a unit may read a newer catalog meanwhile, which the row does not say yet
        renewed = self._send_renewal()
        if not renewed.changed:
            if not self.is_shared:
                self._units.refuse_for_good()
                return
            if not self._enter_again():
                return
            # It may have missed what has been deleted meanwhile.
            self._reload(True)
        elif renewed.value() == said:
            self._until_s = max(self._until_s, sent_s + LEASE_S - _MARGIN_S)
            return
        elif not self.is_shared:
            return
        else:
            # An older version than this server's is that of a standby that lacks changes.
            self._reload(renewed.value() < said)
        # Only now others may count on this server's knowing it, and clients on what it says.
        sent_s = self.lease_clock_s()
        if self._send_renewal().changed:
            self._until_s = max(self._until_s, sent_s + LEASE_S - _MARGIN_S)

    def _send_renewal(self) -> Answer:
        until_s = self._waiter.monotonic_s() + self._patience_s
        renewal: Call = (_RENEW, (int4(self.number), text(self._address), int8(self._log.epoch)))
        calls: list[Call] = [PATIENT if self.is_shared else (_UNSYNCED, ())]
        if self._may_have_duties:
            calls.append((_TAKE_DUTIES, (int4(self.number),)))
        [*others, renewed, places] = self._pool.write([*calls, renewal, (_ALL, ())], until_s)
        has_duties = self._may_have_duties and others[-1].changed > 0
        self.has_left |= has_duties and not self.has_duties
        self.has_duties = has_duties
        rows: list[_Row] = places.rows()
        known = {node.number for node in self.latest}
        self.latest = [_node(row) for row in rows]
        # Of one that is gone, another server may have cleared the place away.
        self.has_left |= has_duties and not known <= {node.number for node in self.latest}
        if self.is_shared:
            self.shares = self._divide(rows)
        return renewed

    def _divide(self, rows: "list[_Row]") -> int:
        """Into how many parts a budget for each second is divided: the most nodes that there were lately. A new one has
        none of it until all others have seen its place, and the second is over in which they had."""
        self._counts.append(len(rows))
        now_s = self.lease_clock_s()
        if self._divides_s is None:
            ends = {row[0]: row[8] for row in rows}
            if not self._entered_ms:
                self._entered_ms = ends.get(self.number, 0) - _LEASE_MS
            if all(end - _LEASE_MS > self._entered_ms for number, end in ends.items() if number != self.number):
                self._divides_s = now_s + (1.0 if len(rows) > 1 else 0.0)
        return 0 if self._divides_s is None or now_s < self._divides_s else max(self._counts)

    def _enter_again(self) -> bool:
        """Takes the place again that others have cleared away. Only by the session that shares the lock: without it
        there may be a server that wants no other beside it."""
        connection = self._connection
        if connection is None:
            return False
        self._entries += 1  # what operations have read meanwhile may be of what others have dropped
        connection.run_one((_REENTER, (*self._values(), int4(self.number))))
        self._entered_ms = 0
        self._divides_s = None
        return True

    def all(self) -> list[Node]:
        try:
            return [_node(row) for row in self._pool.read([(_ALL, ())])[0].rows()]
        except StoreFailure as failure:
            raise _error_of(failure) from failure

    def close(self, timeout_s: float) -> None:
        """Gives the place back, if that is done within a time, and the lock."""
        self._is_closed = True
        with suppress(StoreFailure):
            number = (int4(self.number),)
            self._pool.write([(_LEAVE_DUTIES, number), (_LEAVE, number)], self._waiter.monotonic_s() + timeout_s)
        if self._connection is not None:
            self._connection.close()

    # Where it is shared

    def _note_commit(self, unit: PostgresUnit) -> None:
        made = self._made.get(unit.owner)
        if made is not None:
            self._committed.add(unit.owner)
            if unit.changes_catalog:
                # Others may have raised it before it was raised again, and know nothing of this change.
                self._made[unit.owner] = max(self._log.epoch, self._units.raised_again)

    def clear_up(self) -> None:
        try:
            if self._clear_dead(_EACH_EPOCH):
                self.has_left = True
            self._pool.write([PATIENT, (_FORGET_GONE, ()), (_DATE_CHANGES, (int8(UNKNOWN_EPOCH), int8(_MOST_UNDATED)))])
        except StoreFailure as failure:
            raise _error_of(failure) from failure
        self._reload(False)

    def left_of(self, idents: list[str]) -> list[str]:
        named = bytea_array([encode_text(ident) for ident in idents])
        try:
            return [decode_text(name) for (name,) in self._pool.read([(_LEFT_OF, (named,))])[0].rows()]
        except StoreFailure as failure:
            raise _error_of(failure) from failure

    def catch_up(self) -> None:
        self._reload(False)
        self.found_others = len(self.all()) > 1

    def begin(self, after_change: bool = False) -> None:
        waiter = self._waiter
        until_s = waiter.monotonic_s() + self._pool.timeout_s
        while not self.has_place:
            if waiter.monotonic_s() >= until_s:
                raise StoreUnreachable("this server has lost its place among those of its store")
            waiter.sleep(_LONGEST_PAUSE_S)
        if after_change:
            self._log.await_closing()
        if self._units.is_stale:
            self._reload(False)
        owner = self._units.turns.present()
        self._made[owner] = 0
        self._begun[owner] = self._entries
        self._committed.discard(owner)

    @property
    def has_place(self) -> bool:
        """Whether others take this server for living."""
        return self.lease_clock_s() < self._until_s

    @property
    def has_kept_place(self) -> bool:
        return self.has_place and self._entries == 0

    @property
    def is_valid(self) -> bool:
        return self.has_place and self._begun.get(self._units.turns.present(), self._entries) == self._entries

    @property
    def has_committed(self) -> bool:
        return self._units.turns.present() in self._committed

    def disregard_commits(self) -> None:
        self._committed.discard(self._units.turns.present())

    def spread(self) -> None:
        owner = self._units.turns.present()
        try:
            raise_epoch = (_RAISE_FOR_UNDATED, (int8(UNKNOWN_EPOCH),))
            notify = (NOTIFY, (text(self._log.channel), b""))
            [_, raised, _] = self._pool.write([PATIENT, raise_epoch, notify])
        except StoreFailure as failure:
            raise _error_of(failure) from failure
        if raised.changed:
            self._reload(False)
            self._made[owner] = raised.value()
            self.end()

    def end(self) -> None:
        try:
            self.settle()
        finally:
            owner = self._units.turns.present()
            self._made.pop(owner, None)
            self._begun.pop(owner, None)
            self._committed.discard(owner)

    def settle(self, is_held: bool = False) -> None:
        owner = self._units.turns.present()
        epoch = self._made.get(owner, 0)
        if not epoch:
            return
        waiter = self._waiter
        pause_s = _FIRST_PAUSE_S
        yields_s = waiter.monotonic_s() + _YIELD_S
        try:
            while not self._know(epoch):
                if is_held and waiter.monotonic_s() >= yields_s and self._awaits_lower(epoch):
                    raise CatalogChanged("two servers may wait for each other")
                waiter.sleep(pause_s)
                pause_s = _LONGEST_PAUSE_S
        except StoreFailure as failure:
            raise _error_of(failure) from failure
        if self._made.get(owner) == epoch:
            self._made[owner] = 0

    def _awaits_lower(self, epoch: int) -> bool:
        """Whether one with a lower number does not know a version of the catalog. StoreFailure."""
        return any(number < self.number for number, _, _ in self._late(epoch))

    def _know(self, epoch: int) -> bool:
        """Whether all others that live know a version of the catalog. StoreFailure."""
        late = self._late(epoch)
        if any(not is_live for _, is_live, _ in late):
            self._clear_dead(epoch)
        return not late

    def _late(self, epoch: int) -> list[tuple[int, bool, int]]:
        """Number, whether it is taken for living, and until when it has its place, of each that does not know it."""
        return self._pool.read([(_LATE, (int4(self.number), int8(epoch)))])[0].rows()

    def _clear_dead(self, epoch: int) -> bool:
        """Clears away those that do not know a version of the catalog and do not live, after their sessions have ended:
        whether there were any. One that renews its place meanwhile keeps it. StoreFailure."""
        found = False
        for number, is_live, until_ms in self._late(epoch):
            # Who has lost its own place renews that first: else two would end each other's sessions again and again.
            if not is_live and self.has_place:
                found = True
                place = int4(number), int8(until_ms)
                self._end_sessions((_END_THESE, (*self._sessions, *place)))
                self._pool.write([PATIENT, (_CLEAR_ONE, place)])
        if found:
            self._end_sessions((_END_OTHERS, self._sessions))  # those that they have made meanwhile
        return found

    def _end_sessions(self, call: Call) -> None:
        """Ends sessions, and waits until none of them is left."""
        while self._pool.read([call])[0].changed:
            self._waiter.sleep(_LONGEST_PAUSE_S)

    def all_know(self) -> bool:
        """Whether no other server can have an older catalog than this one. StoreFailure."""
        late = self._pool.read([(_LATE, (int4(self.number), int8(self._log.epoch)))])[0]
        return not late.changed


_Row = tuple[int, str, str, int, bool, int, bool, int, int, int, bool, str]


def _rows(connection: Connection) -> list[_Row]:
    """The rows of all places, as `_ALL` has them; none where the tables are not there, or older."""
    try:
        return connection.run_one((_ALL, ())).rows()
    except StoreFailure as failure:
        if failure.kind not in (NO_TABLES, UNEXPECTED):
            raise
        return []


def _node(row: _Row) -> Node:
    number, topology, address, pid, _, version, is_current, since_ms, _, lease_ms, has_duties, _ = row
    return Node(number, topology, address, pid, version, is_current, since_ms, lease_ms, has_duties)


def _shown(node: Node) -> str:
    place = f"{node.address}, process {node.pid}" if node.address else f"process {node.pid}"
    shown = f"{place}, --topology {node.topology}" if node.topology else place
    return shown if node.is_live else f"{shown}, which has not been heard of for {LEASE_S:.0f} seconds"
