"""Commands without a socket: real requests through the real registry, on a real engine with a clock that tests move.

The engine asserts the storage contract on both sides of every call.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import bson
import pytest

from mongottl.catalog.collection import Collection
from mongottl.clock import SystemClock, VirtualClock
from mongottl.commands import COMMANDS, CommandSpec
from mongottl.commands.request import GenericArguments
from mongottl.config import ServerConfig
from mongottl.document.build import encode
from mongottl.errors import CommandError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.sent_command import SentCommand
from mongottl.exec.operation.session_statement import IN_TRANSACTION
from mongottl.exec.operation.transaction_unit import enter
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.running.stack import Steps
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.sessions.transactions import Transaction
from mongottl.exec.write.expiry import reap_due
from mongottl.storage.contract import ContractEngine
from mongottl.storage.interface import StorageEngine
from mongottl.storage.opening import open_engine
from tests.steps import run_to_end, steps_of

Document: TypeAlias = dict[str, Any]

# Bytes that are no UTF-8 become surrogates, which Python encodes as these bytes again.
_ANY_TEXT: bson.CodecOptions[Document] = bson.CodecOptions(unicode_decode_error_handler="surrogateescape")
START_MS = 1_700_000_000_500


class HurriedClock(SystemClock):
    """Elapsed time grows each time that it is asked for: whatever depends on it is the same in each run.

    step_s: by how much. With more than an operation's slice, it is left whenever it gives way.
    """

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s
        self.elapsed_s = 0.0

    def monotonic_s(self) -> float:
        self.elapsed_s += self.step_s
        return self.elapsed_s

    def elapsed_reader(self) -> Callable[[], float]:
        return self.monotonic_s


def hurried_clock(step_s: float) -> VirtualClock:
    """A wall clock that stands still at START_MS, over a `HurriedClock`."""
    clock = VirtualClock(HurriedClock(step_s))
    clock.freeze()
    clock.set_wall(START_MS)
    return clock


class Running:
    """A service, and how tests talk to it. The clock stands still at START_MS until `advance`."""

    def __init__(
        self, engine: StorageEngine | None = None, dialect: str = "mongodb", clock: VirtualClock | None = None
    ):
        if clock is None:
            clock = VirtualClock()
            clock.freeze()
            clock.set_wall(START_MS)
        self.clock = clock
        self.engine = ContractEngine(open_engine("sqlite:")) if engine is None else engine
        self.service = ServiceContext(ServerConfig(dialect=dialect), clock, self.engine)
        # Requests count as so long at least, for tests of what is done only for long ones.
        self.least_request_bytes = 0
        # Operations are left wherever they give way; whether in the middle of evaluations, too, as in a server.
        self.service.stacks.times.together_s = 0.0
        self.leaves_evaluations = False
        self.client = ClientInfo(1, "localhost:27017", "localhost:1")

    def op(self, database: str = "test") -> OperationContext:
        """A new command, at the instant that it is now."""
        return OperationContext(self.service, self.client, database)

    def start(
        self, command: Document, database: str = "test", max_time_ms: int = 0, transaction: Transaction | None = None
    ) -> Document | Steps[Document]:
        """What a command's function gives: a reply, or the steps that end with one. transaction: whose statement it
        is."""
        body = self.encoded(command)
        spec = COMMANDS[next(iter(command))]
        generic = GenericArguments()
        request = spec.request._make(spec.parser.parse(body, [], generic))
        op = self.op(database)
        if transaction is not None:
            enter(op, transaction)
        op.command = generic.sent_command()
        op.set_request_bytes(max(len(body), self.least_request_bytes))
        if max_time_ms and spec.counter == "getmore":
            op.set_await_ms(max_time_ms)
        elif max_time_ms:
            op.set_max_time_ms(max_time_ms)
        return self.service.stacks.begin(lambda: _decoded(self._execute(spec, op, request)))

    def _execute(self, spec: CommandSpec, op: OperationContext, request: Any) -> Any:
        if self.leaves_evaluations:
            self.service.stacks.carry(op)
        return spec.function(op, request)

    def encoded(self, command: Document) -> bytes:
        """A command as drivers send it. Surrogates in its texts stand for bytes that are no UTF-8."""
        try:
            return bson.encode(command)
        except UnicodeEncodeError:
            return encode(command)

    def steps(self, command: Document, database: str = "test", max_time_ms: int = 0) -> Steps[Document]:
        """The steps of a command."""
        return steps_of(self.start(command, database, max_time_ms))

    def run(self, command: Document, database: str = "test") -> Document:
        """A command's reply, without `ok`."""
        outcome = self.start(command, database)
        return run_to_end(outcome)

    def refusal(self, command: Document, database: str = "test") -> CommandError:
        """The error with which a command is refused."""
        with pytest.raises(CommandError) as caught:
            self.run(command, database)
        return caught.value

    def code(self, command: Document, database: str = "test") -> int:
        """The code of the error with which a command is refused."""
        return self.refusal(command, database).code

    def listed(self, command: Document, database: str = "test") -> list[Document]:
        """All documents of a command that answers with a cursor."""
        cursor = self.run(command, database)["cursor"]
        documents: list[Document] = cursor["firstBatch"]
        while cursor["id"]:
            name = cursor["ns"].partition(".")[2]
            cursor = self.run({"getMore": bson.Int64(cursor["id"]), "collection": name}, database)["cursor"]
            documents = documents + cursor["nextBatch"]
        return documents

    def insert(self, *documents: Document, into: str = "c") -> None:
        assert self.run({"insert": into, "documents": list(documents)}) == {"n": len(documents)}

    def index(self, key: Document, name: str | None = None, on: str = "c", **options: Any) -> Document:
        """createIndexes with one index, named as drivers do."""
        name = "_".join(f"{path}_{direction}" for path, direction in key.items()) if name is None else name
        return self.run({"createIndexes": on, "indexes": [{"key": key, "name": name, **options}]})

    def index_names(self, of: str = "c", database: str = "test") -> list[str]:
        return [index["name"] for index in self.listed({"listIndexes": of}, database)]

    def ids(self, of: str = "c", filter: Document | None = None) -> list[Any]:
        """The `_id`s of what a find returns, sorted."""
        return sorted(document["_id"] for document in self.listed({"find": of, "filter": filter or {}}))

    def collection(self, name: str = "c", database: str = "test") -> Collection:
        found = self.service.catalog.lookup(database, name, time_series=True)
        assert found is not None
        return found

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def reap(self) -> int:
        """Purges what is due; how many documents that were."""
        return reap_due(self.service)


def _decoded(reply: Any) -> Document:
    raw = reply if isinstance(reply, bytes) else encode(reply)
    decoded: Document = bson.decode(raw, _ANY_TEXT)
    decoded.pop("ok", None)
    return decoded


def new_operation(in_transaction: bool = False) -> OperationContext:
    """An operation that others can see and kill."""
    service = Running().service
    service.describe_operation = lambda op: service.operations.begin(op, b"", "command", 0.0)
    op = OperationContext(service, ClientInfo(1, "localhost:27017", "localhost:1"), "test")
    op.command = SentCommand(COMMANDS["ping"])
    if in_transaction:
        op.session = IN_TRANSACTION
    return op
