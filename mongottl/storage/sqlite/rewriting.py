"""The rewriting of a database that cannot give back pages, once, so that it can from then on.

SQLite's VACUUM does it in one statement, but cannot be ended while it writes its copy back, which takes seconds for
each GB. So the copy is made by VACUUM INTO, and written back by the online backup, in steps of one transaction:

    database ──(VACUUM INTO)──► copy, a file of its own ──(backup)──► log ──(checkpoint)──► database
"""

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from mongottl.storage.data_folder import create_private_file
from mongottl.storage.errors import DiskFull
from mongottl.storage.sqlite.database import INCREMENTAL, connect
from mongottl.storage.sqlite.disk_room import DiskRoom

# Instructions of SQLite after which `rewrite_database` asks whether to go on: they copy a few hundred records; and
# pages that it writes back between two such questions, 1 MiB.
_INSTRUCTIONS: Final = 2_000
_PAGES: Final = 256


def check_room(room: DiskRoom, content_bytes: int) -> None:
    """DiskFull if a database with this content cannot be rewritten: its copy and the log each take as much."""
    room.measure()
    wanted_bytes = 2 * (content_bytes + content_bytes // 32) + room.reserve_bytes
    if room.free_bytes < wanted_bytes:
        raise DiskFull(
            f"to rewrite the database takes {_mib(wanted_bytes)} MiB of the disk for a time, and"
            f" {_mib(room.free_bytes)} MiB are free"
        )


def _mib(size_bytes: int) -> int:
    return size_bytes >> 20


def rewrite_database(raw: sqlite3.Connection, copy_path: str, proceed: Callable[[], None]) -> None:
    """Rewrites a database so that it can give back pages later. What `proceed` raises ends it; nothing is changed then.

    raw: a connection without a transaction; nobody else may write to the database meanwhile. copy_path: of a file that
    does not exist, on the disk of the database. sqlite3.Error, OSError.
    """
    create_private_file(copy_path)
    try:
        _make_copy(raw, copy_path, proceed)
        copy = connect(copy_path)
        try:
            with suppress(OSError):  # Windows removes no file that is open
                os.unlink(copy_path)
            _write_back(raw, copy, proceed)
        finally:
            copy.close()
    finally:
        with suppress(FileNotFoundError):
            os.unlink(copy_path)


def _make_copy(raw: sqlite3.Connection, copy_path: str, proceed: Callable[[], None]) -> None:
    failure: Exception | None = None

    def should_end() -> bool:
        nonlocal failure
        try:
            proceed()
        except Exception as error:
            failure = error
        return failure is not None

    raw.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}")  # of the copy
    raw.execute("PRAGMA synchronous = OFF")  # a copy that a power failure cuts is of no use
    raw.set_progress_handler(should_end, _INSTRUCTIONS)
    try:
        raw.execute("VACUUM INTO ?", (copy_path,))
    except sqlite3.Error:
        if failure is not None:
            raise failure from None
        raise
    finally:
        raw.set_progress_handler(None, 0)
        raw.execute("PRAGMA synchronous = NORMAL")


def _write_back(raw: sqlite3.Connection, copy: sqlite3.Connection, proceed: Callable[[], None]) -> None:
    """Replaces all pages of a database by those of its copy, in one transaction."""

    def written(status: int, left: int, total: int) -> None:
        if left:  # the last step has committed
            proceed()

    copy.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # opens the file
    copy.backup(raw, pages=_PAGES, progress=written)
