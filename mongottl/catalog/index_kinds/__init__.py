"""The kinds of indexes.

To add one: a module here with an `IndexKind` (its options, its checks, its key generator) and a line in `table`; in
`exec.plan.index_access` a module with an `IndexAccess` (which filters and sorts it serves, and how) and a line in the
table there. No other code depends on the kinds by name.
"""

from mongottl.catalog.index_kinds.btree import BTREE as BTREE
from mongottl.catalog.index_kinds.kind import IndexKind as IndexKind
from mongottl.catalog.index_kinds.kind import IndexPattern as IndexPattern
from mongottl.catalog.index_kinds.kind import Pattern, is_wildcard


def kind_of(pattern: Pattern) -> IndexKind:
    """The kind that a key pattern asks for. CannotCreateIndex (67) for two kinds at once, or for an unknown one."""
    if not any(isinstance(direction, str) or is_wildcard(path) for path, direction in pattern):
        return BTREE
    from mongottl.catalog.index_kinds.table import named_kind  # kept out of the start of the server

    return named_kind(pattern)
