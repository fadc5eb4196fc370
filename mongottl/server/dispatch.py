"""From a message to a command, and from its result to the reply. Only here errors become replies (`error_replies`).

A command's function returns its reply. `Dispatcher.handle` returns it at once, or what is left of a command that lets
others run, or waits (`exec.operation.stack`).
Any exception becomes an error reply: a `CommandError` has its own code, every other exception is InternalError (1) and
is logged with its trace.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mongottl.clock import VirtualClock
from mongottl.commands import COMMANDS, UNSUPPORTED_COMMANDS, CommandSpec, Reply
from mongottl.commands.access import check_access
from mongottl.commands.admin.handshake import app_name, without_unknown
from mongottl.commands.concerns import (
    WriteConcern,
    check_api_strict,
    check_api_version,
    parse_read_concern,
    parse_write_concern,
    reach_cluster_time,
)
from mongottl.commands.dialect_hooks import Gateway, hooks_of
from mongottl.commands.registry import SEARCH_COMMANDS, UNSUPPORTED_REASONS
from mongottl.commands.request import GenericArguments
from mongottl.commands.time_series import check_raw_data
from mongottl.dialect.interface import InactiveTransaction
from mongottl.document.build import EMPTY_DOCUMENT, encode, encode_fields
from mongottl.document.render import render_logged
from mongottl.document.splice import element, frame
from mongottl.document.types import (
    BOOL,
    DOCUMENT,
    DOUBLE,
    INT64,
    MAX_DOCUMENT_BYTES,
    MISSING,
    STRING,
    Int64,
    Value,
)
from mongottl.document.validate import (
    MAX_DEPTH,
    MAX_MESSAGE_DEPTH,
    SLICE_BYTES,
    SlicedValidation,
    validate_document,
    validate_documents,
)
from mongottl.document.walk import ElementCursor, fields, find_field_at, first_field_name, get_value
from mongottl.errors import (
    RETRYABLE_WRITE_LABEL,
    UNKNOWN_COMMIT_LABEL,
    CommandError,
    ErrorCode,
    ProtocolError,
)
from mongottl.exec.operation import snapshot_reads
from mongottl.exec.operation.client import ClientInfo
from mongottl.exec.operation.context import LONG_REQUEST_BYTES, OperationContext
from mongottl.exec.operation.failpoints import FailCommand
from mongottl.exec.operation.metrics import UNKNOWN_COMMAND
from mongottl.exec.operation.observation import Observation
from mongottl.exec.operation.registry import RunningOperation
from mongottl.exec.operation.request_units import HUNDREDTHS
from mongottl.exec.operation.service import MS_PER_S, ServiceContext
from mongottl.exec.operation.session_ids import session_key
from mongottl.exec.operation.sessions import Session
from mongottl.exec.operation.signal import Signal
from mongottl.exec.operation.stack import Stacks, Steps
from mongottl.exec.operation.steps import Wait
from mongottl.exec.operation.transactions import Transaction
from mongottl.oplog.records import NAMESPACE as OPLOG
from mongottl.oplog.records import refused_write
from mongottl.security.privileges import CLUSTER
from mongottl.server import transactions, waits
from mongottl.server.error_replies import WRITE_CONFLICTS, command_error, error_reply, labels_of
from mongottl.server.interruption import interruption_check
from mongottl.server.log import Log
from mongottl.server.profiling import note_operation
from mongottl.server.refusal_log import Refusal, RefusalLog
from mongottl.server.reset_watch import ResetWatch
from mongottl.storage.interface import DamagedRecord, DiskFull, EngineUnavailable
from mongottl.versions import COMMAND, HELLO_FIELD, NOT_SUPPORTED, unknown_command
from mongottl.wire.messages import MORE_TO_COME, OLD_DRIVER, OpGetMore, OpKillCursors, OpMsg, OpQuery, Request

if TYPE_CHECKING:
    from mongottl.server.last_errors import LastErrors

_OK: Final = 1.0
# How often a retried write checks whether its first attempt, which is still running, has ended.
_RETRY_POLL_S: Final = 0.002
# From this length on, a message is validated in steps.
LONG_MESSAGE_BYTES: Final = 256 * 1024
# The commands that write users and roles, which `admin` has, whatever the database.
_ACCOUNT_FAMILIES: Final = ("roles", "users")
# Commands up to this length are shown in errors.
_MAX_SHOWN_BYTES: Final = 2048
# Of a refused command at most so many fields are looked at. No command has as many that mean something.
_MOST_FIELDS: Final = 100
# The first field of the wrapper of a command in an OP_QUERY.
_WRAPPERS: Final = ("$query", "query")
# A document may have 16 MiB, the message or reply around it 16 KiB more.
MAX_BODY_BYTES: Final = MAX_DOCUMENT_BYTES + 16 * 1024


class Dispatcher:
    """Runs commands for all connections of one server."""

    def __init__(self, service: ServiceContext, log: Log) -> None:
        self.service = service
        self.dialect = service.dialect
        self.log = log
        features = service.features
        service.describe_operation = self._describe
        service.stacks.check = interruption_check(service.stacks)
        self._takes_legacy_opcodes = features is not None and features.takes_legacy_opcodes
        # A clock that stands still from the first command on: of those that drivers and health checks do not send.
        clock = service.clock
        self._unsettled = clock if isinstance(clock, VirtualClock) and clock.unsettled else None
        # None without test commands, and once it has warned.
        self._reset_watch = ResetWatch() if service.config.enable_test_commands else None
        self._refusal_log = RefusalLog()
        self.gateway: Gateway | None = hooks_of(service).gateway(service)
        self.last_errors: LastErrors | None = None
        if self.dialect.has_last_errors:
            from mongottl.server import last_errors

            self.last_errors = last_errors.LastErrors()

    def _describe(self, op: OperationContext) -> RunningOperation:
        """Registers an operation for currentOp and killOp, without passwords."""
        spec = op.spec
        assert isinstance(spec, CommandSpec)
        stack = self.service.stacks.present
        started_s = self.service.clock.monotonic_s() if stack is None else stack.started_s
        return self.service.operations.begin(op, spec.shown(op), spec.counter, started_s, not spec.handshake)

    def handle(self, message: Request, client: ClientInfo) -> bytes | Steps[bytes]:
        """The reply document to a request, or what is left of the way to it.

        Raises only ProtocolError: a fail point is to close the connection, or a message that has no reply is refused.
        """
        stacks = self.service.stacks
        if (
            stacks.present is None
            and isinstance(message, OpMsg)
            and message.size_bytes < LONG_REQUEST_BYTES
            and not self.service.restoring
        ):
            return self._answer(message, client)
        return stacks.call(self._answer_on_stack, message, client)

    def _answer_on_stack(self, message: Request, client: ClientInfo) -> bytes:
        reply = self._answer(message, client)
        assert isinstance(reply, bytes)
        return reply

    def _answer(self, message: Request, client: ClientInfo) -> bytes | Steps[bytes]:
        """`handle`. A short message is validated and parsed without a stack, and a command that answers at once needs
        none: a stack takes as long as a tenth of a find by `_id`."""
        service = self.service
        if service.restoring:
            waits.until_restored(service)
        service.metrics.requests += 1
        if isinstance(message, OpKillCursors):
            message = self._as_command(message)
        try:
            if not isinstance(message, OpMsg):
                message = _command_message(message)
            document = message.body if isinstance(message, OpMsg) else message.query
            _check_size(document)
            is_long = message.size_bytes > LONG_MESSAGE_BYTES
            if is_long:
                self._validate_long(message, document)
            else:
                validate_document(document, MAX_MESSAGE_DEPTH)
        except Exception as error:
            return self._failed("", error, None)
        return self._answer_valid(message, document, client, is_long)

    def _as_command(self, message: OpKillCursors) -> OpMsg:
        """OP_KILL_CURSORS as the command. ProtocolError if the announced version does not take the message."""
        if not self._takes_legacy_opcodes:
            raise ProtocolError(f"OP_KILL_CURSORS is not supported; {OLD_DRIVER}")
        cursors: list[Value] = [Int64(cursor_id) for cursor_id in message.cursor_ids]
        body = encode({"killCursors": "$cmd", "cursors": cursors, "$db": "admin"})
        return OpMsg(message.request_id, message.response_to, MORE_TO_COME, body, [], message.compressor)

    def _validate_long(self, message: OpMsg | OpQuery, document: bytes) -> None:
        """Validates a long message; others run meanwhile, and may begin to restore a saved state."""
        stacks = self.service.stacks
        _validate(document, MAX_MESSAGE_DEPTH, stacks)
        for _, documents in message.sequences if isinstance(message, OpMsg) else ():
            position = 0
            while position < len(documents):
                if len(documents[position]) > SLICE_BYTES:
                    _validate(documents[position], MAX_DEPTH, stacks)
                    position += 1
                else:
                    position = validate_documents(documents, position, SLICE_BYTES)
                    stacks.give_way()
        waits.until_restored(self.service)

    def _answer_valid(
        self, message: OpMsg | OpQuery, body: bytes, client: ClientInfo, sequences_valid: bool
    ) -> bytes | Steps[bytes]:
        """The reply to a request whose document is valid BSON.

        body: that document. sequences_valid: whether the documents of its document sequences have been validated.
        """
        name = ""
        op: OperationContext | None = None
        try:
            sequences = message.sequences if isinstance(message, OpMsg) else []
            if isinstance(message, OpQuery):
                body = _unwrapped(body)
            name = first_field_name(body)
            if isinstance(message, OpQuery) and not self._takes_legacy_opcodes and not _is_taken_by_op_query(name):
                raise CommandError(
                    ErrorCode.UnsupportedOpQueryCommand,
                    f"Unsupported OP_QUERY command: {name}. The client driver may require an upgrade.",
                )
            spec = self._find(name)
            name = spec.name
            features = self.service.features
            if spec.handshake and features is not None:
                body = without_unknown(body, features)
            generic = GenericArguments()
            if isinstance(message, OpQuery):
                generic.database = message.namespace.partition(".")[0]
            try:
                values = spec.parser.parse(body, sequences, generic)
            except CommandError:
                # Who asks for help need not know what the command requires.
                if not _asks_help(body):
                    raise
                generic.asks_help = True
            if features is not None and not spec.handshake:
                features.check_arguments(spec.name, body, sequences)
            if generic.asks_help:
                return self._with_times(encode({"help": f"help for: {spec.name} {spec.help}", "ok": _OK}))
            if not sequences_valid:
                for _, documents in sequences:
                    validate_documents(documents)
            if self._unsettled is not None and not spec.access.by_anyone:
                self._unsettled.settle()
                self._unsettled = None
            op = OperationContext(self.service, client, generic.database)
            op.sequences = sequences
            op.set_request_bytes(message.size_bytes)
            cluster_clock = self.service.cluster_clock
            if op.now_s >= cluster_clock.idle_due_s:
                cluster_clock.tick(op.now_ms)
            if generic.cluster_time_at and (client.login is not None or not self.service.authorizes):
                cluster_clock.receive(body, generic.cluster_time_at, op.now_ms)
            op.body = body
            op.spec = spec
            request = spec.request._make(values)
            stacks = self.service.stacks
            if stacks.present is None and not self._is_prompt(spec, request, generic, op):
                return stacks.begin(partial(self._perform, spec, request, generic, op))
        except Exception as error:
            return self._failed(name, error, op, client, _named_collection(name, body) if op is None else "")
        return self._perform(spec, request, generic, op)

    def _is_prompt(self, spec: CommandSpec, request: Any, generic: GenericArguments, op: OperationContext) -> bool:
        """Whether the command is one of those that neither wait nor take long, and nothing makes it wait."""
        service = self.service
        return (
            spec.is_prompt is not None
            and generic.txn_number is None
            and generic.autocommit is None
            and generic.start_transaction is None
            and generic.read_concern is None
            and generic.write_concern is None
            and self.gateway is None
            and not service.fail_points.fails_commands()
            and spec.is_prompt(op, request)
        )

    def _perform(self, spec: CommandSpec, request: Any, generic: GenericArguments, op: OperationContext) -> bytes:
        """Carries out a command that is parsed, on its stack unless it is a prompt one."""
        self.service.stacks.carry(op)
        try:
            return self._run(spec, request, generic, op)
        except Exception as error:
            return self._failed(spec.name, error, op)
        finally:
            op.end()

    def has_more(self, message: OpMsg, reply: bytes) -> bool:
        """Whether a request that allows several replies gets another one after `reply`.

        A `hello` that waits for topology changes always does, a `getMore` until its cursor is exhausted; an error is
        the last reply of both.
        """
        if _is_error(reply):
            return False
        name = first_field_name(message.body)
        if name == "getMore":
            return _open_cursor(reply) != 0
        features = self.service.features
        return (
            _is_handshake(name)
            and not (features is not None and features.lacks(HELLO_FIELD, "topologyVersion"))
            and find_field_at(message.body, 0, b"topologyVersion")[0] == DOCUMENT
            and find_field_at(message.body, 0, b"maxAwaitTimeMS")[0] != 0
        )

    def may_abandon(self, message: Request) -> bool:
        """Whether the command changes nothing, so that it can be ended when its client has disconnected."""
        body = _command_in(message)
        spec = COMMANDS.get(first_field_name(body))
        return spec is not None and spec.may_be_abandoned and not spec.is_write(body)

    def may_write(self, message: Request) -> bool:
        """Whether the command changes data."""
        body = _command_in(message)
        spec = COMMANDS.get(first_field_name(body))
        return spec is not None and spec.is_write(body)

    def abandon(self, message: OpMsg) -> None:
        """Closes the cursor of a `getMore` whose client disconnected during its stream of replies."""
        if first_field_name(message.body) == "getMore":
            type_code, pos = find_field_at(message.body, 0, b"getMore")
            if type_code == INT64:
                cursor = self.service.cursors.find(int.from_bytes(message.body[pos : pos + 8], "little", signed=True))
                if cursor is not None and not cursor.in_use:
                    self.service.cursors.close(cursor)

    def _find(self, name: str) -> CommandSpec:
        spec = COMMANDS.get(name)
        if spec is not None:
            if spec.test_only and not self.service.config.enable_test_commands:
                raise unknown_command(name, "; it is there with --enable-test-commands")
            if not spec.test_only:
                self._check_features(name, spec.name)
            return spec
        self._check_features(name, name)
        if name in UNSUPPORTED_COMMANDS:
            reason = UNSUPPORTED_REASONS.get(name)
            text = f"Command {name} not supported"
            code = ErrorCode.SearchNotEnabled if name in SEARCH_COMMANDS else ErrorCode.CommandNotSupported
            raise CommandError(code, f"{text}: {reason}" if reason else text)
        features = self.service.features
        raise unknown_command(name) if features is None else features.unknown_command(name)

    def _check_features(self, name: str, command: str) -> None:
        """CommandNotFound (59), or CommandNotSupported (115) in the dialect `cosmos`, for a command that the announced
        version does not have. name: as the client wrote it."""
        features = self.service.features
        if features is not None and features.lacks(COMMAND, command):
            refused = features.refused_command(name)
            refused.advice = features.advice(COMMAND, command) if command in COMMANDS else NOT_SUPPORTED
            raise refused

    def _run(self, spec: CommandSpec, request: Any, generic: GenericArguments, op: OperationContext) -> bytes:
        service = self.service
        if service.profiler.attentive or service.observation is not None:
            op.began_s = service.clock.monotonic_s()
        metrics = service.metrics
        if not spec.counts_statements:
            metrics.operations[spec.counter] += 1
        metrics.commands[spec.name] = metrics.commands.get(spec.name, 0) + 1
        self._apply_arguments(spec, request, generic, op)
        concern = self._write_concern(spec, generic, op)
        if spec.names_collection and isinstance(request.collection, str):
            op.uses(request.collection)
            if generic.raw_data:
                check_raw_data(op, op.database, request.collection)
        fail_point: FailCommand | None = None
        if service.fail_points.fails_commands():
            fail_point = service.fail_points.triggered(spec.names, app_name(op, spec, op.body))
            if fail_point is not None:
                self._join_session(generic, op)
                _begin_failing(fail_point, op)
        self._wait_turn(spec, request, generic, op)
        if service.write_block.reason is not None and spec.is_write(op.body):
            _check_write_block(spec, op)
        if spec.writes and op.used_namespace == OPLOG and not spec.judges_oplog:
            raise refused_write()
        if waits.is_published(op.used_namespace or op.database):
            self._join_session(generic, op)
            waits.until_published(op)
            op.refresh_now()
        reply = self._carry_out(spec, request, generic, op, concern)
        return reply if fail_point is None else _with_additions(fail_point, spec, op, reply)

    def _wait_turn(self, spec: CommandSpec, request: Any, generic: GenericArguments, op: OperationContext) -> None:
        """Waits for those that go before the command. Its time is the one at which the wait ends."""
        service = self.service
        if (service.exclusive or service.fsync_locks) and waits.is_locked(op) and spec.is_write(op.body):
            self._wait(generic, op, partial(waits.until_unlocked, op), is_queued=True)
        if spec.exclusive and len(service.transactions) and not op.in_transaction and spec.is_write(op.body):
            self._wait(generic, op, partial(transactions.await_users, op, request), is_queued=True)
        elif service.transactions.waiting_changes and op.in_transaction:
            named = transactions.statement_namespaces(spec, op, request)
            if transactions.change_ahead(service, generic, op, named) is not None:
                wait = partial(transactions.await_change, generic, op, named)
                self._wait(generic, op, wait, is_queued=spec.is_write(op.body))

    def _wait(self, generic: GenericArguments, op: OperationContext, wait: Callable[[], None], is_queued: bool) -> None:
        """is_queued: whether the command counts meanwhile as a writer that waits for others."""
        metrics = self.service.metrics
        self._join_session(generic, op)
        metrics.queued_writers += is_queued
        try:
            wait()
        finally:
            metrics.queued_writers -= is_queued
        op.refresh_now()

    def _apply_arguments(
        self, spec: CommandSpec, request: Any, generic: GenericArguments, op: OperationContext
    ) -> None:
        """Checks the arguments that all commands have, and who may run this one, and sets what they say of the
        operation."""
        service = self.service
        if generic.database == "":
            raise CommandError(40571, "OP_MSG requests require a $db argument")
        check_api_version(spec, generic, service.requires_api_version)
        if generic.api_strict:
            check_api_strict(spec, op.body)
        op.extra_fields = generic.extra_fields
        if service.authorizes:
            check_access(op, spec.access, spec.name, lambda: _shown(spec, op.body), request)
            if op.client.login is None:
                # Strangers have no sessions: they could name those of others, and make any number of them.
                generic.leave_session()
        if transactions.is_statement(generic):
            op.in_transaction = True
            transactions.check_arguments(spec, generic)
        if spec.admin_only and generic.database != "admin":
            raise CommandError(ErrorCode.Unauthorized, f"{spec.name} may only be run against the admin database.")
        if generic.txn_number is not None:
            op.retryable = spec.retryable and generic.lsid is not None and generic.autocommit is None
        op.raw_data = generic.raw_data
        op.comment = generic.comment if generic.comment is not MISSING else None
        if generic.max_time_ms >= 0:
            if spec.counter == "getmore":
                op.set_await_ms(generic.max_time_ms)
            else:
                op.set_max_time_ms(generic.max_time_ms)
        elif service.cluster_parameters.default_max_time_ms > 0 and spec.takes_default_time_limit(op.body):
            op.limit_time(service.cluster_parameters.default_max_time_ms / MS_PER_S)
        if service.max_operation_s > 0.0:
            op.bound_time(service.max_operation_s)
        if generic.read_concern is not None:
            read_concern = parse_read_concern(spec, generic.read_concern, op.in_transaction)
            op.read_level = read_concern.level
            if read_concern.after is not None:
                reach_cluster_time(op, read_concern.after)
            if read_concern.level == "snapshot" and not op.in_transaction:
                snapshot_reads.enter(op, read_concern.at)

    def _write_concern(self, spec: CommandSpec, generic: GenericArguments, op: OperationContext) -> WriteConcern | None:
        """The write concern of a command, or the default one; None if it neither delays nor changes the reply."""
        given = generic.write_concern
        default = self.service.concern_defaults.write
        if given is None and default is not None and spec.is_write(op.body):
            given = default
        if given is None:
            return None
        concern = parse_write_concern(spec, given, spec.is_write(op.body))
        op.has_write_concern = generic.write_concern is not None
        if self.gateway is not None:
            concern.error = None  # Cosmos DB takes any number of members and any mode, and waits for its own quorum
        return concern if concern.durable or concern.silent or concern.error is not None else None

    def _carry_out(
        self,
        spec: CommandSpec,
        request: Any,
        generic: GenericArguments,
        op: OperationContext,
        concern: WriteConcern | None,
    ) -> bytes:
        """Runs the command's function, in its session. A retried write waits until its first attempt has ended."""
        session: Session | None = None
        transaction: Transaction | None = None
        ended = False
        try:
            if generic.lsid is not None:
                if self._is_under_way(generic, op):
                    self._await_first_attempt(generic, op)
                try:
                    session = self._enter_session(spec, generic, op)
                except InactiveTransaction as inactive:
                    if spec.batch_at < 0:
                        raise
                    ended = True
                    return self._reply(spec, op, _inactive_batch(spec, op, request, inactive))
                if session is not None:
                    session.busy = True
                transaction = op.transaction
                if transaction is not None:
                    transaction.busy = True
            elif generic.txn_number is not None:
                raise CommandError(
                    ErrorCode.InvalidOptions, "Transaction number requires a session ID to also be specified"
                )
            if concern is not None:
                reply = self._with_concern(spec, op, request, concern)
            else:
                gateway = self.gateway
                outcome = spec.function(op, request) if gateway is None else gateway.execute(spec, op, request)
                reply = self._reply(spec, op, outcome)
            ended = True
            return reply
        except Exception as error:
            ended = True
            return self._failed(spec.name, error, op)
        finally:
            if session is not None:
                session.busy = False
            if transaction is not None:
                transaction.busy = False
                if not ended:
                    transactions.leave(self.service, op, None)  # the client has disconnected

    def _is_under_way(self, generic: GenericArguments, op: OperationContext) -> bool:
        """Whether this is a retryable write or a statement of a transaction, and an earlier one of its session, or its
        first attempt, still runs."""
        if generic.txn_number is None or generic.lsid is None:
            return False
        key = session_key(generic.lsid, op.client.login)
        session = self.service.sessions.find(key)
        return (session is not None and session.busy) or transactions.is_busy(self.service, key)

    def _await_first_attempt(self, generic: GenericArguments, op: OperationContext) -> None:
        self._join_session(generic, op)
        while self._is_under_way(generic, op):
            op.check_interrupt()
            op.wait(_RETRY_POLL_S)
        op.refresh_now()

    def _join_session(self, generic: GenericArguments, op: OperationContext) -> None:
        """Records the session of a command that waits to begin, so that killing the session ends the wait."""
        if generic.lsid is not None:
            op.session_key = session_key(generic.lsid, op.client.login)
            self.service.sessions.touch(op.session_key, op.now_ms, self.service.clock.monotonic_s())

    def _enter_session(self, spec: CommandSpec, generic: GenericArguments, op: OperationContext) -> Session | None:
        """Registers the use of the session, and begins its retryable write if the command has a `txnNumber`: then the
        session."""
        assert generic.lsid is not None
        key = session_key(generic.lsid, op.client.login)
        op.session_key = key
        session = self.service.sessions.touch(key, op.now_ms, self.service.clock.monotonic_s())
        txn_number = generic.txn_number
        if op.in_transaction:
            transactions.enter(self.service, spec, generic, op)
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
        self.dialect.check_retryable_write()
        transactions.before_retryable_write(self.service, key, txn_number)
        op.txn_number = txn_number
        op.recovery_unit.retryable_write = self.service.sessions.begin_write(session, txn_number)
        return session

    def _with_concern(
        self, spec: CommandSpec, op: OperationContext, request: tuple[Value, ...], concern: WriteConcern
    ) -> bytes:
        """Runs a command whose write concern delays its reply (`j: true`) or changes it (`w: 0`, one that fails)."""
        name = spec.name
        try:
            gateway = self.gateway
            reply = spec.function(op, request) if gateway is None else gateway.execute(spec, op, request)
            if concern.durable:
                try:
                    op.flush()
                except EngineUnavailable as failure:
                    reply = self._with_failed_flush(spec, reply, failure)
            executed = reply
            if concern.silent and spec.silent:
                reply = {"n": 0}
            if concern.error is not None and isinstance(reply, dict):
                reply["writeConcernError"] = concern.error
            return self._reply(spec, op, reply, executed)
        except Exception as error:
            failed = self._failed(name, error, op)
            if concern.error is None:
                return failed
            # mongod waits for the write concern of a command that failed, too, and reports both errors.
            return encode_fields([*fields(failed), ("writeConcernError", concern.error)])

    def _with_failed_flush(self, spec: CommandSpec, reply: Reply, error: EngineUnavailable) -> Reply:
        """The reply of a command that was executed, but may be lost at a power failure or the next start."""
        self.log.error("storage", "The storage engine failed", command=spec.name, error=str(error))
        unknown: dict[str, Value] = {
            "code": ErrorCode.WriteConcernFailed,
            "codeName": ErrorCode.WriteConcernFailed.name,
            "errmsg": f"storage engine: {error}; it is unknown whether the write is durable",
        }
        added: dict[str, Value] = {"writeConcernError": unknown}
        if spec.name == "commitTransaction":
            added["errorLabels"] = [UNKNOWN_COMMIT_LABEL]
        return {**reply, **added} if isinstance(reply, dict) else encode_fields([*fields(reply), *added.items()])

    def _reply(self, spec: CommandSpec, op: OperationContext, reply: Reply, executed: Reply | None = None) -> bytes:
        """The reply of a command that has succeeded, as bytes. executed: what it was before it was made silent."""
        if op.retryable:
            _check_connection(op)
        if op.transaction is not None:
            transactions.leave(self.service, op, reply)
        if op.used_namespace:
            op.record_usage(spec.latency, spec.counter)
        if self._reset_watch is not None:
            self._watch_resets(self._reset_watch, spec, op)
        if self.log.settings.command_verbosity:
            self._log_command(spec.name, op)
        if self.last_errors is not None:
            self.last_errors.note_reply(op, spec, reply if executed is None else executed)
        if isinstance(reply, dict):
            reply.setdefault("ok", _OK)
            if op.snapshot_time is not None:
                told = reply.get("cursor", reply)
                assert isinstance(told, dict)
                told["atClusterTime"] = op.snapshot_time
            reply = encode(self.dialect.with_reply_type(spec.name, reply))
        if op.in_transaction and self.service.config.is_sharded:
            # A mongos names the shard that knows the outcome; drivers send the document back as it is.
            token = encode({"recoveryShardId": self.service.config.replica_set})
            reply = frame(reply[4:-1] + element(DOCUMENT, b"recoveryToken", token))
        _check_size(reply)
        if self.service.observation is not None:
            self.service.observation.record(spec.name, op.working_micros())
            if op.statement_errors:
                _note_statement_errors(self.service.observation, spec, op)
        if op.statement_advice:
            self._log_refused_statements(spec, op)
        profiler = self.service.profiler
        if op.used_micros >= profiler.slow_micros or profiler.attentive:
            note_operation(self.service, self.log, spec, op, reply)
        if spec.writes and spec.latency == "commands" and not spec.ends_transaction:
            self.service.cluster_clock.tick(self.service.clock.now_ms())  # writes of metadata have no unit that ticks
        return self._with_times(reply)

    def _with_times(self, reply: bytes) -> bytes:
        return self.service.cluster_clock.with_times(reply) if self.dialect.cluster_times else reply

    def _watch_resets(self, watch: ResetWatch, spec: CommandSpec, op: OperationContext) -> None:
        """Warns, once, of tests in two processes that reset this server for each other."""
        if not spec.restores:
            if spec.is_write(op.body):
                watch.note_write(op.client)
            return
        shared = watch.note_reset(op.client, self.service.clients)
        if shared is not None:
            self._reset_watch = None
            self.log.warning(
                "command",
                "Two programs reset this server at the same time, so their tests undo each other's writes",
                f"conn{op.client.connection_id}",
                command=spec.name,
                program=shared.program,
                other=shared.other,
                hint="run the tests one after another, or give each worker its own server: mongottl run --per-worker N",
            )

    def _log_command(self, name: str, op: OperationContext, error_code: int = 0) -> None:
        """Logs a command at its end. error_code: 0 if it has succeeded."""
        attributes: dict[str, object] = {"command": name, "ns": op.used_namespace or f"{op.database}.$cmd"}
        if op.used_namespace:
            attributes["durationMicros"] = op.elapsed_micros() if error_code else op.used_micros
        if error_code:
            attributes["errCode"] = error_code
        if op.meter is not None:
            attributes["requestCharge"] = op.charge / HUNDREDTHS
        self.log.info("command", "Command", f"conn{op.client.connection_id}", **attributes)

    def _log_refused_statements(self, spec: CommandSpec, op: OperationContext) -> None:
        for place, advice in op.statement_advice.items():
            entry = op.statement_errors[place]
            assert isinstance(entry, dict)
            self._log_refusal(Refusal(spec.name, op.used_namespace, int(str(entry["code"])), advice), op.client)

    def _log_refusal(self, refusal: Refusal, client: ClientInfo | None) -> None:
        """Logs what the user of this server can do about a refusal, which the reply does not say; see `refusal_log`."""
        times = self._refusal_log.note(refusal, self.service.clock.monotonic_s())
        ctx = "main" if client is None else f"conn{client.connection_id}"
        if times < 0:
            self.log.warning("command", "More refusals are not logged for a minute", ctx)
        elif times:
            attributes: dict[str, object] = {"command": refusal.command}
            if refusal.namespace:
                attributes["ns"] = refusal.namespace
            attributes["error"] = self.dialect.code_name(refusal.code)
            if times > 1:
                attributes["times"] = times
            self.log.warning("command", "Command refused", ctx, **attributes, advice=refusal.advice)

    def _failed(
        self,
        name: str,
        error: Exception,
        op: OperationContext | None,
        client: ClientInfo | None = None,
        namespace: str = "",
    ) -> bytes:
        """The reply to a command that failed. op: None for one that was refused before it began, by `client`.
        namespace: the collection that one names that was refused before it began."""
        if isinstance(error, ProtocolError):
            raise error
        if op is not None:
            _check_connection(op)
        metrics = self.service.metrics
        known = name if name in COMMANDS else UNKNOWN_COMMAND
        metrics.failed_commands[known] = metrics.failed_commands.get(known, 0) + 1
        if isinstance(error, DamagedRecord):
            error = self.service.catalog.with_namespace(error)
            self.log.error("storage", "A stored record is damaged", command=name, error=str(error))
        elif isinstance(error, DiskFull):
            self.service.note_full_disk()
        elif isinstance(error, EngineUnavailable):
            self.log.error("storage", "The storage engine failed", command=name, error=str(error))
        if isinstance(error, WRITE_CONFLICTS):
            metrics.write_conflicts += 1
        if op is not None and op.transaction is not None:
            transactions.leave(self.service, op, None)
        failure = command_error(error)
        if failure is None:
            self.log.exception("command", "Internal error", error, command=name)
            metrics.asserts_internal += 1
            failure = CommandError(ErrorCode.InternalError, f"internal error: {type(error).__name__}: {error}")
        else:
            metrics.asserts_user += 1
            if op is not None and not failure.labels:
                failure.labels = labels_of(name, op, failure.code)
        if op is not None:
            client = op.client
            namespace = op.used_namespace
        observation = self.service.observation
        if observation is not None:
            observation.record_error(known, namespace, failure.code, failure.message, failure.advice)
            if op is not None and op.began_s:
                observation.record(known, op.working_micros())
        if failure.advice:
            self._log_refusal(Refusal(name, namespace, failure.code, failure.advice), client)
        if client is not None and self.last_errors is not None:
            self.last_errors.note_error(client, failure)
        described = error_reply(failure)
        if failure.code in self.dialect.code_names:
            described["codeName"] = self.dialect.code_names[failure.code]
        reply = encode(described)
        if op is not None and self.log.settings.command_verbosity:
            self._log_command(name, op, failure.code)
        spec = COMMANDS.get(name)
        if op is not None and spec is not None and op.body:
            profiler = self.service.profiler
            if profiler.attentive or op.elapsed_micros() >= profiler.slow_micros:
                note_operation(self.service, self.log, spec, op, reply)
        return self._with_times(reply)


def _note_statement_errors(observation: Observation, spec: CommandSpec, op: OperationContext) -> None:
    advice = op.statement_advice
    for place, entry in enumerate(op.statement_errors):
        if isinstance(entry, dict) and isinstance(entry.get("code"), int):
            text = str(entry.get("errmsg", ""))
            observation.record_statement_error(
                spec.name, op.used_namespace, int(entry["code"]), text, advice.get(place, "")
            )


def _named_collection(name: str, body: bytes) -> str:
    """The collection that a command names, as `<database>.<collection>`; "" for none."""
    spec = COMMANDS.get(name)
    if spec is None or not spec.names_collection:
        return ""
    collection = ElementCursor(body, 0)
    database = _early_field(body, b"$db")
    if not collection.next() or collection.type_code != STRING or database is None or database.type_code != STRING:
        return ""
    return f"{database.decoded()}.{collection.decoded()}"


def _asks_help(body: bytes) -> bool:
    """Whether a command that cannot be parsed asks for its help."""
    asked = _early_field(body, b"help")
    return asked is not None and asked.type_code == BOOL and asked.decoded() is True


def _early_field(body: bytes, name: bytes) -> ElementCursor | None:
    """The field of this name, if it is among the first ones: the millions that a command may have are not looked at
    once more, nor is any of them decoded, only to tell of its refusal. Anyone may send them, before a login, too."""
    cursor = ElementCursor(body, 0)
    for _ in range(_MOST_FIELDS):
        if not cursor.next():
            break
        if cursor.name_is(name):
            return cursor
    return None


def _check_write_block(spec: CommandSpec, op: OperationContext) -> None:
    """UserWritesBlocked (371) for a write that setUserWriteBlockMode blocks."""
    block = op.service.write_block
    if spec.family in _ACCOUNT_FAMILIES or not (spec.writes_anywhere or block.blocks(op.database)):
        return
    if not (op.service.authorizes and op.may(CLUSTER, "bypassWriteBlockingMode")):
        raise block.refusal()


def _check_connection(op: OperationContext) -> None:
    """ProtocolError at the end of a retryable write whose client gets no answer."""
    write = op.recovery_unit.retryable_write
    if write is not None and write.closes_connection:
        raise ProtocolError("onPrimaryTransactionalWrite: closeConnection")


def _shown(spec: CommandSpec, body: bytes) -> str:
    """A command as an error's text shows it: without passwords, and only its name if it is long."""
    if len(body) > _MAX_SHOWN_BYTES:
        return f"{{ {spec.name}: ... }}"
    return render_logged(spec.without_secrets(body))


def _validate(document: bytes, max_depth: int, stacks: Stacks) -> None:
    """`validate_document`; others run meanwhile."""
    check = SlicedValidation(document, max_depth)
    while not check.advance():
        stacks.give_way()


def _begin_failing(fail_point: FailCommand, op: OperationContext) -> None:
    """Does what a fail point that is set for the command does before it: its session does not record it, so that a
    retry runs again."""
    if fail_point.labels is not None:
        op.adds_labels = False  # only the labels that the fail point names are set
    if fail_point.block_s > 0:
        op.waits_for = Signal()
        op.service.stacks.wait(Wait(fail_point.block_s, op.waits_for))  # which counts as its work
        op.waits_for = None
        op.check_interrupt()
    fail_point.fail()


def _with_additions(fail_point: FailCommand, spec: CommandSpec, op: OperationContext, reply: bytes) -> bytes:
    """The reply to a command for which a fail point is set."""
    additions = fail_point.reply_additions()
    if not additions or _is_error(reply):
        return reply
    failed = additions.get("writeConcernError")
    if isinstance(failed, bytes):
        code = get_value(failed, "code")
        if isinstance(code, int) and RETRYABLE_WRITE_LABEL in labels_of(spec.name, op, code):
            additions["errorLabels"] = [RETRYABLE_WRITE_LABEL]
    return encode_fields([*fields(reply), *additions.items()])


def _check_size(body: bytes) -> None:
    """BSONObjectTooLarge (10334) for a body that MongoDB's documents cannot have."""
    size = len(body)
    if size > MAX_BODY_BYTES:
        raise CommandError(
            ErrorCode.BSONObjectTooLarge,
            f"BSONObj size: {size} ({size:#x}) is invalid. Size must be between 0 and {MAX_BODY_BYTES}(16MB)",
        )


def _command_message(message: OpQuery | OpGetMore) -> OpQuery:
    """The message if it runs a command. UnsupportedOpQueryCommand (352) for one that reads a collection without a
    command; drivers look for the text of that error in `$err`."""
    if isinstance(message, OpQuery) and message.is_command:
        return message
    what = "OP_QUERY on a collection" if isinstance(message, OpQuery) else "OP_GET_MORE"
    text = f"{what} is not supported; {OLD_DRIVER}"
    raise CommandError(ErrorCode.UnsupportedOpQueryCommand, text, details={"$err": text})


def _is_taken_by_op_query(name: str) -> bool:
    """Whether a server of every version takes the command by OP_QUERY."""
    spec = COMMANDS.get(name)
    return spec is not None and spec.by_op_query


def _is_handshake(name: str) -> bool:
    spec = COMMANDS.get(name)
    return spec is not None and spec.handshake


def _is_error(reply: bytes) -> bool:
    type_code, pos = find_field_at(reply, 0, b"ok")
    return type_code != DOUBLE or reply[pos : pos + 8] == bytes(8)


def _open_cursor(reply: bytes) -> int:
    """The cursor id in a reply, 0 if it has none or its cursor is exhausted."""
    type_code, pos = find_field_at(reply, 0, b"cursor")
    if type_code != DOCUMENT:
        return 0
    type_code, pos = find_field_at(reply, pos, b"id")
    return int.from_bytes(reply[pos : pos + 8], "little", signed=True) if type_code == INT64 else 0


def _command_in(message: Request) -> bytes:
    """The body of the command in a message that has not been validated; an empty document for one without a command."""
    if isinstance(message, OpMsg):
        return message.body
    if not isinstance(message, OpQuery):
        return EMPTY_DOCUMENT
    inner = _wrapped(message.query)
    return inner if len(inner) >= len(EMPTY_DOCUMENT) and inner[-1] == 0 else message.query


def _inactive_batch(spec: CommandSpec, op: OperationContext, request: Any, error: CommandError) -> Reply:
    """The reply to a write command of a transaction that has ended: each statement fails, and an ordered batch ends
    with the first. That an unordered one goes on is assumed."""
    from mongottl.commands.crud.write_batch import failed_batch

    return failed_batch(op, spec.counter, error, 1 if request.ordered else len(request[spec.batch_at]))


def _wrapped(query: bytes) -> bytes:
    """The document in the first field of an OP_QUERY's document, if that field is one of the wrapper with which drivers
    send a read preference beside the command: `{$query: {…}, $readPreference: {…}}`; else empty."""
    name = first_field_name(query)
    if name not in _WRAPPERS:
        return b""
    at = 5 + len(name) + 1
    return query[at : at + int.from_bytes(query[at : at + 4], "little")] if query[4] == DOCUMENT else b""


def _unwrapped(query: bytes) -> bytes:
    """The command in an OP_QUERY's document. The other fields of the wrapper say nothing to a server of one member.

    InvalidOptions (72) for `$maxTimeMS`, which belongs to queries of collections. 40621 for `$db`: the message itself
    names the database.
    """
    inner = _wrapped(query)
    for document in (query, inner):
        if document and find_field_at(document, 0, b"$db")[0] != 0:
            raise CommandError(40621, "$db is not allowed in OP_QUERY requests")
    if not inner:
        return query
    if find_field_at(query, 0, b"$maxTimeMS")[0] != 0:
        raise CommandError(
            ErrorCode.InvalidOptions,
            "cannot use $maxTimeMS query option with commands; use maxTimeMS command option instead",
        )
    return inner
