"""The built-in roles of MongoDB, as a table: each has parts, and a part gives actions on some resources.

    read          on its own database
    readAnyDatabase, root, …    only in the database `admin`, on all databases

Source: MongoDB's manual, "Built-In Roles". Actions on what a replica set of one member does not have (shards) are
listed too, since `rolesInfo` shows them.
"""

from typing import Final, NamedTuple

from mongottl.security.names import RoleName
from mongottl.security.privileges import (
    ALL_DATABASES,
    ANY_ACTION,
    ANY_RESOURCE,
    CLUSTER,
    PrivilegeSet,
    Resource,
    collection_resource,
    database_resource,
)

_READ: Final = "changeStream collStats dbHash dbStats find killCursors listCollections listIndexes planCacheRead"
_WRITE: Final = (
    "convertToCapped createCollection createIndex dropCollection dropIndex insert performRawDataOperations remove"
    " renameCollectionSameDB update"
)
_READ_WRITE: Final = f"{_READ} {_WRITE}"
_READ_SYSTEM_JS: Final = _READ
_ADMINISTER: Final = (
    "analyze bypassDocumentValidation cleanupStructuredEncryptionData collMod collStats compact"
    " compactStructuredEncryptionData convertToCapped createCollection createIndex createSearchIndexes dbStats"
    " dropCollection dropDatabase dropIndex dropSearchIndex enableProfiler indexStats listCollections listIndexes"
    " listSearchIndexes planCacheIndexFilter planCacheRead planCacheWrite reIndex renameCollectionSameDB storageDetails"
    " updateSearchIndex validate"
)
_ADMINISTER_PROFILE: Final = (
    "changeStream collStats convertToCapped createCollection dbHash dbStats dropCollection find killCursors"
    " listCollections listIndexes planCacheRead"
)
_ADMINISTER_USERS: Final = (
    "changeCustomData changePassword createRole createUser dropRole dropUser grantRole revokeRole"
    " setAuthenticationRestriction viewRole viewUser"
)
_MONITOR_CLUSTER: Final = (
    "checkFreeMonitoringStatus connPoolStats getClusterParameter getCmdLineOpts getDefaultRWConcern getLog getParameter"
    " getShardMap hostInfo inprog listDatabases listSampledQueries listSessions listShards netstat operationMetrics"
    " queryStatsRead queryStatsReadTransformed replSetGetConfig replSetGetStatus serverStatus setFreeMonitoring"
    " shardedDataDistribution shardingState top useUUID"
)
_MONITOR_DATABASES: Final = "collStats dbStats getDatabaseVersion getShardVersion indexStats"
_MONITOR_SYSTEM_DATABASES: Final = (
    "collStats dbHash dbStats find getDatabaseVersion getShardVersion indexStats killCursors listCollections"
    " listIndexes planCacheRead"
)
_MANAGE_HOST: Final = (
    "applicationMessage auditConfigure auditLogGlobal bypassDefaultMaxTimeMS closeAllDatabases compact connPoolSync"
    " cpuProfiler dropConnections flushRouterConfig fsync invalidateUserCache killAnyCursor killAnySession killop"
    " logRotate oidReset resync rotateCertificates setParameter setUserWriteBlockMode shutdown touch unlock"
)
_MANAGE_CLUSTER: Final = (
    "addShard appendOplogNote applicationMessage cleanupOrphaned flushRouterConfig getClusterParameter"
    " getDefaultRWConcern listSessions listShards querySettings removeShard replSetConfigure replSetGetConfig"
    " replSetGetStatus replSetResizeOplog replSetStateChange resync setChangeStreamState setClusterParameter"
    " setDefaultRWConcern setFeatureCompatibilityVersion setFreeMonitoring"
)
_MANAGE_DATABASES: Final = (
    "analyze checkMetadataConsistency clearJumboFlag enableSharding moveChunk moveCollection refineCollectionShardKey"
    " reshardCollection shardCollection splitChunk splitVector unshardCollection untrackUnshardedCollection"
)
_MANAGE_SYSTEM_DATABASES: Final = f"{_READ} {_WRITE} enableSharding splitVector"
_BACK_UP_CLUSTER: Final = (
    "appendOplogNote getClusterParameter getParameter listDatabases serverStatus setUserWriteBlockMode"
)
_BACK_UP: Final = "changeStream collStats dbStats find listCollections listIndexes"
_RESTORE_CLUSTER: Final = (
    "bypassWriteBlockingMode forceUUID getParameter setClusterParameter setUserWriteBlockMode useUUID"
)
_RESTORE: Final = (
    "analyze bypassDocumentValidation changeCustomData changePassword collMod convertToCapped createCollection"
    " createIndex createRole createUser dropCollection dropIndex dropRole dropUser grantRole insert killCursors"
    " listCollections performRawDataOperations revokeRole setAuthenticationRestriction viewRole viewUser"
)
_SYSTEM_COLLECTIONS: Final = ("system.js", "system.profile", "system.users", "system.views")
_WRITE_SYSTEM: Final = "collMod createCollection createIndex dropCollection dropIndex find insert remove update"


class Part(NamedTuple):
    """Actions on a resource. resource: None for the database of the role."""

    resource: Resource | None
    actions: str
    # A collection of the role's database, or of any database; empty for the database itself.
    collection: str = ""


class BuiltinRole(NamedTuple):
    """any_database: in every database, and not only in `admin`. includes: other built-in roles of the same database."""

    any_database: bool
    parts: tuple[Part, ...]
    includes: tuple[str, ...] = ()


def _everywhere(collection: str) -> Resource:
    """The collections of this name in all databases."""
    return collection_resource("", collection)


BUILTIN_ROLES: Final[dict[str, BuiltinRole]] = {
    "read": BuiltinRole(True, (Part(None, _READ), Part(None, _READ_SYSTEM_JS, "system.js"))),
    "readWrite": BuiltinRole(True, (Part(None, _READ_WRITE), Part(None, _READ_WRITE, "system.js"))),
    "dbAdmin": BuiltinRole(
        True,
        (
            Part(None, _ADMINISTER),
            Part(None, _ADMINISTER_PROFILE, "system.profile"),
            Part(None, _ADMINISTER, "system.views"),
        ),
    ),
    "userAdmin": BuiltinRole(True, (Part(None, _ADMINISTER_USERS),)),
    "dbOwner": BuiltinRole(True, (), ("readWrite", "dbAdmin", "userAdmin")),
    "enableSharding": BuiltinRole(
        True, (Part(None, "analyze enableSharding refineCollectionShardKey reshardCollection splitVector"),)
    ),
    "readAnyDatabase": BuiltinRole(
        False,
        (
            Part(ALL_DATABASES, _READ),
            Part(_everywhere("system.js"), _READ_SYSTEM_JS),
            Part(CLUSTER, "listDatabases"),
        ),
    ),
    "readWriteAnyDatabase": BuiltinRole(
        False,
        (
            Part(ALL_DATABASES, _READ_WRITE),
            Part(_everywhere("system.js"), _READ_WRITE),
            Part(CLUSTER, "listDatabases"),
        ),
    ),
    "userAdminAnyDatabase": BuiltinRole(
        False,
        (
            Part(ALL_DATABASES, _ADMINISTER_USERS),
            Part(database_resource("local"), _ADMINISTER_USERS),
            Part(database_resource("config"), _ADMINISTER_USERS),
            Part(CLUSTER, "authSchemaUpgrade invalidateUserCache listDatabases"),
            Part(collection_resource("admin", "system.users"), f"{_READ} createIndex dropIndex indexStats"),
            Part(collection_resource("admin", "system.roles"), f"{_READ} createIndex dropIndex indexStats"),
        ),
    ),
    "dbAdminAnyDatabase": BuiltinRole(
        False,
        (
            Part(ALL_DATABASES, _ADMINISTER),
            Part(_everywhere("system.profile"), _ADMINISTER_PROFILE),
            Part(_everywhere("system.views"), _ADMINISTER),
            Part(CLUSTER, "listDatabases"),
        ),
    ),
    "clusterMonitor": BuiltinRole(
        False,
        (
            Part(CLUSTER, _MONITOR_CLUSTER),
            Part(ALL_DATABASES, _MONITOR_DATABASES),
            Part(_everywhere("system.profile"), "find"),
            Part(database_resource("config"), _MONITOR_SYSTEM_DATABASES),
            Part(database_resource("local"), _MONITOR_SYSTEM_DATABASES),
            Part(collection_resource("local", "system.replset"), "find"),
            Part(collection_resource("config", "system.sessions"), "collStats find indexStats"),
        ),
    ),
    "hostManager": BuiltinRole(False, (Part(CLUSTER, _MANAGE_HOST), Part(ALL_DATABASES, "killCursors"))),
    "clusterManager": BuiltinRole(
        False,
        (
            Part(CLUSTER, _MANAGE_CLUSTER),
            Part(ALL_DATABASES, _MANAGE_DATABASES),
            Part(database_resource("config"), _MANAGE_SYSTEM_DATABASES),
            Part(database_resource("local"), _MANAGE_SYSTEM_DATABASES),
            Part(collection_resource("local", "system.replset"), _READ),
        ),
    ),
    "clusterAdmin": BuiltinRole(
        False, (Part(ALL_DATABASES, "dropDatabase"),), ("clusterMonitor", "hostManager", "clusterManager")
    ),
    "backup": BuiltinRole(
        False,
        (
            Part(CLUSTER, _BACK_UP_CLUSTER),
            Part(ANY_RESOURCE, "listCollections listIndexes"),
            Part(ALL_DATABASES, _BACK_UP),
            Part(database_resource("config"), _BACK_UP),
            Part(database_resource("local"), _BACK_UP),
            *(Part(_everywhere(name), _BACK_UP) for name in _SYSTEM_COLLECTIONS),
            Part(collection_resource("admin", "system.roles"), _BACK_UP),
            # MongoDB's own tools ask there for the version of the stored users, before anything else.
            Part(collection_resource("admin", "system.version"), "find"),
            Part(collection_resource("config", "settings"), "insert update"),
        ),
    ),
    "restore": BuiltinRole(
        False,
        (
            Part(CLUSTER, _RESTORE_CLUSTER),
            Part(ALL_DATABASES, _RESTORE),
            Part(database_resource("config"), _RESTORE),
            Part(database_resource("local"), _RESTORE),
            *(Part(_everywhere(name), f"{_RESTORE} {_WRITE_SYSTEM}") for name in _SYSTEM_COLLECTIONS),
            Part(collection_resource("admin", "system.roles"), f"{_RESTORE} {_WRITE_SYSTEM}"),
            Part(collection_resource("admin", "system.version"), "find"),
        ),
    ),
    "root": BuiltinRole(
        False,
        (Part(ANY_RESOURCE, "validate"),),
        (
            "clusterAdmin",
            "userAdminAnyDatabase",
            "dbAdminAnyDatabase",
            "readWriteAnyDatabase",
            "backup",
            "restore",
        ),
    ),
    "directShardOperations": BuiltinRole(False, (Part(CLUSTER, "issueDirectShardOperations"),)),
    "searchCoordinator": BuiltinRole(
        False, (Part(collection_resource("__mdb_internal_search", ""), _READ_WRITE), Part(CLUSTER, "listDatabases"))
    ),
    "__queryableBackup": BuiltinRole(False, (), ("backup",)),
    "__system": BuiltinRole(False, (Part(ANY_RESOURCE, ANY_ACTION),)),
}


def builtin_role(role: RoleName) -> BuiltinRole | None:
    """The built-in role of this name, or None if its database has none."""
    found = BUILTIN_ROLES.get(role.name)
    if found is None or role.database.startswith("$"):
        return None
    return found if found.any_database or role.database == "admin" else None


def builtin_roles_of(database: str) -> list[RoleName]:
    """The names of the built-in roles that a database has."""
    names = [RoleName(name, database) for name in sorted(BUILTIN_ROLES)]
    return [name for name in names if builtin_role(name) is not None]


def add_privileges(role: RoleName, privileges: PrivilegeSet) -> None:
    """Adds the privileges of a built-in role and of those that it includes."""
    found = BUILTIN_ROLES[role.name]
    for part in found.parts:
        resource = part.resource
        if resource is None:
            resource = collection_resource(role.database, part.collection)
        privileges.add(resource, part.actions.split())
    for name in found.includes:
        add_privileges(RoleName(name, role.database), privileges)
