"""The data of a stopped server, as its engine keeps it: what `mongottl check` and `mongottl backup` read."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from mongottl.storage.interface import StorageEngine


class StoredData(ABC):
    """Stored data that is opened to be read; nothing in it is changed, and no server can use it meanwhile.

    engine: reads it; None before `structure_faults` has ended, and if that has found that it cannot be read.
    unreadable: idents of the stores with values of wrong types, which `structure_faults` has found.
    """

    engine: StorageEngine | None
    unreadable: set[str]

    @abstractmethod
    def structure_faults(self) -> Iterator[str]:
        """What is wrong with how the engine keeps its stores; opens `engine`."""
        raise NotImplementedError

    @abstractmethod
    def counter_faults(self) -> Iterator[str]:
        """What is wrong with the counters of record stores. After `structure_faults`."""
        raise NotImplementedError

    @abstractmethod
    def sum_faults(self) -> Iterator[str]:
        """The records whose checksums are wrong. After `structure_faults`."""
        raise NotImplementedError

    @abstractmethod
    def log_faults(self) -> Iterator[str]:
        """Why commits that were made cannot be read any more. To be called when something has been read."""
        raise NotImplementedError

    @abstractmethod
    def copy_to(self, path: str) -> None:
        """Copies the data, as an opening of the engine would read it, to a new file. EngineUnavailable."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Lets servers use the data again."""
        raise NotImplementedError
