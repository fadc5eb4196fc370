"""Logical sessions, with what each of them remembers of its latest retryable write (`retryable_writes`).

What sessions remember is bounded by MAX_HISTORY_BYTES of all sessions together: most of it is small, but the image of a
findAndModify may have 16 MiB. If the statements of a write were forgotten because of the bound, its retry is refused
(217), since it might execute one of them twice. With a data directory it is stored as well, and read at the start.

Sessions expire after 30 minutes of monotonic time without a command, independent of changes of the wall clock, and
never while one of their operations runs. Their cursors are closed with them (`ServiceContext.close_idle`). endSessions
and killSessions end a session at once, but what is known of its latest retryable write is kept until the session would
have expired: a retry can still come, also while the first attempt runs. mongod keeps its transaction records likewise.
"""

from collections import OrderedDict
from functools import partial
from typing import Final

from mongottl.document.types import Timestamp
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.sessions.retryable_writes import RetryableWrite, RetryCounts, WriteHistory
from mongottl.exec.sessions.stored_sessions import StoredSessions
from mongottl.oplog.statements import Executed, Statements, add_executed
from mongottl.query.timestamps import ClusterTime
from mongottl.storage.interface import WriteUnitOfWork

SESSION_TIMEOUT_MINUTES: Final = 30
SESSION_TIMEOUT_S: Final = 60.0 * SESSION_TIMEOUT_MINUTES
MAX_SESSIONS: Final = 100_000
# Bound on what sessions remember of retryable writes, besides the one entry that each of them may have.
MAX_HISTORY_BYTES: Final = 64 * 1024 * 1024


class Session:
    """One logical session. history: what is known of its latest retryable write.

    key: what identifies it (`session_ids`). busy: whether a retryable write of it is running; the next one waits for
    its end.
    last_used_ms: wall time, as `$listSessions` shows it; last_used_s: monotonic time, for the session's timeout.
    running: how many of its operations are running.
    ended: whether a client has ended it; kept only for retries of its latest write, until it is used again.
    """

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.last_used_ms = 0
        self.last_used_s = 0.0
        self.running = 0
        self.ended = False
        self.busy = False
        self.history = WriteHistory(key)

    @property
    def lsid(self) -> bytes:
        """`{id, uid}`, as it is shown."""
        return self.history.lsid


class SessionRegistry:
    """The sessions of a server by the bytes of their id.

    When there are too many, the least recently used one without a running operation ends.
    """

    def __init__(self) -> None:
        # Not a dict: the first key of one from whose front many have been deleted takes as many steps to find.
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        self.max_sessions = MAX_SESSIONS
        self.retries = RetryCounts()
        self.max_history_bytes = MAX_HISTORY_BYTES
        # Histories that count towards the bound, by session, the oldest write first.
        self._counted: OrderedDict[bytes, WriteHistory] = OrderedDict()
        self.history_bytes: int = 0
        # Where what is remembered is stored; None without a data directory.
        self._stored: StoredSessions | None = None
        # What differs from its record, by session, and the records of sessions that are gone.
        self._unsaved: dict[bytes, WriteHistory] = {}
        self._gone: list[int] = []

    def __len__(self) -> int:
        return len(self._sessions)

    def touch(self, key: bytes, now_ms: int, now_s: float) -> Session:
        """The session of this id, created if there is none; its last use is set to now.

        now_ms: wall time; now_s: monotonic time.
        """
        session = self._sessions.pop(key, None)
        if session is None:
            session = Session(key)
            if len(self._sessions) >= self.max_sessions:
                self._drop_oldest()
        session.last_used_ms = now_ms
        session.last_used_s = now_s
        session.ended = False
        self._sessions[key] = session  # last in order: most recently used
        return session

    def find(self, key: bytes) -> Session | None:
        """The session of this id, also one that was ended and is kept for retries."""
        return self._sessions.get(key)

    def is_active(self, key: bytes) -> bool:
        """Whether there is a session of this id that has neither expired nor been ended."""
        session = self._sessions.get(key)
        return session is not None and not session.ended

    def end(self, key: bytes) -> None:
        """Ends a session because a client asks for it. What retries of its latest write need is kept."""
        session = self._sessions.get(key)
        if session is None:
            return
        if session.running or session.history.txn_number >= 0:
            session.ended = True
        else:
            self._forget(session)

    def _forget(self, session: Session) -> None:
        del self._sessions[session.key]
        history = session.history
        self._release(history)
        if self._stored is not None:
            self._unsaved.pop(session.key, None)
            if history.row:
                self._gone.append(history.row)

    def all(self) -> list[Session]:
        """All sessions that have not been ended."""
        return [session for session in self._sessions.values() if not session.ended]

    def known(self) -> list[Session]:
        """All sessions, with those that were ended and are kept for retries."""
        return list(self._sessions.values())

    def begin_operation(self, key: bytes) -> Session | None:
        """Keeps the session from ending until `end_operation`; None if there is none of this id."""
        session = self._sessions.get(key)
        if session is not None:
            session.running += 1
        return session

    def end_operation(self, session: Session, now_s: float) -> None:
        """Ends what `begin_operation` began. now_s: monotonic time, from which the session is unused."""
        session.running -= 1
        session.last_used_s = now_s

    def expire(self, before_s: float) -> None:
        """Forgets sessions that have been unused since before this monotonic time."""
        for session in [s for s in self._sessions.values() if s.last_used_s < before_s and s.running == 0]:
            self._forget(session)

    def forget_writes(self) -> None:
        """Forgets what the latest writes have done, because a saved state is restored: retries of them are carried out
        again. Their numbers are kept, since those of later writes are higher."""
        for session in self._sessions.values():
            history = session.history
            self._release(history)
            history.dropped = False
            history.written_at = None

    def _drop_oldest(self) -> None:
        for session in self._sessions.values():
            if session.running == 0:
                self._forget(session)
                return

    def store_in(self, stored: StoredSessions, now_s: float) -> None:
        """Stores what is remembered from now on, and reads what an earlier run of the server has stored.

        now_s: monotonic time, from which these sessions have their whole timeout: how long the server did not run
        is not known for sure, since the wall clock may have been set meanwhile.
        """
        self._stored = stored
        for history in sorted(stored.load(), key=_written_ms):
            session = Session(history.key)
            session.ended = True
            session.history = history
            session.last_used_ms = history.written_ms
            session.last_used_s = now_s
            self._sessions[session.key] = session
            if not history.saved:
                self._unsaved[session.key] = history
            executed = history.executed
            if len(executed) > 1 or (executed and (executed[0].image is not None or executed[0].upserted)):
                self._count(history, sum([entry.size_bytes for entry in executed]))
        while len(self._sessions) > self.max_sessions:
            self._drop_oldest()

    def save(self, work: WriteUnitOfWork) -> None:
        """Brings what is stored up to date, in a unit of work."""
        stored = self._stored
        if stored is None:
            return
        changed = self._unsaved
        gone = self._gone
        stored.save(list(changed.values()), gone, work)
        self._unsaved = {}
        self._gone = []
        work.on_rollback(partial(self._restore_unsaved, changed, gone))

    def _restore_unsaved(self, changed: dict[bytes, WriteHistory], gone: list[int]) -> None:
        self._unsaved = changed
        self._gone = gone

    def begin_write(self, session: Session, txn_number: int) -> RetryableWrite:
        """Begins a retryable write, a new one or a retry. No other one of this session may be running.

        TransactionTooOld (225) if the session has already begun a later write, IncompleteTransactionHistory (217) if
        statements of this one were forgotten.
        """
        history = session.history
        if txn_number != history.txn_number:
            if txn_number < history.txn_number:
                raise CommandError(
                    ErrorCode.TransactionTooOld,
                    f"Retryable write with txnNumber {txn_number} is prohibited on session because a newer retryable"
                    f" write with txnNumber {history.txn_number} has already started on this session.",
                )
            if history.executed:
                self._release(history)
            history.txn_number = txn_number
            history.dropped = False
        elif history.is_committed_transaction:
            raise CommandError(
                ErrorCode.IncompleteTransactionHistory,
                f"The transaction number {txn_number} of a retryable write was used by a transaction",
            )
        elif history.dropped:
            raise CommandError(
                ErrorCode.IncompleteTransactionHistory,
                f"What the write with txnNumber {txn_number} has executed is not remembered any more",
            )
        return RetryableWrite(history, self.retries)

    def recall(self, session: Session, txn_number: int, found: list[tuple[Statements, int, Timestamp]]) -> bool:
        """Takes over what all servers have executed of a session's write: whether that is more than was known here. The
        session may have gone on to a higher number meanwhile: then it is that.

        found: the statements with their wall time in ms and their cluster time, in their order.
        """
        history = session.history
        if txn_number < history.txn_number or not found:
            return False
        txn_number = found[0][0].txn_number
        known = _count_of(history.executed) if txn_number == history.txn_number else 0
        self._release(history)
        history.txn_number = txn_number
        history.dropped = False
        for statements, wall_ms, at in found:
            add_executed(history.executed, statements.executed)
            history.written_ms = wall_ms
            history.written_at = ClusterTime(at.time, at.inc)
        if self._stored is not None:
            self._unsaved[history.key] = history
        executed = history.executed
        if len(executed) > 1 or executed[0].image is not None or executed[0].upserted:
            self._count(history, sum([entry.size_bytes for entry in executed]))
        return _count_of(history.executed) > known

    def committed(self, write: RetryableWrite, now_ms: int, at: ClusterTime) -> None:
        """Remembers what a committed unit of work has executed, and forgets the oldest beyond the bound.

        now_ms: wall time of the unit; at: its cluster time.
        """
        size = write.committed(now_ms, at)
        if self._stored is not None:
            self._unsaved[write.history.key] = write.history
        if size > 0:
            self._count(write.history, size)

    def _count(self, history: WriteHistory, size: int) -> None:
        history.size_bytes += size
        self.history_bytes += size
        self._counted.pop(history.key, None)
        self._counted[history.key] = history
        while self.history_bytes > self.max_history_bytes:
            oldest = self._counted[next(iter(self._counted))]
            self._release(oldest)
            oldest.dropped = True
            if self._stored is not None:
                self._unsaved[oldest.key] = oldest

    def _release(self, history: WriteHistory) -> None:
        """Frees the memory of a history."""
        if history.size_bytes > 0:
            self.history_bytes -= history.size_bytes
            del self._counted[history.key]
        history.clear()


def _count_of(executed: list[Executed]) -> int:
    """How many statements these are."""
    return sum([entry.last - entry.first + 1 for entry in executed])


def _written_ms(history: WriteHistory) -> int:
    return history.written_ms
