"""Units of work in memory: writes take effect at once, and a log of inverse operations undoes them.

All stores of an engine share one `MemoryUnits`, since one unit at a time is open. It knows no store: each logged write
can undo itself.
"""

from abc import ABC, abstractmethod
from typing import Final

from mypy_extensions import i64

from mongottl.document.freeing import put_aside_heavy
from mongottl.storage.errors import EngineUnavailable
from mongottl.storage.memory.contents import Contents
from mongottl.storage.unit_of_work import UnitOfWorkState

# A log of more writes, each of which may have hundreds of records or entries, is freed in slices.
_AT_ONCE: Final = 16


class Undo(ABC):
    """One logged write."""

    @abstractmethod
    def undo(self) -> None:
        """Undoes the write. All later writes of the unit have been undone before."""
        raise NotImplementedError


class MemoryUnits(UnitOfWorkState):
    """The state of the one unit of work that may be open, and the log that undoes its writes."""

    def __init__(self) -> None:
        super().__init__()
        self._closed = False
        self._log: list[Undo] = []
        # Record ids that were given last, and the number objects that the records hold.
        self._first_id: i64 = 0
        self._id_objects: list[object] = []
        self._last_epoch: i64 = 0
        # What no store and no saved state has any more, and is too large to be freed at once.
        self.released: list[Contents] = []

    def next_epoch(self) -> i64:
        """A new number for the blocks of a store that are not shared with what was saved or restored before."""
        self._last_epoch += 1
        return self._last_epoch

    def release(self, contents: Contents) -> None:
        """Notes that contents have one holder less; the last one leaves them to be freed."""
        contents.holders -= 1
        if contents.holders == 0:
            contents.lifetime.ended = True
            if not contents.is_small():
                self.released.append(contents)

    def note_ids(self, first: i64, objects: list[object]) -> None:
        """Remembers the number objects of new record ids, so that indexes can hold the same ones."""
        self._first_id = first
        self._id_objects = objects

    def id_object(self, record_id: i64) -> object:
        """A number object for a record id, if possible the one that its record holds; saves 32 bytes for each entry."""
        place = record_id - self._first_id
        objects = self._id_objects
        if 0 <= place < len(objects):
            return objects[place]
        return record_id

    def require_open(self) -> None:
        """Before every read. EngineUnavailable when the engine is closed."""
        if self._closed:
            raise EngineUnavailable(self.refusal)

    def close(self) -> None:
        """Refuses every read and unit of work from now on."""
        self._closed = True
        self.refusal = "the storage engine is closed"

    def log(self, undo: Undo) -> None:
        self._log.append(undo)

    def begin_writes(self) -> None:
        return None

    def commit_writes(self) -> None:
        if self._log:
            if len(self._log) > _AT_ONCE:
                put_aside_heavy(self._log)
            self._log = []

    def undo_writes(self) -> None:
        log = self._log
        self._log = []
        while log:
            log.pop().undo()
