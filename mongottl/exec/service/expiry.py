"""The deletion of expired documents: its settings, and how far it has come. `exec.write.expiry` deletes them."""

from collections.abc import Iterable

from mongottl.ttl.wheel import TimingWheel, WheelEntries


class Expiry:
    """The state of TTL deletion of one server."""

    def __init__(self, is_enabled: bool, now_s: int) -> None:
        self.wheel = TimingWheel(now_s)
        # Whether expired documents are deleted (`ttlMonitorEnabled`).
        self.is_enabled = is_enabled
        # Seconds from one deletion to the next (`ttlMonitorSleepSecs`).
        self.sleep_s: int = 1
        # Whether a deletion is under way.
        self.purging = False
        # Numbers of collections whose expiry times are not all in the wheel; see `exec.write.expiry`.
        self.unarmed: set[int] = set()
        # How many tasks are filling the wheel with the expiry times of a collection.
        self.arming: int = 0

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
