"""getDefaultRWConcern and setDefaultRWConcern: the defaults for commands without read or write concern.

On a server with one member all levels have the same effect, except `j: true`: with this default every write waits for
the disk. The defaults are kept in memory until the server ends; MongoDB stores them.

Source: MongoDB's reference of the two commands.
"""

from typing import Annotated, Final, NamedTuple

from mongottl.commands.access import on_cluster
from mongottl.commands.concerns import parse_read_concern, parse_write_concern
from mongottl.commands.registry import COMMANDS, Reply, command
from mongottl.commands.request import DOCUMENT_FIELD, ONE, STRICT_BOOL, Field
from mongottl.document.build import encode
from mongottl.document.types import MISSING, Date, Value
from mongottl.document.walk import fields, get_value, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext

_IMPLICIT_READ: Final = encode({"level": "local"})
_IMPLICIT_WRITE: Final = encode({"w": "majority", "wtimeout": 0})
_DEFAULT_LEVELS: Final = ("local", "available", "majority")


class GetDefaultRWConcernRequest(NamedTuple):
    command: Annotated[Value, Field("getDefaultRWConcern", ONE)]
    in_memory: Annotated[bool, Field("inMemory", STRICT_BOOL)] = False


@command(
    "getDefaultRWConcern",
    GetDefaultRWConcernRequest,
    access=on_cluster("getDefaultRWConcern"),
    help="Returns the default read concern and write concern.",
    admin_only=True,
)
def get_default_rw_concern(op: OperationContext, request: GetDefaultRWConcernRequest) -> Reply:
    reply = described_defaults(op)
    if request.in_memory:
        reply["inMemory"] = True
    return reply


class SetDefaultRWConcernRequest(NamedTuple):
    command: Annotated[Value, Field("setDefaultRWConcern", ONE)]
    read: Annotated[bytes | None, Field("defaultReadConcern", DOCUMENT_FIELD)] = None
    write: Annotated[bytes | None, Field("defaultWriteConcern", DOCUMENT_FIELD)] = None


@command(
    "setDefaultRWConcern",
    SetDefaultRWConcernRequest,
    access=on_cluster("setDefaultRWConcern"),
    help="Sets the default read concern and write concern.",
    admin_only=True,
    writes=True,
)
def set_default_rw_concern(op: OperationContext, request: SetDefaultRWConcernRequest) -> Reply:
    """An empty read concern removes the default; a default write concern cannot be removed: IllegalOperation (20).

    BadValue (2) without either, for a level that cannot be a default, and for a write concern without acknowledgement
    or without `w`; UnknownReplWriteConcern (79) for an unknown mode, in the command's own write concern, too.
    """
    own = get_value(op.command.body, "writeConcern") if op.command.body else MISSING
    if isinstance(own, bytes):
        _check_mode(get_value(own, "w"))
    if request.read is None and request.write is None:
        raise CommandError(
            ErrorCode.BadValue,
            'At least one of the "defaultReadConcern" or "defaultWriteConcern" fields must be present',
        )
    defaults = op.service.settings.concerns
    read = defaults.read
    if request.read is not None:
        read = _checked_read(request.read)
    write = defaults.write
    if request.write is not None:
        write = _checked_write(request.write, defaults.write is not None)
    defaults.read = read
    defaults.write = write
    defaults.updated_ms = op.now_ms
    defaults.updated_at = op.service.cluster_clock.tick(op.now_ms).timestamp
    op.service.settings.save()
    return described_defaults(op)


def _checked_read(concern: bytes) -> bytes | None:
    if is_empty(concern):
        return None
    parse_read_concern(COMMANDS["find"], concern)
    for name, value in fields(concern):
        if name != "level":
            raise CommandError(ErrorCode.BadValue, f"'{name}' is not suitable for the default read concern")
        if value not in _DEFAULT_LEVELS:
            raise CommandError(ErrorCode.BadValue, f"level: {value} is not suitable for the default read concern")
    return concern


def _checked_write(concern: bytes, is_set: bool) -> bytes | None:
    if is_empty(concern):
        if is_set:
            raise CommandError(
                ErrorCode.IllegalOperation, "The global default write concern cannot be unset once it is set."
            )
        return None
    parsed = parse_write_concern(COMMANDS["setDefaultRWConcern"], concern, True)
    members = get_value(concern, "w")
    if members is MISSING:
        raise CommandError(ErrorCode.BadValue, "The default write concern must have 'w'")
    _check_mode("" if members is None else members)
    if parsed.silent:
        raise CommandError(ErrorCode.BadValue, "Unacknowledged write concern is not suitable for the default")
    if parsed.error is not None:
        raise CommandError(ErrorCode.BadValue, f"{parsed.error['errmsg']}: not suitable for the default write concern")
    checked: dict[str, Value] = {"w": 1, "wtimeout": 0}
    for name, value in fields(concern):
        if name == "provenance":
            raise CommandError(ErrorCode.BadValue, "'provenance' must be unset for the default write concern")
        checked[name] = value
    return encode(checked)


def _check_mode(members: Value) -> None:
    """UnknownReplWriteConcern (79) for the name of a mode that a replica set of one member does not have."""
    if isinstance(members, str) and members != "majority":
        raise CommandError(
            ErrorCode.UnknownReplWriteConcern,
            f"No write concern mode named '{members}' found in replica set configuration",
        )


def described_defaults(op: OperationContext) -> dict[str, Value]:
    defaults = op.service.settings.concerns
    reply: dict[str, Value] = {
        "defaultReadConcern": defaults.read or _IMPLICIT_READ,
        "defaultWriteConcern": defaults.write or _IMPLICIT_WRITE,
    }
    if defaults.updated_at is not None:
        reply["updateOpTime"] = defaults.updated_at
        reply["updateWallClockTime"] = Date(defaults.updated_ms)
    reply["defaultWriteConcernSource"] = "global" if defaults.write is not None else "implicit"
    reply["defaultReadConcernSource"] = "global" if defaults.read is not None else "implicit"
    reply["localUpdateWallClockTime"] = Date(defaults.updated_ms or op.service.started_ms)
    return reply
