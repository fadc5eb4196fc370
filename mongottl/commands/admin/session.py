"""startSession, endSessions, refreshSessions, killSessions, killAllSessions, killAllSessionsByPattern.

Killing a session makes its running operations fail with Interrupted (11601), closes its cursors and ends it. A client
may go on to use a session of the same id.

Source: MongoDB's manual, "Session Commands"; the driver specification "Driver Sessions".
"""

import os
from functools import partial
from typing import Annotated, Final, NamedTuple

from mongottl.commands.access import ANYONE, USERS, cluster_needs, needing
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ARRAY_FIELD, ONE, RAW_ARRAY, Field
from mongottl.document.bson_field import unknown_field, wrong_type
from mongottl.document.build import encode
from mongottl.document.freeing import LongList, LongSet
from mongottl.document.interrupt import give_way
from mongottl.document.types import NULL, BinData, Value
from mongottl.document.walk import ElementCursor, fields, find_field, get_value, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.node_messages import end_session, end_sessions_elsewhere, matching_sessions
from mongottl.exec.running.client import UUID_SUBTYPE
from mongottl.exec.sessions.session_ids import digest_of, read_digest, read_user, session_key
from mongottl.exec.sessions.session_patterns import SessionPatterns
from mongottl.exec.sessions.sessions import SESSION_TIMEOUT_MINUTES
from mongottl.security.names import NOBODY
from mongottl.security.privileges import Need
from mongottl.storage.errors import StoreUnreachable

# Sessions that are ended in one step: each may have cursors.
ENDED_AT_ONCE: Final = 256
# Entries of a request that are read in one step.
_KEYS_AT_ONCE: Final = 500
# What it takes to read a user or a pattern, in the units of `give_way`.
_WORK: Final = 8


class StartSessionRequest(NamedTuple):
    command: Annotated[Value, Field("startSession", ONE)]


@command(
    "startSession",
    StartSessionRequest,
    access=USERS,
    help="Starts a logical session and returns its id.",
    strict=False,
)
def start_session(op: OperationContext, request: StartSessionRequest) -> Reply:
    data = bytearray(os.urandom(16))
    data[6] = (data[6] & 0x0F) | 0x40
    data[8] = (data[8] & 0x3F) | 0x80
    key = bytes(data) + _own_digest(op)
    op.service.sessions.touch(key, op.now_ms, op.service.clock.monotonic_s())
    return {"id": encode({"id": BinData(bytes(data), UUID_SUBTYPE)}), "timeoutMinutes": SESSION_TIMEOUT_MINUTES}


class SessionsRequest(NamedTuple):
    sessions: Annotated[bytes, Field("endSessions", RAW_ARRAY)]


class RefreshSessionsRequest(NamedTuple):
    sessions: Annotated[bytes, Field("refreshSessions", RAW_ARRAY)]


class KillSessionsRequest(NamedTuple):
    sessions: Annotated[bytes, Field("killSessions", RAW_ARRAY)]


class KillAllSessionsRequest(NamedTuple):
    users: Annotated[list[Value], Field("killAllSessions", ARRAY_FIELD)]


class KillAllSessionsByPatternRequest(NamedTuple):
    patterns: Annotated[list[Value], Field("killAllSessionsByPattern", ARRAY_FIELD)]


def _own_digest(op: OperationContext) -> bytes:
    return NOBODY.digest if op.client.login is None else op.client.login.digest


def _keys(op: OperationContext, name: str, sessions: bytes) -> list[bytes]:
    """The keys of the sessions of an array of `{id}`; null entries are passed over. TypeMismatch (14).

    In steps, since a message has room for hundreds of thousands, also that of a client that has not logged in.
    """
    keys: list[bytes] = LongList()
    cursor = ElementCursor(sessions, 0)
    index = 0
    while cursor.next():
        if cursor.type_code != NULL:
            lsid = cursor.decoded_without_elements()
            if not isinstance(lsid, bytes):
                raise wrong_type(f"{name}.{index}", lsid, "object")
            keys.append(session_key(lsid, op.client.login, f"{name}.{index}"))
        index += 1
        if index % _KEYS_AT_ONCE == 0:
            op.check_interrupt()
            op.give_way()
    return keys


@command(
    "endSessions",
    SessionsRequest,
    access=ANYONE,
    help="Ends logical sessions and closes their cursors.",
    # The Node driver sends `w: 0`, since it does not need the reply.
    takes_write_concern=True,
    strict=False,
    stable=True,
)
def end_sessions(op: OperationContext, request: SessionsRequest) -> Reply:
    keys = _keys(op, "endSessions.endSessions", request.sessions)
    if op.service.authorizes and op.client.login is None:
        return {}  # a stranger has no sessions
    end_sessions_elsewhere(op.service, keys, kills=False)
    return _end(op, keys, kills=False)


@command(
    "refreshSessions",
    RefreshSessionsRequest,
    access=USERS,
    help="Updates when logical sessions were last used, so that they do not time out.",
    strict=False,
    stable=True,
)
def refresh_sessions(op: OperationContext, request: RefreshSessionsRequest) -> Reply:
    keys = _keys(op, "refreshSessions.refreshSessions", request.sessions)
    for number, key in enumerate(keys, 1):
        op.service.sessions.touch(key, op.now_ms, op.service.clock.monotonic_s())
        if number % _KEYS_AT_ONCE == 0:
            op.give_way()
    return {}


@command(
    "killSessions",
    KillSessionsRequest,
    access=USERS,  # `session_key` refuses the sessions of others
    help="Ends logical sessions and their operations, or all sessions of the user if none is named.",
    strict=False,
)
def kill_sessions(op: OperationContext, request: KillSessionsRequest) -> Reply:
    """`{killSessions: [{id: <UUID>}, …]}`."""
    keys = _keys(op, "killSessions.killSessions", request.sessions)
    if not is_empty(request.sessions):
        is_done = end_sessions_elsewhere(op.service, keys, kills=True)
        return _end(op, keys, kills=True, is_done_elsewhere=is_done)
    patterns = SessionPatterns()
    patterns.add_digests([_own_digest(op)])
    return _kill_where(op, patterns)


def _kill_all_needs(op: OperationContext, request: KillAllSessionsRequest) -> list[Need]:
    """Everybody may kill their own sessions."""
    own = _own_digest(op)
    others = False
    for user in request.users:
        give_way(_WORK)
        others = others or (
            isinstance(user, bytes) and read_user("killAllSessions.killAllSessions", user).digest != own
        )
    if not others and any(isinstance(user, bytes) for user in request.users):
        return []
    return cluster_needs("killAnySession")


def _kill_by_pattern_needs(op: OperationContext, request: KillAllSessionsByPatternRequest) -> list[Need]:
    """Everybody may kill their own sessions."""
    own = _own_digest(op)
    own_patterns = other_patterns = 0
    for pattern in request.patterns:
        give_way()
        if isinstance(pattern, bytes):
            uid = get_value(pattern, "uid")
            is_own = isinstance(uid, BinData) and uid.data == own
            own_patterns += is_own
            other_patterns += not is_own
    if own_patterns and not other_patterns:
        return []
    return cluster_needs("killAnySession")


@command(
    "killAllSessions",
    KillAllSessionsRequest,
    access=needing(_kill_all_needs),
    help="Ends all sessions of users and their operations, or all sessions if no user is named.",
    strict=False,
)
def kill_all_sessions(op: OperationContext, request: KillAllSessionsRequest) -> Reply:
    """`{killAllSessions: [{user, db}, …]}`."""
    return _kill_where(op, op.compute(partial(_patterns_of_users, request.users)))


def _patterns_of_users(users: list[Value]) -> SessionPatterns:
    patterns = SessionPatterns(everything=not users)
    for index, user in enumerate(users):
        give_way(_WORK)
        if user is not None:
            patterns.add_digests([read_user(f"killAllSessions.killAllSessions.{index}", user).digest])
    return patterns


@command(
    "killAllSessionsByPattern",
    KillAllSessionsByPatternRequest,
    access=needing(_kill_by_pattern_needs),
    help="Ends the sessions that match one of several patterns, and their operations.",
    strict=False,
)
def kill_all_sessions_by_pattern(op: OperationContext, request: KillAllSessionsByPatternRequest) -> Reply:
    """`{killAllSessionsByPattern: [{lsid: {id, uid}} | {uid: <BinData>} | {users: [{user, db}, …]}, …]}`.

    A pattern of several fields matches what each of them matches.
    """
    return _kill_where(op, op.compute(partial(_patterns_of, request.patterns)))


def _patterns_of(given: list[Value]) -> SessionPatterns:
    patterns = SessionPatterns(everything=not given)
    for index, pattern in enumerate(given):
        give_way(_WORK)
        if pattern is not None:
            _add_pattern(patterns, f"killAllSessionsByPattern.killAllSessionsByPattern.{index}", pattern)
    return patterns


def _add_pattern(patterns: SessionPatterns, name: str, pattern: Value) -> None:
    """Adds the sessions that match all fields of a pattern. TypeMismatch (14), 40415 for an unknown field."""
    if not isinstance(pattern, bytes):
        raise wrong_type(name, pattern, "object")
    identifier = b""
    # None without a field that names users.
    digests: set[bytes] | None = None
    for field, value in fields(pattern):
        path = f"{name}.{field}"
        if field == "lsid":
            identifier, named = _lsid_pattern(path, value)
        elif field == "uid":
            named = {read_digest(path, value)}
        elif field == "users":
            if not isinstance(value, list):
                raise wrong_type(path, value, "array")
            named = LongSet()
            for index, user in enumerate(value):
                give_way(_WORK)
                named.add(read_user(f"{path}.{index}", user).digest)
        elif field == "roles":
            raise CommandError(ErrorCode.CommandNotSupported, "Patterns with roles are not supported")
        else:
            raise unknown_field(path)
        if named is not None:
            digests = named if digests is None else _in_both(digests, named)
    if digests is None and not identifier:
        patterns.everything = True
    elif digests is None:
        patterns.add_identifier(identifier)
    elif identifier:
        patterns.add_keys(identifier + digest for digest in digests)
    else:
        patterns.add_digests(digests)


def _in_both(some: set[bytes], others: set[bytes]) -> set[bytes]:
    found: set[bytes] = LongSet()
    for digest in some:
        give_way()
        if digest in others:
            found.add(digest)
    return found


def _lsid_pattern(name: str, lsid: Value) -> tuple[bytes, set[bytes] | None]:
    """The UUID and the user's digest of `{id, uid}`; None in the place of this for `{id}`, which means all users."""
    if not isinstance(lsid, bytes):
        raise wrong_type(name, lsid, "object")
    key = session_key(lsid, None, name)
    return key[:16], {digest_of(key)} if find_field(lsid, b"uid")[0] else None


def _kill_where(op: OperationContext, patterns: SessionPatterns) -> Reply:
    """Ends the sessions that match, here and on the other servers of the store, and their operations."""
    is_done = end_sessions_elsewhere(op.service, patterns, kills=True)
    return _end(op, matching_sessions(op.service, patterns), kills=True, is_done_elsewhere=is_done)


def _end(op: OperationContext, keys: list[bytes], kills: bool, is_done_elsewhere: bool = True) -> Reply:
    """Ends sessions, and with `kills` their operations. StoreUnreachable if that was not done on another server."""
    own = op.session_key  # last, since ending it ends this operation, too
    ends_own = False
    for number, key in enumerate(keys, 1):
        if key == own:
            ends_own = True
        else:
            end_session(op.service, key, kills)
        if number % ENDED_AT_ONCE == 0:
            op.give_way()
    if ends_own and own is not None:
        end_session(op.service, own, kills)
    if not is_done_elsewhere:
        raise StoreUnreachable("another server does not say whether it has ended the sessions")
    return {}
