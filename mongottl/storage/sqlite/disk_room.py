"""The room on the disk of a data folder: what is free, the share of it that the log may take, and the reserve.

    ┌────────────┬─────┬─────────┬────────────┐
    │ database   │ log │ reserve │ free       │        the disk
    └────────────┴─────┴─────────┴────────────┘

A commit goes to the log, and a checkpoint copies it to the database, which may have to grow for that. So a log that
takes all the room can neither grow nor be copied, and then nothing can be written any more, deletions included. Two
things prevent it: the log may take a part of the room only, and is then copied and cut off; and the reserve, a file
without content, is removed when the disk is full, so that there is room for a checkpoint and for what frees space.

A clean stop removes the reserve as well: a folder that no server uses needs none.
"""

import contextlib
import os
import shutil
import sys
from typing import Final

RESERVE_NAME: Final = "mongottl.reserve"
# The reserve takes this part of a small disk, and no more than this of others: by that much the database may grow until
# a checkpoint is due.
_DISK_PART: Final = 16
_MAX_RESERVE_BYTES: Final = 32 << 20
# A smaller reserve would not even take the pages of one deletion and their checkpoint.
_LEAST_RESERVE_BYTES: Final = 256 * 1024
# The disk is nearly full when less is free than this number of reserves.
_NEARLY_FULL: Final = 16
# The parts of the room that the log may take before it is copied, and before it is ended.
_COPIED_PART: Final = 4
_ENDED_PART: Final = 2
# The log may always become this long, or each commit would copy it.
_LEAST_LOG_BYTES: Final = 128 * 1024
_PIECE: Final = bytes(1 << 20)


class DiskRoom:
    """The room on the disk of one data folder.

    free_bytes: as of the last `measure`. reserve_bytes: how large the reserve should be; held_bytes: how large it is.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._path = os.path.join(directory, RESERVE_NAME)
        self.free_bytes = 0
        self.reserve_bytes = _MAX_RESERVE_BYTES
        self.held_bytes = 0
        # Whether the file system has refused the reserve, so that nobody tries again before the disk was full.
        self._refused = False
        with contextlib.suppress(OSError):
            self.held_bytes = os.path.getsize(self._path)
        self.measure()

    def measure(self) -> None:
        """Looks how much is free; takes about two microseconds."""
        try:
            if sys.platform == "win32":
                usage = shutil.disk_usage(self._directory)
                total_bytes, free_bytes = usage.total, usage.free
            else:
                found = os.statvfs(self._directory)
                total_bytes, free_bytes = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
        except OSError:
            return  # the folder is gone; writes will fail
        self.free_bytes = free_bytes
        self.reserve_bytes = min(_MAX_RESERVE_BYTES, total_bytes // _DISK_PART)

    @property
    def is_nearly_full(self) -> bool:
        return self.free_bytes < _NEARLY_FULL * self.reserve_bytes

    @property
    def wants_reserve(self) -> bool:
        """Whether a larger reserve should and can be made."""
        return (
            not self._refused
            and self.held_bytes < self.reserve_bytes // 2
            and self._possible_reserve() >= max(2 * self.held_bytes, _LEAST_RESERVE_BYTES)
        )

    def _possible_reserve(self) -> int:
        """At most half of the room, since a log must have some, too."""
        return min(self.reserve_bytes, (self.free_bytes + self.held_bytes) // 2)

    @property
    def growth_bytes(self) -> int:
        """By how much the database may grow by the next checkpoint, so that this finds room in the
        reserve together with what one more unit of work adds."""
        reserve_bytes = self.held_bytes or self.reserve_bytes  # the same before it is made
        return reserve_bytes // 2

    def copied_log_bytes(self, log_bytes: int) -> int:
        """The length of the log at which a checkpoint is due. log_bytes: what its file takes now."""
        return max((self.free_bytes + log_bytes) // _COPIED_PART, _LEAST_LOG_BYTES)

    def ended_log_bytes(self, log_bytes: int) -> int:
        """The length of the log at which it is ended, even if writers have to wait."""
        return max((self.free_bytes + log_bytes) // _ENDED_PART, 2 * _LEAST_LOG_BYTES)

    def available_bytes(self, log_bytes: int, growth_bytes: int) -> int:
        """What is free without the reserve, once the log is copied and cut off. log_bytes: what its file takes now.
        growth_bytes: by how much the database file grows then."""
        return self.free_bytes + self.held_bytes + log_bytes - growth_bytes

    def take_reserve(self) -> None:
        """Makes the reserve, or a larger one, if there is room for it."""
        if not self.wants_reserve:
            return
        wanted = self._possible_reserve()
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                _allocate(descriptor, wanted)
            finally:
                os.close(descriptor)
            self.held_bytes = wanted
        except OSError:
            self.give_up_reserve()
            self._refused = True
        self.measure()

    def give_up_reserve(self) -> bool:
        """Removes the reserve; False if there is none."""
        self._refused = False
        self.held_bytes = 0
        try:
            os.unlink(self._path)
        except OSError:
            return False
        self.measure()
        return True


def _allocate(descriptor: int, size_bytes: int) -> None:
    """Gives a file its room on the disk; OSError if there is none."""
    if sys.platform == "linux":
        os.posix_fallocate(descriptor, 0, size_bytes)
    else:
        left = size_bytes
        while left > 0:
            left -= os.write(descriptor, _PIECE[:left])
