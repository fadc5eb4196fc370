"""The deletion of expired documents: its settings, how far it has come, and the timing wheel with the seconds at which
some expire. `exec.write.expiry` deletes them, and fills the wheel at the start.

    CommitLog ── each committed change ──► Expiry.arm_written ──► the wheel ──► wakes the reaper
"""

from collections.abc import Iterable
from typing import Final

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.dialect import Dialect
from mongottl.exec.service.due_dates import date_due_s
from mongottl.exec.service.hooks import ServerHooks
from mongottl.storage.stores import NewRecord
from mongottl.ttl.policy import NEVER_AT_S, NO_TTL, expires_at_s
from mongottl.ttl.wheel import TimingWheel, WheelEntries

# For how long deletion is left to another server that has moved the clock, in seconds, if it does not say that it has
# done it.
_LEFT_S: Final = 30.0


class Expiry:
    """The state of TTL deletion of one server."""

    def __init__(self, is_enabled: bool, now_s: int, dialect: Dialect, hooks: ServerHooks) -> None:
        self._dialect = dialect
        self._hooks = hooks
        self.wheel = TimingWheel(now_s)
        # Whether expired documents are deleted (`ttlMonitorEnabled`).
        self.is_enabled = is_enabled
        # Seconds from one deletion to the next (`ttlMonitorSleepSecs`).
        self.sleep_s: int = 1
        # Whether a deletion is under way.
        self.purging = False
        # Numbers of collections whose expiry times are not all in the wheel; see `exec.write.expiry`.
        self.unarmed: set[int] = set()
        # Monotonic time at which all collections are looked at, where other servers may have written to them.
        self.look_at_s = 0.0
        # The server that has moved the clock of all, and deletes alone what has expired by that, so that it can say how
        # much it was; 0 for none. Until which monotonic time it is left to that server; and how many commands of this
        # one have moved the clock and are doing it.
        self.left_to = 0
        self.left_until_s = 0.0
        self.moves: int = 0
        # How many tasks are filling the wheel with the expiry times of a collection.
        self.arming: int = 0

    def arm_written(self, collection: Collection, rows: list[NewRecord]) -> None:
        """Arms the wheel for records that were committed."""
        default_ttl_s = collection.default_ttl_s
        if default_ttl_s == NO_TTL and not collection.date_ttl_indexes:
            return
        for document, ts_s, ttl_s in rows:
            due_s = expires_at_s(ts_s, ttl_s, default_ttl_s)
            if due_s != NEVER_AT_S and self.wheel.arm(collection.number, due_s):
                self._hooks.wake_reaper()
            for index in collection.date_ttl_indexes:
                self.arm_date(collection, index, document)

    def arm_date(self, collection: Collection, index: CollectionIndex, document: bytes) -> None:
        """Arms the wheel for a document in a date-field TTL index."""
        due_s = date_due_s(index, document, self._dialect.numbers_are_dates)
        if due_s is not None and self.wheel.arm(collection.number, due_s):
            self._hooks.wake_reaper()

    def leave_to(self, number: int, now_s: float) -> None:
        """Leaves deletion to another server. now_s: monotonic time."""
        self.left_to = number
        self.left_until_s = now_s + _LEFT_S

    def setting(self) -> tuple[bool, int]:
        """What commands have set, for `restore_setting`."""
        return self.is_enabled, self.sleep_s

    def restore_setting(self, setting: tuple[bool, int]) -> None:
        """Makes that what it was."""
        self.is_enabled, self.sleep_s = setting

    def restore(self, wheel: WheelEntries, unarmed: Iterable[int]) -> None:
        """Puts the expiry times of a saved state in place. What runs goes on."""
        self.wheel.restore(wheel)
        self.unarmed.clear()
        self.unarmed.update(unarmed)
