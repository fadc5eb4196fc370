"""Opening engines by URI: `SCHEME:ADDRESS`, where the scheme names the engine and the address says where its data is.

    memory:                    in this process, and lost at its end
    sqlite:FOLDER              in a folder, whose path stands as it is, without escapes
    sqlite:                    by SQLite, in this process
    postgresql://…             in a PostgreSQL database, by a URI as libpq takes it
    local-postgresql:FOLDER    in a folder, by a private PostgreSQL that is started and stopped

Each engine registers what opens it under its scheme, and so does what reads the data of a stopped server, where an
engine has that (`stored_data`). A module that does so is imported when its scheme is first used.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Final, Generic, TypeVar

from mongottl.storage.interface import StorageEngine
from mongottl.storage.nodes import LONE_NODE, NodeFacts
from mongottl.storage.stored_data import StoredData

T = TypeVar("T")


class Openers(Generic[T]):
    """What opens things of one kind, by scheme.

    kind: what they are, in messages. modules: those that register openers, by scheme.
    """

    def __init__(self, kind: str, modules: dict[str, str]) -> None:
        self._kind = kind
        self._modules = modules
        self._openers: dict[str, Callable[[str], T]] = {}

    def register(self, scheme: str) -> Callable[[Callable[[str], T]], Callable[[str], T]]:
        """Decorates what opens a URI of this scheme, given what follows the scheme and its colon."""

        def add(opener: Callable[[str], T]) -> Callable[[str], T]:
            if scheme in self._openers:
                raise ValueError(f"{self._kind} {scheme} is registered already")
            self._openers[scheme] = opener
            return opener

        return add

    def schemes(self) -> list[str]:
        """All schemes, sorted."""
        return sorted({*self._openers, *self._modules})

    def open(self, uri: str) -> T:
        """Opens a URI. ValueError, which shows no more of it than its scheme, if nothing is registered for that."""
        scheme, colon, address = uri.partition(":")
        if not colon:
            raise ValueError(f"a URI of a {self._kind} begins with a scheme and a colon, such as {self.schemes()[0]}:")
        if scheme not in self._openers and scheme in self._modules:
            import_module(self._modules[scheme])
        opener = self._openers.get(scheme)
        if opener is None:
            raise ValueError(f"unknown {self._kind} {scheme!r}; there are: {', '.join(self.schemes())}")
        return opener(address)


# What opens an engine for a server, once its data is named.
_ForNode = Callable[[NodeFacts], StorageEngine]

_ENGINES: Final[Openers[_ForNode]] = Openers(
    "storage engine",
    {
        "local-postgresql": "mongottl.storage.postgresql.engine",
        "memory": "mongottl.storage.memory",
        "postgres": "mongottl.storage.postgresql.engine",
        "postgresql": "mongottl.storage.postgresql.engine",
        "sqlite": "mongottl.storage.sqlite",
    },
)
_STORED_DATA: Final[Openers[StoredData]] = Openers(
    "storage engine whose data can be read without a server", {"sqlite": "mongottl.storage.sqlite.stored_state"}
)

storage_engine_schemes: Final = _ENGINES.schemes
stored_data: Final = _STORED_DATA.register


def storage_engine(scheme: str) -> Callable[[Callable[[str], StorageEngine]], Callable[[str], StorageEngine]]:
    """Decorates what opens an engine by a URI of this scheme, given what follows the scheme and its colon."""

    def add(opener: Callable[[str], StorageEngine]) -> Callable[[str], StorageEngine]:
        _ENGINES.register(scheme)(lambda address: lambda node: opener(address))
        return opener

    return add


def store_engine(
    scheme: str,
) -> Callable[[Callable[[str, NodeFacts], StorageEngine]], Callable[[str, NodeFacts], StorageEngine]]:
    """`storage_engine` for one over a store that several servers may open: its opener is given, too, who does."""

    def add(opener: Callable[[str, NodeFacts], StorageEngine]) -> Callable[[str, NodeFacts], StorageEngine]:
        _ENGINES.register(scheme)(lambda address: partial(opener, address))
        return opener

    return add


def open_engine(uri: str, node: NodeFacts = LONE_NODE) -> StorageEngine:
    """Opens an engine over the data of a URI, which is made if there is none. node: the server that does.

    ValueError for a URI whose scheme no engine has, DataDirectoryError when the data cannot be used.
    """
    return _ENGINES.open(uri)(node)


def open_stored_data(uri: str) -> StoredData:
    """Opens the data of a stopped server, to be read and checked. ValueError as `open_engine`, DataDirectoryError."""
    return _STORED_DATA.open(uri)


def folder_uri(folder: str) -> str:
    """The URI of the data in a folder."""
    return f"sqlite:{folder}"
