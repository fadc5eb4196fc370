"""Access paths: the scans of a collection or its indexes among which the planner chooses, and their estimated costs."""

from abc import ABC, abstractmethod

from mongottl.catalog.collection import Collection
from mongottl.document.freeing import LONG, LongSet, list_for
from mongottl.document.interrupt import begin_evaluation, end_evaluation, give_way
from mongottl.exec.plan.bounds import IndexBounds
from mongottl.exec.plan.express import NO_ID_PLAN
from mongottl.exec.plan.oplog_bounds import oplog_span
from mongottl.exec.plan.partition import named_partition
from mongottl.exec.plan.predicates import conjuncts_of
from mongottl.exec.stages.clustered_scan import ClusteredScan
from mongottl.exec.stages.index_scan import (
    IndexScan,
    IndexScanParams,
    IndexStage,
    OrStage,
    PointLookup,
    SkippingScan,
)
from mongottl.exec.stages.stage import BATCH_BYTES, CollectionScan, PlanStage
from mongottl.exec.unit.recovery_unit import RecoveryUnit
from mongottl.query.match import MatchExpression
from mongottl.query.match.tree import AndExpression
from mongottl.query.spill import SpillSpace


class AccessPath(ABC):
    """A scan that returns exactly the documents that match; `open` makes a stage of it.

    sorted: 1 or -1 if it provides the query's sort by a forward or backward scan, 0 if not. metadata: keywords of
    `{$meta: …}` to attach to the documents; each path attaches those that only it can compute. space: where the
    path may write what does not fit into memory, None for nowhere.
    """

    def __init__(self, collection: Collection, direction: int) -> None:
        self.collection = collection
        self.sorted = direction
        self.metadata: set[str] = set()
        self.space: SpillSpace | None = None

    @property
    def label(self) -> str:
        """The path's name in the plan cache, unique among the candidates of one query."""
        return "$natural"

    @abstractmethod
    def open(self, wanted: int, trial: bool = False) -> PlanStage:
        """A new scan. wanted: records needed for the first batch, 0 for all. trial: not counted in index accesses."""
        raise NotImplementedError

    @abstractmethod
    def count_entries(self, unit: RecoveryUnit, limit: int) -> int:
        """How many entries the scan has to examine; counts up to `limit`."""
        raise NotImplementedError

    @abstractmethod
    def share(self, equality: float, scope: float) -> float:
        """Estimated part of the collection to examine. equality, scope: selectivities of an equality and of a range."""
        raise NotImplementedError


class CollectionPath(AccessPath):
    """A collection scan. match: None for no filter."""

    def __init__(self, collection: Collection, match: MatchExpression | None, forward: bool) -> None:
        super().__init__(collection, 0)
        self.match = match
        self.forward = forward

    def open(self, wanted: int, trial: bool = False) -> PlanStage:
        clustering = self.collection.clustering
        if clustering is not None:
            return ClusteredScan(self.collection, clustering, self.match, self.forward, wanted)
        scan = CollectionScan(
            self.collection, self.match, self.forward, wanted, oplog_span(self.collection, self.match)
        )
        if self.collection.is_partitioned:
            scan.partition = named_partition(self.collection, self.match)
        return scan

    def count_entries(self, unit: RecoveryUnit, limit: int) -> int:
        return min(limit, unit.records(self.collection).count())

    def share(self, equality: float, scope: float) -> float:
        return 1.0


class IndexPath(AccessPath):
    """A scan of ranges of one index. match: the whole filter; conjuncts: its parts.

    skips: whether the scan seeks past keys outside trailing bounds. residual: the part of the filter that the bounds
    do not decide, or None. id_plan: EXPRESS or ID_HACK if the filter is {_id: value} (`express`), else NO_ID_PLAN.
    """

    def __init__(
        self,
        collection: Collection,
        bounds: IndexBounds,
        match: MatchExpression,
        conjuncts: list[MatchExpression],
        direction: int,
        skips: bool = True,
    ) -> None:
        super().__init__(collection, direction)
        self.bounds = bounds
        self.match: MatchExpression | None = match if conjuncts else None
        covered = _set_of(bounds.covered, bounds.covered_by_trailing if skips else [])
        self._skips = skips
        self.residual: MatchExpression | None = _without(conjuncts, covered) if covered else self.match
        self.id_plan = NO_ID_PLAN

    def leave_nulls_to_keys(self) -> None:
        """Takes equalities to null off the residual where the bounds express them: for counts, which read no fields."""
        residual = self.residual
        bounds = self.bounds
        nulls = _set_of(bounds.covered_nulls, bounds.nulls_covered_by_trailing if self._skips else [])
        if residual is not None and nulls:
            self.residual = _without(conjuncts_of(residual), nulls)

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
        params = self.scan_params(bounds, wanted, trial)
        if bounds.index.has_unique_keys and bounds.points == len(bounds.components):
            return PointLookup(params, self.id_plan)
        return SkippingScan(params) if bounds.trailing else IndexScan(params)

    def scan_params(self, bounds: IndexBounds, wanted: int, trial: bool) -> IndexScanParams:
        """What a scan of these bounds, all of the path's or a part of them, reads."""
        params = IndexScanParams(self.collection, bounds, self.residual, self.match, self.sorted >= 0, wanted, trial)
        if self.collection.is_partitioned:
            params.partition = named_partition(self.collection, self.match)
            if params.partition is None:
                # Records are read after their entries, and may have been given other keys meanwhile.
                params.residual = self.match
        return params

    def bound_paths(self) -> set[str]:
        """The paths that the ranges bound."""
        components = self.bounds.components
        return {components[i].path.dotted for i in range(len(self.bounds.intervals)) if components[i].named}

    def count_entries(self, unit: RecoveryUnit, limit: int) -> int:
        data = unit.index(self.bounds.index)
        partition = named_partition(self.collection, self.match)
        if partition is not None:
            data = data.of_partition(partition)
        counted = 0
        for key_range in self.bounds.ranges:
            after: tuple[bytes, int] | None = None
            more = True
            while more and counted < limit:
                entries, more = data.scan(key_range, after, limit - counted, BATCH_BYTES)
                counted += len(entries)
                if entries:
                    after = entries[-1]
            if counted >= limit:
                break
        return counted

    def share(self, equality: float, scope: float) -> float:
        bounds = self.bounds
        share: float = equality ** max(0, bounds.points - bounds.unnamed)
        if len(bounds.intervals) > bounds.points:
            share *= scope
        return share


def _set_of(some: list[MatchExpression], more: list[MatchExpression]) -> set[MatchExpression]:
    """The expressions of two lists."""
    if len(some) + len(more) < LONG:
        return {*some, *more}
    expressions: set[MatchExpression] = LongSet()
    for part in (some, more):
        for expression in part:
            give_way()
            expressions.add(expression)
    return expressions


def _without(conjuncts: list[MatchExpression], covered: set[MatchExpression]) -> MatchExpression | None:
    """The conjunction of those that are not covered, None for none."""
    left: list[MatchExpression] = list_for(len(conjuncts))
    for conjunct in conjuncts:
        give_way()
        if conjunct not in covered:
            left.append(conjunct)
    if not left:
        return None
    return left[0] if len(left) == 1 else AndExpression(left)


class OrPath(AccessPath):
    """An OR of several scans, each record once; without paths nothing matches."""

    def __init__(self, collection: Collection, paths: list[AccessPath]) -> None:
        super().__init__(collection, 0)
        self.paths = paths

    @property
    def label(self) -> str:
        return "OR"

    def open(self, wanted: int, trial: bool = False) -> PlanStage:
        begun = begin_evaluation()  # of a hundred thousand scans, which are opened as soon as the query is planned
        try:
            stages: list[PlanStage] = list_for(len(self.paths))
            for path in self.paths:
                give_way()
                path.metadata = self.metadata
                path.space = self.space
                stages.append(path.open(wanted, trial))
            return self._stage_of(stages)
        finally:
            if begun:
                end_evaluation()

    def _stage_of(self, stages: list[PlanStage]) -> PlanStage:
        return OrStage(stages)

    def count_entries(self, unit: RecoveryUnit, limit: int) -> int:
        counted = 0
        for path in self.paths:
            give_way()
            counted += path.count_entries(unit, limit - counted)
            if counted >= limit:
                break
        return counted

    def share(self, equality: float, scope: float) -> float:
        total = 0.0
        for path in self.paths:
            give_way()
            total += path.share(equality, scope)
        return min(1.0, total)
