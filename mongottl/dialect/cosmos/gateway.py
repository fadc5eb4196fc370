"""The gateway of the dialect `cosmos`: every command runs through it, which counts its request units and throttles it.

    Dispatcher ──► Gateway.execute ──► the command's function ──► RequestMeter: what is loaded and changed
                        │                      └── of a batch: StatementGate.admit, before each statement
                        ├── fail points: cosmosThrottle, cosmosTimeout, cosmosUnavailable
                        └── with --cosmos-throughput enforced: the budget of the collection or database

Other dialects have none.
"""

from typing import Any, Final

from mongottl.commands import COMMANDS, CommandSpec, Reply
from mongottl.commands.admin.handshake import app_name
from mongottl.commands.crud.write_batch import ends_command, failed_batch
from mongottl.commands.dialect_hooks import Gateway
from mongottl.config.cosmos_choices import ENFORCED, OFF
from mongottl.dialect.cosmos.account import Account
from mongottl.dialect.cosmos.advice import advice, allow
from mongottl.dialect.cosmos.budgets import Budgets
from mongottl.dialect.cosmos.fail_points import FAIL_POINTS, THROTTLE, CosmosFailPoint
from mongottl.dialect.cosmos.metering import MeteringRecoveryUnit
from mongottl.dialect.cosmos.request_meter import RequestMeter
from mongottl.dialect.cosmos.statement_gate import RequestBudget, StatementGate
from mongottl.dialect.cosmos.throttling import SINGLE, throttled
from mongottl.dialect.cosmos.throughput import throughput_of
from mongottl.document.types import Int64, RawArray, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.cost import OperationCost
from mongottl.exec.results.cursors import ClientCursor
from mongottl.exec.results.reading import add_resume_token
from mongottl.exec.results.tailing import DEFAULT_AWAIT_S
from mongottl.exec.running.client import LastRequest
from mongottl.exec.running.signal import Signal
from mongottl.exec.service.service import MS_PER_S, ServiceContext
from mongottl.exec.state.fail_mode import Mode

# Records of one step of a metered operation. It does not depend on time, because what a scan reads beyond the last
# document that it needs is charged, and must be the same each time.
_STEP_RECORDS: Final = 64
_NEVER_FAILS: Final = "configureFailPoint"
_UNORDERED: Final = "unordered-retryable-write"


class Request:
    """A command on its way through the gateway.

    statements: of a batch, 1 for other commands. refusal: the error of the statement `item`, or of the whole command.
    """

    def __init__(self, spec: CommandSpec, op: OperationContext, arguments: Any, account: Account) -> None:
        self.spec = spec
        self.op = op
        self.arguments = arguments
        self.is_batch = spec.batch_at >= 0
        self.statements: int = len(arguments[spec.batch_at]) if self.is_batch else 1
        self.operation = spec.counter.capitalize() if self.is_batch else "Query"
        self.form = account.settings.batch_text if self.statements > 1 else SINGLE
        self.refusal: CommandError | None = None
        self.item = 0
        self.is_throttled = False
        self.meter: RequestMeter | None = None
        self.budget: RequestBudget | None = None
        self.began_s = op.service.clock.monotonic_s()

    def run(self) -> Reply:
        return self.spec.function(self.op, self.arguments)

    def refuse(self, error: CommandError, item: int, is_throttled: bool) -> None:
        self.refusal = error
        self.item = item
        self.is_throttled = is_throttled

    def throttle(self, wait_ms: int) -> None:
        """Refuses the command because its budget is used up for `wait_ms`."""
        self.refuse(throttled(self.operation, self.form, wait_ms), 0, True)


class CosmosGateway(Gateway):
    """Runs the commands of one server that stands for Cosmos DB."""

    def __init__(self, service: ServiceContext, account: Account, budgets: Budgets) -> None:
        self._service = service
        self._account = account
        self._budgets = budgets
        for name in FAIL_POINTS:
            service.fail_points.take(name, _fail_point)

    def execute(self, spec: CommandSpec, op: OperationContext, arguments: Any) -> Reply:
        on_documents = spec.latency != "commands"
        if op.session.txn_number is not None:
            self._check_order(spec, arguments)
        points = self._service.fail_points
        throughput = self._account.throughput
        if not points.of_dialect and (throughput == OFF or not on_documents):
            return spec.function(op, arguments)
        request = Request(spec, op, arguments, self._account)
        if points.of_dialect:
            client = app_name(op, spec, op.command.body)
            point = points.triggered_of_dialect(spec.names, on_documents, op.used_namespace, client, request.statements)
            if point is not None:
                error = point.error(request.operation, request.form)
                request.refuse(error, point.item, point.name == THROTTLE)
        if throughput == OFF or not on_documents:
            return self._admit(request)
        return self._metered(request, throughput == ENFORCED)

    def _metered(self, request: Request, is_enforced: bool) -> Reply:
        """Runs a command with a meter, and settles what it has cost."""
        op = request.op
        meter = RequestMeter(op.now_s, request.spec.counter == "getmore")
        request.meter = meter
        op.cost = OperationCost(meter)
        op.recovery_unit = MeteringRecoveryUnit(self._service, op.recovery_unit, meter)
        op.pace.step_records = _STEP_RECORDS
        if is_enforced and op.used_namespace:
            request.budget = RequestBudget(op, self._account, self._budgets, meter)
        reply: Reply | None = None
        try:
            reply = self._admit(request)
            return reply
        finally:
            self._settle(request, meter, reply)

    def _settle(self, request: Request, meter: RequestMeter, reply: Reply | None) -> None:
        """Records what a command has cost at its end. reply: None if it has failed."""
        op = request.op
        total = meter.total(_returned_bytes(reply))
        budget = request.budget
        delay_ms = 0
        if budget is not None:
            budget.spend(total)
            delay_ms = budget.delay_ms
        op.cost = op.cost.with_charge(total)
        namespace = op.used_namespace or f"{op.database}.$cmd"
        self._service.request_units.record(request.spec.name, namespace, total, meter.throttled)
        # Where there is a budget, what was taken out of it is known already: `RequestBudget.spend`.
        spent = total if budget is None else 0
        observation = self._service.observation
        if observation is not None and op.used_namespace and (spent or meter.throttled):
            database, _, collection = op.used_namespace.partition(".")
            holder = throughput_of(self._service, database, collection).holder
            observation.spend(holder, spent, meter.throttled)
        elapsed_ms = int((self._service.clock.monotonic_s() - request.began_s) * MS_PER_S)
        waited = budget is not None and budget.waited
        # Where tests move the clock, its time is not that of the machine.
        duration_ms = max(elapsed_ms, delay_ms)
        op.client.last_request = LastRequest(request.spec.name, total, duration_ms, delay_ms, waited)

    def _admit(self, request: Request) -> Reply:
        """Runs a command until it ends or is refused."""
        budget = request.budget
        meter = request.meter
        if request.is_batch and (request.refusal is not None or budget is not None):
            refusals = {} if request.refusal is None else {request.item: request.refusal}
            if request.statements > 1 or not refusals:
                gate = StatementGate(request.operation, request.form, refusals, meter, budget)
                request.op.cost = request.op.cost.with_gate(gate)
        if request.is_batch and request.statements > 1:
            return request.run()
        if request.refusal is None and budget is not None:
            wait_ms = budget.wait()
            if wait_ms:
                request.throttle(wait_ms)
        error = request.refusal
        meter = request.meter
        if error is None:
            return request.run()
        if meter is not None:
            meter.refuse(request.is_throttled)
        if request.is_batch and not ends_command(request.op, error):
            return failed_batch(request.op, request.spec.counter, error, 1)
        stream = self._change_stream(request) if request.is_throttled else None
        if stream is not None:
            return _empty_page(request.op, stream)
        raise error

    def _check_order(self, spec: CommandSpec, arguments: Any) -> None:
        """BadValue (2) for a retryable write of several statements that is not ordered.

        Source: "Retryable writes" in Microsoft's articles on the features that Cosmos DB supports; the code and the
        words are assumed.
        """
        if spec.batch_at < 0 or arguments.ordered or not self._account.refuses(_UNORDERED):
            return
        if len(arguments[spec.batch_at]) > 1:
            raise CommandError(
                ErrorCode.BadValue,
                "Retryable writes do not support bulk unordered writes.",
                advice=advice(
                    "A retryable write of several statements is not ordered",
                    "send it with ordered: true",
                    "connect with retryWrites=false",
                    allow(_UNORDERED),
                ),
            )

    def _change_stream(self, request: Request) -> ClientCursor | None:
        """The change stream of a getMore; None for other cursors and commands."""
        if request.spec.counter != "getmore" or not isinstance(request.arguments.cursor_id, Int64):
            return None
        cursor = self._service.cursors.find(int(request.arguments.cursor_id))
        if isinstance(cursor, ClientCursor) and cursor.tail is not None and cursor.tail.reads_changes:
            return cursor
        return None


def _fail_point(name: str, data: bytes, mode: Mode) -> CosmosFailPoint:
    # With configureFailPoint itself a fail point that always acts could not be taken back.
    return CosmosFailPoint(name, data, mode, frozenset(command for command in COMMANDS if command != _NEVER_FAILS))


def _empty_page(op: OperationContext, cursor: ClientCursor) -> Reply:
    """The reply to a throttled getMore of a change stream, after as long as it would wait for an event."""
    op.waits_for = Signal()
    op.wait(op.limits.await_s if op.limits.await_s >= 0.0 else DEFAULT_AWAIT_S, op.waits_for)
    op.waits_for = None
    if op.killed or op.service.stopping:
        op.check_interrupt()
    page: list[Value] = []
    reply: dict[str, Value] = {"nextBatch": page}
    assert cursor.tail is not None
    add_resume_token(op, reply, cursor.tail)
    return {"cursor": {**reply, "id": Int64(cursor.cursor_id), "ns": cursor.namespace}}


def _returned_bytes(reply: Reply | None) -> int:
    """The total length of the documents in the page of a cursor; 0 for other replies."""
    cursor = reply.get("cursor") if isinstance(reply, dict) else None
    if not isinstance(cursor, dict):
        return 0
    page = cursor.get("firstBatch", cursor.get("nextBatch"))
    if isinstance(page, list):
        return sum(len(document) for document in page if isinstance(document, bytes))
    return _length_of_documents(page.data) if isinstance(page, RawArray) else 0


def _length_of_documents(array: bytes) -> int:
    total = 0
    position = 4
    while array[position]:
        position = array.index(0, position + 1) + 1
        size = int.from_bytes(array[position : position + 4], "little")
        total += size
        position += size
    return total
