"""What a command reads: the present, a snapshot, or the changes that follow.

admission        ── it has a readConcern ────► op.reading = Reading(level)
snapshot_reads   ── level `snapshot`, or the cursor has one ──► op.reading = op.reading.of_snapshot(…)
aggregate        ── opens a change stream ───► op.reading = op.reading.of_changes()
getMore          ── continues one
"""

from typing import Final

from mongottl.document.types import Timestamp
from mongottl.exec.sessions.snapshots import KeptSnapshot


class Reading:
    """It is never changed: what becomes known later makes another one. PRESENT is that of most commands."""

    def __init__(
        self,
        level: str = "",
        snapshot: KeptSnapshot | None = None,
        snapshot_time: Timestamp | None = None,
        follows_changes: bool = False,
    ) -> None:
        # Of the read concern; empty if none was given.
        self.level: Final = level
        # What a command with read concern `snapshot` reads, and getMore of its cursor; its cluster time, if the reply
        # names it.
        self.snapshot: Final = snapshot
        self.snapshot_time: Final = snapshot_time
        # Whether it opens or continues a change stream, so that drivers resume it after some errors.
        self.follows_changes: Final[bool] = follows_changes

    def of_snapshot(self, snapshot: KeptSnapshot, time: Timestamp | None) -> "Reading":
        """Of a snapshot. time: its cluster time, None if the reply does not name it."""
        return Reading(self.level, snapshot, time, self.follows_changes)

    def of_changes(self) -> "Reading":
        """Of a change stream."""
        return Reading(self.level, self.snapshot, self.snapshot_time, True)


PRESENT: Final = Reading()
