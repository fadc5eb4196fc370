"""Index filters and query settings, which restrict the indexes of a query, and the plan cache.

An index filter (`planCacheSetFilter`) restricts the plans of one query shape to some indexes; so do query settings,
which take precedence. Hints are then ignored, as in mongod.

If several candidates competed, the winner is cached for the query's shape. When it has won twice without a higher cost,
it becomes active: the next query of the shape tries it alone, and the others only if its cost has grown (`planner`).
"""

from typing import Final

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.plan_memory import CachedPlan
from mongottl.document.build import EMPTY_DOCUMENT, encode
from mongottl.document.freeing import LONG, LONG_BYTES, put_aside
from mongottl.document.interrupt import give_way
from mongottl.document.types import Date, Int64, Value
from mongottl.document.walk import fields, is_empty
from mongottl.exec.plan.access_path import AccessPath
from mongottl.exec.plan.shape import (
    joined_shapes,
    order_shape,
    plan_shape_hash,
    planned_filter_shape,
    projection_shape,
)
from mongottl.query.match import MatchExpression
from mongottl.query.match.comparison import ComparisonExpression
from mongottl.query.match.tree import ListExpression, NotExpression, PathExpression

# If a plan's cost is more than its cached cost times this, the other candidates are tried again; mongod's
# internalQueryCacheEvictionRatio.
REPLAN_RATIO: Final = 10


class QueryShape:
    """The parts of a query besides its filter that belong to its shape.

    sort, projection, collation: raw, as written. allowed: the indexes that query settings allow, None for all.
    """

    def __init__(
        self, sort: bytes = EMPTY_DOCUMENT, projection: bytes = EMPTY_DOCUMENT, collation: bytes = EMPTY_DOCUMENT
    ) -> None:
        self.sort = sort
        self.projection = projection
        self.collation = collation
        self.allowed: list[Value] | None = None

    def parts(self, filter: Value) -> list[str]:
        """The parts hashed to `planCacheShapeHash`. filter: `MatchExpression.describe()`."""
        parts = [planned_filter_shape(filter), order_shape(self.sort), projection_shape(self.projection)]
        if not is_empty(self.collation):
            parts.append(self.collation.hex())
        return parts

    def text(self, filter: Value) -> str:
        return "\n".join(self.parts(filter))

    def quick_key(self, match: MatchExpression) -> str:
        """A key of the plan cache for this shape, cheaper than its hash."""
        found: list[str] = []
        _outline(match, found)
        if self.sort != EMPTY_DOCUMENT or self.projection != EMPTY_DOCUMENT or self.collation != EMPTY_DOCUMENT:
            for pattern in (self.sort, self.projection, self.collation):
                found.append(pattern.hex() if len(pattern) < LONG_BYTES else order_shape(pattern))
        key = joined_shapes(found, " ")
        if len(found) >= LONG:
            put_aside(found)
        return key


NO_SHAPE: Final = QueryShape()


def _outline(match: MatchExpression, found: list[str]) -> None:
    give_way()
    found.append(type(match).__name__)
    if isinstance(match, ComparisonExpression):
        found.append(match.path.dotted)
        found.append(str(match.operator))
    elif isinstance(match, PathExpression):
        found.append(match.path.dotted)
    elif isinstance(match, ListExpression):
        for child in match.children:
            _outline(child, found)
        found.append(")")
    elif isinstance(match, NotExpression):
        _outline(match.child, found)


def allowed_indexes(collection: Collection, shape: QueryShape, match: MatchExpression) -> list[Value] | None:
    """The names and key patterns of the indexes that query settings or an index filter allow; None for all."""
    if shape.allowed is not None:
        return shape.allowed
    if not collection.plan_memory.filters:
        return None
    known = collection.plan_memory.filters.get(shape.text(match.describe()))
    return None if known is None else known.indexes


def is_allowed(index: CollectionIndex, allowed: list[Value] | None) -> bool:
    if allowed is None:
        return True
    for entry in allowed:
        if entry == index.name or (isinstance(entry, bytes) and fields(entry) == fields(index.descriptor.key)):
            return True
    return False


def new_plan(
    shape: QueryShape,
    match: MatchExpression,
    collection: Collection,
    winner: AccessPath,
    works: int,
    now_ms: int,
    losers: int,
) -> CachedPlan:
    """The plan cache's entry for a winner. works: entries it has to examine; losers: the number of other candidates."""
    filter = match.describe()
    parts = shape.parts(filter)
    query: dict[str, Value] = {"query": filter, "sort": shape.sort, "projection": shape.projection}
    if not is_empty(shape.collation):
        query["collation"] = shape.collation
    described = winner.open(0, trial=True).node().planned()
    return CachedPlan(
        "\n".join(parts),
        plan_shape_hash(parts),
        plan_cache_key(parts, collection),
        winner.label,
        works,
        now_ms,
        query,
        described,
        losers,
    )


def plan_cache_key(parts: list[str], collection: Collection | None) -> str:
    """`planCacheKey`: the hash of a shape together with the names of the usable indexes."""
    names: list[str] = []
    if collection is not None:
        for index in collection.indexes:
            if index.ready and index.has_keys and not index.descriptor.hidden:
                names.append(index.name)
    return plan_shape_hash([*parts, *names])


def describe_plan(plan: CachedPlan, host: str) -> bytes:
    """An entry of the plan cache as a document of `$planCacheStats`."""
    scores: list[Value] = [1.0 + 1.0 / max(1, plan.works)]
    scores.extend([1.0] * plan.losers)
    described: dict[str, Value] = {
        "version": "1",
        "queryHash": plan.shape_hash,
        "planCacheShapeHash": plan.shape_hash,
        "planCacheKey": plan.cache_key,
        "isActive": plan.active,
        "works": Int64(plan.works),
        "worksType": "works",
        "timeOfCreation": Date(plan.created_ms),
        "createdFromQuery": plan.query,
        "cachedPlan": plan.described,
        "creationExecStats": [{"totalKeysExamined": plan.works, "executionStages": plan.described}],
        "candidatePlanScores": scores,
        "indexFilterSet": plan.filtered,
    }
    described["estimatedSizeBytes"] = Int64(len(encode(described)))
    described["host"] = host
    return encode(described)
