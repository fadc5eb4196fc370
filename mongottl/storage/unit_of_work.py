"""The state of an engine's one unit of work: open, committed, failed or rolled back, and the actions that follow.

    begin ──► open ──┬── commit ───► none     commit listener, then the unit's commit actions in the order given
                     ├── rollback ─► none     the unit's rollback actions, last given first
                     └── fail ─────► failed   only a rollback is possible

An engine derives from `UnitOfWorkState` and says how its writes begin, are committed and are undone. This module knows
no engine, store or record.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Final

from mypy_extensions import mypyc_attr

from mongottl.document.interrupt import begin_undivided, end_undivided
from mongottl.storage.errors import EngineUnavailable, WriteConflict
from mongottl.storage.interface import WriteUnitOfWork

# States of the unit of work.
NO_UNIT: Final = 0
OPEN: Final = 1
FAILED: Final = 2


@mypyc_attr(allow_interpreted_subclasses=True)
class UnitOfWorkState(ABC):
    """The one unit of work that an engine may have open, with its actions and the counts of commits and rollbacks."""

    def __init__(self) -> None:
        self.commit_count = 0
        self.rollback_count = 0
        # Why no unit of work can be begun or committed any more; empty while both are possible. Any thread may set it.
        self.refusal = ""
        # Called after every commit; see `StorageEngine.set_commit_listener`.
        self.commit_listener: Callable[[], None] | None = None
        self.state = NO_UNIT
        self._commit_actions: list[Callable[[], None]] = []
        self._rollback_actions: list[Callable[[], None]] = []

    @abstractmethod
    def begin_writes(self) -> None:
        """Prepares for the writes of a unit. If it raises, no unit has begun."""
        raise NotImplementedError

    @abstractmethod
    def commit_writes(self) -> None:
        """Commits what was written in the unit. If it raises, the unit has failed and can only be rolled back."""
        raise NotImplementedError

    @abstractmethod
    def undo_writes(self) -> None:
        """Undoes what was written in the unit. The rollback actions run even if it raises."""
        raise NotImplementedError

    def in_unit(self) -> bool:
        """Whether a unit of work is open or has failed without having been rolled back."""
        return self.state != NO_UNIT

    def require_unit(self) -> None:
        """Raises unless a unit of work is open: to be called before every write."""
        if self.state != OPEN:
            raise self.no_unit()

    def no_unit(self) -> Exception:
        """What to raise for a write, or a commit, while no unit of work is open."""
        if self.state == FAILED:
            return EngineUnavailable("the unit of work has failed and can only be rolled back")
        if self.refusal:
            return EngineUnavailable(self.refusal)
        return RuntimeError("a write outside a unit of work")

    def conflict(self, message: str) -> Exception:
        """The WriteConflict to raise when a record is not as given; the unit of work can then only be rolled back."""
        self.state = FAILED
        return WriteConflict(message)

    def begin(self) -> None:
        """Begins a unit of work. RuntimeError if there is one; EngineUnavailable."""
        if self.state != NO_UNIT:
            raise RuntimeError("units of work do not nest")
        if self.refusal:
            raise EngineUnavailable(self.refusal)
        self.begin_writes()
        self.state = OPEN

    def commit(self) -> None:
        """Commits the unit of work, then calls the listener and the commit actions."""
        if self.state != OPEN:
            raise self.no_unit()
        self.state = FAILED
        if self.refusal:
            raise EngineUnavailable(self.refusal)
        self.commit_writes()
        self.state = NO_UNIT
        self.commit_count += 1
        if self._rollback_actions:
            self._rollback_actions = []
        listener = self.commit_listener
        if listener is not None:
            listener()
        if self._commit_actions:
            actions = self._commit_actions
            self._commit_actions = []
            for action in actions:
                action()

    def rollback(self) -> None:
        """Undoes the open or failed unit of work, then calls the rollback actions."""
        self.state = NO_UNIT
        self.rollback_count += 1
        self._commit_actions = []
        actions = self._rollback_actions
        self._rollback_actions = []
        try:
            self.undo_writes()
        finally:
            for action in reversed(actions):
                action()

    def on_commit(self, action: Callable[[], None]) -> None:
        self._commit_actions.append(action)

    def on_rollback(self, action: Callable[[], None]) -> None:
        self._rollback_actions.append(action)


class EngineUnitOfWork(WriteUnitOfWork):
    """A unit of work of an engine that keeps its state in a `UnitOfWorkState`."""

    def __init__(self, state: UnitOfWorkState) -> None:
        self._state = state
        self._committed = False
        # Whether it has suspended an evaluation: what is written is written as a whole.
        self._suspended = False

    def __enter__(self) -> WriteUnitOfWork:
        self._state.begin()
        self._suspended = begin_undivided()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self._committed and self._state.in_unit():
                self._state.rollback()
        finally:
            end_undivided(self._suspended)

    def commit(self) -> None:
        self._state.commit()
        self._committed = True

    def on_commit(self, action: Callable[[], None]) -> None:
        self._state.on_commit(action)

    def on_rollback(self, action: Callable[[], None]) -> None:
        self._state.on_rollback(action)
