"""What `createIndexes` accepts: index specifications, checked and normalised.

Source: MongoDB's createIndexes reference, with the error codes that MongoDB 8.2 gives; for `expireAfterSeconds` on
`_ts`, the Cosmos rules (see `ttl.policy.parse_default_ttl`).
"""

from typing import Final

from mongottl.catalog.engine_options import checked_storage_engine
from mongottl.catalog.index import ID_INDEX_NAME, TS_FIELD, IndexDescriptor, id_index_spec
from mongottl.catalog.index_kinds import IndexKind, kind_of
from mongottl.catalog.index_kinds.kind import is_wildcard
from mongottl.catalog.index_kinds.table import INDEX_KINDS
from mongottl.catalog.partial_filter import check_partial_filter
from mongottl.document.build import encode_fields
from mongottl.document.collation import Collation, same_collation
from mongottl.document.compare import compare_numbers
from mongottl.document.interrupt import give_way
from mongottl.document.numbers import is_nan, is_true, truncated, whole
from mongottl.document.path import check_path_depth
from mongottl.document.render import render_beginning, render_value
from mongottl.document.types import Value, is_number, type_code_of, type_name
from mongottl.document.walk import ElementCursor, fields, first_field_name, is_empty
from mongottl.errors import CommandError, ErrorCode, shortened
from mongottl.query.collation import parse_collation
from mongottl.ttl.policy import parse_default_ttl

MAX_COMPOUND_FIELDS: Final = 32
MAX_EXPIRE_AFTER_SECONDS: Final = 2147483647
TOO_MANY_COMPOUND_KEYS: Final = 13103

_BOOLEAN_OPTIONS: Final = ("unique", "sparse", "background", "hidden", "prepareUnique")
# Options of MongoDB that are not supported: the type that each must have, and the feature it belongs to.
_REFUSED_OPTIONS: Final = {
    "bucketSize": ("number", "haystack indexes"),
    "clustered": ("", "clustered indexes but that of create"),
    "columnstoreProjection": ("object", "column store indexes"),
}
# Options of old versions, which MongoDB accepts and ignores, too.
_IGNORED_OPTIONS: Final = ("ns", "dropDups")
# The options that the specification of an `_id` index may have.
_ID_INDEX_OPTIONS: Final = ("key", "name", "v", "ns", "collation")


def parse_index_spec(spec: bytes, ignore_unknown: bool = False, inherited: Collation | None = None) -> IndexDescriptor:
    """Checks and normalises an element of createIndexes' `indexes`.

    ignore_unknown: drop unknown options (`ignoreUnknownIndexOptions`). inherited: the collection's collation, for an
    index that names none; an index that names the simple collation has none.
    FailedToParse (9) for missing `key` or `name`; CannotCreateIndex (67) for an invalid key pattern and an invalid TTL;
    TypeMismatch (14) for an option of the wrong type; InvalidIndexSpecificationOption (197) for an unknown option;
    BadValue (2) for a TTL out of range on `_ts`, as in Cosmos DB; CommandNotSupported (115) for an unsupported option.
    """
    try:
        return _parse(spec, ignore_unknown, inherited)
    except CommandError as error:
        raise CommandError(
            error.code,
            f"Error in specification {render_beginning(spec)} :: caused by :: {error.message}",
            error.details,
        ) from None


def check_id_index_spec(spec: bytes, collation: Collation | None) -> None:
    """Checks `idIndex` of `create`, which may only describe the `_id` index as it is. The errors of `parse_index_spec`,
    and BadValue (2) for another key.

    collation: the collection's.
    """
    key = _key_of(spec)
    if not _is_id_key(key):
        raise CommandError(
            ErrorCode.BadValue, f"The field 'key' for an _id index must be {{_id: 1}}, but got {render_beginning(key)}"
        )
    parse_index_spec(spec, False, collation)


def _key_of(spec: bytes) -> bytes:
    for name, value in fields(spec):
        if name == "key":
            if not isinstance(value, bytes):
                raise _wrong_type(name, value, "object")
            return value
    raise _missing("key")


def _missing(option: str) -> CommandError:
    return CommandError(
        ErrorCode.FailedToParse, f"The '{option}' field is a required property of an index specification"
    )


# The work of parsing one specification, in the units of `give_way`.
_SPEC_WEIGHT: Final = 8


def _parse(spec: bytes, ignore_unknown: bool, inherited: Collation | None) -> IndexDescriptor:
    give_way(_SPEC_WEIGHT)
    key: bytes | None = None
    name: str | None = None
    version = 2
    options: dict[str, Value] = {}
    refused = ""
    collation = inherited
    for option, value in fields(spec):
        if option == "key":
            key = _checked_pattern_type(value)
        elif option == "name":
            if not isinstance(value, str):
                raise _wrong_type(option, value, "string")
            name = value
        elif option == "v":
            version = _checked_version(value)
        elif option in _BOOLEAN_OPTIONS:
            if not isinstance(value, bool) and (option == "hidden" or not is_number(value)):
                raise _wrong_type(option, value, "bool")
            options[option] = is_true(value)
        elif option == "expireAfterSeconds":
            options[option] = value
        elif option == "partialFilterExpression":
            if not isinstance(value, bytes):
                raise _wrong_type(option, value, "object")
            options[option] = value
        elif option == "storageEngine":
            options[option] = _checked_engine_options(value)
        elif option == "collation":
            collation = _checked_collation(value)
        elif (owner := _owner_of(option)) is not None:
            expected = owner.options[option]
            if expected and not _is_of_type(value, expected):
                raise _wrong_type(option, value, expected)
            options[option] = value
        elif option in _REFUSED_OPTIONS:
            expected = _REFUSED_OPTIONS[option][0]
            if expected and not _is_of_type(value, expected):
                raise _wrong_type(option, value, expected)
            refused = refused or option
        elif option not in _IGNORED_OPTIONS and not ignore_unknown:
            raise CommandError(
                ErrorCode.InvalidIndexSpecificationOption,
                f"The field '{shortened(option)}' is not valid for an index specification. Specification:"
                f" {render_beginning(spec)}",
            )
    if key is None:
        raise _missing("key")
    if name is None:
        raise _missing("name")
    if refused:
        raise _refusal(refused)
    _check_key(key, version, "expireAfterSeconds" in options)
    _check_name(name)
    if _is_id_key(key):
        return _id_index(spec, collation, inherited)
    if name == ID_INDEX_NAME:
        raise CommandError(
            ErrorCode.BadValue,
            f"The index name '{ID_INDEX_NAME}' is reserved for the _id index, which must have key pattern {{_id: 1}},"
            f" found key: {render_beginning(key)}",
        )
    kind = kind_of(fields(key))
    for option in options:
        owner = _owner_of(option)
        if owner is not None and owner is not kind:
            owner.check_misplaced(option)
    if collation is not None and not kind.collates:
        raise CommandError(
            ErrorCode.CannotCreateIndex, f"Index type '{kind.plugin}' does not support collation: {collation.locale}"
        )
    shown_key, shown = kind.normalised(key, _checked_options(key, options))
    checked: list[tuple[str, Value]] = [("v", version), ("key", shown_key), ("name", name)]
    checked.extend(shown.items())
    if collation is not None:
        checked.append(("collation", collation.spec))
    return IndexDescriptor(encode_fields(checked))


def _owner_of(option: str) -> IndexKind | None:
    """The kind of index to which an option belongs."""
    for kind in INDEX_KINDS:
        if option in kind.options:
            return kind
    return None


def _checked_pattern_type(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise _wrong_type("key", value, "object")
    seen: set[str] = set()
    cursor = ElementCursor(value, 0)
    while cursor.next() and len(seen) <= MAX_COMPOUND_FIELDS:
        path = cursor.name()
        if path in seen:
            raise CommandError(
                ErrorCode.BadValue,
                f"The field '{shortened(path)}' appears multiple times in the index key pattern"
                f" {render_beginning(value)}",
            )
        seen.add(path)
    return value


def _checked_version(value: Value) -> int:
    if not is_number(value):
        raise _wrong_type("v", value, "number")
    version = whole(value)
    if version is None:
        raise CommandError(
            ErrorCode.BadValue,
            f"Index version must be representable as a 32-bit integer, but got {render_value(value)}",
        )
    if version not in (1, 2):
        raise CommandError(
            ErrorCode.CannotCreateIndex, f"Invalid index specification; cannot create an index v: {version}"
        )
    return version


def _check_name(name: str) -> None:
    if name == "":
        raise CommandError(ErrorCode.CannotCreateIndex, "index name cannot be empty")
    if "\0" in name:
        raise CommandError(ErrorCode.CannotCreateIndex, "index name cannot contain NUL bytes")
    if name == "*":
        raise CommandError(ErrorCode.BadValue, "The index name '*' is not valid.")


def _checked_engine_options(value: Value) -> bytes:
    """`storageEngine`: TypeMismatch (14), CannotCreateIndex (67) if it is empty, else as `checked_storage_engine`."""
    if not isinstance(value, bytes):
        raise _wrong_type("storageEngine", value, "object")
    checked = checked_storage_engine("storageEngine", value)
    if checked is None:
        raise CommandError(
            ErrorCode.CannotCreateIndex,
            "Empty 'storageEngine' options are invalid. Please remove the field or include valid options.",
        )
    return checked


def _is_of_type(value: Value, expected: str) -> bool:
    if expected == "object":
        return isinstance(value, bytes)
    if expected == "string":
        return isinstance(value, str)
    return is_number(value)


def _checked_collation(value: Value) -> Collation | None:
    """None for the simple collation. BadValue (2) for an empty document, and the errors of `parse_collation`."""
    if not isinstance(value, bytes):
        raise _wrong_type("collation", value, "object")
    if is_empty(value):
        raise CommandError(ErrorCode.BadValue, "The field 'collation' cannot be an empty object.")
    return parse_collation(value)


def _refusal(option: str) -> CommandError:
    return CommandError(
        ErrorCode.CommandNotSupported,
        f"The index option '{option}' is not supported: there are no {_REFUSED_OPTIONS[option][1]}",
    )


def _wrong_type(option: str, value: Value, expected: str) -> CommandError:
    return CommandError(
        ErrorCode.TypeMismatch,
        f"The field '{option}' must be of type {expected}, but got {type_name(type_code_of(value))}",
    )


def _is_id_key(key: bytes) -> bool:
    """Whether this is the pattern of the `_id` index. BadValue (2) for a descending one, {_id: -1}."""
    if first_field_name(key) != "_id" or _has_too_many_fields(key):
        return False
    pattern = fields(key)
    if len(pattern) != 1:
        return False
    direction = truncated(pattern[0][1])
    if direction == -1:
        raise CommandError(
            ErrorCode.BadValue, f"The field 'key' for an _id index must be {{_id: 1}}, but got {render_beginning(key)}"
        )
    return direction == 1


def _id_index(spec: bytes, collation: Collation | None, collections: Collation | None) -> IndexDescriptor:
    for option, _ in fields(spec):
        if option not in _ID_INDEX_OPTIONS:
            raise CommandError(
                ErrorCode.InvalidIndexSpecificationOption,
                f"The field '{shortened(option)}' is not valid for an _id index specification. Specification:"
                f" {render_beginning(spec)}",
            )
    if not same_collation(collation, collections):
        raise CommandError(ErrorCode.BadValue, "The _id index must have the same collation as the collection.")
    return IndexDescriptor(id_index_spec(collation))


def _check_key(key: bytes, version: int, has_ttl: bool) -> None:
    if is_empty(key):
        raise CommandError(ErrorCode.CannotCreateIndex, "Index keys cannot be an empty object.")
    if _has_too_many_fields(key):
        raise CommandError(TOO_MANY_COMPOUND_KEYS, "too many compound keys")
    pattern = fields(key)
    if has_ttl and len(pattern) > 1:
        raise CommandError(
            ErrorCode.CannotCreateIndex, "TTL indexes are single-field indexes, compound indexes do not support TTL"
        )
    for path, direction in pattern:
        _check_direction(path, direction, version)
        _check_path(path)
    for path, direction in pattern:
        if isinstance(direction, str) and has_ttl and path == TS_FIELD:
            raise CommandError(
                ErrorCode.CannotCreateIndex, f"An index on '{TS_FIELD}' with TTL cannot be of type '{direction}'"
            )
    kind = kind_of(pattern)
    if version < kind.min_version:
        raise CommandError(
            ErrorCode.CannotCreateIndex,
            f"'{kind.name}' index plugin is not allowed with index version v:{version}",
        )
    for path, _ in pattern:
        if is_wildcard(path) and not kind.takes_everything(path):
            raise _illegal_name()
        if path == "_fts" and kind.plugin != "text":
            raise CommandError(ErrorCode.CannotCreateIndex, "Index key contains an illegal field name: '_fts'")
    kind.check_pattern(pattern)


def _has_too_many_fields(key: bytes) -> bool:
    cursor = ElementCursor(key, 0)
    for _ in range(MAX_COMPOUND_FIELDS):
        if not cursor.next():
            return False
    return cursor.next()


def _check_direction(path: str, direction: Value, version: int) -> None:
    if isinstance(direction, str):
        if direction == "":
            raise CommandError(ErrorCode.CannotCreateIndex, "Values in the index key pattern cannot be empty strings")
        if direction == "wildcard" and not is_wildcard(path):
            raise CommandError(7246202, "The index type 'wildcard' is for internal use: name the path '$**' instead")
        return
    if version < 2 and not isinstance(direction, (bytes, list)):
        return  # old versions accepted any value; those that are not numbers mean ascending
    if not is_number(direction):
        raise CommandError(
            ErrorCode.CannotCreateIndex,
            f"Values in v:{version} index key pattern cannot be of type"
            f" {type_name(type_code_of(direction))}. Only numbers > 0, numbers < 0, and strings are allowed.",
        )
    if is_nan(direction):
        raise CommandError(ErrorCode.CannotCreateIndex, "Values in the index key pattern cannot be NaN.")
    if not is_true(direction):
        raise CommandError(ErrorCode.CannotCreateIndex, "Values in the index key pattern cannot be 0.")


def _check_path(path: str) -> None:
    check_path_depth(path, ErrorCode.CannotCreateIndex)
    parts = path.split(".")
    for place, part in enumerate(parts):
        if part == "":
            raise CommandError(ErrorCode.CannotCreateIndex, "Index keys cannot contain an empty field.")
        if part == "$**" and place == len(parts) - 1:
            return
        # The fields of a DBRef begin with `$`, too.
        if part.startswith("$") and (place == 0 or part not in ("$id", "$ref", "$db")):
            raise _illegal_name()


def _illegal_name() -> CommandError:
    return CommandError(
        ErrorCode.CannotCreateIndex, "Index key contains an illegal field name: field name starts with '$'."
    )


def _checked_options(key: bytes, options: dict[str, Value]) -> dict[str, Value]:
    """The options as listIndexes shows them."""
    if "partialFilterExpression" in options:
        if options.get("sparse"):
            raise CommandError(ErrorCode.CannotCreateIndex, 'cannot mix "partialFilterExpression" and "sparse" options')
        check_partial_filter(options["partialFilterExpression"])
    shown: dict[str, Value] = {}
    for option, value in options.items():
        if option == "expireAfterSeconds":
            shown[option] = _checked_ttl(key, options, value)
        elif value or option in ("sparse", "background") or _owner_of(option) is not None:
            shown[option] = value
    return shown


def _checked_ttl(key: bytes, options: dict[str, Value], value: Value) -> Value:
    """`expireAfterSeconds` as listIndexes shows it, checked by the rules of its field."""
    path = fields(key)[0][0]
    if path == TS_FIELD:
        for option in ("unique", "prepareUnique", "sparse", "partialFilterExpression"):
            if options.get(option):
                raise CommandError(
                    ErrorCode.CannotCreateIndex,
                    f"The option '{option}' cannot be combined with 'expireAfterSeconds' on '{TS_FIELD}'",
                )
        return parse_default_ttl(value)
    return checked_date_ttl(value)


def checked_date_ttl(value: Value) -> int:
    """`expireAfterSeconds` of a new date-field index: 0 to 2147483647 seconds, fractions cut off.

    CannotCreateIndex (67) for anything else, NaN included.
    """
    if not is_number(value):
        raise CommandError(
            ErrorCode.CannotCreateIndex,
            "TTL index 'expireAfterSeconds' option must be numeric, but received a type of"
            f" {type_name(type_code_of(value))}",
        )
    if is_nan(value):
        raise CommandError(ErrorCode.CannotCreateIndex, "TTL index 'expireAfterSeconds' option cannot be NaN")
    if compare_numbers(value, 0) < 0:
        raise CommandError(ErrorCode.CannotCreateIndex, "TTL index 'expireAfterSeconds' option cannot be less than 0")
    seconds = truncated(value)
    if seconds is None or compare_numbers(value, MAX_EXPIRE_AFTER_SECONDS) > 0:
        raise CommandError(
            ErrorCode.CannotCreateIndex,
            "TTL index 'expireAfterSeconds' option must be within an acceptable range, try a value less than"
            f" {MAX_EXPIRE_AFTER_SECONDS}",
        )
    return seconds
