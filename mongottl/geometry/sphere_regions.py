"""Regions of `$geoWithin` and `$geoIntersects` on the sphere."""

from mongottl.geometry.coverings import cap_ranges, query_ranges
from mongottl.geometry.geojson import Geometry, GeometryError, Position, is_within_bounds
from mongottl.geometry.plane import Bounds
from mongottl.geometry.region import CellRange, GeoRegion
from mongottl.geometry.sphere import SphereCap, shape_of


class WithinShape(GeoRegion):
    """`$geoWithin: {$geometry: …}`: the whole geometry lies in the polygon, or in one of several."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(spherical=True)
        self._shape = shape_of(geometry)

    def matches(self, geometry: Geometry) -> bool:
        try:
            return self._shape.contains(shape_of(geometry))
        except GeometryError:
            return False

    def cell_ranges(self) -> list[CellRange]:
        return query_ranges(self._shape)


class IntersectsShape(WithinShape):
    """`$geoIntersects`: the geometries have a point in common."""

    def matches(self, geometry: Geometry) -> bool:
        try:
            return self._shape.intersects(shape_of(geometry))
        except GeometryError:
            return False


class WithinCap(GeoRegion):
    """`$geoWithin: {$centerSphere: [center, radius]}`: the whole geometry lies within the distance."""

    def __init__(self, center: Position, radius_rad: float) -> None:
        super().__init__(spherical=True)
        if not is_within_bounds(center):
            raise GeometryError(f"Legacy point is out of bounds for spherical query: {list(center)}")
        self._cap = SphereCap(center, radius_rad)

    def matches(self, geometry: Geometry) -> bool:
        try:
            return self._cap.contains(shape_of(geometry))
        except GeometryError:
            return False

    def bounds(self) -> Bounds:
        return self._cap.bounds()

    def cell_ranges(self) -> list[CellRange]:
        return cap_ranges(self._cap.region())
