"""What explain tells of a find in Cosmos DB: the stages, which paths of the filter have an index, and what was read.

    {command, stages: [{stage: "$query", …, details: {query, indexUsage, shardInformation, queryMetrics}}],
     estimatedDelayFromRateLimitingInMilliseconds, retriedDueToRateLimiting, totalRequestCharge, continuation}

In 3.6 there are neither `command`, `dependency` nor the charge, and `pathsIndexed` stands in place of `indexUsage`.

Source: for 3.6 Microsoft's "Troubleshoot query issues when using Azure Cosmos DB for MongoDB"; for later versions what
an account of 2023 has answered (github.com/cjoakim/azure-cosmos-db, apis/mongo/java); that all of them answer so is
assumed. Neither shows what `compoundIndexes` has, which is left empty, nor what explain tells of other commands.
"""

from typing import Final, NamedTuple

from mongottl.dialect.cosmos.wording import activity_id
from mongottl.document.build import encode
from mongottl.document.render import render_value
from mongottl.document.types import MISSING, Int64, Value
from mongottl.document.walk import fields
from mongottl.versions import Version

_BRIEF_BEFORE: Final[Version] = (4, 0)
# Of the only physical partition.
_PARTITION: Final = "[,FF) move next"
_PARTITION_IN_3_6: Final = "0"


class Lookup(NamedTuple):
    """The document that a find names by its `_id`, and by its shard key, which is MISSING in other collections."""

    id: Value
    shard_key: Value


class FindFacts(NamedTuple):
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


def explained_find(facts: FindFacts, version: Version) -> dict[str, Value]:
    """The reply of explain, without `ok`. version: of the account."""
    if version < _BRIEF_BEFORE:
        return {
            "stages": [encode(_query(facts, True))],
            "estimatedDelayFromRateLimitingInMilliseconds": 0.0,
            "continuation": {"hasMore": False},
        }
    return {
        "command": f"db.runCommand({{explain: {_shown(facts.command)}}})",
        "stages": [encode(_query(facts, False) if facts.lookup is None else _point_lookup(facts, facts.lookup))],
        "estimatedDelayFromRateLimitingInMilliseconds": 0.0,
        "retriedDueToRateLimiting": False,
        "totalRequestCharge": facts.charge,
        "continuation": {"hasMore": False},
        "ActivityId": activity_id(),
    }


def _point_lookup(facts: FindFacts, lookup: Lookup) -> dict[str, Value]:
    item: dict[str, Value] = {"id": lookup.id}
    if lookup.shard_key is not MISSING:
        item["shardKey"] = lookup.shard_key
    details: dict[str, Value] = {"database": facts.database, "collection": facts.collection, "items": [item]}
    return {"stage": "$pointLookup", **_counted(facts), "dependency": _dependency(facts), "details": details}


def _query(facts: FindFacts, brief: bool) -> dict[str, Value]:
    details: dict[str, Value] = {"database": facts.database, "collection": facts.collection}
    indexed: list[Value] = [*facts.indexed]
    not_indexed: list[Value] = [*facts.not_indexed]
    if brief:
        details["query"] = facts.description
        details["pathsIndexed"] = indexed
        details["pathsNotIndexed"] = not_indexed
    else:
        details["query"] = facts.filter
        details["indexUsage"] = {"pathsIndexed": _indexes(indexed), "pathsNotIndexed": _indexes(not_indexed)}
    details["shardInformation"] = [
        {
            "activityId": activity_id(),
            "shardKeyRangeId": _PARTITION_IN_3_6 if brief else _PARTITION,
            "durationMS": facts.elapsed_ms,
            "preemptions": 0,
            "outputDocumentCount": facts.returned,
            "retrievedDocumentCount": facts.loaded,
        }
    ]
    details["queryMetrics"] = _metrics(facts)
    stage: dict[str, Value] = {"stage": "$query", **_counted(facts)}
    if not brief:
        stage["dependency"] = _dependency(facts)
    stage["details"] = details
    return stage


def _counted(facts: FindFacts) -> dict[str, Value]:
    return {
        "timeInclusiveMS": facts.elapsed_ms,
        "timeExclusiveMS": facts.elapsed_ms,
        "in": facts.returned,
        "out": facts.returned,
    }


def _dependency(facts: FindFacts) -> dict[str, Value]:
    return {"getNextPageCount": 1, "count": 1, "time": 0.0, "bytes": Int64(facts.returned_bytes)}


def _indexes(paths: list[Value]) -> dict[str, Value]:
    none: list[Value] = []
    return {"individualIndexes": paths, "compoundIndexes": none}


def _metrics(facts: FindFacts) -> dict[str, Value]:
    """The metrics of a query. What its parts have taken is not measured, and shown as 0."""
    used = facts.loaded > 0 and len(facts.indexed) > 0
    return {
        "retrievedDocumentCount": facts.loaded,
        "retrievedDocumentSizeBytes": facts.loaded_bytes,
        "outputDocumentCount": facts.returned,
        "outputDocumentSizeBytes": facts.returned_bytes,
        "indexHitRatio": facts.returned / facts.loaded if used else 0.0,
        "totalQueryExecutionTimeMS": facts.elapsed_ms,
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
