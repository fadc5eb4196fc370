"""`$geoNear`: documents sorted by their distance from a point, with the distance in a field.

The planner provides the order: this stage consists of a filter with a `$near`, and of fields that are set from the
metadata of documents (`document.annotated`). If the stage does not name the path, it is that of the collection's
geospatial index, so `exec` requests the filter when it knows the collection.

Source: MongoDB's page on the stage.
"""

import math
from typing import Final

from mongottl.document.annotated import copy_metadata, metadata_of
from mongottl.document.build import DocumentBuilder, encode
from mongottl.document.numbers import is_true
from mongottl.document.path import FieldPath, check_field_path
from mongottl.document.types import DOCUMENT, MISSING, Missing, Value, is_number
from mongottl.document.walk import ElementCursor, fields, get_value, read_embedded
from mongottl.errors import CommandError, ErrorCode
from mongottl.geometry.geojson import GeometryError, is_within_bounds
from mongottl.query.context import ParseContext
from mongottl.query.expr import Constant, parse_expression
from mongottl.query.expr.parser import type_of
from mongottl.query.match import MatchExpression, parse_match
from mongottl.query.match.near import METRES, PLANE, RADIANS, legacy_center, near_point
from mongottl.query.metadata import GEO_NEAR_DISTANCE, GEO_NEAR_POINT
from mongottl.query.pipeline.run_context import NearRequest, RunContext
from mongottl.query.pipeline.source import DocumentSource, TransformSource
from mongottl.query.pipeline.stage import StageSpec, StageTraits, stage
from mongottl.versions import OLDEST

NOT_AN_OBJECT: Final = 10065
DISTANCE_FIELD_TYPE: Final = 16606
INCLUDE_LOCS_TYPE: Final = 16607
NOT_FIRST: Final = 40603
START_PARAMETER: Final = 50856
LIMIT_PARAMETER: Final = 50858
KEY_DEPTH: Final = 5729100
NEAR_REQUIRED: Final = 5860400
NEAR_TYPE: Final = 5860401
NEAR_NOT_CONSTANT: Final = 5860402
MIN_DISTANCE_NOT_CONSTANT: Final = 7555701
MAX_DISTANCE_NOT_CONSTANT: Final = 7555702

# Paths with this many components are refused, since the documents would be nested too deep.
MAX_PATH_DEPTH: Final = 200


class GeoNearSpec(StageSpec):
    """`$geoNear`.

    distance_field, locs_field: paths for distance and location, or None. multiplier: of the distance.
    """

    def __init__(self, request: NearRequest) -> None:
        self.name = "$geoNear"
        self.first_only = True
        self.first_only_code = NOT_FIRST
        self.first_executed = True
        self.request = request
        self.multiplier = 1.0
        self.distance_field: FieldPath | None = None
        self.locs_field: FieldPath | None = None

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        source.close()
        return self.fields_on(run.open_near(self.request, self.requested))

    def fields_on(self, source: DocumentSource) -> DocumentSource:
        """The documents of the filter, with the fields set."""
        return GeoNearSource(source, self)

    def describe(self) -> Value:
        return encode({"$geoNear": self.request.argument})


class GeoNearFieldsSpec(StageSpec):
    """The part of the stage that sets fields, if the planner executes its filter."""

    def __init__(self, near: GeoNearSpec) -> None:
        self.name = "$geoNear"
        self.near = near
        self.requested = near.requested

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return self.near.fields_on(source)

    def describe(self) -> Value:
        return self.near.describe()


class GeoNearSource(TransformSource):
    def __init__(self, source: DocumentSource, near: GeoNearSpec) -> None:
        super().__init__(source)
        self._near = near

    def next_batch(self) -> list[bytes] | None:
        batch = self.source.next_batch()
        if batch is None:
            return None
        return [self._with_fields(document) for document in batch]

    def is_outdated(self) -> bool:
        return self.source.is_outdated()

    def _with_fields(self, document: bytes) -> bytes:
        near = self._near
        metadata = metadata_of(document)
        changed = document
        distance = metadata.get(GEO_NEAR_DISTANCE)
        if near.distance_field is not None and isinstance(distance, float):
            changed = _with_nested(changed, near.distance_field, 0, distance * near.multiplier)
        if near.locs_field is not None:
            changed = _with_nested(changed, near.locs_field, 0, metadata.get(GEO_NEAR_POINT))
        return copy_metadata(document, changed)


def _with_nested(document: bytes, path: FieldPath, depth: int, value: Value) -> bytes:
    """The document with a value at a path. Values along the path that are not documents, also arrays, become
    documents."""
    name = path.part_bytes[depth]
    last = depth + 1 == path.depth
    builder = DocumentBuilder()
    found = False
    cursor = ElementCursor(document, 0)
    while cursor.next():
        if found or not cursor.name_is(name):
            builder.append_raw_element(cursor.raw_element())
            continue
        found = True
        inner = read_embedded(document, cursor.value) if cursor.type_code == DOCUMENT else _EMPTY
        builder.append_named(name, value if last else _with_nested(inner, path, depth + 1, value))
    if not found:
        builder.append_named(name, value if last else _with_nested(_EMPTY, path, depth + 1, value))
    return builder.finish()


_EMPTY: Final = encode({})


@stage("$geoNear", StageTraits(streaming=True, in_facet=False, selects=True, ranks=True), since=OLDEST)
def parse_geo_near(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{near, distanceField, spherical, minDistance, maxDistance, query, distanceMultiplier, includeLocs, key}`.

    10065 if it is not an object, 5860400 without `near`, 5860401 and 5860402 for a `near` of another type or that is
    not constant, 7555701 and 7555702 for distances that are not constant, 16606 and 16607 for field names of another
    type, TypeMismatch (14) for other types, BadValue (2) for unknown fields, invalid points and negative numbers.
    """
    if isinstance(argument, list):
        argument = encode({str(index): value for index, value in enumerate(argument)})
    if not isinstance(argument, bytes):
        raise CommandError(NOT_AN_OBJECT, "the $geoNear stage specification must be an object")
    request = NearRequest(argument, ctx.namespace)
    spec = GeoNearSpec(request)
    where = get_value(argument, "near")
    if isinstance(where, Missing):
        raise CommandError(NEAR_REQUIRED, "$geoNear requires a 'near' argument")
    spherical = False
    for name, value in fields(argument):
        if name == "near":
            continue
        if name == "distanceField":
            spec.distance_field = _output_path(value, name, DISTANCE_FIELD_TYPE)
        elif name == "includeLocs":
            spec.locs_field = _output_path(value, name, INCLUDE_LOCS_TYPE)
        elif name == "spherical":
            spherical = is_true(value)
        elif name == "minDistance":
            request.min_distance = _distance(value, name, MIN_DISTANCE_NOT_CONSTANT, ctx)
        elif name == "maxDistance":
            request.max_distance = _distance(value, name, MAX_DISTANCE_NOT_CONSTANT, ctx)
        elif name == "distanceMultiplier":
            spec.multiplier = _non_negative(value, name)
        elif name == "query":
            if not isinstance(value, bytes):
                raise _wrong_type(name, "object", value)
            request.query = _query(value, ctx)
        elif name == "key":
            request.key = _key(value)
        elif name in ("limit", "num"):
            raise CommandError(
                LIMIT_PARAMETER, f"$geoNear no longer supports the '{name}' parameter. Use a $limit stage instead."
            )
        elif name == "start":
            raise CommandError(START_PARAMETER, "$geoNear no longer supports the 'start' argument.")
        elif name != "uniqueDocs":  # without effect since MongoDB 2.6
            raise CommandError(ErrorCode.BadValue, f"Unknown argument to $geoNear: {name}")
    farthest = _set_center(request, where, spherical, ctx)
    request.max_distance = min(request.max_distance, farthest)
    ctx.metadata.provided.update((GEO_NEAR_DISTANCE, GEO_NEAR_POINT))
    if spec.distance_field is not None:
        ctx.metadata.requested.add(GEO_NEAR_DISTANCE)
    if spec.locs_field is not None:
        ctx.metadata.requested.add(GEO_NEAR_POINT)
    return [spec]


def _wrong_type(name: str, expected: str, value: Value) -> CommandError:
    return CommandError(
        ErrorCode.TypeMismatch,
        f"$geoNear parameter '{name}' must be of type {expected} but found type: {type_of(value)}",
    )


def _output_path(value: Value, name: str, fault: int) -> FieldPath:
    if not isinstance(value, str):
        raise CommandError(fault, f"$geoNear requires that the '{name}' option is a String")
    check_field_path(value)
    if value.count(".") + 1 >= MAX_PATH_DEPTH:
        raise CommandError(ErrorCode.Overflow, "FieldPath is too long")
    return FieldPath(value)


def _key(value: Value) -> str:
    if not isinstance(value, str):
        raise _wrong_type("key", "string", value)
    if value == "":
        raise CommandError(ErrorCode.BadValue, "$geoNear parameter 'key' cannot be the empty string")
    if value.count(".") + 1 >= MAX_PATH_DEPTH:
        raise CommandError(KEY_DEPTH, "FieldPath is too long")
    check_field_path(value)
    return value


def _query(filter: bytes, ctx: ParseContext) -> MatchExpression:
    for name in ("$text", "$where"):
        if not isinstance(get_value(filter, name), Missing):
            raise CommandError(ErrorCode.BadValue, f"{name} is not allowed within a $geoNear query")
    return parse_match(filter, ctx)


def _constant(value: Value, fault: int, name: str, ctx: ParseContext) -> Value:
    expression = parse_expression(value, ctx)
    if not isinstance(expression, Constant):
        raise CommandError(fault, f"$geoNear requires a constant '{name}' argument")
    return MISSING if isinstance(expression.value, Missing) else expression.value


def _distance(value: Value, name: str, fault: int, ctx: ParseContext) -> float:
    return _non_negative(_constant(value, fault, name, ctx), name)


def _non_negative(value: Value, name: str) -> float:
    if not is_number(value):
        raise CommandError(ErrorCode.TypeMismatch, f"$geoNear parameter '{name}' must be a number")
    number = float(str(value))
    if not number >= 0.0:
        raise CommandError(ErrorCode.BadValue, f"$geoNear parameter '{name}' must be non-negative")
    return number


def _set_center(request: NearRequest, where: Value, spherical: bool, ctx: ParseContext) -> float:
    """Sets point and unit; returns the maximal distance within a legacy point, infinity if there is none."""
    near = _constant(where, NEAR_NOT_CONSTANT, "near", ctx)
    if not isinstance(near, (bytes, list)):
        raise CommandError(
            NEAR_TYPE, f"$geoNear requires near argument to be a GeoJSON object or a legacy point ({type_of(near)})"
        )
    try:
        if isinstance(near, bytes) and not _is_legacy(near):
            request.center = near_point(near)
            request.unit = METRES
            return math.inf
        request.center, farthest = legacy_center(near)
    except GeometryError as error:
        raise CommandError(
            ErrorCode.BadValue, f"invalid argument in geo near query: near :: caused by :: {error}"
        ) from None
    request.unit = RADIANS if spherical else PLANE
    if spherical and not is_within_bounds(request.center):
        raise CommandError(ErrorCode.BadValue, "Legacy point is out of bounds for spherical query")
    return farthest


def _is_legacy(point: bytes) -> bool:
    pairs = fields(point)
    return bool(pairs) and is_number(pairs[0][1])
