"""update: see `write_batch`."""

from functools import partial
from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.catalog.time_series import TimeSeries
from mongottl.commands.access import needing, write_needs
from mongottl.commands.crud.statement_batch import StatementBatch, collection_of_group
from mongottl.commands.crud.write_batch import (
    WriteErrors,
    check_batch,
    collection_for_write,
    collection_if_any,
    ends_command,
    is_prompt_write,
    number_statements,
    parsed_statements,
    refused_by_uuid,
    with_retried,
)
from mongottl.commands.crud.write_requests import UpdateRequest, UpdateStatement
from mongottl.commands.query_context import checked_metadata, context_for, context_of, natural_order
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import RequestParser, parser_for
from mongottl.commands.time_series import check_measurement_update
from mongottl.document.bson_field import wrong_type
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.types import MISSING, Value
from mongottl.document.walk import find_field_at, get_value, is_empty
from mongottl.errors import CommandError, DuplicateKeyError, ErrorCode, is_interruption
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.write_options import write_options
from mongottl.exec.plan.express import express_key, express_record
from mongottl.exec.sessions.retryable_writes import RetryableWrite, other_write
from mongottl.exec.write.by_id import UpdateById, update_by_ids
from mongottl.exec.write.modifying import (
    Selection,
    UpdateResult,
    apply_update,
    is_key_of_filter,
    update_many,
    update_one,
    upsert,
)
from mongottl.exec.write.waiting import await_transaction
from mongottl.oplog.statements import REFRESHED, UPDATED, UPSERTED, Executed
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match
from mongottl.query.pipeline import check_stage_names
from mongottl.query.sort import SortPattern, parse_sort
from mongottl.query.update import UpdateDriver, parse_update
from mongottl.security.privileges import INSERT, UPDATE, Need
from mongottl.storage.errors import WriteConflict

# How often an upsert is tried that each time loses to the insert of a document which is deleted before it is updated.
_MAX_LOST_UPSERTS: Final = 100

UPDATE_STATEMENT: Final[RequestParser] = parser_for("update.updates", UpdateStatement)


def _update_needs(op: OperationContext, request: UpdateRequest) -> list[Need]:
    upserts = any(get_value(statement, "upsert") is True for statement in request.statements)
    return write_needs(op.database, request.collection, [UPDATE, INSERT] if upserts else [UPDATE], request.bypass)


def _updates_one_record(op: OperationContext, request: UpdateRequest) -> bool:
    """Whether an update is expected to take the express path, and so to need no stack."""
    statements = request.statements
    if not is_prompt_write(op, statements):
        return False
    type_code, at = find_field_at(statements[0], 0, b"upsert")
    return type_code == 0 or statements[0][at] == 0


@command(
    "update",
    UpdateRequest,
    access=needing(_update_needs),
    help="Updates documents.",
    writes=True,
    counter="update",
    silent=True,
    retryable=True,
    stable=True,
    raw_data=True,
    latency="writes",
    in_transaction=True,
    is_prompt=_updates_one_record,
)
def update(op: OperationContext, request: UpdateRequest) -> Reply:
    """The reply's `n` counts matched and upserted documents, `nModified` those that changed.

    An unknown stage in an update pipeline is an error of the whole command (40324), other errors of their statement.
    """
    count = len(request.statements)
    check_batch(op, count)
    op.write_options = write_options(request.bypass, request.keep_empty_timestamps)
    write = number_statements(op, "update", count, request.statement_id, request.statement_ids)
    statements = op.compute(lambda: _parsed(request)) if op.is_long else _parsed(request)
    return _update(op, request, statements, write)


def _parsed(request: UpdateRequest) -> list[UpdateStatement]:
    statements: list[UpdateStatement] = parsed_statements(UPDATE_STATEMENT, UpdateStatement, request.statements)
    for statement in statements:
        if isinstance(statement.update, list):
            check_stage_names(statement.update)
    return statements


def _update(
    op: OperationContext, request: UpdateRequest, statements: list[UpdateStatement], write: RetryableWrite | None
) -> Reply:
    refused = refused_by_uuid(
        op, "update", request.collection_uuid, request.collection, len(statements), request.ordered
    )
    if refused is not None:
        return {**refused, "nModified": 0}
    collection = collection_if_any(op, request.collection)
    if collection is not None and len(statements) == 1 and not op.is_long and (write is None or not write.is_retry):
        reply = _update_by_id(op, collection, statements[0], request.let)
        if reply is not None:
            op.count_statements("update")
            return reply
    op.service.stacks.require()
    batch = _UpdateBatch(op, request, statements, write)
    batch.run()
    counts: dict[str, Value] = {"n": batch.matched, "nModified": batch.modified}
    if batch.upserted:
        counts["upserted"] = batch.upserted
    return with_retried(write, batch.errors.add_to(counts))


def _update_by_id(
    op: OperationContext, collection: Collection, statement: UpdateStatement, let: bytes
) -> dict[str, Value] | None:
    """The reply to one update by {_id: value} through the express path; None if that cannot execute it."""
    if statement.multi or statement.hint is not MISSING or statement.collation != EMPTY_DOCUMENT:
        return None
    key = express_key(collection, statement.query)
    if key is None:
        return None
    record = express_record(op, collection, key)
    if record is None:
        return None
    result = UpdateResult()
    try:
        context = context_for(op, collection, let)
        driver = parse_update_statement(op, collection.name, statement, context)
        if driver.needs_positional or op.scripts is not None or context.reads_metadata:
            return None
        apply_update(op, collection, None, record, driver, result)
    except CommandError as error:
        if ends_command(op, error):
            raise
        errors = WriteErrors(op)
        errors.add(0, error)
        return errors.add_to({"n": 0, "nModified": 0})
    except WriteConflict:
        return None
    return {"n": result.matched, "nModified": result.modified}


class _UpdateBatch(StatementBatch):
    """matched, modified: how many documents. upserted: the entries of the reply."""

    def __init__(
        self,
        op: OperationContext,
        request: UpdateRequest,
        statements: list[UpdateStatement],
        write: RetryableWrite | None,
    ) -> None:
        super().__init__(op, request, write)
        self._statements = statements
        self.matched = 0
        self.modified = 0
        self.upserted: list[Value] = []

    def filters(self, first: int, end: int) -> list[bytes | None]:
        return [filter_of_update(statement) for statement in self._statements[first:end]]

    def execute_together(self, first: int, keys: list[bytes]) -> int:
        end = first + len(keys)
        statements, sent = self._statements[first:end], self.request.statements[first:end]
        results = run_updates(
            self.op, self.request.collection, statements, sent, self.request.let, first, keys, self.request.ordered
        )
        for place, result in enumerate(results):
            self._note(first + place, result)
        return len(results)

    def execute(self, index: int) -> None:
        self._note(index, run_update(self.op, self.request.collection, self._statements[index], self.request.let))

    def note_executed(self, index: int, executed: Executed) -> None:
        self._note(index, result_of(executed))

    def _note(self, index: int, result: UpdateResult) -> None:
        self.matched += result.matched
        self.modified += result.modified
        if result.upserted_id is not MISSING:
            self.upserted.append({"index": index, "_id": result.upserted_id})


def result_of(executed: Executed) -> UpdateResult:
    """The result of an update that an earlier attempt has executed. InvalidOptions (72) if that was no update."""
    if executed.kind not in (UPSERTED, UPDATED, REFRESHED):
        raise other_write("an update")
    result = UpdateResult()
    result.matched = 1
    if executed.kind == UPSERTED:
        result.upserted_id = executed.upserted_id
    elif executed.kind == UPDATED:
        result.modified = 1
    return result


def filter_of_update(statement: UpdateStatement) -> bytes | None:
    """The filter of a statement that may be executed together with others, if it names an `_id`; else None."""
    if statement.multi or statement.hint is not MISSING or statement.collation != EMPTY_DOCUMENT:
        return None
    return statement.query if is_empty(statement.sort) else None


def run_updates(
    op: OperationContext,
    name: str,
    statements: list[UpdateStatement],
    sent: list[bytes],
    let: bytes,
    first: int,
    keys: list[bytes],
    ordered: bool,
) -> list[UpdateResult]:
    """Executes as many of these statements together as have `keys` (`keys_of_group`), or those before the first that
    has to be executed alone; their results, perhaps none.

    first: the position of the first one in its batch, ordered: of this. sent: the statements as they were sent.
    """
    collection = collection_of_group(op, name)
    if collection is None:
        return []
    updates: list[UpdateById] = []
    try:
        for place, key in enumerate(keys):
            op.begin_statement(sent[place], let)
            update = op.compute(partial(_parsed_by_id, op, collection, statements[place], let, key))
            if update.driver.needs_positional or op.scripts is not None or update.context.reads_metadata:
                return []
            updates.append(update)
    except CommandError as error:
        if is_interruption(error):
            raise
        return []
    results = update_by_ids(op, collection, updates, first, ordered)
    op.count_statements("update", len(results))
    return results


def _parsed_by_id(
    op: OperationContext, collection: Collection, statement: UpdateStatement, let: bytes, key: bytes
) -> UpdateById:
    context = context_for(op, collection, let)
    driver = parse_update_statement(op, collection.name, statement, context)
    match = parse_match(statement.query, context)
    return UpdateById(key, match, driver, context, bool(statement.upsert))


def run_update(op: OperationContext, name: str, statement: UpdateStatement, let: bytes) -> UpdateResult:
    """Executes one statement of `update`."""
    op.count_statements("update")
    context = context_of(op, name, let, statement.collation)
    driver = op.compute(lambda: parse_update_statement(op, name, statement, context))
    if statement.multi:
        if op.session.txn_number is not None:
            raise CommandError(ErrorCode.InvalidOptions, "Cannot use (or request) retryable writes with multi=true")
        if not is_empty(statement.sort):
            raise CommandError(ErrorCode.FailedToParse, "Cannot specify sort with multi=true")
    match = op.compute(lambda: parse_match(statement.query, context, near=True))
    natural = natural_order(statement.sort)
    sort: SortPattern | None = None
    if natural == 0 and not is_empty(statement.sort):
        sort = parse_sort(statement.sort, context.collation)
    metadata = checked_metadata(context, sort)
    collection = op.catalog.lookup(op.database, name, time_series=True)
    series: TimeSeries | None = None
    while collection is not None and collection.time_series is not series:
        series = collection.time_series
        if series is not None:
            op.compute(partial(check_measurement_update, series, statement.query, statement.update, statement.multi))
            if statement.upsert:
                raise CommandError(ErrorCode.InvalidOptions, "Cannot perform an upsert on a time-series collection")
            collection = op.catalog.lookup(op.database, name, time_series=True)  # others may have run
    selection = Selection(collection, match, sort, statement.hint, natural, metadata)
    if statement.multi:
        result = update_many(op, selection, driver)
    else:
        result = update_one(op, selection, driver)
    if not result.matched and statement.upsert:
        return upsert_or_update(op, name, selection, driver, context, statement.multi)
    return result


def parse_update_statement(
    op: OperationContext, name: str, statement: UpdateStatement, context: ParseContext
) -> UpdateDriver:
    """Parses a statement's `u`, `c` and `arrayFilters`. FailedToParse (9) for a replacement with `multi`."""
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
    op: OperationContext, name: str, selection: Selection, driver: UpdateDriver, context: ParseContext, multi: bool
) -> UpdateResult:
    """Inserts the document of an upsert; if another client inserts a matching one first, updates that instead.

    The other document can be deleted before the update finds it; then the insert is tried again. DuplicateKey (11000)
    if `is_key_of_filter` says that the other document need not match, and always with `multi`.
    """
    lost = 0
    while lost < _MAX_LOST_UPSERTS:
        lost += 1
        try:
            return upsert(op, collection_for_write(op, name), driver, selection.match, context)
        except DuplicateKeyError as error:
            if multi or not is_key_of_filter(error, selection.match):
                raise
        except WriteConflict as conflict:
            if await_transaction(op, conflict):
                lost -= 1
        op.check_interrupt()
        op.refresh_now()  # the insert goes by this instant, at which a document may live that had been expired
        selection.collection = op.catalog.lookup(op.database, name)
        result = update_one(op, selection, driver)
        if result.matched:
            return result
    raise CommandError(ErrorCode.WriteConflict, "the document kept changing; try again")


def check_array_filters(filters: list[Value]) -> list[bytes]:
    checked: list[bytes] = []
    for index, item in enumerate(filters):
        if not isinstance(item, bytes):
            raise wrong_type(f"update.updates.arrayFilters.{index}", item, "object")
        checked.append(item)
    return checked
