"""Which version of MongoDB introduced a name: commands, stages, operators and options that came after MongoDB 3.6.

`--server-version` lowers what the server announces; a server that announces 5.0 has no `$median`, which came with 7.0,
and answers as MongoDB 5.0 does, that it does not know it.

Operators and stages declare their versions (`since` of `@expression`, `@stage` and the other decorators), and their
registries (`query.registry`) add them to INTRODUCED when they are imported, before anything can ask for one of them.
The other kinds of names are in the tables of this module; what is not in them is as old as MongoDB 3.6. A test compares
them with the commands. Versions between two that can be announced (5.1 to 5.3, 7.1 and so on) are those in which a name
first appeared.

Source: the notes "New in version" and "Changed in version" of MongoDB's reference for commands, aggregation stages and
operators, query operators and index options, and the release notes of 4.0 to 8.2. A name that a patch brought to an
older version (`$toHashedIndexKey` in 4.2.24) is of that version, since the newest patches are announced.
"""

from collections.abc import Container, Mapping, Sequence
from typing import Final, TypeAlias

from mongottl.config import WIRE_VERSIONS
from mongottl.document.bson_field import unknown_field
from mongottl.document.types import Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode, shortened

Version: TypeAlias = tuple[int, int]

COMMAND: Final = "command"
OPTION: Final = "option"
SYNTAX: Final = "syntax"
# What may be written since a version, although each part of it is older.
UPDATE_PIPELINE: Final = "updatePipeline"
COMPOUND_HASHED: Final = "compoundHashedIndex"
LOOKUP_WITH_BOTH: Final = "lookupWithFieldsAndPipeline"
COMPOUND_WILDCARD: Final = "compoundWildcardIndex"
POST_IMAGES: Final = "fullDocumentFromPostImages"
# Fields whose names begin with `$`, in documents that are inserted and in values that updates store.
DOLLAR_FIELDS: Final = "storedFieldsWithDollar"
# `create` of a collection or view that exists with the same options.
CREATE_AGAIN: Final = "createOfExisting"
CREATE_TIME_SERIES_AGAIN: Final = "createOfExistingTimeSeries"
# Variables of expressions that the server defines.
VARIABLE: Final = "variable"
# Shapes of `$geoWithin`.
GEO_SHAPE: Final = "geospatial shape"
# Fields of change events.
EVENT_FIELD: Final = "changeEventField"
# What drivers decide by: fields of the reply to `hello` and its older names, labels of errors, mechanisms of logins,
# and compressors.
HELLO_FIELD: Final = "hello field"
# Fields of other replies, by their paths after the name of the command, or of "cursor" for those of cursors.
REPLY_FIELD: Final = "reply field"
ERROR_LABEL: Final = "error label"
MECHANISM: Final = "login mechanism"
COMPRESSOR: Final = "compressor"

# MongoDB 5.1 has removed the messages of before OP_MSG, but for the OP_QUERY with which a connection begins.
# Reference: "Legacy Opcodes", and the compatibility changes of 5.1.
WITHOUT_LEGACY_OPCODES: Final[Version] = (5, 1)

# MongoDB 4.4 has removed `ns` from the specifications of indexes; drivers with static models of them need it.
# Reference: DRIVERS-731, SERVER-41696.
WITHOUT_INDEX_NAMESPACES: Final[Version] = (4, 4)
# MongoDB 5.1 has removed getLastError. Reference: the compatibility changes of 5.1.
WITHOUT_LAST_ERROR: Final[Version] = (5, 1)

# Kind to version to names.
_TABLES: Final[dict[str, dict[str, str]]] = {
    # Reference: "Database Commands".
    COMMAND: {
        "4.0": "abortTransaction commitTransaction",
        "4.2": "prepareTransaction",
        "4.4": "getDefaultRWConcern refineCollectionShardKey setDefaultRWConcern setIndexCommitQuorum"
        " voteCommitIndexBuild balancerCollectionStatus",
        "5.0": """
            abortReshardCollection cleanupReshardCollection commitReshardCollection reshardCollection rotateCertificates
            setAllowMigrations validateDBMetadata
        """,
        "6.0": """
            compactStructuredEncryptionData getClusterParameter setClusterParameter setUserWriteBlockMode
            setProfilingFilterGlobally moveRange
        """,
        "7.0": """
            analyzeShardKey checkMetadataConsistency cleanupStructuredEncryptionData configureQueryAnalyzer
            createSearchIndexes dropSearchIndex listSearchIndexes resetPlacementHistory updateSearchIndex
            transitionFromDedicatedConfigServer transitionToDedicatedConfigServer
        """,
        "8.0": """
            autoCompact bulkWrite moveCollection removeQuerySettings setQuerySettings unshardCollection
            untrackUnshardedCollection
        """,
        "8.2": "shardDrainingStatus",
    },
    # A field of a command, or of the documents that one of its fields holds (`update.updates.hint`); the arguments that
    # every command takes, without a command; a field of a stage's or an expression's argument.
    # Reference: the pages of these commands, stages and expressions. `listCollections.nameOnly` and its
    # `authorizedCollections`, of 4.0, are not here: drivers and shells send them to every server.
    OPTION: {
        "4.0": """
            autocommit startTransaction createUser.mechanisms updateUser.mechanisms
            listDatabases.authorizedDatabases
            $changeStream.startAtOperationTime $dateFromString.format $dateFromString.onError $dateFromString.onNull
            $dateToString.onNull
        """,
        "4.2": """
            createIndexes.indexes.wildcardProjection update.updates.hint $changeStream.startAfter
        """,
        "4.4": """
            createIndexes.commitQuorum createIndexes.indexes.hidden delete.deletes.hint find.allowDiskUse
            findAndModify.hint profile.filter $collStats.queryExecStats $out.coll $out.db
            count.comment createIndexes.comment delete.comment distinct.comment findAndModify.comment getMore.comment
            insert.comment listCollections.comment listDatabases.comment listIndexes.comment update.comment
        """,
        "5.0": """
            apiDeprecationErrors apiStrict apiVersion
            aggregate.let create.expireAfterSeconds create.timeseries delete.let find.let findAndModify.let update.let
            update.updates.c
        """,
        "5.2": "$filter.limit",
        "5.3": "create.clusteredIndex",
        "6.0": """
            collMod.changeStreamPreAndPostImages create.changeStreamPreAndPostImages create.encryptedFields
            collMod.index.prepareUnique collMod.index.unique createIndexes.indexes.prepareUnique
            $changeStream.fullDocumentBeforeChange $changeStream.showExpandedEvents
        """,
        "7.0": "$out.timeseries",
        "7.1": "distinct.hint",
        "8.0": """
            delete.bypassEmptyTsReplacement findAndModify.bypassEmptyTsReplacement insert.bypassEmptyTsReplacement
            update.bypassEmptyTsReplacement update.updates.sort
        """,
        "8.2": "rawData",
    },
    # Reference: "update", "Hashed Indexes", "$lookup", "Change Streams", "Compound Wildcard Indexes", "Field Names with
    # Periods and Dollar Signs", "create" (with SERVER-60064 and SERVER-76547).
    SYNTAX: {
        "4.2": UPDATE_PIPELINE,
        "4.4": COMPOUND_HASHED,
        "5.0": f"{LOOKUP_WITH_BOTH} {DOLLAR_FIELDS}",
        "6.0": POST_IMAGES,
        "7.0": f"{COMPOUND_WILDCARD} {CREATE_AGAIN}",
        "7.1": CREATE_TIME_SERIES_AGAIN,
    },
    # Reference: "Variables in Aggregation Expressions".
    VARIABLE: {"4.2": "CLUSTER_TIME NOW", "7.0": "USER_ROLES"},
    # Reference: "Change Events".
    EVENT_FIELD: {"6.0": "wallTime", "6.1": "disambiguatedPaths"},
    # Reference: "hello", and the driver specifications' "Authentication", "MongoDB Handshake", "Server Discovery and
    # Monitoring", "Connection Monitoring and Pooling" and "Load Balancer Support". `hello` itself and `helloOk` came
    # with 5.0, and with patches of all older versions.
    HELLO_FIELD: {
        "4.0": "saslSupportedMechs",
        "4.2": "connectionId",
        "4.4": "speculativeAuthenticate topologyVersion",
        "5.0": "loadBalanced serviceId",
    },
    # Reference: "serverStatus", and MongoDB's tickets SERVER-38408 (4.0.7), SERVER-50420 (4.9; before, the field is
    # `ismaster`) and DOCS-14506 (5.0).
    REPLY_FIELD: {
        "4.0": "cursor.postBatchResumeToken serverStatus.connections.active",
        "4.4": "serverStatus.defaultRWConcern serverStatus.repl.topologyVersion",
        "5.0": "serverStatus.catalogStats serverStatus.repl.isWritablePrimary",
    },
    # Reference: the driver specifications' "Retryable Writes", "Transactions" and "Change Streams". To servers without
    # these labels drivers decide by error codes.
    ERROR_LABEL: {
        "4.0": "TransientTransactionError UnknownTransactionCommitResult",
        "4.2": "NonResumableChangeStreamError",
        "4.4": "ResumableChangeStreamError RetryableWriteError",
    },
    # Reference: "SCRAM", "Network Compression".
    MECHANISM: {"4.0": "SCRAM-SHA-256"},
    COMPRESSOR: {"4.2": "zstd"},
}


def parse_version(version: str) -> Version:
    """The numbers of "4.2"."""
    major, _, minor = version.partition(".")
    return int(major), int(minor)


# Of what mongottl does not support either, whatever the version.
NOT_SUPPORTED: Final = "mongottl does not support it, either: no setting changes that."
# Kind to name to the version that introduced it, for names that are younger than OLDEST. The registries of operators
# add theirs.
INTRODUCED: Final[dict[str, dict[str, Version]]] = {
    kind: {
        name: number
        for number, names in [(parse_version(version), names) for version, names in table.items()]
        for name in names.split()
    }
    for kind, table in _TABLES.items()
}
# Kinds whose names say by themselves what they are, and what those of SYNTAX stand for.
_SPELLED_OUT: Final = {
    UPDATE_PIPELINE: "updates by a pipeline",
    COMPOUND_HASHED: "compound hashed indexes",
    LOOKUP_WITH_BOTH: "$lookup with both fields and a pipeline",
    COMPOUND_WILDCARD: "compound wildcard indexes",
    POST_IMAGES: "post-images in change streams",
    DOLLAR_FIELDS: "stored fields that begin with $",
    CREATE_AGAIN: "create of what exists with the same options",
    CREATE_TIME_SERIES_AGAIN: "create of a time series collection that exists with the same options",
}
# What has no entry is at least as old as this.
OLDEST: Final[Version] = (3, 6)


def unknown_command(name: str, advice: str = "") -> CommandError:
    """CommandNotFound (59). advice: what the text has after the name."""
    return CommandError(ErrorCode.CommandNotFound, f"no such command: '{shortened(name)}'{advice}")


def described(kind: str, name: str) -> str:
    """A name as it stands in a sentence."""
    return _SPELLED_OUT.get(name, name) if kind in (SYNTAX, OPTION) else f"the {kind} {name}"


def since(kind: str, name: str) -> Version:
    """The version of MongoDB that introduced it; OLDEST for what is as old or older."""
    return INTRODUCED.get(kind, {}).get(name, OLDEST)


class Features:
    """What the version of MongoDB has that a server announces, where that is not the latest one.

    sorts_by_dollar_names: whether `$sort` takes names that start with `$`. takes_legacy_opcodes: whether it takes any
    command by OP_QUERY, and OP_KILL_CURSORS. tells_last_errors: whether it has getLastError.
    names_indexes: whether the specifications of indexes have the collection's namespace.
    """

    sorts_by_dollar_names = False

    def __init__(self, version: str) -> None:
        self.version: Final = parse_version(version)
        self.takes_legacy_opcodes: Final = self.version < WITHOUT_LEGACY_OPCODES
        self.names_indexes: Final = self.version < WITHOUT_INDEX_NAMESPACES
        self.tells_last_errors: Final = self.version < WITHOUT_LAST_ERROR
        # By kind; not of those kinds whose names are declared by modules that may not have been imported yet.
        self._missing: Final[Mapping[str, frozenset[str]]] = {
            kind: frozenset(name for name, introduced in INTRODUCED[kind].items() if introduced > self.version)
            for kind in _TABLES
        }
        # The options that are missing: of a command, stage or expression, and of documents in one of its fields
        # ("update.updates"). Those of every command have the owner "".
        self._missing_options: Final[dict[str, set[str]]] = {}
        for path in self._missing[OPTION]:
            owner, _, option = path.rpartition(".")
            self._missing_options.setdefault(owner, set()).add(option)
        self._owners: Final = {owner.partition(".")[0] for owner in self._missing_options}
        self._everywhere: Final = [name.encode() for name in self._missing_options.get("", ())]

    def lacks(self, kind: str, name: str) -> bool:
        """Whether this version does not know the name."""
        missing = self._missing.get(kind)
        return since(kind, name) > self.version if missing is None else name in missing

    def advice(self, kind: str, name: str) -> str:
        """What the user of this server can do to get a name that this version lacks, as `CommandError.advice`; "" for
        one that it has. The name is one that mongottl supports."""
        if not self.lacks(kind, name):
            return ""
        introduced = since(kind, name)
        first = next(version for version in WIRE_VERSIONS if parse_version(version) >= introduced)
        major, minor = introduced
        return f"MongoDB has {described(kind, name)} since {major}.{minor}: set --server-version {first} or later."

    def option_advice(self, path: str) -> str:
        """`advice` for the path of a field, as `missing_argument` gives it; some fields are those of all commands."""
        name = path if path in INTRODUCED[OPTION] else path.rpartition(".")[2]
        return self.advice(OPTION, name)

    def known(self, kind: str, names: Sequence[str]) -> list[str]:
        """Those of the names that this version knows."""
        return [name for name in names if not self.lacks(kind, name)]

    def known_fields(self, path: str, reply: Mapping[str, Value]) -> dict[str, Value]:
        """The fields of a document in a reply that this version knows. path: as in REPLY_FIELD ("serverStatus")."""
        return {name: value for name, value in reply.items() if not self.lacks(REPLY_FIELD, f"{path}.{name}")}

    def keeps(self, kind: str, name: str) -> bool:
        """Whether it has an operator that MongoDB does not have (`Registry.add_removed`)."""
        return False

    def projects_no_element(self) -> bool:
        """Whether the positional operator of projections returns an empty array."""
        return False

    def refused_command(self, name: str) -> CommandError:
        """The error for a command that this version does not know: CommandNotFound (59)."""
        return unknown_command(name)

    def unknown_command(self, name: str) -> CommandError:
        """The error for a command that no version knows: CommandNotFound (59)."""
        return unknown_command(name)

    def refused_stage(self, name: str) -> CommandError:
        """The error for a stage that this version does not know: 40324."""
        return CommandError(40324, f"Unrecognized pipeline stage name: '{name}'")

    def check_arguments(self, command: str, body: bytes, sequences: list[tuple[str, list[bytes]]]) -> None:
        """40415 for a field of a command that this version does not know. sequences: as for `missing_argument`."""
        missing = self.missing_argument(command, body, sequences)
        if missing:
            raise self._without_option(missing)

    def check_options(self, owner: str, argument: bytes) -> None:
        """40415 for a field in the argument of a stage or expression that this version does not know."""
        missing = self.missing_option(owner, argument)
        if missing:
            raise self._without_option(missing)

    def check_operands(self, operator: str, operands: list[Value]) -> None:
        """The error for operands of an expression that this version does not take."""

    def _without_option(self, path: str) -> CommandError:
        error = unknown_field(path)
        error.advice = self.option_advice(path)
        return error

    def missing_argument(self, command: str, body: bytes, sequences: list[tuple[str, list[bytes]]]) -> str:
        """The path of the first field of a command that this version does not know, as errors name it ("find.let",
        "update.updates.hint"); "" if it knows all of them. sequences: the documents of fields outside of its body."""
        if command not in self._owners and not any(name in body for name in self._everywhere):
            return ""  # the usual case: no command of this name, and none at all, has such a field
        missing = self.missing_option(command, body, self._missing_options.get("", ()))
        for field, documents in sequences:
            if not missing and f"{command}.{field}" in self._missing_options:
                missing = self._missing_in(f"{command}.{field}", documents)
        return missing

    def missing_option(self, owner: str, argument: bytes, others: Container[str] = ()) -> str:
        """The path of the first field in an argument that this version does not know, or "". owner: the name of the
        command, stage or expression whose argument it is. others: further names that it does not know there."""
        missing = self._missing_options.get(owner, ())
        for name, value in fields(argument):
            if name in missing or name in others:
                return f"{owner}.{name}"
            if f"{owner}.{name}" in self._missing_options:
                inner = self._missing_in(f"{owner}.{name}", value if isinstance(value, list) else [value])
                if inner:
                    return inner
        return ""

    def _missing_in(self, owner: str, documents: Sequence[Value]) -> str:
        missing = self._missing_options[owner]
        for document in documents:
            if isinstance(document, bytes):
                for name, _ in fields(document):
                    if name in missing:
                        return f"{owner}.{name}"
        return ""


def features_of(version: str, latest: str) -> Features | None:
    """What an announced version has; None for the latest one, which has everything."""
    return None if version == latest else Features(version)
