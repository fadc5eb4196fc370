"""Parses values of documents and queries into geometries of plain numbers.

    [lng, lat], {lng: …, lat: …}                a legacy pair: on the plane, or on the sphere if it is within its bounds
    {type: "Point", coordinates: [lng, lat]}    GeoJSON, on the sphere; positions may have an altitude, which is ignored

The numbers of a pair are its first two fields, whatever their names. Types, bounds and closed rings are checked here;
`sphere` checks what depends on spherical geometry.

Source: RFC 7946; MongoDB's "GeoJSON Objects" and "Legacy Coordinate Pairs" pages.
"""

import math
from typing import Final

from mongottl.document.freeing import freed_in_slices
from mongottl.document.interrupt import give_way
from mongottl.document.render import render_document, render_value
from mongottl.document.types import DECIMAL128, DOUBLE, INT32, INT64, MISSING, Value, is_number
from mongottl.document.walk import fields, get_value

POINT: Final = "Point"
LINE_STRING: Final = "LineString"
POLYGON: Final = "Polygon"
MULTI_POINT: Final = "MultiPoint"
MULTI_LINE_STRING: Final = "MultiLineString"
MULTI_POLYGON: Final = "MultiPolygon"
GEOMETRY_COLLECTION: Final = "GeometryCollection"
# A pair of numbers instead of GeoJSON.
LEGACY_POINT: Final = ""

# The coordinate systems that a GeoJSON object may name. In the last one a polygon's interior is always to the left
# of its ring, even if that is more than half of the earth.
_DEFAULT_CRS: Final = ("EPSG:4326", "urn:ogc:def:crs:OGC:1.3:CRS84")
STRICT_WINDING_CRS: Final = "urn:x-mongodb:crs:strictwinding:EPSG:4326"

Position = tuple[float, float]
Ring = list[Position]


class GeometryError(ValueError):
    """A value is not a geometry. The message says why; callers convert it into a CommandError."""


class Geometry:
    """Points, lines and polygons with their original coordinates: (longitude, latitude) in degrees, or (x, y).

    kind: GeoJSON's type, or LEGACY_POINT. polygons: the rings of each, the outer one first, all closed.
    strict_winding: whether it is a polygon in MongoDB's own coordinate system.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.points: list[Position] = []
        self.lines: list[Ring] = []
        self.polygons: list[list[Ring]] = []
        self.strict_winding = False

    @property
    def point(self) -> Position | None:
        """The position of a single point; None for everything else."""
        if self.kind in (POINT, LEGACY_POINT):
            return self.points[0]
        return None


def stored_geometry(value: Value) -> Geometry:
    """The geometry of a value in a document: GeoJSON, or a pair, which further values may follow.

    GeometryError if it is neither.
    """
    return _geometry(value, False)


def query_geometry(value: Value) -> Geometry:
    """The geometry of an operand of `$geometry`: GeoJSON, or a pair, which nothing may follow."""
    return _geometry(value, True)


def _geometry(value: Value, exact: bool) -> Geometry:
    if isinstance(value, list):
        return legacy_point(value, exact=exact)
    if not isinstance(value, bytes):
        raise GeometryError(f"geo element must be an array or object: {render_value(value)}")
    if _starts_with_number(value):
        return legacy_point(value, exact=exact)
    return geojson(value)


def _starts_with_number(document: bytes) -> bool:
    return document[4] in (DOUBLE, INT32, INT64, DECIMAL128)


def _components(value: Value) -> list[Value] | None:
    """The values of an array or of a document's fields; None for other types."""
    if isinstance(value, list):
        return value
    if isinstance(value, bytes):
        return [component for _, component in fields(value)]
    return None


def pair(value: Value, exact: bool) -> Position:
    """The first two values of an array or document, which must be numbers. exact: refuse further values."""
    give_way(2)
    components = value if isinstance(value, list) else _components(value)
    if components is None:
        raise GeometryError(f"Point must be an array or object, instead got type {render_value(value)}")
    if len(components) < 2:
        raise GeometryError("Point must have at least two coordinates")
    if exact and len(components) > 2:
        raise GeometryError("Point must only contain two numeric elements")
    return number(components[0], "Point coordinates"), number(components[1], "Point coordinates")


def number(value: Value, name: str) -> float:
    """A number as a double. GeometryError for other types, infinities and NaN. name: of the value, for the message."""
    if not is_number(value):
        raise GeometryError(f"{name} must only contain numeric elements, instead got {render_value(value)}")
    result = value if isinstance(value, float) else float(str(value))
    if not math.isfinite(result):
        raise GeometryError(f"{name} must be finite numbers")
    return result


def legacy_point(value: Value, exact: bool) -> Geometry:
    geometry = Geometry(LEGACY_POINT)
    geometry.points.append(pair(value, exact))
    return geometry


def is_within_bounds(position: Position) -> bool:
    """Whether a pair is a longitude and a latitude."""
    return -180.0 <= position[0] <= 180.0 and -90.0 <= position[1] <= 90.0


def geojson(document: bytes) -> Geometry:
    """The geometry of a GeoJSON object. Unknown fields are ignored."""
    kind = get_value(document, "type")
    if not isinstance(kind, str):
        raise GeometryError(f"unknown GeoJSON type: {render_document(document)}")
    geometry = Geometry(kind)
    if kind == GEOMETRY_COLLECTION:
        _add_collection(geometry, document)
    elif kind in (POINT, LINE_STRING, POLYGON, MULTI_POINT, MULTI_LINE_STRING, MULTI_POLYGON):
        _add_coordinates(geometry, kind, get_value(document, "coordinates"))
    else:
        raise GeometryError(f"unknown GeoJSON type: {render_document(document)}")
    crs = get_value(document, "crs")
    if crs is not MISSING:
        _set_crs(geometry, crs)
    return geometry


def geojson_point(document: bytes) -> Geometry:
    """The point of a GeoJSON object whose type may be missing, as `$near` accepts it."""
    if get_value(document, "type") is not MISSING:
        geometry = geojson(document)
        if geometry.kind != POINT:
            raise GeometryError(f"a point is needed, not a {geometry.kind}")
        return geometry
    geometry = Geometry(POINT)
    geometry.points.append(_position(get_value(document, "coordinates")))
    return geometry


def _add_coordinates(geometry: Geometry, kind: str, coordinates: Value) -> None:
    if kind == POINT:
        geometry.points.append(_position(coordinates))
    elif kind == LINE_STRING:
        geometry.lines.append(_line(coordinates))
    elif kind == POLYGON:
        geometry.polygons.append(_rings(coordinates))
    elif kind == MULTI_POINT:
        geometry.points = freed_in_slices([_position(value) for value in _elements(coordinates, kind)])
    elif kind == MULTI_LINE_STRING:
        geometry.lines = freed_in_slices([_line(value) for value in _elements(coordinates, kind)])
    else:
        geometry.polygons = freed_in_slices([_rings(value) for value in _elements(coordinates, kind)])


def _add_collection(geometry: Geometry, document: bytes) -> None:
    members = get_value(document, "geometries")
    if not isinstance(members, list):
        raise GeometryError("GeometryCollection geometries must be an array")
    if not members:
        raise GeometryError("GeometryCollection geometries must have at least 1 element")
    for member in members:
        if not isinstance(member, bytes):
            raise GeometryError(f'Element of "geometries" is not an object: {render_value(member)}')
        part = geojson(member)
        if part.kind == GEOMETRY_COLLECTION:
            raise GeometryError("GeometryCollections cannot be nested")
        if part.strict_winding:
            raise GeometryError("Strict winding order is only supported by polygon")
        geometry.points.extend(part.points)
        geometry.lines.extend(part.lines)
        geometry.polygons.extend(part.polygons)
    geometry.points = freed_in_slices(geometry.points)
    geometry.lines = freed_in_slices(geometry.lines)
    geometry.polygons = freed_in_slices(geometry.polygons)


def _set_crs(geometry: Geometry, crs: Value) -> None:
    if not isinstance(crs, bytes):
        raise GeometryError(f"GeoJSON CRS must be an object, instead got {render_value(crs)}")
    if get_value(crs, "type") != "name":
        raise GeometryError(f'GeoJSON CRS must have field "type": "name": {render_document(crs)}')
    properties = get_value(crs, "properties")
    if not isinstance(properties, bytes):
        raise GeometryError('CRS must have field "properties" which is an object')
    name = get_value(properties, "name")
    if not isinstance(name, str):
        raise GeometryError('In CRS, "properties.name" must be a string')
    if name == STRICT_WINDING_CRS:
        if geometry.kind != POLYGON:
            raise GeometryError("Strict winding order is only supported by polygon")
        if len(geometry.polygons[0]) > 1:
            raise GeometryError("Only one simple loop is allowed in a big polygon")
        geometry.strict_winding = True
    elif name not in _DEFAULT_CRS:
        raise GeometryError(f"Unknown CRS name: {name}")


def _position(value: Value) -> Position:
    position = pair(value, exact=False)
    if not is_within_bounds(position):
        raise GeometryError(f"longitude/latitude is out of bounds, lng: {position[0]} lat: {position[1]}")
    return position


def _elements(value: Value, kind: str) -> list[Value]:
    if not isinstance(value, list):
        raise GeometryError(f"{kind} coordinates must be an array")
    if not value:
        raise GeometryError(f"{kind} coordinates must have at least 1 element")
    return value


def _positions(value: Value) -> Ring:
    """An array of positions, without consecutive duplicates."""
    if not isinstance(value, list):
        raise GeometryError(f"GeoJSON coordinates must be an array of coordinates, instead got {render_value(value)}")
    positions: Ring = []
    for element in value:
        position = _position(element)
        if not positions or positions[-1] != position:
            positions.append(position)
    return freed_in_slices(positions)


def _line(value: Value) -> Ring:
    if isinstance(value, list) and len(value) < 2:
        raise GeometryError(f"LineString must have at least 2 vertices: {render_value(value)}")
    positions = _positions(value)
    if len(positions) < 2:
        raise GeometryError(f"GeoJSON LineString must have at least 2 vertices: {render_value(value)}")
    return positions


def _rings(value: Value) -> list[Ring]:
    rings: list[Ring] = []
    for element in _elements(value, POLYGON):
        ring = _positions(element)
        if not ring or ring[0] != ring[-1]:
            raise GeometryError(f"Loop is not closed: {render_value(element)}")
        # Three corners, and the first one repeated.
        if len(ring) < 4:
            raise GeometryError(f"Loop must have at least 3 different vertices: {render_value(element)}")
        rings.append(ring)
    return freed_in_slices(rings)
