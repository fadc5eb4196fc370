"""Logical sessions, and what is remembered so that a retried write is not done twice.

A driver that retries a write sends the same session id and transaction number again. The reply to the last such write
of each session is kept and given again. This memory does not survive a restart: after one, the retry is carried out.
"""

from typing import Final

from mongottl.errors import CommandError, ErrorCode

SESSION_TIMEOUT_MINUTES: Final = 30
MAX_SESSIONS: Final = 100_000


class Session:
    """One logical session. reply: the answer to the write of `txn_number`, once there is one.

    busy_with: the transaction number of a write that others run beside, or -1. It is not to be begun a second time.
    """

    def __init__(self, key: bytes, lsid: bytes) -> None:
        self.key = key
        self.lsid = lsid
        self.last_used_ms = 0
        self.txn_number = -1
        self.command = ""
        self.busy_with = -1
        self.reply: bytes | None = None


class SessionRegistry:
    """The sessions of a server by the bytes of their id; the least recently used go first when there are too many."""

    def __init__(self) -> None:
        self._sessions: dict[bytes, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def touch(self, key: bytes, lsid: bytes, now_ms: int) -> Session:
        """The session of this id, made if need be, used now."""
        session = self._sessions.pop(key, None)
        if session is None:
            session = Session(key, lsid)
            if len(self._sessions) >= MAX_SESSIONS:
                self._sessions.pop(next(iter(self._sessions)))
        session.last_used_ms = now_ms
        self._sessions[key] = session  # last in order: most recently used
        return session

    def find(self, key: bytes) -> Session | None:
        return self._sessions.get(key)

    def end(self, key: bytes) -> None:
        self._sessions.pop(key, None)

    def all(self) -> list[Session]:
        return list(self._sessions.values())

    def expire(self, before_ms: int) -> None:
        """Forgets sessions unused since before this instant."""
        for key in [k for k, s in self._sessions.items() if s.last_used_ms < before_ms]:
            del self._sessions[key]


def retried_reply(session: Session, txn_number: int, command: str) -> bytes | None:
    """The reply already given to this write, or None if it is new, which is then noted as under way.

    To be asked only when the session is not busy with the same write.
    TransactionTooOld (225) if a later write of the session was seen before.
    """
    if txn_number < session.txn_number:
        raise CommandError(
            ErrorCode.TransactionTooOld,
            f"Retryable write with txnNumber {txn_number} is prohibited on session because a newer retryable write"
            f" with txnNumber {session.txn_number} has already started on this session.",
        )
    if txn_number == session.txn_number and session.command == command:
        return session.reply
    session.txn_number = txn_number
    session.command = command
    session.reply = None
    return None
