"""The files of an open database, beside SQLite's own descriptors of them: their lengths, and whether they are there.

The log's lengths are read from its index, -shm, where SQLite keeps them for all its connections (walformat.html,
section 2, on sqlite.org).
"""

import os
import sys
from typing import Final

from mongottl.storage.sqlite.database import PAGE_BYTES, SHM_FRAMES_AT
from mongottl.storage.sqlite.directory import DataDirectory

# Places in the log's index of numbers as `SHM_FRAMES_AT`: the pages of the database with the committed frames, and how
# many of the frames the database has. A frame is a page and 24 bytes.
_SHM_PAGES_AT: Final = 20
_SHM_COPIED_AT: Final = 96
_FRAME_BYTES: Final = PAGE_BYTES + 24


class DatabaseFiles:
    """The open files of the database in a data directory. wal, database, shm: descriptors of the log, the database, to
    synchronise them, and the log's index; -1 while they are not open."""

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self.wal = -1
        self.database = -1
        self.shm = -1

    def open(self) -> None:
        """Opens the files, once SQLite has made them. OSError; `close` is then to be called all the same."""
        self.wal = os.open(self._directory.wal_path, os.O_RDWR)
        self.database = os.open(self._directory.database_path, os.O_RDWR)
        self.shm = os.open(self._directory.shm_path, os.O_RDONLY)

    def close(self) -> None:
        """To be called after the connections are closed: closing a file drops SQLite's locks on it in this process."""
        for descriptor in (self.wal, self.database, self.shm):
            if descriptor >= 0:
                os.close(descriptor)
        self.wal = -1
        self.database = -1
        self.shm = -1

    def check(self) -> None:
        """OSError if the database or its log is not in the directory any more: what is written to them is lost with the
        end of this process."""
        directory = self._directory
        for path, descriptor in ((directory.database_path, self.database), (directory.wal_path, self.wal)):
            try:
                kept = os.path.samestat(os.stat(path), os.fstat(descriptor))
            except FileNotFoundError:
                raise OSError(f"{path} was removed") from None
            if not kept:
                raise OSError(f"{path} was replaced")

    @property
    def frames(self) -> int:
        """How many frames the log has."""
        return self._shm_number(SHM_FRAMES_AT)

    @property
    def log_bytes(self) -> int:
        """The length of the log in use, which may be less than the file's."""
        return self._shm_number(SHM_FRAMES_AT) * _FRAME_BYTES

    @property
    def log_file_bytes(self) -> int:
        return 0 if self.wal < 0 else os.fstat(self.wal).st_size

    @property
    def uncopied_bytes(self) -> int:
        """The length of the part of the log that is not copied to the database file yet."""
        return (self._shm_number(SHM_FRAMES_AT) - self._shm_number(_SHM_COPIED_AT)) * _FRAME_BYTES

    @property
    def database_pages(self) -> int:
        """The pages of the database, at least those of its file: it may be longer before the log is copied."""
        return max(self._shm_number(_SHM_PAGES_AT), os.fstat(self.database).st_size // PAGE_BYTES)

    @property
    def growth_bytes(self) -> int:
        """By how much the next checkpoint lets the database file grow."""
        return max(0, self._shm_number(_SHM_PAGES_AT) * PAGE_BYTES - os.fstat(self.database).st_size)

    @property
    def surplus_bytes(self) -> int:
        """By how much the next checkpoint lets the database file shrink."""
        pages = self._shm_number(_SHM_PAGES_AT)
        return max(0, os.fstat(self.database).st_size - pages * PAGE_BYTES) if pages else 0

    def _shm_number(self, offset: int) -> int:
        if self.shm < 0:
            return 0
        if sys.platform == "win32":  # has no pread; the file's length only makes `maintain` look more often
            return os.fstat(self.wal).st_size // _FRAME_BYTES if offset == SHM_FRAMES_AT else 0
        return int.from_bytes(os.pread(self.shm, 4, offset), sys.byteorder)
