"""The statements of an `update` or a `delete` in their order: those that name documents by `_id` together, up to
MOST_TOGETHER (`exec.write.by_id`), the others one by one."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.commands.crud.write_batch import WriteErrors, ends_command
from mongottl.commands.crud.write_requests import StatementsRequest
from mongottl.errors import CommandError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.cost import FREE
from mongottl.exec.plan.express import express_key
from mongottl.exec.results.statement_runs import begin_statements
from mongottl.exec.sessions.retryable_writes import RetryableWrite
from mongottl.exec.write.by_id import takes_together
from mongottl.oplog.statements import Executed

# How many statements by `_id` are executed together, and of how many bytes.
MOST_TOGETHER: Final = 100
MOST_BYTES_TOGETHER: Final = 1024 * 1024


class StatementBatch(ABC):
    """A batch that is being executed. errors: of the statements that have failed so far."""

    def __init__(self, op: OperationContext, request: StatementsRequest, write: RetryableWrite | None) -> None:
        self.op = op
        self.request = request
        self.errors = WriteErrors(op)
        self._write = write
        # Those before it belong to a group that could not be executed together.
        self._alone_before = 0 if may_be_together(op, write) else len(request.statements)

    @abstractmethod
    def filters(self, first: int, end: int) -> list[bytes | None]:
        """Of each statement: see `keys_of_group`."""
        raise NotImplementedError

    @abstractmethod
    def execute_together(self, first: int, keys: list[bytes]) -> int:
        """Executes as many statements from `first` on as have `keys`, or those before the first that has to be
        executed alone; how many, perhaps none."""
        raise NotImplementedError

    @abstractmethod
    def execute(self, index: int) -> None:
        """Executes a statement by itself."""
        raise NotImplementedError

    @abstractmethod
    def note_executed(self, index: int, executed: Executed) -> None:
        """Notes a statement that an earlier attempt has executed. InvalidOptions (72) if that was another write."""
        raise NotImplementedError

    def run(self) -> None:
        """Executes all statements; if the batch is ordered, those before the first that fails. The errors of
        `ends_command`."""
        op = self.op
        gate = op.cost.gate
        index = 0
        while index < len(self.request.statements):
            executed = 0
            if index:
                op.give_way()
            try:
                if index:
                    op.check_interrupt()
                if gate is not None:
                    gate.admit(index)
                if index >= self._alone_before:
                    executed = self._execute_group(index)
                if executed == 0:
                    self._execute_alone(index)
            except CommandError as error:
                if ends_command(op, error):
                    raise
                self.errors.add(index, error)
                if self.request.ordered:
                    break
            index += max(executed, 1)

    def _execute_group(self, first: int) -> int:
        end = first + MOST_TOGETHER
        sent = self.request.statements[first:end]
        keys = keys_of_group(self.op, self.request.collection, self.filters(first, end), sent)
        executed = self.execute_together(first, keys) if keys else 0
        if executed == 0:
            self._alone_before = first + len(keys)
        return executed

    def _execute_alone(self, index: int) -> None:
        if len(self.request.statements) > 1:
            self.op.begin_statement(self.request.statements[index], self.request.let)
            begin_statements(self.op, index, index + 1)
        executed = None if self._write is None else self._write.begin(index)
        if executed is None:
            self.execute(index)
        else:
            self.note_executed(index, executed)


def may_be_together(op: OperationContext, write: RetryableWrite | None) -> bool:
    """Whether statements by `_id` may be executed together (`exec.write.by_id`): not in a transaction, by a retry, or
    where each is paid for, profiled or made to fail for itself."""
    if op.cost is not FREE or op.profile.written is not None or op.session.in_transaction:
        return False
    return write is None or not (write.is_retry or op.service.fail_points.watches_statements)


def collection_of_group(op: OperationContext, name: str) -> Collection | None:
    """The collection, if statements by `_id` on it can be executed together."""
    if op.database == "config" or op.database == "local":
        return None
    collection = op.catalog.lookup(op.database, name, time_series=True)
    return collection if collection is not None and takes_together(collection) else None


def keys_of_group(op: OperationContext, name: str, filters: Iterable[bytes | None], sent: list[bytes]) -> list[bytes]:
    """The keys of the `_id`s that leading statements name, up to the first that cannot be executed together with those
    before it; none if fewer than two can.

    filters: those of single statements, None for others. sent: the statements as they were sent, or a part of them.
    """
    collection = collection_of_group(op, name)
    keys: dict[bytes, None] = {}
    size = 0
    if collection is None:
        return []
    for filter, statement in zip(filters, sent, strict=True):
        key = None if filter is None else express_key(collection, filter)
        size += len(statement)
        if key is None or key in keys or size > MOST_BYTES_TOGETHER:
            break
        keys[key] = None
    return list(keys) if len(keys) > 1 else []
