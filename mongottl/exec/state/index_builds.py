"""What `currentOp` shows in the dialect `cosmos`: index builds and their progress, and no other operation.

    {command: {createIndexes: "orders", indexes: […], $db: "shop"},
     msg: "Index Build (background) Index Build (background): 60 %", progress: {done: 60, total: 100}}

Source: Microsoft's "Manage indexing in Azure Cosmos DB for MongoDB", "Track index progress".
"""

from typing import Final

from mongottl.catalog.collection import CollectionIndex
from mongottl.document.build import encode_fields
from mongottl.document.types import Value
from mongottl.exec.running.registry import RunningOperation

_TOTAL: Final = 100


def progress_of(running: RunningOperation) -> list[tuple[str, Value]]:
    """`command`, `msg` and `progress` of an operation that builds indexes; empty for any other."""
    collection = running.op.builds_on
    if collection is None:
        return []
    building = [index for index in collection.indexes if not index.ready]
    if not building:  # they were dropped meanwhile
        return []
    done = min(_percentage(index) for index in building)
    specs: list[Value] = [index.descriptor.spec for index in building]
    return [
        (
            "command",
            encode_fields([("createIndexes", collection.name), ("indexes", specs), ("$db", collection.database)]),
        ),
        ("msg", f"Index Build (background) Index Build (background): {done} %"),
        ("progress", encode_fields([("done", done), ("total", _TOTAL)])),
    ]


def _percentage(index: CollectionIndex) -> int:
    """How much of the collection the build has read, by the ids of its records."""
    return _TOTAL * index.built_through // max(index.build_end, 1)
