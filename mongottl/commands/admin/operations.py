"""currentOp and killOp: listing and killing running operations.

Source: MongoDB's reference of the two commands.
"""

from typing import Annotated, Final, NamedTuple

from mongottl.commands.access import cluster_needs, needing
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ANY, ONE, Field
from mongottl.document.build import encode_fields
from mongottl.document.numbers import clamp_to_int, is_true, whole
from mongottl.document.types import MISSING, Value, is_number
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.current_op import CurrentOpOptions, describe_operations
from mongottl.query.context import ParseContext
from mongottl.query.expr.parser import type_of
from mongottl.query.match import parse_match
from mongottl.security.privileges import Need

OPID_OUT_OF_RANGE: Final = 26823
_MAX_INT32: Final = 2**31 - 1


class CurrentOpRequest(NamedTuple):
    command: Annotated[Value, Field("currentOp", ONE)]


def _current_op_needs(op: OperationContext, request: CurrentOpRequest) -> list[Need]:
    """Everybody may list their own operations."""
    return [] if is_true(op.command.extra_fields.get("$ownOps", False)) else cluster_needs("inprog")


@command(
    "currentOp",
    CurrentOpRequest,
    access=needing(_current_op_needs),
    help="Lists the operations in progress.",
    admin_only=True,
    strict=False,
)
def current_op(op: OperationContext, request: CurrentOpRequest) -> Reply:
    """`{inprog: [operation]}`; the command's other fields are a filter.

    Idle sessions with an open transaction are among them. `$all`: idle connections, too. `$ownOps`: only
    those of the client's user.
    """
    everything = False
    filter: list[tuple[str, Value]] = []
    for name, value in op.command.extra_fields.items():
        if name == "$all":
            everything = is_true(value)
        elif name not in ("$ownOps", "$truncateOps"):
            filter.append((name, value))
    options = CurrentOpOptions(
        idle_connections=everything,
        idle_sessions=True,
        idle_cursors=False,
        truncate=is_true(op.command.extra_fields.get("$truncateOps", False)),
        own_only=is_true(op.command.extra_fields.get("$ownOps", False)),
    )
    match = parse_match(encode_fields(filter), ParseContext(op.now_ms))
    return {"inprog": [described for described in describe_operations(op, options) if match.matches(described)]}


class KillOpRequest(NamedTuple):
    command: Annotated[Value, Field("killOp", ONE)]
    op: Annotated[Value, Field("op", ANY)] = MISSING


def _kill_op_needs(op: OperationContext, request: KillOpRequest) -> list[Need]:
    """Everybody may kill their own operations."""
    running = op.service.operations.find(clamp_to_int(request.op)) if is_number(request.op) else None
    owner = None if running is None else running.op.client.login
    return [] if owner is not None and owner.user == op.user() else cluster_needs("killop")


@command(
    "killOp",
    KillOpRequest,
    access=needing(_kill_op_needs),
    help="Interrupts an operation.",
    admin_only=True,
    strict=False,
)
def kill_op(op: OperationContext, request: KillOpRequest) -> Reply:
    """Makes an operation fail with Interrupted (11601) at its next step. op: its `opid`; an unknown one is no error.

    NoSuchKey (4) without `op`, TypeMismatch (14) for no number, BadValue (2) for a fraction, 26823 beyond int32.
    """
    if request.op is MISSING:
        raise CommandError(ErrorCode.NoSuchKey, 'Missing expected field "op"')
    if not is_number(request.op):
        raise CommandError(
            ErrorCode.TypeMismatch, f'Expected field "op" to have numeric type, but found {type_of(request.op)}'
        )
    opid = whole(request.op)
    if opid is None:
        raise CommandError(ErrorCode.BadValue, 'Expected field "op" to be representable as an integer')
    if not -_MAX_INT32 - 1 <= opid <= _MAX_INT32:
        raise CommandError(OPID_OUT_OF_RANGE, f"invalid op : {opid}. Op ID cannot be represented with 32 bits")
    op.service.operations.kill(opid)
    return {"info": "attempting to kill op"}
