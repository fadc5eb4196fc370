"""Explain of a find in Cosmos DB: the stages, which paths of the filter have an index, and what was read.

    {command, stages: [{stage: "$query", …, details: {query, indexUsage, shardInformation, queryMetrics}}],
     estimatedDelayFromRateLimitingInMilliseconds, retriedDueToRateLimiting, totalRequestCharge, continuation}

In 3.6 there are neither `command`, `dependency` nor the charge, and `pathsIndexed` stands in place of `indexUsage`.

Source: for 3.6 Microsoft's "Troubleshoot query issues when using Azure Cosmos DB for MongoDB"; for later versions what
an account of 2023 has answered (github.com/cjoakim/azure-cosmos-db, apis/mongo/java); that all of them answer so is
assumed. Neither shows what `compoundIndexes` has, which is left empty, nor explain of other commands.
"""

from typing import Final, NamedTuple

from mongottl.dialect.cosmos.wording import activity_id
from mongottl.document.build import encode
from mongottl.document.render import render_value
from mongottl.document.types import MISSING, Int64, Value
from mongottl.document.walk import fields
from mongottl.exec.plan.key_lookup import Lookup
from mongottl.versions import Version

_BRIEF_BEFORE: Final[Version] = (4, 0)
# Of the only physical partition.
_PARTITION: Final = "[,FF) move next"
_PARTITION_IN_3_6: Final = "0"


class ExecutedFind(NamedTuple):
    """A find that was executed.

    command: as it was sent. filter: as given. description: as parsed. lookup: None unless it reads one document by its
    key. indexed, not_indexed: the paths of the filter. loaded, returned: documents, and their bytes. elapsed_ms: of
    the whole query. charge: in request units.
    """

    database: str
    collection: str
    command: bytes
    filter: bytes
    description: Value
    lookup: Lookup | None
    indexed: list[str]
    not_indexed: list[str]
    loaded: int
    loaded_bytes: int
    returned: int
    returned_bytes: int
    elapsed_ms: float
    charge: float


def explained_find(find: ExecutedFind, version: Version) -> dict[str, Value]:
    """The reply of explain, without `ok`. version: of the account."""
    if version < _BRIEF_BEFORE:
        return {
            "stages": [encode(_query(find, True))],
            "estimatedDelayFromRateLimitingInMilliseconds": 0.0,
            "continuation": {"hasMore": False},
        }
    return {
        "command": f"db.runCommand({{explain: {_shown(find.command)}}})",
        "stages": [encode(_query(find, False) if find.lookup is None else _point_lookup(find, find.lookup))],
        "estimatedDelayFromRateLimitingInMilliseconds": 0.0,
        "retriedDueToRateLimiting": False,
        "totalRequestCharge": find.charge,
        "continuation": {"hasMore": False},
        "ActivityId": activity_id(),
    }


def _point_lookup(find: ExecutedFind, lookup: Lookup) -> dict[str, Value]:
    item: dict[str, Value] = {"id": lookup.id}
    if lookup.shard_key is not MISSING:
        item["shardKey"] = lookup.shard_key
    details: dict[str, Value] = {"database": find.database, "collection": find.collection, "items": [item]}
    return {"stage": "$pointLookup", **_counted(find), "dependency": _dependency(find), "details": details}


def _query(find: ExecutedFind, brief: bool) -> dict[str, Value]:
    details: dict[str, Value] = {"database": find.database, "collection": find.collection}
    indexed: list[Value] = [*find.indexed]
    not_indexed: list[Value] = [*find.not_indexed]
    if brief:
        details["query"] = find.description
        details["pathsIndexed"] = indexed
        details["pathsNotIndexed"] = not_indexed
    else:
        details["query"] = find.filter
        details["indexUsage"] = {"pathsIndexed": _indexes(indexed), "pathsNotIndexed": _indexes(not_indexed)}
    details["shardInformation"] = [
        {
            "activityId": activity_id(),
            "shardKeyRangeId": _PARTITION_IN_3_6 if brief else _PARTITION,
            "durationMS": find.elapsed_ms,
            "preemptions": 0,
            "outputDocumentCount": find.returned,
            "retrievedDocumentCount": find.loaded,
        }
    ]
    details["queryMetrics"] = _metrics(find)
    stage: dict[str, Value] = {"stage": "$query", **_counted(find)}
    if not brief:
        stage["dependency"] = _dependency(find)
    stage["details"] = details
    return stage


def _counted(find: ExecutedFind) -> dict[str, Value]:
    return {
        "timeInclusiveMS": find.elapsed_ms,
        "timeExclusiveMS": find.elapsed_ms,
        "in": find.returned,
        "out": find.returned,
    }


def _dependency(find: ExecutedFind) -> dict[str, Value]:
    return {"getNextPageCount": 1, "count": 1, "time": 0.0, "bytes": Int64(find.returned_bytes)}


def _indexes(paths: list[Value]) -> dict[str, Value]:
    none: list[Value] = []
    return {"individualIndexes": paths, "compoundIndexes": none}


def _metrics(find: ExecutedFind) -> dict[str, Value]:
    """The metrics of a query. What its parts have taken is not measured, and shown as 0."""
    used = find.loaded > 0 and len(find.indexed) > 0
    return {
        "retrievedDocumentCount": find.loaded,
        "retrievedDocumentSizeBytes": find.loaded_bytes,
        "outputDocumentCount": find.returned,
        "outputDocumentSizeBytes": find.returned_bytes,
        "indexHitRatio": find.returned / find.loaded if used else 0.0,
        "totalQueryExecutionTimeMS": find.elapsed_ms,
        "queryPreparationTimes": {
            "queryCompilationTimeMS": 0.0,
            "logicalPlanBuildTimeMS": 0.0,
            "physicalPlanBuildTimeMS": 0.0,
            "queryOptimizationTimeMS": 0.0,
        },
        "indexLookupTimeMS": 0.0,
        "documentLoadTimeMS": 0.0,
        "vmExecutionTimeMS": 0.0,
        "runtimeExecutionTimes": {
            "queryEngineExecutionTimeMS": 0.0,
            "systemFunctionExecutionTimeMS": 0.0,
            "userDefinedFunctionExecutionTimeMS": 0.0,
        },
        "documentWriteTimeMS": 0.0,
    }


def _shown(value: Value) -> str:
    """A value as the text of `command` has it: `{ 'find' : 'orders' }`."""
    if isinstance(value, bytes):
        shown = ", ".join(f"'{name}' : {_shown(inner)}" for name, inner in fields(value))
        return f"{{ {shown} }}" if shown else "{}"
    if isinstance(value, list):
        return f"[{', '.join(_shown(inner) for inner in value)}]"
    return f"'{value}'" if isinstance(value, str) else render_value(value)
