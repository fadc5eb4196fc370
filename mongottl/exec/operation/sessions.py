"""Logical sessions, and the replies to retryable writes, so that a retried write is not executed twice.

A driver that retries a write sends the same session id and transaction number again. The reply to the last retryable
write of each session is kept and returned again. Replies do not survive a restart: after one, a retry is executed.
They are bounded by MAX_REPLY_BYTES: most are small, but one of findAndModify may have a document of 16 MiB. If a reply
was dropped because of the bound, the retry is refused (217), since it might execute the write twice.

Sessions expire after 30 minutes of monotonic time without a command, independent of changes of the wall clock, and
never while one of their operations runs. Their cursors are closed with them (`ServiceContext.close_idle`). endSessions
and killSessions end a session at once, but what is known of its latest retryable write is kept until the session would
have expired: a retry can still come, also while the first attempt runs. mongod keeps its transaction records likewise.
"""

from typing import Final

from mongottl.errors import CommandError, ErrorCode

SESSION_TIMEOUT_MINUTES: Final = 30
SESSION_TIMEOUT_S: Final = 60.0 * SESSION_TIMEOUT_MINUTES
MAX_SESSIONS: Final = 100_000
# Bound on the replies to retryable writes that are kept, of all sessions together.
MAX_REPLY_BYTES: Final = 64 * 1024 * 1024
# Memory that a reply takes in addition to its own length.
_OVERHEAD_BYTES: Final = 128


class Session:
    """One logical session. reply: the answer to the write of `txn_number`, once there is one.

    reply_dropped: whether there was a reply that was dropped to make room for others.
    busy_with: the transaction number of a retryable write that is running, or -1.
    last_used_ms: wall time, as `$listSessions` shows it; last_used_s: monotonic time, for the session's timeout.
    running: how many of its operations are running.
    ended: whether a client has ended it; kept only for retries of its latest write, until it is used again.
    """

    def __init__(self, key: bytes, lsid: bytes) -> None:
        self.key = key
        self.lsid = lsid
        self.last_used_ms = 0
        self.last_used_s = 0.0
        self.running = 0
        self.ended = False
        self.txn_number = -1
        self.command = ""
        self.busy_with = -1
        self.reply: bytes | None = None
        self.reply_dropped = False


class SessionRegistry:
    """The sessions of a server by the bytes of their id.

    When there are too many, the least recently used one without a running operation ends.
    """

    def __init__(self) -> None:
        self._sessions: dict[bytes, Session] = {}
        self.max_sessions = MAX_SESSIONS
        self.max_reply_bytes = MAX_REPLY_BYTES
        # Sessions with a reply, the oldest reply first.
        self._replied: dict[bytes, Session] = {}
        self.reply_bytes: int = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def touch(self, key: bytes, lsid: bytes, now_ms: int, now_s: float) -> Session:
        """The session of this id, created if there is none; its last use is set to now.

        now_ms: wall time; now_s: monotonic time.
        """
        session = self._sessions.pop(key, None)
        if session is None:
            session = Session(key, lsid)
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
        if session.running or session.txn_number >= 0:
            session.ended = True
        else:
            self._forget(session)

    def _forget(self, session: Session) -> None:
        del self._sessions[session.key]
        self._drop_reply(session)

    def all(self) -> list[Session]:
        """All sessions that have not been ended."""
        return [session for session in self._sessions.values() if not session.ended]

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

    def _drop_oldest(self) -> None:
        for session in self._sessions.values():
            if session.running == 0:
                self._forget(session)
                return

    def remember(self, session: Session, reply: bytes) -> None:
        """Keeps the reply to the session's latest retryable write, and drops the oldest replies beyond the bound."""
        self._drop_reply(session)
        session.reply = reply
        self._replied[session.key] = session
        self.reply_bytes += len(reply) + _OVERHEAD_BYTES
        while self.reply_bytes > self.max_reply_bytes:
            oldest = self._replied[next(iter(self._replied))]
            self._drop_reply(oldest)
            oldest.reply_dropped = True

    def _drop_reply(self, session: Session) -> None:
        reply = session.reply
        if reply is not None:
            session.reply = None
            self.reply_bytes -= len(reply) + _OVERHEAD_BYTES
            del self._replied[session.key]

    def retried_reply(self, session: Session, txn_number: int, command: str) -> bytes | None:
        """The kept reply to this write, or None if the write is new; then it becomes the session's latest.

        Must not be called while the session is busy with the same write.
        TransactionTooOld (225) if the session has already begun a later write, IncompleteTransactionHistory (217) if
        the reply was dropped.
        """
        if txn_number < session.txn_number:
            raise CommandError(
                ErrorCode.TransactionTooOld,
                f"Retryable write with txnNumber {txn_number} is prohibited on session because a newer retryable write"
                f" with txnNumber {session.txn_number} has already started on this session.",
            )
        if txn_number == session.txn_number and session.command == command:
            if session.reply_dropped:
                raise CommandError(
                    ErrorCode.IncompleteTransactionHistory,
                    f"The reply to the write with txnNumber {txn_number} is not remembered any more",
                )
            return session.reply
        self._drop_reply(session)
        session.txn_number = txn_number
        session.command = command
        session.reply_dropped = False
        return None
