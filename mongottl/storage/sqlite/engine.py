"""The SQLite engine: its interface, which is made of these parts.

    folder          a database in a data directory: opening, durability, closing
    idents          record stores and sorted data by name, and the space of dropped ones
    connection      the unit of work, and the counters of record stores
    maintenance     checkpoints of the log, and the room on the disk
    space           unused pages, which are given back to the system
    database_files  the lengths of the database's files

Table `catalog` has the catalog entries.
"""

import sqlite3
from collections.abc import Callable
from urllib.parse import quote

from mongottl.storage.data_folder import sync_file
from mongottl.storage.interface import Isolation, StorageEngine, WriteUnitOfWork
from mongottl.storage.opening import storage_engine
from mongottl.storage.snapshot.isolation import PatchIsolation
from mongottl.storage.sqlite.connection import SqliteConnection, engine_error
from mongottl.storage.sqlite.copying import copy_database
from mongottl.storage.sqlite.database import NO_VACUUM, PAGE_BYTES, connect, create_schema
from mongottl.storage.sqlite.directory import DataDirectory, open_data_directory
from mongottl.storage.sqlite.folder import Folder
from mongottl.storage.sqlite.idents import Idents
from mongottl.storage.sqlite.maintenance import CHECKPOINT_BYTES, LONG_LOG_BYTES
from mongottl.storage.stores import RecordStore, SortedDataInterface
from mongottl.storage.unit_of_work import EngineUnitOfWork


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
        checkpoint_bytes: int = CHECKPOINT_BYTES,
        long_log_bytes: int = LONG_LOG_BYTES,
        sync: Callable[[int], None] = sync_file,
        read_only: sqlite3.Connection | None = None,
        without: frozenset[int] = frozenset(),
    ) -> None:
        self.name = "sqlite"
        self._isolation = PatchIsolation()
        self._closed = False
        self._folder: Folder | None = None
        if directory is not None:
            self._folder = Folder(directory, checkpoint_bytes, long_log_bytes, sync)
            self._connection = self._folder.connection
            self._idents = self._folder.idents
            return
        raw = read_only
        if raw is None:
            raw = connect(":memory:")
            create_schema(raw, NO_VACUUM)
        self._connection = SqliteConnection(raw, persistent=False)
        self._idents = Idents(self._connection)
        if read_only is not None:
            self._idents.load(without)

    def unit_of_work(self) -> WriteUnitOfWork:
        self._idents.saved = False
        connection = self._connection
        folder = self._folder
        if folder is not None:
            maintenance = folder.maintenance
            if (connection.commit_count >= maintenance.next_look or connection.disk_full) and not connection.in_unit():
                maintenance.look()
        return EngineUnitOfWork(connection)

    @property
    def isolation(self) -> Isolation:
        return self._isolation

    @property
    def disk_full(self) -> bool:
        return self._connection.disk_full

    def require_room(self) -> None:
        if self._connection.disk_full and self._folder is not None:
            self._folder.maintenance.require_room()

    def make_room(self) -> bool:
        return self._folder is not None and self._folder.maintenance.make_room()

    def set_commit_listener(self, listener: Callable[[], None]) -> None:
        self._connection.commit_listener = listener

    def set_pause(self, pause: Callable[[], None]) -> None:
        self._connection.pause = pause

    def idents(self) -> list[str]:
        return self._idents.names()

    def create_record_store(self, ident: str, is_log: bool = False) -> RecordStore:
        return self._idents.create_record_store(ident, is_log)

    def record_store(self, ident: str) -> RecordStore:
        return self._idents.records[ident]

    def create_sorted_data(self, ident: str, unique: bool, beside: str = "") -> SortedDataInterface:
        return self._idents.create_sorted_data(ident, unique)

    def sorted_data(self, ident: str, unique: bool) -> SortedDataInterface:
        data = self._idents.sorted[ident]
        if data.unique != unique:
            raise ValueError(f"{ident} was created with unique={data.unique}")
        return data

    def drop_ident(self, ident: str) -> None:
        self._idents.drop(ident)

    def drop_some(self, limit: int) -> bool:
        return self._idents.drop_some(limit, self.unit_of_work)

    def set_cache_bytes(self, most_bytes: int) -> None:
        self._connection.cache_budget.resize(most_bytes)

    def forget_cached(self, ident: str, after: int, count: int) -> None:
        cache = self._idents.records[ident].counters.cache
        if cache is not None:
            cache.forget_after(after, count)

    @property
    def stored_bytes(self) -> int:
        return 0 if self._folder is None else self._connection.pages() * PAGE_BYTES

    @property
    def unused_bytes(self) -> int:
        return 0 if self._folder is None else self._folder.space.unused_bytes

    @property
    def must_rewrite(self) -> bool:
        return self._folder is not None and self._folder.space.must_rewrite

    def reclaim_some(self, limit: int, keep_bytes: int = 0) -> int:
        return 0 if self._folder is None else self._folder.space.reclaim_some(limit, keep_bytes, self.unit_of_work)

    def rewrite(self, proceed: Callable[[], None]) -> int:
        assert self._folder is not None
        return self._folder.space.rewrite(proceed)

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
        return self._connection.commit_count if self._folder is None else self._folder.durable_number

    @property
    def failed(self) -> bool:
        return bool(self._connection.refusal)

    def flush(self) -> None:
        if self._folder is not None:
            self._folder.flush()

    @property
    def maintenance_due(self) -> bool:
        return self._folder is not None and self._folder.maintenance.is_due

    @property
    def writers_should_wait(self) -> bool:
        return self._folder is not None and self._folder.maintenance.writers_should_wait

    def maintain(self) -> None:
        if self._folder is not None:
            self._folder.maintenance.maintain()

    @property
    def persistent(self) -> bool:
        return self._folder is not None

    @property
    def folder(self) -> str | None:
        return None if self._folder is None else self._folder.directory.path

    @property
    def can_copy(self) -> bool:
        return self._folder is not None

    def copy_to(self, path: str, proceed: Callable[[], None]) -> None:
        folder = self._folder
        assert folder is not None
        folder.maintenance.begin_copy()
        try:
            source = connect(f"file:{quote(folder.directory.database_path)}?mode=ro", uri=True)
            try:
                copy_database(source, path, proceed)
            finally:
                source.close()
        except sqlite3.Error as error:
            raise engine_error(error) from error
        finally:
            folder.maintenance.end_copy()

    def statistics(self) -> dict[str, int]:
        connection = self._connection
        folder = self._folder
        return {
            "commits": connection.commit_count,
            "rollbacks": connection.rollback_count,
            "flushes": 0 if folder is None else folder.flushes,
            "checkpoints": 0 if folder is None else folder.maintenance.checkpoints,
            "long_logs_ended": 0 if folder is None else folder.maintenance.ended_logs,
            "idents": len(self._idents.records) + len(self._idents.sorted),
            "dropped_idents": self._idents.dropped_count,
            "database_bytes": connection.pages() * PAGE_BYTES,
            "free_bytes": connection.unused_pages() * PAGE_BYTES,
            "reclaimed_bytes": 0 if folder is None else folder.space.reclaimed_bytes,
            "log_bytes": 0 if folder is None else folder.files.log_bytes,
            "reserve_bytes": 0 if folder is None else folder.maintenance.room.held_bytes,
            "disk_full": int(connection.disk_full),
            "lost_commits": 0 if folder is None else folder.lost_commits,
            **connection.cache_budget.statistics(),
        }

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._connection.in_unit():
            self._connection.rollback()
        if self._folder is not None:
            self._folder.close()
            return
        try:
            self._connection.raw.close()
        except sqlite3.Error as error:
            raise engine_error(error) from error


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
