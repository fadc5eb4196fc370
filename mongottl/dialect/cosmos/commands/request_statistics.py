"""getLastRequestStatistics and getRequestUnits: what requests cost, in the dialect `cosmos`.

Source: Microsoft's "Get the request unit charge for operations executed in Azure Cosmos DB for MongoDB"; for the fields
that it does not show, replies of 2023 that are recorded in github.com/cjoakim/azure-cosmos-db (apis/mongo/java). The
second command is this server's own.
"""

from typing import Annotated, NamedTuple

from mongottl.commands.access import USERS, on_cluster
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ANY, BOOL_FIELD, ONE, Field
from mongottl.dialect.cosmos.commands.configuration import account_of
from mongottl.dialect.cosmos.wording import activity_id
from mongottl.document.build import encode
from mongottl.document.types import Int64, Value
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.state.request_units import HUNDREDTHS, UnitsReport


class GetLastRequestStatisticsRequest(NamedTuple):
    command: Annotated[Value, Field("getLastRequestStatistics", ANY)]


@command(
    "getLastRequestStatistics",
    GetLastRequestStatisticsRequest,
    access=USERS,
    help="Returns what the last operation of this connection has cost.",
    aliases=("GetLastRequestStatistics",),
)
def get_last_request_statistics(op: OperationContext, request: GetLastRequestStatisticsRequest) -> Reply:
    """`{CommandName, RequestCharge, RequestDurationInMilliSeconds, EstimatedDelayFromRateLimitingInMilliseconds,
    RetriedDueToRateLimiting, ActivityId}`: "" and zeros before the first operation that reads or writes documents
    (assumed). The delay is how long it has waited in the server because of throttling."""
    account_of(op)
    last = op.client.last_request
    return {
        "CommandName": last.command,
        "RequestCharge": last.hundredths / HUNDREDTHS,
        "RequestDurationInMilliSeconds": Int64(last.duration_ms),
        "EstimatedDelayFromRateLimitingInMilliseconds": Int64(last.delay_ms),
        "RetriedDueToRateLimiting": last.waited,
        "ActivityId": activity_id(),
    }


class GetRequestUnitsRequest(NamedTuple):
    command: Annotated[Value, Field("getRequestUnits", ONE)]
    reset: Annotated[bool, Field("reset", BOOL_FIELD)] = False


@command(
    "getRequestUnits",
    GetRequestUnitsRequest,
    access=on_cluster("serverStatus"),
    help="Returns what all operations have cost, by command and namespace.",
)
def get_request_units(op: OperationContext, request: GetRequestUnitsRequest) -> Reply:
    """`{total, requests, throttled, operations: [{command, ns, requests, charge, throttled}]}`, the most expensive
    first.

    throttled: how many requests, and statements of batches, were refused with 16500. reset: whether to begin again from
    zero.
    """
    account_of(op)
    units = op.service.request_units
    report = units.report()
    if request.reset:
        units.reset()
    return described(report)


def described(report: UnitsReport) -> dict[str, Value]:
    """A report as the reply of `getRequestUnits`."""
    rows: list[Value] = [
        encode(
            {
                "command": row.command,
                "ns": row.namespace,
                "requests": row.requests,
                "charge": row.charge,
                "throttled": row.throttled,
            }
        )
        for row in report.rows
    ]
    return {
        "total": report.total,
        "requests": report.requests,
        "throttled": report.throttled,
        "operations": rows,
    }
