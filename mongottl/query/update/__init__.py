"""Updates: `parse_update(update, ctx)` -> UpdateDriver, applied to raw documents.

    driver      the three kinds of update, replacement, the document of an upsert
    tree, paths parsing of `{$set: {"a.$[x].b": 1}}` into the tree, conflicts between paths
    nodes       the tree, which walks and rebuilds a raw document
    arrayfilters, registry, describe
    fields, rename, arithmetic, arrays, push    the modifiers
    stages      pipeline-style updates
    logged      updates as the oplog has them

Selecting and writing documents and maintaining indexes is not done here.
"""

# Importing the modules registers their modifiers.
from mongottl.query.update import arithmetic, arrays, fields, push, rename
from mongottl.query.update.driver import (
    UpdateDriver,
    UpdateOutcome,
    id_first,
    new_document_for_upsert,
    parse_pipeline_update,
    parse_update,
    with_timestamps,
)
from mongottl.query.update.logged import LoggedReplacement, parse_logged_update
from mongottl.query.update.registry import modifiers

__all__ = [
    "LoggedReplacement",
    "UpdateDriver",
    "UpdateOutcome",
    "arithmetic",
    "arrays",
    "fields",
    "id_first",
    "modifiers",
    "new_document_for_upsert",
    "parse_logged_update",
    "parse_pipeline_update",
    "parse_update",
    "push",
    "rename",
    "with_timestamps",
]
