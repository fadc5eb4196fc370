"""Replies: of commands that have succeeded, and of those that have failed. What is counted, logged and profiled of a
command is noted here, where it ends.

Any exception becomes an error reply: a `CommandError` has its own code, every other exception is InternalError (1) and
is logged with its trace.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from mongottl.commands import COMMANDS, CommandSpec, Reply
from mongottl.dialect.interface import Dialect
from mongottl.document.build import encode, encode_fields
from mongottl.document.splice import element, frame
from mongottl.document.types import DOCUMENT, RawArray, Value
from mongottl.document.walk import fields
from mongottl.errors import UNKNOWN_COMMIT_LABEL, CommandError, ErrorCode, ProtocolError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.running.stack import Stack
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.state.metrics import UNKNOWN_COMMAND
from mongottl.exec.state.observation import Observation
from mongottl.server import transactions
from mongottl.server.command_log import CommandLog
from mongottl.server.error_replies import WRITE_CONFLICTS, command_error, error_reply, labels_of
from mongottl.server.log import Log
from mongottl.server.message_body import check_size
from mongottl.server.profiling.operations import note_operation
from mongottl.server.refusal_log import Refusal
from mongottl.storage.errors import DamagedRecord, DiskFull, EngineUnavailable, StoreUnreachable, UnitLost

if TYPE_CHECKING:
    from mongottl.server.last_errors import LastErrors

_OK: Final = 1.0
# Of such a reply no part is kept in memory longer than it is needed.
_LONG_BYTES: Final = 64 * 1024


class Replies:
    """Makes the replies of one server."""

    def __init__(self, service: ServiceContext, log: Log) -> None:
        self._service = service
        self._log = log
        self._dialect: Dialect = service.dialect
        self._lines = CommandLog(service, log)
        self._last_errors: LastErrors | None = None
        if self._dialect.has_last_errors:
            from mongottl.server import last_errors

            self._last_errors = last_errors.LastErrors()

    def succeeded(self, spec: CommandSpec, op: OperationContext, reply: Reply, executed: Reply | None = None) -> bytes:
        """The reply of a command that has succeeded, as bytes. executed: what it was before it was made silent."""
        if op.session.txn_number is not None:
            _check_connection(op)
        if op.session.transaction is not None:
            transactions.leave(self._service, op, reply)
        if op.used_namespace:
            op.record_usage(spec.latency, spec.counter)
        if self._lines.reset_watch is not None:
            self._lines.watch_resets(spec, op)
        if self._log.settings.command_verbosity:
            self._lines.ended(spec.name, op)
        if self._last_errors is not None:
            self._last_errors.note_reply(op, spec, reply if executed is None else executed)
        if isinstance(reply, dict):
            reply.setdefault("ok", _OK)
            if op.reading.snapshot_time is not None:
                holder = reply.get("cursor", reply)
                assert isinstance(holder, dict)
                holder["atClusterTime"] = op.reading.snapshot_time
            parts = reply
            reply = self._encoded(op, self._dialect.with_reply_type(spec.name, parts))
            if len(reply) >= _LONG_BYTES:
                parts.clear()  # callers hold it, and so a batch of 16 MB, while two copies are made
        if op.session.in_transaction and self._service.config.is_sharded:
            # A mongos names the shard that knows the outcome; drivers send the document back as it is.
            token = encode({"recoveryShardId": self._service.config.replica_set})
            reply = frame(reply[4:-1] + element(DOCUMENT, b"recoveryToken", token))
        check_size(reply)
        if self._service.observation is not None:
            self._service.observation.record(spec.name, op.working_micros())
            if op.profile.statement_errors.entries:
                _note_statement_errors(self._service.observation, spec, op)
        if op.profile.statement_errors.advice:
            self._lines.refused_statements(spec, op)
        profiler = self._service.profiler
        if op.profile.used_micros >= profiler.slow_micros or profiler.attentive:
            self._note_operation(spec, op, reply)
        if spec.writes and spec.latency == "commands" and not spec.ends_transaction:
            self._service.commit_log.pass_metadata_write()
        return self.with_times(reply)

    def _encoded(self, op: OperationContext, reply: dict[str, Value]) -> bytes:
        """A reply as bytes. It has as many parts as what the client asks for, so others run meanwhile."""
        stacks = self._service.stacks
        if stacks.present is None:
            return encode(reply)
        op.is_answered = True
        return stacks.compute(partial(_encoded_by, stacks.present, reply))

    def _note_operation(self, spec: CommandSpec, op: OperationContext, reply: bytes) -> None:
        """`note_operation`; others run meanwhile."""
        op.is_answered = True
        self._service.stacks.compute(partial(note_operation, self._service, self._log, spec, op, reply))

    def with_failed_flush(self, spec: CommandSpec, reply: Reply, error: EngineUnavailable) -> Reply:
        """The reply of a command that was executed, but may be lost at a power failure or the next start."""
        self._log.error("storage", "The storage engine failed", command=spec.name, error=str(error))
        unknown: dict[str, Value] = {
            "code": ErrorCode.WriteConcernFailed,
            "codeName": ErrorCode.WriteConcernFailed.name,
            "errmsg": f"storage engine: {error}; it is unknown whether the write is durable",
        }
        added: dict[str, Value] = {"writeConcernError": unknown}
        if spec.name == "commitTransaction":
            added["errorLabels"] = [UNKNOWN_COMMIT_LABEL]
        return {**reply, **added} if isinstance(reply, dict) else encode_fields([*fields(reply), *added.items()])

    def with_times(self, reply: bytes) -> bytes:
        """The reply with `$clusterTime` and `operationTime`, where the dialect has them."""
        return self._service.cluster_clock.with_times(reply) if self._dialect.cluster_times else reply

    def failed(
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
        metrics = self._service.metrics
        known = name if name in COMMANDS else UNKNOWN_COMMAND
        metrics.failed_commands[known] = metrics.failed_commands.get(known, 0) + 1
        if isinstance(error, DamagedRecord):
            error = self._service.catalog.with_namespace(error)
            self._log.error("storage", "A stored record is damaged", command=name, error=str(error))
        elif isinstance(error, DiskFull):
            self._service.hooks.note_full_disk()
        elif isinstance(error, (StoreUnreachable, UnitLost)):
            self._log.warning("storage", "The store does not answer", command=name, error=str(error))
        elif isinstance(error, EngineUnavailable):
            self._log.error("storage", "The storage engine failed", command=name, error=str(error))
        if isinstance(error, WRITE_CONFLICTS) and not isinstance(error, UnitLost):
            metrics.write_conflicts += 1
        if op is not None and op.session.transaction is not None:
            transactions.leave(self._service, op, None)
        failure = command_error(error)
        if failure is None:
            self._log.exception("command", "Internal error", error, command=name)
            metrics.asserts_internal += 1
            failure = CommandError(ErrorCode.InternalError, f"internal error: {type(error).__name__}: {error}")
        else:
            metrics.asserts_user += 1
            if op is not None and not failure.labels:
                failure.labels = labels_of(name, op, failure.code)
        if op is not None:
            client = op.client
            namespace = op.used_namespace
        observation = self._service.observation
        if observation is not None:
            observation.record_error(known, namespace, failure.code, failure.message, failure.advice)
            if op is not None and op.profile.began_s:
                observation.record(known, op.working_micros())
        if failure.advice:
            self._lines.refused(Refusal(name, namespace, failure.code, failure.advice), client)
        if client is not None and self._last_errors is not None:
            self._last_errors.note_error(client, failure)
        described = error_reply(failure)
        if failure.code in self._dialect.code_names:
            described["codeName"] = self._dialect.code_names[failure.code]
        reply = encode(described) if op is None else self._encoded(op, described)
        if op is not None and self._log.settings.command_verbosity:
            self._lines.ended(name, op, failure.code)
        spec = COMMANDS.get(name)
        if op is not None and spec is not None and op.command.body:
            profiler = self._service.profiler
            if profiler.attentive or op.elapsed_micros() >= profiler.slow_micros:
                self._note_operation(spec, op, reply)
        return self.with_times(reply)


def _encoded_by(stack: Stack, reply: dict[str, Value]) -> bytes:
    """A reply as bytes, of an operation that has a stack. A long one is copied before, when its batch is ended, and
    once more afterwards, with its times: others run in between."""
    if _has_long_batch(reply):
        stack.leave_if_due()
    encoded = encode(reply)
    if len(encoded) >= _LONG_BYTES:
        stack.leave_if_due()
    return encoded


def _has_long_batch(reply: dict[str, Value]) -> bool:
    cursor = reply.get("cursor")
    if not isinstance(cursor, dict):
        return False
    batch = cursor.get("firstBatch", cursor.get("nextBatch"))
    return isinstance(batch, RawArray) and len(batch.data) >= _LONG_BYTES


def _note_statement_errors(observation: Observation, spec: CommandSpec, op: OperationContext) -> None:
    errors = op.profile.statement_errors
    for place, entry in enumerate(errors.entries):
        if isinstance(entry, dict) and isinstance(entry.get("code"), int):
            text = str(entry.get("errmsg", ""))
            observation.record_statement_error(
                spec.name, op.used_namespace, int(entry["code"]), text, errors.advice.get(place, "")
            )


def _check_connection(op: OperationContext) -> None:
    """ProtocolError at the end of a retryable write whose client gets no answer."""
    write = op.recovery_unit.retryable_write
    if write is not None and write.closes_connection:
        raise ProtocolError("onPrimaryTransactionalWrite: closeConnection")
