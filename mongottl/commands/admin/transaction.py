"""commitTransaction and abortTransaction; the other commands of a transaction are those of `in_transaction`.

Source: MongoDB's documentation of both commands; the driver specifications' "Transactions".
"""

from typing import Annotated, NamedTuple

from mongottl.commands.access import USERS
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ANY, ONE, Field
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.transaction_unit import abort
from mongottl.exec.sessions.transactions import Transaction
from mongottl.exec.write.commit import commit_transaction


class CommitTransactionRequest(NamedTuple):
    command: Annotated[Value, Field("commitTransaction", ONE)]
    recovery_token: Annotated[Value, Field("recoveryToken", ANY)] = None


class AbortTransactionRequest(NamedTuple):
    command: Annotated[Value, Field("abortTransaction", ONE)]
    recovery_token: Annotated[Value, Field("recoveryToken", ANY)] = None


def _transaction(op: OperationContext, name: str) -> Transaction:
    """The transaction that the command names. CommandFailed (125) outside a transaction."""
    if op.session.transaction is None:
        raise CommandError(ErrorCode.CommandFailed, f"{name} must be run within a transaction")
    return op.session.transaction


@command(
    "commitTransaction",
    CommitTransactionRequest,
    access=USERS,
    help="Commits a transaction.",
    admin_only=True,
    writes=True,
    takes_write_concern=True,
    ends_transaction=True,
    repeats_commit=True,
    stable=True,
)
def commit(op: OperationContext, request: CommitTransactionRequest) -> Reply:
    """Does nothing for a transaction that has been committed, so that a commit can be retried.

    WriteConflict (112), labelled TransientTransactionError, if the transaction cannot be committed any more.
    """
    if op.session.repeats_commit:
        return {}
    transaction = _transaction(op, "commitTransaction")
    if transaction.in_progress:
        commit_transaction(op, transaction)
    return {}


@command(
    "abortTransaction",
    AbortTransactionRequest,
    access=USERS,
    help="Aborts a transaction.",
    admin_only=True,
    takes_write_concern=True,
    ends_transaction=True,
    stable=True,
)
def abort_transaction(op: OperationContext, request: AbortTransactionRequest) -> Reply:
    transaction = _transaction(op, "abortTransaction")
    if transaction.in_progress:
        abort(op.service, transaction)
        transaction.data.await_end()
    return {}
