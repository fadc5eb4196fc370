"""delete: see `write_batch`."""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.commands.access import needing, write_needs
from mongottl.commands.crud.statement_batch import StatementBatch, collection_of_group
from mongottl.commands.crud.write_batch import (
    check_batch,
    collection_if_any,
    is_prompt_write,
    number_statements,
    refused_by_uuid,
    with_retried,
)
from mongottl.commands.crud.write_requests import DeleteRequest, DeleteStatement
from mongottl.commands.query_context import context_of
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import RequestParser, made, parser_for
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.numbers import to_double
from mongottl.document.types import INT32, MISSING, Int64, Value
from mongottl.document.walk import find_field_at, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.express import express_key, express_record
from mongottl.exec.sessions.retryable_writes import RetryableWrite, other_write
from mongottl.exec.write.by_id import delete_by_ids
from mongottl.exec.write.modifying import (
    Selection,
    delete_many,
    delete_one,
)
from mongottl.exec.write.writes import delete_batch
from mongottl.oplog.statements import DELETED, Executed
from mongottl.query.match import parse_match
from mongottl.security.privileges import Need
from mongottl.storage.errors import WriteConflict

_STATEMENT: Final[RequestParser] = parser_for("delete.deletes", DeleteStatement)


def parse_delete_statement(document: bytes) -> DeleteStatement:
    """Parses `{q, limit, …}`. FailedToParse (9) of the whole command for a limit other than 0 and 1."""
    statement: DeleteStatement = made(DeleteStatement, _STATEMENT.parse(document, [], None))
    limit = to_double(statement.limit)
    if limit != 0 and limit != 1:
        raise CommandError(
            ErrorCode.FailedToParse, f"The limit field in delete objects must be 0 or 1. Got {statement.limit}"
        )
    return statement if isinstance(statement.limit, int) else statement._replace(limit=int(limit))


def _delete_needs(op: OperationContext, request: DeleteRequest) -> list[Need]:
    return write_needs(op.database, request.collection, ["remove"], request.bypass)


def _deletes_one_record(op: OperationContext, request: DeleteRequest) -> bool:
    """Whether a delete is expected to take the express path, and so to need no stack."""
    statements = request.statements
    if not is_prompt_write(op, statements):
        return False
    type_code, at = find_field_at(statements[0], 0, b"limit")
    return type_code == INT32 and statements[0][at] == 1


@command(
    "delete",
    DeleteRequest,
    access=needing(_delete_needs),
    help="Deletes documents.",
    writes=True,
    counter="delete",
    silent=True,
    retryable=True,
    stable=True,
    raw_data=True,
    latency="writes",
    in_transaction=True,
    is_prompt=_deletes_one_record,
)
def delete(op: OperationContext, request: DeleteRequest) -> Reply:
    """The reply's `n` counts deleted documents."""
    count = len(request.statements)
    check_batch(op, count)
    write = number_statements(op, "delete", count, request.statement_id, request.statement_ids)
    statements = op.compute(lambda: _parsed(request)) if op.is_long else _parsed(request)
    return _delete(op, request, statements, write)


def _parsed(request: DeleteRequest) -> list[DeleteStatement]:
    return [parse_delete_statement(document) for document in request.statements]


def _delete(
    op: OperationContext, request: DeleteRequest, statements: list[DeleteStatement], write: RetryableWrite | None
) -> Reply:
    refused = refused_by_uuid(
        op, "delete", request.collection_uuid, request.collection, len(statements), request.ordered
    )
    if refused is not None:
        return refused
    collection = collection_if_any(op, request.collection)
    if collection is not None and len(statements) == 1 and (write is None or not write.is_retry):
        reply = _delete_by_id(op, collection, statements[0], request.let)
        if reply is not None:
            op.count_statements("delete")
            return reply
    op.service.stacks.require()
    batch = _DeleteBatch(op, request, statements, write)
    batch.run()
    deleted = batch.deleted
    return with_retried(write, batch.errors.add_to({"n": deleted if deleted < 2**31 else Int64(deleted)}))


def _delete_by_id(
    op: OperationContext, collection: Collection, statement: DeleteStatement, let: bytes
) -> dict[str, Value] | None:
    """The reply to one delete by {_id: value} through the express path; None if that cannot execute it."""
    filter = filter_of_delete(statement, let)
    key = None if filter is None else express_key(collection, filter)
    if key is None:
        return None
    record = express_record(op, collection, key)
    if record is None:
        return {"n": 0}
    try:
        delete_batch(op, collection, [record])
    except WriteConflict:
        return None
    op.service.metrics.documents["deleted"] += 1
    return {"n": 1}


class _DeleteBatch(StatementBatch):
    """deleted: how many documents."""

    def __init__(
        self,
        op: OperationContext,
        request: DeleteRequest,
        statements: list[DeleteStatement],
        write: RetryableWrite | None,
    ) -> None:
        super().__init__(op, request, write)
        self._statements = statements
        self.deleted = 0

    def filters(self, first: int, end: int) -> list[bytes | None]:
        return [filter_of_delete(statement, self.request.let) for statement in self._statements[first:end]]

    def execute_together(self, first: int, keys: list[bytes]) -> int:
        results = run_deletes(self.op, self.request.collection, keys, first, self.request.ordered)
        self.deleted += sum(results)
        return len(results)

    def execute(self, index: int) -> None:
        self.deleted += run_delete(self.op, self.request.collection, self._statements[index], self.request.let)

    def note_executed(self, index: int, executed: Executed) -> None:
        self.deleted += deleted_by(executed)


def deleted_by(executed: Executed) -> int:
    """How many documents an earlier attempt has deleted. InvalidOptions (72) if it was no delete."""
    if executed.kind != DELETED:
        raise other_write("a delete")
    return 1


def filter_of_delete(statement: DeleteStatement, let: bytes) -> bytes | None:
    """The filter of a statement that may be executed by the `_id` that it names, together with others; None for a
    statement that may not. Nor may one with variables: each has a value, or an error, although `_id` needs none."""
    if statement.limit != 1 or statement.hint is not MISSING or statement.collation != EMPTY_DOCUMENT:
        return None
    return statement.query if is_empty(let) else None


def run_deletes(op: OperationContext, name: str, keys: list[bytes], first: int, ordered: bool) -> list[int]:
    """Executes the statements that have `keys` (`keys_of_group`) together, or the first of them; how many documents
    each has deleted, or nothing if they have to be executed alone. first: the position of the first one in its batch,
    ordered: of this."""
    collection = collection_of_group(op, name)
    if collection is None:
        return []
    results = [int(was_there) for was_there in delete_by_ids(op, collection, keys, first, ordered)]
    op.count_statements("delete", len(results))
    return results


def run_delete(op: OperationContext, name: str, statement: DeleteStatement, let: bytes) -> int:
    """Executes one statement of `delete`; how many documents it deleted."""
    op.count_statements("delete")
    context = context_of(op, name, let, statement.collation)
    if statement.limit == 0 and op.session.txn_number is not None:
        raise CommandError(ErrorCode.InvalidOptions, "Cannot use (or request) retryable writes with limit=0")
    match = op.compute(lambda: parse_match(statement.query, context, near=True))
    selection = Selection(op.catalog.lookup(op.database, name, time_series=True), match, None, statement.hint)
    if statement.limit == 1:
        return 0 if delete_one(op, selection) is None else 1
    return delete_many(op, selection)
