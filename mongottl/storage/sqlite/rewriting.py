"""The rewriting of a database that cannot give back pages, once, so that it can from then on."""

import sqlite3
from collections.abc import Callable
from typing import Final

from mongottl.storage.interface import DiskFull
from mongottl.storage.sqlite.database import INCREMENTAL
from mongottl.storage.sqlite.disk_room import DiskRoom

# `vacuum` asks whether to go on after so many of SQLite's instructions, which copy a few hundred records.
_INSTRUCTIONS: Final = 2_000


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


def vacuum(raw: sqlite3.Connection, folder: str, proceed: Callable[[], None]) -> None:
    """Rewrites a database so that it can give back pages later. What `proceed` raises ends it; nothing is changed then.

    raw: a connection without a transaction. folder: gets SQLite's copy, a file without a name.
    """
    failure: Exception | None = None

    def should_end() -> bool:
        nonlocal failure
        try:
            proceed()
        except Exception as error:
            failure = error
        return failure is not None

    raw.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}")
    raw.set_progress_handler(should_end, _INSTRUCTIONS)
    # For all connections of the process; the others keep such files in memory.
    raw.execute("PRAGMA temp_store_directory = '{}'".format(folder.replace("'", "''")))
    try:
        raw.execute("VACUUM")
    except sqlite3.Error:
        if failure is not None:
            raise failure from None
        raise
    finally:
        raw.set_progress_handler(None, 0)
        raw.execute("PRAGMA temp_store_directory = ''")
