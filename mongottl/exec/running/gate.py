"""The gate that statements of a batch pass one by one, as the commands know it."""

from abc import ABC, abstractmethod

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
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
