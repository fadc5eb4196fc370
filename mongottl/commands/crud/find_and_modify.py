"""findAndModify: updates or deletes one document and returns it, before or after the update."""

from typing import Annotated, NamedTuple

from mongottl.catalog.collection import Collection
from mongottl.catalog.namespace import check_new_collection_name
from mongottl.commands.access import needing, write_needs
from mongottl.commands.collection_uuid import check_uuid_of
from mongottl.commands.crud.update import check_array_filters, result_of, upsert_or_update
from mongottl.commands.crud.write_batch import number_statements
from mongottl.commands.query_context import checked_metadata, context_of, natural_order
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import (
    BOOL_FIELD,
    COLLECTION,
    DOCUMENT_FIELD,
    PIPELINE_OR_DOCUMENT,
    Field,
)
from mongottl.commands.request_fields import (
    ArrayFilters,
    BypassTimestamps,
    BypassValidation,
    Collation,
    CollectionUuid,
    EncryptionInformation,
    Hint,
    Let,
    Sort,
    StatementId,
)
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.interrupt import MANY_BYTES, begin_evaluation, end_evaluation
from mongottl.document.types import MISSING, NULL, Value
from mongottl.document.walk import is_empty
from mongottl.errors import CommandError, DuplicateKeyError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.write_options import write_options
from mongottl.exec.plan.express import express_key, express_record
from mongottl.exec.sessions.retryable_writes import other_write
from mongottl.exec.write.modifying import (
    Selection,
    UpdateResult,
    apply_update,
    delete_one,
    update_one,
)
from mongottl.exec.write.writes import delete_batch
from mongottl.oplog.statements import AFTER, BEFORE, DELETED, NO_IMAGE, Executed
from mongottl.query.context import ParseContext
from mongottl.query.match import MatchDetails, MatchExpression, parse_match, simple_id_filter
from mongottl.query.projection import Projection, parse_projection
from mongottl.query.sort import SortPattern, parse_sort
from mongottl.query.update import UpdateDriver, parse_update
from mongottl.security.privileges import FIND, INSERT, REMOVE, UPDATE, Need
from mongottl.storage.errors import WriteConflict
from mongottl.storage.stores import Record


class FindAndModifyRequest(NamedTuple):
    collection: Annotated[str, Field("findAndModify", COLLECTION)]
    query: Annotated[bytes, Field("query", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    sort: Sort = EMPTY_DOCUMENT
    remove: Annotated[bool, Field("remove", BOOL_FIELD)] = False
    update: Annotated[Value, Field("update", PIPELINE_OR_DOCUMENT)] = MISSING
    new: Annotated[bool, Field("new", BOOL_FIELD)] = False
    fields: Annotated[bytes, Field("fields", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    upsert: Annotated[bool, Field("upsert", BOOL_FIELD)] = False
    array_filters: ArrayFilters = None
    hint: Hint = MISSING
    let: Let = EMPTY_DOCUMENT
    collation: Collation = EMPTY_DOCUMENT
    bypass: BypassValidation = False
    keep_empty_timestamps: BypassTimestamps = False
    statement_id: StatementId = None
    encryption: EncryptionInformation = None
    collection_uuid: CollectionUuid = None


def _find_and_modify_needs(op: OperationContext, request: FindAndModifyRequest) -> list[Need]:
    actions = [FIND, REMOVE if request.remove else UPDATE]
    if request.upsert:
        actions.append(INSERT)
    return write_needs(op.database, request.collection, actions, request.bypass)


def _modifies_one_record(op: OperationContext, request: FindAndModifyRequest) -> bool:
    """Whether a findAndModify is expected to take the express path, and so to need no stack. Not in `config` and
    `local`: see `server.waits`."""
    if request.upsert or op.database == "config" or op.database == "local":
        return False
    type_code = simple_id_filter(request.query)[0]
    return type_code != 0 and type_code != NULL


@command(
    "findAndModify",
    FindAndModifyRequest,
    access=needing(_find_and_modify_needs),
    help="Updates or deletes one document and returns it.",
    aliases=("findandmodify",),
    writes=True,
    retryable=True,
    stable=True,
    raw_data=True,
    latency="writes",
    in_transaction=True,
    is_prompt=_modifies_one_record,
)
def find_and_modify(op: OperationContext, request: FindAndModifyRequest) -> Reply:
    """The reply's `value` is the document before the change, or after it with `new`; null if nothing matched.

    InvalidOptions (72) for updates in time series collections.
    """
    check_request(request)
    op.write_options = write_options(request.bypass, request.keep_empty_timestamps)
    check_uuid_of(op, "findAndModify", request.collection_uuid, request.collection)
    collection = op.catalog.lookup(op.database, request.collection, time_series=True)
    if collection is not None and collection.time_series is not None and not request.remove:
        raise CommandError(ErrorCode.InvalidOptions, "Cannot perform a non-multi update on a time-series collection")
    if collection is None:
        op.check_database()
        check_new_collection_name(op.database, request.collection, op.catalog.naming)
    write = number_statements(op, "findAndModify", 1, request.statement_id)
    executed = None
    if write is not None:
        executed = write.begin(0, AFTER if request.new else BEFORE)
        if executed is not None:
            check_same_kind(request, executed)
    context = context_of(op, request.collection, request.let, request.collation)
    if op.is_long:
        return _modify_long(op, request, executed, context)
    projection, driver = parse_change(request, context)
    plain = request.hint is MISSING and is_empty(request.collation) and not context.metadata.requested
    if op.service.dialect.sorts_need_index and not is_empty(request.sort):
        plain = False  # the sort is not ignored: an index must serve it
    key = express_key(collection, request.query) if collection is not None and plain else None
    if collection is not None and key is not None and executed is None and op.scripts is None:
        record = express_record(op, collection, key)
        reply = _modify_by_id(op, collection, request, record, driver, projection)
        if reply is not None:
            return reply
    op.service.stacks.require()
    selection = _parse_selection(request, collection, context)
    return _modify(op, request, executed, selection, driver, projection, context)


def _modify_long(
    op: OperationContext, request: FindAndModifyRequest, executed: Executed | None, context: ParseContext
) -> Reply:
    projection, driver = op.compute(lambda: parse_change(request, context))
    selection = op.compute(lambda: _parse_selection(request, None, context))
    selection.collection = op.catalog.lookup(op.database, request.collection, time_series=True)
    return _modify(op, request, executed, selection, driver, projection, context)


def parse_change(request: FindAndModifyRequest, context: ParseContext) -> tuple[Projection | None, UpdateDriver | None]:
    """The parsed `fields` and `update`; None for no projection, and for a deletion."""
    projection: Projection | None = None
    if not is_empty(request.fields):
        projection = parse_projection(request.fields, context, for_find=True, filter=request.query)
    driver: UpdateDriver | None = None
    if not request.remove:
        filters = None if request.array_filters is None else check_array_filters(request.array_filters)
        driver = parse_update(request.update, context, filters)
    return projection, driver


def _parse_selection(request: FindAndModifyRequest, collection: Collection | None, context: ParseContext) -> Selection:
    match = parse_match(request.query, context, near=True)
    natural = natural_order(request.sort)
    sort: SortPattern | None = None
    if natural == 0 and not is_empty(request.sort):
        sort = parse_sort(request.sort, context.collation)
    return Selection(collection, match, sort, request.hint, natural, checked_metadata(context, sort))


def _modify(
    op: OperationContext,
    request: FindAndModifyRequest,
    executed: Executed | None,
    selection: Selection,
    driver: UpdateDriver | None,
    projection: Projection | None,
    context: ParseContext,
) -> Reply:
    """Executes the parsed request; the reply if an earlier attempt has executed it."""
    if executed is not None:
        return {**_retried_reply(request, executed, selection.match, projection), "retriedStmtId": executed.first}
    if driver is None:
        return _remove(op, selection, projection)
    return _update(op, request, selection, driver, projection, context)


def check_same_kind(request: FindAndModifyRequest, executed: Executed) -> None:
    """InvalidOptions (72) for a retry that asks for something else than its first attempt."""
    if request.remove != (executed.kind == DELETED):
        raise other_write("a findAndModify with remove" if request.remove else "a findAndModify with an update")
    if executed.image_kind == NO_IMAGE or (not request.remove and request.new != (executed.image_kind == AFTER)):
        raise other_write(f"a findAndModify with new={str(request.new).lower()}")


def _retried_reply(
    request: FindAndModifyRequest, executed: Executed, match: MatchExpression, projection: Projection | None
) -> dict[str, Value]:
    """The reply to a statement that an earlier attempt has executed."""
    if executed.kind == DELETED:
        assert executed.image is not None
        return {"lastErrorObject": {"n": 1}, "value": _projected(executed.image, match, projection)}
    result = result_of(executed)
    result.before = result.after = executed.image
    return _reply(result, request.new, match, projection)


def check_request(request: FindAndModifyRequest) -> None:
    """FailedToParse (9) for options that exclude each other."""
    if not request.remove:
        if request.update is MISSING:
            raise CommandError(ErrorCode.FailedToParse, "Either an update or remove=true must be specified")
        return
    for given, what in (
        (request.update is not MISSING, "both an update and remove=true"),
        (request.upsert, "both upsert=true and remove=true"),
        (request.new, "both new=true and remove=true; 'remove' always returns the deleted document"),
        (request.array_filters is not None, "arrayFilters and remove=true"),
    ):
        if given:
            raise CommandError(ErrorCode.FailedToParse, f"Cannot specify {what}")


def _modify_by_id(
    op: OperationContext,
    collection: Collection,
    request: FindAndModifyRequest,
    record: Record | None,
    driver: UpdateDriver | None,
    projection: Projection | None,
) -> Reply | None:
    """The reply if the filter is {_id: value}; None if the express path cannot execute the request.

    record: the record of this `_id`, or None. `sort` is ignored then, as in MongoDB.
    """
    if projection is not None:
        if projection.needs_positional:
            return None
        if record is not None and len(record[1]) >= MANY_BYTES:
            op.service.stacks.require()  # the document is projected when it has been written
    try:
        if driver is None:
            if record is None:
                return {"lastErrorObject": {"n": 0}, "value": None}
            delete_batch(op, collection, [record])
        else:
            result = UpdateResult()
            if record is None:
                return None if request.upsert else _reply(result, request.new, None, projection)
            if driver.needs_positional:
                return None
            apply_update(op, collection, None, record, driver, result)
    except WriteConflict:
        return None
    if driver is None:
        op.service.metrics.documents["deleted"] += 1
        return {"lastErrorObject": {"n": 1}, "value": _projected(record[1], None, projection)}
    return _reply(result, request.new, None, projection)


def _update(
    op: OperationContext,
    request: FindAndModifyRequest,
    selection: Selection,
    driver: UpdateDriver,
    projection: Projection | None,
    context: ParseContext,
) -> Reply:
    result = update_one(op, selection, driver)
    if not result.matched and request.upsert:
        try:
            result = upsert_or_update(op, request.collection, selection, driver, context, False)
        except DuplicateKeyError as error:
            raise op.service.dialect.upsert_conflict(error) from None
    return _reply(result, request.new, selection.match, projection)


def _remove(op: OperationContext, selection: Selection, projection: Projection | None) -> Reply:
    document = delete_one(op, selection)
    if document is None:
        return {"lastErrorObject": {"n": 0}, "value": None}
    return {"lastErrorObject": {"n": 1}, "value": _projected(document, selection.match, projection)}


def _reply(
    result: UpdateResult, new: bool, match: MatchExpression | None, projection: Projection | None
) -> dict[str, Value]:
    last: dict[str, Value] = {
        "n": 1 if result.matched else 0,
        "updatedExisting": result.matched > 0 and result.upserted_id is MISSING,
    }
    if result.upserted_id is not MISSING:
        last["upserted"] = result.upserted_id
    document = result.after if new else result.before
    value: Value = None if document is None else _projected(document, match, projection)
    return {"lastErrorObject": last, "value": value}


def _projected(document: bytes, match: MatchExpression | None, projection: Projection | None) -> bytes:
    if projection is None:
        return document
    details: MatchDetails | None = None
    begun = begin_evaluation()
    try:
        if match is not None and projection.needs_positional:
            details = MatchDetails()
            match.matches_positional(document, details)
        return projection.apply(document, details)
    finally:
        if begun:
            end_evaluation()
