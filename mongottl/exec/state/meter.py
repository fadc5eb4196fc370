"""What counts the cost of one operation, as the rest of the server knows it: dialects whose requests cost something
have one (`OperationContext.cost`)."""

from abc import ABC, abstractmethod

from mypy_extensions import mypyc_attr

from mongottl.catalog.collection import Collection


@mypyc_attr(allow_interpreted_subclasses=True)
class Meter(ABC):
    """paused: whether reads are not counted: those of candidate plans that are tried. by_key: whether one document is
    searched by `_id` and shard key."""

    def __init__(self) -> None:
        self.paused = False
        self.by_key = False

    @abstractmethod
    def begin_search(self) -> None:
        """Called when the plan of a statement is opened: if it reads, the search is a query of its own."""
        raise NotImplementedError

    @abstractmethod
    def load_bytes(self, size_bytes: int) -> None:
        """Counts documents that an operation answers for without reading them."""
        raise NotImplementedError

    @abstractmethod
    def insert(self, collection: Collection, documents: list[bytes]) -> None:
        """Counts inserted documents."""
        raise NotImplementedError

    @abstractmethod
    def update(self, collection: Collection, before: list[bytes], after: list[bytes]) -> None:
        """Counts updates."""
        raise NotImplementedError

    @abstractmethod
    def delete(self, collection: Collection, documents: list[bytes]) -> None:
        """Counts deleted documents."""
        raise NotImplementedError
