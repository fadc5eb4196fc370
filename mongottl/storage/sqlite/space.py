"""The space of a database that is not used, and giving it back to the system.

Pages of what was deleted are used again before the file grows. `reclaim_some` gives them back to the system: it
moves a few pages from the end of the file into them, in a unit of work (SQLite's incremental vacuum), and the next
checkpoint that copies the whole log cuts the file. SQLite can do this only with tables of which page refers to which,
that it keeps from the beginning (auto_vacuum = INCREMENTAL). A database that was made without them has to be rewritten
once: `rewrite`.
"""

import sqlite3
from collections.abc import Callable
from typing import Final

from mongottl.storage.errors import EngineUnavailable
from mongottl.storage.interface import WriteUnitOfWork
from mongottl.storage.sqlite.connection import SqliteConnection, engine_error
from mongottl.storage.sqlite.database import INCREMENTAL, NO_VACUUM, PAGE_BYTES, connect
from mongottl.storage.sqlite.database_files import DatabaseFiles
from mongottl.storage.sqlite.directory import DataDirectory
from mongottl.storage.sqlite.maintenance import Maintenance
from mongottl.storage.sqlite.rewriting import check_room, rewrite_database

# A checkpoint is due to cut the database file when this much of it is given back, or at the end of giving back.
_CUT_BYTES: Final = 64 << 20


class UnusedSpace:
    """The unused space of one database in a data directory. reclaimed_bytes: what was given back since the opening."""

    def __init__(
        self,
        directory: DataDirectory,
        connection: SqliteConnection,
        files: DatabaseFiles,
        maintenance: Maintenance,
    ) -> None:
        self._directory = directory
        self._connection = connection
        self._files = files
        self._maintenance = maintenance
        self._vacuum_mode = NO_VACUUM
        self.reclaimed_bytes = 0

    def open(self) -> None:
        """Reads whether the database can give back pages."""
        self._vacuum_mode = int(self._connection.read_row("PRAGMA auto_vacuum", ())[0])

    @property
    def unused_bytes(self) -> int:
        return self._connection.unused_pages() * PAGE_BYTES

    @property
    def must_rewrite(self) -> bool:
        """Whether only `rewrite` can give space back."""
        return self._vacuum_mode != INCREMENTAL

    def reclaim_some(self, limit: int, keep_bytes: int, unit_of_work: Callable[[], WriteUnitOfWork]) -> int:
        """See `StorageEngine.reclaim_some`."""
        unused_bytes = self.unused_bytes
        pages = (unused_bytes - keep_bytes) // PAGE_BYTES
        # What a copy reads keeps the log from being ended, so it would only grow; on a full disk there is no room for
        # the pages that move.
        connection = self._connection
        if pages <= 0 or self.must_rewrite or self._maintenance.is_copied or connection.refusal or connection.disk_full:
            return 0
        with unit_of_work() as unit:
            for _ in range(min(pages, limit)):
                connection.write("PRAGMA incremental_vacuum(1)", ())
            left_bytes = self.unused_bytes
            unit.commit()
        self.reclaimed_bytes += unused_bytes - left_bytes
        if left_bytes < keep_bytes + PAGE_BYTES or self._files.surplus_bytes >= _CUT_BYTES:
            self._maintenance.cut_due = True
        return unused_bytes - left_bytes

    def rewrite(self, proceed: Callable[[], None]) -> int:
        """See `StorageEngine.rewrite`."""
        directory = self._directory
        room = self._maintenance.room
        connection = self._connection
        with self._maintenance.lock:
            if not self.must_rewrite:
                return 0  # another call has done it
            raw = connect(directory.database_path)
            try:
                before: int = raw.execute("PRAGMA page_count").fetchone()[0]
                free: int = raw.execute("PRAGMA freelist_count").fetchone()[0]
                check_room(room, (before - free) * PAGE_BYTES)
                with connection.begin_lock:
                    connection.occupied = "the database is being rewritten by compact"
                try:
                    rewrite_database(raw, directory.rewritten_path, proceed)
                finally:
                    connection.occupied = ""
                    self._maintenance.cut_due = True
                self._vacuum_mode = INCREMENTAL
                after: int = raw.execute("PRAGMA page_count").fetchone()[0]
            except sqlite3.Error as error:
                raise engine_error(error) from error
            except OSError as error:
                raise EngineUnavailable(f"the database cannot be rewritten: {error}") from error
            finally:
                raw.close()
        given_bytes = max(0, before - after) * PAGE_BYTES  # the tables of references add a page in a thousand
        self.reclaimed_bytes += given_bytes
        return given_bytes
