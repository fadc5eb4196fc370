"""The context of one command."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from mongottl.catalog.collection import Collection
from mongottl.catalog.namespace import check_database_name
from mongottl.document.build import EMPTY_DOCUMENT, encode_fields
from mongottl.document.types import MAX_DOCUMENT_BYTES, Missing, Timestamp, Value
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.running.gate import Gate
from mongottl.exec.running.operation_scripts import OperationScripts
from mongottl.exec.running.signal import Signal
from mongottl.exec.running.state import OperationState
from mongottl.exec.running.steps import Wait
from mongottl.exec.service.service import MS_PER_S, ServiceContext
from mongottl.exec.sessions.snapshots import KeptSnapshot
from mongottl.exec.sessions.transactions import Transaction
from mongottl.exec.state.meter import Meter
from mongottl.exec.state.query_stats import RunningQuery
from mongottl.exec.state.temporary_files import OperationFiles
from mongottl.exec.state.usage import LatencyGroup
from mongottl.exec.unit.recovery_unit import RecoveryUnit
from mongottl.query.memory import OperationMemory
from mongottl.security.accounts import Grants
from mongottl.security.names import UserName
from mongottl.security.privileges import Need, Resource

if TYPE_CHECKING:
    from mongottl.exec.running.registry import RunningOperation
    from mongottl.exec.sessions.sessions import Session
    from mongottl.javascript.scripts import Scripts

T = TypeVar("T")

MICROS_PER_S: Final = 1_000_000
# Others run while requests from this length on are parsed and planned. Shorter ones take less than two milliseconds.
LONG_REQUEST_BYTES: Final = 32 * 1024
# Records (or index entries) that a scan examines in one step at most: a fraction of a millisecond's work.
MAX_STEP_RECORDS: Final = 256
# Target duration of a step; the number of records that scans examine in a step is set by it.
STEP_S: Final = 0.002

# Plans of one command that the profiler sums up.
MAX_NOTED_PLANS: Final = 8
_NO_PLANS: Final[list[object]] = []
_NO_ERRORS: Final[list[Value]] = []
_NO_ADVICE: Final[dict[int, str]] = {}
# Functions, and other values, that scripts of a database have as global variables; how many of them at most.
_STORED_FUNCTIONS: Final = "system.js"
_MAX_STORED_FUNCTIONS: Final = 1000

_NO_NEEDS: Final[list[Need]] = []


class OperationContext(OperationState):
    """One running command.

    request_bytes: the length of the message that contained it.
    step_records: how many records a scan may examine in one step. Less than MAX_STEP_RECORDS if the filter or the
    stages take long for each; `adapt_step` sets it.
    records_examined: by scans, in the present step.
    txn_number: of a retryable write, or None.
    express_collection: of a find that was found to take the express path before it began; else None.
    retryable: whether the command is a write with a `txnNumber`, which its driver may retry after some errors.
    reads_changes: whether it opens or continues a change stream, so that drivers resume it after some errors.
    adds_labels: whether its errors get the labels of their codes; not if a fail point names the labels.
    deadline_s: monotonic time (`clock.monotonic_s`) at which `maxTimeMS` is over; 0.0 for none.
    latest_ms: wall time (`clock.now_ms`) at which it has taken as long as the dialect `cosmos` lets it; 0 for no limit.
    bypass_validation: whether documents that the collection's validator refuses may be written.
    keeps_empty_timestamps: whether empty timestamps in inserts and replacements are stored as they are.
    recovery_unit: all reads and writes of stored data go through it.
    transaction: the transaction of which the command is a statement, or which it ends; None before it is known.
    repeats_commit: whether it is a commit that an earlier run of the server has carried out.
    kept_snapshot: what a command with read concern `snapshot` reads. snapshot_time: its cluster time, for the reply.
    in_transaction: whether the command was given as part of a transaction, with or without success.
    cluster_time: the cluster time at its beginning, for `$$CLUSTER_TIME`.
    has_max_time, has_write_concern: whether the command has a `maxTimeMS` or `writeConcern` field.
    await_s: seconds for which a getMore waits for data, its `maxTimeMS`; -1.0 if it has none.
    raw_data: whether a command on a time series collection applies to its buckets (`rawData`).
    gate: what a batch of writes asks before each statement, or None. meter: counts its request units, or None. charge:
    what it has cost at its end, in hundredths of units. All three are of the dialect `cosmos`.
    spec: of its command (`commands.registry`), None for operations that no client has sent. running: as others see it,
    once it was left. scripts: set if something that it evaluates is in JavaScript.
    statement_errors: the failed statements of a batch of writes, as `writeErrors` has them. statement_advice: the
    `advice` of those that have one, by their place in that list.
    needs: what its client had to be allowed, where users are checked; its cursors need the same.
    is_before_first_user: whether it was allowed only because there was no user yet.
    """

    def __init__(self, service: ServiceContext, client: ClientInfo, database: str) -> None:
        now_ms: int = service.clock.now_ms()
        super().__init__(client, database, now_ms)
        self.service = service
        self.catalog = service.catalog
        self.recovery_unit = RecoveryUnit(service)
        self.express_collection: Collection | None = None
        self._memory: OperationMemory | None = None
        # The temporary files of its stages, once one may need some.
        self.files_used: OperationFiles | None = None
        self.transaction: Transaction | None = None
        self.in_transaction = False
        self.repeats_commit = False
        self.kept_snapshot: KeptSnapshot | None = None
        self.snapshot_time: Timestamp | None = None
        self.now_s: int = now_ms // MS_PER_S
        self.cluster_time: Timestamp = service.cluster_clock.last
        self.request_bytes = 0
        self.step_records = MAX_STEP_RECORDS
        self.records_examined = 0
        self.txn_number: int | None = None
        self.retryable = False
        self.reads_changes = False
        self.adds_labels = True
        self.deadline_s = 0.0
        self.latest_ms: int = 0
        self.has_max_time = False
        self.await_s = -1.0
        self.has_write_concern = False
        self.raw_data = False
        # The level of the read concern, empty if none was given.
        self.read_level = ""
        self.bypass_validation = False
        self.keeps_empty_timestamps = False
        self.scripts: OperationScripts | None = None
        self.spec: object = None
        self.running: RunningOperation | None = None
        self._active_session: Session | None = None
        self.gate: Gate | None = None
        self.meter: Meter | None = None
        self.charge: int = 0
        self.needs: list[Need] = _NO_NEEDS
        self.is_before_first_user = False
        self.comment: Value = None
        self.statement_errors: list[Value] = _NO_ERRORS
        self.statement_advice: dict[int, str] = _NO_ADVICE
        # Fields with names that are not declared, of commands that accept any (getParameter, setParameter).
        self.extra_fields: dict[str, Value] = {}
        # Monotonic time at which the command began to use its collection.
        self._used_since_s = 0.0
        self.used_micros = 0
        # Seconds for which it has waited to be woken, as a getMore does for new data.
        self.waited_s = 0.0
        # For the profiler: the command's document and document sequences, and the monotonic time at which it began, 0.0
        # if nothing is profiled.
        self.body: bytes = b""
        self.sequences: list[tuple[str, list[bytes]]] = []
        self.began_s = 0.0
        # For the profiler: the first plans that the command has executed (`exec.stages` has their type), and the keys
        # and documents that they had examined before, None if that is not known. lookups_by_id, found_by_id: reads
        # without a plan, and how many of them found a document.
        self.plans: list[object] = _NO_PLANS
        self.examined_before: tuple[int, int] | None = (0, 0)
        # The query that a getMore continues, if queries are recorded for `$queryStats`.
        self.running_query: RunningQuery | None = None
        self.lookups_by_id = 0
        self.found_by_id = 0

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
    def memory(self) -> OperationMemory:
        """What the operation's sorts, groups and joins hold."""
        memory = self._memory
        if memory is None:
            memory = OperationMemory(self.service.operation_memory, self.owner())
            self._memory = memory
        return memory

    @property
    def files(self) -> OperationFiles:
        """Where its sorts and groups make temporary files."""
        files = self.files_used
        if files is None:
            files = OperationFiles(self.service.spill_space)
            self.files_used = files
        return files

    def continue_memory(self, memory: OperationMemory) -> None:
        """Makes the memory of the operation that opened a cursor this operation's."""
        self._memory = memory

    def register(self) -> None:
        """Makes it known to `$currentOp` and killOp, and its session one in use, until `end`."""
        describe = self.service.describe_operation
        if self.spec is None or describe is None:
            return
        if self.running is None:
            self.running = describe(self)
        if self._active_session is None and self.session_key is not None:
            self._active_session = self.service.sessions.begin_operation(self.session_key)

    def end(self) -> None:
        """Gives back, at the end of the command, what its stages and scripts hold; others do not see it any more."""
        if self.scripts is not None:
            self.scripts.end()
            self.scripts = None
        if self._memory is not None:
            self._memory.settle()
        if self.running is not None:
            self.service.operations.end(self.running)
            self.running = None
        if self._active_session is not None:
            self.service.sessions.end_operation(self._active_session, self.service.clock.monotonic_s())
            self._active_session = None

    def note_plan(self, plan: object) -> None:
        """Remembers a plan for the profiler. Of very many, those of the statements of a batch, one too many is kept."""
        if self.meter is not None:
            self.meter.begin_search()
        if not self.plans:
            self.plans = [plan]
        elif len(self.plans) <= MAX_NOTED_PLANS:
            self.plans.append(plan)

    def open_scripts(self, name: str) -> "Scripts":
        """The operation's scripts. BadValue (2) or CommandNotSupported (115) if the server runs none.

        name: of the operator or command that needs them.
        """
        opened = self.scripts
        if opened is None:
            opened = OperationScripts(self.service.stacks, self.service.scripts.opener(name, self.now_ms, self.owner()))
            self.continue_scripts(opened)
        return opened.scripts

    def continue_scripts(self, opened: OperationScripts) -> None:
        """Makes scripts this operation's: new ones, or those of the operation that opened the cursor it reads."""
        opened.operation = self
        opened.scripts.check = self.check_interrupt
        opened.scripts.time_left_s = self.time_left_s
        opened.scripts.stored_functions = self.stored_functions
        self.scripts = opened

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

    def compute(self, function: Callable[[], T], check: Callable[[], None] | None = None) -> T:
        """What a function returns that may take long for some requests: parsing, planning. Others run meanwhile.

        The function must not change shared state. check: called whenever others have run; raises an error, which ends
        the function, if what it depends on has changed.
        Raises what the function raises, and the errors of `check_interrupt`.
        """
        return self.service.stacks.compute(function, check)

    def may_leave_evaluations(self) -> bool:
        """Not where what it reads was chosen before others write."""
        return not self.in_transaction and self.kept_snapshot is None

    def give_way(self) -> None:
        """Called between two steps of work: lets others run, if it has gone on long enough. No unit of work is open."""
        stack = self.service.stacks.present
        if stack is None:
            return
        self.adapt_step(stack.end_step())
        if stack.is_over:
            stack.leave(None)

    def wait(self, seconds: float, signal: Signal | None = None, may_abandon: bool = False) -> None:
        """Returns when the wait is over: see `Wait`. What it waits for a signal does not count as its work."""
        monotonic_s = self.service.monotonic_s
        began_s = monotonic_s()
        self.service.stacks.wait(Wait(seconds, signal, may_abandon=may_abandon))
        if signal is not None:
            self.waited_s += monotonic_s() - began_s

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
            self.step_records = 1

    def begin_statement(self, statement: bytes, let: bytes) -> None:
        """The next statement of a batch: what it takes to read and plan it depends on its own length, not on that of
        the whole request. let: the variables that all of them share."""
        self.request_bytes = len(statement) + len(let)

    def adapt_step(self, elapsed_s: float) -> None:
        """Called after each step, with its duration in seconds: sets how many records the next one may examine."""
        examined = self.records_examined
        if examined == 0 or self.meter is not None:
            return
        self.records_examined = 0
        if elapsed_s > STEP_S:
            self.step_records = max(1, min(self.step_records, int(examined * STEP_S / elapsed_s)))
        elif self.step_records < MAX_STEP_RECORDS:
            self.step_records *= 2

    def uses(self, collection: str) -> None:
        """Counts the command's time from now on as usage of this collection or view (`top`, latencyStats)."""
        self.used_namespace = f"{self.database}.{collection}"
        self._used_since_s = self.service.clock.monotonic_s()

    def elapsed_micros(self) -> int:
        """Microseconds since the command began, or since it began to use its collection if that is all that is
        known."""
        since_s = self.began_s or self._used_since_s
        return int((self.service.clock.monotonic_s() - since_s) * MICROS_PER_S) if since_s else 0

    def working_micros(self) -> int:
        """`elapsed_micros` without what it has waited for new data."""
        return self.elapsed_micros() - int(self.waited_s * MICROS_PER_S)

    def count_statements(self, kind: str, number: int = 1) -> None:
        """Counts statements of a write command in `opcounters` as they are executed. kind: insert, update, delete."""
        self.service.metrics.operations[kind] += number

    def record_usage(self, latency: LatencyGroup, counter: str) -> None:
        """Records the usage of the command's namespace, at its end."""
        self.used_micros = int((self.service.clock.monotonic_s() - self._used_since_s) * MICROS_PER_S)
        self.service.metrics.usage.record(self.used_namespace, latency, counter, self.used_micros)

    def remove_usage(self, namespace: str) -> None:
        """Removes the usage of a namespace that was dropped: a new collection of that name starts from zero."""
        self.service.metrics.usage.remove(namespace)
        self.used_namespace = ""

    def set_max_time_ms(self, max_time_ms: int) -> None:
        """Applies the command's `maxTimeMS`; 0 means no limit."""
        self.has_max_time = True
        if max_time_ms > 0:
            self.limit_time(max_time_ms / MS_PER_S)

    def set_await_ms(self, max_time_ms: int) -> None:
        """Takes a getMore's `maxTimeMS`: how long it waits for data, once it begins to wait. It limits nothing else."""
        self.has_max_time = True
        self.await_s = max_time_ms / MS_PER_S

    def limit_time(self, seconds: float) -> None:
        """Sets the deadline to `seconds` from now; the operation fails at its first step after it.

        MaxTimeMSExpired (50) at once if `seconds` is not positive, or if the fail point maxTimeAlwaysTimeOut is on.
        """
        if seconds <= 0.0 or self.service.fail_points.times_out():
            raise self._time_is_up(is_own_limit=True)
        self.deadline_s = self.service.clock.monotonic_s() + seconds

    def bound_time(self, seconds: float) -> None:
        """Limits the operation to `seconds` of the server's clock, which tests may move or stop."""
        self.latest_ms = self.now_ms + int(seconds * MS_PER_S)

    def time_left_s(self) -> float:
        """Seconds until the deadline, at least 0.0; -1.0 without a deadline."""
        return max(0.0, self.deadline_s - self.service.clock.monotonic_s()) if self.deadline_s > 0.0 else -1.0

    def refresh_now(self) -> None:
        """Sets `now_ms` and `now_s` to the current time, after the command has waited."""
        self.now_ms = self.service.clock.now_ms()
        self.now_s = self.now_ms // MS_PER_S

    def _time_is_up(self, is_own_limit: bool) -> CommandError:
        return self.service.dialect.time_is_up(is_own_limit)

    def check_interrupt(self) -> None:
        """Called between batches: MaxTimeMSExpired (50), Interrupted (11601) or InterruptedAtShutdown (11600)."""
        if self.deadline_s > 0.0 and self.service.clock.monotonic_s() >= self.deadline_s:
            raise self._time_is_up(is_own_limit=True)
        if self.latest_ms > 0 and self.service.clock.now_ms() >= self.latest_ms:
            raise self._time_is_up(is_own_limit=False)
        if self.killed:
            raise CommandError(ErrorCode.Interrupted, self.why_killed)
        service = self.service
        if service.stopping or 0.0 < service.stop_due_s <= service.clock.monotonic_s():
            raise CommandError(ErrorCode.InterruptedAtShutdown, "interrupted at shutdown")
