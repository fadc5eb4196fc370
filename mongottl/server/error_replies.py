"""Replies to commands that failed: which error an exception stands for, its labels, and its document."""

from typing import Final

from mongottl.commands import COMMANDS
from mongottl.document.types import DOUBLE, Value
from mongottl.document.walk import find_field_at
from mongottl.errors import (
    NON_RESUMABLE_CHANGE_STREAM_CODES,
    NON_RESUMABLE_CHANGE_STREAM_LABEL,
    RESUMABLE_CHANGE_STREAM_CODES,
    RESUMABLE_CHANGE_STREAM_LABEL,
    RETRYABLE_WRITE_CODES,
    RETRYABLE_WRITE_LABEL,
    CommandError,
    ErrorCode,
)
from mongottl.exec.operation.context import OperationContext
from mongottl.server import transactions
from mongottl.storage.errors import (
    DiskFull,
    EngineUnavailable,
    SeveralPlaces,
    SnapshotConflict,
    SnapshotTooOld,
    StoreUnreachable,
    TransactionTooLarge,
    UnitLost,
    WriteConflict,
)
from mongottl.versions import ERROR_LABEL

# What a write raises that meets another one.
WRITE_CONFLICTS: Final = (WriteConflict, SnapshotConflict)


def command_error(error: Exception) -> CommandError | None:
    """The error with which a command answers that an exception has ended; None for an exception that none should."""
    if isinstance(error, CommandError):
        return error
    if isinstance(error, DiskFull):
        return CommandError(ErrorCode.OutOfDiskSpace, f"storage engine: {error}")
    if isinstance(error, (StoreUnreachable, UnitLost)):
        return CommandError(ErrorCode.HostUnreachable, f"the store does not answer: {error}")
    if isinstance(error, EngineUnavailable):
        return CommandError(ErrorCode.OperationFailed, f"storage engine: {error}")
    if isinstance(error, SnapshotTooOld):
        return CommandError(ErrorCode.SnapshotTooOld, str(error))
    if isinstance(error, SeveralPlaces):
        code = ErrorCode.OperationNotSupportedInTransaction if error.in_transaction else ErrorCode.IllegalOperation
        return CommandError(code, str(error))
    if isinstance(error, TransactionTooLarge):
        return CommandError(ErrorCode.TransactionTooLarge, str(error))
    if isinstance(error, WRITE_CONFLICTS):
        return CommandError(ErrorCode.WriteConflict, f"{error}; please retry your operation")
    return None


def error_reply(error: CommandError) -> dict[str, Value]:
    """`{ok: 0, errmsg, code, codeName, …}`."""
    error.complete()
    reply: dict[str, Value] = {
        "ok": 0.0,
        "errmsg": error.message,
        "code": error.code,
        "codeName": error.code_name,
        **error.details,
    }
    if error.labels:
        reply["errorLabels"] = list(error.labels)
    return reply


def is_error(reply: bytes) -> bool:
    """Whether a reply says that its command has failed."""
    type_code, pos = find_field_at(reply, 0, b"ok")
    return type_code != DOUBLE or reply[pos : pos + 8] == bytes(8)


def labels_of(name: str, op: OperationContext, code: int) -> tuple[str, ...]:
    """The labels of a command's error that the announced version knows. RetryableWriteError: its driver may retry the
    write, since statements that were executed are remembered."""
    if not op.adds_labels:
        return ()
    labels = _labels_of(name, op, code)
    features = op.service.features
    return labels if features is None else tuple(features.known(ERROR_LABEL, labels))


def _labels_of(name: str, op: OperationContext, code: int) -> tuple[str, ...]:
    """The labels of the latest version."""
    if op.session.in_transaction:
        return transactions.labels_of(COMMANDS.get(name), code)
    if op.reading.follows_changes and code in RESUMABLE_CHANGE_STREAM_CODES:
        return (RESUMABLE_CHANGE_STREAM_LABEL,)
    if op.reading.follows_changes and code in NON_RESUMABLE_CHANGE_STREAM_CODES:
        return (NON_RESUMABLE_CHANGE_STREAM_LABEL,)
    return (RETRYABLE_WRITE_LABEL,) if op.session.txn_number is not None and code in RETRYABLE_WRITE_CODES else ()
