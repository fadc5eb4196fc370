"""The SQLite engine: idents and catalog entries, durability, and maintenance of the log.

Tables: `stores` has a row for each ident (and for each dropped one whose space is not freed yet), whose id names its
table: r<id> for a record store, k<id> for sorted data. So no name in SQL contains a client's name, and the name of a
dropped ident can be used again at once. `catalog` has the catalog entries.

Durability. A commit appends to SQLite's write-ahead log without waiting for the disk: it survives any end of this
process, but not a power failure. `flush` waits for the log. It uses a file descriptor of its own, since it may run on
any thread and the connection may not. Flushing the log is enough: what a checkpoint has copied from the log to the
database file was synchronised there by it (synchronous = NORMAL does that, and synchronises the log before).

       commit ──────► log ──(checkpoint, in `maintain`)──► database
                       ▲
                       └── `flush` waits for the disk here

A flush covers all commits that were made before it began, so that one fsync serves all operations that wait. If the
fsync fails, the engine refuses all further writes, since the operating system may have dropped the pages of the log and
would report success at the next attempt.

Checkpoints wait for the disk, so SQLite must not run them on the thread of the connection: `maintain` runs them on a
second connection, and only in the mode that blocks no writer (PASSIVE). If a checkpoint has copied the whole log, the
next write starts at the beginning of the log again, which costs half as much as extending it. That write waits for the
disk, because the log's new header must be there before anything after it; so `maintain` makes one itself, on its own
connection. Under steady writing the whole log is never copied. So `writers_should_wait` is true when the log
has grown long; the server then begins no unit of work during the next `maintain`, and continues with everything else.
Log and database are synchronised before that, so that it takes little time. If `maintain` is not called, the unit of
work that finds the log too long runs the checkpoint itself.

Space. Pages of what was deleted are used again before the file grows. `reclaim_some` gives them back to the system: it
moves a few pages from the end of the file into them, in a unit of work (SQLite's incremental vacuum), and the next
checkpoint that copies the whole log cuts the file. SQLite can do this only with tables of which page refers to which,
that it keeps from the beginning (auto_vacuum = INCREMENTAL). A database that was made without them has to be rewritten
once: `rewrite`.
"""

import os
import sqlite3
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from urllib.parse import quote

from mongottl.storage.data_folder import sync_file
from mongottl.storage.interface import (
    DataDirectoryError,
    DiskFull,
    EngineUnavailable,
    RecordStore,
    SortedDataInterface,
    StorageEngine,
    WriteUnitOfWork,
)
from mongottl.storage.opening import storage_engine
from mongottl.storage.sqlite.connection import SqliteConnection, StoreCounters, engine_error
from mongottl.storage.sqlite.copying import copy_database
from mongottl.storage.sqlite.database import (
    INCREMENTAL,
    LOG,
    NO_VACUUM,
    PAGE_BYTES,
    RECORDS,
    SHM_FRAMES_AT,
    SORTED,
    SORTED_UNIQUE,
    close_opened,
    connect,
    create_schema,
    open_database,
    raise_format,
    unusable,
)
from mongottl.storage.sqlite.directory import APPLICATION_ID, FORMAT_VERSION, DataDirectory, open_data_directory
from mongottl.storage.sqlite.disk_room import DiskRoom
from mongottl.storage.sqlite.durable_log import DurableLog, committed_length
from mongottl.storage.sqlite.record_cache import RecordCache
from mongottl.storage.sqlite.records import SqliteLog, SqliteRecordStore, create_record_table
from mongottl.storage.sqlite.rewriting import check_room, rewrite_database
from mongottl.storage.sqlite.sorted_data import SqliteSortedData, create_sorted_table
from mongottl.storage.sqlite.stored_log import commits_behind_damage
from mongottl.storage.unit_of_work import EngineUnitOfWork

# Large enough that a page that is changed often is copied only once.
_CHECKPOINT_BYTES: Final = 32 << 20
# Writers wait a few ms when a log of this length is ended, which happens once in one or two million small documents.
_LONG_LOG_BYTES: Final = 256 << 20
# A log of this length, for which `maintain` was not called, is copied by the unit of work that finds it.
_LOG_LIMIT_BYTES: Final = 1 << 30
# After how many commits a unit of work looks at the log's length and the room on the disk; at each while that is nearly
# full.
_COMMITS_PER_LOOK: Final = 16
# What the log's file keeps when the log begins anew, since extending it again costs as much as writing; nothing while
# the disk is nearly full.
_KEPT_LOG_BYTES: Final = 2 * _CHECKPOINT_BYTES
# A checkpoint is repeated at once, so often at most, while it leaves more than this.
_CHECKPOINT_ROUNDS: Final = 4
_BYTES_LEFT: Final = 2 << 20
# How long statements wait for the locks of another process after the opening: this server takes no such locks itself,
# and a wait blocks its event loop.
_BUSY_MS: Final = 50
# Places in SQLite's index of the log, -shm, of numbers as `SHM_FRAMES_AT`: the pages of the database with the committed
# frames, and how many of the frames the database has. A frame is a page and 24 bytes.
_SHM_PAGES_AT: Final = 20
_SHM_COPIED_AT: Final = 96
_FRAME_BYTES: Final = PAGE_BYTES + 24

# Stores and sorted data up to this size are freed at once rather than by `drop_some`.
_SMALL_ROWS: Final = 1000
_SMALL_BYTES: Final = 1 << 20
# A checkpoint is due to cut the database file when this much of it is given back, or at the end of giving back.
_CUT_BYTES: Final = 64 << 20
# A full disk: a log's file of this length is worth cutting off.
_LEAST_CUT_BYTES: Final = 64 * 1024
# A row up to this length counts as one in `drop_some`; longer ones occupy pages of their own and count as more.
_DROP_ROW_BYTES: Final = 512


class _Dropped:
    """A dropped ident whose rows still exist. row_weight: what one of them counts in the limit of `drop_some`. cache:
    those of its records that are kept in memory, or None."""

    def __init__(self, store_id: int, kind: int, row_weight: int, cache: RecordCache | None = None) -> None:
        self.store_id = store_id
        self.kind = kind
        self.row_weight = row_weight
        self.cache = cache


class SqliteEngine(StorageEngine):
    """The engine over SQLite. directory: locked and checked; None keeps everything in memory.

    checkpoint_bytes: maintenance is due when more of the log has not been copied to the database.
    long_log_bytes: a log of this length is ended even if writers have to wait for it.
    sync: waits until what was written to a file is on disk; given its descriptor, OSError if it cannot be.
    read_only: a connection through which a stored database is only read (`stored_state`), without a directory; closed
    with the engine. without: ids of stores whose tables are missing there.
    Raises DataDirectoryError.
    """

    def __init__(
        self,
        directory: DataDirectory | None,
        checkpoint_bytes: int = _CHECKPOINT_BYTES,
        long_log_bytes: int = _LONG_LOG_BYTES,
        sync: Callable[[int], None] = sync_file,
        read_only: sqlite3.Connection | None = None,
        without: frozenset[int] = frozenset(),
    ) -> None:
        self.name = "sqlite"
        self._sync = sync
        self._directory = directory
        self._checkpoint_bytes = checkpoint_bytes
        self._long_log_bytes = long_log_bytes
        # Descriptors beside SQLite's own: log and database to synchronise them, the log's index to read its length.
        self._wal_file = -1
        self._database_file = -1
        self._shm_file = -1
        self._closed = False
        self._durable_number = 0
        self._flush_lock = threading.Lock()
        self._maintain_lock = threading.Lock()
        # How many copies are being made. What they read keeps the log from being ended, so nobody needs to try.
        self._copies = 0
        self._copies_lock = threading.Lock()
        self._checkpointer: sqlite3.Connection | None = None
        self._durable_log = None if directory is None else DurableLog(directory.durable_path)
        self._flush_count = 0
        self._checkpoint_count = 0
        self._ended_count = 0
        # Of an earlier run, which SQLite does not find in the log any more: `commits_behind_damage`.
        self._lost_commits = 0
        self._reclaimed_bytes = 0
        # Whether the database file should be cut to its pages by the next maintenance.
        self._cut_due = False
        self._vacuum_mode = NO_VACUUM
        self._next_look = 0
        self._room: DiskRoom | None = None
        # What the connection lets the log's file keep (`_KEPT_LOG_BYTES`).
        self._kept_bytes = -1
        self._next_store_id = 1
        self._records: dict[str, SqliteRecordStore] = {}
        self._sorted: dict[str, SqliteSortedData] = {}
        self._dropped: list[_Dropped] = []
        # Whether the open unit of work has changed the three above, and a rollback will restore them.
        self._saved = False
        if read_only is not None:
            self._connection = SqliteConnection(read_only, persistent=False)
            self._load(without)
        elif directory is None:
            raw = connect(":memory:")
            create_schema(raw, NO_VACUUM)
            self._connection = SqliteConnection(raw, persistent=False)
        else:
            self._room = DiskRoom(directory.path)
            if self._room.free_bytes < self._room.reserve_bytes // 4:
                self._room.give_up_reserve()  # SQLite needs some room to open the database
            self._connection = SqliteConnection(open_database(directory), persistent=True)
            try:
                self._load()
                if directory.format < FORMAT_VERSION:
                    raise_format(directory.database_path)
                self._vacuum_mode = int(self._connection.read_row("PRAGMA auto_vacuum", ())[0])
                self._wal_file = os.open(directory.wal_path, os.O_RDWR)
                self._database_file = os.open(directory.database_path, os.O_RDWR)
                self._shm_file = os.open(directory.shm_path, os.O_RDONLY)
                if sys.platform != "win32":
                    frames = self._shm_number(SHM_FRAMES_AT)
                    self._lost_commits = commits_behind_damage(directory.wal_path, frames)
                directory.sync()
                # An earlier process may have ended without waiting for its last commits. They count as durable from
                # here on, since commits are numbered anew.
                length = None if self._durable_log is None else committed_length(self._shm_file)
                sync(self._wal_file)
                if self._durable_log is not None:
                    if length is None or length.frames == 0:
                        self._durable_log.forget()  # of a log that another program has copied and removed
                    else:
                        self._durable_log.note(length, self._connection.committed_place)
                self._connection.raw.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            except BaseException as error:
                close_opened(directory, self._connection.raw)
                self._close_files()
                if isinstance(error, OSError) and not isinstance(error, DataDirectoryError):
                    path = error.filename or directory.database_path
                    raise DataDirectoryError(f"{path} cannot be used: {error.strerror or error}") from error
                # The last three come of values that are not of the type of their column.
                if isinstance(error, (EngineUnavailable, sqlite3.Error, TypeError, ValueError, struct.error)):
                    raise unusable(directory.database_path, error) from error
                raise

    def unit_of_work(self) -> WriteUnitOfWork:
        self._saved = False
        connection = self._connection
        if (connection.commit_count >= self._next_look or connection.disk_full) and not connection.in_unit():
            self._look()
        return EngineUnitOfWork(connection)

    def _look(self) -> None:
        """Looks at the room on the disk and the length of the log, before a unit of work begins."""
        connection = self._connection
        self._next_look = connection.commit_count + _COMMITS_PER_LOOK
        room = self._room
        if room is None:
            return
        room.measure()
        is_tight = room.is_nearly_full or connection.disk_full
        if is_tight:
            self._next_look = connection.commit_count
        if is_tight and not connection.disk_full and not self._has_room(room, room.reserve_bytes):
            connection.disk_full = True  # what is left is the reserve of what deletes
        if connection.disk_full:
            room.give_up_reserve()
        elif is_tight and room.wants_reserve and not self._maintain_lock.locked():
            room.take_reserve()
        kept_bytes = 0 if is_tight else _KEPT_LOG_BYTES
        if kept_bytes != self._kept_bytes:
            self._kept_bytes = kept_bytes
            connection.read(f"PRAGMA journal_size_limit = {kept_bytes}", ())
        log_bytes = self._log_bytes()
        if is_tight and (log_bytes > room.ended_log_bytes(self._log_file_bytes()) or self._outgrows(room)):
            # Waits for a checkpoint of another thread, too: commits that are made meanwhile may take all the room.
            with suppress(DiskFull):
                self.maintain()
        elif log_bytes > _LOG_LIMIT_BYTES and not self._maintain_lock.locked():
            self.maintain()
        connection.max_pages = 0 if not is_tight or connection.disk_full else self._most_pages(room)

    def _most_pages(self, room: DiskRoom) -> int:
        """How many pages the database may have after the next commit, so that half of the reserve is left: the log of
        the unit that adds them takes as much as they do."""
        has_now = max(self._shm_number(_SHM_PAGES_AT), os.fstat(self._database_file).st_size // PAGE_BYTES)
        return has_now + max(0, self._available_bytes(room) - room.reserve_bytes // 2) // 2 // PAGE_BYTES

    def _has_room(self, room: DiskRoom, wanted_bytes: int) -> bool:
        """Whether `wanted_bytes` are free or unused in the database file, and enough of it outside for the log."""
        available_bytes = self._available_bytes(room)
        if available_bytes >= wanted_bytes:
            return True
        return available_bytes >= room.reserve_bytes // 2 and available_bytes + self._free_bytes() >= wanted_bytes

    def _free_bytes(self) -> int:
        """The pages of the database that hold nothing."""
        return int(self._connection.read_row("PRAGMA freelist_count", ())[0]) * PAGE_BYTES

    def _available_bytes(self, room: DiskRoom) -> int:
        return room.available_bytes(self._log_file_bytes(), self._growth_bytes())

    def _outgrows(self, room: DiskRoom) -> bool:
        """Whether the next checkpoint lets the database grow by more than the reserve has room for."""
        return self._growth_bytes() > room.growth_bytes

    def _growth_bytes(self) -> int:
        """By how much the next checkpoint lets the database file grow."""
        return max(0, self._shm_number(_SHM_PAGES_AT) * PAGE_BYTES - os.fstat(self._database_file).st_size)

    @property
    def disk_full(self) -> bool:
        return self._connection.disk_full

    def require_room(self) -> None:
        if self._connection.disk_full and not self._has_room_again():
            raise self._connection.no_room()

    def make_room(self) -> bool:
        room = self._room
        if room is None:
            return False
        self._connection.disk_full = True
        return room.give_up_reserve()

    def _has_room_again(self) -> bool:
        room = self._room
        if room is not None:
            room.measure()
            if self._has_room(room, 2 * room.reserve_bytes):
                self._connection.disk_full = False
        return not self._connection.disk_full

    def set_commit_listener(self, listener: Callable[[], None]) -> None:
        self._connection.commit_listener = listener

    def idents(self) -> list[str]:
        return [*self._records, *self._sorted]

    def create_record_store(self, ident: str, is_log: bool = False) -> RecordStore:
        self._save()
        connection = self._connection
        store_id = self._new_store(ident, LOG if is_log else RECORDS)
        create_record_table(connection, store_id, is_log)
        counters = StoreCounters(store_id, 0, 0, 1)
        store = SqliteLog(connection, ident, counters) if is_log else SqliteRecordStore(connection, ident, counters)
        if is_log:
            connection.settle_counters()  # only those of the newest log are read
        self._records[ident] = store
        return store

    def record_store(self, ident: str) -> RecordStore:
        return self._records[ident]

    def create_sorted_data(self, ident: str, unique: bool) -> SortedDataInterface:
        self._save()
        store_id = self._new_store(ident, SORTED_UNIQUE if unique else SORTED)
        create_sorted_table(self._connection, store_id, unique)
        data = SqliteSortedData(self._connection, ident, store_id, unique)
        self._sorted[ident] = data
        return data

    def sorted_data(self, ident: str, unique: bool) -> SortedDataInterface:
        data = self._sorted[ident]
        if data.unique != unique:
            raise ValueError(f"{ident} was created with unique={data.unique}")
        return data

    def drop_ident(self, ident: str) -> None:
        self._save()
        store = self._records.pop(ident, None)
        if store is not None:
            if isinstance(store, SqliteLog):
                self._connection.settle_counters()
            counters = store.counters
            count = counters.record_count
            average = counters.size_bytes // count if count else 0
            dropped = _Dropped(counters.store_id, RECORDS, 1 + average // _DROP_ROW_BYTES, counters.cache)
            small = count <= _SMALL_ROWS and counters.size_bytes <= _SMALL_BYTES
        else:
            data = self._sorted.pop(ident)
            dropped = _Dropped(data.store_id, SORTED_UNIQUE if data.unique else SORTED, 1)
            small = not self._connection.read(f"SELECT 1 FROM {data.table} LIMIT 1 OFFSET ?", (_SMALL_ROWS,))
        if small:
            if dropped.cache is not None:
                dropped.cache.clear()
            self._drop_table(dropped)
        else:
            self._connection.write("UPDATE stores SET ident = NULL WHERE id = ?", (dropped.store_id,))
            self._dropped.append(dropped)

    def drop_some(self, limit: int) -> bool:
        if not self._dropped:
            return False
        dropped = self._dropped[-1]
        rows = max(1, limit // dropped.row_weight)
        if dropped.cache is not None and dropped.cache.clear_some(rows):
            return True
        if dropped.kind == RECORDS:
            table, key = f"r{dropped.store_id}", "rid"
        else:
            table, key = f"k{dropped.store_id}", "(key, rid)"
        columns = key.strip("()")
        with self.unit_of_work() as unit:
            # Finds no row when fewer are left, and then deletes none.
            deleted = self._connection.write(
                f"DELETE FROM {table} WHERE {key} <= "
                f"(SELECT {columns} FROM {table} ORDER BY {columns} LIMIT 1 OFFSET ?)",
                (rows - 1,),
            )
            if deleted == 0:
                self._save()
                self._drop_table(dropped)
                self._dropped.pop()
            unit.commit()
        return bool(self._dropped)

    def set_cache_bytes(self, most_bytes: int) -> None:
        self._connection.cache_budget.resize(most_bytes)

    def forget_cached(self, ident: str, after: int, count: int) -> None:
        cache = self._records[ident].counters.cache
        if cache is not None:
            cache.forget_after(after, count)

    @property
    def stored_bytes(self) -> int:
        if self._directory is None:
            return 0
        return int(self._connection.read_row("PRAGMA page_count", ())[0]) * PAGE_BYTES

    @property
    def unused_bytes(self) -> int:
        return 0 if self._directory is None else self._free_bytes()

    @property
    def must_rewrite(self) -> bool:
        return self._directory is not None and self._vacuum_mode != INCREMENTAL

    def reclaim_some(self, limit: int, keep_bytes: int = 0) -> int:
        unused_bytes = self.unused_bytes
        pages = (unused_bytes - keep_bytes) // PAGE_BYTES
        # What a copy reads keeps the log from being ended, so it would only grow; on a full disk there is no room for
        # the pages that move.
        if pages <= 0 or self.must_rewrite or self._copies or self.failed or self._connection.disk_full:
            return 0
        with self.unit_of_work() as unit:
            for _ in range(min(pages, limit)):
                self._connection.write("PRAGMA incremental_vacuum(1)", ())
            left_bytes = self._free_bytes()
            unit.commit()
        self._reclaimed_bytes += unused_bytes - left_bytes
        if left_bytes < keep_bytes + PAGE_BYTES or self._surplus_bytes() >= _CUT_BYTES:
            self._cut_due = True
        return unused_bytes - left_bytes

    def _surplus_bytes(self) -> int:
        """By how much the next checkpoint lets the database file shrink."""
        pages = self._shm_number(_SHM_PAGES_AT)
        return max(0, os.fstat(self._database_file).st_size - pages * PAGE_BYTES) if pages else 0

    def rewrite(self, proceed: Callable[[], None]) -> int:
        directory = self._directory
        room = self._room
        assert directory is not None and room is not None
        connection = self._connection
        with self._maintain_lock:
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
                    self._cut_due = True
                self._vacuum_mode = INCREMENTAL
                after: int = raw.execute("PRAGMA page_count").fetchone()[0]
            except sqlite3.Error as error:
                raise engine_error(error) from error
            except OSError as error:
                raise EngineUnavailable(f"the database cannot be rewritten: {error}") from error
            finally:
                raw.close()
        given_bytes = max(0, before - after) * PAGE_BYTES  # the tables of references add a page in a thousand
        self._reclaimed_bytes += given_bytes
        return given_bytes

    def clear(self) -> None:
        for ident in self.idents():
            self.drop_ident(ident)
        self._connection.write("DELETE FROM catalog", ())

    def catalog_entries(self) -> list[tuple[str, bytes]]:
        entries: list[tuple[str, bytes]] = self._connection.read("SELECT key, value FROM catalog ORDER BY key", ())
        return entries

    def catalog_entry(self, key: str) -> bytes | None:
        rows: list[tuple[bytes]] = self._connection.read("SELECT value FROM catalog WHERE key = ?", (key,))
        return rows[0][0] if rows else None

    def put_catalog_entry(self, key: str, value: bytes) -> None:
        self._connection.write("INSERT OR REPLACE INTO catalog VALUES (?, ?)", (key, value))

    def delete_catalog_entry(self, key: str) -> None:
        self._connection.write("DELETE FROM catalog WHERE key = ?", (key,))

    @property
    def committed_number(self) -> int:
        return self._connection.commit_count

    @property
    def durable_number(self) -> int:
        return self._connection.commit_count if self._directory is None else self._durable_number

    @property
    def failed(self) -> bool:
        return bool(self._connection.refusal)

    def flush(self) -> None:
        with self._flush_lock:
            if self._wal_file < 0:
                return
            if self._connection.refusal:
                raise EngineUnavailable(self._connection.refusal)
            # A commit is counted when the system has all of it.
            number = self._connection.commit_count
            place = self._connection.committed_place
            length = committed_length(self._shm_file)
            try:
                self._sync(self._wal_file)
                self._check_files()
            except OSError as error:
                self._refuse_writes(str(error))
                raise EngineUnavailable(f"the write-ahead log cannot be made durable: {error}") from error
            if length is not None and self._durable_log is not None:
                self._durable_log.note(length, place)
            self._durable_number = number
            self._flush_count += 1

    def _check_files(self) -> None:
        """OSError if the database or its log is not in the directory any more: what is written to them is lost with the
        end of this process."""
        directory = self._directory
        assert directory is not None
        for path, descriptor in (
            (directory.database_path, self._database_file),
            (directory.wal_path, self._wal_file),
        ):
            try:
                kept = os.path.samestat(os.stat(path), os.fstat(descriptor))
            except FileNotFoundError:
                raise OSError(f"{path} was removed") from None
            if not kept:
                raise OSError(f"{path} was replaced")

    def _refuse_writes(self, reason: str) -> None:
        self._connection.refusal = (
            f"an earlier flush failed ({reason}): what was written since the one before may be lost, and nothing is"
            " written any more; restart"
        )

    @property
    def maintenance_due(self) -> bool:
        return self._log_due or self._room_due

    @property
    def writers_should_wait(self) -> bool:
        if self._copies or self._uncopied_bytes() == 0:
            return False
        room = self._room
        limit = self._long_log_bytes
        if room is not None:
            limit = min(limit, room.ended_log_bytes(self._log_file_bytes()))
        return self._log_bytes() > limit

    @property
    def _log_due(self) -> bool:
        """Whether the log should be copied."""
        if self._copies:
            return False
        if self._cut_due:
            return True
        limit = self._checkpoint_bytes
        room = self._room
        if self._connection.disk_full:
            limit = 0
        elif room is not None:
            limit = min(limit, room.copied_log_bytes(self._log_file_bytes()))
        uncopied_bytes = self._uncopied_bytes()
        if uncopied_bytes > limit or self.writers_should_wait:
            return True
        return uncopied_bytes > 0 and room is not None and self._outgrows(room)

    @property
    def _room_due(self) -> bool:
        """Whether the reserve should be made, or the log be cut off."""
        room = self._room
        if room is None:
            return False
        room.measure()
        if self._connection.disk_full:
            return room.held_bytes > 0 or (self._log_file_bytes() > _LEAST_CUT_BYTES and not self._copies)
        return room.wants_reserve

    def maintain(self) -> None:
        with self._maintain_lock:
            directory = self._directory
            if directory is None or self._closed or self.failed or not self.maintenance_due:
                return
            room = self._room
            assert room is not None
            try:
                if self._connection.disk_full:
                    # Its place is for what deletes, and for copying that.
                    room.give_up_reserve()
                if self._log_due or self._connection.disk_full:
                    try:
                        self._copy_log(directory, room)
                    except sqlite3.Error as error:
                        if not isinstance(engine_error(error), DiskFull) or not room.give_up_reserve():
                            raise
                        self._copy_log(directory, room)
                if not self._connection.disk_full:
                    room.take_reserve()
            except DiskFull:
                self._connection.disk_full = True
                raise
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorname", "") == "SQLITE_IOERR_FSYNC":
                    self._refuse_writes(str(error))
                failure = engine_error(error)
                if isinstance(failure, DiskFull):
                    self._connection.disk_full = True
                raise failure from error
            except OSError as error:
                self._refuse_writes(str(error))
                raise EngineUnavailable(f"the database cannot be made durable: {error}") from error

    def _copy_log(self, directory: DataDirectory, room: DiskRoom) -> None:
        """Copies the log to the database, and ends it if all of it was copied."""
        self._cut_due = False
        log_is_long = self.writers_should_wait
        is_tight = room.is_nearly_full or self._connection.disk_full
        if is_tight:
            room.measure()
            if self._growth_bytes() > room.free_bytes + room.held_bytes:
                # A checkpoint that does not come to its end takes room, and ends no log.
                raise DiskFull("the disk has no room for a checkpoint")
        if self._checkpointer is None:
            self._checkpointer = connect(directory.database_path)
            self._checkpointer.execute("PRAGMA synchronous = NORMAL")
            self._checkpointer.execute("PRAGMA busy_timeout = 0")
        for _ in range(_CHECKPOINT_ROUNDS):
            self._checkpointer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            # What it returns does not count what was committed while it ran.
            if self._uncopied_bytes() <= (0 if log_is_long or is_tight else _BYTES_LEFT):
                break
        if self.writers_should_wait:
            # Writers wait during the next call, so it should have little left to synchronise.
            self._sync(self._wal_file)
            self._sync(self._database_file)
        elif log_is_long:
            self._ended_count += 1
        if self._uncopied_bytes() == 0:
            self._restart_log(self._checkpointer, 0 if is_tight else _KEPT_LOG_BYTES)
        self._checkpoint_count += 1

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

    @property
    def persistent(self) -> bool:
        return self._directory is not None

    @property
    def folder(self) -> str | None:
        return None if self._directory is None else self._directory.path

    @property
    def can_copy(self) -> bool:
        return self._directory is not None

    def copy_to(self, path: str, proceed: Callable[[], None]) -> None:
        directory = self._directory
        assert directory is not None
        with self._copies_lock:
            self._copies += 1
        try:
            source = connect(f"file:{quote(directory.database_path)}?mode=ro", uri=True)
            try:
                copy_database(source, path, proceed)
            finally:
                source.close()
        except sqlite3.Error as error:
            raise engine_error(error) from error
        finally:
            with self._copies_lock:
                self._copies -= 1

    def statistics(self) -> dict[str, int]:
        read = self._connection.read_row
        return {
            "commits": self._connection.commit_count,
            "rollbacks": self._connection.rollback_count,
            "flushes": self._flush_count,
            "checkpoints": self._checkpoint_count,
            "long_logs_ended": self._ended_count,
            "idents": len(self._records) + len(self._sorted),
            "dropped_idents": len(self._dropped),
            "database_bytes": int(read("PRAGMA page_count", ())[0]) * PAGE_BYTES,
            "free_bytes": self._free_bytes(),
            "reclaimed_bytes": self._reclaimed_bytes,
            "log_bytes": self._log_bytes(),
            "reserve_bytes": 0 if self._room is None else self._room.held_bytes,
            "disk_full": int(self._connection.disk_full),
            "lost_commits": self._lost_commits,
            **self._connection.cache_budget.statistics(),
        }

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._connection.in_unit():
            self._connection.rollback()
        with self._maintain_lock, self._flush_lock:
            try:
                if self._connection.has_unsettled and not self.failed:
                    # On a full disk they stay in the log, where the next start reads them.
                    with suppress(EngineUnavailable), EngineUnitOfWork(self._connection) as unit:
                        self._connection.settle_counters()
                        unit.commit()
                if self._checkpointer is not None:
                    self._checkpointer.close()
                if self._room is not None and self._room.is_nearly_full:
                    self._room.give_up_reserve()
                if self._durable_log is not None:
                    if self.failed:
                        self._durable_log.forget()  # there is no waiting for a disk whose flush has failed
                    else:
                        self._durable_log.remove()
                # The last connection to close runs a checkpoint, waits for the disk, and removes the log.
                self._connection.raw.close()
            except sqlite3.Error as error:
                raise engine_error(error) from error
            except OSError as error:
                raise EngineUnavailable(f"the note about the log cannot be removed: {error}") from error
            finally:
                self._close_files()
                if self._directory is not None:
                    if self._room is not None and not self._directory.has_wal():
                        self._room.give_up_reserve()
                    self._directory.release()

    def _close_files(self) -> None:
        """To be called after the connections are closed: closing a file drops SQLite's locks on it in this process."""
        for descriptor in (self._wal_file, self._database_file, self._shm_file):
            if descriptor >= 0:
                os.close(descriptor)
        self._wal_file = -1
        self._database_file = -1
        self._shm_file = -1
        if self._durable_log is not None:
            self._durable_log.close()

    def _log_bytes(self) -> int:
        """The length of the log in use, which may be less than the file's."""
        return self._shm_number(SHM_FRAMES_AT) * _FRAME_BYTES

    def _log_file_bytes(self) -> int:
        return 0 if self._wal_file < 0 else os.fstat(self._wal_file).st_size

    def _uncopied_bytes(self) -> int:
        """The length of the part of the log that is not copied to the database file yet."""
        return (self._shm_number(SHM_FRAMES_AT) - self._shm_number(_SHM_COPIED_AT)) * _FRAME_BYTES

    def _shm_number(self, offset: int) -> int:
        if self._shm_file < 0:
            return 0
        if sys.platform == "win32":  # has no pread; the file's length only makes `maintain` look more often
            return os.fstat(self._wal_file).st_size // _FRAME_BYTES if offset == SHM_FRAMES_AT else 0
        return int.from_bytes(os.pread(self._shm_file, 4, offset), sys.byteorder)

    def _load(self, without: frozenset[int] = frozenset()) -> None:
        """Makes the objects of all idents, and the list of those whose space is to be freed.

        without: ids of stores to leave out.
        """
        connection = self._connection
        tables = {row[0] for row in connection.read("SELECT name FROM sqlite_schema WHERE type = 'table'", ())}
        connection.read("SELECT key FROM catalog LIMIT 1", ())
        rows = connection.read("SELECT id, ident, kind, record_count, size_bytes, next_record_id FROM stores", ())
        newest: SqliteLog | None = None
        for store_id, ident, kind, record_count, size_bytes, next_record_id in rows:
            self._next_store_id = max(self._next_store_id, store_id + 1)
            if store_id in without:
                continue
            if (f"r{store_id}" if kind in (RECORDS, LOG) else f"k{store_id}") not in tables:
                raise EngineUnavailable(f"the table of {ident} is missing")
            if ident is None:
                average = size_bytes // record_count if record_count else 0
                dropped_as = RECORDS if kind == LOG else kind
                self._dropped.append(_Dropped(store_id, dropped_as, 1 + average // _DROP_ROW_BYTES))
            elif kind == LOG:
                counters = StoreCounters(store_id, record_count, size_bytes, next_record_id)
                log = SqliteLog(connection, ident, counters)
                self._records[ident] = log
                if newest is None or store_id > newest.counters.store_id:
                    newest = log
            elif kind == RECORDS:
                counters = StoreCounters(store_id, record_count, size_bytes, next_record_id)
                self._records[ident] = SqliteRecordStore(connection, ident, counters)
            else:
                self._sorted[ident] = SqliteSortedData(connection, ident, store_id, kind == SORTED_UNIQUE)
        if newest is not None:
            self._load_counters(newest)
        if newest is not None and connection.persistent:
            connection.committed_place = (newest.counters.store_id, newest.last_record_id())

    def _load_counters(self, log: SqliteLog) -> None:
        """Corrects the counters of all stores by what the log has after the place up to which they were settled."""
        try:
            ahead = log.counters_from(log.counters.next_record_id)
        except (ValueError, struct.error):
            ahead = self._counted()
        stores = {store.counters.store_id: store.counters for store in self._records.values()}
        for store_id, (record_count, size_bytes, next_record_id) in ahead.items():
            # An id in the log is not given again, though its store may have been dropped since.
            self._next_store_id = max(self._next_store_id, store_id + 1)
            counters = stores.get(store_id)
            if counters is not None:
                counters.set(record_count, size_bytes, next_record_id)
                self._connection.note_ahead(counters)

    def _counted(self) -> dict[int, tuple[int, int, int]]:
        """The counters of all stores, counted, since those in the log are damaged; it takes as long as a scan of all
        records."""
        found: dict[int, tuple[int, int, int]] = {}
        for store in self._records.values():
            sql = f"SELECT count(*), coalesce(sum(length(doc)), 0), coalesce(max(rid), 0) FROM {store.table}"
            count, size, last = self._connection.read_row(sql, ())
            counters = store.counters
            found[counters.store_id] = (count, size, max(last + 1, counters.next_record_id))
        return found

    def _save(self) -> None:
        """To be called before each change of idents: at the first one in a unit, registers that a rollback undoes
        it."""
        if not self._saved:
            self._saved = True
            records = dict(self._records)
            sorted_data = dict(self._sorted)
            dropped = list(self._dropped)

            def restore() -> None:
                self._records = records
                self._sorted = sorted_data
                self._dropped = dropped

            self._connection.on_rollback(restore)

    def _new_store(self, ident: str, kind: int) -> int:
        if ident in self._records or ident in self._sorted:
            raise ValueError(f"ident {ident} exists")
        store_id = self._next_store_id
        self._next_store_id += 1
        self._connection.write("INSERT INTO stores VALUES (?, ?, ?, 0, 0, 1)", (store_id, ident, kind))
        return store_id

    def _drop_table(self, dropped: _Dropped) -> None:
        prefix = "r" if dropped.kind == RECORDS else "k"
        self._connection.write(f"DROP TABLE {prefix}{dropped.store_id}", ())
        self._connection.write("DELETE FROM stores WHERE id = ?", (dropped.store_id,))


@storage_engine("sqlite")
def open_sqlite(address: str) -> StorageEngine:
    """Opens the SQLite engine over a folder, or in memory without one. Raises DataDirectoryError."""
    if not address:
        return SqliteEngine(None)
    directory = open_data_directory(address)
    try:
        return SqliteEngine(directory)
    except BaseException:
        directory.release()
        raise
