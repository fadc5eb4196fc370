"""Updates: `parse_update(update, ctx)` -> UpdateDriver, applied to raw documents.

    driver      the three kinds of update, replacement, the document of an upsert
    tree, paths from `{$set: {"a.$[x].b": 1}}` to the tree, conflicts between paths
    nodes       the tree, and how it walks and rebuilds a raw document
    arrayfilters, registry, describe
    fields, rename, arithmetic, arrays, push    the modifiers
    stages      pipeline-style updates

Nothing here chooses documents, writes them or maintains indexes.
"""

# The families register their modifiers as they are imported.
from mongottl.query.update import arithmetic, arrays, fields, push, rename
from mongottl.query.update.driver import (
    UpdateDriver,
    UpdateOutcome,
    id_first,
    new_document_for_upsert,
    parse_update,
    with_timestamps,
)
from mongottl.query.update.registry import modifiers

__all__ = [
    "UpdateDriver",
    "UpdateOutcome",
    "arithmetic",
    "arrays",
    "fields",
    "id_first",
    "modifiers",
    "new_document_for_upsert",
    "parse_update",
    "push",
    "rename",
    "with_timestamps",
]
