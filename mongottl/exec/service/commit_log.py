"""How a unit of work is committed: every commit that the oplog has to know of goes through here.

tick                the cluster time of the commit
oplog entries       made of the unit's changes, with that time; with a data directory stored in the unit itself
engine commit       all or nothing of it, statements of a retryable write included
session             remembers what the statements have done
oplog in memory     the entries are appended, and change streams that wait for them are woken
changes             scans read their collections again, the timing wheel is armed, tailable cursors are woken

WriteUnit.commit, commit_transaction ──► CommitLog.commit
catalog, in its own unit of work     ──► CommitLog.log_catalog_change       the entry is appended after its commit
what several units have changed      ──► CommitLog.log_alone
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from mongottl.catalog.catalog import Catalog
from mongottl.catalog.change_kinds import INSERT
from mongottl.catalog.collection import Collection
from mongottl.clock import Clock
from mongottl.document.freeing import LONG, LongList
from mongottl.document.types import Value
from mongottl.exec.service.expiry import Expiry
from mongottl.exec.sessions.cursor_registry import CursorRegistry
from mongottl.exec.sessions.retryable_writes import RetryableWrite
from mongottl.exec.sessions.sessions import SessionRegistry
from mongottl.exec.state.cluster_clock import ClusterClock
from mongottl.exec.state.metrics import Metrics
from mongottl.oplog.change import Change, LoggedChange, catalog_change, no_operation
from mongottl.oplog.entry import OplogEntry, TransactionPart
from mongottl.oplog.log import OPLOG_NUMBER
from mongottl.oplog.numbered import NumberedOplog
from mongottl.oplog.statements import Statements
from mongottl.storage.interface import WriteUnitOfWork

# The rows of a transaction whose deaths are noted before others may be answered.
_PART: Final = 512


class CommittedTransaction(NamedTuple):
    """A transaction that a unit commits.

    lsid: the id of its session, `{id, uid}`. number: its own. between: called between two parts of its commit, since it
    may have many changes. kept_forms: how many of its changes, with `kept_operations`, the engine has kept for its log.
    """

    lsid: bytes
    number: int
    between: Callable[[], None]
    kept_forms: int = 0
    kept_operations: int = 0


class CommitLog(ABC):
    """Commits units of work, and records in the oplog what they have changed.

    Where that is, and when its times are known, depends on the engine: `NumberedCommitLog`, `StoreCommitLog`.
    """

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        cluster_clock: ClusterClock,
        sessions: SessionRegistry,
        cursors: CursorRegistry,
        expiry: Expiry,
        metrics: Metrics,
    ) -> None:
        self.clock: Final = clock
        self._catalog: Final = catalog
        self.cluster_clock: Final = cluster_clock
        self.sessions: Final = sessions
        self._cursors: Final = cursors
        self._expiry: Final = expiry
        self._metrics: Final = metrics

    @property
    def describes(self) -> bool:
        """Whether updates are described by their commit, and not only for those who read them."""
        return False

    @abstractmethod
    def commit(
        self,
        work: WriteUnitOfWork,
        changes: list[Change],
        logged: list[LoggedChange],
        now_ms: int,
        write: RetryableWrite | None = None,
        transaction: CommittedTransaction | None = None,
    ) -> None:
        """Commits a unit of work with these changes, which may be none. The errors of the engine: nothing is committed.

        logged: the changes for the oplog, those of a transaction by its statements. now_ms: wall time of the unit.
        write: whose statements it executes. transaction: that it commits.
        """
        raise NotImplementedError

    def carry_on(self, change: Change, between: Callable[[], None] | None = None) -> None:
        """What follows the commit of a change of documents. between: called between two parts of it."""
        collection = change.collection
        collection.writes += 1
        self.arm(change, between)
        if change.expired:
            self._metrics.ttl_deleted_documents += change.expired
            collection.purged_documents += change.expired
        if change.kind == INSERT and collection.options.capped:
            self._cursors.notify_inserted(collection.number)

    def arm(self, change: Change, between: Callable[[], None] | None = None) -> None:
        """Arms the timing wheel for what a change has written: at its commit, or before that of a transaction which the
        engine keeps. If that is never committed the reaper looks in vain; what is due before the commit it does not
        see, so it looks again when the transaction has ended."""
        rows = change.rows
        if between is None or len(rows) <= _PART:
            self._expiry.arm_written(change.collection, rows)
            return
        for start in range(0, len(rows), _PART):
            self._expiry.arm_written(change.collection, rows[start : start + _PART])
            between()

    def log_catalog_change(self, work: WriteUnitOfWork, kind: int, collection: Collection, detail: Value) -> None:
        """Logs a change of a collection or its indexes in the unit of work of the catalog that makes it, which the
        catalog commits. kind, detail: see `catalog.change_kinds`."""
        change = catalog_change(kind, collection, detail)
        if change is not None:
            self.log(work, change)

    def log_alone(self, change: LoggedChange) -> None:
        """Logs, in a unit of work of its own, what was changed by several: a database was dropped after its
        collections, or options were changed together with an index."""
        self._catalog.in_unit_from_reserve(partial(self.log, change=change))

    def pass_metadata_write(self) -> None:
        """Gives the end of a command that writes metadata a cluster time: not all that it commits is logged."""
        self.cluster_clock.tick(self.clock.now_ms())

    @abstractmethod
    def log(self, work: WriteUnitOfWork, change: LoggedChange) -> None:
        """Puts a change in the oplog in a unit of work that others commit, with a cluster time of its own."""
        raise NotImplementedError

    def notify(self, change: LoggedChange) -> None:
        """Wakes those who wait for an entry of the oplog that can be read now."""
        cursors = self._cursors
        if cursors.has_waiting:
            cursors.notify_inserted(OPLOG_NUMBER)
            for watched in change.watched_as():
                cursors.notify_inserted(watched)


class NumberedCommitLog(CommitLog):
    """Of an engine without a log: an entry for each change, whose cluster time is the next tick of this server's."""

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        cluster_clock: ClusterClock,
        oplog: NumberedOplog,
        sessions: SessionRegistry,
        cursors: CursorRegistry,
        expiry: Expiry,
        metrics: Metrics,
    ) -> None:
        super().__init__(clock, catalog, cluster_clock, sessions, cursors, expiry, metrics)
        self._oplog: Final = oplog

    @property
    def describes(self) -> bool:
        return self._oplog.rows is not None

    def commit(
        self,
        work: WriteUnitOfWork,
        changes: list[Change],
        logged: list[LoggedChange],
        now_ms: int,
        write: RetryableWrite | None = None,
        transaction: CommittedTransaction | None = None,
    ) -> None:
        oplog = self._oplog
        cluster_clock = self.cluster_clock
        at = cluster_clock.tick(now_ms)
        statements: Statements | None = None
        if write is not None and write.pending and oplog.rows is not None:
            statements = write.statements
            if not logged:
                logged = [no_operation()]
        last = len(logged) - 1
        if transaction is not None:
            # All its entries have the time of its commit. In `local.oplog.rs` each has one of its own, up to that.
            for _ in range(last):
                at = cluster_clock.tick(now_ms)
        entries: list[OplogEntry] = LongList() if len(logged) >= LONG else []
        first_index = 0
        latest = at
        for number, change in enumerate(logged):
            part: TransactionPart | None = None
            if transaction is not None:
                part = TransactionPart(transaction.lsid, transaction.number, first_index, last - number)
                first_index += change.count
                transaction.between()
            elif number:
                latest = cluster_clock.tick(now_ms)
            entry = OplogEntry(change, latest.time, latest.inc, now_ms, part)
            entries.append(oplog.put(entry, work, statements if number == last else None))
        if cluster_clock.limit_due:
            cluster_clock.put_limit(work)
        work.commit()
        if write is not None:
            self.sessions.committed(write, now_ms, at)
        for entry in entries:
            self._append(entry)
            if transaction is not None:
                transaction.between()
        for committed in changes:
            self.carry_on(committed, None if transaction is None else transaction.between)

    def log(self, work: WriteUnitOfWork, change: LoggedChange) -> None:
        now_ms = self.clock.now_ms()
        cluster_clock = self.cluster_clock
        cluster_clock.tick(now_ms)
        entry = self._oplog.put(OplogEntry(change, cluster_clock.seconds, cluster_clock.increment, now_ms), work)
        if cluster_clock.limit_due:
            cluster_clock.put_limit(work)
        work.on_commit(partial(self._append, entry))

    def _append(self, entry: OplogEntry) -> None:
        """Makes an entry visible after the commit, and wakes those who wait for it."""
        self._oplog.append(entry)
        self.notify(entry.change)
