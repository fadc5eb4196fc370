"""What a kind of index is: the contract that the modules of this package fulfil."""

from abc import ABC, abstractmethod

from mongottl.catalog.keys import KeyGenerator
from mongottl.document.collation import Collation
from mongottl.document.numbers import to_double
from mongottl.document.path import FieldPath
from mongottl.document.types import Value, is_number
from mongottl.document.walk import fields

# A key pattern: pairs of path and direction.
Pattern = list[tuple[str, Value]]


class IndexPattern:
    """What the keys of an index are made of.

    spec: the whole specification, as it is kept. key: its key pattern as raw BSON; paths, directions and descending are
    the components of that. sparse, collation: the options of these names; None for the simple collation.
    """

    def __init__(self, spec: bytes, key: bytes, sparse: bool, collation: Collation | None) -> None:
        pattern = fields(key)
        self.spec = spec
        self.key = key
        self.paths: list[FieldPath] = [FieldPath(path) for path, _ in pattern]
        self.directions: list[Value] = [direction for _, direction in pattern]
        self.descending: list[bool] = [_is_descending(direction) for _, direction in pattern]
        self.sparse = sparse
        self.collation = collation


def _is_descending(direction: Value) -> bool:
    return is_number(direction) and to_double(direction) < 0


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

    def distinguishing(self, pattern: IndexPattern) -> Value:
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
    def key_generator(self, pattern: IndexPattern) -> KeyGenerator:
        """What makes the keys of an index; `pattern.spec` holds what `normalised` answered."""
        raise NotImplementedError
