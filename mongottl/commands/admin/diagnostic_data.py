"""getDiagnosticData: what monitoring agents ask for in one command.

Source: MongoDB's manual, "Full Time Diagnostic Data Capture"; the exporter of Percona for Prometheus reads its fields.
"""

from collections.abc import Callable
from typing import Annotated, NamedTuple

from mongottl.commands.access import cluster_needs, namespace_needs, needing
from mongottl.commands.admin.replica_set import describe_status
from mongottl.commands.admin.server_status import describe_server
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ONE, Field
from mongottl.document.types import Date, Value
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.results.sizes import describe_size
from mongottl.oplog.records import DATABASE, NAME, NAMESPACE
from mongottl.security.privileges import Need


class GetDiagnosticDataRequest(NamedTuple):
    command: Annotated[Value, Field("getDiagnosticData", ONE)]


def _needs(op: OperationContext, request: GetDiagnosticDataRequest) -> list[Need]:
    return cluster_needs("serverStatus", "replSetGetStatus") + namespace_needs(NAMESPACE, "collStats")


@command(
    "getDiagnosticData",
    GetDiagnosticDataRequest,
    access=needing(_needs),
    help="Returns serverStatus, replSetGetStatus and the size of the oplog, each with its time.",
    admin_only=True,
)
def get_diagnostic_data(op: OperationContext, request: GetDiagnosticDataRequest) -> Reply:
    """`{data: {start, serverStatus: {start, …, end}, replSetGetStatus, "local.oplog.rs.stats", end}}`."""
    start = _now(op)
    parts: dict[str, Value] = {
        "serverStatus": _timed(op, lambda: describe_server(op)),
        "replSetGetStatus": _timed(op, lambda: describe_status(op)),
        f"{NAMESPACE}.stats": _timed(op, lambda: _oplog_size(op)),
    }
    return {"data": {"start": start, **parts, "end": _now(op)}}


def _timed(op: OperationContext, part: Callable[[], dict[str, Value]]) -> Value:
    start = _now(op)
    return {"start": start, **part(), "end": _now(op)}


def _now(op: OperationContext) -> Date:
    return Date(op.service.clock.now_ms())


def _oplog_size(op: OperationContext) -> dict[str, Value]:
    collection = op.catalog.lookup(DATABASE, NAME)
    return {"ns": NAMESPACE, **describe_size(op.recovery_unit, collection, op.now_s, 1)}
