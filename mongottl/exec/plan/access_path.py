"""Ways into a collection, as the planner weighs them: each opens as a stage, and tells what it expects to cost."""

from abc import ABC, abstractmethod

from mongottl.catalog.collection import Collection
from mongottl.exec.operation.recovery_unit import RecoveryUnit
from mongottl.exec.plan.bounds import IndexBounds
from mongottl.exec.plan.express import NO_ID_PLAN
from mongottl.exec.stages.clustered_scan import ClusteredScan
from mongottl.exec.stages.index_scan import IndexScan, IndexStage, OrStage, PointLookup, SkippingScan
from mongottl.exec.stages.stage import CollectionScan, PlanStage
from mongottl.query.match import MatchExpression
from mongottl.query.match.tree import AndExpression


class AccessPath(ABC):
    """A way into a collection that gives exactly the documents that match.

    sorted: 1 or -1 if it gives them in the order of the sort that was asked for, 0 if not. metadata: what the documents
    are to carry, by keyword of `{$meta: …}`; each way gives what only it can know.
    """

    def __init__(self, collection: Collection, direction: int) -> None:
        self.collection = collection
        self.sorted = direction
        self.metadata: set[str] = set()

    @property
    def label(self) -> str:
        """What this way is known by among those of one query."""
        return "$natural"

    @abstractmethod
    def open(self, wanted: int, trial: bool = False) -> PlanStage:
        """A new scan. wanted: records that are needed soon, 0 for all. trial: does not count as a use of the index."""
        raise NotImplementedError

    @abstractmethod
    def count_entries(self, unit: RecoveryUnit, most: int) -> int:
        """How many entries there are to examine, at most `most`."""
        raise NotImplementedError

    @abstractmethod
    def share(self, equality: float, scope: float) -> float:
        """A guess, from the shape alone, of the part of the collection that has to be examined."""
        raise NotImplementedError


class CollectionPath(AccessPath):
    """All records in their order. match: None if all match."""

    def __init__(self, collection: Collection, match: MatchExpression | None, forward: bool) -> None:
        super().__init__(collection, 0)
        self.match = match
        self.forward = forward

    def open(self, wanted: int, trial: bool = False) -> PlanStage:
        clustering = self.collection.clustering
        if clustering is not None:
            return ClusteredScan(self.collection, clustering, self.match, self.forward, wanted)
        return CollectionScan(self.collection, self.match, self.forward, wanted)

    def count_entries(self, unit: RecoveryUnit, most: int) -> int:
        return min(most, unit.records(self.collection).count())

    def share(self, equality: float, scope: float) -> float:
        return 1.0


class IndexPath(AccessPath):
    """Ranges of one index. match: the whole filter; conjuncts: its parts.

    residual: what the ranges leave open, or None. id_plan: EXPRESS or ID_HACK where the filter is {_id: value}
    (`express`), else NO_ID_PLAN.
    """

    def __init__(
        self,
        collection: Collection,
        bounds: IndexBounds,
        match: MatchExpression,
        conjuncts: list[MatchExpression],
        direction: int,
    ) -> None:
        super().__init__(collection, direction)
        self.bounds = bounds
        self.match: MatchExpression | None = match if conjuncts else None
        covered = set(bounds.covered)
        self.residual: MatchExpression | None = self.match
        if covered:
            left = [conjunct for conjunct in conjuncts if conjunct not in covered]
            if not left:
                self.residual = None
            else:
                self.residual = left[0] if len(left) == 1 else AndExpression(left)
        self.id_plan = NO_ID_PLAN

    @property
    def label(self) -> str:
        return self.bounds.index.name

    def open(self, wanted: int, trial: bool = False) -> PlanStage:
        stage = self._stage(wanted, trial)
        if self.sorted != 0:
            stage.set_ordered()
        return stage

    def _stage(self, wanted: int, trial: bool) -> IndexStage:
        bounds = self.bounds
        forward = self.sorted >= 0
        if bounds.index.has_unique_keys and bounds.points == len(bounds.components):
            return PointLookup(self.collection, bounds, self.residual, self.match, forward, wanted, trial, self.id_plan)
        if bounds.trailing:
            return SkippingScan(self.collection, bounds, self.residual, self.match, forward, wanted, trial)
        return IndexScan(self.collection, bounds, self.residual, self.match, forward, wanted, trial)

    def bound_paths(self) -> set[str]:
        """The paths that the ranges bind."""
        components = self.bounds.components
        return {components[i].path.dotted for i in range(len(self.bounds.intervals)) if components[i].named}

    def count_entries(self, unit: RecoveryUnit, most: int) -> int:
        data = unit.index(self.bounds.index)
        counted = 0
        for low, high in self.bounds.ranges:
            counted += len(data.scan(low, high, None, most - counted))
            if counted >= most:
                break
        return counted

    def share(self, equality: float, scope: float) -> float:
        bounds = self.bounds
        share: float = equality ** max(0, bounds.points - bounds.unnamed)
        if len(bounds.intervals) > bounds.points:
            share *= scope
        return share


class OrPath(AccessPath):
    """Several scans, each record once. None at all: nothing matches."""

    def __init__(self, collection: Collection, paths: list[AccessPath]) -> None:
        super().__init__(collection, 0)
        self.paths = paths

    @property
    def label(self) -> str:
        return "OR"

    def open(self, wanted: int, trial: bool = False) -> PlanStage:
        for path in self.paths:
            path.metadata = self.metadata
        return OrStage([path.open(wanted, trial) for path in self.paths])

    def count_entries(self, unit: RecoveryUnit, most: int) -> int:
        counted = 0
        for path in self.paths:
            counted += path.count_entries(unit, most - counted)
            if counted >= most:
                break
        return counted

    def share(self, equality: float, scope: float) -> float:
        return min(1.0, sum(path.share(equality, scope) for path in self.paths))
