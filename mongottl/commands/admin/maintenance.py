"""fsync, fsyncUnlock, logRotate, shutdown and features.

fsync with `lock: true` makes commands that write wait, and TTL deletion too, until fsyncUnlock has been called as
often.

Source: MongoDB's reference of these commands.
"""

from typing import Annotated, Final, NamedTuple

from mongottl.commands.access import USERS, on_cluster
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import BOOL_FIELD, INT32_FIELD, INTEGER, ONE, Field
from mongottl.document.bson_field import wrong_type
from mongottl.document.types import Int64, Value, is_number
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext

_SEE_ALSO: Final = "https://www.mongodb.com/docs/manual/reference/command/fsync/"
_LOCAL: Final = ("127.", "[::1]", "::1")


class FsyncRequest(NamedTuple):
    command: Annotated[Value, Field("fsync", ONE)]
    lock: Annotated[bool, Field("lock", BOOL_FIELD)] = False
    # How long mongod waits for operations that hold locks; here none does.
    lock_timeout_ms: Annotated[int | None, Field("fsyncLockAcquisitionTimeoutMillis", INT32_FIELD)] = None


@command(
    "fsync",
    FsyncRequest,
    access=on_cluster("fsync"),
    help="Puts all data on disk; with lock: true, writes then wait for fsyncUnlock.",
    admin_only=True,
)
def fsync(op: OperationContext, request: FsyncRequest) -> Reply:
    """`{numFiles: 1}`, or `{info, lockCount, seeAlso}` with `lock`.

    IllegalOperation (20) for a lock where other servers have the same store: it would hold off the writes of one alone.
    """
    service = op.service
    if request.lock and service.settings.is_shared:
        raise CommandError(
            ErrorCode.IllegalOperation,
            "fsync with lock holds off the writes of one server, not those of all nodes of a store;"
            " setUserWriteBlockMode does",
        )
    if request.lock:
        service.fsync_locks += 1
    try:
        op.flush()
    except BaseException:
        if request.lock:
            release_fsync_lock(op)
        raise
    if not request.lock:
        return {"numFiles": 1}
    return {
        "info": "now locked against writes, use db.fsyncUnlock() to unlock",
        "lockCount": Int64(service.fsync_locks),
        "seeAlso": _SEE_ALSO,
    }


def release_fsync_lock(op: OperationContext) -> None:
    op.service.fsync_locks -= 1
    if not op.service.fsync_locks:
        op.service.hooks.wake_reaper()


class FsyncUnlockRequest(NamedTuple):
    command: Annotated[Value, Field("fsyncUnlock", ONE)]


@command(
    "fsyncUnlock",
    FsyncUnlockRequest,
    access=on_cluster("unlock"),
    help="Ends a lock of fsync; after the last one, writes go on.",
    admin_only=True,
    strict=False,
)
def fsync_unlock(op: OperationContext, request: FsyncUnlockRequest) -> Reply:
    """`{info, lockCount}`: how many locks are left. IllegalOperation (20) if there is none."""
    if not op.service.fsync_locks:
        raise CommandError(ErrorCode.IllegalOperation, "fsyncUnlock called when not locked")
    release_fsync_lock(op)
    return {"info": "fsyncUnlock completed", "lockCount": Int64(op.service.fsync_locks)}


class LogRotateRequest(NamedTuple):
    target: Annotated[Value, Field("logRotate", ONE)]


@command(
    "logRotate",
    LogRotateRequest,
    access=on_cluster("logRotate"),
    help="Does nothing: the log goes to standard error, and whoever reads that rotates it.",
    admin_only=True,
)
def log_rotate(op: OperationContext, request: LogRotateRequest) -> Reply:
    """A bool, a number or "server". TypeMismatch (14) for another type, NoSuchKey (4) for another log."""
    target = request.target
    if not isinstance(target, (bool, str)) and not is_number(target):
        raise wrong_type("logRotate.logRotate", target, "[bool, long, int, decimal, double, string]")
    if isinstance(target, str) and target != "server":
        raise CommandError(ErrorCode.NoSuchKey, f"Unknown log type for rotate: {target}")
    return {}


class ShutdownRequest(NamedTuple):
    command: Annotated[Value, Field("shutdown", ONE)]
    force: Annotated[bool, Field("force", BOOL_FIELD)] = False
    timeout_s: Annotated[int, Field("timeoutSecs", INTEGER)] = 15


@command(
    "shutdown",
    ShutdownRequest,
    access=on_cluster("shutdown"),
    help="Stops the server, after the requests in progress are answered.",
    admin_only=True,
)
def shutdown(op: OperationContext, request: ShutdownRequest) -> Reply:
    """Unauthorized (13) from another machine unless users are checked (`--auth`).

    There are no other members to wait for, so `force` and `timeoutSecs` make no difference.
    """
    if op.client.login is None and not op.client.remote.startswith(_LOCAL):
        raise CommandError(ErrorCode.Unauthorized, "shutdown must run from localhost when running db without auth")
    op.service.hooks.request_stop()
    return {}


class FeaturesRequest(NamedTuple):
    command: Annotated[Value, Field("features", ONE)]


@command(
    "features",
    FeaturesRequest,
    access=USERS,
    help="Returns the part of ObjectIds that is the server's own.",
    strict=False,
)
def features(op: OperationContext, request: FeaturesRequest) -> Reply:
    return {"oidMachine": op.service.object_ids.machine}
