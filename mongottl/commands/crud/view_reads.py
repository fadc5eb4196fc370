"""find, count, distinct and aggregate on views: each becomes a pipeline that follows the view's pipeline.

A find cannot have options on a view that a pipeline cannot express. Source: MongoDB's "Views" pages.
"""

from mongottl.catalog.collection import Collection
from mongottl.catalog.view import View
from mongottl.commands.crud.read_requests import AggregateRequest, CountRequest, DistinctRequest, FindRequest
from mongottl.commands.query_context import context_of, natural_order
from mongottl.commands.registry import Reply
from mongottl.document.build import EMPTY_DOCUMENT, encode
from mongottl.document.collation import same_collation
from mongottl.document.types import MISSING, Int64, Value
from mongottl.document.walk import fields_by_name, find_field_at, first_field_name, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.planner import make_plan
from mongottl.exec.results.aggregation import AggregationPlan, plan_aggregation
from mongottl.exec.results.cursors import ClientCursor
from mongottl.exec.results.reading import Pull, first_reply
from mongottl.exec.results.views import ResolvedView, collection_below, resolve_view, view_collation
from mongottl.query.collation import parse_collation
from mongottl.query.context import ParseContext
from mongottl.query.pipeline import DocumentSource, StageSpec, optimise, parse_pipeline, traits_of


class ViewQuery:
    """A query on a view. collection: the underlying one, None if it does not exist; specs: the stages on it."""

    def __init__(
        self, view: View, resolved: ResolvedView, collection: Collection | None, specs: list[StageSpec]
    ) -> None:
        self.view = view
        self.resolved = resolved
        self.collection = collection
        self.specs = specs

    def plan(self, op: OperationContext, hint: Value = MISSING, allow_disk_use: bool | None = None) -> AggregationPlan:
        return make_plan(op, self.collection, lambda: self._plan(op, hint, allow_disk_use))

    def _plan(self, op: OperationContext, hint: Value, allow_disk_use: bool | None) -> AggregationPlan:
        collation = view_collation(self.view)
        return plan_aggregation(op, self.collection, self.specs, hint, allow_disk_use, collation=collation)


def query_view(
    op: OperationContext, view: View, stages: list[Value], let: dict[str, Value], collation: bytes = EMPTY_DOCUMENT
) -> ViewQuery:
    """A pipeline on a view. let: the command's variables.

    OptionNotSupportedOnView (167) for a collation that is not the view's; 40602 for a stage that must be the first of a
    pipeline, if the view has stages.
    """
    rules = view_collation(view)
    if not is_empty(collation) and not same_collation(parse_collation(collation), rules):
        raise CommandError(
            ErrorCode.OptionNotSupportedOnView, f"Cannot override a view's default collation: {view.namespace}"
        )
    resolved = resolve_view(op.catalog, view)
    if stages and isinstance(stages[0], bytes) and traits_of(first_field_name(stages[0])).hybrid:
        # Its inputs read the view, each for itself.
        context = ParseContext(op.now_ms, let, view.namespace, collation=rules, cluster_time=op.cluster_time)
        context.open_scripts = op.open_scripts
        context.features = op.service.features
        return ViewQuery(view, resolved, None, optimise(parse_pipeline(stages, context), context))
    context = ParseContext(op.now_ms, let, resolved.namespace, collation=rules, cluster_time=op.cluster_time)
    context.open_scripts = op.open_scripts
    context.features = op.service.features
    specs = parse_pipeline(resolved.pipeline + stages, context)
    collection = collection_below(op.catalog, resolved)
    return ViewQuery(view, resolved, collection, optimise(specs, context))


def find_stages(request: FindRequest) -> list[Value]:
    """A find as a pipeline. InvalidPipelineOperator (168) for options that a pipeline cannot express."""
    for option, given in (
        ("min", not is_empty(request.min)),
        ("max", not is_empty(request.max)),
        ("returnKey", request.return_key),
        ("showRecordId", request.show_record_id),
        ("tailable", request.tailable),
        ("awaitData", request.await_data),
        ("oplogReplay", request.oplog_replay),
        ("noCursorTimeout", request.no_cursor_timeout),
        ("allowPartialResults", request.allow_partial_results),
    ):
        if given:
            raise CommandError(ErrorCode.InvalidPipelineOperator, f"Option {option} not supported in aggregation.")
    stages: list[Value] = []
    if not is_empty(request.filter):
        stages.append(encode({"$match": request.filter}))
    if not is_empty(request.sort) and find_field_at(request.sort, 0, b"$natural")[0] == 0:
        stages.append(encode({"$sort": request.sort}))
    if request.skip:
        stages.append(encode({"$skip": Int64(request.skip)}))
    limit = request.limit
    if request.single_batch and request.batch_size > 0:
        limit = min(limit, request.batch_size) if limit else request.batch_size
    if limit:
        stages.append(encode({"$limit": Int64(limit)}))
    if not is_empty(request.projection):
        stages.append(encode({"$project": request.projection}))
    return stages


def find_on_view(op: OperationContext, view: View, request: FindRequest) -> Reply:
    query, hint = op.compute(lambda: parse_find(op, view, request))
    plan = query.plan(op, hint, request.allow_disk_use)
    cursor = _cursor(op, view, plan, request.allow_disk_use)
    return first_reply(op, cursor, request.batch_size, keep=not request.single_batch)


def parse_find(op: OperationContext, view: View, request: FindRequest) -> tuple[ViewQuery, Value]:
    """The query of a find on a view, and its hint; a sort by `$natural` counts as a hint."""
    stages = find_stages(request)
    let = context_of(op, view.name, request.let).let
    hint = request.hint
    natural = natural_order(request.sort)
    if natural:
        hint = encode({"$natural": natural})
    return query_view(op, view, stages, let, request.collation), hint


def aggregate_on_view(
    op: OperationContext, view: View, request: AggregateRequest, let: dict[str, Value], batch_size: int
) -> Reply:
    query = op.compute(lambda: query_view(op, view, request.pipeline, let, request.collation))
    plan = query.plan(op, request.hint, request.allow_disk_use)
    return first_reply(op, _cursor(op, view, plan, request.allow_disk_use), batch_size)


def _cursor(op: OperationContext, view: View, plan: AggregationPlan, allow_disk_use: bool | None) -> ClientCursor:
    return ClientCursor(view.namespace, plan.open(op, allow_disk_use), op.session_key, op.service.clock.monotonic_s())


def count_stages(request: CountRequest) -> list[Value]:
    """A count as a pipeline; as in mongod, `limit: 0` is refused on views (15958)."""
    stages: list[Value] = []
    if not is_empty(request.query):
        stages.append(encode({"$match": request.query}))
    if request.skip:
        stages.append(encode({"$skip": Int64(request.skip)}))
    if request.limit is not None:
        stages.append(encode({"$limit": Int64(abs(request.limit))}))
    stages.append(encode({"$count": "count"}))
    return stages


def count_on_view(op: OperationContext, view: View, request: CountRequest) -> Reply:
    query = op.compute(lambda: query_view(op, view, count_stages(request), {}, request.collation))
    n = 0
    source = _open(op, query.plan(op, request.hint))
    while (batch := source.next_batch()) is not None:
        for document in batch:
            counted = fields_by_name(document)["count"]
            n = counted if isinstance(counted, int) else 0
        op.check_interrupt()
        op.give_way()
    return {"n": n if n < 2**31 else Int64(n)}


def distinct_stages(request: DistinctRequest) -> list[Value]:
    return [] if is_empty(request.query) else [encode({"$match": request.query})]


def distinct_documents(op: OperationContext, view: View, request: DistinctRequest) -> DocumentSource:
    """The documents of a view from which `distinct` collects values."""
    query = op.compute(lambda: query_view(op, view, distinct_stages(request), {}, request.collation))
    return _open(op, query.plan(op, request.hint))


def _open(op: OperationContext, plan: AggregationPlan) -> DocumentSource:
    return plan.open_source(Pull(op, False, False), True)
