"""The one connection to SQLite, its unit of work, and the counters that go with it.

Every statement of the engine goes through `SqliteConnection`, which refuses writes outside a unit of work and turns
SQLite's errors into the engine's. It knows no table but `stores`.

Counters of a record store live in memory and are exact: the calls adjust them, a rollback restores them, and the commit
writes them into the row of the store in the same transaction, so that they are also exact after a crash.
"""

import sqlite3
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from mongottl.storage.interface import MAX_RECORD_ID, EngineUnavailable, WriteConflict, WriteUnitOfWork

_SAVE_COUNTERS: Final = "UPDATE stores SET record_count = ?, size_bytes = ?, next_record_id = ? WHERE id = ?"

# States of the unit of work.
_NONE: Final = 0
_OPEN: Final = 1
_FAILED: Final = 2


def engine_error(error: sqlite3.Error) -> Exception:
    """What to raise for an error of SQLite's: EngineUnavailable, unless the error is a mistake in this package."""
    if isinstance(error, sqlite3.ProgrammingError) and "closed" not in str(error):
        return error
    name = getattr(error, "sqlite_errorname", None)
    detail = f" ({name})" if name else ""
    return EngineUnavailable(f"the storage engine failed: {error}{detail}")


class StoreCounters:
    """Count, size and next id of one record store, with what a rollback restores."""

    def __init__(self, store_id: int, record_count: int, size_bytes: int, next_record_id: int) -> None:
        self.store_id = store_id
        self.record_count = record_count
        self.size_bytes = size_bytes
        # Not restored by a rollback: a gap is harmless, an id given twice is not.
        self.next_record_id = next_record_id
        self.touched = False
        self.saved_count = 0
        self.saved_size = 0
        # No document of a record up to `measured_through`, or written since the store was opened, is longer. What an
        # earlier process wrote is measured by the first scan that comes to its end.
        self.longest = 0
        self.measured_through = 0 if record_count else MAX_RECORD_ID

    def fits(self, count: int, max_bytes: int) -> bool:
        """Whether so many records cannot reach `max_bytes`, whichever they are; False says nothing."""
        return self.size_bytes < max_bytes or (
            count * self.longest < max_bytes and self.measured_through == MAX_RECORD_ID
        )


class SqliteConnection:
    """Runs statements; at most one unit of work at a time. All use is on one thread.

    persistent: whether counters are written at commit (an engine in memory has no need of it).
    """

    def __init__(self, raw: sqlite3.Connection, persistent: bool) -> None:
        self.raw = raw
        self.persistent = persistent
        # One cursor for all statements: creating one costs as much as a short statement. Each result is read to its
        # end at once, so no two statements share it.
        self._cursor: sqlite3.Cursor = raw.cursor()
        self._state = _NONE
        self._touched: list[StoreCounters] = []
        self._commit_actions: list[Callable[[], None]] = []
        self._rollback_actions: list[Callable[[], None]] = []
        self.commit_count = 0
        self.rollback_count = 0
        # Why no unit of work is begun or committed any more; empty while they are. Another thread sets it.
        self.refusal = ""

    def read(self, sql: str, parameters: tuple[object, ...]) -> list[Any]:
        """All rows of a query."""
        try:
            return self._cursor.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise engine_error(error) from error

    def read_within(
        self, sql: str, parameters: tuple[object, ...], document_at: int, max_bytes: int
    ) -> tuple[list[Any], int]:
        """The first rows of a query, up to the one whose document reaches `max_bytes`, and what is left of these: 0 or
        less where it was reached. document_at: the document's place in a row."""
        rows: list[Any] = []
        left = max_bytes
        try:
            # Not the common cursor: this one is closed before its end, so as not to keep the read open.
            cursor = self.raw.execute(sql, parameters)
            try:
                for row in cursor:
                    rows.append(row)
                    left -= len(row[document_at])
                    if left <= 0:
                        break
            finally:
                cursor.close()
        except sqlite3.Error as error:
            raise engine_error(error) from error
        return rows, left

    def read_row(self, sql: str, parameters: tuple[object, ...]) -> Any:
        """The only row of a query that has one row at most, or None. (A further row would keep the read open.)"""
        try:
            return self._cursor.execute(sql, parameters).fetchone()
        except sqlite3.Error as error:
            raise engine_error(error) from error

    def write(self, sql: str, parameters: tuple[object, ...]) -> int:
        """Runs one writing statement; how many rows it changed."""
        if self._state != _OPEN:
            raise self._no_unit()
        try:
            return int(self._cursor.execute(sql, parameters).rowcount)
        except sqlite3.Error as error:
            self._state = _FAILED
            raise engine_error(error) from error

    def write_many(self, sql: str, rows: list[Any]) -> int:
        """Runs one writing statement for each row of parameters; how many rows were changed in all."""
        if self._state != _OPEN:
            raise self._no_unit()
        try:
            return int(self._cursor.executemany(sql, rows).rowcount)
        except sqlite3.Error as error:
            self._state = _FAILED
            raise engine_error(error) from error

    def insert_until_conflict(self, sql: str, rows: list[Any]) -> int:
        """Inserts rows up to the first that a unique key refuses; how many were inserted (all: `len(rows)`).

        SQLite undoes a refused row alone, and the rows are tried in order, so the count says which row it was.
        """
        if self._state != _OPEN:
            raise self._no_unit()
        before: int = self.raw.total_changes
        try:
            self._cursor.executemany(sql, rows)
        except sqlite3.IntegrityError:
            after: int = self.raw.total_changes
            return after - before
        except sqlite3.Error as error:
            self._state = _FAILED
            raise engine_error(error) from error
        return len(rows)

    def touch(self, counters: StoreCounters) -> None:
        """Remembers a store's counters before their first change in this unit of work."""
        if not counters.touched:
            counters.touched = True
            counters.saved_count = counters.record_count
            counters.saved_size = counters.size_bytes
            self._touched.append(counters)

    def conflict(self, message: str) -> Exception:
        """The WriteConflict to raise when a record is not as given; the unit of work can then only be rolled back."""
        self._state = _FAILED
        return WriteConflict(message)

    def in_unit(self) -> bool:
        return self._state != _NONE

    def begin(self) -> None:
        if self._state != _NONE:
            raise RuntimeError("units of work do not nest")
        if self.refusal:
            raise EngineUnavailable(self.refusal)
        try:
            self._cursor.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise engine_error(error) from error
        self._state = _OPEN

    def commit(self) -> None:
        if self._state != _OPEN:
            raise self._no_unit()
        if self.refusal:
            self._state = _FAILED
            raise EngineUnavailable(self.refusal)
        try:
            if self.persistent:
                for counters in self._touched:
                    self._cursor.execute(
                        _SAVE_COUNTERS,
                        (counters.record_count, counters.size_bytes, counters.next_record_id, counters.store_id),
                    )
            self._cursor.execute("COMMIT")
        except sqlite3.Error as error:
            self._state = _FAILED
            raise engine_error(error) from error
        self._state = _NONE
        self.commit_count += 1
        for counters in self._touched:
            counters.touched = False
        self._touched.clear()
        if self._rollback_actions:
            self._rollback_actions = []
        if self._commit_actions:
            actions = self._commit_actions
            self._commit_actions = []
            for action in actions:
                action()

    def rollback(self) -> None:
        """Undoes the open unit of work, counters and rollback actions included."""
        self._state = _NONE
        self.rollback_count += 1
        for counters in self._touched:
            counters.record_count = counters.saved_count
            counters.size_bytes = counters.saved_size
            counters.touched = False
        self._touched.clear()
        self._commit_actions = []
        actions = self._rollback_actions
        self._rollback_actions = []
        try:
            # Some errors (disk full, I/O) make SQLite roll back by itself.
            if self.raw.in_transaction:
                self._cursor.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise engine_error(error) from error
        finally:
            for action in reversed(actions):
                action()

    def on_commit(self, action: Callable[[], None]) -> None:
        self._commit_actions.append(action)

    def on_rollback(self, action: Callable[[], None]) -> None:
        self._rollback_actions.append(action)

    def _no_unit(self) -> Exception:
        if self._state == _FAILED:
            return EngineUnavailable("the unit of work has failed and can only be rolled back")
        return RuntimeError("a write outside a unit of work")


class SqliteUnitOfWork(WriteUnitOfWork):
    """One BEGIN … COMMIT or ROLLBACK."""

    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection
        self._done = False

    def __enter__(self) -> WriteUnitOfWork:
        self._connection.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._done and self._connection.in_unit():
            self._connection.rollback()

    def commit(self) -> None:
        self._connection.commit()
        self._done = True

    def on_commit(self, action: Callable[[], None]) -> None:
        self._connection.on_commit(action)

    def on_rollback(self, action: Callable[[], None]) -> None:
        self._connection.on_rollback(action)
