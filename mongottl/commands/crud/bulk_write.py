"""bulkWrite: inserts, updates and deletes in several collections by one command, with a cursor over their results.

Source: MongoDB's "bulkWrite" command reference (8.0) and the driver specification of the client's bulk write.
"""

from typing import Annotated, Any, Final, NamedTuple

from mongottl.catalog.namespace import check_new_collection_name, split_namespace
from mongottl.commands.access import cluster_needs, namespace_needs, needing, write_needs
from mongottl.commands.collection_uuid import check_uuid_of
from mongottl.commands.crud.delete import deleted_by, filter_of_delete, run_delete, run_deletes
from mongottl.commands.crud.insert import INSERT_BYTES, INSERT_CHUNK, insert_chunk
from mongottl.commands.crud.statement_batch import MOST_TOGETHER, keys_of_group, may_be_together
from mongottl.commands.crud.update import filter_of_update, result_of, run_update, run_updates
from mongottl.commands.crud.write_batch import (
    WriteErrors,
    check_batch,
    collection_for_insert,
    ends_command,
    number_statements,
    with_retried,
)
from mongottl.commands.crud.write_requests import DeleteStatement, UpdateStatement
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import (
    DOCUMENT_FIELD,
    DOCUMENTS,
    ONE,
    PIPELINE_OR_DOCUMENT,
    STRICT_BOOL,
    TEXT,
    UNSUPPORTED,
    WHOLE,
    Field,
    RequestParser,
    parser_for,
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
    Multi,
    Ordered,
    Sort,
    StatementId,
    StatementIds,
    Upsert,
)
from mongottl.commands.time_series import check_raw_data
from mongottl.document.bson_field import unknown_field
from mongottl.document.build import EMPTY_DOCUMENT, encode
from mongottl.document.freeing import LongList, freed_in_slices
from mongottl.document.numbers import whole
from mongottl.document.types import MISSING, Value, is_number
from mongottl.document.walk import first_field_name, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.write_options import write_options
from mongottl.exec.results.cursors import ClientCursor, ListPages
from mongottl.exec.results.reading import first_reply
from mongottl.exec.results.statement_runs import begin_statements
from mongottl.exec.sessions.retryable_writes import RetryableWrite
from mongottl.exec.write.modifying import UpdateResult
from mongottl.oplog.statements import Executed
from mongottl.security.privileges import INSERT, REMOVE, UPDATE, Need

RESULTS_NAMESPACE: Final = "admin.$cmd.bulkWrite"


class BulkWriteRequest(NamedTuple):
    command: Annotated[Value, Field("bulkWrite", ONE)]
    operations: Annotated[list[bytes], Field("ops", DOCUMENTS)]
    namespaces: Annotated[list[bytes], Field("nsInfo", DOCUMENTS)]
    ordered: Ordered = True
    bypass: BypassValidation = False
    keep_empty_timestamps: BypassTimestamps = False
    let: Let = EMPTY_DOCUMENT
    errors_only: Annotated[bool, Field("errorsOnly", STRICT_BOOL)] = False
    cursor: Annotated[bytes, Field("cursor", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    statement_ids: StatementIds = None
    statement_id: StatementId = None


class Namespace(NamedTuple):
    name: Annotated[str, Field("ns", TEXT)]
    collection_uuid: CollectionUuid = None
    encryption: EncryptionInformation = None


class CursorOptions(NamedTuple):
    batch_size: Annotated[int, Field("batchSize", WHOLE)] = -1


class InsertOperation(NamedTuple):
    namespace_index: Annotated[int, Field("insert", WHOLE)]
    document: Annotated[bytes, Field("document", DOCUMENT_FIELD)]


class UpdateOperation(NamedTuple):
    namespace_index: Annotated[int, Field("update", WHOLE)]
    filter: Annotated[bytes, Field("filter", DOCUMENT_FIELD)]
    modifications: Annotated[Value, Field("updateMods", PIPELINE_OR_DOCUMENT)]
    multi: Multi = False
    upsert: Upsert = False
    upsert_supplied: Annotated[Value, Field("upsertSupplied", UNSUPPORTED)] = None
    array_filters: ArrayFilters = None
    hint: Hint = MISSING
    constants: Annotated[bytes, Field("constants", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    collation: Collation = EMPTY_DOCUMENT
    sort: Sort = EMPTY_DOCUMENT


class DeleteOperation(NamedTuple):
    namespace_index: Annotated[int, Field("delete", WHOLE)]
    filter: Annotated[bytes, Field("filter", DOCUMENT_FIELD)]
    multi: Multi = False
    hint: Hint = MISSING
    collation: Collation = EMPTY_DOCUMENT


Operation = InsertOperation | UpdateOperation | DeleteOperation

_NAMESPACE: Final[RequestParser] = parser_for("bulkWrite.nsInfo", Namespace)
_CURSOR: Final[RequestParser] = parser_for("bulkWrite.cursor", CursorOptions)
_OPERATIONS: Final[dict[str, tuple[type[Any], RequestParser]]] = {
    "insert": (InsertOperation, parser_for("bulkWrite.ops", InsertOperation)),
    "update": (UpdateOperation, parser_for("bulkWrite.ops", UpdateOperation)),
    "delete": (DeleteOperation, parser_for("bulkWrite.ops", DeleteOperation)),
}


class Outcome:
    """The results so far: the counters of the reply, and an entry for each operation."""

    def __init__(self, op: OperationContext, errors_only: bool) -> None:
        self.errors_only = errors_only
        self.entries: list[bytes] = []
        self.failures = WriteErrors(op)
        self.errors = self.inserted = self.matched = self.modified = self.upserted = self.deleted = 0

    def succeeded(self, index: int, counts: dict[str, Value]) -> None:
        if not self.errors_only:
            self.entries.append(encode({"ok": 1.0, "idx": index, **counts}))

    def failed(self, index: int, entry: Value, counts: dict[str, Value]) -> None:
        """Adds the entry of a failed operation. entry: a document as in `writeErrors`."""
        assert isinstance(entry, dict)
        self.errors += 1
        reported = {name: value for name, value in entry.items() if name != "index"}
        self.entries.append(encode({"ok": 0.0, "idx": index, **reported, **counts}))

    def totals(self) -> dict[str, Value]:
        return {
            "nErrors": self.errors,
            "nInserted": self.inserted,
            "nMatched": self.matched,
            "nModified": self.modified,
            "nUpserted": self.upserted,
            "nDeleted": self.deleted,
        }


_ACTIONS: Final = {"insert": INSERT, "update": UPDATE, "delete": REMOVE}


def _bulk_write_needs(op: OperationContext, request: BulkWriteRequest) -> list[Need]:
    """What the operations need on their collections; each is an index into `nsInfo`."""
    wanted: dict[str, dict[str, None]] = {}
    names = [get_value(namespace, "ns") for namespace in request.namespaces]
    for operation in request.operations:
        kind = first_field_name(operation)
        index = get_value(operation, kind)
        at = whole(index) if is_number(index) else None
        if kind not in _ACTIONS or at is None or not 0 <= at < len(names):
            continue  # which is refused
        name = names[at]
        if isinstance(name, str):
            actions = wanted.setdefault(name, {})
            actions[_ACTIONS[kind]] = None
            if kind == "update" and get_value(operation, "upsert") is True:
                actions[INSERT] = None
    needs: list[Need] = []
    for name, actions in wanted.items():
        database, _, collection = name.partition(".")
        needs += write_needs(database, collection, list(actions), request.bypass)
    # Without an operation that can be run: what any other command on all these collections would need.
    return needs or [need for name in names for need in namespace_needs(str(name), "find")] or cluster_needs("internal")


@command(
    "bulkWrite",
    BulkWriteRequest,
    access=needing(_bulk_write_needs),
    help="Inserts, updates and deletes documents in several collections.",
    admin_only=True,
    writes=True,
    retryable=True,
    stable=True,
    raw_data=True,
    in_transaction=True,
    writes_anywhere=True,
)
def bulk_write(op: OperationContext, request: BulkWriteRequest) -> Reply:
    """`{cursor: {firstBatch: [{ok, idx, n, nModified, upserted: {_id}, code, errmsg}]}, nErrors, nInserted, …}`.

    With `errorsOnly` only failed operations. BadValue (2) for an index beyond `nsInfo` or an empty `nsInfo`,
    InvalidNamespace (73) for an invalid name in it, InvalidLength (16) for no or too many operations.
    """
    op.write_options = write_options(request.bypass, request.keep_empty_timestamps)
    check_batch(op, len(request.operations))
    if not request.namespaces:
        raise CommandError(ErrorCode.BadValue, "bulkWrite needs at least one entry in nsInfo")
    check_batch(op, len(request.namespaces))
    write = number_statements(op, "bulkWrite", len(request.operations), request.statement_id, request.statement_ids)
    namespaces: list[tuple[str, str]] = LongList()
    uuids: list[Value] = LongList()
    op.compute(lambda: _parse_namespaces(op, request, namespaces, uuids))
    operations = op.compute(lambda: _parsed_all(op, request, namespaces))
    options = CursorOptions._make(_CURSOR.parse(request.cursor, [], None))
    return _run(op, request, operations, namespaces, uuids, options.batch_size, write)


def _parse_namespaces(
    op: OperationContext, request: BulkWriteRequest, namespaces: list[tuple[str, str]], uuids: list[Value]
) -> None:
    """Adds the entries of `nsInfo`: database and collection, and the UUID that the collection must have."""
    for described in request.namespaces:
        namespace = Namespace._make(_NAMESPACE.parse(described, [], None))
        database, name = split_namespace(namespace.name, op.catalog.naming)
        check_new_collection_name(database, name, op.catalog.naming)
        if op.command.raw_data:
            check_raw_data(op, database, name)
        namespaces.append((database, name))
        uuids.append(namespace.collection_uuid)


def _parsed_all(op: OperationContext, request: BulkWriteRequest, namespaces: list[tuple[str, str]]) -> list[Operation]:
    return freed_in_slices(
        [_parsed(op, index, operation, namespaces) for index, operation in enumerate(request.operations)]
    )


def _parsed(op: OperationContext, index: int, operation: bytes, namespaces: list[tuple[str, str]]) -> Operation:
    name = first_field_name(operation)
    known = _OPERATIONS.get(name)
    if known is None:
        raise unknown_field(f"bulkWrite.ops.{index}.{name}")
    kind, parser = known
    parsed: Operation = kind._make(parser.parse(operation, [], None))
    if parsed.namespace_index >= len(namespaces):
        raise CommandError(ErrorCode.BadValue, f"BulkWrite ops entry {index} has an invalid nsInfo index.")
    if op.session.txn_number is not None and not isinstance(parsed, InsertOperation) and parsed.multi:
        raise CommandError(ErrorCode.InvalidOptions, "Cannot use retryable writes with multi=true")
    return parsed


def _run(
    op: OperationContext,
    request: BulkWriteRequest,
    operations: list[Operation],
    namespaces: list[tuple[str, str]],
    uuids: list[Value],
    batch_size: int,
    write: RetryableWrite | None,
) -> Reply:
    outcome = Outcome(op, request.errors_only)
    home = op.database
    may_group = may_be_together(op, write)
    index = grouped = 0
    while index < len(operations):
        operation = operations[index]
        op.database, name = namespaces[operation.namespace_index]
        op.cluster_time = op.service.cluster_clock.last  # each operation has its own `$$CLUSTER_TIME`
        if isinstance(operation, InsertOperation):
            end = _end_of_inserts(operations, index)
            if write is not None and write.is_retry:
                retried = write.pass_executed(index, end - index)
                outcome.inserted += retried
                for _ in range(retried):
                    outcome.succeeded(index, {"n": 1})
                    index += 1
                end = index + write.count_new(index, end - index)
            if index < end:
                begin_statements(op, index, end)
                uuid = uuids[operation.namespace_index]
                _insert(op, name, uuid, operations[index:end], index, request.ordered, outcome)
            index = end
        else:
            begin_statements(op, index, index + 1)
            together = 0
            try:
                check_uuid_of(op, _NAMESPACE.command, uuids[operation.namespace_index], name)
                if may_group and index >= grouped:
                    end = _end_of_group(operations, index)
                    keys = _keys_of_group(op, request, name, operations, index, end)
                    if keys:
                        together = _run_group(op, request, name, operations, index, keys, outcome)
                    if together == 0:
                        grouped = index + len(keys)
                if together == 0:
                    if len(operations) > 1:
                        op.begin_statement(request.operations[index], request.let)
                    executed = None if write is None else write.begin(index)
                    if isinstance(operation, UpdateOperation):
                        _update(op, name, operation, index, request.let, outcome, executed)
                    else:
                        _delete(op, name, operation, index, request.let, outcome, executed)
            except CommandError as error:
                if ends_command(op, error):
                    raise
                counts: dict[str, Value] = {"n": 0}
                if isinstance(operation, UpdateOperation):
                    counts["nModified"] = 0
                outcome.failed(index, outcome.failures.add(index, error), counts)
            index += max(together, 1)
        if outcome.errors and request.ordered:
            break
        op.check_interrupt()
        op.give_way()
    op.database = home
    pages = ListPages(outcome.entries)
    cursor = ClientCursor(RESULTS_NAMESPACE, pages, op.session_key, op.service.clock.monotonic_s())
    reply = first_reply(op, cursor, batch_size if batch_size >= 0 else len(outcome.entries) + 1)
    return with_retried(write, {**reply, **outcome.totals()})


def _end_of_inserts(operations: list[Operation], start: int) -> int:
    """The end of the inserts into one collection that begin at `start`, limited to one unit of work."""
    end = start
    size = 0
    while end < len(operations) and end - start < INSERT_CHUNK and size < INSERT_BYTES:
        operation = operations[end]
        if not isinstance(operation, InsertOperation) or operation.namespace_index != operations[start].namespace_index:
            break
        size += len(operation.document)
        end += 1
    return end


def _end_of_group(operations: list[Operation], start: int) -> int:
    """The end of the updates, or of the deletes, in one collection that begin at `start`, at most MOST_TOGETHER."""
    first = operations[start]
    end = start + 1
    while end < len(operations) and end - start < MOST_TOGETHER:
        operation = operations[end]
        if type(operation) is not type(first) or operation.namespace_index != first.namespace_index:
            break
        end += 1
    return end


def _keys_of_group(
    op: OperationContext, request: BulkWriteRequest, name: str, operations: list[Operation], first: int, end: int
) -> list[bytes]:
    """`keys_of_group` of the updates or deletes from `first` to `end`. A pipeline is executed alone, since
    `$$CLUSTER_TIME` is that of each operation."""
    filters: list[bytes | None] = []
    for operation in operations[first:end]:
        if isinstance(operation, UpdateOperation):
            is_pipeline = isinstance(operation.modifications, list)
            filters.append(None if is_pipeline else filter_of_update(_update_statement(operation)))
        elif isinstance(operation, DeleteOperation):
            filters.append(filter_of_delete(_delete_statement(operation), request.let))
    return keys_of_group(op, name, filters, request.operations[first:end])


def _run_group(
    op: OperationContext,
    request: BulkWriteRequest,
    name: str,
    operations: list[Operation],
    first: int,
    keys: list[bytes],
    outcome: Outcome,
) -> int:
    """Executes as many operations from `first` on together as have `keys`; how many, perhaps none."""
    group = operations[first : first + len(keys)]
    if isinstance(group[0], DeleteOperation):
        counts = run_deletes(op, name, keys, first, request.ordered)
        for place, deleted in enumerate(counts):
            _note_deleted(outcome, first + place, deleted)
        return len(counts)
    statements = [_update_statement(operation) for operation in group if isinstance(operation, UpdateOperation)]
    sent = request.operations[first : first + len(keys)]
    results = run_updates(op, name, statements, sent, request.let, first, keys, request.ordered)
    for place, result in enumerate(results):
        _note_updated(outcome, first + place, result)
    return len(results)


def _insert(
    op: OperationContext,
    name: str,
    uuid: Value,
    run: list[Operation],
    start: int,
    ordered: bool,
    outcome: Outcome,
) -> None:
    documents = [operation.document for operation in run if isinstance(operation, InsertOperation)]
    earlier = len(outcome.failures.entries)
    inserted = 0
    try:
        check_uuid_of(op, _NAMESPACE.command, uuid, name)
        collection = collection_for_insert(op, name)
        inserted = insert_chunk(op, name, collection, documents, start, ordered, outcome.failures)
    except CommandError as error:
        if ends_command(op, error):
            raise
        # The collection cannot be written to, so all documents fail.
        for index in range(start, start + (1 if ordered else len(documents))):
            outcome.failures.add(index, error)
    outcome.inserted += inserted
    op.service.metrics.documents["inserted"] += inserted
    failed: dict[int, Value] = {}
    for entry in outcome.failures.entries[earlier:]:
        assert isinstance(entry, dict)
        index = entry["index"]
        assert isinstance(index, int)
        failed[index] = entry
    for index in range(start, start + inserted + len(failed)):
        if index in failed:
            outcome.failed(index, failed[index], {"n": 0})
        else:
            outcome.succeeded(index, {"n": 1})


def _update(
    op: OperationContext,
    name: str,
    operation: UpdateOperation,
    index: int,
    let: bytes,
    outcome: Outcome,
    executed: Executed | None,
) -> None:
    statement = _update_statement(operation)
    _note_updated(outcome, index, run_update(op, name, statement, let) if executed is None else result_of(executed))


def _update_statement(operation: UpdateOperation) -> UpdateStatement:
    return UpdateStatement(
        query=operation.filter,
        update=operation.modifications,
        upsert=operation.upsert,
        multi=operation.multi,
        array_filters=operation.array_filters,
        hint=operation.hint,
        collation=operation.collation,
        constants=operation.constants,
        sort=operation.sort,
    )


def _note_updated(outcome: Outcome, index: int, result: UpdateResult) -> None:
    counts: dict[str, Value] = {"n": result.matched, "nModified": result.modified}
    outcome.modified += result.modified
    if result.upserted_id is MISSING:
        outcome.matched += result.matched
    else:
        outcome.upserted += 1
        counts["upserted"] = {"_id": result.upserted_id}
    outcome.succeeded(index, counts)


def _delete(
    op: OperationContext,
    name: str,
    operation: DeleteOperation,
    index: int,
    let: bytes,
    outcome: Outcome,
    executed: Executed | None,
) -> None:
    statement = _delete_statement(operation)
    _note_deleted(outcome, index, run_delete(op, name, statement, let) if executed is None else deleted_by(executed))


def _delete_statement(operation: DeleteOperation) -> DeleteStatement:
    return DeleteStatement(operation.filter, 0 if operation.multi else 1, operation.hint, operation.collation)


def _note_deleted(outcome: Outcome, index: int, deleted: int) -> None:
    outcome.deleted += deleted
    outcome.succeeded(index, {"n": deleted})
