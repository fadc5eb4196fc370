"""planCacheSetFilter, planCacheListFilters, planCacheClearFilters, planCacheClear.

They name a query shape by `query`, `sort`, `projection` and `collation`; unknown fields are ignored.
Source: MongoDB's command reference, "Query Plan Cache Commands".
"""

from functools import partial
from typing import Annotated, NamedTuple

from mongottl.catalog.collection import Collection
from mongottl.catalog.namespace import check_collection_name
from mongottl.catalog.plan_memory import IndexFilter
from mongottl.commands.access import on_collection
from mongottl.commands.query_context import context_of
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ANY, COLLECTION, Field
from mongottl.document.build import EMPTY_DOCUMENT, encode_array
from mongottl.document.interrupt import give_way
from mongottl.document.types import MISSING, Value
from mongottl.document.walk import is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.plan_cache import QueryShape
from mongottl.query.match import parse_match
from mongottl.query.projection import parse_projection
from mongottl.query.sort import parse_sort


class _Shape(NamedTuple):
    """A query shape as a command gives it: raw documents. text: the key of index filters and cached plans."""

    query: bytes
    sort: bytes
    projection: bytes
    collation: bytes
    text: str


class PlanCacheSetFilterRequest(NamedTuple):
    collection: Annotated[str, Field("planCacheSetFilter", COLLECTION)]
    query: Annotated[Value, Field("query", ANY)] = MISSING
    sort: Annotated[Value, Field("sort", ANY)] = MISSING
    projection: Annotated[Value, Field("projection", ANY)] = MISSING
    collation: Annotated[Value, Field("collation", ANY)] = MISSING
    indexes: Annotated[Value, Field("indexes", ANY)] = MISSING


class PlanCacheListFiltersRequest(NamedTuple):
    collection: Annotated[str, Field("planCacheListFilters", COLLECTION)]


class ClearRequest(NamedTuple):
    """The fields of planCacheClearFilters and planCacheClear; each names the first one after itself."""

    collection: Annotated[str, Field("", COLLECTION)]
    query: Annotated[Value, Field("query", ANY)] = MISSING
    sort: Annotated[Value, Field("sort", ANY)] = MISSING
    projection: Annotated[Value, Field("projection", ANY)] = MISSING
    collation: Annotated[Value, Field("collation", ANY)] = MISSING


class PlanCacheClearFiltersRequest(ClearRequest):
    __slots__ = ()
    collection: Annotated[str, Field("planCacheClearFilters", COLLECTION)]


class PlanCacheClearRequest(ClearRequest):
    __slots__ = ()
    collection: Annotated[str, Field("planCacheClear", COLLECTION)]


@command(
    "planCacheSetFilter",
    PlanCacheSetFilterRequest,
    access=on_collection("planCacheIndexFilter"),
    help="Sets an index filter: the indexes that a query shape may use.",
    strict=False,
)
def plan_cache_set_filter(op: OperationContext, request: PlanCacheSetFilterRequest) -> Reply:
    """Sets an index filter. BadValue (2) if the collection does not exist, or fields are missing or of a wrong type."""
    collection = _collection(op, request.collection)
    if collection is None:
        raise CommandError(ErrorCode.BadValue, "no such collection")
    indexes = request.indexes
    if indexes is MISSING:
        raise CommandError(ErrorCode.BadValue, "required field indexes missing")
    if not isinstance(indexes, list):
        raise CommandError(ErrorCode.BadValue, "required field indexes must be an array")
    if not indexes:
        raise CommandError(ErrorCode.BadValue, "required field indexes must contain at least one index")
    op.compute(partial(_check_indexes, indexes))
    shape = op.compute(partial(_shape, op, request))
    memory = collection.plan_memory
    memory.filters[shape.text] = IndexFilter(shape.query, shape.sort, shape.projection, shape.collation, indexes)
    memory.forget_plans(shape.text)
    op.service.settings.save()
    return {}


def _check_indexes(indexes: list[Value]) -> None:
    for index in indexes:
        give_way()
        if not isinstance(index, (bytes, str)) or (isinstance(index, bytes) and is_empty(index)) or index == "":
            raise CommandError(ErrorCode.BadValue, "each item in indexes must be an object or string, and not be empty")


@command(
    "planCacheListFilters",
    PlanCacheListFiltersRequest,
    access=on_collection("planCacheIndexFilter"),
    help="Lists a collection's index filters.",
    strict=False,
)
def plan_cache_list_filters(op: OperationContext, request: PlanCacheListFiltersRequest) -> Reply:
    collection = _collection(op, request.collection)
    filters: list[Value] = []
    for known in [] if collection is None else collection.plan_memory.filters.values():
        described: dict[str, Value] = {"query": known.query, "sort": known.sort, "projection": known.projection}
        if not is_empty(known.collation):
            described["collation"] = known.collation
        described["indexes"] = known.indexes
        filters.append(described)
    return {"filters": filters}


@command(
    "planCacheClearFilters",
    PlanCacheClearFiltersRequest,
    access=on_collection("planCacheIndexFilter"),
    help="Removes the index filter of a query shape, or all those of a collection.",
    strict=False,
)
def plan_cache_clear_filters(op: OperationContext, request: PlanCacheClearFiltersRequest) -> Reply:
    """Removes index filters; no error if there are none. BadValue (2) for an invalid shape."""
    collection = _collection(op, request.collection)
    if collection is None:
        return {}
    memory = collection.plan_memory
    shape = _optional_shape(op, request)
    if shape is None:
        memory.filters = {}
        memory.forget_plans(None)
    else:
        memory.filters.pop(shape.text, None)
        memory.forget_plans(shape.text)
    op.service.settings.save()
    return {}


@command(
    "planCacheClear",
    PlanCacheClearRequest,
    access=on_collection("planCacheWrite"),
    help="Removes the cached plans of a query shape or of a collection.",
    strict=False,
)
def plan_cache_clear(op: OperationContext, request: PlanCacheClearRequest) -> Reply:
    """Removes cached plans; no error if there are none. BadValue (2) for an invalid shape."""
    collection = _collection(op, request.collection)
    if collection is None:
        return {}
    shape = _optional_shape(op, request)
    collection.plan_memory.forget_plans(None if shape is None else shape.text)
    return {}


def _collection(op: OperationContext, name: str) -> Collection | None:
    op.check_database()
    check_collection_name(op.database, name)
    return op.catalog.lookup(op.database, name)


def _optional_shape(op: OperationContext, request: ClearRequest) -> _Shape | None:
    if request.query is not MISSING:
        return op.compute(partial(_shape, op, request))
    for argument in (request.sort, request.projection, request.collation):
        if argument is not MISSING:
            raise CommandError(ErrorCode.BadValue, "sort, projection, or collation provided without query")
    return None


def _shape(op: OperationContext, request: PlanCacheSetFilterRequest | ClearRequest) -> _Shape:
    if request.query is MISSING:
        raise CommandError(ErrorCode.BadValue, "required field query missing")
    filter = _document("query", request.query)
    order = _document("sort", request.sort)
    fields_taken = _document("projection", request.projection)
    collation = request.collation
    if isinstance(collation, list) or (isinstance(collation, bytes) and is_empty(collation)):
        raise CommandError(ErrorCode.BadValue, "optional field collation must be an object that is not empty")
    rules = _document("collation", collation)
    context = context_of(op, request.collection, collation=rules)
    match = parse_match(filter, context)
    if not is_empty(order):
        parse_sort(order)
    if not is_empty(fields_taken):
        parse_projection(fields_taken, context, for_find=True, filter=filter)
    text = QueryShape(order, fields_taken, rules).text(match.describe())
    return _Shape(filter, order, fields_taken, rules, text)


def _document(field: str, value: Value) -> bytes:
    """A document argument; an array is converted to the document `{0: …, 1: …}`, as mongod does."""
    if value is MISSING:
        return EMPTY_DOCUMENT
    if isinstance(value, bytes):
        return value
    if isinstance(value, list):
        return encode_array(value)
    raise CommandError(ErrorCode.BadValue, f"field {field} must be an object")
