"""A database in a data directory while it is open: opening, durability, closing.

Durability. A commit appends to SQLite's write-ahead log without waiting for the disk: it survives any end of this
process, but not a power failure. `flush` waits for the log. It uses a file descriptor of its own, since it may run on
any thread and the connection may not. Flushing the log is enough: what a checkpoint has copied from the log to the
database file was synchronised there by it (synchronous = NORMAL does that, and synchronises the log before).

       commit ──────► log ──(checkpoint, in `maintain`)──► database
                       ▲
                       └── `flush` waits for the disk here

A flush covers all commits that were made before it began, so that one fsync serves all operations that wait. If the
fsync fails, all further writes are refused, since the operating system may have dropped the pages of the log and would
report success at the next attempt.
"""

import sqlite3
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from mongottl.storage.errors import DataDirectoryError, EngineUnavailable
from mongottl.storage.sqlite.connection import SqliteConnection, engine_error
from mongottl.storage.sqlite.database import close_opened, open_database, raise_format, unusable
from mongottl.storage.sqlite.database_files import DatabaseFiles
from mongottl.storage.sqlite.directory import FORMAT_VERSION, DataDirectory
from mongottl.storage.sqlite.disk_room import DiskRoom
from mongottl.storage.sqlite.durable_log import DurableLog, committed_length
from mongottl.storage.sqlite.idents import Idents
from mongottl.storage.sqlite.maintenance import Maintenance, refuse_writes
from mongottl.storage.sqlite.space import UnusedSpace
from mongottl.storage.sqlite.stored_log import commits_behind_damage
from mongottl.storage.unit_of_work import EngineUnitOfWork

# How long statements wait for the locks of another process after the opening: this server takes no such locks itself,
# and a wait blocks its event loop.
_BUSY_MS: Final = 50


class Folder:
    """A database in a data directory. directory: locked and checked. The rest as of `SqliteEngine`.

    durable_number: the last commit that is on disk; flushes: how many there were. lost_commits: of an earlier run,
    which SQLite does not find in the log any more: `commits_behind_damage`. Raises DataDirectoryError.
    """

    def __init__(
        self, directory: DataDirectory, checkpoint_bytes: int, long_log_bytes: int, sync: Callable[[int], None]
    ) -> None:
        self.directory: Final = directory
        self._sync = sync
        self._flush_lock = threading.Lock()
        self.durable_number = 0
        self.flushes = 0
        self.lost_commits = 0
        room = DiskRoom(directory.path)
        if room.free_bytes < room.reserve_bytes // 4:
            room.give_up_reserve()  # SQLite needs some room to open the database
        connection = SqliteConnection(open_database(directory), persistent=True)
        self.connection: Final = connection
        self.idents: Final = Idents(connection)
        self.files: Final = DatabaseFiles(directory)
        self._durable_log = DurableLog(directory.durable_path)
        self.maintenance: Final = Maintenance(
            directory, connection, self.files, room, checkpoint_bytes, long_log_bytes, sync
        )
        self.space: Final = UnusedSpace(directory, connection, self.files, self.maintenance)
        try:
            self._open()
        except BaseException as error:
            close_opened(directory, connection.raw)
            self._close_files()
            if isinstance(error, OSError) and not isinstance(error, DataDirectoryError):
                path = error.filename or directory.database_path
                raise DataDirectoryError(f"{path} cannot be used: {error.strerror or error}") from error
            # The last three come of values that are not of the type of their column.
            if isinstance(error, (EngineUnavailable, sqlite3.Error, TypeError, ValueError, struct.error)):
                raise unusable(directory.database_path, error) from error
            raise

    def _open(self) -> None:
        """Reads what is stored, and makes durable what an earlier process has committed."""
        directory = self.directory
        files = self.files
        self.idents.load()
        if directory.format < FORMAT_VERSION:
            raise_format(directory.database_path)
        self.space.open()
        files.open()
        if sys.platform != "win32":
            self.lost_commits = commits_behind_damage(directory.wal_path, files.frames)
        directory.sync()
        # An earlier process may have ended without waiting for its last commits. They count as durable from here on,
        # since commits are numbered anew.
        length = committed_length(files.shm)
        self._sync(files.wal)
        if length is None or length.frames == 0:
            self._durable_log.forget()  # of a log that another program has copied and removed
        else:
            self._durable_log.note(length, self.connection.committed_place)
        self.connection.raw.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")

    def flush(self) -> None:
        """See `StorageEngine.flush`."""
        connection = self.connection
        files = self.files
        with self._flush_lock:
            if files.wal < 0:  # closed
                return
            if connection.refusal:
                raise EngineUnavailable(connection.refusal)
            # A commit is counted when the system has all of it.
            number = connection.commit_count
            place = connection.committed_place
            length = committed_length(files.shm)
            try:
                self._sync(files.wal)
                files.check()
            except OSError as error:
                refuse_writes(connection, str(error))
                raise EngineUnavailable(f"the write-ahead log cannot be made durable: {error}") from error
            if length is not None:
                self._durable_log.note(length, place)
            self.durable_number = number
            self.flushes += 1

    def close(self) -> None:
        """Closes the database, once, and releases the directory. EngineUnavailable."""
        connection = self.connection
        maintenance = self.maintenance
        room = maintenance.room
        with maintenance.lock, self._flush_lock:
            try:
                if connection.has_unsettled and not connection.refusal:
                    # On a full disk they stay in the log, where the next start reads them.
                    with suppress(EngineUnavailable), EngineUnitOfWork(connection) as unit:
                        connection.settle_counters()
                        unit.commit()
                maintenance.close()
                if room.is_nearly_full:
                    room.give_up_reserve()
                if connection.refusal:
                    self._durable_log.forget()  # there is no waiting for a disk whose flush has failed
                else:
                    self._durable_log.remove()
                # The last connection to close runs a checkpoint, waits for the disk, and removes the log.
                connection.raw.close()
            except sqlite3.Error as error:
                raise engine_error(error) from error
            except OSError as error:
                raise EngineUnavailable(f"the note about the log cannot be removed: {error}") from error
            finally:
                self._close_files()
                if not self.directory.has_wal():
                    room.give_up_reserve()
                self.directory.release()

    def _close_files(self) -> None:
        """To be called after the connections are closed."""
        self.files.close()
        self._durable_log.close()
