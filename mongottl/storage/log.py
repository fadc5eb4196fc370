"""The log of an engine that several servers may write to: what units of work have changed, by position.

    unit of work ── log(form) … commit ──► its position, which is also its cluster time

    position   ················ floor │ first ─────────── horizon │ ── in flight ── position
               dropped                  may be read                 perhaps not committed yet

Positions ascend in the order in which conflicting units have committed, with gaps. A unit that has a position may still
be uncommitted when one with a later position is read already; so only what is at or before the horizon is read: no unit
can appear there any more.

An engine without one (`StorageEngine.log` is None) keeps its oplog in record stores.
"""

from abc import ABC, abstractmethod
from typing import Final, NamedTuple

from mypy_extensions import mypyc_attr

# Cluster times as positions: the seconds are above these bits, the increment in them. So all of their seconds, which
# end in 2106, fit into 63 bits; of the increments half, which is more than anybody can use in a second.
INCREMENT_BITS: Final = 31
_MOST_INCREMENTS: Final = (1 << INCREMENT_BITS) - 1
_LAST_SECOND: Final = (1 << 32) - 1


def position_of(seconds: int, increment: int) -> int:
    """The position of a cluster time."""
    return (min(seconds, _LAST_SECOND) << INCREMENT_BITS) + min(increment, _MOST_INCREMENTS)


def time_of(position: int) -> tuple[int, int]:
    """The cluster time of a position: seconds and increment."""
    return position >> INCREMENT_BITS, position & _MOST_INCREMENTS


class ExecutedStatement(NamedTuple):
    """Of a retryable write that a unit has executed: the id of its session, its number and that of its first statement
    in the unit. may_be_late: whether the session may have gone on to a higher number by way of another server."""

    lsid: bytes
    txn_number: int
    statement: int
    may_be_late: bool = True


class LogForm(NamedTuple):
    """What a unit puts in the log. form: stored as it is. not_before: the least position that it may get."""

    form: bytes
    not_before: int
    executed: ExecutedStatement | None = None


@mypyc_attr(allow_interpreted_subclasses=True)
class StoreLog(ABC):
    """All calls but the properties may wait. EngineUnavailable.

    floor: nothing at or before this position is there any more. horizon: as of the last `refresh`. position: the latest
    one that this server knows of. first_position: of the oldest form. size_bytes: of all forms; count: about how many.
    """

    floor: int
    first_position: int
    count: int
    horizon: int
    position: int
    size_bytes: int

    @abstractmethod
    def refresh(self) -> None:
        """Brings horizon and position up to date."""
        raise NotImplementedError

    @abstractmethod
    def reach_present(self) -> None:
        """The same, and waits until the horizon has passed all that was committed before, while units of that time are
        under way, but not long."""
        raise NotImplementedError

    @abstractmethod
    def take_position(self, not_before: int = 0) -> int:
        """A position after those of all that is committed, which nothing else has. not_before: the least that it may
        be."""
        raise NotImplementedError

    @abstractmethod
    def read(self, begin: int, end: int, limit: int, max_bytes: int, forward: bool = True) -> list[tuple[int, bytes]]:
        """The first forms from position `begin` to `end`, both inclusive, with their positions; with `forward=False`
        the last ones, descending. Fewer than `limit` and `max_bytes` are returned only at the end."""
        raise NotImplementedError

    @abstractmethod
    def read_statements(self, begin: int, limit: int) -> list[tuple[int, bytes]]:
        """The first forms from a position on that say of a retryable write what was executed."""
        raise NotImplementedError

    @abstractmethod
    def find_statements(self, lsid: bytes, txn_number: int) -> list[tuple[int, bytes]]:
        """All forms that say what was executed of one retryable write, by whatever server, with their positions; or of
        the latest one, if the session has gone on to a higher number."""
        raise NotImplementedError

    @abstractmethod
    def await_durability(self) -> None:
        """Returns when all that can be read is as durable as an acknowledged commit. What is read may not be: whoever
        waited until a standby has it may have been ended, or the store started again."""
        raise NotImplementedError

    @abstractmethod
    def count_up(self) -> None:
        """Adds up what units up to the horizon have changed, so that an opening of the engine has little to count."""
        raise NotImplementedError

    @abstractmethod
    def measure(self) -> None:
        """Finds out how many forms there are, and their bytes, where other servers write and drop some, too."""
        raise NotImplementedError

    @abstractmethod
    def trim(self, through: int, limit: int) -> int:
        """Drops the oldest forms, at most `limit`, up to a position at or before the horizon; how many they were."""
        raise NotImplementedError
