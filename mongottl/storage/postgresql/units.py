"""The unit of work: a transaction of the one connection that writes.

    begin        takes the connection for itself; nothing is sent
    writes       are kept, and sent with the next call that needs its answer, or with the commit
    reads        by who has begun it go the same way, so they see its writes; others read what is committed
    commit       what is left, the counters of stores that have changed, COMMIT: one round trip

Who begins one while another is open waits until that has ended. PostgreSQL undoes a transaction whose connection ends.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final, final

from mongottl.storage.interface import DiskFull, EngineUnavailable, StorageError, WriteConflict
from mongottl.storage.postgresql.connection import Connection
from mongottl.storage.postgresql.failures import CONFLICT, FULL, LOCKED, StoreFailure
from mongottl.storage.postgresql.statements import INT4, INT8, Answer, Call, Parameter, Statement, int4, int8
from mongottl.storage.unit_of_work import FAILED, NO_UNIT, UnitOfWorkState
from mongottl.storage.waiting import Turn, Waiter

_BEGIN: Final = Statement("begin", "BEGIN")
_COMMIT: Final = Statement("commit", "COMMIT")
_ROLLBACK: Final = Statement("rollback", "ROLLBACK")
_COUNTERS: Final = Statement(
    "counters", "UPDATE stores SET next_id = $2, n = $3, bytes = $4 WHERE id = $1", (INT4, INT8, INT8, INT8)
)
Row = tuple[Any, ...]
# How long a unit waits for the one that is open, at a time, in seconds.
_TURN_S: Final = 60.0
# What is kept of a unit's writes before it is sent.
_MOST_KEPT_BYTES: Final = 1 << 20
_MOST_KEPT: Final = 1000


def engine_error(failure: StoreFailure) -> StorageError:
    """The contract's error for a failure of the store."""
    if failure.kind in (CONFLICT, LOCKED):
        return WriteConflict(failure.message)
    if failure.kind == FULL:
        return DiskFull(failure.message)
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


class PostgresUnits(UnitOfWorkState):
    """connect: opens a connection. waiter: waits for others to end their units. present: who runs now, None outside of
    operations."""

    def __init__(self, connect: Callable[[], Connection], waiter: Waiter, present: Callable[[], object]) -> None:
        super().__init__()
        self._connect: Final = connect
        self._waiter: Final = waiter
        self._present: Final = present
        self._connection: Connection | None = None
        self._owner: object = None
        # Who has no unit begin now.
        self._holder: object = None
        self._holds = 0
        # Whether one of them is that of `hold_still`.
        self._holds_still = False
        # Whether the connection has a transaction open.
        self._begun = False
        self._kept: list[Call] = []
        self._kept_bytes = 0
        self._changed: dict[int, Counters] = {}
        # What brings memory back to what is committed, the latest first.
        self._undo: list[Callable[[], None]] = []
        # The counters that are committed, with those of the unit that replace them.
        self._settling: list[tuple[Counters, Counters]] = []
        # Whether a unit is being undone.
        self._is_ending = False
        # What changes memory when the unit has committed, before anybody else goes on.
        self.after_commit: list[Callable[[], None]] = []
        self._waiting: deque[Turn] = deque()

    @property
    def is_mine(self) -> bool:
        """Whether who asks has begun the unit that is open."""
        return self.in_unit() and self._owner is self._present()

    def wait_until_free(self) -> None:
        """Waits while another operation has a unit of work. RuntimeError if it is the caller's own."""
        turn: Turn | None = None
        while self._is_taken:
            if self._present() is None:
                raise RuntimeError("outside of operations nobody can wait until another unit of work has ended")
            if turn is None:
                turn = self._waiter.new_turn()
                self._waiting.append(turn)
            else:  # somebody was faster
                turn = self._waiter.new_turn()
                self._waiting.appendleft(turn)
            try:
                while not self._waiter.wait_turn(turn, self._waiter.monotonic_s() + _TURN_S):
                    pass
            except BaseException:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                else:
                    self._wake_next()
                raise
        if turn is not None and self._waiting:
            # Who was woken may end without having begun anything.
            self._waiter.at_end_of_step(self._wake_if_free)

    def _wake_if_free(self) -> None:
        if not self._is_taken:
            self._wake_next()

    def hold(self) -> None:
        """Has no unit but the caller's own begin, and nobody else hold, until `let_go` was called as often."""
        self.wait_until_free()
        self._holder = self._present()
        self._holds += 1

    def let_go(self) -> None:
        self._holds -= 1
        if not self._holds:
            self._holder = None
            self._wake_next()

    def hold_still(self) -> None:
        """`hold` until the operation lets others run by itself."""
        if self._present() is not None and not self.is_mine:
            if self._holder is self._present() and self._holds_still:
                return
            self.hold()
            self._holds_still = True
            self._waiter.at_end_of_step(self._move)

    def _move(self) -> None:
        self._holds_still = False
        self.let_go()

    @property
    def _is_taken(self) -> bool:
        """Whether another operation has a unit of work open, or holds."""
        if self.in_unit() and not self.is_mine:
            return True
        return self._holder is not None and self._holder is not self._present()

    def in_unit(self) -> bool:
        return self.state != NO_UNIT or self._is_ending

    def begin_writes(self) -> None:
        if self._connection is None or not self._connection.is_ready:
            self._connection = self._connect()
        self._owner = self._present()

    def counters(self, committed: Counters) -> Counters:
        """The counters of a store as the caller sees them: those of the unit if it is the caller's."""
        return self._changed.get(committed.store, committed) if self.is_mine else committed

    def change(self, committed: Counters) -> Counters:
        """The counters of a store for the unit to change."""
        found = self._changed.get(committed.store)
        if found is None:
            found = committed.copy()
            self._changed[committed.store] = found
            self._settling.append((committed, found))
        return found

    def undo_by(self, action: Callable[[], None]) -> None:
        """Has memory that the unit has changed brought back by `action` if it does not commit."""
        self._undo.append(action)

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

    def _send(self, calls: list[Call]) -> list[Answer]:
        connection = self._connection
        assert connection is not None
        kept = self._kept
        self._kept = []
        self._kept_bytes = 0
        if not self._begun:
            kept.insert(0, (_BEGIN, ()))
            self._begun = True
        try:
            return connection.run([*kept, *calls], must_end=True)
        except StoreFailure as failure:
            self.state = FAILED
            raise engine_error(failure) from failure

    def commit_writes(self) -> None:
        for counters in self._changed.values():
            numbers = (int8(counters.next_id), int8(counters.count), int8(counters.size))
            self._kept.append((_COUNTERS, (int4(counters.store), *numbers)))
        if self._begun or self._kept:
            self._send([(_COMMIT, ())])
            self._begun = False
        for committed, changed in self._settling:
            committed.next_id, committed.count, committed.size = changed.next_id, changed.count, changed.size
        for action in self.after_commit:
            action()
        self._end()

    def undo_writes(self) -> None:
        undo = self._undo
        begun = self._begun
        self._begun = False
        self._is_ending = True
        try:
            for action in reversed(undo):
                action()
            connection = self._connection
            if begun and connection is not None and not connection.settle((_ROLLBACK, ())):
                connection.close()  # which undoes it, too
                self._connection = None
        finally:
            self._end()

    def close(self) -> None:
        """Refuses every unit of work from now on."""
        self.refusal = "the storage engine is closed"
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _end(self) -> None:
        self._is_ending = False
        self._kept = []
        self._kept_bytes = 0
        self._changed = {}
        self._settling = []
        self.after_commit = []
        self._undo = []
        self._owner = None
        self._wake_next()

    def _wake_next(self) -> None:
        if self._waiting:
            self._waiting.popleft().notify()
