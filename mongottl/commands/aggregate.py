"""aggregate.

Source: MongoDB's command reference.
"""

from typing import Annotated, NamedTuple

from mongottl.catalog.namespace import check_collection_name, check_database_name
from mongottl.catalog.view import View
from mongottl.commands.collection_uuid import check_uuid_of
from mongottl.commands.listing import read_batch_size
from mongottl.commands.query_context import context_of
from mongottl.commands.query_shape import check_settings
from mongottl.commands.registry import ALL_LEVELS, Reply, command
from mongottl.commands.request import (
    ANY,
    BOOL_FIELD,
    DOCUMENT_FIELD,
    GIVEN_BOOL,
    GIVEN_DOCUMENT,
    HINT,
    ONE,
    PIPELINE,
    Field,
)
from mongottl.commands.view_reads import (
    aggregate_on_view,
)
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.numbers import to_double
from mongottl.document.types import MISSING, Value, is_number, type_code_of, type_name
from mongottl.document.walk import first_field_name, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.aggregation import plan_aggregation
from mongottl.exec.cursors import ClientCursor
from mongottl.exec.operation import OperationContext
from mongottl.exec.plan_cache import QueryShape
from mongottl.exec.reading import first_reply
from mongottl.exec.steps import Steps
from mongottl.exec.views import begins_with_coll_stats
from mongottl.query.pipeline import optimise, parse_pipeline, traits_of


class AggregateRequest(NamedTuple):
    collection: Annotated[Value, Field("aggregate", ONE)]
    pipeline: Annotated[list[Value], Field("pipeline", PIPELINE)]
    cursor: Annotated[bytes | None, Field("cursor", GIVEN_DOCUMENT)] = None
    explain: Annotated[bool, Field("explain", GIVEN_BOOL)] = False
    allow_disk_use: Annotated[bool | None, Field("allowDiskUse", GIVEN_BOOL)] = None
    hint: Annotated[Value, Field("hint", HINT)] = MISSING
    let: Annotated[bytes, Field("let", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    collation: Annotated[bytes, Field("collation", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    bypass: Annotated[bool, Field("bypassDocumentValidation", BOOL_FIELD)] = False
    collection_uuid: Annotated[Value, Field("collectionUUID", ANY)] = None


def writes_somewhere(body: bytes) -> bool:
    """Whether the body of an `aggregate` has a pipeline that ends in `$out` or `$merge`, and is not only explained."""
    stages = get_value(body, "pipeline")
    last = stages[-1] if isinstance(stages, list) and stages else None
    if not isinstance(last, bytes) or get_value(body, "explain") is True:
        return False
    return traits_of(first_field_name(last)).writes


@command(
    "aggregate",
    AggregateRequest,
    help="Runs an aggregation pipeline.",
    writes_if=writes_somewhere,
    read_levels=ALL_LEVELS,
    checks_read_level=True,
    may_be_abandoned=True,
    stable=True,
    raw_data=True,
    latency="reads",
)
def aggregate(op: OperationContext, request: AggregateRequest) -> Steps[Reply]:
    """A cursor over the results of the pipeline. FailedToParse (9) without `cursor`, as mongod."""
    check_database_name(op.database)
    batch_size = -1 if request.cursor is None else read_batch_size("cursor", request.cursor, -1)
    op.bypass_validation = request.bypass
    if request.explain and op.has_write_concern:
        raise CommandError(ErrorCode.FailedToParse, "Aggregation explain does not support the 'writeConcern' option")
    if request.cursor is None and not request.explain:
        raise CommandError(
            ErrorCode.FailedToParse, "The 'cursor' option is required, except for aggregate with the explain argument"
        )
    name = collection_of(op, request.collection)
    context = context_of(op, name, request.let, request.collation)
    check_uuid_of(op, "aggregate", request.collection_uuid, name)
    collection = op.catalog.find(op.database, name)
    if isinstance(collection, View):
        if not begins_with_coll_stats(request.pipeline):
            if request.explain:
                from mongottl.commands.explain import explain_on_view

                return (yield from explain_on_view(op, collection, request, "queryPlanner", {"aggregate": name}))
            return (yield from aggregate_on_view(op, collection, request, context.let, batch_size))
        collection = None
    specs = optimise(parse_pipeline(request.pipeline, context), context)
    if request.explain:
        from mongottl.commands.explain import explain_aggregate

        return (
            yield from explain_aggregate(
                op, collection, specs, request, "queryPlanner", {"aggregate": name}, context.collation
            )
        )
    shape = QueryShape(collation=request.collation)
    shape.allowed = check_settings(op, "aggregate", request, name)
    plan = plan_aggregation(
        op, collection, specs, request.hint, request.allow_disk_use, shape, collation=context.collation
    )
    cursor = ClientCursor(
        f"{op.database}.{name}",
        plan.open(op, request.allow_disk_use),
        op.session_key,
        op.service.clock.monotonic_s(),
    )
    return (yield from first_reply(op, cursor, batch_size))


def collection_of(op: OperationContext, value: Value) -> str:
    """The collection that `aggregate` names; `1` stands for none, and only some stages go with it.

    BadValue (2) for other numbers, InvalidNamespace (73) for other types.
    """
    if isinstance(value, str):
        check_collection_name(op.database, value)
        return value
    if not is_number(value):
        raise CommandError(
            ErrorCode.InvalidNamespace, f"collection name has invalid type {type_name(type_code_of(value))}"
        )
    if to_double(value) != 1.0:
        raise CommandError(
            ErrorCode.BadValue, "Invalid command format: the 'aggregate' field must specify a collection name or 1"
        )
    return "$cmd.aggregate"
