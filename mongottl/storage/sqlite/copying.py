"""Copying a stored database as of one moment, while others write to it.

A connection that reads keeps seeing the state in which it began (sqlite.org/isolation.html), so a copy that reads in
one transaction has all commits that were made before it began, and none that were made later.
"""

import os
import sqlite3
from collections.abc import Callable
from typing import Final

from mongottl.storage.data_folder import create_private_file, sync_file
from mongottl.storage.errors import EngineUnavailable

# Pages that are copied at once, 1 MiB.
_PAGES: Final = 256


def copy_database(source: sqlite3.Connection, path: str, proceed: Callable[[], None]) -> None:
    """Copies a database to a new file, and waits until that is on disk. EngineUnavailable if it cannot be done.

    source: a connection that nobody else uses. proceed: called after each MiB; what it raises ends the copy.
    """

    def copied(status: int, left: int, total: int) -> None:
        proceed()

    try:
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # the moment of the copy
        create_private_file(path)
        target = sqlite3.connect(path, isolation_level=None)
        try:
            # If the copy fails, the file is removed.
            target.execute("PRAGMA journal_mode = OFF")
            target.execute("PRAGMA synchronous = OFF")
            source.backup(target, pages=_PAGES, progress=copied)
        finally:
            target.close()
            source.execute("ROLLBACK")
        descriptor = os.open(path, os.O_RDWR)
        try:
            sync_file(descriptor)
        finally:
            os.close(descriptor)
    except (sqlite3.Error, OSError) as error:
        raise EngineUnavailable(f"the data cannot be copied: {error}") from error
