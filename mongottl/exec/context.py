"""What a server has, and what one command has.

A command runs to its end without suspending unless it is long or has to wait. Then it is a generator of steps: it
yields None where others may run in between, or a `Wait`; whatever drives it (the trio shell, or `run_to_end` in tests)
resumes it. Between two steps anything may have changed: collections dropped, documents expired, the clock moved.
"""

from collections.abc import Callable, Generator
from typing import Final, TypeAlias, TypeVar

from mongottl.catalog.catalog import Catalog
from mongottl.clock import Clock
from mongottl.config import LogSettings, MemoryLimits, ServerConfig
from mongottl.dialect import Dialect, dialect_named
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.client import ClientInfo
from mongottl.exec.cursors import CursorRegistry
from mongottl.exec.failpoints import FailPoints
from mongottl.exec.metrics import Metrics
from mongottl.exec.object_ids import ObjectIdGenerator
from mongottl.exec.operations import OperationRegistry
from mongottl.exec.query_settings import QuerySettings
from mongottl.exec.recovery_unit import RecoveryUnit
from mongottl.exec.sessions import SESSION_TIMEOUT_S, SessionRegistry
from mongottl.exec.signal import Signal
from mongottl.exec.temporary_files import TemporaryFiles
from mongottl.exec.usage import LatencyGroup
from mongottl.query.timestamps import TimestampClock
from mongottl.storage.interface import StorageEngine
from mongottl.ttl.wheel import TimingWheel

T = TypeVar("T")

MS_PER_S: Final = 1000
MICROS_PER_S: Final = 1_000_000


class Wait:
    """A step that lets time pass: resume after `seconds` of elapsed time, when `signal` is notified, or at shutdown."""

    def __init__(self, seconds: float, signal: Signal | None = None) -> None:
        self.seconds = seconds
        self.signal = signal


class Flush:
    """A step after which all that was committed so far is on disk: `j: true` waits for it."""


Steps: TypeAlias = Generator[Wait | Flush | None, None, T]


def run_to_end(steps: Steps[T]) -> T:
    """Drives a generator of steps without ever letting others run: for tests and for start-up."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


class ConcernDefaults:
    """What setDefaultRWConcern has set, as raw documents; None where nothing was set. updated_ms: 0 for never."""

    def __init__(self) -> None:
        self.read: bytes | None = None
        self.write: bytes | None = None
        self.updated_ms = 0


def check_level(level: str) -> None:
    """CommandNotSupported (115) for a level that is to come."""
    if level == "snapshot":
        raise CommandError(ErrorCode.CommandNotSupported, "readConcern level 'snapshot' is not supported yet")


class ServiceContext:
    """Everything that the commands of one server share."""

    def __init__(self, config: ServerConfig, clock: Clock, engine: StorageEngine) -> None:
        self.config = config
        self.dialect: Dialect = dialect_named(config.dialect)
        self.clock = clock
        self.engine = engine
        self.started_ms = clock.now_ms()
        self.started_monotonic_s = clock.monotonic_s()
        self.catalog = Catalog(engine, clock)
        self.cursors = CursorRegistry()
        self.sessions = SessionRegistry()
        self.metrics = Metrics()
        self.fail_points = FailPoints()
        self.operations = OperationRegistry()
        # Those who are connected, by connection.
        self.clients: dict[int, ClientInfo] = {}
        self.wheel = TimingWheel(clock.now_ms() // MS_PER_S)
        self.object_ids = ObjectIdGenerator()
        self.timestamps = TimestampClock()
        # By queryShapeHash.
        self.query_settings: dict[str, QuerySettings] = {}
        self.limits = MemoryLimits()
        self.log_settings = LogSettings(config.quiet)
        self.concern_defaults = ConcernDefaults()
        self.spill_space = TemporaryFiles(config.data_dir)
        self.ttl_monitor_enabled = config.ttl_monitor_enabled
        self.purging = False
        # Numbers of collections for which the wheel does not know all that is waiting; see `exec.expiry`.
        self.unarmed: set[int] = set()
        # "database.collection" of those that are being copied while new commands that write to them wait.
        self.exclusive: set[str] = set()
        # Identifies this run of the server in `hello`'s topologyVersion.
        self.process_id = self.object_ids.generate(self.started_ms // MS_PER_S)
        # The latest lines of a log by its name, for getLog; None for an unknown name.
        self.log_lines: Callable[[str], list[str] | None] = _no_log
        # Logs a document that was written, or refused, although its collection's validator fails it: who wrote,
        # namespace, document, errInfo.
        self.log_invalid_document: Callable[[ClientInfo, str, str, str], None] = _no_warning
        # Called when something was armed that is due before all else, or the clock was moved: the reaper looks again.
        self.wake_reaper: Callable[[], None] = _nothing
        # Called after commits: whoever flushes to disk has something to do.
        self.note_write: Callable[[], None] = _nothing
        # Set when the server stops; long operations then end with InterruptedAtShutdown.
        self.stopping = False

    def close_idle(self) -> None:
        """Closes cursors and forgets sessions that were not used for too long; to be called now and then."""
        now_s = self.clock.monotonic_s()
        self.cursors.close_idle(now_s - self.config.cursor_timeout_s)
        self.sessions.expire(now_s - SESSION_TIMEOUT_S)
        self.cursors.close_orphaned(self.sessions)

    def now_s(self) -> int:
        """The instant that it is now, in whole seconds: by which what is written now is dated."""
        return self.clock.now_ms() // MS_PER_S


def _nothing() -> None:
    pass


def _no_warning(client: ClientInfo, namespace: str, document: str, info: str) -> None:
    pass


def _no_log(name: str) -> list[str] | None:
    return None


def _time_is_up() -> CommandError:
    return CommandError(ErrorCode.MaxTimeMSExpired, "operation exceeded time limit")


class OperationContext:
    """One command under way.

    now_ms: the instant that `$$NOW`, new ObjectIds and what the command reads go by. What it writes is dated by the
    instant of each unit of work (`exec.write_unit`).
    session_key: the bytes of the logical session's id, or None. txn_number: of a retryable write, or None.
    retryable: whether the command is a write that its driver sends again after some errors, with a `txnNumber`.
    statements_done: how many statements of a batch have succeeded. What has done some cannot be sent again as a whole.
    deadline_s: elapsed time (`clock.monotonic_s`) at which `maxTimeMS` is over; 0.0 for none.
    bypass_validation: whether documents may be written that the collection's validator refuses.
    recovery_unit: the way to all that is stored.
    has_max_time, has_write_concern: whether the command came with a `maxTimeMS` or `writeConcern` at all.
    raw_data: whether the buckets of time series collections are meant.
    """

    def __init__(self, service: ServiceContext, client: ClientInfo, database: str) -> None:
        self.service = service
        self.client = client
        self.database = database
        self.catalog = service.catalog
        self.recovery_unit = RecoveryUnit(service)
        self.now_ms: int = service.clock.now_ms()
        self.now_s: int = self.now_ms // MS_PER_S
        self.session_key: bytes | None = None
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
        self.killed = False
        # What the operation waits for now, if anything: killing it ends the waiting.
        self.waits_for: Signal | None = None
        # "database.collection" of a command that names one, and the elapsed time when it began.
        self.used_namespace = ""
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

    def kill(self) -> None:
        """Ends the operation with Interrupted (11601), at its next step or now if it waits."""
        self.killed = True
        if self.waits_for is not None:
            self.waits_for.notify()

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
