"""The data directory of the SQLite engine: its owner, its lock, and the format of the database in it.

    mongottl.sqlite3        the database; its header has the format
    mongottl.sqlite3-wal    the commits since the last checkpoint; -shm is SQLite's index of it
    mongottl.durable        how much of the log is on disk (`durable_log`), until the server stops
    mongottl.lock           locked while a server uses the directory, as is the directory itself, since this file can
                            be removed; holds that server's process id
    mongottl-copy-…         a copy of the database that is being made, for a backup or by its rewriting

A directory that cannot be used is refused with a DataDirectoryError and left as it was. What is checked costs the same
for any size of the database: the header and the file's length. This module runs no SQL.
"""

import os
import sys
from typing import Final

from mongottl.storage.data_folder import COPY_PREFIX, DATABASE_NAME, sync_directory
from mongottl.storage.errors import DataDirectoryError

LOCK_NAME: Final = "mongottl.lock"
DURABLE_NAME: Final = "mongottl.durable"

# "mttl": marks the database as ours (SQLite's application_id).
APPLICATION_ID: Final = 0x6D74746C
# Raised whenever an older mongottl could not read what a newer one writes (SQLite's user_version).
#   2: rows of records have a checksum, which a server that does not know it would leave as it was at an update.
#   3: checksums of most rows are tails (`storage.checksums`), which a server that does not know them takes for damage.
FORMAT_VERSION: Final = 3
FIRST_FORMAT_WITH_SUMS: Final = 2
FIRST_FORMAT_WITH_TAILS: Final = 3
# The oldest format that can be read; the opening raises it.
OLDEST_FORMAT: Final = 1

# Files by which a mongod's directory is known.
_MONGOD_FILES: Final = frozenset({"WiredTiger", "WiredTiger.wt", "WiredTiger.lock", "storage.bson", "sizeStorer.wt"})

# Offsets in SQLite's 100-byte header, all big-endian (sqlite.org/fileformat.html, section 1.3).
_MAGIC: Final = b"SQLite format 3\x00"
_PAGE_SIZE_AT: Final = 16
_CHANGE_COUNTER_AT: Final = 24
_PAGE_COUNT_AT: Final = 28
_USER_VERSION_AT: Final = 60
_APPLICATION_ID_AT: Final = 68
_VALID_FOR_AT: Final = 92
_HEADER_LENGTH: Final = 100


class DataDirectory:
    """A data directory that this process has locked. `is_new`: it has no database yet."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.database_path = os.path.join(path, DATABASE_NAME)
        self.wal_path = self.database_path + "-wal"
        self.shm_path = self.database_path + "-shm"
        self.durable_path = os.path.join(path, DURABLE_NAME)
        self.new_database_path = self.database_path + ".new"
        self.rewritten_path = os.path.join(path, f"{COPY_PREFIX}rewritten")
        self.is_new = False
        # As the header of the database file has it.
        self.format = FORMAT_VERSION
        self._lock_path = os.path.join(path, LOCK_NAME)
        self._lock_file = -1
        # The directory itself, locked; -1 where the file system or Windows does not lock directories.
        self._locked_folder = -1

    def has_wal(self) -> bool:
        """Whether there are commits that the database file does not hold yet, as after a crash."""
        try:
            return os.path.getsize(self.wal_path) > 0
        except OSError:
            return False

    def release(self) -> None:
        """Releases the directory. The lock file is kept, since removing it could remove that of the next server."""
        if self._lock_file >= 0:
            _unlock(self._lock_file)  # a process that was forked from this one may have the file open, too
            os.close(self._lock_file)
            self._lock_file = -1
        if self._locked_folder >= 0:
            _unlock(self._locked_folder)
            os.close(self._locked_folder)
            self._locked_folder = -1

    def sync(self) -> None:
        """Makes the directory's entries durable."""
        sync_directory(self.path)

    def lock_for_reading(self) -> None:
        """Checks the directory, which must have a database, and holds off servers without writing anything: other
        readers may come, but no server can lock the directory. Raises DataDirectoryError."""
        try:
            if os.path.exists(self._lock_path):
                self._lock_file = os.open(self._lock_path, os.O_RDONLY)
                if not _lock(self._lock_file, shared=True):
                    raise self._in_use()
            self._lock_folder(shared=True)
            self._check()
        except BaseException as error:
            self.release()
            if isinstance(error, OSError) and not isinstance(error, DataDirectoryError):
                raise DataDirectoryError(f"data directory {self.path} cannot be read: {error}") from error
            raise
        if self.is_new:
            self.release()
            raise DataDirectoryError(f"data directory {self.path} holds no data of mongottl")

    def _lock_folder(self, shared: bool = False) -> None:
        """Locks the directory itself, beside the lock file, which somebody may have removed and a second server would
        make anew. Nothing is locked where directories cannot be: on Windows, which does not remove a file that is open,
        and on some network file systems."""
        if sys.platform == "win32":
            return
        try:
            self._locked_folder = os.open(self.path, os.O_RDONLY)
            locked = _lock(self._locked_folder, shared)
        except OSError:
            return
        if not locked:
            raise self._in_use()

    def _in_use(self) -> DataDirectoryError:
        holder = ""
        if self._lock_file >= 0:
            os.lseek(self._lock_file, 0, os.SEEK_SET)
            holder = os.read(self._lock_file, 32).decode("ascii", "replace").strip()
        suffix = f" (process {holder})" if holder.isdigit() else ""
        return DataDirectoryError(f"data directory {self.path} is in use by another server{suffix}")

    def lock_and_check(self) -> None:
        created = not os.path.exists(self._lock_path)
        try:
            self._lock_file = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise DataDirectoryError(f"data directory {self.path} cannot be written: {error.strerror}") from error
        try:
            if not _lock(self._lock_file):
                created = False
                raise self._in_use()
            self._lock_folder()
            self._check()
        except BaseException as error:
            if created and sys.platform != "win32":
                os.unlink(self._lock_path)
            self.release()
            if isinstance(error, OSError) and not isinstance(error, DataDirectoryError):
                raise DataDirectoryError(f"data directory {self.path} cannot be used: {error}") from error
            raise
        for name in os.listdir(self.path):
            if name.startswith(COPY_PREFIX):
                os.unlink(os.path.join(self.path, name))
        os.ftruncate(self._lock_file, 0)
        os.lseek(self._lock_file, 0, os.SEEK_SET)
        os.write(self._lock_file, str(os.getpid()).encode("ascii"))

    def _check(self) -> None:
        names = set(os.listdir(self.path))
        if DATABASE_NAME in names:
            self._check_header()
            return
        if not names.isdisjoint(_MONGOD_FILES):
            raise DataDirectoryError(f"data directory {self.path} holds a mongod's files, which mongottl cannot read")
        if self.has_wal():
            raise DataDirectoryError(
                f"data directory {self.path} is damaged: {DATABASE_NAME}-wal is there without {DATABASE_NAME}"
            )
        self.is_new = True

    def _check_header(self) -> None:
        # Closing a file drops every lock that this process has on it, SQLite's included: so this is done before SQLite
        # opens the database, and never by a second opening in the same process, which has no lock.
        with open(self.database_path, "rb") as file:
            header = file.read(_HEADER_LENGTH)
            length = file.seek(0, os.SEEK_END)
        path = self.database_path
        if len(header) < _HEADER_LENGTH or not header.startswith(_MAGIC):
            raise DataDirectoryError(f"{path} is damaged or not a database: its header cannot be read")
        if _number(header, _APPLICATION_ID_AT) != APPLICATION_ID:
            raise DataDirectoryError(f"{path} is a database, but not mongottl's")
        version = _number(header, _USER_VERSION_AT)
        if not OLDEST_FORMAT <= version <= FORMAT_VERSION:
            raise DataDirectoryError(
                f"{path} has format {version}, written by a {'newer' if version > FORMAT_VERSION else 'older'} "
                f"mongottl; this one reads formats {OLDEST_FORMAT} to {FORMAT_VERSION}"
            )
        self.format = version
        page_size = int.from_bytes(header[_PAGE_SIZE_AT : _PAGE_SIZE_AT + 2], "big")
        if page_size == 1:
            page_size = 65536
        # While the log has commits, a checkpoint may have been interrupted, and SQLite will finish it.
        counted = _number(header, _CHANGE_COUNTER_AT) == _number(header, _VALID_FOR_AT)
        if counted and not self.has_wal() and length < _number(header, _PAGE_COUNT_AT) * page_size:
            raise DataDirectoryError(
                f"{path} is damaged: {length} bytes are left of {_number(header, _PAGE_COUNT_AT)} pages of {page_size}"
            )


def open_data_directory(path: str) -> DataDirectory:
    """Locks the directory, which is created when it does not exist, and checks what is in it.

    Raises DataDirectoryError.
    """
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except FileExistsError as error:
        raise DataDirectoryError(f"data directory {path} is not a directory") from error
    except OSError as error:
        raise DataDirectoryError(f"data directory {path} cannot be created: {error.strerror}") from error
    directory = DataDirectory(os.path.abspath(path))
    directory.lock_and_check()
    return directory


def _number(header: bytes, offset: int) -> int:
    return int.from_bytes(header[offset : offset + 4], "big")


def _lock(descriptor: int, shared: bool = False) -> bool:
    """Takes the lock without waiting; False if another holds it. The system frees it when its process ends.

    shared: whether others may have it at the same time that want it shared as well (not on Windows).
    """
    if sys.platform == "win32":
        import msvcrt

        try:
            # A byte far after the process id, which others must be able to read.
            os.lseek(descriptor, 1 << 20, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unlock(descriptor: int) -> None:
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_UN)
