"""Geospatial indexes: the cells that cover a region become ranges of keys; `$near` scans by distance.

The ranges contain more than the region, so the filter is also tested on the documents.
"""

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.index_kinds.geospatial import (
    PLANE,
    SPHERE,
    geohash_of,
    plane_value,
    sphere_value,
)
from mongottl.document.path import FieldPath
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.plan.access_path import AccessPath, IndexPath, OrPath
from mongottl.exec.plan.bounds import (
    BoundComponent,
    ComponentRange,
    IndexBounds,
    bounds_of,
    component_range,
    components_of,
)
from mongottl.exec.plan.index_access.btree import BtreeAccess
from mongottl.exec.plan.predicates import Filter, Predicate
from mongottl.exec.stages.near_scan import KeyedNearness, NearStage
from mongottl.exec.stages.stage import PlanStage
from mongottl.exec.unit.recovery_unit import RecoveryUnit
from mongottl.geometry.geohash import Geohash
from mongottl.geometry.nearness import Nearness, PlaneNearness
from mongottl.query.match import MatchExpression
from mongottl.query.match.geo import GeoExpression
from mongottl.query.match.interval import Interval
from mongottl.query.match.near import METRES, RADIANS, NearExpression
from mongottl.query.match.near import PLANE as PLANE_UNIT
from mongottl.query.sort import SortPattern

# The error code for a `$near` point outside the bounds of a 2d index.
POINT_NOT_IN_INTERVAL = 16433


class GeoComponent(BoundComponent):
    """The geo component of a 2d or 2dsphere index."""

    def __init__(self, path: FieldPath, direction: str) -> None:
        super().__init__(path, direction, False, ordered=False, whole=False)

    def intervals(self, expression: GeoExpression) -> list[Interval] | None:
        """The intervals of keys that may match; None if this index does not serve the region."""
        raise NotImplementedError

    def predicates(self, filter: Filter) -> list[Predicate] | None:
        found: list[Predicate] = []
        for part in filter.conjuncts:
            if isinstance(part, GeoExpression) and part.path.dotted == self.path.dotted:
                intervals = self.intervals(part)
                if intervals is not None:
                    found.append(Predicate(self.path.dotted, intervals, part, False, False, True, []))
        return found or None


class SphereComponent(GeoComponent):
    """The geo component of a 2dsphere index: cells on the sphere."""

    def __init__(self, path: FieldPath) -> None:
        super().__init__(path, SPHERE)

    def intervals(self, expression: GeoExpression) -> list[Interval] | None:
        region = expression.region
        if not region.spherical:
            return None
        return [_interval(sphere_value(low), sphere_value(high)) for low, high in region.cell_ranges()]


class PlaneComponent(GeoComponent):
    """The geo component of a 2d index: geohashes of points on the plane."""

    def __init__(self, path: FieldPath, geohash: Geohash) -> None:
        super().__init__(path, PLANE)
        self._geohash = geohash

    def intervals(self, expression: GeoExpression) -> list[Interval] | None:
        bounds = expression.region.bounds()
        if bounds is None:
            return None
        geohash = self._geohash
        return [
            _interval(plane_value(geohash, low), plane_value(geohash, high, last=True))
            for low, high in geohash.ranges(bounds)
        ]


def _interval(low: Value, high: Value) -> Interval:
    return Interval(low, True, high, True, exact=False)


class GeospatialAccess(BtreeAccess):
    """Access to 2d and 2dsphere indexes."""

    def components(self, index: CollectionIndex) -> list[BoundComponent]:
        raise NotImplementedError

    def nearness(self, index: CollectionIndex, near: NearExpression) -> Nearness:
        """Distances from the point, in the operator's unit."""
        raise NotImplementedError

    def keyed(self, index: CollectionIndex, nearness: Nearness, prefixes: list[bytes]) -> KeyedNearness:
        raise NotImplementedError

    def may_serve(self, index: CollectionIndex, filter: Filter, sort: SortPattern | None) -> bool:
        # Documents without the geo field are not in the index, so it serves geo predicates only.
        places = [
            path.dotted
            for path, direction in zip(index.descriptor.paths, index.descriptor.directions, strict=True)
            if isinstance(direction, str)
        ]
        return any(isinstance(part, GeoExpression) and part.path.dotted in places for part in filter.conjuncts)

    def candidates(
        self,
        collection: Collection,
        index: CollectionIndex,
        match: MatchExpression,
        filter: Filter,
        sort: SortPattern | None,
    ) -> list[IndexPath]:
        components = self.components(index)
        # A numeric path component selects an array element in keys, but may be a field name in filters.
        if any(number >= 0 for component in components for number in component.path.indexes):
            return []
        bounds = bounds_of(index, components, filter)
        if bounds is None or not _bounds_geo_field(bounds):
            return []
        return [IndexPath(collection, bounds, match, filter.conjuncts, 0)]

    def answering(
        self,
        collection: Collection,
        index: CollectionIndex,
        part: MatchExpression,
        match: MatchExpression,
        filter: Filter,
        sort: SortPattern | None,
    ) -> AccessPath | None:
        if not isinstance(part, NearExpression):
            return None
        components = self.components(index)
        for position in range(len(components)):
            component = components[position]
            if not isinstance(component, GeoComponent) or component.path.dotted != part.path.dotted:
                continue
            prefixes = [b""]
            if position:
                before = bounds_of(index, components[:position], filter)
                if before is not None and before.void:
                    return OrPath(collection, [])
                known = before is not None and before.points == position
                prefixes = [key_range.low for key_range in before.ranges] if known and before is not None else []
            keyed = self.keyed(index, self.nearness(index, part), prefixes)
            return NearPath(collection, index, keyed, part, match if len(filter.conjuncts) > 1 else None)
        return None

    def check_query(self, collection: Collection | None, hinted: bool, natural: bool) -> None:
        if natural:
            raise CommandError(ErrorCode.BadValue, "geoNear expression not allowed with $natural sort order")

    def lacking(self, collection: Collection) -> CommandError:
        return CommandError(
            ErrorCode.NoQueryExecutionPlans,
            f"error processing query: ns={collection.namespace} :: caused by :: unable to find index for $geoNear"
            " query",
        )


def _bounds_geo_field(bounds: IndexBounds) -> bool:
    """Whether the bounds include the geo field: if not, documents without it would be missed."""
    bound = bounds.components[: len(bounds.intervals)]
    return any(isinstance(component, GeoComponent) for component in bound)


class SphereAccess(GeospatialAccess):
    """Access to 2dsphere indexes."""

    def components(self, index: CollectionIndex) -> list[BoundComponent]:
        return [
            SphereComponent(component.path) if component.direction == SPHERE else component
            for component in components_of(index)
        ]

    def nearness(self, index: CollectionIndex, near: NearExpression) -> Nearness:
        from mongottl.geometry.sphere_nearness import SphereNearness

        return SphereNearness(near.center, near.unit == METRES)

    def keyed(self, index: CollectionIndex, nearness: Nearness, prefixes: list[bytes]) -> KeyedNearness:
        return _SphereKeys(nearness, prefixes)


class PlaneAccess(GeospatialAccess):
    """Access to 2d indexes."""

    def components(self, index: CollectionIndex) -> list[BoundComponent]:
        geohash = geohash_of(index.descriptor.spec)
        return [
            PlaneComponent(component.path, geohash) if component.direction == PLANE else component
            for component in components_of(index)
        ]

    def nearness(self, index: CollectionIndex, near: NearExpression) -> Nearness:
        geohash = geohash_of(index.descriptor.spec)
        if near.unit == PLANE_UNIT:
            if not geohash.has_within(near.center):
                raise CommandError(
                    POINT_NOT_IN_INTERVAL,
                    f"point not in interval of [ {geohash.low}, {geohash.high} ] :: caused by ::"
                    f" {{ 0: {near.center[0]}, 1: {near.center[1]} }}",
                )
            return PlaneNearness(near.center, geohash)
        assert near.unit == RADIANS
        from mongottl.geometry.library import require_sphere

        require_sphere()
        from mongottl.geometry.sphere_nearness import SphereNearnessOnPlane

        return SphereNearnessOnPlane(near.center, False, geohash)

    def keyed(self, index: CollectionIndex, nearness: Nearness, prefixes: list[bytes]) -> KeyedNearness:
        return _PlaneKeys(nearness, prefixes, geohash_of(index.descriptor.spec))


class _SphereKeys(KeyedNearness):
    def component_range(self, low: int, high: int) -> ComponentRange:
        return component_range(_interval(sphere_value(low), sphere_value(high)), False)


class _PlaneKeys(KeyedNearness):
    def __init__(self, nearness: Nearness, prefixes: list[bytes], geohash: Geohash) -> None:
        super().__init__(nearness, prefixes)
        self._geohash = geohash

    def component_range(self, low: int, high: int) -> ComponentRange:
        geohash = self._geohash
        return component_range(_interval(plane_value(geohash, low), plane_value(geohash, high, last=True)), False)


class NearPath(AccessPath):
    """A `$near` scan: documents in the order of their distance. match: the whole filter, None for `$near` alone."""

    def __init__(
        self,
        collection: Collection,
        index: CollectionIndex,
        places: KeyedNearness,
        near: NearExpression,
        match: MatchExpression | None,
    ) -> None:
        super().__init__(collection, 0)
        self.index = index
        self.places = places
        self.near = near
        self.match = match

    def open(self, wanted: int, trial: bool = False) -> PlanStage:
        near = self.near
        unit = self.places.nearness.unit
        stage = "GEO_NEAR_2DSPHERE" if self.index.descriptor.kind.name == SPHERE else "GEO_NEAR_2D"
        return NearStage(
            self.collection,
            self.index,
            self.places,
            near.path,
            near.min_distance * unit,
            near.max_distance * unit,
            self.match,
            self.metadata,
            stage,
        )

    def count_entries(self, unit: RecoveryUnit, limit: int) -> int:
        return min(limit, unit.records(self.collection).count())

    def share(self, equality: float, scope: float) -> float:
        return 1.0
