"""explain: what find, count, distinct, aggregate, update, delete and findAndModify would do.

    {explain: {find: …}, verbosity: "queryPlanner" | "executionStats" | "allPlansExecution"}

Nothing is written: for update and delete the plan is run for its counters, the change is not made.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from mongottl.catalog.collection import Collection
from mongottl.commands import modify, reads, writes
from mongottl.commands.reads import context_of, natural_order
from mongottl.commands.registry import COMMANDS, Reply, command
from mongottl.commands.request import DOCUMENT_FIELD, TEXT, Field, GenericArguments
from mongottl.document.types import MISSING, Value
from mongottl.document.walk import first_field_name, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.aggregation import plan_aggregation
from mongottl.exec.context import OperationContext, Steps
from mongottl.exec.explain import (
    Wrapper,
    count_wrapper,
    delete_wrapper,
    explain_plan,
    projection_wrapper,
    update_wrapper,
)
from mongottl.exec.planner import plan_query
from mongottl.query.match import parse_match
from mongottl.query.pipeline import StageSpec
from mongottl.query.projection import parse_projection
from mongottl.query.sort import parse_sort

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
    let: bytes = b"\x05\0\0\0\0",
    sort: bytes = b"\x05\0\0\0\0",
    projection: bytes = b"\x05\0\0\0\0",
    skip: int = 0,
    limit: int = 0,
    hint: Value = MISSING,
) -> Steps[Reply]:
    context = context_of(op, name, let)
    match = parse_match(filter, context)
    natural = natural_order(sort)
    pattern = None if natural or is_empty(sort) else parse_sort(sort)
    if not is_empty(projection):
        parsed = parse_projection(projection, context, for_find=True)
        wrappers = (projection_wrapper(parsed.is_simple, projection), *wrappers)
    plan = plan_query(
        op,
        op.catalog.lookup(op.database, name),
        match,
        sort=pattern,
        natural=natural,
        skip=skip,
        limit=limit,
        hint=hint,
    )
    reply = yield from explain_plan(op, plan, f"{op.database}.{name}", match.describe(), verbosity, explained, wrappers)
    return _with_server(op, reply)


def _with_server(op: OperationContext, reply: dict[str, Value]) -> dict[str, Value]:
    host, _, port = op.client.local.rpartition(":")
    reply["serverInfo"] = {
        "host": host,
        "port": int(port) if port.isdigit() else 0,
        "version": f"{op.service.config.announced_version()}.0",
        "gitVersion": "mongottl",
    }
    return reply


def _explain_find(op: OperationContext, request: reads.FindRequest, verbosity: str, explained: bytes) -> Steps[Reply]:
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
        )
    )


def _explain_count(op: OperationContext, request: reads.CountRequest, verbosity: str, explained: bytes) -> Steps[Reply]:
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
            wrappers=(count_wrapper(),),
        )
    )


def _explain_distinct(
    op: OperationContext, request: reads.DistinctRequest, verbosity: str, explained: bytes
) -> Steps[Reply]:
    return (yield from _explain(op, request.collection, request.query, explained, verbosity, hint=request.hint))


def _explain_aggregate_command(
    op: OperationContext, request: "AggregateRequest", verbosity: str, explained: bytes
) -> Steps[Reply]:
    from mongottl.query.pipeline import optimise, parse_pipeline

    name = reads.collection_of(op, request.collection)
    context = context_of(op, name, request.let)
    specs = optimise(parse_pipeline(request.pipeline, context), context)
    return (
        yield from explain_aggregate(op, op.catalog.lookup(op.database, name), specs, request, verbosity, explained)
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
    plan = plan_aggregation(op, collection, specs, request.hint)
    name = reads.collection_of(op, request.collection)
    cursor = yield from explain_plan(
        op, plan.plan, f"{op.database}.{name}", plan.match.describe(), verbosity, explained
    )
    if not plan.rest:
        return _with_server(op, cursor)
    stages: list[Value] = [{"$cursor": cursor}]
    for spec in plan.rest:
        stages.append(spec.describe())
    return _with_server(op, {"explainVersion": "1", "stages": stages})


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
