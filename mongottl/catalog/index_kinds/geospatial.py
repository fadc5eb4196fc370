"""Geospatial indexes: {place: "2dsphere"} and {place: "2d"}, alone or with ordinary components.

    2dsphere    geometries on the sphere, at one path or several; keys are S2 cells (`geometry.coverings`)
    2d          pairs of numbers on the plane, at the first path; keys are geohashes (`geometry.geohash`)

A document without a geometry is not in the index (in a 2dsphere index of version 1 it is, as null). A document with
several geometries has several keys. Source: MongoDB's pages on both.
"""

from typing import Final

from mongottl.catalog.index_kinds.kind import IndexKind, IndexPattern, Pattern
from mongottl.catalog.keys import BtreeKeyGenerator, KeyGenerator, check_count
from mongottl.document.build import encode, encode_fields
from mongottl.document.collation import Collation
from mongottl.document.freeing import LongSet, list_for
from mongottl.document.interrupt import give_way
from mongottl.document.keystring import encode_value
from mongottl.document.long_lists import each_with_each
from mongottl.document.numbers import whole
from mongottl.document.path import FieldPath, values_at
from mongottl.document.render import render_document, render_value
from mongottl.document.types import BinData, Decimal128, Int64, Undefined, Value, is_number
from mongottl.document.walk import fields, fields_by_name, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.geometry.geohash import MAX_BITS, Geohash
from mongottl.geometry.geojson import GeometryError, Position, stored_geometry
from mongottl.geometry.library import require_sphere

SPHERE: Final = "2dsphere"
PLANE: Final = "2d"

SPHERE_VERSIONS: Final = (1, 2, 3)
DEFAULT_SPHERE_VERSION: Final = 3
DEFAULT_BITS: Final = 26
DEFAULT_LOW: Final = -180.0
DEFAULT_HIGH: Final = 180.0

CANT_EXTRACT_GEO_KEYS: Final = 16755
SEVERAL_PLANES: Final = 16800
PLANE_NOT_FIRST: Final = 16801
NOT_NUMBERS: Final = 13026
OUT_OF_RANGE: Final = 13027
ONE_NUMBER: Final = 13068
NO_LOCATION: Final = 16804


class SphereKind(IndexKind):
    """`2dsphereIndexVersion`: 1 to 3; CannotCreateIndex (67) for another."""

    def __init__(self) -> None:
        super().__init__(SPHERE, SPHERE, {"2dsphereIndexVersion": "number"})
        # A polygon of a thousand corners, which takes a few milliseconds.
        self.ahead_bytes = 1 << 15

    def check_pattern(self, pattern: Pattern) -> None:
        require_sphere()

    def normalised(self, key: bytes, options: dict[str, Value]) -> tuple[bytes, dict[str, Value]]:
        version = options.get("2dsphereIndexVersion", DEFAULT_SPHERE_VERSION)
        number = None if isinstance(version, Decimal128) else whole(version)
        if number is None or number not in SPHERE_VERSIONS:
            raise CommandError(
                ErrorCode.CannotCreateIndex,
                f"unsupported geo index version {{ 2dsphereIndexVersion : {render_value(version)} }}, only support"
                " versions: [1,2,3]",
            )
        shown = dict(options)
        shown["2dsphereIndexVersion"] = number
        return key, shown

    def key_generator(self, pattern: IndexPattern) -> KeyGenerator:
        require_sphere()
        version = get_value(pattern.spec, "2dsphereIndexVersion")
        return SphereKeyGenerator(
            pattern.paths,
            pattern.descending,
            pattern.directions,
            version != 1 or pattern.sparse,
            pattern.collation,
        )


class PlaneKind(IndexKind):
    """`bits`: 1 to 32. `min`, `max`: of both coordinates. InvalidOptions (72) for others.

    16801 where the place is not first, 16800 for two.
    """

    def __init__(self) -> None:
        super().__init__(PLANE, PLANE, {"bits": "number", "min": "number", "max": "number"})
        self.collates = False
        # Five thousand points, which take ten milliseconds.
        self.ahead_bytes = 1 << 17

    def check_pattern(self, pattern: Pattern) -> None:
        planes = sum(1 for _, direction in pattern if direction == PLANE)
        if planes > 1:
            raise CommandError(SEVERAL_PLANES, "can't have 2 geo fields")
        if pattern[0][1] != PLANE:
            raise CommandError(PLANE_NOT_FIRST, "2d has to be first in index")

    def normalised(self, key: bytes, options: dict[str, Value]) -> tuple[bytes, dict[str, Value]]:
        geohash_of(encode(options))  # raises for invalid options
        return key, options

    def listed(self, spec: bytes) -> bytes:
        """Whole `bits`, doubles for `min` and `max`, whatever numbers they were."""
        geohash = geohash_of(spec)
        shown = fields_by_name(spec)
        # Not in a loop: compiled, numbers of two types would become one.
        if "bits" in shown:
            shown["bits"] = geohash.bits
        if "min" in shown:
            shown["min"] = geohash.low
        if "max" in shown:
            shown["max"] = geohash.high
        return encode_fields(shown.items())

    def key_generator(self, pattern: IndexPattern) -> KeyGenerator:
        return PlaneKeyGenerator(pattern.paths, pattern.descending, pattern.directions, geohash_of(pattern.spec))


def geohash_of(spec: bytes) -> Geohash:
    """The geohash grid of a 2d index, from its options. InvalidOptions (72) for invalid options."""
    options = fields_by_name(spec)
    bits = options.get("bits", DEFAULT_BITS)
    depth = int(bits) if isinstance(bits, (int, float)) and 1 <= bits <= MAX_BITS else 0
    if not depth:
        raise CommandError(
            ErrorCode.InvalidOptions,
            f"bits for hash must be > 0 and <= {MAX_BITS}, but {render_value(bits)} bits were specified",
        )
    low = _limit(options, "min", DEFAULT_LOW)
    high = _limit(options, "max", DEFAULT_HIGH)
    if not high > low:
        raise CommandError(
            ErrorCode.InvalidOptions,
            f"region for hash must be valid and have positive area, but [{low}, {high}] was specified",
        )
    return Geohash(depth, low, high)


def _limit(options: dict[str, Value], name: str, default: float) -> float:
    value = options.get(name)
    return float(str(value)) if is_number(value) else default


def sphere_value(cell: int) -> Value:
    """A cell's id as it stands in keys, and as explain shows it."""
    return Int64(cell)


def plane_value(geohash: Geohash, key: int, last: bool = False) -> Value:
    """A geohash as it is in keys: eight bytes, filled up with zero bits, or with one bits for the end of a range."""
    free = 64 - 2 * geohash.bits
    filled = key << free | ((1 << free) - 1 if last else 0)
    return BinData(filled.to_bytes(8, "big"), 128)


def _encoded(values: list[Value]) -> list[bytes]:
    """The component of a key that each of the values is; null where there is none."""
    components: list[bytes] = list_for(len(values))
    for value in values or [None]:
        give_way()
        components.append(encode_value(value))
    return components


def _bytes_of(keys: list[bytes]) -> int:
    return sum(map(len, keys))


class PlaceKeyGenerator(KeyGenerator):
    """Makes the keys of both kinds of geospatial index: each geometry value with each key of the other components.

    collation: of the other components.
    """

    def __init__(
        self,
        paths: list[FieldPath],
        descending: list[bool],
        directions: list[Value],
        sparse: bool,
        collation: Collation | None = None,
    ) -> None:
        super().__init__()
        self._paths = paths
        self._places = [isinstance(direction, str) for direction in directions]
        self._sparse = sparse
        self._others: list[BtreeKeyGenerator] = [
            BtreeKeyGenerator([paths[i]], [descending[i]], False, collation) for i in range(len(paths))
        ]

    def place_values(self, document: bytes, path: FieldPath) -> list[Value]:
        """The values in keys for the geometries at a path; [] if there is none."""
        raise NotImplementedError

    def keys_of(self, document: bytes) -> list[bytes]:
        self.begin()
        components: list[list[bytes]] = []
        found = not self._sparse
        for i in range(len(self._paths)):
            if self._places[i]:
                values = self.place_values(document, self._paths[i])
                found = found or bool(values)
                if len(values) > 1:
                    # As with an array: two conditions may hold for two of the keys.
                    self.note_array(self._paths[i].dotted)
                components.append(_encoded(values))
            else:
                components.append(self._others[i].keys_of(document))
                for path in self._others[i].array_paths:
                    self.note_array(path)
        if not found:
            return []
        keys: list[bytes] = [b""]
        for one in components:
            check_count(len(keys) * len(one), _bytes_of(keys) * len(one) + len(keys) * _bytes_of(one))
            keys = each_with_each(keys, one)
        return keys

    def values_of_key(self, document: bytes, key: bytes) -> list[Value]:
        values: list[Value] = []
        for i in range(len(self._paths)):
            if self._places[i]:
                values.append((self.place_values(document, self._paths[i]) or [None])[0])
            else:
                other = self._others[i]
                values.append(other.values_of_key(document, other.keys_of(document)[0])[0])
        return values


class SphereKeyGenerator(PlaceKeyGenerator):
    """Makes the keys of a 2dsphere index. 16755 for a value that is not missing, null, an empty array or a geometry."""

    def place_values(self, document: bytes, path: FieldPath) -> list[Value]:
        from mongottl.geometry.coverings import stored_cells
        from mongottl.geometry.sphere import shape_of

        cells: set[int] = LongSet()
        for value in values_at(document, path, whole=True):
            if value is None or isinstance(value, Undefined) or value == []:
                continue
            try:
                geometry = stored_geometry(value)
                if geometry.strict_winding:
                    raise GeometryError("can't index geometry with strict winding order")
                for cell in stored_cells(shape_of(geometry)):
                    give_way()
                    cells.add(cell)
            except GeometryError as error:
                raise CommandError(
                    CANT_EXTRACT_GEO_KEYS, f"Can't extract geo keys: {render_document(document)}  {error}"
                ) from None
        found: list[Value] = list_for(len(cells))
        for cell in cells:
            give_way()
            found.append(sphere_value(cell))
        return found


class PlaneKeyGenerator(PlaceKeyGenerator):
    """Makes the keys of a 2d index. 13027 for a point outside its bounds, other codes for values that are not
    points."""

    def __init__(
        self, paths: list[FieldPath], descending: list[bool], directions: list[Value], geohash: Geohash
    ) -> None:
        super().__init__(paths, descending, directions, True)
        self._geohash = geohash

    def place_values(self, document: bytes, path: FieldPath) -> list[Value]:
        geohash = self._geohash
        hashes: set[int] = LongSet()
        for value in values_at(document, path, whole=True):
            for position in plane_positions(value):
                give_way(4)
                if not geohash.has_within(position):
                    raise CommandError(
                        OUT_OF_RANGE,
                        f"point not in interval of [ {geohash.low}, {geohash.high} ] :: caused by ::"
                        f" {render_value(value)}",
                    )
                hashes.add(geohash.hash(position))
        found: list[Value] = list_for(len(hashes))
        for key in hashes:
            give_way()
            found.append(plane_value(geohash, key))
        return found


def plane_positions(value: Value) -> list[Position]:
    """The points of a value: one, or an array or document of several; none if it is neither array nor document."""
    if isinstance(value, list):
        parts = value
    elif isinstance(value, bytes):
        named = fields(value)
        parts = list_for(len(named))
        for _, part in named:
            give_way()
            parts.append(part)
    else:
        return []
    if not parts:
        return []
    if is_number(parts[0]):
        return [_plane_position(parts)]
    found: list[Position] = list_for(len(parts))
    for part in parts:
        give_way(4)
        if isinstance(part, list):
            found.append(_plane_position(part))
        elif isinstance(part, bytes):
            found.append(_plane_position([inner for _, inner in fields(part)]))
        else:
            raise CommandError(NO_LOCATION, "location object expected, location array not in correct format")
    return found


def _plane_position(parts: list[Value]) -> Position:
    if len(parts) < 2:
        raise CommandError(ONE_NUMBER, "geo field only has 1 element")
    if not is_number(parts[0]) or not is_number(parts[1]):
        raise CommandError(
            NOT_NUMBERS, f"geo values must be 'legacy coordinate pairs' for 2d indexes :: caused by :: {parts!r}"
        )
    return float(str(parts[0])), float(str(parts[1]))
