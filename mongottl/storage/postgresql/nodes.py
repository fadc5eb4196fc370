"""The places of servers in the table `nodes`, and the advisory lock of a server that wants no other beside it.

    lock    held by a session that does nothing else, so that PostgreSQL gives it up as soon as the server has died
    row     the server's number, and until when others take it for living: by PostgreSQL's clock, since those of
            machines differ

Who opens the store needs the lock. It waits for a server that was killed: until PostgreSQL has noticed that, or until
the server shows that it lives by renewing its row; at most PATIENCE_S.

The number is one of `meta.epoch`, which each opening raises. So nobody ever gets it again, and units that have it in
their tokens are never taken for those of others.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final, final

from mongottl.storage.nodes import LEASE_S, RENEW_S, Node, NodeFacts, StoreNodes
from mongottl.storage.postgresql.connection import Connection
from mongottl.storage.postgresql.failures import BUSY, NO_TABLES, UNEXPECTED, StoreFailure
from mongottl.storage.postgresql.pool import ConnectionPool
from mongottl.storage.postgresql.schema import lock_number
from mongottl.storage.postgresql.statements import INT4, INT8, TEXT, Statement, int4, int8, text
from mongottl.storage.postgresql.units import engine_error
from mongottl.storage.waiting import Waiter

# How long an opening waits for the place of another server, in seconds: longer than a lease.
PATIENCE_S: Final = LEASE_S + 1.0
# Seconds between two looks at it.
LOOK_EVERY_S: Final = 0.1
_LEASE_MS: Final = round(LEASE_S * 1000)

_NOW_MS: Final = "(extract(epoch FROM clock_timestamp()) * 1000)::int8"
_LOCK: Final = Statement("lock", "SELECT pg_try_advisory_lock($1)", (INT8,))
_ALL: Final = Statement(
    "nodes", f"SELECT node, topology, address, pid, until_ms, until_ms > {_NOW_MS} FROM nodes ORDER BY node"
)
_CLEAR: Final = Statement("clear_nodes", "DELETE FROM nodes")
_ENTER: Final = Statement(
    "enter_node",
    "WITH m AS (UPDATE meta SET epoch = epoch + 1 RETURNING epoch)"
    " INSERT INTO nodes (node, epoch, until_ms, topology, address, pid)"
    f" SELECT epoch, epoch, {_NOW_MS} + {_LEASE_MS}, $1, '', $2 FROM m RETURNING node",
    (TEXT, INT4),
)
_RENEW: Final = Statement(
    "renew_node",
    f"UPDATE nodes SET until_ms = {_NOW_MS} + {_LEASE_MS}, address = $2 WHERE node = $1",
    (INT4, TEXT),
)
# Nobody counts on a renewal after a failure of the machine.
_UNSYNCED: Final = Statement("unsynced_node", "SELECT set_config('synchronous_commit', 'off', true)")
_HAS_PLACE: Final = Statement("has_place", "SELECT count(*) FROM nodes WHERE node = $1", (INT4,))
_LEAVE: Final = Statement("leave_node", "DELETE FROM nodes WHERE node = $1", (INT4,))


@final
class PostgresNodes(StoreNodes):
    """facts: of this server. pool: of connections for single statements. on_lost: called when others have taken the
    place of this server, so that it must write nothing any more."""

    def __init__(
        self, schema: str, facts: NodeFacts, pool: ConnectionPool, waiter: Waiter, on_lost: Callable[[], None]
    ) -> None:
        self.number = 0
        self._schema: Final = schema
        self._facts: Final = facts
        self._pool: Final = pool
        self._waiter: Final = waiter
        self._on_lost: Final = on_lost
        self._lock_number: Final = int8(lock_number(f"mongottl {schema}"))
        self._address = ""

    # Opening

    def await_lock(self, connection: Connection) -> None:
        """Takes the lock by a session that keeps it. StoreFailure BUSY in one line if another server has it."""
        waiter = self._waiter
        until_s = waiter.monotonic_s() + PATIENCE_S
        leases: dict[int, int] | None = None
        while not self.try_lock(connection):
            rows = _rows(connection)
            found = {row[0]: row[4] for row in rows}
            is_renewed = leases is not None and any(leases.get(number) != until for number, until in found.items())
            if is_renewed or waiter.monotonic_s() >= until_s:
                raise self._refusal([_node(row) for row in rows])
            leases = found
            waiter.sleep(LOOK_EVERY_S)

    def try_lock(self, connection: Connection) -> bool:
        return bool(connection.run_one((_LOCK, (self._lock_number,))).value())

    def _refusal(self, others: list[Node]) -> StoreFailure:
        shown = "; ".join([_shown(node) for node in others])
        return StoreFailure(
            BUSY, f"the schema {self._schema} is in use by another server{f': {shown}' if shown else ''}"
        )

    def enter(self, connection: Connection) -> int:
        """Takes a place, after the lock and the tables were made: the epoch from then on, whose number it gets."""
        calls = [(_CLEAR, ()), _ENTER.with_(text(self._facts.topology), int4(os.getpid()))]
        self.number = int(connection.run(calls, must_end=True)[-1].value())
        return self.number

    def has_place(self, connection: Connection) -> bool:
        """Whether nobody has opened the store since, over a session. StoreFailure."""
        return bool(connection.run_one((_HAS_PLACE, (int4(self.number),))).value())

    # Later

    def announce(self, address: str) -> None:
        self._address = address

    def attend(self) -> None:
        self._renew()
        self._waiter.sleep(RENEW_S)

    def _renew(self) -> None:
        until_s = self._waiter.monotonic_s() + RENEW_S
        with suppress(StoreFailure):
            calls = [(_UNSYNCED, ()), _RENEW.with_(int4(self.number), text(self._address))]
            if not self._pool.write(calls, until_s)[-1].changed:
                self._on_lost()

    def all(self) -> list[Node]:
        try:
            return [_node(row) for row in self._pool.read([(_ALL, ())])[0].rows()]
        except StoreFailure as failure:
            raise engine_error(failure) from failure

    def leave(self, timeout_s: float) -> None:
        """Gives the place back, if that is done within a time."""
        with suppress(StoreFailure):
            self._pool.write([(_LEAVE, (int4(self.number),))], self._waiter.monotonic_s() + timeout_s)


_Row = tuple[int, str, str, int, int, bool]


def _rows(connection: Connection) -> list[_Row]:
    """Number, topology, address, process and lease of each node; none where the tables are not there, or older."""
    try:
        return connection.run_one((_ALL, ())).rows()
    except StoreFailure as failure:
        if failure.kind not in (NO_TABLES, UNEXPECTED):
            raise
        return []


def _node(row: _Row) -> Node:
    number, topology, address, pid, _, is_live = row
    return Node(number, topology, address, pid, is_live)


def _shown(node: Node) -> str:
    place = f"{node.address}, process {node.pid}" if node.address else f"process {node.pid}"
    shown = f"{place}, --topology {node.topology}" if node.topology else place
    return shown if node.is_live else f"{shown}, which has not been heard of for {LEASE_S:.0f} seconds"
