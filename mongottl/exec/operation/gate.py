"""The gate that statements of a batch pass one by one, as the commands know it (`statement_gate`)."""

from abc import ABC, abstractmethod


class Gate(ABC):
    @abstractmethod
    def admit(self, index: int) -> None:
        """Returns when the statement at this position may be executed. CommandError if it is refused."""
        raise NotImplementedError

    @abstractmethod
    def go_on(self) -> None:
        """Returns when a statement that has written a part of its documents may go on. CommandError if it takes too
        long."""
        raise NotImplementedError
