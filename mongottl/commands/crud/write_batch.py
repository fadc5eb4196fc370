"""Batches of insert, update, delete and bulkWrite, whose statements can fail one by one.

The reply counts the results (`n`, `nModified`, `upserted`) and lists the failed statements in `writeErrors`; with
`ordered` (the default) the first failure ends the batch.
"""

from typing import Any, Final

from mypy_extensions import i64

from mongottl.catalog.collection import Collection
from mongottl.catalog.namespace import check_new_collection_name
from mongottl.commands.collection_uuid import mismatch_in_batch
from mongottl.commands.request import RequestParser, made
from mongottl.document.bson_field import wrong_type
from mongottl.document.build import encode
from mongottl.document.interrupt import Undivided
from mongottl.document.types import DOCUMENT, INT_MAX, Int64, Value
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import find_field_at, skip_value
from mongottl.errors import CommandError, ErrorCode, WriteError, is_interruption
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.statement_errors import StatementErrors
from mongottl.exec.sessions.retryable_writes import RetryableWrite

# Bytes of error messages and details in one reply, which the last one may exceed; and maximum bytes of one of them.
MAX_ERROR_BYTES: Final = 1024 * 1024
MAX_ONE_ERROR_BYTES: Final = 10 * 1024 * 1024
# Characters that are kept of a truncated message.
_BEGINNING: Final = 1024


class WriteErrors(StatementErrors):
    """The failed statements of a batch, which are those of its operation, too.

    interrupted: whether the operation is to end, so that no further statement is carried out.
    """

    def __init__(self, op: OperationContext) -> None:
        super().__init__()
        self.interrupted = False
        op.profile.statement_errors = self
        self._size = 0

    def add(self, index: int, error: CommandError) -> Value:
        """Adds a failed statement; its entry. index: of the statement.

        After MAX_ERROR_BYTES, entries have only index and code, so that 100,000 fit into one reply. A larger error than
        MAX_ONE_ERROR_BYTES (a duplicate key may have 16 MiB) has only the beginning of its message.
        """
        error.complete()
        self.interrupted = self.interrupted or is_interruption(error)
        entry: dict[str, Value] = {"index": index, "code": error.code}
        if self._size > MAX_ERROR_BYTES:
            entry["errmsg"] = ""
        else:
            size = len(encode_text(error.message)) + len(encode(error.details))
            if size <= MAX_ONE_ERROR_BYTES:
                entry.update(error.details)
                entry["errmsg"] = error.message
                self._size += size
            else:
                entry["errmsg"] = f"{error.message[:_BEGINNING]}..."
                self._size += _BEGINNING
        if error.advice:
            self.advice[len(self.entries)] = error.advice
        self.entries.append(entry)
        return entry

    def add_to(self, reply: dict[str, Value]) -> dict[str, Value]:
        if self.entries:
            reply["writeErrors"] = self.entries
        return reply


def refused_by_uuid(
    op: OperationContext, command: str, uuid: Value, name: str, statements: int, ordered: bool
) -> dict[str, Value] | None:
    """The reply to a batch whose `collectionUUID` does not match its collection; None if it matches."""
    error = mismatch_in_batch(op, command, uuid, name)
    if error is None:
        return None
    errors = WriteErrors(op)
    for index in range(1 if ordered else statements):
        errors.add(index, error)
    return errors.add_to({"n": 0})


def failed_batch(op: OperationContext, counter: str, error: CommandError, count: int) -> dict[str, Value]:
    """The reply to a write command whose first `count` statements fail with an error, and no other is executed.
    counter: of the command (`CommandSpec.counter`)."""
    errors = WriteErrors(op)
    for index in range(count):
        errors.add(index, error)
    reply: dict[str, Value] = {"n": 0}
    if counter == "update":
        reply["nModified"] = 0
    return errors.add_to(reply)


def is_prompt_write(op: OperationContext, statements: list[bytes]) -> bool:
    """Whether a batch of updates or deletes is one by `_id` alone. Not in `config` and `local`: see `server.waits`."""
    if len(statements) != 1 or op.database == "config" or op.database == "local":
        return False
    statement = statements[0]
    type_code, filter_at = find_field_at(statement, 0, b"q")
    if type_code != DOCUMENT or statement[filter_at + 5 : filter_at + 9] != b"_id\0":
        return False
    id_type: i64 = statement[filter_at + 4]
    return id_type != DOCUMENT and statement[skip_value(statement, id_type, filter_at + 9)] == 0


def check_batch(op: OperationContext, size: int) -> None:
    """InvalidLength (16) for a batch without statements or with too many."""
    limit = op.service.bounds.max_write_batch_size
    if size < 1 or size > limit:
        raise CommandError(
            ErrorCode.InvalidLength,
            f"Write batch sizes must be between 1 and {limit}. Got {size} operations.",
            advice=op.service.dialect.large_batch_advice(size) if size > 0 else "",
        )


def collection_for_insert(op: OperationContext, name: str) -> Collection | None:
    """The collection of this name; None if it does not exist, but may be made."""
    collection = op.catalog.lookup(op.database, name, time_series=True)
    if collection is None:
        op.catalog.check_new_name(op.database, name)
    return collection


def collection_for_write(op: OperationContext, name: str) -> Collection:
    """The collection of this name, created if it does not exist."""
    collection = op.catalog.lookup(op.database, name, time_series=True)
    if collection is not None:
        return collection
    with Undivided():
        collection = op.catalog.lookup(op.database, name, time_series=True)
        if collection is not None:
            return collection
        op.catalog.check_new_name(op.database, name)
        return op.catalog.create_collection(op.database, name)


def collection_if_any(op: OperationContext, name: str) -> Collection | None:
    """The collection; None if it does not exist. InvalidNamespace (73) for an invalid name."""
    collection = op.catalog.lookup(op.database, name, time_series=True)
    if collection is None:
        op.check_database()
        check_new_collection_name(op.database, name, op.catalog.naming)
    return collection


def parsed_statements(parser: RequestParser, statement: type[Any], documents: list[bytes]) -> list[Any]:
    return [made(statement, parser.parse(document, [], None)) for document in documents]


# Errors that end the whole write command, not only one statement.
_WHOLE_COMMAND_ERRORS: Final = (
    ErrorCode.MaxTimeMSExpired,
    ErrorCode.Interrupted,
    ErrorCode.InterruptedAtShutdown,
    ErrorCode.SnapshotUnavailable,
)


def ends_command(op: OperationContext, error: CommandError) -> bool:
    """Whether an error of a statement ends the whole write command.

    Of Cosmos DB that is reported for a statement that names no value of the shard key, unlike a document without one.
    """
    if error.code == ErrorCode.MaxTimeMSExpired and not op.service.dialect.timeouts_end_batches:
        return False
    if error.code in _WHOLE_COMMAND_ERRORS:
        return True
    return error.code == ErrorCode.ShardKeyNotFound and not isinstance(error, WriteError)


def number_statements(
    op: OperationContext, command: str, size: int, statement_id: int | None, statement_ids: list[Value] | None = None
) -> RetryableWrite | None:
    """Checks `stmtId` and `stmtIds` and gives the statements their ids; None if the command is no retryable write.

    size: the number of statements. InvalidLength (16) if it is not that of `stmtIds`, InvalidOptions (72) if both are
    given or the ids exceed an int (assumed), TypeMismatch (14) for other types than int.
    """
    write = op.recovery_unit.retryable_write
    if statement_id is None and statement_ids is None:
        return write
    base = 0 if statement_id is None else statement_id
    if base + size - 1 > INT_MAX:
        raise CommandError(ErrorCode.InvalidOptions, f"The ids of {size} statements from {base} on exceed {INT_MAX}")
    ids = None if statement_ids is None else _as_statement_ids(command, size, statement_ids)
    if statement_id is not None and ids is not None:
        raise CommandError(
            ErrorCode.InvalidOptions, f"May not specify both stmtId and stmtIds in write command. Got {command}."
        )
    if write is not None:
        write.number(base, ids)
    return write


def _as_statement_ids(command: str, size: int, ids: list[Value]) -> list[int]:
    if len(ids) != size:
        raise CommandError(
            ErrorCode.InvalidLength,
            f"Number of statement ids must match the number of batch entries. Got {len(ids)} statement ids but {size}"
            " operations.",
        )
    return [_as_statement_id(f"{command}.stmtIds.{index}", value) for index, value in enumerate(ids)]


def _as_statement_id(field: str, value: Value) -> int:
    if isinstance(value, (bool, Int64)) or not isinstance(value, int):
        raise wrong_type(field, value, "int")
    return value


def with_retried(write: RetryableWrite | None, reply: dict[str, Value]) -> dict[str, Value]:
    """The reply of a write command, with `retriedStmtIds` if it is a retry of statements that were executed."""
    return reply if write is None else write.add_to(reply)
