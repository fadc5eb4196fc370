"""The database file: how it is made, opened, and brought to the present format, and whether its log is whole.

A new one is made under another name and renamed, so that a complete database exists or none. An existing one is read
before anything could write to it: what is damaged, or lacks commits that were on disk, is refused as it was found.
"""

import os
import sqlite3
import sys
from contextlib import suppress
from typing import Final
from urllib.parse import quote

from mongottl.storage.data_folder import create_private_file, sync_file
from mongottl.storage.errors import DataDirectoryError, EngineUnavailable
from mongottl.storage.sqlite.directory import APPLICATION_ID, FORMAT_VERSION, DataDirectory
from mongottl.storage.sqlite.durable_log import NO_PLACE, DurableLog, Place, loss, noted_state
from mongottl.storage.sqlite.records import SUM_COLUMN
from mongottl.storage.stores import MAX_RECORD_ID

# `stores.kind`
RECORDS: Final = 0
SORTED: Final = 1
SORTED_UNIQUE: Final = 2
LOG: Final = 3

# Pages of 4 KiB: larger ones make a single insert slower in proportion, since the log takes whole pages.
PAGE_BYTES: Final = 4096
# The page cache; a data directory may be far larger. What was read is kept as records (`record_cache`).
_CACHE_KIB: Final = 16 * 1024
# Prepared statements kept, a few KiB each: about ten are in use for each busy collection.
_CACHED_STATEMENTS: Final = 1024
# How long opening waits for the locks of another process.
_BUSY_S: Final = 10.0
# SQLite's auto_vacuum: whether, and how, it can give back pages in the middle of the file.
NO_VACUUM: Final = 0
INCREMENTAL: Final = 2
# The place in SQLite's index of the log, -shm, of a number of 4 bytes in the machine's order: the committed frames
# (sqlite.org/walformat.html, section 2).
SHM_FRAMES_AT: Final = 16

# Beginnings of the names of SQLite's errors that mean no damage: of permissions, locks, room, memory, the disk.
_NO_DAMAGE: Final = (
    "SQLITE_AUTH",
    "SQLITE_BUSY",
    "SQLITE_CANTOPEN",
    "SQLITE_FULL",
    "SQLITE_IOERR",
    "SQLITE_LOCKED",
    "SQLITE_NOMEM",
    "SQLITE_PERM",
    "SQLITE_READONLY",
)

_SCHEMA: Final = (
    "CREATE TABLE stores (id INTEGER PRIMARY KEY, ident TEXT UNIQUE, kind INTEGER NOT NULL, "
    "record_count INTEGER NOT NULL, size_bytes INTEGER NOT NULL, next_record_id INTEGER NOT NULL)",
    "CREATE TABLE catalog (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
)


def _adapt_bytes() -> None:
    """Registers an adapter that gives bytes as they are, unless the process has another one.

    The sqlite3 module asks for an adapter of each parameter of type bytes. If there is none, it goes on to look for two
    methods, which takes it as long as all the rest of binding the parameter (measured: 0.3 µs).
    """
    if (bytes, sqlite3.PrepareProtocol) not in sqlite3.adapters:
        sqlite3.register_adapter(bytes, bytes.__bytes__)


def connect(path: str, uri: bool = False) -> sqlite3.Connection:
    """A connection without implicit transactions, which several threads may use, one at a time."""
    _adapt_bytes()
    raw = sqlite3.connect(
        path,
        timeout=_BUSY_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_CACHED_STATEMENTS,
        uri=uri,
    )
    try:
        raw.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        raw.execute("PRAGMA temp_store = MEMORY")
        raw.execute("PRAGMA mmap_size = 0")
        # On macOS, SQLite's own fsync does not survive a power failure otherwise.
        raw.execute("PRAGMA checkpoint_fullfsync = ON")
        # Some systems build SQLite to overwrite deleted rows with zeros, which we have no use for.
        raw.execute("PRAGMA secure_delete = OFF")
    except sqlite3.Error:
        raw.close()
        raise
    return raw


def create_schema(raw: sqlite3.Connection, vacuum_mode: int) -> None:
    raw.execute(f"PRAGMA auto_vacuum = {vacuum_mode}")
    raw.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    raw.execute("BEGIN")
    for statement in _SCHEMA:
        raw.execute(statement)
    raw.execute("COMMIT")


def _create_database(directory: DataDirectory) -> None:
    """Makes an empty database under another name and renames it, so that a complete database exists or none."""
    path = directory.new_database_path
    for leftover in (path, path + "-journal", path + "-wal", path + "-shm"):
        if os.path.exists(leftover):
            os.unlink(leftover)
    create_private_file(path)
    raw = connect(path)
    try:
        raw.execute("PRAGMA synchronous = OFF")
        create_schema(raw, INCREMENTAL)
        raw.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        raw.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        raw.execute("PRAGMA journal_mode = WAL").fetchone()
    finally:
        raw.close()
    descriptor = os.open(path, os.O_RDWR)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)
    os.replace(path, directory.database_path)
    directory.sync()


def open_database(directory: DataDirectory) -> sqlite3.Connection:
    path = directory.database_path
    try:
        if directory.is_new:
            _create_database(directory)
        elif directory.has_wal():
            # Closing a database that turns out to be damaged would move its log into it; a reader cannot.
            _check_read_only(directory)
        elif noted_state(directory.durable_path) is not None:
            _check_loss(directory, 0, newest_place_of_file(directory.database_path))
        raw = connect(path)
    except OSError as error:
        raise DataDirectoryError(f"{path} cannot be opened: {error}") from error
    except sqlite3.Error as error:
        raise unusable(path, error) from error
    try:
        raw.execute("PRAGMA synchronous = NORMAL")
        raw.execute("PRAGMA wal_autocheckpoint = 0")
        mode = raw.execute("PRAGMA journal_mode").fetchone()[0]
        # Opens the log, which is made when it is not there.
        raw.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.Error as error:
        close_opened(directory, raw)
        raise unusable(path, error) from error
    if mode != "wal":
        close_opened(directory, raw)
        raise DataDirectoryError(f"{path} is no longer in write-ahead mode: another program has changed it")
    return raw


def close_opened(directory: DataDirectory, raw: sqlite3.Connection) -> None:
    """Closes the connection of an opening that has failed, which may copy the log to the database and remove it."""
    with suppress(OSError):
        DurableLog(directory.durable_path).remove()
    raw.close()


def unusable(path: str, error: Exception) -> DataDirectoryError:
    """What to raise for an error at the opening: whether the data is damaged, or cannot be read or written, which
    damages nothing."""
    of_sqlite = error.__cause__ if isinstance(error, EngineUnavailable) else error
    name = getattr(of_sqlite, "sqlite_errorname", None) or ""
    verb = "cannot be opened" if name.startswith(_NO_DAMAGE) else "is damaged"
    return DataDirectoryError(f"{path} {verb}: {error}")


def _check_read_only(directory: DataDirectory) -> None:
    """Raises sqlite3.DatabaseError if the schema or our two tables cannot be read, DataDirectoryError if commits that
    were on disk are missing."""
    raw = connect(f"file:{quote(directory.database_path)}?mode=ro", uri=True)
    try:
        raw.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        raw.execute("SELECT * FROM stores").fetchall()
        raw.execute("SELECT key FROM catalog").fetchall()
        if noted_state(directory.durable_path) is not None:
            _check_loss(directory, read_frames(directory), newest_place(raw))
    finally:
        raw.close()


def _check_loss(directory: DataDirectory, frames: int, newest: Place) -> None:
    """DataDirectoryError if less of the log is there than was on disk. For the parameters see `loss`."""
    noted = noted_state(directory.durable_path)
    found = "" if noted is None else loss(noted, directory.wal_path, frames, newest)
    if found:
        raise DataDirectoryError(
            f"{directory.wal_path} is damaged or was cut, so that commits that were acknowledged as durable cannot be"
            f" read: {found}. Restore a backup, or remove {directory.durable_path} to start without these commits"
        )


def read_frames(directory: DataDirectory) -> int:
    """How many frames of the log SQLite reads. To be called when a connection has read from the database. OSError."""
    with open(directory.shm_path, "rb") as shm:
        return int.from_bytes(shm.read(SHM_FRAMES_AT + 4)[SHM_FRAMES_AT:], sys.byteorder)


def newest_place_of_file(path: str) -> Place:
    """`newest_place` of a database without a log. sqlite3.Error."""
    raw = connect(f"file:{quote(path)}?mode=ro&immutable=1", uri=True)
    try:
        return newest_place(raw)
    finally:
        raw.close()


def newest_place(raw: sqlite3.Connection) -> Place:
    """The place of the last row of a log in a database; sqlite3.Error if it cannot be read.

    Ids of stores ascend, so a log that was dropped comes before all stores that are newer.
    """
    (log_id,) = raw.execute("SELECT max(id) FROM stores WHERE kind = ?", (LOG,)).fetchone()
    if log_id is None:
        (store_id,) = raw.execute("SELECT max(id) FROM stores").fetchone()
        return NO_PLACE if store_id is None else (store_id, MAX_RECORD_ID)
    (record_id,) = raw.execute(f"SELECT max(rid) FROM r{int(log_id)}").fetchone()
    return log_id, record_id or 0


def raise_format(path: str) -> None:
    """Brings a database of format 1 or 2 to the present one: its tables of records get the column of checksums, NULL in
    all rows, unless they have it. Rows stay as they are, and get the checksums of this format when they are written.

    The definitions of all tables are changed at once, as SQLite's documentation of ALTER TABLE describes (section 8):
    it reads them all again for each ALTER TABLE, which takes a minute for a thousand collections. The new number has to
    be in the database file, where an older server looks for it: so this is repeated for a database
    whose log alone has it. sqlite3.Error, DataDirectoryError.
    """
    raw = connect(path)
    try:
        raw.execute("PRAGMA synchronous = NORMAL")
        raw.execute("PRAGMA writable_schema = ON")
        raw.execute("BEGIN IMMEDIATE")
        version: int = raw.execute("PRAGMA schema_version").fetchone()[0]
        raw.execute(
            "UPDATE sqlite_schema SET sql = substr(sql, 1, length(sql) - 1) || ? "
            "WHERE type = 'table' AND name GLOB 'r[0-9]*' AND sql NOT LIKE '%' || ?",
            (SUM_COLUMN, SUM_COLUMN),
        )
        raw.execute(f"PRAGMA schema_version = {version + 1}")
        raw.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        raw.execute("COMMIT")
        raw.execute("PRAGMA writable_schema = OFF")
        (busy, _, _) = raw.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
        if busy:
            raise DataDirectoryError(f"{path} is in use by another program, so its format cannot be raised")
    finally:
        raw.close()
