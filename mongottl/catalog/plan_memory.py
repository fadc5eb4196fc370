"""What is remembered of a collection's query plans: index filters that were set, and plans that won over others.

Both are in memory only, as in mongod: a restart forgets them, and so does dropping the collection. Which queries they
concern is told by keys that the planner makes; nothing here looks into a query.
"""

from typing import Final

from mongottl.document.types import Value

MAX_CACHED_PLANS: Final = 1000


class IndexFilter:
    """The indexes to which plans of one query shape are confined.

    query, sort, projection, collation: the query that stood for the shape, raw. indexes: names, or raw key patterns.
    """

    def __init__(self, query: bytes, sort: bytes, projection: bytes, collation: bytes, indexes: list[Value]) -> None:
        self.query = query
        self.sort = sort
        self.projection = projection
        self.collation = collation
        self.indexes = indexes


class CachedPlan:
    """A plan that won over others.

    shape: the query's shape, as index filters have it. index: the winner's name. works: entries it had to examine.
    active: whether it is followed; a plan is once it has won a second time at no higher price.
    described: the winner in explain's words. losers: how many plans there were besides. filtered: whether an index
    filter or query settings had a word.
    """

    def __init__(
        self,
        shape: str,
        shape_hash: str,
        cache_key: str,
        index: str,
        works: int,
        created_ms: int,
        query: dict[str, Value],
        described: dict[str, Value],
        losers: int,
    ) -> None:
        self.shape = shape
        self.shape_hash = shape_hash
        self.cache_key = cache_key
        self.index = index
        self.works = works
        self.created_ms = created_ms
        self.filtered = False
        self.query = query
        self.described = described
        self.losers = losers
        self.active = False


class PlanMemory:
    """The index filters and cached plans of one collection.

    filters: by shape. plans: by the planner's own key, the oldest first; they hold for one state of the indexes.
    """

    def __init__(self) -> None:
        self.filters: dict[str, IndexFilter] = {}
        self.plans: dict[str, CachedPlan] = {}
        self._generation = -1

    def plan_of(self, key: str, generation: int) -> CachedPlan | None:
        """The plan that is known for a key. generation: of the collection's indexes; a new one makes all plans old."""
        self._turn_to(generation)
        return self.plans.get(key)

    def plans_at(self, generation: int) -> list[CachedPlan]:
        self._turn_to(generation)
        return list(self.plans.values())

    def _turn_to(self, generation: int) -> None:
        if generation != self._generation:
            self.plans = {}
            self._generation = generation

    def remember(self, key: str, plan: CachedPlan) -> None:
        if len(self.plans) >= MAX_CACHED_PLANS:
            del self.plans[next(iter(self.plans))]
        self.plans[key] = plan

    def forget_plans(self, shape: str | None) -> None:
        """Forgets the plans of one shape; None: all."""
        self.plans = {} if shape is None else {key: plan for key, plan in self.plans.items() if plan.shape != shape}
