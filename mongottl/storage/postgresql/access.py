"""How stores reach the database: reads see what the unit of work of the reader has written, else what is committed."""

from abc import ABC, abstractmethod
from typing import Final

from mongottl.storage.postgresql.log import Counters
from mongottl.storage.postgresql.statements import Parameter, Statement, int4
from mongottl.storage.postgresql.units import PostgresUnit, Row


class Access(ABC):
    """place: that of the rows of a store, where tables are distributed."""

    place: int | None = None

    @abstractmethod
    def require(self) -> PostgresUnit:
        """The unit of work of the caller, for its writes. An error unless it is open."""
        raise NotImplementedError

    @abstractmethod
    def read(self, statement: Statement, *values: Parameter) -> list[Row]:
        """The rows of a query. EngineUnavailable."""
        raise NotImplementedError

    @abstractmethod
    def counts(self, counters: Counters) -> tuple[int, int]:
        """The number and the bytes of a store's records as the caller sees them. EngineUnavailable if the engine is
        closed."""
        raise NotImplementedError

    def sees_others(self) -> bool:
        """Whether what other servers commit shows from one statement to the next."""
        return False

    def visit(self, place: int) -> None:  # noqa: B027  # there is one place only elsewhere
        """Called before rows of a place are read or written. SeveralPlaces."""

    def at(self, place: int | None) -> "Access":
        """The same for the store whose rows have this place; None where tables are not distributed."""
        return self if place is None else PlacedAccess(self, place)


class PlacedAccess(Access):
    """Reaches the rows of one place."""

    def __init__(self, inner: Access, place: int) -> None:
        self.place = place
        self._number: Final = place
        self._inner: Final = inner
        self._parameter: Final = int4(place)

    def require(self) -> PostgresUnit:
        unit = self._inner.require()
        self._inner.visit(self._number)
        unit.go_to(self._number)
        return unit

    def read(self, statement: Statement, *values: Parameter) -> list[Row]:
        self._inner.visit(self._number)
        placed = statement.placed
        if placed is None:
            return self._inner.read(statement, *values)
        return self._inner.read(placed, *values, self._parameter)

    def counts(self, counters: Counters) -> tuple[int, int]:
        return self._inner.counts(counters)
