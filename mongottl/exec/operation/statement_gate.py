"""Throttling by budget, in the dialect `cosmos`: whether a request, or a statement of a batch, waits or is refused."""

from typing import Final

from mongottl.dialect.cosmos.throttling import throttled, timed_out
from mongottl.errors import CommandError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.gate import Gate
from mongottl.exec.operation.request_meter import RequestMeter
from mongottl.exec.operation.request_units import RequestUnits
from mongottl.exec.operation.steps import Steps, Wait

# How long a throttled request waits in the server, by the server's clock, in an account whose requests wait.
MAX_WAIT_MS: Final = 60_000
# How often it checks whether there is something left of its budget.
_POLL_S: Final = 0.005


class Purse:
    """What one request takes out of a budget. units_per_s: of the budget that `holder` has. waits: whether the request
    waits in the server instead of being refused."""

    def __init__(
        self, op: OperationContext, units: RequestUnits, holder: str, units_per_s: int, meter: RequestMeter, waits: bool
    ) -> None:
        self._op = op
        self._units = units
        self._holder = holder
        self._units_per_s = units_per_s
        self._meter = meter
        self._spent = 0
        self._began_ms: int = op.now_ms
        self.waits = waits

    def spend(self, total: int) -> None:
        """Takes out what the request has cost so far, in hundredths of units."""
        if total != self._spent:
            self._units.spend(self._holder, total - self._spent, self._op.service.clock.now_ms())
            self._spent = total

    def wait_ms(self) -> int:
        """Milliseconds until the request can go on; 0 for now."""
        self.spend(self._meter.cost())
        return self._units.wait_ms(self._holder, self._units_per_s, self._op.service.clock.now_ms())

    def wait(self) -> Steps[None]:
        """Waits until the request can go on. ExceededTimeLimit (50) after `MAX_WAIT_MS`."""
        op = self._op
        while self.wait_ms():
            yield Wait(_POLL_S)
            if op.service.clock.now_ms() - self._began_ms >= MAX_WAIT_MS:
                raise timed_out("rateLimited")
            op.check_interrupt()
        op.refresh_now()


class StatementGate(Gate):
    """What a batch of writes asks before each of its statements.

    operation, form: see `throttled`. refusals: by the position of a statement, the error with which it fails.
    """

    def __init__(
        self,
        operation: str,
        form: str,
        refusals: dict[int, CommandError],
        meter: RequestMeter | None,
        purse: Purse | None,
    ) -> None:
        self._operation = operation
        self._form = form
        self._refusals = refusals
        self._meter = meter
        self._purse = purse

    def admit(self, index: int) -> Steps[None]:
        error = self._refusals.get(index)
        purse = self._purse
        if error is None and purse is not None:
            if purse.waits:
                yield from purse.wait()
            else:
                wait_ms = purse.wait_ms()
                if wait_ms:
                    error = throttled(self._operation, self._form, wait_ms)
        if error is not None:
            if self._meter is not None:
                self._meter.refused += 1
            raise error
