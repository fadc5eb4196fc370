"""The gateway of the dialect `cosmos`: every command runs through it, and is refused by it when it is throttled.

    Dispatcher ──► Gateway.execute ──► the command's function
                        │                      └── of a batch: StatementGate.admit, before each statement
                        └── fail points: cosmosThrottle, cosmosTimeout, cosmosUnavailable

In the dialect `mongodb` there is none.
"""

from typing import Any

from mongottl.commands import CommandSpec, Reply
from mongottl.commands.admin.handshake import app_name
from mongottl.commands.crud.write_batch import WHOLE_COMMAND_ERRORS, WriteErrors
from mongottl.document.types import Int64, Value
from mongottl.errors import CommandError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.cosmos_fail_points import THROTTLE
from mongottl.exec.operation.service import ServiceContext
from mongottl.exec.operation.signal import Signal
from mongottl.exec.operation.statement_gate import StatementGate
from mongottl.exec.operation.steps import Steps, Wait
from mongottl.exec.results.cursors import ClientCursor
from mongottl.exec.results.reading import add_resume_token
from mongottl.exec.results.tailing import DEFAULT_AWAIT_S


class Gateway:
    """Runs the commands of one server that stands for Cosmos DB."""

    def __init__(self, service: ServiceContext) -> None:
        self._service = service

    def execute(self, spec: CommandSpec, op: OperationContext, request: Any) -> Reply | Steps[Reply]:
        """What the command's function returns, unless the command is refused; CommandError if it is."""
        points = self._service.fail_points
        if not points.cosmos:
            return spec.function(op, request)
        statements = _statements(spec, request)
        client = app_name(op, spec, op.body)
        on_documents = spec.latency != "commands"
        point = points.triggered_cosmos(spec.names, on_documents, op.used_namespace, client, statements)
        if point is None:
            return spec.function(op, request)
        is_batch = spec.batch_at >= 0
        error = point.error(spec.counter.capitalize() if is_batch else "Query", statements)
        if is_batch and statements > 1:
            op.gate = StatementGate({point.item: error})
            return spec.function(op, request)
        if is_batch and error.code not in WHOLE_COMMAND_ERRORS:
            return _failed_statement(spec, error)
        if point.name == THROTTLE:
            stream = self._change_stream(spec, request)
            if stream is not None:
                return _empty_page(op, stream)
        raise error

    def _change_stream(self, spec: CommandSpec, request: Any) -> ClientCursor | None:
        """The change stream of a getMore; None for other cursors and commands."""
        if spec.name != "getMore" or not isinstance(request.cursor_id, Int64):
            return None
        cursor = self._service.cursors.find(int(request.cursor_id))
        if isinstance(cursor, ClientCursor) and cursor.tail is not None and cursor.tail.reads_changes:
            return cursor
        return None


def _statements(spec: CommandSpec, request: Any) -> int:
    """How many statements a batch has; 1 for other commands."""
    return len(request[spec.batch_at]) if spec.batch_at >= 0 else 1


def _failed_statement(spec: CommandSpec, error: CommandError) -> Reply:
    """The reply to a batch whose only statement is refused."""
    errors = WriteErrors()
    errors.add(0, error)
    reply: dict[str, Value] = {"n": 0}
    if spec.name == "update":
        reply["nModified"] = 0
    return errors.add_to(reply)


def _empty_page(op: OperationContext, cursor: ClientCursor) -> Steps[Reply]:
    """The reply to a throttled getMore of a change stream, after as long as it would wait for an event."""
    op.waits_for = Signal()
    yield Wait(op.time_left_s() if op.has_max_time else DEFAULT_AWAIT_S, op.waits_for)
    op.waits_for = None
    if op.killed or op.service.stopping:
        op.check_interrupt()
    page: list[Value] = []
    reply: dict[str, Value] = {"nextBatch": page}
    assert cursor.tail is not None
    add_resume_token(reply, cursor.tail)
    return {"cursor": {**reply, "id": Int64(cursor.cursor_id), "ns": cursor.namespace}}
