"""createIndexes, listIndexes, dropIndexes.

Source: MongoDB's command reference for each; for indexes on `_ts` with `expireAfterSeconds`, which set a collection's
default TTL, Microsoft's TTL articles for Azure Cosmos DB for MongoDB.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final, NamedTuple

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.describe import with_namespace
from mongottl.catalog.index import MAX_INDEXES, IndexDescriptor
from mongottl.catalog.index_kinds.hashed import HASHED
from mongottl.catalog.index_kinds.kind import is_wildcard
from mongottl.catalog.index_spec import parse_index_spec
from mongottl.catalog.namespace import check_collection_name
from mongottl.catalog.view import SYSTEM_VIEWS
from mongottl.commands.access import on_collection
from mongottl.commands.collection_uuid import check_uuid_of
from mongottl.commands.ddl.encrypted_fields import check_encrypted_index
from mongottl.commands.ddl.index_conflicts import KnownIndexes
from mongottl.commands.listing import listing_reply
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ANY, ARRAY_FIELD, BOOL_FIELD, COLLECTION, DOCUMENT_FIELD, DOCUMENTS, Field
from mongottl.commands.request_fields import CollectionUuid
from mongottl.commands.time_series import check_time_series_index
from mongottl.document.bson_field import missing_field, wrong_type
from mongottl.document.build import EMPTY_DOCUMENT, encode
from mongottl.document.freeing import LongList, put_aside
from mongottl.document.interrupt import Undivided, give_way
from mongottl.document.numbers import truncated
from mongottl.document.render import render_beginning
from mongottl.document.types import MISSING, Value, is_number
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode, shortened
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.state.profiler import PROFILE_COLLECTION
from mongottl.exec.write.expiry import count_living, rearm_collection
from mongottl.exec.write.index_build import build_indexes, finish_build, start_indexes
from mongottl.versions import COMPOUND_HASHED, COMPOUND_WILDCARD, SYNTAX, Features

# Indexes of one command, where the dialect has no limit of those of a collection.
MOST_NEW: Final = 1000
# Maximum members of a replica set.
_MOST_MEMBERS: Final = 50
_QUORUM_MODES: Final = ("majority", "votingMembers")
# Interval at which a createIndexes checks whether the same index, built by another command, is ready.
_BUILD_POLL_S: Final = 0.01


_CLUSTERED_CANNOT_GO: Final = 5979800


class CreateIndexesRequest(NamedTuple):
    collection: Annotated[str, Field("createIndexes", COLLECTION)]
    indexes: Annotated[list[bytes], Field("indexes", DOCUMENTS)]
    commit_quorum: Annotated[Value, Field("commitQuorum", ANY)] = None
    ignore_unknown: Annotated[bool, Field("ignoreUnknownIndexOptions", BOOL_FIELD)] = False
    return_on_start: Annotated[bool, Field("returnOnStart", BOOL_FIELD)] = False
    collection_uuid: CollectionUuid = None


@command(
    "createIndexes",
    CreateIndexesRequest,
    access=on_collection("createIndex"),
    help="Creates indexes; if one of them fails, none is created.",
    writes=True,
    stable=True,
    raw_data=True,
    in_transaction=True,
    exclusive=True,
    is_repeatable=True,
)
def create_indexes(op: OperationContext, request: CreateIndexesRequest) -> Reply:
    """`{numIndexesBefore, numIndexesAfter, createdCollectionAutomatically}`, with `note` if all indexes existed.

    Creates the collection if it does not exist. IndexOptionsConflict (85) and IndexKeySpecsConflict (86) for conflicts
    with existing indexes; `catalog.index_spec.parse_index_spec` lists the errors of invalid specifications. A refused
    request changes nothing.
    """
    name = request.collection
    op.check_database()
    check_collection_name(op.database, name)
    if not request.indexes:
        raise CommandError(ErrorCode.BadValue, "Must specify at least one index to create")
    check_commit_quorum(request.commit_quorum)
    check_uuid_of(op, "createIndexes", request.collection_uuid, name)
    return create_requested(op, request, with_collection=False)


def create_requested(
    op: OperationContext,
    request: CreateIndexesRequest,
    with_collection: bool,
    dropped: Sequence[str] = (),
) -> Reply:
    """Creates the indexes of a request.

    with_collection: whether the same command has created the collection. dropped: names of existing
    indexes in whose place the others come: they are dropped together with the creation of these, or not at all.
    """
    wanted = op.compute(lambda: requested_indexes(op, request))
    return _create(op, request.collection, wanted, request.commit_quorum, with_collection, dropped)


def requested_indexes(op: OperationContext, request: CreateIndexesRequest) -> list[IndexDescriptor]:
    """The specifications of a request. The errors of `parse_index_spec`, and those of the collection's name and of the
    dialect."""
    name = request.collection
    collection = op.catalog.lookup(op.database, name, time_series=True)
    inherited = None if collection is None else collection.collation
    dialect = op.service.dialect
    wanted: list[IndexDescriptor] = LongList()
    for spec in request.indexes:
        wanted.append(parse_index_spec(dialect.accepted_index(spec), request.ignore_unknown, inherited))
    if name == SYSTEM_VIEWS and any(_has_ttl(descriptor) for descriptor in wanted):
        raise CommandError(ErrorCode.CannotCreateIndex, "the definitions of views cannot expire")
    if collection is not None and collection.options.encrypted_paths is not None:
        for descriptor in wanted:
            check_encrypted_index(collection.options.encrypted_paths, descriptor)
    if op.service.features is not None:
        _check_version(op.service.features, wanted)
    wanted = _without_repetitions(dialect.requested_indexes(wanted))
    if collection is not None:
        for index in [*collection.listed_indexes]:
            give_way()
            index.descriptor.prepare_comparison()
    # Of more than these some are too many.
    for descriptor in wanted[: 2 * MAX_INDEXES]:
        descriptor.prepare()
    log_ignored_sparse(op, name, request.indexes)
    return wanted


def _without_repetitions(wanted: list[IndexDescriptor]) -> list[IndexDescriptor]:
    """The indexes, of those that are the same two at most: a third one changes nothing. All others are compared with
    each other in an undivided block, and 64 at most are neither there nor too many."""
    seen: dict[bytes, int] = {}
    kept: list[IndexDescriptor] = LongList()
    for descriptor in wanted:
        count = seen.get(descriptor.spec, 0)
        seen[descriptor.spec] = count + 1
        if count < 2:
            kept.append(descriptor)
    put_aside(seen)
    return kept


def log_ignored_sparse(op: OperationContext, collection: str, specs: list[bytes]) -> None:
    """Logs a warning for each specification whose `sparse` the dialect ignores."""
    for name in op.service.dialect.ignored_sparse(specs):
        op.service.hooks.log_ignored_sparse(op.client, f"{op.database}.{collection}", name)


def _check_version(features: Features, wanted: list[IndexDescriptor]) -> None:
    """16763 for a compound hashed index, CannotCreateIndex (67) for a compound wildcard index, where the announced
    version has neither."""
    for descriptor in wanted:
        pattern = fields(descriptor.key)
        if len(pattern) == 1:
            continue
        if any(direction == HASHED for _, direction in pattern) and features.lacks(SYNTAX, COMPOUND_HASHED):
            raise CommandError(
                16763,
                "Currently only single field hashed index supported.",
                advice=features.advice(SYNTAX, COMPOUND_HASHED),
            )
        if any(is_wildcard(path) for path, _ in pattern) and features.lacks(SYNTAX, COMPOUND_WILDCARD):
            raise CommandError(
                ErrorCode.CannotCreateIndex,
                "wildcard indexes do not allow compounding",
                advice=features.advice(SYNTAX, COMPOUND_WILDCARD),
            )


def check_commit_quorum(quorum: Value) -> None:
    """Checks `commitQuorum`: a number of members, or the name of a mode. FailedToParse (9) otherwise."""
    if quorum is None:
        return
    if is_number(quorum):
        members = truncated(quorum)
        if members is None or not 0 <= members <= _MOST_MEMBERS:
            raise CommandError(
                ErrorCode.FailedToParse,
                f"commitQuorum has to be a non-negative number and not greater than {_MOST_MEMBERS}",
            )
    elif not isinstance(quorum, str):
        raise CommandError(ErrorCode.FailedToParse, "commitQuorum has to be a number or a string")
    elif quorum == "":
        raise CommandError(ErrorCode.FailedToParse, "commitQuorum can't be an empty string")


def check_quorum_can_be_met(quorum: Value) -> None:
    """UnsatisfiableCommitQuorum (278) for more than one member, UnknownReplWriteConcern (79) for an undefined mode.

    As in MongoDB, called only for collections with documents.
    """
    if isinstance(quorum, str):
        if quorum not in _QUORUM_MODES:
            raise CommandError(
                ErrorCode.UnknownReplWriteConcern,
                f"No write concern mode named '{quorum}' found in replica set configuration",
            )
        return
    members = truncated(quorum)
    if members is not None and members > 1:
        raise CommandError(
            ErrorCode.UnsatisfiableCommitQuorum,
            f"Commit quorum cannot be satisfied with the current replica set configuration: {members} of 1 member",
        )


def _create(
    op: OperationContext,
    name: str,
    wanted: list[IndexDescriptor],
    quorum: Value,
    with_collection: bool,
    dropped: Sequence[str],
) -> Reply:
    with Undivided():
        collection = op.catalog.lookup(op.database, name, time_series=True)
        created = collection is None
        if collection is not None and collection.time_series is not None:
            for descriptor in wanted:
                check_time_series_index(collection.time_series, descriptor)
        if collection is None:
            op.catalog.check_new_name(op.database, name)
            _new_indexes(op, f"{op.database}.{name}", None, wanted)  # raises before the collection is created
            collection = op.catalog.create_collection(op.database, name)
    while True:
        with Undivided():
            if collection.dropped:
                text = f"Index build failed: {collection.namespace} was dropped"
                raise CommandError(ErrorCode.IndexBuildAborted, text)
            new, building = _new_indexes(op, collection.namespace, collection, wanted, with_collection, dropped)
            if not building:
                before = _ready(collection)
                old = [index for index in collection.indexes if index.name in dropped]
                if new:
                    records = op.recovery_unit.records(collection)
                    if count_living(records, collection, op.service.now_s()):
                        check_quorum_can_be_met(quorum)
                    started = start_indexes(op, collection, new)
                elif old:
                    op.catalog.remove_indexes(collection, old)
                break
        op.wait(_BUILD_POLL_S)
        op.check_interrupt()
    if new:
        finish_build(op, collection, started, dropped=dropped)
    if any(_has_ttl(descriptor) for descriptor in (*new, *(index.descriptor for index in old))):
        rearm_collection(op.service, collection.number)
    reply: dict[str, Value] = {
        "numIndexesBefore": before,
        "numIndexesAfter": before + len(new),
        "createdCollectionAutomatically": created,
    }
    if not new:
        reply["note"] = "all indexes already exist"
    return reply


def _ready(collection: Collection) -> int:
    return sum(1 for index in collection.counted_indexes if index.ready)


def _has_ttl(descriptor: IndexDescriptor) -> bool:
    return descriptor.is_ttl_setting or descriptor.expire_after_s is not None


def _new_indexes(
    op: OperationContext,
    namespace: str,
    collection: Collection | None,
    wanted: list[IndexDescriptor],
    with_collection: bool = False,
    dropped: Sequence[str] = (),
) -> tuple[list[IndexDescriptor], bool]:
    """Those of `wanted` that do not exist yet, and whether one of the others is still being built.

    collection: None if it does not exist yet. CannotCreateIndex (67) if there would be too many, 85 and 86 for
    conflicts; the errors of the dialect's `check_new_indexes`.
    """
    dialect = op.service.dialect
    entries = [] if collection is None else [index for index in collection.listed_indexes if index.name not in dropped]
    known = KnownIndexes(dialect, [index.descriptor for index in entries])
    room = MAX_INDEXES - (len(entries) if collection is not None else 1) if dialect.limits_indexes else MOST_NEW
    unfinished = {index.name for index in entries if not index.ready}
    new: list[IndexDescriptor] = []
    others = KnownIndexes(dialect, ())
    building = False
    for descriptor in wanted:
        if descriptor.is_id:
            continue
        same = known.identical(descriptor)
        if same is None:
            if others.identical(descriptor) is not None:
                raise CommandError(ErrorCode.IndexAlreadyExists, f"Identical index already exists: {descriptor.name}")
            if len(new) >= room or (not dialect.limits_indexes and others.has_too_many_like(descriptor)):
                raise CommandError(
                    ErrorCode.CannotCreateIndex,
                    f"add index fails, too many indexes for {namespace} key:{render_beginning(descriptor.key)}",
                )
            new.append(descriptor)
            others.add(descriptor)
        elif same.name in unfinished:
            building = True
    if new:
        has_documents = partial(_has_documents, op, collection)
        dialect.check_new_indexes(collection, new, with_collection, dropped, has_documents)
    return new, building


def _has_documents(op: OperationContext, collection: Collection | None) -> bool:
    """Whether there are documents in a collection that have not expired."""
    if collection is None:
        return False
    records = op.recovery_unit.records(collection)
    return count_living(records, collection, op.service.now_s()) > 0


class ListIndexesRequest(NamedTuple):
    collection: Annotated[str, Field("listIndexes", COLLECTION)]
    cursor: Annotated[bytes, Field("cursor", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    include_build_uuids: Annotated[bool, Field("includeBuildUUIDs", BOOL_FIELD)] = False
    include_index_build_info: Annotated[bool, Field("includeIndexBuildInfo", BOOL_FIELD)] = False


@command(
    "listIndexes",
    ListIndexesRequest,
    access=on_collection("listIndexes"),
    help="Lists the indexes of a collection, as a cursor.",
    stable=True,
    raw_data=True,
)
def list_indexes(op: OperationContext, request: ListIndexesRequest) -> Reply:
    """A cursor over index specifications, `_id` first, including indexes under construction. NamespaceNotFound (26)."""
    op.check_database()
    check_collection_name(op.database, request.collection)
    collection = op.catalog.lookup(op.database, request.collection, time_series=True)
    if collection is None:
        raise CommandError(ErrorCode.NamespaceNotFound, f"ns does not exist: {op.database}.{request.collection}")
    if request.include_index_build_info and request.include_build_uuids:
        raise CommandError(
            ErrorCode.InvalidOptions, "The options includeBuildUUIDs and includeIndexBuildInfo cannot both be set"
        )
    if request.collection == PROFILE_COLLECTION:
        specs = []  # in MongoDB it has no index on `_id`
    else:
        specs = [_listed(op, collection, index, request) for index in collection.listed_indexes]
    return listing_reply(op, "listIndexes", collection.namespace, specs, request.cursor)


def _listed(op: OperationContext, collection: Collection, index: CollectionIndex, request: ListIndexesRequest) -> bytes:
    """The document of one index, with the fields that the request's options add."""
    listed = op.service.dialect.listed_index(collection, index.descriptor)
    if listed is not None:
        return listed
    namespace = collection.namespace if op.service.dialect.names_indexes else ""
    spec = index.descriptor.kind.listed(index.descriptor.spec)
    if namespace:
        spec = with_namespace(spec, namespace)
    if request.include_index_build_info:
        if index.ready:
            return encode({"spec": spec})
        return encode({"spec": spec, "indexBuildInfo": {"buildUUID": index.build_uuid}})
    if request.include_build_uuids and not index.ready:
        return encode({"spec": spec, "buildUUID": index.build_uuid})
    return spec


class DropIndexesRequest(NamedTuple):
    collection: Annotated[str, Field("dropIndexes", COLLECTION)]
    what: Annotated[Value, Field("index", ANY)] = MISSING
    collection_uuid: CollectionUuid = None


@command(
    "dropIndexes",
    DropIndexesRequest,
    access=on_collection("dropIndex"),
    help="Drops indexes, given by name, names or key pattern, or with '*' all but the index on _id.",
    aliases=("deleteIndexes",),
    writes=True,
    stable=True,
    raw_data=True,
    exclusive=True,
)
def drop_indexes(op: OperationContext, request: DropIndexesRequest) -> Reply:
    """`{nIndexesWas}`. IndexNotFound (27), AmbiguousIndexKeyPattern (181), InvalidOptions (72) for the `_id` index.

    If one of several names is wrong, nothing is dropped. Dropping the `_ts` index with `expireAfterSeconds` turns TTL
    off: expired documents that are not purged yet become visible again.
    """
    op.check_database()
    check_collection_name(op.database, request.collection)
    check_uuid_of(op, "dropIndexes", request.collection_uuid, request.collection)
    op.catalog.lookup(op.database, request.collection, time_series=True)  # raises for a view
    if request.what is MISSING:
        raise missing_field("dropIndexes.index")
    op.compute(partial(_check_index_type, request.what))
    with Undivided():
        collection = op.catalog.lookup(op.database, request.collection, time_series=True)
        if collection is None:
            raise CommandError(ErrorCode.NamespaceNotFound, f"ns not found {op.database}.{request.collection}")
        reply, removed = _drop(op, collection, request.what)
    if any(_has_ttl(entry.descriptor) for entry in removed):
        rearm_collection(op.service, collection.number)
    return reply


def _check_index_type(index: Value) -> None:
    named = "dropIndexes.index"
    value = index
    if isinstance(index, list):
        value = ""
        for position, item in enumerate(index):
            give_way()
            if not isinstance(item, str):
                named = f"dropIndexes.index.{position}"
                value = item
                break
    if not isinstance(value, (str, bytes)) or (isinstance(index, list) and isinstance(value, bytes)):
        raise wrong_type(named, value, "[string, object, array]")


def _drop(op: OperationContext, collection: Collection, index: Value) -> tuple[dict[str, Value], list[CollectionIndex]]:
    """The reply, and the indexes that were dropped."""
    known = collection.listed_indexes
    reply: dict[str, Value] = {"nIndexesWas": len(collection.counted_indexes)}
    removed: list[CollectionIndex] = []
    if index in ("*", ["*"]):
        removed = [entry for entry in known if not entry.descriptor.is_id]
        reply["msg"] = "non-_id indexes dropped for collection"
    elif isinstance(index, bytes):
        removed = [_by_key(collection, index)]
    else:
        left: dict[str, CollectionIndex] = {}
        for entry in known:
            left.setdefault(entry.name, entry)
        for name in index if isinstance(index, list) else [index]:
            named = left.pop(str(name), None)  # the first of two equal names drops it
            if named is None:
                raise CommandError(ErrorCode.IndexNotFound, f"index not found with name [{shortened(str(name))}]")
            removed.append(named)
    if any(entry.descriptor.clustered for entry in removed):
        raise CommandError(_CLUSTERED_CANNOT_GO, "Cannot drop the clustered index")
    if any(entry.descriptor.is_id for entry in removed):
        raise CommandError(ErrorCode.InvalidOptions, "cannot drop _id index")
    op.service.dialect.check_dropped_indexes([entry.descriptor for entry in removed])
    if removed:
        op.catalog.remove_indexes(collection, removed)
    return reply, removed


def _by_key(collection: Collection, key: bytes) -> CollectionIndex:
    found = [entry for entry in collection.listed_indexes if entry.descriptor.has_key(key)]
    if not found:
        raise CommandError(ErrorCode.IndexNotFound, f"can't find index with key: {render_beginning(key)}")
    if len(found) > 1:
        conflicting = ", ".join(render_beginning(entry.descriptor.spec) for entry in found)
        raise CommandError(
            ErrorCode.AmbiguousIndexKeyPattern,
            f"{len(found)} indexes found for key: {render_beginning(key)}, identify by name instead."
            f" Conflicting indexes: {conflicting}",
        )
    return found[0]


class SetIndexCommitQuorumRequest(NamedTuple):
    collection: Annotated[str, Field("setIndexCommitQuorum", COLLECTION)]
    index_names: Annotated[list[Value], Field("indexNames", ARRAY_FIELD)]
    commit_quorum: Annotated[Value, Field("commitQuorum", ANY)]


@command(
    "setIndexCommitQuorum",
    SetIndexCommitQuorumRequest,
    access=on_collection("createIndex"),
    help="Changes how many members must finish an index build; this replica set has one.",
)
def set_index_commit_quorum(op: OperationContext, request: SetIndexCommitQuorumRequest) -> Reply:
    """`{indexNames, commitQuorum}`. IndexNotFound (27) if none of these indexes is being built, and the errors of
    `check_commit_quorum`."""
    op.check_database()
    check_collection_name(op.database, request.collection)
    for position, name in enumerate(request.index_names):
        if not isinstance(name, str):
            raise wrong_type(f"setIndexCommitQuorum.indexNames.{position}", name, "string")
    check_commit_quorum(request.commit_quorum)
    check_quorum_can_be_met(request.commit_quorum)
    collection = op.catalog.lookup(op.database, request.collection)
    namespace = f"{op.database}.{request.collection}"
    if collection is None:
        raise CommandError(ErrorCode.NamespaceNotFound, f"ns does not exist: {namespace}")
    building = [index.name for index in collection.indexes if not index.ready]
    if not request.index_names or any(name not in building for name in request.index_names):
        raise CommandError(
            ErrorCode.IndexNotFound,
            f"Cannot find an index build on collection '{namespace}' with the provided index names",
        )
    return {}


class ReIndexRequest(NamedTuple):
    collection: Annotated[str, Field("reIndex", COLLECTION)]


@command(
    "reIndex",
    ReIndexRequest,
    access=on_collection("reIndex"),
    help="Rebuilds indexes in the dialect cosmos; refused otherwise, as by every member of a replica set.",
    writes=True,
    exclusive=True,
)
def re_index(op: OperationContext, request: ReIndexRequest) -> Reply:
    """In the dialect `cosmos` rebuilds all indexes but that on `_id`, one by one; they serve queries meanwhile.

    NamespaceNotFound (26) without a collection. Otherwise IllegalOperation (20): MongoDB rebuilds indexes so on
    standalone servers only, and we are a replica set's member. (Drop and create the index instead.)
    """
    op.check_database()
    check_collection_name(op.database, request.collection)
    if not op.service.dialect.rebuilds_indexes:
        raise CommandError(ErrorCode.IllegalOperation, "reIndex is only allowed on a standalone mongod instance")
    collection = op.catalog.lookup(op.database, request.collection)
    if collection is None:
        raise CommandError(ErrorCode.NamespaceNotFound, f"ns not found {op.database}.{request.collection}")
    for index in collection.listed_indexes:
        if index.ready and index.has_keys and not index.descriptor.is_id and index in collection.indexes:
            build_indexes(op, collection, [index.descriptor], replaced=index)
    return {}
