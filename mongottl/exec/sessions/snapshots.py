"""The snapshots of reads outside transactions, by the cluster time that they show."""

from typing import Final

from mongottl.document.types import Timestamp
from mongottl.storage.interface import OpenSnapshot

# mongod's default of minSnapshotHistoryWindowInSeconds.
KEPT_S: Final = 300.0


class KeptSnapshot:
    """A snapshot that further reads may use. at: its cluster time. catalog_version: of the catalog when it was taken,
    or found at another server.

    last_used_s: monotonic time. closed: whether it was given up.
    """

    def __init__(self, at: Timestamp, snapshot: OpenSnapshot, catalog_version: int) -> None:
        self.at: Final = at
        self.snapshot: Final = snapshot
        self.catalog_version: Final = catalog_version
        self.last_used_s = 0.0
        self.closed = False


class SnapshotRegistry:
    """The kept snapshots of a server."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], KeptSnapshot] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, at: Timestamp) -> KeptSnapshot | None:
        """The snapshot that was taken at a cluster time."""
        return self._kept.get((at.time, at.inc))

    def keep(self, at: Timestamp, snapshot: OpenSnapshot, catalog_version: int) -> KeptSnapshot:
        """Keeps a new snapshot; the one of this time that is kept already if there is one, and closes the new one."""
        known = self.find(at)
        if known is not None and not known.snapshot.too_old and known.catalog_version == catalog_version:
            snapshot.close()
            return known
        if known is not None:
            self._give_up(known)
        kept = self._kept[at.time, at.inc] = KeptSnapshot(at, snapshot, catalog_version)
        return kept

    def close_idle(self, before_s: float) -> None:
        """Gives up snapshots that were not used since before this monotonic time, and those that are too old."""
        for key, kept in list(self._kept.items()):
            if kept.last_used_s < before_s or kept.snapshot.too_old:
                del self._kept[key]
                self._give_up(kept)

    def close_all(self) -> None:
        """Gives up all snapshots, because a saved state is restored."""
        for kept in self._kept.values():
            self._give_up(kept)
        self._kept = {}

    def _give_up(self, kept: KeptSnapshot) -> None:
        kept.closed = True
        kept.snapshot.close()
