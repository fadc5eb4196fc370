"""The rules by which commands belong to transactions: their arguments, and how a statement begins and ends.

A statement of a transaction has `lsid`, `txnNumber` and `autocommit: false`; the first one also has
`startTransaction: true`.

    check_arguments   before the command is prepared: what is wrong by the arguments alone
    enter             once its session is known: begins a transaction, or finds the one in progress
    leave             after it: a statement that failed aborts its transaction

    225 TransactionTooOld               the session has a newer transaction or retryable write
    251 NoSuchTransaction               aborted, or never begun
    256 TransactionCommitted            committed
    263 OperationNotSupportedInTransaction
    117 ConflictingOperationInProgress  begun twice with the same number

Source: MongoDB's documentation of transactions and their production considerations; the driver specifications'
"Transactions".
"""

from functools import partial
from typing import Any, Final

from mongottl.catalog.catalog import Catalog
from mongottl.catalog.view import View
from mongottl.commands import CommandSpec
from mongottl.commands.request import GenericArguments
from mongottl.document.types import Value
from mongottl.document.walk import fields_by_name, get_value
from mongottl.errors import (
    RETRYABLE_WRITE_CODES,
    RETRYABLE_WRITE_LABEL,
    TRANSIENT_TRANSACTION_CODES,
    TRANSIENT_TRANSACTION_LABEL,
    CommandError,
    ErrorCode,
)
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.session_statement import REPEATED_COMMIT, statement_of
from mongottl.exec.operation.transaction_unit import abort, abort_expired, abort_open, begin
from mongottl.exec.operation.transaction_unit import enter as enter_transaction
from mongottl.exec.running.signal import Signal
from mongottl.exec.running.steps import Wait
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.sessions.session_ids import session_key
from mongottl.exec.sessions.sessions import Session
from mongottl.exec.sessions.transactions import COMMITTED, Transaction, WaitingChange
from mongottl.exec.write.waiting import seconds_to_look

# How long a later statement of a transaction waits for a command that changes a collection.
LOCK_WAIT_S: Final = 0.005
_LEVELS: Final = ("", "local", "majority", "snapshot")


def is_statement(generic: GenericArguments) -> bool:
    """Whether a command is given as part of a transaction."""
    return generic.autocommit is not None or generic.start_transaction is not None


def check_arguments(spec: CommandSpec, generic: GenericArguments) -> None:
    """InvalidOptions (72) for arguments that contradict each other, OperationNotSupportedInTransaction (263)."""
    if generic.lsid is None or generic.txn_number is None:
        what = "a session ID" if generic.lsid is None else "a transaction number"
        raise CommandError(ErrorCode.InvalidOptions, f"'autocommit' field requires {what} to also be specified")
    if generic.txn_number < 0:
        raise CommandError(ErrorCode.InvalidOptions, "Transaction number cannot be negative")
    if generic.autocommit is None:
        raise CommandError(
            ErrorCode.InvalidOptions, "'startTransaction' field requires 'autocommit' field to also be specified"
        )
    if generic.autocommit:
        raise CommandError(ErrorCode.InvalidOptions, "Specifying autocommit=true is not allowed.")
    if generic.start_transaction is False:
        raise CommandError(ErrorCode.InvalidOptions, "Specifying startTransaction=false is not allowed.")
    if spec.ends_transaction:
        if generic.start_transaction:
            raise CommandError(
                ErrorCode.OperationNotSupportedInTransaction, f"Cannot start a transaction with {spec.name}"
            )
        return
    if not spec.in_transaction:
        advice = ""
        if spec.name == "count":
            advice = " Please see http://dochub.mongodb.org/core/transaction-count for a recommended alternative."
        raise CommandError(
            ErrorCode.OperationNotSupportedInTransaction,
            f"Cannot run '{spec.name}' in a multi-document transaction.{advice}",
        )
    if generic.start_transaction and not spec.begins_transaction:
        raise CommandError(
            ErrorCode.OperationNotSupportedInTransaction,
            f"Cannot run '{spec.name}' as the first operation in a multi-document transaction.",
        )
    in_admin = spec.admin_only or spec.uses_cursors  # bulkWrite, and getMore of its results
    if generic.database in ("config", "local") or (generic.database == "admin" and not in_admin):
        raise CommandError(
            ErrorCode.OperationNotSupportedInTransaction,
            f"Cannot run command against the '{generic.database}' database in a transaction.",
        )
    if generic.write_concern is not None:
        raise CommandError(ErrorCode.InvalidOptions, "writeConcern is not allowed within a multi-statement transaction")
    if generic.read_concern is not None:
        if not generic.start_transaction:
            raise CommandError(
                ErrorCode.InvalidOptions, "Only the first command in a transaction may specify a readConcern"
            )
        level = get_value(generic.read_concern, "level")
        if isinstance(level, str) and level not in _LEVELS:
            raise CommandError(
                ErrorCode.InvalidOptions,
                "The readConcern level must be either 'local' (default), 'majority' or 'snapshot' in order to run in a"
                " transaction",
            )


def is_busy(service: ServiceContext, key: bytes) -> bool:
    """Whether a statement of the session's transaction is running: a session runs one at a time."""
    latest = service.transactions.latest(key)
    return latest is not None and latest.busy


def enter(service: ServiceContext, spec: CommandSpec, generic: GenericArguments, op: OperationContext) -> None:
    """Begins the transaction that a command starts, or makes the command a statement of the one that is in progress."""
    assert op.session_key is not None and generic.txn_number is not None
    number = generic.txn_number
    abort_expired(service)
    latest = service.transactions.latest(op.session_key)
    session = service.sessions.find(op.session_key)
    newest = _newest(session, latest)
    if number < newest:
        raise CommandError(
            ErrorCode.TransactionTooOld,
            f"Cannot start transaction with {{ txnNumber: {number} }} on session because a newer transaction with"
            f" txnNumber {{ txnNumber: {newest} }} has already started on this session.",
        )
    if generic.start_transaction:
        if number == newest:
            raise CommandError(
                ErrorCode.ConflictingOperationInProgress,
                f"Cannot start a transaction at the active transaction number {number}: it was already used",
            )
        if service.transactions.is_ended_elsewhere(op.session_key, number):
            text = f"Transaction with {{ txnNumber: {number} }} has been aborted by way of another server."
            raise service.dialect.transaction_ended(text, is_out_of_time=False)
        if latest is not None and latest.in_progress:
            abort(service, latest)
        latest = begin(service, op.session_key, number)
        if generic.read_concern is not None:
            latest.read_concern = generic.read_concern
    elif (latest is None or latest.number < number) and _is_committed(session, number):
        if not spec.repeats_commit:
            raise _committed(number)
        op.session = REPEATED_COMMIT
        return
    elif number > newest or latest is None or latest.number != number:
        raise service.dialect.transaction_ended(
            f"Given transaction number {number} does not match any in-progress transactions. The active transaction"
            f" number is {newest}",
            is_out_of_time=False,
        )
    elif latest.state == COMMITTED:
        if not spec.repeats_commit:
            raise _committed(number)
        op.session = statement_of(latest)
        return
    elif not latest.in_progress:
        why = f": {latest.why_aborted}" if latest.why_aborted else "."
        text = f"Transaction with {{ txnNumber: {number} }} has been aborted{why}"
        raise service.dialect.transaction_ended(text, is_out_of_time=latest.timed_out)
    if spec.ends_transaction:
        op.session = statement_of(latest)
    else:
        enter_transaction(op, latest)


def _is_committed(session: Session | None, number: int) -> bool:
    """Whether the session remembers that it has committed this transaction, which an earlier run of the server did."""
    return session is not None and session.history.txn_number == number and session.history.is_committed_transaction


def _committed(number: int) -> CommandError:
    return CommandError(
        ErrorCode.TransactionCommitted, f"Transaction with {{ txnNumber: {number} }} has been committed."
    )


def await_users(op: OperationContext, request: Any) -> None:
    """Waits until no transaction uses a collection that the command names, or of its database if it names none; or any
    collection, if its request says `whole_server`. Transactions that begin meanwhile wait for the command.

    MaxTimeMSExpired (50), Interrupted (11601).
    """
    service = op.service
    waiting = service.transactions.waiting_changes
    whole_server = getattr(request, "whole_server", False)
    named = {op.used_namespace, getattr(request, "source", ""), getattr(request, "to", "")} - {""}
    change = WaitingChange("" if whole_server else op.database, set() if whole_server else named)
    waiting.append(change)
    try:
        while True:
            abort_expired(service)
            users = [user for user in service.transactions.open() if change.is_used_by(user)]
            if not users:
                break
            signal = Signal()
            users[0].data.on_release(signal.notify)
            op.waits_for = signal
            op.check_interrupt()
            service.stacks.wait(Wait(seconds_to_look(op), signal))
            op.waits_for = None
    except BaseException:
        _end_change(service, change)
        raise
    finally:
        op.waits_for = None
    # The engine may have the command wait before it changes the collection.
    service.stacks.at_end_of_step(partial(_end_change, service, change))


def _end_change(service: ServiceContext, change: WaitingChange) -> None:
    """Lets transactions go on that have waited for a command which changes their collections."""
    service.transactions.waiting_changes.remove(change)
    for waiter in [*change.signals]:
        waiter.notify()


def statement_namespaces(spec: CommandSpec, op: OperationContext, request: Any) -> set[str]:
    """The collections that a statement names: its own, those that its pipeline joins, and those of a bulkWrite, which
    its needs name; and those that the views among them read."""
    named = {op.used_namespace} - {""}
    try:
        for need in spec.access.needs(op, request):
            if need.resource.kind == "namespace" and need.resource.collection:
                named.add(f"{need.resource.database}.{need.resource.collection}")
        _add_below_views(op.catalog, named)
    except CommandError:
        pass  # the command itself answers with the error
    return named


def _add_below_views(catalog: Catalog, namespaces: set[str]) -> None:
    """Adds what the views among the namespaces read."""
    for namespace in namespaces:
        database, _, name = namespace.partition(".")
        if isinstance(catalog.find(database, name), View):
            from mongottl.exec.results.views import add_below  # with all stages, which the first pipeline imports

            add_below(catalog, namespaces)
            return


def change_ahead(
    service: ServiceContext, generic: GenericArguments, op: OperationContext, namespaces: set[str]
) -> WaitingChange | None:
    """The waiting command that goes before a statement of a transaction, because it changes one of these collections,
    which the statement names; None if there is none, or if it waits for this very transaction."""
    latest = None
    if generic.lsid is not None and not generic.start_transaction:
        latest = service.transactions.latest(session_key(generic.lsid, op.client.login))
    for change in service.transactions.waiting_changes:
        if any(map(change.covers, namespaces)) and (latest is None or not change.is_used_by(latest)):
            return change
    return None


def await_change(generic: GenericArguments, op: OperationContext, namespaces: set[str]) -> None:
    """Waits for the commands that go before a statement of a transaction.

    The first statement waits as long as they do. A later one, whose transaction holds others up meanwhile, waits
    LOCK_WAIT_S as in mongod (maxTransactionLockRequestTimeoutMillis): LockTimeout (24), and the transaction is aborted.
    """
    service = op.service
    given_up_s = service.clock.monotonic_s() + LOCK_WAIT_S
    while (change := change_ahead(service, generic, op, namespaces)) is not None:
        op.check_interrupt()
        signal = Signal()
        change.signals.append(signal)
        op.waits_for = signal
        try:
            if generic.start_transaction:
                service.stacks.wait(Wait(seconds_to_look(op), signal))
            else:
                left_s = given_up_s - service.clock.monotonic_s()
                if left_s <= 0.0:
                    assert op.session_key is not None
                    abort_open(service, op.session_key)
                    wanted = min(filter(change.covers, namespaces))
                    raise CommandError(
                        ErrorCode.LockTimeout,
                        f"Unable to acquire a lock on '{wanted}' within {int(LOCK_WAIT_S * 1000)}ms: a"
                        " command that changes the collection waits",
                    )
                service.stacks.wait(Wait(left_s, signal))
        finally:
            op.waits_for = None
            change.signals.remove(signal)


def _newest(session: Session | None, latest: Transaction | None) -> int:
    """The highest number that the session has used, for a transaction or a retryable write."""
    return max(-1 if session is None else session.history.txn_number, -1 if latest is None else latest.number)


def before_retryable_write(service: ServiceContext, key: bytes, number: int) -> None:
    """A retryable write ends an older transaction of its session. TransactionTooOld (225) beside a newer one;
    IncompleteTransactionHistory (217) with the number of a transaction."""
    latest = service.transactions.latest(key)
    if latest is None or latest.number < number:
        if latest is not None and latest.in_progress:
            abort(service, latest)
        return
    if latest.number > number:
        raise CommandError(
            ErrorCode.TransactionTooOld,
            f"Retryable write with txnNumber {number} is prohibited on session because a newer transaction with"
            f" txnNumber {latest.number} has already started on this session.",
        )
    raise CommandError(
        ErrorCode.IncompleteTransactionHistory,
        f"The transaction number {number} of a retryable write was used by a transaction",
    )


def leave(service: ServiceContext, op: OperationContext, reply: dict[str, Value] | bytes | None) -> None:
    """Ends a statement. reply: None if it failed. A failed statement aborts its transaction, as does one of which a
    write failed, and one that has outlived the transaction's time."""
    transaction = op.session.transaction
    if transaction is None or not transaction.in_progress:
        return
    transaction.active_s += service.clock.monotonic_s() - transaction.active_since_s
    if reply is None or transaction.expired or _has_write_errors(reply):
        abort(service, transaction)


def _has_write_errors(reply: dict[str, Value] | bytes) -> bool:
    found = reply if isinstance(reply, dict) else fields_by_name(reply)
    return "writeErrors" in found or bool(found.get("nErrors", 0))


def labels_of(spec: CommandSpec | None, code: int) -> tuple[str, ...]:
    """The labels of an error within a transaction, or of a commit's or abort's write concern error."""
    if spec is not None and spec.ends_transaction and code in RETRYABLE_WRITE_CODES:
        return (RETRYABLE_WRITE_LABEL,)
    return (TRANSIENT_TRANSACTION_LABEL,) if code in TRANSIENT_TRANSACTION_CODES else ()
