"""explain: what find, count, distinct, aggregate, update, delete and findAndModify would do.

    {explain: {find: …}, verbosity: "queryPlanner" | "executionStats" | "allPlansExecution"}

Nothing is written: for update and delete the plan is run for its counters, the change is not made.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from mongottl.catalog.collection import Collection
from mongottl.catalog.view import View
from mongottl.commands import modify, reads, view_reads, writes
from mongottl.commands.collation import check_collation
from mongottl.commands.reads import context_of, natural_order
from mongottl.commands.registry import COMMANDS, Reply, command
from mongottl.commands.request import DOCUMENT_FIELD, TEXT, Field, GenericArguments
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.types import MISSING, Value
from mongottl.document.walk import first_field_name, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.aggregation import AggregationPlan, plan_aggregation
from mongottl.exec.context import OperationContext, Steps
from mongottl.exec.explain import (
    Wrapper,
    count_wrapper,
    delete_wrapper,
    explain_plan,
    projection_wrapper,
    update_wrapper,
)
from mongottl.exec.planner import is_usable, plan_query
from mongottl.exec.shape import (
    expression_shape,
    filter_shape,
    is_planned_stage,
    order_shape,
    plan_shape_hash,
    planned_filter_shape,
    projection_shape,
    query_shape_hash,
    stage_shape,
)
from mongottl.query.match import parse_match
from mongottl.query.pipeline import StageSpec
from mongottl.query.projection import parse_projection
from mongottl.query.sort import SortPattern, parse_sort

if TYPE_CHECKING:
    from mongottl.commands.reads import AggregateRequest

_VERBOSITIES: Final = ("queryPlanner", "executionStats", "allPlansExecution")


class ExplainRequest(NamedTuple):
    explained: Annotated[bytes, Field("explain", DOCUMENT_FIELD)]
    verbosity: Annotated[str, Field("verbosity", TEXT)] = "allPlansExecution"


@command("explain", ExplainRequest, help="Says how a command would be carried out.")
def explain(op: OperationContext, request: ExplainRequest) -> Steps[Reply]:
    if request.verbosity not in _VERBOSITIES:
        raise CommandError(
            ErrorCode.BadValue,
            f"Enumeration value '{request.verbosity}' for field 'explain.verbosity' is not a valid value.",
        )
    name = first_field_name(request.explained)
    spec = COMMANDS.get(name)
    if spec is None or spec.name not in _EXPLAINERS:
        if spec is None:
            raise CommandError(ErrorCode.CommandNotFound, f"Explain failed due to unknown command: {name}")
        raise CommandError(ErrorCode.IllegalOperation, f"Cannot explain cmd: {name}")
    inner = spec.request._make(spec.parser.parse(request.explained, [], GenericArguments()))
    return (yield from _EXPLAINERS[spec.name](op, inner, request.verbosity, request.explained))


def _explain(
    op: OperationContext,
    name: str,
    filter: bytes,
    explained: bytes,
    verbosity: str,
    *,
    wrappers: tuple[Wrapper, ...] = (),
    let: bytes = EMPTY_DOCUMENT,
    sort: bytes = EMPTY_DOCUMENT,
    projection: bytes = EMPTY_DOCUMENT,
    skip: int = 0,
    limit: int = 0,
    hint: Value = MISSING,
    collation: bytes = EMPTY_DOCUMENT,
    shape: str = "",
) -> Steps[Reply]:
    """shape: what `queryShapeHash` tells apart besides filter, sort and projection; empty for writes."""
    check_collation(collation)
    context = context_of(op, name, let)
    match = parse_match(filter, context)
    natural = natural_order(sort)
    pattern = None if natural or is_empty(sort) else parse_sort(sort)
    if not is_empty(projection):
        parsed = parse_projection(projection, context, for_find=True)
        wrappers = (projection_wrapper(parsed.is_simple, projection), *wrappers)
    collection = op.catalog.lookup(op.database, name)
    plan = plan_query(op, collection, match, sort=pattern, natural=natural, skip=skip, limit=limit, hint=hint)
    namespace = f"{op.database}.{name}"
    described = match.describe()
    reply = yield from explain_plan(op, plan, namespace, described, verbosity, explained, wrappers)
    _add_plan_hashes(
        reply, collection, [planned_filter_shape(described), order_shape(sort), projection_shape(projection)]
    )
    if shape:
        parts = [namespace, shape, filter_shape(filter), order_shape(sort), order_shape(projection)]
        reply["queryShapeHash"] = query_shape_hash(parts)
    return _with_server(op, reply)


def _add_plan_hashes(reply: dict[str, Value], collection: Collection | None, shape: list[str]) -> None:
    """Gives a reply's `queryPlanner` the hashes of the plan's shape, and of it together with the indexes there are."""
    planner = reply["queryPlanner"]
    assert isinstance(planner, dict)
    names = [] if collection is None else [index.name for index in collection.indexes if is_usable(index)]
    hashes: dict[str, Value] = {
        "queryHash": plan_shape_hash(shape),
        "planCacheShapeHash": plan_shape_hash(shape),
        "planCacheKey": plan_shape_hash([*shape, *names]),
    }
    completed: dict[str, Value] = {}
    for name, value in planner.items():
        completed[name] = value
        if name == "indexFilterSet":
            completed.update(hashes)
    reply["queryPlanner"] = completed


# Parameters of mongod that its explain shows; only the limit on memory has a meaning here.
_SERVER_PARAMETERS: Final[dict[str, Value]] = {
    "internalQueryFacetBufferSizeBytes": 104857600,
    "internalQueryFacetMaxOutputDocSizeBytes": 104857600,
    "internalLookupStageIntermediateDocumentMaxSizeBytes": 104857600,
    "internalDocumentSourceGroupMaxMemoryBytes": 104857600,
    "internalQueryMaxBlockingSortMemoryUsageBytes": 104857600,
    "internalQueryProhibitBlockingMergeOnMongoS": 0,
    "internalQueryMaxAddToSetBytes": 104857600,
    "internalDocumentSourceSetWindowFieldsMaxMemoryBytes": 104857600,
    "internalQueryFrameworkControl": "forceClassicEngine",
    "internalQueryPlannerIgnoreIndexWithCollationForRegex": 1,
}


def _with_server(op: OperationContext, reply: dict[str, Value]) -> dict[str, Value]:
    host, _, port = op.client.local.rpartition(":")
    reply["serverInfo"] = {
        "host": host,
        "port": int(port) if port.isdigit() else 0,
        "version": f"{op.service.config.announced_version()}.0",
        "gitVersion": "mongottl",
    }
    reply["serverParameters"] = _SERVER_PARAMETERS
    return reply


def _explain_find(op: OperationContext, request: reads.FindRequest, verbosity: str, explained: bytes) -> Steps[Reply]:
    view = op.catalog.find(op.database, request.collection)
    if isinstance(view, View):
        query, hint = view_reads.plan_find(op, view, request)
        stages = view_reads.find_stages(request)
        return (yield from _explain_view_query(op, query, stages, hint, verbosity, explained))
    return (
        yield from _explain(
            op,
            request.collection,
            request.filter,
            explained,
            verbosity,
            let=request.let,
            sort=request.sort,
            projection=request.projection,
            skip=request.skip,
            limit=request.limit,
            hint=request.hint,
            collation=request.collation,
            shape="find",
        )
    )


def _explain_count(op: OperationContext, request: reads.CountRequest, verbosity: str, explained: bytes) -> Steps[Reply]:
    view = op.catalog.find(op.database, request.collection)
    if isinstance(view, View):
        stages = view_reads.count_stages(request)
        query = view_reads.query_view(op, view, stages, {}, request.collation)
        return (yield from _explain_view_query(op, query, stages, request.hint, verbosity, explained))
    return (
        yield from _explain(
            op,
            request.collection,
            request.query,
            explained,
            verbosity,
            skip=request.skip,
            limit=abs(request.limit),
            hint=request.hint,
            collation=request.collation,
            wrappers=(count_wrapper(),),
            shape="count",
        )
    )


def _explain_distinct(
    op: OperationContext, request: reads.DistinctRequest, verbosity: str, explained: bytes
) -> Steps[Reply]:
    view = op.catalog.find(op.database, request.collection)
    if isinstance(view, View):
        stages = view_reads.distinct_stages(request)
        query = view_reads.query_view(op, view, stages, {}, request.collation)
        return (yield from _explain_view_query(op, query, stages, request.hint, verbosity, explained))
    return (
        yield from _explain(
            op,
            request.collection,
            request.query,
            explained,
            verbosity,
            hint=request.hint,
            collation=request.collation,
            shape=f"distinct:{request.key}",
        )
    )


def _explain_aggregate_command(
    op: OperationContext, request: "AggregateRequest", verbosity: str, explained: bytes
) -> Steps[Reply]:
    from mongottl.query.pipeline import optimise, parse_pipeline

    check_collation(request.collation)
    name = reads.collection_of(op, request.collection)
    collection = op.catalog.find(op.database, name)
    if isinstance(collection, View):
        if not view_reads.is_about_itself(request.pipeline):
            return (yield from explain_on_view(op, collection, request, verbosity, explained))
        collection = None
    context = context_of(op, name, request.let)
    specs = optimise(parse_pipeline(request.pipeline, context), context)
    return (yield from explain_aggregate(op, collection, specs, request, verbosity, explained))


def explain_on_view(
    op: OperationContext, view: View, request: "AggregateRequest", verbosity: str, explained: Value
) -> Steps[Reply]:
    """An aggregation of a view: the plan of the collection below, and the view's stages in front of its own."""
    let = context_of(op, view.name, request.let).let
    query = view_reads.query_view(op, view, request.pipeline, let, request.collation)
    return (yield from _explain_view_query(op, query, request.pipeline, request.hint, verbosity, explained))


def _explain_view_query(
    op: OperationContext,
    query: view_reads.ViewQuery,
    stages: list[Value],
    hint: Value,
    verbosity: str,
    explained: Value,
) -> Steps[Reply]:
    plan = query.plan(op, hint)
    return (
        yield from _explain_pipeline(op, query.collection, plan, query.resolved.namespace, stages, verbosity, explained)
    )


def explain_aggregate(
    op: OperationContext,
    collection: Collection | None,
    specs: list[StageSpec],
    request: "AggregateRequest",
    verbosity: str,
    explained: Value,
) -> Steps[Reply]:
    """The plan of the leading stages under `$cursor`, then the stages that the pipeline runs itself."""
    plan = plan_aggregation(op, collection, specs, request.hint, request.allow_disk_use)
    namespace = f"{op.database}.{reads.collection_of(op, request.collection)}"
    return (yield from _explain_pipeline(op, collection, plan, namespace, request.pipeline, verbosity, explained))


def _explain_pipeline(
    op: OperationContext,
    collection: Collection | None,
    plan: AggregationPlan,
    namespace: str,
    pipeline: list[Value],
    verbosity: str,
    explained: Value,
) -> Steps[Reply]:
    described = plan.match.describe()
    stages: list[Value] = [spec.describe() for spec in plan.rest]
    shape = [planned_filter_shape(described), _sort_shape(plan.plan.sort)]
    if stages and is_planned_stage(stages[0]):
        shape.append(expression_shape(stages[0]))
    reply = yield from explain_plan(op, plan.plan, namespace, described, verbosity, explained)
    _add_plan_hashes(reply, collection, shape)
    if stages:
        del reply["command"]
        reply = {"explainVersion": "1", "stages": [{"$cursor": reply}, *stages]}
    written = [stage_shape(stage) for stage in pipeline if isinstance(stage, bytes)]
    reply["queryShapeHash"] = query_shape_hash([namespace, "aggregate", *written])
    reply["command"] = explained
    return _with_server(op, reply)


def _sort_shape(sort: SortPattern | None) -> str:
    return "" if sort is None else ",".join(f"{path}:{order}" for path, order in sort.describe().items())


def _explain_update(
    op: OperationContext, request: writes.UpdateRequest, verbosity: str, explained: bytes
) -> Steps[Reply]:
    if len(request.updates) != 1:
        raise CommandError(ErrorCode.InvalidLength, "explained write batches must be of size 1")
    statement = writes.UpdateStatement._make(writes.UPDATE_STATEMENT.parse(request.updates[0], [], None))
    return (
        yield from _explain(
            op,
            request.collection,
            statement.query,
            explained,
            verbosity,
            let=request.let,
            sort=statement.sort,
            limit=0 if statement.multi else 1,
            hint=statement.hint,
            collation=statement.collation,
            wrappers=(update_wrapper(statement.multi),),
        )
    )


def _explain_delete(
    op: OperationContext, request: writes.DeleteRequest, verbosity: str, explained: bytes
) -> Steps[Reply]:
    if len(request.deletes) != 1:
        raise CommandError(ErrorCode.InvalidLength, "explained write batches must be of size 1")
    statement = writes.DeleteStatement._make(writes.DELETE_STATEMENT.parse(request.deletes[0], [], None))
    return (
        yield from _explain(
            op,
            request.collection,
            statement.query,
            explained,
            verbosity,
            let=request.let,
            limit=1 if statement.limit == 1 else 0,
            hint=statement.hint,
            collation=statement.collation,
            wrappers=(delete_wrapper(statement.limit != 1),),
        )
    )


def _explain_find_and_modify(
    op: OperationContext, request: modify.FindAndModifyRequest, verbosity: str, explained: bytes
) -> Steps[Reply]:
    return (
        yield from _explain(
            op,
            request.collection,
            request.query,
            explained,
            verbosity,
            wrappers=(delete_wrapper(False) if request.remove else update_wrapper(False),),
            let=request.let,
            sort=request.sort,
            projection=request.fields,
            limit=1,
            hint=request.hint,
            collation=request.collation,
        )
    )


_EXPLAINERS: Final[dict[str, Callable[[OperationContext, Any, str, bytes], Steps[Reply]]]] = {
    "find": _explain_find,
    "count": _explain_count,
    "distinct": _explain_distinct,
    "aggregate": _explain_aggregate_command,
    "update": _explain_update,
    "delete": _explain_delete,
    "findAndModify": _explain_find_and_modify,
}
