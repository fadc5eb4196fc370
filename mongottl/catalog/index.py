"""Index specifications: what `createIndexes` accepts, what `listIndexes` shows, and how two of them compare.

Source: MongoDB's createIndexes reference; for `_ts` the Cosmos rules (see `ttl.policy.parse_default_ttl`).
"""

from typing import Final

from mongottl.catalog.keys import KeyGenerator
from mongottl.document.build import encode, encode_fields
from mongottl.document.compare import compare_values
from mongottl.document.path import FieldPath
from mongottl.document.types import Decimal128, Int64, Value, is_number, type_code_of, type_name
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.match import MatchExpression, parse_match
from mongottl.ttl.policy import NO_TTL, parse_default_ttl

ID_INDEX_NAME: Final = "_id_"
TS_FIELD: Final = "_ts"
MAX_INDEXES: Final = 64
MAX_COMPOUND_FIELDS: Final = 32
MAX_EXPIRE_AFTER_SECONDS: Final = 2147483647

# Options of an index that we know and keep; the value says what refuses them where we cannot honour them yet.
_BOOLEAN_OPTIONS: Final = ("unique", "sparse", "background", "hidden", "prepareUnique")
_REFUSED_OPTIONS: Final = {
    "collation": "collations",
    "wildcardProjection": "wildcard indexes",
    "weights": "text indexes",
    "default_language": "text indexes",
    "language_override": "text indexes",
    "textIndexVersion": "text indexes",
    "2dsphereIndexVersion": "geospatial indexes",
    "bits": "geospatial indexes",
    "min": "geospatial indexes",
    "max": "geospatial indexes",
    "bucketSize": "geospatial indexes",
    "clustered": "clustered indexes",
    "columnstoreProjection": "column store indexes",
}
_IGNORED_OPTIONS: Final = ("ns", "dropDups", "storageEngine")
_KNOWN_PLUGINS: Final = ("text", "2dsphere", "2d", "hashed", "geoHaystack", "columnstore")


class IndexDescriptor:
    """One index of a collection, as specified.

    key: the pattern as raw BSON. paths, descending: its components. expire_after_s: `expireAfterSeconds` of an index on
    a date field, or None; on `_ts` it is the collection's default TTL instead (`default_ttl_s`, NO_TTL elsewhere), and
    the index holds no keys, because `_ts` is not a field of the documents.
    """

    def __init__(self, spec: bytes) -> None:
        self.spec = spec
        self.name = ""
        self.key: bytes = b""
        self.unique = False
        self.sparse = False
        self.hidden = False
        self.expire_after_s: int | None = None
        self.default_ttl_s: int = NO_TTL
        self.partial_filter: bytes | None = None
        self.partial_match: MatchExpression | None = None
        for field, value in fields(spec):
            if field == "name" and isinstance(value, str):
                self.name = value
            elif field == "key" and isinstance(value, bytes):
                self.key = value
            elif field == "unique":
                self.unique = bool(value)
            elif field == "sparse":
                self.sparse = bool(value)
            elif field == "hidden":
                self.hidden = bool(value)
            elif field == "partialFilterExpression" and isinstance(value, bytes):
                self.partial_filter = value
                self.partial_match = parse_match(value, ParseContext())
            elif field == "expireAfterSeconds" and isinstance(value, (int, float)):
                self.expire_after_s = int(value)
        pattern = fields(self.key)
        self.paths: list[FieldPath] = [FieldPath(path) for path, _ in pattern]
        self.descending: list[bool] = [_is_descending(direction) for _, direction in pattern]
        self.is_id = self.name == ID_INDEX_NAME
        self.is_ttl_setting = self.expire_after_s is not None and self.paths[0].dotted == TS_FIELD
        if self.is_ttl_setting:
            self.default_ttl_s = self.expire_after_s if self.expire_after_s is not None else NO_TTL
            self.expire_after_s = None

    def key_generator(self) -> KeyGenerator:
        return KeyGenerator(self.paths, self.descending, self.sparse)

    def with_option(self, option: str, value: Value) -> "IndexDescriptor":
        """The same index with one option set, for `collMod`."""
        pairs = [(name, old) for name, old in fields(self.spec) if name != option]
        pairs.append((option, value))
        return IndexDescriptor(encode_fields(pairs))

    def same_key(self, other: "IndexDescriptor") -> bool:
        """Whether both have the same pattern: fields, order and directions, whatever the number types."""
        mine = fields(self.key)
        others = fields(other.key)
        if len(mine) != len(others):
            return False
        for (path, direction), (other_path, other_direction) in zip(mine, others, strict=True):
            if path != other_path or compare_values(direction, other_direction) != 0:
                return False
        return True

    def same_options(self, other: "IndexDescriptor") -> bool:
        """Whether all that changes an index's meaning agrees, its name and pattern aside."""
        return (
            self.unique == other.unique
            and self.sparse == other.sparse
            and self.expire_after_s == other.expire_after_s
            and self.default_ttl_s == other.default_ttl_s
            and _same_filter(self.partial_filter, other.partial_filter)
        )


def _same_filter(a: bytes | None, b: bytes | None) -> bool:
    if a is None or b is None:
        return a is None and b is None
    return compare_values(a, b) == 0


def _is_descending(direction: Value) -> bool:
    if isinstance(direction, (int, float)):
        return direction < 0
    return isinstance(direction, Decimal128) and direction.to_decimal() < 0


def id_index_spec() -> bytes:
    return encode({"v": 2, "key": {"_id": 1}, "name": ID_INDEX_NAME})


def default_index_name(key: bytes) -> str:
    """The name that drivers give an index: "a_1_b_-1"."""
    return "_".join(f"{path}_{_direction_text(direction)}" for path, direction in fields(key))


def _direction_text(direction: Value) -> str:
    if isinstance(direction, float) and direction.is_integer():
        return str(int(direction))
    return str(direction)


def parse_index_spec(spec: bytes) -> IndexDescriptor:
    """An element of createIndexes' `indexes`, checked and normalised.

    FailedToParse (9) for missing `key` or `name`; CannotCreateIndex (67) for a pattern that cannot be an index;
    TypeMismatch (14) for an option of the wrong type; InvalidIndexSpecificationOption (197) for one that is unknown;
    BadValue (2) for a TTL out of range on `_ts`, as Cosmos; CommandNotSupported (115) for what we lack.
    """
    key: bytes | None = None
    name: str | None = None
    options: list[tuple[str, Value]] = []
    for option, value in fields(spec):
        if option == "key":
            if not isinstance(value, bytes):
                raise _wrong_type(option, value, "object")
            key = value
        elif option == "name":
            if not isinstance(value, str):
                raise _wrong_type(option, value, "string")
            name = value
        elif option == "v":
            _check_version(value)
        elif option in _BOOLEAN_OPTIONS:
            if not isinstance(value, bool) and not is_number(value):
                raise _wrong_type(option, value, "bool")
            truth = bool(value) if not isinstance(value, Decimal128) else value.to_decimal() != 0
            if truth and option not in ("background", "prepareUnique"):
                options.append((option, True))
        elif option == "expireAfterSeconds":
            options.append((option, value))
        elif option == "partialFilterExpression":
            if not isinstance(value, bytes):
                raise _wrong_type(option, value, "object")
            options.append((option, value))
        elif option in _REFUSED_OPTIONS:
            if _is_simple_collation(option, value):
                continue
            raise CommandError(
                ErrorCode.CommandNotSupported,
                f"The index option '{option}' is not supported: no {_REFUSED_OPTIONS[option]} yet",
            )
        elif option not in _IGNORED_OPTIONS:
            raise CommandError(
                ErrorCode.InvalidIndexSpecificationOption,
                f"Error in specification {describe_key(key)} :: caused by :: The field '{option}' is not valid for an index specification",
            )
    if key is None:
        raise CommandError(ErrorCode.FailedToParse, "The 'key' field is a required property of an index specification")
    if name is None:
        raise CommandError(ErrorCode.FailedToParse, "The 'name' field is a required property of an index specification")
    _check_key(key)
    if name == "" or "\0" in name:
        raise CommandError(ErrorCode.CannotCreateIndex, "index name cannot be empty")
    if name == "*":
        raise CommandError(ErrorCode.BadValue, "The index name '*' is not valid.")
    is_id = _is_id_key(key)
    if name == ID_INDEX_NAME and not is_id:
        raise CommandError(
            ErrorCode.BadValue,
            f"The index name '{ID_INDEX_NAME}' is reserved for the _id index, which must have key pattern {{_id: 1}}",
        )
    if is_id:
        for option, _ in options:
            raise CommandError(
                ErrorCode.InvalidIndexSpecificationOption,
                f"The field '{option}' is not valid for an _id index specification",
            )
        return IndexDescriptor(id_index_spec())
    checked: list[tuple[str, Value]] = [("v", 2), ("key", key), ("name", name)]
    for option, value in options:
        checked.append((option, _checked_ttl(key, options, value) if option == "expireAfterSeconds" else value))
    return IndexDescriptor(encode_fields(checked))


def _is_simple_collation(option: str, value: Value) -> bool:
    return option == "collation" and isinstance(value, bytes) and fields(value) == [("locale", "simple")]


def _wrong_type(option: str, value: Value, expected: str) -> CommandError:
    return CommandError(
        ErrorCode.TypeMismatch,
        f"The field '{option}' must be of type {expected}, but got {type_name(type_code_of(value))}",
    )


def _check_version(value: Value) -> None:
    if not is_number(value):
        raise _wrong_type("v", value, "number")
    if not isinstance(value, (int, float)) or value not in (1, 2):
        raise CommandError(
            ErrorCode.CannotCreateIndex,
            f"Invalid index specification; cannot create an index with the '_id' or v: {value}",
        )


def _is_id_key(key: bytes) -> bool:
    pattern = fields(key)
    return (
        len(pattern) == 1 and pattern[0][0] == "_id" and is_number(pattern[0][1]) and not _is_descending(pattern[0][1])
    )


def describe_key(key: bytes | None) -> str:
    """A pattern as mongod writes it in messages: `{ a: 1, b: -1 }`."""
    if key is None:
        return "{}"
    parts: list[str] = []
    for path, direction in fields(key):
        text = f'"{direction}"' if isinstance(direction, str) else _direction_text(direction)
        parts.append(f"{path}: {text}")
    return "{ " + ", ".join(parts) + " }" if parts else "{}"


def _check_key(key: bytes) -> None:
    pattern = fields(key)
    if not pattern:
        raise CommandError(ErrorCode.CannotCreateIndex, "Index keys cannot be an empty object.")
    if len(pattern) > MAX_COMPOUND_FIELDS:
        raise CommandError(
            ErrorCode.CannotCreateIndex, f"Number of fields in a compound index can't exceed {MAX_COMPOUND_FIELDS}"
        )
    seen: set[str] = set()
    for path, direction in pattern:
        if path in seen:
            raise CommandError(
                ErrorCode.CannotCreateIndex, f"Field {path} appears twice in the index key {describe_key(key)}"
            )
        seen.add(path)
        _check_direction(key, direction)
        _check_path(key, path)


def _check_direction(key: bytes, direction: Value) -> None:
    if isinstance(direction, str):
        if direction in _KNOWN_PLUGINS:
            raise CommandError(ErrorCode.CommandNotSupported, f"Indexes of type '{direction}' are not supported yet")
        if direction == "":
            raise CommandError(ErrorCode.CannotCreateIndex, "Values in the index key pattern cannot be empty strings")
        raise CommandError(ErrorCode.CannotCreateIndex, f"Unknown index plugin '{direction}'")
    if not is_number(direction):
        raise CommandError(
            ErrorCode.CannotCreateIndex,
            "Values in v:2 index key pattern cannot be of type"
            f" {type_name(type_code_of(direction))}. Only numbers > 0, numbers < 0, and strings are allowed.",
        )
    number = direction.to_decimal() if isinstance(direction, Decimal128) else direction
    if number == 0 or number != number:
        raise CommandError(ErrorCode.CannotCreateIndex, "Values in the index key pattern cannot be 0.")


def _check_path(key: bytes, path: str) -> None:
    if path == "":
        raise CommandError(ErrorCode.CannotCreateIndex, "Index keys cannot contain an empty field.")
    for part in path.split("."):
        if part == "":
            raise CommandError(ErrorCode.CannotCreateIndex, "Index keys cannot contain an empty field.")
        if part == "$**":
            raise CommandError(ErrorCode.CommandNotSupported, "Wildcard indexes are not supported yet")
        if part.startswith("$") and part not in ("$id", "$ref", "$db"):
            raise CommandError(
                ErrorCode.CannotCreateIndex,
                f"Index key contains an illegal field name: field name starts with '$'.: {describe_key(key)}",
            )


def _checked_ttl(key: bytes, options: list[tuple[str, Value]], value: Value) -> Value:
    """`expireAfterSeconds` as listIndexes shows it, checked by the rules of its field."""
    pattern = fields(key)
    if len(pattern) != 1:
        raise CommandError(
            ErrorCode.CannotCreateIndex, "TTL indexes are single-field indexes, compound indexes do not support TTL"
        )
    path = pattern[0][0]
    if path == TS_FIELD:
        for option, _ in options:
            if option in ("unique", "sparse", "partialFilterExpression"):
                raise CommandError(
                    ErrorCode.CannotCreateIndex,
                    f"The option '{option}' cannot be combined with 'expireAfterSeconds' on '_ts'",
                )
        return parse_default_ttl(value)
    if path == "_id":
        raise CommandError(ErrorCode.CannotCreateIndex, "_id index cannot have TTL")
    return checked_date_ttl(value)


def checked_date_ttl(value: Value) -> int:
    """`expireAfterSeconds` of a date-field index: a number of 0 to 2147483647, by MongoDB's rules."""
    if not is_number(value):
        raise CommandError(
            ErrorCode.TypeMismatch,
            f"TTL index 'expireAfterSeconds' option must be numeric, but received a type of {type_name(type_code_of(value))}",
        )
    number = float(value.to_decimal()) if isinstance(value, Decimal128) else value
    assert isinstance(number, (int, float))
    if number != number:
        number = MAX_EXPIRE_AFTER_SECONDS  # NaN counts as the maximum since MongoDB 5.0.14
    if number < 0:
        raise CommandError(ErrorCode.CannotCreateIndex, "TTL index 'expireAfterSeconds' option cannot be less than 0")
    if number > MAX_EXPIRE_AFTER_SECONDS:
        raise CommandError(
            ErrorCode.CannotCreateIndex,
            f"TTL index 'expireAfterSeconds' option must be within an acceptable range, try a value less than {MAX_EXPIRE_AFTER_SECONDS}",
        )
    return int(number)


def expire_after_value(seconds: int) -> Value:
    return seconds if seconds <= MAX_EXPIRE_AFTER_SECONDS else Int64(seconds)
