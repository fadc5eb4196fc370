"""mongottlBackup: a copy of the stored database, as of one moment, for `mongottl backup`.

The copy is made in the data directory, by another thread, while clients write. Its file has no name from then on, so
nothing of it remains however the server ends; a cursor reads it piece by piece.
"""

from typing import Annotated, Final, NamedTuple

from mongottl.commands.access import needing
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ONE, Field
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.results.cursors import ClientCursor
from mongottl.exec.results.database_copy import DatabaseCopy, DatabaseCopyPages
from mongottl.exec.results.reading import first_reply
from mongottl.security.privileges import ALL_DATABASES, Need, collection_resource, database_resource

_NAMESPACE: Final = "admin.$cmd.mongottlBackup"


class BackupRequest(NamedTuple):
    command: Annotated[Value, Field("mongottlBackup", ONE)]


def _backup_needs(op: OperationContext, request: BackupRequest) -> list[Need]:
    """What somebody must be allowed who may read everything, as the roles `backup` and `root` are."""
    resources = [
        ALL_DATABASES,
        database_resource("config"),
        database_resource("local"),
        collection_resource("admin", "system.users"),
        collection_resource("admin", "system.roles"),
    ]
    return [Need(resource, "find") for resource in resources]


@command(
    "mongottlBackup",
    BackupRequest,
    access=needing(_backup_needs),
    help="Returns a copy of the stored database as of one moment, as a cursor; for `mongottl backup`.",
    admin_only=True,
)
def backup(op: OperationContext, request: BackupRequest) -> Reply:
    """A cursor over {file: <name>, bytes: <length>, sha256: <hex>} and then {offset, data}, in order.

    IllegalOperation (20) without a data directory. OutOfDiskSpace (14031) if the copy does not fit beside the data.
    """
    folder = op.service.engine.folder
    if op.service.engine.suspends:
        raise CommandError(
            ErrorCode.IllegalOperation,
            "the server keeps its data in PostgreSQL, whose tools copy it: pg_dump, or pg_basebackup",
        )
    if folder is None or not op.service.engine.can_copy:
        raise CommandError(
            ErrorCode.IllegalOperation,
            "the server keeps its data in memory, so that there is no stored database; mongodump copies its documents",
        )
    copy = DatabaseCopy(op, folder)
    try:
        op.in_thread(copy.make)
        op.check_interrupt()
        pages = DatabaseCopyPages(copy)
    except BaseException:
        copy.close()
        raise
    cursor = ClientCursor(_NAMESPACE, pages, op.session_key, op.service.clock.monotonic_s())
    return first_reply(op, cursor, 1)
