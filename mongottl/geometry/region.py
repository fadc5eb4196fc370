"""Regions of `$geoWithin` and `$geoIntersects`: the common interface, and the regions on the plane."""

from abc import ABC, abstractmethod

from mongottl.geometry.geojson import Geometry
from mongottl.geometry.plane import Bounds, PlaneShape

# A range of ids of S2 cells, ends included, as signed 64-bit integers.
CellRange = tuple[int, int]


class GeoRegion(ABC):
    """The condition of `$geoWithin` or `$geoIntersects` on a stored geometry.

    spherical: whether it is a condition on the sphere, which a 2dsphere index can answer.
    """

    def __init__(self, spherical: bool) -> None:
        self.spherical = spherical

    @abstractmethod
    def matches(self, geometry: Geometry) -> bool:
        raise NotImplementedError

    def bounds(self) -> Bounds | None:
        """A rectangle of longitudes and latitudes (or x and y) that contains all matching points, for a 2d index; None
        if a 2d index cannot answer the condition."""
        return None

    def cell_ranges(self) -> list[CellRange]:
        """Ranges of cell ids, ascending and disjoint: the covering of each matching geometry has a cell in one of
        them."""
        raise NotImplementedError


class WithinPlaneShape(GeoRegion):
    """Within a shape of the plane. Only points can match, in GeoJSON or as pairs."""

    def __init__(self, shape: PlaneShape) -> None:
        super().__init__(spherical=False)
        self._shape = shape

    def matches(self, geometry: Geometry) -> bool:
        position = geometry.point
        return position is not None and self._shape.contains(position)

    def bounds(self) -> Bounds:
        return self._shape.bounds()
