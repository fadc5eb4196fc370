"""Multi-document transactions: their state, by session.

    in progress ──┬── commit ──► committed    answered again when it is retried
                  └── abort ───► aborted      by the client, an error, its end of life, or the end of its session

A session has one transaction at a time, and the last one is remembered until the next begins or the session is
forgotten, so that commitTransaction and abortTransaction can be answered again.
"""

from collections import deque
from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.document.types import Timestamp
from mongottl.exec.running.signal import Signal
from mongottl.exec.sessions.sessions import SessionRegistry
from mongottl.oplog.change import LoggedChange
from mongottl.storage.interface import OpenTransaction

IN_PROGRESS: Final = 0
COMMITTED: Final = 1
ABORTED: Final = 2
# Of how many sessions it is known which transactions were ended elsewhere.
MOST_ENDED_ELSEWHERE: Final = 10_000
# mongod's default of the parameter transactionLifetimeLimitSeconds.
TRANSACTION_LIFETIME_S: Final = 60.0


class Transaction:
    """One transaction of a session. data: the engine's transaction, its snapshot and its writes.

    catalog_version: of the catalog at its snapshot. collections: those that its statements have named, by number.
    ready_indexes: for each collection that it writes, the idents of the indexes that were ready at its first write.
    pending: the collections that it has created, by namespace. missing: the namespaces that its statements have named
    when there was no collection, in the dialect `cosmos`. changes: what its statements have written, in order, without
    the `kept_forms` of them that the engine keeps for the oplog, with `kept_operations`; changes_bytes: their memory.
    read_concern: of its first statement, raw; None if it has none. read_at, started_ms: cluster time and wall time of
    its beginning; started_s: its monotonic time. active_s: how long statements ran that have ended, in seconds;
    active_since_s: monotonic time at which the latest statement began.
    busy: whether a statement runs. deadline_s: monotonic time after which it is aborted; deadline_ms: wall time from
    which on it is, or 0. timed_out: whether it was aborted because its time was over. expired: whether the statement
    that is running is to abort it at its end.
    """

    def __init__(
        self, session_key: bytes, number: int, data: OpenTransaction, catalog_version: int, now_s: float
    ) -> None:
        self.session_key: Final = session_key
        self.number: Final = number
        self.data: Final = data
        self.catalog_version: Final = catalog_version
        self.started_s: Final = now_s
        self.started_ms = 0
        self.read_at: Timestamp | None = None
        self.read_concern: bytes | None = None
        self.active_s = 0.0
        self.active_since_s = now_s
        self.deadline_s = 0.0
        self.deadline_ms = 0
        self.state = IN_PROGRESS
        # What the error of a later statement adds to saying that the transaction was aborted.
        self.why_aborted = ""
        self.busy = False
        self.expired = False
        self.timed_out = False
        self.collections: Final[dict[int, Collection]] = {}
        self.ready_indexes: Final[dict[int, frozenset[str]]] = {}
        self.pending: Final[dict[str, Collection]] = {}
        self.missing: Final[set[str]] = set()
        self.changes: deque[LoggedChange] = deque()
        self.changes_bytes = 0
        self.kept_forms = 0
        self.kept_operations = 0

    def is_over(self, now_s: float, now_ms: int) -> bool:
        """Whether its time is over. now_s: monotonic time. now_ms: wall time."""
        return self.deadline_s <= now_s or 0 < self.deadline_ms <= now_ms

    @property
    def in_progress(self) -> bool:
        return self.state == IN_PROGRESS

    def uses(self, collection: Collection) -> None:
        """Notes a collection that a statement names; DDL on it then waits for the transaction."""
        self.collections[collection.number] = collection


class WaitingChange:
    """A command that changes collections and waits for the transactions that use them. Transactions that begin later,
    or use such a collection for the first time, wait for it, as in mongod's lock queue.

    namespaces: of the collections; without any, all of the database, and of the whole server if that is empty.
    """

    def __init__(self, database: str, namespaces: set[str]) -> None:
        self._database: Final = database
        self._namespaces: Final = namespaces
        self.signals: Final[list[Signal]] = []

    def covers(self, namespace: str) -> bool:
        """Whether it changes this collection."""
        if self._namespaces:
            return namespace in self._namespaces
        return not self._database or namespace.startswith(f"{self._database}.")

    def is_used_by(self, transaction: Transaction) -> bool:
        """Whether it waits for the transaction."""
        return any(self.covers(collection.namespace) for collection in transaction.collections.values())


class TransactionRegistry:
    """The latest transaction of each session, and counts for serverStatus. waiting_changes: in their order."""

    def __init__(self) -> None:
        self.waiting_changes: list[WaitingChange] = []
        # By session: up to which number transactions were ended by way of several servers, the latest ones last.
        self._ended_elsewhere: dict[bytes, int] = {}
        self._latest: dict[bytes, Transaction] = {}
        self._open: dict[bytes, Transaction] = {}
        self.started_total = 0
        self.committed_total = 0
        self.aborted_total = 0

    def __len__(self) -> int:
        """How many are in progress."""
        return len(self._open)

    def latest(self, session_key: bytes) -> Transaction | None:
        """The transaction that the session began last, in whatever state."""
        return self._latest.get(session_key)

    def statistics(self) -> dict[str, int]:
        """The counts of `serverStatus.transactions`. There are no prepared transactions on a server without shards."""
        active = sum([transaction.busy for transaction in self._open.values()])
        return {
            "currentActive": active,
            "currentInactive": len(self._open) - active,
            "currentOpen": len(self._open),
            "currentPrepared": 0,
            "totalAborted": self.aborted_total,
            "totalCommitted": self.committed_total,
            "totalPrepared": 0,
            "totalPreparedThenAborted": 0,
            "totalPreparedThenCommitted": 0,
            "totalStarted": self.started_total,
        }

    def open(self) -> list[Transaction]:
        """Those in progress."""
        return list(self._open.values())

    def user_of(self, namespace: str) -> Transaction | None:
        """One of those in progress that have named a collection."""
        for transaction in self._open.values():
            for collection in transaction.collections.values():
                if collection.namespace == namespace:
                    return transaction
        return None

    def add(self, transaction: Transaction) -> None:
        """Adds a transaction that begins, in place of the session's last one, which is not in progress."""
        self._latest[transaction.session_key] = transaction
        self._open[transaction.session_key] = transaction
        self.started_total += 1

    def end(self, transaction: Transaction, state: int) -> None:
        """Sets the final state of a transaction in progress."""
        transaction.state = state
        del self._open[transaction.session_key]
        if state == COMMITTED:
            self.committed_total += 1
        else:
            self.aborted_total += 1

    def note_ended_elsewhere(self, session_key: bytes, number: int) -> None:
        """Notes that a client has ended the transaction of a session with this number by way of a server that did not
        know it. A statement that was to begin it may still be under way to any server; it begins nothing any more."""
        known = self._ended_elsewhere.pop(session_key, number)
        self._ended_elsewhere[session_key] = max(known, number)
        if len(self._ended_elsewhere) > MOST_ENDED_ELSEWHERE:
            del self._ended_elsewhere[next(iter(self._ended_elsewhere))]

    def is_ended_elsewhere(self, session_key: bytes, number: int) -> bool:
        """Whether that was noted for this number or a higher one."""
        return number <= self._ended_elsewhere.get(session_key, -1)

    def void_all(self, why: str) -> None:
        """Makes the ended transactions aborted ones, because a saved state is restored: what they have committed is not
        in it. None is in progress. why: for the error of their next statement."""
        for transaction in self._latest.values():
            transaction.state = ABORTED
            transaction.why_aborted = why

    def forget_unknown(self, sessions: SessionRegistry) -> None:
        """Forgets the ended transactions of sessions that have expired."""
        for key in [key for key in self._latest if key not in self._open and sessions.find(key) is None]:
            del self._latest[key]
