"""Units of work: one is open at a time, and those that are waited for together are committed together.

    unit_of_work    waits until no unit is open, and nobody else holds (`turns`)
    writes          are kept, and sent with the next call whose answer is needed, or at the end
    reads           by who has begun the unit go the same way, so they see its writes; others read what is committed
    commit          the unit joins the group, whose COMMIT the first of the group sends as soon as nobody waits to begin
                    another unit, or the group is full

    BEGIN ┬─ unit ─┬─ SAVEPOINT unit RELEASE ─┬─ SAVEPOINT unit ROLLBACK TO ─┬─ counters COMMIT ──► all return, in order
          └── first of the group              └── who has waited meanwhile   └── one that has failed

So several clients share one write to PostgreSQL's log. What units change in memory is undone with them, those of a
whole group if its connection is lost. If that happens while COMMIT is under way, it is found out on a new connection
whether it was carried out, and all wait for that.
"""

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Final, final

from mongottl.document.interrupt import begin_undivided, end_undivided
from mongottl.errors import CommandError
from mongottl.storage.interface import (
    DiskFull,
    EngineUnavailable,
    StorageError,
    StoreUnreachable,
    UnitLost,
    WriteConflict,
    WriteUnitOfWork,
)
from mongottl.storage.postgresql.connection import Connection
from mongottl.storage.postgresql.failures import (
    BUSY,
    CONFLICT,
    DUPLICATE,
    FULL,
    GONE,
    LOCKED,
    READ_ONLY,
    UNEXPECTED,
    StoreFailure,
)
from mongottl.storage.postgresql.statements import INT4, INT8, Answer, Call, Parameter, Statement, int4, int8
from mongottl.storage.postgresql.turns import Turns

Row = tuple[Any, ...]

_BEGIN: Final = Statement("begin", "BEGIN")
_COMMIT: Final = Statement("commit", "COMMIT")
_ROLLBACK: Final = Statement("rollback_unit", "ROLLBACK")
_SAVEPOINT: Final = Statement("savepoint", "SAVEPOINT unit")
_RELEASE: Final = Statement("release", "RELEASE SAVEPOINT unit")
_UNDO: Final = Statement("undo", "ROLLBACK TO SAVEPOINT unit")
_ATTEMPT: Final = Statement("attempt", "SAVEPOINT attempt")
_END_ATTEMPT: Final = Statement("end_attempt", "RELEASE SAVEPOINT attempt")
_UNDO_ATTEMPT: Final = Statement("undo_attempt", "ROLLBACK TO SAVEPOINT attempt")
_COUNTERS: Final = Statement(
    "counters", "UPDATE stores SET next_id = $2, n = $3, bytes = $4 WHERE id = $1", (INT4, INT8, INT8, INT8)
)
_NUMBER: Final = Statement("number_commit", "UPDATE meta SET last_commit = $1", (INT8,))
_LAST_NUMBER: Final = Statement("last_commit", "SELECT last_commit FROM meta")
# What is kept of a unit's writes before it is sent.
_MOST_KEPT_BYTES: Final = 1 << 20
_MOST_KEPT: Final = 1000
# How many units are committed together, and how long the first of them waits for others, in seconds.
_MOST_UNITS: Final = 64
_GROUP_S: Final = 0.005
# Seconds between two attempts to find out whether a group was committed.
_RESOLVE_EVERY_S: Final = 0.25

# States of a unit.
_NEW: Final = 0
_OPEN: Final = 1
_FAILED: Final = 2
_GROUPED: Final = 3
_COMMITTED: Final = 4
_UNDONE: Final = 5

# Kinds of failures of a database that does not answer.
AWAY: Final = frozenset({GONE, READ_ONLY, BUSY})


class _Refused(Exception):
    """A unique index has a key that is written."""


def engine_error(failure: StoreFailure) -> StorageError:
    """The contract's error for a failure of the store."""
    if failure.kind in (CONFLICT, LOCKED):
        return WriteConflict(failure.message)
    if failure.kind == FULL:
        return DiskFull(failure.message)
    if failure.kind in AWAY:
        return StoreUnreachable(failure.message)
    return EngineUnavailable(failure.message)


@final
class Counters:
    """Of a record store: its number, the id that the next record gets, how many records it has and their bytes."""

    def __init__(self, store: int, next_id: int, count: int, size: int) -> None:
        self.store: Final = store
        self.next_id = next_id
        self.count = count
        self.size = size

    def copy(self) -> "Counters":
        return Counters(self.store, self.next_id, self.count, self.size)

    def take(self, other: "Counters") -> None:
        self.next_id = other.next_id
        self.count = other.count
        self.size = other.size


class PostgresUnit(WriteUnitOfWork):
    """One unit of work.

    undo: what brings memory back that the unit has changed. is_sent: whether PostgreSQL has got some of its writes.
    kept_at: where its writes begin among those that are kept. error: why it was undone with its group.
    """

    def __init__(self, units: "PostgresUnits") -> None:
        self._units = units
        self._suspended = False
        self.state = _NEW
        self.owner: object = None
        self.commit_actions: list[Callable[[], None]] = []
        self.rollback_actions: list[Callable[[], None]] = []
        self.undo: list[Callable[[], None]] = []
        self.after_commit: list[Callable[[], None]] = []
        self.touched: set[int] = set()
        self.has_savepoint = False
        self.is_sent = False
        self.kept_at = 0
        self.error: StorageError | None = None
        self.may_pass = False
        self.has_left = False

    def __enter__(self) -> WriteUnitOfWork:
        self._units.begin(self)
        self._suspended = begin_undivided()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.state in (_OPEN, _FAILED):
                self._units.roll_back(self)
        finally:
            end_undivided(self._suspended)

    def commit(self) -> None:
        self._units.commit(self)

    def on_commit(self, action: Callable[[], None]) -> None:
        self.commit_actions.append(action)

    def on_rollback(self, action: Callable[[], None]) -> None:
        self.rollback_actions.append(action)

    def undo_memory(self) -> None:
        """Brings memory back to what it was before the unit."""
        undo, self.undo = self.undo, []
        actions, self.rollback_actions = self.rollback_actions, []
        for action in [*reversed(undo), *reversed(actions)]:
            action()


@final
class PostgresUnits:
    """The units of work of one engine. turns: who may begin one. connect: opens the connection that writes.

    refusal: why no unit can be begun any more; empty while it can.
    """

    def __init__(self, connect: Callable[[], Connection], turns: Turns) -> None:
        self._connect: Final = connect
        self._turns: Final = turns
        turns.is_busy = self._is_busy
        turns.is_own = self._is_own
        self._connection: Connection | None = None
        self.commit_count = 0
        self.rollback_count = 0
        self.refusal = ""
        # The number of this opening of the database.
        self.epoch = 0
        self.commit_listener: Callable[[], None] | None = None
        self._open: PostgresUnit | None = None
        # Those that are to be committed together; whether their COMMIT is under way; how many have not returned yet.
        self._group: list[PostgresUnit] = []
        self._is_committing = False
        self._passing: list[PostgresUnit] = []
        self._is_connecting = False
        # Until when others may join the group.
        self._until_s = 0.0
        # Whether the connection has a transaction open.
        self._begun = False
        self._kept: list[Call] = []
        self._kept_bytes = 0
        # The counters as the group will leave them, and those that are committed.
        self._pending: dict[int, Counters] = {}
        self._committed: dict[int, Counters] = {}

    def _is_busy(self, joins: bool) -> bool:
        """Whether nobody can begin now. joins: whether who asks may join the group."""
        if self._open is not None:
            return not self.is_mine
        if self._is_committing or self._is_connecting or self._passing:
            return True
        return bool(self._group) and (not joins or self._is_full())

    def _is_own(self) -> bool:
        return self.is_mine

    def _is_full(self) -> bool:
        return len(self._group) >= _MOST_UNITS or self._turns.monotonic_s() >= self._until_s

    @property
    def is_mine(self) -> bool:
        """Whether who asks has begun the unit that is open."""
        return self._open is not None and self._open.owner is self._turns.present()

    def new_unit(self) -> PostgresUnit:
        """A unit for the caller, who waits here for its turn, and for a connection. StoreUnreachable."""
        self._turns.wait(joins=True)
        connection = self._connection
        if self._open is None and not self._group and (connection is None or not connection.is_alive):
            self._reconnect()
        return PostgresUnit(self)

    def use(self, connection: Connection) -> None:
        """Writes over a connection that is open already."""
        self._connection = connection

    def _reconnect(self) -> None:
        if self.refusal:
            raise EngineUnavailable(self.refusal)
        self._is_connecting = True
        try:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            self._begun = False
            self._connection = self._connect()
        except StoreFailure as failure:
            raise engine_error(failure) from failure
        finally:
            self._is_connecting = False
            self._turns.wake_next()

    # Within a unit

    def begin(self, unit: PostgresUnit) -> None:
        if self._open is not None:
            raise RuntimeError("units of work do not nest")
        if self.refusal:
            raise EngineUnavailable(self.refusal)
        self._turns.use()
        unit.owner = self._turns.present()
        unit.state = _OPEN
        unit.kept_at = len(self._kept)
        self._open = unit
        if self._group:
            unit.has_savepoint = True
            self._kept.append((_SAVEPOINT, ()))

    def require_unit(self) -> None:
        """Raises unless a unit of work is open: to be called before every write."""
        unit = self._open
        if unit is None or unit.state != _OPEN:
            raise self._no_unit(unit)

    def _no_unit(self, unit: PostgresUnit | None) -> Exception:
        if unit is not None and unit.state == _FAILED:
            return EngineUnavailable("the unit of work has failed and can only be rolled back")
        if self.refusal:
            return EngineUnavailable(self.refusal)
        return RuntimeError("a write outside a unit of work")

    def conflict(self, message: str) -> Exception:
        """The WriteConflict to raise when a record is not as given; the unit of work can then only be rolled back."""
        if self._open is not None:
            self._open.state = _FAILED
        return WriteConflict(message)

    def counters(self, committed: Counters) -> Counters:
        """The counters of a store as the caller sees them: those of the unit if it is the caller's."""
        return self._pending.get(committed.store, committed) if self.is_mine else committed

    def change(self, committed: Counters) -> Counters:
        """The counters of a store for the unit to change."""
        unit = self._open
        assert unit is not None
        store = committed.store
        found = self._pending.get(store)
        if store not in unit.touched:
            unit.touched.add(store)
            unit.undo.append(partial(self._restore, store, None if found is None else found.copy()))
        if found is None:
            found = committed.copy()
            self._pending[store] = found
            self._committed[store] = committed
        return found

    def _restore(self, store: int, before: Counters | None) -> None:
        if before is None:
            self._pending.pop(store, None)
        else:
            self._pending[store] = before

    def undo_by(self, action: Callable[[], None]) -> None:
        """Has memory that the unit has changed brought back by `action` if it does not commit."""
        assert self._open is not None
        self._open.undo.append(action)

    def after_commit(self, action: Callable[[], None]) -> None:
        """Has `action` change memory when the unit has committed, before anybody else goes on."""
        assert self._open is not None
        self._open.after_commit.append(action)

    def write(self, statement: Statement, *values: Parameter) -> None:
        """A write whose answer nobody needs: it is sent later."""
        self.require_unit()
        self._kept.append((statement, values))
        self._kept_bytes += sum([len(value) for value in values if value is not None])
        if self._kept_bytes >= _MOST_KEPT_BYTES or len(self._kept) >= _MOST_KEPT:
            self._send([])

    def ask(self, statement: Statement, *values: Parameter) -> list[Row]:
        """The rows of a call within the unit, after all that it has written."""
        return self._send([(statement, values)])[-1].rows()

    def attempt(self, statement: Statement, *values: Parameter) -> bool:
        """Carries out a write of the unit, after all that it has written. False if a unique index has a key of it: then
        nothing of this write is done, and the unit goes on."""
        self.require_unit()
        begun = len(self._kept) if self._begun else len(self._kept) + 1
        try:
            self._send([(_ATTEMPT, ()), (statement, values), (_END_ATTEMPT, ())], refused=begun + 1)
            return True
        except _Refused:
            self._send([(_UNDO_ATTEMPT, ()), (_END_ATTEMPT, ())])
            return False

    def _send(self, calls: list[Call], refused: int = -1) -> list[Answer]:
        """Sends what is kept, and calls of the unit that is open. refused: the call, among all that are sent, which may
        fail by a unique index: _Refused."""
        unit = self._open
        assert unit is not None
        unit.is_sent = True
        try:
            return self._exchange(calls)
        except StoreFailure as failure:
            if failure.kind == DUPLICATE and failure.call == refused:
                raise _Refused from None
            unit.state = _FAILED
            if self._connection is None or self._connection.is_lost:
                # Nothing of the group was committed, and can be done once more.
                self._fail_group(UnitLost(failure.message))
                if failure.kind in AWAY:
                    raise UnitLost(failure.message) from failure
            raise engine_error(failure) from failure

    def _exchange(self, calls: list[Call]) -> list[Answer]:
        connection = self._connection
        if connection is None:
            raise StoreFailure(GONE, "the connection that writes is lost")
        kept = self._kept
        self._kept = []
        self._kept_bytes = 0
        if not self._begun:
            kept.insert(0, (_BEGIN, ()))
            self._begun = True
        return connection.run([*kept, *calls], must_end=True)

    # The end of a unit

    def commit(self, unit: PostgresUnit) -> None:
        """Commits the unit with its group; returns after those that have committed before it."""
        if self._open is not unit or unit.state != _OPEN:
            raise self._no_unit(unit)
        if self.refusal:
            unit.state = _FAILED
            raise EngineUnavailable(self.refusal)
        self._open = None
        unit.state = _GROUPED
        if unit.has_savepoint:
            self._kept.append((_RELEASE, ()))
        group = self._group
        group.append(unit)
        try:
            if group[0] is unit:
                self._lead(unit)
            else:
                self._go_on()
                self._turns.wait_for(unit, lambda: unit.may_pass)
        except EngineUnavailable:
            # The operation was given up. What others of the group wait for is done without waiting.
            if unit.state == _GROUPED and self._open is None and not self._is_committing:
                self._commit_group()
        self._pass(unit)
        if unit.error is not None:
            raise unit.error
        self.commit_count += 1
        if self.commit_listener is not None:
            self.commit_listener()
        for action in unit.commit_actions:
            action()

    def _lead(self, unit: PostgresUnit) -> None:
        """Commits the group of which this unit is the first, with those who wait to begin another."""
        turns = self._turns
        if turns.has_joining and not turns.is_held and turns.present() is not None:
            self._until_s = turns.monotonic_s() + _GROUP_S
            turns.wake_next()
            turns.wait_for(unit, lambda: unit.state != _GROUPED or self._is_complete(), self._until_s)
        if unit.state == _GROUPED:
            self._commit_group()

    def _is_complete(self) -> bool:
        """Whether nobody else is going to join the group."""
        return self._open is None and (self._is_full() or not self._turns.has_joining)

    def _go_on(self) -> None:
        """After a unit that has joined a group, or has failed: the next one begins, or the group is committed."""
        if self._group and (self._is_full() or not self._turns.has_joining):
            self._turns.notify(self._group[0])
        else:
            self._turns.wake_next()

    def _commit_group(self) -> None:
        self._is_committing = True
        self._turns.use()
        group = self._group
        try:
            if self._begun or self._kept:
                for counters in self._pending.values():
                    numbers = (int8(counters.next_id), int8(counters.count), int8(counters.size))
                    self._kept.append((_COUNTERS, (int4(counters.store), *numbers)))
                if not self._has_inserted():
                    self._kept.append((_NUMBER, (int8(self._next_number),)))
                try:
                    if self._exchange([(_COMMIT, ())])[-1].tag != b"COMMIT":
                        # So PostgreSQL answers where a statement before has failed.
                        raise StoreFailure(UNEXPECTED, "the units were rolled back instead of committed")
                except StoreFailure as failure:
                    if not failure.may_be_committed:
                        self._abort(engine_error(failure), failure.kind in AWAY)
                        return
                    try:
                        if not self._was_committed():
                            self._abort(engine_error(failure), True)
                            return
                    except StoreFailure as unknown:
                        self.refusal = f"it is not known whether the last writes were committed: {unknown.message}"
                        self._abort(EngineUnavailable(self.refusal), False)
                        return
            self._begun = False
            for store, counters in self._pending.items():
                self._committed[store].take(counters)
            for unit in group:
                unit.state = _COMMITTED
                for action in unit.after_commit:
                    action()
        finally:
            self._end_group()

    def _has_inserted(self) -> bool:
        """Whether the group has given ids to records: then its counters are not those from before it."""
        return any(counters.next_id != self._committed[store].next_id for store, counters in self._pending.items())

    @property
    def _next_number(self) -> int:
        """By which a group is recognised in the database that has inserted no records."""
        return (self.epoch << 32) + self.commit_count + 1

    def _abort(self, error: StorageError, can_repeat: bool) -> None:
        """Undoes the group, whose COMMIT has failed. can_repeat: whether its units can be done once more."""
        self._fail_group(UnitLost(str(error)) if can_repeat else error)
        connection = self._connection
        if connection is not None and self._begun and not connection.settle((_ROLLBACK, ())):
            connection.close()
            self._connection = None
        self._begun = False

    def _was_committed(self) -> bool:
        """Whether the group was committed, though no answer has said so."""
        wanted = {store: (counters.next_id, counters.count, counters.size) for store, counters in self._pending.items()}
        while True:
            try:
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None
                self._connection = self._connect()
                if not self._has_inserted():
                    return bool(self._connection.run_one((_LAST_NUMBER, ())).value() == self._next_number)
                return self._has_counters(wanted)
            except StoreFailure as failure:
                # At the end of a server nobody waits for it.
                if failure.kind not in AWAY or self._turns.present() is None:
                    raise
            except CommandError:
                pass  # the operation was interrupted, but this has to be known
            self._turns.sleep(_RESOLVE_EVERY_S)

    def _has_counters(self, wanted: dict[int, tuple[int, int, int]]) -> bool:
        assert self._connection is not None
        found = self._connection.run_one((STORED_COUNTERS, ())).rows()
        stored = {store: (next_id, count, size) for store, next_id, count, size in found}
        return all(stored.get(store) == numbers for store, numbers in wanted.items())

    def _fail_group(self, error: StorageError) -> None:
        """Undoes in memory all units of the group, which were not committed."""
        if self._open is not None:
            self._open.undo_memory()
        for unit in reversed(self._group):
            unit.error = error
            unit.state = _UNDONE
            unit.undo_memory()
        if self._connection is not None and self._connection.is_lost:
            self._connection.close()
            self._connection = None
            self._begun = False
        self._kept = []
        self._kept_bytes = 0
        if not self._is_committing:
            self._end_group()

    def _end_group(self) -> None:
        """Lets the units of the group return, one after the other."""
        self._is_committing = False
        group = self._group
        self._group = []
        if self._open is None:
            self._pending = {}
            self._committed = {}
        self._passing = [unit for unit in group if not unit.has_left]
        if self._passing:
            self._passing[0].may_pass = True
            self._turns.notify(self._passing[0])

    def _pass(self, unit: PostgresUnit) -> None:
        """Lets the next one return as soon as the caller has done what follows its commit."""
        passing = self._passing
        if unit in passing:
            passing.remove(unit)
        else:  # its operation was given up while others commit it
            unit.has_left = True
        if passing:
            passing[0].may_pass = True
            self._turns.notify(passing[0])
        else:
            self._turns.wake_next()

    def roll_back(self, unit: PostgresUnit) -> None:
        """Undoes a unit that is open or has failed."""
        self.rollback_count += 1
        try:
            unit.undo_memory()
        finally:
            self._is_connecting = True  # nobody begins before it is undone in the database, too
            try:
                self._undo_in_database(unit)
            finally:
                self._is_connecting = False
                self._open = None
                unit.state = _UNDONE
                if not self._group:
                    self._pending = {}
                    self._committed = {}
                self._go_on()

    def _undo_in_database(self, unit: PostgresUnit) -> None:
        if not unit.is_sent:
            del self._kept[unit.kept_at :]
            return
        self._kept = []
        self._kept_bytes = 0
        if self._group and unit.has_savepoint:
            self._kept += [(_UNDO, ()), (_RELEASE, ())]
            return
        connection = self._connection
        if self._begun and connection is not None and not connection.settle((_ROLLBACK, ())):
            connection.close()  # which undoes it, too
            self._connection = None
        self._begun = False

    def close(self) -> None:
        """Refuses every unit of work from now on."""
        self.refusal = "the storage engine is closed"
        if self._connection is not None:
            self._connection.close()
            self._connection = None


STORED_COUNTERS: Final = Statement("stored_counters", "SELECT id, next_id, n, bytes FROM stores WHERE kind < 2")
