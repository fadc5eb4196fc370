"""find, count, distinct.

Source: MongoDB's command reference for each.
"""

from functools import partial
from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.catalog.namespace import check_collection_name
from mongottl.catalog.view import View
from mongottl.commands.access import on_collection
from mongottl.commands.collection_uuid import check_uuid_of
from mongottl.commands.crud.query_shape import check_settings
from mongottl.commands.crud.read_requests import CountRequest, DistinctRequest, FindRequest
from mongottl.commands.crud.view_reads import (
    count_on_view,
    distinct_documents,
    find_on_view,
    find_stages,
)
from mongottl.commands.query_context import checked_metadata, context_of, natural_order, timeless_context_of
from mongottl.commands.registry import ALL_BUT_SNAPSHOT, ALL_LEVELS, Reply, command
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.collation import Collation
from mongottl.document.path import FieldPath
from mongottl.document.types import MISSING, NULL, Int64, Value
from mongottl.document.walk import is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.distinct_path import DistinctQuery
from mongottl.exec.plan.express import express_key, express_record
from mongottl.exec.plan.oplog_bounds import oplog_span
from mongottl.exec.plan.plan_cache import QueryShape
from mongottl.exec.plan.plan_ranker import is_trivial
from mongottl.exec.plan.planner import QueryPlan, make_plan, natural_direction, plan_query
from mongottl.exec.results.counting import count_documents
from mongottl.exec.results.cursors import ClientCursor, CollectionTail
from mongottl.exec.results.distinct_values import MAX_DISTINCT_BYTES, DistinctValues
from mongottl.exec.results.reading import PlanDocuments, Pull, RecordPages, first_reply
from mongottl.exec.stages.annotate import ANNOTATED, AnnotateStage
from mongottl.exec.stages.stage import SkipStage
from mongottl.exec.stages.tailable_scan import TailableScan
from mongottl.query.match import parse_match, simple_id_filter
from mongottl.query.metadata import INDEX_KEY
from mongottl.query.pipeline import DocumentSource
from mongottl.query.projection import Projection, parse_projection
from mongottl.query.sort import SortPattern, parse_sort

NUL_IN_KEY: Final = 31032
_DOLLAR: Final = ord("$")


def _reads_one_record(op: OperationContext, request: FindRequest) -> bool:
    """Whether a find takes the express path to a whole document; then its collection is noted, so that it is not looked
    up again. Not in `config` and `local`: what is read there may have to be written first (`server.waits`)."""
    if request.projection != EMPTY_DOCUMENT or request.collection_uuid is not None or not is_point_lookup(request):
        return False
    type_code = simple_id_filter(request.filter)[0]
    if type_code == 0 or type_code == NULL or op.database == "config" or op.database == "local":
        return False
    collection = op.catalog.find(op.database, request.collection)
    if not isinstance(collection, Collection) or collection.id_index is None:
        return False
    op.express_collection = collection
    return True


@command(
    "find",
    FindRequest,
    access=on_collection("find"),
    help="Returns the documents that match a filter.",
    counter="query",
    read_levels=ALL_LEVELS,
    may_be_abandoned=True,
    stable=True,
    unstable_fields=(
        "awaitData",
        "max",
        "min",
        "noCursorTimeout",
        "oplogReplay",
        "returnKey",
        "showRecordId",
        "tailable",
    ),
    raw_data=True,
    latency="reads",
    in_transaction=True,
    is_prompt=_reads_one_record,
)
def find(op: OperationContext, request: FindRequest) -> Reply:
    """A cursor with a first batch of `batchSize` or 101 documents."""
    collection = op.express_collection
    if collection is not None:
        key = express_key(collection, request.filter)
        assert key is not None
        return _find_one(op, collection, request, key)
    op.check_database()
    check_collection_name(op.database, request.collection)
    if request.collection.startswith("$"):
        raise CommandError(ErrorCode.InvalidNamespace, f"Invalid collection name: {request.collection}")
    check_uuid_of(op, "find", request.collection_uuid, request.collection)
    found = op.catalog.find(op.database, request.collection)
    if isinstance(found, View):
        return find_on_view(op, found, request)
    if found is None:
        op.service.dialect.check_missing_collection()
    elif is_point_lookup(request):
        key = express_key(found, request.filter)
        if key is not None:
            return _find_one(op, found, request, key)
    return _find_many(op, found, request)


def _find_one(op: OperationContext, collection: Collection, request: FindRequest, key: bytes) -> Reply:
    """The reply to a find that takes the express path."""
    record = express_record(op, collection, key)
    documents: list[bytes] = []
    if record is not None:
        document = record[1]
        if not is_empty(request.projection):
            document = _parse_projection(op, request).apply(document, None)
        documents.append(document)
        op.service.metrics.documents["returned"] += 1
    return {"cursor": {"firstBatch": documents, "id": Int64(0), "ns": collection.namespace}}


def is_point_lookup(request: FindRequest) -> bool:
    """Whether a find has no option that forbids the express path."""
    return (
        request.hint is MISSING
        and request.skip == 0
        and request.batch_size != 0
        and not request.tailable
        and not request.return_key
        and not request.show_record_id
        and request.sort == EMPTY_DOCUMENT
        and request.collation == EMPTY_DOCUMENT
        and (request.projection == EMPTY_DOCUMENT or _DOLLAR not in request.projection)
    )


def _parse_projection(op: OperationContext, request: FindRequest) -> Projection:
    context = context_of(op, request.collection, request.let, request.collation)
    return parse_projection(request.projection, context, for_find=True, filter=request.filter)


class _ParsedFind:
    """A find whose filter, projection and sort are parsed.

    natural: 1 or -1 for a sort by `$natural`, else 0. metadata: keywords of the `$meta` values that are needed.
    """

    def __init__(self, op: OperationContext, collection: Collection | None, request: FindRequest) -> None:
        context = context_of(op, request.collection, request.let, request.collation)
        if request.await_data and not request.tailable:
            raise CommandError(ErrorCode.FailedToParse, "Cannot set 'awaitData' without also setting 'tailable'")
        self.request = request
        self.collation = context.collation
        piped = _is_piped(op, collection)
        if piped:
            find_stages(request)  # for its errors
        elif request.tailable:
            _check_tailable(collection, request)
        self.match = parse_match(request.filter, context, near=not piped)
        self.projection: Projection | None = None
        if not is_empty(request.projection):
            self.projection = parse_projection(request.projection, context, for_find=not piped, filter=request.filter)
        self.natural = natural_order(request.sort)
        self.sort: SortPattern | None = None
        if self.natural == 0 and not is_empty(request.sort):
            self.sort = parse_sort(request.sort, context.collation)
        self.metadata = checked_metadata(context, self.sort)
        if request.return_key:
            self.metadata.add(INDEX_KEY)
        self.shape = QueryShape(request.sort, request.projection, request.collation)
        self.shape.allowed = check_settings(op, "find", request, request.collection)

    def plan(self, op: OperationContext, collection: Collection | None) -> QueryPlan:
        request = self.request
        if self.sort is not None and op.service.dialect.sorts_need_index:
            op.service.dialect.check_sort(collection, self.sort, self.match)
        plan = plan_query(
            op,
            collection,
            self.match,
            sort=self.sort,
            natural=self.natural,
            skip=request.skip,
            limit=request.limit,
            hint=request.hint,
            wanted=request.batch_size if request.batch_size > 0 else 0,
            shape=self.shape,
            metadata=self.metadata,
            allow_disk_use=request.allow_disk_use,
            min_key=request.min,
            max_key=request.max,
            collation=self.collation,
        )
        if self.projection is not None and not request.return_key:
            plan.cover(self.projection)
        return plan


def _is_piped(op: OperationContext, collection: Collection | None) -> bool:
    """Whether mongod reads a collection by a pipeline, with its errors: a time series collection."""
    return collection is not None and collection.time_series is not None and not op.command.raw_data


def _find_many(op: OperationContext, collection: Collection | None, request: FindRequest) -> Reply:
    parsed = op.compute(lambda: _ParsedFind(op, collection, request))
    plan = make_plan(op, collection, lambda: parsed.plan(op, collection))
    match = parsed.match
    metadata = parsed.metadata
    stage = plan.open()
    tail: CollectionTail | None = None
    if collection is not None and collection.options.capped:
        if request.tailable:
            forward = natural_direction(request.hint) >= 0
            span = oplog_span(collection, match)
            scan = TailableScan(collection, None if is_trivial(match) else match, forward, plan.wanted, span)
            tail = CollectionTail(collection, scan, request.await_data)
            stage = SkipStage(scan, request.skip) if request.skip else scan
            if metadata & ANNOTATED:
                stage = AnnotateStage(stage, metadata & ANNOTATED, None)
        else:
            stage.set_guarded()
    op.note_plan(stage)
    record_ids = request.show_record_id and not request.return_key
    pages = RecordPages(stage, collection, parsed.projection, match, request.limit, request.return_key, record_ids)
    cursor = ClientCursor(f"{op.database}.{request.collection}", pages, op.session_key, op.service.clock.monotonic_s())
    cursor.tail = tail
    cursor.no_timeout = request.no_cursor_timeout
    return first_reply(op, cursor, request.batch_size, keep=not request.single_batch)


def _check_tailable(collection: Collection | None, request: FindRequest) -> None:
    """BadValue (2) for options that tailable cursors exclude: sorts other than `$natural`, `singleBatch`."""
    if not is_empty(request.sort) and natural_order(request.sort) != 1:
        raise CommandError(ErrorCode.BadValue, "cannot use tailable option with a sort other than {$natural: 1}")
    if request.single_batch:
        raise CommandError(ErrorCode.BadValue, "cannot use tailable option with the 'singleBatch' option")
    if collection is not None and not collection.options.capped:
        raise CommandError(
            ErrorCode.BadValue, "error processing query: tailable cursor requested on non capped collection"
        )


@command(
    "count",
    CountRequest,
    access=on_collection("find"),
    help="Counts the documents that match a filter.",
    read_levels=ALL_BUT_SNAPSHOT,
    may_be_abandoned=True,
    stable=True,
    raw_data=True,
    latency="reads",
)
def count(op: OperationContext, request: CountRequest) -> Reply:
    op.check_database()
    check_collection_name(op.database, request.collection)
    context = timeless_context_of(op, request.collection, request.collation)
    check_uuid_of(op, "count", request.collection_uuid, request.collection)
    collection = op.catalog.find(op.database, request.collection)
    if isinstance(collection, View):
        return count_on_view(op, collection, request)
    near = not _is_piped(op, collection)
    match = op.compute(lambda: parse_match(request.query, context, near=near))
    n = count_documents(op, collection, match, skip=request.skip, limit=abs(request.limit or 0), hint=request.hint)
    return {"n": n if n < 2**31 else Int64(n)}


@command(
    "distinct",
    DistinctRequest,
    access=on_collection("find"),
    help="Returns the distinct values of a field.",
    read_levels=ALL_LEVELS,
    may_be_abandoned=True,
    raw_data=True,
    latency="reads",
    in_transaction=True,
)
def distinct(op: OperationContext, request: DistinctRequest) -> Reply:
    """The distinct values of a path; an array contributes its elements. 17217 if they exceed 16 MiB minus 4 KiB."""
    op.check_database()
    check_collection_name(op.database, request.collection)
    context = timeless_context_of(op, request.collection, request.collation)
    if "\0" in request.key:
        raise CommandError(NUL_IN_KEY, "The 'key' of a distinct command must not contain a null byte")
    check_uuid_of(op, "distinct", request.collection_uuid, request.collection)
    collection = op.catalog.find(op.database, request.collection)
    if isinstance(collection, View):
        source = distinct_documents(op, collection, request)
        piped = True
    else:
        piped = _is_piped(op, collection)
        match = op.compute(lambda: parse_match(request.query, context, near=not piped))
        shape = QueryShape(collation=request.collation)
        shape.allowed = check_settings(op, "distinct", request, request.collection)
        plan = make_plan(op, collection, lambda: plan_query(op, collection, match, hint=request.hint, shape=shape))
        plan.skip_repeated(DistinctQuery(request.key, [request.key], context.collation), request.hint is not MISSING)
        stage = plan.open()
        op.note_plan(stage)
        source = PlanDocuments(stage, collection, Pull(op, False, False), False)
    reply = _collect_distinct(op, source, request.key, context.collation)
    # Of what mongod reads by a pipeline `ok` is an int; in all other replies it is a double.
    return {**reply, "ok": 1} if piped else reply


def _collect_distinct(
    op: OperationContext, source: DocumentSource, key: str, collation: Collation | None
) -> dict[str, Value]:
    max_bytes = min(MAX_DISTINCT_BYTES, op.service.bounds.max_page_bytes)
    advice = op.service.dialect.large_reply_advice() if max_bytes < MAX_DISTINCT_BYTES else ""
    values = DistinctValues(FieldPath(key), collation, max_bytes, advice)
    while (batch := source.next_batch()) is not None:
        op.compute(partial(values.add, batch))  # a document may have a million
        op.check_interrupt()
        op.give_way()
    return {"values": values.in_order(op)}
