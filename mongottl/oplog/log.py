"""The oplog as it is read: entries by ascending numbers.

number   0 ········ first ─────────────────────────────────── end
         dropped    what can be read                           the next entry, or a later one

NumberedOplog      (`numbered`)     numbers have no gaps; an entry for each change of a unit of work
PositionedOplog    (`positioned`)   numbers are cluster times; what a unit has changed are parts of one number
"""

from abc import ABC, abstractmethod
from typing import Final

from mongottl.document.types import Timestamp
from mongottl.errors import CommandError, ErrorCode
from mongottl.oplog.entry import OplogEntry

# The number of the collection `local.oplog.rs`; also, getMores that wait for the oplog are woken by it.
OPLOG_NUMBER: Final = 0


def history_lost() -> CommandError:
    """ChangeStreamHistoryLost (286): entries that are asked for were dropped."""
    return CommandError(
        ErrorCode.ChangeStreamHistoryLost,
        "Resume of change stream was not possible, as the resume point may no longer be in the oplog.",
    )


class Oplog(ABC):
    """What change streams and readers of `local.oplog.rs` read."""

    @property
    @abstractmethod
    def first(self) -> int:
        """The number of the oldest entry, or a number before it that has none."""
        raise NotImplementedError

    @property
    @abstractmethod
    def end(self) -> int:
        """The number after those that can be read; of a store as of the last `refresh`."""
        raise NotImplementedError

    @property
    def must_look(self) -> bool:
        """Whether there may be entries before `end` for which nobody was woken who waits for them."""
        return False

    @property
    def following(self) -> int:
        """The number from which on what is written from now on is found."""
        return self.end

    def latest_write(self, own: Timestamp) -> tuple[int, int]:
        """The time of the latest write that is known. own: of this server."""
        return own.time, own.inc

    def time_of_snapshot(self, own: Timestamp) -> tuple[int, int]:
        """The cluster time of a snapshot that was taken just now, of which nobody reads another one at this time. own:
        of the latest write of this server before it."""
        return own.time, own.inc

    @property
    @abstractmethod
    def floor(self) -> tuple[int, int]:
        """Nothing at or before this cluster time can be read any more."""
        raise NotImplementedError

    @property
    @abstractmethod
    def latest(self) -> tuple[int, int]:
        """The cluster time of the last entry that can be read, or a later one before all that follow."""
        raise NotImplementedError

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        raise NotImplementedError

    @property
    @abstractmethod
    def count(self) -> int:
        """How many entries it has; of a store about how many."""
        raise NotImplementedError

    @property
    @abstractmethod
    def span_s(self) -> tuple[int, int]:
        """The seconds of the cluster times of the oldest entry and of the newest; zeros if there is none."""
        raise NotImplementedError

    def measure(self) -> None:
        """Has `size_bytes`, `count` and `span_s` know of what other servers have written and dropped. It may wait for a
        store."""
        return

    def refresh(self) -> None:
        """Has `end` and `following` say what can be read now. It may wait for a store."""
        return

    def seek(self, number: int) -> int:
        """The number of the first entry at or after a number; `end`, or the number itself if that is greater, if there
        is none. It may wait for a store."""
        return number

    @abstractmethod
    def entry(self, number: int) -> OplogEntry:
        """An entry by a number from `seek` that is before `end`. It may wait for a store; ChangeStreamHistoryLost (286)
        if others have dropped it meanwhile."""
        raise NotImplementedError

    @abstractmethod
    def described(self, number: int) -> OplogEntry:
        """The entry with its updates `described`."""
        raise NotImplementedError

    @abstractmethod
    def record_before(self, at: tuple[int, int]) -> int:
        """The id after which a forward scan of `local.oplog.rs` begins that looks for documents from a cluster time on:
        it finds the one before, too, as in mongod."""
        raise NotImplementedError

    @abstractmethod
    def record_after(self, at: tuple[int, int], last: tuple[int, int]) -> int:
        """The id after which a backward scan begins that looks for documents before a cluster time. last: the time
        right before."""
        raise NotImplementedError

    @abstractmethod
    def number_at(self, at: tuple[int, int]) -> int:
        """The number from which on entries are at or after a cluster time."""
        raise NotImplementedError
