"""What a command has to pass before its function is called, in this order:

    check     who may call it, the arguments that all commands have, its transaction, its times, its concerns
    (a fail point, if one is set for it)
    wait      for fsyncUnlock or a copy of its collection; for transactions, or for a change of the collection that goes
              before; then: writes that are blocked, the oplog, collections that are published when they are read

Each is a call of its own and not a row of a table: a find by `_id` takes eight microseconds, and to call ten checks
that mostly have nothing to do by a table would take half a microsecond.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from mongottl.commands import CommandSpec
from mongottl.commands.access import check_access
from mongottl.commands.concerns import (
    WriteConcern,
    check_api_strict,
    check_api_version,
    parse_read_concern,
    parse_write_concern,
    reach_cluster_time,
)
from mongottl.commands.request import GenericArguments
from mongottl.commands.time_series import check_raw_data
from mongottl.document.render import render_logged
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation import snapshot_reads
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.reading import Reading
from mongottl.exec.operation.session_statement import IN_TRANSACTION, retryable_write
from mongottl.exec.running.registry import RunningOperation
from mongottl.exec.service.service import MS_PER_S, ServiceContext
from mongottl.oplog.records import NAMESPACE as OPLOG
from mongottl.oplog.records import refused_write
from mongottl.security.privileges import CLUSTER
from mongottl.server import transactions, waits
from mongottl.server.session_use import SessionUse

# The commands that write users and roles, which `admin` has, whatever the database.
_ACCOUNT_FAMILIES: Final = ("roles", "users")
# Commands up to this length are shown in errors.
_MAX_SHOWN_BYTES: Final = 2048


def registered(service: ServiceContext, op: OperationContext) -> RunningOperation:
    """Registers an operation for currentOp and killOp, without passwords."""
    spec = op.command.spec
    assert isinstance(spec, CommandSpec)
    stack = service.stacks.present
    started_s = service.clock.monotonic_s() if stack is None else stack.started_s
    return service.operations.begin(op, spec.shown(op), spec.counter, started_s, not spec.handshake)


class Admission:
    """Lets commands of one server begin.

    has_gateway: whether the dialect carries out commands (`commands.dialect_hooks`).
    """

    def __init__(self, service: ServiceContext, sessions: SessionUse, has_gateway: bool) -> None:
        self._service = service
        self._sessions = sessions
        self._has_gateway = has_gateway
        # No command is prompt that a gateway or an engine may have to wait for.
        self._all_may_wait: bool = has_gateway or service.engine.suspends

    def is_prompt(self, spec: CommandSpec, request: Any, generic: GenericArguments, op: OperationContext) -> bool:
        """Whether the command is one of those that neither wait nor take long, and nothing makes it wait. One that
        writes is attempted (`Stacks.attempt`), and may turn out to be no such one."""
        service = self._service
        return (
            spec.is_prompt is not None
            and (generic.txn_number is None or spec.writes)
            and generic.autocommit is None
            and generic.start_transaction is None
            and generic.read_concern is None
            and generic.write_concern is None
            and not self._all_may_wait
            and not service.fail_points.fails_commands()
            and not (spec.writes and self._may_delay_writes())
            and spec.is_prompt(op, request)
        )

    def _may_delay_writes(self) -> bool:
        """Whether there are locks, or a default write concern, for which writes may have to wait."""
        service = self._service
        return len(service.exclusive) > 0 or service.fsync_locks > 0 or service.settings.concerns.write is not None

    def check(
        self, spec: CommandSpec, request: Any, generic: GenericArguments, op: OperationContext
    ) -> WriteConcern | None:
        """Checks a command that is parsed, and sets what it says of its operation: its write concern, or None if that
        neither delays nor changes the reply. The error of what is refused."""
        self._apply_arguments(spec, request, generic, op)
        concern = self._write_concern(spec, generic, op)
        if spec.names_collection and isinstance(request.collection, str):
            op.uses(request.collection)
            if generic.raw_data:
                check_raw_data(op, op.database, request.collection)
        return concern

    def wait(self, spec: CommandSpec, request: Any, generic: GenericArguments, op: OperationContext) -> None:
        """Waits for those that go before the command, and for what it reads. The error of what is refused then."""
        self._wait_turn(spec, request, generic, op)
        if self._service.write_block.reason is not None and spec.is_write(op.command.body):
            _check_write_block(spec, op)
        if spec.writes and op.used_namespace == OPLOG and not spec.judges_oplog:
            raise refused_write()
        if waits.is_published(op.used_namespace or op.database) and not spec.touches_no_data:
            self._sessions.join(generic, op)
            waits.until_published(op)
            op.refresh_now()

    def _apply_arguments(
        self, spec: CommandSpec, request: Any, generic: GenericArguments, op: OperationContext
    ) -> None:
        """Checks the arguments that all commands have, and who may run this one, and sets what they say of the
        operation."""
        service = self._service
        if generic.database == "":
            raise CommandError(40571, "OP_MSG requests require a $db argument")
        check_api_version(spec, generic, service.requires_api_version)
        if generic.api_strict:
            check_api_strict(spec, op.command.body)
        if service.authorizes:
            check_access(op, spec.access, spec.name, lambda: _shown(spec, op.command.body), request)
            if op.client.login is None:
                # Strangers have no sessions: they could name those of others, and make any number of them.
                generic.leave_session()
        if transactions.is_statement(generic):
            op.session = IN_TRANSACTION
            transactions.check_arguments(spec, generic)
        elif generic.txn_number is not None and generic.lsid is not None and spec.retryable:
            op.session = retryable_write(generic.txn_number)
        if spec.admin_only and generic.database != "admin":
            raise CommandError(ErrorCode.Unauthorized, f"{spec.name} may only be run against the admin database.")
        if generic.max_time_ms >= 0:
            if spec.counter == "getmore":
                op.set_await_ms(generic.max_time_ms)
            else:
                op.set_max_time_ms(generic.max_time_ms)
        elif service.cluster_parameters.default_max_time_ms > 0 and spec.takes_default_time_limit(op.command.body):
            op.limit_time(service.cluster_parameters.default_max_time_ms / MS_PER_S)
        if service.bounds.max_operation_s > 0.0:
            op.bound_time(service.bounds.max_operation_s)
        if generic.read_concern is not None:
            read_concern = parse_read_concern(spec, generic.read_concern, op.session.in_transaction)
            op.reading = Reading(read_concern.level)
            if read_concern.after is not None:
                reach_cluster_time(op, read_concern.after)
            if read_concern.level == "snapshot" and not op.session.in_transaction:
                snapshot_reads.enter(op, read_concern.at)

    def _write_concern(self, spec: CommandSpec, generic: GenericArguments, op: OperationContext) -> WriteConcern | None:
        """The write concern of a command, or the default one; None if it neither delays nor changes the reply."""
        given = generic.write_concern
        default = self._service.settings.concerns.write
        if given is None and default is not None and spec.is_write(op.command.body):
            given = default
        if given is None:
            return None
        concern = parse_write_concern(spec, given, spec.is_write(op.command.body))
        op.recovery_unit.unsynced = concern.unsynced
        if self._has_gateway:
            concern.error = None  # Cosmos DB takes any number of members and any mode, and waits for its own quorum
        return concern if concern.durable or concern.silent or concern.error is not None else None

    def _wait_turn(self, spec: CommandSpec, request: Any, generic: GenericArguments, op: OperationContext) -> None:
        """Waits for those that go before the command. Its time is the one at which the wait ends."""
        service = self._service
        if (service.exclusive or service.fsync_locks) and waits.is_locked(op) and spec.is_write(op.command.body):
            self._wait(generic, op, partial(waits.until_unlocked, op), is_queued=True)
        if (
            spec.exclusive
            and len(service.transactions)
            and not op.session.in_transaction
            and spec.is_write(op.command.body)
        ):
            self._wait(generic, op, partial(transactions.await_users, op, request), is_queued=True)
        elif service.transactions.waiting_changes and op.session.in_transaction:
            named = transactions.statement_namespaces(spec, op, request)
            if transactions.change_ahead(service, generic, op, named) is not None:
                wait = partial(transactions.await_change, generic, op, named)
                self._wait(generic, op, wait, is_queued=spec.is_write(op.command.body))

    def _wait(self, generic: GenericArguments, op: OperationContext, wait: Callable[[], None], is_queued: bool) -> None:
        """is_queued: whether the command counts meanwhile as a writer that waits for others."""
        metrics = self._service.metrics
        self._sessions.join(generic, op)
        metrics.queued_writers += is_queued
        try:
            wait()
        finally:
            metrics.queued_writers -= is_queued
        op.refresh_now()


def _check_write_block(spec: CommandSpec, op: OperationContext) -> None:
    """UserWritesBlocked (371) for a write that setUserWriteBlockMode blocks."""
    block = op.service.write_block
    if spec.family in _ACCOUNT_FAMILIES or not (spec.writes_anywhere or block.blocks(op.database)):
        return
    if not (op.service.authorizes and op.may(CLUSTER, "bypassWriteBlockingMode")):
        raise block.refusal()


def _shown(spec: CommandSpec, body: bytes) -> str:
    """A command as an error's text shows it: without passwords, and only its name if it is long."""
    if len(body) > _MAX_SHOWN_BYTES:
        return f"{{ {spec.name}: ... }}"
    return render_logged(spec.without_secrets(body))
