"""Regions that stored geometries are asked about, on the plane and on the sphere alike."""

from abc import ABC, abstractmethod

from mongottl.geometry.geojson import Geometry
from mongottl.geometry.plane import Bounds, PlaneShape

# S2 cells as ranges of the ids of the leaf cells in them, ends included, as signed 64-bit integers.
CellRange = tuple[int, int]


class GeoRegion(ABC):
    """What `$geoWithin` or `$geoIntersects` asks of a stored geometry.

    spherical: whether it is a question of the sphere, which a 2dsphere index can answer.
    """

    def __init__(self, spherical: bool) -> None:
        self.spherical = spherical

    @abstractmethod
    def matches(self, geometry: Geometry) -> bool:
        raise NotImplementedError

    def bounds(self) -> Bounds | None:
        """A rectangle of longitudes and latitudes (or x and y) outside which no point matches, for a 2d index; None
        where such an index is of no use."""
        return None

    def cell_ranges(self) -> list[CellRange]:
        """Ascending, disjoint: a geometry whose covering has no cell among these does not match."""
        raise NotImplementedError


class WithinPlaneShape(GeoRegion):
    """Within a shape of the plane: points alone can be, in GeoJSON or as pairs."""

    def __init__(self, shape: PlaneShape) -> None:
        super().__init__(spherical=False)
        self._shape = shape

    def matches(self, geometry: Geometry) -> bool:
        position = geometry.point
        return position is not None and self._shape.contains(position)

    def bounds(self) -> Bounds:
        return self._shape.bounds()
