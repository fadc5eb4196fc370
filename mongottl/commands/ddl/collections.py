"""drop, renameCollection, listCollections, collStats; `create` and `collMod` have modules of their own.

Source: MongoDB's command reference for each.
"""

from functools import partial
from typing import Annotated, Final, NamedTuple

from mongottl.catalog.collection import Collection
from mongottl.catalog.describe import describe_place
from mongottl.catalog.namespace import MAX_NAMESPACE_BYTES, check_collection_name, split_namespace
from mongottl.catalog.view import View
from mongottl.commands.access import database_needs, needing, on_collection
from mongottl.commands.collection_uuid import check_uuid
from mongottl.commands.listing import listing_reply, matching
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import (
    ANY,
    BOOL_OR_UUID,
    COLLECTION,
    DOCUMENT_FIELD,
    IGNORED,
    ONE,
    STRICT_BOOL,
    TEXT,
    Field,
)
from mongottl.commands.request_fields import CollectionUuid
from mongottl.document.build import EMPTY_DOCUMENT, encode_fields
from mongottl.document.interrupt import Undivided, give_way
from mongottl.document.types import BinData, Value
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.results.sizes import describe_size, parse_scale
from mongottl.exec.results.views import drop_view
from mongottl.exec.state.profiler import OFF, PROFILE_COLLECTION
from mongottl.oplog.records import NAMESPACE as OPLOG
from mongottl.query.context import ParseContext
from mongottl.query.match import MatchExpression, parse_condition
from mongottl.security.privileges import Need, collection_resource, database_resource

# What it takes to describe a collection, in the units of `give_way`.
_WORK: Final = 8


class DropRequest(NamedTuple):
    collection: Annotated[str, Field("drop", COLLECTION)]
    collection_uuid: CollectionUuid = None


@command(
    "drop",
    DropRequest,
    access=on_collection("dropCollection"),
    help="Drops a collection with its indexes.",
    writes=True,
    judges_oplog=True,
    stable=True,
    exclusive=True,
)
def drop(op: OperationContext, request: DropRequest) -> Reply:
    """Drops a collection or view: `{nIndexesWas, ns}`. One that does not exist is no error."""
    op.check_database()
    check_collection_name(op.database, request.collection)
    with Undivided():
        return _drop(op, request)


def _drop(op: OperationContext, request: DropRequest) -> Reply:
    collection = op.catalog.find(op.database, request.collection)
    if isinstance(collection, View):
        check_uuid(op, "drop", request.collection_uuid, op.database, request.collection, None)
        drop_view(op, collection)
        return {"ns": collection.namespace}
    check_uuid(op, "drop", request.collection_uuid, op.database, request.collection, collection)
    if collection is None:
        return {}
    if collection.namespace == OPLOG:
        raise CommandError(ErrorCode.IllegalOperation, "can't drop live oplog while replicating")
    if request.collection == PROFILE_COLLECTION and op.service.profiler.of(op.database).level != OFF:
        raise CommandError(
            ErrorCode.IllegalOperation, "turn off profiling before dropping the system.profile collection"
        )
    indexes = len(collection.counted_indexes)
    op.service.cursors.close_where_namespace(collection.namespace)
    op.catalog.drop_collection(collection)
    op.remove_usage(collection.namespace)
    return {"nIndexesWas": indexes, "ns": collection.namespace}


class RenameCollectionRequest(NamedTuple):
    source: Annotated[str, Field("renameCollection", TEXT)]
    to: Annotated[str, Field("to", TEXT)]
    drop_target: Annotated[bool | BinData, Field("dropTarget", BOOL_OR_UUID)] = False
    stay_temp: Annotated[bool, Field("stayTemp", STRICT_BOOL)] = False
    collection_uuid: CollectionUuid = None


def _rename_needs(op: OperationContext, request: RenameCollectionRequest) -> list[Need]:
    """Within a database one action of its own is enough, if the client may read the source or may not read the target:
    a renamed collection must not become readable."""
    database, _, name = request.source.partition(".")
    to_database, _, to_name = request.to.partition(".")
    source, target = collection_resource(database, name), collection_resource(to_database, to_name)
    if database == to_database and (op.may(source, "find") or not op.may(target, "find")):
        actions = ["renameCollectionSameDB", *(["dropCollection"] if request.drop_target else [])]
        if all(op.may(database_resource(database), action) for action in actions):
            return []
    needs = [Need(source, "find"), Need(source, "dropCollection"), Need(target, "insert"), Need(target, "createIndex")]
    if request.drop_target:
        needs.append(Need(target, "dropCollection"))
    return needs


@command(
    "renameCollection",
    RenameCollectionRequest,
    access=needing(_rename_needs),
    help="Renames a collection, within its database or into another.",
    admin_only=True,
    writes=True,
    exclusive=True,
    writes_anywhere=True,
)
def rename_collection(op: OperationContext, request: RenameCollectionRequest) -> Reply:
    """Renames a collection. NamespaceNotFound (26) without source; NamespaceExists (48) if the target exists without
    `dropTarget`, or is a view or time series collection; IllegalOperation (20) for equal names, names of internal
    collections and too long ones; CollectionUUIDMismatch (361) if `dropTarget` is a UUID other than the target's.
    """
    database, name = split_namespace(request.source, op.catalog.naming)
    to_database, to_name = split_namespace(request.to, op.catalog.naming)
    check_collection_name(database, name)
    if request.source == request.to:
        raise CommandError(ErrorCode.IllegalOperation, "Can't rename a collection to itself")
    _check_renamable("source", request.source, database, name)
    _check_renamable("target", request.to, to_database, to_name)
    with Undivided():
        return _rename(op, request, database, name, to_database, to_name)


def _rename(
    op: OperationContext, request: RenameCollectionRequest, database: str, name: str, to_database: str, to_name: str
) -> Reply:
    source = op.catalog.lookup(database, name)
    check_uuid(op, "renameCollection", request.collection_uuid, database, name, source)
    target = op.catalog.find(to_database, to_name)
    if isinstance(request.drop_target, BinData):
        if database != to_database:
            raise CommandError(
                ErrorCode.InvalidOptions, "'dropTarget' cannot be a UUID where collections change their database"
            )
        existing = None if isinstance(target, View) else target
        check_uuid(op, "renameCollection", request.drop_target, to_database, to_name, existing)
    if source is None:
        raise CommandError(ErrorCode.NamespaceNotFound, f"Source collection {request.source} does not exist")
    op.catalog.check_new_name(to_database, to_name)
    if isinstance(target, View):
        raise CommandError(ErrorCode.NamespaceExists, f"a view already exists with that name: {target.namespace}")
    if target is not None and (request.drop_target is False or target.time_series is not None):
        raise CommandError(ErrorCode.NamespaceExists, "target namespace exists")
    check_no_index_build(source)
    if target is not None:
        check_no_index_build(target)
        op.service.cursors.close_where_namespace(target.namespace)
    op.service.cursors.close_where_namespace(source.namespace, "collection renamed")
    op.catalog.rename_collection(source, to_database, to_name, target)
    return {}


def _check_renamable(which: str, namespace: str, database: str, name: str) -> None:
    """IllegalOperation (20) for internal collections of the server, and for names that are too long or have a `$`."""
    if "$" in name:
        raise CommandError(
            ErrorCode.IllegalOperation, f"error with {which} namespace: Invalid collection name: {namespace}"
        )
    if name.startswith("system.") or (database == "local" and name.startswith("oplog.")):
        raise CommandError(ErrorCode.IllegalOperation, f"error with {which} namespace: cannot rename {namespace}")
    if len(encode_text(namespace)) > MAX_NAMESPACE_BYTES:
        raise CommandError(
            ErrorCode.IllegalOperation,
            f"error with {which} namespace: Fully qualified namespace is too long. Namespace: {namespace}"
            f" Max: {MAX_NAMESPACE_BYTES}",
        )


def check_no_index_build(collection: Collection) -> None:
    """BackgroundOperationInProgressForNamespace (12587) while an index of the collection is being built."""
    for index in collection.indexes:
        if not index.ready:
            raise CommandError(
                ErrorCode.BackgroundOperationInProgressForNamespace,
                "cannot perform operation: an index build is currently running for collection"
                f" '{collection.namespace}'. Found index build: {index.name}",
            )


class ListCollectionsRequest(NamedTuple):
    command: Annotated[Value, Field("listCollections", ONE)]
    filter: Annotated[bytes, Field("filter", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    cursor: Annotated[bytes, Field("cursor", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    name_only: Annotated[bool, Field("nameOnly", STRICT_BOOL)] = False
    authorized_collections: Annotated[bool, Field("authorizedCollections", STRICT_BOOL)] = False


def _list_collections_needs(op: OperationContext, request: ListCollectionsRequest) -> list[Need]:
    """Everybody may list the names of the collections on which they may do something (`authorizedCollections`)."""
    if request.name_only and request.authorized_collections:
        return []
    return database_needs(op.database, "listCollections")


@command(
    "listCollections",
    ListCollectionsRequest,
    access=needing(_list_collections_needs),
    help="Lists the collections of a database, as a cursor.",
    stable=True,
    raw_data=True,
)
def list_collections(op: OperationContext, request: ListCollectionsRequest) -> Reply:
    """`{name, type, options, info: {readOnly, uuid}, idIndex}` of each; `{name, type}` with `nameOnly`.

    In the dialect `cosmos` without the last two, unless the account has them (`cosmos_choices.VARIANTS`).
    """
    op.check_database()
    context = ParseContext(op.now_ms, runtime_constants=False)
    match = op.compute(partial(parse_condition, request.filter, context))
    documents = op.compute(partial(_listed_all, op, request, match))
    return listing_reply(op, "listCollections", f"{op.database}.$cmd.listCollections", documents, request.cursor)


def _listed_all(op: OperationContext, request: ListCollectionsRequest, match: MatchExpression) -> list[bytes]:
    entries = op.catalog.places(op.database)
    if request.authorized_collections and not op.may(database_resource(op.database), "listCollections"):
        entries = [entry for entry in entries if _may_use(op, entry)]
    shown: tuple[str, ...] = ("name", "type") if request.name_only else ("name", "type", "options", "info", "idIndex")
    dialect = op.service.dialect
    if not dialect.filters_listings() and not is_empty(request.filter):
        entries = []
    shown = dialect.collection_fields(shown)
    named = dialect.names_indexes
    return matching(match, (_listed(entry, shown, named) for entry in entries))


def _may_use(op: OperationContext, entry: Collection | View) -> bool:
    give_way(_WORK)
    return op.may_use(op.database, entry.name)


def _listed(entry: Collection | View, shown: tuple[str, ...], names_indexes: bool) -> bytes:
    give_way(_WORK)
    return encode_fields([field for field in describe_place(entry, names_indexes) if field[0] in shown])


class CollStatsRequest(NamedTuple):
    collection: Annotated[str, Field("collStats", COLLECTION)]
    scale: Annotated[Value, Field("scale", ANY)] = None
    verbose: Annotated[Value, Field("verbose", IGNORED)] = None
    wait_for_lock: Annotated[Value, Field("waitForLock", IGNORED)] = None


@command(
    "collStats",
    CollStatsRequest,
    access=on_collection("collStats"),
    help="Returns the counts and sizes of a collection.",
    aliases=("collstats",),
)
def coll_stats(op: OperationContext, request: CollStatsRequest) -> Reply:
    """Sizes in units of `scale` bytes, except avgObjSize; they include expired documents that are not purged yet.

    `count` does not include expired documents. Zeros for a collection that does not exist.
    """
    scale = parse_scale("collStats", request.scale)
    op.check_database()
    check_collection_name(op.database, request.collection)
    collection = op.catalog.lookup(op.database, request.collection, time_series=True)
    return {"ns": f"{op.database}.{request.collection}", **describe_size(op.recovery_unit, collection, op.now_s, scale)}
