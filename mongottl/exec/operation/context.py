"""What one command has."""

from typing import Final

from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.client import ClientInfo
from mongottl.exec.operation.recovery_unit import RecoveryUnit
from mongottl.exec.operation.service import MS_PER_S, ServiceContext
from mongottl.exec.operation.state import OperationState
from mongottl.exec.operation.usage import LatencyGroup

MICROS_PER_S: Final = 1_000_000


def _time_is_up() -> CommandError:
    return CommandError(ErrorCode.MaxTimeMSExpired, "operation exceeded time limit")


class OperationContext(OperationState):
    """One command under way.

    txn_number: of a retryable write, or None.
    retryable: whether the command is a write that its driver sends again after some errors, with a `txnNumber`.
    statements_done: how many statements of a batch have succeeded. What has done some cannot be sent again as a whole.
    deadline_s: elapsed time (`clock.monotonic_s`) at which `maxTimeMS` is over; 0.0 for none.
    bypass_validation: whether documents may be written that the collection's validator refuses.
    recovery_unit: the way to all that is stored.
    has_max_time, has_write_concern: whether the command came with a `maxTimeMS` or `writeConcern` at all.
    raw_data: whether the buckets of time series collections are meant.
    """

    def __init__(self, service: ServiceContext, client: ClientInfo, database: str) -> None:
        now_ms: int = service.clock.now_ms()
        super().__init__(client, database, now_ms)
        self.service = service
        self.catalog = service.catalog
        self.recovery_unit = RecoveryUnit(service)
        self.now_s: int = now_ms // MS_PER_S
        self.txn_number: int | None = None
        self.retryable = False
        self.statements_done = 0
        self.deadline_s = 0.0
        self.has_max_time = False
        self.has_write_concern = False
        self.raw_data = False
        # The level of the read concern, empty if none was given.
        self.read_level = ""
        self.bypass_validation = False
        self.comment: Value = None
        # Further fields, of commands that take any (getParameter, setParameter).
        self.extra_fields: dict[str, Value] = {}
        # The elapsed time when the command began to use its collection.
        self._used_since_s = 0.0
        self.used_micros = 0

    def uses(self, collection: str) -> None:
        """From now on the command's time is a use of this collection or view."""
        self.used_namespace = f"{self.database}.{collection}"
        self._used_since_s = self.service.clock.monotonic_s()

    def note_usage(self, latency: LatencyGroup, counter: str) -> None:
        """The command has ended."""
        self.used_micros = int((self.service.clock.monotonic_s() - self._used_since_s) * MICROS_PER_S)
        self.service.metrics.usage.note(self.used_namespace, latency, counter, self.used_micros)

    def forget_usage(self, namespace: str) -> None:
        """The collection was dropped: one that is made in its place begins anew."""
        self.service.metrics.usage.forget(namespace)
        self.used_namespace = ""

    def set_max_time_ms(self, max_time_ms: int) -> None:
        """0 is no limit, but was given all the same."""
        self.has_max_time = True
        if max_time_ms > 0:
            self.limit_time(max_time_ms / MS_PER_S)

    def limit_time(self, seconds: float) -> None:
        """Ends the operation so many seconds from now, at its next step after them.

        MaxTimeMSExpired (50) if none are left, or where a fail point says so.
        """
        if seconds <= 0.0 or self.service.fail_points.times_out():
            raise _time_is_up()
        self.deadline_s = self.service.clock.monotonic_s() + seconds

    def time_left_s(self) -> float:
        """What is left of the time limit, not below 0; -1.0 without one."""
        return max(0.0, self.deadline_s - self.service.clock.monotonic_s()) if self.deadline_s > 0.0 else -1.0

    def refresh_now(self) -> None:
        """Takes the instant that it is by now: after a command has waited, what it reads is of another time."""
        self.now_ms = self.service.clock.now_ms()
        self.now_s = self.now_ms // MS_PER_S

    def check_interrupt(self) -> None:
        """Called between batches: MaxTimeMSExpired (50), Interrupted (11601) or InterruptedAtShutdown (11600)."""
        if self.deadline_s > 0.0 and self.service.clock.monotonic_s() >= self.deadline_s:
            raise _time_is_up()
        if self.killed:
            raise CommandError(ErrorCode.Interrupted, "operation was interrupted")
        if self.service.stopping:
            raise CommandError(ErrorCode.InterruptedAtShutdown, "interrupted at shutdown")


def check_level(level: str) -> None:
    """CommandNotSupported (115) for a level that is to come."""
    if level == "snapshot":
        raise CommandError(ErrorCode.CommandNotSupported, "readConcern level 'snapshot' is not supported yet")
