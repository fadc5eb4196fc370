"""dataSize: the size of documents.

Source: MongoDB's reference of the command.
"""

from functools import partial
from typing import Annotated, Final, NamedTuple

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.namespace import check_collection_name, split_namespace
from mongottl.commands.access import namespace_needs, needing
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import BOOL_FIELD, DOCUMENT_FIELD, INTEGER, TEXT, Field
from mongottl.document.build import EMPTY_DOCUMENT, encode_fields
from mongottl.document.types import Int64, Value
from mongottl.document.walk import fields, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.planner import QueryPlan, plan_query
from mongottl.exec.results.sizes import collection_size
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match
from mongottl.security.privileges import Need

_MS_PER_S: Final = 1000


class DataSizeRequest(NamedTuple):
    namespace: Annotated[str, Field("dataSize", TEXT)]
    key_pattern: Annotated[bytes, Field("keyPattern", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    min_key: Annotated[bytes, Field("min", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    max_key: Annotated[bytes, Field("max", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    estimate: Annotated[bool, Field("estimate", BOOL_FIELD)] = False
    max_size_bytes: Annotated[int | None, Field("maxSize", INTEGER)] = None
    max_objects: Annotated[int | None, Field("maxObjects", INTEGER)] = None


def _data_size_needs(op: OperationContext, request: DataSizeRequest) -> list[Need]:
    return namespace_needs(request.namespace, "find")


@command(
    "dataSize",
    DataSizeRequest,
    access=needing(_data_size_needs),
    help="Returns the size of a collection's documents.",
    aliases=("datasize",),
)
def data_size(op: OperationContext, request: DataSizeRequest) -> Reply:
    """`{estimate, size, numObjects, millis}`; sizes in bytes, zeros for a collection that does not exist.

    With `min` and `max`: of the documents between these keys of an index, counted one by one; OperationFailed (96)
    without such an index. Otherwise of all documents; `size` then includes expired ones that are not purged yet.
    With `maxSize` or `maxObjects`, documents are counted one by one until a number is above its limit; the reply then
    has `maxReached: true`. A limit of 0 is none. An estimate of all documents knows no limits.
    """
    database, name = split_namespace(request.namespace, op.catalog.naming)
    check_collection_name(database, name)
    started_s = op.service.clock.monotonic_s()
    collection = op.catalog.lookup(database, name)
    size = count = 0
    if is_empty(request.min_key) != is_empty(request.max_key):
        raise CommandError(ErrorCode.BadValue, "only one of min or max specified")
    limits = _Limits(request)
    reached = False
    if collection is not None and is_empty(request.min_key) and (request.estimate or not limits.given):
        whole = collection_size(op.recovery_unit, collection)
        size, count = whole.data, whole.unexpired_count(op.now_s)
    elif collection is not None:
        if is_empty(request.min_key):
            plan = plan_query(op, collection, parse_match(EMPTY_DOCUMENT, ParseContext()), natural=1)
        else:
            plan = op.compute(partial(_plan_between, op, collection, request))
        size, count, reached = _counted(op, plan, limits)
    elapsed_ms = int((op.service.clock.monotonic_s() - started_s) * _MS_PER_S)
    reply: dict[str, Value] = {
        "estimate": request.estimate,
        "size": Int64(size),
        "numObjects": Int64(count),
        "millis": elapsed_ms,
    }
    if reached:
        reply["maxReached"] = True
    return reply


class _Limits:
    """`maxSize` in bytes and `maxObjects`: counting stops above them. 0: no limit."""

    def __init__(self, request: DataSizeRequest) -> None:
        self._size_bytes = request.max_size_bytes or 0
        self._objects = request.max_objects or 0
        self.given = bool(self._size_bytes or self._objects)

    def are_exceeded(self, size: int, count: int) -> bool:
        return bool((self._size_bytes and size > self._size_bytes) or (self._objects and count > self._objects))


def _plan_between(op: OperationContext, collection: Collection, request: DataSizeRequest) -> QueryPlan:
    pattern = request.key_pattern
    if is_empty(pattern):
        ascending: list[tuple[str, Value]] = [(name, 1) for name, _ in fields(request.min_key)]
        pattern = encode_fields(ascending)
    index = _index_of(collection, pattern)
    match = parse_match(EMPTY_DOCUMENT, ParseContext())
    return plan_query(op, collection, match, hint=index.name, min_key=request.min_key, max_key=request.max_key)


def _counted(op: OperationContext, plan: QueryPlan, limits: _Limits) -> tuple[int, int, bool]:
    """The size and the number of a plan's documents, and whether counting stopped above a limit."""
    stage = plan.open()
    size = count = 0
    while (batch := stage.next_batch(op)) is not None:
        for record in batch:
            size += len(record[1])
            count += 1
            if limits.are_exceeded(size, count):
                return size, count, True
        op.check_interrupt()
        op.give_way()
    return size, count, False


def _index_of(collection: Collection, pattern: bytes) -> CollectionIndex:
    for index in collection.indexes:
        if index.ready and index.has_keys and index.descriptor.has_key(pattern):
            return index
    raise CommandError(ErrorCode.OperationFailed, "couldn't find valid index containing key pattern")
