"""The dialects that a server can speak; each is declared in a module that is loaded by its name."""

from typing import Final, NamedTuple

from mongottl.config.versions import COSMOS_VERSIONS, LATEST_VERSION, WIRE_VERSIONS


class DialectChoice(NamedTuple):
    """A row of `DIALECTS`.

    title: what it stands for. module: which declares it, by `@dialect`. default_version, versions: the MongoDB versions
    that it announces. has_patches: whether buildInfo has the newest patch of its version, or 0.
    """

    title: str
    module: str
    default_version: str
    versions: tuple[str, ...]
    has_patches: bool = True


DIALECTS: Final[dict[str, DialectChoice]] = {
    "mongodb": DialectChoice("MongoDB", "mongottl.dialect.mongodb", LATEST_VERSION, tuple(WIRE_VERSIONS)),
    "cosmos": DialectChoice("Cosmos DB", "mongottl.dialect.cosmos.dialect", "7.0", COSMOS_VERSIONS, has_patches=False),
}
