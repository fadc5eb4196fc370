"""The state of a server that its commands and its background tasks share."""

from collections.abc import Callable
from typing import Any, Final

from mongottl.catalog.catalog import Catalog, new_uuid
from mongottl.catalog.collection import Collection
from mongottl.catalog.options import CollectionOptions
from mongottl.clock import Clock
from mongottl.config import LogSettings, MemoryLimits, ServerConfig
from mongottl.dialect import Dialect, dialect_of
from mongottl.document.build import encode
from mongottl.document.types import Int64, Timestamp
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.running.registry import OperationRegistry, RunningOperation
from mongottl.exec.running.stack import Stacks, StepTimes
from mongottl.exec.service.bounds import Bounds
from mongottl.exec.service.commit_log import CommitLog, NumberedCommitLog
from mongottl.exec.service.expiry import Expiry
from mongottl.exec.service.hooks import ServerHooks
from mongottl.exec.service.processes import ServerProcesses
from mongottl.exec.service.store_commit_log import StoreCommitLog
from mongottl.exec.sessions.cursor_registry import CursorRegistry
from mongottl.exec.sessions.sessions import SESSION_TIMEOUT_S, SessionRegistry
from mongottl.exec.sessions.snapshots import KEPT_S, SnapshotRegistry
from mongottl.exec.sessions.stored_sessions import StoredSessions
from mongottl.exec.sessions.transactions import TRANSACTION_LIFETIME_S, TransactionRegistry
from mongottl.exec.state.cluster_clock import ClusterClock
from mongottl.exec.state.cluster_parameters import ClusterParameters
from mongottl.exec.state.compaction import Compaction
from mongottl.exec.state.connection_rate import ConnectionRate
from mongottl.exec.state.failpoints import FailPoints
from mongottl.exec.state.memory_size import available_memory_bytes
from mongottl.exec.state.metrics import Metrics
from mongottl.exec.state.object_ids import ObjectIdGenerator
from mongottl.exec.state.observation import Observation
from mongottl.exec.state.profiler import Profiler
from mongottl.exec.state.provisioned import ProvisionedDatabases
from mongottl.exec.state.query_stats import STORE_SHARE
from mongottl.exec.state.request_units import RequestUnits
from mongottl.exec.state.saved_states import SavedStates
from mongottl.exec.state.shared_settings import SharedSettings
from mongottl.exec.state.temporary_files import TemporaryFiles
from mongottl.exec.state.write_block import UserWriteBlock
from mongottl.oplog.change import no_operation
from mongottl.oplog.log import OPLOG_NUMBER, Oplog
from mongottl.oplog.numbered import NumberedOplog
from mongottl.oplog.positioned import PositionedOplog, log_uuid
from mongottl.oplog.positioned_records import PositionedRecords
from mongottl.oplog.records import DATABASE, NAME, OplogRecords
from mongottl.oplog.rows import OplogRows
from mongottl.query.memory import MemoryBudget
from mongottl.query.timestamps import ClusterTime, TimestampClock
from mongottl.security.accounts import Accounts
from mongottl.storage.interface import Isolation, StorageEngine
from mongottl.storage.log import StoreLog, time_of
from mongottl.storage.stores import RecordStore
from mongottl.versions import DOLLAR_FIELDS, SYNTAX

MS_PER_S: Final = 1000
# Idle cursors may by default hold one part of this number of the memory.
_CURSOR_SHARE: Final = 8
# The same of running operations.
_OPERATION_SHARE: Final = 4
# The same of the documents that the storage engine keeps.
_CACHE_SHARE: Final = 8
_MS_PER_HOUR: Final = 3_600_000
# How long the log keeps at least what retries need that another server of the same store may get.
RETRIED_MS: Final = 300_000


class ServiceContext:
    """The state that all commands and background tasks of one server share."""

    def __init__(self, config: ServerConfig, clock: Clock, engine: StorageEngine) -> None:
        self.config = config
        self.dialect: Dialect = dialect_of(config)
        self.clock = clock
        self.monotonic_s: Callable[[], float] = clock.elapsed_reader()
        # How the server shows an operation to others.
        self.describe_operation: Callable[[Any], RunningOperation] | None = None
        self.stacks = Stacks(self.monotonic_s, StepTimes())
        self.engine = engine
        engine.set_pause(self.stacks.pause)
        self.started_ms = clock.now_ms()
        self.started_monotonic_s = clock.monotonic_s()
        if engine.shared_nodes is not None:
            engine.shared_nodes.keep_changes()  # until this server follows the others (`refreshing`)
        self.catalog = Catalog(engine, clock)
        self.request_units = RequestUnits()
        self.apply_dialect()
        self.accounts = Accounts(self.catalog)
        # Whether clients may do only what their users are allowed (--auth).
        self.authorizes: bool = config.auth or self.dialect.demands_login
        memory_bytes = available_memory_bytes() // config.workers
        cursor_bytes = config.cursor_memory_mb << 20 or memory_bytes // _CURSOR_SHARE
        self.cursors = CursorRegistry(self.dialect.unknown_cursor, cursor_bytes)
        operation_bytes = config.operation_memory_mb << 20 or memory_bytes // _OPERATION_SHARE
        self.operation_memory = MemoryBudget(operation_bytes)
        engine.set_cache_bytes(config.cache_memory_mb << 20 or memory_bytes // _CACHE_SHARE)
        # Snapshots and transactions.
        self.isolation: Isolation = engine.isolation
        self.snapshots = SnapshotRegistry()
        self.transactions = TransactionRegistry()
        self.transaction_lifetime_s = TRANSACTION_LIFETIME_S
        self.metrics = Metrics()
        # Set while the server's page is served.
        self.observation: Observation | None = None
        # What the announced version has; None if it has everything. refuses_dollar_fields: whether it stores no fields
        # that begin with `$`.
        self.features = self.dialect.features
        self.refuses_dollar_fields: bool = self.features is not None and self.features.lacks(SYNTAX, DOLLAR_FIELDS)
        self.fail_points = FailPoints()
        self.profiler = Profiler(memory_bytes // STORE_SHARE)
        self.operations = OperationRegistry()
        # The connected clients, by connection id.
        self.clients: dict[int, ClientInfo] = {}
        self.hooks = ServerHooks()
        self.expiry = Expiry(config.ttl_monitor_enabled, clock.now_ms() // MS_PER_S, self.dialect, self.hooks)
        self.object_ids = ObjectIdGenerator()
        self.timestamps = TimestampClock()
        store_log = engine.log
        # A store's log keeps its times itself.
        self.cluster_clock = ClusterClock(self.catalog, self.started_ms, engine.persistent and store_log is None)
        self.sessions = SessionRegistry()
        self.oplog: Oplog = self._open_oplog() if store_log is None else self._open_store_log(store_log)
        if not self.oplog.count:
            # As in MongoDB, so that there is a first cluster time to read from.
            self.commit_log.log_alone(no_operation(encode({"msg": "initiating set"})))
        self.catalog.change_listener = self.commit_log.log_catalog_change
        self.settings = SharedSettings(self.catalog)
        self.limits = MemoryLimits()
        self.log_settings = LogSettings(config.quiet, config.verbosity)
        self.cluster_parameters = ClusterParameters(self.catalog)
        self.write_block = UserWriteBlock(self.catalog)
        self.compaction = Compaction(engine, clock, config.compact_free_percent)
        # Of the dialect `cosmos`; in another there are none.
        self.databases = ProvisionedDatabases(self.catalog)
        self.spill_space = TemporaryFiles(engine.folder, self._end_cursor_with_files)
        self.saved_states = SavedStates()
        # Whether a saved state is about to be restored: new commands wait, and what runs ends.
        self.restoring = False
        # "database.collection" of collections under copy; new commands that write to them wait.
        self.exclusive: set[str] = set()
        # The numbers of those that this server copies, where others may have the same store (`holding`).
        self.held: set[int] = set()
        # The idents of indexes whose build this server has given up, and which the stored catalog still has: until they
        # are removed (`refreshing.clear_up`) others wait for them.
        self.left_indexes: set[str] = set()
        # Identifies this run of the server in `hello`'s topologyVersion.
        self.process_id = self.object_ids.generate(self.started_ms // MS_PER_S)
        # How many locks of fsync are held: while there is one, commands that write wait, and TTL deletion pauses.
        self.fsync_locks: int = 0
        # How many connections are established per second.
        self.connection_rate = ConnectionRate()
        # The parameter requireApiVersion: whether every command has to name the Stable API's version.
        self.requires_api_version = False
        # The parameter automationServiceDescriptor.
        self.automation_descriptor = ""
        self.processes = ServerProcesses(config, self.dialect, clock, self.hooks, self.stacks)
        # Set when the server stops; long operations then end with InterruptedAtShutdown.
        self.stopping = False
        # Monotonic time from which on they end although the server's tasks have not been able to set it; 0.0: not yet.
        self.stop_due_s: float = 0.0

    def apply_dialect(self) -> None:
        """Takes over the limits and the rules for names of the dialect: at the start, and after its configuration has
        changed."""
        self.bounds = Bounds(self.dialect.limits())
        self.catalog.naming = self.dialect.naming()
        self.catalog.large_documents = self.dialect.has_large_documents()
        self.dialect.wake_waiting()

    def note_clock_change(self) -> None:
        """Called after the clock was moved, stopped or started: wakes what waits for a time."""
        self.hooks.wake_reaper()
        self.dialect.wake_waiting()

    def save_sessions(self) -> None:
        """Stores what sessions remember, so that the next start has nothing to read from the oplog."""
        if not self.engine.failed:
            self.catalog.in_unit(self.sessions.save)

    def _open_oplog(self) -> Oplog:
        """The oplog, stored if the data is."""
        config = self.config
        max_bytes = max(config.oplog_size_mb, 1) << 20
        retention_ms = config.oplog_min_retention_hours * _MS_PER_HOUR
        rows: OplogRows | None = None
        if self.engine.persistent:
            # What an earlier version of the server wrote there is not in the oplog.
            floor = self.cluster_clock.last.timestamp if self.catalog.all_collections() else Timestamp(0, 0)
            rows = OplogRows(self.catalog, floor, max_bytes, retention_ms)
            self.sessions.store_in(StoredSessions(self.catalog, rows), self.started_monotonic_s)
            rows.on_segment = self.sessions.save
        oplog = NumberedOplog(max_bytes, retention_ms, rows)
        self.commit_log: CommitLog = NumberedCommitLog(
            self.clock,
            self.catalog,
            self.cluster_clock,
            oplog,
            self.sessions,
            self.cursors,
            self.expiry,
            self.metrics,
        )
        self._show_oplog(OplogRecords(oplog), new_uuid() if rows is None else rows.uuid, max_bytes)
        return oplog

    def _open_store_log(self, log: StoreLog) -> Oplog:
        """The oplog of an engine that keeps it itself."""
        config = self.config
        max_bytes = max(config.oplog_size_mb, 1) << 20
        retention_ms = config.oplog_min_retention_hours * _MS_PER_HOUR
        is_shared = self.engine.shared_nodes is not None
        if is_shared:
            retention_ms = max(retention_ms, RETRIED_MS)
        oplog = PositionedOplog(log, max_bytes, retention_ms, is_shared)
        if log.position > 1:
            self.cluster_clock.note_write(ClusterTime(*time_of(log.position)), self.started_ms)
        if not is_shared:  # else retries find in the log what was done, on all servers
            self.sessions.store_in(StoredSessions(self.catalog, oplog), self.started_monotonic_s)
            oplog.before_trim = self.save_sessions
        commit_log = StoreCommitLog(
            self.clock,
            self.catalog,
            self.cluster_clock,
            self.sessions,
            self.cursors,
            self.expiry,
            self.metrics,
            self.hooks,
            oplog,
        )
        self.commit_log = commit_log
        if is_shared:
            self.timestamps.shared = commit_log.take_time
        self._show_oplog(PositionedRecords(oplog), log_uuid(self.catalog), max_bytes)
        return oplog

    def _show_oplog(self, records: RecordStore, uuid: bytes, max_bytes: int) -> None:
        """Attaches `local.oplog.rs` for its readers."""
        if self.dialect.shows_oplog:
            options = CollectionOptions(encode({"capped": True, "size": Int64(max_bytes), "autoIndexId": False}))
            self.catalog.attach(Collection(DATABASE, NAME, OPLOG_NUMBER, uuid, options, records))

    def _end_cursor_with_files(self) -> bool:
        """Closes an idle cursor whose data is in files, because more cannot be opened; False if there is none."""
        cursor = self.cursors.next_to_close_files()
        if cursor is None:
            return False
        self.cursors.close(cursor)
        self.cursors.ended_total += 1
        self.hooks.log_ended_cursor(cursor)
        return True

    def close_idle(self) -> bool:
        """Closes cursors and ends sessions that were unused for longer than their timeouts; called periodically, and
        again at once if it returns that there are more cursors to close."""
        now_s = self.clock.monotonic_s()
        more = self.cursors.close_idle(now_s - self.config.cursor_timeout_s)
        self.sessions.expire(now_s - SESSION_TIMEOUT_S)
        more = self.cursors.close_orphaned(self.sessions) or more
        self.transactions.forget_unknown(self.sessions)
        self.snapshots.close_idle(now_s - KEPT_S)
        return more

    def now_s(self) -> int:
        """Current wall time in whole seconds: the `_ts` of what is written now."""
        return self.clock.now_ms() // MS_PER_S
