"""insert, update, delete: batches of statements, each of which may fail by itself.

The reply counts what was done (`n`, `nModified`, `upserted`) and lists the failed statements under `writeErrors`; with
`ordered` (the default) the first failure ends the batch.
"""

from typing import Annotated, Any, Final, NamedTuple

from mongottl.catalog.collection import Collection
from mongottl.catalog.namespace import check_database_name, check_new_collection_name
from mongottl.commands.reads import check_collation, context_of, natural_order
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import (
    ARRAY_FIELD,
    BOOL_FIELD,
    COLLECTION,
    DOCUMENT_FIELD,
    DOCUMENTS,
    HINT,
    IGNORED,
    NUMBER,
    PIPELINE_OR_DOCUMENT,
    UNSUPPORTED,
    Field,
    RequestParser,
    parser_for,
)
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.types import MISSING, Int64, Value
from mongottl.document.walk import is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.context import OperationContext, Steps
from mongottl.exec.modifying import (
    Selection,
    UpdateResult,
    delete_many,
    delete_one,
    update_many,
    update_one,
    upsert,
)
from mongottl.exec.writes import insert_batch, insert_document, prepare_document
from mongottl.query.match import parse_match
from mongottl.query.sort import SortPattern, parse_sort
from mongottl.query.update import parse_update
from mongottl.storage.interface import DuplicateKey

# Documents of one unit of work; between two of them other clients run.
INSERT_CHUNK: Final = 500


class InsertRequest(NamedTuple):
    collection: Annotated[str, Field("insert", COLLECTION)]
    documents: Annotated[list[bytes], Field("documents", DOCUMENTS)]
    ordered: Annotated[bool, Field("ordered", BOOL_FIELD)] = True
    bypass: Annotated[Value, Field("bypassDocumentValidation", IGNORED)] = None
    statement_ids: Annotated[Value, Field("stmtIds", IGNORED)] = None
    encryption: Annotated[Value, Field("encryptionInformation", UNSUPPORTED)] = None


class WriteErrors:
    """The failed statements of a batch."""

    def __init__(self) -> None:
        self.entries: list[Value] = []

    def add(self, index: int, error: CommandError) -> None:
        entry: dict[str, Value] = {"index": index, "code": error.code}
        entry.update(error.details)
        entry["errmsg"] = error.message
        self.entries.append(entry)

    def add_to(self, reply: dict[str, Value]) -> dict[str, Value]:
        if self.entries:
            reply["writeErrors"] = self.entries
        return reply


def check_batch(op: OperationContext, size: int) -> None:
    """InvalidLength (16) for a batch without statements or with too many."""
    limit = op.service.dialect.max_write_batch_size
    if size < 1 or size > limit:
        raise CommandError(
            ErrorCode.InvalidLength, f"Write batch sizes must be between 1 and {limit}. Got {size} operations."
        )


def collection_for_write(op: OperationContext, name: str) -> Collection:
    """The collection, made now if it does not exist."""
    collection = op.catalog.lookup(op.database, name)
    if collection is not None:
        return collection
    check_database_name(op.database)
    check_new_collection_name(op.database, name)
    other = op.catalog.database_spelled_otherwise(op.database)
    if other is not None:
        raise CommandError(
            13297,
            f"db already exists with different case already have: [{other}] trying to create [{op.database}]",
        )
    collection = op.catalog.create_collection(op.database, name, EMPTY_DOCUMENT)
    op.service.note_write()
    return collection


@command("insert", InsertRequest, help="Inserts documents.", writes=True, counter="insert")
def insert(op: OperationContext, request: InsertRequest) -> Reply | Steps[Reply]:
    """Documents without `_id` get an ObjectId. Duplicate keys are writeErrors with code 11000."""
    documents = request.documents
    check_batch(op, len(documents))
    collection = collection_for_write(op, request.collection)
    if len(documents) == 1:
        errors = WriteErrors()
        n = _insert_one_by_one(op, collection, documents, 0, request.ordered, errors)
        op.service.metrics.documents["inserted"] += n
        return errors.add_to({"n": n})
    return _insert_many(op, collection, request)


def _insert_many(op: OperationContext, collection: Collection, request: InsertRequest) -> Steps[Reply]:
    documents = request.documents
    errors = WriteErrors()
    inserted = 0
    for start in range(0, len(documents), INSERT_CHUNK):
        if collection.dropped:
            collection = collection_for_write(op, request.collection)
        chunk = documents[start : start + INSERT_CHUNK]
        inserted += _insert_chunk(op, collection, chunk, start, request.ordered, errors)
        if errors.entries and request.ordered:
            break
        op.check_interrupt()
        yield None
    op.service.metrics.documents["inserted"] += inserted
    return errors.add_to({"n": inserted})


def _insert_chunk(
    op: OperationContext, collection: Collection, chunk: list[bytes], start: int, ordered: bool, errors: WriteErrors
) -> int:
    """Tries the whole chunk at once; where that fails, one by one, to find out which document is at fault."""
    try:
        prepared = [prepare_document(op, document) for document in chunk]
        insert_batch(op, collection, prepared)
        return len(chunk)
    except (CommandError, DuplicateKey):
        return _insert_one_by_one(op, collection, chunk, start, ordered, errors)


def _insert_one_by_one(
    op: OperationContext,
    collection: Collection,
    documents: list[bytes],
    start: int,
    ordered: bool,
    errors: WriteErrors,
) -> int:
    inserted = 0
    for place, document in enumerate(documents):
        try:
            insert_document(op, collection, prepare_document(op, document))
            inserted += 1
        except CommandError as error:
            errors.add(start + place, error)
            if ordered:
                break
    return inserted


class UpdateStatement(NamedTuple):
    query: Annotated[bytes, Field("q", DOCUMENT_FIELD)]
    update: Annotated[Value, Field("u", PIPELINE_OR_DOCUMENT)]
    upsert: Annotated[bool, Field("upsert", BOOL_FIELD)] = False
    multi: Annotated[bool, Field("multi", BOOL_FIELD)] = False
    array_filters: Annotated[list[Value] | None, Field("arrayFilters", ARRAY_FIELD)] = None
    hint: Annotated[Value, Field("hint", HINT)] = MISSING
    collation: Annotated[bytes, Field("collation", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    constants: Annotated[bytes, Field("c", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    sort: Annotated[bytes, Field("sort", DOCUMENT_FIELD)] = EMPTY_DOCUMENT


class UpdateRequest(NamedTuple):
    collection: Annotated[str, Field("update", COLLECTION)]
    updates: Annotated[list[bytes], Field("updates", DOCUMENTS)]
    ordered: Annotated[bool, Field("ordered", BOOL_FIELD)] = True
    let: Annotated[bytes, Field("let", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    bypass: Annotated[Value, Field("bypassDocumentValidation", IGNORED)] = None
    statement_ids: Annotated[Value, Field("stmtIds", IGNORED)] = None
    encryption: Annotated[Value, Field("encryptionInformation", UNSUPPORTED)] = None


UPDATE_STATEMENT: Final[RequestParser] = parser_for("update.updates", UpdateStatement)


def _parsed(parser: RequestParser, statement: type[Any], documents: list[bytes]) -> list[Any]:
    return [statement._make(parser.parse(document, [], None)) for document in documents]


@command("update", UpdateRequest, help="Updates documents.", writes=True, counter="update")
def update(op: OperationContext, request: UpdateRequest) -> Steps[Reply]:
    """`n` counts matched and upserted documents, `nModified` those that changed."""
    check_batch(op, len(request.updates))
    check_database_name(op.database)
    check_new_collection_name(op.database, request.collection)
    statements: list[UpdateStatement] = _parsed(UPDATE_STATEMENT, UpdateStatement, request.updates)
    return _run_updates(op, request, statements)


def _run_updates(op: OperationContext, request: UpdateRequest, statements: list[UpdateStatement]) -> Steps[Reply]:
    errors = WriteErrors()
    upserted: list[Value] = []
    matched = modified = 0
    for place, statement in enumerate(statements):
        try:
            result = yield from run_update(op, request.collection, statement, request.let)
        except CommandError as error:
            if error.code in _WHOLE_COMMAND_ERRORS:
                raise
            errors.add(place, error)
            if request.ordered:
                break
            continue
        matched += result.matched
        modified += result.modified
        if result.upserted_id is not MISSING:
            upserted.append({"index": place, "_id": result.upserted_id})
        op.check_interrupt()
    reply: dict[str, Value] = {"n": matched, "nModified": modified}
    if upserted:
        reply["upserted"] = upserted
    return errors.add_to(reply)


# Errors that end a write command as a whole instead of one statement of it.
_WHOLE_COMMAND_ERRORS: Final = (
    ErrorCode.MaxTimeMSExpired,
    ErrorCode.Interrupted,
    ErrorCode.InterruptedAtShutdown,
)


def run_update(op: OperationContext, name: str, statement: UpdateStatement, let: bytes) -> Steps[UpdateResult]:
    """One statement of `update`."""
    check_collation(statement.collation)
    context = context_of(op, name, let)
    if not is_empty(statement.constants):
        if not isinstance(statement.update, list):
            raise CommandError(51198, "Constant values may only be specified for pipeline updates")
        context.let = {**context.let, **context_of(op, name, statement.constants).let}
    filters = check_array_filters(statement.array_filters)
    driver = parse_update(statement.update, context, filters)
    if statement.multi:
        if driver.kind == "replacement":
            raise CommandError(ErrorCode.FailedToParse, "multi update is not supported for replacement-style update")
        if not is_empty(statement.sort):
            raise CommandError(ErrorCode.FailedToParse, "Cannot specify sort with multi=true")
    match = parse_match(statement.query, context)
    natural = natural_order(statement.sort)
    sort: SortPattern | None = None
    if natural == 0 and not is_empty(statement.sort):
        sort = parse_sort(statement.sort)
    collection = op.catalog.lookup(op.database, name)
    selection = Selection(collection, match, sort, statement.hint, natural)
    if collection is not None:
        if statement.multi:
            result = yield from update_many(op, selection, driver)
        else:
            result = yield from update_one(op, selection, driver)
        if result.matched:
            return result
    if statement.upsert:
        return upsert(op, collection_for_write(op, name), driver, match, context)
    return UpdateResult()


def check_array_filters(filters: list[Value] | None) -> list[bytes] | None:
    if filters is None:
        return None
    checked: list[bytes] = []
    for place, item in enumerate(filters):
        if not isinstance(item, bytes):
            raise CommandError(
                ErrorCode.TypeMismatch,
                f"BSON field 'update.updates.arrayFilters.{place}' is the wrong type, expected type 'object'",
            )
        checked.append(item)
    return checked


class DeleteStatement(NamedTuple):
    query: Annotated[bytes, Field("q", DOCUMENT_FIELD)]
    limit: Annotated[Value, Field("limit", NUMBER)]
    hint: Annotated[Value, Field("hint", HINT)] = MISSING
    collation: Annotated[bytes, Field("collation", DOCUMENT_FIELD)] = EMPTY_DOCUMENT


class DeleteRequest(NamedTuple):
    collection: Annotated[str, Field("delete", COLLECTION)]
    deletes: Annotated[list[bytes], Field("deletes", DOCUMENTS)]
    ordered: Annotated[bool, Field("ordered", BOOL_FIELD)] = True
    let: Annotated[bytes, Field("let", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    statement_ids: Annotated[Value, Field("stmtIds", IGNORED)] = None
    encryption: Annotated[Value, Field("encryptionInformation", UNSUPPORTED)] = None


DELETE_STATEMENT: Final[RequestParser] = parser_for("delete.deletes", DeleteStatement)


@command("delete", DeleteRequest, help="Deletes documents.", writes=True, counter="delete")
def delete(op: OperationContext, request: DeleteRequest) -> Steps[Reply]:
    check_batch(op, len(request.deletes))
    check_database_name(op.database)
    check_new_collection_name(op.database, request.collection)
    statements: list[DeleteStatement] = _parsed(DELETE_STATEMENT, DeleteStatement, request.deletes)
    return _run_deletes(op, request, statements)


def _run_deletes(op: OperationContext, request: DeleteRequest, statements: list[DeleteStatement]) -> Steps[Reply]:
    errors = WriteErrors()
    deleted = 0
    for place, statement in enumerate(statements):
        try:
            deleted += yield from run_delete(op, request.collection, statement, request.let)
        except CommandError as error:
            if error.code in _WHOLE_COMMAND_ERRORS:
                raise
            errors.add(place, error)
            if request.ordered:
                break
        op.check_interrupt()
    return errors.add_to({"n": deleted if deleted < 2**31 else Int64(deleted)})


def run_delete(op: OperationContext, name: str, statement: DeleteStatement, let: bytes) -> Steps[int]:
    """One statement of `delete`: how many documents it deleted."""
    check_collation(statement.collation)
    if statement.limit not in (0, 1):
        raise CommandError(
            ErrorCode.FailedToParse, f"The limit field in delete objects must be 0 or 1. Got {statement.limit}"
        )
    match = parse_match(statement.query, context_of(op, name, let))
    selection = Selection(op.catalog.lookup(op.database, name), match, None, statement.hint)
    if statement.limit == 1:
        return 0 if (yield from delete_one(op, selection)) is None else 1
    return (yield from delete_many(op, selection))
