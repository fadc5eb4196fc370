"""The table of commands. A command registers itself by the decorator above its body; nothing else lists it.

    @command("ping", PingRequest, help="Answers at once.")
    def ping(op: OperationContext, request: PingRequest) -> Reply: ...

`listCommands`, the dispatcher and the README's support table all read `COMMANDS` and `UNSUPPORTED_COMMANDS`.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from mongottl.commands.request import RequestParser, parser_for
from mongottl.document.types import Value
from mongottl.exec.context import OperationContext, Steps

# A reply without its `ok`, or the whole reply document ready made.
Reply: TypeAlias = dict[str, Value] | bytes
CommandFunction: TypeAlias = Callable[[OperationContext, Any], Reply | Steps[Reply]]


class CommandSpec:
    """One command.

    admin_only: runs on the `admin` database alone. retryable: a write for which drivers send a `txnNumber`.
    test_only: exists only with --enable-test-commands. counter: its group in serverStatus' `opcounters`.
    """

    def __init__(
        self,
        name: str,
        function: CommandFunction,
        request: type[Any],
        help: str,
        admin_only: bool,
        writes: bool,
        test_only: bool,
        counter: str,
        family: str,
        strict: bool,
    ) -> None:
        self.name = name
        self.function = function
        self.request = request
        self.parser: RequestParser = parser_for(name, request, strict, name in TAKE_RAW_DATA)
        self.help = help
        self.admin_only = admin_only
        self.writes = writes
        self.test_only = test_only
        self.counter = counter
        self.family = family
        self.names_collection = "collection" in request._fields


COMMANDS: Final[dict[str, CommandSpec]] = {}

# The commands of MongoDB's Stable API, version 1, under which `apiStrict` allows no others.
STABLE_API: Final = frozenset(
    """
    abortTransaction aggregate authenticate bulkWrite collMod commitTransaction count create createIndexes delete drop
    dropDatabase dropIndexes endSessions explain find findAndModify getMore hello insert killCursors listCollections
    listDatabases listIndexes ping refreshSessions update
    """.split()
)
# The commands with an argument `rawData`, of MongoDB 8.2. Source: the driver specifications' index of DRIVERS-3064.
TAKE_RAW_DATA: Final = frozenset(
    """
    aggregate bulkWrite count createIndexes delete distinct dropIndexes find findAndModify insert listCollections
    listIndexes update
    """.split()
)


def command(
    name: str,
    request: type[Any],
    *,
    help: str,
    aliases: tuple[str, ...] = (),
    admin_only: bool = False,
    writes: bool = False,
    test_only: bool = False,
    counter: str = "command",
    strict: bool = True,
) -> Callable[[CommandFunction], CommandFunction]:
    """Registers the function below as a command, under its name and aliases."""

    def register(function: CommandFunction) -> CommandFunction:
        family = function.__module__.rpartition(".")[2]
        spec = CommandSpec(name, function, request, help, admin_only, writes, test_only, counter, family, strict)
        for known in (name, *aliases):
            if known in COMMANDS or known in UNSUPPORTED_COMMANDS:
                raise ValueError(f"command {known} is registered twice")
            COMMANDS[known] = spec
        return function

    return register


_NO_SEARCH: Final = "Atlas Search is not available"
# Commands that mongod itself refuses without Atlas Search, with SearchNotEnabled (31082).
SEARCH_COMMANDS: Final = frozenset({"createSearchIndexes", "dropSearchIndex", "listSearchIndexes", "updateSearchIndex"})
_NO_USERS: Final = "this server runs without users; connect without user name and password"
# What is said beyond "not supported" where there is something that helps.
UNSUPPORTED_REASONS: Final = {
    "authenticate": _NO_USERS,
    "createUser": _NO_USERS,
    "getnonce": _NO_USERS,
    "saslContinue": _NO_USERS,
    "saslStart": _NO_USERS,
    **dict.fromkeys(sorted(SEARCH_COMMANDS), _NO_SEARCH),
}

# Commands of MongoDB 8.2 that mongottl knows by name and refuses, with CommandNotSupported (115) unless said otherwise.
UNSUPPORTED_COMMANDS: Final = frozenset(
    """
    abortReshardCollection
    abortTransaction
    addShard
    addShardToZone
    analyze
    appendOplogNote
    applyOps
    authenticate
    autoCompact
    balancerCollectionStatus
    balancerStart
    balancerStatus
    balancerStop
    checkMetadataConsistency
    checkShardingIndex
    cleanupOrphaned
    cleanupReshardCollection
    clearJumboFlag
    clusterAbortTransaction
    clusterCommitTransaction
    commitReshardCollection
    commitTransaction
    compactStructuredEncryptionData
    configureQueryAnalyzer
    connPoolSync
    coordinateCommitTransaction
    createRole
    createSearchIndexes
    createUser
    dropAllRolesFromDatabase
    dropAllUsersFromDatabase
    dropConnections
    dropRole
    dropSearchIndex
    dropUser
    enableSharding
    features
    filemd5
    flushRouterConfig
    fsync
    fsyncUnlock
    getClusterParameter
    getnonce
    getShardMap
    getShardVersion
    godinsert
    grantPrivilegesToRole
    grantRolesToRole
    grantRolesToUser
    invalidateUserCache
    isdbgrid
    killAllSessions
    killAllSessionsByPattern
    listSearchIndexes
    listShards
    logApplicationMessage
    logout
    logRotate
    makeSnapshot
    mapReduce
    mergeChunks
    moveChunk
    moveCollection
    movePrimary
    moveRange
    netstat
    prepareTransaction
    refineCollectionShardKey
    removeShard
    removeShardFromZone
    repairDatabase
    replSetAbortPrimaryCatchUp
    replSetFreeze
    replSetGetConfig
    replSetGetRBID
    replSetGetStatus
    replSetInitiate
    replSetMaintenance
    replSetReconfig
    replSetResizeOplog
    replSetStepDown
    replSetSyncFrom
    resetPlacementHistory
    reshardCollection
    revokePrivilegesFromRole
    revokeRolesFromRole
    revokeRolesFromUser
    rolesInfo
    rotateCertificates
    saslContinue
    saslStart
    setAllowMigrations
    setClusterParameter
    setFeatureCompatibilityVersion
    setShardVersion
    setUserWriteBlockMode
    shardCollection
    shardConnPoolStats
    shardDrainingStatus
    shardingState
    shutdown
    sleep
    split
    splitChunk
    splitVector
    startRecordingTraffic
    stopRecordingTraffic
    testDeprecation
    transitionFromDedicatedConfigServer
    transitionToDedicatedConfigServer
    unshardCollection
    untrackUnshardedCollection
    updateRole
    updateSearchIndex
    updateUser
    updateZoneKeyRange
    usersInfo
    voteCommitIndexBuild
    waitForFailPoint
    whatsmysni
    """.split()
)
