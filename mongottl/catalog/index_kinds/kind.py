"""What a kind of index is: the contract that the modules of this package fulfil."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from mongottl.catalog.keys import KeyGenerator
from mongottl.document.types import Value

if TYPE_CHECKING:
    from mongottl.catalog.index import IndexDescriptor

# A key pattern: pairs of path and direction.
Pattern = list[tuple[str, Value]]


class IndexKind(ABC):
    """One kind of index.

    name: how the access table of `exec` knows it. plugin: the string that makes a component of a key pattern one of
    this kind, "" if it is told otherwise. options: those that only this kind takes, with the type that each must have:
    "object", "string", "number", or "" where the kind checks it itself. least_version: of the index, `v`.
    at_most_one: whether a collection has no two. collates: whether its strings may have a collation.
    """

    def __init__(self, name: str, plugin: str, options: dict[str, str], least_version: int = 1) -> None:
        self.name = name
        self.plugin = plugin
        self.options = options
        self.least_version = least_version
        self.at_most_one = False
        self.collates = True

    def check_pattern(self, pattern: Pattern) -> None:  # noqa: B027 (most kinds have nothing to add)
        """Refuses a key pattern that cannot be an index of this kind; what holds for all kinds has been checked."""

    def check_misplaced(self, option: str) -> None:  # noqa: B027
        """Refuses an option of this kind on an index of another; MongoDB keeps most of them, without effect."""

    def takes_everything(self, path: str) -> bool:
        """Whether a component may have this path, "$**" or "a.b.$**"."""
        return False

    def distinguishing(self, descriptor: "IndexDescriptor") -> Value:
        """What tells two indexes of this kind apart besides key pattern, `unique`, `sparse`, collation and filter."""
        return None

    def listed(self, spec: bytes) -> bytes:
        """An index as `listIndexes` shows it; `$indexStats` shows what is kept."""
        return spec

    @abstractmethod
    def normalised(self, key: bytes, options: dict[str, Value]) -> tuple[bytes, dict[str, Value]]:
        """Key and options as they are kept, from those of the request.

        options: those that all kinds have, checked and normalised, and the kind's own, whose types have been checked.
        Raises for options and combinations that the kind does not take.
        """
        raise NotImplementedError

    @abstractmethod
    def key_generator(self, descriptor: "IndexDescriptor") -> KeyGenerator:
        """What makes the keys of an index; `descriptor.spec` holds what `normalised` answered."""
        raise NotImplementedError
