"""The registry of open cursors: what is closed with a session or a transaction."""

from mongottl.exec.results.cursors import ClientCursor, ListPages
from mongottl.exec.sessions.cursor_registry import CursorRegistry

SESSIONS = 2_000


def idle_cursor(namespace: str, session_key: bytes | None) -> ClientCursor:
    """A cursor that holds nothing."""
    return ClientCursor(namespace, ListPages([]), session_key, 0.0)


class CountedKey(bytes):
    """A session's key that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedKey.compared += 1
        return bytes(self) == other

    __hash__ = bytes.__hash__


def test_ending_many_sessions_looks_at_their_own_cursors() -> None:
    """Also those that are kept for an error because their collection was dropped."""
    registry = CursorRegistry()
    keys = [CountedKey(number.to_bytes(48, "big")) for number in range(SESSIONS)]
    ids = []
    for key in keys:
        ids += [registry.register(idle_cursor("shop.gone", key)), registry.register(idle_cursor("shop.c", key))]
    registry.close_where_namespace("shop.gone")
    assert len(registry) == SESSIONS
    assert registry.find(ids[0]) is not None
    CountedKey.compared = 0
    for key in keys:
        registry.close_where_session(key)
    assert len(registry) == 0
    assert [registry.find(cursor_id) for cursor_id in ids] == [None] * len(ids)
    assert CountedKey.compared < 10 * SESSIONS


def test_a_dead_cursor_goes_with_its_session_only() -> None:
    registry = CursorRegistry()
    one = registry.register(idle_cursor("shop.gone", b"one"))
    other = registry.register(idle_cursor("shop.gone", b"other"))
    without = registry.register(idle_cursor("shop.gone", None))
    registry.close_where_namespace("shop.gone")
    registry.close_where_session(b"one")
    assert [registry.find(cursor_id) is None for cursor_id in (one, other, without)] == [True, False, False]
    assert registry.close_idle(1.0) is False
    registry.close_where_session(b"other")
    assert [registry.find(cursor_id) for cursor_id in (other, without)] == [None, None]
