"""The one connection to SQLite, the transaction of its unit of work, and the counters of record stores.

Every statement of the engine goes through `SqliteConnection`, which refuses writes outside a unit of work and turns
SQLite's errors into the engine's. It knows no table but `stores`.

An update or a delete must find out whether the records that it is given are still stored as they were read. Most were
read just before, so the connection remembers what the last read has returned until something is written to the same
store: records that equal it need not be compared by SQLite, which would copy and read each document again.

Counters of a record store live in memory and are exact: the calls adjust them, a rollback restores them, and the commit
writes them in the same transaction, so that they are also exact after a crash. They go into the row of the store in
`stores`. But the commit of a unit that has added a row to a log puts them into that row: each page that a commit
changes costs as much as two statements, and the log's is one that it changes anyway.

    stores    store 5: 1000 records …       as of the last time that counters were settled
    log       row 71: store 5 has 1001      what `stores` lacks: read when the database is opened after a crash
              row 72: store 5 has 1002, store 8 has 20

Counters that only the log has (`_ahead`) are settled, that is written into `stores`, by a unit that changes one of them
without adding to the log, by one that creates or drops a log, after some thousand rows, and at the end.
"""

import sqlite3
import struct
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from mongottl.storage.checksums import crc32c_after
from mongottl.storage.errors import DiskFull, EngineUnavailable
from mongottl.storage.sqlite.bounded_rows import rows_within
from mongottl.storage.sqlite.record_cache import CacheBudget, RecordCache
from mongottl.storage.stores import MAX_RECORD_ID, Record
from mongottl.storage.unit_of_work import FAILED, OPEN, UnitOfWorkState

# What the caches of all record stores may take, until the server sets it.
_CACHE_BYTES: Final = 64 << 20
# Documents of the last read that are remembered: enough for a batch of small ones.
_REMEMBERED_BYTES: Final = 1 << 20

_SAVE_COUNTERS: Final = "UPDATE stores SET record_count = ?, size_bytes = ?, next_record_id = ? WHERE id = ?"
# The counters of one store in a row of a log: id of the store, records, bytes, next record id. After those of all
# stores stands their checksum, but not in rows of folders of format 1.
_PACKED_COUNTERS: Final = struct.Struct("<4q")
_PACKED_SUM: Final = struct.Struct("<I")
# Whether the column has no such counters, in SQL.
IS_NO_PACKED_COUNTERS: Final = (
    f"(typeof(counters) <> 'blob' OR length(counters) % {_PACKED_COUNTERS.size} NOT IN (0, {_PACKED_SUM.size}))"
)
# Units that have added to the log until the counters are settled: the rows that are read after a crash.
_UNITS_UNTIL_SETTLED: Final = 4096
# A store of up to this size is taken to stay in memory, in SQLite's cache or the system's, once it was read to the end.
_KEPT_IN_MEMORY_BYTES: Final = 1 << 30
# Its records are checked again when it was read so often.
_READS_UNTIL_CHECKED_AGAIN: Final = 64
_FEW_RECORDS: Final = 1024
# Rows that are written between two pauses: about 5 ms.
_ROWS_PER_PART: Final = 4096
# The bytes of documents that are: about 5 ms.
_BYTES_PER_PART: Final = 1 << 20
# To write a document of this length, or to replace or delete it, takes 10 to 100 ms.
_VERY_LONG_BYTES: Final = 4 << 20
# The time between two pauses while it is written.
_PAUSE_S: Final = 0.002


# No room for the database or the log, and none for the log's index.
_FULL: Final = ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE")


def engine_error(error: sqlite3.Error) -> Exception:
    """The exception to raise for an error of SQLite: DiskFull or another EngineUnavailable, unless it is a programming
    error of ours."""
    if isinstance(error, sqlite3.ProgrammingError) and "closed" not in str(error):
        return error
    name = getattr(error, "sqlite_errorname", None)
    if name in _FULL:
        return DiskFull(str(error))
    detail = f" ({name})" if name else ""
    return EngineUnavailable(f"the storage engine failed: {error}{detail}")


def _nothing() -> None:
    pass


def _is_very_long(parameters: tuple[object, ...]) -> bool:
    return any(isinstance(value, bytes) and len(value) >= _VERY_LONG_BYTES for value in parameters)


def rows_per_part(count: int, size_bytes: int) -> int:
    """How many of `count` rows, whose documents have this size together, are written between two pauses."""
    if size_bytes <= _BYTES_PER_PART:
        return _ROWS_PER_PART
    return max(1, count * _BYTES_PER_PART // size_bytes)


class StoreCounters:
    """Count, size and next id of one record store, and the values that a rollback restores.

    cache: the records of the store that are kept in memory; None if none are.
    """

    def __init__(self, store_id: int, record_count: int, size_bytes: int, next_record_id: int) -> None:
        self.store_id = store_id
        self.record_count = record_count
        self.size_bytes = size_bytes
        # Not restored by a rollback: a gap is harmless, an id that is used twice is not. `record_cache` relies on it.
        self.next_record_id = next_record_id
        self.touched = False
        self.saved_count = 0
        self.saved_size = 0
        # The longest document of the records up to `measured_through`, and of those written since the store was opened.
        # The first scan that reaches the end measures the documents of earlier processes.
        self.longest = 0
        self.measured_through = 0 if record_count else MAX_RECORD_ID
        # The checksums of the records up to this id were right when they were read, or were written since the store was
        # opened; and how many records were read since without a look at theirs.
        self.checked_through = 0 if record_count else MAX_RECORD_ID
        self._unchecked_reads = 0
        # Whether the ids of the rows that a scan has read last had few gaps; and how many of the next scans do not try
        # to read rows joined (`SqliteRecordStore`).
        self.is_dense = False
        self.joins_left_out = 0
        self.cache: RecordCache | None = None

    def set(self, record_count: int, size_bytes: int, next_record_id: int) -> None:
        """Sets all three, at the opening."""
        self.record_count = record_count
        self.size_bytes = size_bytes
        self.next_record_id = next_record_id
        self.measured_through = 0 if record_count else MAX_RECORD_ID
        self.checked_through = 0 if record_count else MAX_RECORD_ID

    def read_through(self, last: int, more: bool) -> int:
        """Up to which id a scan has read, whose last record is this one: MAX_RECORD_ID if it has read all."""
        return last if more and last < self.next_record_id - 1 else MAX_RECORD_ID

    def note_checked(self, after: int, last: int) -> None:
        """Notes that a scan from `after` on has checked the records up to `last`, MAX_RECORD_ID if these are all."""
        if after <= self.checked_through < last and (last < MAX_RECORD_ID or self.size_bytes <= _KEPT_IN_MEMORY_BYTES):
            self.checked_through = last

    def note_unchecked(self, count: int) -> None:
        """Counts records that were read without a look at their checksums."""
        self._unchecked_reads += count
        if self._unchecked_reads > _READS_UNTIL_CHECKED_AGAIN * (self.record_count + _FEW_RECORDS):
            self._unchecked_reads = 0
            self.checked_through = 0

    def fits(self, count: int, max_bytes: int) -> bool:
        """True if no `count` different records of the store can reach `max_bytes` together; False if they might."""
        return self.size_bytes < max_bytes or (
            count * self.longest < max_bytes and self.measured_through == MAX_RECORD_ID
        )

    def fits_repeated(self, count: int, max_bytes: int) -> bool:
        """`fits` for records that may be named more than once, as the entries of a multikey index name them."""
        return self.most_bytes(count) < max_bytes

    def most_bytes(self, count: int) -> int:
        """A length that the documents of `count` records do not exceed together, even if one is named repeatedly."""
        longest = self.longest if self.measured_through == MAX_RECORD_ID else self.size_bytes
        return count * longest


class LogRow:
    """A row that was added to a log by the open unit of work, and is not written yet.

    sql: inserts it, with the counters as the last parameter. forget_sql: executed without values, it makes the
    statement forget a long document; empty for a short one. place: ids of the log's store and of the record. values: of
    the other columns than the counters.
    """

    def __init__(self, sql: str, forget_sql: str, place: tuple[int, int], values: tuple[object, ...]) -> None:
        self.sql = sql
        self.forget_sql = forget_sql
        self.place = place
        self.values = values


def unpacked_counters(packed: bytes) -> list[tuple[int, int, int, int]]:
    """The counters in a row of a log, each as (id of the store, records, bytes, next record id). ValueError if their
    checksum is wrong."""
    if len(packed) % _PACKED_COUNTERS.size == _PACKED_SUM.size:
        counters = packed[: -_PACKED_SUM.size]
        if crc32c_after(0, counters) != _PACKED_SUM.unpack(packed[-_PACKED_SUM.size :])[0]:
            raise ValueError("counters in the log are damaged: their checksum is wrong")
        packed = counters
    return list(_PACKED_COUNTERS.iter_unpack(packed))


class SqliteConnection(UnitOfWorkState):
    """Runs statements; at most one unit of work at a time, which is one BEGIN … COMMIT or ROLLBACK. All use is on one
    thread, but for `refusal` and very long documents, which another one writes while this waits.

    persistent: whether counters are written at commit (an engine in memory has no need of it).
    """

    def __init__(self, raw: sqlite3.Connection, persistent: bool) -> None:
        super().__init__()
        self.raw = raw
        self.persistent = persistent
        self.cache_budget = CacheBudget(_CACHE_BYTES)
        # Held while a unit begins, and by another thread while it writes: then a unit waits before it begins.
        self.begin_lock = threading.Lock()
        # One cursor for all statements: creating one costs as much as a short statement. Each result is read to its
        # end at once, so no two statements share it.
        self._cursor: sqlite3.Cursor = raw.cursor()
        # See `StorageEngine.set_pause`.
        self.pause: Callable[[], None] = _nothing
        self._touched: list[StoreCounters] = []
        # Whether a write has found the disk full since there was room last. Any thread may set it.
        self.disk_full = False
        # Why no unit of work can begin; empty if it can. Set by another thread while it holds `begin_lock`.
        self.occupied = ""
        # The largest number of pages that the database may have after a commit; 0 for no limit.
        self.max_pages = 0
        # The row that the unit of work has added to a log last.
        self._log_row: LogRow | None = None
        # Its place; and the place of the last row of a log that is committed, which other threads may read. None before
        # there is one.
        self._added_place: tuple[int, int] | None = None
        self.committed_place: tuple[int, int] | None = None
        # Stores whose counters only the log has, by their ids, and in how many units they were put there.
        self._ahead: dict[int, StoreCounters] = {}
        self._ahead_units: int = 0
        self._settles = False
        # The store of the last read that returned several records, and its rows: records, or index entries with records
        # (`_read_id_at`: the place of the record id in a row).
        self._read_store: StoreCounters | None = None
        self._read_rows: list[Any] = []
        self._read_id_at = 0

    def read(self, sql: str, parameters: tuple[object, ...]) -> list[Any]:
        """All rows of a query."""
        if self._log_row is not None:
            self._write_log_row(None)
        try:
            return self._cursor.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise engine_error(error) from error

    def read_within(
        self, sql: str, parameters: tuple[object, ...], counted_at: int, max_bytes: int
    ) -> tuple[list[Any], int]:
        """`rows_within` of a query."""
        if self._log_row is not None:
            self._write_log_row(None)
        try:
            # A cursor of its own, because it is closed before its end, which ends the read.
            cursor = self.raw.execute(sql, parameters)
            try:
                return rows_within(cursor, counted_at, max_bytes)
            finally:
                cursor.close()
        except sqlite3.Error as error:
            raise engine_error(error) from error

    def read_row(self, sql: str, parameters: tuple[object, ...]) -> Any:
        """The only row of a query that has one row at most, or None. (A further row would keep the read open.)"""
        if self._log_row is not None:
            self._write_log_row(None)
        try:
            return self._cursor.execute(sql, parameters).fetchone()
        except sqlite3.Error as error:
            raise engine_error(error) from error

    def pages(self) -> int:
        """How many pages the database has."""
        return int(self.read_row("PRAGMA page_count", ())[0])

    def unused_pages(self) -> int:
        """The pages of the database that hold nothing."""
        return int(self.read_row("PRAGMA freelist_count", ())[0])

    def write(self, sql: str, parameters: tuple[object, ...]) -> int:
        """Runs one writing statement; how many rows it changed."""
        if self.state != OPEN:
            raise self.no_unit()
        if self._log_row is not None:
            self._write_log_row(None)
        try:
            return int(self._cursor.execute(sql, parameters).rowcount)
        except sqlite3.Error as error:
            self.state = FAILED
            raise self._write_error(error) from error

    def change_schema(self, sql: str) -> None:
        """Makes or drops a table or an index, with pauses before and after it: SQLite reads the names of all tables for
        that, and there are four for each collection. An operation that begins again for a pause does so before."""
        self.pause()
        self.write(sql, ())
        self.pause()

    def write_long(self, sql: str, parameters: tuple[object, ...]) -> int:
        """`write` for a long document, with pauses before and after it: of a very long one also in between."""
        self.pause()
        if _is_very_long(parameters):
            changed = self._aside(partial(self.write, sql, parameters))
        else:
            changed = self.write(sql, parameters)
        self.pause()
        return changed

    def _aside(self, function: Callable[[], int]) -> int:
        """What a function returns that another thread calls, with pauses until it has returned: in a call that takes
        long, SQLite lets other threads run."""
        results: list[int] = []
        errors: list[BaseException] = []
        ended = threading.Event()

        def call() -> None:
            try:
                results.append(function())
            except BaseException as error:
                errors.append(error)
            finally:
                ended.set()

        thread = threading.Thread(target=call, name="long write")
        thread.start()
        try:
            while not ended.wait(_PAUSE_S):
                self.pause()
        finally:
            thread.join()
        if errors:
            raise errors[0]
        return results[0]

    def write_many(self, sql: str, rows: list[Any], per_part: int = _ROWS_PER_PART) -> int:
        """Runs one writing statement for each row of parameters; how many rows were changed in all.

        per_part: how many are written between two pauses (`rows_per_part`).
        """
        if self.state != OPEN:
            raise self.no_unit()
        if self._log_row is not None:
            self._write_log_row(None)
        try:
            if len(rows) <= per_part > 1:
                return int(self._cursor.executemany(sql, rows).rowcount)
            changed = 0
            for start in range(0, len(rows), per_part):
                if per_part == 1:
                    changed += self.write_long(sql, rows[start])
                    continue
                changed += int(self._cursor.executemany(sql, rows[start : start + per_part]).rowcount)
                self.pause()
            return changed
        except sqlite3.Error as error:
            self.state = FAILED
            raise self._write_error(error) from error

    def insert_until_conflict(self, sql: str, rows: list[Any]) -> int:
        """Inserts rows up to the first that a unique key refuses; how many were inserted (all: `len(rows)`).

        SQLite undoes a refused row alone, and the rows are tried in order, so the count says which row it was.
        """
        if self.state != OPEN:
            raise self.no_unit()
        if self._log_row is not None:
            self._write_log_row(None)
        before: int = self.raw.total_changes
        try:
            if len(rows) <= _ROWS_PER_PART:
                self._cursor.executemany(sql, rows)
            else:
                for start in range(0, len(rows), _ROWS_PER_PART):
                    self._cursor.executemany(sql, rows[start : start + _ROWS_PER_PART])
                    self.pause()
        except sqlite3.IntegrityError:
            after: int = self.raw.total_changes
            return after - before
        except sqlite3.Error as error:
            self.state = FAILED
            raise self._write_error(error) from error
        return len(rows)

    def remember_read(self, counters: StoreCounters, rows: list[Any], most_bytes: int, id_at: int = 0) -> None:
        """Remembers what a read of a store has returned, unless it may be large.

        most_bytes: how long the documents are together at most. id_at: 0 for records, 1 for index entries with records.
        """
        if most_bytes <= _REMEMBERED_BYTES:
            self._read_store = counters
            self._read_rows = rows.copy()
            self._read_id_at = id_at

    def equals_last_read(self, counters: StoreCounters, records: list[Record]) -> bool:
        """Whether all these records are among those that the last read of the store has returned, and nothing was
        written to it since, so that they are stored like this. To be called before `touch`."""
        if self._read_store is not counters:
            return False
        rows = self._read_rows
        if self._read_id_at == 0:
            if rows == records:
                return True
            read = {row[0]: row for row in rows}
        else:
            read = {row[1]: row[1:] for row in rows}
        return [read.get(record[0]) for record in records] == records

    def touch(self, counters: StoreCounters) -> None:
        """To be called before each write to a store: remembers its counters before their first change in this unit of
        work, and forgets what was read from it."""
        if self._read_store is counters:
            self._forget_read()
        if not counters.touched:
            counters.touched = True
            counters.saved_count = counters.record_count
            counters.saved_size = counters.size_bytes
            self._touched.append(counters)

    def _forget_read(self) -> None:
        self._read_store = None
        self._read_rows = []

    def begin_writes(self) -> None:
        try:
            with self.begin_lock:
                if self.occupied:
                    raise EngineUnavailable(self.occupied)
                self._cursor.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise self._write_error(error) from error

    def _write_error(self, error: sqlite3.Error) -> Exception:
        """`engine_error` for a write; notes that the disk is full."""
        failure = engine_error(error)
        if isinstance(failure, DiskFull):
            self.disk_full = True
        return failure

    def no_room(self) -> Exception:
        """The DiskFull to raise for a write that needs room; the unit of work can then only be rolled back."""
        if self.state == OPEN:
            self.state = FAILED
        return DiskFull("the disk is full; what deletes is executed, other writes when there is room again")

    def add_log_row(self, row: LogRow) -> None:
        """Adds a row to a log: written at the commit, with the counters that the unit changes, or before the next
        statement."""
        if self.state != OPEN:
            raise self.no_unit()
        if self._log_row is not None:
            self._write_log_row(None)
        self._log_row = row
        self._added_place = row.place

    def _write_log_row(self, counters: bytes | None) -> None:
        row = self._log_row
        assert row is not None
        self._log_row = None
        values = (*row.values, counters)
        try:
            if not row.forget_sql:
                self._cursor.execute(row.sql, values)
                return
            if _is_very_long(values):
                self._aside(lambda: int(self._cursor.execute(row.sql, values).rowcount))
            else:
                self._cursor.execute(row.sql, values)
            self._cursor.execute(row.forget_sql, (None,) * len(values))
            self.pause()
        except sqlite3.Error as error:
            self.state = FAILED
            raise self._write_error(error) from error

    def settle_counters(self) -> None:
        """Has the open unit of work write all counters that only the log has into `stores`."""
        self._settles = True

    def note_ahead(self, counters: StoreCounters) -> None:
        """Notes at the opening that the log has newer counters of a store than `stores`."""
        self._ahead[counters.store_id] = counters

    @property
    def has_unsettled(self) -> bool:
        """Whether there are counters that only the log has."""
        return len(self._ahead) > 0

    def commit_writes(self) -> None:
        """Writes the counters that have changed, and commits the transaction."""
        touched = self._touched
        ahead = self._ahead
        settles = self._must_settle()
        in_log = self.persistent and self._log_row is not None and not settles
        try:
            if self.persistent:
                if self._log_row is not None:
                    self._write_log_row(_packed(touched) if in_log else None)
                if settles:
                    self._save_counters([*ahead.values(), *[c for c in touched if c.store_id not in ahead]])
                elif not in_log:
                    self._save_counters(touched)
            elif self._log_row is not None:
                self._write_log_row(None)
            if self.max_pages and self._cursor.execute("PRAGMA page_count").fetchone()[0] > self.max_pages:
                raise DiskFull("the disk has no room for what one command writes")
            self._cursor.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._write_error(error) from error
        if self._added_place is not None:
            self.committed_place = self._added_place
            self._added_place = None
        if settles:
            self._settles = False
            self._ahead = {}
            self._ahead_units = 0
        elif in_log:
            self._ahead_units += 1
            for counters in touched:
                ahead[counters.store_id] = counters
        for counters in touched:
            counters.touched = False
            if counters.cache is not None:
                counters.cache.settle()
        touched.clear()

    def _must_settle(self) -> bool:
        """Whether this commit writes the counters that only rows of the log have so far."""
        if self._settles or not self._ahead:
            return self._settles
        if self._log_row is not None:
            return self._ahead_units >= _UNITS_UNTIL_SETTLED
        return any(counters.store_id in self._ahead for counters in self._touched)

    def _save_counters(self, stores: list[StoreCounters]) -> None:
        for counters in stores:
            self._cursor.execute(
                _SAVE_COUNTERS,
                (counters.record_count, counters.size_bytes, counters.next_record_id, counters.store_id),
            )

    def undo_writes(self) -> None:
        """Restores the counters, and rolls the transaction back."""
        self._forget_read()
        self._log_row = None
        self._added_place = None
        self._settles = False
        for counters in self._touched:
            counters.record_count = counters.saved_count
            counters.size_bytes = counters.saved_size
            counters.touched = False
            if counters.cache is not None:
                counters.cache.undo()
        self._touched.clear()
        try:
            # Some errors (disk full, I/O) make SQLite roll back by itself.
            if self.raw.in_transaction:
                self._cursor.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise engine_error(error) from error


def _packed(stores: list[StoreCounters]) -> bytes:
    packed = b"".join(
        [
            _PACKED_COUNTERS.pack(
                counters.store_id, counters.record_count, counters.size_bytes, counters.next_record_id
            )
            for counters in stores
        ]
    )
    return packed + _PACKED_SUM.pack(crc32c_after(0, packed))
