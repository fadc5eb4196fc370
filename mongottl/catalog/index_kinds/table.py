"""The table of the kinds of indexes. It imports all of them, so it is imported when a kind is first named."""

from typing import Final

from mongottl.catalog.index_kinds.btree import BTREE
from mongottl.catalog.index_kinds.geospatial import PlaneKind, SphereKind
from mongottl.catalog.index_kinds.hashed import HashedKind
from mongottl.catalog.index_kinds.kind import IndexKind, Pattern
from mongottl.catalog.index_kinds.text import TextKind
from mongottl.catalog.index_kinds.wildcard import WildcardKind
from mongottl.errors import CommandError, ErrorCode

WILDCARD: Final = WildcardKind()

# Every kind that there is.
INDEX_KINDS: Final[tuple[IndexKind, ...]] = (BTREE, HashedKind(), SphereKind(), PlaneKind(), WILDCARD, TextKind())


def named_kind(pattern: Pattern) -> IndexKind:
    """The kind of a key pattern that names one: by a string, or by a path that stands for all paths."""
    found: IndexKind | None = None
    for path, direction in pattern:
        if not isinstance(direction, str):
            continue
        kind = _kind_of_plugin(direction)
        if found is not None and kind is not found:
            raise CommandError(
                ErrorCode.CannotCreateIndex, f"Can't use more than one index plugin for a single index: {path}"
            )
        found = kind
    return WILDCARD if found is None else found


def _kind_of_plugin(plugin: str) -> IndexKind:
    for kind in INDEX_KINDS:
        if kind.plugin and kind.plugin == plugin:
            return kind
    raise CommandError(ErrorCode.CannotCreateIndex, f"Unknown index plugin '{plugin}'")
