"""The shapes of find, distinct, aggregate and count requests, as lists of parts.

`exec.plan.shape.query_shape_hash` turns them into the `queryShapeHash` of explain and query settings.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from mongottl.commands.crud.read_requests import AggregateRequest, CountRequest, DistinctRequest, FindRequest
from mongottl.document.build import EMPTY_DOCUMENT, encode, encode_fields
from mongottl.document.types import MISSING, Value
from mongottl.document.walk import is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.described_shape import Shaper
from mongottl.exec.plan.shape import expression_shape, filter_shape, order_shape, query_shape_hash, stage_shape

# The collection name of an aggregation without a collection (`{aggregate: 1}`).
NO_COLLECTION: Final = "$cmd.aggregate"


def find_shape(database: str, request: FindRequest) -> list[str]:
    parts = [
        f"{database}.{request.collection}",
        "find",
        filter_shape(request.filter),
        order_shape(request.sort),
        order_shape(request.projection),
    ]
    for name, given in (
        ("min", not is_empty(request.min)),
        ("max", not is_empty(request.max)),
        ("skip", request.skip),
        ("limit", request.limit),
        ("singleBatch", request.single_batch),
        ("returnKey", request.return_key),
        ("showRecordId", request.show_record_id),
        ("tailable", request.tailable),
        ("awaitData", request.await_data),
    ):
        if given:
            parts.append(name)
    return [*parts, *_options(request.hint, request.let, request.collation)]


def count_shape(database: str, request: CountRequest) -> list[str]:
    parts = [f"{database}.{request.collection}", "count", filter_shape(request.query)]
    if request.skip:
        parts.append("skip")
    if request.limit:
        parts.append("limit")
    return [*parts, *_options(request.hint, b"", request.collation)]


def distinct_shape(database: str, request: DistinctRequest) -> list[str]:
    parts = [f"{database}.{request.collection}", f"distinct:{request.key}", filter_shape(request.query)]
    return [*parts, *_options(request.hint, b"", request.collation)]


def aggregate_shape(database: str, request: AggregateRequest) -> list[str]:
    name = request.collection if isinstance(request.collection, str) else NO_COLLECTION
    options = _options(request.hint, request.let, request.collation)
    return [*pipeline_shape(f"{database}.{name}", request.pipeline), *options]


def pipeline_shape(namespace: str, pipeline: list[Value]) -> list[str]:
    return [namespace, "aggregate", *[stage_shape(stage) for stage in pipeline if isinstance(stage, bytes)]]


def _options(hint: Value, let: bytes, collation: bytes) -> list[str]:
    parts: list[str] = []
    if hint is not MISSING:
        parts.append(f"hint:{order_shape(hint) if isinstance(hint, bytes) else hint}")
    if let and not is_empty(let):
        parts.append(f"let:{expression_shape(let)}")
    if not is_empty(collation):
        parts.append(f"collation:{collation.hex()}")
    return parts


# What is in the shape of a command as a document.
_SHAPED: Final = frozenset(
    """
    allowDiskUse awaitData collation hint key let limit max min pipeline projection query returnKey showRecordId
    singleBatch skip sort tailable
    """.split()
)


def described_shape(database: str, name: str, given: list[tuple[str, Value]]) -> bytes:
    """The shape of a command as `$queryStats` and `$querySettings` show it: `{cmdNs, command, filter, …}`.

    given: the fields of the command, its collection first.
    """
    collection = given[0][1]
    namespace = encode({"db": database, "coll": collection if isinstance(collection, str) else NO_COLLECTION})
    shape: list[tuple[str, Value]] = [("cmdNs", namespace), ("command", name)]
    if name == "find":
        filters = [value for field, value in given if field == "filter" and isinstance(value, bytes)]
        shape.append(("filter", filters[0] if filters else EMPTY_DOCUMENT))
    shape.extend(field for field in given[1:] if field[0] in _SHAPED)
    return Shaper().command(encode_fields(shape))


# The commands that can have query settings.
QUERY_SHAPES: Final[dict[str, Callable[[str, Any], list[str]]]] = {
    "find": find_shape,
    "distinct": distinct_shape,
    "aggregate": aggregate_shape,
}


def check_settings(op: OperationContext, command: str, request: Any, collection: str) -> list[Value] | None:
    """The indexes that query settings allow this query, None for all. QueryRejectedBySettings (411)."""
    if not op.service.settings.query_settings:
        return None
    shape_hash = op.compute(lambda: query_shape_hash(QUERY_SHAPES[command](op.database, request)))
    settings = op.service.settings.query_settings.get(shape_hash)
    if settings is None:
        return None
    if settings.reject:
        raise CommandError(ErrorCode.QueryRejectedBySettings, "Query rejected by admin query settings")
    return op.compute(partial(settings.allowed_indexes, op.database, collection))
