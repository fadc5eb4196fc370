"""`collectionUUID`: the argument by which a command requires that its collection has a certain UUID.

Source: MongoDB's list of error codes (CollectionUUIDMismatch), and the documentation of its drivers and tools.
"""

from mongottl.catalog.collection import Collection
from mongottl.catalog.view import View
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext


def check_uuid(
    op: OperationContext, command: str, uuid: Value, database: str, name: str, collection: Collection | None
) -> None:
    """CollectionUUIDMismatch (361) unless the collection is the one that `collectionUUID` names."""
    if uuid is None:
        return
    if collection is None or collection.uuid != uuid:
        other = op.catalog.with_uuid(database, uuid)
        raise CommandError(
            ErrorCode.CollectionUUIDMismatch,
            "Collection UUID does not match that specified",
            {
                "db": database,
                "collectionUUID": uuid,
                "expectedCollection": name,
                "actualCollection": None if other is None else other.name,
            },
        )


def check_uuid_of(op: OperationContext, command: str, uuid: Value, name: str) -> None:
    """CollectionUUIDMismatch (361) unless the collection of this name in the command's database has the UUID.

    A view has no UUID, so it never matches.
    """
    if uuid is not None:
        found = op.catalog.find(op.database, name)
        check_uuid(op, command, uuid, op.database, name, None if isinstance(found, View) else found)


def mismatch_in_batch(op: OperationContext, command: str, uuid: Value, name: str) -> CommandError | None:
    """The CollectionUUIDMismatch (361) of a write batch, which is reported for its statements; None without one."""
    try:
        check_uuid_of(op, command, uuid, name)
    except CommandError as error:
        if error.code != ErrorCode.CollectionUUIDMismatch:
            raise
        return error
    return None
