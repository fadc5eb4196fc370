"""Resources, actions, and sets of privileges.

A privilege allows actions on a resource, which is one of

    {db: "shop", collection: "carts"}   this collection
    {db: "shop", collection: ""}        the database, and its collections except those of the system
    {db: "", collection: "carts"}       the collections of this name in all databases
    {db: "", collection: ""}            all databases except `local` and `config`, as for one database
    {cluster: true}                     the server
    {anyResource: true}                 everything

Collections of the system begin with `system.`; each needs a privilege that names it, or all resources.

Source: MongoDB's manual, "Resource Document" and "Privilege Actions".
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from mongottl.document.bson_field import missing_field, unknown_field, wrong_type
from mongottl.document.build import DocumentsOfReply, encode
from mongottl.document.freeing import LongDict, list_for
from mongottl.document.interrupt import give_way
from mongottl.document.types import Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode

# What a privilege takes to be parsed or described, in the units of `give_way`.
_WORK: Final = 8
# Not covered by a privilege on all databases.
_SEPARATE_DATABASES: Final = ("local", "config")


class Resource(NamedTuple):
    """What a privilege is about; see this module. kind: "namespace", "buckets", "cluster" or "any"."""

    kind: str
    database: str = ""
    collection: str = ""

    def document(self) -> bytes:
        """The resource as MongoDB writes it."""
        if self.kind == "cluster":
            return encode({"cluster": True})
        if self.kind == "any":
            return encode({"anyResource": True})
        return encode(
            {"db": self.database, "system_buckets" if self.kind == "buckets" else "collection": self.collection}
        )


CLUSTER: Final = Resource("cluster")
ANY_RESOURCE: Final = Resource("any")
ALL_DATABASES: Final = Resource("namespace")


def collection_resource(database: str, collection: str) -> Resource:
    """A collection; all collections of the database if `collection` is empty."""
    return Resource("namespace", database, collection)


def database_resource(database: str) -> Resource:
    return Resource("namespace", database)


def resources_that_cover(resource: Resource) -> list[Resource]:
    """The resources of privileges that apply to a resource, from the narrowest on."""
    if resource.kind != "namespace":
        return [resource, ANY_RESOURCE]
    database, collection = resource.database, resource.collection
    covering = [resource]
    if collection and not is_system_collection(database, collection):
        covering.append(Resource("namespace", database))
    if collection:
        covering.append(Resource("namespace", "", collection))
    if (not collection or not is_system_collection(database, collection)) and database not in _SEPARATE_DATABASES:
        covering.append(ALL_DATABASES)
    covering.append(ANY_RESOURCE)
    return covering


def is_system_collection(database: str, collection: str) -> bool:
    """Whether privileges on a whole database leave out this collection."""
    return collection.startswith("system.") or (database == "local" and collection.startswith("replset."))


class Need(NamedTuple):
    """What an operation needs to be allowed: an action on a resource."""

    resource: Resource
    action: str


class PrivilegeSet:
    """What somebody may do: actions by resource. Others run while very many are added or described in an evaluation."""

    def __init__(self) -> None:
        self._actions: dict[Resource, set[str]] = LongDict({})

    def add(self, resource: Resource, actions: Iterable[str]) -> None:
        give_way()
        self._actions.setdefault(resource, set()).update(actions)

    def include(self, other: "PrivilegeSet") -> None:
        for resource, actions in other._actions.items():
            self.add(resource, actions)

    def allows(self, resource: Resource, action: str) -> bool:
        for covering in resources_that_cover(resource):
            actions = self._actions.get(covering)
            if actions is not None and (action in actions or ANY_ACTION in actions):
                return True
        return False

    def reaches(self, database: str, collection: str = "") -> bool:
        """Whether any action is allowed on the collection, or without one on the database or any of its collections."""
        covering = resources_that_cover(collection_resource(database, collection))
        for resource, actions in self._actions.items():
            within = not collection and resource.kind == "namespace" and resource.database == database
            if actions and (within or resource in covering):
                return True
        return False

    def __iter__(self) -> Iterator[tuple[Resource, set[str]]]:
        return iter(self._actions.items())

    def documents(self) -> list[Value]:
        """`[{resource, actions}]`, as MongoDB shows privileges. BSONObjectTooLarge (10334) if no reply has them all."""
        described = DocumentsOfReply()
        for resource, actions in self._actions.items():
            give_way(_WORK)
            described.append(encode({"resource": resource.document(), "actions": sorted(actions)}))
        return described.documents


# Actions on a collection that have the names of commands.
FIND: Final = "find"
INSERT: Final = "insert"
UPDATE: Final = "update"
REMOVE: Final = "remove"

# The action that allows every other, of the role `__system`.
ANY_ACTION: Final = "anyAction"

# The names of actions; others are refused when a role is made.
ACTIONS: Final = frozenset(
    """
    addShard analyze anyAction appendOplogNote applicationMessage applyOps auditConfigure auditLogGlobal
    authSchemaUpgrade bypassDefaultMaxTimeMS bypassDocumentValidation bypassWriteBlockingMode changeCustomData
    changeOwnCustomData changeOwnPassword changePassword changeStream checkFreeMonitoringStatus
    checkMetadataConsistency cleanupOrphaned cleanupStructuredEncryptionData clearJumboFlag closeAllDatabases collMod
    collStats compact compactStructuredEncryptionData connPoolStats connPoolSync convertToCapped cpuProfiler
    createCollection createDatabase createIndex createRole createSearchIndexes createUser dbHash dbStats
    dropAllRolesFromDatabase dropAllUsersFromDatabase dropCollection dropConnections dropDatabase dropIndex dropRole
    dropSearchIndex dropUser emptycapped enableProfiler enableSharding exportCollection find flushRouterConfig
    forceUUID fsync getClusterParameter getCmdLineOpts getDatabaseVersion getDefaultRWConcern getLog getParameter
    getShardMap getShardVersion grantPrivilegesToRole grantRole grantRolesToRole grantRolesToUser hostInfo
    impersonate importCollection indexStats inprog insert internal invalidateUserCache issueDirectShardOperations
    killAnyCursor killAnySession killCursors killop listCachedAndActiveUsers listCollections listDatabases listIndexes
    listSampledQueries listSearchIndexes listSessions listShards logRotate moveChunk moveCollection netstat oidReset
    oplogTruncation operationMetrics performRawDataOperations planCacheIndexFilter planCacheRead planCacheWrite
    queryStatsRead queryStatsReadTransformed querySettings reIndex refineCollectionShardKey reloadConfig remove
    removeShard renameCollection renameCollectionSameDB repairDatabase replSetConfigure replSetGetConfig
    replSetGetStatus replSetHeartbeat replSetReconfig replSetResizeOplog replSetStateChange reshardCollection resync
    revokePrivilegesFromRole revokeRole revokeRolesFromRole revokeRolesFromUser rotateCertificates
    serverStatus setAuthenticationRestriction setChangeStreamState setClusterParameter setDefaultRWConcern
    setFeatureCompatibilityVersion setFreeMonitoring setParameter setUserWriteBlockMode shardCollection
    shardedDataDistribution shardingState shutdown splitChunk splitVector storageDetails top touch unlock
    unshardCollection untrackUnshardedCollection update updateRole updateSearchIndex updateUser useTenant useUUID
    validate viewRole viewUser
    """.split()
)


def parse_resource(name: str, document: bytes) -> Resource:
    """The resource of a document. BadValue (2) for another form, TypeMismatch (14), 40415 for other fields."""
    given: dict[str, Value] = {}
    for key, value in fields(document):
        if key not in ("db", "collection", "system_buckets", "cluster", "anyResource"):
            raise unknown_field(f"{name}.{key}")
        if key in ("cluster", "anyResource"):
            if not isinstance(value, bool):
                raise wrong_type(f"{name}.{key}", value, "bool")
            if not value:
                continue
        elif not isinstance(value, str):
            raise wrong_type(f"{name}.{key}", value, "string")
        given[key] = value
    names = set(given)
    if names == {"cluster"}:
        return CLUSTER
    if names == {"anyResource"}:
        return ANY_RESOURCE
    if names in ({"db", "collection"}, {"collection"}, {"db", "system_buckets"}, {"system_buckets"}):
        buckets = "system_buckets" in given
        collection = given["system_buckets" if buckets else "collection"]
        return Resource("buckets" if buckets else "namespace", str(given.get("db", "")), str(collection))
    raise CommandError(
        ErrorCode.BadValue,
        "A resource has both db and collection, or only cluster: true, or only anyResource: true",
    )


def parse_privileges(name: str, documents: list[Value]) -> list[tuple[Resource, list[str]]]:
    """`[{resource, actions}]`. BadValue (2) for a wrong resource, FailedToParse (9) for an unknown action."""
    parsed: list[tuple[Resource, list[str]]] = list_for(len(documents))
    for index, document in enumerate(documents):
        give_way(_WORK)
        path = f"{name}.{index}"
        if not isinstance(document, bytes):
            raise wrong_type(path, document, "object")
        resource: Value = None
        actions: Value = None
        for key, value in fields(document):
            if key == "resource":
                resource = value
            elif key == "actions":
                actions = value
            else:
                raise unknown_field(f"{path}.{key}")
        if resource is None:
            raise missing_field(f"{path}.resource")
        if not isinstance(resource, bytes):
            raise wrong_type(f"{path}.resource", resource, "object")
        if actions is None:
            raise missing_field(f"{path}.actions")
        if not isinstance(actions, list):
            raise wrong_type(f"{path}.actions", actions, "array")
        parsed.append((parse_resource(f"{path}.resource", resource), [_action(path, action) for action in actions]))
    return parsed


def _action(path: str, action: Value) -> str:
    give_way()
    if not isinstance(action, str):
        raise wrong_type(f"{path}.actions", action, "string")
    if action not in ACTIONS:
        raise CommandError(ErrorCode.FailedToParse, f"Unrecognized action privilege string: {action}")
    return action
