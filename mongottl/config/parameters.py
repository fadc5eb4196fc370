"""The parameters that `setParameter` changes while the server runs, most of them mongod's: the memory of operations.

A parameter is a field of `MemoryLimits`, declared once with all that is known of it.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Final, NamedTuple


class Parameter(NamedTuple):
    """A parameter that `setParameter` changes while the server runs.

    name: mongod's, or our own if mongod has no such limit. field: the attribute of `MemoryLimits`: a number from
    `minimum` to the largest int64, or a switch.
    """

    name: str
    help: str
    minimum: int = 1
    field: str = ""


# The key of a field's `Parameter` in its metadata.
_METADATA: Final = "parameter"


def _limit(default: object, name: str, help: str, minimum: int = 1) -> Any:
    return dataclasses.field(default=default, metadata={_METADATA: Parameter(name, help, minimum)})


@dataclass
class MemoryLimits:
    """The memory that one operation may use, in bytes, and whether it may use the disk beyond that, and what all
    messages that arrive may use; see `PARAMETERS`."""

    allow_disk_use: bool = _limit(
        True, "allowDiskUseByDefault", "Whether `find` and `aggregate` without `allowDiskUse` may use temporary files."
    )
    sort_bytes: int = _limit(
        100 << 20,
        "internalQueryMaxBlockingSortMemoryUsageBytes",
        "Memory of a sort, or of the scores of a text search, before it uses temporary files, or fails (292).",
        minimum=0,
    )
    group_bytes: int = _limit(
        100 << 20,
        "internalDocumentSourceGroupMaxMemoryBytes",
        "Memory of a `$group` before it uses temporary files, or fails (292).",
    )
    bucket_auto_bytes: int = _limit(
        100 << 20,
        "internalDocumentSourceBucketAutoMaxMemoryBytes",
        "Memory of a `$bucketAuto` before it uses temporary files, or fails (292).",
    )
    window_bytes: int = _limit(
        100 << 20,
        "internalDocumentSourceSetWindowFieldsMaxMemoryBytes",
        "Memory of a partition of `$setWindowFields` before it uses temporary files, or fails (292).",
    )
    graph_lookup_bytes: int = _limit(
        100 << 20,
        "internalDocumentSourceGraphLookupMaxMemoryBytes",
        "Memory of the documents that a `$graphLookup` finds for one document; more is an error (40099).",
    )
    lookup_document_bytes: int = _limit(
        100 << 20,
        "internalLookupStageIntermediateDocumentMaxSizeBytes",
        "Size of the documents that a `$lookup` joins to one document; more is an error (4568).",
        minimum=16 << 20,
    )
    lookup_table_bytes: int = _limit(
        100 << 20,
        "internalDocumentSourceLookupCacheSizeBytes",
        "Memory in which a `$lookup` caches the other collection; beyond it, that is read once for each batch.",
    )
    facet_bytes: int = _limit(
        100 << 20,
        "internalQueryFacetMaxOutputDocSizeBytes",
        "Size of the output of all pipelines of a `$facet`; more is an error (4031700).",
    )
    densify_bytes: int = _limit(
        100 << 20,
        "internalDocumentSourceDensifyMaxMemoryBytes",
        "Memory of the partitions of a `$densify`; more is an error (6007200).",
    )
    push_bytes: int = _limit(
        100 << 20, "internalQueryMaxPushBytes", "Memory of one `$push` of a group; more is an error (146)."
    )
    add_to_set_bytes: int = _limit(
        100 << 20, "internalQueryMaxAddToSetBytes", "Memory of one `$addToSet` of a group; more is an error (146)."
    )
    pre_auth_message_bytes: int = _limit(
        16 << 10,
        "preAuthMaximumMessageSizeBytes",
        "With --auth, the longest message of a client that has not logged in; a longer one ends its connection.",
        minimum=1 << 10,
    )
    incoming_bytes: int = _limit(
        256 << 20,
        "internalIncomingMessagesMaxBytes",
        "Memory of all messages that are not answered yet; beyond it, long ones are read one after the other.",
    )


PARAMETERS: Final[tuple[Parameter, ...]] = tuple(
    field.metadata[_METADATA]._replace(field=field.name) for field in dataclasses.fields(MemoryLimits)
)
