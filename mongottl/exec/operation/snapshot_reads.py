"""Reads with read concern `snapshot` outside transactions: several reads of one point in time.

    find {…, readConcern: {level: "snapshot"}}                    reads the present; the reply has its atClusterTime
    find {…, readConcern: {level: "snapshot", atClusterTime: T}}  reads what was committed at T

A snapshot is kept for 300 seconds after its last use, mongod's minSnapshotHistoryWindowInSeconds, for further reads at
its time and for getMore. Only times at which a snapshot was taken can be read again, by any server with the same store,
and the time of the latest write, which a server does not know beside others: mongod keeps the history of all times.
Drivers' snapshot sessions always ask for a time from an earlier reply, and any mongos for it.
"""

from typing import Final

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.document.types import Timestamp
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.sessions.snapshot_catalog import SnapshotCatalog
from mongottl.exec.sessions.snapshots import KeptSnapshot
from mongottl.exec.unit.recovery_unit import RecoveryUnit
from mongottl.exec.unit.write_unit import WriteUnit
from mongottl.query.timestamps import ClusterTime
from mongottl.storage.interface import OpenSnapshot
from mongottl.storage.stores import RecordStore, SortedDataInterface


def enter(op: OperationContext, at: Timestamp | None) -> None:
    """Makes a command read a snapshot: that of a cluster time, or of the present. SnapshotTooOld (239)."""
    service = op.service
    kept = None if at is None else service.snapshots.find(at)
    if at is not None and (kept is None or (service.settings.is_shared and kept.snapshot.too_old)):
        kept = _found(service, at)
    elif kept is None:
        kept = _taken(service)
    use(op, kept, kept.at)


def _taken(service: ServiceContext, at: Timestamp | None = None) -> KeptSnapshot:
    """A new snapshot. at: the present, where a time has been named for it."""
    written = service.cluster_clock.operation_time
    version = service.catalog.version  # not that of a time after the snapshot
    snapshot = service.isolation.open_snapshot()
    if at is None:
        at = Timestamp(*service.oplog.time_of_snapshot(written))
        service.cluster_clock.note_time(ClusterTime(at.time, at.inc))
    return _kept(service, at, snapshot, version)


def _kept(service: ServiceContext, at: Timestamp, snapshot: OpenSnapshot, version: int) -> KeptSnapshot:
    """A snapshot that further reads may use, on all servers of the store. version: of the catalog."""
    kept = service.snapshots.keep(at, snapshot, version)
    if service.settings.is_shared:
        snapshot.share((at.time, at.inc))
    return kept


def _found(service: ServiceContext, at: Timestamp) -> KeptSnapshot:
    """The snapshot of a cluster time of which none is kept here. SnapshotTooOld (239)."""
    clock = service.cluster_clock
    if not clock.has_reached(at):
        raise CommandError(
            ErrorCode.InvalidOptions,
            "readConcern atClusterTime value must not be greater than the current clusterTime",
        )
    if not service.settings.is_shared:
        written = clock.operation_time
        if (at.time, at.inc) < (written.time, written.inc):
            raise _too_old()
        return _taken(service, at)
    version = service.catalog.version
    snapshot = service.isolation.find_snapshot((at.time, at.inc))
    if snapshot is None:
        raise _too_old()
    kept = service.snapshots.find(at)
    if kept is not None and not kept.snapshot.too_old:
        snapshot.close()  # another operation has found it meanwhile
        return kept
    return _kept(service, at, snapshot, version)


def use(op: OperationContext, kept: KeptSnapshot, named_time: Timestamp | None = None) -> None:
    """Makes a command read a snapshot that was taken before. SnapshotTooOld (239).

    named_time: its cluster time, if the reply names it.
    """
    if kept.snapshot.too_old or kept.closed:
        raise _too_old()
    kept.last_used_s = op.service.clock.monotonic_s()
    op.reading = op.reading.of_snapshot(kept, named_time)
    op.recovery_unit = SnapshotRecoveryUnit(op.service, kept)
    op.catalog = SnapshotCatalog(op.service.catalog, kept.catalog_version, kept.snapshot.changed_names)


def _too_old() -> CommandError:
    return CommandError(
        ErrorCode.SnapshotTooOld,
        "Read timestamp is older than the oldest available timestamp: snapshots are kept for 300 seconds, as long as"
        " the changes since then fit into memory, and until a saved state is restored",
    )


class SnapshotRecoveryUnit(RecoveryUnit):
    """The reads of one command at a snapshot."""

    def __init__(self, service: ServiceContext, kept: KeptSnapshot) -> None:
        super().__init__(service)
        self._snapshot: Final = kept.snapshot

    def records(self, collection: Collection) -> RecordStore:
        return self._snapshot.records_at(collection.store)

    def index(self, entry: CollectionIndex) -> SortedDataInterface:
        return self._snapshot.entries_at(entry.sorted_data)

    def write(self, collection: Collection) -> WriteUnit:
        raise RuntimeError("a write with read concern snapshot")
