"""From a filter and a sort to a plan."""

from mongottl.catalog.collection import Collection
from mongottl.document.types import MISSING, Value
from mongottl.exec.context import OperationContext
from mongottl.exec.stages import CollectionScan, EofStage, LimitStage, PlanNode, PlanStage, SkipStage, SortStage
from mongottl.query.match import MatchExpression
from mongottl.query.match.tree import AlwaysFalse, AlwaysTrue, AndExpression
from mongottl.query.sort import SortPattern


def is_trivial(match: MatchExpression) -> bool:
    """Whether the filter is true for every document: {}."""
    return isinstance(match, AlwaysTrue) or (isinstance(match, AndExpression) and not match.children)


class QueryPlan:
    """How a query will be carried out. `open` may be called several times; each time it begins anew."""

    def __init__(
        self,
        collection: Collection | None,
        match: MatchExpression,
        sort: SortPattern | None,
        skip: int,
        limit: int,
        wanted: int,
        forward: bool,
        allow_disk_use: bool,
    ) -> None:
        self.collection = collection
        self.match = match
        self.sort = sort
        self.skip = skip
        self.limit = limit
        self.wanted = wanted
        self.forward = forward
        self.allow_disk_use = allow_disk_use

    def open(self) -> PlanStage:
        """A new run of the plan."""
        collection = self.collection
        if collection is None or isinstance(self.match, AlwaysFalse):
            return EofStage()
        wanted = self.wanted
        if self.limit and (wanted == 0 or wanted > self.limit):
            wanted = self.limit
        if wanted:
            wanted += self.skip
        match = None if is_trivial(self.match) else self.match
        stage: PlanStage = CollectionScan(collection, match, self.forward, 0 if self.sort is not None else wanted)
        if self.sort is not None:
            most = self.skip + self.limit if self.limit else 0
            stage = SortStage(stage, collection, self.sort, most, self.allow_disk_use)
            return SkipStage(stage, self.skip) if self.skip else stage
        if self.skip:
            stage = SkipStage(stage, self.skip)
        return LimitStage(stage, self.limit) if self.limit else stage

    @property
    def winning(self) -> PlanNode:
        """The plan as explain shows it."""
        return self.open().node()

    @property
    def rejected(self) -> list[PlanNode]:
        """The plans that were considered and not taken."""
        return []


def plan_query(
    op: OperationContext,
    collection: Collection | None,
    match: MatchExpression,
    *,
    sort: SortPattern | None = None,
    natural: int = 0,
    skip: int = 0,
    limit: int = 0,
    hint: Value = MISSING,
    wanted: int = 0,
    allow_disk_use: bool = True,
) -> QueryPlan:
    """The plan for a query. None as collection: there is none of that name, and the result is empty.

    natural: 1 or -1 for a sort or hint {$natural: ±1}. limit: 0 for none. hint: an index's name or key pattern, or
    {$natural: ±1}. wanted: how many records the first page needs, 0 for as many as there are.
    """
    if sort is not None and sort.is_empty():
        sort = None
    return QueryPlan(collection, match, sort, skip, limit, wanted, natural >= 0, allow_disk_use)
