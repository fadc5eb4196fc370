"""Replies to retryable writes that sessions keep, and their limit."""

import pytest

from mongottl.errors import CommandError
from mongottl.exec.operation.sessions import MAX_REPLY_BYTES, MAX_SESSIONS, Session, SessionRegistry

LARGE = bytes(16 * 1024 * 1024)


def written(registry: SessionRegistry, key: bytes, reply: bytes, txn_number: int = 1) -> Session:
    """A session with the reply to a retryable write."""
    session = registry.touch(key, b"", 0, 0.0)
    assert registry.retried_reply(session, txn_number, "findAndModify") is None
    registry.remember(session, reply)
    return session


def refusal(registry: SessionRegistry, session: Session, txn_number: int = 1) -> int:
    with pytest.raises(CommandError) as caught:
        registry.retried_reply(session, txn_number, "findAndModify")
    return caught.value.code


def test_a_retry_is_answered_as_before() -> None:
    registry = SessionRegistry()
    session = written(registry, b"a", b"reply")
    assert registry.retried_reply(session, 1, "findAndModify") == b"reply"
    assert registry.retried_reply(session, 2, "findAndModify") is None
    assert refusal(registry, session) == 225


def test_replies_of_all_sessions_are_bounded() -> None:
    registry = SessionRegistry()
    sessions = [written(registry, b"%d" % n, LARGE) for n in range(10)]
    assert registry.reply_bytes <= MAX_REPLY_BYTES
    assert sum(session.reply is not None for session in sessions) == 3
    assert registry.retried_reply(sessions[-1], 1, "findAndModify") is LARGE
    assert refusal(registry, sessions[0]) == 217
    # The next write of that session is a new one.
    assert registry.retried_reply(sessions[0], 2, "findAndModify") is None


def test_a_large_reply_makes_room_among_the_oldest() -> None:
    registry = SessionRegistry()
    registry.max_reply_bytes = 3000
    small = [written(registry, b"%d" % n, bytes(100)) for n in range(10)]
    written(registry, b"large", bytes(2000))
    assert [session.reply is None for session in small] == [True] * 7 + [False] * 3
    assert registry.reply_bytes == 3 * 228 + 2128


def test_what_ends_gives_back_what_it_took() -> None:
    registry = SessionRegistry()
    registry.max_sessions = 3
    for n in range(5):
        written(registry, b"%d" % n, bytes(100))
    assert registry.reply_bytes == 3 * 228
    session = registry.find(b"4")
    assert session is not None
    assert registry.retried_reply(session, 2, "insert") is None
    assert registry.reply_bytes == 2 * 228
    registry.end(b"never")
    registry.touch(b"unwritten", b"", 0, 0.0)
    assert registry.reply_bytes == 228  # the least recently used session made room
    registry.end(b"unwritten")
    assert registry.find(b"unwritten") is None
    registry.expire(1.0)
    assert (len(registry), registry.reply_bytes) == (0, 0)


def test_an_ended_session_keeps_its_reply_until_it_expires() -> None:
    registry = SessionRegistry()
    written(registry, b"a", bytes(100))
    registry.end(b"a")
    assert (registry.all(), registry.is_active(b"a"), registry.reply_bytes) == ([], False, 228)
    assert registry.retried_reply(registry.touch(b"a", b"", 0, 0.0), 1, "findAndModify") == bytes(100)
    assert registry.is_active(b"a")
    registry.end(b"a")
    registry.expire(1.0)
    assert (len(registry), registry.reply_bytes) == (0, 0)


def test_small_replies_of_all_sessions_fit() -> None:
    assert MAX_SESSIONS * (128 + 300) < MAX_REPLY_BYTES
