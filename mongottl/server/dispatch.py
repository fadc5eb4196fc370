"""From a message to a command, and from its result to the reply: the life of a request.

    handle ── _answer          the message is valid (`message_body`)
                └─ _answer_valid   it names a command (`command_lookup`), whose request is parsed
                     └─ _perform       on a stack, unless it is a prompt one, and that needs none
                          └─ _run          it may begin (`admission`)
                               └─ _carry_out   in its session (`session_use`) its function is called
                                    └─ a reply      of success or failure (`replies`)

A command's function returns its reply. `Dispatcher.handle` returns it at once, or what is left of a command that lets
others run, or waits (`exec.running.stack`).
"""

from functools import partial
from typing import Any, Final

from mongottl.clock import VirtualClock
from mongottl.commands import CommandSpec, Reply
from mongottl.commands.admin.handshake import app_name, without_unknown
from mongottl.commands.concerns import WriteConcern
from mongottl.commands.dialect_hooks import Gateway, hooks_of
from mongottl.commands.request import GenericArguments, made
from mongottl.dialect.interface import InactiveTransaction
from mongottl.document.build import encode, encode_fields
from mongottl.document.types import Value
from mongottl.document.validate import MAX_MESSAGE_DEPTH, validate_document, validate_documents
from mongottl.document.walk import fields, first_field_name
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import LONG_REQUEST_BYTES, OperationContext
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.running.stack import NeedsStack, Steps
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.sessions.session_ids import session_key
from mongottl.exec.sessions.sessions import Session
from mongottl.exec.sessions.transactions import Transaction
from mongottl.exec.state.failpoints import FailCommand
from mongottl.server import transactions, waits
from mongottl.server.admission import Admission, registered
from mongottl.server.command_lookup import CommandLookup, asks_help, check_op_query, named_collection
from mongottl.server.fail_command import begin_failing, with_additions
from mongottl.server.interruption import interruption_check
from mongottl.server.log import Log
from mongottl.server.message_body import (
    LONG_MESSAGE_BYTES,
    check_size,
    command_message,
    kill_cursors_command,
    unwrapped,
    validate_long,
)
from mongottl.server.replies import Replies
from mongottl.server.session_use import SessionUse, inactive_batch
from mongottl.storage.errors import EngineUnavailable
from mongottl.wire.messages import OpKillCursors, OpMsg, OpQuery, Request

_OK: Final = 1.0
# As a mask: the number of requests after which the garbage collector examines what is new, 5 to 20 ms of work.
_EXAMINED_AFTER: Final = 0xFF


class Dispatcher:
    """Runs commands for all connections of one server."""

    def __init__(self, service: ServiceContext, log: Log) -> None:
        self.service = service
        self.gateway: Gateway | None = hooks_of(service).gateway(service)
        features = service.features
        service.describe_operation = partial(registered, service)
        service.stacks.check = interruption_check(service.stacks)
        self._takes_legacy_opcodes = features is not None and features.takes_legacy_opcodes
        # A clock that stands still from the first command on: of those that drivers and health checks do not send.
        clock = service.clock
        self._unsettled = clock if isinstance(clock, VirtualClock) and clock.unsettled else None
        self._lookup = CommandLookup(features, service.config.enable_test_commands)
        self._sessions = SessionUse(service)
        self._admission = Admission(service, self._sessions, self.gateway is not None)
        self._replies = Replies(service, log)

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
        if service.metrics.requests & _EXAMINED_AFTER == 0:
            service.stacks.examine_new()
        if isinstance(message, OpKillCursors):
            message = kill_cursors_command(message, self._takes_legacy_opcodes)
        try:
            if not isinstance(message, OpMsg):
                message = command_message(message)
            document = message.body if isinstance(message, OpMsg) else message.query
            check_size(document)
            is_long = message.size_bytes > LONG_MESSAGE_BYTES
            if is_long:
                validate_long(message, document, service.stacks)
                waits.until_restored(service)  # which may have begun meanwhile
            else:
                validate_document(document, MAX_MESSAGE_DEPTH)
        except Exception as error:
            return self._replies.failed("", error, None)
        return self._answer_valid(message, document, client, is_long)

    def _answer_valid(
        self, message: OpMsg | OpQuery, body: bytes, client: ClientInfo, is_long: bool
    ) -> bytes | Steps[bytes]:
        """The reply to a request whose document is valid BSON.

        body: that document. is_long: whether others run while it is read; its sequences have been validated, too.
        """
        name = ""
        op: OperationContext | None = None
        stacks = self.service.stacks
        try:
            sequences = message.sequences if isinstance(message, OpMsg) else []
            if isinstance(message, OpQuery):
                body = stacks.compute_unknown(unwrapped, body) if is_long else unwrapped(body)
            name = first_field_name(body)
            if isinstance(message, OpQuery) and not self._takes_legacy_opcodes:
                check_op_query(name)
            spec = self._lookup.find(name)
            name = spec.name
            features = self.service.features
            if spec.handshake and features is not None:
                body = without_unknown(body, features)
            generic = GenericArguments()
            if isinstance(message, OpQuery):
                generic.database = message.namespace.partition(".")[0]
            try:
                parse = spec.parser.parse
                values = (partial(stacks.compute_unknown, parse) if is_long else parse)(body, sequences, generic)
            except CommandError:
                # Who asks for help need not know what the command requires.
                if not asks_help(body):
                    raise
                generic.asks_help = True
            if features is not None and not spec.handshake:
                features.check_arguments(spec.name, body, sequences)
            if generic.asks_help:
                return self._replies.with_times(encode({"help": f"help for: {spec.name} {spec.help}", "ok": _OK}))
            if not is_long:
                for _, documents in sequences:
                    validate_documents(documents)
            if self._unsettled is not None and not spec.access.by_anyone:
                self._settle(self._unsettled)
                self._unsettled = None
            op = OperationContext(self.service, client, generic.database)
            op.set_request_bytes(message.size_bytes)
            cluster_clock = self.service.cluster_clock
            if op.now_s >= cluster_clock.idle_due_s:
                cluster_clock.tick(op.now_ms)
            if generic.cluster_time_at and (client.login is not None or not self.service.authorizes):
                cluster_clock.receive(body, generic.cluster_time_at, op.now_ms)
                op.cluster_time = cluster_clock.last
            op.command = generic.sent_command(spec, body, sequences)
            request = made(spec.request, values)
            self.service.metrics.count_command(spec.name, "" if spec.counts_statements else spec.counter)
            if stacks.present is None and not self._admission.is_prompt(spec, request, generic, op):
                return stacks.begin(partial(self._perform, spec, request, generic, op))
        except Exception as error:
            return self._replies.failed(name, error, op, client, named_collection(name, body) if op is None else "")
        try:
            return self._perform(spec, request, generic, op)
        except NeedsStack:
            op = OperationContext(self.service, client, generic.database)
            op.set_request_bytes(message.size_bytes)
            op.command = generic.sent_command(spec, body, sequences)
        return stacks.begin(partial(self._perform, spec, request, generic, op))

    def _settle(self, clock: VirtualClock) -> None:
        """Stops a clock that is to stand still from now on."""
        clock.settle()

    def _perform(self, spec: CommandSpec, request: Any, generic: GenericArguments, op: OperationContext) -> bytes:
        """Carries out a parsed command, on its stack unless it is a prompt one. NeedsStack: nothing is changed yet."""
        self.service.stacks.carry(op)
        try:
            return self._run(spec, request, generic, op)
        except Exception as error:
            return self._replies.failed(spec.name, error, op)
        finally:
            op.end()

    def _run(self, spec: CommandSpec, request: Any, generic: GenericArguments, op: OperationContext) -> bytes:
        service = self.service
        if service.profiler.attentive or service.observation is not None:
            op.begin_profile()
        concern = self._admission.check(spec, request, generic, op)
        fail_point: FailCommand | None = None
        if service.fail_points.fails_commands():
            fail_point = service.fail_points.triggered(spec.names, app_name(op, spec, op.command.body))
            if fail_point is not None:
                self._sessions.join(generic, op)
                begin_failing(fail_point, op)
        self._admission.wait(spec, request, generic, op)
        reply = self._carry_out(spec, request, generic, op, concern)
        return reply if fail_point is None else with_additions(fail_point, spec, op, reply)

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
                key = session_key(generic.lsid, op.client.login)
                if self._sessions.is_under_way(key, generic):
                    if self.service.stacks.present is None:
                        raise NeedsStack
                    self._sessions.await_first_attempt(key, generic, op)
                try:
                    session = self._sessions.enter(key, spec, generic, op)
                except InactiveTransaction as inactive:
                    if spec.batch_at < 0:
                        raise
                    ended = True
                    return self._replies.succeeded(spec, op, inactive_batch(spec, op, request, inactive))
                if session is not None:
                    session.busy = True
                transaction = op.session.transaction
                if transaction is not None:
                    transaction.busy = True
            elif generic.txn_number is not None:
                text = "Transaction number requires a session ID to also be specified"
                raise CommandError(ErrorCode.InvalidOptions, text)
            if concern is not None:
                reply = self._with_concern(spec, op, request, concern)
            else:
                reply = self._replies.succeeded(spec, op, self._call(spec, op, request))
            ended = True
            return reply
        except Exception as error:
            ended = True
            return self._replies.failed(spec.name, error, op)
        finally:
            if session is not None:
                session.busy = False
            if transaction is not None:
                transaction.busy = False
                if not ended:
                    transactions.leave(self.service, op, None)  # the client has disconnected

    def _with_concern(
        self, spec: CommandSpec, op: OperationContext, request: tuple[Value, ...], concern: WriteConcern
    ) -> bytes:
        """Runs a command whose write concern delays its reply (`j: true`) or changes it (`w: 0`, one that fails)."""
        name = spec.name
        try:
            reply = self._call(spec, op, request)
            if concern.durable:
                try:
                    op.flush()
                except EngineUnavailable as failure:
                    reply = self._replies.with_failed_flush(spec, reply, failure)
            executed = reply
            if concern.silent and spec.silent:
                reply = {"n": 0}
            if concern.error is not None and isinstance(reply, dict):
                reply["writeConcernError"] = concern.error
            return self._replies.succeeded(spec, op, reply, executed)
        except Exception as error:
            failed = self._replies.failed(name, error, op)
            if concern.error is None:
                return failed
            # mongod waits for the write concern of a command that failed, too, and reports both errors.
            return encode_fields([*fields(failed), ("writeConcernError", concern.error)])

    def _call(self, spec: CommandSpec, op: OperationContext, request: tuple[Value, ...]) -> Reply:
        if self.service.stacks.present is None and spec.writes:
            return self.service.stacks.attempt(spec.function, op, request)
        gateway = self.gateway
        return spec.function(op, request) if gateway is None else gateway.execute(spec, op, request)
