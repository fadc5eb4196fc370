"""The table of commands. A command registers itself by the decorator above its function.

    @command("ping", PingRequest, access=ANYONE, help="Replies at once; tests whether the server responds.")
    def ping(op: OperationContext, request: PingRequest) -> Reply: ...

Its module is imported when the command is first asked for, so its name also stands in `families`.
`listCommands`, the dispatcher and the table of docs/supported.md all read `COMMANDS` and `UNSUPPORTED_COMMANDS`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import wraps
from importlib import import_module
from threading import RLock
from typing import Any, Final, TypeAlias

from mongottl.commands.access import Access
from mongottl.commands.families import FAMILIES, module_of
from mongottl.commands.request import RequestParser, fields_of, parser_for
from mongottl.document.build import DocumentBuilder
from mongottl.document.interrupt import Undivided
from mongottl.document.types import Value
from mongottl.document.walk import ElementCursor, find_field
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.state.usage import LatencyGroup
from mongottl.versions import COMMAND, Version, since

# A reply without its `ok`, or a complete raw reply document.
Reply: TypeAlias = dict[str, Value] | bytes
CommandFunction: TypeAlias = Callable[[OperationContext, Any], Reply]


# The read concern levels that a command supports; the others are refused with InvalidOptions (72).
LOCAL_LEVEL: Final = frozenset(("local",))
ALL_LEVELS: Final = frozenset(("local", "available", "majority", "linearizable", "snapshot"))
ALL_BUT_SNAPSHOT: Final = ALL_LEVELS - {"snapshot"}


@dataclass(frozen=True)
class CommandTraits:
    """What is declared of a command: what is true of it whatever its arguments are."""

    # Its name, and the class of its request (`commands.request`).
    name: str
    request: type[Any]
    _: KW_ONLY
    # What a client must be allowed to run it (`commands.access`).
    access: Access
    # A sentence for `listCommands` and docs/supported.md.
    help: str
    aliases: tuple[str, ...] = ()
    # Whether unknown fields are refused.
    strict: bool = True
    # Whether it runs only on the `admin` database.
    admin_only: bool = False
    # Whether it exists only with --enable-test-commands.
    test_only: bool = False
    # Whether it changes data or metadata.
    writes: bool = False
    # For a command that may write: whether it does, by its body.
    writes_if: Callable[[bytes], bool] | None = None
    # Whether it accepts `writeConcern` though it does not write.
    takes_write_concern: bool = False
    # Whether its reply to `w: 0` is `{n: 0}`, whatever its result.
    silent: bool = False
    # Whether it is a write for which drivers send a `txnNumber`; it is executed once even if it is sent again.
    retryable: bool = False
    # The read concern levels that it supports.
    read_levels: frozenset[str] = LOCAL_LEVEL
    # Whether it only reads or waits, so that it ends when its client disconnects, unless `writes_if` is true.
    may_be_abandoned: bool = False
    # Whether it is part of the Stable API, version 1, and which of its fields are not.
    stable: bool = False
    unstable_fields: tuple[str, ...] = ()
    # Whether it has the argument `rawData` of MongoDB 8.2.
    raw_data: bool = False
    # Its group in `$collStats`' latencyStats, and in serverStatus' `opcounters`.
    latency: LatencyGroup = "commands"
    counter: str = "command"
    # Whether it is hello or one of its older names.
    handshake: bool = False
    # Whether it may be sent as OP_QUERY to a server of every version.
    by_op_query: bool = False
    # Its fields that `$currentOp` must not show.
    secret_fields: tuple[str, ...] = ()
    # Whether it may be a statement of a transaction, and also the first one.
    in_transaction: bool = False
    begins_transaction: bool = True
    # Whether it commits or aborts a transaction, and is answered again for one that has been committed.
    ends_transaction: bool = False
    repeats_commit: bool = False
    # Whether it changes collections or indexes, and if it does waits until no transaction uses the collection.
    exclusive: bool = False
    # Whether it comes to the same when it is carried out once more after a part of it is done.
    is_repeatable: bool = False
    # Whether it decides itself what it does with `local.oplog.rs`; others that write are refused on it (73).
    judges_oplog: bool = False
    # Whether it puts a saved state in the place of what clients have written.
    restores: bool = False
    # Whether it is about open cursors; its database is the one in which the command ran that opened them.
    uses_cursors: bool = False
    # Whether it runs on one database and writes to collections of any.
    writes_anywhere: bool = False
    # Whether a request neither waits nor takes long, whatever it finds; None if none does. Of a command that writes:
    # whether it is expected to. It changes no data before it calls `Stacks.require`, if it is to be carried out another
    # way than expected.
    is_prompt: Callable[[OperationContext, Any], bool] | None = None
    # Whether it neither reads nor writes what is stored, so that it is answered in the middle of a long unit of work
    # (`message_traits.touches_no_data`, which knows the arguments that are exceptions).
    touches_no_data: bool = False
    # Whether nothing else runs while it does, since what it has read must hold until it has changed it.
    undivided: bool = False


@dataclass(frozen=True, kw_only=True)
class CommandSpec(CommandTraits):
    """A command: what is declared of it, its function, and what follows from both."""

    function: CommandFunction
    # The version of MongoDB that introduced it.
    since: Version
    names: tuple[str, ...]
    parser: RequestParser
    # The module of its function: "find_count_distinct".
    family: str
    names_collection: bool
    # The field that has the statements of a batch of updates or deletes; empty for other commands.
    statements_field: str
    # The position of the statements of a batch among the request's fields; -1 for commands that are no batch.
    batch_at: int
    # Whether the command itself counts in `opcounters`, one for each of its statements.
    counts_statements: bool

    def is_write(self, body: bytes) -> bool:
        """Whether the command with this body writes."""
        return self.writes or (self.writes_if is not None and self.writes_if(body))

    def without_secrets(self, body: bytes) -> bytes:
        """The command's body for others to see: with "xxx" in place of passwords."""
        if not self.secret_fields:
            return body
        builder = DocumentBuilder()
        cursor = ElementCursor(body, 0)
        while cursor.next():
            name = cursor.name()
            if name in self.secret_fields:
                builder.append(name, "xxx")
            else:
                builder.append_raw_element(cursor.raw_element())
        return builder.finish()

    def shown(self, op: OperationContext) -> bytes:
        """The command of an operation for others to see: without passwords, and with the comment of its cursor if it
        has none of its own."""
        body = self.without_secrets(op.command.body)
        if op.command.comment is None or find_field(body, b"comment")[0] != 0:
            return body
        builder = DocumentBuilder()
        builder.append_raw_element(body[4:-1])
        builder.append("comment", op.command.comment)
        return builder.finish()

    def takes_default_time_limit(self, body: bytes) -> bool:
        """Whether the cluster parameter `defaultMaxTimeMS` applies: to reads that may give `maxTimeMS` for themselves.

        Not to getMore, whose `maxTimeMS` is the time that it waits for documents.
        """
        return self.latency == "reads" and self.counter != "getmore" and not self.is_write(body)


class CommandTable:
    """The commands by their names and aliases. Looking one up imports its module; whether a name exists does not."""

    def __init__(self, families: Mapping[str, str]) -> None:
        """families: as `commands.families.FAMILIES`."""
        self._modules = {name: module_of(family) for family, names in families.items() for name in names.split()}
        self._specs: dict[str, CommandSpec] = {}
        # Held while a module is imported: the import system cannot import modules that depend on each other from two
        # threads at the same time.
        self._lock = RLock()

    def get(self, name: str) -> CommandSpec | None:
        """A command's specification; None if there is no such command."""
        spec = self._specs.get(name)
        if spec is not None:
            return spec
        return self[name] if name in self._modules else None

    def __getitem__(self, name: str) -> CommandSpec:
        spec = self._specs.get(name)
        if spec is None:
            module = self._modules[name]
            with self._lock:
                import_module(module)
            spec = self._specs[name]
        return spec

    def is_imported(self, name: str) -> bool:
        """Whether looking up a name imports nothing."""
        return name in self._specs

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def values(self) -> list[CommandSpec]:
        """The specifications of all names; those with aliases several times."""
        return [self[name] for name in self]

    def items(self) -> list[tuple[str, CommandSpec]]:
        return [(name, self[name]) for name in self]

    def add(self, spec: CommandSpec) -> None:
        """Adds a command of a module that is being imported. ValueError if `families` does not name it, or twice."""
        module = spec.function.__module__
        for name in spec.names:
            if name in self._specs or name in UNSUPPORTED_COMMANDS:
                raise ValueError(f"command {name} is registered twice")
            if self._modules.get(name) != module:
                raise ValueError(f"command {name} of {module} is missing in commands/families.py")
            self._specs[name] = spec


COMMANDS: Final = CommandTable(FAMILIES)


class command(CommandTraits):
    """Registers the decorated function as a command, by its name and aliases."""

    def __call__(self, function: CommandFunction) -> CommandFunction:
        COMMANDS.add(_spec_of(self, function))
        return function


def _spec_of(traits: CommandTraits, function: CommandFunction) -> CommandSpec:
    request = traits.request
    attributes: tuple[str, ...] = request._fields
    batches = [name for name in ("statements", "documents") if name in attributes and "ordered" in attributes]
    has_statements = "statements" in attributes
    declared = {
        **vars(traits),
        # Commands that write take a write concern.
        "takes_write_concern": traits.takes_write_concern or traits.writes or traits.writes_if is not None,
    }
    return CommandSpec(
        **declared,
        function=_undivided(function) if traits.undivided else function,
        since=since(COMMAND, traits.name),
        names=(traits.name, *traits.aliases),
        parser=parser_for(traits.name, request, traits.strict, traits.raw_data, traits.access.by_anyone),
        family=function.__module__.rpartition(".")[2],
        names_collection="collection" in attributes,
        statements_field=fields_of(request)[attributes.index("statements")].name if has_statements else "",
        batch_at=attributes.index(batches[-1]) if batches else -1,
        counts_statements=traits.counter in ("insert", "update", "delete"),
    )


def _undivided(function: CommandFunction) -> CommandFunction:
    @wraps(function)
    def carry_out(op: OperationContext, request: Any) -> Reply:
        with Undivided():
            return function(op, request)

    return carry_out


_NO_SEARCH: Final = "Atlas Search is not available"
# Commands that mongod itself refuses without Atlas Search, with SearchNotEnabled (31082).
SEARCH_COMMANDS: Final = frozenset({"createSearchIndexes", "dropSearchIndex", "listSearchIndexes", "updateSearchIndex"})
# Messages for unsupported commands that say more than "not supported".
UNSUPPORTED_REASONS: Final = {
    **dict.fromkeys(sorted(SEARCH_COMMANDS), _NO_SEARCH),
}

# Commands of MongoDB 8.2 that mongottl refuses by name, with CommandNotSupported (115) unless SEARCH_COMMANDS.
UNSUPPORTED_COMMANDS: Final = frozenset(
    """
    abortReshardCollection
    addShard
    addShardToZone
    analyze
    analyzeShardKey
    appendOplogNote
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
    configureQueryAnalyzer
    connPoolSync
    coordinateCommitTransaction
    createSearchIndexes
    dbCheck
    dropSearchIndex
    enableSharding
    flushRouterConfig
    getShardMap
    getShardVersion
    godinsert
    listSearchIndexes
    listShards
    logApplicationMessage
    makeSnapshot
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
    replSetGetRBID
    replSetMaintenance
    replSetReconfig
    replSetResizeOplog
    replSetStepDown
    replSetSyncFrom
    resetPlacementHistory
    reshardCollection
    setAllowMigrations
    setProfilingFilterGlobally
    setShardVersion
    shardConnPoolStats
    shardDrainingStatus
    shardingState
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
    updateSearchIndex
    updateZoneKeyRange
    voteCommitIndexBuild
    waitForFailPoint
    whatsmysni
    """.split()
)
