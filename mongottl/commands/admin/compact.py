"""compact and autoCompact: give unused space of the database file back to the system.

All collections share one file, so both work on the whole of it. Without a data folder there is nothing to give back.

Source: MongoDB's reference of each.
"""

from functools import partial
from typing import Annotated, Final, NamedTuple

from mongottl.catalog.namespace import check_collection_name
from mongottl.commands.access import on_cluster, on_collection
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import BOOL_FIELD, COLLECTION, INTEGER, STRICT_BOOL, Field
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.state.compaction import DEFAULT_TARGET_MB
from mongottl.storage.errors import DiskFull

_BYTES_PER_MB: Final = 1 << 20
_MAX_BYTES: Final = (1 << 63) - 1
# Rows of dropped collections whose space is freed in one step.
_DROP_BATCH: Final = 1000


class CompactRequest(NamedTuple):
    collection: Annotated[str, Field("compact", COLLECTION)]
    dry_run: Annotated[bool, Field("dryRun", BOOL_FIELD)] = False
    force: Annotated[bool, Field("force", BOOL_FIELD)] = False
    target_mb: Annotated[int | None, Field("freeSpaceTargetMB", INTEGER)] = None


@command(
    "compact",
    CompactRequest,
    access=on_collection("compact"),
    help="Gives unused space of the database file back to the system.",
    writes=True,
)
def compact(op: OperationContext, request: CompactRequest) -> Reply:
    """`{bytesFreed}`, or `{estimatedBytesFreed}` with `dryRun`: of the whole file; 0 if less than `freeSpaceTargetMB`
    (20) is unused. Other operations go on meanwhile. A folder of a version that could not give back space is rewritten
    once, during which commands that write wait.

    NamespaceNotFound (26); IllegalOperation (20) without `force`, which MongoDB requires on a primary; ObjectIsBusy
    (314) while a backup is made; OutOfDiskSpace (14031) if there is no room to rewrite the file.
    """
    op.check_database()
    check_collection_name(op.database, request.collection)
    _check_target(request.target_mb)
    if not request.force:
        raise CommandError(
            ErrorCode.IllegalOperation,
            "will not run compact on an active replica set primary as this will slow down the primary; use force:true",
        )
    if op.catalog.lookup(op.database, request.collection) is None:
        raise CommandError(
            ErrorCode.NamespaceNotFound, f"collection does not exist: {op.database}.{request.collection}"
        )
    target_bytes = (request.target_mb or DEFAULT_TARGET_MB) * _BYTES_PER_MB
    engine = op.service.engine
    if request.dry_run:
        unused_bytes = engine.unused_bytes
        return {"estimatedBytesFreed": unused_bytes if unused_bytes >= target_bytes else 0}
    while engine.drop_some(_DROP_BATCH):
        op.check_interrupt()
        op.give_way()
    if not 0 < engine.unused_bytes >= target_bytes:
        return {"bytesFreed": 0}
    return {"bytesFreed": _give_back(op)}


def _give_back(op: OperationContext) -> int:
    """Gives all unused space back; how many bytes that were."""
    engine = op.service.engine
    if engine.must_rewrite:
        try:
            return op.in_thread(partial(engine.rewrite, op.check_interrupt), without_writers=True)
        except DiskFull as error:
            # Nothing that clients write has failed.
            raise CommandError(ErrorCode.OutOfDiskSpace, f"compact: {error}") from error
    given_bytes = 0
    while given := op.service.compaction.reclaim():
        given_bytes += given
        op.check_interrupt()
        op.give_way()
    if not given_bytes:
        raise CommandError(ErrorCode.ObjectIsBusy, "compact: a backup is being made, or the disk is full; try again")
    return given_bytes


class AutoCompactRequest(NamedTuple):
    turns_on: Annotated[bool, Field("autoCompact", STRICT_BOOL)]
    target_mb: Annotated[int | None, Field("freeSpaceTargetMB", INTEGER)] = None
    run_once: Annotated[bool, Field("runOnce", STRICT_BOOL)] = False


@command(
    "autoCompact",
    AutoCompactRequest,
    access=on_cluster("compact"),
    help="Gives unused space of the database file back in the background, from an amount on, until it is turned off.",
    admin_only=True,
)
def auto_compact(op: OperationContext, request: AutoCompactRequest) -> Reply:
    """It begins when `freeSpaceTargetMB` (20) are unused, and gives all back; with `runOnce` it then turns itself off.
    A restart turns it off.

    BadValue (2) for a target below 1 MB or beyond an int64 of bytes, and while it is on with other options;
    IllegalOperation (20) if the folder has to be rewritten by `compact` first.
    """
    _check_target(request.target_mb)
    compaction = op.service.compaction
    if not request.turns_on:
        compaction.turn_off()
        return {}
    target_bytes = (DEFAULT_TARGET_MB if request.target_mb is None else request.target_mb) * _BYTES_PER_MB
    if target_bytes > _MAX_BYTES:
        raise CommandError(
            ErrorCode.BadValue, f"freeSpaceTargetMB: {request.target_mb} MB do not fit in an int64 of bytes"
        )
    if compaction.target_bytes:
        if (compaction.target_bytes, compaction.run_once) != (target_bytes, request.run_once):
            raise CommandError(
                ErrorCode.BadValue,
                "autoCompact is on with other options; turn it off with autoCompact: false before you change them",
            )
        return {}
    if op.service.engine.must_rewrite:
        raise CommandError(
            ErrorCode.IllegalOperation,
            "the data folder was made by a version that could not give back space; run compact once, which rewrites it",
        )
    compaction.turn_on(target_bytes, request.run_once)
    return {}


def _check_target(target_mb: int | None) -> None:
    if target_mb is not None and target_mb < 1:
        raise CommandError(
            ErrorCode.BadValue, f"BSON field 'freeSpaceTargetMB' value must be >= 1, actual value '{target_mb}'"
        )
