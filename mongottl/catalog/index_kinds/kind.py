"""The interface of a kind of index, which the modules of this package implement."""

from abc import ABC, abstractmethod
from typing import Final

from mongottl.catalog.keys import KeyGenerator
from mongottl.document.collation import Collation
from mongottl.document.numbers import to_double
from mongottl.document.path import FieldPath
from mongottl.document.types import Value, is_number
from mongottl.document.walk import fields

# A key pattern: pairs of path and direction.
Pattern = list[tuple[str, Value]]
# The component of a wildcard index's key pattern that stands for all paths.
WILDCARD_PATH: Final = "$**"


def is_wildcard(path: str) -> bool:
    """Whether a component of a key pattern stands for all paths: "$**" or "a.b.$**"."""
    return path == WILDCARD_PATH or path.endswith("." + WILDCARD_PATH)


class IndexPattern:
    """The parts of an index specification that its keys depend on.

    spec: the whole specification, as it is stored. key: its key pattern as raw BSON; paths, directions and descending
    are the components of that. sparse, collation: the options of these names; None for the simple collation.
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

    name: its key in the access table of `exec`. plugin: the string in a key pattern that selects this kind, "" if it is
    selected in another way. options: those that only this kind accepts, with the type that each must have: "object",
    "string", "number", or "" if the kind checks it itself. min_version: the lowest index version, `v`. at_most_one:
    whether a collection may have only one. collates: whether it may have a collation. ahead_bytes: keys of documents of
    fewer bytes are made within the unit of work that writes them, in a few milliseconds.
    """

    def __init__(self, name: str, plugin: str, options: dict[str, str], min_version: int = 1) -> None:
        self.name = name
        self.plugin = plugin
        self.options = options
        self.min_version = min_version
        self.at_most_one = False
        self.collates = True
        self.ahead_bytes = 1 << 20

    def check_pattern(self, pattern: Pattern) -> None:  # noqa: B027 (most kinds have nothing to add)
        """Raises for a key pattern that is not valid for this kind; the rules for all kinds have been checked."""

    def check_misplaced(self, option: str) -> None:  # noqa: B027
        """Raises for an option of this kind on an index of another kind; MongoDB stores most of them, without
        effect."""

    def takes_everything(self, path: str) -> bool:
        """Whether a component may have this path, "$**" or "a.b.$**"."""
        return False

    def distinguishing(self, pattern: IndexPattern) -> Value:
        """The options that distinguish two indexes of this kind, besides key pattern, `unique`, `sparse`, collation and
        filter."""
        return None

    def listed(self, spec: bytes) -> bytes:
        """The specification as `listIndexes` shows it; `$indexStats` shows it as it is stored."""
        return spec

    @abstractmethod
    def normalised(self, key: bytes, options: dict[str, Value]) -> tuple[bytes, dict[str, Value]]:
        """Key and options as they are stored, from those of the request.

        options: those of all kinds, checked and normalised, and the kind's own, whose types have been checked.
        Raises for options and combinations that the kind does not accept.
        """
        raise NotImplementedError

    @abstractmethod
    def key_generator(self, pattern: IndexPattern) -> KeyGenerator:
        """The key generator of an index; `pattern.spec` is the result of `normalised`."""
        raise NotImplementedError
