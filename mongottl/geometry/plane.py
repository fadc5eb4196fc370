"""Shapes on the plane, for legacy coordinates: the operands of `$box`, `$center` and `$polygon`.

Which border points belong to a polygon is MongoDB's own rule: corners and horizontal or vertical sides do, and of the
other sides only those to the right of the interior, since the test counts the sides that a ray to the right meets or
starts on. A point with an odd count is inside, so a polygon may cross itself. (GEOS includes all of the border or
none.)
"""

import math

from mongottl.document.freeing import list_for
from mongottl.document.interrupt import give_way
from mongottl.geometry.geojson import Position

# West, south, east, north.
Bounds = tuple[float, float, float, float]


class PlaneShape:
    """A region of the plane."""

    def contains(self, position: Position) -> bool:
        raise NotImplementedError

    def bounds(self) -> Bounds:
        """The smallest rectangle that contains the shape."""
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
    """All points within the distance `radius` from the centre.

    Points with the same x or y as the centre are compared as MongoDB does it, by adding the radius to a
    coordinate: 52 is not farther than 0.0001 from 51.9999, although the difference of the two is a little more.
    """

    def __init__(self, center: Position, radius: float) -> None:
        self._center = center
        self._radius = radius

    def contains(self, position: Position) -> bool:
        x, y = self._center
        radius = self._radius
        if position[0] == x:
            return max(y, position[1]) <= min(y, position[1]) + radius
        if position[1] == y:
            return max(x, position[0]) <= min(x, position[0]) + radius
        return distance(self._center, position) <= radius

    def bounds(self) -> Bounds:
        x, y = self._center
        radius = self._radius
        # Extended by one unit in the last place on each side, because sums are rounded.
        return (
            math.nextafter(x - radius, -math.inf),
            math.nextafter(y - radius, -math.inf),
            math.nextafter(x + radius, math.inf),
            math.nextafter(y + radius, math.inf),
        )


class PlanePolygon(PlaneShape):
    """`$polygon`: a polygon on the plane.

    corners: in order; the last is joined to the first.
    """

    def __init__(self, corners: list[Position]) -> None:
        self._sides: list[tuple[Position, Position]] = list_for(len(corners))
        west, south = corners[0]
        east, north = west, south
        for i in range(len(corners)):
            give_way()
            x, y = corners[i]
            west, south, east, north = min(west, x), min(south, y), max(east, x), max(north, y)
            self._sides.append((corners[i - 1], corners[i]))
        self._bounds: Bounds = (west, south, east, north)

    def contains(self, position: Position) -> bool:
        x, y = position
        west, south, east, north = self._bounds
        if not (west <= x <= east and south <= y <= north):
            return False
        inside = False
        for (x1, y1), (x2, y2) in self._sides:
            give_way()
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
    across = a[0] - b[0]
    along = a[1] - b[1]
    if across == 0.0 or along == 0.0:
        return abs(across) + abs(along)  # the squares of tiny differences are zero
    return math.sqrt(across * across + along * along)
