"""Commands of a server that is one of several with the same store (`storage.nodes`).

    before    its place among them is valid, and it knows the present catalog
    after     all others know what the command has changed there; what it has read was true, since the place still is

A command that was made from a catalog which has changed meanwhile is carried out again, if it has not committed
anything, or nothing that matters. So is one that meets what a transaction or a command of another server holds, until
it gets through, its time limit is over, its client leaves or it is killed. What is said by one that only reads, after
the place was lost, may be old: it is answered by an error upon which drivers read again, mostly elsewhere.

A retryable write may have been sent to another server before. What that has executed is looked up in the store's log
where it shows: the store refuses to execute a statement twice, or the write does less than it is to do. Then the write
is carried out again, and passes over what is known of it now. Where the client may have gone on to a higher number, a
statement that comes late is refused by the store as well.

A transaction may be ended by way of another server than its own, after its client has lost the connection to that. What
is not committed then is aborted everywhere before the answer: a commit that arrives there later, after the client has
begun the transaction anew, must not be carried out.
"""

from functools import partial
from typing import Any, Final

from mongottl.clock import VirtualClock
from mongottl.commands import CommandSpec, Reply
from mongottl.commands.concerns import WriteConcern
from mongottl.commands.request import GenericArguments
from mongottl.document.types import Timestamp, Value
from mongottl.document.walk import fields_by_name, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.node_messages import abort_elsewhere, obey
from mongottl.exec.operation.refreshing import follow_others, known_to_all
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.running.stack import Steps
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.service.stored_clock import change_clock
from mongottl.exec.sessions.retryable_writes import WriteHistory
from mongottl.exec.sessions.session_ids import session_key
from mongottl.exec.unit.write_unit import CollectionHeld
from mongottl.exec.write.waiting import await_copy, await_transaction
from mongottl.oplog.positioned import PositionedOplog
from mongottl.query.timestamps import MAX_SECONDS
from mongottl.server.dispatch import Dispatcher
from mongottl.server.log import Log
from mongottl.storage.errors import (
    CatalogChanged,
    StatementExecuted,
    StorageError,
    StoreUnreachable,
    UnitLost,
    WriteConflict,
)
from mongottl.storage.nodes import StoreNodes
from mongottl.wire.messages import Request

# A client that has given a request up, and has had another one carried out elsewhere, has taken longer, in seconds.
_LATE_S: Final = 1


class NodeDispatcher(Dispatcher):
    """nodes: of the store."""

    def __init__(self, service: ServiceContext, log: Log, nodes: StoreNodes) -> None:
        super().__init__(service, log)
        self._nodes = nodes
        self._log = log
        follow_others(service)
        nodes.on_message = self._obey
        if service.config.enable_test_commands:
            # Clients may bring the time of another server whose clock is being moved, before this one knows of that.
            service.cluster_clock.max_drift_s = MAX_SECONDS

    def _obey(self, message: bytes) -> None:
        """Does what another server asks. What is raised says that it was not done."""
        try:
            obey(self.service, message)
        except StorageError:
            raise  # the other one asks again
        except Exception as error:
            self._log.exception("storage", "What another server asks for has failed", error)
            raise

    def handle(self, message: Request, client: ClientInfo) -> bytes | Steps[bytes]:
        if self._unsettled is not None:  # it is settled by a command that waits for others
            return self.service.stacks.call(self._answer_on_stack, message, client)
        return super().handle(message, client)

    def _settle(self, clock: VirtualClock) -> None:
        if clock.unsettled:
            known_to_all(self.service, partial(change_clock, self.service, VirtualClock.settle))
            self.service.note_clock_change()

    def _carry_out(
        self,
        spec: CommandSpec,
        request: Any,
        generic: GenericArguments,
        op: OperationContext,
        concern: WriteConcern | None,
    ) -> bytes:
        if spec.ends_transaction and generic.lsid is not None and generic.txn_number is not None:
            key = session_key(generic.lsid, op.client.login)
            latest = self.service.transactions.latest(key)
            if latest is None or latest.number < generic.txn_number:
                try:
                    self._end_elsewhere(spec, op, key, generic.txn_number)
                except WriteConflict as conflict:
                    # Its driver would begin the transaction anew for a conflict.
                    text = f"it cannot be found out whether the transaction was committed: {conflict}"
                    raise StoreUnreachable(text) from conflict
        return super()._carry_out(spec, request, generic, op, concern)

    def _end_elsewhere(self, spec: CommandSpec, op: OperationContext, key: bytes, number: int) -> None:
        """Has a transaction ended that is none of this server: it may have been committed by another one, which has not
        answered, and is aborted if not."""
        if spec.repeats_commit and self._is_committed(op, key, number):
            return
        abort_elsewhere(self.service, key, number)
        if spec.repeats_commit:
            self._is_committed(op, key, number)

    def _is_committed(self, op: OperationContext, key: bytes, number: int) -> bool:
        """Whether another server has committed a transaction: then all know what it has changed of the catalog."""
        self._recall(op, key, number)
        session = self.service.sessions.find(key)
        assert session is not None
        is_committed = session.history.txn_number == number and session.history.is_committed_transaction
        if is_committed:
            self._nodes.spread()
        return is_committed

    def _call(self, spec: CommandSpec, op: OperationContext, request: tuple[Value, ...]) -> Reply:
        if spec.handshake or self.service.stacks.asks:  # which touch no data, and must not wait for the place
            return super()._call(spec, op, request)
        nodes = self._nodes
        retries = op.session.txn_number is not None
        write = op.recovery_unit.retryable_write
        if write is not None:
            write.may_be_late = _may_be_late(op)
        after_change = False
        while True:
            nodes.begin(after_change)
            try:
                reply = super()._call(spec, op, request)
            except WriteConflict as conflict:
                after_change = isinstance(conflict, CatalogChanged)
                has_committed = nodes.has_committed
                nodes.end()
                is_lost = isinstance(conflict, UnitLost)
                if is_lost or op.session.in_transaction or (has_committed and not spec.is_repeatable):
                    raise
                if isinstance(conflict, CollectionHeld):
                    await_copy(op, conflict.collection)
                else:
                    await_transaction(op, conflict)
                continue
            except StatementExecuted:
                nodes.end()
                if op.session.in_transaction or not self._recall_write(op):
                    text = "another server has executed a transaction or write with this session and number"
                    raise CommandError(ErrorCode.TransactionTooOld, text) from None
                continue
            except CommandError as error:
                nodes.end()
                if retries and error.code == ErrorCode.DuplicateKey and self._recall_write(op):
                    continue
                raise
            except Exception:
                nodes.end()
                raise
            has_committed = nodes.has_committed
            is_valid = nodes.is_valid
            nodes.end()
            # A write that has done nothing says what it has not found.
            is_done = has_committed or op.session.in_transaction
            if not is_valid and not (is_done and spec.is_write(op.command.body)):
                raise StoreUnreachable("this server has lost its place among those of its store")
            if retries and (not has_committed or _does_less(spec, request, reply)) and self._recall_write(op):
                continue
            return reply

    def _recall_write(self, op: OperationContext) -> bool:
        """Whether other servers have executed more of a retryable write than was known here: it is known then."""
        number = op.session.txn_number
        key = op.session_key
        if number is None or key is None or not self._recall(op, key, number):
            return False
        session = self.service.sessions.find(key)
        assert session is not None
        op.recovery_unit.retryable_write = self.service.sessions.begin_write(session, number)
        return True

    def _recall(self, op: OperationContext, key: bytes, number: int) -> bool:
        oplog = self.service.oplog
        assert isinstance(oplog, PositionedOplog)
        session = self.service.sessions.touch(key, op.now_ms, self.service.clock.monotonic_s())
        found = oplog.statements_of(session.lsid, number)
        if found and not _is_latest(session.history, number, found[-1][2]):
            # The other server has not acknowledged it, perhaps, since no standby has it.
            oplog.log.await_durability()
        return self.service.sessions.recall(session, number, found)


def _is_latest(history: WriteHistory, number: int, at: Timestamp) -> bool:
    """Whether the latest that is known of a session is of this write and this cluster time."""
    return number == history.txn_number and history.written_at is not None and history.written_at.timestamp == at


def _may_be_late(op: OperationContext) -> bool:
    """Whether a request may have been under way until its client has given it up. One that a client has just sent has
    the cluster time of its latest reply, which is of the present where it is busy."""
    gossip = get_value(op.command.body, "$clusterTime")
    known = get_value(gossip, "clusterTime") if isinstance(gossip, bytes) else None
    return not isinstance(known, Timestamp) or known.time + _LATE_S < op.now_s


def _does_less(spec: CommandSpec, request: Any, reply: Reply) -> bool:
    """Whether some statement of a batch of writes has changed nothing."""
    if spec.batch_at < 0:
        return False
    fields_of = reply if isinstance(reply, dict) else fields_by_name(reply)
    modified = fields_of.get("nModified", fields_of.get("n"))
    upserted = fields_of.get("upserted")
    done = (modified if isinstance(modified, int) else 0) + (len(upserted) if isinstance(upserted, list) else 0)
    return done < len(request[spec.batch_at])
