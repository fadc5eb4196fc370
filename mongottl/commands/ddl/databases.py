"""listDatabases, dropDatabase, dbStats.

Source: MongoDB's command reference for each.
"""

import os
from functools import partial
from typing import Annotated, Final, NamedTuple

from mongottl.catalog.change_kinds import DROP_DATABASE
from mongottl.catalog.collection import Collection
from mongottl.catalog.namespace import SYSTEM_DATABASES
from mongottl.commands.access import cluster_needs, needing, on_database
from mongottl.commands.listing import matching
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ANY, BOOL_FIELD, DOCUMENT_FIELD, INTEGER, ONE, STRICT_BOOL, Field
from mongottl.document.build import EMPTY_DOCUMENT, encode
from mongottl.document.interrupt import Undivided
from mongottl.document.types import Int64, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.results.sizes import CollectionSize, collection_size, measured, parse_scale
from mongottl.oplog.change import LoggedChange
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_condition
from mongottl.security.privileges import CLUSTER, Need

_BYTES_PER_MB: Final = 1024 * 1024


class ListDatabasesRequest(NamedTuple):
    command: Annotated[Value, Field("listDatabases", ONE)]
    filter: Annotated[bytes, Field("filter", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    name_only: Annotated[bool, Field("nameOnly", BOOL_FIELD)] = False
    authorized_databases: Annotated[bool | None, Field("authorizedDatabases", STRICT_BOOL)] = None


def _list_databases_needs(op: OperationContext, request: ListDatabasesRequest) -> list[Need]:
    """Everybody may list the databases in which they may do something."""
    return [] if request.authorized_databases is not False else cluster_needs("listDatabases")


@command(
    "listDatabases",
    ListDatabasesRequest,
    access=needing(_list_databases_needs),
    help="Lists the databases and their sizes.",
    admin_only=True,
    stable=True,
)
def list_databases(op: OperationContext, request: ListDatabasesRequest) -> Reply:
    """`{databases: [{name, sizeOnDisk, empty}], totalSize, totalSizeMb}`; with `nameOnly` the names alone.

    filter: on these fields. sizeOnDisk: bytes of the documents and an estimate for the indexes. `admin`, `config` and
    `local` are always listed, as in MongoDB; Cosmos lists empty databases only if CreateDatabase has made them. Clients
    that may not list all databases see those in which they may do something.
    """
    match = op.compute(partial(parse_condition, request.filter, ParseContext(op.now_ms, runtime_constants=False)))
    names = set(op.catalog.database_names())
    if op.service.dialect.lists_system_databases:
        names.update(SYSTEM_DATABASES)
    elif all(collection.name.startswith("system.") for collection in op.catalog.collections("admin")):
        names.discard("admin")  # which has the account's keys as users
    names.update(op.service.databases.names())
    if request.authorized_databases is True or not op.may(CLUSTER, "listDatabases"):
        names = {name for name in names if op.may_use(name)}
    sizes: dict[bytes, int] = {}
    for name in sorted(names):
        op.give_way()
        described: dict[str, Value] = {"name": name}
        size = 0
        if not request.name_only:
            size = sum(measured(op, op.collections(name), partial(_total_size, op)))
            described["sizeOnDisk"] = Int64(size)
            described["empty"] = False
        sizes[encode(described)] = size
    databases = op.compute(partial(matching, match, list(sizes)))
    total = sum([sizes[entry] for entry in databases])
    if request.name_only:
        return {"databases": databases}
    return {"databases": databases, "totalSize": Int64(total), "totalSizeMb": Int64(total // _BYTES_PER_MB)}


def _total_size(op: OperationContext, collection: Collection) -> int:
    return collection_size(op.recovery_unit, collection).total


class DropDatabaseRequest(NamedTuple):
    command: Annotated[int, Field("dropDatabase", INTEGER)]


@command(
    "dropDatabase",
    DropDatabaseRequest,
    access=on_database("dropDatabase"),
    help="Drops a database with all its collections.",
    writes=True,
    stable=True,
    exclusive=True,
    is_repeatable=True,
)
def drop_database(op: OperationContext, request: DropDatabaseRequest) -> Reply:
    """Drops the collections one by one, in steps. A database that does not exist is no error."""
    if request.command != 1:
        raise CommandError(5255100, "Have to pass 1 as 'drop' parameter")
    name = op.database
    op.check_database()
    if name in ("admin", "local"):
        raise CommandError(ErrorCode.IllegalOperation, f"Dropping the '{name}' database is prohibited.")
    collections = op.collections(name)
    collections.reverse()
    has_collections = len(collections) > 0
    while collections:
        with Undivided():
            _drop(op, collections.pop())  # not kept until the end: to free a hundred thousand takes half a second
        op.give_way()
    with Undivided():  # the database is empty when its event says that it was dropped
        for collection in op.catalog.collections(name):
            _drop(op, collection)  # others have made it meanwhile
        op.service.databases.drop(name)
        if has_collections:
            op.service.commit_log.log_alone(LoggedChange(DROP_DATABASE, name, "", None))
    return {}


def _drop(op: OperationContext, collection: Collection) -> None:
    """Drops a collection, unless others have done so or have moved it to another database."""
    if not collection.dropped and collection.database == op.database:
        op.service.cursors.close_where_namespace(collection.namespace)
        op.catalog.drop_collection(collection)
        op.remove_usage(collection.namespace)


class DbStatsRequest(NamedTuple):
    command: Annotated[Value, Field("dbStats", ONE)]
    scale: Annotated[Value, Field("scale", ANY)] = None
    free_storage: Annotated[bool, Field("freeStorage", BOOL_FIELD)] = False


@command(
    "dbStats",
    DbStatsRequest,
    access=on_database("dbStats"),
    help="Returns the counts and sizes of a database.",
    aliases=("dbstats",),
)
def db_stats(op: OperationContext, request: DbStatsRequest) -> Reply:
    """Sizes in units of `scale` bytes, except avgObjSize; they include expired documents that are not purged yet.

    `objects` does not include expired documents. BadValue (2) for a scale below 1.
    """
    scale = parse_scale("dbStats", request.scale)
    op.check_database()

    def measure(collection: Collection) -> tuple[CollectionSize, int]:
        size = collection_size(op.recovery_unit, collection)
        return size, size.unexpired_count(op.now_s)

    collections = objects = records = data = index_size = indexes = 0
    for size, count in measured(op, op.collections(op.database), measure):
        collections += 1
        objects += count
        records += size.records
        data += size.data
        index_size += size.indexes_total
        indexes += len(size.indexes)
    reply: dict[str, Value] = {
        "db": op.database,
        "collections": Int64(collections),
        "views": Int64(op.catalog.view_count(op.database)),
        "objects": Int64(objects),
        "avgObjSize": data / records if records else 0.0,
        "dataSize": data / scale,
        "storageSize": data / scale,
    }
    if request.free_storage:
        reply["freeStorageSize"] = 0.0
    reply["indexes"] = Int64(indexes)
    reply["indexSize"] = index_size / scale
    if request.free_storage:
        reply["indexFreeStorageSize"] = 0.0
    reply["totalSize"] = (data + index_size) / scale
    if request.free_storage:
        reply["totalFreeStorageSize"] = 0.0
    used, total = _file_system(op.service.engine.folder)
    reply["scaleFactor"] = Int64(scale)
    reply["fsUsedSize"] = used / scale
    reply["fsTotalSize"] = total / scale
    return reply


def _file_system(directory: str | None) -> tuple[int, int]:
    """Used and total bytes of the file system with the data directory; zeros without one."""
    if directory is None or not hasattr(os, "statvfs"):
        return 0, 0
    figures = os.statvfs(directory)
    total = figures.f_frsize * figures.f_blocks
    return total - figures.f_frsize * figures.f_bfree, total
