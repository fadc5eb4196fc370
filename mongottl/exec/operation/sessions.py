"""Logical sessions, and what is remembered so that a retried write is not done twice.

A driver that retries a write sends the same session id and transaction number again. The reply to the last such write
of each session is kept and given again. This memory does not survive a restart: after one, the retry is carried out.
It is bounded by MAX_REPLY_BYTES: replies are small but for those of findAndModify, with a document of up to 16 MiB.
Where the bound made the server forget a reply, it refuses the retry, lest the write be done twice.

Sessions are forgotten after half an hour of elapsed time without a command, wherever the wall clock is moved meanwhile,
and never while one of their operations is under way. Their cursors go with them (`ServiceContext.close_idle`).
"""

from typing import Final

from mongottl.errors import CommandError, ErrorCode

SESSION_TIMEOUT_MINUTES: Final = 30
SESSION_TIMEOUT_S: Final = 60.0 * SESSION_TIMEOUT_MINUTES
MAX_SESSIONS: Final = 100_000
# Of replies to retryable writes, of all sessions together.
MAX_REPLY_BYTES: Final = 64 * 1024 * 1024
# What a reply takes in memory beside its own length.
_OVERHEAD_BYTES: Final = 128


class Session:
    """One logical session. reply: the answer to the write of `txn_number`, once there is one.

    forgotten: whether there was a reply that had to make room for others.
    busy_with: the transaction number of a write that others run beside, or -1. It is not to be begun a second time.
    last_used_ms: wall time, as `$listSessions` shows it; last_used_s: elapsed time, by which it ends.
    under_way: how many of its operations are.
    """

    def __init__(self, key: bytes, lsid: bytes) -> None:
        self.key = key
        self.lsid = lsid
        self.last_used_ms = 0
        self.last_used_s = 0.0
        self.under_way = 0
        self.txn_number = -1
        self.command = ""
        self.busy_with = -1
        self.reply: bytes | None = None
        self.forgotten = False


class SessionRegistry:
    """The sessions of a server by the bytes of their id.

    When there are too many, the least recently used one that has no operation under way goes.
    """

    def __init__(self) -> None:
        self._sessions: dict[bytes, Session] = {}
        self.most = MAX_SESSIONS
        self.most_reply_bytes = MAX_REPLY_BYTES
        # Sessions with a reply, the oldest reply first.
        self._replied: dict[bytes, Session] = {}
        self.reply_bytes: int = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def touch(self, key: bytes, lsid: bytes, now_ms: int, now_s: float) -> Session:
        """The session of this id, made if need be, used now. now_ms: wall time; now_s: elapsed time."""
        session = self._sessions.pop(key, None)
        if session is None:
            session = Session(key, lsid)
            if len(self._sessions) >= self.most:
                self._drop_oldest()
        session.last_used_ms = now_ms
        session.last_used_s = now_s
        self._sessions[key] = session  # last in order: most recently used
        return session

    def find(self, key: bytes) -> Session | None:
        return self._sessions.get(key)

    def end(self, key: bytes) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            self._drop_reply(session)

    def all(self) -> list[Session]:
        return list(self._sessions.values())

    def begin_operation(self, key: bytes) -> Session | None:
        """Keeps a session, if it is there, until `end_operation`."""
        session = self._sessions.get(key)
        if session is not None:
            session.under_way += 1
        return session

    def end_operation(self, session: Session, now_s: float) -> None:
        """now_s: elapsed time, from which on the session counts as unused."""
        session.under_way -= 1
        session.last_used_s = now_s

    def expire(self, before_s: float) -> None:
        """Forgets sessions unused since before this instant of elapsed time."""
        for key in [k for k, s in self._sessions.items() if s.last_used_s < before_s and s.under_way == 0]:
            self.end(key)

    def _drop_oldest(self) -> None:
        for key, session in self._sessions.items():
            if session.under_way == 0:
                self.end(key)
                return

    def remember(self, session: Session, reply: bytes) -> None:
        """Keeps the reply to the session's latest retryable write; the oldest replies of others make room."""
        self._drop_reply(session)
        session.reply = reply
        self._replied[session.key] = session
        self.reply_bytes += len(reply) + _OVERHEAD_BYTES
        while self.reply_bytes > self.most_reply_bytes:
            oldest = self._replied[next(iter(self._replied))]
            self._drop_reply(oldest)
            oldest.forgotten = True

    def _drop_reply(self, session: Session) -> None:
        reply = session.reply
        if reply is not None:
            session.reply = None
            self.reply_bytes -= len(reply) + _OVERHEAD_BYTES
            del self._replied[session.key]

    def retried_reply(self, session: Session, txn_number: int, command: str) -> bytes | None:
        """The reply already given to this write, or None if it is new, which is then noted as under way.

        To be asked only when the session is not busy with the same write.
        TransactionTooOld (225) if a later write of the session was seen before, IncompleteTransactionHistory (217) if
        the reply is not remembered any more.
        """
        if txn_number < session.txn_number:
            raise CommandError(
                ErrorCode.TransactionTooOld,
                f"Retryable write with txnNumber {txn_number} is prohibited on session because a newer retryable write"
                f" with txnNumber {session.txn_number} has already started on this session.",
            )
        if txn_number == session.txn_number and session.command == command:
            if session.forgotten:
                raise CommandError(
                    ErrorCode.IncompleteTransactionHistory,
                    f"The reply to the write with txnNumber {txn_number} is not remembered any more",
                )
            return session.reply
        self._drop_reply(session)
        session.txn_number = txn_number
        session.command = command
        session.forgotten = False
        return None
