"""When an index allows a DISTINCT_SCAN, and its access path."""

from mongottl.catalog.collection import Collection
from mongottl.document.collation import Collation, same_collation
from mongottl.document.key_reader import determines_value
from mongottl.exec.plan.access_path import IndexPath
from mongottl.exec.plan.bounds import IndexBounds, components_of
from mongottl.exec.stages.covered_scan import known_paths
from mongottl.exec.stages.distinct_scan import DistinctScan, NullRule
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
        nulls: NullRule,
        type_bits: int,
    ) -> None:
        super().__init__(collection, bounds, AlwaysTrue(), [], direction)
        self.match = match
        self._place = place
        self._nulls = nulls
        self.type_bits = type_bits
        # Whether it gives the order of the query's sort.
        self.gives_sort = False
        # Whether each value is at one place of the index only, after components bound to one point each.
        self.returns_once = place <= bounds.single_points and nulls is not NullRule.ALL

    def open(self, wanted: int, trial: bool = False) -> DistinctScan:
        params = self.scan_params(self.bounds, wanted, trial)
        scan = DistinctScan(params, self._place, self._nulls, self.type_bits)
        if self.gives_sort:
            scan.set_ordered()
        return scan


class DistinctQuery:
    """The values whose documents a DISTINCT_SCAN returns.

    key: their path. read_paths: all paths that are read in the documents, None if they are not known. nulls: for the
    documents whose key is null. elements: whether the elements of arrays count as values. ordered: whether the plan's
    order decides which document of each value is wanted; last: whether it is the last one, not the first.
    """

    def __init__(
        self,
        key: str,
        read_paths: list[str] | None,
        collation: Collation | None,
        nulls: NullRule = NullRule.WITH_VALUE,
        elements: bool = True,
        ordered: bool = False,
        last: bool = False,
    ) -> None:
        self.key = key
        self.read_paths = read_paths
        self.collation = collation
        self.nulls = nulls
        self.elements = elements
        self.ordered = ordered
        self.last = last


def distinct_path(path: IndexPath, query: DistinctQuery) -> DistinctPath | None:
    """The DISTINCT_SCAN for an index scan, if the bounds express the whole filter and bind all before the key."""
    bounds = path.bounds
    if path.residual is not None or path.id_plan or bounds.void or bounds.limits is not None:
        return None
    direction = path.sorted
    if query.last:
        direction = -1 if direction >= 0 else 1
    found = _over(path.collection, bounds, path.match, direction, query)
    if found is not None:
        found.gives_sort = path.sorted != 0
    return found


def whole_distinct_path(collection: Collection, query: DistinctQuery) -> DistinctPath | None:
    """The DISTINCT_SCAN for the values in the whole collection, without a filter, if an index allows it."""
    for index in collection.indexes:
        descriptor = index.descriptor
        if not index.ready or descriptor.hidden or descriptor.partial_match is not None:
            continue
        if descriptor.sparse and query.nulls is not NullRule.WITH_VALUE:
            continue
        path = _over(collection, IndexBounds(index, components_of(index)), None, 0, query)
        if path is not None:
            return path
    return None


def _over(
    collection: Collection, bounds: IndexBounds, match: MatchExpression | None, direction: int, query: DistinctQuery
) -> DistinctPath | None:
    index = bounds.index
    components = bounds.components
    if not index.has_keys or index.descriptor.kind.name != "btree":
        return None
    # With components in front that the filter does not bind, every value may come any number of times.
    place = -1
    for i in range(min(len(bounds.intervals) + 1, len(components))):
        if components[i].path.dotted == query.key:
            place = i
    if place < 0 or any(number >= 0 for number in components[place].path.indexes):
        return None
    # All keys of a document must be within the bounds, and have one value unless its elements are wanted.
    arrays = bounds.arrays
    if any(arrays.along(path) for path in bounds.bounded_paths()) or (arrays.along(query.key) and not query.elements):
        return None
    if not same_collation(index.descriptor.collation, query.collation):
        return None
    paths = query.read_paths
    covered = (
        paths is not None
        and not arrays.found
        and collection.default_ttl_s == NO_TTL
        and index.descriptor.collation is None
        and known_paths(bounds, index.type_bits).issuperset(paths)
    )
    nulls = query.nulls
    if nulls is NullRule.ALL and determines_value(index.type_bits, place):
        nulls = NullRule.ONE
    type_bits = index.type_bits if covered else -1
    return DistinctPath(collection, bounds, match, direction, place, nulls, type_bits)
