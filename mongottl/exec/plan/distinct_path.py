"""When an index allows a DISTINCT_SCAN, and its access path."""

from mongottl.catalog.collection import Collection
from mongottl.document.collation import Collation, same_collation
from mongottl.exec.plan.access_path import IndexPath
from mongottl.exec.plan.bounds import IndexBounds, components_of
from mongottl.exec.stages.covered_scan import known_paths
from mongottl.exec.stages.distinct_scan import DistinctScan
from mongottl.query.match import MatchExpression
from mongottl.query.match.tree import AlwaysTrue
from mongottl.ttl.policy import NO_TTL


class DistinctPath(IndexPath):
    """A DISTINCT_SCAN. match: the filter that the bounds express, None for none.

    type_bits: of the index, if its keys contain all that the documents are read for; else -1.
    """

    def __init__(
        self,
        collection: Collection,
        bounds: IndexBounds,
        match: MatchExpression | None,
        direction: int,
        place: int,
        with_missing: bool,
        type_bits: int,
    ) -> None:
        super().__init__(collection, bounds, AlwaysTrue(), [], direction)
        self.match = match
        self._place = place
        self._with_missing = with_missing
        self.type_bits = type_bits
        # Whether each value is at one place of the index only, behind components bound to one point each.
        self.returns_once = place <= bounds.single_points

    def open(self, wanted: int, trial: bool = False) -> DistinctScan:
        params = self.scan_params(self.bounds, wanted, trial)
        scan = DistinctScan(params, self._place, self._with_missing, self.type_bits)
        if self.sorted != 0:
            scan.set_ordered()
        return scan


class DistinctQuery:
    """The values whose documents a DISTINCT_SCAN returns.

    key: their path. read_paths: all paths that are read in the documents, None if they are not known. with_missing:
    whether documents without the path have a value too. last: whether the last document of each value in the order of
    the sort is wanted, not the first.
    """

    def __init__(
        self,
        key: str,
        read_paths: list[str] | None,
        collation: Collation | None,
        with_missing: bool = False,
        last: bool = False,
    ) -> None:
        self.key = key
        self.read_paths = read_paths
        self.collation = collation
        self.with_missing = with_missing
        self.last = last


def distinct_path(path: IndexPath, query: DistinctQuery) -> DistinctPath | None:
    """The DISTINCT_SCAN for an index scan, if the bounds express the whole filter and bind all before the key."""
    bounds = path.bounds
    if path.residual is not None or path.id_plan or bounds.void or bounds.limits is not None:
        return None
    return _over(path.collection, bounds, path.match, -path.sorted if query.last else path.sorted, query)


def whole_distinct_path(collection: Collection, query: DistinctQuery) -> DistinctPath | None:
    """The DISTINCT_SCAN for the values in the whole collection, without a filter, if an index allows it."""
    for index in collection.indexes:
        descriptor = index.descriptor
        if not index.ready or not index.has_keys or descriptor.hidden or descriptor.kind.name != "btree":
            continue
        if descriptor.sparse or descriptor.partial_match is not None:
            continue
        path = _over(collection, IndexBounds(index, components_of(index)), None, 0, query)
        if path is not None:
            return path
    return None


def _over(
    collection: Collection, bounds: IndexBounds, match: MatchExpression | None, direction: int, query: DistinctQuery
) -> DistinctPath | None:
    index = bounds.index
    descriptor = index.descriptor
    components = bounds.components
    if descriptor.kind.name != "btree":
        return None
    # With components in front that the filter does not bind, every value may come any number of times.
    place = -1
    for i in range(min(len(bounds.intervals) + 1, len(components))):
        if components[i].path.dotted == query.key:
            place = i
    if place < 0 or any(number >= 0 for number in components[place].path.indexes):
        return None
    if index.arrays.found or collection.default_ttl_s != NO_TTL:
        return None
    if index.has_unique_keys and place + 1 == len(components):
        return None  # every value comes once
    if descriptor.collation is not None or not same_collation(descriptor.collation, query.collation):
        return None
    paths = query.read_paths
    covered = paths is not None and known_paths(bounds, index.type_bits).issuperset(paths)
    type_bits = index.type_bits if covered else -1
    return DistinctPath(collection, bounds, match, direction, place, query.with_missing, type_bits)
