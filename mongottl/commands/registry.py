"""The table of commands. A command registers itself by the decorator above its function.

    @command("ping", PingRequest, access=ANYONE, help="Replies at once; tests whether the server responds.")
    def ping(op: OperationContext, request: PingRequest) -> Reply: ...

Its module is imported when the command is first asked for, so its name also stands in `families`.
`listCommands`, the dispatcher and the table of docs/supported.md all read `COMMANDS` and `UNSUPPORTED_COMMANDS`.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from importlib import import_module
from threading import RLock
from typing import Any, Final, TypeAlias

from mongottl.commands.access import Access
from mongottl.commands.families import FAMILIES, module_of
from mongottl.commands.request import RequestParser, fields_of, parser_for
from mongottl.document.build import encode_fields
from mongottl.document.interrupt import Undivided
from mongottl.document.types import Value
from mongottl.document.walk import fields, find_field
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.usage import LatencyGroup
from mongottl.versions import COMMAND, since

# A reply without its `ok`, or a complete raw reply document.
Reply: TypeAlias = dict[str, Value] | bytes
CommandFunction: TypeAlias = Callable[[OperationContext, Any], Reply]


# The read concern levels that a command supports; the others are refused with InvalidOptions (72).
LOCAL_LEVEL: Final = frozenset(("local",))
ALL_LEVELS: Final = frozenset(("local", "available", "majority", "linearizable", "snapshot"))
ALL_BUT_SNAPSHOT: Final = ALL_LEVELS - {"snapshot"}


class CommandSpec:
    """One command, with its properties that do not depend on its arguments.

    names: its name and its aliases.
    access: what a client must be allowed to run it (`commands.access`).
    admin_only: runs only on the `admin` database. test_only: exists only with --enable-test-commands.
    writes: changes data or metadata. writes_if: for a command that may write, tells by its body whether it does.
    takes_write_concern: accepts `writeConcern`, also if it does not write.
    silent: its reply to `w: 0` is `{n: 0}`, whatever its result.
    retryable: a write for which drivers send a `txnNumber`; it is executed once even if it is sent again.
    read_levels: the read concern levels that it supports.
    may_be_abandoned: it only reads or waits, so it ends when its client disconnects, unless `writes_if` is true.
    stable: is part of the Stable API, version 1. unstable_fields: its fields that are not.
    raw_data: has the argument `rawData` of MongoDB 8.2.
    latency: its group in `$collStats`' latencyStats.
    counter: its group in serverStatus' `opcounters`. counts_statements: whether the command itself counts there, one
    for each of its statements.
    handshake: hello and its older names. by_op_query: may be sent as OP_QUERY to a server of every version.
    secret_fields: its fields that `$currentOp` must not show.
    in_transaction: may be a statement of a transaction; begins_transaction: also the first one. ends_transaction:
    commits or aborts one. repeats_commit: is answered again for a transaction that has been committed.
    restores: puts a saved state in the place of what clients have written.
    judges_oplog: decides itself what it does with `local.oplog.rs`; others that write are refused on it (73).
    exclusive: changes collections or indexes, and if it does waits until no transaction uses the collection.
    writes_anywhere: runs on one database and writes to collections of any.
    is_prompt: tells whether a request neither waits nor takes long, whatever it finds; None if none does.
    uses_cursors: is about open cursors; its database is the one in which the command ran that opened them.
    """

    def __init__(
        self,
        name: str,
        function: CommandFunction,
        request: type[Any],
        *,
        aliases: tuple[str, ...],
        access: Access,
        help: str,
        strict: bool,
        admin_only: bool,
        test_only: bool,
        writes: bool,
        writes_if: Callable[[bytes], bool] | None,
        takes_write_concern: bool,
        silent: bool,
        retryable: bool,
        read_levels: frozenset[str],
        may_be_abandoned: bool,
        stable: bool,
        unstable_fields: tuple[str, ...],
        raw_data: bool,
        latency: LatencyGroup,
        counter: str,
        handshake: bool,
        by_op_query: bool,
        secret_fields: tuple[str, ...],
        in_transaction: bool,
        begins_transaction: bool,
        ends_transaction: bool,
        repeats_commit: bool,
        exclusive: bool,
        judges_oplog: bool,
        restores: bool,
        uses_cursors: bool,
        writes_anywhere: bool,
        is_prompt: Callable[[OperationContext, Any], bool] | None,
    ) -> None:
        self.name = name
        # The version of MongoDB that introduced it.
        self.since = since(COMMAND, name)
        self.names = (name, *aliases)
        self.function = function
        self.request = request
        self.parser: RequestParser = parser_for(name, request, strict, raw_data, access.by_anyone)
        self.family = function.__module__.rpartition(".")[2]
        self.names_collection = "collection" in request._fields
        # The field that has the statements of a batch of updates or deletes; empty for other commands.
        self.statements_field = ""
        if "statements" in request._fields:
            self.statements_field = fields_of(request)[request._fields.index("statements")].name
        # The position of the statements of a batch among the request's fields; -1 for commands that are no batch.
        self.batch_at = -1
        for field in ("statements", "documents"):
            if field in request._fields and "ordered" in request._fields:
                self.batch_at = request._fields.index(field)
        self.access = access
        self.help = help
        self.admin_only = admin_only
        self.test_only = test_only
        self.writes = writes
        self.writes_if = writes_if
        self.takes_write_concern = takes_write_concern
        self.silent = silent
        self.retryable = retryable
        self.read_levels = read_levels
        self.may_be_abandoned = may_be_abandoned
        self.stable = stable
        self.unstable_fields = unstable_fields
        self.raw_data = raw_data
        self.latency = latency
        self.counter = counter
        self.counts_statements = counter in ("insert", "update", "delete")
        self.handshake = handshake
        self.by_op_query = by_op_query
        self.secret_fields = secret_fields
        self.in_transaction = in_transaction
        self.begins_transaction = begins_transaction
        self.ends_transaction = ends_transaction
        self.repeats_commit = repeats_commit
        self.exclusive = exclusive
        self.judges_oplog = judges_oplog
        self.restores = restores
        self.uses_cursors = uses_cursors
        self.writes_anywhere = writes_anywhere
        self.is_prompt = is_prompt

    def is_write(self, body: bytes) -> bool:
        """Whether the command with this body writes."""
        return self.writes or (self.writes_if is not None and self.writes_if(body))

    def without_secrets(self, body: bytes) -> bytes:
        """The command's body for others to see: with "xxx" in place of passwords."""
        if not self.secret_fields:
            return body
        return encode_fields([(name, "xxx" if name in self.secret_fields else value) for name, value in fields(body)])

    def shown(self, op: OperationContext) -> bytes:
        """The command of an operation for others to see: without passwords, and with the comment of its cursor if it
        has none of its own."""
        body = self.without_secrets(op.body)
        if op.comment is None or find_field(body, b"comment")[0] != 0:
            return body
        return encode_fields([*fields(body), ("comment", op.comment)])

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


def command(
    name: str,
    request: type[Any],
    *,
    access: Access,
    help: str,
    aliases: tuple[str, ...] = (),
    strict: bool = True,
    admin_only: bool = False,
    test_only: bool = False,
    writes: bool = False,
    writes_if: Callable[[bytes], bool] | None = None,
    takes_write_concern: bool = False,
    silent: bool = False,
    retryable: bool = False,
    read_levels: frozenset[str] = LOCAL_LEVEL,
    may_be_abandoned: bool = False,
    stable: bool = False,
    unstable_fields: tuple[str, ...] = (),
    raw_data: bool = False,
    latency: LatencyGroup = "commands",
    counter: str = "command",
    handshake: bool = False,
    by_op_query: bool = False,
    secret_fields: tuple[str, ...] = (),
    in_transaction: bool = False,
    begins_transaction: bool = True,
    ends_transaction: bool = False,
    repeats_commit: bool = False,
    exclusive: bool = False,
    judges_oplog: bool = False,
    restores: bool = False,
    uses_cursors: bool = False,
    writes_anywhere: bool = False,
    is_prompt: Callable[[OperationContext, Any], bool] | None = None,
    undivided: bool = False,
) -> Callable[[CommandFunction], CommandFunction]:
    """Registers the decorated function as a command, by its name and aliases. Arguments: see `CommandSpec`.

    strict: whether unknown fields are refused. Commands with `writes` or `writes_if` take a write concern.
    undivided: whether nothing else runs while it does, since what it has read must hold until it has changed it.
    """

    def register(function: CommandFunction) -> CommandFunction:
        spec = CommandSpec(
            name,
            function,
            request,
            aliases=aliases,
            access=access,
            help=help,
            strict=strict,
            admin_only=admin_only,
            test_only=test_only,
            writes=writes,
            writes_if=writes_if,
            takes_write_concern=takes_write_concern or writes or writes_if is not None,
            silent=silent,
            retryable=retryable,
            read_levels=read_levels,
            may_be_abandoned=may_be_abandoned,
            stable=stable,
            unstable_fields=unstable_fields,
            raw_data=raw_data,
            latency=latency,
            counter=counter,
            handshake=handshake,
            by_op_query=by_op_query,
            secret_fields=secret_fields,
            in_transaction=in_transaction,
            begins_transaction=begins_transaction,
            ends_transaction=ends_transaction,
            repeats_commit=repeats_commit,
            exclusive=exclusive,
            judges_oplog=judges_oplog,
            restores=restores,
            uses_cursors=uses_cursors,
            writes_anywhere=writes_anywhere,
            is_prompt=is_prompt,
        )
        if undivided:
            spec.function = _undivided(function)
        COMMANDS.add(spec)
        return function

    return register


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
