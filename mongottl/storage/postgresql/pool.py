"""The connections of one server: few, used in turn, made anew when they are lost.

    acquire ── a permit, in the order of asking ── an unused connection, or a new one
    release ── ready: kept · lost: closed · answers unread, or a transaction open: cancelled and drained aside
    read    ── acquire, run, release; repeated after a lost connection, and while a table is locked, for `timeout_s`
    write   ── repeated after a lost connection alone, and never if it may have been committed

Statements and transactions have a pool each, so that open transactions leave connections for all else.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final

from mongottl.storage.nodes import STORE_TIMEOUT_S
from mongottl.storage.postgresql.address import Address
from mongottl.storage.postgresql.connection import Connection, SessionSettings, connect
from mongottl.storage.postgresql.failures import BUSY, GONE, LOCKED, READ_ONLY, STALE_STATEMENT, StoreFailure
from mongottl.storage.postgresql.statements import Answer, Call, Statement
from mongottl.storage.waiting import Turn, Waiter

# Connections of one process for statements, and for transactions.
MOST_CONNECTIONS: Final = 16
MOST_TRANSACTIONS: Final = 32

# Seconds between two attempts to connect: they double up to the second.
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.25
# After these failures the same is tried again: of a read always, of a write unless it may be committed.
_PASSING: Final = frozenset({GONE, READ_ONLY, BUSY, STALE_STATEMENT})
# After these a read is. It meets no lock but that of a whole table: vacuum has it while it cuts off the table's end.
_PASSING_FOR_READS: Final = _PASSING | {LOCKED}

_ROLLBACK: Final = Statement("rollback", "ROLLBACK")
_PING: Final = Statement("ping", "SELECT 1")


class _Permit:
    """The place of one that waits for a connection. is_granted: whether it is its turn."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.is_granted = False


class ConnectionPool:
    """Connections to one address with the same settings.

    most: how many there may be. timeout_s: how long a call goes on trying.
    last_failure: why the last attempt to connect has failed; None since one has succeeded.
    """

    def __init__(
        self,
        address: Address,
        settings: SessionSettings,
        waiter: Waiter,
        most: int = MOST_CONNECTIONS,
        timeout_s: float = STORE_TIMEOUT_S,
    ) -> None:
        self._address = address
        self._settings = settings
        self._waiter = waiter
        self._most = most
        self.timeout_s = timeout_s
        self.last_failure: StoreFailure | None = None
        # Unused connections, the last used one last; permits that nobody has; those who wait for one.
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        # The processes of the server for connections that are being made.
        self._making: set[int] = set()
        self._free = most
        self._waiting: deque[_Permit] = deque()
        # When a connection was given back that others can use.
        self._returned_s = 0.0
        self._is_closed = False
        self._connected = 0
        self._lost = 0
        self._repeated = 0
        self._settled = 0

    def read(self, calls: Sequence[Call], until_s: float = 0.0) -> list[Answer]:
        """The answers to calls that change nothing, or may be repeated. StoreFailure.

        until_s: until when they are tried again, in the waiter's time; 0.0: `timeout_s` from now.
        """
        return self._run(calls, False, until_s)

    def write(self, calls: Sequence[Call], until_s: float = 0.0, commit: int = -2) -> list[Answer]:
        """The answers to a unit, which is committed. StoreFailure, which says whether it may be committed all the same.

        It is not interrupted once it was sent. commit: the number of a call after whose failure it may be committed.
        """
        return self._run(calls, True, until_s, commit)

    def _run(self, calls: Sequence[Call], writes: bool, until_s: float, commit: int = -2) -> list[Answer]:
        waiter = self._waiter
        passing = _PASSING if writes else _PASSING_FOR_READS
        pause_s = 0.0
        while True:
            connection = self.acquire(until_s)
            if not until_s:  # the store answers, however long others have had all connections
                until_s = waiter.monotonic_s() + self.timeout_s
            try:
                answers = connection.run(calls, writes)
            except StoreFailure as failure:
                self.release(connection)
                if failure.call == commit:
                    failure.may_be_committed = True
                if failure.kind == READ_ONLY:
                    self._close_idle()  # which are connected to the same server
                if failure.kind not in passing or (writes and failure.may_be_committed):
                    raise
                if waiter.monotonic_s() + pause_s >= until_s:
                    raise
                self._repeated += 1
                if pause_s:
                    waiter.sleep(pause_s)
                pause_s = min(max(2 * pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
                continue
            except BaseException:
                self.release(connection)
                raise
            self.release(connection)
            return answers

    def acquire(self, until_s: float = 0.0, patience_s: float = 0.0) -> Connection:
        """A connection for the caller alone, who gives it back by `release`. StoreFailure.

        until_s: until when it is waited for, in the waiter's time; 0.0: for `timeout_s`, and where others have all of
        them until they have given none back for as long. patience_s: for how long, where others have all of them.
        """
        if self._free and not self._waiting and not self._is_closed:
            self._free -= 1
            if self._idle:
                connection = self._idle.pop()
                if connection.is_alive:
                    return connection
                self._discard(connection)
            if not until_s:
                until_s = self._waiter.monotonic_s() + self.timeout_s
        else:
            if patience_s:
                self._wait_for_permit(self._waiter.monotonic_s() + patience_s)
            else:
                until_s = self._wait_for_permit(until_s)
            if not until_s:
                until_s = self._waiter.monotonic_s() + self.timeout_s
        try:
            return self._take(until_s)
        except BaseException:
            self._give_permit()
            raise

    def _wait_for_permit(self, until_s: float) -> float:
        """Waits for a permit: until when a connection may then be tried to be had.

        until_s: 0.0 to wait for as long as others give connections back: a thousand operations wait for their turns.
        """
        waiter = self._waiter
        began_s = waiter.monotonic_s()
        end_s = until_s or began_s + self.timeout_s
        permit = _Permit(waiter.new_turn())
        self._waiting.append(permit)
        try:
            while not permit.is_granted:
                if self._is_closed:
                    raise StoreFailure(GONE, "the store is closed")
                if waiter.monotonic_s() >= end_s:
                    raise StoreFailure(BUSY, f"all {self._most} connections to {self._address} are in use")
                waiter.wait_turn(permit.turn, end_s)
                end_s = until_s or max(began_s, self._returned_s) + self.timeout_s
        except BaseException:
            if permit.is_granted:
                self._give_permit()
            else:
                self._waiting.remove(permit)
            raise
        return end_s

    def _give_permit(self) -> None:
        """Passes on the permit of a connection that is not used any more."""
        if self._waiting:
            permit = self._waiting.popleft()
            permit.is_granted = True
            permit.turn.notify()
        else:
            self._free += 1

    def _take(self, until_s: float) -> Connection:
        """An unused connection, or a new one, for one who has a permit."""
        waiter = self._waiter
        pause_s = _FIRST_PAUSE_S
        while True:
            if self._is_closed:
                raise StoreFailure(GONE, "the store is closed")
            while self._idle:
                connection = self._idle.pop()
                if connection.is_alive:
                    return connection
                self._discard(connection)
            try:
                connection = connect(self._address, self._settings, waiter, until_s, self._making)
            except StoreFailure as failure:
                self.last_failure = failure
                if failure.kind not in _PASSING or waiter.monotonic_s() + pause_s >= until_s:
                    raise
                waiter.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            self.last_failure = None
            self._connected += 1
            self._open.add(connection)
            return connection

    def release(self, connection: Connection) -> None:
        """Takes back a connection, in whatever state it is."""
        if connection.is_ready and not self._is_closed:
            self._keep(connection)
            self._give_permit()
        elif connection.is_lost or self._is_closed:
            self._discard(connection)
            self._give_permit()
        else:
            self._settled += 1
            self._waiter.run_aside(partial(self._settle, connection))

    def _keep(self, connection: Connection) -> None:
        self._idle.append(connection)
        if self._waiting:
            self._returned_s = self._waiter.monotonic_s()

    def _settle(self, connection: Connection) -> None:
        """Makes a connection ready that was left in the middle, or closes it."""
        is_ready = False
        try:
            is_ready = connection.settle(_ROLLBACK.with_())
        finally:
            if is_ready and not self._is_closed:
                self._keep(connection)
            else:
                self._discard(connection)
            self._give_permit()

    def _discard(self, connection: Connection) -> None:
        if not self._is_closed:
            self._lost += 1
        self._open.discard(connection)
        connection.close()

    def leave(self, latest: bytes) -> None:
        """Ends all connections but those that were made by the latest attempt: to a host that does not answer, whose
        place another one has taken."""
        self._idle, idle = [each for each in self._idle if each.attempt == latest], self._idle
        for connection in idle:
            if connection.attempt != latest:
                self._discard(connection)
        for connection in self._open:
            if connection.attempt != latest:
                connection.cut()

    def _close_idle(self) -> None:
        while self._idle:
            self._discard(self._idle.pop())

    def backend_ids(self) -> list[int]:
        """The processes of the server for the connections that are open, or being made."""
        return [*self._making, *(connection.backend_id for connection in self._open if not connection.is_lost)]

    def ping(self, timeout_s: float) -> None:
        """Asks the server for an answer within this time. StoreFailure."""
        self.read([_PING.with_()], self._waiter.monotonic_s() + timeout_s)

    def close(self) -> None:
        """Closes what is unused now, and what is used when it is given back. Nobody gets a connection any more."""
        self._is_closed = True
        self._close_idle()
        for permit in self._waiting:
            permit.turn.notify()

    def statistics(self) -> dict[str, int]:
        """Connections: `open`, of them `idle`; operations that wait for one; connections made, lost, and cleared of
        what was left unread; calls that were repeated."""
        return {
            "open": self._most - self._free + len(self._idle),
            "idle": len(self._idle),
            "waiting": len(self._waiting),
            "connected": self._connected,
            "lost": self._lost,
            "settled": self._settled,
            "repeated": self._repeated,
        }
