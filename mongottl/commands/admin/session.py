"""startSession, endSessions, refreshSessions, killSessions.

Source: the driver specifications' "Driver Sessions".
"""

import os
from typing import Annotated, NamedTuple

from mongottl.commands.access import ANYONE, USERS, cluster_needs, needing
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ARRAY_FIELD, ONE, Field
from mongottl.document.build import encode
from mongottl.document.types import BinData, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.retryable_writes import session_key
from mongottl.exec.operation.sessions import SESSION_TIMEOUT_MINUTES
from mongottl.exec.operation.transaction_unit import abort_open
from mongottl.security.privileges import Need


class StartSessionRequest(NamedTuple):
    command: Annotated[Value, Field("startSession", ONE)]


@command("startSession", StartSessionRequest, access=USERS, help="Starts a logical session and returns its id.")
def start_session(op: OperationContext, request: StartSessionRequest) -> Reply:
    data = bytearray(os.urandom(16))
    data[6] = (data[6] & 0x0F) | 0x40
    data[8] = (data[8] & 0x3F) | 0x80
    lsid = encode({"id": BinData(bytes(data), 4)})
    op.service.sessions.touch(session_key(lsid), lsid, op.now_ms, op.service.clock.monotonic_s())
    return {"id": lsid, "timeoutMinutes": SESSION_TIMEOUT_MINUTES}


class SessionsRequest(NamedTuple):
    sessions: Annotated[list[Value], Field("endSessions", ARRAY_FIELD)]


class RefreshSessionsRequest(NamedTuple):
    sessions: Annotated[list[Value], Field("refreshSessions", ARRAY_FIELD)]


class KillSessionsRequest(NamedTuple):
    sessions: Annotated[list[Value], Field("killSessions", ARRAY_FIELD)]


def _lsids(sessions: list[Value]) -> list[bytes]:
    lsids: list[bytes] = []
    for lsid in sessions:
        if not isinstance(lsid, bytes):
            raise CommandError(ErrorCode.TypeMismatch, "a session id must be an object")
        lsids.append(lsid)
    return lsids


@command(
    "endSessions",
    SessionsRequest,
    access=ANYONE,
    help="Ends logical sessions and closes their cursors.",
    # The Node driver sends `w: 0`, since it does not need the reply.
    takes_write_concern=True,
    stable=True,
)
def end_sessions(op: OperationContext, request: SessionsRequest) -> Reply:
    for lsid in _lsids(request.sessions):
        key = session_key(lsid)
        abort_open(op.service, key)
        op.service.sessions.end(key)
        op.service.cursors.close_where_session(key)
    return {}


@command(
    "refreshSessions",
    RefreshSessionsRequest,
    access=USERS,
    help="Updates when logical sessions were last used, so that they do not time out.",
    stable=True,
)
def refresh_sessions(op: OperationContext, request: RefreshSessionsRequest) -> Reply:
    for lsid in _lsids(request.sessions):
        op.service.sessions.touch(session_key(lsid), lsid, op.now_ms, op.service.clock.monotonic_s())
    return {}


def _kill_sessions_needs(op: OperationContext, request: KillSessionsRequest) -> list[Need]:
    return cluster_needs("killAnySession")


@command(
    "killSessions",
    KillSessionsRequest,
    access=needing(_kill_sessions_needs),
    help="Ends logical sessions and their operations, or all sessions if none is named.",
)
def kill_sessions(op: OperationContext, request: KillSessionsRequest) -> Reply:
    """Ends sessions, closes their cursors and makes their running operations fail with Interrupted (11601)."""
    keys = [session_key(lsid) for lsid in _lsids(request.sessions)]
    if not keys:
        keys = [session.key for session in op.service.sessions.all()]
    for key in keys:
        op.service.operations.kill_of_session(key)
        abort_open(op.service, key)
        op.service.sessions.end(key)
        op.service.cursors.close_where_session(key)
    return {}
