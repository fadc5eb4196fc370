"""The context of one command.

What is known of it by subject is in parts, each in a module that says who sets it and when:

    command         SentCommand         the command as its client has sent it
    session         SessionStatement    its retryable write, or the transaction that it belongs to
    reading         Reading             read concern, snapshot, change stream
    write_options   WriteOptions        what documents that it writes are checked for
    limits          TimeLimits          deadlines, and how long it waits for data
    pace            Pace                records of one step
    resources       OperationResources  memory, temporary files, scripts
    cost            OperationCost       request units, in dialects that have some
    profile         OperationProfile    what the profiler, the log and `top` read at the end

A find by `_id` takes some microseconds, so what most commands do not need is one object that all of them share and that
nobody changes (`Final`), or is made when it is first asked for.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from mongottl.catalog.collection import Collection
from mongottl.catalog.namespace import check_database_name
from mongottl.document.build import EMPTY_DOCUMENT, encode_fields
from mongottl.document.types import MAX_DOCUMENT_BYTES, Missing, Value
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.cost import FREE, OperationCost
from mongottl.exec.operation.pace import Pace
from mongottl.exec.operation.profile import MICROS_PER_S, OperationProfile
from mongottl.exec.operation.reading import PRESENT, Reading
from mongottl.exec.operation.resources import OperationResources
from mongottl.exec.operation.sent_command import NO_COMMAND, SentCommand
from mongottl.exec.operation.session_statement import OUTSIDE, SessionStatement
from mongottl.exec.operation.time_limits import UNLIMITED, TimeLimits
from mongottl.exec.operation.write_options import ORDINARY, WriteOptions
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.running.operation_scripts import OperationScripts
from mongottl.exec.running.signal import Signal
from mongottl.exec.running.state import OperationState
from mongottl.exec.running.steps import Wait
from mongottl.exec.service.service import MS_PER_S, ServiceContext
from mongottl.exec.state.usage import LatencyGroup
from mongottl.exec.unit.recovery_unit import RecoveryUnit
from mongottl.exec.unit.written import WrittenCounts
from mongottl.query.timestamps import ClusterTime
from mongottl.security.accounts import Grants
from mongottl.security.names import UserName
from mongottl.security.privileges import Need, Resource

if TYPE_CHECKING:
    from mongottl.exec.running.registry import RunningOperation
    from mongottl.exec.sessions.sessions import Session
    from mongottl.javascript.scripts import Scripts

T = TypeVar("T")

# Others run while requests from this length on are parsed and planned. Shorter ones take less than two milliseconds.
LONG_REQUEST_BYTES: Final = 32 * 1024

# Functions, and other values, that scripts of a database have as global variables; how many of them at most.
_STORED_FUNCTIONS: Final = "system.js"
_MAX_STORED_FUNCTIONS: Final = 1000

_NO_NEEDS: Final[list[Need]] = []


class OperationContext(OperationState):
    """One running command. Its client, database, time and session are what `OperationState` has."""

    def __init__(self, service: ServiceContext, client: ClientInfo, database: str) -> None:
        now_ms: int = service.clock.now_ms()
        super().__init__(client, database, now_ms)
        self.service = service
        # What it sees of the stored data: of the present, or of a snapshot or transaction once it is known to read one.
        self.catalog = service.catalog
        self.recovery_unit = RecoveryUnit(service)
        self.now_s: int = now_ms // MS_PER_S
        # The cluster time at its beginning, for `$$CLUSTER_TIME`.
        self.cluster_time: ClusterTime = service.cluster_clock.last
        self.command: SentCommand = NO_COMMAND
        self.session: SessionStatement = OUTSIDE
        self.reading: Reading = PRESENT
        self.write_options: WriteOptions = ORDINARY
        self.limits: TimeLimits = UNLIMITED
        self.cost: OperationCost = FREE
        self.profile = OperationProfile()
        self._pace: Pace | None = None
        self._resources: OperationResources | None = None
        # Of a find that was found to take the express path before it began; else None.
        self.express_collection: Collection | None = None
        # The length of the message that contained it, or of the statement that is executed now.
        self.request_bytes = 0
        # What its client had to be allowed, where users are checked; its cursors need the same.
        self.needs: list[Need] = _NO_NEEDS
        # Whether it was allowed only because there was no user yet.
        self.is_before_first_user = False
        # Whether its errors get the labels of their codes; not if a fail point names the labels.
        self.adds_labels = True
        # As others see it, and its session, once it was left.
        self._running: RunningOperation | None = None
        self._active_session: Session | None = None

    def check_database(self) -> None:
        """InvalidNamespace (73) unless the name of the command's database is one."""
        check_database_name(self.database, self.catalog.naming)

    def grants(self) -> Grants | None:
        """What the client's user may do at present; None if the client is not logged in."""
        login = self.client.login
        return None if login is None else self.service.accounts.grants(login)

    def may(self, resource: Resource, action: str) -> bool:
        """Whether the client is allowed an action; every one is where users are not checked."""
        if not self.service.authorizes:
            return True
        grants = self.grants()
        return grants is not None and grants.meets(Need(resource, action))

    def may_use(self, database: str, collection: str = "") -> bool:
        """Whether the client is allowed any action on the collection, or without one in the database."""
        if not self.service.authorizes:
            return True
        grants = self.grants()
        return grants is not None and grants.privileges.reaches(database, collection)

    def user(self) -> UserName | None:
        """The user of the client, or None."""
        login = self.client.login
        return None if login is None else login.user

    def owner(self) -> str:
        """Whose limits in total count: the user, or where the client has not logged in, its machine."""
        user = self.user()
        return self.client.host if user is None else user.id

    @property
    def pace(self) -> Pace:
        """How many records its scans examine in one step."""
        pace = self._pace
        if pace is None:
            pace = Pace()
            self._pace = pace
        return pace

    @property
    def resources(self) -> OperationResources:
        """What its stages and scripts hold."""
        resources = self._resources
        if resources is None:
            resources = OperationResources(self.service, self.owner())
            self._resources = resources
        return resources

    @property
    def scripts(self) -> OperationScripts | None:
        """Set if something that it evaluates is in JavaScript."""
        resources = self._resources
        return None if resources is None else resources.scripts

    def register(self) -> None:
        """Makes it known to `$currentOp` and killOp, and its session one in use, until `end`."""
        describe = self.service.describe_operation
        if self.command.spec is None or describe is None:
            return
        if self._running is None:
            self._running = describe(self)
        if self._active_session is None and self.session_key is not None:
            self._active_session = self.service.sessions.begin_operation(self.session_key)

    def end(self) -> None:
        """Gives back, at the end of the command, what its stages and scripts hold; others do not see it any more."""
        if self._resources is not None:
            self._resources.end()
        if self._running is not None:
            self.service.operations.end(self._running)
            self._running = None
        if self._active_session is not None:
            self.service.sessions.end_operation(self._active_session, self.service.clock.monotonic_s())
            self._active_session = None

    def note_plan(self, plan: object) -> None:
        """Notes a plan that is about to be executed, for the profiler and the meter."""
        meter = self.cost.meter
        if meter is not None:
            meter.begin_search()
        self.profile.note_plan(plan)

    def open_scripts(self, name: str) -> "Scripts":
        """The operation's scripts. BadValue (2) or CommandNotSupported (115) if the server runs none.

        name: of the operator or command that needs them.
        """
        opened = self.scripts
        if opened is None:
            opened = OperationScripts(
                self.service.stacks, self.service.processes.scripts.opener(name, self.now_ms, self.owner())
            )
            self.continue_scripts(opened)
        return opened.scripts

    def continue_scripts(self, opened: OperationScripts) -> None:
        """Makes scripts this operation's: new ones, or those of the operation that opened the cursor it reads."""
        opened.operation = self
        opened.scripts.check = self.check_interrupt
        opened.scripts.time_left_s = self.time_left_s
        opened.scripts.stored_functions = self.stored_functions
        self.resources.scripts = opened

    def stored_functions(self) -> bytes:
        """What the database has stored for its scripts in `system.js`, as `{<_id>: <value>, …}`."""
        collection = self.catalog.find(self.database, _STORED_FUNCTIONS)
        if not isinstance(collection, Collection):
            return EMPTY_DOCUMENT
        found: list[tuple[str, Value]] = []
        records, _ = self.recovery_unit.records(collection).scan(0, _MAX_STORED_FUNCTIONS, True, MAX_DOCUMENT_BYTES)
        for record in records:
            name = get_value(record[1], "_id")
            value = get_value(record[1], "value")
            if isinstance(name, str) and not isinstance(value, Missing):
                found.append((name, value))
        return encode_fields(found)

    @property
    def is_long(self) -> bool:
        """Whether the request has at least LONG_REQUEST_BYTES: parsing and planning it take long."""
        return self.request_bytes >= LONG_REQUEST_BYTES

    def collections(self, database: str) -> list[Collection]:
        """The collections of a database by name. Others run meanwhile, and may drop some."""
        return self.compute(partial(self.catalog.collections, database))

    def compute(self, function: Callable[[], T], check: Callable[[], None] | None = None) -> T:
        """What a function returns that may take long for some requests: parsing, planning. Others run meanwhile.

        The function must not change shared state. check: called whenever others have run; raises an error, which ends
        the function, if what it depends on has changed.
        Raises what the function raises, and the errors of `check_interrupt`.
        """
        return self.service.stacks.compute(function, check)

    def reads_past(self) -> bool:
        """Each answer of the views that it reads is of that time, whenever it is asked for."""
        return self.session.in_transaction or self.reading.snapshot is not None

    def give_way(self) -> None:
        """Called between two steps of work: lets others run, if it has gone on long enough. No unit of work is open."""
        stack = self.service.stacks.present
        if stack is None:
            return
        taken_s = stack.end_step()
        if self._pace is not None and self.cost.meter is None:
            self._pace.adapt(taken_s)
        if stack.is_over:
            stack.leave(None)

    def wait(self, seconds: float, signal: Signal | None = None, may_abandon: bool = False) -> None:
        """Returns when the wait is over: see `Wait`. What it waits for a signal does not count as its work."""
        monotonic_s = self.service.monotonic_s
        began_s = monotonic_s()
        self.service.stacks.wait(Wait(seconds, signal, may_abandon=may_abandon))
        if signal is not None:
            self.profile.waited_s += monotonic_s() - began_s

    def flush(self) -> None:
        """Returns when all that was committed so far is on disk. EngineUnavailable."""
        self.service.stacks.flush()

    def in_thread(self, function: Callable[[], T], without_writers: bool = False) -> T:
        """`Stacks.in_thread`."""
        return self.service.stacks.in_thread(function, without_writers)

    def set_request_bytes(self, size: int) -> None:
        """Sets `request_bytes`. A long request may take long for each record, so its first step examines one."""
        self.request_bytes = size
        if size >= LONG_REQUEST_BYTES:
            self._pace = Pace(1)

    def begin_statement(self, statement: bytes, let: bytes) -> None:
        """The next statement of a batch: what it takes to read and plan it depends on its own length, not on that of
        the whole request. let: the variables that all of them share."""
        self.request_bytes = len(statement) + len(let)

    def uses(self, collection: str) -> None:
        """Counts the command's time from now on as usage of this collection or view (`top`, latencyStats)."""
        self.used_namespace = f"{self.database}.{collection}"
        self.profile.used_since_s = self.service.clock.monotonic_s()

    def begin_profile(self) -> None:
        """Notes that the command begins, and counts what it writes."""
        profile = self.profile
        profile.began_s = self.service.clock.monotonic_s()
        if self.service.profiler.attentive:
            profile.written = self.recovery_unit.written = WrittenCounts()

    def elapsed_micros(self) -> int:
        """`OperationProfile.elapsed_micros` now."""
        return self.profile.elapsed_micros(self.service.clock.monotonic_s())

    def working_micros(self) -> int:
        """`OperationProfile.working_micros` now."""
        return self.profile.working_micros(self.service.clock.monotonic_s())

    def count_statements(self, kind: str, number: int = 1) -> None:
        """Counts statements of a write command in `opcounters` as they are executed. kind: insert, update, delete."""
        self.service.metrics.operations[kind] += number

    def record_usage(self, latency: LatencyGroup, counter: str) -> None:
        """Records the usage of the command's namespace, at its end."""
        profile = self.profile
        micros = int((self.service.clock.monotonic_s() - profile.used_since_s) * MICROS_PER_S)
        profile.used_micros = micros
        self.service.metrics.usage.record(self.used_namespace, latency, counter, micros)

    def remove_usage(self, namespace: str) -> None:
        """Removes the usage of a namespace that was dropped: a new collection of that name starts from zero."""
        self.service.metrics.usage.remove(namespace)
        self.used_namespace = ""

    def set_max_time_ms(self, max_time_ms: int) -> None:
        """Applies the command's `maxTimeMS`; 0 means no limit."""
        if max_time_ms > 0:
            self.limit_time(max_time_ms / MS_PER_S)

    def set_await_ms(self, max_time_ms: int) -> None:
        """Takes a getMore's `maxTimeMS`: how long it waits for data, once it begins to wait. It limits nothing else."""
        self.limits = self.limits.with_await(max_time_ms / MS_PER_S)

    def limit_time(self, seconds: float) -> None:
        """Sets the deadline to `seconds` from now; the operation fails at its first step after it.

        MaxTimeMSExpired (50) at once if `seconds` is not positive, or if the fail point maxTimeAlwaysTimeOut is on.
        """
        if seconds <= 0.0 or self.service.fail_points.times_out():
            raise self._time_is_up(is_own_limit=True)
        self.limits = self.limits.with_deadline(self.service.clock.monotonic_s() + seconds)

    def bound_time(self, seconds: float) -> None:
        """Limits the operation to `seconds` of the server's clock, which tests may move or stop."""
        self.limits = self.limits.with_latest(self.now_ms + int(seconds * MS_PER_S))

    def lift_time_bound(self) -> None:
        """Removes that limit: the operation waits on while tests move the clock, or has moved it itself."""
        self.limits = self.limits.with_latest(0)

    def time_left_s(self) -> float:
        """Seconds until the deadline, at least 0.0; -1.0 without a deadline."""
        deadline_s = self.limits.deadline_s
        return max(0.0, deadline_s - self.service.clock.monotonic_s()) if deadline_s > 0.0 else -1.0

    def refresh_now(self) -> None:
        """Sets `now_ms` and `now_s` to the current time, after the command has waited."""
        self.now_ms = self.service.clock.now_ms()
        self.now_s = self.now_ms // MS_PER_S

    def _time_is_up(self, is_own_limit: bool) -> CommandError:
        return self.service.dialect.time_is_up(is_own_limit)

    def check_interrupt(self) -> None:
        """Called between batches: MaxTimeMSExpired (50), Interrupted (11601) or InterruptedAtShutdown (11600)."""
        limits = self.limits
        if limits.deadline_s > 0.0 and self.service.clock.monotonic_s() >= limits.deadline_s:
            raise self.ended_by(self._time_is_up(is_own_limit=True))
        if limits.latest_ms > 0 and self.service.clock.now_ms() >= limits.latest_ms:
            raise self.ended_by(self._time_is_up(is_own_limit=False))
        if self.killed:
            raise self.ended_by(CommandError(ErrorCode.Interrupted, self.why_killed))
        service = self.service
        if service.stopping or 0.0 < service.stop_due_s <= service.clock.monotonic_s():
            raise self.ended_by(CommandError(ErrorCode.InterruptedAtShutdown, "interrupted at shutdown"))
