"""Units of work in memory: writes take effect at once, and a log of inverse operations takes them back.

All stores of an engine share one `MemoryUnits`, since one unit at a time is open. It knows no store: what it logs knows
how to undo itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Final

from mypy_extensions import i64

from mongottl.storage.interface import EngineUnavailable, WriteConflict, WriteUnitOfWork

# States of the unit of work.
_NONE: Final = 0
_OPEN: Final = 1
_FAILED: Final = 2


class Undo(ABC):
    """One logged write."""

    @abstractmethod
    def undo(self) -> None:
        """Takes the write back. All later writes of the unit have been taken back before."""
        raise NotImplementedError


class MemoryUnits:
    """The state of the one unit of work that may be open."""

    def __init__(self) -> None:
        self.closed = False
        self.commit_count = 0
        self.rollback_count = 0
        self._state = _NONE
        self._log: list[Undo] = []
        self._commit_actions: list[Callable[[], None]] = []
        self._rollback_actions: list[Callable[[], None]] = []
        # Record ids that were given last, and the number objects that the records hold.
        self._first_id: i64 = 0
        self._id_objects: list[object] = []

    def note_ids(self, first: i64, objects: list[object]) -> None:
        """Remembers the number objects of new record ids, so that indexes can hold the same ones."""
        self._first_id = first
        self._id_objects = objects

    def id_object(self, record_id: i64) -> object:
        """A number object of a record id, if possible the one that its record has: 32 bytes saved for each entry."""
        place = record_id - self._first_id
        objects = self._id_objects
        if 0 <= place < len(objects):
            return objects[place]
        return record_id

    def require_open(self) -> None:
        """Before every read. EngineUnavailable when the engine is closed."""
        if self.closed:
            raise EngineUnavailable("the storage engine is closed")

    def require_unit(self) -> None:
        """Before every write."""
        if self._state != _OPEN:
            raise self._no_unit()

    def log(self, undo: Undo) -> None:
        self._log.append(undo)

    def conflict(self, message: str) -> Exception:
        """The WriteConflict to raise when a record is not as given; the unit of work can then only be rolled back."""
        self._state = _FAILED
        return WriteConflict(message)

    def in_unit(self) -> bool:
        return self._state != _NONE

    def begin(self) -> None:
        self.require_open()
        if self._state != _NONE:
            raise RuntimeError("units of work do not nest")
        self._state = _OPEN

    def commit(self) -> None:
        if self._state != _OPEN:
            raise self._no_unit()
        self._state = _NONE
        self.commit_count += 1
        if self._log:
            self._log = []
        if self._rollback_actions:
            self._rollback_actions = []
        if self._commit_actions:
            actions = self._commit_actions
            self._commit_actions = []
            for action in actions:
                action()

    def rollback(self) -> None:
        self._state = _NONE
        self.rollback_count += 1
        self._commit_actions = []
        log = self._log
        self._log = []
        actions = self._rollback_actions
        self._rollback_actions = []
        while log:
            log.pop().undo()
        for action in reversed(actions):
            action()

    def on_commit(self, action: Callable[[], None]) -> None:
        self._commit_actions.append(action)

    def on_rollback(self, action: Callable[[], None]) -> None:
        self._rollback_actions.append(action)

    def _no_unit(self) -> Exception:
        if self._state == _FAILED:
            return EngineUnavailable("the unit of work has failed and can only be rolled back")
        if self.closed:
            return EngineUnavailable("the storage engine is closed")
        return RuntimeError("a write outside a unit of work")


class MemoryUnitOfWork(WriteUnitOfWork):
    def __init__(self, units: MemoryUnits) -> None:
        self._units = units
        self._done = False

    def __enter__(self) -> WriteUnitOfWork:
        self._units.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._done and self._units.in_unit():
            self._units.rollback()

    def commit(self) -> None:
        # Set first: what the commit calls may fail, but the writes stand.
        self._done = True
        self._units.commit()

    def on_commit(self, action: Callable[[], None]) -> None:
        self._units.on_commit(action)

    def on_rollback(self, action: Callable[[], None]) -> None:
        self._units.on_rollback(action)
