"""When a sort can be provided by merging several scans, and the access paths with a `SortMergeStage`."""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.document.freeing import freed_in_slices
from mongottl.exec.plan.access_path import IndexPath, OrPath
from mongottl.exec.plan.bounds import IndexBounds, sort_direction
from mongottl.exec.stages.index_scan import IndexScan
from mongottl.exec.stages.merge_scan import SortMergeStage
from mongottl.exec.stages.stage import PlanStage
from mongottl.query.match import MatchExpression
from mongottl.query.sort import SortPattern

# Scans that one index scan may be split into; mongod's internalQueryMaxScansToExplode.
MAX_SCANS: Final = 200


class MergedPath(IndexPath):
    """The ranges of one index, split by its leading point intervals into sorted scans."""

    def __init__(
        self,
        collection: Collection,
        bounds: IndexBounds,
        match: MatchExpression,
        conjuncts: list[MatchExpression],
        parts: list[IndexBounds],
        direction: int,
        sort: SortPattern,
    ) -> None:
        super().__init__(collection, bounds, match, conjuncts, direction, skips=False)
        self.parts = parts
        self.sort = sort

    def open(self, wanted: int, trial: bool = False) -> PlanStage:
        children: list[PlanStage] = []
        for part in self.parts:
            children.append(IndexScan(self.scan_params(part, wanted, trial)))
            trial = True  # together they count as one access of the index
        return SortMergeStage(self.collection, children, self.sort)


class MergedOrPath(OrPath):
    """A SORT_MERGE of the sorted index scans of an `$or`."""

    def __init__(self, collection: Collection, paths: list[IndexPath], sort: SortPattern) -> None:
        super().__init__(collection, freed_in_slices([*paths]))
        self.sorted = 1
        self.sort = sort

    @property
    def label(self) -> str:
        return "SORT_MERGE"

    def _stage_of(self, stages: list[PlanStage]) -> PlanStage:
        return SortMergeStage(self.collection, stages, self.sort)


def merged_path(
    collection: Collection,
    bounds: IndexBounds,
    match: MatchExpression,
    conjuncts: list[MatchExpression],
    sort: SortPattern,
) -> MergedPath | None:
    """A SORT_MERGE that provides the sort where a single scan with these bounds does not; None if impossible."""
    if bounds.points <= bounds.single_points or bounds.index.arrays.found:
        return None
    scans = 1
    for intervals in bounds.intervals[: bounds.points]:
        scans *= len(intervals)
    if scans > MAX_SCANS or len(bounds.ranges) % scans:
        return None
    parts = _cut(bounds, scans)
    direction = sort_direction(parts[0], sort)
    if direction == 0:
        return None
    return MergedPath(collection, bounds, match, conjuncts, parts, direction, sort)


def _cut(bounds: IndexBounds, scans: int) -> list[IndexBounds]:
    """The bounds for each combination of the leading point intervals, in the order of the keys."""
    size = len(bounds.ranges) // scans
    parts: list[IndexBounds] = []
    for number in range(scans):
        part = IndexBounds(bounds.index, bounds.components)
        rest = number
        for i in range(bounds.points - 1, -1, -1):
            intervals = bounds.intervals[i]
            at = rest % len(intervals)
            rest //= len(intervals)
            if bounds.components[i].descending:
                at = len(intervals) - 1 - at
            part.intervals.insert(0, [intervals[at]])
        part.intervals.extend(bounds.intervals[bounds.points :])
        part.ranges = bounds.ranges[number * size : (number + 1) * size]
        part.single_points = bounds.points
        part.points = bounds.points
        part.covered = bounds.covered
        part.is_part = True
        parts.append(part)
    return parts
