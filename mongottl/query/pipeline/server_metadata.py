"""Stages that return server metadata instead of documents.

`$currentOp $indexStats $listClusterCatalog $planCacheStats $querySettings $listSessions $listLocalSessions
$listSampledQueries $queryStats`
"""

from typing import Final

from mongottl.document.bson_field import (
    IDENTIFIER_TRANSFORM,
    SESSION_USER,
    checked_word,
    missing_field,
    read_options,
    read_stage_options,
    wrong_type,
)
from mongottl.document.build import encode
from mongottl.document.types import BinData, Value
from mongottl.document.walk import fields, fields_by_name
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.expr.parser import type_of
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.source import DocumentSource, ListSource
from mongottl.query.pipeline.stage import LOCAL_LEVEL, StageSpec, StageTraits, stage
from mongottl.versions import OLDEST

OF_A_COLLECTION: Final = 9621301
NO_CATALOG_OPTIONS: Final = 9621302
_SESSIONS: Final = "config.system.sessions"


class ServerMetadataSpec(StageSpec):
    """A stage that returns server metadata.

    hmac_key: of `$queryStats`. argument: the original one. namespace: the collection or database of the aggregate
    command.
    """

    def __init__(self, name: str, namespace: str, argument: bytes) -> None:
        self.name = name
        self.first_only = True
        self.namespace: Final = namespace
        self.argument: Final = argument
        self.hmac_key: bytes | None = None

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        source.close()
        if self.name == "$indexStats":
            return ListSource(run.index_statistics(self.namespace))
        if self.name == "$currentOp":
            return ListSource(run.operations(fields_by_name(self.argument)))
        if self.name == "$listClusterCatalog":
            shards = fields_by_name(self.argument).get("shards") is True
            return ListSource(run.cluster_catalog(self.namespace.partition(".")[0], shards))
        if self.name == "$planCacheStats":
            return ListSource(run.plan_cache(self.namespace))
        if self.name == "$listSampledQueries":
            return ListSource([])  # queries are sampled only where configureQueryAnalyzer, which is refused, says so
        if self.name == "$querySettings":
            return ListSource(run.query_settings(fields_by_name(self.argument).get("showDebugQueryShape") is True))
        if self.name == "$queryStats":
            return run.query_statistics(self.hmac_key)
        return ListSource(run.sessions(fields_by_name(self.argument)))

    def describe(self) -> Value:
        return encode({self.name: self.argument})


def _check_on_admin(name: str, ctx: ParseContext) -> None:
    """InvalidNamespace (73) unless run on `admin` with {aggregate: 1}."""
    if ctx.namespace != "admin.$cmd.aggregate":
        raise CommandError(
            ErrorCode.InvalidNamespace, f"{name} must be run against the 'admin' database with {{aggregate: 1}}"
        )


def _check_on_database(name: str, ctx: ParseContext) -> None:
    """InvalidNamespace (73) for a collection."""
    if not ctx.namespace.endswith(".$cmd.aggregate"):
        raise CommandError(ErrorCode.InvalidNamespace, f"{name} must be run against the database with {{aggregate: 1}}")


@stage(
    "$indexStats",
    StageTraits(in_facet=False, stable=False, actions=("indexStats",), in_transaction=False),
    since=OLDEST,
)
def parse_index_stats(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{}`. 28803 for anything else."""
    if not isinstance(argument, bytes) or len(argument) != 5:
        raise CommandError(28803, "The $indexStats stage specification must be an empty object")
    return [ServerMetadataSpec("$indexStats", ctx.namespace, argument)]


@stage(
    "$currentOp",
    StageTraits(
        in_facet=False,
        stable=False,
        server_wide=True,
        collectionless=True,
        read_levels=LOCAL_LEVEL,
        actions=(),
        cluster_action="inprog",
        cluster_action_field="allUsers",
        in_transaction=False,
    ),
    since=OLDEST,
)
def parse_current_op(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{allUsers, idleConnections, idleCursors, idleSessions, localOps, targetAllNodes, truncateOps}`, all booleans.

    TypeMismatch (14) for other values, 40415 for other fields, FailedToParse (9) for `targetAllNodes`, which is for
    sharded clusters, InvalidNamespace (73) unless run on `admin` with {aggregate: 1}. All operations are listed,
    with or without `allUsers`.
    """
    if not isinstance(argument, bytes):
        raise CommandError(
            ErrorCode.TypeMismatch,
            f"$currentOp options must be specified in an object, but found: {type_of(argument)}",
        )
    options = read_stage_options("$currentOp", argument)
    if options.get("targetAllNodes") is True:
        raise CommandError(
            ErrorCode.FailedToParse, "The 'targetAllNodes' parameter of $currentOp is for sharded clusters"
        )
    _check_on_admin("$currentOp", ctx)
    return [ServerMetadataSpec("$currentOp", ctx.namespace, argument)]


@stage(
    "$listClusterCatalog",
    StageTraits(
        in_facet=False,
        parsed_before_facet=True,
        collectionless=True,
        read_levels=LOCAL_LEVEL,
        actions=("listCollections",),
        in_transaction=False,
    ),
    since=(8, 0),
)
def parse_list_cluster_catalog(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{shards, balancingConfiguration, tracked}`, all booleans; the last two concern sharded clusters.

    9621301 for a collection, 9621302 if it is not an object, TypeMismatch (14) for other values, 40415 for other
    fields.
    """
    if not ctx.namespace.endswith(".$cmd.aggregate"):
        raise CommandError(
            OF_A_COLLECTION,
            "The $listClusterCatalog stage must be run against a database, with {aggregate: 1}, not a collection",
        )
    if not isinstance(argument, bytes):
        raise CommandError(
            NO_CATALOG_OPTIONS,
            f"The $listClusterCatalog stage specification must be an object, found: {type_of(argument)}",
        )
    read_stage_options("$listClusterCatalog", argument)
    return [ServerMetadataSpec("$listClusterCatalog", ctx.namespace, argument)]


@stage(
    "$planCacheStats",
    StageTraits(
        in_facet=False, stable=False, read_levels=LOCAL_LEVEL, actions=("planCacheRead",), in_transaction=False
    ),
    since=(4, 2),
)
def parse_plan_cache_stats(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{}` or `{allHosts: false}`. FailedToParse (9) for other arguments, 13111 for another type than bool, 4503200 for
    all hosts, which are for sharded clusters."""
    if not isinstance(argument, bytes):
        raise CommandError(
            ErrorCode.FailedToParse,
            f"$planCacheStats value must be an object. Found: {type_of(argument)}",
        )
    seen = False
    every = False
    for name, value in fields(argument):
        if name != "allHosts" or seen:
            raise CommandError(ErrorCode.FailedToParse, f"$planCacheStats got an unexpected field: {name}")
        if not isinstance(value, bool):
            raise CommandError(13111, f"wrong type for field (allHosts) {type_of(value)} != bool")
        seen = True
        every = value
    if every:
        raise CommandError(4503200, "$planCacheStats: allHosts is for sharded clusters")
    return [ServerMetadataSpec("$planCacheStats", ctx.namespace, argument)]


@stage(
    "$querySettings",
    StageTraits(in_facet=False, collectionless=True, actions=(), cluster_action="querySettings", in_transaction=False),
    since=(8, 0),
)
def parse_query_settings(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{showDebugQueryShape: bool}`. 7746800 if it is not a document, InvalidNamespace (73) for a collection."""
    if not isinstance(argument, bytes):
        raise CommandError(7746800, "$querySettings value must be an object. Found: " + type_of(argument))
    read_stage_options("$querySettings", argument)
    _check_on_database("$querySettings", ctx)
    return [ServerMetadataSpec("$querySettings", ctx.namespace, argument)]


@stage(
    "$listSampledQueries",
    StageTraits(
        in_facet=False,
        stable=False,
        collectionless=True,
        read_levels=LOCAL_LEVEL,
        actions=(),
        cluster_action="listSampledQueries",
        in_transaction=False,
    ),
    since=(7, 0),
)
def parse_list_sampled_queries(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{namespace: string}`. 6876001 if it is not a document, InvalidNamespace (73) unless run on the admin database
    without collection."""
    _check_on_admin("$listSampledQueries", ctx)
    if not isinstance(argument, bytes):
        raise CommandError(6876001, f"$listSampledQueries must take a nested object but found: {type_of(argument)}")
    read_stage_options("$listSampledQueries", argument)
    return [ServerMetadataSpec("$listSampledQueries", ctx.namespace, argument)]


@stage(
    "$queryStats",
    StageTraits(
        in_facet=False,
        stable=False,
        server_wide=True,
        collectionless=True,
        read_levels=LOCAL_LEVEL,
        actions=(),
        cluster_action="queryStatsReadTransformed",
        action_without=("transformIdentifiers", "queryStatsRead"),
        in_transaction=False,
    ),
    since=(6, 0),
)
def parse_query_stats(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{transformIdentifiers: {algorithm: "hmac-sha-256", hmacKey: BinData}}`.

    FailedToParse (9) if it is not a document or without `hmacKey`, 40415 for other fields, 40414 without `algorithm`,
    TypeMismatch (14), BadValue (2) for another algorithm, then InvalidNamespace (73) unless run on `admin` with
    {aggregate: 1}.

    Unlike its manual says, MongoDB 8 needs both actions to show names, and one of them, `queryStatsReadTransformed`, to
    show their HMACs.
    """
    if not isinstance(argument, bytes):
        raise CommandError(ErrorCode.FailedToParse, f"$queryStats value must be an object. Found: {type_of(argument)}")
    options = read_stage_options("$queryStats", argument)
    spec = ServerMetadataSpec("$queryStats", ctx.namespace, argument)
    transform = options.get("transformIdentifiers")
    if isinstance(transform, bytes):
        name = "$queryStats.transformIdentifiers"
        given = read_options(name, transform, IDENTIFIER_TRANSFORM)
        if "algorithm" not in given:
            raise missing_field(f"{name}.algorithm")
        checked_word(f"{name}.algorithm", given["algorithm"], ("hmac-sha-256",))
        secret = given.get("hmacKey")
        if not isinstance(secret, BinData):
            raise CommandError(ErrorCode.FailedToParse, f"{name}.hmacKey must be given for the algorithm hmac-sha-256")
        spec.hmac_key = secret.data
    _check_on_admin("$queryStats", ctx)
    return [spec]


def _check_session_options(name: str, argument: Value) -> bytes:
    if not isinstance(argument, bytes):
        raise CommandError(
            ErrorCode.TypeMismatch, f"{name} options must be specified in an object, but found: {type_of(argument)}"
        )
    options = read_stage_options(name, argument)
    users = options.get("users")
    if isinstance(users, list):
        present = [(index, user) for index, user in enumerate(users) if user is not None]
        for index, user in present:
            _check_user(f"{name}.users.{index}", user)
        if present and options.get("allUsers") is True:
            raise CommandError(
                ErrorCode.UnsupportedFormat, f"{name} may not have both `users` and `allUsers: true` at the same time"
            )
    return argument


def _check_user(name: str, user: Value) -> None:
    """`{user: name, db: name}`. 40414 for a missing field, 40415 for another, TypeMismatch (14)."""
    if not isinstance(user, bytes):
        raise wrong_type(name, user, "object")
    present = read_options(name, user, SESSION_USER)
    for key in ("user", "db"):
        if key not in present:
            raise missing_field(f"{name}.{key}")


@stage(
    "$listSessions",
    StageTraits(
        in_facet=False,
        parsed_before_facet=True,
        stable=False,
        server_wide=True,
        actions=(),
        cluster_action="listSessions",
        cluster_action_field="allUsers",
        in_transaction=False,
    ),
    since=OLDEST,
)
def parse_list_sessions(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{allUsers, users}`. InvalidNamespace (73) unless run on config.system.sessions."""
    if ctx.namespace != _SESSIONS:
        raise CommandError(ErrorCode.InvalidNamespace, f"$listSessions may only be run against {_SESSIONS}")
    return [ServerMetadataSpec("$listSessions", ctx.namespace, _check_session_options("$listSessions", argument))]


@stage(
    "$listLocalSessions",
    StageTraits(
        in_facet=False,
        parsed_before_facet=True,
        stable=False,
        server_wide=True,
        collectionless=True,
        read_levels=LOCAL_LEVEL,
        actions=(),
        cluster_action="listSessions",
        cluster_action_field="allUsers",
        in_transaction=False,
    ),
    since=OLDEST,
)
def parse_list_local_sessions(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{allUsers, users}`. InvalidNamespace (73) for a collection."""
    _check_on_database("$listLocalSessions", ctx)
    return [
        ServerMetadataSpec("$listLocalSessions", ctx.namespace, _check_session_options("$listLocalSessions", argument))
    ]
