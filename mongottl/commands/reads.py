"""find, getMore, killCursors, count, distinct, aggregate.

Source: MongoDB's command reference for each.
"""

from typing import Annotated, Final, NamedTuple

from mypy_extensions import i64

from mongottl.catalog.collection import Collection
from mongottl.catalog.namespace import check_collection_name, check_database_name
from mongottl.catalog.view import View
from mongottl.commands.collection_uuid import check_uuid_of
from mongottl.commands.listing import read_batch_size
from mongottl.commands.query_shape import check_settings
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import (
    ANY,
    ARRAY_FIELD,
    BOOL_FIELD,
    COLLECTION,
    COUNT_LIMIT,
    DOCUMENT_FIELD,
    GIVEN_BOOL,
    GIVEN_DOCUMENT,
    HINT,
    IGNORED,
    ONE,
    PIPELINE,
    TEXT,
    WHOLE,
    Field,
)
from mongottl.commands.view_reads import (
    aggregate_on_view,
    count_on_view,
    distinct_documents,
    find_on_view,
    is_about_itself,
)
from mongottl.document.bson_field import wrong_type
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.collation import Collation
from mongottl.document.compare import compare_values
from mongottl.document.keystring import encode_raw, encode_value
from mongottl.document.path import FieldPath, values_at
from mongottl.document.types import MISSING, Int64, Value, is_number
from mongottl.document.walk import fields, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.aggregation import plan_aggregation
from mongottl.exec.annotate import ANNOTATED, AnnotateStage
from mongottl.exec.choice import is_trivial
from mongottl.exec.context import OperationContext, Steps
from mongottl.exec.counting import count_documents
from mongottl.exec.cursors import ClientCursor
from mongottl.exec.plan_cache import QueryShape
from mongottl.exec.planner import natural_direction, plan_query
from mongottl.exec.reading import PlanDocuments, Pull, RecordPages, first_reply
from mongottl.exec.stages import SkipStage
from mongottl.exec.tailing import DEFAULT_AWAIT_S, Tail, TailableScan, await_page
from mongottl.exec.views import view_collation
from mongottl.query.collation import parse_collation
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match, simple_id_filter
from mongottl.query.metadata import INDEX_KEY, SORT_KEY, check_available
from mongottl.query.pipeline import DocumentSource, optimise, parse_pipeline
from mongottl.query.projection import Projection, parse_projection
from mongottl.query.sort import SortPattern, parse_sort
from mongottl.storage.interface import Record
from mongottl.ttl.policy import NO_TTL, is_expired

MAX_DISTINCT_BYTES: Final = 16 * 1024 * 1024
CURSOR_IN_USE: Final = 12051
NUL_IN_KEY: Final = 31032
_RUNTIME_CONSTANTS: Final = ("NOW", "CLUSTER_TIME", "JS_SCOPE", "IS_MR", "USER_ROLES")


class FindRequest(NamedTuple):
    collection: Annotated[str, Field("find", COLLECTION)]
    filter: Annotated[bytes, Field("filter", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    sort: Annotated[bytes, Field("sort", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    projection: Annotated[bytes, Field("projection", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    hint: Annotated[Value, Field("hint", HINT)] = MISSING
    skip: Annotated[int, Field("skip", WHOLE)] = 0
    limit: Annotated[int, Field("limit", WHOLE)] = 0
    batch_size: Annotated[int, Field("batchSize", WHOLE)] = -1
    single_batch: Annotated[bool, Field("singleBatch", BOOL_FIELD)] = False
    let: Annotated[bytes, Field("let", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    collation: Annotated[bytes, Field("collation", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    no_cursor_timeout: Annotated[bool, Field("noCursorTimeout", BOOL_FIELD)] = False
    allow_disk_use: Annotated[bool | None, Field("allowDiskUse", BOOL_FIELD)] = None
    allow_partial_results: Annotated[bool, Field("allowPartialResults", BOOL_FIELD)] = False
    oplog_replay: Annotated[bool, Field("oplogReplay", BOOL_FIELD)] = False
    tailable: Annotated[bool, Field("tailable", BOOL_FIELD)] = False
    await_data: Annotated[bool, Field("awaitData", BOOL_FIELD)] = False
    return_key: Annotated[bool, Field("returnKey", BOOL_FIELD)] = False
    show_record_id: Annotated[bool, Field("showRecordId", BOOL_FIELD)] = False
    min: Annotated[bytes, Field("min", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    max: Annotated[bytes, Field("max", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    collection_uuid: Annotated[Value, Field("collectionUUID", ANY)] = None


@command("find", FindRequest, help="Returns the documents that match a filter.", counter="query")
def find(op: OperationContext, request: FindRequest) -> Reply | Steps[Reply]:
    """A first batch of at most 101 documents, or `batchSize`; the rest through getMore."""
    check_database_name(op.database)
    check_collection_name(op.database, request.collection)
    check_uuid_of(op, "find", request.collection_uuid, request.collection)
    collection = op.catalog.find(op.database, request.collection)
    if isinstance(collection, View):
        return find_on_view(op, collection, request)
    if collection is not None and collection.id_index is not None and is_point_lookup(request):
        type_code, pos = simple_id_filter(request.filter)
        if type_code != 0:
            namespace = collection.namespace
            record = find_by_id(op, collection, request.filter, type_code, pos)
            documents: list[bytes] = []
            if record is not None and request.batch_size != 0:
                document = record[1]
                if not is_empty(request.projection):
                    document = _parse_projection(op, request).apply(document, None)
                documents.append(document)
                op.service.metrics.documents["returned"] += 1
            return {"cursor": {"firstBatch": documents, "id": Int64(0), "ns": namespace}}
    return _find_many(op, collection, request)


def is_point_lookup(request: FindRequest) -> bool:
    """Whether nothing but a filter on `_id` can decide what a find returns."""
    return (
        request.hint is MISSING
        and request.skip == 0
        and request.batch_size != 0
        and not request.tailable
        and not request.return_key
        and not request.show_record_id
        and request.sort == EMPTY_DOCUMENT
        and request.collation == EMPTY_DOCUMENT
        and (request.projection == EMPTY_DOCUMENT or b"$" not in request.projection)
    )


def find_by_id(op: OperationContext, collection: Collection, buf: bytes, type_code: i64, pos: i64) -> Record | None:
    """The living record whose `_id` is the value of this type at `pos` of raw BSON, or None.

    Under the collection's collation, for operations that name none: that is what the index on `_id` has.
    """
    index = collection.id_index
    assert index is not None
    assert index.data is not None
    key = encode_raw(buf, type_code, pos, False, collection.collation)
    record = index.data.fetch_exact(collection.store, key)
    if (
        record is not None
        and collection.default_ttl_s != NO_TTL
        and is_expired(record[2], record[3], collection.default_ttl_s, op.now_s)
    ):
        return None
    return record


def _parse_projection(op: OperationContext, request: FindRequest) -> Projection:
    context = context_of(op, request.collection, request.let, request.collation)
    return parse_projection(request.projection, context, for_find=True)


def context_of(
    op: OperationContext, name: str, let: bytes = EMPTY_DOCUMENT, collation: bytes = EMPTY_DOCUMENT
) -> ParseContext:
    """What parsing depends on: the operation's instant, its collation, and its `let` variables, evaluated.

    collation: the command's; where it names none, it has that of the collection or view.
    """
    context = ParseContext(op.now_ms, None, f"{op.database}.{name}")
    if not is_empty(collation):
        context.collation = parse_collation(collation)
    else:
        collection = op.catalog.find(op.database, name)
        if isinstance(collection, View):
            context.collation = view_collation(collection)
        elif collection is not None:
            context.collation = collection.collation
    if not is_empty(let):
        context.let = evaluate_let(let, context)
    return context


def timeless_context_of(op: OperationContext, name: str, collation: bytes) -> ParseContext:
    """For commands whose filters know neither `$$NOW` nor `$$CLUSTER_TIME`, and no `let` either."""
    context = context_of(op, name, collation=collation)
    context.runtime_constants = False
    return context


def evaluate_let(let: bytes, context: ParseContext) -> dict[str, Value]:
    """The values of a command's `let`: expressions over those before them that may not look at a document.

    4738901 for the name of a system variable, 51144 for the use of one, 4890500 for a field of the document.
    """
    from mongottl.query.expr import EvaluationContext, parse_expression
    from mongottl.query.expr.path import check_user_name

    values: dict[str, Value] = {}
    earlier = ParseContext(context.now_ms, values, context.namespace, False, context.collation)
    for name, value in fields(let):
        if name in _RUNTIME_CONSTANTS:
            raise CommandError(4738901, f"Attempt to set internal constant: {name}")
        check_user_name(name)
        expression = parse_expression(value, earlier)
        if expression.dependencies() != set():
            raise CommandError(
                4890500,
                "Command let Expression tried to access a field, but this is not allowed because command let"
                " expressions run before the query examines any documents.",
            )
        values[name] = expression.evaluate(EvaluationContext())
    return values


def natural_order(document: bytes) -> int:
    """1 or -1 for `{$natural: ±1}`, 0 for anything else. BadValue (2) for other forms of `$natural`."""
    for name, value in fields(document):
        if name == "$natural":
            if len(fields(document)) > 1:
                raise CommandError(ErrorCode.BadValue, "$natural sort cannot be set with other fields")
            for direction in (1, -1):
                if is_number(value) and compare_values(value, direction) == 0:
                    return direction
            raise CommandError(ErrorCode.BadValue, "$natural sort must be 1 or -1")
    return 0


def _find_many(op: OperationContext, collection: Collection | None, request: FindRequest) -> Steps[Reply]:
    context = context_of(op, request.collection, request.let, request.collation)
    if request.await_data and not request.tailable:
        raise CommandError(ErrorCode.FailedToParse, "Cannot set 'awaitData' without also setting 'tailable'")
    if request.tailable:
        _check_tailable(collection, request)
    match = parse_match(request.filter, context, near=True)
    projection = None if is_empty(request.projection) else parse_projection(request.projection, context, for_find=True)
    natural = natural_order(request.sort)
    sort: SortPattern | None = None
    if natural == 0 and not is_empty(request.sort):
        sort = parse_sort(request.sort, context.collation)
    metadata = checked_metadata(context, sort)
    if request.return_key:
        metadata.add(INDEX_KEY)
    batch_size = request.batch_size
    shape = QueryShape(request.sort, request.projection, request.collation)
    shape.allowed = check_settings(op, "find", request, request.collection)
    plan = plan_query(
        op,
        collection,
        match,
        sort=sort,
        natural=natural,
        skip=request.skip,
        limit=request.limit,
        hint=request.hint,
        wanted=batch_size if batch_size > 0 else 0,
        shape=shape,
        metadata=metadata,
        allow_disk_use=request.allow_disk_use,
        least=request.min,
        bound=request.max,
        collation=context.collation,
    )
    if projection is not None and not request.return_key:
        plan.cover(projection)
    stage = plan.open()
    tail: Tail | None = None
    if collection is not None and collection.options.capped:
        if request.tailable:
            forward = natural_direction(request.hint) >= 0
            scan = TailableScan(collection, None if is_trivial(match) else match, forward, plan.wanted)
            tail = Tail(collection, scan, request.await_data)
            stage = SkipStage(scan, request.skip) if request.skip else scan
            if metadata & ANNOTATED:
                stage = AnnotateStage(stage, metadata & ANNOTATED, None)
        else:
            stage.set_guarded()
    pages = RecordPages(stage, collection, projection, match, request.limit, request.return_key, request.show_record_id)
    cursor = ClientCursor(f"{op.database}.{request.collection}", pages, op.session_key, op.service.clock.monotonic_s())
    cursor.tail = tail
    cursor.no_timeout = request.no_cursor_timeout
    return (yield from first_reply(op, cursor, batch_size, keep=not request.single_batch))


def checked_metadata(context: ParseContext, sort: SortPattern | None) -> set[str]:
    """What the documents of a query are to carry. 40218 for what it cannot give; BadValue for the key of no sort."""
    asked = context.metadata.requested if sort is None else context.metadata.requested.union(sort.metadata)
    check_available(asked, context.metadata.provided)
    if SORT_KEY in asked and sort is None:
        raise CommandError(ErrorCode.BadValue, "cannot use sortKey $meta projection without a sort")
    return asked


def _check_tailable(collection: Collection | None, request: FindRequest) -> None:
    """BadValue (2) for what goes with no tailable cursor: any order but that of insertion, and one batch alone.

    InvalidPipelineOperator (168) on a time series collection, which mongod reads by a pipeline.
    """
    if collection is not None and collection.time_series is not None:
        raise CommandError(ErrorCode.InvalidPipelineOperator, "Tailable cursors cannot read time-series collections")
    if not is_empty(request.sort) and natural_order(request.sort) != 1:
        raise CommandError(ErrorCode.BadValue, "cannot use tailable option with a sort other than {$natural: 1}")
    if request.single_batch:
        raise CommandError(ErrorCode.BadValue, "cannot use tailable option with the 'singleBatch' option")
    if collection is not None and not collection.options.capped:
        raise CommandError(
            ErrorCode.BadValue, "error processing query: tailable cursor requested on non capped collection"
        )


_NOT_YOURS: Final = "Cannot run getMore on cursor"


class GetMoreRequest(NamedTuple):
    cursor_id: Annotated[Value, Field("getMore", ONE)]
    collection: Annotated[str, Field("collection", COLLECTION)]
    batch_size: Annotated[int, Field("batchSize", WHOLE)] = 0
    last_known: Annotated[Value, Field("lastKnownCommittedOpTime", IGNORED)] = None
    term: Annotated[Value, Field("term", IGNORED)] = None


@command("getMore", GetMoreRequest, help="Returns the next documents of a cursor.", counter="getmore")
def get_more(op: OperationContext, request: GetMoreRequest) -> Steps[Reply]:
    """CursorNotFound (43) for a cursor that is unknown or closed, QueryPlanKilled (175) where its collection is gone.

    Unauthorized (13) with another namespace, 50736 to 50738 in another session, 12051 while another getMore uses it.
    """
    cursor_id = request.cursor_id
    if not isinstance(cursor_id, Int64):
        raise wrong_type("getMore.getMore", cursor_id, "long")
    cursor = op.service.cursors.get(int(cursor_id))
    namespace = f"{op.database}.{request.collection}"
    if cursor.namespace != namespace:
        raise CommandError(
            ErrorCode.Unauthorized,
            f"Requested getMore on namespace '{namespace}', but cursor belongs to a different namespace"
            f" {cursor.namespace}",
        )
    if cursor.session_key != op.session_key:
        if cursor.session_key is None:
            raise CommandError(
                50736, f"{_NOT_YOURS} {int(cursor_id)}, which was not created in a session, in a session"
            )
        if op.session_key is None:
            raise CommandError(50737, f"{_NOT_YOURS} {int(cursor_id)}, which was created in a session, without an lsid")
        raise CommandError(50738, f"{_NOT_YOURS} {int(cursor_id)}, which was created in a different session")
    awaits = cursor.tail is not None and cursor.tail.await_data
    if op.has_max_time and not awaits:
        raise CommandError(ErrorCode.BadValue, "cannot set maxTimeMS on getMore command for a non-awaitData cursor")
    if cursor.in_use:
        raise CommandError(CURSOR_IN_USE, f"cursor id {int(cursor_id)} is already in use")
    return _next_page(op, cursor, request.batch_size)


def _next_page(op: OperationContext, cursor: ClientCursor, batch_size: int) -> Steps[Reply]:
    registry = op.service.cursors
    if cursor.why_dead:
        registry.close(cursor)
        cursor.check_alive()
    cursor.in_use = True
    tail = cursor.tail
    await_s = DEFAULT_AWAIT_S
    if tail is not None and op.has_max_time:
        # The time limit of such a getMore is how long it may wait.
        await_s = max(0.0, op.time_left_s())
        op.deadline_s = 0.0
    limited = cursor.time_left_s >= 0.0 and (tail is None or not tail.await_data)
    try:
        if limited:
            op.limit_time(cursor.time_left_s)
        page = yield from cursor.next_page(op, batch_size)
        if not page and tail is not None and tail.await_data and not cursor.exhausted:
            page = yield from await_page(op, cursor, tail.collection.number, batch_size, await_s)
    except BaseException:
        registry.close(cursor)
        raise
    finally:
        cursor.in_use = False
        cursor.last_used_s = op.service.clock.monotonic_s()
    if limited:
        cursor.time_left_s = op.time_left_s()
    op.service.metrics.documents["returned"] += len(page)
    cursor_id = cursor.cursor_id
    if cursor.exhausted:
        registry.close(cursor)
        cursor_id = 0
    return {"cursor": {"nextBatch": page, "id": Int64(cursor_id), "ns": cursor.namespace}}


class KillCursorsRequest(NamedTuple):
    collection: Annotated[str, Field("killCursors", COLLECTION)]
    cursors: Annotated[list[Value], Field("cursors", ARRAY_FIELD)]


@command("killCursors", KillCursorsRequest, help="Closes cursors.")
def kill_cursors(op: OperationContext, request: KillCursorsRequest) -> Reply:
    """Which cursors were closed and which are unknown. A cursor is known by its id alone; null is passed over."""
    killed: list[Value] = []
    not_found: list[Value] = []
    check_collection_name(op.database, request.collection)
    for place, cursor_id in enumerate(request.cursors):
        if cursor_id is not None and not isinstance(cursor_id, Int64):
            raise wrong_type(f"killCursors.cursors.{place}", cursor_id, "long")
    for cursor_id in request.cursors:
        if not isinstance(cursor_id, Int64):
            continue
        cursor = op.service.cursors.find(int(cursor_id))
        if cursor is None:
            not_found.append(cursor_id)
            continue
        op.service.cursors.close(cursor)
        killed.append(cursor_id)
    return {"cursorsKilled": killed, "cursorsNotFound": not_found, "cursorsAlive": [], "cursorsUnknown": []}


class CountRequest(NamedTuple):
    collection: Annotated[str, Field("count", COLLECTION)]
    query: Annotated[bytes, Field("query", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    limit: Annotated[int | None, Field("limit", COUNT_LIMIT)] = None
    skip: Annotated[int, Field("skip", WHOLE)] = 0
    hint: Annotated[Value, Field("hint", HINT)] = MISSING
    collation: Annotated[bytes, Field("collation", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    fields: Annotated[Value, Field("fields", IGNORED)] = None
    collection_uuid: Annotated[Value, Field("collectionUUID", ANY)] = None


@command("count", CountRequest, help="Counts the documents that match a filter.")
def count(op: OperationContext, request: CountRequest) -> Steps[Reply]:
    check_database_name(op.database)
    check_collection_name(op.database, request.collection)
    context = timeless_context_of(op, request.collection, request.collation)
    check_uuid_of(op, "count", request.collection_uuid, request.collection)
    collection = op.catalog.find(op.database, request.collection)
    if isinstance(collection, View):
        return (yield from count_on_view(op, collection, request))
    match = parse_match(request.query, context, near=True)
    n = yield from count_documents(
        op, collection, match, skip=request.skip, limit=abs(request.limit or 0), hint=request.hint
    )
    return {"n": n if n < 2**31 else Int64(n)}


class DistinctRequest(NamedTuple):
    collection: Annotated[str, Field("distinct", COLLECTION)]
    key: Annotated[str, Field("key", TEXT)]
    query: Annotated[bytes, Field("query", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    collation: Annotated[bytes, Field("collation", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    hint: Annotated[Value, Field("hint", HINT)] = MISSING
    collection_uuid: Annotated[Value, Field("collectionUUID", ANY)] = None


@command("distinct", DistinctRequest, help="Returns the different values of a field.")
def distinct(op: OperationContext, request: DistinctRequest) -> Steps[Reply]:
    """Arrays count by their elements. 17217 when the values exceed 16 MiB."""
    check_database_name(op.database)
    check_collection_name(op.database, request.collection)
    context = timeless_context_of(op, request.collection, request.collation)
    if "\0" in request.key:
        raise CommandError(NUL_IN_KEY, "The 'key' of a distinct command must not contain a null byte")
    check_uuid_of(op, "distinct", request.collection_uuid, request.collection)
    collection = op.catalog.find(op.database, request.collection)
    if isinstance(collection, View):
        source = distinct_documents(op, collection, request)
    else:
        match = parse_match(request.query, context, near=True)
        shape = QueryShape(collation=request.collation)
        shape.allowed = check_settings(op, "distinct", request, request.collection)
        plan = plan_query(op, collection, match, hint=request.hint, shape=shape)
        plan.skip_repeated(request.key, context.collation, request.hint is not MISSING)
        source = PlanDocuments(plan.open(), collection, Pull(op, False, False), False)
    return (yield from _collect_distinct(op, source, request.key, context.collation))


def _collect_distinct(
    op: OperationContext, source: DocumentSource, key: str, collation: Collation | None
) -> Steps[Reply]:
    path = FieldPath(key)
    seen: dict[bytes, Value] = {}
    size = 0
    while (batch := source.next_batch()) is not None:
        for document in batch:
            for value in values_at(document, path):
                encoded = encode_value(value, False, collation)
                if encoded not in seen:
                    seen[encoded] = value
                    size += len(encoded)
        if size > MAX_DISTINCT_BYTES:
            raise CommandError(17217, "distinct too big, 16mb cap")
        op.check_interrupt()
        yield None
    return {"values": [seen[encoded] for encoded in sorted(seen)]}


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


@command("aggregate", AggregateRequest, help="Runs an aggregation pipeline.")
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
        if not is_about_itself(request.pipeline):
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
    """The collection that `aggregate` names; `1` stands for none, and only some stages go with it."""
    if isinstance(value, str):
        check_collection_name(op.database, value)
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value == 1:
        return "$cmd.aggregate"
    raise CommandError(
        ErrorCode.FailedToParse,
        "Invalid command format: the 'aggregate' field must specify a collection name or 1",
    )
