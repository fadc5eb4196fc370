"""Wildcard indexes: for each path that such an index includes, it serves filters like an index on that path.

Its keys have the path as a component, which explain shows as `$_path`, and the value at it:

    {a: 5}                {$_path: ["a", "a"], a: [5, 5]}
    {a: {$exists: true}}  {$_path: ["a", "a"], ["a.", "a/"), a: [MinKey, MaxKey]}

since the fields of a document at `a` have paths of their own.
Documents without the path have no key, so only predicates that are false for a missing value are served. Documents and
arrays as values have no key either, except the empty document and an array within an array. Source: MongoDB's page
"Wildcard Index Restrictions".
"""

from typing import Final

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.index_kinds.wildcard import WildcardKeyGenerator
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.compare import BRACKET_ARRAY, BRACKET_OBJECT, BRACKET_STRING
from mongottl.document.path import FieldPath
from mongottl.document.types import MinKey, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.plan.access_path import AccessPath, IndexPath, OrPath
from mongottl.exec.plan.bounds import BoundComponent, bounds_of, components_of, sort_direction
from mongottl.exec.plan.index_access.access import IndexAccess
from mongottl.exec.plan.predicates import Filter, Predicate, conjuncts_of, parts_beside
from mongottl.query.match import MatchExpression
from mongottl.query.match.comparison import EQ, ComparisonExpression
from mongottl.query.match.elements import ExistsExpression, TypeExpression
from mongottl.query.match.interval import Interval, bracket_interval, intersection, point
from mongottl.query.match.text_order import all_orders_equal
from mongottl.query.match.tree import AlwaysTrue, AndExpression, NotExpression, OrExpression
from mongottl.query.sort import SortPattern

PATH_COMPONENT: Final = "$_path"
# Maximum candidates of one index, however many paths a filter names.
MAX_PATHS: Final = 64
_DOCUMENTS: Final = [bracket_interval(BRACKET_OBJECT)]
_ARRAYS: Final = [bracket_interval(BRACKET_ARRAY)]


class PathComponent(BoundComponent):
    """The path component of the keys. intervals: the wanted paths."""

    def __init__(self, intervals: list[Interval]) -> None:
        super().__init__(FieldPath(PATH_COMPONENT), 1, False, ordered=False, whole=False, named=False)
        self._intervals = intervals

    def predicates(self, filter: Filter) -> list[Predicate] | None:
        return [Predicate(PATH_COMPONENT, self._intervals, AlwaysTrue(), False, False, True, [])]


class ValueComponent(BoundComponent):
    """The value component of the keys. wanted: the predicates that they can serve; empty for all values."""

    def __init__(self, path: FieldPath, direction: Value, descending: bool, wanted: list[Predicate]) -> None:
        super().__init__(path, direction, descending, ordered=bool(wanted))
        self._wanted = wanted

    def predicates(self, filter: Filter) -> list[Predicate] | None:
        return self._wanted or None


class WildcardAccess(IndexAccess):
    """Candidates for each path of the filter, or for the regular components before the wildcard alone."""

    def may_serve(self, index: CollectionIndex, filter: Filter, sort: SortPattern | None) -> bool:
        return bool(filter.conjuncts)

    def candidates(
        self,
        collection: Collection,
        index: CollectionIndex,
        match: MatchExpression,
        filter: Filter,
        sort: SortPattern | None,
    ) -> list[IndexPath]:
        keys = index.keys
        assert isinstance(keys, WildcardKeyGenerator)
        found: list[IndexPath] = []
        existing = _existing_paths(filter, index)
        named_paths = list(filter.by_path)
        named_paths.extend([path for path in existing if path not in filter.by_path])
        for path in named_paths:
            if len(found) == MAX_PATHS:
                break
            if path.endswith("."):
                continue  # arrays have their keys at the path without the dot
            values = [
                predicate
                for predicate in filter.by_path.get(path, [])
                if _serves_values(predicate) and all_orders_equal(predicate.orders, index.descriptor.collation)
            ]
            if values and keys.held.holds_values(path):
                paths = [point(path)]
            elif path in existing and keys.held.holds(path):
                paths = [point(path), Interval(path + ".", True, path + "/", False)]
                values = []
            else:
                continue
            index_path = _index_path(collection, index, match, filter, sort, path, paths, values)
            if index_path is not None and len(index_path.bounds.intervals) > keys.wildcard_position:
                found.append(index_path)
        if keys.wildcard_position > 0 and not found:
            everything = [point(MinKey()), bracket_interval(BRACKET_STRING)]
            index_path = _index_path(
                collection,
                index,
                match,
                filter,
                sort,
                index.descriptor.paths[keys.wildcard_position].dotted,
                everything,
                [],
            )
            if index_path is not None:
                found.append(index_path)
        return found

    def hinted(
        self,
        collection: Collection,
        index: CollectionIndex,
        match: MatchExpression,
        filter: Filter,
        sort: SortPattern | None,
    ) -> AccessPath:
        """The best of the candidates, or for an `$or` the best of each branch.

        NoQueryExecutionPlans (291) if there are none: the index does not contain every document.
        """
        best = _best(self.candidates(collection, index, match, filter, sort))
        if best is not None:
            return best
        for conjunct in filter.conjuncts:
            if isinstance(conjunct, OrExpression):
                rest = parts_beside(filter.conjuncts, conjunct)
                branches: list[AccessPath] = []
                for child in conjunct.children:
                    part = AndExpression([*conjuncts_of(child), *rest])
                    branch = _best(self.candidates(collection, index, part, Filter(part.children), None))
                    if branch is not None:
                        branches.append(branch)
                if len(branches) == len(conjunct.children):
                    return OrPath(collection, branches)
        raise CommandError(
            ErrorCode.NoQueryExecutionPlans,
            f"error processing query: ns={collection.namespace}: planner returned error :: caused by :: $hint: the"
            " wildcard index does not hold every document, and nothing in the query confines it to what it holds",
        )


def _best(index_paths: list[IndexPath]) -> IndexPath | None:
    best: IndexPath | None = None
    for index_path in index_paths:
        if best is None or _narrowness(index_path) > _narrowness(best):
            best = index_path
    return best


def _narrowness(index_path: IndexPath) -> tuple[bool, int, int, int, bool]:
    bounds = index_path.bounds
    return bounds.void, bounds.single_points, bounds.points, len(bounds.intervals), index_path.sorted != 0


def _index_path(
    collection: Collection,
    index: CollectionIndex,
    match: MatchExpression,
    filter: Filter,
    sort: SortPattern | None,
    path: str,
    paths: list[Interval],
    values: list[Predicate],
) -> IndexPath | None:
    """The scan of the keys with these paths. path: the name of the value component; values: the predicates on it."""
    keys = index.keys
    assert isinstance(keys, WildcardKeyGenerator)
    components: list[BoundComponent] = []
    for position, component in enumerate(components_of(index)):
        if position == keys.wildcard_position:
            components.append(PathComponent(paths))
            components.append(ValueComponent(FieldPath(path), component.direction, component.descending, values))
        else:
            components.append(component)
    bounds = bounds_of(index, components, filter)
    if bounds is None or not bounds.bounded:
        return None
    # A document that has several of the paths has several keys.
    bounds.multikey = len(paths) > 1 or len(bounds.intervals) <= keys.wildcard_position or index.arrays.along(path)
    return IndexPath(collection, bounds, match, filter.conjuncts, 0 if sort is None else sort_direction(bounds, sort))


def _existing_paths(filter: Filter, index: CollectionIndex) -> dict[str, None]:
    """The paths that must exist, and whose every value has a key at the path or below it.

    Those with {$exists: true}, with `$type`, equal to an empty array, and with {$ne: null} if the path has no arrays.
    """
    found: dict[str, None] = {}
    for conjunct in filter.conjuncts:
        if isinstance(conjunct, (ExistsExpression, TypeExpression)):
            found[conjunct.path.dotted] = None
        elif isinstance(conjunct, ComparisonExpression):
            if conjunct.operator == EQ and conjunct.value == []:
                found[conjunct.path.dotted] = None
        elif isinstance(conjunct, NotExpression):
            child = conjunct.child
            if isinstance(child, ComparisonExpression) and child.operator == EQ and child.value is None:
                path = child.path.dotted
                if not index.arrays.along(path):
                    found[path] = None
    return found


def _serves_values(predicate: Predicate) -> bool:
    """Whether every value that passes has a key at exactly this path, within the predicate's ranges."""
    if not predicate.exists or predicate.full:
        return False
    for interval in predicate.intervals:
        if interval.is_point and interval.low == EMPTY_DOCUMENT:
            continue
        if intersection([interval], _DOCUMENTS) or intersection([interval], _ARRAYS):
            return False
    return True
