"""Which commands, stages and operators each version of Cosmos DB for MongoDB has.

Its versions carry MongoDB's numbers and have a part of what MongoDB has under the same number; a few names that a newer
version lacks are in an older one. So Cosmos DB's tables decide for the kinds of names that they have, and MongoDB's
(`mongottl.versions`) for options and syntax.

Each name of a registry must be placed, in the versions that have it or among those that none has (`NEVER`): a test
compares them.

Source: Microsoft's articles "Supported features and syntax in Azure Cosmos DB for MongoDB" for the server versions 3.6,
4.0, 4.2, 5.0, 6.0 and 7.0. They list what is supported, and some of what is not: what they do not name is taken to be
missing ("Not listed" below). Lines that have another source say so. They have no codes: missing commands and stages are
refused as users report; that other missing names are refused as MongoDB refuses unknown ones is assumed.
"""

from collections.abc import Iterable
from typing import Final

from mongottl.config import COSMOS_VERSIONS
from mongottl.dialect.cosmos.account import Account
from mongottl.dialect.cosmos.advice import advice, allow, allow_since, allow_variant
from mongottl.document.types import Value
from mongottl.document.walk import fields, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.versions import (
    COMMAND,
    COMPOUND_HASHED,
    COMPOUND_WILDCARD,
    GEO_SHAPE,
    OPTION,
    SYNTAX,
    UPDATE_PIPELINE,
    VARIABLE,
    Features,
    Version,
    described,
    parse_version,
    since,
    unknown_command,
)

# In place of a version: no version has it.
NEVER: Final = "never"
# The refusal of `cosmos_choices.REFUSALS` that covers all of it.
MISSING_FEATURES: Final = "missing-features"
# That of updates by a pipeline: no article says whether there are any.
_NO_UPDATE_PIPELINE: Final = "update-pipeline"

# That of array literals in these expressions. Articles: "Comparison expressions", where $in and $nin are listed, too;
# that their second operand, which is an array, is not meant is assumed.
_NO_ARRAY_LITERALS: Final = "array-literal-comparison"
_COMPARISONS: Final = ("$cmp", "$eq", "$gt", "$gte", "$lt", "$lte", "$ne")

# That of the indexes that no version has, and what of these came to MongoDB later than 3.6.
_INDEX_KINDS: Final = "index-kinds"
_INDEXES_OF_NO_VERSION: Final = (COMPOUND_HASHED, COMPOUND_WILDCARD, "createIndexes.indexes.wildcardProjection")

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
        ("3.6", "getRequestUnits mongottlBackup"),
        # Denied by the articles of all versions, but Microsoft's samples for Python and Node show that 3.6 and 4.0
        # answer it, without a field. That the denial means the same for later versions is assumed.
        ("3.6", "serverStatus"),
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
            _isSelf _mergeAuthzCollections createRole createUser dropAllRolesFromDatabase dropAllUsersFromDatabase
            dropRole dropUser grantPrivilegesToRole grantRolesToRole grantRolesToUser invalidateUserCache
            revokePrivilegesFromRole revokeRolesFromRole revokeRolesFromUser rolesInfo updateRole updateUser
            usersInfo
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
    # Articles: from "Boolean expressions" to "Merge operator".
    "expression": (
        # Boolean, set, comparison, arithmetic.
        (
            "3.6",
            """
            $and $not $or $allElementsTrue $anyElementTrue $setDifference $setEquals $setIntersection $setIsSubset
            $setUnion $cmp $eq $gt $gte $in $lt $lte $ne $nin $abs $add $ceil $divide $exp $floor $ln $log $log10 $mod
            $multiply $pow $sqrt $subtract $trunc
            """,
        ),
        # String, array, date.
        (
            "3.6",
            """
            $concat $indexOfBytes $indexOfCP $split $strLenBytes $strLenCP $strcasecmp $substr $substrBytes $substrCP
            $toLower $toUpper $arrayElemAt $arrayToObject $concatArrays $filter $indexOfArray $isArray $objectToArray
            $range $reduce $reverseArray $size $slice $zip $dateFromParts $dateFromString $dateToParts $dateToString
            $dayOfMonth $dayOfWeek $dayOfYear $hour $isoDayOfWeek $isoWeek $isoWeekYear $millisecond $minute $month
            $second $week $year
            """,
        ),
        # Variables, literals, conditions, types, merging.
        ("3.6", "$let $map $literal $cond $ifNull $switch $type $mergeObjects"),
        # Accumulators that are expressions as well.
        ("3.6", "$avg $max $min $stdDevPop $stdDevSamp $sum"),
        # Not listed; another name of $literal.
        ("3.6", "$const"),
        # Conversion; strings.
        (
            "4.0",
            """
            $convert $toBool $toDate $toDecimal $toDouble $toInt $toLong $toObjectId $toString $ltrim $rtrim $trim
            """,
        ),
        # Arithmetic; trigonometry; regular expressions, which the articles list among the stages.
        (
            "4.2",
            """
            $round $acos $acosh $asin $asinh $atan $atan2 $atanh $cos $cosh $degreesToRadians $radiansToDegrees $sin
            $sinh $tan $tanh $regexFind $regexFindAll $regexMatch
            """,
        ),
        (NEVER, "$meta"),
        (
            NEVER,
            """
            $binarySize $bitAnd $bitNot $bitOr $bitXor $bsonSize $dateAdd $dateDiff $dateSubtract $dateTrunc
            $encStrContains $encStrEndsWith $encStrNormalizedEq $encStrStartsWith $first $firstN $function $getField
            $isNumber $last $lastN $maxN $median $minN $percentile $rand $replaceAll $replaceOne $setField $sigmoid
            $sortArray $toHashedIndexKey $toUUID $tsIncrement $tsSecond $unsetField
            """,
        ),
    ),
    # Articles: "Accumulator expressions", "Merge operator".
    "accumulator": (
        ("3.6", "$addToSet $avg $first $last $max $mergeObjects $min $push $stdDevPop $stdDevSamp $sum"),
        (
            NEVER,
            """
            $accumulator $bottom $bottomN $concatArrays $count $firstN $lastN $maxN $median $minN $percentile $setUnion
            $top $topN
            """,
        ),
    ),
    # Not listed, and neither is $setWindowFields.
    "window function": (
        (
            NEVER,
            """
            $covariancePop $covarianceSamp $denseRank $derivative $documentNumber $expMovingAvg $integral $linearFill
            $locf $minMaxScaler $rank $shift
            """,
        ),
    ),
    # Articles: "Element operators", "Evaluation query operators", "Array operators", "Geospatial operators".
    "query operator": (
        (
            "3.6",
            """
            $all $elemMatch $eq $exists $geoIntersects $geoWithin $gt $gte $in $lt $lte $maxDistance $minDistance $mod
            $ne $near $nearSphere $nin $not $options $regex $size $type
            """,
        ),
        (NEVER, "$bitsAllClear $bitsAllSet $bitsAnyClear $bitsAnySet"),
        # MongoDB deprecates these names of $near and $geoWithin.
        (NEVER, "$geoNear $within"),
    ),
    # Articles: "Logical operators", "Comment operator", "Evaluation query operators".
    "top-level query operator": (
        ("3.6", "$and $comment $expr $nor $or"),
        (NEVER, "$jsonSchema $text $where"),
        (NEVER, "$alwaysFalse $alwaysTrue $sampleRate"),
    ),
    # Articles: "Geospatial operators".
    GEO_SHAPE: ((NEVER, "$box $center $centerSphere $polygon"),),
    # Articles: "Update operators". MongoDB has had no $pushAll since 3.6.
    "update modifier": (
        (
            "3.6",
            """
            $addToSet $bit $currentDate $inc $max $min $mul $pop $pull $pullAll $push $pushAll $rename $set $setOnInsert
            $unset
            """,
        ),
    ),
    # Articles: "System variables"; they spell CLUSTER_TIME without its underscore.
    VARIABLE: (
        ("3.6", "CURRENT DESCEND KEEP PRUNE REMOVE ROOT"),
        ("4.2", "CLUSTER_TIME NOW"),
        (NEVER, "SEARCH_META USER_ROLES"),
    ),
}
# Fields of commands and of stages that no version takes: owner to names, in the order in which they are refused. An
# owner is a command or stage, or documents in a field of a command. What is false or null counts as absent.
REFUSED_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    # Articles, below "Aggregation stages": `let` with `pipeline` is refused with a text that contains "let is not
    # supported". The code is assumed, and that a `pipeline` without `let` is refused, with these words.
    "$lookup": ("let", "pipeline"),
    # Not listed; that they are refused, and how, is assumed.
    "$changeStream": ("fullDocumentBeforeChange", "showExpandedEvents"),
    # Articles, "Index properties": there are no case-insensitive indexes; Microsoft's answer to a question about
    # collations (learn.microsoft.com/answers, question 1304496): there are none. The code and the text are assumed.
    "aggregate": ("collation",),
    "count": ("collation",),
    "delete.deletes": ("collation",),
    "distinct": ("collation",),
    "find": ("collation",),
    "findAndModify": ("collation",),
    "update.updates": ("collation",),
    # Articles: there is neither $jsonSchema nor collMod, which validators need; capped and clustered collections,
    # views and time series are not listed. The code and the text are assumed.
    "create": (
        "capped",
        "changeStreamPreAndPostImages",
        "clusteredIndex",
        "collation",
        "encryptedFields",
        "timeseries",
        "validator",
        "viewOn",
    ),
}


# As gottscj/Hangfire.Mongo#259 (2020) quotes it, which has no code.
_NO_CAPPED: Final = "Capped collectiosn are not supported."
# Missing in some accounts: a name of `cosmos_choices.VARIANTS`.
_HOST_INFO: Final = "hostInfo"


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


def _nearest(kind: str, name: str, version: Version) -> str:
    """The first version after `version` that has a name, or else the last one before it; "" if none has it."""
    having = [
        other
        for other in COSMOS_VERSIONS
        for versions, names in _TABLES[kind]
        if name in names.split() and _Span(versions).has(parse_version(other))
    ]
    later = [other for other in having if parse_version(other) > version]
    return later[0] if later else having[-1] if having else ""


class CosmosFeatures(Features):
    """What a version of Cosmos DB has; that of MongoDB's while the account allows `MISSING_FEATURES`."""

    # Microsoft's sample for Node, 280-aggregation, does so, and shows the results, which are not in that order.
    sorts_by_dollar_names = True

    def __init__(self, version: str, account: Account) -> None:
        super().__init__(version)
        self._account = account
        self._unlisted = {kind: missing_names(kind, self.version) for kind in self.kinds()}

    @staticmethod
    def kinds() -> Iterable[str]:
        """The kinds of names whose tables are Cosmos DB's own."""
        return _TABLES

    def lacks(self, kind: str, name: str) -> bool:
        if kind == SYNTAX and name == UPDATE_PIPELINE and self._account.refuses(_NO_UPDATE_PIPELINE):
            return True
        if kind == COMMAND and name == _HOST_INFO and self._account.refuses(_HOST_INFO):
            return True
        unlisted = self._unlisted.get(kind)
        if unlisted is None or not self._account.refuses(MISSING_FEATURES):
            return super().lacks(kind, name)
        return name in unlisted

    def advice(self, kind: str, name: str) -> str:
        if not self.lacks(kind, name):
            return ""
        account = self._account
        what = f"Cosmos DB {account.version} does not have {described(kind, name)}"
        if kind == SYNTAX and name == UPDATE_PIPELINE and account.refuses(_NO_UPDATE_PIPELINE):
            return advice(what, allow_since(account, _NO_UPDATE_PIPELINE, kind, name))
        if kind == COMMAND and name == _HOST_INFO and account.refuses(_HOST_INFO):
            return advice(what, allow_variant(account, _HOST_INFO))
        if kind in self._unlisted and account.refuses(MISSING_FEATURES):
            listed = _nearest(kind, name, self.version)
            version = f"set --server-version {listed}" if listed else ""
            return advice(what, allow_since(account, MISSING_FEATURES, kind, name), version)
        owner, _, option = name.rpartition(".")
        if kind == OPTION and option in REFUSED_FIELDS.get(owner, ()) and account.refuses(MISSING_FEATURES):
            return advice(what, allow_since(account, MISSING_FEATURES, kind, name))
        if name in _INDEXES_OF_NO_VERSION and account.refuses(_INDEX_KINDS):
            return advice(what, allow_since(account, _INDEX_KINDS, kind, name))
        introduced = since(kind, name)
        first = next((version for version in COSMOS_VERSIONS if parse_version(version) >= introduced), "")
        return advice(what, f"set --server-version {first} or later" if first else "")

    def keeps(self, kind: str, name: str) -> bool:
        return name in placed(kind) and not self.lacks(kind, name)

    def projects_no_element(self) -> bool:
        return self._account.refuses("positional-projection")

    def check_arguments(self, command: str, body: bytes, sequences: list[tuple[str, list[bytes]]]) -> None:
        """BadValue (2) for a field that Cosmos DB does not take, besides the errors for those that came later."""
        super().check_arguments(command, body, sequences)
        self._refuse_fields(command, body)
        for owner in REFUSED_FIELDS:
            if owner.startswith(f"{command}."):
                field = owner.partition(".")[2]
                inside = get_value(body, field)
                for document in inside if isinstance(inside, list) else dict(sequences).get(field, ()):
                    if isinstance(document, bytes):
                        self._refuse_fields(owner, document)

    def check_options(self, owner: str, argument: bytes) -> None:
        """BadValue (2) for an option that Cosmos DB does not take, besides the errors for those that came later."""
        self._refuse_fields(owner, argument)
        super().check_options(owner, argument)

    def check_operands(self, operator: str, operands: list[Value]) -> None:
        """BadValue (2) for a comparison with an array literal; the code and the text are assumed."""
        if operator not in _COMPARISONS or not self._account.refuses(_NO_ARRAY_LITERALS):
            return
        for operand in operands:
            literal = get_value(operand, "$literal") if isinstance(operand, bytes) else operand
            if isinstance(literal, list):
                raise CommandError(
                    ErrorCode.BadValue,
                    f"{operator} with an array literal is not supported",
                    advice=advice(f"Cosmos DB compares no array literal by {operator}", allow(_NO_ARRAY_LITERALS)),
                )

    def _refuse_fields(self, owner: str, document: bytes) -> None:
        refused = REFUSED_FIELDS.get(owner)
        if refused is None or not self._account.refuses(MISSING_FEATURES):
            return
        given = {name for name, value in fields(document) if value is not None and value is not False}
        for name in refused:
            if name in given:
                text = _NO_CAPPED if (owner, name) == ("create", "capped") else f"{name} is not supported"
                way = allow_since(self._account, MISSING_FEATURES, OPTION, f"{owner}.{name}")
                raise CommandError(
                    ErrorCode.BadValue, text, advice=advice(f"Cosmos DB does not have {owner}.{name}", way)
                )

    def refused_command(self, name: str) -> CommandError:
        """CommandNotSupported (115); the text is from users' reports, which have the full stop."""
        return CommandError(ErrorCode.CommandNotSupported, f"Command {name} not supported.")

    def unknown_command(self, name: str) -> CommandError:
        """The error for a command that MongoDB does not have either, such as `atlasVersion`, which mongosh tries.

        It is that of `refused_command`, unless missing features are allowed.
        """
        return self.refused_command(name) if self._account.refuses(MISSING_FEATURES) else unknown_command(name)

    def refused_stage(self, name: str) -> CommandError:
        """40324; users' reports show the name without quotes."""
        return CommandError(40324, f"Unrecognized pipeline stage name: {name}")
