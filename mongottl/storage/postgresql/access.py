"""How stores reach the database: reads see what the unit of work of the reader has written, else what is committed."""

from abc import ABC, abstractmethod

from mongottl.storage.postgresql.log import Counters
from mongottl.storage.postgresql.statements import Parameter, Statement
from mongottl.storage.postgresql.units import PostgresUnit, Row


class Access(ABC):
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
