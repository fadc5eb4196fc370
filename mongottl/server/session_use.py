"""How a command uses its session: it waits for an earlier attempt, and begins a retryable write or a statement."""

from typing import Any, Final

from mongottl.commands import CommandSpec, Reply
from mongottl.commands.request import GenericArguments
from mongottl.dialect.interface import Dialect
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.sessions.session_ids import session_key
from mongottl.exec.sessions.sessions import Session
from mongottl.server import transactions

# How often a retried write checks whether its first attempt, which is still running, has ended.
_RETRY_POLL_S: Final = 0.002


class SessionUse:
    """The sessions of one server, as commands use them."""

    def __init__(self, service: ServiceContext) -> None:
        self._service = service
        self._dialect: Dialect = service.dialect

    def is_under_way(self, key: bytes, generic: GenericArguments) -> bool:
        """Whether this is a retryable write or a statement of a transaction, and an earlier one of its session, or its
        first attempt, still runs. key: of the session."""
        if generic.txn_number is None:
            return False
        session = self._service.sessions.find(key)
        return (session is not None and session.busy) or transactions.is_busy(self._service, key)

    def await_first_attempt(self, key: bytes, generic: GenericArguments, op: OperationContext) -> None:
        """Waits as long as `is_under_way`. The errors of `check_interrupt`."""
        self.join(generic, op)
        while self.is_under_way(key, generic):
            op.check_interrupt()
            op.wait(_RETRY_POLL_S)
        op.refresh_now()

    def join(self, generic: GenericArguments, op: OperationContext) -> None:
        """Records the session of a command that waits to begin, so that killing the session ends the wait."""
        if generic.lsid is not None:
            op.session_key = session_key(generic.lsid, op.client.login)
            self._service.sessions.touch(op.session_key, op.now_ms, self._service.clock.monotonic_s())

    def enter(self, key: bytes, spec: CommandSpec, generic: GenericArguments, op: OperationContext) -> Session | None:
        """Registers the use of the session, and begins its retryable write if the command has a `txnNumber`: then the
        session. key: of the session."""
        op.session_key = key
        session = self._service.sessions.touch(key, op.now_ms, self._service.clock.monotonic_s())
        txn_number = generic.txn_number
        if op.session.in_transaction:
            transactions.enter(self._service, spec, generic, op)
            return None
        if txn_number is None:
            return None
        if txn_number < 0:
            raise CommandError(ErrorCode.InvalidOptions, "Transaction number cannot be negative")
        if not spec.retryable:
            raise CommandError(
                50768,
                "txnNumber may only be provided for multi-document transactions and retryable write commands."
                f" autocommit:false was not provided, and {spec.name} is not a retryable write command.",
            )
        self._dialect.check_retryable_write()
        transactions.before_retryable_write(self._service, key, txn_number)
        op.recovery_unit.retryable_write = self._service.sessions.begin_write(session, txn_number)
        return session


def inactive_batch(spec: CommandSpec, op: OperationContext, request: Any, error: CommandError) -> Reply:
    """The reply to a write command of a transaction that has ended: each statement fails, and an ordered batch ends
    with the first. That an unordered one goes on is assumed."""
    from mongottl.commands.crud.write_batch import failed_batch

    return failed_batch(op, spec.counter, error, 1 if request.ordered else len(request[spec.batch_at]))
