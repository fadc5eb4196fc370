"""explain of aggregations, and of reads of views, which are executed as aggregations."""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.catalog.view import View
from mongottl.commands.crud.map_reduce import MapReduceRequest, map_reduce_stages, parse_output
from mongottl.commands.crud.query_shape import (
    aggregate_shape,
    check_settings,
    pipeline_shape,
)
from mongottl.commands.crud.read_requests import AggregateRequest, collection_of
from mongottl.commands.crud.view_reads import ViewQuery, query_view
from mongottl.commands.query_context import context_of
from mongottl.commands.registry import Reply
from mongottl.config import GIT_VERSION, PARAMETERS
from mongottl.document.collation import Collation
from mongottl.document.types import Value, integer
from mongottl.errors import CommandError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.plan_cache import QueryShape, plan_cache_key
from mongottl.exec.plan.shape import expression_shape, is_planned_stage, plan_shape_hash, query_shape_hash
from mongottl.exec.results.aggregation import AggregationPlan, plan_aggregation
from mongottl.exec.results.explain import QUERY_PLANNER, covered_wrapper, explain_plan
from mongottl.exec.results.explain_size import fitted
from mongottl.exec.results.measured import MeasuredPipeline
from mongottl.exec.results.views import begins_with_coll_stats
from mongottl.query.pipeline import StageSpec, optimise, parse_pipeline
from mongottl.query.pipeline.near import GeoNearFieldsSpec


def add_plan_hashes(
    reply: dict[str, Value], collection: Collection | None, shape: list[str], collation: Collation | None
) -> None:
    """Adds the collation, `queryHash`, `planCacheShapeHash` and `planCacheKey` to a reply's `queryPlanner`."""
    planner = reply["queryPlanner"]
    assert isinstance(planner, dict)
    hashes: dict[str, Value] = {
        "queryHash": plan_shape_hash(shape),
        "planCacheShapeHash": plan_shape_hash(shape),
        "planCacheKey": plan_cache_key(shape, collection),
    }
    completed: dict[str, Value] = {}
    for name, value in planner.items():
        completed[name] = value
        if name == "parsedQuery" and collation is not None:
            completed["collation"] = collation.spec
        if name == "indexFilterSet":
            completed.update(hashes)
    reply["queryPlanner"] = completed


# Parameters in explain's `serverParameters`, besides the memory limits that can be set.
_SERVER_PARAMETERS: Final[dict[str, Value]] = {
    "internalQueryFacetBufferSizeBytes": 104857600,
    "internalQueryFacetMaxOutputDocSizeBytes": 104857600,
    "internalLookupStageIntermediateDocumentMaxSizeBytes": None,
    "internalDocumentSourceGroupMaxMemoryBytes": None,
    "internalQueryMaxBlockingSortMemoryUsageBytes": None,
    "internalQueryProhibitBlockingMergeOnMongoS": 0,
    "internalQueryMaxAddToSetBytes": None,
    "internalDocumentSourceSetWindowFieldsMaxMemoryBytes": None,
    "internalQueryFrameworkControl": "forceClassicEngine",
    "internalQueryPlannerIgnoreIndexWithCollationForRegex": 1,
}


def with_server(op: OperationContext, reply: dict[str, Value]) -> dict[str, Value]:
    """The whole reply, with `serverInfo` and `serverParameters` and without what does not fit into a document."""
    host, _, port = op.client.local.rpartition(":")
    reply["serverInfo"] = {
        "host": host,
        "port": int(port) if port.isdigit() else 0,
        "version": op.service.config.full_version(),
        "gitVersion": GIT_VERSION,
    }
    parameters = dict(_SERVER_PARAMETERS)
    for parameter in PARAMETERS:
        if parameter.name in parameters:
            parameters[parameter.name] = integer(getattr(op.service.limits, parameter.field))
    reply["serverParameters"] = parameters
    return op.compute(lambda: fitted(reply))


def explain_aggregate_command(
    op: OperationContext, request: AggregateRequest, verbosity: str, explained: bytes
) -> Reply:
    name = collection_of(op, request.collection)
    collection = op.catalog.find(op.database, name)
    if isinstance(collection, View):
        if not begins_with_coll_stats(request.pipeline):
            return explain_on_view(op, collection, request, verbosity, explained)
        collection = None
    context = context_of(op, name, request.let, request.collation)
    specs = op.compute(lambda: optimise(parse_pipeline(request.pipeline, context), context))
    return explain_aggregate(op, collection, specs, request, verbosity, explained, context.collation)


def explain_map_reduce(op: OperationContext, request: MapReduceRequest, verbosity: str, explained: bytes) -> Reply:
    """Explains a mapReduce as the pipeline that it is, without writing its results."""
    collection = op.catalog.lookup(op.database, request.collection)
    context = context_of(op, request.collection, collation=request.collation)
    output = parse_output(op.database, request.out)
    specs = op.compute(lambda: map_reduce_stages(request, output, context))
    namespace = f"{op.database}.{request.collection}"
    parts = op.compute(lambda: pipeline_shape(namespace, [spec.describe() for spec in specs]))
    plan = plan_aggregation(op, collection, specs, remember=False, collation=context.collation)
    return _explain_pipeline(op, collection, plan, namespace, QueryShape(), parts, verbosity, explained)


def explain_on_view(
    op: OperationContext, view: View, request: AggregateRequest, verbosity: str, explained: Value
) -> Reply:
    """Explains an aggregation of a view: that of the underlying collection, with the view's stages before its own."""
    let = context_of(op, view.name, request.let).let
    query = op.compute(lambda: query_view(op, view, request.pipeline, let, request.collation))
    return explain_view_query(op, query, request.pipeline, request.hint, verbosity, explained)


def explain_view_query(
    op: OperationContext,
    query: ViewQuery,
    stages: list[Value],
    hint: Value,
    verbosity: str,
    explained: Value,
) -> Reply:
    plan = query.plan(op, hint)
    _check_not_executed(plan, verbosity)
    parts = op.compute(lambda: pipeline_shape(query.resolved.namespace, stages))
    return _explain_pipeline(
        op, query.collection, plan, query.resolved.namespace, QueryShape(), parts, verbosity, explained
    )


def explain_aggregate(
    op: OperationContext,
    collection: Collection | None,
    specs: list[StageSpec],
    request: AggregateRequest,
    verbosity: str,
    explained: Value,
    collation: Collation | None,
) -> Reply:
    """The plan of the leading stages under `$cursor`, then the stages that the pipeline runs itself."""
    name = collection_of(op, request.collection)
    shape = QueryShape(collation=request.collation)
    shape.allowed = check_settings(op, "aggregate", request, name)
    plan = plan_aggregation(
        op, collection, specs, request.hint, request.allow_disk_use, shape, remember=False, collation=collation
    )
    _check_not_executed(plan, verbosity)
    return _explain_pipeline(
        op,
        collection,
        plan,
        f"{op.database}.{name}",
        shape,
        op.compute(lambda: aggregate_shape(op.database, request)),
        verbosity,
        explained,
    )


def _explain_pipeline(
    op: OperationContext,
    collection: Collection | None,
    plan: AggregationPlan,
    namespace: str,
    shape: QueryShape,
    query_shape: list[str],
    verbosity: str,
    explained: Value,
) -> Reply:
    described = op.compute(plan.match.describe)
    pipeline = MeasuredPipeline(plan)
    stages = op.compute(pipeline.describe)
    parts = op.compute(lambda: shape.parts(described))
    if stages and is_planned_stage(stages[0]) and plan.rest[0].client_stage != "$fill":
        parts.append(op.compute(lambda: expression_shape(stages[0])))
    wrappers = (covered_wrapper(plan.covered_paths),) if plan.covered_paths else ()
    reply = explain_plan(
        op, plan.plan, namespace, described, verbosity, explained, wrappers, pipeline.drain if stages else None
    )
    add_plan_hashes(reply, collection, parts, plan.collation)
    if stages:
        del reply["command"]
        rest = op.compute(pipeline.describe)
        if isinstance(plan.rest[0], GeoNearFieldsSpec):  # in mongod $geoNearCursor sets the distance fields
            reply = {"explainVersion": "1", "stages": [{"$geoNearCursor": reply}, *rest[1:]]}
        else:
            reply = {"explainVersion": "1", "stages": [{"$cursor": reply}, *rest]}
    reply["queryShapeHash"] = op.compute(lambda: query_shape_hash(query_shape))
    reply["command"] = explained
    return with_server(op, reply)


def _check_not_executed(plan: AggregationPlan, verbosity: str) -> None:
    """51029 for a pipeline that writes, with a verbosity that executes it.

    Source: MongoDB's manual, "db.collection.explain()".
    """
    if verbosity == QUERY_PLANNER:
        return
    for spec in plan.rest:
        if spec.traits.writes:
            raise CommandError(
                51029, f"explain of an aggregation with {spec.name} is only supported with verbosity '{QUERY_PLANNER}'"
            )
