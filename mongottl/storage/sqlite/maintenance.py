"""The upkeep of the write-ahead log, and of the room on the disk: checkpoints, the end of a long log, the reserve.

Checkpoints wait for the disk, so SQLite must not run them on the thread of the connection: `maintain` runs them on a
second connection, and only in the mode that blocks no writer (PASSIVE). If a checkpoint has copied the whole log, the
next write starts at the beginning of the log again, which costs half as much as extending it. That write waits for the
disk, because the log's new header must be there before anything after it; so `maintain` makes one itself, on its own
connection. Under steady writing the whole log is never copied. So `writers_should_wait` is true when the log
has grown long; the server then begins no unit of work during the next `maintain`, and continues with everything else.
Log and database are synchronised before that, so that it takes little time. If `maintain` is not called, the unit of
work that finds the log too long runs the checkpoint itself.

What is free on the disk, and what of it the log may take, is in `disk_room`.
"""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from mongottl.storage.errors import DiskFull, EngineUnavailable
from mongottl.storage.sqlite.connection import SqliteConnection, engine_error
from mongottl.storage.sqlite.database import PAGE_BYTES, connect
from mongottl.storage.sqlite.database_files import DatabaseFiles
from mongottl.storage.sqlite.directory import APPLICATION_ID, DataDirectory
from mongottl.storage.sqlite.disk_room import DiskRoom

# Large enough that a page that is changed often is copied only once.
CHECKPOINT_BYTES: Final = 32 << 20
# Writers wait a few ms when a log of this length is ended, which happens once in one or two million small documents.
LONG_LOG_BYTES: Final = 256 << 20
# A log of this length, for which `maintain` was not called, is copied by the unit of work that finds it.
_LOG_LIMIT_BYTES: Final = 1 << 30
# After how many commits a unit of work looks at the log's length and the room on the disk; at each while that is nearly
# full.
_COMMITS_PER_LOOK: Final = 16
# What the log's file keeps when the log begins anew, since extending it again costs as much as writing; nothing while
# the disk is nearly full.
_KEPT_LOG_BYTES: Final = 2 * CHECKPOINT_BYTES
# A checkpoint is repeated at once, so often at most, while it leaves more than this.
_CHECKPOINT_ROUNDS: Final = 4
_BYTES_LEFT: Final = 2 << 20
# A full disk: a log's file of this length is worth cutting off.
_LEAST_CUT_BYTES: Final = 64 * 1024


class Maintenance:
    """The upkeep of one database in a data directory.

    checkpoint_bytes, long_log_bytes, sync: as those of `SqliteEngine`. next_look: the number of commits from which on a
    unit of work calls `look`. lock: held during `maintain`, and by what it must not run beside. cut_due: whether the
    database file should be cut to its pages by the next call. checkpoints, ended_logs: how many there were.
    """

    def __init__(
        self,
        directory: DataDirectory,
        connection: SqliteConnection,
        files: DatabaseFiles,
        room: DiskRoom,
        checkpoint_bytes: int,
        long_log_bytes: int,
        sync: Callable[[int], None],
    ) -> None:
        self._directory = directory
        self._connection = connection
        self._files = files
        self.room: Final = room
        self._checkpoint_bytes = checkpoint_bytes
        self._long_log_bytes = long_log_bytes
        self._sync = sync
        self.next_look = 0
        self.lock = threading.Lock()
        self.cut_due = False
        self.checkpoints = 0
        self.ended_logs = 0
        self._closed = False
        # How many copies are being made. What they read keeps the log from being ended, so nobody needs to try.
        self._copies = 0
        self._copies_lock = threading.Lock()
        self._checkpointer: sqlite3.Connection | None = None
        # What the connection lets the log's file keep (`_KEPT_LOG_BYTES`).
        self._kept_bytes = -1

    def close(self) -> None:
        """Closes the second connection. With the lock held."""
        self._closed = True
        if self._checkpointer is not None:
            self._checkpointer.close()

    @property
    def is_copied(self) -> bool:
        """Whether a copy of the database is being made."""
        return self._copies > 0

    def begin_copy(self) -> None:
        with self._copies_lock:
            self._copies += 1

    def end_copy(self) -> None:
        with self._copies_lock:
            self._copies -= 1

    def look(self) -> None:
        """Looks at the room on the disk and the length of the log, before a unit of work begins."""
        connection = self._connection
        self.next_look = connection.commit_count + _COMMITS_PER_LOOK
        room = self.room
        room.measure()
        is_tight = room.is_nearly_full or connection.disk_full
        if is_tight:
            self.next_look = connection.commit_count
        if is_tight and not connection.disk_full and not self._has_room(room, room.reserve_bytes):
            connection.disk_full = True  # what is left is the reserve of what deletes
        if connection.disk_full:
            room.give_up_reserve()
        elif is_tight and room.wants_reserve and not self.lock.locked():
            room.take_reserve()
        kept_bytes = 0 if is_tight else _KEPT_LOG_BYTES
        if kept_bytes != self._kept_bytes:
            self._kept_bytes = kept_bytes
            connection.read(f"PRAGMA journal_size_limit = {kept_bytes}", ())
        log_bytes = self._files.log_bytes
        if is_tight and (log_bytes > room.ended_log_bytes(self._files.log_file_bytes) or self._outgrows(room)):
            # Waits for a checkpoint of another thread, too: commits that are made meanwhile may take all the room.
            with suppress(DiskFull):
                self.maintain()
        elif log_bytes > _LOG_LIMIT_BYTES and not self.lock.locked():
            self.maintain()
        connection.max_pages = 0 if not is_tight or connection.disk_full else self._most_pages(room)

    def _most_pages(self, room: DiskRoom) -> int:
        """How many pages the database may have after the next commit, so that half of the reserve is left: the log of
        the unit that adds them takes as much as they do."""
        added_bytes = max(0, self._available_bytes(room) - room.reserve_bytes // 2) // 2
        return self._files.database_pages + added_bytes // PAGE_BYTES

    def _has_room(self, room: DiskRoom, wanted_bytes: int) -> bool:
        """Whether `wanted_bytes` are free or unused in the database file, and enough of it outside for the log."""
        available_bytes = self._available_bytes(room)
        if available_bytes >= wanted_bytes:
            return True
        if available_bytes < room.reserve_bytes // 2:
            return False
        return available_bytes + self._connection.unused_pages() * PAGE_BYTES >= wanted_bytes

    def _available_bytes(self, room: DiskRoom) -> int:
        return room.available_bytes(self._files.log_file_bytes, self._files.growth_bytes)

    def _outgrows(self, room: DiskRoom) -> bool:
        """Whether the next checkpoint lets the database grow by more than the reserve has room for."""
        return self._files.growth_bytes > room.growth_bytes

    def require_room(self) -> None:
        """DiskFull while the disk is full, unless there is room again."""
        if self._connection.disk_full and not self._has_room_again():
            raise self._connection.no_room()

    def make_room(self) -> bool:
        """Gives up the reserve; whether there was one."""
        self._connection.disk_full = True
        return self.room.give_up_reserve()

    def _has_room_again(self) -> bool:
        room = self.room
        room.measure()
        if self._has_room(room, 2 * room.reserve_bytes):
            self._connection.disk_full = False
        return not self._connection.disk_full

    @property
    def is_due(self) -> bool:
        """Whether `maintain` should be called soon."""
        return self._log_due or self._room_due

    @property
    def writers_should_wait(self) -> bool:
        """Whether the log has grown long and cannot be ended while units of work keep beginning."""
        if self._copies or self._files.uncopied_bytes == 0:
            return False
        limit = min(self._long_log_bytes, self.room.ended_log_bytes(self._files.log_file_bytes))
        return self._files.log_bytes > limit

    @property
    def _log_due(self) -> bool:
        """Whether the log should be copied."""
        if self._copies:
            return False
        if self.cut_due:
            return True
        if self._connection.disk_full:
            limit = 0
        else:
            limit = min(self._checkpoint_bytes, self.room.copied_log_bytes(self._files.log_file_bytes))
        uncopied_bytes = self._files.uncopied_bytes
        if uncopied_bytes > limit or self.writers_should_wait:
            return True
        return uncopied_bytes > 0 and self._outgrows(self.room)

    @property
    def _room_due(self) -> bool:
        """Whether the reserve should be made, or the log be cut off."""
        room = self.room
        room.measure()
        if self._connection.disk_full:
            return room.held_bytes > 0 or (self._files.log_file_bytes > _LEAST_CUT_BYTES and not self._copies)
        return room.wants_reserve

    def maintain(self) -> None:
        """See `StorageEngine.maintain`."""
        with self.lock:
            if self._closed or self._connection.refusal or not self.is_due:
                return
            room = self.room
            try:
                if self._connection.disk_full:
                    # Its place is for what deletes, and for copying that.
                    room.give_up_reserve()
                if self._log_due or self._connection.disk_full:
                    try:
                        self._copy_log(room)
                    except sqlite3.Error as error:
                        if not isinstance(engine_error(error), DiskFull) or not room.give_up_reserve():
                            raise
                        self._copy_log(room)
                if not self._connection.disk_full:
                    room.take_reserve()
            except DiskFull:
                self._connection.disk_full = True
                raise
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorname", "") == "SQLITE_IOERR_FSYNC":
                    refuse_writes(self._connection, str(error))
                failure = engine_error(error)
                if isinstance(failure, DiskFull):
                    self._connection.disk_full = True
                raise failure from error
            except OSError as error:
                refuse_writes(self._connection, str(error))
                raise EngineUnavailable(f"the database cannot be made durable: {error}") from error

    def _copy_log(self, room: DiskRoom) -> None:
        """Copies the log to the database, and ends it if all of it was copied."""
        self.cut_due = False
        log_is_long = self.writers_should_wait
        is_tight = room.is_nearly_full or self._connection.disk_full
        if is_tight:
            room.measure()
            if self._files.growth_bytes > room.free_bytes + room.held_bytes:
                # A checkpoint that does not come to its end takes room, and ends no log.
                raise DiskFull("the disk has no room for a checkpoint")
        if self._checkpointer is None:
            self._checkpointer = connect(self._directory.database_path)
            self._checkpointer.execute("PRAGMA synchronous = NORMAL")
            self._checkpointer.execute("PRAGMA busy_timeout = 0")
        for _ in range(_CHECKPOINT_ROUNDS):
            self._checkpointer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            # What it returns does not count what was committed while it ran.
            if self._files.uncopied_bytes <= (0 if log_is_long or is_tight else _BYTES_LEFT):
                break
        if self.writers_should_wait:
            # Writers wait during the next call, so it should have little left to synchronise.
            self._sync(self._files.wal)
            self._sync(self._files.database)
        elif log_is_long:
            self.ended_logs += 1
        if self._files.uncopied_bytes == 0:
            self._restart_log(self._checkpointer, 0 if is_tight else _KEPT_LOG_BYTES)
        self.checkpoints += 1

    def _restart_log(self, checkpointer: sqlite3.Connection, kept_bytes: int) -> None:
        """Writes the first page of the database, unchanged, at the beginning of the log, which has been copied, and
        cuts its file off after `kept_bytes`.

        Units of work wait meanwhile before they begin. If one is open, the log is not restarted: it is about to become
        longer.
        """
        checkpointer.execute(f"PRAGMA journal_size_limit = {kept_bytes}").fetchone()
        with self._connection.begin_lock:
            try:
                checkpointer.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorname != "SQLITE_BUSY":
                    raise


def refuse_writes(connection: SqliteConnection, reason: str) -> None:
    """Has the connection refuse all further units of work, after the disk has failed."""
    connection.refusal = (
        f"an earlier flush failed ({reason}): what was written since the one before may be lost, and nothing is"
        " written any more; restart"
    )
