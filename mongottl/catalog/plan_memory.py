"""The cached plans and the index filters of a collection.

Both are in memory only, as in mongod, and end with the server or with the collection. They are stored under keys that
the planner makes of queries; nothing here reads a query.
"""

from typing import Final

from mongottl.document.types import Value

MAX_CACHED_PLANS: Final = 1000


class IndexFilter:
    """The only indexes that plans of one query shape may use.

    query, sort, projection, collation: the query by which it was set, raw. indexes: names, or raw key patterns.
    """

    def __init__(self, query: bytes, sort: bytes, projection: bytes, collation: bytes, indexes: list[Value]) -> None:
        self.query = query
        self.sort = sort
        self.projection = projection
        self.collation = collation
        self.indexes = indexes


class CachedPlan:
    """A plan that was chosen by trial.

    shape: the query's shape, as index filters have it. index: the name of its index. works: the entries that it
    examined in the trial. active: whether it is used without a trial, as it is once it was chosen a second time with no
    more works.
    described: the plan as explain shows it. losers: the number of rejected plans. filtered: whether an index filter or
    query settings restricted the candidate indexes.
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

    filters: by shape. plans: by the planner's key, the oldest first; all are for the present indexes.
    """

    def __init__(self) -> None:
        self.filters: dict[str, IndexFilter] = {}
        self.plans: dict[str, CachedPlan] = {}
        self._generation = -1

    def plan_of(self, key: str, generation: int) -> CachedPlan | None:
        """The cached plan of a key, or None. generation: of the collection's indexes; a new one clears the cache."""
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
        """Removes the cached plans of one shape, or all if that is None."""
        self.plans = {} if shape is None else {key: plan for key, plan in self.plans.items() if plan.shape != shape}
