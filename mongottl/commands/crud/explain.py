"""explain: the plans of find, count, distinct, aggregate, update, delete and findAndModify.

    {explain: {find: …}, verbosity: "queryPlanner" | "executionStats" | "allPlansExecution"}

Nothing is written: for update and delete the plan is executed for its statistics, without changing documents.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final, NamedTuple

from mongottl.catalog.collection import Collection
from mongottl.catalog.view import View
from mongottl.commands.access import needing
from mongottl.commands.crud import delete, update, view_reads
from mongottl.commands.crud import find_and_modify as modify
from mongottl.commands.crud.explain_pipeline import (
    add_plan_hashes,
    explain_aggregate_command,
    explain_map_reduce,
    explain_view_query,
    with_server,
)
from mongottl.commands.crud.query_shape import (
    check_settings,
    count_shape,
    distinct_shape,
    find_shape,
)
from mongottl.commands.crud.read_requests import CountRequest, DistinctRequest, FindRequest
from mongottl.commands.crud.write_requests import DeleteRequest, UpdateRequest, UpdateStatement
from mongottl.commands.dialect_hooks import PlannedFind, hooks_of
from mongottl.commands.query_context import checked_metadata, context_of, natural_order
from mongottl.commands.registry import ALL_LEVELS, COMMANDS, Reply, command
from mongottl.commands.request import ANY, DOCUMENT_FIELD, Field, GenericArguments
from mongottl.commands.time_series import check_raw_data
from mongottl.document.bson_field import checked_word
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.numbers import saturated_sum
from mongottl.document.types import MISSING, Value
from mongottl.document.walk import first_field_name, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.distinct_path import DistinctQuery
from mongottl.exec.plan.express import ID_HACK, find_id_plan
from mongottl.exec.plan.plan_cache import QueryShape
from mongottl.exec.plan.planner import QueryPlan, make_plan, plan_query
from mongottl.exec.plan.shape import query_shape_hash
from mongottl.exec.results.explain import (
    Wrapper,
    count_wrapper,
    covered_wrapper,
    delete_wrapper,
    explain_plan,
    projection_wrapper,
    return_key_wrapper,
    update_wrapper,
)
from mongottl.query.context import ParseContext
from mongottl.query.match import MatchExpression, parse_match
from mongottl.query.projection import Projection, parse_projection
from mongottl.query.projection.plan import RootProjection
from mongottl.query.sort import parse_sort
from mongottl.security.privileges import Need

_ALL_PLANS: Final = "allPlansExecution"
_VERBOSITIES: Final = ("queryPlanner", "executionStats", _ALL_PLANS)


class ExplainRequest(NamedTuple):
    explained: Annotated[bytes, Field("explain", DOCUMENT_FIELD)]
    verbosity: Annotated[Value, Field("verbosity", ANY)] = _ALL_PLANS


def _explain_needs(op: OperationContext, request: ExplainRequest) -> list[Need]:
    """What the explained command needs."""
    spec = COMMANDS.get(first_field_name(request.explained))
    if spec is None:
        return []
    inner = spec.request._make(spec.parser.parse(request.explained, [], GenericArguments()))
    return spec.access.needs(op, inner)


@command(
    "explain",
    ExplainRequest,
    access=needing(_explain_needs),
    help="Describes how a command would be executed.",
    read_levels=ALL_LEVELS,
    may_be_abandoned=True,
    stable=True,
)
def explain(op: OperationContext, request: ExplainRequest) -> Reply:
    # It changes nothing, and what it describes may be as long as the command: others run wherever it computes.
    return op.compute(partial(_explained, op, request))


def _explained(op: OperationContext, request: ExplainRequest) -> Reply:
    verbosity = _verbosity(op, request.verbosity)
    name = first_field_name(request.explained)
    spec = COMMANDS.get(name)
    if spec is None or (spec.name not in _PIPELINES and spec.name not in _QUERIES):
        if spec is None:
            raise CommandError(ErrorCode.CommandNotFound, f"Explain failed due to unknown command: {name}")
        raise CommandError(ErrorCode.IllegalOperation, f"Cannot explain cmd: {name}")
    generic = GenericArguments()
    inner = spec.request._make(spec.parser.parse(request.explained, [], generic))
    if op.service.features is not None:
        op.service.features.check_arguments(spec.name, request.explained, [])
    if generic.raw_data and isinstance(inner.collection, str):
        check_raw_data(op, op.database, inner.collection)
    if spec.name in _PIPELINES:
        explain_pipeline = _PIPELINES[spec.name]
        return explain_pipeline(op, inner, verbosity, request.explained)
    if spec.name in _VIEW_QUERIES:
        view = op.catalog.find(op.database, inner.collection)
        if isinstance(view, View):
            parse = _VIEW_QUERIES[spec.name]
            on_view, stages, hint = op.compute(lambda: parse(op, view, inner))
            return explain_view_query(op, on_view, stages, hint, verbosity, request.explained)
    describe = _QUERIES[spec.name]
    query = op.compute(lambda: describe(op, inner))
    if spec.name == "find":
        plan = partial(_planned_find, op, query)
        reply = hooks_of(op.service).explain_find(op, query.collection, query.filter, request.explained, plan)
        if reply is not None:
            return reply
    return _explain(op, query, verbosity, request.explained)


def _verbosity(op: OperationContext, given: Value) -> str:
    """The checked verbosity. TypeMismatch (14), BadValue (2); but Cosmos DB takes any value of any type, such as the
    `{executionStatistics: true}` of Microsoft's page (MicrosoftDocs/azure-docs#84043)."""
    if not op.service.dialect.describes_as_mongodb() and given not in _VERBOSITIES:
        return _ALL_PLANS
    return checked_word("explain.verbosity", given, _VERBOSITIES)


class Explained(NamedTuple):
    """The query of an explained command, with all that its plan depends on.

    id_hack: whether a plan by `_id` is shown as IDHACK in any case (`express`). wrappers: the stages above the plan.
    counted: whether only the number of documents is needed. wanted: how many of them, 0 for all.
    shape: the parts of `queryShapeHash`; None for writes. allowed: the indexes that query settings allow, None for all.
    """

    collection: str
    filter: bytes
    let: bytes = EMPTY_DOCUMENT
    sort: bytes = EMPTY_DOCUMENT
    projection: bytes = EMPTY_DOCUMENT
    skip: int = 0
    limit: int = 0
    hint: Value = MISSING
    collation: bytes = EMPTY_DOCUMENT
    min_key: bytes = EMPTY_DOCUMENT
    max_key: bytes = EMPTY_DOCUMENT
    return_key: bool = False
    batch_size: int = -1
    show_record_id: bool = False
    id_hack: bool = False
    distinct: str | None = None
    counted: bool = False
    wanted: int = 0
    wrappers: tuple[Wrapper, ...] = ()
    shape: list[str] | None = None
    allowed: list[Value] | None = None
    allow_disk_use: bool | None = None


class Planned(NamedTuple):
    """The plan of an explained query, its parsed filter and what that looks like."""

    plan: QueryPlan
    match: MatchExpression
    described: Value
    collection: Collection | None
    context: ParseContext
    shape: QueryShape
    projection: Projection | None


def _planned_find(op: OperationContext, query: Explained) -> PlannedFind:
    found = planned(op, query)
    return PlannedFind(found.plan, found.match, found.described, found.collection)


def planned(op: OperationContext, query: Explained) -> Planned:
    """Plans an explained query, with the errors of the query itself."""
    context = context_of(op, query.collection, query.let, query.collation)
    match = op.compute(lambda: parse_match(query.filter, context, near=True))
    natural = natural_order(query.sort)
    pattern = None if natural or is_empty(query.sort) else parse_sort(query.sort, context.collation)
    projection: Projection | None = None
    if not is_empty(query.projection):
        projection = op.compute(lambda: parse_projection(query.projection, context, for_find=True, filter=query.filter))
    collection = op.catalog.lookup(op.database, query.collection, time_series=True)
    shape = QueryShape(query.sort, query.projection, query.collation)
    shape.allowed = query.allowed
    metadata = checked_metadata(context, pattern)
    if pattern is not None and op.service.dialect.sorts_need_index:
        op.service.dialect.check_sort(collection, pattern, match)
    plan = make_plan(
        op,
        collection,
        lambda: plan_query(
            op,
            collection,
            match,
            sort=pattern,
            natural=natural,
            skip=query.skip,
            limit=query.limit,
            hint=query.hint,
            wanted=query.wanted,
            shape=shape,
            remember=False,
            min_key=query.min_key,
            max_key=query.max_key,
            collation=context.collation,
            metadata=metadata,
            allow_disk_use=query.allow_disk_use,
        ),
    )
    described = op.compute(match.describe)
    return Planned(plan, match, described, collection, context, shape, projection)


def _explain(op: OperationContext, query: Explained, verbosity: str, explained: bytes) -> Reply:
    plan, _, described, collection, context, shape, projection = planned(op, query)
    if query.id_hack:
        plan.show_id_plan(ID_HACK)
    else:
        plan.show_id_plan(find_id_plan(projection, query.batch_size, query.return_key, query.show_record_id))
    if query.counted:
        plan.count_only()
    if query.distinct is not None:
        plan.skip_repeated(
            DistinctQuery(query.distinct, [query.distinct], context.collation), query.hint is not MISSING
        )
    wrappers = query.wrappers
    if query.distinct is not None and plan.covered:
        wrappers = (covered_wrapper([query.distinct]),)
    elif query.return_key:
        wrappers = (return_key_wrapper(), *wrappers)
    elif projection is not None:
        if not query.wrappers:
            plan.cover(projection)
        # findAndModify projects what its write returns.
        wrappers = (
            *wrappers,
            projection_wrapper(isinstance(projection, RootProjection), plan.covered, query.projection),
        )
    namespace = f"{op.database}.{query.collection}"
    reply = explain_plan(op, plan, namespace, described, verbosity, explained, wrappers)
    parts = op.compute(lambda: shape.parts(described))
    add_plan_hashes(reply, collection, parts, context.collation)
    if query.shape is not None:
        query_shape = query.shape
        reply["queryShapeHash"] = op.compute(lambda: query_shape_hash(query_shape))
    return with_server(op, reply)


def _find_query(op: OperationContext, request: FindRequest) -> Explained:
    return Explained(
        request.collection,
        request.filter,
        let=request.let,
        sort=request.sort,
        projection=request.projection,
        skip=request.skip,
        limit=request.limit,
        hint=request.hint,
        collation=request.collation,
        min_key=request.min,
        max_key=request.max,
        return_key=request.return_key,
        batch_size=request.batch_size,
        show_record_id=request.show_record_id,
        shape=op.compute(lambda: find_shape(op.database, request)),
        allowed=check_settings(op, "find", request, request.collection),
        allow_disk_use=request.allow_disk_use,
    )


def _count_query(op: OperationContext, request: CountRequest) -> Explained:
    limit = abs(request.limit or 0)
    return Explained(
        request.collection,
        request.query,
        hint=request.hint,
        collation=request.collation,
        id_hack=True,
        counted=True,
        wanted=saturated_sum(request.skip, limit) if limit else 0,
        wrappers=(count_wrapper(request.skip, limit),),
        shape=op.compute(lambda: count_shape(op.database, request)),
    )


def _distinct_query(op: OperationContext, request: DistinctRequest) -> Explained:
    return Explained(
        request.collection,
        request.query,
        hint=request.hint,
        collation=request.collation,
        distinct=request.key,
        shape=op.compute(lambda: distinct_shape(op.database, request)),
        allowed=check_settings(op, "distinct", request, request.collection),
    )


def _update_query(op: OperationContext, request: UpdateRequest) -> Explained:
    _check_single(request.statements)
    statement = UpdateStatement._make(update.UPDATE_STATEMENT.parse(request.statements[0], [], None))
    context = context_of(op, request.collection, request.let, statement.collation)
    update.parse_update_statement(op, request.collection, statement, context)  # for its errors
    return Explained(
        request.collection,
        statement.query,
        let=request.let,
        sort=statement.sort,
        limit=0 if statement.multi else 1,
        hint=statement.hint,
        collation=statement.collation,
        id_hack=statement.multi or statement.upsert or not is_empty(statement.sort),
        wrappers=(update_wrapper(statement.multi),),
    )


def _delete_query(op: OperationContext, request: DeleteRequest) -> Explained:
    _check_single(request.statements)
    statement = delete.parse_delete_statement(request.statements[0])
    return Explained(
        request.collection,
        statement.query,
        let=request.let,
        limit=1 if statement.limit == 1 else 0,
        hint=statement.hint,
        collation=statement.collation,
        id_hack=statement.limit != 1,
        wrappers=(delete_wrapper(statement.limit != 1),),
    )


def _check_single(statements: list[bytes]) -> None:
    if len(statements) != 1:
        raise CommandError(ErrorCode.InvalidLength, "explained write batches must be of size 1")


def _find_and_modify_query(op: OperationContext, request: modify.FindAndModifyRequest) -> Explained:
    modify.parse_change(request, context_of(op, request.collection, request.let, request.collation))
    return Explained(
        request.collection,
        request.query,
        let=request.let,
        sort=request.sort,
        projection=request.fields,
        limit=1,
        hint=request.hint,
        collation=request.collation,
        id_hack=request.upsert or not is_empty(request.sort) or not is_empty(request.fields),
        wrappers=(delete_wrapper(False, True) if request.remove else update_wrapper(False, True),),
    )


def _find_on_view(
    op: OperationContext, view: View, request: FindRequest
) -> tuple[view_reads.ViewQuery, list[Value], Value]:
    query, hint = view_reads.parse_find(op, view, request)
    return query, view_reads.find_stages(request), hint


def _count_on_view(
    op: OperationContext, view: View, request: CountRequest
) -> tuple[view_reads.ViewQuery, list[Value], Value]:
    stages = view_reads.count_stages(request)
    return view_reads.query_view(op, view, stages, {}, request.collation), stages, request.hint


def _distinct_on_view(
    op: OperationContext, view: View, request: DistinctRequest
) -> tuple[view_reads.ViewQuery, list[Value], Value]:
    stages = view_reads.distinct_stages(request)
    return view_reads.query_view(op, view, stages, {}, request.collation), stages, request.hint


# Commands that are pipelines.
_PIPELINES: Final[dict[str, Callable[[OperationContext, Any, str, bytes], Reply]]] = {
    "aggregate": explain_aggregate_command,
    "mapReduce": explain_map_reduce,
}

# For reads of views: the resolved query, its stages as written, and the hint.
_VIEW_QUERIES: Final[
    dict[str, Callable[[OperationContext, View, Any], tuple[view_reads.ViewQuery, list[Value], Value]]]
] = {"find": _find_on_view, "count": _count_on_view, "distinct": _distinct_on_view}

# The commands with one query, and how it is made of their requests; `aggregate` is explained as well.
_QUERIES: Final[dict[str, Callable[[OperationContext, Any], Explained]]] = {
    "find": _find_query,
    "count": _count_query,
    "distinct": _distinct_query,
    "update": _update_query,
    "delete": _delete_query,
    "findAndModify": _find_and_modify_query,
}
