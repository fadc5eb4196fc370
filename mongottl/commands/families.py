"""The modules of commands, and the names and aliases of the commands in each.

Commands that belong to one dialect are in its package. Another dialect has their names as well, and refuses them: a
request is understood before it is known to be of the wrong dialect.

A module is imported when one of its commands is first asked for: a server that has just been started imports the
handshake alone. `registry.command` refuses a command whose name is missing here.
"""

from typing import Final

# By module, relative to this package; those that begin with `dialect` are relative to `mongottl`.
FAMILIES: Final[dict[str, str]] = {
    "admin.backup": "mongottlBackup",
    "admin.clock": "advanceClock setClock resetClock freezeClock configureFailPoint",
    "admin.cluster_parameters": "getClusterParameter setClusterParameter",
    "admin.compact": "compact autoCompact",
    "admin.compatibility": "setFeatureCompatibilityVersion",
    "admin.connections": "dropConnections rotateCertificates",
    "admin.db_hash": "dbHash dbhash",
    "admin.diagnostic_data": "getDiagnosticData",
    "admin.diagnostics": "buildInfo buildinfo hostInfo getCmdLineOpts getLog listCommands connPoolStats lockInfo top",
    "admin.handshake": "hello isMaster ismaster ping testVersion2 whatsmyuri _isSelf",
    "admin.maintenance": "fsync fsyncUnlock logRotate shutdown features",
    "admin.operations": "currentOp killOp",
    "admin.parameters": "getParameter setParameter",
    "admin.plan_cache": "planCacheSetFilter planCacheListFilters planCacheClearFilters planCacheClear",
    "admin.profile": "profile",
    "admin.replica_set": "replSetGetStatus replSetGetConfig replSetInitiate",
    "admin.rw_concern_defaults": "getDefaultRWConcern setDefaultRWConcern",
    "admin.saved_states": "saveState restoreState resetState dropState",
    "admin.server_status": "serverStatus",
    "admin.session": "startSession endSessions refreshSessions killSessions killAllSessions killAllSessionsByPattern",
    "admin.sizes": "dataSize datasize",
    "admin.transaction": "commitTransaction abortTransaction",
    "admin.validate": "validate validateDBMetadata",
    "admin.write_block": "setUserWriteBlockMode",
    "crud.aggregate": "aggregate",
    "crud.apply_ops": "applyOps",
    "crud.bulk_write": "bulkWrite",
    "crud.delete": "delete",
    "crud.explain": "explain",
    "crud.file_md5": "filemd5",
    "crud.find_and_modify": "findAndModify findandmodify",
    "crud.find_count_distinct": "find count distinct",
    "crud.get_more": "getMore killCursors",
    "crud.insert": "insert",
    "crud.last_error": "getLastError getlasterror",
    "crud.map_reduce": "mapReduce mapreduce",
    "crud.query_settings": "setQuerySettings removeQuerySettings",
    "crud.update": "update",
    "ddl.capped": "convertToCapped cloneCollectionAsCapped emptycapped",
    "ddl.collections": "drop renameCollection listCollections collStats collstats",
    "ddl.collmod": "collMod",
    "ddl.create": "create",
    "ddl.databases": "listDatabases dropDatabase dbStats dbstats",
    "ddl.encryption_data": "compactStructuredEncryptionData cleanupStructuredEncryptionData",
    "ddl.indexes": "createIndexes listIndexes dropIndexes deleteIndexes setIndexCommitQuorum reIndex",
    "dialect.cosmos.commands.configuration": "configureCosmos",
    "dialect.cosmos.commands.provisioning": "customAction shardCollection",
    "dialect.cosmos.commands.request_statistics": ("getLastRequestStatistics GetLastRequestStatistics getRequestUnits"),
    "security.authentication": "getnonce saslStart saslContinue authenticate logout connectionStatus",
    "security.merge_accounts": "_mergeAuthzCollections",
    "security.roles": (
        "createRole updateRole grantPrivilegesToRole revokePrivilegesFromRole grantRolesToRole "
        "revokeRolesFromRole dropRole dropAllRolesFromDatabase rolesInfo"
    ),
    "security.users": (
        "createUser updateUser dropUser dropAllUsersFromDatabase grantRolesToUser revokeRolesFromUser "
        "usersInfo invalidateUserCache"
    ),
}


def module_of(family: str) -> str:
    """The full name of a module of `FAMILIES`."""
    return f"mongottl.{family}" if family.startswith("dialect.") else f"mongottl.commands.{family}"
