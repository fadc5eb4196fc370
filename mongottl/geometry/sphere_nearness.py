"""Distances from a point on the sphere, with the keys of 2dsphere and 2d indexes."""

import math

from mongottl.geometry.coverings import cap_ranges
from mongottl.geometry.geohash import Geohash
from mongottl.geometry.geojson import Geometry, GeometryError, Position
from mongottl.geometry.nearness import Nearness
from mongottl.geometry.region import CellRange
from mongottl.geometry.sphere import EARTH_RADIUS_M, SphereCap, shape_of
from mongottl.geometry.sphere_polygon import s2_point


class SphereNearness(Nearness):
    """Distances on the sphere in metres, and keys of a 2dsphere index.

    metres: they are returned in metres, else in radians; these are converted from metres, as mongod does, which may
    change the last digit.
    """

    def __init__(self, center: Position, metres: bool) -> None:
        # Slightly more than half of the circumference, since distances are rounded.
        super().__init__(math.pi * 1.000001 * EARTH_RADIUS_M, 1.0 if metres else EARTH_RADIUS_M)
        self._center = center
        self._point = s2_point(center)

    def distance(self, geometry: Geometry) -> float:
        try:
            return shape_of(geometry).distance_rad(self._point) * EARTH_RADIUS_M
        except GeometryError:
            return math.inf

    def cap(self, reach: float) -> SphereCap:
        return SphereCap(self._center, min(reach / EARTH_RADIUS_M, math.pi))

    def ranges(self, reach: float) -> list[CellRange]:
        return cap_ranges(self.cap(reach).region())


class SphereNearnessOnPlane(SphereNearness):
    """Distances on the sphere, and keys of a 2d index, whose coordinates are longitudes and latitudes."""

    def __init__(self, center: Position, metres: bool, geohash: Geohash) -> None:
        super().__init__(center, metres)
        self._geohash = geohash

    def distance(self, geometry: Geometry) -> float:
        return math.inf if geometry.point is None else super().distance(geometry)

    def ranges(self, reach: float) -> list[CellRange]:
        return self._geohash.ranges(self.cap(reach).bounds())
