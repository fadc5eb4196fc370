"""How `$currentOp` shows the operations under way, and idle connections, sessions and cursors.

Source: MongoDB's "$currentOp" reference.
"""

from typing import Final

from mongottl.clock import iso_date
from mongottl.document.build import encode_fields
from mongottl.document.render import render_document
from mongottl.document.types import Int64, Value
from mongottl.document.walk import fields, first_field_name
from mongottl.exec.operation.client import ClientInfo
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.cursor_registry import OpenCursor
from mongottl.exec.operation.registry import RunningOperation
from mongottl.exec.operation.service import ServiceContext

_MICROS_PER_S: Final = 1_000_000
_TRUNCATED_BYTES: Final = 1024
# Arguments that belong to the connection rather than to the operation.
_NOT_SHOWN: Final = ("$clusterTime", "$readPreference")
# `op` by the command's counter; all others are commands.
_KINDS: Final = {"query": "query", "getmore": "getmore", "insert": "insert", "update": "update", "delete": "remove"}

Described = list[tuple[str, Value]]


class CurrentOpOptions:
    """What `$currentOp` is asked for: connections without a command, sessions and cursors without one."""

    def __init__(self, idle_connections: bool, idle_sessions: bool, idle_cursors: bool, truncate: bool) -> None:
        self.idle_connections = idle_connections
        self.idle_sessions = idle_sessions
        self.idle_cursors = idle_cursors
        self.truncate = truncate


def describe_operations(asking: OperationContext, options: CurrentOpOptions) -> list[bytes]:
    """The documents of `$currentOp`."""
    service = asking.service
    host = service.config.advertise_host or asking.client.local
    shown: list[bytes] = []
    busy_clients: set[int] = set()
    busy_sessions: set[bytes] = set()
    for running in service.operations.all():
        busy_clients.add(running.op.client.connection_id)
        if running.op.session_key is not None:
            busy_sessions.add(running.op.session_key)
        shown.append(encode_fields(_described_operation(service, running, host, options)))
    if options.idle_connections:
        for client in service.clients.values():
            if client.connection_id not in busy_clients:
                idle = _described_client(client, host, active=False)
                idle.append(("currentOpTime", f"{iso_date(asking.now_ms)}+00:00"))
                shown.append(encode_fields(idle))
    if options.idle_sessions:
        for session in service.sessions.all():
            if session.key not in busy_sessions and session.txn_number >= 0:
                parameters: Described = [("txnNumber", Int64(session.txn_number))]
                idle = [("type", "idleSession"), ("host", host), ("desc", "inactive transaction")]
                idle += [("lsid", session.lsid), ("active", False), ("parameters", encode_fields(parameters))]
                shown.append(encode_fields(idle))
    if options.idle_cursors:
        for cursor in service.cursors.all():
            if not cursor.in_use:
                idle = [("type", "idleCursor"), ("host", host), ("ns", cursor.namespace)]
                session_of = None if cursor.session_key is None else service.sessions.find(cursor.session_key)
                if session_of is not None:
                    idle.append(("lsid", session_of.lsid))
                idle.append(("cursor", encode_fields(_described_cursor(cursor))))
                shown.append(encode_fields(idle))
    return shown


def _described_operation(
    service: ServiceContext, running: RunningOperation, host: str, options: CurrentOpOptions
) -> Described:
    op = running.op
    micros = max(int((service.clock.monotonic_s() - running.started_s) * _MICROS_PER_S), 0)
    shown = _described_client(op.client, host, active=True)
    shown.append(("currentOpTime", f"{iso_date(service.clock.now_ms())}+00:00"))
    shown.append(("threaded", True))
    shown.append(("opid", running.opid))
    session = None if op.session_key is None else service.sessions.find(op.session_key)
    if session is not None:
        shown.append(("lsid", session.lsid))
    shown.append(("secs_running", Int64(micros // _MICROS_PER_S)))
    shown.append(("microsecs_running", Int64(micros)))
    shown.append(("op", _KINDS.get(running.counter, "command")))
    command = "$cmd.aggregate" if first_field_name(running.body) == "aggregate" else "$cmd"
    shown.append(("ns", op.used_namespace or f"{op.database}.{command}"))
    shown.append(("redacted", False))
    shown.append(("command", _described_command(running.body, options.truncate)))
    if op.killed:
        shown.append(("killPending", True))
    shown.append(("locks", encode_fields([])))
    shown.append(("waitingForLock", False))
    return shown


def _described_command(body: bytes, truncate: bool) -> Value:
    shown: Described = []
    for name, value in fields(body):
        if name not in _NOT_SHOWN:
            shown.append((name, value))
    command = encode_fields(shown)
    if truncate and len(command) > _TRUNCATED_BYTES:
        return encode_fields([("$truncated", render_document(command)[:_TRUNCATED_BYTES])])
    return command


def _described_client(client: ClientInfo, host: str, active: bool) -> Described:
    shown: Described = [("type", "op"), ("host", host), ("desc", f"conn{client.connection_id}")]
    shown.append(("connectionId", client.connection_id))
    shown.append(("client", client.remote))
    if client.app_name:
        shown.append(("appName", client.app_name))
    if client.metadata is not None:
        shown.append(("clientMetadata", client.metadata))
    shown.append(("active", active))
    return shown


def _described_cursor(cursor: OpenCursor) -> Described:
    return [
        ("cursorId", Int64(cursor.cursor_id)),
        ("noCursorTimeout", cursor.no_timeout),
        ("tailable", cursor.tailable),
        ("awaitData", cursor.await_data),
    ]
