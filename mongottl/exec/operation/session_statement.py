"""What a command is to the session of its client: a retryable write, a statement of a transaction, or neither.

    admission      ── it has a txnNumber ──────────► op.session = retryable_write(…), or IN_TRANSACTION
    transactions   ── its transaction is found ────► op.session = statement_of(transaction), or REPEATED_COMMIT

The id of the session is `OperationState.session_key`.
"""

from typing import Final

from mongottl.exec.sessions.transactions import Transaction


class SessionStatement:
    """It is never changed: what becomes known later makes another one. OUTSIDE is that of other commands."""

    def __init__(
        self,
        txn_number: int | None = None,
        in_transaction: bool = False,
        transaction: Transaction | None = None,
        repeats_commit: bool = False,
    ) -> None:
        # Of a retryable write, which its driver may send again after some errors; else None.
        self.txn_number: Final = txn_number
        # Whether the command was given as part of a transaction, with or without success.
        self.in_transaction: Final[bool] = in_transaction
        # The transaction of which it is a statement, or which it ends; None before that is known.
        self.transaction: Final = transaction
        # Whether it is a commit that an earlier run of the server has carried out.
        self.repeats_commit: Final[bool] = repeats_commit


OUTSIDE: Final = SessionStatement()
IN_TRANSACTION: Final = SessionStatement(in_transaction=True)
REPEATED_COMMIT: Final = SessionStatement(in_transaction=True, repeats_commit=True)


def retryable_write(txn_number: int) -> SessionStatement:
    return SessionStatement(txn_number)


def statement_of(transaction: Transaction) -> SessionStatement:
    return SessionStatement(None, True, transaction)
