"""`$geoWithin` (and `$within`, its old name) and `$geoIntersects`.

Geometries are matched, not the single values of a path: an array at the end of the path is a pair of numbers or an
array of geometries. Values that are not geometries do not match. Source: MongoDB's "Geospatial Query Operators" pages.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from mongottl.document.collation import Collation
from mongottl.document.freeing import list_for
from mongottl.document.interrupt import give_way
from mongottl.document.path import FieldPath
from mongottl.document.render import render_value
from mongottl.document.types import ARRAY, DOCUMENT, Value, is_number
from mongottl.document.walk import decode_value, fields
from mongottl.geometry.geojson import (
    MULTI_POLYGON,
    POLYGON,
    Geometry,
    GeometryError,
    Position,
    pair,
    query_geometry,
    stored_geometry,
)
from mongottl.geometry.library import require_sphere
from mongottl.geometry.plane import Box, Circle, PlanePolygon
from mongottl.geometry.region import GeoRegion, WithinPlaneShape
from mongottl.query.context import ParseContext
from mongottl.query.match.interval import Interval
from mongottl.query.match.registry import ANY_TYPE, bad_value, match_operator
from mongottl.query.match.tree import LAST, MatchExpression, PathExpression
from mongottl.versions import GEO_SHAPE, OLDEST

WITHIN: Final = "$geoWithin"
INTERSECTS: Final = "$geoIntersects"


class GeoExpression(PathExpression):
    """`$geoWithin` and `$geoIntersects`. operand: the original operand. region: its condition."""

    def __init__(self, path: FieldPath, name: str, operand: Value, region: GeoRegion) -> None:
        super().__init__(path)
        self.operator = name
        self.operand = operand
        self.region = region

    def matches_single(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        if type_code != DOCUMENT and type_code != ARRAY:
            return False
        try:
            geometry = stored_geometry(decode_value(buf, type_code, pos))
        except GeometryError:
            return False
        # In MongoDB queries may use polygons with strict winding, but stored ones never match.
        return not geometry.strict_winding and self.region.matches(geometry)

    def describe_operand(self) -> dict[str, Value]:
        return {self.operator: self.operand}

    def intervals(self) -> list[Interval] | None:
        """None: no range of values. `exec.plan.index_access` plans the use of geospatial indexes."""
        return None

    def add_text_orders(self, orders: list[Collation | None]) -> None:
        """None: it has no ranges."""


def only_operand(operators: bytes) -> Value:
    """The operand of a geospatial operator, which must be the only one. BadValue (2) otherwise."""
    pairs = fields(operators)
    if len(pairs) > 1:
        other, value = pairs[1] if pairs[0][0].startswith("$geo") or pairs[0][0] == "$within" else pairs[0]
        raise bad_value(f"can't parse extra field: {other}: {render_value(value)}")
    return pairs[0][1]


@match_operator(
    "$geoWithin",
    order=LAST,
    reasons=(
        "none of considered geometries was contained within the expression's geometry",
        "at least one of considered geometries was contained within the expression's geometry",
    ),
    types=ANY_TYPE,
    since=OLDEST,
)
@match_operator("$within", order=None, reasons=None, types=ANY_TYPE, since=OLDEST)
def parse_geo_within(path: FieldPath, operators: Value, ctx: ParseContext) -> MatchExpression:
    """`{field: {$geoWithin: {$geometry: polygon}}}`, or one of `$box $center $centerSphere $polygon`.

    operators: the field's whole operator document. BadValue (2) for other shapes.
    """
    assert isinstance(operators, bytes)
    operand = only_operand(operators)
    region: GeoRegion | None = None
    for name, value in _shapes(operand, WITHIN):
        if name == "$uniqueDocs":  # without effect since MongoDB 2.6
            continue
        if region is not None:
            raise bad_value(f"can't parse extra field: {name}: {render_value(value)}")
        try:
            if name == "$geometry":
                region = _within_geometry(value)
            else:
                parser = _SHAPES.get(name)
                if parser is None or ctx.lacks(GEO_SHAPE, name):
                    what_helps = ctx.advice(GEO_SHAPE, name)
                    raise bad_value(f"unknown geo specifier: {name}: {render_value(value)}", what_helps)
                region = parser(value)
        except GeometryError as error:
            raise bad_value(f"{error}") from None
    if region is None:
        raise bad_value(f"{WITHIN} not supported with provided geometry: {render_value(operand)}")
    return GeoExpression(path, WITHIN, operand, region)


@match_operator(
    "$geoIntersects",
    order=LAST,
    reasons=(
        "none of the considered geometries intersected the expression's geometry",
        "at least one of considered geometries intersected the expression's geometry",
    ),
    types=ANY_TYPE,
    since=OLDEST,
)
def parse_geo_intersects(path: FieldPath, operators: Value, ctx: ParseContext) -> MatchExpression:
    """`{field: {$geoIntersects: {$geometry: geometry}}}`. BadValue (2) for other shapes."""
    assert isinstance(operators, bytes)
    operand = only_operand(operators)
    shapes = _shapes(operand, INTERSECTS)
    if len(shapes) != 1 or shapes[0][0] != "$geometry":
        raise bad_value(f"{INTERSECTS} not supported with provided geometry: {render_value(operand)}")
    try:
        region = _intersects_geometry(query_geometry(shapes[0][1]))
    except GeometryError as error:
        raise bad_value(f"{error}") from None
    return GeoExpression(path, INTERSECTS, operand, region)


def _shapes(operand: Value, name: str) -> list[tuple[str, Value]]:
    if not isinstance(operand, bytes):
        raise bad_value(f"{name} requires an object, instead got {render_value(operand)}")
    return fields(operand)


def _within_geometry(value: Value) -> GeoRegion:
    geometry = query_geometry(value)
    if geometry.kind not in (POLYGON, MULTI_POLYGON):
        raise GeometryError(f"{WITHIN} not supported with provided geometry: {render_value(value)}")
    require_sphere()
    from mongottl.geometry.sphere_regions import WithinShape

    return WithinShape(geometry)


def _intersects_geometry(geometry: Geometry) -> GeoRegion:
    require_sphere()
    from mongottl.geometry.sphere_regions import IntersectsShape

    return IntersectsShape(geometry)


def _parts(value: Value, name: str) -> list[Value]:
    """The elements of a shape, given as an array or as a document's values."""
    if isinstance(value, list):
        return value
    if isinstance(value, bytes):
        pairs = fields(value)
        parts: list[Value] = list_for(len(pairs))
        for _, part in pairs:
            give_way()
            parts.append(part)
        return parts
    raise GeometryError(f"{name} requires an array, instead got {render_value(value)}")


def _box(value: Value) -> GeoRegion:
    corners = _parts(value, "$box")
    if len(corners) < 2:
        raise GeometryError(f"$box needs two corners: {render_value(value)}")
    return WithinPlaneShape(Box(pair(corners[0], exact=True), pair(corners[1], exact=True)))


def _polygon(value: Value) -> GeoRegion:
    parts = _parts(value, "$polygon")
    corners: list[Position] = list_for(len(parts))
    for corner in parts:
        give_way()
        corners.append(pair(corner, exact=True))
    if len(corners) < 3:
        raise GeometryError("Polygon must have at least 3 points")
    return WithinPlaneShape(PlanePolygon(corners))


def _center_and_radius(value: Value, name: str) -> tuple[Position, float]:
    parts = _parts(value, name)
    if len(parts) != 2:
        raise GeometryError(f"{name} needs a center and a radius: {render_value(value)}")
    center = pair(parts[0], exact=True)
    radius = float(str(parts[1])) if is_number(parts[1]) else -1.0
    if not radius >= 0:
        raise GeometryError("radius must be a non-negative number")
    return center, radius


def _center(value: Value) -> GeoRegion:
    center, radius = _center_and_radius(value, "$center")
    return WithinPlaneShape(Circle(center, radius))


def _center_sphere(value: Value) -> GeoRegion:
    center, radius = _center_and_radius(value, "$centerSphere")
    require_sphere()
    from mongottl.geometry.sphere_regions import WithinCap

    return WithinCap(center, radius)


_SHAPES: Final[dict[str, Callable[[Value], GeoRegion]]] = {
    "$box": _box,
    "$center": _center,
    "$centerSphere": _center_sphere,
    "$polygon": _polygon,
}
