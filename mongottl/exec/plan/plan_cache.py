"""Which indexes a query may use by an administrator's word, and which plan won for queries like it.

An index filter (`planCacheSetFilter`) confines the plans of one query shape to some indexes; so do query settings,
which come first. Hints are then ignored, as in mongod.

Where several plans competed, the winner is remembered for the query's shape. Once it has won twice at no higher price
it is active: the next such query tries it alone, and the others only if it has become dearer (`planner`).
"""

from typing import Final

from mongottl.catalog.collection import Collection, IndexEntry
from mongottl.catalog.plan_memory import CachedPlan
from mongottl.document.build import EMPTY_DOCUMENT, encode
from mongottl.document.types import Date, Int64, Value
from mongottl.document.walk import fields, is_empty
from mongottl.exec.plan.access_path import AccessPath
from mongottl.exec.plan.shape import order_shape, plan_shape_hash, planned_filter_shape, projection_shape
from mongottl.query.match import MatchExpression
from mongottl.query.match.comparison import ComparisonExpression
from mongottl.query.match.tree import ListExpression, NotExpression, PathExpression

# How much dearer than remembered a plan may have become before others are tried again; mongod's
# internalQueryCacheEvictionRatio.
REPLAN_RATIO: Final = 10


class QueryShape:
    """What a command knows of its query besides the parsed filter.

    sort, projection, collation: as written, raw. allowed: indexes that query settings allow, or None for no word.
    """

    def __init__(
        self, sort: bytes = EMPTY_DOCUMENT, projection: bytes = EMPTY_DOCUMENT, collation: bytes = EMPTY_DOCUMENT
    ) -> None:
        self.sort = sort
        self.projection = projection
        self.collation = collation
        self.allowed: list[Value] | None = None

    def parts(self, filter: Value) -> list[str]:
        """The shape as `planCacheShapeHash` takes it. filter: `MatchExpression.describe()`."""
        parts = [planned_filter_shape(filter), order_shape(self.sort), projection_shape(self.projection)]
        if not is_empty(self.collation):
            parts.append(self.collation.hex())
        return parts

    def text(self, filter: Value) -> str:
        return "\n".join(self.parts(filter))

    def quick_key(self, match: MatchExpression) -> str:
        """A key that tells shapes apart and costs little."""
        found: list[str] = []
        _outline(match, found)
        if self.sort != EMPTY_DOCUMENT or self.projection != EMPTY_DOCUMENT or self.collation != EMPTY_DOCUMENT:
            found.append(self.sort.hex())
            found.append(self.projection.hex())
            found.append(self.collation.hex())
        return " ".join(found)


NO_SHAPE: Final = QueryShape()


def _outline(match: MatchExpression, found: list[str]) -> None:
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


def confinement(collection: Collection, shape: QueryShape, match: MatchExpression) -> list[Value] | None:
    """The names and key patterns of the indexes that the query may use; None for no such word."""
    if shape.allowed is not None:
        return shape.allowed
    if not collection.plan_memory.filters:
        return None
    known = collection.plan_memory.filters.get(shape.text(match.describe()))
    return None if known is None else known.indexes


def is_allowed(index: IndexEntry, allowed: list[Value] | None) -> bool:
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
    """What is to be remembered of a winner."""
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
    """The hash of a shape together with the indexes that plans may use."""
    names: list[str] = []
    if collection is not None:
        for index in collection.indexes:
            if index.ready and index.has_keys and not index.descriptor.hidden:
                names.append(index.name)
    return plan_shape_hash([*parts, *names])


def describe_plan(plan: CachedPlan, host: str) -> bytes:
    """An entry as `$planCacheStats` gives it."""
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
