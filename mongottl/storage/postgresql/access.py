"""How stores reach the database: reads go the way of the unit of work that is open, if the reader has begun it, or else
over one of the connections for reading."""

from abc import ABC, abstractmethod

from mongottl.storage.postgresql.statements import Parameter, Statement
from mongottl.storage.postgresql.units import Counters, PostgresUnits, Row


class Access(ABC):
    """units: the unit of work, and its writes."""

    units: PostgresUnits

    @abstractmethod
    def read(self, statement: Statement, *values: Parameter) -> list[Row]:
        """The rows of a query. EngineUnavailable."""
        raise NotImplementedError

    @abstractmethod
    def counters(self, committed: Counters) -> Counters:
        """The counters of a record store as the caller sees them. EngineUnavailable if the engine is closed."""
        raise NotImplementedError
