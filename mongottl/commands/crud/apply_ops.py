"""applyOps: carries out operations in the form in which the oplog has them. mongorestore uses it, to create collections
with the UUIDs that they had, and to apply the oplog of the time during which a dump was made.

What an operation asks for may have happened already, or be gone again, since the dump may have been made before or
after it: a document that is inserted may exist, one that is deleted or changed by a diff may be missing. The document
that an update replaces has to exist, unless the operation has `b: true`.

Source: MongoDB's applyOps command reference, and the requests of its database tools.
"""

from typing import Annotated, Any, Final, NamedTuple

from mongottl.catalog.collection import Collection
from mongottl.catalog.namespace import check_collection_name, split_namespace
from mongottl.commands.access import cluster_needs, needing, write_needs
from mongottl.commands.crud.update import upsert_or_update
from mongottl.commands.crud.write_batch import check_batch, ends_command
from mongottl.commands.ddl.collections import RenameCollectionRequest
from mongottl.commands.ddl.create import CreateRequest, create_with_uuid
from mongottl.commands.ddl.databases import DropDatabaseRequest
from mongottl.commands.query_context import context_of
from mongottl.commands.registry import COMMANDS, CommandSpec, Reply, command
from mongottl.commands.request import GIVEN_DOCUMENTS, INTEGER, STRICT_BOOL, Field, GenericArguments
from mongottl.commands.request_fields import BypassValidation
from mongottl.document.build import encode_fields
from mongottl.document.freeing import freed_in_slices
from mongottl.document.types import MISSING, BinData, Value
from mongottl.document.walk import find_field, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.write_options import write_options
from mongottl.exec.write.modifying import Selection, delete_one, update_one
from mongottl.oplog import operations as ops
from mongottl.oplog.operations import Operation, contained, read_operation
from mongottl.oplog.records import NAMESPACE as OPLOG
from mongottl.oplog.records import refused_write
from mongottl.query.match import parse_match
from mongottl.query.update import LoggedReplacement, parse_logged_update
from mongottl.security.privileges import INSERT, REMOVE, UPDATE, Need

_MAX_NESTING: Final = 10
# mongod's codes for options that it has no longer.
_NO_PARTIAL: Final = 31056
_NO_COUNT: Final = 31240
_NO_PRECONDITION: Final = 6711600
_NO_UPSERT: Final = 6711601


class ApplyOpsRequest(NamedTuple):
    """Other fields are ignored, among them `allowAtomic`: the operations have not been atomic since MongoDB 7.0."""

    operations: Annotated[list[bytes], Field("applyOps", GIVEN_DOCUMENTS)]
    bypass: BypassValidation = False
    always_upsert: Annotated[bool, Field("alwaysUpsert", STRICT_BOOL)] = False
    prepare: Annotated[bool | None, Field("prepare", STRICT_BOOL)] = None
    partial: Annotated[bool | None, Field("partialTxn", STRICT_BOOL)] = None
    size: Annotated[int | None, Field("count", INTEGER)] = None

    @property
    def whole_server(self) -> bool:
        """Whether it may change any collection."""
        return True


# The commands that are carried out, with the errors which say that what they ask for has happened already.
_COMMANDS: Final[dict[str, tuple[int, ...]]] = {
    "create": (),
    "drop": (ErrorCode.NamespaceNotFound,),
    "dropDatabase": (),
    "renameCollection": (ErrorCode.NamespaceNotFound,),
    "collMod": (ErrorCode.NamespaceNotFound, ErrorCode.IndexNotFound),
    "convertToCapped": (ErrorCode.NamespaceNotFound,),
    "emptycapped": (ErrorCode.NamespaceNotFound,),
    "dropIndexes": (ErrorCode.NamespaceNotFound, ErrorCode.IndexNotFound),
    "deleteIndexes": (ErrorCode.NamespaceNotFound, ErrorCode.IndexNotFound),
}
# In MongoDB, too, indexes are created by the command.
_INDEX_BUILDS: Final = ("createIndexes", "startIndexBuild", "commitIndexBuild", "abortIndexBuild")


def _apply_ops_needs(op: OperationContext, request: ApplyOpsRequest) -> list[Need]:
    """What the operations need by themselves; with UUIDs `useUUID` and `forceUUID`, too. Where a UUID is of another
    collection than the one that the operation names, privileges on that one count."""
    if not request.operations:
        return cluster_needs("applyOps")
    needs: list[Need] = []
    for operation in _flattened(op, request.operations, 0):
        if operation.kind == ops.NOTHING:
            continue
        database, name = split_namespace(operation.namespace, op.catalog.naming)
        if operation.uuid is not None:
            needs += cluster_needs("useUUID", "forceUUID")
            found = _with_uuid(op, database, operation)
            name = name if found is None else found.name
        if operation.kind == ops.COMMAND:
            needs += _command_needs(op, operation, database)
        else:
            actions = [REMOVE] if operation.kind == ops.DELETE else [INSERT, UPDATE]
            needs += write_needs(database, name, actions, request.bypass)
    return needs


def _command_needs(op: OperationContext, operation: Operation, database: str) -> list[Need]:
    spec, request = _parsed_command(operation)
    if operation.uuid is not None:
        found = _with_uuid(op, database, operation)
        request = request if found is None else _of_collection(request, found)
    home = op.database
    op.database = database
    try:
        return spec.access.needs(op, request)
    finally:
        op.database = home


@command(
    "applyOps",
    ApplyOpsRequest,
    access=needing(_apply_ops_needs),
    help="Carries out entries of an oplog; for mongorestore.",
    writes=True,
    admin_only=True,
    exclusive=True,
    strict=False,
    writes_anywhere=True,
)
def apply_ops(op: OperationContext, request: ApplyOpsRequest) -> Reply:
    """`{applied: <how many>, results: [true, …]}`. The first operation that fails ends it: the reply has its error, and
    `applied` and `results` with it.

    An insert of a document that exists replaces it. A replacement of one that is missing fails, but those after it are
    carried out before the command ends with UnknownError (8); a diff has no effect then. The documents that it writes
    begin to live anew.

    A command is for the collection with the UUID of `ui`, if it is given; it has no effect if there is none.

    FailedToParse (9) for an operation of an unknown kind, TypeMismatch (14) for fields of wrong types,
    CommandNotSupported (115) for index builds, NamespaceNotFound (26) for inserts and updates in a collection that does
    not exist, or whose UUID is not the one of `ui`. BadValue (2), 31056, 31240, 6711600 and 6711601 for `prepare`,
    `partialTxn`, `count`, `preCondition` and `alwaysUpsert: true`, which earlier versions of MongoDB had.
    """
    _check_options(op, request)
    operations = op.compute(lambda: _flattened(op, request.operations, 0))
    op.write_options = write_options(request.bypass)
    results: list[Value] = []
    home = op.database
    for operation in operations:
        applied = False
        try:
            applied = _apply(op, operation)
        except CommandError as error:
            if ends_command(op, error):
                raise
            results.append(False)
            error.complete()
            details = {"applied": len(results), **error.details, "results": results}
            raise CommandError(error.code, error.message, details, error.labels) from error
        finally:
            op.database = home
        results.append(applied)
        op.check_interrupt()
        op.give_way()
    if not all(results):
        raise CommandError(
            ErrorCode.UnknownError,
            "applyOps had one or more errors applying ops",
            {"applied": len(results), "results": results},
        )
    return {"applied": len(results), "results": results}


def _check_options(op: OperationContext, request: ApplyOpsRequest) -> None:
    """Refuses options of earlier versions of MongoDB."""
    if request.prepare is not None:
        raise CommandError(ErrorCode.BadValue, "applyOps command can't have 'prepare' field")
    if request.partial is not None:
        raise CommandError(_NO_PARTIAL, "applyOps command can't have 'partialTxn' field")
    if request.size is not None:
        raise CommandError(_NO_COUNT, "applyOps command can't have 'count' field")
    if "preCondition" in op.command.extra_fields:
        raise CommandError(_NO_PRECONDITION, "applyOps command no longer supports the 'preCondition' option")
    if request.always_upsert:
        raise CommandError(_NO_UPSERT, "applyOps command no longer supports the 'alwaysUpsert' option")


def _flattened(op: OperationContext, documents: list[bytes], depth: int) -> list[Operation]:
    """The operations, with those of nested `applyOps` in its place."""
    if depth > _MAX_NESTING:
        raise CommandError(ErrorCode.FailedToParse, "Too many nested applyOps")
    if documents:
        check_batch(op, len(documents))
    found: list[Operation] = []
    for document in documents:
        operation = read_operation(document)
        inner = contained(operation)
        if inner is not None:
            found += _flattened(op, inner, depth + 1)
        elif operation.kind not in ops.KINDS:
            raise CommandError(ErrorCode.FailedToParse, f"Unrecognized op type '{operation.kind}' in an oplog entry")
        else:
            found.append(operation)
    return freed_in_slices(found)


def _apply(op: OperationContext, operation: Operation) -> bool:
    """Carries out an operation. Whether there was what it changes, where that is required."""
    if operation.kind == ops.NOTHING:
        return True
    op.database, name = split_namespace(operation.namespace, op.catalog.naming)
    op.check_database()
    if operation.namespace == OPLOG:
        raise refused_write()
    if operation.kind == ops.COMMAND:
        _apply_command(op, operation)
        return True
    check_collection_name(op.database, name)
    collection = _collection(op, name, operation)
    if operation.kind == ops.DELETE:
        if collection is not None:
            delete_one(op, _by_id(op, collection, operation.document))
    elif collection is None:
        raise CommandError(
            ErrorCode.NamespaceNotFound,
            f"Cannot apply insert or update operation on a non-existent namespace {operation.namespace}",
        )
    elif operation.kind == ops.INSERT:
        _insert(op, collection, operation.document)
    else:
        return _update(op, collection, operation)
    return True


def _collection(op: OperationContext, name: str, operation: Operation) -> Collection | None:
    """The collection of an operation on a document; the one with the UUID that the operation names, if it does.

    None if there is no collection of this name; NamespaceNotFound (26) if there is none with this UUID.
    """
    if operation.uuid is None:
        return op.catalog.lookup(op.database, name, time_series=True)
    found = _with_uuid(op, op.database, operation)
    if found is None:
        raise _unknown_uuid(operation)
    return found


def _with_uuid(op: OperationContext, database: str, operation: Operation) -> Collection | None:
    """The collection of a database that has the UUID of an operation, whatever its name; None if there is none."""
    return op.catalog.with_uuid(database, operation.uuid)


def _of_collection(request: Any, collection: Collection) -> Any:
    """Redirects a logged command to this collection, unless it creates one or drops a database."""
    if isinstance(request, CreateRequest | DropDatabaseRequest):
        return request
    if isinstance(request, RenameCollectionRequest):
        return request._replace(source=collection.namespace)
    return request._replace(collection=collection.name)


def _unknown_uuid(operation: Operation) -> CommandError:
    return CommandError(
        ErrorCode.NamespaceNotFound,
        f"Failed to apply operation on {operation.namespace}: no collection has the UUID of the operation",
    )


def _by_id(op: OperationContext, collection: Collection, key: bytes) -> Selection:
    """Selects the document with the `_id` of `key`. NoSuchKey (4) if that has none."""
    if find_field(key, b"_id")[0] == 0:
        raise CommandError(ErrorCode.NoSuchKey, "Failed to apply an operation that has no _id")
    equal = encode_fields([("_id", encode_fields([("$eq", get_value(key, "_id"))]))])
    return Selection(collection, parse_match(equal, context_of(op, collection.name)), None, MISSING)


def _insert(op: OperationContext, collection: Collection, document: bytes) -> None:
    selection = _by_id(op, collection, document)
    context = context_of(op, collection.name)
    upsert_or_update(op, collection.name, selection, LoggedReplacement(document), context, False)


def _update(op: OperationContext, collection: Collection, operation: Operation) -> bool:
    """Whether there was the document that it replaces."""
    driver = parse_logged_update(operation.document)
    selection = _by_id(op, collection, operation.key)
    result = update_one(op, selection, driver)
    if result.matched or driver.kind != "replacement":
        return True
    if operation.upsert:
        context = context_of(op, collection.name)
        upsert_or_update(op, collection.name, selection, driver, context, False)
    return operation.upsert


def _parsed_command(operation: Operation) -> tuple[CommandSpec, Any]:
    """A command of the oplog, and its request. CommandNotSupported (115) for index builds, BadValue (2) for others that
    are not applied."""
    name = operation.command
    if name in _INDEX_BUILDS:
        raise CommandError(ErrorCode.CommandNotSupported, f"The {name} operation is not supported in applyOps mode")
    if name not in _COMMANDS:
        raise CommandError(ErrorCode.BadValue, f"Unknown command '{name}' in an oplog entry")
    spec = COMMANDS[name]
    return spec, spec.request._make(spec.parser.parse(operation.document, [], GenericArguments()))


def _apply_command(op: OperationContext, operation: Operation) -> None:
    spec, request = _parsed_command(operation)
    uuid = operation.uuid
    try:
        if isinstance(request, CreateRequest):
            create_with_uuid(op, request, uuid)
            return
        if isinstance(request, RenameCollectionRequest) and isinstance(request.drop_target, BinData) and uuid is None:
            # The collection that is dropped has another UUID here, unless those of the dump are kept.
            request = request._replace(drop_target=True)
        if uuid is not None and not isinstance(request, DropDatabaseRequest):
            collection = _with_uuid(op, op.database, operation)
            if collection is None:
                raise _unknown_uuid(operation)
            request = _of_collection(request, collection)
        spec.function(op, request)
    except CommandError as error:
        if error.code not in _COMMANDS[spec.name]:
            raise
