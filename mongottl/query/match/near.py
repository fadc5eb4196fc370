"""`$near $nearSphere` and `$geoNear` as an operator: an order by distance, which needs a geospatial index.

    {$near: {$geometry: point, $maxDistance: 500}}     metres on the sphere; a 2dsphere index
    {$near: [x, y], $maxDistance: 5}                   on the plane, in the coordinates' unit; a 2d index
    {$nearSphere: [lng, lat], $maxDistance: 0.01}      radians on the sphere; either index

The index returns only documents that match, so as a test this is always true. `check_near` refuses filters in which it
is not allowed. Source: MongoDB's pages on the operators.
"""

import math
from typing import Final

from mypy_extensions import i64

from mongottl.document.collation import Collation
from mongottl.document.path import FieldPath
from mongottl.document.render import render_value
from mongottl.document.types import Value, is_number
from mongottl.document.walk import fields, fields_by_name
from mongottl.errors import CommandError
from mongottl.geometry.geojson import (
    GeometryError,
    Position,
    geojson_point,
    is_within_bounds,
    number,
    pair,
)
from mongottl.query.context import ParseContext
from mongottl.query.match.arrays import ElementsExpression
from mongottl.query.match.interval import Interval
from mongottl.query.match.registry import ANY_TYPE, bad_value, match_operator
from mongottl.query.match.tree import (
    LAST,
    AndExpression,
    ListExpression,
    MatchExpression,
    NotExpression,
    PathExpression,
)
from mongottl.query.metadata import GEO_NEAR_DISTANCE, GEO_NEAR_POINT
from mongottl.versions import OLDEST

# Codes for bad distances next to a legacy point; within a document with $geometry the code is BadValue.
MIN_DISTANCE_TYPE: Final = 16893
MIN_DISTANCE_RANGE: Final = 16894
MAX_DISTANCE_TYPE: Final = 16895
MAX_DISTANCE_RANGE: Final = 16896
NEAR_NOT_ALLOWED: Final = 5626500
# Beside `$near` with a legacy point there may only be what belongs to it.
_NOT_BESIDE_OTHERS: Final = 34413

# Units of distances.
PLANE: Final = 0
RADIANS: Final = 1
METRES: Final = 2


class NearExpression(PathExpression):
    """`$near`, `$nearSphere` or `$geoNear` on a path.

    center: the point from which distances are measured. unit: of distances: PLANE, RADIANS or METRES.
    """

    def __init__(self, path: FieldPath, operators: Value, center: Position, unit: int) -> None:
        super().__init__(path)
        self.operators = operators
        self.center = center
        self.unit = unit
        self.min_distance = 0.0
        self.max_distance = math.inf

    def matches_single(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return True

    def matches_at(self, buf: bytes, start: i64) -> bool:
        return True

    def describe_operand(self) -> dict[str, Value]:
        operators = self.operators
        return fields_by_name(operators) if isinstance(operators, bytes) else {}

    def intervals(self) -> list[Interval] | None:
        return None

    def add_text_orders(self, orders: list[Collation | None]) -> None:
        """None: it has no ranges."""

    def index_kinds(self) -> tuple[str, ...]:
        if self.unit == PLANE:
            return ("2d",)
        return ("2dsphere",) if self.unit == METRES else ("2dsphere", "2d")


@match_operator("$near", order=LAST, reasons=None, types=ANY_TYPE, since=OLDEST)
@match_operator("$geoNear", order=LAST, reasons=None, types=ANY_TYPE, since=OLDEST)
def parse_near(path: FieldPath, operators: Value, ctx: ParseContext) -> MatchExpression:
    """`{field: {$near: …}}` in the forms above. BadValue (2), and 16893 to 16896 for distances next to a legacy
    point."""
    return _parse(path, operators, False, ctx)


@match_operator("$nearSphere", order=LAST, reasons=None, types=ANY_TYPE, since=OLDEST)
def parse_near_sphere(path: FieldPath, operators: Value, ctx: ParseContext) -> MatchExpression:
    """`{field: {$nearSphere: …}}`, with the syntax and errors of `$near`; always on the sphere."""
    return _parse(path, operators, True, ctx)


@match_operator("$maxDistance", order=None, reasons=None, types=ANY_TYPE, since=OLDEST)
@match_operator("$minDistance", order=None, reasons=None, types=ANY_TYPE, since=OLDEST)
def parse_distance_alone(path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression:
    """`$minDistance` and `$maxDistance` without an operator that uses them: BadValue (2)."""
    raise bad_value("$minDistance and $maxDistance must stand behind $near or $nearSphere")


def _parse(path: FieldPath, operators: Value, spherical: bool, ctx: ParseContext) -> MatchExpression:
    assert isinstance(operators, bytes)
    if not ctx.takes_near:
        raise CommandError(NEAR_NOT_ALLOWED, "$geoNear, $near, and $nearSphere are not allowed in this context")
    ctx.metadata.provided.update((GEO_NEAR_DISTANCE, GEO_NEAR_POINT))
    pairs = fields(operators)
    name, operand = pairs[0]
    if name not in ("$near", "$nearSphere", "$geoNear"):
        raise bad_value(f"invalid argument in geo near query: {name}")
    try:
        if isinstance(operand, bytes) and any(field == "$geometry" for field, _ in fields(operand)):
            if len(pairs) > 1:
                raise bad_value(
                    "geo near accepts just one argument when querying for a GeoJSON point. Extra field found:"
                    f" {pairs[1][0]}: {render_value(pairs[1][1])}"
                )
            return _near_geometry(path, operators, operand)
        near = _near_legacy(path, operators, operand, spherical)
    except GeometryError as error:
        raise bad_value(f"invalid point in geo near query: {error}") from None
    for field, value in pairs[1:]:
        if field == "$minDistance":
            near.min_distance = _legacy_distance(value, field, MIN_DISTANCE_TYPE, MIN_DISTANCE_RANGE)
        elif field == "$maxDistance":
            near.max_distance = _legacy_distance(value, field, MAX_DISTANCE_TYPE, MAX_DISTANCE_RANGE)
        elif field != "$uniqueDocs":  # without effect since MongoDB 2.6
            raise CommandError(_NOT_BESIDE_OTHERS, f"invalid argument in geo near query: {field}")
    return near


def _near_geometry(path: FieldPath, operators: bytes, operand: bytes) -> NearExpression:
    near: NearExpression | None = None
    nearest = 0.0
    farthest = math.inf
    for field, value in fields(operand):
        if field == "$geometry":
            if not isinstance(value, bytes):
                raise bad_value(f"$geometry must be an object, instead got {render_value(value)}")
            near = NearExpression(path, operators, near_point(value), METRES)
        elif field == "$minDistance":
            nearest = _distance(value, field)
        elif field == "$maxDistance":
            farthest = _distance(value, field)
        else:
            raise bad_value(f"invalid argument in geo near query: {field}")
    assert near is not None
    near.min_distance = nearest
    near.max_distance = farthest
    return near


def near_point(document: bytes) -> Position:
    """The position of a GeoJSON point from which distances are measured. GeometryError if it is not a point."""
    return geojson_point(document).points[0]


def _near_legacy(path: FieldPath, operators: bytes, operand: Value, spherical: bool) -> NearExpression:
    if isinstance(operand, bytes) and any(field in ("type", "coordinates") for field, _ in fields(operand)):
        return NearExpression(path, operators, near_point(operand), METRES)
    center, farthest = legacy_center(operand)
    near = NearExpression(path, operators, center, RADIANS if spherical else PLANE)
    near.max_distance = farthest
    if spherical and not is_within_bounds(center):
        raise GeometryError(f"Legacy point is out of bounds for spherical query: {list(center)}")
    return near


def legacy_center(value: Value) -> tuple[Position, float]:
    """A legacy point, and the maximal distance: a third number, or infinity if there is none."""
    parts = (
        value if isinstance(value, list) else [part for _, part in fields(value)] if isinstance(value, bytes) else []
    )
    center = pair(value, exact=False)
    if len(parts) > 3:
        raise GeometryError("Point must only contain two numeric elements")
    farthest = math.inf
    if len(parts) == 3:
        farthest = number(parts[2], "The distance behind a point")
        if farthest < 0:
            raise GeometryError("The distance behind a point must not be negative")
    return center, farthest


def _distance(value: Value, name: str) -> float:
    """A distance within a document with `$geometry`. BadValue (2) unless it is finite and not negative."""
    distance = float(str(value)) if is_number(value) else math.nan
    if not 0.0 <= distance < math.inf:
        raise bad_value(f"{name} must be a non-negative number: {render_value(value)}")
    return distance


def _legacy_distance(value: Value, name: str, type_fault: int, range_fault: int) -> float:
    if not is_number(value):
        raise CommandError(type_fault, f"{name} must be a number")
    distance = float(str(value))
    if not distance >= 0.0:
        raise CommandError(range_fault, f"{name} must be non-negative")
    return distance


def check_near(match: MatchExpression) -> None:
    """BadValue (2) for a `$near` below the top level of a filter, and for two of them."""
    parts = match.children if isinstance(match, AndExpression) else [match]
    found = 0
    for part in parts:
        if isinstance(part, NearExpression):
            found += 1
        elif has_near(part):
            raise bad_value("geo $near must be top-level expr")
    if found > 1:
        raise bad_value("Too many geoNear expressions")


def has_near(match: MatchExpression) -> bool:
    """Whether there is a `$near` anywhere in the tree."""
    if isinstance(match, NearExpression):
        return True
    if isinstance(match, ListExpression):
        return any(has_near(child) for child in match.children)
    if isinstance(match, (NotExpression, ElementsExpression)):
        return has_near(match.child)
    return False
