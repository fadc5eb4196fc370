"""Ascending and descending indexes: ranges of values, and sorts."""

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.exec.plan.access_path import AccessPath, IndexPath
from mongottl.exec.plan.bounds import BoundComponent, IndexBounds, bounds_of, components_of, sort_direction
from mongottl.exec.plan.index_access.access import IndexAccess
from mongottl.exec.plan.merged_path import merged_path
from mongottl.exec.plan.predicates import Filter
from mongottl.query.match import MatchExpression
from mongottl.query.sort import SortPattern


class BtreeAccess(IndexAccess):
    """Access to indexes whose keys have one component per path; subclasses override `components`."""

    def components(self, index: CollectionIndex) -> list[BoundComponent]:
        return components_of(index)

    def may_serve(self, index: CollectionIndex, filter: Filter, sort: SortPattern | None) -> bool:
        leading = index.descriptor.paths[0].dotted
        if leading in filter.by_path or leading in filter.of_whole:
            return True
        return sort is not None and any(path.dotted == leading for path in sort.paths)

    def candidates(
        self,
        collection: Collection,
        index: CollectionIndex,
        match: MatchExpression,
        filter: Filter,
        sort: SortPattern | None,
    ) -> list[IndexPath]:
        bounds = bounds_of(index, self.components(index), filter)
        if bounds is None:
            return []
        direction = 0 if sort is None else sort_direction(bounds, sort)
        if not bounds.bounded and direction == 0:
            return []
        if sort is not None and direction == 0:
            merged = merged_path(collection, bounds, match, filter.conjuncts, sort)
            if merged is not None:
                return [merged]
        return [IndexPath(collection, bounds, match, filter.conjuncts, direction)]

    def hinted(
        self,
        collection: Collection,
        index: CollectionIndex,
        match: MatchExpression,
        filter: Filter,
        sort: SortPattern | None,
    ) -> AccessPath:
        """A scan of the index; a sparse or partial one then returns only the documents in it, as documented."""
        components = self.components(index)
        bounds = bounds_of(index, components, filter, complete=False)
        if bounds is None:  # a numeric path component in a multikey index: a full scan, in no useful order
            return IndexPath(collection, IndexBounds(index, components), match, filter.conjuncts, 0)
        direction = 0 if sort is None else sort_direction(bounds, sort)
        return IndexPath(collection, bounds, match, filter.conjuncts, direction)
