"""findAndModify: updates or deletes one document and returns it, as it was or as it became."""

from typing import Annotated, NamedTuple

from mongottl.catalog.namespace import check_database_name, check_new_collection_name
from mongottl.commands.reads import check_collation, context_of, natural_order
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import (
    ARRAY_FIELD,
    BOOL_FIELD,
    COLLECTION,
    DOCUMENT_FIELD,
    HINT,
    IGNORED,
    PIPELINE_OR_DOCUMENT,
    UNSUPPORTED,
    Field,
)
from mongottl.commands.writes import check_array_filters, collection_for_write
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.types import MISSING, Value
from mongottl.document.walk import is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.context import OperationContext, Steps
from mongottl.exec.modifying import Selection, UpdateResult, delete_one, update_one, upsert
from mongottl.query.match import MatchDetails, MatchExpression, parse_match
from mongottl.query.projection import Projection, parse_projection
from mongottl.query.sort import SortPattern, parse_sort
from mongottl.query.update import parse_update


class FindAndModifyRequest(NamedTuple):
    collection: Annotated[str, Field("findAndModify", COLLECTION)]
    query: Annotated[bytes, Field("query", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    sort: Annotated[bytes, Field("sort", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    remove: Annotated[bool, Field("remove", BOOL_FIELD)] = False
    update: Annotated[Value, Field("update", PIPELINE_OR_DOCUMENT)] = MISSING
    new: Annotated[bool, Field("new", BOOL_FIELD)] = False
    fields: Annotated[bytes, Field("fields", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    upsert: Annotated[bool, Field("upsert", BOOL_FIELD)] = False
    array_filters: Annotated[list[Value] | None, Field("arrayFilters", ARRAY_FIELD)] = None
    hint: Annotated[Value, Field("hint", HINT)] = MISSING
    let: Annotated[bytes, Field("let", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    collation: Annotated[bytes, Field("collation", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    bypass: Annotated[Value, Field("bypassDocumentValidation", IGNORED)] = None
    statement_id: Annotated[Value, Field("stmtId", IGNORED)] = None
    encryption: Annotated[Value, Field("encryptionInformation", UNSUPPORTED)] = None


@command(
    "findAndModify",
    FindAndModifyRequest,
    help="Updates or deletes one document and returns it.",
    aliases=("findandmodify",),
    writes=True,
)
def find_and_modify(op: OperationContext, request: FindAndModifyRequest) -> Steps[Reply]:
    """`value` is the document before the change, or after it with `new`; null where nothing matched."""
    check_database_name(op.database)
    check_new_collection_name(op.database, request.collection)
    check_collation(request.collation)
    if request.remove:
        for option, given in (
            ("update", request.update is not MISSING),
            ("upsert", request.upsert),
            ("new", request.new),
        ):
            if given:
                raise CommandError(
                    ErrorCode.FailedToParse,
                    f"Cannot specify both {option}=true and remove=true"
                    if option != "update"
                    else "Cannot specify both an update and remove=true",
                )
        if request.new:
            raise CommandError(
                ErrorCode.FailedToParse,
                "Cannot specify both new=true and remove=true; 'remove' always returns the deleted document",
            )
        if request.array_filters is not None:
            raise CommandError(ErrorCode.FailedToParse, "Cannot specify arrayFilters and remove=true")
    elif request.update is MISSING:
        raise CommandError(ErrorCode.FailedToParse, "Either an update or remove=true must be specified")
    context = context_of(op, request.collection, request.let)
    match = parse_match(request.query, context)
    projection = None if is_empty(request.fields) else parse_projection(request.fields, context, for_find=True)
    natural = natural_order(request.sort)
    sort: SortPattern | None = None
    if natural == 0 and not is_empty(request.sort):
        sort = parse_sort(request.sort)
    collection = op.catalog.lookup(op.database, request.collection)
    selection = Selection(collection, match, sort, request.hint, natural)
    if request.remove:
        return _remove(op, selection, projection)
    filters = check_array_filters(request.array_filters)
    driver = parse_update(request.update, context, filters)

    def run() -> Steps[Reply]:
        result = yield from update_one(op, selection, driver)
        if not result.matched and request.upsert:
            result = upsert(op, collection_for_write(op, request.collection), driver, match, context)
        return _reply(result, request.new, match, projection)

    return run()


def _remove(op: OperationContext, selection: Selection, projection: Projection | None) -> Steps[Reply]:
    document = yield from delete_one(op, selection)
    if document is None:
        return {"lastErrorObject": {"n": 0}, "value": None}
    return {"lastErrorObject": {"n": 1}, "value": _projected(document, selection.match, projection)}


def _reply(result: UpdateResult, new: bool, match: MatchExpression, projection: Projection | None) -> Reply:
    last: dict[str, Value] = {
        "n": 1 if result.matched else 0,
        "updatedExisting": result.matched > 0 and result.upserted_id is MISSING,
    }
    if result.upserted_id is not MISSING:
        last["upserted"] = result.upserted_id
    document = result.after if new else result.before
    value: Value = None if document is None else _projected(document, match, projection)
    return {"lastErrorObject": last, "value": value}


def _projected(document: bytes, match: MatchExpression, projection: Projection | None) -> bytes:
    if projection is None:
        return document
    details: MatchDetails | None = None
    if projection.needs_positional:
        details = MatchDetails()
        match.matches_positional(document, details)
    return projection.apply(document, details)
