"""insert, update, delete: batches of statements, each of which may fail by itself.

The reply counts what was done (`n`, `nModified`, `upserted`) and lists the failed statements under `writeErrors`; with
`ordered` (the default) the first failure ends the batch.
"""

from typing import Annotated, Any, Final, NamedTuple

from mongottl.catalog.collection import Collection
from mongottl.catalog.namespace import check_database_name, check_new_collection_name
from mongottl.commands.collection_uuid import mismatch_in_batch
from mongottl.commands.reads import checked_metadata, context_of, find_by_id, natural_order
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import (
    ANY,
    ARRAY_FIELD,
    BOOL_FIELD,
    COLLECTION,
    DOCUMENT_FIELD,
    DOCUMENTS,
    HINT,
    IGNORED,
    NUMBER,
    PIPELINE_OR_DOCUMENT,
    STRICT_BOOL,
    UNSUPPORTED,
    Field,
    RequestParser,
    parser_for,
)
from mongottl.commands.time_series import check_measurement_update
from mongottl.document.bson_field import wrong_type
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.types import MISSING, Int64, Value
from mongottl.document.walk import is_empty
from mongottl.errors import CommandError, DuplicateKeyError, ErrorCode
from mongottl.exec.context import OperationContext, Steps
from mongottl.exec.modifying import (
    Selection,
    UpdateResult,
    apply_update,
    delete_many,
    delete_one,
    update_many,
    update_one,
    upsert,
)
from mongottl.exec.writes import delete_batch, insert_batch, insert_document, prepare_document
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match, simple_id_filter
from mongottl.query.sort import SortPattern, parse_sort
from mongottl.query.update import UpdateDriver, parse_update
from mongottl.storage.interface import DuplicateKey, WriteConflict

# Documents of one unit of work; between two of them other clients run.
INSERT_CHUNK: Final = 500
# Of error messages in one reply.
MAX_ERROR_BYTES: Final = 1024 * 1024


class InsertRequest(NamedTuple):
    collection: Annotated[str, Field("insert", COLLECTION)]
    documents: Annotated[list[bytes], Field("documents", DOCUMENTS)]
    ordered: Annotated[bool, Field("ordered", STRICT_BOOL)] = True
    bypass: Annotated[bool, Field("bypassDocumentValidation", BOOL_FIELD)] = False
    statement_ids: Annotated[list[Value] | None, Field("stmtIds", ARRAY_FIELD)] = None
    statement_id: Annotated[Value, Field("stmtId", IGNORED)] = None
    encryption: Annotated[Value, Field("encryptionInformation", UNSUPPORTED)] = None
    collection_uuid: Annotated[Value, Field("collectionUUID", ANY)] = None


class WriteErrors:
    """The failed statements of a batch."""

    def __init__(self) -> None:
        self.entries: list[Value] = []
        self._size = 0

    def add(self, index: int, error: CommandError) -> Value:
        """Behind MAX_ERROR_BYTES of earlier ones index and code must do: the reply has to fit a message."""
        entry: dict[str, Value] = {"index": index, "code": error.code}
        before = self._size
        info = error.details.get("errInfo")
        self._size += len(error.message) + (len(info) if isinstance(info, bytes) else 0)
        if before <= MAX_ERROR_BYTES:
            entry.update(error.details)
            entry["errmsg"] = error.message
        else:
            entry["errmsg"] = ""
        self.entries.append(entry)
        return entry

    def add_to(self, reply: dict[str, Value]) -> dict[str, Value]:
        if self.entries:
            reply["writeErrors"] = self.entries
        return reply


def _refused_by_uuid(
    op: OperationContext, command: str, uuid: Value, name: str, statements: int, ordered: bool
) -> dict[str, Value] | None:
    """The reply to a batch that is meant for another collection than the one of that name; None if it is not."""
    error = mismatch_in_batch(op, command, uuid, name)
    if error is None:
        return None
    errors = WriteErrors()
    for place in range(1 if ordered else statements):
        errors.add(place, error)
    return errors.add_to({"n": 0})


def check_batch(op: OperationContext, size: int) -> None:
    """InvalidLength (16) for a batch without statements or with too many."""
    limit = op.service.dialect.max_write_batch_size
    if size < 1 or size > limit:
        raise CommandError(
            ErrorCode.InvalidLength, f"Write batch sizes must be between 1 and {limit}. Got {size} operations."
        )


def collection_for_write(op: OperationContext, name: str) -> Collection:
    """The collection, made now if it does not exist."""
    collection = op.catalog.lookup(op.database, name, time_series=True)
    if collection is not None:
        return collection
    op.catalog.check_new_name(op.database, name)
    collection = op.catalog.create_collection(op.database, name)
    op.service.note_write()
    return collection


@command("insert", InsertRequest, help="Inserts documents.", writes=True, counter="insert")
def insert(op: OperationContext, request: InsertRequest) -> Reply | Steps[Reply]:
    """Documents without `_id` get an ObjectId. Duplicate keys are writeErrors with code 11000."""
    documents = request.documents
    check_batch(op, len(documents))
    op.bypass_validation = request.bypass
    if request.statement_ids is not None:
        check_statement_ids(request.statement_ids, len(documents))
    refused = _refused_by_uuid(
        op, "insert", request.collection_uuid, request.collection, len(documents), request.ordered
    )
    if refused is not None:
        return refused
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
        inserted += insert_chunk(op, collection, chunk, start, request.ordered, errors)
        if errors.entries and request.ordered:
            break
        op.check_interrupt()
        yield None
    op.service.metrics.documents["inserted"] += inserted
    return errors.add_to({"n": inserted})


def insert_chunk(
    op: OperationContext, collection: Collection, chunk: list[bytes], start: int, ordered: bool, errors: WriteErrors
) -> int:
    """Tries the whole chunk at once; where that fails, one by one, to find out which document is at fault."""
    try:
        prepared = [prepare_document(op, document) for document in chunk]
        insert_batch(op, collection, prepared)
        return len(chunk)
    except (CommandError, DuplicateKey, WriteConflict):
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
    upsert: Annotated[bool, Field("upsert", STRICT_BOOL)] = False
    multi: Annotated[bool, Field("multi", STRICT_BOOL)] = False
    array_filters: Annotated[list[Value] | None, Field("arrayFilters", ARRAY_FIELD)] = None
    hint: Annotated[Value, Field("hint", HINT)] = MISSING
    collation: Annotated[bytes, Field("collation", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    constants: Annotated[bytes, Field("c", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    sort: Annotated[bytes, Field("sort", DOCUMENT_FIELD)] = EMPTY_DOCUMENT


class UpdateRequest(NamedTuple):
    collection: Annotated[str, Field("update", COLLECTION)]
    updates: Annotated[list[bytes], Field("updates", DOCUMENTS)]
    ordered: Annotated[bool, Field("ordered", STRICT_BOOL)] = True
    let: Annotated[bytes, Field("let", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    bypass: Annotated[bool, Field("bypassDocumentValidation", BOOL_FIELD)] = False
    statement_ids: Annotated[list[Value] | None, Field("stmtIds", ARRAY_FIELD)] = None
    statement_id: Annotated[Value, Field("stmtId", IGNORED)] = None
    encryption: Annotated[Value, Field("encryptionInformation", UNSUPPORTED)] = None
    collection_uuid: Annotated[Value, Field("collectionUUID", ANY)] = None


UPDATE_STATEMENT: Final[RequestParser] = parser_for("update.updates", UpdateStatement)


def _parsed(parser: RequestParser, statement: type[Any], documents: list[bytes]) -> list[Any]:
    return [statement._make(parser.parse(document, [], None)) for document in documents]


@command("update", UpdateRequest, help="Updates documents.", writes=True, counter="update")
def update(op: OperationContext, request: UpdateRequest) -> Reply | Steps[Reply]:
    """`n` counts matched and upserted documents, `nModified` those that changed."""
    check_batch(op, len(request.updates))
    op.bypass_validation = request.bypass
    check_statement_ids(request.statement_ids, len(request.updates))
    statements: list[UpdateStatement] = _parsed(UPDATE_STATEMENT, UpdateStatement, request.updates)
    refused = _refused_by_uuid(
        op, "update", request.collection_uuid, request.collection, len(statements), request.ordered
    )
    if refused is not None:
        return {**refused, "nModified": 0}
    collection = op.catalog.lookup(op.database, request.collection, time_series=True)
    if collection is None:
        check_database_name(op.database)
        check_new_collection_name(op.database, request.collection)
    elif len(statements) == 1 and collection.id_index is not None:
        reply = _update_by_id(op, collection, statements[0], request.let)
        if reply is not None:
            return reply
    return _run_updates(op, request, statements)


def _update_by_id(
    op: OperationContext, collection: Collection, statement: UpdateStatement, let: bytes
) -> dict[str, Value] | None:
    """The reply to a single update of {_id: value}, or None if it takes more than a look into the index on `_id`."""
    type_code, pos = simple_id_filter(statement.query)
    if type_code == 0 or statement.multi or statement.hint is not MISSING or statement.collation != EMPTY_DOCUMENT:
        return None
    record = find_by_id(op, collection, statement.query, type_code, pos)
    if record is None:
        return None
    errors = WriteErrors()
    result = UpdateResult()
    try:
        driver = parse_update_statement(op, collection.name, statement, context_of(op, collection.name, let))
        if driver.needs_positional:
            return None
        apply_update(op, collection, None, record, driver, result)
    except CommandError as error:
        errors.add(0, error)
    except WriteConflict:
        return None
    return errors.add_to({"n": result.matched, "nModified": result.modified})


def _run_updates(op: OperationContext, request: UpdateRequest, statements: list[UpdateStatement]) -> Steps[Reply]:
    errors = WriteErrors()
    upserted: list[Value] = []
    matched = modified = 0
    for place, statement in enumerate(statements):
        try:
            result = yield from run_update(op, request.collection, statement, request.let)
        except CommandError as error:
            if error.code in WHOLE_COMMAND_ERRORS:
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
WHOLE_COMMAND_ERRORS: Final = (
    ErrorCode.MaxTimeMSExpired,
    ErrorCode.Interrupted,
    ErrorCode.InterruptedAtShutdown,
)


def run_update(op: OperationContext, name: str, statement: UpdateStatement, let: bytes) -> Steps[UpdateResult]:
    """One statement of `update`."""
    context = context_of(op, name, let, statement.collation)
    driver = parse_update_statement(op, name, statement, context)
    if statement.multi:
        if op.txn_number is not None:
            raise CommandError(ErrorCode.InvalidOptions, "Cannot use (or request) retryable writes with multi=true")
        if not is_empty(statement.sort):
            raise CommandError(ErrorCode.FailedToParse, "Cannot specify sort with multi=true")
    match = parse_match(statement.query, context, near=True)
    natural = natural_order(statement.sort)
    sort: SortPattern | None = None
    if natural == 0 and not is_empty(statement.sort):
        sort = parse_sort(statement.sort, context.collation)
    metadata = checked_metadata(context, sort)
    collection = op.catalog.lookup(op.database, name, time_series=True)
    if collection is not None and collection.time_series is not None:
        check_measurement_update(collection.time_series, statement.query, statement.update, statement.multi)
        if statement.upsert:
            raise CommandError(ErrorCode.InvalidOptions, "Cannot perform an upsert on a time-series collection")
    selection = Selection(collection, match, sort, statement.hint, natural, metadata)
    if statement.multi:
        result = yield from update_many(op, selection, driver)
    else:
        result = yield from update_one(op, selection, driver)
    if not result.matched and statement.upsert:
        return (yield from upsert_or_update(op, name, selection, driver, context))
    return result


def parse_update_statement(
    op: OperationContext, name: str, statement: UpdateStatement, context: ParseContext
) -> UpdateDriver:
    """What a statement's `u`, `c` and `arrayFilters` do. FailedToParse (9) for a replacement of many documents."""
    if not is_empty(statement.constants):
        if not isinstance(statement.update, list):
            raise CommandError(51198, "Constant values may only be specified for pipeline updates")
        context.let = {**context.let, **context_of(op, name, statement.constants, statement.collation).let}
    filters = None if statement.array_filters is None else check_array_filters(statement.array_filters)
    driver = parse_update(statement.update, context, filters)
    if statement.multi and driver.kind == "replacement":
        raise CommandError(ErrorCode.FailedToParse, "multi update is not supported for replacement-style update")
    return driver


def upsert_or_update(
    op: OperationContext, name: str, selection: Selection, driver: UpdateDriver, context: ParseContext
) -> Steps[UpdateResult]:
    """Inserts what an upsert makes; updates instead where another client has just inserted a document that matches."""
    try:
        return upsert(op, collection_for_write(op, name), driver, selection.match, context)
    except DuplicateKeyError:
        selection.collection = op.catalog.lookup(op.database, name)
        result = yield from update_one(op, selection, driver)
        if not result.matched:
            raise
        return result


def check_statement_ids(ids: list[Value] | None, size: int) -> None:
    """One for each statement of a retryable batch. InvalidLength (16) where their number differs."""
    if ids is None:
        return
    if len(ids) != size:
        raise CommandError(
            ErrorCode.InvalidLength,
            f"Number of statement ids must match the number of batch entries. Got {len(ids)} statement ids but {size}"
            " operations.",
        )
    for place, value in enumerate(ids):
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong_type(f"stmtIds.{place}", value, "int")


def check_array_filters(filters: list[Value]) -> list[bytes]:
    checked: list[bytes] = []
    for place, item in enumerate(filters):
        if not isinstance(item, bytes):
            raise wrong_type(f"update.updates.arrayFilters.{place}", item, "object")
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
    ordered: Annotated[bool, Field("ordered", STRICT_BOOL)] = True
    let: Annotated[bytes, Field("let", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    bypass: Annotated[bool, Field("bypassDocumentValidation", BOOL_FIELD)] = False
    statement_ids: Annotated[list[Value] | None, Field("stmtIds", ARRAY_FIELD)] = None
    statement_id: Annotated[Value, Field("stmtId", IGNORED)] = None
    encryption: Annotated[Value, Field("encryptionInformation", UNSUPPORTED)] = None
    collection_uuid: Annotated[Value, Field("collectionUUID", ANY)] = None


DELETE_STATEMENT: Final[RequestParser] = parser_for("delete.deletes", DeleteStatement)


@command("delete", DeleteRequest, help="Deletes documents.", writes=True, counter="delete")
def delete(op: OperationContext, request: DeleteRequest) -> Reply | Steps[Reply]:
    """`n` counts deleted documents."""
    check_batch(op, len(request.deletes))
    check_statement_ids(request.statement_ids, len(request.deletes))
    statements: list[DeleteStatement] = _parsed(DELETE_STATEMENT, DeleteStatement, request.deletes)
    refused = _refused_by_uuid(
        op, "delete", request.collection_uuid, request.collection, len(statements), request.ordered
    )
    if refused is not None:
        return refused
    collection = op.catalog.lookup(op.database, request.collection, time_series=True)
    if collection is None:
        check_database_name(op.database)
        check_new_collection_name(op.database, request.collection)
    elif len(statements) == 1 and collection.id_index is not None:
        reply = _delete_by_id(op, collection, statements[0])
        if reply is not None:
            return reply
    return _run_deletes(op, request, statements)


def _delete_by_id(op: OperationContext, collection: Collection, statement: DeleteStatement) -> dict[str, Value] | None:
    """The reply to a single delete of {_id: value}, or None if it takes more than a look into the index on `_id`."""
    type_code, pos = simple_id_filter(statement.query)
    if type_code == 0 or statement.limit != 1 or statement.hint is not MISSING or statement.collation != EMPTY_DOCUMENT:
        return None
    record = find_by_id(op, collection, statement.query, type_code, pos)
    if record is None:
        return {"n": 0}
    try:
        delete_batch(op, collection, [record])
    except WriteConflict:
        return None
    op.service.metrics.documents["deleted"] += 1
    return {"n": 1}


def _run_deletes(op: OperationContext, request: DeleteRequest, statements: list[DeleteStatement]) -> Steps[Reply]:
    errors = WriteErrors()
    deleted = 0
    for place, statement in enumerate(statements):
        try:
            deleted += yield from run_delete(op, request.collection, statement, request.let)
        except CommandError as error:
            if error.code in WHOLE_COMMAND_ERRORS:
                raise
            errors.add(place, error)
            if request.ordered:
                break
        op.check_interrupt()
    return errors.add_to({"n": deleted if deleted < 2**31 else Int64(deleted)})


def run_delete(op: OperationContext, name: str, statement: DeleteStatement, let: bytes) -> Steps[int]:
    """One statement of `delete`: how many documents it deleted."""
    context = context_of(op, name, let, statement.collation)
    if statement.limit not in (0, 1):
        raise CommandError(
            ErrorCode.FailedToParse, f"The limit field in delete objects must be 0 or 1. Got {statement.limit}"
        )
    if statement.limit == 0 and op.txn_number is not None:
        raise CommandError(ErrorCode.InvalidOptions, "Cannot use (or request) retryable writes with limit=0")
    match = parse_match(statement.query, context, near=True)
    selection = Selection(op.catalog.lookup(op.database, name, time_series=True), match, None, statement.hint)
    if statement.limit == 1:
        return 0 if (yield from delete_one(op, selection)) is None else 1
    return (yield from delete_many(op, selection))
