"""Units of work: each has its own list of calls, and a connection from when PostgreSQL has to answer one of them.

    unit_of_work   waits until others allow it (`turns`)
    writes         are kept, and sent with the next call whose answer is needed, or at the end
    reads          by who has begun the unit see its writes, over its connection; others read what is committed
    commit         what is kept, the row of the oplog (`log`), COMMIT: one round trip

    a unit that needs no answers   insert … insert … oplog ─► Sync                     one exchange, on any connection
    one that compares before       BEGIN update ─► 1 row … entries … oplog COMMIT ─►   two, on the same

Several are open at once. PostgreSQL keeps them apart: a record is changed only as it was read (`records`), and a unique
key that another unit has inserted meanwhile fails at the commit, as a WriteConflict; the operation then repeats the
unit, which asks for each key this time, and finds out who has it.

What a unit changes in memory is undone with it. If its connection is lost while it is committed, it is found out on
another one whether it was, and the operation waits for that.
"""

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Final, final

from mongottl.document.interrupt import begin_undivided, end_undivided
from mongottl.errors import CommandError
from mongottl.storage.errors import (
    CatalogChanged,
    ClaimedByTransaction,
    ClaimOwner,
    DiskFull,
    EngineUnavailable,
    StatementExecuted,
    StorageError,
    StoreUnreachable,
    UnitLost,
    WriteConflict,
)
from mongottl.storage.interface import WriteUnitOfWork
from mongottl.storage.log import LogForm
from mongottl.storage.postgresql.connection import Connection
from mongottl.storage.postgresql.failures import (
    BUSY,
    CONFLICT,
    DUPLICATE,
    FENCE,
    FULL,
    GONE,
    LOCKED,
    OLD,
    OUT_OF_TIME,
    READ_ONLY,
    STALE_STATEMENT,
    UNEXPECTED,
    StoreFailure,
)
from mongottl.storage.postgresql.log import RAISE_AGAIN, Changes, Counters, PostgresLog, add_change
from mongottl.storage.postgresql.pool import ConnectionPool
from mongottl.storage.postgresql.schema import NAMESPACES_INDEX, RETRIES_INDEX
from mongottl.storage.postgresql.statements import INT4, INT8, PATIENT, Answer, Call, Parameter, Statement, int4, int8
from mongottl.storage.postgresql.turns import Turns

Row = tuple[Any, ...]

_BEGIN: Final = Statement("begin", "BEGIN")
_COMMIT: Final = Statement("commit", "COMMIT")
_UNSYNCED: Final = Statement("unsynced", "SELECT set_config('synchronous_commit', 'off', true)")
_ATTEMPT: Final = Statement("attempt", "SAVEPOINT attempt")
_END_ATTEMPT: Final = Statement("end_attempt", "RELEASE SAVEPOINT attempt")
_UNDO_ATTEMPT: Final = Statement("undo_attempt", "ROLLBACK TO SAVEPOINT attempt")
_IMPATIENT: Final = Statement("impatient", "SELECT set_config('lock_timeout', '20', true)")
# Citus sends this one to all machines of the transaction.
_IMPATIENT_EVERYWHERE: Final = Statement("impatient_everywhere", "SET LOCAL lock_timeout = '20ms'")
_SHORT_WAITS: Final = Statement("short_waits", "SET LOCAL lock_timeout = '5ms'")
_EXCLUDE: Final = Statement("exclude_others", "SELECT FROM stores WHERE id = $1 FOR UPDATE", (INT4,))
# Until its end nobody changes the catalog, which must have the version that is known; who is about to is waited for.
_HOLD_CATALOG: Final = Statement("hold_catalog", "SELECT 1 / (epoch <= $1)::int FROM meta FOR SHARE", (INT8,))
_TAKE_IDS: Final = Statement(
    "take_ids", "UPDATE stores SET next_id = next_id + $2 WHERE id = $1 RETURNING next_id", (INT4, INT8)
)
# What is kept of a unit's writes before it is sent.
_MOST_KEPT_BYTES: Final = 1 << 20
_MOST_KEPT: Final = 1000

# Rows of the catalog that are taken over between two pauses: 2 milliseconds or so.
ROWS_AT_ONCE: Final = 1000

# The version of the catalog that what a transaction has changed there has at first: later than all others.
UNKNOWN_EPOCH: Final = 1 << 62

# States of a unit.
_NEW: Final = 0
_OPEN: Final = 1
_FAILED: Final = 2
_ENDED: Final = 3

# Kinds of failures of a database that does not answer, or not in time.
AWAY: Final = frozenset({GONE, READ_ONLY, BUSY, STALE_STATEMENT, OUT_OF_TIME})


class _Refused(Exception):
    """A unique index has a key that is written."""


def _nothing() -> None:
    pass


def nobody() -> ClaimOwner | None:
    return None


def engine_error(failure: StoreFailure) -> StorageError:
    """The contract's error for a failure of the store."""
    if failure.kind in (CONFLICT, LOCKED, DUPLICATE):
        return WriteConflict(failure.message)
    if failure.kind == FULL:
        return DiskFull(failure.message)
    if failure.kind in AWAY:
        return StoreUnreachable(failure.message)
    return EngineUnavailable(failure.message)


class PostgresUnit(WriteUnitOfWork):
    """One unit of work. alone: whether no other is open meanwhile. changes_catalog: whether it raises its version.
    closes: whether it drops collections, or gives them names, so that nobody may log a write to them after it.
    exclusive_store: the record store that it holds other servers off, 0 for none.

    undo: what brings memory back that the unit has changed. changed: by how many records and bytes it has changed each
    store. forms: what it puts in the oplog, the first `forms_before_kept` before what its transaction has kept there
    (`kept_form_bytes`), with `kept_ends`, the others after it. asks_for_keys: whether it asks PostgreSQL for each
    unique key before the commit. awaits_catalog: it waits until nobody changes the catalog.
    """

    def __init__(self, units: "PostgresUnits", alone: bool) -> None:
        self._units = units
        self._suspended = False
        self._has_turn = True
        self.alone = alone
        self.owner: object = units.turns.present()
        self.state = _NEW
        self.position = 0
        self.commit_actions: list[Callable[[], None]] = []
        self.rollback_actions: list[Callable[[], None]] = []
        self.undo: list[Callable[[], None]] = []
        self.before_commit: list[Callable[[], None]] = []
        self.after_commit: list[Callable[[], None]] = []
        self.changed: Changes = {}
        self.forms: list[LogForm] = []
        self.kept_ends: list[bytes] = []
        self.forms_before_kept = 0
        self.kept_form_bytes = 0
        self.asks_for_keys = alone
        self.awaits_catalog = False
        self.changes_catalog = False
        self.closes = False
        self.exclusive_store = 0
        # Where tables are distributed: the place of what it writes next, and where its rows of the oplog are.
        self._place: bytes | None = None
        self.log_place = 0
        self._connection: Connection | None = None
        self._kept: list[Call] = []
        self._kept_bytes = 0

    def __enter__(self) -> WriteUnitOfWork:
        if not self._has_turn:
            # Others have run since it was asked for.
            if not self._units.turns.try_begin(self.alone):
                raise WriteConflict("another unit of work was begun meanwhile")
            self._has_turn = True
        self._units.begin(self)
        self._suspended = begin_undivided()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.state != _ENDED:
                self._units.roll_back(self)
        finally:
            end_undivided(self._suspended)

    def forget_turn(self) -> None:
        """Gives its turn back, unless it was begun."""
        if self.state == _NEW and self._has_turn:
            self.forget()

    def forget(self) -> None:
        """Ends it before it was begun."""
        try:
            self.give_back_connection()
        finally:
            self.give_back_turn()

    def give_back_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._units.turns.end(self.owner, self.alone)

    def commit(self) -> None:
        self._units.commit(self)

    def on_commit(self, action: Callable[[], None]) -> None:
        self.commit_actions.append(action)

    def on_rollback(self, action: Callable[[], None]) -> None:
        self.rollback_actions.append(action)

    def log(self, form: LogForm) -> None:
        self.forms.append(form)

    # For the stores

    def visit(self, place: int) -> None:
        """Called before rows of a place are read or written. SeveralPlaces."""

    def go_to(self, place: int) -> None:
        """Has what is written next concern rows of this place, where tables are distributed."""
        self._place = int4(place)
        self.log_place = self.log_place or place

    def _located(self, statement: Statement, values: tuple[Parameter, ...]) -> Call:
        """A call with the place of the unit, where it has to have one."""
        if statement.placed is None or self._place is None:
            return statement, values
        return statement.placed, (*values, self._place)

    def count_change(self, counters: Counters, count: int, size: int) -> None:
        """Notes by how many records and bytes a store is changed."""
        add_change(self.changed, counters, count, size)

    def change_catalog(self) -> None:
        """To be called before each change of catalog entries or of the list of stores."""
        if not self.changes_catalog:
            if not self.alone:
                raise RuntimeError("the catalog is changed beside other units of work")
            self.changes_catalog = True
            self._raise_epoch()

    @property
    def catalog_epoch(self) -> int:
        """The version of the catalog that its changes get."""
        return self._units.log.epoch + 1

    def _raise_epoch(self) -> None:
        # First, so that two that change the catalog wait for each other before they have locked anything else.
        self._kept[:0] = self._units.log.raise_epoch()

    def exclude_others(self, store: int) -> None:
        """To be called before its first call: no other unit that has called it for this store goes on until its end."""
        self.exclusive_store = store
        self._kept.append((_EXCLUDE, (int4(store),)))

    def take_ids(self, count: int) -> list[int]:
        """Ids for new records of that store, which nobody else has leased. CatalogChanged if it was dropped."""
        taken = self.ask(_TAKE_IDS, int4(self.exclusive_store), int8(count))
        if not taken:
            self.state = _FAILED
            raise self._units.store_is_gone()
        following = int(taken[0][0])
        return list(range(following - count, following))

    def mark_failed(self) -> None:
        """From now on it can only be rolled back."""
        self.state = _FAILED

    @property
    def has_kept(self) -> bool:
        """Whether it has writes that PostgreSQL has not got yet."""
        return bool(self._kept)

    def fail(self, message: str) -> Exception:
        """The WriteConflict to raise when a record is not as given; the unit can then only be rolled back."""
        self.state = _FAILED
        return WriteConflict(message)

    def pause(self) -> None:
        """To be called between two parts of what takes long: it does not wait for PostgreSQL, nor begin anything."""
        self._units.pause()

    def write(self, statement: Statement, *values: Parameter) -> None:
        """A write whose answer nobody needs: it is sent later."""
        self._kept.append((statement, values) if self._place is None else self._located(statement, values))
        self._kept_bytes += sum([len(value) for value in values if value is not None])
        if self._kept_bytes >= _MOST_KEPT_BYTES or len(self._kept) >= _MOST_KEPT:
            self._send([])

    def ask(self, statement: Statement, *values: Parameter) -> list[Row]:
        """The rows of a call within the unit, after all that it has written."""
        call = (statement, values) if self._place is None else self._located(statement, values)
        return self._send([call])[-1].rows()

    def ask_last(self, calls: list[Call]) -> list[Row]:
        """The rows of the last one of several calls right before its commit."""
        return self._send(calls)[-1].rows()

    def attempt(self, statement: Statement, *values: Parameter) -> bool:
        """Carries out a write, after all that it has written. False if a unique index has a key of it: then nothing of
        this write is done, and the unit goes on."""
        try:
            call = self._located(statement, values)
            self._send([(_ATTEMPT, ()), call, (_END_ATTEMPT, ())], refused=1)
            return True
        except _Refused:
            self._send([(_UNDO_ATTEMPT, ()), (_END_ATTEMPT, ())])
            return False

    @property
    def has_written(self) -> bool:
        """Whether it has writes that others cannot see."""
        return bool(self._kept) or self._connection is not None

    def _send(self, calls: list[Call], refused: int = -1) -> list[Answer]:
        """Sends what is kept, and more calls. refused: the one of these which may fail by a unique index: _Refused."""
        self.pause()
        kept = self._kept
        self._kept = []
        self._kept_bytes = 0
        try:
            connection = self._connection
            if connection is None:
                kept = [(_BEGIN, ()), *self._units.first_calls(), *kept]
                connection = self._connection = self._units.pool.acquire()
            return connection.run([*kept, *calls], must_end=True)
        except StoreFailure as failure:
            if failure.kind == DUPLICATE and refused >= 0 and failure.call == len(kept) + refused:
                raise _Refused from None
            self.state = _FAILED
            raise self._units.error_of(failure, self) from failure

    def take_kept(self) -> list[Call]:
        kept = self._kept
        self._kept = []
        return kept

    @property
    def connection(self) -> Connection | None:
        """The connection with its transaction; None as long as PostgreSQL has got none of its calls."""
        return self._connection

    def give_back_connection(self) -> None:
        """Its transaction ends with that, unless it has ended."""
        connection = self._connection
        if connection is not None:
            self._connection = None
            self._units.pool.release(connection)

    def undo_memory(self) -> None:
        """Brings memory back to what it was before the unit."""
        undo, self.undo = self.undo, []
        actions, self.rollback_actions = self.rollback_actions, []
        for action in [*reversed(undo), *reversed(actions)]:
            action()


@final
class PostgresUnits:
    """The units of work of one engine. pool: their connections. log: the oplog. turns: who may begin one.

    refusal: why no unit can be committed any more; empty while it can. epoch: the number of this opening of the
    database, without which nothing is committed.
    """

    def __init__(self, pool: ConnectionPool, log: PostgresLog, turns: Turns) -> None:
        self.pool: Final = pool
        self.log: Final = log
        self.turns: Final = turns
        self.commit_count = 0
        self.rollback_count = 0
        self.refusal = ""
        # Whether tables are distributed: a unit of several statements is then one only between BEGIN and COMMIT.
        self.is_distributed = False
        self.commit_listener: Callable[[], None] | None = None
        # See `StorageEngine.set_pause`.
        self.pause: Callable[[], None] = _nothing
        # Where the database is shared with other servers: called after each commit; and whether the catalog that is in
        # memory is known to be old.
        self.on_commit: Callable[[PostgresUnit], None] | None = None
        self.is_stale = False
        # The version with which others know what was changed when it had to be raised again.
        self.raised_again = 0
        self._open: dict[object, PostgresUnit] = {}
        # Operations whose last unit has met a key that another one has: the next one asks.
        self._careful: set[object] = set()
        # Operations whose last unit was overtaken by a change of the catalog: the next one holds that off.
        self._overtaken: set[object] = set()
        self._number = 0
        # Who of this server may have a row or key that a unit has waited for in vain, and who of others.
        self.claimant: Callable[[], ClaimOwner | None] = nobody
        self.stranger: Callable[[], ClaimOwner | None] = nobody
        # Operations whose last unit has met what somebody of another server has; and what is called when one of them
        # has got through at last, since others of them may, too.
        self._held_off: set[object] = set()
        self.on_passage: Callable[[], None] | None = None
        # Units that were asked for and not begun, by who has.
        self._asked: dict[object, PostgresUnit] = {}
        turns.on_wait = self.forget_asked

    def forget_asked(self) -> None:
        """Gives the turn back that the caller has got for a unit which it has not begun."""
        unit = self._asked.pop(self.turns.present(), None)
        if unit is not None:
            unit.forget_turn()

    def first_calls(self) -> list[Call]:
        """What a unit begins with: it does not wait for transactions that their clients leave open, while it holds
        one of few connections."""
        if self.claimant() is None:
            return []
        return [(_IMPATIENT_EVERYWHERE if self.is_distributed else _IMPATIENT, ())]

    def first_calls_of_transaction(self) -> list[Call]:
        """What a transaction begins with. The connection's own `lock_timeout` holds at the coordinator only."""
        return [(_BEGIN, ()), (_SHORT_WAITS, ())] if self.is_distributed else [(_BEGIN, ())]

    def new_unit(self, alone: bool) -> PostgresUnit:
        """A unit for the caller, who waits here until it can begin."""
        turns = self.turns
        alone = alone or turns.is_alone
        turns.begin(alone)
        self.forget_asked()
        unit = self._asked[turns.present()] = PostgresUnit(self, alone)
        turns.at_end_of_step(partial(self._end_step, unit))
        return unit

    def hold_catalog(self, unit: PostgresUnit) -> bool:
        """Has no other server change the catalog before the end of a new unit, if the last one of its operation was
        overtaken so: else a long one might never be committed beside many changes. Not for one that is to change the
        catalog itself. False if that in memory is old: then there is no unit."""
        owner = unit.owner
        if owner not in self._overtaken or self.is_distributed:
            return True
        self._asked.pop(owner, None)  # it keeps its turn while it waits
        try:
            unit.awaits_catalog = True
            unit.ask(_HOLD_CATALOG, int8(self.log.epoch))
        except CatalogChanged:
            unit.forget()
            return False
        except BaseException:
            unit.forget()
            raise
        unit.awaits_catalog = False
        self._overtaken.discard(owner)
        self._asked[owner] = unit
        return True

    def _end_step(self, unit: PostgresUnit) -> None:
        if self._asked.get(unit.owner) is unit:
            del self._asked[unit.owner]
        unit.forget_turn()

    def begin(self, unit: PostgresUnit) -> None:
        owner = unit.owner
        if owner in self._open:
            raise RuntimeError("units of work do not nest")
        if self.refusal:
            unit.give_back_turn()
            raise EngineUnavailable(self.refusal)
        if owner in self._careful:
            self._careful.discard(owner)
            unit.asks_for_keys = True
        unit.state = _OPEN
        self._open[owner] = unit
        if self._asked.get(owner) is unit:
            del self._asked[owner]

    def own(self) -> PostgresUnit | None:
        """The unit that who asks has begun."""
        return self._open.get(self.turns.present())

    def require(self) -> PostgresUnit:
        """The unit of the caller: to be called before every write. An error unless it is open."""
        unit = self._open.get(self.turns.present())
        if unit is None or unit.state != _OPEN:
            raise self._no_unit(unit)
        return unit

    def _no_unit(self, unit: PostgresUnit | None) -> Exception:
        if unit is not None and unit.state == _FAILED:
            return EngineUnavailable("the unit of work has failed and can only be rolled back")
        if self.refusal:
            return EngineUnavailable(self.refusal)
        return RuntimeError("a write outside a unit of work")

    def error_of(self, failure: StoreFailure, unit: PostgresUnit) -> StorageError:
        """What a unit fails with that was certainly not committed."""
        if failure.kind == DUPLICATE:
            if failure.constraint == RETRIES_INDEX and self.on_commit is not None:
                return StatementExecuted("another server has executed the statement")
            if failure.constraint == NAMESPACES_INDEX and self.on_commit is not None:
                self.is_stale = True
                return CatalogChanged("another server has given the name to another collection")
            self._careful.add(unit.owner)
        elif failure.kind == LOCKED and unit.awaits_catalog:
            self._overtaken.add(unit.owner)
            return CatalogChanged("another server changes the catalog")
        elif failure.kind == LOCKED:
            claimant = self.claimant()
            if claimant is None:
                claimant = self.stranger()
                if claimant is not None:
                    self._held_off.add(unit.owner)
            if claimant is not None:
                return ClaimedByTransaction(claimant)
        elif failure.kind == OLD:
            return StatementExecuted("another server has executed a later write of the session")
        elif failure.kind == FENCE:
            if self.on_commit is not None:
                self.is_stale = True
                self._overtaken.add(unit.owner)
                return CatalogChanged("another server has changed the catalog")
            self.refuse_for_good()
            return EngineUnavailable(self.refusal)
        elif failure.kind in AWAY and unit.connection is not None:
            return UnitLost(failure.message)  # it can be done once more, on another connection
        return engine_error(failure)

    def store_is_gone(self) -> CatalogChanged:
        """What is raised where another server has dropped a store."""
        self.is_stale = True
        return CatalogChanged("another server has dropped the collection")

    def commit(self, unit: PostgresUnit) -> None:
        """Commits the unit. WriteConflict and other errors: nothing of it is committed."""
        if unit.state != _OPEN:
            raise self._no_unit(unit)
        for action in unit.before_commit:
            action()
        if not self.is_distributed:
            self._commit_open(unit)
            return
        committing = self.log.committing
        committing.add(unit)
        try:
            self._commit_open(unit)
        finally:
            if not self.refusal:  # else it may not be known whether it was committed
                committing.discard(unit)

    def _commit_open(self, unit: PostgresUnit) -> None:
        self.pause()
        positions = self._take_positions(unit) if self.is_distributed else None
        unit.state = _FAILED
        if self.refusal:
            raise EngineUnavailable(self.refusal)
        calls = unit.take_kept()
        if calls or unit.connection is not None or unit.changed or unit.forms:
            self._number += 1
            number = self._number
            before = self.log.position
            if unit.unsynced:
                calls.insert(0, (_UNSYNCED, ()))
            epoch = self.log.epoch + unit.changes_catalog
            if unit.closes and self.on_commit is not None:
                calls.append(self.log.close_epoch(epoch))
            if positions is None:
                calls += self.log.append_calls(
                    number, epoch, unit.forms, unit.changed, unit.kept_ends, unit.forms_before_kept, unit.log_place
                )
            else:
                calls += self.log.placed_calls(number, *positions, unit.forms, unit.changed, unit.log_place)
            try:
                unit.position = self._commit(unit, calls)
            except StoreFailure as failure:
                if not failure.may_be_committed:
                    raise self.error_of(failure, unit) from failure
                unit.position = self._resolve(number, before, failure)
                if not unit.position:
                    raise UnitLost(failure.message) from failure
        for counters, (count, size) in unit.changed.items():
            counters.count += count
            counters.size += size
        if unit.changes_catalog:
            self.log.note_raise()
        for action in unit.after_commit:
            action()
        self.end(unit)
        self.commit_count += 1
        self.log.note_commit(unit.position, unit.forms, len(unit.kept_ends), unit.kept_form_bytes)
        if self.on_commit is not None:
            self.on_commit(unit)
        if self._held_off and unit.owner in self._held_off and self.on_passage is not None:
            self._held_off.clear()
            self.on_passage()
        if self.commit_listener is not None:
            self.commit_listener()
        for action in unit.commit_actions:
            action()

    def _commit(self, unit: PostgresUnit, calls: list[Call]) -> int:
        """Sends the last calls of a unit and commits it; its position in the oplog."""
        connection = unit.connection
        if self.is_distributed:
            return self._commit_distributed(connection, calls)
        if connection is None:
            return int(self.pool.write([*self.first_calls(), *calls])[-1].value())
        calls.append((_COMMIT, ()))
        answers = connection.run(calls, must_end=True)
        if answers[-1].tag != b"COMMIT":
            # So PostgreSQL answers where a statement before has failed.
            raise StoreFailure(UNEXPECTED, "the unit was rolled back instead of committed")
        return int(answers[-2].value())

    def _take_positions(self, unit: PostgresUnit) -> tuple[str, int] | None:
        """The number of its transaction and the first position of a unit that has several rows of the oplog; None for
        another one."""
        if unit.kept_ends:
            return None
        calls = self.log.position_calls(self.log.epoch + unit.changes_catalog, unit.forms, unit.changed)
        if not calls:
            return None
        [(xid, first)] = unit.ask_last(calls)
        return xid, first

    def _commit_distributed(self, connection: Connection | None, calls: list[Call]) -> int:
        """The same where tables are distributed: each unit has BEGIN and COMMIT."""
        calls.append((_COMMIT, ()))
        if connection is None:
            calls = [(_BEGIN, ()), *self.first_calls(), *calls]
        try:
            if connection is None:
                answers = self.pool.write(calls, commit=len(calls) - 1)
            else:
                answers = connection.run(calls, must_end=True)
        except StoreFailure as failure:
            # A machine may have committed its part before the COMMIT failed.
            failure.may_be_committed = failure.may_be_committed or failure.call == len(calls) - 1
            raise
        if answers[-1].tag != b"COMMIT":
            raise StoreFailure(UNEXPECTED, "the unit was rolled back instead of committed")
        return max(int(position) for (position,) in answers[-2].rows())

    def _resolve(self, number: int, before: int, failure: StoreFailure) -> int:
        """The position of a unit for whose commit there was no answer; 0 if it was not committed."""
        while True:
            try:
                return self.log.find_commit(number, before)
            except StoreFailure as unknown:
                # At the end of a server nobody waits for it.
                if unknown.kind not in AWAY or self.turns.present() is None:
                    self.refusal = f"it is not known whether the last writes were committed: {unknown.message}"
                    raise EngineUnavailable(self.refusal) from failure
            except CommandError:
                pass  # the operation was interrupted, but this has to be known

    def raise_again(self) -> None:
        """Called when it is not known whether the version of the catalog was raised for a unit that is committed."""
        while True:
            try:
                raised = self.pool.write([PATIENT, (RAISE_AGAIN, ())])[-1].value()
                if self.on_commit is None:
                    self.log.epoch = raised
                self.is_stale = self.on_commit is not None
                self.raised_again = raised
                return
            except StoreFailure as unknown:
                is_passing = unknown.kind == LOCKED or unknown.kind in AWAY
                if not unknown.may_be_committed and not (is_passing and self.turns.present() is not None):
                    self.refusal = f"it is not known which version the catalog has: {unknown.message}"
                    return
            except CommandError:
                pass  # the operation was interrupted, but this has to be known

    def suspend(self, owner: object) -> PostgresUnit | None:
        """Has the open unit of an operation left out until `resume`, so that it can begin another one."""
        return self._open.pop(owner, None)

    def resume(self, unit: PostgresUnit | None) -> None:
        if unit is not None:
            self._open[unit.owner] = unit

    def end(self, unit: PostgresUnit) -> None:
        """Called when a unit has been committed or undone."""
        unit.state = _ENDED
        del self._open[unit.owner]
        try:
            unit.give_back_connection()
        finally:
            unit.give_back_turn()

    def roll_back(self, unit: PostgresUnit) -> None:
        """Undoes a unit that is open or has failed."""
        self.rollback_count += 1
        try:
            unit.undo_memory()
        finally:
            self.end(unit)

    def refuse_for_good(self) -> None:
        """Called when another server has opened the database."""
        self.refusal = "another server has used the data meanwhile; start this one again"

    def close(self) -> None:
        """Refuses every unit of work from now on."""
        self.refusal = "the storage engine is closed"
