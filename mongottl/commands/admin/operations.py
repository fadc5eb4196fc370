"""currentOp and killOp: listing and killing running operations.

Source: MongoDB's reference of the two commands.
"""

import re
from functools import partial
from typing import Annotated, Final, NamedTuple

from mongottl.commands.access import cluster_needs, needing
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ANY, ONE, Field
from mongottl.document.build import DocumentsOfReply, encode_fields
from mongottl.document.numbers import clamp_to_int, is_true, whole
from mongottl.document.types import MISSING, Value, is_number
from mongottl.errors import CommandError, ErrorCode, shortened
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.current_op import CurrentOpOptions, describe_operations
from mongottl.exec.operation.node_messages import kill_elsewhere
from mongottl.query.context import ParseContext
from mongottl.query.expr.parser import type_of
from mongottl.query.match import parse_match
from mongottl.security.privileges import Need

OPID_OUT_OF_RANGE: Final = 26823
OPID_FORM: Final = 28625
_MAX_INT32: Final = 2**31 - 1
# An operation of one of several servers with the same store.
_NODE_OPID: Final = re.compile(r"([0-9]{1,10}):([0-9]{1,10})")


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
    return {"inprog": op.compute(partial(_listed, op))}


def _listed(op: OperationContext) -> list[Value]:
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
    found = DocumentsOfReply()
    for described in describe_operations(op, options):
        if match.matches(described):
            found.append(described)
    return found.documents


class KillOpRequest(NamedTuple):
    command: Annotated[Value, Field("killOp", ONE)]
    op: Annotated[Value, Field("op", ANY)] = MISSING


def _kill_op_needs(op: OperationContext, request: KillOpRequest) -> list[Need]:
    """Everybody may kill their own operations on this server."""
    running = None
    if is_number(request.op):
        running = op.service.operations.find(clamp_to_int(request.op))
    elif isinstance(request.op, str):
        named = _NODE_OPID.fullmatch(request.op)
        if named is not None and int(named[1]) == _own_number(op):
            running = op.service.operations.find(int(named[2]))
    owner = None if running is None else running.op.client.login
    return [] if owner is not None and owner.user == op.user() else cluster_needs("killop")


def _own_number(op: OperationContext) -> int:
    """The number of this server among those of the same store; 0 where no others can have it."""
    nodes = op.service.engine.shared_nodes
    return 0 if nodes is None else nodes.number


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

    Where several servers have the same store, also `node:opid`, which may be an operation of another one: 28625 for a
    text of another form, ShardNotFound (70) for an unknown server.

    NoSuchKey (4) without `op`, TypeMismatch (14) for no number, BadValue (2) for a fraction, 26823 beyond int32.
    """
    if request.op is MISSING:
        raise CommandError(ErrorCode.NoSuchKey, 'Missing expected field "op"')
    if isinstance(request.op, str) and _own_number(op):
        _kill_on_node(op, request.op)
        return {"info": "attempting to kill op"}
    if not is_number(request.op):
        raise CommandError(
            ErrorCode.TypeMismatch, f'Expected field "op" to have numeric type, but found {type_of(request.op)}'
        )
    opid = whole(request.op)
    if opid is None:
        raise CommandError(ErrorCode.BadValue, 'Expected field "op" to be representable as an integer')
    _check_range(opid)
    op.service.operations.kill(opid)
    return {"info": "attempting to kill op"}


def _check_range(opid: int) -> None:
    if not -_MAX_INT32 - 1 <= opid <= _MAX_INT32:
        raise CommandError(OPID_OUT_OF_RANGE, f"invalid op : {opid}. Op ID cannot be represented with 32 bits")


def _kill_on_node(op: OperationContext, text: str) -> None:
    named = _NODE_OPID.fullmatch(text)
    if named is None:
        raise CommandError(
            OPID_FORM, f'The op argument to killOp must be of the format shardid:opid but found "{shortened(text)}"'
        )
    node, opid = int(named[1]), int(named[2])
    _check_range(opid)
    if node == _own_number(op):
        op.service.operations.kill(opid)
    elif not kill_elsewhere(op.service, node, opid):
        raise CommandError(ErrorCode.ShardNotFound, f"Shard {node} not found")
