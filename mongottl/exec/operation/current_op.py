"""The documents of `$currentOp`: running operations, and idle connections, sessions and cursors.

Source: MongoDB's "$currentOp" reference.
"""

from typing import Final

from mongottl.clock import iso_date
from mongottl.document.build import encode_fields
from mongottl.document.interrupt import give_way
from mongottl.document.render import render_document
from mongottl.document.types import Int64, Value
from mongottl.document.walk import fields, first_field_name
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.running.registry import RunningOperation
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.sessions.cursor_registry import OpenCursor
from mongottl.exec.sessions.transactions import Transaction
from mongottl.exec.state.index_builds import progress_of
from mongottl.security.names import UserName

_MICROS_PER_S: Final = 1_000_000
_MS_PER_S: Final = 1000
_TRUNCATED_BYTES: Final = 1024
# What it takes to describe a cursor, in the units of `give_way`.
_WORK: Final = 4
# Arguments that belong to the connection rather than to the operation.
_CONNECTION_ARGUMENTS: Final = ("$clusterTime", "$readPreference")
# `op` by the command's counter; all others are commands.
_OP_BY_COUNTER: Final = {
    "query": "query",
    "getmore": "getmore",
    "insert": "insert",
    "update": "update",
    "delete": "remove",
}

Described = list[tuple[str, Value]]


class CurrentOpOptions:
    """The options of `$currentOp`: `idleConnections`, `idleSessions`, `idleCursors`, `truncateOps`.

    idle_sessions: those whose transaction is open between two of its statements.
    own_only: only the operations of the client's user, where users are checked.
    """

    def __init__(
        self, idle_connections: bool, idle_sessions: bool, idle_cursors: bool, truncate: bool, own_only: bool = False
    ) -> None:
        self.idle_connections = idle_connections
        self.idle_sessions = idle_sessions
        self.idle_cursors = idle_cursors
        self.truncate = truncate
        self.own_only = own_only


def describe_operations(asking: OperationContext, options: CurrentOpOptions) -> list[bytes]:
    """The documents of `$currentOp`; in the dialect `cosmos` those of index builds alone."""
    service = asking.service
    asking.register()
    builds_alone = service.dialect.shows_only_index_builds
    own_only = options.own_only and service.authorizes
    user = asking.user()
    host = service.config.advertise_host or asking.client.local
    described: list[bytes] = []
    busy_clients: set[int] = set()
    busy_sessions: set[bytes] = set()
    for running in service.operations.all():
        if own_only and _user_of(running.op.client) != user:
            continue
        busy_clients.add(running.op.client.connection_id)
        if running.op.session_key is not None:
            busy_sessions.add(running.op.session_key)
        description = _described_operation(service, running, host, options)
        if builds_alone:
            progress = progress_of(running)
            if not progress:
                continue
            description = [*(field for field in description if field[0] != "command"), *progress]
        described.append(encode_fields(description))
    if builds_alone:
        return described
    if options.idle_connections:
        for client in list(service.clients.values()):  # others come and go meanwhile
            if client.connection_id not in busy_clients and not (own_only and _user_of(client) != user):
                idle = _described_client(client, host, active=False)
                idle.append(("currentOpTime", f"{iso_date(asking.now_ms)}+00:00"))
                described.append(encode_fields(idle))
    if options.idle_sessions and not own_only:
        for session in service.sessions.all():
            give_way()
            if session.key in busy_sessions:
                continue
            transaction = service.transactions.latest(session.key)
            if transaction is None or not transaction.in_progress:
                continue
            idle = [("type", "idleSession"), ("host", host), ("desc", "inactive transaction")]
            idle += [("lsid", session.lsid), ("active", False)]
            idle.append(("transaction", encode_fields(_described_transaction(service, transaction))))
            described.append(encode_fields(idle))
    if options.idle_cursors:
        for cursor in service.cursors.all():
            give_way(_WORK)
            if not cursor.in_use and not (own_only and cursor.owner != user):
                idle = [("type", "idleCursor"), ("host", host), ("ns", cursor.namespace)]
                session_of = None if cursor.session_key is None else service.sessions.find(cursor.session_key)
                if session_of is not None:
                    idle.append(("lsid", session_of.lsid))
                idle.append(("cursor", encode_fields(_described_cursor(cursor))))
                described.append(encode_fields(idle))
    return described


def _user_of(client: ClientInfo) -> UserName | None:
    return None if client.login is None else client.login.user


def _described_operation(
    service: ServiceContext, running: RunningOperation, host: str, options: CurrentOpOptions
) -> Described:
    op = running.op
    micros = max(int((service.clock.monotonic_s() - running.started_s) * _MICROS_PER_S), 0)
    described = _described_client(op.client, host, active=True)
    described.append(("currentOpTime", f"{iso_date(service.clock.now_ms())}+00:00"))
    described.append(("threaded", True))
    described.append(("opid", _shown_opid(service, running.opid)))
    session = None if op.session_key is None else service.sessions.find(op.session_key)
    if session is not None:
        described.append(("lsid", session.lsid))
    described.append(("secs_running", Int64(micros // _MICROS_PER_S)))
    described.append(("microsecs_running", Int64(micros)))
    described.append(("op", _OP_BY_COUNTER.get(running.counter, "command")))
    command = "$cmd.aggregate" if first_field_name(running.body) == "aggregate" else "$cmd"
    described.append(("ns", op.used_namespace or f"{op.database}.{command}"))
    described.append(("redacted", False))
    described.append(("command", _described_command(running.body, options.truncate)))
    transaction = None if op.session_key is None else service.transactions.latest(op.session_key)
    if transaction is not None and transaction.busy:
        described.append(("transaction", encode_fields(_described_transaction(service, transaction))))
    if op.killed:
        described.append(("killPending", True))
    described.append(("locks", encode_fields([])))
    described.append(("waitingForLock", False))
    return described


def _shown_opid(service: ServiceContext, opid: int) -> Value:
    """`node:opid` where several servers have the same store, in the form of mongos, which names shards so."""
    nodes = service.engine.shared_nodes
    return opid if nodes is None else f"{nodes.number}:{opid}"


def _described_transaction(service: ServiceContext, transaction: Transaction) -> Described:
    """A transaction in progress."""
    parameters: Described = [("txnNumber", Int64(transaction.number)), ("autocommit", False)]
    if transaction.read_concern is not None:
        parameters.append(("readConcern", transaction.read_concern))
    now_s = service.clock.monotonic_s()
    open_s = now_s - transaction.started_s
    active_s = transaction.active_s
    if transaction.busy:
        active_s += now_s - transaction.active_since_s
    lifetime_ms = int((transaction.deadline_s - transaction.started_s) * _MS_PER_S)
    return [
        ("parameters", encode_fields(parameters)),
        ("readTimestamp", transaction.read_at),
        ("startWallClockTime", f"{iso_date(transaction.started_ms)}+00:00"),
        ("timeOpenMicros", Int64(int(open_s * _MICROS_PER_S))),
        ("timeActiveMicros", Int64(int(active_s * _MICROS_PER_S))),
        ("timeInactiveMicros", Int64(max(0, int((open_s - active_s) * _MICROS_PER_S)))),
        ("expiryTime", f"{iso_date(transaction.started_ms + lifetime_ms)}+00:00"),
    ]


def _described_command(body: bytes, truncate: bool) -> Value:
    described: Described = []
    for name, value in fields(body):
        if name not in _CONNECTION_ARGUMENTS:
            described.append((name, value))
    command = encode_fields(described)
    if truncate and len(command) > _TRUNCATED_BYTES:
        return encode_fields([("$truncated", render_document(command)[:_TRUNCATED_BYTES])])
    return command


def _described_client(client: ClientInfo, host: str, active: bool) -> Described:
    described: Described = [("type", "op"), ("host", host), ("desc", f"conn{client.connection_id}")]
    described.append(("connectionId", client.connection_id))
    described.append(("client", client.remote))
    if client.app_name:
        described.append(("appName", client.app_name))
    if client.metadata is not None:
        described.append(("clientMetadata", client.metadata))
    user = _user_of(client)
    if user is not None:
        described.append(("effectiveUsers", [encode_fields([("user", user.name), ("db", user.database)])]))
    described.append(("active", active))
    return described


def _described_cursor(cursor: OpenCursor) -> Described:
    return [
        ("cursorId", Int64(cursor.cursor_id)),
        ("noCursorTimeout", cursor.no_timeout),
        ("tailable", cursor.tailable),
        ("awaitData", cursor.await_data),
    ]
