"""aggregate.

Source: MongoDB's command reference.
"""

from typing import Final

from mongottl.catalog.view import View
from mongottl.commands.access import collection_needs, needing
from mongottl.commands.collection_uuid import check_uuid_of
from mongottl.commands.crud.explain_pipeline import explain_aggregate, explain_on_view
from mongottl.commands.crud.query_shape import check_settings
from mongottl.commands.crud.read_requests import AggregateRequest, collection_of
from mongottl.commands.crud.view_reads import (
    aggregate_on_view,
)
from mongottl.commands.dialect_hooks import hooks_of
from mongottl.commands.listing import read_batch_size
from mongottl.commands.pipeline_access import pipeline_needs
from mongottl.commands.query_context import context_of
from mongottl.commands.registry import ALL_LEVELS, Reply, command
from mongottl.document.build import encode
from mongottl.document.types import Value
from mongottl.document.walk import first_field_name, get_value, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.write_options import write_options
from mongottl.exec.plan.plan_cache import QueryShape
from mongottl.exec.plan.planner import make_plan
from mongottl.exec.results.aggregation import plan_aggregation
from mongottl.exec.results.cursors import ClientCursor
from mongottl.exec.results.reading import first_reply
from mongottl.exec.results.views import begins_with_coll_stats
from mongottl.query.pipeline import optimise, parse_pipeline, traits_of
from mongottl.security.privileges import Need

_SIMPLE: Final = encode({"locale": "simple"})


def writes_somewhere(body: bytes) -> bool:
    """Whether an `aggregate` with this body has a pipeline with `$out` or `$merge`, and no `explain: true`."""
    stages = get_value(body, "pipeline")
    last = stages[-1] if isinstance(stages, list) and stages else None
    if not isinstance(last, bytes) or get_value(body, "explain") is True:
        return False
    return traits_of(first_field_name(last)).writes


def begins_with_change_stream(pipeline: list[Value]) -> bool:
    return bool(pipeline) and isinstance(pipeline[0], bytes) and first_field_name(pipeline[0]) == "$changeStream"


def aggregate_needs(op: OperationContext, request: AggregateRequest) -> list[Need]:
    needs = pipeline_needs(op.database, request.collection, request.pipeline)
    if request.bypass:
        needs += collection_needs(op.database, collection_of(op, request.collection), "bypassDocumentValidation")
    return needs


@command(
    "aggregate",
    AggregateRequest,
    access=needing(aggregate_needs),
    help="Runs an aggregation pipeline.",
    writes_if=writes_somewhere,
    read_levels=ALL_LEVELS,
    may_be_abandoned=True,
    stable=True,
    raw_data=True,
    latency="reads",
    in_transaction=True,
)
def aggregate(op: OperationContext, request: AggregateRequest) -> Reply:
    """A cursor over the results of the pipeline. FailedToParse (9) without `cursor`."""
    op.check_database()
    batch_size = -1 if request.cursor is None else read_batch_size("cursor", request.cursor, -1)
    op.write_options = write_options(request.bypass)
    if request.explain and op.command.has_write_concern:
        raise CommandError(ErrorCode.FailedToParse, "Aggregation explain does not support the 'writeConcern' option")
    if request.cursor is None and not request.explain:
        raise CommandError(
            ErrorCode.FailedToParse, "The 'cursor' option is required, except for aggregate with the explain argument"
        )
    name = collection_of(op, request.collection)
    # Change streams compare as the simple collation does unless one is given, whatever that of the collection.
    watches = begins_with_change_stream(request.pipeline)
    collation = _SIMPLE if watches and is_empty(request.collation) else request.collation
    context = op.compute(lambda: context_of(op, name, request.let, collation))
    check_uuid_of(op, "aggregate", request.collection_uuid, name)
    collection = op.catalog.find(op.database, name)
    if isinstance(collection, View):
        if watches:
            op.catalog.lookup(op.database, name)  # refuses views
        if not begins_with_coll_stats(request.pipeline):
            if request.explain:
                return explain_on_view(op, collection, request, "queryPlanner", {"aggregate": name})
            return aggregate_on_view(op, collection, request, context.let, batch_size)
        collection = None
    pipeline = request.pipeline
    op.service.dialect.check_pipeline(pipeline)
    hooks = hooks_of(op.service)
    if watches:
        pipeline = hooks.stream_pipeline(op, request.collection, name, collection, pipeline)
    specs = op.compute(lambda: optimise(parse_pipeline(pipeline, context), context))
    if specs and specs[0].name == "$documents" and isinstance(request.collection, str):
        raise CommandError(ErrorCode.InvalidNamespace, "$documents is only valid with {aggregate: 1}")
    if watches and not request.explain:
        op.reading = op.reading.of_changes()
        if collection is not None and collection.time_series is not None:
            raise CommandError(
                ErrorCode.CommandNotSupportedOnView, f"Namespace {collection.namespace} is a timeseries collection"
            )
        cursor = hooks.open_stream(op, request.collection, name, collection, specs)
        return first_reply(op, cursor, batch_size)
    if request.explain:
        return explain_aggregate(op, collection, specs, request, "queryPlanner", {"aggregate": name}, context.collation)
    shape = QueryShape(collation=request.collation)
    shape.allowed = check_settings(op, "aggregate", request, name)
    plan = make_plan(
        op,
        collection,
        lambda: plan_aggregation(
            op, collection, specs, request.hint, request.allow_disk_use, shape, collation=context.collation
        ),
    )
    cursor = ClientCursor(
        f"{op.database}.{name}",
        plan.open(op, request.allow_disk_use),
        op.session_key,
        op.service.clock.monotonic_s(),
    )
    return first_reply(op, cursor, batch_size)
