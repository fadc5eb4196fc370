"""A folder with data: what its database is called, and how its files are made private and durable.

What else the engine keeps in the folder is its own (`sqlite.directory`). This module runs no SQL.
"""

import errno
import os
import stat
import sys
from typing import Final

DATABASE_NAME: Final = "mongottl.sqlite3"
# Begins the names of copies of the database that are being made; the next server removes what a killed one leaves.
COPY_PREFIX: Final = "mongottl-copy-"


def has_database(path: str) -> bool:
    """Whether a server has kept data in a folder, which need not exist."""
    return os.path.exists(os.path.join(path, DATABASE_NAME))


def others_can_read(path: str) -> bool:
    """Whether other users of the machine may list or enter a data directory, whose files older versions made readable.
    False on Windows, which says so in another way."""
    return sys.platform != "win32" and stat.S_IMODE(os.stat(path).st_mode) & 0o055 != 0


def create_private_file(path: str) -> None:
    """Creates an empty file that only its owner may read and write. SQLite's files beside a database get its mode.

    OSError if it exists.
    """
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def sync_directory(path: str) -> None:
    """Waits until the entries of a directory are on the disk. OSError if they cannot be."""
    if sys.platform != "win32":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            sync_file(descriptor)
        finally:
            os.close(descriptor)


def sync_file(descriptor: int) -> None:
    """Waits until what was written to a file is on the disk. OSError if it cannot be."""
    if sys.platform == "linux":
        os.fdatasync(descriptor)
    elif sys.platform == "darwin":
        import fcntl

        try:
            # On macOS, fsync leaves the data in the disk's own cache.
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
            os.fsync(descriptor)  # a file system that cannot do more
    else:
        os.fsync(descriptor)
