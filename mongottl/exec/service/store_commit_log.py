"""How a unit of work is committed whose engine keeps the oplog itself, as PostgreSQL does: `commit_log` says the rest.

forms         made of the unit's changes, without a time; the engine puts them in its log as the unit's last statement
engine commit gives the unit its position, which is its cluster time
session       remembers what the statements have done
streams       are woken when the entry can be read: `LogFollower`
"""

from functools import partial
from typing import Final

from mongottl.catalog.catalog import Catalog
from mongottl.clock import Clock
from mongottl.document.build import encode
from mongottl.document.types import Date
from mongottl.exec.service.commit_log import CommitLog, CommittedTransaction
from mongottl.exec.service.expiry import Expiry
from mongottl.exec.service.hooks import ServerHooks
from mongottl.exec.sessions.cursor_registry import CursorRegistry
from mongottl.exec.sessions.retryable_writes import RetryableWrite
from mongottl.exec.sessions.sessions import SessionRegistry
from mongottl.exec.state.cluster_clock import ClusterClock
from mongottl.exec.state.metrics import Metrics
from mongottl.oplog.change import Change, LoggedChange, no_operation
from mongottl.oplog.entry import OplogEntry, TransactionPart, form_end, stored_form
from mongottl.oplog.positioned import PositionedOplog
from mongottl.query.timestamps import ClusterTime
from mongottl.storage.interface import WriteUnitOfWork
from mongottl.storage.log import ExecutedStatement, LogForm, position_of, time_of

_MS_PER_S: Final = 1000


class StoreCommitLog(CommitLog):
    """Of an engine with a log."""

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        cluster_clock: ClusterClock,
        sessions: SessionRegistry,
        cursors: CursorRegistry,
        expiry: Expiry,
        metrics: Metrics,
        hooks: ServerHooks,
        oplog: PositionedOplog,
    ) -> None:
        super().__init__(clock, catalog, cluster_clock, sessions, cursors, expiry, metrics)
        self._oplog: Final = oplog
        self._hooks: Final = hooks
        self._is_shared: Final = catalog.engine.shared_nodes is not None

    def commit(
        self,
        work: WriteUnitOfWork,
        changes: list[Change],
        logged: list[LoggedChange],
        now_ms: int,
        write: RetryableWrite | None = None,
        transaction: CommittedTransaction | None = None,
    ) -> None:
        pending = write is not None and bool(write.pending)
        if pending and not logged:
            logged = [no_operation()]
        last = len(logged) - 1
        first_index = 0
        if transaction is not None and transaction.kept_forms:
            first_index = transaction.kept_operations
            kept = transaction.kept_forms
            work.end_kept_forms([form_end(now_ms, last + kept - number) for number in range(kept)])
        not_before = self._least_position(now_ms)
        for number, change in enumerate(logged):
            part: TransactionPart | None = None
            if transaction is not None:
                part = TransactionPart(transaction.lsid, transaction.number, first_index, last - number)
                first_index += change.count
            entry = OplogEntry(change, 0, 0, now_ms, part)
            if write is not None and pending and number == last:
                statements = write.statements
                first = statements.executed[0].first
                executed = ExecutedStatement(statements.lsid, statements.txn_number, first, write.may_be_late)
                work.log(LogForm(stored_form(entry, statements), not_before, executed))
            else:
                work.log(LogForm(stored_form(entry), not_before))
        if self._is_shared:
            for made in changes:
                name = made.collection.announced_as
                if name:
                    self._catalog.put_server_entry(name, encode({"changed": Date(now_ms)}))
        work.commit()
        at = ClusterTime(*time_of(work.position))
        if work.position:  # else it has written nothing
            self.cluster_clock.note_write(at, now_ms)
        if write is not None:
            self.sessions.committed(write, now_ms, at)
        if logged:
            self._hooks.wake_log_follower()
        for committed in changes:
            self.carry_on(committed)
        if self._oplog.is_full and not self._is_shared:  # else one server does it for all
            self._oplog.trim(now_ms)

    def log(self, work: WriteUnitOfWork, change: LoggedChange) -> None:
        now_ms = self.clock.now_ms()
        work.log(LogForm(stored_form(OplogEntry(change, 0, 0, now_ms)), self._least_position(now_ms)))
        work.on_commit(partial(self._committed, work, now_ms))

    def pass_metadata_write(self) -> None:
        """Each unit of work has a position, logged or not."""
        self.cluster_clock.note_write(ClusterTime(*time_of(self._oplog.log.position)), self.clock.now_ms())

    def _committed(self, work: WriteUnitOfWork, now_ms: int) -> None:
        self.cluster_clock.note_write(ClusterTime(*time_of(work.position)), now_ms)
        self._hooks.wake_log_follower()

    def take_time(self, now_ms: int) -> ClusterTime:
        """A cluster time after those of all that is committed, which no server of the store has given. It may wait."""
        return ClusterTime(*time_of(self._oplog.log.take_position(self._least_position(now_ms))))

    def _least_position(self, now_ms: int) -> int:
        """A position that is not before the present second, nor before any cluster time that this server has given or
        seen."""
        clock = self.cluster_clock
        return max(position_of(clock.seconds, clock.increment), position_of(now_ms // _MS_PER_S, 0))
