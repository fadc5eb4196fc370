"""Which commands, stages and operators each version of Cosmos DB for MongoDB has.

Its versions carry MongoDB's numbers and have a part of what MongoDB has under the same number; a few names that a newer
version lacks are in an older one. So Cosmos DB's tables decide for the kinds of names that they have, and MongoDB's
(`mongottl.versions`) for options and syntax.

Each name of a registry must be placed, in the versions that have it or among those that none has (`NEVER`): a test
compares them.

Source: Microsoft's articles "Supported features and syntax in Azure Cosmos DB for MongoDB" for the server versions 3.6,
4.0, 4.2, 5.0, 6.0 and 7.0. They list what is supported, and some of what is not: what they do not name is taken to be
missing ("Not listed" below). Lines that have another source say so.
"""

from collections.abc import Iterable
from typing import Final

from mongottl.account import Account
from mongottl.errors import CommandError, ErrorCode
from mongottl.versions import COMMAND, Features, Version, parse_version

# In place of a version: no version has it.
NEVER: Final = "never"
# The refusal of `account.REFUSALS` that covers all of it.
MISSING_FEATURES: Final = "missing-features"

# Kind to versions to names. A version stands for itself and all later ones; "3.6 to 4.0" for these two alone.
# Each version's rows are followed by those of `NEVER`, of which the first row of a kind is what the articles deny, and
# the second what they do not list.
_TABLES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    COMMAND: (
        # Articles: "Query and write operation commands", "Authentication commands", "Administration commands",
        # "Diagnostics commands", "Aggregation commands".
        (
            "3.6",
            """
            aggregate authenticate buildInfo collStats count create createIndexes currentOp dbStats delete distinct drop
            dropDatabase dropIndexes explain filemd5 find findAndModify getLastError getMore getnonce hello hostInfo
            insert killCursors listCollections listDatabases listIndexes logout reIndex update whatsmyuri
            """,
        ),
        # Articles on extension commands, on sharding, and on finding the request unit charge.
        ("3.6", "customAction getLastRequestStatistics shardCollection"),
        # Not listed, but every driver sends them, and works.
        ("3.6", "endSessions isMaster ping saslContinue saslStart"),
        # What mongottl adds.
        ("3.6", "getRequestUnits"),
        # Denied by the articles, but Microsoft's samples for Python and Node show that these versions answer it.
        ("3.6 to 4.0", "serverStatus"),
        # Articles since 4.0: "Transaction commands".
        ("4.0", "abortTransaction commitTransaction"),
        (
            NEVER,
            """
            cloneCollectionAsCapped collMod connPoolStats connectionStatus convertToCapped dataSize dbHash features
            killOp listCommands mapReduce profile renameCollection top
            """,
        ),
        # Of these, MongoDB itself has none since 4.2.
        (NEVER, "copydb eval getPrevError parallelCollectionScan resetError"),
        # Articles: "Sessions": there are no commands of server-side sessions.
        (NEVER, "killAllSessions killAllSessionsByPattern killSessions refreshSessions startSession"),
        # Articles: "User and role management": they are managed in Azure.
        (
            NEVER,
            """
            createRole createUser dropAllRolesFromDatabase dropAllUsersFromDatabase dropRole dropUser
            grantPrivilegesToRole grantRolesToRole grantRolesToUser invalidateUserCache revokePrivilegesFromRole
            revokeRolesFromRole revokeRolesFromUser rolesInfo updateRole updateUser usersInfo
            """,
        ),
        # Articles: "Sharding" and "Replication": both are automatic, and have no commands of their own.
        (
            NEVER,
            """
            abortReshardCollection addShard addShardToZone analyzeShardKey appendOplogNote applyOps
            balancerCollectionStatus balancerStart balancerStatus balancerStop checkMetadataConsistency
            checkShardingIndex cleanupOrphaned cleanupReshardCollection clearJumboFlag clusterAbortTransaction
            clusterCommitTransaction commitReshardCollection configureQueryAnalyzer coordinateCommitTransaction
            enableSharding flushRouterConfig getShardMap getShardVersion listShards mergeChunks moveChunk moveCollection
            movePrimary moveRange prepareTransaction refineCollectionShardKey removeShard removeShardFromZone
            replSetAbortPrimaryCatchUp replSetFreeze replSetGetConfig replSetGetRBID replSetGetStatus replSetInitiate
            replSetMaintenance replSetReconfig replSetResizeOplog replSetStepDown replSetSyncFrom resetPlacementHistory
            reshardCollection setAllowMigrations setShardVersion shardConnPoolStats shardDrainingStatus shardingState
            split splitChunk splitVector transitionFromDedicatedConfigServer transitionToDedicatedConfigServer
            unshardCollection untrackUnshardedCollection updateZoneKeyRange
            """,
        ),
        # Not listed. Shells try getLog, getParameter and getCmdLineOpts, and work without them.
        (
            NEVER,
            """
            analyze autoCompact bulkWrite cleanupStructuredEncryptionData compact compactStructuredEncryptionData
            connPoolSync createSearchIndexes dbCheck dropConnections dropSearchIndex fsync fsyncUnlock
            getClusterParameter getCmdLineOpts getDefaultRWConcern getDiagnosticData getLog getParameter godinsert
            listSearchIndexes lockInfo logApplicationMessage logRotate makeSnapshot netstat planCacheClear
            planCacheClearFilters planCacheListFilters planCacheSetFilter removeQuerySettings repairDatabase
            rotateCertificates setClusterParameter setDefaultRWConcern setFeatureCompatibilityVersion
            setIndexCommitQuorum setParameter setProfilingFilterGlobally setQuerySettings setUserWriteBlockMode shutdown
            sleep startRecordingTraffic stopRecordingTraffic testDeprecation updateSearchIndex validate
            validateDBMetadata voteCommitIndexBuild waitForFailPoint whatsmysni
            """,
        ),
    ),
    # Articles: "Aggregation stages".
    "stage": (
        (
            "3.6",
            """
            $addFields $changeStream $count $facet $geoNear $group $limit $lookup $match $out $project $redact
            $replaceRoot $sample $skip $sort $sortByCount $unwind
            """,
        ),
        ("3.6 to 4.0", "$graphLookup"),
        ("4.2", "$merge $planCacheStats $replaceWith $set $unset"),
        (NEVER, "$bucket $bucketAuto $collStats $currentOp $indexStats $listLocalSessions $listSessions"),
        (
            NEVER,
            """
            $changeStreamSplitLargeEvent $densify $documents $fill $listCatalog $listClusterCatalog $listMqlEntities
            $listSampledQueries $listSearchIndexes $queryStats $querySettings $rankFusion $scoreFusion $search
            $searchBeta $searchMeta $setWindowFields $shardedDataDistribution $unionWith $vectorSearch
            """,
        ),
    ),
}


class _Span:
    """The versions that have a name, as numbers; a name of NEVER has none."""

    def __init__(self, versions: str) -> None:
        first, _, last = versions.partition(" to ")
        self._never = versions == NEVER
        self._first: Version = (0, 0) if self._never else parse_version(first)
        self._last: Version | None = parse_version(last) if last else None

    def has(self, version: Version) -> bool:
        return not self._never and self._first <= version and (self._last is None or version <= self._last)


def placed(kind: str) -> list[str]:
    """The names of a kind that the tables place, each as often as they do."""
    return [name for _, names in _TABLES.get(kind, ()) for name in names.split()]


def missing_names(kind: str, version: Version) -> frozenset[str]:
    """The names of a kind that a version does not have."""
    return frozenset(
        name for versions, names in _TABLES[kind] if not _Span(versions).has(version) for name in names.split()
    )


class CosmosFeatures(Features):
    """What a version of Cosmos DB has; that of MongoDB's while the account allows `MISSING_FEATURES`."""

    def __init__(self, version: str, account: Account) -> None:
        super().__init__(version)
        self._account = account
        self._unlisted = {kind: missing_names(kind, self.version) for kind in self.kinds()}

    @staticmethod
    def kinds() -> Iterable[str]:
        """The kinds of names whose tables are Cosmos DB's own."""
        return _TABLES

    def lacks(self, kind: str, name: str) -> bool:
        unlisted = self._unlisted.get(kind)
        if unlisted is None or not self._account.refuses(MISSING_FEATURES):
            return super().lacks(kind, name)
        return name in unlisted

    def refused_command(self, name: str) -> CommandError:
        """CommandNotSupported (115); the text is from users' reports."""
        return CommandError(ErrorCode.CommandNotSupported, f"Command {name} not supported")

    def refused_stage(self, name: str) -> CommandError:
        """40324; users' reports show the name without quotes."""
        return CommandError(40324, f"Unrecognized pipeline stage name: {name}")
