"""What is read of one snapshot of PostgreSQL: stores bound to it, and the snapshots of reads outside transactions.

    open      BEGIN REPEATABLE READ READ ONLY, pg_export_snapshot()    a session that does nothing else, and keeps it
    read      BEGIN …, SET TRANSACTION SNAPSHOT, the query, COMMIT     one exchange, on any connection, by many at once
    share     SELECT 'mongottl snapshot TIME INC NAME'                 what other servers find in pg_stat_activity
    find      BEGIN …, SET TRANSACTION SNAPSHOT, pg_export_snapshot()  the same one, kept by who has found it
    close     the session is rolled back, aside

A snapshot holds back the removal of dead rows in the whole database, so there are few.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Final

from mongottl.document.utf8 import decode_text
from mongottl.storage.errors import SeveralPlaces, SnapshotTooOld, StorageError
from mongottl.storage.interface import OpenSnapshot
from mongottl.storage.postgresql.access import Access
from mongottl.storage.postgresql.connection import Connection, literal
from mongottl.storage.postgresql.failures import StoreFailure
from mongottl.storage.postgresql.log import COUNTS_OF_STORE, Counters
from mongottl.storage.postgresql.pool import ConnectionPool
from mongottl.storage.postgresql.records import PostgresRecordStore
from mongottl.storage.postgresql.sorted_data import PostgresSortedData
from mongottl.storage.postgresql.statements import OF_DATABASE, TEXT, Call, Parameter, Statement, int4, text
from mongottl.storage.postgresql.units import PostgresUnit, Row
from mongottl.storage.stores import RecordStore, SortedDataInterface
from mongottl.storage.waiting import Turn, Waiter

_BEGIN: Final = Statement("begin_snapshot", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
_EXPORT: Final = Statement("export_snapshot", "SELECT pg_export_snapshot()")
_TAKE: Final = Statement("take_snapshot", "SELECT 1")
_COMMIT: Final = Statement("commit_snapshot", "COMMIT")
# How long another read over the same session is waited for at once, in seconds.
_LONGEST_READ_S: Final = 60.0
# The session that has exported a snapshot has ended: invalid_parameter_value, or undefined_object since PostgreSQL 17.
UNKNOWN_SNAPSHOT: Final = frozenset({"22023", "42704"})
# The last statement of each session that keeps a snapshot which others may find.
_SHARED: Final = Statement(
    "shared_snapshot",
    f"SELECT query FROM pg_stat_activity WHERE {OF_DATABASE} AND starts_with(application_name, $1)"
    " AND starts_with(query, $2)",
    (TEXT, TEXT),
)
# What is deleted has no name any more.
_NAMES: Final = Statement("catalog_names", "SELECT ns, epoch FROM catalog WHERE ns IS NOT NULL")


def _sharing(at: tuple[int, int]) -> str:
    """How the statement begins that shares the snapshot of a cluster time; then comes PostgreSQL's name of it."""
    return f"SELECT 'mongottl snapshot {at[0]} {at[1]} "


def shared_name(pool: ConnectionPool, sessions: str, at: tuple[int, int]) -> str:
    """PostgreSQL's name of a snapshot that is shared; empty if there is none. StoreFailure.

    sessions: how the names of all sessions begin that may keep it.
    """
    start = _sharing(at)
    found = pool.read([(_SHARED, (text(sessions), text(start)))])[0].rows()
    return str(found[0][0]).removeprefix(start).removesuffix("'") if found else ""


class SnapshotStores(Access):
    """The stores as of one moment. records, sorted_data: the engine's, by ident."""

    def __init__(
        self, records: Mapping[str, PostgresRecordStore], sorted_data: Mapping[str, PostgresSortedData]
    ) -> None:
        self._all_records: Final = records
        self._all_sorted: Final = sorted_data
        self._counts: dict[int, tuple[int, int]] = {}

    def require(self) -> PostgresUnit:
        raise RuntimeError("a view is not written")

    @abstractmethod
    def read(self, statement: Statement, *values: Parameter) -> list[Row]:
        raise NotImplementedError

    def counts(self, counters: Counters) -> tuple[int, int]:
        found = self._counts.get(counters.store)
        if found is None:
            [(count, size)] = self.at(self._place_of(counters)).read(COUNTS_OF_STORE, int4(counters.store))
            found = self._counts[counters.store] = (count, size)
        return found

    def _place_of(self, counters: Counters) -> int | None:
        return counters.place or None

    def records_of(self, store: RecordStore) -> PostgresRecordStore:
        """A record store of the engine, or of what wraps it, as of then."""
        stored = self._all_records[store.ident]
        parts = [
            PostgresRecordStore(self.at(part.place), part.ident, part.counters, part.ids, part.is_log)
            for part in stored.parts
        ]
        return stored.joined(self, parts)

    def entries_of(self, data: SortedDataInterface) -> PostgresSortedData:
        stored = self._all_sorted[data.ident]
        parts = [
            PostgresSortedData(self.at(part.place), part.ident, part.store_id, part.unique) for part in stored.parts
        ]
        return stored.joined(self, parts)


class SessionSnapshot(OpenSnapshot, SnapshotStores):
    """One that a session keeps. give_up: gives its connection back, without waiting."""

    def __init__(
        self,
        records: Mapping[str, PostgresRecordStore],
        sorted_data: Mapping[str, PostgresSortedData],
        give_up: Callable[[], None],
    ) -> None:
        SnapshotStores.__init__(self, records, sorted_data)
        self._give_up: Final = give_up
        self._closed = False
        self._too_old = False
        self._changed_names: frozenset[str] = frozenset()

    @property
    def too_old(self) -> bool:
        return self._too_old

    def records_at(self, store: RecordStore) -> RecordStore:
        return self.records_of(store)

    def entries_at(self, data: SortedDataInterface) -> SortedDataInterface:
        return self.entries_of(data)

    @property
    def changed_names(self) -> frozenset[str]:
        return self._changed_names

    def compare_names(self, pool: ConnectionPool, known: int) -> None:
        """Finds out what has changed after it, or after the version of the catalog that is known here.

        pool: of connections that read the present. SnapshotTooOld, StoreFailure.
        """
        then = {(name, epoch) for name, epoch in self.read(_NAMES)}
        now = {(name, epoch) for name, epoch in pool.read([(_NAMES, ())])[0].rows()}
        unknown = {row for row in now if row[1] > known}
        self._changed_names = frozenset([decode_text(name) for name, _ in then ^ now | unknown])

    def require_open(self) -> None:
        if self._closed:
            raise SnapshotTooOld("the snapshot was given up, because it was not used for too long")

    @property
    def is_closed(self) -> bool:
        return self._closed

    def expire(self) -> None:
        """Gives it up though it may be used."""
        self._too_old = True
        self.close()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._give_up()


class PostgresSnapshot(SessionSnapshot):
    """holder: the connection whose session keeps the snapshot. pool: of the connections that read it.

    error_of: the contract's error for a failure. found: PostgreSQL's name of the snapshot that another server keeps,
    which is to be kept here, too.
    """

    def __init__(
        self,
        records: Mapping[str, PostgresRecordStore],
        sorted_data: Mapping[str, PostgresSortedData],
        holder: Connection,
        pool: ConnectionPool,
        give_up: Callable[[], None],
        error_of: Callable[[StoreFailure], StorageError],
        found: str = "",
    ) -> None:
        super().__init__(records, sorted_data, give_up)
        begin: list[Call] = [(_BEGIN, ()), (_importing(found), ())] if found else [(_BEGIN, ())]
        self._name: Final[str] = holder.run([*begin, (_EXPORT, ())])[-1].value()
        self._import: Final = _importing(self._name)
        self._holder: Final = holder
        self._is_sharing = False
        self._pool: Final = pool
        self._error_of: Final = error_of

    def share(self, at: tuple[int, int]) -> None:
        self.require_open()
        self._is_sharing = True
        try:
            self._holder.run([(Statement("", f"{_sharing(at)}{self._name}'"), ())], must_end=True)
        except StoreFailure:
            self.expire()  # its session has ended, and so has the snapshot
        finally:
            self._is_sharing = False
            if self.is_closed:
                self._give_up()

    def close(self) -> None:
        if not self._is_sharing:
            super().close()
        else:
            self._closed = True

    def read(self, statement: Statement, *values: Parameter) -> list[Row]:
        self.require_open()
        calls: list[Call] = [(_BEGIN, ()), (self._import, ()), (statement, values), (_COMMIT, ())]
        try:
            return self._pool.read(calls)[2].rows()
        except StoreFailure as failure:
            if failure.sqlstate in UNKNOWN_SNAPSHOT and failure.call == 1:
                self.expire()
                raise SnapshotTooOld("the database has ended the session that has kept the snapshot") from failure
            raise self._error_of(failure) from failure


def _importing(name: str) -> Statement:
    return Statement("", f"SET TRANSACTION SNAPSHOT {literal(name)}")


class PlacedSnapshot(SessionSnapshot):
    """Where tables are distributed: the machine of a place takes its snapshot at the first read of it, and machines
    have none in common. So it is read over the session itself, one read after the other, and of one place."""

    def __init__(
        self,
        records: Mapping[str, PostgresRecordStore],
        sorted_data: Mapping[str, PostgresSortedData],
        holder: Connection,
        waiter: Waiter,
        give_up: Callable[[], None],
        error_of: Callable[[StoreFailure], StorageError],
    ) -> None:
        super().__init__(records, sorted_data, give_up)
        holder.run([(_BEGIN, ()), (_TAKE, ())])
        self._holder: Final = holder
        self._waiter: Final = waiter
        self._error_of: Final = error_of
        self._is_reading = False
        self._waiting: list[Turn] = []

    def visit(self, place: int) -> None:
        if self.place is None:
            self.place = place
        elif self.place != place:
            raise SeveralPlaces(
                "reads of one snapshot reach one collection only, or one value of the shard key of a sharded one, where"
                " the store is spread over several machines, by Citus",
                False,
            )

    def read(self, statement: Statement, *values: Parameter) -> list[Row]:
        waiter = self._waiter
        while self._is_reading:
            turn = waiter.new_turn()
            self._waiting.append(turn)
            waiter.wait_turn(turn, waiter.monotonic_s() + _LONGEST_READ_S)
        self.require_open()
        self._is_reading = True
        try:
            return self._holder.run([(statement, values)], must_end=True)[0].rows()
        except StoreFailure as failure:
            self.expire()
            raise self._error_of(failure) from failure
        finally:
            self._is_reading = False
            waiting, self._waiting = self._waiting, []
            for turn in waiting:
                turn.notify()

    def close(self) -> None:
        if not self._is_reading:
            super().close()
