"""Throttling by budget, in the dialect `cosmos`: whether a request, or a statement of a batch, waits or is refused."""

from typing import Final

from mongottl.config.cosmos_choices import ENFORCED
from mongottl.dialect.cosmos.account import Account
from mongottl.dialect.cosmos.budgets import Budgets
from mongottl.dialect.cosmos.request_meter import RequestMeter
from mongottl.dialect.cosmos.throttling import BUDGET_ADVICE, TOO_MANY_REQUESTS, throttled, timed_out
from mongottl.dialect.cosmos.throughput import Budget, throughput_of
from mongottl.errors import CommandError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.running.gate import Gate
from mongottl.exec.running.signal import Signal

# How long a throttled request waits in the server, by the server's clock, in an account whose requests wait.
MAX_WAIT_MS: Final = 60_000
# The machine's wall clock may be set without notice. So a request that waits looks at least so often.
_LOOK_S: Final = 1.0


class RequestBudget:
    """The budget of one request: that of its collection, or of the database whose collections share one.

    The account and the throughput are asked each time, because both may change while the request waits.

    delay_ms: how long it has waited, by the server's clock. waited: whether it has waited at all.
    """

    def __init__(self, op: OperationContext, account: Account, budgets: Budgets, meter: RequestMeter) -> None:
        self._op = op
        self._account = account
        self._budgets = budgets
        self._meter = meter
        self.delay_ms = 0
        self.waited = False
        self._spent = 0
        self._began_ms: int = op.now_ms
        database, _, collection = op.used_namespace.partition(".")
        self._database = database
        self._collection = collection

    @property
    def waits(self) -> bool:
        """Whether the request waits in the server instead of being refused."""
        return self._account.can("DisableRateLimitingResponses")

    def _budget(self) -> Budget:
        return throughput_of(self._op.service, self._database, self._collection)

    def spend(self, total: int) -> None:
        """Takes out what the request has cost so far, in hundredths of units."""
        if total != self._spent:
            service = self._op.service
            holder = self._budget().holder
            self._budgets.spend(holder, total - self._spent, service.clock.now_ms())
            if service.observation is not None:
                service.observation.spend(holder, total - self._spent, 0)
            self._spent = total

    def wait_ms(self) -> int:
        """Milliseconds until the request can go on; 0 for now."""
        self.spend(self._meter.cost())
        if self._account.throughput != ENFORCED:
            return 0
        budget = self._budget()
        service = self._op.service
        nodes = service.engine.nodes
        shares = 1 if nodes is None else nodes.shares
        return self._budgets.wait_ms(budget.holder, budget.throughput.units_per_s, service.clock.now_ms(), shares)

    def wait(self) -> int:
        """Waits until the request can go on, or as long as it does not have to be refused: then the milliseconds until
        it can go on, else 0. ExceededTimeLimit (50) after `MAX_WAIT_MS`."""
        wait_ms = self.wait_ms()
        if not wait_ms or not self.waits:
            return wait_ms
        op = self._op
        clock = op.service.clock
        signal = Signal()
        since_ms = clock.now_ms()
        self.waited = True
        op.waits_for = signal
        self._budgets.add_waiting(signal)
        try:
            while wait_ms and self.waits:
                ends_ms = min(clock.now_ms() + wait_ms, self._began_ms + MAX_WAIT_MS)
                left_s = op.time_left_s()
                seconds = min(clock.wait_s(ends_ms), _LOOK_S, _LOOK_S if left_s < 0.0 else left_s)
                op.wait(seconds, signal, may_abandon=True)
                signal.clear()
                if op.time_left_s() == 0.0 or clock.now_ms() - self._began_ms >= MAX_WAIT_MS:
                    raise timed_out("rateLimited", BUDGET_ADVICE)
                op.check_interrupt()
                wait_ms = self.wait_ms()
        finally:
            self.delay_ms += max(0, clock.now_ms() - since_ms)
            op.waits_for = None
            self._budgets.remove_waiting(signal)
        op.refresh_now()
        return wait_ms


class StatementGate(Gate):
    """What a batch of writes asks before each of its statements, and a statement between the parts of its work.

    operation, form: see `throttled`. refusals: by the position of a statement, the error with which it fails.
    """

    def __init__(
        self,
        operation: str,
        form: str,
        refusals: dict[int, CommandError],
        meter: RequestMeter | None,
        budget: RequestBudget | None,
    ) -> None:
        self._operation = operation
        self._form = form
        self._refusals = refusals
        self._meter = meter
        self._budget = budget

    def admit(self, index: int) -> None:
        error = self._refusals.get(index)
        budget = self._budget
        if error is None and budget is not None:
            wait_ms = budget.wait()
            if wait_ms:
                error = throttled(self._operation, self._form, wait_ms)
        if error is not None:
            if self._meter is not None:
                self._meter.refuse(error.code == TOO_MANY_REQUESTS)
            raise error

    def go_on(self) -> None:
        """Waits in an account whose requests wait: a deletion of many documents is recorded to have been slowed down to
        what was provisioned (github.com/cjoakim/azure-cosmos-db). In others a statement is done as a whole."""
        if self._budget is not None and self._budget.waits:
            self._budget.wait()
