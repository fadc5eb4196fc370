"""Shapes on the plane, for legacy coordinates: what `$box`, `$center` and `$polygon` ask for.

The polygon's borders are MongoDB's and no library's: a corner belongs to it, so does a horizontal or vertical side, and
of a slanting side only that to the right of the interior, since a ray that runs to the right counts the sides it meets
or starts on. An odd count is inside, so that a polygon may cross itself. GEOS knows only all of the border or none.
"""

import math

from mongottl.geometry.geojson import Position

# West, south, east, north.
Bounds = tuple[float, float, float, float]


class PlaneShape:
    """A region of the plane."""

    def contains(self, position: Position) -> bool:
        raise NotImplementedError

    def bounds(self) -> Bounds:
        """The smallest rectangle around it."""
        raise NotImplementedError


class Box(PlaneShape):
    """The rectangle with these two corners, borders included."""

    def __init__(self, a: Position, b: Position) -> None:
        self._bounds: Bounds = (min(a[0], b[0]), min(a[1], b[1]), max(a[0], b[0]), max(a[1], b[1]))

    def contains(self, position: Position) -> bool:
        west, south, east, north = self._bounds
        return west <= position[0] <= east and south <= position[1] <= north

    def bounds(self) -> Bounds:
        return self._bounds


class Circle(PlaneShape):
    """All that is not farther than `radius` from the centre."""

    def __init__(self, center: Position, radius: float) -> None:
        self._center = center
        self._radius = radius

    def contains(self, position: Position) -> bool:
        return distance(self._center, position) <= self._radius

    def bounds(self) -> Bounds:
        x, y = self._center
        radius = self._radius
        return x - radius, y - radius, x + radius, y + radius


class PlanePolygon(PlaneShape):
    """corners: in order; the last is joined to the first."""

    def __init__(self, corners: list[Position]) -> None:
        self._sides = [(corners[i - 1], corners[i]) for i in range(len(corners))]
        xs = [x for x, _ in corners]
        ys = [y for _, y in corners]
        self._bounds: Bounds = (min(xs), min(ys), max(xs), max(ys))

    def contains(self, position: Position) -> bool:
        x, y = position
        west, south, east, north = self._bounds
        if not (west <= x <= east and south <= y <= north):
            return False
        inside = False
        for (x1, y1), (x2, y2) in self._sides:
            if (x1 == x2 or y1 == y2) and min(x1, x2) <= x <= max(x1, x2) and min(y1, y2) <= y <= max(y1, y2):
                return True
            if (x == x1 and y == y1) or (x == x2 and y == y2):
                return True
            if y1 != y2 and min(y1, y2) < y <= max(y1, y2) and x <= (y - y1) * (x2 - x1) / (y2 - y1) + x1:
                inside = not inside
        return inside

    def bounds(self) -> Bounds:
        return self._bounds


def distance(a: Position, b: Position) -> float:
    """The distance on the plane, in the unit of the coordinates."""
    return math.sqrt((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2)
