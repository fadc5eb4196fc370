"""The kinds of indexes.

To add one: a module here with an `IndexKind` (its options, its checks, its key generator) and a line in `INDEX_KINDS`
below; in `exec.plan.index_access` a module with an `IndexAccess` (which filters and sorts it serves, and how) and a
line in the table there. No other code depends on the kinds by name.
"""

from typing import Final

from mongottl.catalog.index_kinds.btree import BtreeKind
from mongottl.catalog.index_kinds.geospatial import PlaneKind, SphereKind
from mongottl.catalog.index_kinds.hashed import HashedKind
from mongottl.catalog.index_kinds.kind import IndexKind as IndexKind
from mongottl.catalog.index_kinds.kind import IndexPattern as IndexPattern
from mongottl.catalog.index_kinds.kind import Pattern
from mongottl.catalog.index_kinds.text import TextKind
from mongottl.catalog.index_kinds.wildcard import WildcardKind, is_wildcard
from mongottl.errors import CommandError, ErrorCode

BTREE: Final = BtreeKind()
WILDCARD: Final = WildcardKind()

# Every kind that there is.
INDEX_KINDS: Final[tuple[IndexKind, ...]] = (BTREE, HashedKind(), SphereKind(), PlaneKind(), WILDCARD, TextKind())


def kind_of(pattern: Pattern) -> IndexKind:
    """The kind that a key pattern asks for. CannotCreateIndex (67) for two kinds at once, or for an unknown one."""
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
    if found is None:
        return WILDCARD if any(is_wildcard(path) for path, _ in pattern) else BTREE
    return found


def _kind_of_plugin(plugin: str) -> IndexKind:
    for kind in INDEX_KINDS:
        if kind.plugin and kind.plugin == plugin:
            return kind
    raise CommandError(ErrorCode.CannotCreateIndex, f"Unknown index plugin '{plugin}'")
