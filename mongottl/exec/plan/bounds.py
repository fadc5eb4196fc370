"""From a filter's predicates to ranges of index keys.

An index uses the predicates (see `predicates`) on its leading paths:

    index {a: 1, b: 1, c: 1}     {a: 5, b: {$in: [1, 2]}, c: {$gt: 7}}   ->   (5, 1, >7), (5, 2, >7)
                                 {a: 5, b: {$gt: 1}, c: 7}               ->   (5, >1), with c: 7 as a trailing bound
                                 {b: 1}                                  ->   no bounds

that is, leading components with points, then one component with ranges. Predicates on the following components become
trailing bounds: a scan of the ranges seeks past the keys outside of them, and the filter is tested on the documents.

In a multikey index a document has one key per array element, and two predicates may be true for two different elements.
So only one predicate per path is used there, and predicates on paths through the same array are combined only if they
are within one $elemMatch on that array. The paths with arrays are known (`catalog.array_paths`), so the other paths
keep their tight bounds. A numeric path component through an array is ambiguous, an element's index or a field name;
such an index is not used.

Predicates that the ranges express exactly are not tested on the documents again: `covered`.

Under a collation ranges of strings are ranges of sort keys. So an index uses only predicates with its own collation, or
without strings (`query.match.text_order`); the others are tested on the documents.
"""

from typing import Final

from mongottl.catalog.array_paths import ArrayPaths
from mongottl.catalog.collection import CollectionIndex
from mongottl.catalog.key_ranges import ALL_KEYS, keys_with_prefix
from mongottl.document.collation import Collation, same_collation
from mongottl.document.compare import (
    BRACKET_ARRAY,
    BRACKET_STRING,
    bracket_of,
)
from mongottl.document.freeing import list_for
from mongottl.document.interrupt import give_way
from mongottl.document.keystring import bracket_range, encode_value, successor
from mongottl.document.long_lists import each_with_each, with_more
from mongottl.document.path import FieldPath
from mongottl.document.types import Value
from mongottl.exec.plan.predicates import Filter, Predicate, is_everything
from mongottl.query.match import MatchExpression
from mongottl.query.match.interval import BracketEnd, BracketStart, Interval, everything, intersection_of_all
from mongottl.query.match.text_order import all_orders_equal
from mongottl.query.sort import SortPattern
from mongottl.storage.stores import KeyRange

# What the values in an interval of one component are encoded as: from the first to below the second.
ComponentRange = tuple[bytes, bytes]

# Maximum ranges from combining several lists of points; beyond that the later components get no bounds.
MAX_RANGES: Final = 4096


class BoundComponent:
    """One component of an index's keys. In a btree index it contains the values at its path.

    path: as in the filter and in explain. direction: as in explain. ordered: whether the order of the keys is that of
    the path's values. whole: whether keys contain the path's values, not hashes or cells of them. named: whether it is
    a path of the documents (not `$_path`).
    """

    def __init__(
        self,
        path: FieldPath,
        direction: Value,
        descending: bool,
        ordered: bool = True,
        whole: bool = True,
        named: bool = True,
    ) -> None:
        self.path = path
        self.direction = direction
        self.descending = descending
        self.ordered = ordered
        self.whole = whole
        self.named = named

    def predicates(self, filter: Filter) -> list[Predicate] | None:
        """The filter's predicates on the component; None for none."""
        return filter.by_path.get(self.path.dotted)


def components_of(index: CollectionIndex) -> list[BoundComponent]:
    """The components of a btree index."""
    descriptor = index.descriptor
    return [
        BoundComponent(descriptor.paths[i], descriptor.directions[i], descriptor.descending[i])
        for i in range(len(descriptor.paths))
    ]


class IndexBounds:
    """The ranges of one index that a filter allows.

    components: of the keys. intervals: for each leading component that the ranges express, in the index's order.
    trailing: for the following components, the intervals in which a key must be to match; a scan may seek past other
    keys (`key_skipper`). Later components are unbounded.
    ranges: ascending by key. single_points: number of leading components with one point; points: of leading ones with
    points only. covered: conjuncts that are true for every document with a key in the ranges; covered_by_trailing: if
    the key is within the trailing bounds too; covered_nulls, nulls_covered_by_trailing: equalities to null of which
    the same holds, although null and a missing field differ in documents. void: whether nothing can match.
    """

    def __init__(self, index: CollectionIndex, components: list[BoundComponent]) -> None:
        self.index = index
        self.components = components
        self.intervals: list[list[Interval]] = []
        self.trailing: list[list[Interval]] = []
        self.ranges: list[KeyRange] = [ALL_KEYS]
        self.single_points = 0
        self.points = 0
        self.covered: list[MatchExpression] = []
        self.covered_by_trailing: list[MatchExpression] = []
        self.covered_nulls: list[MatchExpression] = []
        self.nulls_covered_by_trailing: list[MatchExpression] = []
        self.void = False
        # The first and the last key as documents, for bounds by find's `min` and `max`; else None.
        self.limits: tuple[bytes, bytes] | None = None
        # The array paths when the plan was made; if there are more since, nothing counts as covered.
        self.arrays: ArrayPaths = index.arrays
        self.multikey = index.arrays.found
        # Whether they are a part of the bounds of a filter, to be read in the index's order (`merge_scan`).
        self.is_part = False

    @property
    def unnamed(self) -> int:
        """How many of the bounded components are not paths of the documents."""
        return sum(1 for i in range(len(self.intervals)) if not self.components[i].named)

    @property
    def bounded(self) -> bool:
        return bool(self.intervals)

    def bounded_paths(self) -> list[str]:
        """The paths that the ranges or the trailing bounds restrict."""
        components = self.components
        bounded = [components[i].path.dotted for i in range(len(self.intervals))]
        for i in range(len(self.trailing)):
            intervals = self.trailing[i]
            if len(intervals) != 1 or not is_everything(intervals[0]):
                bounded.append(components[len(self.intervals) + i].path.dotted)
        return bounded

    @property
    def at_most_one(self) -> bool:
        """Whether the ranges contain at most one key."""
        return self.index.has_unique_keys and self.single_points == len(self.components) and len(self.ranges) == 1


def bounds_of(
    index: CollectionIndex, components: list[BoundComponent], filter: Filter, complete: bool = True
) -> IndexBounds | None:
    """The bounds of a filter in an index, or None if the index must not be used.

    complete: whether a sparse index is used only if the filter proves that it contains all documents that match.
    """
    descriptor = index.descriptor
    arrays = index.arrays
    if arrays.found and _has_number_in_array(components, arrays):
        return None
    bounds = IndexBounds(index, components)
    prefixes: list[bytes] = [b""]
    chosen: list[Predicate] = []
    for i in range(len(components)):
        taken = _usable(components[i], filter, descriptor.collation, chosen, arrays)
        if not taken:
            break
        through_array = bool(arrays.along(components[i].path.dotted))
        intervals = _common(taken)
        if i == 0 and descriptor.sparse and complete and not _any_exists(taken):
            return None
        full = len(intervals) == 1 and is_everything(intervals[0])
        if full and not (i == 0 and descriptor.sparse):
            break
        points = taken[0].points if len(taken) == 1 else _all_points(intervals)
        if len(intervals) * len(prefixes) > MAX_RANGES and i > 0:
            break
        chosen = with_more(chosen, taken)
        bounds.intervals.append(intervals)
        bounds.covered = with_more(bounds.covered, _proven(taken, through_array))
        bounds.covered_nulls = with_more(bounds.covered_nulls, _nulls_of(taken, through_array))
        if not intervals:
            bounds.void = True
            bounds.ranges = []
            return bounds
        descending = components[i].descending
        if not points:
            bounds.ranges = _ranges(prefixes, intervals, descending)
            _add_trailing(bounds, filter, chosen)
            return bounds
        prefixes = _extended(prefixes, intervals, descending)
        bounds.points += 1
        if len(intervals) == 1 and bounds.single_points == i:
            bounds.single_points += 1
    if bounds.points:
        bounds.ranges = list_for(len(prefixes))
        for prefix in prefixes:
            bounds.ranges.append(keys_with_prefix(prefix))
        _add_trailing(bounds, filter, chosen)
    elif descriptor.sparse and complete:
        return None
    return bounds


def _usable(
    component: BoundComponent,
    filter: Filter,
    collation: Collation | None,
    chosen: list[Predicate],
    arrays: ArrayPaths,
) -> list[Predicate]:
    """The predicates on a component that may be combined with those chosen for the components before it."""
    path = component.path.dotted
    through_array = arrays.along(path)
    predicates = component.predicates(filter)
    if component.whole and component.named and not through_array:
        of_whole = filter.of_whole.get(path)
        if of_whole is not None:
            predicates = of_whole if predicates is None else with_more(with_more([], predicates), of_whole)
    if predicates is not None:
        predicates = _comparable(predicates, collation)
    if predicates is None:
        return []
    if not through_array:
        return predicates
    best = _best_compatible(predicates, chosen, arrays)
    return [] if best is None else [best]


def _proven(predicates: list[Predicate], through_array: bool) -> list[MatchExpression]:
    """The conjuncts that are true for every document with a key in the intervals of these predicates on one path."""
    proven: list[MatchExpression] = list_for(len(predicates))
    for each in predicates:
        give_way()
        if each.exact_multikey or (each.exact and not through_array):
            proven.append(each.source)
    return proven


def _nulls_of(predicates: list[Predicate], through_array: bool) -> list[MatchExpression]:
    """Those of the conjuncts that are equalities to null, unless keys of arrays' elements may be null too."""
    nulls: list[MatchExpression] = []
    if not through_array:
        for each in predicates:
            give_way()
            if each.of_null:
                nulls.append(each.source)
    return nulls


def _add_trailing(bounds: IndexBounds, filter: Filter, chosen: list[Predicate]) -> None:
    """Sets `bounds.trailing` from the predicates on the components after those that the ranges express."""
    descriptor = bounds.index.descriptor
    found: list[list[Interval]] = []
    for component in bounds.components[len(bounds.intervals) :]:
        taken = _usable(component, filter, descriptor.collation, chosen, bounds.arrays)
        chosen = with_more(chosen, taken)
        through_array = bounds.arrays.along(component.path.dotted)
        bounds.covered_by_trailing = with_more(bounds.covered_by_trailing, _proven(taken, through_array))
        bounds.nulls_covered_by_trailing = with_more(bounds.nulls_covered_by_trailing, _nulls_of(taken, through_array))
        intervals = _common(taken) if taken else [everything()]
        if not intervals:
            bounds.void = True
            bounds.ranges = []
            return
        found.append(intervals)
    while found and len(found[-1]) == 1 and is_everything(found[-1][0]):
        found.pop()
    bounds.trailing = found


def _comparable(predicates: list[Predicate], collation: Collation | None) -> list[Predicate] | None:
    """The predicates whose ranges are valid in an index of this collation; None for none."""
    for predicate in predicates:
        give_way()
        if predicate.orders and not all_orders_equal(predicate.orders, collation):
            found: list[Predicate] = list_for(len(predicates))
            for one in predicates:
                give_way()
                if all_orders_equal(one.orders, collation):
                    found.append(one)
            return found or None
    return predicates


def _common(predicates: list[Predicate]) -> list[Interval]:
    """The intervals that all predicates on one path allow."""
    if len(predicates) == 1:
        return predicates[0].intervals
    lists: list[list[Interval]] = list_for(len(predicates))
    for each in predicates:
        give_way()
        lists.append(each.intervals)
    return intersection_of_all(lists)


def _any_exists(predicates: list[Predicate]) -> bool:
    for each in predicates:
        give_way()
        if each.exists:
            return True
    return False


def _all_points(intervals: list[Interval]) -> bool:
    return all(interval.is_point for interval in intervals)


def _has_number_in_array(components: list[BoundComponent], arrays: ArrayPaths) -> bool:
    """Whether a numeric path component may be the index of an array's element."""
    for component in components:
        for index in component.path.indexes:
            if index >= 0 and arrays.along(component.path.dotted):
                return True
    return False


def _best_compatible(predicates: list[Predicate], chosen: list[Predicate], arrays: ArrayPaths) -> Predicate | None:
    """The most selective of the predicates on one path through an array that may be combined with the chosen ones."""
    best: Predicate | None = None
    best_rank = 0
    for predicate in predicates:
        give_way()
        if not all(_may_combine(predicate, other, arrays) for other in chosen):
            continue
        rank = 1
        if predicate.points:
            rank = 4 if len(predicate.intervals) == 1 else 3
        elif not predicate.full:
            rank = 2
        if rank > best_rank or (rank == best_rank and best is not None and predicate.exists and not best.exists):
            best = predicate
            best_rank = rank
    return best


def _may_combine(a: Predicate, b: Predicate, arrays: ArrayPaths) -> bool:
    """Whether two predicates on different paths must be true for the same key."""
    shared = arrays.deepest(shared_prefix(a.path, b.path))
    if not shared:
        return True
    return any(path == shared and (serial, path) in b.elements for serial, path in a.elements)


def shared_prefix(a: str, b: str) -> str:
    """The leading components that two paths have in common: "x.y" of "x.y.a" and "x.y.b"."""
    common: list[str] = []
    for x, y in zip(a.split("."), b.split("."), strict=False):
        if x != y:
            break
        common.append(x)
    return ".".join(common)


def _cut(end: Value, after: bool, descending: bool) -> bytes:
    """The key bytes of an interval's end in one component. after: whether keys equal to the end are before the cut."""
    if isinstance(end, BracketStart):
        return bracket_range(end.bracket, descending)[1 if descending else 0]
    if isinstance(end, BracketEnd):
        return bracket_range(end.bracket, descending)[0 if descending else 1]
    key = encode_value(end, descending)
    return successor(key) if after != descending else key


def component_range(interval: Interval, descending: bool) -> ComponentRange:
    """The keys of one component whose value is within the interval."""
    low = _cut(interval.low, not interval.low_inclusive, descending)
    high = _cut(interval.high, interval.high_inclusive, descending)
    return (high, low) if descending else (low, high)


def _ranges(prefixes: list[bytes], intervals: list[Interval], descending: bool) -> list[KeyRange]:
    parts: list[ComponentRange] = list_for(len(intervals))
    for interval in intervals:
        parts.append(component_range(interval, descending))
    if descending:
        parts.reverse()
    ranges: list[KeyRange] = list_for(len(prefixes) * len(parts))
    for prefix in prefixes:
        for low, high in parts:
            give_way()
            ranges.append(KeyRange(prefix + low, prefix + high))
    return ranges


def _extended(prefixes: list[bytes], points: list[Interval], descending: bool) -> list[bytes]:
    parts: list[bytes] = list_for(len(points))
    for interval in points:
        give_way()
        parts.append(encode_value(interval.low, descending))
    if descending:
        parts.reverse()
    return each_with_each(prefixes, parts)


def sort_direction(bounds: IndexBounds, sort: SortPattern) -> int:
    """1 if a forward scan of the index provides the sort, -1 if a backward scan does, 0 if neither.

    Components bounded to one point do not affect the order, at any position in the index or in the sort. If a path goes
    through an array, a document sorts by the first of all its keys, not only of those within the bounds: there the
    paths of the sort must be unbounded, and must not share an array with a bounded path. In an index with another
    collation than the sort's, the ranges must exclude strings, objects and arrays. Sorts by metadata: 0.
    """
    if sort.metadata:
        return 0
    components = bounds.components
    width = len(components)
    constant = bounds.single_points
    fixed = [components[i].path.dotted for i in range(constant)]
    arrays = bounds.arrays
    if arrays.found:
        bounded = bounds.bounded_paths()
        for path in sort.paths:
            for other in bounded:
                if arrays.along(shared_prefix(path.dotted, other)):
                    return 0
        fixed = [path for path in fixed if not arrays.along(path)]
    same_order = same_collation(bounds.index.descriptor.collation, sort.collation)
    direction = 0
    i = 0
    for j in range(len(sort.paths)):
        dotted = sort.paths[j].dotted
        if dotted in fixed:
            continue
        while i < constant and components[i].path.dotted != dotted:
            i += 1
        if i == width or components[i].path.dotted != dotted or not components[i].ordered:
            return 0
        if not same_order and (i >= len(bounds.intervals) or not _without_text(bounds.intervals[i])):
            return 0
        wanted = 1 if components[i].descending == sort.descending[j] else -1
        if direction not in (0, wanted):
            return 0
        direction = wanted
        i += 1
    return direction if direction != 0 else 1


def _without_text(intervals: list[Interval]) -> bool:
    """Whether the intervals contain no strings, objects or arrays."""
    for interval in intervals:
        give_way()
        low = _bracket_of_end(interval.low)
        high = _bracket_of_end(interval.high)
        if low <= BRACKET_ARRAY and high >= BRACKET_STRING:
            return False
    return True


def _bracket_of_end(end: Value) -> int:
    return end.bracket if isinstance(end, (BracketStart, BracketEnd)) else int(bracket_of(end))
