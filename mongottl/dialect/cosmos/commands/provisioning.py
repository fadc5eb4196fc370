"""customAction and shardCollection of Cosmos DB: databases, collections, throughput and shard keys.

    {customAction: "CreateCollection", collection: "orders", shardKey: "customer", offerThroughput: 400}

Source: Microsoft's "Custom commands to manage data in Azure Cosmos DB for MongoDB".
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Final, NamedTuple, TypeAlias

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.index import ID_INDEX_NAME, IDENTICAL, IndexDescriptor
from mongottl.catalog.index_spec import parse_index_spec
from mongottl.catalog.namespace import check_new_collection_name, split_namespace
from mongottl.catalog.options import NO_OPTIONS
from mongottl.catalog.throughput import Throughput
from mongottl.commands.access import collection_needs, database_needs, namespace_needs, needing
from mongottl.commands.ddl.indexes import MOST_NEW, CreateIndexesRequest, create_requested, log_ignored_sparse
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import (
    ANY,
    BOOL_FIELD,
    DOCUMENT_FIELD,
    DOCUMENTS,
    IGNORED,
    NUMBER,
    TEXT,
    Field,
    RequestParser,
    parser_for,
)
from mongottl.dialect.cosmos.change_feed import feed_token
from mongottl.dialect.cosmos.commands.configuration import account_of
from mongottl.dialect.cosmos.indexes import listed_index
from mongottl.dialect.cosmos.limits import max_document_bytes
from mongottl.dialect.cosmos.provisioning import (
    already_exists,
    check_name,
    check_shard_key,
    checked_units,
    not_found,
    refused,
)
from mongottl.dialect.cosmos.throughput import throughput_of
from mongottl.document.bson_field import missing_field, wrong_type
from mongottl.document.build import encode, encode_fields
from mongottl.document.compare import compare_values
from mongottl.document.interrupt import Undivided, give_way
from mongottl.document.types import Timestamp, Value, is_number
from mongottl.document.walk import fields, fields_by_name, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.results.resume_token import high_water_mark
from mongottl.exec.stages.stage import check_alive
from mongottl.security.privileges import Need


class CustomActionRequest(NamedTuple):
    action: Annotated[str, Field("customAction", TEXT)]
    collection: Annotated[str | None, Field("collection", TEXT)] = None
    offer_throughput: Annotated[Value, Field("offerThroughput", NUMBER)] = None
    auto_scale: Annotated[bytes | None, Field("autoScaleSettings", DOCUMENT_FIELD)] = None
    shard_key: Annotated[str | None, Field("shardKey", TEXT)] = None
    indexes: Annotated[list[bytes] | None, Field("indexes", DOCUMENTS)] = None
    show_indexes: Annotated[bool, Field("showIndexes", BOOL_FIELD)] = False
    start_at: Annotated[Value, Field("startAtOperationTime", ANY)] = None
    # Reported by users: it has no effect.
    default_ttl: Annotated[Value, Field("defaultTtl", IGNORED)] = None


class AutoScaleSettings(NamedTuple):
    max_throughput: Annotated[Value, Field("maxThroughput", NUMBER)]


_AUTO_SCALE: Final[RequestParser] = parser_for("customAction.autoScaleSettings", AutoScaleSettings)


class ActionSpec(NamedTuple):
    """One value of `customAction`. privilege: what a client must be allowed on the collection, or on the database of an
    action that has no collection. changes: whether it writes."""

    function: "ActionFunction"
    privilege: str
    on_collection: bool
    changes: bool


ActionFunction: TypeAlias = Callable[[OperationContext, CustomActionRequest], Reply]
ACTIONS: Final[dict[str, ActionSpec]] = {}


def action(
    name: str, privilege: str, on_collection: bool = True, changes: bool = True
) -> Callable[[ActionFunction], ActionFunction]:
    """Registers the decorated function as a value of `customAction`. Arguments: see `ActionSpec`."""

    def register(function: ActionFunction) -> ActionFunction:
        ACTIONS[name] = ActionSpec(function, privilege, on_collection, changes)
        return function

    return register


def _action_needs(op: OperationContext, request: CustomActionRequest) -> list[Need]:
    spec = ACTIONS.get(request.action)
    if spec is None:  # which is refused to those who may use the others
        return database_needs(op.database, "createCollection")
    if spec.on_collection:
        return collection_needs(op.database, request.collection or "", spec.privilege)
    return database_needs(op.database, spec.privilege)


def _changes(body: bytes) -> bool:
    spec = ACTIONS.get(str(get_value(body, "customAction")))
    return spec is not None and spec.changes


@command(
    "customAction",
    CustomActionRequest,
    access=needing(_action_needs),
    help="Creates, changes and describes databases and collections with their throughput, in the dialect cosmos.",
    writes_if=_changes,
    exclusive=True,
)
def custom_action(op: OperationContext, request: CustomActionRequest) -> Reply:
    """Runs the action. CommandNotSupported (115) for an unknown one (assumed), ConflictingOperationInProgress (117) for
    what exists already, NamespaceNotFound (26) for what does not, BadValue (2) for throughput out of range."""
    account_of(op)
    spec = ACTIONS.get(request.action)
    if spec is None:
        raise CommandError(ErrorCode.CommandNotSupported, f"Command customAction {request.action} not supported")
    op.check_database()
    if spec.on_collection:
        check_new_collection_name(op.database, named_collection(request), op.catalog.naming)
    return spec.function(op, request)


def named_collection(request: CustomActionRequest) -> str:
    """The `collection` of an action that needs one; 40414 without it."""
    if request.collection is None:
        raise missing_field("customAction.collection")
    return request.collection


def found_collection(op: OperationContext, request: CustomActionRequest) -> Collection:
    """The existing collection that an action names. NamespaceNotFound (26)."""
    name = named_collection(request)
    collection = op.catalog.lookup(op.database, name)
    if collection is None:
        raise not_found(f"collection {op.database}.{name}")
    return collection


def _asked_throughput(request: CustomActionRequest, sharded: bool) -> Throughput | None:
    """What `offerThroughput` or `autoScaleSettings` ask for; None without either. BadValue (2) for both."""
    if request.auto_scale is None:
        if request.offer_throughput is None:
            return None
        return Throughput(checked_units(request.offer_throughput, False, sharded))
    if request.offer_throughput is not None:
        raise refused("offerThroughput and autoScaleSettings exclude each other")
    settings = AutoScaleSettings._make(_AUTO_SCALE.parse(request.auto_scale, [], None))
    return Throughput(checked_units(settings.max_throughput, True, sharded), autoscale=True)


def _check_change(present: Throughput | None, asked: Throughput) -> None:
    """BadValue (2): throughput cannot be added later, and does not change between manual and autoscale, by these
    commands. The first is assumed."""
    if present is None:
        raise refused("the throughput is not provisioned here, and cannot be added later")
    if present.autoscale != asked.autoscale:
        raise refused("throughput cannot be changed between manual and autoscale by this command")


@action("CreateDatabase", "createCollection", on_collection=False)
def create_database(op: OperationContext, request: CustomActionRequest) -> Reply:
    """Creates a database, which exists without collections; with throughput, they share it."""
    throughput = _asked_throughput(request, sharded=True)
    databases = op.service.databases
    if databases.exists(op.database):
        raise already_exists()
    databases.put(op.database, throughput)
    return {}


@action("UpdateDatabase", "collMod", on_collection=False)
def update_database(op: OperationContext, request: CustomActionRequest) -> Reply:
    """Changes the throughput that the collections share."""
    throughput = _asked_throughput(request, sharded=True)
    databases = op.service.databases
    if not databases.exists(op.database):
        raise not_found(f"database {op.database}")
    if throughput is None:
        raise refused("UpdateDatabase needs offerThroughput or autoScaleSettings")
    _check_change(databases.shared(op.database), throughput)
    databases.put(op.database, throughput)
    op.service.dialect.wake_waiting()
    return {}


@action("GetDatabase", "dbStats", on_collection=False, changes=False)
def get_database(op: OperationContext, request: CustomActionRequest) -> Reply:
    """`{database, provisionedThroughput, autoScaleSettings}`; without the latter two if its collections share none."""
    databases = op.service.databases
    if not databases.exists(op.database):
        raise not_found(f"database {op.database}")
    shared = databases.shared(op.database)
    return {"database": op.database} if shared is None else {"database": op.database, **shared.described()}


@action("CreateCollection", "createCollection")
def create_collection(op: OperationContext, request: CustomActionRequest) -> Reply:
    """Creates a collection, and its database if there is none.

    In a database with throughput the collection shares that, unless it asks for its own; a shard key is not needed for
    it, as Microsoft's samples show.
    """
    name = named_collection(request)
    check_name(account_of(op), name)
    shard_key = request.shard_key or ""
    if request.shard_key is not None:
        check_shard_key(shard_key)
    throughput = _asked_throughput(request, sharded=shard_key != "")
    wanted = None if request.indexes is None else _checked_indexes(op, name, request.indexes, keeps_names=True)
    with Undivided():
        if op.catalog.find(op.database, name) is not None:
            raise already_exists()
        op.catalog.check_new_name(op.database, name)
        collection = op.catalog.create_collection(op.database, name, NO_OPTIONS.provisioned(shard_key, throughput))
    op.service.dialect.wake_waiting()
    if wanted is not None:
        try:
            _set_indexes(op, collection, wanted, with_collection=True)
        except CommandError:
            with Undivided():
                if not collection.dropped:
                    op.catalog.drop_collection(collection)
            raise
    return {}


@action("UpdateCollection", "collMod")
def update_collection(op: OperationContext, request: CustomActionRequest) -> Reply:
    """Changes the throughput of a collection, or replaces its indexes by `indexes`, or both."""
    collection = found_collection(op, request)
    throughput = _asked_throughput(request, collection.shard_key is not None)
    wanted = None if request.indexes is None else _checked_indexes(op, collection.name, request.indexes)
    if throughput is None and wanted is None:
        raise refused("UpdateCollection needs offerThroughput, autoScaleSettings or indexes")
    if throughput is not None:
        present = throughput_of(op.service, op.database, collection.name)
        _check_change(present.throughput if present.holder == collection.namespace else None, throughput)
    if wanted is not None:
        _set_indexes(op, collection, wanted)
    if throughput is not None:
        with Undivided():
            check_alive(collection)
            op.catalog.set_options(collection, collection.options.provisioned(collection.options.shard_key, throughput))
        op.service.dialect.wake_waiting()
    return {}


@action("GetChangeStreamTokens", "changeStream", changes=False)
def get_change_stream_tokens(op: OperationContext, request: CustomActionRequest) -> Reply:
    """`{resumeAfterTokens: [<token>]}`: with which change streams begin at `startAtOperationTime`, or now; one for each
    physical partition, of which there is one.

    TypeMismatch (14) unless the time is a timestamp. The name of the reply's field is from programs that read it.
    """
    collection = found_collection(op, request)
    start = request.start_at
    if start is None:
        oplog = op.service.oplog
        oplog.refresh()
        at_s, at_i = oplog.latest_write(op.service.cluster_clock.operation_time)
        start = Timestamp(at_s, at_i + 1)
    elif not isinstance(start, Timestamp):
        raise wrong_type("customAction.startAtOperationTime", start, "timestamp")
    token: Value = feed_token(collection.uuid, high_water_mark(start.time, start.inc))
    return {"resumeAfterTokens": [token]}


@action("GetCollection", "listIndexes", changes=False)
def get_collection(op: OperationContext, request: CustomActionRequest) -> Reply:
    """`{database, collection, shardKeyDefinition, provisionedThroughput, autoScaleSettings, maxContentLength,
    indexes}`.

    shardKeyDefinition: its first field is the path of the shard key; absent if there is none. Throughput that the
    database's collections share is not shown. maxContentLength: bytes of a document, as replies that users have
    recorded show it. indexes: with `showIndexes`.
    """
    collection = found_collection(op, request)
    reply: dict[str, Value] = {"database": op.database, "collection": collection.name}
    if collection.shard_key is not None:
        reply["shardKeyDefinition"] = encode(collection.shard_key.pattern())
    budget = throughput_of(op.service, op.database, collection.name)
    if budget.holder == collection.namespace:
        reply.update(budget.throughput.described())
    reply["maxContentLength"] = max_document_bytes(account_of(op), collection.options.large_documents)
    if request.show_indexes:
        reply["indexes"] = [listed_index(collection, index.descriptor) for index in collection.listed_indexes]
    return reply


def _checked_indexes(
    op: OperationContext, collection: str, specs: list[bytes], keeps_names: bool = False
) -> list[tuple[bytes, IndexDescriptor]]:
    """Each specification of `indexes` as it is stored, and as parsed. BadValue (2) without one on `_id`, which is
    required; the errors of `parse_index_spec`."""
    log_ignored_sparse(op, collection, specs)
    if len(specs) > MOST_NEW:
        raise refused(f"more than {MOST_NEW} indexes")
    return op.compute(partial(_parsed_indexes, op, specs, keeps_names))


def _parsed_indexes(op: OperationContext, specs: list[bytes], keeps_names: bool) -> list[tuple[bytes, IndexDescriptor]]:
    wanted: list[tuple[bytes, IndexDescriptor]] = []
    for spec in specs:
        give_way()
        accepted = op.service.dialect.accepted_index(spec)
        stored = _stored_form(accepted, parse_index_spec(accepted), keeps_names)
        wanted.append((stored, parse_index_spec(stored)))
    if not any(descriptor.is_id for _, descriptor in wanted):
        raise refused("indexes must have one on _id")
    return wanted


def _stored_form(spec: bytes, descriptor: IndexDescriptor, keeps_name: bool) -> bytes:
    """A specification with directions of 1 and -1, and the given name, or the one that these make.

    UpdateCollection: Microsoft's sample asks for `{key: {name: 2}, name: "_id_2"}`, and shows that the index is then
    called `name_1`. CreateCollection keeps the name: programs that create their unique indexes so ask for the same ones
    by createIndexes later, under the same names, and go on (flamingock/flamingock-java#556).
    """
    if descriptor.is_id:
        return spec
    given = fields_by_name(spec)
    directions = [-1 if downward else 1 for downward in descriptor.descending]
    pattern = [
        (path, direction if is_number(value) else value)
        for (path, value), direction in zip(fields(descriptor.key), directions, strict=True)
    ]
    given["key"] = encode_fields(pattern)
    if not keeps_name:
        given["name"] = "_".join(f"{path}_{direction}" for path, direction in pattern)
    return encode(given)


def _set_indexes(
    op: OperationContext,
    collection: Collection,
    wanted: list[tuple[bytes, IndexDescriptor]],
    with_collection: bool = False,
) -> None:
    """Makes the indexes of a collection those that are wanted. The others are dropped, but that on the shard key.

    All of it happens or nothing: the new indexes are stored, and the others dropped, in one unit of work after the new
    ones have been built.

    with_collection: whether the collection was created just now.
    """
    descriptors = [descriptor for _, descriptor in wanted]
    dropped = [index for index in collection.listed_indexes if not _is_kept(collection, index, descriptors)]
    op.service.dialect.check_dropped_indexes([index.descriptor for index in dropped])
    new = [spec for spec, descriptor in wanted if not descriptor.is_id]
    request = CreateIndexesRequest(collection.name, new)
    create_requested(op, request, with_collection, [index.name for index in dropped])


def _is_kept(collection: Collection, index: CollectionIndex, wanted: list[IndexDescriptor]) -> bool:
    descriptor = index.descriptor
    if descriptor.name == ID_INDEX_NAME:
        return True
    if any(same.name == descriptor.name and same.compared_with(descriptor) == IDENTICAL for same in wanted):
        return True
    of_shard_key = collection.shard_key is not None and [path.dotted for path in descriptor.paths] == [
        collection.shard_key.path.dotted
    ]
    return of_shard_key and not any(same.has_key(descriptor.key) for same in wanted)


class ShardCollectionRequest(NamedTuple):
    namespace: Annotated[str, Field("shardCollection", TEXT)]
    key: Annotated[bytes, Field("key", DOCUMENT_FIELD)]
    unique: Annotated[bool, Field("unique", BOOL_FIELD)] = False
    # Drivers and shells of MongoDB send them; Cosmos DB divides a collection by itself.
    chunks: Annotated[Value, Field("numInitialChunks", IGNORED)] = None
    presplit: Annotated[Value, Field("presplitHashedZones", IGNORED)] = None


def _shard_collection_needs(op: OperationContext, request: ShardCollectionRequest) -> list[Need]:
    return namespace_needs(request.namespace, "createCollection")


@command(
    "shardCollection",
    ShardCollectionRequest,
    access=needing(_shard_collection_needs),
    help="Creates a collection with a shard key, in the dialect cosmos.",
    writes=True,
    exclusive=True,
)
def shard_collection(op: OperationContext, request: ShardCollectionRequest) -> Reply:
    """`{_t: "ShardCollectionResponse", collectionsharded}`. On any database; the key is one path, `hashed` or 1.

    ConflictingOperationInProgress (117) if the collection exists, because it cannot be sharded later (assumed),
    BadValue (2) for other keys.
    """
    account_of(op)
    database, name = split_namespace(request.namespace, op.catalog.naming)
    key = fields(request.key)
    if len(key) != 1 or not (key[0][1] == "hashed" or compare_values(key[0][1], 1) == 0):
        raise refused("the shard key must be one path, which is hashed")
    if request.unique:
        raise refused("a hashed shard key cannot be unique")
    path = key[0][0]
    check_shard_key(path)
    with Undivided():
        if op.catalog.find(database, name) is not None:
            raise already_exists()
        op.catalog.check_new_name(database, name)
        op.catalog.create_collection(database, name, NO_OPTIONS.provisioned(path, None))
    return {"collectionsharded": request.namespace}
